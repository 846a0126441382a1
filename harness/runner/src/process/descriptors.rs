//! How many descriptors we may have open, and closing those that we have.

use std::fmt::Display;
use std::io;
use std::os::fd::RawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes sure that so many descriptors can be open, which is what `what` takes. Gives back the limit as it was if it had to be raised: a
/// large one slows down programs that close all descriptors they might have, and breaks those that use select, so that nothing
/// should be started with it.
pub(crate) fn raise(needed: u64, what: impl Display) -> io::Result<Option<Rlimit>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(None);
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(io::Error::other(format!(
            "{what} take {needed} file descriptors, but only {maximum} are allowed (ulimit -Hn)"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(Some(limit))
}

/// Room for descriptors, as long as it is held.
pub(crate) struct Room(Option<Rlimit>);

impl Room {
    /// As much as may be had.
    pub(crate) fn most() -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
        Ok(Self(Some(limit)))
    }

    /// See [`raise`].
    pub(crate) fn make(needed: u64, what: impl Display) -> io::Result<Self> {
        raise(needed, what).map(Self)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // A limit may always be lowered.
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}

/// Closes what is open here by chance: what whoever started us has left open, and of which we know nothing. Nothing in this process may use
/// any other descriptor than those kept.
pub(crate) fn close_all_but(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let begins = [0].into_iter().chain(kept.iter().map(|fd| fd + 1));
    let ends = kept.iter().map(|fd| fd - 1).chain([RawFd::MAX]);
    let mut gaps = begins.zip(ends).filter(|(begin, end)| begin <= end);
    if gaps.all(|(begin, end)| close_range(begin, end)) {
        return;
    }
    // Before Linux 5.9.
    let open: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(all) => all.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (0..1024).collect(),
    };
    for fd in open.into_iter().filter(|fd| !kept.contains(fd)) {
        let _ = nix::unistd::close(fd);
    }
}

/// Whether the system could do that.
#[expect(unsafe_code, reason = "rustix and nix have no call for it")]
fn close_range(first: RawFd, last: RawFd) -> bool {
    // SAFETY: the caller has said that nothing uses them.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}
