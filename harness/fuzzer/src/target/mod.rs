//! What cases are played against, and the oracles.

pub mod differential;
pub mod program;
pub mod server;

use std::io;

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

/// An implementation under test.
pub trait Target: Sync {
    /// Plays a case.
    ///
    /// # Errors
    ///
    /// The implementation cannot be started.
    fn play(&self, case: &Case, pace: Pace) -> io::Result<Run>;
    /// The implementation in words.
    fn label(&self) -> String;
    /// The command that starts the implementation, with placeholders.
    fn command(&self) -> &[String];
    /// What is known of the implementation's version, in words.
    fn version(&self) -> String;
}

/// A case that was played, and what is wrong with it.
#[derive(Debug)]
pub struct Run {
    /// What happened.
    pub seen: Observation,
    /// What is wrong, the worst first.
    pub failures: Vec<Failure>,
}

impl Run {
    /// The failure of this key, if it has shown.
    pub fn failure(&self, key: &FailureKey) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.key == *key)
    }
}
