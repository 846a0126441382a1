//! The cause of a process's death, derived from the signal and from the last message of the C library.

use libc::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};

use crate::Side;
use crate::backtrace::Backtrace;
use crate::event::{Event, EventKind};

/// The kind of event that made a process die of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalCause {
    /// A fault of the program, detected by the processor or the kernel.
    Fault,
    /// The process called `abort()`, by choice or because the C library detected corrupted memory.
    Abort,
    /// The process wrote to a closed connection.
    BrokenPipe,
    /// Another process ended it, or asked it to end.
    Order,
    /// Any other signal.
    Other,
}

impl SignalCause {
    /// Returns the cause that a signal stands for.
    pub fn of(signal: i32) -> Self {
        match signal {
            SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV | SIGSYS => Self::Fault,
            SIGABRT => Self::Abort,
            SIGPIPE => Self::BrokenPipe,
            SIGHUP | SIGINT | SIGKILL | SIGTERM => Self::Order,
            _ => Self::Other,
        }
    }

    /// Returns whether the signal usually comes from a process manager, a user or a closed connection, rather than from a fault of the
    /// program.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::Order | Self::BrokenPipe)
    }
}

/// Prefixes, after asterisks, of the lines that the C library writes before it calls `abort()` because of corrupted memory.
pub const BROKEN_MEMORY: [&str; 9] = [
    "stack smashing detected",
    "buffer overflow detected",
    "free(): ",
    "malloc(): ",
    "realloc(): ",
    "malloc_consolidate(): ",
    "double free or corruption",
    "corrupted size vs. prev_size",
    "munmap_chunk(): ",
];

/// Returns whether the line is a report from the C library about corrupted memory.
pub fn is_broken_memory(line: &str) -> bool {
    let text = line.trim_start_matches("*** ");
    BROKEN_MEMORY.iter().any(|beginning| text.starts_with(beginning))
}

/// Returns whether the line reports a failed assertion.
pub fn is_assertion(line: &str) -> bool {
    is_broken_memory(line) || line.to_ascii_lowercase().contains("assert")
}

/// The crashed process whose backtrace is wanted.
#[derive(Debug, Clone, Copy)]
pub enum CrashedProcess<'a> {
    /// The server process with this name.
    Server(&'a str),
    /// Any process under test, because only one program runs.
    Any,
}

impl<'a> CrashedProcess<'a> {
    /// Selects the process of the party under test; `name` is the process name in the crash event.
    pub fn party(under_test: Side, name: &'a str) -> Self {
        if under_test == Side::Server { Self::Server(name) } else { Self::Any }
    }
}

/// Returns the backtrace of a crash, if a debugger was attached.
pub fn crash_backtrace<'e>(
    events: &'e [Event],
    of: CrashedProcess<'_>,
    signal: i32,
) -> Option<&'e Backtrace> {
    let mut all = events.iter().filter_map(|event| match &event.kind {
        EventKind::Backtrace(trace) => Some(&**trace),
        _ => None,
    });
    all.find(|trace| match of {
        CrashedProcess::Server(name) => trace.is_of(program_in(name), signal),
        CrashedProcess::Any => trace.signal == signal,
    })
}

/// Returns the reason why no debugger could examine the crash, if one was tried.
pub fn untraced(events: &[Event]) -> Option<&str> {
    events.iter().find_map(|event| match &event.kind {
        EventKind::Untraced { why } => Some(why.as_str()),
        _ => None,
    })
}

/// Extracts the program's name from a process's description: `the launcher, mpiexec,`.
pub fn program_in(name: &str) -> &str {
    name.split(", ").nth(1).unwrap_or(name).trim_matches(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_libc_messages_only_at_line_start() {
        assert!(is_broken_memory("*** stack smashing detected ***: terminated"));
        assert!(is_broken_memory("double free or corruption (out)"));
        assert!(!is_broken_memory("a.out: free(): was called"));
    }
}
