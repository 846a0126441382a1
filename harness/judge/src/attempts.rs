//! Merges the attempts of a scenario that is played more than once: selects the representative attempt, and counts the findings of all
//! attempts.

use std::collections::{HashMap, HashSet};

use crate::cause::shape;
use crate::result::is_interference;
use crate::symptom;
use crate::verdict::{Attempts, RepeatedFinding, ScenarioResult, Strictness, Verdict};

/// Maximum number of distinct findings to count.
const MAX_FINDINGS: usize = 200;

/// An accumulator for the results of a scenario's attempts. The merged result is that of the worst attempt (the first one, if several are
/// equally bad), with statistics about the findings of all attempts. Memory use does not grow with the number of attempts.
#[derive(Default)]
pub struct AttemptMerger {
    strict: Strictness,
    worst: Option<ScenarioResult>,
    played: u32,
    red: u32,
    time_us: u64,
    found: Vec<RepeatedFinding>,
    /// For each finding in `found`, the requirement and the observed text with varying numbers masked.
    keys: Vec<(String, String)>,
    /// For each finding in `found`, the sequence numbers of the results that contain the finding.
    attempts_with_finding: Vec<Vec<u32>>,
    /// Number of results added. A result may represent several attempts.
    added: u32,
}

impl AttemptMerger {
    /// Creates a merger without attempts. `strict` determines which results are red.
    #[must_use]
    pub fn new(strict: Strictness) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Adds a result. Returns true if the result now represents the scenario, that is, if it is worse than all earlier results.
    pub fn add(&mut self, result: ScenarioResult) -> bool {
        let plays = result
            .attempts
            .as_ref()
            .map_or((1, u32::from(result.is_red(self.strict))), |a| (a.played, a.red));
        self.count(&result);
        self.added += 1;
        self.played += plays.0;
        self.red += plays.1;
        self.time_us += result.time_us;
        let badness = |r: &ScenarioResult| {
            let severity = r.findings.iter().map(|j| j.severity).max();
            (is_interference(&r.findings), r.is_red(self.strict), severity)
        };
        let counts = self.worst.as_ref().is_none_or(|worst| badness(&result) > badness(worst));
        if counts {
            self.worst = Some(result);
        }
        counts
    }

    fn count(&mut self, result: &ScenarioResult) {
        let mut counted = HashSet::new();
        for judged in &result.findings {
            let key = (judged.finding.requirement.clone(), shape(&judged.finding));
            let at = self.keys.iter().position(|known| *known == key);
            if at.is_none() && self.keys.len() >= MAX_FINDINGS {
                continue;
            }
            let at = at.unwrap_or_else(|| {
                self.keys.push(key);
                self.found.push(RepeatedFinding { times: 0, absent: false, finding: judged.clone() });
                self.attempts_with_finding.push(Vec::new());
                self.found.len() - 1
            });
            // Findings with the same key count once per attempt.
            if counted.insert(at) {
                self.found[at].times += 1;
                self.attempts_with_finding[at].push(self.added);
            }
        }
    }

    /// Returns the number of attempts so far.
    #[must_use]
    pub fn played(&self) -> u32 {
        self.played
    }

    /// Returns the merged result, or `None` if no result was added. If `retried` is true, a scenario that both failed and passed is flaky.
    #[must_use]
    pub fn finish(self, retried: bool) -> Option<ScenarioResult> {
        let Self { worst, played, red, time_us, mut found, attempts_with_finding: shown, added, .. } = self;
        let mut by_symptom: HashMap<(String, String), HashSet<u32>> = HashMap::new();
        let symptom = |found: &RepeatedFinding| {
            let finding = &found.finding.finding;
            (finding.requirement.clone(), symptom::of(finding))
        };
        for (found, shown) in found.iter().zip(shown) {
            by_symptom.entry(symptom(found)).or_default().extend(shown);
        }
        for found in &mut found {
            found.absent = by_symptom[&symptom(found)].len() < added as usize;
        }
        let mut result = worst?;
        result.time_us = time_us;
        // A failure that depends on another job is reproducible, so it is not flaky.
        if retried && red > 0 && red < played && !is_interference(&result.findings) {
            result.verdict = Verdict::Flaky;
        }
        // A scenario that was played once needs no statistics.
        if played > 1 {
            result.attempts = Some(Attempts { played, red, found });
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_requirements::INDEPENDENT_JOBS;
    use crate::{Finding, PartyKind};

    fn result(seen: &[&str]) -> ScenarioResult {
        let judged = |seen: &&str| {
            let finding = Finding::new("rfc13.get.value", PartyKind::Server, "", *seen);
            crate::result::judged(&Default::default(), finding)
        };
        ScenarioResult {
            scenario: "get/value".into(),
            verdict: if seen.is_empty() { Verdict::Pass } else { Verdict::Fail },
            findings: seen.iter().map(judged).collect(),
            time_us: 1,
            ..ScenarioResult::default()
        }
    }

    /// Merges all attempts. Returns the index of the representative attempt and the merged result.
    fn merge(all: Vec<ScenarioResult>, retried: bool) -> Option<(usize, ScenarioResult)> {
        let (mut attempts, mut counts) = (AttemptMerger::new(Strictness::Must), 0);
        for (index, result) in all.into_iter().enumerate() {
            if attempts.add(result) {
                counts = index;
            }
        }
        attempts.finish(retried).map(|result| (counts, result))
    }

    #[test]
    fn returns_the_first_of_the_worst_attempts() {
        let all = vec![result(&[]), result(&["silence", "value=1"]), result(&["value=2"])];
        let (index, worst) = merge(all.clone(), false).unwrap();
        assert_eq!((index, worst.verdict, worst.time_us), (1, Verdict::Fail, 3));
        let attempts = worst.attempts.unwrap();
        assert_eq!((attempts.played, attempts.red), (3, 2));
        let times: Vec<_> =
            attempts.found.iter().map(|f| (f.finding.finding.seen.as_str(), f.times)).collect();
        assert_eq!(times, [("silence", 1), ("value=1", 2)], "numbers do not distinguish findings");

        let (_, flaky) = merge(all, true).unwrap();
        assert_eq!(flaky.verdict, Verdict::Flaky);
        assert!(!flaky.is_red(Strictness::DeFacto) && !flaky.findings.is_empty());
    }

    #[test]
    fn scenario_with_interference_is_not_flaky() {
        let mut interference = result(&["this scenario fails alongside kvs/own-key"]);
        interference.findings[0].finding.requirement = INDEPENDENT_JOBS.into();
        let (index, worst) = merge(vec![result(&["silence"]), interference, result(&[])], true).unwrap();
        assert_eq!((index, worst.verdict), (1, Verdict::Fail));
        assert!(worst.is_red(Strictness::Must));
    }

    #[test]
    fn consistent_failure_is_not_flaky() {
        let (_, red) = merge(vec![result(&["a"]), result(&["b"])], true).unwrap();
        assert_eq!((red.verdict, red.findings[0].finding.seen.as_str()), (Verdict::Fail, "a"));
        assert_eq!(merge(vec![result(&["a"])], true), Some((0, result(&["a"]))));
        assert_eq!(merge(Vec::new(), true), None);
    }
}
