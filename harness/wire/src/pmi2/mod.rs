//! The content of PMI-2 frames, as specified in MPICH's draft of version 2 of the wire protocol, which was never adopted. If
//! implementations agree on something else, the item's documentation says so.

mod body;
mod command;
mod request;
mod response;

pub use body::{Body, BodyError, KEY_MAX, SemicolonReading, VALUE_MAX, halved, is_key, write_tuple};
pub use command::Command;
pub use request::{Pmi2SpawnProgram, Request, RequestError};
pub use response::{Response, ResponseError};
