//! Bugs that are planted on purpose, to see that the targets find such. Only with the feature `planted`, and one at a
//! time: the variable `PLANTED` names it.

#[cfg(feature = "planted")]
use std::sync::OnceLock;

/// Whether this bug is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: &str) -> bool {
    chosen() == Some(bug)
}

/// Whether this bug is planted: never, in this build.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: &str) -> bool {
    false
}

#[cfg(feature = "planted")]
fn chosen() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("PLANTED").ok()).as_deref()
}

/// How the reference server errs: by the fault of its own tables that is chosen, if any.
#[cfg(feature = "planted")]
pub(crate) fn behaviour() -> pmi_faults::Behaviour {
    use pmi_faults::{Fault, faults};
    static FAULT: OnceLock<Option<&'static Fault>> = OnceLock::new();
    let fault = FAULT.get_or_init(|| faults().find(|fault| Some(fault.name) == chosen()));
    fault.map(Fault::behaviour).unwrap_or_default()
}

/// How the reference server errs: not at all, in this build.
#[cfg(not(feature = "planted"))]
pub(crate) fn behaviour() -> pmi_faults::Behaviour {
    pmi_faults::Behaviour::default()
}
