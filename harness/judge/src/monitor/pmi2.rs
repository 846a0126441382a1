//! What is said behind the init line where PMI-2 was negotiated. What only the draft demands, and not all known servers keep, is
//! cited by `pmi2.draft.*`; what all of them keep by `pmi2.common.*`.

use pmi_scenario::ids;
use pmi_wire::grammar::parse_uint;
use pmi_wire::pmi2::{BodyError, Command, Program, Request, RequestError, Response, ResponseError, is_key};
use pmi_wire::protocol::PARTS;
use pmi_wire::{Decoded, Direction, FrameError, FramingError, Proc, place};

use super::pmi2_state::NameRequest;
use super::pmi2_state::{Detail, Pending};
use super::state::{LONG_REQUEST, MOST_PROCESSES, Monitor, RESERVED};
use crate::finding::Side;
use crate::seen::{Seen, SeenKind, show};

/// The limits that the draft has for keys and values, in bytes.
pub(super) const KEY_MAX: usize = 64;
pub(super) const VALUE_MAX: usize = 1024;

const NODE: &str = ids::PMI2_COMMON_NODEATTR;

/// The draft does not say whether a value may be empty, and not all servers take one.
const EMPTY: &str = ids::PMI2_DRAFT_EMPTY_VALUE;

/// What is broken if this pair is lost or comes back changed: the draft allows more than all implementations do.
pub(super) fn pair_rule(key: &[u8], value: &[u8], common: &'static str) -> &'static str {
    if value.is_empty() {
        EMPTY
    } else if value.contains(&b';') {
        ids::PMI2_DRAFT_SEMICOLONS
    } else if key.len() >= KEY_MAX || value.len() >= VALUE_MAX {
        ids::PMI2_DRAFT_LENGTHS_SERVED
    } else if value.iter().any(|b| !(b' '..=b'~').contains(b)) {
        ids::PMI2_DRAFT_ANY_BYTE
    } else {
        common
    }
}

/// What is broken if none of these values comes back.
pub(super) fn values_rule<'a>(
    key: &[u8],
    values: impl IntoIterator<Item = &'a Vec<u8>>,
    common: &'static str,
) -> &'static str {
    let mut rules = values.into_iter().map(|value| pair_rule(key, value, common));
    rules.find(|rule| *rule != common).unwrap_or(common)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn shown(bytes: &[u8]) -> Seen {
    show(bytes).into()
}

/// Whether a pair is one that every server takes.
fn is_within_limits(key: &[u8], value: &[u8]) -> bool {
    is_key(key)
        && !value.is_empty()
        && value.len() < VALUE_MAX
        && key.len() < KEY_MAX
        && !value.contains(&b';')
        && !key.starts_with(RESERVED)
}

/// Returns true if a request has only keys of its own. In a spawn, numbered keys have to agree with their counts as well.
fn has_known_keys(request: &Request<'_>, message: &Decoded<'_>) -> bool {
    let known = || request.command().request_keys().chain(["cmd", "thrid"]);
    let is_known = |key: &[u8]| known().any(|known| known.as_bytes() == key);
    let is_spawn = matches!(request.command(), Command::Spawn | Command::SpawnCmd);
    if !is_spawn && message.tuples().all(|tuple| is_known(tuple.key)) {
        return true;
    }
    let mut canonical = Vec::new();
    request.write_to(message.raw("thrid"), &mut canonical);
    let keys = |message: &Decoded<'_>| {
        let mut keys: Vec<_> = message.tuples().map(|tuple| tuple.key.to_vec()).collect();
        keys.sort_unstable();
        keys
    };
    keys(&Decoded::new(message.direction, message.framing, &canonical)) == keys(message)
}

impl Monitor {
    fn pmi2(&mut self, p: Proc) -> &mut super::pmi2_state::Rank {
        &mut self.rank(p).pmi2
    }

    /// What cannot be read in a direction of a connection.
    pub(super) fn framing_error(&mut self, p: Proc, side: Side, error: FramingError) {
        let (requirement, expected) = match error {
            FramingError::FrameForLine => {
                (ids::PMI2_COMMON_FIRST_LINE, "a line, since PMI-2 is not negotiated yet")
            }
            FramingError::LineForFrame => (ids::PMI2_COMMON_FRAME, "a frame, since PMI-2 was negotiated"),
            FramingError::Line(_) => (ids::RFC13_WIRE_NEWLINE, "messages end with a newline"),
            FramingError::Frame(FrameError::Header { .. }) => {
                (ids::PMI2_COMMON_FRAME, "six bytes with the length of what follows")
            }
            FramingError::Frame(FrameError::Overlong(_)) => {
                (ids::PMI2_COMMON_FRAME, "a frame of a size that can be read")
            }
        };
        match side {
            Side::Client => {
                self.client_error(p, requirement, expected, error.to_string());
                self.lose_correlation(p);
            }
            _ if self.state_unknown(p) => {}
            // Nobody has spoken of PMI-2 here.
            _ if error == FramingError::FrameForLine => {
                let expected = "a line with a response";
                self.server_error(p, ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, expected, error.to_string());
            }
            _ => self.server_error(p, requirement, expected, error.to_string()),
        }
    }

    /// A frame of a client.
    pub(super) fn pmi2_request(
        &mut self,
        p: Proc,
        request: &Result<Request<'_>, RequestError>,
        message: &Decoded<'_>,
    ) {
        let body = message.text;
        // No server need read so much.
        if body.len() > LONG_REQUEST {
            self.irregular_sent(p);
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.bad_pmi2_request(p, error, body),
        };
        let thrid = message.value("thrid").map(std::borrow::Cow::into_owned);
        let command = request.command();
        if let Some(tuple) = message.tuples().find(|t| !is_key(t.key)) {
            let expected = "letters, digits, hyphens and underscores";
            self.client_misuse(p, ids::PMI2_DRAFT_KEY, expected, show(tuple.key));
            // A server may take it for no message at all.
            self.irregular_sent(p);
        }
        let in_capitals = message.raw("wait").is_some_and(|wait| wait == b"TRUE");
        // Servers that read info may end a job where it cannot be read.
        let count = message.raw("infokeycount");
        if count.is_some_and(|count| parse_uint(count).is_none()) {
            self.irregular_sent(p);
        }
        self.irregular |= !has_known_keys(request, message);
        let needs = if contains(body, b";;") {
            Some(ids::PMI2_DRAFT_SEMICOLONS)
        } else if body.iter().any(|b| !(b' '..=b'~').contains(b)) {
            Some(ids::PMI2_DRAFT_ANY_BYTE)
        } else {
            contains(body, b"=;").then_some(EMPTY)
        };
        let is_draft_only = matches!(
            request,
            Request::JobConnect { .. } | Request::JobDisconnect { .. } | Request::DraftOnly(_)
        );
        // No known server has these; one that takes them for nonsense may end the job.
        if is_draft_only || command == Command::Ring {
            self.irregular_sent(p);
        }
        self.spawns_unknown |= is_draft_only;
        if is_draft_only && command.response_name().is_none() {
            // A part of a longer exchange, which is not followed.
            return self.lose_correlation(p);
        }
        self.pmi2_order(p, command, thrid.as_deref(), body);
        if let Request::KvsPut { key, .. }
        | Request::KvsGet { key, .. }
        | Request::InfoPutnodeattr { key, .. }
        | Request::InfoGetnodeattr { key, .. }
        | Request::NamePublish { name: key, .. }
        | Request::NameLookup { name: key }
        | Request::NameUnpublish { name: key } = request
            && key.iter().any(|b| *b == b';' || *b == 0)
        {
            // Who does not undo the doubling, or reads a text of C, has read another key.
            self.irregular = true;
            self.group(p.group).state_unknown = true;
        }
        if let Request::KvsPut { key, .. }
        | Request::KvsGet { key, .. }
        | Request::InfoPutnodeattr { key, .. }
        | Request::InfoGetnodeattr { key, .. }
        | Request::InfoGetjobattr { key } = request
            && !is_key(key)
        {
            // The draft has no such keys, and does not say what becomes of them.
            self.irregular_sent(p);
        }
        let what = match NameRequest::new(message) {
            Some(asked) => {
                self.name_asked(&asked);
                Detail::Name(asked)
            }
            None => match self.pmi2_asked(p, request, in_capitals) {
                Some(what) => what,
                None => return,
            },
        };
        self.pmi2(p).pending.push(Pending { command, thrid, needs, what });
    }

    /// Notes what a request does. Returns what matters for its answer, or `None` if nothing answers it.
    fn pmi2_asked(&mut self, p: Proc, request: &Request<'_>, in_capitals: bool) -> Option<Detail> {
        Some(match request {
            Request::Fullinit { pmijobid, pmirank, threaded, authtype, .. } => {
                self.pmi2(p).asked_in = true;
                let bare = pmijobid.is_none() || pmirank.is_none() || threaded.is_none();
                // A server may believe it, or turn away who says it.
                let misled = pmirank.is_some_and(|rank| rank != u64::from(p.rank));
                // Client and server agree on a type of authentication; no known server has one.
                if misled || authtype.is_some() {
                    self.irregular_sent(p);
                }
                Detail::Fullinit { bare, misled }
            }
            Request::Abort { isworld, .. } => {
                self.group(p.group).may_abort = true;
                // The draft does not say what isworld=FALSE ends.
                if *isworld != Some(false) {
                    self.abort_asked(p, None);
                }
                return None;
            }
            Request::Finalize => {
                self.goes_on_in_fence(p);
                self.rank(p).finalized = true;
                Detail::Plain
            }
            Request::KvsPut { key, value } => self.pmi2_put(p, key, value),
            Request::KvsGet { jobid, key, srcid } => {
                let ours = self.group(p.group).pmi2.jobid.clone();
                // Libraries write one that they were not given as an empty one.
                let none = jobid.as_deref().is_none_or(<[u8]>::is_empty);
                let own = none || jobid.as_deref() == ours.as_deref();
                let rule = match jobid {
                    None => None,
                    Some(_) if none => Some(ids::PMI2_COMMON_GET_NO_JOBID),
                    Some(_) => Some(ids::PMI2_DRAFT_GET_JOBID),
                };
                match own {
                    true => Detail::Get { key: key.to_vec(), fences: self.rank(p).left, rule, srcid: *srcid },
                    // No known server shows the values of another job.
                    false => Detail::Plain,
                }
            }
            Request::KvsFence => {
                self.goes_on_in_fence(p);
                let rank = self.rank(p);
                rank.entered += 1;
                Detail::Fence(rank.entered)
            }
            Request::InfoPutnodeattr { key, value } => {
                self.pmi2_lengths(p, key, value);
                let node = (self.node_of(p), key.to_vec());
                let values = self.group(p.group).pmi2.node.entry(node).or_default();
                // The draft does not say whether an attribute can be put again.
                let lawful = values.is_empty() && is_within_limits(key, value);
                values.insert(value.to_vec());
                self.irregular |= !lawful;
                Detail::PutNode { key: key.to_vec(), lawful }
            }
            Request::InfoGetnodeattr { key, wait } => {
                let node = (self.node_of(p), key.to_vec());
                let there = self.group(p.group).pmi2.node_there.contains(&node);
                // The draft has small letters, which no known server reads.
                let rule =
                    if in_capitals { ids::PMI2_COMMON_NODEATTR_WAIT } else { ids::PMI2_DRAFT_BOOLEANS };
                Detail::GetNode { key: node.1, wait: wait.then_some(rule), there }
            }
            Request::Spawn { preput, programs } => self.pmi2_spawns(p, preput, programs),
            Request::JobConnect { .. }
            | Request::JobDisconnect { .. }
            | Request::DraftOnly(_)
            | Request::JobGetid
            | Request::InfoGetjobattr { .. }
            | Request::NamePublish { .. }
            | Request::NameLookup { .. }
            | Request::NameUnpublish { .. }
            | Request::Ring { .. } => Detail::Plain,
        })
    }

    /// Notes what a spawn asks for.
    fn pmi2_spawns(&mut self, p: Proc, preput: &[(Vec<u8>, Vec<u8>)], programs: &[Program]) -> Detail {
        let size = programs.iter().fold(0u64, |n, p| n.saturating_add(p.maxprocs));
        self.processes_requested = self.processes_requested.saturating_add(size);
        if preput.iter().any(|(key, _)| !is_key(key)) {
            self.irregular_sent(p);
        }
        self.irregular |= !(1..=MOST_PROCESSES).contains(&size)
            || preput.iter().any(|(key, value)| !is_within_limits(key, value));
        self.group_asked(p, size, preput);
        Detail::Plain
    }

    fn bad_pmi2_request(&mut self, p: Proc, error: &RequestError, body: &[u8]) {
        let requirement = match error {
            RequestError::Body(_) | RequestError::NoCommand => ids::PMI2_COMMON_TUPLES,
            RequestError::UnknownCommand => ids::PMI2_DRAFT_COMMAND,
            RequestError::MissingKey(_) | RequestError::BadValue { .. } | RequestError::RepeatedKey(_) => {
                ids::PMI2_COMMON_REQUEST_COMPLETE
            }
        };
        let expected = format!("a request of PMI-2 ({error})");
        self.client_error(p, requirement, expected, shown(body));
        // RFC 13 has such a server abort; the draft says nothing. Any answer, or none, is lawful.
        self.lose_correlation(p);
        // Who ends that job may end those that belong to it, of a process that was spawned as well.
        self.groups.values_mut().for_each(|group| group.may_abort = true);
    }

    /// Checks what holds for every request: fullinit comes first, a process waits for its answer unless a `thrid` tells the two
    /// apart, and nothing follows finalize.
    fn pmi2_order(&mut self, p: Proc, command: Command, thrid: Option<&[u8]>, body: &[u8]) {
        let finalized = self.rank(p).finalized;
        let rank = self.pmi2(p);
        let waits =
            rank.pending.iter().any(|pending| pending.thrid.is_none() || pending.thrid.as_deref() == thrid);
        let (asked_in, joined) = (rank.asked_in, rank.joined);
        if finalized && command != Command::Abort {
            self.client_error(p, ids::PMI2_COMMON_FINALIZE_LAST, "no request after finalize", shown(body));
        } else if command == Command::Fullinit && asked_in {
            self.client_error(p, ids::PMI2_COMMON_FULLINIT_FIRST, "fullinit once", shown(body));
        } else if command != Command::Fullinit && command != Command::Abort && !joined {
            self.client_error(p, ids::PMI2_COMMON_FULLINIT_FIRST, "fullinit first", shown(body));
        } else if waits {
            if !self.rank(p).got_unasked {
                let expected =
                    "no request before the last one is answered, unless both have a thrid of their own";
                self.client_error(p, ids::PMI2_DRAFT_THRID_TELLS_APART, expected, shown(body));
            }
            self.lose_correlation(p);
        }
    }

    /// Notes that a process goes on that may be in a fence. The draft has one thread that fences, and finalize comes last: what a server
    /// makes of a second fence, or of a process that leaves in the middle of one, nobody says.
    fn goes_on_in_fence(&mut self, p: Proc) {
        if self.pmi2(p).pending.iter().any(|pending| matches!(pending.what, Detail::Fence(_))) {
            self.irregular_sent(p);
            self.group(p.group).state_unknown = true;
        }
    }

    /// Holds a pair to the limits of the draft.
    fn pmi2_lengths(&mut self, p: Proc, key: &[u8], value: &[u8]) {
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            self.irregular_sent(p);
            let seen = format!("a key of {} and a value of {} bytes", key.len(), value.len());
            let expected = format!("a key of {KEY_MAX} and a value of {VALUE_MAX} bytes at most");
            self.client_misuse(p, ids::PMI2_DRAFT_LENGTHS, expected, seen);
        }
    }

    fn pmi2_put(&mut self, p: Proc, key: &[u8], value: &[u8]) -> Detail {
        self.pmi2_lengths(p, key, value);
        let fences = self.rank(p).entered;
        let group = &mut self.group(p.group).pmi2;
        // Somebody was told that this key is not there, although he had left a fence that comes behind this put.
        let early = group
            .misses
            .get(key)
            .and_then(|m| m.iter().find(|(rank, left)| **rank != p.rank && **left > fences));
        let early = early.map(|(rank, _)| *rank);
        let kvs = &mut self.group(p.group).kvs;
        let lawful = !kvs.contains(key) && is_within_limits(key, value);
        kvs.sent(key, value, p.rank, fences);
        self.irregular |= !lawful;
        if let Some(rank) = early
            && lawful
            && !self.state_unknown(p)
        {
            let expected = format!(
                "the value of {}, which was put before the fence that rank {rank} had left",
                show(key)
            );
            self.server_error(p, ids::PMI2_COMMON_FENCE_VISIBLE, expected, "it was told that there is none");
        }
        Detail::Put { key: key.to_vec(), value: value.to_vec(), lawful }
    }

    /// The node of a process of the first group; others are taken for one node each, since nobody tells.
    fn node_of(&mut self, p: Proc) -> u32 {
        let group = self.group(p.group);
        match p.group {
            0 => place(group.size, group.nodes).get(p.rank as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// A frame of the server.
    pub(super) fn pmi2_response(
        &mut self,
        p: Proc,
        response: &Result<Response<'_>, ResponseError>,
        message: &Decoded<'_>,
    ) {
        let body = message.text;
        let response = match response {
            Ok(response) => response,
            Err(ResponseError::UnknownCommand) if self.is_expected_part(p, message) => return,
            Err(error) => return self.bad_pmi2_response(p, *error, body),
        };
        let thrid = response.get("thrid");
        let unknown = self.state_unknown(p);
        let pending = &mut self.pmi2(p).pending;
        let fits = |pending: &Pending| pending.command == response.command;
        let of_thread = |pending: &Pending| fits(pending) && pending.thrid.as_deref() == thrid.as_deref();
        let place = pending.iter().position(of_thread).or_else(|| pending.iter().position(fits));
        // Some servers never tell the thread.
        let told_apart = thrid.is_some() && place.is_some_and(|at| of_thread(&pending[at]));
        if !told_apart && pending.iter().filter(|p| fits(p)).count() > 1 {
            // Which of them it answers, nobody can tell.
            pending.iter_mut().filter(|p| fits(p)).for_each(|p| p.what = Detail::Unclear);
        }
        let Some(place) = place else {
            let asked = pending.first().map(|pending| pending.command);
            self.rank(p).got_unasked |= asked.is_none();
            let (requirement, expected) = match asked {
                None => (ids::PMI2_COMMON_ONE_RESPONSE, "no message, since nothing was asked".to_owned()),
                Some(asked) => (ids::PMI2_COMMON_RESPONSE_NAME, format!("the answer to {}", asked.name())),
            };
            // What is no request may be answered somehow.
            if !unknown {
                self.server_error(p, requirement, expected, shown(body));
                self.drop_oldest(p);
            }
            return;
        };
        let pending = self.pmi2(p).pending.remove(place);
        if pending.thrid.is_some() && thrid.as_deref() != pending.thrid.as_deref() && !unknown {
            let expected =
                format!("thrid={}, as in the request", show(pending.thrid.as_deref().unwrap_or_default()));
            self.server_error(p, ids::PMI2_DRAFT_THRID_ECHOED, expected, shown(body));
        }
        self.pmi2_answered(p, pending, response, message);
    }

    /// Takes the oldest request as answered, by whatever that was.
    fn drop_oldest(&mut self, p: Proc) -> Option<Command> {
        let pending = &mut self.pmi2(p).pending;
        (!pending.is_empty()).then(|| pending.remove(0).command)
    }

    fn bad_pmi2_response(&mut self, p: Proc, error: ResponseError, body: &[u8]) {
        if self.state_unknown(p) {
            return;
        }
        let asked = self.drop_oldest(p);
        // Whoever can read it may take it for a success.
        self.pmi2(p).joined |= asked == Some(Command::Fullinit);
        let requirement = match error {
            ResponseError::Body(BodyError::Unterminated) => ids::PMI2_COMMON_TERMINATED,
            ResponseError::Body(_) | ResponseError::NoCommand => ids::PMI2_COMMON_TUPLES,
            _ if asked.is_none() => ids::PMI2_COMMON_ONE_RESPONSE,
            ResponseError::UnknownCommand => ids::PMI2_COMMON_RESPONSE_NAME,
            ResponseError::NoCode | ResponseError::BadCode => ids::PMI2_COMMON_RC,
            ResponseError::RepeatedKey(_) => ids::PMI2_COMMON_TUPLES,
        };
        self.server_error(p, requirement, format!("a response of PMI-2 ({error})"), shown(body));
    }

    fn pmi2_answered(&mut self, p: Proc, pending: Pending, response: &Response<'_>, message: &Decoded<'_>) {
        let body = message.text;
        let (ok, unknown, excused) = (response.is_success(), self.state_unknown(p), self.may_abort(p));
        self.pmi2(p).refused = !ok;
        match pending.what {
            Detail::Put { key, value, lawful } => {
                self.put_answered(p, &key, &value, lawful, message);
            }
            Detail::Get { key, fences, srcid, .. } => {
                self.get_answered(p, &key, fences, srcid, message);
            }
            Detail::Unclear => {}
            Detail::Fence(number) => self.barrier_left(p, number, message),
            Detail::PutNode { key, lawful } => {
                let node = self.node_of(p);
                if ok {
                    self.group(p.group).pmi2.node_there.insert((node, key));
                } else if lawful && !excused {
                    self.server_error(p, ids::PMI2_COMMON_NODEATTR, "the attribute is stored", shown(body));
                }
            }
            Detail::GetNode { key, wait, there } if p.group == 0 && !unknown => {
                self.node_attribute(p, &key, wait, there, response, body);
            }
            Detail::GetNode { .. } => {}
            Detail::Name(asked) => self.name_answered(p, asked, message),
            Detail::Fullinit { bare, misled } => {
                let optional = bare.then_some(ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS);
                let id = pending.needs.or(optional).unwrap_or(ids::PMI2_COMMON_FULLINIT);
                self.pmi2_joined(p, id, misled, response, body);
            }
            Detail::Plain => self.pmi2_plain(p, pending.command, response, body),
        }
    }

    /// Whether a message is one that the draft has before the answer to a pending request: a challenge before that to fullinit, and
    /// the pairs before that to kvs-getall.
    fn is_expected_part(&mut self, p: Proc, message: &Decoded<'_>) -> bool {
        let Some((name, _)) = PARTS.into_iter().find(|(name, _)| message.command() == Some(name.as_bytes()))
        else {
            return false;
        };
        let answers = if name.starts_with("auth") { Command::Fullinit } else { Command::KvsGetall };
        self.pmi2(p).pending.iter().any(|pending| pending.command == answers)
    }

    fn pmi2_plain(&mut self, p: Proc, command: Command, response: &Response<'_>, body: &[u8]) {
        let (ok, excused) = (response.is_success(), self.may_abort(p));
        match command {
            Command::Finalize if !ok && !excused => {
                self.rank(p).finalize_refused = true;
                self.server_error(p, ids::PMI2_COMMON_FINALIZE, "success", shown(body));
            }
            Command::JobGetid => match response.get("jobid") {
                Some(jobid) if ok => {
                    let first = self.group(p.group).pmi2.jobid.get_or_insert_with(|| jobid.to_vec()).clone();
                    if *first != *jobid {
                        let expected = format!("jobid={} for every process of the job", first.escape_ascii());
                        self.server_error(p, ids::PMI2_COMMON_JOBID, expected, shown(body));
                    }
                }
                _ if excused => {}
                _ => self.server_error(p, ids::PMI2_COMMON_JOBID, "success with a jobid", shown(body)),
            },
            _ => {}
        }
    }

    /// Reads the response to fullinit. `cites` is what a refusal breaks.
    fn pmi2_joined(
        &mut self,
        p: Proc,
        cites: &'static str,
        misled: bool,
        response: &Response<'_>,
        body: &[u8],
    ) {
        if !response.is_success() {
            if !self.may_abort(p) {
                self.server_error(p, cites, "success", shown(body));
            }
            return;
        }
        self.pmi2(p).joined = true;
        let number = |key: &str| response.get(key).and_then(|v| pmi_wire::grammar::parse_int(&v));
        let size = self.group(p.group).size;
        for (key, is, requirement) in [
            ("rank", i64::from(p.rank), ids::PMI2_COMMON_FULLINIT_RANK),
            ("size", i64::from(size), ids::PMI2_COMMON_FULLINIT_SIZE),
        ] {
            if misled && key == "rank" {
                continue;
            }
            // Nobody knows how large a group is that was asked for in other words.
            if (key == "rank" || size > 0) && number(key) != Some(is) {
                self.server_error(p, requirement, format!("{key}={is}"), shown(body));
            }
        }
        if number("appnum").is_none() {
            self.server_error(p, ids::PMI2_COMMON_FULLINIT_APPNUM, "appnum, an integer", shown(body));
        }
        if number("pmi-version") != Some(2) {
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_VERSION, "pmi-version=2", shown(body));
        } else if number("pmi-subversion").is_none() {
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_VERSION, "pmi-subversion, an integer", shown(body));
        }
        if p.group != 0 && response.get("spawner-jobid").is_none() {
            let expected = "spawner-jobid, since the process was spawned";
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_SPAWNER, expected, shown(body));
        } else if p.group == 0 && response.get("spawner-jobid").is_some() {
            let expected = "no spawner-jobid, since the process was not spawned";
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_SPAWNER, expected, shown(body));
        }
    }

    /// `there`: it was there already when it was asked for.
    fn node_attribute(
        &mut self,
        p: Proc,
        key: &[u8],
        wait: Option<&'static str>,
        there: bool,
        response: &Response<'_>,
        body: &[u8],
    ) {
        let node = (self.node_of(p), key.to_vec());
        let Some(found) = response.is_found() else {
            let expected = "found=TRUE or found=FALSE";
            return self.server_error(p, ids::PMI2_COMMON_GET_FOUND, expected, shown(body));
        };
        let group = &self.group(p.group).pmi2;
        let values = group.node.get(&node).cloned().unwrap_or_default();
        let elsewhere = group.node.keys().any(|(other, k)| *other != node.0 && k == key);
        let excused = self.may_abort(p);
        if key.starts_with(RESERVED) {
            return;
        }
        match response.get("value").filter(|_| found) {
            Some(_) if values.is_empty() => {
                let expected = "no value, since nobody on this node has put it";
                let id = if elsewhere { ids::PMI2_COMMON_NODEATTR_OWN_NODE } else { wait.unwrap_or(NODE) };
                self.server_error(p, id, expected, shown(body));
            }
            Some(value) if !values.contains(&*value) => {
                let expected = "the value that a process of this node has put";
                let requirement = values_rule(key, &values, NODE);
                self.server_error(p, requirement, expected, shown(body));
            }
            None if found => {
                self.server_error(p, ids::PMI2_COMMON_NODEATTR, "a value, since it is found", shown(body));
            }
            None if wait.is_some() && !excused => {
                let expected = "no answer before there is a value";
                self.server_error(p, wait.unwrap_or(NODE), expected, shown(body));
            }
            None if there && !excused => {
                let expected = "the value that a process of this node has put";
                let requirement = values_rule(key, &values, NODE);
                self.server_error(p, requirement, expected, shown(body));
            }
            _ => {}
        }
    }

    /// Whether an answer that has not come may lawfully be late.
    fn may_be_late(&mut self, p: Proc, pending: usize) -> bool {
        let node = self.node_of(p);
        let group = self.group(p.group);
        let Some(pending) = group.ranks.get(p.rank).and_then(|r| r.pmi2.pending.get(pending)) else {
            return true;
        };
        let entered = |number: u64| group.all(|rank| rank.entered >= number);
        match &pending.what {
            Detail::Fence(number) => !entered(*number),
            Detail::Get { fences, .. } => !entered(*fences),
            Detail::Unclear => true,
            Detail::GetNode { key, wait, .. } => {
                wait.is_some() && !group.pmi2.node_there.contains(&(node, key.clone()))
            }
            _ => pending.command == Command::Ring && !entered(u64::MAX),
        }
    }

    /// Reports that an answer which was waited for did not come, or that the connection ended before it.
    pub(super) fn pmi2_unanswered(&mut self, p: Proc, how: SeenKind) {
        // A server may wait for the end of what it has begun to read.
        let mid_request = !self.connections.partial(p, Direction::ToServer).is_empty();
        if self.may_abort(p) || (mid_request && how == SeenKind::Silence) {
            return;
        }
        let count = self.pmi2(p).pending.len();
        let Some(late) = (0..count).find(|i| !self.may_be_late(p, *i)) else { return };
        let finalized = self.group(p.group).ranks.iter().any(|(rank, r)| rank != p.rank && r.finalized);
        let split = self.rank(p).split_write || self.rank(p).joined_write;
        let refused = self.pmi2(p).refused;
        let pending = &self.pmi2(p).pending[late];
        let needs = match pending.what {
            // An empty jobid has a rule of its own.
            Detail::Get { rule: Some(_), .. } => pending.needs.filter(|needs| *needs != EMPTY),
            _ => pending.needs,
        };
        let requirement = needs.unwrap_or(match (&pending.what, pending.command) {
            _ if split => ids::PMI2_COMMON_ANY_FRAGMENTATION,
            _ if refused => ids::PMI2_COMMON_USABLE_AFTER_ERROR,
            _ if count > 1 && pending.thrid.is_some() => ids::PMI2_DRAFT_THRID_TELLS_APART,
            (Detail::Fence(1), _) => ids::PMI2_COMMON_FENCE,
            (Detail::Fence(_), _) => ids::PMI2_COMMON_FENCE_AGAIN,
            (Detail::GetNode { wait: Some(rule), .. }, _) => rule,
            (Detail::Fullinit { bare: true, .. }, _) => ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS,
            (Detail::Get { rule: Some(rule), .. }, _) => rule,
            (_, Command::Finalize) => ids::PMI2_COMMON_FINALIZE,
            _ if finalized => ids::PMI2_COMMON_FINALIZE_ALONE,
            _ => ids::PMI2_COMMON_ANSWERED,
        });
        let expected = format!("an answer to {}", pending.command.name());
        self.report_missing(p, requirement, None, expected, how);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::event::{Bytes, Event, SilenceProof, What};

    /// What a server breaks: rank, whether the server says it, and the body that is said, or `close` or `silence`.
    fn found(ranks: u32, said: &[(u32, bool, &str)]) -> Vec<String> {
        let mut events = vec![What::Launched { command: Vec::new(), ranks, nodes: 1 }];
        let bytes = |text: Vec<u8>| Bytes(text);
        for rank in 0..ranks {
            let proc = Proc { group: 0, rank };
            let offer = b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec();
            let taken = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_vec();
            events.push(What::ToServer { proc, bytes: bytes(offer) });
            events.push(What::FromServer { proc, bytes: bytes(taken) });
            let ask = format!("cmd=fullinit;pmijobid=j;pmirank={rank};threaded=FALSE;");
            let tell = format!(
                "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank={rank};size={ranks};appnum=0;rc=0;"
            );
            events.push(What::ToServer { proc, bytes: bytes(framed(&ask)) });
            events.push(What::FromServer { proc, bytes: bytes(framed(&tell)) });
        }
        events.extend(said.iter().map(|(rank, server, text)| {
            let proc = Proc { group: 0, rank: *rank };
            match (*text, server) {
                ("close", _) => What::ClosedByServer { proc },
                ("silence", _) => What::NoAnswer { proc, proof: SilenceProof::Idle },
                (text, true) => What::FromServer { proc, bytes: bytes(framed(text)) },
                (text, false) => What::ToServer { proc, bytes: bytes(framed(text)) },
            }
        }));
        let mut monitor = Monitor::new();
        for (what, seq) in events.into_iter().zip(0..) {
            monitor.observe(&Event::new(seq, what));
        }
        let findings = monitor.take_findings().into_iter();
        findings.filter(|f| f.party == Side::Server).map(|f| f.requirement).collect()
    }

    fn framed(body: &str) -> Vec<u8> {
        format!("{:>6}{body}", body.len()).into_bytes()
    }

    const PUT: [(u32, bool, &str); 2] =
        [(0, false, "cmd=kvs-put;key=k;value=v;"), (0, true, "cmd=kvs-put-response;rc=0;")];
    const MISS: &str = "cmd=kvs-get-response;rc=1;";

    #[test]
    fn a_fence_makes_visible_what_was_put_before_it() {
        let fence = |rank| [(rank, false, "cmd=kvs-fence;"), (rank, true, "cmd=kvs-fence-response;rc=0;")];
        let get = (1, false, "cmd=kvs-get;key=k;");
        let both = [fence(0)[0], fence(1)[0], fence(0)[1], fence(1)[1]];
        assert_eq!(
            found(2, &[&PUT[..], &both, &[get, (1, true, MISS)]].concat()),
            ["pmi2.common.fence.visible"]
        );
        // Without a fence behind the put nothing is due.
        assert!(found(2, &[&PUT[..], &[get, (1, true, MISS)]].concat()).is_empty());
        // Hydra lets rank 1 go at once and holds back its get.
        let early = [&fence(1)[..], &[get], &PUT, &fence(0)].concat();
        let value = (1, true, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
        assert_eq!(found(2, &[&early[..], &[value]].concat()), ["pmi2.draft.fence.blocks"]);
        assert_eq!(
            found(2, &[&fence(1)[..], &[get, (1, true, MISS)], &PUT].concat()),
            ["pmi2.draft.fence.blocks", "pmi2.common.fence.visible"]
        );
    }

    #[rstest]
    // Who waits lawfully is not held against the server.
    #[case(&[(0, false, "cmd=kvs-fence;"), (0, true, "silence")], &[])]
    #[case(&[(0, false, "cmd=info-getnodeattr;key=k;wait=TRUE;"), (0, true, "silence")], &[])]
    #[case(&[(0, false, "cmd=info-getnodeattr;key=k;"), (0, true, "silence")], &["pmi2.common.answered"])]
    #[case(&[(0, false, "cmd=job-getid;"), (0, true, "close")], &["pmi2.common.answered"])]
    #[case(&[(0, false, "cmd=finalize;"), (0, true, "silence")], &["pmi2.common.finalize"])]
    // Behind an abort the server may do what it likes.
    #[case(&[(1, false, "cmd=abort;isworld=TRUE;"), (0, false, "cmd=job-getid;"), (0, true, "close")], &[])]
    #[case(&[(0, false, "cmd=job-getid;"), (0, true, "cmd=job-getid-response;jobid=j;")], &["pmi2.common.rc"])]
    #[case(&[(0, false, "cmd=job-getid;"), (0, true, "cmd=kvs-fence-response;rc=0;")], &["pmi2.common.response-name"])]
    #[case(&[(0, true, "cmd=job-getid-response;jobid=j;rc=0;")], &["pmi2.common.one-response"])]
    #[case(&[(0, false, "cmd=job-getid;thrid=7;"), (0, true, "cmd=job-getid-response;jobid=j;rc=0;")], &["pmi2.draft.thrid-echoed"])]
    #[case(&[(0, false, "cmd=nonsense;"), (0, true, "cmd=nonsense-response;rc=9;")], &[])]
    #[case(&[(0, false, "cmd=kvs-get;key=k;"), (0, true, "cmd=kvs-get-response;rc=0;found=TRUE;value=x;")], &["pmi2.common.get.miss"])]
    #[case(&[(0, false, "cmd=kvs-get;key=k;"), (0, true, "cmd=kvs-get-response;rc=0;found=1;")], &["pmi2.common.get.found"])]
    #[case(&[(0, false, "cmd=name-lookup;name=n;"), (0, true, "cmd=name-lookup-response;rc=0;port=p;")], &["pmi2.common.names.miss"])]
    fn each_answer_is_held_to_its_request(#[case] said: &[(u32, bool, &str)], #[case] broken: &[&str]) {
        assert_eq!(found(2, said), broken);
    }

    const GETALL: (u32, bool, &str) = (0, false, "cmd=kvs-getall;jobid=j;");
    const REFUSED: (u32, bool, &str) = (0, true, "cmd=kvs-getall-response;rc=1;");

    #[rstest]
    #[case(&[GETALL, REFUSED], &[])]
    #[case(&[GETALL, (0, true, "silence")], &[])]
    #[case(&[GETALL, (0, true, "cmd=kvs-getall-paircount-response;npair=0;"), REFUSED], &[])]
    #[case(&[GETALL, REFUSED, REFUSED], &["pmi2.common.one-response"])]
    #[case(&[GETALL, (0, true, "cmd=kvs-getall-response;")], &["pmi2.common.rc"])]
    #[case(&[GETALL, (0, true, "cmd=kvs-fence-response;rc=0;")], &["pmi2.common.response-name"])]
    #[case(&[(0, true, "cmd=auth-response;authinfo=1;")], &["pmi2.common.one-response"])]
    // The parts of a longer exchange are not followed.
    #[case(&[(0, false, "cmd=kvs-put;key=k;concat=1;"), (0, false, "cmd=concat;concatid=1;value=v;"), PUT[1]], &[])]
    #[case(&[(0, false, "cmd=spawn;ncmds=1;preputcount=0;"), (0, false, "cmd=spawn-cmd;maxprocs=1;"), (0, true, "close")], &[])]
    fn requests_of_the_draft_alone_have_one_response_at_most(
        #[case] said: &[(u32, bool, &str)],
        #[case] broken: &[&str],
    ) {
        assert_eq!(found(1, said), broken);
    }

    #[test]
    fn what_is_asked_at_the_same_time_may_be_taken_in_any_order() {
        let long = format!("cmd=info-putnodeattr;key={};value=v;", "k".repeat(65));
        let publish =
            [(0, false, "cmd=name-publish;name=n;port=p;"), (0, true, "cmd=name-publish-response;rc=0;")];
        let lookup = (1, false, "cmd=name-lookup;name=n;");
        let hit = (1, true, "cmd=name-lookup-response;rc=0;port=p;");
        let miss = (1, true, "cmd=name-lookup-response;rc=1;");
        assert!(found(2, &[publish[0], lookup, hit, publish[1]]).is_empty());
        assert_eq!(found(2, &[publish[0], publish[1], lookup, miss]), ["pmi2.common.names.lookup"]);
        let put = [
            (0, false, "cmd=info-putnodeattr;key=k;value=v;"),
            (0, true, "cmd=info-putnodeattr-response;rc=0;"),
        ];
        let get = (1, false, "cmd=info-getnodeattr;key=k;");
        let none = (1, true, "cmd=info-getnodeattr-response;found=FALSE;rc=0;");
        assert!(found(2, &[get, put[0], put[1], none]).is_empty());
        assert_eq!(found(2, &[put[0], put[1], get, none]), ["pmi2.common.nodeattr"]);
        // A semicolon that is not undone is told as such.
        let put = [(0, false, "cmd=info-putnodeattr;key=k;value=a;;b;"), put[1]];
        let cut = (1, true, "cmd=info-getnodeattr-response;found=TRUE;value=a;rc=0;");
        assert_eq!(found(2, &[put[0], put[1], get, cut]), ["pmi2.draft.semicolons"]);
        let put = [(0, false, "cmd=info-putnodeattr;key=k;value=v;"), put[1]];
        let refused = (0, true, "cmd=info-putnodeattr-response;rc=1;");
        assert!(found(1, &[(0, false, &long), refused]).is_empty());
        assert_eq!(found(1, &[put[0], refused]), ["pmi2.common.nodeattr"]);
        // One of two that are under way has no thrid, so the server may end the job.
        let both = [(0, false, "cmd=kvs-fence;"), (0, false, "cmd=job-getid;thrid=1;"), (0, true, "close")];
        assert!(found(2, &both).is_empty());
        // Which of two is answered cannot be told without a thrid.
        let two = [
            (0, false, "cmd=info-getnodeattr;thrid=1;key=w;wait=TRUE;"),
            (0, false, "cmd=info-getnodeattr;thrid=2;key=k;"),
            (0, true, "cmd=info-getnodeattr-response;found=FALSE;rc=0;"),
            (0, true, "silence"),
        ];
        assert_eq!(found(1, &two), ["pmi2.draft.thrid-echoed"]);
        let mixed = [two[0], (0, false, "cmd=info-getnodeattr;key=k;"), two[2], two[3]];
        assert!(found(1, &mixed).is_empty());
        // Who has left does not enter a fence.
        let left = [(1, false, "cmd=finalize;"), (1, true, "cmd=finalize-response;rc=0;")];
        let fence = [(0, false, "cmd=kvs-fence;"), (0, true, "cmd=kvs-fence-response;rc=1;")];
        assert!(found(2, &[left, fence].concat()).is_empty());
        assert_eq!(found(1, &fence), ["pmi2.common.fence"]);
        // One of its threads is in the fence when another enters it.
        let twice = [
            (0, false, "cmd=kvs-fence;thrid=1;"),
            (0, false, "cmd=kvs-fence;thrid=2;"),
            (0, true, "cmd=kvs-fence-response;thrid=2;rc=1;"),
        ];
        assert!(found(2, &twice).is_empty());
        // Or it leaves the job meanwhile.
        let leaves = [
            (1, false, "cmd=kvs-fence;"),
            (0, false, "cmd=kvs-fence;thrid=5;"),
            (0, false, "cmd=finalize;"),
            (0, true, "cmd=finalize-response;rc=0;"),
            (1, true, "cmd=kvs-fence-response;rc=1;"),
        ];
        assert!(found(2, &leaves).is_empty());
        // No name of a tuple is so long.
        let long = format!("cmd=job-getid;{}=1;", "k".repeat(65));
        assert!(found(1, &[(0, false, &long), (0, true, "close")]).is_empty());
        let longest = format!("cmd=job-getid;{}=1;", "k".repeat(64));
        assert_eq!(found(1, &[(0, false, &longest), (0, true, "close")]), ["pmi2.common.answered"]);
        // It has told another rank, and may be believed.
        let again = [
            (0, false, "cmd=fullinit;pmijobid=j;pmirank=9;threaded=FALSE;"),
            (0, true, "cmd=fullinit-response;rank=9;size=1;appnum=0;rc=0;"),
        ];
        assert_eq!(found(1, &again), ["pmi2.draft.fullinit.version"]);
        // A type of authentication that the draft does not describe.
        let unknown = "cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;authtype=1;";
        assert!(found(1, &[(0, false, unknown), (0, true, "cmd=fullinit-response;rc=1;")]).is_empty());
        let key = [
            (0, false, "cmd=kvs-put;key=k;value=v;"),
            (0, true, "cmd=kvs-put-response;rc=0;"),
            (0, false, "cmd=kvs-get;key=k;;;"),
            (0, true, "cmd=kvs-get-response;found=TRUE;value=v;rc=0;"),
        ];
        assert!(found(1, &key).is_empty());
        // Nobody has it.
        assert!(found(1, &[(0, false, "cmd=ring;count=1;left=a;right=b;"), (0, true, "close")]).is_empty());
        // Nobody need read so much.
        let long = format!("cmd=kvs-put;key=k;value={};", "v".repeat(LONG_REQUEST));
        assert!(
            found(
                2,
                &[(0, false, &long), (0, true, "close"), (1, false, "cmd=job-getid;"), (1, true, "close")]
            )
            .is_empty()
        );
    }

    #[test]
    fn threads_have_answers_of_their_own_in_any_order() {
        let said = [
            (0, false, "cmd=info-getnodeattr;thrid=1;key=k;wait=TRUE;"),
            (0, false, "cmd=info-putnodeattr;thrid=2;key=k;value=v;"),
            (0, true, "cmd=info-getnodeattr-response;thrid=1;found=TRUE;value=v;rc=0;"),
            (0, true, "cmd=info-putnodeattr-response;thrid=2;rc=0;"),
        ];
        assert!(found(1, &said).is_empty());
    }
}
