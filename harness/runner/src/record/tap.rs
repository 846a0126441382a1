//! The tap: stands where the program was to be started, starts it, carries its connection, and ends as it does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use super::notice::{Head, Notice};
use super::pump::{Owner, Pump, Side, State};
use super::rewrite::Rewriter;
use crate::agent;
use crate::process::child::Child;
use crate::process::connection::pair;
use crate::process::procfs::is_exiting;
use crate::process::reactor::{Reactor, Wanted};
use pmi_judge::event::{Bytes, Exit};

/// File name by which the binary knows that it is to be a tap.
pub const NAME: &str = "pmi-conform-tap";

/// Name of the recorder's socket, in the folder above the tap's.
pub(super) const SOCKET: &str = "recorder";

/// Folder of the taps of the process group that the launcher starts.
pub(super) const FIRST: &str = "first";

/// In the folder of a spawned tap: the name of its program.
const PROGRAM: &str = "program";

/// Holds HOST:PORT where the process manager connects no descriptor before.
const PORT: &str = "PMI_PORT";

/// How long a recorder may keep the session waiting. After that it goes on unrecorded.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of the arguments that are told.
const ARGS: usize = 32 * 1024;

/// Whether whoever started us ignores SIGPIPE, and so does the program then. Asked before Rust's runtime ignores it.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "there is no other way to run before main")]
// SAFETY: the loader calls the functions of this section, without arguments that matter here.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_sigpipe;

#[expect(unsafe_code, reason = "neither std nor rustix tells the disposition of a signal")]
extern "C" fn note_sigpipe() {
    // SAFETY: all bits zero is a valid sigaction, and sigaction only fills it.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether the program was started as a tap: by the name of its file, or by what it was told is its name.
pub fn is_tap(argv0: &OsString) -> bool {
    own_path(argv0).is_some()
}

fn own_path(argv0: &OsString) -> Option<PathBuf> {
    let told = Some(PathBuf::from(argv0));
    agent::executed_as()
        .into_iter()
        .chain(told)
        .find(|path| path.file_name().is_some_and(|name| name == NAME))
}

/// Runs as a tap; returns the exit status.
pub fn main(argv: Vec<OsString>) -> u8 {
    run(argv).unwrap_or_else(|error| {
        eprintln!("{NAME}: {error}");
        // As shells have it.
        if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    })
}

/// Makes the tap of a folder; returns its path.
pub(super) fn make(binary: &Path, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir(folder)?;
    let path = folder.join(NAME);
    std::os::unix::fs::symlink(binary, &path)?;
    Ok(path)
}

fn run(mut argv: Vec<OsString>) -> io::Result<u8> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let path = argv.first().and_then(own_path).ok_or_else(|| wrong("started without a name"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let (Some(place), Some(scratch)) = (folder.file_name().and_then(OsStr::to_str), folder.parent()) else {
        return Err(wrong("started by another path than {tap} stands for"));
    };
    argv.remove(0);
    if let Ok(name) = std::fs::read(folder.join(PROGRAM)) {
        argv.insert(0, OsString::from_vec(name));
    }
    if argv.is_empty() {
        return Err(wrong("no program to start: write {tap} in front of one"));
    }
    let cannot = |e: io::Error| {
        io::Error::new(e.kind(), format!("cannot start {}: {e}", argv[0].as_bytes().escape_ascii()))
    };
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    // Those that come are read from a descriptor.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    prepare(&mut command, mask);
    let Some(mut reporter) = Reporter::connect(scratch) else {
        return Err(cannot(command.exec()));
    };
    let connection = agent::pmi_fd();
    // Who has a port in place of a descriptor lacks nothing.
    let by_port = std::env::var_os("PMI_FD").is_none() && std::env::var_os(PORT).is_some();
    let bad_fd = connection.as_ref().err().filter(|_| !by_port).map(ToString::to_string);
    reporter.started(place, &argv[1..], bad_fd);
    let signals = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut between = Between::new(&signals)?;
    let mut inherited = None;
    match (connection, std::env::var(PORT)) {
        (Ok(mut fd), _) => {
            let server = rustix::io::fcntl_dupfd_cloexec(&fd, 3)?;
            let (client, theirs) = pair()?;
            // The program finds its end under the number that it was told.
            rustix::io::dup2(&theirs, &mut fd)?;
            inherited = Some(fd);
            between.carry(client, server)?;
        }
        (Err(_), Ok(port)) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            command.env(PORT, listener.local_addr()?.to_string());
            between.listen(listener, port)?;
        }
        (Err(_), Err(_)) => {}
    }
    let program = Child::start(command).map_err(cannot)?;
    drop(inherited);
    let pid = program.pid();
    let tap = Tap {
        reporter,
        rewriter: Rewriter::default(),
        scratch: scratch.to_owned(),
        spawned: 0,
        program: pid,
    };
    stand_in(between, tap, program, &signals)
}

/// What the tap waits for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Listener,
    Pump(Side),
}

/// What is between the program and the process manager.
struct Between {
    reactor: Reactor<Source>,
    pump: Option<Pump>,
    /// Where the program connects to, and what the process manager's PMI_PORT was.
    listens: Option<(TcpListener, String)>,
}

impl Between {
    fn new(signals: &SignalFd) -> io::Result<Self> {
        let mut reactor = Reactor::new()?;
        reactor.add(signals, Source::Signals, Wanted::Read)?;
        Ok(Self { reactor, pump: None, listens: None })
    }

    fn carry(&mut self, client: OwnedFd, server: OwnedFd) -> io::Result<()> {
        self.close();
        self.pump = Some(Pump::new(client, server, &mut self.reactor, Source::Pump)?);
        Ok(())
    }

    fn listen(&mut self, listener: TcpListener, port: String) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.reactor.add(&listener, Source::Listener, Wanted::Read)?;
        self.listens = Some((listener, port));
        Ok(())
    }

    fn close(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.close(&mut self.reactor);
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all: Vec<RawFd> = self.pump.iter().flat_map(Pump::descriptors).collect();
        all.extend(self.listens.iter().map(|(listener, _)| listener.as_raw_fd()));
        all.push(self.reactor.descriptor());
        all
    }

    /// Takes the program's connection on to the process manager. Where that does not listen, it ends.
    fn accept(&mut self) -> io::Result<()> {
        let Some((listener, port)) = &self.listens else { return Ok(()) };
        let (client, _) = listener.accept()?;
        let server = TcpStream::connect(port.as_str())?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        self.carry(client.into(), server.into())
    }
}

/// Lets the program have the signals as we were given them, and not outlive us if we are killed in its place.
#[expect(unsafe_code, reason = "what runs just before exec")]
fn prepare(command: &mut Command, mask: SigSet) {
    // SAFETY: these calls may be made between fork and exec.
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

/// Carries the bytes while the program runs, passes signals on, and ends as it has ended.
///
/// A connection that ends with its program must end with us, closed by the kernel when our own status is settled: Hydra
/// kills the processes of a group of which one has closed its connection, and would find us alive. Nor may it come later,
/// since Hydra takes no notice of it once it has reaped the process.
fn stand_in(mut between: Between, mut tap: Tap, mut program: Child, signals: &SignalFd) -> io::Result<u8> {
    let forwards = leave_group();
    let mut kept = vec![tap.reporter.socket.as_raw_fd(), signals.as_raw_fd(), program.pidfd().as_raw_fd()];
    kept.extend(between.descriptors());
    // Who waits for the end of the program's output must not wait for ours.
    close_all_but(&kept);
    let mut exit = None;
    while exit.is_none() {
        for ready in between.reactor.wait(None)? {
            match ready.source {
                Source::Signals => {
                    pass_on(signals, tap.program, forwards);
                    // One SIGCHLD may stand for several, so it is asked in any case.
                    exit = program.try_wait();
                }
                // If it fails, the program sees the end of its connection.
                Source::Listener => _ = between.accept(),
                Source::Pump(side) => {
                    let Some(pump) = &mut between.pump else { continue };
                    match pump.carry(side, &mut tap, &mut between.reactor) {
                        Ok(State::Open) => {}
                        Ok(State::Over) if is_exiting(tap.program) => std::mem::forget(between.pump.take()),
                        Ok(State::Over) | Err(_) => between.close(),
                    }
                }
            }
        }
    }
    let exit = program.wait();
    // All that it wrote is there by now, and its end of the connection is closed.
    if let Some(mut pump) = between.pump {
        let side = |source| match source {
            Source::Pump(side) => Some(side),
            Source::Signals | Source::Listener => None,
        };
        if let Ok(State::Open) = pump.drain(&mut tap, &mut between.reactor, side) {
            // Somebody else has the connection, a child of the program's: it goes on without us.
            // SAFETY: there is one thread, so that the child may do anything.
            #[expect(unsafe_code, reason = "a process that goes on without exec")]
            if unsafe { libc::fork() } == 0 {
                let _ = rustix::process::setsid();
                loop {
                    for side in between.reactor.wait(None)?.into_iter().filter_map(|r| side(r.source)) {
                        if pump.carry(side, &mut tap, &mut between.reactor)? == State::Over {
                            return Ok(0);
                        }
                    }
                }
            }
        }
        std::mem::forget(pump);
    }
    tap.reporter.tell(Notice::Ended(exit), &[]);
    Ok(end_like(exit))
}

/// Leaves the process group, so that what is sent to the group comes to the program once, and what is sent to us can be
/// passed on. The leader of a session cannot, and who made it one sends to the group: then nothing is passed on.
fn leave_group() -> bool {
    let me = rustix::process::getpid();
    if rustix::process::getpgrp() != me {
        return rustix::process::setpgid(None, None).is_ok();
    }
    // A leader may only enter another group, so there has to be one.
    // SAFETY: there is one thread; the child waits to be killed.
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

/// Passes signals on.
fn pass_on(signals: &SignalFd, program: Pid, forwards: bool) {
    while let Ok(Some(info)) = signals.read_signal() {
        let signal = info.ssi_signo as i32;
        if signal != libc::SIGCHLD && forwards {
            // SAFETY: a plain system call. Signals without a name, the real-time ones, are passed on as well.
            #[expect(unsafe_code, reason = "rustix has no signals without a name")]
            unsafe {
                libc::kill(program.as_raw_nonzero().get(), signal)
            };
        }
    }
}

/// Dies of the signal, or gives the status to exit with.
fn end_like(exit: Exit) -> u8 {
    match exit {
        Exit::Code(status) => status as u8,
        Exit::Signal(signal) => {
            // Without the right to dump there is no core file of ours.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
            if signal_hook::low_level::emulate_default_handler(signal).is_err() {
                // A real-time signal, which has no handler here.
                let _ = signal_hook::low_level::raise(signal);
                let _ = SigSet::empty().thread_set_mask();
            }
            (128 + signal) as u8
        }
    }
}

fn close_all_but(kept: &[RawFd]) {
    let open: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(all) => all.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (0..1024).collect(),
    };
    for fd in open.into_iter().filter(|fd| !kept.contains(fd)) {
        // Nothing of this process uses any of them.
        let _ = nix::unistd::close(fd);
    }
    // The numbers of the standard streams must not be given to anything else.
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
        if null.as_raw_fd() <= 2 {
            let _ = null.into_raw_fd();
        }
    }
}

struct Tap {
    reporter: Reporter,
    rewriter: Rewriter,
    scratch: PathBuf,
    spawned: u32,
    program: Pid,
}

impl Owner for Tap {
    fn piece(&mut self, from: Side, bytes: &[u8]) -> Vec<u8> {
        let Self { reporter, rewriter, scratch, spawned, .. } = self;
        if from == Side::Server {
            reporter.tell(Notice::FromServer, bytes);
            rewriter.hear(bytes);
            return bytes.to_vec();
        }
        let out = rewriter.pass(bytes, |name| {
            *spawned += 1;
            let place = format!("by-{}-{spawned}", reporter.pid);
            let folder = scratch.join(&place);
            // Without a tap the program is started all the same, and not heard.
            let path = make(&std::env::current_exe().ok()?, &folder).ok()?;
            std::fs::write(folder.join(PROGRAM), name).ok()?;
            reporter.tell(Notice::Spawns { folder: place }, &[]);
            Some(path.into_os_string().into_vec())
        });
        reporter.tell(Notice::ToServer, bytes);
        out
    }

    fn closed(&mut self, by: Side) -> Vec<u8> {
        let (what, rest) = match by {
            Side::Client => (Notice::ClosedByClient, self.rewriter.finish()),
            Side::Server => (Notice::ClosedByServer, Vec::new()),
        };
        self.reporter.tell(what, &[]);
        rest
    }

    fn client_is_ending(&mut self) -> bool {
        is_exiting(self.program)
    }
}

/// The way to the recorder.
struct Reporter {
    socket: UnixDatagram,
    pid: i32,
    lost: bool,
}

impl Reporter {
    /// `None` if there is no recorder any more.
    fn connect(scratch: &Path) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(scratch.join(SOCKET)).ok()?;
        socket.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Self { socket, pid: std::process::id() as i32, lost: false })
    }

    fn started(&mut self, place: &str, args: &[OsString], bad_fd: Option<String>) {
        let env: BTreeMap<String, String> = agent::protocol_environment();
        let mut room = ARGS;
        let args = args
            .iter()
            .map_while(|arg| {
                room = room.checked_sub(arg.len() + 1)?;
                Some(Bytes(arg.as_bytes().to_vec()))
            })
            .collect();
        self.tell(Notice::Started { folder: place.to_owned(), env, args, bad_fd }, &[]);
    }

    /// Tells the recorder before anything else happens. Once it does not listen, the session goes on without it.
    fn tell(&mut self, what: Notice, bytes: &[u8]) {
        let datagram = Head { pid: self.pid, what }.datagram(bytes);
        while !self.lost {
            match self.socket.send(&datagram) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return self.lost = sent.is_err(),
            }
        }
    }
}
