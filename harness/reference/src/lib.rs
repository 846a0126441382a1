#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
mod reply;
pub mod server;

pub use reply::{Answer, Fields, Header, Reply};
pub use server::{Action, Config, GroupId, GroupSpec, Server};
