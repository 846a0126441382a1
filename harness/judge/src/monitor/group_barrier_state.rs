//! The monitor's state for barriers over part of a process group.

use std::collections::BTreeMap;

use crate::kvs::KnownPuts;

/// The identity of a barrier: the notation in which a request names its members, the members themselves, and the tag. Barriers whose
/// members are the same but are named in different notations are distinct.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupBarrierName {
    pub(super) kind: GroupBarrierKind,
    /// The ranks of the members, in ascending order.
    pub(super) members: Vec<u32>,
    pub(super) tag: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupBarrierKind {
    World,
    Node,
    Ranks,
}

/// The history of a barrier, which may be entered and left many times.
#[derive(Debug, Default)]
pub(super) struct GroupBarrierLog {
    /// For each rank, the number of times that the rank has entered the barrier.
    pub(super) entered: BTreeMap<u32, u64>,
    /// For each rank, the number of times that the rank has left the barrier.
    pub(super) left: BTreeMap<u32, u64>,
    /// The puts that were known to the processes when they entered the barrier. Each process that leaves the barrier must see these puts.
    pub(super) known: KnownPuts,
}

impl GroupBarrierLog {
    pub(super) fn times(of: &BTreeMap<u32, u64>, rank: u32) -> u64 {
        of.get(&rank).copied().unwrap_or(0)
    }
}
