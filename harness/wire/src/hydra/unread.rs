//! Bytes received from a proxy that have not been decoded yet.

/// A buffer of received bytes that keeps track of how many have been read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    bytes: Vec<u8>,
    /// The number of bytes that have been read.
    at: usize,
}

impl Unread {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Marks the next `bytes` bytes as read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.at += bytes;
    }
}
