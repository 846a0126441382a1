//! Examination of failures: a failure is confirmed ([`confirm`]), minimized (`shrink`), compared with [`known_failures`], and stored
//! ([`store`]) with a [`reproducer`].

pub mod confirm;
pub mod known_failures;
pub mod reproducer;
pub mod schedule;
pub(crate) mod shrink;
pub mod store;
