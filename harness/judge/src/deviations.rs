//! Deviations: findings that are known and accepted for one implementation. A deviation that no longer occurs makes the run red, just like
//! a new finding.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

pub use semver::Version;

use crate::verdict::{JudgedFinding, ScenarioResult, StaleDeviation, Strictness, Verdict};
use crate::{Finding, builtin_requirements, golden, symptom};
use pmi_scenario::ast::Scenario;
use pmi_scenario::names::NamePattern;
use pmi_scenario::suite::Suite;
use pmi_wire::ConnectionMethod;

/// The content of a deviations file, for example:
///
/// ```toml
/// implementation = "MPICH Hydra 5.0.2"
///
/// [[deviation]]
/// requirement = "rfc13.init.version-used"
/// scenarios = ["init/*", "group/repeated"]  # names, or patterns with *; every scenario must show the deviation
/// symptom = "pmi_subversion=2"             # part of the observed text, or for a crash "signal 11 (in serve)"; default: any
/// versions = ">=5.0, <6"                   # default: all
/// connection = "port"                      # how processes connect: fd, port or singleton; default: any
/// reason = "Hydra 5.0 answers 1.2 to a client that offers 1.1"
/// link = "https://..."
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviationsFile {
    implementation: String,
    #[serde(default)]
    deviation: Vec<toml::Spanned<DeviationEntry>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviationEntry {
    requirement: String,
    scenarios: Vec<String>,
    symptom: Option<String>,
    versions: Option<semver::VersionReq>,
    connection: Option<ConnectionMethod>,
    reason: String,
    #[serde(default)]
    link: Option<String>,
    /// True if the deviation occurs only in some runs. The entry then cannot be stale.
    #[serde(default)]
    sometimes: bool,
    /// True if the deviation occurs in every run on some systems and never on others, depending on the kernel or the build. The entry then
    /// cannot be stale either.
    #[serde(default, rename = "some-systems")]
    some_systems: bool,
    /// True if the input that triggers the deviation is not public yet. Reports then show only the symptom.
    #[serde(default)]
    sensitive: bool,
}

impl DeviationEntry {
    /// Returns whether the entry covers the finding, regardless of the entry's scenarios.
    fn covers(&self, finding: &Finding) -> bool {
        finding.requirement == self.requirement
            && self.symptom.as_ref().is_none_or(|symptom| symptom::matches(symptom, finding))
    }

    /// Returns true if the entry remains valid even if a run does not show the deviation.
    fn may_be_absent(&self) -> bool {
        self.sometimes || self.some_systems
    }
}

/// The deviations of an implementation.
#[derive(Debug, Clone, Default)]
pub struct Deviations {
    path: PathBuf,
    implementation: Option<String>,
    /// The line, the requirement and the scenarios of each entry, including entries for other versions.
    names: Vec<(usize, String, Vec<String>)>,
    /// One item for each scenario pattern of each entry.
    entries: Vec<PatternEntry>,
    observed: Vec<bool>,
    observable: Vec<bool>,
    /// For each item of `entries`, true if the run plays only some of its scenarios.
    partly_selected: Vec<bool>,
    /// For each item of `entries`, true if its requirement was broken with a different symptom.
    has_other_symptom: Vec<bool>,
}

#[derive(Debug, Clone)]
struct PatternEntry {
    /// The line of the entry in the file.
    line: usize,
    scenario: NamePattern,
    entry: DeviationEntry,
}

/// An invalid deviations file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", file.display())]
pub struct DeviationsError {
    file: PathBuf,
    /// The parse error, with line and column.
    error: Box<toml::de::Error>,
}

impl Deviations {
    /// Parses `text`, the content of the file `path`. Entries for versions other than `version`, or for connections other than
    /// `connection`, are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is not a valid deviations file.
    pub fn parse(
        path: &Path,
        text: &str,
        version: Option<&Version>,
        connection: ConnectionMethod,
    ) -> Result<Self, DeviationsError> {
        let wrong = |error| DeviationsError { file: path.to_owned(), error: Box::new(error) };
        let file: DeviationsFile = toml::from_str(text).map_err(wrong)?;
        let line = |offset: usize| 1 + text[..offset].matches('\n').count();
        let names = file.deviation.iter().map(|e| {
            let entry = e.get_ref();
            (line(e.span().start), entry.requirement.clone(), entry.scenarios.clone())
        });
        let names = names.collect();
        let entries: Vec<PatternEntry> = file
            .deviation
            .into_iter()
            .map(|e| (line(e.span().start), e.into_inner()))
            .filter(|(_, e)| match (&e.versions, version) {
                (Some(range), Some(version)) => range.matches(version),
                _ => true,
            })
            .filter(|(_, e)| e.connection.is_none_or(|by| by == connection))
            .flat_map(|(line, entry)| {
                let scenarios = entry.scenarios.clone();
                scenarios.into_iter().map(move |scenario| PatternEntry {
                    line,
                    scenario: NamePattern::new(&scenario),
                    entry: entry.clone(),
                })
            })
            .collect();
        let none = vec![false; entries.len()];
        Ok(Self {
            path: path.to_owned(),
            implementation: Some(file.implementation),
            names,
            observed: none.clone(),
            partly_selected: none.clone(),
            has_other_symptom: none.clone(),
            observable: none,
            entries,
        })
    }

    /// Returns the line and the id of the first entry whose requirement does not exist.
    pub fn first_unknown_requirement(&self, suite: &Suite) -> Option<(usize, &str)> {
        let is_known =
            |id: &str| suite.catalogue.get(id).is_some() || builtin_requirements::text(id).is_some();
        let wrong = self.names.iter().find(|(_, id, _)| !is_known(id));
        wrong.map(|(line, id, _)| (*line, id.as_str()))
    }

    /// Returns the line of the first entry with a scenario that does not exist, and the name of that scenario.
    pub fn first_unknown_scenario(&self, suite: &Suite) -> Option<(usize, &str)> {
        let is_known = |name: &str| {
            let pattern = NamePattern::new(name);
            suite.has(|scenario| pattern.matches(scenario))
        };
        let mut names = self
            .names
            .iter()
            .flat_map(|(line, _, scenarios)| scenarios.iter().map(|scenario| (*line, scenario.as_str())));
        names.find(|(_, name)| !is_known(name))
    }

    /// Returns the number of entries whose reason has not been written yet.
    pub fn count_unexplained(&self) -> usize {
        let mut lines: Vec<usize> = self
            .entries
            .iter()
            .filter(|e| e.entry.reason.starts_with(PLACEHOLDER_PREFIX))
            .map(|e| e.line)
            .collect();
        lines.dedup();
        lines.len()
    }

    /// States which scenarios of the suite are played. If a pattern also matches other scenarios, its entry cannot be stale, because the
    /// deviation may occur in those.
    pub fn set_selection(&mut self, suite: &Suite, selected: &[Arc<Scenario>]) {
        let selected: HashSet<&str> = selected.iter().map(|scenario| scenario.name.as_str()).collect();
        for (expected, partly) in self.entries.iter().zip(&mut self.partly_selected) {
            let pattern = &expected.scenario;
            *partly = pattern.text().contains('*')
                && suite.has(|name| pattern.matches(name) && !selected.contains(name));
        }
    }

    /// Records the entries whose deviation a result shows, and the entries whose deviation the result could have shown.
    pub fn record(&mut self, result: &ScenarioResult) {
        let repeated = result.attempts.iter().flat_map(|a| &a.found).map(|r| &r.finding);
        let found = result.findings.iter().chain(repeated).chain(&result.consequences);
        let found: Vec<&Finding> = found.map(|judged| &judged.finding).collect();
        let shows_absence = shows_absence(result);
        for (i, PatternEntry { scenario: pattern, entry, .. }) in self.entries.iter().enumerate() {
            if !pattern.matches(&result.scenario) {
                continue;
            }
            self.observable[i] |= shows_absence && !self.partly_selected[i];
            for finding in &found {
                let has_symptom = entry.covers(finding);
                self.observed[i] |= has_symptom;
                self.has_other_symptom[i] |= !has_symptom && finding.requirement == entry.requirement;
            }
        }
    }

    /// Returns the name of the implementation; `None` if there is no deviations file.
    pub fn implementation(&self) -> Option<&str> {
        self.implementation.as_deref()
    }

    /// Returns true if a sensitive deviation applies to the scenario. Reports then show only symptoms, because the input must first be
    /// disclosed to the affected projects.
    pub fn are_sensitive_in(&self, scenario: &str) -> bool {
        self.entries.iter().any(|expected| expected.entry.sensitive && expected.scenario.matches(scenario))
    }

    fn find_covering(&self, scenario: &str, finding: &Finding) -> Option<&DeviationEntry> {
        let mut entries = self.entries.iter().filter(|expected| expected.scenario.matches(scenario));
        entries.find(|expected| expected.entry.covers(finding)).map(|expected| &expected.entry)
    }

    /// Returns the entries for this scenario that are marked `some-systems`.
    fn some_systems(&self, scenario: &str) -> impl Iterator<Item = &DeviationEntry> {
        let entries = self.entries.iter().filter(move |expected| expected.scenario.matches(scenario));
        entries.map(|expected| &expected.entry).filter(|entry| entry.some_systems)
    }

    /// Returns the indices of the entries that name this scenario without a pattern and apply to every run, but whose requirement is not
    /// broken in this result.
    pub fn unconfirmed_in(&self, result: &ScenarioResult) -> BTreeSet<usize> {
        if !shows_absence(result) {
            return BTreeSet::new();
        }
        let found = result.findings.iter().chain(&result.consequences);
        let broken: BTreeSet<&str> = found.map(|judged| judged.finding.requirement.as_str()).collect();
        let entries = self.entries.iter().enumerate().filter(|(_, expected)| {
            let entry = &expected.entry;
            expected.scenario.text() == result.scenario
                && !entry.may_be_absent()
                && !broken.contains(entry.requirement.as_str())
        });
        entries.map(|(index, _)| index).collect()
    }

    /// Marks the findings that deviations cover. Adds a hint to the help text of any other finding for which a deviation states a different
    /// symptom.
    pub fn mark(&self, scenario: &str, findings: &mut [JudgedFinding]) {
        for judged in findings {
            if let Some(entry) = self.find_covering(scenario, &judged.finding) {
                judged.deviation.get_or_insert_with(|| entry.reason.clone());
            } else if judged.deviation.is_none()
                && let Some(hint) = self.other_symptom(scenario, &judged.finding)
                && !judged.help.contains(&hint)
            {
                judged.help = format!("{} {hint}", judged.help).trim_start().to_owned();
            }
        }
    }

    /// Returns a hint about the entry for the scenario and requirement of a finding, if that entry states a symptom.
    fn other_symptom(&self, scenario: &str, finding: &Finding) -> Option<String> {
        let mut entries = self.entries.iter().filter(|expected| expected.scenario.matches(scenario));
        let PatternEntry { line, entry, .. } =
            entries.find(|expected| expected.entry.requirement == finding.requirement)?;
        let symptom = entry.symptom.as_ref()?;
        Some(format!(
            "The deviation at {}:{line} has a different symptom: \"{symptom}\".",
            self.path.display()
        ))
    }

    /// Returns the entries whose deviation did not occur although their scenarios were played. An entry is not stale if its requirement was
    /// broken with a different symptom, which is a separate finding.
    pub fn stale(&self) -> Vec<StaleDeviation> {
        let mut stale: Vec<StaleDeviation> = Vec::new();
        for (i, PatternEntry { line, scenario, entry }) in self.entries.iter().enumerate() {
            let is_kept = self.observable[i] && !self.observed[i] && !self.has_other_symptom[i];
            if !is_kept || entry.may_be_absent() {
                continue;
            }
            if stale.last().is_none_or(|last| last.line != *line) {
                stale.push(StaleDeviation {
                    file: self.path.display().to_string(),
                    line: *line,
                    requirement: entry.requirement.clone(),
                    kept: Vec::new(),
                    is_whole: false,
                });
            }
            let Some(last) = stale.last_mut() else { continue };
            last.kept.push(scenario.text().to_owned());
            let all = self.entries.iter().filter(|other| other.line == *line).count();
            last.is_whole = last.kept.len() == all;
        }
        stale
    }
}

/// Returns the implementations that have a recorded deviation from a requirement, each with the reason.
pub fn recorded_deviations(requirement: &str) -> Vec<(String, String)> {
    let files =
        golden::folders().filter_map(|folder| golden::file(&Path::new(folder).join("deviations.toml")));
    let parsed = files.filter_map(|text| toml::from_str::<DeviationsFile>(text).ok());
    let mut all: Vec<(String, String)> = parsed
        .flat_map(|file| {
            let name = file.implementation;
            file.deviation.into_iter().map(move |e| (name.clone(), e.into_inner()))
        })
        .filter(|(_, entry)| entry.requirement == requirement)
        .map(|(name, entry)| (name, entry.reason))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// The placeholder for the reason of a drafted entry.
pub const PLACEHOLDER_REASON: &str = "TODO: say why";

/// The prefix that marks a reason as not yet written by the user.
const PLACEHOLDER_PREFIX: &str = "TODO";

/// The properties by which findings are grouped into the entries of a draft.
#[derive(PartialEq)]
struct DraftKey<'a> {
    requirement: &'a str,
    symptom: String,
    sometimes: bool,
    some_systems: bool,
    /// The reason and the link of a recorded deviation that covers the finding.
    precedent: Option<(&'a str, Option<&'a str>)>,
}

/// An entry of a draft. An entry for another system has no findings.
struct DraftEntry<'a> {
    key: DraftKey<'a>,
    scenarios: Vec<&'a str>,
    findings: Vec<&'a Finding>,
}

/// Returns the entry with these properties, which is added if it does not exist.
fn entry_with<'e, 'a>(entries: &'e mut Vec<DraftEntry<'a>>, key: DraftKey<'a>) -> &'e mut DraftEntry<'a> {
    let place = entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
        entries.push(DraftEntry { key, scenarios: Vec::new(), findings: Vec::new() });
        entries.len() - 1
    });
    &mut entries[place]
}

/// Returns a text that states the number of entries in a draft and, if reasons are missing, asks the user to add them. Returns `None` if
/// the draft has no entries.
pub fn summarize_draft(text: &str) -> Option<String> {
    let (entries, unexplained) =
        (text.matches("[[deviation]]").count(), text.matches(PLACEHOLDER_REASON).count());
    match (entries, unexplained) {
        (0, _) => None,
        (1, 0) => Some("1 entry".to_owned()),
        (1, _) => Some("1 entry; add its reason".to_owned()),
        (n, 0) => Some(format!("{n} entries")),
        (n, missing) if n == missing => Some(format!("{n} entries; add their reasons")),
        (n, missing) => Some(format!("{n} entries; add the missing reasons ({missing})")),
    }
}

/// Names of a process manager's processes that may occur in a reason.
const MANAGER_PROCESSES: [&str; 4] = ["proxy", "mpiexec", "slurmstepd", "srun"];

/// Returns whether a reason can apply to a finding. A reason that names a process does not apply to a crash of a different process.
fn applies_to(reason: &str, finding: &Finding) -> bool {
    let mut named = MANAGER_PROCESSES.iter().filter(|name| reason.contains(**name)).peekable();
    finding.requirement != builtin_requirements::NO_CRASH
        || named.peek().is_none()
        || named.any(|name| finding.seen.contains(name))
}

/// Drafts a deviations file from the findings that would make the run red and that no deviation covers. Violations of SHOULD requirements
/// are always included. The draft has an entry for each cause, with all scenarios of the cause. `precedents` are the deviations of related
/// implementations, the closest first. If a precedent covers a finding, the draft reuses its reason. All other reasons are left to the
/// user. An entry is marked `sometimes` if its finding was absent from an attempt, or if its precedent has this mark. If a precedent is
/// marked `some-systems`, the entry has this mark too, and the draft includes the precedent's entries for other systems.
pub fn draft(
    implementation: &str,
    results: &[ScenarioResult],
    strict: Strictness,
    precedents: &[Deviations],
) -> String {
    // The draft includes violations of SHOULD requirements even if they do not make the run red.
    let strict = strict.max(Strictness::Should);
    let mut entries: Vec<DraftEntry<'_>> = Vec::new();
    for result in results {
        let found: Vec<(&JudgedFinding, bool)> = match &result.attempts {
            Some(attempts) => attempts.found.iter().map(|found| (&found.finding, found.absent)).collect(),
            None => result.findings.iter().map(|judged| (judged, false)).collect(),
        };
        for (judged, sometimes) in found {
            if !strict.makes_red(judged) {
                continue;
            }
            let finding = &judged.finding;
            let precedent =
                precedents.iter().find_map(|known| known.find_covering(&result.scenario, finding));
            let precedent = precedent.filter(|entry| applies_to(&entry.reason, finding));
            let key = DraftKey {
                requirement: &finding.requirement,
                symptom: symptom::of(finding),
                sometimes: sometimes || precedent.is_some_and(|entry| entry.sometimes),
                some_systems: precedent.is_some_and(|entry| entry.some_systems),
                precedent: precedent.map(|entry| (entry.reason.as_str(), entry.link.as_deref())),
            };
            let entry = entry_with(&mut entries, key);
            if !entry.scenarios.contains(&result.scenario.as_str()) {
                entry.scenarios.push(&result.scenario);
            }
            entry.findings.push(finding);
        }
    }
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut text = format!(
        "# Drafted from {}. State for each entry the reason and where it was reported; delete entries that the implementation did not cause.\n\
         implementation = {}\n",
        // The minimum is taken because some scenarios are played more often than `--repeat` requests, for example to examine a failure.
        match results.iter().filter(|r| r.verdict.is_judged()).map(|r| r.found().0).min() {
            Some(played @ 2..) => format!("{played} runs"),
            _ => "one run, which does not show intermittent findings; use --repeat 5 to find them".to_owned(),
        },
        quoted(implementation)
    );
    // On another system, the same scenarios may show other findings.
    let depends = |entry: &&DraftEntry<'_>| entry.key.some_systems;
    let dependent: Vec<&str> =
        entries.iter().filter(depends).flat_map(|e| e.scenarios.iter().copied()).collect();
    for scenario in dependent {
        for known in precedents.iter().flat_map(|known| known.some_systems(scenario)) {
            let is_drafted = |entry: &DraftEntry<'_>| {
                entry.key.requirement == known.requirement && entry.scenarios.contains(&scenario)
            };
            if entries.iter().any(is_drafted) {
                continue;
            }
            let key = DraftKey {
                requirement: &known.requirement,
                symptom: known.symptom.clone().unwrap_or_default(),
                sometimes: known.sometimes,
                some_systems: true,
                precedent: Some((&known.reason, known.link.as_deref())),
            };
            entry_with(&mut entries, key).scenarios.push(scenario);
        }
    }
    for DraftEntry { key, scenarios, findings } in entries {
        let DraftKey { requirement, symptom, sometimes, some_systems, precedent } = key;
        let names: Vec<String> = scenarios.iter().map(|name| quoted(name)).collect();
        let names = match names.len() {
            1 => format!("[{}]", names[0]),
            _ => format!("[\n  {},\n]", names.join(",\n  ")),
        };
        text += &format!("\n[[deviation]]\nrequirement = {}\nscenarios = {names}\n", quoted(requirement));
        let symptom = match findings.is_empty() {
            true => Some(symptom).filter(|symptom| !symptom.is_empty()),
            false => symptom::common_symptom(findings),
        };
        if let Some(symptom) = symptom {
            text += &format!("symptom = {}\n", quoted(&symptom));
        }
        if sometimes {
            text += "sometimes = true\n";
        }
        if some_systems {
            text += "some-systems = true\n";
        }
        let (reason, link) = precedent.map_or((PLACEHOLDER_REASON, None), |known| known);
        text += &format!("reason = {}\n", quoted(reason));
        if let Some(link) = link {
            text += &format!("link = {}\n", quoted(link));
        }
    }
    text
}

/// Returns whether the absence of a deviation from this result shows that the deviation no longer occurs. This is not the case if the
/// scenario was not judged, or if it ended before its last step, because another deviation may have ended it.
fn shows_absence(result: &ScenarioResult) -> bool {
    result.unreached == 0 && !matches!(result.verdict, Verdict::Unjudged | Verdict::NotApplicable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartyKind;
    use crate::attempts::AttemptMerger;
    use crate::backtrace::CrashLocation;
    use crate::verdict::{Attempts, RepeatedFinding};
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, None)]
    #[case(1, 0, Some("1 entry"))]
    #[case(0, 1, Some("1 entry; add its reason"))]
    #[case(2, 0, Some("2 entries"))]
    #[case(0, 2, Some("2 entries; add their reasons"))]
    #[case(2, 1, Some("3 entries; add the missing reasons (1)"))]
    fn summary_of_draft_asks_for_missing_reasons(
        #[case] explained: usize,
        #[case] unexplained: usize,
        #[case] expected: Option<&str>,
    ) {
        let entry = |reason| format!("[[deviation]]\nreason = \"{reason}\"\n");
        let draft = entry("r").repeat(explained) + &entry(PLACEHOLDER_REASON).repeat(unexplained);
        assert_eq!(summarize_draft(&draft).as_deref(), expected);
    }

    fn parsed(text: &str) -> Deviations {
        let text = format!("implementation = \"x\"\n[[deviation]]\n{text}reason = \"r\"\n");
        Deviations::parse(Path::new("d"), &text, None, ConnectionMethod::Fd).unwrap()
    }

    #[test]
    fn entry_is_not_stale_if_its_requirement_is_broken() {
        let text = "requirement = \"iut.no-crash\"\nscenarios = [\"kvs/own-key\"]\nsymptom = \"signal 11 (in get)\"\n";
        let stale = |seen: Option<&str>| {
            let mut deviations = parsed(text);
            let mut findings: Vec<JudgedFinding> = seen.iter().map(|seen| crash(seen)).collect();
            deviations.mark("kvs/own-key", &mut findings);
            let scenario = "kvs/own-key".to_owned();
            deviations.record(&ScenarioResult { scenario, findings: findings.clone(), ..Default::default() });
            let hint = "The deviation at d:2 has a different symptom: \"signal 11 (in get)\".";
            let count =
                |is: fn(&JudgedFinding, &str) -> bool| findings.iter().filter(|f| is(f, hint)).count();
            (deviations.stale().len(), count(|f, _| f.deviation.is_some()), count(|f, hint| f.help == hint))
        };
        assert_eq!(stale(Some("pm died of signal 11 (in get at pm.c:9)")), (0, 1, 0));
        assert_eq!(
            stale(Some("pm died of signal 6 (in get at pm.c:9)")),
            (0, 0, 1),
            "a crash by a different signal is a new finding"
        );
        assert_eq!(stale(None), (1, 0, 0));
    }

    #[test]
    fn reason_applies_only_to_the_process_it_names() {
        let crash = |name: &str| {
            let seen = format!("{name} died of signal 11");
            Finding::new(builtin_requirements::NO_CRASH, PartyKind::Server, "", seen)
        };
        for (reason, process, is_about_it) in [
            ("the proxy dies of SIGSEGV", "hydra_pmi_proxy", true),
            ("the proxy dies of SIGSEGV", "the launcher, mpiexec,", false),
            ("mpiexec dies when its proxy has gone", "the launcher, mpiexec,", true),
            ("a null pointer", "the launcher, mpiexec,", true),
        ] {
            assert_eq!(applies_to(reason, &crash(process)), is_about_it, "{reason}: {process}");
        }
    }

    /// A scenario whose failure was examined alongside other jobs was played more often than other scenarios.
    #[test]
    fn draft_states_the_number_of_runs() {
        let result = |scenario: &str, played: u32| {
            let finding = Finding::new("rfc13.get.value", PartyKind::Server, "", "rc=1");
            let judged = crate::result::judged(&Default::default(), finding);
            let found = vec![RepeatedFinding { times: 1, absent: true, finding: judged.clone() }];
            let attempts = (played > 1).then_some(Attempts { played, red: 1, found });
            ScenarioResult {
                scenario: scenario.into(),
                findings: vec![judged],
                attempts,
                ..Default::default()
            }
        };
        let of = |results: &[ScenarioResult]| draft("x", results, Strictness::Must, &[]);
        assert!(of(&[result("a", 5), result("b", 26)]).starts_with("# Drafted from 5 runs."));
        assert!(of(&[result("a", 1), result("b", 26)]).starts_with("# Drafted from one run"));
    }

    #[test]
    fn stale_entry_lists_its_scenarios_once() {
        let scenarios = "[\"kvs/own-key\", \"kvs/value-*\", \"kvs/many-keys\"]";
        let mut deviations = parsed(&format!("requirement = \"rfc13.get.value\"\nscenarios = {scenarios}\n"));
        let passed = |name: &str| ScenarioResult { scenario: name.to_owned(), ..Default::default() };
        deviations.record(&passed("kvs/own-key"));
        deviations.record(&passed("kvs/value-blank"));
        let stale: Vec<String> = deviations.stale().iter().map(ToString::to_string).collect();
        let entry = "d:2: rfc13.get.value is no longer broken in kvs/own-key, kvs/value-*; \
                     remove these scenarios from the entry";
        assert_eq!(stale, [entry], "kvs/many-keys was not played");
        deviations.record(&passed("kvs/many-keys"));
        assert!(deviations.stale()[0].is_whole);
    }

    #[rstest]
    #[case(Verdict::Pass, 0, true)]
    #[case(Verdict::NotApplicable, 0, false)]
    #[case(Verdict::Unjudged, 0, false)]
    #[case(Verdict::Fail, 0, true)]
    #[case(Verdict::Fail, 3, false)]
    fn unjudged_scenario_does_not_make_an_entry_stale(
        #[case] verdict: Verdict,
        #[case] unreached: usize,
        #[case] is_stale: bool,
    ) {
        let mut deviations = parsed("requirement = \"rfc13.get.value\"\nscenarios = [\"kvs/own-key\"]\n");
        let scenario = "kvs/own-key".to_owned();
        let result = ScenarioResult { scenario, verdict, unreached, ..ScenarioResult::default() };
        assert_eq!(!deviations.unconfirmed_in(&result).is_empty(), is_stale);
        deviations.record(&result);
        assert_eq!(!deviations.stale().is_empty(), is_stale);
    }

    /// In each of three attempts, a process dies at one of two addresses. In one of the attempts, it also answers incorrectly.
    #[test]
    fn draft_marks_intermittent_findings() {
        let wrong = |seen: &str| {
            let finding = Finding::new("rfc13.error.rc-nonzero", PartyKind::Server, "", seen);
            JudgedFinding { finding, ..crash("") }
        };
        let mut attempts = AttemptMerger::new(Strictness::Must);
        for offset in [0x10, 0x20, 0x10] {
            let place = CrashLocation::Address { module: "pm".to_owned(), offset };
            let mut died = crash(&format!("pm died of signal 11 (in {place})"));
            died.finding.place = Some(place);
            let mut findings = vec![died];
            findings.extend((offset == 0x20).then(|| wrong("rc=0 in place of an error")));
            let scenario = "spawn/malformed[no-execname]".to_owned();
            attempts.add(ScenarioResult { scenario, findings, ..ScenarioResult::default() });
        }
        let results = [attempts.finish(false).unwrap()];
        let drafted = |precedents: &[Deviations]| {
            let text = draft("x", &results, Strictness::Must, precedents);
            let file: DeviationsFile = toml::from_str(&text).unwrap();
            file.deviation.into_iter().map(toml::Spanned::into_inner).collect::<Vec<_>>()
        };
        let sometimes = |entries: &[DeviationEntry]| entries.iter().map(|e| e.sometimes).collect::<Vec<_>>();
        assert_eq!(sometimes(&drafted(&[])), [false, true]);
        let precedent = |key: &str| {
            [parsed(&format!("requirement = \"iut.no-crash\"\nscenarios = [\"spawn/*\"]\n{key} = true\n"))]
        };
        assert_eq!(sometimes(&drafted(&precedent("sometimes"))), [true, true], "a known race");
        let mut known = precedent("some-systems");
        let entries = drafted(&known);
        assert_eq!(sometimes(&entries), [false, true]);
        assert_eq!(entries[0].reason, "r");
        assert!(entries[0].some_systems && !entries[1].some_systems);
        // On another system, the same scenario breaks another requirement.
        known = [parsed(
            "requirement = \"rfc13.wire.lock-step\"\nscenarios = [\"spawn/*\"]\nsome-systems = true\nreason = \"o\"\n\
             [[deviation]]\nrequirement = \"iut.no-crash\"\nscenarios = [\"spawn/*\"]\nsome-systems = true\n",
        )];
        let entries = drafted(&known);
        assert_eq!((entries.len(), &*entries[2].reason, entries[2].some_systems), (3, "o", true));
    }

    fn crash(seen: &str) -> JudgedFinding {
        let place = Some(CrashLocation::Function("get".to_owned()));
        let finding =
            Finding { place, ..Finding::new(builtin_requirements::NO_CRASH, PartyKind::Server, "", seen) };
        JudgedFinding { help: String::new(), ..crate::result::judged(&Default::default(), finding) }
    }

    #[test]
    fn ignores_deviations_of_other_connection_methods() {
        let text = "implementation = \"x\"\n[[deviation]]\nrequirement = \"iut.no-crash\"\nscenarios = [\"a\"]\n\
                    connection = \"port\"\nreason = \"r\"\nsensitive = true\n";
        let counts = |by| Deviations::parse(Path::new("d"), text, None, by).unwrap().are_sensitive_in("a");
        assert!(counts(ConnectionMethod::Port));
        assert!(!counts(ConnectionMethod::Fd));
        let wrong = text.replace("\"port\"", "\"door\"");
        let error =
            Deviations::parse(Path::new("d"), &wrong, None, ConnectionMethod::Fd).unwrap_err().to_string();
        assert!(error.contains("door") && error.contains("line 5"), "{error}");
    }
}
