//! Conformance test harness for PMI-1.

pub mod agent;
pub mod campaign;
pub mod client;
pub mod deviations;
pub mod event;
pub mod hydra;
pub mod judge;
pub mod lang;
pub mod launch;
pub mod library;
pub mod mutants;
pub mod play;
pub mod record;
pub mod report;
pub mod requirement;
pub mod run;
pub mod serve;
pub mod suite;
pub mod verdict;
