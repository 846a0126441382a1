//! Can it be read off the server's processes that no answer will come?
//!
//! A server is idle when each thread of each of its processes waits without a time limit for something that only we
//! can cause. Then silence is proven, without waiting for a clock. Linux only; elsewhere it is never proven.

use std::fs;

/// A thread's number and how often it has gone to sleep of its own.
type Sleeps = Vec<(i32, u64)>;

/// Looks twice; true if every thread of the processes was in an endless wait both times and did not run between.
pub(super) fn all_waiting(pids: &[i32]) -> bool {
    if pids.is_empty() {
        return false;
    }
    let look = || -> Option<Sleeps> { pids.iter().try_fold(Vec::new(), |sum, pid| threads(*pid, sum)) };
    matches!((look(), look()), (Some(a), Some(b)) if a == b)
}

fn threads(pid: i32, mut sleeps: Sleeps) -> Option<Sleeps> {
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let folder = task.path();
        if !waits_for_ever(&fs::read_to_string(folder.join("syscall")).ok()?) {
            return None;
        }
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        sleeps.push((tid, count.trim().parse().ok()?));
    }
    Some(sleeps)
}

/// Reads a line of `/proc/PID/task/TID/syscall`: the call's number and its arguments.
fn waits_for_ever(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let Some(number) = words.next().and_then(|n| n.parse::<u32>().ok()) else { return false };
    let args: Vec<u64> =
        words.map(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).unwrap_or(1)).take(6).collect();
    let arg = |i: usize| args.get(i).copied().unwrap_or(1);
    // A timeout in milliseconds is an int: its low half counts.
    let endless = |i: usize| (arg(i) as u32 as i32) < 0;
    let no_timeout = |i: usize| arg(i) == 0;
    match call(number) {
        Call::Poll => endless(2),
        Call::EpollWait => endless(3),
        Call::Ppoll => no_timeout(2),
        Call::EpollPwait2 => no_timeout(3),
        Call::Select => no_timeout(4),
        Call::Futex => no_timeout(3),
        Call::SigTimedWait => no_timeout(2),
        Call::Endless => true,
        Call::Other => false,
    }
}

enum Call {
    Poll,
    Ppoll,
    Select,
    EpollWait,
    EpollPwait2,
    Futex,
    SigTimedWait,
    /// read, recv, accept, wait4, pause ...: no time limit in the arguments.
    Endless,
    Other,
}

#[cfg(target_arch = "x86_64")]
fn call(number: u32) -> Call {
    match number {
        7 => Call::Poll,
        271 => Call::Ppoll,
        23 | 270 => Call::Select,
        232 | 281 => Call::EpollWait,
        441 => Call::EpollPwait2,
        202 => Call::Futex,
        128 => Call::SigTimedWait,
        0 | 19 | 34 | 43 | 45 | 47 | 61 | 130 | 247 | 288 => Call::Endless,
        _ => Call::Other,
    }
}

#[cfg(target_arch = "aarch64")]
fn call(number: u32) -> Call {
    match number {
        73 => Call::Ppoll,
        72 => Call::Select,
        22 => Call::EpollWait,
        441 => Call::EpollPwait2,
        98 => Call::Futex,
        137 => Call::SigTimedWait,
        63 | 65 | 133 | 95 | 202 | 207 | 212 | 242 | 260 => Call::Endless,
        _ => Call::Other,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call(_: u32) -> Call {
    Call::Other
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::waits_for_ever;

    #[test]
    fn only_waits_without_a_limit_count() {
        assert!(waits_for_ever("7 0x7ffe 0x2 0xffffffff 0x0 0x0 0x0 0x7ffe 0x7f"), "poll(-1)");
        assert!(!waits_for_ever("7 0x7ffe 0x2 0x3e8 0x0 0x0 0x0 0x7ffe 0x7f"), "poll(1000)");
        assert!(
            waits_for_ever("232 0x4 0x7ffe 0x10 0xffffffffffffffff 0x0 0x0 0x7ffe 0x7f"),
            "epoll_wait(-1)"
        );
        assert!(!waits_for_ever("230 0x0 0x0 0x7ffe 0x0 0x0 0x0 0x7ffe 0x7f"), "clock_nanosleep");
        assert!(!waits_for_ever("202 0x7f 0x80 0x0 0x7ffe 0x0 0x0 0x7ffe 0x7f"), "futex with a timeout");
        assert!(!waits_for_ever("running"));
        assert!(!waits_for_ever(""));
    }
}
