//! What libFuzzer counts as coverage besides code: states and transitions of a model.

use std::sync::atomic::{AtomicU8, Ordering};

/// Number of counters. Few, so that what is nearly the same state is the same counter.
const COUNT: usize = 2048;

// libFuzzer finds them by the name of the section (Linux only) and clears them before each run.
#[cfg_attr(target_os = "linux", unsafe(link_section = "__libfuzzer_extra_counters"))]
static COUNTERS: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];

/// Counts one more time that this was reached.
pub(crate) fn reached(what: u32) {
    // The multiplier of Fibonacci hashing: neighbours get far apart.
    let counter = &COUNTERS[(what.wrapping_mul(0x9e37_79b1) >> 16) as usize % COUNT];
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}
