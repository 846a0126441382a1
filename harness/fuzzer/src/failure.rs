//! What an implementation does wrong, and the key by which failures are taken for the same: what it did, and after which kind of
//! message.

use std::fmt;

use pmi_judge::backtrace::{Backtrace, Place};
use serde::{Deserialize, Serialize};

use super::message_kind::{MessageKind, UpstreamKind};

/// Something that an implementation should not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Failures with the same key are taken for the same.
    pub key: FailureKey,
    /// In words.
    pub what: String,
    /// The requirement that is broken, if the judge knows it.
    pub requirement: Option<String>,
    /// The event that the judge told it at; `None` if it was not the judge.
    pub seq: Option<u64>,
    /// Of a crash, what a debugger saw.
    pub backtrace: Option<Box<Backtrace>>,
}

/// Which failure it is. What it is shown as is a name for a folder: the bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKey {
    /// A process died.
    Crash {
        /// The program, or who is under test.
        who: String,
        /// Of what.
        cause: CrashCause,
        /// Where, or when.
        site: CrashSite,
    },
    /// It sends without end.
    Flood(After),
    /// The job does not end although all of its processes have.
    JobStays(After),
    /// A program's memory grows out of proportion.
    Memory(String),
    /// Processes of these programs are left when whoever has started them has ended.
    Leak(Vec<String>),
    /// An answer that is due does not come, or a process does not end.
    Hang {
        /// A program or library under test; `None` for a server.
        who: Option<&'static str>,
        /// The requirement that makes a server answer.
        requirement: Option<String>,
        /// The function of a library that was called.
        call: Option<String>,
        /// After what.
        after: After,
    },
    /// No request is answered while another process has said half of one.
    HangBehindHalf,
    /// A requirement is broken.
    Rule {
        /// A program or library under test; `None` for a server.
        who: Option<&'static str>,
        /// Which.
        requirement: String,
        /// After what.
        after: After,
    },
    /// Servers answer differently.
    Difference {
        /// After what.
        asked: After,
        /// What each of them says.
        answers: Vec<String>,
    },
}

/// What kind of failure it is, the most serious first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process dies.
    Crash,
    /// It does not answer, or does not end.
    Hang,
    /// It sends, grows or leaves processes behind without end.
    Excess,
    /// A requirement is broken.
    #[default]
    Rule,
    /// Servers answer differently.
    Difference,
}

/// What tells a crash from others of the same process and cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashSite {
    /// Where it died: a debugger saw it.
    Place(Place),
    /// No debugger looked, or could.
    Unseen {
        /// The function of a library that was called.
        call: Option<String>,
        /// After what; `None` where that says little.
        after: Option<After>,
    },
}

/// Of what a process died.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashCause {
    /// Of a signal.
    Signal(i32),
    /// For a reason that it gives itself.
    Message(String),
}

/// What happened last before a failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum After {
    /// Nothing that we did.
    Start,
    /// We sent something.
    Message(MessageKind),
    /// Several requests had no answer yet.
    Pipelined,
    /// We closed a connection.
    Close,
    /// A process of ours ended.
    Exit,
    /// We said something as the upstream of a proxy.
    Upstream(UpstreamKind),
    /// We closed the connection of a proxy to its upstream.
    UpstreamClose,
    /// A program asked nothing.
    NoRequest,
    /// A program asked something, and was answered.
    Answered {
        /// What it asked; `None` if nothing.
        asked: Asked,
        /// How it was answered.
        answer: AnswerKind,
    },
}

/// What a process that was answered had asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    /// A request.
    Request(MessageKind),
    /// Nothing, yet.
    Nothing,
    /// Nothing, since its last answer.
    NothingMore,
}

/// How a program's request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerKind {
    /// As it should be.
    Proper,
    /// A success without what was asked for.
    Bare,
    /// Limits below what any process manager has, or far beyond.
    UnusualLimits,
    /// A refusal.
    Refused,
    /// The answer to something else.
    Other,
    /// An answer for another thread than the one that asked, or for one where none has a number.
    OtherThread,
    /// The right command in a message that cannot be read.
    Garbled,
    /// No message.
    Unreadable,
    /// No frame of PMI-2: its length is none, or more than anybody reads.
    NoFrame,
    /// More than anybody reads.
    Long,
    /// Something that was not asked for.
    Surplus,
    /// The end of the connection.
    Close,
    /// The beginning of an answer, and the end of the connection.
    Half,
}

impl FailureKey {
    /// Whether a case shows nothing more behind it.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Crash { .. }
            | Self::JobStays(_)
            | Self::Flood(_)
            | Self::Difference { .. }
            | Self::Memory(_) => true,
            Self::Leak(_) | Self::Hang { .. } | Self::HangBehindHalf | Self::Rule { .. } => false,
        }
    }

    /// Whether it is told by an answer that does not come.
    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, Self::Hang { .. } | Self::HangBehindHalf)
    }

    /// How much time has to pass until it is known, compared with others: none where something false is said, most where a job does not
    /// end.
    pub(crate) fn patience(&self) -> u8 {
        match self {
            Self::JobStays(_) | Self::Leak(_) => 2,
            _ => u8::from(self.is_hang()),
        }
    }

    /// Whether single bytes of what is sent may matter: a broken rule is told with its message, a crash may need one byte.
    pub(crate) fn depends_on_bytes(&self) -> bool {
        matches!(self, Self::Crash { .. } | Self::JobStays(_) | Self::Flood(_) | Self::Leak(_))
    }

    /// Whether it is a crash as another is, whatever came last before it.
    pub(crate) fn is_same_crash(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Crash { who, cause, .. }, Self::Crash { who: other, cause: of, .. }) => {
                (who, cause) == (other, of)
            }
            _ => false,
        }
    }

    /// Whether it is told by a requirement of servers which another requirement may stand in for, where the same is seen of the same request.
    pub(crate) fn differs_in_requirement(&self, other: &Self) -> bool {
        let is_of_servers = |key: &Self| {
            matches!(key, Self::Rule { who: None, .. } | Self::Hang { who: None, requirement: Some(_), .. })
        };
        let is_alike = std::mem::discriminant(self) == std::mem::discriminant(other);
        is_of_servers(self) && is_alike && self.after() == other.after() && self != other
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Crash { .. } => Kind::Crash,
            Self::Hang { .. } | Self::HangBehindHalf | Self::JobStays(_) => Kind::Hang,
            Self::Flood(_) | Self::Memory(_) | Self::Leak(_) => Kind::Excess,
            Self::Rule { .. } => Kind::Rule,
            Self::Difference { .. } => Kind::Difference,
        }
    }

    /// Whether it is a crash, and nobody has seen where.
    pub(crate) fn is_unseen_crash(&self) -> bool {
        matches!(self, Self::Crash { site: CrashSite::Unseen { .. }, .. })
    }

    /// Where a process died, if a debugger saw it.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Crash { site: CrashSite::Place(place), .. } => Some(place),
            _ => None,
        }
    }

    /// What happened last before it, if that is known.
    pub(crate) fn after(&self) -> Option<&After> {
        match self {
            Self::Crash { site: CrashSite::Unseen { after, .. }, .. } => after.as_ref(),
            Self::Crash { site: CrashSite::Place(_), .. } => None,
            Self::Flood(after) | Self::JobStays(after) => Some(after),
            Self::Hang { after, .. } | Self::Rule { after, .. } => Some(after),
            Self::Memory(_) | Self::Leak(_) | Self::HangBehindHalf | Self::Difference { .. } => None,
        }
    }
}

impl Failure {
    /// Processes that are left when `starter` has ended.
    pub(crate) fn leak(starter: &str, names: &[String]) -> Self {
        let mut distinct = names.to_vec();
        distinct.dedup();
        Self {
            key: FailureKey::Leak(distinct),
            what: format!("processes are left when {starter} has ended: {}", names.join(", ")),
            requirement: None,
            seq: None,
            backtrace: None,
        }
    }
}

/// The name of a signal.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("signal")
}

impl fmt::Display for Kind {
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

impl fmt::Display for AnswerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proper => "ok",
            Self::Bare => "bare",
            Self::UnusualLimits => "unusual",
            Self::Refused => "refused",
            Self::Other => "other",
            Self::OtherThread => "other-thread",
            Self::Garbled => "garbled",
            Self::Unreadable => "unreadable",
            Self::NoFrame => "no-frame",
            Self::Long => "long",
            Self::Surplus => "surplus",
            Self::Close => "close",
            Self::Half => "half",
        })
    }
}

impl fmt::Display for After {
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
            Self::Answered { asked: Asked::Request(asked), answer } => write!(f, "{asked}-{answer}"),
            Self::Answered { asked: Asked::Nothing, answer } => write!(f, "start-{answer}"),
            Self::Answered { asked: Asked::NothingMore, answer } => write!(f, "between-{answer}"),
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
            Self::Crash { who, cause, site } => {
                parts.extend(["crash".to_owned(), slug(who), cause.to_string()]);
                match site {
                    CrashSite::Place(place) => parts.push(cut_slug(&format!("in-{place}"), PLACE)),
                    CrashSite::Unseen { call, after } => {
                        parts.extend(call.clone());
                        parts.extend(after.as_ref().map(After::to_string));
                    }
                }
            }
            Self::Flood(after) => parts.extend(["flood".to_owned(), after.to_string()]),
            Self::JobStays(after) => parts.extend(["job-stays".to_owned(), after.to_string()]),
            Self::Memory(program) => parts.extend(["memory".to_owned(), slug(program)]),
            Self::Leak(programs) => parts.extend(["leak".to_owned(), slug(&programs.join("-"))]),
            Self::Hang { who, requirement, call, after } => {
                parts.push("hang".to_owned());
                parts.extend(who.map(str::to_owned));
                parts.extend(requirement.as_deref().map(slug));
                parts.extend(call.clone());
                parts.push(after.to_string());
            }
            Self::HangBehindHalf => parts.extend(["hang", "behind-half-a-request"].map(str::to_owned)),
            Self::Rule { who, requirement, after } => {
                parts.push("rule".to_owned());
                parts.extend(who.map(str::to_owned));
                parts.extend([slug(requirement), after.to_string()]);
            }
            Self::Difference { asked, answers } => {
                parts.extend(["differs".to_owned(), asked.to_string()]);
                parts.extend(answers.iter().map(|answer| slug(answer)));
            }
        }
        f.pad(&parts.join("--"))
    }
}

/// Most letters of a place in the name of a folder: C++ has long names.
const PLACE: usize = 120;

/// A text of letters, digits and `.-_+`, not too long.
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
    fn a_key_is_shown_as_the_name_of_a_folder() {
        let get = || After::Message(MessageKind::Request(Operation::Get.into()));
        let seen = |cause, site| FailureKey::Crash { who: "hydra_pmi_proxy".into(), cause, site };
        let crash = |cause, after| seen(cause, CrashSite::Unseen { call: None, after });
        let key = crash(CrashCause::Signal(11), Some(get()));
        assert_eq!(key.to_string(), "crash--hydra_pmi_proxy--SIGSEGV--get");
        let told = crash(CrashCause::Message("assert (!closed) failed/x".into()), None);
        assert_eq!(told.to_string(), "crash--hydra_pmi_proxy--assert-closed-failed-x");
        assert!(key.is_same_crash(&crash(CrashCause::Signal(11), None)) && !key.is_same_crash(&told));
        let place = Place::Address { module: "libpmi.so.0".into(), offset: 0x5f30 };
        let located = seen(CrashCause::Signal(11), CrashSite::Place(place));
        assert_eq!(located.to_string(), "crash--hydra_pmi_proxy--SIGSEGV--in-libpmi.so.0+0x5f30");
        assert!(located.is_same_crash(&key) && located != key);
        let rule = FailureKey::Rule { who: None, requirement: "rfc13.get.value".into(), after: get() };
        assert_eq!(rule.to_string(), "rule--rfc13.get.value--get");
        assert!(key.is_fatal() && !rule.is_fatal());
    }
}
