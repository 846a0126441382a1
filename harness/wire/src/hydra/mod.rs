//! The private protocol between Hydra's `mpiexec` and its proxies, which changes between releases ([`Family`]).
//!
//! `record` has what is said, `mpich` and `intel` the bytes of it in the two protocols that there are, `vector` what a proxy
//! is told to start, and `codec` one way to read and write for all families.

mod codec;
mod family;
mod intel;
mod mpich;
mod record;
mod unread;
mod vector;

pub use codec::Decoder;
pub use family::{Family, parse_version};
pub use record::{Address, CodecError, Received, Upward};
pub use vector::{Block, Launch, Program};
