//! Starts implementations under test and ends whatever they leave behind.

mod death;
pub(crate) mod idle;
mod implementation;
pub(crate) mod process;
pub(crate) mod procfs;
pub(crate) mod proctree;

pub use implementation::{Implementation, ImplementationError, UnknownProxy, need};
pub use process::{Environment, Patience, ProcessPeer};
pub(crate) use process::{scratch_folder, unread};
pub(crate) use proctree::{become_subreaper, end_descendants};
