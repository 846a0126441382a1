//! What programs with faults have in common, whichever protocol they speak: the fault that the command line chooses, or several with
//! commas between them.

use std::env;

/// Whether a fault is chosen whose name is such a one.
fn is_any(fits: impl Fn(&str) -> bool) -> bool {
    env::args().nth(1).is_some_and(|faults| faults.split(',').any(fits))
}

/// Whether this fault is chosen.
pub(super) fn is(name: &str) -> bool {
    is_any(|fault| fault == name)
}

/// Whether one of the faults is chosen whose names begin so.
pub(super) fn is_some_of(begin: &str) -> bool {
    is_any(|fault| fault.starts_with(begin))
}

/// Lists the faults that there are, if that is asked for, and says so; `fail` is for a fault that there is not.
pub(super) fn lists(faults: &[(&str, &str)], fail: fn(&str) -> !) -> bool {
    if is("--list") {
        faults.iter().for_each(|(name, what)| println!("{name}\t{what}"));
        return true;
    }
    if is_any(|fault| !faults.iter().any(|(name, _)| *name == fault)) {
        fail("no such bug");
    }
    false
}

/// A number in the environment.
pub(super) fn variable(name: &str, fail: fn(&str) -> !) -> usize {
    let value = env::var(name).ok().and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| fail(&format!("{name} is no number")))
}

pub(super) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
