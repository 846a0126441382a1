//! Target: the framer of lines and the parsers of messages, with arbitrary bytes.
//!
//! Input: a byte that selects the maximum length of a line and the reading of values, a byte that selects how the stream is split, and the
//! stream.

use pmi_wire::{Decoded, Direction, Framer, Framing, Message, MessageError, Operation, ValueReading};

use crate::spell::known_fields;
use crate::{counters, planted};

const LIMITS: [usize; 8] = [64 << 10, 1, 2, 8, 16, 64, 256, 4096];
const READINGS: [ValueReading; 2] = [ValueReading::ToEndOfLine, ValueReading::ToBlank];

/// Checks that the framer returns the lines between newlines, regardless of how the stream is split. A printed message must be parsed as
/// the same message.
pub fn run(data: &[u8]) {
    let [limit, cuts, stream @ ..] = data else { return };
    let reading = READINGS[usize::from(limit >> 7)];
    let limit = LIMITS[usize::from(limit % 8)];
    let mut framer = Framer::new(limit);
    let mut expected = ExpectedLines { stream, at: 0, limit };
    let mut out = Vec::with_capacity(512);
    let (mut pushed, mut cut) = (0, *cuts);
    while pushed < stream.len() {
        let length = if *cuts == 0 { stream.len() } else { usize::from(cut % 32) + 1 };
        cut = cut.wrapping_mul(5).wrapping_add(*cuts | 1);
        let chunk = &stream[pushed..(pushed + length).min(stream.len())];
        pushed += chunk.len();
        framer.push(if planted::is("newline-at-a-seam-lost") && chunk.len() == 7 && chunk[0] == b'\n' {
            &chunk[1..]
        } else {
            chunk
        });
        while let Some(line) = framer.next_line() {
            let line = line.ok();
            assert_eq!(line, expected.next(pushed), "wrong next line in a stream cut at {pushed}");
            if let Some(line) = line {
                check_line(line, reading, &mut out);
            }
        }
        let rest = &stream[..pushed];
        let rest = &rest[rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)..];
        assert_eq!(
            framer.partial(),
            if rest.len() < limit { rest } else { b"" },
            "wrong bytes after the last newline"
        );
    }
    assert!(expected.is_done(), "the framer did not return a complete line");
}

/// The expected lines of a stream: the bytes between newlines, or `None` for a line that is too long.
struct ExpectedLines<'a> {
    stream: &'a [u8],
    at: usize,
    limit: usize,
}

impl<'a> ExpectedLines<'a> {
    /// Returns the next line. The framer has received the first `pushed` bytes.
    fn next(&mut self, pushed: usize) -> Option<&'a [u8]> {
        let rest = &self.stream[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        self.at += length + 1;
        if length < self.limit {
            assert!(self.at <= pushed, "the framer returned a line before its newline had arrived");
            Some(&rest[..length])
        } else {
            None
        }
    }

    /// Returns whether only the beginning of a line is left.
    fn is_done(&self) -> bool {
        let rest = self.stream.get(self.at..).unwrap_or_default();
        rest.len() < self.limit && !rest.contains(&b'\n')
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Checks the parsers on a line. `out` is a buffer for printing.
fn check_line(line: &[u8], reading: ValueReading, out: &mut Vec<u8>) {
    let bad = line.iter().position(|byte| !(byte.is_ascii_graphic() || is_blank(*byte)));
    match Message::parse(line, reading) {
        Ok(message) => {
            assert_eq!(bad, None, "the parser accepted an invalid byte");
            check_tuples(line, &message, reading);
            for direction in [Direction::ToServer, Direction::FromServer] {
                let decoded = Decoded::line(direction, line, reading);
                if let Some(operation) = decoded.operation() {
                    understood(operation, direction == Direction::ToServer, reading, line);
                    check_print(&decoded, reading, out);
                }
            }
        }
        Err(MessageError::BadByte { at, byte }) => {
            assert_eq!((Some(at), byte), (bad, line[at]), "wrong position of the first invalid byte");
        }
        Err(MessageError::Empty) => assert!(bad.is_none() && line.iter().all(|byte| is_blank(*byte))),
        Err(MessageError::Malformed { at }) => {
            assert_eq!(bad, None);
            let token = line[at..].split(|byte| is_blank(*byte)).next().unwrap_or_default();
            assert!(at == 0 || is_blank(line[at - 1]), "the position of the error is not after a blank");
            assert!(!token.contains(&b'=') || token[0] == b'=', "a tuple was not recognized");
        }
    }
}

/// Checks that the tuples cover the line except for spaces and tabs. Unless values extend to the end of the line, no value may contain a
/// space or tab.
fn check_tuples(line: &[u8], message: &Message<'_>, reading: ValueReading) {
    let mut rest = line;
    for tuple in message.tuples() {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blanks..];
        let (key, tail) = rest.split_at(tuple.key.len());
        assert_eq!(key, tuple.key);
        let (equals, tail) = tail.split_first().unwrap_or((&0, b""));
        assert!(*equals == b'=' && !key.is_empty() && !key.contains(&b'='));
        let (value, tail) = tail.split_at(tuple.value.len());
        assert_eq!(value, tuple.value);
        assert!(tail.first().is_none_or(|byte| is_blank(*byte)), "no blank follows the value");
        assert!(reading == ValueReading::ToEndOfLine || !value.iter().any(|byte| is_blank(*byte)));
        rest = tail;
    }
    assert!(rest.iter().all(|byte| is_blank(*byte)), "the tuples do not cover the line");
}

/// Counts the kind of message and its ending as coverage. With code coverage alone, the corpus would contain no message of most kinds,
/// since a shorter line of a different kind covers the same code.
fn understood(operation: Operation, request: bool, reading: ValueReading, line: &[u8]) {
    let end = match line.last() {
        Some(b' ') => 0,
        Some(b'\t') => 1,
        Some(b'=') => 2,
        _ => 3,
    };
    let reading = u32::from(reading == ValueReading::ToBlank);
    counters::seen(operation as u32 * 16 + u32::from(request) * 8 + reading * 4 + end);
}

/// Checks that a message has the same fields after it is printed and parsed again.
fn check_print(message: &Decoded<'_>, reading: ValueReading, out: &mut Vec<u8>) {
    if loses_in_print(message) {
        return;
    }
    let fields = known_fields(message);
    out.clear();
    fields.iter().for_each(|(key, value)| Framing::Lines.write_tuple(out, key, value));
    if planted::is("value-loses-last-tab") && message.direction == Direction::ToServer && out.ends_with(b"\t")
    {
        out.pop();
    }
    assert!(!out.contains(&b'\n'), "the printed message has several lines");
    let again = Decoded::line(message.direction, out, reading);
    assert_eq!(again.error(), None, "{}", out.escape_ascii());
    assert_eq!(known_fields(&again), fields, "printing changes the message to {}", out.escape_ascii());
}

/// Returns whether printing changes the response. The value of a get comes last, because it extends to the end of the line. A `msg` before
/// the value loses its trailing spaces, and a part of the `msg` that looks like a tuple of the response becomes a tuple.
fn loses_in_print(message: &Decoded<'_>) -> bool {
    message.direction == Direction::FromServer
        && message
            .raw("msg")
            .is_some_and(|msg| msg.contains(&b'=') || msg.last().is_some_and(|byte| is_blank(*byte)))
}
