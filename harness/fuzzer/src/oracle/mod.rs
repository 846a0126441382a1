//! What is wrong with what happened in a case, the worst first and each failure once.

pub(crate) mod client;
pub(crate) mod server;

use std::collections::HashSet;

use crate::failure::Failure;

/// The first failure of each key.
fn distinct(mut all: Vec<Failure>) -> Vec<Failure> {
    let mut seen = HashSet::new();
    all.retain(|failure| seen.insert(failure.key.clone()));
    all
}
