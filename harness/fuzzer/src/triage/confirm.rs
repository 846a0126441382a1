//! Examines a new failure: plays its case again, and minimizes the case.

use pmi_scenario::ids;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pmi_judge::crash::untraced_reason;
use pmi_judge::event::{Event, EventKind};

use super::reproducer::Symptom;
use super::schedule::Schedule;
use super::shrink::{self, drop_steps_only};
use super::store::{CONFIRMATION_RUNS, FREQUENCY_RUNS, StoredFinding};
use crate::observe::failure::{Failure, FailureKey, FailureKind, LastAction};
use crate::session::case::Case;
use crate::session::case::waits;
use crate::session::statement::{join, leave};
use crate::target::{CaseRun, Target, Thoroughness, Tracing};

/// Maximum number of cases that are played to minimize one finding.
const MAX_SHRINK_CASES: usize = 200;

/// Time allowed for minimizing one finding if cases are fast.
const SHRINK_TIME: Duration = Duration::from_secs(20);
/// Maximum time allowed for minimizing one finding if cases are slow.
const MAX_SHRINK_TIME: Duration = Duration::from_secs(60);
/// Minimum time allowed for minimizing one finding in a short campaign.
const MIN_SHRINK_TIME: Duration = Duration::from_secs(2);

/// Maximum time for measuring the frequency of a finding.
const FREQUENCY_TIME: Duration = Duration::from_secs(8);

/// Minimum duration of a run that is assumed to spend most of its time waiting.
const MIN_WAITING_RUN: Duration = Duration::from_millis(500);

/// The failure that a run of a case must reproduce.
#[derive(Clone, Copy)]
struct FailureFilter<'a> {
    key: &'a FailureKey,
    /// True if the failure must occur with valid input.
    valid: bool,
}

/// Maximum number of runs under a debugger for an intermittent crash.
const MAX_DEBUGGER_RUNS: u32 = 3;

/// Returns the tracing that a failure needs. A debugger is needed only if the failure is identified by a crash location.
fn tracing(key: &FailureKey) -> Tracing {
    if key.place().is_some() { Tracing::On } else { Tracing::Off }
}

/// An examiner of failures. It plays the case of a failure again to confirm the failure, and minimizes the case.
pub struct Examiner<'a> {
    /// The implementation under test.
    pub target: &'a dyn Target,
    /// The seed to record in findings.
    pub seed: u64,
    /// True when the user wants the campaign to end.
    pub interrupted: &'a AtomicBool,
    /// The time limits of the campaign.
    pub schedule: Schedule,
}

/// A failure that recurred when its case was played again.
#[derive(Debug)]
pub struct ConfirmedFailure {
    key: FailureKey,
    case: Case,
    /// The number of the case in the campaign.
    number: u64,
    /// Number of runs that showed the failure.
    repetitions: u32,
    /// Duration of one run.
    run_time: Duration,
    /// True if the failure occurred with valid input in at least one run.
    valid: bool,
    /// A run that shows the failure, with valid input if `valid` is true.
    run: CaseRun,
}

impl ConfirmedFailure {
    /// Returns the key of the failure.
    pub fn key(&self) -> &FailureKey {
        &self.key
    }

    /// Returns whether the failure occurred with valid input in at least one run.
    pub(crate) fn is_valid(&self) -> bool {
        self.valid
    }

    /// Returns a sort key that is smaller for more serious failures.
    pub(crate) fn severity_key(&self) -> (FailureKind, bool) {
        (self.key.kind(), !self.valid)
    }
}

/// A failure with the smallest case that shows it.
#[derive(Debug)]
pub struct MinimizedFailure {
    /// The finding to store.
    pub finding: StoredFinding,
    /// The smallest case that shows the failure.
    pub case: Case,
    /// A run of the smallest case.
    pub run: CaseRun,
    /// The symptom of the failure in this run.
    pub symptom: Option<Symptom>,
}

/// Returns the requirement to cite for a case in which the harness is a proxy's upstream, or `None` for any other case. The requirement is
/// cited only if the judge reported no requirement.
fn for_proxies(case: &Case, key: &FailureKey, events: &[Event]) -> Option<&'static str> {
    let sent_by_case =
        || events.iter().any(|event| matches!(event.kind, EventKind::ToProxy { scripted: true, .. }));
    let closed = || events.iter().any(|event| matches!(event.kind, EventKind::ClosedByUpstream { .. }));
    case.needs_upstream().then(|| match key.after() {
        Some(LastAction::UpstreamClose) => ids::HYDRA_UPSTREAM_LOST,
        None if closed() && !sent_by_case() => ids::HYDRA_UPSTREAM_LOST,
        _ => ids::HYDRA_UPSTREAM_BAD_TEXT,
    })
}

struct MinimizedCase {
    case: Case,
    /// Number of runs that showed the failure.
    repetitions: u32,
    /// True if the search ended because no smaller candidate showed the failure, and not because the limit on time or cases was reached.
    is_minimal: bool,
    /// Number of cases played to find the minimized case.
    cases_played: usize,
}

impl MinimizedCase {
    /// Returns whether the case shows its failure often enough to conclude that the failure needs the earlier job of the case.
    fn is_reliable(&self) -> bool {
        self.repetitions + 1 >= CONFIRMATION_RUNS
    }

    /// Restores the original case, which showed the failure in `repetitions` runs.
    fn restore(&mut self, original: &Case, repetitions: u32) {
        self.is_minimal &= self.case.is_same(original);
        (self.case, self.repetitions) = (original.clone(), repetitions);
    }
}

/// Runs a case several times in parallel, and returns the results of the successful runs. If the case has an earlier job, the runs are
/// sequential, so that no other job runs between the two jobs of a run.
fn run_parallel<T: Send>(case: &Case, runs: usize, run: impl Fn() -> Option<T> + Sync) -> Vec<T> {
    if case.earlier.is_some() {
        return (0..runs).filter_map(|_| run()).collect();
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..runs).map(|_| scope.spawn(&run)).collect();
        let ended = started.into_iter().map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
        ended.flatten().collect()
    })
}

impl Examiner<'_> {
    fn may_continue(&self) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns the deadline of an activity that may take `time`. The deadline is never after the late deadline of the campaign.
    fn deadline(&self, time: Duration) -> Instant {
        let deadline = Instant::now() + time;
        self.schedule.late_deadline().map_or(deadline, |late| late.min(deadline))
    }

    /// Plays a case, and returns the run if it shows the wanted failure.
    fn play_for(&self, case: &Case, pace: Thoroughness, filter: FailureFilter<'_>) -> Option<CaseRun> {
        self.play_judged(case, pace, filter).flatten()
    }

    /// Plays a case, and returns the run if it shows the wanted failure. The outer `None` means that the run could not be judged.
    fn play_judged(
        &self,
        case: &Case,
        pace: Thoroughness,
        filter: FailureFilter<'_>,
    ) -> Option<Option<CaseRun>> {
        let run =
            self.may_continue().then(|| self.target.play(case, pace, tracing(filter.key)).ok()).flatten()?;
        let shown = run.failure(filter.key);
        let is_judged = shown.is_some() || run.observation.unjudged.is_none();
        let shows = shown.is_some_and(|shown| !filter.valid || self.is_valid(case, &run, shown));
        is_judged.then_some(shows.then_some(run))
    }

    /// Returns whether a failure of a case occurred with valid input only, including the input of the earlier job.
    fn is_valid(&self, case: &Case, run: &CaseRun, failure: &Failure) -> bool {
        let is_valid_alone = |earlier: &Case| {
            let run = self.target.play(earlier, Thoroughness::Fast, Tracing::Off);
            let whole = Failure { seq: None, ..failure.clone() };
            run.is_ok_and(|run| run.is_valid(case.tests(), &whole))
        };
        run.is_valid(case.tests(), failure) && case.earlier.as_deref().is_none_or(is_valid_alone)
    }

    /// Reruns a case several times, and returns how many of the runs show the failure.
    fn count_repetitions(&self, case: &Case, filter: FailureFilter<'_>) -> u32 {
        self.repeat_runs(case, filter, 0).0.len() as u32
    }

    /// Runs a case several more times. Returns the runs that show the failure, and the duration of a run. The runs for a hang are parallel.
    /// Other runs are parallel if they spend most of their time waiting, unless the launcher cannot run two jobs at the same time.
    /// Sequential runs stop early when the number of runs that show the failure can no longer reach `least`.
    fn repeat_runs(&self, case: &Case, filter: FailureFilter<'_>, least: u32) -> (Vec<CaseRun>, Duration) {
        let (tries, least) = (CONFIRMATION_RUNS as usize, least as usize);
        let run = || self.play_for(case, Thoroughness::Thorough, filter);
        let start = Instant::now();
        if filter.key.is_hang() {
            let shown = run_parallel(case, tries, run);
            return (shown, start.elapsed());
        }
        let mut shown: Vec<CaseRun> = run().into_iter().collect();
        let mut made = 1;
        let one = start.elapsed();
        let goes_on = |shown: usize, made: usize| made < tries && shown + (tries - made) >= least;
        if goes_on(shown.len(), made) && one > MIN_WAITING_RUN && self.target.plays_at_once(tries - made) > 1
        {
            shown.extend(run_parallel(case, tries - made, run));
            return (shown, one);
        }
        while goes_on(shown.len(), made) {
            shown.extend(run());
            made += 1;
        }
        (shown, one)
    }

    /// Plays a case until `enough` runs have shown the failure, or until the limit on runs or on time is reached. Returns the number of
    /// runs that showed the failure, the total number of judged runs, and the first run that showed the failure.
    fn measure_frequency(
        &self,
        case: &Case,
        filter: FailureFilter<'_>,
        enough: u32,
    ) -> ([u32; 2], Option<CaseRun>) {
        let deadline = Instant::now() + FREQUENCY_TIME;
        let (mut counts, mut first) = ([0, 0], None);
        while counts[0] < enough
            && counts[1] < FREQUENCY_RUNS
            && self.may_continue()
            && Instant::now() < deadline
        {
            let Some(run) = self.play_judged(case, Thoroughness::Fast, filter) else { continue };
            counts = [counts[0] + u32::from(run.is_some()), counts[1] + 1];
            first = first.or(run);
        }
        (counts, first)
    }

    /// Reruns a case several times, and returns whether at least `least` of the runs show the failure.
    fn recurs_as_often(&self, case: &Case, filter: FailureFilter<'_>, least: u32) -> bool {
        self.repeat_runs(case, filter, least).0.len() as u32 >= least
    }

    /// Plays a case once more, and returns whether the case shows `failure`.
    pub fn recurs(&self, failure: &Failure, case: &Case) -> bool {
        self.play_for(case, Thoroughness::Thorough, FailureFilter { key: &failure.key, valid: false })
            .is_some()
    }

    /// Plays a case once more, and returns whether the case shows `failure` with valid input only.
    pub fn shows_by_valid_input(&self, failure: &Failure, case: &Case) -> bool {
        self.play_for(case, Thoroughness::Thorough, FailureFilter { key: &failure.key, valid: true })
            .is_some()
    }

    /// Returns the failure with a key that omits irrelevant circumstances, and a case that shows the failure. Returns `None` if the key
    /// stays the same.
    pub fn root_cause(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        match failure.key {
            FailureKey::Crash { .. } => self.root_of_crash(failure, case),
            FailureKey::Rule { party: None, .. } | FailureKey::Hang { party: None, .. } => {
                self.in_whole_writes(failure, case)
            }
            _ => None,
        }
    }

    /// Plays a case with its split requests sent whole, and returns the resulting failure if its key differs from the key of `failure` only
    /// in the requirement. For split requests, a requirement about split writes takes precedence and hides the other requirement.
    fn in_whole_writes(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        let whole = case.in_whole_writes().filter(|_| self.may_continue() && !self.schedule.is_late())?;
        let run = self.target.play(&whole, Thoroughness::Thorough, Tracing::Off).ok()?;
        let other = run.failures.into_iter().find(|other| other.key.differs_in_requirement(&failure.key))?;
        // If the original case also shows the new failure, the two failures are unrelated.
        let in_pieces = self.target.play(case, Thoroughness::Thorough, Tracing::Off).ok()?;
        in_pieces.failure(&other.key).is_none().then_some((other, whole))
    }

    /// Finds the location of a crash with a debugger, or minimizes the case of a crash whose location is unknown. The key of a crash at an
    /// unknown location names the last action before the crash was noticed. This action may be unrelated to the crash.
    fn root_of_crash(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        let same =
            |run: CaseRun| run.failures.into_iter().find(|other| other.key.is_same_crash(&failure.key));
        // Use a debugger, because the location of a crash is more informative than the action before it.
        let look = || same(self.target.play(case, Thoroughness::Thorough, Tracing::On).ok()?);
        // If the crash does not recur, there is nothing to minimize.
        let located = (0..MAX_DEBUGGER_RUNS).filter(|_| self.may_continue()).find_map(|_| look())?;
        if located.key.place().is_some() {
            return Some((located, case.clone()));
        }
        let deadline = self.deadline(SHRINK_TIME / 2);
        let case = drop_steps_only(case.clone(), MAX_SHRINK_CASES, &mut |candidate| {
            let play = |_| {
                self.target.play(candidate, Thoroughness::Fast, Tracing::Off).ok().and_then(same).is_some()
            };
            Instant::now() < deadline && self.may_continue() && (0..2).all(play)
        });
        let root = self.target.play(&case, Thoroughness::Thorough, Tracing::Off).ok().and_then(same)?;
        (root.key != failure.key).then_some((root, case))
    }

    /// Returns the time for minimizing a case, given the duration of one run and the number of waiting failures. In a short campaign,
    /// confirming several findings is more important than minimizing one.
    fn shrinking_time(&self, one: Duration, waiting: usize) -> Duration {
        let of_campaign = self.schedule.time().map_or(MAX_SHRINK_TIME, |time| time / 6);
        let left = self.schedule.late_deadline().map(|late| late.saturating_duration_since(Instant::now()));
        let share = left.map_or(MAX_SHRINK_TIME, |left| left / (waiting as u32 + 1));
        let most = of_campaign.min(share).clamp(MIN_SHRINK_TIME, MAX_SHRINK_TIME);
        (one * MAX_SHRINK_CASES as u32).clamp(SHRINK_TIME.min(most), most)
    }

    /// Returns the reason why a debugger cannot record where a process in the case dies.
    fn untraced_reason(&self, case: &Case) -> Option<String> {
        let run = self.target.play(case, Thoroughness::Thorough, Tracing::On).ok()?;
        untraced_reason(&run.observation.events).map(str::to_owned)
    }

    /// Plays the case of a failure several times. Returns `None` if the failure does not recur.
    pub fn confirm(&self, failure: &Failure, case: &Case, number: u64) -> Option<ConfirmedFailure> {
        let key = &failure.key;
        let filter = FailureFilter { key, valid: false };
        let (mut runs, one) = self.repeat_runs(case, filter, 0);
        if case.scenario.is_free && runs.is_empty() {
            // A race may show up in only a few runs, so play the case until the failure recurs once.
            runs.extend(self.measure_frequency(case, filter, 1).1);
        }
        let again = runs.len() as u32;
        // A timeout that occurs only once may be caused by machine load, so it is not confirmed.
        let by_clock = key.is_hang() || matches!(key, FailureKey::JobKeepsRunning(_));
        // If the user interrupted the runs, the frequency of the failure is unknown, so the failure is not confirmed.
        if by_clock && again < 2 || again < CONFIRMATION_RUNS && !self.may_continue() {
            return None;
        }
        let is_valid =
            |run: &CaseRun| run.failure(key).is_some_and(|failure| self.is_valid(case, run, failure));
        let valid = runs.iter().position(is_valid);
        let run = runs.drain(..).nth(valid.unwrap_or(0))?;
        let (key, case, valid) = (key.clone(), case.clone(), valid.is_some());
        Some(ConfirmedFailure { key, case, number, repetitions: again, run_time: one, valid, run })
    }

    /// Minimizes the case of a failure. `waiting` is the number of other failures that wait to be examined. If the failure occurs with
    /// valid input, the smallest case also contains only valid input. Returns `None` if the failure seems to need the earlier job but does
    /// not occur reliably after that job, or if no run shows whether the failure needs the earlier job.
    pub fn shrink(&self, shown: ConfirmedFailure, waiting: usize) -> Option<MinimizedFailure> {
        let ConfirmedFailure { ref key, ref case, number, repetitions: again, run_time: one, valid, .. } =
            shown;
        let time = self.shrinking_time(one, waiting);
        let filter = FailureFilter { key, valid };
        let mut best = self.minimize(case, filter, again, 2, time);
        if best.repetitions < again {
            // The minimized case shows the failure less often than the original case. Minimize again, with more runs for each candidate.
            let stricter = self.minimize(case, filter, again, 5, time);
            let played = best.cases_played + stricter.cases_played;
            if stricter.repetitions > best.repetitions {
                best = stricter;
            }
            best.cases_played = played;
        }
        let is_too_rare = best.case.earlier.is_some() && !best.is_reliable();
        if best.repetitions == 0 || best.repetitions < again && (is_too_rare || !self.may_continue()) {
            best.restore(case, again);
        }
        // A stored scenario needs a regular start and a wait for the effect of its last step.
        for fitted in [Case::with_regular_start, Case::joined, Case::with_final_wait] {
            if self.schedule.is_late() {
                break;
            }
            if let Some(fitted) =
                fitted(&best.case).filter(|f| self.recurs_as_often(f, filter, best.repetitions))
            {
                best.case = fitted;
            }
        }
        if best.repetitions > CONFIRMATION_RUNS / 2
            && !best.case.scenario.is_free
            && !self.schedule.is_late()
            && let Some(after_itself) = self.after_itself(&best.case, filter, best.repetitions)
        {
            best.case = after_itself;
        }
        best = self.without_idle_earlier(best, filter)?;
        // A race may also occur in a case whose messages have a fixed order, but not in every run.
        let is_race = |best: &MinimizedCase| {
            case.scenario.is_free && (best.case.scenario.is_free || best.repetitions < CONFIRMATION_RUNS)
        };
        let (mut frequency, mut last) = (None, None);
        if is_race(&best) {
            let (counts, first) = self.measure_frequency(&best.case, filter, FREQUENCY_RUNS);
            (frequency, last) = (first.is_some().then_some(counts), first);
        } else if !best.case.is_same(case) {
            let showing = |_| self.play_for(&best.case, Thoroughness::Thorough, filter);
            last = (0..CONFIRMATION_RUNS).find_map(showing);
        }
        let run = match last {
            Some(run) => run,
            None => {
                best.restore(case, again);
                frequency = is_race(&best)
                    .then(|| self.measure_frequency(case, filter, FREQUENCY_RUNS).0)
                    .filter(|[_, runs]| *runs > 0);
                shown.run
            }
        };
        let failure_again = run.failure(key)?.clone();
        // Shrinking may have removed the invalid messages, so the input is checked again.
        let valid = valid || self.is_valid(&best.case, &run, &failure_again);
        let symptom = Symptom::of_failure(&failure_again, &run.observation.events);
        let steps = [case.len(), best.case.len()];
        if key.is_hang() {
            waits::mark_missing(
                &mut best.case.scenario,
                &run.observation.unanswered(),
                *key == FailureKey::HangDuringPartialRequest,
            );
        }
        let found = StoredFinding {
            bucket: key.to_string(),
            description: failure_again.description,
            requirement: failure_again.requirement,
            kind: key.kind(),
            valid,
            needs_earlier_job: best.case.earlier.is_some(),
            backtrace: failure_again.backtrace.map(|trace| *trace),
            untraced: (key.is_unseen_crash() && self.may_continue())
                .then(|| self.untraced_reason(&best.case))
                .flatten(),
            server: self.target.label(),
            seed: self.seed,
            number,
            ingredients: case.ingredients.iter().cloned().collect(),
            frequency,
            repetitions: again,
            repetitions_minimal: best.repetitions,
            minimized: best.is_minimal,
            steps,
            minimizing_cases: best.cases_played,
        };
        let summary = format!("Found by fuzzing: {}.", found.description.trim_end_matches('.'));
        best.case.finish(
            &summary,
            found.requirement.as_deref().or(for_proxies(&best.case, key, &run.observation.events)),
        );
        Some(MinimizedFailure { finding: found, case: best.case, run, symptom })
    }

    /// Returns the case with an earlier job that does nothing, or `None` if no server is under test.
    fn after_idle(case: &Case) -> Option<Case> {
        let dialect = case.scenario.dialect;
        let idle = Case::in_dialect(dialect, case.tests(), case.ranks(), vec![join(dialect), leave(dialect)]);
        case.with_earlier_job(&idle)
    }

    /// Returns the case with itself as the earlier job, or `None` unless the failure needs an earlier run of the same case. When a case is
    /// played repeatedly, every run but the first follows a run of the same case. The failure needs such an earlier run if it disappears
    /// after an idle job.
    fn after_itself(&self, case: &Case, filter: FailureFilter<'_>, again: u32) -> Option<Case> {
        let after_idle = Self::after_idle(case)?;
        if (0..CONFIRMATION_RUNS)
            .any(|_| self.play_for(&after_idle, Thoroughness::Thorough, filter).is_some())
        {
            return None;
        }
        let after_itself = case.with_earlier_job(case)?;
        self.recurs_as_often(&after_itself, filter, again).then_some(after_itself)
    }

    /// Reruns a case several times, and returns how many of the runs show the failure. Returns `None` if no run could be judged.
    fn count_judged_repetitions(&self, case: &Case, filter: FailureFilter<'_>) -> Option<u32> {
        let run = |_| self.play_judged(case, Thoroughness::Thorough, filter);
        let runs: Vec<Option<CaseRun>> = (0..CONFIRMATION_RUNS).filter_map(run).collect();
        (!runs.is_empty()).then(|| runs.iter().flatten().count() as u32)
    }

    /// Removes the earlier job if the failure also occurs after an idle job. Returns `None` if the failure occurs only after the earlier
    /// job, but not reliably, or if no run after an idle job could be judged.
    fn without_idle_earlier(&self, best: MinimizedCase, filter: FailureFilter<'_>) -> Option<MinimizedCase> {
        if best.case.earlier.is_none() {
            return Some(best);
        }
        let alone = Case { earlier: None, ..best.case.clone() };
        let after_idle = Self::after_idle(&alone)?;
        match self.count_judged_repetitions(&after_idle, filter)? {
            0 => best.is_reliable().then_some(best),
            again => Some(MinimizedCase { case: alone, repetitions: again, ..best }),
        }
    }

    /// Minimizes a case. If every run so far has shown the failure, a candidate must show it in `runs` consecutive runs. Otherwise, a
    /// candidate must show it at least once in twice as many runs.
    fn minimize(
        &self,
        case: &Case,
        filter: FailureFilter<'_>,
        again: u32,
        runs: usize,
        time: Duration,
    ) -> MinimizedCase {
        let key = filter.key;
        let played = AtomicUsize::new(0);
        let deadline = self.deadline(time);
        let is_over = || Instant::now() >= deadline || !self.may_continue();
        if is_over() {
            let (case, repetitions) = (case.clone(), again);
            return MinimizedCase { case, repetitions, is_minimal: false, cases_played: 0 };
        }
        let mut candidates = 0;
        let mut shows = |candidate: &Case| {
            candidates += 1;
            let run = || {
                if is_over() {
                    return None;
                }
                played.fetch_add(1, Ordering::Relaxed);
                self.play_for(candidate, Thoroughness::Fast, filter)
            };
            match (again == CONFIRMATION_RUNS, key.is_hang()) {
                (true, true) => run_parallel(candidate, runs, run).len() == runs,
                (true, false) => (0..runs).all(|_| run().is_some()),
                (false, true) => !run_parallel(candidate, 2 * runs, run).is_empty(),
                (false, false) => (0..2 * runs).any(|_| run().is_some()),
            }
        };
        let case = shrink::shrink(case.clone(), MAX_SHRINK_CASES, key.depends_on_bytes(), &mut shows);
        let is_minimal = candidates < MAX_SHRINK_CASES && !is_over();
        let repetitions = self.count_repetitions(&case, filter);
        MinimizedCase { case, repetitions, is_minimal, cases_played: played.into_inner() }
    }
}
