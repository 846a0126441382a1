//! Tests that the suite kills every fault and reports no findings for any variation.

use std::collections::{BTreeMap, BTreeSet};

use pmi_faults::{catalogue, faults, variations};
use pmi_runner::kill_matrix::client::run as run_clients;
use pmi_runner::kill_matrix::external::ExternalMatrix;
use pmi_runner::kill_matrix::{FaultResult, run};
use pmi_runner::party::ScenarioLimits;
use pmi_runner::run::RunOptions;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::Dialect;
use rstest::rstest;

#[test]
fn suite_detects_faults_and_accepts_variations() {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is valid");
    let matrix = run(&suite, &faults().collect::<Vec<_>>(), &variations().collect::<Vec<_>>(), false, 2);
    let survivors: Vec<_> = matrix.faults.iter().filter(|f| !f.is_killed()).map(FaultResult::label).collect();
    assert_eq!(survivors, [""; 0]);
    let punished: Vec<_> = matrix.variations.iter().filter(|v| !v.findings.is_empty()).collect();
    assert!(punished.is_empty(), "{punished:#?}");
    assert_eq!(matrix.requirements_without_fault, [""; 0]);
    // `faults.toml` states a reason for each fault that breaks different rules in different dialects.
    assert_eq!(matrix.without_common_rule, [""; 0]);
    assert!(matrix.is_complete());
}

#[test]
fn suite_detects_client_faults_and_accepts_variations() {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is valid");
    let (faults, variations) = (
        catalogue().client_faults.iter().collect::<Vec<_>>(),
        catalogue().client_variations.iter().collect::<Vec<_>>(),
    );
    let matrix = run_clients(&suite, &faults, &variations);
    let survivors: Vec<_> = matrix.faults.iter().filter(|f| !f.is_right()).map(|f| f.name).collect();
    assert_eq!(survivors, [""; 0]);
    let punished: Vec<_> = matrix.variations.iter().filter(|v| !v.is_right()).collect();
    assert!(punished.is_empty(), "{punished:#?}");
    assert_eq!(matrix.requirements_without_fault, [""; 0]);
    assert!(matrix.is_complete());
}

#[test]
fn faults_name_existing_requirements() {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is valid");
    for fault in faults() {
        for id in fault.breaks {
            assert!(suite.catalogue.get(id).is_some(), "{}: unknown requirement {id}", fault.name);
        }
    }
}

/// Checks that `faults.toml` contains every name that is a literal in the sources of the test programs and libraries. It does not check the
/// names that C macros compose.
#[test]
fn catalogue_describes_all_names_of_test_programs() {
    const SOURCES: [&str; 6] = [
        include_str!("../../test-programs/programs/faulty_program.rs"),
        include_str!("../../test-programs/programs/faulty_pmi2_program.rs"),
        include_str!("../../test-programs/programs/planted_program.rs"),
        include_str!("../../test-programs/programs/planted_pmi2_program.rs"),
        include_str!("../../test-programs/c/faulty-library.c"),
        include_str!("../../test-programs/c/faulty-pmi2-library.c"),
    ];
    let all = catalogue();
    let known: BTreeSet<&str> = [
        &all.program_faults,
        &all.library_faults,
        &all.rare_program_faults,
        &all.rare_library_faults,
        &all.program_variations,
        &all.library_variations,
        &all.modes,
    ]
    .into_iter()
    .flatten()
    .flat_map(|entry| entry.name.split(','))
    .collect();
    let source: String = SOURCES.concat().split_whitespace().collect();
    let calls = ["is_selected(\"", "_if(\"", "is(\""];
    let names =
        calls.iter().flat_map(|call| source.split(call).skip(1)).filter_map(|rest| rest.split('"').next());
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() > 200, "{}", names.len());
    assert_eq!(names.difference(&known).collect::<Vec<_>>(), [&""; 0]);
}

/// Without any finding, all requirements are unbroken. Those that no fault can break have a reason; the others make the command fail.
#[rstest]
#[case(ImplementationKind::Client, "rfc13.put.visible-after-barrier", "rfc13.abnf.intlist")]
#[case(ImplementationKind::Library, "rfc13.api.kvs-get", "rfc13.api.no-other-functions")]
fn unbroken_requirement_needs_a_reason(
    #[case] under_test: ImplementationKind,
    #[case] breakable: &str,
    #[case] unbreakable: &str,
) {
    let suite = pmi_runner::suite::embedded().expect("the embedded suite is valid");
    let matrix = ExternalMatrix {
        suite: &suite,
        under_test,
        dialect: Dialect::Pmi1,
        with_fault: &|_| unreachable!("nothing is played"),
        options: RunOptions::unreported(ScenarioLimits::default()),
        jobs: 1,
    };
    let unbroken: BTreeMap<_, _> = matrix.without_fault(&[]).into_iter().collect();
    assert!(unbroken[breakable].is_none() && unbroken[unbreakable].is_some(), "{unbroken:?}");
}
