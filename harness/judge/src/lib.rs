//! The judge derives findings and verdicts from events. It never starts processes.
#![forbid(unsafe_code)]

pub mod attempts;
pub mod backtrace;
pub mod builtin_requirements;
mod bytes;
pub mod cause;
pub mod compatibility;
pub mod connections;
mod conversation;
pub mod crash;
pub mod deviations;
pub mod earlier_names;
pub mod event;
pub mod evidence;
pub mod expectation;
pub mod finding;
pub mod golden;
mod history;
mod judge;
mod kvs;
pub mod library;
pub mod log_judge;
mod lookup_cache;
pub mod monitor;
mod observation;
pub mod offer;
mod program;
pub mod result;
pub mod session;
pub mod symptom;
#[cfg(test)]
mod testing;
mod unjudged;
mod upstream;
pub mod validity;
pub mod verdict;

pub use bytes::LINE_LIMIT;
pub use conversation::ReceivedMessage;
pub use expectation::ExpectationState;
pub use finding::{Finding, PartyKind};
pub use judge::{Judge, ScenarioOutcome, WaitReason};
pub use monitor::Monitor;
pub use observation::ObservationKind;
pub use pmi_scenario::requirement::Severity;
pub use unjudged::UnjudgedReason;
pub use validity::is_reached_by_valid_input;
