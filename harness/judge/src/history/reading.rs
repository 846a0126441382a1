//! Reads the history of a session from its events.

use std::collections::BTreeMap;

use pmi_wire::{Decoded, Direction, Framing, Proc, ResponseOutcome};

use super::operation::{Answer, Call, History, Operation, UNANSWERED};
use crate::connections::Connections;
use crate::event::{Event, EventKind};
use crate::kvs::is_ambiguous;

/// Returns the operations of a session, up to the first event that lets the server end the job.
pub fn read(events: &[Event]) -> History {
    let mut history = History::default();
    // The unanswered requests of each process, each with its operation in the protocol table, and its place if the history has it.
    let mut open: BTreeMap<Proc, Vec<(&'static str, Option<usize>)>> = BTreeMap::new();
    let mut over = false;
    for event in events {
        match &event.kind {
            EventKind::Started { proc, .. } => {
                history.members.entry(proc.group).or_default().insert(*proc, UNANSWERED);
            }
            EventKind::ClosedByClient { proc }
            | EventKind::ClosedByServer { proc }
            | EventKind::Ended { proc, .. } => leave(&mut history, *proc, event.seq),
            _ => {}
        }
    }
    Connections::default().read_all(events, |event, proc, (direction, message)| {
        let Ok(message) = message else { return };
        let Some(row) = message.exchange() else { return };
        let open = open.entry(proc).or_default();
        history.has_frames |= message.framing == Framing::Frames;
        match direction {
            Direction::ToServer => {
                over |= row.operation == "abort";
                if row.operation == "finalize" {
                    leave(&mut history, proc, event.seq);
                }
                if row.operation == "barrier" && ["group", "tag"].iter().any(|key| message.raw(key).is_some())
                {
                    history.partial_barriers.insert(proc.group);
                }
                let call = if over { None } else { call(message) };
                let place = call.map(|call| {
                    let (start, end, answer) = (event.seq, UNANSWERED, None);
                    history.operations.push(Operation { proc, start, end, call, answer });
                    history.operations.len() - 1
                });
                open.push((row.operation, place));
            }
            Direction::FromServer => {
                let mut same =
                    open.iter().enumerate().filter(|(_, (operation, _))| *operation == row.operation);
                let Some((at, _)) = same.next() else { return };
                // Threads may receive the responses to equal requests in any order.
                let is_unique = same.next().is_none();
                let (_, place) = open.remove(at);
                if let Some(place) = place.filter(|_| is_unique && !over) {
                    let operation = &mut history.operations[place];
                    operation.answer = answer(&operation.call, message);
                    if operation.answer.is_some() {
                        operation.end = event.seq;
                    }
                } else {
                    // The others stay unanswered as well, so that no response is attributed to the wrong request.
                    open.iter_mut().filter(|(other, _)| *other == row.operation).for_each(|one| one.1 = None);
                }
            }
        }
    });
    history
}

fn leave(history: &mut History, proc: Proc, time: u64) {
    if let Some(left) = history.members.get_mut(&proc.group).and_then(|members| members.get_mut(&proc)) {
        *left = time.min(*left);
    }
}

/// Returns the request, if the history needs it.
fn call(message: &Decoded<'_>) -> Option<Call> {
    let field = |name| message.field(name).map(std::borrow::Cow::into_owned).unwrap_or_default();
    let is_own = || message.field("jobid").is_none_or(|jobid| jobid.is_empty());
    Some(match message.exchange()?.operation {
        "put" => Call::Put(field("key"), field("value")),
        "get" if is_own() => Call::Get(field("key")),
        "barrier" => Call::Barrier,
        "publish" => Call::Publish(field("service"), field("port")),
        "lookup" => Call::Lookup(field("service")),
        "unpublish" => Call::Unpublish(field("service")),
        _ => return None,
    })
}

/// Returns the response. A value whose end is ambiguous counts as no response.
fn answer(call: &Call, message: &Decoded<'_>) -> Option<Answer> {
    let value = match call {
        Call::Get(_) => Some("value"),
        Call::Lookup(_) => Some("port"),
        _ => None,
    };
    match message.outcome()? {
        ResponseOutcome::Miss | ResponseOutcome::Failure => Some(Answer::Refused),
        ResponseOutcome::Success => match value {
            Some(name) => {
                let value = message.field(name)?.into_owned();
                (!is_ambiguous(&value)).then_some(Answer::Found(value))
            }
            None => Some(Answer::Done),
        },
    }
}
