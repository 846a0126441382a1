//! Turns the facts from the taps into events, and passes the events to the judge. Determines the rank of each process, and the spawn
//! request that started the process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::carrier::{FactKind, ProcessFact};
use super::tap::FIRST_FOLDER;
use super::tap::notice::Start;
use pmi_judge::event::{AbandonReason, Bytes, Event, EventKind, Exit, HangProof};
use pmi_judge::session::SessionJudge;
use pmi_wire::port::{Greeting, LINES, MAX_RESPONSE};
use pmi_wire::{Direction, Proc};

/// Maximum number of bytes of a session that are kept for the scenario. The log and the judge receive all bytes.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// Number of bytes that are counted for each event, in addition to the bytes of its message.
const EVENT_SIZE: usize = 128;

/// Number of the first process group that no recorded spawn request has started.
const FIRST_UNKNOWN_GROUP: u32 = 1_000_000;

/// The events of a session so far, and the judge that reads them.
#[derive(Default)]
pub struct Recording {
    command: Vec<String>,
    judge: SessionJudge,
    seq: u64,
    events: Vec<Event>,
    remaining_bytes: usize,
    is_complete: bool,
    procs: HashMap<i32, Proc>,
    /// All processes. The value is true if the process has ended.
    processes: BTreeMap<Proc, bool>,
    /// The process group of each tap folder.
    groups: HashMap<String, u32>,
    /// For each process with an incomplete spawn request, the folders of the taps in the request.
    folders: HashMap<Proc, Vec<String>>,
    /// Processes whose initack has not been answered completely, by process id.
    identifying: HashMap<i32, IdentifyingProcess>,
}

impl Start {
    /// Returns whether the process connects through PMI_PORT. Its first message is then an initack.
    fn is_by_port(&self) -> bool {
        self.env.contains_key("PMI_PORT") && (self.bad_fd.is_some() || !self.env.contains_key("PMI_FD"))
    }
}

/// A process whose initack has not been answered completely. The response contains the data that other processes get from their
/// environment.
#[derive(Debug)]
struct IdentifyingProcess {
    start: Start,
    initack: Vec<u8>,
    response: Vec<u8>,
    /// Bytes that the process sent after its initack, before the response.
    early_bytes: Vec<u8>,
}

impl IdentifyingProcess {
    /// Stores the bytes that belong to the initack or to its response. Returns the remaining bytes.
    fn take<'a>(&mut self, direction: Direction, bytes: &'a [u8]) -> &'a [u8] {
        let (text, lines) = match direction {
            // A process that sends its init no longer waits for the response to its initack, so the bytes do not belong to the initack.
            Direction::ToServer if bytes.starts_with(b"cmd=init ") => return bytes,
            Direction::ToServer => (&mut self.initack, 1),
            Direction::FromServer => (&mut self.response, LINES),
        };
        let missing = lines.saturating_sub(text.iter().filter(|b| **b == b'\n').count());
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
        let end = match missing {
            0 => 0,
            n => ends.into_iter().nth(n - 1).unwrap_or(bytes.len()),
        };
        let (ours, rest) = bytes.split_at(end.min(MAX_RESPONSE.saturating_sub(text.len())));
        text.extend_from_slice(ours);
        rest
    }

    fn is_complete(&self) -> bool {
        self.response.iter().filter(|b| **b == b'\n').count() >= LINES
    }
}

impl Recording {
    /// Creates the recording of a session that this command starts.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            remaining_bytes: MAX_KEPT_BYTES,
            is_complete: true,
            groups: HashMap::from([(FIRST_FOLDER.to_owned(), 0)]),
            ..Self::default()
        }
    }

    /// Handles a fact about a process, and passes the resulting events to `sink`.
    pub(crate) fn take(&mut self, fact: ProcessFact, sink: &mut dyn FnMut(&Event)) {
        let ProcessFact { at, pid, kind: fact } = fact;
        let mut context = EventContext { at, sink };
        match fact {
            FactKind::Started(start) if start.is_by_port() => {
                let greeted = IdentifyingProcess {
                    start,
                    initack: Vec::new(),
                    response: Vec::new(),
                    early_bytes: Vec::new(),
                };
                self.identifying.insert(pid, greeted);
            }
            FactKind::Started(start) => self.started(start, None, &mut context),
            fact => self.process_fact(pid, fact, &mut context),
        }
    }

    /// Records that the launcher has ended, and that the processes whose ids are in `left` are still running.
    pub(crate) fn job_exited(
        &mut self,
        at: Duration,
        exit: Exit,
        left: &[i32],
        sink: &mut dyn FnMut(&Event),
    ) {
        let mut context = EventContext { at, sink };
        self.event(EventKind::JobExited { exit }, &mut context);
        let mut procs: Vec<Proc> = left.iter().filter_map(|pid| self.procs.get(pid).copied()).collect();
        procs.sort_unstable();
        if !procs.is_empty() {
            self.event(EventKind::OutlivedLauncher { procs }, &mut context);
        }
    }

    /// Records that a process of the process manager was killed by a signal.
    pub(crate) fn crashed(&mut self, at: Duration, name: String, signal: i32, sink: &mut dyn FnMut(&Event)) {
        self.event(EventKind::Crashed { name, signal }, &mut EventContext { at, sink });
    }

    /// Records that the user has interrupted the session.
    pub(crate) fn interrupted(&mut self, at: Duration, sink: &mut dyn FnMut(&Event)) {
        self.event(EventKind::Abandoned(AbandonReason::Interrupted), &mut EventContext { at, sink });
    }

    /// Records that the session has exceeded its time limit.
    pub(crate) fn hung(&mut self, at: Duration, sink: &mut dyn FnMut(&Event)) {
        let procs = self.processes.iter().filter(|(_, ended)| !**ended).map(|(p, _)| *p).collect();
        self.event(
            EventKind::StillRunning { procs, proof: HangProof::Endless },
            &mut EventContext { at, sink },
        );
    }

    /// Returns the number of processes, the number of process groups, and the number of messages in both directions.
    pub fn size(&self) -> (usize, usize, usize) {
        let groups: HashSet<u32> = self.processes.keys().map(|p| p.group).collect();
        (self.processes.len(), groups.len(), self.judge.messages())
    }

    /// Returns whether any process sent or received a message.
    pub fn is_connected(&self) -> bool {
        self.judge.messages() > 0
    }

    /// Returns the judge, which has read all events so far.
    pub fn judge(&self) -> &SessionJudge {
        &self.judge
    }

    /// Returns the events of the session; `None` if they exceeded `MAX_KEPT_BYTES`.
    pub fn events(&self) -> Option<&[Event]> {
        self.is_complete.then_some(&self.events)
    }

    fn process_fact(&mut self, pid: i32, fact: FactKind, context: &mut EventContext<'_>) {
        let Some(fact) = self.greeted(pid, fact, context) else { return };
        let Some(proc) = self.procs.get(&pid).copied() else { return };
        match fact {
            FactKind::Started(_) => {}
            FactKind::NotStarted(why) => self.event(EventKind::NotStarted { proc, why }, context),
            FactKind::Spawns(folder) => self.folders.entry(proc).or_default().push(folder),
            FactKind::Carried(Direction::ToServer, bytes) => {
                let before = self.judge.spawned();
                self.event(EventKind::ToServer { proc, bytes: Bytes(bytes) }, context);
                if self.judge.spawned() > before {
                    let group = self.judge.spawned();
                    let folders = self.folders.remove(&proc).unwrap_or_default();
                    self.groups.extend(folders.into_iter().map(|folder| (folder, group)));
                }
            }
            FactKind::Carried(Direction::FromServer, bytes) => {
                self.event(EventKind::FromServer { proc, bytes: Bytes(bytes) }, context);
            }
            FactKind::LeftUnread => self.event(EventKind::LeftUnread { proc }, context),
            FactKind::ClosedByClient => self.event(EventKind::ClosedByClient { proc }, context),
            FactKind::ClosedByServer => self.event(EventKind::ClosedByServer { proc }, context),
            FactKind::Ended(exit) => {
                self.processes.insert(proc, true);
                self.event(EventKind::Exited { proc, exit }, context);
            }
        }
    }

    /// Handles a fact about a process whose initack may not have been answered completely. When the response is complete, records the start
    /// of the process. Returns the part of the fact that follows the response, if any.
    fn greeted(&mut self, pid: i32, fact: FactKind, context: &mut EventContext<'_>) -> Option<FactKind> {
        let Some(greeted) = self.identifying.get_mut(&pid) else { return Some(fact) };
        let (direction, bytes) = match &fact {
            FactKind::Carried(direction, bytes) => (Some(*direction), bytes.as_slice()),
            _ => (None, &[][..]),
        };
        let rest = direction.map_or(bytes, |direction| greeted.take(direction, bytes));
        // A process that has sent its init in a separate message no longer waits for the response to initack.
        let sends_init = rest.len() == bytes.len() && rest.starts_with(b"cmd=init ");
        let waits = !greeted.is_complete() && !sends_init;
        match direction {
            Some(Direction::ToServer) if waits && greeted.early_bytes.len() + rest.len() <= MAX_RESPONSE => {
                greeted.early_bytes.extend_from_slice(rest);
                return None;
            }
            Some(Direction::FromServer) if waits && rest.is_empty() => return None,
            _ => {}
        }
        let rest = rest.to_vec();
        if let Some(IdentifyingProcess { start, initack, response, early_bytes }) =
            self.identifying.remove(&pid)
        {
            self.started(start, Some((initack, response)), context);
            if let Some(proc) = self.procs.get(&pid).copied().filter(|_| !early_bytes.is_empty()) {
                self.event(EventKind::ToServer { proc, bytes: Bytes(early_bytes) }, context);
            }
        }
        match direction {
            Some(direction) => (!rest.is_empty()).then_some(FactKind::Carried(direction, rest)),
            None => Some(fact),
        }
    }

    fn started(&mut self, start: Start, greeted: Option<(Vec<u8>, Vec<u8>)>, context: &mut EventContext<'_>) {
        let Start { pid, folder, env, args, bad_fd } = start;
        let unknown = FIRST_UNKNOWN_GROUP + self.groups.len() as u32;
        let group = *self.groups.entry(folder).or_insert(unknown);
        let number = |name: &str| env.get(name).and_then(|v| v.parse::<u32>().ok());
        let free = |rank: &u32| !self.processes.contains_key(&Proc { group, rank: *rank });
        let greeting = greeted.as_ref().and_then(|(_, received)| Greeting::parse(received).ok());
        let (size, rank) = match greeting {
            Some(greeting) => (Some(greeting.size), Some(greeting.rank)),
            None => (number("PMI_SIZE"), number("PMI_RANK").or_else(|| number("PMI_ID"))),
        };
        let rank = rank.filter(free).or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let p = Proc { group, rank };
        if self.seq == 0 {
            // Only the launcher can interpret its options, so the requested number of ranks is unknown. The number that the first process
            // received is recorded instead. The judge checks that all ranks received the same number.
            let ranks = size.unwrap_or(0);
            self.event(EventKind::Launched { command: self.command.clone(), ranks, nodes: 0 }, context);
        }
        self.procs.insert(pid, p);
        self.processes.insert(p, false);
        if let Some((initack, response)) = greeted.filter(|(initack, _)| !initack.is_empty()) {
            self.event(
                EventKind::Greeted { proc: p, initack: Bytes(initack), response: Bytes(response) },
                context,
            );
        }
        self.event(EventKind::Started { proc: p, env, args, bad_fd }, context);
    }

    /// Records an event, and passes it to the judge and the sink.
    fn event(&mut self, kind: EventKind, context: &mut EventContext<'_>) {
        let event = Event { time_us: context.at.as_micros() as u64, ..Event::new(self.seq, kind) };
        self.seq += 1;
        let bytes = match &event.kind {
            EventKind::ToServer { bytes, .. } | EventKind::FromServer { bytes, .. } => bytes.0.len(),
            _ => 0,
        };
        let event = self.judge.observe(event);
        (context.sink)(event);
        match self.remaining_bytes.checked_sub(bytes + EVENT_SIZE) {
            Some(room) if self.is_complete => {
                self.remaining_bytes = room;
                self.events.push(event.clone());
            }
            _ => self.is_complete = false,
        }
    }
}

/// The time of a fact, and the sink for its events.
struct EventContext<'a> {
    at: Duration,
    sink: &'a mut dyn FnMut(&Event),
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::PartyKind;

    fn add_fact(recording: &mut Recording, pid: i32, fact: FactKind) {
        recording.take(ProcessFact { at: Duration::ZERO, pid, kind: fact }, &mut |_| {});
    }

    fn start(pid: i32, folder: &str, env: &[(&str, &str)]) -> FactKind {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        FactKind::Started(Start { pid, folder: folder.into(), env, args: Vec::new(), bad_fd: None })
    }

    fn carried(direction: Direction, text: &str) -> FactKind {
        FactKind::Carried(direction, text.as_bytes().to_vec())
    }

    /// Returns a recording of a group of two processes. Facts are written as `0 C: ...`, `1 S: ...`, `0 closed` or `1 killed 9`.
    fn recording(steps: &[&str]) -> Recording {
        let mut recording = Recording::new(vec!["pm".into()]);
        for rank in ["0", "1"] {
            let env = [("PMI_FD", "3"), ("PMI_RANK", rank), ("PMI_SIZE", "2")];
            add_fact(&mut recording, rank.parse().unwrap(), start(rank.parse().unwrap(), FIRST_FOLDER, &env));
        }
        for step in steps {
            let (rank, what) = step.split_once(' ').unwrap();
            let pid = rank.parse().unwrap();
            if let Some(line) = what.strip_prefix("C: ") {
                add_fact(&mut recording, pid, carried(Direction::ToServer, &format!("{line}\n")));
            } else if let Some(line) = what.strip_prefix("S: ") {
                add_fact(&mut recording, pid, carried(Direction::FromServer, &format!("{line}\n")));
            } else if what == "unread" {
                add_fact(&mut recording, pid, FactKind::LeftUnread);
            } else if what == "closed" {
                add_fact(&mut recording, pid, FactKind::ClosedByClient);
            } else {
                let exit = match what.split_once(' ').unwrap() {
                    ("killed", signal) => Exit::Signal(signal.parse().unwrap()),
                    (_, status) => Exit::Code(status.parse().unwrap()),
                };
                add_fact(&mut recording, pid, FactKind::Ended(exit));
            }
        }
        recording
    }

    const INIT: [&str; 4] = [
        "0 C: cmd=init pmi_version=1 pmi_subversion=1",
        "0 S: cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
        "1 C: cmd=init pmi_version=1 pmi_subversion=1",
        "1 S: cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    ];

    fn blamed(steps: &[&str]) -> Vec<(PartyKind, String, u32)> {
        let recording = recording(&[&INIT[..], steps].concat());
        let findings = recording.judge().findings();
        findings.into_iter().map(|f| (f.party, f.requirement, f.proc.map_or(99, |p| p.rank))).collect()
    }

    /// RFC 13, wire protocol: a client reads the response to a request before it continues. A client breaks this requirement if it closes
    /// its end before it has read the response, and then exits successfully.
    #[test]
    fn blames_client_that_closes_before_finalize_ack() {
        let (request, response) = ("0 C: cmd=finalize", "0 S: cmd=finalize_ack rc=0");
        let found = [(PartyKind::Client, "rfc13.wire.lock-step".to_owned(), 0)];
        assert_eq!(blamed(&[request, "0 closed", "0 exit 0"]), found);
        assert_eq!(blamed(&[request, "0 closed", response, "0 exit 0"]), found);
        assert_eq!(blamed(&[request, response, "0 unread", "0 closed", "0 exit 0"]), found);
        assert_eq!(blamed(&[request, response, "0 closed", "0 exit 0"]), []);
        // A client that fails, is killed, or receives an unrequested message is not blamed.
        assert_eq!(blamed(&[request, "0 closed", "0 exit 1"]), []);
        assert_eq!(blamed(&[request, "0 closed", "0 killed 9"]), []);
        let unasked = [(PartyKind::Server, "rfc13.wire.lock-step".to_owned(), 0)];
        assert_eq!(blamed(&[request, response, response, "0 unread", "0 closed", "0 exit 0"]), unasked);
    }

    #[test]
    fn blames_first_process_that_exits_without_finalize() {
        let finalize = "rfc13.abnf.c-finalize".to_owned();
        let first = vec![(PartyKind::Client, finalize, 0)];
        assert_eq!(blamed(&["0 closed", "0 exit 3", "1 closed", "1 killed 9"]), first);
        assert_eq!(blamed(&["0 closed", "0 killed 11", "1 closed", "1 killed 15"]), first);
        // A tap that was killed with its program reports no status.
        assert_eq!(blamed(&["0 closed", "0 killed 11", "1 closed"]), first);
        // The second process ends a moment later, for a different reason.
        assert_eq!(blamed(&["0 closed", "0 exit 3", "1 closed", "1 exit 4"]).len(), 2);
        assert_eq!(blamed(&["0 C: cmd=abort", "1 closed", "1 killed 9", "0 closed", "0 killed 9"]), []);
    }

    /// Returns the events and the findings of a process with PMI_PORT. Each of the `pieces` is sent by the process (true) or by the process
    /// manager (false).
    fn by_port(pieces: &[(bool, &str)]) -> (Vec<String>, Vec<String>) {
        let mut recording = Recording::new(vec!["pm".into()]);
        add_fact(&mut recording, 1, start(1, FIRST_FOLDER, &[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")]));
        for (is_request, text) in pieces {
            let direction = if *is_request { Direction::ToServer } else { Direction::FromServer };
            add_fact(&mut recording, 1, carried(direction, text));
        }
        let kind = |event: &Event| match &event.kind {
            EventKind::Greeted { response: received, .. } => format!("greeted in {} bytes", received.0.len()),
            EventKind::ToServer { bytes, .. } => format!("to server: {}", bytes.0.escape_ascii()),
            EventKind::FromServer { bytes, .. } => format!("from server: {}", bytes.0.escape_ascii()),
            EventKind::Started { .. } => "started".to_owned(),
            _ => "other".to_owned(),
        };
        let findings = recording.judge().findings().into_iter().map(|f| f.requirement).collect();
        (recording.events().unwrap().iter().skip(1).map(kind).collect(), findings)
    }

    #[test]
    fn initack_is_recorded_as_a_separate_event() {
        let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
        let joined = format!("cmd=initack pmiid=0\n{init}");
        let greeting = Greeting { size: 1, rank: 0 }.lines(false);
        let (head, tail) = greeting.split_at(9);
        let answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        let rest = format!("{tail}{answer}");
        // The response arrives in pieces; its last piece arrives together with the next message.
        let separate = [(true, "cmd=initack pmiid=0\n"), (false, head), (false, rest.as_str())];
        let (events, findings) = by_port(&separate);
        assert_eq!(events[..2], [format!("greeted in {} bytes", greeting.len()), "started".to_owned()]);
        assert!(events[2].starts_with("from server: cmd=response_to_init"), "{events:?}");
        assert_ne!(findings, Vec::<String>::new(), "the response was not requested");
        // A message that is sent early is recorded after the response to the initack.
        let whole = format!("{greeting}{answer}");
        let (events, findings) = by_port(&[(true, joined.as_str()), (false, whole.as_str())]);
        assert!(events[2].starts_with("to server: cmd=init "), "{events:?}");
        assert!(events[3].starts_with("from server: cmd=response_to_init"), "{events:?}");
        assert_eq!(findings, Vec::<String>::new());
        // This response is too short: after a single line, MPICH's clients wait forever for the next one.
        let short = [(true, "cmd=initack pmiid=0\n"), (false, "cmd=initack rc=0\n"), (true, init)];
        let (events, findings) = by_port(&short);
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(findings, ["pmi-port.lines"]);
    }

    #[test]
    fn recording_is_judged_for_both_parties() {
        let early = ["0 C: cmd=barrier_in", "0 S: cmd=barrier_out rc=0"];
        assert_eq!(
            blamed(&early),
            [(PartyKind::Server, "rfc13.barrier.all-in-before-any-out".to_owned(), 0)]
        );
        let twice = ["1 C: cmd=get_maxes", "1 C: cmd=get_appnum"];
        assert_eq!(blamed(&twice), [(PartyKind::Client, "rfc13.wire.lock-step".to_owned(), 1)]);
    }

    #[test]
    fn tap_folder_links_a_group_to_its_spawn_request() {
        let mut recording = recording(&INIT);
        let block = "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
        for folder in ["by-1-1", "by-1-2"] {
            add_fact(&mut recording, 1, FactKind::Spawns(folder.into()));
            add_fact(&mut recording, 1, carried(Direction::ToServer, block));
        }
        for (pid, folder) in [(7, "by-1-2"), (8, "by-1-1")] {
            add_fact(&mut recording, pid, start(pid, folder, &[("PMI_RANK", "0")]));
        }
        let of = |pid| recording.procs[&pid].group;
        assert_eq!([of(0), of(1), of(8), of(7)], [0, 0, 1, 2]);
    }
}
