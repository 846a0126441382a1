//! The errors that decoding detects in a message.

use std::borrow::Cow;

use thiserror::Error;

use crate::grammar::Rule;
use crate::message::MessageError;
use crate::pmi2::BodyError;
use crate::protocol::{Direction, Framing};

/// An error in a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The line is not a series of tuples.
    #[error(transparent)]
    Line(#[from] MessageError),
    /// The body is not a series of tuples.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// `cmd` is missing, or is not the first tuple of a frame.
    #[error("{}", framing.pick(["no command: the key \"cmd\" is missing", "the first key is not \"cmd\""]))]
    NoCommand {
        /// The framing of the message.
        framing: Framing,
    },
    /// The command is not documented for this framing and direction.
    #[error("not a {} {}", framing.pick(["PMI-1.1", "PMI-2"]),
        match direction { Direction::ToServer => "request", Direction::FromServer => "response" })]
    UnknownCommand {
        /// The framing of the message.
        framing: Framing,
        /// The direction of the message.
        direction: Direction,
    },
    /// A required key is missing.
    #[error("the key \"{0}\" is missing")]
    MissingKey(Cow<'static, str>),
    /// The value of a key does not match its rule.
    #[error("the value of \"{key}\" is not {expected}")]
    BadValue {
        /// The key of the value.
        key: &'static str,
        /// The rule for the value.
        rule: Rule,
        /// A description of valid values.
        expected: &'static str,
    },
    /// A key appears more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(Cow<'static, str>),
    /// A spawn command outside a block. In lines, a spawn request spans several lines, which a [`SpawnCollector`](crate::SpawnCollector)
    /// reads.
    #[error("a spawn request must be a block of lines from \"mcmd=spawn\" to \"endcmd\"")]
    SpawnOutsideBlock,
}

impl DecodeError {
    /// Returns the error for a value that does not match its rule.
    pub(crate) fn value(key: &'static str, rule: Rule, framing: Framing) -> Self {
        let text = rule.description();
        // RFC 13 does not apply to frames, so the reference to it is omitted.
        let expected = framing.pick([text, text.split(" (").next().unwrap_or(text)]);
        Self::BadValue { key, rule, expected }
    }
}
