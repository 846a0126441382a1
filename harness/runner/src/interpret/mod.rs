//! What makes a conversation of a scenario: the steps are taken in the order of the file, for every rank. What is ours to do is
//! done when its step is reached; what is expected is told to the judge and waited for.

pub mod library;
pub mod program;
mod recorder;
pub mod walk;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmi_judge::event::{Abandoned, Bytes, SilenceProof, What};
use pmi_judge::expectation::{Choice, Expectation, Expected, Matcher, Pattern};
use pmi_judge::{Awaited, Judge, Outcome, Side, Standing};
use pmi_scenario::ast::{
    Action, Alternative, ProcessAction, RankSet, Role, Scenario, Source, Step, Template, UpstreamAction, Who,
    WriteMode,
};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_wire::Proc;

use crate::party::proxy::UpstreamCommand;
use crate::party::{Incoming, Limits, Party, Silence};
pub use recorder::{EventSink, KEPT, Recorder};
use walk::{Fragments, Place, Steps, walk};
pub use watch::{Watched, Watcher, watch};

/// How long an implementation that has hung gets to end by itself.
const GRACE: Duration = Duration::from_millis(500);

/// How long nothing must happen before it is held against a launcher that it does not end: a daemon that it waits for may still
/// come to it, by a connection that there is not yet.
const STAYS: Duration = Duration::from_secs(1);

/// Playing ends early. The judge knows why.
struct Stop;

/// Plays one scenario whose fragments `fragments` finds. The party has been launched; `Launched` is recorded here.
pub fn play(
    scenario: &Scenario,
    fragments: Fragments<'_>,
    command: Vec<String>,
    party: &mut dyn Party,
    limits: Limits,
    sink: &mut dyn EventSink,
) -> Outcome {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let recorder = Recorder::new(sink, Judge::new(Side::Server, requires));
    let mut interpreter = Interpreter::launched(scenario, command, party, limits, recorder);
    // The judge knows why it ended early, if it did.
    let _ = interpreter.run(fragments);
    // Who has just used up the time of a step will not use more of it well.
    let hung = interpreter.recorder.judge.is_hung();
    let (ending, settled) =
        if hung { (limits.step.min(GRACE), Duration::ZERO) } else { (limits.step, STAYS) };
    if let Some(proof) = interpreter.settle(ending, settled) {
        interpreter.end_job(proof, ending);
    }
    let Recorder { events, judge, .. } = interpreter.recorder;
    judge.finish(events)
}

struct Interpreter<'a> {
    scenario: &'a Scenario,
    party: &'a mut dyn Party,
    limits: Limits,
    recorder: Recorder<'a>,
    scope: Scope,
    /// The file that the current step stands in.
    source: Arc<Source>,
    /// Requirement of the step that is being played.
    cited: String,
    /// Processes that were told to exit or to die.
    dismissed: HashSet<Proc>,
    /// Statements that the walk has left out.
    left_out: usize,
    /// Nothing is expected; the sink has a watcher.
    watching: bool,
    /// The watcher has seen enough.
    enough: bool,
    /// What is under test is a library, whose process manager we are.
    manager: Option<library::Manager>,
}

/// What stops a walk.
enum Ended {
    Stopped,
    Mistake(String),
    /// What the implementation has told cannot be used.
    Told(String),
}

impl From<Stop> for Ended {
    fn from(_: Stop) -> Self {
        Self::Stopped
    }
}

impl From<ScenarioError> for Ended {
    fn from(error: ScenarioError) -> Self {
        match error {
            ScenarioError::Mistake(what) => Self::Mistake(what),
            ScenarioError::Told(what) => Self::Told(what),
        }
    }
}

impl Steps for Interpreter<'_> {
    type Stop = Ended;

    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn at(&mut self, line: usize) {
        self.recorder.line = line;
    }

    fn leave_out(&mut self, statements: usize) {
        self.left_out += statements;
    }

    fn step(&mut self, step: &Step, place: Place<'_>) -> Result<(), Ended> {
        if !Arc::ptr_eq(&self.source, place.source) {
            self.source = Arc::clone(place.source);
        }
        self.scope.begin_step();
        let first = self.scenario.requires.first().map(|r| r.value.as_str()).unwrap_or_default();
        self.cited = step.cites.as_ref().map_or(first, |c| &c.value).to_owned();
        if self.manager.is_some() {
            return self.library_step(step, place);
        }
        let (group, set) = match &step.who {
            Who::Job => return self.job_step(&step.action),
            Who::Ranks { group, set } => (*group, set),
            // The walk has put the number in its place.
            Who::Spawned { .. } => return Err(Ended::Mistake("a group without its number".into())),
        };
        for rank in self.members(group, set) {
            let p = Proc { group, rank };
            if self.recorder.judge.is_refused(group) {
                return Ok(());
            }
            if group == Proc::STRAYS {
                self.party.connect(p);
            } else if group != 0 && group != Proc::PROXIES {
                self.expect(Some(p), Expected::Started)?;
            }
            self.scope.enter(rank, self.recorder.judge.size(group));
            match self.watching {
                true => self.watched_step(p, step)?,
                false => self.step_of(p, step)?,
            }
        }
        Ok(())
    }
}

impl<'a> Interpreter<'a> {
    fn new(scenario: &'a Scenario, party: &'a mut dyn Party, limits: Limits, recorder: Recorder<'a>) -> Self {
        let watching = recorder.sink.watcher().is_some();
        Self {
            scenario,
            party,
            limits,
            recorder,
            scope: Scope::of(scenario),
            source: Arc::clone(&scenario.source),
            cited: String::new(),
            dismissed: HashSet::new(),
            left_out: 0,
            watching,
            enough: false,
            manager: None,
        }
    }

    /// For a party that has been launched.
    fn launched(
        scenario: &'a Scenario,
        command: Vec<String>,
        party: &'a mut dyn Party,
        limits: Limits,
        recorder: Recorder<'a>,
    ) -> Self {
        let mut interpreter = Self::new(scenario, party, limits, recorder);
        interpreter.party.hold(scenario.answers());
        let launched = What::Launched { command, ranks: scenario.ranks, nodes: scenario.nodes };
        interpreter.recorder.record(launched);
        interpreter
    }

    /// The ranks of a set, in its order.
    fn members(&self, group: u32, set: &RankSet) -> Vec<u32> {
        match set {
            RankSet::All => (0..self.recorder.judge.size(group)).collect(),
            RankSet::Ranges(ranges) => ranges.iter().flat_map(|(a, b)| *a..=*b).collect(),
        }
    }

    fn run(&mut self, fragments: Fragments<'_>) -> Result<(), Stop> {
        for rank in 0..self.scenario.ranks {
            self.expect(Some(Proc { group: 0, rank }), Expected::Started)?;
        }
        if self.recorder.judge.lacks_connection() {
            // There is nothing to talk over.
            return Err(Stop);
        }
        let scenario = self.scenario;
        walk(self, scenario, fragments).map_err(|ended| self.abandon(ended))
    }

    fn abandon(&mut self, ended: Ended) -> Stop {
        let why = match ended {
            Ended::Stopped => None,
            Ended::Mistake(what) => Some(Abandoned::Mistake(what)),
            Ended::Told(what) => Some(Abandoned::Unusable(what)),
        };
        if let Some(why) = why {
            self.recorder.record(What::Abandoned(why));
        }
        if self.left_out > 0 {
            self.recorder.record(What::NotReached { statements: self.left_out });
        }
        Stop
    }

    /// Lets everything end, and reads what is still said. That the job stays is believed when nothing has happened for as long
    /// as `settled`; then, how that is known.
    fn settle(&mut self, ending: Duration, settled: Duration) -> Option<SilenceProof> {
        self.release();
        let deadline = Instant::now() + ending;
        let mut last = Instant::now();
        while self.recorder.judge.job().is_none() && !self.recorder.judge.starts_too_many() {
            let proof = match self.next(deadline, Silence::Wrong) {
                Incoming::Event(what) => {
                    last = Instant::now();
                    let came_late = matches!(what, What::Started { .. });
                    self.recorder.record(what);
                    if self.watching && self.bounded().is_err() {
                        return None;
                    }
                    if came_late {
                        self.release();
                    }
                    continue;
                }
                Incoming::Interrupted => return None,
                Incoming::Nothing(proof) if proof != SilenceProof::Timeout && last.elapsed() < settled => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Incoming::Nothing(proof) => proof,
            };
            return Some(proof);
        }
        // What follows the launcher's end: that it died of a signal.
        while let Incoming::Event(what) = self.party.next(Instant::now(), Silence::Expected) {
            self.recorder.record(what);
        }
        None
    }

    /// Ends a job that does not end by itself, and tells what still ran.
    fn end_job(&mut self, proof: SilenceProof, waited: Duration) {
        let (procs, names) = self.party.still_running();
        let waited_ms = waited.as_millis() as u64;
        self.recorder.record(What::JobStays { proof, waited_ms, procs, names });
        for what in self.party.end() {
            self.recorder.record(what);
        }
    }

    /// Lets all processes go that have started.
    fn release(&mut self) {
        for p in self.recorder.judge.started() {
            if self.dismissed.insert(p) {
                self.close(p);
                self.party.exit(p, 0);
            }
        }
    }

    fn step_of(&mut self, p: Proc, step: &Step) -> Result<(), Ended> {
        match (&step.action, step.role) {
            (Action::Upstream(action), _) => self.upstream_step(p, action),
            (Action::Process(action), _) => self.process_step(p, action),
            (Action::Call(_), _) => {
                let why = "library calls need a library under test".to_owned();
                self.recorder.record(What::Abandoned(Abandoned::Unplayable(why)));
                Err(Ended::Stopped)
            }
            // What follows for this process is left out.
            (Action::Message { .. }, Role::Client) | (_, Role::Server) if self.recorder.judge.is_over(p) => {
                Ok(())
            }
            (Action::Message { mode, lines }, Role::Client) => self.send(p, *mode, lines),
            (Action::Close, Role::Client) => {
                self.close(p);
                Ok(())
            }
            (Action::Message { lines, .. }, Role::Server) => {
                for line in lines {
                    let pattern = self.pattern(line)?;
                    self.expect(Some(p), Expected::Message(pattern))?;
                }
                Ok(())
            }
            (Action::OneOf(alternatives), Role::Server) => {
                let choices = alternatives.iter().map(|a| self.choice(a)).collect::<Result<_, _>>()?;
                Ok(self.expect(Some(p), Expected::OneOf(choices))?)
            }
            (Action::Empty, Role::Server) => Ok(self.expect(Some(p), Expected::Newline)?),
            (Action::Close, Role::Server) => Ok(self.expect(Some(p), Expected::Close)?),
            (Action::Silence, Role::Server) => Ok(self.expect(Some(p), Expected::Silence)?),
            _ => Err(Ended::Mistake("this role cannot do that".into())),
        }
    }

    // ----- what we do -----------------------------------------------------------------------------------------------

    fn send(&mut self, p: Proc, mode: WriteMode, lines: &[Template]) -> Result<(), Ended> {
        if lines.iter().any(|line| self.scope.names_agent(line)) {
            let group = self.recorder.judge.next_group();
            self.scope.set_agent(self.party.agent(group));
        }
        for bytes in self.scope.message(mode, lines)? {
            self.recorder.record(What::ToServer { proc: p, bytes: Bytes(bytes.clone()) });
            self.party.send(p, &bytes);
        }
        Ok(())
    }

    fn close(&mut self, p: Proc) {
        if !self.recorder.judge.is_closed(p) {
            self.recorder.record(What::ClosedByClient { proc: p });
            self.party.close(p);
        }
    }

    /// What a process's end means for its connection. The answers that are on their way are read first.
    fn dismiss(&mut self, p: Proc) {
        if self.dismissed.insert(p) {
            self.recorder.record(What::Ended { proc: p, ours: true });
        }
    }

    fn upstream_step(&mut self, p: Proc, action: &UpstreamAction) -> Result<(), Ended> {
        let command = match action {
            UpstreamAction::Answer { to, partial, lines } => {
                let mode = WriteMode { partial: *partial, ..WriteMode::default() };
                let text = Bytes(self.scope.message(mode, lines)?.concat());
                let to = match to {
                    None => self.asked(p, None),
                    some => Some(self.named(p, *some)?),
                };
                UpstreamCommand::Answer { proxy: p.rank, to, text }
            }
            UpstreamAction::Usual { to } => UpstreamCommand::Usual(self.named(p, *to)?),
            UpstreamAction::Close => UpstreamCommand::Close(p.rank),
        };
        if let Some(watcher) = self.recorder.sink.watcher() {
            watcher.ordered(&command);
        }
        self.party.upstream(command);
        Ok(())
    }

    /// The request that a step took: that number of them, from 1, or the last.
    fn asked(&self, p: Proc, number: Option<u32>) -> Option<u64> {
        let taken = self.recorder.judge.taken(p);
        let at = number.map_or(taken.len(), |n| n as usize).checked_sub(1)?;
        taken.get(at).copied()
    }

    fn named(&self, p: Proc, number: Option<u32>) -> Result<u64, Ended> {
        self.asked(p, number).ok_or_else(|| {
            Ended::Mistake(match number {
                Some(n) => format!("no step has taken a request number {n} of {p} before"),
                None => format!("no step has taken a request of {p} before"),
            })
        })
    }

    // ----- what we expect -------------------------------------------------------------------------------------------

    fn pattern(&self, line: &Template) -> Result<Pattern, ScenarioError> {
        let shown = self.source.text.get(line.span.start..line.span.end).unwrap_or_default();
        Pattern::new(&self.scope, line, shown)
    }

    fn choice(&self, alternative: &Alternative) -> Result<Choice, ScenarioError> {
        let what = match &alternative.action {
            Action::Message { lines, .. } if self.manager.is_some() => {
                Expected::Asks(lines.iter().map(|line| self.pattern(line)).collect::<Result<_, _>>()?)
            }
            Action::Message { lines, .. } => match lines.first() {
                Some(line) => Expected::Message(self.pattern(line)?),
                None => Expected::Newline,
            },
            Action::Empty => Expected::Newline,
            Action::Close => Expected::Close,
            _ => Expected::Silence,
        };
        let cites = alternative.cites.as_ref().map(|c| c.value.clone());
        Ok(Choice { grade: alternative.grade, cites, what })
    }

    /// Tells the judge what is expected, and waits until it has come or will not come any more.
    fn expect(&mut self, proc: Option<Proc>, what: Expected) -> Result<(), Stop> {
        let expectation = Expectation { proc, cites: self.cited.clone(), what };
        self.recorder.record(What::Expected(Box::new(expectation)));
        let awaited = self.recorder.judge.awaits();
        let (wait, silence) = match awaited {
            Some(Awaited::Silence) => (self.limits.silence, Silence::Expected),
            Some(Awaited::Start) => (self.limits.start(), Silence::Wrong),
            Some(Awaited::Choice) => (self.limits.step, Silence::Lawful),
            Some(Awaited::Due) | None => (self.limits.step, Silence::Wrong),
        };
        let deadline = Instant::now() + wait;
        while let Some(proof) = self.listen(deadline, silence, &|judge| judge.standing() != Standing::Open)? {
            self.recorder.record(What::Nothing { proof, waited_ms: wait.as_millis() as u64 });
            if let (Standing::Open, Some(proc)) = (self.recorder.judge.standing(), proc) {
                self.recorder.record(What::NoAnswer { proc, proof });
            }
        }
        let captures = self.recorder.judge.take_captures();
        self.scope.bind(captures);
        match self.recorder.judge.standing() {
            Standing::Broken => Err(Stop),
            Standing::Met | Standing::Open => Ok(()),
        }
    }

    /// Takes in what happens until `over`, or until nothing more comes; then, how that is known.
    fn listen(
        &mut self,
        deadline: Instant,
        silence: Silence,
        over: &dyn Fn(&Judge) -> bool,
    ) -> Result<Option<SilenceProof>, Stop> {
        loop {
            self.serve().map_err(|error| self.abandon(error.into()))?;
            if over(&self.recorder.judge) {
                return Ok(None);
            }
            match self.next(deadline, silence) {
                Incoming::Event(what) => {
                    let exited = match what {
                        What::Exited { proc, exit } => Some((proc, exit)),
                        _ => None,
                    };
                    self.recorder.record(what);
                    if let Some((p, exit)) = exited {
                        self.report_exit(p, exit).map_err(|error| self.abandon(error.into()))?;
                    }
                    self.bounded()?;
                }
                Incoming::Interrupted => {
                    self.recorder.record(What::Abandoned(Abandoned::Interrupted));
                    return Err(Stop);
                }
                Incoming::Nothing(SilenceProof::Timeout) if self.enough => return Err(Stop),
                Incoming::Nothing(proof) => return Ok(Some(proof)),
            }
        }
    }

    /// What comes next. The memory of those that are watched is looked at meanwhile.
    fn next(&mut self, deadline: Instant, silence: Silence) -> Incoming {
        if !self.watching {
            return self.party.next(deadline, silence);
        }
        loop {
            match self.party.next(deadline.min(Instant::now() + watch::LOOK), silence) {
                Incoming::Nothing(SilenceProof::Timeout) => self.look(),
                other => return other,
            }
            if self.enough || Instant::now() >= deadline {
                return Incoming::Nothing(SilenceProof::Timeout);
            }
        }
    }

    /// Whoever says or starts far too much is not listened to any longer.
    fn bounded(&mut self) -> Result<(), Stop> {
        if self.recorder.judge.has_enough() {
            return Err(Stop);
        }
        if self.recorder.judge.received() > self.limits.bytes {
            self.recorder.record(What::Flooded { limit: self.limits.bytes });
            return Err(Stop);
        }
        Ok(())
    }

    fn process_step(&mut self, p: Proc, action: &ProcessAction) -> Result<(), Ended> {
        match action {
            ProcessAction::Started => self.expect(Some(p), Expected::Started)?,
            ProcessAction::Env(name, expected) => {
                self.expect(Some(p), Expected::Started)?;
                let value = Matcher::new(&self.scope, expected)?;
                self.expect(Some(p), Expected::Variable { name: name.value.clone(), value })?;
            }
            ProcessAction::Args(expected) => {
                let expected = Bytes(self.scope.text(expected)?);
                self.expect(Some(p), Expected::Arguments(expected))?;
            }
            ProcessAction::Ended => self.expect(Some(p), Expected::Ended)?,
            ProcessAction::Exit(status) => {
                self.dismiss(p);
                self.party.exit(p, *status);
            }
            ProcessAction::Kill(signal) => {
                self.dismiss(p);
                self.party.kill(p, *signal);
            }
            ProcessAction::Ends(_)
            | ProcessAction::Over
            | ProcessAction::Copes
            | ProcessAction::SameOutput => {
                return Err(Ended::Mistake("what a client under test comes to".into()));
            }
            ProcessAction::JobExit(_) | ProcessAction::Logged => {
                return Err(Ended::Mistake("a step of the job stands under J".into()));
            }
        }
        Ok(())
    }

    fn job_step(&mut self, action: &Action) -> Result<(), Ended> {
        match action {
            Action::Process(ProcessAction::JobExit(expected)) => {
                self.release();
                self.expect(None, Expected::JobExits(*expected))?;
            }
            Action::Process(ProcessAction::Logged) => {
                // Launchers pass on what was written, and say what went wrong, when the job ends.
                self.release();
                self.expect(None, Expected::Logs)?;
            }
            _ => return Err(Ended::Mistake("this is not a step of the job".into())),
        }
        Ok(())
    }
}
