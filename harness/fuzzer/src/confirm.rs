//! Looks into a failure that is new: tries it again, and makes its case smaller.

use pmi_scenario::ids;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pmi_judge::crash::untraced;
use pmi_judge::event::{Event, What};

use super::case::Case;
use super::failure::{After, Failure, FailureKey, Kind};
use super::reproducer::Symptom;
use super::schedule::Schedule;
use super::shrink::{self, leave_out};
use super::statement::{join, leave};
use super::store::{Found, TRIES};
use super::target::{Pace, Run, Target, Tracing};
use super::waits;

/// Most cases that shrinking one finding plays.
const SHRINKING: usize = 200;

/// Time that shrinking one finding may take, however fast cases are.
const SHRINKING_TIME: Duration = Duration::from_secs(20);
/// The same where they are slow.
const MOST_SHRINKING: Duration = Duration::from_secs(60);
/// The same in a campaign that is over soon.
const LEAST_SHRINKING: Duration = Duration::from_secs(2);

/// Whatever takes longer than this mostly waits.
const SLOW: Duration = Duration::from_millis(500);

/// What a case must show.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a FailureKey,
    /// Only valid input may lead to it.
    valid: bool,
}

/// How often a debugger looks at most where a crash does not show each time.
const LOOKS: u32 = 3;

/// A failure that is told by a place needs who sees it.
fn tracing(key: &FailureKey) -> Tracing {
    if key.place().is_some() { Tracing::On } else { Tracing::Off }
}

/// Tries failures of an implementation again.
pub struct Examiner<'a> {
    /// The implementation.
    pub target: &'a dyn Target,
    /// The seed that is told of what is found.
    pub seed: u64,
    /// The user wants the campaign to end.
    pub interrupted: &'a AtomicBool,
    /// How long the campaign is to take.
    pub schedule: Schedule,
}

/// A failure that has shown again.
#[derive(Debug)]
pub struct Shown {
    key: FailureKey,
    case: Case,
    /// That of the case in the campaign.
    number: u64,
    /// How many of the runs showed it.
    again: u32,
    /// How long one of them took.
    one: Duration,
    /// In one of them, only valid input led to it.
    valid: bool,
    /// That one, or another that shows it.
    run: Run,
}

impl Shown {
    /// Which failure it is.
    pub fn key(&self) -> &FailureKey {
        &self.key
    }

    /// Returns whether only valid input led to it in one of the runs.
    pub(crate) fn is_valid(&self) -> bool {
        self.valid
    }

    /// How serious it is: the less, the more.
    pub(crate) fn seriousness(&self) -> (Kind, bool) {
        (self.key.kind(), !self.valid)
    }
}

/// A failure with the smallest case that was found to show it.
#[derive(Debug)]
pub struct Smallest {
    /// What is told of it.
    pub found: Found,
    /// The smallest case that shows it.
    pub case: Case,
    /// What happened in it.
    pub run: Run,
    /// What shows it there.
    pub symptom: Option<Symptom>,
}

/// What a case cites in which we are a proxy's upstream, where the judge knows no requirement.
fn for_proxies(case: &Case, key: &FailureKey, events: &[Event]) -> Option<&'static str> {
    let said = || events.iter().any(|event| matches!(event.what, What::ToProxy { scripted: true, .. }));
    let closed = || events.iter().any(|event| matches!(event.what, What::ClosedByUpstream { .. }));
    case.needs_upstream().then(|| match key.after() {
        Some(After::UpstreamClose) => ids::HYDRA_UPSTREAM_LOST,
        None if closed() && !said() => ids::HYDRA_UPSTREAM_LOST,
        _ => ids::HYDRA_UPSTREAM_BAD_TEXT,
    })
}

/// A candidate that is smaller than a case.
struct Smaller {
    case: Case,
    /// How often it showed the failure again.
    again: u32,
    /// How many cases were played for it.
    played: usize,
}

/// Makes so many runs of a case at the same time; those that say yes. Where there is an earlier job, one after the other: a job of another
/// run would come between the two.
fn at_once<T: Send>(case: &Case, runs: usize, run: impl Fn() -> Option<T> + Sync) -> Vec<T> {
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
    fn goes_on(&self) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }

    /// The end of what may take so long.
    fn within(&self, time: Duration) -> Instant {
        let deadline = Instant::now() + time;
        self.schedule.late().map_or(deadline, |late| late.min(deadline))
    }

    /// A run that shows what is wanted.
    fn showing(&self, case: &Case, pace: Pace, wanted: Wanted<'_>) -> Option<Run> {
        let run = self.goes_on().then(|| self.target.play(case, pace, tracing(wanted.key)).ok()).flatten()?;
        let shown = run.failure(wanted.key)?;
        let shows = !wanted.valid || self.is_valid(case, &run, shown);
        shows.then_some(run)
    }

    /// Returns whether only valid input led to a failure of a case, also in the job before it.
    fn is_valid(&self, case: &Case, run: &Run, failure: &Failure) -> bool {
        let is_valid_alone = |earlier: &Case| {
            let run = self.target.play(earlier, Pace::Fast, Tracing::Off);
            let whole = Failure { seq: None, ..failure.clone() };
            run.is_ok_and(|run| run.is_valid(case.tests(), &whole))
        };
        run.is_valid(case.tests(), failure) && case.earlier.as_deref().is_none_or(is_valid_alone)
    }

    /// How many of some more runs show a failure.
    fn again(&self, case: &Case, wanted: Wanted<'_>) -> u32 {
        self.again_in(case, wanted, 0).0.len() as u32
    }

    /// Those of some more runs that show a failure, and how long one of them takes. Where fewer than `least` of them can show it any more, the
    /// rest is not made. Where a run mostly waits, for a hang or for a launcher that sleeps, the runs are made at the same time; but for a
    /// launcher that may be asked for one thing at a time only.
    fn again_in(&self, case: &Case, wanted: Wanted<'_>, least: u32) -> (Vec<Run>, Duration) {
        let (tries, least) = (TRIES as usize, least as usize);
        let run = || self.showing(case, Pace::Thorough, wanted);
        let start = Instant::now();
        if wanted.key.is_hang() {
            let shown = at_once(case, tries, run);
            return (shown, start.elapsed());
        }
        let mut shown: Vec<Run> = run().into_iter().collect();
        let mut made = 1;
        let one = start.elapsed();
        let goes_on = |shown: usize, made: usize| made < tries && shown + (tries - made) >= least;
        if goes_on(shown.len(), made) && one > SLOW && self.target.plays_at_once(tries - made) > 1 {
            shown.extend(at_once(case, tries - made, run));
            return (shown, one);
        }
        while goes_on(shown.len(), made) {
            shown.extend(run());
            made += 1;
        }
        (shown, one)
    }

    /// Whether at least so many of some more runs show a failure.
    fn shows_as_often(&self, case: &Case, wanted: Wanted<'_>, least: u32) -> bool {
        self.again_in(case, wanted, least).0.len() as u32 >= least
    }

    /// Whether a case shows a failure once more.
    pub fn shows(&self, failure: &Failure, case: &Case) -> bool {
        self.showing(case, Pace::Thorough, Wanted { key: &failure.key, valid: false }).is_some()
    }

    /// Returns whether a case shows a failure once more, and only valid input leads to it.
    pub fn shows_by_valid_input(&self, failure: &Failure, case: &Case) -> bool {
        self.showing(case, Pace::Thorough, Wanted { key: &failure.key, valid: true }).is_some()
    }

    /// What a failure comes to without what it does not need but is named by. `None` if it stays what it is.
    pub fn root(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        match failure.key {
            FailureKey::Crash { .. } => self.root_of_crash(failure, case),
            FailureKey::Rule { who: None, .. } | FailureKey::Hang { who: None, .. } => {
                self.in_whole_writes(failure, case)
            }
            _ => None,
        }
    }

    /// A requirement about how requests are written stands before all others, where they were written in pieces. Which one is broken if they
    /// are not?
    fn in_whole_writes(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        let whole = case.in_whole_writes().filter(|_| self.goes_on() && !self.schedule.is_late())?;
        let run = self.target.play(&whole, Pace::Thorough, Tracing::Off).ok()?;
        let other = run.failures.into_iter().find(|other| other.key.differs_in_requirement(&failure.key))?;
        // What shows beside it is another failure.
        let in_pieces = self.target.play(case, Pace::Thorough, Tracing::Off).ok()?;
        in_pieces.failure(&other.key).is_none().then_some((other, whole))
    }

    /// What a crash comes to when all is left out that it does not need: the last thing that was done before it was seen, which is part of
    /// its key, may have nothing to do with it.
    fn root_of_crash(&self, failure: &Failure, case: &Case) -> Option<(Failure, Case)> {
        let same = |run: Run| run.failures.into_iter().find(|other| other.key.is_same_crash(&failure.key));
        // Where it died says more than anything that came before it.
        let look = || same(self.target.play(case, Pace::Thorough, Tracing::On).ok()?);
        // What does not show is no case to leave anything out of.
        let located = (0..LOOKS).filter(|_| self.goes_on()).find_map(|_| look())?;
        if located.key.place().is_some() {
            return Some((located, case.clone()));
        }
        let deadline = self.within(SHRINKING_TIME / 2);
        let case = leave_out(case.clone(), SHRINKING, &mut |candidate| {
            let play =
                |_| self.target.play(candidate, Pace::Fast, Tracing::Off).ok().and_then(same).is_some();
            Instant::now() < deadline && self.goes_on() && (0..2).all(play)
        });
        let root = self.target.play(&case, Pace::Thorough, Tracing::Off).ok().and_then(same)?;
        (root.key != failure.key).then_some((root, case))
    }

    /// How long it may take to make a case smaller of which one run takes so long, while others wait for that. In a short campaign
    /// there are to be several findings, rather than a small one.
    fn shrinking_time(&self, one: Duration, waiting: usize) -> Duration {
        let of_campaign = self.schedule.time().map_or(MOST_SHRINKING, |time| time / 6);
        let left = self.schedule.late().map(|late| late.saturating_duration_since(Instant::now()));
        let share = left.map_or(MOST_SHRINKING, |left| left / (waiting as u32 + 1));
        let most = of_campaign.min(share).clamp(LEAST_SHRINKING, MOST_SHRINKING);
        (one * SHRINKING as u32).clamp(SHRINKING_TIME.min(most), most)
    }

    /// Why no debugger sees where a process of the case dies.
    fn why_unseen(&self, case: &Case) -> Option<String> {
        let run = self.target.play(case, Pace::Thorough, Tracing::On).ok()?;
        untraced(&run.seen.events).map(str::to_owned)
    }

    /// Tries a failure of a case again. `None` if it does not show.
    pub fn try_again(&self, failure: &Failure, case: &Case, number: u64) -> Option<Shown> {
        let key = &failure.key;
        let (mut runs, one) = self.again_in(case, Wanted { key, valid: false }, 0);
        let again = runs.len() as u32;
        // Once may be the machine's doing where only the clock tells that nothing comes, or that the job does not end.
        let by_clock = key.is_hang() || matches!(key, FailureKey::JobStays(_));
        // Where the rest of the runs was not made, nobody knows how often it shows.
        if by_clock && again < 2 || again < TRIES && !self.goes_on() {
            return None;
        }
        let is_valid = |run: &Run| run.failure(key).is_some_and(|failure| self.is_valid(case, run, failure));
        let valid = runs.iter().position(is_valid);
        let run = runs.drain(..).nth(valid.unwrap_or(0))?;
        let (key, case, valid) = (key.clone(), case.clone(), valid.is_some());
        Some(Shown { key, case, number, again, one, valid, run })
    }

    /// Minimizes the case of a failure, while `waiting` others wait for this. A failure that valid input reaches stays one. Returns
    /// `None` if the failure is too intermittent, or shows without the earlier job that it was met after.
    pub fn shrink(&self, shown: Shown, waiting: usize) -> Option<Smallest> {
        let Shown { ref key, ref case, number, again, one, valid, .. } = shown;
        let time = self.shrinking_time(one, waiting);
        let wanted = Wanted { key, valid };
        let mut best = self.smaller(case, wanted, again, 2, time);
        if best.again < again {
            // Something that makes it sure was left out: once more, with more runs for each candidate.
            let stricter = self.smaller(case, wanted, again, 5, time);
            let played = best.played + stricter.played;
            if stricter.again > best.again {
                best = stricter;
            }
            best.played = played;
        }
        if best.again == 0 || best.again < again && !self.goes_on() {
            (best.case, best.again) = (case.clone(), again);
        }
        // What a scenario needs: a start in good order as its control, and a wait for what comes of it.
        for fitted in [Case::joined_instead, Case::joined, Case::awaited] {
            if self.schedule.is_late() {
                break;
            }
            if let Some(fitted) = fitted(&best.case).filter(|f| self.shows_as_often(f, wanted, best.again)) {
                best.case = fitted;
            }
        }
        if best.again > TRIES / 2
            && !self.schedule.is_late()
            && let Some(after_itself) = self.after_itself(&best.case, wanted, best.again)
        {
            best.case = after_itself;
        }
        best = self.without_idle_earlier(best, wanted)?;
        let showing = |_| self.showing(&best.case, Pace::Thorough, wanted);
        let last = if best.case.is_same(case) { None } else { (0..TRIES).find_map(showing) };
        let run = match last {
            Some(run) => run,
            None => {
                best = Smaller { case: case.clone(), again, ..best };
                shown.run
            }
        };
        let told = run.failure(key)?.clone();
        // Shrinking may have removed the invalid messages.
        let valid = valid || self.is_valid(&best.case, &run, &told);
        let symptom = Symptom::of_failure(&told, &run.seen.events);
        let steps = [case.len(), best.case.len()];
        if key.is_hang() {
            waits::tighten(
                &mut best.case.scenario,
                &run.seen.unanswered(),
                *key == FailureKey::HangBehindHalf,
            );
        }
        let found = Found {
            bucket: key.to_string(),
            what: told.what,
            requirement: told.requirement,
            kind: key.kind(),
            valid,
            needs_earlier_job: best.case.earlier.is_some(),
            backtrace: told.backtrace.map(|trace| *trace),
            untraced: (key.is_unseen_crash() && self.goes_on())
                .then(|| self.why_unseen(&best.case))
                .flatten(),
            server: self.target.label(),
            seed: self.seed,
            number,
            ingredients: case.ingredients.iter().cloned().collect(),
            again,
            again_minimal: best.again,
            steps,
            shrinking: best.played,
        };
        let summary = format!("Found by fuzzing: {}.", found.what.trim_end_matches('.'));
        best.case.finish(
            &summary,
            found.requirement.as_deref().or(for_proxies(&best.case, key, &run.seen.events)),
        );
        Some(Smallest { found, case: best.case, run, symptom })
    }

    /// A case after a job in which nothing is done, for servers.
    fn after_idle(case: &Case) -> Option<Case> {
        let dialect = case.scenario.dialect;
        let idle = Case::speaking(dialect, case.tests(), case.ranks(), vec![join(dialect), leave(dialect)]);
        case.after(&idle)
    }

    /// Whoever tries a case again and again plays it after itself. The same with itself as the job before, if that is what it needs: after a
    /// job in which nothing is done, it does not show.
    fn after_itself(&self, case: &Case, wanted: Wanted<'_>, again: u32) -> Option<Case> {
        let after_idle = Self::after_idle(case)?;
        if (0..TRIES).any(|_| self.showing(&after_idle, Pace::Thorough, wanted).is_some()) {
            return None;
        }
        let after_itself = case.after(case)?;
        self.shows_as_often(&after_itself, wanted, again).then_some(after_itself)
    }

    /// What shows now and then may have shown after an earlier job by chance. Without it, if it shows after an idle job as well; `None` if it
    /// does not always show after the earlier job either.
    fn without_idle_earlier(&self, best: Smaller, wanted: Wanted<'_>) -> Option<Smaller> {
        if best.case.earlier.is_none() {
            return Some(best);
        }
        let alone = Case { earlier: None, ..best.case.clone() };
        let again = Self::after_idle(&alone).map_or(0, |after_idle| self.again(&after_idle, wanted));
        match again {
            0 => (best.again + 1 >= TRIES).then_some(best),
            again => Some(Smaller { case: alone, again, ..best }),
        }
    }

    /// Makes a case smaller. A candidate of what always showed must show `runs` times in a row.
    fn smaller(&self, case: &Case, wanted: Wanted<'_>, again: u32, runs: usize, time: Duration) -> Smaller {
        let key = wanted.key;
        let played = AtomicUsize::new(0);
        let deadline = self.within(time);
        if Instant::now() >= deadline {
            return Smaller { case: case.clone(), again, played: 0 };
        }
        let mut shows = |candidate: &Case| {
            let run = || {
                played.fetch_add(1, Ordering::Relaxed);
                let showing = || self.showing(candidate, Pace::Fast, wanted);
                (Instant::now() < deadline).then(showing).flatten()
            };
            match (again == TRIES, key.is_hang()) {
                (true, true) => at_once(candidate, runs, run).len() == runs,
                (true, false) => (0..runs).all(|_| run().is_some()),
                (false, true) => !at_once(candidate, 2 * runs, run).is_empty(),
                (false, false) => (0..2 * runs).any(|_| run().is_some()),
            }
        };
        let case = shrink::shrink(case.clone(), SHRINKING, key.depends_on_bytes(), &mut shows);
        let again = self.again(&case, wanted);
        Smaller { case, again, played: played.into_inner() }
    }
}
