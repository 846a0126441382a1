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
    Connect(u8),
    Disconnect(u8),
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
    /// All pairs of a job.
    Getall(u8),
    /// Two pairs of a job, or none.
    Putall {
        job: u8,
        pairs: bool,
        key: u8,
        value: u8,
    },
    Junk(u8),
}

/// Writes tuples.
type Written<'a> = dyn Fn(&[(&str, String)]) -> String + 'a;

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
            7 => Self::Connect(low & 3),
            8 => Self::Disconnect(low & 3),
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
            30 if detail & 64 == 0 => Self::Getall(low & 3),
            30 => {
                Self::Putall { job: low & 3, pairs: detail >= 128, key: high % KEYS.len() as u8, value: low }
            }
            _ => Self::Junk(low),
        }
    }

    /// Its messages, written here by hand, so that server and model meet the wire and not each other's code; the offer as the line
    /// that it is.
    pub(crate) fn messages(self, thrid: Option<u8>, several: bool) -> Vec<Vec<u8>> {
        let tie = thrid.map_or(String::new(), |thrid| format!("thrid={thrid};"));
        let written = |tuples: &[(&str, String)]| -> String {
            tuples.iter().map(|(key, value)| format!("{key}={};", value.replace(';', ";;"))).collect()
        };
        let (cmd, tuples) = match self {
            Self::Offer => return vec![b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec()],
            Self::Junk(body) => return vec![framed(JUNK[usize::from(body)].as_bytes())],
            Self::Putall { .. } => return self.putall(&tie, &written),
            Self::Spawn { .. } if several => return self.spawn_in_series(&tie, &written),
            _ => self.tuples(),
        };
        // Between two tuples, the command itself among them.
        let half = tuples.len() / 2;
        if !several || tuples.is_empty() {
            return vec![framed(format!("cmd={cmd};{tie}{}", written(&tuples)).as_bytes())];
        }
        let first = format!("cmd={cmd};{tie}{}concat=c;", written(&tuples[..half]));
        let second = format!("cmd=concat;concatid=c;{tie}{}", written(&tuples[half..]));
        vec![framed(first.as_bytes()), framed(second.as_bytes())]
    }

    fn putall(self, tie: &str, written: &Written<'_>) -> Vec<Vec<u8>> {
        let Self::Putall { job, .. } = self else { return Vec::new() };
        let pairs = self.pairs();
        let head = [("jobid", format!("kvs-{job}")), ("npair", pairs.len().to_string())];
        let mut messages = vec![format!("cmd=kvs-putall;{tie}{}", written(&head))];
        for (key, value) in pairs {
            let pair = [("key", KEYS[usize::from(key)].to_owned()), ("val", value_of(value))];
            messages.push(format!("cmd=kvs-putall-pair;{tie}{}", written(&pair)));
        }
        messages.iter().map(|body| framed(body.as_bytes())).collect()
    }

    /// The pairs that a putall brings.
    pub(crate) fn pairs(self) -> Vec<(u8, u8)> {
        match self {
            Self::Putall { pairs: true, key, value, .. } => {
                vec![(key, value), ((key + 1) % KEYS.len() as u8, (value + 1) % VALUES.len() as u8)]
            }
            _ => Vec::new(),
        }
    }

    fn spawn_in_series(self, tie: &str, written: &Written<'_>) -> Vec<Vec<u8>> {
        let Self::Spawn { first, second, key } = self else { return Vec::new() };
        let programs: Vec<u8> = [Some(first), second].into_iter().flatten().collect();
        let mut head = vec![("ncmds", programs.len().to_string())];
        head.push(("preputcount", u8::from(key.is_some()).to_string()));
        if let Some(key) = key {
            head.extend([("ppkey0", KEYS[usize::from(key)].to_owned()), ("ppval0", "pre".to_owned())]);
        }
        let mut messages = vec![format!("cmd=spawn;{tie}{}", written(&head))];
        for processes in programs {
            messages.push(format!("cmd=spawn-cmd;{tie}maxprocs={processes};argc=2;argv0=x;argv1=y;"));
        }
        messages.iter().map(|body| framed(body.as_bytes())).collect()
    }

    /// Its command and what it says besides.
    fn tuples(self) -> (&'static str, Vec<(&'static str, String)>) {
        let mut tuples: Vec<(&str, String)> = Vec::new();
        let text = |list: &[&str], at: u8| list[usize::from(at)].to_owned();
        let cmd = match self {
            Self::Offer | Self::Junk(_) | Self::Putall { .. } => "",
            Self::Getall(job) => {
                tuples.push(("jobid", format!("kvs-{job}")));
                "kvs-getall"
            }
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
            Self::Connect(job) | Self::Disconnect(job) => {
                tuples.push(("jobid", format!("kvs-{job}")));
                if matches!(self, Self::Connect(_)) { "job-connect" } else { "job-disconnect" }
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
