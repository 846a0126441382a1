//! The reversed player: makes a library's calls (`A:`), expects its requests (`C:`) and is the process manager (`S:`).
//!
//! When a library asks what is its own affair: the limits in `PMI_Init` or on first use, the mapping once or at each call. So the
//! wire lines of a scenario only have to stand where they matter. Between a call and its return, `C:` awaits a request and `S:`
//! answers it; outside of calls, `C:` and `S:` say how such a request is to be answered from then on, whenever it comes. All else is
//! answered by the reference server, in memory.

mod calls;
mod process;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pmi_reference::Config;
use pmi_wire::{LineFramer, Request, Response, ValueReading};

use super::{EventSink, Recorder};
use crate::agent::protocol::Argument;
use crate::interpret::walk::{Fragments, Place, Steps, walk};
use crate::party::Limits;
use crate::party::MemoryParty;
use crate::party::library::Library;
use crate::party::library::launch::{Awaited, Processes, RankEvent};
use crate::party::library::object::Shared;
use crate::party::{Incoming, Party};
use pmi_judge::api::{self, CALLERS};
use pmi_judge::api::{Held, Returned};
use pmi_judge::event::{Bytes, Exit, SilenceProof, What};
use pmi_judge::expectation::SHOWN;
use pmi_judge::pattern::{Misfit, fits, value_fits};
use pmi_judge::{Finding, Judge, Outcome, Severity, Side, Unjudged};
use pmi_scenario::ast::{
    Action, Alternative, Arg, Call, Grade, Kind, Piece, ProcessAction, RankSet, Role, Scenario, Source, Step,
    Stmt, Template, Who, WriteMode,
};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_scenario::signature;
use pmi_wire::Proc;

/// Longest line that the player keeps.
const LINE_LIMIT: usize = 1 << 20;
/// Most lines of one spawn request.
const BLOCK_LIMIT: usize = 10_000;
/// First part of the names of keyval spaces that the reference server gives.
pub const KVS_PREFIX: &str = "library-kvs-";
/// Descriptor that a process gets for PMI_FD where the scenario names none.
const PMI_FD: &str = "7";

/// Plays one scenario against a library.
pub fn play(
    scenario: &Scenario,
    fragment: Fragments<'_>,
    library: &Library,
    limits: Limits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Outcome {
    let requires: Vec<String> = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let config = Config { nodes: scenario.nodes, kvs_prefix: KVS_PREFIX.to_owned(), ..Config::default() };
    let mut server = MemoryParty::launch(config, scenario.ranks);
    let agent = server.agent(1);
    let mut player = Player {
        scenario,
        fragment,
        library,
        limits,
        recorder: Recorder::new(sink, Judge::new(Side::Client, requires.clone())),
        processes: Processes::new(interrupted),
        server,
        scope: Scope::default(),
        source: Arc::clone(&scenario.source),
        ranks: (0..scenario.ranks).map(|_| Rank::default()).collect(),
        own: Vec::new(),
        cited: String::new(),
        received: 0,
        output: false,
        crashed: None,
        hung: false,
        unloadable: false,
    };
    player.scope.set_agent(agent);
    let command = vec![library.path.display().to_string()];
    player.recorder.record(What::Launched { command, ranks: scenario.ranks, nodes: scenario.nodes });
    let stop = player.run(&requires).err();
    let (scenario_error, unjudged) = match stop {
        Some(Stop::Scenario(what)) => (Some((player.recorder.line, what)), None),
        Some(Stop::Unjudged(why)) => (None, Some(why)),
        Some(Stop::Broken) | None => (None, None),
    };
    let mut findings = player.recorder.judge.take_watched();
    let events = &player.recorder.events;
    // Whether a process ends with or without PMI_Finalize is for its caller to say, too.
    let ends = |f: &Finding| matches!(events[f.seq as usize].what, What::ClosedByClient { .. });
    findings.retain(|f| f.party == Side::Client && !CALLERS.contains(&f.requirement.as_str()) && !ends(f));
    findings.iter_mut().for_each(|f| f.party = Side::Library);
    findings.append(&mut player.own);
    findings.sort_by_key(|f| f.seq);
    Outcome {
        findings,
        hung: player.hung,
        lifeless: player.unloadable,
        crashed: player.crashed.take(),
        left: Vec::new(),
        under_test: Side::Library,
        unjudged,
        scenario_error,
        events: std::mem::take(&mut player.recorder.events),
    }
}

/// Why playing ended early.
enum Stop {
    Broken,
    Scenario(String),
    Unjudged(Unjudged),
}

impl Stop {
    fn unplayable(why: String) -> Self {
        Self::Unjudged(Unjudged::Unplayable(why))
    }
}

impl From<ScenarioError> for Stop {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error.0)
    }
}

/// A request: one line, or the lines of a spawn request.
struct Asked {
    lines: Vec<Vec<u8>>,
}

impl Asked {
    fn shown(&self) -> String {
        let text = self.lines.iter().map(|l| l.escape_ascii().to_string()).collect::<Vec<_>>().join("; ");
        format!("\"{}\"", &text[..text.floor_char_boundary(SHOWN)])
    }

    fn is_spawn(&self) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with(b"mcmd="))
    }

    fn is(&self, cmd: &str) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with(format!("cmd={cmd}").as_bytes()))
    }
}

/// What we do to a request.
#[derive(Clone)]
enum Reply {
    Write(WriteMode, Vec<Template>),
    Newline,
    Close,
    Nothing,
}

/// How requests of a kind are answered.
struct Rule {
    pattern: Vec<Template>,
    replies: Vec<Reply>,
}

/// A call that has begun.
struct Pending {
    function: &'static signature::Function,
    arguments: Vec<Argument>,
    /// Wire lines stand between it and its return: nothing is answered but by them.
    scripted: bool,
}

#[derive(Default)]
struct Rank {
    env: BTreeMap<String, Option<String>>,
    started: bool,
    loaded: Option<Option<String>>,
    framer: Option<LineFramer>,
    /// Lines of a spawn request that is not complete.
    block: Vec<Vec<u8>>,
    asked: VecDeque<Asked>,
    /// The request that `S:` lines within a call answer.
    answering: Option<Asked>,
    rules: Vec<Rule>,
    pending: Option<Pending>,
    returned: Option<Returned>,
    not_called: Option<(bool, String)>,
    /// The connection is over.
    closed: bool,
    /// We have broken the protocol towards it: ending the process is a lawful answer.
    wronged: bool,
    /// The process has ended.
    exit: Option<Exit>,
    /// How it has ended is not known.
    unseen: bool,
    /// Its end has been judged, or was ours.
    done: bool,
    /// An outcome that a step allows has come that leaves nothing to go on with.
    let_go: bool,
    stderr: Vec<u8>,
    barriers: u32,
}

impl Rank {
    fn is_in_call(&self) -> bool {
        self.pending.is_some() && self.returned.is_none() && self.exit.is_none()
    }
}

struct Player<'a> {
    scenario: &'a Scenario,
    fragment: Fragments<'a>,
    library: &'a Library,
    limits: Limits,
    recorder: Recorder<'a>,
    processes: Processes<'a>,
    /// Answers what the scenario does not.
    server: MemoryParty,
    scope: Scope,
    source: Arc<Source>,
    ranks: Vec<Rank>,
    own: Vec<Finding>,
    cited: String,
    received: u64,
    output: bool,
    crashed: Option<(String, i32)>,
    hung: bool,
    unloadable: bool,
}

fn proc(rank: u32) -> Proc {
    Proc { group: 0, rank }
}

impl Steps for Player<'_> {
    type Stop = Stop;

    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn at(&mut self, line: usize) {
        self.recorder.line = line;
    }

    fn step(&mut self, step: &Step, place: Place<'_>) -> Result<(), Stop> {
        if !Arc::ptr_eq(&self.source, place.source) {
            self.source = Arc::clone(place.source);
        }
        self.scope.begin_step();
        let first = self.scenario.requires.first().map(|r| r.value.as_str()).unwrap_or_default();
        self.cited = step.cites.as_ref().map_or(first, |c| &c.value).to_owned();
        let ranks = match &step.who {
            Who::Job => return self.job_step(step),
            Who::Ranks { group: 0, set } => members(set, self.scenario.ranks),
            Who::Ranks { .. } | Who::Spawned { .. } => {
                return Err(Stop::Scenario("spawned processes do not report to a library's scenario".into()));
            }
        };
        if let Action::Call(call) = &step.action {
            // All begin before the first is waited for, so that a collective call can stand on one line.
            for rank in &ranks {
                if call.function.is_some() && !self.ranks[*rank as usize].let_go {
                    let scripted =
                        call.result.is_none() && is_scripted(place.rest, *rank, self.scenario.ranks);
                    self.begin(*rank, call, scripted)?;
                }
            }
            for rank in &ranks {
                if call.result.is_some() && !self.ranks[*rank as usize].let_go {
                    self.end(*rank, call, step.cites.is_some())?;
                }
            }
            return Ok(());
        }
        for rank in ranks {
            if self.ranks[rank as usize].let_go {
                continue;
            }
            self.scope.enter(rank, self.scenario.ranks);
            match (step.role, &step.action) {
                (Role::Process, Action::Process(action)) => self.process_step(rank, action)?,
                (Role::Client, action) => self.client_step(rank, action)?,
                (Role::Server, action) => self.server_step(rank, action)?,
                _ => return Err(Stop::Scenario("this role cannot do that".into())),
            }
        }
        Ok(())
    }
}

impl Player<'_> {
    fn run(&mut self, requires: &[String]) -> Result<(), Stop> {
        self.object(requires)?;
        while let Incoming::Event(what) = self.server.next(Instant::now(), false) {
            if let What::Started { proc, env, .. } = what {
                let env = env.into_iter().map(|(name, value)| (name, Some(value)));
                self.ranks[proc.rank as usize].env = env.collect();
                self.ranks[proc.rank as usize].env.insert("PMI_FD".to_owned(), Some(PMI_FD.to_owned()));
            }
        }
        let scenario = self.scenario;
        if let Some(server) = &self.library.server {
            let launched = self.processes.launch(scenario.ranks, server, self.library);
            launched.map_err(|e| Stop::unplayable(e.to_string()))?;
        }
        walk(self, scenario, self.fragment)?;
        self.settle()
    }

    /// What the file shows, where the scenario asks for it.
    fn object(&mut self, requires: &[String]) -> Result<(), Stop> {
        let mut shared = None;
        for id in requires {
            let shared = match &shared {
                Some(shared) => shared,
                None => shared
                    .insert(Shared::read(&self.library.path).map_err(|e| Stop::unplayable(e.to_string()))?),
            };
            if let Some(Err(fault)) = shared.judge(id) {
                let finding = Finding {
                    requirement: id.clone(),
                    party: Side::Library,
                    proc: None,
                    seq: 0,
                    line: 0,
                    at_most: None,
                    expected: fault.expected,
                    seen: fault.seen,
                    kind: None,
                };
                self.own.push(finding);
            }
        }
        Ok(())
    }

    /// Lets the processes end, and sees whether they do.
    fn settle(&mut self) -> Result<(), Stop> {
        for rank in 0..self.scenario.ranks {
            let state = &self.ranks[rank as usize];
            if !state.started || state.exit.is_some() || state.pending.is_some() {
                continue;
            }
            self.ranks[rank as usize].done = true;
            self.processes.exit(rank, 0);
            let proof = self.pump(Some(rank), |s| s.ranks[rank as usize].exit.is_some())?;
            if let Some(Exit::Signal(signal)) = self.ranks[rank as usize].exit {
                self.crashed.get_or_insert(("the process, at its exit,".to_owned(), signal));
            } else if let Some(proof) = proof {
                self.hung = true;
                let seen = self.silence(proof);
                return Err(self.broken(Some(rank), "the process exits", seen));
            }
        }
        Ok(())
    }

    // ----- what comes in --------------------------------------------------------------------------------------------

    fn take(&mut self, rank: u32, event: RankEvent) {
        match event {
            RankEvent::Loaded(error) => self.ranks[rank as usize].loaded = Some(error),
            RankEvent::Returned(returned) => self.ranks[rank as usize].returned = Some(returned),
            RankEvent::NotCalled(missing, why) => self.ranks[rank as usize].not_called = Some((missing, why)),
            RankEvent::Wire(bytes) => {
                self.received += bytes.len() as u64;
                self.recorder.record(What::ToServer { proc: proc(rank), bytes: Bytes(bytes.clone()) });
                let state = &mut self.ranks[rank as usize];
                let framer = state.framer.get_or_insert_with(|| LineFramer::new(LINE_LIMIT));
                framer.push(&bytes);
                while let Some(line) = framer.next_line() {
                    let line = line.unwrap_or(b"").to_vec();
                    let spawn = !state.block.is_empty() || line.starts_with(b"mcmd=spawn");
                    if spawn && state.block.len() < BLOCK_LIMIT {
                        let last = line == b"endcmd";
                        state.block.push(line);
                        let programs = wire::counted(&state.block);
                        if last && programs.is_none_or(|(total, so_far)| so_far >= total) {
                            state.asked.push_back(Asked { lines: std::mem::take(&mut state.block) });
                        }
                    } else {
                        state.asked.push_back(Asked { lines: vec![line] });
                    }
                }
            }
            RankEvent::WireClosed => {
                self.ranks[rank as usize].closed = true;
                self.recorder.record(What::ClosedByClient { proc: proc(rank) });
            }
            RankEvent::Output(stderr, line) => {
                self.output = true;
                let state = &mut self.ranks[rank as usize];
                if stderr {
                    state.stderr.extend_from_slice(&line.0);
                    state.stderr.push(b'\n');
                }
                self.recorder.record(What::Output { stderr, line });
            }
            RankEvent::Exited(None) => {
                let state = &mut self.ranks[rank as usize];
                (state.exit, state.unseen) = (Some(Exit::Code(0)), true);
                self.recorder.record(What::Ended { proc: proc(rank), ours: state.done });
            }
            RankEvent::Exited(Some(exit)) => {
                self.ranks[rank as usize].exit = Some(exit);
                self.recorder.record(What::Exited { proc: proc(rank), exit });
                if !self.ranks[rank as usize].done {
                    let status = match exit {
                        Exit::Code(code) => code as u8,
                        Exit::Signal(_) => 1,
                    };
                    self.server.exit(proc(rank), status);
                    self.relay();
                }
            }
        }
    }

    fn pump(
        &mut self,
        rank: Option<u32>,
        done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Option<SilenceProof>, Stop> {
        self.pump_for(self.limits.step, rank, done)
    }

    /// Waits until `done`, or until `rank` waits for us or the time is up. Meanwhile answers what is asked in calls that
    /// the scenario does not script.
    fn pump_for(
        &mut self,
        wait: Duration,
        rank: Option<u32>,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Option<SilenceProof>, Stop> {
        let deadline = Instant::now() + wait;
        loop {
            for other in 0..self.scenario.ranks {
                let state = &mut self.ranks[other as usize];
                if state.pending.as_ref().is_some_and(|p| p.scripted) {
                    continue;
                }
                while let Some(asked) = self.ranks[other as usize].asked.pop_front() {
                    self.serve(other, asked)?;
                }
            }
            if done(self) {
                return Ok(None);
            }
            // Who is in a call may still do what the rank waits for.
            let in_call = |(other, state): &(u32, &Rank)| Some(*other) == rank || state.is_in_call();
            let ranks = (0..).zip(&self.ranks).filter(in_call).map(|(other, _)| other);
            let ranks: Vec<u32> = if rank.is_some() { ranks.collect() } else { Vec::new() };
            match self.processes.next(deadline, &ranks) {
                Awaited::Event(rank, event) => self.take(rank, event),
                Awaited::Launcher(stderr, line) => {
                    self.recorder.record(What::Output { stderr, line });
                }
                Awaited::Idle => return Ok(Some(SilenceProof::Idle)),
                Awaited::Deadline => return Ok(Some(SilenceProof::Timeout)),
                Awaited::Interrupted => return Err(Stop::Unjudged(Unjudged::Interrupted)),
            }
            if self.received > self.limits.bytes {
                let seen = format!("more than {} bytes", self.limits.bytes);
                self.find(rank, "rfc13.wire.lock-step", None, "one request after the other", seen);
                return Err(Stop::Broken);
            }
        }
    }

    // ----- findings -------------------------------------------------------------------------------------------------

    fn hangs(&mut self, rank: u32, expected: &str, proof: Option<SilenceProof>) -> Stop {
        self.hung = true;
        let proof = proof.unwrap_or(SilenceProof::Timeout);
        let seen = self.silence(proof);
        self.broken(Some(rank), expected, seen)
    }

    fn silence(&self, proof: SilenceProof) -> String {
        match proof {
            SilenceProof::Idle => "nothing: the process waits, and nothing is due to it".into(),
            SilenceProof::Timeout => format!("nothing for {:?}", self.limits.step),
        }
    }

    fn broken(&mut self, rank: Option<u32>, expected: impl Into<String>, seen: impl Into<String>) -> Stop {
        let cited = self.cited.clone();
        self.find(rank, &cited, None, expected, seen);
        Stop::Broken
    }

    fn find(
        &mut self,
        rank: Option<u32>,
        requirement: &str,
        at_most: Option<Severity>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.own.push(Finding {
            requirement: requirement.to_owned(),
            party: Side::Library,
            proc: rank.map(proc),
            seq: self.recorder.events.last().map_or(0, |e| e.seq),
            line: self.recorder.line,
            at_most,
            expected: expected.into(),
            seen: seen.into(),
            kind: None,
        });
    }
}

/// The ranks of a set, in its order.
fn members(set: &RankSet, size: u32) -> Vec<u32> {
    match set {
        RankSet::All => (0..size).collect(),
        RankSet::Ranges(ranges) => ranges.iter().flat_map(|(a, b)| *a..=*b).collect(),
    }
}

/// Whether wire lines for this rank stand before the line that tells what its call returns.
fn is_scripted(rest: &[Stmt], rank: u32, size: u32) -> bool {
    for stmt in rest {
        let Stmt::Step(step) = stmt else { continue };
        let Who::Ranks { group: 0, set } = &step.who else { continue };
        if !members(set, size).contains(&rank) {
            continue;
        }
        match (&step.action, step.role) {
            (Action::Call(_), _) => return false,
            (_, Role::Client | Role::Server) => return true,
            _ => {}
        }
    }
    false
}
