//! The plain session of PMI-2, and what clients do otherwise in it.

use super::row::{ClientFault, ClientVariation, Rows};
use super::session::{Act, Session, SessionStep};

const FIRST_LINE: &[&str] = &["pmi2.common.first-line"];
const FRAME: &[&str] = &["pmi2.common.frame"];
const TUPLES: &[&str] = &["pmi2.common.tuples"];
const COMPLETE: &[&str] = &["pmi2.common.request-complete"];
const FULLINIT: &[&str] = &["pmi2.common.fullinit-first"];
const LAST: &[&str] = &["pmi2.common.finalize-last"];
const KEY: &[&str] = &["pmi2.draft.key"];
const LENGTHS: &[&str] = &["pmi2.draft.lengths"];
const THREADS: &[&str] = &["pmi2.draft.thrid-tells-apart"];
const COMMAND: &[&str] = &["pmi2.draft.command"];

const FRAMES: Rows = Rows(Session::of_frames);

const OFFER: &str = "cmd=init pmi_version=2 pmi_subversion=0\n";

/// What each process says, in order: group, rank, body.
const LIST: [(u32, u32, &str); 24] = [
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

fn step(group: u32, rank: u32, act: Act) -> SessionStep {
    SessionStep { group, rank, act, ahead: false, op: None }
}

fn frames(bodies: &[&str]) -> Act {
    Act::Frames(bodies.iter().map(|body| body.as_bytes().to_vec()).collect())
}

impl Session {
    /// The plain session of PMI-2: every request that a server may be asked, by the draft or in use.
    pub fn of_frames() -> Self {
        let mut steps = Vec::new();
        for (group, rank, body) in LIST {
            if body.starts_with("cmd=fullinit;") {
                steps.push(step(group, rank, Act::Write(OFFER.into())));
            }
            steps.push(step(group, rank, frames(&[body])));
        }
        Self { pmi2: true, ..Self::of(steps) }
    }

    /// Where a command is first said.
    fn said(&self, command: &str) -> usize {
        let begin = format!("cmd={command};");
        let says = |step: &SessionStep| match &step.act {
            Act::Frames(bodies) => bodies.iter().any(|body| body.starts_with(begin.as_bytes())),
            Act::Write(_) | Act::Close => false,
        };
        self.steps.iter().position(says).unwrap_or(0)
    }

    /// These bytes are written in its stead.
    fn bytes_for(&mut self, command: &str, bytes: impl AsRef<[u8]>) {
        let at = self.said(command);
        self.steps[at].act = Act::Write(bytes.as_ref().to_vec());
    }

    /// These bodies are said in its stead, in one write.
    fn bodies_for(&mut self, command: &str, bodies: &[&str]) {
        let at = self.said(command);
        self.steps[at].act = frames(bodies);
    }

    /// Its process says something before it, and waits for the answer.
    fn said_before(&mut self, command: &str, body: &str) {
        let at = self.said(command);
        let SessionStep { group, rank, .. } = self.steps[at];
        self.steps.insert(at, step(group, rank, frames(&[body])));
    }

    /// Its process says something once it is answered; `ahead` if it does not wait for that.
    fn said_after(&mut self, command: &str, ahead: bool, body: &str) {
        let at = self.said(command);
        let SessionStep { group, rank, .. } = self.steps[at];
        self.steps.insert(at + 1, SessionStep { ahead, ..step(group, rank, frames(&[body])) });
    }

    /// A part of its body is another one.
    fn other(&mut self, command: &str, from: &str, to: &str) {
        let at = self.said(command);
        if let Act::Frames(bodies) = &mut self.steps[at].act
            && let [body] = bodies.as_mut_slice()
        {
            *body = String::from_utf8_lossy(body).replacen(from, to, 1).into_bytes();
        }
    }

    /// It is not said at all.
    fn unsaid(&mut self, command: &str) {
        let begin = format!("cmd={command};");
        self.steps.retain(|step| match &step.act {
            Act::Frames(bodies) => !bodies.iter().any(|body| body.starts_with(begin.as_bytes())),
            Act::Write(_) | Act::Close => true,
        });
    }
}

/// Those of programs that speak PMI-2.
pub(super) const FAULTS: &[ClientFault] = &[
    FRAMES.fault("client-frame-first", FIRST_LINE, "begins with a frame", |s| {
        s.steps[0].act = frames(&["cmd=fullinit;pmijobid=job;pmirank=0;threaded=TRUE;"]);
    }),
    FRAMES.fault("client-offer-in-a-frame", FIRST_LINE, "offers version 2 in a frame", |s| {
        s.steps[0].act = frames(&["cmd=init;pmi_version=2;pmi_subversion=0;"]);
    }),
    // ----- frames and tuples
    FRAMES.fault("client-no-length", FRAME, "leaves the length out", |s| {
        s.bytes_for("job-getid", "cmd=job-getid;")
    }),
    FRAMES.fault("client-line-of-pmi1", FRAME, "says a line of PMI-1", |s| {
        s.bytes_for("job-getid", "cmd=get_maxes\n")
    }),
    FRAMES.fault("client-length-a-word", FRAME, "has no number for a length", |s| {
        s.bytes_for("job-getid", "lengthcmd=job-getid;");
    }),
    FRAMES.fault("client-length-negative", FRAME, "has a negative length", |s| {
        s.bytes_for("job-getid", "   -14cmd=job-getid;");
    }),
    FRAMES.fault("client-length-too-short", FRAME, "counts two bytes less than follow", |s| {
        s.bytes_for("kvs-put", "     22cmd=kvs-put;key=k;value=v;cmd=");
    }),
    FRAMES.fault("client-length-binary", FRAME, "writes the length as a binary number", |s| {
        s.bytes_for("job-getid", b"\0\0\0\0\0\x0ecmd=job-getid;");
    }),
    FRAMES.fault("client-no-semicolon-at-the-end", TUPLES, "leaves the last semicolon out", |s| {
        s.bodies_for("job-getid", &["cmd=job-getid"]);
    }),
    FRAMES.fault("client-semicolon-not-doubled", TUPLES, "leaves a semicolon in a value as it is", |s| {
        s.other("kvs-put", "tcp://", "tcp;//");
    }),
    FRAMES.fault("client-command-not-first", TUPLES, "has thrid before cmd", |s| {
        s.bodies_for("job-getid", &["thrid=1;cmd=job-getid;"]);
    }),
    FRAMES.fault("client-tuple-without-equals", TUPLES, "has a word for a tuple", |s| {
        s.bodies_for("job-getid", &["cmd=job-getid;now;"]);
    }),
    FRAMES.fault("client-blanks-for-semicolons", TUPLES, "parts tuples by blanks, as in PMI-1", |s| {
        s.bodies_for("kvs-put", &["cmd=kvs-put key=card-0 value=x"]);
    }),
    FRAMES.fault("client-command-of-pmi1", COMMAND, "says a command of PMI-1 in a frame", |s| {
        s.bodies_for("kvs-put", &["cmd=put;key=card-0;value=x;"]);
    }),
    FRAMES.fault("client-command-underscore", COMMAND, "writes an underscore in a command", |s| {
        s.other("kvs-fence", "kvs-fence", "kvs_fence");
    }),
    FRAMES.fault("client-key-with-dot", KEY, "has a dot in a key", |s| {
        s.other("job-getid", "job-getid;", "job-getid;x.vendor=1;");
    }),
    FRAMES.fault("client-key-of-65", KEY, "has a key of 65 bytes", |s| {
        s.other("job-getid", "job-getid;", &format!("job-getid;{}=1;", "k".repeat(65)));
    }),
    // ----- what requests have
    FRAMES.fault("client-kvs-put-no-value", COMPLETE, "puts without a value", |s| {
        s.bodies_for("kvs-put", &["cmd=kvs-put;key=card-0;"]);
    }),
    FRAMES.fault("client-kvs-put-val", COMPLETE, "has val for value in a put", |s| {
        s.other("kvs-put", ";value=", ";val=");
    }),
    FRAMES.fault("client-kvs-get-no-key", COMPLETE, "gets without a key", |s| {
        s.other("kvs-get", "key=card-1;", "")
    }),
    FRAMES.fault("client-kvs-get-key-twice", COMPLETE, "gets two keys at once", |s| {
        s.other("kvs-get", "key=card-1;", "key=card-1;key=card-0;");
    }),
    FRAMES.fault("client-fullinit-rank-a-word", COMPLETE, "has no number for its rank", |s| {
        s.other("fullinit", "pmirank=0", "pmirank=first");
    }),
    FRAMES.fault("client-wait-yes", COMPLETE, "has wait=yes", |s| {
        s.other("info-getnodeattr", "wait=TRUE", "wait=yes")
    }),
    FRAMES.fault("client-pmi2-publish-no-port", COMPLETE, "publishes a name without a port", |s| {
        s.other("name-publish", "port=tag#0$host;", "");
    }),
    FRAMES.fault("client-pmi2-spawn-no-maxprocs", COMPLETE, "spawns without a number of processes", |s| {
        s.other("spawn", "maxprocs=1;", "");
    }),
    FRAMES.fault(
        "client-spawn-one-argument-less",
        COMPLETE,
        "counts one argument more than there are",
        |s| {
            s.other("spawn", "argc=1;", "argc=2;");
        },
    ),
    FRAMES.fault("client-spawn-one-program-more", COMPLETE, "counts one program more than there are", |s| {
        s.other("spawn", "ncmds=1;", "ncmds=2;");
    }),
    FRAMES.fault("client-connect-no-job", COMPLETE, "connects with nothing", |s| {
        s.other("job-connect", "jobid=kvs-1;", "");
    }),
    FRAMES.fault("client-kvs-key-too-long", LENGTHS, "puts a key of 65 bytes", |s| {
        s.other("kvs-put", "card-0", &"k".repeat(65));
    }),
    FRAMES.fault("client-kvs-value-too-long", LENGTHS, "puts a value of 1025 bytes", |s| {
        s.other("kvs-put", "tcp://10.0.0.1:4711", &"v".repeat(1025));
    }),
    FRAMES.fault("client-attribute-too-long", LENGTHS, "stores an attribute of 1025 bytes", |s| {
        s.other("info-putnodeattr", "/tmp/s", &"v".repeat(1025));
    }),
    // ----- the order of requests
    FRAMES.fault("client-no-fullinit", FULLINIT, "asks for the job without fullinit", |s| {
        s.bodies_for("fullinit", &["cmd=job-getid;"]);
    }),
    FRAMES.fault("client-put-before-fullinit", FULLINIT, "puts before fullinit", |s| {
        s.said_before("fullinit", "cmd=kvs-put;key=early;value=x;");
    }),
    FRAMES.fault("client-fullinit-twice", FULLINIT, "says fullinit again", |s| {
        s.said_after("job-getid", false, "cmd=fullinit;pmijobid=job;pmirank=0;threaded=TRUE;");
    }),
    FRAMES.fault("client-pmi2-no-finalize", LAST, "closes without finalize", |s| s.unsaid("finalize")),
    FRAMES.fault("client-pmi2-put-after-finalize", LAST, "puts after finalize", |s| {
        s.said_after("finalize", false, "cmd=kvs-put;key=late;value=x;");
    }),
    FRAMES.fault("client-pmi2-finalize-twice", LAST, "finalizes twice", |s| {
        s.said_after("finalize", false, "cmd=finalize;");
    }),
    FRAMES.fault("client-two-without-thrid", THREADS, "asks twice before an answer, without a thrid", |s| {
        s.bodies_for("kvs-put", &["cmd=kvs-put;key=card-0;value=x;", "cmd=kvs-put;key=more;value=x;"]);
    }),
    FRAMES.fault(
        "client-two-of-one-thread",
        THREADS,
        "asks twice before an answer, with the same thrid",
        |s| {
            s.bodies_for("job-getid", &["cmd=kvs-fence;thrid=1;", "cmd=job-getid;thrid=1;"]);
        },
    ),
    FRAMES.fault("client-request-in-fence", THREADS, "gets a value while it is in a fence", |s| {
        s.said_after("kvs-fence", true, "cmd=kvs-get;key=card-1;");
    }),
    FRAMES.fault("client-finalize-in-fence", THREADS, "finalizes while it is in a fence", |s| {
        s.said_after("kvs-fence", true, "cmd=finalize;");
    }),
];

/// What programs that speak PMI-2 may do, though few of them do.
pub(super) const VARIATIONS: &[ClientVariation] = &[
    FRAMES.vary("client-length-left", "pads a length on the right", |s| {
        s.bytes_for("job-getid", "14    cmd=job-getid;");
    }),
    FRAMES.vary("client-length-zeros", "pads a length with zeros", |s| {
        s.bytes_for("job-getid", "000014cmd=job-getid;")
    }),
    FRAMES.vary("client-frames-bytewise", "writes each byte by itself", |s| s.piece = 1),
    FRAMES.vary("client-frames-pieces", "writes seven bytes at a time", |s| s.piece = 7),
    FRAMES.vary("client-two-threads", "asks for two threads at once", |s| {
        s.bodies_for("job-getid", &["cmd=job-getid;thrid=1;", "cmd=job-getid;thrid=2;"]);
    }),
    FRAMES.vary("client-get-in-fence", "gets a value of another thread while one is in the fence", |s| {
        s.other("kvs-fence", "kvs-fence;", "kvs-fence;thrid=1;");
        s.said_after("kvs-fence", true, "cmd=kvs-get;thrid=2;key=card-0;");
    }),
    FRAMES.vary("client-fullinit-bare", "says fullinit and nothing more", |s| {
        s.bodies_for("fullinit", &["cmd=fullinit;"]);
    }),
    FRAMES.vary("client-keys-in-another-order", "has the value before the key", |s| {
        s.bodies_for("kvs-put", &["cmd=kvs-put;value=tcp://10.0.0.1:4711;key=card-0;"]);
    }),
    FRAMES.vary("client-further-keys", "has keys that the draft does not have", |s| {
        s.other("job-getid", "job-getid;", "job-getid;x-vendor=1;X_2=;");
    }),
    FRAMES.vary("client-pmi2-aborts", "asks for an abort by the draft", |s| {
        s.said_before("name-publish", "cmd=abort;isworld=TRUE;msg=a b;");
    }),
    FRAMES.vary("client-pmi2-aborts-with-code", "asks for an abort as MPICH does", |s| {
        s.said_before("name-publish", "cmd=abort;exitcode=7;message=a b;");
    }),
    FRAMES.vary("client-longest-pair", "puts the longest key and value", |s| {
        s.other("kvs-put", "card-0", &"k".repeat(64));
        s.other("kvs-put", "tcp://10.0.0.1:4711", &"v".repeat(1024));
    }),
    FRAMES.vary("client-gets-what-is-not-there", "gets what nobody has put", |s| {
        s.said_after("kvs-get", false, "cmd=kvs-get;key=nothing;");
    }),
    FRAMES.vary("client-many-fences", "enters a hundred fences", |s| {
        let at = s.said("kvs-get");
        let round = [0, 1].map(|rank| step(0, rank, frames(&["cmd=kvs-fence;"])));
        s.steps.splice(at..at, std::iter::repeat_n(round, 100).flatten());
    }),
];
