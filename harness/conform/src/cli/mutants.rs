//! `suite mutants`: lists faults and variations, and plays the suite against them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::count;
use anyhow::Context;

use pmi_faults::client::UNDETECTABLE_REQUIREMENTS;
use pmi_faults::external::ExternalFault;
use pmi_faults::{catalogue, faults, rare_faults, variations};
use pmi_runner::iut::Iut;
use pmi_runner::kill_matrix::client;
use pmi_runner::kill_matrix::external::ExternalMatrix;
use pmi_runner::kill_matrix::{FaultResult, KillMatrix, KillResult, PartyResult, run};
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::Library;
use pmi_runner::party::program::Program;
use pmi_runner::run::RunOptions;
use pmi_scenario::suite::Suite;

use super::args::{Mutants, side_by_side};
use super::output::{print, scenario_errors};
use super::play::library_at;
use super::select::{Filter, under_test};

/// Lists the selected faults and variations.
fn list(selected: &dyn Fn(&str) -> bool) -> anyhow::Result<u8> {
    /// The widths of the columns for the label and the name.
    const SERVER: (usize, usize) = (10, 44);
    const CLIENT: (usize, usize) = (17, 37);
    const EXTERNAL: (usize, usize) = (17, 38);
    let mut text = String::new();
    let mut add = |label: &str, (first, second), name: &str, about: &str, breaks: &[&str]| {
        if selected(name) {
            text += &format!("{label:first$} {name:second$} {about}");
            if !breaks.is_empty() {
                text += &format!("  ({})", breaks.join(", "));
            }
            text.push('\n');
        }
    };
    faults().for_each(|f| add("fault", SERVER, f.name, f.description, f.breaks));
    variations().for_each(|v| add("variation", SERVER, v.name, v.description, &[]));
    rare_faults().for_each(|f| add("rare fault", SERVER, f.name, f.description, &[]));
    let all = catalogue();
    all.client_faults.iter().for_each(|f| add("client fault", CLIENT, f.name, f.description, f.breaks));
    all.client_variations.iter().for_each(|v| add("client variation", CLIENT, v.name, v.description, &[]));
    for (label, entries) in [
        ("program fault", &all.program_faults),
        ("program variation", &all.program_variations),
        ("library fault", &all.library_faults),
        ("library variation", &all.library_variations),
        ("mode", &all.modes),
        ("rare fault", &all.rare_program_faults),
        ("rare fault", &all.rare_library_faults),
    ] {
        entries.iter().for_each(|entry| add(label, EXTERNAL, entry.name, entry.about, &[]));
    }
    for unseen in UNDETECTABLE_REQUIREMENTS {
        writeln!(text, "client, not seen  {:37} {}", unseen.id, unseen.reason)?;
    }
    print(&text).map(|()| 0)
}

/// Returns the share of killed faults in percent, rounded down so that 100 means all faults.
fn score(killed: usize, total: usize) -> usize {
    (killed * 100).checked_div(total).unwrap_or(100)
}

/// The results for the faults and variations of one kind of implementation.
struct MutantsReport<'a> {
    /// The kind of implementation as a prefix of labels, for example `library `. Empty for servers.
    kind: &'static str,
    faults: Vec<FaultLine<'a>>,
    /// The name, the behaviour and the findings of each variation.
    variations: Vec<(&'a str, &'a str, Vec<String>)>,
    without_fault: &'a [String],
    /// The requirements that need no fault of this implementation, with the reasons.
    excepted: &'a [(String, String)],
    /// Additional counts for the summary.
    more: String,
}

struct FaultLine<'a> {
    name: String,
    about: &'a str,
    breaks: &'a [&'static str],
    /// For a fault that was not killed, true if a finding cites a different requirement.
    is_cited: bool,
    /// The first cited requirement and the text of the `cited by` column; `None` if the fault was not killed.
    killed: Option<(&'a str, String)>,
    /// Findings that cite other requirements, and any other reasons why the fault does not count as killed.
    wrong: Vec<String>,
}

impl<'a> MutantsReport<'a> {
    fn of_servers(matrix: &'a KillMatrix, start: Instant) -> Self {
        let fault = |fault: &'a FaultResult| FaultLine {
            name: fault.label(),
            about: fault.description,
            breaks: &fault.breaks,
            is_cited: !fault.wrong_requirement.is_empty(),
            killed: fault
                .killers
                .first()
                .map(|first| (first_cited(&fault.breaks, &first.requirements), first.scenario.clone())),
            wrong: first_findings(&fault.wrong_requirement),
        };
        let variations = matrix.variations.iter();
        Self {
            kind: "",
            faults: matrix.faults.iter().map(fault).collect(),
            variations: variations.map(|v| (v.name, v.description, first_findings(&v.findings))).collect(),
            without_fault: &matrix.requirements_without_fault,
            excepted: &[],
            more: format!(
                "; {} of {} faults in several dialects lack a common rule; {} scenarios each, {:.1} s",
                matrix.without_common_rule.len(),
                matrix.shared_faults,
                matrix.scenarios,
                start.elapsed().as_secs_f64()
            ),
        }
    }

    fn of_party(
        kind: &'static str,
        [faults, variations]: [&'a [PartyResult]; 2],
        without_fault: &'a [String],
        more: String,
    ) -> Self {
        let fault = |fault: &'a PartyResult| FaultLine {
            name: fault.name.to_owned(),
            about: fault.about,
            breaks: &fault.breaks,
            is_cited: !fault.cited.is_empty(),
            killed: fault
                .is_right()
                .then(|| (first_cited(&fault.breaks, &fault.cited), joined(&fault.cited))),
            wrong: fault.wrong.clone(),
        };
        Self {
            kind,
            faults: faults.iter().map(fault).collect(),
            variations: variations.iter().map(|v| (v.name, v.about, v.wrong.clone())).collect(),
            without_fault,
            excepted: &[],
            more,
        }
    }

    fn print(&self, text: &mut String) -> std::fmt::Result {
        let kind = self.kind;
        writeln!(text, "{:44} {:40} cited by", format!("{kind}fault"), "requirement")?;
        for fault in &self.faults {
            let Some((cited, by)) = &fault.killed else { continue };
            writeln!(text, "{:44} {cited:40} {by}", fault.name)?;
        }
        text.push('\n');
        let (mut survived, mut wrong) = (0, 0);
        for fault in self.faults.iter().filter(|fault| fault.killed.is_none()) {
            let (count, label) = match fault.is_cited {
                true => (&mut wrong, "WRONG REASON"),
                false => (&mut survived, "SURVIVED"),
            };
            *count += 1;
            writeln!(text, "{label} {}: {} (breaks {})", fault.name, fault.about, fault.breaks.join(", "))?;
            fault.wrong.iter().try_for_each(|finding| writeln!(text, "  {finding}"))?;
        }
        let punished: Vec<_> =
            self.variations.iter().filter(|(_, _, findings)| !findings.is_empty()).collect();
        for (name, about, findings) in &punished {
            writeln!(text, "PUNISHED {name}: {about}\n  {}", findings.join("\n  "))?;
        }
        for (id, reason) in self.excepted {
            writeln!(text, "no {kind}fault for {id}: {reason}")?;
        }
        for id in self.without_fault {
            writeln!(text, "NO FAULT: no {kind}fault shows that {id} is tested")?;
        }
        let total = self.faults.len();
        let killed = total - survived - wrong;
        writeln!(
            text,
            "{killed} of {total} {kind}faults killed by the requirement they break, {survived} survived, {wrong} killed for the wrong \
             reason; {} of {} {kind}variations punished; {} without a fault{}",
            punished.len(),
            self.variations.len(),
            count(self.without_fault.len(), "MUST requirement"),
            self.more
        )?;
        writeln!(text, "{kind}score {} %", score(killed, total))
    }
}

/// Returns the first requirement in `breaks` that is also in `cited`, or an empty string if there is none.
fn first_cited<'a>(breaks: &[&'a str], cited: &BTreeSet<String>) -> &'a str {
    breaks.iter().find(|id| cited.contains(**id)).unwrap_or(&"")
}

fn joined(ids: &BTreeSet<String>) -> String {
    ids.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Returns the first finding of each of the first three results, and the number of remaining results.
fn first_findings(all: &[KillResult]) -> Vec<String> {
    let first = all.iter().take(3).map(|found| format!("{}: {}", found.scenario, found.first_finding));
    first
        .chain((all.len() > 3).then(|| format!("... and {}", count(all.len() - 3, "more scenario"))))
        .collect()
}

/// Time without activity after which a program or library counts as hanging.
const MAX_INACTIVITY: Duration = Duration::from_secs(2);

/// Plays the suite against each fault and each variation of a program or library that implements them.
fn external(args: &Mutants, suite: &Suite, selected: &dyn Fn(&str) -> bool) -> anyhow::Result<u8> {
    let dialect = args.dialect;
    let applies = |f: &&'static ExternalFault| selected(f.name) && f.applies_in(dialect.framing());
    let all = catalogue();
    let (faults, variations) = match args.client {
        Some(_) => (&all.program_faults, &all.program_variations),
        None => (&all.library_faults, &all.library_variations),
    };
    let [faults, variations] = [faults, variations].map(|all| all.iter().filter(applies).collect::<Vec<_>>());
    let command = |fault: &str| args.client.as_ref().map(|command| command.replace("{fault}", fault));
    command("").map(|command| Program::new(&command, 2)).transpose().context("--client")?;
    let library = args.library.as_ref().map(|path| library_at(path, std::env::current_exe()?)).transpose()?;
    let with_fault = |fault: &str| match (command(fault), &library) {
        (Some(command), _) => {
            // The same command was parsed successfully above.
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
    let limits = ScenarioLimits { step: MAX_INACTIVITY, ..ScenarioLimits::default() };
    let matrix = ExternalMatrix {
        suite,
        under_test: under_test(args.client.as_deref(), args.library.as_deref()),
        dialect,
        with_fault: &with_fault,
        options: RunOptions::unreported(limits),
        jobs: side_by_side(args.jobs),
    };
    let (killed, lawful) = (matrix.run(&faults), matrix.run(&variations));
    // Requirements without a fault are known only if all faults were played.
    let unbroken = if args.filter.is_empty() { matrix.without_fault(&killed) } else { Vec::new() };
    let (mut without_fault, mut excepted) = (Vec::new(), Vec::new());
    for (id, reason) in unbroken {
        match reason {
            Some(reason) => excepted.push((id, reason)),
            None => without_fault.push(id),
        }
    }
    let is_wrong = killed.iter().chain(&lawful).any(|result| !result.is_right());
    let status = u8::from(is_wrong || !without_fault.is_empty());
    if args.json {
        print(&format!(
            "{:#}\n",
            serde_json::json!({
                "faults": killed, "variations": lawful, "without_fault": without_fault, "excepted": excepted,
            })
        ))?;
        return Ok(status);
    }
    let kind = if args.client.is_some() { "program " } else { "library " };
    let mut text = String::new();
    let report = MutantsReport::of_party(kind, [&killed, &lawful], &without_fault, String::new());
    MutantsReport { excepted: &excepted, ..report }.print(&mut text)?;
    print(&text).map(|()| status)
}

pub(super) fn mutants(args: &Mutants) -> anyhow::Result<u8> {
    let filters = Filter::all(&args.filter);
    let selected = |name: &str| filters.is_empty() || filters.iter().any(|filter| filter.matches(name));
    if args.list {
        return list(&selected);
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
    let faults: Vec<_> = faults().filter(|f| selected(f.name)).collect();
    let variations: Vec<_> = variations().filter(|v| selected(v.name)).collect();
    let mut matrix = run(&suite, &faults, &variations, args.json, jobs);
    let of_clients = [&catalogue().client_faults, &catalogue().client_variations];
    let [client_faults, client_variations] =
        of_clients.map(|all| all.iter().filter(|f| selected(f.name)).collect::<Vec<_>>());
    let mut clients = client::run(&suite, &client_faults, &client_variations);
    if !args.filter.is_empty() {
        // Requirements without a fault are known only if all faults were played.
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
    let mut text = String::new();
    MutantsReport::of_servers(&matrix, start).print(&mut text)?;
    for name in &matrix.without_common_rule {
        writeln!(text, "NO COMMON RULE, or a needless reason for its absence: {name}")?;
    }
    text.push('\n');
    let more = format!("; {} not visible on the wire", UNDETECTABLE_REQUIREMENTS.len());
    let results: [&[PartyResult]; 2] = [&clients.faults, &clients.variations];
    MutantsReport::of_party("client ", results, &clients.requirements_without_fault, more)
        .print(&mut text)?;
    print(&text)?;
    Ok(status)
}
