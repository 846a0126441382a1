//! Additional checks of scenarios for clients: their steps, and their settings for the reference server.

use std::cell::LazyCell;

use super::ast::{ImplementationKind, ProcessAction, Role, Scenario, Spanned, Step, StepAction, WriteMode};
use super::diag::DiagnosticSink;
use super::visit::steps;
use super::vocabulary::Behaviours;

/// Checks the head and the steps of a scenario for clients. In any other scenario, reports the settings and steps that require a client
/// under test. The steps of fragments are checked when they are played.
pub(super) fn check(scenario: &Scenario, behaviours: &Behaviours, diagnostics: &mut DiagnosticSink) {
    let serving = &scenario.server_setup;
    check_behaviours(scenario, behaviours, diagnostics);
    if let Some(launch) = serving.launch.as_ref().filter(|_| scenario.tests != ImplementationKind::Server) {
        diagnostics.error(launch.span, "`launch` requires a server under test");
    }
    if scenario.tests != ImplementationKind::Client {
        let is_library = scenario.tests == ImplementationKind::Library;
        let variations = serving.variations.iter().filter(|_| !is_library);
        let spans = variations.chain(&serving.fault).map(|name| name.span);
        for span in spans.chain(serving.settings.iter().map(|(setting, _)| setting.span)) {
            diagnostics
                .error(span, "server settings require a client under test")
                .help("remove the setting, or write `tests client` in the head; `vary` also works with `tests library`");
        }
        steps(&scenario.body).for_each(|step| check_misplaced(step, diagnostics));
        return;
    }
    let mut expects = false;
    for step in steps(&scenario.body) {
        expects |= is_expectation(&step.action);
        check_client_step(step, diagnostics);
    }
    if !expects && !scenario.is_fragment() {
        let span = scenario.requires.first().map(|r| r.span).unwrap_or_default();
        diagnostics.error(span, "the scenario expects nothing from the client").help(
            "state how the client ends (`* P: exits 0`, `* P: exits nonzero`, `* P: exits nonzero|same` or `* P: ends`) or what it prints (`* P: prints the same`)",
        );
    }
}

/// Reports unknown variations and faults in a scenario for clients or libraries.
fn check_behaviours(scenario: &Scenario, behaviours: &Behaviours, diagnostics: &mut DiagnosticSink) {
    let setup = &scenario.server_setup;
    // Most scenarios name neither a variation nor a fault, so the lists are created only on demand.
    let (variations, faults) = (LazyCell::new(behaviours.variations), LazyCell::new(behaviours.faults));
    let named = setup.variations.iter().map(|name| (name, "variation", &variations));
    for (name, what, known) in named.chain(setup.fault.iter().map(|name| (name, "fault", &faults))) {
        if name.value.starts_with('$') && !scenario.rows.is_empty() {
            let of_row = scenario.rows.iter().map(|row| row.variation(name).unwrap_or_else(|| name.clone()));
            of_row.for_each(|name| check_known(&name, what, known, diagnostics));
        } else {
            check_known(name, what, known, diagnostics);
        }
    }
}

fn check_known(name: &Spanned<String>, what: &str, known: &[&str], diagnostics: &mut DiagnosticSink) {
    if !known.contains(&name.value.as_str()) {
        diagnostics
            .error(name.span, format!("the reference server has no {what} `{}`", name.value))
            .suggest(&name.value, known)
            .help("run `pmi-conform suite mutants --list` to list the valid names");
    }
}

fn is_expectation(action: &StepAction) -> bool {
    use ProcessAction::{Ends, Exits, FailsOrMatches, SameOutput};
    matches!(action, StepAction::Process(Exits(_) | Ends | FailsOrMatches | SameOutput))
}

/// Reports actions that are valid only if a client is under test.
fn check_misplaced(step: &Step, diagnostics: &mut DiagnosticSink) {
    let every = |mode: &WriteMode| mode.every;
    let what = match &step.action {
        StepAction::CorrectResponse => "<right>",
        StepAction::Message { mode, .. } if every(mode) => "<every>",
        StepAction::Process(ProcessAction::FailsOrMatches) => "exits nonzero|same",
        StepAction::Process(ProcessAction::Exits(_)) => "exits",
        StepAction::Process(ProcessAction::Ends) => "ends",
        StepAction::Process(ProcessAction::SameOutput) => "prints the same",
        _ => return,
    };
    diagnostics.error(step.span, format!("`{what}` requires a client under test"));
}

fn check_client_step(step: &Step, diagnostics: &mut DiagnosticSink) {
    let wrong = match (step.role, &step.action) {
        (Role::Client, StepAction::Message { .. }) => return,
        (Role::Client, _) => {
            "a program decides what it sends; `expect` names the request whose response is changed"
        }
        (Role::Server, StepAction::Message { mode, .. }) if mode.every => {
            "`<every>` selects requests, so write it in an `expect` step"
        }
        (
            Role::Server,
            StepAction::Message { .. } | StepAction::Close | StepAction::Empty | StepAction::CorrectResponse,
        ) => return,
        (Role::Server, _) => {
            "the harness is the server: write the message, `<right>`, `<empty>` or `<close>`"
        }
        (Role::Process, StepAction::Process(ProcessAction::Kill(9))) => return,
        (Role::Process, StepAction::Process(ProcessAction::Kill(_))) => {
            "processes under test can only be killed with signal 9"
        }
        (Role::Process, StepAction::Process(ProcessAction::Env(..))) => return,
        (Role::Process, action) if is_expectation(action) => return,
        (Role::Process, _) => {
            "a `P:` step for a client is `set`, `kill 9`, `exits`, `ends` or `prints the same`"
        }
        _ => "a scenario for clients has only `expect`, `send` and `P:` steps",
    };
    diagnostics.error(step.span, wrong);
}
