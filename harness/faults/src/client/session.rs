//! The plain sessions of a program, one for each dialect.

use serde::Deserialize;

/// A plain session. Each catalogue entry for clients is a change to one of these sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum PlainSession {
    /// The PMI-1 session.
    #[default]
    #[serde(rename = "pmi-1.1")]
    Lines,
    /// The PMI-1.2 session.
    #[serde(rename = "pmi-1.2")]
    Groups,
    /// The PMI-2 session.
    #[serde(rename = "pmi-2")]
    Frames,
}

/// An action of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAction {
    /// Writes these bytes. `{kvs}` is replaced with the name of the group's keyval space, `{child}` with that of the spawned group, and
    /// `{agent}` with a program that can be spawned.
    Write(Vec<u8>),
    /// Writes these PMI-2 bodies in a single write, each preceded by its length.
    Frames(Vec<Vec<u8>>),
    /// Closes the connection and exits.
    Close,
}

/// A step of a session.
#[derive(Debug, Clone)]
pub struct SessionStep {
    /// Process group: 0, or 1 for the spawned group.
    pub group: u32,
    /// Rank in the group.
    pub rank: u32,
    /// The action of the process.
    pub action: SessionAction,
    /// True if the process acts without waiting for the answer to its previous write.
    pub without_waiting: bool,
    /// The request that the plain session makes in this step. Edits use it to find the step.
    pub(super) op: Option<&'static str>,
}

impl SessionStep {
    /// Creates a step that waits for the answer to its process's previous write, and makes no request of the plain session.
    pub(super) fn new(group: u32, rank: u32, action: SessionAction) -> Self {
        Self { group, rank, action, without_waiting: false, op: None }
    }
}

/// The messages that the processes of a program send, in order, and the properties of their server.
#[derive(Debug, Clone)]
pub struct ClientSession {
    /// Size of group 0.
    pub ranks: u32,
    /// The steps, in order. A write is skipped if its process is still waiting for an answer, unless the step has `without_waiting`.
    pub steps: Vec<SessionStep>,
    /// Maximum number of bytes in a single write.
    pub max_write: usize,
    /// The name of the server's fault, if it has one.
    pub server_fault: Option<&'static str>,
    /// True if the server supports PMI-2.
    pub pmi2: bool,
    /// True if the server supports PMI-1.2.
    pub pmi12: bool,
}

pub(super) const SPAWN: &str = "mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=1\nspawnssofar=1\narg0=-n\narg1=x\nargcnt=2\n\
     preput_num=2\npreput_key_0=pre0\npreput_val_0=a\npreput_key_1=pre1\npreput_val_1=b\ninfo_num=1\ninfo_key_0=wd\n\
     info_val_0=/tmp\nendcmd\n";

/// A spawn request for two programs.
pub(super) const SPAWN_TWO: &str = "mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=2\nspawnssofar=1\nargcnt=0\npreput_num=2\n\
     preput_key_0=pre0\npreput_val_0=a\npreput_key_1=pre1\npreput_val_1=b\ninfo_num=0\nendcmd\n\
     mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=2\nspawnssofar=2\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";

/// The lines of the plain PMI-1 session. Each entry consists of the group, the rank, the operation and the line.
const LINES: [(u32, u32, &str, &str); 28] = [
    (0, 0, "init", "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (0, 1, "init", "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (0, 0, "maxes", "cmd=get_maxes\n"),
    (0, 1, "maxes", "cmd=get_maxes\n"),
    (0, 0, "kvsname", "cmd=get_my_kvsname\n"),
    (0, 1, "kvsname", "cmd=get_my_kvsname\n"),
    (0, 0, "universe", "cmd=get_universe_size\n"),
    (0, 0, "appnum", "cmd=get_appnum\n"),
    (0, 0, "put", "cmd=put kvsname={kvs} key=card-0 value=tcp://10.0.0.1:4711\n"),
    (0, 1, "put", "cmd=put kvsname={kvs} key=card-1 value=tcp://10.0.0.2:4711\n"),
    (0, 0, "barrier", "cmd=barrier_in\n"),
    (0, 1, "barrier", "cmd=barrier_in\n"),
    (0, 0, "get", "cmd=get kvsname={kvs} key=card-1\n"),
    (0, 1, "get", "cmd=get kvsname={kvs} key=card-0\n"),
    (0, 1, "get", "cmd=get kvsname={kvs} key=PMI_process_mapping\n"),
    (0, 0, "publish", "cmd=publish_name service=ocean port=tag#0$host\n"),
    (0, 1, "lookup", "cmd=lookup_name service=ocean\n"),
    (0, 0, "unpublish", "cmd=unpublish_name service=ocean\n"),
    (0, 0, "spawn", SPAWN),
    (1, 0, "init", "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (1, 0, "maxes", "cmd=get_maxes\n"),
    (1, 0, "kvsname", "cmd=get_my_kvsname\n"),
    (1, 0, "get", "cmd=get kvsname={kvs} key=pre1\n"),
    (1, 0, "barrier", "cmd=barrier_in\n"),
    (1, 0, "finalize", "cmd=finalize\n"),
    (0, 0, "universe", "cmd=get_universe_size\n"),
    (0, 0, "finalize", "cmd=finalize\n"),
    (0, 1, "finalize", "cmd=finalize\n"),
];

/// The lines of the plain PMI-1.2 session. Each entry consists of the rank, the operation, the line, and a flag that is true if the process
/// is in a barrier at that point.
const GROUPS: [(u32, &str, &str, bool); 24] = [
    (0, "init", "cmd=init pmi_version=1 pmi_subversion=2\n", false),
    (1, "init", "cmd=init pmi_version=1 pmi_subversion=2\n", false),
    (0, "maxes", "cmd=get_maxes\n", false),
    (1, "maxes", "cmd=get_maxes\n", false),
    (0, "kvsname", "cmd=get_my_kvsname\n", false),
    (1, "kvsname", "cmd=get_my_kvsname\n", false),
    (0, "put", "cmd=put kvsname={kvs} key=card-0 value=tcp://10.0.0.1:4711\n", false),
    (1, "put", "cmd=put kvsname={kvs} key=card-1 value=tcp://10.0.0.2:4711\n", false),
    (0, "barrier", "cmd=barrier_in group=0,1:42\n", false),
    (1, "barrier", "cmd=barrier_in group=0,1:42\n", false),
    (0, "get", "cmd=get kvsname={kvs} key=card-1\n", false),
    // Three overlapping barriers, with other requests between them.
    (0, "barrier", "cmd=barrier_in group=0,1:1\n", false),
    (0, "barrier", "cmd=barrier_in group=WORLD:2\n", true),
    (0, "barrier", "cmd=barrier_in\n", true),
    (0, "get", "cmd=get kvsname={kvs} key=card-0\n", true),
    (1, "barrier", "cmd=barrier_in group=WORLD:2\n", false),
    (1, "barrier", "cmd=barrier_in\n", false),
    (1, "barrier", "cmd=barrier_in group=0,1:1\n", false),
    (0, "barrier", "cmd=barrier_in group=NODE:3\n", false),
    (1, "barrier", "cmd=barrier_in group=NODE:3\n", false),
    (0, "barrier", "cmd=barrier_in group=0:0\n", false),
    (1, "appnum", "cmd=get_appnum\n", false),
    (0, "finalize", "cmd=finalize\n", false),
    (1, "finalize", "cmd=finalize\n", false),
];

/// The bodies of the plain PMI-2 session. Each entry consists of the group, the rank and the body.
const FRAMES: [(u32, u32, &str); 24] = [
    (0, 0, "cmd=fullinit;pmijobid=job;pmirank=0;threaded=TRUE;"),
    (0, 1, "cmd=fullinit;pmijobid=job;pmirank=1;threaded=TRUE;"),
    (0, 0, "cmd=job-getid;"),
    (0, 0, "cmd=kvs-put;key=card-0;value=tcp://10.0.0.1:4711;"),
    (0, 1, "cmd=kvs-put;thrid=7f;key=card-1;value=a b=c;;d;"),
    (0, 0, "cmd=kvs-fence;"),
    (0, 1, "cmd=kvs-fence;thrid=7f;"),
    (0, 0, "cmd=kvs-get;srcid=1;key=card-1;"),
    (0, 1, "cmd=kvs-get;jobid=kvs-0;srcid=-1;key=card-0;"),
    (0, 1, "cmd=info-putnodeattr;key=socket;value=/tmp/s;"),
    (0, 0, "cmd=info-getnodeattr;key=socket;wait=TRUE;"),
    (0, 1, "cmd=info-getjobattr;key=PMI_process_mapping;"),
    (0, 0, "cmd=name-publish;name=ocean;port=tag#0$host;infokeycount=0;"),
    (0, 1, "cmd=name-lookup;name=ocean;infokeycount=0;"),
    (0, 0, "cmd=name-unpublish;name=ocean;infokeycount=0;"),
    (
        0,
        0,
        "cmd=spawn;thrid=1;ncmds=1;preputcount=1;ppkey0=pre;ppval0=a;subcmd=/memory/agent-1;maxprocs=1;argc=1;argv0=-x;\
         infokeycount=0;",
    ),
    (1, 0, "cmd=fullinit;pmijobid=job;pmirank=0;threaded=FALSE;"),
    (1, 0, "cmd=kvs-get;key=pre;"),
    (1, 0, "cmd=kvs-fence;"),
    (0, 0, "cmd=job-connect;jobid=kvs-1;"),
    (0, 0, "cmd=job-disconnect;jobid=kvs-1;"),
    (1, 0, "cmd=finalize;"),
    (0, 0, "cmd=finalize;"),
    (0, 1, "cmd=finalize;"),
];

impl PlainSession {
    /// Returns the session without changes.
    pub fn session(self) -> ClientSession {
        let steps = match self {
            Self::Lines => LINES.map(|(group, rank, op, line)| write(group, rank, op, line)).into(),
            Self::Groups => {
                let step = |(rank, op, line, ahead)| SessionStep {
                    without_waiting: ahead,
                    ..write(0, rank, op, line)
                };
                GROUPS.map(step).into()
            }
            Self::Frames => frame_steps(),
        };
        let close = |(group, rank)| SessionStep {
            without_waiting: true,
            ..SessionStep::new(group, rank, SessionAction::Close)
        };
        let closes = [(1, 0), (0, 0), (0, 1)].map(close);
        ClientSession {
            ranks: 2,
            steps: [steps, closes.into()].concat(),
            max_write: usize::MAX,
            server_fault: None,
            pmi2: self == Self::Frames,
            pmi12: self == Self::Groups,
        }
    }
}

fn write(group: u32, rank: u32, op: &'static str, line: &str) -> SessionStep {
    SessionStep { op: Some(op), ..SessionStep::new(group, rank, SessionAction::Write(line.into())) }
}

/// Returns the steps of the plain PMI-2 session. They contain every request that a server may receive, according to the draft or in
/// practice. Each process begins with the init line, which offers PMI-2.
fn frame_steps() -> Vec<SessionStep> {
    let mut steps = Vec::new();
    for (group, rank, body) in FRAMES {
        let op = body.strip_prefix("cmd=").and_then(|body| body.split(';').next());
        if op == Some("fullinit") {
            let offer = SessionAction::Write("cmd=init pmi_version=2 pmi_subversion=0\n".into());
            steps.push(SessionStep::new(group, rank, offer));
        }
        let act = SessionAction::Frames(vec![body.into()]);
        steps.push(SessionStep { op, ..SessionStep::new(group, rank, act) });
    }
    steps
}
