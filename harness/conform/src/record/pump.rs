//! Carries bytes between two descriptors, both ways, unchanged but for what the owner does with a piece.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, shutdown};

use super::told::PIECE;

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// What the pump tells its owner, before the other side can know of it.
pub(super) trait Owner {
    /// A piece has come from this side; what is to be passed on.
    fn piece(&mut self, from: Side, bytes: &[u8]) -> Vec<u8>;
    /// This side has closed; what is still to be passed on.
    fn closed(&mut self, by: Side) -> Vec<u8>;
}

struct End {
    fd: OwnedFd,
    /// Still to be written to it. While there is any, nothing is read from the other end.
    pending: Vec<u8>,
    /// Nothing more comes from it.
    over: bool,
    /// The other end's close has been passed on to it.
    told: bool,
}

impl End {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { fd, pending: Vec::new(), over: false, told: false })
    }

    /// Whether both directions of the connection are gone.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Writes what waits. An error means that nobody reads any more.
    fn write(&mut self) -> Result<(), Errno> {
        while !self.pending.is_empty() {
            let written = match rustix::net::send(&self.fd, &self.pending, SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(&self.fd, &self.pending),
                other => other,
            };
            match written {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Until when to carry.
#[derive(Clone, Copy)]
pub(super) enum Until<'a> {
    /// Until one of the two has gone.
    Over,
    /// Also until this descriptor has something to read.
    Woken(BorrowedFd<'a>),
    /// Also until nothing is there that can be carried now, and nothing of the client's waits to be written.
    Quiet,
}

/// Why it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// One of the two has gone, and everything it wrote was carried.
    Over,
    /// There may be more.
    Waiting,
}

/// Both sides. They are closed when it is dropped.
pub(super) struct Pump {
    ends: [End; 2],
    buffer: Vec<u8>,
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Pump {
    /// # Errors
    ///
    /// Descriptors that cannot be used.
    pub(super) fn new(client: OwnedFd, server: OwnedFd) -> io::Result<Self> {
        Ok(Self { ends: [End::new(client)?, End::new(server)?], buffer: vec![0; PIECE] })
    }

    /// Carries.
    ///
    /// # Errors
    ///
    /// Those of poll.
    pub(super) fn run(&mut self, owner: &mut dyn Owner, until: Until<'_>) -> io::Result<Stop> {
        loop {
            // A side that is not asked for anything is left out: its hang-up would be told again and again.
            let mut waits = Vec::with_capacity(2);
            for i in 0..2 {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, !self.ends[i].over && self.ends[1 - i].pending.is_empty());
                flags.set(PollFlags::OUT, !self.ends[i].pending.is_empty());
                if !flags.is_empty() {
                    waits.push((i, flags));
                }
            }
            if waits.is_empty() {
                return Ok(Stop::Over);
            }
            let mut fds: Vec<PollFd<'_>> = waits
                .iter()
                .map(|(i, flags)| PollFd::from_borrowed_fd(self.ends[*i].fd.as_fd(), *flags))
                .collect();
            if let Until::Woken(fd) = until {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            let quiet = matches!(until, Until::Quiet) && self.ends[1].pending.is_empty();
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            match rustix::event::poll(&mut fds, quiet.then_some(&now)) {
                Ok(0) => return Ok(Stop::Waiting),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let woken = ready.len() > waits.len() && ready[waits.len()];
            for ((i, flags), _) in waits.into_iter().zip(&ready).filter(|(_, ready)| **ready) {
                if flags.contains(PollFlags::OUT) {
                    self.write(i);
                }
                if flags.contains(PollFlags::IN) {
                    self.read(i, owner);
                }
            }
            if self.pass_closes() {
                return Ok(Stop::Over);
            }
            if woken {
                return Ok(Stop::Waiting);
            }
        }
    }

    fn write(&mut self, to: usize) {
        if self.ends[to].write().is_err() {
            // It reads no more. What it wrote before is still to be read; the other side learns that nobody reads.
            self.ends[to].pending.clear();
            self.ends[1 - to].over = true;
            let _ = shutdown(&self.ends[1 - to].fd, Shutdown::Read);
        }
    }

    fn read(&mut self, from: usize, owner: &mut dyn Owner) {
        match rustix::io::read(&self.ends[from].fd, &mut self.buffer) {
            Ok(n) if n > 0 => {
                let piece = owner.piece(SIDES[from], &self.buffer[..n]);
                self.ends[1 - from].pending.extend(piece);
                self.write(1 - from);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.ends[from].over = true;
                let rest = owner.closed(SIDES[from]);
                self.ends[1 - from].pending.extend(rest);
            }
        }
    }

    /// Tells each side that the other has closed, once it has all that came before. True if one has gone for good.
    fn pass_closes(&mut self) -> bool {
        for i in 0..2 {
            let other = 1 - i;
            if self.ends[i].over && self.ends[other].pending.is_empty() && !self.ends[other].told {
                if self.ends[i].is_gone() {
                    return true;
                }
                self.ends[other].told = true;
                let _ = shutdown(&self.ends[other].fd, Shutdown::Write);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    struct Log(mpsc::Sender<(Side, Option<Vec<u8>>)>);

    impl Owner for Log {
        fn piece(&mut self, from: Side, bytes: &[u8]) -> Vec<u8> {
            self.0.send((from, Some(bytes.to_vec()))).unwrap();
            bytes.to_vec()
        }
        fn closed(&mut self, by: Side) -> Vec<u8> {
            self.0.send((by, None)).unwrap();
            b"!".to_vec()
        }
    }

    type Told = mpsc::Receiver<(Side, Option<Vec<u8>>)>;

    /// The program's and the process manager's descriptors, and what is told.
    fn piped() -> (UnixStream, UnixStream, Told, std::thread::JoinHandle<io::Result<Stop>>) {
        let (program, client) = UnixStream::pair().unwrap();
        let (manager, server) = UnixStream::pair().unwrap();
        let (sender, told) = mpsc::channel();
        let pump = Pump::new(client.into(), server.into()).unwrap();
        let pump = std::thread::spawn(move || {
            let mut pump = pump;
            pump.run(&mut Log(sender), Until::Over)
        });
        (program, manager, told, pump)
    }

    fn all(stream: &mut UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn more_than_fits_goes_both_ways_at_once() {
        let (program, manager, told, pump) = piped();
        let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        let send = |stream: &UnixStream| {
            let (mut stream, bytes) = (stream.try_clone().unwrap(), bytes.clone());
            std::thread::spawn(move || {
                stream.write_all(&bytes).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            })
        };
        let (one, two) = (send(&program), send(&manager));
        // Nobody reads yet: neither side may be kept from being read later.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let reader = {
            let mut manager = manager.try_clone().unwrap();
            std::thread::spawn(move || all(&mut manager))
        };
        let mut program = program;
        assert!(all(&mut program) == [&bytes[..], b"!"].concat());
        assert!(reader.join().unwrap() == [&bytes[..], b"!"].concat());
        one.join().unwrap();
        two.join().unwrap();
        pump.join().unwrap().unwrap();
        let mut sums = [0; 2];
        for (side, piece) in told.iter() {
            sums[side as usize] += piece.map_or(0, |p| p.len());
        }
        assert_eq!(sums, [bytes.len(); 2]);
    }

    #[test]
    fn a_close_is_passed_on_after_the_last_bytes() {
        for first in [Side::Client, Side::Server] {
            let (program, manager, told, pump) = piped();
            let (mut closes, mut stays) = match first {
                Side::Client => (program, manager),
                Side::Server => (manager, program),
            };
            closes.write_all(b"last words").unwrap();
            drop(closes);
            assert_eq!(all(&mut stays), b"last words!");
            // As it would be without us: nobody is there to read.
            pump.join().unwrap().unwrap();
            assert_eq!(stays.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            let told: Vec<_> = told.iter().collect();
            assert_eq!(told, [(first, Some(b"last words".to_vec())), (first, None)]);
        }
    }

    #[test]
    fn half_a_close_leaves_the_other_half() {
        let (mut program, mut manager, _told, pump) = piped();
        program.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(all(&mut manager), b"!");
        manager.write_all(b"answer").unwrap();
        drop(manager);
        assert_eq!(all(&mut program), b"answer!");
        drop(program);
        pump.join().unwrap().unwrap();
    }
}
