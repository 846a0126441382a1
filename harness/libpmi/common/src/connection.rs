//! The connection that a process inherits from its process manager.

use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

/// Returns the number in an environment variable, or `None` if the variable is not set or does not contain a number.
pub fn number(name: &str) -> Option<i32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The connection to the process manager.
pub(crate) struct PmiFd(OwnedFd);

impl PmiFd {
    /// Takes ownership of the descriptor in PMI_FD. Returns `None` if PMI_FD is not the number of an open descriptor.
    pub(crate) fn from_environment() -> Option<Self> {
        let fd: RawFd = number("PMI_FD").filter(|fd| *fd >= 0)?;
        #[expect(
            unsafe_code,
            reason = "the descriptor is inherited, and its number comes from the environment"
        )]
        // SAFETY: the borrow ends with this call, which only tests whether the descriptor is open.
        let open = rustix::io::fcntl_getfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) });
        open.ok()?;
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: the descriptor is open, and the process manager has passed it to the process for PMI, so the library owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(Self(fd))
    }

    /// Writes all bytes. Does not raise SIGPIPE if the process manager has closed the connection, because the signal would kill the
    /// program.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be written to.
    pub(crate) fn write(&self, mut bytes: &[u8]) -> rustix::io::Result<()> {
        while !bytes.is_empty() {
            let written = match rustix::net::send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(&self.0, bytes),
                other => other,
            };
            match written {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for bytes and returns them. The slice is empty at the end of the connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be read from.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> rustix::io::Result<&'a [u8]> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
                Ok(n) => return Ok(&buffer[..n]),
            }
        }
    }
}
