//! Makes events of what the taps tell, and shows them to the monitor.
//!
//! What RFC 13 knows nothing of is settled here: who is who, which spawn request a process comes from, and whether a connection
//! that ends without finalize is the program's doing or that of whoever killed it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::notice::{Head, Notice};
use super::tap::FIRST;
use pmi_judge::crash::Cause;
use pmi_judge::event::{Bytes, Event, Exit, What};
use pmi_judge::{Finding, Monitor, Side};
use pmi_wire::Proc;

/// Most bytes of a session that are kept for the scenario; the log and the monitor get all.
const KEEP: usize = 64 << 20;

/// What an event costs besides its bytes.
const EVENT: usize = 128;

/// Most findings of a session.
const FINDINGS: usize = 1000;

/// Groups of processes that no spawn request that was read has asked for.
const UNKNOWN_GROUPS: u32 = 1_000_000;

/// A process of the session.
#[derive(Debug, Default)]
struct Process {
    /// Of its tap, and so for the process manager.
    pid: i32,
    closed: bool,
    ended: bool,
    /// How it ended; unknown if its tap was killed with it.
    exit: Option<Exit>,
    /// Something had gone wrong elsewhere when its connection ended: it may have been killed.
    in_trouble: bool,
}

/// The record of a session.
pub struct Recording {
    start: Instant,
    command: Vec<String>,
    monitor: Monitor,
    seq: u64,
    events: Vec<Event>,
    room: usize,
    whole: bool,
    findings: Vec<Finding>,
    procs: HashMap<i32, Proc>,
    processes: BTreeMap<Proc, Process>,
    /// The group that each folder of taps stands for.
    groups: HashMap<String, u32>,
    /// Folders whose spawn request is not complete.
    folders: HashMap<Proc, Vec<String>>,
    /// Processes that speak another protocol than PMI-1.
    foreign: HashSet<Proc>,
    /// Something went wrong, after which the process manager may end everything.
    trouble: bool,
    messages: usize,
    /// Processes whose connection has not come to PMI-1: what the process manager told under PMI_PORT.
    greetings: HashMap<i32, Greeting>,
}

/// What a process tells of itself before it starts.
#[derive(Debug)]
struct Start {
    /// Of its tap, which stands for its process group.
    folder: String,
    env: BTreeMap<String, String>,
    args: Vec<Bytes>,
    bad_fd: Option<String>,
}

/// The handshake over PMI_PORT, by which a process learns what others learn by their environment.
#[derive(Debug)]
struct Greeting {
    start: Start,
    /// Whether to the server, and what.
    pieces: Vec<(bool, Vec<u8>)>,
}

/// Longest handshake.
const GREETING: usize = 64 * 1024;

impl Greeting {
    /// The size of the process group, if it was told.
    fn size(&self) -> Option<u32> {
        let told: Vec<u8> = self.pieces.iter().filter(|p| !p.0).flat_map(|p| p.1.iter().copied()).collect();
        let text = String::from_utf8_lossy(&told).into_owned();
        text.split_ascii_whitespace().find_map(|word| word.strip_prefix("size=")?.parse().ok())
    }
}

impl Recording {
    /// For a session that this command starts.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            start: Instant::now(),
            command,
            monitor: Monitor::new(),
            seq: 0,
            events: Vec::new(),
            room: KEEP,
            whole: true,
            findings: Vec::new(),
            procs: HashMap::new(),
            processes: BTreeMap::new(),
            groups: HashMap::from([(FIRST.to_owned(), 0)]),
            folders: HashMap::new(),
            foreign: HashSet::new(),
            trouble: false,
            messages: 0,
            greetings: HashMap::new(),
        }
    }

    /// Takes a datagram of a tap; the new events. What is none is ignored.
    pub fn datagram(&mut self, datagram: &[u8]) -> Vec<Event> {
        let mut new = Vec::new();
        if let Some((head, bytes)) = Head::read(datagram) {
            self.take(head, bytes, &mut new);
        }
        new
    }

    /// The launcher has ended.
    pub fn job_exited(&mut self, exit: Exit) -> Vec<Event> {
        let mut new = Vec::new();
        self.event(What::JobExited { exit }, &mut new);
        new
    }

    /// The user wants the session to end.
    pub fn interrupted(&mut self) {
        self.trouble = true;
    }

    /// The processes that have started and have not said that they end, with their process ids.
    pub fn running(&self) -> Vec<(Proc, i32)> {
        self.processes.iter().filter(|(_, p)| !p.ended).map(|(p, process)| (*p, process.pid)).collect()
    }

    /// Number of processes, of process groups, and of messages from and to them.
    pub fn size(&self) -> (usize, usize, usize) {
        let groups: HashSet<u32> = self.processes.keys().map(|p| p.group).collect();
        (self.processes.len(), groups.len(), self.messages)
    }

    /// Whether any process was connected.
    pub fn is_connected(&self) -> bool {
        self.messages > 0
    }

    /// The first process that speaks another protocol than PMI-1.
    pub fn foreign(&self) -> Option<Proc> {
        self.foreign.iter().min().copied()
    }

    /// The session's events; `None` if there were too many to keep.
    pub fn events(&self) -> Option<&[Event]> {
        self.whole.then_some(&self.events)
    }

    /// The last events that were kept.
    pub fn last_events(&self, n: usize) -> &[Event] {
        &self.events[self.events.len().saturating_sub(n)..]
    }

    /// What either side broke, in order. A process that was killed has not left out its finalize.
    pub fn findings(&self) -> Vec<Finding> {
        let killed = |p: Proc| {
            self.processes.get(&p).is_some_and(|process| match process.exit {
                Some(Exit::Signal(signal)) => Cause::of(signal).is_from_outside(),
                Some(Exit::Code(_)) => false,
                None => process.in_trouble,
            })
        };
        let excused = |f: &Finding| {
            f.party == Side::Client
                && f.proc.is_some_and(killed)
                && ["rfc13.abnf.c-finalize", "rfc13.wire.newline", "rfc13.abnf.c-spawn"]
                    .contains(&&*f.requirement)
        };
        self.findings.iter().filter(|f| !excused(f)).cloned().collect()
    }

    fn take(&mut self, head: Head, bytes: &[u8], new: &mut Vec<Event>) {
        if let Notice::Started { folder, env, args, bad_fd } = head.what {
            let start = Start { folder, env, args, bad_fd };
            if start.bad_fd.is_some() && start.env.contains_key("PMI_PORT") {
                self.greetings.insert(head.pid, Greeting { start, pieces: Vec::new() });
                return;
            }
            let size = start.env.get("PMI_SIZE").and_then(|v| v.parse().ok());
            return self.started(head.pid, start, size, new);
        }
        if self.greeting(head.pid, &head.what, bytes, new) {
            return;
        }
        let Some(p) = self.procs.get(&head.pid).copied() else { return };
        match head.what {
            Notice::Started { .. } => {}
            Notice::Spawns { folder } => self.folders.entry(p).or_default().push(folder),
            Notice::ToServer => {
                self.messages += bytes.iter().filter(|b| **b == b'\n').count();
                let before = self.monitor.spawned();
                self.event(What::ToServer { proc: p, bytes: Bytes(bytes.to_vec()) }, new);
                if self.monitor.spawned() > before {
                    let group = self.monitor.spawned();
                    let folders = self.folders.remove(&p).unwrap_or_default();
                    self.groups.extend(folders.into_iter().map(|folder| (folder, group)));
                }
                self.trouble |= bytes.split(|b| *b == b'\n').any(|line| line.starts_with(b"cmd=abort"));
            }
            Notice::FromServer => {
                self.messages += bytes.iter().filter(|b| **b == b'\n').count();
                self.event(What::FromServer { proc: p, bytes: Bytes(bytes.to_vec()) }, new);
                if bytes.starts_with(b"cmd=response_to_init")
                    && bytes.windows(15).any(|w| w == b" pmi_version=2 ")
                {
                    self.foreign.insert(p);
                }
            }
            Notice::ClosedByClient => {
                let done = self.monitor.has_finalized(p);
                self.closed(p);
                self.event(What::ClosedByClient { proc: p }, new);
                self.trouble |= !done;
            }
            Notice::ClosedByServer => {
                let done = self.monitor.has_finalized(p);
                self.closed(p);
                self.event(What::ClosedByServer { proc: p }, new);
                self.trouble |= !done;
            }
            Notice::Ended(exit) => {
                let process = self.processes.entry(p).or_default();
                (process.ended, process.exit) = (true, Some(exit));
                self.event(What::Exited { proc: p, exit }, new);
                self.trouble |= exit != Exit::Code(0);
            }
        }
    }

    /// Whether this is still the handshake. Once it is over, the process has started as any other.
    fn greeting(&mut self, pid: i32, what: &Notice, bytes: &[u8], new: &mut Vec<Event>) -> bool {
        let Some(greeting) = self.greetings.get_mut(&pid) else { return false };
        let length: usize = greeting.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let goes_on = match what {
            Notice::ToServer => !bytes.starts_with(b"cmd=init ") && length + bytes.len() < GREETING,
            Notice::FromServer => length + bytes.len() < GREETING,
            _ => false,
        };
        if goes_on {
            greeting.pieces.push((*what == Notice::ToServer, bytes.to_vec()));
            return true;
        }
        if let Some(greeting) = self.greetings.remove(&pid) {
            let size = greeting.size();
            self.started(pid, greeting.start, size, new);
            let Some(proc) = self.procs.get(&pid).copied() else { return false };
            for (to_server, bytes) in greeting.pieces {
                let bytes = Bytes(bytes);
                let what =
                    if to_server { What::ToServer { proc, bytes } } else { What::FromServer { proc, bytes } };
                self.note(what, new);
            }
        }
        false
    }

    fn closed(&mut self, p: Proc) {
        let trouble = self.trouble;
        let process = self.processes.entry(p).or_default();
        if !std::mem::replace(&mut process.closed, true) {
            process.in_trouble = trouble;
        }
    }

    fn started(&mut self, pid: i32, start: Start, size: Option<u32>, new: &mut Vec<Event>) {
        let Start { folder, env, args, bad_fd } = start;
        let unknown = UNKNOWN_GROUPS + self.groups.len() as u32;
        let group = *self.groups.entry(folder).or_insert(unknown);
        let number = |name: &str| env.get(name).and_then(|v| v.parse::<u32>().ok());
        let free = |rank: &u32| !self.processes.contains_key(&Proc { group, rank: *rank });
        let told = number("PMI_RANK").or_else(|| number("PMI_ID")).filter(free);
        let rank = told.or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let p = Proc { group, rank };
        if self.seq == 0 {
            // What was asked for is in the launcher's own words; that all are told the same is judged.
            let ranks = size.unwrap_or(0);
            self.event(What::Launched { command: self.command.clone(), ranks, nodes: 0 }, new);
        }
        self.procs.insert(pid, p);
        self.processes.insert(p, Process { pid, ..Process::default() });
        self.event(What::Started { proc: p, env, args, bad_fd }, new);
    }

    /// Books an event and shows it to the monitor.
    fn event(&mut self, what: What, new: &mut Vec<Event>) {
        let of_foreign = matches!(&what, What::ToServer { proc, .. } | What::FromServer { proc, .. }
            | What::ClosedByClient { proc } | What::ClosedByServer { proc } if self.foreign.contains(proc));
        let event = self.note(what, new);
        if !of_foreign {
            self.monitor.observe(&event);
        }
        for finding in self.monitor.take_findings() {
            self.trouble |= finding.party == Side::Client;
            if self.findings.len() < FINDINGS {
                self.findings.push(finding);
            }
        }
    }

    /// Books what is no part of PMI-1.
    fn note(&mut self, what: What, new: &mut Vec<Event>) -> Event {
        let event = Event { time_us: self.start.elapsed().as_micros() as u64, ..Event::new(self.seq, what) };
        self.seq += 1;
        let bytes = match &event.what {
            What::ToServer { bytes, .. } | What::FromServer { bytes, .. } => bytes.0.len(),
            _ => 0,
        };
        match self.room.checked_sub(bytes + EVENT) {
            Some(room) if self.whole => {
                self.room = room;
                self.events.push(event.clone());
            }
            _ => self.whole = false,
        }
        new.push(event.clone());
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes of a group and what happens to them: `0 C: ...`, `1 S: ...`, `0 closed`, `1 ended 9`.
    fn recording(steps: &[&str]) -> Recording {
        let mut recording = Recording::new(vec!["pm".into()]);
        let start = |rank: &str, size: &str| {
            let pairs = [("PMI_FD", "3"), ("PMI_RANK", rank), ("PMI_SIZE", size)];
            let env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            Notice::Started { folder: FIRST.into(), env, args: Vec::new(), bad_fd: None }
        };
        let tell = |recording: &mut Recording, pid, what, bytes: &[u8]| {
            recording.datagram(&Head { pid, what }.datagram(bytes));
        };
        for rank in ["0", "1"] {
            tell(&mut recording, rank.parse().unwrap(), start(rank, "2"), b"");
        }
        for step in steps {
            let (rank, what) = step.split_once(' ').unwrap();
            let pid = rank.parse().unwrap();
            if let Some(line) = what.strip_prefix("C: ") {
                tell(&mut recording, pid, Notice::ToServer, format!("{line}\n").as_bytes());
            } else if let Some(line) = what.strip_prefix("S: ") {
                tell(&mut recording, pid, Notice::FromServer, format!("{line}\n").as_bytes());
            } else if what == "closed" {
                tell(&mut recording, pid, Notice::ClosedByClient, b"");
            } else {
                let exit = match what.split_once(' ').unwrap() {
                    ("killed", signal) => Exit::Signal(signal.parse().unwrap()),
                    (_, status) => Exit::Code(status.parse().unwrap()),
                };
                tell(&mut recording, pid, Notice::Ended(exit), b"");
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

    fn blamed(steps: &[&str]) -> Vec<(Side, String, u32)> {
        let recording = recording(&[&INIT[..], steps].concat());
        recording
            .findings()
            .into_iter()
            .map(|f| (f.party, f.requirement, f.proc.map_or(99, |p| p.rank)))
            .collect()
    }

    #[test]
    fn who_leaves_is_blamed_and_not_who_is_killed_for_it() {
        let finalize = "rfc13.abnf.c-finalize".to_owned();
        let first = vec![(Side::Client, finalize, 0)];
        assert_eq!(blamed(&["0 closed", "0 exit 3", "1 closed", "1 killed 9"]), first);
        assert_eq!(blamed(&["0 closed", "0 killed 11", "1 closed", "1 killed 15"]), first);
        // A tap that was killed with its program tells no status.
        assert_eq!(blamed(&["0 closed", "0 killed 11", "1 closed"]), first);
        // By itself, a moment later, for a reason of its own.
        assert_eq!(blamed(&["0 closed", "0 exit 3", "1 closed", "1 exit 4"]).len(), 2);
        assert_eq!(blamed(&["0 C: cmd=abort", "1 closed", "1 killed 9", "0 closed", "0 killed 9"]), []);
    }

    #[test]
    fn both_sides_are_judged() {
        let early = ["0 C: cmd=barrier_in", "0 S: cmd=barrier_out rc=0"];
        assert_eq!(blamed(&early), [(Side::Server, "rfc13.barrier.all-in-before-any-out".to_owned(), 0)]);
        let twice = ["1 C: cmd=get_maxes", "1 C: cmd=get_appnum"];
        assert_eq!(blamed(&twice), [(Side::Client, "rfc13.wire.lock-step".to_owned(), 1)]);
    }

    #[test]
    fn a_group_is_the_spawn_request_that_named_its_tap() {
        let mut recording = recording(&INIT);
        let mut tell = |pid, what, bytes: &[u8]| recording.datagram(&Head { pid, what }.datagram(bytes));
        let block = b"mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
        for folder in ["by-1-1", "by-1-2"] {
            tell(1, Notice::Spawns { folder: folder.into() }, b"");
            tell(1, Notice::ToServer, block);
        }
        for (pid, folder) in [(7, "by-1-2"), (8, "by-1-1")] {
            let env = [("PMI_RANK".to_owned(), "0".to_owned())].into();
            let start = Notice::Started { folder: folder.into(), env, args: Vec::new(), bad_fd: None };
            tell(pid, start, b"");
        }
        let groups: Vec<u32> = recording.running().iter().map(|(p, _)| p.group).collect();
        assert_eq!(groups, [0, 0, 1, 2]);
        assert_eq!(recording.running()[3].1, 7);
    }
}
