//! Time and output limits of an implementation under test.

use std::time::Duration;

/// Bounds of one scenario.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum wait for the expectation of a step.
    pub step: Duration,
    /// Maximum wait for a started process to report, if it differs from `step`.
    pub start: Option<Duration>,
    /// Length of a silence that is accepted if the server's state cannot be observed.
    pub silence: Duration,
    /// Maximum number of bytes that the implementation may send on all connections together.
    pub bytes: u64,
}

impl Limits {
    /// Returns the maximum wait for a started process to report.
    pub fn start(&self) -> Duration {
        self.start.unwrap_or(self.step)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            step: Duration::from_secs(5),
            start: None,
            silence: Duration::from_millis(250),
            bytes: 16 << 20,
        }
    }
}
