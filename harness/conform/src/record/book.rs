//! Makes events of what the taps tell, and shows them to the monitor.
//!
//! What RFC 13 knows nothing of is settled here: who is who, which spawn request a process comes from, and whether a connection
//! that ends without finalize is the program's doing or that of whoever killed it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::tap::FIRST;
use super::told::{Head, Told};
use crate::event::{Bytes, Event, Exit, Proc, What};
use crate::judge::{Finding, Monitor, Party};

/// Most bytes of a session that are kept for the scenario; the log and the monitor get all.
const KEEP: usize = 64 << 20;

/// What an event costs besides its bytes.
const EVENT: usize = 128;

/// Most findings of a session.
const FINDINGS: usize = 1000;

/// Groups of processes that no spawn request that was read has asked for.
const UNKNOWN_GROUPS: u32 = 1_000_000;

/// Signals by which process managers and users end processes.
pub(super) const KILLERS: [i32; 5] = [1, 2, 9, 13, 15];

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
pub struct Book {
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
}

impl Book {
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
        }
    }

    /// Takes a datagram of a tap; the new events. What is none is ignored.
    pub fn datagram(&mut self, datagram: &[u8]) -> Vec<Event> {
        let mut new = Vec::new();
        if let Some((head, bytes)) = Head::read(datagram) {
            self.told(head, bytes, &mut new);
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
                Some(Exit::Signal(signal)) => KILLERS.contains(&signal),
                Some(Exit::Code(_)) => false,
                None => process.in_trouble,
            })
        };
        let excused = |f: &Finding| {
            f.party == Party::Client
                && f.proc.is_some_and(killed)
                && ["rfc13.abnf.c-finalize", "rfc13.wire.newline", "rfc13.abnf.c-spawn"]
                    .contains(&&*f.requirement)
        };
        self.findings.iter().filter(|f| !excused(f)).cloned().collect()
    }

    fn told(&mut self, head: Head, bytes: &[u8], new: &mut Vec<Event>) {
        if let Told::Started { folder, env, args, bad_fd } = head.what {
            return self.started(head.pid, &folder, env, args, bad_fd, new);
        }
        let Some(p) = self.procs.get(&head.pid).copied() else { return };
        match head.what {
            Told::Started { .. } => {}
            Told::Spawns { folder } => self.folders.entry(p).or_default().push(folder),
            Told::ToServer => {
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
            Told::FromServer => {
                self.messages += bytes.iter().filter(|b| **b == b'\n').count();
                self.event(What::FromServer { proc: p, bytes: Bytes(bytes.to_vec()) }, new);
                if bytes.starts_with(b"cmd=response_to_init")
                    && bytes.windows(15).any(|w| w == b" pmi_version=2 ")
                {
                    self.foreign.insert(p);
                }
            }
            Told::ClosedByClient => {
                let done = self.monitor.has_finalized(p);
                self.closed(p);
                self.event(What::ClosedByClient { proc: p }, new);
                self.trouble |= !done;
            }
            Told::ClosedByServer => {
                let done = self.monitor.has_finalized(p);
                self.closed(p);
                self.event(What::ClosedByServer { proc: p }, new);
                self.trouble |= !done;
            }
            Told::Ended(exit) => {
                let process = self.processes.entry(p).or_default();
                (process.ended, process.exit) = (true, Some(exit));
                self.event(What::Exited { proc: p, exit }, new);
                self.trouble |= exit != Exit::Code(0);
            }
        }
    }

    fn closed(&mut self, p: Proc) {
        let trouble = self.trouble;
        let process = self.processes.entry(p).or_default();
        if !std::mem::replace(&mut process.closed, true) {
            process.in_trouble = trouble;
        }
    }

    fn started(
        &mut self,
        pid: i32,
        folder: &str,
        env: BTreeMap<String, String>,
        args: Vec<Bytes>,
        bad_fd: Option<String>,
        new: &mut Vec<Event>,
    ) {
        let unknown = UNKNOWN_GROUPS + self.groups.len() as u32;
        let group = *self.groups.entry(folder.to_owned()).or_insert(unknown);
        let number = |name: &str| env.get(name).and_then(|v| v.parse::<u32>().ok());
        let free = |rank: &u32| !self.processes.contains_key(&Proc { group, rank: *rank });
        let told = number("PMI_RANK").filter(free);
        let rank = told.or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let p = Proc { group, rank };
        if self.seq == 0 {
            // What was asked for is in the launcher's own words; that all are told the same is judged.
            let ranks = number("PMI_SIZE").unwrap_or(0);
            self.event(What::Launched { command: self.command.clone(), ranks, nodes: 0 }, new);
        }
        self.procs.insert(pid, p);
        self.processes.insert(p, Process { pid, ..Process::default() });
        self.event(What::Started { proc: p, env, args, bad_fd }, new);
    }

    fn event(&mut self, what: What, new: &mut Vec<Event>) {
        let event = Event { seq: self.seq, time_us: self.start.elapsed().as_micros() as u64, what };
        self.seq += 1;
        let of_foreign = matches!(&event.what, What::ToServer { proc, .. } | What::FromServer { proc, .. }
            | What::ClosedByClient { proc } | What::ClosedByServer { proc } if self.foreign.contains(proc));
        if !of_foreign {
            self.monitor.observe(&event);
        }
        for finding in self.monitor.take_findings() {
            self.trouble |= finding.party == Party::Client;
            if self.findings.len() < FINDINGS {
                self.findings.push(finding);
            }
        }
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
        new.push(event);
    }
}
