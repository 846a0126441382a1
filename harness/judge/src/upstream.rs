//! Compares the messages between a proxy and its upstream with the messages between the proxy and its processes.
//!
//! A proxy serves the processes of its node and forwards the requests that concern other nodes. It must not lose, invent or misroute
//! messages, and must not announce a barrier before all of its processes have entered the barrier. A scenario may make the upstream send
//! wrong messages on purpose. The proxy must forward these as well, if their meaning is unambiguous.

use pmi_scenario::ids;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use pmi_wire::place;
use pmi_wire::port::Greeting;
use pmi_wire::protocol::{Field, by_request};
use pmi_wire::{Decoded, Direction, Framing, FramingError, Operation, ResponseOutcome, grammar};

use crate::connections::CompletedMessage;
use crate::event::{Event, EventKind};
use crate::finding::{Finding, PartyKind};
use crate::kvs::is_ambiguous;
use crate::observation::{ObservationText, quote_bytes};
use pmi_wire::Proc;

/// Maximum number of findings that are kept until the next call of [`UpstreamMonitor::take_findings`].
const FINDINGS_LIMIT: usize = 100;

/// Maximum number of requests that are stored.
const MAX_FORWARDED_REQUESTS: usize = 100_000;

#[derive(Debug)]
struct UpstreamPut {
    key: Vec<u8>,
    value: Vec<u8>,
    /// Number of barriers that the process had entered before the put.
    round: u64,
    /// True if the server has answered the put with success.
    acknowledged: bool,
    /// True if the put's loss has been reported.
    loss_reported: bool,
}

#[derive(Debug, Default)]
struct UpstreamClient {
    puts: Vec<UpstreamPut>,
    /// Number of barriers of the whole process group that the process has entered.
    entered: u64,
    is_gone: bool,
    /// The request that has not been answered yet.
    pending_request: Option<Vec<u8>>,
    /// True if a multi-line spawn request is incomplete.
    in_block: bool,
    /// The number of the unanswered request among those that proxies have forwarded, or [`u64::MAX`] if it is unknown which of several
    /// identical requests the proxy has forwarded. `None` if the request was not forwarded.
    forwarded: Option<u64>,
    /// True if the process has sent a request before the previous one was answered, or has received two responses to the same request. The
    /// responses to the process then cannot be matched with its requests.
    breaks_lock_step: bool,
    /// True if the process has sent lines that the proxy may parse differently from this monitor.
    has_unparsable_lines: bool,
    /// The state of the PMI-2 messages; `None` until PMI-2 is negotiated.
    frames: Option<PendingFrames>,
}

/// A client's request that has reached the upstream.
#[derive(Debug)]
struct ForwardedClientRequest {
    client: Proc,
    reply: Option<Vec<u8>>,
}

/// The state of a proxy for a process group.
#[derive(Debug, Default)]
struct ProxyState {
    /// Number of barriers that the proxy has forwarded.
    barriers: u64,
    /// Keys of the pairs that the proxy has forwarded.
    forwarded_keys: HashSet<Vec<u8>>,
    /// Number of forwarded pairs whose keys no process has put. An equal number of missing puts is treated as changed by the proxy, not as
    /// lost.
    unknown_pairs: usize,
    /// For each request that several processes have sent in identical form, the number of times that the proxy may still forward it.
    identical_requests: HashMap<Vec<u8>, usize>,
}

/// The monitor of the messages that proxies forward; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct UpstreamMonitor {
    nodes: u32,
    /// The size of each process group, by group number.
    sizes: BTreeMap<u32, u32>,
    /// True if a proxy has mistaken one process for another. The origin of the proxy's requests is then unknown.
    /// [`Monitor`](crate::Monitor) reports the mistake.
    has_confused_processes: bool,
    clients: BTreeMap<Proc, UpstreamClient>,
    proxies: BTreeMap<(u32, u32), ProxyState>,
    forwarded: HashMap<u64, ForwardedClientRequest>,
    seq: u64,
    findings: Vec<Finding>,
}

fn request(line: &[u8]) -> Decoded<'_> {
    Decoded::new(Direction::ToServer, Framing::Lines, line)
}

fn response(line: &[u8]) -> Decoded<'_> {
    Decoded::new(Direction::FromServer, Framing::Lines, line)
}

fn get<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    response(line).raw(key)
}

fn command(line: &[u8]) -> &[u8] {
    let first = line.split(|b| matches!(b, b' ' | b'\n')).next().unwrap_or_default();
    first.strip_prefix(b"mcmd=").or(first.strip_prefix(b"cmd=")).unwrap_or(first)
}

/// Returns the words of a request. A value that contains spaces counts as several words.
fn words(line: &[u8]) -> HashSet<&[u8]> {
    line.split(|b| *b == b' ').filter(|word| !word.is_empty()).collect()
}

/// Returns whether two requests have the same meaning, according to the tuples that RFC 13 defines.
fn same_request(forwarded: &[u8], request: &[u8]) -> bool {
    let keys: &[&str] = match command(request) {
        b"get" => &["key"],
        b"publish_name" => &["service", "port"],
        b"unpublish_name" | b"lookup_name" => &["service"],
        // Only the first line of a multi-line request is known.
        _ if request.starts_with(b"mcmd=") => return true,
        _ => return words(forwarded) == words(request),
    };
    keys.iter().all(|key| get(forwarded, key) == get(request, key))
}

fn is_success(line: &[u8]) -> bool {
    get(line, "rc").is_none_or(|rc| grammar::parse_int(rc) == Some(0))
}

/// Returns whether a response and the upstream's response agree in all fields that matter to a client.
fn same_reply(seen: &[u8], given: &[u8]) -> bool {
    let keys = ["value", "port"].iter().all(|key| get(seen, key) == get(given, key));
    is_success(seen) == is_success(given) && (keys || !is_success(given))
}

impl UpstreamMonitor {
    /// Returns and removes the findings made so far.
    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Reads the next event and the messages that it completes.
    pub(crate) fn observe(&mut self, event: &Event, messages: &[CompletedMessage<'_>]) {
        self.seq = event.seq;
        match &event.kind {
            EventKind::Launched { ranks, nodes, .. } => {
                self.nodes = *nodes;
                self.sizes.insert(0, *ranks);
            }
            EventKind::Started { proc, env, .. } => {
                if let Some(size) = env.get("PMI_SIZE").and_then(|s| s.parse().ok()) {
                    self.sizes.entry(proc.group).or_insert(size);
                }
            }
            // A process that connects through PMI_PORT receives the size of its group on the connection.
            EventKind::Greeted { proc, response: received, .. } => {
                if let Ok(greeting) = Greeting::parse(&received.0) {
                    let size = *self.sizes.entry(proc.group).or_insert(greeting.size);
                    self.has_confused_processes |= greeting.size != size || greeting.rank != proc.rank;
                }
            }
            EventKind::ToServer { proc, .. } | EventKind::FromServer { proc, .. } => {
                messages.iter().for_each(|(direction, message)| self.arrived(*proc, *direction, message));
            }
            EventKind::ClosedByClient { proc }
            | EventKind::ClosedByServer { proc }
            | EventKind::Ended { proc, .. } => {
                self.client(*proc).is_gone = true;
            }
            EventKind::FromProxy { group, proxy, id, text, .. } => {
                self.request_forwarded(*group, *proxy, *id, &text.0)
            }
            EventKind::ToProxy { answers, text, .. } => self.upstream_sent(*answers, &text.0),
            // Other events do not concern the messages that proxies forward.
            _ => {}
        }
    }

    fn client(&mut self, proc: Proc) -> &mut UpstreamClient {
        self.clients.entry(proc).or_default()
    }

    fn find(&mut self, proc: Proc, requirement: &str, expected: String, seen: impl Into<ObservationText>) {
        if self.findings.len() < FINDINGS_LIMIT && !self.has_confused_processes {
            let seen = seen.into();
            self.findings.push(Finding {
                proc: Some(proc),
                seq: self.seq,
                kind: seen.kind,
                ..Finding::new(requirement, PartyKind::Server, expected, seen.text)
            });
        }
    }

    fn processes_of_proxy(&self, group: u32, proxy: u32) -> Vec<Proc> {
        let size = self.sizes.get(&group).copied().unwrap_or(0);
        let nodes = place(size, self.nodes.max(1));
        let here = (0..).zip(nodes).filter(|(_, node)| *node == proxy);
        here.map(|(rank, _)| Proc { group, rank }).collect()
    }

    // ----- messages between clients and their proxies --------------------------------------------------------------

    fn arrived(&mut self, proc: Proc, direction: Direction, message: &Result<Decoded<'_>, FramingError>) {
        let client = self.client(proc);
        match (direction, message, &mut client.frames) {
            (_, Err(_), Some(frames)) => frames.is_ambiguous = true,
            (Direction::ToServer, Err(_), None) => client.has_unparsable_lines = true,
            (Direction::FromServer, Err(_), None) => {}
            (Direction::ToServer, Ok(message), Some(frames)) => frames.read_request(message),
            (Direction::ToServer, Ok(message), None) => client.request(message),
            (Direction::FromServer, Ok(message), Some(frames)) => {
                if let Some(id) = frames.answers(message) {
                    self.answered_in_frame(proc, id, message.text);
                }
            }
            (Direction::FromServer, Ok(message), None) => {
                if message.is_success() && message.version().is_some_and(|version| version.version == 2) {
                    client.frames = Some(PendingFrames::default());
                }
                self.answered(proc, message.text);
            }
        }
    }

    fn answered(&mut self, proc: Proc, line: &[u8]) {
        let client = self.client(proc);
        let (request, forwarded) = (client.pending_request.take(), client.forwarded.take());
        let irregular = client.breaks_lock_step;
        if command(line) == b"put_result"
            && let Some(put) = client.puts.last_mut()
        {
            put.acknowledged = is_success(line);
        }
        let (Some(_), Some(id), false) = (request, forwarded, irregular) else { return };
        let Some(mine) = self.forwarded.get(&id) else { return };
        let fits = |given: &[u8]| command(given) == command(line) && same_reply(line, given);
        let Some(given) = mine.reply.clone() else {
            let other =
                self.forwarded.values().find(|p| p.client != proc && p.reply.as_deref().is_some_and(fits));
            if let Some(by) = other.map(|p| p.client) {
                let expected = format!(
                    "no answer yet, because the upstream has not answered this process's request; {} is the answer to rank {by}'s request",
                    quote_bytes(line)
                );
                self.find(proc, ids::HYDRA_UPSTREAM_REPLIES_ROUTED, expected, ObservationText::message(line));
            }
            return;
        };
        // A proxy may handle a malformed response in any way.
        if !response(&given).has_tuples() || command(&given) != command(line) || same_reply(line, &given) {
            return;
        }
        let theirs =
            self.forwarded.values().find(|p| p.client != proc && p.reply.as_deref().is_some_and(fits));
        let id = match theirs {
            Some(_) => ids::HYDRA_UPSTREAM_REPLIES_ROUTED,
            None => ids::HYDRA_UPSTREAM_REPLIES_KEPT,
        };
        self.find(
            proc,
            id,
            format!("the upstream's answer, {}", quote_bytes(&given)),
            ObservationText::message(line),
        );
    }

    // ----- messages between proxies and the upstream ---------------------------------------------------------------

    fn upstream_sent(&mut self, answers: Option<u64>, text: &[u8]) {
        let Some(passed) = answers.and_then(|id| self.forwarded.get_mut(&id)) else { return };
        let again = passed.reply.is_some();
        passed.reply = Some(text.strip_suffix(b"\n").unwrap_or(text).to_vec());
        let by = passed.client;
        self.client(by).breaks_lock_step |= again;
    }

    fn request_forwarded(&mut self, group: u32, proxy: u32, id: u64, text: &[u8]) {
        if self.clients.iter().any(|(proc, client)| proc.group == group && client.frames.is_some()) {
            return self.requested_in_frame(group, proxy, id, text);
        }
        match command(text) {
            b"mput" => self.pairs_forwarded(group, proxy, text),
            b"barrier_in" => self.barrier(group, proxy, text),
            // A proxy may send an abort on its own initiative, or for a client that has died.
            b"abort" => {}
            _ => self.requested(group, proxy, id, text),
        }
    }

    fn pairs_forwarded(&mut self, group: u32, proxy: u32, text: &[u8]) {
        let served = self.processes_of_proxy(group, proxy);
        let puts = || served.iter().filter_map(|p| self.clients.get(p)).flat_map(|c| &c.puts);
        // The end of a value that contains spaces or escapes is ambiguous.
        let illegible = served.iter().filter_map(|p| self.clients.get(p)).any(|c| c.has_unparsable_lines);
        let blurred = illegible
            || puts().any(|p| is_ambiguous(&p.value) || p.value.iter().any(|b| b" \t\\".contains(b)));
        let mut wrong = Vec::new();
        let mut keys = Vec::new();
        let mut changed = 0;
        for word in text.split(|b| *b == b' ').skip(1).filter(|word| !word.is_empty()) {
            let at = word.iter().position(|b| *b == b'=');
            let (key, value) = at.map_or((word, &b""[..]), |at| (&word[..at], &word[at + 1..]));
            let values: Vec<&[u8]> = puts().filter(|p| p.key == key).map(|p| &p.value[..]).collect();
            if !blurred && !values.contains(&value) {
                let expected = match values.first() {
                    Some(put) => {
                        format!("the value that was put for {}, {}", quote_bytes(key), quote_bytes(put))
                    }
                    None => {
                        changed += 1;
                        format!(
                            "only pairs that one of the proxy's processes has put, not {}",
                            quote_bytes(key)
                        )
                    }
                };
                wrong.push((expected, quote_bytes(word)));
            }
            keys.push(key.to_vec());
        }
        let state = self.proxies.entry((group, proxy)).or_default();
        state.forwarded_keys.extend(keys);
        state.unknown_pairs += changed;
        for (expected, seen) in wrong {
            self.find(Proc::proxy(proxy), ids::HYDRA_UPSTREAM_PUTS_KEPT, expected, seen);
        }
    }

    fn barrier(&mut self, group: u32, proxy: u32, text: &[u8]) {
        // Barriers over part of the group are not judged.
        if get(text, "group").is_some_and(|name| name != b"WORLD") {
            return;
        }
        let state = self.proxies.entry((group, proxy)).or_default();
        state.barriers += 1;
        let (round, flushed, changed) =
            (state.barriers, state.forwarded_keys.clone(), std::mem::take(&mut state.unknown_pairs));
        let served = self.processes_of_proxy(group, proxy);
        if served.iter().filter_map(|p| self.clients.get(p)).any(|c| c.has_unparsable_lines) {
            return;
        }
        let outside =
            served.iter().find(|p| self.clients.get(p).is_none_or(|c| c.entered < round && !c.is_gone));
        if let Some(outside) = outside {
            let expected = format!("every process of the proxy has entered barrier {round}");
            let entered = self.clients.get(outside).map_or(0, |c| c.entered);
            let barriers = if entered == 1 { "barrier" } else { "barriers" };
            let seen = format!("{}, when rank {outside} had entered {entered} {barriers}", quote_bytes(text));
            self.find(Proc::proxy(proxy), ids::HYDRA_UPSTREAM_BARRIER_ONCE, expected, seen);
        }
        let mut missed = Vec::new();
        for proc in served {
            // If a process does not wait for responses, it is unknown which of its puts were accepted.
            if self.client(proc).breaks_lock_step {
                continue;
            }
            for put in self.client(proc).puts.iter_mut() {
                if put.acknowledged && put.round < round && !put.loss_reported && !flushed.contains(&put.key)
                {
                    put.loss_reported = true;
                    missed.push((proc, put.key.clone()));
                }
            }
        }
        for (proc, key) in missed.into_iter().skip(changed) {
            let expected =
                format!("the put of {} by rank {proc}, forwarded before this message", quote_bytes(&key));
            self.find(Proc::proxy(proxy), ids::HYDRA_UPSTREAM_PUTS_FLUSHED, expected, quote_bytes(text));
        }
    }

    fn requested(&mut self, group: u32, proxy: u32, id: u64, text: &[u8]) {
        let served = self.processes_of_proxy(group, proxy);
        let clients = || served.iter().filter_map(|p| Some((*p, self.clients.get(p)?)));
        if clients().any(|(_, c)| c.breaks_lock_step || c.has_unparsable_lines) {
            return;
        }
        let asking: Vec<(Proc, &[u8])> = clients()
            .filter_map(|(p, c)| Some((p, c.pending_request.as_deref()?, c.forwarded)))
            // A proxy may forward each program of a spawn separately.
            .filter(|(_, request, forwarded)| {
                command(request) == command(text) && (forwarded.is_none() || command(text) == b"spawn")
            })
            .map(|(p, request, _)| (p, request))
            .collect();
        let same: Vec<Proc> =
            asking.iter().filter(|(_, request)| same_request(text, request)).map(|(p, _)| *p).collect();
        let expected = match asking.first() {
            Some((proc, request)) => format!("the request of rank {proc}, {}", quote_bytes(request)),
            None => "a request that one of the proxy's processes has made".into(),
        };
        if command(text) == b"spawn" && !same.is_empty() {
            // The forwarded text does not show which process has made the request.
            return;
        }
        let remaining = self
            .proxies
            .entry((group, proxy))
            .or_default()
            .identical_requests
            .entry(text.to_vec())
            .or_default();
        if *remaining > 0 || same.len() > 1 {
            *remaining = (*remaining + same.len()).saturating_sub(1);
            for proc in same {
                // The proxy has forwarded or will forward the request, but the number of the forwarded request is unknown.
                self.client(proc).forwarded = Some(u64::MAX);
            }
            return;
        }
        if let Some(proc) = same.first().copied() {
            self.client(proc).forwarded = Some(id);
            if self.forwarded.len() < MAX_FORWARDED_REQUESTS {
                self.forwarded.insert(id, ForwardedClientRequest { client: proc, reply: None });
            }
            return;
        }
        let known = Operation::from_request_cmd(command(text)).is_some();
        // A proxy that accepts a malformed request forwards its own interpretation of it.
        let is_broken = |line: &[u8]| !request(line).is_well_formed();
        if known && asking.iter().any(|(_, request)| is_broken(request)) {
            return;
        }
        let id = if known { ids::HYDRA_UPSTREAM_REQUESTS_KEPT } else { ids::HYDRA_UPSTREAM_UNKNOWN_KEPT };
        self.find(Proc::proxy(proxy), id, expected, quote_bytes(text));
    }
}

// ----- PMI-2 -------------------------------------------------------------------------------------------------------

/// A PMI-2 request that has not been answered yet.
#[derive(Debug)]
struct UpstreamPendingRequest {
    body: Vec<u8>,
    thrid: Option<Vec<u8>>,
    /// The number of the request among those that proxies have forwarded, as in [`UpstreamClient::forwarded`].
    forwarded: Option<u64>,
}

/// The PMI-2 messages between a process and its proxy.
#[derive(Debug, Default)]
struct PendingFrames {
    pending: Vec<UpstreamPendingRequest>,
    /// True if the proxy may have parsed a message differently from this monitor, or if the responses cannot be matched with the requests.
    is_ambiguous: bool,
}

impl PendingFrames {
    fn read_request(&mut self, message: &Decoded<'_>) {
        let is_clear = message.is_well_formed() && !is_doubled(message.text);
        if !is_clear || self.pending.len() >= MAX_FORWARDED_REQUESTS {
            self.is_ambiguous = true;
            return;
        }
        let thrid = message.value("thrid").map(Cow::into_owned);
        // Without distinct thread ids, the responses cannot be matched with the requests.
        self.is_ambiguous |= self.pending.iter().any(|other| thrid.is_none() || other.thrid == thrid);
        self.pending.push(UpstreamPendingRequest { body: message.text.to_vec(), thrid, forwarded: None });
    }

    /// Removes the pending request that a response answers, and returns its number among the forwarded requests. Returns `None` if the
    /// request was not forwarded, or if the match is ambiguous.
    fn answers(&mut self, message: &Decoded<'_>) -> Option<u64> {
        let thrid = message.value("thrid").filter(|_| !is_doubled(message.text));
        let of_thread = |other: &UpstreamPendingRequest| other.thrid.as_deref() == thrid.as_deref();
        let alone = self.pending.len() == 1;
        let at = self.pending.iter().position(of_thread).or(alone.then_some(0))?;
        self.pending.remove(at).forwarded.filter(|_| !self.is_ambiguous)
    }
}

/// Returns whether a body contains a doubled semicolon, which only some proxies unescape.
fn is_doubled(body: &[u8]) -> bool {
    body.windows(2).any(|two| two == b";;")
}

/// Decodes a body. Returns `None` if the body contains a doubled semicolon or no tuples.
fn plain(direction: Direction, body: &[u8]) -> Option<Decoded<'_>> {
    let message = Decoded::new(direction, Framing::Frames, body);
    (message.has_tuples() && !is_doubled(body)).then_some(message)
}

/// Returns whether two PMI-2 requests have the same meaning, according to the fields of their command.
fn same_frame(forwarded: &[u8], request: &[u8]) -> bool {
    let read = |body| plain(Direction::ToServer, body);
    let (Some(forwarded), Some(request)) = (read(forwarded), read(request)) else { return false };
    let mut fields =
        request.exchange().filter(|row| row.operation != "spawn").into_iter().flat_map(|row| row.arguments);
    // The origin of a request does not affect its meaning, and a count of 0 pairs may be omitted.
    let is_ignored = |field: &Field| field.numbered || matches!(field.key, "srcid" | "infokeycount");
    forwarded.command() == request.command()
        && fields.all(|field| is_ignored(field) || forwarded.raw(field.key) == request.raw(field.key))
}

/// Returns false if a PMI-2 response to the same command differs from the upstream's response in a field that matters to a client. Returns
/// true if the commands differ, or if one of the responses cannot be compared.
fn same_answer(seen: &[u8], given: &[u8]) -> bool {
    let read = |body| plain(Direction::FromServer, body).filter(Decoded::is_well_formed);
    let (Some(seen), Some(given)) = (read(seen), read(given)) else { return true };
    let keys = ["value", "port", "jobid"].iter().all(|key| seen.raw(key) == given.raw(key));
    let found = |answer: &Decoded<'_>| answer.outcome().map(|outcome| outcome == ResponseOutcome::Success);
    seen.command() != given.command()
        || found(&seen) == found(&given) && (keys || found(&given) != Some(true))
}

impl UpstreamMonitor {
    fn requested_in_frame(&mut self, group: u32, proxy: u32, id: u64, text: &[u8]) {
        let name = command_of(text);
        // A proxy may send an abort on its own initiative, or for a client that has died. Requests that the monitor cannot parse are not
        // judged.
        let Some(row) = name.and_then(|name| by_request(Framing::Frames, name)) else { return };
        let served = self.processes_of_proxy(group, proxy);
        let frames = |proc: &Proc| self.clients.get(proc).map(|client| client.frames.as_ref());
        // The requests of a process that has not negotiated PMI-2 are unknown here.
        let clear = served.iter().all(|p| matches!(frames(p), Some(Some(frames)) if !frames.is_ambiguous));
        if row.operation == "abort" || !clear {
            return;
        }
        let pending = |p: &Proc| frames(p).flatten().into_iter().flat_map(|frames| &frames.pending);
        let asking: Vec<(Proc, usize)> = served
            .iter()
            .flat_map(|p| pending(p).enumerate().map(move |(at, request)| (*p, at, request)))
            .filter(|(_, _, request)| request.forwarded.is_none() && same_frame(text, &request.body))
            .map(|(p, at, _)| (p, at))
            .collect();
        let Some((by, at)) = asking.first().copied() else {
            let of_command = |request: &&UpstreamPendingRequest| {
                request.forwarded.is_none() && command_of(&request.body) == name
            };
            let candidates =
                || served.iter().flat_map(|p| pending(p).filter(of_command).map(|request| (*p, request)));
            // Only the draft allows such bytes in a value, so a proxy may interpret the request in a different way.
            if candidates().any(|(_, request)| is_of_draft(&request.body)) {
                return;
            }
            let other = candidates().next().map(|(p, request)| (p, quote_bytes(&request.body)));
            let expected = match other {
                Some((proc, candidates)) => format!("the request of rank {proc}, {candidates}"),
                None => "a request that one of the proxy's processes has made".to_owned(),
            };
            return self.find(
                Proc::proxy(proxy),
                ids::HYDRA_UPSTREAM_REQUESTS_KEPT,
                expected,
                quote_bytes(text),
            );
        };
        // If several processes have sent identical requests, the origin of each forwarded request is unknown.
        let is_same = |request: &UpstreamPendingRequest| {
            request.forwarded == Some(u64::MAX) && same_frame(text, &request.body)
        };
        let one = asking.len() == 1 && !served.iter().any(|p| pending(p).any(is_same));
        if let Some(frames) = self.client(by).frames.as_mut() {
            frames.pending[at].forwarded = Some(if one { id } else { u64::MAX });
        }
        if one && self.forwarded.len() < MAX_FORWARDED_REQUESTS {
            self.forwarded.insert(id, ForwardedClientRequest { client: by, reply: None });
        }
    }

    fn answered_in_frame(&mut self, proc: Proc, id: u64, body: &[u8]) {
        let Some(mine) = self.forwarded.get(&id) else { return };
        let given = mine.reply.clone();
        let is_reply = |given: &[u8]| command_of(given) == command_of(body) && same_answer(body, given);
        if given.as_deref().is_some_and(|given| same_answer(body, given)) {
            return;
        }
        let theirs =
            self.forwarded.values().find(|p| p.client != proc && p.reply.as_deref().is_some_and(is_reply));
        let (id, expected) = match (theirs.map(|p| p.client), given) {
            (Some(_), Some(given)) => (
                ids::HYDRA_UPSTREAM_REPLIES_ROUTED,
                format!("the upstream's answer, {}", quote_bytes(&given)),
            ),
            (None, Some(given)) => {
                (ids::HYDRA_UPSTREAM_REPLIES_KEPT, format!("the upstream's answer, {}", quote_bytes(&given)))
            }
            (Some(by), None) => {
                let what = "no answer yet, because the upstream has not answered this process's request";
                (
                    ids::HYDRA_UPSTREAM_REPLIES_ROUTED,
                    format!("{what}; {} is the answer to rank {by}'s request", quote_bytes(body)),
                )
            }
            // A proxy may answer a request itself even if it has forwarded it.
            (None, None) => return,
        };
        self.find(proc, id, expected, quote_bytes(body));
    }
}

/// Returns whether a body has a semicolon in a value, or contains bytes that are not printable.
fn is_of_draft(body: &[u8]) -> bool {
    is_doubled(body) || body.iter().any(|b| !(b' '..=b'~').contains(b))
}

fn command_of(body: &[u8]) -> Option<&[u8]> {
    plain(Direction::ToServer, body)?.command()
}

impl UpstreamClient {
    fn request(&mut self, message: &Decoded<'_>) {
        let line = message.text;
        if self.in_block {
            self.in_block = line != b"endcmd";
            return;
        }
        match command(line) {
            b"put" => {
                if let (Some(key), Some(value)) = (message.raw("key"), message.raw("value")) {
                    let (key, value) = (key.to_vec(), value.to_vec());
                    self.puts.push(UpstreamPut {
                        key,
                        value,
                        round: self.entered,
                        acknowledged: false,
                        loss_reported: false,
                    });
                }
            }
            b"barrier_in" if message.raw("group").is_none_or(|name| name == b"WORLD") => self.entered += 1,
            _ => {}
        }
        self.in_block = line.starts_with(b"mcmd=");
        self.has_unparsable_lines |= !self.in_block && !line.starts_with(b"cmd=");
        self.breaks_lock_step |= self.pending_request.is_some();
        self.forwarded = None;
        self.pending_request = Some(line.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::connections::{Connections, decode};
    use crate::event::Bytes;
    use crate::testing::{event, events, launched, numbered};

    /// Returns a monitor that has read these events.
    fn judged(events: impl IntoIterator<Item = EventKind>) -> UpstreamMonitor {
        let (mut monitor, mut connections) = (UpstreamMonitor::default(), Connections::default());
        for event in numbered(events) {
            monitor.observe(&event, &decode(&connections.read(&event)));
        }
        monitor
    }

    /// Returns the findings about these messages. `0 > text` is a message from rank 0, and `0 < text` is a message to rank 0. `p0 > text`
    /// is a request from proxy 0, and `p0 < ID text` is the answer to request number ID, counted from 0. If `frames` is true, the ranks
    /// exchange frames.
    fn played(start: Vec<EventKind>, lines: &[&str], frames: bool) -> Vec<(String, String)> {
        let mut requests = 0;
        let kinds = lines.iter().map(|line| {
            let Some(rest) = line.strip_prefix('p') else {
                return event(&if frames {
                    line.replacen(" >", " >>", 1).replacen(" <", " <<", 1)
                } else {
                    line.to_string()
                });
            };
            let (proxy, rest) = rest.split_once(' ').unwrap();
            let (way, text) = rest.split_once(' ').unwrap();
            let proxy = proxy.parse().unwrap();
            let (id, answer) = text.split_once(' ').unwrap_or_default();
            if way == ">" {
                requests += 1;
                return EventKind::FromProxy {
                    group: 0,
                    proxy,
                    id: requests - 1,
                    text: Bytes(text.into()),
                    held: false,
                };
            }
            EventKind::ToProxy {
                group: 0,
                proxy,
                answers: id.parse().ok(),
                text: Bytes(answer.into()),
                scripted: frames,
            }
        });
        let findings = judged(start.into_iter().chain(kinds)).take_findings();
        findings.into_iter().map(|f| (f.requirement, format!("{} / {}", f.expected, f.seen))).collect()
    }

    /// Returns the findings about these messages of four ranks on two nodes.
    fn found(lines: &[&str]) -> Vec<(String, String)> {
        played(vec![launched(4, 2)], lines, false)
    }

    /// Asserts that there is a single finding, with this requirement and a text that contains `expected`.
    fn assert_reported(found: &[(String, String)], id: &str, expected: &str) {
        let [(requirement, text)] = found else { panic!("{found:?}") };
        assert_eq!(requirement, &format!("hydra.upstream.{id}"), "{text}");
        assert!(text.contains(expected), "{text}");
    }

    /// In each case, the proxy behaves correctly, or the monitor cannot determine whether it does.
    #[rstest]
    #[case::flush_and_barrier(&[
        "0 > cmd=put kvsname=k key=a value=1", "0 < cmd=put_result rc=0",
        "1 > cmd=put kvsname=k key=b value=x y", "1 < cmd=put_result rc=0",
        "2 > cmd=put kvsname=k key=c value=3", "2 < cmd=put_result rc=-1",
        "0 > cmd=barrier_in", "1 > cmd=barrier_in", "p0 > cmd=mput b=x y a=1", "p0 > cmd=barrier_in",
        "2 > cmd=barrier_in", "3 > cmd=barrier_in", "p1 > cmd=barrier_in group=WORLD count=2 total_count=4",
        "0 < cmd=barrier_out", "0 > cmd=put kvsname=k key=d value=1", "0 < cmd=put_result rc=0",
    ])]
    #[case::requests(&[
        "0 > cmd=get kvsname=k key=a", "1 > cmd=get kvsname=k key=b",
        "p0 > cmd=get kvsname=k key=b", "p0 > cmd=get kvsname=k key=a",
        "p0 < 1 cmd=get_result rc=0 value=va", "p0 < 0 cmd=get_result rc=0 value=vb",
        "1 < cmd=get_result rc=0 msg=success value=vb", "0 < cmd=get_result rc=0 value=va",
        "0 > cmd=what a=b", "p0 > cmd=what a=b", "p0 < 2 cmd=what_result rc=1", "0 < cmd=what_result rc=1",
        "0 > cmd=get kvsname=k key=PMI_process_mapping", "0 < cmd=get_result rc=0 value=(vector,(0,2,2))",
    ])]
    #[case::twice(&[
        "0 > cmd=lookup_name service=a", "p0 > cmd=lookup_name service=a",
        "p0 < 0 cmd=lookup_result rc=0 port=1", "0 < cmd=lookup_result rc=0 port=1",
        "p0 < 0 cmd=lookup_result rc=0 port=2", "0 > cmd=lookup_name service=b", "p0 > cmd=lookup_name service=b",
        "p0 < 1 cmd=lookup_result rc=0 port=3", "0 < cmd=lookup_result rc=0 port=2",
    ])]
    #[case::equal_requests(&[
        "0 > cmd=get kvsname=k key=a", "1 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
        "p0 < 0 cmd=get_result rc=-1", "1 < cmd=get_result rc=-1", "p0 > cmd=get kvsname=k key=a",
        "p0 < 1 cmd=get_result rc=0 value=1", "0 < cmd=get_result rc=0 value=1",
    ])]
    #[case::two_spawns(&[
        "0 > mcmd=spawn", "0 > endcmd", "1 > mcmd=spawn", "1 > endcmd", "p0 > mcmd=spawn", "p0 > mcmd=spawn",
        "p0 < 1 cmd=spawn_result rc=0", "1 < cmd=spawn_result rc=0",
    ])]
    #[case::pipelined_requests(&[
        "0 > cmd=get kvsname=k key=a", "0 > cmd=get_maxes", "0 < cmd=maxes", "p0 > cmd=get kvsname=k key=a",
    ])]
    #[case::unreadable_request(&["0 > key=a cmd=put value=1", "p0 > cmd=mput a=1"])]
    #[case::spawn(&[
        "1 > mcmd=spawn", "1 > nprocs=1", "1 > execname=cmd=put", "1 > endcmd", "p0 > mcmd=spawn nprocs=1",
        "p0 > mcmd=spawn nprocs=1 spawnssofar=2", "p0 < 0 cmd=spawn_result rc=-1", "1 < cmd=spawn_result rc=-1",
    ])]
    #[case::one_of_two(&["0 > cmd=publish_name service=s service=t port=p", "p0 > cmd=publish_name service=t port=p"])]
    #[case::cut_at_a_blank(&["0 > cmd=publish_name service=a b port=p", "p0 > cmd=publish_name service=a port=p"])]
    #[case::port_with_a_blank(&["0 > cmd=publish_name service=a port=b c", "p0 > cmd=publish_name service=a port=b"])]
    fn accepts_correct_proxy(#[case] lines: &[&str]) {
        assert_eq!(found(lines), []);
    }

    #[rstest]
    #[case::early_barrier("barrier-once", "rank 1 had entered 0", &["0 > cmd=barrier_in", "p0 > cmd=barrier_in"])]
    #[case::other_proxys_ranks("barrier-once", "rank 2 had entered 0", &[
        "0 > cmd=barrier_in", "1 > cmd=barrier_in", "p1 > cmd=barrier_in",
    ])]
    #[case::one_rank_twice("barrier-once", "rank 1 had entered 0", &[
        "0 > cmd=barrier_in", "0 > cmd=barrier_in", "p0 > cmd=barrier_in group=WORLD count=2 total_count=4",
    ])]
    #[case::barrier_sent_twice("barrier-once", "barrier 2", &[
        "0 > cmd=barrier_in", "1 > cmd=barrier_in", "p0 > cmd=barrier_in", "p0 > cmd=barrier_in",
    ])]
    #[case::lost_put("puts-flushed", "the put of \"a\" by rank 0", &[
        "0 > cmd=put kvsname=k key=a value=1", "0 < cmd=put_result rc=0",
        "0 > cmd=barrier_in", "1 > cmd=barrier_in", "p0 > cmd=barrier_in",
    ])]
    #[case::late_flush("puts-flushed", "\"a\"", &[
        "1 > cmd=put kvsname=k key=a value=1", "1 < cmd=put_result rc=0",
        "0 > cmd=barrier_in", "1 > cmd=barrier_in", "p0 > cmd=barrier_in", "p0 > cmd=mput a=1",
    ])]
    #[case::invented_key("puts-kept", "not \"b\"", &[
        "0 > cmd=put kvsname=k key=a value=1", "p0 > cmd=mput a=1 b=1",
    ])]
    #[case::key_of_another_rank("puts-kept", "not \"c\"", &["2 > cmd=put kvsname=k key=c value=1", "p0 > cmd=mput c=1"])]
    #[case::other_value("puts-kept", "\"1\"", &["0 > cmd=put kvsname=k key=a value=1", "p0 > cmd=mput a=2"])]
    #[case::other_key_asked("requests-kept", "key=a", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=ab",
    ])]
    #[case::invented_request("requests-kept", "a request that one of the proxy's processes", &["p0 > cmd=lookup_name service=x"])]
    #[case::equal_requests_too_often("requests-kept", "a request that one of", &[
        "0 > cmd=get kvsname=k key=a", "1 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
        "p0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
    ])]
    #[case::asked_twice("requests-kept", "a request that one of", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
    ])]
    #[case::port_of_another_request("requests-kept", "port=1", &[
        "0 > cmd=publish_name service=s port=1", "p0 > cmd=publish_name service=s port=2",
    ])]
    #[case::unknown_altered("unknown-kept", "a=b", &["0 > cmd=what a=b", "p0 > cmd=what a=c"])]
    #[case::unknown_cut("unknown-kept", "a=b", &["0 > cmd=what a=b", "p0 > cmd=what"])]
    #[case::other_value_returned("replies-kept", "value=1", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a", "p0 < 0 cmd=get_result rc=0 value=1",
        "0 < cmd=get_result rc=0 value=2",
    ])]
    #[case::failure_hidden("replies-kept", "rc=-1", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a", "p0 < 0 cmd=get_result rc=-1",
        "0 < cmd=get_result rc=0 value=2",
    ])]
    #[case::success_hidden("replies-kept", "port=4", &[
        "0 > cmd=lookup_name service=a", "p0 > cmd=lookup_name service=a", "p0 < 0 cmd=lookup_result rc=0 port=4",
        "0 < cmd=lookup_result rc=1",
    ])]
    #[case::wrong_rank("replies-routed", "rank 1", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
        "1 > cmd=get kvsname=k key=b", "p0 > cmd=get kvsname=k key=b",
        "p0 < 1 cmd=get_result rc=0 value=vb", "0 < cmd=get_result rc=0 value=vb",
    ])]
    #[case::swapped("replies-routed", "value=va", &[
        "0 > cmd=get kvsname=k key=a", "p0 > cmd=get kvsname=k key=a",
        "1 > cmd=get kvsname=k key=b", "p0 > cmd=get kvsname=k key=b",
        "p0 < 0 cmd=get_result rc=0 value=va", "p0 < 1 cmd=get_result rc=0 value=vb",
        "0 < cmd=get_result rc=0 value=vb",
    ])]
    fn reports_incorrect_proxy(#[case] id: &str, #[case] expected: &str, #[case] lines: &[&str]) {
        assert_reported(&found(lines), id, expected);
    }

    /// Returns the findings about these messages of two ranks that have negotiated PMI-2 and share a proxy.
    fn found_in_frames(lines: &[&str]) -> Vec<(String, String)> {
        let mut start = vec![launched(2, 1)];
        start.extend(events(&[
            "0 > cmd=init pmi_version=2 pmi_subversion=0",
            "0 < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0",
            "1 > cmd=init pmi_version=2 pmi_subversion=0",
            "1 < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0",
        ]));
        played(start, lines, true)
    }

    #[rstest]
    #[case::out_of_order(&[
        "0 > cmd=kvs-get;key=a;", "p0 > cmd=kvs-get;key=a;", "1 > cmd=kvs-get;key=b;", "p0 > cmd=kvs-get;key=b;",
        "p0 < 1 cmd=kvs-get-response;rc=0;found=TRUE;value=vb;", "1 < cmd=kvs-get-response;rc=0;value=vb;",
        "p0 < 0 cmd=kvs-get-response;rc=1;", "0 < cmd=kvs-get-response;found=FALSE;rc=0;",
    ])]
    #[case::answered_by_itself(&["0 > cmd=job-getid;", "0 < cmd=job-getid-response;rc=0;jobid=j;"])]
    #[case::equal_requests(&[
        "0 > cmd=kvs-fence;", "1 > cmd=kvs-fence;", "p0 > cmd=kvs-fence;", "p0 > cmd=kvs-fence;",
        "p0 < 1 cmd=kvs-fence-response;rc=0;", "0 < cmd=kvs-fence-response;rc=0;",
    ])]
    #[case::equal_requests_after_an_answer(&[
        "0 > cmd=kvs-fence;", "p0 > cmd=kvs-fence;", "p0 < 0 cmd=kvs-fence-response;rc=0;",
        "0 < cmd=kvs-fence-response;rc=0;", "0 > cmd=kvs-fence;", "1 > cmd=kvs-fence;", "p0 > cmd=kvs-fence;",
        "p0 > cmd=kvs-fence;", "p0 < 1 cmd=kvs-fence-response;rc=0;", "1 < cmd=kvs-fence-response;rc=0;",
    ])]
    #[case::two_threads(&[
        "0 > cmd=kvs-get;thrid=1;key=a;", "p0 > cmd=kvs-get;thrid=1;key=a;",
        "0 > cmd=kvs-get;thrid=2;key=b;", "p0 > cmd=kvs-get;key=b;thrid=2;",
        "p0 < 1 cmd=kvs-get-response;thrid=2;rc=0;value=b;", "0 < cmd=kvs-get-response;thrid=2;rc=0;value=b;",
    ])]
    #[case::pipelined_requests(&["0 > cmd=kvs-get;key=a;", "0 > cmd=kvs-get;key=b;", "p0 > cmd=kvs-get;key=c;"])]
    #[case::draft_value(&["0 > cmd=kvs-put;key=a;value=x;;y;", "p0 > cmd=kvs-put;key=a;value=x;"])]
    #[case::unreadable_request(&["0 > cmd=kvs-put;", "p0 > cmd=kvs-put;key=a;"])]
    #[case::abort_for_a_dead_process(&["p0 > cmd=abort;isworld=TRUE;"])]
    fn accepts_a_correct_proxy_in_pmi2(#[case] lines: &[&str]) {
        assert_eq!(found_in_frames(lines), []);
    }

    #[rstest]
    #[case::other_value("requests-kept", "value=1", &["0 > cmd=kvs-put;key=a;value=1;", "p0 > cmd=kvs-put;key=a;value=2;"])]
    #[case::asked_twice("requests-kept", "a request that one of", &[
        "0 > cmd=kvs-get;key=a;", "p0 > cmd=kvs-get;key=a;", "p0 > cmd=kvs-get;key=a;",
    ])]
    #[case::invented("requests-kept", "a request that one of", &["p0 > cmd=name-publish;name=a;port=b;"])]
    #[case::other_value_returned("replies-kept", "value=v;", &[
        "0 > cmd=kvs-get;key=a;", "p0 > cmd=kvs-get;key=a;", "p0 < 0 cmd=kvs-get-response;rc=0;value=v;",
        "0 < cmd=kvs-get-response;rc=0;value=w;",
    ])]
    #[case::failure_hidden("replies-kept", "rc=1;", &[
        "1 > cmd=kvs-put;key=a;value=v;", "p0 > cmd=kvs-put;key=a;value=v;", "p0 < 0 cmd=kvs-put-response;rc=1;",
        "1 < cmd=kvs-put-response;rc=0;",
    ])]
    #[case::reply_to_another_rank("replies-routed", "rank 1", &[
        "0 > cmd=kvs-get;key=a;", "p0 > cmd=kvs-get;key=a;", "1 > cmd=kvs-get;key=b;", "p0 > cmd=kvs-get;key=b;",
        "p0 < 1 cmd=kvs-get-response;rc=0;value=vb;", "0 < cmd=kvs-get-response;rc=0;value=vb;",
    ])]
    fn reports_an_incorrect_proxy_in_pmi2(#[case] id: &str, #[case] expected: &str, #[case] lines: &[&str]) {
        assert_reported(&found_in_frames(lines), id, expected);
    }
}
