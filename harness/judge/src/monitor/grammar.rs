//! The form of messages, and the requirements that malformed messages break.

use pmi_scenario::ids;
use pmi_wire::grammar::Rule;
use pmi_wire::pmi2::{Body, BodyError, SemicolonReading};
use pmi_wire::protocol::{Exchange, PARTS};
use pmi_wire::{
    DecodeError, Decoded, Direction, FrameError, Framing, FramingError, MessageError, Operation, Proc,
    SpawnErrorKind, Tuple,
};

use super::state::{Monitor, grammar_rule, request_rule};
use super::unspecified::Unspecified;
use crate::bytes::LINE_LIMIT;
use crate::finding::PartyKind;
use crate::observation::ObservationText;

/// The requirement about empty values. The draft does not specify whether a value may be empty, and some servers reject an empty value.
pub(super) const EMPTY: &str = ids::PMI2_DRAFT_EMPTY_VALUE;

/// Returns true if a request has no unknown keys. In a spawn request, the numbered keys must also agree with the counts.
pub(super) fn has_known_keys(row: &Exchange, message: &Decoded<'_>) -> bool {
    let Some(request) = message.spawn() else {
        let own = || row.arguments.iter().filter(|field| !field.numbered).map(|field| field.key);
        let is_known = |key: &[u8]| own().chain(["cmd", "thrid"]).any(|known| known.as_bytes() == key);
        return row.operation != "spawn" && message.tuples().all(|tuple| is_known(tuple.key));
    };
    let mut canonical = Vec::new();
    request.write_body(message.raw("thrid"), &mut canonical);
    let Ok(canonical) = Body::parse(&canonical, SemicolonReading::Doubled) else { return false };
    sorted_keys(canonical.tuples()) == sorted_keys(message.tuples())
}

fn sorted_keys<'a>(tuples: impl Iterator<Item = Tuple<'a>>) -> Vec<&'a [u8]> {
    let mut keys: Vec<_> = tuples.map(|tuple| tuple.key).collect();
    keys.sort_unstable();
    keys
}

/// Returns the requirement that a malformed line from a client breaks.
fn line_request_rule(message: &Decoded<'_>, error: &DecodeError) -> &'static str {
    let (line, cmd) = (message.text, message.command());
    let op = message.exchange().and_then(|row| Operation::from_rule(row.operation));
    match (op, error) {
        // RFC 13 defines the newline as a single LF.
        _ if line.ends_with(b"\r") => ids::RFC13_WIRE_NEWLINE,
        // The value of a put extends to the end of the line, so an error there is an error in the value.
        (_, DecodeError::Line(MessageError::BadByte { at, .. }))
            if line.starts_with(b"cmd=put ") && memchr::memmem::find(&line[..*at], b" value=").is_some() =>
        {
            ids::RFC13_ABNF_STRING
        }
        (_, DecodeError::Line(_)) => ids::RFC13_WIRE_TUPLES,
        (Some(_), DecodeError::BadValue { rule: Rule::Uint, .. }) => ids::RFC13_ABNF_UINT,
        (Some(_), DecodeError::BadValue { rule: Rule::Word, .. }) => ids::RFC13_ABNF_WORD,
        (Some(op), _) => request_rule(op),
        (None, DecodeError::SpawnOutsideBlock) => request_rule(Operation::Spawn),
        (None, _) if cmd.is_some_and(|cmd| Operation::from_response_cmd(cmd).is_some()) => {
            ids::RFC13_WIRE_SERVER_SENDS_RESPONSES
        }
        (None, _) if message.exchange().is_some() => ids::DE_FACTO_REQUEST_EXTRA,
        (None, _) => ids::RFC13_ABNF_PMI1,
    }
}

/// Returns the requirement that a malformed frame from a client breaks.
fn frame_request_rule(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::Body(_) | DecodeError::NoCommand { .. } => ids::PMI2_COMMON_TUPLES,
        DecodeError::UnknownCommand { .. } => ids::PMI2_DRAFT_COMMAND,
        _ => ids::PMI2_COMMON_REQUEST_COMPLETE,
    }
}

/// Returns the requirement that a malformed spawn request breaks.
pub(super) fn spawn_rule(fault: &SpawnErrorKind) -> &'static str {
    match fault {
        // If the request has already begun, a line outside a block lies between two blocks.
        SpawnErrorKind::Interspersed | SpawnErrorKind::OutsideBlock => ids::RFC13_SPAWN_NOT_INTERSPERSED,
        SpawnErrorKind::BadByte { .. } => ids::RFC13_ABNF_STRING,
        SpawnErrorKind::Malformed => ids::RFC13_WIRE_TUPLES,
        SpawnErrorKind::CountMismatch { .. } => ids::RFC13_SPAWN_COUNTS_ZERO_OR_MORE,
        SpawnErrorKind::BadValue { expected: Rule::Uint, .. } => ids::RFC13_ABNF_UINT,
        SpawnErrorKind::BadValue { expected: Rule::Word, .. } => ids::RFC13_ABNF_WORD,
        SpawnErrorKind::BadIndex { expected: Rule::Int, .. } => ids::RFC13_ABNF_INT,
        SpawnErrorKind::BadIndex { .. } => ids::RFC13_ABNF_UINT,
        SpawnErrorKind::MissingElement(_) => ids::RFC13_SPAWN_INDICES,
        SpawnErrorKind::MissingArgument(_) => ids::RFC13_SPAWN_ARG_INDICES,
        _ => ids::RFC13_ABNF_C_SPAWN,
    }
}

fn value_rule(key: &str, expected: Rule) -> &'static str {
    match key {
        "errcodes" => ids::RFC13_ABNF_INTLIST,
        "kvsname" => ids::RFC13_ABNF_WORD,
        "port" => ids::RFC13_ABNF_S_LOOKUP,
        "rc" => ids::RFC13_ABNF_INT,
        _ if expected == Rule::Uint => ids::RFC13_ABNF_UINT,
        _ => ids::RFC13_ABNF_STRING,
    }
}

/// Returns the key of the value at this offset of a line.
fn key_at(line: &[u8], at: usize) -> Option<&[u8]> {
    let before = line.get(..at)?;
    let start = before.iter().rposition(|b| *b == b' ').map_or(0, |blank| blank + 1);
    let end = before[start..].iter().position(|b| *b == b'=')?;
    Some(&before[start..start + end])
}

/// Returns true if a lenient parser can read the response. Such a parser ignores a CR before the newline and accepts all bytes.
pub(crate) fn is_readable_leniently(message: &Decoded<'_>) -> bool {
    let line = message.text.strip_suffix(b"\r").unwrap_or(message.text);
    let visible = |byte: &u8| if matches!(byte, b'\t' | b' '..=b'~') { *byte } else { b'?' };
    let line: Vec<u8> = line.iter().map(visible).collect();
    Decoded::new(message.direction, message.framing, &line).is_well_formed()
}

/// Returns true if a message from a server is a well-formed request. A line that merely begins like a request is a malformed response.
fn is_request(message: &Decoded<'_>) -> bool {
    !message.text.contains(&b'\t')
        && Decoded::new(Direction::ToServer, message.framing, message.text).is_well_formed()
}

impl Monitor {
    /// Judges bytes that cannot be divided into messages.
    pub(super) fn framing_error(&mut self, p: Proc, side: PartyKind, error: FramingError) {
        let is_line_agreed = side == PartyKind::Client && self.rank(p).version.is_some();
        let (requirement, expected) = match error {
            FramingError::FrameForLine if is_line_agreed => {
                (ids::RFC13_INIT_HIGHEST_MUTUAL, "lines, since the server's answer to init states version 1")
            }
            FramingError::FrameForLine => {
                (ids::PMI2_COMMON_FIRST_LINE, "a line, since PMI-2 is not negotiated yet")
            }
            FramingError::LineForFrame => (ids::PMI2_COMMON_FRAME, "a frame, since PMI-2 was negotiated"),
            FramingError::Line(_) => (ids::RFC13_WIRE_NEWLINE, "messages end with a newline"),
            FramingError::Frame(FrameError::Header { .. }) => {
                (ids::PMI2_COMMON_FRAME, "six bytes with the length of the body")
            }
            FramingError::Frame(FrameError::Overlong(_)) => {
                (ids::PMI2_COMMON_FRAME, "a frame within the size limit")
            }
        };
        match (side, error) {
            (PartyKind::Client, _) => {
                self.client_error(p, requirement, expected, error.to_string());
                self.lose_correlation(p, Unspecified::NotARequest);
            }
            (_, FramingError::Line(_)) => {
                let seen = format!("more than {LINE_LIMIT} bytes without a newline");
                self.rank(p).received_garbage = true;
                self.report_unreadable(p, requirement, expected, seen);
            }
            _ if self.state_unknown(p) => {}
            // The server sent a frame, although PMI-2 has not been negotiated on this connection.
            (_, FramingError::FrameForLine) => {
                let expected = "a line with a response";
                self.server_error(p, ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, expected, error.to_string());
            }
            _ => self.server_error(p, requirement, expected, error.to_string()),
        }
    }

    /// Reports a message that cannot be read at all. Only the first such message of a connection is reported, because later unreadable
    /// messages are usually consequences of the first.
    fn report_unreadable(
        &mut self,
        p: Proc,
        requirement: &str,
        expected: &str,
        seen: impl Into<ObservationText>,
    ) {
        self.rank(p).pending.pop_front();
        if !std::mem::replace(&mut self.rank(p).unreadable, true) {
            self.server_error(p, requirement, expected, seen);
        }
    }

    /// Judges a client's message that is not a request.
    pub(super) fn bad_request(&mut self, p: Proc, message: &Decoded<'_>) {
        let Some(error) = message.error() else { return };
        let seen = ObservationText::message(message.text);
        match message.framing {
            Framing::Lines => {
                self.record_unknown(p);
                let rule = line_request_rule(message, error);
                self.client_error(p, rule, format!("an RFC 13 request, but {error}"), seen);
            }
            Framing::Frames => {
                let expected = format!("a PMI-2 request, but {error}");
                // A process that merely repeats the unusable PMI_RANK of its environment is not to blame.
                let given = self.rank(p).rank_variable.as_deref().map(str::as_bytes);
                let is_given = matches!(error, DecodeError::BadValue { key: "pmirank", .. })
                    && message.raw("pmirank") == given;
                if !is_given {
                    self.client_error(p, frame_request_rule(error), expected, seen);
                }
                // The draft does not specify whether the server responds, or how.
                self.lose_correlation(p, Unspecified::NotARequest);
                // If the server aborts this job, it may also abort jobs that depend on it, such as a spawned job.
                for group in self.groups.values_mut() {
                    group.may_abort.get_or_insert(Unspecified::NotARequest);
                }
            }
        }
    }

    /// Judges a server's message that is not a response.
    pub(super) fn bad_response(&mut self, p: Proc, message: &Decoded<'_>) {
        let Some(error) = message.error() else { return };
        match message.framing {
            Framing::Lines => {
                self.irregular_answered(p, false);
                self.bad_line_response(p, error, message);
            }
            Framing::Frames => self.bad_frame_response(p, error, message),
        }
    }

    fn bad_line_response(&mut self, p: Proc, error: &DecodeError, message: &Decoded<'_>) {
        let line = message.text;
        let front = self.rank(p).pending.front().map(|pending| pending.row);
        self.rank(p).received_unsolicited |= front.is_none();
        let of_rfc = || format!("an RFC 13 response, but {error}");
        let (id, expected) = match error {
            // The value of a get extends to the end of the line, so an error there is an error in the value.
            DecodeError::Line(MessageError::BadByte { .. }) if line.starts_with(b"cmd=get_result ") => {
                (ids::RFC13_ABNF_STRING, format!("spaces, tabs and visible characters, but {error}"))
            }
            DecodeError::Line(MessageError::BadByte { at, .. })
                if key_at(line, *at) == Some(b"kvsname".as_slice()) =>
            {
                (ids::RFC13_ABNF_WORD, format!("a kvsname of visible characters, but {error}"))
            }
            DecodeError::Line(_) => {
                (ids::RFC13_WIRE_TUPLES, format!("a series of key=value tuples, but {error}"))
            }
            DecodeError::NoCommand { .. } => {
                (ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, "a response with a cmd".to_owned())
            }
            DecodeError::UnknownCommand { .. } if is_request(message) => {
                (ids::RFC13_WIRE_CLIENT_SENDS_REQUESTS, "a response, not a request".to_owned())
            }
            _ if front.is_none() => self.rule_without_request(p),
            // The response to bytes that are not a PMI-1 request may have any command.
            DecodeError::UnknownCommand { .. } if front == Some(None) => {
                self.rank(p).pending.pop_front();
                return;
            }
            DecodeError::UnknownCommand { .. } => (ids::RFC13_ABNF_PMI1, "an RFC 13 response".to_owned()),
            DecodeError::BadValue { key, rule, .. } => (value_rule(key, *rule), of_rfc()),
            _ => {
                let op = message.exchange().and_then(|row| Operation::from_rule(row.operation));
                (grammar_rule(Direction::FromServer, op.unwrap_or(Operation::Init)), of_rfc())
            }
        };
        if matches!(error, DecodeError::Line(_)) {
            // If the state is unknown, the response may repeat invalid bytes from the client, as a value or in an error message. Such a
            // response is not reported.
            if self.state_unknown(p) {
                self.rank(p).pending.pop_front();
                return;
            }
            self.rank(p).received_garbage |= !is_readable_leniently(message);
            return self.report_unreadable(p, id, &expected, ObservationText::message(line));
        }
        let rank = self.rank(p);
        // A malformed response to init counts as a success. Otherwise, every later request would be reported as well.
        rank.joined |= rank.pending.pop_front().is_some_and(|pending| pending.op == Some(Operation::Init));
        self.server_error(p, id, expected, ObservationText::message(line));
    }

    fn bad_frame_response(&mut self, p: Proc, error: &DecodeError, message: &Decoded<'_>) {
        let is_unknown = matches!(error, DecodeError::UnknownCommand { .. });
        let is_part = is_unknown && self.is_expected_part(p, message);
        if is_part || self.state_unknown(p) {
            return;
        }
        let pending = self.rank(p).pending.pop_front();
        // A client that can read the response may treat it as a success.
        self.rank(p).fullinit_accepted |=
            pending.as_ref().is_some_and(|pending| pending.op == Some(Operation::Init));
        let requirement = match error {
            DecodeError::Body(BodyError::Unterminated) => ids::PMI2_COMMON_TERMINATED,
            DecodeError::Body(_) | DecodeError::NoCommand { .. } => ids::PMI2_COMMON_TUPLES,
            _ if pending.is_none() => self.rule_without_request(p).0,
            _ if is_unknown => ids::PMI2_COMMON_RESPONSE_NAME,
            DecodeError::RepeatedKey(_) => ids::PMI2_COMMON_TUPLES,
            // Of the values in a frame, only `rc` is checked, so any other error is about `rc`.
            _ => ids::PMI2_COMMON_RC,
        };
        let expected = format!("a PMI-2 response, but {error}");
        self.server_error(p, requirement, expected, ObservationText::message(message.text));
    }

    /// Returns true if the draft allows this message before the response to a pending request: a challenge before the response to fullinit,
    /// or pairs before the response to kvs-getall.
    fn is_expected_part(&mut self, p: Proc, message: &Decoded<'_>) -> bool {
        let Some((name, _)) = PARTS.into_iter().find(|(name, _)| message.command() == Some(name.as_bytes()))
        else {
            return false;
        };
        let operation = if name.starts_with("auth") { "init" } else { "get-all" };
        self.rank(p).pending.iter().filter_map(|pending| pending.row).any(|row| row.operation == operation)
    }
}
