//! Everything about processes and their connections that does not depend on their purpose.
//!
//! - `child`: starting and reaping our processes, and ending them with all that they have started
//! - `connection`: a connection, with the bytes that could not be written to it yet
//! - `descriptors`: the limit for open descriptors
//! - [`edges`]: the control-flow edges that a started program executes, if it was compiled to count them
//! - `foreign`: how processes ended that are not our children
//! - `idle`: whether processes wait for something that only we can do
//! - [`inherited`]: passing a connection to the process that we start for it
//! - `output`: standard output and error of processes, with limits
//! - `procfs`: files of `/proc`
//! - `reactor`: one wait for many descriptors
//! - [`slots`]: the number of launches that work side by side
//! - `tcp`: the other end of a TCP connection on this host
//! - [`stop`]: signals that request us to end
//! - [`trace`]: where processes die, as a debugger sees it. A started process requests it through `trace_request`, [`tracer`] observes it,
//!   and `unwind` interprets the result
//! - [`tree`]: our descendants, and the orphans that become our children

pub(crate) mod child;
pub(crate) mod connection;
pub(crate) mod descriptors;
pub mod edges;
pub(crate) mod foreign;
pub(crate) mod idle;
pub mod inherited;
pub(crate) mod output;
pub(crate) mod procfs;
pub(crate) mod reactor;
pub(crate) mod scratch;
pub mod slots;
pub mod stop;
pub(crate) mod tcp;
pub mod trace;
pub(crate) mod trace_request;
pub mod tracer;
pub mod tree;
mod unwind;

pub use tree::Memory;

use std::io;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::io::Errno;

/// Prepares a command for its observers: a tracer, and the counter of its edges. Must be called before any descriptor is arranged for the
/// command, because these preparations run in the order of the calls.
pub(crate) fn prepare(command: &mut Command) {
    trace_request::prepare(command);
    edges::prepare(command);
}

/// Makes reads and writes on a descriptor return immediately.
pub(crate) fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Returns whether an error means that no more descriptors are available.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns whether an error from `accept` concerns only one connection, which has already ended. Others may still be waiting.
pub(crate) fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Returns an error whose message begins with what failed.
pub(crate) fn context(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
