//! Target: parsing, checking and formatting the text of a scenario.
//!
//! Input: the text of a file. If it begins with `%`, the rest is a fragment.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use pmi_scenario::ast::{Scenario, SourceFile};
use pmi_scenario::suite::Suite;
use pmi_scenario::{Diagnostic, Env, check, parse, print};

use crate::planted;

struct KnownNames {
    suite: Suite,
    requirements: Vec<String>,
    ids: HashSet<String>,
    fragments: Vec<String>,
}

thread_local! {
    static KNOWN: OnceCell<KnownNames> = const { OnceCell::new() };
}

/// Checks that formatting does not change the meaning of a valid file, and is idempotent. Every diagnostic must have a position within the
/// text.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (name, text) = match text.strip_prefix('%') {
        Some(text) => ("fragments/f", text),
        None => ("kvs/s", text),
    };
    let scenario = match parse(source(text), name) {
        Ok(scenario) => scenario,
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "the parser rejects a file without a diagnostic");
            assert!(mistakes.iter().any(Diagnostic::is_error));
            return mistakes.iter().for_each(|mistake| check_place(mistake, text));
        }
    };
    let mut laid = print(&scenario);
    if planted::is("blank-behind-a-repeat") && laid.contains("\nrepeat") && laid.contains("\nend\n") {
        laid.push(' ');
    }
    let again = match parse(source(&laid), name) {
        Ok(again) => again,
        Err(mistakes) => panic!("the formatted text cannot be parsed: {mistakes:?}\n{laid}"),
    };
    assert_eq!(print(&again), laid, "formatting is not idempotent");
    assert_eq!(again, scenario, "formatting changes the meaning:\n{laid}");
    let bare = Scenario { comments: Vec::new(), source: Arc::default(), ..scenario.clone() };
    let bare = print(&bare);
    assert_eq!(
        parse(source(&bare), name).as_ref(),
        Ok(&scenario),
        "without comments and source, the meaning differs:\n{bare}"
    );
    KNOWN.with(|known| {
        let known = known.get_or_init(known_names);
        let env = Env {
            fragments: &|name| known.suite.fragment(name),
            requirement_ids: &|id| known.ids.contains(id),
            fragment_names: &known.fragments,
            requirement_names: &known.requirements,
            behaviours: known.suite.behaviours(),
        };
        for mistake in check(&scenario, &env) {
            // The location of a diagnostic in a fragment refers to the text of the fragment, not of the scenario.
            let text = mistake.source.text.clone();
            check_place(&mistake, &text);
        }
    });
}

fn source(text: &str) -> Arc<SourceFile> {
    Arc::new(SourceFile { path: "s.pmi".into(), text: text.into() })
}

fn check_place(mistake: &Diagnostic, text: &str) {
    let span = mistake.span;
    assert!(span.start <= span.end && span.end <= text.len(), "{mistake} is at {span:?} of {}", text.len());
    assert!(
        text.is_char_boundary(span.start) && text.is_char_boundary(span.end),
        "the position of a diagnostic is within a character: {mistake}"
    );
    let line = mistake.source.line_of(span.start);
    assert!(line >= 1 && line <= text.split('\n').count());
    assert!(!mistake.message.is_empty());
    assert!(!mistake.render(false).is_empty());
}

fn known_names() -> KnownNames {
    let Ok(suite) = pmi_runner::suite::of_paths(&[]) else { panic!("the embedded fragments cannot be read") };
    let requirements: Vec<String> = suite.catalogue.iter().map(|known| known.id.clone()).collect();
    let ids = requirements.iter().cloned().collect();
    let fragments = ["join", "leave"].map(str::to_owned).into();
    KnownNames { suite, requirements, ids, fragments }
}
