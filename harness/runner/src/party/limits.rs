//! Time and output limits of an implementation under test.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum factor by which waits are extended on a loaded machine.
const MAX_SLOWDOWN: f64 = 10.0;

/// The time for which a reading of the machine's load is used.
const LOAD_AGE: Duration = Duration::from_millis(100);

/// The limits of a scenario.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioLimits {
    /// Maximum time to wait until the expectation of a step is met.
    pub step: Duration,
    /// Maximum time for a started process to report to the runner on an idle machine, if this time differs from `step`.
    pub start: Option<Duration>,
    /// Time after which the absence of messages counts as silence, if the server's state cannot be observed.
    pub silence: Duration,
    /// Maximum number of bytes that the implementation may send on all connections together.
    pub bytes: u64,
}

impl ScenarioLimits {
    /// Returns the maximum time for a started process to report to the runner. This time is longer on a loaded machine.
    pub fn start(&self) -> Duration {
        self.idle_start().mul_f64(current_slowdown())
    }

    /// Returns whether a started process has taken too long to report to the runner. Reads the machine's load only after the time that a
    /// process may take on an idle machine.
    pub(crate) fn is_start_over(&self, waited: Duration) -> bool {
        waited >= self.idle_start() && waited >= self.start()
    }

    /// Returns the maximum time for a started process to report to the runner on an idle machine.
    pub(crate) fn idle_start(&self) -> Duration {
        self.start.unwrap_or(self.step)
    }
}

/// Returns the factor by which a process may currently take longer than on an idle machine. Reads the machine's load at most once in
/// [`LOAD_AGE`].
fn current_slowdown() -> f64 {
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    static LATEST: Mutex<Option<(Instant, f64)>> = Mutex::new(None);
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    match *latest {
        Some((read_at, slowdown)) if read_at.elapsed() < LOAD_AGE => slowdown,
        _ => {
            let load = std::fs::read_to_string("/proc/loadavg");
            let slowdown = load.map_or(1.0, |load| slowdown(&load, *PROCESSORS));
            *latest = Some((Instant::now(), slowdown));
            slowdown
        }
    }
}

/// Returns the number of runnable threads per processor, from the contents of `/proc/loadavg`: the average or the current number, whichever
/// is higher. The result is limited to the range from 1 to [`MAX_SLOWDOWN`].
fn slowdown(load: &str, processors: usize) -> f64 {
    let mut fields = load.split_whitespace();
    let average = fields.next().and_then(|average| average.parse().ok()).unwrap_or(0.0_f64);
    let running = fields.nth(2).and_then(|tasks| tasks.split('/').next()?.parse().ok()).unwrap_or(0.0_f64);
    (average.max(running) / processors as f64).clamp(1.0, MAX_SLOWDOWN)
}

impl Default for ScenarioLimits {
    fn default() -> Self {
        Self {
            step: Duration::from_secs(5),
            start: None,
            silence: Duration::from_millis(250),
            bytes: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::idle("0.20 1.00 2.00 1/300 4711", 2, 1.0)]
    #[case::busy_for_a_minute("10.00 1.00 2.00 1/300 4711", 2, 5.0)]
    #[case::busy_now("1.00 1.00 2.00 12/300 4711", 4, 3.0)]
    #[case::bounded("400.00 1.00 2.00 1/300 4711", 2, 10.0)]
    #[case::unreadable("", 2, 1.0)]
    fn slowdown_factor_depends_on_the_system_load(
        #[case] load: &str,
        #[case] processors: usize,
        #[case] factor: f64,
    ) {
        assert!((slowdown(load, processors) - factor).abs() < 1e-9, "{}", slowdown(load, processors));
    }
}
