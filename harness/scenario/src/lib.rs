#![forbid(unsafe_code)]
//! The scenario language: its syntax tree ([`ast`]), parser ([`parse`]), checker ([`check()`]), visitor ([`visit`]), printer ([`print()`])
//! and error messages ([`Diagnostic`]).
//!
//! `scenarios/README.md` documents the language and its grammar.

pub mod ast;
mod check;
mod client;
mod construct;
mod diag;
mod equal;
mod expr;
mod layout;
pub mod names;
mod order;
mod parser;
mod print;
pub mod requirement;
pub mod scope;
pub mod signature;
mod spell;
pub mod suite;
mod table;
mod template;

#[cfg(test)]
mod tests;
pub mod visit;
pub mod vocabulary;

/// The ids of the requirements in the catalogue.
pub mod ids {
    include!(concat!(env!("OUT_DIR"), "/ids.rs"));

    /// Returns the id as a static string; `None` if the catalogue does not contain it.
    pub fn find(id: &str) -> Option<&'static str> {
        ALL.binary_search(&id).ok().map(|at| ALL[at])
    }
}

pub use ast::ImplementationKind;
pub use check::{Env, check};
pub use diag::{Diagnostic, DiagnosticKind};
pub use expr::MAX_GROUP;
pub use vocabulary::Behaviours;

pub use parser::parse;
pub use print::print;
pub use template::TemplateField;
