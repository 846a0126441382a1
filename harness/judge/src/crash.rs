//! The cause of a process's death, derived from the signal and from the last message of the C library.

use libc::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};

use crate::PartyKind;
use crate::backtrace::Backtrace;
use crate::event::{Event, EventKind, Exit};

/// The kind of event that caused a fatal signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalCause {
    /// An error in the program, detected by the processor or the kernel.
    Fault,
    /// The process called `abort()`, by choice or because the C library detected corrupted memory.
    Abort,
    /// The process wrote to a closed connection.
    BrokenPipe,
    /// Another process killed the process, or asked it to exit.
    OtherProcess,
    /// Any other signal.
    Other,
}

impl SignalCause {
    /// Returns the cause that a signal indicates.
    pub fn of(signal: i32) -> Self {
        match signal {
            SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV | SIGSYS => Self::Fault,
            SIGABRT => Self::Abort,
            SIGPIPE => Self::BrokenPipe,
            SIGHUP | SIGINT | SIGKILL | SIGTERM => Self::OtherProcess,
            _ => Self::Other,
        }
    }

    /// Returns whether the signal usually comes from a process manager, a user or a closed connection, rather than from an error in the
    /// program.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::OtherProcess | Self::BrokenPipe)
    }
}

/// Maximum length of a process's last line in a finding, in characters.
pub(crate) const MAX_LAST_LINE_LENGTH: usize = 160;

/// Prefixes of the lines that the C library writes before it calls `abort()` because of corrupted memory. In a line, asterisks may precede
/// the prefix.
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

/// Returns whether the line reports a failed assertion or corrupted memory.
pub fn is_assertion(line: &str) -> bool {
    is_broken_memory(line) || line.to_ascii_lowercase().contains("assert")
}

/// Prefixes of the first lines that runtimes write before an uncaught exception or a panic terminates the program.
const UNCAUGHT_PREFIXES: [&str; 5] = [
    "Traceback (most recent call last)",
    "panic: ",
    "thread '",
    "Exception in thread ",
    "Unhandled exception",
];

/// Substrings of the error messages that a program prints after its peer has closed the connection.
const PEER_GONE_MESSAGES: [&str; 4] = ["BrokenPipe", "Broken pipe", "ConnectionReset", "Connection reset"];

/// The exit of a server that exited on its own before it sent a response.
pub(crate) struct OwnEnd {
    /// Number of the event that reports the exit.
    pub(crate) seq: u64,
    /// A description of the exit: the launcher, its exit status, and a line of its output.
    pub(crate) text: String,
    /// True if the server exited because of an uncaught exception.
    pub(crate) is_exception: bool,
}

/// Returns the server's exit if the server exited on its own, with a nonzero status, before it sent a response.
/// `missing` is the number of the event that shows the missing response: a silence if `is_silent` is true, otherwise
/// the end of the connection. An exit after a silence is ignored. So is output that the server wrote after the harness
/// began to stop the job, because the harness may have caused it.
pub(crate) fn own_end(events: &[Event], missing: u64, is_silent: bool) -> Option<OwnEnd> {
    let (seq, exit) = events.iter().find_map(|event| match event.kind {
        EventKind::JobKeepsRunning { .. } => Some(None),
        EventKind::JobExited { exit: exit @ Exit::Code(1..) } => Some(Some((event.seq, exit))),
        _ => None,
    })??;
    // The scenario ends as soon as it is certain that no response will arrive, so a later exit of the server is a consequence of the
    // scenario's end.
    if is_silent && seq > missing {
        return None;
    }
    let is_ours = |event: &&Event| {
        event.seq > missing
            && matches!(event.kind, EventKind::ClosedByClient { .. } | EventKind::Ended { ours: true, .. })
    };
    let until = events.iter().find(is_ours).map_or(u64::MAX, |event| event.seq);
    let is_request = |event: &&Event| event.seq < missing && matches!(event.kind, EventKind::ToServer { .. });
    let request = events.iter().rfind(is_request).map_or(0, |event| event.seq);
    let lines: Vec<(u64, String)> = events.iter().filter_map(stderr_line).collect();
    let begins = |(seq, line): &(u64, String)| {
        (request..until).contains(seq)
            && UNCAUGHT_PREFIXES.iter().any(|beginning| line.starts_with(beginning))
            && (!line.starts_with("thread '") || line.contains(" panicked at "))
    };
    let exception = lines.iter().position(begins);
    let until = lines.partition_point(|(seq, _)| *seq < until);
    let is_text = |line: &&(u64, String)| !line.1.trim().is_empty() && !line.1.starts_with([' ', '\t']);
    let last_line = match exception {
        // In a traceback, the exception follows the frames.
        Some(at) if lines[at].1.starts_with(UNCAUGHT_PREFIXES[0]) => {
            lines[at + 1..until].iter().find(is_text)?.1.clone()
        }
        // Rust prints the panic message on the line after the location.
        Some(at) if lines[at].1.ends_with(':') => {
            lines[at..until].iter().take(2).map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ")
        }
        Some(at) => lines[at].1.clone(),
        None => {
            let after = lines.partition_point(|(seq, _)| *seq < request);
            lines[after..until].iter().find(is_text)?.1.clone()
        }
    };
    // The server gets this error when the harness closes the connection at the end of a scenario, so the server is not to blame.
    if exception.is_some() && PEER_GONE_MESSAGES.iter().any(|error| last_line.contains(error)) {
        return None;
    }
    let last_line: String = last_line.trim().chars().take(MAX_LAST_LINE_LENGTH).collect();
    let name = events.iter().find_map(|event| match &event.kind {
        EventKind::Launched { command, .. } => command.first().and_then(|path| path.rsplit('/').next()),
        _ => None,
    });
    let text = format!("the launcher, {}, ended with {exit}: {last_line}", name.unwrap_or_default());
    Some(OwnEnd { seq, text, is_exception: exception.is_some() })
}

/// Returns the stderr line that an event reports, preceded by the number of the event. Returns `None` for any other
/// event.
fn stderr_line(event: &Event) -> Option<(u64, String)> {
    match &event.kind {
        EventKind::Output { stderr: true, line, .. } => {
            Some((event.seq, String::from_utf8_lossy(&line.0).into_owned()))
        }
        _ => None,
    }
}

/// A filter for the backtraces that may belong to a crash.
#[derive(Debug, Clone, Copy)]
pub enum CrashedProcess<'a> {
    /// Backtraces of the server process with this name.
    Server(&'a str),
    /// All backtraces, because only one program is under test.
    Any,
}

impl<'a> CrashedProcess<'a> {
    /// Creates the filter for a crash of the party under test; `name` is the name of the process in the crash event.
    pub fn party(under_test: PartyKind, name: &'a str) -> Self {
        if under_test == PartyKind::Server { Self::Server(name) } else { Self::Any }
    }
}

/// Returns the first backtrace that passes the filter `of` and shows a death by `signal`. Returns `None` if there is no
/// such backtrace, for example because no debugger was attached.
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
        CrashedProcess::Server(name) => trace.belongs_to(program_name(name), signal),
        CrashedProcess::Any => trace.signal == signal,
    })
}

/// Returns the reason why no debugger could examine the crash. Returns `None` if the crash was examined or no examination was attempted.
pub fn untraced_reason(events: &[Event]) -> Option<&str> {
    events.iter().find_map(|event| match &event.kind {
        EventKind::Untraced { why } => Some(why.as_str()),
        _ => None,
    })
}

/// Extracts the program's name from a process's description: `mpiexec` from `the launcher, mpiexec,`.
pub fn program_name(name: &str) -> &str {
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
