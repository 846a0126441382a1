//! What a case reached of the model.

use std::collections::HashMap;
use std::fmt;

use pmi_judge::event::What;
use pmi_scenario::ast::Dialect;
use pmi_wire::pmi2::{self, Semicolons};
use pmi_wire::{Proc, Response, ValueReading};

use super::message_kind::MessageKind;
use super::message_kind::Writes;
use super::observation::Observation;
use super::wire_message::{Reader, WireMessage};

/// What a process was answered to a request, and what had come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transition {
    /// What it had asked last, and what had come.
    pub before: Option<(MessageKind, Reaction)>,
    /// How many others were waiting: none, one or more.
    pub waiting: Waiting,
    /// What it asked.
    pub request: MessageKind,
    /// What came.
    pub reaction: Reaction,
}

/// How many other processes wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// Nobody.
    None,
    /// One.
    One,
    /// More.
    Several,
}

/// What a server does at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reaction {
    /// It answers with success.
    Success,
    /// It refuses.
    Refusal,
    /// It says something that cannot be read.
    Unreadable,
    /// It closes the connection.
    Close,
    /// It says nothing.
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

impl fmt::Display for Waiting {
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

/// The transitions of a case, in order.
pub fn transitions(seen: &Observation) -> Vec<Transition> {
    let mut last: HashMap<Proc, (MessageKind, Reaction)> = HashMap::new();
    let mut asked: HashMap<Proc, MessageKind> = HashMap::new();
    let mut all = Vec::new();
    let mut writes = Writes::new(seen.dialect);
    let mut answers: HashMap<Proc, Reader> = HashMap::new();
    for event in &seen.events {
        let (proc, reaction) = match &event.what {
            What::ToServer { proc, bytes } => {
                asked.insert(*proc, writes.write(*proc, &bytes.0).0);
                continue;
            }
            What::FromServer { proc, bytes } if seen.dialect == Dialect::Pmi2 => {
                // A frame may come in pieces.
                let said = answers.entry(*proc).or_default().push(&bytes.0);
                let Some(said) = said.first() else { continue };
                (*proc, reaction_to_frames(said))
            }
            What::FromServer { proc, bytes } => (*proc, reaction(&bytes.0)),
            What::ClosedByServer { proc } => (*proc, Reaction::Close),
            What::NoAnswer { proc, .. } => (*proc, Reaction::Silence),
            _ => continue,
        };
        let Some(request) = asked.remove(&proc) else { continue };
        let waiting = match asked.len() {
            0 => Waiting::None,
            1 => Waiting::One,
            _ => Waiting::Several,
        };
        all.push(Transition { before: last.get(&proc).copied(), waiting, request, reaction });
        last.insert(proc, (request, reaction));
    }
    all
}

fn reaction_to_frames(said: &WireMessage) -> Reaction {
    match said {
        WireMessage::Line(line) => reaction(line),
        WireMessage::NoFrame => Reaction::Unreadable,
        WireMessage::Body(body) => match pmi2::Response::parse(body, Semicolons::Doubled) {
            Ok(response) if response.is_found() == Some(true) => Reaction::Success,
            Ok(_) => Reaction::Refusal,
            Err(_) => Reaction::Unreadable,
        },
    }
}

fn reaction(bytes: &[u8]) -> Reaction {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    match Response::parse(line, ValueReading::ToEndOfLine) {
        Ok(response) if response.is_success() => Reaction::Success,
        Ok(_) => Reaction::Refusal,
        Err(_) => Reaction::Unreadable,
    }
}
