#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod behaviour;
mod catalogue;
mod circumstances;
pub mod client;
mod dialects;
mod edit;
mod effect;
pub mod external;
mod fault;
mod response_draft;
mod server;

pub use behaviour::Behaviour;
pub use catalogue::{
    FaultCatalogue, catalogue, fault_names, faults, rare_faults, variation_names, variations,
};
pub use circumstances::{Circumstances, Occasion};
pub use dialects::Dialects;
pub use edit::{Edit, VerbAndArguments};
pub use effect::*;
pub use fault::{Fault, Variation, behaviour};
pub use pmi_reference::{GroupId, GroupSpec, ServerAction};
pub use server::{Config, EarlierJob, Server};
