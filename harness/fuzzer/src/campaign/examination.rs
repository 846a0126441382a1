//! Examines the failures that a campaign encounters: replays the case of each failure and, if the failure recurs, minimizes and stores the
//! case.
//!
//! Minimizing a case takes longer than confirming a failure. After the late deadline of the campaign, the cases of confirmed failures are
//! stored without being minimized.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::{FailureOccurrence, PendingShrink, next_to_shrink, next_to_try};
use super::{Campaign, SharedState};
use crate::observe::failure::{Failure, FailureKey};
use crate::session::WriteError;
use crate::session::case::Case;
use crate::triage::confirm::MinimizedFailure;
use crate::triage::store::{FindingOrigin, store};

/// Maximum number of times that a failure is examined if it does not recur.
const MAX_FAILED_CONFIRMATIONS: u32 = 3;

impl Campaign<'_> {
    /// Examines failures until all workers have stopped playing and the queues are empty.
    pub(super) fn examine_others(&self) {
        loop {
            let nothing = |shared: &mut SharedState| {
                shared.waiting.is_empty() && shared.confirmed.is_empty() && shared.playing > 0
            };
            let shared = self.work_available.wait_while(self.lock(), nothing);
            let mut shared = shared.unwrap_or_else(PoisonError::into_inner);
            // Serve the longer queue. In a campaign with many failures, some cases are thus minimized before all failures have been
            // confirmed.
            let tries = shared.waiting.len() >= shared.confirmed.len();
            if tries && let Some(occurrence) = next_to_try(&mut shared.waiting) {
                // The first failure of a campaign is examined even if the time limit has passed.
                let has_any = !shared.found.is_empty() || !shared.confirmed.is_empty();
                if self.schedule.is_late() && has_any || self.interrupted.load(Ordering::Relaxed) {
                    let name = self.options.known.name_of_unseen(&occurrence.failure.key);
                    shared.progress.unexamined.insert(name);
                    continue;
                }
                drop(shared);
                self.examine(&occurrence);
            } else if let Some(confirmed) = next_to_shrink(&mut shared.confirmed) {
                drop(shared);
                self.shrink(confirmed);
            } else {
                return;
            }
        }
    }

    /// Confirms a new failure. A failure that does not recur when its case is played alone may depend on state from the previous job, so
    /// the case is then played after that job.
    pub(super) fn examine(&self, occurrence: &FailureOccurrence) {
        self.lock().examining += 1;
        if !self.recurs(occurrence, &occurrence.case) && !self.recurs_after_previous(occurrence) {
            self.record_unconfirmed(&occurrence.failure.key);
        }
        self.lock().examining -= 1;
    }

    /// Plays the previous case and then the case of the failure, and returns whether the failure recurs. Few failures need the previous
    /// case, so more runs are made only if the failure recurs in the first run. Returns false without playing if the campaign's time is up.
    fn recurs_after_previous(&self, occurrence: &FailureOccurrence) -> bool {
        let after = occurrence
            .previous_case
            .as_ref()
            .filter(|_| !self.schedule.is_over())
            .and_then(|before| occurrence.case.with_earlier_job(before));
        after.is_some_and(|case| {
            self.examiner.recurs(&occurrence.failure, &case) && self.recurs(occurrence, &case)
        })
    }

    /// Returns whether a failure recurs. Confirms the root cause if the failure has one; otherwise, confirms the failure itself.
    fn recurs(&self, occurrence: &FailureOccurrence, case: &Case) -> bool {
        let failure = &occurrence.failure;
        let bucket = failure.key.to_string();
        let Some((root, smaller)) = self.examiner.root_cause(failure, case) else {
            let mut shared = self.lock();
            shared.state.aliases.remove(&bucket);
            // The bucket may have been an alias until now. In that case, a failure with the same key may already have been confirmed.
            let is_confirmed =
                shared.confirmed_buckets.contains(&bucket) && !shared.needs_invalid_input(&bucket);
            drop(shared);
            return is_confirmed || self.confirm(occurrence, failure, case);
        };
        let mut shared = self.lock();
        let of = root.key.to_string();
        let place = root.key.place().map(ToString::to_string);
        let known = self.options.known.name(&of, place.as_deref()).is_some();
        let alias = shared.state.aliases.entry(bucket).or_default();
        (alias.bucket, alias.place) = (of.clone(), place);
        let needs_invalid_input = shared.needs_invalid_input(&of);
        let fresh = shared.claimed.insert(of.clone());
        drop(shared);
        if fresh && !known {
            if !self.confirm(occurrence, &root, &smaller) {
                self.record_unconfirmed(&root.key);
            }
        } else if needs_invalid_input && self.examiner.shows_by_valid_input(&root, &smaller) {
            self.confirm(occurrence, &root, &smaller);
        }
        true
    }

    /// Replays a case to confirm its failure, and returns whether the failure recurs. The case of a confirmed failure is minimized, either
    /// here or by an examiner, unless the failure needs invalid input and the campaign ignores such failures.
    fn confirm(&self, occurrence: &FailureOccurrence, failure: &Failure, case: &Case) -> bool {
        let Some(shown) = self.examiner.confirm(failure, case, occurrence.number) else { return false };
        if self.options.valid && !shown.is_valid() {
            return true;
        }
        let confirmed = PendingShrink { failure: shown, time: occurrence.time };
        let mut shared = self.lock();
        shared.confirmed_buckets.insert(failure.key.to_string());
        if self.has_examiners {
            shared.confirmed.push_back(confirmed);
            drop(shared);
            self.work_available.notify_one();
        } else {
            drop(shared);
            self.shrink(confirmed);
        }
        true
    }

    /// Records that a failure did not recur, or that it was not examined because the campaign was interrupted.
    fn record_unconfirmed(&self, key: &FailureKey) {
        let name = self.options.known.name_of_unseen(key);
        let mut shared = self.lock();
        // A failure that was already confirmed with invalid input remains a finding.
        if shared.found.iter().any(|found| found.bucket == key.to_string()) {
            return;
        }
        if self.interrupted.load(Ordering::Relaxed) {
            shared.progress.unexamined.insert(name);
            return;
        }
        let times = shared.progress.unconfirmed.entry(name).or_default();
        *times += 1;
        if *times < MAX_FAILED_CONFIRMATIONS {
            shared.claimed.remove(&key.to_string());
        }
    }

    /// Minimizes the case of a confirmed failure and stores the finding.
    fn shrink(&self, PendingShrink { failure: shown, time }: PendingShrink) {
        let others = {
            let mut shared = self.lock();
            shared.examining += 1;
            shared.confirmed.len()
        };
        let key = shown.key().clone();
        match self.examiner.shrink(shown, others) {
            Some(minimized) => self.store(&minimized, time),
            None => {
                self.lock().confirmed_buckets.remove(&key.to_string());
                self.record_unconfirmed(&key);
            }
        }
        self.lock().examining -= 1;
    }

    fn store(
        &self,
        MinimizedFailure { finding: found, case, run, symptom }: &MinimizedFailure,
        time: Duration,
    ) {
        let version = self.target.version();
        let command = self.target.command();
        let origin = FindingOrigin { command, version: &version, replay: &self.options.replay };
        let replaced = {
            let mut shared = self.lock();
            let earlier = shared.found.iter_mut().find(|earlier| earlier.bucket == found.bucket);
            match earlier {
                // Keep the stored session if it has only valid input, or if the new session also needs invalid input.
                Some(earlier) if earlier.valid || !found.valid => return,
                Some(earlier) => {
                    *earlier = found.clone();
                    true
                }
                None => false,
            }
        };
        if let Err(error) =
            store(&self.options.out, found, case, &run.observation.events, symptom.as_ref(), &origin)
        {
            let file = self.options.out.join(&found.bucket);
            self.reporter.error(&WriteError { file, error }.into());
        }
        if replaced {
            return;
        }
        let mut shared = self.lock();
        *shared.state.buckets.entry(found.bucket.clone()).or_default() += 1;
        *shared.progress.new.entry(found.bucket.clone()).or_default() += 1;
        shared.first_met.insert(found.bucket.clone(), time);
        shared.found.push(found.clone());
        drop(shared);
        self.reporter.found(found);
    }
}
