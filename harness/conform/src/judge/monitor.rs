//! The monitor: a model of PMI-1 over events, always on.
//!
//! It follows every connection in both directions and reports what either side does against RFC 13. Once a client
//! has broken the protocol the server may abort the program at any time, so from then on only what can never be
//! lawful is reported for that process group.

mod client;
mod environment;
mod server;

use std::collections::{HashMap, HashSet, VecDeque};

use pmi_wire::{LineFramer, Maxes, Operation, SpawnCollector, SpawnRequest, Version};

use super::finding::{Finding, Party};
use super::kvs::Kvs;
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

/// So many processes more than were asked for are no mistake in counting, but a garbled number.
const SWARM: u64 = 64;

const COMPLETE: &str = "rfc13.response.complete-on-success";

/// The reserved first letters of keys that the process manager itself provides.
const RESERVED: &[u8] = b"PMI_";

/// What a finding has seen instead of an answer: silence,
pub(crate) const SILENCE: &str = "silence";
/// silence that the rest of another process's request may end,
pub(crate) const HELD_UP: &str = "silence while another process has said half a request";
/// or that none can come any more.
pub(crate) const END: &str = "the end of the connection";

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
    /// The server has refused that.
    refused: bool,
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
    /// It has sent what is no request, or a request ahead: which answer belongs to which of the pending is open.
    astray: bool,
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
            refused: false,
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
            astray: false,
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
    /// Keys that were put before the name of the keyval space was known. Whether they went into it cannot be told.
    guessed: HashSet<Vec<u8>>,
    ranks: HashMap<u32, Rank>,
    /// A client of the group broke the protocol, asked for an abort or died: the program may be aborted now.
    excused: bool,
    /// A client sent what is no request, or a request ahead. RFC 13 does not say what a server makes of that: it may
    /// count for a barrier, or have put a value.
    unclear: bool,
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
    /// Processes that lines of spawn requests have asked for, whatever else was wrong with them.
    asked: u64,
    /// Processes that were started in groups of their own.
    children: u64,
    /// A spawn request could not be read, or was sent ahead: who has been started for which is open.
    unclear_spawns: bool,
    /// The upstream of a proxy has said something by order of the scenario.
    scripted: bool,
    seq: u64,
    findings: Vec<Finding>,
}

pub(super) fn show(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(PRINTABLE_LIMIT)];
    if cut.len() < bytes.len() {
        format!("\"{}\" ... ({} bytes)", cut.escape_ascii(), bytes.len())
    } else {
        format!("\"{}\"", cut.escape_ascii())
    }
}

/// Whether it cannot be told where a value ends: RFC 13 lets parsers accept blanks around tuples and further tuples, and
/// lets values hold both.
pub(super) fn is_ambiguous(value: &[u8]) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    value.first().is_some_and(blank)
        || value.last().is_some_and(blank)
        || value.split(|b| blank(b)).skip(1).any(|word| word.contains(&b'='))
}

/// `rfc13.abnf.c-get` and so on.
fn request_rule(op: Operation) -> String {
    format!("rfc13.abnf.c-{}", op.rule())
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
                if proc.group != 0 && proc.group != Proc::PROXIES {
                    self.child_started(*proc);
                }
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
            What::NoAnswer { proc, .. } if proc.group == Proc::PROXIES => {}
            What::NoAnswer { proc, .. } => self.no_answer(*proc),
            // What reaches the clients may be the scenario's doing from now on, which alone says what must hold.
            What::ToProxy { scripted, .. } => self.scripted |= scripted,
            What::ClosedByUpstream { .. } => self.scripted = true,
            What::FromProxy { .. }
            | What::ProxyEnded { .. }
            | What::Output { .. }
            | What::JobExited { .. }
            | What::Called { .. }
            | What::Returned { .. }
            | What::Exited { .. }
            | What::Crashed { .. } => {}
        }
    }

    /// Whether far more processes are started than were asked for: there may be no end to it.
    pub(crate) fn swarms(&self) -> bool {
        self.children > self.asked.saturating_add(SWARM)
    }

    /// Number of process groups that were asked for by spawn requests.
    pub fn spawned(&self) -> u32 {
        self.spawned
    }

    /// Whether a process has sent finalize.
    pub fn has_finalized(&self, p: Proc) -> bool {
        self.groups.get(&p.group).and_then(|g| g.ranks.get(&p.rank)).is_some_and(|r| r.finalized)
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

    /// What a process has sent can be taken in more than one way from here on.
    fn goes_astray(&mut self, p: Proc) {
        self.rank(p).astray = true;
        let group = self.group(p.group);
        group.excused = true;
        group.unclear = true;
    }

    /// What is no request is waiting for whatever comes of it.
    fn unknown_sent(&mut self, p: Proc) {
        self.goes_astray(p);
        self.rank(p).pending.push_back(Pending::Unknown);
    }

    /// Whether a process other than this one has begun a request and may still end it.
    fn others_are_half_said(&self, p: Proc) -> bool {
        let ranks =
            self.groups.iter().flat_map(|(group, g)| g.ranks.iter().map(move |(rank, r)| (*group, *rank, r)));
        ranks
            .filter(|(group, rank, r)| (*group, *rank) != (p.group, p.rank) && !r.gone && !r.closed)
            .any(|(_, _, r)| r.spawn.is_some() || !r.to_server.partial().is_empty())
    }

    fn unclear(&self, p: Proc) -> bool {
        (p.group != 0 && self.unclear_spawns) || self.groups.get(&p.group).is_some_and(|g| g.unclear)
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
        if self.findings.len() >= FINDINGS_LIMIT || (self.scripted && party == Party::Server) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bytes, SilenceProof};
    use crate::judge::Severity;

    /// What is found in these lines: rank, whether the server says it, and what is said.
    fn findings(lines: &[(u32, bool, &str)]) -> Vec<String> {
        let launched = What::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let events = lines.iter().map(|(rank, server, line)| {
            let proc = Proc { group: 0, rank: *rank };
            let bytes = Bytes(format!("{line}\n").into_bytes());
            if *server { What::FromServer { proc, bytes } } else { What::ToServer { proc, bytes } }
        });
        let found = judged(std::iter::once(launched).chain(events));
        found.into_iter().filter(|f| f.party == Party::Server).map(|f| f.requirement).collect()
    }

    fn judged(events: impl IntoIterator<Item = What>) -> Vec<Finding> {
        let mut monitor = Monitor::new();
        for (what, seq) in events.into_iter().zip(0..) {
            monitor.observe(&Event { seq, time_us: 0, what });
        }
        monitor.take_findings()
    }

    const JOINED: [(u32, bool, &str); 4] = [
        (0, false, "cmd=init pmi_version=1 pmi_subversion=1"),
        (0, true, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        (0, false, "cmd=get_my_kvsname"),
        (0, true, "cmd=my_kvsname kvsname=k"),
    ];

    #[test]
    fn who_asks_ahead_gets_its_answers_in_any_order() {
        let barrier = (0, false, "cmd=barrier_in");
        let get = (0, false, "cmd=get_appnum");
        let (out, number) = ((0, true, "cmd=barrier_out"), (0, true, "cmd=appnum appnum=0"));
        let found = |rest: &[(u32, bool, &'static str)]| findings(&[&JOINED, rest].concat());
        let mismatch = "rfc13.wire.response-matches-request";
        assert_eq!(found(&[get, out]), [mismatch]);
        assert_eq!(found(&[barrier, get, number]), Vec::<String>::new());
        // Once every request has had its answer, it is strict again.
        assert_eq!(found(&[barrier, get, number, out, get, out]), [mismatch]);
        // What goes to another process unasked has no excuse.
        assert_eq!(found(&[barrier, barrier, (1, true, "cmd=barrier_out")]), ["rfc13.wire.lock-step"]);
    }

    #[test]
    fn a_line_without_end_may_end_the_program() {
        let found = |length: usize| {
            let proc = |rank| Proc { group: 0, rank };
            let write = |rank, text: &str| What::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
            let answer = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec();
            let events = [
                What::Launched { command: Vec::new(), ranks: 2, nodes: 1 },
                write(0, "cmd=init pmi_version=1 pmi_subversion=1\n"),
                What::FromServer { proc: proc(0), bytes: Bytes(answer) },
                write(1, &"x".repeat(length)),
                write(0, "cmd=get_appnum\n"),
                What::ClosedByServer { proc: proc(0) },
            ];
            judged(events).into_iter().map(|f| f.requirement).collect::<Vec<_>>()
        };
        assert_eq!(found(10), ["rfc13.abnf.c-appnum"]);
        assert_eq!(found(LONG_REQUEST + 1), Vec::<String>::new());
    }

    #[test]
    fn who_is_held_up_by_a_half_said_request_is_noted_only() {
        let proc = |rank| Proc { group: 0, rank };
        let write = |rank, text: &str| What::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
        let found = |said: &[(u32, &str)], closes: bool| {
            let answer = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
            let joined = [0, 1].into_iter().flat_map(|rank| {
                let bytes = Bytes(answer.to_vec());
                let init = write(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
                [init, What::FromServer { proc: proc(rank), bytes }]
            });
            let launched = What::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
            let said = said.iter().map(|(rank, text)| write(*rank, text));
            let end = closes.then(|| What::ClosedByServer { proc: proc(1) });
            let silence = What::NoAnswer { proc: proc(0), proof: SilenceProof::Idle };
            let found = judged([launched].into_iter().chain(joined).chain(said).chain(end).chain([silence]));
            found.into_iter().map(|f| (f.seen, f.at_most)).collect::<Vec<_>>()
        };
        let held_up = [(HELD_UP.to_owned(), Some(Severity::Note))];
        let silence = [(SILENCE.to_owned(), None)];
        let get = (0, "cmd=get_maxes\n");
        assert_eq!(found(&[(1, "cmd=ge"), get], false), held_up);
        assert_eq!(found(&[(1, "mcmd=spawn\nnprocs=1\n"), get], false), held_up);
        assert_eq!(found(&[(1, "cmd=ge"), get], true), silence);
        assert_eq!(found(&[(1, "cmd=ge"), (1, "t_appnum\n"), get], false), silence);
        assert_eq!(found(&[(0, "cmd=get_"), (0, "maxes\n")], false), silence);
    }

    #[test]
    fn processes_that_nobody_asked_for_are_found_once() {
        let proc = |group, rank| Proc { group, rank };
        let found = |asks: &str, children: u32| {
            let bytes = Bytes(format!("{asks}\n").into_bytes());
            let asked = What::ToServer { proc: proc(0, 0), bytes };
            let started = |rank| What::Started {
                proc: proc(1, rank),
                env: [("PMI_FD".to_owned(), "3".to_owned())].into(),
                args: Vec::new(),
                bad_fd: None,
            };
            let launched = What::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
            let found = judged([launched, asked].into_iter().chain((0..children).map(started)));
            found.iter().filter(|f| f.requirement == "rfc13.spawn.maxprocs").count()
        };
        let most = SWARM as u32;
        assert_eq!((found("mcmd=spawn", most), found("mcmd=spawn", most + 9)), (0, 1));
        assert_eq!(found("\t nprocs = 500 ", most + 500), 0);
        assert_eq!((found("nprocs=", most), found("nprocs=", most + 9)), (0, 1));
        assert_eq!(found(&format!("nprocs={}", "9".repeat(30)), most + 9), 0);
        assert_eq!((found("nprocs\u{93}500", most + 500), found("nprocs\u{93}500", most + 509)), (0, 1));
    }

    #[test]
    fn what_is_no_request_may_still_have_put_a_value() {
        let found = |rest: &[(u32, bool, &'static str)]| findings(&[&JOINED, rest].concat());
        let (get, got) = ((0, false, "cmd=get kvsname=k key=a"), (0, true, "cmd=get_result rc=0 value=v"));
        assert_eq!(found(&[get, got]), ["rfc13.error.rc-nonzero"]);
        let (put, done) = ((0, false, "cmd=put key=a value=v"), (0, true, "cmd=put_result rc=0"));
        assert_eq!(found(&[put, done, get, got]), Vec::<String>::new());
        // It may also get no answer at all.
        assert_eq!(found(&[put, get, got]), Vec::<String>::new());
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
