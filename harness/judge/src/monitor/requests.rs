//! Reads the requests of clients, and passes each request to the function that judges its operation.

use std::borrow::Cow;

use memchr::memmem;
use pmi_scenario::ids;
use pmi_wire::pmi2::is_key;
use pmi_wire::protocol::Exchange;
use pmi_wire::{
    Decoded, Direction, Framing, FramingError, HEADER, Operation, Proc, SpawnAssembler, frame_header,
    frame_length,
};

use super::grammar::{EMPTY, has_known_keys};
use super::name_request::NameRequest;
use super::spawn::number_at_end;
use super::state::{MIN_LONG_REQUEST, Monitor, MonitoredRequest, RequestDetail, USUAL_READ_SIZE};
use super::unspecified::Unspecified;
use crate::connections::CompletedMessage;
use crate::finding::PartyKind;
use crate::observation::quote_bytes;

impl Monitor {
    /// Judges a write by a client: its bytes and the messages that it completes.
    pub(super) fn client_wrote(&mut self, p: Proc, bytes: &[u8], messages: &[CompletedMessage<'_>]) {
        self.rank(p).unanswered_pages += bytes.len().div_ceil(USUAL_READ_SIZE);
        if !self.continues_message && self.framing(p) == Framing::Frames {
            let is_unusual = |header: &[u8; HEADER]| {
                frame_length(*header).is_some_and(|length| frame_header(length) != Some(*header))
            };
            self.rank(p).has_unusual_header = bytes.first_chunk().is_some_and(is_unusual);
        }
        for (place, (_, message)) in messages.iter().enumerate() {
            self.rank(p).split_write = place == 0 && self.continues_message;
            self.request_arrived(p, message, place > 0);
        }
        let partial = self.connections.partial(p, Direction::ToServer);
        if partial.is_empty() {
            return;
        }
        let is_line = self.framing(p) == Framing::Lines;
        let header = partial.first_chunk().filter(|_| !is_line);
        let length = header.and_then(|header| frame_length(*header)).unwrap_or(0).max(partial.len());
        let is_like_a_frame = partial.get(HEADER..).is_some_and(|b| b.starts_with(b"cmd="));
        // A client must not begin a request before its previous request is answered. Otherwise, responses can no longer be matched with
        // requests.
        if is_line && !self.rank(p).pending.is_empty() {
            self.lose_correlation(p, Unspecified::OutOfOrder);
        }
        // A server may give up on a long request without waiting for the rest, even if only the header has arrived.
        if length > MIN_LONG_REQUEST {
            self.irregular_sent(p);
        }
        // Before the protocol is negotiated, a server may mistake these bytes for a frame with an invalid length.
        if is_line && is_like_a_frame {
            self.lose_correlation(p, Unspecified::NotARequest);
        }
    }

    /// Judges a complete request. `joined` is true if the same write contains an earlier request.
    pub(super) fn request_arrived(
        &mut self,
        p: Proc,
        message: &Result<Decoded<'_>, FramingError>,
        joined: bool,
    ) {
        self.rank(p).joined_write = joined;
        self.messages += 1;
        let message = match message {
            Ok(message) => message,
            Err(FramingError::Line(_)) => return self.record_unknown(p),
            Err(error) => return self.framing_error(p, PartyKind::Client, *error),
        };
        self.settle_framing(p, message);
        self.rank(p).aborts |= message.text.starts_with(b"cmd=abort");
        if message.text.len() > MIN_LONG_REQUEST {
            self.irregular_sent(p);
        }
        match (message.framing, message.exchange()) {
            (Framing::Lines, _) => self.line_arrived(p, message),
            (Framing::Frames, Some(row)) if message.is_well_formed() => self.frame_arrived(p, row, message),
            _ => self.bad_request(p, message),
        }
    }

    /// Drops pending requests in the framing that was used before the negotiation, because they can no longer be answered.
    pub(super) fn settle_framing(&mut self, p: Proc, message: &Decoded<'_>) {
        let rank = self.rank(p);
        if rank.framing != message.framing {
            rank.framing = message.framing;
            rank.pending.clear();
        }
    }

    fn line_arrived(&mut self, p: Proc, message: &Decoded<'_>) {
        let line = message.text;
        if line.trim_ascii().starts_with(b"nprocs") {
            self.processes_requested =
                self.processes_requested.saturating_add(number_at_end(line.trim_ascii()));
        }
        if self.rank(p).spawn.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(p, message);
        }
        self.after_error(p, line);
        if !message.is_well_formed() {
            return self.bad_request(p, message);
        }
        let is_canonical = message.is_canonical();
        if let (Some(Operation::Barrier), Some(group)) = (message.operation(), message.raw("group"))
            && self.group_barrier_requested(p, group, is_canonical, message)
        {
            return;
        }
        if !is_canonical {
            // In RFC 13, accepting a different order of keys, extra spaces or unknown keys is only a SHOULD, so a refusal breaks no MUST.
            self.group(p.group).irregular_ranks.insert(p.rank);
            self.irregular = true;
        }
        self.request(p, message, None);
    }

    fn frame_arrived(&mut self, p: Proc, row: &'static Exchange, message: &Decoded<'_>) {
        let body = message.text;
        if let Some(tuple) = message.tuples().find(|t| !is_key(t.key)) {
            let expected = "letters, digits, hyphens and underscores";
            self.client_misuse(p, ids::PMI2_DRAFT_KEY, expected, quote_bytes(tuple.key));
            // Because of the invalid key, a server may not recognize the bytes as a message at all.
            self.irregular_sent(p);
        }
        // A server that reads info keys may abort the job if `infokeycount` is not a valid number.
        if message.raw("infokeycount").is_some() && message.number("infokeycount").is_none() {
            self.irregular_sent(p);
        }
        self.irregular |= !has_known_keys(row, message);
        // Some requests are defined only by the draft, and the ring is supported only by Slurm. A server that does not support a request
        // may abort the job.
        let is_draft_only = row.is_draft_only() || message.is_request_part();
        if is_draft_only || row.operation == "ring" {
            self.irregular_sent(p);
        }
        self.spawns_unknown |= is_draft_only;
        if is_draft_only && row.response.is_none() {
            // The request is part of a longer exchange that the monitor does not track.
            return self.lose_correlation(p, Unspecified::AmbiguousRequest);
        }
        let key = message.field("key");
        let read = key.clone().filter(|_| row.operation != "get-job-attribute");
        if read.or_else(|| message.field("service")).is_some_and(|key| key.iter().any(|b| b";\0".contains(b)))
        {
            // A server may read a different key if it does not unescape doubled semicolons, or if it reads the key as a C string.
            self.irregular = true;
            self.forget_state(p, Unspecified::AmbiguousRequest);
        }
        // The draft allows only certain characters in keys, so a server may abort the job because of this key.
        if key.is_some_and(|key| !is_key(&key)) {
            self.irregular_sent(p);
        }
        let needs = if memmem::find(body, b";;").is_some() {
            Some(ids::PMI2_DRAFT_SEMICOLONS)
        } else if body.iter().any(|b| !(b' '..=b'~').contains(b)) {
            Some(ids::PMI2_DRAFT_ANY_BYTE)
        } else {
            memmem::find(body, b"=;").map(|_| EMPTY)
        };
        self.request(p, message, needs);
    }

    /// Checks whether a well-formed request may be sent now, and stores the request until it is answered. `needs` is the rule of the draft
    /// that the request depends on, if any.
    pub(super) fn request(&mut self, p: Proc, message: &Decoded<'_>, needs: Option<&'static str>) {
        let op = message.operation();
        let thrid = message.field("thrid").map(Cow::into_owned);
        self.check_order(p, op, thrid.as_deref(), message);
        let rank = self.rank(p);
        rank.follows_max_length_put = std::mem::take(&mut rank.has_max_length_put);
        if let Some(request) = self.record_request(p, op, message) {
            if let RequestDetail::Put { key, value, .. } = &request {
                self.rank(p).has_max_length_put = self.has_max_length(p, key, value);
            }
            self.rank(p).pending.push_back(MonitoredRequest {
                row: message.exchange(),
                op,
                thrid,
                needs,
                detail: request,
            });
        }
    }

    /// Records the effect of a request. Returns the data with which the response is compared, or `None` if the request has no response.
    fn record_request(
        &mut self,
        p: Proc,
        op: Option<Operation>,
        message: &Decoded<'_>,
    ) -> Option<RequestDetail> {
        Some(match op {
            Some(Operation::Init) => self.init_requested(p, message),
            Some(Operation::Abort) => return self.abort_requested(p, message),
            Some(Operation::Finalize) => self.finalize_requested(p),
            Some(Operation::Put) => self.put_requested(p, message),
            Some(Operation::Get) => self.get_requested(p, message),
            Some(Operation::Barrier) => self.barrier_requested(p, message),
            Some(Operation::Spawn) => self.spawn_requested(p, message),
            Some(Operation::Publish | Operation::Unpublish | Operation::Lookup) => {
                let request = NameRequest::new(message)?;
                self.name_requested(&request);
                RequestDetail::Name(request)
            }
            _ => self.attribute_requested(p, message),
        })
    }
}
