//! Keyval spaces and the barriers of whole groups.
//!
//! When a rank puts a value and then enters a barrier, the value becomes visible to each process that leaves this barrier. Until then, a
//! get returns the value or nothing. If a key has several values, a get may return any of them. No process leaves a barrier before all
//! processes have entered it.

use std::collections::{BTreeMap, HashMap};

use pmi_scenario::ids::rules;
use pmi_wire::Proc;

use super::operation::{Contradiction, History, HistoryRequest, HistoryResponse, TimedOperation, UNANSWERED};
use crate::kvs::is_ambiguous;
use crate::observation::quote_bytes;

/// Prefix of keys that belong to the server.
const RESERVED_PREFIX: &[u8] = b"PMI_";

/// The indices of each process's barrier operations, in order.
type Barriers = BTreeMap<Proc, Vec<usize>>;

pub(super) fn check(history: &History) -> Vec<Contradiction> {
    let all = &history.operations;
    let mut barriers = Barriers::new();
    let mut puts: HashMap<(u32, &[u8]), Vec<usize>> = HashMap::new();
    for (index, operation) in all.iter().enumerate() {
        match &operation.request {
            HistoryRequest::Barrier => barriers.entry(operation.proc).or_default().push(index),
            HistoryRequest::Put(key, _) => puts.entry((operation.proc.group, key)).or_default().push(index),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (group, members) in &history.members {
        if !history.partial_barriers.contains(group) {
            found.extend(early_releases(all, &barriers, members));
        }
    }
    let mut gets = HashMap::new();
    for (index, get) in all.iter().enumerate() {
        let HistoryRequest::Get(key) = &get.request else { continue };
        let group = get.proc.group;
        let puts = puts.get(&(group, &key[..])).map(Vec::as_slice).unwrap_or_default();
        // The key may have been put by a spawn request or by the server itself, so the response cannot be judged.
        if key.starts_with(RESERVED_PREFIX) || puts.is_empty() && group != 0 {
            continue;
        }
        found.extend(match &get.response {
            Some(HistoryResponse::Found(value)) => unknown_value(all, index, key, value, puts, &mut gets),
            Some(HistoryResponse::Refused) if !history.partial_barriers.contains(&group) => {
                lost_put(all, index, puts, &barriers)
            }
            _ => None,
        });
    }
    found
}

/// Returns a contradiction for each barrier that a process left before another process entered it.
fn early_releases(
    all: &[TimedOperation],
    barriers: &Barriers,
    members: &BTreeMap<Proc, u64>,
) -> Vec<Contradiction> {
    let rounds = members.keys().filter_map(|member| barriers.get(member)).map(Vec::len).max().unwrap_or(0);
    let of = |member: &Proc, round: usize| barriers.get(member)?.get(round).copied();
    let mut found = Vec::new();
    for round in 0..rounds {
        let released = members.keys().filter_map(|member| of(member, round));
        let Some(first) = released.filter(|at| all[*at].succeeded()).min_by_key(|at| all[*at].end) else {
            continue;
        };
        let end = all[first].end;
        let entered = |member: &Proc| of(member, round).map_or(UNANSWERED, |at| all[at].start);
        // A process that has already left the job will not enter the barrier.
        let late = members.iter().filter(|(member, left)| **left > end && entered(member) > end);
        let Some((member, _)) = late.max_by_key(|(member, _)| entered(member)) else { continue };
        let operations = of(member, round).into_iter().chain([first]).collect::<Vec<_>>();
        let reason = format!("no process leaves barrier {} before rank {member} has entered it", round + 1);
        found.push(Contradiction {
            rule: rules::BARRIER_HOLDS,
            at: first,
            operations: sorted(operations),
            reason,
        });
    }
    found
}

/// Returns a contradiction if the value that a get returned was not put before the response to the get.
fn unknown_value<'h>(
    all: &'h [TimedOperation],
    at: usize,
    key: &[u8],
    value: &[u8],
    puts: &[usize],
    writers: &mut HashMap<&'h [u8], usize>,
) -> Option<Contradiction> {
    let value_of = |index: &usize| match &all[*index].request {
        HistoryRequest::Put(_, value) => &value[..],
        _ => &[],
    };
    let before: Vec<usize> = puts.iter().copied().filter(|put| all[*put].start < all[at].end).collect();
    if before.iter().any(|put| value_of(put) == value || is_ambiguous(value_of(put))) {
        return None;
    }
    if writers.is_empty() {
        let values = all.iter().enumerate().filter_map(|(index, operation)| match &operation.request {
            HistoryRequest::Put(_, value) => Some((&value[..], index)),
            _ => None,
        });
        writers.extend(values);
    }
    let other = writers.get(value).copied().filter(|other| !puts.contains(other));
    let from = other.map(|other| format!(", and not the value of {}", all[other].request));
    let reason = match &before[..] {
        [] => format!("nothing, since no process has put {}", quote_bytes(key)),
        _ => format!("the value that was put for {}, or nothing", quote_bytes(key)),
    };
    let operations = sorted(before.into_iter().chain(other).chain([at]).collect());
    let reason = reason + &from.unwrap_or_default();
    Some(Contradiction { rule: rules::GET_VALUE, at, operations, reason })
}

/// Returns a contradiction if a get found nothing although an acknowledged put was visible to the process that sent the get.
fn lost_put(all: &[TimedOperation], at: usize, puts: &[usize], barriers: &Barriers) -> Option<Contradiction> {
    let get = &all[at];
    let visible = |put: &usize| {
        let acknowledged = all[*put].end;
        let entered = barriers.get(&all[*put].proc)?;
        let round = entered.partition_point(|barrier| all[*barrier].start < acknowledged);
        let (entry, exit) = (*entered.get(round)?, *barriers.get(&get.proc)?.get(round)?);
        let succeeded = all[*put].succeeded() && all[exit].succeeded();
        // A process that left the barrier early is reported separately.
        let is_due = succeeded && all[entry].start < all[exit].end && all[exit].end < get.start;
        is_due.then_some([*put, entry, exit])
    };
    let [put, entry, exit] = puts.iter().find_map(visible)?;
    let reason = format!("the value of {}, which is visible after the barrier", all[put].request);
    let operations = sorted(vec![put, entry, exit, at]);
    Some(Contradiction { rule: rules::PUT_VISIBLE, at, operations, reason })
}

fn sorted(mut operations: Vec<usize>) -> Vec<usize> {
    operations.sort_unstable();
    operations.dedup();
    operations
}
