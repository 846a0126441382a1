//! The reversed player: makes a library's calls (`A:`), expects its requests (`C:`) and is the process manager (`S:`).
//!
//! When a library asks what is its own affair: the limits in `PMI_Init` or on first use, the mapping once or at each call. So the
//! wire lines of a scenario only have to stand where they matter. Between a call and its return, `C:` awaits a request and `S:`
//! answers it; outside of calls, `C:` and `S:` say how such a request is to be answered from then on, whenever it comes. All else is
//! answered by the reference server, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pmi_reference::Config;
use pmi_wire::{LineFramer, Request, Response, ValueReading};

use super::memory::MemoryPeer;
use super::pattern::{Misfit, fits, value_fits};
use super::peer::{Incoming, Peer};
use super::player::{Limits, Outcome, SHOWN};
use super::recorder::{EventSink, Recorder};
use super::scope::{ScenarioError, Scope};
use crate::event::{Bytes, Exit, Proc, SilenceProof, What};
use crate::judge::api::{self, CALLERS};
use crate::judge::{Finding, Monitor, Party, Severity};
use crate::lang::ast::{
    Action, Alternative, Arg, Call, Grade, Kind, Piece, ProcessAction, RankSet, Role, Scenario, Source, Step,
    Stmt, Template, Who, WriteMode,
};
use crate::library::launch::{NO_RANK, News, Processes, Waited};
use crate::library::object::Shared;
use crate::library::{Argument, Held, Library, Returned, signature};

/// Longest line that the player keeps.
const LINE_LIMIT: usize = 1 << 20;
/// Most lines of one spawn request.
const BLOCK_LIMIT: usize = 10_000;
/// Descriptor that a process gets for PMI_FD where the scenario names none.
const PMI_FD: &str = "7";

/// Plays one scenario against a library.
pub(crate) fn play(
    scenario: &Scenario,
    fragment: &dyn Fn(&str) -> Option<Arc<Scenario>>,
    library: &Library,
    limits: Limits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Outcome {
    let requires: Vec<String> = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let config = Config { nodes: scenario.nodes, kvs_prefix: "library-kvs-".to_owned(), ..Config::default() };
    let mut server = MemoryPeer::launch(config, scenario.ranks);
    let agent = server.agent(1);
    let mut player = Player {
        scenario,
        fragment,
        library,
        limits,
        recorder: Recorder::new(sink, Monitor::focused(requires.clone())),
        processes: Processes::new(interrupted),
        server,
        scope: Scope::default(),
        source: Arc::clone(&scenario.source),
        ranks: (0..scenario.ranks).map(|_| Rank::default()).collect(),
        own: Vec::new(),
        cited: String::new(),
        received: 0,
        output: false,
        job_output: Vec::new(),
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
        Some(Stop::Unjudged(what)) => (None, Some(what)),
        Some(Stop::Broken) | None => (None, None),
    };
    let mut findings = std::mem::take(&mut player.recorder.findings);
    let events = &player.recorder.events;
    // Whether a process ends with or without PMI_Finalize is for its caller to say, too.
    let ends = |f: &Finding| matches!(events[f.seq as usize].what, What::ClosedByClient { .. });
    findings.retain(|f| f.party == Party::Client && !CALLERS.contains(&f.requirement.as_str()) && !ends(f));
    findings.iter_mut().for_each(|f| f.party = Party::Library);
    findings.append(&mut player.own);
    findings.sort_by_key(|f| f.seq);
    Outcome {
        findings,
        hung: player.hung,
        lifeless: player.unloadable,
        crashed: player.crashed.take(),
        under_test: Party::Library,
        unjudged,
        scenario_error,
        events: std::mem::take(&mut player.recorder.events),
    }
}

/// Why playing ended early.
enum Stop {
    Broken,
    Scenario(String),
    Unjudged(String),
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
    fragment: &'a dyn Fn(&str) -> Option<Arc<Scenario>>,
    library: &'a Library,
    limits: Limits,
    recorder: Recorder<'a>,
    processes: Processes<'a>,
    /// Answers what the scenario does not.
    server: MemoryPeer,
    scope: Scope,
    source: Arc<Source>,
    ranks: Vec<Rank>,
    own: Vec<Finding>,
    cited: String,
    received: u64,
    output: bool,
    /// What a launcher has said, or passed on.
    job_output: Vec<u8>,
    crashed: Option<(String, i32)>,
    hung: bool,
    unloadable: bool,
}

fn proc(rank: u32) -> Proc {
    Proc { group: 0, rank }
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
            launched.map_err(|e| Stop::Unjudged(e.to_string()))?;
        }
        self.body(&scenario.body, true)?;
        self.settle()
    }

    /// What the file shows, where the scenario asks for it.
    fn object(&mut self, requires: &[String]) -> Result<(), Stop> {
        let mut shared = None;
        for id in requires {
            let shared = match &shared {
                Some(shared) => shared,
                None => shared.insert(Shared::read(&self.library.path).map_err(Stop::Unjudged)?),
            };
            if let Some(Err(fault)) = shared.judge(id) {
                let finding = Finding {
                    requirement: id.clone(),
                    party: Party::Library,
                    proc: None,
                    seq: 0,
                    line: 0,
                    at_most: None,
                    expected: fault.expected,
                    seen: fault.seen,
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

    fn body(&mut self, body: &[Stmt], own: bool) -> Result<(), Stop> {
        for (index, stmt) in body.iter().enumerate() {
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
                    self.step(step, &body[index + 1..])?;
                }
            }
        }
        Ok(())
    }

    fn at(&mut self, offset: usize, own: bool) {
        if own {
            self.recorder.line = self.scenario.source.line_of(offset);
        }
    }

    fn step(&mut self, step: &Step, rest: &[Stmt]) -> Result<(), Stop> {
        self.scope.begin_step();
        let first = self.scenario.requires.first().map(|r| r.value.as_str()).unwrap_or_default();
        self.cited = step.cites.as_ref().map_or(first, |c| &c.value).to_owned();
        let ranks = match &step.who {
            Who::Job => return self.job_step(step),
            Who::Ranks { group: 0, set } => members(set, self.scenario.ranks),
            Who::Ranks { .. } => {
                return Err(Stop::Scenario("spawned processes do not report to a library's scenario".into()));
            }
        };
        if let Action::Call(call) = &step.action {
            // All begin before the first is waited for, so that a collective call can stand on one line.
            for rank in &ranks {
                if call.function.is_some() && !self.ranks[*rank as usize].let_go {
                    let scripted = call.result.is_none() && is_scripted(rest, *rank, self.scenario.ranks);
                    self.begin(*rank, call, scripted)?;
                }
            }
            for rank in &ranks {
                if call.result.is_some() && !self.ranks[*rank as usize].let_go {
                    self.end(*rank, call)?;
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

    // ----- processes ------------------------------------------------------------------------------------------------

    fn start(&mut self, rank: u32) -> Result<(), Stop> {
        let state = &mut self.ranks[rank as usize];
        if std::mem::replace(&mut state.started, true) {
            return Ok(());
        }
        let env: BTreeMap<String, String> =
            state.env.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
        if self.library.server.is_some() {
            return self.await_loaded(rank);
        }
        let started = self.processes.start(rank, self.library, &env);
        started.map_err(|e| Stop::Unjudged(format!("cannot start the process of rank {rank}: {e}")))?;
        self.recorder.record(What::Started { proc: proc(rank), env, args: Vec::new(), bad_fd: None });
        self.await_loaded(rank)
    }

    fn await_loaded(&mut self, rank: u32) -> Result<(), Stop> {
        self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            state.loaded.is_some() || state.exit.is_some()
        })?;
        match (self.ranks[rank as usize].loaded.clone(), self.ranks[rank as usize].exit) {
            (Some(None), _) => Ok(()),
            (Some(Some(why)), _) => {
                self.unloadable = true;
                Err(Stop::Unjudged(format!("the library cannot be loaded: {why}")))
            }
            (None, Some(Exit::Signal(signal))) => {
                self.crashed.get_or_insert(("the library, while it was loaded,".to_owned(), signal));
                Err(Stop::Broken)
            }
            (None, exit) => {
                self.unloadable = true;
                let how =
                    exit.map_or("it does not return".to_owned(), |exit| format!("the process ended, {exit}"));
                Err(Stop::Unjudged(format!("the library cannot be loaded: {how}")))
            }
        }
    }

    fn process_step(&mut self, rank: u32, action: &ProcessAction) -> Result<(), Stop> {
        match action {
            ProcessAction::Env(name, value) => {
                if self.ranks[rank as usize].started {
                    return Err(Stop::Scenario("the environment is set before the first call".into()));
                }
                let value = match value.pieces.as_slice() {
                    [Piece::Typed(Kind::Absent)] => None,
                    _ => Some(String::from_utf8_lossy(&self.scope.text(value)?).into_owned()),
                };
                self.ranks[rank as usize].env.insert(name.value.clone(), value);
                Ok(())
            }
            ProcessAction::Started => self.start(rank),
            ProcessAction::Ended => {
                let over = |s: &mut Self| {
                    let state = &s.ranks[rank as usize];
                    state.exit.is_some() || state.returned.is_some()
                };
                let proof = self.pump(Some(rank), over)?;
                if let Some(returned) = self.ranks[rank as usize].returned.take() {
                    self.take_return(rank, &returned);
                    let code = signature::code_name(returned.result);
                    return Err(self.broken(
                        Some(rank),
                        "the process ends",
                        format!("the call returned {code}"),
                    ));
                }
                match (self.ranks[rank as usize].exit, proof) {
                    (Some(_), _) => self.ended(rank),
                    (None, proof) => Err(self.hangs(rank, "the process ends", proof)),
                }
            }
            ProcessAction::Exit(status) => {
                self.dismiss(rank);
                self.processes.exit(rank, *status);
                self.pump(Some(rank), |s| s.ranks[rank as usize].exit.is_some()).map(drop)
            }
            ProcessAction::Kill(signal) => {
                self.dismiss(rank);
                self.processes.kill(rank, *signal);
                self.pump(Some(rank), |s| s.ranks[rank as usize].exit.is_some()).map(drop)
            }
            ProcessAction::Args(_)
            | ProcessAction::Ends(_)
            | ProcessAction::Copes
            | ProcessAction::SameOutput
            | ProcessAction::JobExit(_)
            | ProcessAction::Logged => {
                Err(Stop::Scenario("this cannot be said of a process that loads a library".into()))
            }
        }
    }

    fn dismiss(&mut self, rank: u32) {
        self.ranks[rank as usize].done = true;
        self.ranks[rank as usize].let_go = true;
        self.recorder.record(What::Ended { proc: proc(rank), ours: true });
    }

    fn job_step(&mut self, step: &Step) -> Result<(), Stop> {
        match &step.action {
            Action::Process(ProcessAction::Logged) => {
                let wait = self.limits.silence;
                self.pump_for(wait, None, |s| s.output)?;
                if self.output {
                    return Ok(());
                }
                Err(self.broken(None, "a message on stderr or stdout that tells what went wrong", "nothing"))
            }
            _ => Err(Stop::Scenario("a library has no job; `P: ended` is how a process ends".into())),
        }
    }

    /// Judges the end of a process that was not ours, once. It leaves nothing to go on with.
    fn ended(&mut self, rank: u32) -> Result<(), Stop> {
        let state = &mut self.ranks[rank as usize];
        let Some(exit) = state.exit else { return Ok(()) };
        state.let_go = true;
        if std::mem::replace(&mut state.done, true) {
            return Ok(());
        }
        let pending = state.pending.take();
        if let Some(Pending { function, arguments, .. }) = &pending
            && function.name == "PMI_Abort"
        {
            return self.aborted(rank, arguments, exit);
        }
        let call = pending.as_ref().map_or("between calls", |p| p.function.name);
        if let Exit::Signal(signal) = exit {
            self.crashed.get_or_insert((format!("the library, in {call},"), signal));
            return Err(Stop::Broken);
        }
        if self.ranks[rank as usize].wronged && exit != Exit::Code(0) {
            return Ok(());
        }
        Err(self.broken(Some(rank), "the call returns", format!("the process ended in {call}, {exit}")))
    }

    /// RFC 13: the message goes to standard error, then the process exits with the code.
    fn aborted(&mut self, rank: u32, arguments: &[Argument], exit: Exit) -> Result<(), Stop> {
        let message = match arguments.get(1) {
            Some(Argument::Text(text)) => text.0.clone(),
            _ => Vec::new(),
        };
        let unseen = self.ranks[rank as usize].unseen;
        let said = |output: &[u8]| memchr::memmem::find(output, &message).is_some();
        if unseen {
            // A launcher passes output on in its own time. It may have cut long lines, and exit codes are its own.
            self.pump(None, |s| memchr::memmem::find(&s.job_output, &message).is_some())?;
            if !said(&self.job_output) {
                let expected = format!("\"{}\" among the output of the job", message.escape_ascii());
                let seen = format!("\"{}\"", self.job_output.escape_ascii());
                self.find(Some(rank), "rfc13.abort.stderr", None, expected, seen);
            }
            return Ok(());
        }
        let stderr = &self.ranks[rank as usize].stderr;
        if !said(stderr) {
            let expected = format!("\"{}\" on standard error", message.escape_ascii());
            let seen = format!("\"{}\"", stderr.escape_ascii());
            self.find(Some(rank), "rfc13.abort.stderr", None, expected, seen);
        }
        let code = match arguments.first() {
            Some(Argument::Number(code)) => Exit::Code(code & 0xff),
            _ => exit,
        };
        if exit != code {
            self.find(Some(rank), "rfc13.abort.exit-code", None, code.to_string(), exit.to_string());
        }
        Ok(())
    }

    // ----- calls ----------------------------------------------------------------------------------------------------

    fn begin(&mut self, rank: u32, call: &Call, scripted: bool) -> Result<(), Stop> {
        let Some(name) = &call.function else { return Ok(()) };
        if self.ranks[rank as usize].pending.is_some() {
            return Err(Stop::Scenario("the call before has not returned".into()));
        }
        let Some(function) = signature::function(&name.value) else {
            return Err(Stop::Scenario(format!("RFC 13 has no function {}", name.value)));
        };
        self.scope.enter(rank, self.scenario.ranks);
        let arguments = call.args.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
        self.start(rank)?;
        self.ended_before(rank)?;
        self.others_settle(rank)?;
        if function.name == "PMI_Barrier" {
            self.ranks[rank as usize].barriers += 1;
        }
        let shown = arguments.iter().map(show).collect::<Vec<_>>().join(", ");
        self.recorder.record(What::Called {
            proc: proc(rank),
            function: function.name.to_owned(),
            arguments: shown,
        });
        self.processes.call(rank, function.name, arguments.clone());
        self.ranks[rank as usize].pending = Some(Pending { function, arguments, scripted });
        Ok(())
    }

    /// A process that is gone cannot be called.
    fn ended_before(&mut self, rank: u32) -> Result<(), Stop> {
        if self.ranks[rank as usize].exit.is_some() { self.ended(rank) } else { Ok(()) }
    }

    /// Calls of other ranks that have begun either return or wait: what they do must not depend on how fast they are.
    fn others_settle(&mut self, rank: u32) -> Result<(), Stop> {
        for other in 0..self.scenario.ranks {
            if other != rank && self.ranks[other as usize].pending.is_some() {
                // Of processes under a launcher only time can tell that they wait.
                let launched = self.library.server.is_some();
                let wait = if launched { self.limits.silence } else { self.limits.step };
                self.pump_for(wait, Some(other), |s| {
                    let state = &s.ranks[other as usize];
                    state.returned.is_some() || state.exit.is_some() || state.not_called.is_some()
                })?;
                if let Some(returned) = self.ranks[other as usize].returned.take() {
                    self.early(other, &returned);
                    self.ranks[other as usize].returned = Some(returned);
                }
            }
        }
        Ok(())
    }

    /// A barrier that lets a process out before all are in.
    fn early(&mut self, rank: u32, returned: &Returned) {
        let rounds = self.ranks[rank as usize].barriers;
        let barrier =
            self.ranks[rank as usize].pending.as_ref().is_some_and(|p| p.function.name == "PMI_Barrier");
        let missing =
            (0..self.scenario.ranks).find(|r| self.ranks[*r as usize].barriers < rounds && *r != rank);
        if let Some(missing) = missing.filter(|_| barrier && returned.result == 0) {
            let expected = "PMI_Barrier blocks until all processes have entered it";
            let seen = format!("it returned PMI_SUCCESS before rank {missing} had called it");
            // The same duty twice over, in the words of the API and of the protocol: what the scenario tests is cited.
            let all_in = "rfc13.barrier.all-in-before-any-out";
            let tested = self.scenario.requires.iter().any(|r| r.value == all_in);
            let id = if tested { all_in } else { "rfc13.api.barrier" };
            self.find(Some(rank), id, None, expected, seen);
        }
    }

    fn argument(&self, arg: &Arg) -> Result<Argument, Stop> {
        Ok(match arg {
            Arg::Text(text) => Argument::Text(Bytes(self.scope.text(text)?)),
            Arg::Number(expr) => {
                let number = self.scope.number(expr)?;
                let number = i32::try_from(number)
                    .map_err(|_| Stop::Scenario(format!("{number} does not fit an int")))?;
                Argument::Number(number)
            }
            Arg::Null => Argument::Null,
            Arg::Out(name, size) => {
                let size = size.as_ref().map(|size| self.scope.number(size)).transpose()?;
                Argument::Out(name.value.clone(), size.map(|n| usize::try_from(n).unwrap_or(0)))
            }
        })
    }

    fn end(&mut self, rank: u32, call: &Call) -> Result<(), Stop> {
        let Some(function) = self.ranks[rank as usize].pending.as_ref().map(|p| p.function) else {
            return Err(Stop::Scenario("no call has begun".into()));
        };
        if let Some(pending) = &mut self.ranks[rank as usize].pending {
            pending.scripted = false;
        }
        let proof = self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            state.returned.is_some() || state.exit.is_some() || state.not_called.is_some()
        })?;
        let wanted = call.result.as_ref().map(|r| r.value.as_str()).unwrap_or_default();
        if let Some((missing, why)) = self.ranks[rank as usize].not_called.take() {
            self.ranks[rank as usize].pending = None;
            return match missing {
                false => Err(Stop::Scenario(why)),
                // RFC 13: not even those that it calls optional should be missing, which its own scenario says.
                true if wanted == "any" || wanted == "fail" => Ok(()),
                true => Err(self.broken(Some(rank), format!("{} is called", function.name), why)),
            };
        }
        let Some(returned) = self.ranks[rank as usize].returned.take() else {
            if self.ranks[rank as usize].exit.is_some() {
                return self.ended(rank);
            }
            return Err(self.hangs(rank, &format!("{} returns", function.name), proof));
        };
        self.early(rank, &returned);
        self.take_return(rank, &returned);
        let good = match wanted {
            "any" => true,
            "fail" | "PMI_ERR_INVALID_KVS" => returned.result != 0,
            number => signature::code(number).or_else(|| number.parse().ok()) == Some(returned.result),
        };
        let code = signature::code_name(returned.result);
        if !good {
            let wanted = if wanted == "fail" { "an error" } else { wanted };
            let name = function.name;
            return Err(self.broken(
                Some(rank),
                format!("{name} returns {wanted}"),
                format!("it returned {code}"),
            ));
        }
        self.scope.enter(rank, self.scenario.ranks);
        for (name, expected) in &call.outs {
            let Some((_, held)) = returned.outs.iter().find(|(n, _)| *n == name.value) else {
                return Err(Stop::Scenario(format!("the call has no out argument {}", name.value)));
            };
            let seen = text_of(function, held);
            match value_fits(&mut self.scope, &name.value, expected, seen.as_deref()) {
                Ok(()) => {}
                Err(Misfit::Scenario(what)) => return Err(Stop::Scenario(what)),
                Err(Misfit::Message(what)) => {
                    let seen = match seen {
                        Some(seen) => format!("{}={}", name.value, seen.escape_ascii()),
                        None => format!("{} was not set", name.value),
                    };
                    return Err(self.broken(Some(rank), format!("{}: {what}", function.name), seen));
                }
            }
        }
        Ok(())
    }

    /// Books a return, and judges what can be judged of every one.
    fn take_return(&mut self, rank: u32, returned: &Returned) {
        let Some(Pending { function, .. }) = self.ranks[rank as usize].pending.take() else { return };
        let out = |(name, held): &(String, Held)| {
            let mut text = format!("{name}=").into_bytes();
            text.extend(text_of(function, held).unwrap_or_else(|| b"(unset)".to_vec()));
            text.truncate(SHOWN);
            Bytes(text)
        };
        self.recorder.record(What::Returned {
            proc: proc(rank),
            function: function.name.to_owned(),
            result: returned.result,
            outs: returned.outs.iter().filter(|(_, held)| *held != Held::Opaque).map(out).collect(),
        });
        if function.name == "PMI_Barrier" && returned.result != 0 {
            self.ranks[rank as usize].barriers -= 1;
        }
        for breach in api::returned(function, returned) {
            self.find(Some(rank), breach.requirement, breach.at_most, breach.expected, breach.seen);
        }
    }

    // ----- the wire -------------------------------------------------------------------------------------------------

    fn client_step(&mut self, rank: u32, action: &Action) -> Result<(), Stop> {
        if self.ranks[rank as usize].pending.is_none() {
            return match action {
                Action::Message { lines, .. } => {
                    let rule = Rule { pattern: lines.clone(), replies: Vec::new() };
                    self.ranks[rank as usize].rules.push(rule);
                    Ok(())
                }
                Action::Close => self.expect_close(rank),
                _ => Err(Stop::Scenario("outside of a call, a library says nothing".into())),
            };
        }
        match action {
            Action::Message { lines, .. } => {
                let expected = self.shown(lines);
                if self.await_request(rank, lines)? {
                    return Ok(());
                }
                let seen = self.without(rank);
                Err(self.broken(Some(rank), expected, seen))
            }
            Action::OneOf(alternatives) => self.expect_one_of(rank, alternatives),
            Action::Silence => {
                if let Some(asked) = self.await_any(rank)? {
                    let seen = asked.shown();
                    return Err(self.broken(Some(rank), "no request", seen));
                }
                Ok(())
            }
            Action::Close => self.expect_close(rank),
            _ => Err(Stop::Scenario("a library does not do that".into())),
        }
    }

    fn shown(&self, lines: &[Template]) -> String {
        let Some(first) = lines.first() else { return String::new() };
        let text = self.source.text.get(first.span.start..first.span.end).unwrap_or_default();
        text[..text.floor_char_boundary(SHOWN)].to_owned()
    }

    /// What a call did that was to ask for something.
    fn without(&mut self, rank: u32) -> String {
        let state = &self.ranks[rank as usize];
        let name = state.pending.as_ref().map_or("the call", |p| p.function.name);
        match (&state.returned, state.exit) {
            (Some(returned), _) => {
                format!("{name} returned {} without it", signature::code_name(returned.result))
            }
            (None, Some(exit)) => format!("the process ended in {name}, {exit}"),
            (None, None) => format!("{name} asks for nothing and waits"),
        }
    }

    /// The next request of a pending call; `None` if it returns, ends or waits without one.
    fn await_any(&mut self, rank: u32) -> Result<Option<Asked>, Stop> {
        self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            !state.asked.is_empty() || state.returned.is_some() || state.exit.is_some()
        })?;
        Ok(self.ranks[rank as usize].asked.pop_front())
    }

    /// Waits for a request of this form; others that come before it are answered. False if it does not come.
    fn await_request(&mut self, rank: u32, pattern: &[Template]) -> Result<bool, Stop> {
        while let Some(asked) = self.await_any(rank)? {
            self.scope.enter(rank, self.scenario.ranks);
            if self.matches(pattern, &asked)? {
                self.introduce(rank, &asked);
                self.ranks[rank as usize].answering = Some(asked);
                return Ok(true);
            }
            self.serve(rank, asked)?;
        }
        Ok(false)
    }

    /// Whether a request has this form: the lines of a spawn request in order, others of it between them.
    fn matches(&mut self, pattern: &[Template], asked: &Asked) -> Result<bool, Stop> {
        let mut lines = asked.lines.iter();
        for expected in pattern {
            loop {
                let Some(line) = lines.next() else { return Ok(false) };
                let fitting = match asked.is_spawn() {
                    true => block_line_fits(&mut self.scope, expected, line),
                    false => fits(&mut self.scope, expected, line),
                };
                match fitting {
                    Ok(()) => break,
                    Err(Misfit::Scenario(what)) => return Err(Stop::Scenario(what)),
                    Err(Misfit::Message(_)) => {}
                }
            }
        }
        Ok(true)
    }

    fn expect_one_of(&mut self, rank: u32, alternatives: &[Alternative]) -> Result<(), Stop> {
        loop {
            let asked = self.await_any(rank)?;
            self.scope.enter(rank, self.scenario.ranks);
            for alternative in alternatives {
                let fitting = match (&alternative.action, &asked) {
                    (Action::Message { lines, .. }, Some(asked)) => self.matches(lines, asked)?,
                    (Action::Silence, None) => true,
                    (Action::Close, None) => self.ranks[rank as usize].closed,
                    _ => false,
                };
                if !fitting {
                    continue;
                }
                let seen = asked.as_ref().map_or_else(|| self.without(rank), Asked::shown);
                // Without the request there is nothing to answer, and so nothing to go on with.
                self.ranks[rank as usize].let_go |= asked.is_none();
                self.ranks[rank as usize].answering = asked;
                let cited = alternative.cites.as_ref().map_or(self.cited.clone(), |c| c.value.clone());
                let at_most = match alternative.grade {
                    Grade::Pass => return Ok(()),
                    Grade::Note => Some(Severity::Note),
                    Grade::Warn => Some(Severity::Warn),
                    Grade::Fail => None,
                };
                self.find(
                    Some(rank),
                    &cited,
                    at_most,
                    "another of the outcomes that the scenario names",
                    seen,
                );
                return if at_most.is_some() { Ok(()) } else { Err(Stop::Broken) };
            }
            let Some(asked) = asked else {
                let seen = self.without(rank);
                return Err(self.broken(Some(rank), "one of the outcomes that the scenario names", seen));
            };
            self.serve(rank, asked)?;
        }
    }

    fn expect_close(&mut self, rank: u32) -> Result<(), Stop> {
        let proof = self
            .pump(Some(rank), |s| s.ranks[rank as usize].closed || s.ranks[rank as usize].exit.is_some())?;
        match proof {
            None => Ok(()),
            Some(proof) => {
                let seen = self.silence(proof);
                Err(self.broken(Some(rank), "the library closes its connection", seen))
            }
        }
    }

    fn server_step(&mut self, rank: u32, action: &Action) -> Result<(), Stop> {
        let reply = match action {
            Action::Message { mode, lines } => Reply::Write(*mode, lines.clone()),
            Action::Empty => Reply::Newline,
            Action::Close => Reply::Close,
            Action::Silence => Reply::Nothing,
            _ => return Err(Stop::Scenario("we cannot do that as the process manager".into())),
        };
        if self.ranks[rank as usize].pending.is_some() {
            let asked = self.ranks[rank as usize].answering.take();
            self.reply(rank, asked.as_ref(), &reply)?;
            self.ranks[rank as usize].answering = asked;
            return Ok(());
        }
        match self.ranks[rank as usize].rules.last_mut() {
            Some(rule) => {
                rule.replies.push(reply);
                Ok(())
            }
            None => {
                self.start(rank)?;
                self.reply(rank, None, &reply)
            }
        }
    }

    fn reply(&mut self, rank: u32, asked: Option<&Asked>, reply: &Reply) -> Result<(), Stop> {
        self.scope.enter(rank, self.scenario.ranks);
        let (mode, lines) = match reply {
            Reply::Nothing => return Ok(()),
            Reply::Close => {
                self.ranks[rank as usize].wronged = true;
                self.recorder.record(What::ClosedByServer { proc: proc(rank) });
                self.processes.close(rank);
                self.ranks[rank as usize].closed = true;
                return Ok(());
            }
            Reply::Newline => {
                self.send(rank, b"\n");
                return Ok(());
            }
            Reply::Write(mode, lines) => (*mode, lines),
        };
        let mut writes = vec![Vec::new()];
        for (i, line) in lines.iter().enumerate() {
            for (j, part) in self.scope.writes(line)?.into_iter().enumerate() {
                if j > 0 {
                    writes.push(Vec::new());
                }
                if let Some(last) = writes.last_mut() {
                    last.extend(part);
                }
            }
            if let Some(last) = writes.last_mut().filter(|_| !mode.partial || i + 1 < lines.len()) {
                last.push(b'\n');
            }
        }
        let text = writes.concat();
        self.ranks[rank as usize].wronged |= mode.partial || !answers(asked, &text);
        for write in writes {
            let parts = if mode.bytewise { 1 } else { write.len().max(1) };
            for bytes in write.chunks(parts) {
                self.send(rank, bytes);
            }
        }
        Ok(())
    }

    fn send(&mut self, rank: u32, bytes: &[u8]) {
        self.recorder.record(What::FromServer { proc: proc(rank), bytes: Bytes(bytes.to_vec()) });
        self.processes.send(rank, bytes);
    }

    /// Answers a request by the scenario's rules, or else as the reference server does.
    fn serve(&mut self, rank: u32, asked: Asked) -> Result<(), Stop> {
        self.scope.enter(rank, self.scenario.ranks);
        let rules = std::mem::take(&mut self.ranks[rank as usize].rules);
        let mut found = None;
        for rule in rules.iter().rev() {
            if self.matches(&rule.pattern, &asked)? {
                found = Some(rule.replies.clone());
                break;
            }
        }
        self.ranks[rank as usize].rules = rules;
        if let Some(replies) = found {
            self.introduce(rank, &asked);
            return replies.iter().try_for_each(|reply| self.reply(rank, Some(&asked), reply));
        }
        self.ask_server(rank, &asked);
        self.relay();
        Ok(())
    }

    /// Lets the reference server know whom it has before it, where the scenario answers init.
    fn introduce(&mut self, rank: u32, asked: &Asked) {
        if asked.is("init") {
            self.ask_server(rank, asked);
            while let Incoming::Event(_) = self.server.next(Instant::now(), false) {}
        }
    }

    fn ask_server(&mut self, rank: u32, asked: &Asked) {
        let mut text = asked.lines.join(&b'\n');
        text.push(b'\n');
        self.server.send(proc(rank), &text);
    }

    /// Carries out what the reference server does.
    fn relay(&mut self) {
        while let Incoming::Event(what) = self.server.next(Instant::now(), false) {
            match what {
                What::FromServer { proc, bytes } if proc.group == 0 => self.send(proc.rank, &bytes.0),
                What::ClosedByServer { proc } if proc.group == 0 => {
                    let state = &mut self.ranks[proc.rank as usize];
                    if !std::mem::replace(&mut state.closed, true) {
                        self.recorder.record(What::ClosedByServer { proc });
                        self.processes.close(proc.rank);
                    }
                }
                _ => {}
            }
        }
    }

    // ----- what comes in --------------------------------------------------------------------------------------------

    fn take(&mut self, rank: u32, news: News) {
        match news {
            News::Loaded(error) => self.ranks[rank as usize].loaded = Some(error),
            News::Returned(returned) => self.ranks[rank as usize].returned = Some(returned),
            News::NotCalled(missing, why) => self.ranks[rank as usize].not_called = Some((missing, why)),
            News::Wire(bytes) => {
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
                        let programs = counted(&state.block);
                        if last && programs.is_none_or(|(total, so_far)| so_far >= total) {
                            state.asked.push_back(Asked { lines: std::mem::take(&mut state.block) });
                        }
                    } else {
                        state.asked.push_back(Asked { lines: vec![line] });
                    }
                }
            }
            News::WireClosed => {
                self.ranks[rank as usize].closed = true;
                self.recorder.record(What::ClosedByClient { proc: proc(rank) });
            }
            News::Output(stderr, line) => {
                self.output = true;
                let told = match self.ranks.get_mut(rank as usize) {
                    Some(state) => &mut state.stderr,
                    None => &mut self.job_output,
                };
                // A job's output may come through its launcher, which need not keep the two apart.
                if stderr || rank == NO_RANK {
                    told.extend_from_slice(&line.0);
                    told.push(b'\n');
                }
                self.recorder.record(What::Output { stderr, line });
            }
            News::Exited(None) => {
                let state = &mut self.ranks[rank as usize];
                (state.exit, state.unseen) = (Some(Exit::Code(0)), true);
                self.recorder.record(What::Ended { proc: proc(rank), ours: state.done });
            }
            News::Exited(Some(exit)) => {
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
                Waited::News(rank, news) => self.take(rank, news),
                Waited::Idle => return Ok(Some(SilenceProof::Idle)),
                Waited::Deadline => return Ok(Some(SilenceProof::Timeout)),
                Waited::Interrupted => return Err(Stop::Unjudged("interrupted".into())),
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
            party: Party::Library,
            proc: rank.map(proc),
            seq: self.recorder.events.last().map_or(0, |e| e.seq),
            line: self.recorder.line,
            at_most,
            expected: expected.into(),
            seen: seen.into(),
        });
    }
}

/// Checks a line of a spawn request: one tuple, whose value runs to the end of the line.
fn block_line_fits(scope: &mut Scope, expected: &Template, line: &[u8]) -> Result<(), Misfit> {
    let split = memchr::memchr(b'=', line).map(|at| (&line[..at], &line[at + 1..]));
    match (expected.message_fields().first(), split) {
        (Some(field), Some((key, value))) if field.key.as_bytes() == key => {
            value_fits(scope, &field.key, &field.value, Some(value))
        }
        _ if expected.literal().is_some_and(|text| text.as_bytes() == line) => Ok(()),
        _ => Err(Misfit::Message("another line".into())),
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

/// `totspawns` and `spawnssofar`, as the lines of a spawn request have them last.
fn counted(block: &[Vec<u8>]) -> Option<(u64, u64)> {
    let last = |key: &str| {
        let found = block.iter().rev().find_map(|line| line.strip_prefix(key.as_bytes()))?;
        std::str::from_utf8(found).ok()?.parse().ok()
    };
    Some((last("totspawns=")?, last("spawnssofar=")?))
}

/// Whether what we say is a response to what was asked.
fn answers(asked: Option<&Asked>, text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\n") else { return false };
    let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) else { return false };
    let request = asked.and_then(|asked| asked.lines.first());
    match request {
        Some(first) if first.starts_with(b"mcmd=spawn") => response.operation() == pmi_wire::Operation::Spawn,
        Some(first) => Request::parse(first, ValueReading::ToEndOfLine)
            .is_ok_and(|request| request.operation() == response.operation()),
        None => false,
    }
}

/// An argument as the scenario writes it.
fn show(argument: &Argument) -> String {
    match argument {
        Argument::Text(text) => {
            let text = format!("{text}");
            format!("\"{}\"", &text[..text.floor_char_boundary(SHOWN)])
        }
        Argument::Number(number) => number.to_string(),
        Argument::Null => "NULL".to_owned(),
        Argument::Out(name, None) => format!("&{name}"),
        Argument::Out(name, Some(size)) => format!("&{name}[{size}]"),
    }
}

/// What an out argument holds, as text. The order of clique ranks is open: they come sorted.
fn text_of(function: &signature::Function, held: &Held) -> Option<Vec<u8>> {
    match held {
        Held::Int(number) => number.map(|n| n.to_string().into_bytes()),
        Held::Text(text) => text.as_ref().map(|text| text.0.clone()),
        Held::Ints(all) => {
            let mut set: Vec<i32> = all.iter().copied().flatten().collect();
            if function.name == "PMI_Get_clique_ranks" {
                set.sort_unstable();
            }
            Some(set.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into_bytes())
        }
        Held::Opaque => None,
    }
}
