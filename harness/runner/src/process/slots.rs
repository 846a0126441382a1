//! How many launches are at work side by side. One that waits for nothing but a silence to last takes no time from the others,
//! and makes room for one more.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::procfs::{ProcessorTime, processor_time};

/// How often it is looked at whether the machine is idle. For each time that it is, one launch more may be open.
const LOOKS: Duration = Duration::from_millis(50);
/// A machine is idle of whose processors' time so much is left, in hundredths.
const IDLE: u64 = 40;

/// The launches that may be at work at the same time.
#[derive(Debug)]
pub struct Slots {
    jobs: usize,
    /// More than a few are open while the machine is idle, and only then.
    fills_idle_machine: bool,
    taken: Mutex<Taken>,
    less: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    /// Launches at work.
    working: usize,
    /// These, and those that wait.
    open: usize,
    idleness: Idleness,
}

/// Whether there is processor time to spare.
#[derive(Debug, Default)]
struct Idleness {
    last: Option<(Instant, ProcessorTime)>,
}

impl Idleness {
    /// Whether the machine was idle since the last look, which was some time ago. `false` where that is not told.
    fn is_idle(&mut self) -> bool {
        if self.last.is_some_and(|(at, _)| at.elapsed() < LOOKS) {
            return false;
        }
        let Ok(now) = processor_time() else { return false };
        let before = self.last.replace((Instant::now(), now));
        before.is_some_and(|(_, before)| has_spare(before, now))
    }
}

fn has_spare(before: ProcessorTime, now: ProcessorTime) -> bool {
    let all = now.all.saturating_sub(before.all);
    all > 0 && now.idle.saturating_sub(before.idle) * 100 >= all * IDLE
}

/// A launch's place among those at work, given up with it.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    works: bool,
}

impl Slots {
    /// For so many launches at work.
    pub fn new(jobs: usize) -> Arc<Self> {
        Self::with(jobs, false)
    }

    /// The same; while the machine is idle, more are opened: of a server that sleeps while it starts, many wait at the same time.
    pub fn filling_idle_machine(jobs: usize) -> Arc<Self> {
        Self::with(jobs, true)
    }

    fn with(jobs: usize, fills_idle_machine: bool) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { jobs: jobs.max(1), fills_idle_machine, taken, less: Condvar::new() })
    }

    /// How many launches there may be, with those that wait. With one job nothing runs beside it: some servers can only do one
    /// thing at a time, and that is how to say so.
    pub fn launches(&self) -> usize {
        match (self.jobs, self.fills_idle_machine) {
            (1, _) => 1,
            (_, true) => 4 * self.few(),
            (_, false) => self.few(),
        }
    }

    /// The same in a run of the suite, of which some parts wait for silence after silence.
    pub(crate) fn launches_of_run(&self) -> usize {
        if self.jobs == 1 { 1 } else { 2 * self.few() }
    }

    /// As many as are open on a machine that is not idle.
    fn few(&self) -> usize {
        2 * self.jobs
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those at work, as soon as there is one.
    ///
    /// # Errors
    ///
    /// The run is to end at once.
    pub(crate) fn take(self: &Arc<Self>, interrupted: &AtomicBool) -> io::Result<Slot> {
        let mut taken = self.taken();
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let fits = !self.fills_idle_machine || taken.open < self.few();
            if taken.working < self.jobs && (fits || taken.idleness.is_idle()) {
                break;
            }
            // Nobody says when the machine becomes idle, or the run is to end.
            taken = self.less.wait_timeout(taken, LOOKS).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.working += 1;
        taken.open += 1;
        Ok(Slot { slots: Arc::clone(self), works: true })
    }
}

impl Slot {
    /// Whether it counts among those at work.
    pub(crate) fn works(&self) -> bool {
        self.works
    }

    /// It only waits from now on.
    pub(crate) fn wait(&mut self) {
        if std::mem::replace(&mut self.works, false) {
            self.slots.taken().working -= 1;
            self.slots.less.notify_one();
        }
    }

    /// It goes on. What has been launched meanwhile works beside it for a while: its server does not wait for that either.
    pub(crate) fn go_on(&mut self) {
        if !std::mem::replace(&mut self.works, true) {
            self.slots.taken().working += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.working -= usize::from(self.works);
        taken.open -= 1;
        drop(taken);
        self.slots.less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicBool, Ordering, ProcessorTime, Slots, has_spare, processor_time};

    #[test]
    fn a_machine_is_idle_whose_processors_have_little_to_do() {
        let at = |all, idle| ProcessorTime { all, idle };
        for (now, spare) in [(at(110, 54), true), (at(110, 53), false), (at(100, 50), false)] {
            assert_eq!(has_spare(at(100, 50), now), spare, "{now:?}");
        }
        let now = processor_time().unwrap();
        assert!(now.all > 0 && now.idle <= now.all, "{now:?}");
    }

    #[test]
    fn who_waits_makes_room_and_goes_on_without_asking() {
        let slots = Slots::new(1);
        let interrupted = AtomicBool::new(false);
        let mut first = slots.take(&interrupted).unwrap();
        first.wait();
        let second = slots.take(&interrupted).unwrap();
        first.go_on();
        assert_eq!(slots.taken().working, 2);
        interrupted.store(true, Ordering::Relaxed);
        assert!(slots.take(&interrupted).is_err());
        drop(first);
        drop(second);
        let taken = slots.taken();
        assert_eq!((taken.working, taken.open), (0, 0));
    }
}
