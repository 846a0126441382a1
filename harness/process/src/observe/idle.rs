//! Proves from the state of the server's processes that the server will send no response.
//!
//! A server is *idle* when each thread of each of its processes waits without a time limit for an event that only the harness can cause.
//! Neither a timer nor any other process will wake it. Silence is then proved without a timeout. This works only on Linux; on other
//! systems, silence is never proved.
//!
//! A server whose threads wake periodically never appears idle. If each of its threads has woken several times and the server has sent
//! nothing, this does not prove silence. It is sufficient, however, where silence is allowed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::tcp::Ends;
use super::{procfs, tcp};

/// The ids of threads, and the number of voluntary sleeps of each thread.
type SleepCounts = Vec<(i32, u64)>;

/// The combined state of several processes.
enum ActivityState {
    /// Every thread is waiting without a time limit.
    Waiting(SleepCounts),
    /// At least one thread is running, stopped or waiting with a time limit.
    Busy,
    /// At least one thread seems to have ended.
    Ended,
}

/// Processes that may be at the other end of a connection and need not be examined, because the harness controls them.
#[derive(Default)]
pub struct ControlledPeers {
    /// The ids of the processes.
    pub pids: HashSet<i32>,
    /// The TCP connections of the processes. The kernel does not report which process is at the other end of a TCP connection.
    pub connections: HashSet<Ends>,
}

/// A repeated check of whether processes are idle. Usually, one of the processes is running, and then only the state of that process is
/// read.
#[derive(Default)]
pub struct IdleCheck {
    /// The processes at the last check.
    pids: Vec<i32>,
    /// The time of the first check that found the processes in their current waits, and the sleep counts at that time.
    since: Option<(Instant, SleepCounts)>,
}

impl IdleCheck {
    /// Examines the processes twice. Returns true if every thread was in an endless wait both times and did not run in between. `list`
    /// returns the sorted process ids, or `None` if the processes cannot prove silence. `list` is called between the two examinations, so
    /// that a process that is being started is not missed. If `uses_alarms` is true, a process that catches alarms is assumed to have set
    /// an alarm, because alarms cannot be observed.
    pub fn all_waiting(
        &mut self,
        list: impl Fn() -> Option<Vec<i32>>,
        peers: &ControlledPeers,
        uses_alarms: bool,
    ) -> bool {
        let waits = self.examine_twice(list, peers, uses_alarms);
        match waits {
            None => self.since = None,
            Some(sleeps) if self.since.as_ref().is_some_and(|(_, before)| *before == sleeps) => {}
            Some(sleeps) => self.since = Some((Instant::now(), sleeps)),
        }
        self.since.is_some()
    }

    /// Returns the time since the first check that found all threads in their current waits. Returns `None` if the last check found a
    /// thread that was not waiting. On a loaded machine, data may still be on its way to a waiting process, although the state of the
    /// process does not show this.
    pub fn waited(&self) -> Option<Duration> {
        self.since.as_ref().map(|(since, _)| since.elapsed())
    }

    /// Examines the processes twice without a pause. Returns the sleep counts if the processes are idle, and `None` otherwise.
    fn examine_twice(
        &mut self,
        list: impl Fn() -> Option<Vec<i32>>,
        peers: &ControlledPeers,
        uses_alarms: bool,
    ) -> Option<SleepCounts> {
        let list = || list().unwrap_or_default();
        if self.pids.is_empty() {
            self.pids = list();
        }
        if self.pids.is_empty() {
            return None;
        }
        let before = match examine(&self.pids) {
            ActivityState::Waiting(sleeps) => sleeps,
            ActivityState::Busy => return None,
            ActivityState::Ended => {
                self.pids.clear();
                return None;
            }
        };
        let now = list();
        if now != self.pids {
            self.pids = now;
            return None;
        }
        let stays = only_we_can_wake(&self.pids, peers, uses_alarms)
            && matches!(examine(&self.pids), ActivityState::Waiting(after) if after == before);
        stays.then_some(before)
    }
}

/// A count of how often threads have begun to wait with a time limit.
#[derive(Default)]
pub struct PollCount {
    /// The sleep counts of the threads when the count began.
    initial_sleeps: HashMap<i32, u64>,
}

impl PollCount {
    /// Returns the smallest number of waits of a thread, among the threads that wait with a time limit. Waits are counted from the time at
    /// which the count began. Returns 0 if any thread is running or has been created since then, or if no thread waits with a time limit.
    pub fn rounds(&mut self, pids: &[i32]) -> u64 {
        let mut least = None;
        for pid in pids {
            let Some(threads) = waits(*pid) else {
                self.initial_sleeps.clear();
                return 0;
            };
            for (tid, wait, sleeps) in threads {
                let since = sleeps - (*self.initial_sleeps.entry(tid).or_insert(sleeps)).min(sleeps);
                if wait == ThreadWait::Limited {
                    least = Some(least.unwrap_or(since).min(since));
                }
            }
        }
        least.unwrap_or(0)
    }
}

/// Returns the id, the wait and the number of voluntary sleeps of each thread of a process; `None` if any thread is not waiting.
fn waits(pid: i32) -> Option<Vec<(i32, ThreadWait, u64)>> {
    threads(pid, |thread| match thread {
        Thread::Waits { tid, wait, sleeps } => Ok((tid, wait, sleeps)),
        Thread::Busy | Thread::Ended => Err(()),
    })
    .ok()
}

fn examine(pids: &[i32]) -> ActivityState {
    let mut all = SleepCounts::new();
    for pid in pids {
        let result = threads(*pid, |thread| match thread {
            Thread::Waits { tid, wait: ThreadWait::Endless, sleeps } => Ok((tid, sleeps)),
            Thread::Ended => Err(ActivityState::Ended),
            Thread::Waits { .. } | Thread::Busy => Err(ActivityState::Busy),
        });
        match result {
            Ok(sleeps) => all.extend(sleeps),
            Err(state) => return state,
        }
    }
    all.sort_unstable();
    ActivityState::Waiting(all)
}

enum Thread {
    /// The thread is waiting. `sleeps` is the number of its voluntary sleeps.
    Waits { tid: i32, wait: ThreadWait, sleeps: u64 },
    /// The thread is running, stopped or waiting for a disk. A slow read from a disk counts as work, not as silence.
    Busy,
    /// The thread seems to have ended.
    Ended,
}

/// Examines the threads of a process until `take` rejects one. Looks up the other threads only if the process has more than one thread.
fn threads<T, E>(pid: i32, take: impl Fn(Thread) -> Result<T, E>) -> Result<Vec<T>, E> {
    let (first, count) = examine_thread(pid, pid);
    let mut all = vec![take(first)?];
    if count == Some(1) {
        return Ok(all);
    }
    let Ok(tids) = procfs::threads(pid) else {
        all.push(take(Thread::Ended)?);
        return Ok(all);
    };
    for tid in tids.filter(|tid| *tid != pid) {
        all.push(take(examine_thread(pid, tid).0)?);
    }
    Ok(all)
}

/// Returns whether a system call reads from a file. The file may be on a slow server, and the thread then sleeps as if it were waiting for
/// an event.
fn reads_file(pid: i32, line: &str) -> bool {
    let mut words = line.split_whitespace();
    let number = words.next().and_then(|n| n.parse::<u32>().ok());
    let descriptor = words.next().and_then(|n| u64::from_str_radix(n.trim_start_matches("0x"), 16).ok());
    number.is_some_and(|number| READ_CALLS.contains(&number))
        && descriptor.is_some_and(|n| {
            fs::metadata(format!("/proc/{pid}/fd/{}", n as u32 as i32)).is_ok_and(|file| file.is_file())
        })
}

/// Returns the state of a thread, and the number of threads of its process. This number is `None` if the file that contains it was not
/// read.
fn examine_thread(pid: i32, tid: i32) -> (Thread, Option<u32>) {
    let folder = format!("/proc/{pid}/task/{tid}");
    let call = procfs::short_text(folder.clone() + "/syscall").unwrap_or_default();
    // If the file is missing, or the thread neither runs nor is in a system call, the thread seems to have ended.
    if call.is_empty() || call.starts_with("-1") {
        return (Thread::Ended, None);
    }
    let wait = wait(&call);
    if wait == ThreadWait::None || reads_file(pid, &call) {
        return (Thread::Busy, None);
    }
    let status = procfs::short_text(folder + "/status").unwrap_or_default();
    let value = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let sleeps = value("voluntary_ctxt_switches:").and_then(|count| count.parse().ok());
    let count = value("Threads:").and_then(|count| count.parse().ok());
    match (value("State:"), sleeps) {
        (Some(state), Some(sleeps)) if state.starts_with('S') => (Thread::Waits { tid, wait, sleeps }, count),
        _ => (Thread::Busy, count),
    }
}

/// Returns whether only these processes and their controlled peers can wake the waiting threads. Other causes of a wake-up are a timer, a
/// connection to a daemon or another host, and bytes on a TCP connection that the kernel delivers later. A timer is a timerfd, a POSIX
/// timer, or an alarm. Of an alarm, only the handler can be observed.
fn only_we_can_wake(pids: &[i32], peers: &ControlledPeers, uses_alarms: bool) -> bool {
    let mut internet: HashMap<u64, Ends> = HashMap::new();
    for pid in pids {
        if uses_alarms && catches_alarms(*pid) {
            return false;
        }
        // Some kernels are built without support for this file, so a missing file is ignored.
        if procfs::short_text(format!("/proc/{pid}/timers")).is_ok_and(|timers| !timers.is_empty()) {
            return false;
        }
        let pidfd =
            Pid::from_raw(*pid).and_then(|p| rustix::process::pidfd_open(p, PidfdFlags::empty()).ok());
        let (Some(pidfd), Ok(fds)) = (pidfd, fs::read_dir(format!("/proc/{pid}/fd"))) else { return false };
        for entry in fds.flatten() {
            let Ok(to) = fs::read_link(entry.path()) else { continue };
            let name = entry.file_name();
            let (Some(to), Some(name)) = (to.to_str(), name.to_str()) else { continue };
            if to == "anon_inode:[timerfd]"
                && procfs::short_text(format!("/proc/{pid}/fdinfo/{name}"))
                    .is_ok_and(|info| !info.lines().any(|l| l == "it_value: (0, 0)"))
            {
                return false;
            }
            let inode = to.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')?.parse().ok());
            let (Some(inode), Ok(number)) = (inode, name.parse()) else { continue };
            // If descriptors of other processes cannot be examined, the server is assumed to depend only on itself.
            let Ok(socket) = rustix::process::pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) else {
                continue;
            };
            // A time limit from a socket option does not appear in the arguments of a call, so it is checked separately.
            if has_time_limit(&socket) {
                return false;
            }
            match other_end(&socket) {
                Some(ConnectionEnd::Process(pid)) if !pids.contains(&pid) && !peers.pids.contains(&pid) => {
                    return false;
                }
                Some(ConnectionEnd::Internet(ends)) => drop(internet.insert(inode, ends)),
                Some(ConnectionEnd::Remote) => return false,
                Some(ConnectionEnd::Process(_)) | None => {}
            }
        }
    }
    let among: HashSet<&Ends> = internet.values().collect();
    internet.values().all(|(here, there)| {
        let other = (*there, *here);
        let is_among = among.contains(&other);
        // A query through one end returns the state of the other end. If the other end belongs to these processes as well, this end is
        // queried when the other end is examined.
        let queries = [Some((*here, *there)), (!is_among).then_some(other)];
        (is_among || peers.connections.contains(&other))
            && queries.into_iter().flatten().filter_map(tcp::find_peer).all(|end| end.in_transit == 0)
    })
}

fn catches_alarms(pid: i32) -> bool {
    /// The mask of the signals SIGALRM, SIGVTALRM and SIGPROF.
    const ALARM_SIGNALS: u64 = 1 << 13 | 1 << 25 | 1 << 26;
    let status = procfs::short_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_none_or(|mask| mask & ALARM_SIGNALS != 0)
}

enum ConnectionEnd {
    /// The process on this host that created the other end.
    Process(i32),
    Internet(Ends),
    /// A different host or namespace, which cannot be observed.
    Remote,
}

fn has_time_limit(socket: &OwnedFd) -> bool {
    use rustix::net::sockopt::{Timeout, socket_timeout};
    [Timeout::Recv, Timeout::Send].into_iter().any(|way| matches!(socket_timeout(socket, way), Ok(Some(_))))
}

fn other_end(socket: &OwnedFd) -> Option<ConnectionEnd> {
    let there = rustix::net::getpeername(socket.as_fd()).ok()??;
    if there.address_family() == rustix::net::AddressFamily::UNIX {
        let maker = rustix::net::sockopt::socket_peercred(socket).ok()?;
        return Some(ConnectionEnd::Process(maker.pid.as_raw_nonzero().get()));
    }
    Some(tcp::ends(socket).map_or(ConnectionEnd::Remote, ConnectionEnd::Internet))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadWait {
    /// The thread is waiting for an event, without a time limit.
    Endless,
    /// The thread is waiting for an event with a timeout, or is just sleeping.
    Limited,
    /// The thread is not waiting for an event.
    None,
}

/// Returns how a thread waits, according to a line of `/proc/PID/task/TID/syscall`, which contains the call's number and arguments.
fn wait(line: &str) -> ThreadWait {
    let mut words = line.split_whitespace();
    let Some(number) = words.next().and_then(|n| n.parse::<u32>().ok()) else { return ThreadWait::None };
    let args: Vec<u64> =
        words.map(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).unwrap_or(1)).take(6).collect();
    let arg = |i: usize| args.get(i).copied().unwrap_or(1);
    // A timeout in milliseconds is an int, so only the low 32 bits are significant.
    let endless = |i: usize| (arg(i) as u32 as i32) < 0;
    let no_timeout = |i: usize| arg(i) == 0;
    let endless = match call(number) {
        BlockingCall::Poll => endless(2),
        BlockingCall::EpollWait => endless(3),
        BlockingCall::Ppoll => no_timeout(2),
        BlockingCall::EpollPwait2 => no_timeout(3),
        BlockingCall::Select => no_timeout(4),
        BlockingCall::Futex => no_timeout(3),
        BlockingCall::SigTimedWait => no_timeout(2),
        BlockingCall::Endless => true,
        BlockingCall::Sleep => false,
        BlockingCall::Other => return ThreadWait::None,
    };
    if endless { ThreadWait::Endless } else { ThreadWait::Limited }
}

enum BlockingCall {
    Poll,
    Ppoll,
    Select,
    EpollWait,
    EpollPwait2,
    Futex,
    SigTimedWait,
    /// A call without a time limit in its arguments, such as read, recv, accept, wait4 or pause.
    Endless,
    /// nanosleep and clock_nanosleep.
    Sleep,
    Other,
}

/// The numbers of the system calls read and readv.
#[cfg(target_arch = "x86_64")]
const READ_CALLS: [u32; 2] = [0, 19];
#[cfg(target_arch = "aarch64")]
const READ_CALLS: [u32; 2] = [63, 65];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const READ_CALLS: [u32; 0] = [];

#[cfg(target_arch = "x86_64")]
fn call(number: u32) -> BlockingCall {
    match number {
        7 => BlockingCall::Poll,
        271 => BlockingCall::Ppoll,
        23 | 270 => BlockingCall::Select,
        232 | 281 => BlockingCall::EpollWait,
        441 => BlockingCall::EpollPwait2,
        202 => BlockingCall::Futex,
        128 => BlockingCall::SigTimedWait,
        35 | 230 => BlockingCall::Sleep,
        0 | 19 | 34 | 43 | 45 | 47 | 61 | 130 | 247 | 288 => BlockingCall::Endless,
        _ => BlockingCall::Other,
    }
}

#[cfg(target_arch = "aarch64")]
fn call(number: u32) -> BlockingCall {
    match number {
        73 => BlockingCall::Ppoll,
        72 => BlockingCall::Select,
        22 => BlockingCall::EpollWait,
        441 => BlockingCall::EpollPwait2,
        98 => BlockingCall::Futex,
        137 => BlockingCall::SigTimedWait,
        101 | 115 => BlockingCall::Sleep,
        63 | 65 | 133 | 95 | 202 | 207 | 212 | 242 | 260 => BlockingCall::Endless,
        _ => BlockingCall::Other,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call(_: u32) -> BlockingCall {
    BlockingCall::Other
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use rstest::rstest;

    use super::{ThreadWait, procfs, reads_file, wait};

    #[test]
    fn file_reads_do_not_count_as_waits() {
        let me = procfs::own_pid();
        let reads = |from: &OwnedFd, call: u32| {
            reads_file(me, &format!("{call} {:#x} 0x7ffe 0x6 0x0 0x0 0x0 0x7ffe 0x7f", from.as_raw_fd()))
        };
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let pipe = rustix::pipe::pipe().unwrap().0;
        assert!(reads(&file, 0) && reads(&file, 19));
        assert!(!reads(&pipe, 0));
        // poll() takes an address where read() takes a descriptor.
        assert!(!reads(&file, 7));
    }

    #[rstest]
    #[case::poll("7 0x7ffe 0x2 0xffffffff 0x0 0x0 0x0 0x7ffe 0x7f", ThreadWait::Endless)]
    #[case::poll_for_a_second("7 0x7ffe 0x2 0x3e8 0x0 0x0 0x0 0x7ffe 0x7f", ThreadWait::Limited)]
    #[case::epoll("232 0x4 0x7ffe 0x10 0xffffffffffffffff 0x0 0x0 0x7ffe 0x7f", ThreadWait::Endless)]
    #[case::clock_nanosleep("230 0x0 0x0 0x7ffe 0x0 0x0 0x0 0x7ffe 0x7f", ThreadWait::Limited)]
    #[case::futex_with_a_limit("202 0x7f 0x80 0x0 0x7ffe 0x0 0x0 0x7ffe 0x7f", ThreadWait::Limited)]
    #[case::brk("12 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f", ThreadWait::None)]
    #[case::at_work("running", ThreadWait::None)]
    #[case::unreadable("", ThreadWait::None)]
    fn classifies_waits_by_system_call(#[case] line: &str, #[case] expected: ThreadWait) {
        assert_eq!(wait(line), expected);
    }
}
