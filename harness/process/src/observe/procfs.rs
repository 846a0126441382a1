//! Reads the files in `/proc` that describe processes. The processes may be hostile.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Pid;

/// Maximum number of bytes that are read from a file. Files in `/proc` are much smaller.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Maximum number of bytes that the kernel returns in a single read.
const PAGE_SIZE: usize = 4096;
/// Maximum length of a line in a file of short lines.
const LONGEST_LINE: usize = 1024;

/// Returns a file's text. Invalid UTF-8 is replaced, because several files contain a process's name, which may consist of arbitrary bytes.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    // For most files, this is enough room for a single read.
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut bytes)?;
    Ok(into_text(bytes))
}

/// Returns the text of a file of short lines. The kernel puts as many whole lines into the buffer as fit, so the text is complete if the
/// buffer has room for another line.
pub(crate) fn short_text(path: impl AsRef<Path>) -> io::Result<String> {
    let (file, mut bytes) = (File::open(path)?, Vec::new());
    loop {
        let mut page = [0; PAGE_SIZE];
        let n = file.read_at(&mut page, bytes.len() as u64)?;
        bytes.extend_from_slice(&page[..n]);
        if n < PAGE_SIZE - LONGEST_LINE || bytes.len() as u64 >= MAX_FILE_SIZE {
            return Ok(into_text(bytes));
        }
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// The processor time since boot, in ticks: the sum over all processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessorTime {
    pub(crate) all: u64,
    pub(crate) idle: u64,
}

pub(crate) fn processor_time() -> io::Result<ProcessorTime> {
    let text = text("/proc/stat")?;
    let first = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The later fields are included in user and nice.
    let ticks: Vec<u64> = first.split_ascii_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    match ticks[..] {
        [_, _, _, idle, iowait, ..] => {
            Ok(ProcessorTime { all: ticks.iter().sum(), idle: idle.saturating_add(iowait) })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the id of this process, as it appears in `/proc`.
pub fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Returns a process's name, which the kernel truncates to 15 bytes.
pub fn name(pid: i32) -> Option<String> {
    Some(short_text(format!("/proc/{pid}/comm")).ok()?.trim_end_matches('\n').to_owned())
}

pub(crate) fn threads(pid: i32) -> io::Result<impl Iterator<Item = i32>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()))
}

/// Returns whether a process is about to end. The kernel sets a flag before it closes the descriptors, and closes the descriptors before
/// the process can be waited for.
pub fn is_exiting(pid: Pid) -> bool {
    const PF_EXITING: u64 = 4;
    Stat::of(pid.as_raw_nonzero().get())
        .and_then(|stat| stat.number::<u64>(9))
        .is_some_and(|flags| flags & PF_EXITING != 0)
}

/// The content of `/proc/PID/stat` (see proc_pid_stat(5)).
pub struct Stat {
    text: String,
    /// The position of the name, which may contain spaces and parentheses.
    name: std::ops::Range<usize>,
}

impl Stat {
    /// Reads the state of a process. Returns `None` if the process does not exist.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(short_text(format!("/proc/{pid}/stat")).ok()?)
    }

    pub(crate) fn parse(text: String) -> Option<Self> {
        let name = text.find('(')? + 1..text.rfind(')')?;
        (name.start <= name.end).then_some(Self { text, name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.text[self.name.clone()]
    }

    /// Returns all fields after the name. The first is field 3, the state.
    fn fields_after_name(&self) -> std::str::SplitAsciiWhitespace<'_> {
        self.text[self.name.end + 1..].split_ascii_whitespace()
    }

    /// Returns a field by its number in the manual, where the state is field 3. Only fields after the name are available.
    pub fn field(&self, number: usize) -> Option<&str> {
        self.fields_after_name().nth(number.checked_sub(3)?)
    }

    /// Returns a numeric field by its number in the manual.
    pub(crate) fn number<T: std::str::FromStr>(&self, number: usize) -> Option<T> {
        self.field(number)?.parse().ok()
    }

    /// Returns the wait status of a dead process, as its parent will receive it.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        self.fields_after_name().next_back()?.parse().ok()
    }

    /// Returns whether the process has ended and its parent has not waited for it. The state alone does not show this: it is the state of
    /// the first thread, which may end long before the others.
    pub(crate) fn is_dead(&self) -> bool {
        let others = self.number::<u32>(20).is_some_and(|threads| threads > 1);
        matches!(self.field(3), Some("Z" | "X")) && !others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_files_longer_than_a_page() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for length in [0, 1, PAGE_SIZE - LONGEST_LINE - 1, PAGE_SIZE - 1, PAGE_SIZE, 3 * PAGE_SIZE + 7] {
            let text = "x".repeat(length);
            fs::write(file.path(), &text).unwrap();
            assert_eq!(short_text(file.path()).unwrap(), text, "{length}");
        }
    }

    #[test]
    fn parses_stat_with_parentheses_in_the_name() {
        let stat = Stat::parse("7 (a) Z (c) S 41 9 0\n".into()).unwrap();
        assert_eq!((stat.name(), stat.field(3), stat.number(4)), ("a) Z (c", Some("S"), Some(41)));
        assert_eq!((stat.field(2), stat.field(60), stat.number::<u32>(3)), (None, None, None));
        assert!(!stat.is_dead());
        assert!(Stat::parse(")(".into()).is_none());
    }
}
