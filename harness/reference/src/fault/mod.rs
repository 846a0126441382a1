//! Faults and variations of the reference's two sides, as data.
//!
//! A [`Fault`] is one named way of breaking RFC 13, a [`Variation`] one named way of keeping it unusually. Both are an effect
//! (see [`crate::behaviour`]) and an occasion. To add one, add a row to the table of its chapter:
//!
//! | chapter | what the server does wrong |
//! |---|---|
//! | `environment` | `PMI_*` variables and the descriptor |
//! | `reading` | how it takes bytes for requests |
//! | `framing` | the form of every response, and how many there are |
//! | `init`, `job_info`, `responses` | what single responses say |
//! | `kvs`, `mapping` | what is stored and what is read |
//! | `barrier`, `spawn`, `names`, `keyval_space` | what these operations do |
//! | `errors`, `ending` | protocol errors, abort, finalize |
//! | `group_barrier` | PMI-1.2: what barriers of groups do, and what is lawful there |
//! | `pmi2` | PMI-2, all of it, and what is lawful there |
//! | `variations` | nothing: it is unusual and lawful |
//!
//! [`client`] has the faults and variations of clients.

mod barrier;
mod catalogue;
pub mod client;
mod ending;
mod environment;
mod errors;
mod framing;
mod group_barrier;
mod init;
mod job_info;
mod keyval_space;
mod kvs;
mod mapping;
mod names;
mod pmi2;
mod reading;
mod responses;
mod row;
mod spawn;
mod variations;

pub use catalogue::{faults, variations};
pub use row::{Fault, Variation, behaviour};
