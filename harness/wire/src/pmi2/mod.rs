//! PMI-2: what is in its frames. The document is MPICH's draft of a wire protocol, version 2, which was never adopted; where
//! implementations agree on something else, the item says so.

mod auth;
mod body;
mod command;
mod concat;
mod part;
mod request;
mod response;
mod series;

pub use auth::{CHALLENGE_SHA256, SECRET, challenge_answer};
pub use body::{Body, BodyError, Semicolons, halved, is_key, write_tuple};
pub use command::Command;
pub use concat::{Concat, ConcatError, in_pieces};
pub use part::Part;
pub use request::{Program, Request, RequestError};
pub use response::{Response, ResponseError};
pub use series::{Series, SeriesError, Whole};
