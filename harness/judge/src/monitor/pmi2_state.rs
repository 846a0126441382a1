//! What the monitor knows of processes that speak PMI-2.

use std::collections::{HashMap, HashSet};

use pmi_wire::pmi2::Command;

use super::names::NameRequest;

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
