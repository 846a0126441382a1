//! What a campaign does with the failures that are met: tries each again, makes the cases smaller of those that show again, and stores them.
//!
//! To make a case smaller takes longer than to try it again: when the time is over, what has shown again is stored as it is.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::{Confirmed, Met, next_to_shrink, next_to_try};
use super::{Campaign, Shared};
use crate::case::Case;
use crate::confirm::Smallest;
use crate::failure::{Failure, FailureKey};
use crate::store::{Origin, WriteError, store};

/// A failure that did not show again so often is not tried again.
const UNCONFIRMED: u32 = 3;

impl Campaign<'_> {
    /// Looks into what others have met, until nobody plays any more and nothing waits.
    pub(super) fn examine_others(&self) {
        loop {
            let nothing = |shared: &mut Shared| {
                shared.waiting.is_empty() && shared.confirmed.is_empty() && shared.playing > 0
            };
            let shared = self.more.wait_while(self.lock(), nothing);
            let mut shared = shared.unwrap_or_else(PoisonError::into_inner);
            // In a campaign that meets many, some are made smaller before all have been tried.
            let tries = shared.waiting.len() >= shared.confirmed.len();
            if tries && let Some(met) = next_to_try(&mut shared.waiting) {
                // Whether anything was found must not depend on the time.
                let has_any = !shared.found.is_empty() || !shared.confirmed.is_empty();
                if self.schedule.is_late() && has_any || self.interrupted.load(Ordering::Relaxed) {
                    let name = self.options.known.name_of_unseen(&met.failure.key);
                    shared.progress.unexamined.insert(name);
                    continue;
                }
                drop(shared);
                self.examine(&met);
            } else if let Some(confirmed) = next_to_shrink(&mut shared.confirmed) {
                drop(shared);
                self.shrink(confirmed);
            } else {
                return;
            }
        }
    }

    /// Tries a failure again that is new. What does not show again may need what the job before it has left behind.
    pub(super) fn examine(&self, met: &Met) {
        self.lock().examining += 1;
        if !self.shows_again(met, &met.case) && !self.shows_after_another(met) {
            self.unconfirmed(&met.failure.key);
        }
        self.lock().examining -= 1;
    }

    /// Tries the failure again in the job after what the same worker had played before. Few need that, so that one run decides whether there
    /// are more of them, and none is made once the time is over.
    fn shows_after_another(&self, met: &Met) -> bool {
        let after = met
            .before
            .as_ref()
            .filter(|_| !self.schedule.is_over())
            .and_then(|before| met.case.after(before));
        after.is_some_and(|case| self.examiner.shows(&met.failure, &case) && self.shows_again(met, &case))
    }

    /// Tries the failure again with this case; whether it shows.
    fn shows_again(&self, met: &Met, case: &Case) -> bool {
        let failure = &met.failure;
        let bucket = failure.key.to_string();
        let Some((root, smaller)) = self.examiner.root(failure, case) else {
            let mut shared = self.lock();
            shared.state.aliases.remove(&bucket);
            // What stood for another is looked at again now and then, and may have shown as itself before.
            let is_confirmed = shared.shown.contains(&bucket) && !shared.needs_invalid_input(&bucket);
            drop(shared);
            return is_confirmed || self.confirms(met, failure, case);
        };
        let mut shared = self.lock();
        let of = root.key.to_string();
        let place = root.key.place().map(ToString::to_string);
        let known = self.options.known.name(&of, place.as_deref()).is_some();
        let alias = shared.state.aliases.entry(bucket).or_default();
        (alias.of, alias.place) = (of.clone(), place);
        let needs_invalid_input = shared.needs_invalid_input(&of);
        let fresh = shared.taken.insert(of.clone());
        drop(shared);
        if fresh && !known {
            if !self.confirms(met, &root, &smaller) {
                self.unconfirmed(&root.key);
            }
        } else if needs_invalid_input && self.examiner.shows_by_valid_input(&root, &smaller) {
            self.confirms(met, &root, &smaller);
        }
        true
    }

    /// Tries a failure again; whether it shows. If so, its case is made smaller, now or when there is time for that.
    fn confirms(&self, met: &Met, failure: &Failure, case: &Case) -> bool {
        let Some(shown) = self.examiner.try_again(failure, case, met.number) else { return false };
        if self.options.valid && !shown.is_valid() {
            return true;
        }
        let confirmed = Confirmed { shown, time: met.time };
        let mut shared = self.lock();
        shared.shown.insert(failure.key.to_string());
        if self.has_examiners {
            shared.confirmed.push_back(confirmed);
            drop(shared);
            self.more.notify_one();
        } else {
            drop(shared);
            self.shrink(confirmed);
        }
        true
    }

    /// Notes that a failure has not shown again, or that it was not waited for.
    fn unconfirmed(&self, key: &FailureKey) {
        let name = self.options.known.name_of_unseen(key);
        let mut shared = self.lock();
        // It has shown before, with invalid input.
        if shared.found.iter().any(|found| found.bucket == key.to_string()) {
            return;
        }
        if self.interrupted.load(Ordering::Relaxed) {
            shared.progress.unexamined.insert(name);
            return;
        }
        let times = shared.progress.unconfirmed.entry(name).or_default();
        *times += 1;
        if *times < UNCONFIRMED {
            shared.taken.remove(&key.to_string());
        }
    }

    /// Makes the case of a failure smaller that has shown again, and stores it.
    fn shrink(&self, Confirmed { shown, time }: Confirmed) {
        let others = {
            let mut shared = self.lock();
            shared.examining += 1;
            shared.confirmed.len()
        };
        let key = shown.key().clone();
        match self.examiner.shrink(shown, others) {
            Some(smallest) => self.store(&smallest, time),
            None => {
                self.lock().shown.remove(&key.to_string());
                self.unconfirmed(&key);
            }
        }
        self.lock().examining -= 1;
    }

    fn store(&self, Smallest { found, case, run, symptom }: &Smallest, time: Duration) {
        let version = self.target.version();
        let command = self.target.command();
        let origin = Origin { command, version: &version, replay: &self.options.replay };
        let replaced = {
            let mut shared = self.lock();
            let earlier = shared.found.iter_mut().find(|earlier| earlier.bucket == found.bucket);
            match earlier {
                // It is stored with a session that has only valid input, or this one has not either.
                Some(earlier) if earlier.valid || !found.valid => return,
                Some(earlier) => {
                    *earlier = found.clone();
                    true
                }
                None => false,
            }
        };
        if let Err(error) = store(&self.options.out, found, case, &run.seen.events, symptom.as_ref(), &origin)
        {
            let file = self.options.out.join(&found.bucket);
            self.reporter.trouble(&WriteError { file, error }.into());
        }
        if replaced {
            return;
        }
        let mut shared = self.lock();
        *shared.state.buckets.entry(found.bucket.clone()).or_default() += 1;
        *shared.progress.new.entry(found.bucket.clone()).or_default() += 1;
        shared.met.insert(found.bucket.clone(), time);
        shared.found.push(found.clone());
        drop(shared);
        self.reporter.found(found);
    }
}
