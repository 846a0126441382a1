//! Reproducers: programs that show one finding again and need nothing but Python's standard library, or, for a library, a C compiler.

mod export;
mod library;
mod python;
mod steps;
mod summary;
mod symptom;

pub use export::reproducer;
pub use summary::{FindingSummary, Reproducer};
pub use symptom::{NotReproducible, Symptom};
