//! What a library asks: the requests on a connection, and whether one is what a scenario expects.

use pmi_wire::{Framer, Framing, Operation, ValueReading};

use crate::bytes::{LINE_LIMIT, SHOWN};
use crate::expectation::{Captures, Misfit, Pattern};

/// Most lines of one spawn request.
const BLOCK_LIMIT: usize = 10_000;

/// A request: one line, or the lines of a spawn request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    lines: Vec<Vec<u8>>,
}

impl Request {
    /// All of it, as it was written.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.lines.join(&b'\n');
        text.push(b'\n');
        text
    }

    /// What it asks for, if that can be read.
    pub fn operation(&self) -> Option<Operation> {
        if self.is_spawn() {
            return Some(Operation::Spawn);
        }
        pmi_wire::Request::parse(self.lines.first()?, ValueReading::ToEndOfLine).ok().map(|r| r.operation())
    }

    /// Whether it is `cmd=init`, however wrong the rest of it is.
    pub fn is_init(&self) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with(b"cmd=init"))
    }

    fn is_spawn(&self) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with(b"mcmd="))
    }

    pub(super) fn shown(&self) -> String {
        let text = self.lines.iter().map(|l| l.escape_ascii().to_string()).collect::<Vec<_>>().join("; ");
        format!("\"{}\"", &text[..text.floor_char_boundary(SHOWN)])
    }

    /// Whether it has this form, and what it captures: the lines of a spawn request in order, others of it between them.
    pub fn fits(&self, patterns: &[Pattern]) -> Option<Captures> {
        let mut lines = self.lines.iter();
        let mut captures = Captures::new();
        for pattern in patterns {
            captures = lines.find_map(|line| {
                let mut captures = captures.clone();
                self.line_fits(pattern, line, &mut captures).ok().map(|()| captures)
            })?;
        }
        Some(captures)
    }

    fn line_fits(&self, pattern: &Pattern, line: &[u8], captures: &mut Captures) -> Result<(), Misfit> {
        if !self.is_spawn() {
            captures.extend(pattern.fits(line, Framing::Lines)?);
            return Ok(());
        }
        // Of a spawn request a line is one tuple, whose value runs to its end, or a word.
        let split = memchr::memchr(b'=', line).map(|at| (&line[..at], &line[at + 1..]));
        let (name, value) = split.unwrap_or((b"", line));
        match pattern.fields.first() {
            Some((key, matcher)) if key.as_bytes() == name => matcher.fits(key, Some(value), captures),
            _ => Err(Misfit("another line".into())),
        }
    }
}

/// Cuts what comes over a connection into requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    framer: Option<Framer>,
    /// Lines of a spawn request that is not complete.
    block: Vec<Vec<u8>>,
}

impl Requests {
    /// Takes bytes in; the requests that are complete with them.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Request> {
        let framer = self.framer.get_or_insert_with(|| Framer::new(LINE_LIMIT));
        framer.push(bytes);
        let mut all = Vec::new();
        while let Some(line) = framer.next_line() {
            let line = line.unwrap_or(b"").to_vec();
            let spawn = !self.block.is_empty() || line.starts_with(b"mcmd=spawn");
            if spawn && self.block.len() < BLOCK_LIMIT {
                let last = line == b"endcmd";
                self.block.push(line);
                if last && counted(&self.block).is_none_or(|(total, so_far)| so_far >= total) {
                    all.push(Request { lines: std::mem::take(&mut self.block) });
                }
            } else {
                all.push(Request { lines: vec![line] });
            }
        }
        all
    }
}

/// `totspawns` and `spawnssofar`, as the lines of a spawn request have them last.
fn counted(block: &[Vec<u8>]) -> Option<(u64, u64)> {
    let last = |key: &str| {
        let found = block.iter().rev().find_map(|line| line.strip_prefix(key.as_bytes()))?;
        std::str::from_utf8(found).ok()?.parse().ok()
    };
    Some((last("totspawns=")?, last("spawnssofar=")?))
}
