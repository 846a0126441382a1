//! A program's requests in a plain run, and the steps with which a case responds to one of these requests.

use std::collections::BTreeMap;

use pmi_judge::LINE_LIMIT;
use pmi_judge::event::{Event, EventKind};
use pmi_scenario::ast::{Dialect, Piece, Statement, Template};
use pmi_wire::{Connection, Direction, Framed, Framing, Operation, Proc};

use crate::mutate::client_steps::{MAPPING, kill_all, of_thread, pattern, request_step, response_step};
use crate::mutate::{CorrectResponse, ResponseStep};
use crate::session::fields::{FieldList, MessageField, tuples_of};
use crate::session::op::Op;
use crate::session::pieces::{Limit, kvsname, literal, push, template};
use crate::session::reading::request;
use crate::session::statement::kill;

/// The operation of a request, and whether it requests the process mapping.
pub(super) type RequestKind = (Op, bool);

/// Maximum number of requests of a kind that a case skips to reach a later request.
pub(super) const MAX_SKIPPED_REQUESTS: usize = 40;
/// The limits of the reference server, for a program that does not request limits.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// A program's requests in a plain run, in which the server does nothing unusual.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The dialect that the program uses.
    pub dialect: Dialect,
    /// The program's requests with their responses, by rank.
    exchanges: Vec<Vec<TracedRequest>>,
    limits: [i64; 3],
}

#[derive(Debug, Clone)]
pub(super) struct TracedRequest {
    pub(super) op: Op,
    pub(super) mapping: bool,
    /// True if the response has a thread number.
    of_thread: bool,
    pub(super) answer: FieldList,
}

impl TracedRequest {
    pub(super) fn kind(&self) -> RequestKind {
        (self.op, self.mapping)
    }

    /// Returns whether the pattern of `other` also matches this request.
    pub(super) fn matches_pattern_of(&self, other: &Self) -> bool {
        self.op == other.op && (self.mapping || !other.mapping) && (self.of_thread || !other.of_thread)
    }

    /// Returns the pattern that matches the request in a case.
    pub(super) fn pattern(&self) -> Template {
        let pattern = pattern(self.op, self.mapping);
        if self.of_thread { of_thread(pattern) } else { pattern }
    }
}

/// The messages on a single connection of a run.
struct ConnectionTrace {
    connection: Connection,
    pending: Vec<(Op, bool)>,
    exchanges: Vec<TracedRequest>,
}

impl Default for ConnectionTrace {
    fn default() -> Self {
        Self { connection: Connection::new(LINE_LIMIT), pending: Vec::new(), exchanges: Vec::new() }
    }
}

impl ConnectionTrace {
    /// Reads bytes that were sent in one direction.
    fn push(&mut self, direction: Direction, bytes: &[u8]) {
        self.connection.push(direction, bytes);
        while let Some(message) = self.connection.next(direction) {
            let Ok(Framed { framing, text }) = message else { continue };
            let fields = tuples_of(framing, text);
            match direction {
                // This line completes a PMI-1 spawn request.
                Direction::ToServer if text == b"endcmd" => {
                    self.pending.push((Operation::Spawn.into(), false));
                }
                Direction::ToServer => {
                    let (op, is_complete) = request(framing, text);
                    let op = op.filter(|op| is_complete && !op.exchange().is_block);
                    self.pending.extend(op.map(|op| (op, requests_mapping(op, &fields))));
                }
                Direction::FromServer => self.assign_response(fields),
            }
        }
    }

    /// Assigns a response to the first pending request with the same operation. Responses to several threads may arrive in any order, and a
    /// request that consists of several messages gets only one response.
    fn assign_response(&mut self, mut answer: FieldList) {
        let name = answer.first().and_then(|command| command.value.literal());
        let answered = name.and_then(|name| Op::of_response(name.as_bytes()));
        if let Some(at) = self.pending.iter().position(|(op, _)| Some(*op) == answered) {
            let (op, mapping) = self.pending.remove(at);
            let thread = answer.iter_mut().find(|field| field.key == "thrid");
            let of_thread = thread.is_some();
            if let Some(thread) = thread {
                thread.value = template(vec![Piece::Var("thrid".to_owned())]);
            }
            self.exchanges.push(TracedRequest { op, mapping, of_thread, answer });
        }
    }
}

/// Returns whether a request asks for the process mapping, which is an attribute of the job in PMI-2 and a key in PMI-1.
fn requests_mapping(op: Op, fields: &FieldList) -> bool {
    let may_request = match op.framing() {
        Framing::Lines => op.is(&["get"]),
        Framing::Frames => op.is(&["get-job-attribute"]),
    };
    let is_mapping =
        |field: &MessageField| field.key == "key" && field.value.literal().as_deref() == Some(MAPPING);
    may_request && fields.iter().any(is_mapping)
}

impl Trace {
    /// Reads the events of a plain run with this number of ranks. Returns `None` if no rank made a request.
    pub fn read(events: &[Event], ranks: u32) -> Option<Self> {
        let mut links: BTreeMap<Proc, ConnectionTrace> = BTreeMap::new();
        for event in events {
            match &event.kind {
                EventKind::ToServer { proc, bytes } => {
                    links.entry(*proc).or_default().push(Direction::ToServer, &bytes.0);
                }
                EventKind::FromServer { proc, bytes } => {
                    links.entry(*proc).or_default().push(Direction::FromServer, &bytes.0);
                }
                _ => {}
            }
        }
        let speaks = |framing| links.values().any(|link| link.connection.negotiated() == Some(framing));
        let spoken = Dialect::ALL.into_iter().rev().find(|dialect| speaks(dialect.framing()));
        let dialect = spoken.unwrap_or_default();
        let mut take =
            |rank| links.remove(&Proc { group: 0, rank }).map_or(Vec::new(), |link| link.exchanges);
        let mut exchanges: Vec<Vec<TracedRequest>> = (0..ranks).map(&mut take).collect();
        let number = |key: &str| {
            let field = exchanges.iter().flatten().flat_map(|e| &e.answer).find(|f| f.key == key)?;
            field.value.literal()?.parse().ok()
        };
        let limits = Limit::ALL.map(|limit| number(limit.name()).unwrap_or(LIMITS[limit as usize]));
        // In PMI-2, the job id serves as the name of the keyval space.
        let name = exchanges.iter().flatten().find(|e| e.op.is(&["kvsname"]));
        let name = name.and_then(|e| {
            let (key, _) = e.op.bindings().next()?;
            e.answer.iter().find(|f| f.key == key)
        });
        if let Some(name) = name.and_then(|f| bytes_of(&f.value)).map(<[u8]>::to_vec) {
            let fields = exchanges.iter_mut().flatten().flat_map(|e| &mut e.answer);
            fields.for_each(|field| field.value = with_name(&field.value, &name));
        }
        exchanges.iter().any(|all| !all.is_empty()).then_some(Self { dialect, exchanges, limits })
    }

    /// Returns the requests with their responses, by rank.
    pub(super) fn exchanges(&self) -> &[Vec<TracedRequest>] {
        &self.exchanges
    }

    /// Returns the response to the request with this index and rank.
    pub(super) fn answer(&self, (at, rank): (usize, u32)) -> CorrectResponse<'_> {
        self.answer_to(&self.exchanges[rank as usize][at])
    }

    pub(super) fn answer_to<'e>(&self, exchange: &'e TracedRequest) -> CorrectResponse<'e> {
        let TracedRequest { op, mapping, answer: ref fields, .. } = *exchange;
        CorrectResponse { dialect: self.dialect, op, mapping, fields, limits: self.limits }
    }
}

fn bytes_of(template: &Template) -> Option<&[u8]> {
    match &template.pieces[..] {
        [Piece::Literal { bytes, .. }] => Some(bytes),
        _ => None,
    }
}

/// Replaces the name of the keyval space, which differs in every run, with a variable.
fn with_name(value: &Template, name: &[u8]) -> Template {
    let mut out = Template::default();
    for piece in &value.pieces {
        let Piece::Literal { bytes, .. } = piece else {
            push(&mut out, piece.clone());
            continue;
        };
        let mut rest = &bytes[..];
        while let Some(at) = memchr::memmem::find(rest, name).filter(|_| !name.is_empty()) {
            push(&mut out, literal(&rest[..at]));
            push(&mut out, kvsname());
            rest = &rest[at + name.len()..];
        }
        push(&mut out, literal(rest));
    }
    out
}

/// Appends steps that skip the earlier requests with the same pattern, and then the steps for the request itself. If `process` is `None`,
/// the steps apply to every process. Returns the index of the next request.
pub(super) fn write(
    trace: &Trace,
    body: &mut Vec<Statement>,
    process: Option<u32>,
    next: usize,
    at: usize,
    target: ResponseReplacement,
) -> usize {
    let requests = &trace.exchanges[process.unwrap_or(0) as usize];
    let wanted = requests[at].pattern();
    let passed = requests[next.min(at)..at].iter().filter(|e| e.matches_pattern_of(&requests[at])).count();
    body.extend((0..passed).map(|_| request_step(process, wanted.clone(), false)));
    body.push(request_step(process, wanted, target.replaces_all));
    match target.action {
        RequestAction::Kill => body.push(match process {
            Some(rank) => kill(rank, 9),
            None => kill_all(9),
        }),
        RequestAction::Respond(all) => body.extend(all.into_iter().map(|step| response_step(process, step))),
    }
    at + 1
}

#[derive(Clone)]
pub(super) struct ResponseReplacement {
    pub(super) replaces_all: bool,
    pub(super) action: RequestAction,
}

#[derive(Clone)]
pub(super) enum RequestAction {
    Respond(Vec<ResponseStep>),
    Kill,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::session::pieces::Limit;
    use pmi_judge::event::Bytes;

    /// Returns the trace of a small program with this number of ranks.
    pub(in super::super) fn trace(ranks: u32) -> Trace {
        let exchanges = [
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            ),
            ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=k1-0"),
            ("cmd=get kvsname=k1-0 key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,1,2))"),
            ("cmd=put kvsname=k1-0 key=a value=b", "cmd=put_result rc=0"),
            ("cmd=barrier_in", "cmd=barrier_out rc=0"),
            ("cmd=get kvsname=k1-0 key=a", "cmd=get_result rc=0 value=from k1-0 itself"),
            ("cmd=finalize", "cmd=finalize_ack rc=0"),
        ];
        let mut events = Vec::new();
        for (request, response) in exchanges {
            for rank in 0..ranks {
                let proc = Proc { group: 0, rank };
                let bytes = |line: &str| Bytes(format!("{line}\n").into_bytes());
                let all = [
                    EventKind::ToServer { proc, bytes: bytes(request) },
                    EventKind::FromServer { proc, bytes: bytes(response) },
                ];
                events.extend(all.map(|kind| Event::new(0, kind)));
            }
        }
        Trace::read(&events, ranks).unwrap()
    }

    /// Returns the trace of a small PMI-2 program with this number of ranks. One of its requests has a thread number.
    pub(in super::super) fn pmi2_trace(ranks: u32) -> Trace {
        let exchanges = [
            ("cmd=fullinit;pmirank=0;", "cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;"),
            ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=k1-0;"),
            (
                "cmd=info-getjobattr;key=PMI_process_mapping;",
                "cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,2));rc=0;",
            ),
            ("cmd=kvs-put;thrid=0x7f;key=a;value=b;;;", "cmd=kvs-put-response;thrid=0x7f;rc=0;"),
            ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
            ("cmd=kvs-get;key=a;", "cmd=kvs-get-response;rc=0;found=TRUE;value=b;;;"),
            ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
        ];
        let frame = |body: &str| format!("{:>6}{body}", body.len());
        let mut events = Vec::new();
        for rank in 0..ranks {
            let proc = Proc { group: 0, rank };
            let mut say = |request: String, response: String| {
                let all = [
                    EventKind::ToServer { proc, bytes: Bytes(request.into_bytes()) },
                    EventKind::FromServer { proc, bytes: Bytes(response.into_bytes()) },
                ];
                events.extend(all.map(|kind| Event::new(0, kind)));
            };
            say(
                "cmd=init pmi_version=2 pmi_subversion=0\n".to_owned(),
                "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_owned(),
            );
            exchanges.iter().for_each(|(request, response)| say(frame(request), frame(response)));
        }
        Trace::read(&events, ranks).unwrap()
    }

    #[test]
    fn reads_exchanges_and_limits_from_a_plain_run() {
        let read = trace(2);
        assert_eq!(read.limits, [256, 64, 1024]);
        assert_eq!(Limit::ALL.len(), read.limits.len());
        let kinds: Vec<_> = read.exchanges[1].iter().map(|e| (e.op, e.mapping)).collect();
        assert_eq!(kinds[3..5], [(Operation::Get.into(), true), (Operation::Put.into(), false)]);
        let name = &read.exchanges[0][2].answer[2];
        assert_eq!((name.key.as_str(), &name.value.pieces), ("kvsname", &vec![kvsname()]));
        let value = &read.exchanges[0][6].answer[2].value.pieces;
        assert_eq!(*value, [literal("from "), kvsname(), literal(" itself")]);
        assert!(Trace::read(&[], 2).is_none());
        let read = pmi2_trace(2);
        assert_eq!((trace(1).dialect, read.dialect), (Dialect::Pmi1, Dialect::Pmi2));
        let kinds: Vec<_> = read.exchanges[1].iter().map(|e| (e.op, e.mapping, e.of_thread)).collect();
        assert_eq!(kinds[0], (Operation::Init.into(), false, false));
        assert_eq!(
            kinds[3..5],
            [
                (Op::of(Dialect::Pmi2, "get-job-attribute").unwrap(), true, false),
                (Op::of(Dialect::Pmi2, "put").unwrap(), false, true)
            ]
        );
        assert_eq!(read.exchanges[0][2].answer[2].value.pieces, [kvsname()]);
        assert_eq!(read.exchanges[0][6].answer[3].value.pieces, [literal("b;;")]);
    }
}
