//! A run as TAP 14 (Test Anything Protocol).

use std::io::{self, Write};

use super::block::{LOG_OPTION, MAX_FINDINGS, Palette, ResultBlock};
use super::run::Run;
use super::{tally, text};
use pmi_judge::verdict::{ScenarioResult, Strictness, Verdict};

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let problems = run.problems();
    let points = run.results.len() + problems.len();
    writeln!(out, "TAP version 14\n# {}\n1..{points}", run.title())?;
    for (result, number) in run.results.iter().zip(1..) {
        point(result, number, run.header.strict, out)?;
    }
    for (problem, number) in problems.iter().zip(run.results.len() + 1..) {
        writeln!(out, "not ok {number} - {}: {}", escape(&problem.name), escape(&problem.text))?;
    }
    writeln!(out, "# {}", tally::meaning(run))
}

fn point(result: &ScenarioResult, number: usize, strict: Strictness, out: &mut dyn Write) -> io::Result<()> {
    let ok = if result.is_known() || result.is_red(strict) { "not ok" } else { "ok" };
    let deviation = result.findings.iter().find_map(|judged| judged.deviation.as_deref());
    let directive = match result.verdict {
        Verdict::NotApplicable => format!(" # SKIP {}", escape(result.reason.as_deref().unwrap_or_default())),
        _ if result.is_known() => {
            format!(" # TODO deviates as recorded: {}", escape(deviation.unwrap_or_default()))
        }
        _ => String::new(),
    };
    let line = format!("{ok} {number} - {}{directive}", escape(&result.scenario));
    writeln!(out, "{}", line.trim_end())?;
    if matches!(result.verdict, Verdict::Pass | Verdict::NotApplicable) {
        return Ok(());
    }
    let block = ResultBlock { result, palette: Palette::PLAIN, verbose: false, strict, log: LOG_OPTION };
    let broken: Vec<&str> =
        result.findings.iter().map(|j| &*j.finding.requirement).take(MAX_FINDINGS).collect();
    let broken = text::safe_json(&serde_json::json!(broken).to_string()).into_owned();
    // The number after `|` is the indentation of the block. It is required, because the first line of the block is indented further.
    writeln!(out, "  ---\n  verdict: {}\n  requirements: {broken}\n  details: |2", result.verdict.label())?;
    for line in block.to_string().lines() {
        writeln!(out, "    {line}")?;
    }
    writeln!(out, "  ...")
}

/// Cleans and escapes a description, because a hash in it would begin a directive.
fn escape(text: &str) -> String {
    text::clean(text).replace('\\', "\\\\").replace('#', "\\#")
}
