//! The agent: our program that the process manager under test starts as a rank.
//!
//! It finds the runner's socket beside the path it was started by (a symbolic link in the run's scratch folder),
//! hands over the descriptor that PMI_FD names, tells its environment and arguments, and then waits to be told how to
//! end. It knows nothing of PMI.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};

use crate::event::Bytes;

/// File name by which the binary knows that it is to be an agent.
pub const NAME: &str = "pmi-conform-agent";

/// Name of the runner's socket, in the folder above the agent's.
pub const SOCKET: &str = "runner";

/// Holds the agent's path for launchers that do not pass `argv[0]` on as given.
pub const PATH_VARIABLE: &str = "PMI_CONFORM_AGENT";

/// The first and only message of an agent, one line of JSON. The descriptor comes with its first byte.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Process group that the agent's path stands for.
    pub group: u32,
    /// Its process id.
    pub pid: i32,
    /// The `PMI_*` variables.
    pub env: BTreeMap<String, String>,
    /// Arguments without the program.
    pub args: Vec<Bytes>,
    /// What is wrong with PMI_FD, in which case no descriptor comes along.
    pub bad_fd: Option<String>,
}

/// The agent's folder for process group `group`.
pub fn folder(scratch: &Path, group: u32) -> PathBuf {
    scratch.join(format!("g{group}"))
}

/// Whether the program was started as an agent: by the name of its file, or by what it was told is its name.
pub fn is_agent(argv0: &OsString) -> bool {
    is_called(argv0, NAME)
}

/// Whether the program was started by a file of this name.
pub(crate) fn is_called(argv0: &OsString, name: &str) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|n| n == name);
    executed_as().is_some_and(|path| named(&path)) || named(Path::new(argv0))
}

/// The path that was given to execve, whatever the launcher wrote into `argv[0]`.
#[cfg(target_os = "linux")]
pub(crate) fn executed_as() -> Option<PathBuf> {
    let path = rustix::param::linux_execfn().to_bytes();
    (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn executed_as() -> Option<PathBuf> {
    None
}

/// Where the agent of this name was started from: the first of these that is a path with folders.
pub(crate) fn own_path(program: &OsString, name: &str) -> Option<PathBuf> {
    let variable = || std::env::var_os(PATH_VARIABLE).map(PathBuf::from);
    let told = Some(PathBuf::from(program));
    executed_as()
        .into_iter()
        .chain(told)
        .chain(variable())
        .find(|path| path.file_name().is_some_and(|n| n == name) && path.is_absolute())
}

/// Runs as an agent; returns the exit status.
pub fn main(mut argv: Vec<OsString>) -> u8 {
    let program = if argv.is_empty() { OsString::new() } else { argv.remove(0) };
    match run(&program, argv) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            125
        }
    }
}

fn run(program: &OsString, args: Vec<OsString>) -> io::Result<u8> {
    let path = own_path(program, NAME).unwrap_or_else(|| PathBuf::from(program));
    let folder = path.parent().unwrap_or(Path::new(""));
    let group = folder.file_name().and_then(|n| n.to_str()?.strip_prefix('g')?.parse().ok());
    let (Some(group), Some(scratch)) = (group, folder.parent()) else {
        let what = format!("started as {}, not by its path in the scratch folder of a run", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    };
    let stream = UnixStream::connect(scratch.join(SOCKET))?;
    let (fd, bad_fd) = match pmi_fd() {
        Ok(fd) => (Some(fd), None),
        Err(why) => (None, Some(why)),
    };
    let env = protocol_environment();
    let args = args.into_iter().map(|a| Bytes(a.into_vec())).collect();
    let hello = Hello { group, pid: std::process::id() as i32, env, args, bad_fd };
    let mut line = serde_json::to_vec(&hello)?;
    line.push(b'\n');
    send_with_fd(&stream, &line, fd.as_ref())?;
    // The runner holds the only copy now, so that its close is the process's close.
    drop(fd);
    obey(stream)
}

/// The `PMI_*` variables, without those of our own.
pub(crate) fn protocol_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter(|(k, _)| k.as_bytes().starts_with(b"PMI_") && !k.as_bytes().starts_with(b"PMI_CONFORM"))
        .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .collect()
}

fn send_with_fd(mut stream: &UnixStream, line: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&line[sent..])
}

/// Waits for the order to end.
fn obey(stream: UnixStream) -> io::Result<u8> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    match (words.next(), words.next().and_then(|n| n.parse::<u8>().ok())) {
        (Some("exit"), Some(status)) => Ok(status),
        (Some("kill"), Some(signal)) => {
            if let Some(signal) = rustix::process::Signal::from_named_raw(i32::from(signal)) {
                rustix::process::kill_process(rustix::process::getpid(), signal)?;
            }
            // Only reached by a signal that does not kill.
            Ok(124)
        }
        // The runner is gone.
        _ => Ok(123),
    }
}

/// Takes the descriptor that PMI_FD names, or tells what is wrong with it.
pub(crate) fn pmi_fd() -> Result<OwnedFd, String> {
    let value = std::env::var("PMI_FD").map_err(|_| "PMI_FD is not set".to_owned())?;
    let number: i32 =
        value.parse().ok().filter(|n| *n >= 0).ok_or_else(|| format!("PMI_FD={value} is no number"))?;
    #[expect(unsafe_code, reason = "the descriptor is inherited, and its number comes from the environment")]
    // SAFETY: only looked at, in a process with one thread that closes nothing meanwhile.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(borrowed).map_err(|_| format!("PMI_FD={value} is not open"))?;
    if rustix::net::getpeername(borrowed).is_err() && !is_pipe_like(borrowed) {
        return Err(format!("PMI_FD={value} is not connected"));
    }
    #[expect(unsafe_code, reason = "see above")]
    // SAFETY: it is open (checked above), the process has inherited it, and nothing else here owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// RFC 13 says descriptor, not socket: a character device (pty) or FIFO may do.
fn is_pipe_like(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::CharacterDevice)
    })
}
