//! `explain`, `scenario show` and `suite coverage`: describe the embedded catalogue, suite and profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::report::{KeptEvents, catalogue_pages, count};
use anyhow::Context;
use pmi_faults::client::UNDETECTABLE_REQUIREMENTS;
use pmi_faults::faults;
use pmi_judge::builtin_requirements;
use pmi_judge::deviations::{Deviations, recorded_deviations};
use pmi_judge::verdict::Verdict;
use pmi_runner::hint::hint;
use pmi_runner::iut::Iut;
use pmi_runner::kill_matrix;
use pmi_runner::kill_matrix::client::needs_client_fault;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::server::profile::builtin;
use pmi_runner::run::{RunOptions, run};
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Dialect, Scenario};
use pmi_scenario::requirement::{BoundParty, Level, Requirement};
use pmi_scenario::suite::Suite;
use pmi_wire::protocol::{self, Exchange, Field};

use super::args::{Coverage, side_by_side};
use super::inputs::InputCoverage;
use super::output::{SCENARIO_LIST_HINT, print, scenario_errors};
use super::read::read_run;
use super::select::file_name;

fn testing<'a>(suite: &'a Suite, id: &str) -> Vec<&'a str> {
    suite
        .scenarios
        .iter()
        .filter(|s| s.requires.iter().any(|r| r.value == id))
        .map(|s| s.name.as_str())
        .collect()
}

fn binds(requirement: &Requirement) -> String {
    requirement.binds.iter().map(BoundParty::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn profiles(json: bool) -> anyhow::Result<u8> {
    let all = builtin();
    if json {
        print(&format!("{:#}\n", serde_json::to_value(all)?))?;
        return Ok(0);
    }
    let mut text = String::new();
    for profile in all {
        let names = profile.names.iter().map(|name| format!("@{name}")).collect::<Vec<_>>().join("  ");
        writeln!(text, "{names}\n  {}: {}", profile.title, profile.command)?;
        if let Some(nodes) = profile.command_nodes.filter(|nodes| *nodes != profile.command) {
            writeln!(text, "  on several nodes: {nodes}")?;
        }
        let mut known = Vec::new();
        for (what, operations) in [("offers", &profile.offers), ("lacks", &profile.lacks)] {
            if !operations.is_empty() {
                known.push(format!("{what} {}", operations.join(" and ")));
            }
        }
        known.extend(
            profile.start_timeout.map(|seconds| format!("processes may take up to {seconds} s to start")),
        );
        known.extend(profile.max_ranks.map(|most| format!("at most {most} ranks")));
        if !known.is_empty() {
            writeln!(text, "  {}", known.join("; "))?;
        }
        if profile.has_deviations {
            writeln!(text, "  known deviations are recorded")?;
        }
        if !profile.advice.is_empty() {
            writeln!(text, "  {}", profile.advice)?;
        }
        writeln!(text)?;
    }
    print(&format!("{}\n", text.trim_end()))?;
    Ok(0)
}

pub(super) fn requirements(json: bool, pages: Option<&Path>) -> anyhow::Result<u8> {
    let suite = pmi_runner::suite::embedded().map_err(scenario_errors)?;
    if let Some(folder) = pages {
        let shown = || folder.display().to_string();
        std::fs::create_dir_all(folder.join("requirements")).with_context(shown)?;
        for (name, text) in catalogue_pages(&suite.catalogue) {
            std::fs::write(folder.join(name), text).with_context(shown)?;
        }
        return Ok(0);
    }
    if json {
        let list: Vec<serde_json::Value> = suite
            .catalogue
            .iter()
            .map(|r| {
                let mut value = serde_json::to_value(r)?;
                value["scenarios"] = testing(&suite, &r.id).into();
                Ok(value)
            })
            .collect::<serde_json::Result<_>>()?;
        print(&format!("{:#}\n", serde_json::Value::from(list)))?;
        return Ok(0);
    }
    let mut text = String::new();
    for r in suite.catalogue.iter() {
        writeln!(text, "{:8} {:40} {:24} {}", r.level, r.id, binds(r), r.text)?;
    }
    print(&text)?;
    Ok(0)
}

pub(super) fn show(name: &str, dialect: Option<Dialect>) -> anyhow::Result<u8> {
    let suite = pmi_runner::suite::embedded().map_err(scenario_errors)?;
    let found = suite.scenarios.iter().find(|s| s.name == name || file_name(&s.name) == name);
    if let (Some(dialect), Some(found)) = (dialect, found) {
        return show_spelled(&suite, found, file_name(&found.name) == name, dialect);
    }
    let source = match found.map(|s| Arc::clone(&s.source)) {
        Some(source) => source,
        None => match suite.fragment(name.strip_prefix("fragments/").unwrap_or(name)) {
            Some(fragment) => Arc::clone(&fragment.source),
            None => {
                let names = suite.scenarios.iter().map(|s| s.name.as_str());
                let hint = hint(name, names, SCENARIO_LIST_HINT);
                anyhow::bail!("unknown scenario or fragment {name}{hint}");
            }
        },
    };
    let numbered = source.text.lines().enumerate().map(|(i, line)| format!("{:4}  {line}", i + 1));
    print(&format!("{}\n{}\n", source.path, numbered.collect::<Vec<_>>().join("\n")))?;
    Ok(0)
}

/// Prints the messages of a scenario and of its fragments, in the syntax of a dialect. If the user named a table, prints one of its rows.
fn show_spelled(suite: &Suite, found: &Scenario, is_table: bool, dialect: Dialect) -> anyhow::Result<u8> {
    let row = Scenario::split_row(&found.name).1;
    let spelled = |s: &&Arc<Scenario>| {
        s.source.path == found.source.path
            && s.dialect == dialect
            && (is_table || Scenario::split_row(&s.name).1 == row)
    };
    let Some(scenario) = suite.scenarios.iter().find(spelled) else {
        anyhow::bail!("{}: not played in {dialect}; the head of the scenario lists its dialects", found.name);
    };
    let mut text = format!("{}\n\n{}", scenario.name, pmi_scenario::print(scenario));
    let mut used = pmi_scenario::visit::fragments(&scenario.body);
    while let Some(name) = used.pop_front() {
        let Some(fragment) = suite.fragment(&name) else { continue };
        if !text.contains(&format!("\nfragment {name}\n")) {
            write!(text, "\nfragment {name}\n\n{}", pmi_scenario::print(&fragment))?;
            used.extend(pmi_scenario::visit::fragments(&fragment.body));
        }
    }
    print(&text)?;
    Ok(0)
}

/// Prints the summary of a scenario and the requirements that it tests. For a table, prints the comment of its file and the requirements of
/// all rows.
fn explain_scenario(suite: &Suite, scenario: &Scenario, is_table: bool) -> anyhow::Result<u8> {
    let name = file_name(&scenario.name);
    let (title, summary, played) = if is_table {
        let comment = scenario.source.text.lines().map_while(|line| line.strip_prefix('#'));
        let summary = comment.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        let rows = suite.scenarios.iter().map(|s| &**s).filter(|s| file_name(&s.name) == name);
        (name, summary, rows.collect())
    } else {
        (scenario.name.as_str(), scenario.summary(), vec![scenario])
    };
    let mut text = format!("{title}\n\n  {summary}\n\nIt tests:\n");
    for id in played.iter().flat_map(|s| &s.requires).map(|id| id.value.as_str()).collect::<BTreeSet<_>>() {
        let text_of_requirement = suite.catalogue.get(id).map(|r| r.text.as_str()).unwrap_or_default();
        writeln!(text, "  {id}: {text_of_requirement}")?;
    }
    let rows = played.iter().filter_map(|s| s.name.strip_prefix(name)?.strip_prefix('['));
    let rows: Vec<&str> = rows.map(|row| row.trim_end_matches(']')).collect();
    if is_table {
        writeln!(text, "\nIt is played once for each row: {}", rows.join(", "))?;
    }
    writeln!(text, "\n`pmi-conform scenario show {name}` shows it.")?;
    print(&text)?;
    Ok(0)
}

/// Prints the rows of the protocol table for an operation. `word` is the name of the operation, a command, or a function of the C API.
/// Returns `None` if the word names no operation.
fn explain_operation(word: &str) -> anyhow::Result<Option<u8>> {
    let is_meant = |exchange: &&Exchange| {
        exchange.operation == word
            || exchange.request == word
            || exchange.response == Some(word)
            || exchange.functions.contains(&word)
    };
    let rows: Vec<_> = Dialect::ALL
        .into_iter()
        .flat_map(|dialect| protocol::exchanges(dialect.framing()).map(move |exchange| (dialect, exchange)))
        .collect();
    let Some(operation) = rows.iter().map(|(_, row)| *row).find(is_meant).map(|row| row.operation) else {
        return Ok(None);
    };
    let mut text = format!("{operation}\n");
    for (dialect, row) in rows.into_iter().filter(|(_, row)| row.operation == operation) {
        writeln!(text, "\n{}: {}  ({})", dialect.title(), row.request, row.source)?;
        if !row.functions.is_empty() {
            writeln!(text, "  C API     {}", row.functions.join(", "))?;
        }
        fields(&mut text, "request", row.arguments)?;
        match row.response {
            Some(response) => writeln!(text, "  response  {response}")?,
            None => writeln!(text, "  response  none")?,
        }
        fields(&mut text, "response", row.results)?;
    }
    print(&text)?;
    Ok(Some(0))
}

/// Prints the fields of a message, one per line.
fn fields(text: &mut String, label: &str, fields: &[Field]) -> anyhow::Result<()> {
    for (i, field) in fields.iter().enumerate() {
        let label = if i == 0 { label } else { "" };
        let key = format!("{}{}", field.key, if field.numbered { "N" } else { "" });
        write!(text, "  {label:<9} {key}: {}", field.rule)?;
        if field.optional {
            text.push_str(", optional");
        }
        if let Some(limit) = field.limit {
            write!(text, ", at most {limit}")?;
        }
        if let Some(version) = field.since {
            write!(text, ", from PMI {version}")?;
        }
        text.push('\n');
    }
    Ok(())
}

pub(super) fn explain(id: &str) -> anyhow::Result<u8> {
    let suite = pmi_runner::suite::embedded().map_err(scenario_errors)?;
    if let Some(text) = builtin_requirements::text(id) {
        print(&format!("{id}\n\n  {text}\n\nEvery scenario checks this requirement.\n"))?;
        return Ok(0);
    }
    let Some(r) = suite.catalogue.get(id) else {
        if let Some(scenario) = suite.scenarios.iter().find(|s| s.name == id || file_name(&s.name) == id) {
            return explain_scenario(&suite, scenario, scenario.name != id);
        }
        if let Some(status) = explain_operation(id)? {
            return Ok(status);
        }
        let of_rule: Vec<&Requirement> =
            suite.catalogue.iter().filter(|r| r.rules.iter().any(|rule| rule == id)).collect();
        if !of_rule.is_empty() {
            let mut text = format!("{id}  (a rule, stated by these requirements)\n\n");
            for r in of_rule {
                writeln!(text, "  {}: {}", r.id, r.text)?;
            }
            print(&text)?;
            return Ok(0);
        }
        let names = suite.scenarios.iter().map(|s| s.name.as_str());
        let ids = suite.catalogue.iter().flat_map(|r| r.rules.iter().chain([&r.id])).map(String::as_str);
        let hint = hint(
            id,
            ids.chain(names),
            "`pmi-conform explain requirements` and `pmi-conform scenario list` list the valid names",
        );
        anyhow::bail!("unknown requirement, rule, scenario or operation {id}{hint}");
    };
    let mut text = format!("{}  ({}, binds {})\n{}\n\n  {}\n", r.id, r.level, binds(r), r.section, r.text);
    for (label, value) in [
        ("Grammar rule", &r.abnf),
        ("Reading", &r.reading),
        ("Reported only as a note", &r.contradiction),
        ("Proposed wording", &r.proposal),
        ("Not tested", &r.excluded),
    ] {
        if let Some(value) = value {
            writeln!(text, "\n{label}: {value}")?;
        }
    }
    for evidence in &r.evidence {
        writeln!(text, "  seen: {evidence}")?;
    }
    let scenarios = testing(&suite, id);
    if !scenarios.is_empty() {
        writeln!(text, "\nTested by {}:", count(scenarios.len(), "scenario"))?;
    }
    for scenario in scenarios {
        writeln!(text, "  {scenario}")?;
    }
    let known = recorded_deviations(id);
    if !known.is_empty() {
        writeln!(text, "\nKnown to break it:")?;
    }
    for (implementation, reason) in known {
        writeln!(text, "  {implementation}: {reason}")?;
    }
    print(&text)?;
    Ok(0)
}

pub(super) fn coverage(args: &Coverage) -> anyhow::Result<u8> {
    let suite = pmi_runner::suite::embedded().map_err(scenario_errors)?;
    let mut logged = Vec::new();
    for path in &args.log {
        logged.extend(read_run(path, KeptEvents::Nothing)?.results);
    }
    // The input space depends only on the suite, not on the logs.
    let mut inputs = InputCoverage::default();
    let options = RunOptions::unreported(ScenarioLimits::default());
    let iut = Iut::Memory(pmi_faults::Config::default());
    let never = AtomicBool::new(false);
    let all: Vec<_> = suite.testing(ImplementationKind::Server).cloned().collect();
    let played = run(&suite, &all, &iut, &mut Deviations::default(), &options, &never, &mut inputs).1;
    inputs.add_products(&suite);
    let results = if args.log.is_empty() { played } else { logged };
    let mut cells = String::new();
    let open = inputs.table(&mut cells)?;
    if args.inputs {
        print(&cells)?;
        return Ok(u8::from(args.check && open > 0));
    }
    let required_by = |fits: fn(Verdict) -> bool| -> BTreeSet<&str> {
        let fitting = results.iter().filter(|r| fits(r.verdict));
        fitting.flat_map(|r| r.requires.iter().map(String::as_str)).collect()
    };
    let executed = required_by(Verdict::is_judged);
    let passed = required_by(|verdict| verdict == Verdict::Pass);
    let jobs = side_by_side(None);
    let matrix = kill_matrix::run(&suite, &faults().collect::<Vec<_>>(), &[], false, jobs);
    let killed = matrix.cited_requirements();
    let clients = kill_matrix::client::run(
        &suite,
        &pmi_faults::catalogue().client_faults.iter().collect::<Vec<_>>(),
        &[],
    );
    let killed_clients = clients.cited_requirements();
    let mut sums: BTreeMap<(Level, &str), [usize; 6]> = BTreeMap::new();
    let mut text = String::new();
    let mut is_uncovered = false;
    for r in suite.catalogue.iter() {
        let scenarios = testing(&suite, &r.id).len();
        let party = match (r.binds.contains(&BoundParty::Server), r.binds.contains(&BoundParty::Proxy)) {
            (true, _) => "server",
            (false, true) => "proxy",
            (false, false) => "client, library",
        };
        let sum = sums.entry((r.level, party)).or_default();
        sum[0] += 1;
        let state = if r.excluded.is_some() {
            sum[5] += 1;
            "excluded"
        } else if scenarios == 0 {
            "not cited"
        } else {
            sum[1] += 1;
            let ran = executed.contains(r.id.as_str());
            sum[2] += usize::from(ran);
            let pass = passed.contains(r.id.as_str());
            sum[3] += usize::from(pass);
            match (ran, pass) {
                (_, true) => "passed",
                (true, false) => "executed",
                (false, false) => "cited",
            }
        };
        let fails = killed.contains(r.id.as_str());
        let client_fails = r.binds.contains(&BoundParty::Client) && killed_clients.contains(r.id.as_str());
        sum[4] += usize::from(fails || client_fails);
        // A requirement that binds both the server and the client needs a fault in each of them.
        let lacks = r.needs_fault(BoundParty::Server) && !fails;
        let client_lacks = needs_client_fault(r) && !client_fails;
        let is_undetectable = UNDETECTABLE_REQUIREMENTS.iter().any(|u| u.id == r.id);
        let is_tested = scenarios > 0 || fails || client_fails;
        let is_unexplained = !is_tested && !is_undetectable && r.excluded.is_none();
        is_uncovered |= is_unexplained || lacks || client_lacks;
        let kill = match (fails, client_fails) {
            _ if is_unexplained => "NOT TESTED",
            _ if lacks => "NO FAULT",
            _ if client_lacks => "NO CLIENT FAULT",
            (true, true) => "fails on server and client faults",
            (true, false) => "fails on a server fault",
            (false, true) => "fails on a client fault",
            (false, false) if is_undetectable => "not visible on the wire",
            (false, false) => "",
        };
        writeln!(text, "{:8} {:40} {:12} scenarios: {scenarios:3}  {kill}", r.level, r.id, state)?;
    }
    writeln!(
        text,
        "\n{:8} {:16} {:>6} {:>6} {:>9} {:>7} {:>7} {:>9}",
        "level", "binds", "total", "cited", "executed", "passed", "killed", "excluded"
    )?;
    for ((level, party), [total, cited, executed, passed, killed, excluded]) in sums {
        writeln!(
            text,
            "{level:8} {party:16} {total:>6} {cited:>6} {executed:>9} {passed:>7} {killed:>7} {excluded:>9}"
        )?;
    }
    writeln!(text, "\ninput space: {} (see --inputs)", count(open, "unexplained empty cell"))?;
    print(&text)?;
    Ok(u8::from(args.check && (is_uncovered || open > 0)))
}
