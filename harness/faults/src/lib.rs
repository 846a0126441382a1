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
pub mod external;
mod row;
mod server;

pub use behaviour::Behaviour;
pub use catalogue::{fault_names, faults, rare_faults, variation_names, variations};
pub use circumstances::{Circumstances, When};
pub use dialects::Dialects;
pub use edit::{Edit, VerbAndArguments};
pub use effect::*;
pub use pmi_reference::{GroupId, GroupSpec, ServerAction};
pub use row::{Fault, Variation, behaviour};
pub use server::{Config, EarlierJob, Server};
