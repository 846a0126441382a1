//! Campaigns, which play cases in parallel and separate known failures from new ones.

pub mod corpus;
mod examination;
mod frontier;
mod queue;
pub mod state;
pub mod stored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use queue::{FailureOccurrence, PendingShrink};

use crate::generate::{Generator, case_from_number};
use crate::observe::edges::{Edges, NewCoverage};
use crate::observe::transition::transitions;
use crate::session::WriteError;
use crate::session::case::Case;
use crate::target::exclusive::ExclusiveTarget;
use crate::target::{CaseRun, Target, Thoroughness, Tracing};
use crate::triage::confirm::Examiner;
use crate::triage::known_failures::{IngredientStatistics, KnownFailures};
use crate::triage::schedule::Schedule;
use crate::triage::shrink::drop_steps_only;
use crate::triage::store::StoredFinding;
use state::{CampaignState, StateError};

/// Maximum number of silence durations that are kept to determine their median.
const MAX_SILENCES: usize = 100_000;

/// Maximum number of failures that wait for an examiner. When the queue is full, the worker that encountered a failure examines it, because
/// failures at the end of a longer queue would never be examined.
const MAX_WAITING_FAILURES: usize = 16;

/// A campaign ends if none of the first `MAX_UNJUDGED` cases could be judged.
const MAX_UNJUDGED: u64 = 20;

/// Maximum number of runs for trimming a case. Trimming removes the steps that the case does not need to cover its new edges.
const MAX_TRIM_PLAYS: u64 = 32;
/// Number of runs for trimming, in addition to one run per case. These runs are spent on the first cases, which have the most steps to
/// remove.
const TRIM_ALLOWANCE: u64 = 400;

/// The options of a campaign.
#[derive(Debug, Clone)]
pub struct CampaignOptions {
    /// The seed from which the cases are generated.
    pub seed: u64,
    /// Maximum number of cases to play.
    pub sessions: Option<u64>,
    /// Maximum duration of the campaign.
    pub time: Option<Duration>,
    /// Number of workers that play cases in parallel.
    pub workers: usize,
    /// True if failures that need invalid input are ignored.
    pub valid: bool,
    /// The folder in which findings are stored.
    pub out: PathBuf,
    /// The known failures, which are counted but not reported.
    pub known: KnownFailures,
    /// The command line that replays a finding, up to the name of its folder.
    pub replay: String,
}

/// The progress of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Time since the campaign began.
    pub time: Duration,
    /// Number of cases played.
    pub sessions: u64,
    /// Number of cases skipped because they would only have shown known failures.
    pub skipped: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Number of transitions of the model that were covered.
    pub transitions: usize,
    /// Number of edges covered in the implementation's program, if coverage was requested. The number is 0 if the program is not
    /// instrumented.
    pub edges: Option<usize>,
    /// Number of cases in the corpus.
    pub corpus: usize,
    /// Buckets (groups of equivalent failures) found in this campaign, and how often each was seen.
    pub new: BTreeMap<String, u64>,
    /// Known buckets, and how often each was seen.
    pub known: BTreeMap<String, u64>,
    /// Buckets whose failure did not recur, and how often each was examined.
    pub unconfirmed: BTreeMap<String, u32>,
    /// Buckets that were not completely examined when the campaign ended.
    pub unexamined: BTreeSet<String>,
    /// Number of failures that are being examined or waiting to be examined.
    pub examining: usize,
    /// Number of cases that could not be judged, and the reason for the last one.
    pub unjudged: (u64, String),
    /// Median time needed to determine that the server does not respond.
    pub silence: Option<Duration>,
    /// The largest growth of a server process's memory within a case, in bytes.
    pub growth: u64,
}

/// The progress of a campaign at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressSample {
    /// Time since the campaign began.
    pub time: Duration,
    /// Number of cases played.
    pub sessions: u64,
    /// Number of transitions of the model that were covered.
    pub transitions: usize,
    /// Number of edges covered in the implementation's program, if coverage was requested.
    pub edges: Option<usize>,
}

/// Maximum number of samples to keep. In a long campaign, the interval between samples grows.
const MAX_SAMPLES: usize = 400;

/// The samples of a campaign's progress, in order.
#[derive(Debug)]
struct ProgressHistory {
    samples: Vec<ProgressSample>,
    /// Minimum time between two samples.
    step: Duration,
}

impl ProgressHistory {
    fn note(&mut self, progress: &Progress) {
        let last = self.samples.last().map(|moment| moment.time);
        if last.is_some_and(|last| progress.time < last + self.step) {
            return;
        }
        self.end(progress);
        if self.samples.len() == MAX_SAMPLES {
            let mut count = 0;
            self.samples.retain(|_| {
                count += 1;
                count % 2 == 1
            });
            self.step *= 2;
        }
    }

    fn end(&mut self, progress: &Progress) {
        let Progress { time, sessions, transitions, edges, .. } = *progress;
        self.samples.push(ProgressSample { time, sessions, transitions, edges });
    }
}

/// An error while writing a file of a campaign.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The state of the campaign cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A finding or a case of the corpus cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A receiver of the progress and the findings of a campaign.
pub trait Reporter: Sync {
    /// Receives the progress, about once a second.
    fn progress(&self, progress: &Progress);
    /// Called once if coverage was requested but the implementation is not instrumented.
    fn not_instrumented(&self);
    /// Receives a new finding that was stored.
    fn found(&self, found: &StoredFinding);
    /// Receives an error about a file that could not be written.
    fn error(&self, error: &CampaignError);
}

/// The result of a campaign.
#[derive(Debug)]
pub struct CampaignSummary {
    /// The final progress.
    pub progress: Progress,
    /// The samples of the progress, in chronological order. The last one was taken at the end of the campaign.
    pub history: Vec<ProgressSample>,
    /// The findings that the campaign stored.
    pub found: Vec<StoredFinding>,
    /// For each new bucket, the time from the start of the campaign to the first occurrence.
    pub first_met: BTreeMap<String, Duration>,
    /// True if the user interrupted the campaign.
    pub interrupted: bool,
}

#[derive(Default)]
struct SharedState {
    state: CampaignState,
    ingredient_statistics: IngredientStatistics,
    progress: Progress,
    /// Buckets that are not examined again, because a worker has already claimed them or an earlier campaign has recorded them.
    claimed: BTreeSet<String>,
    /// Buckets with a confirmed failure.
    confirmed_buckets: BTreeSet<String>,
    /// Buckets that were found with invalid input, and are examined again because they were later encountered with valid input.
    valid: BTreeSet<String>,
    found: Vec<StoredFinding>,
    first_met: BTreeMap<String, Duration>,
    silences: Vec<Duration>,
    /// Failures that are waiting to be confirmed.
    waiting: VecDeque<FailureOccurrence>,
    /// Confirmed failures whose cases are waiting to be minimized.
    confirmed: VecDeque<PendingShrink>,
    /// The generated case whose run ended last.
    last_ended: Option<Arc<Case>>,
    /// Number of failures that are being examined.
    examining: usize,
    /// Number of workers that are still playing new cases.
    playing: usize,
    /// Number of runs that were used for trimming.
    trimmed: u64,
}

impl SharedState {
    /// Returns whether this campaign has found a bucket, but only with invalid input.
    fn needs_invalid_input(&self, bucket: &str) -> bool {
        self.found.iter().any(|found| found.bucket == bucket && !found.valid)
    }
}

struct Campaign<'a> {
    target: &'a dyn Target,
    generator: &'a dyn Generator,
    examiner: Examiner<'a>,
    options: &'a CampaignOptions,
    interrupted: &'a AtomicBool,
    reporter: &'a dyn Reporter,
    next: AtomicU64,
    end: AtomicBool,
    schedule: Schedule,
    /// True if some workers only examine the failures that other workers encounter.
    has_examiners: bool,
    shared: Mutex<SharedState>,
    /// The condition variable that is notified when a failure is added to a queue, and when a worker stops playing.
    work_available: Condvar,
}

/// Runs a campaign, beginning with case number `state.next`.
pub fn run(
    target: &dyn Target,
    generator: &dyn Generator,
    options: &CampaignOptions,
    state: CampaignState,
    interrupted: &AtomicBool,
    reporter: &dyn Reporter,
) -> CampaignSummary {
    let first = state.next;
    let taken = state.buckets.keys().cloned().collect();
    // Players spend most of their time waiting for a silence or for the end of a job. The target therefore chooses a number of players that
    // is large enough to keep all `workers` busy.
    let players = target.plays_at_once(options.workers).max(1);
    // Examiners are additional threads, because they also spend most of their time waiting.
    let examiners = if players > options.workers.max(1) { players / 2 } else { 0 };
    let schedule = Schedule::new(options.time);
    let jobs = RwLock::new(());
    let played = |alone| ExclusiveTarget { target, jobs: &jobs, alone, interrupted };
    let (first_played, again) = (played(false), played(true));
    let campaign = Campaign {
        target: &first_played,
        generator,
        examiner: Examiner { target: &again, seed: options.seed, interrupted, schedule },
        options,
        interrupted,
        reporter,
        next: AtomicU64::new(first),
        end: AtomicBool::new(false),
        schedule,
        shared: Mutex::new(SharedState {
            progress: Progress { transitions: state.transitions.len(), ..Progress::default() },
            state,
            claimed: taken,
            playing: players,
            ..SharedState::default()
        }),
        has_examiners: examiners > 0,
        work_available: Condvar::new(),
    };
    let mut overdue = false;
    let mut history = ProgressHistory { samples: Vec::new(), step: Duration::from_millis(900) };
    history.note(&campaign.progress());
    std::thread::scope(|scope| {
        let players = (0..players).map(|_| scope.spawn(|| campaign.work(first)));
        let examiners = (0..examiners).map(|_| scope.spawn(|| campaign.examine_others()));
        let workers: Vec<_> = players.chain(examiners).collect();
        let mut reported = Instant::now();
        while workers.iter().any(|w| !w.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if reported.elapsed() >= Duration::from_secs(1) {
                reported = Instant::now();
                let progress = campaign.progress();
                campaign.reporter.progress(&progress);
                history.note(&progress);
                campaign.save();
                let found = !campaign.lock().found.is_empty();
                if !interrupted.load(Ordering::Relaxed) && schedule.is_overdue(found) {
                    overdue = true;
                    interrupted.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    campaign.save();
    let progress = campaign.progress();
    history.end(&progress);
    let shared = campaign.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    CampaignSummary {
        progress,
        history: history.samples,
        found: shared.found,
        first_met: shared.first_met,
        interrupted: interrupted.load(Ordering::Relaxed) && !overdue,
    }
}

impl Campaign<'_> {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> Progress {
        let mut shared = self.lock();
        shared.silences.sort_unstable();
        let mut progress = shared.progress.clone();
        progress.silence = shared.silences.get(shared.silences.len() / 2).copied();
        progress.time = self.schedule.elapsed();
        progress.transitions = shared.state.transitions.len();
        progress.edges = progress.edges.map(|_| shared.state.edges.len());
        progress.corpus = self.generator.kept();
        progress.examining = shared.waiting.len() + shared.confirmed.len() + shared.examining;
        progress
    }

    /// Saves the state that a later campaign continues from.
    fn save(&self) {
        let state = self.lock().state.clone();
        if let Err(error) = state.write(&self.options.out) {
            self.reporter.error(&error.into());
        }
    }

    fn is_over(&self, first: u64, number: u64) -> bool {
        let options = self.options;
        self.end.load(Ordering::Relaxed)
            || self.interrupted.load(Ordering::Relaxed)
            || options.sessions.is_some_and(|n| number - first >= n)
            || self.schedule.is_over()
    }

    fn work(&self, first: u64) {
        self.play(first);
        self.lock().playing -= 1;
        self.work_available.notify_all();
        self.examine_others();
    }

    fn play(&self, first: u64) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if self.is_over(first, number) {
                return;
            }
            let case = case_from_number(self.generator, self.options.seed, number);
            if self.skips(&case, number) {
                continue;
            }
            // Other players may play at the same time, so the previous job is not necessarily this player's.
            let before = self.lock().last_ended.clone();
            let case = Arc::new(case);
            match self.target.play(&case, Thoroughness::Fast, Tracing::Off) {
                Ok(run) => {
                    self.lock().last_ended = Some(Arc::clone(&case));
                    self.judge(&case, before.as_deref(), number, &run);
                }
                Err(_) if self.interrupted.load(Ordering::Relaxed) => return,
                Err(error) => self.unjudged(error.to_string()),
            }
        }
    }

    fn skips(&self, case: &Case, number: u64) -> bool {
        let mut shared = self.lock();
        shared.state.next = shared.state.next.max(number + 1);
        let skip = self.options.known.avoids(&case.ingredients)
            || shared.ingredient_statistics.skips(&case.ingredients, number);
        shared.progress.skipped += u64::from(skip);
        skip
    }

    fn unjudged(&self, why: String) {
        let mut shared = self.lock();
        shared.progress.unjudged.0 += 1;
        shared.progress.unjudged.1 = why;
        if shared.progress.unjudged.0 >= MAX_UNJUDGED && shared.progress.sessions == 0 {
            self.end.store(true, Ordering::Relaxed);
        }
    }

    fn judge(&self, case: &Case, before: Option<&Case>, number: u64, run: &CaseRun) {
        if let Some(why) = run.observation.unjudged.clone().filter(|_| run.failures.is_empty()) {
            return self.unjudged(why);
        }
        let fatal = run.failures.iter().any(|failure| failure.key.is_fatal());
        // The coverage of a free session depends on timing. If it counted, a later session that reliably has the same coverage would not be
        // kept.
        let is_ordered = !case.scenario.is_free;
        // Edges covered by a case with a fatal failure do not count, so that a later case that covers them without such a failure is kept.
        let edges = run.observation.edges.as_ref().filter(|_| !fatal && is_ordered);
        let reaching = edges.and_then(|edges| self.case_to_keep(case, edges));
        let mut fresh = Vec::new();
        let mut trouble = None;
        let mut not_instrumented = false;
        {
            let mut shared = self.lock();
            let shared = &mut *shared;
            shared.progress.sessions += 1;
            shared.progress.requests += run.observation.requests as u64;
            if let Some(edges) = &run.observation.edges {
                not_instrumented = shared.progress.edges.replace(0).is_none() && edges.is_empty();
            }
            shared.state.sessions += 1;
            let grown = run.observation.growth.as_ref().map_or(0, |g| g.bytes);
            shared.progress.growth = shared.progress.growth.max(grown);
            let before = shared.state.transitions.len();
            if is_ordered {
                shared
                    .state
                    .transitions
                    .extend(transitions(&run.observation).iter().map(ToString::to_string));
            }
            let further = shared.state.transitions.len() > before || reaching.is_some();
            if further && !fatal {
                trouble = self.generator.keep(number, reaching.as_ref().unwrap_or(case)).err();
            }
            if shared.silences.len() < MAX_SILENCES {
                shared.silences.extend(&run.observation.silences);
            }
            let mut ended_as_known = false;
            let counts = |failure: &&crate::observe::failure::Failure| {
                !self.options.valid || run.is_valid(case.tests(), failure)
            };
            for failure in run.failures.iter().filter(counts) {
                let mut bucket = failure.key.to_string();
                let mut place = failure.key.place().map(ToString::to_string);
                if let Some(alias) = shared.state.aliases.get_mut(&bucket) {
                    if alias.is_due() {
                        fresh.push(failure.clone());
                    }
                    bucket.clone_from(&alias.bucket);
                    place.clone_from(&alias.place);
                }
                // An alias is excluded, because only a debugger can establish that this occurrence is the same crash.
                if failure.key.to_string() == bucket
                    && shared.needs_invalid_input(&bucket)
                    && !shared.valid.contains(&bucket)
                    && run.is_valid(case.tests(), failure)
                {
                    shared.valid.insert(bucket.clone());
                    fresh.push(failure.clone());
                }
                let known_name = self.options.known.name(&bucket, place.as_deref());
                let known = known_name.is_some() || shared.state.buckets.contains_key(&bucket);
                let bucket = known_name.unwrap_or(bucket);
                if known {
                    ended_as_known |= failure.key.is_fatal();
                    *shared.state.buckets.entry(bucket.clone()).or_default() += 1;
                    let new = shared.found.iter().any(|f| f.bucket == bucket);
                    let counts = if new { &mut shared.progress.new } else { &mut shared.progress.known };
                    *counts.entry(bucket).or_default() += 1;
                } else if shared.claimed.insert(bucket) {
                    fresh.push(failure.clone());
                }
            }
            shared.ingredient_statistics.note(&case.ingredients, ended_as_known);
        }
        if not_instrumented {
            self.reporter.not_instrumented();
        }
        if let Some(error) = trouble {
            self.reporter.error(&error.into());
        }
        for failure in fresh {
            let (case, before) = (case.clone(), before.cloned());
            let occurrence = FailureOccurrence {
                failure,
                case,
                previous_case: before,
                number,
                time: self.schedule.elapsed(),
            };
            let mut shared = self.lock();
            if self.has_examiners && shared.waiting.len() < MAX_WAITING_FAILURES {
                shared.waiting.push_back(occurrence);
                drop(shared);
                self.work_available.notify_one();
            } else {
                drop(shared);
                self.examine(&occurrence);
            }
        }
    }

    /// Returns the case to keep, if any: a trimmed case if the case covers a new edge, or the case itself if it reliably covers a known
    /// edge with a new class of execution counts. Always passes the covered edges to the generator.
    fn case_to_keep(&self, case: &Case, edges: &Edges) -> Option<Case> {
        let coverage = self.lock().state.edges.add(edges);
        let play = |case: &Case| {
            let run = self.target.play(case, Thoroughness::Fast, Tracing::Off).ok()?;
            run.observation.edges.filter(|_| !run.failures.iter().any(|failure| failure.key.is_fatal()))
        };
        let (kept, edges) = match coverage {
            NewCoverage::None => (None, edges.clone()),
            NewCoverage::Times => {
                let again = play(case).unwrap_or_default();
                let steady = self.lock().state.edges.is_steady(edges, &again);
                (steady.then(|| case.clone()), again)
            }
            NewCoverage::Edges(new) => {
                let mut last = edges.clone();
                let kept = drop_steps_only(case.clone(), self.reserve_trim_plays(), &mut |candidate| {
                    let run = play(candidate).filter(|run| run.has(&new));
                    run.map(|run| last = run).is_some()
                });
                (Some(kept), last)
            }
        };
        self.generator.record_edges(kept.as_ref().unwrap_or(case), &edges);
        kept
    }

    /// Reserves runs for trimming a case, and returns their number. In total, trimming takes at most one run per case, plus
    /// `TRIM_ALLOWANCE`.
    fn reserve_trim_plays(&self) -> usize {
        let mut shared = self.lock();
        let left = (shared.progress.sessions + TRIM_ALLOWANCE).saturating_sub(shared.trimmed);
        let plays = left.min(MAX_TRIM_PLAYS);
        shared.trimmed += plays;
        plays as usize
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arbitrary::Unstructured;
    use pmi_judge::backtrace::CrashLocation;
    use pmi_judge::event::{Bytes, Event, EventKind};
    use pmi_scenario::ImplementationKind;
    use pmi_wire::Proc;

    use super::*;
    use crate::campaign::corpus::{Corpus, EvolvingGenerator};
    use crate::campaign::stored::StoredCases;
    use crate::generate::server::scope::SessionFeatures;
    use crate::observe::failure::{CrashCause, CrashSite, Failure, FailureKey, LastAction};
    use crate::observe::observation::Observation;
    use crate::session::fields::text;
    use crate::session::statement::write;
    use crate::triage::store;

    /// A target whose runs are computed by a function.
    struct Plays<F>(F);

    impl<F: Fn(&Case, Thoroughness, Tracing) -> CaseRun + Sync> Target for Plays<F> {
        fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> std::io::Result<CaseRun> {
            Ok((self.0)(case, pace, tracing))
        }

        fn label(&self) -> String {
            "of a test".into()
        }

        fn command(&self) -> &[String] {
            &[]
        }

        fn version(&self) -> String {
            String::new()
        }
    }

    fn shows(failures: impl IntoIterator<Item = Failure>) -> CaseRun {
        CaseRun { observation: Observation::default(), failures: failures.into_iter().collect() }
    }

    impl Reporter for () {
        fn progress(&self, _: &Progress) {}
        fn not_instrumented(&self) {}
        fn found(&self, _: &StoredFinding) {}
        fn error(&self, _: &CampaignError) {}
    }

    /// Returns the options of a campaign with one worker.
    fn options(out: &Path, sessions: Option<u64>) -> CampaignOptions {
        CampaignOptions {
            seed: 1,
            sessions,
            time: None,
            workers: 1,
            valid: false,
            out: out.to_owned(),
            known: KnownFailures::default(),
            replay: String::new(),
        }
    }

    /// Runs a campaign against an implementation that compares the first bytes of each key with a secret, one by one. Only the edges show
    /// how many bytes are correct. Returns the largest edge that a case covered (the number of correct bytes plus one), and the summary.
    fn run_with_byte_comparison(reports_coverage: bool) -> (u64, CampaignSummary) {
        let folder = tempfile::tempdir().unwrap();
        let most = AtomicU64::new(0);
        let target = Plays(|case: &Case, _, _| {
            let same = |text: &str| b"q~7".iter().zip(text.as_bytes()).take_while(|(a, b)| a == b).count();
            let text = case.text();
            let lines = text.lines().filter(|line| line.contains("send    cmd=put "));
            let keys = lines.filter_map(|line| line.split_once(" key=").map(|(_, key)| key));
            let deepest = keys.map(same).max().map_or(0, |n| n as u32 + 1);
            most.fetch_max(u64::from(deepest), Ordering::Relaxed);
            let edges = Edges::of((0..=deepest).map(|edge| (edge, 1)).collect());
            let seen = Observation { edges: reports_coverage.then_some(edges), ..Observation::default() };
            CaseRun { observation: seen, failures: Vec::new() }
        });
        let generator = EvolvingGenerator::new(SessionFeatures::default(), Corpus::default());
        let options = options(folder.path(), Some(3000));
        let summary =
            run(&target, &generator, &options, CampaignState::default(), &AtomicBool::new(false), &());
        (most.into_inner(), summary)
    }

    #[test]
    fn edge_coverage_guides_search_byte_by_byte() {
        let (deepest, summary) = run_with_byte_comparison(true);
        assert_eq!((deepest, summary.progress.edges), (4, Some(5)));
        let kept = summary.progress.corpus;
        assert!((3..=5).contains(&kept), "{kept}");
        let last = summary.history.last().unwrap();
        assert_eq!((last.sessions, last.edges), (3000, Some(5)));
        // Without edge coverage, the campaign does not find the bytes.
        let (deepest, summary) = run_with_byte_comparison(false);
        assert!(deepest < 4 && summary.progress.edges.is_none(), "{deepest}");
    }

    fn failure() -> Failure {
        let after = LastAction::Start;
        let key = FailureKey::Rule { party: None, requirement: "rfc13.barrier.generic".into(), after };
        Failure { key, description: String::new(), requirement: None, seq: None, backtrace: None }
    }

    /// Runs a campaign that plays `jobs` against an implementation that fails in the job after an aborted job. Each job is a list of lines.
    /// A campaign that plays each case alone cannot detect this failure. Returns the campaign's findings and folder.
    fn run_with_memory_of_aborts(jobs: &[&[&str]]) -> (Vec<StoredFinding>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (number, lines) in jobs.iter().enumerate() {
            let steps = lines.iter().map(|line| write(0, vec![text(*line)], false)).collect();
            files.push(folder.path().join(format!("{number}.pmi")));
            std::fs::write(&files[number], Case::new(ImplementationKind::Server, 1, steps).text()).unwrap();
        }
        let generator = StoredCases::read(&files, ImplementationKind::Server).unwrap();
        let options = options(&folder.path().join("out"), Some(jobs.len() as u64));
        let aborted = AtomicBool::new(false);
        let fails = |case: &Case| {
            let text = case.text();
            aborted.swap(text.contains("cmd=abort"), Ordering::Relaxed) && text.contains("barrier_in")
        };
        let target = Plays(|case: &Case, _, _| {
            if let Some(earlier) = &case.earlier {
                fails(earlier);
            }
            shows(fails(case).then(failure))
        });
        let summary =
            run(&target, &generator, &options, CampaignState::default(), &AtomicBool::new(false), &());
        (summary.found, folder)
    }

    #[test]
    fn finding_keeps_the_earlier_job_it_needs() {
        let (found, folder) =
            run_with_memory_of_aborts(&[&["cmd=barrier_in"], &["cmd=abort"], &["cmd=barrier_in"]]);
        let found_jobs: Vec<_> =
            found.iter().map(|f| (f.number, f.needs_earlier_job, f.repetitions_minimal)).collect();
        assert_eq!(found_jobs, [(2, true, 5)]);
        let (finding, case) = store::read(&folder.path().join("out").join(&found[0].bucket)).unwrap();
        let earlier = case.earlier.as_ref().unwrap().text();
        assert!(finding.needs_earlier_job && case.text().contains("cmd=barrier_in"));
        assert!(earlier.contains("cmd=abort") && !earlier.contains("barrier_in"), "{earlier}");
    }

    /// A generator that always makes the same case.
    struct Always(Case);

    impl Generator for Always {
        fn generate(&self, _: &mut Unstructured<'_>, _: &mut Unstructured<'_>) -> arbitrary::Result<Case> {
            Ok(self.0.clone())
        }
    }

    /// If the case cannot be judged without its earlier job, it is unknown whether the failure needs that job, so nothing is stored.
    #[test]
    fn stores_nothing_if_need_for_earlier_job_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let job =
            |line: &str| Case::new(ImplementationKind::Server, 1, vec![write(0, vec![text(line)], false)]);
        let case = job("cmd=barrier_in").with_earlier_job(&job("cmd=abort")).unwrap();
        let target = Plays(|case: &Case, _, _| match &case.earlier {
            Some(earlier) if earlier.text().contains("cmd=abort") => shows(Some(failure())),
            _ => {
                let unjudged = Some("not every rank reported".to_owned());
                let observation = Observation { unjudged, ..Observation::default() };
                CaseRun { observation, failures: Vec::new() }
            }
        });
        let summary = run(
            &target,
            &Always(case),
            &options(folder.path(), Some(1)),
            CampaignState::default(),
            &AtomicBool::new(false),
            &(),
        );
        assert!(summary.found.is_empty(), "{:?}", summary.found);
    }

    #[test]
    fn stores_original_case_if_smaller_one_is_unreliable() {
        let folder = tempfile::tempdir().unwrap();
        let job = |lines: &[&str]| {
            let steps = lines.iter().map(|line| write(0, vec![text(*line)], false)).collect();
            Case::new(ImplementationKind::Server, 1, steps)
        };
        let case = job(&["cmd=barrier_in", "cmd=get_maxes"]).with_earlier_job(&job(&["cmd=abort"])).unwrap();
        // The smaller case fails in every fast run, but only in two of five thorough runs.
        let thorough_runs = AtomicU64::new(0);
        let smaller_fails =
            |pace| pace == Thoroughness::Fast || thorough_runs.fetch_add(1, Ordering::Relaxed) % 5 < 2;
        let target = Plays(|case: &Case, pace, _| {
            let text = case.text();
            let is_after_abort =
                case.earlier.as_ref().is_some_and(|earlier| earlier.text().contains("abort"));
            let fails = is_after_abort && text.contains("barrier_in");
            let fails = fails && (text.contains("get_maxes") || smaller_fails(pace));
            shows(fails.then(failure))
        });
        let state = CampaignState::default();
        let options = options(folder.path(), Some(1));
        let summary = run(&target, &Always(case), &options, state, &AtomicBool::new(false), &());
        let found: Vec<_> =
            summary.found.iter().map(|f| (f.needs_earlier_job, f.repetitions_minimal)).collect();
        assert_eq!(found, [(true, 5)]);
    }

    #[test]
    fn finding_may_need_the_same_job_twice() {
        let both: &[&str] = &["cmd=barrier_in", "cmd=abort"];
        let (found, folder) = run_with_memory_of_aborts(&[both, both]);
        let found_jobs: Vec<_> = found.iter().map(|f| (f.number, f.needs_earlier_job)).collect();
        assert_eq!(found_jobs, [(1, true)]);
        let (_, case) = store::read(&folder.path().join("out").join(&found[0].bucket)).unwrap();
        assert!(case.earlier.unwrap().text().contains("cmd=abort"));
    }

    /// Runs a campaign with one session per line. Every session that sends a command fails. Returns the campaign's findings and folder.
    fn judged_by_input(lines: &[&str], valid: bool) -> (Vec<StoredFinding>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            files.push(folder.path().join(format!("{number}.pmi")));
            let steps = vec![write(0, vec![text(*line)], false)];
            std::fs::write(&files[number], Case::new(ImplementationKind::Server, 1, steps).text()).unwrap();
        }
        let generator = StoredCases::read(&files, ImplementationKind::Server).unwrap();
        let options =
            CampaignOptions { valid, ..options(&folder.path().join("out"), Some(lines.len() as u64)) };
        let target = Plays(|case: &Case, _, _| {
            let text = case.text();
            let command =
                text.lines().filter_map(|line| line.split_once("send    cmd=").map(|(_, command)| command));
            let proc = Proc { group: 0, rank: 0 };
            let requests = command
                .map(|command| EventKind::ToServer { proc, bytes: Bytes(format!("cmd={command}\n").into()) });
            let events: Vec<Event> = requests.zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect();
            let fails = !events.is_empty();
            let seen = Observation { events, ..Observation::default() };
            CaseRun { observation: seen, failures: fails.then(failure).into_iter().collect() }
        });
        let summary =
            run(&target, &generator, &options, CampaignState::default(), &AtomicBool::new(false), &());
        (summary.found, folder)
    }

    const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";

    #[test]
    fn valid_only_campaign_ignores_invalid_input() {
        let valid = |found: Vec<StoredFinding>| found.iter().map(|found| found.valid).collect::<Vec<_>>();
        assert_eq!(valid(judged_by_input(&["cmd=frob"], false).0), [false]);
        assert_eq!(valid(judged_by_input(&["cmd=frob"], true).0), [false; 0]);
        assert_eq!(valid(judged_by_input(&["cmd=frob", INIT], true).0), [true]);
    }

    #[test]
    fn valid_session_is_stored_instead_of_invalid_one() {
        let (found, folder) = judged_by_input(&["cmd=frob", INIT], false);
        assert_eq!(found.iter().map(|found| found.valid).collect::<Vec<_>>(), [true]);
        let (finding, case) = store::read(&folder.path().join("out").join(&found[0].bucket)).unwrap();
        assert!(
            finding.valid && case.text().contains(INIT) && !case.text().contains("frob"),
            "{}",
            case.text()
        );
    }

    #[test]
    fn confirmed_finding_survives_an_interrupt() {
        // One run encounters the failure, and five more confirm it.
        for (after, repetitions) in [(4, None), (5, Some((5, 5)))] {
            let folder = tempfile::tempdir().unwrap();
            let (plays, interrupted) = (AtomicU64::new(0), AtomicBool::new(false));
            let target = Plays(|_: &Case, _, _| {
                let played = plays.fetch_add(1, Ordering::Relaxed);
                interrupted.store(played >= after, Ordering::Relaxed);
                shows([failure()])
            });
            let generator = EvolvingGenerator::new(SessionFeatures::default(), Corpus::default());
            let options = options(folder.path(), None);
            let summary = run(&target, &generator, &options, CampaignState::default(), &interrupted, &());
            let found: Vec<_> =
                summary.found.iter().map(|f| (f.repetitions, f.repetitions_minimal)).collect();
            assert_eq!(found, Vec::from_iter(repetitions));
            if let [found] = &summary.found[..] {
                assert_eq!(found.steps[0], found.steps[1]);
                assert!(folder.path().join(&found.bucket).join("scenario.pmi").exists());
            }
        }
    }

    /// If the user interrupts the minimization, the original case is stored. The finding states that its case was not minimized, records no
    /// frequency, and does not claim that invalid input is necessary.
    #[test]
    fn interrupted_minimization_stores_original_case() {
        let steps = ["cmd=frob", "cmd=get_maxes", "cmd=get_appnum"];
        let steps = steps.map(|line| write(0, vec![text(line)], false)).to_vec();
        let mut case = Case::new(ImplementationKind::Server, 1, steps);
        // One run encounters the failure, five more confirm it, and the runs after these minimize the case.
        for (is_free, runs, minimizing) in [(false, 6, 0), (true, 6, 0), (false, 7, 1), (false, 8, 2)] {
            case.scenario.is_free = is_free;
            let folder = tempfile::tempdir().unwrap();
            let (plays, interrupted) = (AtomicU64::new(0), AtomicBool::new(false));
            let target = Plays(|_: &Case, _, _| {
                interrupted.store(plays.fetch_add(1, Ordering::Relaxed) + 1 >= runs, Ordering::Relaxed);
                let proc = Proc { group: 0, rank: 0 };
                let invalid = EventKind::ToServer { proc, bytes: Bytes(b"cmd=frob\n".to_vec()) };
                let observation =
                    Observation { events: vec![Event::new(0, invalid)], ..Observation::default() };
                CaseRun { observation, failures: vec![failure()] }
            });
            let options = options(folder.path(), None);
            let summary =
                run(&target, &Always(case.clone()), &options, CampaignState::default(), &interrupted, &());
            let [found] = &summary.found[..] else { panic!("{:?}", summary.found) };
            assert_eq!((found.minimized, found.minimizing_cases, found.steps), (false, minimizing, [3, 3]));
            assert_eq!(found.label(), "deterministic, not minimized");
            assert_eq!((found.valid, found.root().input()), (false, store::RequiredInput::Unknown));
        }
        let (all, _) = judged_by_input(&["cmd=frob"], false);
        let inputs: Vec<_> = all.iter().map(|found| (found.minimized, found.root().input())).collect();
        assert_eq!(inputs, [(true, store::RequiredInput::Invalid)]);
    }

    #[test]
    fn crash_without_a_location_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let generator = EvolvingGenerator::new(SessionFeatures::default(), Corpus::default());
        let options = options(folder.path(), Some(30));
        // A debugger locates the crash the first ten times, but not after that.
        let looks = AtomicU64::new(0);
        let target = Plays(|_: &Case, _, tracing| {
            let site = match tracing {
                Tracing::Off => Some(CrashSite::Unknown { call: None, after: None }),
                Tracing::On => match looks.fetch_add(1, Ordering::Relaxed) {
                    0..10 => Some(CrashSite::Place(CrashLocation::Function("f".into()))),
                    _ => None,
                },
            };
            let died = |site| FailureKey::Crash { program: "pm".into(), cause: CrashCause::Signal(13), site };
            shows(site.map(|site| Failure { key: died(site), ..failure() }))
        });
        let summary =
            run(&target, &generator, &options, CampaignState::default(), &AtomicBool::new(false), &());
        let found: Vec<_> = summary.found.iter().map(|found| found.bucket.as_str()).collect();
        assert_eq!(found, ["crash--pm--SIGPIPE--in-f", "crash--pm--SIGPIPE"]);
    }

    #[test]
    fn history_keeps_few_evenly_spaced_samples() {
        let mut history = ProgressHistory { samples: Vec::new(), step: Duration::from_millis(900) };
        for second in 0..100_000 {
            history.note(&Progress {
                time: Duration::from_secs(second),
                sessions: second,
                ..Progress::default()
            });
        }
        let times: Vec<u64> = history.samples.iter().map(|moment| moment.sessions).collect();
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&times.len()), "{times:?}");
        let gaps: BTreeSet<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(times[0] == 0 && gaps.last() < gaps.first().map(|gap| gap * 2).as_ref(), "{gaps:?}");
    }
}
