//! Plays the steps of a scenario against a server under test: the runner plays its clients (`C:`), and expects its messages (`S:`).

use std::time::{Duration, Instant};

use pmi_judge::event::{AbandonReason, Bytes, Event, EventKind, SilenceProof};
use pmi_judge::expectation::{ExpectationKind, Matcher};
use pmi_judge::{Judge, PartyKind, ScenarioOutcome};
use pmi_scenario::ast::{
    ProcessAction, Role, Scenario, Step, StepAction, Template, UpstreamAction, WriteMode,
};
use pmi_wire::Proc;

use super::interpreter::{EarlyEnd, Interpreter, WalkEnd};
use super::recorder::{EventSink, Recorder};
use super::walk::{Fragments, skip_all, walk};
use crate::party::proxy::UpstreamCommand;
use crate::party::{Party, ScenarioLimits, SilenceMeaning};

/// Time that a hung implementation is given to exit on its own.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Number of writes of one message that the runner keeps separate by waiting until the server has read the previous write. Later writes may
/// arrive together, because waiting for each byte of a long message would take too long.
const MAX_SEPARATE_WRITES: usize = 24;

/// Interval at which events are processed during a `wait` step.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time for reading the events that have already arrived when a scenario ends early.
const LAST_EVENTS_TIME: Duration = Duration::from_millis(100);

/// Time without events after which the runner reports that the launcher does not end. A daemon that the launcher waits for may still
/// connect to it, and nothing indicates this in advance.
const RUNNING_JOB_TIMEOUT: Duration = Duration::from_secs(1);

/// Records [`EventKind::Launched`], and then plays a scenario against a launched party. `fragments` finds the fragments that the scenario
/// uses.
pub fn play(
    scenario: &Scenario,
    fragments: Fragments<'_>,
    command: Vec<String>,
    party: &mut dyn Party,
    limits: ScenarioLimits,
    sink: &mut dyn EventSink,
) -> ScenarioOutcome {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let recorder = Recorder::new(sink, Judge::new(PartyKind::Server, requires));
    let mut interpreter = Interpreter::launched(scenario, command, party, limits, recorder);
    // If the run ended early, the judge has already received the reason.
    if interpreter.run(fragments).is_err() {
        interpreter.read_last_events();
    }
    // After a step has timed out, waiting longer rarely helps.
    let hung = interpreter.recorder.judge.is_hung();
    let (ending, settled) =
        if hung { (limits.step.min(EXIT_GRACE), Duration::ZERO) } else { (limits.step, RUNNING_JOB_TIMEOUT) };
    if let Some(proof) = interpreter.settle(ending, settled) {
        interpreter.end_job(proof, ending);
    }
    let Recorder { events, judge, .. } = interpreter.recorder;
    judge.finish(events)
}

/// Returns true if a request refers to a node's attributes, or to all processes of a node. The correct response then depends on the
/// placement of the processes.
fn depends_on_placement(request: &[u8]) -> bool {
    let contains = |word: &[u8]| memchr::memmem::find(request, word).is_some();
    contains(b"nodeattr;") || contains(b"group=NODE")
}

impl Interpreter<'_> {
    /// If the server has closed a connection, reads everything that the server has sent and printed so far. Called before the runner ends
    /// the job, because ending the job causes further output.
    fn read_last_events(&mut self) {
        let is_closed = |event: &Event| matches!(event.kind, EventKind::ClosedByServer { .. });
        if self.recorder.events.iter().any(is_closed) {
            let until = Instant::now() + LAST_EVENTS_TIME;
            let is_over = |judge: &Judge| judge.job().is_some() || Instant::now() > until;
            let _ = self.process_events(Instant::now(), SilenceMeaning::Expected, &is_over);
        }
    }

    fn run(&mut self, fragments: Fragments<'_>) -> Result<(), EarlyEnd> {
        let scenario = self.scenario;
        let mut ranks = 0..scenario.ranks;
        let started =
            ranks.try_for_each(|rank| self.expect(Some(Proc { group: 0, rank }), ExpectationKind::Started));
        if started.is_err() || self.recorder.judge.lacks_connection() {
            skip_all(self, scenario, fragments);
            return Err(self.abandon(WalkEnd::Stopped));
        }
        walk(self, scenario, fragments)
            .and_then(|()| self.play_deferred())
            .map_err(|ended| self.abandon(ended))
    }

    pub(super) fn step_of(&mut self, p: Proc, step: &Step) -> Result<(), WalkEnd> {
        match (&step.action, step.role) {
            (StepAction::Upstream(action), _) => self.upstream_step(p, action),
            (StepAction::Process(action), _) => self.process_step(p, action),
            (StepAction::Call(_), _) => {
                let why = "library calls need a library under test".to_owned();
                self.recorder.record(EventKind::Abandoned(AbandonReason::Unplayable(why)));
                Err(WalkEnd::Stopped)
            }
            // After a process has ended, its remaining steps are skipped.
            (StepAction::Message { .. }, Role::Client) | (_, Role::Server)
                if self.recorder.judge.is_over(p) =>
            {
                Ok(())
            }
            (StepAction::Message { mode, lines }, Role::Client) => self.send(p, *mode, lines),
            (StepAction::Close, Role::Client) => {
                self.close(p);
                Ok(())
            }
            (StepAction::Message { lines, .. }, Role::Server) => {
                for line in lines {
                    let pattern = self.pattern(line)?;
                    self.expect(Some(p), ExpectationKind::Message(pattern))?;
                }
                Ok(())
            }
            (StepAction::OneOf(alternatives), Role::Server) => {
                let choices = alternatives.iter().map(|a| self.choice(a)).collect::<Result<_, _>>()?;
                Ok(self.expect(Some(p), ExpectationKind::OneOf(choices))?)
            }
            (StepAction::Empty, Role::Server) => Ok(self.expect(Some(p), ExpectationKind::Newline)?),
            (StepAction::Close, Role::Server) => Ok(self.expect(Some(p), ExpectationKind::Close)?),
            (StepAction::Silence, Role::Server) => Ok(self.expect(Some(p), ExpectationKind::Silence)?),
            _ => Err(WalkEnd::Mistake("this role cannot perform this step".into())),
        }
    }

    // ----- the steps of each role -----------------------------------------------------------------------------------

    fn send(&mut self, p: Proc, mode: WriteMode, lines: &[Template]) -> Result<(), WalkEnd> {
        if lines.iter().any(|line| self.scope.names_agent(line)) {
            let group = self.recorder.judge.next_group();
            self.scope.set_agent(self.party.agent(group));
        }
        let messages = self.scope.message(mode, lines)?;
        if let Some(why) = self.recorder.judge.other_placement()
            && depends_on_placement(&messages.concat())
        {
            self.recorder.record(EventKind::Abandoned(AbandonReason::Misplaced(why)));
            return Err(WalkEnd::Stopped);
        }
        for (index, bytes) in messages.into_iter().enumerate() {
            if index > 0 {
                self.hold_back(p)?;
            }
            if (1..MAX_SEPARATE_WRITES).contains(&index) {
                self.party.separate_writes();
            }
            self.recorder.record(EventKind::ToServer { proc: p, bytes: Bytes(bytes.clone()) });
            self.party.send(p, &bytes);
        }
        Ok(())
    }

    /// Records that the runner has ordered the end of a process, unless this was already recorded.
    fn dismiss(&mut self, p: Proc) {
        if self.dismissed.insert(p) {
            self.recorder.record(EventKind::Ended { proc: p, ours: true });
        }
    }

    pub(super) fn upstream_step(&mut self, p: Proc, action: &UpstreamAction) -> Result<(), WalkEnd> {
        let command = match action {
            UpstreamAction::Response { to, partial, lines } => {
                let mode = WriteMode { partial: *partial, ..WriteMode::default() };
                let text = Bytes(self.scope.message(mode, lines)?.concat());
                let to = match to {
                    None => self.matched_request(p, None),
                    some => Some(self.named(p, *some)?),
                };
                UpstreamCommand::Response { proxy: p.rank, to, text }
            }
            UpstreamAction::CorrectResponse { to } => UpstreamCommand::CorrectResponse(self.named(p, *to)?),
            UpstreamAction::Close => UpstreamCommand::Close(p.rank),
        };
        if let Some(watcher) = self.recorder.sink.watcher() {
            watcher.ordered(&command);
        }
        self.party.upstream(command);
        Ok(())
    }

    /// Returns the id of a proxy's request that a step has matched. `number` counts the matched requests from 1; `None` selects the last
    /// one.
    pub(super) fn matched_request(&self, p: Proc, number: Option<u32>) -> Option<u64> {
        let taken = self.recorder.judge.consumed_requests(p);
        let at = number.map_or(taken.len(), |n| n as usize).checked_sub(1)?;
        taken.get(at).copied()
    }

    fn named(&self, p: Proc, number: Option<u32>) -> Result<u64, WalkEnd> {
        self.matched_request(p, number).ok_or_else(|| {
            WalkEnd::Mistake(match number {
                Some(n) => format!("no earlier step has matched request {n} from {p}"),
                None => format!("no earlier step has matched a request from {p}"),
            })
        })
    }

    pub(super) fn process_step(&mut self, p: Proc, action: &ProcessAction) -> Result<(), WalkEnd> {
        match action {
            ProcessAction::Started => self.expect(Some(p), ExpectationKind::Started)?,
            ProcessAction::Env(name, expected) => {
                self.expect(Some(p), ExpectationKind::Started)?;
                let value = Matcher::new(&self.scope, expected)?;
                self.expect(Some(p), ExpectationKind::Variable { name: name.value.clone(), value })?;
            }
            ProcessAction::Args(expected) => {
                let expected = Bytes(self.scope.text(expected)?);
                self.expect(Some(p), ExpectationKind::Arguments(expected))?;
            }
            ProcessAction::IsEnded => self.expect(Some(p), ExpectationKind::IsEnded)?,
            ProcessAction::Exit(status) => {
                self.dismiss(p);
                self.party.exit(p, *status);
            }
            ProcessAction::Kill(signal) => {
                self.dismiss(p);
                self.party.kill(p, *signal);
            }
            ProcessAction::Wait(seconds) => self.wait(Duration::from_secs((*seconds).into()))?,
            ProcessAction::Pause => {
                self.party.pause(p, true);
                self.play_others(p)?;
                self.party.pause(p, false);
            }
            ProcessAction::PauseParent => {
                self.party.pause_parent(p, true);
                let played = self.play_others(p);
                // Without this, a launcher that outlives an interrupted job would stay stopped.
                self.party.pause_parent(p, false);
                played?;
            }
            ProcessAction::Exits(_)
            | ProcessAction::Ends
            | ProcessAction::FailsOrMatches
            | ProcessAction::SameOutput => {
                return Err(WalkEnd::Mistake(
                    "only a scenario for clients may state how a process ends".into(),
                ));
            }
            ProcessAction::JobExit(_) | ProcessAction::Logged => {
                return Err(WalkEnd::Mistake("a step about the job needs the role J".into()));
            }
        }
        Ok(())
    }

    /// Waits for `time`, or until the job ends. The wait affects the verdict only through the implementation's actions during that time.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), WalkEnd> {
        let until = Instant::now() + time;
        if self.party.pass_time() {
            return Ok(());
        }
        while Instant::now() < until && self.recorder.judge.job().is_none() {
            let proof = self.process_events(until, SilenceMeaning::Expected, &|_| false)?;
            if proof.is_some_and(|proof| proof != SilenceProof::Timeout) {
                std::thread::sleep(WAIT_INTERVAL.min(until.saturating_duration_since(Instant::now())));
            }
        }
        Ok(())
    }

    pub(super) fn job_step(&mut self, action: &StepAction) -> Result<(), WalkEnd> {
        match action {
            StepAction::Process(ProcessAction::JobExit(expected)) => {
                self.release();
                self.expect(None, ExpectationKind::JobExits(*expected))?;
            }
            StepAction::Process(ProcessAction::Logged) => {
                // The job must end first, because launchers print the output of the processes, and their own errors, when the job ends.
                self.release();
                self.expect(None, ExpectationKind::Logs)?;
            }
            _ => return Err(WalkEnd::Mistake("this step does not apply to a job (role J)".into())),
        }
        Ok(())
    }
}
