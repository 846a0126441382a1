//! Our end of one rank's connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What came from a rank.
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// Nothing ever again.
    End,
}

/// A socket and what could not be written to it yet.
pub(crate) struct Connection {
    socket: OwnedFd,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// Whether the socket took less than there is, so that we wait for it to take more.
    pub(crate) blocked: bool,
    /// The rank has closed its end and reads nothing any more.
    deaf: bool,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, out: Vec::new(), written: 0, blocked: false, deaf: false }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Keeps bytes for the next [`flush`](Self::flush). Returns whether there were none before.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> bool {
        if self.deaf {
            return false;
        }
        let first = self.out.is_empty();
        if first {
            self.out = bytes;
        } else {
            self.out.extend_from_slice(&bytes);
        }
        first
    }

    /// Bytes that wait to be written.
    pub(crate) fn unwritten(&self) -> usize {
        self.out.len() - self.written
    }

    /// Writes what the socket takes; sets [`blocked`](Self::blocked).
    pub(crate) fn flush(&mut self) {
        while self.written < self.out.len() {
            // Not O_NONBLOCK: that would take another system call to set.
            match send(&self.socket, &self.out[self.written..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return;
                }
                // What it wrote before it closed is still to be read.
                Err(_) => {
                    self.deaf = true;
                    break;
                }
            }
        }
        self.blocked = false;
        self.written = 0;
        self.out = Vec::new();
    }

    /// Whether the rank has read everything.
    pub(crate) fn is_read(&self) -> bool {
        self.unwritten() == 0 && crate::launch::unread(self.socket.as_fd()).is_none_or(|n| n == 0)
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Received::End,
                Ok((n, _)) => return Received::Bytes(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                // ECONNRESET: it closed its end without reading all we wrote, and nothing of its own is left.
                Err(_) => return Received::End,
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Size of a read: room for many of the longest lines usual, and a bound to what one read makes us answer.
pub(crate) const CHUNK: usize = 64 * 1024;

/// An error with what failed before it.
pub(crate) fn context(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
