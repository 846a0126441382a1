//! Target: the reference server, judged by the monitor. One to four ranks, and the processes that they spawn, perform operations in any
//! dialect.
//!
//! Input: a byte that selects the number of ranks, the number of nodes, the dialect, and whether all processes join before the first step.
//! The steps follow. Each step consists of four bytes, which select the process, the operation, its arguments, and the way in which it is
//! sent.

use std::collections::{BTreeMap, VecDeque};

use pmi_faults::{Behaviour, Config, GroupSpec, Server, ServerAction};
use pmi_judge::event::{Bytes, Event, EventKind, SilenceProof};
use pmi_judge::{Finding, Monitor, PartyKind};
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{self, Exchange, Field};
use pmi_wire::{Decoded, Direction, Framing, HEADER, Proc, SpawnProgram, SpawnRequest, Version};

use crate::spell::{self, framed};
use crate::{counters, planted};

/// Keys, including those of job attributes, the longest key that every dialect accepts, and a key that every dialect rejects.
const KEYS: [&str; 8] =
    ["a", "A", "key-2", "PMI_process_mapping", "universeSize", "hasNameServ", LONGEST_KEY, TOO_LONG_KEY];
const LONGEST_KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
const TOO_LONG_KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
/// Values to put. The last two are placeholders, for the longest value that every dialect accepts and a value that every dialect rejects.
const VALUES: [&str; 8] = ["v", "two words", "x=1 y=2", "\ttab ", "rc=0", "a;b", LONGEST, TOO_LONG];
const LONGEST: &str = "longest";
const TOO_LONG: &str = "too long";
/// Names to publish.
const SERVICES: [&str; 4] = ["s", "ocean", "s2", "S"];
const PORTS: [&str; 4] = ["p", "tag=0$h$", "p2", "="];
/// Values for the `group` field of a PMI-1.2 barrier.
const GROUPS: [&str; 8] = ["WORLD", "NODE", "0", "0,1", "1,0:3", "0,1,2", "WORLD:7", "2,3"];
/// The name of a program that cannot be started.
const MISSING: &str = "missing";
/// Maximum number of processes that a request spawns.
const SPAWN_MAX: u64 = 4;
const VERSIONS: [Version; 3] = [Version::V1_1, Version::V1_2, Version::V2_0];

/// Checks that the monitor reports no findings about the reference server, regardless of what its clients do.
pub fn run(data: &[u8]) {
    let found = judge(data, planted::behaviour());
    assert_eq!(found, None, "the monitor has a finding about a conforming server");
}

/// Plays a session with a server that has this behaviour, and returns the first finding about the server.
fn judge(data: &[u8], behaviour: Behaviour) -> Option<Finding> {
    let (&head, steps) = data.split_first()?;
    let mut session = Session::start(head, behaviour);
    for step in steps.as_chunks().0 {
        let finding = session.finding();
        if finding.is_some() || session.started.is_empty() {
            return finding;
        }
        session.step(*step);
    }
    session.finding()
}

/// A server, its processes, and the monitor that observes both.
struct Session {
    server: Server,
    monitor: Monitor,
    version: Version,
    /// Number of events so far.
    seq: u64,
    /// The monitor's number for each group. The monitor also counts spawns that the server refuses.
    groups: Vec<u32>,
    /// Groups whose processes have started.
    started: Vec<u32>,
    /// Groups that are being started, each with `true` if the start will succeed.
    starting: VecDeque<(u32, bool)>,
    /// The unanswered operations of each process.
    waiting: BTreeMap<Proc, Vec<&'static str>>,
    /// Number of requests so far, which is used as the thread id.
    requests: u8,
}

impl Session {
    fn start(head: u8, wrapper: Behaviour) -> Self {
        let (size, nodes) = (u32::from(head & 3) + 1, u32::from(head >> 2 & 3) + 1);
        let version = VERSIONS[usize::from(head >> 4 & 7) % VERSIONS.len()];
        let (pmi12, pmi2) = (version == Version::V1_2, version == Version::V2_0);
        let mut server =
            Server::new(Config { spawn_max: SPAWN_MAX, nodes, pmi12, pmi2, wrapper, ..Config::default() });
        server.add_group(GroupSpec { programs: vec![size], ..GroupSpec::default() });
        let mut session = Self {
            server,
            monitor: Monitor::new(),
            version,
            seq: 0,
            groups: vec![0],
            started: Vec::new(),
            starting: VecDeque::new(),
            waiting: BTreeMap::new(),
            requests: 0,
        };
        session.observe(EventKind::Launched { command: vec![], ranks: size, nodes });
        session.start_group(0);
        // All processes join now, unless the input makes them join in later steps.
        if head & 0x80 == 0 {
            session.procs(0).for_each(|p| session.join(p, true));
        }
        session
    }

    /// Returns the first finding about the server since the last call.
    fn finding(&mut self) -> Option<Finding> {
        self.monitor.take_findings().into_iter().find(|finding| finding.party == PartyKind::Server)
    }

    fn observe(&mut self, kind: EventKind) {
        self.monitor.observe(&Event::new(self.seq, kind));
        self.seq += 1;
    }

    /// Returns a process with the monitor's number for its group.
    fn observed(&self, p: Proc) -> Proc {
        Proc { group: self.groups[p.group as usize], ..p }
    }

    fn procs(&self, group: u32) -> impl Iterator<Item = Proc> + use<> {
        (0..self.server.size(group)).map(move |rank| Proc { group, rank })
    }

    fn start_group(&mut self, group: u32) {
        self.started.push(group);
        for p in self.procs(group) {
            let env = self.server.environment(p, "3");
            let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            self.observe(EventKind::Started { proc: self.observed(p), env, args: vec![], bad_fd: None });
        }
    }

    fn step(&mut self, [who, what, detail, how]: [u8; 4]) {
        let group = self.started[usize::from(who >> 4) % self.started.len()];
        let p = Proc { group, rank: u32::from(who & 15) % self.server.size(group) };
        match what {
            // The process closes its connection.
            0xf8.. => {
                self.observe(EventKind::ClosedByClient { proc: self.observed(p) });
                self.server.closed(p);
                self.act();
            }
            // The oldest pending spawn completes.
            0xf0.. => {
                if let Some((group, is_found)) = self.starting.pop_front() {
                    let codes: Vec<_> = self.procs(group).map(|_| i64::from(!is_found)).collect();
                    self.server.spawned(group, &codes);
                    self.act();
                }
            }
            // All processes of the group enter the barrier.
            0xe0.. => self.procs(group).for_each(|p| self.request(p, self.row("barrier"), 0, 0)),
            _ if !self.server.is_joined(p) => self.join(p, how & 0x20 == 0),
            _ => {
                let rows = protocol::documented_exchanges(self.framing()).iter();
                let rows: Vec<_> =
                    rows.filter(|row| !row.is_draft_only() && row.operation != "ring").collect();
                // Skip the first row, `init`, because the process has already joined.
                self.request(p, rows[1 + usize::from(what) % (rows.len() - 1)], detail, how);
            }
        }
        // The server has processed all of its input, so until it receives more, it can answer only a pending spawn request.
        let silent = self.waiting.iter().filter(|(_, all)| !all.is_empty() && !all.contains(&"spawn"));
        for proc in silent.map(|(p, _)| self.observed(*p)).collect::<Vec<_>>() {
            self.observe(EventKind::NoResponse { proc, proof: SilenceProof::Idle });
        }
    }

    fn framing(&self) -> Framing {
        self.version.dialect().framing()
    }

    fn row(&self, operation: &str) -> &'static Exchange {
        protocol::by_operation(self.framing(), operation).expect("an operation of every dialect")
    }

    /// Sends the init of a process. Also sends fullinit in PMI-2 or, if `is_usual` is true, the requests that usually follow in PMI-1.
    fn join(&mut self, p: Proc, is_usual: bool) {
        let (version, subversion) = (self.version.version, self.version.subversion);
        let offer = format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n");
        self.send(p, "init", offer.as_bytes(), 0);
        let next: &[&str] = match self.framing() {
            Framing::Frames => &["init"],
            Framing::Lines if is_usual => &["maxes", "kvsname"],
            Framing::Lines => &[],
        };
        next.iter().for_each(|operation| self.request(p, self.row(operation), 0, 0));
    }

    /// Makes a request, unless the process must first wait for a response. Some inputs make the request anyway.
    fn request(&mut self, p: Proc, row: &'static Exchange, detail: u8, how: u8) {
        let waiting = self.waiting.get(&p).map_or(&[][..], Vec::as_slice);
        let may_send = match self.framing() {
            Framing::Frames => true,
            Framing::Lines if self.version == Version::V1_2 => {
                !["spawn", "finalize"].contains(&row.operation)
                    && waiting.iter().all(|what| *what == "barrier")
            }
            Framing::Lines => false,
        };
        if !(self.server.is_joined(p) && (waiting.is_empty() || may_send)) && how < 0xe0 {
            return;
        }
        self.requests = self.requests.wrapping_add(1);
        let thrid = Some(self.requests).filter(|_| self.framing() == Framing::Frames);
        let mut message = match row.operation {
            "spawn" => spawn(self.framing(), detail, how, thrid),
            operation => {
                let fields: Vec<_> = row
                    .arguments
                    .iter()
                    .filter(|field| !field.numbered && field.since.is_none_or(|since| self.version >= since))
                    .filter(|field| !field.optional || (how & 0x10 != 0 && row.request != "fullinit"))
                    .map(|field| (field.name, value(p, field, detail)))
                    .collect();
                spell::request(self.framing(), operation, thrid, &fields)
            }
        };
        match self.framing() {
            Framing::Lines if row.is_block => {}
            Framing::Lines => message.push(b'\n'),
            Framing::Frames => message = framed(&message),
        }
        let others = self.waiting.values().filter(|all| !all.is_empty()).count().min(2) as u32;
        let before = self.seq;
        self.send(p, row.operation, &message, usize::from(how & 15) * 3);
        // The number of events shows whether the request was answered, and how many other requests were answered with it.
        let answers = (self.seq - before).min(7) as u32;
        // A hash of the name is the same in every run, unlike an address.
        let row =
            row.operation.bytes().fold(0, |hash: u32, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        counters::reached(row.wrapping_mul(31) ^ others << 4 ^ answers << 1 ^ u32::from(p.group > 0));
    }

    /// Sends a message in two writes. The first write has the length `cut`.
    fn send(&mut self, p: Proc, operation: &'static str, message: &[u8], cut: usize) {
        self.waiting.entry(p).or_default().push(operation);
        let (first, second) = message.split_at(cut.min(message.len()));
        for bytes in [first, second].into_iter().filter(|bytes| !bytes.is_empty()) {
            let kind = EventKind::ToServer { proc: self.observed(p), bytes: Bytes(bytes.to_vec()) };
            self.observe(kind);
            self.server.receive(p, bytes);
            self.act();
        }
    }

    /// Carries out the actions of the server.
    fn act(&mut self) {
        while let Some(action) = self.server.next_action() {
            match action {
                ServerAction::Send { to, bytes } => {
                    self.answered(to, &bytes);
                    self.observe(EventKind::FromServer { proc: self.observed(to), bytes: Bytes(bytes) });
                }
                ServerAction::Spawn { group, programs, .. } => {
                    self.groups.push(self.monitor.spawned());
                    let is_found = programs.iter().all(|program| program.execname != MISSING.as_bytes());
                    if is_found {
                        self.start_group(group);
                    }
                    self.starting.push_back((group, is_found));
                }
                ServerAction::Close { proc, .. } => {
                    self.observe(EventKind::ClosedByServer { proc: self.observed(proc) });
                }
                ServerAction::Abort { group, .. } => {
                    self.started.retain(|other| *other != group);
                    for p in self.procs(group) {
                        self.waiting.remove(&p);
                        self.observe(EventKind::ClosedByServer { proc: self.observed(p) });
                    }
                }
            }
        }
    }

    /// Removes the operation of a response from `waiting`.
    fn answered(&mut self, to: Proc, bytes: &[u8]) {
        let message = match bytes.strip_suffix(b"\n") {
            Some(line) => Decoded::new(Direction::FromServer, Framing::Lines, line),
            None => {
                Decoded::new(Direction::FromServer, Framing::Frames, bytes.get(HEADER..).unwrap_or_default())
            }
        };
        let waiting = self.waiting.entry(to).or_default();
        let is_it = |what: &&str| message.exchange().is_some_and(|row| row.operation == *what);
        if let Some(at) = waiting.iter().position(is_it) {
            waiting.remove(at);
        }
    }
}

/// Returns a value for a field of a request.
fn value(p: Proc, field: &Field, detail: u8) -> String {
    let (low, high) = (usize::from(detail & 7), usize::from(detail >> 3 & 7));
    match field.name {
        "key" => KEYS[low].to_owned(),
        "value" => match VALUES[high] {
            LONGEST => "v".repeat(1023),
            TOO_LONG => "v".repeat(1025),
            value => value.to_owned(),
        },
        "kvsname" | "jobid" => format!("kvs-{}", p.group + u32::from(detail >= 224)),
        "service" => SERVICES[low & 3].to_owned(),
        "port" => PORTS[high & 3].to_owned(),
        "group" => GROUPS[low].to_owned(),
        "infokeycount" => "0".to_owned(),
        _ if field.rule == Rule::Bool => "TRUE".to_owned(),
        _ => low.to_string(),
    }
}

/// Returns a spawn request for one or two programs, with a key-value pair for their keyval space.
fn spawn(framing: Framing, detail: u8, how: u8, thrid: Option<u8>) -> Vec<u8> {
    let sizes = [Some(detail & 3), (detail & 4 == 4).then_some(detail >> 3 & 3)];
    let totspawns = sizes.iter().flatten().count() as u64;
    let program = |(nprocs, spawnssofar): (u8, u64)| SpawnProgram {
        nprocs: nprocs.into(),
        execname: if how & 0x10 == 0 { b"x".to_vec() } else { MISSING.into() },
        totspawns,
        spawnssofar,
        args: vec![(0, b"y".to_vec())],
        ..SpawnProgram::default()
    };
    let mut programs: Vec<_> = sizes.into_iter().flatten().zip(1..).map(program).collect();
    let preput = (detail >= 128).then(|| (KEYS[usize::from(detail >> 4 & 7)].into(), b"pre".to_vec()));
    programs[0].preput.extend(preput);
    let mut out = Vec::new();
    match framing {
        Framing::Lines => programs.iter().for_each(|program| program.write_to(&mut out)),
        Framing::Frames => {
            let thrid = thrid.map(|thrid| thrid.to_string());
            SpawnRequest { programs }.write_body(thrid.as_deref().map(str::as_bytes), &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pmi_scenario::ast::Dialect;
    use pmi_scenario::requirement::RequirementSet;

    use super::*;
    use crate::replay::{files, folder};

    /// Faults of the server, each with the dialects in which the monitor must detect the fault in a stored session.
    const FAULTS: [(&str, &[Dialect]); 9] = [
        ("put-lost-while-others-wait", &Dialect::ALL),
        ("put-tenth-lost", &Dialect::ALL),
        ("put-into-all-groups", &Dialect::ALL),
        ("get-other-keys-value", &Dialect::ALL),
        ("names-group-only", &Dialect::ALL),
        ("barrier-across-groups", &Dialect::ALL),
        ("spawn-preput-lost", &Dialect::ALL),
        ("key-case-ignored", &[Dialect::Pmi1]),
        ("nodeattr-wait-at-once", &[Dialect::Pmi2]),
    ];

    #[test]
    fn monitor_detects_faults_with_stored_seeds() {
        let inputs = files(&folder("seeds/server_ops"));
        let inputs: Vec<_> = inputs.iter().map(|file| std::fs::read(file).unwrap()).collect();
        for (name, dialects) in FAULTS {
            let fault = pmi_faults::faults().find(|fault| fault.name == name).unwrap();
            let findings = inputs.iter().filter_map(|input| judge(input, fault.behaviour()));
            let cited: BTreeSet<String> = findings.map(|finding| finding.requirement).collect();
            let dialect = |id: &&str| RequirementSet::of(id).dialect().unwrap_or_default();
            let right: BTreeSet<_> =
                fault.breaks.iter().filter(|id| cited.contains(**id)).map(dialect).collect();
            assert!(dialects.iter().all(|dialect| right.contains(dialect)), "{name}: {cited:?}");
        }
    }
}
