//! The content of PMI-2 frames, as specified in MPICH's draft of version 2 of the wire protocol. The draft was never adopted. If the
//! implementations agree on a different behaviour, the documentation of the affected function or type describes that behaviour.

mod body;

pub(crate) use body::write_tuple;
pub use body::{Body, BodyError, KEY_MAX, SemicolonReading, VALUE_MAX, is_key};
