//! What a process that speaks PMI-2 waits for, beside what is known of every process.

use super::config::GroupId;

/// A request that is not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) thrid: Option<Vec<u8>>,
    pub(super) what: Awaits,
}

/// What it is held back for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The fence.
    Fence,
    /// An attribute of the process's node.
    NodeAttribute(Vec<u8>),
    /// A key, until all are in the fence that the process has left.
    Key(Vec<u8>),
    /// The start of a group.
    Spawn(GroupId),
}

/// What a process has beyond PMI-1.
#[derive(Debug, Default)]
pub(super) struct Pmi2Process {
    /// Its fullinit has been answered.
    pub(super) joined: bool,
    pub(super) held: Vec<Held>,
    /// Fences that it has entered.
    pub(super) fences: u64,
}

impl Pmi2Process {
    pub(super) fn is_in_fence(&self) -> bool {
        self.held.iter().any(|held| held.what == Awaits::Fence)
    }
}
