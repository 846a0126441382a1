//! PMI libraries under test. For each rank, a process of the harness loads the library and makes the calls of the scenario, while the
//! runner holds the other end of the process's PMI_FD.
//!
//! - [`pmi_process::agent::library`] is the process: it loads the library, calls its functions, and reports the results.
//! - `launch` starts these processes and reads from them.
//! - `object` reads the library's file without executing it.

pub(crate) mod launch;
mod object;

use std::path::Path;

use pmi_judge::event::EventKind;
use pmi_scenario::ast::Dialect;

pub use launch::Library;
pub(crate) use launch::LibraryParty;
pub use object::UnreadableLibrary;

/// Returns the functions that a library exports. The result is empty if the library's file cannot be read.
pub fn exports(path: &Path) -> Vec<String> {
    match object::read(path) {
        Ok(EventKind::LibraryFile { functions, .. }) => functions,
        _ => Vec::new(),
    }
}

/// Checks that a file is a shared library that exports functions of PMI-1 or PMI-2.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not a shared library, or exports no function of PMI-1 or PMI-2.
pub fn check(path: &Path) -> Result<(), UnreadableLibrary> {
    object::read(path).map(drop)
}

/// Returns the dialects whose C API a library exports. A library that exports neither API is treated as exporting RFC 13's API; [`check`]
/// reports the error.
pub fn apis_or_first(path: &Path) -> Vec<Dialect> {
    let apis = apis(path);
    if apis.is_empty() { vec![Dialect::default()] } else { apis }
}

/// Returns the dialects whose C API a library exports. The result is empty if the library's file cannot be read.
pub fn apis(path: &Path) -> Vec<Dialect> {
    object::apis(&exports(path))
}
