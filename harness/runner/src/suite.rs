//! The suite as the reference server can play it.

use std::path::PathBuf;

use pmi_reference::fault::{faults, variations};
use pmi_scenario::Behaviours;
use pmi_scenario::suite::{Suite, SuiteError};

fn behaviours() -> Behaviours {
    Behaviours {
        variations: variations().map(|v| v.name).collect(),
        faults: faults().map(|f| f.name).collect(),
    }
}

/// The embedded suite.
///
/// # Errors
///
/// See [`Suite::embedded`].
pub fn embedded() -> Result<Suite, SuiteError> {
    Suite::embedded(behaviours())
}

/// The scenarios of these files and folders.
///
/// # Errors
///
/// See [`Suite::of_paths`].
pub fn of_paths(paths: &[PathBuf]) -> Result<Suite, SuiteError> {
    Suite::of_paths(paths, behaviours())
}
