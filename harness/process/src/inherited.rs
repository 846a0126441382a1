//! Passes a connection to a process when the process is started.
//!
//! A process inherits its connection under a descriptor number that this module reserves for all processes. Just before a process is
//! started, `dup2` makes the reserved descriptor refer to the connection and makes the descriptor inheritable. Both changes are undone
//! after the start. Therefore, no process inherits the connection of another process, and no code needs to run between fork and exec. The
//! standard library can then use `posix_spawn`, which does not copy the page tables.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use command_fds::{CommandFdExt, FdMapping};
use rustix::io::{DupFlags, Errno, dup2, dup3, fcntl_dupfd_cloexec};

/// Maximum number of reserved descriptor numbers.
const NUMBERS_MAX: usize = 8;

struct ReservedDescriptors {
    /// The file that each reserved descriptor refers to while no process is being started.
    null: OwnedFd,
    descriptors: Vec<OwnedFd>,
}

impl ReservedDescriptors {
    fn open() -> io::Result<Self> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // Numbers below 10 stay free for connections, because shells accept only single digits in redirections.
        Ok(Self { null: fcntl_dupfd_cloexec(&null, 10)?, descriptors: Vec::new() })
    }

    /// Returns the index of the reserved descriptor with this number. Reserves the number first, if necessary and possible.
    fn index_of(&mut self, number: RawFd) -> Option<usize> {
        let reserved = self.descriptors.iter().position(|descriptor| descriptor.as_raw_fd() == number);
        if reserved.is_none() && self.descriptors.len() < NUMBERS_MAX {
            let next = fcntl_dupfd_cloexec(&self.null, number).ok();
            self.descriptors.push(next.filter(|descriptor| descriptor.as_raw_fd() == number)?);
            return Some(self.descriptors.len() - 1);
        }
        reserved
    }

    /// Makes the connection inheritable while `start` starts a process.
    fn give<T>(
        &mut self,
        place: usize,
        connection: OwnedFd,
        start: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let descriptor = &mut self.descriptors[place];
        dup2(&connection, descriptor)?;
        drop(connection);
        let started = start();
        dup3(&self.null, descriptor, DupFlags::CLOEXEC)?;
        started
    }
}

/// The reserved descriptors. The mutex is locked while a process is started.
static STARTS: Mutex<Option<ReservedDescriptors>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<ReservedDescriptors>> {
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reserved(held: &mut Option<ReservedDescriptors>) -> io::Result<&mut ReservedDescriptors> {
    match held {
        Some(reserved) => Ok(reserved),
        None => Ok(held.insert(ReservedDescriptors::open()?)),
    }
}

/// Returns a reserved number: the smallest that was free at the first call. The first call must happen before this process opens any other
/// descriptors.
///
/// # Errors
///
/// Returns an error if `/dev/null` cannot be opened, or the limit on descriptors is reached.
pub fn number() -> io::Result<RawFd> {
    let mut held = lock();
    let ReservedDescriptors { null, descriptors } = reserved(&mut held)?;
    if descriptors.is_empty() {
        descriptors.push(fcntl_dupfd_cloexec(null, 3)?);
    }
    Ok(descriptors[0].as_raw_fd())
}

/// Starts a process. If `connection` is given, the process inherits the connection under the given descriptor number. Processes are started
/// one at a time. Otherwise, a child that has not executed its own program yet could hold a copy of another process's connection. The copy
/// would keep the connection open after all other holders have closed it.
pub fn start(command: &mut Command, connection: Option<(OwnedFd, RawFd)>) -> io::Result<process::Child> {
    spawn(command, connection).map_err(|error| with_cause(command, error))
}

fn spawn(command: &mut Command, connection: Option<(OwnedFd, RawFd)>) -> io::Result<process::Child> {
    let mut held = lock();
    let Some((connection, number)) = connection else { return command.spawn() };
    let reserved = reserved(&mut held)?;
    match reserved.index_of(number) {
        Some(place) => reserved.give(place, connection, || command.spawn()),
        None => {
            let mapping = FdMapping { parent_fd: connection, child_fd: number };
            command.fd_mappings(vec![mapping]).map_err(io::Error::other)?.spawn()
        }
    }
}

/// Adds the cause to an error from the kernel about a program that cannot be started, if the error number is ambiguous.
fn with_cause(command: &Command, error: io::Error) -> io::Error {
    let file = Path::new(command.get_program());
    let cause = match error.kind() {
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            "the file is neither a program for this machine nor a script that begins with #!"
        }
        io::ErrorKind::NotFound if file.is_file() => {
            "the file's interpreter or dynamic linker does not exist"
        }
        io::ErrorKind::PermissionDenied if file.is_dir() => "the path is a directory",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn start_error_states_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        for (file, cause) in [
            (
                program("empty", ""),
                "the file is neither a program for this machine nor a script that begins with #!",
            ),
            (program("script", "#!/nowhere/sh\n"), "the file's interpreter or dynamic linker does not exist"),
            (folder.path().to_owned(), "the path is a directory"),
        ] {
            let error = start(&mut Command::new(file), None).unwrap_err().to_string();
            assert!(error.ends_with(cause), "{error}");
        }
    }
}
