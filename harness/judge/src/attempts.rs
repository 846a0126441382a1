//! A scenario that was played more than once: which of the attempts counts, and how often each finding was seen.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::cause::shape;
use crate::verdict::{Attempts, Repeated, ScenarioResult, Strictness, Verdict};

/// Different findings that are counted; whoever has more has other worries.
const FOUND: usize = 200;

/// Makes one result of those of all attempts: that of the first of the worst attempts, with what all have found. Says also which one
/// that was. Where only what was red was `retried`, one that is not red in the end is flaky.
///
/// `None` if there was no attempt.
pub fn together(
    all: Vec<ScenarioResult>,
    retried: bool,
    strict: Strictness,
) -> Option<(usize, ScenarioResult)> {
    let played = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let red = u32::try_from(all.iter().filter(|r| r.is_red(strict)).count()).unwrap_or(u32::MAX);
    let badness = |r: &ScenarioResult| (r.is_red(strict), r.findings.iter().map(|j| j.severity).max());
    let (index, _) = all.iter().enumerate().max_by_key(|(at, r)| (badness(r), Reverse(*at)))?;
    let mut found: Vec<Repeated> = Vec::new();
    let mut keys: Vec<(&str, String)> = Vec::new();
    for result in &all {
        let mut counted = HashSet::new();
        for judged in &result.findings {
            let key = (judged.finding.requirement.as_str(), shape(&judged.finding));
            let at = keys.iter().position(|known| *known == key);
            if at.is_none() && keys.len() >= FOUND {
                continue;
            }
            let at = at.unwrap_or_else(|| {
                keys.push(key);
                found.push(Repeated { times: 0, judged: judged.clone() });
                found.len() - 1
            });
            // Several of one kind in one attempt are one.
            found[at].times += u32::from(counted.insert(at));
        }
    }
    let time_us = all.iter().map(|r| r.time_us).sum();
    let mut result = all.into_iter().nth(index)?;
    result.time_us = time_us;
    if retried && red > 0 && red < played {
        result.verdict = Verdict::Flaky;
    }
    // What was played once, and not again, needs no counting.
    if played > 1 {
        result.attempts = Some(Attempts { played, red, found });
    }
    Some((index, result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Judged;
    use crate::{Finding, Severity, Side};

    fn result(seen: &[&str]) -> ScenarioResult {
        let judged = |seen: &&str| Judged {
            finding: Finding {
                requirement: "rfc13.get.value".into(),
                party: Side::Server,
                proc: None,
                seq: 0,
                line: 0,
                at_most: None,
                expected: String::new(),
                seen: (*seen).to_owned(),
                kind: None,
            },
            level: None,
            severity: Severity::Fail,
            text: String::new(),
            step: String::new(),
            deviation: None,
        };
        ScenarioResult {
            scenario: "get/value".into(),
            summary: String::new(),
            verdict: if seen.is_empty() { Verdict::Pass } else { Verdict::Fail },
            deviates_as_recorded: false,
            findings: seen.iter().map(judged).collect(),
            reason: None,
            unreached: 0,
            exit: None,
            requires: Vec::new(),
            time_us: 1,
            replay: String::new(),
            path: String::new(),
            last_events: Vec::new(),
            attempts: None,
        }
    }

    #[test]
    fn the_first_of_the_worst_counts_and_all_findings_are_counted() {
        let all = vec![result(&[]), result(&["silence", "value=1"]), result(&["value=2"])];
        let (index, worst) = together(all.clone(), false, Strictness::Must).unwrap();
        assert_eq!((index, worst.verdict, worst.time_us), (1, Verdict::Fail, 3));
        let attempts = worst.attempts.unwrap();
        assert_eq!((attempts.played, attempts.red), (3, 2));
        let times: Vec<_> =
            attempts.found.iter().map(|f| (f.judged.finding.seen.as_str(), f.times)).collect();
        assert_eq!(times, [("silence", 1), ("value=1", 2)], "numbers make no other finding");

        let (_, flaky) = together(all, true, Strictness::Must).unwrap();
        assert_eq!(flaky.verdict, Verdict::Flaky);
        assert!(!flaky.is_red(Strictness::DeFacto) && !flaky.findings.is_empty());
    }

    #[test]
    fn what_is_always_red_is_not_flaky_and_one_attempt_is_as_it_was() {
        let (_, red) = together(vec![result(&["a"]), result(&["b"])], true, Strictness::Must).unwrap();
        assert_eq!((red.verdict, red.findings[0].finding.seen.as_str()), (Verdict::Fail, "a"));
        assert_eq!(together(vec![result(&["a"])], true, Strictness::Must), Some((0, result(&["a"]))));
        assert_eq!(together(Vec::new(), true, Strictness::Must), None);
    }
}
