//! Splits the bytes of all connections into messages and decodes each message once, for all readers of the events.

use pmi_wire::{Arrival, Connection, Decoded, Direction, Framing, FramingError, Proc};

use crate::bytes::LINE_LIMIT;
use crate::event::Event;
use crate::lookup_cache::LookupCache;
use crate::observation::IncompleteMessage;

/// The direction of a message, and either the decoded message or the framing error that replaces it.
pub type CompletedMessage<'a> = (Direction, Result<Decoded<'a>, FramingError>);

/// Decodes messages that have arrived.
pub(crate) fn decode<'a>(arrivals: &'a [Arrival<'_>]) -> Vec<CompletedMessage<'a>> {
    arrivals.iter().map(|arrival| (arrival.direction, arrival.decode())).collect()
}

/// The connections of all processes. Each connection has a framing and may contain the bytes of an incomplete message.
#[derive(Debug, Default)]
pub struct Connections(LookupCache<Proc, Connection>);

impl Connections {
    /// Reads the bytes of an event, if any, and returns the messages that they complete. The response to an offer of PMI-2 is returned
    /// before the requests whose framing it determines.
    pub fn read<'e>(&mut self, event: &'e Event) -> Vec<Arrival<'e>> {
        let Some((proc, direction, bytes)) = event.kind.message_bytes() else { return Vec::new() };
        self.0.get_or_insert_with(proc, || Connection::new(LINE_LIMIT)).read(direction, bytes)
    }

    /// Reads all events. For each message, calls `reader` with the event that completes the message, the process and the message.
    pub fn read_all<'e>(
        &mut self,
        events: impl IntoIterator<Item = &'e Event>,
        mut reader: impl FnMut(&'e Event, Proc, &CompletedMessage<'_>),
    ) {
        for event in events {
            let arrivals = self.read(event);
            let Some((proc, ..)) = event.kind.message_bytes() else { continue };
            decode(&arrivals).iter().for_each(|message| reader(event, proc, message));
        }
    }

    /// Returns the connection of a process; `None` if the process has not sent or received any bytes.
    pub fn get(&self, p: Proc) -> Option<&Connection> {
        self.0.get(p)
    }

    /// Iterates over all connections, in arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Proc, &Connection)> {
        self.0.iter()
    }

    /// Returns the framing of a connection: lines, until a different framing is negotiated.
    pub(crate) fn framing(&self, p: Proc) -> Framing {
        self.get(p).map(Connection::framing).unwrap_or_default()
    }

    /// Returns the bytes of a connection's incomplete message in this direction; empty if there is no such message.
    pub fn partial(&self, p: Proc, direction: Direction) -> &[u8] {
        self.get(p).map_or(&[], |connection| connection.partial(direction))
    }

    /// Returns the incomplete message of a connection, if any. `then` describes the event that follows the message.
    pub(crate) fn incomplete_message(
        &self,
        p: Proc,
        direction: Direction,
        then: impl std::fmt::Display,
    ) -> Option<IncompleteMessage> {
        IncompleteMessage::new(self.framing(p), self.partial(p, direction), then)
    }
}
