//! Functions for the tests of sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use pmi_scenario::ast::SourceFile;

use super::case::Case;
use crate::generate::{Generator, case_from_number};

/// Returns the names of the mutations in a case.
pub(crate) fn mutations(case: &Case) -> BTreeSet<String> {
    case.ingredients.iter().filter_map(|i| Some(i.split_once(':')?.0.to_owned())).collect()
}

/// Writes a case as text and parses the text. Panics if the result differs from the case.
pub(crate) fn assert_round_trip(case: &Case) {
    let text = case.text();
    let source = Arc::new(SourceFile { path: "generated.pmi".into(), text: text.clone() });
    let scenario = pmi_scenario::parse(source, "generated").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let read = Case::from_scenario(scenario).unwrap_or_else(|line| panic!("line {line}:\n{text}"));
    assert!(read.scenario == case.scenario, "{text}\n{:#?}\n{:#?}", case.scenario, read.scenario);
}

/// Passes the first `count` cases of a generator to `check`, and returns the names of their mutations. Panics if a case is not determined
/// by the seed and its number, or if it changes when it is written as text and parsed.
pub(crate) fn mutations_of(
    generator: &dyn Generator,
    count: u64,
    mut check: impl FnMut(&Case),
) -> BTreeSet<String> {
    let made = |seed, number| case_from_number(generator, seed, number);
    let same = |number: &u64| made(1, *number).scenario == made(2, *number).scenario;
    assert!((0..200).all(|number| made(1, number).scenario == made(1, number).scenario));
    // Systematic sessions are the same for all seeds. At most half of the sessions are systematic.
    assert!((0..200).filter(same).count() < 150);
    let mut changed = BTreeSet::new();
    for case in (0..count).map(|number| made(1, number)) {
        assert_round_trip(&case);
        check(&case);
        changed.extend(mutations(&case));
    }
    changed
}
