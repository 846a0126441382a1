//! The kinds of messages. A kind is the request or response that a message contains, or the reason why the message is invalid.

use std::collections::BTreeMap;
use std::fmt;

use pmi_judge::event::{Event, EventKind};
use pmi_scenario::ast::Dialect;
use pmi_wire::{Decoded, Direction, Framing, Operation, Proc};

use crate::session::fields::pairs_of_line;
use crate::session::op::Op;
use crate::session::reading::{MessageReader, ParsedResponse, WireMessage, request_of};

/// Maximum number of keys in a message. A message with more keys is classified as [`MessageKind::ManyKeys`]. Messages of RFC 13 have at
/// most five keys.
const MAX_CLASSIFIED_KEYS: usize = 20;

/// The kind of the last message in a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// The end of the message has not been sent.
    Partial,
    /// An invalid PMI-2 frame: its header is not a length.
    NoFrame,
    /// More keys than any valid message has.
    ManyKeys,
    /// The command is missing.
    NoCommand,
    /// The command is unknown.
    UnknownCommand,
    /// A request.
    Request(Op),
    /// A request that violates the grammar.
    Malformed(Op),
}

/// The kind of a message from the upstream of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamKind {
    /// The newline has not been sent.
    Partial,
    /// The command is missing.
    NoCommand,
    /// The command is not in RFC 13.
    UnknownCommand,
    /// Key-value pairs for the proxy's cache.
    Cache,
    /// Key-value pairs for the proxy's cache, with at least one malformed pair.
    MalformedCache,
    /// A response of RFC 13.
    Response(Op),
    /// A response that violates the grammar.
    Malformed(Op),
}

impl MessageKind {
    /// Returns the kind of the last PMI-1 message in a write.
    pub fn of(bytes: &[u8]) -> Self {
        let mut reader = MessageReader::new(Framing::Lines);
        Self::last(&reader.push(bytes), &reader)
    }

    /// Returns the kind of the last message, or [`Self::Partial`] if the last message is incomplete.
    fn last(messages: &[WireMessage], reader: &MessageReader) -> Self {
        messages.last().filter(|_| !reader.is_partial()).map_or(Self::Partial, Self::of_message)
    }

    /// Returns the operation of a request, including a malformed one.
    pub(crate) fn op(self) -> Option<Op> {
        match self {
            Self::Request(op) | Self::Malformed(op) => Some(op),
            _ => None,
        }
    }

    pub(crate) fn of_message(wire_message: &WireMessage) -> Self {
        let (framing, text) = match wire_message {
            WireMessage::Line(line) => (Framing::Lines, line),
            WireMessage::Body(body) => (Framing::Frames, body),
            WireMessage::NoFrame => return Self::NoFrame,
        };
        let is_line = framing == Framing::Lines;
        if is_line && (text.starts_with(b"mcmd=") || text == b"endcmd") {
            return Self::Request(Operation::Spawn.into());
        }
        let Some(rest) = text.strip_prefix(b"cmd=") else { return Self::NoCommand };
        let name = rest.split(|b| if is_line { !b.is_ascii_graphic() } else { *b == b';' }).next();
        let op = name.and_then(|name| Op::of_request(framing, name));
        let message = Decoded::new(Direction::ToServer, framing, text);
        // Only a spawn request may contain many keys, because it may contain any number of programs.
        let keys = || match framing {
            Framing::Lines => pairs_of_line(text).iter().filter(|(_, value)| !value.is_empty()).count(),
            Framing::Frames => message.tuples().filter(|tuple| !tuple.value.is_empty()).count(),
        };
        if op.is_none_or(|op| !op.is_spawn()) && keys() > MAX_CLASSIFIED_KEYS {
            return Self::ManyKeys;
        }
        match (op, request_of(&message).1) {
            (None, _) => Self::UnknownCommand,
            (Some(op), true) => Self::Request(op),
            (Some(op), false) => Self::Malformed(op),
        }
    }
}

impl UpstreamKind {
    pub(crate) fn of(text: &[u8]) -> Self {
        let Some(lines) = text.strip_suffix(b"\n") else { return Self::Partial };
        let first = lines.split(|b| *b == b'\n').next().unwrap_or_default();
        let mut words = first.split(|b| *b == b' ');
        let cmd = match words.next().and_then(|word| word.strip_prefix(b"cmd=")) {
            Some(b"keyval_cache") => {
                let bare = words.any(|word| !word.is_empty() && !word.contains(&b'='));
                return if bare { Self::MalformedCache } else { Self::Cache };
            }
            Some(cmd) => cmd,
            None => return Self::NoCommand,
        };
        match (Op::of_response(cmd), ParsedResponse::read(Framing::Lines, first)) {
            (Some(op), answered) if op.framing() == Framing::Lines => match answered {
                Some(_) => Self::Response(op),
                None => Self::Malformed(op),
            },
            _ => Self::UnknownCommand,
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partial => f.write_str("partial"),
            Self::NoFrame => f.write_str("no-frame"),
            Self::ManyKeys => f.write_str("many-keys"),
            Self::NoCommand => f.write_str("no-command"),
            Self::UnknownCommand => f.write_str("unknown-command"),
            Self::Request(op) => f.write_str(op.name()),
            Self::Malformed(op) => write!(f, "bad-{op}"),
        }
    }
}

impl fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |op: &Op| op.response_name().unwrap_or("abort");
        match self {
            Self::Partial => f.write_str("upstream-partial"),
            Self::NoCommand => f.write_str("upstream-no-command"),
            Self::UnknownCommand => f.write_str("upstream-unknown-command"),
            Self::Cache => f.write_str("upstream-keyval_cache"),
            Self::MalformedCache => f.write_str("upstream-bad-keyval_cache"),
            Self::Response(op) => write!(f, "upstream-{}", name(op)),
            Self::Malformed(op) => write!(f, "upstream-bad-{}", name(op)),
        }
    }
}

/// The messages from all processes to a server, write by write.
pub(crate) struct MessageWrites {
    framing: Framing,
    readers: BTreeMap<Proc, MessageReader>,
}

impl MessageWrites {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { framing: dialect.framing(), readers: BTreeMap::new() }
    }

    /// Returns the kind of the last message on a process's connection after a write, and the number of requests that the write completed.
    pub(crate) fn write(&mut self, proc: Proc, bytes: &[u8]) -> (MessageKind, usize) {
        let reader = self.readers.entry(proc).or_insert_with(|| MessageReader::new(self.framing));
        let messages = reader.push(bytes);
        (MessageKind::last(&messages, reader), messages.len())
    }
}

/// Returns the result of [`MessageWrites::write`] for each write to the server, by the number of the write's event.
pub(crate) fn kinds(events: &[Event], dialect: Dialect) -> BTreeMap<u64, (MessageKind, usize)> {
    let mut writes = MessageWrites::new(dialect);
    let kind = |event: &Event| match &event.kind {
        EventKind::ToServer { proc, bytes } => Some((event.seq, writes.write(*proc, &bytes.0))),
        _ => None,
    };
    events.iter().filter_map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_requests() {
        for (bytes, expected) in [
            ("cmd=put kvsname=k key=a value=b\n", "put"),
            ("cmd=put kvsname=k\n", "bad-put"),
            ("cmd=put kvsname=k", "partial"),
            ("cmd=get kvsname=k key=a\ncmd=barrier_in\n", "barrier_in"),
            ("mcmd=spawn\nnprocs=1\nendcmd\n", "spawn"),
            ("cmd=frob\n", "unknown-command"),
            ("\n", "no-command"),
            (&format!("cmd=get_maxes{}\n", " x=1".repeat(MAX_CLASSIFIED_KEYS)), "many-keys"),
        ] {
            assert_eq!(MessageKind::of(bytes.as_bytes()).to_string(), expected, "{bytes}");
        }
    }

    #[test]
    fn classifies_upstream_messages() {
        for (text, expected) in [
            ("cmd=get_result rc=0 value=x\n", "upstream-get_result"),
            ("cmd=get_result rc=0 value=x", "upstream-partial"),
            ("rc=0 value=x\n", "upstream-no-command"),
            ("\n", "upstream-no-command"),
            ("\ncmd=barrier_out\n", "upstream-no-command"),
            ("cmd=frob\n", "upstream-unknown-command"),
            ("cmd=keyval_cache a=1 b=2\n", "upstream-keyval_cache"),
            ("cmd=keyval_cache a=1 b\n", "upstream-bad-keyval_cache"),
            ("cmd=get_result rc=x\n", "upstream-bad-get_result"),
        ] {
            assert_eq!(UpstreamKind::of(text.as_bytes()).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn line_split_across_writes_is_a_single_request() {
        let [one, other] = [0, 1].map(|rank| Proc { group: 0, rank });
        let mut writes = MessageWrites::new(Dialect::Pmi1);
        for (proc, bytes, expected) in [
            (one, &b"cmd=get kvsname=a key=b"[..], ("partial", 0)),
            (other, b"cmd=get_appnum\n", ("get_appnum", 1)),
            (one, b"c", ("partial", 0)),
            (one, b"\n", ("get", 1)),
            (one, b"mcmd=spawn\nnpr", ("partial", 0)),
            (one, b"ocs=1\nendcmd\n", ("spawn", 1)),
            (one, b"cmd=get_appnum\ncmd=finalize\n", ("finalize", 2)),
        ] {
            let (kind, requests) = writes.write(proc, bytes);
            assert_eq!((kind.to_string().as_str(), requests), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn classifies_write_by_its_last_message() {
        let proc = Proc { group: 0, rank: 0 };
        let mut writes = MessageWrites::new(Dialect::Pmi2);
        for (bytes, expected) in [
            (&b"cmd=init pmi_version=2 pmi_subversion=0\n"[..], ("init", 1)),
            (b"0000", ("partial", 0)),
            (b"14cmd=job-getid;", ("job-getid", 1)),
            (b"    14cmd=job-getid;    16cmd=kvs-put;k=", ("partial", 1)),
            (b"v;", ("bad-kvs-put", 1)),
            (b"     9cmd=frob;", ("unknown-command", 1)),
        ] {
            let (kind, requests) = writes.write(proc, bytes);
            assert_eq!((kind.to_string().as_str(), requests), expected, "{}", bytes.escape_ascii());
        }
    }
}
