//! How many scenarios came to what.

use std::collections::{BTreeMap, BTreeSet};

use super::{Run, text};
use pmi_judge::Severity;
use pmi_judge::own::CRASH;
use pmi_judge::verdict::{Judged, ScenarioResult, Strictness, Verdict};

/// Whether a result is bad and only as the deviations say.
pub(super) fn is_known(result: &ScenarioResult) -> bool {
    result.deviates_as_recorded && !matches!(result.verdict, Verdict::NotApplicable | Verdict::Unjudged)
}

/// What a report calls a result.
pub(super) fn label(result: &ScenarioResult) -> &'static str {
    if is_known(result) { "known" } else { result.verdict.label() }
}

/// For people: what a finding counts as.
pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warn => "warn",
        Severity::Fail => "FAIL",
    }
}

/// What a report adds where more than MUST and SHALL is red.
pub(super) fn by_strictness(strict: Strictness) -> &'static str {
    match strict {
        Strictness::Must => "",
        Strictness::Should => " (strict)",
        Strictness::DeFacto => " (strict=de-facto)",
    }
}

/// Counts as the summary words them, in its order. What is rare is left out when it did not happen.
pub(super) fn counts(results: &[ScenarioResult]) -> Vec<(usize, &'static str)> {
    let of = |verdict| results.iter().filter(|r| r.verdict == verdict && !is_known(r)).count();
    let mut counts = vec![
        (of(Verdict::Pass), "passed"),
        (of(Verdict::Fail), "failed (MUST)"),
        (of(Verdict::Crashed), "crashed"),
        (of(Verdict::Hung), "hung"),
        (of(Verdict::Warn), "warned (SHOULD)"),
        (of(Verdict::Note), "noted"),
        (results.iter().filter(|r| is_known(r)).count(), "known"),
        (of(Verdict::NotApplicable), "not applicable"),
        (of(Verdict::Unjudged), "could not judge"),
    ];
    let always = ["passed", "failed (MUST)", "could not judge"];
    counts.retain(|(n, what)| *n > 0 || always.contains(what));
    counts
}

/// What the run's exit status means.
pub(super) fn meaning(run: &Run) -> String {
    let Some(end) = &run.end else {
        let (missing, of) = (run.unfinished(), run.header.selected);
        return format!("cut short: {missing} of {of} scenarios have no result");
    };
    let strict = run.header.strict;
    let red: Vec<_> = run.results.iter().filter(|r| r.is_red(strict)).collect();
    let mut why = Vec::new();
    match end.exit_code {
        0 if end.deviations > 0 => why.push("deviates only as recorded".to_owned()),
        0 => why.push("conforms".to_owned()),
        1 => {
            let came_to = |verdict| red.iter().any(|r| r.verdict == verdict);
            let broken = |severity| {
                let counts = |j: &Judged| j.severity == severity && j.deviation.is_none() && strict.counts(j);
                red.iter().any(|r| r.findings.iter().any(counts))
            };
            let reasons = [
                (came_to(Verdict::Fail), "a MUST or SHALL is broken"),
                (came_to(Verdict::Crashed), "the implementation crashed"),
                (came_to(Verdict::Hung), "the implementation hung"),
                (broken(Severity::Warn), "a SHOULD is broken, and --strict counts it"),
                (
                    broken(Severity::Note),
                    "what implementations agree on is broken, and --strict=de-facto counts it",
                ),
            ];
            why.extend(reasons.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| (*text).to_owned()));
            if !end.stale.is_empty() {
                why.push(format!("{} to delete", text::count(end.stale.len(), "stale deviation")));
            }
        }
        2 => why.push("the command or a scenario is wrong".to_owned()),
        3 => why.push("the harness could not judge".to_owned()),
        4 => why.push("nothing ran".to_owned()),
        130 => why.push("interrupted".to_owned()),
        _ => {}
    }
    if run.unfinished() > 0 {
        why.push(format!("{} without a result", text::count(run.unfinished(), "scenario")));
    }
    format!("exit status {}: {}", end.exit_code, why.join("; ")).trim_end_matches([':', ' ']).to_owned()
}

/// A requirement with the scenarios that found it broken, to the same degree.
pub(super) struct Group<'a> {
    pub(super) requirement: &'a str,
    pub(super) severity: Severity,
    /// Of crashes, which: they have one requirement and many causes.
    pub(super) crash: Option<String>,
    pub(super) scenarios: Vec<&'a str>,
    /// What was seen in more than one of them, and in which: one cause, as a rule.
    pub(super) repeated: Vec<(&'a str, Vec<&'a str>)>,
}

/// A crash without the number of the rank.
fn cluster(judged: &Judged) -> Option<String> {
    let finding = (judged.finding.requirement == CRASH).then_some(&judged.finding)?;
    let rest =
        finding.seen.strip_prefix("rank ").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    Some(rest.map_or(finding.seen.clone(), |rest| format!("a rank{rest}")))
}

/// What was found that no deviation covers, by severity and requirement, the worst first: what is only noted is not listed
/// among what fails.
pub(super) fn groups(results: &[ScenarioResult]) -> Vec<Group<'_>> {
    let mut by_id: BTreeMap<_, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for result in results {
        for judged in result.findings.iter().filter(|j| j.deviation.is_none()) {
            let key = (judged.finding.requirement.as_str(), judged.severity, cluster(judged));
            let seen = by_id.entry(key).or_default().entry(judged.finding.seen.as_str()).or_default();
            seen.insert(&result.scenario);
        }
    }
    let group =
        |((requirement, severity, crash), by_seen): ((_, _, Option<String>), BTreeMap<_, BTreeSet<_>>)| {
            let scenarios: BTreeSet<&str> = by_seen.values().flatten().copied().collect();
            let repeated =
                by_seen.into_iter().filter(|(_, scenarios)| scenarios.len() > 1 && crash.is_none());
            let repeated =
                repeated.map(|(seen, scenarios)| (seen, scenarios.into_iter().collect())).collect();
            Group { requirement, severity, crash, scenarios: scenarios.into_iter().collect(), repeated }
        };
    let mut groups: Vec<Group<'_>> = by_id.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.severity));
    groups
}
