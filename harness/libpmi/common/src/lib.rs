//! The common part of the two C libraries: the strings and buffers of C callers, the wrapper of all calls, and the connection of a process.

mod call;
mod connection;
mod memory;

pub use call::{Code, call, call_initialized};
pub use connection::{PmiFd, number};
pub use memory::{copy_out, set, strings, text};
