//! Starts implementations under test, and ends all processes that remain after them.

mod implementation;
pub(crate) mod process;
pub mod profile;
mod singleton;

pub use implementation::{Implementation, ImplementationError, Recorded, UnknownProxy, need, with_ranks};
pub(crate) use implementation::{no_program, with_pids};
pub use process::{LaunchEnvironment, Patience, ServerParty};
