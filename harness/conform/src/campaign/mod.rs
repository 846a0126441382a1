//! Campaigns: sessions that a generator makes, played against a server until something breaks, and what is done with
//! what breaks.
//!
//! What a session is made of depends on who is under test: [`session`] has those for servers, [`ordeal`] those for
//! programs and libraries; [`input`] says what a campaign needs of either.
//!
//! [`mod@generate`] makes sessions from a model of PMI-1 and changes them; [`drive`] plays one against a launch of
//! the implementation, which [`arena`] provides, or against several ([`differ`]); [`symptom`] says what is wrong and sorts it into buckets. What is new
//! is tried again, made smaller ([`mod@shrink`]) and stored ([`store`]). Sessions that get further than others are kept
//! ([`corpus`]), and more are made of them.

pub mod arena;
pub mod corpus;
mod dice;
pub mod differ;
pub mod drive;
pub mod generate;
pub mod input;
pub mod known;
mod mutate;
pub mod ordeal;
mod replies;
pub mod session;
pub mod shrink;
pub mod state;
pub mod store;
pub mod symptom;
mod upstream;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arena::{Pace, Stage, Verdict};
use generate::Generated;
use input::Input;
use known::{Known, Steering};
use shrink::{leave_out, shrink};
use state::State;
use store::{Found, TRIES};
use symptom::Symptom;

/// Most sessions that shrinking one finding plays.
const SHRINKING: usize = 200;

/// Most time that shrinking one finding takes; three times as much where sessions are slow.
const SHRINKING_TIME: Duration = Duration::from_secs(20);

/// A bucket that did not show again so often is not tried again.
const UNCONFIRMED: u32 = 3;

/// Sorts of symptoms behind which a session shows nothing more.
const FATAL: [&str; 5] = ["crash", "stays", "flood", "differs", "memory"];

/// How a campaign goes.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the sessions depend on.
    pub seed: u64,
    /// Ends after so many sessions ...
    pub sessions: Option<u64>,
    /// ... or after this time.
    pub time: Option<Duration>,
    /// Sessions side by side.
    pub workers: usize,
    /// Where findings go.
    pub out: PathBuf,
    /// What is known already.
    pub known: Known,
    /// The command line that plays a finding again, up to the name of its folder.
    pub replay: String,
}

/// How far a campaign is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Time since it began.
    pub time: Duration,
    /// Sessions played.
    pub sessions: u64,
    /// Sessions left out, since they would only have shown what is known.
    pub skipped: u64,
    /// Requests sent.
    pub requests: u64,
    /// Transitions of the model.
    pub transitions: usize,
    /// Sessions from which others are made.
    pub corpus: usize,
    /// Buckets found in this campaign, and how often each was seen.
    pub new: BTreeMap<String, u64>,
    /// The same of known buckets.
    pub known: BTreeMap<String, u64>,
    /// Symptoms that did not show again.
    pub unconfirmed: BTreeMap<String, u32>,
    /// Sessions that could not be judged, and why the last one.
    pub unjudged: (u64, String),
    /// Middle of the times that it took to know that no answer would come.
    pub silence: Option<Duration>,
    /// Most bytes by which a process of the server's has grown in a session.
    pub growth: u64,
}

/// Is told how a campaign goes.
pub trait Watch: Sync {
    /// Now and then.
    fn progress(&self, progress: &Progress);
    /// Something new, which is stored.
    fn found(&self, found: &Found);
    /// Something could not be written.
    fn trouble(&self, what: &str);
}

/// How a campaign ended.
#[derive(Debug)]
pub struct Outcome {
    /// The last word.
    pub progress: Progress,
    /// What was found and stored.
    pub found: Vec<Found>,
    /// The user ended it.
    pub interrupted: bool,
}

/// What the workers share.
struct Shared {
    state: State,
    steering: Steering,
    progress: Progress,
    /// Buckets that some worker looks at or has stored.
    taken: BTreeSet<String>,
    found: Vec<Found>,
    silences: Vec<Duration>,
}

/// Most times of silence that are kept for their median.
const SILENCES: usize = 100_000;

struct Campaign<'a, I> {
    stage: &'a dyn Stage<I>,
    source: &'a dyn Source<I>,
    options: &'a Options,
    interrupted: &'a AtomicBool,
    watch: &'a dyn Watch,
    next: AtomicU64,
    end: AtomicBool,
    start: Instant,
    shared: Mutex<Shared>,
}

/// Where sessions come from.
pub trait Source<I>: Sync {
    /// Makes the session of a number.
    fn make(&self, number: u64) -> Generated<I>;

    /// Is told of one that reached what none before it had, and did not end the server.
    ///
    /// # Errors
    ///
    /// It cannot be written down; the message names the file.
    fn got_further(&self, _number: u64, _generated: &Generated<I>) -> Result<(), String> {
        Ok(())
    }

    /// Number of sessions from which others are made.
    fn kept(&self) -> usize {
        0
    }
}

impl<I, F: Fn(u64) -> Generated<I> + Sync> Source<I> for F {
    fn make(&self, number: u64) -> Generated<I> {
        self(number)
    }
}

/// Runs a campaign from the session that the state names.
pub fn run<I: Input>(
    stage: &dyn Stage<I>,
    source: &dyn Source<I>,
    options: &Options,
    state: State,
    interrupted: &AtomicBool,
    watch: &dyn Watch,
) -> Outcome {
    let first = state.next;
    let taken = state.buckets.keys().cloned().collect();
    let campaign = Campaign {
        stage,
        source,
        options,
        interrupted,
        watch,
        next: AtomicU64::new(first),
        end: AtomicBool::new(false),
        start: Instant::now(),
        shared: Mutex::new(Shared {
            steering: Steering::default(),
            progress: Progress { transitions: state.transitions.len(), ..Progress::default() },
            state,
            taken,
            found: Vec::new(),
            silences: Vec::new(),
        }),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..options.workers.max(1)).map(|_| scope.spawn(|| campaign.work(first))).collect();
        let mut told = Instant::now();
        while workers.iter().any(|w| !w.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                let progress = campaign.progress();
                campaign.watch.progress(&progress);
                campaign.save();
            }
        }
    });
    campaign.save();
    let progress = campaign.progress();
    let found = campaign.lock().found.clone();
    Outcome { progress, found, interrupted: interrupted.load(Ordering::Relaxed) }
}

impl<I: Input> Campaign<'_, I> {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> Progress {
        let mut shared = self.lock();
        shared.silences.sort_unstable();
        let mut progress = shared.progress.clone();
        progress.silence = shared.silences.get(shared.silences.len() / 2).copied();
        progress.time = self.start.elapsed();
        progress.transitions = shared.state.transitions.len();
        progress.corpus = self.source.kept();
        progress
    }

    /// Keeps what a later campaign goes on from.
    fn save(&self) {
        let state = self.lock().state.clone();
        if let Err(error) = state.write(&self.options.out) {
            self.watch.trouble(&error);
        }
    }

    fn is_over(&self, first: u64, number: u64) -> bool {
        let options = self.options;
        self.end.load(Ordering::Relaxed)
            || self.interrupted.load(Ordering::Relaxed)
            || options.sessions.is_some_and(|n| number - first >= n)
            || options.time.is_some_and(|time| self.start.elapsed() >= time)
    }

    fn work(&self, first: u64) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if self.is_over(first, number) {
                return;
            }
            let generated = self.source.make(number);
            if self.leaves_out(&generated, number) {
                continue;
            }
            match self.stage.play(&generated.session, Pace::Hasty) {
                Ok(verdict) => self.judge(&generated, number, verdict),
                Err(error) => self.unjudged(error.to_string()),
            }
        }
    }

    fn leaves_out(&self, generated: &Generated<I>, number: u64) -> bool {
        let mut shared = self.lock();
        shared.state.next = shared.state.next.max(number + 1);
        let skip = self.options.known.avoids(&generated.ingredients)
            || shared.steering.skips(&generated.ingredients, number);
        shared.progress.skipped += u64::from(skip);
        skip
    }

    fn unjudged(&self, why: String) {
        let mut shared = self.lock();
        shared.progress.unjudged.0 += 1;
        shared.progress.unjudged.1 = why;
        // A server that cannot be started at all.
        if shared.progress.unjudged.0 >= 20 && shared.progress.sessions == 0 {
            self.end.store(true, Ordering::Relaxed);
        }
    }

    fn judge(&self, generated: &Generated<I>, number: u64, verdict: Verdict) {
        if let Some(why) = verdict.played.unjudged.clone().filter(|_| verdict.symptoms.is_empty()) {
            return self.unjudged(why);
        }
        let mut fresh = Vec::new();
        let mut trouble = None;
        {
            let mut shared = self.lock();
            shared.progress.sessions += 1;
            shared.progress.requests += verdict.played.requests as u64;
            shared.state.sessions += 1;
            let grown = verdict.played.growth.as_ref().map_or(0, |g| g.bytes);
            shared.progress.growth = shared.progress.growth.max(grown);
            let before = shared.state.transitions.len();
            shared.state.transitions.extend(arena::transitions(&verdict.played));
            let ends = |s: &Symptom| FATAL.iter().any(|sort| s.bucket.starts_with(sort));
            if shared.state.transitions.len() > before && !verdict.symptoms.iter().any(ends) {
                trouble = self.source.got_further(number, generated).err();
            }
            if shared.silences.len() < SILENCES {
                shared.silences.extend(&verdict.played.silences);
            }
            let mut ended_as_known = false;
            for symptom in &verdict.symptoms {
                let mut symptom = symptom.clone();
                if let Some(alias) = shared.state.aliases.get_mut(&symptom.bucket) {
                    let due = alias.is_due();
                    let bucket = std::mem::replace(&mut symptom.bucket, alias.of.clone());
                    if due {
                        fresh.push(Symptom { bucket, ..symptom.clone() });
                    }
                }
                let known = self.options.known.has(&symptom.bucket)
                    || shared.state.buckets.contains_key(&symptom.bucket);
                let fatal = ends(&symptom);
                if known {
                    ended_as_known |= fatal;
                    *shared.state.buckets.entry(symptom.bucket.clone()).or_default() += 1;
                    let new = shared.found.iter().any(|f| f.bucket == symptom.bucket);
                    let counts = if new { &mut shared.progress.new } else { &mut shared.progress.known };
                    *counts.entry(symptom.bucket.clone()).or_default() += 1;
                } else if shared.taken.insert(symptom.bucket.clone()) {
                    fresh.push(symptom);
                }
            }
            shared.steering.book(&generated.ingredients, ended_as_known);
        }
        if let Some(error) = trouble {
            self.watch.trouble(&error);
        }
        for symptom in fresh {
            self.examine(&symptom, generated, number);
        }
    }

    /// How many of so many more runs show a bucket.
    fn again(&self, session: &I, bucket: &str, times: u32) -> u32 {
        let shows = |_: &u32| {
            !self.interrupted.load(Ordering::Relaxed)
                && self.stage.play(session, Pace::Calm).is_ok_and(|v| shows(&v, bucket))
        };
        (0..times).filter(shows).count() as u32
    }

    /// What a crash comes to when all is left out that it does not need: the last thing that was done before it was seen,
    /// which names its bucket, may have nothing to do with it.
    fn root(&self, symptom: &Symptom, generated: &Generated<I>) -> Option<(Symptom, Generated<I>)> {
        let parts: Vec<&str> = symptom.bucket.split("--").collect();
        let ["crash", who, signal, _] = parts[..] else { return None };
        let family = &format!("crash--{who}--{signal}");
        let of_family =
            |verdict: Verdict| verdict.symptoms.into_iter().find(|s| s.bucket.starts_with(family));
        let deadline = Instant::now() + SHRINKING_TIME / 2;
        let session = leave_out(generated.session.clone(), SHRINKING, &mut |candidate| {
            let play = |_| self.stage.play(candidate, Pace::Hasty).ok().and_then(of_family).is_some();
            Instant::now() < deadline && !self.interrupted.load(Ordering::Relaxed) && (0..2).all(play)
        });
        let root = self.stage.play(&session, Pace::Calm).ok().and_then(of_family)?;
        let ingredients = generated.ingredients.clone();
        (root.bucket != symptom.bucket).then(|| (root, Generated { session, ingredients }))
    }

    /// Looks into a symptom that is new.
    fn examine(&self, symptom: &Symptom, generated: &Generated<I>, number: u64) {
        if let Some((root, smaller)) = self.root(symptom, generated) {
            let mut shared = self.lock();
            shared.state.aliases.entry(symptom.bucket.clone()).or_default().of.clone_from(&root.bucket);
            let known = self.options.known.has(&root.bucket);
            let fresh = shared.taken.insert(root.bucket.clone());
            drop(shared);
            if fresh && !known {
                self.confirm(&root, &smaller, number);
            }
            return;
        }
        self.lock().state.aliases.remove(&symptom.bucket);
        self.confirm(symptom, generated, number);
    }

    /// Tries a symptom again, makes its session smaller and stores it.
    fn confirm(&self, symptom: &Symptom, generated: &Generated<I>, number: u64) {
        let bucket = &symptom.bucket;
        let start = Instant::now();
        let again = self.again(&generated.session, bucket, TRIES);
        let time = start.elapsed() / TRIES * SHRINKING as u32;
        let time = time.clamp(SHRINKING_TIME, 3 * SHRINKING_TIME);
        // Once may be the machine's doing where only the clock tells that nothing comes.
        if again < if bucket.starts_with("hang") { 2 } else { 1 } {
            let mut shared = self.lock();
            let times = shared.progress.unconfirmed.entry(bucket.clone()).or_default();
            *times += 1;
            if *times < UNCONFIRMED {
                shared.taken.remove(bucket);
            }
            return;
        }
        let (mut minimal, mut again_minimal, mut played) = self.smaller(generated, bucket, again, 2, time);
        if again_minimal < again {
            // Something that makes it sure was left out: once more, with more runs for each candidate.
            let (stricter, again_stricter, more) = self.smaller(generated, bucket, again, 5, time);
            played += more;
            if again_stricter > again_minimal {
                (minimal, again_minimal) = (stricter, again_stricter);
            }
        }
        if again_minimal == 0 {
            (minimal, again_minimal) = (generated.session.clone(), again);
        }
        // What a scenario needs: a start in good order as its control, and a wait for what comes of it.
        for fitted in [I::joined, I::awaited] {
            if let Some(fitted) = fitted(&minimal).filter(|f| self.again(f, bucket, TRIES) >= again_minimal) {
                minimal = fitted;
            }
        }
        let last =
            (0..TRIES).find_map(|_| self.stage.play(&minimal, Pace::Calm).ok().filter(|v| shows(v, bucket)));
        let Some(verdict) = last else {
            self.lock().taken.remove(bucket);
            return;
        };
        let steps = [generated.session.len(), minimal.len()];
        if bucket.starts_with("hang") {
            minimal.tighten(&verdict.played.unanswered, bucket.ends_with(symptom::BEHIND_A_HALF));
        }
        let told = verdict.symptoms.iter().find(|s| s.bucket == *bucket).unwrap_or(symptom);
        let found = Found {
            bucket: bucket.clone(),
            what: told.what.clone(),
            requirement: told.requirement.clone(),
            server: self.stage.label(),
            seed: self.options.seed,
            number,
            ingredients: generated.ingredients.iter().cloned().collect(),
            again,
            again_minimal,
            steps,
            shrinking: played,
        };
        self.keep(found, &minimal, &verdict);
    }

    /// Makes a session smaller; also how often the result showed the bucket again, and how many sessions that took. A
    /// candidate of what always showed must show `runs` times in a row.
    fn smaller(
        &self,
        generated: &Generated<I>,
        bucket: &str,
        again: u32,
        runs: usize,
        time: Duration,
    ) -> (I, u32, usize) {
        let mut played = 0;
        let deadline = Instant::now() + time;
        let mut shows_again = |candidate: &I| {
            let mut run = || {
                played += 1;
                Instant::now() < deadline
                    && !self.interrupted.load(Ordering::Relaxed)
                    && self.stage.play(candidate, Pace::Hasty).is_ok_and(|v| shows(&v, bucket))
            };
            if again == TRIES { (0..runs).all(|_| run()) } else { (0..2 * runs).any(|_| run()) }
        };
        // A broken rule is told with its message; what crashes a server may be a single byte.
        let bytes = !["rule", "hang", "differs", "memory"].iter().any(|sort| bucket.starts_with(sort));
        let small = shrink(generated.session.clone(), SHRINKING, bytes, &mut shows_again);
        let again = self.again(&small, bucket, TRIES);
        (small, again, played)
    }

    fn keep(&self, found: Found, minimal: &I, verdict: &Verdict) {
        let folder = self.options.out.join(&found.bucket);
        let replay =
            format!("{} --replay {}", self.options.replay, shell_words::quote(&folder.to_string_lossy()));
        let events = &verdict.played.events;
        let stored = store::store(&folder, &found, minimal, events, self.stage, &replay);
        if let Err(error) = stored {
            self.watch.trouble(&format!("{}: {error}", folder.display()));
        }
        let mut shared = self.lock();
        *shared.state.buckets.entry(found.bucket.clone()).or_default() += 1;
        *shared.progress.new.entry(found.bucket.clone()).or_default() += 1;
        shared.found.push(found.clone());
        drop(shared);
        self.watch.found(&found);
    }
}

fn shows(verdict: &Verdict, bucket: &str) -> bool {
    verdict.symptoms.iter().any(|s| s.bucket == bucket)
}
