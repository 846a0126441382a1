//! A campaign as JUnit XML: a test case for each bucket, and one for the campaign as a whole.

use std::io;

use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary};
use pmi_fuzzer::observe::failure::FailureKind;
use pmi_fuzzer::triage::store::StoredFinding;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

use super::super::text;
use super::unreported::{UnreportedReason, unreported};

const SUITE: &str = "pmi-conform fuzz";

pub(super) fn write(
    subject: &str,
    options: &CampaignOptions,
    campaign: &CampaignSummary,
) -> io::Result<String> {
    let progress = &campaign.progress;
    let mut suite = TestSuite::new(SUITE);
    for (key, value) in [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("server", text::clean(subject)),
        ("seed", options.seed.to_string()),
        ("sessions", progress.sessions.to_string()),
        ("transitions", progress.transitions.to_string()),
    ] {
        suite.add_property(Property::new(key, value));
    }
    suite.add_test_case(whole(campaign));
    for found in &campaign.found {
        suite.add_test_case(case(&found.bucket, status_of(found, options)));
    }
    for (bucket, why) in unreported(campaign) {
        let mut status = match why {
            UnreportedReason::Known(_) => TestCaseStatus::success(),
            UnreportedReason::Unconfirmed(_) | UnreportedReason::Unexamined => TestCaseStatus::skipped(),
        };
        status.set_message(why.to_string());
        suite.add_test_case(case(bucket, status));
    }
    suite.set_time(progress.time);
    let mut report = Report::new(SUITE);
    report.set_time(progress.time);
    report.add_test_suite(suite);
    report.to_string().map_err(io::Error::other)
}

/// Returns the test case for the whole campaign. If nothing could be judged, the test case fails, so that the campaign does not look like
/// one without findings.
fn whole(campaign: &CampaignSummary) -> TestCase {
    let progress = &campaign.progress;
    let status = if progress.sessions == 0 {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message("no session could be judged").set_type("campaign");
        status.set_description(text::clean(&progress.unjudged.1));
        status
    } else {
        TestCaseStatus::success()
    };
    let mut case = case("the campaign", status);
    case.set_time(progress.time);
    case
}

fn case(name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(text::clean(name), status);
    case.set_classname(SUITE);
    case
}

fn status_of(found: &StoredFinding, options: &CampaignOptions) -> TestCaseStatus {
    let kind = match found.kind {
        FailureKind::Crash | FailureKind::Hang | FailureKind::Excess => NonSuccessKind::Error,
        FailureKind::Rule | FailureKind::Difference => NonSuccessKind::Failure,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(text::clean(&found.description));
    status.set_type(text::clean(found.requirement.as_deref().unwrap_or(&found.root().to_string())));
    let replay = format!("replay: {} --replay {}", options.replay, options.out.join(&found.bucket).display());
    let stack = found.backtrace.iter().flat_map(|trace| &trace.frames).map(|frame| format!("  {frame}"));
    let lines = [found.description.clone(), found.label()].into_iter().chain(stack).chain([replay]);
    status.set_description(lines.map(|line| text::clean(&line)).collect::<Vec<_>>().join("\n"));
    status
}
