//! The scenario language: what a scenario file says ([`ast`]), how it is read ([`parse`]), what makes it
//! wrong ([`check()`]), how it is laid out ([`format()`]) and how mistakes are shown ([`Diagnostic`]).
//!
//! The language itself is described, with its grammar, in `scenarios/README.md`.

pub mod ast;
mod check;
mod client;
mod diag;
mod expr;
mod format;
mod layout;
mod parser;
mod template;

#[cfg(test)]
mod tests;
pub mod vocabulary;

pub use ast::UnderTest;
pub use check::{Env, check};
pub use diag::{Diagnostic, Severity};

pub use format::format;
pub use parser::parse;
pub use template::Field;
