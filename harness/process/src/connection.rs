//! A connection that queues bytes until they can be written.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send};

use super::nonblocking;
use crate::observe::tcp::{self, Ends};

/// Maximum size of a read in bytes. A read of this size can return many long lines. The limit also bounds the number of responses that a
/// single read can cause.
pub const READ_SIZE: usize = 64 * 1024;

/// Maximum number of received bytes that are left in the kernel (see [`UnreadBytes`]).
const MAX_LEFT_BYTES: usize = 4096;
/// Maximum number of received messages that are left in the kernel (see [`NonBlockingStream::leave_short_messages`]).
pub const MAX_LEFT_MESSAGES: usize = 16;

/// Maximum space in bytes that the kernel charges for a short message. Most of it is overhead.
pub const MESSAGE_COST: usize = 2048;

/// The result of receiving from the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveResult<B = usize> {
    /// The received bytes, or their number.
    Bytes(B),
    /// No bytes have arrived.
    Nothing,
    /// End of stream: the other side will send no more bytes.
    End,
}

impl<B> ReceiveResult<B> {
    /// Converts the result of a system call. Returns `None` if the call must be repeated.
    fn of(received: Result<(B, usize), Errno>) -> Option<Self> {
        match received {
            Ok((_, 0)) => Some(Self::End),
            Ok((bytes, _)) => Some(Self::Bytes(bytes)),
            Err(Errno::INTR) => None,
            Err(Errno::AGAIN) => Some(Self::Nothing),
            // ECONNRESET: the other side closed its end without reading everything that was sent to it. All bytes that it sent have already
            // been read.
            Err(_) => Some(Self::End),
        }
    }
}

/// Received bytes of a connection that are left in the kernel.
///
/// Linux wakes a process that waits in `recv` on a local socket when a message has arrived. It also wakes the process when the other side
/// takes the process's own message from the kernel. So a process that makes a request and waits is woken twice for each response. The first
/// wake-up is useless, and takes as long as the rest of the exchange. Therefore, requests are only peeked at, and are taken from the kernel
/// after the response, when the process is awake anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnreadBytes {
    bytes: usize,
    messages: usize,
    max_messages: usize,
    /// True if the bytes had already been left in the kernel at the last call to [`NonBlockingStream::take_old_unread`].
    is_old: bool,
}

/// A connection whose operations never block.
#[derive(Debug)]
pub struct NonBlockingStream {
    fd: OwnedFd,
    out: Vec<u8>,
    /// Number of bytes of `out` that have been written.
    written: usize,
    /// True if the other side has accepted fewer bytes than were queued, so the rest is still queued.
    blocked: bool,
    /// True if the other side has closed its end and will read no more data.
    unread: bool,
    /// True if the other side has closed its end without reading everything that was sent to it.
    reset: Cell<bool>,
    /// The ends of a TCP connection; `None` for a local connection.
    ends: Option<Ends>,
    /// The received bytes that are left in the kernel; `None` if received bytes are taken from the kernel immediately.
    unread_in_kernel: Option<UnreadBytes>,
}

impl NonBlockingStream {
    /// Creates a connection over a socket.
    pub fn new(socket: OwnedFd) -> Self {
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
            unread_in_kernel: None,
        }
    }

    /// Creates a connection over a descriptor from another process. The descriptor need not be a socket.
    pub fn over(fd: OwnedFd) -> Self {
        // If this fails, reading and writing will show whether the descriptor can be used.
        let _ = nonblocking(&fd);
        Self::new(fd)
    }

    /// Queues bytes for the next [`flush`](Self::flush), unless the other side will read no more data. Returns true if the queue was empty
    /// and the bytes were queued.
    pub fn push(&mut self, bytes: Vec<u8>) -> bool {
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

    /// Writes as many of the queued bytes and of `bytes` as the other side accepts, and queues the rest.
    pub fn write(&mut self, bytes: &[u8]) {
        let direct = self.out.is_empty() && !self.unread && !bytes.is_empty();
        // An error can be ignored here, because it recurs when the rest is written.
        let sent = if direct { self.send(bytes).unwrap_or(0) } else { 0 };
        if sent < bytes.len() {
            self.push(bytes[sent..].to_vec());
        }
        self.flush();
        if self.unread_in_kernel.is_some_and(|left| left.messages * 2 >= left.max_messages) {
            self.take_unread();
        }
    }

    /// Returns the number of queued bytes.
    pub fn unwritten(&self) -> usize {
        self.out.len() - self.written
    }

    /// Returns whether the other side has accepted fewer bytes than were queued.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether a write has shown that the other side will read no more data.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    /// Returns whether the system has reported that the other side closed its end before reading everything that was sent to it.
    pub fn left_unread(&self) -> bool {
        self.unread || self.reset.get()
    }

    fn discard(&mut self) {
        self.blocked = false;
        self.written = 0;
        self.out = Vec::new();
    }

    /// Writes as many of the queued bytes as the other side accepts.
    pub fn flush(&mut self) {
        while self.written < self.out.len() {
            match self.send(&self.out[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return;
                }
                // The other side will read no more data. Bytes that it wrote before it closed its end can still be read.
                Err(_) => {
                    self.unread = true;
                    break;
                }
            }
        }
        self.discard();
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // DONTWAIT is used instead of O_NONBLOCK, because setting O_NONBLOCK would require another system call.
        match send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::NOTSOCK) => rustix::io::write(&self.fd, bytes),
            sent => sent,
        }
    }

    /// Returns the number of bytes that the other side has not taken from the kernel; `None` if this number is unknown.
    pub fn unread_bytes(&self) -> Option<usize> {
        let under_way = unread_bytes(&self.fd)?;
        // On TCP, `under_way` excludes all bytes that have arrived, even those that have not been read.
        match self.ends {
            Some(ends) => Some(under_way + tcp::find_peer(ends)?.unread),
            None => Some(under_way),
        }
    }

    /// Returns the addresses of the two ends of a TCP connection, the end of this process first.
    pub fn ends(&self) -> Option<Ends> {
        self.ends
    }

    /// Receives bytes into a buffer, without waiting.
    pub fn receive(&self, buffer: &mut [u8]) -> ReceiveResult {
        self.receive_with_flags(buffer, RecvFlags::DONTWAIT)
    }

    /// Receives at most [`READ_SIZE`] bytes into an uninitialized buffer, because clearing a buffer would take longer than most reads.
    pub fn receive_chunk(&self) -> ReceiveResult<Vec<u8>> {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        loop {
            let received = match recv(&self.fd, &mut space[..], RecvFlags::DONTWAIT) {
                Ok(((bytes, _), n)) => Ok((bytes.to_vec(), n)),
                Err(Errno::NOTSOCK) => {
                    rustix::io::read(&self.fd, &mut space[..]).map(|(bytes, _)| (bytes.to_vec(), bytes.len()))
                }
                Err(error) => Err(error),
            };
            if let Some(received) = ReceiveResult::of(received) {
                return received;
            }
        }
    }

    /// Makes [`receive_or_peek`](Self::receive_or_peek) leave short messages in the kernel from now on. If the system cannot report where
    /// new bytes begin, messages are still taken immediately.
    pub fn leave_short_messages(&mut self) {
        // Leaving messages in the kernel saves nothing over TCP: only a local socket wakes its sender when the receiver takes a message.
        if self.ends.is_some() {
            return;
        }
        // The other end's send buffer is as large as this one, unless the other side has changed the size.
        let room = rustix::net::sockopt::socket_send_buffer_size(&self.fd).unwrap_or(0);
        let most = MAX_LEFT_MESSAGES.min(room / 4 / MESSAGE_COST);
        // Some sandboxes accept every socket option, but support only a few, so the offset is read back.
        if most > 0 && set_peek_offset(&self.fd, 0).is_ok() && peek_offset(&self.fd) == Some(0) {
            self.unread_in_kernel =
                Some(UnreadBytes { bytes: 0, messages: 0, max_messages: most, is_old: false });
        }
    }

    /// Discards the bytes that a previous process had already received on this connection, but left in the kernel before it ended.
    pub fn take_inherited(&mut self) {
        if self.ends.is_none()
            && let Some(left) = peek_offset(&self.fd)
        {
            self.discard_received(left);
            // If the offset can be read, it can also be set.
            let _ = set_peek_offset(&self.fd, -1);
        }
    }

    /// Receives bytes, and leaves them in the kernel if possible.
    pub fn receive_or_peek(&mut self, buffer: &mut [u8]) -> ReceiveResult {
        if self.unread_in_kernel.is_none() {
            return self.receive(buffer);
        }
        let received = self.receive_with_flags(buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        let Some(left) = &mut self.unread_in_kernel else { return received };
        match received {
            ReceiveResult::Nothing => {}
            ReceiveResult::Bytes(n) => {
                left.bytes += n;
                left.messages += 1;
                if left.bytes > MAX_LEFT_BYTES || left.messages > left.max_messages {
                    self.take_unread();
                }
            }
            ReceiveResult::End => self.take_unread(),
        }
        received
    }

    /// Takes the bytes that were left in the kernel. Must be called before the connection is closed; otherwise, the other side sees a reset
    /// instead of a close.
    pub fn take_unread(&mut self) {
        if let Some(left) = self.unread_in_kernel.filter(|left| left.bytes > 0) {
            self.discard_received(left.bytes);
            self.unread_in_kernel = Some(UnreadBytes { bytes: 0, messages: 0, is_old: false, ..left });
        }
    }

    fn discard_received(&self, mut bytes: usize) {
        let mut nowhere = [MaybeUninit::<u8>::uninit(); READ_SIZE];
        while bytes > 0 {
            match recv(&self.fd, &mut nowhere[..bytes.min(READ_SIZE)], RecvFlags::DONTWAIT) {
                Ok((_, n)) if n > 0 => bytes -= n,
                Err(Errno::INTR) => {}
                // Not reached, because the peeked bytes are still in the kernel.
                _ => break,
            }
        }
    }

    /// Takes the bytes that were already left in the kernel at the last call, because their sender may be waiting for buffer space.
    pub fn take_old_unread(&mut self) {
        match &mut self.unread_in_kernel {
            Some(left) if left.is_old => self.take_unread(),
            Some(left) if left.bytes > 0 => left.is_old = true,
            _ => {}
        }
    }

    fn receive_with_flags(&self, buffer: &mut [u8], flags: RecvFlags) -> ReceiveResult {
        loop {
            let received = match recv(&self.fd, &mut *buffer, flags) {
                Ok((n, _)) => Ok((n, n)),
                Err(Errno::NOTSOCK) => rustix::io::read(&self.fd, &mut *buffer).map(|n| (n, n)),
                Err(error) => Err(error),
            };
            self.reset.set(self.reset.get() || received == Err(Errno::CONNRESET));
            if let Some(received) = ReceiveResult::of(received) {
                return received;
            }
        }
    }

    /// Shuts down the connection, even if other processes hold this end open.
    pub fn shut_down(&self) {
        // This fails if the descriptor is not a socket or the connection has ended. Closing the descriptor is then enough.
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

/// Creates two connected sockets.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Returns the number of bytes that the other side has not read (`SIOCOUTQ`, the same number as `TIOCOUTQ`); `None` if this number is
/// unknown.
pub fn unread_bytes(fd: impl AsFd) -> Option<usize> {
    #[expect(unsafe_code, reason = "rustix has no safe wrapper for this call")]
    // SAFETY: TIOCOUTQ writes one int to its argument, which the getter provides.
    let unread: i32 = unsafe {
        rustix::ioctl::ioctl(
            fd,
            rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, i32>::new(),
        )
        .ok()?
    };
    usize::try_from(unread).ok()
}

/// Returns the offset (`SO_PEEK_OFF`) at which the next peek (`MSG_PEEK`) begins: after the bytes that were already peeked at. All
/// processes that hold the socket share the offset. Returns `None` if every peek begins at the first byte.
fn peek_offset(fd: impl AsFd) -> Option<usize> {
    let (mut offset, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    let fd = fd.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "rustix and nix have no wrapper for this call")]
    // SAFETY: SO_PEEK_OFF is an int. `offset` is an int that outlives the call, and `length` is its size.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw mut offset).cast(), &raw mut length)
    };
    if result == 0 { usize::try_from(offset).ok() } else { None }
}

fn set_peek_offset(fd: impl AsFd, offset: libc::c_int) -> io::Result<()> {
    let (fd, length) = (fd.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
    #[expect(unsafe_code, reason = "rustix and nix have no wrapper for this call")]
    // SAFETY: SO_PEEK_OFF takes an int. `offset` is an int that outlives the call, and `length` is its size.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw const offset).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
