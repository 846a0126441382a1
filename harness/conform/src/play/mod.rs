//! Plays a scenario against a peer, in memory or in processes.

pub(crate) mod library;
mod memory;
pub(crate) mod pattern;
mod peer;
mod player;
mod recorder;
pub(crate) mod scope;
mod upstream;

pub use memory::MemoryPeer;
pub use peer::{Incoming, Memory, Peer};
pub use player::{Limits, Outcome, play};
pub(crate) use recorder::KEPT;
pub use recorder::{EventSink, Recorder};
pub(crate) use scope::fill;
