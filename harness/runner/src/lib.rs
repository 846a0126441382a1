//! The runner: the parties of a scenario, and the interpreter that plays scenarios over them.

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
