//! How long is waited for an implementation under test, and how much it may say.

use std::time::Duration;

/// Bounds of one scenario.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for what a step expects.
    pub step: Duration,
    /// Longest wait for a process to report that was started, where that is not the same.
    pub start: Option<Duration>,
    /// Wait after which silence is believed where the server's state cannot be read.
    pub silence: Duration,
    /// Most bytes that the implementation may send on all connections together.
    pub bytes: u64,
}

impl Limits {
    /// Longest wait for a process to report that was started.
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
