//! What a client writes: requests, their order, and how it leaves.

use pmi_scenario::ids;
use pmi_wire::{
    Content, Decoded, Direction, Framing, FramingError, GroupBarrier, HEADER, MessageError, Operation,
    Request, RequestError, SpawnAssembler, SpawnCollector, SpawnFault, SpawnLimits, SpawnRequest,
    frame_length, is_extra_command,
};

use super::pmi2::{KEY_MAX, VALUE_MAX};
use super::pmi2_state::NameRequest;
use super::state::{LONG_REQUEST, MOST_PROCESSES, Monitor, PAGE, Pending, RESERVED, request_rule};
use crate::Severity;
use crate::connections::Message;
use crate::finding::Side;
use crate::kvs::is_ambiguous;
use crate::program::FINALIZE;
use crate::seen::{Seen, SeenKind, Unended, show};
use pmi_wire::Proc;
use pmi_wire::grammar::Rule;

/// Whether a request is written as RFC 13's grammar has it: in its order, with one blank between tuples and no further keys.
fn is_canonical(request: &Request<'_>, line: &[u8]) -> bool {
    let mut canonical = Vec::with_capacity(line.len() + 1);
    request.write_to(&mut canonical);
    canonical.strip_suffix(b"\n") == Some(line)
}

/// Returns true if the pair is within the limits of every known server.
fn is_short(key: &[u8], value: &[u8]) -> bool {
    key.len() < KEY_MAX && value.len() < VALUE_MAX
}

/// Returns true if a spawn request asks for processes and has no field that RFC 13 lets servers read in several ways.
fn is_ordinary(request: &SpawnRequest) -> bool {
    let plain = |value: &[u8]| !value.is_empty() && !is_ambiguous(value);
    request.programs.iter().all(|program| {
        (1..=MOST_PROCESSES).contains(&program.nprocs)
            && program.args.iter().all(|(_, arg)| plain(arg))
            && program.info.iter().all(|(key, value)| plain(key) && plain(value))
            && program
                .preput
                .iter()
                .all(|(key, value)| plain(value) && is_short(key, value) && !key.starts_with(RESERVED))
    })
}

/// The number that a line ends with; zero if it ends with none.
fn number_at_end(line: &[u8]) -> u64 {
    let digits = line.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let digits = line[line.len() - digits..].iter();
    digits.fold(0, |n: u64, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

impl Monitor {
    /// Judges a write of a client: its length and the messages that it completes.
    pub(super) fn client_wrote(&mut self, p: Proc, length: usize, messages: &[Message<'_>]) {
        self.rank(p).unanswered_pages += length.div_ceil(PAGE);
        for (place, (_, message)) in messages.iter().enumerate() {
            self.rank(p).split_write = place == 0 && self.goes_on;
            self.request_arrived(p, message, place > 0);
        }
        let partial = self.connections.partial(p, Direction::ToServer);
        if partial.is_empty() {
            return;
        }
        let framing = self.connections.framing(p);
        let told = partial.first_chunk().filter(|_| framing == Framing::Frames);
        let length = told.and_then(|header| frame_length(*header)).unwrap_or(0).max(partial.len());
        let is_like_a_frame = partial.get(HEADER..).is_some_and(|b| b.starts_with(b"cmd="));
        // This is the beginning of a request that was sent before the last one was answered.
        if !self.rank(p).pending.is_empty() {
            self.lose_correlation(p);
        }
        // No server need wait for its end, nor for as much as its header tells.
        if length > LONG_REQUEST {
            self.irregular_sent(p);
        }
        // A frame whose length is none, before anything was negotiated: a server may take it for what it seems to be.
        if framing == Framing::Lines && is_like_a_frame {
            self.lose_correlation(p);
        }
    }

    /// Judges a complete request. `joined` is true if it follows another one in the same write.
    pub(super) fn request_arrived(
        &mut self,
        p: Proc,
        message: &Result<Decoded<'_>, FramingError>,
        joined: bool,
    ) {
        self.rank(p).joined_write = joined;
        self.messages += 1;
        match message {
            Ok(message) => {
                self.abort_sent |= message.text.starts_with(b"cmd=abort");
                match &message.content {
                    Content::FrameRequest(request) => self.pmi2_request(p, request, message),
                    Content::LineRequest(request) => self.request_line(p, request, message),
                    Content::LineResponse(_) | Content::FrameResponse(_) => {}
                }
            }
            Err(FramingError::Line(_)) => self.unknown_sent(p),
            Err(error) => self.framing_error(p, Side::Client, *error),
        }
    }

    fn request_line(&mut self, p: Proc, request: &Result<Request<'_>, RequestError>, message: &Decoded<'_>) {
        let line = message.text;
        if line.len() > LONG_REQUEST {
            self.irregular_sent(p);
        }
        if line.trim_ascii().starts_with(b"nprocs") {
            self.processes_requested =
                self.processes_requested.saturating_add(number_at_end(line.trim_ascii()));
        }
        if self.rank(p).spawn.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(p, line);
        }
        self.after_error(p, line);
        match *request {
            Ok(Request::Barrier { group: Some(group) }) if self.speaks_groups(p) => {
                if let Some((offered, _)) = self.rank(p).unoffered.take() {
                    let expected = format!("an offer of 1.2 by a client that names groups, not of {offered}");
                    self.client_misuse(p, ids::RFC13_INIT_HIGHEST, expected, Seen::message(line));
                }
                if !is_canonical(&Request::Barrier { group: Some(group) }, line) {
                    self.irregular_sent(p);
                }
                if GroupBarrier::parse(group) == Ok(GroupBarrier::PLAIN) {
                    self.request(p, Request::Barrier { group: Some(group) }, message);
                } else {
                    self.order(p, Operation::Barrier, line);
                    self.group_barrier_entered(p, group, line);
                }
            }
            Ok(request) => {
                if matches!(request, Request::Barrier { group: Some(_) }) {
                    let used = self.rank(p).version;
                    self.group_not_negotiated(p, used, line);
                }
                if !is_canonical(&request, line) {
                    // What a parser makes of other orders, blanks and keys is a SHOULD, so nothing that follows from
                    // it is the breach of a MUST.
                    self.group(p.group).irregular_ranks.insert(p.rank);
                    self.irregular = true;
                }
                self.request(p, request, message);
            }
            Err(error) => {
                self.unknown_sent(p);
                let rule = Self::request_rule(message, &error);
                self.client_error(p, &rule, format!("a request of RFC 13 ({error})"), Seen::message(line));
            }
        }
    }

    /// The requirement that a request breaks that cannot be read.
    fn request_rule(message: &Decoded<'_>, error: &RequestError) -> String {
        let (line, cmd) = (message.text, message.command());
        let op = cmd.and_then(Operation::from_request_cmd);
        match (op, error) {
            // The newline is LF alone.
            _ if line.ends_with(b"\r") => ids::RFC13_WIRE_NEWLINE.into(),
            // The value of a put runs to the end of the line, so what is wrong there is wrong with the value.
            (_, RequestError::Message(MessageError::BadByte { at, .. }))
                if line.starts_with(b"cmd=put ") && line[..*at].windows(7).any(|part| part == b" value=") =>
            {
                ids::RFC13_ABNF_STRING.into()
            }
            (_, RequestError::Message(_)) => ids::RFC13_WIRE_TUPLES.into(),
            (Some(_), RequestError::BadValue { expected: Rule::Uint, .. }) => ids::RFC13_ABNF_UINT.into(),
            (Some(_), RequestError::BadValue { expected: Rule::Word, .. }) => ids::RFC13_ABNF_WORD.into(),
            (Some(op), _) => request_rule(op),
            (None, RequestError::SpawnOutsideBlock) => request_rule(Operation::Spawn),
            (None, _) if cmd.is_some_and(|cmd| Operation::from_response_cmd(cmd).is_some()) => {
                ids::RFC13_WIRE_SERVER_SENDS_RESPONSES.into()
            }
            (None, _) if cmd.is_some_and(is_extra_command) => ids::DE_FACTO_REQUEST_EXTRA.into(),
            (None, _) => ids::RFC13_ABNF_PMI1.into(),
        }
    }

    /// The requirement that a spawn request breaks that cannot be read.
    fn spawn_rule(fault: &SpawnFault) -> &'static str {
        match fault {
            // Once the request has begun, a line outside of a block stands between two of its blocks.
            SpawnFault::Interspersed | SpawnFault::OutsideBlock => ids::RFC13_SPAWN_NOT_INTERSPERSED,
            SpawnFault::BadByte { .. } => ids::RFC13_ABNF_STRING,
            SpawnFault::Malformed => ids::RFC13_WIRE_TUPLES,
            SpawnFault::CountMismatch { .. } => ids::RFC13_SPAWN_COUNTS_ZERO_OR_MORE,
            SpawnFault::BadValue { expected: Rule::Uint, .. } => ids::RFC13_ABNF_UINT,
            SpawnFault::BadValue { expected: Rule::Word, .. } => ids::RFC13_ABNF_WORD,
            SpawnFault::BadIndex { expected: Rule::Int, .. } => ids::RFC13_ABNF_INT,
            SpawnFault::BadIndex { .. } => ids::RFC13_ABNF_UINT,
            SpawnFault::MissingElement(_) => ids::RFC13_SPAWN_INDICES,
            SpawnFault::MissingArgument(_) => ids::RFC13_SPAWN_ARG_INDICES,
            _ => ids::RFC13_ABNF_C_SPAWN,
        }
    }

    /// RFC 13, Error Handling: a client that receives bytes that are no message closes the connection and aborts. Any further
    /// request other than an abort shows that it does neither. A client whose lenient parser takes them detects no error.
    fn after_error(&mut self, p: Proc, line: &[u8]) {
        let rank = self.rank(p);
        if rank.no_message
            && !line.starts_with(b"cmd=abort")
            && !std::mem::replace(&mut rank.continued_after_error, true)
        {
            for (id, expected) in [
                (
                    ids::RFC13_ERROR_CLOSE,
                    "the client closes the connection on which it got what is no message",
                ),
                (ids::RFC13_ERROR_ABORT, "the client aborts when it gets what is no message"),
            ] {
                self.client_misuse(p, id, expected, Seen::message(line));
            }
        }
    }

    /// Checks what holds for every request: init comes first, requests and answers take turns, nothing follows finalize.
    fn order(&mut self, p: Proc, op: Operation, line: &[u8]) {
        let rank = self.rank(p);
        let joined = rank.joined;
        let goes_on = !matches!(op, Operation::Init | Operation::Abort | Operation::Finalize);
        if let Some((offered, _)) =
            rank.unoffered.take_if(|(offered, used)| goes_on && used.version != offered.version)
        {
            // RFC 13 does not say what a client does then.
            let expected = format!(
                "finalize or abort in a version above {offered}, the highest that the client offered"
            );
            let id = ids::RFC13_INIT_HIGHEST_MUTUAL;
            self.find(Side::Client, p, id, Some(Severity::Note), expected, Seen::message(line));
        }
        let rank = self.rank(p);
        // A client that cannot finalize may abort.
        let finalized =
            rank.finalized && !(op == Operation::Abort && (rank.finalize_refused || rank.unreadable));
        let init_sent = rank.init_sent;
        // What came instead of an answer to init is told by itself, and not by each request that follows.
        let joined = joined || (init_sent && rank.unreadable && op != Operation::Init);
        rank.init_sent |= op == Operation::Init;
        let waits = self.waits(p, op);
        if waits {
            self.lose_correlation(p);
        }
        if finalized {
            self.client_error(p, ids::RFC13_FINALIZE_LAST, "no request after finalize", Seen::message(line));
        } else if op == Operation::Abort && init_sent {
            // A client that cannot go on aborts, also when the answer to its init is the reason.
        } else if op != Operation::Init && !joined {
            let id = if init_sent { ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS } else { ids::RFC13_INIT_FIRST };
            self.client_error(p, id, "init first", Seen::message(line));
        } else if op == Operation::Init && joined {
            self.client_error(p, ids::RFC13_INIT_FIRST, "init once", Seen::message(line));
        } else if waits && !self.rank(p).got_unasked {
            self.client_error(
                p,
                ids::RFC13_WIRE_LOCK_STEP,
                "no request before the last one is answered",
                Seen::message(line),
            );
        }
    }

    /// An abort without an exit code is one of something that failed. The operating system keeps the low eight bits of a code.
    pub(super) fn abort_asked(&mut self, p: Proc, exitcode: Option<i64>) {
        let rank = self.rank(p);
        if p.group != 0 || rank.finalized || rank.closed {
            return;
        }
        match exitcode {
            Some(code) if code & 0xff == 0 => self.aborted_as_success = true,
            _ => self.aborted = true,
        }
    }

    fn request(&mut self, p: Proc, request: Request<'_>, message: &Decoded<'_>) {
        let line = message.text;
        self.order(p, request.operation(), line);
        if request.operation() == Operation::Barrier {
            self.plain_barrier_entered(p, line);
        }
        if let Some(asked) = NameRequest::new(message) {
            self.name_asked(&asked);
            return self.rank(p).pending.push_back(Pending::Name(asked));
        }
        let pending = match request {
            Request::Init(offered) => {
                // RFC 13 sets no bound, and numbers that do not fit the int of the API are not used to judge.
                if [offered.version, offered.subversion].iter().any(|number| i32::try_from(*number).is_err())
                {
                    self.group(p.group).irregular_ranks.insert(p.rank);
                    self.irregular = true;
                }
                Pending::Init(offered)
            }
            Request::Put { kvsname, key, value } => {
                let lawful = self.put_sent(p, kvsname, key, value);
                Pending::Put { key: key.to_vec(), value: value.to_vec(), lawful }
            }
            Request::Get { kvsname, key } => {
                self.get_sent(p, kvsname, key);
                Pending::Get { key: key.to_vec(), kvsname: kvsname.to_vec(), left: self.rank(p).left }
            }
            Request::Barrier { group } => {
                let rank = self.rank(p);
                rank.entered += 1;
                let group = group.filter(|_| rank.version.has_group_barriers());
                rank.world_written = group.map(<[u8]>::to_vec);
                Pending::Other(Operation::Barrier)
            }
            Request::Finalize => {
                self.rank(p).finalized = true;
                Pending::Other(Operation::Finalize)
            }
            Request::Abort { exitcode } => {
                self.group(p.group).may_abort = true;
                self.abort_asked(p, exitcode);
                Pending::Other(Operation::Abort)
            }
            other => Pending::Other(other.operation()),
        };
        self.rank(p).pending.push_back(pending);
    }

    /// Notes a put, and tells whether the server has no reason to refuse it.
    fn put_sent(&mut self, p: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) -> bool {
        let (known, maxes) = (self.group(p.group).kvsname.clone(), self.rank(p).maxes);
        let Some(known) = known else {
            self.irregular = true;
            self.group(p.group).unjudged_keys.insert(key.to_vec());
            return false;
        };
        if known != kvsname {
            let expected = "the kvsname that get_my_kvsname returned";
            self.client_misuse(p, ids::RFC13_KVS_NAME_USED, expected, show(kvsname));
            // A server that has one keyval space for each group may put it there.
            self.group(p.group).unjudged_keys.insert(key.to_vec());
            return false;
        }
        let entered = self.rank(p).entered;
        let group = self.group(p.group);
        let unjudged_keys = group.unjudged_keys.contains(key);
        let repeated = group.kvs.contains(key);
        group.kvs.sent(key, value, p.rank, entered);
        let first = *group.writers.entry(key.to_vec()).or_insert(p.rank);
        if repeated {
            let (id, expected) = match first == p.rank {
                true => (ids::RFC13_PUT_ONCE, "a key is put once in a keyval space"),
                false => (ids::RFC13_PUT_UNIQUE, "no two processes put the same key"),
            };
            self.client_misuse(p, id, expected, show(key));
        }
        // RFC 13, PMI_KVS_Get_key_length_max: the lengths count the terminating NUL.
        let fits =
            maxes.is_some_and(|m| (key.len() as u64) < m.keylen_max && (value.len() as u64) < m.vallen_max);
        if maxes.is_some() && !fits {
            let expected = "key and value within the limits of get_maxes";
            let seen = format!("a key of {} and a value of {} bytes", key.len(), value.len());
            self.client_misuse(p, ids::RFC13_PUT_LENGTH, expected, seen);
            // RFC 13 does not say whether the pair is cut, kept or dropped.
            self.group(p.group).unjudged_keys.insert(key.to_vec());
        }
        let ordinary = !repeated
            && !unjudged_keys
            && !key.starts_with(RESERVED)
            && !value.is_empty()
            && !is_ambiguous(value);
        // A process that was not told the limits cannot know that a long pair is within them.
        self.irregular |= !ordinary || !fits && (maxes.is_some() || !is_short(key, value));
        fits && ordinary
    }

    fn get_sent(&mut self, p: Proc, kvsname: &[u8], key: &[u8]) {
        let maxes = self.rank(p).maxes;
        self.irregular |= self.group(p.group).kvsname.is_none() || maxes.is_none() && !is_short(key, &[]);
        if self.group(p.group).kvsname.as_ref().is_some_and(|known| known != kvsname) {
            let expected = "the kvsname that get_my_kvsname returned";
            self.client_misuse(p, ids::RFC13_KVS_NAME_USED, expected, show(kvsname));
        }
        if let Some(max) = maxes.map(|m| m.keylen_max).filter(|max| key.len() as u64 >= *max) {
            let expected = format!("a key of less than keylen_max={max} bytes");
            let seen = format!("a key of {} bytes", key.len());
            self.client_misuse(p, ids::RFC13_GET_KEY_LENGTH, expected, seen);
        }
    }

    fn spawn_line(&mut self, p: Proc, line: &[u8]) {
        let first = self.rank(p).spawn.is_none();
        if first {
            self.spawns_unknown |= !self.rank(p).pending.is_empty();
            self.after_error(p, line);
            self.order(p, Operation::Spawn, line);
        }
        let lines = &mut self.rank(p).spawn_lines;
        lines.extend_from_slice(line);
        lines.push(b'\n');
        match self
            .rank(p)
            .spawn
            .get_or_insert_with(|| SpawnCollector::new(SpawnLimits::default()))
            .push_line(line)
        {
            // "endcmd=" is a key that the request does not have, or, to a server that looks no further, its end.
            Ok(None) if line.trim_ascii().strip_prefix(b"endcmd").is_some_and(|rest| !rest.is_empty()) => {
                self.unknown_sent(p);
                self.spawns_unknown = true;
            }
            Ok(None) => {}
            Ok(Some(request)) => {
                self.rank(p).spawn = None;
                self.spawn_sent(p, request);
            }
            Err(error) => {
                self.rank(p).spawn = None;
                self.rank(p).spawn_lines.clear();
                self.unknown_sent(p);
                self.spawns_unknown = true;
                let id = Self::spawn_rule(&error.fault);
                self.client_error(p, id, format!("a spawn request of RFC 13 ({error})"), Seen::message(line));
            }
        }
    }

    fn spawn_sent(&mut self, p: Proc, request: SpawnRequest) {
        let mut canonical = Vec::new();
        request.programs.iter().for_each(|program| program.write_to(&mut canonical));
        let as_written = std::mem::take(&mut self.rank(p).spawn_lines);
        self.irregular |= canonical != as_written || !is_ordinary(&request);
        let size = request.programs.iter().fold(0, |n: u64, p| n.saturating_add(p.nprocs));
        self.group_asked(p, size, request.programs.iter().flat_map(|p| &p.preput));
        if request.programs.iter().any(|p| p.args_base().is_some_and(|base| base != 0)) {
            let expected = "the numbered indices of a spawn request begin with zero";
            self.client_misuse(p, ids::RFC13_SPAWN_ARG_INDICES, expected, "args numbered from 1");
        }
        let rank = self.rank(p);
        rank.spawns = true;
        rank.pending.push_back(Pending::Spawn(request));
    }

    /// Judges the end of a client's connection. A killed process may end in the middle of a message, and TCP loses the rest of a
    /// message if the client closes its connection with unread bytes.
    pub(super) fn client_gone(&mut self, p: Proc, by_itself: bool) {
        let rank = self.rank(p);
        let (joined, finalized, gone) =
            (rank.joined, rank.finalized, std::mem::replace(&mut rank.gone, true));
        let breaks_off = by_itself && !gone && !rank.closed && !rank.left_unread;
        let framing = self.connections.framing(p);
        let partial = self.connections.partial(p, Direction::ToServer).to_vec();
        let unended = self.connections.unended(p, Direction::ToServer, SeenKind::ConnectionEnd);
        if let Some(Unended { rule, expected, seen }) = unended.filter(|_| breaks_off) {
            self.client_misuse(p, rule, expected, seen);
            match Decoded::new(Direction::ToServer, Framing::Lines, &partial).content {
                Content::LineRequest(Ok(Request::Put { key, .. })) => {
                    self.group(p.group).unended_puts.insert(key.to_vec());
                }
                Content::LineRequest(Ok(Request::Barrier { .. })) => self.rank(p).unended_barrier = true,
                _ => {}
            }
        } else if breaks_off && self.rank(p).spawn.is_some() {
            let (expected, seen) = ("a spawn request that ends with endcmd", "closed within it");
            self.client_misuse(p, ids::RFC13_ABNF_C_SPAWN, expected, seen);
        }
        let rank = self.rank(p);
        if !gone && !finalized && !rank.closed {
            self.group(p.group).may_abort = true;
            if joined {
                let expected = "finalize before the connection is closed";
                self.client_misuse(p, FINALIZE[framing as usize], expected, "closed without it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Monitor;
    use crate::event::{Bytes, Event, HangProof, What};
    use pmi_wire::Proc;
    use rstest::rstest;

    const P: Proc = Proc { group: 0, rank: 0 };

    /// A partial message proves something only if the process closes its connection by itself and TCP does not lose the rest.
    #[rstest]
    #[case::by_itself(&[What::ClosedByClient { proc: P }], true)]
    #[case::killed(&[What::Ended { proc: P, ours: true }], false)]
    #[case::does_not_end(&[What::StillRunning { procs: vec![P], proof: HangProof::Idle }, What::ClosedByClient { proc: P }], false)]
    #[case::reset(&[What::LeftUnread { proc: P }, What::ClosedByClient { proc: P }], false)]
    fn partial_message_is_held_against_client(#[case] end: &[What], #[case] broken: bool) {
        for (partial, requirement) in
            [("cmd=get_ma", "rfc13.wire.newline"), ("mcmd=spawn\nnprocs=1\n", "rfc13.abnf.c-spawn")]
        {
            let init = b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec();
            let joined = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec();
            let said = [
                What::ToServer { proc: P, bytes: Bytes(init) },
                What::FromServer { proc: P, bytes: Bytes(joined) },
                What::ToServer { proc: P, bytes: Bytes(partial.into()) },
            ];
            let mut monitor = Monitor::new();
            for what in said.iter().chain(end) {
                monitor.observe(&Event::new(0, what.clone()));
            }
            let found = monitor.take_findings().iter().any(|f| f.requirement == requirement);
            assert_eq!(found, broken, "{partial}");
        }
    }

    #[test]
    fn what_was_put_before_the_name_was_known_is_not_held_against_the_server() {
        let proc = Proc { group: 0, rank: 0 };
        let mut monitor = Monitor::new();
        let lines = [
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1",
            ),
            ("cmd=put kvsname=k key=a value=1", "cmd=put_result rc=0"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=k"),
            ("cmd=get kvsname=k key=a", "cmd=get_result rc=0 value=1"),
            ("cmd=put kvsname=k key=a value=2", "cmd=put_result rc=-1"),
        ];
        for (request, response) in lines {
            let bytes = |line: &str| Bytes(format!("{line}\n").into_bytes());
            for what in [
                What::ToServer { proc, bytes: bytes(request) },
                What::FromServer { proc, bytes: bytes(response) },
            ] {
                monitor.observe(&Event::new(0, what));
            }
        }
        assert_eq!(monitor.take_findings(), []);
    }
}
