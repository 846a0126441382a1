//! The judge: what the facts mean. It reads events and never launches anything.

pub mod finding;
pub mod monitor;
mod kvs;

pub use finding::{Finding, Party, Severity};
pub use monitor::Monitor;
