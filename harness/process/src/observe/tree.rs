//! The processes of an implementation: the launcher's descendants, and the orphans that become children of this process.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

use super::procfs::{self, Stat};

/// The memory use of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The process id.
    pub pid: i32,
    /// The name of the program, truncated by the kernel.
    pub name: String,
    /// The resident memory in bytes.
    pub bytes: u64,
}

/// Name of the environment variable that marks every process of a run.
pub const MARK: &str = "PMI_CONFORM_RUN";

/// Makes this process the parent of its orphaned descendants, so that no process escapes by forking twice.
pub fn become_subreaper() {
    // If this call fails, orphans may escape, and nothing else can prevent this.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// The current launches, and orphans whose launch is unknown.
#[derive(Default)]
struct LaunchRegistry {
    /// The mark of each launch, by the launcher's process id.
    launches: HashMap<i32, String>,
    /// For each orphan without a mark, the launchers whose launches may have started it.
    unmarked_orphans: HashMap<i32, HashSet<i32>>,
}

static REGISTRY: Mutex<Option<LaunchRegistry>> = Mutex::new(None);

/// Passes the registry to `with`. The registry is used even after another thread has panicked, because a panic leaves it consistent.
fn registry<T>(with: impl FnOnce(&mut LaunchRegistry) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<LaunchRegistry>> =
        REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    with(guard.get_or_insert_default())
}

/// Starts a launcher with `start`, whose second result is the launcher's process id, and registers the launcher. No thread searches for
/// orphans before the launcher is registered.
pub(crate) fn launch<T, E>(mark: &str, start: impl FnOnce() -> Result<(T, i32), E>) -> Result<(T, i32), E> {
    registry(|all| {
        let started = start()?;
        all.launches.insert(started.1, mark.to_owned());
        Ok(started)
    })
}

/// Handles a launcher that has ended and been reaped. Orphans with the mark of this launch are killed immediately: [`end_all`] may have
/// missed one, because a process has no readable environment while it starts another program. Orphans whose environment was cleared have no
/// mark. They are killed when every launch that may have started them has ended.
pub(crate) fn launch_ended(mark: &str, launcher: i32) {
    let doomed = registry(|all| {
        all.launches.remove(&launcher);
        let orphans =
            || inherited_children().into_iter().filter(|pid| !all.launches.contains_key(pid)).collect();
        let (children, mut doomed) = marked_children(mark, orphans);
        // Orphans that have ended are reaped. Otherwise, a long campaign would fill the process table.
        let mut orphans: HashSet<i32> = launched_among(children).collect();
        reap(&mut orphans);
        for pid in orphans.into_iter().filter(|pid| is_unmarked(*pid, &all.launches)) {
            let suspects = || all.launches.keys().copied().collect();
            all.unmarked_orphans.entry(pid).or_insert_with(suspects);
        }
        all.unmarked_orphans.retain(|pid, suspects| {
            suspects.retain(|launch| all.launches.contains_key(launch));
            if suspects.is_empty() {
                doomed.insert(*pid);
            }
            !suspects.is_empty()
        });
        doomed
    });
    end_orphans(doomed);
}

/// Returns whether a child is alive and has none of the marks in `live`.
fn is_unmarked(pid: i32, live: &HashMap<i32, String>) -> bool {
    parent(pid).is_some_and(|(_, zombie)| !zombie)
        && mark_of(pid).is_none_or(|carried| !live.values().any(|mark| *mark == carried))
}

/// Returns the children that are not in the process group of this process. Children in that group were not started for a launch.
fn launched_among(children: Vec<i32>) -> impl Iterator<Item = i32> {
    let own_group = rustix::process::getpgrp();
    children.into_iter().filter(move |pid| {
        Pid::from_raw(*pid).is_some_and(|p| rustix::process::getpgid(Some(p)).is_ok_and(|g| g != own_group))
    })
}

fn end_orphans(mut orphans: HashSet<i32>) {
    let roots = orphans.clone();
    wait_until_gone(|| {
        for pid in roots.iter().filter(|pid| orphans.contains(pid)).flat_map(|pid| descendants(*pid)) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        reap(&mut orphans);
        orphans.is_empty()
    });
}

/// Waits until `gone` returns true, but for at most two seconds. On a busy machine, a killed process does not disappear immediately.
fn wait_until_gone(mut gone: impl FnMut() -> bool) {
    for round in 0..200 {
        if gone() {
            return;
        }
        std::thread::sleep(Duration::from_millis(if round < 20 { 1 } else { 10 }));
    }
}

/// Returns the process that created a connection, if it is another process on this host.
pub fn peer_process(connection: impl AsFd) -> Option<i32> {
    let made = rustix::net::sockopt::socket_peercred(connection).ok()?.pid;
    (made != rustix::process::getpid()).then(|| made.as_raw_nonzero().get())
}

/// Returns the ids of all processes that this process can see, including those of other users.
pub fn all_processes() -> Vec<i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the memory use of a process.
pub fn memory(pid: i32) -> Option<Memory> {
    memory_in(pid, &Stat::of(pid)?)
}

/// Returns the number of open descriptors of a process; 0 if the number cannot be read.
pub fn descriptors(pid: i32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |open| open.count() as u64)
}

fn memory_in(pid: i32, stat: &Stat) -> Option<Memory> {
    let pages: u64 = stat.number(24)?;
    Some(Memory { pid, name: stat.name().to_owned(), bytes: pages * rustix::param::page_size() as u64 })
}

/// Returns the processes that may belong to a launch, sorted by process id: the launcher, its descendants, and orphans. Excludes the
/// processes in `agents`, which belong to the harness.
pub fn of_launch(launcher: i32, agents: &HashSet<i32>) -> Vec<i32> {
    // Orphans are listed last: if a process ends while the descendants are being listed, its children have become orphans by then.
    let mut all = below(launcher, agents);
    let left = inherited_children();
    if !left.is_empty() {
        let live = registry(|all| all.launches.clone());
        let others = |pid: i32| {
            live.contains_key(&pid)
                || mark_of(pid)
                    .is_some_and(|carried| live.iter().any(|(l, mark)| *l != launcher && *mark == carried))
        };
        for orphan in launched_among(left).filter(|pid| *pid != launcher && !others(*pid)) {
            all.extend(below(orphan, agents));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns whether a process was started with the mark of a run in its environment.
fn has_mark(pid: i32, mark: &str) -> bool {
    mark_of(pid).is_some_and(|carried| carried == mark)
}

fn mark_of(pid: i32) -> Option<String> {
    variable_of(pid, MARK)
}

/// Returns the value of a variable in a process's environment. A zombie no longer has an environment.
pub fn variable_of(pid: i32, name: &str) -> Option<String> {
    value_in(&environment(pid)?, name)
}

fn value_in(environment: &[u8], name: &str) -> Option<String> {
    let mut entries = environment.split(|b| *b == 0);
    loop {
        // While bash starts, it replaces the equals sign of an entry with NUL, so the value looks like the next entry.
        let value = match entries.next()?.strip_prefix(name.as_bytes()) {
            Some(b"") => entries.next(),
            Some(rest) => rest.strip_prefix(b"="),
            None => None,
        };
        if let Some(value) = value {
            return String::from_utf8(value.to_vec()).ok();
        }
    }
}

/// Returns a process's environment, unless it is empty. While a process executes a new program, its environment reads as empty or
/// incomplete, so this function repeats the read until the environment is complete.
fn environment(pid: i32) -> Option<Vec<u8>> {
    /// Maximum wait for a program to start. A start takes this long only if a file system does not respond.
    const MAX_START_TIME: Duration = Duration::from_secs(10);
    let deadline = Instant::now() + MAX_START_TIME;
    let mut before = None;
    loop {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let stat = Stat::of(pid)?;
        if stat.field(3) == Some("Z") {
            // Other threads of a process may outlive the first one, and still provide the environment.
            let of = |tid| fs::read(format!("/proc/{pid}/task/{tid}/environ")).ok();
            return procfs::threads(pid).ok()?.filter_map(of).find(|env| !env.is_empty());
        }
        // The kernel sets the address of the program's code last, so a process without this address is still starting.
        let is_starting = stat.field(26) == Some("0");
        let (start, end): (usize, usize) = (stat.number(50)?, stat.number(51)?);
        let now = (env.len(), start, end);
        // If the process has unmapped part of its environment, two successive reads return the same number of bytes.
        let is_complete = env.len() == end.saturating_sub(start) || before == Some(now);
        if !is_starting && is_complete || Instant::now() >= deadline {
            return Some(env).filter(|env| !env.is_empty());
        }
        if is_starting {
            std::thread::sleep(Duration::from_micros(200));
        }
        before = Some(now);
    }
}

/// Returns the parent of a process, and whether the process is a zombie.
pub fn parent(pid: i32) -> Option<(i32, bool)> {
    let stat = Stat::of(pid)?;
    Some((stat.number(4)?, stat.is_dead()))
}

/// Returns the ancestors of a process that are descendants of `root`. The result is empty if the process is not a descendant of `root`.
pub fn between(root: i32, pid: i32) -> Vec<i32> {
    let ancestors = std::iter::successors(Some(pid), |pid| Some(parent(*pid)?.0)).skip(1);
    let mut found: Vec<i32> = ancestors.take_while(|pid| *pid > 1).collect();
    let root = found.iter().position(|pid| *pid == root).unwrap_or(0);
    found.truncate(root);
    found
}

/// Returns the living descendants of `root`, including `root` itself.
pub fn descendants(root: i32) -> Vec<i32> {
    below(root, &HashSet::new())
}

/// Returns the living descendants of `root`, including `root` itself, but excluding the processes in `but` and their descendants.
fn below(root: i32, but: &HashSet<i32>) -> Vec<i32> {
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(pid) = todo.pop() {
        if but.contains(&pid) {
            continue;
        }
        let Some(stat) = Stat::of(pid) else { continue };
        todo.extend(children_of(pid, &stat));
        if !stat.is_dead() {
            found.push(pid);
        }
    }
    found
}

/// Returns the children of a process, including adopted children. Reads a file for each thread, because reading all of /proc would take
/// much longer.
fn children(pid: i32) -> Vec<i32> {
    let threads = procfs::threads(pid).into_iter().flatten();
    threads.flat_map(|thread| children_of_thread(pid, thread)).collect()
}

/// Returns the children of a process whose state has just been read. Looks up the other threads only if the process has more than one
/// thread.
fn children_of(pid: i32, stat: &Stat) -> Vec<i32> {
    match stat.number(20) {
        Some(1) => children_of_thread(pid, pid),
        _ => children(pid),
    }
}

fn children_of_thread(pid: i32, tid: i32) -> Vec<i32> {
    let list = procfs::short_text(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the living orphans with the mark of a run, and their descendants.
pub fn orphans(mark: &str) -> Vec<i32> {
    marked_orphans(mark, 0).into_iter().flat_map(descendants).collect()
}

/// Kills the remaining processes of a run that has no launcher.
pub fn end_orphans_of(mark: &str) {
    if !marked_orphans(mark, 0).is_empty() {
        end_all(mark, 0, &HashSet::new());
    }
}

/// Returns the remaining processes of a run, according to `names`. Calls `names` repeatedly for a short time until the result is empty,
/// because a process that depends on an exited process may be about to exit as well.
pub fn remaining_processes(names: impl Fn() -> Vec<String>) -> Vec<String> {
    const EXIT_GRACE: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + EXIT_GRACE;
    loop {
        let names = names();
        if names.is_empty() || Instant::now() >= deadline {
            return names;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn own_children() -> Vec<i32> {
    children(procfs::own_pid())
}

/// Returns the children of this process's first thread. As long as that thread runs, the kernel makes orphans its children. Processes that
/// other threads have started are not included.
fn inherited_children() -> Vec<i32> {
    children_of_thread(procfs::own_pid(), procfs::own_pid())
}

/// Returns the children of this process with the mark of a run, except `launcher`, which is reaped through its handle.
fn marked_orphans(mark: &str, launcher: i32) -> HashSet<i32> {
    let (_, mut marked) = marked_children(mark, own_children);
    marked.remove(&launcher);
    marked
}

/// Returns the children of this process according to `list`, and the children with the mark of a run. If a child ends in the meantime, the
/// kernel's list may skip others, and the children of that child become children of this process. Therefore, calls `list` until it returns
/// the same children twice in a row.
fn marked_children(mark: &str, list: impl Fn() -> Vec<i32>) -> (Vec<i32>, HashSet<i32>) {
    let mut children = list();
    loop {
        let marked = children.iter().copied().filter(|pid| has_mark(*pid, mark)).collect();
        let now = list();
        if now == children {
            return (children, marked);
        }
        children = now;
    }
}

/// Reaps the processes in `pids` that have ended, and removes them from `pids`.
fn reap(pids: &mut HashSet<i32>) {
    pids.retain(|pid| {
        let pid = Pid::from_raw(*pid);
        pid.is_some_and(|pid| matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)))
    });
}

/// Kills every process of a run, and reaps the orphans. `known` contains the ids of processes that have reported to the runner.
pub(crate) fn end_all(mark: &str, launcher: i32, known: &HashSet<i32>) {
    let me = procfs::own_pid();
    let mut orphans = HashSet::new();
    wait_until_gone(|| {
        let mut alive: HashSet<i32> = descendants(launcher).into_iter().collect();
        let adopted = marked_orphans(mark, launcher);
        for root in &adopted {
            alive.extend(descendants(*root));
        }
        orphans.extend(adopted);
        // A process in `known` may have ended, and its id may have been reused, so only descendants of this process are killed.
        alive.extend(known.iter().filter(|pid| is_descendant(**pid, me)));
        alive.remove(&me);
        for pid in &alive {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        reap(&mut orphans);
        alive.is_empty() && orphans.is_empty()
    });
}

/// Kills all descendants of this process and reaps its children, except `launcher`, which is reaped through its handle.
pub fn end_descendants(launcher: i32) {
    let me = procfs::own_pid();
    wait_until_gone(|| {
        let alive: Vec<i32> = descendants(me).into_iter().filter(|pid| *pid != me).collect();
        for pid in alive.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let mut orphans: HashSet<i32> = own_children().into_iter().filter(|pid| *pid != launcher).collect();
        reap(&mut orphans);
        alive.is_empty() && orphans.is_empty()
    });
}

fn is_descendant(pid: i32, ancestor: i32) -> bool {
    let mut at = pid;
    for _ in 0..64 {
        match parent(at) {
            Some((_, true)) | None => return false,
            Some((up, _)) if up == ancestor => return true,
            Some((up, _)) if up <= 1 => return false,
            Some((up, _)) => at = up,
        }
    }
    false
}

/// Returns whether any process of a run is left, apart from its launcher. This check is cheaper than [`end_all`].
pub(crate) fn has_remaining(mark: &str, launcher: i32, known: &HashSet<i32>) -> bool {
    let live = |pid: &i32| registry(|all| all.launches.contains_key(pid));
    inherited_children().into_iter().any(|pid| pid != launcher && !live(&pid) && has_mark(pid, mark))
        || known.iter().any(|pid| parent(*pid).is_some_and(|(_, zombie)| !zombie))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn reads_memory_of_process_with_unusual_name() {
        let stat = |text: String| Stat::parse(text).unwrap();
        let read = memory_in(7, &stat(format!("7 (a) b (c) S {}300 9 0\n", "1 ".repeat(20)))).unwrap();
        let page = rustix::param::page_size() as u64;
        assert_eq!((read.pid, read.name.as_str(), read.bytes), (7, "a) b (c", 300 * page));
        assert_eq!(memory_in(7, &stat("7 (x) S 1 2".into())), None);
        let own = memory(std::process::id() as i32).unwrap();
        assert!(own.bytes > 1 << 20, "{own:?}");
    }

    #[test]
    fn between_returns_ancestors_below_the_root() {
        let own = std::process::id() as i32;
        let (above, _) = parent(own).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let below = child.id() as i32;
        let found = [between(above, below), between(own, below), between(below, own)];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [vec![own], vec![], vec![]]);
    }

    #[test]
    fn orphans_are_reparented_to_the_runner() {
        become_subreaper();
        let script = ["-c", "sleep 60 >/dev/null 2>&1 & echo $!"];
        // The shell is started by the thread of this test, which is not the first thread of the process.
        let left = std::process::Command::new("sh").args(script).output().unwrap();
        let pid: i32 = String::from_utf8(left.stdout).unwrap().trim().parse().unwrap();
        let is_ours = inherited_children().contains(&pid);
        end_orphans(HashSet::from([pid]));
        assert!(is_ours && !inherited_children().contains(&pid));
    }

    #[test]
    fn finds_process_whose_first_thread_has_exited() {
        // The call exit() ends only the first thread. The second thread ends the process when it reaches the end of its input.
        let script = "import ctypes, os, sys, threading\n\
                      threading.Thread(target=lambda: (print(flush=True), sys.stdin.read(), os._exit(0))).start()\n\
                      ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)";
        let mut command = std::process::Command::new("python3");
        let exit = libc::SYS_exit.to_string();
        let mut child = command
            .args(["-c", script, &exit])
            .env("CARRIED", "yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let pid = child.id() as i32;
        while Stat::of(pid).unwrap().field(3) != Some("Z") {
            std::thread::yield_now();
        }
        assert_eq!(descendants(pid), [pid]);
        assert_eq!(variable_of(pid, "CARRIED").as_deref(), Some("yes"));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn finds_variable_whose_equals_sign_is_replaced() {
        for environment in
            ["A=1\0CARRIED=yes\0B=2\0", "A=1\0CARRIED\0yes\0B=2\0", "CARRIED_ALSO=no\0CARRIED=yes\0"]
        {
            assert_eq!(value_in(environment.as_bytes(), "CARRIED").as_deref(), Some("yes"));
        }
        assert_eq!(value_in(b"CARRIED_ALSO=yes\0", "CARRIED"), None);
    }

    /// The kernel takes a long time to copy the many arguments and variables of this test. During that time, the environment reads as
    /// empty.
    #[test]
    fn environment_is_read_while_a_program_starts() {
        let script = "import os, sys\n\
                      rounds = int(sys.argv[1])\n\
                      env = {**{f'_{n}': '' for n in range(60_000)}, 'CARRIED': 'yes'}\n\
                      args = ['python3', '-c', sys.argv[2], str(rounds - 1), sys.argv[2]] + [''] * 60_000\n\
                      os.execvpe('python3', args, env) if rounds else sys.exit()";
        let mut command = std::process::Command::new("python3");
        let mut child = command.args(["-c", script, "3", script]).env("CARRIED", "yes").spawn().unwrap();
        let pid = child.id() as i32;
        let is_alive = || parent(pid).is_some_and(|(_, zombie)| !zombie);
        let mut missed = 0;
        while is_alive() {
            missed += u32::from(variable_of(pid, "CARRIED").is_none() && is_alive());
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(missed, 0);
    }

    #[test]
    fn finds_process_with_arbitrary_bytes_in_its_name() {
        let script = r"printf '\377) Z' >/proc/$$/comm && echo named && read line";
        let mut command = std::process::Command::new("sh");
        let pipes = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let mut named = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut named).unwrap();
        let pid = child.id() as i32;
        assert_eq!((descendants(pid), parent(pid)), (vec![pid], Some((std::process::id() as i32, false))));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
