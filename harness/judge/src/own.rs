//! What is asked of every implementation, besides the requirements of the catalogue.

/// Stands where a requirement's id would, for a process of the implementation that died of a signal.
pub const CRASH: &str = "iut.no-crash";

/// The expectation that a crash breaks.
pub(crate) const LIVES: &str = "its processes end by themselves";

/// What [`CRASH`] asks for.
const CRASH_TEXT: &str = "A process of the implementation must not die of a signal that nobody sent it.";

/// Stands where a requirement's id would, for a process under test that does not end.
pub const HANG: &str = "iut.no-hang";

/// What [`HANG`] asks for.
const HANG_TEXT: &str = "A process under test must end by itself once nothing that it waits for is to come.";

/// Stands where a requirement's id would, for a program under test that fails without anything unusual.
pub const ENDS_WELL: &str = "iut.ends-well";

/// What [`ENDS_WELL`] asks for.
const ENDS_WELL_TEXT: &str = "A program under test must end with status 0, and each time with the same output, where its server does nothing \
     unusual.";

/// Stands where a requirement's id would, for names and limits with which nothing can be done.
pub const USABLE: &str = "iut.usable";

/// What [`USABLE`] asks for.
const USABLE_TEXT: &str =
    "The names and limits that a manager tells can be used: there is room for a key and a value.";

/// The requirement that a manager breaks which cannot start as many processes as it is asked for.
pub(crate) const STARTS: &str = "iut.starts";

/// The text of [`STARTS`].
const STARTS_TEXT: &str = "A process manager starts as many processes as its command asks for, up to the number that `--max-ranks` allows.";

/// The requirement that a manager breaks whose jobs affect each other.
pub(crate) const JOBS_APART: &str = "iut.jobs-apart";

/// The text of [`JOBS_APART`].
const JOBS_APART_TEXT: &str = "Jobs that run at the same time do not affect each other.";

/// Requirements that apply to every implementation besides those of the catalogue: id, text, and what to check on a breach.
const OWN: [(&str, &str, &str); 6] = [
    (
        CRASH,
        CRASH_TEXT,
        "start with the last requests below; `ulimit -c unlimited` keeps a core file for a debugger",
    ),
    (HANG, HANG_TEXT, "attach a debugger to the process; it waits after its last message"),
    (ENDS_WELL, ENDS_WELL_TEXT, "compare the answers below with those of a run that ends well"),
    (USABLE, USABLE_TEXT, "check the answers to get_maxes and get_my_kvsname"),
    (STARTS, STARTS_TEXT, "raise the limit that the manager's error message names"),
    (
        JOBS_APART,
        JOBS_APART_TEXT,
        "look for state that launches share: files, ports, shared memory, a daemon's tables",
    ),
];

/// What the requirement of this id asks for, if it is one of these and none of the catalogue's.
pub fn text(id: &str) -> Option<&'static str> {
    OWN.iter().find(|(own, ..)| *own == id).map(|(_, text, _)| *text)
}

/// Returns what to check when this requirement is broken.
pub(crate) fn help(id: &str) -> Option<&'static str> {
    OWN.iter().find(|(own, ..)| *own == id).map(|(.., help)| *help)
}
