//! What a run says: verdicts, and the lines of its log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Exit};
use crate::{Finding, Severity, Side};
use pmi_scenario::ast::Dialect;
use pmi_scenario::requirement::Level;
use pmi_wire::WayIn;

/// Version of the log's format.
pub const LOG_FORMAT: u32 = 3;

/// Stands for the dialect of a recording: that is known when its connections have agreed on one, and told with the result.
pub const AS_NEGOTIATED: &str = "as negotiated";

/// What a scenario came to.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No finding.
    #[default]
    Pass,
    /// Findings of no weight: MAY, de facto, a contradiction of the RFC.
    Note,
    /// A SHOULD is broken.
    Warn,
    /// A MUST or SHALL is broken.
    Fail,
    /// A process of the implementation died of a signal that nobody sent.
    Crashed,
    /// The implementation neither answered nor ended.
    Hung,
    /// It was red, and not when it was played again.
    Flaky,
    /// The implementation lacks what the scenario needs, lawfully.
    NotApplicable,
    /// The harness could not tell: red.
    Unjudged,
}

impl Verdict {
    /// All, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Pass,
        Self::Note,
        Self::Warn,
        Self::Fail,
        Self::Crashed,
        Self::Hung,
        Self::Flaky,
        Self::NotApplicable,
        Self::Unjudged,
    ];

    /// Returns whether the implementation was judged.
    pub fn is_judged(self) -> bool {
        !matches!(self, Self::NotApplicable | Self::Unjudged)
    }

    /// For people: `pass`, `could not judge` ...
    pub fn label(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Crashed => "CRASHED",
            Self::Hung => "HUNG",
            Self::Flaky => "FLAKY",
            Self::NotApplicable => "not applicable",
            Self::Unjudged => "COULD NOT JUDGE",
        }
    }
}

/// Which broken requirements make a run red. Each level counts what the one before it does.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strictness {
    /// MUST and SHALL.
    #[default]
    Must,
    /// SHOULD as well.
    Should,
    /// What implementations agree on beyond the specification as well.
    DeFacto,
}

impl Strictness {
    /// All, with the names that users give.
    pub const NAMES: [(&'static str, Self); 3] =
        [("must", Self::Must), ("should", Self::Should), ("de-facto", Self::DeFacto)];

    /// Returns true if this finding makes the run red.
    pub fn makes_red(self, judged: &Judged) -> bool {
        judged.deviation.is_none() && self.counts(judged)
    }

    /// Whether this finding makes the run red, unless a deviation covers it. What a scenario accepts as one of several outcomes
    /// stays a note.
    pub fn counts(self, judged: &Judged) -> bool {
        match judged.severity {
            Severity::Fail => true,
            Severity::Warn => self >= Self::Should,
            Severity::Note => {
                self >= Self::DeFacto
                    && judged.level == Some(Level::DeFacto)
                    && judged.finding.at_most.is_none()
            }
        }
    }
}

/// A finding with what its requirement says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// What was seen.
    pub finding: Finding,
    /// The requirement's level; absent for crashes and hangs, which need no requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// What it counts as.
    pub severity: Severity,
    /// The requirement in a sentence.
    pub text: String,
    /// Help: the reading of the requirement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// True if only valid input led to it. Computed for the first failures of a scenario.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub valid_input: bool,
    /// The line of the scenario at which it was found: whoever has installed the command does not have the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Reason of the deviation that covers it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<String>,
}

/// A scenario's result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioResult {
    /// Name of the scenario.
    pub scenario: String,
    /// Its summary.
    pub summary: String,
    /// What it came to, deviations set aside.
    pub verdict: Verdict,
    /// Whether deviations cover every finding that would make the run red.
    pub deviates_as_recorded: bool,
    /// The findings: the worst first, a crash before everything else, and else in the order of the transcript.
    pub findings: Vec<Judged>,
    /// Findings that follow from a crash, which is among the findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<Judged>,
    /// Why it does not apply or could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Statements of the scenario behind the place where playing it ended: they are not judged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreached: usize,
    /// The first lines of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached_steps: Vec<UnreachedStep>,
    /// Versions of PMI that connections have agreed on, the lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub negotiated: Vec<String>,
    /// How the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Requirements that it tests.
    pub requires: Vec<String>,
    /// Wall time in microseconds.
    pub time_us: u64,
    /// The command that plays it again.
    pub replay: String,
    /// The scenario's file as shown to the user, for `FILE:LINE`.
    pub path: String,
    /// The events that explain the findings, and the last ones, in order; all of them are in the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_events: Vec<Event>,
    /// Number of events that are left out of these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// How often it was played, if more than once. The rest of the result is of the first of the worst attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
}

/// A line of a scenario that was not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreachedStep {
    /// Its number.
    pub line: usize,
    /// Its text.
    pub step: String,
}

/// What became of a scenario that was played more than once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// How often it was played.
    pub played: u32,
    /// How often it was red.
    pub red: u32,
    /// What was found in any attempt, and in how many.
    pub found: Vec<Repeated>,
}

/// A finding of a scenario that was played more than once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Repeated {
    /// In how many attempts.
    pub times: u32,
    /// True if some attempt shows neither it nor another finding with its symptom.
    #[serde(skip)]
    pub absent: bool,
    /// As it was found first.
    pub judged: Judged,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ScenarioResult {
    /// Whether it makes the run red.
    pub fn is_red(&self, strict: Strictness) -> bool {
        match self.verdict {
            Verdict::Pass | Verdict::Flaky | Verdict::NotApplicable => false,
            Verdict::Note | Verdict::Warn => {
                !self.deviates_as_recorded && self.findings.iter().any(|judged| strict.counts(judged))
            }
            Verdict::Fail | Verdict::Crashed | Verdict::Hung => !self.deviates_as_recorded,
            Verdict::Unjudged => true,
        }
    }

    /// Returns whether deviations cover everything that would make the run red.
    pub fn is_known(&self) -> bool {
        self.deviates_as_recorded && self.verdict.is_judged()
    }

    /// Returns the number of attempts, and the findings with the number of attempts that show each.
    pub fn found(&self) -> (u32, Vec<(&Judged, u32)>) {
        match &self.attempts {
            Some(all) => (all.played, all.found.iter().map(|found| (&found.judged, found.times)).collect()),
            None => (1, self.findings.iter().map(|judged| (judged, 1)).collect()),
        }
    }

    /// The same result by another strictness.
    pub fn at(mut self, strict: Strictness) -> Self {
        let mut red = self.findings.iter().filter(|judged| strict.counts(judged)).peekable();
        self.deviates_as_recorded = red.peek().is_some() && red.all(|judged| judged.deviation.is_some());
        self
    }
}

/// First line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// [`LOG_FORMAT`].
    pub format: u32,
    /// Version of pmi-conform and of its suite.
    pub version: String,
    /// The implementation under test, as given.
    pub server: String,
    /// What it is called, where deviations that belong to it say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// Its version, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation_version: Option<String>,
    /// The command that runs the same again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Sets of requirements that it is judged by because the user asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<String>,
    /// The protocol, `pmi-1.1`; [`AS_NEGOTIATED`] for a recording.
    pub dialect: String,
    /// How the processes of the job come to their connections.
    #[serde(default)]
    pub connection: WayIn,
    /// Whether the connections were relayed to us. Then nobody could look at the server's processes: that an answer does not come was
    /// known by waiting alone, and what died, stayed or grew elsewhere was not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relayed: bool,
    /// Who is under test; `None` for a recording, in which both sides are judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_test: Option<Side>,
    /// Scenarios that were selected.
    pub selected: usize,
    /// What is red.
    pub strict: Strictness,
}

/// What stands between the protocols of a header.
const AND: &str = " and ";

impl RunHeader {
    /// The protocols of a run, as a header has them.
    pub fn protocols(dialects: &BTreeSet<Dialect>) -> String {
        dialects.iter().map(Dialect::to_string).collect::<Vec<_>>().join(AND)
    }

    /// Whether the run is in this protocol, alone or among others.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        self.dialect.split(AND).any(|name| name == dialect.to_string())
    }
}

/// Last line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// Number of scenarios per verdict, without those that deviations cover.
    pub counts: BTreeMap<Verdict, usize>,
    /// Number of scenarios that deviations cover.
    pub deviations: usize,
    /// Entries of the deviations that no longer happen or name unknown scenarios.
    pub stale: Vec<StaleDeviation>,
    /// Selected scenarios without a result: the run was cut short.
    pub unfinished: usize,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Exit status of the command.
    pub exit_code: i32,
    /// Wall time in microseconds.
    pub time_us: u64,
}

/// An entry of a deviations file that is out of date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StaleDeviation {
    /// The deviations file.
    pub file: String,
    /// Line of the entry in it.
    pub line: usize,
    /// The requirement that the entry is about.
    pub requirement: String,
    /// Its scenarios that were played and keep the requirement.
    pub kept: Vec<String>,
    /// Its scenarios that the suite does not have.
    pub unknown: Vec<String>,
    /// True if these are all scenarios of the entry.
    pub is_whole: bool,
}

impl fmt::Display for StaleDeviation {
    /// `d.toml:3: rfc13.get.value no longer happens in kvs/own-key; delete the entry`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.requirement)?;
        if !self.kept.is_empty() {
            write!(f, " no longer happens in {};", self.kept.join(", "))?;
        }
        if !self.unknown.is_empty() {
            write!(f, " names unknown scenarios: {};", self.unknown.join(", "))?;
        }
        f.write_str(if self.is_whole {
            " delete the entry"
        } else {
            " remove these scenarios from the entry"
        })
    }
}

/// A line of a log (NDJSON).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum LogLine {
    /// The first line.
    Run(RunHeader),
    /// Something happened in a scenario.
    Event {
        /// Which scenario.
        scenario: String,
        /// What happened.
        event: Event,
    },
    /// A scenario is done.
    Result(ScenarioResult),
    /// The last line.
    End(RunEnd),
}
