//! The exits of processes that are not children of this process. The kernel stores these exits for holders of a pidfd (Linux 6.15 and
//! later).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use crate::child::exit_of;
use crate::observe::procfs::{self, Stat};
use pmi_judge::crash::SignalCause;
use pmi_judge::event::Exit;

/// Maximum time between the closing of a process's connections and its death.
pub const MAX_DYING_TIME: Duration = Duration::from_millis(20);

/// A process whose end is observed although it is not a child of this process.
pub struct ForeignProcess {
    pid: i32,
    /// The name according to the kernel, at most 15 bytes.
    name: String,
    pidfd: OwnedFd,
    reported: bool,
}

impl ForeignProcess {
    /// Begins to observe a process. Returns `None` if the process does not exist.
    pub fn new(pid: i32) -> Option<Self> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let name = procfs::name(pid)?;
        Some(Self { pid, name, pidfd, reported: false })
    }

    /// Returns whether the process has this id.
    pub fn has_pid(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// Returns the name of the process and the signal of its crash on the first call after the crash; otherwise, returns `None`.
    pub fn unreported_crash(&mut self) -> Option<(String, i32)> {
        let death = if self.reported { None } else { self.killed_by() };
        self.reported |= death.is_some();
        death.filter(|(_, signal)| Self::is_crash(*signal))
    }

    /// Returns whether the death of the process has been reported.
    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// Returns the name of the process and the signal that killed it, if any.
    pub fn killed_by(&self) -> Option<(String, i32)> {
        match self.exit()? {
            Exit::Signal(signal) => Some((self.name.clone(), signal)),
            Exit::Code(_) => None,
        }
    }

    /// Returns the exit of the process, or `None` if the process is still running or the kernel does not report its exit.
    pub fn exit(&self) -> Option<Exit> {
        // This method is called whenever no event arrives. The process is usually alive then, and this check is fast.
        if !self.has_ended() {
            return None;
        }
        // The process may be reaped during this check, so the status of a reaped process is requested twice.
        let status = wait_status(&self.pidfd)
            .or_else(|| self.unreaped_status())
            .or_else(|| wait_status(&self.pidfd))?;
        Some(exit_of(ExitStatus::from_raw(status)))
    }

    /// Returns the wait status of a process that its parent has not waited for yet.
    fn unreaped_status(&self) -> Option<i32> {
        Stat::of(self.pid).filter(Stat::is_dead)?.exit_status()
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits up to `time` for the process to end. Returns whether it has ended.
    pub fn ends_within(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut ended, Some(&time)).is_ok_and(|n| n > 0)
    }

    /// Returns a descriptor that is readable after the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether a death by this signal is a crash. The launcher may have sent any other signal.
    pub fn is_crash(signal: i32) -> bool {
        matches!(SignalCause::of(signal), SignalCause::Fault | SignalCause::Abort)
    }
}

/// The first version of `struct pidfd_info`.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// Flag of `mask`: requests `exit_code` and, in the response, shows that it is present.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// Returns the wait status of a reaped process.
fn wait_status(pidfd: &OwnedFd) -> Option<i32> {
    const GET_INFO: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<PidfdInfo>(0xff, 11);
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    #[expect(unsafe_code, reason = "rustix has no safe wrapper for this call")]
    // SAFETY: the request code encodes the size of the structure that the kernel reads and writes, and `info` has this type.
    unsafe {
        rustix::ioctl::ioctl(pidfd, rustix::ioctl::Updater::<GET_INFO, _>::new(&mut info)).ok()?;
    }
    (info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Tests whether the kernel reports exits of reaped processes, by running `program --version`.
pub fn kernel_reports_exits(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let pidfd = Pid::from_raw(child.id() as i32)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    child.wait().is_ok() && pidfd.is_some_and(|pidfd| wait_status(&pidfd).is_some())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn reports_crash_of_an_unreaped_child() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // The process gets this name a short time after its start.
        while procfs::name(child.id() as i32).as_deref() != Some("sleep") {
            std::thread::yield_now();
        }
        let mut process = ForeignProcess::new(child.id() as i32).unwrap();
        assert!(process.unreported_crash().is_none(), "the process is alive");
        rustix::process::kill_process(Pid::from_child(&child), rustix::process::Signal::SEGV).unwrap();
        while !process.has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(process.unreported_crash(), Some(("sleep".to_owned(), 11)));
        assert_eq!((process.unreported_crash(), process.is_reported()), (None, true));
        child.wait().unwrap();
    }

    #[test]
    fn reports_signal_of_a_grandchild_if_supported() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        let process = ForeignProcess::new(pid).unwrap();
        assert!(process.killed_by().is_none(), "the process is alive");
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), rustix::process::Signal::ABORT).unwrap();
        child.wait().unwrap();
        let reports_exits = kernel_reports_exits(Path::new("/bin/true"));
        assert_eq!(process.killed_by().map(|(_, signal)| signal), reports_exits.then_some(6));
    }
}
