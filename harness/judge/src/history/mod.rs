//! The history of a session: the operations of all processes, each with its start and end. This module determines whether some order of the
//! operations explains all responses.
//!
//! The monitors judge requests in the order of the events. They skip operations that overlap, because a server may handle these in any
//! order. This module covers overlapping operations. An operation takes effect at a moment between its request and its response. A response
//! is explained if these moments can be chosen such that the operations lead to the response. The check has no false positives: behaviour
//! that a standard leaves open counts as explained, and so does a history that is too large to decide. The check is split into two
//! independent modules: `keys` checks the operations on each key and the barriers of each group, and `names` checks the operations on each
//! published name. The number of an event serves as its time, because a single process records all events in order.

mod keys;
mod names;
mod operation;
mod reading;
#[cfg(test)]
mod tests;

use crate::event::Event;
use crate::validity::is_reached_by_valid_input;
use crate::{Finding, PartyKind};
use operation::{Contradiction, History, UNANSWERED};
pub(crate) use reading::HistoryReader;

/// Returns the responses that no order of the operations explains. Each contradiction contains a small set of operations that proves it.
fn check(history: &History) -> Vec<Contradiction> {
    let mut found = keys::check(history);
    found.extend(names::check(&history.operations));
    found.sort_by_key(|contradiction| history.operations[contradiction.at].end);
    found
}

/// Maximum number of contradictions to report. The number is limited because looking for invalid input before each contradiction takes
/// time.
const MAX_CONTRADICTIONS: usize = 20;

/// Checks the history of these events, and adds its contradictions to the findings of the monitors. Ignores contradictions that invalid
/// input may have caused.
pub(crate) fn extend(findings: &mut Vec<Finding>, reader: HistoryReader, events: &[Event]) {
    let Some(history) = reader.finish().filter(History::has_overlap) else { return };
    for contradiction in check(&history).into_iter().take(MAX_CONTRADICTIONS) {
        let all = &history.operations;
        let at = &all[contradiction.at];
        let related = contradiction.operations.iter().flat_map(|index| [all[*index].start, all[*index].end]);
        let related: Vec<u64> = related.filter(|time| *time != UNANSWERED).collect();
        let requirement = contradiction.rule[usize::from(history.has_frames)];
        let same = |f: &&mut Finding| f.seq == at.end && f.proc == Some(at.proc);
        if let Some(known) = findings.iter_mut().find(same) {
            known.related = related;
        } else if is_reached_by_valid_input(events, PartyKind::Server, Some(at.end)) {
            let seen = format!("{} of rank {} {}", at.request, at.proc, at.described_response());
            let finding = Finding::new(requirement, PartyKind::Server, contradiction.reason, seen);
            findings.push(Finding { proc: Some(at.proc), seq: at.end, related, ..finding });
        }
    }
}
