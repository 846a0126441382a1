//! The common part of the two C libraries: the strings and buffers of C callers, the wrapper of all calls, and the
//! connected process.

mod call;
mod connection;
mod memory;
mod process;

pub use call::{Code, call, call_initialized};
pub use connection::number;
pub use memory::{copy_out, int, required, set, strings, text};
pub use process::ConnectedProcess;
