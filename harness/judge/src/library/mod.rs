//! The judge of a library under test. It checks the requirements on every call, and the expectations of the scenario.

pub mod api;
mod expectations;
mod object;
mod request;

use pmi_scenario::ids;
use std::collections::{BTreeMap, VecDeque};

use pmi_scenario::signature::{self, Function};
use pmi_wire::protocol::Exchange;
use pmi_wire::{Decoded, Direction, Framing, FramingError, Operation, Proc, ResponseOutcome};

use crate::bytes::quoted;
use crate::connections::{CompletedMessage, Connections};
use crate::crash::SignalCause;
use crate::event::{Event, EventKind, Exit};
use crate::expectation::ExpectationKind;
use crate::kvs::is_ambiguous;
use crate::program::CLIENT_EXITS;
use crate::{Finding, ObservationKind, PartyKind, Severity, UnjudgedReason};
pub use api::PendingCall;
use api::{ApiViolation, CALLER_REQUIREMENTS, CallArgument, CallResult};
pub use request::LibraryRequest;
use request::RequestAssembler;

/// Attributes a finding about a client to the library. Returns false if the library is not to blame: the finding is about the server, its
/// requirement binds the caller, or the process has ended without PMI_Finalize.
pub(crate) fn attribute_to_library(finding: &mut Finding, event: &Event) -> bool {
    let ours = CALLER_REQUIREMENTS.contains(&finding.requirement.as_str())
        || matches!(event.kind, EventKind::ClosedByClient { .. });
    let concerned = finding.party == PartyKind::Client && !ours;
    finding.party = PartyKind::Library;
    concerned
}

/// The values that a process received during a call.
#[derive(Debug, Default)]
enum ReceivedInCall {
    #[default]
    Nothing,
    /// A single value.
    Value(Vec<u8>),
    Otherwise,
}

#[derive(Debug, Default)]
struct LibraryProcess {
    /// True if the runner started the process, rather than a process manager.
    started: bool,
    /// The outcome of loading the library: `None` if the outcome is unknown, `Some(None)` if the library was loaded, otherwise the error.
    loaded: Option<Option<String>>,
    call: Option<PendingCall>,
    /// True if the process's requests wait until the scenario expects them.
    holds_requests: bool,
    returned: Option<CallResult>,
    /// The message about a missing function, if the library lacks a function that the scenario calls.
    missing: Option<String>,
    /// The number of barriers that the process has entered.
    barriers: u32,
    /// True if the process has requested a barrier in the current call.
    in_barrier: bool,
    requests: RequestAssembler,
    framing: Framing,
    partial_request: Vec<u8>,
    has_partial_response: bool,
    /// The requests of the call that wait for a step.
    held_requests: VecDeque<LibraryRequest>,
    /// The last request that a step has consumed.
    consumed_request: Option<LibraryRequest>,
    /// The values that the process received in this call.
    response: ReceivedInCall,
    /// The number of the event with the last response to the process.
    answered_at: u64,
    /// The requests without a response.
    unanswered: VecDeque<Option<&'static Exchange>>,
    /// The first function that succeeded although the connection had ended before the response to its request, and the command of the
    /// request.
    unanswered_success: Option<(&'static str, &'static str)>,
    /// True if the harness has broken the protocol. The process may then end.
    harness_broke_protocol: bool,
    closed: bool,
    closed_by_harness: bool,
    stderr: Vec<u8>,
    exit: Option<Exit>,
    /// True if the process's exit status or signal is unknown, so `exit` is a placeholder.
    has_unknown_exit: bool,
    /// True if the runner has instructed the process to exit.
    exiting: bool,
    /// True if the process's end has been judged, or if the runner terminated the process.
    end_judged: bool,
    /// True if no further step can apply to the process.
    skips_steps: bool,
}

impl LibraryProcess {
    fn is_in_call(&self) -> bool {
        self.call.is_some() && self.returned.is_none() && self.missing.is_none() && self.exit.is_none()
    }

    fn function(&self) -> Option<&'static Function> {
        self.call.as_ref().map(|call| call.function)
    }

    /// Describes the exit status or signal, if the process has ended.
    fn end(&self) -> Option<String> {
        let seen = |exit: Exit| {
            if self.has_unknown_exit { "exit status unknown".to_owned() } else { exit.to_string() }
        };
        self.exit.map(seen)
    }

    /// Records a response from the harness. The response need not be the correct response to the request.
    fn record_response(&mut self, message: &Result<Decoded<'_>, FramingError>) {
        let answer = message.as_ref().ok().filter(|message| message.is_well_formed());
        let response = answer.and_then(|message| message.exchange());
        let value = answer.and_then(|message| {
            let is_got = message.operation() == Some(Operation::Get)
                && message.outcome() == Some(ResponseOutcome::Success);
            message.field("value").filter(|_| is_got)
        });
        let request = self.unanswered.pop_front().flatten();
        self.harness_broke_protocol |= response.is_none() || response != request;
        self.response = match (&self.response, value) {
            (ReceivedInCall::Nothing, Some(value))
                if !self.harness_broke_protocol && !is_ambiguous(&value) =>
            {
                ReceivedInCall::Value(value.into_owned())
            }
            _ => ReceivedInCall::Otherwise,
        };
    }

    /// Returns true if the harness's own behaviour can explain this exit. RFC 13, Error Handling: a client that detects an error aborts.
    fn may_end(&self, exit: Exit) -> bool {
        let half = self.has_partial_response;
        match exit {
            Exit::Signal(signal) => match SignalCause::of(signal) {
                SignalCause::Abort => self.harness_broke_protocol || half,
                SignalCause::BrokenPipe => self.closed_by_harness,
                _ => false,
            },
            Exit::Code(code) => code != 0 && (self.harness_broke_protocol || half),
        }
    }
}

/// The judge of a library under test. It judges every call, and checks the expectations of the scenario about the calls.
#[derive(Debug, Default)]
pub struct LibraryJudge {
    /// The requirements that the scenario tests.
    requires: Vec<String>,
    ranks: u32,
    processes: BTreeMap<Proc, LibraryProcess>,
    /// Requests for which the scenario contains no response, and which [`LibraryJudge::take_unscripted`] has not returned yet.
    unscripted_requests: Vec<(Proc, LibraryRequest)>,
    findings: Vec<Finding>,
    /// The number of bytes that the library has sent.
    pub(crate) received: u64,
    pub(crate) last_writer: Option<Proc>,
    pub(crate) crashed: Option<(String, i32)>,
    pub(crate) hung: bool,
    pub(crate) unjudged: Option<UnjudgedReason>,
    /// The number of the current event.
    seq: u64,
    line: usize,
}

impl LibraryJudge {
    pub(crate) fn new(requires: Vec<String>) -> Self {
        Self { requires, ..Self::default() }
    }

    /// Returns the open call of a process, or the last call if no step has consumed its result yet.
    pub fn call(&self, p: Proc) -> Option<&PendingCall> {
        self.processes.get(&p)?.call.as_ref()
    }

    /// Returns true if a process is in a call.
    pub fn is_in_call(&self, p: Proc) -> bool {
        self.processes.get(&p).is_some_and(LibraryProcess::is_in_call)
    }

    /// Returns true if a process has loaded the library and can be called.
    pub fn is_ready(&self, p: Proc) -> bool {
        self.processes.get(&p).is_some_and(|process| process.loaded == Some(None) && process.exit.is_none())
    }

    /// Returns true if a process has ended.
    pub fn has_ended(&self, p: Proc) -> bool {
        self.processes.get(&p).is_some_and(|process| process.exit.is_some())
    }

    /// Returns the number of the event with the last response to a process.
    pub(crate) fn answered_at(&self, p: Proc) -> u64 {
        self.processes.get(&p).map_or(0, |process| process.answered_at)
    }

    /// Returns the last request of a process that a step has consumed.
    pub fn consumed_request(&self, p: Proc) -> Option<&LibraryRequest> {
        self.processes.get(&p)?.consumed_request.as_ref()
    }

    pub(crate) fn take_unscripted(&mut self) -> Vec<(Proc, LibraryRequest)> {
        std::mem::take(&mut self.unscripted_requests)
    }

    pub(crate) fn is_over(&self, p: Proc) -> bool {
        self.processes.get(&p).is_some_and(|process| process.skips_steps)
    }

    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn process(&mut self, p: Proc) -> &mut LibraryProcess {
        self.processes.entry(p).or_default()
    }

    /// Reads the next event.
    pub(crate) fn observe(
        &mut self,
        event: &Event,
        messages: &[CompletedMessage<'_>],
        connections: &Connections,
    ) {
        (self.seq, self.line) = (event.seq, event.line);
        match &event.kind {
            EventKind::Launched { ranks, .. } => self.ranks = *ranks,
            EventKind::LibraryFile { name, soname, functions } => {
                let file = object::LibraryFile { name, soname: soname.as_deref(), functions };
                for id in self.requires.clone() {
                    if let Some((expected, seen)) = file.check(&id) {
                        self.find(None, &id, None, expected, seen);
                    }
                }
            }
            EventKind::Started { proc, .. } => self.process(*proc).started = true,
            EventKind::Loaded { proc, error } => self.process(*proc).loaded = Some(error.clone()),
            EventKind::Called { proc, function, arguments, held } => {
                let Some(function) = signature::function(function) else { return };
                let process = self.process(*proc);
                process.call = Some(PendingCall { function, arguments: arguments.clone() });
                process.holds_requests = *held;
                process.response = ReceivedInCall::Nothing;
                process.consumed_request = None;
                process.in_barrier = false;
                process.barriers += u32::from(function.name == "PMI_Barrier");
            }
            EventKind::NotCalled { proc, why } => self.process(*proc).missing = Some(why.clone()),
            EventKind::Returned { proc, returned, .. } => self.returned(*proc, returned),
            EventKind::ToServer { proc, bytes } => {
                self.received += bytes.0.len() as u64;
                self.last_writer = Some(*proc);
                self.read_messages(*proc, messages, connections);
            }
            EventKind::FromServer { proc, .. } => {
                self.process(*proc).answered_at = event.seq;
                self.read_messages(*proc, messages, connections);
            }
            EventKind::ClosedByServer { proc } => {
                let process = self.process(*proc);
                (process.closed, process.closed_by_harness, process.harness_broke_protocol) =
                    (true, true, true);
            }
            EventKind::ClosedByClient { proc } => self.process(*proc).closed = true,
            EventKind::Output { proc: Some(proc), stderr: true, line } => {
                let stderr = &mut self.process(*proc).stderr;
                stderr.extend_from_slice(&line.0);
                stderr.push(b'\n');
            }
            EventKind::Exited { proc, exit } => self.exited(*proc, *exit, true),
            EventKind::Ended { proc, ours } => {
                let process = self.process(*proc);
                process.end_judged |= *ours;
                process.skips_steps |= *ours;
                // The exit status of a process that a process manager started is unknown.
                if !process.started {
                    process.has_unknown_exit = process.exit.is_none();
                    self.exited(*proc, Exit::Code(0), false);
                }
            }
            EventKind::Expected(expectation) => {
                let Some(p) = expectation.proc else { return };
                match expectation.kind {
                    ExpectationKind::Returns { .. } => {
                        self.process(p).holds_requests = false;
                        self.release(p);
                    }
                    ExpectationKind::ExitsAsInstructed => self.process(p).exiting = true,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Records the messages that an event has completed on the connection of a process, starting with those from the harness.
    fn read_messages(&mut self, p: Proc, messages: &[CompletedMessage<'_>], connections: &Connections) {
        let process = self.process(p);
        process.framing = connections.framing(p);
        process.partial_request = connections.partial(p, Direction::ToServer).to_vec();
        process.has_partial_response = !connections.partial(p, Direction::FromServer).is_empty();
        let from = |side: Direction| messages.iter().filter(move |(direction, _)| *direction == side);
        from(Direction::FromServer).for_each(|(_, message)| process.record_response(message));
        for (_, message) in from(Direction::ToServer) {
            let Some(request) = process.requests.next(message) else { continue };
            process.in_barrier |= request.exchange.is_some_and(|exchange| exchange.operation == "barrier");
            process.unanswered.push_back(request.exchange);
            process.held_requests.push_back(request);
        }
        self.release(p);
    }

    /// Moves the requests of a process to the unscripted requests, unless they wait until the scenario expects them.
    fn release(&mut self, p: Proc) {
        let process = self.processes.entry(p).or_default();
        if !process.holds_requests {
            self.unscripted_requests.extend(process.held_requests.drain(..).map(|request| (p, request)));
        }
    }

    fn returned(&mut self, p: Proc, returned: &CallResult) {
        let process = self.process(p);
        process.returned = Some(returned.clone());
        let Some(call) = &process.call else { return };
        let function = call.function;
        if returned.result == 0
            && process.closed
            && let Some(Some(row)) = process.unanswered.front()
        {
            process.unanswered_success.get_or_insert((function.name, row.request));
        }
        let mut breaches = api::returned(call, returned);
        if let ReceivedInCall::Value(value) = &process.response {
            breaches.extend(api::returned_of(call, returned, value));
        }
        for ApiViolation { requirement, at_most, expected, seen } in breaches {
            self.find(Some(p), requirement, at_most, expected, seen);
        }
        if function.name != "PMI_Barrier" {
            return;
        }
        if returned.result == 0 {
            self.left_barrier(p);
        } else if !self.process(p).in_barrier {
            self.process(p).barriers -= 1;
        }
        // A process that has requested the barrier counts as having entered it, regardless of the response.
    }

    /// Reports a process that has left a barrier before every process had entered it.
    fn left_barrier(&mut self, p: Proc) {
        let entered = |p: Proc| self.processes.get(&p).map_or(0, |process| process.barriers);
        let missing = (0..self.ranks).find(|rank| entered(Proc { rank: *rank, ..p }) < entered(p));
        let Some(missing) = missing else { return };
        // The API and the protocol have the same requirement, under two ids. The finding cites the one that the scenario tests.
        let all_in = ids::RFC13_BARRIER_ALL_IN_BEFORE_ANY_OUT;
        let id = if self.requires.iter().any(|id| id == all_in) { all_in } else { ids::RFC13_API_BARRIER };
        let expected = "PMI_Barrier blocks until all processes have entered it";
        self.find(
            Some(p),
            id,
            None,
            expected,
            format!("it returned PMI_SUCCESS before rank {missing} had called it"),
        );
        if let Some(finding) = self.findings.last_mut() {
            finding.kind = Some(ObservationKind::EarlyBarrierExit);
        }
    }

    /// Judges the end of a process. `known` is true if the exit status is known.
    fn exited(&mut self, p: Proc, exit: Exit, known: bool) {
        let process = self.process(p);
        if process.exit.replace(exit).is_some() || process.end_judged {
            return;
        }
        let excused = process.may_end(exit);
        let function = process.function().filter(|_| process.returned.is_none());
        let aborts = function.is_some_and(api::is_abort);
        if aborts && function.is_some_and(Function::is_of_rfc13) {
            return self.aborted(p, exit, known);
        }
        let process = self.process(p);
        let when = match (process.exiting, process.loaded.is_some(), function) {
            (true, ..) => "the process, at its exit,".to_owned(),
            (_, false, _) => "the library, while it was being loaded,".to_owned(),
            (.., None) => "the library, between calls,".to_owned(),
            (.., Some(function)) => format!("the library, in {},", function.name),
        };
        match exit {
            // PMI-2 does not define how an aborting process ends.
            Exit::Signal(signal) if aborts && SignalCause::of(signal) == SignalCause::Abort => {}
            // The process may end, but like any program, it should end with an exit status.
            Exit::Signal(_) if excused => {
                self.find(Some(p), CLIENT_EXITS, None, "an exit status", exit.to_string())
            }
            Exit::Signal(signal) => drop(self.crashed.get_or_insert((when, signal))),
            Exit::Code(_) => {}
        }
    }

    /// Judges the exit of an aborting process. RFC 13, PMI_Abort: the message is written to standard error, and the process then exits with
    /// the code.
    fn aborted(&mut self, p: Proc, exit: Exit, known: bool) {
        let process = self.process(p);
        let Some(PendingCall { arguments, .. }) = &process.call else { return };
        let message = match arguments.get(1) {
            Some(CallArgument::Text(text)) => text.0.clone(),
            _ => Vec::new(),
        };
        let code = match arguments.first() {
            Some(CallArgument::Number(code)) => Exit::Code(code & 0xff),
            _ => exit,
        };
        if memchr::memmem::find(&process.stderr, &message).is_none() {
            let expected = format!("{} on standard error", quoted(&message));
            let seen = quoted(&process.stderr);
            self.find(Some(p), ids::RFC13_ABORT_STDERR, None, expected, seen);
        }
        if exit != code && known {
            self.find(Some(p), ids::RFC13_ABORT_EXIT_CODE, None, code.to_string(), exit.to_string());
        }
    }

    fn find(
        &mut self,
        proc: Option<Proc>,
        requirement: &str,
        at_most: Option<Severity>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.findings.push(Finding {
            proc,
            seq: self.seq,
            line: self.line,
            max_severity: at_most,
            ..Finding::new(requirement, PartyKind::Library, expected, seen)
        });
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::connections::decode;
    use crate::testing::{P, cited, event, launched, numbered};

    /// Rank 0 leaves a barrier with PMI_SUCCESS. Rank 1 has called PMI_Barrier as well, but its call failed, either before or after it sent
    /// the request.
    #[rstest]
    #[case::after_its_request(true, &[])]
    #[case::without_a_request(false, &["rfc13.api.barrier"])]
    fn barrier_request_counts_as_barrier_entry(#[case] asks: bool, #[case] found: &[&str]) {
        let second = Proc { group: 0, rank: 1 };
        let called = |proc| EventKind::Called {
            proc,
            function: "PMI_Barrier".into(),
            arguments: Vec::new(),
            held: false,
        };
        let returned = |proc, result| EventKind::Returned {
            proc,
            function: "PMI_Barrier".into(),
            returned: CallResult { result, outs: Vec::new(), overrun: Vec::new() },
        };
        let mut kinds = vec![launched(2, 1), called(second)];
        if asks {
            kinds.extend([event("1 > cmd=barrier_in"), event("1 < cmd=barrier_out rc=-1")]);
        }
        kinds.extend([returned(second, -1), called(P), event("0 > cmd=barrier_in")]);
        kinds.extend([event("0 < cmd=barrier_out rc=0"), returned(P, 0)]);
        let mut judge = LibraryJudge::new(Vec::new());
        let mut connections = Connections::default();
        for event in numbered(kinds) {
            let arrivals = connections.read(&event);
            judge.observe(&event, &decode(&arrivals), &connections);
        }
        assert_eq!(cited(judge.take_findings()), found);
    }
}
