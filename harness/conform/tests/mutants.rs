//! The suite kills every fault and has no finding for any variation.

use pmi_faults::{faults, variations};
use pmi_runner::kill_matrix::{FaultResult, run};

/// Without optimization, only every `EVERY`th one is tried here; `pmi-conform suite mutants` tries all of them in CI.
const EVERY: usize = if cfg!(debug_assertions) { 12 } else { 1 };

#[test]
fn kills_faults_and_accepts_lawful_variations() {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is good");
    let faults: Vec<_> = faults().step_by(EVERY).collect();
    let variations: Vec<_> = variations().step_by(EVERY).collect();
    let matrix = run(&suite, &faults, &variations, false, 2);
    let survivors: Vec<_> = matrix.faults.iter().filter(|f| !f.is_killed()).map(FaultResult::label).collect();
    assert_eq!(survivors, [""; 0]);
    let punished: Vec<_> = matrix.variations.iter().filter(|v| !v.punished_by.is_empty()).collect();
    assert!(punished.is_empty(), "{punished:#?}");
    if EVERY == 1 {
        assert_eq!(matrix.without_fault, [""; 0]);
        assert!(matrix.faults.iter().all(FaultResult::is_killed) && matrix.is_complete());
    }
}

#[test]
fn faults_name_existing_requirements() {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is good");
    for fault in faults() {
        for id in fault.breaks {
            assert!(suite.catalogue.get(id).is_some(), "{}: there is no requirement {id}", fault.name);
        }
    }
}
