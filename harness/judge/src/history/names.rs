//! Published names. Each name is a register: a publish sets its port, an unpublish clears it, and a lookup reads it. The standards do not
//! specify the effect of a second publish of a name. This check accepts both outcomes: the name keeps its port, or the port is replaced. A
//! refused request may have taken effect.

use std::collections::{BTreeMap, BTreeSet};

use pmi_scenario::ids::rules;

use super::operation::{Contradiction, HistoryRequest, HistoryResponse, TimedOperation, UNANSWERED};
use crate::observation::quote_bytes;

/// Maximum number of states to consider for a name. A name whose operations can lead to more states is not judged.
const MAX_STATES: usize = 4096;

/// The state after a sequence of operations: the port of the name, and the indices of the open operations that have taken effect.
type State<'h> = (Option<&'h [u8]>, BTreeSet<usize>);

pub(super) fn check(all: &[TimedOperation]) -> Vec<Contradiction> {
    let mut by_name: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (index, operation) in all.iter().enumerate() {
        if let HistoryRequest::Publish(name, _)
        | HistoryRequest::Lookup(name)
        | HistoryRequest::Unpublish(name) = &operation.request
        {
            by_name.entry(name).or_default().push(index);
        }
    }
    by_name.values().filter_map(|operations| contradiction(all, operations)).collect()
}

fn contradiction(all: &[TimedOperation], operations: &[usize]) -> Option<Contradiction> {
    let at = first_unexplained(all, operations)?;
    let HistoryRequest::Lookup(name) = &all[at].request else { return None };
    let is_publish = |index: &usize| matches!(all[*index].request, HistoryRequest::Publish(..));
    let before: Vec<usize> =
        operations.iter().copied().filter(|index| all[*index].start < all[at].end).collect();
    let published = before.iter().copied().rfind(is_publish);
    let mut smallest = smallest(all, at, before);
    let withdrawn = smallest.iter().any(|index| matches!(all[*index].request, HistoryRequest::Unpublish(_)));
    if !smallest.iter().any(is_publish) && all[at].succeeded() {
        // No process has published the returned port. The last publish is added, because it shows which port was expected.
        smallest.extend(published);
        smallest.sort_unstable();
    }
    let name = quote_bytes(name);
    let (rule, reason) = match &all[at].response {
        Some(HistoryResponse::Refused) => (
            rules::NAMES_LOOKUP,
            format!("the port of {name}, which is published in every possible order of the operations"),
        ),
        _ if withdrawn => (
            rules::NAMES_WITHDRAWN,
            format!(
                "a response without this port, since {name} is unpublished in every possible order of the operations"
            ),
        ),
        _ if published.is_some() => (
            rules::NAMES_PORT,
            format!("a port that is published for {name} in some order of the operations"),
        ),
        _ => (rules::NAMES_MISS, format!("an error, since {name} is not published with this port")),
    };
    Some(Contradiction { rule, at, operations: smallest, reason })
}

/// Returns the first lookup, in the order of the responses, whose response no order of the operations explains.
fn first_unexplained(all: &[TimedOperation], operations: &[usize]) -> Option<usize> {
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * operations.len());
    let is_known = |index: &&usize| {
        !matches!(all[**index], TimedOperation { request: HistoryRequest::Lookup(_), response: None, .. })
    };
    for index in operations.iter().filter(is_known) {
        moments.push((all[*index].start, false, *index));
        if all[*index].end != UNANSWERED {
            moments.push((all[*index].end, true, *index));
        }
    }
    moments.sort_unstable();
    let mut states: BTreeSet<State<'_>> = BTreeSet::from([(None, BTreeSet::new())]);
    let mut open: BTreeSet<usize> = BTreeSet::new();
    for (_, is_end, index) in moments {
        if !is_end {
            open.insert(index);
            states = states.into_iter().map(|state| with_lookups(all, &open, state)).collect();
            continue;
        }
        let must = match all[index].request {
            HistoryRequest::Lookup(_) => true,
            _ => all[index].succeeded(),
        };
        let reached = reach(all, &open, states, must.then_some(index))?;
        if reached.is_empty() {
            return Some(index);
        }
        open.remove(&index);
        states = reached
            .into_iter()
            .map(|(port, mut done)| {
                done.remove(&index);
                (port, done)
            })
            .collect();
    }
    None
}

/// Returns all states that can be reached from `states` through the open operations. If `must` is an operation, returns only the states in
/// which that operation has taken effect. Returns `None` if there are too many states.
fn reach<'h>(
    all: &'h [TimedOperation],
    open: &BTreeSet<usize>,
    states: BTreeSet<State<'h>>,
    must: Option<usize>,
) -> Option<BTreeSet<State<'h>>> {
    let mut reached = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut queue: Vec<State<'_>> = states.into_iter().collect();
    while let Some(state) = queue.pop() {
        if seen.len() + reached.len() > MAX_STATES {
            return None;
        }
        if must.is_none_or(|must| state.1.contains(&must)) {
            reached.insert(state.clone());
            if must.is_some() {
                continue;
            }
        }
        if !seen.insert(state.clone()) {
            continue;
        }
        for index in open.iter().filter(|index| !state.1.contains(index)) {
            for port in after(&all[*index].request, state.0) {
                let done = state.1.iter().copied().chain([*index]).collect();
                queue.push(with_lookups(all, open, (port, done)));
            }
        }
    }
    Some(reached)
}

/// Returns the possible ports of the name after a publish or an unpublish. For a lookup, returns an empty list.
fn after<'h>(request: &'h HistoryRequest, before: Option<&'h [u8]>) -> Vec<Option<&'h [u8]>> {
    match request {
        HistoryRequest::Publish(_, port) if before.is_some_and(|before| before != port) => {
            vec![Some(&port[..]), before]
        }
        HistoryRequest::Publish(_, port) => vec![Some(&port[..])],
        HistoryRequest::Unpublish(_) => vec![None],
        _ => Vec::new(),
    }
}

/// Marks the open lookups as having taken effect if the port of this state explains them. A lookup does not change the
/// port, so it may take effect as early as possible.
fn with_lookups<'h>(
    all: &'h [TimedOperation],
    open: &BTreeSet<usize>,
    (port, mut done): State<'h>,
) -> State<'h> {
    let explained = |index: &&usize| match (&all[**index].request, &all[**index].response) {
        (HistoryRequest::Lookup(_), Some(HistoryResponse::Found(found))) => port == Some(&found[..]),
        (HistoryRequest::Lookup(_), Some(HistoryResponse::Refused)) => port.is_none(),
        _ => false,
    };
    done.extend(open.iter().filter(explained));
    (port, done)
}

/// Removes operations as long as the response to operation `at` remains unexplained, and returns the remaining operations. An operation
/// that could explain the response is removed only if a later operation undoes it.
fn smallest(all: &[TimedOperation], at: usize, mut operations: Vec<usize>) -> Vec<usize> {
    let helps = |index: usize| match (&all[index].request, &all[at].response) {
        (HistoryRequest::Publish(_, port), Some(HistoryResponse::Found(found))) => port == found,
        (HistoryRequest::Unpublish(_), Some(HistoryResponse::Refused)) => true,
        _ => false,
    };
    let undoes = |index: usize| match all[at].response {
        Some(HistoryResponse::Found(_)) => matches!(all[index].request, HistoryRequest::Unpublish(_)),
        _ => matches!(all[index].request, HistoryRequest::Publish(..)),
    };
    let mut size = operations.len();
    while size > 0 {
        let mut from = 0;
        while from < operations.len() {
            let until = (from + size).min(operations.len());
            let part = &operations[from..until];
            let rest: Vec<usize> = [&operations[..from], &operations[until..]].concat();
            let is_undone = |index: usize| {
                rest.iter().map(|other| (*other, &all[*other])).any(|(number, other)| {
                    let is_between = other.start > all[index].end && other.end < all[at].start;
                    is_between && undoes(number) && other.succeeded()
                })
            };
            // The last publish of the found port is kept, because it shows where the port came from.
            let is_needed = all[at].succeeded() && !rest.iter().any(|index| helps(*index));
            let may_go =
                part.iter().all(|index| *index != at && (!helps(*index) || is_undone(*index) && !is_needed));
            if may_go && first_unexplained(all, &rest) == Some(at) {
                operations = rest;
            } else {
                from = until;
            }
        }
        size /= 2;
    }
    operations
}
