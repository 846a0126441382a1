//! The space of what an implementation may meet: for a server what it may be asked (`scenarios/inputs.toml`), for a client or a
//! library what it may be told (`scenarios/replies.toml`), and which cells of these tables the scenarios play.
//!
//! A table says which messages there are and which pairs of axes make cells. What a scenario covers is computed: `walk` goes
//! through it with nobody at the other end, `classify` reads each message off the bytes that would have been sent, and `requests`
//! and `replies` know what it means that they are sent there.

mod axes;
mod classify;
mod replies;
mod requests;
mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use axes::{Inputs, InputsError};
pub use table::{Cell, Status};
