//! Adapts the waits for responses after requests were removed or changed.

use std::collections::{HashSet, VecDeque};

use pmi_scenario::ast::{Encoding, Scenario, Template};
use pmi_wire::{Decoded, Direction, Framing};

use crate::session::op::Op;
use crate::session::pieces::written_bytes;
use crate::session::reading::{MessageReader, WireMessage, enters_barrier, request_of};
use crate::session::statement::{AwaitedResponse, ServerStep, wait};

/// Adapts every wait to the oldest unanswered request before it. A wait without a request is removed, unless it is optional. A wait for a
/// response that is not due becomes optional, for example if not all ranks enter a barrier.
pub(crate) fn adapt_waits(scenario: &mut Scenario) {
    replace_waits(scenario, |_, answer, request| match (answer, request) {
        (AwaitedResponse::Optional, _) => Some(answer),
        (_, None) => None,
        (AwaitedResponse::Due(_), Some(FrontRequest { op: Some(op), is_due: true })) => {
            Some(AwaitedResponse::Due(op))
        }
        (AwaitedResponse::Delayable(_), Some(FrontRequest { op: Some(op), is_due: true })) => {
            Some(AwaitedResponse::Delayable(op))
        }
        (_, Some(_)) => Some(AwaitedResponse::Optional),
    });
}

/// Marks responses that were due but did not arrive. `unanswered` lists the statements that waited for them. If `held_up` is true, a
/// partial request from another process may be the reason.
pub(crate) fn mark_missing(scenario: &mut Scenario, unanswered: &[usize], held_up: bool) {
    replace_waits(scenario, |number, answer, request| match request {
        Some(FrontRequest { op: Some(op), .. }) if unanswered.contains(&number) => {
            Some(if held_up { AwaitedResponse::Delayable(op) } else { AwaitedResponse::Due(op) })
        }
        _ => Some(answer),
    });
}

/// Changes or removes each wait. `fit` receives the number of the statement, the expected response, and the oldest request without a
/// response, if any. It returns the response that the wait expects from now on, or `None` to remove the wait.
fn replace_waits(
    scenario: &mut Scenario,
    fit: impl Fn(usize, AwaitedResponse, Option<FrontRequest>) -> Option<AwaitedResponse>,
) {
    let mut open = vec![PendingRequests::new(scenario.dialect.framing()); scenario.ranks as usize];
    let mut attributes = HashSet::new();
    let mut number = 0;
    scenario.body.retain_mut(|statement| {
        number += 1;
        let (rank, answer) = match ServerStep::of(statement) {
            Some(ServerStep::Write { rank, encoding, lines, partial }) => {
                if let Some(open) = open.get_mut(rank as usize) {
                    open.write(encoding, lines, partial);
                    attributes.extend(open.puts.drain(..));
                }
                return true;
            }
            Some(ServerStep::Wait { rank, answer }) => (rank, answer),
            _ => return true,
        };
        let passed = open.iter().map(|open| open.barriers).min().unwrap_or(0);
        let front = open.get_mut(rank as usize).and_then(|open| open.unanswered.pop_front());
        let fits = fit(number, answer, front.map(|request| request.front_request(&attributes, passed)));
        if let Some(fits) = fits.filter(|fits| *fits != answer) {
            *statement = wait(rank, fits);
        }
        fits.is_some()
    });
}

/// The oldest unanswered message of a rank.
#[derive(Clone, Copy)]
struct FrontRequest {
    /// The operation that the command names, or `None` if the message is not a request.
    op: Option<Op>,
    /// True if the request is complete, and everything that its response depends on has happened.
    is_due: bool,
}

/// A message without a response.
#[derive(Clone)]
struct UnansweredMessage {
    op: Option<Op>,
    /// True if the request is complete.
    is_proper: bool,
    /// The node attribute that the response depends on, if any.
    waits_for: Option<Vec<u8>>,
    /// The number of barriers that all ranks must have entered before the response.
    barriers: usize,
}

impl UnansweredMessage {
    fn new(op: Option<Op>, is_proper: bool) -> Self {
        Self { op, is_proper, waits_for: None, barriers: 0 }
    }

    fn front_request(&self, attributes: &HashSet<Vec<u8>>, passed: usize) -> FrontRequest {
        let is_there =
            self.waits_for.as_ref().is_none_or(|key| attributes.contains(key)) && self.barriers <= passed;
        FrontRequest { op: self.op, is_due: self.is_proper && is_there }
    }
}

/// A rank's unanswered requests.
#[derive(Clone)]
struct PendingRequests {
    unanswered: VecDeque<UnansweredMessage>,
    /// Keys of the node attributes that were put in the rank's last write.
    puts: Vec<Vec<u8>>,
    /// The number of barriers for all ranks that this rank has entered.
    barriers: usize,
    /// True if the last message was a program of a PMI-1 spawn request that may contain more programs.
    spawning: bool,
    reader: MessageReader,
}

impl PendingRequests {
    fn new(framing: Framing) -> Self {
        Self {
            unanswered: VecDeque::new(),
            puts: Vec::new(),
            barriers: 0,
            spawning: false,
            reader: MessageReader::new(framing),
        }
    }

    fn write(&mut self, encoding: Encoding, lines: &[Template], partial: bool) {
        for message in self.reader.push(&written_bytes(encoding, lines, partial)) {
            match message {
                WireMessage::Line(line) => self.line(&line),
                WireMessage::Body(body) => self.body(&body),
                WireMessage::NoFrame => self.unanswered.push_back(UnansweredMessage::new(None, false)),
            }
        }
        self.spawning &= partial;
    }

    fn line(&mut self, line: &[u8]) {
        let spawns = line.starts_with(b"mcmd=spawn");
        if !(spawns && self.spawning) {
            let message = Decoded::new(Direction::ToServer, Framing::Lines, line);
            let (op, is_proper) = request_of(&message);
            let barriers = self.enter(&message, (op, is_proper));
            self.unanswered.push_back(UnansweredMessage { op, is_proper, waits_for: None, barriers });
        }
        self.spawning = spawns;
    }

    fn body(&mut self, body: &[u8]) {
        let message = Decoded::new(Direction::ToServer, Framing::Frames, body);
        let (op, is_proper) = request_of(&message);
        let row = message.exchange().filter(|_| message.is_well_formed());
        let key = || message.value("key").unwrap_or_default().into_owned();
        let waits_for = match row.map_or("", |row| row.operation) {
            "get-node-attribute" if message.boolean("wait") == Some(true) => Some(key()),
            "put-node-attribute" => {
                self.puts.push(key());
                None
            }
            _ => None,
        };
        let barriers = self.enter(&message, (op, is_proper));
        self.unanswered.push_back(UnansweredMessage { op, is_proper, waits_for, barriers });
    }

    /// Counts the barrier that a request enters, and returns its number, or 0 if the request does not enter a barrier.
    fn enter(&mut self, message: &Decoded<'_>, request: (Option<Op>, bool)) -> usize {
        let enters = enters_barrier(message, request);
        self.barriers += usize::from(enters);
        if enters { self.barriers } else { 0 }
    }
}
