//! A connection, and what could not be written to it yet.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send};

use super::nonblocking;
use super::tcp::{self, Ends};

/// Size of a read: room for many of the longest lines usual, and a bound to what one read makes us answer.
pub(crate) const CHUNK: usize = 64 * 1024;

/// So many bytes, and messages, are left in the system at most until later: see [`Left`].
const LEFT_BYTES: usize = 4096;
pub(crate) const LEFT_MESSAGES: usize = 16;

/// A bound to what the system counts for a message of that kind, most of which is what it needs itself.
pub(crate) const MESSAGE_COST: usize = 2048;

/// What came from the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received<B = usize> {
    /// Bytes, or how many.
    Bytes(B),
    /// Nothing for now.
    Nothing,
    /// Nothing ever again.
    End,
}

impl<B> Received<B> {
    /// What a system call has given, with the number of bytes; `None` if it is to be made again.
    fn of(received: Result<(B, usize), Errno>) -> Option<Self> {
        match received {
            Ok((_, 0)) => Some(Self::End),
            Ok((bytes, _)) => Some(Self::Bytes(bytes)),
            Err(Errno::INTR) => None,
            Err(Errno::AGAIN) => Some(Self::Nothing),
            // ECONNRESET: it closed its end without reading all we wrote, and nothing of its own is left.
            Err(_) => Some(Self::End),
        }
    }
}

/// What was received of a connection, and is left in the system.
///
/// Linux wakes a process that waits in `recv` on a local socket not only when something has come for it: also when what it has written is
/// taken from the system. One that asks and waits is woken twice for each answer, the first time for nothing, which takes as long
/// as the rest. So what it has written is looked at, and what has gathered is taken behind an answer, when it is awake anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    bytes: usize,
    messages: usize,
    /// As many messages may be left.
    most: usize,
    /// They have been there for a while.
    old: bool,
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
    /// The other side has closed its end without reading all we wrote.
    reset: Cell<bool>,
    /// Of a TCP connection; a local one has none.
    ends: Option<Ends>,
    /// `None` if what is received is taken at once.
    left: Option<Left>,
}

impl NonBlockingStream {
    /// Over a socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let ends = tcp::ends(&socket);
        let reset = Cell::new(false);
        Self {
            fd: socket,
            out: Vec::new(),
            written: 0,
            blocked: false,
            unread: false,
            reset,
            ends,
            left: None,
        }
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

    /// Writes what the other side takes of what waits to be written and of these bytes behind it, and keeps the rest.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let direct = self.out.is_empty() && !self.unread && !bytes.is_empty();
        // What is wrong turns out again where the rest is written.
        let sent = if direct { self.send(bytes).unwrap_or(0) } else { 0 };
        if sent < bytes.len() {
            self.push(bytes[sent..].to_vec());
        }
        self.flush();
        if self.left.is_some_and(|left| left.messages * 2 >= left.most) {
            self.take_left();
        }
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

    /// Returns true if the other side closed its end with bytes of ours unread, as far as the system has reported it.
    pub(crate) fn left_unread(&self) -> bool {
        self.unread || self.reset.get()
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
            match self.send(&self.out[self.written..]) {
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

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // Not O_NONBLOCK: that would take another system call to set.
        match send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::NOTSOCK) => rustix::io::write(&self.fd, bytes),
            sent => sent,
        }
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
        self.receive_so(buffer, RecvFlags::DONTWAIT)
    }

    /// Receives [`CHUNK`] bytes at most. To clear a buffer for them would take longer than most messages.
    pub(crate) fn receive_chunk(&self) -> Received<Vec<u8>> {
        let mut space = [MaybeUninit::uninit(); CHUNK];
        loop {
            let received = match recv(&self.fd, &mut space[..], RecvFlags::DONTWAIT) {
                Ok(((bytes, _), n)) => Ok((bytes.to_vec(), n)),
                Err(Errno::NOTSOCK) => {
                    rustix::io::read(&self.fd, &mut space[..]).map(|(bytes, _)| (bytes.to_vec(), bytes.len()))
                }
                Err(error) => Err(error),
            };
            if let Some(received) = Received::of(received) {
                return received;
            }
        }
    }

    /// From here on, [`receive_or_look`](Self::receive_or_look) leaves short messages in the system. Where the system cannot say from
    /// where on they are new, it takes them all the same.
    pub(crate) fn leave_short(&mut self) {
        // Of TCP, nobody is woken without need.
        if self.ends.is_some() {
            return;
        }
        // Both ends have as much, unless the other side has changed it.
        let room = rustix::net::sockopt::socket_send_buffer_size(&self.fd).unwrap_or(0);
        let most = LEFT_MESSAGES.min(room / 4 / MESSAGE_COST);
        // Some sandboxes take any option and know few.
        if most > 0 && set_peek_offset(&self.fd, 0).is_ok() && peek_offset(&self.fd) == Some(0) {
            self.left = Some(Left { bytes: 0, messages: 0, most, old: false });
        }
    }

    /// Takes what another process has received here and left before it was gone.
    pub(crate) fn take_over(&mut self) {
        if self.ends.is_none()
            && let Some(left) = peek_offset(&self.fd)
        {
            self.take(left);
            // It cannot fail where it can be read.
            let _ = set_peek_offset(&self.fd, -1);
        }
    }

    /// Receives, and leaves in the system what may be left there.
    pub(crate) fn receive_or_look(&mut self, buffer: &mut [u8]) -> Received {
        if self.left.is_none() {
            return self.receive(buffer);
        }
        let received = self.receive_so(buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        let Some(left) = &mut self.left else { return received };
        match received {
            Received::Nothing => {}
            Received::Bytes(n) => {
                left.bytes += n;
                left.messages += 1;
                if left.bytes > LEFT_BYTES || left.messages > left.most {
                    self.take_left();
                }
            }
            Received::End => self.take_left(),
        }
        received
    }

    /// Takes what was left. To be called before the connection is closed, which would else count as a close before all was read.
    pub(crate) fn take_left(&mut self) {
        if let Some(left) = self.left.filter(|left| left.bytes > 0) {
            self.take(left.bytes);
            self.left = Some(Left { bytes: 0, messages: 0, old: false, ..left });
        }
    }

    fn take(&self, mut bytes: usize) {
        let mut nowhere = [MaybeUninit::<u8>::uninit(); CHUNK];
        while bytes > 0 {
            match recv(&self.fd, &mut nowhere[..bytes.min(CHUNK)], RecvFlags::DONTWAIT) {
                Ok((_, n)) if n > 0 => bytes -= n,
                Err(Errno::INTR) => {}
                // It cannot be: what was looked at is there.
                _ => break,
            }
        }
    }

    /// Takes what was left already when this was called before: its sender may have little room, and wait for that.
    pub(crate) fn take_old(&mut self) {
        match &mut self.left {
            Some(left) if left.old => self.take_left(),
            Some(left) if left.bytes > 0 => left.old = true,
            _ => {}
        }
    }

    fn receive_so(&self, buffer: &mut [u8], flags: RecvFlags) -> Received {
        loop {
            let received = match recv(&self.fd, &mut *buffer, flags) {
                Ok((n, _)) => Ok((n, n)),
                Err(Errno::NOTSOCK) => rustix::io::read(&self.fd, &mut *buffer).map(|n| (n, n)),
                Err(error) => Err(error),
            };
            self.reset.set(self.reset.get() || received == Err(Errno::CONNRESET));
            if let Some(received) = Received::of(received) {
                return received;
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

/// From where on a look (`MSG_PEEK`) begins, behind what was received and not taken (`SO_PEEK_OFF`). It belongs to the socket, not to one
/// of the processes that have it. `None` if looks begin at the beginning.
fn peek_offset(fd: impl AsFd) -> Option<usize> {
    let (mut offset, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    let fd = fd.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "rustix and nix have no call for it")]
    // SAFETY: the option is an int, and so is where it is written to.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw mut offset).cast(), &raw mut length)
    };
    if result == 0 { usize::try_from(offset).ok() } else { None }
}

fn set_peek_offset(fd: impl AsFd, offset: libc::c_int) -> io::Result<()> {
    let (fd, length) = (fd.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
    #[expect(unsafe_code, reason = "rustix and nix have no call for it")]
    // SAFETY: the option is an int, which is read from where it is.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw const offset).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
