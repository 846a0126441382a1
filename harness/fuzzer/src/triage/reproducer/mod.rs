//! Reproducers: programs that show a finding again. They need only Python's standard library or, for the finding of a library, a C
//! compiler.

mod export;
mod library;
mod python;
mod steps;
mod summary;
mod symptom;

pub use export::reproducer;
pub use summary::{FindingSummary, Reproducer};
pub use symptom::{NotReproducible, Symptom};
