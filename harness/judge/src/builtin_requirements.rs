//! Requirements for every implementation that are not in the catalogue.

/// Pseudo requirement for a process of the implementation that was killed by a signal, or ended with an uncaught exception.
pub const CRASH: &str = "iut.no-crash";

/// The expectation that a crash breaks.
pub(crate) const LIVES: &str = "its processes end by themselves";

/// The text of [`CRASH`].
const CRASH_TEXT: &str = "A process of the implementation must not die of a signal that no other process sent, or of an uncaught exception.";

/// Pseudo requirement for a process under test that does not end.
pub const HANG: &str = "iut.no-hang";

/// The text of [`HANG`].
const HANG_TEXT: &str = "A process under test must end by itself when nothing that it waits for can arrive.";

/// Pseudo requirement for a program under test that fails even though nothing is unusual.
pub const ENDS_WELL: &str = "iut.ends-well";

/// The text of [`ENDS_WELL`].
const ENDS_WELL_TEXT: &str = "A program under test must exit with status 0, and always with the same output, if its server does nothing unusual.";

/// Pseudo requirement for names and limits that cannot be used.
pub const USABLE: &str = "iut.usable";

/// The text of [`USABLE`].
const USABLE_TEXT: &str =
    "The names and limits that a manager sends must be usable: they must leave room for a key and a value.";

/// Pseudo requirement for a process manager that cannot start the requested number of processes.
pub(crate) const STARTS: &str = "iut.starts";

/// The text of [`STARTS`].
const STARTS_TEXT: &str = "A process manager starts as many processes as its command asks for, up to the number that `--max-ranks` allows.";

/// Pseudo requirement for a process manager whose jobs affect each other.
pub(crate) const JOBS_APART: &str = "iut.jobs-apart";

/// The text of [`JOBS_APART`].
const JOBS_APART_TEXT: &str = "Jobs that run at the same time do not affect each other.";

/// The requirements: id, text, and help for the user whose implementation breaks it.
const BUILTIN_REQUIREMENTS: [(&str, &str, &str); 6] = [
    (
        CRASH,
        CRASH_TEXT,
        "start with the last requests of the scenario; `ulimit -c unlimited` keeps a core file for a debugger",
    ),
    (HANG, HANG_TEXT, "attach a debugger to the process; it waits after its last message"),
    (ENDS_WELL, ENDS_WELL_TEXT, "compare the responses in the scenario with those of a successful run"),
    (USABLE, USABLE_TEXT, "check the answers to get_maxes and get_my_kvsname"),
    (STARTS, STARTS_TEXT, "raise the limit that the manager's error message names"),
    (
        JOBS_APART,
        JOBS_APART_TEXT,
        "look for state that launches share: files, ports, shared memory, a daemon's tables",
    ),
];

/// Returns the text of one of these requirements; `None` for other ids.
pub fn text(id: &str) -> Option<&'static str> {
    BUILTIN_REQUIREMENTS.iter().find(|(own, ..)| *own == id).map(|(_, text, _)| *text)
}

/// Returns the help for one of these requirements.
pub(crate) fn help(id: &str) -> Option<&'static str> {
    BUILTIN_REQUIREMENTS.iter().find(|(own, ..)| *own == id).map(|(.., help)| *help)
}
