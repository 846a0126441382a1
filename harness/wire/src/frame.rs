//! Splits a byte stream into messages. In PMI-1, the messages are lines: RFC 13 ("Wire Protocol") requires every message to end with a
//! newline. In PMI-2, the messages are frames: a six-byte length and a body of that length.

use memchr::{memchr, memrchr};
use thiserror::Error;

use crate::protocol::Framing;

/// Length of a frame's header in bytes. The header contains the length of the body in decimal digits.
pub const HEADER: usize = 6;

/// The error for a message longer than the limit. The whole message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message is longer than {limit} bytes")]
pub struct Overlong {
    /// The maximum length of a message in bytes, including the newline of a line but not the header of a frame.
    pub limit: usize,
}

/// An error in the header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The frame is too long.
    #[error(transparent)]
    Overlong(#[from] Overlong),
    /// The header is not a length, so the beginning of the next frame is unknown. The error is reported once, and no later input is read.
    #[error("invalid frame length \"{}\"", header.escape_ascii())]
    Header {
        /// The six bytes found where the header should be.
        header: [u8; HEADER],
    },
}

/// Parses the length in a frame's header. Accepts leading zeros, and spaces before or after the digits, because implementations differ. The
/// draft requires spaces before the digits.
pub fn frame_length(header: [u8; HEADER]) -> Option<usize> {
    let digits = header.trim_ascii();
    let spaced = header.iter().any(|b| b.is_ascii_whitespace() && *b != b' ');
    if spaced || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |n, digit| n * 10 + usize::from(digit - b'0')))
}

/// Returns the header for a body of `length` bytes in the draft's form, or `None` if the length needs more than six digits.
pub fn frame_header(length: usize) -> Option<[u8; HEADER]> {
    format!("{length:>6}").into_bytes().try_into().ok()
}

/// Splits a byte stream into messages, regardless of the chunks in which it arrives.
///
/// Read all complete messages before each push. The framer then never stores more than the longest allowed message and the last chunk.
#[derive(Debug, Clone)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Offset of the first byte that has not been read.
    start: usize,
    /// Offset up to which the buffer has been searched for a newline. Storing this offset avoids repeated searches of a line that arrives
    /// byte by byte.
    searched: usize,
    /// True while the rest of an overlong line is being dropped.
    skipping: bool,
    /// Number of bytes of an overlong frame that are still to be dropped; `usize::MAX` if the end of the frame is unknown.
    bytes_to_skip: usize,
    limit: usize,
}

impl Framer {
    /// Creates a framer for messages of up to `max_line` bytes (at least 1), including the newline of a line.
    pub fn new(max_line: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            skipping: false,
            bytes_to_skip: 0,
            limit: max_line.max(1),
        }
    }

    /// Appends received bytes.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete line without its newline, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns an error once for each line that is too long. The next line is read as usual.
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

    /// Returns the body of the next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame is too long or its header is invalid.
    pub fn next_frame(&mut self) -> Option<Result<&[u8], FrameError>> {
        let skipped = self.bytes_to_skip.min(self.buffer.len() - self.start);
        self.start += skipped;
        self.searched = self.start;
        if self.bytes_to_skip != usize::MAX {
            self.bytes_to_skip -= skipped;
        }
        let header: [u8; HEADER] = *self.buffer[self.start..].first_chunk()?;
        let Some(length) = frame_length(header) else {
            self.bytes_to_skip = usize::MAX;
            return Some(Err(FrameError::Header { header }));
        };
        if length > self.limit {
            self.bytes_to_skip = HEADER + length;
            return Some(Err(Overlong { limit: self.limit }.into()));
        }
        let body = self.start + HEADER;
        let end = body + length;
        if end > self.buffer.len() {
            return None;
        }
        self.start = end;
        self.searched = end;
        Some(Ok(&self.buffer[body..end]))
    }

    /// Drops the rest of an overlong line after it has arrived, so that the next message can be examined.
    pub(crate) fn drop_overlong_line(&mut self) {
        if self.skipping
            && let Some(offset) = memchr(b'\n', &self.buffer[self.searched..])
        {
            self.start = self.searched + offset + 1;
            self.searched = self.start;
            self.skipping = false;
        }
    }

    /// Returns whether the buffer is empty and a line of this length, including the newline, is within the limit.
    pub(crate) fn takes_line(&self, length: usize) -> bool {
        self.start == self.buffer.len() && !self.skipping && self.bytes_to_skip == 0 && length <= self.limit
    }

    /// Returns the bytes that have not been read, except for those to be dropped.
    pub(crate) fn rest(&self) -> &[u8] {
        if self.skipping || self.bytes_to_skip > 0 { &[] } else { &self.buffer[self.start..] }
    }

    /// Returns the bytes of an incomplete message in this framing.
    pub fn partial_in(&self, framing: Framing) -> &[u8] {
        match framing {
            Framing::Lines => self.partial(),
            Framing::Frames => self.partial_frame(),
        }
    }

    /// Returns the bytes of an incomplete frame, including its header.
    pub fn partial_frame(&self) -> &[u8] {
        self.rest()
    }

    /// Returns the bytes after the last newline. The result is empty while an overlong line is being dropped.
    ///
    /// At the end of a connection, these bytes are an incomplete message.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns owned copies of all available lines.
    fn drain(framer: &mut Framer) -> Vec<Result<Vec<u8>, Overlong>> {
        std::iter::from_fn(|| framer.next_line().map(|line| line.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn line_limit_includes_the_newline() {
        let mut framer = Framer::new(4);
        framer.push(b"abc\nabcd\n");
        assert_eq!(drain(&mut framer), [Ok(b"abc".to_vec()), Err(Overlong { limit: 4 })]);
    }

    #[test]
    fn reports_overlong_line_once_before_its_end() {
        let mut framer = Framer::new(4);
        framer.push(b"abcd");
        assert_eq!(drain(&mut framer), [Err(Overlong { limit: 4 })]);
        for _ in 0..100 {
            framer.push(b"eeeeeeee");
            assert_eq!(framer.partial(), b"");
            assert_eq!(drain(&mut framer), []);
            assert_eq!(framer.buffer.len(), 0);
        }
        framer.push(b"e\nok\nr");
        assert_eq!(framer.partial(), b"r");
        assert_eq!(drain(&mut framer), [Ok(b"ok".to_vec())]);
        assert_eq!(framer.partial(), b"r");
    }

    #[test]
    fn flood_without_newline_uses_bounded_memory() {
        let mut framer = Framer::new(1 << 10);
        let mut reports = 0;
        for _ in 0..10_000 {
            framer.push(&[b'x'; 4096]);
            assert!(framer.buffer.len() <= (1 << 10) + 4096);
            reports += drain(&mut framer).len();
        }
        assert_eq!(reports, 1);
    }

    #[test]
    fn line_limit_of_zero_accepts_empty_lines() {
        let mut framer = Framer::new(0);
        framer.push(b"\na\n\n");
        assert_eq!(drain(&mut framer), [Ok(vec![]), Err(Overlong { limit: 1 }), Ok(vec![])]);
    }

    #[test]
    fn partial_returns_the_text_after_the_last_newline() {
        let mut framer = Framer::new(64);
        framer.push(b"a\nb\ncd");
        assert_eq!(framer.partial(), b"cd");
        framer.push(b"e");
        assert_eq!(framer.next_line(), Some(Ok(&b"a"[..])));
        assert_eq!(framer.partial(), b"cde");
    }
}
