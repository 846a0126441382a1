//! One process under test: what it is to be told, and what became of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use pmi_judge::event::Exit;
use pmi_judge::expectation::Expected;
use pmi_scenario::ast::ExitPattern;
use pmi_wire::{Connection, Direction, Framing, FramingError, SpawnCollector};

use super::serving::{ProcessScript, ServerAct, ServerRule};
use crate::process::output::Lines;

/// Most bytes of standard output that are kept to be compared.
const OUTPUT_MAX: usize = 1 << 20;

/// What is on its way to a process.
#[derive(Debug)]
pub(super) enum Out {
    Bytes(Vec<u8>),
    /// The end of the connection.
    Close,
    /// The end of the process, as the process manager's doing.
    End,
    /// The end of the process, as something that happens to it.
    Kill,
}

/// Why we ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The scenario says so.
    Script,
    /// Its program was aborted.
    Abort,
    /// It did not end.
    Stuck,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Actor {
    /// What the scenario has for it.
    pub(super) part: ProcessScript,
    pub(super) env: BTreeMap<String, String>,
    /// What was said in both directions.
    pub(super) connection: Connection,
    /// The request to spawn that has begun, and its bytes.
    pub(super) spawn: Option<Box<(SpawnCollector, Vec<u8>)>>,
    /// Which rules have been played.
    played: Vec<bool>,
    /// How often.
    pub(super) fired: usize,
    /// The server knows of its init, or fullinit, which the scenario answers.
    pub(super) introduced: bool,
    /// What stands behind the right answer, and of which rule.
    pub(super) behind: Option<(usize, VecDeque<ServerAct>)>,
    pub(super) out: VecDeque<(Instant, Out)>,
    /// It has read what was written to it, since it has made a request.
    pub(super) loose: bool,
    pub(super) released: Instant,
    /// It has written something.
    pub(super) spoke: bool,
    pub(super) closed_by_us: bool,
    /// Its end of the connection is closed.
    pub(super) left: bool,
    pub(super) wants_abort: bool,
    /// Why we ended it.
    pub(super) ended: Option<Why>,
    /// The way in which it has ended, by itself or not.
    pub(super) exit: Option<Exit>,
    /// Standard output, as far as it is kept, and whether that is all.
    pub(super) output: Vec<u8>,
    pub(super) output_cut: bool,
    /// Lines of output that have no end yet.
    pub(super) lines: [Lines; 2],
}

impl Actor {
    pub(super) fn new(part: ProcessScript, longest_message: usize) -> Self {
        Self {
            played: vec![false; part.rules.len()],
            part,
            env: BTreeMap::new(),
            connection: Connection::new(longest_message),
            spawn: None,
            fired: 0,
            introduced: false,
            behind: None,
            out: VecDeque::new(),
            loose: true,
            released: Instant::now(),
            spoke: false,
            closed_by_us: false,
            left: false,
            wants_abort: false,
            ended: None,
            exit: None,
            output: Vec::new(),
            output_cut: false,
            lines: Default::default(),
        }
    }

    /// The next message that it has sent.
    pub(super) fn next_message(&mut self) -> Option<Result<(Framing, Vec<u8>), FramingError>> {
        let message = self.connection.next(Direction::ToServer)?;
        Some(message.map(|message| (message.framing, message.text.to_vec())))
    }

    /// It is told something, by which it may be settled how to read what it says.
    pub(super) fn hears(&mut self, bytes: &[u8]) {
        self.connection.push(Direction::FromServer, bytes);
        while self.connection.next(Direction::FromServer).is_some() {}
    }

    /// Whether it must end by itself, also when its program is aborted.
    pub(super) fn must_end(&self) -> bool {
        self.part.expectations.iter().any(|(_, e)| e.what.is_an_end_by_itself())
    }

    /// Returns true if the scenario expects exit status 0.
    pub(super) fn must_end_well(&self) -> bool {
        let well = Expected::Exits(ExitPattern::Code(0));
        self.part.expectations.iter().any(|(_, e)| e.what == well)
    }

    /// The rule whose turn it is; those for every request have none.
    fn next_rule(&self) -> usize {
        let in_turn = |rule: &ServerRule| rule.trigger.as_ref().is_none_or(|(_, every)| !every);
        let turn = |i: &usize| !self.played[*i] && in_turn(&self.part.rules[*i]);
        (0..self.part.rules.len()).find(turn).unwrap_or(self.part.rules.len())
    }

    /// Whether a request may be the one that a rule names: those for every request hold as soon as all before them were played.
    pub(super) fn is_on(&self, rule: usize) -> bool {
        let next = self.next_rule();
        match &self.part.rules[rule].trigger {
            Some((_, true)) => rule < next || next == self.part.rules.len(),
            _ => rule == next,
        }
    }

    /// Plays a rule; whether that is the first time.
    pub(super) fn fire(&mut self, rule: usize) -> bool {
        self.fired += 1;
        !std::mem::replace(&mut self.played[rule], true)
    }

    /// Whether something that the scenario has for it is still to come.
    pub(super) fn is_due(&self) -> bool {
        self.exit.is_none() && self.ended.is_none() && self.played.iter().any(|played| !played)
    }

    /// Whether the connection is at its end, on either side.
    pub(super) fn is_closed(&self) -> bool {
        self.closed_by_us || self.left
    }

    /// Whether we ended it, so that how it ended tells nothing.
    pub(super) fn was_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// It wrote to standard output.
    pub(super) fn printed(&mut self, bytes: &[u8]) {
        let room = OUTPUT_MAX - self.output.len();
        self.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.output_cut |= bytes.len() > room;
    }
}
