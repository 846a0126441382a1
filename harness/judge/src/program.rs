//! Judges the processes of a program under test after all of them have ended.

use pmi_scenario::ids;
use std::borrow::Cow;
use std::collections::BTreeMap;

use pmi_scenario::ast::ExitPattern;
use pmi_scenario::requirement::Severity;
use pmi_wire::pmi2::{KEY_MAX, is_key};
use pmi_wire::{Decoded, Direction, Framing, Operation, Proc, ResponseOutcome};

use crate::builtin_requirements::{EXITS_SUCCESSFULLY, NO_HANG};
use crate::connections::{CompletedMessage, Connections};
use crate::conversation::Conversation;
use crate::crash::SignalCause;
use crate::event::{
    Difference, Event, EventKind, Exit, HangProof, PlainRun, ProcessEnd, ProcessExitKind, ReceivedValues,
};
use crate::expectation::{Expectation, ExpectationKind};
use crate::monitor::is_readable_leniently;
use crate::observation::{IncompleteMessage, quote_bytes};
use crate::offer::has_connection;
use crate::unjudged::UnjudgedReason;
use crate::{Finding, PartyKind};

/// The requirement that a process breaks if it dies of a signal that it sent to itself, or that a closed connection caused.
pub(crate) const CLIENT_EXITS: &str = ids::DE_FACTO_CLIENT_EXITS;

/// The requirement that a process breaks if it runs as a singleton: it never uses its connection, and exits with status 0.
const CLIENT_JOINS: &str = ids::DE_FACTO_CLIENT_JOINS;

/// The requirements that a process breaks if it leaves without a finalize request.
pub(crate) const CLIENT_FINALIZES: [&str; 2] = [ids::RFC13_ABNF_C_FINALIZE, ids::PMI2_COMMON_FINALIZE_LAST];

/// The requirements that a process breaks if it ignores the names and limits that it received. A violation is excused
/// if the received names or limits were invalid.
const USE_OF_RECEIVED_LIMITS: [&str; 3] =
    [ids::RFC13_KVS_NAME_USED, ids::RFC13_PUT_LENGTH, ids::RFC13_GET_KEY_LENGTH];

/// The requirement that a process breaks if it sends a request before the previous one is answered. The violation is excused if the server
/// sent an unsolicited response, which the process may have mistaken for the missing one.
const LOCK_STEP_RULE: &str = ids::RFC13_WIRE_LOCK_STEP;

/// The requirements that a process breaks if it sends the malformed name that it received.
const MALFORMED_NAME_RULES: [&str; 2] = [ids::RFC13_ABNF_WORD, ids::RFC13_WIRE_TUPLES];

/// The number of a process group, and a key in the keyval space of that group.
type GroupKey = (u32, Vec<u8>);

#[derive(Debug)]
struct FirstPut {
    process: Proc,
    /// The number of the event with the put.
    seq: u64,
    /// The number of barriers that the process had entered when it sent the put.
    barriers_entered: usize,
}

#[derive(Debug)]
struct GetExchange {
    key: Vec<u8>,
    found: bool,
    /// The number of the event with the response.
    seq: u64,
    /// The number of barriers that the process had completed when it sent the get.
    barriers_left: usize,
}

/// A response that a process should not ignore: a refusal, or a response that does not answer its request.
#[derive(Debug)]
struct UnusableResponse {
    operation: Operation,
    /// The key, if the request is a get.
    key: Option<Vec<u8>>,
    exchange: ExchangeSummary,
}

#[derive(Debug, Clone)]
struct ExchangeSummary {
    request: String,
    answer: String,
}

#[derive(Debug, Default)]
struct ProcessState {
    /// The expectations about the process, each with its line in the scenario.
    expectations: Vec<(usize, Expectation)>,
    /// The number of situations that the scenario describes for the process.
    situations: usize,
    /// The number of described situations that the process has reached.
    situations_reached: usize,
    /// The line of the last situation that the scenario describes for the process.
    last_situation: usize,
    /// True if the process's environment contained PMI_FD or PMI_PORT.
    received_connection: bool,
    /// True if the process has written to its connection.
    has_written: bool,
    awaits_response: bool,
    finalized: bool,
    requests: usize,
    messages_received: usize,
    has_unsolicited_response: bool,
    last_request: String,
    last_operation: Option<Operation>,
    last_thread: Option<Vec<u8>>,
    /// The key of the process's last request, if that request is a get.
    gets: Option<Vec<u8>>,
    /// The last scripted response that was unusable although the process needed the result. `None` if the same request
    /// succeeded later.
    unusable: Option<UnusableResponse>,
    /// The rank in PMI_RANK.
    rank: Option<i64>,
    /// The rank in fullinit, if it differs from the rank in PMI_RANK.
    wrong_rank: Option<i64>,
    /// The first key that the draft does not allow in a PMI-2 request.
    odd_key: Option<Vec<u8>>,
    /// The operation of the process's last request; `None` after the server has sent a message.
    pending_operation: Option<Operation>,
    /// The server's answer to the last request, if it is a protocol error instead of a response.
    wrong_answer: Option<String>,
    /// True if the response to the last request was an empty line.
    received_empty_line: bool,
    /// True if the scenario scripts the response to the process's last request.
    scripted: bool,
    /// The operation of the last request with a scripted response. The scenario may script the responses to all requests of this operation.
    scripted_operation: Option<Operation>,
    last_scripted_exchange: Option<ExchangeSummary>,
    /// The last exchange with a response that the scenario does not script.
    last_other_exchange: Option<ExchangeSummary>,
    answered_gets: Vec<GetExchange>,
    barriers_entered: usize,
    /// The numbers of the events at which the process left a barrier.
    barrier_exits: Vec<u64>,
    /// True if the process closed its connection before the server answered its last request.
    closed_while_waiting: bool,
    /// True if the process closed its connection before it had read everything from the server.
    left_unread: bool,
    values: ReceivedValues,
    /// True if the process received a malformed keyval space name.
    received_bad_kvsname: bool,
    /// The way in which the process ended, unless it exited on its own.
    ended: Option<ProcessExitKind>,
    exit: Option<Exit>,
    /// The proof that the process does not end, if the process itself is to blame.
    hung: Option<HangProof>,
    /// The requirement that the process breaks by not ending, and the expected behaviour. `None` unless the server's answer to the last
    /// request was a protocol error.
    hang_breaks: Option<(&'static str, &'static str)>,
    broken_memory: Option<String>,
    difference: Option<Difference>,
}

impl ProcessState {
    fn end(&self) -> ProcessExitKind {
        match (self.ended, self.exit) {
            (Some(ProcessExitKind::Never(_)), _) => ProcessExitKind::Never(self.hung),
            (Some(end), _) => end,
            (None, Some(exit)) => ProcessExitKind::Exited(exit),
            (None, None) => ProcessExitKind::Unknown,
        }
    }

    /// Reads the messages that event number `seq` completes. `is_partial` is true if the last message from the server is incomplete.
    fn read_messages(
        &mut self,
        p: Proc,
        messages: &[CompletedMessage<'_>],
        is_partial: bool,
        seq: u64,
        puts: &mut BTreeMap<GroupKey, FirstPut>,
    ) {
        let from = |side: Direction| messages.iter().filter(move |(direction, _)| *direction == side);
        for (_, message) in from(Direction::FromServer) {
            self.messages_received += 1;
            if let Ok(message) = message {
                self.received_empty_line = message.text.is_empty() && message.framing == Framing::Lines;
                self.read_response(message, seq);
            }
        }
        for (_, message) in from(Direction::ToServer) {
            self.awaits_response = true;
            self.received_empty_line = false;
            let Ok(message) = message else { continue };
            self.finalized |= message.text.starts_with(b"cmd=finalize");
            self.requests += usize::from(message.text.starts_with(b"cmd=") || message.text == b"endcmd");
            if let Some(key) = self.read_request(message) {
                let put = FirstPut { process: p, seq, barriers_entered: self.barriers_entered };
                puts.entry((p.group, key)).or_insert(put);
            }
        }
        self.awaits_response &= is_partial;
    }

    /// Reads a request, and returns the key if the request is a put.
    fn read_request(&mut self, message: &Decoded<'_>) -> Option<Vec<u8>> {
        let operation = message.operation();
        self.last_operation = operation;
        self.last_thread = message.field("thrid").map(Cow::into_owned);
        self.read_rank(message, operation);
        (self.pending_operation, self.wrong_answer) = (operation, None);
        self.barriers_entered += usize::from(operation == Some(Operation::Barrier));
        let command = message.text.split(|b| matches!(b, b' ' | b';')).next().unwrap_or_default();
        self.last_request = command.escape_ascii().to_string();
        let is_pair = matches!(operation, Some(Operation::Get | Operation::Put));
        let key = message.field("key").filter(|_| is_pair).map(Cow::into_owned);
        if let Some(key) = key.as_ref().filter(|key| message.framing == Framing::Frames && !is_key(key)) {
            self.odd_key.get_or_insert_with(|| key.clone());
        }
        if let Some(key) = &key {
            self.last_request = format!("{} key={}", self.last_request, key.escape_ascii());
        }
        let (get, put) = if operation == Some(Operation::Get) { (key, None) } else { (None, key) };
        self.gets = get;
        put
    }

    fn read_rank(&mut self, message: &Decoded<'_>, operation: Option<Operation>) {
        if operation == Some(Operation::Init)
            && let Some((sent, rank)) = message.number("pmirank").zip(self.rank)
        {
            let sent = i64::try_from(sent).unwrap_or(-1);
            self.wrong_rank = self.wrong_rank.or((sent != rank).then_some(sent));
        }
    }

    /// Stores a response if the process cannot use it and the scenario scripts it. Removes the stored response when the same request
    /// succeeds.
    fn read_usability(&mut self, message: &Decoded<'_>, exchange: &ExchangeSummary, is_requested: bool) {
        use Operation::{Abort, Appnum, Get, Init, Kvsname, Maxes, Universe};
        // A client need not fail without limits or attributes, because it has defaults for them. Versions have separate requirements.
        let Some(operation) = self
            .last_operation
            .filter(|operation| !matches!(operation, Init | Maxes | Universe | Appnum | Abort))
        else {
            return;
        };
        let other_thread = message.field("thrid").is_some_and(|thread| {
            self.last_thread.as_deref().is_some_and(|requested| requested != thread.as_ref())
        });
        // A malformed response may still be readable.
        let Some(outcome) = message.outcome() else { return };
        let is_usable = message.operation() == Some(operation)
            && outcome == ResponseOutcome::Success
            && !other_thread
            && !(matches!(operation, Kvsname | Get) && message.lacks_results());
        if !is_usable && is_requested && self.scripted_operation == Some(operation) {
            let (key, exchange) = (self.gets.clone(), exchange.clone());
            self.unusable = Some(UnusableResponse { operation, key, exchange });
        } else if is_usable
            && self.unusable.as_ref().is_some_and(|response| response.exchange.request == exchange.request)
        {
            self.unusable = None;
        }
    }

    fn read_response(&mut self, message: &Decoded<'_>, seq: u64) {
        let operation = self.pending_operation.take();
        self.wrong_answer = operation
            .filter(|operation| is_wrong_answer(message, *operation))
            .map(|_| quote_bytes(message.text));
        // If the response is malformed, the name in it is not a valid `word`.
        self.received_bad_kvsname |= message.text.starts_with(b"cmd=my_kvsname") && !message.is_well_formed();
        let fields = fields(message.framing, message.text);
        // A response that reports a failure contains no value.
        if !fields.iter().any(|(name, value)| name == b"rc" && value.iter().any(|b| !b"0 ".contains(b))) {
            self.values.extend(fields);
        }
        let exchange =
            ExchangeSummary { request: self.last_request.clone(), answer: quote_bytes(message.text) };
        self.read_usability(message, &exchange, operation.is_some());
        let is_of = |operation| message.operation() == Some(operation);
        let found = is_of(Operation::Get) && message.outcome() == Some(ResponseOutcome::Success);
        let released = is_of(Operation::Barrier) && message.is_success();
        if let Some(key) = self.gets.take() {
            self.answered_gets.push(GetExchange { key, found, seq, barriers_left: self.barrier_exits.len() });
        }
        if released {
            self.barrier_exits.push(seq);
        }
        if std::mem::take(&mut self.scripted) {
            self.last_scripted_exchange = Some(exchange);
        } else {
            self.last_other_exchange = Some(exchange);
        }
    }

    /// Describes the end of the process and, if the process failed, the last response before the end.
    fn describe_end(&self, exit: Exit) -> String {
        match self.last_scripted_exchange.as_ref().or(self.last_other_exchange.as_ref()) {
            Some(ExchangeSummary { request, answer }) if exit != Exit::Code(0) && !self.awaits_response => {
                format!("{exit}, after {request} was answered with {answer}")
            }
            _ => exit.to_string(),
        }
    }

    /// Returns the violations in the process's requests: a rank that differs from PMI_RANK, and a key that the draft of PMI-2 does not
    /// allow. Each violation consists of the requirement, the maximum severity, the expected behaviour and the observed behaviour.
    fn odd_requests(&self) -> Vec<(&'static str, Option<Severity>, String, String)> {
        let note = Some(Severity::Note);
        let rank = self.wrong_rank.zip(self.rank).map(|(sent, rank)| {
            let expected = format!("pmirank={rank}, as in PMI_RANK");
            (ids::PMI2_COMMON_REQUEST_COMPLETE, None, expected, format!("pmirank={sent}"))
        });
        let key = self.odd_key.as_ref().map(|key| {
            let expected = format!("1 to {KEY_MAX} letters, digits, hyphens and underscores");
            (ids::PMI2_DRAFT_KEY, note, expected, format!("the key {}", quote_bytes(key)))
        });
        [rank, key].into_iter().flatten().collect()
    }

    fn ended_well(&self) -> bool {
        self.end() == ProcessExitKind::Exited(Exit::Code(0))
    }

    /// Returns true if the process is still running and has not reached all situations that the scenario describes for it.
    fn has_pending_script(&self) -> bool {
        self.exit.is_none() && self.ended.is_none() && self.situations_reached < self.situations
    }

    /// Returns whether the process must exit on its own, even if its program is aborted.
    fn must_exit_itself(&self) -> bool {
        self.expectations.iter().any(|(_, duty)| duty.kind.requires_own_exit())
    }

    /// Returns the signal, if the process crashed.
    fn crash(&self) -> Option<i32> {
        let ProcessExitKind::Exited(Exit::Signal(signal)) = self.end() else { return None };
        let crashed = SignalCause::of(signal) == SignalCause::Fault
            || self.broken_memory.is_some()
            || self.abort_signal() == Some(signal);
        crashed.then_some(signal)
    }

    /// Returns the signal of `abort()` if the process died of this signal although the scenario expects exit status 0.
    fn abort_signal(&self) -> Option<i32> {
        let is_success = |duty: &Expectation| duty.kind == ExpectationKind::Exits(ExitPattern::Code(0));
        match self.end() {
            ProcessExitKind::Exited(Exit::Signal(signal))
                if SignalCause::of(signal) == SignalCause::Abort =>
            {
                self.expectations.iter().any(|(_, duty)| is_success(duty)).then_some(signal)
            }
            _ => None,
        }
    }

    /// Describes the output of the plain run and the output of this run. Returns `None` if the outputs are equal or the process failed. The
    /// output of a failed process is incomplete, and the failure is reported elsewhere.
    fn differing_output(&self) -> Option<(String, String)> {
        let difference = self.difference.as_ref().filter(|_| self.ended_well())?;
        let (plain, seen) = match difference {
            Difference::Line { plain, seen } => (format!("\"{plain}\""), format!("\"{seen}\"")),
            Difference::Length { plain, seen } => (format!("{plain} bytes"), format!("{seen} bytes")),
        };
        Some((format!("the output of a plain run, {plain}"), seen))
    }
}

/// The state of a program under test: its processes, and the plain run with which this run is compared.
#[derive(Debug, Default)]
pub(crate) struct ProgramState {
    processes: BTreeMap<Proc, ProcessState>,
    /// The processes that caused the server to abort a process group, with the reasons.
    aborts: Vec<(Proc, String)>,
    plain: Option<PlainRun>,
    /// The request that the scenario is about: the first one for which the scenario scripts the response.
    request: Option<String>,
    has_written: bool,
    puts: BTreeMap<GroupKey, FirstPut>,
    pub(crate) leftover_processes: Vec<String>,
}

impl ProgramState {
    fn process(&mut self, p: Proc) -> &mut ProcessState {
        self.processes.entry(p).or_default()
    }

    /// Reads the next event, which `conversation` must already have read.
    pub(crate) fn observe(
        &mut self,
        event: &Event,
        messages: &[CompletedMessage<'_>],
        connections: &Connections,
        conversation: &Conversation,
    ) {
        match &event.kind {
            EventKind::Started { proc, env, .. } => {
                let process = self.process(*proc);
                process.received_connection = has_connection(env);
                process.rank = env.get("PMI_RANK").and_then(|rank| rank.parse().ok());
            }
            EventKind::Greeted { proc, .. } => self.process(*proc).has_written = true,
            EventKind::Expected(expectation) if expectation.kind.concerns_program() => {
                match (expectation.proc, &expectation.kind) {
                    (None, ExpectationKind::Request(request)) => self.request.clone_from(request),
                    (None, _) => {}
                    (Some(p), ExpectationKind::Request(_)) => {
                        let process = self.process(p);
                        process.situations += 1;
                        process.last_situation = event.line;
                    }
                    (Some(p), _) => self.process(p).expectations.push((event.line, (**expectation).clone())),
                }
            }
            EventKind::ManagerStarted { .. } => self.has_written = true,
            EventKind::SituationReached { proc } => {
                let process = self.process(*proc);
                process.situations_reached += 1;
                process.scripted = true;
                process.scripted_operation = process.last_operation;
            }
            EventKind::LeftUnread { proc } => self.process(*proc).left_unread = true,
            EventKind::ClosedByClient { proc } => {
                let process = self.process(*proc);
                process.closed_while_waiting = process.awaits_response;
            }
            EventKind::ToServer { proc, .. } => {
                self.has_written = true;
                let process = self.processes.entry(*proc).or_default();
                process.has_written = true;
                process.read_messages(*proc, messages, true, event.seq, &mut self.puts);
            }
            EventKind::FromServer { proc, .. } => {
                let process = self.processes.entry(*proc).or_default();
                let is_partial = !connections.partial(*proc, Direction::FromServer).is_empty();
                process.read_messages(*proc, messages, is_partial, event.seq, &mut self.puts);
                process.has_unsolicited_response |= process.messages_received > process.requests;
            }
            EventKind::Ended { proc, ours } => {
                self.process(*proc).ended =
                    Some(if *ours { ProcessExitKind::Killed } else { ProcessExitKind::GroupAborted });
            }
            EventKind::Exited { proc, exit } => self.process(*proc).exit = Some(*exit),
            EventKind::Aborted { by, reason } => self.aborts.push((*by, reason.clone())),
            EventKind::StillRunning { procs, proof } => self.still_running(procs, *proof, conversation),
            EventKind::BrokenMemory { proc, text } => {
                self.process(*proc).broken_memory.get_or_insert_with(|| text.clone());
            }
            EventKind::OutputCompared { proc, difference } => {
                self.process(*proc).difference.clone_from(difference);
            }
            EventKind::LeftoverProcesses { names } => self.leftover_processes.clone_from(names),
            EventKind::PlainRun(plain) => self.plain = Some(plain.clone()),
            _ => {}
        }
    }

    /// Determines which processes are to blame for not ending.
    fn still_running(&mut self, procs: &[Proc], proof: HangProof, conversation: &Conversation) {
        let scripted = self.processes.values().any(|process| process.ended == Some(ProcessExitKind::Killed));
        let is_closed = |p: Proc| conversation.find(p).is_some_and(|link| link.is_closed());
        let waits: Vec<bool> =
            procs.iter().map(|p| self.process(*p).awaits_response && !is_closed(*p)).collect();
        // A process that waits for a response may depend on the other processes, so it is to blame only if all running processes wait.
        let all_wait = waits.iter().all(|waits| *waits);
        for (p, waits) in procs.iter().zip(waits) {
            let process = self.process(*p);
            let closed = conversation.find(*p).map(|link| (link.closed, link.closed_by_harness));
            process.hang_breaks = match (&process.wrong_answer, closed) {
                (Some(_), Some((false, false))) => Some((
                    ids::RFC13_ERROR_CLOSE,
                    "the client closes the connection on which it received an invalid message",
                )),
                (Some(_), Some((false, true))) => {
                    Some((ids::RFC13_ERROR_ABORT, "the client exits when it receives an invalid message"))
                }
                _ => None,
            };
            let excused = process.ended.is_some()
                || process.has_pending_script() && (process.must_exit_itself() || scripted);
            process.hung = Some(proof).filter(|_| (all_wait || !waits) && !excused);
            process.ended.get_or_insert(ProcessExitKind::Never(None));
        }
    }

    fn first_process_end(&self) -> Option<ProcessEnd> {
        self.processes.iter().next().map(|(p, process)| ProcessEnd { proc: *p, kind: process.end() })
    }

    /// Treats this run as a plain run, and returns its result.
    pub(crate) fn plain_run(&self) -> PlainRun {
        if !self.has_written {
            return PlainRun::Silent(self.first_process_end());
        }
        let bad = self.processes.iter().find(|(_, process)| !process.ended_well());
        bad.map_or(PlainRun::Succeeded, |(p, process)| {
            PlainRun::ProcessFailed(ProcessEnd { proc: *p, kind: process.end() })
        })
    }

    pub(crate) fn received_values(&self) -> BTreeMap<Proc, ReceivedValues> {
        self.processes.iter().map(|(p, process)| (*p, process.values.clone())).collect()
    }

    /// Returns true if the program has shown no sign of speaking PMI: no process has written to its connection, and this run is not
    /// compared with a plain run.
    pub(crate) fn is_silent(&self) -> bool {
        !self.has_written && self.plain.is_none()
    }

    /// Returns whether any process is to blame for not ending.
    pub(crate) fn is_hung(&self) -> bool {
        self.processes.values().any(|process| process.hung.is_some())
    }

    /// Returns the name of the first process that crashed, followed by the C library's report of corrupted memory if there was one, and the
    /// signal that killed the process.
    pub(crate) fn crashed(&self) -> Option<(String, i32)> {
        self.processes.iter().find_map(|(p, process)| {
            let message = process.broken_memory.as_ref().map(|message| format!(" ({message})"));
            Some((format!("rank {p}{}", message.unwrap_or_default()), process.crash()?))
        })
    }

    /// Returns the reason why the program could not be judged, if any.
    pub(crate) fn unjudged(&self) -> Option<UnjudgedReason> {
        match (&self.plain, &self.request) {
            (Some(PlainRun::Failed(why)), _) => Some(UnjudgedReason::Unplayable(why.clone())),
            (Some(PlainRun::Silent(end)), _) => Some(UnjudgedReason::Silent(end.clone())),
            (Some(PlainRun::ProcessFailed(end)), _) => Some(UnjudgedReason::FailsPlainRun(end.clone())),
            (_, Some(request)) if self.processes.values().all(|process| process.situations_reached == 0) => {
                Some(UnjudgedReason::NoSuchRequest(request.clone()))
            }
            _ => self.is_silent().then(|| UnjudgedReason::Silent(self.first_process_end())),
        }
    }

    /// Returns whether the plain run has the same finding. Such a finding is reported only in scenarios in which the server does nothing
    /// unusual.
    pub(crate) fn is_flaw(&self, finding: &Finding) -> bool {
        let Some(PlainRun::Flawed(flaws)) = &self.plain else { return false };
        flaws.iter().any(|flaw| flaw.requirement == finding.requirement && flaw.expected == finding.expected)
    }

    /// Returns whether a finding of the monitor does not count against the program.
    pub(crate) fn excuses(&self, finding: &Finding) -> bool {
        let process = |p: Proc| self.processes.get(&p);
        // A process that fails need not finalize, because exiting is how a client aborts.
        let failed = |p: Proc| process(p).is_none_or(|process| process.exit != Some(Exit::Code(0)));
        let finalized = |p: Proc| process(p).is_some_and(|process| process.finalized);
        let leaves = CLIENT_FINALIZES.contains(&finding.requirement.as_str())
            && finding.proc.is_none_or(|p| failed(p) && !finalized(p));
        // A process that received names, limits or responses that RFC 13 forbids need not handle them correctly.
        let holds =
            |what: fn(&ProcessState) -> bool| finding.proc.is_some_and(|p| process(p).is_some_and(what));
        let id = finding.requirement.as_str();
        let misled = (self.expects_failure()
            && USE_OF_RECEIVED_LIMITS.contains(&id)
            && holds(|process| process.situations_reached > 0))
            || (id == LOCK_STEP_RULE && holds(|process| process.has_unsolicited_response))
            || (MALFORMED_NAME_RULES.contains(&id) && holds(|process| process.received_bad_kvsname));
        leaves || misled
    }

    /// Returns whether the scenario expects a result other than success from at least one process.
    fn expects_failure(&self) -> bool {
        let successes = [ExpectationKind::Exits(ExitPattern::Code(0)), ExpectationKind::SameOutput];
        self.processes
            .values()
            .flat_map(|process| &process.expectations)
            .any(|(_, duty)| !successes.contains(&duty.kind))
    }

    /// Returns findings about processes that ran as singletons in a plain run, although they were started as ranks of the first group. Such
    /// processes sent nothing and exited with status 0. A program may spawn any other program, so spawned processes are not judged. `seq`
    /// becomes the event number of the findings.
    pub(crate) fn report_singletons(&self, seq: u64) -> Vec<Finding> {
        let size = self.processes.keys().filter(|p| p.group == 0).count();
        let is_singleton = |p: Proc, process: &ProcessState| {
            p.group == 0 && process.received_connection && !process.has_written && process.ended_well()
        };
        let all = self.processes.iter().filter(|_| self.plain.is_none() && size > 1);
        all.filter(|(p, process)| is_singleton(**p, process))
            .map(|(p, _)| {
                let expected = format!(
                    "an offer of a version from each of the {size} processes, or an exit status other than 0"
                );
                let seen =
                    "exit status 0 without an error message: the process continued alone, as rank 0 of 1";
                Finding {
                    proc: Some(*p),
                    seq,
                    ..Finding::new(CLIENT_JOINS, PartyKind::Client, expected, seen.to_owned())
                }
            })
            .collect()
    }

    /// Returns findings about the expectations that the processes have not met. `seq` becomes the event number of the findings.
    pub(crate) fn check(
        &self,
        connections: &Connections,
        conversation: &Conversation,
        seq: u64,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (p, process) in &self.processes {
            let mut find = |requirement: &str, line, at_most, expected: String, seen: String| {
                let broken = Finding::new(requirement, PartyKind::Client, expected, seen);
                findings.push(Finding { proc: Some(*p), seq, line, max_severity: at_most, ..broken });
            };
            let framing = connections.framing(*p);
            if self.skipped_finalize_response(*p, process, conversation) {
                let Finding { requirement, max_severity: at_most, expected, seen, .. } =
                    unacknowledged(framing);
                find(&requirement, 0, at_most, expected, seen);
            }
            for (requirement, at_most, expected, seen) in process.odd_requests() {
                find(requirement, 0, at_most, expected, seen);
            }
            if let Some(proof) = process.hung {
                let line = if process.situations_reached > 0 { process.last_situation } else { 0 };
                let unended = connections.incomplete_message(*p, Direction::ToServer, proof);
                match unended.filter(|_| proof != HangProof::Endless) {
                    Some(IncompleteMessage { rule, expected, seen }) => {
                        find(rule, line, None, expected.to_owned(), seen.text);
                    }
                    // A client, like a server, may skip an empty line. The client then waits for the response, which
                    // the scenario does not send.
                    None if process.received_empty_line && proof == HangProof::Idle => {
                        let seen = format!("{proof}, after an empty line");
                        find(
                            ids::RFC13_WIRE_TUPLES,
                            line,
                            Some(Severity::Note),
                            "the process ends".to_owned(),
                            seen,
                        );
                    }
                    None => {
                        let (rule, expected) = process.hang_breaks.unwrap_or((NO_HANG, "the process ends"));
                        let answer = process.wrong_answer.as_ref().filter(|_| process.hang_breaks.is_some());
                        let answered =
                            |answer| format!(", after {} was answered with {answer}", process.last_request);
                        let seen = format!("{proof}{}", answer.map(answered).unwrap_or_default());
                        find(rule, line, None, expected.to_owned(), seen);
                    }
                }
                continue;
            }
            let (early, missed): (Vec<_>, Vec<_>) =
                self.early_get(*p, process).into_iter().partition(|(get, _)| get.found);
            let no_barrier = |(get, writer): &(&GetExchange, Proc)| {
                let key = get.key.escape_ascii();
                let expected =
                    format!("a barrier between the put of {key} by rank {writer} and the get by rank {p}");
                (expected, format!("no barrier between the put by rank {writer} and the get"))
            };
            let visible = framing.pick(ids::rules::PUT_VISIBLE);
            for (expected, seen) in early.iter().map(no_barrier) {
                find(visible, 0, Some(Severity::Note), expected, seen);
            }
            // If the process never reached the described situation, its expectations do not apply.
            if process.situations > 0 && process.situations_reached == 0 {
                continue;
            }
            let requested_abort = conversation.find(*p).is_some_and(|link| link.requested_abort);
            let mut is_met = true;
            for (line, duty) in &process.expectations {
                let broken = match &duty.kind {
                    ExpectationKind::Exits(ExitPattern::NonZero) if requested_abort => continue,
                    ExpectationKind::Exits(pattern) => match process.end() {
                        ProcessExitKind::Exited(exit) => exit_mismatch(*pattern, exit)
                            .map(|expected| (expected, process.describe_end(exit))),
                        ProcessExitKind::Unknown => continue,
                        _ => self.was_aborted(*p, *pattern),
                    },
                    ExpectationKind::FailsOrMatches | ExpectationKind::SameOutput => {
                        process.differing_output()
                    }
                    // `Ends` needs no check here, because a process that does not end is always reported.
                    _ => continue,
                };
                is_met &= broken.is_none();
                match (broken, process.end()) {
                    // The process has crashed, which is reported as a separate finding.
                    _ if process.abort_signal().is_some() => {}
                    // The process fails because it did not wait for the value that it needs.
                    (Some((_, end)), ProcessExitKind::Exited(Exit::Code(1..))) if !missed.is_empty() => {
                        for (expected, seen) in missed.iter().map(no_barrier) {
                            find(visible, *line, None, expected, format!("{end}: {seen}"));
                        }
                    }
                    (Some((expected, seen)), _) => find(&duty.cites, *line, None, expected, seen),
                    // A process must end with an exit status.
                    (None, ProcessExitKind::Exited(exit @ Exit::Signal(_)))
                        if process.crash().is_none() && duty.kind != ExpectationKind::SameOutput =>
                    {
                        find(CLIENT_EXITS, *line, None, "an exit status".to_owned(), exit.to_string());
                    }
                    _ if duty.kind == ExpectationKind::Exits(ExitPattern::Any)
                        && process.ended_well()
                        && !process.has_written =>
                    {
                        let expected =
                            "a message on the connection, or an exit status other than 0".to_owned();
                        let seen = "exit status 0 without a message: the process continued as a separate job"
                            .to_owned();
                        find(CLIENT_JOINS, *line, Some(Severity::Note), expected, seen);
                    }
                    // The process reports success although it has asked its server to abort the job.
                    _ if duty.kind == ExpectationKind::Exits(ExitPattern::Code(0))
                        && process.ended_well()
                        && requested_abort =>
                    {
                        let expected = "no abort by a program that exits with status 0".to_owned();
                        let seen = "exit status 0 after a request to abort the job".to_owned();
                        find(EXITS_SUCCESSFULLY, *line, None, expected, seen);
                    }
                    _ => {}
                }
            }
            if let Some((expected, seen)) = self.ignored_response(*p, process).filter(|_| is_met) {
                let (line, at_most) = (process.last_situation, Some(Severity::Note));
                find(ids::DE_FACTO_CLIENT_REPORTS_FAILURE, line, at_most, expected, seen);
            }
        }
        findings
    }

    /// Returns whether a process succeeded without reading the response to its finalize.
    fn skipped_finalize_response(
        &self,
        p: Proc,
        process: &ProcessState,
        conversation: &Conversation,
    ) -> bool {
        let closed = conversation.find(p).is_some_and(|link| link.closed);
        process.ended_well()
            && process.finalized
            && (process.left_unread || process.closed_while_waiting)
            && !(closed || process.has_unsolicited_response)
    }

    /// Returns the expected and the actual end of a process that succeeded although the response to one of its requests was unusable. A get
    /// counts only if a process has put the requested key.
    fn ignored_response(&self, p: Proc, process: &ProcessState) -> Option<(String, String)> {
        let ignored = process.unusable.as_ref().filter(|_| process.ended_well())?;
        if ignored.operation == Operation::Get {
            self.puts.get(&(p.group, ignored.key.clone()?))?;
        }
        let ExchangeSummary { request, answer } = &ignored.exchange;
        let seen = format!("exit status 0, although {request} was answered with {answer}");
        Some(("an exit status other than 0".to_owned(), seen))
    }

    /// Returns the last get that no barrier separates from another process's put of the same key, and the process that put the key.
    fn early_get<'a>(&self, p: Proc, process: &'a ProcessState) -> Option<(&'a GetExchange, Proc)> {
        process.answered_gets.iter().rev().find_map(|get| {
            let put = self.puts.get(&(p.group, get.key.clone()))?;
            // Between the put and the get, the process may have left a barrier over part of the group. The counts do not show this.
            let synchronized = process.barrier_exits.iter().any(|seq| (put.seq..get.seq).contains(seq));
            (put.process != p && put.barriers_entered == get.barriers_left && !synchronized)
                .then_some((get, put.process))
        })
    }

    /// Returns the expected and the actual end of this process, if it caused the abort of the program and no process failed. Other
    /// processes of the aborted program are not reported.
    fn was_aborted(&self, p: Proc, pattern: ExitPattern) -> Option<(String, String)> {
        let (_, reason) = self.aborts.iter().find(|(by, _)| *by == p)?;
        let failed = |process: &ProcessState| matches!(process.end(), ProcessExitKind::Exited(exit) if exit != Exit::Code(0));
        let nobody_failed = matches!(pattern, ExitPattern::Code(_)) && !self.processes.values().any(failed);
        nobody_failed.then(|| ("exit status 0".to_owned(), format!("the program was aborted: {reason}")))
    }
}

/// Returns the finding about a client that has succeeded but closed its connection before it read the response to its finalize.
pub(crate) fn unacknowledged(framing: Framing) -> Finding {
    let expected = "the answer to finalize is read before the connection is closed";
    // No description of PMI-2 requires a client to wait for this response.
    let (id, at_most) = framing.pick([(LOCK_STEP_RULE, None), (CLIENT_FINALIZES[1], Some(Severity::Note))]);
    Finding {
        max_severity: at_most,
        ..Finding::new(id, PartyKind::Client, expected, "closed without reading the answer")
    }
}

/// Returns whether a message is a PMI-1 protocol error instead of the response to a request. An empty line does not count, because a client
/// may skip it; nor does a malformed response that a lenient client can read.
fn is_wrong_answer(message: &Decoded<'_>, operation: Operation) -> bool {
    let begins = |command: &str| message.text.starts_with(format!("cmd={command} ").as_bytes());
    let is_other = message.operation() != Some(operation) && !operation.response_cmd().is_some_and(begins);
    message.framing == Framing::Lines
        && operation != Operation::Abort
        && !message.text.is_empty()
        && is_other
        && (message.is_well_formed() || !is_readable_leniently(message))
}

/// Returns the fields of a response, well-formed or not. In PMI-1, the field `value` extends to the end of the line.
fn fields(framing: Framing, text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_line = framing == Framing::Lines;
    let separator = if is_line { b' ' } else { b';' };
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'=', rest) {
        let name = rest[..at].rsplit(|b| *b == separator).next().unwrap_or_default();
        rest = &rest[at + 1..];
        let whole = is_line && name == b"value";
        let end = memchr::memchr(separator, rest).filter(|_| !whole).unwrap_or(rest.len());
        fields.push((name.to_vec(), rest[..end].to_vec()));
        rest = &rest[end..];
    }
    fields
}

/// Describes the expected exit status, if `exit` does not match the pattern.
pub(crate) fn exit_mismatch(pattern: ExitPattern, exit: Exit) -> Option<String> {
    let (fits, expected) = match pattern {
        ExitPattern::Any => return None,
        ExitPattern::NonZero => (exit != Exit::Code(0), "an exit status other than 0".to_owned()),
        ExitPattern::Code(code) => (exit == Exit::Code(code.into()), format!("exit status {code}")),
    };
    (!fits).then_some(expected)
}
