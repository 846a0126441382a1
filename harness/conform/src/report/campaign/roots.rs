//! The grouping and order of findings in reports.

use std::collections::BTreeMap;

use pmi_fuzzer::triage::store::{RootCause, StoredFinding};

/// Groups findings that probably have the same cause, the most severe first.
pub(super) fn by_root(found: &[StoredFinding]) -> BTreeMap<RootCause, Vec<&StoredFinding>> {
    let mut all: BTreeMap<RootCause, Vec<&StoredFinding>> = BTreeMap::new();
    for one in found {
        all.entry(one.root()).or_default().push(one);
    }
    all
}
