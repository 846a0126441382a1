//! Matches each response with the request that it answers, and reports requests that are never answered.

use pmi_scenario::ids;
use pmi_wire::{
    Decoded, Direction, Framing, FramingError, MAPPING_KEY, Operation, Proc, SpawnProgram, Version,
};

use super::grammar::EMPTY;
use super::lifecycle::init_rule;
use super::response::is_regular;
use super::spawn::has_one_based_arguments;
use super::state::{
    GetRequest, MAX_LENGTH_REQUIREMENT, MIN_LONG_REQUEST, Monitor, MonitoredRank, MonitoredRequest,
    RequestDetail, SPLIT_WRITE_REQUIREMENT, request_rule,
};
use crate::Severity;
use crate::connections::CompletedMessage;
use crate::finding::PartyKind;
use crate::kvs::is_ambiguous;
use crate::observation::{
    IncompleteMessage, NO_PROOF_SUFFIX, ObservationKind, ObservationText, not_read, quote_bytes,
};

/// Returns the requirement that a server breaks if it does not answer this PMI-1 request. `indices` is true if the server may have ignored
/// a spawn request because of the numbering of its arguments.
fn unanswered_duty(pending: &MonitoredRequest, indices: bool) -> Option<&'static str> {
    let empty = |program: &SpawnProgram| {
        let mut pairs = program.preput.iter().chain(&program.info);
        program.args.iter().any(|(_, arg)| arg.is_empty())
            || pairs.any(|(key, value)| key.is_empty() || value.is_empty())
    };
    // A server may mistake an argument `endcmd` for the end of the spawn request.
    let ends = |program: &SpawnProgram| program.args.iter().any(|(_, arg)| arg == b"endcmd");
    Some(match &pending.detail {
        // RFC 13 contradicts itself on the form of these requests.
        RequestDetail::Put { value, .. } if value.is_empty() => ids::RFC13_VALUE_EMPTY,
        RequestDetail::Put { value, .. } if is_ambiguous(value) => ids::RFC13_VALUE_BLANK,
        RequestDetail::Spawn(request) if request.programs.iter().any(empty) => ids::RFC13_VALUE_EMPTY,
        RequestDetail::Spawn(request) if request.programs.iter().any(ends) => ids::RFC13_SPAWN_COMMAND,
        RequestDetail::Spawn(request) if request.programs.iter().any(|p| !p.args.is_empty()) => {
            if indices {
                ids::RFC13_SPAWN_ARG_INDICES
            } else {
                ids::RFC13_WIRE_LOCK_STEP
            }
        }
        RequestDetail::Init(offered) => init_rule(*offered),
        _ => duty(pending.op?),
    })
}

/// Returns the requirement that a server breaks if it ignores a request.
fn duty(op: Operation) -> &'static str {
    match op {
        Operation::Abort => ids::RFC13_ABORT_GROUP,
        Operation::Finalize => ids::RFC13_FINALIZE_ACK,
        Operation::Barrier => ids::RFC13_BARRIER_RELEASED,
        _ => request_rule(op),
    }
}

impl Monitor {
    /// Judges the messages that bytes from a server complete. These may include requests that the client sent right after an offer of
    /// PMI-2, because such requests can be read only after the offer is answered.
    pub(super) fn server_wrote(&mut self, p: Proc, messages: &[CompletedMessage<'_>]) {
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
        let message = match message {
            Ok(message) => message,
            Err(error) => return self.framing_error(p, PartyKind::Server, *error),
        };
        self.settle_framing(p, message);
        if self.inspects_responses {
            let pending = &self.rank(p).pending;
            let is_pending =
                |thrid: &[u8]| pending.iter().any(|pending| pending.thrid.as_deref() == Some(thrid));
            let regular = is_regular(message, is_pending);
            self.irregular_response |= !regular || message.text.len() > MIN_LONG_REQUEST;
        }
        if let Some(version) = message.version().filter(|_| message.is_success()) {
            self.versions.insert(version);
        }
        if !message.is_well_formed() {
            return self.bad_response(p, message);
        }
        if self.group_barrier_answered(p, message) {
            return;
        }
        match message.framing {
            Framing::Lines => self.answers_in_turn(p, message),
            Framing::Frames => self.answers_thread(p, message),
        }
        self.irregular_answered(p, message.is_success());
    }

    /// Matches a response with its request. RFC 13, Wire Protocol: a response answers the oldest request.
    fn answers_in_turn(&mut self, p: Proc, message: &Decoded<'_>) {
        let Some(op) = message.operation() else { return };
        self.move_to_front(p, op);
        let expected_op = self.rank(p).pending.front().map(|pending| pending.op);
        self.rank(p).received_unsolicited |= expected_op.is_none();
        if self.rank(p).lost_correlation {
            return self.uncorrelated_answer(p, op, message);
        }
        let seen = || ObservationText::message(message.text);
        match expected_op {
            None if op == Operation::Spawn && self.rank(p).spawns => {
                let expected = "one response to a spawn, regardless of its number of commands";
                self.server_error(p, ids::RFC13_SPAWN_ONE_RESPONSE, expected, seen());
            }
            None => {
                let (requirement, expected) = self.rule_without_request(p);
                self.server_error(p, requirement, expected, seen());
            }
            // The pending message is not a PMI-1 request, so only the scenario can judge its response.
            Some(None) => drop(self.rank(p).pending.pop_front()),
            Some(Some(expected_op)) if expected_op == op => {
                if let Some(pending) = self.rank(p).pending.pop_front() {
                    self.answered(p, pending, message);
                }
            }
            Some(Some(expected_op)) => {
                let expected = match expected_op.response_cmd() {
                    Some(cmd) => format!("cmd={cmd}, the answer to {}", expected_op.request_cmd()),
                    None => "a bare newline or the end of the connection, after abort".to_owned(),
                };
                let id = if expected_op == Operation::Abort {
                    ids::RFC13_ABNF_S_ABORT
                } else {
                    ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST
                };
                // An unexpected barrier_out does not count as the response to the pending request.
                self.server_error(p, id, expected, seen());
                if op != Operation::Barrier {
                    self.rank(p).pending.pop_front();
                }
            }
        }
    }

    /// Returns the requirement that a response breaks if no request is pending, and the expected behaviour. A partial request is not
    /// pending yet.
    pub(super) fn rule_without_request(&self, p: Proc) -> (&'static str, String) {
        let nothing_sent = self.connections.partial(p, Direction::ToServer).is_empty();
        let unrequested = "no message, since no request is pending";
        let (requirement, expected) = match (self.connections.framing(p), nothing_sent) {
            (Framing::Lines, true) => (ids::RFC13_WIRE_LOCK_STEP, unrequested),
            (Framing::Frames, true) => (ids::PMI2_COMMON_ONE_RESPONSE, unrequested),
            (Framing::Lines, false) => (ids::RFC13_WIRE_NEWLINE, "no answer before the newline"),
            (Framing::Frames, false) => {
                (ids::PMI2_COMMON_ANY_FRAGMENTATION, "no answer before the end of the frame")
            }
        };
        (requirement, expected.to_owned())
    }

    /// Assigns a response to the first pending request that the response fits.
    fn uncorrelated_answer(&mut self, p: Proc, op: Operation, message: &Decoded<'_>) {
        let rank = self.rank(p);
        let place = |op| rank.pending.iter().position(|pending| pending.op == op);
        let place = place(Some(op)).or_else(|| place(None));
        let pending = place.and_then(|i| rank.pending.remove(i));
        // When no request is pending, responses can be matched with requests again.
        rank.lost_correlation = !rank.pending.is_empty();
        if let Some(pending) = pending.filter(|pending| pending.op.is_some()) {
            self.answered(p, pending, message);
        }
    }

    /// Matches a response with its request. PMI-2 draft, thrid: a response answers the request with the same `thrid`.
    fn answers_thread(&mut self, p: Proc, message: &Decoded<'_>) {
        let seen = || ObservationText::message(message.text);
        let (row, thrid) = (message.exchange().map(|row| row.request), message.field("thrid"));
        let unknown = self.state_unknown(p);
        let pending = &mut self.rank(p).pending;
        let fits = |pending: &MonitoredRequest| pending.row.map(|row| row.request) == row;
        let of_thread =
            |pending: &MonitoredRequest| fits(pending) && pending.thrid.as_deref() == thrid.as_deref();
        let place = pending.iter().position(of_thread).or_else(|| pending.iter().position(fits));
        // Some servers never send the thread id. Their responses do not identify the request.
        let identified = thrid.is_some() && place.is_some_and(|at| of_thread(&pending[at]));
        if !identified && pending.iter().filter(|p| fits(p)).count() > 1 {
            // The response may answer any of the requests.
            pending.iter_mut().filter(|p| fits(p)).for_each(|p| p.detail = RequestDetail::Unclear);
        }
        let Some(pending) = place.and_then(|place| pending.remove(place)) else {
            let pending_row = pending.front().and_then(|pending| pending.row);
            self.rank(p).received_unsolicited |= pending_row.is_none();
            let (requirement, expected) = match pending_row {
                None => self.rule_without_request(p),
                Some(pending_row) => {
                    // The server probably did not find the beginning of a fragmented request.
                    let id = match self.rank(p).is_fragmented() {
                        true => ids::PMI2_COMMON_ANY_FRAGMENTATION,
                        false => ids::PMI2_COMMON_RESPONSE_NAME,
                    };
                    (id, format!("the answer to {}", pending_row.request))
                }
            };
            // If the state of the server is unknown, for example after an invalid request, any response is allowed.
            if !unknown {
                self.server_error(p, requirement, expected, seen());
                self.rank(p).pending.pop_front();
            }
            return;
        };
        if let Some(requested) =
            pending.thrid.as_ref().filter(|requested| thrid.as_deref() != Some(requested) && !unknown)
        {
            let expected = format!("thrid={}, as in the request", quote_bytes(requested));
            let is_portable = |b: &u8| matches!(b, b' '..=b'~') && *b != b';';
            // A missing thrid is harmless, and many servers send none. A different thrid misleads the client.
            let misled = thrid.is_some() && requested.len() <= 64 && requested.iter().all(is_portable);
            let id = if misled { ids::PMI2_COMMON_THRID } else { ids::PMI2_DRAFT_THRID_ECHOED };
            self.server_error(p, id, expected, seen());
        }
        self.rank(p).refused = !message.is_success();
        self.answered(p, pending, message);
    }

    /// Judges a response whose command matches the request.
    fn answered(&mut self, p: Proc, pending: MonitoredRequest, message: &Decoded<'_>) {
        match pending.detail {
            RequestDetail::Init(offered) => self.init_answered(p, offered, message),
            RequestDetail::Fullinit { lacks_field: bare, has_wrong_rank: misled } => {
                let optional = bare.then_some(ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS);
                let id = pending.needs.or(optional).unwrap_or(ids::PMI2_COMMON_FULLINIT);
                self.fullinit_answered(p, id, misled, message);
            }
            RequestDetail::Put { key, value, valid } => self.put_answered(p, &key, &value, valid, message),
            // The monitor does not know the values of other keyval spaces.
            RequestDetail::Get(GetRequest { of: Some(of), .. })
                if self.group(p.group).names[0].as_ref() != Some(&of) => {}
            // Only a get in PMI-1 names a keyval space. In PMI-2, the mapping is not a key but an attribute of the job.
            RequestDetail::Get(GetRequest { key, of: Some(_), .. }) if key == MAPPING_KEY => {
                self.mapping_answered(p, message)
            }
            RequestDetail::Get(get) => self.get_answered(p, &get, message),
            RequestDetail::PutNode { key, valid } => self.node_put_answered(p, key, valid, message),
            RequestDetail::GetNode { key, wait, existed } => {
                self.node_get_answered(p, &key, wait, existed, message)
            }
            RequestDetail::Mapping => self.mapping_answered(p, message),
            RequestDetail::Name(requested) => self.name_answered(p, requested, message),
            RequestDetail::Barrier(number) => {
                let round = number.unwrap_or(self.rank(p).barriers_left + 1);
                self.barrier_left(p, round, message);
            }
            RequestDetail::Spawn(request) => self.spawn_answered(p, &request, message),
            RequestDetail::Plain => self.plain_answered(p, pending.op, message),
            RequestDetail::Unclear => {}
        }
    }

    /// Reports a response that is still missing after the wait or at the end of the connection.
    pub(super) fn unanswered(&mut self, p: Proc, how: ObservationKind) {
        if self.may_abort(p) {
            return;
        }
        let unended = self.connections.incomplete_message(p, Direction::FromServer, how);
        let is_line = self.framing(p) == Framing::Lines;
        if self.group_barriers_unanswered(p, how) || is_line && self.rank(p).pending.is_empty() {
            return;
        }
        match unended {
            Some(IncompleteMessage { rule, expected, seen }) => self.server_error(p, rule, expected, seen),
            None if is_line => self.oldest_unanswered(p, how),
            None => self.thread_unanswered(p, how),
        }
    }

    /// Reports that the oldest PMI-1 request has no response.
    fn oldest_unanswered(&mut self, p: Proc, how: ObservationKind) {
        let Some(front) = self.find_rank(p).and_then(|rank| rank.pending.front()) else { return };
        let from_one =
            matches!(&front.detail, RequestDetail::Spawn(request) if has_one_based_arguments(request));
        // A scenario that does not test the numbering uses a numbering that the server accepts, so the numbering is not the reason for the
        // missing response.
        let id = ids::RFC13_SPAWN_ARG_INDICES;
        let is_tested = self.focus.as_ref().is_none_or(|focus| focus.iter().any(|tested| tested == id));
        let indices = is_tested && !self.accepts_argument_bases[usize::from(from_one)];
        // RFC 13, PMI_Spawn_multiple: clients number arguments from zero, so a server need not accept other numbers.
        if from_one && indices {
            return;
        }
        let (Some(op), Some(duty)) = (front.op, unanswered_duty(front, indices)) else { return };
        let offer = if let RequestDetail::Init(offered) = front.detail { Some(offered) } else { None };
        let closed = how == ObservationKind::ConnectionEnd;
        // A server may reject a client that supports none of its versions.
        if closed && offer.is_some_and(|offered| offered < Version::V1_1 || self.group_uses_other_protocol(p))
        {
            return;
        }
        if op == Operation::Barrier && !self.all_entered_barrier(p) {
            return;
        }
        let full = self.rank(p).follows_max_length_put
            || matches!(op, Operation::Put | Operation::Get | Operation::Barrier)
                && self.concerns_max_length(p);
        // If the request was sent in several writes, this is assumed to be the reason for the missing response. If the server closed the
        // connection, however, a pair of the maximum length may be the reason instead.
        let id = if !(closed && full) && self.any_last_request(p, Some(op), |rank| rank.split_write) {
            SPLIT_WRITE_REQUIREMENT
        } else if op == Operation::Barrier && self.group(p.group).puts_protocol_words {
            // This barrier is unusual: before it releases the processes, the manager must distribute keys that are also field names.
            ids::RFC13_ABNF_WORD
        } else if full {
            MAX_LENGTH_REQUIREMENT
        } else if closed && duty == self::duty(op) {
            // The server closed the connection, so it did not accept the bytes as a request.
            request_rule(op)
        } else if op == Operation::Barrier && self.rank(p).barriers_left > 0 {
            // The process has already left a barrier, so the server apparently does not support further barriers.
            ids::RFC13_BARRIER_GENERIC
        } else {
            duty
        };
        // RFC 13 requires a response, but the server may be waiting for the rest of another process's request, so the finding is only a
        // note.
        let at_most = (how == ObservationKind::SilenceDuringPartialRequest).then_some(Severity::Note);
        self.report_missing(p, id, at_most, format!("an answer to {}", op.request_cmd()), how);
    }

    /// Reports the first PMI-2 request that lacks a required response.
    fn thread_unanswered(&mut self, p: Proc, how: ObservationKind) {
        // A server may wait for the end of a request that it has begun to read.
        if how == ObservationKind::Silence && !self.connections.partial(p, Direction::ToServer).is_empty() {
            return;
        }
        let Some(rank) = self.find_rank(p) else { return };
        let Some(pending) = rank.pending.iter().find(|pending| !self.may_be_late(p, pending)) else { return };
        let others = self.groups.get(&p.group).into_iter().flat_map(|group| group.ranks.iter());
        let finalized = others.into_iter().any(|(other, r)| other != p.rank && r.finalized);
        let needs = match pending.detail {
            // A get with an empty jobid has a separate requirement, `rule`, so the requirement `EMPTY` does not apply.
            RequestDetail::Get(GetRequest { rule: Some(_), .. }) => {
                pending.needs.filter(|needs| *needs != EMPTY)
            }
            _ => pending.needs,
        };
        let requirement = needs.unwrap_or(match &pending.detail {
            _ if self.any_last_request(p, pending.op, |rank| rank.has_unusual_header) => {
                ids::PMI2_COMMON_FRAME
            }
            _ if self.any_last_request(p, pending.op, MonitoredRank::is_fragmented) => {
                ids::PMI2_COMMON_ANY_FRAGMENTATION
            }
            _ if rank.refused => ids::PMI2_COMMON_USABLE_AFTER_ERROR,
            _ if rank.pending.len() > 1 && pending.thrid.is_some() => ids::PMI2_DRAFT_THRID_TELLS_APART,
            RequestDetail::Barrier(Some(1)) => ids::PMI2_COMMON_FENCE,
            RequestDetail::Barrier(_) => ids::PMI2_COMMON_FENCE_AGAIN,
            RequestDetail::GetNode { wait: Some(rule), .. }
            | RequestDetail::Get(GetRequest { rule: Some(rule), .. }) => rule,
            RequestDetail::Fullinit { lacks_field: true, .. } => ids::PMI2_DRAFT_FULLINIT_OPTIONAL_KEYS,
            _ if pending.op == Some(Operation::Finalize) => ids::PMI2_COMMON_FINALIZE,
            _ if finalized => ids::PMI2_COMMON_FINALIZE_ALONE,
            _ => ids::PMI2_COMMON_ANSWERED,
        });
        let expected = format!("an answer to {}", pending.row.map_or("", |row| row.request));
        self.report_missing(p, requirement, None, expected, how);
    }

    /// Returns true if a PMI-2 request need not be answered yet.
    fn may_be_late(&self, p: Proc, pending: &MonitoredRequest) -> bool {
        let entered = |number| {
            self.groups.get(&p.group).is_some_and(|group| group.all(|rank| rank.barriers_entered >= number))
        };
        match &pending.detail {
            RequestDetail::Barrier(number) => !entered(number.unwrap_or_default()),
            RequestDetail::Get(get) => !entered(get.barriers_left),
            // The nodes of spawned groups are unknown, so the process that puts the value may be on another node.
            RequestDetail::GetNode { key, wait, .. } => {
                wait.is_some() && (p.group != 0 || !self.has_node_attribute(p, key))
            }
            RequestDetail::Unclear => true,
            // A ring is answered after all processes have joined it. The monitor does not track which processes have joined.
            _ => pending.row.is_some_and(|row| row.operation == "ring"),
        }
    }

    /// Returns true if the oldest pending request is about a pair of the maximum length. For a barrier, any put of such a pair in the group
    /// since the previous barrier counts.
    fn concerns_max_length(&mut self, p: Proc) -> bool {
        match self.rank(p).pending.front().map(|pending| &pending.detail) {
            Some(RequestDetail::Put { key, value, .. }) => {
                let (key, value) = (key.clone(), value.clone());
                self.has_max_length(p, &key, &value)
            }
            Some(RequestDetail::Get(get)) => {
                let key = get.key.clone();
                self.group(p.group).max_length_keys.contains(&key)
            }
            _ => self.group(p.group).has_max_length_put,
        }
    }

    /// Returns the requirement that a server breaks if it does not understand the last request of a process. This is the requirement about
    /// split writes if the request was sent in several writes. If not, it is `otherwise`.
    pub(super) fn split_write_rule_or<'a>(&self, p: Proc, otherwise: &'a str) -> &'a str {
        if self.find_rank(p).is_some_and(|rank| rank.split_write) {
            SPLIT_WRITE_REQUIREMENT
        } else {
            otherwise
        }
    }

    /// Returns the requirement about split writes if the process has an unanswered, valid PMI-1 request and sent its last request in
    /// several writes. For a barrier, or if `otherwise` is the requirement that an abort terminates the group, such a request of any
    /// process of the group counts. In all other cases, returns `otherwise`.
    pub(crate) fn line_in_pieces_or<'a>(&self, p: Proc, otherwise: &'a str) -> &'a str {
        let oldest = self.find_rank(p).and_then(|rank| rank.pending.front()?.op);
        let op = if otherwise == ids::RFC13_ABORT_GROUP { Some(Operation::Abort) } else { oldest };
        let is_line = op.is_some() && self.framing(p) == Framing::Lines;
        if is_line && self.any_last_request(p, op, |rank| rank.split_write && !rank.pending.is_empty()) {
            SPLIT_WRITE_REQUIREMENT
        } else {
            otherwise
        }
    }

    /// Returns whether `condition` is true of the last request of the process, or, for a barrier or an abort, of the same request of another
    /// process of the group.
    fn any_last_request(
        &self,
        p: Proc,
        op: Option<Operation>,
        condition: impl Fn(&MonitoredRank) -> bool,
    ) -> bool {
        let is_shared = matches!(op, Some(Operation::Barrier | Operation::Abort));
        let counts =
            |rank: &MonitoredRank| rank.pending.back().is_some_and(|last| last.op == op) && condition(rank);
        self.find_rank(p).is_some_and(&condition)
            || is_shared && self.groups.get(&p.group).is_some_and(|group| group.ranks.values().any(counts))
    }

    /// Returns true if all processes have entered the barrier that this process is in.
    fn all_entered_barrier(&mut self, p: Proc) -> bool {
        let round = self.rank(p).barriers_left + 1;
        let written = self.rank(p).world_spelling.clone();
        // No document specifies whether `group=WORLD` and a missing `group` denote the same barrier, so all processes must use the
        // same notation.
        self.group(p.group).all(|rank| rank.barriers_entered >= round && rank.world_spelling == written)
    }

    /// Reports a missing response. If the server has not read the request, the finding cites the requirement about reading instead of
    /// `requirement`.
    pub(super) fn report_missing(
        &mut self,
        p: Proc,
        requirement: &str,
        at_most: Option<Severity>,
        expected: String,
        how: ObservationKind,
    ) {
        let mut seen = ObservationText::from(how);
        let mut unread = None;
        if how != ObservationKind::ConnectionEnd && !self.not_read.is_empty() {
            seen.text = format!("{}, {}", seen.text, not_read(&self.not_read));
            unread = self.unread_rule(&self.not_read);
        }
        if how != ObservationKind::ConnectionEnd && self.lacks_proof {
            seen.text += NO_PROOF_SUFFIX;
        }
        self.find(PartyKind::Server, p, unread.unwrap_or(requirement), at_most, expected, seen);
    }

    /// Reports a response that is still missing after the wait.
    pub(super) fn no_response(&mut self, p: Proc) {
        let how = match self.others_mid_request(p) {
            true => ObservationKind::SilenceDuringPartialRequest,
            false => ObservationKind::Silence,
        };
        self.unanswered(p, how);
    }
}
