//! Reads the history of a session from its events.

use std::collections::BTreeMap;

use pmi_wire::{Decoded, Direction, Framing, Proc, ResponseOutcome};

use super::operation::{History, HistoryRequest, HistoryResponse, TimedOperation, UNANSWERED};
use crate::connections::CompletedMessage;
use crate::event::{Event, EventKind};
use crate::kvs::is_ambiguous;

/// A reader that extracts the operations of a session, event by event. It ignores the first abort request and all requests and responses
/// after it.
#[derive(Debug, Default)]
pub(crate) struct HistoryReader {
    history: History,
    /// The unanswered requests of each process: the name of the operation in the protocol table and, if the history contains the request,
    /// its index in the history.
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
        let request = if self.is_over { None } else { request(operation, message) };
        let place = request.map(|request| {
            history.operations.push(TimedOperation {
                proc,
                start: seq,
                end: UNANSWERED,
                request,
                response: None,
            });
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
            operation.response = response(&operation.request, message);
            if operation.response.is_some() {
                operation.end = seq;
            }
        } else {
            // The other pending requests for this operation are treated as unanswered too, because the next responses cannot be attributed
            // to them.
            open.iter_mut().filter(|(other, _)| *other == operation).for_each(|one| one.1 = None);
        }
    }

    /// Returns the history; `None` if the session has an upstream. An upstream answers requests on behalf of other processes, so the
    /// operations in the history do not explain all responses.
    pub(super) fn finish(self) -> Option<History> {
        (!self.has_upstream).then_some(self.history)
    }
}

fn leave(history: &mut History, proc: Proc, time: u64) {
    if let Some(left) = history.members.get_mut(&proc.group).and_then(|members| members.get_mut(&proc)) {
        *left = time.min(*left);
    }
}

/// Converts a message into a request of the history. Returns `None` if the history does not need the request.
fn request(operation: &str, message: &Decoded<'_>) -> Option<HistoryRequest> {
    let field = |name| message.field(name).map(std::borrow::Cow::into_owned).unwrap_or_default();
    let is_own = || message.field("jobid").is_none_or(|jobid| jobid.is_empty());
    Some(match operation {
        "put" => HistoryRequest::Put(field("key"), field("value")),
        "get" if is_own() => HistoryRequest::Get(field("key")),
        "barrier" => HistoryRequest::Barrier,
        "publish" => HistoryRequest::Publish(field("service"), field("port")),
        "lookup" => HistoryRequest::Lookup(field("service")),
        "unpublish" => HistoryRequest::Unpublish(field("service")),
        _ => return None,
    })
}

/// Converts a message into the response to `request`. Returns `None` for a value whose end is ambiguous.
fn response(request: &HistoryRequest, message: &Decoded<'_>) -> Option<HistoryResponse> {
    let value = match request {
        HistoryRequest::Get(_) => Some("value"),
        HistoryRequest::Lookup(_) => Some("port"),
        _ => None,
    };
    match message.outcome()? {
        ResponseOutcome::Miss | ResponseOutcome::Failure => Some(HistoryResponse::Refused),
        ResponseOutcome::Success => match value {
            Some(name) => {
                let value = message.field(name)?.into_owned();
                (!is_ambiguous(&value)).then_some(HistoryResponse::Found(value))
            }
            None => Some(HistoryResponse::Done),
        },
    }
}
