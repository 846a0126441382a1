//! What a server writes: responses, whether they are the right ones, and silence.

use pmi_scenario::ids;
use pmi_wire::{
    Body, Content, Decoded, Direction, Framing, FramingError, MappingForm, MessageError, Operation, Response,
    ResponseError, SpawnRequest, Version,
};

use super::response::is_regular;
use super::state::{COMPLETE, FULL, IN_PIECES, LONG_REQUEST, Monitor, Pending, Singinit, request_rule};
use crate::Severity;
use crate::bytes::LINE_LIMIT;
use crate::connections::Message;
use crate::event::Exit;
use crate::finding::Side;
use crate::kvs::{is_ambiguous, without_tuples};
use crate::seen::{NO_PROOF, Seen, SeenKind, Unended, not_read, show};
use pmi_wire::Proc;
use pmi_wire::grammar::Rule;

/// The key under which the server itself provides the process mapping.
const MAPPING_KEY: &[u8] = b"PMI_process_mapping";

/// `rfc13.abnf.s-get` and so on.
fn response_rule(op: Operation) -> String {
    format!("rfc13.abnf.s-{}", op.rule())
}

/// The macro of the grammar that a value of a response breaks.
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

/// The key in whose value this place of a line is.
fn key_at(line: &[u8], at: usize) -> Option<&[u8]> {
    let before = line.get(..at)?;
    let start = before.iter().rposition(|b| *b == b' ').map_or(0, |blank| blank + 1);
    let end = before[start..].iter().position(|b| *b == b'=')?;
    Some(&before[start..start + end])
}

/// Returns true if the line is a response to a parser that ignores a CR before the newline and accepts all bytes.
fn is_readable_leniently(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let visible = |byte: &u8| if matches!(byte, b'\t' | b' '..=b'~') { *byte } else { b'?' };
    let line: Vec<u8> = line.iter().map(visible).collect();
    Decoded::new(Direction::FromServer, Framing::Lines, &line).is_well_formed()
}

/// Returns true if a line is a well-formed request. A line that only begins like a request is a malformed response.
fn is_request(line: &[u8]) -> bool {
    !line.contains(&b'\t') && Decoded::new(Direction::ToServer, Framing::Lines, line).is_well_formed()
}

/// The rule of the grammar that a process mapping breaks at this offset.
fn mapping_rule(value: &[u8], at: usize) -> &'static str {
    const FRAME: &[u8] = b"(vector,";
    if at < FRAME.len() {
        return ids::RFC13_ABNF_MAPPING;
    }
    let inside = value[..at.min(value.len())].iter().fold(0, |depth: usize, b| match b {
        b'(' => depth + 1,
        b')' => depth.saturating_sub(1),
        _ => depth,
    });
    match inside {
        2.. => ids::RFC13_ABNF_MAPPING_BLOCK,
        1 if at < value.len() => ids::RFC13_ABNF_MAPPING_BLOCKLIST,
        _ => ids::RFC13_MAPPING_FORMAT,
    }
}

/// The requirement that is broken when this request gets no answer.
fn unanswered_duty(pending: &Pending) -> Option<&'static str> {
    let empty = |program: &pmi_wire::SpawnProgram| {
        program.args.iter().any(|(_, arg)| arg.is_empty())
            || program
                .preput
                .iter()
                .chain(&program.info)
                .any(|(key, value)| key.is_empty() || value.is_empty())
    };
    // The word with which a request ends is none where it is the value of something.
    let ends = |program: &pmi_wire::SpawnProgram| {
        program.args.iter().map(|(_, arg)| arg).any(|arg| arg == b"endcmd")
    };
    Some(match pending {
        // RFC 13 contradicts itself on the form of these requests.
        Pending::Put { value, .. } if value.is_empty() => ids::RFC13_VALUE_EMPTY,
        Pending::Put { value, .. } if is_ambiguous(value) => ids::RFC13_VALUE_BLANK,
        Pending::Spawn(request) if request.programs.iter().any(empty) => ids::RFC13_VALUE_EMPTY,
        Pending::Spawn(request) if request.programs.iter().any(ends) => ids::RFC13_ABNF_STRING,
        Pending::Spawn(request) if request.programs.iter().any(|p| !p.args.is_empty()) => {
            ids::RFC13_SPAWN_ARG_INDICES
        }
        Pending::Init(offered) => init_rule(*offered),
        pending => duty(pending.op()?),
    })
}

/// The requirement that is broken when this offer is not taken, although version 1.1 is within it.
fn init_rule(offered: Version) -> &'static str {
    if offered > Version::V1_1 { ids::RFC13_INIT_HIGHEST_MUTUAL } else { ids::RFC13_ABNF_C_INIT }
}

/// Whether the arguments of a spawn request are numbered from one, by which its sender breaks the protocol.
fn counts_from_one(request: &SpawnRequest) -> bool {
    request.programs.iter().any(|program| program.args_base().is_some_and(|base| base != 0))
}

/// The requirement that is broken when a request that must succeed is refused.
fn duty(op: Operation) -> &'static str {
    match op {
        Operation::Init => ids::RFC13_ABNF_C_INIT,
        Operation::Maxes => ids::RFC13_ABNF_C_MAXES,
        Operation::Abort => ids::RFC13_ABORT_GROUP,
        Operation::Finalize => ids::RFC13_FINALIZE_ACK,
        Operation::Universe => ids::RFC13_ABNF_C_UNIVERSE,
        Operation::Appnum => ids::RFC13_ABNF_C_APPNUM,
        Operation::Put => ids::RFC13_ABNF_C_PUT,
        Operation::Kvsname => ids::RFC13_ABNF_C_KVSNAME,
        Operation::Barrier => ids::RFC13_BARRIER_RELEASED,
        Operation::Get => ids::RFC13_ABNF_C_GET,
        Operation::Publish => ids::RFC13_ABNF_C_PUBLISH,
        Operation::Unpublish => ids::RFC13_ABNF_C_UNPUBLISH,
        Operation::Lookup => ids::RFC13_ABNF_C_LOOKUP,
        Operation::Spawn => ids::RFC13_ABNF_C_SPAWN,
    }
}

impl Monitor {
    /// Judges what a server wrote, which completes these messages. Requests that were sent after an offer of PMI-2 can be read
    /// once that is answered.
    pub(super) fn server_wrote(&mut self, p: Proc, messages: &[Message<'_>]) {
        (self.rank(p).answered, self.rank(p).unanswered_pages) = (true, 0);
        let mut joined = false;
        for (direction, message) in messages {
            match direction {
                Direction::FromServer => self.response_arrived(p, message),
                Direction::ToServer => {
                    self.rank(p).split_write = false;
                    self.request_arrived(p, message, joined);
                }
            }
            joined = *direction == Direction::ToServer;
        }
    }

    fn response_arrived(&mut self, p: Proc, message: &Result<Decoded<'_>, FramingError>) {
        self.messages += 1;
        if let (true, Ok(message)) = (self.inspects_responses, message) {
            let pending = &self.rank(p).pmi2.pending;
            let asked = |thrid: &[u8]| pending.iter().any(|pending| pending.thrid.as_deref() == Some(thrid));
            let regular = is_regular(message, asked);
            self.irregular_response |= !regular || message.text.len() > LONG_REQUEST;
        }
        if let Ok(message) = message
            && let Some(version) = message.version().filter(|_| message.is_success())
        {
            self.versions.insert((version.version, version.subversion));
        }
        match message {
            Ok(message) => match &message.content {
                Content::LineResponse(response) => self.response_line(p, response, message),
                Content::FrameResponse(response) => self.pmi2_response(p, response, message),
                Content::LineRequest(_) | Content::FrameRequest(_) => {}
            },
            Err(FramingError::Line(_)) => {
                let seen = format!("more than {LINE_LIMIT} bytes without a newline");
                self.rank(p).no_message = true;
                self.unreadable(p, ids::RFC13_WIRE_NEWLINE, "messages end with a newline", seen);
            }
            Err(error) => self.framing_error(p, Side::Server, *error),
        }
    }

    /// Reports a message that cannot be read at all, once for each connection, since what follows is rarely a finding of its own.
    fn unreadable(&mut self, p: Proc, requirement: &str, expected: &str, seen: impl Into<Seen>) {
        self.rank(p).pending.pop_front();
        if !std::mem::replace(&mut self.rank(p).unreadable, true) {
            self.server_error(p, requirement, expected, seen);
        }
    }

    fn response_line(
        &mut self,
        p: Proc,
        response: &Result<Response<'_>, ResponseError>,
        message: &Decoded<'_>,
    ) {
        let line = message.text;
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                self.irregular_answered(p, false);
                return self.bad_response(p, error, message);
            }
        };
        if self.group_barrier_answered(p, response, line) {
            return;
        }
        self.correlated_answer(p, response, message);
        self.irregular_answered(p, response.is_success());
    }

    /// Takes a response for the answer to the oldest request.
    fn correlated_answer(&mut self, p: Proc, response: &Response<'_>, message: &Decoded<'_>) {
        let line = message.text;
        let op = response.operation();
        self.put_first(p, op);
        let asked = self.rank(p).pending.front().map(Pending::op);
        self.rank(p).got_unasked |= asked.is_none();
        if self.rank(p).uncorrelated {
            return self.uncorrelated_answer(p, response, message);
        }
        match asked {
            None if op == Operation::Spawn && self.rank(p).spawns => {
                let expected = "one response to a spawn, however many commands it has";
                self.server_error(p, ids::RFC13_SPAWN_ONE_RESPONSE, expected, Seen::message(line));
            }
            None => self.server_error(
                p,
                ids::RFC13_WIRE_LOCK_STEP,
                "no message, since nothing was asked",
                Seen::message(line),
            ),
            // The request was none of PMI-1. What the server answers to it is for the scenario to judge.
            Some(None) => drop(self.rank(p).pending.pop_front()),
            Some(Some(asked)) if asked == op => {
                if let Some(pending) = self.rank(p).pending.pop_front() {
                    self.answer(p, pending, response, message);
                }
            }
            Some(Some(asked)) => {
                let expected = match asked.response_cmd() {
                    Some(cmd) => format!("cmd={cmd}, the answer to {}", asked.request_cmd()),
                    None => "a bare newline or the end of the connection, after abort".to_owned(),
                };
                let id = if asked == Operation::Abort {
                    ids::RFC13_ABNF_S_ABORT
                } else {
                    ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST
                };
                // A barrier_out that is wrong here is not taken for the answer to the pending request.
                self.server_error(p, id, expected, Seen::message(line));
                if op != Operation::Barrier {
                    self.rank(p).pending.pop_front();
                }
            }
        }
    }

    /// Takes a response as the answer to the first pending request that it fits.
    fn uncorrelated_answer(&mut self, p: Proc, response: &Response<'_>, message: &Decoded<'_>) {
        let rank = self.rank(p);
        let place = |op| rank.pending.iter().position(|pending| pending.op() == op);
        let place = place(Some(response.operation())).or_else(|| place(None));
        let pending = place.and_then(|i| rank.pending.remove(i));
        // Every request has been answered, so from here on it is clear again which answer belongs to which request.
        rank.uncorrelated = !rank.pending.is_empty();
        if let Some(pending) = pending.filter(|pending| pending.op().is_some()) {
            self.answer(p, pending, response, message);
        }
    }

    fn bad_response(&mut self, p: Proc, error: &ResponseError, message: &Decoded<'_>) {
        let (line, cmd) = (message.text, message.command());
        let asked = self.rank(p).pending.front().map(Pending::op);
        let unasked = asked.is_none();
        self.rank(p).got_unasked |= unasked;
        let (id, expected) = match error {
            // The value of a get runs to the end of the line, so what is wrong there is wrong with the value.
            ResponseError::Message(MessageError::BadByte { .. }) if line.starts_with(b"cmd=get_result ") => {
                (ids::RFC13_ABNF_STRING.to_owned(), format!("blanks, tabs and visible characters ({error})"))
            }
            ResponseError::Message(MessageError::BadByte { at, .. })
                if key_at(line, *at) == Some(b"kvsname".as_slice()) =>
            {
                (ids::RFC13_ABNF_WORD.to_owned(), format!("a kvsname of visible characters ({error})"))
            }
            ResponseError::Message(_) => {
                (ids::RFC13_WIRE_TUPLES.to_owned(), format!("a series of key=value tuples ({error})"))
            }
            ResponseError::NoCommand => {
                (ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST.to_owned(), "a response with its cmd".to_owned())
            }
            ResponseError::UnknownCommand if is_request(line) => {
                (ids::RFC13_WIRE_CLIENT_SENDS_REQUESTS.to_owned(), "a response, not a request".to_owned())
            }
            _ if unasked => {
                (ids::RFC13_WIRE_LOCK_STEP.to_owned(), "no message, since nothing was asked".to_owned())
            }
            // The answer to something that is no request of PMI-1 may have a name of its own.
            ResponseError::UnknownCommand if asked == Some(None) => {
                self.rank(p).pending.pop_front();
                return;
            }
            ResponseError::UnknownCommand => {
                (ids::RFC13_ABNF_PMI1.to_owned(), "a response of RFC 13".to_owned())
            }
            ResponseError::BadValue { key, expected } => {
                (value_rule(key, *expected).to_owned(), format!("a response of RFC 13 ({error})"))
            }
            ResponseError::MissingKey(_) | ResponseError::RepeatedKey(_) => {
                let op = cmd.and_then(Operation::from_response_cmd).unwrap_or(Operation::Init);
                (response_rule(op), format!("a response of RFC 13 ({error})"))
            }
        };
        if matches!(error, ResponseError::Message(_)) {
            // The bytes that the client should not have sent may come back as a value, or in the words of an error.
            if self.state_unknown(p) {
                self.rank(p).pending.pop_front();
                return;
            }
            self.rank(p).no_message |= !is_readable_leniently(line);
            return self.unreadable(p, &id, &expected, Seen::message(line));
        }
        let rank = self.rank(p);
        // What is wrong with an answer to init is told once, and not by each request that follows.
        rank.joined |= matches!(rank.pending.pop_front(), Some(Pending::Init(_)));
        self.server_error(p, &id, expected, Seen::message(line));
    }

    /// Judges a response that has the command which the request asks for.
    fn answer(&mut self, p: Proc, pending: Pending, response: &Response<'_>, message: &Decoded<'_>) {
        let line = message.text;
        let ok = response.is_success();
        match (pending, &response.body) {
            (Pending::Init(offered), Body::Init(used)) => self.init_answered(p, offered, ok, *used, line),
            (Pending::Put { key, value, lawful }, _) => self.put_answered(p, &key, &value, lawful, message),
            (Pending::Get { key, kvsname, left }, Body::Get(value))
                if self.group(p.group).kvsname.as_deref() == Some(&kvsname) =>
            {
                match key == MAPPING_KEY {
                    true => self.mapping_answered(p, ok, *value, line),
                    false => self.get_answered(p, &key, left, None, message),
                }
            }
            (Pending::Name(asked), _) => self.name_answered(p, asked, message),
            (Pending::Spawn(request), Body::Spawn(codes)) => {
                self.takes_arguments_from_one |= ok && counts_from_one(&request);
                let Some(codes) = codes else { return };
                let asked = request.programs.iter().fold(0u64, |n, p| n.saturating_add(p.nprocs));
                // Who was asked for a spawn in a way that may be read otherwise may answer another one than it seems.
                if codes.len() as u64 != asked && ok && !self.spawns_unknown {
                    let expected = format!("an error code for each of the {asked} processes");
                    self.server_error(p, "de-facto.spawn.errcodes", expected, Seen::message(line));
                }
            }
            (Pending::Other(op), body) => self.plain_answered(p, op, ok, body, message),
            _ => {}
        }
    }

    fn init_answered(&mut self, p: Proc, offered: Version, ok: bool, used: Option<Version>, line: &[u8]) {
        let id = ids::RFC13_INIT_VERSION_USED;
        match used {
            Some(used) if ok && used > offered => {
                let expected = format!("a version up to {offered}, the highest that the client offered");
                let known = *self.first_version.get_or_insert(used) == used;
                self.rank(p).granted = used;
                self.rank(p).unoffered = Some((offered, used));
                if !known || self.focus.as_ref().is_none_or(|f| f.iter().any(|r| r == id)) {
                    self.server_error(p, id, expected, Seen::message(line));
                }
                self.rank(p).joined = true;
            }
            Some(used) if ok => {
                let rank = self.rank(p);
                (rank.joined, rank.granted, rank.version) = (true, used, used);
            }
            None if ok => {
                self.server_error(
                    p,
                    COMPLETE,
                    "success comes with the version that is used",
                    Seen::message(line),
                );
                self.rank(p).joined = true;
            }
            _ if self.others_speak_pmi2(p) => {}
            _ if offered >= Version::V1_1 && !self.may_abort(p) => {
                let id = self.in_pieces_or(p, init_rule(offered));
                self.server_error(
                    p,
                    id,
                    "success, since version 1.1 is in reach of the client",
                    Seen::message(line),
                );
            }
            _ => {}
        }
    }

    fn mapping_answered(&mut self, p: Proc, ok: bool, value: Option<&[u8]>, line: &[u8]) {
        let (size, nodes) = (self.group(p.group).size, self.group(p.group).nodes);
        // A client has put a mapping of its own, which RFC 13 does not allow.
        if self.group(p.group).kvs.contains(MAPPING_KEY) || self.state_unknown(p) {
            return;
        }
        if ok && value.is_none() {
            return self.server_error(
                p,
                COMPLETE,
                "success comes with the value of the key",
                Seen::message(line),
            );
        }
        let (true, Some(value)) = (ok, value) else {
            if !self.may_abort(p) {
                self.server_error(
                    p,
                    ids::RFC13_MAPPING_PROVIDED,
                    "the value of PMI_process_mapping",
                    Seen::message(line),
                );
            }
            return;
        };
        let first = self.group(p.group).mapping.get_or_insert_with(|| value.to_vec()).clone();
        if first != value {
            let expected = format!("the same mapping for every process, {}", show(&first));
            self.server_error(p, ids::RFC13_GET_VALUE, expected, Seen::message(line));
        }
        let mapping = match MappingForm::classify(value) {
            MappingForm::Rfc(mapping) => mapping,
            // An empty mapping is lawful where the mapping does not fit the limits.
            MappingForm::Unknown => return,
            MappingForm::Mpich(_) => {
                let seen = format!("{}, MPICH's form and not RFC 13's", show(value));
                return self.server_error(
                    p,
                    ids::RFC13_MAPPING_FORMAT,
                    "\"(vector,(node,nodes,ppn),...)\"",
                    seen,
                );
            }
            MappingForm::NotAMapping(error) => {
                let alone = without_tuples(value);
                if alone.len() < value.len() && matches!(MappingForm::classify(alone), MappingForm::Rfc(_)) {
                    self.adds_tuples = true;
                    let expected = format!("the value {} and nothing after it", show(alone));
                    return self.server_error(p, ids::RFC13_GET_VALUE, expected, Seen::message(line));
                }
                let expected = format!("\"(vector,(node,nodes,ppn),...)\" ({error})");
                return self.server_error(p, mapping_rule(value, error.at), expected, show(value));
            }
        };
        match mapping.expand(size) {
            Err(too_few) => {
                let expected = format!("a node for each of the {size} ranks");
                self.server_error(
                    p,
                    ids::DE_FACTO_MAPPING_COVERS_ALL_RANKS,
                    expected,
                    format!("{}: {too_few}", show(value)),
                );
            }
            Ok(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                let on = nodes.min(size);
                if p.group == 0 && on > 0 && ids.len() as u32 != on {
                    let expected = format!("the {size} ranks on {on} node(s), as they were started");
                    let seen = format!("{} places them on {}", show(value), ids.len());
                    self.server_error(p, ids::RFC13_MAPPING_TRUE, expected, seen);
                }
            }
        }
    }

    fn plain_answered(&mut self, p: Proc, op: Operation, ok: bool, body: &Body<'_>, message: &Decoded<'_>) {
        let line = message.text;
        match body {
            Body::Barrier(_) => {
                let round = self.rank(p).left + 1;
                return self.barrier_left(p, round, message);
            }
            // RFC 13, PMI_Get_universe_size and PMI_Get_appnum: the server may be unable to tell.
            Body::Universe(_) | Body::Appnum(_) if !ok => return,
            Body::Kvsname(Some(name)) if ok => return self.kvsname_answered(p, name, line),
            Body::Maxes(maxes @ Some(_)) => self.rank(p).maxes = *maxes,
            _ => {}
        }
        if !ok {
            self.rank(p).finalize_refused |= op == Operation::Finalize;
            if !self.may_abort(p) {
                let expected = format!("success of {}", op.request_cmd());
                let rule = request_rule(op);
                self.server_error(p, self.in_pieces_or(p, &rule), expected, Seen::message(line));
            }
            return;
        }
        let missing = match body {
            Body::Maxes(None) => "kvsname_max, keylen_max and vallen_max",
            Body::Universe(None) => "size",
            Body::Appnum(None) => "appnum",
            Body::Kvsname(None) => "kvsname",
            _ => return,
        };
        self.server_error(p, COMPLETE, format!("success comes with {missing}"), Seen::message(line));
    }

    fn kvsname_answered(&mut self, p: Proc, name: &[u8], line: &[u8]) {
        if let Some(Singinit::Done(told)) = &self.rank(p).singinit
            && told != name
        {
            let expected = format!("kvsname={}, as in singinit_info", told.escape_ascii());
            return self.server_error(p, ids::SINGLETON_KVSNAME, expected, Seen::message(line));
        }
        let max = self.rank(p).maxes.map(|m| m.kvsname_max);
        if max.is_some_and(|max| name.len() as u64 >= max) {
            let expected = format!("a kvsname of less than kvsname_max={} bytes", max.unwrap_or_default());
            self.server_error(p, ids::RFC13_KVSNAME_LENGTH, expected, Seen::message(line));
        }
        let first = self.group(p.group).kvsname.get_or_insert_with(|| name.to_vec()).clone();
        let is_of_others = |name: &[u8]| {
            self.groups.iter().any(|(id, g)| *id != p.group && g.kvsname.as_deref() == Some(name))
        };
        if first != name && is_of_others(&first) {
            // The process that was told the first name got that of another group, which has been reported.
            self.group(p.group).kvsname = Some(name.to_vec());
        } else if first != name {
            let expected = format!("kvsname={} for every process of the group", first.escape_ascii());
            self.server_error(p, ids::RFC13_KVSNAME_COMMON, expected, Seen::message(line));
        }
        if self.groups.iter().any(|(id, g)| *id != p.group && g.kvsname.as_deref() == Some(name)) {
            let expected = "a kvsname that no other process group has";
            self.server_error(p, ids::RFC13_KVSNAME_DISTINCT, expected, Seen::message(line));
        }
    }

    /// Reports that an answer which was waited for did not come, or that the connection ended before it.
    fn unanswered(&mut self, p: Proc, how: SeenKind) {
        if self.may_abort(p) {
            return;
        }
        let closed = how == SeenKind::ConnectionEnd;
        let unended = self.connections.unended(p, Direction::FromServer, how);
        if self.connections.framing(p) == Framing::Frames {
            return match unended {
                Some(Unended { rule, expected, seen }) => self.server_error(p, rule, expected, seen),
                None => self.pmi2_unanswered(p, how),
            };
        }
        if self.group_barriers_unanswered(p, how) {
            return;
        }
        let Some((op, duty)) = self.rank(p).pending.front().map(|p| (p.op(), unanswered_duty(p))) else {
            return;
        };
        if let Some(Unended { rule, expected, seen }) = unended {
            return self.server_error(p, rule, expected, seen);
        }
        let (Some(op), Some(duty)) = (op, duty) else { return };
        // RFC 13 has clients number arguments from zero, so a server need not take any others.
        if !self.takes_arguments_from_one
            && matches!(self.rank(p).pending.front(), Some(Pending::Spawn(request)) if counts_from_one(request))
        {
            return;
        }
        // A client that knows no version of the server's may be turned away.
        let turned_away = self.others_speak_pmi2(p);
        let may_be = |v: &Version| *v < Version::V1_1 || turned_away;
        if closed && matches!(self.rank(p).pending.front(), Some(Pending::Init(v)) if may_be(v)) {
            return;
        }
        if op == Operation::Barrier && !self.all_in(p) {
            return;
        }
        let full =
            matches!(op, Operation::Put | Operation::Get | Operation::Barrier) && self.is_about_full(p);
        // Silence shows that the pieces were not put together. A connection that ends was ended by something else if there is more.
        let id = if self.rank(p).split_write && !(closed && full) {
            IN_PIECES.to_owned()
        } else if op == Operation::Barrier && self.group(p.group).puts_protocol_words {
            // Such keys are what is special about the barrier: it is by then that a manager passes them on.
            ids::RFC13_ABNF_WORD.to_owned()
        } else if full {
            FULL.to_owned()
        } else if closed && duty == self::duty(op) {
            // The server did not take it for a request.
            request_rule(op)
        } else if op == Operation::Barrier && self.rank(p).left > 0 {
            // The barrier has worked before.
            ids::RFC13_BARRIER_GENERIC.to_owned()
        } else {
            duty.to_owned()
        };
        // RFC 13 makes the server answer, but not before it has heard the other processes out.
        let at_most = (how == SeenKind::SilenceBehindPartialRequest).then_some(Severity::Note);
        self.report_missing(p, &id, at_most, format!("an answer to {}", op.request_cmd()), how);
    }

    /// Whether the put or the get that a process waits for is of a pair as long as the limits allow, or, where it waits for a
    /// barrier, a put of its group since the last: a server that has not read it whole takes the rest for the beginning of the
    /// next request.
    fn is_about_full(&mut self, p: Proc) -> bool {
        match self.rank(p).pending.front() {
            Some(Pending::Put { key, value, .. }) => {
                let (key, value) = (key.clone(), value.clone());
                self.is_full(p, &key, &value)
            }
            Some(Pending::Get { key, .. }) => {
                let key = key.clone();
                self.group(p.group).full_keys.contains(&key)
            }
            _ => self.group(p.group).puts_full,
        }
    }

    /// Whether the processes of the group have agreed on PMI-2, of which RFC 13 says nothing.
    fn others_speak_pmi2(&mut self, p: Proc) -> bool {
        let mut others = self.connections.iter().filter(|(other, _)| other.group == p.group);
        others.any(|(_, connection)| connection.framing() == Framing::Frames)
    }

    /// The requirement that a server breaks when it does not understand the last request of a process: one that came in pieces is
    /// not understood for that.
    pub(super) fn in_pieces_or<'a>(&self, p: Proc, otherwise: &'a str) -> &'a str {
        if self.known(p).is_some_and(|rank| rank.split_write) { IN_PIECES } else { otherwise }
    }

    fn all_in(&mut self, p: Proc) -> bool {
        let round = self.rank(p).left + 1;
        let written = self.rank(p).world_written.clone();
        // Nobody says that WORLD is what a barrier without a group is.
        self.group(p.group).all(|rank| rank.entered >= round && rank.world_written == written)
    }

    /// Reports a missing answer. A request that was not read is the reason for the silence, whatever it asks for.
    pub(super) fn report_missing(
        &mut self,
        p: Proc,
        requirement: &str,
        at_most: Option<Severity>,
        expected: String,
        how: SeenKind,
    ) {
        let mut seen = Seen::from(how);
        let mut unread = None;
        if how != SeenKind::ConnectionEnd && !self.not_read.is_empty() {
            seen.text = format!("{}, {}", seen.text, not_read(&self.not_read));
            unread = self.unread_rule(&self.not_read);
        }
        if how != SeenKind::ConnectionEnd && self.unproved {
            seen.text += NO_PROOF;
        }
        self.find(Side::Server, p, unread.unwrap_or(requirement), at_most, expected, seen);
    }

    pub(super) fn no_answer(&mut self, p: Proc) {
        let how = match self.others_mid_request(p) {
            true => SeenKind::SilenceBehindPartialRequest,
            false => SeenKind::Silence,
        };
        self.unanswered(p, how);
    }

    pub(super) fn job_exited(&mut self, exit: Exit) {
        if exit == Exit::Code(0) && self.aborted && !self.aborted_as_success {
            let expected = "an exit status other than 0, since the job was aborted".to_owned();
            let seen = Seen::from(exit.to_string());
            self.find(Side::Server, None, ids::DE_FACTO_ABORT_JOB_FAILS, None, expected, seen);
        }
    }

    pub(super) fn closed_by_server(&mut self, p: Proc) {
        if self.rank(p).closed {
            return;
        }
        self.unanswered(p, SeenKind::ConnectionEnd);
        let rank = self.rank(p);
        rank.closed = true;
        rank.pending.clear();
        rank.open.clear();
        rank.pmi2.forget_pending();
    }
}
