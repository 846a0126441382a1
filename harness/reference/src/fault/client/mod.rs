//! Faults and variations of a client, as data.
//!
//! Each is a change to one plain session: two processes that use every operation, and one that they spawn. So a fault is
//! the only thing wrong in what is otherwise a program like any other. The session is a script, not [`crate::client::Client`],
//! which cannot be made to break RFC 13. To add a fault, add a row to [`FAULTS`].

mod faults;
mod row;
mod session;
mod variations;

pub use faults::{FAULTS, UNSEEN};
pub use row::{ClientFault, ClientVariation, Unseen};
pub use session::{Act, Session, Step};
pub use variations::VARIATIONS;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_each_changes_the_session() {
        let mut seen: HashSet<&str> = crate::fault::catalogue::faults().map(|f| f.name).collect();
        let plain = format!("{:?}", Session::default());
        let all = FAULTS.iter().map(|f| (f.name, f.effect));
        for (name, effect) in all.chain(VARIATIONS.iter().map(|v| (v.name, v.effect))) {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert_ne!(format!("{:?}", Session::changed(effect)), plain, "{name} changes nothing");
        }
        assert!(FAULTS.iter().all(|f| !f.breaks.is_empty()));
    }
}
