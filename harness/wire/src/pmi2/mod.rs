//! PMI-2: what is in its frames. The document is MPICH's draft of a wire protocol, version 2, which was never adopted; where
//! implementations agree on something else, the item says so.

mod body;
mod command;
mod request;
mod response;

pub use body::{Body, BodyError, Semicolons, halved, is_key, write_tuple};
pub use command::Command;
pub use request::{Program, Request, RequestError};
pub use response::{Response, ResponseError};
