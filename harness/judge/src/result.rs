//! Turns the outcomes of scenarios into results, and the results into the summary at the end of a run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use pmi_scenario::requirement::{BoundParty, Catalogue};

use crate::ObservationKind;
use crate::backtrace::Backtrace;
use crate::builtin_requirements::{self, INDEPENDENT_JOBS, NO_CRASH, STARTS_PROCESSES};
use crate::cause::FindingKind;
use crate::crash::{
    CrashedProcess, MAX_LAST_LINE_LENGTH, OwnEnd, SignalCause, crash_backtrace, is_assertion, own_end,
};
use crate::deviations::Deviations;
use crate::event::{Event, EventKind};
use crate::evidence::{self, MAX_EXPLAINED_FINDINGS};
use crate::offer::suggest_option;
use crate::verdict::{
    Attempts, JudgedFinding, RepeatedFinding, RunEnd, ScenarioResult, Strictness, UnreachedStep, Verdict,
};
use crate::{Finding, PartyKind, ScenarioOutcome, Severity, UnjudgedReason, is_reached_by_valid_input};

/// Number of final events in the result of a failed scenario, not counting output.
const LAST_EVENTS: usize = 40;

/// Maximum number of output lines in a result, counted separately for the start and the end of the output. These lines do not count towards
/// the limit for other events.
pub const OUTPUT_LINES: usize = 20;

/// The summary of a scenario whose findings are sensitive.
const SENSITIVE_SUMMARY: &str =
    "The messages of this scenario are withheld: one of its findings is recorded as sensitive.";

/// Maximum length of a scenario's line in a result, in characters.
const MAX_STEP_LENGTH: usize = 200;

/// Maximum number of unreached lines in a result.
const MAX_UNREACHED_LINES: usize = 50;

/// Exit status of a run in which a scenario has a mistake.
const SCENARIO_ERROR: i32 = 2;

/// Maximum length of a message in a result, in bytes. The log contains all bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Maximum length of a message that explains a finding, in bytes.
const MAX_EVIDENCE_BYTES: usize = 64 * 1024;

/// Turns the outcome of a scenario into its result. `result` contains the name of the scenario and the time that it
/// took. `quote` returns the text of a line of the scenario, or an empty string for an unknown line.
pub fn scenario_result(
    mut result: ScenarioResult,
    mut outcome: ScenarioOutcome,
    catalogue: &Catalogue,
    quote: impl Fn(usize) -> String,
    deviations: &Deviations,
    strict: Strictness,
) -> ScenarioResult {
    let mut findings: Vec<JudgedFinding> = Vec::new();
    let not_started = cannot_start(&outcome);
    excuse_waiting_steps(&mut outcome);
    for finding in std::mem::take(&mut outcome.findings) {
        // Findings that differ only in the rank or the time are listed once.
        if !findings.iter().any(|j| is_same_finding(&j.finding, &finding)) {
            let mut judged = judged(catalogue, finding);
            judged.step = step(&quote, judged.finding.line);
            findings.push(judged);
        }
    }
    if let Some((name, signal)) = &outcome.crashed {
        let of = CrashedProcess::party(outcome.party, name);
        let trace = crash_backtrace(&outcome.events, of, *signal);
        let seen = crash(name, *signal, &outcome.events) + &describe_crash_location(trace);
        let finding = Finding {
            seq: evidence::crash_event(&outcome.events).unwrap_or(outcome.events.len() as u64),
            place: trace.and_then(Backtrace::place),
            ..Finding::new(NO_CRASH, outcome.party, builtin_requirements::NO_CRASH_EXPECTED, seen)
        };
        findings.push(judged(catalogue, finding));
    }
    let own_end = if outcome.crashed.is_none() && outcome.party == PartyKind::Server {
        let explained =
            findings.iter_mut().filter(|judged| judged.severity == Severity::Fail).find_map(|judged| {
                let is_silent = judged.finding.absence_text()?.starts_with("silence");
                let end = own_end(&outcome.events, judged.finding.seq, is_silent)?;
                if !end.is_exception {
                    judged.finding.add_launcher_end(&end.text);
                }
                Some(end)
            });
        // Even if the scenario accepts a closed connection, an exception in the server counts as a crash.
        let closes = evidence::closes_before_response(&outcome.events);
        let mut ends =
            explained.into_iter().chain(closes.filter_map(|seq| own_end(&outcome.events, seq, false)));
        ends.find(|end| end.is_exception)
    } else {
        None
    };
    let crashed = outcome.crashed.is_some() || own_end.is_some();
    findings.extend(own_end.map(|OwnEnd { seq, text, .. }| {
        let finding = Finding::new(NO_CRASH, outcome.party, "no uncaught exception", text);
        judged(catalogue, Finding { seq, ..finding })
    }));
    findings.extend(not_started.map(|finding| judged(catalogue, finding)));
    // The sort is stable, so findings of equal severity and kind remain in the order of the events.
    findings.sort_by_key(|judged| (Reverse(judged.severity), FindingKind::of(&judged.finding)));
    mark_valid_input(&mut findings, &outcome.events, outcome.party);
    if let Some(EventKind::Launched { command, .. }) = outcome.events.first().map(|event| &event.kind) {
        suggest_option(&mut findings, command);
    }
    deviations.mark(&result.scenario, &mut findings);
    let loss = crashed.then(|| evidence::first_loss(&outcome.events, outcome.party)).flatten();
    let death = loss.and_then(|loss| death_after_close(&outcome, loss, &findings));
    // A launcher that died of SIGPIPE because the server closed a connection is not reported as a crash.
    let is_crash = crashed && death.is_none();
    if let Some(loss) = death.or(loss) {
        let follows = |judged: &mut JudgedFinding| {
            let finding = &judged.finding;
            let event = evidence::find_event(&outcome.events, finding.seq);
            evidence::is_consequence(finding, event, loss) || !is_crash && finding.requirement == NO_CRASH
        };
        result.consequences = findings.extract_if(.., follows).collect();
    }
    result.consequences.extend(evidence::extract_explained(&mut findings));
    let replay = ReplayStatistics::of(&outcome.events);
    let first = findings.iter().find(|judged| strict.makes_red(judged));
    if let Some(finding) = replay.as_ref().and_then(|replay| replay.interference(outcome.party, first)) {
        // The red findings occur only while other jobs are running, so the finding about the interference replaces them.
        findings.retain(|judged| !strict.makes_red(judged));
        findings.insert(0, judged(catalogue, finding));
        deviations.mark(&result.scenario, &mut findings);
        outcome.hung = false;
    }
    let worst = findings.iter().map(|f| f.severity).max();
    // If the implementation also breaks a requirement of a standard, the verdict is a failure rather than a hang.
    let is_broken = findings.iter().any(|f| f.severity == Severity::Fail && f.level.is_some());
    let found = match worst {
        Some(Severity::Fail) if outcome.hung && !is_broken => Verdict::Hung,
        Some(Severity::Fail) => Verdict::Fail,
        Some(Severity::Warn) => Verdict::Warn,
        Some(Severity::Note) => Verdict::Note,
        // A scenario that ended early without a finding has not passed.
        None if !outcome.unreached.is_empty() => Verdict::Unjudged,
        None => Verdict::Pass,
    };
    result.verdict = match &outcome.unjudged {
        _ if outcome.scenario_error.is_some() => Verdict::Unjudged,
        Some(UnjudgedReason::Interrupted) => Verdict::Unjudged,
        // If the launcher crashed before it started anything, the crash explains why the scenario was not judged.
        _ if is_crash => Verdict::Crashed,
        // Findings made before the scenario called the missing function, or detected the wrong placement, still count.
        Some(UnjudgedReason::NoSuchFunction(_) | UnjudgedReason::Misplaced(_)) if worst.is_some() => found,
        // The violation may be the reason why the scenario ended early.
        Some(_) if worst == Some(Severity::Fail) => found,
        Some(why) => why.verdict(),
        None => found,
    };
    // A scenario that does not apply has no steps to reach.
    if result.verdict != Verdict::NotApplicable {
        result.unreached = outcome.unreached.len();
        result.unreached_steps = unreached_steps(outcome.unreached, &quote);
    }
    result.reason = match outcome.scenario_error {
        Some((line, what)) => Some(format!("{}:{line}: {what}", result.path)),
        None if result.verdict == Verdict::Unjudged && outcome.unjudged.is_none() => {
            Some("the scenario ended early for an unknown reason: please report this".to_owned())
        }
        // The finding explains why the processes have not started.
        None if matches!(result.verdict, Verdict::Fail | Verdict::Hung) => None,
        None => outcome.unjudged.map(|why| reason(&why, &outcome.events)),
    };
    result.exit = outcome.events.iter().find_map(|e| match e.kind {
        EventKind::JobExited { exit } => Some(exit),
        _ => None,
    });
    result.negotiated = outcome.negotiated;
    if !matches!(result.verdict, Verdict::Pass | Verdict::NotApplicable) {
        let found = findings.iter().map(|judged| &judged.finding);
        (result.last_events, result.left_out) = excerpt(outcome.events, found);
    }
    if let Some(replay) = replay {
        if is_interference(&findings) {
            let others = replay.other_scenarios.iter().map(|other| format!(" --filter '={other}'"));
            result.replay.extend(others.chain([" --jobs 2 --repeat 5".to_owned()]));
        } else {
            result.attempts = Some(replay.attempts(&findings));
        }
    }
    result.findings = findings;
    if deviations.are_sensitive_in(&result.scenario) {
        redact_input(&mut result);
    }
    result.at(strict)
}

/// Returns the number of the event that reports a death by SIGPIPE, if the server caused the death by closing a connection earlier. A
/// launcher dies of this signal when it writes to a proxy that has exited. `loss` is the number of the event that first shows the death.
fn death_after_close(outcome: &ScenarioOutcome, loss: u64, findings: &[JudgedFinding]) -> Option<u64> {
    let (_, signal) = outcome.crashed.as_ref()?;
    if outcome.party != PartyKind::Server || SignalCause::of(*signal) != SignalCause::BrokenPipe {
        return None;
    }
    let death = evidence::crash_event(&outcome.events)?;
    let is_cause = |j: &JudgedFinding| j.severity == Severity::Fail && (loss..death).contains(&j.finding.seq);
    (evidence::server_closed_first(&outcome.events, loss) && findings.iter().any(is_cause)).then_some(death)
}

/// Removes everything but the symptoms from a result, because neither the input nor the command that sends it may be published.
fn redact_input(result: &mut ScenarioResult) {
    SENSITIVE_SUMMARY.clone_into(&mut result.summary);
    result.last_events.clear();
    result.left_out = 0;
    result.replay.clear();
    for judged in result.findings.iter_mut().chain(&mut result.consequences) {
        judged.finding.line = 0;
        judged.step.clear();
    }
}

/// The words that precede the launcher's output in the reason why a scenario was not judged.
pub const PRINTED: &str = "; it printed ";

/// The message of `srun` while other steps occupy the allocation.
const STEPS_WAIT: &str = "step creation temporarily disabled";
/// The advice if other steps occupy the allocation.
pub const STEPS_WAIT_HELP: &str = "squeue -s lists the steps; use a new allocation, or set SLURM_OVERLAP=1";

/// Makes a scenario unjudged if a response is missing while `srun` waits for other job steps. In Slurm, another `srun` starts the processes
/// of a spawn, and this `srun` may wait for the processors of the step that requested the spawn.
fn excuse_waiting_steps(outcome: &mut ScenarioOutcome) {
    // Before the first process starts, the launch itself may wait, and the processes start late.
    let is_start = |event: &&Event| matches!(event.kind, EventKind::Started { .. });
    let waits = |event: &&Event| match &event.kind {
        EventKind::Output { line, .. } => memchr::memmem::find(&line.0, STEPS_WAIT.as_bytes()).is_some(),
        _ => false,
    };
    let Some(since) = outcome.events.iter().skip_while(|e| !is_start(e)).find(waits).map(|e| e.seq) else {
        return;
    };
    let found = outcome.findings.len();
    outcome.findings.retain(|f| f.seq < since || !f.kind.is_some_and(ObservationKind::is_missing_answer));
    if outcome.findings.len() < found && outcome.unjudged.is_none() {
        let why = format!("srun waits for other job steps: {STEPS_WAIT_HELP}");
        outcome.unjudged = Some(UnjudgedReason::Unplayable(why));
    }
}

/// Returns the reason why a scenario was not judged. If the launcher is still running, the reason includes the launcher's first error,
/// which may show what the launcher is waiting for. Output after the wait is ignored, because the runner may have caused it by terminating
/// the launcher.
fn reason(why: &UnjudgedReason, events: &[Event]) -> String {
    let is_silence = |event: &Event| matches!(event.kind, EventKind::Silence { .. });
    let end = events.iter().rposition(is_silence).unwrap_or(events.len());
    match (why, launcher_error(&events[..end])) {
        (UnjudgedReason::NotStarted { launcher: None, .. }, Some(output)) => {
            let others = format!(": other job steps occupy the allocation; {STEPS_WAIT_HELP}");
            let help = if output.contains(STEPS_WAIT) { others.as_str() } else { "" };
            format!("{why}{PRINTED}\"{output}\"{help}")
        }
        _ => why.to_string(),
    }
}

/// Returns the finding about a launcher that failed to start the processes, although it was able to start fewer processes or, without the
/// words that the scenario adds to its command, all processes.
fn cannot_start(outcome: &ScenarioOutcome) -> Option<Finding> {
    let Some(UnjudgedReason::NotStarted { launcher: Some(exit), .. }) = outcome.unjudged else { return None };
    let (seq, fewer) = outcome.events.iter().find_map(|event| match event.kind {
        EventKind::StartsFewerRanks { ranks } => Some((event.seq, ranks)),
        _ => None,
    })?;
    let requested = outcome.events.iter().find_map(|event| match event.kind {
        EventKind::Launched { ranks, .. } => Some(ranks),
        _ => None,
    })?;
    let message = launcher_error(&outcome.events)
        .map_or("without a message".to_owned(), |message| format!("\"{message}\""));
    let expected = match requested == fewer {
        true => {
            format!(
                "{requested} processes, as requested; the same command can start them in the usual environment"
            )
        }
        false => format!("{requested} processes, as requested; the same command can start {fewer}"),
    };
    let seen = format!("cannot start: {exit}, {message}");
    Some(Finding { seq, ..Finding::new(STARTS_PROCESSES, outcome.party, expected, seen) })
}

/// Minimum number of failures alongside other jobs that distinguishes interference from chance, if the scenario never fails alone.
pub const MIN_INTERFERENCE_FAILURES: u32 = 4;

/// Statistics of a scenario that was played again after it had failed alongside other jobs.
#[derive(Default)]
struct ReplayStatistics {
    /// Number of runs of the scenario alone or alongside unrelated jobs, and the number of these runs that failed.
    alone: (u32, u32),
    /// Number of runs of the scenario alongside other jobs of the implementation, and the number of these runs that failed.
    together: (u32, u32),
    /// The scenarios of the other jobs.
    other_scenarios: Vec<String>,
    /// The scenario that has already shown interference in the same run.
    shown_by: Option<String>,
    /// Number of the event that reports the last run.
    seq: u64,
}

impl ReplayStatistics {
    fn of(events: &[Event]) -> Option<Self> {
        let mut all: Option<Self> = None;
        for event in events {
            let EventKind::Replayed { other_jobs: beside, played, failed, shown_by } = &event.kind else {
                continue;
            };
            let replay = all.get_or_insert_default();
            let counts = if beside.is_empty() { &mut replay.alone } else { &mut replay.together };
            *counts = (counts.0 + played, counts.1 + failed);
            replay.other_scenarios.extend(beside.iter().map(|other| other.scenario.clone()));
            replay.shown_by = replay.shown_by.take().or_else(|| shown_by.clone());
            replay.seq = event.seq;
        }
        all
    }

    /// Returns a finding if the failure depends on other jobs.
    fn interference(&self, under_test: PartyKind, first: Option<&JudgedFinding>) -> Option<Finding> {
        let first = &first?.finding;
        let (names, (played, failed)) = (self.other_scenarios.join(", "), self.together);
        let how = match &self.shown_by {
            _ if self.alone.1 > 0 => return None,
            Some(scenario) => {
                format!("this scenario failed alongside {names}, and {scenario} fails alongside other jobs")
            }
            None if failed < MIN_INTERFERENCE_FAILURES => return None,
            None => format!("this scenario fails alongside {names} ({failed} of {played} times)"),
        };
        let alone = self.alone.0;
        let expected = format!(
            "the same result as without the implementation's other jobs: passed ({alone} of {alone} times)"
        );
        let seen = format!(
            "interference between jobs: {how}; the first finding is {}: {}",
            first.requirement, first.seen
        );
        Some(Finding { seq: self.seq, ..Finding::new(INDEPENDENT_JOBS, under_test, expected, seen) })
    }

    /// Returns the statistics of all attempts: the first, which failed, and the replays.
    fn attempts(&self, findings: &[JudgedFinding]) -> Attempts {
        let found = findings.iter().map(|judged| RepeatedFinding {
            times: 1,
            absent: false,
            finding: judged.clone(),
        });
        Attempts {
            played: 1 + self.alone.0 + self.together.0,
            red: 1 + self.alone.1 + self.together.1,
            found: found.collect(),
        }
    }
}

/// Returns whether one of the findings reports interference between jobs.
pub fn is_interference(findings: &[JudgedFinding]) -> bool {
    findings.iter().any(|judged| judged.finding.requirement == INDEPENDENT_JOBS)
}

/// Returns the first line on stderr that is not a warning or, if there is none, the first line on stderr or stdout.
pub fn launcher_error(events: &[Event]) -> Option<String> {
    let lines = |wanted: bool| {
        events.iter().filter_map(move |event| match &event.kind {
            EventKind::Output { stderr, line, .. } if *stderr == wanted => {
                let text = String::from_utf8_lossy(&line.0);
                let text: String = text.trim().chars().take(MAX_LAST_LINE_LENGTH).collect();
                (!text.is_empty()).then_some(text)
            }
            _ => None,
        })
    };
    let is_error = |line: &String| !line.to_lowercase().contains("warning");
    lines(true).find(is_error).or_else(|| lines(true).next()).or_else(|| lines(false).next())
}

/// Describes a crash in a form that distinguishes it from other crashes: the process, the signal and the failed assertion, if any.
pub(crate) fn crash(name: &str, signal: i32, events: &[Event]) -> String {
    if SignalCause::of(signal) == SignalCause::BrokenPipe {
        // The text does not name the connection, because a launcher also writes to its proxies.
        return format!(
            "{name} died of signal {signal} while writing to a connection whose other end was closed"
        );
    }
    let output = events.iter().filter_map(|e| match &e.kind {
        EventKind::Output { line, .. } => std::str::from_utf8(&line.0).ok(),
        _ => None,
    });
    let aborted = SignalCause::of(signal) == SignalCause::Abort;
    match output.map(str::trim).find(|line| aborted && is_assertion(line)) {
        Some(line) => format!("{name} died of signal {signal}: {line}"),
        None => format!("{name} died of signal {signal}"),
    }
}

/// Describes the location of a crash, as a suffix of the crash's description. Addresses that vary between runs are omitted.
fn describe_crash_location(trace: Option<&Backtrace>) -> String {
    let Some((place, frame)) = trace.and_then(|trace| Some((trace.place()?, trace.blamed_frame()?))) else {
        return String::new();
    };
    let line = frame.line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
    format!(" (in {place}{line})")
}

/// Marks the failures that result from valid input only.
fn mark_valid_input(findings: &mut [JudgedFinding], events: &[Event], under_test: PartyKind) {
    let failures = findings.iter_mut().filter(|judged| judged.severity == Severity::Fail);
    for JudgedFinding { finding, valid_input, .. } in failures.take(MAX_EXPLAINED_FINDINGS) {
        let shown_at = (finding.requirement != NO_CRASH).then_some(finding.seq);
        *valid_input = is_reached_by_valid_input(events, under_test, shown_at);
    }
}

/// Returns whether results show this event.
pub fn is_shown(event: &Event) -> bool {
    !matches!(event.kind, EventKind::Expected(_) | EventKind::Silence { .. })
}

/// Returns the events that a result contains, and the number of events left out. A result contains the last events and the events that
/// explain its findings.
pub(crate) fn excerpt<'a>(
    events: impl IntoIterator<Item = Event>,
    findings: impl Iterator<Item = &'a Finding>,
) -> (Vec<Event>, usize) {
    let (output, events): (Vec<Event>, Vec<Event>) =
        events.into_iter().filter(is_shown).partition(|e| matches!(e.kind, EventKind::Output { .. }));
    let (first, last) = (OUTPUT_LINES, output.len().saturating_sub(OUTPUT_LINES));
    let edge = |(i, line): (usize, Event)| (i < first || i >= last).then_some(line);
    let mut kept: Vec<Event> = output.into_iter().enumerate().filter_map(edge).collect();
    let evidence = evidence::evidence(findings, &events);
    let (all, outputs, from) = (events.len(), kept.len(), events.len().saturating_sub(LAST_EVENTS));
    let explains = |(i, event): (usize, Event)| (i >= from || evidence.contains(&event.seq)).then_some(event);
    kept.extend(events.into_iter().enumerate().filter_map(explains));
    let left_out = all - (kept.len() - outputs);
    kept.sort_by_key(|event| event.seq);
    for event in &mut kept {
        let most = if evidence.contains(&event.seq) { MAX_EVIDENCE_BYTES } else { MAX_MESSAGE_BYTES };
        event.cut_to(most);
    }
    (kept, left_out)
}

/// Returns the start of a line of the scenario.
fn step(quote: &dyn Fn(usize) -> String, line: usize) -> String {
    quote(line).trim().chars().take(MAX_STEP_LENGTH).collect()
}

/// Returns the lines that were not reached, without duplicates. Duplicates occur because all statements of a fragment have the number of
/// the line that uses the fragment.
fn unreached_steps(mut lines: Vec<usize>, quote: &dyn Fn(usize) -> String) -> Vec<UnreachedStep> {
    lines.sort_unstable();
    lines.dedup();
    lines
        .into_iter()
        .take(MAX_UNREACHED_LINES)
        .map(|line| UnreachedStep { line, step: step(quote, line) })
        .collect()
}

/// Returns whether two findings report the same violation.
pub fn is_same_finding(one: &Finding, other: &Finding) -> bool {
    one.requirement == other.requirement && one.expected == other.expected && one.seen == other.seen
}

/// Returns the roles whose requirements a party must meet. A library is also a client, because it writes the client's messages. A proxy is
/// a server.
pub fn bound_parties(party: PartyKind) -> &'static [BoundParty] {
    match party {
        PartyKind::Server => &[BoundParty::Server, BoundParty::Proxy],
        PartyKind::Client => &[BoundParty::Client],
        PartyKind::Library => &[BoundParty::Library, BoundParty::Client],
    }
}

/// Returns whether a requirement binds the party that the finding blames.
pub fn binds(catalogue: &Catalogue, finding: &Finding) -> bool {
    let requirement = catalogue.get(&finding.requirement);
    requirement.is_none_or(|r| r.binds.iter().any(|bound| bound_parties(finding.party).contains(bound)))
}

/// Adds the content of the requirement to a finding.
pub fn judged(catalogue: &Catalogue, finding: Finding) -> JudgedFinding {
    let requirement = catalogue.get(&finding.requirement);
    let severity = requirement.map_or(Severity::Fail, |r| r.severity());
    JudgedFinding {
        severity: finding.max_severity.map_or(severity, |most| severity.min(most)),
        level: requirement.map(|r| r.level),
        text: match requirement {
            Some(requirement) => requirement.text.clone(),
            None => builtin_requirements::text(&finding.requirement).unwrap_or_default().to_owned(),
        },
        help: match requirement {
            Some(requirement) => {
                let all = [&requirement.contradiction, &requirement.reading];
                all.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            None => builtin_requirements::help(&finding.requirement).unwrap_or_default().to_owned(),
        },
        valid_input: false,
        finding,
        step: String::new(),
        deviation: None,
    }
}

/// Facts about a run that do not follow from its results.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts {
    /// Number of selected scenarios.
    pub selected: usize,
    /// True if the user interrupted the run.
    pub interrupted: bool,
    /// True if a scenario has a mistake.
    pub scenario_errors: bool,
    /// The strictness of the run.
    pub strict: Strictness,
    /// The time that the run took.
    pub time: Duration,
}

/// Returns the summary of a run, which becomes the last line of its log.
pub fn run_end(results: &[ScenarioResult], deviations: &Deviations, facts: RunFacts) -> RunEnd {
    let unfinished = facts.selected - results.len();
    // A run that ended early has not checked all deviations.
    let stale = if unfinished == 0 { deviations.stale() } else { Vec::new() };
    let end = RunEnd {
        deviations: 0,
        counts: BTreeMap::new(),
        stale,
        unfinished,
        interrupted: facts.interrupted,
        exit_code: if facts.scenario_errors { SCENARIO_ERROR } else { 0 },
        time_us: facts.time.as_micros() as u64,
    };
    end_at(end, results, facts.strict)
}

/// Returns the number of scenarios per verdict, not counting scenarios that deviations cover.
pub fn counts(results: &[ScenarioResult]) -> BTreeMap<Verdict, usize> {
    let mut counts = BTreeMap::new();
    for result in results.iter().filter(|result| !result.is_known()) {
        *counts.entry(result.verdict).or_default() += 1;
    }
    counts
}

/// Returns the summary of a run for a different strictness. The caller has already applied this strictness to `results`.
pub fn end_at(mut end: RunEnd, results: &[ScenarioResult], strict: Strictness) -> RunEnd {
    end.counts = counts(results);
    let count = |v: Verdict| end.counts.get(&v).copied().unwrap_or(0);
    let broken = results.iter().any(|r| r.verdict != Verdict::Unjudged && r.is_red(strict));
    end.exit_code = if end.interrupted {
        130
    } else if end.exit_code == SCENARIO_ERROR {
        SCENARIO_ERROR
    } else if broken || !end.stale.is_empty() {
        1
    } else if count(Verdict::Unjudged) > 0 {
        3
    } else if results.len() == count(Verdict::NotApplicable) {
        4
    } else {
        0
    };
    end.deviations = results.iter().filter(|result| result.is_known()).count();
    end
}

#[cfg(test)]
mod tests {
    use pmi_scenario::ids;
    use pmi_scenario::suite::embedded_catalogue;
    use pmi_wire::{Operation, Proc};
    use rstest::rstest;

    use super::*;
    use crate::backtrace::StackFrame;
    use crate::event::{Exit, SilenceProof};
    use crate::testing::{P, cited_by, event, events, numbered, printed, started};

    /// Returns the outcome of a scenario that tests a server.
    fn outcome(events: Vec<Event>, findings: Vec<Finding>) -> ScenarioOutcome {
        ScenarioOutcome { events, findings, ..ScenarioOutcome::default() }
    }

    fn result_of(outcome: ScenarioOutcome, catalogue: &Catalogue) -> ScenarioResult {
        let (blank, deviations) = (ScenarioResult::default(), Deviations::default());
        scenario_result(blank, outcome, catalogue, |_| String::new(), &deviations, Strictness::Must)
    }

    /// While `srun` waits for other job steps, a missing response is not the server's fault.
    #[rstest]
    #[case::after_the_message(5, Verdict::Unjudged)]
    #[case::before_the_message(2, Verdict::Fail)]
    fn missing_response_is_not_judged_while_srun_waits(#[case] seq: u64, #[case] verdict: Verdict) {
        let finding = Finding {
            proc: Some(P),
            seq,
            kind: Some(ObservationKind::Silence),
            ..Finding::new(ids::RFC13_ABNF_C_SPAWN, PartyKind::Server, "an answer", "silence")
        };
        let busy = "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)";
        let events = vec![Event::new(1, started(P, &[])), Event::new(3, printed(busy))];
        let result = result_of(outcome(events, vec![finding]), &embedded_catalogue().expect("a catalogue"));
        assert_eq!(result.verdict, verdict, "{result:?}");
    }

    #[rstest]
    #[case::close_and_abort(ids::RFC13_ERROR_CLOSE, ids::RFC13_ERROR_ABORT, None)]
    #[case::early_exit(ids::HYDRA_UPSTREAM_BARRIER_ONCE, ids::RFC13_BARRIER_ALL_IN_BEFORE_ANY_OUT, None)]
    #[case::early_exit_by_kind(
        ids::HYDRA_UPSTREAM_BARRIER_ONCE,
        ids::PMI2_COMMON_FENCE,
        Some(ObservationKind::EarlyBarrierExit)
    )]
    #[case::version(ids::RFC13_INIT_HIGHEST_MUTUAL, ids::PMI2_COMMON_API_ERRORS, None)]
    #[case::altered_request(
        ids::HYDRA_UPSTREAM_REQUESTS_KEPT,
        ids::RFC13_SPAWN_PREPUT,
        Some(ObservationKind::Response(Operation::Get))
    )]
    fn consequence_is_not_a_second_finding(
        #[case] cause: &str,
        #[case] effect: &str,
        #[case] kind: Option<ObservationKind>,
    ) {
        let found = |seqs: [u64; 2]| {
            let finding = |id: &str, seq| Finding {
                proc: Some(P),
                seq,
                kind,
                ..Finding::new(id, PartyKind::Client, "", "cmd=get key=k")
            };
            let findings = vec![finding(effect, seqs[1]), finding(cause, seqs[0])];
            let outcome = ScenarioOutcome { party: PartyKind::Client, ..outcome(Vec::new(), findings) };
            let result = result_of(outcome, &embedded_catalogue().expect("a catalogue"));
            (result.findings, result.consequences)
        };
        let (findings, consequences) = found([4, 4]);
        assert_eq!((cited_by(&findings), cited_by(&consequences)), (vec![cause], vec![effect]));
        assert_eq!(found([5, 4]).0.len(), 2);
    }

    #[rstest]
    #[case::hang(builtin_requirements::NO_HANG, 1)]
    #[case::other(ids::PMI2_COMMON_API_ERRORS, 0)]
    fn wrong_version_explains_a_hang_of_another_process(#[case] effect: &str, #[case] consequences: usize) {
        let finding = |id: &str, rank, seq| Finding {
            proc: Some(Proc { group: 0, rank }),
            seq,
            ..Finding::new(id, PartyKind::Client, "", "it waits")
        };
        let findings = vec![finding(ids::RFC13_INIT_HIGHEST_MUTUAL, 1, 15), finding(effect, 0, 21)];
        let outcome = ScenarioOutcome { party: PartyKind::Client, ..outcome(Vec::new(), findings) };
        let result = result_of(outcome, &embedded_catalogue().expect("a catalogue"));
        assert_eq!((result.findings.len(), result.consequences.len()), (2 - consequences, consequences));
    }

    #[test]
    fn crash_text_includes_the_assertion() {
        let failed = "pm: pm.c:12: serve: Assertion `n > 0' failed.";
        for (signal, lines, expected) in [
            (11, &[failed][..], "pm died of signal 11".to_owned()),
            (6, &["starting", failed, "bye"], format!("pm died of signal 6: {failed}")),
            (
                13,
                &[failed],
                "pm died of signal 13 while writing to a connection whose other end was closed".to_owned(),
            ),
        ] {
            let events = numbered(lines.iter().map(|line| printed(line)));
            assert_eq!(crash("pm", signal, &events), expected);
        }
    }

    #[test]
    fn crash_text_ends_with_the_location() {
        let frame = |function: &str, line: Option<&str>| StackFrame {
            module: Some("pm".into()),
            offset: 0x12,
            begin: None,
            function: Some(function.into()),
            line: line.map(str::to_owned),
        };
        let trace = |frames| Backtrace {
            name: "pm".into(),
            rank: None,
            signal: 6,
            address: None,
            pc: 0,
            sp: 0,
            fp: 0,
            frames,
        };
        let abort = || frame("abort", Some("abort.c:79"));
        let called = trace(vec![abort(), frame("serve", Some("pm.c:12"))]);
        assert_eq!(describe_crash_location(Some(&called)), " (in serve at pm.c:12)");
        assert_eq!(describe_crash_location(Some(&trace(vec![abort(), frame("serve", None)]))), " (in serve)");
        assert_eq!(
            (describe_crash_location(Some(&trace(Vec::new()))), describe_crash_location(None)),
            (String::new(), String::new())
        );
    }

    /// The server answers a spawn, and sends many messages and a wrong value. Then a proxy crashes, which interrupts two barriers.
    #[test]
    fn crash_is_the_first_finding_and_keeps_its_evidence() {
        let spawn = format!("mcmd=spawn\nnprocs=1\nexecname={}\nendcmd\n", "x".repeat(MAX_MESSAGE_BYTES));
        let mut kinds = vec![event(&format!("0 >| {spawn}")), event("0 < cmd=spawn_result rc=0")];
        for _ in 0..LAST_EVENTS {
            kinds.extend(events(&["0 > cmd=get_appnum", "0 < cmd=appnum appnum=0"]));
        }
        let wrong = kinds.len() as u64 - 1;
        kinds.extend(events(&["0 > cmd=barrier_in", "1 > cmd=barrier_in", "0 closed", "1 closed"]));
        let closed = kinds.len() as u64 - 2;
        kinds.push(EventKind::Crashed { name: "proxy".into(), signal: 11 });
        let last = kinds.len() as u64 - 1;
        let found = |id: &str, rank, seq| Finding {
            proc: Some(Proc { group: 0, rank }),
            seq,
            ..Finding::new(id, PartyKind::Server, "", "seen")
        };
        let findings = vec![
            found("rfc13.appnum.value", 0, wrong),
            found("rfc13.abnf.c-barrier", 0, closed),
            found("rfc13.barrier.released", 1, closed + 1),
        ];
        let crashed = Some(("proxy".into(), 11));
        let outcome = ScenarioOutcome { crashed, ..outcome(numbered(kinds), findings) };
        let result = result_of(outcome, &Catalogue::default());
        assert_eq!(cited_by(&result.findings), [NO_CRASH, "rfc13.appnum.value"]);
        assert_eq!(cited_by(&result.consequences), ["rfc13.abnf.c-barrier", "rfc13.barrier.released"]);
        assert_eq!(result.findings[0].finding.seq, last, "the event that reports the crash");
        let EventKind::ToServer { bytes, .. } = &result.last_events[0].kind else {
            panic!("no spawn request")
        };
        assert_eq!(bytes.0, spawn.as_bytes(), "the request is complete");
        assert_eq!(result.last_events.len() + result.left_out, last as usize + 1);
    }

    /// A server closes the connection, and its launcher then dies.
    #[rstest]
    #[case::of_the_close(&["0 > cmd=get_appnum"], 13, &["rfc13.abnf.c-appnum"], &[NO_CRASH])]
    #[case::after_another_process_left(&["1 leaves", "0 > cmd=get_appnum"], 13, &[NO_CRASH], &["rfc13.abnf.c-appnum"])]
    #[case::of_a_fault(&["0 > cmd=get_appnum"], 11, &[NO_CRASH], &["rfc13.abnf.c-appnum"])]
    fn close_explains_a_later_death_by_sigpipe(
        #[case] lines: &[&str],
        #[case] signal: i32,
        #[case] found: &[&str],
        #[case] consequences: &[&str],
    ) {
        let name = "the launcher, pm,".to_owned();
        let mut kinds = events(lines);
        let closed = kinds.len() as u64;
        kinds.extend([event("0 closed"), EventKind::Crashed { name: name.clone(), signal }]);
        let finding = Finding::new("rfc13.abnf.c-appnum", PartyKind::Server, "", "the end of the connection");
        let findings = vec![Finding { proc: Some(P), seq: closed, ..finding }];
        let crashed = Some((name, signal));
        let outcome = ScenarioOutcome { crashed, ..outcome(numbered(kinds), findings) };
        let result = result_of(outcome, &embedded_catalogue().unwrap());
        assert_eq!((&*cited_by(&result.findings), &*cited_by(&result.consequences)), (found, consequences));
        assert_eq!(result.verdict == Verdict::Crashed, found == [NO_CRASH]);
    }

    /// A server exits while a response is due. It writes `lines` to stderr before the harness terminates the job, or afterwards if `late`
    /// is true.
    #[rstest]
    #[case::traceback(
        &["Traceback (most recent call last):", "  File \"pm.py\", line 7, in get", "KeyError: 'a'"],
        1, false, NO_CRASH, "the launcher, pm.py, ended with exit status 1: KeyError: 'a'"
    )]
    #[case::panic(
        &["panic: no key", "", "goroutine 1 [running]:", "main.get(...)"],
        2, false, NO_CRASH, "the launcher, pm.py, ended with exit status 2: panic: no key"
    )]
    #[case::traceback_before_the_launcher(
        &["Traceback (most recent call last):", "  File \"pm.py\"", "KeyError: 'a'", "srun: error: exited with code 1"],
        1, false, NO_CRASH, "the launcher, pm.py, ended with exit status 1: KeyError: 'a'"
    )]
    #[case::panic_of_rust(
        &["thread 'main' (7) panicked at pm.rs:2:5:", "no key", "note: run with `RUST_BACKTRACE=1`"],
        101, false, NO_CRASH, "the launcher, pm.py, ended with exit status 101: thread 'main' (7) panicked at pm.rs:2:5: no key"
    )]
    #[case::thread_that_reports(
        &["thread 'a' has ended"],
        1, false, "rfc13.abnf.c-get",
        "the end of the connection; the launcher, pm.py, ended with exit status 1: thread 'a' has ended"
    )]
    #[case::peer_has_gone(
        &["Traceback (most recent call last):", "BrokenPipeError: [Errno 32] Broken pipe"],
        1, false, "rfc13.abnf.c-get", "the end of the connection"
    )]
    #[case::stack_of_errors(
        &["fn_kvs_get: assert (idx != -1) failed", "main: process manager error"],
        1, false, "rfc13.abnf.c-get",
        "the end of the connection; the launcher, pm.py, ended with exit status 1: fn_kvs_get: assert (idx != -1) failed"
    )]
    #[case::message(
        &["pm: no key"],
        1, false, "rfc13.abnf.c-get",
        "the end of the connection; the launcher, pm.py, ended with exit status 1: pm: no key"
    )]
    #[case::after_our_own_end(
        &["Traceback (most recent call last):", "BrokenPipeError"],
        1, true, "rfc13.abnf.c-get", "the end of the connection"
    )]
    #[case::success(&["Traceback (most recent call last):", "KeyError: 'a'"], 0, false, "rfc13.abnf.c-get", "the end of the connection")]
    fn uncaught_exception_counts_as_a_crash(
        #[case] lines: &[&str],
        #[case] status: i32,
        #[case] late: bool,
        #[case] id: &str,
        #[case] seen: &str,
    ) {
        let lines = || lines.iter().map(|line| printed(line));
        let mut kinds = vec![EventKind::Launched { command: vec!["./pm.py".into()], ranks: 2, nodes: 1 }];
        kinds.extend([printed("pm: 2 ranks"), event("0 > cmd=get kvsname=k key=a")]);
        kinds.extend(lines().filter(|_| !late));
        let closed = kinds.len() as u64;
        kinds.extend([event("0 closed"), event("1 leaves")]);
        kinds.extend(lines().filter(|_| late));
        kinds.push(EventKind::JobExited { exit: Exit::Code(status) });
        let finding = Finding::new("rfc13.abnf.c-get", PartyKind::Server, "", "the end of the connection");
        let findings = vec![Finding { proc: Some(P), seq: closed, ..finding }];
        let result = result_of(outcome(numbered(kinds), findings), &embedded_catalogue().unwrap());
        let found: Vec<_> =
            result.findings.iter().map(|j| (&*j.finding.requirement, &*j.finding.seen)).collect();
        assert_eq!(found, [(id, seen)]);
        assert_eq!(result.verdict, if id == NO_CRASH { Verdict::Crashed } else { Verdict::Fail });
    }

    /// The scenario accepts that the server closes the connection.
    #[rstest]
    #[case::request(&["0 > cmd=get"], &["0 closed"], Verdict::Crashed)]
    #[case::request_in_parts(&["0 >| cmd=", "0 >| get\n"], &["0 closed"], Verdict::Crashed)]
    #[case::answered(&["0 > cmd=get", "0 < cmd=get_result rc=-1"], &["0 closed"], Verdict::Pass)]
    #[case::abort(&["1 > cmd=barrier_in", "0 >| cmd=", "0 >| abort\n"], &["0 closed", "1 closed"], Verdict::Pass)]
    #[case::client_left(&["1 > cmd=barrier_in", "0 leaves"], &["1 closed"], Verdict::Pass)]
    fn accepted_close_does_not_excuse_an_exception(
        #[case] before: &[&str],
        #[case] after: &[&str],
        #[case] verdict: Verdict,
    ) {
        let mut kinds = events(before);
        kinds.extend([printed("Traceback (most recent call last):"), printed("KeyError: 'a'")]);
        kinds.extend(events(after));
        kinds.push(EventKind::JobExited { exit: Exit::Code(1) });
        let result = result_of(outcome(numbered(kinds), Vec::new()), &embedded_catalogue().unwrap());
        assert_eq!(result.verdict, verdict, "{:?}", result.findings);
    }

    #[rstest]
    #[case::request_without_answer("rfc13.barrier.released", true, None, Verdict::Fail)]
    #[case::process_without_end(builtin_requirements::NO_HANG, true, None, Verdict::Hung)]
    #[case::broken_before_an_early_end(
        "rfc13.barrier.released",
        false,
        Some(UnjudgedReason::Unplayable("the connection is lost".into())),
        Verdict::Fail
    )]
    fn broken_requirement_makes_the_run_red(
        #[case] id: &str,
        #[case] hung: bool,
        #[case] unjudged: Option<UnjudgedReason>,
        #[case] verdict: Verdict,
    ) {
        let findings = vec![Finding::new(id, PartyKind::Server, "", "silence")];
        let outcome = ScenarioOutcome { hung, unjudged, ..outcome(Vec::new(), findings) };
        let result = result_of(outcome, &embedded_catalogue().unwrap());
        let strict = Strictness::Must;
        assert_eq!((result.verdict, result.is_red(strict)), (verdict, true));
        let end = RunEnd {
            counts: BTreeMap::new(),
            deviations: 0,
            stale: Vec::new(),
            unfinished: 0,
            interrupted: false,
            exit_code: 0,
            time_us: 0,
        };
        let end = end_at(end, &[result], strict);
        assert_eq!((end.counts, end.exit_code), (BTreeMap::from([(verdict, 1)]), 1));
    }

    #[test]
    fn reason_quotes_the_output_of_a_waiting_launcher() {
        let line = printed;
        let nothing = || EventKind::Silence { proof: SilenceProof::Timeout, waited_ms: 1 };
        let reason_after = |whats: Vec<EventKind>, launcher| {
            let events = numbered(whats);
            reason(&UnjudgedReason::NotStarted { rank: 0, none: true, launcher, nothing: None }, &events)
        };
        let waits = reason_after(vec![line("nodes are busy"), nothing(), line("cancelled")], None);
        assert!(waits.ends_with("; it printed \"nodes are busy\""), "{waits}");
        let warned =
            reason_after(vec![line("pm: Warning: fewer nodes"), line("nodes are busy"), nothing()], None);
        assert!(warned.ends_with("; it printed \"nodes are busy\""), "{warned}");
        let silent = reason_after(vec![nothing(), line("cancelled")], None);
        let ended = reason_after(vec![line("nodes are busy")], Some(Exit::Code(1)));
        assert!(!silent.contains("printed") && !ended.contains("printed"), "{silent}, {ended}");
    }

    #[test]
    fn output_lines_do_not_count_as_last_events() {
        let all =
            (0..50).flat_map(|_| [event("0 leaves")].into_iter().chain((0..300).map(|_| printed("noise"))));
        let all = numbered(all).into_iter();
        let (kept, left_out) = excerpt(all, std::iter::empty());
        let is_output = |e: &&Event| matches!(e.kind, EventKind::Output { .. });
        assert_eq!(kept.iter().filter(is_output).count(), 2 * OUTPUT_LINES);
        assert_eq!((kept.len(), left_out), (LAST_EVENTS + 2 * OUTPUT_LINES, 50 - LAST_EVENTS));
        assert_eq!((kept[0].seq, kept[kept.len() - 1].seq), (1, 50 * 301 - 1));
    }
}
