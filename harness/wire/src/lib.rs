#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod barrier;
mod connection;
mod decoded;
mod dialect;
mod error;
mod frame;
pub mod grammar;
pub mod hydra;
mod mapping;
mod message;
mod op;
mod placement;
pub mod pmi2;
pub mod port;
mod process;
pub mod protocol;
pub mod singleton;
mod spawn;
mod writer;

pub use barrier::{GroupBarrier, GroupError, Members, RankList};
pub use connection::{Arrival, Connection, Framed, FramingError};
pub use decoded::{Decoded, ResponseOutcome};
pub use dialect::{Dialect, UnknownDialect};
pub use error::DecodeError;
pub use frame::{FrameError, Framer, HEADER, Overlong, frame_header, frame_length};
pub use mapping::{MAPPING_KEY, MappingBlock, MappingError, MappingForm, ProcessMapping, TooFewRanks};
pub use message::{Message, MessageError, Tuple, ValueReading};
pub use placement::{node_of, place};
pub use process::{ConnectionMethod, Proc};
pub use protocol::{Direction, Framing, KvsLimits, Operation, Version};
pub use spawn::{
    SpawnAssembler, SpawnCollector, SpawnError, SpawnErrorKind, SpawnLimits, SpawnProgram, SpawnRequest,
};
