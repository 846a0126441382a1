//! Parses complete and incomplete messages in one direction of a connection. Campaigns also send invalid bytes, so lines and frames are
//! distinguished by their first bytes and not by the negotiated framing.

use std::borrow::Cow;

use pmi_scenario::ast::Template;
use pmi_wire::protocol::{self, Field};
use pmi_wire::{
    Decoded, Direction, Framing, HEADER, ResponseOutcome, SpawnCollector, SpawnLimits, SpawnRequest,
    frame_length,
};

use super::op::Op;
use super::pieces::bytes_of;

/// A message, or bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireMessage {
    /// A line without its newline, or all lines of a program in a PMI-1 spawn.
    Line(Vec<u8>),
    /// The body of a frame.
    Body(Vec<u8>),
    /// An invalid header. Nothing after it can be read.
    NoFrame,
}

/// A reader of one direction of a connection. On a PMI-2 connection, a message that begins with `cmd=` is a line, because no frame begins
/// with these bytes, and the first exchange consists of lines.
#[derive(Debug, Clone)]
pub(crate) struct MessageReader {
    framing: Framing,
    rest: Vec<u8>,
    lost: bool,
}

impl MessageReader {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, rest: Vec::new(), lost: false }
    }

    /// Reads bytes, and returns the messages that are now complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<WireMessage> {
        if self.lost {
            return vec![WireMessage::NoFrame];
        }
        self.rest.extend_from_slice(bytes);
        let mut all = Vec::new();
        let mut at = 0;
        loop {
            let rest = &self.rest[at..];
            if self.framing == Framing::Lines || rest.starts_with(b"cmd=") {
                let Some(length) = line_length(rest) else { break };
                all.push(WireMessage::Line(rest[..length].to_vec()));
                at += length + 1;
                continue;
            }
            let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { break };
            let Some(length) = frame_length(*header) else {
                (self.lost, at) = (true, self.rest.len());
                all.push(WireMessage::NoFrame);
                break;
            };
            let Some(body) = body.get(..length) else { break };
            all.push(WireMessage::Body(body.to_vec()));
            at += HEADER + length;
        }
        self.rest.drain(..at);
        all
    }

    /// Returns whether a message has begun but is not complete.
    pub(crate) fn is_partial(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// Returns the length of the first line without its newline, or `None` if the line is incomplete. All lines of a program in a spawn count
/// as one line, which ends with `endcmd` or before the next message.
fn line_length(bytes: &[u8]) -> Option<usize> {
    let mut end = memchr::memchr(b'\n', bytes)?;
    if !bytes.starts_with(b"mcmd=") {
        return Some(end);
    }
    loop {
        let rest = &bytes[end + 1..];
        if rest.starts_with(b"cmd=") || rest.starts_with(b"mcmd=") {
            return Some(end);
        }
        let length = memchr::memchr(b'\n', rest)?;
        end += 1 + length;
        if rest[..length] == *b"endcmd" {
            return Some(end);
        }
    }
}

/// Returns the operation that a request names, and whether the request is complete.
pub(crate) fn request(framing: Framing, text: &[u8]) -> (Option<Op>, bool) {
    request_of(&Decoded::new(Direction::ToServer, framing, text))
}

/// Returns the operation that a request names, and whether the request is complete.
pub(crate) fn request_of(message: &Decoded<'_>) -> (Option<Op>, bool) {
    let text = message.text;
    let (name, is_complete) = match message.framing {
        Framing::Lines if text.starts_with(b"mcmd=spawn") => (Some(&b"spawn"[..]), true),
        Framing::Lines => (message.command(), message.is_well_formed()),
        Framing::Frames => {
            // Even a body that is not a series of tuples may have a command.
            let name = text.strip_prefix(b"cmd=").and_then(|rest| rest.split(|b| *b == b';').next());
            (name, message.is_well_formed() && !message.is_request_part())
        }
    };
    (name.and_then(|name| Op::of_request(message.framing, name)), is_complete)
}

/// Returns whether a request enters the barrier of all ranks, given its operation and whether it is complete.
pub(crate) fn enters_barrier(message: &Decoded<'_>, (op, is_complete): (Option<Op>, bool)) -> bool {
    is_complete && op.is_some_and(|op| op.is(&["barrier"])) && message.value("group").is_none()
}

/// Parses lines as a PMI-1 spawn request. Returns `None` unless the lines are exactly one complete request.
pub(crate) fn whole_spawn(lines: &[Template]) -> Option<SpawnRequest> {
    let mut collector = SpawnCollector::new(SpawnLimits::default());
    let (last, before) = lines.split_last()?;
    for line in before {
        if collector.push_line(&bytes_of(line)).ok()?.is_some() {
            return None;
        }
    }
    collector.push_line(&bytes_of(last)).ok()?
}

pub(crate) struct ParsedResponse<'a> {
    pub(crate) op: Op,
    message: Decoded<'a>,
}

impl<'a> ParsedResponse<'a> {
    /// Parses a response. Returns `None` if it is invalid.
    pub(crate) fn read(framing: Framing, text: &'a [u8]) -> Option<Self> {
        let message = Decoded::new(Direction::FromServer, framing, text);
        let row = message.exchange().filter(|_| message.is_well_formed())?;
        let op = Op::of_request(framing, row.request.as_bytes())?;
        Some(Self { op, message })
    }

    pub(crate) fn is_success(&self) -> bool {
        self.message.is_success()
    }

    /// Returns whether the response reports success. A response whose flag reports a missing key or name does not count as success.
    pub(crate) fn is_found(&self) -> bool {
        self.message.outcome() == Some(ResponseOutcome::Success)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        self.message.value(key)
    }

    /// Returns the fields of the operation that the response contains.
    pub(crate) fn fields_of_operation(&self) -> impl Iterator<Item = &'static Field> {
        let results = protocol::without_extensions(self.op.exchange().results);
        results.filter(|field| !field.numbered && self.get(field.key).is_some())
    }

    /// Returns whether the response lacks a field that a successful response must have.
    pub(crate) fn lacks_field(&self) -> bool {
        let needed = |field: &&Field| match self.op.framing() {
            Framing::Lines => true,
            Framing::Frames => !field.optional || field.name == "value" && self.is_found(),
        };
        let results = protocol::without_extensions(self.op.exchange().results);
        results.filter(needed).any(|field| self.get(field.key).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_depend_on_chunk_sizes() {
        let line = |text: &[u8]| WireMessage::Line(text.to_vec());
        let frames: &[u8] = b"cmd=init pmi_version=2\n    13cmd=finalize;000000    -1cmd=finalize;";
        let of_frames = vec![
            line(b"cmd=init pmi_version=2"),
            WireMessage::Body(b"cmd=finalize;".to_vec()),
            WireMessage::Body(Vec::new()),
            WireMessage::NoFrame,
        ];
        let lines: &[u8] = b"hello\nmcmd=spawn\nnprocs=1\nendcmd\nmcmd=spawn\ncmd=x\n";
        let of_lines = [&b"hello"[..], b"mcmd=spawn\nnprocs=1\nendcmd", b"mcmd=spawn", b"cmd=x"].map(line);
        for (framing, text, expected) in
            [(Framing::Frames, frames, of_frames), (Framing::Lines, lines, of_lines.into())]
        {
            for size in 1..text.len() {
                let mut reader = MessageReader::new(framing);
                let mut all: Vec<WireMessage> =
                    text.chunks(size).flat_map(|chunk| reader.push(chunk)).collect();
                // After an invalid header, each chunk yields the same error.
                all.dedup();
                assert_eq!(all, expected, "{size}");
                assert!(!reader.is_partial());
            }
        }
    }

    #[test]
    fn detects_success_response_that_lacks_a_field() {
        for (framing, text, expected) in [
            (Framing::Lines, "cmd=get_result rc=0 value=a b", false),
            (Framing::Lines, "cmd=get_result rc=0", true),
            (Framing::Lines, "cmd=barrier_out rc=0", false),
            (Framing::Frames, "cmd=kvs-get-response;rc=0;found=TRUE;", true),
            (Framing::Frames, "cmd=kvs-get-response;rc=0;found=FALSE;", false),
            (Framing::Frames, "cmd=job-getid-response;rc=0;", true),
        ] {
            let answered = ParsedResponse::read(framing, text.as_bytes()).unwrap();
            assert_eq!(answered.lacks_field(), expected, "{text}");
        }
    }
}
