//! The order of findings in reports.

use std::collections::BTreeMap;

use pmi_fuzzer::store::{Found, Root};

/// Groups findings that probably have one cause, the most severe first.
pub(super) fn by_root(found: &[Found]) -> BTreeMap<Root, Vec<&Found>> {
    let mut all: BTreeMap<Root, Vec<&Found>> = BTreeMap::new();
    for one in found {
        all.entry(one.root()).or_default().push(one);
    }
    all
}
