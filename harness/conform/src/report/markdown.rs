//! Markdown for the job summary of a CI step.

use std::io::{self, Write};

use super::block::place;
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::cause::{CommonCause, causes};
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Strictness};

/// Maximum number of rows. CI services truncate or reject long summaries; the log contains everything.
const MAX_ROWS: usize = 50;
/// Maximum length of a cell, in characters.
const MAX_CELL_LENGTH: usize = 120;
/// Maximum length of the text about a problem with the run, in characters.
const MAX_PROBLEM_LENGTH: usize = 1000;

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", cell(&run.title()))?;
    let counts = tally::counts(&run.results, run.header.strict);
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    writeln!(out, "{}", row(counts.iter().map(|(_, what)| (*what).to_owned()).collect()))?;
    writeln!(out, "{}", row(counts.iter().map(|_| "---:".to_owned()).collect()))?;
    writeln!(out, "{}", row(counts.iter().map(|(n, _)| n.to_string()).collect()))?;
    let strict = run.header.strict;
    writeln!(out, "\n{}{}", tally::meaning(run), tally::by_strictness(strict))?;

    let (known, new): (Vec<_>, Vec<_>) =
        causes(&run.results).into_iter().partition(|cause| cause.deviation.is_some());
    let (red, others): (Vec<_>, Vec<_>) = new
        .iter()
        .partition(|cause| tally::shown(cause.findings[0].1, cause.is_flaky(), strict) == Severity::Fail);
    let mut failures: Vec<_> = red.into_iter().map(|cause| CauseRow::of(cause, strict)).collect();
    let bare = tally::red_without_finding(&run.results, strict);
    failures.extend(bare.iter().map(|((verdict, _), all)| CauseRow {
        label: verdict.label(),
        result: all[0],
        judged: None,
        special: String::new(),
        scenarios: all.len(),
    }));
    section(out, "Failures", &failures)?;
    let complaints = run.problems();
    if !complaints.is_empty() {
        writeln!(out, "\n### The run\n")?;
    }
    for complaint in complaints.iter().take(MAX_ROWS) {
        let text = escape(&text::clip(&complaint.text, MAX_PROBLEM_LENGTH));
        writeln!(out, "- {}: {text}", cell(&complaint.name))?;
    }
    more(out, complaints.len())?;
    section(
        out,
        "Deviations as recorded",
        &known.iter().map(|cause| CauseRow::of(cause, strict)).collect::<Vec<_>>(),
    )?;
    section(
        out,
        "Notes and warnings",
        &others.into_iter().map(|cause| CauseRow::of(cause, strict)).collect::<Vec<_>>(),
    )
}

/// A cause, with the first scenario that shows it.
struct CauseRow<'a> {
    label: &'static str,
    result: &'a ScenarioResult,
    judged: Option<&'a JudgedFinding>,
    /// The other requirements that findings with this cause cite, formatted as a suffix.
    special: String,
    /// Number of scenarios with this cause.
    scenarios: usize,
}

impl<'a> CauseRow<'a> {
    fn of(cause: &CommonCause<'a>, strict: Strictness) -> Self {
        let (result, judged) = cause.findings[0];
        let label = tally::finding_label(judged, cause.is_flaky(), strict);
        let special = tally::name_special(&tally::special_requirements(cause));
        Self { label, result, judged: Some(judged), special, scenarios: cause.findings.len() }
    }
}

fn section(out: &mut dyn Write, title: &str, rows: &[CauseRow<'_>]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let known = rows.iter().any(|row| row.judged.is_some_and(|j| j.deviation.is_some()));
    let last = if known { " Reason |" } else { "" };
    writeln!(out, "\n### {title}\n\n| Verdict | Scenario | Requirement | Expected | Seen |{last}")?;
    writeln!(out, "|---|---|---|---|---|{}", if known { "---|" } else { "" })?;
    for CauseRow { label, result, judged, special, scenarios } in rows.iter().take(MAX_ROWS) {
        let (requirement, (expected, seen), at) = match judged {
            None => {
                let reason = text::clean(result.reason.as_deref().unwrap_or_default());
                (String::new(), (String::new(), reason), text::clean(&result.path))
            }
            Some(judged) => {
                let level = judged.level.map(|level| format!(" ({level})")).unwrap_or_default();
                let input = if judged.valid_input { ", valid input" } else { "" };
                let requirement =
                    format!("{}{level}{input}{}", cell(&judged.finding.requirement), escape(special));
                let texts = match judged.finding.requirement.as_str() {
                    NO_CRASH => [&judged.finding.expected, &judged.finding.seen]
                        .map(|words| text::clip_middle(&text::clean(words), MAX_CELL_LENGTH))
                        .into(),
                    _ => text::window(&judged.finding.expected, &judged.finding.seen, MAX_CELL_LENGTH),
                };
                (requirement, texts, place(result, judged))
            }
        };
        let others = match scenarios {
            1 => String::new(),
            n => format!("<br>and {}", text::count(n - 1, "other scenario")),
        };
        let name = format!("{}<br>{}{others}", cell(&result.scenario), cell(&at));
        let (expected, seen) = (escape(&expected), escape(&seen));
        write!(out, "| {label} | {name} | {requirement} | {expected} | {seen} |")?;
        match judged.and_then(|j| j.deviation.as_deref()) {
            Some(reason) => writeln!(out, " {} |", cell(reason))?,
            None => writeln!(out)?,
        }
    }
    more(out, rows.len())
}

fn more(out: &mut dyn Write, all: usize) -> io::Result<()> {
    match all.checked_sub(MAX_ROWS) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "\n{more} more are in the log."),
    }
}

/// Escapes untrusted text and shortens it for a table.
pub(super) fn cell(text: &str) -> String {
    escape(&text::clip(&text::clean(text), MAX_CELL_LENGTH))
}

/// Escapes text for tables and paragraphs. Entities replace the characters that a backslash does not protect in Markdown: a table splits
/// even at an escaped pipe, and GitHub treats even an escaped at sign as the start of a user name.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' => out.push_str("&#124;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' => out.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '#' | '!' | '$' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}
