#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod fault;
mod reply;
pub mod server;

pub use server::{Action, Config, GroupId, GroupSpec, Server};
