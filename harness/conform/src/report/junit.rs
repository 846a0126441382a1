//! JUnit XML, with a test suite for each folder of scenarios.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestRerun, TestSuite};

use super::block::{LOG_OPTION, Palette, ResultBlock, headline};
use super::run::Run;
use super::text;
use pmi_judge::verdict::{ScenarioResult, Strictness, Verdict};

/// The name of the test suite for problems with the run as a whole, and for scenarios outside any folder.
const TOP: &str = "pmi-conform";

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut suites: Vec<TestSuite> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut add = |folder: &str, mut case: TestCase| {
        case.set_classname(folder.replace('/', "."));
        let place = *places.entry(folder.to_owned()).or_insert_with(|| {
            suites.push(suite(run, folder));
            suites.len() - 1
        });
        suites[place].add_test_case(case);
    };
    for result in &run.results {
        let name = text::clean(&result.scenario);
        let (folder, base) = name.rsplit_once('/').unwrap_or((TOP, &name));
        add(folder, case(result, base, run.header.strict));
    }
    for complaint in run.problems() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(&complaint.text).set_type("run");
        let name = match &complaint.place {
            None => complaint.name,
            Some((file, line)) => format!("{}, {}:{line}", complaint.name, text::clean(file)),
        };
        add(TOP, TestCase::new(name, status));
    }
    let mut report = Report::new(TOP);
    if let Some(end) = &run.end {
        report.set_time(Duration::from_micros(end.time_us));
    }
    for mut suite in suites {
        let time = suite.test_cases.iter().filter_map(|case| case.time).sum();
        suite.set_time(time);
        report.add_test_suite(suite);
    }
    report.serialize(out).map_err(io::Error::other)
}

fn suite(run: &Run, folder: &str) -> TestSuite {
    let mut suite = TestSuite::new(folder);
    let header = &run.header;
    for (key, value) in
        [("version", &header.version), ("server", &header.server), ("dialect", &header.dialect)]
    {
        suite.add_property(Property::new(key, text::clean(value)));
    }
    suite
}

fn case(result: &ScenarioResult, name: &str, strict: Strictness) -> TestCase {
    let full =
        ResultBlock { result, palette: Palette::PLAIN, verbose: false, strict, log: LOG_OPTION }.to_string();
    let reason = result.reason.as_deref().map(text::clean);
    let mut output = None;
    let status = match result.verdict {
        Verdict::NotApplicable => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason.unwrap_or_default());
            status
        }
        _ if !result.is_red(strict) => {
            if result.is_known() {
                output = Some(format!("deviates as recorded ({})\n{full}", result.verdict.label()));
            } else if !result.findings.is_empty() {
                output = Some(full);
            }
            let mut status = TestCaseStatus::success();
            if result.verdict == Verdict::Flaky {
                let mut rerun = TestRerun::new(NonSuccessKind::Failure);
                rerun.set_type("flaky").set_message("failed at first, but not when it was played again");
                status.add_rerun(rerun);
            }
            status
        }
        verdict => {
            let kind = match verdict {
                Verdict::Crashed | Verdict::Hung | Verdict::Unjudged => NonSuccessKind::Error,
                _ => NonSuccessKind::Failure,
            };
            // Most viewers show little more than the type and the message, so these describe the most severe finding without a deviation.
            let fresh = result.findings.iter().filter(|judged| judged.deviation.is_none());
            let worst = fresh.rev().max_by_key(|judged| judged.severity);
            let mut status = TestCaseStatus::non_success(kind);
            status.set_type(worst.map_or_else(
                || verdict.label().to_owned(),
                |judged| text::clean(&judged.finding.requirement),
            ));
            // If the scenario could not be judged, the reason explains the result better than the findings do.
            let why = worst.filter(|_| verdict != Verdict::Unjudged).map(headline).or(reason);
            status.set_message(why.unwrap_or_else(|| verdict.label().to_owned()));
            status.set_description(full);
            status
        }
    };
    let mut case = TestCase::new(name, status);
    case.set_time(Duration::from_micros(result.time_us));
    if let Some(output) = output {
        case.set_system_out(output);
    }
    case
}
