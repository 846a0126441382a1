//! The process room: everything about processes and their connections that does not depend on what they are for.
//!
//! - `child`: how processes of ours are started, reaped, and ended with all that they have started,
//! - `connection`: a connection, and what could not be written to it yet,
//! - `descriptors`: how many of them we may have open,
//! - [`edges`]: which edges of its program what we start goes along, where it was built to tell,
//! - `foreign`: how processes ended that are not our children,
//! - `idle`: whether processes wait for something that only we can do,
//! - [`inherited`]: how a connection reaches the process that we start for it,
//! - `output`: what processes write to their standard output and error, within bounds,
//! - `procfs`: files of `/proc`,
//! - `reactor`: one wait for many descriptors,
//! - [`slots`]: how many launches are at work side by side,
//! - `tcp`: the other end of a TCP connection on this host,
//! - [`stop`]: signals to us that ask for an end,
//! - [`trace`]: where processes die, as a debugger sees it: what we start asks for it by `trace_request`, [`tracer`] looks, and `unwind`
//!   tells what it means,
//! - [`tree`]: the descendants of ours, and the orphans that they leave to us.

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

/// Has a command, when it is started, do and know what those want that look at it from outside: a tracer, and who counts its edges. To
/// be called before any descriptor is arranged for it: what is done to a process first is done in the order of the calls.
pub(crate) fn prepare(command: &mut Command) {
    trace_request::prepare(command);
    edges::prepare(command);
}

/// Makes reading from and writing to a descriptor return at once.
pub(crate) fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Whether an error says that no more descriptors can be had.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether an error of `accept` is about the one who has come and gone, or about nobody: others may wait behind it.
pub(crate) fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// An error with what failed before it.
pub(crate) fn context(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
