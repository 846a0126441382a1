//! The expectations of a scenario. All names are replaced with their values, so a stored log can be judged again without the scenario.

use std::fmt;

use pmi_scenario::ast::{ExitPattern, Grade, Piece, Template, ValueType};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_scenario::signature;
use pmi_wire::{Decoded, Direction, Framing, MappingForm, MessageError, Proc, ResponseOutcome, grammar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::{Bytes, MAX_SHOWN_BYTES};

/// Keys whose values are compared as text even if the values look like numbers: `007` differs from `7`.
const TEXT_KEYS: &[&str] = &["value", "port", "kvsname", "jobid"];

/// An expectation of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The process, or the connection of the process; `None` for the job as a whole.
    pub proc: Option<Proc>,
    /// The requirement that is broken if the expectation is not met.
    pub cites: String,
    /// The required event.
    #[serde(rename = "what")]
    pub kind: ExpectationKind,
}

/// The kinds of required events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Expected")]
pub enum ExpectationKind {
    /// The next message matches the pattern.
    Message(Pattern),
    /// The next message is a bare newline.
    Newline,
    /// The connection ends without a further message.
    Close,
    /// No message comes.
    Silence,
    /// One of several outcomes. The first that matches determines the verdict.
    OneOf(Vec<Choice>),
    /// The process has started.
    Started,
    /// The process manager terminates the process.
    #[serde(rename = "ended")]
    IsEnded,
    /// A variable of the process's environment has this value.
    Variable {
        /// The name of the variable.
        name: String,
        /// The required value of the variable.
        value: Matcher,
    },
    /// The process has these arguments, which are separated by spaces.
    Arguments(Bytes),
    /// The job ends.
    JobExits(ExitPattern),
    /// The job writes something to stderr or stdout.
    Logs,
    /// A process of a program makes a request that matches this line of the scenario, and receives an unusual response. `None` means the
    /// start of the process.
    Request(Option<String>),
    /// A program's process exits on its own, with a status that matches.
    Exits(ExitPattern),
    /// A program's process ends, on its own or because its program ends.
    #[serde(rename = "ends_somehow")]
    Ends,
    /// A program's process exits on its own, with status 0 only if its output equals that of the plain run.
    #[serde(rename = "copes")]
    FailsOrMatches,
    /// The output of a program's process equals that of the plain run.
    SameOutput,
    /// The library sends this request during a call: one line, or the lines of a spawn request in order. Earlier requests during the same
    /// call are ignored.
    #[serde(rename = "asks")]
    SendsRequest(Vec<Pattern>),
    /// A call to a library function returns.
    Returns {
        /// The return code.
        code: ReturnCode,
        /// The values of the named output arguments.
        outs: Vec<(String, Matcher)>,
    },
    /// The process exits on the scenario's instruction.
    #[serde(rename = "exits_as_told")]
    ExitsAsInstructed,
}

impl ExpectationKind {
    /// Returns whether the expectation is about a program. The processes of a program may meet these expectations in any order, so the
    /// expectations are checked at the end.
    pub fn concerns_program(&self) -> bool {
        matches!(
            self,
            Self::Request(_) | Self::Exits(_) | Self::Ends | Self::FailsOrMatches | Self::SameOutput
        )
    }

    /// Returns whether a program's process must exit on its own, even if its program is aborted.
    pub fn requires_own_exit(&self) -> bool {
        match self {
            Self::Exits(pattern) => *pattern != ExitPattern::Code(0),
            other => *other == Self::FailsOrMatches,
        }
    }
}

/// The required return code of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReturnCode {
    /// Any code.
    Any,
    /// Any error.
    Failure,
    /// Any error, because the scenario names an error code to which RFC 13 assigns no number.
    #[serde(rename = "unnumbered")]
    UnnumberedError(String),
    /// A particular code.
    Code {
        /// The code as written in the scenario.
        shown: String,
        /// The number of the code.
        number: i32,
    },
}

impl ReturnCode {
    /// Parses a return code of a scenario.
    pub fn new(shown: &str) -> Option<Self> {
        Some(match shown {
            "any" => Self::Any,
            "fail" => Self::Failure,
            "PMI_ERR_INVALID_KVS" => Self::UnnumberedError(shown.to_owned()),
            _ => {
                let number = signature::code(shown).or_else(|| shown.parse().ok())?;
                Self::Code { shown: shown.to_owned(), number }
            }
        })
    }

    pub(crate) fn matches(&self, seen: i32) -> bool {
        match self {
            Self::Any => true,
            Self::Failure | Self::UnnumberedError(_) => seen != 0,
            Self::Code { number, .. } => *number == seen,
        }
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "anything",
            Self::Failure => "an error",
            Self::UnnumberedError(shown) | Self::Code { shown, .. } => shown,
        })
    }
}

/// An outcome of a step that accepts several outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The verdict on this outcome.
    pub grade: Grade,
    /// The requirement that this outcome breaks, if different from the requirement of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cites: Option<String>,
    /// The outcome: [`ExpectationKind::Message`], [`ExpectationKind::SendsRequest`], [`ExpectationKind::Newline`],
    /// [`ExpectationKind::Close`] or [`ExpectationKind::Silence`].
    #[serde(rename = "what")]
    pub kind: ExpectationKind,
}

impl Choice {
    /// Returns whether the outcome is a response to a spawn request.
    pub(crate) fn answers_spawn(&self) -> bool {
        let is_name = |text: &Bytes| matches!(text.0.as_slice(), b"spawn_result" | b"spawn-response");
        let names = |(key, matcher): &(String, Matcher)| {
            key == "cmd" && matches!(matcher, Matcher::Text(text) if is_name(text))
        };
        matches!(&self.kind, ExpectationKind::Message(pattern) if pattern.fields.iter().any(names))
    }

    /// Returns true if the outcome is silence and does not count as a failure.
    pub(crate) fn is_valid_silence(&self) -> bool {
        self.kind == ExpectationKind::Silence && self.grade != Grade::Fail
    }
}

/// The state of the last expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectationState {
    /// The expectation may still be met.
    Pending,
    /// The expectation is met, or the scenario has no expectation yet.
    Met,
    /// The expectation was not met and can no longer be met. The finding has been reported, and later events cannot be judged.
    Broken,
}

/// The pattern of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pattern {
    /// The pattern as written in the scenario, except that a long value is shown by its length, as in `<1024 letters>`.
    pub shown: String,
    /// The fields to compare, in this order.
    pub fields: Vec<(String, Matcher)>,
}

/// The pattern of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Matcher {
    /// A value that equals this text. Numbers are compared by value, except in fields that contain arbitrary text.
    Text(Bytes),
    /// Any value of a type.
    Typed(ResolvedType),
    /// Any value of a type, which is bound to a name.
    Capture {
        /// The name to which the value is bound.
        name: String,
        /// The type of the value.
        of: ResolvedType,
        /// The value that another rank received in the same step, if any. Both values must be equal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound: Option<Bytes>,
    },
    /// The key is absent.
    Absent,
    /// Success: absent or 0.
    Success,
    /// An error: present and not 0.
    Failure,
}

/// The types of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Type")]
pub enum ResolvedType {
    /// A number between two bounds, written with digits only. `None` means that there is no bound.
    Uint(Option<i64>, Option<i64>),
    /// An integer.
    Int,
    /// Integers separated by commas.
    IntList,
    /// A `word`, as defined in RFC 13.
    Word,
    /// A `string`, as defined in RFC 13.
    String,
    /// A process mapping in a form that the protocol allows.
    Mapping,
    /// An empty string.
    Empty,
    /// Any bytes.
    Any,
}

/// Captured names and their values.
pub type Captures = Vec<(String, Vec<u8>)>;

/// The description of a mismatch: the expected value or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch(pub String);

impl Pattern {
    /// Creates a pattern from a line of a scenario by replacing its names.
    ///
    /// # Errors
    ///
    /// Returns an error if a name has no value in `scope`, or an expression cannot be evaluated.
    pub fn new(scope: &Scope, line: &Template) -> Result<Self, ScenarioError> {
        let mut shown = line.to_string();
        for piece in &line.pieces {
            if let Piece::Fill(length) = piece {
                let letters = format!("<{} letters>", scope.number(length)?);
                shown = shown.replacen(
                    &Template { pieces: vec![piece.clone()], ..line.clone() }.to_string(),
                    &letters,
                    1,
                );
            }
        }
        shown.truncate(shown.floor_char_boundary(MAX_SHOWN_BYTES));
        let fields = line.message_fields().into_iter();
        let fields = fields.map(|f| Ok((f.key.clone(), Matcher::new(scope, &f.value)?)));
        Ok(Self { shown, fields: fields.collect::<Result<_, _>>()? })
    }

    /// Compares a message with the pattern, and returns the captured values.
    ///
    /// # Errors
    ///
    /// Returns an error if the message does not match. The error contains the expected value of the first field that differs, or the reason
    /// why the message is malformed.
    pub fn matches(&self, text: &[u8], framing: Framing) -> Result<Captures, Mismatch> {
        let message = Decoded::new(Direction::FromServer, framing, text);
        if !message.has_tuples() {
            let why = message.error().map_or_else(|| MessageError::Empty.to_string(), ToString::to_string);
            return Err(Mismatch(why));
        }
        // Clients ignore the value of a frame that reports a miss or a failure. Only `<any>` matches such a value.
        let missed = framing == Framing::Frames
            && matches!(message.outcome(), Some(ResponseOutcome::Miss | ResponseOutcome::Failure));
        let mut captures = Captures::new();
        for (key, matcher) in &self.fields {
            let is_any = matches!(matcher, Matcher::Typed(ResolvedType::Any));
            let unread = missed && !is_any && matches!(key.as_str(), "value" | "port");
            let value = message.value(key).filter(|_| !unread);
            matcher.matches(framing, key, value.as_deref(), &mut captures)?;
        }
        Ok(captures)
    }

    pub(crate) fn has_command(&self, text: &[u8], framing: Framing) -> bool {
        let name = self.fields.iter().filter(|(key, _)| key == "cmd").cloned().collect();
        Self { shown: String::new(), fields: name }.matches(text, framing).is_ok()
    }

    /// Returns whether the pattern accepts a response with any command, or requires an `rc` other than 0.
    pub(crate) fn accepts_any_answer(&self) -> bool {
        self.fields.iter().any(|(key, matcher)| match matcher {
            Matcher::Failure => key == "rc",
            Matcher::Typed(ResolvedType::Any) => key == "cmd",
            _ => false,
        })
    }

    /// Returns the captures of a message that does not match the pattern, provided that the command and the outcome are as expected and
    /// only other values are wrong. Accepts bytes that RFC 13 forbids, and tuples after a value.
    pub fn read_leniently(&self, text: &[u8], framing: Framing) -> Option<Captures> {
        let parts = |b: &u8| match framing {
            Framing::Lines => matches!(b, b' ' | b'\t'),
            Framing::Frames => *b == b';',
        };
        let seen = |key: &str| {
            let mut words = text.split(parts);
            words.find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
        };
        let mut captures = Captures::new();
        for (key, matcher) in &self.fields {
            match matcher {
                Matcher::Text(text) if key == "cmd" => (seen(key)? == text.0).then_some(())?,
                Matcher::Success | Matcher::Failure => {
                    matcher.matches(framing, key, seen(key), &mut captures).ok()?
                }
                // Another rank received a different value, so the correct value is unknown from here on.
                Matcher::Capture { bound: Some(bound), .. } if seen(key)? != bound.0 => return None,
                Matcher::Capture { name, .. } => captures.push((name.clone(), seen(key)?.to_vec())),
                _ => {}
            }
        }
        Some(captures)
    }
}

impl Matcher {
    /// Creates a pattern from a value of a scenario by replacing its names.
    ///
    /// # Errors
    ///
    /// Returns an error if a name has no value in `scope`, or an expression cannot be evaluated.
    pub fn new(scope: &Scope, value: &Template) -> Result<Self, ScenarioError> {
        Ok(match value.pieces.as_slice() {
            [Piece::Typed(ValueType::Absent)] => Self::Absent,
            [Piece::Typed(ValueType::RcOk)] => Self::Success,
            [Piece::Typed(ValueType::RcFail)] => Self::Failure,
            [Piece::Typed(kind)] => Self::Typed(ResolvedType::new(scope, kind)?),
            [Piece::Capture(name, kind)] => Self::Capture {
                name: name.clone(),
                of: ResolvedType::new(scope, kind)?,
                bound: scope.bound_by_step(name).map(|value| Bytes(value.to_vec())),
            },
            _ => Self::Text(Bytes(scope.text(value)?)),
        })
    }

    /// Compares the value of `key` with the pattern. If the pattern captures the value, adds it to `captures`. `seen` is the value, or
    /// `None` if the key is absent; `framing` is the framing of the message.
    ///
    /// # Errors
    ///
    /// Returns an error with the expected value if the value does not match.
    pub fn matches(
        &self,
        framing: Framing,
        key: &str,
        seen: Option<&[u8]>,
        captures: &mut Captures,
    ) -> Result<(), Mismatch> {
        let wrong = |what: String| Err(Mismatch(what));
        match (self, seen) {
            (Self::Absent, None) => Ok(()),
            (Self::Absent, Some(_)) => wrong(format!("no {key}")),
            (Self::Success, seen) => match seen.map(grammar::parse_int) {
                None | Some(Some(0)) => Ok(()),
                _ => wrong(format!("success: {key} is absent or 0")),
            },
            (Self::Failure, seen) => match seen.map(grammar::parse_int) {
                Some(Some(n)) if n != 0 => Ok(()),
                _ => wrong(format!("an error: {key} is present and not 0")),
            },
            (_, None) => wrong(format!("{key}, which is missing")),
            (Self::Typed(of), Some(seen)) => of.matches(framing, key, seen),
            (Self::Capture { name, of, bound }, Some(seen)) => {
                of.matches(framing, key, seen)?;
                let before = captures.iter().find(|(n, _)| n == name).map(|(_, value)| value);
                match before.or(bound.as_ref().map(|b| &b.0)) {
                    Some(bound) if bound != seen => {
                        wrong(format!("{key}=\"{}\", as another rank received", bound.escape_ascii()))
                    }
                    _ => {
                        captures.push((name.clone(), seen.to_vec()));
                        Ok(())
                    }
                }
            }
            (Self::Text(Bytes(text)), Some(seen)) => {
                let same_number = || matches!((grammar::parse_int(text), grammar::parse_int(seen)), (Some(a), Some(b)) if a == b);
                if text == seen || (!TEXT_KEYS.contains(&key) && same_number()) {
                    Ok(())
                } else {
                    wrong(format!("{key}={}", shorten(text)))
                }
            }
        }
    }
}

fn shorten(text: &[u8]) -> String {
    let cut = &text[..text.len().min(MAX_SHOWN_BYTES)];
    match text.len() - cut.len() {
        0 => cut.escape_ascii().to_string(),
        _ => format!("{}... ({} bytes)", cut.escape_ascii(), text.len()),
    }
}

impl ResolvedType {
    fn new(scope: &Scope, kind: &ValueType) -> Result<Self, ScenarioError> {
        let bound = |e: &Option<_>| e.as_ref().map(|e| scope.number(e)).transpose();
        Ok(match kind {
            ValueType::Uint(low, high) => Self::Uint(bound(low)?, bound(high)?),
            ValueType::Int => Self::Int,
            ValueType::IntList => Self::IntList,
            ValueType::Word => Self::Word,
            ValueType::String => Self::String,
            ValueType::Mapping => Self::Mapping,
            ValueType::Empty => Self::Empty,
            ValueType::Any => Self::Any,
            ValueType::Absent | ValueType::RcOk | ValueType::RcFail => {
                return Err(ScenarioError::Mistake("a capture cannot have this type".into()));
            }
        })
    }

    fn matches(&self, framing: Framing, key: &str, seen: &[u8]) -> Result<(), Mismatch> {
        let (fits, what) = match self {
            Self::Uint(low, high) => {
                let within = |n: u64| {
                    low.is_none_or(|l| i128::from(n) >= i128::from(l))
                        && high.is_none_or(|h| i128::from(n) <= i128::from(h))
                };
                let show = |n: &Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
                let range = match (low, high) {
                    (None, None) => String::new(),
                    _ => format!(" in {}..{}", show(low), show(high)),
                };
                (grammar::parse_uint(seen).is_some_and(within), format!("an unsigned integer{range}"))
            }
            Self::Int => (grammar::parse_int(seen).is_some(), "an integer".into()),
            Self::IntList => (grammar::parse_intlist(seen).is_some(), "a list of integers".into()),
            Self::Word => (grammar::is_word(seen), "a word".into()),
            Self::String => (grammar::is_string(seen), "a string".into()),
            Self::Mapping => {
                let what = framing.pick(["a process mapping of RFC 13", "a process mapping"]);
                (MappingForm::classify(seen).allowed(framing).is_some(), what.into())
            }
            Self::Empty => (seen.is_empty(), "empty".into()),
            Self::Any => (true, String::new()),
        };
        if fits { Ok(()) } else { Err(Mismatch(format!("{key} is {what}"))) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("cmd=kvs-get-response;rc=0;found=FALSE;value=;", true)]
    #[case("cmd=kvs-get-response;rc=0;flag=false;value=x;", true)]
    #[case("cmd=kvs-get-response;rc=0;found=FALSE;", true)]
    #[case("cmd=kvs-get-response;rc=0;found=TRUE;value=;", false)]
    #[case("cmd=kvs-get-response;rc=0;value=;", false)]
    fn pattern_ignores_the_value_of_a_missing_key(#[case] body: &str, #[case] fits: bool) {
        let fields = [("rc", Matcher::Text(Bytes(b"0".to_vec()))), ("value", Matcher::Absent)];
        let fields = fields.into_iter().map(|(key, matcher)| (key.to_owned(), matcher)).collect();
        let pattern = Pattern { shown: String::new(), fields };
        assert_eq!(pattern.matches(body.as_bytes(), Framing::Frames).is_ok(), fits);
    }

    #[rstest]
    #[case("cmd=get_result rc=0 value=(vector,(0,1,1))", Framing::Lines, true)]
    #[case("cmd=get_result rc=0 value=(vector,0)", Framing::Lines, false)]
    #[case("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,0);", Framing::Frames, true)]
    #[case("cmd=info-getjobattr-response;rc=0;found=TRUE;value=0;", Framing::Frames, false)]
    fn mapping_form_depends_on_protocol(#[case] text: &str, #[case] framing: Framing, #[case] fits: bool) {
        let fields = vec![("value".to_owned(), Matcher::Typed(ResolvedType::Mapping))];
        let pattern = Pattern { shown: String::new(), fields };
        assert_eq!(pattern.matches(text.as_bytes(), framing).is_ok(), fits);
    }

    #[rstest]
    // A value with a non-ASCII letter, or with a tuple after it, is captured, so later steps can still be judged.
    #[case("cmd=my_kvsname rc=0 kvsname=ƒ1", Some("ƒ1"))]
    #[case("cmd=my_kvsname rc=0 kvsname=a found=TRUE", Some("a"))]
    // Nothing is captured from a message with a different command, a different outcome or no value.
    #[case("cmd=my_name rc=0 kvsname=a", None)]
    #[case("cmd=my_kvsname rc=-1 kvsname=a", None)]
    #[case("cmd=my_kvsname rc=0", None)]
    fn captures_invalid_values_of_the_expected_response(#[case] line: &str, #[case] kvs: Option<&str>) {
        let capture = Matcher::Capture { name: "kvs".into(), of: ResolvedType::Word, bound: None };
        let fields = [("cmd", Matcher::Text(Bytes(b"my_kvsname".to_vec()))), ("rc", Matcher::Success)];
        let fields = fields.into_iter().chain([("kvsname", capture)]).map(|(key, m)| (key.to_owned(), m));
        let pattern = Pattern { shown: String::new(), fields: fields.collect() };
        let read = pattern.read_leniently(line.as_bytes(), Framing::Lines);
        let expected = kvs.map(|kvs| vec![("kvs".to_owned(), kvs.as_bytes().to_vec())]);
        assert_eq!(read, expected);
    }
}
