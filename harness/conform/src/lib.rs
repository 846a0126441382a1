//! Conformance test harness for PMI-1.

pub mod event;
pub mod judge;
