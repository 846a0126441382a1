//! A run of the selected scenarios: each is played against a fresh launch, and several can be played at the same time. Results are reported
//! in the order of the suite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use crate::interference::{ConcurrentScenarios, MAX_NEIGHBOURS, PlayedBy};
use crate::interpret::EventSink;
use crate::iut::{Iut, PlayResult, Prober, append};
use crate::optional_operations::{dialects, offers};
use crate::party::ScenarioLimits;
use crate::party::server::{Implementation, LaunchEnvironment};
use pmi_judge::attempts::AttemptMerger;
use pmi_judge::crash::{CrashedProcess, crash_backtrace};
use pmi_judge::deviations::Deviations;
use pmi_judge::event::{Event, EventKind, OtherJob};
use pmi_judge::result::{self, RunFacts};
use pmi_judge::verdict::{JudgedFinding, LOG_FORMAT, RunEnd, RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{ScenarioOutcome, UnjudgedReason};
use pmi_process::trace;
use pmi_scenario::ast::{Dialect, Scenario, SourceFile};
use pmi_scenario::suite::Suite;

/// Number of consecutive unresponsive scenarios after which the run gives up.
const MAX_UNRESPONSIVE: usize = 5;

/// The number of attempts for each scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttemptPolicy {
    /// A single attempt.
    #[default]
    Once,
    /// This number of attempts. The worst result counts.
    Repeat(u32),
    /// At most this number of retries, while the scenario is red or a recorded deviation is missing. A scenario that is not red in
    /// the last attempt is flaky.
    Retry(u32),
}

impl AttemptPolicy {
    fn max_attempts(self) -> u32 {
        match self {
            Self::Once => 1,
            Self::Repeat(times) => times.max(1),
            Self::Retry(more) => more.saturating_add(1),
        }
    }
}

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Number of concurrent launches.
    pub jobs: usize,
    /// The limits of a scenario.
    pub limits: ScenarioLimits,
    /// The strictness, which determines which scenarios are red.
    pub strict: Strictness,
    /// Number of red scenarios after which the run stops.
    pub max_fail: Option<usize>,
    /// True if the run gives up when the implementation is unresponsive.
    pub give_up: bool,
    /// The number of attempts for each scenario.
    pub attempts: AttemptPolicy,
    /// The path of this executable, which acts as the tracer when a scenario is repeated after a crash. If `None`, crashes are not located.
    pub tracer: Option<PathBuf>,
    /// The command line that plays one scenario again, without the scenario's name.
    pub replay: String,
    /// The command line of the run.
    pub command: String,
    /// The requested dialects, for the header of a run without scenarios.
    pub dialects: Vec<Dialect>,
}

impl RunOptions {
    /// Returns options for a run that produces no report and plays all scenarios one after the other.
    pub fn unreported(limits: ScenarioLimits) -> Self {
        Self { jobs: 1, limits, ..Self::default() }
    }
}

/// An observer that receives the progress of a run, in the order of the suite.
pub trait Observer {
    /// Called when the run begins.
    fn begin(&mut self, header: &RunHeader);
    /// Called for each event of a scenario.
    fn event(&mut self, scenario: &str, event: &Event);
    /// Called when a scenario has ended.
    fn result(&mut self, result: &ScenarioResult);
}

/// An observer that ignores the progress.
impl Observer for () {
    fn begin(&mut self, _: &RunHeader) {}
    fn event(&mut self, _: &str, _: &Event) {}
    fn result(&mut self, _: &ScenarioResult) {}
}

enum WorkerReport {
    Events(usize, Vec<Event>),
    Done(usize, Box<(ScenarioOutcome, Duration)>),
    /// The result of a scenario, with all of its attempts.
    Attempted(usize, Box<AttemptsResult>),
    Skipped(usize, Box<(Verdict, String)>),
}

/// The result of all attempts of a scenario.
struct AttemptsResult {
    result: ScenarioResult,
    /// The events of the attempt that counts.
    events: Vec<Event>,
    /// True if the implementation was unresponsive in the last attempt.
    unresponsive: bool,
    scenario_error: bool,
    interrupted: bool,
}

/// A sink that passes events to the main thread in batches, because each wake-up of that thread takes processor time from the scenario.
struct EventBatcher<'a> {
    index: usize,
    sender: &'a mpsc::Sender<WorkerReport>,
    events: Vec<Event>,
    /// Number of bytes in the batched events.
    bytes: usize,
}

/// Number of events, and number of bytes in these events, at which a batch is sent.
const BATCH: (usize, usize) = (1024, 1 << 20);

impl EventBatcher<'_> {
    fn flush(&mut self) {
        self.bytes = 0;
        let events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            // This fails only after the run has stopped, when the main thread no longer receives events.
            let _ = self.sender.send(WorkerReport::Events(self.index, events));
        }
    }
}

impl EventSink for EventBatcher<'_> {
    fn event(&mut self, event: &Event) {
        self.bytes += event.kind.bytes().map_or(0, <[u8]>::len);
        self.events.push(event.clone());
        if self.events.len() >= BATCH.0 || self.bytes >= BATCH.1 {
            self.flush();
        }
    }
}

/// Plays the scenarios and judges them.
pub fn run(
    suite: &Suite,
    selected: &[Arc<Scenario>],
    iut: &Iut,
    deviations: &mut Deviations,
    options: &RunOptions,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> (RunHeader, Vec<ScenarioResult>, RunEnd) {
    let start = Instant::now();
    let header = RunHeader {
        format: LOG_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        server: iut.label(),
        implementation: deviations.implementation().map(str::to_owned),
        implementation_version: iut.version(),
        command: options.command.clone(),
        against: suite.catalogue.enabled_sets().into_iter().map(str::to_owned).collect(),
        dialect: RunHeader::protocols(&match dialects(selected) {
            none if none.is_empty() => options.dialects.iter().copied().collect(),
            spoken => spoken,
        }),
        connection: iut.connection_method(),
        relayed: iut.is_relayed(),
        under_test: Some(iut.party()),
        selected: selected.len(),
        strict: options.strict,
    };
    observer.begin(&header);
    let operations = offers(Prober { suite, iut, limits: options.limits }, selected);
    let mut results = Vec::new();
    // Scenarios that were in progress when the user interrupted the run.
    let mut cut = BTreeSet::new();
    let mut scenario_errors = false;
    let stop = AtomicBool::new(false);
    // Launches on several nodes use a different command, so their unresponsive scenarios are counted separately.
    let kind = |index: usize| usize::from(selected[index].nodes > 1);
    let dead = [AtomicBool::new(false), AtomicBool::new(false)];
    let next = AtomicUsize::new(0);
    // With retries, examine each failure: a retry would hide a failure that occurs only while other scenarios are running.
    let neighbours = ConcurrentScenarios::new(!matches!(options.attempts, AttemptPolicy::Retry(_)));
    let unrelated = OnceLock::new();
    // The workers use a copy, because the results are recorded in `deviations` while the workers play.
    let known = deviations.clone();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..iut.plays_at_once(options.jobs).clamp(1, selected.len().max(1)) {
            let sender = sender.clone();
            let (stop, dead, next, operations, neighbours) = (&stop, &dead, &next, &operations, &neighbours);
            let (unrelated, known) = (&unrelated, &known);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = selected.get(index) else { break };
                    let mut sink = EventBatcher { index, sender: &sender, events: Vec::new(), bytes: 0 };
                    let play = |sink: &mut dyn EventSink| {
                        if let Some(why) = operations.exclusion(suite, scenario, iut) {
                            return Err(why);
                        }
                        let scenario = &operations.bind(scenario);
                        let once = |scenario: &Scenario, sink: &mut dyn EventSink| {
                            iut.play(suite, scenario, options.limits, interrupted, sink)
                        };
                        let (played, beside) = neighbours.play_with_others(index, || {
                            let (mut outcome, time) = once(scenario, sink)?;
                            if let Some(tracer) = options.tracer.as_deref()
                                && outcome.crashed.is_some()
                            {
                                locate_crash(&mut outcome, tracer, || drop(once(scenario, &mut ())), sink);
                            }
                            Ok((outcome, time))
                        });
                        let (mut outcome, time) = played?;
                        let found = failure(suite, scenario, &outcome, options.strict, known);
                        if let Iut::Processes(_, environment) = iut
                            && !found.is_empty()
                        {
                            let fails = || match once(scenario, &mut ()) {
                                // The run is ending, so failures are no longer examined.
                                _ if stop.load(Ordering::Relaxed) => true,
                                Ok((again, _)) => {
                                    let trouble = again.unjudged.is_some() || again.crashed.is_some();
                                    trouble
                                        || !failure(suite, scenario, &again, options.strict, known).is_empty()
                                }
                                Err(_) => true,
                            };
                            let play_other = |by: PlayedBy, other: usize| {
                                let iut = match by {
                                    PlayedBy::Implementation => iut,
                                    PlayedBy::Reference => unrelated.get_or_init(|| reference(environment)),
                                };
                                let scenario = &operations.bind(&selected[other]);
                                let played = iut.play(suite, scenario, options.limits, interrupted, &mut ());
                                let events = played.map(|(outcome, _)| outcome.events).unwrap_or_default();
                                OtherJob { scenario: scenario.name.clone(), events }
                            };
                            for fact in neighbours.examine(
                                &scenario.name,
                                &found,
                                &beside,
                                fails,
                                |other| selected[other].name.clone(),
                                play_other,
                            ) {
                                append(&mut outcome, fact, sink);
                            }
                        }
                        Ok((outcome, time))
                    };
                    let message = if dead[kind(index)].load(Ordering::Relaxed) {
                        Err((Verdict::Unjudged, not_attempted_reason()))
                    } else if options.attempts == AttemptPolicy::Once {
                        play(&mut sink).map(|done| WorkerReport::Done(index, Box::new(done)))
                    } else {
                        let mut play = || play(&mut ());
                        let tried = play_attempts(suite, scenario, options, known, &mut play);
                        tried.map(|tried| WorkerReport::Attempted(index, Box::new(tried)))
                    };
                    let message =
                        message.unwrap_or_else(|skipped| WorkerReport::Skipped(index, Box::new(skipped)));
                    sink.flush();
                    if sender.send(message).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut order = OrderedReports::default();
        let mut red = 0;
        let enough = |red| options.max_fail.is_some_and(|max| red >= max);
        // Unresponsive scenarios are counted in the order of the suite, so that the results do not depend on the number of concurrent
        // launches.
        let mut unresponsive = [0; 2];
        // A run never gives up on a program. If the plain run fails, scenarios that need it report the failure without a further launch,
        // and the other scenarios may reveal the cause.
        let gives_up = options.give_up && !matches!(iut, Iut::Client(_));
        let gave_up =
            |unresponsive: [usize; 2], kind: usize| gives_up && unresponsive[kind] >= MAX_UNRESPONSIVE;
        for message in receiver {
            order.take(message, |message| {
                // Workers may have played further scenarios. Their results are ignored, so that every run stops after the same scenario.
                if enough(red) {
                    return;
                }
                let result = match message {
                    WorkerReport::Events(index, _) if gave_up(unresponsive, kind(index)) => return,
                    WorkerReport::Done(index, _)
                    | WorkerReport::Attempted(index, _)
                    | WorkerReport::Skipped(index, _)
                        if gave_up(unresponsive, kind(index)) =>
                    {
                        skip(&selected[index], Verdict::Unjudged, not_attempted_reason(), options)
                    }
                    WorkerReport::Events(index, _) if deviations.are_sensitive_in(&selected[index].name) => {
                        return;
                    }
                    WorkerReport::Events(index, events) => {
                        return events.iter().for_each(|event| observer.event(&selected[index].name, event));
                    }
                    WorkerReport::Done(index, done) => {
                        let (outcome, time) = *done;
                        count_unresponsive(&mut unresponsive[kind(index)], outcome.unresponsive);
                        scenario_errors |= outcome.scenario_error.is_some();
                        if outcome.unjudged == Some(UnjudgedReason::Interrupted) {
                            cut.insert(selected[index].name.clone());
                        }
                        judged(suite, &selected[index], outcome, time, options, deviations)
                    }
                    WorkerReport::Attempted(index, tried) => {
                        let AttemptsResult {
                            result,
                            events,
                            unresponsive: none,
                            scenario_error: mistake,
                            interrupted,
                        } = *tried;
                        count_unresponsive(&mut unresponsive[kind(index)], none);
                        scenario_errors |= mistake;
                        if interrupted {
                            cut.insert(result.scenario.clone());
                        }
                        if !deviations.are_sensitive_in(&result.scenario) {
                            events.iter().for_each(|event| observer.event(&result.scenario, event));
                        }
                        result
                    }
                    WorkerReport::Skipped(index, skipped) => {
                        // Count failed launches, but not scenarios that do not apply.
                        let excused = operations.exclusion(suite, &selected[index], iut).is_some();
                        unresponsive[kind(index)] += usize::from(skipped.0 == Verdict::Unjudged && !excused);
                        skip(&selected[index], skipped.0, skipped.1, options)
                    }
                };
                deviations.record(&result);
                red += usize::from(result.is_red(options.strict));
                observer.result(&result);
                results.push(result);
            });
            for (kind, dead) in dead.iter().enumerate() {
                dead.store(gave_up(unresponsive, kind), Ordering::Relaxed);
            }
            if enough(red) {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
    });
    // An interrupted scenario has no meaningful result, so its result is dropped.
    let interrupted = interrupted.load(Ordering::Relaxed);
    if interrupted {
        results.retain(|r: &ScenarioResult| !cut.contains(&r.scenario));
    }
    let ran = RunFacts {
        selected: selected.len(),
        interrupted,
        scenario_errors,
        strict: options.strict,
        time: start.elapsed(),
    };
    let end = result::run_end(&results, deviations, ran);
    (header, results, end)
}

/// Returns the reference manager. Its jobs can affect those of an implementation under test only through the load that they cause.
fn reference(environment: &LaunchEnvironment) -> Iut {
    let reference = Implementation::reference(&environment.binary);
    Iut::Processes(Box::new(reference), environment.for_other_implementation(MAX_NEIGHBOURS))
}

/// Counts consecutive unresponsive scenarios.
fn count_unresponsive(number: &mut usize, unresponsive: bool) {
    *number = if unresponsive { *number + 1 } else { 0 };
}

/// Returns the result of a scenario that was played.
fn judged(
    suite: &Suite,
    scenario: &Scenario,
    outcome: ScenarioOutcome,
    time: Duration,
    options: &RunOptions,
    deviations: &Deviations,
) -> ScenarioResult {
    let mut blank = empty_result(scenario, options);
    blank.time_us = time.as_micros() as u64;
    let quote = |line| quote_line(&scenario.source, line);
    result::scenario_result(blank, outcome, &suite.catalogue, quote, deviations, options.strict)
}

/// Returns the findings that make an outcome red, with the `known` deviations applied. The result is empty for a crash, and for an outcome
/// that cannot be judged.
fn failure(
    suite: &Suite,
    scenario: &Scenario,
    outcome: &ScenarioOutcome,
    strict: Strictness,
    known: &Deviations,
) -> Vec<JudgedFinding> {
    if outcome.unjudged.is_some() || outcome.crashed.is_some() || outcome.findings.is_empty() {
        return Vec::new();
    }
    let findings = outcome.findings.iter();
    let mut findings: Vec<JudgedFinding> =
        findings.map(|f| result::judged(&suite.catalogue, f.clone())).collect();
    known.mark(&scenario.name, &mut findings);
    findings.retain(|judged| strict.makes_red(judged));
    findings
}

/// Locates the crash of an outcome by playing its scenario again under a tracer. Uses only the location of the crash from that run.
fn locate_crash(
    outcome: &mut ScenarioOutcome,
    tracer: &Path,
    again: impl FnOnce(),
    sink: &mut dyn EventSink,
) {
    let Some((name, signal)) = &outcome.crashed else { return };
    let ((), trace_events) = trace::traced(tracer, again);
    let events: Vec<Event> =
        (outcome.events.len() as u64..).zip(trace_events).map(|(seq, kind)| Event::new(seq, kind)).collect();
    let of = CrashedProcess::party(outcome.party, name);
    let is_wanted = |event: &Event| match &event.kind {
        EventKind::Backtrace(trace) => {
            crash_backtrace(&events, of, *signal).is_some_and(|wanted| std::ptr::eq(wanted, &**trace))
        }
        kind => matches!(kind, EventKind::Untraced { .. }),
    };
    let Some(index) = events.iter().position(is_wanted) else { return };
    append(outcome, events[index].kind.clone(), sink);
}

/// Plays a scenario as often as the options require. Keeps only the events of the attempt that counts, because a log contains each scenario
/// only once.
fn play_attempts(
    suite: &Suite,
    scenario: &Scenario,
    options: &RunOptions,
    deviations: &Deviations,
    play: &mut dyn FnMut() -> PlayResult,
) -> Result<AttemptsResult, (Verdict, String)> {
    let retry = matches!(options.attempts, AttemptPolicy::Retry(_));
    let mut attempts = AttemptMerger::new(options.strict);
    let mut events = Vec::new();
    let (mut unresponsive, mut mistake, mut interrupted) = (false, false, false);
    // Deviations that were absent from every attempt. A deviation that is absent from some attempts by chance is not stale.
    let mut missed: Option<BTreeSet<usize>> = None;
    for _ in 0..options.attempts.max_attempts() {
        let (outcome, time) = match play() {
            Ok(played) => played,
            // The scenario was played in an earlier attempt, so the results of the earlier attempts count.
            Err(_) if attempts.played() > 0 => break,
            Err(skipped) => return Err(skipped),
        };
        unresponsive = outcome.unresponsive;
        mistake |= outcome.scenario_error.is_some();
        interrupted = outcome.unjudged == Some(UnjudgedReason::Interrupted);
        if interrupted && attempts.played() > 0 {
            break;
        }
        let of_this_one = outcome.events.clone();
        let result = judged(suite, scenario, outcome, time, options, deviations);
        let red = result.is_red(options.strict);
        let in_this_one = deviations.unconfirmed_in(&result);
        missed = Some(missed.map_or(in_this_one.clone(), |missed| &missed & &in_this_one));
        let complete = missed.as_ref().is_none_or(BTreeSet::is_empty);
        let interference = result::is_interference(&result.findings);
        if attempts.add(result) {
            events = of_this_one;
        }
        if (retry && !red && complete) || interference || mistake || interrupted {
            break;
        }
    }
    let result = attempts.finish(retry).ok_or_else(|| (Verdict::Unjudged, not_attempted_reason()))?;
    Ok(AttemptsResult { result, events, unresponsive, scenario_error: mistake, interrupted })
}

/// Returns a line of a scenario's file by its number, which starts at 1. Returns an empty string if the file has no such line.
fn quote_line(source: &SourceFile, line: usize) -> String {
    let text = line.checked_sub(1).and_then(|before| source.text.lines().nth(before));
    text.unwrap_or_default().to_owned()
}

fn not_attempted_reason() -> String {
    format!(
        "not tried: the previous {MAX_UNRESPONSIVE} scenarios got no response (pass --no-give-up to try all)"
    )
}

/// The reports from several workers, sorted into the order of the suite.
#[derive(Default)]
struct OrderedReports {
    next: usize,
    waiting: BTreeMap<usize, Vec<WorkerReport>>,
}

impl OrderedReports {
    fn take(&mut self, message: WorkerReport, mut pass_on: impl FnMut(WorkerReport)) {
        let (index, last) = match &message {
            WorkerReport::Events(index, _) => (*index, false),
            WorkerReport::Done(index, _)
            | WorkerReport::Attempted(index, _)
            | WorkerReport::Skipped(index, _) => (*index, true),
        };
        if index != self.next {
            self.waiting.entry(index).or_default().push(message);
            return;
        }
        pass_on(message);
        let mut finished = last;
        while finished {
            self.next += 1;
            finished = false;
            for message in self.waiting.remove(&self.next).unwrap_or_default() {
                finished |= !matches!(message, WorkerReport::Events(..));
                pass_on(message);
            }
        }
    }
}

fn skip(scenario: &Scenario, verdict: Verdict, reason: String, options: &RunOptions) -> ScenarioResult {
    ScenarioResult { verdict, reason: Some(reason), ..empty_result(scenario, options) }
}

/// Returns the initial result of a scenario, before its first attempt.
fn empty_result(scenario: &Scenario, options: &RunOptions) -> ScenarioResult {
    ScenarioResult {
        scenario: scenario.name.clone(),
        summary: scenario.summary(),
        verdict: Verdict::Pass,
        requires: scenario.requires.iter().map(|r| r.value.clone()).collect(),
        replay: format!("{} --filter '={}'", options.replay, scenario.name),
        path: scenario.source.path.clone(),
        launch: scenario.server_setup.launch.as_ref().map(|words| words.value.clone()),
        ..ScenarioResult::default()
    }
}
