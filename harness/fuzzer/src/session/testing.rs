//! Helpers for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use pmi_scenario::ast::SourceFile;

use super::case::Case;

/// Returns the names of the mutations in a case.
pub(crate) fn mutations(case: &Case) -> BTreeSet<String> {
    case.ingredients.iter().filter_map(|i| Some(i.split_once(':')?.0.to_owned())).collect()
}

/// Writes a case and reads it. Panics if the result differs.
pub(crate) fn assert_round_trip(case: &Case) {
    let text = case.text();
    let source = Arc::new(SourceFile { path: "generated.pmi".into(), text: text.clone() });
    let scenario = pmi_scenario::parse(source, "generated").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let read = Case::from_scenario(scenario).unwrap_or_else(|line| panic!("line {line}:\n{text}"));
    assert!(read.scenario == case.scenario, "{text}\n{:#?}\n{:#?}", case.scenario, read.scenario);
}
