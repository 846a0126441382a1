//! One process of a program under test: its script and its state.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use pmi_judge::event::Exit;
use pmi_judge::expectation::ExpectationKind;
use pmi_process::output::Lines;
use pmi_scenario::ast::ExitPattern;
use pmi_wire::{Connection, Direction, Framing, FramingError, SpawnCollector};

use super::program_server::{ProcessScript, ScriptAction, ServerRule};

/// Maximum number of bytes of standard output that are kept for comparison.
const MAX_OUTPUT_SIZE: usize = 1 << 20;

/// Output that is to be delivered to a process: bytes, or the end of the connection or of the process.
#[derive(Debug)]
pub(super) enum PendingOutput {
    Bytes(Vec<u8>),
    /// Close the connection.
    Close,
    /// Kill the process, as a process manager does when it ends a job.
    End,
    /// Kill the process, to simulate a crash.
    Kill,
}

/// The reason why the runner killed a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The scenario orders the end of the process.
    Script,
    /// The program was aborted.
    Abort,
    /// The process did not exit on its own.
    Stuck,
}

#[derive(Debug)]
pub(super) struct ProgramProcess {
    /// The rules and expectations of the scenario for this process.
    pub(super) script: ProcessScript,
    pub(super) env: BTreeMap<String, String>,
    /// The descriptor number of the process's connection.
    pub(super) descriptor: i32,
    /// Both directions of the process's connection.
    pub(super) connection: Connection,
    /// An incomplete spawn request, and the bytes that have been received for it.
    pub(super) spawn: Option<Box<(SpawnCollector, Vec<u8>)>>,
    /// For each rule, whether it has been applied.
    applied_rules: Vec<bool>,
    /// Number of times that any rule has been applied.
    pub(super) applied_count: usize,
    /// True if the server has received the process's init or fullinit, which the scenario answers.
    pub(super) is_initialized: bool,
    /// The index of the rule whose actions follow the server's own response, and these actions.
    pub(super) after_answer: Option<(usize, VecDeque<ScriptAction>)>,
    pub(super) pending_output: VecDeque<(Instant, PendingOutput)>,
    /// True if the process has sent a request since the last write to it, and therefore must have read the written bytes.
    pub(super) has_read: bool,
    pub(super) released: Instant,
    /// True if the process has written to its connection.
    pub(super) has_written: bool,
    pub(super) closed_by_runner: bool,
    /// True if the process's end of the connection is closed.
    pub(super) has_closed: bool,
    pub(super) requested_abort: bool,
    /// The reason why the runner killed the process, if it did.
    pub(super) end_reason: Option<EndReason>,
    /// The exit status or signal of the process, even if the runner killed the process.
    pub(super) exit: Option<Exit>,
    /// The stored standard output, which is incomplete if `output_cut` is true.
    pub(super) output: Vec<u8>,
    pub(super) output_cut: bool,
    /// Incomplete lines of the process's standard output and standard error.
    pub(super) lines: [Lines; 2],
}

impl ProgramProcess {
    pub(super) fn new(part: ProcessScript, descriptor: i32, longest_message: usize) -> Self {
        Self {
            applied_rules: vec![false; part.rules.len()],
            script: part,
            env: BTreeMap::new(),
            descriptor,
            connection: Connection::new(longest_message),
            spawn: None,
            applied_count: 0,
            is_initialized: false,
            after_answer: None,
            pending_output: VecDeque::new(),
            has_read: true,
            released: Instant::now(),
            has_written: false,
            closed_by_runner: false,
            has_closed: false,
            requested_abort: false,
            end_reason: None,
            exit: None,
            output: Vec::new(),
            output_cut: false,
            lines: Default::default(),
        }
    }

    /// Returns the next message that the process has sent.
    pub(super) fn next_message(&mut self) -> Option<Result<(Framing, Vec<u8>), FramingError>> {
        let message = self.connection.next(Direction::ToServer)?;
        Some(message.map(|message| (message.framing, message.text.to_vec())))
    }

    /// Reads bytes that are sent to the process, and updates the framing of the process's next messages if a response negotiates it.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.connection.push(Direction::FromServer, bytes);
        while self.connection.next(Direction::FromServer).is_some() {}
    }

    /// Returns whether the process must exit on its own, even if its program is aborted.
    pub(super) fn must_exit_itself(&self) -> bool {
        self.script.expectations.iter().any(|(_, e)| e.kind.requires_own_exit())
    }

    /// Returns true if the scenario expects exit status 0.
    pub(super) fn must_succeed(&self) -> bool {
        let succeeds = ExpectationKind::Exits(ExitPattern::Code(0));
        self.script.expectations.iter().any(|(_, e)| e.kind == succeeds)
    }

    /// Returns the index of the next rule in order. Skips rules that apply to every matching request, because they have no position in the
    /// order.
    fn next_rule(&self) -> usize {
        let in_turn = |rule: &ServerRule| rule.trigger.as_ref().is_none_or(|(_, every)| !every);
        let turn = |i: &usize| !self.applied_rules[*i] && in_turn(&self.script.rules[*i]);
        (0..self.script.rules.len()).find(turn).unwrap_or(self.script.rules.len())
    }

    /// Returns whether a rule applies now. A rule that applies to every matching request becomes active after all rules before it have been
    /// applied.
    pub(super) fn is_active(&self, rule: usize) -> bool {
        let next = self.next_rule();
        match &self.script.rules[rule].trigger {
            Some((_, true)) => rule < next || next == self.script.rules.len(),
            _ => rule == next,
        }
    }

    /// Marks a rule as applied. Returns whether this was the first time.
    pub(super) fn mark_applied(&mut self, rule: usize) -> bool {
        self.applied_count += 1;
        !std::mem::replace(&mut self.applied_rules[rule], true)
    }

    /// Returns whether any rule of the scenario still has to be applied to the process. Returns false after the process has ended.
    pub(super) fn has_pending_rules(&self) -> bool {
        self.exit.is_none() && self.end_reason.is_none() && self.applied_rules.iter().any(|played| !played)
    }

    /// Returns whether either side has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.closed_by_runner || self.has_closed
    }

    /// Returns whether the runner killed the process. If it did, the exit of the process is not judged.
    pub(super) fn was_ended(&self) -> bool {
        self.end_reason.is_some()
    }

    /// Stores bytes that the process wrote to standard output.
    pub(super) fn printed(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT_SIZE - self.output.len();
        self.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.output_cut |= bytes.len() > room;
    }
}
