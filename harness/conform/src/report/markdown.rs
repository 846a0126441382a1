//! Markdown for the summary of a CI step.

use std::io::{self, Write};

use super::block::place;
use super::{Run, tally, text};
use crate::verdict::{Judged, ScenarioResult};

/// CI services cut or refuse long summaries; the log has the rest.
const ROWS: usize = 50;
/// Characters of a cell.
const CELL: usize = 120;

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", cell(&run.title()))?;
    let counts = tally::counts(&run.results);
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    writeln!(out, "{}", row(counts.iter().map(|(_, what)| (*what).to_owned()).collect()))?;
    writeln!(out, "{}", row(counts.iter().map(|_| "---:".to_owned()).collect()))?;
    writeln!(out, "{}", row(counts.iter().map(|(n, _)| n.to_string()).collect()))?;
    let strict = if run.header.strict { " (strict)" } else { "" };
    writeln!(out, "\n{}{strict}", cell(&tally::meaning(run)))?;

    let results = run.by_name();
    let strict = run.header.strict;
    let (red, others): (Vec<_>, Vec<_>) = results.into_iter().partition(|r| r.is_red(strict));
    section(out, "Failures", &rows(&red, |judged| judged.deviation.is_none()))?;
    let complaints = run.complaints();
    if !complaints.is_empty() {
        writeln!(out, "\n### The run\n")?;
    }
    for complaint in complaints.iter().take(ROWS) {
        writeln!(out, "- {}: {}", cell(&complaint.name), cell(&complaint.text))?;
    }
    more(out, complaints.len())?;
    let all: Vec<_> = red.iter().chain(&others).copied().collect();
    section(out, "Deviations as recorded", &rows(&all, |judged| judged.deviation.is_some()))?;
    section(out, "Notes and warnings", &rows(&others, |judged| judged.deviation.is_none()))
}

struct Row<'a> {
    result: &'a ScenarioResult,
    judged: Option<&'a Judged>,
}

fn rows<'a>(results: &[&'a ScenarioResult], wanted: fn(&Judged) -> bool) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for result in results {
        rows.extend(result.findings.iter().filter(|j| wanted(j)).map(|j| Row { result, judged: Some(j) }));
        // What could not be judged has a reason and no finding.
        if result.findings.is_empty() && result.is_red(false) {
            rows.push(Row { result, judged: None });
        }
    }
    rows
}

fn section(out: &mut dyn Write, title: &str, rows: &[Row<'_>]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let known = rows.iter().any(|row| row.judged.is_some_and(|j| j.deviation.is_some()));
    let last = if known { " Reason |" } else { "" };
    writeln!(out, "\n### {title}\n\n| Verdict | Scenario | Requirement | Expected | Seen |{last}")?;
    writeln!(out, "|---|---|---|---|---|{}", if known { "---|" } else { "" })?;
    for Row { result, judged } in rows.iter().take(ROWS) {
        let (requirement, expected, seen, at) = match judged {
            None => {
                (String::new(), "", result.reason.as_deref().unwrap_or_default(), text::clean(&result.path))
            }
            Some(judged) => {
                let level = judged.level.map(|level| format!(" ({level})")).unwrap_or_default();
                let requirement = format!("{}{level}", cell(&judged.finding.requirement));
                (
                    requirement,
                    judged.finding.expected.as_str(),
                    judged.finding.seen.as_str(),
                    place(result, judged),
                )
            }
        };
        let name = format!("{}<br>{}", cell(&result.scenario), cell(&at));
        let verdict = result.verdict.label();
        write!(out, "| {verdict} | {name} | {requirement} | {} | {} |", cell(expected), cell(seen))?;
        match judged.and_then(|j| j.deviation.as_deref()) {
            Some(reason) => writeln!(out, " {} |", cell(reason))?,
            None => writeln!(out)?,
        }
    }
    more(out, rows.len())
}

fn more(out: &mut dyn Write, all: usize) -> io::Result<()> {
    match all.checked_sub(ROWS) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "\n{more} more are in the log."),
    }
}

/// Text that is nothing but text, in a table as elsewhere. Entities where Markdown's own escapes do not help:
/// tables see the pipe before the backslash, and GitHub the person behind the at sign.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text::clip(&text::clean(text), 0, CELL).chars() {
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
