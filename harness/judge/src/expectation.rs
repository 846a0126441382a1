//! What a scenario expects at a place, as data: with every name replaced by what it stands for, so that a stored log can be
//! judged again without the scenario.

use std::fmt;

use pmi_scenario::ast::{ExitPattern, Grade, Kind, Piece, Template};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_scenario::signature;
use pmi_wire::{Decoded, Direction, Framing, MappingForm, MessageError, Outcome, Proc, grammar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::{Bytes, SHOWN};

/// Keys whose values are texts, also where they look like numbers: `007` is not `7`.
const TEXT_KEYS: &[&str] = &["value", "port", "kvsname", "jobid"];

/// What must happen next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// At whose connection, or of which process; `None` for the job as a whole.
    pub proc: Option<Proc>,
    /// The requirement that is broken otherwise.
    pub cites: String,
    /// What must happen.
    pub what: Expected,
}

/// What must happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// The next message fits.
    Message(Pattern),
    /// The next message is a bare newline.
    Newline,
    /// The connection ends, and nothing is said before.
    Close,
    /// Nothing is said.
    Silence,
    /// One of several outcomes; the first that fits gives the verdict.
    OneOf(Vec<Choice>),
    /// The process has started.
    Started,
    /// The process manager ends the process.
    Ended,
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: String,
        /// What it holds.
        value: Matcher,
    },
    /// The arguments, separated by blanks.
    Arguments(Bytes),
    /// The job ends.
    JobExits(ExitPattern),
    /// The job says something on stderr or stdout.
    Logs,
    /// A program's process, or any of them, makes a request that fits this line of the scenario, which is not answered as
    /// the server would answer it; without a line, it starts.
    Request(Option<String>),
    /// A program's process ends by itself, with such a status.
    Exits(ExitPattern),
    /// A program's process ends somehow, by itself or with its program.
    EndsSomehow,
    /// A program's process ends by itself, with status 0 only if its output is that of a plain run.
    Copes,
    /// The output of a program's process is that of a plain run.
    SameOutput,
    /// The library asks this within a call: one line, or lines of a spawn request in their order. What it asks before that is
    /// not for the scenario.
    Asks(Vec<Pattern>),
    /// A call of a library returns.
    Returns {
        /// With which code.
        code: ReturnCode,
        /// What the named out arguments hold.
        outs: Vec<(String, Matcher)>,
    },
    /// The process exits, as it is told to.
    ExitsAsTold,
}

impl Expected {
    /// Whether it is expected of a program, whose processes come to it in any order, so that it is weighed in the end.
    pub fn is_of_a_program(&self) -> bool {
        matches!(self, Self::Request(_) | Self::Exits(_) | Self::EndsSomehow | Self::Copes | Self::SameOutput)
    }

    /// Whether a program's process must end by itself, also when its program is aborted.
    pub fn is_an_end_by_itself(&self) -> bool {
        match self {
            Self::Exits(pattern) => *pattern != ExitPattern::Code(0),
            other => *other == Self::Copes,
        }
    }
}

/// What a call returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReturnCode {
    /// Anything.
    Any,
    /// Any error.
    Failure,
    /// Any error, although the scenario names one: RFC 13 gives it no number.
    Unnumbered(String),
    /// This one.
    Code {
        /// As the scenario writes it.
        shown: String,
        /// Its number.
        number: i32,
    },
}

impl ReturnCode {
    /// Reads what a scenario says.
    pub fn new(shown: &str) -> Option<Self> {
        Some(match shown {
            "any" => Self::Any,
            "fail" => Self::Failure,
            "PMI_ERR_INVALID_KVS" => Self::Unnumbered(shown.to_owned()),
            _ => {
                let number = signature::code(shown).or_else(|| shown.parse().ok())?;
                Self::Code { shown: shown.to_owned(), number }
            }
        })
    }

    /// Whether a code is as expected.
    pub(crate) fn fits(&self, seen: i32) -> bool {
        match self {
            Self::Any => true,
            Self::Failure | Self::Unnumbered(_) => seen != 0,
            Self::Code { number, .. } => *number == seen,
        }
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "anything",
            Self::Failure => "an error",
            Self::Unnumbered(shown) | Self::Code { shown, .. } => shown,
        })
    }
}

/// One of several outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// What it earns.
    pub grade: Grade,
    /// The requirement that it breaks, if not that of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cites: Option<String>,
    /// [`Expected::Message`], [`Expected::Asks`], [`Expected::Newline`], [`Expected::Close`] or [`Expected::Silence`].
    pub what: Expected,
}

impl Choice {
    /// Whether it is an answer to a spawn.
    pub(crate) fn answers_spawn(&self) -> bool {
        let is_name = |text: &Bytes| matches!(text.0.as_slice(), b"spawn_result" | b"spawn-response");
        let names = |(key, matcher): &(String, Matcher)| {
            key == "cmd" && matches!(matcher, Matcher::Text(text) if is_name(text))
        };
        matches!(&self.what, Expected::Message(pattern) if pattern.fields.iter().any(names))
    }

    /// Whether it is that nothing comes, and that is no failure.
    pub(crate) fn is_lawful_silence(&self) -> bool {
        self.what == Expected::Silence && self.grade != Grade::Fail
    }
}

/// How it stands with the last expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may still be met.
    Open,
    /// It is met, or there was none.
    Met,
    /// It is not met and cannot be any more; the finding has been made. Nothing that follows can be judged.
    Broken,
}

/// A message as it is expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pattern {
    /// As the scenario writes it.
    pub shown: String,
    /// The keys that matter, in the order in which they are looked at.
    pub fields: Vec<(String, Matcher)>,
}

/// A value as it is expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Matcher {
    /// This text; numbers by value, except where the text itself is what was stored.
    Text(Bytes),
    /// Anything of a type.
    Typed(Type),
    /// Anything of a type, which a name stands for from then on.
    Capture {
        /// The name.
        name: String,
        /// The type.
        of: Type,
        /// What another rank was told in the same step: it must be equal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound: Option<Bytes>,
    },
    /// The key is not there.
    Absent,
    /// Success: absent or 0.
    Success,
    /// An error: present and not 0.
    Failure,
}

/// Types of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// Digits, within these bounds.
    Uint(Option<i64>, Option<i64>),
    /// An integer.
    Int,
    /// Integers with commas between them.
    IntList,
    /// RFC 13's `word`.
    Word,
    /// RFC 13's `string`.
    String,
    /// A process mapping in RFC 13's grammar.
    Mapping,
    /// Nothing.
    Empty,
    /// Whatever it holds.
    Any,
}

/// Names and what they stand for now.
pub type Captures = Vec<(String, Vec<u8>)>;

/// What does not fit, in words: what was expected instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit(pub String);

impl Pattern {
    /// A line of a scenario with its names replaced.
    ///
    /// # Errors
    ///
    /// A name in it has no value here, or a calculation comes to nothing.
    pub fn new(scope: &Scope, line: &Template) -> Result<Self, ScenarioError> {
        let mut shown = line.to_string();
        shown.truncate(shown.floor_char_boundary(SHOWN));
        let fields = line.message_fields().into_iter();
        let fields = fields.map(|f| Ok((f.key.clone(), Matcher::new(scope, &f.value)?)));
        Ok(Self { shown, fields: fields.collect::<Result<_, _>>()? })
    }

    /// Whether a message fits; what it captures.
    ///
    /// # Errors
    ///
    /// What was expected of the first key that does not fit, or of the message.
    pub fn fits(&self, text: &[u8], framing: Framing) -> Result<Captures, Misfit> {
        let message = Decoded::new(Direction::FromServer, framing, text);
        if !message.has_tuples() {
            let why = message.error().unwrap_or_else(|| MessageError::Empty.to_string());
            return Err(Misfit(why));
        }
        // Nobody reads the value of a frame that reports a miss or a failure.
        let missed =
            framing == Framing::Frames && matches!(message.outcome(), Some(Outcome::Miss | Outcome::Failure));
        let mut captures = Captures::new();
        for (key, matcher) in &self.fields {
            let unread = missed && matches!(key.as_str(), "value" | "port");
            let value = message.value(key).filter(|_| !unread);
            matcher.fits(key, value.as_deref(), &mut captures)?;
        }
        Ok(captures)
    }

    /// Returns true if a message has the expected command.
    pub(crate) fn has_name(&self, text: &[u8], framing: Framing) -> bool {
        let name = self.fields.iter().filter(|(key, _)| key == "cmd").cloned().collect();
        Self { shown: String::new(), fields: name }.fits(text, framing).is_ok()
    }

    /// Whether it leaves open which answer comes, or wants a refusal.
    pub(crate) fn accepts_any_answer(&self) -> bool {
        self.fields.iter().any(|(key, matcher)| match matcher {
            Matcher::Failure => key == "rc",
            Matcher::Typed(Type::Any) => key == "cmd",
            _ => false,
        })
    }

    /// What a message captures that does not fit, if it is the answer that was expected, with the outcome that was expected, and
    /// only some value is not as it should be. It is read leniently: bytes that RFC 13 does not allow, and tuples behind a value.
    pub fn reads(&self, text: &[u8], framing: Framing) -> Option<Captures> {
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
                Matcher::Success | Matcher::Failure => matcher.fits(key, seen(key), &mut captures).ok()?,
                // Another rank was told something else: from here on it is unclear what is right.
                Matcher::Capture { bound: Some(bound), .. } if seen(key)? != bound.0 => return None,
                Matcher::Capture { name, .. } => captures.push((name.clone(), seen(key)?.to_vec())),
                _ => {}
            }
        }
        Some(captures)
    }
}

impl Matcher {
    /// A value of a scenario with its names replaced.
    ///
    /// # Errors
    ///
    /// See [`Pattern::new`].
    pub fn new(scope: &Scope, value: &Template) -> Result<Self, ScenarioError> {
        Ok(match value.pieces.as_slice() {
            [Piece::Typed(Kind::Absent)] => Self::Absent,
            [Piece::Typed(Kind::RcOk)] => Self::Success,
            [Piece::Typed(Kind::RcFail)] => Self::Failure,
            [Piece::Typed(kind)] => Self::Typed(Type::new(scope, kind)?),
            [Piece::Capture(name, kind)] => Self::Capture {
                name: name.clone(),
                of: Type::new(scope, kind)?,
                bound: scope.bound_by_step(name).map(|value| Bytes(value.to_vec())),
            },
            _ => Self::Text(Bytes(scope.text(value)?)),
        })
    }

    /// Whether a value fits, `None` where the key is absent; adds what it captures.
    ///
    /// # Errors
    ///
    /// What was expected.
    pub fn fits(&self, key: &str, seen: Option<&[u8]>, captures: &mut Captures) -> Result<(), Misfit> {
        let wrong = |what: String| Err(Misfit(what));
        match (self, seen) {
            (Self::Absent, None) => Ok(()),
            (Self::Absent, Some(_)) => wrong(format!("no {key}")),
            (Self::Success, seen) => match seen.map(grammar::parse_int) {
                None | Some(Some(0)) => Ok(()),
                _ => wrong(format!("success: {key} absent or 0")),
            },
            (Self::Failure, seen) => match seen.map(grammar::parse_int) {
                Some(Some(n)) if n != 0 => Ok(()),
                _ => wrong(format!("an error: {key} present and not 0")),
            },
            (_, None) => wrong(format!("{key}, which is missing")),
            (Self::Typed(of), Some(seen)) => of.fits(key, seen),
            (Self::Capture { name, of, bound }, Some(seen)) => {
                of.fits(key, seen)?;
                let before = captures.iter().find(|(n, _)| n == name).map(|(_, value)| value);
                match before.or(bound.as_ref().map(|b| &b.0)) {
                    Some(bound) if bound != seen => {
                        wrong(format!("{key}=\"{}\", as another rank was told", bound.escape_ascii()))
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
    let cut = &text[..text.len().min(SHOWN)];
    match text.len() - cut.len() {
        0 => cut.escape_ascii().to_string(),
        _ => format!("{}... ({} bytes)", cut.escape_ascii(), text.len()),
    }
}

impl Type {
    fn new(scope: &Scope, kind: &Kind) -> Result<Self, ScenarioError> {
        let bound = |e: &Option<_>| e.as_ref().map(|e| scope.number(e)).transpose();
        Ok(match kind {
            Kind::Uint(low, high) => Self::Uint(bound(low)?, bound(high)?),
            Kind::Int => Self::Int,
            Kind::IntList => Self::IntList,
            Kind::Word => Self::Word,
            Kind::String => Self::String,
            Kind::Mapping => Self::Mapping,
            Kind::Empty => Self::Empty,
            Kind::Any => Self::Any,
            Kind::Absent | Kind::RcOk | Kind::RcFail => {
                return Err(ScenarioError::Mistake("a name can only stand for a value".into()));
            }
        })
    }

    fn fits(&self, key: &str, seen: &[u8]) -> Result<(), Misfit> {
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
                let fits = matches!(MappingForm::classify(seen), MappingForm::Rfc(_));
                (fits, "a process mapping of RFC 13".into())
            }
            Self::Empty => (seen.is_empty(), "empty".into()),
            Self::Any => (true, String::new()),
        };
        if fits { Ok(()) } else { Err(Misfit(format!("{key} is {what}"))) }
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
    fn value_of_a_miss_is_not_read(#[case] body: &str, #[case] fits: bool) {
        let fields = [("rc", Matcher::Text(Bytes(b"0".to_vec()))), ("value", Matcher::Absent)];
        let fields = fields.into_iter().map(|(key, matcher)| (key.to_owned(), matcher)).collect();
        let pattern = Pattern { shown: String::new(), fields };
        assert_eq!(pattern.fits(body.as_bytes(), Framing::Frames).is_ok(), fits);
    }

    #[rstest]
    // A letter beyond ASCII, a tuple behind the value, a wrong number: what follows can be judged.
    #[case("cmd=my_kvsname rc=0 kvsname=ƒ1", Some("ƒ1"))]
    #[case("cmd=my_kvsname rc=0 kvsname=a found=TRUE", Some("a"))]
    // Another message, another outcome, or nothing to go on with.
    #[case("cmd=my_name rc=0 kvsname=a", None)]
    #[case("cmd=my_kvsname rc=-1 kvsname=a", None)]
    #[case("cmd=my_kvsname rc=0", None)]
    fn what_does_not_fit_is_read_if_only_a_value_is_wrong(#[case] line: &str, #[case] kvs: Option<&str>) {
        let capture = Matcher::Capture { name: "kvs".into(), of: Type::Word, bound: None };
        let fields = [("cmd", Matcher::Text(Bytes(b"my_kvsname".to_vec()))), ("rc", Matcher::Success)];
        let fields = fields.into_iter().chain([("kvsname", capture)]).map(|(key, m)| (key.to_owned(), m));
        let pattern = Pattern { shown: String::new(), fields: fields.collect() };
        let read = pattern.reads(line.as_bytes(), Framing::Lines);
        let expected = kvs.map(|kvs| vec![("kvs".to_owned(), kvs.as_bytes().to_vec())]);
        assert_eq!(read, expected);
    }
}
