//! The monitor: a model of PMI-1 over events, always on.
//!
//! It follows every connection in both directions and reports what either side does against RFC 13. Once a client
//! has broken the protocol the server may abort the program at any time, so from then on only what can never be
//! lawful is reported for that process group.

use std::collections::{HashMap, HashSet, VecDeque};

use pmi_wire::{
    Body, LineFramer, MappingForm, Maxes, MessageError, Operation, Request, RequestError, Response,
    ResponseError, SpawnAssembler, SpawnCollector, SpawnFault, SpawnLimits, SpawnRequest, ValueReading,
    Version,
};

use super::finding::{Finding, Party};
use super::kvs::{Expected, Kvs};
use crate::event::{Event, Proc, What};

/// Bytes of a value or line that are shown in a finding.
pub(super) const PRINTABLE_LIMIT: usize = 160;

/// Longest line that is kept for judging; RFC 13 sets no limit, implementations stop at 64 KiB.
const LINE_LIMIT: usize = 1 << 20;

/// RFC 13 sets no limit to messages. A request beyond this is more than any operation needs, and a server that gives
/// up on it has done nothing wrong.
const LONG_REQUEST: usize = 8 * 1024;

/// Most findings between two looks at them: a server that floods breaks the same rule a million times.
const FINDINGS_LIMIT: usize = 100;

const COMPLETE: &str = "rfc13.response.complete-on-success";

/// The reserved first letters of keys that the process manager itself provides.
const RESERVED: &[u8] = b"PMI_";

/// A request that has no answer yet.
#[derive(Debug)]
enum Pending {
    Init(Version),
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lawful: bool,
    },
    Get {
        key: Vec<u8>,
        kvsname: Vec<u8>,
    },
    Lookup(Vec<u8>),
    Publish {
        service: Vec<u8>,
        port: Vec<u8>,
    },
    Unpublish(Vec<u8>),
    Spawn(SpawnRequest),
    Other(Operation),
    /// Something that is no request of PMI-1; whatever comes back is not judged by an operation.
    Unknown,
}

impl Pending {
    fn op(&self) -> Option<Operation> {
        Some(match self {
            Self::Init(_) => Operation::Init,
            Self::Put { .. } => Operation::Put,
            Self::Get { .. } => Operation::Get,
            Self::Lookup(_) => Operation::Lookup,
            Self::Publish { .. } => Operation::Publish,
            Self::Unpublish(_) => Operation::Unpublish,
            Self::Spawn(_) => Operation::Spawn,
            Self::Other(op) => *op,
            Self::Unknown => return None,
        })
    }
}

#[derive(Debug)]
struct Rank {
    to_server: LineFramer,
    from_server: LineFramer,
    spawn: Option<SpawnCollector>,
    pending: VecDeque<Pending>,
    started: bool,
    joined: bool,
    finalized: bool,
    closed: bool,
    gone: bool,
    /// Barrier rounds entered and left.
    entered: u64,
    left: u64,
    maxes: Option<Maxes>,
    /// The server has sent something on this connection that could not be read; do not repeat it.
    unreadable: bool,
    /// The last request came in several writes.
    pieces: bool,
    /// It has asked for a spawn.
    spawns: bool,
    /// It has sent init, whatever came of it.
    offered: bool,
    /// It has gone on after a message that is none; do not repeat it.
    goes_on: bool,
}

impl Default for Rank {
    fn default() -> Self {
        Self {
            to_server: LineFramer::new(LINE_LIMIT),
            from_server: LineFramer::new(LINE_LIMIT),
            spawn: None,
            pending: VecDeque::new(),
            started: false,
            joined: false,
            finalized: false,
            closed: false,
            gone: false,
            entered: 0,
            left: 0,
            maxes: None,
            unreadable: false,
            pieces: false,
            spawns: false,
            offered: false,
            goes_on: false,
        }
    }
}

#[derive(Debug, Default)]
struct Group {
    size: u32,
    nodes: u32,
    kvsname: Option<Vec<u8>>,
    mapping: Option<Vec<u8>>,
    kvs: Kvs,
    /// Who first put each key.
    writers: HashMap<Vec<u8>, u32>,
    ranks: HashMap<u32, Rank>,
    /// A client of the group broke the protocol, asked for an abort or died: the program may be aborted now.
    excused: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Monitor {
    /// The requirements that the scenario tests, if there is one.
    focus: Option<Vec<String>>,
    /// The first version that was too high.
    first_version: Option<Version>,
    groups: HashMap<u32, Group>,
    names: HashMap<Vec<u8>, HashSet<Vec<u8>>>,
    /// Names that were published and withdrawn.
    unpublished: HashSet<Vec<u8>>,
    /// Names of which two ranks asked for something at once: nobody can tell in which order it was done.
    contested: HashSet<Vec<u8>>,
    spawned: u32,
    seq: u64,
    findings: Vec<Finding>,
}

fn show(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(PRINTABLE_LIMIT)];
    if cut.len() < bytes.len() {
        format!("\"{}\" ... ({} bytes)", cut.escape_ascii(), bytes.len())
    } else {
        format!("\"{}\"", cut.escape_ascii())
    }
}

/// Whether a request stands as RFC 13's grammar has it: this order, one blank, no further keys.
fn is_canonical(request: &Request<'_>, line: &[u8]) -> bool {
    let mut canonical = Vec::with_capacity(line.len() + 1);
    request.write_to(&mut canonical);
    canonical.strip_suffix(b"\n") == Some(line)
}

/// Whether it cannot be told where a value ends: RFC 13 lets parsers accept blanks around tuples and further tuples, and
/// lets values hold both.
pub(super) fn is_ambiguous(value: &[u8]) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    value.first().is_some_and(blank)
        || value.last().is_some_and(blank)
        || value.split(|b| blank(b)).skip(1).any(|word| word.contains(&b'='))
}

/// `rfc13.abnf.s-get` and so on.
fn response_rule(op: Operation) -> String {
    format!("rfc13.abnf.s-{}", op.rule())
}

/// `rfc13.abnf.c-get` and so on.
fn request_rule(op: Operation) -> String {
    format!("rfc13.abnf.c-{}", op.rule())
}

/// The macro of the grammar that a value of a response breaks.
fn value_rule(key: &str, expected: &str) -> &'static str {
    match key {
        "errcodes" => "rfc13.abnf.intlist",
        "kvsname" => "rfc13.abnf.word",
        "port" => "rfc13.abnf.s-lookup",
        "rc" => "rfc13.abnf.int",
        _ if expected.contains("uint") => "rfc13.abnf.uint",
        _ => "rfc13.abnf.string",
    }
}

/// The rule of the grammar that a process mapping breaks at this offset.
fn mapping_rule(value: &[u8], at: usize) -> &'static str {
    const FRAME: &[u8] = b"(vector,";
    if at < FRAME.len() {
        return "rfc13.abnf.mapping";
    }
    let inside = value[..at.min(value.len())].iter().fold(0, |depth: usize, b| match b {
        b'(' => depth + 1,
        b')' => depth.saturating_sub(1),
        _ => depth,
    });
    match inside {
        2.. => "rfc13.abnf.mapping-block",
        1 if at < value.len() => "rfc13.abnf.mapping-blocklist",
        _ => "rfc13.mapping.format",
    }
}

/// What is broken when this request stays without answer.
fn unanswered_duty(pending: &Pending) -> Option<&'static str> {
    let empty = |program: &pmi_wire::SpawnProgram| {
        program.args.iter().any(|(_, arg)| arg.is_empty())
            || program.preput.iter().chain(&program.info).any(|(_, value)| value.is_empty())
    };
    Some(match pending {
        // Requests on whose form RFC 13 contradicts itself.
        Pending::Put { value, .. } if value.is_empty() => "rfc13.value.empty",
        Pending::Put { value, .. } if is_ambiguous(value) => "rfc13.value.blank",
        Pending::Spawn(request) if request.programs.iter().any(empty) => "rfc13.value.empty",
        Pending::Spawn(request) if request.programs.iter().any(|p| !p.args.is_empty()) => {
            "rfc13.spawn.arg-indices"
        }
        pending => duty(pending.op()?),
    })
}

/// What is broken when a request that must succeed is refused.
fn duty(op: Operation) -> &'static str {
    match op {
        Operation::Init => "rfc13.init.version-used",
        Operation::Maxes => "rfc13.maxes.limits",
        Operation::Abort => "rfc13.abort.group",
        Operation::Finalize => "rfc13.finalize.ack",
        Operation::Universe => "rfc13.abnf.c-universe",
        Operation::Appnum => "rfc13.abnf.c-appnum",
        Operation::Put => "rfc13.abnf.c-put",
        Operation::Kvsname => "rfc13.kvsname.common",
        Operation::Barrier => "rfc13.barrier.released",
        Operation::Get => "rfc13.abnf.c-get",
        Operation::Publish => "rfc13.abnf.c-publish",
        Operation::Unpublish => "rfc13.abnf.c-unpublish",
        Operation::Lookup => "rfc13.abnf.c-lookup",
        Operation::Spawn => "rfc13.abnf.c-spawn",
    }
}

impl Monitor {
    /// A monitor that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A monitor for a scenario that tests these requirements. What every scenario's first exchange would show alike,
    /// the version that the server answers, is then reported where it is tested.
    pub fn focused(requirements: Vec<String>) -> Self {
        Self { focus: Some(requirements), ..Self::default() }
    }

    /// Takes the findings made so far.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Reads the next event.
    pub fn observe(&mut self, event: &Event) {
        self.seq = event.seq;
        match &event.what {
            What::Launched { ranks, nodes, .. } => {
                self.groups.insert(0, Group { size: *ranks, nodes: *nodes, ..Group::default() });
            }
            What::Started { proc, env, bad_fd, .. } => {
                let get = |name: &str| env.get(name).map(String::as_str);
                self.environment(*proc, get, bad_fd.as_deref());
            }
            What::ToServer { proc, bytes } => self.client_wrote(*proc, &bytes.0),
            What::FromServer { proc, bytes } => self.server_wrote(*proc, &bytes.0),
            What::ClosedByClient { proc } => self.client_gone(*proc),
            What::ClosedByServer { proc } => self.closed_by_server(*proc),
            What::Ended { proc, ours: true } => self.client_gone(*proc),
            // Its connection goes with it, whichever of the two is noticed first.
            What::Ended { proc, ours: false } => self.closed_by_server(*proc),
            What::NoAnswer { proc, .. } => self.no_answer(*proc),
            What::Output { .. } | What::JobExited { .. } | What::Crashed { .. } => {}
        }
    }

    fn group(&mut self, id: u32) -> &mut Group {
        self.groups.entry(id).or_default()
    }

    fn rank(&mut self, p: Proc) -> &mut Rank {
        self.group(p.group).ranks.entry(p.rank).or_default()
    }

    fn excused(&self, p: Proc) -> bool {
        self.groups.get(&p.group).is_some_and(|g| g.excused)
    }

    fn server(&mut self, p: Proc, requirement: &str, expected: impl Into<String>, seen: impl Into<String>) {
        self.find(Party::Server, p, requirement, expected.into(), seen.into());
    }

    /// Reports a breach of the client's, and allows the server to abort from now on.
    fn client(&mut self, p: Proc, requirement: &str, expected: impl Into<String>, seen: impl Into<String>) {
        self.group(p.group).excused = true;
        self.find(Party::Client, p, requirement, expected.into(), seen.into());
    }

    fn find(&mut self, party: Party, p: Proc, requirement: &str, expected: String, seen: String) {
        if self.findings.len() >= FINDINGS_LIMIT {
            return;
        }
        self.findings.push(Finding {
            requirement: requirement.to_owned(),
            party,
            proc: Some(p),
            seq: self.seq,
            line: 0,
            at_most: None,
            expected,
            seen,
        });
    }

    // ----- environment ---------------------------------------------------------------------------------------------

    fn environment<'a>(&mut self, p: Proc, env: impl Fn(&str) -> Option<&'a str>, bad_fd: Option<&str>) {
        let seen = |name: &str| match env(name) {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} is not set"),
        };
        let number = |name: &str| env(name).and_then(|v| v.parse::<u32>().ok());
        if number("PMI_FD").is_none() {
            self.server(p, "rfc13.env.pmi-fd", "PMI_FD is set to the number of a descriptor", seen("PMI_FD"));
        } else if let Some(why) = bad_fd {
            let expected = "the descriptor that PMI_FD names is open and connected to the process manager";
            self.server(p, "rfc13.connection.preconnected", expected, why);
        }
        let group = self.group(p.group);
        let asked = group.size;
        if p.group != 0 && !group.ranks.values().any(|r| r.started) {
            // RFC 13, PMI_Spawn_multiple: fewer processes than asked for may be started.
            group.size = number("PMI_SIZE").filter(|n| (1..=asked).contains(n)).unwrap_or(asked);
        }
        let size = group.size;
        if size == 0 {
            // Nobody asked for this group in words of RFC 13: there is nothing to hold it against.
            return;
        }
        if number("PMI_SIZE") != Some(size) {
            self.server(p, "rfc13.env.pmi-size", format!("PMI_SIZE={size}"), seen("PMI_SIZE"));
        }
        let twice = std::mem::replace(&mut self.rank(p).started, true);
        if number("PMI_RANK") != Some(p.rank) || p.rank >= size || twice {
            let expected = format!(
                "each of the {size} processes has a PMI_RANK of its own from 0 to {}",
                size.saturating_sub(1)
            );
            self.server(p, "rfc13.env.pmi-rank", expected, seen("PMI_RANK"));
        }
        let (fits, expected) = if p.group == 0 {
            (env("PMI_SPAWNED").is_none(), "PMI_SPAWNED is not set, since the program was not spawned")
        } else {
            (env("PMI_SPAWNED") == Some("1"), "PMI_SPAWNED=1, since the program was spawned")
        };
        if !fits {
            self.server(p, "rfc13.env.pmi-spawned", expected, seen("PMI_SPAWNED"));
        }
    }

    // ----- client to server ----------------------------------------------------------------------------------------

    fn client_wrote(&mut self, p: Proc, bytes: &[u8]) {
        let mut framer = std::mem::replace(&mut self.rank(p).to_server, LineFramer::new(0));
        let mut pieces = !framer.partial().is_empty();
        framer.push(bytes);
        while let Some(line) = framer.next_line() {
            self.rank(p).pieces = std::mem::take(&mut pieces);
            match line {
                Ok(line) => self.request_line(p, line),
                Err(_) => {
                    self.rank(p).pending.push_back(Pending::Unknown);
                    self.group(p.group).excused = true;
                }
            }
        }
        self.rank(p).to_server = framer;
    }

    fn request_line(&mut self, p: Proc, line: &[u8]) {
        if line.len() > LONG_REQUEST {
            self.group(p.group).excused = true;
        }
        if self.rank(p).spawn.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(p, line);
        }
        self.after_error(p, line);
        match Request::parse(line, ValueReading::ToEndOfLine) {
            Ok(request) => {
                if !is_canonical(&request, line) {
                    // What a parser makes of other orders, blanks and keys is a SHOULD, so nothing that follows from
                    // it is the breach of a MUST.
                    self.group(p.group).excused = true;
                }
                self.request(p, request, line);
            }
            Err(error) => {
                self.rank(p).pending.push_back(Pending::Unknown);
                let rule = Self::request_rule(line, &error);
                self.client(p, &rule, format!("a request of RFC 13 ({error})"), show(line));
            }
        }
    }

    /// What a request breaks that cannot be read.
    fn request_rule(line: &[u8], error: &RequestError) -> String {
        let cmd = pmi_wire::Message::parse(line, ValueReading::ToEndOfLine).ok().and_then(|m| m.cmd());
        let op = cmd.and_then(Operation::from_request_cmd);
        match (op, error) {
            // The newline is LF alone.
            _ if line.ends_with(b"\r") => "rfc13.wire.newline".into(),
            // The value of a put runs to the end of the line, so what is wrong there is wrong with the value.
            (_, RequestError::Message(MessageError::BadByte { at, .. }))
                if line.starts_with(b"cmd=put ") && line[..*at].windows(7).any(|part| part == b" value=") =>
            {
                "rfc13.abnf.string".into()
            }
            (_, RequestError::Message(_)) => "rfc13.wire.tuples".into(),
            (Some(_), RequestError::BadValue { expected, .. }) if expected.contains("RFC 13: uint") => {
                "rfc13.abnf.uint".into()
            }
            (Some(_), RequestError::BadValue { expected, .. }) if expected.contains("RFC 13: word") => {
                "rfc13.abnf.word".into()
            }
            (Some(op), _) => request_rule(op),
            (None, RequestError::SpawnOutsideBlock) => request_rule(Operation::Spawn),
            (None, _) if cmd.is_some_and(|cmd| Operation::from_response_cmd(cmd).is_some()) => {
                "rfc13.wire.server-sends-responses".into()
            }
            (None, _) => "rfc13.abnf.pmi1".into(),
        }
    }

    /// What a spawn request breaks that cannot be read.
    fn spawn_rule(fault: &SpawnFault) -> &'static str {
        // An index is left out.
        let element = |key: &str| key.starts_with("preput_") || key.starts_with("info_");
        let argument =
            |key: &str| key.strip_prefix("arg").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        match fault {
            // Outside of a block, once the request has begun, is between two of its blocks.
            SpawnFault::Interspersed | SpawnFault::OutsideBlock => "rfc13.spawn.not-interspersed",
            SpawnFault::BadByte { .. } => "rfc13.abnf.string",
            SpawnFault::Malformed => "rfc13.wire.tuples",
            SpawnFault::CountMismatch { .. } => "rfc13.spawn.counts-zero-or-more",
            SpawnFault::BadValue { expected, .. } if expected.contains("RFC 13: uint") => "rfc13.abnf.uint",
            SpawnFault::BadValue { expected, .. } if expected.contains("RFC 13: word") => "rfc13.abnf.word",
            SpawnFault::BadIndex(key) if key.starts_with("arg") => "rfc13.abnf.int",
            SpawnFault::BadIndex(_) => "rfc13.abnf.uint",
            SpawnFault::MissingKey(key) if key.ends_with("_num") => "rfc13.abnf.c-spawn",
            SpawnFault::MissingKey(key) if element(key) => "rfc13.spawn.indices",
            SpawnFault::MissingKey(key) if argument(key) => "rfc13.spawn.arg-indices",
            _ => "rfc13.abnf.c-spawn",
        }
    }

    /// RFC 13, Error Handling: a client that gets what is no message closes the connection and aborts. Any further request
    /// but abort shows that it does neither.
    fn after_error(&mut self, p: Proc, line: &[u8]) {
        let rank = self.rank(p);
        if rank.unreadable && !line.starts_with(b"cmd=abort") && !std::mem::replace(&mut rank.goes_on, true) {
            for (id, expected) in [
                ("rfc13.error.close", "the client closes the connection on which it got what is no message"),
                ("rfc13.error.abort", "the client aborts when it gets what is no message"),
            ] {
                self.find(Party::Client, p, id, expected.into(), show(line));
            }
        }
    }

    /// What holds for any request: init first, lock-step, nothing after finalize.
    fn order(&mut self, p: Proc, op: Operation, line: &[u8]) {
        let rank = self.rank(p);
        let (joined, finalized, waits) = (rank.joined, rank.finalized, !rank.pending.is_empty());
        let offered = rank.offered;
        rank.offered |= op == Operation::Init;
        if finalized {
            self.client(p, "rfc13.finalize.last", "no request after finalize", show(line));
        } else if op != Operation::Init && !joined {
            let id = if offered { "rfc13.init.complete-before-others" } else { "rfc13.init.first" };
            self.client(p, id, "init first", show(line));
        } else if op == Operation::Init && joined {
            self.client(p, "rfc13.init.first", "init once", show(line));
        } else if waits {
            self.client(p, "rfc13.wire.lock-step", "no request before the last one is answered", show(line));
        }
    }

    /// Notes that requests about a name overlap, unless both only look it up.
    fn note_contest(&mut self, p: Proc, request: &Request<'_>) {
        let (service, changes) = match request {
            Request::Publish { service, .. } | Request::Unpublish { service } => (*service, true),
            Request::Lookup { service } => (*service, false),
            _ => return,
        };
        let overlaps = |pending: &Pending| match pending {
            Pending::Publish { service: other, .. } | Pending::Unpublish(other) => other == service,
            Pending::Lookup(other) => changes && other == service,
            _ => false,
        };
        let others =
            self.groups.iter().flat_map(|(group, g)| g.ranks.iter().map(move |(r, rank)| (group, r, rank)));
        let overlapping = others
            .filter(|(group, r, _)| (**group, **r) != (p.group, p.rank))
            .any(|(_, _, rank)| rank.pending.iter().any(overlaps));
        if overlapping {
            self.contested.insert(service.to_vec());
        }
    }

    fn request(&mut self, p: Proc, request: Request<'_>, line: &[u8]) {
        self.order(p, request.operation(), line);
        self.note_contest(p, &request);
        let pending = match request {
            Request::Init(offered) => Pending::Init(offered),
            Request::Put { kvsname, key, value } => {
                let lawful = self.put_sent(p, kvsname, key, value);
                Pending::Put { key: key.to_vec(), value: value.to_vec(), lawful }
            }
            Request::Get { kvsname, key } => {
                self.get_sent(p, kvsname, key);
                Pending::Get { key: key.to_vec(), kvsname: kvsname.to_vec() }
            }
            Request::Publish { service, port } => {
                Pending::Publish { service: service.to_vec(), port: port.to_vec() }
            }
            Request::Unpublish { service } => Pending::Unpublish(service.to_vec()),
            Request::Lookup { service } => Pending::Lookup(service.to_vec()),
            Request::Barrier => {
                self.rank(p).entered += 1;
                Pending::Other(Operation::Barrier)
            }
            Request::Finalize => {
                self.rank(p).finalized = true;
                Pending::Other(Operation::Finalize)
            }
            Request::Abort { .. } => {
                self.group(p.group).excused = true;
                Pending::Other(Operation::Abort)
            }
            other => Pending::Other(other.operation()),
        };
        self.rank(p).pending.push_back(pending);
    }

    /// Books a put; says whether the server has no reason to refuse it.
    fn put_sent(&mut self, p: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) -> bool {
        let (known, maxes) = (self.group(p.group).kvsname.clone(), self.rank(p).maxes);
        if known.as_deref() != Some(kvsname) {
            if known.is_some() {
                let expected = "the kvsname that get_my_kvsname returned";
                self.find(Party::Client, p, "rfc13.kvs.name-used", expected.into(), show(kvsname));
            }
            return false;
        }
        let group = self.group(p.group);
        let repeated = group.kvs.contains(key);
        group.kvs.sent(key, value);
        let first = *group.writers.entry(key.to_vec()).or_insert(p.rank);
        if repeated {
            let (id, expected) = match first == p.rank {
                true => ("rfc13.put.once", "a key is put once in a keyval space"),
                false => ("rfc13.put.unique", "no two processes put the same key"),
            };
            self.find(Party::Client, p, id, expected.into(), show(key));
        }
        // RFC 13, PMI_KVS_Get_key_length_max: the lengths count the terminating NUL.
        let fits =
            maxes.is_some_and(|m| (key.len() as u64) < m.keylen_max && (value.len() as u64) < m.vallen_max);
        if maxes.is_some() && !fits {
            let expected = "key and value within the limits of get_maxes".into();
            let seen = format!("a key of {} and a value of {} bytes", key.len(), value.len());
            self.find(Party::Client, p, "rfc13.put.length", expected, seen);
        }
        fits && !repeated && !key.starts_with(RESERVED) && !value.is_empty() && !is_ambiguous(value)
    }

    fn get_sent(&mut self, p: Proc, kvsname: &[u8], key: &[u8]) {
        let (known, maxes) = (self.group(p.group).kvsname.clone(), self.rank(p).maxes);
        if known.is_some_and(|known| known != kvsname) {
            let expected = "the kvsname that get_my_kvsname returned";
            self.find(Party::Client, p, "rfc13.kvs.name-used", expected.into(), show(kvsname));
        }
        if let Some(max) = maxes.map(|m| m.keylen_max).filter(|max| key.len() as u64 >= *max) {
            let expected = format!("a key of less than keylen_max={max} bytes");
            let seen = format!("a key of {} bytes", key.len());
            self.find(Party::Client, p, "rfc13.get.key-length", expected, seen);
        }
    }

    fn spawn_line(&mut self, p: Proc, line: &[u8]) {
        let first = self.rank(p).spawn.is_none();
        if first {
            self.after_error(p, line);
            self.order(p, Operation::Spawn, line);
        }
        match self
            .rank(p)
            .spawn
            .get_or_insert_with(|| SpawnCollector::new(SpawnLimits::default()))
            .push_line(line)
        {
            Ok(None) => {}
            Ok(Some(request)) => {
                self.rank(p).spawn = None;
                self.spawn_sent(p, request);
            }
            Err(error) => {
                let rank = self.rank(p);
                rank.spawn = None;
                rank.pending.push_back(Pending::Unknown);
                let id = Self::spawn_rule(&error.fault);
                self.client(p, id, format!("a spawn request of RFC 13 ({error})"), show(line));
            }
        }
    }

    fn spawn_sent(&mut self, p: Proc, request: SpawnRequest) {
        self.spawned += 1;
        let id = self.spawned;
        let nodes = self.group(p.group).nodes;
        let group = self.group(id);
        group.nodes = nodes;
        group.size = request
            .programs
            .iter()
            .fold(0, |n: u32, p| n.saturating_add(p.nprocs.min(u64::from(u32::MAX)) as u32));
        for (key, value) in request.programs.iter().flat_map(|p| &p.preput) {
            group.kvs.preput(key, value);
        }
        // Started counts as having left round 0: preput pairs must be there, later puts need a barrier.
        if request.programs.iter().any(|p| p.args_base().is_some_and(|base| base != 0)) {
            let expected = "the numbered indices of a spawn request begin with zero".into();
            self.find(Party::Client, p, "rfc13.spawn.arg-indices", expected, "args numbered from 1".into());
        }
        let rank = self.rank(p);
        rank.spawns = true;
        rank.pending.push_back(Pending::Spawn(request));
    }

    fn client_gone(&mut self, p: Proc) {
        let rank = self.rank(p);
        let (joined, finalized, gone) =
            (rank.joined, rank.finalized, std::mem::replace(&mut rank.gone, true));
        let partial = rank.to_server.partial().to_vec();
        if !gone && !rank.closed && !partial.is_empty() {
            let seen = format!("{} and then the end of the connection", show(&partial));
            let expected = "a message that ends with a newline".to_owned();
            self.find(Party::Client, p, "rfc13.wire.newline", expected, seen);
        } else if !gone && !rank.closed && rank.spawn.is_some() {
            let (expected, seen) = ("a spawn request that ends with endcmd", "closed within it");
            self.find(Party::Client, p, "rfc13.abnf.c-spawn", expected.to_owned(), seen.to_owned());
        }
        let rank = self.rank(p);
        if !gone && !finalized && !rank.closed {
            self.group(p.group).excused = true;
            if joined {
                let expected = "finalize before the connection is closed".to_owned();
                self.find(
                    Party::Client,
                    p,
                    "rfc13.abnf.c-finalize",
                    expected,
                    "closed without it".to_owned(),
                );
            }
        }
    }

    // ----- server to client ----------------------------------------------------------------------------------------

    fn server_wrote(&mut self, p: Proc, bytes: &[u8]) {
        let mut framer = std::mem::replace(&mut self.rank(p).from_server, LineFramer::new(0));
        framer.push(bytes);
        while let Some(line) = framer.next_line() {
            match line {
                Ok(line) => self.response_line(p, line),
                Err(_) => {
                    let seen = format!("more than {LINE_LIMIT} bytes without a newline");
                    self.unreadable(p, "rfc13.wire.newline", "messages end with a newline", seen);
                }
            }
        }
        self.rank(p).from_server = framer;
    }

    /// Reports what cannot be read at all, once per connection: what follows is rarely a finding of its own.
    fn unreadable(&mut self, p: Proc, requirement: &str, expected: &str, seen: String) {
        self.rank(p).pending.pop_front();
        if !std::mem::replace(&mut self.rank(p).unreadable, true) {
            self.server(p, requirement, expected, seen);
        }
    }

    fn response_line(&mut self, p: Proc, line: &[u8]) {
        let asked = self.rank(p).pending.front().map(Pending::op);
        let response = match Response::parse(line, ValueReading::ToEndOfLine) {
            Ok(response) => response,
            Err(error) => return self.bad_response(p, &error, line),
        };
        let op = response.operation();
        match asked {
            None if op == Operation::Spawn && self.rank(p).spawns => {
                let expected = "one response to a spawn, however many commands it has";
                self.server(p, "rfc13.spawn.one-response", expected, show(line));
            }
            None => self.server(p, "rfc13.wire.lock-step", "no message, since nothing was asked", show(line)),
            // Our request was no request of PMI-1. What the server makes of it is the scenario's business.
            Some(None) => drop(self.rank(p).pending.pop_front()),
            Some(Some(asked)) if asked == op => {
                if let Some(pending) = self.rank(p).pending.pop_front() {
                    self.answer(p, pending, &response, line);
                }
            }
            Some(Some(asked)) => {
                let expected = match asked.response_cmd() {
                    Some(cmd) => format!("cmd={cmd}, the answer to {}", asked.request_cmd()),
                    None => "a bare newline or the end of the connection, after abort".to_owned(),
                };
                let id = if asked == Operation::Abort {
                    "rfc13.abnf.s-abort"
                } else {
                    "rfc13.wire.response-matches-request"
                };
                // A stray answer that is right for nobody is not taken for the pending one's.
                self.server(p, id, expected, show(line));
                if op != Operation::Barrier {
                    self.rank(p).pending.pop_front();
                }
            }
        }
    }

    fn bad_response(&mut self, p: Proc, error: &ResponseError, line: &[u8]) {
        let message = pmi_wire::Message::parse(line, ValueReading::ToEndOfLine);
        let cmd = message.as_ref().ok().and_then(|m| m.cmd());
        let asked = self.rank(p).pending.front().map(Pending::op);
        let unasked = asked.is_none();
        let (id, expected) = match error {
            // The value of a get runs to the end of the line, so what is wrong there is wrong with the value.
            ResponseError::Message(MessageError::BadByte { .. }) if line.starts_with(b"cmd=get_result ") => {
                ("rfc13.abnf.string".to_owned(), format!("blanks, tabs and visible characters ({error})"))
            }
            ResponseError::Message(_) => {
                ("rfc13.wire.tuples".to_owned(), format!("a series of key=value tuples ({error})"))
            }
            ResponseError::NoCommand => {
                ("rfc13.wire.response-matches-request".to_owned(), "a response with its cmd".to_owned())
            }
            ResponseError::UnknownCommand
                if cmd.is_some_and(|c| Operation::from_request_cmd(c).is_some()) =>
            {
                ("rfc13.wire.client-sends-requests".to_owned(), "a response, not a request".to_owned())
            }
            _ if unasked => {
                ("rfc13.wire.lock-step".to_owned(), "no message, since nothing was asked".to_owned())
            }
            // The answer to something that is no PMI-1 request may well have a name of its own.
            ResponseError::UnknownCommand if asked == Some(None) => {
                self.rank(p).pending.pop_front();
                return;
            }
            ResponseError::UnknownCommand => {
                ("rfc13.abnf.pmi1".to_owned(), "a response of RFC 13".to_owned())
            }
            ResponseError::BadValue { key, expected } => {
                (value_rule(key, expected).to_owned(), format!("a response of RFC 13 ({error})"))
            }
            ResponseError::MissingKey(_) | ResponseError::RepeatedKey(_) => {
                let op = cmd.and_then(Operation::from_response_cmd).unwrap_or(Operation::Init);
                (response_rule(op), format!("a response of RFC 13 ({error})"))
            }
        };
        if matches!(error, ResponseError::Message(_)) {
            return self.unreadable(p, &id, &expected, show(line));
        }
        self.rank(p).pending.pop_front();
        self.server(p, &id, expected, show(line));
    }

    /// A response of the right kind: is it the right one?
    fn answer(&mut self, p: Proc, pending: Pending, response: &Response<'_>, line: &[u8]) {
        let ok = response.is_success();
        match (pending, &response.body) {
            (Pending::Init(offered), Body::Init(used)) => self.init_answered(p, offered, ok, *used, line),
            (Pending::Put { key, value, lawful }, _) => {
                let round = self.rank(p).entered;
                if ok {
                    self.group(p.group).kvs.acknowledged(&key, &value, round);
                } else {
                    self.group(p.group).kvs.refused(&key, &value);
                    if lawful && !self.excused(p) {
                        let full = self.rank(p).maxes.is_some_and(|m| {
                            key.len() as u64 + 1 >= m.keylen_max || value.len() as u64 + 1 >= m.vallen_max
                        });
                        let id = if full { "rfc13.maxes.honoured" } else { "rfc13.abnf.c-put" };
                        self.server(p, id, "a put within all limits succeeds", show(line));
                    }
                }
            }
            (Pending::Get { key, kvsname }, Body::Get(value))
                if self.group(p.group).kvsname.as_deref() == Some(&kvsname) =>
            {
                self.get_answered(p, &key, ok, *value, line);
            }
            (Pending::Lookup(service), Body::Lookup(port)) => {
                self.lookup_answered(p, &service, ok, *port, line)
            }
            (Pending::Publish { service, port }, _) if ok => {
                self.names.entry(service).or_default().insert(port);
            }
            (Pending::Unpublish(service), _) => {
                let known = self.names.remove(&service).is_some() || self.contested.contains(&service);
                if known && ok {
                    self.unpublished.insert(service);
                }
                if ok && !known {
                    self.server(
                        p,
                        "rfc13.error.rc-nonzero",
                        "an error, since the name is not published",
                        show(line),
                    );
                }
            }
            (Pending::Spawn(request), Body::Spawn(Some(codes))) => {
                let asked = request.programs.iter().fold(0u64, |n, p| n.saturating_add(p.nprocs));
                if codes.len() as u64 != asked && ok {
                    let expected = format!("an error code for each of the {asked} processes");
                    self.server(p, "de-facto.spawn.errcodes", expected, show(line));
                }
            }
            (Pending::Other(op), body) => self.plain_answered(p, op, ok, body, line),
            _ => {}
        }
    }

    fn init_answered(&mut self, p: Proc, offered: Version, ok: bool, used: Option<Version>, line: &[u8]) {
        let id = "rfc13.init.version-used";
        match used {
            Some(used) if ok && used > offered => {
                let expected = format!("a version up to {offered}, the highest that the client offered");
                let known = *self.first_version.get_or_insert(used) == used;
                if !known || self.focus.as_ref().is_none_or(|f| f.iter().any(|r| r == id)) {
                    self.server(p, id, expected, show(line));
                }
                self.rank(p).joined = true;
            }
            Some(_) if ok => self.rank(p).joined = true,
            None if ok => {
                self.server(p, COMPLETE, "success comes with the version that is used", show(line));
                self.rank(p).joined = true;
            }
            _ if offered >= Version::V1_1 && !self.excused(p) => {
                let id =
                    if offered == Version::V1_1 { "rfc13.abnf.c-init" } else { "rfc13.init.highest-mutual" };
                self.server(p, id, "success, since version 1.1 is in reach of the client", show(line));
            }
            _ => {}
        }
    }

    fn get_answered(&mut self, p: Proc, key: &[u8], ok: bool, value: Option<&[u8]>, line: &[u8]) {
        if key == b"PMI_process_mapping" {
            return self.mapping_answered(p, ok, value, line);
        }
        // A spawned process has left round 0 by being started: see spawn_sent.
        let left =
            self.rank(p).left + u64::from(p.group != 0 && self.rank(p).left == 0 && self.is_preput(p, key));
        let what = self.group(p.group).kvs.expected(key, left, value);
        let key = show(key);
        match what {
            Expected::Missing if ok && !key.starts_with("\"PMI_") => {
                let expected = format!("an error, since nobody has put the key {key}");
                self.server(p, "rfc13.error.rc-nonzero", expected, show(line));
            }
            Expected::Missing => {}
            Expected::OneOf { must, shown, .. } if !ok => {
                if must && !self.excused(p) {
                    let id = if p.group != 0 && self.rank(p).left == 0 {
                        "rfc13.spawn.preput"
                    } else {
                        "rfc13.put.visible-after-barrier"
                    };
                    self.server(p, id, format!("the value of {key}, {shown}"), show(line));
                }
            }
            Expected::OneOf { shown, .. } if value.is_none() => {
                self.server(p, COMPLETE, format!("the value of {key}, {shown}"), show(line));
            }
            Expected::OneOf { fits, shown, ambiguous, .. } => {
                if !fits {
                    let id = if ambiguous { "rfc13.value.blank" } else { "rfc13.get.value" };
                    self.server(p, id, format!("the value of {key}, {shown}"), show(line));
                }
            }
        }
    }

    fn is_preput(&mut self, p: Proc, key: &[u8]) -> bool {
        matches!(self.group(p.group).kvs.expected(key, 1, None), Expected::OneOf { must: true, .. })
            && matches!(self.group(p.group).kvs.expected(key, 0, None), Expected::OneOf { .. })
            && !self.group(p.group).ranks.values().any(|r| r.entered > 0)
    }

    fn mapping_answered(&mut self, p: Proc, ok: bool, value: Option<&[u8]>, line: &[u8]) {
        let (size, nodes) = (self.group(p.group).size, self.group(p.group).nodes);
        if ok && value.is_none() {
            return self.server(p, COMPLETE, "success comes with the value of the key", show(line));
        }
        let (true, Some(value)) = (ok, value) else {
            if !self.excused(p) {
                self.server(p, "rfc13.mapping.provided", "the value of PMI_process_mapping", show(line));
            }
            return;
        };
        let first = self.group(p.group).mapping.get_or_insert_with(|| value.to_vec()).clone();
        if first != value {
            let expected = format!("the same mapping for every process, {}", show(&first));
            self.server(p, "rfc13.get.value", expected, show(line));
        }
        let mapping = match MappingForm::classify(value) {
            MappingForm::Rfc(mapping) => mapping,
            // Lawful where the mapping does not fit; a group this small always fits.
            MappingForm::Unknown => return,
            MappingForm::Mpich(_) => {
                let seen = format!("{}, MPICH's form and not RFC 13's", show(value));
                return self.server(p, "rfc13.mapping.format", "\"(vector,(node,nodes,ppn),...)\"", seen);
            }
            MappingForm::NotAMapping(error) => {
                let expected = format!("\"(vector,(node,nodes,ppn),...)\" ({error})");
                return self.server(p, mapping_rule(value, error.at), expected, show(value));
            }
        };
        match mapping.expand(size) {
            Err(too_few) => {
                let expected = format!("a node for each of the {size} ranks");
                self.server(
                    p,
                    "rfc13.mapping.covers-all-ranks",
                    expected,
                    format!("{}: {too_few}", show(value)),
                );
            }
            Ok(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                let on = nodes.min(size);
                if p.group == 0 && ids.len() as u32 != on {
                    let expected = format!("the {size} ranks on {on} node(s), as they were started");
                    let seen = format!("{} places them on {}", show(value), ids.len());
                    self.server(p, "rfc13.mapping.true", expected, seen);
                }
            }
        }
    }

    fn lookup_answered(&mut self, p: Proc, service: &[u8], ok: bool, port: Option<&[u8]>, line: &[u8]) {
        if self.contested.contains(service) {
            return;
        }
        let ports = self.names.get(service).cloned().unwrap_or_default();
        let shown = ports.iter().map(|p| show(p)).collect::<Vec<_>>().join(" or ");
        match port {
            _ if ports.is_empty() && ok => {
                let id = match port {
                    Some(_) if self.unpublished.contains(service) => "rfc13.unpublish.gone",
                    Some(_) => "rfc13.lookup.port",
                    None => "rfc13.error.rc-nonzero",
                };
                let expected = format!("an error, since {} is not published", show(service));
                self.server(p, id, expected, show(line));
            }
            _ if ports.is_empty() => {}
            Some(port) if ok && !ports.contains(port) => {
                self.server(
                    p,
                    "rfc13.lookup.port",
                    format!("the port that was published, {shown}"),
                    show(line),
                );
            }
            None if ok => self.server(p, COMPLETE, format!("a port, {shown}"), show(line)),
            _ if !ok && !self.excused(p) => {
                self.server(
                    p,
                    "rfc13.publish.lookup",
                    format!("the port that was published, {shown}"),
                    show(line),
                );
            }
            _ => {}
        }
    }

    fn plain_answered(&mut self, p: Proc, op: Operation, ok: bool, body: &Body<'_>, line: &[u8]) {
        match body {
            Body::Barrier => return self.barrier_left(p, ok, line),
            // RFC 13, PMI_Get_universe_size and PMI_Get_appnum: the server may be unable to tell.
            Body::Universe(_) | Body::Appnum(_) if !ok => return,
            Body::Kvsname(Some(name)) if ok => return self.kvsname_answered(p, name, line),
            Body::Maxes(maxes @ Some(_)) => self.rank(p).maxes = *maxes,
            _ => {}
        }
        if !ok {
            if !self.excused(p) {
                let expected = format!("success of {}", op.request_cmd());
                self.server(p, &request_rule(op), expected, show(line));
            }
            return;
        }
        let missing = match body {
            Body::Maxes(None) => "kvsname_max, keylen_max and vallen_max",
            Body::Universe(None) => "size",
            Body::Appnum(None) => "appnum",
            Body::Kvsname(None) => "kvsname",
            _ => return,
        };
        self.server(p, COMPLETE, format!("success comes with {missing}"), show(line));
    }

    fn kvsname_answered(&mut self, p: Proc, name: &[u8], line: &[u8]) {
        let max = self.rank(p).maxes.map(|m| m.kvsname_max);
        if max.is_some_and(|max| name.len() as u64 >= max) {
            let expected = format!("a kvsname of less than kvsname_max={} bytes", max.unwrap_or_default());
            self.server(p, "rfc13.kvsname.length", expected, show(line));
        }
        let first = self.group(p.group).kvsname.get_or_insert_with(|| name.to_vec()).clone();
        if first != name {
            let expected = format!("kvsname={} for every process of the group", first.escape_ascii());
            self.server(p, "rfc13.kvsname.common", expected, show(line));
        }
        if self.groups.iter().any(|(id, g)| *id != p.group && g.kvsname.as_deref() == Some(name)) {
            let expected = "a kvsname that no other process group has";
            self.server(p, "rfc13.kvsname.distinct", expected, show(line));
        }
    }

    fn barrier_left(&mut self, p: Proc, ok: bool, line: &[u8]) {
        let group = self.group(p.group);
        let round = group.ranks.get(&p.rank).map_or(0, |r| r.left) + 1;
        let missing: Vec<u32> =
            (0..group.size).filter(|r| group.ranks.get(r).is_none_or(|rank| rank.entered < round)).collect();
        let left_for_good = group.ranks.values().any(|r| r.finalized || r.gone);
        self.rank(p).left = round;
        if ok && !missing.is_empty() {
            let ranks = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let expected = format!("nobody leaves barrier {round} before all have entered it");
            let seen = format!("{} while rank {ranks} has not entered", show(line));
            self.server(p, "rfc13.barrier.all-in-before-any-out", expected, seen);
        }
        if !ok && !left_for_good && !self.excused(p) {
            self.server(p, "rfc13.barrier.released", "success, since nothing went wrong", show(line));
        }
    }

    /// An answer that was waited for did not come, or the connection ended before it.
    fn unanswered(&mut self, p: Proc, how: &str, closed: bool) {
        if self.excused(p) {
            return;
        }
        let rank = self.rank(p);
        let partial = rank.from_server.partial().to_vec();
        let Some((op, duty)) = rank.pending.front().map(|p| (p.op(), unanswered_duty(p))) else { return };
        if !partial.is_empty() {
            let seen = format!("{} and then {how}", show(&partial));
            return self.server(p, "rfc13.wire.newline", "a message that ends with a newline", seen);
        }
        let (Some(op), Some(duty)) = (op, duty) else { return };
        // A client that knows no version of ours may be turned away.
        if closed && matches!(self.rank(p).pending.front(), Some(Pending::Init(v)) if *v < Version::V1_1) {
            return;
        }
        if op == Operation::Barrier && !self.all_in(p) {
            return;
        }
        let id = if self.rank(p).pieces {
            // Only the newline ends a message, however it is spread over writes.
            "rfc13.wire.newline".to_owned()
        } else if closed && duty == self::duty(op) {
            // The server took it for no request.
            request_rule(op)
        } else if op == Operation::Barrier && self.rank(p).left > 0 {
            // It has worked before.
            "rfc13.barrier.generic".to_owned()
        } else {
            duty.to_owned()
        };
        let expected = format!("an answer to {}", op.request_cmd());
        self.server(p, &id, expected, how.to_owned());
    }

    fn all_in(&mut self, p: Proc) -> bool {
        let round = self.rank(p).left + 1;
        let group = self.group(p.group);
        (0..group.size).all(|r| group.ranks.get(&r).is_some_and(|rank| rank.entered >= round))
    }

    fn no_answer(&mut self, p: Proc) {
        self.unanswered(p, "silence", false);
    }

    fn closed_by_server(&mut self, p: Proc) {
        if self.rank(p).closed {
            return;
        }
        self.unanswered(p, "the end of the connection", true);
        let rank = self.rank(p);
        rank.closed = true;
        rank.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;

    /// What is found in these lines: rank, whether the server says it, and what is said.
    fn findings(lines: &[(u32, bool, &str)]) -> Vec<String> {
        let mut monitor = Monitor::new();
        let launched = What::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let events = lines.iter().map(|(rank, server, line)| {
            let proc = Proc { group: 0, rank: *rank };
            let bytes = Bytes(format!("{line}\n").into_bytes());
            if *server { What::FromServer { proc, bytes } } else { What::ToServer { proc, bytes } }
        });
        for (seq, what) in std::iter::once(launched).chain(events).enumerate() {
            monitor.observe(&Event { seq: seq as u64, time_us: 0, what });
        }
        let found = monitor.take_findings().into_iter().filter(|f| f.party == Party::Server);
        found.map(|f| f.requirement).collect()
    }

    #[test]
    fn names_are_judged_where_the_order_is_known() {
        let start = [0, 1].map(|r| {
            [
                (r, false, "cmd=init pmi_version=1 pmi_subversion=1"),
                (r, true, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
            ]
        });
        let publish = (0, false, "cmd=publish_name service=s port=p");
        let published = (0, true, "cmd=publish_result rc=0");
        let unpublish = (1, false, "cmd=unpublish_name service=s");
        let unpublished = (1, true, "cmd=unpublish_result rc=0");
        let found = |rest: &[(u32, bool, &'static str)]| findings(&[&start.concat(), rest].concat());
        assert_eq!(found(&[publish, published, unpublish, unpublished]), Vec::<String>::new());
        assert_eq!(found(&[unpublish, unpublished]), ["rfc13.error.rc-nonzero"]);
        // Both at once: the answers may have been read in another order than they were given.
        assert_eq!(found(&[publish, unpublish, unpublished, published]), Vec::<String>::new());
    }
}
