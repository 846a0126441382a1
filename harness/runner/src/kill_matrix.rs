//! The kill matrix, which proves that the suite can fail: plays the suite against every fault and every variation of the reference server.
//!
//! A fault is killed if a scenario has a finding that cites a requirement that the fault breaks. A variation must not cause any finding,
//! however minor.

pub mod client;
pub mod external;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmi_faults::{Behaviour, Config, Dialects, Fault, Variation};
use serde::Serialize;

use crate::interpret::play;
use crate::party::{MemoryParty, ScenarioLimits};
use pmi_judge::ScenarioOutcome;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::result::binds;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Capability, Dialect, Scenario};
use pmi_scenario::requirement::{BoundParty, RequirementSet};
use pmi_scenario::suite::Suite;

/// Minimum number of events in a scenario that counts as long. Such scenarios repeat something up to hundreds of times.
const MIN_LONG_SCENARIO: usize = 250;

/// The findings of one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct KillResult {
    /// The scenario.
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
    /// Scenarios that cite a requirement that the fault breaks.
    pub killers: Vec<KillResult>,
    /// Scenarios that cite only requirements that the fault does not break.
    #[serde(rename = "wrong_reason")]
    pub wrong_requirement: Vec<KillResult>,
}

impl FaultResult {
    /// Returns whether a scenario found the fault for the right reason.
    pub fn is_killed(&self) -> bool {
        !self.killers.is_empty()
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
    /// Scenarios that have findings, although there should be none.
    #[serde(rename = "punished_by")]
    pub findings: Vec<KillResult>,
}

/// The kill matrix.
#[derive(Debug, Clone, Serialize)]
pub struct KillMatrix {
    /// Number of scenarios that were played against each server.
    pub scenarios: usize,
    /// Results in the order of the fault table, by dialect.
    pub faults: Vec<FaultResult>,
    /// Results in the order of the variation table. The first is for the server with neither fault nor variation.
    pub variations: Vec<VariationResult>,
    /// Requirements that bind servers, but that no fault proves to be tested.
    #[serde(rename = "without_fault")]
    pub requirements_without_fault: Vec<String>,
}

impl KillMatrix {
    /// Returns whether every fault is killed, no variation has a finding, and a killing scenario cites each server requirement that needs a
    /// fault.
    pub fn is_complete(&self) -> bool {
        self.faults.iter().all(FaultResult::is_killed)
            && self.variations.iter().all(|v| v.findings.is_empty())
            && self.requirements_without_fault.is_empty()
    }

    /// Returns the requirements that were cited by a finding about a fault that breaks them.
    pub fn cited_requirements(&self) -> BTreeSet<&str> {
        let cited = |f: &FaultResult, id: &str| f.killers.iter().any(|k| k.requirements.contains(id));
        self.faults.iter().flat_map(|f| f.breaks.iter().copied().filter(move |id| cited(f, id))).collect()
    }
}

/// Plays a scenario against a server with the given behaviour. Returns the outcome, and whether each effect of the behaviour showed.
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
        assert!(binds(&suite.catalogue, finding), "{}: binds another party: {finding:?}", scenario.name);
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

/// Returns whether all findings are advisory: the sets of requirements that they cite are not generally agreed on, and servers differ.
fn is_advice(suite: &Suite, found: &KillResult) -> bool {
    let advisory = |id: &String| suite.catalogue.get(id).is_some_and(|r| r.advisory);
    !found.requirements.is_empty() && found.requirements.iter().all(advisory)
}

/// A scenario, and the result of rehearsing all faults and variations with it.
struct RehearsedScenario<'a> {
    scenario: &'a Scenario,
    /// True if the scenario exchanges many messages with the plain server.
    is_long: bool,
    /// For each fault and then for each variation, whether it shows in the scenario. If it does not, the server behaves like the plain
    /// server.
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

/// Plays each scenario once against the plain server, which notes the effects that would have shown. Uses `jobs` threads.
fn rehearse<'a>(
    suite: &'a Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    jobs: usize,
    limits: ScenarioLimits,
) -> Vec<RehearsedScenario<'a>> {
    let behaviour = faults.iter().chain(variations).copied().collect::<Behaviour>().with_rehearsal();
    let exchanged = |e: &&Event| !matches!(e.kind, EventKind::Expected(_) | EventKind::Silence { .. });
    let scenarios: Vec<&Scenario> = in_memory(suite).collect();
    in_parallel(scenarios.len(), jobs, |number| {
        let scenario = scenarios[number];
        let (outcome, shows) = play_scenario(suite, scenario, &behaviour, limits);
        let is_long = outcome.events.iter().filter(exchanged).count() > MIN_LONG_SCENARIO;
        RehearsedScenario { scenario, is_long, shows }
    })
}

/// Returns the scenarios that can be played in memory, where no server has an upstream.
fn in_memory(suite: &Suite) -> impl Iterator<Item = &Scenario> {
    let played = |s: &&Scenario| !s.needs.iter().any(|n| n.value == Capability::Upstream);
    suite.testing(ImplementationKind::Server).map(Arc::as_ref).filter(played)
}

fn collect_findings(
    suite: &Suite,
    scenarios: &[&Scenario],
    behaviour: &Behaviour,
    limits: ScenarioLimits,
) -> Vec<KillResult> {
    scenarios.iter().filter_map(|s| found(suite, s, play_scenario(suite, s, behaviour, limits).0)).collect()
}

/// Plays the suite against `faults` and `variations`, on `jobs` threads. Unless `all` is true, scenarios that repeat something many times
/// are played only against faults that no other scenario kills.
pub fn run(
    suite: &Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    all: bool,
    jobs: usize,
) -> KillMatrix {
    // In memory, there is nothing to wait for, and a low limit detects floods quickly.
    let limits =
        ScenarioLimits { step: Duration::from_secs(60), bytes: 16 << 20, ..ScenarioLimits::default() };
    let rehearsed = rehearse(suite, faults, variations, jobs, limits);
    let cases: Vec<FaultCase> = faults
        .iter()
        .copied()
        .enumerate()
        .flat_map(|(number, fault)| Dialect::ALL.map(|dialect| (number, fault, dialect)))
        .map(|(number, fault, dialect)| FaultCase {
            number,
            fault,
            dialect,
            breaks: broken_in(fault, dialect),
        })
        .filter(|case| !case.breaks.is_empty())
        .collect();
    // The plain server, then each variation with its index among the rehearsed behaviours.
    let entries = (faults.len()..).zip(variations.iter().copied()).map(Some);
    let servers: Vec<Option<(usize, &'static Variation)>> = std::iter::once(None).chain(entries).collect();
    let mut matrix = KillMatrix {
        scenarios: in_memory(suite).count(),
        faults: in_parallel(cases.len(), jobs, |at| try_fault(suite, &rehearsed, &cases[at], all, limits)),
        variations: in_parallel(servers.len(), jobs, |at| {
            try_variation(suite, &rehearsed, servers[at], limits)
        }),
        requirements_without_fault: Vec::new(),
    };
    let shown = matrix.cited_requirements();
    matrix.requirements_without_fault = suite
        .catalogue
        .iter()
        .filter(|r| r.needs_fault(BoundParty::Server) && !shown.contains(r.id.as_str()))
        .map(|r| r.id.clone())
        .collect();
    matrix
}

/// A fault in one dialect.
struct FaultCase {
    /// The index of the fault among the rehearsed behaviours.
    number: usize,
    fault: &'static Fault,
    dialect: Dialect,
    /// The requirements that the fault breaks in the dialect.
    breaks: Vec<&'static str>,
}

/// Plays the scenarios in which a fault shows.
fn try_fault(
    suite: &Suite,
    rehearsed: &[RehearsedScenario<'_>],
    case: &FaultCase,
    all: bool,
    limits: ScenarioLimits,
) -> FaultResult {
    let FaultCase { number, fault, dialect, ref breaks } = *case;
    let right = |f: &KillResult| f.requirements.iter().any(|id| breaks.contains(&id.as_str()));
    let behaviour = fault.behaviour();
    let of = |long: bool| -> Vec<KillResult> {
        let shown = rehearsed.iter().filter(|r| r.is_long == long && r.shows.get(number) == Some(&true));
        let spoken = shown.map(|r| r.scenario).filter(|s| s.dialect == dialect);
        collect_findings(suite, &spoken.collect::<Vec<_>>(), &behaviour, limits)
    };
    let mut found = of(false);
    if all || !found.iter().any(right) {
        found.extend(of(true));
    }
    let (killers, wrong_reason) = found.into_iter().partition(right);
    FaultResult {
        name: fault.name,
        dialect,
        description: fault.description,
        breaks: breaks.clone(),
        killers,
        wrong_requirement: wrong_reason,
    }
}

/// Returns the requirements that a fault breaks in a dialect. Only requirements of the dialect's standards are included. A fault that is
/// limited to one dialect may also break requirements of another standard, as in the init line, which PMI-2 shares with PMI-1.
fn broken_in(fault: &Fault, dialect: Dialect) -> Vec<&'static str> {
    let is_of = |id: &&str| {
        fault.dialects != Dialects::All || RequirementSet::of(id).dialect().unwrap_or_default() == dialect
    };
    match fault.dialects.has(dialect.framing()) {
        true => fault.breaks.iter().copied().filter(is_of).collect(),
        false => Vec::new(),
    }
}

/// Plays the scenarios in which a variation shows. The variation is given with its index among the rehearsed behaviours; without one,
/// every scenario is played against the plain server.
fn try_variation(
    suite: &Suite,
    rehearsed: &[RehearsedScenario<'_>],
    entry: Option<(usize, &'static Variation)>,
    limits: ScenarioLimits,
) -> VariationResult {
    let (number, variation) = entry.unzip();
    let behaviour = variation.map(Variation::behaviour).unwrap_or_default();
    let config = Config { wrapper: behaviour.clone(), ..Config::default() };
    let needs = [Capability::Spawn, Capability::Names];
    let lacking: Vec<Capability> = needs
        .into_iter()
        .filter(|need| crate::optional_operations::lacks(suite, *need, &config, limits))
        .collect();
    let dialects = variation.map(|variation| variation.dialects).unwrap_or_default();
    let served = |s: &&Scenario| {
        dialects.has(s.dialect.framing()) && !s.needs.iter().any(|n| lacking.contains(&n.value))
    };
    let shown = rehearsed.iter().filter(|r| number.is_none_or(|number| r.shows.get(number) == Some(&true)));
    let applicable: Vec<&Scenario> = shown.map(|r| r.scenario).filter(served).collect();
    VariationResult {
        name: variation.map_or("plain", |v| v.name),
        description: variation.map_or("the reference server as it is", |v| v.description),
        findings: collect_findings(suite, &applicable, &behaviour, limits)
            .into_iter()
            .filter(|found| !is_advice(suite, found))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use pmi_faults::{faults, variations};

    use super::*;

    /// A scenario in which a fault does not show is not played against the fault. This test plays some of the skipped scenarios, which must
    /// not find the fault.
    #[test]
    fn skipped_scenarios_would_find_nothing() {
        let suite = crate::suite::embedded().expect("the embedded suite is valid");
        let limits =
            ScenarioLimits { step: Duration::from_secs(60), bytes: 16 << 20, ..ScenarioLimits::default() };
        let (faults, variations) = (faults().collect::<Vec<_>>(), variations().collect::<Vec<_>>());
        let rehearsed = rehearse(&suite, &faults, &variations, 2, limits);
        let spared = rehearsed.iter().map(|r| r.shows.iter().filter(|shows| !**shows).count()).sum::<usize>();
        assert!(spared > faults.len(), "no scenario was skipped");
        for (number, fault) in faults.iter().enumerate().step_by(17) {
            for r in rehearsed.iter().filter(|r| !r.is_long && !r.shows[number]) {
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
