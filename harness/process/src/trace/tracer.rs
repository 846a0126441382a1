//! The tracer process. It traces each process for which tracing is requested, by that process or by another, and all descendants of these
//! processes. The tracer continues each process after each stop. When a process dies, the tracer stores the state that a debugger would
//! examine.
//!
//! The tracer is minimal: it only waits for the next stop or request, and its storage is limited.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pmi_judge::crash::SignalCause;
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::unwind::{Mapping, Snapshot};
use crate::descriptors;
use crate::observe::procfs;
use crate::observe::tree::variable_of;

/// The name that makes the binary act as a tracer.
pub(crate) const NAME: &str = "pmi-conform-tracer";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TracerReport {
    /// The processes that were killed by a signal.
    #[serde(rename = "dead")]
    pub(super) snapshots: Vec<Snapshot>,
    /// The reason why a process could not be traced.
    #[serde(rename = "refused")]
    pub(super) refusal: Option<String>,
}

/// Maximum number of processes whose deaths are stored.
const MAX_SNAPSHOTS: usize = 16;
/// Maximum number of signals that are stored for a process. A process may catch any number of signals.
const MAX_SIGNALS: usize = 8;

/// Maximum number of stored bytes of a stack.
const MAX_STACK_SIZE: usize = 256 << 10;
/// Number of bytes below the stack pointer that a function may use if it calls no other functions.
const RED_ZONE: u64 = 128;

/// Maximum number of stored mappings of files.
const MAX_MAPPINGS: usize = 1024;

/// `si_code` of a signal from a process, sent with `kill`.
const SI_USER: i32 = 0;
/// `si_code` of a signal from a process, sent with `sigqueue`.
const SI_QUEUE: i32 = -1;

/// Returns whether the program was started as a tracer.
pub fn is_tracer(argv0: &OsStr) -> bool {
    argv0 == NAME
}

/// Runs as a tracer. Standard input is the connection to the requesting process. Returns the exit status.
pub fn main() -> u8 {
    let run = || -> io::Result<()> {
        let (report, mut connection) = trace()?;
        connection.write_all(&serde_json::to_vec(&report)?)
    };
    // Standard error is /dev/null and the connection may be broken, so only the exit status signals the failure.
    if run().is_ok() { 0 } else { 125 }
}

#[derive(Default)]
struct TraceState {
    /// The states of threads when they received signals that may kill them, by process id.
    signals: HashMap<i32, Vec<Snapshot>>,
    /// The process id of each examined thread.
    process: HashMap<i32, i32>,
    reported: TracerReport,
}

/// Traces the requested processes until the other side of standard input closes its sending direction. Returns the report, and the
/// connection over which it must be sent.
fn trace() -> io::Result<(TracerReport, UnixStream)> {
    // A tracer must not keep inherited connections open. This process has not opened any descriptors yet.
    descriptors::close_all_but(vec![0, 1, 2]);
    let mut connection = UnixStream::from(rustix::io::dup(rustix::stdio::stdin())?);
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
    let stops = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut seen = TraceState::default();
    loop {
        let mut fds =
            [PollFd::new(&connection, PollFlags::IN), PollFd::from_borrowed_fd(stops.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let asks = !fds[0].revents().is_empty();
        while let Ok(Some(_)) = stops.read_signal() {}
        while let Some((thread, status)) = wait()? {
            seen.stopped(thread, status);
        }
        if asks {
            let mut pid = [0; 4];
            // If no complete process id can be read, there are no more requests.
            if connection.read_exact(&mut pid).is_err() {
                return Ok((seen.reported, connection));
            }
            if let Err(error) = seize_all(i32::from_ne_bytes(pid)) {
                seen.reported.refusal = Some(format!("ptrace failed: {error}"));
            }
            connection.write_all(&[1])?;
        }
    }
}

impl TraceState {
    /// Handles a thread that has stopped or ended.
    fn stopped(&mut self, thread: i32, status: i32) {
        if libc::WIFSIGNALED(status) {
            return self.died(thread, libc::WTERMSIG(status));
        }
        if !libc::WIFSTOPPED(status) {
            self.ended(thread);
            return;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => {
                if matches!(
                    SignalCause::of(signal),
                    SignalCause::Fault | SignalCause::Abort | SignalCause::BrokenPipe
                ) {
                    self.examine_signal(thread, signal);
                }
                resume(libc::PTRACE_CONT, thread, signal);
            }
            // The thread must remain stopped until it receives SIGCONT, as it would without the tracer.
            libc::PTRACE_EVENT_STOP
                if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) =>
            {
                resume(libc::PTRACE_LISTEN, thread, 0);
            }
            _ => resume(libc::PTRACE_CONT, thread, 0),
        }
    }

    fn examine_signal(&mut self, thread: i32, signal: i32) {
        let Some(process) = process_of(thread, signal) else { return };
        self.process.insert(thread, process);
        let all = self.signals.entry(process).or_default();
        if all.len() >= MAX_SIGNALS {
            all.remove(0);
        }
        all.extend(snapshot(thread, process, signal));
    }

    fn ended(&mut self, thread: i32) -> Option<Vec<Snapshot>> {
        let process = self.process.remove(&thread).unwrap_or(thread);
        self.signals.remove(&process)
    }

    /// Handles the death of a process. The cause of the death is the last processor fault with this signal or, without such a fault, the
    /// last time that the process sent itself this signal. A process that catches a processor fault may kill itself with the same signal.
    fn died(&mut self, thread: i32, signal: i32) {
        let Some(all) = self.ended(thread).filter(|_| self.reported.snapshots.len() < MAX_SNAPSHOTS) else {
            return;
        };
        let mut of_it: Vec<Snapshot> = all.into_iter().filter(|seen| seen.signal == signal).collect();
        let noticed = of_it.iter().rposition(|seen| seen.address.is_some());
        let which = noticed.or(of_it.len().checked_sub(1));
        self.reported.snapshots.extend(which.map(|which| of_it.swap_remove(which)));
    }
}

/// Returns the process of a thread, or `None` if the process ignores the signal.
fn process_of(thread: i32, signal: i32) -> Option<i32> {
    let status = procfs::text(format!("/proc/{thread}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let ignored = u64::from_str_radix(field("SigIgn:")?, 16).ok()?;
    if ignored & (1 << (signal - 1)) != 0 {
        return None;
    }
    field("Tgid:")?.parse().ok()
}

fn snapshot(thread: i32, process: i32, signal: i32) -> Option<Snapshot> {
    let info = signal_info(thread)?;
    // A signal from another process is unrelated to the instruction. The kernel reports SIGPIPE as if the process itself had sent the
    // signal.
    if matches!(info.code, SI_USER | SI_QUEUE) && info.sender != process {
        return None;
    }
    let [pc, sp, fp, lr] = registers(thread)?;
    let stack_at = sp.saturating_sub(RED_ZONE);
    let mut stack = vec![0; MAX_STACK_SIZE];
    let memory = File::open(format!("/proc/{thread}/mem")).ok();
    let read = memory.and_then(|memory| memory.read_at(&mut stack, stack_at).ok()).unwrap_or_default();
    stack.truncate(read);
    let rank = ["PMI_RANK", "PMI_ID"].into_iter().find_map(|name| variable_of(process, name)?.parse().ok());
    let maps = procfs::text(format!("/proc/{thread}/maps")).unwrap_or_default();
    let mappings = maps.lines().filter_map(Mapping::of_code).take(MAX_MAPPINGS).collect();
    let name = procfs::name(process)?;
    // An `si_code` above 0 means that the kernel raised the signal for the executed instruction.
    let address = (info.code > 0 && SignalCause::of(signal) == SignalCause::Fault).then_some(info.address);
    Some(Snapshot { name, rank, signal, address, pc, sp, fp, lr, mappings, stack_at, stack })
}

struct SignalInfo {
    code: i32,
    sender: i32,
    address: u64,
}

#[expect(unsafe_code, reason = "ptrace")]
fn signal_info(thread: i32) -> Option<SignalInfo> {
    // SAFETY: the kernel writes a siginfo_t, for which all zeros are valid, and whose fields are plain numbers in all its variants.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let done = libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            thread,
            std::ptr::null_mut::<libc::c_void>(),
            (&raw mut info).cast::<libc::c_void>(),
        );
        let signal_info =
            || SignalInfo { code: info.si_code, sender: info.si_pid(), address: info.si_addr() as u64 };
        (done == 0).then(signal_info)
    }
}

/// Returns the instruction pointer, the stack pointer, the frame pointer, and the return address if a register contains it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[expect(unsafe_code, reason = "ptrace")]
fn registers(thread: i32) -> Option<[u64; 4]> {
    const NT_PRSTATUS: usize = 1;
    // SAFETY: the kernel writes at most the given number of bytes, and the registers are plain numbers.
    let registers = unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let mut place = libc::iovec {
            iov_base: (&raw mut registers).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        let done = libc::ptrace(
            libc::PTRACE_GETREGSET,
            thread,
            NT_PRSTATUS as *mut libc::c_void,
            (&raw mut place).cast::<libc::c_void>(),
        );
        (done == 0 && place.iov_len == size_of::<libc::user_regs_struct>()).then_some(registers)?
    };
    #[cfg(target_arch = "x86_64")]
    return Some([registers.rip, registers.rsp, registers.rbp, 0]);
    #[cfg(target_arch = "aarch64")]
    return Some([registers.pc, registers.sp, registers.regs[29], registers.regs[30]]);
}

/// Returns `None`, because the registers of other processors are not supported.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registers(_thread: i32) -> Option<[u64; 4]> {
    None
}

/// Begins to trace a process with all of its threads, and all processes that it will start.
fn seize_all(pid: i32) -> io::Result<()> {
    seize(pid)?;
    let mut known = HashSet::from([pid]);
    // A thread that is not traced yet may start another thread in the meantime, so the list is read until it contains no new threads.
    loop {
        let new: Vec<i32> = procfs::threads(pid)?.filter(|thread| known.insert(*thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            // This fails if the thread has ended or is already traced.
            let _ = seize(thread);
        }
    }
    Ok(())
}

/// Begins to trace a thread, and all threads and processes that it starts.
#[expect(unsafe_code, reason = "ptrace")]
fn seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    // SAFETY: PTRACE_SEIZE ignores the address and reads the data as a bit mask, so it accesses no memory through either.
    let done = unsafe {
        libc::ptrace(
            libc::PTRACE_SEIZE,
            pid,
            std::ptr::null_mut::<libc::c_void>(),
            options as usize as *mut libc::c_void,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Continues a thread, and delivers a signal unless it is 0. The thread may have been killed in the meantime.
#[expect(unsafe_code, reason = "ptrace")]
fn resume(how: PtraceRequest, thread: i32, signal: i32) {
    // SAFETY: these requests ignore the address and read the data as a number, so they access no memory through either.
    unsafe {
        libc::ptrace(how, thread, std::ptr::null_mut::<libc::c_void>(), signal as usize as *mut libc::c_void);
    }
}

#[cfg(target_env = "musl")]
type PtraceRequest = libc::c_int;
#[cfg(not(target_env = "musl"))]
type PtraceRequest = libc::c_uint;

/// Returns a thread that has stopped or ended, and its wait status. Returns `None` if there is no such thread at the moment.
#[expect(unsafe_code, reason = "the safe wrappers reject signals without a name")]
fn wait() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: the kernel writes only to `status`, which outlives the call.
    let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match thread {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        thread => Ok(Some((thread, status))),
    }
}
