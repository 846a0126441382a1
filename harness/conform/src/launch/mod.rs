//! Starts implementations under test and ends whatever they leave behind.

mod idle;
mod implementation;
mod process;
mod proctree;

pub use implementation::{Implementation, ImplementationError, need};
pub use process::{Environment, ProcessPeer};
