//! The messages from PMI-2 clients in the target `pmi2_ops`, and their bytes.

use pmi_wire::Framing;
use pmi_wire::{SpawnProgram, SpawnRequest};

use crate::spell::{self, framed};

/// Keys, including the longest of the draft, and a longer one.
pub(crate) const KEYS: [&str; 6] = ["a", "key-2", "PMI_x", LONGEST, TOO_LONG, "b;c"];
const LONGEST: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
const TOO_LONG: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
/// Values; the last stands for one that is too long.
const VALUES: [&str; 8] = ["", "v", "two words", "x=1;y=2", ";", "\n\u{e9}\0", "rc=1", "long"];
/// Length of the value that is too long for the draft.
const LONG: usize = 1025;
/// Names to publish, ports, and attributes of jobs.
pub(crate) const NAMES: [&str; 4] = ["s", "ocean", "a;b", "S"];
pub(crate) const PORTS: [&str; 4] = ["p", "tag=0$h$", ";;", ""];
pub(crate) const ATTRIBUTES: [&str; 4] = ["PMI_process_mapping", "universeSize", "hasNameServ", "other"];
/// Bodies that are not requests. The first is well-formed, but has an unknown command.
const JUNK: [&str; 8] = [
    "cmd=bogus;",
    "",
    ";",
    "cmd=kvs-put;key=a;",
    "key=a;cmd=kvs-get;",
    "cmd=kvs-get;key=a",
    "cmd=fullinit;pmirank=x;",
    "cmd=kvs-get;key=a;key=b;",
];
/// Operations that no known server supports, with their commands.
pub(crate) const DRAFT_ONLY: [(&str, &str); 3] =
    [("get-all", "kvs-getall"), ("connect", "job-connect"), ("disconnect", "job-disconnect")];
/// Maximum number of processes of one spawn.
pub(crate) const SPAWN_MAX: u64 = 4;

/// A message from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pmi2ClientOp {
    /// The line that a connection begins with.
    Offer,
    Fullinit,
    Finalize,
    /// The exit code, if any.
    Abort(Option<u8>),
    JobGetid,
    /// One of [`DRAFT_ONLY`], for the job with this number.
    DraftOnly {
        command: u8,
        job: u8,
    },
    Put {
        key: u8,
        value: u8,
    },
    /// From the process's own job, or from the job with this number.
    Get {
        key: u8,
        job: Option<u8>,
    },
    Fence,
    PutNode {
        key: u8,
        value: u8,
    },
    GetNode {
        key: u8,
        wait: bool,
    },
    JobAttribute(u8),
    Publish {
        name: u8,
        port: u8,
    },
    Lookup(u8),
    Unpublish(u8),
    Spawn {
        first: u8,
        second: Option<u8>,
        key: Option<u8>,
    },
    Junk(u8),
}

impl Pmi2ClientOp {
    /// Makes an operation from two bytes of the input.
    pub(crate) fn of(what: u8, detail: u8) -> Self {
        let (low, high) = (detail & 7, detail >> 3 & 7);
        let (key, value) = (low % KEYS.len() as u8, high);
        match what & 31 {
            0 | 1 => Self::Offer,
            2 | 3 => Self::Fullinit,
            4 => Self::Finalize,
            5 => Self::Abort((low & 1 == 1).then_some(high)),
            6 => Self::JobGetid,
            7 | 8 | 30 => Self::DraftOnly { command: what % 3, job: low & 3 },
            9..=12 => Self::Put { key, value },
            13..=16 => Self::Get { key, job: (detail >= 128).then_some(high & 3) },
            17..=19 => Self::Fence,
            20 | 21 => Self::PutNode { key, value },
            22 | 23 => Self::GetNode { key, wait: detail >= 64 },
            24 => Self::JobAttribute(low & 3),
            25 => Self::Publish { name: low & 3, port: high & 3 },
            26 => Self::Lookup(low & 3),
            27 => Self::Unpublish(low & 3),
            28 | 29 => Self::Spawn {
                first: low & 3,
                second: (low & 4 == 4).then_some(high & 3),
                key: (detail >= 128).then_some(high % KEYS.len() as u8),
            },
            _ => Self::Junk(low),
        }
    }

    /// Returns the message as the protocol table spells it; the offer is a line.
    pub(crate) fn message(self, thrid: Option<u8>) -> Vec<u8> {
        if self == Self::Offer {
            return b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec();
        }
        framed(&match self {
            Self::Junk(body) => JUNK[usize::from(body)].as_bytes().to_vec(),
            Self::Spawn { first, second, key } => spawn([Some(first), second], key, thrid),
            _ => {
                let (operation, fields) = self.fields();
                spell::request(Framing::Frames, operation, thrid, &fields)
            }
        })
    }

    /// Returns the operation and the fields of the request.
    fn fields(self) -> (&'static str, Vec<(&'static str, String)>) {
        let text = |list: &[&str], at: u8| list[usize::from(at)].to_owned();
        let named = |at| ("service", text(&NAMES, at));
        let job = |job: u8| ("jobid", format!("kvs-{job}"));
        let key = |at| ("key", text(&KEYS, at));
        match self {
            Self::Offer | Self::Fullinit | Self::Junk(_) | Self::Spawn { .. } => {
                ("init", vec![("pmijobid", "job".into())])
            }
            Self::Finalize => ("finalize", vec![]),
            Self::Abort(code) => {
                ("abort", code.map(|code| ("exitcode", code.to_string())).into_iter().collect())
            }
            Self::JobGetid => ("kvsname", vec![]),
            Self::DraftOnly { command, job: of } => (DRAFT_ONLY[usize::from(command)].0, vec![job(of)]),
            Self::Put { key: at, value } => ("put", vec![key(at), ("value", value_of(value))]),
            Self::PutNode { key: at, value } => {
                ("put-node-attribute", vec![key(at), ("value", value_of(value))])
            }
            Self::Get { key: at, job: of } => {
                let hint = ("srcid", "-1".to_owned());
                ("get", of.map(job).into_iter().chain([hint, key(at)]).collect())
            }
            Self::Fence => ("barrier", vec![]),
            Self::GetNode { key: at, wait } => {
                let wait = wait.then(|| ("wait", "TRUE".to_owned()));
                ("get-node-attribute", [key(at)].into_iter().chain(wait).collect())
            }
            Self::JobAttribute(at) => ("get-job-attribute", vec![("key", text(&ATTRIBUTES, at))]),
            Self::Publish { name, port } => ("publish", vec![named(name), ("port", text(&PORTS, port))]),
            Self::Lookup(name) => ("lookup", vec![named(name)]),
            Self::Unpublish(name) => ("unpublish", vec![named(name)]),
        }
    }
}

/// Returns a spawn of these programs, with a key to put before they start.
fn spawn(programs: [Option<u8>; 2], key: Option<u8>, thrid: Option<u8>) -> Vec<u8> {
    let program = |maxprocs: u8| SpawnProgram {
        execname: b"x".to_vec(),
        nprocs: maxprocs.into(),
        args: vec![(0, b"y".to_vec())],
        ..SpawnProgram::default()
    };
    let mut programs: Vec<_> = programs.into_iter().flatten().map(program).collect();
    let preput = key.map(|key| (KEYS[usize::from(key)].into(), b"pre".to_vec()));
    if let Some(first) = programs.first_mut() {
        first.preput.extend(preput);
    }
    let thrid = thrid.map(|thrid| thrid.to_string());
    let mut body = Vec::new();
    SpawnRequest { programs }.write_body(thrid.as_deref().map(str::as_bytes), &mut body);
    body
}

/// Returns the value with this index.
pub(crate) fn value_of(at: u8) -> String {
    if VALUES[usize::from(at)] == "long" { "x".repeat(LONG) } else { VALUES[usize::from(at)].to_owned() }
}
