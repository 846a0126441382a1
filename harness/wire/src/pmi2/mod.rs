//! PMI-2: the content of its frames. The document is MPICH's draft of a wire protocol, version 2, which was never adopted. If
//! implementations agree on something else, the documentation of the item states it.

mod body;

pub use body::{Body, BodyError, KEY_MAX, SemicolonReading, VALUE_MAX, is_key, write_tuple};
