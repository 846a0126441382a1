//! Reads the requests of a library from a connection, and compares them with the expected requests.

use pmi_wire::protocol::Exchange;
use pmi_wire::{Decoded, Framing, FramingError, Operation};

use crate::expectation::{Captures, Mismatch, Pattern};

/// Maximum number of lines in a spawn request.
const BLOCK_LIMIT: usize = 10_000;

/// A request: a line, a frame, or the lines of a spawn request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryRequest {
    framing: Framing,
    /// The row of the protocol table, if the request is well formed.
    pub(super) exchange: Option<&'static Exchange>,
    lines: Vec<Vec<u8>>,
}

impl LibraryRequest {
    /// Returns the bytes of the request.
    pub fn text(&self) -> Vec<u8> {
        // `complete` cannot fail here: the length of a frame that was read fits into six digits.
        self.framing.complete(self.lines.join(&b'\n')).unwrap_or_default()
    }

    /// Returns whether the request is an init: `cmd=init` or `cmd=fullinit`, even if the rest is malformed.
    pub fn is_init(&self) -> bool {
        let words: [&[u8]; 2] = [b"cmd=init", b"cmd=fullinit"];
        self.lines.first().is_some_and(|line| words.iter().any(|word| line.starts_with(word)))
    }

    fn is_spawn(&self) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with(b"mcmd="))
    }

    pub(super) fn shown(&self) -> String {
        let text = self.lines.iter().map(|l| l.escape_ascii().to_string()).collect::<Vec<_>>().join("; ");
        format!("\"{text}\"")
    }

    /// Compares the request with patterns, and returns the captures. The lines of a spawn request must match the patterns in order, but
    /// there may be other lines between them.
    pub fn matches(&self, patterns: &[Pattern]) -> Option<Captures> {
        let mut lines = self.lines.iter();
        let mut captures = Captures::new();
        for pattern in patterns {
            captures = lines.find_map(|line| {
                let mut captures = captures.clone();
                self.line_matches(pattern, line, &mut captures).ok().map(|()| captures)
            })?;
        }
        Some(captures)
    }

    fn line_matches(&self, pattern: &Pattern, line: &[u8], captures: &mut Captures) -> Result<(), Mismatch> {
        if !self.is_spawn() {
            captures.extend(pattern.matches(line, self.framing)?);
            return Ok(());
        }
        // A line of a spawn request is a word or a single tuple. The value of a tuple extends to the end of the line.
        let split = memchr::memchr(b'=', line).map(|at| (&line[..at], &line[at + 1..]));
        let (name, value) = split.unwrap_or((b"", line));
        match pattern.fields.first() {
            Some((key, matcher)) if key.as_bytes() == name => {
                matcher.matches(self.framing, key, Some(value), captures)
            }
            _ => Err(Mismatch("another line".into())),
        }
    }
}

/// Assembles requests from the messages of a process.
#[derive(Debug, Default)]
pub(super) struct RequestAssembler {
    /// Lines of an incomplete spawn request.
    block: Vec<Vec<u8>>,
}

impl RequestAssembler {
    /// Returns the request that a message completes. A framing error counts as an empty request.
    pub(super) fn next(&mut self, message: &Result<Decoded<'_>, FramingError>) -> Option<LibraryRequest> {
        let message = message.as_ref().ok();
        let framing = message.map(|message| message.framing).unwrap_or_default();
        let text = message.map(|message| message.text.to_vec()).unwrap_or_default();
        let spawn = !self.block.is_empty() || text.starts_with(b"mcmd=spawn");
        if framing == Framing::Lines && spawn && self.block.len() < BLOCK_LIMIT {
            let last = text == b"endcmd";
            self.block.push(text);
            let is_complete = last && spawn_counts(&self.block).is_none_or(|(total, so_far)| so_far >= total);
            let exchange = Some(Operation::Spawn.exchange());
            return is_complete.then(|| LibraryRequest {
                framing,
                exchange,
                lines: std::mem::take(&mut self.block),
            });
        }
        let well_formed = message.filter(|message| message.is_well_formed());
        let exchange = match text.starts_with(b"mcmd=") {
            true => Some(Operation::Spawn.exchange()),
            false => well_formed.and_then(|message| message.exchange()),
        };
        Some(LibraryRequest { framing, exchange, lines: vec![text] })
    }
}

/// Returns the last `totspawns` and `spawnssofar` of a spawn request.
fn spawn_counts(block: &[Vec<u8>]) -> Option<(u64, u64)> {
    let last = |key: &str| {
        let found = block.iter().rev().find_map(|line| line.strip_prefix(key.as_bytes()))?;
        std::str::from_utf8(found).ok()?.parse().ok()
    };
    Some((last("totspawns=")?, last("spawnssofar=")?))
}
