//! The tap: stands where the program was to be started, leaves a helper with the connection, and becomes the program.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::pump::{self, Owner, Side};
use super::rewrite::Rewriter;
use super::told::{Head, Told};
use crate::agent;
use crate::event::{Bytes, Exit};

/// File name by which the binary knows that it is to be a tap.
pub const NAME: &str = "pmi-conform-tap";

/// Name of the recorder's socket, in the folder above the tap's.
pub(super) const SOCKET: &str = "recorder";

/// Folder of the taps of the process group that the launcher starts.
pub(super) const FIRST: &str = "first";

/// In the folder of a spawned tap: the name of its program.
const PROGRAM: &str = "program";

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

/// Runs as a tap; returns only if there is no program to become, with the exit status.
pub fn main(argv: Vec<OsString>) -> u8 {
    let Err(error) = run(argv);
    eprintln!("{NAME}: {error}");
    // As shells have it.
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// Makes the tap of a folder; returns its path.
pub(super) fn make(binary: &Path, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir(folder)?;
    let path = folder.join(NAME);
    std::os::unix::fs::symlink(binary, &path)?;
    Ok(path)
}

fn run(mut argv: Vec<OsString>) -> io::Result<Infallible> {
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
    if let Some(mut reporter) = Reporter::connect(scratch) {
        let connection = agent::pmi_fd();
        reporter.started(place, &argv[1..], connection.as_ref().err());
        // Also a program without a connection ends, and may be waited for.
        leave_helper(reporter, connection.ok(), scratch)?;
    }
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    restore_signals(&mut command)?;
    let error = command.exec();
    Err(io::Error::new(error.kind(), format!("cannot start {}: {error}", argv[0].as_bytes().escape_ascii())))
}

/// Lets the program have the signals as we were given them; `exec` would set them back.
#[expect(unsafe_code, reason = "what runs just before exec")]
fn restore_signals(command: &mut Command) -> io::Result<()> {
    // SAFETY: all bits zero is a valid sigset_t, which pthread_sigmask fills.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        if libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask) != 0 {
            return Err(io::Error::last_os_error());
        }
        mask
    };
    // SAFETY: both calls may be made anywhere, and this runs in our own process, which has one thread.
    unsafe {
        command.pre_exec(move || {
            if SIGPIPE_IGNORED.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    Ok(())
}

/// Puts a helper between the connection and the program, which inherits its end under the same number.
fn leave_helper(reporter: Reporter, connection: Option<OwnedFd>, scratch: &Path) -> io::Result<()> {
    let program = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let mut ends = None;
    if let Some(mut inherited) = connection {
        let server = rustix::io::fcntl_dupfd_cloexec(&inherited, 3)?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::dup2(&theirs, &mut inherited)?;
        let _ = inherited.into_raw_fd();
        ends = Some((ours, server));
    }
    // SAFETY: there is one thread, so that the child may do anything.
    #[expect(unsafe_code, reason = "a process that goes on without exec")]
    let child = unsafe { libc::fork() };
    if child > 0 {
        // It ends at once: the helper is its child, and none of the program's.
        let pid = Pid::from_raw(child);
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())
        {}
        return Ok(());
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; and nothing of the parent's may run at exit.
    #[expect(unsafe_code, reason = "see above")]
    unsafe {
        if libc::fork() == 0 {
            help(reporter, ends, program, scratch);
        }
        libc::_exit(0);
    }
}

/// What the helper does: carry the bytes, and tell when the program has ended.
fn help(reporter: Reporter, ends: Option<(OwnedFd, OwnedFd)>, program: OwnedFd, scratch: &Path) {
    // What ends the program's group or session must not lose its last words.
    let _ = rustix::process::setsid();
    let mut kept = vec![reporter.socket.as_raw_fd(), program.as_raw_fd()];
    kept.extend(ends.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()]));
    // Else whoever waits for the end of the program's output would wait for us.
    close_all_but(&kept);
    let _ = rustix::process::chdir("/");
    let mut tap = Tap { reporter, rewriter: Rewriter::default(), scratch: scratch.to_owned(), spawned: 0 };
    if let Some((client, server)) = ends {
        // What cannot be polled cannot be carried; both ends are closed then, as if either side had gone.
        let _ = pump::pump(client, server, &mut tap);
    }
    let exit = wait(&program);
    tap.reporter.tell(Told::Ended(exit), &[]);
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

/// Waits for the end of a process that is not our child. Its status can be had from Linux 6.15 on, once it is reaped.
fn wait(process: &OwnedFd) -> Option<Exit> {
    let poll = |flags, time: Option<Duration>| {
        let time =
            time.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        let mut fds = [PollFd::new(process, flags)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut fds, time.as_ref()) {}
    };
    poll(PollFlags::IN, None);
    // Who reaps it does so soon, or never: then its status is of no use to anybody.
    poll(PollFlags::empty(), Some(Duration::from_millis(500)));
    exit_of(process)
}

/// `struct pidfd_info`, as of its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid, and eight user and group ids.
    ids: [u32; 11],
    exit: i32,
}

fn exit_of(process: &OwnedFd) -> Option<Exit> {
    const EXIT: u64 = 1 << 3;
    // _IOWR(0xFF, 11, struct pidfd_info)
    const GET_INFO: u64 = 3 << 30 | (size_of::<PidfdInfo>() as u64) << 16 | 0xFF << 8 | 11;
    let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
    // SAFETY: the call fills a structure of the size that its number tells.
    #[expect(unsafe_code, reason = "rustix does not have it")]
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &mut info) };
    if done != 0 || info.mask & EXIT == 0 {
        return None;
    }
    Some(match info.exit & 0x7f {
        0 => Exit::Code(info.exit >> 8 & 0xff),
        signal => Exit::Signal(signal),
    })
}

struct Tap {
    reporter: Reporter,
    rewriter: Rewriter,
    scratch: PathBuf,
    spawned: u32,
}

impl Owner for Tap {
    fn piece(&mut self, from: Side, bytes: &[u8]) -> Vec<u8> {
        let Self { reporter, rewriter, scratch, spawned } = self;
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
