//! What the monitor knows of barriers of parts of a process group.

use std::collections::BTreeMap;

use crate::kvs::KnownPuts;

/// What tells barriers apart: who has to enter, and the tag. A group that is written in another way is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupBarrierName {
    pub(super) kind: GroupBarrierKind,
    /// In ascending order.
    pub(super) members: Vec<u32>,
    pub(super) tag: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupBarrierKind {
    World,
    Node,
    Ranks,
}

/// A barrier, each time that it was entered and left.
#[derive(Debug, Default)]
pub(super) struct GroupBarrierLog {
    /// How often each rank has entered it.
    pub(super) entered: BTreeMap<u32, u64>,
    /// How often each rank has left it.
    pub(super) left: BTreeMap<u32, u64>,
    /// What those who have entered it knew then.
    pub(super) known: KnownPuts,
}

impl GroupBarrierLog {
    pub(super) fn times(of: &BTreeMap<u32, u64>, rank: u32) -> u64 {
        of.get(&rank).copied().unwrap_or(0)
    }
}
