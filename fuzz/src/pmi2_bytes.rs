//! Target: the PMI-2 reference server, with arbitrary bytes from several processes.
//!
//! Input: records. Each record consists of a byte that selects a process, the bytes that this process sends, and 0xff. A record without
//! bytes closes the connection.
//! All processes have already sent the init line. Processes 0 to 2 form the first group. Process 3 is alone in a second group, and each
//! record for it triggers its next step.

use pmi_wire::Framing;

use crate::server_bytes::DialectSession;

/// The script of a PMI-2 process (see [`DialectSession::script`]).
const SCRIPT: [(&str, &str); 9] = [
    (
        "cmd=fullinit;",
        "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;",
    ),
    ("cmd=job-getid;thrid=1;", "cmd=job-getid-response;thrid=1;jobid=kvs-1;rc=0;"),
    ("cmd=kvs-put;key=k;value=mi;;ne;", "cmd=kvs-put-response;rc=0;"),
    ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
    ("cmd=info-putnodeattr;key=a;value=;", "cmd=info-putnodeattr-response;rc=0;"),
    ("cmd=kvs-get;jobid=kvs-1;srcid=9;key=k;", "cmd=kvs-get-response;found=TRUE;value=mi;;ne;rc=0;"),
    ("cmd=info-getnodeattr;key=a;wait=TRUE;", "cmd=info-getnodeattr-response;found=TRUE;value=;rc=0;"),
    (
        "cmd=info-getjobattr;key=PMI_process_mapping;",
        "cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,1));rc=0;",
    ),
    ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
];

/// Plays a PMI-2 session.
pub fn run(data: &[u8]) {
    DialectSession { framing: Framing::Frames, script: &SCRIPT, bytes: 128 }.play(data);
}
