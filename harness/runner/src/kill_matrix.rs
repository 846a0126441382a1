//! The kill matrix: the results of playing the suite against every fault and every variation of the reference server. The matrix proves
//! that the suite can fail.
//!
//! A fault is killed if a finding cites a requirement that the fault breaks. In all dialects to which the fault applies, findings must cite
//! requirements of the same rule. A variation must not cause any finding, however minor.

pub mod client;
pub mod external;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmi_faults::{Behaviour, Config, Dialects, Effect, Fault, ResponseWrites, Variation};
use serde::Serialize;

use crate::interpret::play;
use crate::party::{MemoryParty, ScenarioLimits};
use pmi_judge::ScenarioOutcome;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::result::binds;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Capability, Dialect, Scenario};
use pmi_scenario::requirement::{BoundParty, Requirement, RequirementSet};
use pmi_scenario::suite::Suite;
use pmi_wire::Framing;

/// Maximum number of events in a short scenario. Longer scenarios repeat an operation up to hundreds of times.
const MAX_SHORT_SCENARIO: usize = 250;

/// The findings of one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct KillResult {
    /// The name of the scenario.
    pub scenario: String,
    /// Requirements that the scenario's findings cite.
    pub requirements: BTreeSet<String>,
    /// The first finding: the expected and the observed behaviour.
    #[serde(rename = "first")]
    pub first_finding: String,
}

/// The result of a fault in one dialect.
#[derive(Debug, Clone, Serialize)]
pub struct FaultResult {
    /// The name of the fault.
    pub name: &'static str,
    /// The dialect of the scenarios.
    pub dialect: Dialect,
    /// The behaviour of a server with the fault.
    #[serde(rename = "about")]
    pub description: &'static str,
    /// The requirements of this dialect that the fault breaks.
    pub breaks: Vec<&'static str>,
    /// Scenarios whose findings cite a requirement that the fault breaks. The list is incomplete unless all scenarios were played, because
    /// the run otherwise stops when the result is certain.
    pub killers: Vec<KillResult>,
    /// Scenarios whose findings cite only requirements that the fault does not break.
    #[serde(rename = "wrong_reason")]
    pub wrong_requirement: Vec<KillResult>,
}

impl FaultResult {
    /// Returns whether a finding cites a requirement that the fault breaks.
    pub fn is_killed(&self) -> bool {
        !self.killers.is_empty()
    }

    /// Returns the broken requirements that findings cite.
    fn cited(&self) -> impl Iterator<Item = &'static str> {
        let cited = |id: &&str| self.killers.iter().any(|killer| killer.requirements.contains(*id));
        self.breaks.iter().copied().filter(cited)
    }

    /// Returns the name of the fault and the dialect, for display.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.dialect.word())
    }
}

/// The result of a variation.
#[derive(Debug, Clone, Serialize)]
pub struct VariationResult {
    /// The name of the variation.
    pub name: &'static str,
    /// The behaviour of a server with the variation.
    #[serde(rename = "about")]
    pub description: &'static str,
    /// Scenarios that report findings, although the standard allows the variation.
    #[serde(rename = "punished_by")]
    pub findings: Vec<KillResult>,
}

/// The result for a fault or variation of a client, program or library.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PartyResult {
    /// The name of the fault or variation.
    pub name: &'static str,
    /// The behaviour of an implementation with the fault or variation.
    pub about: &'static str,
    /// The requirements that the fault breaks; empty for a variation.
    pub breaks: Vec<&'static str>,
    /// Requirements that findings cite.
    pub cited: BTreeSet<String>,
    /// The failures of the test: for a fault, the reasons why it is not killed; for a variation, the findings.
    pub wrong: Vec<String>,
}

impl PartyResult {
    /// Returns whether a fault is killed, or a variation causes no finding.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns the broken requirements that findings cite.
    fn cited(&self) -> impl Iterator<Item = &'static str> {
        self.breaks.iter().copied().filter(|id| self.cited.contains(*id))
    }
}

/// The results of playing the suite against all faults and variations.
#[derive(Debug, Clone, Serialize)]
pub struct KillMatrix {
    /// Number of scenarios that are played in memory.
    pub scenarios: usize,
    /// The results of each fault, by dialect, in the order of the fault table.
    pub faults: Vec<FaultResult>,
    /// The result of each variation, in the order of the variation table. The first result is for the server with neither fault nor
    /// variation.
    pub variations: Vec<VariationResult>,
    /// Server requirements that must be tested with a fault, but that no finding about a fault cites.
    #[serde(rename = "without_fault")]
    pub requirements_without_fault: Vec<String>,
    /// Number of faults that apply to several dialects.
    pub shared_faults: usize,
    /// Names of shared faults whose results contradict `faults.toml`. Either the findings in the dialects cite no common rule and the
    /// file gives no reason for that, or they cite one although the file gives a reason why they do not.
    pub without_common_rule: Vec<&'static str>,
}

impl KillMatrix {
    /// Returns whether the matrix is complete:
    ///
    /// * Every fault is killed in all its dialects.
    /// * Findings cite common rules as `faults.toml` states.
    /// * No variation causes a finding.
    /// * Every server requirement that must be tested with a fault is cited by a finding about a fault that breaks it.
    pub fn is_complete(&self) -> bool {
        self.faults.iter().all(FaultResult::is_killed)
            && self.without_common_rule.is_empty()
            && self.variations.iter().all(|v| v.findings.is_empty())
            && self.requirements_without_fault.is_empty()
    }

    /// Returns the requirements that were cited by a finding about a fault that breaks them.
    pub fn cited_requirements(&self) -> BTreeSet<&str> {
        self.faults.iter().flat_map(FaultResult::cited).collect()
    }
}

/// Returns the requirements that must be tested with a fault, but that no finding about a fault cites. `shown` contains the cited
/// requirements.
fn without_fault(suite: &Suite, needs: impl Fn(&Requirement) -> bool, shown: &BTreeSet<&str>) -> Vec<String> {
    let missing = suite.catalogue.iter().filter(|r| needs(r) && !shown.contains(r.id.as_str()));
    missing.map(|r| r.id.clone()).collect()
}

/// Returns the rules that all of these sets of requirements have in common.
fn common_rules<'a>(
    suite: &'a Suite,
    sets: impl IntoIterator<Item = Vec<&'static str>>,
) -> BTreeSet<&'a str> {
    let rules = |ids: Vec<&str>| -> BTreeSet<&'a str> {
        let found = ids.into_iter().filter_map(|id| suite.catalogue.get(id));
        found.flat_map(|requirement| &requirement.rules).map(String::as_str).collect()
    };
    sets.into_iter().map(rules).reduce(|a, b| &a & &b).unwrap_or_default()
}

/// Plays a scenario against a server with the given behaviour. Returns the outcome and, for each effect of the behaviour, whether it has
/// occurred.
fn play_scenario(
    suite: &Suite,
    scenario: &Scenario,
    behaviour: &Behaviour,
    limits: ScenarioLimits,
) -> (ScenarioOutcome, Vec<bool>) {
    let config =
        crate::iut::config_for(scenario, &Config { wrapper: behaviour.clone(), ..Config::default() });
    let mut party = MemoryParty::launch(config, scenario.ranks);
    let outcome = play(scenario, &|name| suite.fragment(name), Vec::new(), &mut party, limits, &mut ());
    (outcome, party.shown_effects())
}

fn found(suite: &Suite, scenario: &Scenario, outcome: ScenarioOutcome) -> Option<KillResult> {
    for finding in &outcome.findings {
        assert!(
            binds(&suite.catalogue, finding),
            "{}: the requirement binds a different party: {finding:?}",
            scenario.name
        );
    }
    let first = match (outcome.findings.first(), outcome.scenario_error, outcome.unjudged) {
        (Some(f), ..) => {
            format!("line {}: {}: expected {}, seen {}", f.line, f.requirement, f.expected, f.seen)
        }
        (None, Some((line, what)), _) => format!("line {line}: {what}"),
        (None, None, Some(why)) => why.to_string(),
        (None, None, None) => return None,
    };
    let requirements = outcome.findings.into_iter().map(|f| f.requirement).collect();
    Some(KillResult { scenario: scenario.name.clone(), requirements, first_finding: first })
}

/// Returns the findings, if any, about a conforming server. Findings that cite only advisory requirements are omitted: these
/// requirements are not generally accepted, and conforming servers may break them.
fn punishment(suite: &Suite, scenario: &Scenario, outcome: ScenarioOutcome) -> Option<KillResult> {
    let advisory = |id: &String| suite.catalogue.get(id).is_some_and(|r| r.advisory);
    found(suite, scenario, outcome)
        .filter(|found| found.requirements.is_empty() || !found.requirements.iter().all(advisory))
}

/// A scenario, and the result of rehearsing all faults and variations with it.
struct RehearsedScenario<'a> {
    scenario: &'a Scenario,
    /// Number of events in a run against the server with neither fault nor variation.
    length: usize,
    /// The findings of the rehearsal, in which the server behaves like one with neither fault nor variation.
    plain: Option<KillResult>,
    /// For each fault and then for each variation, whether it has a visible effect in the scenario.
    shows: Vec<bool>,
}

/// Calls `work` for each number below `count`, on `jobs` threads. Returns the results in the order of the numbers.
fn in_parallel<T: Send>(count: usize, jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let result = work(number);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Plays each scenario once against a server without faults and variations, which records the effects that each fault and variation of
/// the scenario's dialect would have had. Uses `jobs` threads.
fn rehearse<'a>(
    suite: &'a Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    jobs: usize,
    limits: ScenarioLimits,
) -> Vec<RehearsedScenario<'a>> {
    let entries: Vec<&'static Fault> = faults.iter().chain(variations).copied().collect();
    let of_framing = |framing| entries.iter().copied().filter(move |entry| entry.dialects.has(framing));
    let behaviour = |framing| of_framing(framing).collect::<Behaviour>().with_rehearsal();
    let (of_lines, of_frames) = (behaviour(Framing::Lines), behaviour(Framing::Frames));
    let exchanged = |e: &&Event| !matches!(e.kind, EventKind::Expected(_) | EventKind::Silence { .. });
    let scenarios: Vec<&Scenario> = in_memory(suite).collect();
    in_parallel(scenarios.len(), jobs, |number| {
        let scenario = scenarios[number];
        let framing = scenario.dialect.framing();
        let behaviour = if framing == Framing::Lines { &of_lines } else { &of_frames };
        let (outcome, shown) = play_scenario(suite, scenario, behaviour, limits);
        let mut shown = shown.into_iter();
        let shows = entries.iter().map(|entry| entry.dialects.has(framing) && shown.next() == Some(true));
        let shows = shows.collect();
        let length = outcome.events.iter().filter(exchanged).count();
        RehearsedScenario { scenario, length, plain: punishment(suite, scenario, outcome), shows }
    })
}

/// Returns the scenarios that are played in memory. Scenarios with an upstream or a free schedule are left out: in memory, no server has an
/// upstream, and requests never arrive at the same time.
fn in_memory(suite: &Suite) -> impl Iterator<Item = &Scenario> {
    let played = |s: &&Scenario| !s.is_free && !s.needs.iter().any(|n| n.value == Capability::Upstream);
    suite.testing(ImplementationKind::Server).map(Arc::as_ref).filter(played)
}

/// Plays the suite against `faults` and `variations`, on `jobs` threads. Unless `all` is true, the run is shortened in two ways. A fault is
/// played only until it is killed in all its dialects, findings cite a common rule (if the fault breaks one), and each requirement that
/// must be tested with a fault is cited. Several variations are combined in each server.
pub fn run(
    suite: &Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    all: bool,
    jobs: usize,
) -> KillMatrix {
    // The in-memory server responds immediately, so the time limit does not matter. A low byte limit detects floods quickly.
    let limits =
        ScenarioLimits { step: Duration::from_secs(60), bytes: 16 << 20, ..ScenarioLimits::default() };
    let rehearsed = rehearse(suite, faults, variations, jobs, limits);
    let numbered: Vec<_> = (faults.len()..).zip(variations.iter().copied()).collect();
    let mut cases = in_parallel(faults.len(), jobs, |number| {
        let mut cases = FaultCase::of_dialects(&rehearsed, number, faults[number]);
        play_cases(suite, &mut cases, &faults[number].behaviour(), (all, &[]), limits);
        cases
    });
    let needs = |requirement: &Requirement| requirement.needs_fault(BoundParty::Server);
    let missing = |cases: &[Vec<FaultCase<'_>>]| {
        without_fault(suite, needs, &cases.iter().flatten().flat_map(|case| case.result.cited()).collect())
    };
    // Some requirements may not have been cited by any finding yet. Play further scenarios against the faults that break them.
    let uncited = missing(&cases);
    for (cases, fault) in cases.iter_mut().zip(faults) {
        if fault.breaks.iter().any(|id| uncited.iter().any(|uncited| uncited == id)) {
            play_cases(suite, cases, &fault.behaviour(), (all, &uncited), limits);
        }
    }
    let requirements_without_fault = missing(&cases);
    let result = |case: FaultCase<'_>| case.result;
    let results: Vec<Vec<FaultResult>> =
        cases.into_iter().map(|cases| cases.into_iter().map(result).collect()).collect();
    let dialects = |results: &&Vec<FaultResult>| results.len() > 1;
    let is_unexplained = |(results, fault): &(&Vec<FaultResult>, &&Fault)| {
        let common = common_rules(suite, results.iter().map(|result| result.cited().collect()));
        dialects(results) && common.is_empty() != fault.differs.is_some()
    };
    KillMatrix {
        scenarios: in_memory(suite).count(),
        variations: try_variations(suite, &rehearsed, &numbered, (all, jobs), limits),
        requirements_without_fault,
        shared_faults: results.iter().filter(dialects).count(),
        without_common_rule: results.iter().zip(faults).filter(is_unexplained).map(|(_, f)| f.name).collect(),
        faults: results.into_iter().flatten().collect(),
    }
}

/// A case of the matrix: a fault in one dialect.
struct FaultCase<'a> {
    result: FaultResult,
    /// The scenarios that are still to be played.
    scenarios: std::vec::IntoIter<&'a Scenario>,
}

impl<'a> FaultCase<'a> {
    /// Returns the cases of a fault. The scenarios of each case begin with short scenarios about the requirements that the fault breaks.
    /// `number` is the index of the fault among the rehearsed behaviours.
    fn of_dialects(rehearsed: &[RehearsedScenario<'a>], number: usize, fault: &'static Fault) -> Vec<Self> {
        let case = |dialect: Dialect| {
            let breaks = broken_in(fault, dialect);
            let is_about = |s: &Scenario| s.requires.iter().any(|id| breaks.contains(&id.value.as_str()));
            let shown = rehearsed.iter().filter(|r| r.shows[number] && r.scenario.dialect == dialect);
            let mut scenarios: Vec<_> = shown.collect();
            scenarios.sort_by_key(|r| (r.length > MAX_SHORT_SCENARIO, !is_about(r.scenario), r.length));
            let scenarios: Vec<&Scenario> = scenarios.into_iter().map(|r| r.scenario).collect();
            let result = FaultResult {
                name: fault.name,
                dialect,
                description: fault.description,
                breaks,
                killers: Vec::new(),
                wrong_requirement: Vec::new(),
            };
            Self { result, scenarios: scenarios.into_iter() }
        };
        Dialect::ALL.map(case).into_iter().filter(|case| !case.result.breaks.is_empty()).collect()
    }

    /// Returns whether the fault is killed and every requirement in `also` that it breaks is cited.
    fn is_proven(&self, also: &[String]) -> bool {
        let mut open = self.result.breaks.iter().filter(|id| also.iter().any(|also| also == *id));
        self.result.is_killed() && open.all(|id| self.result.cited().any(|cited| cited == *id))
    }

    /// Plays the next scenario. Returns false if no scenario was left.
    fn play_next(&mut self, suite: &Suite, behaviour: &Behaviour, limits: ScenarioLimits) -> bool {
        let Some(scenario) = self.scenarios.next() else { return false };
        let outcome = play_scenario(suite, scenario, behaviour, limits).0;
        let Self { result, .. } = self;
        if let Some(found) = found(suite, scenario, outcome) {
            let is_right = found.requirements.iter().any(|id| result.breaks.contains(&id.as_str()));
            if is_right { &mut result.killers } else { &mut result.wrong_requirement }.push(found);
        }
        true
    }
}

/// Plays the remaining scenarios in all cases of a fault. Unless `all` is true, a case ends when it is proven. If all cases of a fault in
/// several dialects are proven, but they cite no common rule although the fault breaks one, the cases continue until they cite a common
/// rule.
fn play_cases(
    suite: &Suite,
    cases: &mut [FaultCase<'_>],
    behaviour: &Behaviour,
    (all, also): (bool, &[String]),
    limits: ScenarioLimits,
) {
    for case in cases.iter_mut() {
        while (all || !case.is_proven(also)) && case.play_next(suite, behaviour, limits) {}
    }
    let broken = common_rules(suite, cases.iter().map(|case| case.result.breaks.clone()));
    if cases.len() < 2 || broken.is_empty() || !cases.iter().all(|case| case.is_proven(also)) {
        return;
    }
    while common_rules(suite, cases.iter().map(|case| case.result.cited().collect())).is_empty() {
        let mut has_played = false;
        for case in cases.iter_mut() {
            has_played |= case.play_next(suite, behaviour, limits);
        }
        if !has_played {
            break;
        }
    }
}

/// Returns the requirements that a fault breaks in a dialect. For a fault of all dialects, only requirements of this dialect's standard are
/// included. A fault that is limited to one dialect may also break requirements of another standard: for example, PMI-2 shares the init
/// line with PMI-1.
fn broken_in(fault: &Fault, dialect: Dialect) -> Vec<&'static str> {
    let is_of = |id: &&str| {
        fault.dialects != Dialects::All || RequirementSet::of(id).dialect().unwrap_or_default() == dialect
    };
    match fault.dialects.has(dialect.framing()) {
        true => fault.breaks.iter().copied().filter(is_of).collect(),
        false => Vec::new(),
    }
}

/// A variation, and the scenarios in which it must not cause a finding.
struct VariationCase {
    variation: &'static Variation,
    /// For each rehearsed scenario, whether the variation has an effect there, and the server supports the operations that the scenario
    /// needs.
    applies: Vec<bool>,
}

impl VariationCase {
    /// Creates a case. `number` is the index of the variation among the rehearsed behaviours.
    fn new(
        suite: &Suite,
        rehearsed: &[RehearsedScenario<'_>],
        number: usize,
        variation: &'static Variation,
        limits: ScenarioLimits,
    ) -> Self {
        let config = Config { wrapper: variation.behaviour(), ..Config::default() };
        let lacking = [Capability::Spawn, Capability::Names]
            .map(|need| (need, crate::optional_operations::lacks(suite, need, &config, limits)));
        let applies = |r: &RehearsedScenario<'_>| {
            r.shows[number]
                && variation.dialects.has(r.scenario.dialect.framing())
                && !r.scenario.needs.iter().any(|need| lacking.contains(&(need.value, true)))
        };
        Self { variation, applies: rehearsed.iter().map(applies).collect() }
    }
}

/// Plays the suite against servers with variations, on `jobs` threads. Unless `all` is true, several variations are combined in each
/// server. If a server causes a finding in a scenario, its variations are repeatedly split in half for this scenario, until each finding
/// is caused by a single variation. The first result is that of the rehearsal, in which no variation has an effect.
fn try_variations(
    suite: &Suite,
    rehearsed: &[RehearsedScenario<'_>],
    variations: &[(usize, &'static Variation)],
    (all, jobs): (bool, usize),
    limits: ScenarioLimits,
) -> Vec<VariationResult> {
    let cases = in_parallel(variations.len(), jobs, |at| {
        let (number, variation) = variations[at];
        VariationCase::new(suite, rehearsed, number, variation, limits)
    });
    let findings = in_parallel(rehearsed.len(), jobs, |number| {
        let RehearsedScenario { scenario, length, .. } = rehearsed[number];
        let is_bytewise =
            |at: &usize| matches!(cases[*at].variation.effect, Effect::Writes(_, ResponseWrites::Bytewise));
        // Variations that write one byte at a time are slow in long scenarios, and in combination with a variation that lengthens the
        // responses. They are therefore played without other variations, and usually only in short scenarios.
        let is_short = length <= MAX_SHORT_SCENARIO;
        let is_played = |at: &usize| cases[*at].applies[number] && (all || is_short || !is_bytewise(at));
        let (singles, together): (Vec<usize>, Vec<usize>) =
            (0..cases.len()).filter(is_played).partition(|at| all || is_bytewise(at));
        let mut servers: Vec<Vec<usize>> = singles.into_iter().map(|at| vec![at]).collect();
        servers.push(together);
        let mut punished = Vec::new();
        while let Some(members) = servers.pop() {
            if members.is_empty() {
                continue;
            }
            let behaviour = members.iter().map(|at| cases[*at].variation).collect();
            let (outcome, shown) = play_scenario(suite, scenario, &behaviour, limits);
            // If several variations change the same data, only one of them takes effect. The others are played again, but only in short
            // scenarios, because long scenarios contain few operations that short scenarios do not contain.
            let is_hidden = |(at, shown): (&usize, &bool)| (is_short && !shown).then_some(*at);
            let hidden: Vec<usize> = members.iter().zip(&shown).filter_map(is_hidden).collect();
            match (punishment(suite, scenario, outcome), &members[..]) {
                (Some(found), [alone]) => punished.push((*alone, found)),
                (None, [_]) => {}
                (None, _) if hidden.len() < members.len() => servers.push(hidden),
                (..) => {
                    // Neighbouring variations in the table often concern the same part of the server, so they go into different halves.
                    let half = |first| members.iter().copied().skip(first).step_by(2).collect();
                    servers.extend([half(0), half(1)]);
                }
            }
        }
        punished
    });
    let result = |name, description| VariationResult { name, description, findings: Vec::new() };
    let mut plain = result("plain", "the unmodified reference server");
    plain.findings = rehearsed.iter().filter_map(|r| r.plain.clone()).collect();
    let mut results: Vec<_> =
        cases.iter().map(|case| result(case.variation.name, case.variation.description)).collect();
    for (at, found) in findings.into_iter().flatten() {
        results[at].findings.push(found);
    }
    results.insert(0, plain);
    results
}

#[cfg(test)]
mod tests {
    use pmi_faults::{faults, variations};

    use super::*;

    /// A scenario in which a fault has no visible effect is not played against the fault. This test plays some of the skipped scenarios,
    /// which must not find the fault.
    #[test]
    fn skipped_scenarios_would_not_find_the_fault() {
        let suite = crate::suite::embedded().expect("the embedded suite is valid");
        let limits =
            ScenarioLimits { step: Duration::from_secs(60), bytes: 16 << 20, ..ScenarioLimits::default() };
        let (faults, variations) = (faults().collect::<Vec<_>>(), variations().collect::<Vec<_>>());
        let rehearsed = rehearse(&suite, &faults, &variations, 2, limits);
        let spared = rehearsed.iter().map(|r| r.shows.iter().filter(|shows| !**shows).count()).sum::<usize>();
        assert!(spared > faults.len(), "no scenario was skipped");
        // Some variations are not played in long scenarios, so each variation must take effect in a short one.
        let short = || rehearsed.iter().filter(|r| r.length <= MAX_SHORT_SCENARIO);
        for (number, variation) in (faults.len()..).zip(&variations) {
            assert!(short().any(|r| r.shows[number]), "{}", variation.name);
        }
        for (number, fault) in faults.iter().enumerate().step_by(17) {
            let applies = |r: &&RehearsedScenario<'_>| fault.dialects.has(r.scenario.dialect.framing());
            let skipped = rehearsed.iter().filter(|r| r.length <= MAX_SHORT_SCENARIO && !r.shows[number]);
            for r in skipped.filter(applies) {
                let (outcome, shown) = play_scenario(&suite, r.scenario, &fault.behaviour(), limits);
                assert_eq!(shown, [false], "{} in {}", fault.name, r.scenario.name);
                assert!(
                    found(&suite, r.scenario, outcome).is_none(),
                    "{} in {}",
                    fault.name,
                    r.scenario.name
                );
            }
        }
    }
}
