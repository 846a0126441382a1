//! `scenario check`, `scenario fmt` and `scenario export`: check, format and export scenario files.

use std::path::{Path, PathBuf};

use anyhow::Context;
use pmi_runner::suite::{embedded, of_paths, scenario_files};
use pmi_scenario::Diagnostic;
use pmi_scenario::suite::SuiteError;

use super::output::{print, scenario_errors};

pub(super) fn check(paths: &[PathBuf]) -> anyhow::Result<u8> {
    let suite = if paths.is_empty() { embedded() } else { of_paths(paths) }.map_err(scenario_errors)?;
    let warnings: Vec<Diagnostic> = suite.diagnose();
    for warning in &warnings {
        print(&format!("{}\n", warning.render(false)))?;
    }
    print(&format!("{} scenarios, {} warnings\n", suite.scenarios.len(), warnings.len()))?;
    Ok(0)
}

pub(super) fn export(folder: &Path) -> anyhow::Result<u8> {
    let files = pmi_runner::suite::export(folder).with_context(|| folder.display().to_string())?;
    print(&format!("wrote {files} files to {}\n", folder.display()))?;
    Ok(0)
}

pub(super) fn fmt(check: bool, paths: &[PathBuf]) -> anyhow::Result<u8> {
    let mut changed = 0;
    for (name, source) in scenario_files(paths).map_err(scenario_errors)? {
        let scenario = pmi_scenario::parse(source.clone(), &name)
            .map_err(|e| scenario_errors(SuiteError::Diagnostics(e).into()))?;
        let text = pmi_scenario::print(&scenario);
        if text != source.text {
            changed += 1;
            print(&format!("{}\n", source.path))?;
            if !check {
                std::fs::write(&source.path, text).with_context(|| source.path.clone())?;
            }
        }
    }
    Ok(u8::from(check && changed > 0))
}
