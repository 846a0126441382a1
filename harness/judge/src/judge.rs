//! The judge of one scenario. It reads every event, runs the monitors, and checks the expectations of the scenario.
//!
//! Expectations are events too, so judging a stored log again gives the same result.

use pmi_scenario::ids;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pmi_scenario::ast::Grade;
use pmi_scenario::requirement::is_advisory;
use pmi_wire::{Direction, Framing, Proc};

use crate::builtin_requirements::USABLE_VALUES;
use crate::bytes::{Bytes, MAX_SHOWN_BYTES, join_with_blanks};
use crate::connections::decode;
use crate::conversation::{Conversation, ReceivedMessage};
use crate::event::{AbandonReason, Event, EventKind, Exit, Flaw, PlainRun, ReceivedValues, SilenceProof};
use crate::expectation::ExpectationState;
use crate::expectation::{Captures, Choice, Expectation, ExpectationKind, Mismatch, Pattern};
use crate::history::{self, HistoryReader};
use crate::kvs::strip_after_value;
use crate::library::{self, LibraryJudge};
use crate::observation::{IncompleteMessage, NO_PROOF_SUFFIX, ObservationKind, not_read, quote_bytes};
use crate::offer::{describe_missing_offer, needs_offer};
use crate::program::{ProgramState, exit_mismatch};
use crate::unjudged::UnjudgedReason;
use crate::upstream::UpstreamMonitor;
use crate::verdict::Verdict;
use crate::{Finding, Monitor, PartyKind, Severity};

/// Maximum number of monitor findings that cite the same requirement. Further findings are dropped, because they would add no information.
const MAX_FINDINGS_PER_REQUIREMENT: usize = 1000;

/// Maximum number of monitor findings against the party under test that concern the same process. After more findings, the scenario ends
/// early. The limit applies to each process separately: in a scenario with hundreds of processes, one note about each of them must not end
/// the scenario.
const MAX_FINDINGS_PER_PROCESS: usize = 200;

/// The requirement that is broken by a job that keeps running after all of its processes have ended.
const JOB_ENDS_REQUIREMENT: &str = ids::DE_FACTO_JOB_ENDS;

/// The kind of event that the runner waits for, as determined by the last expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A required event.
    RequiredEvent,
    /// One of several allowed outcomes, including silence.
    Choice,
    /// The start of a process.
    Start,
    /// The absence of any message.
    Silence,
}

/// The outcome of a scenario.
#[derive(Debug, Default)]
pub struct ScenarioOutcome {
    /// The transcript.
    pub events: Vec<Event>,
    /// The violations by the party under test, in order.
    pub findings: Vec<Finding>,
    /// The party under test.
    pub party: PartyKind,
    /// True if a required response never arrived.
    pub hung: bool,
    /// True if the implementation started no process, opened no connection or sent no answer, so it may not speak PMI at all.
    pub unresponsive: bool,
    /// The first process of the implementation that died of a signal, and the signal.
    pub crashed: Option<(String, i32)>,
    /// The versions negotiated on the connections, for example `1.1`, the lowest first.
    pub negotiated: Vec<String>,
    /// Names of processes that outlived the rank of a program that started them. They had left the rank's operating-system process group,
    /// so they survived when that group was killed. The list is empty unless the runner looked for such processes.
    pub leftover_processes: Vec<String>,
    /// The reason why the implementation could not be judged.
    pub unjudged: Option<UnjudgedReason>,
    /// A mistake in the scenario: the line and the message.
    pub scenario_error: Option<(usize, String)>,
    /// Lines of statements that were not reached and therefore not judged.
    pub unreached: Vec<usize>,
}

/// The judge of one scenario; see the module's documentation.
pub struct Judge {
    party: PartyKind,
    /// True if there is no scenario. Only the monitors then report findings.
    has_no_scenario: bool,
    monitor: Monitor,
    upstream: UpstreamMonitor,
    history: HistoryReader,
    conversation: Conversation,
    program: ProgramState,
    library: LibraryJudge,
    monitor_findings: Vec<Finding>,
    /// True if the party under test has caused far more findings about one process than a report needs.
    has_too_many_findings: bool,
    /// Findings about unmet expectations of the scenario.
    scenario_findings: Vec<Finding>,
    expectation: Option<Expectation>,
    expectation_state: ExpectationState,
    captures: Captures,
    /// The proof that no more data will arrive, and the time that the runner waited.
    silence: Option<(SilenceProof, Duration)>,
    /// The processes whose requests the server had not read when the silence was reported.
    not_read: BTreeSet<Proc>,
    /// The number of the last event, not counting expectations and similar notes by the runner.
    seq: u64,
    line: usize,
    hung: bool,
    unstarted: bool,
    unjudged: Option<UnjudgedReason>,
    scenario_error: Option<(usize, String)>,
    unreached: Vec<usize>,
}

/// Quotes the start of a line, and adds the length of the line if it is cut.
fn format_line(line: &[u8]) -> String {
    let cut = &line[..line.len().min(MAX_SHOWN_BYTES)];
    match line.len() - cut.len() {
        0 => format!("\"{}\"", cut.escape_ascii()),
        _ => format!("\"{}\"... ({} bytes)", cut.escape_ascii(), line.len()),
    }
}

const CONNECTION_END: &str = "the end of the connection";

/// Requirements about the rank that a process received.
const RANK_REQUIREMENTS: [&str; 2] = [ids::RFC13_ENV_PMI_RANK, ids::PMI_PORT_RANK];

/// Requirements about the size that a process received.
const SIZE_REQUIREMENTS: [&str; 2] = [ids::RFC13_ENV_PMI_SIZE, ids::PMI_PORT_SIZE];

fn quote_each(args: &[Bytes]) -> String {
    args.iter().map(|arg| quote_bytes(&arg.0)).collect::<Vec<_>>().join(" ")
}

impl Judge {
    /// Creates a judge. `requires` lists the requirements that the scenario tests.
    pub fn new(party: PartyKind, requires: Vec<String>) -> Self {
        Self {
            party,
            has_no_scenario: false,
            library: LibraryJudge::new(requires.clone()),
            monitor: Monitor::with_focus(requires),
            upstream: UpstreamMonitor::default(),
            history: HistoryReader::default(),
            conversation: Conversation::default(),
            program: ProgramState::default(),
            monitor_findings: Vec::new(),
            has_too_many_findings: false,
            scenario_findings: Vec::new(),
            expectation: None,
            expectation_state: ExpectationState::Met,
            captures: Captures::new(),
            silence: None,
            not_read: BTreeSet::new(),
            seq: 0,
            line: 0,
            hung: false,
            unstarted: false,
            unjudged: None,
            scenario_error: None,
            unreached: Vec::new(),
        }
    }

    /// Creates a judge without a scenario. Its monitors report violations of all requirements.
    pub fn without_scenario(party: PartyKind) -> Self {
        Self { monitor: Monitor::new(), has_no_scenario: true, ..Self::new(party, Vec::new()) }
    }

    /// Returns and removes the findings against all parties that the monitors have reported so far.
    pub fn take_monitor_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.monitor_findings)
    }

    /// Reads the next event.
    pub fn observe(&mut self, event: &Event) {
        self.line = event.line;
        let arrivals = self.monitor.read(event);
        let messages = decode(&arrivals);
        self.monitor.judge(event, &messages);
        self.upstream.observe(event, &messages);
        for mut finding in self.monitor.take_findings().into_iter().chain(self.upstream.take_findings()) {
            finding.line = event.line;
            if self.party == PartyKind::Library && !library::attribute_to_library(&mut finding, event) {
                continue;
            }
            // The limits apply to each party separately. Otherwise, the harness's deliberate violations could exhaust the limit, and
            // findings against the implementation would be dropped.
            let against_party = || self.monitor_findings.iter().filter(|f| f.party == finding.party);
            let of_process = against_party().filter(|f| f.proc == finding.proc).count();
            let of_requirement = against_party().filter(|f| f.requirement == finding.requirement).count();
            self.has_too_many_findings |=
                finding.party == self.party && of_process >= MAX_FINDINGS_PER_PROCESS;
            if of_requirement < MAX_FINDINGS_PER_REQUIREMENT {
                self.monitor_findings.push(finding);
            }
        }
        self.conversation.observe(event, &messages);
        let connections = &self.monitor.connections;
        match self.party {
            PartyKind::Client => self.program.observe(event, &messages, connections, &self.conversation),
            PartyKind::Library => self.library.observe(event, &messages, connections),
            PartyKind::Server => self.history.observe(event, &messages),
        }
        match &event.kind {
            EventKind::Expected(expectation) if expectation.kind.concerns_program() => {}
            EventKind::Expected(expectation) => {
                self.expectation = Some((**expectation).clone());
                self.expectation_state = ExpectationState::Pending;
                self.captures.clear();
                self.silence = None;
                self.not_read.clear();
            }
            EventKind::NotRead { proc } => {
                self.not_read.insert(*proc);
            }
            EventKind::Silence { proof, waited_ms } => {
                self.silence = Some((*proof, Duration::from_millis(*waited_ms)));
            }
            EventKind::Flooded { limit } => {
                self.seq = event.seq;
                let seen = format!("more than {limit} bytes");
                let expected = match self.party {
                    PartyKind::Library => "one request after the other",
                    _ => "one response to each request",
                };
                self.report_broken(self.library.last_writer, ids::RFC13_WIRE_LOCK_STEP, expected, seen);
            }
            EventKind::Abandoned(why) => {
                self.expectation_state = ExpectationState::Broken;
                match why {
                    AbandonReason::Interrupted => self.unjudged = Some(UnjudgedReason::Interrupted),
                    AbandonReason::Unplayable(why) => {
                        self.unjudged = Some(UnjudgedReason::Unplayable(why.clone()))
                    }
                    AbandonReason::Misplaced(why) => {
                        self.unjudged = Some(UnjudgedReason::Misplaced(why.clone()))
                    }
                    AbandonReason::Unusable(what) => {
                        self.report_broken(None, USABLE_VALUES, "usable names and limits", what.clone());
                    }
                    AbandonReason::Mistake(what) => self.scenario_error = Some((event.line, what.clone())),
                }
            }
            EventKind::StatementsSkipped { lines } => self.unreached.clone_from(lines),
            EventKind::JobKeepsRunning { proof, waited_ms, procs, names } => {
                self.seq = event.seq;
                self.report_running_job(*proof, Duration::from_millis(*waited_ms), procs, names);
            }
            _ => self.seq = event.seq,
        }
        if self.expectation_state == ExpectationState::Pending
            && let Some(expectation) = self.expectation.take()
        {
            self.check(&expectation, matches!(event.kind, EventKind::NoResponse { .. }));
            self.expectation = Some(expectation);
        }
    }

    /// Returns the state of the last expectation.
    pub fn expectation_state(&self) -> ExpectationState {
        self.expectation_state
    }

    /// Returns and removes the values that the last expectation has captured.
    pub fn take_captures(&mut self) -> Captures {
        std::mem::take(&mut self.captures)
    }

    /// Returns true if the scenario should end early: it was abandoned, or there are far too many findings or processes.
    pub fn should_end_early(&self) -> bool {
        let abandoned = self.unjudged.is_some() || self.scenario_error.is_some();
        let has_too_many = !self.has_no_scenario && self.has_too_many_findings;
        abandoned || has_too_many || self.monitor.starts_too_many()
    }

    /// Returns whether the monitor has reported that the server starts far more processes than requested.
    pub fn starts_too_many(&self) -> bool {
        self.monitor.starts_too_many()
    }

    /// Returns the number of bytes that the server or the library under test has sent.
    pub fn received(&self) -> u64 {
        self.conversation.received + self.library.received
    }

    /// Returns the judge of the library under test.
    pub fn library(&self) -> &LibraryJudge {
        &self.library
    }

    /// Returns and removes the library's new requests for which the scenario contains no response.
    pub fn take_unscripted(&mut self) -> Vec<(Proc, library::LibraryRequest)> {
        self.library.take_unscripted()
    }

    /// Returns whether the server has accepted the init of a process.
    pub fn has_joined(&self, p: Proc) -> bool {
        self.monitor.has_joined(p)
    }

    /// Returns the exit of the job, if it has ended.
    pub fn job(&self) -> Option<Exit> {
        self.conversation.job
    }

    /// Returns whether a required response never arrived.
    pub fn is_hung(&self) -> bool {
        self.hung
    }

    /// Returns whether a process has started without a usable connection.
    pub fn lacks_connection(&self) -> bool {
        self.conversation.unconnected
    }

    /// Returns the expected number of processes in a group; 0 for a group that no spawn request has requested.
    pub fn size(&self, group: u32) -> u32 {
        self.conversation.size(group)
    }

    /// Returns a description of the first group's placement on nodes, if the placement differs from the request.
    pub fn other_placement(&self) -> Option<String> {
        self.monitor.other_placement()
    }

    /// Returns the PMI_JOBID that a process received.
    pub fn job_id(&self, p: Proc) -> Option<&[u8]> {
        self.conversation.find(p)?.env.get("PMI_JOBID").map(|id| id.as_bytes())
    }

    /// Returns true if the remaining steps of a process must be skipped, for example after its spawn was refused.
    pub fn is_over(&self, p: Proc) -> bool {
        self.is_refused(p.group)
            || self.library.is_over(p)
            || self.conversation.find(p).is_some_and(|link| link.skips_steps)
    }

    /// Returns whether the spawn of a group was refused.
    pub fn is_refused(&self, group: u32) -> bool {
        self.conversation.is_refused(group)
    }

    /// Returns whether either side has closed the process's connection.
    pub fn is_closed(&self, p: Proc) -> bool {
        self.conversation.find(p).is_some_and(|link| link.is_closed())
    }

    /// Returns true if a step that waits for a message on a connection can continue: a message has arrived, or the connection is closed.
    pub fn has_input(&self, p: Proc) -> bool {
        self.is_closed(p) || self.conversation.find(p).is_some_and(|link| !link.lines.is_empty())
    }

    /// Removes and returns the first message of a process that no step has consumed yet.
    pub fn take_message(&mut self, p: Proc) -> Option<ReceivedMessage> {
        self.conversation.link(p).take()
    }

    /// Returns the processes that have started, sorted.
    pub fn started_processes(&self) -> Vec<Proc> {
        let mut all: Vec<Proc> =
            self.conversation.connections().filter(|(_, link)| link.started).map(|(p, _)| p).collect();
        all.sort_unstable();
        all
    }

    /// Returns the number of the group that the next lines of a spawn request belong to.
    pub fn next_group(&self) -> u32 {
        self.conversation.next_group()
    }

    /// Returns the numbers of a proxy's requests that steps have consumed, in order.
    pub fn consumed_requests(&self, proxy: Proc) -> &[u64] {
        self.conversation.find(proxy).map_or(&[], |link| &link.consumed)
    }

    /// Returns the kind of event that the last expectation waits for; `None` if that expectation is already met or broken.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        let expectation =
            self.expectation.as_ref().filter(|_| self.expectation_state == ExpectationState::Pending)?;
        Some(match expectation.kind {
            ExpectationKind::Silence => WaitReason::Silence,
            ExpectationKind::Started => WaitReason::Start,
            ExpectationKind::OneOf(ref choices) if choices.iter().any(Choice::is_valid_silence) => {
                WaitReason::Choice
            }
            _ => WaitReason::RequiredEvent,
        })
    }

    /// Returns the values that each process of a program received.
    pub fn received_values(&self) -> BTreeMap<Proc, ReceivedValues> {
        self.program.received_values()
    }

    /// Returns the outcome of a plain run of a program.
    pub fn plain_run(&self) -> PlainRun {
        let run = self.program.plain_run();
        if run != PlainRun::Succeeded {
            return run;
        }
        let flaw = |f: Finding| Flaw { requirement: f.requirement, expected: f.expected };
        let mut flaws: Vec<Flaw> = self.program_findings(0).into_iter().map(flaw).collect();
        flaws.sort_unstable_by(|a, b| (&a.requirement, &a.expected).cmp(&(&b.requirement, &b.expected)));
        flaws.dedup();
        if flaws.is_empty() { run } else { PlainRun::Flawed(flaws) }
    }

    /// Returns the findings against a program: those of the monitor, and those of [`ProgramState::check`], which are assigned to event
    /// `seq`.
    fn program_findings(&self, seq: u64) -> Vec<Finding> {
        let watched =
            self.monitor_findings.iter().filter(|f| f.party == PartyKind::Client && !self.program.excuses(f));
        let connections = &self.monitor.connections;
        watched.cloned().chain(self.program.check(connections, &self.conversation, seq)).collect()
    }

    /// Returns the outcome of the scenario.
    pub fn finish(mut self, events: Vec<Event>) -> ScenarioOutcome {
        if self.party == PartyKind::Client {
            return self.finish_program(events);
        }
        let mut findings = self.monitor_findings;
        findings.extend(self.scenario_findings);
        findings.extend(self.library.take_findings());
        findings.retain(|f| f.party == self.party);
        if self.party == PartyKind::Server {
            history::extend(&mut findings, self.history, &events);
        }
        findings.sort_by_key(|f| f.seq);
        if self.monitor.is_unoffered() {
            findings.retain(|f| !needs_offer(&f.requirement));
            let command = events.iter().find_map(|event| match &event.kind {
                EventKind::Launched { command, .. } => Some(&command[..]),
                _ => None,
            });
            let why = describe_missing_offer(command.unwrap_or_default());
            self.unjudged.get_or_insert(UnjudgedReason::NotOffered(why));
        }
        ScenarioOutcome {
            events,
            findings,
            party: self.party,
            hung: self.hung || self.library.hung,
            unresponsive: self.unstarted
                || matches!(self.library.unjudged, Some(UnjudgedReason::Unloadable(_)))
                || ((self.hung || self.conversation.unconnected) && self.conversation.received == 0),
            crashed: self.conversation.crashed.or(self.library.crashed),
            negotiated: self.monitor.versions(),
            leftover_processes: Vec::new(),
            unjudged: self.unjudged.or(self.library.unjudged),
            scenario_error: self.scenario_error,
            unreached: self.unreached,
        }
    }

    fn finish_program(self, events: Vec<Event>) -> ScenarioOutcome {
        let unjudged = self.unjudged.clone().or_else(|| self.program.unjudged());
        let (mut findings, mut crashed, mut hung) = (Vec::new(), None, false);
        if unjudged.as_ref().is_none_or(|why| why.verdict() == Verdict::Unjudged) {
            crashed = self.program.crashed();
        }
        // A program that never writes to its connection may not speak PMI at all. If it does not exit, the reason for the unjudged verdict
        // says so, and there is no separate finding.
        let judged = |why: &UnjudgedReason| {
            why.verdict() == Verdict::Unjudged && !matches!(why, UnjudgedReason::Silent(_))
        };
        // Events of a crash analysis are recorded after the scenario has ended.
        let later =
            |event: &Event| matches!(event.kind, EventKind::Backtrace(_) | EventKind::Untraced { .. });
        let end = events.iter().position(later).unwrap_or(events.len()) as u64;
        findings.extend(self.program.report_singletons(end));
        if unjudged.as_ref().is_none_or(judged) {
            let found = self.program_findings(end).into_iter();
            findings.extend(found.filter(|f| !self.program.is_flaw(f)));
            hung = self.program.is_hung();
        }
        ScenarioOutcome {
            events,
            findings,
            party: self.party,
            hung,
            unresponsive: self.program.is_silent(),
            crashed,
            negotiated: self.monitor.versions(),
            leftover_processes: self.program.leftover_processes,
            unjudged,
            scenario_error: self.scenario_error,
            unreached: self.unreached,
        }
    }

    // ----- expectations ---------------------------------------------------------------------------------------------

    /// Checks whether an expectation has been met or broken. `unanswered` is true if the current event states that no response will arrive.
    fn check(&mut self, expectation: &Expectation, unanswered: bool) {
        let Some(p) = expectation.proc else { return self.check_job(expectation) };
        if self.party == PartyKind::Library {
            self.expectation_state = self.library.check(p, expectation, self.silence, &mut self.captures);
            if self.expectation_state == ExpectationState::Broken
                && matches!(&expectation.kind, ExpectationKind::Returns { code, .. } if !code.matches(0))
            {
                // The call should have failed because of the last response, so findings about later messages from this
                // process are consequences. A finding about a wrong version is kept, because it shows why the call did
                // not fail.
                let answered = self.library.answered_at(p);
                let is_cause = |f: &Finding| f.requirement == ids::RFC13_INIT_HIGHEST_MUTUAL;
                self.monitor_findings.retain(|f| f.proc != Some(p) || f.seq <= answered || is_cause(f));
            }
            return;
        }
        let cites = expectation.cites.as_str();
        if let Some(unended) = self.incomplete_message(p, &expectation.kind) {
            // The missing response is reported at the event that shows the silence, after the monitor has reported its
            // findings.
            if unanswered {
                self.hung |= expectation.kind != ExpectationKind::Silence;
                self.report_broken(Some(p), unended.rule, unended.expected, unended.seen.text);
            }
            return;
        }
        match &expectation.kind {
            ExpectationKind::Message(pattern) => match self.next_input(p) {
                StepInput::Line(line) => match self.fits(p, pattern, &line) {
                    Ok(captures) => {
                        self.accept_outcome(p, &expectation.kind, line.seq);
                        self.mark_met(captures);
                    }
                    Err(Mismatch(what)) => {
                        self.find_mismatch(p, cites, format!("{} ({what})", pattern.shown), &line);
                        // If the message refuses a spawn, `consume` records this, so the missing processes do not cause a second finding.
                        self.conversation.consume(&line);
                        // The following steps are judged as if the value had been correct, so that one wrong value does
                        // not hide other errors. A proxy's request is an exception: with a wrong value it is a
                        // different request, for which the scenario has no response.
                        let read = pattern
                            .read_leniently(&line.text, line.framing)
                            .filter(|_| p.group != Proc::PROXY_GROUP);
                        read.into_iter().for_each(|captures| self.mark_met(captures));
                    }
                },
                other => self.report_missing_message(p, cites, &pattern.shown, other, unanswered),
            },
            ExpectationKind::Newline => match self.next_input(p) {
                StepInput::Line(line) if line.text.is_empty() => self.mark_met(Captures::new()),
                StepInput::Line(line) => self.find_mismatch(p, cites, "a bare newline".into(), &line),
                other => self.report_missing_message(p, cites, "a bare newline", other, unanswered),
            },
            ExpectationKind::Close => match self.next_input(p) {
                StepInput::Line(line) => self.find_mismatch(p, cites, CONNECTION_END.into(), &line),
                StepInput::End => {
                    self.conversation.link(p).skips_steps = true;
                    self.accept_outcome(p, &expectation.kind, self.seq);
                    self.mark_met(Captures::new());
                }
                StepInput::Silence(proof, waited) => {
                    self.report_silence(Some(p), cites, CONNECTION_END, proof, waited)
                }
                StepInput::Open => {}
            },
            ExpectationKind::Silence => {
                if let Some(line) = self.conversation.link(p).take() {
                    self.find_mismatch(p, cites, "no message".into(), &line);
                } else if self.conversation.link(p).closed {
                    self.report_broken(Some(p), cites, "no message", CONNECTION_END);
                } else if self.silence.is_some() {
                    self.accept_outcome(p, &expectation.kind, self.seq);
                    self.mark_met(Captures::new());
                }
            }
            ExpectationKind::OneOf(choices) => self.check_choices(p, cites, choices, unanswered),
            ExpectationKind::Started => self.check_start(p, cites),
            ExpectationKind::IsEnded => {
                let link = self.conversation.link(p);
                if link.ended || link.closed {
                    link.skips_steps = true;
                    self.mark_met(Captures::new());
                } else if let Some((proof, waited)) = self.silence {
                    self.report_silence(
                        Some(p),
                        cites,
                        "the process manager terminates the process",
                        proof,
                        waited,
                    );
                }
            }
            ExpectationKind::Variable { name, value } => {
                let seen = self.conversation.link(p).env.get(name).cloned();
                let mut captures = Captures::new();
                match value.matches(Framing::Lines, name, seen.as_deref().map(str::as_bytes), &mut captures) {
                    Ok(()) => self.mark_met(captures),
                    Err(Mismatch(what)) => {
                        let seen = seen.map_or(format!("{name} is not set"), |v| format!("{name}={v}"));
                        self.report_broken(Some(p), cites, what, seen);
                    }
                }
            }
            ExpectationKind::Arguments(expected) => {
                let args = &self.conversation.link(p).args;
                let seen = join_with_blanks(args);
                let whole = self.monitor.arguments_in_pieces(p, args);
                if seen == expected.0 && whole.is_none() {
                    return self.mark_met(Captures::new());
                }
                let (expected, seen) = match whole {
                    Some(whole) => (format!("the arguments {}", quote_each(whole)), quote_each(args)),
                    None => (format!("arguments \"{expected}\""), format!("\"{}\"", seen.escape_ascii())),
                };
                self.report_broken(Some(p), cites, expected, seen);
            }
            // Expectations about the job have no process. Expectations about a program are checked at the end, and those about a library by
            // `LibraryJudge`.
            _ => {}
        }
    }

    fn check_job(&mut self, expectation: &Expectation) {
        let cites = expectation.cites.as_str();
        match (&expectation.kind, self.conversation.job) {
            (ExpectationKind::JobExits(expected), Some(exit)) => match exit_mismatch(*expected, exit) {
                Some(expected) => self.report_broken(None, cites, expected, exit.to_string()),
                None => self.mark_met(Captures::new()),
            },
            (ExpectationKind::JobExits(_), None) => {
                if let Some((proof, waited)) = self.silence {
                    self.hung = true;
                    self.report_silence(None, cites, "the job ends", proof, waited);
                }
            }
            (_, _) if self.conversation.output => self.mark_met(Captures::new()),
            (_, job) => {
                if job.is_some() || self.silence.is_some() {
                    let expected = "a message on stderr or stdout that describes the error";
                    self.report_broken(None, cites, expected, "nothing");
                }
            }
        }
    }

    /// Reports a job that keeps running without its processes, unless a hang, a crash or an early end may be the reason.
    fn report_running_job(
        &mut self,
        proof: SilenceProof,
        waited: Duration,
        procs: &[Proc],
        names: &[String],
    ) {
        if self.hung || self.unjudged.is_some() || self.conversation.crashed.is_some() {
            return;
        }
        let mut running = Vec::new();
        if !procs.is_empty() {
            let agents = if procs.len() == 1 { "an agent that was" } else { "agents that were" };
            running.push(format!("{agents} asked to exit ({})", Proc::list(procs)));
        }
        if !names.is_empty() {
            running.push(names.join(", "));
        }
        let running = if running.is_empty() { "the job".to_owned() } else { running.join(", ") };
        let seen = match proof {
            SilenceProof::Idle | SilenceProof::Unread => {
                format!("still running, with nothing left to wait for: {running}")
            }
            SilenceProof::Polled => format!("still running after {waited:?}: {running}"),
            SilenceProof::Timeout => format!("still running after {waited:?}{NO_PROOF_SUFFIX}: {running}"),
        };
        let expected = "the job ends once all of its processes have ended".to_owned();
        self.find(self.seq, None, JOB_ENDS_REQUIREMENT, None, expected, seen);
    }

    fn check_start(&mut self, p: Proc, cites: &str) {
        if self.conversation.link(p).started {
            return self.mark_met(Captures::new());
        }
        let launcher = self.conversation.job.filter(|_| p.group == 0);
        if launcher.is_none() && self.silence.is_none() {
            return;
        }
        if p.group != 0 {
            // If a process of the group received a wrong rank, this has been reported, and it explains why another process seems to be
            // missing.
            if self.has_group_finding(p.group, &RANK_REQUIREMENTS) {
                self.expectation_state = ExpectationState::Broken;
                return;
            }
            return self.report_broken(
                Some(p),
                cites,
                "the process is started",
                format!("process {p} did not report to the runner"),
            );
        }
        let none = !self.conversation.connections().any(|(_, link)| link.started);
        self.unstarted = none;
        self.expectation_state = ExpectationState::Broken;
        self.unjudged =
            Some(UnjudgedReason::NotStarted { rank: p.rank, none, launcher, nothing: self.silence });
    }

    fn check_choices(&mut self, p: Proc, cites: &str, choices: &[Choice], unanswered: bool) {
        let next = self.next_input(p);
        if matches!(next, StepInput::Open) {
            return;
        }
        for choice in choices {
            let fitting = match (&choice.kind, &next) {
                (ExpectationKind::Message(pattern), StepInput::Line(line)) => {
                    self.fits(p, pattern, line).ok()
                }
                (ExpectationKind::Newline, StepInput::Line(line)) => line.text.is_empty().then(Captures::new),
                (ExpectationKind::Close, StepInput::End)
                | (ExpectationKind::Silence, StepInput::Silence(..)) => Some(Captures::new()),
                _ => None,
            };
            if let Some(captures) = fitting {
                return self.check_chosen(p, cites, choices, choice, &next, captures);
            }
        }
        match next {
            StepInput::Line(line) => {
                self.find_mismatch(p, cites, valid_outcomes_instead(choices, &line), &line)
            }
            other => self.report_missing_message(p, cites, &valid_outcomes(choices), other, unanswered),
        }
    }

    fn check_chosen(
        &mut self,
        p: Proc,
        cites: &str,
        choices: &[Choice],
        choice: &Choice,
        next: &StepInput,
        captures: Captures,
    ) {
        if choice.kind == ExpectationKind::Close {
            self.conversation.link(p).skips_steps = true;
            // If the scenario accepts a close as the response to a spawn, the close counts as a refusal of the spawn.
            if choices.iter().any(Choice::answers_spawn) {
                self.conversation.refuse_spawn();
            }
        }
        let (seq, seen) = match next {
            StepInput::Line(line) => {
                self.conversation.consume(line);
                (line.seq, format_line(&line.text))
            }
            StepInput::Silence(proof, waited) => (self.seq, self.describe_silence(*proof, *waited)),
            StepInput::End | StepInput::Open => (self.seq, CONNECTION_END.into()),
        };
        let cites = choice.cites.as_deref().unwrap_or(cites);
        let cites = if matches!(next, StepInput::Silence(..)) {
            self.silence_requirement(Some(p), cites)
        } else {
            cites
        };
        let at_most = match choice.grade {
            Grade::Fail => {
                self.drop_unsolicited_finding(p, choice, seq);
                let expected = match next {
                    StepInput::Line(line) => valid_outcomes_instead(choices, line),
                    _ => valid_outcomes(choices),
                };
                return self.report_broken_at(seq, Some(p), cites, expected, seen);
            }
            Grade::Pass => None,
            Grade::Warn => Some(Severity::Warn),
            Grade::Note => Some(Severity::Note),
        };
        self.accept_outcome(p, &choice.kind, seq);
        if at_most.is_some() {
            let expected = describe_usual_outcomes(choices, choice, next);
            self.find(seq, Some(p), cites, at_most, expected, seen);
        }
        self.mark_met(captures);
    }

    /// Compares a message with the expected message, and returns the captured values. If the monitor has already reported the form of the
    /// message, the message is read leniently, so that the form does not cause a second finding.
    fn fits(&self, p: Proc, pattern: &Pattern, line: &ReceivedMessage) -> Result<Captures, Mismatch> {
        let fits = pattern.matches(&line.text, line.framing);
        match fits {
            Err(_)
                if self.monitor.has_unreadable_answer(p)
                    && !line.decode(Direction::FromServer).has_tuples() =>
            {
                pattern.read_leniently(&line.text, line.framing).map_or(fits, Ok)
            }
            Err(_) if self.monitor.has_tuples_after_values() && line.framing == Framing::Lines => {
                pattern.matches(strip_after_value(&line.text), line.framing).or(fits)
            }
            fits => fits,
        }
    }

    /// Drops the monitor's findings about an outcome that the scenario accepts. The scenario was written for this request, so its verdict
    /// on a closed connection, on silence and on a refusal takes precedence.
    fn accept_outcome(&mut self, p: Proc, outcome: &ExpectationKind, seq: u64) {
        let party = self.party;
        let against = |f: &Finding| match outcome {
            ExpectationKind::Message(pattern) => {
                f.seq == seq && pattern.accepts_any_answer() && !is_about_form(f)
            }
            ExpectationKind::Close => f.kind == Some(ObservationKind::ConnectionEnd),
            ExpectationKind::Silence => f.seq == seq && f.kind == Some(ObservationKind::Silence),
            _ => false,
        };
        self.monitor_findings
            .retain(|f| f.party != party || f.proc != Some(p) || is_advisory(&f.requirement) || !against(f));
    }

    /// Drops the monitor's finding about an unsolicited message if the scenario names this message and the requirement that it breaks.
    fn drop_unsolicited_finding(&mut self, p: Proc, choice: &Choice, seq: u64) {
        let names = |pattern: &Pattern| choice.cites.is_some() && !pattern.accepts_any_answer();
        if matches!(&choice.kind, ExpectationKind::Message(pattern) if names(pattern)) {
            self.monitor_findings.retain(|f| {
                f.party != self.party
                    || (f.seq, f.proc) != (seq, Some(p))
                    || f.requirement != ids::RFC13_WIRE_LOCK_STEP
            });
        }
    }

    /// Returns the next input of a step on a process's connection.
    fn next_input(&mut self, p: Proc) -> StepInput {
        let silence = self.silence;
        let link = self.conversation.link(p);
        match (link.take(), silence) {
            (Some(line), _) => StepInput::Line(line),
            (None, _) if link.is_closed() => StepInput::End,
            (None, Some((proof, waited))) => StepInput::Silence(proof, waited),
            (None, None) => StepInput::Open,
        }
    }

    /// Reports a missing message, unless the message may still arrive or a different finding explains why it is missing.
    fn report_missing_message(
        &mut self,
        p: Proc,
        cites: &str,
        expected: &str,
        next: StepInput,
        unanswered: bool,
    ) {
        match next {
            StepInput::End => self.report_broken(Some(p), cites, expected, CONNECTION_END),
            // A process of the group received a wrong rank or size, which explains why this process has sent no request.
            StepInput::Silence(..)
                if self.conversation.find(p).is_none_or(|link| !link.has_sent)
                    && [RANK_REQUIREMENTS, SIZE_REQUIREMENTS]
                        .iter()
                        .any(|of| self.has_group_finding(p.group, of)) =>
            {
                self.expectation_state = ExpectationState::Broken;
            }
            // The monitor reports first, because it can identify the unanswered request.
            StepInput::Silence(proof, waited) if unanswered => {
                self.hung = true;
                self.report_silence(Some(p), cites, expected, proof, waited);
            }
            StepInput::Silence(..) | StepInput::Open | StepInput::Line(_) => {}
        }
    }

    /// Returns whether the monitor has reported that one of these requirements was broken for a process of the group.
    fn has_group_finding(&self, group: u32, requirements: &[&str]) -> bool {
        let of_group = |f: &&Finding| f.proc.is_some_and(|of| of.group == group);
        self.monitor_findings.iter().filter(of_group).any(|f| requirements.contains(&f.requirement.as_str()))
    }

    fn report_silence(
        &mut self,
        p: Option<Proc>,
        cites: &str,
        expected: &str,
        proof: SilenceProof,
        waited: Duration,
    ) {
        let cites = self.silence_requirement(p, cites);
        self.report_broken(p, cites, expected, self.describe_silence(proof, waited));
    }

    /// Returns the requirement that a silence breaks. If the server has not read a request, this is the requirement about reading.
    /// Otherwise, if a request was sent in several writes, it is the requirement about split writes. In all other cases, it is `cites`.
    fn silence_requirement<'a>(&self, p: Option<Proc>, cites: &'a str) -> &'a str {
        let in_pieces = p.map_or(cites, |p| self.monitor.line_in_pieces_or(p, cites));
        self.monitor.unread_rule(&self.not_read).unwrap_or(in_pieces)
    }

    /// Returns the incomplete message of a connection, if a step waits for data on that connection and no more data will arrive.
    fn incomplete_message(&self, p: Proc, expected: &ExpectationKind) -> Option<IncompleteMessage> {
        let (proof, waited) = self.silence?;
        let waits = matches!(
            expected,
            ExpectationKind::Message(_)
                | ExpectationKind::Newline
                | ExpectationKind::Close
                | ExpectationKind::Silence
                | ExpectationKind::OneOf(_)
        );
        let link = self.conversation.find(p)?;
        if !waits || link.is_closed() || !link.lines.is_empty() {
            return None;
        }
        self.monitor.connections.incomplete_message(
            p,
            Direction::FromServer,
            self.describe_silence(proof, waited),
        )
    }

    /// Describes a silence: the proof, and the requests that the server has not read.
    fn describe_silence(&self, proof: SilenceProof, waited: Duration) -> String {
        let silence = match proof {
            SilenceProof::Idle => "silence: the server has read everything and waits".to_owned(),
            SilenceProof::Polled => "silence: the server has read everything and polls".to_owned(),
            SilenceProof::Unread => "silence: the server waits".to_owned(),
            SilenceProof::Timeout => format!("silence for {waited:?}{NO_PROOF_SUFFIX}"),
        };
        match not_read(&self.not_read) {
            unread if unread.is_empty() => silence,
            unread => format!("{silence}, {unread}"),
        }
    }

    // ----- findings -------------------------------------------------------------------------------------------------

    fn mark_met(&mut self, captures: Captures) {
        self.expectation_state = ExpectationState::Met;
        self.captures = captures;
    }

    fn find_mismatch(&mut self, p: Proc, cites: &str, expected: String, line: &ReceivedMessage) {
        self.report_broken_at(line.seq, Some(p), cites, expected, format_line(&line.text));
    }

    fn report_broken(
        &mut self,
        p: Option<Proc>,
        cites: &str,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.report_broken_at(self.seq, p, cites, expected.into(), seen.into());
    }

    /// Reports a finding unless the monitor has reported the same event. An advisory finding of the monitor does not replace a binding
    /// finding: a refusal that also lacks a thrid breaks both requirements. A missing response is an exception: only the monitor's finding
    /// is reported, because the monitor knows which property of the request was unusual.
    fn report_broken_at(&mut self, seq: u64, p: Option<Proc>, cites: &str, expected: String, seen: String) {
        self.expectation_state = ExpectationState::Broken;
        let is_reported_by = |f: &Finding| {
            is_advisory(cites)
                || !is_advisory(&f.requirement)
                || f.kind.is_some_and(ObservationKind::is_missing_answer)
        };
        let already_reported = self
            .monitor_findings
            .iter()
            .any(|f| f.party == self.party && f.seq == seq && f.proc == p && is_reported_by(f));
        if !already_reported {
            self.find(seq, p, cites, None, expected, seen);
        }
    }

    fn find(
        &mut self,
        seq: u64,
        proc: Option<Proc>,
        cites: &str,
        at_most: Option<Severity>,
        expected: String,
        seen: String,
    ) {
        if self.has_no_scenario {
            return;
        }
        let line = self.line;
        self.scenario_findings.push(Finding {
            proc,
            seq,
            line,
            max_severity: at_most,
            ..Finding::new(cites, self.party, expected, seen)
        });
    }
}

/// The next input of a step.
enum StepInput {
    Line(ReceivedMessage),
    End,
    Silence(SilenceProof, Duration),
    /// No message has arrived yet.
    Open,
}

/// Returns true if a finding is about the form of a response and not about its content.
fn is_about_form(finding: &Finding) -> bool {
    let id = &finding.requirement;
    id == ids::RFC13_WIRE_TUPLES || id.starts_with("rfc13.abnf.") && !id.starts_with("rfc13.abnf.c-")
}

/// Describes the outcomes that break no requirement.
fn valid_outcomes(choices: &[Choice]) -> String {
    format_choices(choices, None, |choice| choice.grade != Grade::Fail)
}

/// Describes the outcomes that break no requirement. Adds the reason for the mismatch if the received message is unreadable, or has the
/// right command but a wrong field.
fn valid_outcomes_instead(choices: &[Choice], line: &ReceivedMessage) -> String {
    let reason = choices.iter().filter(|choice| choice.grade != Grade::Fail).find_map(|choice| {
        let ExpectationKind::Message(pattern) = &choice.kind else { return None };
        let Mismatch(why) = pattern.matches(&line.text, line.framing).err()?;
        let is_readable = line.decode(Direction::FromServer).has_tuples();
        (!is_readable || pattern.has_command(&line.text, line.framing)).then_some(why)
    });
    let valid = format_choices(choices, Some(line), |choice| choice.grade != Grade::Fail);
    match reason {
        Some(why) => format!("{valid} ({why})"),
        None => valid,
    }
}

/// Describes the outcomes that were expected instead of `seen`: those that pass or, if none passes, the allowed outcomes other than `seen`.
fn describe_usual_outcomes(choices: &[Choice], seen: &Choice, next: &StepInput) -> String {
    let line = if let StepInput::Line(line) = next { Some(line) } else { None };
    match choices.iter().any(|choice| choice.grade == Grade::Pass) {
        true => format_choices(choices, line, |choice| choice.grade == Grade::Pass),
        false => format_choices(choices, line, |choice| choice.grade != Grade::Fail && choice != seen),
    }
}

/// Describes some of the choices. If a choice also accepts the received message `line`, which an earlier choice rejects, the description
/// excludes the messages of the earlier choice.
fn format_choices(
    choices: &[Choice],
    line: Option<&ReceivedMessage>,
    shown: impl Fn(&Choice) -> bool,
) -> String {
    fn accepted<'a>(choice: &'a Choice, line: Option<&ReceivedMessage>) -> Option<&'a str> {
        let (ExpectationKind::Message(pattern), Some(line)) = (&choice.kind, line) else { return None };
        pattern.matches(&line.text, line.framing).is_ok().then_some(&pattern.shown)
    }
    let chosen = choices.iter().find_map(|choice| Some((choice, accepted(choice, line)?)));
    let rejected = chosen.filter(|(choice, _)| !shown(choice)).map(|(_, text)| text);
    let text = |choice: &Choice| match &choice.kind {
        ExpectationKind::Message(pattern) => match rejected.filter(|_| accepted(choice, line).is_some()) {
            Some(rejected) => format!("{} other than {rejected}", pattern.shown),
            None => pattern.shown.clone(),
        },
        ExpectationKind::Newline => "a bare newline".into(),
        ExpectationKind::Close => CONNECTION_END.into(),
        _ => "silence".into(),
    };
    let all: Vec<String> = choices.iter().filter(|choice| shown(choice)).map(text).collect();
    // If a choice only adds fields to another choice, every message that it accepts is also accepted by the other choice.
    let is_covered = |text: &&String| !all.iter().any(|other| text.starts_with(&format!("{other} ")));
    all.iter().filter(is_covered).map(String::as_str).collect::<Vec<_>>().join("; or ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::event::{Bytes, HangProof};
    use crate::expectation::{Matcher, ResolvedType};
    use crate::library::api::CallResult;
    use crate::testing::{
        self, INITS, P, called, cited, event, events, framed, launched, numbered, returns, silence, spawn,
        started,
    };

    fn outcome(party: PartyKind, kinds: impl IntoIterator<Item = EventKind>) -> ScenarioOutcome {
        let mut judge = Judge::new(party, Vec::new());
        numbered(kinds).iter().for_each(|event| judge.observe(event));
        judge.finish(Vec::new())
    }

    #[rstest]
    #[case::of_one_process(1, 250, true)]
    #[case::of_many_processes(250, 1, false)]
    fn too_many_findings_about_a_process_end_the_scenario(
        #[case] ranks: u32,
        #[case] times: usize,
        #[case] ends: bool,
    ) {
        let unrequested = (0..ranks).flat_map(|rank| vec![event(&format!("{rank} < cmd=maxes rc=0")); times]);
        let mut judge = Judge::new(PartyKind::Server, Vec::new());
        let events = numbered([launched(ranks, 1)].into_iter().chain(unrequested));
        events.iter().for_each(|event| judge.observe(event));
        assert_eq!(judge.should_end_early(), ends);
        assert!(judge.take_monitor_findings().len() >= 200);
    }

    #[test]
    fn finding_limit_applies_to_each_requirement() {
        let unrequested = (0..1100).map(|rank| event(&format!("{rank} < cmd=maxes rc=0")));
        let malformed = event("0 < junk");
        let mut judge = Judge::new(PartyKind::Server, Vec::new());
        let events = numbered([launched(1100, 1)].into_iter().chain(unrequested).chain([malformed]));
        events.iter().for_each(|event| judge.observe(event));
        let last_seq = events.last().map(|event| event.seq);
        let findings = judge.take_monitor_findings();
        assert_eq!(findings.last().map(|f| f.seq), last_seq);
        let first = findings[0].requirement.clone();
        assert_eq!(findings.iter().filter(|f| f.requirement == first).count(), 1000);
    }

    #[test]
    fn expected_text_omits_choices_that_only_add_fields() {
        let choice = |shown| Choice { grade: Grade::Pass, cites: None, kind: answer(shown) };
        let all = ["cmd=get_result rc=fail", "cmd=get_result rc=fail msg=<any>", "cmd=get_result rc=failed"];
        let text = format_choices(&all.map(choice), None, |_| true);
        assert_eq!(text, "cmd=get_result rc=fail; or cmd=get_result rc=failed");
    }

    /// The description of the expected outcomes does not include the observed one.
    #[test]
    fn expected_text_excludes_the_rejected_message() {
        let choices = [
            Choice { grade: Grade::Note, cites: None, kind: answer("cmd=get_result rc=0") },
            Choice { grade: Grade::Pass, cites: None, kind: answer("cmd=<any>") },
        ];
        let line = |text: &str| ReceivedMessage {
            text: text.into(),
            seq: 0,
            request: None,
            framing: Framing::Lines,
        };
        let text = |seen| format_choices(&choices, Some(&line(seen)), |choice| choice.grade == Grade::Pass);
        assert_eq!(text("cmd=get_result rc=0"), "cmd=<any> other than cmd=get_result rc=0");
        assert_eq!(text("cmd=get_result rc=1"), "cmd=<any>");
    }

    /// Returns an expected response with these fields. `rc=fail` matches any failure, and `<any>` matches any value.
    fn answer(shown: &str) -> ExpectationKind {
        let fields = shown.split(' ').map(|word| {
            let (key, value) = word.split_once('=').expect("a tuple");
            let matcher = match value {
                "fail" => Matcher::Failure,
                "<any>" => Matcher::Typed(ResolvedType::Any),
                text => Matcher::Text(Bytes(text.into())),
            };
            (key.to_owned(), matcher)
        });
        ExpectationKind::Message(Pattern { shown: shown.to_owned(), fields: fields.collect() })
    }

    fn expected(choices: &[(Grade, ExpectationKind)]) -> EventKind {
        let choice = |(grade, kind): &(Grade, ExpectationKind)| {
            let cites = Some("rfc13.error.close".to_owned());
            Choice { grade: *grade, cites, kind: kind.clone() }
        };
        let kind = match choices {
            [(Grade::Pass, kind)] => kind.clone(),
            _ => ExpectationKind::OneOf(choices.iter().map(choice).collect()),
        };
        testing::expected(P, "rfc13.get.value", kind)
    }

    /// Returns the findings against a server that has answered init, after the additional events `rest`.
    fn judged(rest: Vec<EventKind>) -> Vec<Finding> {
        let answered = expected(&[(Grade::Pass, answer("cmd=response_to_init"))]);
        let begin = [launched(1, 1)].into_iter().chain(events(&INITS[0])).chain([answered]);
        outcome(PartyKind::Server, begin.chain(rest)).findings
    }

    #[rstest]
    #[case::not_offered(&[], &[], Some("pass --mpi=pmi2 to srun to enable the wire protocol"))]
    #[case::offered(&["PMI_RANK"], &["rfc13.env.pmi-fd", "rfc13.env.pmi-size"], None)]
    fn environment_is_required_if_protocol_is_offered(
        #[case] variables: &[&str],
        #[case] broken: &[&str],
        #[case] option: Option<&str>,
    ) {
        let env = variables.iter().map(|name| ((*name).to_owned(), "0".to_owned())).collect();
        let command = ["srun", "-n", "1"].map(str::to_owned).to_vec();
        let bad_fd = Some("PMI_FD is not set".to_owned());
        let kinds = [
            EventKind::Launched { command, ranks: 1, nodes: 1 },
            EventKind::Started { proc: P, env, args: Vec::new(), bad_fd },
        ];
        let events = numbered(kinds);
        let mut judge = Judge::new(PartyKind::Server, Vec::new());
        events.iter().for_each(|event| judge.observe(event));
        let outcome = judge.finish(events);
        assert_eq!(cited(outcome.findings), broken);
        let why = outcome.unjudged.map(|why| why.to_string());
        assert_eq!(why.as_deref().and_then(|why| why.split_once("; ")).map(|(_, option)| option), option);
    }

    const LOOKUP: &str = "0 > cmd=lookup_name service=s";

    #[rstest]
    #[case::close(&[(Grade::Pass, answer("cmd=lookup_result rc=fail")), (Grade::Pass, ExpectationKind::Close)], &[])]
    #[case::close_only(&[(Grade::Pass, ExpectationKind::Close)], &[])]
    #[case::noted(&[(Grade::Pass, answer("cmd=lookup_result")), (Grade::Note, ExpectationKind::Close)], &["rfc13.error.close"])]
    #[case::not_accepted(&[(Grade::Pass, answer("cmd=lookup_result rc=fail")), (Grade::Pass, ExpectationKind::Silence)], &["rfc13.abnf.c-lookup"])]
    fn scenario_decides_whether_a_close_is_accepted(
        #[case] choices: &[(Grade, ExpectationKind)],
        #[case] broken: &[&str],
    ) {
        for closed_first in [false, true] {
            let mut rest = vec![event(LOOKUP), expected(choices), event("0 closed")];
            if closed_first {
                rest.swap(1, 2);
            }
            assert_eq!(cited(judged(rest)), broken);
        }
    }

    fn spawn_request() -> String {
        format!("0 > {}", spawn(1, "argcnt=0\npreput_num=0\ninfo_num=0\nendcmd"))
    }

    #[test]
    fn accepted_close_counts_as_refusal_of_the_spawn() {
        let choices =
            [(Grade::Pass, answer("cmd=spawn_result rc=fail")), (Grade::Pass, ExpectationKind::Close)];
        let mut judge = Judge::new(PartyKind::Server, Vec::new());
        let all = [launched(1, 1), event(&spawn_request()), expected(&choices), event("0 closed")];
        for event in numbered(all) {
            assert!(!judge.is_refused(1));
            judge.observe(&event);
        }
        assert!(judge.is_refused(1));
    }

    #[test]
    fn scenario_decides_whether_a_refusal_is_accepted() {
        let refused = |choices: &[(Grade, ExpectationKind)], line: &str| {
            cited(judged(vec![event("0 > cmd=get_my_kvsname"), event(line), expected(choices)]))
        };
        let may_fail =
            [(Grade::Pass, answer("cmd=<any> rc=fail")), (Grade::Pass, answer("cmd=my_kvsname kvsname=k"))];
        assert!(refused(&may_fail, "0 < cmd=my_kvsname rc=-1").is_empty());
        assert!(
            refused(&may_fail, "0 < cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0").is_empty()
        );
        let must_not =
            [(Grade::Pass, answer("cmd=my_kvsname kvsname=k")), (Grade::Pass, ExpectationKind::Close)];
        assert_eq!(refused(&must_not, "0 < cmd=my_kvsname rc=-1"), ["rfc13.abnf.c-kvsname"]);
        // The scenario accepts this refusal, but the malformed value is still reported.
        assert_eq!(refused(&may_fail, "0 < cmd=my_kvsname rc=-1 kvsname=a=b"), ["rfc13.abnf.word"]);
    }

    #[test]
    fn note_names_the_passing_outcome() {
        let choices = [
            (Grade::Pass, ExpectationKind::Close),
            (Grade::Note, ExpectationKind::Silence),
            (Grade::Note, answer("cmd=get_result")),
            (Grade::Fail, answer("cmd=maxes")),
        ];
        let found = judged(vec![event("0 > junk"), expected(&choices), silence()]);
        let noted: Vec<_> = found.iter().map(|f| (f.max_severity, f.expected.as_str())).collect();
        assert_eq!(noted, [(Some(Severity::Note), CONNECTION_END)]);
    }

    #[test]
    fn unreadable_responses_are_reported_once() {
        let get = |line: &str| {
            [
                event("0 > cmd=get kvsname=k key=a"),
                event(line),
                expected(&[(Grade::Pass, answer("cmd=get_result rc=fail"))]),
            ]
        };
        let found = judged(
            [get("0 < cmd=get_result rc=-1 msg=\u{ff}"), get("0 < cmd=get_result rc=-1 msg=\u{fe}")].concat(),
        );
        assert_eq!(cited(found), ["rfc13.abnf.string"]);
        // A response with a different outcome is a separate finding.
        let found = judged(
            [get("0 < cmd=get_result rc=-1 msg=\u{ff}"), get("0 < cmd=get_result rc=0 value=\u{fe}")]
                .concat(),
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn reports_extra_tuple_after_a_value_once() {
        let get = |key: &str, value: &str, expects: &str| {
            let request = format!("0 > cmd=get kvsname=k key={key}");
            let response = format!("0 < cmd=get_result rc=0 value={value} found=TRUE");
            let choices = [(Grade::Pass, answer(expects)), (Grade::Fail, answer("cmd=<any>"))];
            [event(&request), event(&response), expected(&choices)]
        };
        let name = [event("0 > cmd=get_my_kvsname"), event("0 < cmd=my_kvsname kvsname=k")];
        let name = [&name[..], &[expected(&[(Grade::Pass, answer("cmd=my_kvsname"))])]].concat();
        let mapping = "(vector,(0,1,1))";
        let found = judged(
            [&name[..], &get("PMI_process_mapping", mapping, "cmd=get_result rc=0 value=(vector,(0,1,1))")]
                .concat(),
        );
        assert_eq!(cited(found), ["rfc13.get.value"]);
        let put = [event("0 > cmd=put kvsname=k key=a value=v"), event("0 < cmd=put_result rc=0")];
        let put = [&put[..], &[expected(&[(Grade::Pass, answer("cmd=put_result"))])]].concat();
        // The second get lacks the name of the keyval space, so only the scenario judges its response.
        let odd = [event("0 > cmd=get key=a"), event("0 < cmd=get_result rc=0 value=v found=TRUE")];
        let choices =
            [(Grade::Note, answer("cmd=get_result rc=0 value=v")), (Grade::Fail, answer("cmd=<any>"))];
        let odd = [&odd[..], &[expected(&choices)]].concat();
        let found = judged([&name[..], &put, &get("a", "v", "cmd=get_result rc=0 value=v"), &odd].concat());
        let ids: Vec<_> = found.iter().map(|f| (f.requirement.as_str(), f.max_severity)).collect();
        assert_eq!(ids, [("rfc13.get.value", None), ("rfc13.error.close", Some(Severity::Note))]);
    }

    const GET: &str = "0 > cmd=get kvsname=k key=a";

    /// Returns the events of a silence. The second event shows that the response is missing.
    fn nothing() -> [EventKind; 2] {
        [silence(), event("0 silence")]
    }

    #[rstest]
    #[case::due(&[(Grade::Pass, answer("cmd=get_result"))])]
    #[case::close(&[(Grade::Pass, ExpectationKind::Close)])]
    #[case::silence(&[(Grade::Pass, ExpectationKind::Silence)])]
    #[case::allowed_silence(&[(Grade::Pass, answer("cmd=get_result")), (Grade::Pass, ExpectationKind::Silence)])]
    #[case::noted_silence(&[(Grade::Pass, ExpectationKind::Close), (Grade::Note, ExpectationKind::Silence)])]
    #[case::failing_silence(&[(Grade::Pass, ExpectationKind::Close), (Grade::Fail, ExpectationKind::Silence)])]
    fn unterminated_response_is_not_silence(#[case] choices: &[(Grade, ExpectationKind)]) {
        for request in [GET, "0 > junk"] {
            let half = event("0 <| cmd=get_result rc=0 value=v");
            let mut rest = vec![event(request), expected(choices), half];
            rest.extend(nothing());
            let found = judged(rest);
            assert_eq!(cited(found.clone()), ["rfc13.wire.newline"]);
            assert!(found[0].seen.contains("\"cmd=get_result rc=0 value=v\" and then silence"), "{found:?}");
        }
    }

    #[rstest]
    #[case::in_pieces(&["0 >| cmd=ab", "0 >| ort", "0 > "], "rfc13.wire.newline")]
    #[case::whole(&["0 > cmd=abort"], "rfc13.abort.group")]
    #[case::answered_in_pieces(
        &["1 >| cmd=get_ma", "1 > xes", "1 < cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64", "0 > cmd=abort"],
        "rfc13.abort.group"
    )]
    fn abort_sent_in_pieces_explains_a_surviving_process(#[case] aborts: &[&str], #[case] cited: &str) {
        let other = Proc { rank: 1, ..P };
        let ends = testing::expected(other, "rfc13.abort.group", ExpectationKind::IsEnded);
        let rest = events(aborts).into_iter().chain([ends, silence()]);
        let kinds = [launched(2, 1)].into_iter().chain(events(&INITS.concat())).chain(rest);
        let found = outcome(PartyKind::Server, kinds).findings;
        assert_eq!(testing::cited(found), [cited]);
    }

    #[test]
    fn incomplete_frame_is_not_silence() {
        let half = &framed("cmd=info-getjobattr-response;rc=0;found=FALSE;")[..20];
        let begin = [
            launched(1, 1),
            event("0 > cmd=init pmi_version=2 pmi_subversion=0"),
            event("0 < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"),
            expected(&[(Grade::Pass, answer("cmd=response_to_init"))]),
            event("0 >> cmd=info-getjobattr;key=a;"),
            expected(&[(Grade::Pass, ExpectationKind::Close), (Grade::Pass, ExpectationKind::Silence)]),
            event(&format!("0 <| {half}")),
        ];
        let found = outcome(PartyKind::Server, begin.into_iter().chain(nothing())).findings;
        assert_eq!(cited(found.clone()), ["pmi2.common.frame"]);
        assert!(found[0].seen.contains("cmd=info-getjo"), "{found:?}");
    }

    #[rstest]
    #[case::due(&[(Grade::Pass, answer("cmd=get_result"))])]
    #[case::close(&[(Grade::Pass, ExpectationKind::Close)])]
    #[case::failing_silence(&[(Grade::Pass, ExpectationKind::Close), (Grade::Fail, ExpectationKind::Silence)])]
    fn unread_request_is_the_cause_of_silence(#[case] choices: &[(Grade, ExpectationKind)]) {
        let broken = |request: &[&str], not_read: bool| {
            let mut rest = events(request);
            rest.push(expected(choices));
            rest.extend(not_read.then_some(EventKind::NotRead { proc: P }));
            rest.extend(nothing());
            cited(judged(rest))
        };
        let junk = ["0 > cmd=\x07"];
        assert_eq!(broken(&junk, true), ["rfc13.wire.lock-step"]);
        assert_ne!(broken(&junk, false), ["rfc13.wire.lock-step"]);
        // A server that has read the first write may be waiting for something other than the second.
        assert_ne!(broken(&["0 >| cmd=\x07", "0 > "], true), ["rfc13.wire.lock-step"]);
    }

    #[test]
    fn finding_explains_why_no_outcome_matches() {
        let refused = (Grade::Pass, answer("cmd=get_result rc=fail"));
        let found = |choices: &[(Grade, ExpectationKind)], line: &str| {
            // After an unreadable response, only the scenario can report the next response.
            let get = || [event(GET), event("0 < cmd=get_result rc=-1\r"), expected(choices)];
            let first = get();
            let rest = [event(GET), event(line), expected(choices)];
            let found = judged(first.into_iter().chain(rest).collect());
            found.last().map(|f| f.expected.clone()).unwrap_or_default()
        };
        let close = (Grade::Pass, ExpectationKind::Close);
        let any = (Grade::Fail, answer("cmd=<any>"));
        let choices = [refused, close, any];
        assert!(found(&choices, "0 < cmd=get_result rc=0\r").contains("byte 0x0d"));
        let wrong = found(&choices, "0 < cmd=get_result rc=0 value=v");
        assert!(wrong.ends_with("(an error: rc is present and not 0)"), "{wrong}");
    }

    #[test]
    fn finding_cites_requirement_that_the_scenario_names() {
        let barrier_out = [
            (Grade::Fail, answer("cmd=barrier_out")),
            (Grade::Pass, ExpectationKind::Silence),
            (Grade::Fail, answer("cmd=<any>")),
        ];
        let found = |line: &str| cited(judged(vec![expected(&barrier_out), event(line)]));
        assert_eq!(found("0 < cmd=barrier_out rc=0"), ["rfc13.error.close"]);
        // The scenario does not name this message.
        assert_eq!(found("0 < cmd=finalize_ack rc=0"), ["rfc13.wire.lock-step"]);
    }

    #[test]
    fn wrong_rank_explains_a_missing_process() {
        let found = |rank: u32| {
            let child = |rank| Proc { group: 1, rank };
            let (own, fixed) = (rank.to_string(), [("PMI_FD", "3"), ("PMI_SIZE", "1"), ("PMI_SPAWNED", "1")]);
            let started = started(child(rank), &[&fixed[..], &[("PMI_RANK", &own)]].concat());
            let starts = testing::expected(child(0), "rfc13.spawn.new-group", ExpectationKind::Started);
            let request = [event(&spawn_request()), event("0 < cmd=spawn_result rc=0")];
            cited(judged([&request[..], &[started, starts, silence()]].concat()))
        };
        assert_eq!(found(0), Vec::<String>::new());
        assert_eq!(found(1), ["rfc13.env.pmi-rank"]);
    }

    #[rstest]
    #[case::publish("cmd=publish_name service=s port=p", "cmd=publish_result rc=-1", &[], true)]
    #[case::unpublish("cmd=unpublish_name service=s", "cmd=unpublish_result rc=-1", &[], true)]
    #[case::put(PUT, REFUSED_PUT, &[], true)]
    #[case::later_put_of_another_key(PUT, REFUSED_PUT, &["0 > cmd=put kvsname=k key=b value=v", ACCEPTED_PUT], true)]
    #[case::same_put_repeated(PUT, REFUSED_PUT, &[PUT_AGAIN, ACCEPTED_PUT], false)]
    #[case::universe_has_a_default("cmd=get_universe_size", "cmd=universe_size rc=-1", &[], false)]
    fn ignored_refusal_is_reported_as_a_note(
        #[case] request: &str,
        #[case] response: &str,
        #[case] later: &[&str],
        #[case] is_noted: bool,
    ) {
        let mut kinds = vec![started(P, &[("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")])];
        kinds.extend(events(&INITS[0]));
        kinds.extend([event(&format!("0 > {request}")), EventKind::SituationReached { proc: P }]);
        kinds.push(event(&format!("0 < {response}")));
        kinds.extend(events(later));
        kinds.extend(events(&["0 > cmd=finalize", "0 < cmd=finalize_ack rc=0", "0 leaves", "0 exits 0"]));
        let findings = outcome(PartyKind::Client, kinds).findings;
        let notes = findings.iter().filter(|f| f.requirement == ids::DE_FACTO_CLIENT_REPORTS_FAILURE);
        let severities: Vec<_> = notes.map(|note| note.max_severity).collect();
        assert_eq!(severities, vec![Some(Severity::Note); usize::from(is_noted)], "{findings:?}");
    }

    const PUT: &str = "cmd=put kvsname=k key=a value=v";
    const PUT_AGAIN: &str = "0 > cmd=put kvsname=k key=a value=v";
    const REFUSED_PUT: &str = "cmd=put_result rc=-1";
    const ACCEPTED_PUT: &str = "0 < cmd=put_result rc=0";

    /// The server starts each of the two requested processes in a separate group of one process.
    #[test]
    fn split_group_is_judged_by_the_requested_size() {
        let child = |rank| Proc { group: 1, rank };
        let env = [("PMI_FD", "3"), ("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_SPAWNED", "1")];
        let waits = testing::expected(child(1), "rfc13.appnum.value", answer("cmd=appnum"));
        let request = format!("0 > {}", spawn(2, "argcnt=0\npreput_num=0\ninfo_num=0\nendcmd"));
        let whats = [
            event(&request),
            event("0 < cmd=spawn_result rc=0"),
            started(child(0), &env),
            started(child(1), &env),
            waits,
            silence(),
            event("1:1 silence"),
        ];
        let mut judge = Judge::new(PartyKind::Server, Vec::new());
        let events = numbered([launched(1, 1)].into_iter().chain(events(&INITS[0])).chain(whats));
        events.iter().for_each(|event| judge.observe(event));
        assert_eq!((judge.size(1), judge.expectation_state()), (2, ExpectationState::Broken));
        let found = judge.finish(events).findings;
        let found: Vec<_> = found.iter().map(|f| (&*f.requirement, &*f.expected)).collect();
        assert_eq!(
            found,
            [
                (ids::RFC13_ENV_PMI_SIZE, "PMI_SIZE=2"),
                (ids::RFC13_ENV_PMI_RANK, "each of the 2 processes has a unique PMI_RANK from 0 to 1")
            ]
        );
    }

    const ENV: [(&str, &str); 3] = [("PMI_FD", "3"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];

    /// A program may spawn any other program, which need not use its connection.
    #[rstest]
    #[case::launched(Proc { group: 0, rank: 1 }, &["de-facto.client.joins"])]
    #[case::spawned(Proc { group: 1, rank: 1 }, &[])]
    fn only_launched_processes_must_use_their_connection(#[case] silent: Proc, #[case] broken: &[&str]) {
        let all = [0, 1].map(|group| [0, 1].map(|rank| Proc { group, rank }));
        let started = all.as_flattened().iter().map(|p| started(*p, &[("PMI_FD", "3"), ("PMI_SIZE", "2")]));
        let session = |p: &Proc| {
            let requests = [
                "> cmd=init pmi_version=1 pmi_subversion=1",
                "< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
                "> cmd=finalize",
                "< cmd=finalize_ack rc=0",
            ];
            let requests = requests.iter().filter(|_| *p != silent);
            let lines = requests.chain([&"exits 0"]).map(|line| format!("{}:{} {line}", p.group, p.rank));
            events(&lines.collect::<Vec<_>>())
        };
        let sessions = all.as_flattened().iter().flat_map(session);
        let kinds = [launched(2, 1)].into_iter().chain(started).chain(sessions);
        assert_eq!(cited(outcome(PartyKind::Client, kinds).findings), broken);
    }

    #[test]
    fn unterminated_request_explains_a_hang() {
        let half = || event("0 >| cmd=get_my_kvsname");
        let library = [
            launched(1, 1),
            EventKind::Loaded { proc: P, error: None },
            called("PMI_Barrier"),
            returns("rfc13.api.barrier", "PMI_SUCCESS"),
            half(),
            silence(),
        ];
        let program = [
            launched(1, 1),
            started(P, &ENV),
            event(INITS[0][0]),
            event(INITS[0][1]),
            half(),
            EventKind::StillRunning { procs: vec![P], proof: HangProof::Idle },
        ];
        for (party, events) in [(PartyKind::Library, library), (PartyKind::Client, program)] {
            let outcome = outcome(party, events);
            assert!(outcome.hung, "{party:?}");
            assert_eq!(cited(outcome.findings.clone()), ["rfc13.wire.newline"], "{party:?}");
            assert!(outcome.findings[0].seen.starts_with("\"cmd=get_my_kvsname\" and then "));
        }
    }

    #[rstest]
    #[case::other_response("cmd=get_result rc=0 value=v", false, "rfc13.error.close")]
    #[case::no_message("what", false, "rfc13.error.close")]
    #[case::closed("cmd=get_result rc=0 value=v", true, "rfc13.error.abort")]
    #[case::empty_line("", false, "iut.no-hang")]
    #[case::unreadable_rc("cmd=put_result rc=fine", false, "iut.no-hang")]
    #[case::right_response("cmd=put_result rc=0", false, "iut.no-hang")]
    fn requirement_depends_on_the_cause_of_the_hang(
        #[case] answer: &str,
        #[case] closes: bool,
        #[case] cited: &str,
    ) {
        let mut kinds = vec![launched(1, 1), started(P, &ENV)];
        let put = "0 > cmd=put kvsname=k key=a value=b";
        kinds.extend(events(&[INITS[0][0], INITS[0][1], put, &format!("0 < {answer}")]));
        kinds.extend(closes.then(|| event("0 leaves")));
        // The harness then terminates the process.
        kinds.push(EventKind::StillRunning { procs: vec![P], proof: HangProof::Quiet(5) });
        kinds.extend(events(&["0 dies 9", "0 leaves"]));
        let outcome = outcome(PartyKind::Client, kinds);
        let ids: Vec<_> = outcome.findings.iter().map(|f| f.requirement.as_str()).collect();
        let without_finalize = |id: &&str| *id != "rfc13.abnf.c-finalize";
        assert_eq!(ids.into_iter().filter(without_finalize).collect::<Vec<_>>(), [cited]);
        assert!(outcome.hung);
    }

    /// A client that skips an empty line waits for the response that follows the empty line.
    #[test]
    fn wait_after_an_empty_line_is_only_noted() {
        let mut kinds = vec![launched(1, 1), started(P, &ENV)];
        kinds.extend(events(&[INITS[0][0], INITS[0][1], "0 > cmd=put kvsname=k key=a value=b", "0 < "]));
        kinds.push(EventKind::StillRunning { procs: vec![P], proof: HangProof::Idle });
        let findings = outcome(PartyKind::Client, kinds).findings;
        assert_eq!(cited(findings.clone()), ["rfc13.wire.tuples"]);
        assert_eq!(findings[0].max_severity, Some(Severity::Note));
    }

    /// A call that succeeds without a response explains the wrong result of a later call.
    #[test]
    fn call_without_a_response_explains_a_later_result() {
        let returned = |function: &str| EventKind::Returned {
            proc: P,
            function: function.into(),
            returned: CallResult { result: 0, outs: Vec::new(), overrun: Vec::new() },
        };
        let length = "PMI_KVS_Get_key_length_max";
        let events = [
            launched(1, 1),
            EventKind::Loaded { proc: P, error: None },
            called("PMI_Init"),
            event("0 > cmd=get_maxes"),
            event("0 closed"),
            returned("PMI_Init"),
            called(length),
            returns("rfc13.api.length-max.errors", "fail"),
            returned(length),
        ];
        let findings = outcome(PartyKind::Library, events).findings;
        assert_eq!(
            findings[0].seen,
            "it returned PMI_SUCCESS; PMI_Init had succeeded without a complete response to its get_maxes"
        );
    }

    #[test]
    fn wrong_protocol_version_explains_a_hanging_call() {
        let found = |code: &str| {
            let events = [
                launched(1, 1),
                EventKind::Loaded { proc: P, error: None },
                called("PMI2_Init"),
                event("0 > cmd=init pmi_version=2 pmi_subversion=0"),
                event("0 < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
                returns("pmi2.common.api.errors", code),
                event("0 >| 38    cmd=fullinit;pmirank=0;threaded=FALSE;"),
                silence(),
            ];
            cited(outcome(PartyKind::Library, events).findings)
        };
        assert_eq!(found("fail"), ["rfc13.init.highest-mutual", "pmi2.common.api.errors"]);
        // The client sends a frame although PMI-1 was negotiated. This is reported even if the scenario accepts any outcome of the call.
        assert!(found("any").contains(&"rfc13.init.highest-mutual".to_owned()), "{:?}", found("any"));
    }
}
