//! What a case is before it is statements: requests are still messages, so that mutations can strike them.

use pmi_scenario::ast::{Piece, Stmt, Template, UnderTest};
use pmi_wire::Operation;

use super::case::{Answer, Known, ServerStep, rank_of, sent_mut, wait, write};
use super::fields::{Draft, Field, Message};

/// A statement to be.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a plan has a few dozen of them and does not live long")]
pub(crate) enum Planned {
    /// A request: its messages, one but for a spawn.
    Request { rank: u32, op: Operation, messages: Vec<Message> },
    /// Anything else.
    Stmt(Stmt),
}

impl Planned {
    pub(crate) fn rank(&self) -> Option<u32> {
        match self {
            Self::Request { rank, .. } => Some(*rank),
            Self::Stmt(stmt) => rank_of(stmt),
        }
    }

    pub(crate) fn is_wait_of(&self, rank: u32) -> bool {
        match self {
            Self::Request { .. } => false,
            Self::Stmt(stmt) => {
                matches!(ServerStep::of(stmt), Some(ServerStep::Wait { rank: r, .. }) if r == rank)
            }
        }
    }
}

/// A wait for an answer that need not come.
pub(crate) fn may_answer(rank: u32) -> Planned {
    Planned::Stmt(wait(rank, Answer::Optional))
}

/// A wait for the answer to a request.
pub(crate) fn must_answer(rank: u32, op: Operation) -> Planned {
    Planned::Stmt(wait(rank, Answer::Due(op)))
}

/// A request of one message.
pub(crate) fn request(rank: u32, op: Operation, fields: Message) -> Planned {
    Planned::Request { rank, op, messages: vec![fields] }
}

/// Turns a plan into statements. Once something has happened that allows the server to end the program, answers may come or
/// not.
pub(crate) fn settle(plan: Vec<Planned>) -> Vec<Stmt> {
    let mut body = Vec::with_capacity(plan.len());
    let mut lawful = true;
    let mut asked: Vec<(u32, Operation)> = Vec::new();
    let mut known = Known::default();
    for item in plan {
        let mut stmt = match item {
            Planned::Request { rank, op, messages } => {
                lawful &= is_as_generated(op, &messages) && !asked.iter().any(|(r, _)| *r == rank);
                lawful &= op != Operation::Abort;
                asked.push((rank, op));
                write(rank, Draft::Messages(messages).lines(), false)
            }
            Planned::Stmt(stmt) => match ServerStep::of(&stmt) {
                Some(ServerStep::Wait { rank, answer }) => {
                    let at = asked.iter().position(|(r, _)| *r == rank);
                    let op = at.map(|at| asked.remove(at).1);
                    match (answer, op) {
                        (Answer::Due(_), Some(op)) if lawful => wait(rank, Answer::Due(op)),
                        _ => wait(rank, Answer::Optional),
                    }
                }
                Some(ServerStep::Join | ServerStep::Leave) => stmt,
                _ => {
                    lawful = false;
                    stmt
                }
            },
        };
        known.take(&stmt);
        if let Some(lines) = sent_mut(&mut stmt, UnderTest::Server) {
            known.stand_in(lines);
        }
        body.push(stmt);
    }
    body
}

/// Whether a request still has the tuples of its kind. A rough look: what is wrong in values shows in the answers, which need
/// not be as expected then.
fn is_as_generated(op: Operation, messages: &[Message]) -> bool {
    let is = |value: &Template, text: &str| match &value.pieces[..] {
        [Piece::Literal { bytes, .. }] => bytes == text.as_bytes(),
        _ => false,
    };
    let keys: Vec<&str> = messages.iter().flatten().map(|f| f.key.as_str()).collect();
    let named = messages.first().and_then(|m| m.first()).is_some_and(|f| is(&f.value, op.request_cmd()));
    let are_one = |fields: &[Field]| fields.iter().all(|f| is(&f.value, "1"));
    named
        && match op {
            Operation::Put => keys == ["cmd", "kvsname", "key", "value"],
            Operation::Get => keys == ["cmd", "kvsname", "key"],
            Operation::Init => keys == ["cmd", "pmi_version", "pmi_subversion"] && are_one(&messages[0][1..]),
            Operation::Publish => keys == ["cmd", "service", "port"],
            Operation::Unpublish | Operation::Lookup => keys == ["cmd", "service"],
            Operation::Spawn => false,
            _ => keys == ["cmd"],
        }
}
