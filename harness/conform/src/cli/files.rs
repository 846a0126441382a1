//! `scenario check`, `fmt` and `export`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use pmi_runner::suite::{embedded, of_paths, scenario_files};
use pmi_scenario::Diagnostic;
use pmi_scenario::suite::SuiteError;

use super::tell::{say, unusable};

pub(super) fn check(paths: &[PathBuf]) -> anyhow::Result<u8> {
    let suite = if paths.is_empty() { embedded() } else { of_paths(paths) }.map_err(unusable)?;
    let warnings: Vec<Diagnostic> = suite.diagnose();
    for warning in &warnings {
        say(&format!("{}\n", warning.render(false)))?;
    }
    say(&format!("{} scenarios, {} warnings\n", suite.scenarios.len(), warnings.len()))?;
    Ok(0)
}

pub(super) fn export(folder: &Path) -> anyhow::Result<u8> {
    let files = pmi_runner::suite::export(folder).with_context(|| folder.display().to_string())?;
    say(&format!("{files} files written to {}\n", folder.display()))?;
    Ok(0)
}

pub(super) fn fmt(check: bool, paths: &[PathBuf]) -> anyhow::Result<u8> {
    let mut changed = 0;
    for (name, source) in scenario_files(paths).map_err(unusable)? {
        let scenario = pmi_scenario::parse(source.clone(), &name)
            .map_err(|e| unusable(SuiteError::Diagnostics(e).into()))?;
        let text = pmi_scenario::print(&scenario);
        if text != source.text {
            changed += 1;
            say(&format!("{}\n", source.path))?;
            if !check {
                std::fs::write(&source.path, text).with_context(|| source.path.clone())?;
            }
        }
    }
    Ok(u8::from(check && changed > 0))
}
