//! The observation in a finding: text for users, and a kind for programs.

use std::collections::BTreeSet;
use std::fmt;

use pmi_scenario::ids;
use pmi_wire::{Framing, Operation, Proc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a value or line that a finding shows.
pub(crate) const PRINTABLE_LIMIT: usize = 160;

/// The suffix of an observation if the only evidence of a silence is a timeout. On a loaded machine, the process might have answered later.
pub(crate) const NO_PROOF_SUFFIX: &str = " (not proved: timed out)";

/// The kind of observation, for code that distinguishes findings. The text of a finding gives the same information to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "SeenKind")]
pub enum ObservationKind {
    /// No response came.
    Silence,
    /// No response came, but another process had sent an incomplete request. The server may be waiting for the rest of that request.
    #[serde(rename = "silence_behind_partial_request")]
    SilenceDuringPartialRequest,
    /// The connection ended before the response.
    ConnectionEnd,
    /// A response to this operation, possibly incomplete.
    Response(Operation),
    /// A process left a barrier before another process entered it.
    EarlyBarrierExit,
}

impl ObservationKind {
    /// Returns whether a required response is missing.
    pub fn is_missing_answer(self) -> bool {
        matches!(self, Self::Silence | Self::SilenceDuringPartialRequest | Self::ConnectionEnd)
    }
}

impl fmt::Display for ObservationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence => f.write_str("silence"),
            Self::SilenceDuringPartialRequest => {
                f.write_str("silence while another process has sent only part of a request")
            }
            Self::ConnectionEnd => f.write_str("the end of the connection"),
            Self::Response(op) => write!(f, "a response to {}", op.request_cmd()),
            Self::EarlyBarrierExit => f.write_str("the end of a barrier that some processes had not entered"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservationText {
    pub(crate) text: String,
    pub(crate) kind: Option<ObservationKind>,
}

impl ObservationText {
    /// Creates the observation of a message.
    pub(crate) fn message(line: &[u8]) -> Self {
        let name = line.strip_prefix(b"cmd=").and_then(|rest| rest.split(|b| *b == b' ').next());
        let kind = name.and_then(Operation::from_response_cmd).map(ObservationKind::Response);
        Self { text: quote_bytes(line), kind }
    }

    /// Appends a space and `words` to the text.
    pub(crate) fn with_suffix(mut self, words: impl fmt::Display) -> Self {
        self.text = format!("{} {words}", self.text);
        self
    }
}

impl From<ObservationKind> for ObservationText {
    fn from(kind: ObservationKind) -> Self {
        Self { text: kind.to_string(), kind: Some(kind) }
    }
}

impl From<String> for ObservationText {
    fn from(text: String) -> Self {
        Self { text, kind: None }
    }
}

impl From<&str> for ObservationText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The description of an incomplete message in a finding.
pub(crate) struct IncompleteMessage {
    /// The requirement that the incomplete message breaks.
    pub(crate) rule: &'static str,
    pub(crate) expected: &'static str,
    pub(crate) seen: ObservationText,
}

impl IncompleteMessage {
    /// Describes the incomplete message `partial`, followed by the event `then`. Returns `None` if `partial` is empty.
    pub(crate) fn new(framing: Framing, partial: &[u8], then: impl fmt::Display) -> Option<Self> {
        let (rule, expected) = framing.pick([
            (ids::RFC13_WIRE_NEWLINE, "a message that ends with a newline"),
            (ids::PMI2_COMMON_FRAME, "the number of bytes that the frame's length states"),
        ]);
        let seen = ObservationText::message(partial).with_suffix(format_args!("and then {then}"));
        (!partial.is_empty()).then_some(Self { rule, expected, seen })
    }
}

/// Describes the requests that the server has not read. The description names `procs`, the processes that sent these requests. Returns an
/// empty string if `procs` is empty.
pub(crate) fn not_read(procs: &BTreeSet<Proc>) -> String {
    let ranks = Proc::list(procs);
    match procs.len() {
        0 => String::new(),
        1 => format!("request not read: the data from {ranks} is still in its socket"),
        _ => format!("requests not read: the data from {ranks} is still in their sockets"),
    }
}

/// Quotes and escapes bytes. Long messages are cut.
pub(crate) fn quote_bytes(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(PRINTABLE_LIMIT)];
    if cut.len() < bytes.len() {
        format!("\"{}\" ... ({} bytes)", cut.escape_ascii(), bytes.len())
    } else {
        format!("\"{}\"", cut.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_response_by_its_command() {
        let kind = |line: &str| ObservationText::message(line.as_bytes()).kind;
        let universe = ObservationKind::Response(Operation::Universe);
        assert_eq!(kind("cmd=universe_size rc=0 size=-1"), Some(universe));
        assert_eq!(kind("cmd=finalize_ack"), Some(ObservationKind::Response(Operation::Finalize)));
        for other in ["cmd=get_maxes", "cmd=other", "rc=0 cmd=maxes", ""] {
            assert_eq!(kind(other), None, "{other}");
        }
    }
}
