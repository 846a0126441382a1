//! What the two C libraries have in common: the strings and buffers of C callers, how their calls are run, and the connection of a
//! process.

mod call;
mod connection;
mod memory;

pub use call::{Code, call, call_initialized};
pub use connection::{PmiFd, number};
pub use memory::{copy_out, set, strings, text};
