//! Stored cases, which are played unchanged. A campaign plays them to test a different version of an implementation.
//! [`StoredCases::minimized`] plays them to find a smaller set with the same coverage.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use arbitrary::{Result as Decided, Unstructured};
use pmi_runner::suite;
use pmi_scenario::ast::ImplementationKind;

use super::corpus::CorpusError;
use crate::generate::Generator;
use crate::observe::edges::Edges;
use crate::observe::transition::transitions;
use crate::session::case::Case;
use crate::target::{Target, Thoroughness, Tracing};
use crate::triage::store::ReadError;

/// Stored cases, in the order of their files.
#[derive(Debug, Default)]
pub struct StoredCases {
    cases: Vec<Case>,
    other_count: usize,
}

impl StoredCases {
    /// Reads the scenarios in `folders`, and keeps those that can be played as cases for this kind of implementation.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is not a scenario.
    pub fn read(folders: &[PathBuf], tests: ImplementationKind) -> Result<Self, CorpusError> {
        let mut stored = Self::default();
        for (name, source) in suite::scenario_files(folders)? {
            let scenario = pmi_scenario::parse(source, &name).map_err(ReadError::Scenario)?;
            match Case::from_scenario(scenario) {
                Ok(case)
                    if case.tests() == tests && (tests != ImplementationKind::Server || case.is_sound()) =>
                {
                    stored.cases.push(case);
                }
                _ => stored.other_count += 1,
            }
        }
        Ok(stored)
    }

    /// Returns the cases, in the order of their files.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Returns the number of scenarios that were skipped because they cannot be played as cases for this kind of implementation.
    pub fn other_count(&self) -> usize {
        self.other_count
    }

    /// Plays every case once, and returns a small subset that covers every transition, edge and failure of all cases. Small cases are
    /// preferred. If `interrupted` becomes true, the remaining cases are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the implementation cannot be started.
    pub fn minimized(&self, target: &dyn Target, interrupted: &AtomicBool) -> io::Result<Vec<&Case>> {
        let mut reached = Vec::new();
        for case in &self.cases {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let run = target.play(case, Thoroughness::Fast, Tracing::Off)?;
            let mut all: BTreeSet<String> =
                transitions(&run.observation).iter().map(ToString::to_string).collect();
            all.extend(run.failures.iter().map(|failure| failure.key.to_string()));
            all.extend(run.observation.edges.iter().flat_map(Edges::names));
            reached.push(all);
        }
        let weights: Vec<usize> = self.cases.iter().map(Case::size).collect();
        Ok(smallest_cover(&reached, &weights).into_iter().map(|at| &self.cases[at]).collect())
    }
}

/// Returns the indices of sets that together cover the union of all sets, with a preference for small weights. No chosen set is redundant.
fn smallest_cover(sets: &[BTreeSet<String>], weights: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|at| (weights[*at], *at));
    let mut covered: BTreeSet<&String> = BTreeSet::new();
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let before = covered.len();
        covered.extend(&sets[at]);
        if covered.len() > before {
            kept.push(at);
        }
    }
    // Later sets may completely cover an earlier set, which is then redundant. Remove redundant sets, starting with the heaviest.
    for at in kept.clone().into_iter().rev() {
        let others: BTreeSet<&String> =
            kept.iter().filter(|other| **other != at).flat_map(|other| &sets[*other]).collect();
        if sets[at].iter().all(|one| others.contains(one)) {
            kept.retain(|other| *other != at);
        }
    }
    kept.sort_unstable();
    kept
}

impl Generator for StoredCases {
    fn generate(&self, valid: &mut Unstructured<'_>, _: &mut Unstructured<'_>) -> Decided<Case> {
        Ok(valid.choose(&self.cases)?.clone())
    }

    fn fixed(&self, number: u64) -> Option<Case> {
        self.cases.get(usize::try_from(number).ok()?).cloned()
    }

    fn kept(&self) -> usize {
        self.cases.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_set_is_complete_and_minimal() {
        let set = |all: &str| all.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        let sets = ["a b", "a", "b c", "c d", "", "a b"].map(set);
        assert_eq!(smallest_cover(&sets, &[2, 1, 5, 3, 1, 9]), [0, 3]);
        // Among equal sets, the lighter one is chosen.
        assert_eq!(smallest_cover(&sets, &[9, 1, 5, 3, 1, 2]), [3, 5]);
        assert_eq!(smallest_cover(&[], &[]), Vec::<usize>::new());
    }

    #[test]
    fn reads_sessions_from_the_exported_suite() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        suite::export(folder.path()).unwrap();
        let stored = StoredCases::read(&folders, ImplementationKind::Server).unwrap();
        assert!(stored.cases().len() > 10 && stored.other_count() > 10, "{stored:?}");
        assert_eq!(stored.fixed(3).unwrap().text(), stored.cases()[3].text());
        assert!(stored.fixed(stored.cases().len() as u64).is_none());
        std::fs::write(folder.path().join("broken.pmi"), "0 X: y\n").unwrap();
        let error = StoredCases::read(&folders, ImplementationKind::Server).unwrap_err().to_string();
        assert!(error.contains("broken.pmi"), "{error}");
    }
}
