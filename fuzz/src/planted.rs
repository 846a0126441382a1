//! Bugs that are planted to check that the targets find them. They need the feature `planted`, and the environment variable `PLANTED`
//! selects one of them.

#[cfg(feature = "planted")]
use std::sync::OnceLock;

/// Returns whether this bug is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: &str) -> bool {
    chosen() == Some(bug)
}

/// Returns whether this bug is planted. In this build, no bug is planted.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: &str) -> bool {
    false
}

#[cfg(feature = "planted")]
fn chosen() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("PLANTED").ok()).as_deref()
}

/// Returns the behaviour of the reference server, with the fault that `PLANTED` selects from the catalogue, if any.
#[cfg(feature = "planted")]
pub(crate) fn behaviour() -> pmi_faults::Behaviour {
    use pmi_faults::{Fault, faults};
    static FAULT: OnceLock<Option<&'static Fault>> = OnceLock::new();
    let fault = FAULT.get_or_init(|| faults().find(|fault| Some(fault.name) == chosen()));
    fault.map(Fault::behaviour).unwrap_or_default()
}

/// Returns the behaviour of the reference server, which has no faults in this build.
#[cfg(not(feature = "planted"))]
pub(crate) fn behaviour() -> pmi_faults::Behaviour {
    pmi_faults::Behaviour::default()
}
