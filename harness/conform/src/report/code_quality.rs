//! The code quality report of GitLab: a JSON array that merge requests show, and compare with that of the target branch.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::block::headline;
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::verdict::{Judged, ScenarioResult, Verdict};

/// Characters of a description, and of what was expected and seen in it.
const DESCRIPTION: usize = 800;
const PART: usize = 200;

#[derive(Serialize)]
struct Issue {
    description: String,
    check_name: String,
    /// What makes it the same one in another run: neither times nor what was seen, which may hold names that change.
    fingerprint: String,
    severity: &'static str,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: usize,
}

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut issues: BTreeMap<String, Issue> = BTreeMap::new();
    let mut add = |issue: Issue| {
        issues.entry(issue.fingerprint.clone()).or_insert(issue);
    };
    for result in &run.results {
        let fresh = result.findings.iter().filter(|judged| judged.deviation.is_none());
        for judged in fresh {
            add(finding(run, result, judged));
        }
        if tally::is_bare(result, run.header.strict) {
            let why = result.reason.as_deref().unwrap_or_default();
            add(issue(result, result.verdict.label(), why, "blocker", 1));
        }
    }
    for complaint in run.complaints() {
        add(Issue {
            fingerprint: format!("run/{}/{}", complaint.name, complaint.text),
            description: complaint.text,
            check_name: complaint.name,
            severity: "major",
            location: Location { path: "pmi-conform".to_owned(), lines: Lines { begin: 1 } },
        });
    }
    serde_json::to_writer_pretty(&mut *out, &issues.into_values().collect::<Vec<_>>())?;
    writeln!(out)
}

fn finding(run: &Run, result: &ScenarioResult, judged: &Judged) -> Issue {
    let severity = match judged.severity {
        _ if matches!(result.verdict, Verdict::Crashed | Verdict::Hung) && judged.level.is_none() => {
            "critical"
        }
        _ if run.header.strict.counts(judged) => "major",
        Severity::Fail | Severity::Warn => "minor",
        Severity::Note => "info",
    };
    let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, PART);
    let says = format!("{} - expected {expected}, seen {seen}", headline(judged));
    issue(result, &judged.finding.requirement, &says, severity, judged.finding.line.max(1))
}

fn issue(result: &ScenarioResult, check: &str, says: &str, severity: &'static str, line: usize) -> Issue {
    Issue {
        description: text::clip(&text::clean(says), DESCRIPTION),
        check_name: text::clean(check),
        fingerprint: text::clean(&format!("{}/{check}", result.scenario)),
        severity,
        location: Location { path: text::clean(&result.path), lines: Lines { begin: line } },
    }
}
