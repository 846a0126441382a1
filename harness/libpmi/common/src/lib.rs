//! What the two C libraries have in common: the strings and buffers of C callers, and the connection of a process.

mod connection;
mod memory;

pub use connection::{PmiFd, number};
pub use memory::{copy_out, set, strings, text};
