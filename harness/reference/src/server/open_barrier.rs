//! Barriers of parts of a process group that are open, and what tells them apart.

/// What tells barriers apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) kind: Kind,
    /// In ascending order.
    pub(super) members: Vec<u32>,
    pub(super) tag: u64,
}

/// A group that is written in another way is another one, even where its members are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    World,
    Node,
    Ranks,
}

/// A barrier that somebody has entered and nobody has left.
#[derive(Debug)]
pub(super) struct OpenBarrier {
    pub(super) name: Name,
    /// The ranks that have entered it, in that order, with the tag that each is answered with.
    pub(super) entered: Vec<(u32, u64)>,
}
