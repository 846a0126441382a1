//! Mutations of the bytes sent in one direction of a connection, for projects that fuzz their own parsers. The mutations are the same as in
//! campaigns.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Encoding, Template};
use pmi_wire::{Framing, HEADER};

use super::case_from_bytes;
use crate::generate::server::scope::{DialectChoice, SessionFeatures};
use crate::mutate::values::requests;
use crate::mutate::{Mutation, contents};
use crate::session::case::Case;
use crate::session::decisions::{draw_bytes, percent, pick};
use crate::session::fields::{WriteContent, text, tuples_of};
use crate::session::pieces::written_bytes;
use crate::session::statement::ServerStep;

/// The mutations that can change a message.
const MESSAGE_MUTATIONS: &[Mutation] = &[
    Mutation::Token,
    Mutation::Separator,
    Mutation::Length,
    Mutation::Number,
    Mutation::Count,
    Mutation::Command,
    Mutation::Bytes,
    Mutation::Junk,
    Mutation::Frame,
];

/// A part of a byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MessagePart {
    /// A line, including its newline if it has one.
    Line(Vec<u8>),
    /// The body of a frame.
    Frame(Vec<u8>),
    /// Bytes that are neither a line nor a frame.
    OtherBytes(Vec<u8>),
}

impl MessagePart {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Line(bytes) | Self::OtherBytes(bytes) => bytes.clone(),
            Self::Frame(body) => written_bytes(Encoding::Body, &[text(body.clone())], false),
        }
    }
}

/// Mutates a byte stream of a dialect. The result depends only on the input and the seed, and has at most `most` bytes.
pub fn mutated(bytes: &[u8], dialect: Dialect, seed: u64, most: usize) -> Vec<u8> {
    let decisions = draw_bytes(seed, bytes.len() as u64);
    let mut u = Unstructured::new(&decisions);
    // Draws never fail: after the last decision, the first choice is taken.
    let mut all = change(bytes, dialect, &mut u).unwrap_or_else(|_| bytes.to_vec());
    all.truncate(most);
    all
}

/// Returns the bytes that a process sends to a server in a random session.
pub fn draw_stream(dialect: Dialect, seed: u64) -> Vec<u8> {
    let scope =
        SessionFeatures { dialects: DialectChoice::One(dialect), ranks: 2, ..SessionFeatures::default() };
    sent_bytes(&case_from_bytes(&scope, &draw_bytes(seed, 0)))
}

/// Returns the bytes that the first process sends.
fn sent_bytes(case: &Case) -> Vec<u8> {
    let version = match case.scenario.dialect.framing() {
        Framing::Lines => "1 pmi_subversion=1",
        Framing::Frames => "2 pmi_subversion=0",
    };
    let mut all = format!("cmd=init pmi_version={version}\n").into_bytes();
    for statement in &case.scenario.body {
        if let Some(ServerStep::Write { rank: 0, encoding, lines, partial }) = ServerStep::of(statement) {
            all.extend(written_bytes(encoding, lines, partial));
        }
    }
    all
}

/// Splits bytes into messages.
fn parts(bytes: &[u8], dialect: Dialect) -> Vec<MessagePart> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (part, length) = match (dialect.framing(), frame(rest)) {
            (Framing::Frames, Some(body)) => (MessagePart::Frame(body.to_vec()), HEADER + body.len()),
            _ => match memchr::memchr(b'\n', rest) {
                Some(end) => (MessagePart::Line(rest[..=end].to_vec()), end + 1),
                None => (MessagePart::OtherBytes(rest.to_vec()), rest.len()),
            },
        };
        all.push(part);
        rest = &rest[length..];
    }
    all
}

/// Returns the body of the frame at the beginning of `bytes`, or `None` if there is no complete frame.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.get(..HEADER)?.trim_ascii();
    let length: usize = std::str::from_utf8(header).ok()?.parse().ok()?;
    bytes.get(HEADER..HEADER + length)
}

fn change(bytes: &[u8], dialect: Dialect, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut parts = parts(bytes, dialect);
    for _ in 0..u.int_in_range(1..=3)? {
        let other = |u: &mut Unstructured<'_>| -> Result<Vec<MessagePart>> {
            Ok(self::parts(&draw_stream(dialect, u.arbitrary()?), dialect))
        };
        if parts.is_empty() || u.ratio(1, 40)? {
            parts = other(u)?;
            continue;
        }
        let at = u.choose_index(parts.len())?;
        match percent(u)? {
            0..70 => parts[at] = changed(&parts[at], dialect, u)?,
            70..76 => drop(parts.remove(at)),
            76..82 => parts.insert(at, parts[at].clone()),
            82..88 => {
                let to = u.choose_index(parts.len())?;
                parts.swap(at, to);
            }
            88..94 => {
                // Insert a message from another session, but not its first message, which begins the conversation.
                let mut drawn = other(u)?;
                if drawn.len() > 1 {
                    let one = u.int_in_range(1..=drawn.len() - 1)?;
                    parts.insert(at + 1, drawn.swap_remove(one));
                }
            }
            94..97 => parts.truncate(at + 1),
            // Cut the stream off within a message.
            _ => {
                let mut half = parts[at].bytes();
                half.truncate(u.int_in_range(0..=half.len())?);
                parts.truncate(at);
                parts.push(MessagePart::OtherBytes(half));
            }
        }
    }
    Ok(parts.iter().flat_map(MessagePart::bytes).collect())
}

/// Applies a random mutation to a message.
fn changed(part: &MessagePart, dialect: Dialect, u: &mut Unstructured<'_>) -> Result<MessagePart> {
    let commands = requests(dialect.framing());
    let (encoding, message) = match part {
        MessagePart::Line(line) => {
            (Encoding::Dialect, tuples_of(Framing::Lines, line.strip_suffix(b"\n").unwrap_or(line)))
        }
        MessagePart::Frame(body) => (Encoding::Body, tuples_of(Framing::Frames, body)),
        MessagePart::OtherBytes(_) => (Encoding::Bytes, Vec::new()),
    };
    if message.is_empty() {
        let mut line = text(part.bytes());
        contents(&mut line, u)?;
        let mut draft = WriteContent::Lines(Encoding::Bytes, vec![line]);
        Mutation::Bytes.change(&mut draft, commands, u)?;
        return Ok(MessagePart::OtherBytes(of(&draft)));
    }
    let mut draft = WriteContent::Messages(encoding, vec![message]);
    if u.ratio(1, 3)? {
        let mut lines: Vec<Template> = draft.lines();
        lines.iter_mut().try_for_each(|line| contents(line, u))?;
        draft = WriteContent::Lines(encoding, lines);
    } else {
        pick(u, MESSAGE_MUTATIONS)?.change(&mut draft, commands, u)?;
    }
    Ok(MessagePart::OtherBytes(of(&draft)))
}

fn of(draft: &WriteContent) -> Vec<u8> {
    written_bytes(draft.encoding(), &draft.lines(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_bytes_into_messages() {
        let bytes = b"cmd=init pmi_version=2\n    10cmd=put;a=x;\n 9cmd=";
        let line = |text: &[u8]| MessagePart::Line(text.to_vec());
        let all = parts(bytes, Dialect::Pmi2);
        assert_eq!(all[..2], [line(b"cmd=init pmi_version=2\n"), MessagePart::Frame(b"cmd=put;a=".to_vec())]);
        assert_eq!(all.iter().flat_map(MessagePart::bytes).collect::<Vec<u8>>(), bytes);
        assert_eq!(parts(b"a\nb", Dialect::Pmi1), [line(b"a\n"), MessagePart::OtherBytes(b"b".to_vec())]);
    }

    #[test]
    fn mutation_is_deterministic_and_respects_size_limit() {
        for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
            let first = draw_stream(dialect, 7);
            assert!(first.starts_with(b"cmd=init pmi_version=") && parts(&first, dialect).len() > 3);
            let (mut bytes, mut same) = (first.clone(), 0);
            for seed in 0..3000 {
                let next = mutated(&bytes, dialect, seed, 4096);
                assert_eq!(next, mutated(&bytes, dialect, seed, 4096));
                assert!(next.len() <= 4096);
                same += usize::from(next == bytes);
                // Mutate the result repeatedly, and restart from the original from time to time.
                bytes = if seed % 50 == 0 { first.clone() } else { next };
            }
            assert!(same < 600, "{same}");
            assert!(!mutated(b"", dialect, 1, 4096).is_empty());
            assert_eq!(mutated(&first, dialect, 1, 0), b"");
        }
    }
}
