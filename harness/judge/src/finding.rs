//! A requirement broken at a place in a transcript.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backtrace::Place;
use crate::own::{CRASH, HANG, JOBS_APART};
use crate::seen::SeenKind;
use pmi_scenario::requirement::Severity;
use pmi_wire::Proc;

/// Who broke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The process manager.
    Server,
    /// The process.
    Client,
    /// The PMI library.
    Library,
}

/// A requirement broken at a place in a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Id of the requirement.
    pub requirement: String,
    /// Who broke it.
    pub party: Side,
    /// At whose connection; `None` for the job as a whole.
    pub proc: Option<Proc>,
    /// Sequence number of the event that showed it.
    pub seq: u64,
    /// Line of the scenario whose step was played, 0 if none.
    pub line: usize,
    /// The scenario allows the outcome and wants it told as no more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Severity>,
    /// What should have been.
    pub expected: String,
    /// What was, in words. Programs look at the kind.
    pub seen: String,
    /// What kind of thing was seen, where that is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<SeenKind>,
    /// Of a crash, where the process died, if a debugger saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Finding {
    /// A requirement that somebody broke, of the job as a whole and at no step; who knows more sets it.
    pub fn new(
        requirement: impl Into<String>,
        party: Side,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        Self {
            requirement: requirement.into(),
            party,
            proc: None,
            seq: 0,
            line: 0,
            at_most: None,
            expected: expected.into(),
            seen: seen.into(),
            kind: None,
            place: None,
        }
    }

    /// Returns whether what was seen depends on timing, so that another run may see something else: a crash, a hang, the absence of an
    /// answer or the exit status of a job, and not what an answer contains.
    pub fn depends_on_timing(&self) -> bool {
        let is_status = self.party == Side::Server && self.seen.starts_with("exit status ");
        [CRASH, HANG, JOBS_APART].contains(&self.requirement.as_str())
            || self.absence().is_some()
            || is_status
    }

    /// Returns what came in place of an answer, without how that is known.
    pub(crate) fn absence(&self) -> Option<&'static str> {
        ["silence", "the end of the connection"].into_iter().find(|word| self.seen.starts_with(word))
    }
}
