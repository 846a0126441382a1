//! The data that is recorded while a case is played against a server.

use std::time::Duration;

use pmi_judge::Finding;
use pmi_judge::event::{Event, EventKind, Exit, SilenceProof};
use pmi_scenario::ast::Dialect;

use super::edges::Edges;

/// Maximum growth of a server process's memory within a case, in bytes, regardless of the input. Cases rarely send more than a few hundred
/// kilobytes, and Hydra's processes then grow by less than two megabytes.
const MAX_GROWTH: u64 = 256 << 20;
/// Maximum growth without any input, in bytes.
const GROWTH_BASE: u64 = 32 << 20;
/// Maximum additional growth for each byte of input, in bytes. Stored data needs headers, copies and tables that double in size.
const GROWTH_FACTOR: u64 = 64;

/// The growth of a server process's memory within a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGrowth {
    /// The name of the program.
    pub name: String,
    /// Increase in the process's memory after all ranks had started, in bytes.
    pub bytes: u64,
    /// Number of bytes that the case sent to the server.
    pub sent: u64,
}

impl MemoryGrowth {
    /// Returns whether the server must be stopped because of the growth, regardless of the input.
    pub(crate) fn is_dangerous(&self) -> bool {
        self.bytes > MAX_GROWTH
    }

    /// Returns whether the growth is out of proportion to the input.
    pub(crate) fn is_too_much(&self) -> bool {
        self.bytes > MAX_GROWTH.min(GROWTH_BASE.saturating_add(GROWTH_FACTOR.saturating_mul(self.sent)))
    }
}

/// The data that was recorded while a case was played.
#[derive(Debug, Default)]
pub struct Observation {
    /// The dialect of the case.
    pub dialect: Dialect,
    /// The events of the case, in order.
    pub events: Vec<Event>,
    /// The findings of the judge.
    pub findings: Vec<Finding>,
    /// A process of the implementation that was killed by a signal, and the signal.
    pub crashed: Option<(String, i32)>,
    /// True if the case killed a process of the harness with SIGSEGV. The launcher may then report that its program crashed.
    pub segfaults: bool,
    /// The exit status of the launcher.
    pub exit: Option<Exit>,
    /// The proof that the job did not end although all of its processes had ended, or `None` if the job ended.
    pub running_job: Option<SilenceProof>,
    /// True if the server exceeded the output limit.
    pub flood: bool,
    /// The memory growth of the server process whose memory grew most.
    pub growth: Option<MemoryGrowth>,
    /// The reason why the case could not be judged.
    pub unjudged: Option<String>,
    /// Number of events up to the end of the last step. Later events belong to the end of the job.
    pub scenario_events: usize,
    /// Number of requests that the case sent.
    pub requests: usize,
    /// Duration of the slowest response.
    pub slowest_response: Duration,
    /// Time needed to establish each silence.
    pub silences: Vec<Duration>,
    /// The edges of the implementation's program that the case covered, if coverage was requested.
    pub edges: Option<Edges>,
}

impl Observation {
    /// Returns the numbers of the statements that received no response.
    pub(crate) fn unanswered(&self) -> Vec<usize> {
        let nothing = |event: &&Event| matches!(event.kind, EventKind::NoResponse { .. });
        self.events.iter().filter(nothing).map(|event| event.line).collect()
    }

    /// Returns whether the memory of a process has grown so much that the server must be stopped.
    pub(crate) fn grows_dangerously(&self) -> bool {
        self.growth.as_ref().is_some_and(MemoryGrowth::is_dangerous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_growth_limit_depends_on_bytes_sent() {
        let grown = |mib: u64, sent| MemoryGrowth { name: "s".into(), bytes: mib << 20, sent }.is_too_much();
        assert!(!grown(32, 0) && grown(33, 0));
        assert!(!grown(90, 1 << 20) && grown(97, 1 << 20));
        assert!(!grown(256, u64::MAX) && grown(257, u64::MAX));
    }
}
