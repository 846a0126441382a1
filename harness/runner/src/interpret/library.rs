//! Plays the steps of a scenario against a library under test: the runner calls the library (`A:`), expects its requests (`C:`) and acts
//! as its process manager (`S:`).
//!
//! The library decides when it makes a request. For example, it may request the limits in `PMI_Init` or on first use, and the mapping once
//! or at each call. Therefore, a scenario contains requests and responses only where they matter. Between a call and its return, `C:`
//! expects a request and `S:` answers it. Outside of calls, `C:` and `S:` define how all further requests of the same form are answered.
//! The reference server, in memory, answers all other requests.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pmi_judge::event::{Bytes, EventKind};
use pmi_judge::expectation::{ExpectationKind, Matcher, ReturnCode};
use pmi_judge::library::api::CallArgument;
use pmi_judge::{Judge, PartyKind, ScenarioOutcome, UnjudgedReason};
use pmi_scenario::ast::{
    Arg, Call, Piece, ProcessAction, Role, Scenario, Statement, Step, StepAction, StepTarget, ValueType,
};
use pmi_scenario::scope::ScenarioError;
use pmi_scenario::{signature, visit};
use pmi_wire::Proc;

use super::interpreter::{EarlyEnd, Interpreter, WalkEnd};
pub use super::manager::KVS_PREFIX;
use super::manager::{LibraryManager, ManagerResponse, ResponseRule};
use super::recorder::{EventSink, Recorder};
use super::walk::{Fragments, Position, walk};
use crate::party::library::{Library, LibraryParty};
use crate::party::{Party, ScenarioLimits, SilenceMeaning};

/// Plays a scenario against a library.
///
/// # Errors
///
/// Returns an error if the scenario depends on the placement of the processes, and a process manager has placed them on more nodes than
/// the scenario requests.
pub fn play(
    scenario: &Scenario,
    fragments: Fragments<'_>,
    library: &Library,
    limits: ScenarioLimits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Result<ScenarioOutcome, String> {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let mut party = LibraryParty::launch(library, scenario.ranks, limits.start(), interrupted);
    let (command, placed) = (party.command(), party.nodes());
    if placed.len() as u32 > scenario.nodes && asks_for_nodes(scenario) {
        return Err(UnjudgedReason::placement(scenario.ranks, &Vec::from_iter(placed)));
    }
    let nodes = scenario.nodes.max(placed.len() as u32);
    let recorder = Recorder::new(sink, Judge::new(PartyKind::Library, requires));
    let mut interpreter = Interpreter::new(scenario, &mut party, limits, recorder);
    let mut manager =
        LibraryManager::new(scenario, library.server.is_some()).map_err(|error| error.to_string())?;
    // A library without a process manager might never receive the name of its keyval space in a message, so the name is bound here.
    interpreter.scope.set("kvs", format!("{KVS_PREFIX}-0").into_bytes());
    interpreter.scope.set_agent(manager.server.agent(1));
    interpreter.manager = Some(manager);
    interpreter.recorder.record(EventKind::Launched { command, ranks: scenario.ranks, nodes });
    // If the run ended early, the judge has already received the reason.
    let _ = interpreter.run_calls(fragments);
    let Recorder { events, judge, .. } = interpreter.recorder;
    Ok(judge.finish(events))
}

/// Returns true if a scenario calls a function whose result depends on the placement of the processes.
fn asks_for_nodes(scenario: &Scenario) -> bool {
    let calls = |name: &str| {
        name.starts_with("PMI_Get_clique") || name.contains("NodeAttr") || name == "PMI2_Info_GetSize"
    };
    visit::steps(&scenario.body).any(|step| match &step.action {
        StepAction::Call(call) => call.function.as_ref().is_some_and(|function| calls(&function.value)),
        _ => false,
    })
}

fn mistake(what: &str) -> WalkEnd {
    WalkEnd::Mistake(what.to_owned())
}

impl Interpreter<'_> {
    fn run_calls(&mut self, fragments: Fragments<'_>) -> Result<(), EarlyEnd> {
        let scenario = self.scenario;
        walk(self, scenario, fragments).map_err(|ended| self.abandon(ended))?;
        // Processes that are still running have no more steps, so they are ordered to exit.
        for rank in 0..scenario.ranks {
            let p = Proc { group: 0, rank };
            let calls = self.recorder.judge.library();
            if calls.is_ready(p) && calls.call(p).is_none() && self.dismissed.insert(p) {
                self.party.exit(p, 0);
                self.expect(Some(p), ExpectationKind::ExitsAsInstructed)?;
            }
        }
        Ok(())
    }

    pub(super) fn library_step(&mut self, step: &Step, place: Position<'_>) -> Result<(), WalkEnd> {
        let ranks = match &step.target {
            StepTarget::Job => match &step.action {
                StepAction::Process(ProcessAction::Logged) => {
                    return Ok(self.expect(None, ExpectationKind::Logs)?);
                }
                _ => return Err(mistake("a library has no job; write `P: ends` for the end of a process")),
            },
            StepTarget::Ranks { group: 0, set } => self.members(0, set),
            StepTarget::Ranks { .. } | StepTarget::Spawned { .. } => {
                return Err(mistake("processes that a library spawns do not report to the runner"));
            }
        };
        let procs: Vec<Proc> = ranks.into_iter().map(|rank| Proc { group: 0, rank }).collect();
        if let StepAction::Call(call) = &step.action {
            // All calls begin before the runner waits for the first one to return, so that a scenario can write a collective call on a
            // single line.
            for p in procs.iter().filter(|_| call.function.is_some()) {
                let held = call.result.is_none() && self.is_scripted(place.rest, p.rank);
                self.begin(*p, call, held)?;
            }
            for p in procs.iter().filter(|_| call.result.is_some()) {
                self.end(*p, call, step.cites.is_some())?;
            }
            return Ok(());
        }
        for p in procs {
            if self.recorder.judge.is_over(p) {
                continue;
            }
            self.scope.enter(p.rank, self.scenario.ranks);
            match (step.role, &step.action) {
                (Role::Process, StepAction::Process(action)) => self.library_process_step(p, action)?,
                (Role::Client, action) => self.request_step(p, action)?,
                (Role::Server, action) => self.manager_step(p, action)?,
                _ => return Err(mistake("this role cannot perform this step")),
            }
        }
        Ok(())
    }

    /// Returns whether the scenario contains requests from this rank, or responses to it, before the result of its current call.
    fn is_scripted(&self, rest: &[Statement], rank: u32) -> bool {
        rest.iter()
            .find_map(|statement| {
                let Statement::Step(step) = statement else { return None };
                let StepTarget::Ranks { group: 0, set } = &step.target else { return None };
                match (&step.action, step.role) {
                    _ if !self.members(0, set).contains(&rank) => None,
                    (StepAction::Call(_), _) => Some(false),
                    (_, Role::Client | Role::Server) => Some(true),
                    _ => None,
                }
            })
            .unwrap_or(false)
    }

    // ----- library calls --------------------------------------------------------------------------------------------

    /// Makes a process load the library, if it has not done so yet.
    fn load(&mut self, p: Proc) -> Result<(), WalkEnd> {
        let manager = self.manager()?;
        if manager.started.insert(p) {
            let env = manager.env.get(&p).cloned().unwrap_or_default();
            self.party.start(p, env);
        }
        if !self.recorder.judge.library().is_ready(p) {
            self.expect(Some(p), ExpectationKind::Started)?;
        }
        Ok(())
    }

    fn begin(&mut self, p: Proc, call: &Call, held: bool) -> Result<(), WalkEnd> {
        let Some(name) = call.function.as_ref().filter(|_| !self.recorder.judge.is_over(p)) else {
            return Ok(());
        };
        if self.recorder.judge.library().call(p).is_some() {
            return Err(mistake("the previous call has not returned"));
        }
        let Some(function) = signature::function(&name.value) else {
            return Err(WalkEnd::Mistake(format!("neither PMI-1 nor PMI-2 has a function {}", name.value)));
        };
        self.scope.enter(p.rank, self.scenario.ranks);
        let arguments = call.args.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
        self.load(p)?;
        if self.recorder.judge.is_over(p) {
            return Ok(());
        }
        // Calls that other ranks have begun must return or block first, so that the result does not depend on the speed of the ranks. For
        // processes under a launcher, only a timeout can show that they block.
        let wait = if self.manager()?.launched { self.limits.silence } else { self.limits.step };
        for rank in (0..self.scenario.ranks).filter(|rank| *rank != p.rank) {
            let other = Proc { rank, ..p };
            self.process_events(Instant::now() + wait, SilenceMeaning::Expected, &|judge| {
                !judge.library().is_in_call(other)
            })?;
        }
        let function = function.name.to_owned();
        let called =
            EventKind::Called { proc: p, function: function.clone(), arguments: arguments.clone(), held };
        self.recorder.record(called);
        self.party.call(p, &function, arguments);
        Ok(())
    }

    fn argument(&self, arg: &Arg) -> Result<CallArgument, ScenarioError> {
        Ok(match arg {
            Arg::Text(text) => CallArgument::Text(Bytes(self.scope.text(text)?)),
            Arg::Number(expr) => {
                let number = self.scope.number(expr)?;
                let number = i32::try_from(number)
                    .map_err(|_| ScenarioError::Mistake(format!("{number} does not fit in an int")))?;
                CallArgument::Number(number)
            }
            Arg::Null => CallArgument::Null,
            Arg::Out(name, size) => {
                let size = size.as_ref().map(|size| self.scope.number(size)).transpose()?;
                CallArgument::Out(name.value.clone(), size.map(|n| usize::try_from(n).unwrap_or(0)))
            }
        })
    }

    fn end(&mut self, p: Proc, call: &Call, cites: bool) -> Result<(), WalkEnd> {
        let Some(wanted) = call.result.as_ref().filter(|_| !self.recorder.judge.is_over(p)) else {
            return Ok(());
        };
        let Some(begun) = self.recorder.judge.library().call(p) else {
            return Err(mistake("no call has begun"));
        };
        let is_out =
            |name: &str| begun.arguments.iter().any(|a| matches!(a, CallArgument::Out(n, _) if n == name));
        if let Some((name, _)) = call.outs.iter().find(|(name, _)| !is_out(&name.value)) {
            return Err(WalkEnd::Mistake(format!("the call has no output argument {}", name.value)));
        }
        // In a scenario about failures, a call that must succeed serves as a control. If the call fails, the library breaks the
        // requirement on the function's effect.
        let succeeds = signature::code(&wanted.value) == Some(signature::SUCCESS);
        if succeeds && !cites && signature::is_about_failures(&self.cited) {
            self.cited = begun.function.effect_requirement.to_owned();
        }
        let Some(code) = ReturnCode::new(&wanted.value) else {
            return Err(WalkEnd::Mistake(format!("unknown return code {}", wanted.value)));
        };
        self.scope.enter(p.rank, self.scenario.ranks);
        let outs = call.outs.iter();
        let outs = outs.map(|(name, value)| Ok((name.value.clone(), Matcher::new(&self.scope, value)?)));
        let outs = outs.collect::<Result<_, ScenarioError>>()?;
        Ok(self.expect(Some(p), ExpectationKind::Returns { code, outs })?)
    }

    // ----- requests of the library ----------------------------------------------------------------------------------

    fn request_step(&mut self, p: Proc, action: &StepAction) -> Result<(), WalkEnd> {
        let in_call = self.recorder.judge.library().call(p).is_some();
        match action {
            StepAction::Close => self.expect(Some(p), ExpectationKind::Close)?,
            StepAction::Message { lines, .. } if !in_call => {
                let rule = ResponseRule { request: lines.clone(), responses: Vec::new() };
                self.manager()?.rules.entry(p).or_default().push(rule);
            }
            _ if !in_call => return Err(mistake("a library sends requests only during a call")),
            StepAction::Message { lines, .. } => {
                let patterns = lines.iter().map(|line| self.pattern(line)).collect::<Result<_, _>>()?;
                self.expect(Some(p), ExpectationKind::SendsRequest(patterns))?;
                if let Some(request) = self.recorder.judge.library().consumed_request(p).cloned() {
                    self.introduce(p, &request)?;
                }
            }
            StepAction::OneOf(alternatives) => {
                let choices = alternatives.iter().map(|a| self.choice(a)).collect::<Result<_, _>>()?;
                self.expect(Some(p), ExpectationKind::OneOf(choices))?;
            }
            StepAction::Silence => self.expect(Some(p), ExpectationKind::Silence)?,
            _ => return Err(mistake("a library cannot perform this step")),
        }
        Ok(())
    }

    fn manager_step(&mut self, p: Proc, action: &StepAction) -> Result<(), WalkEnd> {
        let response = match action {
            StepAction::Message { mode, lines } => ManagerResponse::Write(*mode, lines.clone()),
            StepAction::Empty => ManagerResponse::Newline,
            StepAction::Close => ManagerResponse::Close,
            StepAction::Silence => ManagerResponse::Nothing,
            _ => return Err(mistake("the process manager of a library cannot perform this step")),
        };
        let in_call = self.recorder.judge.library().call(p).is_some();
        if let Some(rule) = self.manager()?.rules.get_mut(&p).and_then(|rules| rules.last_mut())
            && !in_call
        {
            rule.responses.push(response);
            return Ok(());
        }
        if !in_call {
            self.load(p)?;
        }
        Ok(self.reply(p, &response)?)
    }

    // ----- steps that control a process -----------------------------------------------------------------------------

    fn library_process_step(&mut self, p: Proc, action: &ProcessAction) -> Result<(), WalkEnd> {
        match action {
            ProcessAction::Env(name, value) => {
                let text = match value.pieces.as_slice() {
                    [Piece::Typed(ValueType::Absent)] => None,
                    _ => Some(String::from_utf8_lossy(&self.scope.text(value)?).into_owned()),
                };
                let manager = self.manager()?;
                if manager.started.contains(&p) {
                    return Err(mistake("the environment can only be set before the first call"));
                }
                let env = manager.env.entry(p).or_default();
                match text {
                    Some(text) => env.insert(name.value.clone(), text),
                    None => env.remove(&name.value),
                };
                return Ok(());
            }
            ProcessAction::Started => return self.load(p),
            ProcessAction::IsEnded | ProcessAction::Wait(_) => return self.process_step(p, action),
            ProcessAction::Exit(_) | ProcessAction::Kill(_) => self.process_step(p, action)?,
            _ => return Err(mistake("this step is not supported for a process that loads a library")),
        }
        let deadline = Instant::now() + self.limits.step;
        self.process_events(deadline, SilenceMeaning::ResponseDue, &|judge| judge.library().has_ended(p))?;
        Ok(())
    }
}
