//! A stored log judged again: from its events alone, by the same judge.

use pmi_scenario::suite::Suite;

use crate::deviations::Deviations;
use crate::event::Event;
use crate::session::SessionJudge;
use crate::verdict::{RunHeader, ScenarioResult, Strictness, Verdict};
use crate::{Judge, result};

/// Judges a scenario or a recorded session of a log again. One that was not played, of which there are no events, keeps its
/// result.
pub fn scenario(
    header: &RunHeader,
    recorded: &ScenarioResult,
    events: Vec<Event>,
    suite: &Suite,
    deviations: &mut Deviations,
    strict: Strictness,
) -> ScenarioResult {
    let blank = ScenarioResult {
        findings: Vec::new(),
        reason: None,
        exit: None,
        unreached: 0,
        last_events: Vec::new(),
        deviates_as_recorded: false,
        ..recorded.clone()
    };
    match header.under_test {
        _ if events.is_empty() => recorded.clone(),
        None => {
            let mut judge = SessionJudge::default();
            events.iter().for_each(|event| judge.observe(event));
            judge.result(blank, &suite.catalogue, deviations, strict)
        }
        Some(party) => {
            let mut judge = Judge::new(party, recorded.requires.clone());
            events.iter().for_each(|event| judge.observe(event));
            // The lines are those of the scenario that was played, whoever has it.
            let quote = |line| {
                let same = recorded.findings.iter().find(|old| old.finding.line == line);
                same.map(|old| old.step.clone()).unwrap_or_default()
            };
            let outcome = judge.finish(events);
            let mut again = result::of_scenario(blank, outcome, &suite.catalogue, quote, deviations, strict);
            // The log has the events of one attempt, which was not the last.
            if recorded.verdict == Verdict::Flaky && again.is_red(strict) {
                again.verdict = Verdict::Flaky;
            }
            again
        }
    }
}
