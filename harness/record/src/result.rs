//! The result of a recorded session, in the same form as the result of a scenario.

use std::collections::BTreeMap;

use super::session::RecordedSession;
use pmi_judge::deviations::Deviations;
use pmi_judge::verdict::{
    LOG_FORMAT, NEGOTIATED_DIALECT, RunEnd, RunHeader, ScenarioResult, Strictness, Verdict,
};
use pmi_judge::{PartyKind, Severity};
use pmi_scenario::requirement::{Catalogue, Level};

/// The name of a session in reports.
pub const NAME: &str = "session";

/// Returns the first line of a session's log.
pub fn header(command: &[String]) -> RunHeader {
    RunHeader {
        format: LOG_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        server: shell_words::join(command),
        command: shell_words::join(
            ["pmi-conform", "record", "--"].into_iter().chain(command.iter().map(String::as_str)),
        ),
        dialect: NEGOTIATED_DIALECT.into(),
        selected: 1,
        ..RunHeader::default()
    }
}

/// Judges a session. `path` is the path in reports, and `replay` is the command line that repeats the session.
pub fn result(
    catalogue: &Catalogue,
    session: &RecordedSession,
    path: String,
    replay: String,
) -> ScenarioResult {
    let blank = ScenarioResult {
        scenario: NAME.into(),
        verdict: Verdict::Unjudged,
        time_us: session.time.as_micros() as u64,
        replay,
        path,
        ..ScenarioResult::default()
    };
    let judge = session.recording.judge();
    let result = judge.result(blank, catalogue, &Deviations::default(), Strictness::Must);
    if !session.lost {
        return result;
    }
    // The messages that were not recorded may explain any apparent violation.
    let reason = "some processes were not recorded: each needs three file descriptors, and too few are allowed (ulimit -Hn)";
    ScenarioResult {
        verdict: Verdict::Unjudged,
        reason: Some(reason.to_owned()),
        findings: Vec::new(),
        ..result
    }
}

/// Returns the last line of a session's log.
pub fn end(session: &RecordedSession, result: &ScenarioResult) -> RunEnd {
    RunEnd {
        counts: [(result.verdict, 1)].into(),
        deviations: 0,
        stale: Vec::new(),
        unfinished: 0,
        interrupted: session.interrupted,
        exit_code: exit_code(result).into(),
        time_us: result.time_us,
    }
}

/// Returns the exit code for a result.
pub fn exit_code(result: &ScenarioResult) -> u8 {
    match result.verdict {
        Verdict::Unjudged => 3,
        _ if result.is_red(Strictness::Must) => 1,
        _ => 0,
    }
}

/// Returns the requirements that a party broke with severity [`Severity::Fail`], and the levels of these requirements. Crashes and hangs
/// have no level.
pub fn broken(result: &ScenarioResult, party: PartyKind) -> BTreeMap<&str, Option<Level>> {
    let broken = result.findings.iter().filter(|f| f.finding.party == party && f.severity == Severity::Fail);
    broken.map(|f| (f.finding.requirement.as_str(), f.level)).collect()
}
