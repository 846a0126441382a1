//! The interpreter shared by all kinds of runs. It connects the party (the other end of the connections) and the judge: it passes each
//! expectation to the judge and waits until the expectation is met. Meanwhile, it records all events and answers a library's requests to
//! its process manager.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use pmi_judge::event::{AbandonReason, Bytes, EventKind, Exit, SilenceProof};
use pmi_judge::expectation::{Choice, Expectation, ExpectationKind, Pattern};
use pmi_judge::library::LibraryRequest;
use pmi_judge::{ExpectationState, Judge, WaitReason};
use pmi_scenario::ast::{Alternative, RankSet, Scenario, Step, StepAction, Template};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_wire::Proc;

use super::manager::{LibraryManager, ManagerResponse, ResponseRule};
use super::recorder::Recorder;
use crate::party::{Incoming, Party, ScenarioLimits, SilenceMeaning};

/// Interval between measurements of the memory use of a server that is busy but sends nothing.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The early end of a scenario, for a reason that the judge has already received.
pub(super) struct EarlyEnd;

pub(super) struct Interpreter<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) party: &'a mut dyn Party,
    pub(super) limits: ScenarioLimits,
    pub(super) recorder: Recorder<'a>,
    pub(super) scope: Scope,
    /// The requirement that the current step cites.
    pub(super) cited: String,
    /// Processes that were ordered to exit or to kill themselves.
    pub(super) dismissed: HashSet<Proc>,
    /// The lines of the statements that the walk has skipped.
    pub(super) skipped_lines: Vec<usize>,
    /// In a free schedule, the steps that each rank has not reached yet.
    pub(super) deferred: BTreeMap<Proc, VecDeque<DeferredStep>>,
    /// True if the time limit of the next deferred step has already passed.
    pub(super) is_overdue: bool,
    /// True if the run has no expectations, and the sink has a watcher.
    pub(super) has_watcher: bool,
    /// True if the watcher has ended the scenario.
    pub(super) ended_by_watcher: bool,
    /// The process manager of a library under test, whose role the runner plays.
    pub(super) manager: Option<LibraryManager>,
}

pub(super) struct DeferredStep {
    pub(super) step: Step,
    pub(super) line: usize,
}

pub(super) enum WalkEnd {
    Stopped,
    Mistake(String),
    /// The implementation has returned a value that the scenario cannot use.
    UnusableValue(String),
}

impl From<EarlyEnd> for WalkEnd {
    fn from(_: EarlyEnd) -> Self {
        Self::Stopped
    }
}

impl From<ScenarioError> for WalkEnd {
    fn from(error: ScenarioError) -> Self {
        match error {
            ScenarioError::Mistake(what) => Self::Mistake(what),
            ScenarioError::Unusable(what) => Self::UnusableValue(what),
        }
    }
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        party: &'a mut dyn Party,
        limits: ScenarioLimits,
        recorder: Recorder<'a>,
    ) -> Self {
        let watching = recorder.sink.watcher().is_some();
        Self {
            scenario,
            party,
            limits,
            recorder,
            scope: Scope::of(scenario),
            cited: String::new(),
            dismissed: HashSet::new(),
            skipped_lines: Vec::new(),
            deferred: BTreeMap::new(),
            is_overdue: false,
            has_watcher: watching,
            ended_by_watcher: false,
            manager: None,
        }
    }

    /// Creates an interpreter for a launched party.
    pub(super) fn launched(
        scenario: &'a Scenario,
        command: Vec<String>,
        party: &'a mut dyn Party,
        limits: ScenarioLimits,
        recorder: Recorder<'a>,
    ) -> Self {
        let mut interpreter = Self::new(scenario, party, limits, recorder);
        interpreter.party.hold(scenario.answers());
        let launched = EventKind::Launched { command, ranks: scenario.ranks, nodes: scenario.nodes };
        interpreter.recorder.record(launched);
        interpreter
    }

    /// Returns the ranks of a set, in the order of the set.
    pub(super) fn members(&self, group: u32, set: &RankSet) -> Vec<u32> {
        match set {
            RankSet::All => (0..self.recorder.judge.size(group)).collect(),
            RankSet::Ranges(ranges) => ranges.iter().flat_map(|(a, b)| *a..=*b).collect(),
        }
    }

    pub(super) fn abandon(&mut self, ended: WalkEnd) -> EarlyEnd {
        let why = match ended {
            WalkEnd::Stopped => None,
            WalkEnd::Mistake(what) => Some(AbandonReason::Mistake(what)),
            WalkEnd::UnusableValue(what) => Some(AbandonReason::Unusable(what)),
        };
        if let Some(why) = why {
            self.recorder.record(EventKind::Abandoned(why));
        }
        if !self.skipped_lines.is_empty() {
            let lines = std::mem::take(&mut self.skipped_lines);
            self.recorder.record(EventKind::StatementsSkipped { lines });
        }
        EarlyEnd
    }

    /// Orders all processes to exit, and reads the remaining messages until the job has ended. Returns a proof of silence if the job does
    /// not end within `ending`, or is silent for `settled`.
    pub(super) fn settle(&mut self, ending: Duration, settled: Duration) -> Option<SilenceProof> {
        self.release();
        let deadline = Instant::now() + ending;
        let mut last = Instant::now();
        while self.recorder.judge.job().is_none() && !self.recorder.judge.starts_too_many() {
            let proof = match self.next(deadline, SilenceMeaning::ResponseDue) {
                Incoming::Event(kind) => {
                    last = Instant::now();
                    let came_late = matches!(kind, EventKind::Started { .. });
                    self.recorder.record(kind);
                    if self.has_watcher && self.check_limits().is_err() {
                        return None;
                    }
                    if came_late {
                        self.release();
                    }
                    continue;
                }
                Incoming::Interrupted => return None,
                Incoming::Nothing(proof) if proof != SilenceProof::Timeout && last.elapsed() < settled => {
                    std::thread::sleep(settled / 15);
                    continue;
                }
                Incoming::Nothing(proof) => proof,
            };
            return Some(proof);
        }
        // After the launcher has ended, a final event may report that a signal killed it.
        while let Incoming::Event(kind) = self.party.next(Instant::now(), SilenceMeaning::Expected) {
            self.recorder.record(kind);
        }
        None
    }

    /// Terminates a job that does not end on its own, and records the processes that were still running.
    pub(super) fn end_job(&mut self, proof: SilenceProof, waited: Duration) {
        let (procs, names) = self.party.still_running();
        let waited_ms = waited.as_millis() as u64;
        self.recorder.record(EventKind::JobKeepsRunning { proof, waited_ms, procs, names });
        for kind in self.party.end() {
            self.recorder.record(kind);
        }
    }

    /// Orders all started processes to exit.
    pub(super) fn release(&mut self) {
        for p in self.recorder.judge.started_processes() {
            if self.dismissed.insert(p) {
                // A process that never joined is ordered to exit while its connection is still open. After a refused init, slurmstepd 22.05
                // dies if the connection ends before the process does, and its job step then keeps running.
                if self.recorder.judge.has_joined(p) {
                    self.close(p);
                } else {
                    // From here on, the server's output may be a consequence of the end of this process.
                    self.recorder.record(EventKind::Ended { proc: p, ours: true });
                }
                self.party.exit(p, 0);
            }
        }
    }

    pub(super) fn close(&mut self, p: Proc) {
        if !self.recorder.judge.is_closed(p) {
            self.recorder.record(EventKind::ClosedByClient { proc: p });
            self.party.close(p);
        }
    }

    // ----- expectations ---------------------------------------------------------------------------------------------

    pub(super) fn pattern(&self, line: &Template) -> Result<Pattern, ScenarioError> {
        Pattern::new(&self.scope, line)
    }

    pub(super) fn choice(&self, alternative: &Alternative) -> Result<Choice, ScenarioError> {
        let kind = match &alternative.action {
            StepAction::Message { lines, .. } if self.manager.is_some() => ExpectationKind::SendsRequest(
                lines.iter().map(|line| self.pattern(line)).collect::<Result<_, _>>()?,
            ),
            StepAction::Message { lines, .. } => match lines.first() {
                Some(line) => ExpectationKind::Message(self.pattern(line)?),
                None => ExpectationKind::Newline,
            },
            StepAction::Empty => ExpectationKind::Newline,
            StepAction::Close => ExpectationKind::Close,
            _ => ExpectationKind::Silence,
        };
        let cites = alternative.cites.as_ref().map(|c| c.value.clone());
        Ok(Choice { grade: alternative.grade, cites, kind })
    }

    /// Passes an expectation to the judge, and waits until it is met or can no longer be met.
    pub(super) fn expect(&mut self, proc: Option<Proc>, kind: ExpectationKind) -> Result<(), EarlyEnd> {
        let expectation = Expectation { proc, cites: self.cited.clone(), kind };
        self.recorder.record(EventKind::Expected(Box::new(expectation)));
        let awaited = self.recorder.judge.wait_reason();
        let (wait, silence) = match awaited {
            Some(WaitReason::Silence) => (self.limits.silence, SilenceMeaning::Expected),
            Some(WaitReason::Start) => (self.limits.start(), SilenceMeaning::ResponseDue),
            Some(WaitReason::Choice) => (self.limits.step, SilenceMeaning::Valid),
            Some(WaitReason::RequiredEvent) | None => (self.limits.step, SilenceMeaning::ResponseDue),
        };
        let deadline = Instant::now() + if self.is_overdue { Duration::ZERO } else { wait };
        while let Some(proof) = self.process_events(deadline, silence, &|judge| {
            judge.expectation_state() != ExpectationState::Pending
        })? {
            self.record_unread();
            self.recorder.record(EventKind::Silence { proof, waited_ms: wait.as_millis() as u64 });
            if let (ExpectationState::Pending, Some(proc)) = (self.recorder.judge.expectation_state(), proc) {
                self.recorder.record(EventKind::NoResponse { proc, proof });
            }
        }
        let captures = self.recorder.judge.take_captures();
        self.scope.bind(captures);
        match self.recorder.judge.expectation_state() {
            ExpectationState::Broken => Err(EarlyEnd),
            ExpectationState::Met | ExpectationState::Pending => Ok(()),
        }
    }

    /// Records the processes whose bytes the implementation has not read, to explain the silence that was just observed.
    pub(super) fn record_unread(&mut self) {
        for proc in self.party.unread() {
            self.recorder.record(EventKind::NotRead { proc });
        }
    }

    /// Processes events until `over` returns true, silence is proved, or the deadline passes. In the last two cases, returns the proof.
    pub(super) fn process_events(
        &mut self,
        deadline: Instant,
        silence: SilenceMeaning,
        over: &dyn Fn(&Judge) -> bool,
    ) -> Result<Option<SilenceProof>, EarlyEnd> {
        loop {
            self.serve().map_err(|error| self.abandon(error.into()))?;
            if over(&self.recorder.judge) {
                return Ok(None);
            }
            match self.next(deadline, silence) {
                Incoming::Event(kind) => {
                    let exited = match kind {
                        EventKind::Exited { proc, exit } => Some((proc, exit)),
                        _ => None,
                    };
                    self.recorder.record(kind);
                    if let Some((p, exit)) = exited {
                        self.report_exit(p, exit).map_err(|error| self.abandon(error.into()))?;
                    }
                    self.check_limits()?;
                }
                Incoming::Interrupted => {
                    self.recorder.record(EventKind::Abandoned(AbandonReason::Interrupted));
                    return Err(EarlyEnd);
                }
                Incoming::Nothing(SilenceProof::Timeout) if self.ended_by_watcher => return Err(EarlyEnd),
                Incoming::Nothing(proof) => return Ok(Some(proof)),
            }
        }
    }

    /// Waits for the next event. Meanwhile, measures the memory use of watched processes.
    pub(super) fn next(&mut self, deadline: Instant, silence: SilenceMeaning) -> Incoming {
        if !self.has_watcher {
            return self.party.next(deadline, silence);
        }
        loop {
            match self.party.next(deadline.min(Instant::now() + MEMORY_CHECK_INTERVAL), silence) {
                Incoming::Nothing(SilenceProof::Timeout) => self.measure_memory(),
                other => return other,
            }
            if self.ended_by_watcher || Instant::now() >= deadline {
                return Incoming::Nothing(SilenceProof::Timeout);
            }
        }
    }

    /// Stops reading from an implementation that exceeds the output or process limit.
    pub(super) fn check_limits(&mut self) -> Result<(), EarlyEnd> {
        if self.recorder.judge.should_end_early() {
            return Err(EarlyEnd);
        }
        if self.recorder.judge.received() > self.limits.bytes {
            self.recorder.record(EventKind::Flooded { limit: self.limits.bytes });
            return Err(EarlyEnd);
        }
        Ok(())
    }

    /// Reports the memory use of the implementation's processes to the watcher, which may end the scenario.
    pub(super) fn measure_memory(&mut self) {
        if let Some(watcher) = self.recorder.sink.watcher() {
            self.ended_by_watcher |= watcher.exceeds_memory(self.party.memory());
        }
    }

    // ----- the process manager of a library -------------------------------------------------------------------------

    pub(super) fn manager(&mut self) -> Result<&mut LibraryManager, ScenarioError> {
        self.manager
            .as_mut()
            .ok_or_else(|| ScenarioError::Mistake("library calls need a library under test".into()))
    }

    pub(super) fn reply(&mut self, p: Proc, response: &ManagerResponse) -> Result<(), ScenarioError> {
        self.scope.enter(p.rank, self.scenario.ranks);
        match response {
            ManagerResponse::Nothing => {}
            ManagerResponse::Close => self.hang_up(p),
            ManagerResponse::Newline => self.send_bytes(p, b"\n".to_vec()),
            ManagerResponse::Write(mode, lines) => {
                self.scope.message(*mode, lines)?.into_iter().for_each(|bytes| self.send_bytes(p, bytes));
            }
        }
        Ok(())
    }

    pub(super) fn send_bytes(&mut self, p: Proc, bytes: Vec<u8>) {
        self.recorder.record(EventKind::FromServer { proc: p, bytes: Bytes(bytes.clone()) });
        self.party.send(p, &bytes);
    }

    pub(super) fn hang_up(&mut self, p: Proc) {
        if !self.recorder.judge.is_closed(p) {
            self.recorder.record(EventKind::ClosedByServer { proc: p });
            self.party.close(p);
        }
    }

    /// Answers the requests that the scenario's steps leave to a rule or to the reference server.
    pub(super) fn serve(&mut self) -> Result<(), ScenarioError> {
        for (p, request) in self.recorder.judge.take_unscripted() {
            self.answer(p, &request)?;
        }
        Ok(())
    }

    /// Answers a request as defined by the last of the scenario's rules that matches it. If no rule matches, the reference server answers.
    pub(super) fn answer(&mut self, p: Proc, request: &LibraryRequest) -> Result<(), ScenarioError> {
        self.scope.enter(p.rank, self.scenario.ranks);
        for at in (0..self.manager()?.rules.get(&p).map_or(0, Vec::len)).rev() {
            let ResponseRule { request: lines, responses: replies } = &self.manager()?.rules[&p][at];
            let (lines, replies) = (lines.clone(), replies.clone());
            let patterns = lines.iter().map(|line| self.pattern(line)).collect::<Result<Vec<_>, _>>()?;
            if let Some(captures) = request.matches(&patterns) {
                self.scope.bind(captures);
                self.introduce(p, request)?;
                return replies.iter().try_for_each(|response| self.reply(p, response));
            }
        }
        self.manager()?.server.send(p, &request.text());
        self.relay()
    }

    /// Passes an init request, which the scenario answers, to the reference server as well, and discards the server's response. Ignores
    /// other requests.
    pub(super) fn introduce(&mut self, p: Proc, request: &LibraryRequest) -> Result<(), ScenarioError> {
        if request.is_init() {
            let manager = self.manager()?;
            manager.server.send(p, &request.text());
            manager.take_events();
        }
        Ok(())
    }

    /// Carries out the actions of the reference server.
    pub(super) fn relay(&mut self) -> Result<(), ScenarioError> {
        for kind in self.manager()?.take_events() {
            match kind {
                EventKind::FromServer { proc, bytes } if proc.group == 0 => self.send_bytes(proc, bytes.0),
                EventKind::ClosedByServer { proc } if proc.group == 0 => self.hang_up(proc),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports to the reference server that a process has ended on its own.
    pub(super) fn report_exit(&mut self, p: Proc, exit: Exit) -> Result<(), ScenarioError> {
        // Process managers other than the reference server detect the exits of their processes themselves.
        if self.manager.as_ref().is_none_or(|manager| manager.launched) || self.dismissed.contains(&p) {
            return Ok(());
        }
        let status = match exit {
            Exit::Code(code) => code as u8,
            Exit::Signal(_) => 1,
        };
        self.manager()?.server.exit(p, status);
        self.relay()
    }
}
