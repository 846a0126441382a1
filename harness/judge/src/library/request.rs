//! What a library asks: the requests on a connection, and whether one is what a scenario expects.

use pmi_wire::pmi2::{self, Command, Semicolons};
use pmi_wire::{
    Body, Connection, Direction, Framed, Framing, Operation, Response, ValueReading, frame_header,
};

use crate::bytes::LINE_LIMIT;
use crate::expectation::{Captures, Misfit, Pattern};
use crate::seen::Unended;

/// Most lines of one spawn request.
const BLOCK_LIMIT: usize = 10_000;

/// A request: one line or frame, or the lines of a spawn request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    framing: Framing,
    lines: Vec<Vec<u8>>,
}

impl Request {
    /// All of it, as it was written.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.lines.join(&b'\n');
        match self.framing {
            Framing::Lines => text.push(b'\n'),
            // Every body that was read has a length that six digits can tell.
            Framing::Frames => text.splice(..0, frame_header(text.len()).unwrap_or_default()).for_each(drop),
        }
        text
    }

    /// What it asks for, if that can be read.
    pub(super) fn asked(&self) -> Option<Asked> {
        if self.is_spawn() {
            return Some(Asked::Line(Operation::Spawn));
        }
        let text = self.lines.first()?;
        Some(match self.framing {
            Framing::Lines => {
                Asked::Line(pmi_wire::Request::parse(text, ValueReading::ToEndOfLine).ok()?.operation())
            }
            Framing::Frames => Asked::Frame(pmi2::Request::parse(text, Semicolons::Doubled).ok()?.command()),
        })
    }

    /// Whether the process introduces itself by it, by `cmd=init` or `cmd=fullinit`, however wrong the rest of it is.
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
            captures.extend(pattern.fits(line, self.framing)?);
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

/// What a request asks for, or what a response answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// In a line.
    Line(Operation),
    /// In a frame of PMI-2.
    Frame(Command),
}

/// Both directions of a process's connection.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    connection: Option<Connection>,
    /// Lines of a spawn request that is not complete.
    block: Vec<Vec<u8>>,
}

impl Dialogue {
    /// Takes in what a process has sent, or what it is told.
    pub(super) fn push(&mut self, direction: Direction, bytes: &[u8]) {
        self.connection.get_or_insert_with(|| Connection::new(LINE_LIMIT)).push(direction, bytes);
    }

    /// The requests that are complete.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        let Some(connection) = &mut self.connection else { return Vec::new() };
        let mut all = Vec::new();
        while let Some(message) = connection.next(Direction::ToServer) {
            let message = message.unwrap_or(Framed { framing: Framing::Lines, text: b"" });
            let (framing, text) = (message.framing, message.text.to_vec());
            let spawn = !self.block.is_empty() || text.starts_with(b"mcmd=spawn");
            if framing == Framing::Lines && spawn && self.block.len() < BLOCK_LIMIT {
                let last = text == b"endcmd";
                self.block.push(text);
                if last && counted(&self.block).is_none_or(|(total, so_far)| so_far >= total) {
                    all.push(Request { framing, lines: std::mem::take(&mut self.block) });
                }
            } else {
                all.push(Request { framing, lines: vec![text] });
            }
        }
        all
    }

    /// What the responses that are complete answer, and the value or port that they tell; `None` for one that answers nothing.
    pub(super) fn answers(&mut self) -> Vec<Option<(Asked, Option<Vec<u8>>)>> {
        let Some(connection) = &mut self.connection else { return Vec::new() };
        let mut all = Vec::new();
        while let Some(message) = connection.next(Direction::FromServer) {
            all.push(message.ok().and_then(|message| match message.framing {
                Framing::Lines => {
                    let response = Response::parse(message.text, ValueReading::ToEndOfLine).ok()?;
                    let told = match &response.body {
                        Body::Get(Some(value)) if response.is_success() => Some(value.to_vec()),
                        _ => None,
                    };
                    Some((Asked::Line(response.operation()), told))
                }
                Framing::Frames => {
                    let response = pmi2::Response::parse(message.text, Semicolons::Doubled).ok()?;
                    let value = response.get("value").filter(|_| response.is_found() == Some(true));
                    let told =
                        value.filter(|_| response.command == Command::KvsGet).map(|value| value.to_vec());
                    Some((Asked::Frame(response.command), told))
                }
            }));
        }
        all
    }

    /// Returns the request that the process has begun before this and does not end, if any.
    pub(super) fn unended(&self, then: &str) -> Option<Unended> {
        Unended::new(self.connection.as_ref()?, Direction::ToServer, then)
    }

    /// Whether the process has been told half a message.
    pub(super) fn is_half_answered(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| !connection.partial(Direction::FromServer).is_empty())
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
