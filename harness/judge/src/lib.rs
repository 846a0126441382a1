//! The judge derives findings and verdicts from events. It never launches anything.
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
pub mod event;
pub mod evidence;
pub mod expectation;
pub mod finding;
pub mod golden;
mod judge;
mod kvs;
pub mod library;
pub mod monitor;
pub mod names_before;
pub mod offer;
mod program;
mod recent;
pub mod rejudge;
pub mod result;
mod seen;
pub mod session;
pub mod symptom;
mod unjudged;
mod upstream;
pub mod validity;
pub mod verdict;

pub use bytes::LINE_LIMIT;
pub use conversation::ReceivedMessage;
pub use expectation::ExpectationState;
pub use finding::{Finding, Side};
pub use judge::{Awaited, Judge, ScenarioOutcome};
pub use monitor::Monitor;
pub use pmi_scenario::requirement::Severity;
pub use seen::SeenKind;
pub use unjudged::Unjudged;
pub use validity::is_reached_by_valid_input;
