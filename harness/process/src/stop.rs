//! Signals that ask this process to exit.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals SIGINT, SIGTERM and SIGHUP, which are caught until this value is dropped. The descriptor is readable when a signal has
/// arrived.
#[derive(Debug)]
pub struct StopSignals(SignalDelivery<UnixStream, SignalOnly>);

impl StopSignals {
    /// Begins to catch the signals.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot install the handlers.
    pub fn catch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        SignalDelivery::with_pipe(read, write, SignalOnly, [SIGINT, SIGTERM, SIGHUP]).map(Self)
    }

    /// Returns the signals that have arrived since the last call.
    pub fn take(&mut self) -> Vec<i32> {
        // The descriptor is emptied before the signals are read, so that no signal is missed.
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
