//! Failures that a campaign has met, and which of them is looked into next.

use std::collections::VecDeque;
use std::time::Duration;

use crate::case::Case;
use crate::confirm::Shown;
use crate::failure::Failure;

/// A failure that was met.
pub(super) struct Met {
    pub(super) failure: Failure,
    pub(super) case: Case,
    /// What the same worker had played before.
    pub(super) before: Option<Case>,
    /// That of the case.
    pub(super) number: u64,
    /// Since the campaign began.
    pub(super) time: Duration,
}

/// A failure that has shown again, whose case is to be made smaller.
pub(super) struct Confirmed {
    pub(super) shown: Shown,
    /// When it was met, since the campaign began.
    pub(super) time: Duration,
}

/// Which of those that wait is tried next. What takes long must not keep the rest waiting until the campaign is over; of what takes equally
/// long, the first that was met.
pub(super) fn next_to_try(waiting: &mut VecDeque<Met>) -> Option<Met> {
    take_first_by(waiting, |met| met.failure.key.patience())
}

/// Which of those that have shown again is made smaller next: the most serious, and of these the first.
pub(super) fn next_to_shrink(confirmed: &mut VecDeque<Confirmed>) -> Option<Confirmed> {
    take_first_by(confirmed, |confirmed| confirmed.shown.seriousness())
}

/// Takes the one of the least key, and of these the first.
fn take_first_by<T, K: Ord>(queue: &mut VecDeque<T>, key: impl Fn(&T) -> K) -> Option<T> {
    let first = (0..queue.len()).min_by_key(|at| key(&queue[*at]));
    first.and_then(|at| queue.remove(at))
}

#[cfg(test)]
mod tests {
    use pmi_scenario::UnderTest;

    use super::*;
    use crate::failure::{After, FailureKey};

    #[test]
    fn what_is_known_sooner_is_tried_first_and_else_what_was_met_first() {
        let rule = |of: &str| FailureKey::Rule { who: None, requirement: of.into(), after: After::Start };
        let keys = [
            FailureKey::JobStays(After::Start),
            FailureKey::HangBehindHalf,
            rule("rfc13.put.unique"),
            FailureKey::Leak(vec!["sleep".into()]),
            FailureKey::Hang { who: None, requirement: None, call: None, after: After::Start },
            rule("rfc13.get.value"),
        ];
        let met = |(number, key): (usize, &FailureKey)| Met {
            failure: Failure {
                key: key.clone(),
                what: String::new(),
                requirement: None,
                seq: None,
                backtrace: None,
            },
            case: Case::new(UnderTest::Server, 1, Vec::new()),
            before: None,
            number: number as u64,
            time: Duration::ZERO,
        };
        let mut waiting: VecDeque<Met> = keys.iter().enumerate().map(met).collect();
        let order: Vec<u64> =
            std::iter::from_fn(|| next_to_try(&mut waiting)).map(|met| met.number).collect();
        assert_eq!(order, [2, 5, 1, 4, 0, 3]);
    }
}
