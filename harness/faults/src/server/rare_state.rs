//! The state that rare faults need.

use std::collections::{HashMap, HashSet};

use pmi_reference::{GroupId, OperationResult};
use pmi_wire::Proc;
use serde::{Deserialize, Serialize};

/// Pairs of a key and its value, or of a name and its port.
pub(super) type StoredPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The state that a job passes to the next job, for rare faults that depend on an earlier job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EarlierJob {
    pub(super) pairs: StoredPairs,
    pub(super) names: StoredPairs,
    pub(super) withdrawn: StoredPairs,
    pub(super) aborted: bool,
    /// The number of processes in the barrier when the job ended.
    pub(super) waiting: u32,
}

#[derive(Debug, Default)]
pub(super) struct RareState {
    /// For each process, the number of requests for each operation.
    pub(super) counts: HashMap<Proc, Vec<(&'static str, u64)>>,
    /// The number of puts of each process since the last barrier.
    pub(super) puts_in_round: HashMap<Proc, u64>,
    pub(super) last_gets: HashMap<Proc, OperationResult>,
    /// The rank that made the group's last get, if the key was missing.
    pub(super) missed: HashMap<GroupId, u32>,
    /// The keys of each group, in the order of their puts.
    pub(super) keys: HashMap<GroupId, Vec<Vec<u8>>>,
    pub(super) last_values: HashMap<GroupId, Vec<u8>>,
    /// The ranks in the barrier, in the order of entry.
    pub(super) entered: HashMap<GroupId, Vec<u32>>,
    /// For each earlier barrier of a group, the rank that entered it last.
    pub(super) latest: HashMap<GroupId, Vec<u32>>,
    /// Groups in which a request arrived in several reads while another process was in the barrier.
    pub(super) stuck: HashSet<GroupId>,
    /// The published names, in the order of publication.
    pub(super) names: Vec<Vec<u8>>,
    /// The ports of names that were published again.
    pub(super) second_ports: HashMap<Vec<u8>, Vec<u8>>,
    /// The port that each process published last.
    pub(super) own_ports: HashMap<Proc, Vec<u8>>,
    /// The unpublished names, with their ports.
    pub(super) withdrawn: StoredPairs,
    /// True if a process requested the end of the job.
    pub(super) aborted: bool,
    /// The state that the previous job passed on.
    pub(super) before: EarlierJob,
}

pub(super) fn value_of(pairs: &StoredPairs, key: &[u8]) -> Option<Vec<u8>> {
    pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
}

impl RareState {
    /// Resets the state that belongs to the barrier that has ended.
    pub(super) fn end_round(&mut self, group: GroupId) {
        self.puts_in_round.retain(|process, _| process.group != group);
        if let Some(last) = self.entered.remove(&group).and_then(|entered| entered.last().copied()) {
            self.latest.entry(group).or_default().push(last);
        }
    }
}
