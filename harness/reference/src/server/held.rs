//! What a process that speaks PMI-2 waits for, beside what is known of every process.

use pmi_wire::pmi2::{Concat, Series};

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

/// What a process was asked before its fullinit is answered.
#[derive(Debug)]
pub(super) struct Challenge {
    /// The `thrid` of its fullinit.
    pub(super) thrid: Option<Vec<u8>>,
    /// What it is to answer.
    pub(super) number: String,
}

/// What a process has beyond PMI-1.
#[derive(Debug, Default)]
pub(super) struct Pmi2Process {
    /// Its fullinit has been answered.
    pub(super) joined: bool,
    pub(super) held: Vec<Held>,
    /// Fences that it has entered.
    pub(super) fences: u64,
    /// Jobs that it has connected with.
    pub(super) connected: Vec<Vec<u8>>,
    /// Commands that are not complete.
    pub(super) concat: Concat,
    /// Requests of several messages that are not complete, each with its `thrid`.
    pub(super) series: Vec<(Option<Vec<u8>>, Series)>,
    pub(super) challenge: Option<Challenge>,
}

impl Pmi2Process {
    pub(super) fn is_in_fence(&self) -> bool {
        self.held.iter().any(|held| held.what == Awaits::Fence)
    }
}
