//! Makes events of what the taps tell, and shows them to the judge: who is who, and which spawn request a process comes from.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::notice::{Head, Notice};
use super::tap::FIRST;
use pmi_judge::event::{Abandoned, Bytes, Event, Exit, HangProof, What};
use pmi_judge::session::SessionJudge;
use pmi_wire::port::{Greeting, LINES, LONGEST};
use pmi_wire::{Direction, Proc};

/// Most bytes of a session that are kept for the scenario; the log and the judge get all.
const KEEP: usize = 64 << 20;

/// What an event costs besides its bytes.
const EVENT: usize = 128;

/// Groups of processes that no spawn request that was read has asked for.
const UNKNOWN_GROUPS: u32 = 1_000_000;

/// A process of the session.
#[derive(Debug, Default)]
struct Process {
    /// Of its tap, and so for the process manager.
    pid: i32,
    ended: bool,
}

/// The record of a session.
pub struct Recording {
    start: Instant,
    command: Vec<String>,
    judge: SessionJudge,
    seq: u64,
    events: Vec<Event>,
    room: usize,
    whole: bool,
    procs: HashMap<i32, Proc>,
    processes: BTreeMap<Proc, Process>,
    /// The group that each folder of taps stands for.
    groups: HashMap<String, u32>,
    /// Folders whose spawn request is not complete.
    folders: HashMap<Proc, Vec<String>>,
    /// Processes that are at their initack.
    greetings: HashMap<i32, Greeted>,
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

impl Start {
    /// Whether the process makes its connection by PMI_PORT, and so begins with initack.
    fn is_by_port(&self) -> bool {
        self.env.contains_key("PMI_PORT") && (self.bad_fd.is_some() || !self.env.contains_key("PMI_FD"))
    }
}

/// A process that is at its initack, by which it learns what others learn by their environment.
#[derive(Debug)]
struct Greeted {
    start: Start,
    said: Vec<u8>,
    told: Vec<u8>,
    /// What the process has said behind its initack, before that was answered.
    ahead: Vec<u8>,
}

impl Greeted {
    /// Takes what still belongs to the initack and its answer; the rest comes back.
    fn take<'a>(&mut self, direction: Direction, bytes: &'a [u8]) -> &'a [u8] {
        let (text, lines) = match direction {
            // Who goes on has had its answer.
            Direction::ToServer if bytes.starts_with(b"cmd=init ") => return bytes,
            Direction::ToServer => (&mut self.said, 1),
            Direction::FromServer => (&mut self.told, LINES),
        };
        let missing = lines.saturating_sub(text.iter().filter(|b| **b == b'\n').count());
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
        let end = match missing {
            0 => 0,
            n => ends.into_iter().nth(n - 1).unwrap_or(bytes.len()),
        };
        let (ours, rest) = bytes.split_at(end.min(LONGEST.saturating_sub(text.len())));
        text.extend_from_slice(ours);
        rest
    }

    fn is_complete(&self) -> bool {
        self.told.iter().filter(|b| **b == b'\n').count() >= LINES
    }
}

impl Recording {
    /// For a session that this command starts.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            start: Instant::now(),
            command,
            judge: SessionJudge::default(),
            seq: 0,
            events: Vec::new(),
            room: KEEP,
            whole: true,
            procs: HashMap::new(),
            processes: BTreeMap::new(),
            groups: HashMap::from([(FIRST.to_owned(), 0)]),
            folders: HashMap::new(),
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

    /// The launcher has ended, and these processes have not.
    pub fn job_exited(&mut self, exit: Exit, outlived: Vec<Proc>) -> Vec<Event> {
        let mut new = Vec::new();
        self.event(What::JobExited { exit }, &mut new);
        if !outlived.is_empty() {
            self.event(What::Outlived { procs: outlived }, &mut new);
        }
        new
    }

    /// The user wants the session to end.
    pub fn interrupted(&mut self) -> Vec<Event> {
        let mut new = Vec::new();
        self.event(What::Abandoned(Abandoned::Interrupted), &mut new);
        new
    }

    /// The time is up.
    pub fn hung(&mut self) -> Vec<Event> {
        let (mut new, procs) = (Vec::new(), self.running().into_iter().map(|(p, _)| p).collect());
        self.event(What::StillRunning { procs, proof: HangProof::Endless }, &mut new);
        new
    }

    /// The processes that have started and have not said that they end, with their process ids.
    pub fn running(&self) -> Vec<(Proc, i32)> {
        self.processes.iter().filter(|(_, p)| !p.ended).map(|(p, process)| (*p, process.pid)).collect()
    }

    /// Number of processes, of process groups, and of messages from and to them.
    pub fn size(&self) -> (usize, usize, usize) {
        let groups: HashSet<u32> = self.processes.keys().map(|p| p.group).collect();
        (self.processes.len(), groups.len(), self.judge.messages())
    }

    /// Whether any process was connected.
    pub fn is_connected(&self) -> bool {
        self.judge.messages() > 0
    }

    /// What is known of it by the events so far.
    pub fn judge(&self) -> &SessionJudge {
        &self.judge
    }

    /// The session's events; `None` if there were too many to keep.
    pub fn events(&self) -> Option<&[Event]> {
        self.whole.then_some(&self.events)
    }

    fn take(&mut self, head: Head, bytes: &[u8], new: &mut Vec<Event>) {
        if let Notice::Started { folder, env, args, bad_fd } = head.what {
            let start = Start { folder, env, args, bad_fd };
            if start.is_by_port() {
                self.greetings.insert(
                    head.pid,
                    Greeted { start, said: Vec::new(), told: Vec::new(), ahead: Vec::new() },
                );
                return;
            }
            return self.started(head.pid, start, None, new);
        }
        let bytes = self.greeted(head.pid, &head.what, bytes, new);
        if bytes.is_empty() && matches!(head.what, Notice::ToServer | Notice::FromServer) {
            return;
        }
        let Some(proc) = self.procs.get(&head.pid).copied() else { return };
        match head.what {
            Notice::Started { .. } => {}
            Notice::Spawns { folder } => self.folders.entry(proc).or_default().push(folder),
            Notice::ToServer => {
                let before = self.judge.spawned();
                self.event(What::ToServer { proc, bytes: Bytes(bytes.to_vec()) }, new);
                if self.judge.spawned() > before {
                    let group = self.judge.spawned();
                    let folders = self.folders.remove(&proc).unwrap_or_default();
                    self.groups.extend(folders.into_iter().map(|folder| (folder, group)));
                }
            }
            Notice::FromServer => self.event(What::FromServer { proc, bytes: Bytes(bytes.to_vec()) }, new),
            Notice::ClosedByClient => self.event(What::ClosedByClient { proc }, new),
            Notice::ClosedByServer => self.event(What::ClosedByServer { proc }, new),
            Notice::Ended(exit) => {
                self.processes.entry(proc).or_default().ended = true;
                self.event(What::Exited { proc, exit }, new);
            }
        }
    }

    /// What of this comes behind the initack and its answer. Once they are over, the process has started as any other.
    fn greeted<'a>(&mut self, pid: i32, what: &Notice, bytes: &'a [u8], new: &mut Vec<Event>) -> &'a [u8] {
        let Some(greeted) = self.greetings.get_mut(&pid) else { return bytes };
        let rest = match what {
            Notice::ToServer => greeted.take(Direction::ToServer, bytes),
            Notice::FromServer => greeted.take(Direction::FromServer, bytes),
            _ => bytes,
        };
        // Who offers a version in a message of its own does without an answer.
        let goes_on = rest.len() == bytes.len() && rest.starts_with(b"cmd=init ");
        let waits = !greeted.is_complete() && !goes_on;
        match what {
            Notice::ToServer if waits && greeted.ahead.len() + rest.len() <= LONGEST => {
                greeted.ahead.extend_from_slice(rest);
                return &[];
            }
            Notice::FromServer if waits && rest.is_empty() => return &[],
            _ => {}
        }
        if let Some(Greeted { start, said, told, ahead }) = self.greetings.remove(&pid) {
            self.started(pid, start, Some((said, told)), new);
            if let Some(proc) = self.procs.get(&pid).copied().filter(|_| !ahead.is_empty()) {
                self.event(What::ToServer { proc, bytes: Bytes(ahead) }, new);
            }
        }
        rest
    }

    fn started(&mut self, pid: i32, start: Start, greeted: Option<(Vec<u8>, Vec<u8>)>, new: &mut Vec<Event>) {
        let Start { folder, env, args, bad_fd } = start;
        let unknown = UNKNOWN_GROUPS + self.groups.len() as u32;
        let group = *self.groups.entry(folder).or_insert(unknown);
        let number = |name: &str| env.get(name).and_then(|v| v.parse::<u32>().ok());
        let free = |rank: &u32| !self.processes.contains_key(&Proc { group, rank: *rank });
        let greeting = greeted.as_ref().and_then(|(_, told)| Greeting::parse(told).ok());
        let (size, told) = match greeting {
            Some(greeting) => (Some(greeting.size), Some(greeting.rank)),
            None => (number("PMI_SIZE"), number("PMI_RANK").or_else(|| number("PMI_ID"))),
        };
        let told = told.filter(free);
        let rank = told.or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let p = Proc { group, rank };
        if self.seq == 0 {
            // What was asked for is in the launcher's own words; that all are told the same is judged.
            let ranks = size.unwrap_or(0);
            self.event(What::Launched { command: self.command.clone(), ranks, nodes: 0 }, new);
        }
        self.procs.insert(pid, p);
        self.processes.insert(p, Process { pid, ended: false });
        if let Some((said, told)) = greeted.filter(|(said, _)| !said.is_empty()) {
            self.event(What::Greeted { proc: p, said: Bytes(said), told: Bytes(told) }, new);
        }
        self.event(What::Started { proc: p, env, args, bad_fd }, new);
    }

    /// Books an event and shows it to the judge.
    fn event(&mut self, what: What, new: &mut Vec<Event>) {
        let event = Event { time_us: self.start.elapsed().as_micros() as u64, ..Event::new(self.seq, what) };
        self.seq += 1;
        self.judge.observe(&event);
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

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::Side;

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
        let findings = recording.judge().findings();
        findings.into_iter().map(|f| (f.party, f.requirement, f.proc.map_or(99, |p| p.rank))).collect()
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

    /// What becomes of a process with PMI_PORT that is told these pieces: the kinds of its events, and what is found.
    fn by_port(pieces: &[(bool, &str)]) -> (Vec<String>, Vec<String>) {
        let mut recording = Recording::new(vec!["pm".into()]);
        let pairs = [("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")];
        let env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let start = Notice::Started { folder: FIRST.into(), env, args: Vec::new(), bad_fd: None };
        let told = pieces.iter().map(|(asks, text)| match asks {
            true => (Notice::ToServer, *text),
            false => (Notice::FromServer, *text),
        });
        for (what, text) in std::iter::once((start, "")).chain(told) {
            recording.datagram(&Head { pid: 1, what }.datagram(text.as_bytes()));
        }
        let kind = |event: &Event| match &event.what {
            What::Greeted { told, .. } => format!("greeted in {} bytes", told.0.len()),
            What::ToServer { bytes, .. } => format!("to server: {}", bytes.0.escape_ascii()),
            What::FromServer { bytes, .. } => format!("from server: {}", bytes.0.escape_ascii()),
            What::Started { .. } => "started".to_owned(),
            _ => "other".to_owned(),
        };
        let findings = recording.judge().findings().into_iter().map(|f| f.requirement).collect();
        (recording.events().unwrap().iter().skip(1).map(kind).collect(), findings)
    }

    #[test]
    fn an_initack_is_no_part_of_the_protocol() {
        let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
        let joined = format!("cmd=initack pmiid=0\n{init}");
        let told = Greeting { size: 1, rank: 0 }.lines(false);
        let (head, tail) = told.split_at(9);
        let answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        let rest = format!("{tail}{answer}");
        // In pieces, and with what follows in the same read.
        let separate = [(true, "cmd=initack pmiid=0\n"), (false, head), (false, rest.as_str())];
        let (events, findings) = by_port(&separate);
        assert_eq!(events[..2], [format!("greeted in {} bytes", told.len()), "started".to_owned()]);
        assert!(events[2].starts_with("from server: cmd=response_to_init"), "{events:?}");
        assert_ne!(findings, Vec::<String>::new(), "nobody has asked for it");
        // What is said ahead waits for the answer to what was said before it.
        let whole = format!("{told}{answer}");
        let (events, findings) = by_port(&[(true, joined.as_str()), (false, whole.as_str())]);
        assert!(events[2].starts_with("to server: cmd=init "), "{events:?}");
        assert!(events[3].starts_with("from server: cmd=response_to_init"), "{events:?}");
        assert_eq!(findings, Vec::<String>::new());
        // One line alone leaves MPICH's clients waiting.
        let short = [(true, "cmd=initack pmiid=0\n"), (false, "cmd=initack rc=0\n"), (true, init)];
        let (events, findings) = by_port(&short);
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(findings, ["pmi-port.lines"]);
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
