//! The kill matrix of programs and libraries: the results of playing the suite against an implementation in which each fault of the
//! catalogue can be enabled by name.
//!
//! A fault is killed if each scenario that it names has a finding that cites a broken requirement. If a fault names no scenario, one of the
//! scenarios about the broken requirements must have such a finding. Without the fault, the named scenarios must pass. A variation is
//! tested with one scenario from each file, and must not cause any finding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmi_faults::catalogue;
use pmi_faults::client::UNDETECTABLE_REQUIREMENTS;
use pmi_faults::external::{
    ExternalFault, ExternalKill, REQUEST_FORMS, UNBREAKABLE_BY_LIBRARIES, UNBREAKABLE_BY_PROGRAMS,
};

use super::{PartyResult, in_parallel, without_fault};
use crate::iut::Iut;
use crate::run::{RunOptions, run};
use pmi_judge::deviations::Deviations;
use pmi_judge::verdict::{ScenarioResult, Verdict};
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Capability, Dialect, Scenario};
use pmi_scenario::requirement::{BoundParty, Requirement, RequirementSet};
use pmi_scenario::suite::Suite;

/// Number of scenarios that are played between two checks of whether the fault is killed.
const BATCH_SIZE: usize = 4;

/// An implementation whose faults can be enabled by name, and the scenarios for it.
pub struct ExternalMatrix<'a> {
    /// The suite that contains the scenarios.
    pub suite: &'a Suite,
    /// The kind of the implementation: a program or a library.
    pub under_test: ImplementationKind,
    /// The dialect of the scenarios.
    pub dialect: Dialect,
    /// A function that returns the implementation with the named faults, or without a fault if the name is empty.
    pub with_fault: &'a (dyn Fn(&str) -> Iut + Sync),
    /// The options of each run.
    pub options: RunOptions,
    /// Number of faults that are tested at the same time.
    pub jobs: usize,
}

/// The failures of scenarios in runs without the tested fault, by the fault's base and by scenario. The base is the name that such a run
/// passes to `with_fault`.
type CleanResults = BTreeMap<(&'static str, &'static str), Vec<String>>;

impl ExternalMatrix<'_> {
    /// Plays the scenarios about each of the `faults`, and returns the results in the same order.
    pub fn run(&self, faults: &[&'static ExternalFault]) -> Vec<PartyResult> {
        let clean = self.play_without_faults(faults);
        in_parallel(faults.len(), self.jobs, |number| self.result(faults[number], &clean))
    }

    /// Returns the requirements of this dialect that must be tested with a fault of the implementation, but that no finding about a fault
    /// cites. A finding counts only if the fault breaks the requirement. Each requirement comes with the reason why no fault has to break
    /// it, if there is one.
    pub fn without_fault(&self, results: &[PartyResult]) -> Vec<(String, Option<String>)> {
        let party = match self.under_test {
            ImplementationKind::Library => BoundParty::Library,
            _ => BoundParty::Client,
        };
        let is_of_dialect =
            |id: &str| RequirementSet::of(id).dialect().is_some_and(|dialect| dialect == self.dialect);
        let needs = |r: &Requirement| r.needs_fault(party) && is_of_dialect(&r.id);
        let missing =
            without_fault(self.suite, needs, &results.iter().flat_map(PartyResult::cited).collect());
        let with_reason = |id: String| {
            let reason = self.reason_for_no_fault(&id);
            (id, reason)
        };
        missing.into_iter().map(with_reason).collect()
    }

    /// Returns the reason why no fault of the implementation has to break a requirement.
    fn reason_for_no_fault(&self, id: &str) -> Option<String> {
        if self.under_test == ImplementationKind::Library {
            return UNBREAKABLE_BY_LIBRARIES.iter().find(|r| r.id == id).map(|r| r.reason.to_owned());
        }
        if REQUEST_FORMS.iter().any(|prefix| id.starts_with(prefix))
            && let Some(fault) = catalogue().client_faults.iter().find(|fault| fault.breaks.contains(&id))
        {
            return Some(format!("`suite mutants` tests it with the client fault {}", fault.name));
        }
        let exception = UNBREAKABLE_BY_PROGRAMS.iter().find(|exception| **exception == id)?;
        UNDETECTABLE_REQUIREMENTS.iter().find(|r| r.id == *exception).map(|r| r.reason.to_owned())
    }

    /// Plays the scenarios that the given faults name, but without these faults. Returns the failures, by the base of the faults and by
    /// scenario.
    fn play_without_faults(&self, faults: &[&'static ExternalFault]) -> CleanResults {
        let framing = self.dialect.framing();
        let named = |fault: &&'static ExternalFault| {
            let (fault, kills) = (*fault, fault.kills_in(framing));
            kills.filter_map(move |kill| Some((fault.base, kill.scenario?))).collect::<Vec<_>>()
        };
        let pairs = Vec::from_iter(faults.iter().flat_map(named).collect::<BTreeSet<_>>());
        let wrong = in_parallel(pairs.len(), self.jobs, |number| {
            let (base, name) = pairs[number];
            let results = self.play(&self.scenarios_named(name), base);
            results.iter().filter_map(|result| first_disallowed(result, &[Verdict::Pass])).collect()
        });
        pairs.into_iter().zip(wrong).collect()
    }

    fn result(&self, fault: &'static ExternalFault, clean: &CleanResults) -> PartyResult {
        let mut result = PartyResult { name: fault.name, about: fault.about, ..PartyResult::default() };
        if fault.kills.is_empty() {
            let results = self.play(&self.one_of_each(), fault.name);
            let allowed = [Verdict::Pass, Verdict::NotApplicable];
            result.wrong = results.iter().filter_map(|result| first_disallowed(result, &allowed)).collect();
            if !results.iter().any(|result| result.verdict == Verdict::Pass) {
                result.wrong.push("no scenario applies".to_owned());
            }
            return result;
        }
        for kill in fault.kills_in(self.dialect.framing()) {
            let found = match kill.scenario {
                Some(name) => {
                    result.wrong.extend(clean[&(fault.base, name)].iter().cloned());
                    self.cites(&self.scenarios_named(name), fault.name, kill, &mut result)
                }
                None => self.find_in_any(fault, kill, &mut result),
            };
            if !found {
                let of = kill.scenario.map(|name| format!("{name}: ")).unwrap_or_default();
                result.wrong.push(format!("{of}no finding cites {}", kill.requirements.join(" or ")));
            }
            result.breaks.extend(kill.requirements);
        }
        result
    }

    fn scenarios_named(&self, name: &str) -> Vec<Arc<Scenario>> {
        self.scenarios().filter(|scenario| scenario.name == name).collect()
    }

    /// Plays the scenarios about the requirements that a fault breaks, until findings have cited all of these requirements. Returns whether
    /// a finding cites one of them.
    fn find_in_any(&self, fault: &ExternalFault, kill: &ExternalKill, result: &mut PartyResult) -> bool {
        let tests =
            |s: &Arc<Scenario>| s.requires.iter().any(|id| kill.requirements.contains(&id.value.as_str()));
        let mut likely: Vec<_> = self.scenarios().filter(tests).collect();
        // Scenarios whose name contains the first word of the fault's name are likely to find the fault, so they come first.
        let word = fault.name.split('-').next().unwrap_or(fault.name);
        likely.sort_by_key(|scenario| !scenario.name.contains(word));
        let mut is_found = false;
        for scenarios in likely.chunks(BATCH_SIZE) {
            is_found |= self.cites(scenarios, fault.name, kill, result);
            if kill.requirements.iter().all(|id| result.cited.contains(*id)) {
                break;
            }
        }
        is_found
    }

    fn cites(
        &self,
        scenarios: &[Arc<Scenario>],
        fault: &str,
        kill: &ExternalKill,
        result: &mut PartyResult,
    ) -> bool {
        let results = self.play(scenarios, fault);
        let cited: BTreeSet<_> =
            results.iter().flat_map(|r| &r.findings).map(|f| f.finding.requirement.clone()).collect();
        let is_found = kill.requirements.iter().any(|id| cited.contains(*id));
        result.cited.extend(cited);
        is_found
    }

    fn scenarios(&self) -> impl Iterator<Item = Arc<Scenario>> {
        self.suite.testing(self.under_test).filter(|s| s.dialect == self.dialect).cloned()
    }

    /// Returns one scenario from each file, excluding scenarios that need [`Capability::Standalone`]. Only the first row of a table is
    /// included, because the other rows change the server's behaviour, and conforming implementations may react to that differently.
    fn one_of_each(&self) -> Vec<Arc<Scenario>> {
        let mut files = BTreeSet::new();
        let is_first = |s: &Arc<Scenario>| files.insert(s.name.split('[').next().map(str::to_owned));
        let is_alone = |s: &Arc<Scenario>| s.needs.iter().any(|need| need.value == Capability::Standalone);
        self.scenarios().filter(|s| !is_alone(s)).filter(is_first).collect()
    }

    fn play(&self, scenarios: &[Arc<Scenario>], fault: &str) -> Vec<ScenarioResult> {
        let iut = (self.with_fault)(fault);
        let (deviations, stop) = (&mut Deviations::default(), AtomicBool::new(false));
        run(self.suite, scenarios, &iut, deviations, &self.options, &stop, &mut ()).1
    }
}

/// Returns a description of a result whose verdict is not among `allowed`, or `None` if the verdict is allowed.
fn first_disallowed(result: &ScenarioResult, allowed: &[Verdict]) -> Option<String> {
    let is_fine = allowed.contains(&result.verdict);
    let finding = result.findings.first().map(|f| f.finding.requirement.as_str());
    let why = finding.or(result.reason.as_deref()).unwrap_or_default();
    (!is_fine).then(|| format!("{}: {:?} {why}", result.scenario, result.verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_faults_refer_to_known_scenarios() {
        let suite = crate::suite::embedded().expect("the embedded suite is valid");
        let names: BTreeSet<_> = suite.testing(ImplementationKind::Client).map(|s| s.name.as_str()).collect();
        for fault in &catalogue().program_faults {
            let unknown: Vec<_> =
                fault.kills.iter().filter_map(|k| k.scenario).filter(|s| !names.contains(s)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", fault.name);
        }
    }
}
