//! The measured phases of a job, and the results.

use std::collections::BTreeMap;
use std::time::Duration;

use pmi_scenario::ast::Dialect;
use serde::Serialize;

/// A measured phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredPhase {
    /// Every process of the job starts and reports to the runner.
    Start,
    /// Every rank offers its version and receives the response. In PMI-2, the phase includes fullinit.
    Init,
    /// Every rank enters a barrier and is released, for the first time.
    FirstBarrier,
    /// Every rank passes a later barrier.
    Barrier,
    /// Every rank passes its first PMI-2 fence.
    FirstFence,
    /// Every rank passes a later PMI-2 fence.
    Fence,
    /// Every rank puts a value.
    Put,
    /// Every rank gets its own value, after a barrier.
    GetOwn,
    /// Every rank gets the value of the next rank.
    GetOther,
    /// Every rank gets a key that was not put.
    GetMissing,
    /// Every rank publishes a name.
    Publish,
    /// Every rank looks up the name of the next rank.
    Lookup,
    /// A rank spawns one process, and the phase ends when the rank has its response and the process has reported to the runner.
    Spawn,
    /// Every rank finalizes and exits, and the phase ends when the job has ended.
    End,
}

impl MeasuredPhase {
    /// All phases with their names, in the order of their measurement.
    pub const NAMES: [(&str, Self); 14] = [
        ("start", Self::Start),
        ("init", Self::Init),
        ("first-barrier", Self::FirstBarrier),
        ("barrier", Self::Barrier),
        ("first-fence", Self::FirstFence),
        ("fence", Self::Fence),
        ("put", Self::Put),
        ("get-own", Self::GetOwn),
        ("get-other", Self::GetOther),
        ("get-missing", Self::GetMissing),
        ("publish", Self::Publish),
        ("lookup", Self::Lookup),
        ("spawn", Self::Spawn),
        ("end", Self::End),
    ];

    /// Returns the name of the phase.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, phase)| *phase == self).map_or("", |(name, _)| name)
    }
}

/// The results for one number of ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Number of ranks.
    pub ranks: u32,
    /// Duration of each phase in seconds: the median of all rounds. Phases that the manager does not support or that failed are omitted.
    pub seconds: BTreeMap<MeasuredPhase, f64>,
    /// Responses per second while every rank gets several values, one at a time: the median of all rounds. `None` if no round reached this
    /// phase.
    pub requests_per_second: Option<f64>,
    /// Memory use in bytes after every rank has put a value: the maximum of all rounds; 0 if it cannot be measured. Includes the launcher
    /// and the manager's processes that serve the ranks.
    pub memory: u64,
    /// Memory use in bytes of each additional key with a 64-byte value: the median of all rounds. `None` if no round reached this phase.
    pub memory_per_key: Option<f64>,
}

/// The reason why a job with a certain number of ranks could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The job could not be started.
    #[error(transparent)]
    Launch(#[from] std::io::Error),
    /// The job behaved unexpectedly.
    #[error("{phase} with {ranks} {}: {what}", if *ranks == 1 { "rank" } else { "ranks" })]
    UnexpectedBehavior {
        /// The measured phase.
        phase: &'static str,
        /// Number of ranks.
        ranks: u32,
        /// The unexpected behaviour.
        what: String,
    },
    /// The user has interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The dialect of the measured requests.
    pub dialect: Dialect,
    /// Number of nodes that the ranks are spread over.
    pub nodes: u32,
    /// Maximum time to wait for a response.
    pub response_timeout: Duration,
    /// True if all messages are judged, which takes time.
    pub is_judged: bool,
}
