//! The runner: the interpreter that plays scenarios, and the parties through which it drives implementations.

pub mod behaviours;
pub mod doctor;
pub mod hint;
mod interference;
pub mod interpret;
pub mod iut;
pub mod kill_matrix;
pub mod measure;
pub mod optional_operations;
pub mod party;
pub mod run;
pub mod serve;
pub mod suite;
pub mod versions;
