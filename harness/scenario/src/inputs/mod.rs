//! The space of what a server may be asked: the table in `scenarios/inputs.toml`, and which of its cells the scenarios play.
//!
//! The table says which operations there are and which pairs of axes make cells. What a scenario covers is computed: `walk`
//! plays it against nobody, with the limits and names that a server might have told, and `classify` reads each request off the
//! bytes that would have been sent.

mod axes;
mod classify;
mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use axes::{Inputs, InputsError};
pub use table::{Cell, Status};
