//! The failures that a campaign has encountered, and the order of their examination.

use std::collections::VecDeque;
use std::time::Duration;

use crate::observe::failure::Failure;
use crate::session::case::Case;
use crate::triage::confirm::ConfirmedFailure;

/// A failure that a worker encountered, with its case.
pub(super) struct FailureOccurrence {
    pub(super) failure: Failure,
    pub(super) case: Case,
    /// The case whose job ended last before this case was played.
    pub(super) previous_case: Option<Case>,
    /// The number of the case.
    pub(super) number: u64,
    /// Time since the campaign began.
    pub(super) time: Duration,
}

/// A confirmed failure whose case is to be minimized.
pub(super) struct PendingShrink {
    pub(super) failure: ConfirmedFailure,
    /// Time from the start of the campaign to the occurrence of the failure.
    pub(super) time: Duration,
}

/// Removes and returns the failure to confirm next. This is the failure that takes the least time to confirm, so that slow failures do not
/// delay the others; among equals, it is the one that was encountered first.
pub(super) fn next_to_try(waiting: &mut VecDeque<FailureOccurrence>) -> Option<FailureOccurrence> {
    take_first_by(waiting, |occurrence| occurrence.failure.key.confirmation_cost())
}

/// Removes and returns the confirmed failure to minimize next. This is the most serious failure; among equals, it is the first one.
pub(super) fn next_to_shrink(confirmed: &mut VecDeque<PendingShrink>) -> Option<PendingShrink> {
    take_first_by(confirmed, |confirmed| confirmed.failure.severity_key())
}

/// Removes and returns the first of the elements with the smallest key. Returns `None` if the queue is empty.
fn take_first_by<T, K: Ord>(queue: &mut VecDeque<T>, key: impl Fn(&T) -> K) -> Option<T> {
    let first = (0..queue.len()).min_by_key(|at| key(&queue[*at]));
    first.and_then(|at| queue.remove(at))
}

#[cfg(test)]
mod tests {
    use pmi_scenario::ImplementationKind;

    use super::*;
    use crate::observe::failure::{FailureKey, LastAction};

    #[test]
    fn confirms_failures_in_order_of_cost_and_age() {
        let rule =
            |of: &str| FailureKey::Rule { party: None, requirement: of.into(), after: LastAction::Start };
        let keys = [
            FailureKey::JobKeepsRunning(LastAction::Start),
            FailureKey::HangDuringPartialRequest,
            rule("rfc13.put.unique"),
            FailureKey::Leak(vec!["sleep".into()]),
            FailureKey::Hang { party: None, requirement: None, call: None, after: LastAction::Start },
            rule("rfc13.get.value"),
        ];
        let occurrence = |(number, key): (usize, &FailureKey)| FailureOccurrence {
            failure: Failure {
                key: key.clone(),
                description: String::new(),
                requirement: None,
                seq: None,
                backtrace: None,
            },
            case: Case::new(ImplementationKind::Server, 1, Vec::new()),
            previous_case: None,
            number: number as u64,
            time: Duration::ZERO,
        };
        let mut waiting: VecDeque<FailureOccurrence> = keys.iter().enumerate().map(occurrence).collect();
        let order: Vec<u64> =
            std::iter::from_fn(|| next_to_try(&mut waiting)).map(|occurrence| occurrence.number).collect();
        assert_eq!(order, [2, 5, 1, 4, 0, 3]);
    }
}
