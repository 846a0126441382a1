//! Findings: violations of requirements, each with its position in a transcript.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backtrace::CrashLocation;
use crate::builtin_requirements::{INDEPENDENT_JOBS, NO_CRASH, NO_HANG};
use crate::observation::{NO_PROOF_SUFFIX, ObservationKind};
use pmi_scenario::requirement::Severity;
use pmi_wire::Proc;

/// The party that broke a requirement.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Side")]
pub enum PartyKind {
    /// The process manager.
    #[default]
    Server,
    /// The process that speaks PMI.
    Client,
    /// The PMI library.
    Library,
}

/// The text that introduces the launcher's exit in an observation.
const LAUNCHER_END: &str = "; the launcher, ";

/// A violation of a requirement at one point of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Id of the requirement.
    pub requirement: String,
    /// The party that broke the requirement.
    pub party: PartyKind,
    /// The process whose connection shows the violation; `None` for the job as a whole.
    pub proc: Option<Proc>,
    /// Number of the event that shows the violation.
    pub seq: u64,
    /// Line of the step that was being played; 0 if no step was being played.
    pub line: usize,
    /// The highest severity that the scenario allows for this outcome, if it sets a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "at_most")]
    pub max_severity: Option<Severity>,
    /// The behaviour that the requirement demands.
    pub expected: String,
    /// The observed behaviour, in words. Programs read `kind` instead.
    pub seen: String,
    /// The kind of observation, if code needs to distinguish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ObservationKind>,
    /// The location of the crash, if the finding is about a crash and a debugger was attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<CrashLocation>,
    /// Numbers of the other events that prove the violation, if it follows from operations of several processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<u64>,
}

impl Finding {
    /// Creates a finding about the job as a whole, without a step. The caller sets the other fields if they are known.
    pub fn new(
        requirement: impl Into<String>,
        party: PartyKind,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        Self {
            requirement: requirement.into(),
            party,
            proc: None,
            seq: 0,
            line: 0,
            max_severity: None,
            expected: expected.into(),
            seen: seen.into(),
            kind: None,
            place: None,
            related: Vec::new(),
        }
    }

    /// Returns whether the finding depends on timing and may therefore be absent from another run. Crashes, hangs, missing responses,
    /// expired time limits and the exit status of a job depend on timing. The content of a response does not.
    pub fn depends_on_timing(&self) -> bool {
        let is_status = self.party == PartyKind::Server && self.seen.starts_with("exit status ");
        [NO_CRASH, NO_HANG, INDEPENDENT_JOBS].contains(&self.requirement.as_str())
            || self.absence_text().is_some()
            || self.seen.contains(NO_PROOF_SUFFIX)
            || is_status
    }

    /// Returns the observed behaviour without the launcher's exit and last output, which may be unrelated.
    pub(crate) fn observed(&self) -> &str {
        self.seen.split(LAUNCHER_END).next().unwrap_or_default()
    }

    /// Appends the launcher's exit to the observed behaviour.
    pub(crate) fn add_launcher_end(&mut self, text: &str) {
        self.seen += &format!("; {text}");
    }

    /// Returns the description of a missing response (silence or the end of the connection), without the evidence for it.
    pub(crate) fn absence_text(&self) -> Option<&'static str> {
        ["silence", "the end of the connection"].into_iter().find(|word| self.seen.starts_with(word))
    }
}
