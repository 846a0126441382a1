//! Proof that the suite can fail, the kill matrix: it is played against every fault and variation of the reference server.
//!
//! A fault is killed by a scenario with a finding that cites a requirement that the fault breaks. A variation must not lead
//! to any finding, of whatever weight.

pub mod client;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmi_faults::{Behaviour, Config, Dialects, Fault, Variation};
use serde::Serialize;

use crate::interpret::play;
use crate::party::{Limits, MemoryParty};
use pmi_judge::ScenarioOutcome;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::result::binds;
use pmi_scenario::UnderTest;
use pmi_scenario::ast::{Dialect, Need, Scenario};
use pmi_scenario::requirement::{Binds, Set};
use pmi_scenario::suite::Suite;

/// Events of a scenario from which on it is long: those that repeat something up to hundreds of times.
const LONG: usize = 250;

/// What one scenario found.
#[derive(Debug, Clone, Serialize)]
pub struct KillResult {
    /// The scenario.
    pub scenario: String,
    /// Requirements that its findings cite.
    pub requirements: BTreeSet<String>,
    /// The first finding: what was expected, and what was seen instead.
    pub first: String,
}

/// The result of a fault in one dialect.
#[derive(Debug, Clone, Serialize)]
pub struct FaultResult {
    /// Its name.
    pub name: &'static str,
    /// The dialect of the scenarios.
    pub dialect: Dialect,
    /// The behaviour of the server.
    pub about: &'static str,
    /// The requirements of this dialect that it breaks.
    pub breaks: Vec<&'static str>,
    /// Scenarios that cite one of them.
    pub killers: Vec<KillResult>,
    /// Scenarios that cite only others.
    pub wrong_reason: Vec<KillResult>,
}

impl FaultResult {
    /// Returns whether a scenario found it for the right reason.
    pub fn is_killed(&self) -> bool {
        !self.killers.is_empty()
    }

    /// The name of the fault and the dialect, for people.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.dialect.word())
    }
}

/// What became of a variation.
#[derive(Debug, Clone, Serialize)]
pub struct VariationResult {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Scenarios that found something, which there should not be.
    pub punished_by: Vec<KillResult>,
}

/// The kill matrix.
#[derive(Debug, Clone, Serialize)]
pub struct KillMatrix {
    /// Scenarios that were played against each.
    pub scenarios: usize,
    /// In the order of the table, by dialect.
    pub faults: Vec<FaultResult>,
    /// In the order of the table; the first is the server with neither fault nor variation.
    pub variations: Vec<VariationResult>,
    /// Requirements that bind servers and that no fault shows to be tested.
    pub without_fault: Vec<String>,
}

impl KillMatrix {
    /// Whether everything is as it has to be.
    pub fn is_complete(&self) -> bool {
        self.faults.iter().all(FaultResult::is_killed)
            && self.variations.iter().all(|v| v.punished_by.is_empty())
            && self.without_fault.is_empty()
    }

    /// Requirements that a finding about a fault that breaks them has cited.
    pub fn shown(&self) -> BTreeSet<&str> {
        let cited = |f: &FaultResult, id: &str| f.killers.iter().any(|k| k.requirements.contains(id));
        self.faults.iter().flat_map(|f| f.breaks.iter().copied().filter(move |id| cited(f, id))).collect()
    }
}

/// Plays one scenario against a server that behaves like this; what came of it, and which effects have shown.
fn play_scenario(
    suite: &Suite,
    scenario: &Scenario,
    behaviour: &Behaviour,
    limits: Limits,
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
    Some(KillResult { scenario: scenario.name.clone(), requirements, first })
}

/// Whether all that was found is told only: the sets that it cites are not agreed on, and servers differ.
fn is_advice(suite: &Suite, found: &KillResult) -> bool {
    let advisory = |id: &String| suite.catalogue.get(id).is_some_and(|r| r.advisory);
    !found.requirements.is_empty() && found.requirements.iter().all(advisory)
}

/// A scenario, and what a rehearsal of all faults and variations has told about it.
struct Rehearsed<'a> {
    scenario: &'a Scenario,
    /// It exchanges much with the plain server.
    is_long: bool,
    /// Of each fault, then of each variation, whether it shows. Where it does not, the server is the plain one.
    shows: Vec<bool>,
}

/// Does `work` for each number below `count`, on so many threads. Returns the results in the order of the numbers.
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

/// Plays each scenario once with the plain server and lets it note what would have shown, on so many threads.
fn rehearse<'a>(
    suite: &'a Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    jobs: usize,
    limits: Limits,
) -> Vec<Rehearsed<'a>> {
    let behaviour = faults.iter().chain(variations).copied().collect::<Behaviour>().rehearsed();
    let exchanged = |e: &&Event| !matches!(e.kind, EventKind::Expected(_) | EventKind::Nothing { .. });
    let scenarios: Vec<&Scenario> = in_memory(suite).collect();
    in_parallel(scenarios.len(), jobs, |number| {
        let scenario = scenarios[number];
        let (outcome, shows) = play_scenario(suite, scenario, &behaviour, limits);
        let is_long = outcome.events.iter().filter(exchanged).count() > LONG;
        Rehearsed { scenario, is_long, shows }
    })
}

/// The scenarios that can be played in memory, where nobody has an upstream.
fn in_memory(suite: &Suite) -> impl Iterator<Item = &Scenario> {
    let played = |s: &&Scenario| !s.needs.iter().any(|n| n.value == Need::Upstream);
    suite.testing(UnderTest::Server).map(Arc::as_ref).filter(played)
}

fn all_found(
    suite: &Suite,
    scenarios: &[&Scenario],
    behaviour: &Behaviour,
    limits: Limits,
) -> Vec<KillResult> {
    scenarios.iter().filter_map(|s| found(suite, s, play_scenario(suite, s, behaviour, limits).0)).collect()
}

/// Plays the suite against these faults and variations, on so many threads. Unless `all`, scenarios that repeat themselves
/// at length are kept for the faults that the others do not kill.
pub fn run(
    suite: &Suite,
    faults: &[&'static Fault],
    variations: &[&'static Variation],
    all: bool,
    jobs: usize,
) -> KillMatrix {
    // Nothing has to be waited for in memory, and what floods is soon known to.
    let limits = Limits { step: Duration::from_secs(60), bytes: 16 << 20, ..Limits::default() };
    let rehearsed = rehearse(suite, faults, variations, jobs, limits);
    let cases: Vec<(usize, &'static Fault, Dialect)> = faults
        .iter()
        .copied()
        .enumerate()
        .flat_map(|(number, fault)| Dialect::NAMES.map(|(_, dialect)| (number, fault, dialect)))
        .filter(|(_, fault, dialect)| !broken_in(fault, *dialect).is_empty())
        .collect();
    // The plain server, then each variation with its number among what was rehearsed.
    let entries = (faults.len()..).zip(variations.iter().copied()).map(Some);
    let servers: Vec<Option<(usize, &'static Variation)>> = std::iter::once(None).chain(entries).collect();
    let mut matrix = KillMatrix {
        scenarios: in_memory(suite).count(),
        faults: in_parallel(cases.len(), jobs, |at| try_fault(suite, &rehearsed, cases[at], all, limits)),
        variations: in_parallel(servers.len(), jobs, |at| {
            try_variation(suite, &rehearsed, servers[at], limits)
        }),
        without_fault: Vec::new(),
    };
    let shown = matrix.shown();
    matrix.without_fault = suite
        .catalogue
        .iter()
        .filter(|r| r.needs_fault(Binds::Server) && !shown.contains(r.id.as_str()))
        .map(|r| r.id.clone())
        .collect();
    matrix
}

/// `number` is that of the fault among what was rehearsed.
fn try_fault(
    suite: &Suite,
    rehearsed: &[Rehearsed<'_>],
    (number, fault, dialect): (usize, &'static Fault, Dialect),
    all: bool,
    limits: Limits,
) -> FaultResult {
    let breaks = broken_in(fault, dialect);
    let right = |f: &KillResult| f.requirements.iter().any(|id| breaks.contains(&id.as_str()));
    let behaviour = fault.behaviour();
    let of = |long: bool| -> Vec<KillResult> {
        let shown = rehearsed.iter().filter(|r| r.is_long == long && r.shows.get(number) == Some(&true));
        let spoken = shown.map(|r| r.scenario).filter(|s| s.dialect == dialect);
        all_found(suite, &spoken.collect::<Vec<_>>(), &behaviour, limits)
    };
    let mut found = of(false);
    if all || !found.iter().any(right) {
        found.extend(of(true));
    }
    let (killers, wrong_reason) = found.into_iter().partition(right);
    FaultResult { name: fault.name, dialect, about: fault.about, breaks, killers, wrong_reason }
}

/// The requirements that a fault breaks in a dialect: those of the standards of this dialect. A fault of one dialect may also break
/// requirements of another standard, as in the init line, which PMI-2 shares with PMI-1.
fn broken_in(fault: &Fault, dialect: Dialect) -> Vec<&'static str> {
    let is_of =
        |id: &&str| fault.dialects != Dialects::All || Set::of(id).is_pmi2() == (dialect == Dialect::Pmi2);
    match fault.dialects.has(dialect.framing()) {
        true => fault.breaks.iter().copied().filter(is_of).collect(),
        false => Vec::new(),
    }
}

/// A variation comes with its number among what was rehearsed; without one, the plain server plays everything.
fn try_variation(
    suite: &Suite,
    rehearsed: &[Rehearsed<'_>],
    entry: Option<(usize, &'static Variation)>,
    limits: Limits,
) -> VariationResult {
    let (number, variation) = entry.unzip();
    let behaviour = variation.map(Variation::behaviour).unwrap_or_default();
    let config = Config { wrapper: behaviour.clone(), ..Config::default() };
    let needs = [Need::Spawn, Need::Names];
    let lacking: Vec<Need> = needs
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
        about: variation.map_or("the reference server as it is", |v| v.about),
        punished_by: all_found(suite, &applicable, &behaviour, limits)
            .into_iter()
            .filter(|found| !is_advice(suite, found))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use pmi_faults::{faults, variations};

    use super::*;

    /// A scenario in which a fault does not show is not played against it. That it would find nothing is tried for some.
    #[test]
    fn skipped_scenarios_would_find_nothing() {
        let suite = crate::suite::embedded().expect("the embedded suite is good");
        let limits = Limits { step: Duration::from_secs(60), bytes: 16 << 20, ..Limits::default() };
        let (faults, variations) = (faults().collect::<Vec<_>>(), variations().collect::<Vec<_>>());
        let rehearsed = rehearse(&suite, &faults, &variations, 2, limits);
        let spared = rehearsed.iter().map(|r| r.shows.iter().filter(|shows| !**shows).count()).sum::<usize>();
        assert!(spared > faults.len(), "everything shows everywhere");
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
