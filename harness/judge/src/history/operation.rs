//! The operations of a session's processes, and the history that contains them.

use std::collections::{BTreeMap, BTreeSet};

use pmi_wire::Proc;

use crate::observation::quote_bytes;

/// The value of `end` for an operation without a response.
pub(crate) const UNANSWERED: u64 = u64::MAX;

/// An operation of a process, with the times of its request and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimedOperation {
    pub(crate) proc: Proc,
    /// The time of the request.
    pub(crate) start: u64,
    /// The time of the response, or [`UNANSWERED`].
    pub(crate) end: u64,
    pub(crate) request: HistoryRequest,
    /// The response. Without a response, the operation may or may not have taken effect.
    pub(crate) response: Option<HistoryResponse>,
}

/// The request of an operation, in any dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryRequest {
    /// Puts a value into the keyval space of the group.
    Put(Vec<u8>, Vec<u8>),
    /// Gets the value of a key.
    Get(Vec<u8>),
    /// Enters the barrier of the whole group.
    Barrier,
    /// Publishes a port (the second field) under a name.
    Publish(Vec<u8>, Vec<u8>),
    Lookup(Vec<u8>),
    Unpublish(Vec<u8>),
}

/// The response to an operation, in any dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryResponse {
    /// The operation succeeded.
    Done,
    /// The value of a key, or the port of a name.
    Found(Vec<u8>),
    /// The operation failed, or nothing was found.
    Refused,
}

/// The history of a session. The operations are in the order of their requests.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<TimedOperation>,
    /// The members of each group, with the time at which each member left or was terminated, or [`UNANSWERED`] for a member that did not
    /// end.
    pub(crate) members: BTreeMap<u32, BTreeMap<Proc, u64>>,
    /// Groups in which subsets of the processes use separate barriers (PMI-1.2).
    pub(crate) partial_barriers: BTreeSet<u32>,
    /// True if the processes speak PMI-2.
    pub(crate) has_frames: bool,
}

impl History {
    /// Returns whether operations of different processes overlap. Barriers always overlap, so they do not count.
    pub(crate) fn has_overlap(&self) -> bool {
        let mut last_end = 0;
        self.operations
            .iter()
            .filter(|one| one.request != HistoryRequest::Barrier && one.end != UNANSWERED)
            .any(|one| {
                let overlaps = one.start < last_end;
                last_end = last_end.max(one.end);
                overlaps
            })
    }
}

/// A response that no order of the operations explains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    /// The requirements that the response breaks: the first in PMI-1, the second in PMI-2.
    pub(crate) rule: [&'static str; 2],
    /// The index of the operation whose response is unexplained.
    pub(crate) at: usize,
    /// The indices of the operation `at` and of the operations that contradict its response, in order.
    pub(crate) operations: Vec<usize>,
    /// A description of the correct behaviour.
    pub(crate) reason: String,
}

impl std::fmt::Display for HistoryRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put(key, value) => write!(f, "the put of {} as {}", quote_bytes(key), quote_bytes(value)),
            Self::Get(key) => write!(f, "the get of {}", quote_bytes(key)),
            Self::Barrier => f.write_str("the barrier"),
            Self::Publish(name, port) => {
                write!(f, "the publish of {} as {}", quote_bytes(name), quote_bytes(port))
            }
            Self::Lookup(name) => write!(f, "the lookup of {}", quote_bytes(name)),
            Self::Unpublish(name) => write!(f, "the unpublish of {}", quote_bytes(name)),
        }
    }
}

impl TimedOperation {
    pub(super) fn described_response(&self) -> String {
        match &self.response {
            Some(HistoryResponse::Found(value)) => format!("returned {}", quote_bytes(value)),
            Some(HistoryResponse::Refused) => "returned nothing".to_owned(),
            Some(HistoryResponse::Done) => "returned".to_owned(),
            None => "did not return".to_owned(),
        }
    }

    pub(super) fn succeeded(&self) -> bool {
        matches!(self.response, Some(HistoryResponse::Done | HistoryResponse::Found(_)))
    }
}
