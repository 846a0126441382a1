//! Messages as tuples: the form in which generators make messages and mutations change them, before the messages are converted to text.

use pmi_scenario::ast::{Encoding, Piece, Template};
use pmi_wire::{Decoded, Direction, Framing};

use super::op::Op;
use super::pieces::{literal, push, template};

/// A tuple of a message.
#[derive(Debug, Clone)]
pub(crate) struct MessageField {
    pub(crate) key: String,
    pub(crate) value: Template,
}

/// The tuples of a message, in order.
pub(crate) type FieldList = Vec<MessageField>;

/// The content of a single write, either as messages or as text.
#[derive(Debug, Clone)]
pub(crate) enum WriteContent {
    /// Messages. Only a PMI-1 spawn can have more than one.
    Messages(Encoding, Vec<FieldList>),
    /// Text, which need not consist of tuples.
    Lines(Encoding, Vec<Template>),
}

impl WriteContent {
    pub(crate) fn of_lines(messages: Vec<FieldList>) -> Self {
        Self::Messages(Encoding::Dialect, messages)
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Messages(encoding, _) | Self::Lines(encoding, _) => *encoding,
        }
    }

    pub(crate) fn lines(&self) -> Vec<Template> {
        match self {
            Self::Messages(Encoding::Body, messages) => {
                messages.iter().map(|message| body(message)).collect()
            }
            Self::Messages(_, messages) => messages.iter().map(|message| line(message)).collect(),
            Self::Lines(_, lines) => lines.clone(),
        }
    }

    pub(crate) fn messages_mut(&mut self) -> Option<&mut Vec<FieldList>> {
        match self {
            Self::Messages(_, messages) => Some(messages),
            Self::Lines(..) => None,
        }
    }
}

pub(crate) fn field(key: &str, value: impl Into<FieldValue>) -> MessageField {
    MessageField { key: key.to_owned(), value: value.into().0 }
}

/// Returns a request with these fields, given by their names in the protocol table. Fields that the operation does not have are left out.
pub(crate) fn spell(op: Op, fields: &[(&str, Template)]) -> FieldList {
    let own = fields.iter().filter_map(|(name, value)| Some(field(&op.key(name)?, value.clone())));
    std::iter::once(field(op.command_key(), op.name())).chain(own).collect()
}

/// The value of a [`field`].
pub(crate) struct FieldValue(Template);

impl From<&str> for FieldValue {
    fn from(value: &str) -> Self {
        Self(text(value))
    }
}

impl From<String> for FieldValue {
    fn from(value: String) -> Self {
        Self(text(value))
    }
}

impl From<Piece> for FieldValue {
    fn from(piece: Piece) -> Self {
        Self(template(vec![piece]))
    }
}

impl From<Template> for FieldValue {
    fn from(value: Template) -> Self {
        Self(value)
    }
}

pub(crate) fn line(fields: &[MessageField]) -> Template {
    let mut line = Template::default();
    for (i, field) in fields.iter().enumerate() {
        let blank = if i == 0 { "" } else { " " };
        let equals = if field.value.is_empty() && field.key == "endcmd" { "" } else { "=" };
        push(&mut line, literal(format!("{blank}{}{equals}", field.key)));
        field.value.pieces.iter().for_each(|piece| push(&mut line, piece.clone()));
    }
    line
}

/// Returns the tuples as the body of a frame. Semicolons in values must already be doubled.
pub(crate) fn body(fields: &[MessageField]) -> Template {
    let mut body = Template::default();
    for field in fields {
        push(&mut body, literal(format!("{}=", field.key)));
        field.value.pieces.iter().for_each(|piece| push(&mut body, piece.clone()));
        push(&mut body, literal(*b";"));
    }
    body
}

pub(crate) fn text(bytes: impl Into<Vec<u8>>) -> Template {
    template(vec![literal(bytes)])
}

/// Returns the tuples of a message. Semicolons in the values of a frame remain doubled. The list is empty if the body of a frame cannot be
/// parsed.
pub(crate) fn tuples_of(framing: Framing, text: &[u8]) -> FieldList {
    let field = |(key, value): (&[u8], &[u8])| MessageField {
        key: String::from_utf8_lossy(key).into_owned(),
        value: self::text(value),
    };
    match framing {
        Framing::Lines => pairs_of_line(text).into_iter().map(field).collect(),
        Framing::Frames => {
            let message = Decoded::new(Direction::ToServer, framing, text);
            message.tuples().map(|tuple| field((tuple.key, tuple.value))).collect()
        }
    }
}

/// Returns the text of a message in this framing.
pub(crate) fn message(framing: Framing, fields: &[MessageField]) -> Template {
    match framing {
        Framing::Lines => line(fields),
        Framing::Frames => body(fields),
    }
}

/// Returns the tuples of a line. The values of `value` and `msg` extend to the end of the line.
pub(crate) fn pairs_of_line(text: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let whole = [&b"value="[..], b"msg="].iter().any(|key| rest.starts_with(key));
        let end = if whole { rest.len() } else { memchr::memchr(b' ', rest).unwrap_or(rest.len()) };
        let (tuple, more) = rest.split_at(end);
        rest = more.strip_prefix(b" ").unwrap_or(more);
        let at = memchr::memchr(b'=', tuple).unwrap_or(tuple.len());
        pairs.push((&tuple[..at], tuple.get(at + 1..).unwrap_or_default()));
    }
    pairs
}
