//! Detects interference between jobs: failures that depend on another job running at the same time.
//!
//! A scenario that failed while other scenarios were running is played again alone. If it passes, it is played again alongside those
//! scenarios. These runs alternate with runs alongside the same scenarios on the reference manager, because load by itself makes some
//! failures more frequent. The facts are recorded as events; the judge distinguishes interference from chance.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use pmi_judge::cause::shape;
use pmi_judge::event::{EventKind, OtherJob};
use pmi_judge::result::{MIN_INTERFERENCE_FAILURES, is_shown};
use pmi_judge::verdict::JudgedFinding;

/// Maximum number of scenarios alongside which a failed scenario is played again.
pub(crate) const MAX_NEIGHBOURS: usize = 3;
/// Number of initial runs alongside other scenarios. Further runs follow only if the failure occurs in one of them.
const FIRST_ROUNDS: u32 = 4;
/// Maximum number of runs alongside other scenarios.
const MAX_ROUNDS: u32 = 16;
/// Number of runs alongside jobs of the reference manager for each run alongside jobs of the implementation. All runs alongside the
/// reference manager must pass. Thus a chance failure, whatever its probability, is mistaken for interference in at most about one in
/// eighty cases.
const UNRELATED_RUN_FACTOR: u32 = 2;
/// Number of runs that a failed scenario must pass for its failure to count as interference, if another scenario of this run has already
/// shown interference. The first of these runs is alone, and the others are alongside jobs of the reference manager.
const REPEATED_RUNS: u32 = 3;
/// Maximum number of events of another job that are kept as evidence.
const MAX_OTHER_JOB_EVENTS: usize = 40;

/// The process manager whose job is played alongside the failed scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlayedBy {
    Implementation,
    /// The reference manager. Its jobs share nothing but the machine with the implementation's jobs.
    Reference,
}

/// The scenarios of a run that are played at the same time.
#[derive(Default)]
pub(crate) struct ConcurrentScenarios {
    /// The lock that a scenario holds for writing if it must run alone.
    exclusive_lock: RwLock<()>,
    /// The running scenarios, each with all scenarios that ran at the same time.
    playing: Mutex<BTreeMap<usize, BTreeSet<usize>>>,
    /// If true, a failure is not examined after another scenario has shown the same failure while running alone.
    examines_once: bool,
    /// Requirements and symptoms of failures seen while no other job was running.
    seen_alone: Mutex<HashSet<(String, String)>>,
    /// The first scenario of this run that has shown interference.
    shown_by: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConcurrentScenarios {
    /// Creates the state of a run that has not started any scenario yet.
    pub(crate) fn new(examines_once: bool) -> Self {
        Self { examines_once, ..Self::default() }
    }

    /// Plays a scenario. Returns the result of `play`, and the indices of the scenarios that ran at the same time.
    pub(crate) fn play_with_others<T>(&self, index: usize, play: impl FnOnce() -> T) -> (T, BTreeSet<usize>) {
        let _open = self.exclusive_lock.read().unwrap_or_else(PoisonError::into_inner);
        let mut playing = lock(&self.playing);
        let others: BTreeSet<usize> = playing.keys().copied().collect();
        for beside in playing.values_mut() {
            beside.insert(index);
        }
        playing.insert(index, others);
        drop(playing);
        let played = play();
        (played, lock(&self.playing).remove(&index).unwrap_or_default())
    }

    /// Replays a failed scenario alone, and then with the scenarios in `beside`, which ran at the same time, to find out whether they
    /// interfere with it. `name` is the name of the failed scenario, and `fails` plays that scenario. `play` plays a scenario of the run by
    /// its index, and `names` returns a scenario's name by its index. Returns the results as events, or no events if the scenario also
    /// fails alone.
    pub(crate) fn examine(
        &self,
        name: &str,
        failure: &[JudgedFinding],
        beside: &BTreeSet<usize>,
        fails: impl Fn() -> bool,
        names: impl Fn(usize) -> String,
        play: impl Fn(PlayedBy, usize) -> OtherJob + Sync,
    ) -> Vec<EventKind> {
        let play_related = |other: usize| play(PlayedBy::Implementation, other);
        let play_unrelated = |other: usize| play(PlayedBy::Reference, other);
        let keys = || failure.iter().map(|j| (j.finding.requirement.clone(), shape(&j.finding)));
        let known = || self.examines_once && keys().all(|key| lock(&self.seen_alone).contains(&key));
        if beside.is_empty() || known() {
            return Vec::new();
        }
        let _alone = self.exclusive_lock.write().unwrap_or_else(PoisonError::into_inner);
        if fails() {
            lock(&self.seen_alone).extend(keys());
            return Vec::new();
        }
        let mut alone = PlayCounts { played: 1, failed: 0 };
        let others: Vec<usize> = beside.iter().copied().take(MAX_NEIGHBOURS).collect();
        let shown_by = lock(&self.shown_by).clone();
        if shown_by.is_some() {
            while alone.played < REPEATED_RUNS && alone.failed == 0 {
                alone.count(fails_with_others(&fails, &others, &play_unrelated).0);
            }
            let unplayed = |other: &usize| OtherJob { scenario: names(*other), events: Vec::new() };
            let unplayed = others.iter().map(unplayed).collect();
            return vec![alone.event(Vec::new(), None), PlayCounts::default().event(unplayed, shown_by)];
        }
        let (mut together, mut evidence) = (PlayCounts::default(), Vec::new());
        while together.played < if together.failed == 0 { FIRST_ROUNDS } else { MAX_ROUNDS }
            && together.failed < MIN_INTERFERENCE_FAILURES
            && alone.failed == 0
        {
            let (failed, jobs) = fails_with_others(&fails, &others, &play_related);
            together.count(failed);
            if failed || evidence.is_empty() {
                evidence = jobs;
            }
            for _ in 0..UNRELATED_RUN_FACTOR {
                if alone.failed == 0 {
                    alone.count(fails_with_others(&fails, &others, &play_unrelated).0);
                }
            }
        }
        if together.failed >= MIN_INTERFERENCE_FAILURES && alone.failed == 0 {
            *lock(&self.shown_by) = Some(name.to_owned());
        }
        vec![alone.event(Vec::new(), None), together.event(evidence, None)]
    }
}

#[derive(Default, Clone, Copy)]
struct PlayCounts {
    played: u32,
    failed: u32,
}

impl PlayCounts {
    fn count(&mut self, failed: bool) {
        self.played += 1;
        self.failed += u32::from(failed);
    }

    fn event(self, beside: Vec<OtherJob>, shown_by: Option<String>) -> EventKind {
        EventKind::Replayed { other_jobs: beside, played: self.played, failed: self.failed, shown_by }
    }
}

/// Plays the failed scenario while the scenarios in `others` are played in a loop. Returns whether the scenario failed, and the last
/// outcome of each of the `others`.
fn fails_with_others(
    fails: impl FnOnce() -> bool,
    others: &[usize],
    play: &(impl Fn(usize) -> OtherJob + Sync),
) -> (bool, Vec<OtherJob>) {
    let over = AtomicBool::new(false);
    let play_on = |other: usize| loop {
        let mut job = play(other);
        if over.load(Ordering::Relaxed) {
            job.events.retain(is_shown);
            job.events.drain(..job.events.len().saturating_sub(MAX_OTHER_JOB_EVENTS));
            return job;
        }
    };
    thread::scope(|scope| {
        let play_on = &play_on;
        let threads: Vec<_> = others.iter().map(|other| scope.spawn(move || play_on(*other))).collect();
        let failed = fails();
        over.store(true, Ordering::Relaxed);
        let jobs =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (failed, jobs.collect())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;

    use rstest::rstest;

    use super::*;

    const RELATED: u8 = 1;
    const UNRELATED_JOB: u8 = 2;

    /// A failure that any load causes is not interference. A failure that only jobs of the implementation cause is interference.
    #[rstest]
    #[case::load(&[RELATED, UNRELATED_JOB], 1, 1)]
    #[case::jobs(&[RELATED], MIN_INTERFERENCE_FAILURES, 0)]
    fn distinguishes_load_from_interference(
        #[case] fails_beside: &[u8],
        #[case] together: u32,
        #[case] unrelated: u32,
    ) {
        let (beside, plays) = (AtomicU8::new(0), AtomicU8::new(0));
        let fails = || {
            // The first time, the scenario is played alone and succeeds.
            if plays.fetch_add(1, Ordering::SeqCst) == 0 {
                return false;
            }
            beside.store(0, Ordering::SeqCst);
            loop {
                match beside.load(Ordering::SeqCst) {
                    0 => thread::yield_now(),
                    job => return fails_beside.contains(&job),
                }
            }
        };
        let play = |by: PlayedBy, _: usize| {
            let kind = if by == PlayedBy::Implementation { RELATED } else { UNRELATED_JOB };
            beside.store(kind, Ordering::SeqCst);
            OtherJob { scenario: "other".into(), events: Vec::new() }
        };
        let others = BTreeSet::from([0]);
        let facts =
            ConcurrentScenarios::new(false).examine("this", &[], &others, fails, |_| "other".into(), play);
        let failed = facts.iter().map(|fact| match fact {
            EventKind::Replayed { failed, .. } => *failed,
            _ => unreachable!(),
        });
        assert_eq!(failed.collect::<Vec<_>>(), [unrelated, together]);
    }
}
