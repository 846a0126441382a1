//! Starts, observes and kills the child processes of this program.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::inherited;
use crate::observe::tree;
use pmi_judge::event::{Exit, LOCAL_SIZE_VARIABLE};

/// A child of this process, or a foreign process, which another process has started and waits for.
pub struct Child {
    /// The handle to the child; `None` for a foreign process.
    child: Option<process::Child>,
    pid: Pid,
    /// A descriptor that is readable after the process has ended.
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match status.signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.code().unwrap_or(255)),
    }
}

impl Child {
    /// Starts a command, and closes the descriptors that the command owns in this process.
    pub fn start(command: Command) -> io::Result<Self> {
        Self::start_with(command, None)
    }

    /// Starts a command. If `connection` is given, the process inherits the connection under the given descriptor number.
    pub fn start_with(mut command: Command, connection: Option<(OwnedFd, RawFd)>) -> io::Result<Self> {
        Self::adopt(inherited::start(&mut command, connection)?)
    }

    /// Takes over a running child.
    pub fn adopt(mut child: process::Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child: Some(child), pid, pidfd, exit: None }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Takes over a foreign process, whose exit status is not available to this process.
    pub fn from_foreign(pid: Pid) -> io::Result<Self> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { child: None, pid, pidfd, exit: None })
    }

    /// Returns whether the process was started by another process.
    pub fn is_foreign(&self) -> bool {
        self.child.is_none()
    }

    /// Returns the process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a descriptor that is readable after the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns whether the process has been waited for. After that, its id may belong to a different process.
    pub fn is_reaped(&self) -> bool {
        self.exit.is_some()
    }

    /// Returns the exit of the process, or `None` if no exit is known yet.
    pub fn try_wait(&mut self) -> Option<Exit> {
        if let (None, Some(child)) = (self.exit, &mut self.child) {
            self.exit = match child.try_wait() {
                Ok(status) => status.map(exit_of),
                // The child was reaped elsewhere, and its status is lost, so it counts as failed.
                Err(_) => Some(Exit::Code(255)),
            };
        }
        self.exit
    }

    /// Waits for the end of the process. For a foreign process, returns status 0 without waiting.
    pub fn wait(&mut self) -> Exit {
        match (self.exit, &mut self.child) {
            (Some(exit), _) => exit,
            (None, Some(child)) => *self.exit.insert(child.wait().map_or(Exit::Code(255), exit_of)),
            (None, None) => *self.exit.insert(Exit::Code(0)),
        }
    }

    /// Sends the process a signal, unless the process has been waited for.
    pub fn signal(&self, signal: Signal) {
        if !self.is_reaped() {
            // This fails if the process has already ended.
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// Kills the process group that the process leads, unless the process has been waited for. Kills only the process itself if it is
    /// foreign.
    pub fn kill_group(&self) {
        if self.is_foreign() && !self.is_reaped() && self.pid != rustix::process::getpid() {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        } else if !self.is_foreign() && !self.is_reaped() {
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// A child and all processes that it starts. An environment variable marks each of them, and orphans become children of this process.
pub struct Launch {
    /// The child itself.
    pub child: Child,
    mark: String,
    ended: bool,
}

impl Launch {
    /// Starts a command. The mark must be unique to this launch.
    pub fn start(command: Command, mark: String) -> io::Result<Self> {
        Self::start_with(command, None, mark)
    }

    /// Starts a command. If `connection` is given, the process inherits the connection under the given descriptor number.
    pub fn start_with(
        mut command: Command,
        connection: Option<(OwnedFd, RawFd)>,
        mark: String,
    ) -> io::Result<Self> {
        tree::become_subreaper();
        command.env(tree::MARK, &mark);
        let child = tree::launch(&mark, || {
            let child = Child::start_with(command, connection)?;
            let pid = child.pid().as_raw_nonzero().get();
            io::Result::Ok((child, pid))
        })?;
        Ok(Self { child: child.0, mark, ended: false })
    }

    /// Returns the process id of the child.
    pub fn pid(&self) -> i32 {
        self.child.pid().as_raw_nonzero().get()
    }

    /// Kills the remaining processes of the launch. `known` contains the ids of processes that have reported to the runner.
    pub fn end(&mut self, known: &HashSet<i32>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let pid = self.pid();
        if self.child.try_wait().is_none() || tree::has_remaining(&self.mark, pid, known) {
            tree::end_all(&self.mark, pid, known);
        }
        self.child.signal(Signal::KILL);
        self.child.wait();
        tree::launch_ended(&self.mark, pid);
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.end(&HashSet::new());
    }
}

/// Runs a shell command that ends a job running under a daemon or on another machine. Returns the exit of the command, or `None` if the
/// command could not be run or timed out. The mark must be unique to this launch.
pub fn cancel(command: &str, mark: String) -> Option<Exit> {
    const WAIT: Duration = Duration::from_secs(10);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).process_group(0);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut launch = Launch::start(shell, mark).ok()?;
    let mut fds = [PollFd::from_borrowed_fd(launch.child.pidfd(), PollFlags::IN)];
    let wait = Timespec { tv_sec: WAIT.as_secs() as i64, tv_nsec: 0 };
    // If this wait fails, the command counts as timed out.
    let _ = rustix::event::poll(&mut fds, Some(&wait));
    launch.child.try_wait()
}

/// Prefixes of the environment variables by which libraries and programs detect a launcher. A launcher itself needs these variables, so
/// they are removed only from processes that no launcher starts.
const LAUNCHER_PREFIXES: [&str; 4] = ["PMI2_", "PMIX_", "SLURM", "FLUX_"];

/// Removes the variables of an outer launcher from a command that no launcher starts. Keeps the path of Slurm's configuration.
pub fn without_launcher_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_launcher(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

fn is_of_launcher(name: &str) -> bool {
    name != "SLURM_CONF" && LAUNCHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a variable belongs to the protocol, and not to the harness.
pub(crate) fn is_protocol_variable(name: &[u8]) -> bool {
    name.starts_with(b"PMI_") && !name.starts_with(b"PMI_CONFORM")
}

/// Removes the protocol's variables from a command's environment, because an outer process manager may have set them for this process. If
/// `ours_too` is true, also removes the harness's variables.
pub fn without_protocol_variables(command: &mut Command, ours_too: bool) {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_bytes();
        let is_ours = bytes.starts_with(b"PMI_CONFORM");
        // The judge derives the placement from this variable, so the value of an outer Hydra would mislead it.
        let is_of_placement = bytes == LOCAL_SIZE_VARIABLE.as_bytes();
        if is_protocol_variable(bytes) || ours_too && is_ours || is_of_placement {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_launcher_variables() {
        let names = ["SLURM_NPROCS", "SLURMD_NODENAME", "SLURM_CONF", "PMIX_RANK", "FLUX_URI", "PATH"];
        assert_eq!(names.map(is_of_launcher), [true, true, false, true, true, false]);
    }
}
