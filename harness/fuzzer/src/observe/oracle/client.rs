//! The failures of a program or a library.
//!
//! A client that receives invalid responses may fail, but it must not crash or hang, and its further messages must be valid PMI. A process
//! does not count as hanging while the harness owes it a message, or while it waits for another process that the harness has misled.

use std::borrow::Cow;
use std::cell::LazyCell;

use pmi_judge::builtin_requirements::NO_HANG;
use pmi_judge::crash::{CrashedProcess, crash_backtrace};
use pmi_judge::event::{Event, EventKind, Exit};
use pmi_judge::{Finding, LINE_LIMIT, ObservationKind, ScenarioOutcome, Severity};
use pmi_runner::interpret::MAX_KEPT_MESSAGE;
use pmi_scenario::ast::{Dialect, ImplementationKind, Role, Statement, Step, StepAction, Template};
use pmi_scenario::ids;
use pmi_scenario::requirement::{Catalogue, RequirementSet};
use pmi_wire::grammar::parse_uint;
use pmi_wire::pmi2::{Body, SemicolonReading};
use pmi_wire::{Connection, Direction, Framed, Framing, FramingError, Operation, Proc};

use super::{distinct, located, site};
use crate::mutate::client_steps::MAPPING;
use crate::observe::failure::{
    CrashCause, Failure, FailureKey, LastAction, LastRequest, ResponseKind, signal_name,
};
use crate::observe::message_kind::{MessageKind, kinds};
use crate::session::case::Case;
use crate::session::op::Op;
use crate::session::pieces::{Limit, written_bytes};
use crate::session::reading::{MessageReader, ParsedResponse, WireMessage, request};
use crate::session::statement::{encoding_of, sent};

/// Returns all failures of a program or a library, worst first and without duplicates.
pub(crate) fn failures(case: &Case, outcome: &ScenarioOutcome, catalogue: &Catalogue) -> Vec<Failure> {
    let party = if case.tests() == ImplementationKind::Client { "client" } else { "library" };
    let events = &outcome.events;
    let mut all = Vec::new();
    if let Some((name, signal)) = &outcome.crashed {
        let dead = events.iter().find_map(|e| match e.kind {
            EventKind::Exited { proc, exit: Exit::Signal(s) } if s == *signal => Some((proc, e.seq)),
            _ => None,
        });
        let after = dead.map_or(LastAction::NoRequest, |(proc, seq)| relevant_response(events, proc, seq));
        let call =
            dead.and_then(|(proc, seq)| current_call(events, proc, seq)).map(|(_, name)| name.to_owned());
        let of = signal_name(*signal);
        let trace = crash_backtrace(events, CrashedProcess::Any, *signal);
        let at = located(trace);
        let at = at.trim_end_matches(',');
        all.push(Failure {
            description: format!("{name} died of signal {signal} ({of}){at}; last unusual response: {after}"),
            key: FailureKey::Crash {
                program: party.to_owned(),
                cause: CrashCause::Signal(*signal),
                site: site(trace, call, Some(after)),
            },
            requirement: None,
            seq: None,
            backtrace: trace.cloned().map(Box::new),
        });
    }
    let kinds = LazyCell::new(|| kinds(events, case.scenario.dialect));
    // Apart from hangs, only the first violation by each process counts, because further violations may be its consequences.
    let mut first = std::collections::HashSet::new();
    for finding in &outcome.findings {
        let hang = finding.requirement == NO_HANG || outcome.hung && is_hang(finding, outcome);
        if hang && is_excused(finding, case, events) || !hang && is_ours(finding, case, events) {
            continue;
        }
        let severity = catalogue.get(&finding.requirement).map_or(Severity::Fail, |r| r.severity());
        if finding.max_severity.map_or(severity, |most| severity.min(most)) < Severity::Fail {
            continue;
        }
        if !hang && finding.proc.is_some_and(|p| !first.insert(p)) {
            continue;
        }
        let response =
            finding.proc.map_or(LastAction::NoRequest, |p| relevant_response(events, p, finding.seq));
        let description = format!(
            "{}: expected {}; seen: {}; last unusual response: {response}",
            finding.requirement, finding.expected, finding.seen
        );
        let party = Some(party);
        let key = if hang {
            let call = finding.proc.and_then(|p| current_call(events, p, finding.seq));
            let call = call.map(|(_, function)| function.to_owned());
            FailureKey::Hang { party, requirement: None, call, after: response }
        } else {
            // A malformed request breaks the rule regardless of the response before it, so the key omits that response.
            let malformed =
                kinds.get(&finding.seq).filter(|(kind, _)| matches!(kind, MessageKind::Malformed(_)));
            let after = malformed.map_or(response, |(kind, _)| LastAction::Message(*kind));
            FailureKey::Rule { party, requirement: finding.requirement.clone(), after }
        };
        let requirement = catalogue.get(&finding.requirement).map(|r| r.id.clone());
        all.push(Failure { key, description, requirement, seq: Some(finding.seq), backtrace: None });
    }
    distinct(all)
}

/// Returns the number of the event that began a process's current library call, and the called function.
fn current_call(events: &[Event], proc: Proc, until: u64) -> Option<(u64, &str)> {
    events.iter().rev().filter(|e| e.seq <= until).find_map(|e| match &e.kind {
        EventKind::Called { proc: by, function, .. } if *by == proc => Some((e.seq, function.as_str())),
        _ => None,
    })
}

/// Returns the most relevant response that a process received. If the process is in a library call, only responses to that call count.
fn relevant_response(events: &[Event], proc: Proc, until: u64) -> LastAction {
    let began = current_call(events, proc, until).map_or(0, |(seq, _)| seq);
    ExchangeHistory::of(events.iter().filter(|e| e.seq <= until), proc).relevant_response(began)
}

/// Returns whether a finding may be about a hang. This is possible only for the last finding with a line in the scenario, because nothing
/// is played after a hang.
fn is_hang(finding: &Finding, outcome: &ScenarioOutcome) -> bool {
    finding.line > 0 && outcome.findings.iter().rfind(|f| f.line > 0) == Some(finding)
}

/// Returns whether the harness may have caused a hang. This is the case if the harness has killed a process, sends a plausible wrong value,
/// or owes a response to the process or to another process, for which the first process may be waiting.
fn is_excused(finding: &Finding, case: &Case, events: &[Event]) -> bool {
    let killed = events.iter().any(|e| matches!(e.kind, EventKind::Ended { ours: true, .. }));
    if killed || sends_wrong_value(case) {
        return true;
    }
    // At the end, the harness kills every process that does not exit on its own. Events after that do not excuse a hang.
    let is_end = |e: &Event| e.seq > finding.seq || matches!(e.kind, EventKind::StillRunning { .. });
    let events = &events[..events.iter().position(is_end).unwrap_or(events.len())];
    let mut procs: Vec<Proc> = events
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::Started { proc, .. } => Some(proc),
            _ => None,
        })
        .collect();
    procs.retain(|p| !events.iter().any(|e| matches!(e.kind, EventKind::Exited { proc, .. } if proc == *p)));
    let history = |p: Proc| ExchangeHistory::of(events, p);
    let Some(own) = finding.proc.map(history) else { return false };
    own.awaits_response()
        || !own.ended_early && procs.iter().any(|p| Some(*p) != finding.proc && history(*p).awaits_response())
}

/// Returns the request that a step expects from the client, or `None` for any other step.
fn answered(statement: &Statement) -> Option<&Template> {
    match statement {
        Statement::Step(Step { role: Role::Client, action: StepAction::Message { lines, .. }, .. }) => {
            lines.first()
        }
        _ => None,
    }
}

/// Returns whether a pattern has this value for a key.
fn names(pattern: &Template, key: &str, value: &str) -> bool {
    pattern.message_fields().iter().any(|f| f.key == key && f.value.literal().as_deref() == Some(value))
}

/// Returns whether a case sends a plausible but wrong response. No client can detect that such a response is wrong.
fn sends_wrong_value(case: &Case) -> bool {
    let mut mapping = false;
    case.scenario.body.iter().any(|statement| {
        if let Some(pattern) = answered(statement) {
            mapping = names(pattern, "key", MAPPING);
        }
        let mut lines = sent(statement, case.tests()).into_iter().flatten();
        lines.any(|line| is_plausible(case.scenario.dialect, statement, line, mapping))
    })
}

/// Returns whether a line looks like a response that a process relies on: a response with a value, or the response to a barrier.
fn is_plausible(dialect: Dialect, statement: &Statement, line: &Template, mapping: bool) -> bool {
    let bytes = written_bytes(encoding_of(statement), std::slice::from_ref(line), false);
    let is_plausible = |framing, text: &[u8]| {
        ParsedResponse::read(framing, text).is_some_and(|answered| {
            let relied_on = match framing {
                Framing::Lines => answered.op.is(&["get", "kvsname"]),
                Framing::Frames => true,
            };
            let has_value = relied_on && answered.fields_of_operation().next().is_some();
            answered.is_success() && !mapping && (has_value || answered.op.is(&["barrier"]))
        })
    };
    MessageReader::new(dialect.framing()).push(&bytes).iter().any(|bytes| match bytes {
        WireMessage::Line(line) => dialect.framing() == Framing::Lines && is_plausible(Framing::Lines, line),
        WireMessage::Body(body) => is_plausible(Framing::Frames, body),
        WireMessage::NoFrame => false,
    })
}

/// Returns whether the harness's responses caused the violation of a rule. A response in the case can release a process from a barrier, or
/// change the name of its keyval space. A surplus response may stay unread until the next request, or count as the response to that
/// request. RFC 13 does not define protocol errors, so a client may treat even a response with the expected command as a protocol
/// error.
fn is_ours(finding: &Finding, case: &Case, events: &[Event]) -> bool {
    let answers = |operation: &str| {
        let op = Op::of(case.scenario.dialect, operation);
        let answered = case.scenario.body.iter().filter_map(answered);
        op.is_some_and(|op| answered.into_iter().any(|pattern| names(pattern, "cmd", op.name())))
    };
    if finding.kind == Some(ObservationKind::EarlyBarrierExit) && answers("barrier") {
        return true;
    }
    let id = finding.requirement.as_str();
    if follows_from_names(id) && answers("kvsname") {
        return true;
    }
    let Some(proc) = finding.proc else { return false };
    let history = ExchangeHistory::of(events.iter().filter(|e| e.seq <= finding.seq), proc);
    let detects = [
        ids::RFC13_ERROR_CLOSE,
        ids::RFC13_ERROR_ABORT,
        ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS,
        ids::PMI2_COMMON_FINALIZE_LAST,
        ids::PMI2_COMMON_FULLINIT_FIRST,
    ];
    // A client that accepts a malformed response to its offer continues with PMI-2. The harness does not notice this, so the violation does
    // not count against the client.
    if case.scenario.dialect.framing() == Framing::Frames && history.has_garbled_version() {
        return true;
    }
    let wrong = [
        ResponseKind::Unreadable,
        ResponseKind::ForOtherRequest,
        ResponseKind::Refused,
        ResponseKind::NoFrame,
    ];
    history.has(&[ResponseKind::Surplus]) || detects.contains(&id) && !history.has(&wrong)
}

/// Returns whether a request that repeats a name from a response can break the rule.
fn follows_from_names(id: &str) -> bool {
    [ids::RFC13_KVS_NAME_USED, ids::RFC13_WIRE_TUPLES, ids::RFC13_WIRE_NEWLINE].contains(&id)
        || RequirementSet::of(id) == RequirementSet::Rfc13Grammar
}

/// A request without a response.
struct PendingRequest {
    kind: MessageKind,
    op: Option<Op>,
    /// The number of the thread that made the request.
    thrid: Option<Vec<u8>>,
}

/// A process's requests and the responses to them.
#[derive(Default)]
struct ExchangeHistory {
    /// For each response, the number of its event, the request, and the kind of response.
    pairs: Vec<(u64, LastRequest, ResponseKind)>,
    /// The pending requests: at most one, unless several threads make requests.
    open: Vec<PendingRequest>,
    /// True if the connection has ended.
    closed: bool,
    /// True if the connection ended while the process still needed it.
    ended_early: bool,
}

impl ExchangeHistory {
    fn of<'a>(events: impl IntoIterator<Item = &'a Event>, proc: Proc) -> Self {
        let mut history = Self::default();
        let mut connection = Connection::new(LINE_LIMIT);
        for event in events {
            match &event.kind {
                EventKind::ToServer { proc: by, bytes } if *by == proc => {
                    connection.push(Direction::ToServer, &bytes.0);
                    let mut in_frames = connection.framing() == Framing::Frames;
                    while let Some(message) = connection.next(Direction::ToServer) {
                        match message {
                            Ok(Framed { framing: Framing::Frames, text }) => history.asks_in_frame(text),
                            Ok(Framed { framing: Framing::Lines, .. }) => {}
                            // A request that cannot be parsed is also pending.
                            Err(_) => {
                                in_frames = true;
                                history.open.push(PendingRequest {
                                    kind: MessageKind::NoFrame,
                                    op: None,
                                    thrid: None,
                                });
                            }
                        }
                    }
                    if !in_frames {
                        history.asks_in_lines(&bytes.0);
                    }
                    history.ended_early |= history.closed;
                }
                EventKind::FromServer { proc: to, bytes } if *to == proc => {
                    connection.push(Direction::FromServer, &bytes.0);
                    while let Some(message) = connection.next(Direction::FromServer) {
                        let message = match message {
                            Ok(message) => Ok(message),
                            // A client that expects a line keeps waiting for the newline, so these bytes are not a response yet.
                            Err(FramingError::FrameForLine) if !bytes.0.contains(&b'\n') => continue,
                            Err(FramingError::Line(_)) => Err(ResponseKind::Overlong),
                            Err(_) => Err(ResponseKind::NoFrame),
                        };
                        history.answered(event.seq, message);
                    }
                    // The transcript does not contain the end of a very long write, so parsing restarts.
                    if connection.partial(Direction::FromServer).len() >= MAX_KEPT_MESSAGE {
                        history.answered(event.seq, Err(ResponseKind::Overlong));
                        connection = Connection::new(LINE_LIMIT);
                    }
                }
                EventKind::ClosedByServer { proc: of } if *of == proc => {
                    history.closed = true;
                    let whole = connection.partial(Direction::FromServer).is_empty();
                    let response_kind = if whole { ResponseKind::Close } else { ResponseKind::Partial };
                    history.ended_early |= !history.open.is_empty();
                    let request = history
                        .open
                        .pop()
                        .map_or(LastRequest::NothingMore, |open| LastRequest::Request(open.kind));
                    history.open.clear();
                    history.pairs.push((event.seq, request, response_kind));
                }
                EventKind::ClosedByClient { proc: by } | EventKind::Ended { proc: by, .. } if *by == proc => {
                    history.closed = true;
                }
                _ => {}
            }
        }
        history
    }

    /// Records a write in PMI-1. The last line of the write determines the request.
    fn asks_in_lines(&mut self, bytes: &[u8]) {
        let last = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let last = last.rsplit(|b| *b == b'\n').next().unwrap_or_default();
        let spawns = last == b"endcmd" || last.starts_with(b"mcmd=");
        let op = request(Framing::Lines, last);
        let op = op.0.filter(|_| op.1).or(spawns.then(|| Operation::Spawn.into()));
        self.open = vec![PendingRequest { kind: MessageKind::of(bytes), op, thrid: None }];
    }

    /// Records a request in PMI-2. Because a thread waits for one response at a time, the request replaces the pending request of the same
    /// thread. Requests without a thread number count as requests of one thread.
    fn asks_in_frame(&mut self, body: &[u8]) {
        let kind = MessageKind::of_message(&WireMessage::Body(body.to_vec()));
        let op = kind.op();
        let thrid = thread(body).map(Cow::into_owned);
        self.open.retain(|open| open.thrid != thrid);
        self.open.push(PendingRequest { kind, op, thrid });
    }

    /// Records a message from the server, or the kind of an invalid message.
    fn answered(&mut self, seq: u64, message: Result<Framed<'_>, ResponseKind>) {
        let thrid = match message {
            Ok(Framed { framing: Framing::Frames, text }) => thread(text),
            _ => None,
        };
        let of_thread = |open: &PendingRequest| thrid.is_some() && open.thrid.as_deref() == thrid.as_deref();
        // Some servers omit the thread number. A response without a thread number belongs to the first pending request.
        let first = || (thrid.is_none() && !self.open.is_empty()).then_some(0);
        // After an invalid frame, a client may wait for more bytes, so its request stays pending.
        let is_frame = !matches!(message, Err(ResponseKind::NoFrame));
        let at = self.open.iter().position(of_thread).or_else(first).filter(|_| is_frame);
        let pair = match (at, self.open.last()) {
            (Some(at), _) => {
                let PendingRequest { kind, op, .. } = self.open.remove(at);
                let response_kind = message.map_or_else(|kind| kind, |message| answer(op, message));
                (LastRequest::Request(kind), response_kind)
            }
            // The response belongs to no pending thread, so the requesting thread may still wait for its own response.
            (None, Some(open)) => {
                let response_kind = if is_frame { ResponseKind::OtherThread } else { ResponseKind::NoFrame };
                (LastRequest::Request(open.kind), response_kind)
            }
            (None, None) => (LastRequest::Nothing, ResponseKind::Surplus),
        };
        self.pairs.push((seq, pair.0, pair.1));
    }

    /// Returns whether the history contains a response of one of these kinds.
    fn has(&self, kinds: &[ResponseKind]) -> bool {
        self.pairs.iter().any(|(_, _, answer)| kinds.contains(answer))
    }

    /// Returns whether the response to the process's init had the right command, but could not be parsed.
    fn has_garbled_version(&self) -> bool {
        let is_init = |request: &LastRequest| matches!(request, LastRequest::Request(MessageKind::Request(op)) if *op == Operation::Init.into());
        self.pairs.iter().any(|(_, request, answer)| is_init(request) && *answer == ResponseKind::Malformed)
    }

    /// Returns whether the harness owes the process a response.
    fn awaits_response(&self) -> bool {
        !self.open.is_empty() && !self.closed
    }

    /// Returns the last unusual response since the event with this number, or the last response if none is unusual.
    fn relevant_response(&self, since: u64) -> LastAction {
        let pairs = &self.pairs[self.pairs.partition_point(|(seq, ..)| *seq < since)..];
        let unusual = pairs.iter().rfind(|(_, _, answer)| *answer != ResponseKind::Proper);
        unusual.or(pairs.last()).map_or(LastAction::NoRequest, |(_, request, answer)| LastAction::Answered {
            request: request.clone(),
            response: *answer,
        })
    }
}

/// Returns the kind of a response to `op`.
fn answer(op: Option<Op>, Framed { framing, text }: Framed<'_>) -> ResponseKind {
    let Some(answered) = ParsedResponse::read(framing, text) else {
        let due = op.and_then(Op::response_name).map(|cmd| format!("cmd={cmd}"));
        let ends = |byte: &u8| match framing {
            Framing::Lines => byte.is_ascii_whitespace(),
            Framing::Frames => *byte == b';',
        };
        let has = |due: String| text.split(ends).any(|tuple| tuple == due.as_bytes());
        return if due.is_some_and(has) { ResponseKind::Malformed } else { ResponseKind::Unreadable };
    };
    if Some(answered.op) != op {
        ResponseKind::ForOtherRequest
    } else if !answered.is_success() {
        ResponseKind::Refused
    } else if answered.lacks_field() {
        ResponseKind::WithoutValue
    } else if answered.op.is(&["maxes"]) && has_unusual_limit(&answered) {
        ResponseKind::UnusualLimits
    } else {
        ResponseKind::Proper
    }
}

/// Returns whether a response contains an invalid limit, or a limit that is lower or much higher than that of any known process manager.
fn has_unusual_limit(maxes: &ParsedResponse<'_>) -> bool {
    let limits = Limit::ALL.iter().filter_map(|limit| maxes.get(limit.name()));
    limits.into_iter().any(|limit| !parse_uint(&limit).is_some_and(|limit| (16..=1 << 20).contains(&limit)))
}

/// Returns the thread number in the body of a frame.
fn thread(body: &[u8]) -> Option<Cow<'_, [u8]>> {
    Body::parse(body, SemicolonReading::Doubled).ok()?.value("thrid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::ResponseStep;
    use crate::mutate::client_steps::{request_step as answers, response_step};
    use crate::session::fields::text;
    use pmi_judge::PartyKind;
    use pmi_judge::event::Bytes;

    const ZERO: Proc = Proc { group: 0, rank: 0 };
    const ONE: Proc = Proc { group: 0, rank: 1 };

    fn asks(proc: Proc, line: &str) -> EventKind {
        EventKind::ToServer { proc, bytes: Bytes(format!("{line}\n").into_bytes()) }
    }

    fn receives(proc: Proc, line: &str) -> EventKind {
        EventKind::FromServer { proc, bytes: Bytes(format!("{line}\n").into_bytes()) }
    }

    fn frame(body: &str) -> Bytes {
        Bytes(format!("{:>6}{body}", body.len()).into_bytes())
    }

    fn asks_in_frame(body: &str) -> EventKind {
        EventKind::ToServer { proc: ZERO, bytes: frame(body) }
    }

    fn told_in_frame(body: &str) -> EventKind {
        EventKind::FromServer { proc: ZERO, bytes: frame(body) }
    }

    /// Returns the two events in which a process and the server negotiate PMI-2.
    fn offers() -> [EventKind; 2] {
        [
            asks(ZERO, "cmd=init pmi_version=2 pmi_subversion=0"),
            receives(ZERO, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"),
        ]
    }

    fn events(all: Vec<EventKind>) -> Vec<Event> {
        let started = [ZERO, ONE].map(|proc| EventKind::Started {
            proc,
            env: Default::default(),
            args: Vec::new(),
            bad_fd: None,
        });
        (0..).zip(started.into_iter().chain(all)).map(|(seq, kind)| Event::new(seq, kind)).collect()
    }

    fn case(pattern: &str, response: &str) -> Case {
        let response = ResponseStep::Write(vec![text(response)], Default::default());
        Case::new(
            ImplementationKind::Client,
            2,
            vec![answers(None, text(pattern), false), response_step(None, response)],
        )
    }

    fn hang(proc: Proc, events: &[Event]) -> Finding {
        let seq = events.len() as u64;
        Finding { proc: Some(proc), seq, line: 1, ..Finding::new(NO_HANG, PartyKind::Client, "", "") }
    }

    #[test]
    fn process_that_waits_for_the_harness_is_excused() {
        let excused = |response: &str, all: Vec<EventKind>| {
            let events = events(all);
            is_excused(&hang(ZERO, &events), &case("cmd=get", response), &events)
        };
        let get = || asks(ZERO, "cmd=get kvsname=k key=a");
        let half = EventKind::FromServer { proc: ZERO, bytes: Bytes(b"cmd=get_res".to_vec()) };
        // The process waits for the rest of the response. After the end of the connection, there is nothing left to wait for.
        assert!(excused("cmd=get_res", vec![get(), half.clone()]));
        assert!(!excused("cmd=get_res", vec![get(), half, EventKind::ClosedByServer { proc: ZERO }]));
        // The process has received its response and makes no further request. This hang is excused only if the harness blocks another
        // process.
        assert!(!excused("no", vec![get(), receives(ZERO, "no")]));
        let other = vec![get(), receives(ZERO, "no"), asks(ONE, "cmd=barrier_in")];
        assert!(excused("no", other));
        // A program cannot detect a plausible wrong value, so its hang is excused. It must check a mapping, so a hang after a wrong mapping
        // is not excused.
        let found = "cmd=get_result rc=0 value=x";
        assert!(excused(found, vec![get(), receives(ZERO, found)]));
        let all = events(vec![get(), receives(ZERO, found)]);
        assert!(!is_excused(&hang(ZERO, &all), &case("cmd=get key=PMI_process_mapping", found), &all));
    }

    #[test]
    fn failure_key_of_malformed_request_omits_response() {
        let catalogue = Catalogue::default();
        let key = |request: &str, answer: &str, id: &str| {
            let finding = Finding { proc: Some(ZERO), seq: 4, ..Finding::new(id, PartyKind::Client, "", "") };
            let outcome = ScenarioOutcome {
                events: events(vec![
                    asks(ZERO, "cmd=get_maxes"),
                    receives(ZERO, answer),
                    asks(ZERO, request),
                ]),
                findings: vec![finding],
                party: PartyKind::Client,
                ..ScenarioOutcome::default()
            };
            let failures = failures(&case("cmd=get_maxes", answer), &outcome, &catalogue);
            failures.iter().map(|failure| failure.key.to_string()).collect::<Vec<_>>().join(" ")
        };
        for (answer, kind) in [("cmd=maxes rc=-1", "refused"), ("no", "unreadable")] {
            let abort = "cmd=abort exitcode=-1 message=PMI_Init failed";
            assert_eq!(
                key(abort, answer, ids::RFC13_WIRE_TUPLES),
                "rule--client--rfc13.wire.tuples--bad-abort"
            );
            // The failure key of a valid request at the wrong time contains the response before it.
            let early = ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS;
            assert_eq!(
                key("cmd=get_appnum", answer, early),
                format!("rule--client--{early}--get_maxes-{kind}")
            );
        }
    }

    #[test]
    fn failure_key_names_request_and_classifies_response() {
        for (answer, expected) in [
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=0", "get_maxes-unusual"),
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024", "get_maxes-ok"),
            ("cmd=maxes rc=0", "get_maxes-bare"),
            ("cmd=maxes rc=-1", "get_maxes-refused"),
            ("cmd=appnum rc=0 appnum=0", "get_maxes-other"),
            ("= cmd=maxes rc=0", "get_maxes-garbled"),
            ("no", "get_maxes-unreadable"),
        ] {
            let all = events(vec![asks(ZERO, "cmd=get_maxes"), receives(ZERO, answer)]);
            assert_eq!(
                ExchangeHistory::of(&all, ZERO).relevant_response(0).to_string(),
                expected,
                "{answer}"
            );
        }
        for (answer, expected) in [
            ("cmd=kvs-get-response;rc=0;found=TRUE;value=v;", "kvs-get-ok"),
            ("cmd=kvs-get-response;rc=0;found=FALSE;", "kvs-get-ok"),
            ("cmd=kvs-get-response;rc=0;found=TRUE;", "kvs-get-bare"),
            ("cmd=kvs-get-response;rc=1;", "kvs-get-refused"),
            ("cmd=kvs-get-response;thrid=7;rc=1;", "kvs-get-other-thread"),
            ("cmd=kvs-put-response;rc=0;", "kvs-get-other"),
            ("rc=0;cmd=kvs-get-response;", "kvs-get-garbled"),
            ("no", "kvs-get-unreadable"),
        ] {
            let exchange = [asks_in_frame("cmd=kvs-get;key=a;"), told_in_frame(answer)];
            let all = events(offers().into_iter().chain(exchange).collect());
            assert_eq!(
                ExchangeHistory::of(&all, ZERO).relevant_response(0).to_string(),
                expected,
                "{answer}"
            );
        }
        let of_threads = [
            asks_in_frame("cmd=kvs-get;thrid=1;key=a;"),
            asks_in_frame("cmd=info-getnodeattr;thrid=2;key=a;wait=TRUE;"),
            told_in_frame("cmd=kvs-get-response;thrid=1;rc=1;"),
        ];
        let all = events(offers().into_iter().chain(of_threads).collect());
        let history = ExchangeHistory::of(&all, ZERO);
        assert!(history.awaits_response());
        assert_eq!(history.relevant_response(0).to_string(), "kvs-get-refused");
        // A client may wait after an invalid line, and after a response for another thread.
        let of_another =
            [asks_in_frame("cmd=kvs-get;key=a;"), told_in_frame("cmd=kvs-get-response;thrid=7;rc=1;")];
        let all = events(offers().into_iter().chain(of_another).collect());
        assert!(ExchangeHistory::of(&all, ZERO).awaits_response());
        let [offer, _] = offers();
        assert!(
            ExchangeHistory::of(&events(vec![offer, told_in_frame("cmd=kvs-put;")]), ZERO).awaits_response()
        );
        let all = events(vec![receives(ZERO, "no"), asks(ZERO, "cmd=get_maxes")]);
        let history = ExchangeHistory::of(&all, ZERO);
        assert!(history.has(&[ResponseKind::Surplus]) && history.awaits_response());
    }
}
