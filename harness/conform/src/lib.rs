//! Conformance test harness for PMI-1.

pub mod event;
pub mod judge;
pub mod lang;
pub mod play;
pub mod requirement;
pub mod serve;
pub mod verdict;
