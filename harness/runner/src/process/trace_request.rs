//! How a process that we start asks to be traced: see [`trace`](super::trace).

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};

/// How long a process that is started waits to be traced: on a busy machine the tracer may not be there at once.
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

/// Asks the tracer to trace this process, and waits for its answer. Where it does not come, nothing is traced.
fn ask(tracer: BorrowedFd<'_>, pid: i32) {
    #[expect(unsafe_code, reason = "rustix has no call for this that takes the number of a process")]
    // SAFETY: takes numbers alone. Where only ancestors may trace, this allows it to a sibling; elsewhere it fails.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0);
    }
    let own = rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes();
    let mut answer = [0];
    let mut fds = [PollFd::from_borrowed_fd(tracer, PollFlags::IN)];
    if rustix::io::write(tracer, &own).is_ok()
        && rustix::event::poll(&mut fds, Some(&ATTACH)).is_ok_and(|n| n > 0)
    {
        let _ = rustix::io::read(tracer, &mut answer);
    }
}
