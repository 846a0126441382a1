//! The standing of each requirement in a run.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::tally;
use pmi_judge::Severity;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};
use pmi_scenario::requirement::Catalogue;

/// The standing of an implementation with respect to a requirement. The worst standing comes first and is the one that counts: a pass in
/// one scenario does not offset a finding in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    /// A MUST or SHALL is broken.
    Fails,
    /// The requirement was broken, but not when its scenario was played again.
    Flaky,
    /// A SHOULD is broken.
    Warns,
    /// The requirement is broken, and the recorded deviations cover all findings about it except notes.
    Deviates,
    /// The requirement is broken, but its level makes the finding a note.
    Noted,
    /// A scenario that tests the requirement was completed without a finding about it.
    Passes,
    /// The scenarios that test the requirement ended before they reached it.
    NotReached,
    /// The requirement could not be judged in any scenario.
    NotJudged,
    /// The implementation does not offer the operation.
    NotOffered,
}

impl Status {
    pub(super) const ALL: [Self; 9] = [
        Self::Fails,
        Self::Flaky,
        Self::Warns,
        Self::Deviates,
        Self::Noted,
        Self::Passes,
        Self::NotReached,
        Self::NotJudged,
        Self::NotOffered,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Flaky => "flaky",
            Self::Warns => "breaks a SHOULD",
            Self::Noted => "noted",
            Self::Deviates => "deviates as recorded",
            Self::Passes => "passes",
            Self::NotReached => "not reached",
            Self::NotJudged => "could not judge",
            Self::NotOffered => "not offered",
        }
    }

    /// Returns the standing that a finding shows.
    fn found(judged: &JudgedFinding, result: &ScenarioResult, strict: Strictness) -> Self {
        match judged.severity {
            _ if judged.deviation.is_some() => Self::Deviates,
            _ if tally::is_flaky(judged, result.verdict == Verdict::Flaky, strict) => Self::Flaky,
            Severity::Fail => Self::Fails,
            Severity::Warn => Self::Warns,
            Severity::Note => Self::Noted,
        }
    }

    /// Returns the standing of a requirement in a scenario that tests it and has no finding about it.
    fn without_finding(result: &ScenarioResult) -> Self {
        match result.verdict {
            Verdict::NotApplicable => Self::NotOffered,
            Verdict::Unjudged => Self::NotJudged,
            _ if result.unreached > 0 => Self::NotReached,
            Verdict::Crashed | Verdict::Hung => Self::NotReached,
            Verdict::Pass | Verdict::Note | Verdict::Warn | Verdict::Fail | Verdict::Flaky => Self::Passes,
        }
    }
}

/// Prefixes of requirement ids, in the order in which reports list them.
const SETS: [&str; 6] = ["rfc13.", "pmi2.common.", "pmi2.", "pmi-port.", "hydra.", "mpich-1.2."];

/// Sorts ids for reports: by set, then in the order of the catalogue. Ids that are not in the catalogue come last.
pub(super) fn in_order<'a>(ids: impl Iterator<Item = &'a str>, catalogue: &Catalogue) -> Vec<&'a str> {
    let places: HashMap<&str, usize> = catalogue.iter().zip(0..).map(|(r, at)| (r.id.as_str(), at)).collect();
    let set = |id: &str| SETS.iter().position(|set| id.starts_with(set)).unwrap_or(SETS.len());
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_by_key(|id| {
        let place = places.get(id).copied();
        (place.is_none(), set(id), place, *id)
    });
    ids
}

/// A requirement's standing, with the scenarios that show it.
#[derive(Debug)]
pub(super) struct RequirementStatus<'a> {
    pub(super) standing: Status,
    /// Scenarios that test the requirement, or have a finding about it.
    pub(super) scenarios: Vec<&'a ScenarioResult>,
    /// Number of scenarios that show this standing.
    pub(super) shown_by: usize,
    /// The reason why the operation is not offered, or why the requirement could not be judged or has a deviation.
    pub(super) reason: Option<&'a str>,
}

/// Returns the standing of each requirement that the scenarios test or have findings about.
pub(super) fn requirement_standings<'a>(
    results: &'a [ScenarioResult],
    strict: Strictness,
) -> BTreeMap<&'a str, RequirementStatus<'a>> {
    let mut all: BTreeMap<&str, RequirementStatus<'a>> = BTreeMap::new();
    let mut add = |id, status: Status, result: &'a ScenarioResult, reason| {
        let empty = RequirementStatus { standing: status, scenarios: Vec::new(), shown_by: 0, reason };
        let entry = all.entry(id).or_insert(empty);
        let is_new = !entry.scenarios.last().is_some_and(|last| std::ptr::eq(*last, result));
        if status < entry.standing {
            (entry.standing, entry.reason, entry.shown_by) = (status, reason, 1);
        } else if status == entry.standing && is_new {
            entry.shown_by += 1;
        }
        if is_new {
            entry.scenarios.push(result);
        }
    };
    for result in results {
        for judged in &result.findings {
            let id = judged.finding.requirement.as_str();
            add(id, Status::found(judged, result, strict), result, judged.deviation.as_deref());
        }
        for id in &result.requires {
            if !result.findings.iter().any(|j| j.finding.requirement == *id) {
                add(id.as_str(), Status::without_finding(result), result, result.reason.as_deref());
            }
        }
    }
    all
}
