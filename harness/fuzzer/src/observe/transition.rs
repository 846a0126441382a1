//! The transitions of the model that a case covers.

use std::collections::HashMap;
use std::fmt;

use pmi_judge::event::EventKind;
use pmi_wire::{Framing, Proc};

use super::message_kind::{MessageKind, MessageWrites};
use super::observation::Observation;
use crate::session::reading::{MessageReader, ParsedResponse, WireMessage};

/// A transition of the model: a process's request, the server's reaction to it, and the exchange before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transition {
    /// The process's previous request, and the reaction to it.
    pub before: Option<(MessageKind, Reaction)>,
    /// The number of other processes that wait for a response: none, one, or several.
    pub waiting: WaitingCount,
    /// The request of the process.
    pub request: MessageKind,
    /// The server's reaction to the request.
    pub reaction: Reaction,
}

/// The number of other processes that wait for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitingCount {
    /// No other process.
    None,
    /// One other process.
    One,
    /// More than one other process.
    Several,
}

/// The reaction of a server to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reaction {
    /// A response that reports success.
    Success,
    /// A failure response.
    Refusal,
    /// A message that cannot be parsed.
    Unreadable,
    /// The end of the connection.
    Close,
    /// No response.
    Silence,
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "ok",
            Self::Refusal => "refused",
            Self::Unreadable => "unreadable",
            Self::Close => "close",
            Self::Silence => "silence",
        })
    }
}

impl fmt::Display for WaitingCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "alone",
            Self::One => "one waits",
            Self::Several => "several wait",
        })
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.before {
            Some((request, reaction)) => write!(f, "{request} {reaction}")?,
            None => f.write_str("start")?,
        }
        write!(f, " | {} | {} | {}", self.waiting, self.request, self.reaction)
    }
}

/// Returns the transitions of a case, in order.
pub fn transitions(seen: &Observation) -> Vec<Transition> {
    let mut last: HashMap<Proc, (MessageKind, Reaction)> = HashMap::new();
    let mut pending: HashMap<Proc, MessageKind> = HashMap::new();
    let mut all = Vec::new();
    let mut writes = MessageWrites::new(seen.dialect);
    let mut answers: HashMap<Proc, MessageReader> = HashMap::new();
    for event in &seen.events {
        let (proc, reaction) = match &event.kind {
            EventKind::ToServer { proc, bytes } => {
                pending.insert(*proc, writes.write(*proc, &bytes.0).0);
                continue;
            }
            EventKind::FromServer { proc, bytes } => {
                // A response may arrive in several reads, so its bytes are collected first.
                let reader =
                    answers.entry(*proc).or_insert_with(|| MessageReader::new(seen.dialect.framing()));
                let message = reader.push(&bytes.0);
                let Some(message) = message.first() else { continue };
                (*proc, reaction(message))
            }
            EventKind::ClosedByServer { proc } => (*proc, Reaction::Close),
            EventKind::NoResponse { proc, .. } => (*proc, Reaction::Silence),
            _ => continue,
        };
        let Some(request) = pending.remove(&proc) else { continue };
        let waiting = match pending.len() {
            0 => WaitingCount::None,
            1 => WaitingCount::One,
            _ => WaitingCount::Several,
        };
        all.push(Transition { before: last.get(&proc).copied(), waiting, request, reaction });
        last.insert(proc, (request, reaction));
    }
    all
}

fn reaction(message: &WireMessage) -> Reaction {
    let answered = match message {
        WireMessage::Line(line) => ParsedResponse::read(Framing::Lines, line),
        WireMessage::Body(body) => ParsedResponse::read(Framing::Frames, body),
        WireMessage::NoFrame => None,
    };
    answered.map_or(Reaction::Unreadable, |answered| match answered.is_found() {
        true => Reaction::Success,
        false => Reaction::Refusal,
    })
}
