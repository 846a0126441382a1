//! GitLab's code quality report: a JSON array. In a merge request, GitLab shows how the report differs from that of the target branch.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::block::headline;
use super::run::Run;
use super::sarif::UserFiles;
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::cause::causes;
use pmi_judge::symptom::fingerprint;
use pmi_judge::verdict::Verdict;

const MAX_DESCRIPTION_LENGTH: usize = 800;
const MAX_FINGERPRINT_LENGTH: usize = 255;
/// Maximum length of a finding's `expected` or `seen` field, in characters.
const MAX_PART_LENGTH: usize = 200;

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let strict = run.header.strict;
    let is_end = |verdict| matches!(verdict, Verdict::Crashed | Verdict::Hung);
    let files = UserFiles::of(run);
    let mut issues: Vec<Value> = Vec::new();
    let mut add = |check: &str, text: &str, fingerprint: &str, severity: &str, places: &[(&str, usize)]| {
        let place = |(path, line): (&str, usize)| json!({ "path": text::clean(path), "lines": { "begin": line.max(1) } });
        // GitLab requires a location, so the file is named even if it is not in the user's repository.
        let located = places.iter().map(|&(path, line)| files.locate(path, line).unwrap_or((path, line)));
        let mut places: Vec<_> = located.collect();
        places.dedup();
        let mut places = places.into_iter().map(place);
        // The fingerprint contains no times, no line numbers, and no names that an implementation chooses, so it is the same in every run.
        let fingerprint = text::clip(&text::clean(fingerprint), MAX_FINGERPRINT_LENGTH);
        if let Some(known) = issues.iter_mut().find(|issue| issue["fingerprint"] == *fingerprint) {
            known["other_locations"]
                .as_array_mut()
                .into_iter()
                .for_each(|others| others.extend(places.by_ref()));
            return;
        }
        issues.push(json!({
            "check_name": text::clean(check),
            "description": text::clip(&text::clean(text), MAX_DESCRIPTION_LENGTH),
            "fingerprint": fingerprint,
            "severity": severity,
            "location": places.next(),
            "other_locations": places.collect::<Vec<_>>(),
        }));
    };
    for cause in causes(&run.results).iter().filter(|cause| cause.deviation.is_none()) {
        let Some((result, judged)) = cause.findings.first() else { continue };
        let severity = match tally::shown(judged, cause.is_flaky(), strict) {
            Severity::Fail if is_end(result.verdict) && judged.level.is_none() => "critical",
            Severity::Fail => "major",
            Severity::Warn => "minor",
            Severity::Note => "info",
        };
        let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, MAX_PART_LENGTH);
        let others = match cause.findings.len() {
            1 => String::new(),
            n => format!(" ({})", text::count(n, "scenario")),
        };
        let flaky = if tally::is_flaky(judged, cause.is_flaky(), strict) { "flaky: " } else { "" };
        let text = format!("{flaky}{} - expected {expected}, seen {seen}{others}", headline(judged));
        let places: Vec<_> = cause.findings.iter().map(|(r, j)| (&*r.path, j.finding.line)).collect();
        add(cause.requirement, &text, &fingerprint(cause), severity, &places);
    }
    for ((verdict, reason), results) in tally::red_without_finding(&run.results, strict) {
        let places: Vec<_> = results.iter().map(|result| (&*result.path, 1)).collect();
        let (label, reason) = (verdict.label(), text::clean(reason));
        add(label, &reason, &format!("{label}/{reason}"), "blocker", &places);
    }
    for problem in run.problems() {
        let place = problem.place.as_ref().map_or(("pmi-conform", 1), |(path, line)| (path, *line));
        add(
            &problem.name,
            &problem.text,
            &format!("run/{}/{}", problem.name, problem.key),
            "major",
            &[place],
        );
    }
    // Red issues come first; issues of the same severity are in the order of causes.
    issues.sort_by_key(|issue| ["minor", "info"].iter().position(|severity| issue["severity"] == *severity));
    serde_json::to_writer_pretty(&mut *out, &issues)?;
    writeln!(out)
}
