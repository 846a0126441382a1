//! The life cycle of a process: its inits, finalize and abort, their order, and the end of its connection.

use pmi_scenario::ids::{self, rules};
use pmi_wire::grammar::{parse_bool, parse_int};
use pmi_wire::{Decoded, Direction, Framing, Operation, Proc, Version};

use super::state::{COMPLETE_RESPONSE_REQUIREMENT, Monitor, RequestDetail, cite};
use super::unspecified::Unspecified;
use crate::Severity;
use crate::event::Exit;
use crate::finding::PartyKind;
use crate::observation::{IncompleteMessage, ObservationKind, ObservationText};
use crate::program::CLIENT_FINALIZES;

/// The requirements, for lines and for frames, that init is the first request and is sent only once.
const INIT_FIRST: [&str; 2] = [ids::RFC13_INIT_FIRST, ids::PMI2_COMMON_FULLINIT_FIRST];
/// The requirements, for lines and for frames, that a client sends a request only after the response to the previous request. The draft
/// allows several pending requests, each with a different `thrid`.
const LOCK_STEP: [&str; 2] = [ids::RFC13_WIRE_LOCK_STEP, ids::PMI2_DRAFT_THRID_TELLS_APART];

/// Returns the requirement that a server breaks if it refuses an offer of at least version 1.1.
pub(super) fn init_rule(offered: Version) -> &'static str {
    if offered > Version::V1_1 { ids::RFC13_INIT_HIGHEST_MUTUAL } else { ids::RFC13_ABNF_C_INIT }
}

/// Returns true if the rc of a response does not fit the int of the API. The standards set no bound, so a client may interpret such an rc
/// as success.
fn has_huge_rc(message: &Decoded<'_>) -> bool {
    message.rc().is_some_and(|rc| i32::try_from(rc).is_err())
}

impl Monitor {
    /// Judges the first request that a client sends after it has received bytes that are not a message. RFC 13, Error Handling: the client
    /// closes the connection and aborts. A client that sends a request other than an abort does neither. Bytes that a lenient parser
    /// accepts do not count, because a client with such a parser detects no error.
    pub(super) fn after_error(&mut self, p: Proc, line: &[u8]) {
        let rank = self.rank(p);
        if rank.received_garbage
            && !line.starts_with(b"cmd=abort")
            && !std::mem::replace(&mut rank.continued_after_error, true)
        {
            let close = "the client closes the connection on which it received an invalid message";
            let abort = "the client aborts when it receives an invalid message";
            for (id, expected) in [(ids::RFC13_ERROR_CLOSE, close), (ids::RFC13_ERROR_ABORT, abort)] {
                self.client_misuse(p, id, expected, ObservationText::message(line));
            }
        }
    }

    /// Checks the order of requests: init must be the first request, each request must wait for the response to the previous one, and
    /// nothing may follow finalize.
    pub(super) fn check_order(
        &mut self,
        p: Proc,
        op: Option<Operation>,
        thrid: Option<&[u8]>,
        message: &Decoded<'_>,
    ) {
        let seen = || ObservationText::message(message.text);
        self.version_used(p, op, message);
        let (is_init, is_abort) = (op == Some(Operation::Init), op == Some(Operation::Abort));
        let waits_in_turn = self.must_wait(p, op);
        let rank = self.rank(p);
        let sent = rank.init_sent;
        let (first, joined, again, finalized, waits, reports) = match message.framing {
            Framing::Lines => {
                // An unreadable response to init counts as a success. Otherwise, every later request would be reported as well.
                let joined = rank.joined || (sent && rank.unreadable && !is_init);
                // A client that cannot finalize may abort.
                let may_abort = is_abort && (rank.finalize_refused || rank.unreadable);
                rank.init_sent |= is_init;
                let finalized = rank.finalized && !may_abort;
                ("init", joined || is_abort && sent, joined, finalized, waits_in_turn, !is_abort)
            }
            Framing::Frames => {
                let joined = rank.fullinit_accepted || is_abort;
                let same = |other: &Option<Vec<u8>>| other.is_none() || other.as_deref() == thrid;
                let waits = rank.pending.iter().any(|pending| same(&pending.thrid));
                ("fullinit", joined, rank.fullinit_sent, rank.finalized && !is_abort, waits, true)
            }
        };
        if waits {
            self.lose_correlation(p, Unspecified::OutOfOrder);
        }
        if finalized {
            self.client_error(p, cite(message, rules::FINALIZE_LAST), "no request after finalize", seen());
        } else if !is_init && !joined {
            let early = [ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS, ids::PMI2_COMMON_FULLINIT_FIRST];
            let (rule, expected) = match sent {
                true => (early, format!("no other request before {first} has succeeded")),
                false => (INIT_FIRST, format!("{first} as the first request")),
            };
            self.client_error(p, cite(message, rule), expected, seen());
        } else if is_init && again {
            self.client_error(p, cite(message, INIT_FIRST), format!("{first} only once"), seen());
        } else if waits && reports && !self.rank(p).received_unsolicited {
            let expected = [
                "no request before the previous one is answered",
                "no request before the previous one is answered, unless each has its own thrid",
            ];
            self.client_error(p, cite(message, LOCK_STEP), cite(message, expected), seen());
        }
    }

    /// Reports a client that continues after the server chose a version above the client's offer. RFC 13 does not define this case.
    fn version_used(&mut self, p: Proc, op: Option<Operation>, message: &Decoded<'_>) {
        let goes_on = !matches!(op, Some(Operation::Init | Operation::Abort | Operation::Finalize));
        let rank = self.rank(p);
        if let Some((offered, _)) =
            rank.version_above_offer.take_if(|(offered, used)| goes_on && used.version != offered.version)
        {
            let expected = format!(
                "only finalize or abort, because the server chose a version above {offered}, the highest that the client offered"
            );
            let id = ids::RFC13_INIT_HIGHEST_MUTUAL;
            let seen = ObservationText::message(message.text);
            self.find(PartyKind::Client, p, id, Some(Severity::Note), expected, seen);
        }
    }

    /// Records an init or a fullinit.
    pub(super) fn init_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        if let Some(offered) = message.version() {
            // RFC 13 sets no bound, but version numbers that exceed the API's int are not judged.
            if [offered.version, offered.subversion].iter().any(|number| i32::try_from(*number).is_err()) {
                self.group(p.group).irregular_ranks.insert(p.rank);
                self.irregular = true;
            }
            return RequestDetail::Init(offered);
        }
        self.rank(p).fullinit_sent = true;
        let bare = ["pmijobid", "pmirank", "threaded"].iter().any(|key| message.raw(key).is_none());
        // A server may use a wrong rank, or reject it.
        let misled = message.number("pmirank").is_some_and(|rank| rank != u64::from(p.rank));
        // No known server supports authentication, so a server may reject a request for it.
        if misled || message.raw("authtype").is_some() {
            self.irregular_sent(p);
        }
        RequestDetail::Fullinit { lacks_field: bare, has_wrong_rank: misled }
    }

    pub(super) fn finalize_requested(&mut self, p: Proc) -> RequestDetail {
        self.request_in_barrier(p);
        self.rank(p).finalized = true;
        RequestDetail::Plain
    }

    /// Records an abort, with or without an exit code. The operating system keeps only the low eight bits of an exit code.
    pub(super) fn abort_requested(&mut self, p: Proc, message: &Decoded<'_>) -> Option<RequestDetail> {
        self.allow_abort(p, Unspecified::Abort);
        let exitcode = message.field("exitcode").and_then(|code| parse_int(&code));
        // The draft does not define the scope of an abort with isworld=FALSE.
        let is_of_job = message.field("isworld").and_then(|isworld| parse_bool(&isworld)) != Some(false);
        let rank = self.rank(p);
        if is_of_job && p.group == 0 && !rank.finalized && !rank.closed {
            match exitcode {
                Some(code) if code & 0xff == 0 => self.aborted_as_success = true,
                _ => self.aborted = true,
            }
        }
        // RFC 13, abort: the response is an empty line. The PMI-2 draft defines no response.
        (message.framing == Framing::Lines).then_some(RequestDetail::Plain)
    }

    pub(super) fn init_answered(&mut self, p: Proc, offered: Version, message: &Decoded<'_>) {
        let seen = || ObservationText::message(message.text);
        let (id, ok) = (ids::RFC13_INIT_VERSION_USED, message.is_success());
        self.rank(p).joined |= has_huge_rc(message);
        match message.version() {
            Some(used) if ok && used > offered => {
                let expected = format!("a version up to {offered}, the highest that the client offered");
                let known = *self.first_version.get_or_insert(used) == used;
                self.rank(p).answered_version = Some(used);
                self.rank(p).version_above_offer = Some((offered, used));
                if !known || self.focus.as_ref().is_none_or(|f| f.iter().any(|r| r == id)) {
                    self.server_error(p, id, expected, seen());
                }
                self.rank(p).joined = true;
            }
            Some(used) if ok => {
                let rank = self.rank(p);
                (rank.joined, rank.answered_version, rank.version) = (true, Some(used), Some(used));
            }
            None if ok => {
                self.server_error(
                    p,
                    COMPLETE_RESPONSE_REQUIREMENT,
                    "success with the version in use",
                    seen(),
                );
                self.rank(p).joined = true;
            }
            _ if self.group_uses_other_protocol(p) => {}
            _ if offered >= Version::V1_1 && !self.may_abort(p) => {
                let id = self.split_write_rule_or(p, init_rule(offered));
                let expected = "success, since the client supports version 1.1";
                self.server_error(p, id, expected, seen());
            }
            _ => {}
        }
    }

    /// Judges the response to fullinit. `cites` is the requirement that a refusal breaks.
    pub(super) fn fullinit_answered(
        &mut self,
        p: Proc,
        cites: &'static str,
        misled: bool,
        message: &Decoded<'_>,
    ) {
        let seen = || ObservationText::message(message.text);
        if !message.is_success() {
            self.rank(p).fullinit_accepted |= has_huge_rc(message);
            if !self.may_abort(p) {
                self.server_error(p, cites, "success", seen());
            }
            return;
        }
        self.rank(p).fullinit_accepted = true;
        let number = |key: &str| message.value(key).and_then(|v| parse_int(&v));
        let size = self.group(p.group).size;
        if !misled && number("rank") != Some(i64::from(p.rank)) {
            self.server_error(p, ids::PMI2_COMMON_FULLINIT_RANK, format!("rank={}", p.rank), seen());
        }
        // A size of 0 means that the size of the group is unknown.
        if size > 0 && number("size") != Some(i64::from(size)) {
            self.server_error(p, ids::PMI2_COMMON_FULLINIT_SIZE, format!("size={size}"), seen());
        }
        if number("appnum").is_none() {
            self.server_error(p, ids::PMI2_COMMON_FULLINIT_APPNUM, "appnum, an integer", seen());
        }
        if number("pmi-version") != Some(2) {
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_VERSION, "pmi-version=2", seen());
        } else if number("pmi-subversion").is_none() {
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_VERSION, "pmi-subversion, an integer", seen());
        }
        let is_spawned = p.group != 0;
        if is_spawned != message.value("spawner-jobid").is_some() {
            let expected = match is_spawned {
                true => "spawner-jobid, since the process was spawned",
                false => "no spawner-jobid, since the process was not spawned",
            };
            self.server_error(p, ids::PMI2_DRAFT_FULLINIT_SPAWNER, expected, seen());
        }
    }

    /// Returns true if another process of the group uses a different framing (lines or frames). RFC 13 does not mention this case.
    pub(super) fn group_uses_other_protocol(&mut self, p: Proc) -> bool {
        let mut others = self.connections.iter().filter(|(other, _)| other.group == p.group);
        others.any(|(_, connection)| connection.framing() != self.framing(p))
    }

    /// Judges the end of a client's connection. An incomplete message is not judged if the process was killed, nor if the client closed its
    /// connection with unread bytes: TCP then loses the rest of the message.
    pub(super) fn client_ended(&mut self, p: Proc, by_itself: bool) {
        let rank = self.rank(p);
        let (joined, finalized, gone) =
            (rank.joined, rank.finalized, std::mem::replace(&mut rank.is_gone, true));
        let breaks_off = by_itself && !gone && !rank.closed && !rank.left_unread;
        let framing = self.framing(p);
        let partial = self.connections.partial(p, Direction::ToServer).to_vec();
        let unended =
            self.connections.incomplete_message(p, Direction::ToServer, ObservationKind::ConnectionEnd);
        if let Some(IncompleteMessage { rule, expected, seen }) = unended.filter(|_| breaks_off) {
            self.client_misuse(p, rule, expected, seen);
            let begun = Decoded::new(Direction::ToServer, framing, &partial);
            match begun.operation() {
                Some(Operation::Put) => {
                    let key = begun.field("key").unwrap_or_default().into_owned();
                    self.group(p.group).incomplete_puts.insert(key);
                }
                Some(Operation::Barrier) => self.rank(p).has_incomplete_barrier = true,
                _ => {}
            }
        } else if breaks_off && self.rank(p).spawn.is_some() {
            let (expected, seen) = ("a spawn request that ends with endcmd", "closed within the request");
            self.client_misuse(p, ids::RFC13_ABNF_C_SPAWN, expected, seen);
        }
        if !gone && !finalized && !self.rank(p).closed {
            self.allow_abort(p, Unspecified::LeftWithoutFinalize);
            if joined && !self.rank(p).aborts {
                let expected = "finalize before the connection is closed";
                self.client_misuse(p, framing.pick(CLIENT_FINALIZES), expected, "closed without finalize");
            }
        }
    }

    pub(super) fn closed_by_server(&mut self, p: Proc) {
        if self.rank(p).closed {
            return;
        }
        self.unanswered(p, ObservationKind::ConnectionEnd);
        let rank = self.rank(p);
        rank.closed = true;
        rank.pending.clear();
        rank.open_barriers.clear();
    }

    /// Judges the exit status of the job.
    pub(super) fn job_exited(&mut self, exit: Exit) {
        if exit == Exit::Code(0) && self.aborted && !self.aborted_as_success {
            let expected = "an exit status other than 0, since the job was aborted".to_owned();
            let seen = ObservationText::from(exit.to_string());
            self.find(PartyKind::Server, None, ids::DE_FACTO_ABORT_JOB_FAILS, None, expected, seen);
        }
    }
}
