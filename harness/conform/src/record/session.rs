//! Runs a session: starts the launcher with taps in it, reads what they tell, and waits for the end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};

use super::book::Book;
use super::place;
use super::tap::{self, FIRST};
use super::told::DATAGRAM;
use crate::event::{Event, Exit, Proc};
use crate::launch::procfs::Stat;
use crate::launch::{become_subreaper, end_descendants, scratch_folder};

/// How long programs may outlive their launcher and still be heard.
const GRACE: Duration = Duration::from_secs(2);

/// What a session came to.
pub struct Session {
    /// What was recorded.
    pub book: Book,
    /// How the launcher ended.
    pub exit: Exit,
    /// The user ended it.
    pub interrupted: bool,
    /// The time was up.
    pub hung: bool,
    /// Processes that were still running when the recording ended.
    pub left: Vec<Proc>,
    /// Wall time.
    pub time: Duration,
}

/// How a session is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As if we were not there: the launcher has our standard streams, and as much time as it takes.
    Transparent,
    /// Without standard streams, and ended with everything that it started once the time is up.
    Bounded(Duration),
}

/// Signals that ask for an end, counted as they come.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, Arc<AtomicUsize>)>);

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn catch() -> io::Result<Self> {
        let catch = |signal: Signal| {
            let count = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&count);
            #[expect(unsafe_code, reason = "a handler")]
            // SAFETY: adding to an atomic number is allowed in a handler.
            unsafe {
                signal_hook::low_level::register(signal.as_raw(), move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                })?;
            }
            io::Result::Ok((signal, count))
        };
        [Signal::INT, Signal::TERM, Signal::HUP].into_iter().map(catch).collect::<io::Result<_>>().map(Self)
    }

    /// Those that have come since the last call.
    fn take(&self) -> Vec<Signal> {
        self.0.iter().filter(|(_, count)| count.swap(0, Ordering::Relaxed) > 0).map(|(s, _)| *s).collect()
    }
}

/// Runs a command in which `{tap}` stands for our binary at `binary`, and shows every event to `sink`.
///
/// # Errors
///
/// The scratch folder or the socket cannot be made, or the launcher cannot be started.
pub fn run(
    command: &[String],
    binary: &Path,
    manner: Manner,
    signals: &Signals,
    sink: &mut dyn FnMut(&Event),
) -> io::Result<Session> {
    let scratch = scratch_folder()?;
    let socket = UnixDatagram::bind(scratch.path().join(tap::SOCKET))?;
    let tap = tap::make(binary, &scratch.path().join(FIRST))?;
    let command = place::filled(command, &tap);
    let mut launcher = Command::new(&command[0]);
    launcher.args(&command[1..]);
    if matches!(manner, Manner::Bounded(_)) {
        become_subreaper();
        launcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    }
    let start = Instant::now();
    let launcher = launcher
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", command[0])))?;
    let pid = Pid::from_child(&launcher);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut running = Running {
        socket,
        launcher,
        pidfd,
        book: Book::new(command),
        sink,
        exit: None,
        buffer: vec![0; DATAGRAM],
    };
    let (interrupted, hung) = running.until_over(manner, signals, pid, start)?;
    let left = running.left();
    if matches!(manner, Manner::Bounded(_)) {
        end_descendants(pid.as_raw_nonzero().get());
    }
    let exit = running.exit.unwrap_or(Exit::Signal(Signal::KILL.as_raw()));
    for event in running.book.job_exited(exit) {
        (running.sink)(&event);
    }
    Ok(Session { book: running.book, exit, interrupted, hung, left, time: start.elapsed() })
}

struct Running<'a> {
    socket: UnixDatagram,
    launcher: Child,
    pidfd: OwnedFd,
    book: Book,
    sink: &'a mut dyn FnMut(&Event),
    exit: Option<Exit>,
    buffer: Vec<u8>,
}

impl Running<'_> {
    /// Reads until the launcher has ended, and its programs with it. Whether it was interrupted, and whether it hung.
    fn until_over(
        &mut self,
        manner: Manner,
        signals: &Signals,
        pid: Pid,
        start: Instant,
    ) -> io::Result<(bool, bool)> {
        let (mut interrupts, mut hung, mut ended) = (0, false, None);
        loop {
            self.wait(Duration::from_millis(50));
            self.read();
            for signal in signals.take() {
                interrupts += 1;
                self.book.interrupted();
                // What the terminal sends, the launcher has got as well.
                let has_it = signal == Signal::INT && manner == Manner::Transparent && is_foreground();
                if !has_it && self.exit.is_none() {
                    // Whoever insists is obeyed.
                    let _ = kill_process(pid, if interrupts > 2 { Signal::KILL } else { signal });
                }
            }
            if let Manner::Bounded(time) = manner {
                if start.elapsed() > time && !hung && self.exit.is_none() {
                    hung = true;
                    self.book.interrupted();
                    // First the gentle way, by which launchers end what they have started.
                    let _ = kill_process(pid, Signal::TERM);
                }
                if start.elapsed() > time + GRACE || interrupts > 2 {
                    end_descendants(pid.as_raw_nonzero().get());
                }
            }
            if self.exit.is_none() {
                self.exit = self.launcher.try_wait()?.map(exit_of);
            }
            if self.exit.is_some() {
                let since = *ended.get_or_insert_with(Instant::now);
                if self.left().is_empty() || since.elapsed() > GRACE {
                    // What was sent before the last look.
                    self.read();
                    return Ok((interrupts > 0, hung));
                }
            }
        }
    }

    /// Processes that are still there. One that was killed together with its tap has not told of its end.
    fn left(&self) -> Vec<Proc> {
        let lives = |pid: i32| Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        self.book.running().into_iter().filter(|(_, pid)| lives(*pid)).map(|(p, _)| p).collect()
    }

    fn wait(&self, time: Duration) {
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
        if self.exit.is_none() {
            fds.push(PollFd::new(&self.pidfd, PollFlags::IN));
        }
        // Interrupted or not, whatever is there is looked at.
        let _ = rustix::event::poll(&mut fds, Some(&time));
    }

    fn read(&mut self) {
        while let Ok((_, size)) =
            rustix::net::recv(self.socket.as_fd(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT)
        {
            for event in self.book.datagram(&self.buffer[..size.min(DATAGRAM)]) {
                (self.sink)(&event);
            }
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match status.signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.code().unwrap_or(255)),
    }
}

/// Whether we, and with us the launcher, are what the terminal sends its signals to.
fn is_foreground() -> bool {
    // Our group, and the one that the terminal listens to.
    Stat::of(rustix::process::getpid().as_raw_nonzero().get())
        .is_some_and(|stat| stat.field(5).is_some() && stat.field(5) == stat.field(8))
}
