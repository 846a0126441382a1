//! The processes of an implementation: its descendants, and the orphans that it leaves to us.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

/// Name of the variable that marks everything a run has started.
pub(super) const MARK: &str = "PMI_CONFORM_RUN";

/// Makes orphans of our descendants our children, so that nothing escapes by forking twice.
pub(super) fn become_subreaper() {
    // Without it, only what has left our process tree escapes; nothing to be done about it.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Field `PPid` of every process, and whether it is a zombie.
fn parents() -> HashMap<i32, (i32, bool)> {
    let Ok(dir) = fs::read_dir("/proc") else { return HashMap::new() };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect()
}

fn parent(pid: i32) -> Option<(i32, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold blanks and parentheses; the fields follow its last ')'.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, state == "Z" || state == "X"))
}

/// Living descendants of `root`, itself included.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    let parents = parents();
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, (parent, _)) in &parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(pid) = todo.pop() {
        if parents.get(&pid).is_some_and(|(_, zombie)| !zombie) {
            found.push(pid);
        }
        todo.extend(children.get(&pid).into_iter().flatten());
    }
    found
}

/// Our children, adopted ones included.
fn own_children() -> Vec<i32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let listed: Vec<String> =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok()).collect();
    listed.iter().flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
}

/// Children of ours that carry the mark of a run, without `launcher`, which its handle reaps.
fn adopted(mark: &str, launcher: i32) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    own_children()
        .into_iter()
        .filter(|pid| *pid != launcher)
        .filter(|pid| {
            // A zombie has no environment any more; it is ours to reap if no other run claims it.
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|b| *b == 0).any(|var| var == wanted.as_bytes()))
        })
        .collect()
}

/// Reaps the orphans among `pids` that have ended; tells how those ended that died of a signal.
pub(super) fn reap(pids: &mut HashSet<i32>) -> Vec<(i32, i32)> {
    let mut died = Vec::new();
    pids.retain(|pid| {
        let Some(pid) = Pid::from_raw(*pid) else { return false };
        match rustix::process::waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                if let Some(signal) = status.terminating_signal() {
                    died.push((pid.as_raw_nonzero().get(), signal));
                }
                false
            }
            Ok(None) => true,
            Err(_) => false,
        }
    });
    died
}

/// Ends every process of a run and reaps the orphans. `known` are pids that told us of themselves.
pub(super) fn end_all(mark: &str, launcher: i32, known: &HashSet<i32>) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let mut orphans = HashSet::new();
    for round in 0..200 {
        let mut alive: HashSet<i32> = descendants(launcher).into_iter().collect();
        let adopted = adopted(mark, launcher);
        for root in &adopted {
            alive.extend(descendants(*root));
        }
        orphans.extend(adopted);
        // A pid that told us of itself may have been reused since: only our descendants are ended.
        alive.extend(known.iter().filter(|pid| is_descendant(**pid, me)));
        alive.remove(&me);
        for pid in &alive {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        reap(&mut orphans);
        if alive.is_empty() && orphans.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(if round < 20 { 1 } else { 10 }));
    }
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

/// Whether anything of a run is left, apart from its launcher: cheap, for runs that ended well.
pub(super) fn anything_left(mark: &str, launcher: i32, known: &HashSet<i32>) -> bool {
    !adopted(mark, launcher).is_empty()
        || known.iter().any(|pid| parent(*pid).is_some_and(|(_, zombie)| !zombie))
}
