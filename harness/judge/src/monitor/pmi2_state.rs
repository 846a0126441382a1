//! What the monitor knows of processes that speak PMI-2.

use std::collections::{HashMap, HashSet};

use pmi_wire::pmi2::{Command, Concat, Series};

/// In the place of a rank: whoever spawned the group.
pub(super) const PREPUT: u32 = u32::MAX;

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Command,
    pub(super) thrid: Option<Vec<u8>>,
    /// What of the draft a value of it needs that not all known servers keep: semicolons, or bytes of any kind.
    pub(super) needs: Option<&'static str>,
    /// It has no such value, and no empty one, which many a server takes for the end.
    pub(super) ordinary: bool,
    pub(super) what: Detail,
}

/// What every request has.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) thrid: Option<Vec<u8>>,
    /// See [`Pending::needs`].
    pub(super) needs: Option<&'static str>,
    /// See [`Pending::ordinary`].
    pub(super) ordinary: bool,
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
    /// A get from another job.
    GetOther {
        jobid: Vec<u8>,
        key: Vec<u8>,
    },
    Connect {
        jobid: Vec<u8>,
    },
    Disconnect {
        jobid: Vec<u8>,
    },
    /// With the number of pairs and the pairs that it was told so far.
    Getall {
        jobid: Vec<u8>,
        count: Option<u64>,
        told: HashMap<Vec<u8>, Vec<u8>>,
    },
    /// `known` if another job of this id is known.
    Putall {
        jobid: Vec<u8>,
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        known: bool,
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
    Publish {
        name: Vec<u8>,
        port: Vec<u8>,
    },
    Lookup {
        name: Vec<u8>,
    },
    Unpublish {
        name: Vec<u8>,
    },
    Fence(u64),
    /// `bare` if one of the keys is not there that some servers want.
    ///
    /// `misled` if it tells of another rank. `proof` is whether what proves who it is is right, as far as we know.
    Fullinit {
        bare: bool,
        misled: bool,
        proof: Option<bool>,
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
    /// Fences that it has entered, and that it has left.
    pub(super) entered: u64,
    pub(super) left: u64,
    /// Commands and series of messages that are not complete.
    pub(super) concat: Concat,
    pub(super) series: Vec<(Option<Vec<u8>>, Series)>,
    /// Its fullinit asks to be authenticated.
    pub(super) authtype: bool,
    /// What it was asked to prove who it is, and has not answered.
    pub(super) challenge: Option<Vec<u8>>,
    /// Jobs that it has connected with, and whether the server needs help with their values.
    pub(super) connected: HashMap<Vec<u8>, bool>,
    /// Jobs that it was connected with.
    pub(super) disconnected: HashSet<Vec<u8>>,
}

impl Rank {
    /// Whether a command in several messages has begun and has no end yet.
    pub(super) fn is_mid_request(&self) -> bool {
        !self.concat.is_empty() || !self.series.is_empty()
    }

    /// Nothing will be answered any more.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }
}

/// A value that was put.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) value: Vec<u8>,
    pub(super) by: u32,
    /// Fences that the process had entered before.
    pub(super) fences: u64,
    /// The server has said that it has it.
    pub(super) acknowledged: bool,
}

/// What a process group has told.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) jobid: Option<Vec<u8>>,
    /// A fence that all have entered, as far as anybody has asked.
    pub(super) entered_by_all: u64,
    /// Pairs of other jobs that were brought here, by jobid.
    pub(super) brought: HashMap<Vec<u8>, HashMap<Vec<u8>, Vec<u8>>>,
    pub(super) puts: HashMap<Vec<u8>, Vec<Put>>,
    /// Ranks that were told that there is no such key, with the number of fences that they had left.
    pub(super) misses: HashMap<Vec<u8>, HashMap<u32, u64>>,
    /// By node and key.
    pub(super) node: HashMap<(u32, Vec<u8>), HashSet<Vec<u8>>>,
    /// Keys of nodes that a process has put and the server has acknowledged.
    pub(super) node_there: HashSet<(u32, Vec<u8>)>,
}
