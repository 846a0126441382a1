//! From a byte stream to lines: RFC 13, "Wire Protocol", has every message end with a newline.

use memchr::{memchr, memrchr};
use thiserror::Error;

/// A line was longer than the framer keeps; it is dropped up to its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a line is longer than {limit} bytes")]
pub struct Overlong {
    /// The longest line the framer keeps, in bytes, newline included.
    pub limit: usize,
}

/// Cuts a byte stream into newline-terminated lines, however it was fragmented.
///
/// Take lines until there is none before pushing again; then the framer never holds more than the longest line
/// plus the chunk pushed last, whatever the peer sends.
#[derive(Debug, Clone)]
pub struct LineFramer {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// No newline lies between `start` and here, so that a line arriving byte by byte is searched only once.
    searched: usize,
    /// The rest of a line already reported as too long is still arriving.
    skipping: bool,
    limit: usize,
}

impl LineFramer {
    /// A framer that keeps lines of up to `max_line` bytes, newline included (at least 1).
    pub fn new(max_line: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, searched: 0, skipping: false, limit: max_line.max(1) }
    }

    /// Appends bytes as they were read.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line without its newline, or `None` until more bytes are pushed.
    ///
    /// # Errors
    ///
    /// [`Overlong`], once for each line that is too long; what follows that line is read as usual.
    pub fn next_line(&mut self) -> Option<Result<&[u8], Overlong>> {
        loop {
            let from = self.start;
            let Some(offset) = memchr(b'\n', &self.buffer[self.searched..]) else {
                let held = self.buffer.len() - from;
                if self.skipping {
                    self.discard();
                } else if held >= self.limit {
                    self.discard();
                    self.skipping = true;
                    return Some(Err(Overlong { limit: self.limit }));
                } else {
                    self.searched = self.buffer.len();
                }
                return None;
            };
            let end = self.searched + offset;
            self.start = end + 1;
            self.searched = self.start;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.start - from > self.limit {
                return Some(Err(Overlong { limit: self.limit }));
            }
            return Some(Ok(&self.buffer[from..end]));
        }
    }

    /// The bytes after the last newline, empty while an over-long line is being dropped.
    ///
    /// At the end of a connection anything here is a message that was cut off.
    pub fn partial(&self) -> &[u8] {
        let rest = &self.buffer[self.start..];
        match memrchr(b'\n', rest) {
            Some(newline) => &rest[newline + 1..],
            None if self.skipping => &[],
            None => rest,
        }
    }

    fn discard(&mut self) {
        self.buffer.clear();
        self.start = 0;
        self.searched = 0;
    }
}
