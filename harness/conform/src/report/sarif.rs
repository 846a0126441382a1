//! SARIF 2.1.0, for code scanning: a rule for each requirement, and a result for each cause.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::block::replay_note;
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;
use pmi_judge::cause::{CommonCause, causes};
use pmi_judge::symptom::fingerprint;
use pmi_judge::verdict::Verdict;

/// Maximum number of results that GitHub shows for a run.
const MAX_RESULTS: usize = 5000;
/// Maximum length of a rule's name, in characters. GitHub truncates longer names, and descriptions longer than `MAX_DESCRIPTION_LENGTH`.
const MAX_NAME_LENGTH: usize = 255;
const MAX_DESCRIPTION_LENGTH: usize = 1000;
/// Maximum length of a finding's `expected` or `seen` field, in characters.
const MAX_PART_LENGTH: usize = 300;
/// Maximum number of related locations, which are the other scenarios with the same cause. GitHub accepts 1000 locations per result.
const MAX_RELATED_LOCATIONS: usize = 999;

const UNJUDGED_RULE: &str = "pmi-conform.could-not-judge";
/// The rule id for problems with the run as a whole.
const RUN_RULE: &str = "pmi-conform.run";

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let files = UserFiles::of(run);
    let mut rules: BTreeMap<String, Value> = BTreeMap::new();
    let mut results = Vec::new();
    for cause in causes(&run.results) {
        let Some((_, judged)) = cause.findings.first() else { continue };
        let id = rule_id(cause.requirement);
        let text = if judged.text.is_empty() { cause.requirement } else { &judged.text };
        let level = judged.level.map(|level| format!(" ({level})")).unwrap_or_default();
        rules.entry(id.clone()).or_insert_with(|| rule(&id, &format!("{text}{level}"), &judged.help));
        results.push(result(run, &files, &cause, &id));
    }
    for ((verdict, reason), bare) in tally::red_without_finding(&run.results, run.header.strict) {
        let (label, reason) = (verdict.label(), text::clean(reason));
        let message = format!("{label} in {}: {reason}", text::count(bare.len(), "scenario"));
        results.push(other(UNJUDGED_RULE, &message, files.places(&bare[0].path, 0), &reason));
    }
    for complaint in run.problems() {
        let message = format!("{}: {}", complaint.name, complaint.text);
        let fingerprint = format!("{}/{}", complaint.name, complaint.key);
        // The user named this file, so it is assumed to be in the repository.
        let named = complaint.place.as_ref().map(|(path, line)| vec![place(path, *line)]);
        results.push(other(RUN_RULE, &message, named.unwrap_or_else(|| files.places("", 0)), &fingerprint));
    }
    for (id, text) in [
        (
            UNJUDGED_RULE,
            "The harness could not judge these scenarios; this says nothing about the implementation.",
        ),
        (RUN_RULE, "Problems of the run as a whole."),
    ] {
        if results.iter().any(|result| result["ruleId"] == id) {
            rules.insert(id.to_owned(), rule(id, text, ""));
        }
    }
    // Red results come first. If there are too many results, the least severe ones are left out.
    let weight = |result: &Value| match result["level"].as_str() {
        _ if result.get("suppressions").is_some() => 3,
        Some("error") => 0,
        Some("warning") => 1,
        _ => 2,
    };
    results.sort_by_key(weight);
    let mut notifications = Vec::new();
    if let Some(more @ 1..) = results.len().checked_sub(MAX_RESULTS) {
        results.truncate(MAX_RESULTS);
        let text = format!("{} left out; see the log", text::count(more, "result"));
        notifications.push(json!({ "level": "warning", "message": { "text": text } }));
    }
    let judged = run.end.is_some()
        && run.unfinished() == 0
        && !run.results.iter().any(|result| result.verdict == Verdict::Unjudged);
    let mut invocation = json!({ "executionSuccessful": judged });
    if let Some(end) = &run.end {
        invocation["exitCode"] = end.exit_code.into();
    }
    if !run.header.command.is_empty() {
        invocation["commandLine"] = text::clean(&run.header.command).into();
    }
    if !notifications.is_empty() {
        invocation["toolExecutionNotifications"] = notifications.into();
    }
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "pmi-conform",
                "version": text::clean(&run.header.version),
                "rules": rules.into_values().collect::<Vec<_>>(),
            } },
            "automationDetails": { "id": format!("pmi-conform/{}/", text::clean(&run.header.dialect)) },
            "invocations": [invocation],
            "results": results,
        }],
    });
    writeln!(out, "{}", text::safe_json(&serde_json::to_string_pretty(&document)?))
}

/// Returns a requirement's id as a rule id: without control characters, and of limited length.
fn rule_id(requirement: &str) -> String {
    text::clean(requirement).chars().take(MAX_NAME_LENGTH).collect()
}

fn rule(id: &str, description: &str, help: &str) -> Value {
    let part = |text: &str| -> Value {
        let text: String = text::clean(text).chars().take(MAX_DESCRIPTION_LENGTH).collect();
        json!({ "text": text })
    };
    let mut rule =
        json!({ "id": id, "shortDescription": part(description), "fullDescription": part(description) });
    if !help.is_empty() {
        rule["help"] = part(help);
    }
    rule
}

fn result(run: &Run, files: &UserFiles, cause: &CommonCause<'_>, id: &str) -> Value {
    let (first, judged) = cause.findings[0];
    let strict = run.header.strict;
    let level = match tally::shown(judged, cause.is_flaky(), strict) {
        Severity::Fail => "error",
        Severity::Warn => "warning",
        Severity::Note => "note",
    };
    let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, MAX_PART_LENGTH);
    let others = match cause.findings.len() {
        1 => String::new(),
        n => {
            let special = tally::name_special(&tally::special_requirements(cause));
            format!(", and in {}{special}", text::count(n - 1, "other scenario"))
        }
    };
    let scenario = text::clip(&text::clean(&first.scenario), MAX_PART_LENGTH);
    let input = if cause.is_valid_input() { " Valid input is enough to cause this result." } else { "" };
    let is_flaky = tally::is_flaky(judged, cause.is_flaky(), strict);
    let flaky = if is_flaky { "Flaky: expected" } else { "Expected" };
    let mut message = format!("{flaky} {expected}, seen {seen}, in {scenario}{others}.{input}");
    if !first.replay.is_empty() {
        message += &format!(
            " Play it again{}: {}",
            replay_note(first),
            text::clip(&text::clean(&first.replay), 2 * MAX_PART_LENGTH)
        );
    }
    let mut value = json!({
        "ruleId": id,
        "level": level,
        "message": { "text": message },
        "locations": files.places(&first.path, judged.finding.line),
        "partialFingerprints": { "cause/v1": text::clip(&text::clean(&fingerprint(cause)), MAX_NAME_LENGTH) },
    });
    let related: Vec<Value> = cause
        .findings
        .iter()
        .skip(1)
        .filter(|(result, _)| UserFiles::contain(&result.path))
        .take(MAX_RELATED_LOCATIONS)
        .map(|(result, judged)| {
            let mut place = place(&result.path, judged.finding.line);
            place["message"] = json!({ "text": text::clip(&text::clean(&result.scenario), MAX_PART_LENGTH) });
            place
        })
        .collect();
    if !related.is_empty() {
        value["relatedLocations"] = related.into();
    }
    if let Some(reason) = &judged.deviation {
        let reason = text::clip(&text::clean(reason), MAX_DESCRIPTION_LENGTH);
        value["suppressions"] =
            json!([{ "kind": "external", "status": "accepted", "justification": reason }]);
    }
    value
}

/// Returns a SARIF result that is not about a finding.
fn other(id: &str, message: &str, places: Vec<Value>, fingerprint: &str) -> Value {
    json!({
        "ruleId": id,
        "level": "error",
        "message": { "text": text::clip(&text::clean(message), MAX_DESCRIPTION_LENGTH) },
        "locations": places,
        "partialFingerprints": { "cause/v1": text::clip(&text::clean(&format!("{id}/{fingerprint}")), MAX_NAME_LENGTH) },
    })
}

/// The files of the user's repository, which results may name as their location. Embedded scenarios are not files of the repository.
pub(super) struct UserFiles {
    /// The location of results whose own file does not exist in the repository. GitHub rejects results without a location.
    fallback: Option<String>,
}

impl UserFiles {
    /// Determines the fallback: the profile or the deviations file that the command of the run names, or else the workflow.
    pub(super) fn of(run: &Run) -> Self {
        let words = shell_words::split(&run.header.command).unwrap_or_default();
        let named = words.iter().map(|word| word.rsplit_once('=').map_or(&**word, |(_, value)| value));
        let files = named.map(|value| value.trim_start_matches('@').to_owned());
        // GitHub sets this variable to OWNER/REPOSITORY/FILE@REF.
        let workflow = std::env::var("GITHUB_WORKFLOW_REF").unwrap_or_default();
        let workflow =
            workflow.split('@').next().and_then(|path| path.splitn(3, '/').nth(2)).map(str::to_owned);
        let fallback =
            files.filter(|file| file.ends_with(".toml")).chain(workflow).find(|file| Self::contain(file));
        Self { fallback }
    }

    fn contain(path: &str) -> bool {
        Path::new(path).is_relative() && Path::new(path).is_file()
    }

    /// Returns the location of a result: the line in this file if the file exists in the repository, otherwise the first line of the
    /// fallback. Returns `None` if there is no fallback either.
    pub(super) fn locate<'a>(&'a self, path: &'a str, line: usize) -> Option<(&'a str, usize)> {
        let own = Self::contain(path).then_some((path, line));
        own.or_else(|| Some((self.fallback.as_deref()?, 1)))
    }

    fn places(&self, path: &str, line: usize) -> Vec<Value> {
        self.locate(path, line).into_iter().map(|(path, line)| place(path, line)).collect()
    }
}

/// Returns a line of a file as a SARIF location. The path is percent-encoded, so it is always a valid URI.
fn place(path: &str, line: usize) -> Value {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let uri: String = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    json!({ "physicalLocation": { "artifactLocation": { "uri": uri }, "region": { "startLine": line.max(1) } } })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Format, Verbosity, render, tests};
    use super::*;
    use pmi_judge::verdict::{RunHeader, ScenarioResult};

    /// Renders a run whose profile is a file that exists in the working directory of the tests.
    fn document(run: &Run) -> Value {
        let mut out = Vec::new();
        let header =
            RunHeader { command: "pmi-conform --server @Cargo.toml".to_owned(), ..run.header.clone() };
        let run = &Run { header, ..run.clone() };
        render(run, Format::Sarif, Verbosity::Normal, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn text(value: &Value) -> &str {
        value.as_str().unwrap_or_default()
    }

    /// Checks the parts of the schema that we use, and GitHub's additional rules.
    fn check(document: &Value) {
        assert_eq!(document["version"], "2.1.0");
        let runs = document["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1);
        let driver = &runs[0]["tool"]["driver"];
        assert_eq!(driver["name"], "pmi-conform");
        let rules: Vec<&str> =
            driver["rules"].as_array().unwrap().iter().map(|rule| text(&rule["id"])).collect();
        let distinct: BTreeSet<_> = rules.iter().collect();
        assert_eq!(distinct.len(), rules.len(), "duplicate rule");
        for rule in driver["rules"].as_array().unwrap() {
            assert!((1..=MAX_NAME_LENGTH).contains(&text(&rule["id"]).chars().count()), "{rule}");
            for part in ["shortDescription", "fullDescription"] {
                assert!((1..=1024).contains(&text(&rule[part]["text"]).chars().count()), "{rule}");
            }
        }
        let results = runs[0]["results"].as_array().unwrap();
        assert!(results.len() <= MAX_RESULTS);
        for result in results {
            assert!(rules.contains(&text(&result["ruleId"])), "{result}");
            assert!(["error", "warning", "note"].contains(&text(&result["level"])), "{result}");
            assert!(!text(&result["message"]["text"]).is_empty());
            assert!(!text(&result["partialFingerprints"]["cause/v1"]).is_empty());
            let related = result["relatedLocations"].as_array().into_iter().flatten();
            let places: Vec<&Value> = result["locations"].as_array().unwrap().iter().chain(related).collect();
            assert!((1..=1000).contains(&places.len()));
            for place in places {
                let place = &place["physicalLocation"];
                let uri = text(&place["artifactLocation"]["uri"]);
                assert!(
                    !uri.is_empty()
                        && uri.bytes().all(|b| b.is_ascii_graphic() && !b"<>\"{}|\\^`[]".contains(&b)),
                    "{uri}"
                );
                assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
            }
        }
        assert!(runs[0]["invocations"][0]["executionSuccessful"].is_boolean());
    }

    #[test]
    fn sarif_report_conforms_to_its_schema() {
        let run = tests::run();
        let document = document(&run);
        check(&document);
        let results = document["runs"][0]["results"].as_array().unwrap();
        let of = |id: &'static str| results.iter().filter(move |result| result["ruleId"] == id);
        assert!(of("rfc13.get.value").all(|result| result["level"] == "error"));
        assert!(of("rfc13.init.rc").all(|result| result["level"] == "warning"));
        let known: Vec<_> = of("rfc13.put.limits").collect();
        assert!(text(&known[0]["suppressions"][0]["justification"]).starts_with("issue 12"), "{known:?}");
        assert!(of(UNJUDGED_RULE).any(|result| result["level"] == "error"), "{results:#?}");
        assert_eq!(document["runs"][0]["invocations"][0]["executionSuccessful"], false);
    }

    #[test]
    fn sarif_locations_refer_to_user_files() {
        let uris = |path: &str, command: &str| -> Vec<Value> {
            let mut run = tests::run();
            run.header.command = command.to_owned();
            let files =
                UserFiles { fallback: UserFiles::of(&run).fallback.filter(|file| file == "Cargo.toml") };
            let places = files.places(path, 7).into_iter();
            places.map(|place| place["physicalLocation"]["artifactLocation"]["uri"].clone()).collect()
        };
        let profile = "pmi-conform --server @Cargo.toml";
        assert_eq!(uris("README.md", profile), ["README.md"]);
        assert_eq!(uris("scenarios/kvs/embedded.pmi", profile), ["Cargo.toml"]);
        assert_eq!(
            uris("scenarios/kvs/embedded.pmi", "pmi-conform --server=x --deviations=Cargo.toml"),
            ["Cargo.toml"]
        );
        assert!(uris("scenarios/kvs/embedded.pmi", "pmi-conform --server @missing.toml").is_empty());
    }

    /// A cause is a single result, regardless of the number of scenarios that show it, and the report stays within GitHub's limits.
    #[test]
    fn sarif_report_merges_causes_and_limits_results() {
        let many = |number: usize, seen: &dyn Fn(usize) -> String| {
            let results: Vec<ScenarioResult> = (0..number)
                .map(|at| {
                    let judged = tests::judged("rfc13.get.value", Severity::Fail, "that", &seen(at));
                    ScenarioResult {
                        findings: vec![judged],
                        path: "README.md".to_owned(),
                        ..tests::result(&format!("a/{at}"), Verdict::Fail)
                    }
                })
                .collect();
            let mut run = tests::run();
            run.header.selected = number;
            document(&Run { results, ..run })
        };
        let one = many(30, &|at| format!("rank {at} of 9"));
        check(&one);
        let results = one["runs"][0]["results"].as_array().unwrap();
        let of_cause: Vec<_> =
            results.iter().filter(|result| result["ruleId"] == "rfc13.get.value").collect();
        assert_eq!(of_cause.len(), 1);
        assert!(text(&of_cause[0]["message"]["text"]).contains("in 29 other scenarios"));
        assert_eq!(of_cause[0]["relatedLocations"].as_array().unwrap().len(), 29);
        // `check` compares the number of locations with GitHub's limit.
        check(&many(MAX_RELATED_LOCATIONS + 2, &|at| format!("rank {at} of 9")));
        let letters = |at: usize| {
            let digits = format!("{at:04}");
            digits.bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
        };
        let full = many(MAX_RESULTS + 7, &letters);
        check(&full);
        let notification =
            &full["runs"][0]["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"];
        assert!(text(notification).ends_with("left out; see the log"), "{notification}");
    }
}
