//! Runs a session: starts the launcher with taps in it, reads what they tell, and waits for the end.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, test_kill_process};

use super::notice::DATAGRAM;
use super::place;
use super::recording::Recording;
use super::tap::{self, FIRST};
use crate::process::child::Child;
use crate::process::context;
use crate::process::procfs::Stat;
use crate::process::reactor::{Reactor, Wanted};
use crate::process::scratch::scratch_folder;
use crate::process::stop::StopSignals;
use crate::process::tree::{become_subreaper, end_descendants};
use pmi_judge::event::{Event, Exit};
use pmi_wire::Proc;

/// How long programs may outlive their launcher and still be heard.
const GRACE: Duration = Duration::from_secs(2);

/// What a session came to.
pub struct Session {
    /// What was recorded.
    pub recording: Recording,
    /// How the launcher ended.
    pub exit: Exit,
    /// The user ended it.
    pub interrupted: bool,
    /// Wall time.
    pub time: Duration,
}

/// How a session is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As if we were not there: the launcher has our standard streams, and as much time as it takes.
    Transparent,
    /// Without standard streams, and ended with everything that it started once the time is up.
    Bounded(Duration),
}

/// Runs a command in which `{tap}` stands for the tap at `binary`, and shows every event to `sink`.
///
/// # Errors
///
/// The scratch folder or the socket cannot be made, or the launcher cannot be started.
pub fn run(
    command: &[String],
    binary: &Path,
    mode: Mode,
    signals: &mut StopSignals,
    sink: &mut dyn FnMut(&Event),
) -> io::Result<Session> {
    let scratch = scratch_folder()?;
    let socket = UnixDatagram::bind(scratch.path().join(tap::SOCKET))?;
    let tap = tap::make(binary, &scratch.path().join(FIRST))?;
    let command = place::filled(command, &tap);
    let mut launcher = Command::new(&command[0]);
    launcher.args(&command[1..]);
    if matches!(mode, Mode::Bounded(_)) {
        become_subreaper();
        launcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    }
    let start = Instant::now();
    let launcher =
        Child::start(launcher).map_err(context(format_args!("cannot start \"{}\"", command[0])))?;
    let pid = launcher.pid();
    let mut reactor = Reactor::new()?;
    reactor.add(&socket, (), Wanted::Read)?;
    reactor.add(launcher.pidfd(), (), Wanted::Read)?;
    reactor.add(&*signals, (), Wanted::Read)?;
    let mut running = Running {
        socket,
        launcher,
        reactor,
        recording: Recording::new(command),
        sink,
        exit: None,
        buffer: vec![0; DATAGRAM],
    };
    let interrupted = running.until_over(mode, signals, pid, start)?;
    let left = running.left();
    if matches!(mode, Mode::Bounded(_)) {
        end_descendants(pid.as_raw_nonzero().get());
    }
    let exit = running.exit.unwrap_or(Exit::Signal(Signal::KILL.as_raw()));
    let events = running.recording.job_exited(exit, left);
    running.show(events);
    Ok(Session { recording: running.recording, exit, interrupted, time: start.elapsed() })
}

struct Running<'a> {
    socket: UnixDatagram,
    launcher: Child,
    reactor: Reactor<()>,
    recording: Recording,
    sink: &'a mut dyn FnMut(&Event),
    exit: Option<Exit>,
    buffer: Vec<u8>,
}

impl Running<'_> {
    fn show(&mut self, events: Vec<Event>) {
        events.iter().for_each(|event| (self.sink)(event));
    }

    /// Reads until the launcher has ended, and its programs with it. Whether it was interrupted.
    fn until_over(
        &mut self,
        mode: Mode,
        signals: &mut StopSignals,
        pid: Pid,
        start: Instant,
    ) -> io::Result<bool> {
        let (mut interrupts, mut hung, mut ended) = (0, false, None);
        loop {
            // Interrupted or not, whatever is there is looked at.
            let _ = self.reactor.wait(Some(Duration::from_millis(50)));
            self.read();
            for signal in signals.take().into_iter().filter_map(Signal::from_named_raw) {
                interrupts += 1;
                let events = self.recording.interrupted();
                self.show(events);
                // What the terminal sends, the launcher has got as well.
                let has_it = signal == Signal::INT && mode == Mode::Transparent && is_foreground();
                if !has_it {
                    // Whoever insists is obeyed.
                    self.launcher.signal(if interrupts > 2 { Signal::KILL } else { signal });
                }
            }
            if let Mode::Bounded(time) = mode {
                if start.elapsed() > time && !hung && self.exit.is_none() {
                    hung = true;
                    let events = self.recording.hung();
                    self.show(events);
                    // First the gentle way, by which launchers end what they have started.
                    self.launcher.signal(Signal::TERM);
                }
                if start.elapsed() > time + GRACE || interrupts > 2 {
                    end_descendants(pid.as_raw_nonzero().get());
                }
            }
            if self.exit.is_none() {
                self.exit = self.launcher.try_wait();
            }
            if self.exit.is_some() {
                let since = *ended.get_or_insert_with(Instant::now);
                if self.left().is_empty() || since.elapsed() > GRACE {
                    // What was sent before the last look.
                    self.read();
                    return Ok(interrupts > 0);
                }
            }
        }
    }

    /// Processes that are still there. One that was killed together with its tap has not told of its end.
    fn left(&self) -> Vec<Proc> {
        let lives = |pid: i32| Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        self.recording.running().into_iter().filter(|(_, pid)| lives(*pid)).map(|(p, _)| p).collect()
    }

    fn read(&mut self) {
        while let Ok((_, size)) =
            rustix::net::recv(self.socket.as_fd(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT)
        {
            let events = self.recording.datagram(&self.buffer[..size.min(DATAGRAM)]);
            self.show(events);
        }
    }
}

/// Whether we, and with us the launcher, are what the terminal sends its signals to.
fn is_foreground() -> bool {
    // Our group, and the one that the terminal listens to.
    Stat::of(rustix::process::getpid().as_raw_nonzero().get())
        .is_some_and(|stat| stat.field(5).is_some() && stat.field(5) == stat.field(8))
}
