//! From what became of scenarios to verdicts, and from verdicts to the end of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use pmi_scenario::requirement::Catalogue;
use pmi_scenario::suite::Suite;

use crate::backtrace::Backtrace;
use crate::crash::{Cause, Of, is_assertion, of_crash};
use crate::deviations::Deviations;
use crate::event::{Event, What};
use crate::negotiated;
use crate::own::{self, CRASH, CRASH_TEXT, JOBS_APART, STARTS};
use crate::verdict::{Attempts, Judged, Repeated, RunEnd, ScenarioResult, Strictness, Verdict};
use crate::{Finding, Outcome, Severity, Side, Unjudged};

/// Events of a failed scenario that go into its result, besides output.
pub const LAST_EVENTS: usize = 40;

/// Lines of output that go into it: so many of the first and so many of the last. They never take the place of an event.
pub const OUTPUT_LINES: usize = 20;

/// In the place of what a scenario is about whose findings are sensitive.
const KEPT_BACK: &str = "What this scenario sends is kept back: a finding of it is recorded as sensitive.";

/// Characters of a scenario's line that go into it.
const STEP: usize = 200;

/// Exit status where a scenario has a mistake.
const SCENARIO_ERROR: i32 = 2;

/// Bytes of a message that go into it; all are in the log.
const LAST_BYTES: usize = 4096;

/// Turns what became of a scenario into its result. `result` says which scenario it was, and how long it took; `quote` gives the
/// text of a line of it, and nothing where there is no such line.
pub fn of_scenario(
    mut result: ScenarioResult,
    mut outcome: Outcome,
    catalogue: &Catalogue,
    quote: impl Fn(usize) -> String,
    deviations: &mut Deviations,
    strict: Strictness,
) -> ScenarioResult {
    let mut findings: Vec<Judged> = Vec::new();
    let not_started = cannot_start(&outcome);
    for finding in outcome.findings {
        // The same at another rank, or once more, is the same finding.
        if !findings.iter().any(|j| same(&j.finding, &finding)) {
            let mut judged = judged(catalogue, finding);
            judged.step = quote(judged.finding.line).trim().chars().take(STEP).collect();
            findings.push(judged);
        }
    }
    if let Some((name, signal)) = &outcome.crashed {
        let of = Of::party(outcome.under_test, name);
        let trace = of_crash(&outcome.events, of, *signal);
        findings.push(Judged {
            finding: Finding {
                seq: outcome.events.len() as u64,
                place: trace.and_then(Backtrace::place),
                ..Finding::new(
                    CRASH,
                    outcome.under_test,
                    "its processes end by themselves",
                    crash(name, *signal, &outcome.events) + &located(trace),
                )
            },
            level: None,
            severity: Severity::Fail,
            text: CRASH_TEXT.into(),
            step: String::new(),
            deviation: None,
        });
    }
    findings.extend(not_started.map(|finding| judged(catalogue, finding)));
    // What was not judged does not show that a deviation no longer happens.
    if outcome.unjudged.is_none() || !findings.is_empty() {
        deviations.apply(&result.scenario, &mut findings);
    }
    let again = Again::of(&outcome.events);
    let is_red = |judged: &Judged| strict.counts(judged) && judged.deviation.is_none();
    let first = findings.iter().find(|judged| is_red(judged));
    if let Some(finding) = again.as_ref().and_then(|again| again.interference(outcome.under_test, first)) {
        // The job breaks these requirements only beside others.
        findings.retain(|judged| !is_red(judged));
        findings.insert(0, judged(catalogue, finding));
        deviations.apply(&result.scenario, &mut findings);
        outcome.hung = false;
    }
    let worst = findings.iter().map(|f| f.severity).max();
    let found = match worst {
        Some(Severity::Fail) if outcome.hung => Verdict::Hung,
        Some(Severity::Fail) => Verdict::Fail,
        Some(Severity::Warn) => Verdict::Warn,
        Some(Severity::Note) => Verdict::Note,
        // What ended early without a word has not passed.
        None if outcome.unreached > 0 => Verdict::Unjudged,
        None => Verdict::Pass,
    };
    result.verdict = match &outcome.unjudged {
        _ if outcome.scenario_error.is_some() => Verdict::Unjudged,
        Some(Unjudged::Interrupted) => Verdict::Unjudged,
        // A launcher that dies before it starts anything is no mystery.
        _ if outcome.crashed.is_some() => Verdict::Crashed,
        // A requirement that is broken before all processes have started is the reason why they do not.
        Some(Unjudged::NotStarted { .. }) if worst == Some(Severity::Fail) => found,
        Some(why) => why.verdict(),
        None => found,
    };
    result.unreached = outcome.unreached;
    result.reason = match outcome.scenario_error {
        Some((line, what)) => Some(format!("{}:{line}: {what}", result.path)),
        None if result.verdict == Verdict::Unjudged && outcome.unjudged.is_none() => {
            Some("it ended early, and nothing tells why: please report this".to_owned())
        }
        // The finding says why the processes have not started.
        None if matches!(result.verdict, Verdict::Fail | Verdict::Hung) => None,
        None => outcome.unjudged.map(|why| why.to_string()),
    };
    result.exit = outcome.events.iter().find_map(|e| match e.what {
        What::JobExited { exit } => Some(exit),
        _ => None,
    });
    result.negotiated = negotiated::versions(&outcome.events);
    if !matches!(result.verdict, Verdict::Pass | Verdict::NotApplicable) {
        result.last_events = last(outcome.events);
    }
    if let Some(again) = again {
        if is_interference(&findings) {
            let others = again.beside.iter().map(|other| format!(" --filter '={other}'"));
            result.replay.extend(others.chain([" --jobs 2 --repeat 5".to_owned()]));
        } else {
            result.attempts = Some(again.attempts(&findings));
        }
    }
    result.findings = findings;
    if deviations.are_sensitive_in(&result.scenario) {
        keep_back_input(&mut result);
    }
    result.at(strict)
}

/// Leaves nothing in a result but what was seen: what was sent, and how to send it again, is not for everybody.
fn keep_back_input(result: &mut ScenarioResult) {
    KEPT_BACK.clone_into(&mut result.summary);
    result.last_events.clear();
    result.replay.clear();
    for judged in &mut result.findings {
        judged.finding.line = 0;
        judged.step.clear();
    }
}

/// The finding about a launcher that ends with an error where a smaller number of processes starts.
fn cannot_start(outcome: &Outcome) -> Option<Finding> {
    let Some(Unjudged::NotStarted { launcher: Some(exit), .. }) = outcome.unjudged else { return None };
    let (seq, fewer) = outcome.events.iter().find_map(|event| match event.what {
        What::StartsFewer { ranks } => Some((event.seq, ranks)),
        _ => None,
    })?;
    let asked = outcome.events.iter().find_map(|event| match event.what {
        What::Launched { ranks, .. } => Some(ranks),
        _ => None,
    })?;
    let said = launcher_error(&outcome.events)?;
    let expected = format!("{asked} processes, as asked for: the same command starts {fewer}");
    let seen = format!("cannot start: {exit}, \"{said}\"");
    Some(Finding { seq, ..Finding::new(STARTS, outcome.under_test, expected, seen) })
}

/// Number of failures beside other jobs that distinguishes interference from chance if the scenario never fails alone.
pub const SHOWS_INTERFERENCE: u32 = 4;

/// Plays of a scenario after it had failed beside others.
#[derive(Default)]
struct Again {
    /// Alone: number of plays, and how many failed.
    alone: (u32, u32),
    /// Beside other jobs.
    together: (u32, u32),
    /// The scenarios of the other jobs.
    beside: Vec<String>,
    /// The scenario that has shown interference before in the same run.
    shown_by: Option<String>,
    /// Number of the event that reports it.
    seq: u64,
}

impl Again {
    fn of(events: &[Event]) -> Option<Self> {
        let mut all: Option<Self> = None;
        for event in events {
            let What::PlayedAgain { beside, played, failed, shown_by } = &event.what else { continue };
            let again = all.get_or_insert_default();
            let counts = if beside.is_empty() { &mut again.alone } else { &mut again.together };
            *counts = (counts.0 + played, counts.1 + failed);
            again.beside.extend(beside.iter().map(|other| other.scenario.clone()));
            again.shown_by = again.shown_by.take().or_else(|| shown_by.clone());
            again.seq = event.seq;
        }
        all
    }

    /// The finding that a failure depends on other jobs.
    fn interference(&self, under_test: Side, first: Option<&Judged>) -> Option<Finding> {
        let first = &first?.finding;
        let (names, (played, failed)) = (self.beside.join(", "), self.together);
        let how = match &self.shown_by {
            _ if self.alone.1 > 0 => return None,
            Some(scenario) => format!("it failed beside {names}, as {scenario} does beside others"),
            None if failed < SHOWS_INTERFERENCE => return None,
            None => format!("beside {names} it fails ({failed} of {played})"),
        };
        let expected = format!("the same as alone, where it passes ({} of {})", self.alone.0, self.alone.0);
        let seen =
            format!("interference between jobs: {how}, first with {}: {}", first.requirement, first.seen);
        Some(Finding { seq: self.seq, ..Finding::new(JOBS_APART, under_test, expected, seen) })
    }

    /// Counts all plays as attempts, the first of which failed.
    fn attempts(&self, findings: &[Judged]) -> Attempts {
        let found = findings.iter().map(|judged| Repeated { times: 1, judged: judged.clone() });
        Attempts {
            played: 1 + self.alone.0 + self.together.0,
            red: 1 + self.alone.1 + self.together.1,
            found: found.collect(),
        }
    }
}

/// Returns whether one of the findings is interference between jobs.
pub fn is_interference(findings: &[Judged]) -> bool {
    findings.iter().any(|judged| judged.finding.requirement == JOBS_APART)
}

/// Characters of an error message in a finding.
const ERROR_MESSAGE: usize = 160;

/// The first line that was written to standard error, or else to standard output.
pub fn launcher_error(events: &[Event]) -> Option<String> {
    let said = |wanted: bool| {
        events.iter().find_map(move |event| match &event.what {
            What::Output { stderr, line, .. } if *stderr == wanted => {
                let text = String::from_utf8_lossy(&line.0);
                let text: String = text.trim().chars().take(ERROR_MESSAGE).collect();
                (!text.is_empty()).then_some(text)
            }
            _ => None,
        })
    };
    said(true).or_else(|| said(false))
}

/// A crash in words by which it is told from others: who died of what, and the last that tells why.
fn crash(name: &str, signal: i32, events: &[Event]) -> String {
    if Cause::of(signal) == Cause::BrokenPipe {
        // Whose end that was, nobody tells: a launcher writes to its proxies as well.
        return format!("{name} died of signal {signal}, writing to a connection whose other end was closed");
    }
    let output = events.iter().filter_map(|e| match &e.what {
        What::Output { line, .. } => std::str::from_utf8(&line.0).ok(),
        _ => None,
    });
    let aborted = Cause::of(signal) == Cause::Abort;
    match output.map(str::trim).find(|line| aborted && is_assertion(line)) {
        Some(line) => format!("{name} died of signal {signal}: {line}"),
        None => format!("{name} died of signal {signal}"),
    }
}

/// Where a process died, in words to be put behind how it did; addresses that differ from run to run are left out.
fn located(trace: Option<&Backtrace>) -> String {
    let Some((place, frame)) = trace.and_then(|trace| Some((trace.place()?, trace.blamed()?))) else {
        return String::new();
    };
    let line = frame.line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
    format!(" (in {place}{line})")
}

/// Returns whether a result shows an event.
pub fn is_shown(event: &Event) -> bool {
    !matches!(event.what, What::Expected(_) | What::Nothing { .. })
}

/// What a result shows of what happened.
fn last(events: Vec<Event>) -> Vec<Event> {
    let (output, events): (Vec<Event>, Vec<Event>) =
        events.into_iter().filter(is_shown).partition(|e| matches!(e.what, What::Output { .. }));
    let (first, last) = (OUTPUT_LINES, output.len().saturating_sub(OUTPUT_LINES));
    let edge = |(i, line): (usize, Event)| (i < first || i >= last).then_some(line);
    let from = events.len().saturating_sub(LAST_EVENTS);
    let mut kept: Vec<Event> = output.into_iter().enumerate().filter_map(edge).collect();
    kept.extend(events.into_iter().skip(from));
    kept.sort_by_key(|event| event.seq);
    for event in &mut kept {
        event.what.bytes_mut().into_iter().for_each(|bytes| bytes.truncate(LAST_BYTES));
    }
    kept
}

/// Whether a finding says no more than another.
pub fn same(one: &Finding, other: &Finding) -> bool {
    one.requirement == other.requirement && one.expected == other.expected && one.seen == other.seen
}

/// A finding with what its requirement says.
pub fn judged(catalogue: &Catalogue, finding: Finding) -> Judged {
    let requirement = catalogue.get(&finding.requirement);
    let severity = requirement.map_or(Severity::Fail, |r| r.severity());
    Judged {
        severity: finding.at_most.map_or(severity, |most| severity.min(most)),
        level: requirement.map(|r| r.level),
        text: match requirement {
            Some(requirement) => requirement.text.clone(),
            None => own::text(&finding.requirement).unwrap_or_default().to_owned(),
        },
        finding,
        step: String::new(),
        deviation: None,
    }
}

/// How a run went, besides its results.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// Scenarios that were selected.
    pub selected: usize,
    /// The user ended it.
    pub interrupted: bool,
    /// Some scenario has a mistake.
    pub scenario_errors: bool,
    /// What is red.
    pub strict: Strictness,
    /// What it took.
    pub time: Duration,
}

/// What a whole run came to.
pub fn of_run(suite: &Suite, results: &[ScenarioResult], deviations: &Deviations, ran: Ran) -> RunEnd {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for result in results {
        *counts.entry(result.verdict).or_default() += 1;
    }
    let unfinished = ran.selected - results.len();
    // A run that was cut short has not looked everywhere.
    let stale = if unfinished == 0 { deviations.stale(suite) } else { Vec::new() };
    let end = RunEnd {
        deviations: 0,
        counts,
        stale,
        unfinished,
        interrupted: ran.interrupted,
        exit_code: if ran.scenario_errors { SCENARIO_ERROR } else { 0 },
        time_us: ran.time.as_micros() as u64,
    };
    end_at(end, results, ran.strict)
}

/// The same end by another strictness, by which these results are.
pub fn end_at(mut end: RunEnd, results: &[ScenarioResult], strict: Strictness) -> RunEnd {
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
    end.deviations = results.iter().filter(|r| r.deviates_as_recorded).count();
    end
}

#[cfg(test)]
mod tests {
    use pmi_wire::Proc;

    use super::*;
    use crate::backtrace::Frame;
    use crate::event::Bytes;

    #[test]
    fn crashes_are_told_apart() {
        let event = |what| Event::new(0, what);
        let says = |text: &str| {
            event(What::Output { proc: None, stderr: true, line: Bytes(text.as_bytes().to_vec()) })
        };
        let failed = "pm: pm.c:12: serve: Assertion `n > 0' failed.";
        for (signal, events, told) in [
            (11, vec![says(failed)], "pm died of signal 11".to_owned()),
            (6, vec![says("starting"), says(failed), says("bye")], format!("pm died of signal 6: {failed}")),
            (
                13,
                vec![says(failed)],
                "pm died of signal 13, writing to a connection whose other end was closed".to_owned(),
            ),
        ] {
            assert_eq!(crash("pm", signal, &events), told);
        }
    }

    #[test]
    fn where_it_died_stands_behind_how() {
        let frame = |function: &str, line: Option<&str>| Frame {
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
        assert_eq!(located(Some(&called)), " (in serve at pm.c:12)");
        assert_eq!(located(Some(&trace(vec![abort(), frame("serve", None)]))), " (in serve)");
        assert_eq!((located(Some(&trace(Vec::new()))), located(None)), (String::new(), String::new()));
    }

    #[test]
    fn output_never_takes_the_place_of_what_was_said() {
        let line = || What::Output { proc: None, stderr: true, line: Bytes(b"noise".to_vec()) };
        let said = || What::ClosedByClient { proc: Proc { group: 0, rank: 0 } };
        let all = (0..50).flat_map(|_| std::iter::once(said()).chain((0..300).map(|_| line())));
        let kept = last((0..).zip(all).map(|(seq, what)| Event::new(seq, what)).collect());
        let is_output = |e: &&Event| matches!(e.what, What::Output { .. });
        assert_eq!(kept.iter().filter(is_output).count(), 2 * OUTPUT_LINES);
        assert_eq!(kept.len(), LAST_EVENTS + 2 * OUTPUT_LINES);
        assert_eq!((kept[0].seq, kept[kept.len() - 1].seq), (1, 50 * 301 - 1));
    }
}
