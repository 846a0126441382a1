//! Raises the limit on open descriptors, and closes inherited descriptors.

use std::fmt::Display;
use std::io;
use std::os::fd::RawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Ensures that `needed` descriptors can be open at the same time. `what` is the subject of the error message. Returns the old limit if the
/// limit had to be raised. A large limit slows down programs that close all possible descriptors, and breaks those that use select, so no
/// program should be started with it.
pub fn raise(needed: u64, what: impl Display) -> io::Result<Option<Rlimit>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(None);
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(io::Error::other(format!(
            "{what} need {needed} file descriptors, but only {maximum} are allowed (ulimit -Hn)"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(Some(limit))
}

/// Guard for a raised descriptor limit. Restores the previous limit on drop.
pub struct RaisedLimit(Option<Rlimit>);

impl RaisedLimit {
    /// Raises the descriptor limit to the maximum.
    pub fn raise_to_max() -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
        Ok(Self(Some(limit)))
    }

    /// Raises the descriptor limit, if necessary, so that `needed` descriptors can be open. `what` is the subject of the error message.
    pub fn raise_to(needed: u64, what: impl Display) -> io::Result<Self> {
        raise(needed, what).map(Self)
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // Lowering a limit is always allowed.
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}

/// Closes all descriptors except those in `kept`, because this process may have inherited descriptors unintentionally. Nothing in this
/// process may use the closed descriptors.
pub fn close_all_but(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let begins = [0].into_iter().chain(kept.iter().map(|fd| fd + 1));
    let ends = kept.iter().map(|fd| fd - 1).chain([RawFd::MAX]);
    let mut gaps = begins.zip(ends).filter(|(begin, end)| begin <= end);
    if gaps.all(|(begin, end)| close_range(begin, end)) {
        return;
    }
    // Linux before 5.9 lacks close_range, so the open descriptors are closed one by one.
    let open: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(all) => all.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (0..1024).collect(),
    };
    for fd in open.into_iter().filter(|fd| !kept.contains(fd)) {
        let _ = nix::unistd::close(fd);
    }
}

/// Closes a range of descriptors. Returns whether the system supports this.
#[expect(unsafe_code, reason = "rustix and nix have no wrapper for this call")]
fn close_range(first: RawFd, last: RawFd) -> bool {
    // SAFETY: the caller guarantees that nothing uses these descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}
