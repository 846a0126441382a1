//! What is measured of which jobs, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use pmi_scenario::ast::Dialect;
use serde::Serialize;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// From the launch until every process has reported.
    Start,
    /// Every rank offers its version and is answered; in PMI-2 fullinit as well.
    Init,
    /// Every rank enters a barrier and is let out, for the first time.
    FirstBarrier,
    /// The same again.
    Barrier,
    /// The same of a fence, which is what PMI-2 has.
    FirstFence,
    /// The same again.
    Fence,
    /// Every rank puts a value.
    Put,
    /// Every rank gets its own, behind a barrier.
    GetOwn,
    /// Every rank gets that of the next rank.
    GetOther,
    /// Every rank gets one that nobody has put.
    GetMissing,
    /// Every rank publishes a name.
    Publish,
    /// Every rank looks up that of the next rank.
    Lookup,
    /// A rank spawns one process, until it has its answer and the process has reported.
    Spawn,
    /// Every rank finalizes and exits, until the job has ended.
    End,
}

impl Phase {
    /// All, in the order in which they are measured, by their names.
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

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, phase)| *phase == self).map_or("", |(name, _)| name)
    }
}

/// What came of a number of ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Number of ranks.
    pub ranks: u32,
    /// Seconds, the median of all rounds. What it does not offer is left out.
    pub seconds: BTreeMap<Phase, f64>,
    /// Requests that are answered in a second while every rank gets one value after the other; the median of all rounds.
    pub requests_per_second: f64,
    /// Bytes that the launcher and the processes of the manager that serve the ranks hold when all have put a value; the most of all
    /// rounds, 0 where they cannot be looked at.
    pub memory: u64,
    /// Bytes by which that grows with each further key, whose values have 64 bytes; the median of all rounds.
    pub memory_per_key: f64,
}

/// Why a number of ranks could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Unmeasured {
    /// It could not be started.
    #[error(transparent)]
    Launch(#[from] std::io::Error),
    /// It did something else.
    #[error("{phase} of {ranks} {}: {what}", if *ranks == 1 { "rank" } else { "ranks" })]
    Wrong {
        /// What was measured.
        phase: &'static str,
        /// How many ranks there were to be.
        ranks: u32,
        /// What came instead.
        what: String,
    },
    /// The user wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

/// How it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Which protocol is spoken.
    pub dialect: Dialect,
    /// Over how many nodes the ranks are spread.
    pub nodes: u32,
    /// No answer may take longer.
    pub longest: Duration,
}
