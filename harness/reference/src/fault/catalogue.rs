//! All faults and variations of servers.

use super::row::{Fault, Variation};
use super::{
    barrier, ending, environment, errors, framing, group_barrier, init, job_info, keyval_space, kvs, mapping,
    names, pmi2, reading, responses, spawn, variations as lawful,
};

/// All faults, chapter by chapter.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    [
        environment::FAULTS,
        reading::FAULTS,
        framing::FAULTS,
        init::FAULTS,
        job_info::FAULTS,
        responses::FAULTS,
        errors::FAULTS,
        ending::FAULTS,
        kvs::FAULTS,
        mapping::FAULTS,
        barrier::FAULTS,
        group_barrier::FAULTS,
        spawn::FAULTS,
        names::FAULTS,
        keyval_space::FAULTS,
        pmi2::FAULTS,
    ]
    .into_iter()
    .flatten()
}

/// All variations.
pub fn variations() -> impl Iterator<Item = &'static Variation> {
    lawful::VARIATIONS.iter().chain(group_barrier::VARIATIONS).chain(pmi2::VARIATIONS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_can_be_typed() {
        let mut seen = HashSet::new();
        let names = faults().map(|f| (f.name, f.about)).chain(variations().map(|v| (v.name, v.about)));
        for (name, about) in names {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(!about.is_empty(), "{name}");
        }
        assert!(faults().all(|f| !f.breaks.is_empty()));
    }
}
