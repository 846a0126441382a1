//! The intended duration of a campaign, and the additional time for examinations.

use std::time::{Duration, Instant};

/// The start of a campaign and its intended duration.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    time: Option<Duration>,
}

impl Schedule {
    /// Starts the schedule of a campaign. Without a duration, the number of sessions limits the campaign.
    pub fn new(time: Option<Duration>) -> Self {
        Self { start: Instant::now(), time }
    }

    /// Returns the time since the campaign began.
    pub(crate) fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the intended duration of the campaign.
    pub(crate) fn time(self) -> Option<Duration> {
        self.time
    }

    /// Returns whether the time is up. No new session begins after that.
    pub(crate) fn is_over(self) -> bool {
        self.time.is_some_and(|time| self.elapsed() >= time)
    }

    /// Returns the deadline after which no further examination begins, and the cases of findings are stored without being minimized.
    pub(crate) fn late_deadline(self) -> Option<Instant> {
        self.time.map(|time| self.start + time + time / 20)
    }

    /// Returns whether [`late_deadline`](Self::late_deadline) has passed.
    pub(crate) fn is_late(self) -> bool {
        self.late_deadline().is_some_and(|late| Instant::now() >= late)
    }

    /// Returns whether running examinations must be cancelled. A campaign may take 10 % longer than intended, or twice as long if it has
    /// found nothing yet.
    pub(crate) fn is_overdue(self, found: bool) -> bool {
        let most = |time: Duration| if found { time + time / 10 } else { 2 * time };
        self.time.is_some_and(|time| self.elapsed() > most(time))
    }
}
