//! The failures of a server.

use std::collections::BTreeMap;

use pmi_judge::backtrace::Backtrace;
use pmi_judge::crash::{BROKEN_MEMORY, CrashedProcess, SignalCause, crash_backtrace, program_name};
use pmi_judge::event::{Event, EventKind, SilenceProof};
use pmi_judge::{Finding, ObservationKind, Severity};
use pmi_scenario::ids;
use pmi_scenario::requirement::Catalogue;
use pmi_wire::{Framing, Proc};

use super::{distinct, located, site};
use crate::observe::failure::{CrashCause, Failure, FailureKey, LastAction, signal_name};
use crate::observe::message_kind::kinds;
use crate::observe::message_kind::{MessageKind, UpstreamKind};
use crate::observe::observation::Observation;
use crate::observe::proxy_status;

/// Requirements on the correspondence between requests and responses. After a violation, it is uncertain which request a response answers.
const CORRELATION_RULES: [&str; 3] =
    [ids::RFC13_WIRE_LOCK_STEP, ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, ids::PMI2_COMMON_ONE_RESPONSE];

/// The kind of the last message in each write to the server, and the number of requests that the write completes, by the number of the
/// write's event.
type WriteKinds = BTreeMap<u64, (MessageKind, usize)>;

/// Returns the likelihood that a process died only because another process had died, from 0 (lowest) to 2 (highest).
pub(crate) fn death_likelihood((_, signal): &(String, i32)) -> u8 {
    match SignalCause::of(*signal) {
        SignalCause::OtherProcess => 2,
        SignalCause::BrokenPipe => 1,
        _ => 0,
    }
}

/// Returns all failures of a server, worst first and without duplicates.
pub(crate) fn failures(seen: &Observation, catalogue: &Catalogue) -> Vec<Failure> {
    let mut all = Vec::new();
    let fails =
        |key, description| Failure { key, description, requirement: None, seq: None, backtrace: None };
    let crash = |key, description, trace: Option<&Backtrace>| Failure {
        backtrace: trace.cloned().map(Box::new),
        ..fails(key, description)
    };
    let kinds = kinds(&seen.events, seen.dialect);
    let last = last_action(seen, &kinds);
    let crashed =
        seen.crashed.as_ref().filter(|(_, signal)| SignalCause::of(*signal) != SignalCause::OtherProcess);
    if let Some((name, signal)) = crashed {
        let program = program_name(name).to_owned();
        let trace = crash_backtrace(&seen.events, CrashedProcess::Server(&program), *signal);
        let at = located(trace);
        let description =
            format!("{program} died of signal {signal} ({}){at} after {last}", signal_name(*signal));
        // For a process that wrote to a closed connection, the last action is not significant.
        let after = (SignalCause::of(*signal) != SignalCause::BrokenPipe).then(|| last.clone());
        let site = site(trace, None, after);
        all.push(crash(
            FailureKey::Crash { program, cause: CrashCause::Signal(*signal), site },
            description,
            trace,
        ));
    } else if let Some((program, cause)) = reported_end(seen) {
        let words = match &cause {
            CrashCause::Signal(signal) => signal_name(*signal),
            CrashCause::Message(text) => text,
        };
        let trace = match &cause {
            CrashCause::Signal(signal) => {
                crash_backtrace(&seen.events, CrashedProcess::Server(&program), *signal)
            }
            // The process that printed the message is unknown, so any process that died of SIGABRT is accepted.
            CrashCause::Message(_) => {
                crash_backtrace(&seen.events, CrashedProcess::Any, signal_hook::consts::SIGABRT)
            }
        };
        let description = format!("{program}: {words}{}, after {last}", located(trace));
        let site = site(trace, None, Some(last.clone()));
        all.push(crash(FailureKey::Crash { program, cause, site }, description, trace));
    }
    if seen.flood {
        all.push(fails(
            FailureKey::Flood(last.clone()),
            format!("the server does not stop sending after {last}"),
        ));
    }
    // If the harness stopped the server because of its memory use, neither missing responses nor a job that does not end are failures.
    let stopped = seen.grows_dangerously();
    if let Some(proof) = seen.running_job.filter(|_| all.is_empty() && !stopped) {
        let evidence = match proof {
            SilenceProof::Idle | SilenceProof::Unread => "the manager's processes wait forever",
            SilenceProof::Polled | SilenceProof::Timeout => {
                "the manager's processes are busy or wait for a timer"
            }
        };
        let description = format!(
            "the job does not end although all of its processes have ended: {evidence}, after {last}"
        );
        all.push(fails(FailureKey::JobKeepsRunning(last), description));
    }
    let over = !all.is_empty() || stopped;
    if let Some(growth) = seen.growth.as_ref().filter(|growth| growth.is_too_much()) {
        let (name, grown, sent) = (growth.name.clone(), growth.bytes >> 20, growth.sent);
        let description =
            format!("the memory of {name} grew by {grown} MiB in a session that sent it {sent} bytes");
        all.push(fails(FailureKey::Memory(name), description));
    }
    all.extend(broken(seen, &kinds, catalogue, over));
    distinct(all)
}

/// Returns the judge's findings that are failures. If `over` is true, a missing response is not a failure, because the server has already
/// failed in a more serious way or was stopped by the harness.
fn broken(seen: &Observation, kinds: &WriteKinds, catalogue: &Catalogue, over: bool) -> Vec<Failure> {
    let is_end = |finding: &Finding| finding.kind == Some(ObservationKind::ConnectionEnd);
    let fails = |finding: &&Finding| {
        let severity = catalogue.get(&finding.requirement).map_or(Severity::Fail, |r| r.severity());
        // A campaign reports a server that is blocked by a partial request, although the judge reports it only as a note.
        let at_most = finding
            .max_severity
            .filter(|_| finding.kind != Some(ObservationKind::SilenceDuringPartialRequest));
        at_most.map_or(severity, |most| severity.min(most)) == Severity::Fail
    };
    let findings: Vec<&Finding> = seen.findings.iter().filter(fails).collect();
    // A server that ends the job in reaction to a request also leaves other processes without a response: those that wait, and those that
    // make requests before they notice the end. Only the process that caused the end counts.
    let lost = || findings.iter().filter(|f| is_end(f));
    let end = lost().map(|f| f.seq).min();
    let waited =
        |f: &Finding| last_write_index(seen, f).filter(|at| end.is_some_and(|end| (*at as u64) < end));
    let first = end.and_then(|_| {
        // Prefer a process that does not wait for others, because a waiting process did not cause the end of the job.
        let waits = |at: &usize| {
            let kind = seen.events.get(*at).and_then(|event| kinds.get(&event.seq));
            matches!(kind, Some((MessageKind::Request(op), _)) if op.waits())
        };
        lost().filter_map(|f| waited(f)).min_by_key(|at| (waits(at), *at))
    });
    let out_of_step =
        findings.iter().filter(|f| CORRELATION_RULES.contains(&&*f.requirement)).map(|f| f.seq).min();
    let mut all = Vec::new();
    for finding in &findings {
        // Findings after a response that does not match its request are ignored, because they are consequences of the mismatch.
        if out_of_step.is_some_and(|seq| finding.seq > seq) {
            continue;
        }
        if is_end(finding) && last_write_index(seen, finding).is_some_and(|at| Some(at) != first) {
            continue;
        }
        // A server that has exited cannot respond, so a missing response is not a failure.
        if over && finding.kind.is_some_and(ObservationKind::is_missing_answer) {
            continue;
        }
        let requirement = finding.requirement.clone();
        let after = match finding.kind {
            Some(ObservationKind::Response(op)) => LastAction::Message(MessageKind::Request(op.into())),
            _ => last_request(seen, kinds, finding.proc, finding.seq),
        };
        let description = format!("{requirement}: expected {}; seen: {}", finding.expected, finding.seen);
        let (key, description) = match finding.kind {
            Some(ObservationKind::SilenceDuringPartialRequest) => (
                FailureKey::HangDuringPartialRequest,
                format!("{after} is not answered while another process has sent only part of a request"),
            ),
            Some(ObservationKind::Silence) => {
                let requirement = Some(requirement.clone());
                (FailureKey::Hang { party: None, requirement, call: None, after }, description)
            }
            _ => (FailureKey::Rule { party: None, requirement: requirement.clone(), after }, description),
        };
        let seq = Some(finding.seq);
        all.push(Failure { key, description, requirement: Some(requirement), seq, backtrace: None });
    }
    all
}

/// Returns the source and the cause of an abnormal end that the output reports. Hydra's `assert (...) failed` does not count, because Hydra
/// logs every error in this form. Neither does a launcher's report about a process that the harness killed with SIGSEGV.
fn reported_end(seen: &Observation) -> Option<(String, CrashCause)> {
    const SEGFAULT: &str = "Segmentation fault";
    const ABORT_SIGNS: [&str; 5] = ["Assertion", "corrupted", SEGFAULT, "panicked at", "Sanitizer"];
    let lines = || {
        seen.events.iter().filter_map(|event| match &event.kind {
            EventKind::Output { line, .. } => Some(String::from_utf8_lossy(&line.0)),
            _ => None,
        })
    };
    let by_proxy = lines().find_map(|line| proxy_status::read(&line));
    by_proxy.map(|(name, signal)| (name, CrashCause::Signal(signal))).or_else(|| {
        let signs = || {
            ABORT_SIGNS.iter().chain(&BROKEN_MEMORY).filter(|sign| !(seen.segfaults && **sign == SEGFAULT))
        };
        let line = lines().find(|text| signs().any(|sign| text.contains(sign)))?;
        Some(("output".to_owned(), CrashCause::Message(mask(&line))))
    })
}

/// Removes the parts of a message that differ from run to run: addresses, process ids, and host names in brackets.
fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut bracket = false;
    for word in text.split_whitespace() {
        bracket |= word.starts_with('[');
        let ends = word.ends_with(']');
        let hex = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let numeric = hex.starts_with("0x") || (hex.len() > 3 && hex.bytes().all(|b| b.is_ascii_digit()));
        if !bracket && !numeric {
            let short = word.rsplit('/').next().unwrap_or(word);
            out += short;
            out.push(' ');
        }
        bracket &= !ends;
    }
    out.truncate(out.floor_char_boundary(100));
    out.trim().to_owned()
}

/// Returns the last action of the harness before the first sign of trouble in the implementation.
fn last_action(seen: &Observation, kinds: &WriteKinds) -> LastAction {
    let trouble = seen.events.iter().position(|e| {
        matches!(
            e.kind,
            EventKind::ClosedByServer { .. }
                | EventKind::Ended { ours: false, .. }
                | EventKind::Crashed { .. }
                | EventKind::JobExited { .. }
        )
    });
    // Every session ends in the same way, so its end is not an action of the case.
    let events = &seen.events[..trouble.map_or(seen.scenario_events, |at| at.min(seen.scenario_events))];
    for event in events.iter().rev() {
        match &event.kind {
            EventKind::ToServer { .. } => {
                return kinds
                    .get(&event.seq)
                    .map_or(LastAction::Start, |(kind, _)| LastAction::Message(*kind));
            }
            EventKind::ToProxy { text, scripted: true, .. } => {
                return LastAction::Upstream(UpstreamKind::of(&text.0));
            }
            EventKind::ClosedByUpstream { .. } => return LastAction::UpstreamClose,
            EventKind::ClosedByClient { .. } => return LastAction::Close,
            EventKind::Ended { ours: true, .. } => return LastAction::Exit,
            _ => {}
        }
    }
    LastAction::Start
}

/// Returns the index of the last write that the finding's process made before the finding.
fn last_write_index(seen: &Observation, finding: &Finding) -> Option<usize> {
    let before = &seen.events[..seen.events.len().min(finding.seq as usize)];
    before
        .iter()
        .rposition(|e| matches!(e.kind, EventKind::ToServer { proc, .. } if finding.proc == Some(proc)))
}

/// Returns whether an event shows bytes that were sent by `proc`, or by any process if `proc` is `None`.
fn is_of(event: &Event, proc: Option<Proc>) -> bool {
    matches!(event.kind, EventKind::ToServer { proc: by, .. } if proc.is_none_or(|p| p == by))
}

/// Returns the last request that `proc` made before an event, or that any process made if `proc` is `None`.
fn last_request(seen: &Observation, kinds: &WriteKinds, proc: Option<Proc>, seq: u64) -> LastAction {
    let events = &seen.events[..seen.events.len().min(seq as usize)];
    let mut last = None;
    let mut requests = 0;
    for event in events.iter().rev() {
        match &event.kind {
            EventKind::ToServer { proc: by, .. } if proc.is_none_or(|p| p == *by) => {
                let Some((kind, completed)) = kinds.get(&event.seq) else { continue };
                requests += completed;
                last.get_or_insert(*kind);
            }
            EventKind::FromServer { proc: to, .. } | EventKind::NoResponse { proc: to, .. }
                if proc == Some(*to) =>
            {
                break;
            }
            _ => {}
        }
    }
    // In PMI-2, a process may have several requests in progress. If it has made no request since its last response, use the last request
    // before that response.
    let earlier = || events.iter().rev().find(|e| kinds.contains_key(&e.seq) && is_of(e, proc));
    let of_threads = seen.dialect.framing() == Framing::Frames;
    let last = last.or_else(|| kinds.get(&earlier().filter(|_| of_threads)?.seq).map(|(kind, _)| *kind));
    if requests > 1 { LastAction::Pipelined } else { last.map_or(LastAction::Start, LastAction::Message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;
    use pmi_judge::{Monitor, PartyKind};

    #[test]
    fn job_end_is_attributed_to_first_non_barrier_request() {
        let proc = |rank| Proc { group: 0, rank };
        let request = |rank, text: &str| EventKind::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
        let after_requests = |of_0: &str| {
            let joined = [0, 1].into_iter().flat_map(|rank| {
                let bytes = Bytes(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec());
                let init = request(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
                [init, EventKind::FromServer { proc: proc(rank), bytes }]
            });
            let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
            let rest = [
                request(0, of_0),
                request(1, "cmd=get_universe_size\n"),
                EventKind::ClosedByServer { proc: proc(1) },
                EventKind::ClosedByServer { proc: proc(0) },
            ];
            let kinds = std::iter::once(launched).chain(joined).chain(rest);
            let events: Vec<_> = kinds.zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect();
            let mut monitor = Monitor::new();
            events.iter().for_each(|event| monitor.observe(event));
            Observation { events, findings: monitor.take_findings(), ..Observation::default() }
        };
        let buckets = |seen: &Observation| -> Vec<String> {
            failures(seen, &Catalogue::default()).into_iter().map(|f| f.key.to_string()).collect()
        };
        let mut seen = after_requests("cmd=get_appnum\n");
        assert_eq!(seen.findings.len(), 2);
        assert_eq!(buckets(&seen), ["rule--rfc13.abnf.c-appnum--get_appnum"]);
        seen.findings.retain(|found| found.proc == Some(proc(1)));
        assert_eq!(buckets(&seen), ["rule--rfc13.abnf.c-universe--get_universe_size"]);
        assert_eq!(
            buckets(&after_requests("cmd=barrier_in\n")),
            ["rule--rfc13.abnf.c-universe--get_universe_size"]
        );
    }

    #[test]
    fn ignores_findings_after_an_unexpected_response() {
        let found =
            |seq, requirement: &str| Finding { seq, ..Finding::new(requirement, PartyKind::Server, "", "") };
        let findings = vec![
            found(1, "rfc13.get.value"),
            found(2, "rfc13.wire.lock-step"),
            found(3, "rfc13.barrier.all-in-before-any-out"),
        ];
        let seen = Observation { findings, ..Observation::default() };
        let all = failures(&seen, &Catalogue::default());
        let requirements: Vec<_> = all.iter().filter_map(|f| f.requirement.as_deref()).collect();
        assert_eq!(requirements, ["rfc13.get.value", "rfc13.wire.lock-step"]);
    }

    #[test]
    fn report_of_a_killed_process_is_not_a_server_crash() {
        let found = |text: &str, segfaults| {
            let line = Bytes(text.into());
            let events = vec![Event::new(0, EventKind::Output { proc: None, stderr: false, line })];
            failures(&Observation { events, segfaults, ..Observation::default() }, &Catalogue::default())
                .len()
        };
        let hydra = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)";
        assert_eq!((found(hydra, false), found(hydra, true)), (1, 0));
        assert_eq!(found("pm: main.c:7: Assertion `n' failed", true), 1);
    }

    #[test]
    fn crash_messages_do_not_depend_on_the_run() {
        let a = mask("[mpiexec@host-1] control_cb (proxy/cb.c:280): assert (!closed) failed");
        let b = mask("[mpiexec@other] control_cb (/build/17/proxy/cb.c:280): assert (!closed) failed");
        assert_eq!(a, b);
        assert!(a.contains("assert (!closed) failed"), "{a}");
        assert_eq!(
            mask("*** free(): invalid pointer: 0x00007f *** 12345"),
            "*** free(): invalid pointer: ***"
        );
        assert_eq!(program_name("the launcher, hydra_pmi_proxy,"), "hydra_pmi_proxy");
    }
}
