//! A connection between the runner and a program of the harness that another program has started. Messages in both directions are lines of
//! JSON, and can carry descriptors.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SOCKET;
use crate::connection::NonBlockingStream;

/// Maximum size of a read in bytes. Nearly all messages are shorter.
const READ_SIZE: usize = 4096;
/// Maximum length of a line to or from an agent.
const LINE_MAX: usize = 256 << 20;
/// Maximum length of the first line from a process that is not yet trusted.
const HELLO_MAX: usize = 1 << 20;
/// Maximum length of a line from a network peer that has not sent its token yet.
const PASS_MAX: usize = 1024;
/// Maximum number of bytes in each buffer of a channel to an agent that relays its connection.
const RELAY_MAX: usize = 64 << 20;
/// Maximum number of descriptors in a message, and of received descriptors that have not been taken yet.
const MAX_DESCRIPTORS: usize = 2;
/// Maximum number of bytes that [`Channel::receive_some`] reads. Without this limit, a peer that never stops writing would never receive a
/// response.
const MAX_READ_AT_ONCE: usize = 1 << 20;

/// The error for a received line that is not a valid message.
#[derive(Debug, thiserror::Error)]
#[error("not a message: {0}")]
pub struct InvalidMessage(#[from] serde_json::Error);

/// One end of a connection between the runner and an agent.
#[derive(Debug)]
pub struct Channel {
    connection: NonBlockingStream,
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer that are known to contain no newline.
    searched: usize,
    descriptors: VecDeque<OwnedFd>,
    /// Maximum number of bytes in the input buffer, and in the output buffer.
    limit: usize,
    /// True if the other side will send no more data.
    ended: bool,
}

impl Channel {
    /// Creates a channel over a connected socket.
    pub fn new(socket: impl Into<OwnedFd>) -> Self {
        let connection = NonBlockingStream::new(socket.into());
        Self {
            connection,
            buffer: Vec::new(),
            searched: 0,
            descriptors: VecDeque::new(),
            limit: LINE_MAX,
            ended: false,
        }
    }

    /// Creates a channel to an unknown process, which may send only a short introduction until [`trust`](Self::trust) is called.
    pub(super) fn for_unknown_process(stream: UnixStream) -> Self {
        Self { limit: HELLO_MAX, ..Self::new(stream) }
    }

    /// Creates a channel to a peer on the network, which may send only a short line until [`admit`](Self::admit) is called.
    pub(super) fn for_unknown_peer(stream: TcpStream) -> Self {
        Self { limit: PASS_MAX, ..Self::new(stream) }
    }

    /// Raises the limit for a peer that has sent a valid token, so that the peer can introduce itself.
    pub(super) fn admit(&mut self) {
        self.limit = HELLO_MAX;
    }

    /// Raises the limit for an agent that has announced that it relays a connection.
    pub(super) fn trust_relay(&mut self) {
        self.limit = RELAY_MAX;
    }

    /// Raises the limit for a peer that has introduced itself.
    pub(super) fn trust(&mut self) {
        self.limit = LINE_MAX;
    }

    /// Connects to the runner whose scratch folder is `scratch`.
    pub fn to_runner(scratch: &Path) -> io::Result<Self> {
        UnixStream::connect(scratch.join(SOCKET)).map(Self::new)
    }

    /// Sends a message, or queues it until the other side has read earlier messages. If the queue exceeds its limit, the connection counts
    /// as ended.
    pub fn send(&mut self, message: &impl Serialize) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            self.connection.push(line);
        }
        self.flush();
        self.ended |= self.connection.unwritten() > self.limit;
    }

    /// Writes as many of the queued bytes as the connection accepts.
    pub fn flush(&mut self) {
        self.connection.flush();
    }

    /// Returns whether bytes are waiting to be written.
    pub fn is_blocked(&self) -> bool {
        self.connection.is_blocked()
    }

    /// Returns the number of bytes that are waiting to be written.
    pub fn unwritten(&self) -> usize {
        self.connection.unwritten()
    }

    /// Returns whether the other side has read everything that was sent.
    pub fn is_read(&self) -> bool {
        !self.is_blocked() && self.connection.unread_bytes() == Some(0)
    }

    /// Returns whether no more messages will arrive. Messages that have already arrived may still be waiting in the input buffer.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// Returns whether the input buffer is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes the first received descriptor, if any.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Reads the available bytes. [`next`](Self::next) then returns the messages in them.
    pub fn receive(&mut self) {
        self.receive_up_to(usize::MAX);
    }

    /// Reads some of the available bytes, for a connection whose peer may never stop writing. Returns whether more may be available.
    pub fn receive_some(&mut self) -> bool {
        self.receive_up_to(MAX_READ_AT_ONCE)
    }

    fn receive_up_to(&mut self, most: usize) -> bool {
        let mut taken = 0;
        while !self.ended {
            if taken >= most {
                return true;
            }
            let mut chunk = [0; READ_SIZE];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut slices = [IoSliceMut::new(&mut chunk)];
            let received = rustix::net::recvmsg(&self.connection, &mut slices, &mut ancillary, flags);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    let room = MAX_DESCRIPTORS.saturating_sub(self.descriptors.len());
                    self.descriptors.extend(fds.take(room));
                }
            }
            let n = received.as_ref().map_or(0, |message| message.bytes);
            self.buffer.extend_from_slice(&chunk[..n]);
            taken += n;
            match received {
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Ok(_) if n > 0 && self.buffer.len() < self.limit => {}
                _ => self.ended = true,
            }
        }
        false
    }

    /// Returns the next received message, or `None` if no complete message has been received.
    #[expect(clippy::should_implement_trait, reason = "the caller chooses the type of each message")]
    pub fn next<T: DeserializeOwned>(&mut self) -> Option<Result<T, InvalidMessage>> {
        let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
        self.searched = 0;
        Some(serde_json::from_slice(&line).map_err(InvalidMessage::from))
    }

    /// Returns all messages that have arrived. After an invalid message, the connection counts as ended.
    pub fn messages<T: DeserializeOwned>(&mut self) -> Vec<T> {
        self.receive();
        let mut messages = Vec::new();
        while let Some(message) = self.next() {
            match message {
                Ok(message) => messages.push(message),
                Err(_) => self.ended = true,
            }
        }
        messages
    }

    /// Waits for a message. Returns `None` if the connection has ended.
    pub fn wait<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.next() {
                return message.map(Some).map_err(io::Error::other);
            }
            if self.ended {
                return Ok(None);
            }
            self.poll(PollFlags::IN)?;
            self.receive();
        }
    }

    /// Sends a message and waits until the system has accepted it.
    pub fn send_whole(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send(message);
        while self.is_blocked() {
            self.poll(PollFlags::OUT)?;
            self.flush();
        }
        if self.connection.is_unread() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Sends a message, together with a descriptor if one is given.
    pub fn send_with_descriptor(
        &mut self,
        message: &impl Serialize,
        descriptor: Option<&impl AsFd>,
    ) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = descriptor.into_iter().map(AsFd::as_fd).collect();
        self.send_with_descriptors(message, &fds)
    }

    /// Sends a message with at most `MAX_DESCRIPTORS` descriptors.
    pub fn send_with_descriptors(
        &mut self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let mut sent = rustix::net::sendmsg(
            &self.connection,
            &[IoSlice::new(&line)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        while sent < line.len() {
            sent += rustix::net::send(&self.connection, &line[sent..], SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    fn poll(&self, flags: PollFlags) -> io::Result<()> {
        match rustix::event::poll(&mut [PollFd::new(&self.connection, flags)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Channel::new(a), Channel::new(b));
        let long = "x".repeat(1 << 20);
        here.send(&"short");
        here.send(&long);
        assert!(here.is_blocked());
        let mut messages: Vec<String> = Vec::new();
        while messages.len() < 2 {
            messages.extend(there.messages());
            here.flush();
        }
        assert_eq!(messages, ["short", &long]);
        drop(here);
        // A process that another test has just started may still hold a copy of the other end, so the connection may end with a delay.
        assert!(there.wait::<String>().unwrap().is_none() && there.is_over());
    }

    #[test]
    fn whole_messages_are_not_queued() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Channel::new(a), Channel::new(b));
        let queued = std::thread::spawn(move || {
            (0..5000).filter(|n| here.send_whole(n).is_err() || here.is_blocked()).count()
        });
        // Until the first message is read, the system has no room for all of them.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for n in 0..5000 {
            assert_eq!(there.wait().unwrap(), Some(n));
        }
        assert_eq!(queued.join().unwrap(), 0);
    }

    #[test]
    fn invalid_message_closes_the_channel() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut there = Channel::new(b);
        a.write_all(b"junk\n").unwrap();
        assert!(there.messages::<u32>().is_empty() && there.is_over());
    }

    #[test]
    fn descriptor_arrives_with_the_first_message() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Channel::new(a), Channel::new(b));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        here.send_with_descriptor(&1, Some(&theirs)).unwrap();
        drop(theirs);
        here.send(&2);
        assert_eq!(there.messages::<u32>(), [1, 2]);
        let received = UnixStream::from(there.take_descriptor().unwrap());
        drop(received);
        assert!(ours.write_all(b"x").is_err(), "another copy is open");
    }
}
