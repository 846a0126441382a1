//! The limit on launches that work at the same time. A launch that only waits for the required duration of a silence uses no processor
//! time, so another launch may start.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::observe::procfs::{ProcessorTime, processor_time};

/// Interval between checks of whether the machine is idle. After each check that finds it idle, one more launch may start.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Percentage of processor time that must be unused for a machine to count as idle.
const IDLE_PERCENT: u64 = 40;

/// The limit on launches that work at the same time.
#[derive(Debug)]
pub struct Slots {
    jobs: usize,
    /// True if launches beyond [`Slots::max_when_busy`] may be open while the machine is idle.
    fills_idle_machine: bool,
    usage: Mutex<SlotUsage>,
    slot_freed: Condvar,
}

#[derive(Debug, Default)]
struct SlotUsage {
    working: usize,
    /// Number of working and waiting launches.
    open: usize,
    idleness: IdlenessMeter,
}

/// A meter for the share of unused processor time.
#[derive(Debug, Default)]
struct IdlenessMeter {
    last: Option<(Instant, ProcessorTime)>,
}

impl IdlenessMeter {
    /// Returns whether the machine has been idle since the previous measurement, which must be at least [`CHECK_INTERVAL`] ago. Returns
    /// false if this is unknown.
    fn is_idle(&mut self) -> bool {
        if self.last.is_some_and(|(at, _)| at.elapsed() < CHECK_INTERVAL) {
            return false;
        }
        let Ok(now) = processor_time() else { return false };
        let before = self.last.replace((Instant::now(), now));
        before.is_some_and(|(_, before)| has_spare(before, now))
    }
}

fn has_spare(before: ProcessorTime, now: ProcessorTime) -> bool {
    let all = now.all.saturating_sub(before.all);
    all > 0 && now.idle.saturating_sub(before.idle) * 100 >= all * IDLE_PERCENT
}

/// A launch's permission to work. The permission is released on drop.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    is_working: bool,
}

impl Slots {
    /// Creates a limit of `jobs` working launches.
    pub fn new(jobs: usize) -> Arc<Self> {
        Self::with(jobs, false)
    }

    /// Creates a limit of `jobs` working launches that allows more open launches while the machine is idle. The additional launches use the
    /// time in which servers sleep while they start.
    pub fn with_idle_filling(jobs: usize) -> Arc<Self> {
        Self::with(jobs, true)
    }

    fn with(jobs: usize, fills_idle_machine: bool) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { jobs: jobs.max(1), fills_idle_machine, usage: taken, slot_freed: Condvar::new() })
    }

    /// Returns the maximum number of launches, including waiting ones. With one job, this is 1, because some servers cannot handle
    /// concurrent launches.
    pub fn launches(&self) -> usize {
        match (self.jobs, self.fills_idle_machine) {
            (1, _) => 1,
            (_, true) => 4 * self.max_when_busy(),
            (_, false) => self.max_when_busy(),
        }
    }

    /// Returns the maximum number of launches, including waiting ones, in a run of the suite. This limit is higher than the limit for a
    /// busy machine, because some scenarios wait for one silence after another.
    pub fn launches_of_run(&self) -> usize {
        if self.jobs == 1 { 1 } else { 2 * self.max_when_busy() }
    }

    /// Returns the maximum number of open launches while the machine is not idle.
    fn max_when_busy(&self) -> usize {
        2 * self.jobs
    }

    fn usage(&self) -> MutexGuard<'_, SlotUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another launch may work, and returns its slot.
    ///
    /// # Errors
    ///
    /// Returns an error if the run must end immediately.
    pub fn take(self: &Arc<Self>, interrupted: &AtomicBool) -> io::Result<Slot> {
        let mut taken = self.usage();
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let fits = !self.fills_idle_machine || taken.open < self.max_when_busy();
            if taken.working < self.jobs && (fits || taken.idleness.is_idle()) {
                break;
            }
            // This wait has a timeout, because no event reports that the machine becomes idle or that the run must end.
            taken =
                self.slot_freed.wait_timeout(taken, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.working += 1;
        taken.open += 1;
        Ok(Slot { slots: Arc::clone(self), is_working: true })
    }
}

impl Slot {
    /// Returns whether the launch counts as working.
    pub fn is_working(&self) -> bool {
        self.is_working
    }

    /// Marks the launch as waiting, which frees its slot.
    pub fn wait(&mut self) {
        if std::mem::replace(&mut self.is_working, false) {
            self.slots.usage().working -= 1;
            self.slots.slot_freed.notify_one();
        }
    }

    /// Marks the launch as working again. The launch does not wait for a free slot, because its server is already running again. So more
    /// than `jobs` launches may work for a while.
    pub fn resume(&mut self) {
        if !std::mem::replace(&mut self.is_working, true) {
            self.slots.usage().working += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.usage();
        taken.working -= usize::from(self.is_working);
        taken.open -= 1;
        drop(taken);
        self.slots.slot_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicBool, Ordering, ProcessorTime, Slots, has_spare, processor_time};

    #[test]
    fn detects_idle_processors() {
        let at = |all, idle| ProcessorTime { all, idle };
        for (now, spare) in [(at(110, 54), true), (at(110, 53), false), (at(100, 50), false)] {
            assert_eq!(has_spare(at(100, 50), now), spare, "{now:?}");
        }
        let now = processor_time().unwrap();
        assert!(now.all > 0 && now.idle <= now.all, "{now:?}");
    }

    #[test]
    fn waiting_frees_a_slot_and_resuming_needs_none() {
        let slots = Slots::new(1);
        let interrupted = AtomicBool::new(false);
        let mut first = slots.take(&interrupted).unwrap();
        first.wait();
        let second = slots.take(&interrupted).unwrap();
        first.resume();
        assert_eq!(slots.usage().working, 2);
        interrupted.store(true, Ordering::Relaxed);
        assert!(slots.take(&interrupted).is_err());
        drop(first);
        drop(second);
        let taken = slots.usage();
        assert_eq!((taken.working, taken.open), (0, 0));
    }
}
