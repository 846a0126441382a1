//! Signals to us that ask for an end.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// SIGINT, SIGTERM and SIGHUP, caught for as long as this is there. Its descriptor can be read when one has come.
#[derive(Debug)]
pub struct StopSignals(SignalDelivery<UnixStream, SignalOnly>);

impl StopSignals {
    /// Catches them from now on.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn catch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        SignalDelivery::with_pipe(read, write, SignalOnly, [SIGINT, SIGTERM, SIGHUP]).map(Self)
    }

    /// Those that have come since the last call.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        // Emptied before it is looked at, so that no signal is missed.
        let mut scratch = [0; 64];
        while let Ok(1..) = self.0.get_read_mut().read(&mut scratch) {}
        self.0.pending().collect()
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
