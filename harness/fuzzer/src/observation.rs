//! What was seen of a case against a server.

use std::time::Duration;

use pmi_judge::Finding;
use pmi_judge::event::{Event, Exit, SilenceProof, What};
use pmi_scenario::ast::Dialect;

use super::edges::Edges;

/// No process of a server's may grow by more in one case, however much it was sent. Cases rarely send more than some hundred
/// kilobytes; Hydra's processes grow by less than two megabytes in them.
const GROWTH: u64 = 256 << 20;
/// Nor by more than this and ...
const GROWTH_BASE: u64 = 32 << 20;
/// ... so many bytes for each that it was sent: what is kept costs headers, copies and tables that double.
const GROWTH_FACTOR: u64 = 64;

/// How much a process of the server's has grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The program.
    pub name: String,
    /// By so many bytes of memory that it holds at the end.
    pub bytes: u64,
    /// Bytes that the server was sent meanwhile.
    pub sent: u64,
}

impl Growth {
    /// Whether the server is stopped for it, whatever it was sent.
    pub(crate) fn is_dangerous(&self) -> bool {
        self.bytes > GROWTH
    }

    /// Whether it is out of proportion.
    pub(crate) fn is_too_much(&self) -> bool {
        self.bytes > GROWTH.min(GROWTH_BASE.saturating_add(GROWTH_FACTOR.saturating_mul(self.sent)))
    }
}

/// What was seen of a case.
#[derive(Debug, Default)]
pub struct Observation {
    /// What was spoken.
    pub dialect: Dialect,
    /// The transcript.
    pub events: Vec<Event>,
    /// What was broken.
    pub findings: Vec<Finding>,
    /// A process of the implementation that died of a signal, and the signal.
    pub crashed: Option<(String, i32)>,
    /// The case has ended a process of ours as a crash would: the launcher may say that its program crashed.
    pub segfaults: bool,
    /// How the launcher ended.
    pub exit: Option<Exit>,
    /// The job did not end although every process had; how that is known.
    pub job_stays: Option<SilenceProof>,
    /// It sent more than a server may.
    pub flood: bool,
    /// The process of the server's that has grown most, of those that are looked at.
    pub growth: Option<Growth>,
    /// Why nothing can be said.
    pub unjudged: Option<String>,
    /// How many events there were when the last step was done: what follows is the end of every case.
    pub steps_done: usize,
    /// Requests that were made.
    pub requests: usize,
    /// How long the slowest answer took.
    pub slowest: Duration,
    /// How long it took to know that no answer would come.
    pub silences: Vec<Duration>,
    /// The edges of the implementation's program that it went along, if it was asked to tell.
    pub edges: Option<Edges>,
}

impl Observation {
    /// Lines of the steps at which nothing came.
    pub(crate) fn unanswered(&self) -> Vec<usize> {
        let nothing = |event: &&Event| matches!(event.what, What::NoAnswer { .. });
        self.events.iter().filter(nothing).map(|event| event.line).collect()
    }

    /// Whether a process has grown so much that the server is stopped, whatever it was sent.
    pub(crate) fn grows_dangerously(&self) -> bool {
        self.growth.as_ref().is_some_and(Growth::is_dangerous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_too_much_beyond_both_bounds() {
        let grown = |mib: u64, sent| Growth { name: "s".into(), bytes: mib << 20, sent }.is_too_much();
        assert!(!grown(32, 0) && grown(33, 0));
        assert!(!grown(90, 1 << 20) && grown(97, 1 << 20));
        assert!(!grown(256, u64::MAX) && grown(257, u64::MAX));
    }
}
