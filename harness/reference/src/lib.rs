#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod fault;
mod placement;
pub mod reply;
pub mod server;

pub use placement::place;
pub use server::{Action, Config, GroupId, GroupSpec, ProcId, Server};
