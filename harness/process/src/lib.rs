//! Starts, observes and reaps processes, and handles their connections and output.
//!
//! - [`agent`]: programs of the harness that other programs start
//! - [`child`]: starting and reaping child processes, and killing them with all their descendants
//! - [`connection`]: a connection that queues bytes until they can be written
//! - [`descriptors`]: the limit on open descriptors
//! - [`inherited`]: passing a connection to a process when the process is started
//! - [`observe`]: `/proc`, descendants, TCP connections, executed edges, and the proof that processes wait only for the harness
//! - [`output`]: standard output and error of processes, with limits
//! - [`reactor`]: waiting for many descriptors at once
//! - [`scratch`]: the folders of a run
//! - [`slots`]: the limit on launches that work at the same time
//! - [`stop`]: signals that request this process to end
//! - [`trace`]: the locations of crashes, as a debugger sees them, and the exits of processes that are not children of this one

pub mod agent;
pub mod child;
pub mod connection;
pub mod descriptors;
pub mod inherited;
pub mod observe;
pub mod output;
pub mod reactor;
pub mod scratch;
pub mod slots;
pub mod stop;
pub mod trace;

pub use observe::tree::Memory;

use std::io;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::io::Errno;

/// Prepares a command for a tracer and for an edge map, if this thread has them. Must be called before descriptors are mapped for the
/// command, because the preparations run in the order of the calls.
pub fn prepare(command: &mut Command) {
    trace::trace_request::prepare(command);
    observe::edges::prepare(command);
}

/// Puts a descriptor into nonblocking mode.
pub fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Returns whether an error means that no more descriptors are available.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns whether an error of `accept` means that a connection was aborted or a signal arrived. In this case, `accept` should be called
/// again.
pub fn is_aborted_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Returns a function that puts `what`, the operation or object that failed, at the beginning of an error's message.
pub fn context(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
