//! Failures of an implementation, and the keys that identify them. A key consists of the behaviour and the kind of message before it.

use std::fmt;

use pmi_judge::backtrace::{Backtrace, CrashLocation};
use serde::{Deserialize, Serialize};

use super::message_kind::{MessageKind, UpstreamKind};

/// A failure of an implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The key of the failure. Failures with the same key are considered to be the same failure.
    pub key: FailureKey,
    /// A description of the failure for the user.
    pub description: String,
    /// The broken requirement, if the judge reported one.
    pub requirement: Option<String>,
    /// The number of the event of the judge's finding, or `None` if the failure does not come from the judge.
    pub seq: Option<u64>,
    /// The backtrace of a crash, if a debugger was attached.
    pub backtrace: Option<Box<Backtrace>>,
}

/// The identity of a failure. Its displayed form is the bucket, which is also the name of the finding's folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKey {
    /// A process died.
    Crash {
        /// The program, or the kind of implementation under test.
        program: String,
        /// The cause of the process's death.
        cause: CrashCause,
        /// The location of the crash, or the last call or action if the location is unknown.
        site: CrashSite,
    },
    /// The implementation never stops sending.
    Flood(LastAction),
    /// The job does not end although all of its processes have ended.
    JobKeepsRunning(LastAction),
    /// The memory of the named program grows out of proportion to the input.
    Memory(String),
    /// Processes of the named programs outlive the process that started them.
    Leak(Vec<String>),
    /// A due response does not arrive, or a process does not end.
    Hang {
        /// `client` for a program, `library` for a library, `None` for a server.
        party: Option<&'static str>,
        /// The requirement that obliges a server to respond.
        requirement: Option<String>,
        /// The library function that was called.
        call: Option<String>,
        /// The last action before the failure.
        after: LastAction,
    },
    /// The server does not answer a process while another process has sent only part of a request.
    HangDuringPartialRequest,
    /// A requirement is broken.
    Rule {
        /// `client` for a program, `library` for a library, `None` for a server.
        party: Option<&'static str>,
        /// The requirement.
        requirement: String,
        /// The last action before the failure.
        after: LastAction,
    },
    /// Several servers respond differently.
    Difference {
        /// The request.
        request: LastAction,
        /// The response from each server.
        answers: Vec<String>,
    },
}

/// The kinds of failures, most serious first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A process dies.
    Crash,
    /// A response does not arrive, or a process or job does not end.
    Hang,
    /// The implementation never stops sending or growing, or leaves processes behind.
    Excess,
    /// A requirement is broken.
    #[default]
    Rule,
    /// Servers respond differently.
    Difference,
}

/// The location of a crash, or the last call or action if the location is unknown. Sites distinguish crashes of the same program with the
/// same cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashSite {
    /// The location in the program, as determined by a debugger.
    Place(CrashLocation),
    /// The location is unknown, for example because no debugger was attached.
    Unknown {
        /// The library function that was called.
        call: Option<String>,
        /// The last action before the crash, or `None` if it is not significant.
        after: Option<LastAction>,
    },
}

/// The cause of a process's death.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashCause {
    /// A signal, by number.
    Signal(i32),
    /// A reason that the process itself printed.
    Message(String),
}

/// The last action before a failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LastAction {
    /// The harness has not done anything yet.
    Start,
    /// The harness sent a message.
    Message(MessageKind),
    /// Several requests of the process were unanswered.
    Pipelined,
    /// The harness closed a connection.
    Close,
    /// A process that belongs to the harness ended.
    Exit,
    /// The harness sent a message as the upstream of a proxy.
    Upstream(UpstreamKind),
    /// The harness closed a proxy's connection to its upstream.
    UpstreamClose,
    /// A program made no request.
    NoRequest,
    /// A program's request was answered.
    Answered {
        /// The last request.
        request: LastRequest,
        /// The kind of response to the request.
        response: ResponseKind,
    },
}

/// The last request of a process before it received a response.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LastRequest {
    /// A request.
    Request(MessageKind),
    /// The process has not made a request yet.
    Nothing,
    /// The process has made no request since it last received a response.
    NothingMore,
}

/// The kind of response to a program's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResponseKind {
    /// The correct response.
    Proper,
    /// A response that reports success, but lacks the requested value.
    WithoutValue,
    /// Limits that no known process manager has: at least one is lower or much higher than usual.
    UnusualLimits,
    /// A failure response.
    Refused,
    /// The response to a different request.
    ForOtherRequest,
    /// A response with the number of a different thread, or with a thread number although the request had none.
    OtherThread,
    /// A response that has the correct command, but cannot be parsed.
    Malformed,
    /// Text that is not a message.
    Unreadable,
    /// An invalid PMI-2 frame, or a message in the wrong framing.
    NoFrame,
    /// A message that is longer than the harness accepts.
    Overlong,
    /// A message that does not answer a request.
    Surplus,
    /// The end of the connection.
    Close,
    /// Part of a response, followed by the end of the connection.
    Partial,
}

impl FailureKey {
    /// Returns whether the rest of a case cannot be judged after this failure.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Crash { .. }
            | Self::JobKeepsRunning(_)
            | Self::Flood(_)
            | Self::Difference { .. }
            | Self::Memory(_) => true,
            Self::Leak(_) | Self::Hang { .. } | Self::HangDuringPartialRequest | Self::Rule { .. } => false,
        }
    }

    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, Self::Hang { .. } | Self::HangDuringPartialRequest)
    }

    /// Returns a measure of the time needed to confirm the failure: 2 for a job that does not end or that leaves processes behind, 1 for a
    /// hang, and 0 for any other failure.
    pub(crate) fn confirmation_cost(&self) -> u8 {
        match self {
            Self::JobKeepsRunning(_) | Self::Leak(_) => 2,
            _ => u8::from(self.is_hang()),
        }
    }

    /// Returns whether the failure may depend on individual bytes of the sent messages. A crash, for example, may depend on them. For a
    /// broken rule, the kind of message is a sufficient description.
    pub(crate) fn depends_on_bytes(&self) -> bool {
        matches!(self, Self::Crash { .. } | Self::JobKeepsRunning(_) | Self::Flood(_) | Self::Leak(_))
    }

    /// Returns whether two failures are crashes of the same program with the same cause, regardless of their sites.
    pub(crate) fn is_same_crash(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Crash { program: who, cause, .. }, Self::Crash { program: other, cause: of, .. }) => {
                (who, cause) == (other, of)
            }
            _ => false,
        }
    }

    /// Returns whether two failures of a server show the same behaviour after the same request, but cite different requirements.
    pub(crate) fn differs_in_requirement(&self, other: &Self) -> bool {
        let is_of_servers = |key: &Self| {
            matches!(
                key,
                Self::Rule { party: None, .. } | Self::Hang { party: None, requirement: Some(_), .. }
            )
        };
        let is_alike = std::mem::discriminant(self) == std::mem::discriminant(other);
        is_of_servers(self) && is_alike && self.after() == other.after() && self != other
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Crash { .. } => FailureKind::Crash,
            Self::Hang { .. } | Self::HangDuringPartialRequest | Self::JobKeepsRunning(_) => {
                FailureKind::Hang
            }
            Self::Flood(_) | Self::Memory(_) | Self::Leak(_) => FailureKind::Excess,
            Self::Rule { .. } => FailureKind::Rule,
            Self::Difference { .. } => FailureKind::Difference,
        }
    }

    /// Returns whether the failure is a crash at an unknown location.
    pub(crate) fn is_unseen_crash(&self) -> bool {
        matches!(self, Self::Crash { site: CrashSite::Unknown { .. }, .. })
    }

    /// Returns the location of a crash, if a debugger determined it.
    pub fn place(&self) -> Option<&CrashLocation> {
        match self {
            Self::Crash { site: CrashSite::Place(place), .. } => Some(place),
            _ => None,
        }
    }

    /// Returns the last action before the failure, or `None` if the key does not contain it.
    pub(crate) fn after(&self) -> Option<&LastAction> {
        match self {
            Self::Crash { site: CrashSite::Unknown { after, .. }, .. } => after.as_ref(),
            Self::Crash { site: CrashSite::Place(_), .. } => None,
            Self::Flood(after) | Self::JobKeepsRunning(after) => Some(after),
            Self::Hang { after, .. } | Self::Rule { after, .. } => Some(after),
            Self::Memory(_) | Self::Leak(_) | Self::HangDuringPartialRequest | Self::Difference { .. } => {
                None
            }
        }
    }
}

impl Failure {
    /// Returns a failure for processes that are still running after `starter` has ended. `names` are the names of their programs.
    pub(crate) fn leak(starter: &str, names: &[String]) -> Self {
        let mut distinct = names.to_vec();
        distinct.dedup();
        Self {
            key: FailureKey::Leak(distinct),
            description: format!("processes still running after {starter} has ended: {}", names.join(", ")),
            requirement: None,
            seq: None,
            backtrace: None,
        }
    }
}

pub(crate) fn signal_name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("signal")
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Excess => "excess",
            Self::Rule => "broken requirement",
            Self::Difference => "difference",
        })
    }
}

impl fmt::Display for ResponseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proper => "ok",
            Self::WithoutValue => "bare",
            Self::UnusualLimits => "unusual",
            Self::Refused => "refused",
            Self::ForOtherRequest => "other",
            Self::OtherThread => "other-thread",
            Self::Malformed => "garbled",
            Self::Unreadable => "unreadable",
            Self::NoFrame => "no-frame",
            Self::Overlong => "long",
            Self::Surplus => "surplus",
            Self::Close => "close",
            Self::Partial => "half",
        })
    }
}

impl fmt::Display for LastAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Message(kind) => kind.fmt(f),
            Self::Pipelined => f.write_str("pipelined"),
            Self::Close => f.write_str("close"),
            Self::Exit => f.write_str("exit"),
            Self::Upstream(kind) => kind.fmt(f),
            Self::UpstreamClose => f.write_str("upstream-close"),
            Self::NoRequest => f.write_str("no-request"),
            Self::Answered { request: LastRequest::Request(request), response: answer } => {
                write!(f, "{request}-{answer}")
            }
            Self::Answered { request: LastRequest::Nothing, response: answer } => write!(f, "start-{answer}"),
            Self::Answered { request: LastRequest::NothingMore, response: answer } => {
                write!(f, "between-{answer}")
            }
        }
    }
}

impl fmt::Display for CrashCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => f.write_str(signal_name(*signal)),
            Self::Message(text) => f.write_str(&slug(text)),
        }
    }
}

impl fmt::Display for FailureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        match self {
            Self::Crash { program: who, cause, site } => {
                parts.extend(["crash".to_owned(), slug(who), cause.to_string()]);
                match site {
                    CrashSite::Place(place) => parts.push(cut_slug(&format!("in-{place}"), MAX_PLACE_LENGTH)),
                    CrashSite::Unknown { call, after } => {
                        parts.extend(call.clone());
                        parts.extend(after.as_ref().map(LastAction::to_string));
                    }
                }
            }
            Self::Flood(after) => parts.extend(["flood".to_owned(), after.to_string()]),
            Self::JobKeepsRunning(after) => parts.extend(["job-stays".to_owned(), after.to_string()]),
            Self::Memory(program) => parts.extend(["memory".to_owned(), slug(program)]),
            Self::Leak(programs) => parts.extend(["leak".to_owned(), slug(&programs.join("-"))]),
            Self::Hang { party: who, requirement, call, after } => {
                parts.push("hang".to_owned());
                parts.extend(who.map(str::to_owned));
                parts.extend(requirement.as_deref().map(slug));
                parts.extend(call.clone());
                parts.push(after.to_string());
            }
            Self::HangDuringPartialRequest => {
                parts.extend(["hang", "behind-half-a-request"].map(str::to_owned))
            }
            Self::Rule { party: who, requirement, after } => {
                parts.push("rule".to_owned());
                parts.extend(who.map(str::to_owned));
                parts.extend([slug(requirement), after.to_string()]);
            }
            Self::Difference { request: operation, answers } => {
                parts.extend(["differs".to_owned(), operation.to_string()]);
                parts.extend(answers.iter().map(|answer| slug(answer)));
            }
        }
        f.pad(&parts.join("--"))
    }
}

/// Maximum length of a crash location in a folder name. C++ names can be longer.
const MAX_PLACE_LENGTH: usize = 120;

/// Replaces each run of characters other than letters, digits, `.`, `_` and `+` with a hyphen, and limits the length to 60.
fn slug(text: &str) -> String {
    cut_slug(text, 60)
}

fn cut_slug(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+') {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= most {
            break;
        }
    }
    out.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_wire::Operation;

    #[test]
    fn displays_failure_key_as_a_folder_name() {
        let get = || LastAction::Message(MessageKind::Request(Operation::Get.into()));
        let seen = |cause, site| FailureKey::Crash { program: "hydra_pmi_proxy".into(), cause, site };
        let crash = |cause, after| seen(cause, CrashSite::Unknown { call: None, after });
        let key = crash(CrashCause::Signal(11), Some(get()));
        assert_eq!(key.to_string(), "crash--hydra_pmi_proxy--SIGSEGV--get");
        let by_message = crash(CrashCause::Message("assert (!closed) failed/x".into()), None);
        assert_eq!(by_message.to_string(), "crash--hydra_pmi_proxy--assert-closed-failed-x");
        assert!(key.is_same_crash(&crash(CrashCause::Signal(11), None)) && !key.is_same_crash(&by_message));
        let place = CrashLocation::Address { module: "libpmi.so.0".into(), offset: 0x5f30 };
        let located = seen(CrashCause::Signal(11), CrashSite::Place(place));
        assert_eq!(located.to_string(), "crash--hydra_pmi_proxy--SIGSEGV--in-libpmi.so.0+0x5f30");
        assert!(located.is_same_crash(&key) && located != key);
        let rule = FailureKey::Rule { party: None, requirement: "rfc13.get.value".into(), after: get() };
        assert_eq!(rule.to_string(), "rule--rfc13.get.value--get");
        assert!(key.is_fatal() && !rule.is_fatal());
    }
}
