//! Reproducers: programs that show one finding again and need nothing but Python's standard library, or, for a library, a C compiler.

mod about;
mod export;
mod library;
mod python;
mod steps;
mod symptom;

pub use about::{About, Reproducer};
pub use export::reproducer;
pub use symptom::{NotReproducible, Symptom};
