//! Starts implementations under test and ends whatever they leave behind.

mod idle;
mod implementation;
mod process;
pub(crate) mod proctree;

pub use implementation::{Implementation, ImplementationError, UnknownProxy, need};
pub use process::{Environment, Patience, ProcessPeer};
