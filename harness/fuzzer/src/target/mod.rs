//! The implementations against which cases are played.

pub(crate) mod command;
pub mod differential;
pub(crate) mod exclusive;
mod play;
pub mod program;
pub mod server;

use std::io;
use std::path::Path;

use pmi_judge::event::{Event, EventKind};
use pmi_judge::{PartyKind, is_reached_by_valid_input};
use pmi_process::trace;
use pmi_scenario::ImplementationKind;

use crate::observe::failure::{Failure, FailureKey};
use crate::observe::observation::Observation;
use crate::session::case::Case;

/// The thoroughness with which a case is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// Accepts a short silence as proof that no response will arrive.
    Fast,
    /// Requires the same proof of a silence as the suite, and gives processes twice as much time.
    Thorough,
}

/// The use of a debugger to record where processes die. A debugger slows a case down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// Without a debugger.
    Off,
    /// With a debugger, if the system permits it.
    On,
}

/// Numbers of launched jobs and processes. Earlier jobs of cases and confirmation runs are included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Number of jobs.
    pub jobs: u64,
    /// Number of processes that have reported to the harness, including spawned ones.
    pub processes: u64,
}

/// An implementation under test, against which cases are played.
pub trait Target: Sync {
    /// Plays a case.
    ///
    /// # Errors
    ///
    /// Returns an error if the implementation cannot be started.
    fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> io::Result<CaseRun>;
    /// Returns a description of the implementation.
    fn label(&self) -> String;
    /// Returns the command that starts the implementation, with placeholders.
    fn command(&self) -> &[String];
    /// Returns a text that describes the version of the implementation.
    fn version(&self) -> String;
    /// Returns the numbers of jobs and processes launched so far, or `None` if they are not counted.
    fn launched(&self) -> Option<LaunchCounts> {
        None
    }
    /// Returns the number of cases to play in parallel if there are `workers` workers. The number includes cases that are only waiting.
    fn plays_at_once(&self, workers: usize) -> usize {
        workers
    }
}

/// A case that was played, and its failures.
#[derive(Debug)]
pub struct CaseRun {
    /// The observation of the case.
    pub observation: Observation,
    /// The failures, worst first.
    pub failures: Vec<Failure>,
}

/// Calls `play` and returns its result, with the events that a debugger recorded if `tracing` is on. `program` is the path of this binary,
/// which can act as a debugger.
fn traced<T>(tracing: Tracing, program: &Path, play: impl FnOnce() -> T) -> (T, Vec<EventKind>) {
    match tracing {
        Tracing::Off => (play(), Vec::new()),
        Tracing::On => trace::traced(program, play),
    }
}

/// Appends events that were reported after the end of the job.
fn append_events(events: &mut Vec<Event>, reported: Vec<EventKind>) {
    for kind in reported {
        let time_us = events.last().map_or(0, |event| event.time_us);
        events.push(Event { time_us, ..Event::new(events.len() as u64, kind) });
    }
}

impl CaseRun {
    /// Returns the failure with this key, or `None` if it did not occur.
    pub fn failure(&self, key: &FailureKey) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.key == *key)
    }

    /// Returns whether all input before a failure was valid.
    pub(crate) fn is_valid(&self, tests: ImplementationKind, failure: &Failure) -> bool {
        let under_test =
            if tests == ImplementationKind::Server { PartyKind::Server } else { PartyKind::Client };
        is_reached_by_valid_input(&self.observation.events, under_test, failure.seq)
    }
}
