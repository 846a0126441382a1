//! The party at the other end, in memory or in processes, and the record of what happens.

pub mod library;
mod memory;
mod peer;
mod recorder;

use std::time::Duration;

pub use crate::process::Memory;
pub use memory::MemoryPeer;
pub use peer::{Incoming, Peer};
pub use recorder::KEPT;
pub use recorder::{EventSink, Recorder};

/// Bounds of one scenario.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for what a step expects.
    pub step: Duration,
    /// Wait after which silence is believed where the server's state cannot be read.
    pub silence: Duration,
    /// Most bytes that the implementation may send on all connections together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { step: Duration::from_secs(5), silence: Duration::from_millis(250), bytes: 16 << 20 }
    }
}
