//! The history of each finding over several versions, derived from comparisons of consecutive runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::compare::Comparison;
use super::run::{NamedRun, Run};
use super::text;
use pmi_judge::Severity;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Verdict};

/// Maximum number of scenarios that are named, unless the user requests all names.
const MAX_NAMED_SCENARIOS: usize = 5;
/// Maximum length of a finding's `seen` field, in characters.
const MAX_SEEN_LENGTH: usize = 160;

/// The findings of several versions of an implementation.
#[derive(Debug, Serialize)]
pub(crate) struct VersionHistory {
    /// The versions, the oldest first.
    versions: Vec<HistoryVersion>,
    #[serde(rename = "turns")]
    changes: Vec<HistoryChange>,
    /// The findings that at least one version shows in only some attempts, and that are not attributed to a version.
    intermittent: Vec<IntermittentFinding>,
    always: Vec<String>,
}

/// A finding that a version shows in only some attempts.
#[derive(Debug, Serialize)]
struct IntermittentFinding {
    requirement: String,
    scenario: String,
    seen: String,
    /// For each version, the number of attempts with the finding, and the total number of attempts; `None` if the scenario was not judged.
    frequency: Vec<Option<(u32, u32)>>,
}

#[derive(Debug, Serialize)]
struct HistoryVersion {
    name: String,
    /// Number of requirements that the version breaks, not counting notes.
    broken: usize,
    judged: usize,
    /// True if every selected scenario has a result.
    complete: bool,
}

/// The way in which a finding changed between a version and the previous version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ChangeKind {
    /// This version has the finding, and the previous version does not.
    Introduced,
    /// The previous version has the finding, and this version does not.
    Fixed,
    /// This version has the finding, and the scenario ended earlier in the previous version.
    FirstSeen,
    /// The previous version has the finding, and the scenario ends earlier in this version.
    #[serde(rename = "lost-sight")]
    NoLongerReached,
}

impl ChangeKind {
    /// Returns the text before and after the name of the version.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Introduced => ("introduced in", ""),
            Self::Fixed => ("fixed in", ""),
            Self::FirstSeen => ("first seen in", " (these scenarios ended earlier in the previous version)"),
            Self::NoLongerReached => ("no longer seen in", " (these scenarios end earlier in this version)"),
        }
    }
}

/// A change between a version and the previous version, for one requirement.
#[derive(Debug, Serialize)]
struct HistoryChange {
    /// Index of the version in [`VersionHistory::versions`].
    version: usize,
    #[serde(rename = "becomes")]
    change: ChangeKind,
    severity: Severity,
    requirement: String,
    text: String,
    /// The scenarios with the finding. `seen` and `frequency` describe the first of them.
    scenarios: Vec<String>,
    seen: String,
    /// For the first scenario, the number of attempts with the finding, and the total number of attempts.
    frequency: (u32, u32),
}

/// Returns the worst finding about a requirement, with the number of attempts that show it and the total number of attempts.
fn found<'a>(result: &'a ScenarioResult, id: &str) -> Option<(&'a JudgedFinding, (u32, u32))> {
    let (played, all) = result.found();
    let these = || all.iter().filter(|(judged, _)| judged.finding.requirement == id);
    let times = these().map(|(_, times)| *times).max()?;
    these().max_by_key(|(judged, _)| judged.severity).map(|(judged, _)| (*judged, (times, played)))
}

/// Returns the findings that at least one version shows in only some attempts, and the findings with too few attempts to attribute them to
/// a version.
fn intermittent(entries: &[NamedRun], pairs: &[Comparison]) -> Vec<IntermittentFinding> {
    let uncertain: BTreeSet<(&str, &str)> =
        pairs.iter().flat_map(|pair| &pair.uncertain).map(|u| (&*u.requirement, &*u.scenario)).collect();
    let mut keys: BTreeMap<(&str, &str), &JudgedFinding> = BTreeMap::new();
    for result in entries.iter().flat_map(|entry| &entry.run.results) {
        let (played, all) = result.found();
        for (judged, times) in all.into_iter().filter(|(judged, _)| judged.severity > Severity::Note) {
            let id = judged.finding.requirement.as_str();
            if times < played || uncertain.contains(&(id, &*result.scenario)) {
                keys.entry((id, &result.scenario)).or_insert(judged);
            }
        }
    }
    let of = |((id, scenario), judged): ((&str, &str), &JudgedFinding)| {
        let in_version = |entry: &NamedRun| {
            let result = entry.run.results.iter().find(|result| result.scenario == scenario)?;
            let (played, _) = result.found();
            result
                .verdict
                .is_judged()
                .then(|| found(result, id).map_or((0, played), |(_, frequency)| frequency))
        };
        IntermittentFinding {
            requirement: text::clean(id),
            scenario: text::clean(scenario),
            seen: text::clip(&text::clean(&judged.finding.seen), MAX_SEEN_LENGTH),
            frequency: entries.iter().map(in_version).collect(),
        }
    };
    keys.into_iter().map(of).collect()
}

/// Returns whether the scenario ended early. Such a scenario may have missed findings.
fn ends_early(result: &ScenarioResult) -> bool {
    result.unreached > 0 || matches!(result.verdict, Verdict::Crashed | Verdict::Hung)
}

/// Returns the requirements with a finding more severe than a note.
fn broken(run: &Run) -> BTreeSet<&str> {
    let all = run.results.iter().flat_map(|result| &result.findings);
    all.filter(|judged| judged.severity > Severity::Note)
        .map(|judged| judged.finding.requirement.as_str())
        .collect()
}

/// Compares each version with the next.
fn compared(entries: &[NamedRun]) -> impl Iterator<Item = Comparison> {
    entries.windows(2).map(|pair| Comparison::of(&pair[0].run, &pair[1].run))
}

impl VersionHistory {
    /// Returns the history of these versions, the oldest first.
    pub(crate) fn of(entries: &[NamedRun]) -> Self {
        let version = |entry: &NamedRun| HistoryVersion {
            name: text::clean(&entry.name),
            broken: broken(&entry.run).len(),
            judged: entry.run.results.iter().filter(|result| result.verdict.is_judged()).count(),
            complete: entry.run.unfinished() == 0,
        };
        let mut turns = Vec::new();
        let pairs: Vec<Comparison> = compared(entries).collect();
        for (version, pair) in (1..).zip(&pairs) {
            turns.extend(changes_of_version(version, &entries[version - 1].run, &entries[version].run, pair));
        }
        let mut intermittent = intermittent(entries, &pairs);
        // Remove the findings that are attributed to a version, because the list of changes already contains them.
        intermittent.retain(|this| {
            let is_this = |turn: &HistoryChange| {
                turn.requirement == this.requirement && turn.scenarios.contains(&this.scenario)
            };
            !turns.iter().any(is_this)
        });
        let mut always = entries.first().map(|entry| broken(&entry.run)).unwrap_or_default();
        for entry in entries {
            let these = broken(&entry.run);
            always.retain(|id| these.contains(id));
        }
        Self {
            versions: entries.iter().map(version).collect(),
            changes: turns,
            intermittent,
            always: always.into_iter().map(text::clean).collect(),
        }
    }

    /// Returns the scenarios in which consecutive versions differ, even if the difference may be due to chance.
    pub(crate) fn differing(entries: &[NamedRun]) -> BTreeSet<String> {
        compared(entries).flat_map(Comparison::differing).collect()
    }

    /// Returns whether a version introduced a finding more severe than a note.
    pub(crate) fn got_worse(&self) -> bool {
        self.changes
            .iter()
            .any(|turn| turn.change == ChangeKind::Introduced && turn.severity > Severity::Note)
    }

    /// Writes the history as text. Notes, and findings that every version has, are counted; if `all` is true, they are also listed.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails.
    pub(crate) fn write_to(&self, out: &mut impl Write, all: bool) -> io::Result<()> {
        for (number, version) in self.versions.iter().enumerate() {
            let cut = if version.complete { "" } else { ", cut short" };
            writeln!(
                out,
                "{:2}  {}: {} broken, {} played{cut}",
                number + 1,
                version.name,
                text::count(version.broken, "requirement"),
                text::count(version.judged, "scenario")
            )?;
        }
        let is_listed = |turn: &&HistoryChange| all || turn.severity > Severity::Note;
        let (shown, noted): (Vec<&HistoryChange>, Vec<&HistoryChange>) =
            self.changes.iter().partition(is_listed);
        for turns in shown.chunk_by(|a, b| (a.version, a.change) == (b.version, b.change)) {
            let (version, becomes) = (turns[0].version, turns[0].change);
            let name = &self.versions[version].name;
            let (label, note) = becomes.label();
            writeln!(out, "\n{label} {}  {name}{note}", version + 1)?;
            for turn in turns {
                let label = turn.severity.label();
                let of = text::count(turn.scenarios.len(), "scenario");
                writeln!(out, "  {label} {}: {}", turn.requirement, turn.text)?;
                let named = if all { turn.scenarios.len() } else { MAX_NAMED_SCENARIOS };
                let mut names = turn.scenarios.iter().take(named).cloned().collect::<Vec<_>>().join(", ");
                if turn.scenarios.len() > named {
                    names += &format!(" and {} more", turn.scenarios.len() - named);
                }
                writeln!(out, "       in {of}: {names}")?;
                let often = match turn.frequency {
                    (times, played) if times < played => format!(" (in {times} of {played} runs)"),
                    _ => String::new(),
                };
                writeln!(out, "       seen: {}{often}", turn.seen)?;
            }
        }
        if !self.intermittent.is_empty() {
            writeln!(out, "\nintermittent, or in too few runs to name a version")?;
        }
        for IntermittentFinding { requirement, scenario, seen, frequency } in &self.intermittent {
            let of = |frequency: &Option<(u32, u32)>| match frequency {
                Some((times, played)) => format!("{times} of {played}"),
                None => "not judged".to_owned(),
            };
            let often = frequency.iter().map(of).collect::<Vec<_>>().join(", ");
            writeln!(out, "  {requirement} in {scenario}: {seen}")?;
            writeln!(out, "       runs that show it, version by version: {often}")?;
        }
        writeln!(out)?;
        if !noted.is_empty() {
            let notes = text::count(noted.len(), "changed note");
            writeln!(out, "{notes} (-v prints all)")?;
        }
        match &self.always[..] {
            [] => writeln!(out, "no requirement is broken by every version"),
            ids if all => writeln!(out, "broken by every version: {}", ids.join(" ")),
            ids => {
                let of = text::count(ids.len(), "requirement");
                writeln!(out, "broken by every version: {of} (-v names them)")
            }
        }
    }
}

/// Returns the changes of a version by requirement, the most severe first.
fn changes_of_version(version: usize, before: &Run, after: &Run, pair: &Comparison) -> Vec<HistoryChange> {
    let (first, second) = (before.by_scenario(), after.by_scenario());
    let mut turns: Vec<HistoryChange> = Vec::new();
    for change in &pair.changed {
        let (Some(&old), Some(&new)) = (first.get(&*change.scenario), second.get(&*change.scenario)) else {
            continue;
        };
        if !(old.verdict.is_judged() && new.verdict.is_judged()) {
            continue;
        }
        let introduced = if ends_early(old) { ChangeKind::FirstSeen } else { ChangeKind::Introduced };
        let fixed = if ends_early(new) { ChangeKind::NoLongerReached } else { ChangeKind::Fixed };
        for (ids, becomes, shows) in [(&change.broken, introduced, new), (&change.fixed, fixed, old)] {
            for id in ids {
                let Some((judged, frequency)) = found(shows, id) else { continue };
                let same = turns.iter_mut().find(|t| t.change == becomes && t.requirement == text::clean(id));
                match same {
                    Some(turn) => {
                        turn.severity = turn.severity.max(judged.severity);
                        turn.scenarios.push(text::clean(&change.scenario));
                    }
                    None => turns.push(HistoryChange {
                        version,
                        change: becomes,
                        severity: judged.severity,
                        requirement: text::clean(id),
                        text: text::clean(&judged.text),
                        scenarios: vec![text::clean(&change.scenario)],
                        seen: text::clip(&text::clean(&judged.finding.seen), MAX_SEEN_LENGTH),
                        frequency,
                    }),
                }
            }
        }
    }
    turns.sort_by_key(|turn| (turn.change, std::cmp::Reverse(turn.severity)));
    turns
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use pmi_judge::verdict::{Attempts, RepeatedFinding};

    fn with(scenario: &str, verdict: Verdict, ids: &[&str]) -> ScenarioResult {
        let findings = ids.iter().map(|id| tests::judged(id, Severity::Fail, "this", "that")).collect();
        ScenarioResult { findings, ..tests::result(scenario, verdict) }
    }

    fn entry(name: &str, results: Vec<ScenarioResult>) -> NamedRun {
        let mut run = tests::run();
        run.header.selected = results.len();
        NamedRun { name: name.to_owned(), run: Run { results, ..run } }
    }

    #[test]
    fn intermittent_failure_is_attributed_to_no_version() {
        let crashes = |times: u32| {
            let crash = with("a", Verdict::Crashed, &["iut.no-crash"]);
            let found = vec![RepeatedFinding { times, absent: false, finding: crash.findings[0].clone() }];
            match times {
                0 => with("a", Verdict::Pass, &[]),
                _ => ScenarioResult { attempts: Some(Attempts { played: 25, red: times, found }), ..crash },
            }
        };
        // With only one attempt per version, a crash is not attributed to a version.
        let crash = with("a", Verdict::Crashed, &["iut.no-crash"]);
        let once = [entry("1", vec![crash]), entry("2", vec![with("a", Verdict::Pass, &[])])];
        let history = VersionHistory::of(&once);
        assert!(history.changes.is_empty() && history.intermittent.len() == 1, "{history:?}");
        let entries = [("1", 9), ("2", 0), ("3", 6)].map(|(name, times)| entry(name, vec![crashes(times)]));
        let history = VersionHistory::of(&entries);
        assert!(history.changes.is_empty() && !history.got_worse(), "{history:?}");
        let mut text = Vec::new();
        history.write_to(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("version by version: 9 of 25, 0 of 1, 6 of 25"), "{text}");
    }

    #[test]
    fn history_attributes_findings_to_versions() {
        let early = ScenarioResult { unreached: 3, ..with("c", Verdict::Fail, &["w"]) };
        let entries = [
            entry(
                "one",
                vec![
                    with("a", Verdict::Fail, &["always", "x"]),
                    with("b", Verdict::Pass, &[]),
                    with("c", Verdict::Fail, &["z"]),
                ],
            ),
            entry(
                "two",
                vec![with("a", Verdict::Fail, &["always"]), with("b", Verdict::Fail, &["y"]), early.clone()],
            ),
            entry(
                "three",
                vec![
                    with("a", Verdict::Fail, &["always", "x"]),
                    with("b", Verdict::NotApplicable, &[]),
                    with("c", Verdict::Fail, &["z"]),
                ],
            ),
        ];
        let history = VersionHistory::of(&entries);
        let turns: Vec<_> =
            history.changes.iter().map(|t| (t.version, t.change, t.requirement.as_str())).collect();
        assert_eq!(
            turns,
            [
                (1, ChangeKind::Introduced, "y"),
                (1, ChangeKind::Introduced, "w"),
                (1, ChangeKind::Fixed, "x"),
                // If a scenario ends early, findings about steps that it no longer reaches do not count as fixed.
                (1, ChangeKind::NoLongerReached, "z"),
                // A later finding is not new if the scenario ended earlier in the previous version, or did not apply to that version.
                (2, ChangeKind::Introduced, "x"),
                (2, ChangeKind::Fixed, "w"),
                (2, ChangeKind::FirstSeen, "z"),
            ]
        );
        assert_eq!(history.always, ["always"]);
        assert!(history.got_worse());
        let mut text = Vec::new();
        history.write_to(&mut text, false).unwrap();
        insta::assert_snapshot!("history", String::from_utf8(text).unwrap());
        assert!(!VersionHistory::of(&entries[..1]).got_worse());
    }
}
