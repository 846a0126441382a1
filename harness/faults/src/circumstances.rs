//! The occasions on which an effect applies.

use pmi_wire::{Framing, node_of};
use serde::Deserialize;

/// The circumstances of a server action.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// The framing of the process's connection, or `None` if the process has not initialized yet.
    pub framing: Option<Framing>,
    /// The process group.
    pub group: u32,
    /// The rank in the group.
    pub rank: u32,
    /// The size of the group.
    pub size: u32,
    /// The number of nodes over which the group is spread.
    pub nodes: u32,
    /// The number of processes of the group that wait in the barrier.
    pub waiting: u32,
    /// The number of the next barrier, starting at 1.
    pub round: u64,
    /// True if the last response to the process was a refusal.
    pub refused: bool,
    /// True if the request arrived with other requests in a single read.
    pub in_burst: bool,
    /// True if the first bytes in this round of the event loop came from another process.
    pub is_together: bool,
    /// True if the scenario has paused for some time before this action.
    pub late: bool,
    /// True if the launcher runs within another job, whose variables are in the launcher's environment.
    pub within_job: bool,
    /// The number of occasions so far on which the effect could have applied, including this one.
    pub use_count: u64,
}

/// The occasions on which an effect applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// On every occasion.
    #[default]
    Always,
    /// Only on the nth occasion.
    Nth(u64),
    /// On the nth occasion and all later occasions.
    From(u64),
    /// For spawned groups only.
    Spawned,
    /// With at least two nodes.
    Nodes,
    /// In groups with at least the given number of ranks.
    Ranks(u32),
    /// For the last rank of a group with at least two ranks.
    LastRank,
    /// For the last rank of a group with an odd number of ranks, if the group has at least 3 ranks.
    LastOfOddGroup,
    /// For all ranks but the first.
    NotFirst,
    /// For the ranks of the first group that are not on its first node.
    OtherNodes,
    /// After a response that refused a request from the process.
    Refused,
    /// While a process of the group waits in the barrier.
    Waiting,
    /// While all other processes of the group wait in the barrier.
    OthersWait,
    /// From the end of the previous barrier until the end of the barrier with this number.
    Round(u64),
    /// In spawned groups: from the end of the previous barrier until the end of the barrier with this number.
    SpawnedRound(u64),
    /// When several messages arrived in a single read.
    Burst,
    /// In a round of the event loop whose first bytes came from another process.
    Together,
    /// After a pause in the scenario.
    Late,
    /// If the launcher runs within another job.
    WithinJob,
}

impl Occasion {
    /// Returns whether the effect applies in these circumstances.
    pub(crate) fn holds(self, circumstances: &Circumstances) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(n) => circumstances.use_count == n,
            Self::From(n) => circumstances.use_count >= n,
            Self::Spawned => circumstances.group > 0,
            Self::Nodes => circumstances.nodes > 1,
            Self::Ranks(n) => circumstances.size >= n,
            Self::LastRank => circumstances.size > 1 && circumstances.rank + 1 == circumstances.size,
            Self::LastOfOddGroup => {
                circumstances.size > 1
                    && circumstances.size % 2 == 1
                    && circumstances.rank + 1 == circumstances.size
            }
            Self::NotFirst => circumstances.rank > 0,
            Self::OtherNodes => {
                let node = node_of(circumstances.rank, circumstances.size, circumstances.nodes);
                circumstances.group == 0 && node.is_some_and(|node| node > 0)
            }
            Self::Refused => circumstances.refused,
            Self::Waiting => circumstances.waiting > 0,
            Self::OthersWait => circumstances.size > 1 && circumstances.waiting + 1 == circumstances.size,
            Self::Round(n) => circumstances.round == n,
            Self::SpawnedRound(n) => circumstances.group > 0 && circumstances.round == n,
            Self::Burst => circumstances.in_burst,
            Self::Together => circumstances.is_together,
            Self::Late => circumstances.late,
            Self::WithinJob => circumstances.within_job,
        }
    }
}
