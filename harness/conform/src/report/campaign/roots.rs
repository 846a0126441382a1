//! The order of findings in reports.

use std::collections::BTreeMap;

use pmi_fuzzer::triage::store::{Root, StoredFinding};

/// Groups findings that probably have one cause, the most severe first.
pub(super) fn by_root(found: &[StoredFinding]) -> BTreeMap<Root, Vec<&StoredFinding>> {
    let mut all: BTreeMap<Root, Vec<&StoredFinding>> = BTreeMap::new();
    for one in found {
        all.entry(one.root()).or_default().push(one);
    }
    all
}
