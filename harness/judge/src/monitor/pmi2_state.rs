//! Monitor state of PMI-2 connections, and the requests about names of both dialects.

use std::collections::{HashMap, HashSet};

use pmi_wire::pmi2::Command;
use pmi_wire::{Decoded, Operation};

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Command,
    pub(super) thrid: Option<Vec<u8>>,
    /// What of the draft a value of it needs that not all known servers keep: semicolons, bytes of any kind, or an empty value.
    pub(super) needs: Option<&'static str>,
    pub(super) what: Detail,
}

/// What of a request matters for its answer.
#[derive(Debug)]
pub(super) enum Detail {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lawful: bool,
    },
    /// `fences` is the number of fences that the process has left.
    Get {
        key: Vec<u8>,
        fences: u64,
        /// By which a get with a jobid is answered.
        rule: Option<&'static str>,
        srcid: Option<i64>,
    },
    PutNode {
        key: Vec<u8>,
        lawful: bool,
    },
    /// `wait` is what is broken if it is told before it is there; `there` if it was there already when it was asked for.
    GetNode {
        key: Vec<u8>,
        wait: Option<&'static str>,
        there: bool,
    },
    Name(NameRequest),
    Fence(u64),
    /// `bare` if one of the keys is not there that some servers want.
    ///
    /// `misled` if it tells of another rank.
    Fullinit {
        bare: bool,
        misled: bool,
    },
    Plain,
    /// It may have been answered already: an answer came that fits several.
    Unclear,
}

/// One process that speaks PMI-2.
#[derive(Debug, Default)]
pub(super) struct Rank {
    pub(super) pending: Vec<Pending>,
    /// Its fullinit has been sent.
    pub(super) asked_in: bool,
    /// The last answer to it was a refusal.
    pub(super) refused: bool,
    /// Its fullinit has been answered with success.
    pub(super) joined: bool,
}

impl Rank {
    /// Nothing will be answered any more.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }
}

/// What a process group has told.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) jobid: Option<Vec<u8>>,
    /// Ranks that were told that there is no such key, with the number of fences that they had left.
    pub(super) misses: HashMap<Vec<u8>, HashMap<u32, u64>>,
    /// By node and key.
    pub(super) node: HashMap<(u32, Vec<u8>), HashSet<Vec<u8>>>,
    /// Keys of nodes that a process has put and the server has acknowledged.
    pub(super) node_there: HashSet<(u32, Vec<u8>)>,
}

/// A request about a name.
#[derive(Debug)]
pub(super) enum NameRequest {
    Publish { name: Vec<u8>, port: Vec<u8> },
    Unpublish { name: Vec<u8> },
    Lookup { name: Vec<u8> },
}

impl NameRequest {
    /// Reads a well-formed request, if it is about a name.
    pub(super) fn new(message: &Decoded<'_>) -> Option<Self> {
        let name = || message.field("service").unwrap_or_default().into_owned();
        Some(match message.operation()? {
            Operation::Publish => {
                Self::Publish { name: name(), port: message.field("port").unwrap_or_default().into_owned() }
            }
            Operation::Unpublish => Self::Unpublish { name: name() },
            Operation::Lookup => Self::Lookup { name: name() },
            _ => return None,
        })
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Publish { .. } => Operation::Publish,
            Self::Unpublish { .. } => Operation::Unpublish,
            Self::Lookup { .. } => Operation::Lookup,
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        let (Self::Publish { name, .. } | Self::Unpublish { name } | Self::Lookup { name }) = self;
        name
    }

    /// Returns true if two requests concern the same name and one of them changes it.
    pub(super) fn contends(&self, other: &Self) -> bool {
        let only_look = matches!((self, other), (Self::Lookup { .. }, Self::Lookup { .. }));
        !only_look && self.name() == other.name()
    }
}
