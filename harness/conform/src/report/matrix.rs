//! Several runs side by side: the standing of each requirement per implementation, as pages, JSON, Markdown and badges.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::history::VersionHistory;
use super::html::{self, requirement_place};
use super::run::{NamedRun, Run};
use super::standing::{RequirementStatus, Status, in_order, requirement_standings};
use super::{markdown, page, tally, text};
use pmi_judge::builtin_requirements;
use pmi_judge::verdict::Verdict;
use pmi_judge::{PartyKind, Severity};
use pmi_record::interop;
use pmi_scenario::requirement::{Catalogue, Level};
use pmi_scenario::suite::embedded_catalogue;

/// Names of the files that are written. `RUNS` is the folder with a page for each run.
const INDEX: &str = "index.html";
const JSON: &str = "matrix.json";
const MARKDOWN: &str = "RESULTS.md";
const RUNS: &str = "runs";
const BADGES: &str = "badges";

#[derive(Serialize)]
struct MatrixPages {
    version: &'static str,
    tables: Vec<Table>,
    interop: Vec<InteropTable>,
    kinds: [OutcomeKind; 9],
}

/// Additional contents of the pages.
#[derive(Debug, Default)]
pub(crate) struct ExtraPages {
    pub(crate) interop: Vec<interop::InteropMatrix>,
    /// True if runs with the same title belong to consecutive versions of the same implementation, the oldest first.
    pub(crate) history: bool,
}

#[derive(Serialize)]
struct InteropTable {
    managers: Vec<String>,
    programs: Vec<ProgramColumn>,
}

#[derive(Serialize)]
struct ProgramColumn {
    name: String,
    cells: Vec<ProgramResult>,
}

#[derive(Serialize)]
struct ProgramResult {
    standing: Status,
    /// The broken requirements and the party that broke them, in a few words.
    says: String,
    versions: String,
    /// The requirements that were broken, or the reason why the result could not be judged.
    reason: String,
}

#[derive(Serialize)]
struct OutcomeKind {
    kind: Status,
    what: &'static str,
}

/// Runs whose requirements can be compared: runs in the same dialect and of the same kind of implementation.
#[derive(Serialize)]
struct Table {
    title: String,
    runs: Vec<Column>,
    requirements: Vec<MatrixRow>,
    /// Changes from run to run, if the runs belong to consecutive versions of the same implementation.
    history: Option<VersionHistory>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    /// Name of the page and badge, without extension.
    file: String,
    version: String,
    dialect: String,
    suite: String,
    /// The meaning of the run's exit status.
    meaning: String,
    complete: bool,
    requirements: BTreeMap<Status, usize>,
    scenarios: Vec<(usize, &'static str)>,
}

#[derive(Serialize)]
struct MatrixRow {
    id: String,
    level: String,
    section: String,
    text: String,
    /// The worst standing in the row, for the page's filter.
    worst: Status,
    /// A cell for each run; `None` if the run played no scenario for the requirement.
    cells: Vec<Option<MatrixCell>>,
}

#[derive(Serialize)]
struct MatrixCell {
    standing: Status,
    label: &'static str,
    /// Number of scenarios that test the requirement.
    scenarios: usize,
    /// Number of scenarios that show this standing.
    shown_by: usize,
    reason: String,
    /// Link to the findings; empty if there are none.
    link: String,
}

/// Writes the pages of these runs into a folder. Returns the names of the written files.
///
/// # Errors
///
/// Returns an error if the folder cannot be written.
pub(crate) fn write_matrix(
    entries: &[NamedRun],
    extra: &ExtraPages,
    folder: &Path,
) -> io::Result<Vec<String>> {
    let catalogue = &embedded_catalogue().map_err(io::Error::other)?;
    for name in [RUNS, BADGES] {
        fs::create_dir_all(folder.join(name))?;
    }
    let entries = &distinct(entries);
    let mut files = HashSet::new();
    let names: Vec<String> = entries.iter().map(|entry| file_name(entry, &mut files)).collect();
    let mut written = vec![INDEX.to_owned(), JSON.to_owned(), MARKDOWN.to_owned()];
    for (entry, name) in entries.iter().zip(&names) {
        let own = format!("{RUNS}/{name}.html");
        fs::write(folder.join(&own), html::page(&entry.run, catalogue)?)?;
        written.push(own);
    }
    let matrix = MatrixPages {
        version: env!("CARGO_PKG_VERSION"),
        tables: tables(entries, &names, catalogue, extra.history),
        interop: extra.interop.iter().map(meetings).collect(),
        kinds: Status::ALL.map(|kind| OutcomeKind { kind, what: kind.label() }),
    };
    for column in matrix.tables.iter().flat_map(|table| &table.runs) {
        let badge = format!("{BADGES}/{}.svg", column.file);
        fs::write(folder.join(&badge), page::render("badge.svg", Badge::of(column))?)?;
        written.push(badge);
    }
    let json = serde_json::to_string_pretty(&matrix).map_err(io::Error::other)?;
    fs::write(folder.join(JSON), text::safe_json(&json).into_owned() + "\n")?;
    fs::write(folder.join(MARKDOWN), in_markdown(&matrix))?;
    fs::write(folder.join(INDEX), page::render("matrix.html", &matrix)?)?;
    Ok(written)
}

/// Makes the names of the entries unique within a table. If a name occurs more than once, the version is appended, or a number if the
/// versions do not differ.
fn distinct(entries: &[NamedRun]) -> Vec<NamedRun> {
    let are_alike =
        |one: &NamedRun, other: &NamedRun| one.name == other.name && title(&one.run) == title(&other.run);
    let with_version = |entry: &NamedRun| {
        let version = entry.run.header.implementation_version.as_ref();
        let twice = entries.iter().filter(|other| are_alike(entry, other)).count() > 1;
        let version = version.filter(|version| twice && !entry.name.contains(version.as_str()));
        let name = version.map_or_else(|| entry.name.clone(), |version| format!("{} {version}", entry.name));
        NamedRun { name, run: entry.run.clone() }
    };
    let mut named: Vec<NamedRun> = Vec::new();
    for entry in entries.iter().map(with_version) {
        let mut name = entry.name.clone();
        let mut number = 2;
        while named.iter().any(|other| other.name == name && title(&other.run) == title(&entry.run)) {
            name = format!("{} ({number})", entry.name);
            number += 1;
        }
        named.push(NamedRun { name, run: entry.run });
    }
    named
}

/// Returns a unique file name that needs no escaping.
fn file_name(entry: &NamedRun, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let name: String =
        format!("{}-{}", entry.name, entry.run.header.dialect).chars().take(80).map(plain).collect();
    let base = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let mut name = base.trim_matches('.').to_owned();
    let mut number = 2;
    while !taken.insert(name.clone()) {
        name = format!("{}-{number}", base.trim_matches('.'));
        number += 1;
    }
    name
}

fn title(run: &Run) -> String {
    let who = match run.header.under_test {
        Some(PartyKind::Server) => "Process managers",
        Some(PartyKind::Client) => "Programs",
        Some(PartyKind::Library) => "Libraries",
        None => "Recordings",
    };
    format!("{who}, {}", text::clean(&run.header.dialect))
}

/// Returns the reason for a requirement's standing, or an empty string if the requirement passes.
fn reason<'a>(id: &str, entry: &RequirementStatus<'a>) -> &'a str {
    let seen = || {
        let findings =
            entry.scenarios.iter().flat_map(|result| &result.findings).map(|judged| &judged.finding);
        findings.into_iter().find(|finding| finding.requirement == id).map(|finding| finding.seen.as_str())
    };
    match entry.standing {
        Status::Passes => "",
        Status::NotReached => "the scenarios that test it ended before they reached it",
        _ => entry.reason.or_else(seen).unwrap_or_default(),
    }
}

/// Returns the interoperability table, with the results of each program under each process manager.
fn meetings(matrix: &interop::InteropMatrix) -> InteropTable {
    let meeting = |cell: &interop::InteropResult| {
        let broken = cell.findings.iter().filter(|judged| judged.severity == Severity::Fail);
        let broken: Vec<String> = broken
            .map(|judged| {
                let who = if judged.finding.party == PartyKind::Server { "manager" } else { "program" };
                format!("the {who}: {}", judged.finding.requirement)
            })
            .collect();
        let reason = cell.reason.clone().unwrap_or_else(|| broken.join(", "));
        ProgramResult {
            standing: match cell.verdict {
                Verdict::Unjudged => Status::NotJudged,
                _ if cell.is_success() => Status::Passes,
                _ => Status::Fails,
            },
            says: text::clean(&cell.text()),
            versions: text::clean(&cell.versions.join(", ")),
            reason: text::clip(&text::clean(&reason), 300),
        }
    };
    let width = matrix.managers.len().max(1);
    let programs = matrix.cells.chunks(width).filter_map(|row| {
        let name = text::clean(&row.first()?.program);
        Some(ProgramColumn { name, cells: row.iter().map(meeting).collect() })
    });
    InteropTable {
        managers: matrix.managers.iter().map(|name| text::clean(name)).collect(),
        programs: programs.collect(),
    }
}

fn tables(entries: &[NamedRun], names: &[String], catalogue: &Catalogue, history: bool) -> Vec<Table> {
    let mut titles: Vec<String> = Vec::new();
    for entry in entries {
        let title = title(&entry.run);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let of = |title: String| {
        let these: Vec<(&NamedRun, &String)> =
            entries.iter().zip(names).filter(|(entry, _)| self::title(&entry.run) == title).collect();
        let standings: Vec<BTreeMap<&str, RequirementStatus<'_>>> = these
            .iter()
            .map(|(entry, _)| requirement_standings(&entry.run.results, entry.run.header.strict))
            .collect();
        let column =
            |((entry, file), stands): (&(&NamedRun, &String), &BTreeMap<&str, RequirementStatus<'_>>)| {
                let header = &entry.run.header;
                let mut requirements = BTreeMap::new();
                for one in stands.values() {
                    *requirements.entry(one.standing).or_default() += 1;
                }
                Column {
                    name: text::clean(&entry.name),
                    file: (*file).clone(),
                    version: text::clean(header.implementation_version.as_deref().unwrap_or_default()),
                    dialect: text::clean(&header.dialect),
                    suite: text::clean(&header.version),
                    meaning: tally::meaning(&entry.run),
                    complete: entry.run.unfinished() == 0,
                    requirements,
                    scenarios: tally::counts(&entry.run.results, entry.run.header.strict),
                }
            };
        let runs: Vec<Column> = these.iter().zip(&standings).map(column).collect();
        let all: BTreeSet<&str> = standings.iter().flat_map(|stands| stands.keys().copied()).collect();
        let row = |id: &str| {
            let requirement = catalogue.get(id);
            let cell =
                |(stands, (_, file)): (&BTreeMap<&str, RequirementStatus<'_>>, &(&NamedRun, &String))| {
                    let one = stands.get(id)?;
                    let found = one.standing <= Status::Noted;
                    Some(MatrixCell {
                        standing: one.standing,
                        label: one.standing.label(),
                        scenarios: one.scenarios.len(),
                        shown_by: one.shown_by,
                        reason: text::clip(&text::clean(reason(id, one)), 300),
                        link: if found {
                            format!("{RUNS}/{file}.html#{}", requirement_place(id))
                        } else {
                            String::new()
                        },
                    })
                };
            let cells: Vec<Option<MatrixCell>> = standings.iter().zip(&these).map(cell).collect();
            let own = || builtin_requirements::text(id).map(str::to_owned);
            MatrixRow {
                id: text::clip(&text::clean(id), 200),
                level: requirement.map(|r| r.level.to_string()).unwrap_or_default(),
                section: requirement.map(|r| r.section.clone()).unwrap_or_default(),
                text: requirement.map(|r| r.text.clone()).or_else(own).unwrap_or_default(),
                worst: cells.iter().flatten().map(|c| c.standing).min().unwrap_or(Status::NotOffered),
                cells,
            }
        };
        let versions: Vec<NamedRun> = these
            .iter()
            .filter(|_| history && these.len() > 1)
            .map(|(entry, _)| NamedRun { name: entry.name.clone(), run: entry.run.clone() })
            .collect();
        Table {
            title,
            history: (!versions.is_empty()).then(|| VersionHistory::of(&versions)),
            runs,
            requirements: in_order(all.into_iter(), catalogue).into_iter().map(row).collect(),
        }
    };
    titles.into_iter().map(of).collect()
}

fn in_markdown(matrix: &MatrixPages) -> String {
    let mut out = format!(
        "# Results by implementation\n\n\
         Made by `pmi-conform report matrix`, with the suite of pmi-conform {}. A requirement passes if a scenario that tests it was played to its end and no finding cites the requirement. Deviations are those that the run's deviations file records.\n",
        matrix.version
    );
    for table in &matrix.tables {
        // Most runs do not repeat scenarios, so they find nothing flaky. If no run finds anything flaky, the column is omitted.
        let occurs = |kind: &Status| {
            *kind != Status::Flaky || table.runs.iter().any(|run| run.requirements.contains_key(kind))
        };
        let kinds: Vec<Status> = Status::ALL.into_iter().filter(occurs).collect();
        let heads = kinds.iter().map(|kind| kind.label()).collect::<Vec<_>>().join(" | ");
        let rule = "---:|".repeat(kinds.len());
        let title = markdown::cell(&table.title);
        let _ = writeln!(out, "\n## {title}\n\n| | {heads} | scenarios |\n|---|{rule}---|");
        for run in &table.runs {
            let _ = write!(out, "| {} |", markdown::cell(&run.name));
            for status in &kinds {
                let _ = write!(out, " {} |", run.requirements.get(status).copied().unwrap_or(0));
            }
            let _ = writeln!(out, " {} |", tally::format_counts(&run.scenarios));
        }
        let must = Level::Must.to_string();
        let shown = |cell: &Option<MatrixCell>| match cell.as_ref().map(|cell| cell.standing) {
            Some(Status::Fails | Status::Warns) => "**broken**",
            Some(Status::Flaky) => "flaky",
            Some(Status::Deviates) => "deviates",
            _ => "",
        };
        let is_broken = |row: &&MatrixRow| row.cells.iter().any(|cell| !shown(cell).is_empty());
        let mut broken = table.requirements.iter().filter(is_broken).peekable();
        if broken.peek().is_none() {
            out.push_str("\nNo requirement is broken.\n");
            continue;
        }
        let names: Vec<String> = table.runs.iter().map(|run| markdown::cell(&run.name)).collect();
        let rule = "---|".repeat(names.len());
        let _ = writeln!(
            out,
            "\nThese are the requirements that at least one implementation breaks. A cell contains **broken** for a new finding, and \"deviates\" for a recorded deviation.\n\n\
             | Requirement | Level | {} |\n|---|---|{rule}",
            names.join(" | ")
        );
        for row in broken {
            let level = if row.level.is_empty() { &must } else { &row.level };
            let cells: Vec<&str> = row.cells.iter().map(shown).collect();
            let _ = writeln!(out, "| {} | {level} | {} |", markdown::cell(&row.id), cells.join(" | "));
        }
    }
    for interop in &matrix.interop {
        let heads: Vec<String> = interop.managers.iter().map(|name| markdown::cell(name)).collect();
        let rule = "---|".repeat(heads.len());
        let _ = writeln!(
            out,
            "\n## Programs under process managers\n\nThe result of each job, the party that broke a MUST, and the negotiated versions.\n\n\
             | | {} |\n|---|{rule}",
            heads.join(" | ")
        );
        for program in &interop.programs {
            let cell = |meeting: &ProgramResult| {
                let versions = if meeting.versions.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", meeting.versions)
                };
                markdown::cell(&format!("{}{versions}", meeting.says))
            };
            let cells: Vec<String> = program.cells.iter().map(cell).collect();
            let _ = writeln!(out, "| {} | {} |", markdown::cell(&program.name), cells.join(" | "));
        }
    }
    out
}

/// A badge for a README, with the result of a run in a few words.
#[derive(Serialize)]
struct Badge {
    what: String,
    says: String,
    color: &'static str,
    width: usize,
    left: usize,
}

impl Badge {
    fn of(column: &Column) -> Self {
        let of = |status| column.requirements.get(&status).copied().unwrap_or(0);
        let (says, color) = match (of(Status::Fails), of(Status::Deviates), of(Status::Passes)) {
            _ if !column.complete => ("cut short".to_owned(), "#59606d"),
            (0, 0, 0) => ("nothing judged".to_owned(), "#59606d"),
            (0, 0, _) => ("conforms".to_owned(), "#1d6b34"),
            (0, known, _) => (format!("{} as recorded", text::count(known, "deviation")), "#7a3e9d"),
            (broken, ..) => (format!("{} broken", text::count(broken, "requirement")), "#b3201b"),
        };
        let what = text::clip(&column.dialect, 30);
        let wide = |text: &str| 7 * text.chars().count() + 12;
        let left = wide(&what);
        Self { width: left + wide(&says), left, what, says, color }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use pmi_judge::verdict::{Attempts, RepeatedFinding, ScenarioResult};

    fn result(scenario: &str, verdict: Verdict, requires: &str) -> ScenarioResult {
        ScenarioResult { requires: vec![requires.to_owned()], ..tests::result(scenario, verdict) }
    }

    fn entry(name: &str, results: Vec<ScenarioResult>) -> NamedRun {
        let mut run = tests::run();
        run.header.selected = results.len();
        run.header.implementation = Some(name.to_owned());
        run.header.under_test = Some(PartyKind::Server);
        NamedRun { name: name.to_owned(), run: Run { results, ..run } }
    }

    fn entries() -> Vec<NamedRun> {
        let mut broken = result("get/value", Verdict::Fail, "rfc13.get.value");
        broken.findings = vec![tests::judged("rfc13.get.value", Severity::Fail, "this", "that")];
        let mut known = broken.clone();
        known.findings[0].deviation = Some("issue 12 <script>".to_owned());
        let mut lacks = result("spawn/one", Verdict::NotApplicable, "rfc13.spawn.command");
        lacks.reason = Some("it lacks spawn".to_owned());
        let mut early = result("kvs/a", Verdict::Crashed, "rfc13.put.unique");
        early.findings = vec![tests::judged("iut.no-crash", Severity::Fail, "lives", "died of signal 11")];
        let passed = |name, id| result(name, Verdict::Pass, id);
        vec![
            entry("One | <b>1.0", vec![broken, passed("get/again", "rfc13.get.value"), lacks, early]),
            entry(
                "One | <b>1.0",
                vec![known, passed("spawn/one", "rfc13.spawn.command"), passed("kvs/a", "rfc13.put.unique")],
            ),
        ]
    }

    #[test]
    fn deviation_takes_precedence_over_a_note() {
        let mut known = result("get/value", Verdict::Fail, "rfc13.get.value");
        known.findings = vec![tests::judged("rfc13.get.value", Severity::Fail, "this", "that")];
        known.findings[0].deviation = Some("issue 12".to_owned());
        let mut noted = result("get/again", Verdict::Note, "rfc13.get.value");
        noted.findings = vec![tests::judged("rfc13.get.value", Severity::Note, "this", "that")];
        let results = [known, noted];
        let standings = requirement_standings(&results, tests::run().header.strict);
        assert_eq!(standings["rfc13.get.value"].standing, Status::Deviates);
    }

    #[test]
    fn matrix_shows_interop_results_and_version_changes() {
        let folder = tempfile::TempDir::new().unwrap();
        let finding = tests::judged("rfc13.get.value", Severity::Fail, "this", "<that>");
        let met = serde_json::json!({
            "programs": ["./a<b>"], "managers": ["mpiexec", "srun"], "interrupted": false,
            "cells": [
                { "program": "./a<b>", "manager": "mpiexec", "exit": { "code": 0 }, "verdict": "fail", "versions": ["1.1"],
                  "findings": [finding], "by_manager": 1, "by_program": 0 },
                { "program": "./a<b>", "manager": "srun", "exit": { "code": 0 }, "verdict": "pass", "versions": ["2.0"],
                  "findings": [], "by_manager": 0, "by_program": 0 },
            ],
        });
        let interop = vec![serde_json::from_value(met).unwrap()];
        let mut entries = entries();
        // Give each result 25 attempts, because a single attempt per version would not exclude chance.
        for result in entries.iter_mut().flat_map(|entry| &mut entry.run.results) {
            let found = result
                .findings
                .iter()
                .map(|j| RepeatedFinding { times: 25, absent: false, finding: j.clone() })
                .collect();
            result.attempts = Some(Attempts { played: 25, red: 0, found });
        }
        write_matrix(&entries, &ExtraPages { interop, history: true }, folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let (index, json) = (read(INDEX), read(JSON));
        for words in [
            "manager breaks 1 MUST",
            "PMI 1.1",
            "PMI 2.0",
            "rfc13.get.value",
            "./a&lt;b&gt;",
            "From version to version",
        ] {
            assert!(index.contains(&words.replace('/', "&#x2f;")) || index.contains(words), "{words}");
        }
        assert!(!index.contains("a<b>"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["interop"][0]["programs"][0]["cells"][0]["standing"], "fails");
        assert_eq!(json["interop"][0]["programs"][0]["cells"][1]["standing"], "passes");
        // The scenario crashes in the first run and passes in the second.
        let turns = json["tables"][0]["history"]["turns"].as_array().unwrap();
        let turn = |turn: &serde_json::Value| (turn["becomes"].clone(), turn["requirement"].clone());
        assert_eq!(turns.iter().map(turn).collect::<Vec<_>>(), [("fixed".into(), "iut.no-crash".into())]);
        assert!(
            read(MARKDOWN).contains("| ./a&lt;b&gt; | manager breaks 1 MUST (1.1) | ok (2.0) |"),
            "{}",
            read(MARKDOWN)
        );
    }

    #[test]
    fn flaky_result_does_not_mark_requirement_as_broken() {
        let mut flaky = result("get/value", Verdict::Flaky, "rfc13.get.value");
        flaky.findings = vec![tests::judged("rfc13.get.value", Severity::Fail, "this", "that")];
        let folder = tempfile::TempDir::new().unwrap();
        write_matrix(&[entry("One", vec![flaky])], &ExtraPages::default(), folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&read(JSON)).unwrap();
        assert_eq!(json["tables"][0]["requirements"][0]["cells"][0]["standing"], "flaky");
        assert!(read(MARKDOWN).contains("| rfc13.get.value | MUST | flaky |"), "{}", read(MARKDOWN));
    }

    #[test]
    fn each_matrix_cell_states_its_result_in_words() {
        let folder = tempfile::TempDir::new().unwrap();
        let written = write_matrix(&entries(), &ExtraPages::default(), folder.path()).unwrap();
        for file in &written {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
        assert!(written.contains(&"runs/one-b-1.0-2-pmi-1.1.html".to_owned()), "{written:?}");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        insta::assert_snapshot!("matrix_markdown", read(MARKDOWN));
        let index = read(INDEX);
        for words in [
            "fails",
            "deviates as recorded",
            "not offered",
            "not reached",
            "passes",
            "it lacks spawn",
            "issue 12",
        ] {
            assert!(index.contains(words), "{words}");
        }
        assert!(!index.contains("issue 12 <script>") && !index.contains("<b>1.0"));
        // A red cell contains a word and a link to the findings.
        let id = "runs&#x2f;one-b-1.0-pmi-1.1.html#requirement:rfc13.get.value";
        assert!(index.contains(id), "{index}");
        assert!(read("runs/one-b-1.0-pmi-1.1.html").contains("id=\"requirement:rfc13.get.value\""));
        let json: serde_json::Value = serde_json::from_str(&read(JSON)).unwrap();
        let rows = json["tables"][0]["requirements"].as_array().unwrap();
        let row = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["cells"].clone();
        assert_eq!(row("rfc13.get.value")[0]["standing"], "fails");
        assert_eq!(
            (&row("rfc13.get.value")[0]["shown_by"], &row("rfc13.get.value")[0]["scenarios"]),
            (&1.into(), &2.into())
        );
        assert!(index.contains("in 1 of 2 scenarios"));
        assert_eq!(row("rfc13.get.value")[1]["standing"], "deviates");
        // The reason for a standing is never omitted, and runs with the same name are distinguishable.
        assert_eq!(row("rfc13.get.value")[0]["reason"], "that");
        assert_eq!(
            row("rfc13.put.unique")[0]["reason"],
            "the scenarios that test it ended before they reached it"
        );
        assert_eq!(json["tables"][0]["runs"][1]["name"], "One | <b>1.0 (2)");
        assert_eq!(row("rfc13.spawn.command")[0]["standing"], "not-offered");
        assert_eq!(row("rfc13.put.unique")[0]["standing"], "not-reached");
        assert!(row("iut.no-crash")[1].is_null());
        assert!(read("badges/one-b-1.0-pmi-1.1.svg").contains("2 requirements broken"));
        assert!(read("badges/one-b-1.0-2-pmi-1.1.svg").contains("1 deviation as recorded"));
    }
}
