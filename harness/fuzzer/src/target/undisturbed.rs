//! Between the two jobs of a case no other may come, where that decides something.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{Pace, Run, Target, Tracing};
use crate::case::Case;

/// An implementation that several play to at the same time, each through one of these with the same `jobs`.
pub(crate) struct Undisturbed<'a> {
    /// The implementation.
    pub(crate) target: &'a dyn Target,
    /// Held for writing by who wants nobody beside, for reading by everybody else.
    pub(crate) jobs: &'a RwLock<()>,
    /// Cases that have an earlier job are played alone. Where they are played for the first time that would keep all others waiting for
    /// little: who is lucky is tried again.
    pub(crate) alone: bool,
    /// The campaign is to end: whoever has waited for the others plays no more.
    pub(crate) interrupted: &'a AtomicBool,
}

impl Target for Undisturbed<'_> {
    fn play(&self, case: &Case, pace: Pace, tracing: Tracing) -> io::Result<Run> {
        let play = || match self.interrupted.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => self.target.play(case, pace, tracing),
        };
        if self.alone && case.earlier.is_some() {
            let _alone = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
            return play();
        }
        let _beside = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
        play()
    }

    fn label(&self) -> String {
        self.target.label()
    }

    fn command(&self) -> &[String] {
        self.target.command()
    }

    fn version(&self) -> String {
        self.target.version()
    }

    fn plays_at_once(&self, workers: usize) -> usize {
        self.target.plays_at_once(workers)
    }
}
