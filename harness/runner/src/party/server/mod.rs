//! Starts implementations under test and ends whatever they leave behind.

mod implementation;
pub(crate) mod process;
pub mod profile;
mod singleton;

pub(crate) use implementation::no_program;
pub(crate) use implementation::with_pids;
pub use implementation::{Implementation, ImplementationError, Recorded, UnknownProxy, need};
pub use process::{Environment, Patience, ServerParty};
