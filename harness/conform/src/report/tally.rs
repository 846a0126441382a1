//! Counts of scenarios by verdict, and groups of findings.

use std::collections::BTreeMap;

use super::run::Run;
use super::text;
use pmi_judge::Severity;
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::cause::{CommonCause, causes, key};
use pmi_judge::result::{self, PRINTED};
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};

/// Returns whether a result is red without a finding that explains why. The result's `reason` may contain the explanation.
pub(super) fn is_red_without_finding(result: &ScenarioResult, strict: Strictness) -> bool {
    result.is_red(strict) && (result.findings.is_empty() || result.verdict == Verdict::Unjudged)
}

/// Returns the scenarios that are red without a finding, by verdict and reason. Reasons that differ only in a duration, or in the output of
/// a launcher, are merged. The merged reason is that of the first scenario whose launcher printed output without a warning, or of the first
/// scenario if there is none.
pub(super) fn red_without_finding(
    results: &[ScenarioResult],
    strict: Strictness,
) -> Vec<((Verdict, &str), Vec<&ScenarioResult>)> {
    let mut bare: BTreeMap<(Verdict, String), Vec<&ScenarioResult>> = BTreeMap::new();
    for result in results.iter().filter(|result| is_red_without_finding(result, strict)) {
        bare.entry((result.verdict, reason_shape(reason(result)))).or_default().push(result);
    }
    bare.into_iter()
        .map(|((verdict, _), results)| {
            let reasons = || results.iter().map(|result| reason(result));
            let first = reasons().find(|reason| reason.contains(PRINTED) && !reason.contains("arning"));
            let shown = first.or_else(|| reasons().next()).unwrap_or_default();
            ((verdict, shown), results)
        })
        .collect()
}

fn reason(result: &ScenarioResult) -> &str {
    result.reason.as_deref().unwrap_or_default()
}

/// Returns a reason with a placeholder for each duration, and without the output of a launcher.
pub(super) fn reason_shape(reason: &str) -> String {
    let own = reason.split(PRINTED).next().unwrap_or_default();
    let is_time = |word: &str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        unit.len() < word.len() && ["ns", "µs", "ms", "s"].contains(&unit)
    };
    own.split(' ').map(|word| if is_time(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
}

/// Returns the verdict that reports show: a result that is red only because of `--strict` is a failure.
pub(super) fn verdict(result: &ScenarioResult, strict: Strictness) -> Verdict {
    match result.verdict {
        Verdict::Note | Verdict::Warn if result.is_red(strict) => Verdict::Fail,
        verdict => verdict,
    }
}

/// Returns whether a finding is flaky: it would make the run red, but its scenario was green when played again (`was_green`).
pub(super) fn is_flaky(judged: &JudgedFinding, was_green: bool, strict: Strictness) -> bool {
    was_green && strict.makes_red(judged)
}

/// Returns the severity that reports show. A finding that is red only because of `--strict` is a failure, and a flaky finding is a warning.
pub(super) fn shown(judged: &JudgedFinding, was_green: bool, strict: Strictness) -> Severity {
    match strict.makes_red(judged) {
        true if was_green => Severity::Warn,
        true => Severity::Fail,
        false => judged.severity,
    }
}

/// Returns the label of a finding in reports, such as `FLAKY` or `FAIL`.
pub(super) fn finding_label(judged: &JudgedFinding, was_green: bool, strict: Strictness) -> &'static str {
    match is_flaky(judged, was_green, strict) {
        true => Verdict::Flaky.label(),
        false => shown(judged, was_green, strict).label(),
    }
}

pub(super) fn label(result: &ScenarioResult, strict: Strictness) -> &'static str {
    if result.is_known() { "known" } else { verdict(result, strict).label() }
}

/// Returns the suffix that names the strictness in reports, or an empty string if only MUSTs and SHALLs are red.
pub(super) fn by_strictness(strict: Strictness) -> &'static str {
    match strict {
        Strictness::Must => "",
        Strictness::Should => " (strict)",
        Strictness::DeFacto => " (strict=de-facto)",
    }
}

/// Formats the number of scenarios for each verdict.
pub(crate) fn counts_text(run: &Run) -> String {
    format_counts(&counts(&run.results, run.header.strict))
}

/// Formats counts as one line.
pub(super) fn format_counts(counts: &[(usize, &str)]) -> String {
    counts.iter().map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
}

/// Counts the scenarios by verdict, in the wording and order of the summary. Rare verdicts are omitted if their count is 0.
pub(super) fn counts(results: &[ScenarioResult], strict: Strictness) -> Vec<(usize, &'static str)> {
    let all = result::counts(results);
    // Count the warnings and notes that are red because of the strictness.
    let strictly =
        |of: Verdict| results.iter().filter(|r| r.verdict == of && verdict(r, strict) != of).count();
    let (should, de_facto) = (strictly(Verdict::Warn), strictly(Verdict::Note));
    let of = |verdict| all.get(&verdict).copied().unwrap_or(0);
    let mut counts = vec![
        (of(Verdict::Pass), "passed"),
        (of(Verdict::Fail), "failed (MUST)"),
        (should, "failed (SHOULD)"),
        (de_facto, "failed (de facto)"),
        (of(Verdict::Crashed), "crashed"),
        (of(Verdict::Hung), "hung"),
        (of(Verdict::Flaky), "flaky"),
        (of(Verdict::Warn) - should, "warned (SHOULD)"),
        (of(Verdict::Note) - de_facto, "noted"),
        (results.iter().filter(|result| result.is_known()).count(), "known"),
        (of(Verdict::NotApplicable), "not applicable"),
        (of(Verdict::Unjudged), "could not judge"),
    ];
    let always = ["passed", "failed (MUST)", "could not judge"];
    counts.retain(|(n, what)| *n > 0 || always.contains(what));
    counts
}

/// Describes the exit status of the run.
pub(super) fn meaning(run: &Run) -> String {
    let Some(end) = &run.end else {
        let (missing, of) = (run.unfinished(), run.header.selected);
        return format!("interrupted: {missing} of {of} scenarios have no result");
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
                let counts = |j: &JudgedFinding| j.severity == severity && strict.makes_red(j);
                red.iter().any(|r| r.findings.iter().any(counts))
            };
            let reasons = [
                (came_to(Verdict::Fail), "a MUST or SHALL is broken"),
                (came_to(Verdict::Crashed), "the implementation crashed"),
                (came_to(Verdict::Hung), "the implementation hung"),
                (broken(Severity::Warn), "a SHOULD is broken, and --strict counts it"),
                (broken(Severity::Note), "a de facto requirement is broken, and --strict=de-facto counts it"),
            ];
            why.extend(reasons.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| (*text).to_owned()));
            if !end.stale.is_empty() {
                why.push(format!("{} to delete", text::count(end.stale.len(), "stale deviation")));
            }
        }
        2 => why.push("the command line or a scenario is invalid".to_owned()),
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

/// A requirement, and the scenarios with findings of equal severity about it.
pub(super) struct RequirementTally<'a> {
    pub(super) requirement: &'a str,
    pub(super) severity: Severity,
    /// Number of scenarios in which valid input reaches the finding. These scenarios come first in `scenarios`.
    valid_input_count: usize,
    /// True if the scenarios passed when they were played again.
    pub(super) is_flaky: bool,
    /// The location of a crash, or else the signal. All crashes share a requirement but may have different causes.
    pub(super) crash: Option<String>,
    pub(super) first: (&'a ScenarioResult, &'a JudgedFinding),
    /// Other requirements that findings with this cause cite, each with the number of scenarios.
    pub(super) special: BTreeMap<&'a str, usize>,
    pub(super) scenarios: Vec<&'a str>,
    /// Observations that several scenarios share, each with its scenarios. Usually, each of these observations has a separate cause.
    pub(super) repeated: Vec<(&'a str, Vec<&'a str>)>,
}

impl RequirementTally<'_> {
    /// Returns the severity that reports show; see the function [`shown`].
    pub(super) fn shown(&self, strict: Strictness) -> Severity {
        shown(self.first.1, self.is_flaky, strict)
    }

    /// Returns the label that reports show; see [`finding_label`].
    pub(super) fn label_for(&self, strict: Strictness) -> &'static str {
        finding_label(self.first.1, self.is_flaky, strict)
    }

    /// Returns a one-line name for the cause. It consists of the requirement, a note if valid input reaches the cause, the observed
    /// behaviour if the cause is a crash, and the other requirements that findings cite.
    pub(super) fn name(&self) -> String {
        let what = self.crash.as_ref().map(|_| format!(": {}", text::clean(&self.first.1.finding.seen)));
        let input = match (self.valid_input_count, self.scenarios.len()) {
            (0, _) => String::new(),
            (valid, all) if valid == all => " (valid input)".to_owned(),
            (valid, all) => format!(" (valid input in {valid} of {all})"),
        };
        let special = name_special(&self.special);
        format!("{}{input}{}{special}", text::clean(self.requirement), what.unwrap_or_default())
    }
}

/// Returns the other requirements that findings with this cause cite, with the number of scenarios for each.
pub(super) fn special_requirements<'a>(cause: &CommonCause<'a>) -> BTreeMap<&'a str, usize> {
    let mut special = BTreeMap::new();
    for (_, judged) in cause.findings.iter().filter(|(_, j)| j.finding.requirement != cause.requirement) {
        *special.entry(judged.finding.requirement.as_str()).or_default() += 1;
    }
    special
}

/// Formats the result of [`special_requirements`] as a suffix that names each requirement and its number of scenarios.
pub(super) fn name_special(special: &BTreeMap<&str, usize>) -> String {
    let cited = |(id, times): (&&str, &usize)| {
        format!(", cited as {} in {}", text::clean(id), text::count(*times, "scenario"))
    };
    special.iter().map(cited).collect()
}

/// Returns the causes that no deviation covers, by severity and requirement, in the order of [`causes`].
pub(super) fn groups(results: &[ScenarioResult], strict: Strictness) -> Vec<RequirementTally<'_>> {
    let mut groups: Vec<RequirementTally<'_>> = Vec::new();
    for cause in causes(results).into_iter().filter(|cause| cause.deviation.is_none()) {
        let Some(&first) = cause.findings.first() else { continue };
        let crash = (cause.requirement == NO_CRASH).then(|| key(&first.1.finding));
        let (valid, other): (Vec<_>, Vec<_>) = cause.findings.iter().partition(|(_, j)| j.valid_input);
        let scenarios: Vec<&str> =
            valid.iter().chain(&other).map(|(result, _)| result.scenario.as_str()).collect();
        let is_same = |group: &&mut RequirementTally<'_>| {
            (group.requirement, group.severity, group.is_flaky)
                == (cause.requirement, cause.severity, cause.is_flaky())
                && group.crash == crash
                && strict.makes_red(group.first.1) == strict.makes_red(first.1)
        };
        let special = special_requirements(&cause);
        let repeated = (scenarios.len() > 1 && crash.is_none())
            .then(|| (first.1.finding.seen.as_str(), scenarios.clone()));
        match groups.iter_mut().find(is_same) {
            Some(group) => {
                for (number, name) in scenarios.into_iter().enumerate() {
                    if group.scenarios.contains(&name) {
                        continue;
                    }
                    if number < valid.len() {
                        group.scenarios.insert(group.valid_input_count, name);
                        group.valid_input_count += 1;
                    } else {
                        group.scenarios.push(name);
                    }
                }
                group.repeated.extend(repeated);
                special.into_iter().for_each(|(id, times)| *group.special.entry(id).or_default() += times);
            }
            None => groups.push(RequirementTally {
                requirement: cause.requirement,
                severity: cause.severity,
                valid_input_count: valid.len(),
                is_flaky: cause.is_flaky(),
                crash,
                first,
                special,
                scenarios,
                repeated: repeated.into_iter().collect(),
            }),
        }
    }
    groups
}

/// Returns the reasons why scenarios were not played, each with the number of scenarios. The most frequent reason comes first.
pub(super) fn not_played(results: &[ScenarioResult]) -> Vec<(&str, usize)> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for result in results.iter().filter(|r| r.verdict == Verdict::NotApplicable) {
        *reasons.entry(result.reason.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    reasons
}
