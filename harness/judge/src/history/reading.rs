//! Reads the history of a session from its events.

use std::collections::BTreeMap;

use pmi_wire::{Decoded, Direction, Framing, Proc, ResponseOutcome};

use super::operation::{Answer, Call, History, Operation, UNANSWERED};
use crate::connections::CompletedMessage;
use crate::event::{Event, EventKind};
use crate::kvs::is_ambiguous;

/// Reads the operations of a session event by event, up to the first event that allows the server to end the job.
#[derive(Debug, Default)]
pub(crate) struct HistoryReader {
    history: History,
    /// The unanswered requests of each process, each with its operation in the protocol table, and its index if the history contains it.
    open: BTreeMap<Proc, Vec<(&'static str, Option<usize>)>>,
    is_over: bool,
    has_upstream: bool,
}

impl HistoryReader {
    /// Reads an event and the messages that it completes.
    pub(crate) fn observe(&mut self, event: &Event, messages: &[CompletedMessage<'_>]) {
        match &event.kind {
            EventKind::Started { proc, .. } => {
                self.history.members.entry(proc.group).or_default().insert(*proc, UNANSWERED);
            }
            EventKind::ClosedByClient { proc }
            | EventKind::ClosedByServer { proc }
            | EventKind::Ended { proc, .. } => leave(&mut self.history, *proc, event.seq),
            EventKind::FromProxy { .. } => self.has_upstream = true,
            _ => {}
        }
        let Some((proc, ..)) = event.kind.message_bytes() else { return };
        for (direction, message) in messages {
            let Ok(message) = message else { continue };
            let Some(row) = message.exchange() else { continue };
            self.history.has_frames |= message.framing == Framing::Frames;
            match direction {
                Direction::ToServer => self.request(proc, event.seq, row.operation, message),
                Direction::FromServer => self.response(proc, event.seq, row.operation, message),
            }
        }
    }

    fn request(&mut self, proc: Proc, seq: u64, operation: &'static str, message: &Decoded<'_>) {
        let history = &mut self.history;
        self.is_over |= operation == "abort";
        if operation == "finalize" {
            leave(history, proc, seq);
        }
        if operation == "barrier" && ["group", "tag"].iter().any(|key| message.raw(key).is_some()) {
            history.partial_barriers.insert(proc.group);
        }
        let call = if self.is_over { None } else { call(operation, message) };
        let place = call.map(|call| {
            history.operations.push(Operation { proc, start: seq, end: UNANSWERED, call, answer: None });
            history.operations.len() - 1
        });
        self.open.entry(proc).or_default().push((operation, place));
    }

    fn response(&mut self, proc: Proc, seq: u64, operation: &'static str, message: &Decoded<'_>) {
        let open = self.open.entry(proc).or_default();
        let mut same = open.iter().enumerate().filter(|(_, (other, _))| *other == operation);
        let Some((at, _)) = same.next() else { return };
        // Threads may receive the responses to equal requests in any order.
        let is_unique = same.next().is_none();
        let (_, place) = open.remove(at);
        if let Some(place) = place.filter(|_| is_unique && !self.is_over) {
            let operation = &mut self.history.operations[place];
            operation.answer = answer(&operation.call, message);
            if operation.answer.is_some() {
                operation.end = seq;
            }
        } else {
            // The other requests stay unanswered as well, so that no response is attributed to the wrong request.
            open.iter_mut().filter(|(other, _)| *other == operation).for_each(|one| one.1 = None);
        }
    }

    /// Returns the history; `None` if there is an upstream, which answers requests that other processes determine.
    pub(super) fn finish(self) -> Option<History> {
        (!self.has_upstream).then_some(self.history)
    }
}

fn leave(history: &mut History, proc: Proc, time: u64) {
    if let Some(left) = history.members.get_mut(&proc.group).and_then(|members| members.get_mut(&proc)) {
        *left = time.min(*left);
    }
}

/// Returns the request, if the history needs it.
fn call(operation: &str, message: &Decoded<'_>) -> Option<Call> {
    let field = |name| message.field(name).map(std::borrow::Cow::into_owned).unwrap_or_default();
    let is_own = || message.field("jobid").is_none_or(|jobid| jobid.is_empty());
    Some(match operation {
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
