//! Additional coverage for libFuzzer: the states and transitions of a model.

use std::sync::atomic::{AtomicU8, Ordering};

/// Number of counters. Several states may share a counter.
const COUNT: usize = 1024;

// On Linux, libFuzzer finds the counters by the name of this section, and clears them before each run.
#[cfg_attr(target_os = "linux", unsafe(link_section = "__libfuzzer_extra_counters"))]
static COUNTERS: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];

fn counter(what: u32) -> &'static AtomicU8 {
    // Multiplying by the constant of Fibonacci hashing spreads neighbouring values over the counters.
    &COUNTERS[(what.wrapping_mul(0x9e37_79b1) >> 16) as usize % COUNT]
}

/// Marks a state or transition as reached, regardless of how often it is reached.
pub(crate) fn seen(what: u32) {
    counter(what).store(1, Ordering::Relaxed);
}

/// Increments the counter of a state or transition.
pub(crate) fn reached(what: u32) {
    let counter = counter(what);
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}
