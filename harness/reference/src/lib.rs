#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
mod response;
pub mod server;

pub use response::{NamedValues, OperationResult, ResponseHeader, ResponseParts};
pub use server::{Config, GroupId, GroupSpec, Server, ServerAction};
