//! Barriers of parts of a process group that are open, and their identity.

/// The identity of a barrier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// How the group is written.
    pub kind: Kind,
    /// In ascending order.
    pub members: Vec<u32>,
    /// Its tag.
    pub tag: u64,
}

/// How a group is written. One that is written in another way is another group, even where its members are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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
    pub name: Name,
    /// The ranks that have entered it, in that order, with the tag that each is answered with.
    pub entered: Vec<(u32, u64)>,
}
