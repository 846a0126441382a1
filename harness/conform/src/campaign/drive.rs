//! Plays a session against a peer: sends what its steps say and collects what comes, whatever it is.
//!
//! Unlike the scenario player it expects nothing. The monitor judges.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmi_wire::{Body, LineFramer, Maxes, Operation, Response, ValueReading};

use super::session::{Answer, Base, Length, Limit, Line, Piece, Says, Session, Step};
use super::symptom::GROWTH;
use super::upstream::Side;
use crate::event::{Bytes, Event, Exit, Proc, SilenceProof, What};
use crate::judge::{Finding, Monitor, Party};
use crate::play::{Incoming, Memory, Peer, Recorder, fill};

/// Most bytes that the implementation may send in one session.
const FLOOD: usize = 16 << 20;

/// Longest line that is read.
const LINE_LIMIT: usize = 1 << 20;

/// How long it must look as if nothing more would happen before a job that does not end is given up: the processes
/// that we have let go take a moment to die.
const SETTLED: Duration = Duration::from_millis(150);

/// How often a server's memory is looked at that is at work while nothing comes.
const LOOK: Duration = Duration::from_millis(250);

/// How much a process of the server's has grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The program.
    pub name: String,
    /// By so many bytes of memory that it holds at the end.
    pub bytes: u64,
    /// Bytes that the server was sent meanwhile.
    pub sent: u64,
}

/// What became of a session.
#[derive(Debug, Default)]
pub struct Played {
    /// The transcript.
    pub events: Vec<Event>,
    /// What the server broke.
    pub findings: Vec<Finding>,
    /// A process of the implementation that died of a signal, and the signal.
    pub crashed: Option<(String, i32)>,
    /// How the launcher ended.
    pub exit: Option<Exit>,
    /// The job did not end although every process had; how that is known.
    pub stays: Option<SilenceProof>,
    /// It sent more than a server may.
    pub flood: bool,
    /// The process of the server's that has grown most, of those that are looked at.
    pub growth: Option<Growth>,
    /// Why nothing can be said.
    pub unjudged: Option<String>,
    /// Steps at which nothing came although something was asked, and what was asked.
    pub unanswered: Vec<(usize, Operation)>,
    /// How many events there were when the last step was done: what follows is the end of every session.
    pub steps_done: usize,
    /// Requests that were answered or not.
    pub requests: usize,
    /// How long the slowest answer took.
    pub slowest: Duration,
    /// How long it took to know that no answer would come.
    pub silences: Vec<Duration>,
}

#[derive(Default)]
struct Link {
    framer: Option<LineFramer>,
    started: bool,
    /// Messages read, and how many of them a step has waited for.
    lines: usize,
    taken: usize,
    closed: bool,
    dismissed: bool,
    /// Requests without answer.
    asked: Vec<Option<Operation>>,
    /// What we have written of a line that has not ended.
    begun: Vec<u8>,
}

impl Link {
    /// Nothing can be sent any more.
    fn is_over(&self) -> bool {
        self.closed || self.dismissed
    }
}

struct Driver<'a> {
    peer: &'a mut dyn Peer,
    recorder: Recorder<'a>,
    links: BTreeMap<Proc, Link>,
    kvs: Option<Vec<u8>>,
    maxes: Option<Maxes>,
    wait: Duration,
    received: usize,
    sent: u64,
    /// Process groups that spawn requests have begun, whether the last request goes on, and its `totspawns`.
    groups: u32,
    spawning: bool,
    programs: u32,
    upstream: Side,
    /// What the server's processes held when all ranks had started.
    before: Vec<Memory>,
    played: Played,
}

impl Played {
    /// Whether a process has grown so much that the server is stopped, whatever it was sent.
    pub(super) fn is_swollen(&self) -> bool {
        self.growth.as_ref().is_some_and(|g| g.bytes > GROWTH)
    }
}

/// Why a session ends early.
struct Over;

/// Plays a session. No step takes longer than `wait`, and the end of the job no longer than `ending`.
pub fn drive(
    session: &Session,
    peer: &mut dyn Peer,
    command: Vec<String>,
    wait: Duration,
    ending: Duration,
) -> Played {
    let mut sink = ();
    let mut driver = Driver {
        peer,
        recorder: Recorder::new(&mut sink, Monitor::new()),
        links: BTreeMap::new(),
        kvs: None,
        maxes: None,
        wait,
        received: 0,
        sent: 0,
        groups: 0,
        spawning: false,
        programs: 0,
        upstream: Side::default(),
        before: Vec::new(),
        played: Played::default(),
    };
    driver.peer.hold(session.holds());
    driver.recorder.record(What::Launched { command, ranks: session.ranks, nodes: 1 });
    if driver.start(session.ranks).is_ok() {
        driver.before = driver.peer.memory();
        for (index, step) in session.steps.iter().enumerate() {
            driver.recorder.line = index;
            if driver.step(session.ranks, index, step).is_err() {
                break;
            }
        }
        driver.grown();
    }
    driver.played.steps_done = driver.recorder.events.len();
    driver.settle(ending);
    let mut played = driver.played;
    played.events = driver.recorder.events;
    played.findings = driver.recorder.findings;
    played.findings.retain(|f| f.party == Party::Server && driver.upstream.judges(f));
    played
}

impl Driver<'_> {
    fn link(&mut self, proc: Proc) -> &mut Link {
        self.links.entry(proc).or_default()
    }

    fn start(&mut self, ranks: u32) -> Result<(), Over> {
        let deadline = Instant::now() + self.wait.max(Duration::from_secs(5));
        let procs: Vec<Proc> = (0..ranks).map(|rank| Proc { group: 0, rank }).collect();
        while !procs.iter().all(|p| self.links.get(p).is_some_and(|l| l.started)) {
            let ended = self.played.exit.is_some();
            match self.peer.next(deadline, true) {
                Incoming::Event(what) if !ended => self.take(what)?,
                Incoming::Event(what) => drop(self.take(what)),
                Incoming::Interrupted => return self.interrupted(),
                Incoming::Idle | Incoming::Deadline => {
                    self.played.unjudged = Some("not every rank reported".into());
                    return Err(Over);
                }
            }
        }
        Ok(())
    }

    fn interrupted(&mut self) -> Result<(), Over> {
        self.played.unjudged = Some("interrupted".into());
        Err(Over)
    }

    fn step(&mut self, ranks: u32, index: usize, step: &Step) -> Result<(), Over> {
        let proc = Proc { group: 0, rank: step.rank().unwrap_or(0) };
        match step {
            Step::Join => {
                let [init, maxes, kvsname] =
                    ["cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=get_my_kvsname"];
                self.together(ranks, index, init, Operation::Init)?;
                self.together(ranks, index, maxes, Operation::Maxes)?;
                self.together(ranks, index, kvsname, Operation::Kvsname)
            }
            Step::Leave => self.together(ranks, index, "cmd=finalize", Operation::Finalize),
            Step::Write { lines, partial, .. } => {
                if self.link(proc).is_over() {
                    return Ok(());
                }
                let Some(bytes) = self.bytes(lines, *partial) else { return Err(Over) };
                self.write(proc, bytes);
                Ok(())
            }
            Step::Await { answer, .. } => {
                let due = matches!(answer, Answer::Due(_));
                self.wait_for(proc, index, due)
            }
            Step::Close { .. } => {
                self.close(proc);
                Ok(())
            }
            Step::Exit { status, .. } => {
                self.dismiss(proc);
                self.peer.exit(proc, *status);
                Ok(())
            }
            Step::Kill { signal, .. } => {
                self.dismiss(proc);
                self.peer.kill(proc, *signal);
                Ok(())
            }
            Step::Passed { .. } => self.until(|side| side.take_passed() || side.is_over()),
            Step::Upstream { to, says } => {
                let text = match says {
                    Says::Words { lines, partial } => match self.bytes(lines, *partial) {
                        Some(text) => text,
                        None => return Err(Over),
                    },
                    Says::Usual | Says::Close => Vec::new(),
                };
                self.sent += text.len() as u64;
                let Some(command) = self.upstream.command(*to, says, text) else { return Ok(()) };
                self.peer.upstream(command);
                if matches!(says, Says::Usual) {
                    return Ok(());
                }
                // What comes next comes after the proxy has heard it, so that what it leads to is not laid to that.
                self.until(|_| false)
            }
        }
    }

    /// Lets things happen until the upstream's side is done, or nothing more happens.
    fn until(&mut self, mut done: impl FnMut(&mut Side) -> bool) -> Result<(), Over> {
        let deadline = Instant::now() + self.wait;
        while !done(&mut self.upstream) {
            match self.hear(deadline) {
                Incoming::Event(what) => self.take(what)?,
                Incoming::Interrupted => return self.interrupted(),
                Incoming::Deadline if self.played.is_swollen() => return Err(Over),
                Incoming::Idle | Incoming::Deadline => break,
            }
        }
        Ok(())
    }

    /// The same request by every rank.
    fn together(&mut self, ranks: u32, index: usize, request: &str, op: Operation) -> Result<(), Over> {
        let procs: Vec<Proc> = (0..ranks).map(|rank| Proc { group: 0, rank }).collect();
        for proc in &procs {
            if !self.link(*proc).is_over() {
                self.write(*proc, format!("{request}\n").into_bytes());
            }
        }
        for proc in procs {
            self.wait_for(proc, index, true)?;
        }
        let bound = match op {
            Operation::Maxes => self.maxes.is_some(),
            Operation::Kvsname => self.kvs.is_some(),
            _ => true,
        };
        if bound { Ok(()) } else { Err(Over) }
    }

    fn bytes(&mut self, lines: &[Line], partial: bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            for piece in line {
                match piece {
                    Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                    Piece::Kvs => out.extend_from_slice(self.kvs.as_deref()?),
                    Piece::Agent => {
                        let group = self.groups + u32::from(!self.spawning);
                        out.extend(self.peer.agent(group));
                    }
                    Piece::Fill(length) => fill(self.length(*length)?, &mut out),
                }
            }
            if !partial || i + 1 < lines.len() {
                out.push(b'\n');
            }
        }
        Some(out)
    }

    /// Keeps count of the process groups that spawn requests begin. They may be malformed, so this reads single lines.
    fn note_spawn(&mut self, line: &[u8]) {
        let number = |key: &str| {
            std::str::from_utf8(line).ok()?.trim_end().strip_prefix(key)?.trim().parse::<u32>().ok()
        };
        if let Some(programs) = number("totspawns=") {
            self.programs = programs;
        }
        if let Some(so_far) = number("spawnssofar=") {
            self.groups += u32::from(!self.spawning);
            self.spawning = so_far < self.programs;
        }
    }

    fn length(&self, length: Length) -> Option<usize> {
        let base = match length.base {
            Base::Zero => 0,
            Base::Limit(limit) => {
                let maxes = self.maxes?;
                match limit {
                    Limit::Kvsname => maxes.kvsname_max,
                    Limit::Key => maxes.keylen_max,
                    Limit::Value => maxes.vallen_max,
                }
            }
        };
        // A server may claim to take more than we care to send.
        i64::try_from(base).ok()?.checked_add(length.plus).map(|n| n.clamp(0, 1 << 20) as usize)
    }

    fn write(&mut self, proc: Proc, bytes: Vec<u8>) {
        let mut written = std::mem::take(&mut self.link(proc).begun);
        written.extend_from_slice(&bytes);
        let begun = written.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.link(proc).begun = written.split_off(begun);
        for line in written.split_inclusive(|b| *b == b'\n') {
            let op = pmi_wire::Message::parse(&line[..line.len() - 1], ValueReading::ToEndOfLine)
                .ok()
                .and_then(|m| m.cmd().and_then(Operation::from_request_cmd));
            self.note_spawn(line);
            // A spawn is one request of many lines.
            let starts = op.is_some() || line.starts_with(b"cmd=") || line.starts_with(b"mcmd=spawn");
            if starts {
                self.link(proc)
                    .asked
                    .push(op.or(line.starts_with(b"mcmd=spawn").then_some(Operation::Spawn)));
                self.played.requests += 1;
            }
        }
        self.sent += bytes.len() as u64;
        let what = What::ToServer { proc, bytes: Bytes(bytes.clone()) };
        self.upstream.observe(self.recorder.events.len() as u64, &what);
        self.recorder.record(what);
        self.peer.send(proc, &bytes);
    }

    fn close(&mut self, proc: Proc) {
        if !self.link(proc).is_over() {
            self.recorder.record(What::ClosedByClient { proc });
            self.peer.close(proc);
            self.link(proc).dismissed = true;
        }
    }

    fn dismiss(&mut self, proc: Proc) {
        if !self.link(proc).dismissed {
            self.recorder.record(What::Ended { proc, ours: true });
            self.link(proc).dismissed = true;
        }
    }

    /// Waits for a message or for the end of the connection.
    fn wait_for(&mut self, proc: Proc, index: usize, due: bool) -> Result<(), Over> {
        let start = Instant::now();
        let deadline = start + self.wait;
        loop {
            let link = self.link(proc);
            if link.taken < link.lines {
                link.taken += 1;
                self.played.slowest = self.played.slowest.max(start.elapsed());
                return Ok(());
            }
            if link.is_over() {
                return Ok(());
            }
            let proof = match self.hear(deadline) {
                Incoming::Event(what) => {
                    self.take_and_bind(what, due)?;
                    continue;
                }
                Incoming::Interrupted => return self.interrupted(),
                Incoming::Idle => SilenceProof::Idle,
                Incoming::Deadline if self.played.is_swollen() => return Err(Over),
                Incoming::Deadline => SilenceProof::Timeout,
            };
            if proof == SilenceProof::Idle {
                self.played.silences.push(start.elapsed());
            }
            if self.upstream.owes() {
                // It may be we who keep it waiting.
                return if due { Err(Over) } else { Ok(()) };
            }
            self.recorder.record(What::NoAnswer { proc, proof });
            if let Some(op) = self.link(proc).asked.first().copied().flatten() {
                self.played.unanswered.push((index, op));
            }
            // What would follow an answer that never came shows nothing.
            return if due { Err(Over) } else { Ok(()) };
        }
    }

    fn take(&mut self, what: What) -> Result<(), Over> {
        self.take_and_bind(what, false)
    }

    fn take_and_bind(&mut self, what: What, binds: bool) -> Result<(), Over> {
        self.upstream.observe(self.recorder.events.len() as u64, &what);
        self.recorder.record(what.clone());
        if self.recorder.swarms() {
            return Err(Over);
        }
        match what {
            What::FromServer { proc, bytes } => {
                self.received += bytes.0.len();
                if self.received > FLOOD {
                    self.played.flood = true;
                    return Err(Over);
                }
                let link = self.link(proc);
                let framer = link.framer.get_or_insert_with(|| LineFramer::new(LINE_LIMIT));
                framer.push(&bytes.0);
                let mut lines = Vec::new();
                while let Some(line) = framer.next_line() {
                    lines.push(line.unwrap_or(b"").to_vec());
                }
                link.lines += lines.len();
                link.asked.drain(..lines.len().min(link.asked.len()));
                if binds {
                    lines.iter().for_each(|line| self.bind(line));
                }
            }
            What::ClosedByServer { proc } => self.link(proc).closed = true,
            What::Ended { proc, .. } => self.link(proc).closed = true,
            What::Started { proc, bad_fd, .. } => {
                self.link(proc).started = true;
                if bad_fd.is_some() {
                    self.link(proc).closed = true;
                }
            }
            What::JobExited { exit } => self.played.exit = Some(exit),
            What::Crashed { name, signal } => drop(self.played.crashed.get_or_insert((name, signal))),
            _ => {}
        }
        Ok(())
    }

    fn bind(&mut self, line: &[u8]) {
        if let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) {
            match response.body {
                Body::Kvsname(Some(name)) => self.kvs = Some(name.to_vec()),
                Body::Maxes(maxes @ Some(_)) => self.maxes = maxes,
                _ => {}
            }
        }
    }

    /// Waits for what comes next until a time limit, or until the server holds more than is good.
    fn hear(&mut self, deadline: Instant) -> Incoming {
        loop {
            match self.peer.next(deadline.min(Instant::now() + LOOK), true) {
                Incoming::Deadline => {
                    self.grown();
                    if self.played.is_swollen() || Instant::now() >= deadline {
                        return Incoming::Deadline;
                    }
                }
                other => return other,
            }
        }
    }

    /// Looks at the server's memory once more, before its processes may end.
    fn grown(&mut self) {
        let sent = self.sent;
        let growth = |now: Memory| {
            let then = self.before.iter().find(|then| then.pid == now.pid)?;
            Some(Growth { name: now.name, bytes: now.bytes.saturating_sub(then.bytes), sent })
        };
        let grown: Vec<Growth> = self.peer.memory().into_iter().filter_map(growth).collect();
        self.played.growth = self.played.growth.take().into_iter().chain(grown).max_by_key(|g| g.bytes);
    }

    /// Lets every process go and waits for the job's end.
    fn settle(&mut self, ending: Duration) {
        let procs: Vec<Proc> = self.links.iter().filter(|(_, l)| l.started).map(|(p, _)| *p).collect();
        for proc in procs {
            self.close(proc);
            self.peer.exit(proc, 0);
        }
        let deadline = Instant::now() + ending.max(2 * SETTLED);
        let mut last = Instant::now();
        while self.played.exit.is_none() {
            let proof = match self.hear(deadline) {
                Incoming::Event(what) => {
                    last = Instant::now();
                    if let What::Started { proc, .. } = what {
                        // A spawned process that came late.
                        self.peer.exit(proc, 0);
                    }
                    if self.take(what).is_err() {
                        return;
                    }
                    continue;
                }
                Incoming::Interrupted => return,
                Incoming::Idle if last.elapsed() < SETTLED => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Incoming::Idle => SilenceProof::Idle,
                Incoming::Deadline => SilenceProof::Timeout,
            };
            self.played.stays = Some(proof);
            return;
        }
        // What follows the launcher's end: that it died of a signal.
        while let Incoming::Event(what) = self.peer.next(Instant::now(), false) {
            if self.take(what).is_err() {
                return;
            }
        }
    }
}
