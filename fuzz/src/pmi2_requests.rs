//! What clients of PMI-2 send in the target `pmi2_ops`, and how it is written.

/// Keys; the longest that the draft has, and one that is longer.
pub(crate) const KEYS: [&str; 6] = ["a", "key-2", "PMI_x", LONGEST, TOO_LONG, "b;c"];
const LONGEST: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
const TOO_LONG: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
/// Values; the last stands for one that is too long.
const VALUES: [&str; 8] = ["", "v", "two words", "x=1;y=2", ";", "\n\u{e9}\0", "rc=1", "long"];
/// The value that is too long for the draft.
const LONG: usize = 1025;
/// Names to publish, ports, and attributes of jobs.
pub(crate) const NAMES: [&str; 4] = ["s", "ocean", "a;b", "S"];
pub(crate) const PORTS: [&str; 4] = ["p", "tag=0$h$", ";;", ""];
pub(crate) const ATTRIBUTES: [&str; 4] = ["PMI_process_mapping", "universeSize", "hasNameServ", "other"];
/// Bodies that are no request, but for the first, whose command is unknown.
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
/// Commands that no known server has.
pub(crate) const DRAFT_ONLY: [&str; 3] = ["kvs-getall", "job-connect", "job-disconnect"];
/// Most processes of one spawn.
pub(crate) const SPAWN_MAX: u64 = 4;

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// The line with which a connection begins.
    Offer,
    Fullinit,
    Finalize,
    /// Without a code, or with one.
    Abort(Option<u8>),
    JobGetid,
    /// One of [`DRAFT_ONLY`], about the job with this number.
    DraftOnly {
        command: u8,
        job: u8,
    },
    Put {
        key: u8,
        value: u8,
    },
    /// Of the own job, or of the one with this number.
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

impl Op {
    /// By two bytes of the input.
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

    /// Its message, written here by hand, so that server and model meet the wire and not each other's code; the offer as the line
    /// that it is.
    pub(crate) fn message(self, thrid: Option<u8>) -> Vec<u8> {
        let (cmd, tuples) = match self {
            Self::Offer => {
                return b"cmd=init pmi_version=2 pmi_subversion=0
"
                .to_vec();
            }
            Self::Junk(body) => return framed(JUNK[usize::from(body)].as_bytes()),
            _ => self.tuples(),
        };
        let tie = thrid.map_or(String::new(), |thrid| format!("thrid={thrid};"));
        let tuples: String =
            tuples.iter().map(|(key, value)| format!("{key}={};", value.replace(';', ";;"))).collect();
        framed(format!("cmd={cmd};{tie}{tuples}").as_bytes())
    }

    /// Its command and what it says besides.
    fn tuples(self) -> (&'static str, Vec<(&'static str, String)>) {
        let mut tuples: Vec<(&str, String)> = Vec::new();
        let text = |list: &[&str], at: u8| list[usize::from(at)].to_owned();
        let cmd = match self {
            Self::Offer | Self::Junk(_) => "",
            Self::Fullinit => {
                tuples.push(("pmijobid", "job".into()));
                "fullinit"
            }
            Self::Finalize => "finalize",
            Self::Abort(code) => {
                tuples.extend(code.map(|code| ("exitcode", code.to_string())));
                "abort"
            }
            Self::JobGetid => "job-getid",
            Self::DraftOnly { command, job } => {
                tuples.push(("jobid", format!("kvs-{job}")));
                DRAFT_ONLY[usize::from(command)]
            }
            Self::Put { key, value: at } | Self::PutNode { key, value: at } => {
                tuples.extend([("key", text(&KEYS, key)), ("value", value_of(at))]);
                if matches!(self, Self::Put { .. }) { "kvs-put" } else { "info-putnodeattr" }
            }
            Self::Get { key, job } => {
                tuples.extend(job.map(|job| ("jobid", format!("kvs-{job}"))));
                tuples.extend([("srcid", "-1".to_owned()), ("key", text(&KEYS, key))]);
                "kvs-get"
            }
            Self::Fence => "kvs-fence",
            Self::GetNode { key, wait } => {
                tuples.push(("key", text(&KEYS, key)));
                tuples.extend(wait.then(|| ("wait", "TRUE".to_owned())));
                "info-getnodeattr"
            }
            Self::JobAttribute(key) => {
                tuples.push(("key", text(&ATTRIBUTES, key)));
                "info-getjobattr"
            }
            Self::Publish { name, port } => {
                tuples.extend([("name", text(&NAMES, name)), ("port", text(&PORTS, port))]);
                "name-publish"
            }
            Self::Lookup(name) => {
                tuples.push(("name", text(&NAMES, name)));
                "name-lookup"
            }
            Self::Unpublish(name) => {
                tuples.push(("name", text(&NAMES, name)));
                "name-unpublish"
            }
            Self::Spawn { first, second, key } => {
                let number = |n: usize| n.to_string();
                tuples.push(("ncmds", number(1 + usize::from(second.is_some()))));
                tuples.push(("preputcount", number(usize::from(key.is_some()))));
                if let Some(key) = key {
                    tuples.extend([("ppkey0", text(&KEYS, key)), ("ppval0", "pre".to_owned())]);
                }
                for processes in [Some(first), second].into_iter().flatten() {
                    tuples.extend([("subcmd", "x".to_owned()), ("maxprocs", processes.to_string())]);
                    tuples.extend([("argc", "1".to_owned()), ("argv0", "y".to_owned())]);
                }
                "spawn"
            }
        };
        (cmd, tuples)
    }
}

/// The value with this index.
pub(crate) fn value_of(at: u8) -> String {
    if VALUES[usize::from(at)] == "long" { "x".repeat(LONG) } else { VALUES[usize::from(at)].to_owned() }
}

/// A message as it goes over the wire.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [format!("{:>6}", body.len()).as_bytes(), body].concat()
}
