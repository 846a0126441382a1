//! The private protocol between Hydra's `mpiexec` and its proxies. The protocol differs between releases ([`Family`]).
//!
//! `record` defines the messages, `mpich` and `intel` encode them in the two protocols, `vector` builds a proxy's launch options, and
//! `codec` is the common interface to all families.

mod codec;
mod family;
mod intel;
mod mpich;
mod record;
mod unread;
mod vector;

pub use codec::Decoder;
pub use family::{Family, parse_version};
pub use record::{CodecError, FrameAddress, ProxyMessage, ReceivedFrame};
pub use vector::{GroupLaunch, LaunchProgram, ProcessBlock};
