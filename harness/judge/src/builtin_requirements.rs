//! Built-in requirements, which apply to every implementation and are not in the catalogue.

/// Pseudo-requirement that is broken if a process of the implementation is killed by a signal, or ends with an uncaught exception.
pub const NO_CRASH: &str = "iut.no-crash";

/// The expected behaviour in findings about a crash.
pub(crate) const NO_CRASH_EXPECTED: &str = "its processes exit on their own";

const NO_CRASH_TEXT: &str = "A process of the implementation must not die of a signal that no other process sent, or of an uncaught exception.";

/// Pseudo-requirement that is broken if a process under test does not end.
pub const NO_HANG: &str = "iut.no-hang";

const NO_HANG_TEXT: &str =
    "A process under test must exit on its own once there is nothing left for it to wait for.";

/// Pseudo-requirement that is broken if a program under test fails, or if its output varies between runs, although its server behaves
/// normally.
pub const EXITS_SUCCESSFULLY: &str = "iut.ends-well";

const EXITS_SUCCESSFULLY_TEXT: &str = "A program under test must exit with status 0, and always with the same output, if its server does nothing unusual.";

/// Pseudo-requirement that is broken if a process manager sends unusable names or limits.
pub const USABLE_VALUES: &str = "iut.usable";

const USABLE_VALUES_TEXT: &str =
    "The names and limits that a manager sends must be usable: they must leave room for a key and a value.";

/// Pseudo-requirement that is broken if a process manager cannot start the requested number of processes.
pub(crate) const STARTS_PROCESSES: &str = "iut.starts";

const STARTS_PROCESSES_TEXT: &str = "A process manager starts the number of processes that its command requests, up to the number that `--max-ranks` allows.";

/// Pseudo-requirement that is broken if concurrent jobs of a process manager affect each other.
pub(crate) const INDEPENDENT_JOBS: &str = "iut.jobs-apart";

const INDEPENDENT_JOBS_TEXT: &str = "Jobs that run at the same time do not affect each other.";

/// The built-in requirements. Each entry consists of the id, the text, and the help for a user whose implementation breaks the requirement.
const BUILTIN_REQUIREMENTS: [(&str, &str, &str); 6] = [
    (
        NO_CRASH,
        NO_CRASH_TEXT,
        "start with the last requests of the scenario; `ulimit -c unlimited` keeps a core file for a debugger",
    ),
    (NO_HANG, NO_HANG_TEXT, "attach a debugger to the process: after its last message, it waits or loops"),
    (
        EXITS_SUCCESSFULLY,
        EXITS_SUCCESSFULLY_TEXT,
        "compare the responses in the scenario with those of a successful run",
    ),
    (USABLE_VALUES, USABLE_VALUES_TEXT, "check the answers to get_maxes and get_my_kvsname"),
    (STARTS_PROCESSES, STARTS_PROCESSES_TEXT, "raise the limit that the manager's error message names"),
    (
        INDEPENDENT_JOBS,
        INDEPENDENT_JOBS_TEXT,
        "look for state that launches share: files, ports, shared memory, a daemon's tables",
    ),
];

/// Returns the text of a built-in requirement; `None` for other ids.
pub fn text(id: &str) -> Option<&'static str> {
    BUILTIN_REQUIREMENTS.iter().find(|(own, ..)| *own == id).map(|(_, text, _)| *text)
}

/// Returns the help for a built-in requirement; `None` for other ids.
pub(crate) fn help(id: &str) -> Option<&'static str> {
    BUILTIN_REQUIREMENTS.iter().find(|(own, ..)| *own == id).map(|(.., help)| *help)
}
