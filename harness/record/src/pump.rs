//! A pump that carries bytes between two connections in both directions. Only the [`PumpHandler`] may change the bytes.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;

use pmi_process::connection::{NonBlockingStream, ReceiveResult};
use pmi_process::reactor::{Reactor, ReactorKey, WatchMode};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{Shutdown, shutdown};

/// Maximum number of bytes that are read and reported at a time.
pub(crate) const MAX_READ: usize = 32 * 1024;

/// Maximum number of reads from each side after the program has ended.
const MAX_LAST_READS: usize = 64;

/// A side of a pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpSide {
    Client,
    Server,
}

impl PumpSide {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The handler of a pump's events. The pump calls it for each event before the other side can observe the event.
pub(crate) trait PumpHandler {
    /// Handles bytes that have arrived from a side. Returns the bytes to forward.
    fn forward<'a>(&mut self, from: PumpSide, bytes: &'a [u8]) -> Cow<'a, [u8]>;
    /// Handles the close of the connection by a side. `left_unread` is true if the side is known to have left bytes unread. Returns bytes
    /// that must still be forwarded to the other side.
    fn closed(&mut self, by: PumpSide, left_unread: bool) -> Vec<u8>;
    /// Returns true if the client has closed its end because it is exiting. The connection then ends in both directions.
    fn client_is_ending(&mut self) -> bool;
}

struct PumpEnd {
    /// The connection to the process at this end. While bytes wait to be written here, the other end is not read.
    connection: NonBlockingStream,
    key: ReactorKey,
    /// True if no more bytes will arrive from this end.
    is_ended: bool,
    /// True if the close of the other end has been forwarded to this end.
    reported: bool,
}

impl PumpEnd {
    /// Returns whether both directions of the connection have ended.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

/// The state of a pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpState {
    /// A side is gone, or both sides have sent everything. All bytes have been carried.
    Over,
    /// More bytes may arrive.
    Open,
}

/// A pump that carries bytes between two sides. Both sides are closed on drop.
pub(crate) struct Pump {
    client: PumpEnd,
    server: PumpEnd,
}

impl Pump {
    /// Creates a pump between two ends. `source` identifies each end in the reactor.
    pub(crate) fn new<S: Copy>(
        client: OwnedFd,
        server: OwnedFd,
        reactor: &mut Reactor<S>,
        source: impl Fn(PumpSide) -> S,
    ) -> io::Result<Self> {
        let mut end = |fd, side| {
            let mut connection = NonBlockingStream::over(fd);
            connection.take_inherited();
            let key = reactor.add(&connection, source(side), WatchMode::Read)?;
            io::Result::Ok(PumpEnd { connection, key, is_ended: false, reported: false })
        };
        let (client, server) = (end(client, PumpSide::Client)?, end(server, PumpSide::Server)?);
        Ok(Self { client, server })
    }

    /// Makes the pump leave the client's requests in the socket after reading them, because removing them would wake up the client.
    /// [`take_old_unread`](Self::take_old_unread) must then be called periodically.
    pub(crate) fn leave_requests(&mut self) {
        self.client.connection.leave_short_messages();
    }

    /// Removes requests that were already in the socket at the previous call; see [`NonBlockingStream::take_old_unread`].
    pub(crate) fn take_old_unread(&mut self) {
        self.client.connection.take_old_unread();
    }

    fn end(&mut self, side: PumpSide) -> &mut PumpEnd {
        match side {
            PumpSide::Client => &mut self.client,
            PumpSide::Server => &mut self.server,
        }
    }

    /// Removes both sides from the reactor, and closes them.
    pub(crate) fn close<S: Copy>(mut self, reactor: &mut Reactor<S>) {
        self.client.connection.take_unread();
        reactor.remove(self.client.key);
        reactor.remove(self.server.key);
    }

    /// Carries the available bytes after an event on a side.
    pub(crate) fn carry<S: Copy>(
        &mut self,
        side: PumpSide,
        owner: &mut dyn PumpHandler,
        reactor: &mut Reactor<S>,
        buffer: &mut [u8],
    ) -> PumpState {
        if self.end(side).connection.is_blocked() {
            self.write(side, &[], reactor);
        }
        if !self.end(side).is_ended && self.end(side.other()).connection.unwritten() == 0 {
            self.read(side, owner, reactor, buffer);
        }
        if self.pass_closes(owner) || self.is_done() { PumpState::Over } else { PumpState::Open }
    }

    /// Carries the available bytes after the program has ended. The number of reads is limited, because processes that outlive the program
    /// might never stop writing.
    pub(crate) fn drain<S: Copy>(
        &mut self,
        owner: &mut dyn PumpHandler,
        reactor: &mut Reactor<S>,
        buffer: &mut [u8],
    ) -> PumpState {
        for _ in 0..MAX_LAST_READS {
            let mut carried = false;
            for side in [PumpSide::Client, PumpSide::Server] {
                if self.end(side).connection.is_blocked() {
                    self.write(side, &[], reactor);
                }
                if !self.end(side).is_ended && self.end(side.other()).connection.unwritten() == 0 {
                    carried |= self.read(side, owner, reactor, buffer);
                }
            }
            if self.pass_closes(owner) || self.is_done() {
                self.client.connection.take_unread();
                return PumpState::Over;
            }
            if !carried {
                break;
            }
        }
        // The caller may close the pump after this call. If requests were still unread then, the client would see a reset.
        self.client.connection.take_unread();
        PumpState::Open
    }

    /// Returns whether the client has closed its end before reading everything.
    pub(crate) fn client_left_unread(&self) -> bool {
        self.client.connection.left_unread()
    }

    /// Returns whether bytes from the client are waiting to be written to the server.
    pub(crate) fn is_blocked(&self) -> bool {
        self.server.connection.unwritten() > 0
    }

    fn is_done(&self) -> bool {
        [&self.client, &self.server].iter().all(|end| end.is_ended && end.connection.unwritten() == 0)
    }

    /// Writes the queued bytes for a side, and then `bytes`.
    fn write<S: Copy>(&mut self, to: PumpSide, bytes: &[u8], reactor: &mut Reactor<S>) {
        let end = self.end(to);
        let was_blocked = end.connection.is_blocked();
        end.connection.write(bytes);
        let (key, blocked, unread) = (end.key, end.connection.is_blocked(), end.connection.is_unread());
        let other = self.end(to.other());
        if unread && !other.is_ended {
            // The process on this side no longer reads, so reading from the other side ends. Bytes from this side can still be carried.
            other.is_ended = true;
            let _ = shutdown(&other.connection, Shutdown::Read);
        }
        if was_blocked && !blocked {
            // The other side was not read while this side was blocked, so bytes may be waiting.
            reactor.mark_ready(other.key);
        }
        reactor.watch_writes(key, blocked);
    }

    /// Reads once from a side. Returns whether bytes or the end of the connection were read.
    fn read<S: Copy>(
        &mut self,
        from: PumpSide,
        owner: &mut dyn PumpHandler,
        reactor: &mut Reactor<S>,
        buffer: &mut [u8],
    ) -> bool {
        let end = self.end(from);
        let piece = match end.connection.receive_or_peek(buffer) {
            ReceiveResult::Nothing => return false,
            ReceiveResult::Bytes(n) => {
                reactor.after_read(end.key, n, buffer.len());
                owner.forward(from, &buffer[..n])
            }
            ReceiveResult::End => {
                end.is_ended = true;
                owner.closed(from, end.connection.left_unread()).into()
            }
        };
        if !piece.is_empty() {
            self.write(from.other(), &piece, reactor);
        }
        true
    }

    /// If a side has closed its connection, forwards the close to the other side after all bytes from the first side. Returns true if the
    /// first side no longer reads either.
    fn pass_closes(&mut self, owner: &mut dyn PumpHandler) -> bool {
        for side in [PumpSide::Client, PumpSide::Server] {
            let over = self.end(side).is_ended;
            let other = self.end(side.other());
            if over && other.connection.unwritten() == 0 && !other.reported {
                // On TCP, `is_gone` may not show that the client is gone, so the handler is asked as well.
                if self.end(side).is_gone() || (side == PumpSide::Client && owner.client_is_ending()) {
                    return true;
                }
                let other = self.end(side.other());
                other.reported = true;
                let _ = shutdown(&other.connection, Shutdown::Write);
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
    use std::time::Duration;

    use pmi_process::connection::{MAX_LEFT_MESSAGES, MESSAGE_COST, unread_bytes};

    struct Log(mpsc::Sender<(PumpSide, Option<Vec<u8>>)>);

    impl PumpHandler for Log {
        fn forward<'a>(&mut self, from: PumpSide, bytes: &'a [u8]) -> Cow<'a, [u8]> {
            self.0.send((from, Some(bytes.to_vec()))).unwrap();
            bytes.into()
        }
        fn closed(&mut self, by: PumpSide, _: bool) -> Vec<u8> {
            self.0.send((by, None)).unwrap();
            b"!".to_vec()
        }
        fn client_is_ending(&mut self) -> bool {
            false
        }
    }

    type ReportReceiver = mpsc::Receiver<(PumpSide, Option<Vec<u8>>)>;

    /// Returns the sockets of the program and of the process manager, the receiver of the reports, and the thread of the pump.
    fn piped() -> (UnixStream, UnixStream, ReportReceiver, std::thread::JoinHandle<io::Result<PumpState>>) {
        let (program, client) = UnixStream::pair().unwrap();
        let (manager, server) = UnixStream::pair().unwrap();
        let (sender, reports) = mpsc::channel();
        let mut reactor = Reactor::new().unwrap();
        let mut pump = Pump::new(client.into(), server.into(), &mut reactor, |side| side).unwrap();
        pump.leave_requests();
        let pump = std::thread::spawn(move || {
            let (mut log, mut buffer) = (Log(sender), vec![0; MAX_READ]);
            loop {
                for ready in reactor.wait(None)? {
                    if pump.carry(ready.source, &mut log, &mut reactor, &mut buffer) == PumpState::Over {
                        return Ok(PumpState::Over);
                    }
                }
            }
        });
        (program, manager, reports, pump)
    }

    fn all(stream: &mut UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn forwards_large_data_in_both_directions() {
        let (program, manager, reports, pump) = piped();
        let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        let send = |stream: &UnixStream| {
            let (mut stream, bytes) = (stream.try_clone().unwrap(), bytes.clone());
            std::thread::spawn(move || {
                stream.write_all(&bytes).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            })
        };
        let (one, two) = (send(&program), send(&manager));
        // Neither side reads yet. Both must still receive everything later.
        std::thread::sleep(Duration::from_millis(50));
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
        for (side, piece) in reports.iter() {
            sums[side as usize] += piece.map_or(0, |p| p.len());
        }
        assert_eq!(sums, [bytes.len(); 2]);
    }

    #[test]
    fn forwards_close_after_the_last_bytes() {
        for first in [PumpSide::Client, PumpSide::Server] {
            let (program, manager, reports, pump) = piped();
            let (mut closes, mut stays) = match first {
                PumpSide::Client => (program, manager),
                PumpSide::Server => (manager, program),
            };
            closes.write_all(b"last words").unwrap();
            drop(closes);
            assert_eq!(all(&mut stays), b"last words!");
            // The writer sees that the reader is gone, as it would without the pump.
            pump.join().unwrap().unwrap();
            assert_eq!(stays.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            let reports: Vec<_> = reports.iter().collect();
            assert_eq!(reports, [(first, Some(b"last words".to_vec())), (first, None)]);
        }
    }

    /// A pump that leaves requests unread. The test calls it directly, without a thread.
    struct ManualPump {
        program: UnixStream,
        manager: UnixStream,
        /// Duplicates of the pump's ends of both connections: first the connection to the program, then the connection to the manager.
        ends: (UnixStream, UnixStream),
        reactor: Reactor<PumpSide>,
        pump: Pump,
    }

    impl ManualPump {
        fn new() -> Self {
            let (program, client) = UnixStream::pair().unwrap();
            let (manager, server) = UnixStream::pair().unwrap();
            let mut reactor = Reactor::new().unwrap();
            manager.set_nonblocking(true).unwrap();
            let copies = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let mut pump = Pump::new(copies.0.into(), copies.1.into(), &mut reactor, |side| side).unwrap();
            pump.leave_requests();
            Self { program, manager, ends: (client, server), reactor, pump }
        }

        /// Carries the available bytes.
        fn carry(&mut self) {
            let (sender, _told) = mpsc::channel();
            for ready in self.reactor.wait(Some(Duration::ZERO)).unwrap() {
                let (mut log, mut buffer) = (Log(sender.clone()), vec![0; MAX_READ]);
                self.pump.carry(ready.source, &mut log, &mut self.reactor, &mut buffer);
            }
        }

        /// Carries the available bytes, and returns the bytes that the process manager receives.
        fn receive(&mut self) -> Vec<u8> {
            self.carry();
            let mut bytes = vec![0; 64];
            let n = self.manager.read(&mut bytes).unwrap();
            bytes[..n].to_vec()
        }

        /// Returns whether bytes that the program has written are still in the socket.
        fn is_left(&self) -> bool {
            unread_bytes(&self.program).unwrap() > 0
        }
    }

    #[test]
    fn pump_limits_the_requests_left_in_the_socket() {
        let mut pump = ManualPump::new();
        let mut taken = 0;
        for _ in 0..100 {
            pump.program.write_all(b"ask").unwrap();
            assert_eq!(pump.receive(), b"ask");
            assert!(pump.is_left());
            pump.manager.write_all(b"tell").unwrap();
            pump.carry();
            taken += u32::from(!pump.is_left());
        }
        assert!(
            (10..50).contains(&taken),
            "the pump must take requests neither after every response nor in large batches: taken {taken} times"
        );
        // A request without a response is removed from the socket after a while, which frees its buffer space.
        pump.program.write_all(b"ask").unwrap();
        pump.carry();
        pump.pump.take_old_unread();
        assert!(pump.is_left());
        pump.pump.take_old_unread();
        assert!(!pump.is_left());
        for _ in 0..2 * MAX_LEFT_MESSAGES {
            pump.program.write_all(b"x").unwrap();
            pump.carry();
        }
        assert!(unread_bytes(&pump.program).unwrap() < MAX_LEFT_MESSAGES * MESSAGE_COST);
        pump.program.write_all(&[0; 10_000]).unwrap();
        pump.carry();
        assert!(!pump.is_left());
    }

    #[test]
    fn restarted_pump_does_not_forward_bytes_twice() {
        let mut pump = ManualPump::new();
        for request in [b"one", b"two"] {
            pump.program.write_all(request).unwrap();
            assert_eq!(pump.receive(), request);
        }
        // Simulate the death of the pump's process.
        let (client, server) = &pump.ends;
        let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
        pump.reactor = Reactor::new().unwrap();
        pump.program.write_all(b"three").unwrap();
        pump.pump = Pump::new(ends.0.into(), ends.1.into(), &mut pump.reactor, |side| side).unwrap();
        assert_eq!(pump.receive(), b"three");
        assert!(!pump.is_left());
        pump.program.write_all(b"four").unwrap();
        assert_eq!(pump.receive(), b"four");
        assert!(!pump.is_left());
    }

    #[test]
    fn unanswered_program_reads_end_of_file() {
        let mut pump = ManualPump::new();
        pump.program.write_all(b"ask").unwrap();
        assert_eq!(pump.receive(), b"ask");
        pump.pump.close(&mut pump.reactor);
        drop(pump.ends);
        assert_eq!(all(&mut pump.program), b"");
    }

    #[test]
    fn half_close_keeps_the_other_direction_open() {
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
