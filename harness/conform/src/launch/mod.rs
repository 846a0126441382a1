//! Starts implementations under test and ends whatever they leave behind.

pub(crate) mod idle;
mod implementation;
mod process;
pub(crate) mod proctree;

pub use implementation::{Implementation, ImplementationError, UnknownProxy, need};
pub(crate) use process::unread;
pub use process::{Environment, ProcessPeer};
