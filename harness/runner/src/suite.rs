//! Loads the embedded suite and scenario files, which may name the faults and variations of the reference server.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pmi_faults::{fault_names, variation_names};
use pmi_scenario::ast::SourceFile;
use pmi_scenario::suite::{self, EXTENSION, Suite, SuiteError};
use pmi_scenario::{Behaviours, ImplementationKind};

/// The reason why scenario files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The scenarios have errors.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// A file cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A folder contains no scenarios.
    #[error("{}: no .{EXTENSION} files in this folder; name a folder that contains scenarios", .0.display())]
    Empty(PathBuf),
}

fn behaviours() -> Behaviours {
    Behaviours { variations: || variation_names().collect(), faults: || fault_names().collect() }
}

/// Returns the embedded suite.
///
/// # Errors
///
/// Returns an error if the embedded suite is invalid, which the tests rule out.
pub fn embedded() -> Result<Suite, FilesError> {
    // The suite is parsed once and never dropped, because dropping it would take a tenth of the startup time.
    static READ: OnceLock<Suite> = OnceLock::new();
    if let Some(suite) = READ.get() {
        return Ok(suite.clone());
    }
    let suite = Suite::embedded(behaviours())?;
    Ok(READ.get_or_init(|| suite).clone())
}

/// Returns the embedded suite with only those scenarios for which `wanted` returns true. `wanted` receives the kind of implementation that
/// a scenario tests, and the scenario's name. Selecting scenarios saves time, because parsing all of them takes ten times
/// as long as the rest of the startup.
///
/// # Errors
///
/// Returns an error if the embedded suite is invalid, which the tests rule out.
pub fn embedded_part(wanted: impl Fn(ImplementationKind, &str) -> bool) -> Result<Suite, FilesError> {
    Ok(Suite::embedded_part(behaviours(), wanted)?)
}

/// Returns a suite with the scenarios in `paths`, which are files and folders. Without any paths, the suite has only the embedded
/// fragments and requirements.
///
/// # Errors
///
/// Returns an error if a file cannot be read or is invalid, or a folder contains no scenarios.
pub fn of_paths(paths: &[PathBuf]) -> Result<Suite, FilesError> {
    Ok(Suite::of_files(scenario_files(paths)?, behaviours())?)
}

/// Writes the embedded suite into a folder. Returns the number of files.
///
/// # Errors
///
/// Returns an error if the folder cannot be written.
pub fn export(folder: &Path) -> io::Result<usize> {
    let all = suite::embedded_files();
    for (path, bytes) in all {
        let target = folder.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(target, bytes)?;
    }
    Ok(all.len())
}

/// Returns the scenario files in `paths`, which are files and folders, with their names in a suite.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or a folder contains no scenarios.
pub fn scenario_files(paths: &[PathBuf]) -> Result<Vec<(String, Arc<SourceFile>)>, FilesError> {
    let mut all = Vec::new();
    // A file that is given twice, or together with its folder, is used only once, under its first name.
    let mut taken = BTreeSet::new();
    for path in paths {
        let at = |file: &Path| {
            let file = file.to_owned();
            |error| FilesError::File { file, error }
        };
        let mut found = Vec::new();
        find(path, &mut found).map_err(at(path))?;
        if found.is_empty() {
            return Err(FilesError::Empty(path.clone()));
        }
        let root = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("")) };
        for file in found {
            if !taken.insert(file.canonicalize().map_err(at(&file))?) {
                continue;
            }
            let text = std::fs::read_to_string(&file).map_err(at(&file))?;
            let name = file.strip_prefix(root).unwrap_or(&file).with_extension("").display().to_string();
            all.push((name, Arc::new(SourceFile { path: file.display().to_string(), text })));
        }
    }
    Ok(all)
}

fn find(path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        found.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|e| e == EXTENSION) {
            find(&entry, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmi_judge::PartyKind;
    use pmi_judge::deviations::Deviations;
    use pmi_judge::golden;
    use pmi_judge::result::bound_parties;
    use pmi_scenario::ast::{Scenario, Step};
    use pmi_wire::ConnectionMethod;

    use super::*;

    /// A client that rejects one of the variations also fails when all of them are combined, so the combination must not cause a more
    /// severe finding.
    #[test]
    fn combined_variations_do_not_raise_the_severity() {
        let suite = embedded().expect("the embedded suite is valid");
        let level = |scenario: &Scenario| {
            suite.catalogue.get(&scenario.requires[0].value).expect("a requirement").level
        };
        let alone: BTreeMap<_, _> = suite
            .testing(ImplementationKind::Client)
            .filter_map(|s| match &s.server_setup.variations[..] {
                [one] => Some(((s.dialect, one.value.as_str()), s)),
                _ => None,
            })
            .collect();
        let is_combined = |s: &&Arc<Scenario>| s.server_setup.variations.len() > 1;
        let combined: Vec<_> = suite.testing(ImplementationKind::Client).filter(is_combined).collect();
        assert!(!combined.is_empty());
        for scenario in combined {
            for variation in &scenario.server_setup.variations {
                let alone = alone[&(scenario.dialect, variation.value.as_str())];
                assert!(level(scenario) >= level(alone), "{}: {}", scenario.name, variation.value);
            }
        }
    }

    #[test]
    fn scenarios_cite_only_requirements_of_their_party() {
        let suite = embedded().expect("the embedded suite is valid");
        let mut wrong = BTreeSet::new();
        for (party, side) in [
            (ImplementationKind::Server, PartyKind::Server),
            (ImplementationKind::Client, PartyKind::Client),
            (ImplementationKind::Library, PartyKind::Library),
        ] {
            let bound = bound_parties(side);
            for scenario in suite.testing(party) {
                let first = scenario.requires.first().map(|id| id.value.as_str());
                let steps = suite.steps(&scenario.body).flat_map(Step::citations).map(|id| id.value.as_str());
                let ids = steps.chain(first).map(|id| suite.catalogue.get(id).expect("a requirement"));
                let others = ids.filter(|r| !r.binds.iter().any(|party| bound.contains(party)));
                wrong.extend(others.map(|r| format!("{}: {}", scenario.name, r.id)));
            }
        }
        assert_eq!(wrong, BTreeSet::new());
    }

    #[test]
    fn recorded_deviations_refer_to_known_scenarios() {
        let suite = embedded().expect("the embedded suite is valid");
        let (mut files, mut unknown) = (0, Vec::new());
        for folder in golden::folders() {
            let path = Path::new(folder).join("deviations.toml");
            let Some(text) = golden::file(&path) else { continue };
            let deviations =
                Deviations::parse(&path, text, None, ConnectionMethod::Fd).expect("a valid file");
            files += 1;
            let first = deviations.first_unknown_scenario(&suite);
            unknown.extend(first.map(|(line, name)| format!("{}:{line}: {name}", path.display())));
        }
        assert!(files > 0 && unknown.is_empty(), "{files} files, {unknown:?}");
    }
}
