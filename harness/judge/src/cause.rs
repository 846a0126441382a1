//! Findings that come, as a rule, of one mistake: the same requirement, and the same seen but for the numbers in it.

use std::collections::HashMap;

use crate::verdict::{Judged, ScenarioResult};
use crate::{Finding, Severity};

/// Numbers behind these words tell one mistake from another. Others are of ranks, processes, lines and what was sent.
const TELLING: [&str; 5] = ["signal ", "rc=", "status ", "version=", "RFC "];

/// Findings of one mistake, as a rule.
#[derive(Debug, Clone)]
pub struct CommonCause<'a> {
    /// The requirement that is broken.
    pub requirement: &'a str,
    /// What it counts as.
    pub severity: Severity,
    /// Whether a deviation covers it.
    pub known: bool,
    /// The findings, one for each scenario, in the order of the results.
    pub findings: Vec<(&'a ScenarioResult, &'a Judged)>,
}

/// What is seen, with `#` for numbers that any other scenario may have otherwise. Where a process died is what tells a crash from
/// others.
pub fn shape(finding: &Finding) -> String {
    let seen = finding.seen.as_str();
    let place = finding.place.as_ref().map(|place| format!("(in {place}"));
    match place.as_ref().and_then(|place| seen.rsplit_once(place.as_str())) {
        Some((before, after)) => masked(before) + place.as_deref().unwrap_or_default() + &masked(after),
        None => masked(seen),
    }
}

fn masked(seen: &str) -> String {
    let mut shape = String::with_capacity(seen.len());
    let mut rest = seen;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        shape.push_str(before);
        let tells = TELLING.iter().any(|word| before.trim_end_matches('-').ends_with(word));
        shape.push_str(if tells { &from[..end] } else { "#" });
        rest = &from[end..];
    }
    shape.push_str(rest);
    shape
}

/// The causes of what results have found, the worst first, and among equals in the order of the results.
pub fn causes(results: &[ScenarioResult]) -> Vec<CommonCause<'_>> {
    let mut all: Vec<CommonCause<'_>> = Vec::new();
    let mut places = HashMap::new();
    for result in results {
        for judged in &result.findings {
            let (requirement, severity) = (judged.finding.requirement.as_str(), judged.severity);
            let known = judged.deviation.is_some();
            let place =
                *places.entry((requirement, severity, known, shape(&judged.finding))).or_insert_with(|| {
                    all.push(CommonCause { requirement, severity, known, findings: Vec::new() });
                    all.len() - 1
                });
            let findings = &mut all[place].findings;
            // The same once more in a scenario says nothing new.
            if !findings.last().is_some_and(|(last, _)| std::ptr::eq(*last, result)) {
                findings.push((result, judged));
            }
        }
    }
    all.sort_by_key(|cause| (cause.known, std::cmp::Reverse(cause.severity)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;
    use crate::backtrace::Place;

    fn seen(text: &str) -> String {
        seen_in(text, None)
    }

    fn seen_in(text: &str, place: Option<Place>) -> String {
        shape(&Finding { place, ..Finding::new("rfc13.get.value", Side::Server, "", text) })
    }

    #[test]
    fn numbers_make_no_difference_but_where_they_tell() {
        for (one, other) in [
            ("rank 0 died of signal 11", "rank 12 died of signal 11"),
            ("\"cmd=get_result rc=-1 value=a1\"", "\"cmd=get_result rc=-1 value=a23\""),
        ] {
            assert_eq!(seen(one), seen(other));
        }
        for (one, other) in [
            ("rank 0 died of signal 11", "rank 0 died of signal 6"),
            ("\"cmd=get_result rc=-1\"", "\"cmd=get_result rc=0\""),
            ("pmi_version=1", "pmi_version=2"),
            ("silence", "the end of the connection"),
        ] {
            assert_ne!(seen(one), seen(other));
        }
    }

    #[test]
    fn a_crash_in_another_function_is_another() {
        let died = |offset| {
            let place = Place::Address { module: "pm-2".into(), offset };
            seen_in(&format!("rank 7 died of signal 11 (in {place})"), Some(place))
        };
        assert_eq!(died(0x1a2), "rank # died of signal 11 (in pm-2+0x1a2)");
        assert_ne!(died(0x1a2), died(0x3a4));
    }
}
