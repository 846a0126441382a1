//! GitLab's code quality report: a JSON array, which merge requests show and compare with that of the target branch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};

use serde::Serialize;

use super::block::headline;
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::cause::{CommonCause, causes};
use pmi_judge::symptom::fingerprint;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};

/// Maximum number of characters of a description. `PART` limits the expected and the seen text in it.
const DESCRIPTION: usize = 800;
/// Maximum number of characters of a fingerprint.
const FINGERPRINT: usize = 255;
const PART: usize = 200;

#[derive(Serialize)]
struct Issue {
    description: String,
    check_name: String,
    /// Identifies the issue across runs. It contains no times, no line numbers, and no names that an implementation chooses.
    fingerprint: String,
    severity: &'static str,
    location: Location,
    /// The other scenarios with the same issue, as in Code Climate's format. GitLab ignores them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_locations: Vec<Location>,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: LineRange,
}

#[derive(Serialize)]
struct LineRange {
    begin: usize,
}

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut issues: Vec<Issue> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut add = |issue: Issue| match places.entry(issue.fingerprint.clone()) {
        Entry::Occupied(place) => {
            let known = &mut issues[*place.get()];
            known.other_locations.push(issue.location);
            known.other_locations.extend(issue.other_locations);
        }
        Entry::Vacant(place) => {
            place.insert(issues.len());
            issues.push(issue);
        }
    };
    for cause in causes(&run.results).iter().filter(|cause| cause.deviation.is_none()) {
        let Some((result, judged)) = cause.findings.first() else { continue };
        let locations =
            cause.findings.iter().map(|(result, judged)| Location::new(&result.path, judged.finding.line));
        let severity = severity(run, cause, result, judged);
        add(Issue::new(
            cause.requirement,
            &description(cause, judged, run.header.strict),
            fingerprint(cause),
            severity,
            locations,
        ));
    }
    for ((verdict, reason), bare) in tally::red_without_finding(&run.results, run.header.strict) {
        let (label, reason) = (verdict.label(), text::clean(reason));
        let locations = bare.iter().map(|result| Location::new(&result.path, 1));
        add(Issue::new(label, &reason, format!("{label}/{reason}"), "blocker", locations));
    }
    for complaint in run.problems() {
        let (path, line) = complaint.place.as_ref().map_or(("pmi-conform", 1), |(path, line)| (path, *line));
        let fingerprint = format!("run/{}/{}", complaint.name, complaint.key);
        let location = std::iter::once(Location::new(path, line));
        add(Issue::new(&complaint.name, &complaint.text, fingerprint, "major", location));
    }
    // Red issues come first; issues of the same severity are in the order of causes.
    issues.sort_by_key(|issue| ["minor", "info"].iter().position(|severity| issue.severity == *severity));
    serde_json::to_writer_pretty(&mut *out, &issues)?;
    writeln!(out)
}

fn severity(
    run: &Run,
    cause: &CommonCause<'_>,
    result: &ScenarioResult,
    judged: &JudgedFinding,
) -> &'static str {
    let is_worst = matches!(result.verdict, Verdict::Crashed | Verdict::Hung) && judged.level.is_none();
    match tally::shown(judged, cause.is_flaky(), run.header.strict) {
        Severity::Fail if is_worst => "critical",
        Severity::Fail => "major",
        Severity::Warn => "minor",
        Severity::Note => "info",
    }
}

fn description(cause: &CommonCause<'_>, judged: &JudgedFinding, strict: Strictness) -> String {
    let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, PART);
    let others = match cause.findings.len() {
        1 => String::new(),
        n => format!(" ({})", text::count(n, "scenario")),
    };
    let flaky = if tally::is_flaky(judged, cause.is_flaky(), strict) { "flaky: " } else { "" };
    format!("{flaky}{} - expected {expected}, seen {seen}{others}", headline(judged))
}

impl Issue {
    /// Returns an issue at the first of these locations.
    fn new(
        check: &str,
        description: &str,
        fingerprint: String,
        severity: &'static str,
        mut locations: impl Iterator<Item = Location>,
    ) -> Self {
        Self {
            description: text::clip(&text::clean(description), DESCRIPTION),
            check_name: text::clean(check),
            fingerprint: text::clip(&text::clean(&fingerprint), FINGERPRINT),
            severity,
            location: locations.next().unwrap_or_else(|| Location::new("pmi-conform", 1)),
            other_locations: locations.collect(),
        }
    }
}

impl Location {
    fn new(path: &str, line: usize) -> Self {
        Self { path: text::clean(path), lines: LineRange { begin: line.max(1) } }
    }
}
