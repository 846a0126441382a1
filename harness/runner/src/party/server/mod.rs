//! Starts implementations under test, and ends all processes that remain after them.

mod implementation;
pub(crate) mod process;
pub mod profile;
mod singleton;

pub(crate) use implementation::with_pids;
pub use implementation::{
    Implementation, ImplementationError, Recorded, UnknownProxy, need, no_program, with_ranks,
};
pub use process::{LaunchEnvironment, Patience, ServerParty};
