//! The code that the two C libraries share: the conversion of C arguments and results, the wrapper for API calls, and the connected
//! process.

mod call;
mod connection;
mod memory;
mod process;

pub use call::{Code, call, call_initialized};
pub use connection::number;
pub use memory::{copy_out, int, not_null, required, set, strings, text};
pub use process::ConnectedProcess;
