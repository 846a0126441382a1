//! Selects the scenarios to play: by name, by requirement, by an earlier run, or by shard. A pattern that matches no scenario is reported
//! as an error, with a suggestion.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory;
use pmi_judge::verdict::ScenarioResult;
use pmi_runner::hint::hint;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Dialect, Scenario};
use pmi_scenario::names::NamePattern;
use pmi_scenario::suite::Suite;

use super::args::{Cli, Play};
use super::output::{SCENARIO_LIST_HINT, scenario_errors};
use super::read::read_run;
use crate::report::KeptEvents;

/// A `--filter` pattern.
pub(super) enum Filter<'a> {
    Exactly(&'a str),
    Like(NamePattern),
    With(&'a str),
}

impl<'a> Filter<'a> {
    fn new(pattern: &'a str) -> Self {
        match pattern.strip_prefix('=') {
            Some(exact) => Self::Exactly(exact),
            None if pattern.contains('*') => Self::Like(NamePattern::new(pattern)),
            None => Self::With(pattern),
        }
    }

    pub(super) fn all(patterns: &'a [String]) -> Vec<Self> {
        patterns.iter().map(|pattern| Self::new(pattern)).collect()
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exactly(exact) => *exact == name,
            Self::Like(pattern) => pattern.matches(name),
            Self::With(part) => name.contains(part),
        }
    }
}

/// Returns the name of the file that contains a scenario: the scenario's name without the name of the table row.
pub(super) fn file_name(name: &str) -> &str {
    Scenario::split_row(name).0
}

/// Returns the kind of implementation that `--client` and `--library` select.
pub(super) fn under_test(client: Option<&str>, library: Option<&Path>) -> ImplementationKind {
    match (client, library) {
        (Some(_), _) => ImplementationKind::Client,
        (None, Some(_)) => ImplementationKind::Library,
        (None, None) => ImplementationKind::Server,
    }
}

/// Loads the scenarios in the user's files or, if no files are given, the embedded scenarios that the filters could select.
///
/// # Errors
///
/// Returns an error if a file cannot be read or is invalid, or a folder contains no scenarios.
pub(super) fn suite_for(args: &Play) -> anyhow::Result<Suite> {
    if !args.paths.is_empty() {
        return pmi_runner::suite::of_paths(&args.paths).map_err(scenario_errors);
    }
    let kind = under_test(args.client.as_deref(), args.library.as_deref());
    let filters = Filter::all(&args.filter);
    // If a requirement is selected, all scenarios of this kind are read, because it is an error if none of them tests the requirement.
    let any = filters.is_empty() || !args.requirement.is_empty();
    let wanted =
        |tests, name: &str| tests == kind && (any || filters.iter().any(|filter| filter.matches(name)));
    pmi_runner::suite::embedded_part(wanted).map_err(scenario_errors)
}

/// Checks that the given paths can be scenario files.
///
/// # Errors
///
/// Returns an error if a path is a misspelt command, the name of a scenario or of a folder of the suite, or a program.
pub(super) fn are_scenario_files(args: &Play) -> anyhow::Result<()> {
    for path in &args.paths {
        let word = path.display().to_string();
        if path.is_file() && path.extension().is_none_or(|ending| ending != pmi_scenario::suite::EXTENSION) {
            let executable = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
            let program = if word.contains('/') { word.clone() } else { format!("./{word}") };
            anyhow::ensure!(
                !executable,
                "{word}: this is a program, not a scenario file; test a process manager with --server '{program} -n {{ranks}} {{agent}}', a program with --client {program}, and a library with --library {program}"
            );
        }
        if path.exists() {
            continue;
        }
        let suite = pmi_runner::suite::embedded().map_err(scenario_errors)?;
        let named = |name: &str| name == word || file_name(name) == word.trim_end_matches(".pmi");
        if suite.scenarios.iter().any(|s| named(&s.name)) {
            anyhow::bail!(
                "{word}: no such file; to play the scenario with this name, use --filter '={word}'"
            );
        }
        let folder = format!("{}/", word.trim_end_matches('/'));
        if suite.scenarios.iter().any(|s| s.name.starts_with(&folder)) {
            anyhow::bail!(
                "{word}: no such folder; to play the built-in scenarios in {folder}, use --filter {folder}"
            );
        }
        if word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
            let commands = Cli::command();
            let all = commands.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name());
            anyhow::bail!("{word}: no such command or scenario file{}", hint(&word, all, "see --help"));
        }
    }
    Ok(())
}

/// Describes the scenarios that match but are not played: scenarios in a different dialect or for a different kind of implementation.
fn describe_other_matches(
    suite: &Suite,
    kind: ImplementationKind,
    fits: impl Fn(&Scenario) -> bool,
) -> Option<String> {
    let all: Vec<&Arc<Scenario>> = suite.scenarios.iter().filter(|s| fits(s)).collect();
    let example = file_name(&all.first()?.name);
    if let Some(here) = all.iter().find(|s| s.tests == kind) {
        let (title, word) = (here.dialect.title(), here.dialect);
        let example = file_name(&here.name);
        return Some(format!("{title} scenarios, such as {example}; pass --dialect {word} to play them"));
    }
    let (whose, option) = match all.first()?.tests {
        ImplementationKind::Server => ("process managers", "--server"),
        ImplementationKind::Client => ("programs", "--client"),
        ImplementationKind::Library => ("libraries", "--library"),
    };
    Some(format!("scenarios for {whose}, such as {example}; pass {option} to test one"))
}

/// Returns the selected scenarios, in the order of the suite.
///
/// # Errors
///
/// Returns an error if a pattern matches no scenario that is played, or the log of `--rerun-failed` cannot be read.
pub(super) fn select(suite: &Suite, args: &Play, dialects: &[Dialect]) -> anyhow::Result<Vec<Arc<Scenario>>> {
    let kind = under_test(args.client.as_deref(), args.library.as_deref());
    let is_played = |s: &&Arc<Scenario>| s.tests == kind && dialects.contains(&s.dialect);
    let playable: Vec<&Arc<Scenario>> = suite.scenarios.iter().filter(is_played).collect();
    let filters = Filter::all(&args.filter);
    // Only part of the suite was read, but suggestions must consider all of it.
    let whole = || {
        if args.paths.is_empty() {
            pmi_runner::suite::embedded().map_err(scenario_errors)
        } else {
            Ok(suite.clone())
        }
    };
    let fits_none = |(_, filter): &(&String, &Filter<'_>)| !playable.iter().any(|s| filter.matches(&s.name));
    if let Some((pattern, filter)) = args.filter.iter().zip(&filters).find(fits_none) {
        let whole = whole()?;
        let in_pmi2 = match pattern.strip_prefix('=') {
            Some(exact) => format!("=pmi2/{exact}"),
            None => format!("pmi2/{pattern}"),
        };
        let pmi2_filter = Filter::new(&in_pmi2);
        if whole.scenarios.iter().filter(is_played).any(|s| pmi2_filter.matches(&s.name)) {
            anyhow::bail!("--filter {pattern}: matches no PMI-2 scenario; use --filter '{in_pmi2}'");
        }
        if let Some(where_to) = describe_other_matches(&whole, kind, |s| filter.matches(&s.name)) {
            anyhow::bail!("--filter {pattern}: matches only {where_to}");
        }
        let names = || whole.scenarios.iter().filter(is_played).map(|s| s.name.as_str());
        let folders = names().filter_map(|name| name.rfind('/').map(|end| &name[..=end]));
        let word = pattern.trim_start_matches('=').trim_end_matches('*');
        anyhow::bail!(
            "--filter {pattern}: matches no scenario{}",
            hint(word, names().chain(folders), SCENARIO_LIST_HINT)
        );
    }
    let requirements: Vec<NamePattern> = args.requirement.iter().map(|id| NamePattern::new(id)).collect();
    for (word, pattern) in args.requirement.iter().zip(&requirements) {
        let tests = |s: &Scenario| s.requires.iter().any(|r| pattern.matches(&r.value));
        if playable.iter().any(|s| tests(s)) {
            continue;
        }
        if let Some(where_to) = describe_other_matches(&whole()?, kind, tests) {
            anyhow::bail!("--requirement {word}: tested only by {where_to}");
        }
        let ids = || suite.catalogue.iter().map(|requirement| requirement.id.as_str());
        match suite.catalogue.iter().find(|requirement| pattern.matches(&requirement.id)) {
            Some(one) => {
                let why = one.excluded.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                anyhow::bail!("--requirement {word}: no scenario tests {}{why}", one.id);
            }
            None => anyhow::bail!("--requirement {word}: matches no requirement{}", hint(word, ids(), "")),
        }
    }
    let mut selected: Vec<Arc<Scenario>> = playable
        .into_iter()
        .filter(|s| filters.is_empty() || filters.iter().any(|filter| filter.matches(&s.name)))
        .filter(|s| {
            requirements.is_empty()
                || requirements.iter().any(|id| s.requires.iter().any(|r| id.matches(&r.value)))
        })
        .cloned()
        .collect();
    if let Some(path) = &args.rerun_failed {
        let log = read_run(path, KeptEvents::Nothing)?;
        let red: Vec<&ScenarioResult> = log.results.iter().filter(|r| r.is_red(log.header.strict)).collect();
        selected.retain(|s| red.iter().any(|r| r.scenario == s.name) || log.cut.contains(&s.name));
    }
    if let Some((k, n)) = args.shard {
        let mut at = 0;
        selected.retain(|_| (at % n + 1 == k, at += 1).0);
    }
    Ok(selected)
}
