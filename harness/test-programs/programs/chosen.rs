//! The selection of faults on the command line, for programs of both protocols: one name, or several separated by commas.

use std::env;

/// Reports whether a fault whose name matches is selected.
fn is_any(fits: impl Fn(&str) -> bool) -> bool {
    env::args().nth(1).is_some_and(|faults| faults.split(',').any(fits))
}

/// Reports whether this fault is selected.
pub(super) fn is(name: &str) -> bool {
    is_any(|fault| fault == name)
}

/// Reports whether a fault whose name begins with `begin` is selected.
pub(super) fn is_some_of(begin: &str) -> bool {
    is_any(|fault| fault.starts_with(begin))
}

/// Prints the list of faults if the command line requests it, and returns whether it did; calls `fail` for an unknown fault.
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

/// Reads a number from the environment.
pub(super) fn variable(name: &str, fail: fn(&str) -> !) -> usize {
    let value = env::var(name).ok().and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| fail(&format!("{name} is no number")))
}

pub(super) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
