//! Reads the inputs of commands: suites, deviations and logs.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use pmi_judge::deviations::{Deviations, Version};
use pmi_runner::hint::hint;
use pmi_scenario::requirement::Catalogue;
use pmi_scenario::suite::{Suite, embedded_catalogue};
use pmi_wire::ConnectionMethod;

use super::output::{SCENARIO_LIST_HINT, scenario_errors};
use crate::report::{KeptEvents, NamedRun, Run, read_log};

/// Returns the embedded suite without its scenarios, and with these sets of requirements enabled.
pub(super) fn suite_against(sets: &[String]) -> anyhow::Result<Suite> {
    let mut suite = pmi_runner::suite::of_paths(&[]).map_err(scenario_errors)?;
    enable_sets(&mut suite.catalogue, sets);
    Ok(suite)
}

/// Returns the embedded requirements with these sets enabled. They suffice to judge a recorded session.
pub(super) fn catalogue_against(sets: &[String]) -> anyhow::Result<Catalogue> {
    let mut catalogue = embedded_catalogue()?;
    enable_sets(&mut catalogue, sets);
    Ok(catalogue)
}

pub(super) fn enable_sets(catalogue: &mut Catalogue, sets: &[String]) {
    for set in sets {
        catalogue.enable_set(set);
    }
}

/// Rejects deviations whose scenario is neither in `suite` nor in the embedded suite. Commands that do not play scenarios skip this check,
/// because they do not load the user's own scenarios.
pub(super) fn check_scenarios(path: &Path, deviations: &Deviations, suite: &Suite) -> anyhow::Result<()> {
    let Some((line, name)) = deviations.first_unknown_scenario(suite) else { return Ok(()) };
    let hint = hint(name, suite.names(), SCENARIO_LIST_HINT);
    anyhow::bail!("{}:{line}: unknown scenario {name}{hint}", path.display())
}

/// Reads the known deviations for this version of an implementation.
pub(super) fn read_deviations(
    path: &Path,
    version: Option<&Version>,
    connection: ConnectionMethod,
    suite: &Suite,
) -> anyhow::Result<Deviations> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let deviations = Deviations::parse(path, &text, version, connection)?;
    if let Some((line, id)) = deviations.first_unknown_requirement(suite) {
        let hint = hint(
            id,
            suite.catalogue.iter().map(|r| r.id.as_str()),
            "`pmi-conform explain requirements` lists all requirements",
        );
        anyhow::bail!("{}:{line}: unknown requirement {id}{hint}", path.display());
    }
    match deviations.count_unexplained() {
        0 => {}
        1 => writeln!(
            anstream::stderr(),
            "warning: {}: 1 entry has no reason; add its reason",
            path.display()
        )?,
        n => writeln!(
            anstream::stderr(),
            "warning: {}: {n} entries have no reason; add their reasons",
            path.display()
        )?,
    }
    Ok(deviations)
}

pub(super) fn read_run(path: &Path, keep: KeptEvents) -> anyhow::Result<Run> {
    let (name, log) = open_log(path)?;
    Ok(read_log(&name, log, keep)?)
}

/// Opens a log. Returns the log's name for messages, and a reader of its lines.
pub(super) fn open_log(path: &Path) -> anyhow::Result<(String, io::BufReader<std::fs::File>)> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    Ok((name, io::BufReader::with_capacity(1 << 18, file)))
}

/// Parses `NAME=LOG` or `LOG`, and reads the log.
pub(super) fn named_run(log: &str) -> anyhow::Result<NamedRun> {
    let (name, path) = match log.split_once('=').filter(|_| !Path::new(log).exists()) {
        Some((name, path)) => (Some(name.to_owned()), path),
        None => (None, log),
    };
    let run = read_run(Path::new(path), KeptEvents::Nothing)?;
    let header = &run.header;
    let name = name.or_else(|| header.implementation.clone()).unwrap_or_else(|| header.server.clone());
    Ok(NamedRun { name, run })
}
