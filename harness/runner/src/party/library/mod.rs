//! PMI libraries under test: a process of ours for each rank loads the library and makes the calls that a scenario says,
//! while the runner holds the other end of its PMI_FD.
//!
//! - [`crate::agent::library`] is the process: it loads, calls, and tells what came back,
//! - `launch` starts these processes and listens to them,
//! - `object` reads what can be seen without running anything.

pub(crate) mod launch;
mod object;

use std::path::Path;

use pmi_judge::event::What;
use pmi_scenario::ast::Dialect;
use pmi_scenario::signature;

pub use launch::Library;
pub(crate) use launch::LibraryParty;
pub use object::UnreadableLibrary;

/// The functions that a library exports; none if its file cannot be looked into.
pub fn exports(path: &Path) -> Vec<String> {
    match object::read(path) {
        Ok(What::LibraryFile { functions, .. }) => functions,
        _ => Vec::new(),
    }
}

/// Whether a file is a shared library.
///
/// # Errors
///
/// It cannot be looked into, or is none.
pub fn check(path: &Path) -> Result<(), UnreadableLibrary> {
    object::read(path).map(drop)
}

/// Whose C API a library has, by the functions that it exports; none if its file cannot be looked into.
pub fn apis(path: &Path) -> Vec<Dialect> {
    let functions = exports(path);
    let has =
        |dialect| signature::functions(dialect).iter().any(|f| functions.iter().any(|name| name == f.name));
    Dialect::NAMES.map(|(_, dialect)| dialect).into_iter().filter(|dialect| has(*dialect)).collect()
}
