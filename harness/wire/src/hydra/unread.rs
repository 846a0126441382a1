//! What has come of a proxy and is not read yet.

/// Bytes, of which those in front have been read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    bytes: Vec<u8>,
    /// How many have been read.
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

    /// So many have been read now.
    pub(super) fn read(&mut self, bytes: usize) {
        self.at += bytes;
    }
}
