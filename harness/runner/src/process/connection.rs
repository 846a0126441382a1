//! A connection, and what could not be written to it yet.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send};

use super::nonblocking;
use super::tcp::{self, Ends};

/// Size of a read: room for many of the longest lines usual, and a bound to what one read makes us answer.
pub(crate) const CHUNK: usize = 64 * 1024;

/// What came from the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// Nothing ever again.
    End,
}

/// A connection that never makes us wait.
#[derive(Debug)]
pub(crate) struct NonBlockingStream {
    fd: OwnedFd,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// Whether the other side took less than there is, so that we wait for it to take more.
    blocked: bool,
    /// The other side has closed its end and reads nothing any more.
    unread: bool,
    /// Of a TCP connection; a local one has none.
    ends: Option<Ends>,
}

impl NonBlockingStream {
    /// Over a socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let ends = tcp::ends(&socket);
        Self { fd: socket, out: Vec::new(), written: 0, blocked: false, unread: false, ends }
    }

    /// Over a descriptor that others have made, and which need not be a socket.
    pub(crate) fn over(fd: OwnedFd) -> Self {
        // Reading and writing say whether it can be used.
        let _ = nonblocking(&fd);
        Self::new(fd)
    }

    /// Keeps bytes for the next [`flush`](Self::flush). Returns whether there were none before.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> bool {
        if self.unread {
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

    /// Whether the other side took less than there is.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether it has turned out that the other side reads nothing any more.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Gives up what waits to be written.
    pub(crate) fn discard(&mut self) {
        self.blocked = false;
        self.written = 0;
        self.out = Vec::new();
    }

    /// Writes what the other side takes.
    pub(crate) fn flush(&mut self) {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            // Not O_NONBLOCK: that would take another system call to set.
            let sent = match send(&self.fd, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(&self.fd, rest),
                sent => sent,
            };
            match sent {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return;
                }
                // What it wrote before it closed is still to be read.
                Err(_) => {
                    self.unread = true;
                    break;
                }
            }
        }
        self.discard();
    }

    /// Bytes that the other side has not taken from the system; `None` if that cannot be known.
    pub(crate) fn unread_bytes(&self) -> Option<usize> {
        let under_way = unread_bytes(&self.fd)?;
        // What has arrived by TCP is none of ours any more, read or not.
        match self.ends {
            Some(ends) => Some(under_way + tcp::other_end(ends)?.unread),
            None => Some(under_way),
        }
    }

    /// The addresses of the two ends of a TCP connection, ours first.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.ends
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            let received = match recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((n, _)) => Ok(n),
                Err(Errno::NOTSOCK) => rustix::io::read(&self.fd, &mut *buffer),
                Err(error) => Err(error),
            };
            match received {
                Ok(0) => return Received::End,
                Ok(n) => return Received::Bytes(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                // ECONNRESET: it closed its end without reading all we wrote, and nothing of its own is left.
                Err(_) => return Received::End,
            }
        }
    }

    /// Ends the connection, also for others that hold our end of it open.
    pub(crate) fn shut_down(&self) {
        // No socket, or ended already: closing is all there is to do.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }
}

impl AsFd for NonBlockingStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for NonBlockingStream {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Two connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Bytes that the other side has not read (`SIOCOUTQ`, the same number as `TIOCOUTQ`); `None` if that cannot be known.
pub(crate) fn unread_bytes(fd: impl AsFd) -> Option<usize> {
    #[expect(unsafe_code, reason = "rustix has no safe call for it")]
    // SAFETY: TIOCOUTQ writes one int to the place it is given, which the getter provides.
    let unread: i32 = unsafe {
        rustix::ioctl::ioctl(
            fd,
            rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, i32>::new(),
        )
        .ok()?
    };
    usize::try_from(unread).ok()
}
