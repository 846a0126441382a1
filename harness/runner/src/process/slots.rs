//! How many launches are at work side by side. One that waits for nothing but a silence to last takes no time from the others,
//! and makes room for one more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The launches that may be at work at the same time.
#[derive(Debug)]
pub struct Slots {
    jobs: usize,
    working: Mutex<usize>,
    less: Condvar,
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
        Arc::new(Self { jobs: jobs.max(1), working: Mutex::new(0), less: Condvar::new() })
    }

    /// How many launches there may be, with those that wait. With one job nothing runs beside it: some servers can only do one
    /// thing at a time, and that is how to say so.
    pub fn launches(&self) -> usize {
        if self.jobs == 1 { 1 } else { 2 * self.jobs }
    }

    /// The same in a run of the suite, of which some parts wait for silence after silence.
    pub(crate) fn launches_of_run(&self) -> usize {
        if self.jobs == 1 { 1 } else { 2 * self.launches() }
    }

    fn working(&self) -> MutexGuard<'_, usize> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those at work, as soon as there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        let working = self.working();
        let free = self.less.wait_while(working, |working| *working >= self.jobs);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Slot { slots: Arc::clone(self), works: true }
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
            *self.slots.working() -= 1;
            self.slots.less.notify_one();
        }
    }

    /// It goes on. What has been launched meanwhile works beside it for a while: its server does not wait for that either.
    pub(crate) fn go_on(&mut self) {
        if !std::mem::replace(&mut self.works, true) {
            *self.slots.working() += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn who_waits_makes_room_and_goes_on_without_asking() {
        let slots = Slots::new(1);
        let mut first = slots.take();
        first.wait();
        let second = slots.take();
        first.go_on();
        assert_eq!(*slots.working(), 2);
        drop(first);
        drop(second);
        assert_eq!(*slots.working(), 0);
    }
}
