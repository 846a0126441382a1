//! Waits for answers, made to fit what was asked where requests were left out or changed.

use std::collections::{HashSet, VecDeque};

use pmi_scenario::ast::{Encoding, Scenario, Template};
use pmi_wire::{Content, Decoded, Direction, Framing, pmi2};

use super::op::Op;
use super::pieces::bytes_said;
use super::reading::{Reader, WireMessage, request, request_of};
use super::statement::{Answer, ServerStep, wait};

/// Makes every wait one for the request that it comes after: where requests were left out, their answers do not come,
/// and others' do. A wait for an answer that nobody has asked for is left out.
pub(crate) fn realign(scenario: &mut Scenario) {
    refit(scenario, |_, answer, asked| match (answer, asked) {
        (Answer::Optional, _) => Some(answer),
        (_, None) => None,
        (Answer::Due(_), Some(Asked { op: Some(op), is_due: true })) => Some(Answer::Due(op)),
        (Answer::InTime(_), Some(Asked { op: Some(op), is_due: true })) => Some(Answer::InTime(op)),
        (_, Some(_)) => Some(Answer::Optional),
    });
}

/// Notes at which statements an answer was due that did not come, by their numbers; `held_up` if half a request may be why.
pub(crate) fn tighten(scenario: &mut Scenario, unanswered: &[usize], held_up: bool) {
    refit(scenario, |number, answer, asked| match asked {
        Some(Asked { op: Some(op), .. }) if unanswered.contains(&number) => {
            Some(if held_up { Answer::InTime(op) } else { Answer::Due(op) })
        }
        _ => Some(answer),
    });
}

/// Changes what is waited for, or leaves the wait out, by the number of its statement, what it was and which request has no
/// answer yet, if one has none.
fn refit(scenario: &mut Scenario, fit: impl Fn(usize, Answer, Option<Asked>) -> Option<Answer>) {
    let mut open = vec![Open::new(scenario.dialect.framing()); scenario.ranks as usize];
    let mut attributes = HashSet::new();
    let mut number = 0;
    scenario.body.retain_mut(|stmt| {
        number += 1;
        let (rank, answer) = match ServerStep::of(stmt) {
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
        let front = open.get_mut(rank as usize).and_then(|open| open.asked.pop_front());
        let fits = fit(number, answer, front.map(|request| request.asks(&attributes)));
        if let Some(fits) = fits.filter(|fits| *fits != answer) {
            *stmt = wait(rank, fits);
        }
        fits.is_some()
    });
}

/// A message that an answer may come to.
#[derive(Clone, Copy)]
struct Asked {
    /// By its command, whatever else it says; `None` for what is no request of the protocol.
    op: Option<Op>,
    /// It says what such a request has to say, and nothing is missing that its answer waits for.
    is_due: bool,
}

/// A message that has no answer yet.
#[derive(Clone)]
struct Unanswered {
    op: Option<Op>,
    /// It says what such a request has to say.
    is_proper: bool,
    /// The attribute of the node without which there is no answer to it.
    waits_for: Option<Vec<u8>>,
}

impl Unanswered {
    fn new(op: Option<Op>, is_proper: bool) -> Self {
        Self { op, is_proper, waits_for: None }
    }

    fn asks(&self, attributes: &HashSet<Vec<u8>>) -> Asked {
        let is_there = self.waits_for.as_ref().is_none_or(|key| attributes.contains(key));
        Asked { op: self.op, is_due: self.is_proper && is_there }
    }
}

/// What a rank has asked for and not been answered.
#[derive(Clone)]
struct Open {
    asked: VecDeque<Unanswered>,
    /// The attributes of its node that it has put in what it said last.
    puts: Vec<Vec<u8>>,
    /// The last message was a program of a spawn of PMI-1, which may have more.
    spawning: bool,
    reader: Reader,
}

impl Open {
    fn new(framing: Framing) -> Self {
        Self { asked: VecDeque::new(), puts: Vec::new(), spawning: false, reader: Reader::new(framing) }
    }

    fn write(&mut self, encoding: Encoding, lines: &[Template], partial: bool) {
        for said in self.reader.push(&bytes_said(encoding, lines, partial)) {
            match said {
                WireMessage::Line(line) => self.line(&line),
                WireMessage::Body(body) => self.body(&body),
                WireMessage::NoFrame => self.asked.push_back(Unanswered::new(None, false)),
            }
        }
        self.spawning &= partial;
    }

    fn line(&mut self, line: &[u8]) {
        let spawns = line.starts_with(b"mcmd=spawn");
        if !(spawns && self.spawning) {
            let (op, is_proper) = request(Framing::Lines, line);
            self.asked.push_back(Unanswered::new(op, is_proper));
        }
        self.spawning = spawns;
    }

    fn body(&mut self, body: &[u8]) {
        let message = Decoded::new(Direction::ToServer, Framing::Frames, body);
        let (op, is_proper) = request_of(&message);
        let waits_for = match message.content {
            Content::FrameRequest(Ok(pmi2::Request::InfoGetnodeattr { key, wait: true })) => {
                Some(key.into_owned())
            }
            Content::FrameRequest(Ok(pmi2::Request::InfoPutnodeattr { key, .. })) => {
                self.puts.push(key.into_owned());
                None
            }
            _ => None,
        };
        self.asked.push_back(Unanswered { op, is_proper, waits_for });
    }
}
