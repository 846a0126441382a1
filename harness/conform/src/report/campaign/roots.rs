//! The order in which findings are told.

use std::collections::BTreeMap;

use pmi_fuzzer::store::{Found, Root};

/// Findings that probably come of one mistake side by side, the most serious first.
pub(super) fn by_root(found: &[Found]) -> BTreeMap<Root, Vec<&Found>> {
    let mut all: BTreeMap<Root, Vec<&Found>> = BTreeMap::new();
    for one in found {
        all.entry(one.root()).or_default().push(one);
    }
    all
}
