//! The other end of the connections: a module for each kind of implementation under test, and the in-memory reference server.

mod interface;
pub mod library;
mod limits;
mod memory;
pub mod program;
pub mod proxy;
pub mod server;

pub use interface::{Incoming, Party, SilenceMeaning};
pub use limits::ScenarioLimits;
pub use memory::MemoryParty;
