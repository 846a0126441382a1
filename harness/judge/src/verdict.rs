//! Verdicts, results of scenarios, and the lines of a run's log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Exit};
use crate::{Finding, PartyKind, Severity};
use pmi_scenario::ast::Dialect;
use pmi_scenario::requirement::Level;
use pmi_wire::ConnectionMethod;

/// Version of the log format.
pub const LOG_FORMAT: u32 = 3;

/// The `dialect` in the header of a recording. The connections negotiate the dialect later, and each result contains the negotiated
/// versions.
pub const NEGOTIATED_DIALECT: &str = "as negotiated";

/// The verdict on a scenario.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No findings.
    #[default]
    Pass,
    /// Only minor findings, for example about a MAY, a de facto requirement, or a statement that another part of RFC 13 contradicts.
    Note,
    /// A SHOULD is broken.
    Warn,
    /// A MUST or SHALL is broken.
    Fail,
    /// A process of the implementation died of a signal that no other process sent, or of an uncaught exception.
    Crashed,
    /// The implementation neither answered nor exited.
    Hung,
    /// The scenario failed, but passed when it was played again.
    Flaky,
    /// The scenario does not apply, for example because the implementation lacks an optional operation that the scenario needs.
    NotApplicable,
    /// The implementation could not be judged. The run fails.
    Unjudged,
}

impl Verdict {
    /// All verdicts, in the order in which reports list them.
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

    /// Returns the name of the verdict in reports, for example `pass` or `COULD NOT JUDGE`.
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

/// The levels of requirements whose violation makes a run red. Each value includes the levels of the previous value.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strictness {
    /// MUST and SHALL requirements.
    #[default]
    Must,
    /// MUST and SHOULD requirements.
    Should,
    /// MUST, SHOULD and de facto requirements. De facto requirements describe behaviour that implementations share
    /// beyond the specification.
    DeFacto,
}

impl Strictness {
    /// All values, with their names on the command line.
    pub const NAMES: [(&'static str, Self); 3] =
        [("must", Self::Must), ("should", Self::Should), ("de-facto", Self::DeFacto)];

    /// Returns whether this finding makes the run red.
    pub fn makes_red(self, judged: &JudgedFinding) -> bool {
        judged.deviation.is_none() && self.counts(judged)
    }

    /// Returns whether this finding would make the run red if no deviation covered it. An outcome that the scenario accepts as an
    /// alternative remains a note.
    pub fn counts(self, judged: &JudgedFinding) -> bool {
        match judged.severity {
            Severity::Fail => true,
            Severity::Warn => self >= Self::Should,
            Severity::Note => {
                self >= Self::DeFacto
                    && judged.level == Some(Level::DeFacto)
                    && judged.finding.max_severity.is_none()
            }
        }
    }
}

/// A finding with the content of its requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Judged")]
pub struct JudgedFinding {
    /// The finding.
    pub finding: Finding,
    /// The requirement's level; `None` for a built-in requirement, which is not in the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// The severity of the finding.
    pub severity: Severity,
    /// The requirement in one sentence.
    pub text: String,
    /// The help text, for example our interpretation of the requirement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// True if only valid input led to the finding. Computed only for the first few failures of a scenario; false for the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub valid_input: bool,
    /// The text of the scenario's line at which the finding was made. Users who installed the command do not have the scenario's file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The reason for the deviation that covers the finding, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<String>,
}

/// The result of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioResult {
    /// Name of the scenario.
    pub scenario: String,
    /// The summary of the scenario.
    pub summary: String,
    /// The verdict, regardless of deviations.
    pub verdict: Verdict,
    /// True if deviations cover all findings that would make the run red.
    pub deviates_as_recorded: bool,
    /// The findings, sorted by severity, then by kind (a crash first), then by the order of the events.
    pub findings: Vec<JudgedFinding>,
    /// Findings that other findings explain, for example the consequences of a crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<JudgedFinding>,
    /// The reason why the scenario does not apply or could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of statements that were not reached because the scenario ended early. These statements were not judged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreached: usize,
    /// The first lines that were not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached_steps: Vec<UnreachedStep>,
    /// Versions of PMI that connections have negotiated, the lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub negotiated: Vec<String>,
    /// The exit of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Requirements that the scenario tests.
    pub requires: Vec<String>,
    /// Wall time in microseconds.
    pub time_us: u64,
    /// The command that replays the scenario.
    pub replay: String,
    /// The path of the scenario's file, as shown to the user in `FILE:LINE`.
    pub path: String,
    /// The words that the scenario puts before the launcher's command, in its `launch` line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<String>,
    /// The events that explain the findings, and the last events, in order. The log contains all events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_events: Vec<Event>,
    /// Number of events that `last_events` leaves out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Statistics of the attempts, if the scenario was played more than once. The other fields describe the first of the worst attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
}

/// A line of a scenario that was not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreachedStep {
    /// Number of the line.
    pub line: usize,
    /// Text of the line.
    pub step: String,
}

/// Statistics of a scenario that was played more than once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Number of times that the scenario was played.
    pub played: u32,
    /// Number of attempts whose result was red.
    pub red: u32,
    /// The findings of all attempts, each with the number of attempts that show it.
    pub found: Vec<RepeatedFinding>,
}

/// A finding of a scenario that was played more than once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Repeated")]
pub struct RepeatedFinding {
    /// Number of attempts that show the finding.
    pub times: u32,
    /// True if at least one attempt shows neither this finding nor a different finding with the same symptom.
    #[serde(skip)]
    pub absent: bool,
    /// The finding in the first attempt that showed it.
    #[serde(rename = "judged")]
    pub finding: JudgedFinding,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ScenarioResult {
    /// Returns whether the result makes the run red.
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
    pub fn found(&self) -> (u32, Vec<(&JudgedFinding, u32)>) {
        match &self.attempts {
            Some(all) => (all.played, all.found.iter().map(|found| (&found.finding, found.times)).collect()),
            None => (1, self.findings.iter().map(|judged| (judged, 1)).collect()),
        }
    }

    /// Returns the result for a different strictness.
    pub fn at(mut self, strict: Strictness) -> Self {
        let mut red = self.findings.iter().filter(|judged| strict.counts(judged)).peekable();
        self.deviates_as_recorded = red.peek().is_some() && red.all(|judged| judged.deviation.is_some());
        self
    }
}

/// The first line of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// The version of the format: [`LOG_FORMAT`].
    pub format: u32,
    /// Version of pmi-conform and of its suite.
    pub version: String,
    /// The command of the implementation under test, as the user gave it.
    pub server: String,
    /// The name of the implementation, if the deviations state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// The version of the implementation, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation_version: Option<String>,
    /// The command that repeats the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Optional sets of requirements that the user selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<String>,
    /// The protocol, for example `pmi-1.1`; [`NEGOTIATED_DIALECT`] for a recording.
    pub dialect: String,
    /// The kind of connection that the processes of the job receive.
    #[serde(default)]
    pub connection: ConnectionMethod,
    /// True if connections were relayed from other hosts. The harness then cannot examine the server's processes: it detects missing
    /// responses only by timeout, and misses crashes, leftover processes and leaks on those hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relayed: bool,
    /// The party under test; `None` for a recording, in which both sides are judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_test: Option<PartyKind>,
    /// Number of selected scenarios.
    pub selected: usize,
    /// The strictness of the run.
    pub strict: Strictness,
}

const PROTOCOL_SEPARATOR: &str = " and ";

impl RunHeader {
    /// Formats the protocols of a run for a header.
    pub fn protocols(dialects: &BTreeSet<Dialect>) -> String {
        dialects.iter().map(ToString::to_string).collect::<Vec<_>>().join(PROTOCOL_SEPARATOR)
    }

    /// Returns whether this protocol is among those of the run.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        self.dialect.split(PROTOCOL_SEPARATOR).any(|name| name == dialect.to_string())
    }
}

/// The last line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// Number of scenarios per verdict, without those that deviations cover.
    pub counts: BTreeMap<Verdict, usize>,
    /// Number of scenarios that deviations cover.
    pub deviations: usize,
    /// Entries of the deviations file whose deviations no longer occur.
    pub stale: Vec<StaleDeviation>,
    /// Number of selected scenarios that have no result because the run ended early.
    pub unfinished: usize,
    /// True if the user interrupted the run.
    pub interrupted: bool,
    /// The exit status of the command.
    pub exit_code: i32,
    /// Wall time in microseconds.
    pub time_us: u64,
}

/// An outdated entry of a deviations file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StaleDeviation {
    /// The deviations file.
    pub file: String,
    /// The line of the entry.
    pub line: usize,
    /// The requirement of the entry.
    pub requirement: String,
    /// The scenarios of the entry that were played and did not show the deviation.
    pub kept: Vec<String>,
    /// True if `kept` contains all scenarios of the entry.
    pub is_whole: bool,
}

impl fmt::Display for StaleDeviation {
    /// Formats the deviation, for example as `d.toml:3: rfc13.get.value is no longer broken in kvs/own-key; delete the entry`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.requirement)?;
        write!(f, " is no longer broken in {};", self.kept.join(", "))?;
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
    /// The header, which is the first line of the log.
    Run(RunHeader),
    /// An event of a scenario.
    Event {
        /// The name of the scenario.
        scenario: String,
        /// The event.
        event: Event,
    },
    /// The result of a scenario that has ended.
    Result(ScenarioResult),
    /// The summary, which is the last line of the log.
    End(RunEnd),
}
