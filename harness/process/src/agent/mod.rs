//! Programs of the harness that other programs start, and the connections of these programs to the runner.
//!
//! - [`rank`] is the program that a process manager under test starts as a rank.
//! - `quick` is a faster version of the rank's agent for nearly all launches. In all other cases, it executes the full agent.
//! - [`library`] loads a library under test and calls it.
//! - [`mpiexec`] is started by a program under test that needs a process manager.
//! - `protocol` defines the messages between agents and the runner, and `channel` transports them.
//! - `listener` accepts the agents' connections to the runner.
//! - [`network_listener`] accepts the connections of agents on other machines, and `relay` is the agents' side of these connections.
//!
//! An agent finds the runner's socket through its own path, which is a symbolic link in the scratch folder of the run. An agent on another
//! machine receives an address and a token: in its arguments or, if it is spawned, in its environment.

pub mod channel;
pub mod library;
pub mod listener;
pub mod mpiexec;
pub mod network_listener;
mod port;
pub mod protocol;
pub mod quick;
pub mod rank;
pub mod relay;
pub mod singleton;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::child::is_protocol_variable;
use pmi_judge::event::{LOCAL_SIZE_VARIABLE, NODE_VARIABLES};

/// Name of the runner's socket, in the parent of the agent's folder.
pub(crate) const SOCKET: &str = "runner";

/// Environment variable that contains the agent's path, for launchers that change `argv[0]`.
pub const PATH_VARIABLE: &str = "PMI_CONFORM_AGENT";

/// Returns the path of a program of the harness: the executable `name` next to the command or, if that file does not exist, the command
/// itself, which contains all programs. The separate executable starts faster.
pub fn program(command: &Path, name: &str) -> PathBuf {
    let beside = command.with_file_name(name);
    if beside.is_file() { beside } else { command.to_owned() }
}

/// Returns the agent's folder for process group `group`.
pub(crate) fn folder(scratch: &Path, group: u32) -> PathBuf {
    scratch.join(format!("g{group}"))
}

/// Returns whether the program was started under this name, according to `argv[0]` or the path that was passed to execve.
pub(crate) fn is_called(argv0: &OsString, name: &str) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|n| n == name);
    executed_as().is_some_and(|path| named(&path)) || named(Path::new(argv0))
}

/// Returns the path that was passed to execve. A launcher can change `argv[0]`, but not this path.
#[cfg(target_os = "linux")]
pub fn executed_as() -> Option<PathBuf> {
    let path = rustix::param::linux_execfn().to_bytes();
    (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
}

#[cfg(not(target_os = "linux"))]
pub fn executed_as() -> Option<PathBuf> {
    None
}

/// Returns the path through which an agent was started. Tries the path passed to execve, then `argv[0]`, then the environment, and returns
/// the first of these paths that is absolute and has the agent's file name.
pub(crate) fn own_path(program: &OsString, name: &str) -> Option<PathBuf> {
    let variable = || std::env::var_os(PATH_VARIABLE).map(PathBuf::from);
    let argument = Some(PathBuf::from(program));
    executed_as()
        .into_iter()
        .chain(argument)
        .chain(variable())
        .find(|path| path.file_name().is_some_and(|n| n == name) && path.is_absolute())
}

/// Returns the variables that describe the node of the process, and the `PMI_*` variables except those of the harness.
pub fn protocol_environment() -> BTreeMap<String, String> {
    let is_of_node = |name: &[u8]| {
        NODE_VARIABLES.iter().chain([&LOCAL_SIZE_VARIABLE]).any(|variable| variable.as_bytes() == name)
    };
    std::env::vars_os()
        .filter(|(k, _)| is_protocol_variable(k.as_bytes()) || is_of_node(k.as_bytes()))
        .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .collect()
}

/// The reason why PMI_FD cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PmiFdError {
    /// The variable is missing.
    #[error("PMI_FD is not set")]
    Unset,
    /// The variable is not a number.
    #[error("PMI_FD: invalid number \"{0}\"")]
    NoNumber(String),
    /// The descriptor is closed.
    #[error("PMI_FD: descriptor {0} is not open")]
    NotOpen(String),
    /// The descriptor is not a connection.
    #[error("PMI_FD: descriptor {0} is not connected")]
    NotConnected(String),
}

/// Takes ownership of the descriptor that PMI_FD names, or returns the reason why the descriptor cannot be used.
pub fn pmi_fd() -> Result<OwnedFd, PmiFdError> {
    let value = std::env::var("PMI_FD").map_err(|_| PmiFdError::Unset)?;
    let number: i32 =
        value.parse().ok().filter(|n| *n >= 0).ok_or_else(|| PmiFdError::NoNumber(value.clone()))?;
    #[expect(unsafe_code, reason = "the descriptor is inherited, and its number comes from the environment")]
    // SAFETY: the descriptor is only examined, and the process has no other thread that could close it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(borrowed).map_err(|_| PmiFdError::NotOpen(value.clone()))?;
    if rustix::net::getpeername(borrowed).is_err() && !is_pipe_like(borrowed) {
        return Err(PmiFdError::NotConnected(value));
    }
    #[expect(unsafe_code, reason = "see above")]
    // SAFETY: the descriptor is open (checked above) and inherited, and nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns whether a descriptor is a FIFO or a character device, such as a pty. RFC 13 does not require PMI_FD to be a socket, so these are
/// valid as well.
fn is_pipe_like(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::CharacterDevice)
    })
}

/// Sends this process a signal. Returns the exit status to use if the process survives.
fn kill_self(signal: u8) -> io::Result<u8> {
    if let Some(signal) = rustix::process::Signal::from_named_raw(i32::from(signal)) {
        rustix::process::kill_process(rustix::process::getpid(), signal)?;
    }
    Ok(124)
}

/// The exit status of an agent that has lost its runner.
const RUNNER_LOST_STATUS: u8 = 123;
