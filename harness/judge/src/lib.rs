//! The judge: what the facts mean. It reads events and never launches anything.
#![forbid(unsafe_code)]

pub mod again;
mod conversation;
pub mod crash;
pub mod deviations;
pub mod event;
pub mod expectation;
pub mod finding;
mod judge;
mod kvs;
pub mod library;
pub mod monitor;
pub mod own;
mod program;
pub mod result;
mod seen;
pub mod upstream;
pub mod verdict;

pub use finding::{Finding, Side};
pub use judge::{Awaited, Judge, Outcome, Standing, Unjudged};
pub use monitor::Monitor;
pub use pmi_scenario::requirement::Severity;
pub use seen::SeenKind;
pub use upstream::UpstreamMonitor;
