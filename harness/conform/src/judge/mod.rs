//! The judge: what the facts mean. It reads events and never launches anything.

pub(crate) mod api;
pub mod finding;
mod kvs;
pub mod monitor;
pub mod upstream;

pub use finding::{Finding, Party, Severity};
pub use monitor::Monitor;
pub use upstream::UpstreamMonitor;
