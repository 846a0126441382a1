//! How a process that we start asks to be traced, and how it is asked for one that we have not started: see [`trace`](super::trace).

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};

/// How long it is waited for that a process is traced: on a busy machine the tracer may not be there at once.
const ATTACH: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

thread_local! {
    /// How what this thread starts comes to its tracer: the descriptor of our end of the connection, and the tracer.
    static TRACER: Cell<Option<(RawFd, i32)>> = const { Cell::new(None) };
}

/// Whatever becomes of what is done meanwhile, nothing that is started later asks for its tracer.
struct Asking;

impl Drop for Asking {
    fn drop(&mut self) {
        TRACER.set(None);
    }
}

/// Does something, and has what this thread starts meanwhile ask a tracer, by a connection to it.
pub(super) fn while_asking<T>(connection: RawFd, tracer: i32, play: impl FnOnce() -> T) -> T {
    TRACER.set(Some((connection, tracer)));
    let _asking = Asking;
    play()
}

/// Has a command ask to be traced when it is started, if that is wanted.
pub(super) fn prepare(command: &mut Command) {
    let Some((connection, tracer)) = TRACER.get() else { return };
    #[expect(unsafe_code, reason = "a process must ask before it comes to its own program")]
    // SAFETY: nothing but system calls is done there, and the descriptor is open for as long as `TRACER` names it, which is when
    // processes are started.
    unsafe {
        command.pre_exec(move || {
            ask(BorrowedFd::borrow_raw(connection), tracer);
            Ok(())
        });
    }
}

/// Whether what this thread starts asks to be traced.
pub(crate) fn is_wanted() -> bool {
    TRACER.get().is_some()
}

/// Has a process traced, if that is wanted, that is there already and belongs to a daemon. Whether the system allows it, the tracer tells.
pub(crate) fn trace_daemon(pid: i32) {
    let Some((connection, _)) = TRACER.get() else { return };
    #[expect(unsafe_code, reason = "the connection belongs to a caller of this thread's")]
    // SAFETY: it is open for as long as `TRACER` names it.
    let tracer = unsafe { BorrowedFd::borrow_raw(connection) };
    request(tracer, pid);
}

/// Asks the tracer to trace this process, and waits for its answer.
fn ask(tracer: BorrowedFd<'_>, pid: i32) {
    #[expect(unsafe_code, reason = "rustix has no call for this that takes the number of a process")]
    // SAFETY: takes numbers alone. Where only ancestors may trace, this allows it to a sibling; elsewhere it fails.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0);
    }
    request(tracer, rustix::process::getpid().as_raw_nonzero().get());
}

/// Asks for a process to be traced, and waits for the answer. Where it does not come, nothing is traced.
fn request(tracer: BorrowedFd<'_>, pid: i32) {
    let mut answer = [0];
    let mut fds = [PollFd::from_borrowed_fd(tracer, PollFlags::IN)];
    if rustix::io::write(tracer, &pid.to_ne_bytes()).is_ok()
        && rustix::event::poll(&mut fds, Some(&ATTACH)).is_ok_and(|n| n > 0)
    {
        let _ = rustix::io::read(tracer, &mut answer);
    }
}
