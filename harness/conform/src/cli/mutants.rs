//! `suite mutants`: lists faults and variations, and plays the suite against them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use pmi_faults::client::{self as of_clients, ClientFault, ClientVariation, UNDETECTABLE_REQUIREMENTS};
use pmi_faults::external::ExternalFault;
use pmi_faults::{Fault, Variation, faults, rare_faults, variations};
use pmi_faults::{
    library_faults, library_variations, program_faults, program_variations, rare_external_faults,
};
use pmi_runner::iut::Iut;
use pmi_runner::kill_matrix::client::{self, ClientMatrix};
use pmi_runner::kill_matrix::external::{ExternalMatrix, ExternalResult};
use pmi_runner::kill_matrix::{KillResult, run};
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::Library;
use pmi_runner::party::program::Program;
use pmi_runner::run::RunOptions;
use pmi_scenario::ImplementationKind;
use pmi_scenario::suite::Suite;

use super::args::{Mutants, side_by_side};
use super::output::{print, scenario_errors};
use super::play::library_at;
use super::select::Filter;

fn list(
    faults: &[&Fault],
    variations: &[&Variation],
    rare: &[&Fault],
    client_faults: &[&ClientFault],
    client_variations: &[&ClientVariation],
    selected: &dyn Fn(&str) -> bool,
) -> anyhow::Result<u8> {
    let mut text = String::new();
    for fault in faults {
        writeln!(text, "fault      {:44} {}  ({})", fault.name, fault.description, fault.breaks.join(", "))?;
    }
    for variation in variations {
        writeln!(text, "variation  {:44} {}", variation.name, variation.description)?;
    }
    for fault in rare {
        writeln!(text, "rare fault {:44} {}", fault.name, fault.description)?;
    }
    for fault in client_faults {
        writeln!(
            text,
            "client fault      {:37} {}  ({})",
            fault.name,
            fault.description,
            fault.breaks.join(", ")
        )?;
    }
    for variation in client_variations {
        writeln!(text, "client variation  {:37} {}", variation.name, variation.description)?;
    }
    let external = |label, all: &mut dyn Iterator<Item = &'static ExternalFault>| {
        let line = |fault: &ExternalFault| format!("{label:17} {:38} {}\n", fault.name, fault.about);
        all.filter(|fault| selected(fault.name)).map(line).collect::<String>()
    };
    text += &external("program fault", &mut program_faults());
    text += &external("program variation", &mut program_variations());
    text += &external("library fault", &mut library_faults());
    text += &external("library variation", &mut library_variations());
    text += &external("rare fault", &mut rare_external_faults());
    for unseen in UNDETECTABLE_REQUIREMENTS {
        writeln!(text, "client, not seen  {:37} {}", unseen.id, unseen.reason)?;
    }
    print(&text).map(|()| 0)
}

/// Returns the share of killed faults in percent, rounded down so that 100 means all faults.
fn score(killed: usize, total: usize) -> usize {
    (killed * 100).checked_div(total).unwrap_or(100)
}

/// Prints the table of client faults and its score.
fn show_clients(text: &mut String, matrix: &ClientMatrix) -> std::fmt::Result {
    writeln!(text, "\n{:44} {:40} requirements cited", "client fault", "requirement")?;
    for fault in matrix.faults.iter().filter(|f| f.killed) {
        let right = fault.breaks.iter().find(|id| fault.cited.contains(**id)).unwrap_or(&"");
        let cited: Vec<&str> = fault.cited.iter().map(String::as_str).collect();
        writeln!(text, "{:44} {right:40} {}", fault.name, cited.join(" "))?;
    }
    text.push('\n');
    let (mut survived, mut wrong, mut punished) = (0, 0, 0);
    for fault in matrix.faults.iter().filter(|f| !f.killed) {
        match &fault.first_finding {
            None => {
                survived += 1;
                writeln!(text, "SURVIVED {}: {}", fault.name, fault.description)?;
            }
            Some(first) => {
                wrong += 1;
                let breaks = fault.breaks.join(", ");
                writeln!(
                    text,
                    "WRONG REASON {}: {} (breaks {breaks})\n  {first}",
                    fault.name, fault.description
                )?;
            }
        }
    }
    for variation in matrix.variations.iter().filter(|v| !v.findings.is_empty()) {
        punished += 1;
        let by = variation.findings.join("\n  ");
        writeln!(text, "PUNISHED {}: {}\n  {by}", variation.name, variation.description)?;
    }
    for id in &matrix.requirements_without_fault {
        writeln!(text, "NO FAULT of a client shows that {id} is tested")?;
    }
    let total = matrix.faults.len();
    let killed = total - survived - wrong;
    writeln!(
        text,
        "{killed} of {total} client faults killed by the requirement they break, {survived} survived, {wrong} killed for the wrong reason; {punished} of {} client variations punished; {} MUST(s) for clients without a fault, {} not visible on the wire",
        matrix.variations.len(),
        matrix.requirements_without_fault.len(),
        matrix.undetectable.len()
    )?;
    writeln!(text, "client score {} %", score(killed, total))
}

fn show(text: &mut String, label: &str, name: &str, about: &str, all: &[KillResult]) -> std::fmt::Result {
    writeln!(text, "{label} {name}: {about}")?;
    for found in all.iter().take(3) {
        writeln!(text, "  {}: {}", found.scenario, found.first_finding)?;
    }
    if all.len() > 3 {
        writeln!(text, "  ... and {} more scenario(s)", all.len() - 3)?;
    }
    Ok(())
}

/// Time without activity after which a program or library counts as hanging.
const PATIENCE: Duration = Duration::from_secs(2);

/// Plays the faults of programs or libraries against a program or library that implements them.
fn external(args: &Mutants, suite: &Suite, selected: &dyn Fn(&str) -> bool) -> anyhow::Result<u8> {
    let dialect = args.dialect;
    let applies = |f: &&'static ExternalFault| selected(f.name) && f.applies_in(dialect.framing());
    let (faults, variations): (Vec<_>, Vec<_>) = match args.client {
        Some(_) => {
            (program_faults().filter(applies).collect(), program_variations().filter(applies).collect())
        }
        None => (library_faults().filter(applies).collect(), library_variations().filter(applies).collect()),
    };
    let command = |fault: &str| args.client.as_ref().map(|command| command.replace("{fault}", fault));
    command("").map(|command| Program::new(&command, 2)).transpose().context("--client")?;
    let library = args.library.as_ref().map(|path| library_at(path, std::env::current_exe()?)).transpose()?;
    let with_fault = |fault: &str| match (command(fault), &library) {
        (Some(command), _) => {
            // The same command has been accepted above.
            Iut::Client(Box::new(
                Program::new(&command, 2).unwrap_or_else(|error| panic!("--client: {error}")),
            ))
        }
        (None, library) => {
            let library = library.as_ref().unwrap_or_else(|| panic!("--library: missing"));
            let env = [("LIBRARY_FAULT".to_owned(), fault.to_owned())].into();
            let Library { path, binary, .. } = library;
            let library = Library { path: path.clone(), binary: binary.clone(), env, server: None };
            Iut::Library(Box::new(library), BTreeMap::new(), Arc::default())
        }
    };
    let limits = ScenarioLimits { step: PATIENCE, ..ScenarioLimits::default() };
    let matrix = ExternalMatrix {
        suite,
        under_test: if args.client.is_some() {
            ImplementationKind::Client
        } else {
            ImplementationKind::Library
        },
        dialect,
        with_fault: &with_fault,
        options: RunOptions::unreported(limits),
        jobs: side_by_side(args.jobs),
    };
    let (killed, lawful) = (matrix.run(&faults), matrix.run(&variations));
    let status = u8::from(killed.iter().chain(&lawful).any(|result| !result.is_right()));
    if args.json {
        print(&format!("{:#}\n", serde_json::json!({ "faults": killed, "variations": lawful })))?;
        return Ok(status);
    }
    let mut text = String::new();
    show_external(&mut text, &killed, &lawful)?;
    print(&text).map(|()| status)
}

fn show_external(
    text: &mut String,
    faults: &[ExternalResult],
    variations: &[ExternalResult],
) -> std::fmt::Result {
    writeln!(text, "{:44} requirements cited", "fault")?;
    for fault in faults.iter().filter(|fault| fault.is_right()) {
        let cited: Vec<&str> = fault.cited.iter().map(String::as_str).collect();
        writeln!(text, "{:44} {}", fault.name, cited.join(" "))?;
    }
    text.push('\n');
    for (label, all) in [("SURVIVED", faults), ("PUNISHED", variations)] {
        for result in all.iter().filter(|result| !result.is_right()) {
            writeln!(text, "{label} {}: {}\n  {}", result.name, result.about, result.wrong.join("\n  "))?;
        }
    }
    let count = |all: &[ExternalResult]| all.iter().filter(|result| !result.is_right()).count();
    let (total, survived) = (faults.len(), count(faults));
    writeln!(
        text,
        "{} of {total} faults killed by the requirement they break, {survived} survived; {} of {} variations punished",
        total - survived,
        count(variations),
        variations.len()
    )?;
    writeln!(text, "score {} %", score(total - survived, total))
}

pub(super) fn mutants(args: &Mutants) -> anyhow::Result<u8> {
    let filters = Filter::all(&args.filter);
    let selected = |name: &str| filters.is_empty() || filters.iter().any(|filter| filter.matches(name));
    let faults: Vec<_> = faults().filter(|f| selected(f.name)).collect();
    let variations: Vec<_> = variations().filter(|v| selected(v.name)).collect();
    let client_faults: Vec<_> = of_clients::faults().filter(|f| selected(f.name)).collect();
    let client_variations: Vec<_> = of_clients::variations().filter(|v| selected(v.name)).collect();
    if args.list {
        let rare: Vec<_> = rare_faults().filter(|f| selected(f.name)).collect();
        return list(&faults, &variations, &rare, &client_faults, &client_variations, &selected);
    }
    let suite = match args.paths.as_slice() {
        [] => pmi_runner::suite::embedded(),
        paths => pmi_runner::suite::of_paths(paths),
    };
    let suite = suite.map_err(scenario_errors)?;
    if args.client.is_some() || args.library.is_some() {
        return external(args, &suite, &selected);
    }
    let start = Instant::now();
    let jobs = side_by_side(args.jobs);
    let mut matrix = run(&suite, &faults, &variations, args.matrix || args.json, jobs);
    let mut clients = client::run(&suite, &client_faults, &client_variations);
    if !args.filter.is_empty() {
        // Requirements without a fault are only known if all faults were played.
        matrix.requirements_without_fault.clear();
        clients.requirements_without_fault.clear();
    }
    let status = u8::from(!matrix.is_complete() || !clients.is_complete());
    if args.json {
        let mut value = serde_json::to_value(&matrix)?;
        value["clients"] = serde_json::to_value(&clients)?;
        print(&format!("{value:#}\n"))?;
        return Ok(status);
    }
    let mut text = format!("{:44} {:>5}  {:40} first killer\n", "fault", "kills", "requirement");
    for fault in &matrix.faults {
        let Some(first) = fault.killers.first() else { continue };
        let cited = fault.breaks.iter().find(|id| first.requirements.contains(**id)).unwrap_or(&"");
        let shown = if args.matrix { &fault.killers[..] } else { &fault.killers[..1] };
        let names: Vec<&str> = shown.iter().map(|f| f.scenario.as_str()).collect();
        writeln!(text, "{:44} {:>5}  {cited:40} {}", fault.label(), fault.killers.len(), names.join(" "))?;
    }
    let (mut survived, mut wrong, mut punished) = (0, 0, 0);
    text.push('\n');
    for fault in matrix.faults.iter().filter(|f| !f.is_killed()) {
        if fault.wrong_requirement.is_empty() {
            survived += 1;
            show(&mut text, "SURVIVED", &fault.label(), fault.description, &[])?;
        } else {
            wrong += 1;
            let about = format!("{} (breaks {})", fault.description, fault.breaks.join(", "));
            show(&mut text, "WRONG REASON", &fault.label(), &about, &fault.wrong_requirement)?;
        }
    }
    for variation in matrix.variations.iter().filter(|v| !v.findings.is_empty()) {
        punished += 1;
        show(&mut text, "PUNISHED", variation.name, variation.description, &variation.findings)?;
    }
    for id in &matrix.requirements_without_fault {
        writeln!(text, "NO FAULT shows that {id} is tested")?;
    }
    let total = matrix.faults.len();
    let killed = total - survived - wrong;
    writeln!(
        text,
        "{killed} of {total} faults killed by the requirement they break, {survived} survived, {wrong} killed for the \
         wrong reason; {punished} of {} variations punished; {} MUST(s) without a fault; {} scenarios each, {:.1} s",
        matrix.variations.len(),
        matrix.requirements_without_fault.len(),
        matrix.scenarios,
        start.elapsed().as_secs_f64()
    )?;
    writeln!(text, "score {} %", score(killed, total))?;
    show_clients(&mut text, &clients)?;
    print(&text)?;
    Ok(status)
}
