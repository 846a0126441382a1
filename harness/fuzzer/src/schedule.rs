//! How long a campaign is to take, and what it still does when that is over.

use std::time::{Duration, Instant};

/// When a campaign began, and how long it is to take.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    time: Option<Duration>,
}

impl Schedule {
    /// A campaign that begins now. Without a time it takes what its sessions take.
    pub fn new(time: Option<Duration>) -> Self {
        Self { start: Instant::now(), time }
    }

    /// The time since the campaign began.
    pub(crate) fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    /// How long the campaign is to take.
    pub(crate) fn time(self) -> Option<Duration> {
        self.time
    }

    /// Nothing new is begun.
    pub(crate) fn is_over(self) -> bool {
        self.time.is_some_and(|time| self.elapsed() >= time)
    }

    /// From then on a finding that is being looked into is stored as it is: nothing is left out of its case, and nothing added.
    pub(crate) fn late(self) -> Option<Instant> {
        self.time.map(|time| self.start + time + time / 20)
    }

    /// Whether it is later than that.
    pub(crate) fn is_late(self) -> bool {
        self.late().is_some_and(|late| Instant::now() >= late)
    }

    /// Whether what is still looked into is to be broken off. A campaign may take a tenth longer than it was given, but not end without a
    /// finding that it could have had.
    pub(crate) fn is_overdue(self, found: bool) -> bool {
        let most = |time: Duration| if found { time + time / 10 } else { 2 * time };
        self.time.is_some_and(|time| self.elapsed() > most(time))
    }
}
