//! The tap, which a launcher starts in place of the program. It starts the program, passes the program's connection to the recorder, and
//! then exits or dies in the same way as the program.

pub(crate) mod notice;
pub mod position;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pmi_process::agent;
use pmi_process::agent::channel::Channel;
use pmi_process::child::Child;
use pmi_process::connection::pair;
use pmi_process::descriptors;
use pmi_process::observe::procfs::is_exiting;
use pmi_process::reactor::{Reactor, ReactorKey, WatchMode};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use crate::peer_identity::{self, PORT};
use crate::pump::{MAX_READ, Pump, PumpHandler, PumpSide, PumpState};
use notice::{Notice, RecorderMessage, Start};
use pmi_judge::event::{Bytes, Exit};

/// File name that makes the binary act as a tap.
pub const NAME: &str = "pmi-conform-tap";

/// Name of the recorder's socket, in the parent of the tap's folder.
pub(crate) const SOCKET: &str = "recorder";

/// Folder of the tap for the process group that the launcher starts.
pub(crate) const FIRST_FOLDER: &str = "first";

/// Name of the file that contains the program's name, in the folder of a spawned tap.
const PROGRAM: &str = "program";

/// Maximum wait for the recorder after the program has ended.
const RECORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of argument bytes that are reported.
const MAX_ARGS_SIZE: usize = 32 * 1024;

/// True if the tap was started with SIGPIPE ignored. The program must then ignore SIGPIPE as well. The value is determined before Rust's
/// runtime ignores SIGPIPE.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "only a function in .init_array runs before main")]
// SAFETY: the loader calls every function in this section. `note_sigpipe` does not use the arguments of the call.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_sigpipe;

#[expect(unsafe_code, reason = "neither std nor rustix returns the disposition of a signal")]
extern "C" fn note_sigpipe() {
    // SAFETY: a sigaction may be all zeros, and the call only fills it.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Returns whether the program was started as a tap, according to the name of its file or its `argv[0]`.
pub fn is_tap(argv0: &OsString) -> bool {
    own_path(argv0).is_some()
}

fn own_path(argv0: &OsString) -> Option<PathBuf> {
    let argument = Some(PathBuf::from(argv0));
    agent::executed_as()
        .into_iter()
        .chain(argument)
        .find(|path| path.file_name().is_some_and(|name| name == NAME))
}

/// Runs as a tap. Returns the exit status.
pub fn main(argv: Vec<OsString>) -> u8 {
    run(argv).unwrap_or_else(|error| {
        eprintln!("{NAME}: {error}");
        status_of(&error)
    })
}

/// Returns the exit status that shells use for a program that cannot be started.
fn status_of(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// Creates a tap in a new folder. Returns the path of the tap.
pub(crate) fn make(binary: &Path, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir(folder)?;
    let path = folder.join(NAME);
    std::os::unix::fs::symlink(binary, &path)?;
    Ok(path)
}

/// Creates a tap for the program with the given name. Returns the path of the tap.
pub(crate) fn make_for(program: &[u8], binary: &Path, folder: &Path) -> io::Result<PathBuf> {
    let path = make(binary, folder)?;
    std::fs::write(folder.join(PROGRAM), program)?;
    Ok(path)
}

fn run(mut argv: Vec<OsString>) -> io::Result<u8> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let wrong_path = || wrong("not started through the path of {tap}");
    let path = argv.first().and_then(own_path).ok_or_else(wrong_path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let (Some(place), Some(scratch)) = (folder.file_name().and_then(OsStr::to_str), folder.parent()) else {
        return Err(wrong_path());
    };
    argv.remove(0);
    if let Ok(name) = std::fs::read(folder.join(PROGRAM)) {
        argv.insert(0, OsString::from_vec(name));
    }
    if argv.is_empty() {
        return Err(wrong("no program to start: write {tap} before a program"));
    }
    let cannot = |e: io::Error| {
        io::Error::new(e.kind(), format!("cannot start {}: {e}", argv[0].as_bytes().escape_ascii()))
    };
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    // Signals are blocked and read from a descriptor.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    prepare(&mut command, mask);
    let connection = agent::pmi_fd();
    // A process with PMI_PORT does not need PMI_FD, so a missing PMI_FD is not reported as a problem.
    let by_port = std::env::var_os("PMI_FD").is_none() && std::env::var_os(PORT).is_some();
    let bad_fd = connection.as_ref().err().filter(|_| !by_port).map(ToString::to_string);
    let Some(recorder) = connect(scratch, Start::of_ours(place, &argv[1..], bad_fd)) else {
        // The descriptor must stay open, because the program replaces this process and inherits it.
        connection.into_iter().for_each(std::mem::forget);
        return Err(cannot(command.exec()));
    };
    let signals = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut link = TapLink::new(&signals, recorder)?;
    let mut inherited = None;
    match (connection, std::env::var(PORT)) {
        (Ok(mut fd), _) => {
            let server = rustix::io::fcntl_dupfd_cloexec(&fd, 3)?;
            let (client, theirs) = pair()?;
            // The program's end of the connection must have the descriptor number that PMI_FD states.
            rustix::io::dup2(&theirs, &mut fd)?;
            inherited = Some(fd);
            link.pass_to_recorder(client, server)?;
        }
        (Err(_), Ok(port)) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            command.env(PORT, listener.local_addr()?.to_string());
            link.listen(listener, port)?;
        }
        (Err(_), Err(_)) => {}
    }
    let program = match Child::start(command).map_err(cannot) {
        Ok(program) => program,
        Err(error) => {
            drop(inherited);
            link.send_notice(&Notice::NotStarted(error.to_string()));
            let status = status_of(&error);
            link.finish(
                Exit::Code(status.into()),
                &mut ForwardingHandler { program: rustix::process::getpid() },
            )?;
            return Err(error);
        }
    };
    drop(inherited);
    link.send_notice(&Notice::Running(program.pid().as_raw_nonzero().get()));
    supervise(link, program, &signals)
}

/// A descriptor on which the tap waits for events.
#[derive(Clone, Copy)]
enum TapSource {
    Signals,
    Listener,
    Recorder,
    Pump(PumpSide),
}

/// The connection between the program and the process manager.
struct TapLink {
    reactor: Reactor<TapSource>,
    /// The channel to the recorder, and the channel's key in the reactor; `None` after the recorder has exited.
    recorder: Option<(Channel, ReactorKey)>,
    /// Both ends of the connection while the recorder forwards bytes: first the end to the program, then the end to the process manager.
    held_ends: Option<(OwnedFd, OwnedFd)>,
    /// The pump between both ends, after the recorder has exited.
    pump: Option<Pump>,
    /// The listener to which the program connects, and the process manager's PMI_PORT.
    listens: Option<(TcpListener, String)>,
    buffer: Vec<u8>,
}

impl TapLink {
    fn new(signals: &SignalFd, recorder: Channel) -> io::Result<Self> {
        let mut reactor = Reactor::new()?;
        reactor.add(signals, TapSource::Signals, WatchMode::Read)?;
        let key = reactor.add(&recorder, TapSource::Recorder, WatchMode::Read)?;
        let recorder = Some((recorder, key));
        Ok(Self { reactor, recorder, held_ends: None, pump: None, listens: None, buffer: Vec::new() })
    }

    fn send_notice(&mut self, notice: &Notice) {
        if let Some((recorder, _)) = &mut self.recorder {
            recorder.send(notice);
        }
    }

    /// Passes both ends to the recorder, which forwards the messages from then on.
    fn pass_to_recorder(&mut self, client: OwnedFd, server: OwnedFd) -> io::Result<()> {
        self.close();
        let Some((recorder, _)) = &mut self.recorder else { return self.forward(client, server) };
        // If this fails, the recorder has exited, which the end of the channel will show.
        let _ = recorder.send_with_descriptors(&Notice::Connected, &[client.as_fd(), server.as_fd()]);
        self.held_ends = Some((client, server));
        Ok(())
    }

    fn forward(&mut self, client: OwnedFd, server: OwnedFd) -> io::Result<()> {
        self.buffer.resize(MAX_READ, 0);
        self.pump = Some(Pump::new(client, server, &mut self.reactor, TapSource::Pump)?);
        Ok(())
    }

    fn listen(&mut self, listener: TcpListener, port: String) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.reactor.add(&listener, TapSource::Listener, WatchMode::Read)?;
        self.listens = Some((listener, port));
        Ok(())
    }

    /// Returns the descriptors that the tap uses.
    fn descriptors(&self) -> Vec<RawFd> {
        let held =
            self.held_ends.iter().flat_map(|(client, server)| [client.as_raw_fd(), server.as_raw_fd()]);
        let recorder = self.recorder.iter().map(|(recorder, _)| recorder.as_fd().as_raw_fd());
        let listener = self.listens.iter().map(|(listener, _)| listener.as_raw_fd());
        held.chain(recorder).chain(listener).chain([self.reactor.descriptor()]).collect()
    }

    fn close(&mut self) {
        self.held_ends = None;
        if let Some(pump) = self.pump.take() {
            pump.close(&mut self.reactor);
        }
    }

    /// Handles the messages from the recorder. Returns whether the tap may end.
    fn receive(&mut self) -> bool {
        let Some((recorder, key)) = &mut self.recorder else { return true };
        let words = recorder.messages::<RecorderMessage>();
        if words.contains(&RecorderMessage::Done) {
            return true;
        }
        let is_over = recorder.is_over();
        if is_over {
            self.reactor.remove(*key);
            self.recorder = None;
        }
        if words.contains(&RecorderMessage::Close) {
            self.close();
        }
        if is_over && let Some((client, server)) = self.held_ends.take() {
            // If this fails, the program sees the end of its connection.
            let _ = self.forward(client, server);
        }
        false
    }

    /// Connects the program to the process manager. If the process manager is not listening, the program's connection is closed. A
    /// connection that is reset before the tap accepts it is ignored.
    fn accept(&mut self) -> io::Result<()> {
        while let Some((listener, port)) = &self.listens {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            if peer_identity::is_stranger(&client, &listener.local_addr()?.to_string()) {
                continue;
            }
            let server = TcpStream::connect(port.as_str())?;
            for stream in [&client, &server] {
                stream.set_nodelay(true)?;
            }
            self.pass_to_recorder(client.into(), server.into())?;
        }
        Ok(())
    }

    /// Forwards the available bytes after the recorder has exited.
    fn carry(&mut self, side: PumpSide, handler: &mut ForwardingHandler) -> PumpState {
        let Some(pump) = &mut self.pump else { return PumpState::Over };
        pump.carry(side, handler, &mut self.reactor, &mut self.buffer)
    }

    /// Forwards everything that the program wrote before it ended. Returns true if another process still has the program's connection open.
    /// Bytes must then still be forwarded.
    fn finish(&mut self, exit: Exit, handler: &mut ForwardingHandler) -> io::Result<bool> {
        self.send_notice(&Notice::Ended(exit));
        let deadline = Instant::now() + RECORDER_TIMEOUT;
        while self.recorder.is_some() && !self.receive() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.recorder.is_some() {
                self.reactor.wait(Some(left))?;
            }
        }
        loop {
            let Some(pump) = &mut self.pump else { return Ok(false) };
            match pump.drain(handler, &mut self.reactor, &mut self.buffer) {
                PumpState::Open if pump.is_blocked() => _ = self.reactor.wait(None)?,
                PumpState::Open => return Ok(true),
                PumpState::Over => return Ok(false),
            }
        }
    }
}

/// A pump handler that forwards bytes unchanged, without a recorder.
struct ForwardingHandler {
    program: Pid,
}

impl PumpHandler for ForwardingHandler {
    fn forward<'a>(&mut self, _: PumpSide, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        bytes.into()
    }
    fn closed(&mut self, _: PumpSide, _: bool) -> Vec<u8> {
        Vec::new()
    }
    fn client_is_ending(&mut self) -> bool {
        is_exiting(self.program)
    }
}

/// Prepares a command to restore the signal settings with which the tap was started, and to be killed by the kernel if the tap is killed.
#[expect(unsafe_code, reason = "the closure runs just before exec")]
fn prepare(command: &mut Command, mask: SigSet) {
    // SAFETY: the closure makes only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if SIGPIPE_IGNORED.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            #[cfg(target_os = "linux")]
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(mask.thread_set_mask()?)
        });
    }
}

/// Forwards signals while the program runs, and then exits with the status of the program.
///
/// If a connection ends because the program ends, the connection must end together with the tap: the kernel must close it as the tap exits.
/// If the connection ended earlier, Hydra would kill the tap, because it kills the processes of a group when one of them closes its
/// connection. If the connection ended later, Hydra would ignore the end of the connection, because it would already have reaped the tap.
/// Therefore the tap keeps both ends open until it exits, even if the recorder forwards the messages.
fn supervise(mut link: TapLink, mut program: Child, signals: &SignalFd) -> io::Result<u8> {
    let forwards = leave_group();
    let mut handler = ForwardingHandler { program: program.pid() };
    let mut kept = link.descriptors();
    kept.extend([signals.as_raw_fd(), program.pidfd().as_raw_fd()]);
    // The tap closes its output, because a reader of the program's output must not wait for the end of the tap.
    close_others(kept);
    let mut exit = None;
    while exit.is_none() {
        for ready in link.reactor.wait(None)? {
            match ready.source {
                TapSource::Signals => {
                    pass_on(signals, handler.program, forwards);
                    // Several pending signals of the same kind are delivered as one, so the exit is checked after every signal.
                    exit = program.try_wait();
                }
                // If this fails, the program sees the end of its connection.
                TapSource::Listener => _ = link.accept(),
                TapSource::Recorder => _ = link.receive(),
                TapSource::Pump(side) => match link.carry(side, &mut handler) {
                    PumpState::Open => {}
                    PumpState::Over if is_exiting(handler.program) => std::mem::forget(link.pump.take()),
                    PumpState::Over => link.close(),
                },
            }
        }
    }
    let exit = program.wait();
    // Everything that the program wrote has arrived by now, and the program's end of the connection is closed. SAFETY: this process has a
    // single thread, so the child may call any function.
    #[expect(unsafe_code, reason = "a process that continues without exec")]
    if link.finish(exit, &mut handler)? && unsafe { libc::fork() } == 0 {
        let _ = rustix::process::setsid();
        loop {
            for ready in link.reactor.wait(None)? {
                if let TapSource::Pump(side) = ready.source
                    && link.carry(side, &mut handler) == PumpState::Over
                {
                    return Ok(0);
                }
            }
        }
    }
    std::mem::forget(link);
    Ok(exit_like(exit))
}

/// Leaves the process group, so that a signal to the group reaches the program only once, and a signal to the tap can be forwarded. Returns
/// whether the tap has left the group. A session leader cannot leave its group. Signals to a session leader are usually sent to the whole
/// group, so they need not be forwarded.
fn leave_group() -> bool {
    let me = rustix::process::getpid();
    if rustix::process::getpgrp() != me {
        return rustix::process::setpgid(None, None).is_ok();
    }
    // A group leader can move only to an existing group, so a child creates one. SAFETY: this process has a single thread, and the child
    // only waits to be killed.
    #[expect(unsafe_code, reason = "a process that does nothing")]
    let other = unsafe {
        let child = libc::fork();
        if child == 0 {
            loop {
                libc::pause();
            }
        }
        child
    };
    let Some(other) = Pid::from_raw(other).filter(|_| other > 0) else { return false };
    let done = rustix::process::setpgid(Some(other), Some(other)).is_ok()
        && rustix::process::setpgid(None, Some(other)).is_ok();
    let _ = rustix::process::kill_process(other, Signal::KILL);
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitpid(Some(other), WaitOptions::empty()) {}
    done
}

/// Reads the pending signals, and forwards them to the program if `forwards` is true.
fn pass_on(signals: &SignalFd, program: Pid, forwards: bool) {
    while let Ok(Some(info)) = signals.read_signal() {
        let signal = info.ssi_signo as i32;
        if signal != libc::SIGCHLD && forwards {
            // SAFETY: all arguments are integers. Real-time signals, which have no name, are forwarded as well.
            #[expect(unsafe_code, reason = "rustix supports only signals with a name")]
            unsafe {
                libc::kill(program.as_raw_nonzero().get(), signal)
            };
        }
    }
}

/// Kills this process with the signal that killed the program, if there was one. Otherwise, returns the program's exit status, with which
/// this process must exit.
fn exit_like(exit: Exit) -> u8 {
    match exit {
        Exit::Code(status) => status as u8,
        Exit::Signal(signal) => {
            // The program may already have dumped core, so this process must not overwrite the core file with its own.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
            if signal_hook::low_level::emulate_default_handler(signal).is_err() {
                // `emulate_default_handler` does not support real-time signals, so such a signal is raised directly.
                let _ = signal_hook::low_level::raise(signal);
                let _ = SigSet::empty().thread_set_mask();
            }
            (128 + signal) as u8
        }
    }
}

fn close_others(kept: Vec<RawFd>) {
    descriptors::close_all_but(kept);
    // The numbers of the standard streams must not be reused, so they refer to /dev/null.
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
        if null.as_raw_fd() <= 2 {
            let _ = null.into_raw_fd();
        }
    }
}

/// Connects to the recorder, and reports the start of the program. Returns `None` if the recorder has exited.
fn connect(scratch: &Path, start: Start) -> Option<Channel> {
    let mut recorder = Channel::new(UnixStream::connect(scratch.join(SOCKET)).ok()?);
    recorder.send_whole(&Notice::Started(start)).ok()?;
    Some(recorder)
}

impl Start {
    /// Returns the properties of the program that this tap starts.
    fn of_ours(place: &str, args: &[OsString], bad_fd: Option<String>) -> Self {
        let mut room = MAX_ARGS_SIZE;
        let args = args
            .iter()
            .map_while(|arg| {
                room = room.checked_sub(arg.len() + 1)?;
                Some(Bytes(arg.as_bytes().to_vec()))
            })
            .collect();
        let pid = std::process::id() as i32;
        Self { pid, folder: place.to_owned(), env: agent::protocol_environment(), args, bad_fd }
    }
}
