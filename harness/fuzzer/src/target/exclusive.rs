//! Keeps other jobs from running between the two jobs of a case that has an earlier job.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{CaseRun, Target, Thoroughness, Tracing};
use crate::session::case::Case;

/// A wrapper for an implementation that several threads use. All wrappers of an implementation refer to the same `jobs`.
pub(crate) struct ExclusiveTarget<'a> {
    pub(crate) target: &'a dyn Target,
    /// The lock that a case holds exclusively if it must run alone, and that all other cases share.
    pub(crate) jobs: &'a RwLock<()>,
    /// True if cases with an earlier job are played alone. This is false for the first play of a case, because an exclusive play blocks all
    /// other cases, and every failure is played again anyway.
    pub(crate) alone: bool,
    /// True when the campaign must end. Cases that are still waiting for the lock are then not played.
    pub(crate) interrupted: &'a AtomicBool,
}

impl Target for ExclusiveTarget<'_> {
    fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> io::Result<CaseRun> {
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
