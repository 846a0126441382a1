//! Judges a stored log again, based only on its events.

use std::collections::BTreeMap;

use pmi_scenario::suite::Suite;

use crate::deviations::Deviations;
use crate::event::Event;
use crate::session::SessionJudge;
use crate::verdict::{RunHeader, ScenarioResult, Strictness, Verdict};
use crate::{Judge, PartyKind, result};

/// An incremental judge of a log. Recorded sessions can be long, so their events are not kept.
pub struct LogJudge<'a> {
    /// The party under test; `None` for a recorded session.
    party: Option<PartyKind>,
    suite: &'a Suite,
    strict: Strictness,
    sessions: BTreeMap<String, SessionJudge>,
    events: BTreeMap<String, Vec<Event>>,
}

impl<'a> LogJudge<'a> {
    /// Creates a judge for a log with this header. `strict` determines which results are red.
    pub fn new(header: &RunHeader, suite: &'a Suite, strict: Strictness) -> Self {
        Self { party: header.under_test, suite, strict, sessions: BTreeMap::new(), events: BTreeMap::new() }
    }

    /// Reads the next event of a scenario or session.
    pub fn event(&mut self, scenario: &str, event: Event) {
        match self.party {
            None => {
                of(&mut self.sessions, scenario).observe(event);
            }
            Some(_) => of(&mut self.events, scenario).push(event),
        }
    }

    /// Judges a scenario or session whose events have been read. A scenario without events was not played and keeps its result.
    pub fn result(&mut self, recorded: &ScenarioResult, deviations: &mut Deviations) -> ScenarioResult {
        let session = self.sessions.remove(&recorded.scenario);
        let events = self.events.remove(&recorded.scenario).unwrap_or_default();
        let result = match (session, self.party) {
            (Some(judge), _) => {
                judge.result(copy_without_events(recorded), &self.suite.catalogue, deviations, self.strict)
            }
            (None, Some(party)) if !events.is_empty() => {
                play(party, recorded, events, self.suite, deviations, self.strict)
            }
            _ => recorded.clone(),
        };
        deviations.record(&result);
        result
    }
}

/// Returns the entry of a scenario, after inserting a default entry if there is none. Copies the name only for a new entry.
fn of<'m, T: Default>(all: &'m mut BTreeMap<String, T>, scenario: &str) -> &'m mut T {
    if !all.contains_key(scenario) {
        all.insert(scenario.to_owned(), T::default());
    }
    all.get_mut(scenario).unwrap_or_else(|| unreachable!("the entry was just inserted"))
}

/// Copies a result without the fields that depend on events.
fn copy_without_events(recorded: &ScenarioResult) -> ScenarioResult {
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
    party: PartyKind,
    recorded: &ScenarioResult,
    events: Vec<Event>,
    suite: &Suite,
    deviations: &Deviations,
    strict: Strictness,
) -> ScenarioResult {
    let mut judge = Judge::new(party, recorded.requires.clone());
    events.iter().for_each(|event| judge.observe(event));
    // The text of each line comes from the recorded result, because the installed suite may differ from the suite that was played.
    let quote = |line| {
        let found = recorded.findings.iter().chain(&recorded.consequences);
        let found = found.map(|old| (old.finding.line, &old.step));
        let mut known = found.chain(recorded.unreached_steps.iter().map(|old| (old.line, &old.step)));
        known.find(|(at, _)| *at == line).map(|(_, step)| step.clone()).unwrap_or_default()
    };
    let outcome = judge.finish(events);
    let mut again = result::scenario_result(
        copy_without_events(recorded),
        outcome,
        &suite.catalogue,
        quote,
        deviations,
        strict,
    );
    // The log contains only the events of the failed attempt, so the recorded verdict is kept.
    if recorded.verdict == Verdict::Flaky && again.is_red(strict) {
        again.verdict = Verdict::Flaky;
    }
    again
}
