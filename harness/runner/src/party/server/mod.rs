//! Starts implementations under test, and kills all processes that they leave running.

mod implementation;
pub(crate) mod process;
pub mod profile;
mod singleton;

pub(crate) use implementation::with_pids;
pub use implementation::{
    Implementation, ImplementationError, ProxyCheckError, RecordedDeviations, missing_program_error,
    parse_capability, with_ranks,
};
pub use process::{LaunchEnvironment, ServerParty, SilenceTimes};
