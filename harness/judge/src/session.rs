//! The judge of a recorded session. A session has no expectations, so only the monitor judges the two sides.
//!
//! The judge also determines why a connection ended without finalize: the program left, it was killed, or it could not continue after a
//! response.

use pmi_scenario::ids;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use pmi_scenario::ast::Dialect;
use pmi_scenario::requirement::{Catalogue, RequirementSet};
use pmi_wire::{Direction, Operation, Proc, ResponseOutcome};

use crate::builtin_requirements::{NO_CRASH, NO_CRASH_EXPECTED};
use crate::connections::{CompletedMessage, decode};
use crate::crash::SignalCause;
use crate::deviations::Deviations;
use crate::event::{AbandonReason, Event, EventKind, Exit};
use crate::lookup_cache::LookupCache;
use crate::observation::quote_bytes;
use crate::offer::{describe_missing_offer, needs_offer, suggest_option};
use crate::program::{CLIENT_FINALIZES, unacknowledged};
use crate::result::{crash, excerpt, is_same_finding, judged};
use crate::verdict::{JudgedFinding, ScenarioResult, Strictness, Verdict};
use crate::{Finding, Monitor, PartyKind, Severity, evidence};

const MAX_FINDINGS_PER_SESSION: usize = 1000;

/// Number of recent events that are searched for the request that led to a finding.
const MAX_RECENT_EVENTS: usize = 1000;

/// Maximum number of unanswered requests that a result names.
const MAX_UNANSWERED: usize = 5;

/// Requirements, other than those about finalize, that a client may break merely because it is killed.
const CUT_OFF_REQUIREMENTS: [&str; 3] =
    [ids::RFC13_WIRE_NEWLINE, ids::RFC13_ABNF_C_SPAWN, ids::PMI2_COMMON_FRAME];

/// Returns the signal that killed a process, if the event reports the death and its cause is [`SignalCause::Fault`].
fn fault_signal(event: &Event) -> Option<i32> {
    match event.kind {
        EventKind::Exited { exit: Exit::Signal(signal), .. } => {
            Some(signal).filter(|s| SignalCause::of(*s) == SignalCause::Fault)
        }
        _ => None,
    }
}

/// Returns whether a requirement is part of RFC 13, or is met by every known PMI-2 server.
fn binds_all(id: &str) -> bool {
    let set = RequirementSet::of(id);
    set.is_rfc13() || set == RequirementSet::Pmi2Common
}

#[derive(Default)]
struct SessionProcess {
    closed: bool,
    /// The exit of the process; `None` while it is running, or if its tap, the wrapper that records the process, was killed as well.
    exit: Option<Exit>,
    /// True if another process had failed before this process's connection ended. This process may then have been killed.
    ended_after_failure: bool,
    /// The number of the event with the last bytes from the process.
    last_request_at: u64,
    last_response_at: u64,
    /// The key of the process's last request, if that is a get.
    key: Option<Vec<u8>>,
    /// True if the last response to the process is a refusal, or reports that nothing was found.
    is_refused: bool,
    /// True if the process has closed its connection with unread bytes from the server.
    left_unread: bool,
    /// The number of the event at which the process closed its connection without reading the response to its finalize.
    unacknowledged: Option<u64>,
}

impl SessionProcess {
    fn record_message(&mut self, (direction, message): &CompletedMessage<'_>) {
        let message = message.as_ref().ok();
        match direction {
            Direction::ToServer => {
                let get = message.filter(|message| message.operation() == Some(Operation::Get));
                self.key = get.and_then(|get| get.field("key")).map(Cow::into_owned);
            }
            Direction::FromServer => {
                let outcome = message.and_then(|message| message.outcome());
                self.is_refused = outcome.is_some_and(|outcome| outcome != ResponseOutcome::Success);
            }
        }
    }
}

/// The judge of a recorded session; see the module's documentation.
#[derive(Default)]
pub struct SessionJudge {
    monitor: Monitor,
    findings: Vec<Finding>,
    processes: LookupCache<Proc, SessionProcess>,
    /// Number of processes without a usable connection.
    unconnected: usize,
    command: Vec<String>,
    /// The reason why a program could not be started.
    not_started: Option<String>,
    /// True if a failure has occurred after which the process manager may kill all processes.
    has_failure: bool,
    exit: Option<Exit>,
    /// True if the session timed out.
    hung: bool,
    outlived: Vec<Proc>,
    /// The first crash of a process of the manager or the program, and the number of the first event that shows the crash.
    crash: Option<(Finding, u64)>,
    recent_events: VecDeque<Event>,
    /// Events that explain findings, by event number.
    evidence: BTreeMap<u64, Event>,
    events: usize,
}

impl SessionJudge {
    /// Judges the next event, adds it to the recent events, and returns a reference to it.
    pub fn observe(&mut self, event: Event) -> &Event {
        let known = self.findings.len();
        let crashed = matches!(event.kind, EventKind::Crashed { .. }) || fault_signal(&event).is_some();
        self.judge(&event);
        if self.recent_events.len() == MAX_RECENT_EVENTS {
            self.recent_events.pop_front();
        }
        self.events += 1;
        self.recent_events.push_back(event);
        if crashed && let Some((crash, loss)) = &mut self.crash {
            let first = evidence::first_loss(self.recent_events.make_contiguous(), crash.party);
            *loss = first.unwrap_or(*loss).min(*loss);
        }
        if crashed || known < self.findings.len() {
            let recent = self.recent_events.make_contiguous();
            let crash = self.crash.iter().map(|(crash, _)| crash).filter(|_| crashed);
            for seq in evidence::evidence(self.findings[known..].iter().chain(crash), recent) {
                let event = evidence::find_event(recent, seq);
                self.evidence.extend(event.map(|event| (seq, event.clone())));
            }
        }
        &self.recent_events[self.recent_events.len() - 1]
    }

    fn judge(&mut self, event: &Event) {
        let leaves = match event.kind {
            EventKind::ClosedByClient { proc } | EventKind::ClosedByServer { proc } => {
                !self.monitor.has_finalized(proc)
            }
            _ => false,
        };
        let arrivals = self.monitor.read(event);
        let messages = decode(&arrivals);
        if let Some((proc, direction, _)) = event.kind.message_bytes() {
            let process = self.process(proc);
            match direction {
                Direction::ToServer => (process.last_request_at, process.key) = (event.seq, None),
                Direction::FromServer => (process.last_response_at, process.is_refused) = (event.seq, false),
            }
            messages.iter().for_each(|message| process.record_message(message));
        }
        match &event.kind {
            EventKind::Launched { command, .. } => self.command.clone_from(command),
            EventKind::Started { proc, bad_fd, .. } => {
                *self.process(*proc) = SessionProcess::default();
                self.unconnected += usize::from(bad_fd.is_some());
            }
            EventKind::NotStarted { why, .. } => {
                self.not_started.get_or_insert_with(|| why.clone());
            }
            EventKind::LeftUnread { proc } => self.process(*proc).left_unread = true,
            EventKind::ClosedByClient { proc } | EventKind::ClosedByServer { proc } => {
                let trouble = self.has_failure;
                let waits = self.monitor.has_finalized(*proc) && !self.monitor.received_unsolicited(*proc);
                let process = self.process(*proc);
                if !std::mem::replace(&mut process.closed, true) {
                    process.ended_after_failure = trouble;
                    let unread = process.left_unread || process.last_request_at > process.last_response_at;
                    let by_client = matches!(event.kind, EventKind::ClosedByClient { .. });
                    process.unacknowledged = (by_client && waits && unread).then_some(event.seq);
                }
            }
            EventKind::Exited { proc, exit } => {
                let process = self.process(*proc);
                process.exit = Some(*exit);
                if let Some(seq) = process.unacknowledged.filter(|_| *exit == Exit::Code(0)) {
                    let framing = self.monitor.framing(*proc);
                    let finding = Finding { proc: Some(*proc), seq, ..unacknowledged(framing) };
                    self.findings.extend((self.findings.len() < MAX_FINDINGS_PER_SESSION).then_some(finding));
                }
                if let Some(signal) = fault_signal(event) {
                    let seen = crash(&format!("rank {proc}"), signal, &[]);
                    let finding = Finding::new(NO_CRASH, PartyKind::Client, NO_CRASH_EXPECTED, seen);
                    self.crashed(Finding { proc: Some(*proc), ..finding }, event.seq);
                }
            }
            EventKind::JobExited { exit } => self.exit = Some(*exit),
            EventKind::Crashed { name, signal } => {
                self.crashed(
                    Finding::new(NO_CRASH, PartyKind::Server, NO_CRASH_EXPECTED, crash(name, *signal, &[])),
                    event.seq,
                );
                self.has_failure = true;
            }
            EventKind::Abandoned(AbandonReason::Interrupted) => self.has_failure = true,
            EventKind::StillRunning { .. } => (self.hung, self.has_failure) = (true, true),
            EventKind::OutlivedLauncher { procs } => self.outlived.clone_from(procs),
            _ => {}
        }
        self.monitor.judge(event, &messages);
        self.has_failure |=
            event.kind.message_bytes().is_some_and(|(proc, ..)| self.monitor.has_aborted(proc));
        for finding in self.monitor.take_findings() {
            self.has_failure |= finding.party == PartyKind::Client;
            if self.findings.len() < MAX_FINDINGS_PER_SESSION {
                self.findings.push(finding);
            }
        }
        self.has_failure |=
            leaves || matches!(event.kind, EventKind::Exited { exit, .. } if exit != Exit::Code(0));
    }

    /// Stores the crash, unless there was an earlier one.
    fn crashed(&mut self, crash: Finding, seq: u64) {
        self.crash.get_or_insert((Finding { seq, ..crash }, seq));
    }

    fn process(&mut self, p: Proc) -> &mut SessionProcess {
        self.processes.get_or_insert_with(p, SessionProcess::default)
    }

    /// Returns the number of process groups that spawn requests asked for.
    pub fn spawned(&self) -> u32 {
        self.monitor.spawned()
    }

    /// Returns the number of messages to and from the processes.
    pub fn messages(&self) -> usize {
        self.monitor.messages()
    }

    /// Returns the dialects that were negotiated on the connections.
    pub fn dialects(&self) -> Vec<Dialect> {
        let is_negotiated = |dialect: &Dialect| self.monitor.has_negotiated(dialect.framing());
        Dialect::ALL.into_iter().filter(is_negotiated).collect()
    }

    /// Returns the violations by both sides, in order. A missing finalize is not reported for a killed process, and is only a note for a
    /// process that stops after an incorrect response. If a process stops because a get found nothing, although some process puts the key,
    /// a missing barrier is reported instead of the missing finalize.
    pub fn findings(&self) -> Vec<Finding> {
        let unoffered = self.monitor.is_unoffered();
        let applies = |f: &&Finding| !unoffered || !needs_offer(&f.requirement);
        let findings = self.findings.iter().filter(applies).filter(|f| !self.concerns_killed_process(f));
        findings.map(|f| self.adjusted(f)).collect()
    }

    fn concerns_killed_process(&self, f: &Finding) -> bool {
        let killed = |process: &SessionProcess| match process.exit {
            Some(Exit::Signal(signal)) => SignalCause::of(signal).is_from_outside(),
            Some(Exit::Code(_)) => false,
            None => process.ended_after_failure,
        };
        f.party == PartyKind::Client
            && f.proc.and_then(|p| self.processes.get(p)).is_some_and(killed)
            && CLIENT_FINALIZES.iter().chain(&CUT_OFF_REQUIREMENTS).any(|id| *id == f.requirement)
    }

    fn adjusted(&self, f: &Finding) -> Finding {
        let mut finding = f.clone();
        let leaves = f.party == PartyKind::Client && CLIENT_FINALIZES.contains(&&*f.requirement);
        // A process gives up if it sends no request after its last response.
        let gives_up = |p: &&SessionProcess| p.last_response_at > p.last_request_at;
        let Some((p, process)) =
            f.proc.filter(|_| leaves).and_then(|p| Some((p, self.processes.get(p).filter(gives_up)?)))
        else {
            return finding;
        };
        let fails = match process.exit {
            Some(Exit::Code(code)) => code != 0,
            Some(Exit::Signal(signal)) => SignalCause::of(signal) == SignalCause::Abort,
            None => false,
        };
        let of_server = |other: &&Finding| other.party == PartyKind::Server && other.proc == f.proc;
        let of_answer = |other: &&Finding| {
            // If only a draft or a de facto standard forbids the response, a program that exits with status 0 has accepted it.
            let counts = fails || process.exit == Some(Exit::Code(0)) && binds_all(&other.requirement);
            of_server(other) && other.seq == process.last_response_at && counts
        };
        let earlier = |other: &&Finding| {
            of_server(other) && other.seq < process.last_response_at && binds_all(&other.requirement)
        };
        if let Some(cause) = self.findings.iter().find(of_answer) {
            finding.max_severity = Some(Severity::Note);
            finding.seen = format!("{}, after an answer that breaks {}", f.seen, cause.requirement);
        } else if let Some((request, answer)) = self.refused(process).filter(|_| fails) {
            match process.key.as_ref().filter(|key| self.monitor.is_put(p.group, key)) {
                Some(key) => {
                    let (framing, key) = (self.monitor.framing(p), key.escape_ascii());
                    finding.requirement = framing.pick(ids::rules::PUT_VISIBLE).to_owned();
                    finding.expected = format!("a barrier between the put of {key} and the get by rank {p}");
                    finding.seen = format!(
                        "no barrier before the get of {key}, which found no value; the process then gave up"
                    );
                }
                None => {
                    let (request, answer) = (quote_bytes(request), quote_bytes(answer));
                    finding.seen = format!("{}, after {request} was answered with {answer}", f.seen);
                }
            }
        } else if let Some(cause) = self.findings.iter().rfind(earlier).filter(|_| fails) {
            let (seq, id) = (cause.seq, &cause.requirement);
            finding.seen = format!("{}; an earlier answer (event {seq}) breaks {id}", f.seen);
        }
        finding
    }

    /// Returns the last request of a process and its response, if the response was a refusal or a miss.
    fn refused(&self, process: &SessionProcess) -> Option<(&[u8], &[u8])> {
        let bytes = |seq: u64| self.event(seq).and_then(|event| event.kind.bytes());
        let (request, answer) = (bytes(process.last_request_at)?, bytes(process.last_response_at)?);
        process.is_refused.then(|| (request.trim_ascii_end(), answer.trim_ascii_end()))
    }

    /// Returns the event with this number, if it is still stored.
    fn event(&self, seq: u64) -> Option<&Event> {
        let place = self.recent_events.binary_search_by_key(&seq, |event| event.seq);
        place.ok().map(|place| &self.recent_events[place]).or_else(|| self.evidence.get(&seq))
    }

    /// Returns the result of the session. `blank` is a result that contains only the name and the duration.
    pub fn result(
        &self,
        blank: ScenarioResult,
        catalogue: &Catalogue,
        deviations: &Deviations,
        strict: Strictness,
    ) -> ScenarioResult {
        let mut findings: Vec<JudgedFinding> = Vec::new();
        for finding in self.crash.iter().map(|(crash, _)| crash.clone()).chain(self.findings()) {
            if !findings
                .iter()
                .any(|j| j.finding.party == finding.party && is_same_finding(&j.finding, &finding))
            {
                findings.push(judged(catalogue, finding));
            }
        }
        findings.sort_by_key(|judged| (Reverse(judged.severity), self.continues_after(&judged.finding)));
        suggest_option(&mut findings, &self.command);
        deviations.mark(&blank.scenario, &mut findings);
        let follows = |judged: &mut JudgedFinding| {
            let finding = &judged.finding;
            let event = self.event(finding.seq);
            self.crash.as_ref().is_some_and(|(_, loss)| evidence::is_consequence(finding, event, *loss))
        };
        let mut consequences: Vec<JudgedFinding> = findings.extract_if(.., follows).collect();
        consequences.extend(evidence::extract_explained(&mut findings));
        let reason = self.unjudged();
        let verdict = match findings.iter().map(|f| f.severity).max() {
            _ if self.crash.is_some() => Verdict::Crashed,
            _ if self.hung => Verdict::Hung,
            // A program that sends nothing breaks no requirement.
            _ if self.messages() == 0 => Verdict::Unjudged,
            // Findings count even in a session that is too small to be judged.
            Some(Severity::Fail) => Verdict::Fail,
            _ if reason.is_some() => Verdict::Unjudged,
            Some(Severity::Warn) => Verdict::Warn,
            Some(Severity::Note) => Verdict::Note,
            None => Verdict::Pass,
        };
        let (last_events, left_out) = match verdict {
            Verdict::Pass => (Vec::new(), 0),
            _ => self.excerpt(&findings),
        };
        let reason = reason.or_else(|| self.failure_reason(&findings));
        let summary = match &self.dialects()[..] {
            [] => "A recorded session.".to_owned(),
            all => {
                let words: Vec<String> = all.iter().map(|dialect| dialect.title().to_owned()).collect();
                format!("A recorded session in {}.", words.join(" and "))
            }
        };
        let negotiated = self.monitor.versions();
        ScenarioResult {
            summary,
            verdict,
            findings,
            consequences,
            reason,
            negotiated,
            exit: self.exit,
            last_events,
            left_out,
            ..blank
        }
        .at(strict)
    }

    /// Returns the last events and the events that explain findings and unanswered requests, and the number of omitted events.
    fn excerpt(&self, findings: &[JudgedFinding]) -> (Vec<Event>, usize) {
        let mut kept = self.evidence.clone();
        kept.extend(self.recent_events.iter().map(|event| (event.seq, event.clone())));
        let forgotten = self.events - kept.len();
        let unanswered = self.unanswered().into_iter().map(|(proc, seq)| Finding {
            proc: Some(proc),
            seq,
            ..Finding::new("", PartyKind::Server, "", "")
        });
        let unanswered: Vec<Finding> = unanswered.collect();
        let explained = unanswered.iter().chain(findings.iter().map(|judged| &judged.finding));
        let (events, left_out) = excerpt(kept.into_values(), explained);
        (events, left_out + forgotten)
    }

    /// Returns whether the process or the server wrote to the connection after this finding, or the process exited with status 0.
    fn continues_after(&self, finding: &Finding) -> bool {
        let process = finding.proc.and_then(|p| self.processes.get(p));
        process.is_some_and(|process| {
            process.last_request_at.max(process.last_response_at) > finding.seq
                || process.exit == Some(Exit::Code(0))
        })
    }

    /// Returns the processes whose last request has no response, each with the event of the request.
    fn unanswered(&self) -> Vec<(Proc, u64)> {
        let waits = |process: &&SessionProcess| {
            process.last_request_at > process.last_response_at && process.exit != Some(Exit::Code(0))
        };
        let all = self.processes.iter().filter(|(_, process)| waits(process));
        let mut all: Vec<(Proc, u64)> = all.map(|(proc, process)| (proc, process.last_request_at)).collect();
        all.sort_unstable();
        all.truncate(MAX_UNANSWERED);
        all
    }

    /// Explains why the job failed, if it failed. The text names the finding after which a process stopped, and the requests without a
    /// response.
    fn failure_reason(&self, findings: &[JudgedFinding]) -> Option<String> {
        let exit = self.exit.filter(|exit| *exit != Exit::Code(0))?;
        let counts = |judged: &&JudgedFinding| {
            judged.severity > Severity::Note || judged.finding.party == PartyKind::Server
        };
        let last = findings.iter().filter(counts).find(|judged| !self.continues_after(&judged.finding));
        let mut why = match last {
            Some(JudgedFinding { finding, .. }) => {
                format!(
                    "the job failed ({exit}) after event {}, which breaks {}",
                    finding.seq, finding.requirement
                )
            }
            None if findings.is_empty() => format!("the job failed ({exit})"),
            None => format!("the job failed ({exit}); its processes continued after each finding below"),
        };
        let waiting: Vec<String> =
            self.unanswered().iter().map(|(proc, seq)| format!("rank {proc} (event {seq})")).collect();
        if !waiting.is_empty() {
            why += &format!("; requests without an answer: {}", waiting.join(", "));
        }
        Some(why)
    }

    /// Returns the reason why the session contains too little information to be judged. Returns `None` if it contains
    /// enough.
    fn unjudged(&self) -> Option<String> {
        if self.processes.len() == 0 {
            let end = match self.exit {
                Some(Exit::Code(0)) | None => {
                    "did not start {tap}, or started it on another machine".to_owned()
                }
                Some(exit) => format!("ended with {exit} before it started {{tap}}"),
            };
            return Some(format!("no process was recorded: the launcher {end}"));
        }
        if let Some(why) = self.not_started.as_ref().filter(|_| self.messages() == 0) {
            return Some(format!("the program never started: {why}"));
        }
        if self.messages() == 0 {
            let lacking = describe_missing_offer(&self.command);
            let why = if self.unconnected == self.processes.len() {
                &lacking
            } else {
                "PMI_FD was set but not used, as in a program without a PMI library (Open MPI uses PMIx), or one that ends before MPI_Init"
            };
            return Some(format!("the processes sent no PMI message: {why}"));
        }
        if !self.outlived.is_empty() {
            let left: Vec<String> = self.outlived.iter().map(ToString::to_string).collect();
            return Some(format!(
                "processes outlived the launcher, so the recording is incomplete: rank {}",
                left.join(", ")
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::{INITS, NAMES, P, cited, cited_by, events, launched, numbered, started};

    fn judged(kinds: impl IntoIterator<Item = EventKind>) -> SessionJudge {
        let mut judge = SessionJudge::default();
        for event in numbered(kinds) {
            judge.observe(event);
        }
        judge
    }

    /// Returns the judge of a process that joins with PMI-2, receives the response `answer`, and continues with the lines `rest`.
    fn judge(answer: &str, rest: &[&str]) -> SessionJudge {
        let begin = [
            "0 > cmd=init pmi_version=2 pmi_subversion=0",
            "0 < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0",
            "0 >> cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;",
            &format!("0 << {answer}"),
        ];
        judged([launched(1, 0), started(P, &[])].into_iter().chain(events(&[&begin, rest].concat())))
    }

    #[rstest]
    #[case::not_offered(&[], false)]
    #[case::offered(&["PMI_RANK"], true)]
    fn descriptor_is_required_if_protocol_is_offered(#[case] variables: &[&str], #[case] broken: bool) {
        let env = variables.iter().map(|name| ((*name).to_owned(), "0".to_owned())).collect();
        let command = vec!["srun".to_owned(), "--mpi=none".to_owned()];
        let bad_fd = Some("PMI_FD is not set".to_owned());
        let judge = judged([
            EventKind::Launched { command, ranks: 1, nodes: 0 },
            EventKind::Started { proc: P, env, args: Vec::new(), bad_fd },
        ]);
        let found = cited(judge.findings());
        assert_eq!(found.iter().any(|id| id == ids::RFC13_ENV_PMI_FD), broken, "{found:?}");
        assert!(
            judge
                .unjudged()
                .is_some_and(|why| why.contains("pass --mpi=pmi2 to srun to enable the wire protocol"))
        );
    }

    #[test]
    fn reports_program_that_never_started() {
        let failed = EventKind::NotStarted { proc: P, why: "cannot start ./x".to_owned() };
        let judge = judged([started(P, &[("PMI_FD", "3")]), failed]);
        assert_eq!(judge.unjudged().as_deref(), Some("the program never started: cannot start ./x"));
    }

    const SHORT: &str = "cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;";
    const WHOLE: &str = "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;";

    #[rstest]
    #[case::gives_up(SHORT, "0 exits 3", Some(Severity::Note))]
    #[case::has_no_reason(WHOLE, "0 exits 3", None)]
    #[case::exits_successfully(SHORT, "0 exits 0", None)]
    #[case::dies(SHORT, "0 dies 11", None)]
    #[case::aborts(SHORT, "0 dies 6", Some(Severity::Note))]
    fn invalid_response_excuses_a_client_that_gives_up(
        #[case] answer: &str,
        #[case] exit: &str,
        #[case] at_most: Option<Severity>,
    ) {
        let judge = judge(answer, &["0 leaves", exit]);
        let findings = judge.findings();
        let leaves = findings.iter().find(|f| f.party == PartyKind::Client).unwrap();
        assert_eq!((&*leaves.requirement, leaves.max_severity), ("pmi2.common.finalize-last", at_most));
        assert_eq!(leaves.seen.contains("after an answer that breaks pmi2.draft"), at_most.is_some());
        assert_eq!((judge.messages(), judge.dialects()), (4, vec![Dialect::Pmi2]));
    }

    fn result_of(judge: &SessionJudge) -> ScenarioResult {
        let catalogue = pmi_scenario::suite::embedded_catalogue().unwrap();
        judge.result(ScenarioResult::default(), &catalogue, &Deviations::default(), Strictness::Must)
    }

    /// If a response breaks a MUST and the process then exits with status 0, its missing finalize is only a note.
    #[test]
    fn invalid_response_excuses_a_missing_finalize() {
        let result = result_of(&judge(
            "cmd=fullinit-response;rc=0;rank=0;size=2;appnum=0;",
            &["0 leaves", "0 exits 0"],
        ));
        let red = result.findings.iter().filter(|j| j.severity == Severity::Fail);
        assert!(
            red.clone().count() > 0 && red.clone().all(|j| j.finding.party == PartyKind::Server),
            "{result:?}"
        );
    }

    /// A process makes another request after a response that breaks a MUST, and then gives up.
    #[test]
    fn finding_cites_the_earlier_invalid_response() {
        let rest =
            ["0 >> cmd=job-getid;", "0 << cmd=job-getid-response;rc=0;jobid=j;", "0 leaves", "0 exits 3"];
        let judge = judge("cmd=fullinit-response;rc=0;rank=0;size=2;appnum=0;", &rest);
        let findings = judge.findings();
        let invalid =
            findings.iter().find(|f| f.party == PartyKind::Server && binds_all(&f.requirement)).unwrap();
        let leaves = findings.iter().find(|f| f.party == PartyKind::Client).unwrap();
        let cited = format!("an earlier answer (event {}) breaks {}", invalid.seq, invalid.requirement);
        assert_eq!((leaves.max_severity, leaves.seen.contains(&cited)), (None, true), "{leaves:?}");
    }

    #[test]
    fn program_crash_is_the_first_finding() {
        let result = result_of(&judge(WHOLE, &["0 leaves", "0 dies 11"]));
        let seen: Vec<(PartyKind, &str)> =
            result.findings.iter().map(|j| (j.finding.party, &*j.finding.seen)).collect();
        assert_eq!(
            (result.verdict, seen),
            (Verdict::Crashed, vec![(PartyKind::Client, "rank 0 died of signal 11")])
        );
        assert_eq!(result.consequences[0].finding.requirement, "pmi2.common.finalize-last");
    }

    /// Rank 1 reads the value of rank 0 without a barrier, finds nothing and gives up.
    #[test]
    fn missing_barrier_explains_missing_finalize() {
        let found = |key: &str, get: &str, exit: &str| {
            let rest = [
                &format!("1 > cmd=get kvsname=k key={key}"),
                get,
                "1 leaves",
                exit,
                "0 > cmd=put kvsname=k key=a value=1",
                "0 < cmd=put_result rc=0",
                "0 > cmd=finalize",
                "0 < cmd=finalize_ack rc=0",
                "0 leaves",
                "0 exits 0",
            ];
            let joins = (0..2).flat_map(|rank| {
                let join = events(&[INITS[rank], NAMES[rank]].concat());
                [started(Proc { group: 0, rank: rank as u32 }, &[])].into_iter().chain(join)
            });
            let judge = judged([launched(2, 0)].into_iter().chain(joins).chain(events(&rest)));
            judge.findings().into_iter().map(|f| (f.requirement, f.seen)).collect::<Vec<_>>()
        };
        let (visible, finalize) = ("rfc13.put.visible-after-barrier", "rfc13.abnf.c-finalize");
        let ids = |key: &str, get: &str, exit: &str| {
            found(key, get, exit).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        let miss = "1 < cmd=get_result rc=-1";
        assert_eq!(ids("a", miss, "1 exits 1"), [visible]);
        assert_eq!(ids("a", miss, "1 exits 0"), [finalize]);
        assert_eq!(ids("a", "1 < cmd=get_result rc=0 value=1", "1 exits 1").last().unwrap(), finalize);
        // The writer may have been killed before it could put the key.
        let (id, seen) = found("b", miss, "1 exits 1").remove(0);
        assert_eq!(id, finalize);
        let after = "closed without finalize, after \"cmd=get kvsname=k key=b\" was answered with \"cmd=get_result rc=-1\"";
        assert_eq!(seen, after);
    }

    /// The version in the first response is too high. After many messages and an unanswered request, the manager exits.
    #[test]
    fn failed_job_reason_names_the_unanswered_request() {
        let mut lines = vec![
            "0 > cmd=init pmi_version=1 pmi_subversion=1",
            "0 < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2",
        ];
        for _ in 0..2 * MAX_RECENT_EVENTS {
            lines.extend(["0 > cmd=get_appnum", "0 < cmd=appnum rc=0 appnum=0"]);
        }
        lines.push("0 > mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd");
        let end = EventKind::JobExited { exit: Exit::Code(255) };
        let kinds: Vec<_> =
            [launched(1, 0), started(P, &[])].into_iter().chain(events(&lines)).chain([end]).collect();
        let (all, pending) = (kinds.len(), kinds.len() - 2);
        let judge = judged(kinds);
        let blank = ScenarioResult::default();
        let result = judge.result(blank, &Catalogue::default(), &Deviations::default(), Strictness::Must);
        let found: Vec<(&str, u64)> =
            result.findings.iter().map(|j| (&*j.finding.requirement, j.finding.seq)).collect();
        assert_eq!(found, [("rfc13.init.version-used", 3)]);
        let seqs: Vec<u64> = result.last_events.iter().map(|event| event.seq).collect();
        assert!(seqs.starts_with(&[2, 3]) && seqs.contains(&(pending as u64)), "{seqs:?}");
        assert_eq!(seqs.len() + result.left_out, all);
        assert_eq!(
            result.reason.unwrap(),
            format!(
                "the job failed (exit status 255); its processes continued after each finding below; requests without an \
                 answer: rank 0 (event {pending})"
            )
        );
    }

    #[test]
    fn crash_of_the_manager_is_the_only_finding() {
        let mut judge = judge(WHOLE, &["0 >> cmd=kvs-fence;", "0 closed", "0 exits 1"]);
        let rest = [
            EventKind::Crashed { name: "proxy".into(), signal: 11 },
            EventKind::JobExited { exit: Exit::Code(255) },
        ];
        for (seq, kind) in (100..).zip(rest) {
            judge.observe(Event::new(seq, kind));
        }
        let blank = ScenarioResult::default();
        let result = judge.result(blank, &Catalogue::default(), &Deviations::default(), Strictness::Must);
        assert_eq!(result.verdict, Verdict::Crashed);
        assert_eq!(cited_by(&result.findings), [NO_CRASH]);
        assert_eq!(result.findings[0].finding.seen, "proxy died of signal 11");
        assert!(!result.consequences.is_empty());
    }

    #[test]
    fn killed_process_is_not_blamed_for_omissions() {
        let findings = judge(WHOLE, &["0 leaves", "0 dies 9"]).findings();
        assert!(findings.iter().all(|f| f.party == PartyKind::Server), "{findings:?}");
    }
}
