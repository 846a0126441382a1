//! The differences between two runs, such as runs of two versions of an implementation, or of one version that was started in two ways.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::run::{Run, subject};
use super::text;
use pmi_judge::Severity;
use pmi_judge::evidence::follows_a_race;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Verdict};

/// The differences between two runs. Times, transcripts and deviations are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) before: ComparedRun,
    pub(crate) after: ComparedRun,
    /// The scenarios of both runs whose verdict or broken requirements differ, in the order of their names.
    pub(crate) changed: Vec<ResultChange>,
    /// Scenarios that differ only in intermittent behaviour, according to the attempts in each run.
    #[serde(rename = "varies")]
    pub(crate) intermittent: Vec<String>,
    /// Differences in findings that depend on timing, where the attempts are too few to exclude chance. Such findings include crashes,
    /// hangs and missing responses, and findings after another process has closed its connection while its last message was incomplete or
    /// unanswered.
    pub(crate) uncertain: Vec<Uncertain>,
    /// Scenarios without a result in the second run.
    pub(crate) only_before: Vec<String>,
    /// Scenarios without a result in the first run.
    pub(crate) only_after: Vec<String>,
    pub(crate) same: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ComparedRun {
    /// The name of the implementation under test, with its version if known.
    pub(crate) server: String,
    /// Version of pmi-conform and of its suite.
    pub(crate) version: String,
    /// True if every selected scenario has a result.
    pub(crate) complete: bool,
}

/// A scenario with different results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ResultChange {
    pub(crate) scenario: String,
    pub(crate) before: Verdict,
    pub(crate) after: Verdict,
    /// Requirements that are broken only in the second run.
    pub(crate) broken: BTreeSet<String>,
    /// Requirements that are broken only in the first run.
    pub(crate) fixed: BTreeSet<String>,
    /// True if a finding is new, or the verdict is worse.
    pub(crate) worse: bool,
}

/// A difference that may be due to chance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Uncertain {
    pub(crate) scenario: String,
    /// The requirement that is broken in only one run.
    pub(crate) requirement: String,
    /// Number of attempts in the first run that have a finding about this requirement, and the total number of attempts in that run.
    pub(crate) before: (u32, u32),
    /// Number of attempts in the second run that have a finding about this requirement, and the total number of attempts in that run.
    pub(crate) after: (u32, u32),
}

/// The probability below which a difference is not attributed to chance.
const MAX_CHANCE: f64 = 0.001;

/// Number of attempts per run that suffices to distinguish change from chance.
const ENOUGH_ATTEMPTS: u32 = 25;

/// Returns the severity of a verdict. The best verdicts have severity 0, and higher numbers are worse.
fn severity_rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass | Verdict::Note | Verdict::NotApplicable => 0,
        Verdict::Warn | Verdict::Flaky => 1,
        Verdict::Fail | Verdict::Unjudged => 2,
        Verdict::Hung => 3,
        Verdict::Crashed => 4,
    }
}

/// The findings of all attempts of a scenario.
struct ScenarioFindings<'a> {
    played: u32,
    /// Number of attempts with a finding, per requirement.
    times: BTreeMap<&'a str, u32>,
    /// Requirements with a finding more severe than a note.
    broken: BTreeSet<&'a str>,
    /// Requirements whose findings another run may lack because of timing: all requirements with a finding if at least one finding depends
    /// on timing, and none otherwise.
    timed: BTreeSet<&'a str>,
}

impl<'a> ScenarioFindings<'a> {
    fn of(result: &'a ScenarioResult) -> Self {
        let (played, found) = result.found();
        let mut this =
            Self { played, times: BTreeMap::new(), broken: BTreeSet::new(), timed: BTreeSet::new() };
        // If one finding of a scenario depends on timing, the others do too. For example, the moment of a crash
        // determines the other findings.
        let is_timed = |(judged, _): &(&JudgedFinding, u32)| {
            judged.finding.depends_on_timing() || follows_a_race(&judged.finding, &result.last_events)
        };
        if found.iter().any(is_timed) {
            this.timed.extend(found.iter().map(|(judged, _)| judged.finding.requirement.as_str()));
        }
        for (judged, times) in found {
            let id = judged.finding.requirement.as_str();
            // Several findings about a requirement may come from the same attempts, so only the largest number of attempts is certain.
            let most = this.times.entry(id).or_default();
            *most = times.max(*most);
            if judged.severity > Severity::Note {
                this.broken.insert(id);
            }
        }
        this
    }

    /// Returns the requirements that have findings in `self` and no findings in `other`.
    fn without(&self, other: &Self) -> BTreeSet<&'a str> {
        self.times.keys().filter(|id| !other.times.contains_key(*id)).copied().collect()
    }

    /// Returns whether `other` may lack a finding by chance. A finding that occurs in only some attempts of `self` may be absent from all
    /// attempts of `other`.
    fn may_be_missed(&self, id: &str, other: &Self) -> bool {
        let rate = f64::from(self.times[id]) / f64::from(self.played);
        (1.0 - rate).powf(f64::from(other.played)) >= MAX_CHANCE
    }

    /// Returns whether a finding that depends on timing may be just as frequent in `other`. Computes the probability that all attempts with
    /// the finding would be in `self` if the finding were equally frequent in both (Fisher's exact test).
    fn may_be_chance(&self, id: &str, other: &Self) -> bool {
        let of_this =
            |attempt: u32| f64::from(self.played - attempt) / f64::from(self.played + other.played - attempt);
        let is_timed = self.timed.contains(id) || !other.timed.is_empty();
        is_timed && (0..self.times[id]).map(of_this).product::<f64>() >= MAX_CHANCE
    }

    /// Returns whether the results agree on severity: each requirement with findings in both is broken in both, or has only notes in both.
    fn has_same_severity(&self, other: &Self) -> bool {
        let mut both = self.times.keys().filter(|id| other.times.contains_key(*id));
        both.all(|id| self.broken.contains(id) == other.broken.contains(id))
    }

    /// Returns the number of attempts with a finding about the requirement `id`, and the total number of attempts.
    fn frequency(&self, id: &str) -> (u32, u32) {
        (self.times.get(id).copied().unwrap_or(0), self.played)
    }

    /// Returns whether every attempt has every finding.
    fn is_steady(&self) -> bool {
        self.times.values().all(|times| *times == self.played)
    }
}

/// Returns whether the sign test excludes chance as the explanation of a difference between two runs. `before` and `after` are the numbers
/// of scenarios that break a requirement only in the first run and only in the second run.
fn is_one_sided(before: u32, after: u32) -> bool {
    let all = before + after;
    let mut term = 0.5_f64.powf(f64::from(all));
    let mut tail = 0.0;
    for n in 0..=before.min(after) {
        tail += term;
        term *= f64::from(all - n) / f64::from(n + 1);
    }
    2.0 * tail < MAX_CHANCE
}

impl ComparedRun {
    fn of(run: &Run) -> Self {
        let complete = run.end.as_ref().is_some_and(|end| end.unfinished == 0);
        Self { server: subject(&run.header), version: run.header.version.clone(), complete }
    }
}

impl Comparison {
    pub(crate) fn of(before: &Run, after: &Run) -> Self {
        let (first, second) = (before.by_scenario(), after.by_scenario());
        let missing = |from: &BTreeMap<&str, &ScenarioResult>, of: &BTreeMap<&str, &ScenarioResult>| {
            from.keys().filter(|name| !of.contains_key(*name)).map(|name| (*name).to_owned()).collect()
        };
        let mut this = Self {
            before: ComparedRun::of(before),
            after: ComparedRun::of(after),
            changed: Vec::new(),
            intermittent: Vec::new(),
            uncertain: Vec::new(),
            only_before: missing(&first, &second),
            only_after: missing(&second, &first),
            same: 0,
        };
        let judged = first.iter().filter_map(|(&scenario, &old)| {
            let new = *second.get(scenario)?;
            Some((scenario, old, new, ScenarioFindings::of(old), ScenarioFindings::of(new)))
        });
        let judged: Vec<_> = judged.collect();
        // For each requirement, the numbers of scenarios that break it only in the first run and only in the second run. Only differences
        // that may be due to chance are counted.
        let mut one_sided: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for (_, old, new, was, is) in &judged {
            if !(old.verdict.is_judged() && new.verdict.is_judged()) {
                continue;
            }
            for id in is.without(was).into_iter().filter(|id| is.may_be_chance(id, was)) {
                one_sided.entry(id).or_default().1 += 1;
            }
            for id in was.without(is).into_iter().filter(|id| was.may_be_chance(id, is)) {
                one_sided.entry(id).or_default().0 += 1;
            }
        }
        let is_uncertain =
            |id: &str| one_sided.get(id).is_some_and(|(before, after)| !is_one_sided(*before, *after));
        for (scenario, old, new, was, is) in &judged {
            let (mut broken, mut fixed) = (is.without(was), was.without(is));
            if old.verdict == new.verdict && broken.is_empty() && fixed.is_empty() {
                this.same += 1;
                continue;
            }
            let both_judged = old.verdict.is_judged() && new.verdict.is_judged();
            let mut uncertain = Vec::new();
            if both_judged {
                for (ids, here, there) in [(&mut broken, is, was), (&mut fixed, was, is)] {
                    ids.retain(|id| {
                        let chance = here.may_be_chance(id, there) && is_uncertain(id);
                        uncertain.extend(chance.then_some(*id));
                        !chance
                    });
                }
            }
            broken.retain(|id| !is.may_be_missed(id, was));
            fixed.retain(|id| !was.may_be_missed(id, is));
            let unsteady = !(was.is_steady() && is.is_steady());
            if broken.is_empty() && fixed.is_empty() && both_judged && was.has_same_severity(is) {
                if unsteady {
                    this.intermittent.push((*scenario).to_owned());
                    continue;
                }
                if !uncertain.is_empty() {
                    this.uncertain.extend(uncertain.into_iter().map(|id| Uncertain {
                        scenario: (*scenario).to_owned(),
                        requirement: id.to_owned(),
                        before: was.frequency(id),
                        after: is.frequency(id),
                    }));
                    continue;
                }
            }
            let owned = |ids: &BTreeSet<&str>| ids.iter().map(|id| (*id).to_owned()).collect();
            this.changed.push(ResultChange {
                worse: severity_rank(new.verdict) > severity_rank(old.verdict)
                    || !broken.is_disjoint(&is.broken),
                scenario: (*scenario).to_owned(),
                before: old.verdict,
                after: new.verdict,
                broken: owned(&broken),
                fixed: owned(&fixed),
            });
        }
        this
    }

    /// Returns the scenarios that both runs judged with different results, even if the difference may be due to chance.
    pub(crate) fn differing(self) -> impl Iterator<Item = String> {
        let changed = self.changed.into_iter().filter(|c| c.before.is_judged() && c.after.is_judged());
        let changed = changed.map(|change| change.scenario);
        changed.chain(self.intermittent).chain(self.uncertain.into_iter().map(|uncertain| uncertain.scenario))
    }

    /// Returns whether the scenarios in both runs have the same results, apart from differences that may be due to chance.
    pub(crate) fn is_same(&self) -> bool {
        self.changed.is_empty()
    }

    pub(crate) fn is_worse(&self) -> bool {
        self.changed.iter().any(|change| change.worse)
    }

    /// Writes the comparison as text. Scenarios that apply in only one run are grouped, because they show which operations an
    /// implementation supports, not how well it performs them. Scenarios that only one run has played are counted; if `all` is true, they
    /// are also named.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails.
    pub(crate) fn write_to(&self, out: &mut impl Write, all: bool) -> io::Result<()> {
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            let cut = if side.complete { "" } else { ", cut short" };
            let (server, version) = (&side.server, text::clean(&side.version));
            writeln!(out, "{name:6}  {server} (judged by pmi-conform {version}{cut})")?;
        }
        let lacks = |verdict| verdict == Verdict::NotApplicable;
        let (applies, differs): (Vec<&ResultChange>, Vec<&ResultChange>) =
            self.changed.iter().partition(|c| lacks(c.before) != lacks(c.after) && !c.worse);
        if !differs.is_empty() {
            writeln!(out)?;
        }
        for change in &differs {
            let verdicts = match change.before == change.after {
                true => change.after.label().to_owned(),
                false => format!("{} -> {}", change.before.label(), change.after.label()),
            };
            writeln!(out, "  {:44} {verdicts}", text::clean(&change.scenario))?;
            for (mark, ids) in [('+', &change.broken), ('-', &change.fixed)] {
                for id in ids {
                    writeln!(out, "      {mark} {}", text::clean(id))?;
                }
            }
        }
        let names =
            |changes: Vec<&&ResultChange>| changes.iter().map(|c| c.scenario.clone()).collect::<Vec<_>>();
        let groups = [
            ("applies only before", names(applies.iter().filter(|c| lacks(c.after)).collect())),
            ("applies only after", names(applies.iter().filter(|c| lacks(c.before)).collect())),
        ];
        for (what, names) in groups.iter().filter(|(_, names)| !names.is_empty()) {
            writeln!(out, "\n{what}: {}", text::clean(&names.join(" ")))?;
        }
        if !self.intermittent.is_empty() {
            let names = text::clean(&self.intermittent.join(" "));
            writeln!(out, "\nintermittent, so two runs may differ: {names}")?;
        }
        if !self.uncertain.is_empty() {
            writeln!(
                out,
                "\nmay be chance, given the number of attempts (use --repeat {ENOUGH_ATTEMPTS} in both runs to distinguish chance from change):"
            )?;
        }
        for Uncertain { scenario, requirement, before, after } in &self.uncertain {
            let (scenario, requirement) = (text::clean(scenario), text::clean(requirement));
            let of = |(times, played): &(u32, u32)| format!("{times} of {played}");
            writeln!(out, "  {scenario:44} {requirement}: {} before, {} after", of(before), of(after))?;
        }
        for (when, names) in [("before", &self.only_before), ("after", &self.only_after)] {
            if all && !names.is_empty() {
                writeln!(out, "\nplayed only {when}: {}", text::clean(&names.join(" ")))?;
            } else if !names.is_empty() {
                writeln!(
                    out,
                    "\nplayed only {when}: {} (-v names them)",
                    text::count(names.len(), "scenario")
                )?;
            }
        }
        let worse = self.changed.iter().filter(|change| change.worse).count();
        let uncertain: BTreeSet<&str> = self.uncertain.iter().map(|u| u.scenario.as_str()).collect();
        let (same, apart) = (self.same + self.intermittent.len(), self.changed.len());
        let chance = match uncertain.len() {
            0 => String::new(),
            n => format!("{n} may be chance, "),
        };
        writeln!(
            out,
            "\n{same} the same, {chance}{apart} different, {worse} worse (+ newly broken, - no longer broken)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use pmi_judge::event::{Bytes, Event, EventKind};
    use pmi_judge::verdict::{Attempts, RepeatedFinding};
    use pmi_wire::Proc;

    fn with(scenario: &str, verdict: Verdict, ids: &[&str]) -> ScenarioResult {
        let findings = ids.iter().map(|id| tests::judged(id, Severity::Fail, "this", "that")).collect();
        ScenarioResult { findings, ..tests::result(scenario, verdict) }
    }

    fn run(results: Vec<ScenarioResult>) -> Run {
        Run { results, ..tests::run() }
    }

    #[test]
    fn comparison_ignores_order_and_times() {
        let a = with("a", Verdict::Fail, &["x", "y"]);
        let b = with("b", Verdict::Pass, &[]);
        let slow = ScenarioResult { time_us: 9, ..with("a", Verdict::Fail, &["y", "x"]) };
        let same = Comparison::of(&run(vec![a, b.clone()]), &run(vec![b, slow]));
        assert!(same.is_same() && same.same == 2, "{same:?}");
    }

    /// Returns a result with the same findings in each of many attempts.
    fn steady(scenario: &str, verdict: Verdict, ids: &[&str]) -> ScenarioResult {
        let result = with(scenario, verdict, ids);
        let found = result
            .findings
            .iter()
            .map(|j| RepeatedFinding { times: 25, absent: false, finding: j.clone() })
            .collect();
        ScenarioResult { attempts: Some(Attempts { played: 25, red: 0, found }), ..result }
    }

    /// Returns a result in which rank 0 leaves after half a message, and rank 1 gets a wrong response.
    fn after_half_a_message(scenario: &str) -> ScenarioResult {
        let proc = |rank| Proc { group: 0, rank };
        let bytes = |text: &str| Bytes(text.into());
        let kinds = [
            EventKind::ToServer { proc: proc(0), bytes: bytes("cmd=put kvsname=k ke") },
            EventKind::ClosedByClient { proc: proc(0) },
            EventKind::ToServer { proc: proc(1), bytes: bytes("cmd=get kvsname=k key=a\n") },
            EventKind::FromServer { proc: proc(1), bytes: bytes("cmd=put_result rc=0\n") },
        ];
        let last_events = (2..).zip(kinds).map(|(seq, kind)| Event::new(seq, kind)).collect();
        ScenarioResult { last_events, ..with(scenario, Verdict::Fail, &["x"]) }
    }

    #[test]
    fn comparison_attributes_a_single_crash_to_chance() {
        let crashed = |scenario: &str| with(scenario, Verdict::Crashed, &["iut.no-crash"]);
        let passed = |scenario: &str| with(scenario, Verdict::Pass, &[]);
        let sometimes = |times| {
            let crash = crashed("a");
            let found = vec![RepeatedFinding { times, absent: false, finding: crash.findings[0].clone() }];
            ScenarioResult { attempts: Some(Attempts { played: 25, red: times, found }), ..crash }
        };
        for (before, after, same) in [
            (passed("a"), crashed("a"), true),
            (crashed("a"), passed("a"), true),
            // In the next four rows, at least one of the two runs made several attempts.
            (passed("a"), sometimes(25), true),
            (steady("a", Verdict::Pass, &[]), sometimes(6), true),
            (steady("a", Verdict::Pass, &[]), sometimes(25), false),
            (steady("a", Verdict::Pass, &[]), sometimes(12), false),
            // A crash changes the other findings.
            (crashed("a"), with("a", Verdict::Fail, &["x"]), true),
            (with("a", Verdict::Crashed, &["iut.no-crash", "x"]), crashed("a"), true),
            // The contents of a response depend on timing only after another process has closed its connection in the middle of a message.
            (passed("a"), with("a", Verdict::Fail, &["x"]), false),
            (passed("a"), after_half_a_message("a"), true),
        ] {
            let comparison = Comparison::of(&run(vec![before]), &run(vec![after]));
            assert_eq!(comparison.is_same(), same, "{comparison:?}");
            let explained = comparison.intermittent.len() + comparison.uncertain.len();
            assert_eq!(explained > 0, same, "{comparison:?}");
            let mut text = Vec::new();
            comparison.write_to(&mut text, false).unwrap();
            let text = String::from_utf8(text).unwrap();
            let count = comparison.uncertain.iter().map(|u| &u.scenario).collect::<BTreeSet<_>>().len();
            assert_eq!(text.contains(&format!(" the same, {count} may be chance, ")), count > 0, "{text}");
        }
        let of_version = |version: &str, result| {
            let mut run = run(vec![result]);
            run.header.server = "mpiexec".to_owned();
            run.header.implementation_version = Some(version.to_owned());
            run
        };
        let (before, after) = (of_version("4.3.2", passed("a")), of_version("5.0.2", crashed("a")));
        let mut text = Vec::new();
        Comparison::of(&before, &after).write_to(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "before  mpiexec 4.3.2 (judged by pmi-conform 0.1.0)\n",
            "after   mpiexec 5.0.2 (judged by pmi-conform 0.1.0)\n",
            "\n0 the same, 1 may be chance, 0 different, 0 worse ",
        ] {
            assert!(text.contains(line), "{text}");
        }
        // If all scenarios crash in one run and none in the other, the difference is not due to chance.
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let all = |of: &dyn Fn(&str) -> ScenarioResult| run(names.iter().map(|name| of(name)).collect());
        assert!(Comparison::of(&all(&passed), &all(&crashed)).is_worse());
    }

    #[test]
    fn sign_test_detects_one_sided_changes() {
        for (before, after, one_sided) in
            [(0, 1, false), (0, 10, false), (0, 11, true), (5, 11, false), (3, 40, true)]
        {
            assert_eq!(is_one_sided(before, after), one_sided, "{before} {after}");
        }
    }

    #[test]
    fn reports_changed_verdicts_and_requirements() {
        let before = run(vec![
            with("kept", Verdict::Pass, &[]),
            steady("worse", Verdict::Pass, &[]),
            with("other", Verdict::Fail, &["x", "y"]),
            with("gone", Verdict::Pass, &[]),
            with("lacks", Verdict::NotApplicable, &[]),
        ]);
        let after = run(vec![
            with("kept", Verdict::Pass, &[]),
            steady("worse", Verdict::Crashed, &["iut.no-crash"]),
            with("other", Verdict::Fail, &["y", "z"]),
            with("come", Verdict::Pass, &[]),
            with("lacks", Verdict::Pass, &[]),
        ]);
        let comparison = Comparison::of(&before, &after);
        assert!(!comparison.is_same() && comparison.is_worse());
        let mut text = Vec::new();
        comparison.write_to(&mut text, false).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }

    #[test]
    fn comparison_allows_for_intermittent_findings() {
        let sometimes = |times, played| {
            let judged = tests::judged("x", Severity::Fail, "this", "that");
            let found = if times == 0 {
                Vec::new()
            } else {
                vec![RepeatedFinding { times, absent: false, finding: judged }]
            };
            let ids: &[&str] = if times == 0 { &[] } else { &["x"] };
            let verdict = if times == 0 { Verdict::Pass } else { Verdict::Fail };
            let attempts = Some(Attempts { played, red: times, found });
            run(vec![ScenarioResult { attempts, ..with("a", verdict, ids) }])
        };
        for (before, after, same) in [
            ((0, 10), (2, 10), true),
            ((2, 10), (0, 10), true),
            ((2, 10), (0, 60), false),
            ((0, 10), (9, 10), false),
            ((0, 10), (10, 10), false),
            ((1, 10), (10, 10), true),
        ] {
            let comparison = Comparison::of(&sometimes(before.0, before.1), &sometimes(after.0, after.1));
            assert_eq!(comparison.is_same(), same, "{before:?} {after:?} {comparison:?}");
            assert_eq!(comparison.is_worse(), !same && after.0 > before.0, "{comparison:?}");
        }
    }

    #[test]
    fn unjudged_or_more_severe_result_counts_as_worse() {
        let attempts = |severity, verdict, times| {
            let judged = || tests::judged("x", severity, "this", "that");
            let found = vec![RepeatedFinding { times, absent: false, finding: judged() }];
            let attempts = Some(Attempts { played: 10, red: 0, found });
            run(vec![ScenarioResult { attempts, findings: vec![judged()], ..tests::result("a", verdict) }])
        };
        let before = attempts(Severity::Note, Verdict::Note, 2);
        let heavier = Comparison::of(&before, &attempts(Severity::Fail, Verdict::Fail, 2));
        let unjudged = Comparison::of(&before, &run(vec![with("a", Verdict::Unjudged, &[])]));
        assert!(heavier.is_worse() && unjudged.is_worse(), "{heavier:?} {unjudged:?}");
        // Two findings that occur in the same attempts count only once.
        let judged = |seen| tests::judged("x", Severity::Fail, "this", seen);
        let found = ["one", "another"]
            .map(|seen| RepeatedFinding { times: 4, absent: false, finding: judged(seen) })
            .to_vec();
        let attempts = Some(Attempts { played: 10, red: 4, found });
        let both = ScenarioResult { attempts, ..with("a", Verdict::Fail, &["x"]) };
        let none = Some(Attempts { played: 10, red: 0, found: Vec::new() });
        let after = ScenarioResult { attempts: none, ..with("a", Verdict::Pass, &[]) };
        assert!(Comparison::of(&run(vec![both]), &run(vec![after])).is_same());
    }

    #[test]
    fn only_new_or_worse_failures_make_a_run_worse() {
        let one = |verdict, ids: &[&str]| run(vec![with("a", verdict, ids)]);
        let noted = |id: &str| {
            let judged = tests::judged(id, Severity::Note, "this", "that");
            run(vec![ScenarioResult { findings: vec![judged], ..tests::result("a", Verdict::Note) }])
        };
        for (before, after, worse) in [
            (one(Verdict::Pass, &[]), one(Verdict::Fail, &["x"]), true),
            (one(Verdict::NotApplicable, &[]), one(Verdict::Fail, &["x"]), true),
            (one(Verdict::Fail, &["x"]), one(Verdict::Fail, &["y"]), true),
            (one(Verdict::Fail, &["x"]), one(Verdict::Crashed, &["x"]), true),
            (one(Verdict::Fail, &["x", "y"]), one(Verdict::Fail, &["x"]), false),
            (one(Verdict::Fail, &["x"]), one(Verdict::Pass, &[]), false),
            (one(Verdict::Pass, &[]), noted("x"), false),
            (run(vec![with("a", Verdict::Fail, &["x"])]), run(vec![with("b", Verdict::Fail, &["x"])]), false),
        ] {
            let comparison = Comparison::of(&before, &after);
            assert_eq!(comparison.is_worse(), worse, "{comparison:?}");
        }
    }
}
