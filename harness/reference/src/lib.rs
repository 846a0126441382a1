#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
mod reply;
pub mod server;

pub use reply::{NamedValues, OperationResult, ReplyHeader, ReplyParts};
pub use server::{Config, GroupId, GroupSpec, Server, ServerAction};
