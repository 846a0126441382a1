//! The player: takes the steps in the order of the file, for every rank, and says where things went wrong.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmi_wire::{LineFramer, Operation, Response, ValueReading};

use super::pattern::{Misfit, fits, value_fits};
use super::peer::{Incoming, Peer};
use super::recorder::{EventSink, Recorder};
use super::scope::{ScenarioError, Scope};
use crate::event::{Bytes, Event, Exit, Proc, SilenceProof, What};
use crate::judge::{Finding, Monitor, Party, Severity};
use crate::lang::ast::{
    Action, Alternative, ExitPattern, Grade, Piece, ProcessAction, RankSet, Role, Scenario, Source, Step,
    Stmt, Template, Who, WriteMode,
};

/// Bytes of a message that a finding shows.
pub(super) const SHOWN: usize = 300;

/// Longest line that the player keeps.
const LINE_LIMIT: usize = 1 << 20;

/// Most messages of one connection that wait for a step to expect them.
pub(super) const LINES_LIMIT: usize = 100_000;

/// How long an implementation that has hung gets to end by itself.
const GRACE: Duration = Duration::from_millis(500);

/// Most findings of the monitor in one scenario: after so many the rest says nothing new.
const FINDINGS: usize = 200;

/// Bounds of one scenario.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for what a step expects.
    pub step: Duration,
    /// Wait after which silence is believed where the server's state cannot be read.
    pub silence: Duration,
    /// Most bytes that the implementation may send on all connections together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { step: Duration::from_secs(5), silence: Duration::from_millis(250), bytes: 16 << 20 }
    }
}

/// What became of a scenario.
#[derive(Debug)]
pub struct Outcome {
    /// The transcript.
    pub events: Vec<Event>,
    /// What the server broke, in order.
    pub findings: Vec<Finding>,
    /// Whom the run is about.
    pub under_test: Party,
    /// Whether an expected answer never came.
    pub hung: bool,
    /// Nothing was started, or nothing was ever answered: there is no sign that it speaks PMI at all.
    pub lifeless: bool,
    /// The first process of the implementation that died of a signal, and the signal.
    pub crashed: Option<(String, i32)>,
    /// Names of processes that a program under test has left when all of its ranks had ended by themselves: they are of
    /// no rank's process group, with which they would have been ended. Empty unless that was asked for.
    pub left: Vec<String>,
    /// Why the run says nothing about the implementation.
    pub unjudged: Option<String>,
    /// A mistake in the scenario: line and what.
    pub scenario_error: Option<(usize, String)>,
}

/// Why playing ended early.
pub(super) enum Stop {
    /// A finding has been made.
    Broken,
    /// See [`Outcome::scenario_error`].
    Scenario(String),
    /// See [`Outcome::unjudged`].
    Unjudged(String),
}

/// Whether a line is a spawn_result that is no success.
fn is_refused_spawn(line: &[u8]) -> bool {
    Response::parse(line, ValueReading::ToEndOfLine)
        .is_ok_and(|r| r.operation() == Operation::Spawn && !r.is_success())
}

fn shorten(line: &[u8]) -> String {
    let cut = &line[..line.len().min(SHOWN)];
    match line.len() - cut.len() {
        0 => format!("\"{}\"", cut.escape_ascii()),
        _ => format!("\"{}\"... ({} bytes)", cut.escape_ascii(), line.len()),
    }
}

impl From<ScenarioError> for Stop {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error.0)
    }
}

#[derive(Default)]
pub(super) struct Link {
    framer: Option<LineFramer>,
    pub(super) lines: VecDeque<(u64, Vec<u8>)>,
    started: bool,
    env: HashMap<String, String>,
    args: Vec<Bytes>,
    /// The server closed it.
    closed: bool,
    /// The close was one of the outcomes that a step allows: what follows for this rank is left out.
    let_go: bool,
    /// We closed it.
    ours_closed: bool,
    ended: bool,
    /// We told the process to exit or to die.
    dismissed: bool,
    /// Events of the lines that steps have taken.
    pub(super) taken: Vec<u64>,
}

impl Link {
    /// The next line, for a step.
    fn take_line(&mut self) -> Option<(u64, Vec<u8>)> {
        let line = self.lines.pop_front()?;
        self.taken.push(line.0);
        Some(line)
    }
}

/// Plays one scenario whose fragments `fragment` finds. The peer has been launched; `Launched` is recorded here.
pub fn play(
    scenario: &Scenario,
    fragment: &dyn Fn(&str) -> Option<Arc<Scenario>>,
    command: Vec<String>,
    peer: &mut dyn Peer,
    limits: Limits,
    sink: &mut dyn EventSink,
) -> Outcome {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let mut player = Player {
        scenario,
        fragment,
        peer,
        limits,
        recorder: Recorder::new(sink, Monitor::focused(requires)),
        scope: Scope::default(),
        source: Arc::clone(&scenario.source),
        newlines: memchr::memchr_iter(b'\n', scenario.source.text.as_bytes()).collect(),
        links: HashMap::new(),
        sizes: HashMap::from([(0, scenario.ranks), (Proc::PROXIES, scenario.nodes)]),
        groups: 0,
        spawn: SpawnNote::default(),
        refused: HashSet::new(),
        job: None,
        output: false,
        crashed: None,
        hung: false,
        received: 0,
        own: Vec::new(),
        cited: String::new(),
        released: false,
        unconnected: false,
        unstarted: false,
        requests: HashMap::new(),
    };
    player.peer.hold(scenario.answers());
    player.recorder.record(What::Launched { command, ranks: scenario.ranks, nodes: scenario.nodes });
    let stop = player.run().err();
    player.settle();
    let mut findings = std::mem::take(&mut player.recorder.findings);
    findings.append(&mut player.own);
    findings.retain(|f| f.party == Party::Server);
    findings.sort_by_key(|f| f.seq);
    let line = player.recorder.line;
    let (scenario_error, unjudged) = match stop {
        Some(Stop::Scenario(what)) => (Some((line, what)), None),
        Some(Stop::Unjudged(what)) => (None, Some(what)),
        Some(Stop::Broken) | None => (None, None),
    };
    Outcome {
        events: player.recorder.events,
        findings,
        under_test: Party::Server,
        hung: player.hung,
        lifeless: player.unstarted || (player.hung && player.received == 0),
        crashed: player.crashed,
        left: Vec::new(),
        unjudged,
        scenario_error,
    }
}

/// What has been sent of a spawn request.
#[derive(Default)]
struct SpawnNote {
    /// `nprocs` of the current program.
    processes: u32,
    /// `totspawns`.
    programs: u32,
    /// Further programs are to follow.
    open: bool,
}

pub(super) struct Player<'a> {
    scenario: &'a Scenario,
    fragment: &'a dyn Fn(&str) -> Option<Arc<Scenario>>,
    pub(super) peer: &'a mut dyn Peer,
    limits: Limits,
    recorder: Recorder<'a>,
    pub(super) scope: Scope,
    /// The file that the current step stands in.
    source: Arc<Source>,
    /// Where the lines of the scenario's own file end: recorded sessions have many.
    newlines: Vec<usize>,
    links: HashMap<Proc, Link>,
    /// Sizes of the process groups.
    sizes: HashMap<u32, u32>,
    /// Number of spawned groups.
    groups: u32,
    /// The spawn request that is being sent.
    spawn: SpawnNote,
    /// Groups whose spawn was lawfully refused: steps about them are left out.
    refused: HashSet<u32>,
    job: Option<Exit>,
    output: bool,
    crashed: Option<(String, i32)>,
    hung: bool,
    pub(super) received: u64,
    /// Findings of the scenario's own expectations.
    own: Vec<Finding>,
    /// Requirement of the step that is being played.
    cited: String,
    /// The processes have been let go.
    released: bool,
    /// A process came without a usable PMI_FD.
    unconnected: bool,
    /// No process of ours was started at all.
    unstarted: bool,
    /// Numbers of the requests that proxies passed on, by event.
    pub(super) requests: HashMap<u64, u64>,
}

impl Player<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        for rank in 0..self.scenario.ranks {
            self.await_start(Proc { group: 0, rank })?;
        }
        if self.unconnected {
            // The monitor has said so, and there is nothing to talk over.
            return Err(Stop::Broken);
        }
        let scenario = self.scenario;
        self.body(&scenario.body, true)
    }

    /// Lets everything end, and reads what is still said.
    fn settle(&mut self) {
        self.release();
        // Who has just used up the time of a step will not use more of it well.
        let grace = if self.hung { self.limits.step.min(GRACE) } else { self.limits.step };
        let deadline = Instant::now() + grace;
        while self.job.is_none() && !self.recorder.swarms() {
            match self.peer.next(deadline, true) {
                Incoming::Event(what) => self.take(what),
                Incoming::Idle | Incoming::Deadline | Incoming::Interrupted => break,
            }
        }
    }

    fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let mut procs: Vec<Proc> =
            self.links.iter().filter(|(_, l)| l.started && !l.dismissed).map(|(p, _)| *p).collect();
        procs.sort_unstable();
        for p in procs {
            self.client_closes(p);
            self.link(p).dismissed = true;
            self.peer.exit(p, 0);
        }
    }

    fn body(&mut self, body: &[Stmt], own: bool) -> Result<(), Stop> {
        for stmt in body {
            match stmt {
                Stmt::Use(name) => {
                    self.at(name.span.start, own);
                    let Some(fragment) = (self.fragment)(&name.value) else {
                        return Err(Stop::Scenario(format!("there is no fragment \"{}\"", name.value)));
                    };
                    let outer = std::mem::replace(&mut self.source, Arc::clone(&fragment.source));
                    self.body(&fragment.body, false)?;
                    self.source = outer;
                }
                Stmt::Let { name, value } => {
                    self.at(name.span.start, own);
                    let text = self.scope.text(value)?;
                    self.scope.set(&name.value, text);
                }
                Stmt::Repeat { count, var, body, span } => {
                    self.at(span.start, own);
                    self.scope.enter(0, self.scenario.ranks);
                    for i in 0..self.scope.number(count)? {
                        if let Some(var) = var {
                            self.scope.set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(body, own)?;
                    }
                }
                Stmt::Step(step) => {
                    self.at(step.span.start, own);
                    self.step(step)?;
                }
            }
        }
        Ok(())
    }

    /// Remembers the line that is played; a fragment's steps count as the `use` line.
    fn at(&mut self, offset: usize, own: bool) {
        if own {
            self.recorder.line = 1 + self.newlines.partition_point(|end| *end < offset);
        }
    }

    pub(super) fn link(&mut self, p: Proc) -> &mut Link {
        self.links.entry(p).or_default()
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        self.scope.begin_step();
        let first = self.scenario.requires.first().map(|r| r.value.as_str()).unwrap_or_default();
        self.cited = step.cites.as_ref().map_or(first, |c| &c.value).to_owned();
        let procs = match &step.who {
            Who::Job => return self.job_step(step),
            Who::Ranks { group, set } => {
                let ranks: Vec<u32> = match set {
                    RankSet::All => (0..self.size(*group)).collect(),
                    RankSet::Ranges(ranges) => ranges.iter().flat_map(|(a, b)| *a..=*b).collect(),
                };
                ranks.into_iter().map(|rank| Proc { group: *group, rank })
            }
        };
        for p in procs {
            if self.refused.contains(&p.group) {
                return Ok(());
            }
            if p.group != 0 && p.group != Proc::PROXIES {
                self.await_start(p)?;
            }
            self.scope.enter(p.rank, self.size(p.group));
            match (&step.action, step.role) {
                (Action::Message { mode, lines }, Role::Client) => self.send(p, *mode, lines)?,
                (Action::Close, Role::Client) => self.client_closes(p),
                (Action::Upstream(action), _) => self.upstream_step(p, action)?,
                (Action::Process(action), _) => self.process_step(p, action)?,
                (Action::Call(_), _) => {
                    return Err(Stop::Unjudged("library calls need a library under test".into()));
                }
                (action, Role::Server) => self.expect(p, action)?,
                _ => return Err(Stop::Scenario("this role cannot do that".into())),
            }
        }
        Ok(())
    }

    fn size(&self, group: u32) -> u32 {
        self.sizes.get(&group).copied().unwrap_or(0)
    }

    // ----- what we do ----------------------------------------------------------------------------------------------

    fn send(&mut self, p: Proc, mode: WriteMode, lines: &[Template]) -> Result<(), Stop> {
        if self.link(p).let_go {
            return Ok(());
        }
        if lines.iter().flat_map(|l| &l.pieces).any(|piece| *piece == Piece::Var("agent".into())) {
            let group = self.groups + u32::from(!self.spawn.open);
            self.scope.set_agent(self.peer.agent(group));
        }
        let writes = self.scope.message(mode, lines)?;
        self.note_spawn(&writes.concat());
        for bytes in writes {
            self.recorder.record(What::ToServer { proc: p, bytes: Bytes(bytes.clone()) });
            self.peer.send(p, &bytes);
        }
        Ok(())
    }

    /// Keeps count of the process groups that spawn requests begin, and of the processes that they ask for. Requests
    /// may be malformed on purpose, so this reads single lines.
    fn note_spawn(&mut self, bytes: &[u8]) {
        for line in bytes.split(|b| *b == b'\n') {
            let Some((key, number)) = std::str::from_utf8(line).ok().and_then(|l| l.split_once('=')) else {
                continue;
            };
            let Ok(number) = number.trim().parse::<u32>() else { continue };
            match key.trim() {
                "nprocs" => self.spawn.processes = number,
                "totspawns" => self.spawn.programs = number,
                "spawnssofar" => {
                    self.groups += u32::from(!self.spawn.open);
                    let size = self.sizes.entry(self.groups).or_default();
                    *size = size.saturating_add(self.spawn.processes);
                    self.spawn.open = number < self.spawn.programs;
                }
                _ => {}
            }
        }
    }

    fn client_closes(&mut self, p: Proc) {
        let link = self.link(p);
        if !std::mem::replace(&mut link.ours_closed, true) && !link.closed {
            self.recorder.record(What::ClosedByClient { proc: p });
            self.peer.close(p);
        }
    }

    // ----- what comes in -------------------------------------------------------------------------------------------

    /// Books an event of the peer's.
    fn take(&mut self, what: What) {
        let seq = self.recorder.record(what.clone());
        match what {
            What::FromServer { proc, bytes } => {
                self.received += bytes.0.len() as u64;
                let link = self.link(proc);
                let framer = link.framer.get_or_insert_with(|| LineFramer::new(LINE_LIMIT));
                framer.push(&bytes.0);
                while let Some(line) = framer.next_line() {
                    if link.lines.len() >= LINES_LIMIT {
                        break;
                    }
                    // What is too long to keep cannot fit any expectation; the monitor has reported it.
                    link.lines.push_back((seq, line.unwrap_or(b"").to_vec()));
                }
            }
            What::ClosedByServer { proc } => self.link(proc).closed = true,
            What::Ended { proc, .. } => {
                let link = self.link(proc);
                link.ended = true;
                link.closed |= !link.ours_closed;
            }
            What::Started { proc, env, args, bad_fd } => {
                self.unconnected |= bad_fd.is_some();
                let link = self.link(proc);
                link.started = true;
                link.env = env.into_iter().collect();
                link.args = args;
                if proc.group != 0
                    && let Some(size) = self.link(proc).env.get("PMI_SIZE").and_then(|s| s.parse().ok())
                    && size <= self.size(proc.group)
                {
                    self.sizes.insert(proc.group, size);
                }
            }
            What::Output { .. } => self.output = true,
            What::JobExited { exit } => self.job = Some(exit),
            What::Crashed { name, signal } => {
                self.crashed.get_or_insert((name, signal));
            }
            // Groups that were spawned have proxies of their own in some implementations; steps are about the first.
            What::FromProxy { group: 0, proxy, id, text, .. } => self.passed_on(seq, proxy, id, &text.0),
            What::ProxyEnded { group: 0, proxy, .. } | What::ClosedByUpstream { proxy } => {
                self.link(Proc::proxy(proxy)).closed = true;
            }
            What::Launched { .. }
            | What::Called { .. }
            | What::Returned { .. }
            | What::Exited { .. }
            | What::ToServer { .. }
            | What::ClosedByClient { .. }
            | What::NoAnswer { .. }
            | What::FromProxy { .. }
            | What::ToProxy { .. }
            | What::ProxyEnded { .. } => {}
        }
    }

    /// Waits until `done` or nothing more comes; says how waiting ended if not by `done`.
    fn pump(
        &mut self,
        wait: Duration,
        patient: bool,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Option<SilenceProof>, Stop> {
        let deadline = Instant::now() + wait;
        loop {
            if done(self) {
                return Ok(None);
            }
            match self.peer.next(deadline, patient) {
                Incoming::Event(what) => self.take(what),
                Incoming::Interrupted => return Err(Stop::Unjudged("interrupted".into())),
                Incoming::Idle => return Ok(Some(SilenceProof::Idle)),
                Incoming::Deadline => return Ok(Some(SilenceProof::Timeout)),
            }
            if self.recorder.findings.len() >= FINDINGS || self.recorder.swarms() {
                return Err(Stop::Broken);
            }
            if self.received > self.limits.bytes {
                let seen = format!("more than {} bytes", self.limits.bytes);
                return Err(self.broken(
                    None,
                    "rfc13.wire.lock-step",
                    "one answer to each request".into(),
                    seen,
                ));
            }
        }
    }

    /// Makes a finding unless the monitor has already said what is wrong with the same event.
    fn broken(&mut self, p: Option<Proc>, requirement: &str, expected: String, seen: String) -> Stop {
        let seq = self.recorder.events.last().map_or(0, |e| e.seq);
        self.broken_at(seq, p, requirement, expected, seen)
    }

    fn broken_at(
        &mut self,
        seq: u64,
        p: Option<Proc>,
        requirement: &str,
        expected: String,
        seen: String,
    ) -> Stop {
        let known =
            self.recorder.findings.iter().any(|f| f.party == Party::Server && f.seq == seq && f.proc == p);
        if !known {
            self.find(seq, p, requirement, None, expected, seen);
        }
        Stop::Broken
    }

    fn find(
        &mut self,
        seq: u64,
        proc: Option<Proc>,
        requirement: &str,
        at_most: Option<Severity>,
        expected: String,
        seen: String,
    ) {
        let (requirement, line) = (requirement.to_owned(), self.recorder.line);
        self.own.push(Finding {
            requirement,
            party: Party::Server,
            proc,
            seq,
            line,
            at_most,
            expected,
            seen,
        });
    }

    fn await_start(&mut self, p: Proc) -> Result<(), Stop> {
        let job_over = |s: &mut Self| s.job.is_some() && p.group == 0;
        let proof = self.pump(self.limits.step, true, |s| s.link(p).started || job_over(s))?;
        if self.link(p).started {
            return Ok(());
        }
        if p.group == 0 {
            let rank = p.rank;
            let none = !self.links.values().any(|l| l.started);
            let why = match (self.job, proof) {
                (Some(Exit::Code(0)), _) if none => format!(
                    "the launcher ended (exit status 0) before rank {rank} reported: it did not start {{agent}}, or it \
                     went into the background, where it cannot be judged"
                ),
                (Some(exit), _) => format!("the launcher ended ({exit}) before rank {rank} reported"),
                (None, Some(SilenceProof::Idle)) => {
                    format!(
                        "rank {rank} did not report, and the launcher's processes wait for something else"
                    )
                }
                (None, _) => format!("rank {rank} did not report within {:?} (--timeout)", self.limits.step),
            };
            self.unstarted = none;
            return Err(Stop::Unjudged(why));
        }
        let cited = self.cited.clone();
        Err(self.broken(
            Some(p),
            &cited,
            "the process is started".into(),
            format!("process {p} never reported"),
        ))
    }

    // ----- what we expect ------------------------------------------------------------------------------------------

    fn expect(&mut self, p: Proc, action: &Action) -> Result<(), Stop> {
        if self.link(p).let_go {
            return Ok(());
        }
        match action {
            Action::Message { lines, .. } => lines.iter().try_for_each(|line| self.expect_line(p, line)),
            Action::Empty => {
                let line = self.next_line(p, "a bare newline")?;
                if line.1.is_empty() { Ok(()) } else { Err(self.misfit(p, "a bare newline".into(), &line)) }
            }
            Action::Close => self.expect_close(p),
            Action::Silence => self.expect_silence(p),
            Action::OneOf(alternatives) => self.expect_one_of(p, alternatives),
            Action::Right | Action::Process(_) | Action::Call(_) | Action::Upstream(_) => Ok(()),
        }
    }

    fn misfit(&mut self, p: Proc, expected: String, (seq, line): &(u64, Vec<u8>)) -> Stop {
        let cited = self.cited.clone();
        self.broken_at(*seq, Some(p), &cited, expected, shorten(line))
    }

    /// The next line for a rank, or a finding that it did not come.
    fn next_line(&mut self, p: Proc, expected: &str) -> Result<(u64, Vec<u8>), Stop> {
        let proof = self.pump(self.limits.step, true, |s| {
            let link = s.link(p);
            !link.lines.is_empty() || link.closed || link.ours_closed
        })?;
        if let Some(line) = self.link(p).take_line() {
            return Ok(line);
        }
        let cited = self.cited.clone();
        let Some(proof) = proof else {
            return Err(self.broken(
                Some(p),
                &cited,
                expected.to_owned(),
                "the end of the connection".into(),
            ));
        };
        self.hung = true;
        self.recorder.record(What::NoAnswer { proc: p, proof });
        Err(self.broken(Some(p), &cited, expected.to_owned(), self.silence_text(proof)))
    }

    fn silence_text(&self, proof: SilenceProof) -> String {
        match proof {
            SilenceProof::Idle => "silence: the server has read everything and waits".into(),
            SilenceProof::Timeout => format!("silence for {:?}", self.limits.step),
        }
    }

    fn expect_line(&mut self, p: Proc, expected: &Template) -> Result<(), Stop> {
        let shown = self.shown(expected);
        let line = self.next_line(p, &shown)?;
        match fits(&mut self.scope, expected, &line.1) {
            Ok(()) => Ok(()),
            Err(Misfit::Scenario(what)) => Err(Stop::Scenario(what)),
            Err(Misfit::Message(what)) => Err(self.misfit(p, format!("{shown} ({what})"), &line)),
        }
    }

    /// The expected line as the scenario has it.
    fn shown(&self, template: &Template) -> String {
        let text = self.source.text.get(template.span.start..template.span.end).unwrap_or_default();
        text[..text.floor_char_boundary(SHOWN)].to_owned()
    }

    fn expect_close(&mut self, p: Proc) -> Result<(), Stop> {
        let proof = self.pump(self.limits.step, true, |s| {
            let link = s.link(p);
            !link.lines.is_empty() || link.closed || link.ours_closed
        })?;
        if let Some(line) = self.link(p).take_line() {
            return Err(self.misfit(p, "the end of the connection".into(), &line));
        }
        match proof {
            None => {
                self.link(p).let_go = true;
                Ok(())
            }
            Some(proof) => {
                let (cited, seen) = (self.cited.clone(), self.silence_text(proof));
                Err(self.broken(Some(p), &cited, "the end of the connection".into(), seen))
            }
        }
    }

    fn expect_silence(&mut self, p: Proc) -> Result<(), Stop> {
        self.pump(self.limits.silence, false, |s| {
            let link = s.link(p);
            !link.lines.is_empty() || link.closed
        })?;
        let cited = self.cited.clone();
        if let Some(line) = self.link(p).take_line() {
            return Err(self.misfit(p, "no message".into(), &line));
        }
        if self.link(p).closed {
            return Err(self.broken(
                Some(p),
                &cited,
                "no message".into(),
                "the end of the connection".into(),
            ));
        }
        Ok(())
    }

    fn expect_one_of(&mut self, p: Proc, alternatives: &[Alternative]) -> Result<(), Stop> {
        let proof = self.pump(self.limits.step, true, |s| {
            let link = s.link(p);
            !link.lines.is_empty() || link.closed || link.ours_closed
        })?;
        let line = self.link(p).take_line();
        let expected = alternatives
            .iter()
            .filter(|a| a.grade != Grade::Fail)
            .map(|a| self.scenario_text(a))
            .collect::<Vec<_>>()
            .join("; or ");
        for alternative in alternatives {
            let fitting = match (&alternative.action, &line) {
                (Action::Message { lines, .. }, Some((_, line))) => {
                    match fits(&mut self.scope, &lines[0], line) {
                        Ok(()) => true,
                        Err(Misfit::Message(_)) => false,
                        Err(Misfit::Scenario(what)) => return Err(Stop::Scenario(what)),
                    }
                }
                (Action::Empty, Some((_, line))) => line.is_empty(),
                (Action::Close, None) => proof.is_none(),
                (Action::Silence, None) => proof.is_some(),
                _ => false,
            };
            if fitting {
                return self.alternative(p, alternative, expected, line, proof);
            }
        }
        match (line, proof) {
            (Some(line), _) => Err(self.misfit(p, expected, &line)),
            (None, Some(proof)) => {
                self.hung = true;
                self.recorder.record(What::NoAnswer { proc: p, proof });
                let (cited, seen) = (self.cited.clone(), self.silence_text(proof));
                Err(self.broken(Some(p), &cited, expected, seen))
            }
            (None, None) => {
                let cited = self.cited.clone();
                Err(self.broken(Some(p), &cited, expected, "the end of the connection".into()))
            }
        }
    }

    /// An alternative as a reader of the scenario knows it, without its grade.
    fn scenario_text(&self, alternative: &Alternative) -> String {
        match &alternative.action {
            Action::Message { lines, .. } => lines.first().map(|l| self.shown(l)).unwrap_or_default(),
            Action::Empty => "a bare newline".into(),
            Action::Close => "the end of the connection".into(),
            _ => "silence".into(),
        }
    }

    fn alternative(
        &mut self,
        p: Proc,
        alternative: &Alternative,
        lawful: String,
        line: Option<(u64, Vec<u8>)>,
        proof: Option<SilenceProof>,
    ) -> Result<(), Stop> {
        if matches!(alternative.action, Action::Close) {
            self.link(p).let_go = true;
        }
        if line.as_ref().is_some_and(|(_, line)| is_refused_spawn(line)) {
            self.refused.insert(self.groups);
        }
        if alternative.grade == Grade::Pass {
            return Ok(());
        }
        let cited = alternative.cites.as_ref().map_or(self.cited.clone(), |c| c.value.clone());
        let last = self.recorder.events.last().map_or(0, |e| e.seq);
        let (seq, seen) = match (line, proof) {
            (Some((seq, line)), _) => (seq, shorten(&line)),
            (None, Some(proof)) => (last, self.silence_text(proof)),
            (None, None) => (last, "the end of the connection".into()),
        };
        let at_most = match alternative.grade {
            Grade::Fail => return Err(self.broken_at(seq, Some(p), &cited, lawful, seen)),
            Grade::Warn => Severity::Warn,
            Grade::Note | Grade::Pass => Severity::Note,
        };
        self.find(seq, Some(p), &cited, Some(at_most), lawful, seen);
        Ok(())
    }

    // ----- processes and the job -----------------------------------------------------------------------------------

    fn process_step(&mut self, p: Proc, action: &ProcessAction) -> Result<(), Stop> {
        let cited = self.cited.clone();
        match action {
            ProcessAction::Started => self.await_start(p),
            ProcessAction::Env(name, expected) => {
                self.await_start(p)?;
                let seen = self.link(p).env.get(&name.value).cloned();
                match value_fits(&mut self.scope, &name.value, expected, seen.as_deref().map(str::as_bytes)) {
                    Ok(()) => Ok(()),
                    Err(Misfit::Scenario(what)) => Err(Stop::Scenario(what)),
                    Err(Misfit::Message(what)) => {
                        let seen = seen
                            .map_or(format!("{} is not set", name.value), |v| format!("{}={v}", name.value));
                        Err(self.broken(Some(p), &cited, what, seen))
                    }
                }
            }
            ProcessAction::Args(expected) => {
                let expected = self.scope.text(expected)?;
                let seen = self.link(p).args.iter().map(|a| a.0.as_slice()).collect::<Vec<_>>().join(&b' ');
                if seen == expected {
                    return Ok(());
                }
                let expected = format!("arguments \"{}\"", expected.escape_ascii());
                Err(self.broken(Some(p), &cited, expected, format!("\"{}\"", seen.escape_ascii())))
            }
            ProcessAction::Ended => {
                let proof = self.pump(self.limits.step, true, |s| s.link(p).ended || s.link(p).closed)?;
                match proof {
                    None => {
                        self.link(p).let_go = true;
                        Ok(())
                    }
                    Some(proof) => {
                        let seen = self.silence_text(proof);
                        Err(self.broken(Some(p), &cited, "the process manager ends the process".into(), seen))
                    }
                }
            }
            ProcessAction::Exit(status) => {
                self.dismiss(p);
                self.peer.exit(p, *status);
                Ok(())
            }
            ProcessAction::Kill(signal) => {
                self.dismiss(p);
                self.peer.kill(p, *signal);
                Ok(())
            }
            ProcessAction::Ends(_)
            | ProcessAction::Over
            | ProcessAction::Copes
            | ProcessAction::SameOutput => Err(Stop::Scenario("what a client under test comes to".into())),
            ProcessAction::JobExit(_) | ProcessAction::Logged => {
                Err(Stop::Scenario("a step of the job stands under J".into()))
            }
        }
    }

    /// What a process's end means for its connection. The answers that are on their way are read first.
    fn dismiss(&mut self, p: Proc) {
        self.link(p).dismissed = true;
        self.recorder.record(What::Ended { proc: p, ours: true });
        self.link(p).ours_closed = true;
    }

    fn job_step(&mut self, step: &Step) -> Result<(), Stop> {
        let cited = self.cited.clone();
        match &step.action {
            Action::Process(ProcessAction::JobExit(expected)) => {
                self.release();
                let proof = self.pump(self.limits.step, true, |s| s.job.is_some())?;
                let Some(exit) = self.job else {
                    self.hung = true;
                    let seen = proof.map_or(String::new(), |p| self.silence_text(p));
                    return Err(self.broken(None, &cited, "the job ends".into(), seen));
                };
                let (fits, what) = match expected {
                    ExitPattern::Any => (true, String::new()),
                    ExitPattern::NonZero => (exit != Exit::Code(0), "an exit status other than 0".to_owned()),
                    ExitPattern::Code(code) => {
                        (exit == Exit::Code(i32::from(*code)), format!("exit status {code}"))
                    }
                };
                if fits { Ok(()) } else { Err(self.broken(None, &cited, what, exit.to_string())) }
            }
            Action::Process(ProcessAction::Logged) => {
                let wait = self.limits.step;
                self.pump(wait, true, |s| s.output || s.job.is_some())?;
                if self.output {
                    return Ok(());
                }
                let expected = "a message on stderr or stdout that tells what went wrong";
                Err(self.broken(None, &cited, expected.into(), "nothing".into()))
            }
            _ => Err(Stop::Scenario("this is not a step of the job".into())),
        }
    }
}
