//! Plays scenarios without expectations, for campaigns. A step that waits for a message accepts any message, and only the monitors judge
//! the run. A [`RunWatcher`] controls the run.

use std::time::{Duration, Instant};

use pmi_judge::event::{AbandonReason, EventKind, Exit, SilenceProof};
use pmi_judge::{Judge, PartyKind, ReceivedMessage, ScenarioOutcome};
use pmi_scenario::ast::{Piece, Role, Scenario, Step, StepAction, Template, UpstreamAction, ValueType};
use pmi_wire::Proc;

use super::interpreter::{EarlyEnd, Interpreter, WalkEnd};
use super::recorder::{EventSink, Recorder};
use super::walk::{Fragments, walk};
use crate::party::{Party, ScenarioLimits, SilenceMeaning};

/// Minimum time that the processes of a job are given to report to the runner.
const MIN_START_TIME: Duration = Duration::from_secs(5);

/// Time without events after which the runner gives up on a job that does not end. Processes that were ordered to exit do so after a short
/// delay.
const SETTLE_TIME: Duration = Duration::from_millis(150);

/// Maximum time for a server that is exiting to close all connections.
const CLOSE_TIME: Duration = Duration::from_millis(20);

/// Upper bound for the maximum lengths that a server announces. It prevents the runner from sending huge values.
const MAX_LENGTH: i64 = 1 << 20;

/// The result of playing a scenario without expectations.
#[derive(Debug)]
pub struct WatchedRun {
    /// The events of the run, and the findings of the monitors.
    pub outcome: ScenarioOutcome,
    /// The exit of the launcher.
    pub exit: Option<Exit>,
    /// Number of events recorded when the last step ended. Later events belong to the end of the job.
    pub steps_done: usize,
    /// The proof of silence if the job did not end although every process had ended.
    pub running_job_proof: Option<SilenceProof>,
}

/// Plays the steps of a scenario without expectations. After the last step, the job has at most `ending` to end. The sink must have a
/// watcher.
pub fn watch(
    scenario: &Scenario,
    fragments: Fragments<'_>,
    command: Vec<String>,
    party: &mut dyn Party,
    limits: ScenarioLimits,
    ending: Duration,
    sink: &mut dyn EventSink,
) -> WatchedRun {
    let recorder = Recorder::new(sink, Judge::without_scenario(PartyKind::Server));
    let mut interpreter = Interpreter::launched(scenario, command, party, limits, recorder);
    if interpreter.watch_start().is_ok() {
        // Errors are ignored: if a step lacks a value, the implementation's behaviour may be the cause.
        let _ = walk(&mut interpreter, scenario, fragments).and_then(|()| interpreter.play_deferred());
        interpreter.measure_memory();
    }
    let steps_done = interpreter.recorder.events.len();
    interpreter.wait_for_closes();
    let stays = interpreter.settle(ending.max(2 * SETTLE_TIME), SETTLE_TIME);
    let Recorder { events, judge, .. } = interpreter.recorder;
    WatchedRun { exit: judge.job(), outcome: judge.finish(events), steps_done, running_job_proof: stays }
}

impl Interpreter<'_> {
    fn watch_start(&mut self) -> Result<(), EarlyEnd> {
        let ranks = self.scenario.ranks as usize;
        let deadline = Instant::now() + self.limits.step.max(MIN_START_TIME);
        if self
            .process_events(deadline, SilenceMeaning::ResponseDue, &|judge| {
                judge.started_processes().len() >= ranks
            })?
            .is_some()
        {
            let why = AbandonReason::Unplayable("not every rank reported".to_owned());
            self.recorder.record(EventKind::Abandoned(why));
            return Err(EarlyEnd);
        }
        if self.recorder.judge.lacks_connection() {
            return Err(EarlyEnd);
        }
        let memory = self.party.memory();
        if let Some(watcher) = self.recorder.sink.watcher() {
            watcher.started(memory);
        }
        Ok(())
    }

    /// If some connections have already ended, gives the server time to close the others before the runner closes them. Without
    /// this wait, the events would not show which connections the server closes.
    fn wait_for_closes(&mut self) {
        let judge = &self.recorder.judge;
        let started = judge.started_processes();
        let closed = started.iter().filter(|p| judge.is_closed(**p)).count();
        if (1..started.len()).contains(&closed) {
            // The result does not matter, because the run ends here.
            let _ = self.process_events(Instant::now() + CLOSE_TIME, SilenceMeaning::Expected, &|_| false);
        }
    }

    pub(super) fn watched_step(&mut self, p: Proc, step: &Step) -> Result<(), WalkEnd> {
        let is_closed = self.recorder.judge.is_closed(p);
        match (&step.action, step.role) {
            (StepAction::Upstream(action), _) => {
                let number = match action {
                    UpstreamAction::CorrectResponse { to } => Some(*to),
                    UpstreamAction::Response { to, .. } => to.map(Some),
                    UpstreamAction::Close => None,
                };
                // Skip the step if the connection or the job has ended, or if no step has matched the request that this message answers.
                let is_gone = is_closed || self.recorder.judge.job().is_some();
                if is_gone || number.is_some_and(|number| self.matched_request(p, number).is_none()) {
                    return Ok(());
                }
                self.upstream_step(p, action)?;
                if !matches!(action, UpstreamAction::CorrectResponse { .. }) {
                    // The next step must wait until the proxy has received the message, so that the message's effects are not attributed to
                    // that step.
                    self.process_events(
                        Instant::now() + self.limits.step,
                        SilenceMeaning::ResponseDue,
                        &|_| false,
                    )?;
                }
                Ok(())
            }
            (StepAction::Process(_), _) => self.step_of(p, step),
            (_, Role::Client) if is_closed => Ok(()),
            (StepAction::Message { lines, .. }, Role::Server) => {
                lines.iter().try_for_each(|line| self.take(p, Some(line)))
            }
            (_, Role::Server) => self.take(p, None),
            _ => self.step_of(p, step),
        }
    }

    /// Waits for a message, or for the end of the connection. If a due response does not arrive, stops the walk, because later steps cannot
    /// show anything new.
    fn take(&mut self, p: Proc, due: Option<&Template>) -> Result<(), WalkEnd> {
        let start = Instant::now();
        let is_proxy = p.group == Proc::PROXY_GROUP;
        let over = |judge: &Judge| judge.has_input(p) || (is_proxy && judge.job().is_some());
        let silence = self.process_events(start + self.limits.step, SilenceMeaning::ResponseDue, &over)?;
        let waited = start.elapsed();
        let message = self.recorder.judge.take_message(p);
        if is_proxy {
            return Ok(());
        }
        if let Some(proof) = silence {
            if self.recorder.sink.watcher().is_some_and(|watcher| watcher.received_nothing(proof, waited)) {
                self.record_unread();
                self.recorder.record(EventKind::NoResponse { proc: p, proof });
            }
            return if due.is_some() { Err(WalkEnd::Stopped) } else { Ok(()) };
        }
        let Some(message) = message else { return Ok(()) };
        if let Some(watcher) = self.recorder.sink.watcher() {
            watcher.received(waited);
        }
        due.map_or(Ok(()), |line| self.bind(line, &message))
    }

    /// Binds the names in the expected message to the received values, which later messages may contain.
    fn bind(&mut self, line: &Template, message: &ReceivedMessage) -> Result<(), WalkEnd> {
        let captures = || {
            line.pieces.iter().filter_map(|piece| match piece {
                Piece::Capture(name, kind) => Some((name, kind)),
                _ => None,
            })
        };
        if captures().next().is_none() {
            return Ok(());
        }
        if let Ok(captured) = self.pattern(line)?.matches(&message.text, message.framing) {
            self.scope.bind(captured);
        }
        for (name, kind) in captures() {
            let value = self.scope.var(name)?;
            if let ValueType::Uint(..) = kind
                && std::str::from_utf8(&value)
                    .ok()
                    .and_then(|v| v.parse().ok())
                    .is_none_or(|n: i64| n > MAX_LENGTH)
            {
                self.scope.set(name, MAX_LENGTH.to_string().into_bytes());
            }
        }
        Ok(())
    }
}
