//! Starts implementations under test, and ends all processes that remain after them.

mod implementation;
pub(crate) mod process;
pub mod profile;
mod singleton;

pub(crate) use implementation::no_program;
pub use implementation::{Implementation, ImplementationError, Recorded, UnknownProxy, need};
pub(crate) use implementation::{with_pids, with_ranks};
pub use process::{LaunchEnvironment, Patience, ServerParty};
