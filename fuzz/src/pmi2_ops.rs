//! The reference server of PMI-2 under operations of one to four ranks, and of those that they spawn, against
//! [`crate::pmi2_model`].
//!
//! Input: a byte for the number of ranks and nodes, then four bytes for each step: who, what, its arguments, its thread and how it
//! is written.

use arbitrary::Unstructured;
use pmi_reference::{Action, Config, GroupSpec, Server};
use pmi_wire::Proc;

use crate::pmi2_model::{Expected, Model, Who};
use crate::{counters, input, planted};

/// Keys; the longest that the draft has, and one that is longer.
pub(crate) const KEYS: [&str; 6] = ["a", "key-2", "PMI_x", LONGEST, TOO_LONG, "b;c"];
const LONGEST: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
const TOO_LONG: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
/// Values; the last stands for one that is too long.
pub(crate) const VALUES: [&str; 8] = ["", "v", "two words", "x=1;y=2", ";", "\n\u{e9}\0", "rc=1", "long"];
/// The value that is too long for the draft.
pub(crate) const LONG: usize = 1025;
/// Names to publish, ports, and attributes of jobs.
pub(crate) const NAMES: [&str; 4] = ["s", "ocean", "a;b", "S"];
pub(crate) const PORTS: [&str; 4] = ["p", "tag=0$h$", ";;", ""];
pub(crate) const ATTRIBUTES: [&str; 4] = ["PMI_process_mapping", "universeSize", "hasNameServ", "other"];
/// Bodies that are no request, but for the first, whose command is unknown.
pub(crate) const JUNK: [&str; 8] = [
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
/// Most process groups that steps are made for.
const GROUPS: u32 = 3;
const OPS: u32 = 1 << 29;

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
    Junk(u8),
}

impl Op {
    fn of(what: u8, detail: u8) -> Self {
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
            _ => Self::Junk(low),
        }
    }

    /// Its body, written here by hand, so that server and model meet the wire and not each other's code; the offer as the line it
    /// is.
    fn bytes(self, thrid: Option<u8>) -> Vec<u8> {
        let mut tuples: Vec<(&str, String)> = Vec::new();
        let text = |list: &[&str], at: u8| list[usize::from(at)].to_owned();
        let value =
            |at: u8| if VALUES[usize::from(at)] == "long" { "x".repeat(LONG) } else { text(&VALUES, at) };
        let cmd = match self {
            Self::Offer => return b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec(),
            Self::Junk(body) => return framed(text(&JUNK, body).as_bytes()),
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
                tuples.extend([("key", text(&KEYS, key)), ("value", value(at))]);
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
        let mut body = format!("cmd={cmd};");
        let thrid = thrid.map(|thrid| ("thrid", thrid.to_string()));
        for (key, value) in thrid.into_iter().chain(tuples) {
            body += &format!("{key}={};", value.replace(';', ";;"));
        }
        framed(body.as_bytes())
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    [format!("{:>6}", body.len()).as_bytes(), body].concat()
}

/// Every action of the server is the one that the model has due, and none is missing.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let head = input::byte(&mut u);
    let (size, nodes) = (u32::from(head & 3) + 1, u32::from(head >> 2 & 3) + 1);
    let behaviour = planted::behaviour();
    let config = Config { spawn_max: SPAWN_MAX, nodes, pmi2: true, behaviour, ..Config::default() };
    let mut server = Server::new(config);
    server.add_group(GroupSpec { programs: vec![size], ..GroupSpec::default() });
    let mut model = Model::new(size, nodes);
    // All begin, unless the input wants to do that itself.
    if head & 0x80 == 0 {
        for rank in 0..size {
            for op in [Op::Offer, Op::Fullinit] {
                send(&mut server, &mut model, (0, rank), op, None, 0);
                compare(&mut server, &mut model);
            }
        }
    }
    while let Ok(&[who, what, detail, how]) =
        u.bytes(4).map(|bytes| <&[u8; 4]>::try_from(bytes).expect("so many"))
    {
        let group = u32::from(who >> 4) % model.groups().min(GROUPS);
        let who = (group, u32::from(who & 0xf) % model.size(group));
        let state = model.state(who);
        match what >> 5 {
            6 => {
                server.closed(proc(who));
                model.closed(who);
            }
            7 => {
                if let Some((group, size)) = model.spawned(detail & 1 == 0) {
                    let mut codes = [0; 4];
                    codes[0] = i64::from(detail & 1);
                    server.spawned(group, &codes[..size as usize]);
                }
            }
            _ => {
                let thrid = (how & 4 == 4).then_some(how & 3);
                let op = if model.is_new(who) { Op::Offer } else { Op::of(what, detail) };
                send(&mut server, &mut model, who, op, thrid, how >> 3);
            }
        }
        let outcome = match model.due.last() {
            None => 0,
            Some(Expected::Send { ok, .. }) => 1 + u32::from(*ok),
            Some(_) => 3,
        };
        compare(&mut server, &mut model);
        counters::reached(state * 4 + outcome);
        counters::reached(state.wrapping_mul(0x0101_0101) ^ model.state(who));
        counters::seen(OPS + u32::from(what & 31) * 8 + u32::from(group > 0) * 4 + outcome);
    }
}

/// A process writes a request, at once or in two pieces.
fn send(server: &mut Server, model: &mut Model, who: Who, op: Op, thrid: Option<u8>, cut: u8) {
    let bytes = op.bytes(thrid);
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    server.receive(proc(who), first);
    // That a line is no frame shows in its first bytes.
    if op != Op::Offer && !second.is_empty() {
        assert_eq!(server.next_action(), None, "half a request");
    }
    server.receive(proc(who), second);
    model.request(who, op, thrid);
}

/// Holds what the server does against what is due.
fn compare(server: &mut Server, model: &mut Model) {
    let due = std::mem::take(&mut model.due);
    let mut due = due.iter();
    while let Some(action) = server.next_action() {
        let Some(expected) = due.next() else { panic!("not due: {action:?}") };
        assert!(fits(&action, expected), "{action:?} where {expected:?} is due");
    }
    assert!(due.as_slice().is_empty(), "still due: {:?}", due.as_slice());
}

fn fits(action: &Action, expected: &Expected) -> bool {
    match (action, expected) {
        (Action::Send { to, bytes }, Expected::Send { to: who, line: true, text, .. }) => {
            *to == proc(*who) && *bytes == [text.as_bytes(), b"\n"].concat()
        }
        (Action::Send { to, bytes }, Expected::Send { to: who, ok: true, text, .. }) => {
            *to == proc(*who) && *bytes == framed(text.as_bytes())
        }
        // What is wrong may be told in any words.
        (Action::Send { to, bytes }, Expected::Send { to: who, text, .. }) => {
            let header: Option<usize> =
                std::str::from_utf8(&bytes[..6]).ok().and_then(|n| n.trim().parse().ok());
            let body = &bytes[6..];
            *to == proc(*who)
                && header == Some(body.len())
                && body.starts_with(text.as_bytes())
                && body.ends_with(b";")
        }
        (Action::Abort { group, by, status, .. }, Expected::Abort { by: who, status: due }) => {
            (*group, *by) == *who && *status == *due
        }
        (Action::Spawn { group, by, programs }, Expected::Spawn { group: due, by: who, size }) => {
            let processes: u64 = programs.iter().map(|program| program.nprocs).sum();
            *group == *due && *by == proc(*who) && processes == u64::from(*size)
        }
        _ => false,
    }
}

fn proc(who: Who) -> Proc {
    Proc { group: who.0, rank: who.1 }
}
