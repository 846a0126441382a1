//! Writes on their way to become messages: lines in PMI-1, in PMI-2 frames behind the line of the first exchange.

use pmi_wire::{HEADER, frame_length};

use crate::ast::{Dialect, WriteMode};

/// What a message is before anything in it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A line, without its end.
    Line,
    /// The body of a frame.
    Frame,
    /// Something else, by the word that a table has for it.
    Malformed(&'static str),
}

/// A message, and how it was written.
#[derive(Debug)]
pub(super) struct WrittenMessage {
    pub(super) form: Form,
    pub(super) text: Vec<u8>,
    pub(super) framing: Vec<&'static str>,
}

/// What one side of a connection has written and what is no whole message yet.
#[derive(Debug, Default)]
pub(super) struct Stream {
    partial: Vec<u8>,
    /// Where in it a write has ended.
    cuts: Vec<usize>,
    /// Where the next frame begins can no longer be told.
    lost: bool,
}

impl Stream {
    /// The messages that are complete with one more write.
    pub(super) fn write(&mut self, dialect: Dialect, mode: WriteMode, write: &[u8]) -> Vec<WrittenMessage> {
        if self.lost {
            return Vec::new();
        }
        self.partial.extend_from_slice(write);
        self.cuts.push(self.partial.len());
        let mut whole = Vec::new();
        while let Some(mut message) = self.next(dialect) {
            if mode.bytewise {
                message.framing.retain(|word| word.starts_with("length-"));
                message.framing.push("bytewise");
            }
            whole.push(message);
        }
        whole
    }

    /// What a message is that ends before it is whole.
    pub(super) fn cut_off(&self, dialect: Dialect) -> Option<&'static str> {
        Some(match (dialect, self.partial.len()) {
            (_, 0) => return None,
            (Dialect::Pmi1, _) => "unfinished",
            (Dialect::Pmi2, 1..HEADER) => "cut-in-header",
            (Dialect::Pmi2, HEADER) => "cut-behind-header",
            (Dialect::Pmi2, _) => "cut-in-body",
        })
    }

    /// Whether a frame has begun whose length is more than its tuples have.
    pub(super) fn is_too_long(&self) -> bool {
        self.partial.len() > HEADER && self.partial.ends_with(b";")
    }

    fn next(&mut self, dialect: Dialect) -> Option<WrittenMessage> {
        let newline = self.partial.iter().position(|b| *b == b'\n');
        let frames = dialect == Dialect::Pmi2;
        if frames && self.partial.first().is_some_and(|b| b.is_ascii_digit() || b" +-".contains(b)) {
            return self.frame();
        }
        match newline {
            Some(at) => {
                let (text, cuts) = self.take(at + 1);
                let mut framing = Vec::new();
                framing.extend(cuts.contains(&at).then_some("newline-apart"));
                framing.extend(cuts.iter().any(|cut| *cut != at).then_some("split"));
                Some(WrittenMessage { form: Form::Line, text: text[..at].to_vec(), framing })
            }
            None if frames && self.partial.len() >= HEADER && !self.partial.starts_with(b"cmd=") => {
                Some(self.lose("length-not-a-number"))
            }
            None => None,
        }
    }

    fn frame(&mut self) -> Option<WrittenMessage> {
        let header: [u8; HEADER] = self.partial.get(..HEADER)?.try_into().ok()?;
        let Some(length) = frame_length(header) else {
            return Some(self.lose(match header.trim_ascii() {
                [] => "length-blank",
                [b'-', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => "length-negative",
                [b'+', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => "length-with-plus",
                _ => "length-not-a-number",
            }));
        };
        if length == 0 {
            return Some(self.lose("length-zero"));
        }
        let end = HEADER + length;
        let body = self.partial.get(HEADER..end)?;
        if !body.ends_with(b";") && self.partial.len() > end {
            return Some(self.lose("length-short"));
        }
        let (text, cuts) = self.take(end);
        let within = |range: std::ops::Range<usize>| cuts.iter().any(|cut| range.contains(cut));
        let mut framing = Vec::new();
        framing.extend((header[HEADER - 1] == b' ').then_some("length-left"));
        framing.extend((header[0] == b'0').then_some("length-zeros"));
        framing.extend(within(1..HEADER).then_some("header-split"));
        framing.extend(within(HEADER..HEADER + 1).then_some("header-apart"));
        framing.extend(within(HEADER + 1..end - 1).then_some("split"));
        framing.extend(within(end - 1..end).then_some("terminator-apart"));
        Some(WrittenMessage { form: Form::Frame, text: text[HEADER..].to_vec(), framing })
    }

    /// The bytes before a place, and where writes have ended in them.
    fn take(&mut self, end: usize) -> (Vec<u8>, Vec<usize>) {
        let cuts = self.cuts.iter().copied().filter(|cut| *cut < end).collect();
        self.cuts = self.cuts.iter().filter(|cut| **cut > end).map(|cut| cut - end).collect();
        (self.partial.drain(..end).collect(), cuts)
    }

    /// Everything from here on is part of what is no message.
    fn lose(&mut self, word: &'static str) -> WrittenMessage {
        self.lost = true;
        let text = std::mem::take(&mut self.partial);
        WrittenMessage { form: Form::Malformed(word), text, framing: Vec::new() }
    }
}
