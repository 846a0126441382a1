//! A stored log judged again: from its events alone, by the same judge.

use std::collections::BTreeMap;

use pmi_scenario::suite::Suite;

use crate::deviations::Deviations;
use crate::event::Event;
use crate::session::SessionJudge;
use crate::verdict::{RunHeader, ScenarioResult, Strictness, Verdict};
use crate::{Judge, Side, result};

/// Judges a log again while it is read. Of a recorded session, which may be long, no event is kept.
pub struct Again<'a> {
    /// `None` for the log of a recorded session.
    party: Option<Side>,
    suite: &'a Suite,
    strict: Strictness,
    sessions: BTreeMap<String, SessionJudge>,
    plays: BTreeMap<String, Vec<Event>>,
}

impl<'a> Again<'a> {
    /// For the log that begins with this line. What is red is told by `strict`.
    pub fn new(header: &RunHeader, suite: &'a Suite, strict: Strictness) -> Self {
        Self { party: header.under_test, suite, strict, sessions: BTreeMap::new(), plays: BTreeMap::new() }
    }

    /// Reads the next event of a scenario or session.
    pub fn event(&mut self, scenario: &str, event: Event) {
        match self.party {
            None => {
                of(&mut self.sessions, scenario).observe(event);
            }
            Some(_) => of(&mut self.plays, scenario).push(event),
        }
    }

    /// Judges a scenario or session whose events have been read. One that was not played, of which there are none, keeps its result.
    pub fn result(&mut self, recorded: &ScenarioResult, deviations: &mut Deviations) -> ScenarioResult {
        let session = self.sessions.remove(&recorded.scenario);
        let events = self.plays.remove(&recorded.scenario).unwrap_or_default();
        match (session, self.party) {
            (Some(judge), _) => judge.result(blank(recorded), &self.suite.catalogue, deviations, self.strict),
            (None, Some(party)) if !events.is_empty() => {
                play(party, recorded, events, self.suite, deviations, self.strict)
            }
            _ => recorded.clone(),
        }
    }
}

/// What belongs to a scenario; no name is copied that is there.
fn of<'m, T: Default>(all: &'m mut BTreeMap<String, T>, scenario: &str) -> &'m mut T {
    if !all.contains_key(scenario) {
        all.insert(scenario.to_owned(), T::default());
    }
    all.get_mut(scenario).unwrap_or_else(|| unreachable!("it is there by now"))
}

/// A result without what events tell.
fn blank(recorded: &ScenarioResult) -> ScenarioResult {
    ScenarioResult {
        findings: Vec::new(),
        reason: None,
        exit: None,
        unreached: 0,
        unreached_steps: Vec::new(),
        last_events: Vec::new(),
        left_out: 0,
        consequences: Vec::new(),
        deviates_as_recorded: false,
        ..recorded.clone()
    }
}

fn play(
    party: Side,
    recorded: &ScenarioResult,
    events: Vec<Event>,
    suite: &Suite,
    deviations: &mut Deviations,
    strict: Strictness,
) -> ScenarioResult {
    let mut judge = Judge::new(party, recorded.requires.clone());
    events.iter().for_each(|event| judge.observe(event));
    // The lines are those of the scenario that was played, whoever has it.
    let quote = |line| {
        let found = recorded.findings.iter().chain(&recorded.consequences);
        let found = found.map(|old| (old.finding.line, &old.step));
        let mut known = found.chain(recorded.unreached_steps.iter().map(|old| (old.line, &old.step)));
        known.find(|(at, _)| *at == line).map(|(_, step)| step.clone()).unwrap_or_default()
    };
    let outcome = judge.finish(events);
    let mut again =
        result::of_scenario(blank(recorded), outcome, &suite.catalogue, quote, deviations, strict);
    // The log has the events of one attempt, which was not the last.
    if recorded.verdict == Verdict::Flaky && again.is_red(strict) {
        again.verdict = Verdict::Flaky;
    }
    again
}
