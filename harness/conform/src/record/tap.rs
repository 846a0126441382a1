//! The tap: stands where the program was to be started, starts it, carries its connection, and ends as it does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::pump::{Owner, Pump, Side, Stop, Until};
use super::rewrite::Rewriter;
use super::told::{Head, Told};
use crate::agent;
use crate::event::{Bytes, Exit};
use crate::launch::procfs::is_exiting;

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
    let mask = block_signals()?;
    prepare(&mut command, mask);
    let Some(mut reporter) = Reporter::connect(scratch) else {
        return Err(cannot(command.exec()));
    };
    let connection = agent::pmi_fd();
    reporter.started(place, &argv[1..], connection.as_ref().err());
    let (mut between, mut inherited) = (Between::default(), None);
    match (connection, std::env::var(PORT)) {
        (Ok(mut fd), _) => {
            let server = rustix::io::fcntl_dupfd_cloexec(&fd, 3)?;
            let (client, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // The program finds its end under the number that it was told.
            rustix::io::dup2(&theirs, &mut fd)?;
            inherited = Some(fd);
            between.pump = Some(Pump::new(client, server)?);
        }
        (Err(_), Ok(port)) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            command.env(PORT, listener.local_addr()?.to_string());
            between.listens = Some((listener, port));
        }
        (Err(_), Err(_)) => {}
    }
    let child = command.spawn().map_err(cannot)?;
    drop(inherited);
    let program = Pid::from_child(&child);
    let tap =
        Tap { reporter, rewriter: Rewriter::default(), scratch: scratch.to_owned(), spawned: 0, program };
    stand_in(between, tap)
}

/// What is between the program and the process manager.
#[derive(Default)]
struct Between {
    pump: Option<Pump>,
    /// Where the program connects to, and what the process manager's PMI_PORT was.
    listens: Option<(TcpListener, String)>,
}

impl Between {
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all: Vec<RawFd> = self.pump.iter().flat_map(Pump::descriptors).collect();
        all.extend(self.listens.iter().map(|(listener, _)| listener.as_raw_fd()));
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
        self.pump = Some(Pump::new(client.into(), server.into())?);
        Ok(())
    }
}

/// Blocks all signals; those that come are read from a descriptor. Returns what was blocked before.
#[expect(unsafe_code, reason = "neither std nor rustix has signal masks")]
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: all bits zero is a valid sigset_t, and the calls fill the sets that they are given.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        match libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) {
            0 => Ok(before),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Lets the program have the signals as we were given them, and not outlive us if we are killed in its place.
#[expect(unsafe_code, reason = "what runs just before exec")]
fn prepare(command: &mut Command, mask: libc::sigset_t) {
    // SAFETY: these calls may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if SIGPIPE_IGNORED.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            #[cfg(target_os = "linux")]
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Carries the bytes while the program runs, passes signals on, and ends as it has ended.
///
/// A connection that ends with its program must end with us, closed by the kernel when our own status is settled: Hydra
/// kills the processes of a group of which one has closed its connection, and would find us alive. Nor may it come later,
/// since Hydra takes no notice of it once it has reaped the process.
fn stand_in(mut between: Between, mut tap: Tap) -> io::Result<u8> {
    let forwards = leave_group();
    let signals = signal_descriptor()?;
    let mut kept = vec![tap.reporter.socket.as_raw_fd(), signals.as_raw_fd()];
    kept.extend(between.descriptors());
    // Who waits for the end of the program's output must not wait for ours.
    close_all_but(&kept);
    let program = tap.program;
    let status = loop {
        match between.pump.as_mut().map(|pump| pump.run(&mut tap, Until::Woken(signals.as_fd()))) {
            Some(Ok(Stop::Over)) if is_exiting(program) => std::mem::forget(between.pump.take()),
            Some(Ok(Stop::Over) | Err(_)) => between.pump = None,
            Some(Ok(Stop::Waiting)) => {}
            None => {
                let mut fds = vec![PollFd::new(&signals, PollFlags::IN)];
                fds.extend(between.listens.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)));
                let _ = rustix::event::poll(&mut fds, None);
                if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
                    // The program sees the end of its connection.
                    let _ = between.accept();
                }
            }
        }
        if let Some(status) = read_signals(&signals, program, forwards)? {
            break status;
        }
    };
    // All that it wrote is there by now, and its end of the connection is closed.
    if let Some(mut pump) = between.pump {
        if let Ok(Stop::Waiting) = pump.run(&mut tap, Until::Quiet) {
            // Somebody else has the connection, a child of the program's: it goes on without us.
            // SAFETY: there is one thread, so that the child may do anything.
            #[expect(unsafe_code, reason = "a process that goes on without exec")]
            if unsafe { libc::fork() } == 0 {
                let _ = rustix::process::setsid();
                let _ = pump.run(&mut tap, Until::Over);
                return Ok(0);
            }
        }
        std::mem::forget(pump);
    }
    let exit = match status.terminating_signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.exit_status().unwrap_or(255)),
    };
    tap.reporter.tell(Told::Ended(exit), &[]);
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
    while let Err(Errno::INTR) = rustix::process::waitpid(Some(other), WaitOptions::empty()) {}
    done
}

fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled, and what signalfd returns is new and ours.
    #[expect(unsafe_code, reason = "rustix does not have it")]
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        match libc::signalfd(-1, &all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Passes signals on; the program's status once it has ended.
fn read_signals(signals: &OwnedFd, program: Pid, forwards: bool) -> io::Result<Option<WaitStatus>> {
    let mut info = [0; size_of::<libc::signalfd_siginfo>()];
    while let Ok(n) = rustix::io::read(signals, &mut info) {
        // The number stands first.
        let signal = i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        if n < info.len() {
            break;
        }
        if signal != libc::SIGCHLD && forwards {
            // SAFETY: a plain system call. Signals without a name, the real-time ones, are passed on as well.
            #[expect(unsafe_code, reason = "rustix has no signals without a name")]
            unsafe {
                libc::kill(program.as_raw_nonzero().get(), signal)
            };
        }
    }
    // One SIGCHLD may stand for several, so it is asked in any case.
    match rustix::process::waitpid(Some(program), WaitOptions::NOHANG) {
        Ok(ended) => Ok(ended.map(|(_, status)| status)),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Dies of the signal, or gives the status to exit with.
fn end_like(exit: Exit) -> u8 {
    match exit {
        Exit::Code(status) => status as u8,
        Exit::Signal(signal) => {
            // SAFETY: plain system calls on ourselves. Without the right to dump there is no core file of ours.
            #[expect(unsafe_code, reason = "dispositions and masks of signals")]
            unsafe {
                #[cfg(target_os = "linux")]
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                libc::signal(signal, libc::SIG_DFL);
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::kill(libc::getpid(), signal);
                libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
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
        // SAFETY: nothing of this process uses any of them.
        #[expect(unsafe_code, reason = "descriptors that nothing here owns")]
        unsafe {
            libc::close(fd)
        };
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
            reporter.tell(Told::FromServer, bytes);
            return bytes.to_vec();
        }
        let out = rewriter.pass(bytes, |name| {
            *spawned += 1;
            let place = format!("by-{}-{spawned}", reporter.pid);
            let folder = scratch.join(&place);
            // Without a tap the program is started all the same, and not heard.
            let path = make(&std::env::current_exe().ok()?, &folder).ok()?;
            std::fs::write(folder.join(PROGRAM), name).ok()?;
            reporter.tell(Told::Spawns { folder: place }, &[]);
            Some(path.into_os_string().into_vec())
        });
        reporter.tell(Told::ToServer, bytes);
        out
    }

    fn closed(&mut self, by: Side) -> Vec<u8> {
        let (what, rest) = match by {
            Side::Client => (Told::ClosedByClient, self.rewriter.finish()),
            Side::Server => (Told::ClosedByServer, Vec::new()),
        };
        self.reporter.tell(what, &[]);
        rest
    }

    fn goes_with_it(&mut self) -> bool {
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

    fn started(&mut self, place: &str, args: &[OsString], bad_fd: Option<&String>) {
        let env: BTreeMap<String, String> = agent::protocol_environment();
        let mut room = ARGS;
        let args = args
            .iter()
            .map_while(|arg| {
                room = room.checked_sub(arg.len() + 1)?;
                Some(Bytes(arg.as_bytes().to_vec()))
            })
            .collect();
        self.tell(Told::Started { folder: place.to_owned(), env, args, bad_fd: bad_fd.cloned() }, &[]);
    }

    /// Tells the recorder before anything else happens. Once it does not listen, the session goes on without it.
    fn tell(&mut self, what: Told, bytes: &[u8]) {
        let datagram = Head { pid: self.pid, what }.datagram(bytes);
        while !self.lost {
            match self.socket.send(&datagram) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return self.lost = sent.is_err(),
            }
        }
    }
}
