//! Why a process died: what the number of a signal and the last words of the C library tell.

use libc::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};

use crate::Side;
use crate::backtrace::Backtrace;
use crate::event::{Event, What};

/// What a process does, or what is done to it, when it dies of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A fault of the program, which the processor or the kernel has noticed.
    Fault,
    /// The process has called `abort()`: of its own will, or because the C library has found its memory broken.
    Abort,
    /// It wrote to a connection that was closed.
    BrokenPipe,
    /// It was told to end.
    Order,
    /// Anything else.
    Other,
}

impl Cause {
    /// What stands behind a signal.
    pub fn of(signal: i32) -> Self {
        match signal {
            SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV | SIGSYS => Self::Fault,
            SIGABRT => Self::Abort,
            SIGPIPE => Self::BrokenPipe,
            SIGHUP | SIGINT | SIGKILL | SIGTERM => Self::Order,
            _ => Self::Other,
        }
    }

    /// Whether a process manager or a user ends processes so, rather than the program itself.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::Order | Self::BrokenPipe)
    }
}

/// How the lines begin, apart from asterisks, that the C library writes before it calls `abort()` because memory is broken.
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

/// Whether the C library says in this line that memory is broken.
pub fn is_broken_memory(line: &str) -> bool {
    let text = line.trim_start_matches("*** ");
    BROKEN_MEMORY.iter().any(|beginning| text.starts_with(beginning))
}

/// Whether a line tells of an assertion that failed.
pub fn is_assertion(line: &str) -> bool {
    is_broken_memory(line) || line.to_ascii_lowercase().contains("assert")
}

/// Whose crash it is that a backtrace is looked for.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// A process of a server, which is called so.
    Server(&'a str),
    /// Any process under test: there is nobody else.
    Any,
}

impl<'a> Of<'a> {
    /// That of whoever is under test; `name` is what the crash was told of.
    pub fn party(under_test: Side, name: &'a str) -> Self {
        if under_test == Side::Server { Self::Server(name) } else { Self::Any }
    }
}

/// What a debugger saw of a crash, if somebody looked.
pub fn of_crash<'e>(events: &'e [Event], of: Of<'_>, signal: i32) -> Option<&'e Backtrace> {
    let mut all = events.iter().filter_map(|event| match &event.what {
        What::Backtrace(trace) => Some(&**trace),
        _ => None,
    });
    all.find(|trace| match of {
        Of::Server(name) => trace.is_of(program_in(name), signal),
        Of::Any => trace.signal == signal,
    })
}

/// Why a debugger could not look into a crash, if somebody tried.
pub fn untraced(events: &[Event]) -> Option<&str> {
    events.iter().find_map(|event| match &event.what {
        What::Untraced { why } => Some(why.as_str()),
        _ => None,
    })
}

/// The program of a process that is named in words: `the launcher, mpiexec,`.
pub fn program_in(name: &str) -> &str {
    name.split(", ").nth(1).unwrap_or(name).trim_matches(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_c_library_are_known_at_the_beginning_of_a_line_only() {
        assert!(is_broken_memory("*** stack smashing detected ***: terminated"));
        assert!(is_broken_memory("double free or corruption (out)"));
        assert!(!is_broken_memory("a.out: free(): was called"));
    }
}
