//! Open barriers over part of a process group (PMI-1.2), and their identity.

/// The identity of a barrier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BarrierIdentity {
    /// The notation of the group.
    pub kind: GroupNotation,
    /// The members, in ascending order.
    pub members: Vec<u32>,
    /// Its tag.
    pub tag: u64,
}

/// The notation of a group. The same members in another notation are a different group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupNotation {
    /// The whole process group.
    World,
    /// The processes of a node.
    Node,
    /// A list of ranks.
    Ranks,
}

/// A barrier that at least one process has entered and none has left.
#[derive(Debug)]
pub struct OpenBarrier {
    /// Its identity.
    pub name: BarrierIdentity,
    /// The ranks that have entered it, in that order, with the tag for the response to each.
    pub entered: Vec<(u32, u64)>,
}
