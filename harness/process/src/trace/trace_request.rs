//! Sends requests to trace processes. Started processes send their own requests; for a running daemon, this process sends the request (see
//! [`trace`](super)).

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Maximum time for the tracer to attach. On a busy machine, it may not be ready immediately.
const ATTACH_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

thread_local! {
    /// The tracer for processes that this thread starts: the descriptor of this end of the connection, and the tracer's process id.
    static TRACER: Cell<Option<(RawFd, i32)>> = const { Cell::new(None) };
}

/// A guard that unsets [`TRACER`] on drop, so that no later process requests to be traced, even after a panic.
struct TracerGuard;

impl Drop for TracerGuard {
    fn drop(&mut self) {
        TRACER.set(None);
    }
}

/// Runs `play`. Meanwhile, each process started by this thread requests tracing over `connection`.
pub(super) fn with_tracer<T>(connection: RawFd, tracer: i32, play: impl FnOnce() -> T) -> T {
    TRACER.set(Some((connection, tracer)));
    let _asking = TracerGuard;
    play()
}

/// Prepares a command: if there is a tracer, the command's process requests tracing when it starts.
pub(crate) fn prepare(command: &mut Command) {
    let Some((connection, tracer)) = TRACER.get() else { return };
    #[expect(unsafe_code, reason = "a process must request tracing before it executes its own program")]
    // SAFETY: the code makes only system calls, and the descriptor is open for as long as `TRACER` names it.
    unsafe {
        command.pre_exec(move || {
            request_trace(BorrowedFd::borrow_raw(connection), tracer);
            Ok(())
        });
    }
}

/// Returns whether each process started by this thread requests tracing.
pub fn is_wanted() -> bool {
    TRACER.get().is_some()
}

/// Requests tracing of a running daemon process, if there is a tracer. The tracer reports whether the system allows this.
pub fn trace_daemon(pid: i32) {
    let Some((connection, _)) = TRACER.get() else { return };
    #[expect(unsafe_code, reason = "the connection belongs to a caller in this thread")]
    // SAFETY: the descriptor is open for as long as `TRACER` names it.
    let tracer = unsafe { BorrowedFd::borrow_raw(connection) };
    request(tracer, pid);
}

/// Asks the tracer to trace this process, and waits for the response.
fn request_trace(tracer: BorrowedFd<'_>, pid: i32) {
    #[expect(unsafe_code, reason = "rustix has no wrapper that takes a process id")]
    // SAFETY: all arguments are integers. The call allows a sibling to trace this process, on systems where only ancestors may trace.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0);
    }
    request(tracer, rustix::process::getpid().as_raw_nonzero().get());
}

/// Requests tracing of a process, and waits for the response. Without a response, the process is not traced.
fn request(tracer: BorrowedFd<'_>, pid: i32) {
    let mut answer = [0];
    let mut fds = [PollFd::from_borrowed_fd(tracer, PollFlags::IN)];
    if rustix::io::write(tracer, &pid.to_ne_bytes()).is_ok()
        && rustix::event::poll(&mut fds, Some(&ATTACH_TIMEOUT)).is_ok_and(|n| n > 0)
    {
        let _ = rustix::io::read(tracer, &mut answer);
    }
}
