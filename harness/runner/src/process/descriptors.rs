//! How many descriptors we may have open.

use std::fmt::Display;
use std::io;

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
