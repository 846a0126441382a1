//! What became of each finding from version to version: neighbours are compared, as two runs are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::compare::Comparison;
use super::run::{Entry, Run};
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::verdict::{Judged, ScenarioResult, Verdict};

/// Scenarios that are named, unless all are to be.
const NAMED: usize = 5;
/// Characters of what was seen that are shown.
const SEEN: usize = 160;

/// The findings of several versions of an implementation.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    /// The versions, the oldest first.
    versions: Vec<Version>,
    /// What became otherwise, version by version.
    turns: Vec<Turn>,
    /// Requirements that every version breaks.
    always: Vec<String>,
}

/// One of the versions.
#[derive(Debug, Serialize)]
struct Version {
    /// What it is called.
    name: String,
    /// Requirements that it breaks, without those that are only noted.
    broken: usize,
    /// Scenarios that were judged.
    judged: usize,
    /// Whether every selected scenario has a result.
    complete: bool,
}

/// What a version has to do with a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Becomes {
    /// The version before it has not what this one has.
    Brought,
    /// The other way round.
    Mended,
    /// The version before it did not come so far.
    FirstSeen,
    /// This one does not come so far.
    LostSight,
}

impl Becomes {
    fn told(self) -> &'static str {
        match self {
            Self::Brought => "brought by",
            Self::Mended => "mended by",
            Self::FirstSeen => "first seen in (the one before ended those scenarios earlier)",
            Self::LostSight => "not seen any more in (it ends those scenarios earlier)",
        }
    }
}

/// A requirement of which a version breaks more or less than the one before it.
#[derive(Debug, Serialize)]
struct Turn {
    /// The version, by its place in [`History::versions`].
    version: usize,
    becomes: Becomes,
    severity: Severity,
    requirement: String,
    /// What it asks for.
    text: String,
    /// In which scenarios, and what was seen in the first.
    scenarios: Vec<String>,
    seen: String,
}

/// What a result says of a requirement.
fn found<'a>(result: &'a ScenarioResult, id: &str) -> Option<&'a Judged> {
    let all = result.findings.iter().filter(|judged| judged.finding.requirement == id);
    all.max_by_key(|judged| judged.severity)
}

/// Whether nothing can be said of what a scenario would have found later.
fn ends_early(result: &ScenarioResult) -> bool {
    result.unreached > 0 || matches!(result.verdict, Verdict::Crashed | Verdict::Hung)
}

/// Whether it says nothing.
fn is_silent(result: &ScenarioResult) -> bool {
    matches!(result.verdict, Verdict::NotApplicable | Verdict::Unjudged)
}

/// Requirements of which more than a note is found.
fn broken(run: &Run) -> BTreeSet<&str> {
    let all = run.results.iter().flat_map(|result| &result.findings);
    all.filter(|judged| judged.severity > Severity::Note)
        .map(|judged| judged.finding.requirement.as_str())
        .collect()
}

impl History {
    /// Of these versions, the oldest first.
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let version = |entry: &Entry| Version {
            name: text::clean(&entry.name),
            broken: broken(&entry.run).len(),
            judged: entry.run.results.iter().filter(|result| !is_silent(result)).count(),
            complete: entry.run.unfinished() == 0,
        };
        let mut turns = Vec::new();
        for (at, pair) in entries.windows(2).enumerate() {
            turns.extend(turns_of(at + 1, &pair[0].run, &pair[1].run));
        }
        let mut always = entries.first().map(|entry| broken(&entry.run)).unwrap_or_default();
        for entry in entries {
            let these = broken(&entry.run);
            always.retain(|id| these.contains(id));
        }
        Self {
            versions: entries.iter().map(version).collect(),
            turns,
            always: always.into_iter().map(text::clean).collect(),
        }
    }

    /// Whether a version has brought what binds.
    pub(crate) fn got_worse(&self) -> bool {
        self.turns.iter().any(|turn| turn.becomes == Becomes::Brought && turn.severity > Severity::Note)
    }

    /// Writes it for people. What is only noted, and what every version breaks, is counted unless all is to be told.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn write_to(&self, out: &mut impl Write, all: bool) -> io::Result<()> {
        for (number, version) in self.versions.iter().enumerate() {
            let cut = if version.complete { "" } else { ", cut short" };
            writeln!(
                out,
                "{:2}  {}: {} broken in {}{cut}",
                number + 1,
                version.name,
                text::count(version.broken, "requirement"),
                text::count(version.judged, "scenario")
            )?;
        }
        let told = |turn: &&Turn| all || turn.severity > Severity::Note;
        let (shown, noted): (Vec<&Turn>, Vec<&Turn>) = self.turns.iter().partition(told);
        for turns in shown.chunk_by(|a, b| (a.version, a.becomes) == (b.version, b.becomes)) {
            let (version, becomes) = (turns[0].version, turns[0].becomes);
            let name = &self.versions[version].name;
            writeln!(out, "\n{} {}  {name}", becomes.told(), version + 1)?;
            for turn in turns {
                let label = tally::severity(turn.severity);
                let of = text::count(turn.scenarios.len(), "scenario");
                writeln!(out, "  {label} {}: {}", turn.requirement, turn.text)?;
                let named = if all { turn.scenarios.len() } else { NAMED };
                let mut names = turn.scenarios.iter().take(named).cloned().collect::<Vec<_>>().join(", ");
                if turn.scenarios.len() > named {
                    names += &format!(" and {} more", turn.scenarios.len() - named);
                }
                writeln!(out, "       in {of}: {names}")?;
                writeln!(out, "       seen: {}", turn.seen)?;
            }
        }
        writeln!(out)?;
        if !noted.is_empty() {
            let notes = text::count(noted.len(), "change");
            writeln!(out, "{notes} of what is only noted (-v tells them)")?;
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

/// What a version has changed, grouped by requirement: the worst first.
fn turns_of(version: usize, before: &Run, after: &Run) -> Vec<Turn> {
    let by_name = |run: &'_ Run| -> BTreeMap<String, usize> {
        run.results.iter().enumerate().map(|(at, result)| (result.scenario.clone(), at)).collect()
    };
    let (first, second) = (by_name(before), by_name(after));
    let mut turns: Vec<Turn> = Vec::new();
    for change in Comparison::of(before, after).changed {
        let (Some(old), Some(new)) = (first.get(&change.scenario), second.get(&change.scenario)) else {
            continue;
        };
        let (old, new) = (&before.results[*old], &after.results[*new]);
        if is_silent(old) || is_silent(new) {
            continue;
        }
        let brought = if ends_early(old) { Becomes::FirstSeen } else { Becomes::Brought };
        let mended = if ends_early(new) { Becomes::LostSight } else { Becomes::Mended };
        for (ids, becomes, shows) in [(&change.broken, brought, new), (&change.mended, mended, old)] {
            for id in ids {
                let Some(judged) = found(shows, id) else { continue };
                let same =
                    turns.iter_mut().find(|t| t.becomes == becomes && t.requirement == text::clean(id));
                match same {
                    Some(turn) => {
                        turn.severity = turn.severity.max(judged.severity);
                        turn.scenarios.push(text::clean(&change.scenario));
                    }
                    None => turns.push(Turn {
                        version,
                        becomes,
                        severity: judged.severity,
                        requirement: text::clean(id),
                        text: text::clean(&judged.text),
                        scenarios: vec![text::clean(&change.scenario)],
                        seen: text::clip(&text::clean(&judged.finding.seen), SEEN),
                    }),
                }
            }
        }
    }
    turns.sort_by_key(|turn| (turn.becomes, std::cmp::Reverse(turn.severity)));
    turns
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;

    fn with(scenario: &str, verdict: Verdict, ids: &[&str]) -> ScenarioResult {
        let findings = ids.iter().map(|id| tests::judged(id, Severity::Fail, "this", "that")).collect();
        ScenarioResult { findings, ..tests::result(scenario, verdict) }
    }

    fn entry(name: &str, results: Vec<ScenarioResult>) -> Entry {
        let mut run = tests::run();
        run.header.selected = results.len();
        Entry { name: name.to_owned(), run: Run { results, ..run } }
    }

    #[test]
    fn each_finding_has_the_version_that_brought_or_mended_it() {
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
        let history = History::of(&entries);
        let turns: Vec<_> =
            history.turns.iter().map(|t| (t.version, t.becomes, t.requirement.as_str())).collect();
        assert_eq!(
            turns,
            [
                (1, Becomes::Brought, "y"),
                (1, Becomes::Brought, "w"),
                (1, Becomes::Mended, "x"),
                // What a scenario would have found that ends early is not mended.
                (1, Becomes::LostSight, "z"),
                // Nor is it brought by who comes further; and what cannot be asked is neither.
                (2, Becomes::Brought, "x"),
                (2, Becomes::Mended, "w"),
                (2, Becomes::FirstSeen, "z"),
            ]
        );
        assert_eq!(history.always, ["always"]);
        assert!(history.got_worse());
        let mut text = Vec::new();
        history.write_to(&mut text, false).unwrap();
        insta::assert_snapshot!("history", String::from_utf8(text).unwrap());
        assert!(!History::of(&entries[..1]).got_worse());
    }
}
