//! Does a message fit an expected line?

use pmi_wire::{MappingForm, Message, ValueReading, grammar};

use super::scope::{ScenarioError, Scope};
use crate::lang::ast::{Kind, Piece, Template};

/// Keys whose values are texts, also where they look like numbers: `007` is not `7`.
const TEXT_KEYS: &[&str] = &["value", "port", "kvsname"];

/// Why a message does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// What was expected of which key, or of the message.
    Message(String),
    /// The scenario itself is wrong.
    Scenario(String),
}

impl From<ScenarioError> for Misfit {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error.0)
    }
}

/// Checks a line against the expected one and binds what it captures.
pub(crate) fn fits(scope: &mut Scope, expected: &Template, line: &[u8]) -> Result<(), Misfit> {
    let message =
        Message::parse(line, ValueReading::ToEndOfLine).map_err(|e| Misfit::Message(e.to_string()))?;
    for field in expected.message_fields() {
        let seen = message.get(field.key.as_bytes());
        value_fits(scope, &field.key, &field.value, seen)?;
    }
    Ok(())
}

/// Checks one value, `None` where the key is absent.
pub(super) fn value_fits(
    scope: &mut Scope,
    key: &str,
    expected: &Template,
    seen: Option<&[u8]>,
) -> Result<(), Misfit> {
    let wrong = |what: String| Err(Misfit::Message(what));
    match (expected.pieces.as_slice(), seen) {
        ([Piece::Typed(Kind::Absent)], None) => Ok(()),
        ([Piece::Typed(Kind::Absent)], Some(_)) => wrong(format!("no {key}")),
        ([Piece::Typed(Kind::RcOk)], seen) => match seen.map(grammar::parse_int) {
            None | Some(Some(0)) => Ok(()),
            _ => wrong(format!("success: {key} absent or 0")),
        },
        ([Piece::Typed(Kind::RcFail)], seen) => match seen.map(grammar::parse_int) {
            Some(Some(n)) if n != 0 => Ok(()),
            _ => wrong(format!("an error: {key} present and not 0")),
        },
        (_, None) => wrong(format!("{key}, which is missing")),
        ([Piece::Typed(kind)], Some(seen)) => kind_fits(scope, key, kind, seen),
        ([Piece::Capture(name, kind)], Some(seen)) => {
            kind_fits(scope, key, kind, seen)?;
            scope.capture(name, seen).map_err(|bound| {
                Misfit::Message(format!("{key}=\"{}\", as another rank was told", bound.escape_ascii()))
            })
        }
        (_, Some(seen)) => {
            let text = scope.text(expected)?;
            let same_number = || matches!((grammar::parse_int(&text), grammar::parse_int(seen)), (Some(a), Some(b)) if a == b);
            // Numbers by value, except where the text itself is what was stored.
            if text == seen || (!TEXT_KEYS.contains(&key) && same_number()) {
                Ok(())
            } else {
                wrong(format!("{key}={}", shorten(&text)))
            }
        }
    }
}

fn shorten(text: &[u8]) -> String {
    let cut = &text[..text.len().min(super::player::SHOWN)];
    match text.len() - cut.len() {
        0 => cut.escape_ascii().to_string(),
        _ => format!("{}... ({} bytes)", cut.escape_ascii(), text.len()),
    }
}

fn kind_fits(scope: &Scope, key: &str, kind: &Kind, seen: &[u8]) -> Result<(), Misfit> {
    let (fits, what) = match kind {
        Kind::Uint(low, high) => {
            let bound = |e: &Option<_>| e.as_ref().map(|e| scope.number(e)).transpose();
            let (low, high) = (bound(low)?, bound(high)?);
            let number = grammar::parse_uint(seen);
            let within = |n: u64| {
                low.is_none_or(|l| i128::from(n) >= i128::from(l))
                    && high.is_none_or(|h| i128::from(n) <= i128::from(h))
            };
            let show = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
            let range = if low.is_none() && high.is_none() {
                String::new()
            } else {
                format!(" in {}..{}", show(low), show(high))
            };
            (number.is_some_and(within), format!("an unsigned integer{range}"))
        }
        Kind::Int => (grammar::parse_int(seen).is_some(), "an integer".into()),
        Kind::IntList => (grammar::parse_intlist(seen).is_some(), "a list of integers".into()),
        Kind::Word => (grammar::is_word(seen), "a word".into()),
        Kind::String => (grammar::is_string(seen), "a string".into()),
        Kind::Mapping => {
            (matches!(MappingForm::classify(seen), MappingForm::Rfc(_)), "a process mapping of RFC 13".into())
        }
        Kind::Empty => (seen.is_empty(), "empty".into()),
        Kind::Any => (true, String::new()),
        Kind::Absent | Kind::RcOk | Kind::RcFail => (false, "something else".into()),
    };
    if fits { Ok(()) } else { Err(Misfit::Message(format!("{key} is {what}"))) }
}
