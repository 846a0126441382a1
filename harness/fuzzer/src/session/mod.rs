//! Sessions of campaigns: a [`case`] is a scenario with metadata. A generator chooses the operations (`op`) of a `plan`. The messages of
//! the plan consist of `fields`, and are converted to statements (`statement`, `pieces`). `reading` parses messages from bytes.

pub mod case;
pub(crate) mod decisions;
pub(crate) mod fields;
pub mod op;
pub(crate) mod pieces;
pub(crate) mod plan;
pub(crate) mod reading;
pub(crate) mod statement;
#[cfg(test)]
pub(crate) mod testing;

use std::io;
use std::path::PathBuf;

/// An error while writing a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", file.display())]
pub struct WriteError {
    /// The file.
    pub file: PathBuf,
    /// The cause.
    pub error: io::Error,
}
