//! A stored log judged again: from its events alone, by the same judge.

use pmi_scenario::suite::Suite;

use crate::deviations::Deviations;
use crate::event::Event;
use crate::verdict::{RunHeader, ScenarioResult, Strictness};
use crate::{Judge, result};

/// A recording cannot be judged again: both of its sides are judged, by a judge each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFromEvents;

impl std::fmt::Display for NotFromEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the log of a recording cannot be judged again: its events are not all that its verdicts follow from",
        )
    }
}

impl std::error::Error for NotFromEvents {}

/// Judges a scenario of a log again. One that was not played, of which there are no events, keeps its result.
///
/// # Errors
///
/// The events of such a run are not all that its verdicts followed from.
pub fn scenario(
    header: &RunHeader,
    recorded: &ScenarioResult,
    events: Vec<Event>,
    suite: &Suite,
    deviations: &mut Deviations,
    strict: Strictness,
) -> Result<ScenarioResult, NotFromEvents> {
    let Some(party) = header.under_test else {
        return Err(NotFromEvents);
    };
    if events.is_empty() {
        return Ok(recorded.clone());
    }
    let mut judge = Judge::new(party, recorded.requires.clone());
    for event in &events {
        judge.observe(event);
    }
    let blank = ScenarioResult {
        findings: Vec::new(),
        reason: None,
        exit: None,
        unreached: 0,
        last_events: Vec::new(),
        deviates_as_recorded: false,
        ..recorded.clone()
    };
    Ok(result::of_scenario(blank, judge.finish(events), &suite.catalogue, deviations, strict))
}
