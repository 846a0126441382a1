//! The selection of faults on the command line, for PMI-1 and PMI-2 programs: one or more names, separated by commas.

use std::env;

/// Returns whether `fits` accepts the name of a selected fault.
fn is_any(fits: impl Fn(&str) -> bool) -> bool {
    env::args().nth(1).is_some_and(|faults| faults.split(',').any(fits))
}

pub(super) fn is_selected(name: &str) -> bool {
    is_any(|fault| fault == name)
}

/// Returns whether a fault whose name begins with `begin` is selected.
pub(super) fn is_prefix_selected(begin: &str) -> bool {
    is_any(|fault| fault.starts_with(begin))
}

/// The faults of all implementations.
const CATALOGUE: &str = include_str!("../../faults/faults.toml");

/// Calls `fail` if a selected fault is not in the catalogue.
pub(super) fn check_names(fail: fn(&str) -> !) {
    if is_any(|fault| !CATALOGUE.contains(&format!("{{ name = \"{fault}\","))) {
        fail("unknown fault");
    }
}

/// Reads a number from the environment.
pub(super) fn variable(name: &str, fail: fn(&str) -> !) -> usize {
    let value = env::var(name).ok().and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| fail(&format!("{name} is not a number")))
}

pub(super) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
