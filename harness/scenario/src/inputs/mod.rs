//! The space of what an implementation may meet: for a server what it may be asked (`scenarios/inputs.toml`), for a client or a
//! library what it may be told (`scenarios/replies.toml`), and which cells of these tables the scenarios play. PMI-2 has its own
//! tables, in `scenarios/pmi2`.
//!
//! A table says which messages there are and which pairs of axes make cells. What a scenario covers is computed: `walk` goes
//! through it with nobody at the other end, `stream` cuts the bytes that would have been sent into messages, `classify` reads each
//! of them, and `requests` and `replies` know what it means that they are sent there. What differs by protocol is how a message
//! ends and how it is read, and what it is called that does the same.

mod axes;
mod classify;
mod examples;
mod replies;
mod requests;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use axes::{Inputs, InputsError};
pub use table::{Cell, Status};
