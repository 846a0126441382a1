//! Faults and variations of a client, as data.
//!
//! Each is a change to one plain session: two processes that use every operation, and one that they spawn. So a fault is
//! the only thing wrong in what is otherwise a program like any other. The session is a script, not [`crate::client::Client`],
//! which cannot be made to break RFC 13. To add a fault, add a row to `faults`, or to `group_barrier` or
//! `pmi2` if the session is one of PMI-1.2 or PMI-2.

mod faults;
mod group_barrier;
mod pmi2;
mod row;
mod session;
mod variations;

pub use faults::UNSEEN;
pub use row::{ClientFault, ClientVariation, Unseen};
pub use session::{Act, Session, SessionStep};

/// All faults.
pub fn faults() -> impl Iterator<Item = &'static ClientFault> {
    faults::FAULTS.iter().chain(group_barrier::FAULTS).chain(pmi2::FAULTS)
}

/// All variations.
pub fn variations() -> impl Iterator<Item = &'static ClientVariation> {
    variations::VARIATIONS.iter().chain(group_barrier::VARIATIONS).chain(pmi2::VARIATIONS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_each_changes_the_session() {
        let mut seen: HashSet<&str> = crate::fault::catalogue::faults().map(|f| f.name).collect();
        let all = faults().map(|f| (f.name, f.plain, f.session()));
        for (name, plain, session) in all.chain(variations().map(|v| (v.name, v.plain, v.session()))) {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert_ne!(format!("{session:?}"), format!("{:?}", plain()), "{name} changes nothing");
        }
        assert!(faults().all(|f| !f.breaks.is_empty()));
    }
}
