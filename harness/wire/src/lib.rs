#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod frame;
pub mod grammar;
mod mapping;
mod message;
mod op;
mod request;
mod response;
mod spawn;

pub use frame::{LineFramer, Overlong};
pub use mapping::{Block, MappingError, MappingForm, ProcessMapping, TooFew};
pub use message::{Message, MessageError, Tuple, ValueReading};
pub use op::Operation;
pub use request::{Request, RequestError, Version};
pub use response::{Body, Maxes, Response, ResponseError};
pub use spawn::{
    SpawnAssembler, SpawnCollector, SpawnError, SpawnFault, SpawnLimits, SpawnProgram, SpawnRequest,
};
