//! Waits for many descriptors at once.
//!
//! mio reports each change once. A reader that leaves some of the available bytes unread must request another report, with
//! [`Reactor::mark_ready`] or [`Reactor::after_read`]. The next wait then does not block.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The changes of a source that the reactor reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// The source can be read from.
    Read,
    /// The source can be written to.
    Write,
    /// The source can be read from or written to.
    ReadWrite,
}

impl From<WatchMode> for Interest {
    fn from(wanted: WatchMode) -> Self {
        match wanted {
            WatchMode::Read => Self::READABLE,
            WatchMode::Write => Self::WRITABLE,
            WatchMode::ReadWrite => Self::READABLE | Self::WRITABLE,
        }
    }
}

/// The key of a registered descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReactorKey(usize);

/// A source that may be ready. The report can be spurious, so reads and writes must not block.
#[derive(Debug, Clone, Copy)]
pub struct Ready<S> {
    /// The source that may be ready.
    pub source: S,
    /// True if writing may succeed.
    pub writable: bool,
}

struct ReactorEntry<S> {
    fd: RawFd,
    source: S,
    wanted: WatchMode,
    /// True if the other side has ended the connection, so no report follows the last bytes.
    ended: bool,
    /// True if the source must be reported without waiting.
    is_pending: bool,
    /// True for a file, which is always ready and which the system cannot wait for.
    always_ready: bool,
}

/// A reactor that waits for many descriptors at once. A value of type `S` identifies each descriptor to the owner.
pub struct Reactor<S> {
    poll: Poll,
    events: Events,
    entries: Vec<Option<ReactorEntry<S>>>,
    free: Vec<usize>,
    /// Entries that must be reported without waiting.
    mark_ready: Vec<usize>,
}

impl<S: Copy> Reactor<S> {
    /// Creates a reactor without sources.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            entries: Vec::new(),
            free: Vec::new(),
            mark_ready: Vec::new(),
        })
    }

    /// Returns the descriptor on which the reactor itself waits.
    pub fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Registers a descriptor. The descriptor must be removed before it is closed, because another process may hold it open.
    pub fn add(&mut self, fd: impl AsFd, source: S, wanted: WatchMode) -> io::Result<ReactorKey> {
        let fd = fd.as_fd().as_raw_fd();
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let added = self.poll.registry().register(&mut SourceFd(&fd), Token(index), wanted.into());
        let always = match added {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => true,
            Err(error) => {
                self.free.push(index);
                return Err(error);
            }
        };
        self.entries[index] =
            Some(ReactorEntry { fd, source, wanted, ended: false, is_pending: false, always_ready: always });
        if always {
            self.mark_ready(ReactorKey(index));
        }
        Ok(ReactorKey(index))
    }

    /// Selects the changes that are reported. If they differ from the previous selection, the current state is reported again.
    pub fn set(&mut self, key: ReactorKey, wanted: WatchMode) {
        let changed = |entry: &&mut ReactorEntry<S>| !entry.always_ready && entry.wanted != wanted;
        if let Some(entry) = self.entries[key.0].as_mut().filter(changed) {
            entry.wanted = wanted;
            // Changing a registered source cannot fail.
            let _ = self.poll.registry().reregister(&mut SourceFd(&entry.fd), Token(key.0), wanted.into());
        }
    }

    /// Watches a source for input and, if a write to it is `blocked`, for room to write. Does nothing without a key.
    pub fn watch_writes(&mut self, key: impl Into<Option<ReactorKey>>, blocked: bool) {
        if let Some(key) = key.into() {
            self.set(key, if blocked { WatchMode::ReadWrite } else { WatchMode::Read });
        }
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, key: ReactorKey) {
        if let Some(entry) = self.entries[key.0].take() {
            // This fails if the descriptor is already closed.
            let _ = self.poll.registry().deregister(&mut SourceFd(&entry.fd));
            self.free.push(key.0);
        }
    }

    /// Makes the next wait report a source without blocking.
    pub fn mark_ready(&mut self, key: ReactorKey) {
        if let Some(entry) = self.entries[key.0].as_mut().filter(|entry| !entry.is_pending) {
            entry.is_pending = true;
            self.mark_ready.push(key.0);
        }
    }

    /// Handles a read of `read` bytes into a buffer of `room` bytes. Reports the source again if more bytes may be available.
    pub fn after_read(&mut self, key: ReactorKey, read: usize, room: usize) {
        let more = |entry: &ReactorEntry<S>| read == room || entry.ended || entry.always_ready;
        if self.entries[key.0].as_ref().is_some_and(more) {
            self.mark_ready(key);
        }
    }

    /// Waits for at most `limit`, or without a limit if it is `None`. A signal ends the wait.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<Vec<Ready<S>>> {
        let mut limit = if self.mark_ready.is_empty() { limit } else { Some(Duration::ZERO) };
        // mio rounds timeouts to milliseconds, but most servers send several responses within a millisecond. A timeout that mio
        // would round is therefore passed to poll() first.
        if let Some(time) = limit.filter(|time| time.subsec_nanos() % 1_000_000 != 0) {
            let mut fds = [PollFd::new(self.poll.registry(), PollFlags::IN)];
            let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            match rustix::event::poll(&mut fds, Some(&time)) {
                Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
                Ok(_) => limit = Some(Duration::ZERO),
                Err(error) => return Err(error.into()),
            }
        }
        match self.poll.poll(&mut self.events, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            result => result?,
        }
        let mut ready = Vec::new();
        // Sources that were marked as ready are reported before the sources of new events.
        for index in std::mem::take(&mut self.mark_ready) {
            if let Some(entry) = self.entries[index].as_mut().filter(|entry| entry.is_pending) {
                entry.is_pending = false;
                ready.push(Ready { source: entry.source, writable: entry.always_ready });
            }
        }
        for event in &self.events {
            if let Some(Some(entry)) = self.entries.get_mut(event.token().0) {
                entry.ended |= event.is_read_closed() || event.is_error();
                ready.push(Ready { source: entry.source, writable: event.is_writable() });
            }
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn sources(reactor: &mut Reactor<u8>) -> Vec<u8> {
        reactor.wait(Some(Duration::ZERO)).unwrap().iter().map(|ready| ready.source).collect()
    }

    #[test]
    fn source_is_reported_until_its_end_is_read() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let mut reactor = Reactor::new().unwrap();
        let key = reactor.add(&here, 7, WatchMode::Read).unwrap();
        there.write_all(b"four").unwrap();
        drop(there);
        let mut buffer = [0; 3];
        for expected in [3, 1, 0] {
            assert_eq!(sources(&mut reactor), [7]);
            let n = here.read(&mut buffer).unwrap();
            assert_eq!(n, expected);
            if n > 0 {
                reactor.after_read(key, n, buffer.len());
            }
        }
        assert!(sources(&mut reactor).is_empty());
    }

    #[test]
    fn removed_source_is_not_reported() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let _another = here.try_clone().unwrap();
        let mut reactor = Reactor::new().unwrap();
        let key = reactor.add(&here, 1, WatchMode::Read).unwrap();
        there.write_all(b"x").unwrap();
        reactor.mark_ready(key);
        reactor.remove(key);
        drop(here);
        assert!(sources(&mut reactor).is_empty());
    }

    #[test]
    fn unpollable_file_is_always_ready() {
        let null = File::open("/dev/null").unwrap();
        let mut reactor = Reactor::new().unwrap();
        let key = reactor.add(&null, 3, WatchMode::Read).unwrap();
        assert_eq!(sources(&mut reactor), [3]);
        reactor.after_read(key, 1, 2);
        assert_eq!(sources(&mut reactor), [3]);
        reactor.remove(key);
        assert!(sources(&mut reactor).is_empty());
    }
}
