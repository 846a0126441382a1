//! TAP 14.

use std::io::{self, Write};

use super::block::{FINDINGS, party_and_process, place};
use super::run::Run;
use super::{tally, text};
use pmi_judge::verdict::{ScenarioResult, Strictness, Verdict};

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let complaints = run.problems();
    writeln!(out, "TAP version 14")?;
    writeln!(out, "# {}", run.title())?;
    writeln!(out, "1..{}", run.results.len() + complaints.len())?;
    let mut number = 0;
    for result in &run.results {
        number += 1;
        point(result, number, run.header.strict, out)?;
    }
    for complaint in complaints {
        number += 1;
        writeln!(out, "not ok {number} - {}: {}", escape(&complaint.name), escape(&complaint.text))?;
    }
    writeln!(out, "# {}", tally::meaning(run))
}

fn point(result: &ScenarioResult, number: usize, strict: Strictness, out: &mut dyn Write) -> io::Result<()> {
    let known = result.is_known();
    let ok = if known || result.is_red(strict) { "not ok" } else { "ok" };
    let reason = result.reason.as_deref().unwrap_or_default();
    let directive = match result.verdict {
        Verdict::NotApplicable => format!(" # SKIP {}", escape(&text::clean(reason))),
        _ if known => {
            let why = result.findings.iter().find_map(|judged| judged.deviation.as_deref());
            format!(" # TODO deviates as recorded: {}", escape(&text::clean(why.unwrap_or_default())))
        }
        _ => String::new(),
    };
    let line = format!("{ok} {number} - {}{directive}", escape(&text::clean(&result.scenario)));
    writeln!(out, "{}", line.trim_end())?;
    if matches!(result.verdict, Verdict::Pass | Verdict::NotApplicable) {
        return Ok(());
    }
    writeln!(out, "  ---\n  verdict: {}", yaml(result.verdict.label()))?;
    if !reason.is_empty() {
        writeln!(out, "  message: {}", yaml(reason))?;
    }
    if let Some(exit) = result.exit {
        writeln!(out, "  exit: {}", yaml(&exit.to_string()))?;
    }
    writeln!(out, "  replay: {}", yaml(&result.replay))?;
    if !result.findings.is_empty() {
        writeln!(out, "  findings:")?;
    }
    for judged in result.findings.iter().take(FINDINGS) {
        writeln!(out, "    - requirement: {}", yaml(&judged.finding.requirement))?;
        let level = judged.level.map(|level| level.to_string());
        let fields = [
            ("level", level.as_deref()),
            ("severity", Some(tally::finding_label(judged, result.verdict == Verdict::Flaky, strict))),
            ("text", Some(judged.text.as_str()).filter(|text| !text.is_empty())),
            ("at", Some(&place(result, judged))),
            ("by", Some(&party_and_process(judged))),
            ("expected", Some(judged.finding.expected.as_str())),
            ("seen", Some(judged.finding.seen.as_str())),
            ("input", judged.valid_input.then_some("valid")),
            ("help", Some(judged.help.as_str()).filter(|help| !help.is_empty())),
            ("known", judged.deviation.as_deref()),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                writeln!(out, "      {key}: {}", yaml(value))?;
            }
        }
    }
    if let Some(more @ 1..) = result.findings.len().checked_sub(FINDINGS) {
        writeln!(out, "  more_findings: {more}")?;
    }
    writeln!(out, "  ...")
}

/// Escapes a description, because a hash in it would begin a directive.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('#', "\\#")
}

/// Formats a YAML string, since every JSON string is one.
fn yaml(text: &str) -> String {
    text::safe_json(&serde_json::Value::from(text).to_string()).into_owned()
}
