//! What cases are played against, and the oracles.

pub mod differential;
pub mod program;
pub mod server;
pub(crate) mod undisturbed;

use std::io;
use std::path::Path;

use pmi_judge::event::{Event, What};
use pmi_judge::{Side, is_reached_by_valid_input};
use pmi_runner::process::trace;
use pmi_scenario::UnderTest;

use crate::case::Case;
use crate::failure::{Failure, FailureKey};
use crate::observation::Observation;

/// How thoroughly a case is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Silence is believed at once.
    Fast,
    /// Silence is believed as in the suite, and processes get twice the time.
    Thorough,
}

/// Whether a debugger looks where processes die, which takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// None does.
    Off,
    /// It does, as far as it may.
    On,
}

/// What was started of an implementation in all that was played: sessions, the jobs before them, and whatever is tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launched {
    /// Jobs.
    pub jobs: u64,
    /// Processes of theirs that have reported, spawned ones included.
    pub processes: u64,
}

/// An implementation under test.
pub trait Target: Sync {
    /// Plays a case.
    ///
    /// # Errors
    ///
    /// The implementation cannot be started.
    fn play(&self, case: &Case, pace: Pace, tracing: Tracing) -> io::Result<Run>;
    /// The implementation in words.
    fn label(&self) -> String;
    /// The command that starts the implementation, with placeholders.
    fn command(&self) -> &[String];
    /// What is known of the implementation's version, in words.
    fn version(&self) -> String;
    /// What was launched so far, if that is counted.
    fn launched(&self) -> Option<Launched> {
        None
    }
    /// Cases that may have been begun at the same time where so many workers are asked for, with those that only wait.
    fn plays_at_once(&self, workers: usize) -> usize {
        workers
    }
}

/// A case that was played, and what is wrong with it.
#[derive(Debug)]
pub struct Run {
    /// What happened.
    pub seen: Observation,
    /// What is wrong, the worst first.
    pub failures: Vec<Failure>,
}

/// Plays something, and tells what a debugger saw of it, if one is to look; our own `program` can be one.
fn traced<T>(tracing: Tracing, program: &Path, play: impl FnOnce() -> T) -> (T, Vec<What>) {
    match tracing {
        Tracing::Off => (play(), Vec::new()),
        Tracing::On => trace::traced(program, play),
    }
}

/// Adds what was told when all was over.
fn tell_last(events: &mut Vec<Event>, told: Vec<What>) {
    for what in told {
        let time_us = events.last().map_or(0, |event| event.time_us);
        events.push(Event { time_us, ..Event::new(events.len() as u64, what) });
    }
}

impl Run {
    /// The failure of this key, if it has shown.
    pub fn failure(&self, key: &FailureKey) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.key == *key)
    }

    /// Whether only valid input led to a failure, where `tests` is under test.
    pub(crate) fn is_valid(&self, tests: UnderTest, failure: &Failure) -> bool {
        let under_test = if tests == UnderTest::Server { Side::Server } else { Side::Client };
        is_reached_by_valid_input(&self.seen.events, under_test, failure.seq)
    }
}
