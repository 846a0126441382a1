//! How a conversation comes about: processes, agents, sockets, and what plays scenarios over them.

pub mod agent;
pub mod client;
pub mod hydra;
pub mod interpret;
pub mod launch;
pub mod library;
pub mod mutants;
pub mod play;
pub mod process;
pub mod record;
pub mod run;
pub mod serve;
pub mod suite;
