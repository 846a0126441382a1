//! An HTML page that shows a run. The file is self-contained: it loads no external resources.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use serde::Serialize;

use super::block::{self, TextPiece, consequences, differences, party_and_process, place};
use super::chart::{Chart, Drawing};
use super::run::{RELAYED_NOTE, Run, protocol};
use super::standing::{Status, in_order, requirement_standings};
use super::{page, python, tally, text};
use pmi_faults::faults;
use pmi_judge::Severity;
use pmi_judge::builtin_requirements;
use pmi_judge::cause::{CommonCause, causes};
use pmi_judge::deviations::recorded_deviations;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};
use pmi_scenario::ast::Dialect;
use pmi_scenario::requirement::{Catalogue, Requirement, RequirementSet};
use pmi_scenario::suite::embedded_catalogue;

/// Maximum length of a finding's `expected` or `seen` field, in characters.
const MAX_TEXT_LENGTH: usize = 600;
/// Maximum length of other untrusted text, in characters.
const MAX_WORDS_LENGTH: usize = 300;
/// Maximum number of lines to show from the implementation's output.
const MAX_OUTPUT_LINES: usize = 40;
/// Maximum number of causes in the index, so that the index fits on a screen.
const MAX_INDEXED_CAUSES: usize = 20;
/// Maximum number of scenarios that are listed for a cause.
const MAX_OTHER_SCENARIOS: usize = 50;
const MAX_ROWS: usize = 5000;
/// Approximate maximum size of all findings, in bytes. With this limit, a page and its tables stay below five million bytes.
const MAX_FINDINGS_BYTES: usize = 3_500_000;
/// Approximate size of a finding without its text, in bytes.
const FINDING_BYTES: usize = 1800;
/// Approximate size of a chart's row without its text, in bytes.
const CHART_ROW_BYTES: usize = 330;

const RFC13: &str = "https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_13.html";

#[derive(Serialize)]
struct RunPage {
    title: String,
    version: String,
    subject: String,
    color: &'static str,
    meaning: String,
    /// For each verdict: the number of scenarios, the label of the verdict, and its kind.
    counts: Vec<(usize, &'static str, &'static str)>,
    complaints: Vec<NameAndText>,
    facts: Vec<RunFact>,
    /// The kinds of results for the page's filter, and their labels.
    kinds: [(&'static str, &'static str); 7],
    index: Vec<Indexed>,
    index_left_out: String,
    groups: Vec<RequirementGroup>,
    causes_left_out: String,
    requirements: Vec<ResultRow>,
    requirements_left_out: String,
    /// The reasons why scenarios were not played, each with the number of scenarios.
    reasons: Vec<(String, usize)>,
    scenarios: Vec<ScenarioEntry>,
    scenarios_left_out: String,
}

/// A name and its description.
type NameAndText = (String, String);

/// A name, its value, and whether the value is code.
type RunFact = (&'static str, String, bool);

#[derive(Serialize)]
struct PageLink {
    name: String,
    anchor: String,
}

/// The kinds of results for the page's filter, and their labels.
const KINDS: [(&str, &str); 7] = [
    ("fail", "failures"),
    ("unjudged", "could not judge"),
    ("warn", "broken SHOULDs"),
    ("note", "notes"),
    ("known", "recorded deviations"),
    ("pass", "passed"),
    ("na", "not played"),
];

#[derive(Serialize)]
struct Indexed {
    anchor: String,
    kind: &'static str,
    label: &'static str,
    name: String,
    scenarios: String,
}

/// The findings about one requirement.
#[derive(Serialize)]
struct RequirementGroup {
    anchor: String,
    id: String,
    kind: &'static str,
    label: &'static str,
    level: String,
    section: String,
    link: String,
    text: String,
    reading: String,
    others: Vec<NameAndText>,
    faults: Vec<NameAndText>,
    causes: Vec<CauseSummary>,
}

/// A cause, with the first scenario that shows it.
#[derive(Serialize)]
struct CauseSummary {
    anchor: String,
    kind: &'static str,
    label: &'static str,
    scenario: String,
    summary: String,
    expected: Vec<TextPiece>,
    seen: Vec<TextPiece>,
    place: String,
    step: String,
    who: String,
    known: String,
    valid_input: bool,
    consequences: Vec<String>,
    /// The steps of the scenario that were not judged.
    unreached: Vec<String>,
    exit: String,
    replay: String,
    chance: String,
    more: usize,
    also: Vec<PageLink>,
    chart: Option<Drawing>,
    chart_left_out: &'static str,
    /// A chart of all events, if the log is available and contains more events than the result.
    whole: Option<Drawing>,
    output: Vec<String>,
    /// A program that reproduces the finding without pmi-conform.
    reproducer: String,
    /// The reason why `reproducer` is missing.
    no_reproducer: String,
}

#[derive(Serialize)]
struct ResultRow {
    id: String,
    anchor: Option<String>,
    kind: &'static str,
    label: &'static str,
    level: String,
    section: String,
    text: String,
    reason: String,
    scenarios: usize,
}

#[derive(Serialize)]
struct ScenarioEntry {
    anchor: String,
    name: String,
    kind: &'static str,
    label: &'static str,
    time: String,
    findings: Vec<PageLink>,
    reason: String,
}

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let catalogue = embedded_catalogue().map_err(io::Error::other)?;
    out.write_all(page(run, &catalogue)?.as_bytes())
}

/// Returns the page of a run. `catalogue` contains the requirements and their wording.
///
/// # Errors
///
/// Returns an error if the template does not match its data; see [`page::render`].
pub(super) fn page(run: &Run, catalogue: &Catalogue) -> io::Result<String> {
    page::render("run.html", of_run(run, catalogue))
}

fn of_run(run: &Run, catalogue: &Catalogue) -> RunPage {
    let strict = run.header.strict;
    let mut anchors = Anchors::default();
    let scenario_anchors: HashMap<&str, String> =
        run.results.iter().map(|r| (r.scenario.as_str(), anchors.add("scenario", &r.scenario))).collect();
    let (groups, left_out, cause_anchors) = groups(run, catalogue, &mut anchors, &scenario_anchors);
    let causes = tally::groups(&run.results, run.header.strict);
    let indexed = |group: tally::RequirementTally<'_>| {
        let place = (group.first.0.scenario.as_str(), group.requirement);
        Indexed {
            anchor: cause_anchors.get(&place).cloned().unwrap_or_default(),
            kind: kind_of_severity(group.shown(strict)),
            label: group.label_for(strict),
            name: text::clip_middle(&group.name(), MAX_WORDS_LENGTH),
            scenarios: text::count(group.scenarios.len(), "scenario"),
        }
    };
    let standings = requirement_standings(&run.results, strict);
    let group_anchors: HashMap<&str, &str> =
        groups.iter().map(|group| (group.id.as_str(), group.anchor.as_str())).collect();
    let row = |id: &str| {
        let entry = &standings[id];
        let requirement = catalogue.get(id);
        let id = words(id);
        ResultRow {
            anchor: group_anchors.get(id.as_str()).map(|anchor| (*anchor).to_owned()),
            kind: kind_of_standing(entry.standing),
            label: entry.standing.label(),
            level: requirement.map(|r| r.level.to_string()).unwrap_or_default(),
            section: requirement.map(|r| r.section.clone()).unwrap_or_default(),
            text: requirement.map_or_else(
                || builtin_requirements::text(&id).unwrap_or_default().to_owned(),
                |r| r.text.clone(),
            ),
            reason: words(entry.reason.unwrap_or_default()),
            scenarios: entry.scenarios.len(),
            id,
        }
    };
    let requirements =
        in_order(standings.keys().copied(), catalogue).into_iter().take(MAX_ROWS).map(row).collect();
    let scenario = |result: &ScenarioResult| {
        let mut ids = HashSet::new();
        let found = result.findings.iter().filter(|j| ids.insert(j.finding.requirement.as_str()));
        let found = found.take(block::MAX_FINDINGS).map(|judged| {
            let id = judged.finding.requirement.as_str();
            let anchor = cause_anchors.get(&(result.scenario.as_str(), id));
            PageLink { name: words(id), anchor: anchor.cloned().unwrap_or_default() }
        });
        ScenarioEntry {
            anchor: scenario_anchors[result.scenario.as_str()].clone(),
            name: words(&result.scenario),
            kind: kind_of_result(result, strict),
            label: tally::label(result, strict),
            time: text::time(result.time_us),
            findings: found.collect(),
            reason: words(result.reason.as_deref().unwrap_or_default()),
        }
    };
    let more = |all: usize| match all.checked_sub(MAX_ROWS) {
        Some(more @ 1..) => format!("{more} more are in the log."),
        _ => String::new(),
    };
    let green = run.end.as_ref().is_some_and(|end| end.exit_code == 0) && run.unfinished() == 0;
    let subject = run.header.implementation.as_deref().unwrap_or(&run.header.server);
    RunPage {
        title: format!("{}: conformance to PMI", words(subject)),
        version: words(&run.header.version),
        subject: words(subject),
        color: if green { "green" } else { "red" },
        meaning: tally::meaning(run) + tally::by_strictness(strict),
        counts: counts(&run.results, strict),
        complaints: run
            .problems()
            .iter()
            .take(MAX_OTHER_SCENARIOS)
            .map(|c| (c.name.clone(), text::clip(&c.text, MAX_TEXT_LENGTH)))
            .collect(),
        facts: facts(run),
        kinds: KINDS,
        index_left_out: match causes.len().checked_sub(MAX_INDEXED_CAUSES) {
            Some(more @ 1..) => format!("and {} below", text::count(more, "more cause")),
            _ => String::new(),
        },
        index: causes.into_iter().take(MAX_INDEXED_CAUSES).map(indexed).collect(),
        groups,
        causes_left_out: match left_out {
            0 => String::new(),
            more => format!(
                "{} left out to keep the page small; they are in the log",
                text::count(more, "more finding")
            ),
        },
        requirements,
        requirements_left_out: more(standings.len()),
        reasons: tally::not_played(&run.results)
            .into_iter()
            .take(MAX_OTHER_SCENARIOS)
            .map(|(what, number)| (words(what), number))
            .collect(),
        scenarios: run.results.iter().take(MAX_ROWS).map(scenario).collect(),
        scenarios_left_out: more(run.results.len()),
    }
}

/// Returns untrusted text as one line of limited length.
fn words(foreign: &str) -> String {
    text::clip(&text::clean(foreign), MAX_WORDS_LENGTH)
}

/// Returns the number of scenarios for each verdict, with the verdict's label and kind.
fn counts(results: &[ScenarioResult], strict: Strictness) -> Vec<(usize, &'static str, &'static str)> {
    let kind = |what: &str| match what {
        "passed" => "pass",
        what if what.starts_with("failed") => "fail",
        "crashed" | "hung" => "fail",
        "warned (SHOULD)" | "flaky" => "warn",
        "noted" => "note",
        "known" => "known",
        "not applicable" => "na",
        _ => "unjudged",
    };
    let counts = tally::counts(results, strict).into_iter();
    counts.map(|(number, what)| (number, what, kind(what))).collect()
}

/// Lists the negotiated versions and the number of scenarios for each.
fn negotiated_versions(results: &[ScenarioResult]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for version in results.iter().flat_map(|result| &result.negotiated) {
        *numbers.entry(version).or_default() += 1;
    }
    // The report shows only the most frequent versions, because each scenario with an unusual offer may add another version.
    let mut all: Vec<(&str, usize)> = numbers.into_iter().collect();
    all.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let versions = all
        .iter()
        .take(4)
        .map(|(version, n)| format!("{} in {}", words(version), text::count(*n, "scenario")));
    versions.collect::<Vec<_>>().join(", ")
}

fn facts(run: &Run) -> Vec<RunFact> {
    let header = &run.header;
    let mut sets = "RFC 13, and behaviour that implementations share beyond it".to_owned();
    if header.speaks(Dialect::Pmi2) {
        sets = sets.replace("RFC 13", "RFC 13 and the common behaviour of PMI-2 servers");
    }
    if !header.against.is_empty() {
        sets += &format!(", also judged by {}", words(&header.against.join(", ")));
    }
    let red = match header.strict {
        Strictness::Must => "a broken MUST or SHALL",
        Strictness::Should => "a broken MUST, SHALL or SHOULD",
        Strictness::DeFacto => "a broken MUST, SHALL, SHOULD or de facto requirement",
    };
    let time = run.end.as_ref().map(|end| text::time(end.time_us)).unwrap_or_default();
    let all = [
        ("started as", words(&header.server), true),
        ("its version", words(header.implementation_version.as_deref().unwrap_or_default()), false),
        ("protocol", protocol(header), false),
        ("not judged", if header.relayed { RELAYED_NOTE.to_owned() } else { String::new() }, false),
        ("agreed on", negotiated_versions(&run.results), false),
        ("requirements", sets, false),
        (
            "suite",
            format!("pmi-conform {}, {}", words(&header.version), text::count(header.selected, "scenario")),
            false,
        ),
        ("counts as red", red.to_owned(), false),
        ("time", time, false),
        ("run it again", text::clip(&text::clean(&header.command), 4 * MAX_WORDS_LENGTH), true),
    ];
    all.into_iter().filter(|(_, value, _)| !value.is_empty()).collect()
}

fn kind_of_result(result: &ScenarioResult, strict: Strictness) -> &'static str {
    match tally::verdict(result, strict) {
        _ if result.is_known() => "known",
        Verdict::Pass => "pass",
        Verdict::Note => "note",
        Verdict::Warn | Verdict::Flaky => "warn",
        Verdict::Fail | Verdict::Crashed | Verdict::Hung => "fail",
        Verdict::NotApplicable => "na",
        Verdict::Unjudged => "unjudged",
    }
}

fn kind_of_standing(status: Status) -> &'static str {
    match status {
        Status::Fails => "fail",
        Status::Warns | Status::Flaky => "warn",
        Status::Noted => "note",
        Status::Deviates => "known",
        Status::Passes => "pass",
        Status::NotJudged => "unjudged",
        Status::NotReached | Status::NotOffered => "na",
    }
}

fn kind_of_cause(cause: &CommonCause<'_>, strict: Strictness) -> (&'static str, &'static str) {
    if cause.deviation.is_some() {
        ("known", "known")
    } else {
        let judged = cause.findings[0].1;
        let severity = tally::shown(judged, cause.is_flaky(), strict);
        (kind_of_severity(severity), tally::finding_label(judged, cause.is_flaky(), strict))
    }
}

fn kind_of_severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Fail => "fail",
        Severity::Warn => "warn",
        Severity::Note => "note",
    }
}

/// A generator of unique anchors for the page. The anchors contain only characters that need no escaping in URLs.
#[derive(Default)]
struct Anchors {
    taken: HashSet<String>,
}

/// Returns the anchor of a requirement on the page of a run.
pub(super) fn requirement_place(id: &str) -> String {
    Anchors::default().add("requirement", id)
}

impl Anchors {
    fn add(&mut self, what: &str, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-') { c } else { '-' };
        let name: String = name.chars().take(100).map(plain).collect();
        let base = format!("{what}:{name}");
        let mut anchor = base.clone();
        let mut number = 2;
        while !self.taken.insert(anchor.clone()) {
            anchor = format!("{base}:{number}");
            number += 1;
        }
        anchor
    }
}

/// The anchor of each cause, by scenario and requirement.
type Places<'a> = HashMap<(&'a str, &'a str), String>;

/// Returns the findings grouped by requirement, the number of causes that were left out to keep the page small, and the anchor of each
/// cause.
fn groups<'a>(
    run: &'a Run,
    catalogue: &Catalogue,
    anchors: &mut Anchors,
    scenarios: &HashMap<&str, String>,
) -> (Vec<RequirementGroup>, usize, Places<'a>) {
    let mut groups: Vec<RequirementGroup> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut places = Places::new();
    let (mut room, mut left_out) = (MAX_FINDINGS_BYTES, 0);
    let mut drawn = HashSet::new();
    for cause in causes(&run.results) {
        let Some(&(result, judged)) = cause.findings.first() else { continue };
        let mut shown = shown(&cause, result, judged, scenarios, run.header.strict);
        let size = FINDING_BYTES
            + [&shown.summary, &shown.replay, &shown.step, &shown.known]
                .map(String::len)
                .iter()
                .sum::<usize>()
            + shown.expected.iter().chain(&shown.seen).map(|piece| piece.text.len() + 11).sum::<usize>()
            + shown.also.iter().map(|link| link.name.len() + link.anchor.len() + 24).sum::<usize>()
            + shown.output.iter().map(String::len).sum::<usize>();
        if size > room {
            left_out += 1;
            continue;
        }
        room -= size;
        shown.anchor = anchors.add("finding", &format!("{}:{}", result.scenario, cause.requirement));
        let chart = Chart::of_result(result);
        if !chart.is_empty() && !drawn.insert(result.scenario.as_str()) {
            shown.chart_left_out = "The chart is shown with a different finding of this scenario.";
        } else if !chart.is_empty() {
            let size = chart.size(CHART_ROW_BYTES);
            if size > room {
                shown.chart_left_out = "The chart is left out to keep the page small; pmi-conform report LOG --format sequence prints it.";
            } else {
                room -= size;
                shown.chart = Some(Drawing::of(&chart));
                shown.whole = whole(run, result, &chart, &mut room);
            }
        }
        if shown.kind == "fail" && run.events.contains_key(&result.scenario) {
            match python::script(run, result, judged) {
                Ok(program) if program.text.len() < room / 4 => {
                    room -= program.text.len();
                    shown.reproducer = program.text;
                }
                Ok(_) => shown.no_reproducer = "left out to keep the page small".to_owned(),
                Err(why) => shown.no_reproducer = why.to_string(),
            }
        }
        for (other, _) in &cause.findings {
            places.insert((&other.scenario, cause.requirement), shown.anchor.clone());
        }
        let group = *at.entry(cause.requirement).or_insert_with(|| {
            groups.push(group(&cause, judged, catalogue.get(cause.requirement), anchors, run.header.strict));
            groups.len() - 1
        });
        groups[group].causes.push(shown);
    }
    (groups, left_out, places)
}

/// Returns a chart of all events of a scenario. Returns `None` if the chart has no more rows than `last` (the chart of the last events), or
/// takes more than a quarter of `room` (the remaining number of bytes).
fn whole(run: &Run, result: &ScenarioResult, last: &Chart<'_>, room: &mut usize) -> Option<Drawing> {
    let events = run.events.get(&result.scenario)?;
    let left_out = run.left_out.get(&result.scenario).copied().unwrap_or(0);
    let chart = Chart::of_events(events, left_out, result);
    let size = chart.size(CHART_ROW_BYTES);
    // A single chart takes at most a quarter of the remaining room, because later findings need room too.
    if chart.rows() <= last.rows() || size > *room / 4 {
        return None;
    }
    *room -= size;
    Some(Drawing::of(&chart))
}

fn group(
    cause: &CommonCause<'_>,
    judged: &JudgedFinding,
    requirement: Option<&Requirement>,
    anchors: &mut Anchors,
    strict: Strictness,
) -> RequirementGroup {
    let id = cause.requirement;
    let (kind, label) = kind_of_cause(cause, strict);
    let named = |(name, text): NameAndText| (name, text::clip(&text, MAX_WORDS_LENGTH));
    let faults = faults().filter(|fault| fault.breaks.contains(&id));
    RequirementGroup {
        anchor: anchors.add("requirement", id),
        id: words(id),
        kind,
        label,
        level: judged.level.map(|level| level.to_string()).unwrap_or_default(),
        section: requirement.map_or_else(|| "required of every implementation".to_owned(), source),
        link: requirement.map(link).unwrap_or_default(),
        text: words(&judged.text),
        reading: judged.help.clone(),
        others: recorded_deviations(id).into_iter().map(named).collect(),
        faults: faults.map(|fault| (fault.name.to_owned(), fault.description.to_owned())).collect(),
        causes: Vec::new(),
    }
}

/// Returns the name of the section that states a requirement.
fn source(requirement: &Requirement) -> String {
    let of = if RequirementSet::of(&requirement.id).is_rfc13() { "RFC 13, " } else { "" };
    format!("{of}{}", requirement.section)
}

/// Returns the URL of the RFC 13 section that states a requirement, or an empty string if the requirement comes from a different document.
fn link(requirement: &Requirement) -> String {
    if !RequirementSet::of(&requirement.id).is_rfc13() {
        return String::new();
    }
    let heading = requirement.section.rsplit(" / ").next().unwrap_or_default();
    // Two sections have this heading, so the heading does not determine the anchor.
    if heading == "Local Process Group Information" {
        return RFC13.to_owned();
    }
    format!("{RFC13}#{}", heading.to_lowercase().replace(' ', "-"))
}

fn shown(
    cause: &CommonCause<'_>,
    result: &ScenarioResult,
    judged: &JudgedFinding,
    scenarios: &HashMap<&str, String>,
    strict: Strictness,
) -> CauseSummary {
    let (kind, label) = kind_of_cause(cause, strict);
    let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, MAX_TEXT_LENGTH);
    let (expected, seen) = differences(&expected, &seen);
    let also = cause.findings.iter().skip(1).take(MAX_OTHER_SCENARIOS).map(|(other, _)| PageLink {
        name: words(&other.scenario),
        anchor: scenarios[other.scenario.as_str()].clone(),
    });
    CauseSummary {
        anchor: String::new(),
        kind,
        label,
        scenario: words(&result.scenario),
        summary: words(&result.summary),
        expected,
        seen,
        place: place(result, judged),
        step: words(&judged.step),
        who: party_and_process(judged),
        known: words(judged.deviation.as_deref().unwrap_or_default()),
        valid_input: cause.is_valid_input(),
        unreached: result.unreached_steps.iter().map(block::unreached).collect(),
        consequences: match result.findings.first() {
            Some(first) if std::ptr::eq(first, judged) => consequences(result).collect(),
            _ => Vec::new(),
        },
        exit: result.exit.map(|exit| exit.to_string()).unwrap_or_default(),
        replay: words(&result.replay),
        chance: block::replay_note(result),
        more: cause.findings.len() - 1,
        also: also.collect(),
        chart: None,
        chart_left_out: "",
        whole: None,
        output: block::output_lines(result, MAX_OUTPUT_LINES, MAX_WORDS_LENGTH),
        reproducer: String::new(),
        no_reproducer: String::new(),
    }
}
