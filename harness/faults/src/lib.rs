#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod behaviour;
mod catalogue;
mod circumstances;
pub mod client;
mod dialects;
mod draft;
mod edit;
mod effect;
mod row;
mod server;

pub use behaviour::Behaviour;
pub use catalogue::{fault_names, faults, variation_names, variations};
pub use circumstances::{Circumstances, When};
pub use dialects::Dialects;
pub use edit::{Edit, Words};
pub use effect::*;
pub use pmi_reference::{Action, GroupId, GroupSpec};
pub use row::{Fault, Variation, behaviour};
pub use server::{Config, Server};
