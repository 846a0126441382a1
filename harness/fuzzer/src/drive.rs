//! Plays a case against a server: sends what its steps say and collects what comes, whatever it is.
//!
//! Unlike a scenario of the suite, a case expects nothing. The monitor judges.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmi_judge::event::{Bytes, SilenceProof, What};
use pmi_judge::{Judge, Side};
use pmi_runner::interpret::Recorder;
use pmi_runner::party::{Incoming, Party};
use pmi_runner::process::Memory;
use pmi_scenario::ast::{Piece, Template, UpstreamAction};
use pmi_scenario::scope::fill;
use pmi_wire::{Body, LineFramer, Maxes, Operation, Proc, Response, ValueReading};

use super::case::{Answer, Case, Limit, ServerStep, length};
use super::observation::{Growth, Observation};
use super::upstream_state::UpstreamState;

/// Most bytes that the implementation may send in one case.
const FLOOD: usize = 16 << 20;

/// Longest line that is read.
const LINE_LIMIT: usize = 1 << 20;

/// How long it must look as if nothing more would happen before a job that does not end is given up: the processes
/// that were dismissed take a moment to die.
const SETTLED: Duration = Duration::from_millis(150);

/// How often a server's memory is looked at that is at work while nothing comes.
const LOOK: Duration = Duration::from_millis(250);

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
    party: &'a mut dyn Party,
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
    upstream: UpstreamState,
    /// What the server's processes held when all ranks had started.
    before: Vec<Memory>,
    seen: Observation,
}

/// Why a case ends early.
struct Stop;

/// Plays a case. No step takes longer than `wait`, and the end of the job no longer than `ending`.
pub(crate) fn drive(
    case: &Case,
    party: &mut dyn Party,
    command: Vec<String>,
    wait: Duration,
    ending: Duration,
) -> Observation {
    let mut sink = ();
    let ranks = case.ranks();
    let mut driver = Driver {
        party,
        recorder: Recorder::new(&mut sink, Judge::watching(Side::Server)),
        links: BTreeMap::new(),
        kvs: None,
        maxes: None,
        wait,
        received: 0,
        sent: 0,
        groups: 0,
        spawning: false,
        programs: 0,
        upstream: UpstreamState::default(),
        before: Vec::new(),
        seen: Observation::default(),
    };
    if case.needs_upstream() {
        driver.party.hold(case.scenario.answers());
    }
    driver.recorder.record(What::Launched { command, ranks, nodes: 1 });
    if driver.start(ranks).is_ok() {
        driver.before = driver.party.memory();
        for (index, stmt) in case.scenario.body.iter().enumerate() {
            driver.recorder.line = index;
            let done = match ServerStep::of(stmt) {
                Some(step) => driver.step(ranks, index, &step),
                None => driver.unjudged("a campaign has no such step"),
            };
            if done.is_err() {
                break;
            }
        }
        driver.look_at_memory();
    }
    driver.seen.steps_done = driver.recorder.events.len();
    driver.settle(ending);
    let mut seen = driver.seen;
    seen.events = driver.recorder.events;
    seen.findings = driver.recorder.judge.take_watched();
    seen.findings.retain(|f| f.party == Side::Server && driver.upstream.judges(f));
    seen
}

impl Driver<'_> {
    fn link(&mut self, proc: Proc) -> &mut Link {
        self.links.entry(proc).or_default()
    }

    fn unjudged(&mut self, why: &str) -> Result<(), Stop> {
        self.seen.unjudged = Some(why.into());
        Err(Stop)
    }

    fn start(&mut self, ranks: u32) -> Result<(), Stop> {
        let deadline = Instant::now() + self.wait.max(Duration::from_secs(5));
        let procs: Vec<Proc> = (0..ranks).map(|rank| Proc { group: 0, rank }).collect();
        while !procs.iter().all(|p| self.links.get(p).is_some_and(|l| l.started)) {
            let ended = self.seen.exit.is_some();
            match self.party.next(deadline, true) {
                Incoming::Event(what) if !ended => self.take(what)?,
                Incoming::Event(what) => drop(self.take(what)),
                Incoming::Interrupted => return self.unjudged("interrupted"),
                Incoming::Idle | Incoming::Deadline => return self.unjudged("not every rank reported"),
            }
        }
        Ok(())
    }

    fn step(&mut self, ranks: u32, index: usize, step: &ServerStep<'_>) -> Result<(), Stop> {
        let proc = |rank: &u32| Proc { group: 0, rank: *rank };
        match step {
            ServerStep::Join => {
                let [init, maxes, kvsname] =
                    ["cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=get_my_kvsname"];
                self.together(ranks, index, init, Operation::Init)?;
                self.together(ranks, index, maxes, Operation::Maxes)?;
                self.together(ranks, index, kvsname, Operation::Kvsname)
            }
            ServerStep::Leave => self.together(ranks, index, "cmd=finalize", Operation::Finalize),
            ServerStep::Write { rank, lines, partial } => {
                if self.link(proc(rank)).is_over() {
                    return Ok(());
                }
                let bytes = self.bytes(lines, *partial).ok_or(Stop)?;
                self.write(proc(rank), bytes);
                Ok(())
            }
            ServerStep::Wait { rank, answer } => {
                self.wait_for(proc(rank), index, matches!(answer, Answer::Due(_)))
            }
            ServerStep::Close { rank } => {
                self.close(proc(rank));
                Ok(())
            }
            ServerStep::Exit { rank, status } => {
                self.dismiss(proc(rank));
                self.party.exit(proc(rank), *status);
                Ok(())
            }
            ServerStep::Kill { rank, signal } => {
                self.dismiss(proc(rank));
                self.party.kill(proc(rank), *signal);
                Ok(())
            }
            ServerStep::PassedOn => self.until(|state| state.take_passed() || state.is_over()),
            ServerStep::Upstream(action) => {
                let text = match action {
                    UpstreamAction::Answer { lines, partial, .. } => {
                        self.bytes(lines, *partial).ok_or(Stop)?
                    }
                    UpstreamAction::Usual { .. } | UpstreamAction::Close => Vec::new(),
                };
                self.sent += text.len() as u64;
                let Some(command) = self.upstream.command(action, text) else { return Ok(()) };
                self.party.upstream(command);
                if matches!(action, UpstreamAction::Usual { .. }) {
                    return Ok(());
                }
                // What comes next comes after the proxy has heard it, so that what it leads to is not laid to that.
                self.until(|_| false)
            }
        }
    }

    /// Lets things happen until the upstream's side is done, or nothing more happens.
    fn until(&mut self, mut done: impl FnMut(&mut UpstreamState) -> bool) -> Result<(), Stop> {
        let deadline = Instant::now() + self.wait;
        while !done(&mut self.upstream) {
            match self.hear(deadline) {
                Incoming::Event(what) => self.take(what)?,
                Incoming::Interrupted => return self.unjudged("interrupted"),
                Incoming::Deadline if self.seen.grows_dangerously() => return Err(Stop),
                Incoming::Idle | Incoming::Deadline => break,
            }
        }
        Ok(())
    }

    /// The same request by every rank.
    fn together(&mut self, ranks: u32, index: usize, request: &str, op: Operation) -> Result<(), Stop> {
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
        if bound { Ok(()) } else { Err(Stop) }
    }

    fn bytes(&mut self, lines: &[Template], partial: bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            for piece in &line.pieces {
                match piece {
                    Piece::Literal { bytes, .. } => out.extend_from_slice(bytes),
                    Piece::Var(name) if name == "kvs" => out.extend_from_slice(self.kvs.as_deref()?),
                    Piece::Var(_) => {
                        let group = self.groups + u32::from(!self.spawning);
                        out.extend(self.party.agent(group));
                    }
                    Piece::Fill(expr) => {
                        let (limit, plus) = length(expr)?;
                        fill(self.length(limit, plus)?, &mut out);
                    }
                    _ => return None,
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

    fn length(&self, limit: Option<Limit>, plus: i64) -> Option<usize> {
        let base = match limit {
            None => 0,
            Some(Limit::Kvsname) => self.maxes?.kvsname_max,
            Some(Limit::Key) => self.maxes?.keylen_max,
            Some(Limit::Value) => self.maxes?.vallen_max,
        };
        // A server may claim to take more than we care to send.
        i64::try_from(base).ok()?.checked_add(plus).map(|n| n.clamp(0, 1 << 20) as usize)
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
                self.seen.requests += 1;
            }
        }
        self.sent += bytes.len() as u64;
        let what = What::ToServer { proc, bytes: Bytes(bytes.clone()) };
        self.upstream.observe(self.recorder.events.len() as u64, &what);
        self.recorder.record(what);
        self.party.send(proc, &bytes);
    }

    fn close(&mut self, proc: Proc) {
        if !self.link(proc).is_over() {
            self.recorder.record(What::ClosedByClient { proc });
            self.party.close(proc);
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
    fn wait_for(&mut self, proc: Proc, index: usize, due: bool) -> Result<(), Stop> {
        let start = Instant::now();
        let deadline = start + self.wait;
        loop {
            let link = self.link(proc);
            if link.taken < link.lines {
                link.taken += 1;
                self.seen.slowest = self.seen.slowest.max(start.elapsed());
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
                Incoming::Interrupted => return self.unjudged("interrupted"),
                Incoming::Idle => SilenceProof::Idle,
                Incoming::Deadline if self.seen.grows_dangerously() => return Err(Stop),
                Incoming::Deadline => SilenceProof::Timeout,
            };
            if proof == SilenceProof::Idle {
                self.seen.silences.push(start.elapsed());
            }
            if self.upstream.owes() {
                // It may be we who keep it waiting.
                return if due { Err(Stop) } else { Ok(()) };
            }
            self.recorder.record(What::NoAnswer { proc, proof });
            if let Some(op) = self.link(proc).asked.first().copied().flatten() {
                self.seen.unanswered.push((index, op));
            }
            // What would follow an answer that never came shows nothing.
            return if due { Err(Stop) } else { Ok(()) };
        }
    }

    fn take(&mut self, what: What) -> Result<(), Stop> {
        self.take_and_bind(what, false)
    }

    fn take_and_bind(&mut self, what: What, binds: bool) -> Result<(), Stop> {
        self.upstream.observe(self.recorder.events.len() as u64, &what);
        self.recorder.record(what.clone());
        if self.recorder.judge.starts_too_many() {
            return Err(Stop);
        }
        match what {
            What::FromServer { proc, bytes } => {
                self.received += bytes.0.len();
                if self.received > FLOOD {
                    self.seen.flood = true;
                    return Err(Stop);
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
            What::ClosedByServer { proc } | What::Ended { proc, .. } => self.link(proc).closed = true,
            What::Started { proc, bad_fd, .. } => {
                self.link(proc).started = true;
                if bad_fd.is_some() {
                    self.link(proc).closed = true;
                }
            }
            What::JobExited { exit } => self.seen.exit = Some(exit),
            What::Crashed { name, signal } => drop(self.seen.crashed.get_or_insert((name, signal))),
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
            match self.party.next(deadline.min(Instant::now() + LOOK), true) {
                Incoming::Deadline => {
                    self.look_at_memory();
                    if self.seen.grows_dangerously() || Instant::now() >= deadline {
                        return Incoming::Deadline;
                    }
                }
                other => return other,
            }
        }
    }

    /// Looks at the server's memory once more, before its processes may end.
    fn look_at_memory(&mut self) {
        let sent = self.sent;
        let growth = |now: Memory| {
            let then = self.before.iter().find(|then| then.pid == now.pid)?;
            Some(Growth { name: now.name, bytes: now.bytes.saturating_sub(then.bytes), sent })
        };
        let grown: Vec<Growth> = self.party.memory().into_iter().filter_map(growth).collect();
        self.seen.growth = self.seen.growth.take().into_iter().chain(grown).max_by_key(|g| g.bytes);
    }

    /// Ends every process and waits for the job's end.
    fn settle(&mut self, ending: Duration) {
        let procs: Vec<Proc> = self.links.iter().filter(|(_, l)| l.started).map(|(p, _)| *p).collect();
        for proc in procs {
            self.close(proc);
            self.party.exit(proc, 0);
        }
        let deadline = Instant::now() + ending.max(2 * SETTLED);
        let mut last = Instant::now();
        while self.seen.exit.is_none() {
            let proof = match self.hear(deadline) {
                Incoming::Event(what) => {
                    last = Instant::now();
                    if let What::Started { proc, .. } = what {
                        // A spawned process that came late.
                        self.party.exit(proc, 0);
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
            self.seen.job_stays = Some(proof);
            return;
        }
        // What follows the launcher's end: that it died of a signal.
        while let Incoming::Event(what) = self.party.next(Instant::now(), false) {
            if self.take(what).is_err() {
                return;
            }
        }
    }
}
