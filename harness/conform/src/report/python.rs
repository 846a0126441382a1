//! A folder with a reproducer for each red finding, and an index.

use std::fs;
use std::io;
use std::path::Path;

use pmi_fuzzer::triage::reproducer::{FindingSummary, NotReproducible, Reproducer, Symptom, reproducer};
use pmi_judge::Finding;
use pmi_judge::result::{is_interference, is_same_finding};
use pmi_judge::verdict::{JudgedFinding, ScenarioResult};
use pmi_scenario::suite::embedded_files;

use super::run::Run;
use super::{block, text};

/// The file that lists the findings with their reproducers.
const INDEX: &str = "index.txt";

/// Returns the findings that make a run red.
fn red(run: &Run) -> impl Iterator<Item = (&ScenarioResult, &JudgedFinding)> {
    let strict = run.header.strict;
    let results = run.results.iter().filter(move |result| result.is_red(strict));
    let red = move |judged: &&JudgedFinding| strict.makes_red(judged);
    results.flat_map(move |result| result.findings.iter().filter(red).map(move |judged| (result, judged)))
}

/// Returns the text of an embedded or user-provided scenario file, or an empty string if the file no longer exists.
fn source(path: &str) -> String {
    let of_suite = embedded_files().iter().find(|(file, _)| Path::new(path).ends_with(file));
    match of_suite {
        Some((_, text)) => String::from_utf8_lossy(text).into_owned(),
        None => fs::read_to_string(path).unwrap_or_default(),
    }
}

/// Returns a script that reproduces a finding of a run.
///
/// # Errors
///
/// Returns an error if no script can reproduce the finding; see [`NotReproducible`].
pub(super) fn script(
    run: &Run,
    result: &ScenarioResult,
    judged: &JudgedFinding,
) -> Result<Reproducer, NotReproducible> {
    if is_interference(std::slice::from_ref(judged)) {
        return Err(NotReproducible::OtherJob);
    }
    let events = run.events.get(&result.scenario).ok_or(NotReproducible::NotLaunched)?;
    if run.left_out.contains_key(&result.scenario) {
        return Err(NotReproducible::Symptom);
    }
    let symptom = Symptom::of(&judged.finding, events).ok_or(NotReproducible::Symptom)?;
    let title = format!("{}, {}", result.scenario, block::headline(judged));
    let Finding { expected, seen, .. } = &judged.finding;
    let shown = result.attempts.as_ref().and_then(|attempts| {
        let found =
            attempts.found.iter().find(|found| is_same_finding(&found.finding.finding, &judged.finding))?;
        (found.times < attempts.played).then_some((found.times, attempts.played))
    });
    let about = FindingSummary { title: &title, expected, seen, run_counts: shown };
    let source = source(&result.path);
    let quote = |line: usize| {
        line.checked_sub(1).and_then(|line| source.lines().nth(line)).unwrap_or_default().to_owned()
    };
    reproducer(about, events, &symptom, &quote)
}

/// Writes a script for each red finding of the run into a folder.
///
/// # Errors
///
/// Returns an error if the folder cannot be written.
pub(crate) fn write_reproducers(run: &Run, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Delete the scripts from an earlier run, because their findings may no longer occur.
    let earlier = fs::read_to_string(folder.join(INDEX)).unwrap_or_default();
    let names = earlier.lines().filter_map(|line| line.split("  ").next());
    for name in names.filter(|name| Path::new(name).file_name().is_some_and(|file| file == *name)) {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut index = String::new();
    let mut names: Vec<String> = Vec::new();
    for (result, judged) in red(run) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
        let stem: String =
            format!("{}--{}", result.scenario, judged.finding.requirement).chars().map(plain).collect();
        let earlier = names.iter().filter(|name| **name == stem).count();
        let name = if earlier == 0 { stem.clone() } else { format!("{stem}--{}", earlier + 1) };
        names.push(stem);
        let what = format!("{}: {}", text::clean(&result.scenario), text::clean(&judged.finding.requirement));
        match script(run, result, judged) {
            Ok(program) => {
                let name = format!("{name}.{}", program.suffix);
                fs::write(folder.join(&name), program.text)?;
                index += &format!("{name}  {what}\n");
            }
            Err(why) => index += &format!("none: {why}  {what}\n"),
        }
    }
    fs::write(folder.join(INDEX), index)
}
