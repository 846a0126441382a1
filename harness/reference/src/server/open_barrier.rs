//! Open barriers over part of a process group (PMI-1.2), and their identity.

/// The identity of a group barrier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BarrierIdentity {
    /// The notation of the group.
    pub kind: GroupNotation,
    /// The members, in ascending order.
    pub members: Vec<u32>,
    /// The tag of the barrier.
    pub tag: u64,
}

/// The notation of a group. The same members in a different notation form a different group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupNotation {
    /// The whole process group.
    World,
    /// The processes of a node.
    Node,
    /// A list of ranks.
    Ranks,
}

/// A barrier that some processes have entered and that is still waiting for others.
#[derive(Debug)]
pub struct OpenBarrier {
    /// The identity of the barrier.
    pub name: BarrierIdentity,
    /// The ranks that have entered the barrier, in order of entry, each with the tag for its response.
    pub entered: Vec<(u32, u64)>,
}
