//! What a recorded session came to, in the form of any other result.

use super::session::Session;
use pmi_judge::event::Exit;
use pmi_judge::result::{LAST_EVENTS, judged, same};
use pmi_judge::verdict::{Judged, LOG_FORMAT, RunEnd, RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{Severity, Side};
use pmi_scenario::suite::Suite;

/// The name of a session in reports.
pub const NAME: &str = "session";

/// The first line of a session's log.
pub fn header(command: &[String]) -> RunHeader {
    RunHeader {
        format: LOG_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        server: shell_words::join(command),
        under_test: None,
        dialect: "pmi-1.1".into(),
        selected: 1,
        strict: Strictness::Must,
    }
}

/// Judges a session. `path` is shown as its place, `replay` as the command that plays it again.
pub fn result(suite: &Suite, session: &Session, path: String, replay: String) -> ScenarioResult {
    let mut findings: Vec<Judged> = Vec::new();
    for finding in session.recording.findings() {
        if !findings.iter().any(|j| j.finding.party == finding.party && same(&j.finding, &finding)) {
            findings.push(judged(&suite.catalogue, finding));
        }
    }
    let reason = unjudged(session);
    let verdict = match findings.iter().map(|f| f.severity).max() {
        _ if session.hung => Verdict::Hung,
        // Who does not speak PMI-1 breaks none of its rules.
        _ if !session.recording.is_connected() => Verdict::Unjudged,
        // What was found stands, however little was seen.
        Some(Severity::Fail) => Verdict::Fail,
        _ if reason.is_some() => Verdict::Unjudged,
        Some(Severity::Warn) => Verdict::Warn,
        Some(Severity::Note) => Verdict::Note,
        None => Verdict::Pass,
    };
    let last_events = match verdict {
        Verdict::Pass => Vec::new(),
        _ => session.recording.last_events(LAST_EVENTS).to_vec(),
    };
    ScenarioResult {
        scenario: NAME.into(),
        summary: "A recorded session.".into(),
        verdict,
        deviates_as_recorded: false,
        findings,
        reason,
        exit: Some(session.exit),
        requires: Vec::new(),
        time_us: session.time.as_micros() as u64,
        replay,
        path,
        unreached: 0,
        last_events,
    }
}

/// The last line of a session's log.
pub fn end(session: &Session, result: &ScenarioResult) -> RunEnd {
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

/// The exit code that a result makes.
pub fn exit_code(result: &ScenarioResult) -> u8 {
    match result.verdict {
        Verdict::Unjudged => 3,
        _ if result.is_red(Strictness::Must) => 1,
        _ => 0,
    }
}

/// Number of MUSTs that a party broke.
pub fn broken(result: &ScenarioResult, party: Side) -> usize {
    result.findings.iter().filter(|f| f.finding.party == party && f.severity == Severity::Fail).count()
}

/// Why a session says nothing, or not enough.
fn unjudged(session: &Session) -> Option<String> {
    let (processes, _, _) = session.recording.size();
    if processes == 0 {
        let how = match session.exit {
            Exit::Code(0) => "did not start {tap}, or started it on another machine".to_owned(),
            exit => format!("ended with {exit} before it started {{tap}}"),
        };
        return Some(format!("no process was recorded: the launcher {how}"));
    }
    if let Some(p) = session.recording.foreign() {
        return Some(format!("rank {p} and its process manager agreed on PMI-2, which is not judged"));
    }
    if !session.recording.is_connected() {
        return Some("the processes said nothing by PMI-1: the process manager gave them no PMI_FD, or they did not use it".into());
    }
    if !session.left.is_empty() {
        let left: Vec<String> = session.left.iter().map(ToString::to_string).collect();
        return Some(format!(
            "still running when the launcher had ended, and not recorded any more: rank {}",
            left.join(", ")
        ));
    }
    None
}
