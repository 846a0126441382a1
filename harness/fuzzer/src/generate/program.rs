//! Cases for a program: what its server says to the requests that it makes by itself, with none to two mutations. A case depends on
//! what the program asks in a plain run as well.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use arbitrary::{Result, Unstructured};
use pmi_judge::LINE_LIMIT;
use pmi_judge::event::{Event, What};
use pmi_reference::fault::variations;
use pmi_scenario::ast::{Dialect, Piece, Setting, Stmt, Template, UnderTest};
use pmi_wire::pmi2::{self, Command};
use pmi_wire::{Connection, Direction, Framing, Operation, Proc, Request, ValueReading};

use super::systematic::turn;
use super::{Generator, systematic_answers};
use crate::case::Case;
use crate::client_steps::{MAPPING, asks, of_thread, pattern, says};
use crate::decisions::{percent, pick};
use crate::fields::{FieldList, frame_tuples, tuples};
use crate::mutate::{Answer, Mutation, Said};
use crate::op::Op;
use crate::pieces::{kvsname, literal, push, template, unplaced};
use crate::statement::kill;

/// A request, and whether it asks for the process mapping.
pub(super) type Kind = (Op, bool);

/// Most requests of a kind that are passed over to reach a later one.
pub(super) const PASSED: usize = 40;
/// What the reference server tells where the program does not ask.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// What a program asks in a plain run.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The protocol that it speaks.
    pub dialect: Dialect,
    /// Its requests with their answers, by rank.
    exchanges: Vec<Vec<Exchange>>,
    limits: [i64; 3],
}

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    op: Op,
    mapping: bool,
    /// The answer tells for which thread it is.
    of_thread: bool,
    answer: FieldList,
}

impl Exchange {
    pub(super) fn kind(&self) -> Kind {
        (self.op, self.mapping)
    }

    /// Whether a step that names another names this one, too.
    fn is_named_by(&self, other: &Self) -> bool {
        self.op == other.op && (self.mapping || !other.mapping) && (self.of_thread || !other.of_thread)
    }

    /// It, as a case names it.
    fn pattern(&self) -> Template {
        let pattern = pattern(self.op, self.mapping);
        if self.of_thread { of_thread(pattern) } else { pattern }
    }
}

/// What was said on a connection of a run.
struct Link {
    connection: Connection,
    /// A spawn request of PMI-1 that has begun.
    spawning: bool,
    asked: VecDeque<Option<(Op, bool)>>,
    exchanges: Vec<Exchange>,
}

impl Default for Link {
    fn default() -> Self {
        let connection = Connection::new(LINE_LIMIT);
        Self { connection, spawning: false, asked: VecDeque::new(), exchanges: Vec::new() }
    }
}

impl Link {
    /// Reads what was said in one direction.
    fn push(&mut self, direction: Direction, bytes: &[u8]) {
        self.connection.push(direction, bytes);
        while let Some(message) = self.connection.next(direction) {
            let (framing, text) = message
                .map_or((Framing::Lines, Vec::new()), |message| (message.framing, message.text.to_vec()));
            match (direction, framing) {
                (Direction::ToServer, Framing::Lines) => self.asks(&text),
                (Direction::ToServer, Framing::Frames) => self.asks_in_frame(&text),
                (Direction::FromServer, Framing::Lines) => self.is_answered(&text),
                (Direction::FromServer, Framing::Frames) => self.is_answered_in_frame(&text),
            }
        }
    }

    fn asks(&mut self, line: &[u8]) {
        if self.spawning || line.starts_with(b"mcmd=spawn") {
            self.spawning = line != b"endcmd";
            if !self.spawning {
                self.asked.push_back(Some((Operation::Spawn.into(), false)));
            }
            return;
        }
        let request = Request::parse(line, ValueReading::ToEndOfLine).ok();
        self.asked.push_back(request.map(|request| match request {
            Request::Get { key, .. } => (Operation::Get.into(), key == MAPPING.as_bytes()),
            other => (other.operation().into(), false),
        }));
    }

    fn asks_in_frame(&mut self, body: &[u8]) {
        let Ok(body) = pmi2::Body::parse(body, pmi2::Semicolons::Doubled) else { return };
        let command = body.cmd().and_then(Command::from_name);
        let mapping = command == Some(Command::InfoGetjobattr) && body.raw("key") == Some(MAPPING.as_bytes());
        self.asked.push_back(command.map(|command| (command.into(), mapping)));
    }

    fn is_answered(&mut self, line: &[u8]) {
        if let Some(Some((op, mapping))) = self.asked.pop_front()
            && !op.is_abort()
        {
            self.exchanges.push(Exchange { op, mapping, of_thread: false, answer: tuples(line) });
        }
    }

    /// The first request that it may be the answer to: those of several threads come in any order, and of several messages that
    /// are one request only one is answered.
    fn is_answered_in_frame(&mut self, body: &[u8]) {
        let name = pmi2::Body::parse(body, pmi2::Semicolons::Doubled).ok().and_then(|body| body.cmd());
        let answered = name.and_then(Command::from_response_name).map(Op::from);
        let fits = |asked: &Option<(Op, bool)>| asked.map(|(op, _)| op) == answered;
        if let Some(at) = self.asked.iter().position(fits)
            && let Some(Some((op, mapping))) = self.asked.remove(at)
        {
            let mut answer = frame_tuples(body);
            let thread = answer.iter_mut().find(|field| field.key == "thrid");
            let of_thread = thread.is_some();
            if let Some(thread) = thread {
                thread.value = template(vec![Piece::Var("thrid".to_owned())]);
            }
            self.exchanges.push(Exchange { op, mapping, of_thread, answer });
        }
    }
}

impl Trace {
    /// Reads what happened in a plain run of so many ranks; `None` if no rank asked for anything.
    pub fn read(events: &[Event], ranks: u32) -> Option<Self> {
        let mut links: BTreeMap<Proc, Link> = BTreeMap::new();
        for event in events {
            match &event.what {
                What::ToServer { proc, bytes } => {
                    links.entry(*proc).or_default().push(Direction::ToServer, &bytes.0);
                }
                What::FromServer { proc, bytes } => {
                    links.entry(*proc).or_default().push(Direction::FromServer, &bytes.0);
                }
                _ => {}
            }
        }
        let in_frames = links.values().any(|link| link.connection.negotiated() == Some(Framing::Frames));
        let dialect = if in_frames { Dialect::Pmi2 } else { Dialect::Pmi1 };
        let mut take =
            |rank| links.remove(&Proc { group: 0, rank }).map_or(Vec::new(), |link| link.exchanges);
        let mut exchanges: Vec<Vec<Exchange>> = (0..ranks).map(&mut take).collect();
        let number = |key: &str| {
            let field = exchanges.iter().flatten().flat_map(|e| &e.answer).find(|f| f.key == key)?;
            field.value.literal()?.parse().ok()
        };
        let limits = ["kvsname_max", "keylen_max", "vallen_max"].map(number);
        let limits = [0, 1, 2].map(|i| limits[i].unwrap_or(LIMITS[i]));
        // The id of a job is the name of its keyval space.
        let (op, key) = match dialect {
            Dialect::Pmi1 => (Op::from(Operation::Kvsname), "kvsname"),
            Dialect::Pmi2 => (Op::from(Command::JobGetid), "jobid"),
        };
        let name = exchanges.iter().flatten().find(|e| e.op == op);
        let name = name.and_then(|e| e.answer.iter().find(|f| f.key == key));
        if let Some(name) = name.and_then(|f| bytes_of(&f.value)).map(<[u8]>::to_vec) {
            let fields = exchanges.iter_mut().flatten().flat_map(|e| &mut e.answer);
            fields.for_each(|field| field.value = with_name(&field.value, &name));
        }
        exchanges.iter().any(|all| !all.is_empty()).then_some(Self { dialect, exchanges, limits })
    }
}

impl Trace {
    /// Its requests with their answers, by rank.
    pub(super) fn exchanges(&self) -> &[Vec<Exchange>] {
        &self.exchanges
    }

    /// What a process is told at the request of this number.
    pub(super) fn answer(&self, (at, rank): (usize, u32)) -> Answer<'_> {
        self.answer_to(&self.exchanges[rank as usize][at])
    }

    fn answer_to<'e>(&self, exchange: &'e Exchange) -> Answer<'e> {
        let Exchange { op, mapping, answer: ref fields, .. } = *exchange;
        Answer { dialect: self.dialect, op, mapping, fields, limits: self.limits }
    }
}

fn bytes_of(template: &Template) -> Option<&[u8]> {
    match &template.pieces[..] {
        [Piece::Literal { bytes, .. }] => Some(bytes),
        _ => None,
    }
}

/// A value in which the name of the keyval space, which is another in every run, stands as a name.
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

/// Cases for a program.
#[derive(Debug)]
pub struct Programs {
    /// What it asks in plain runs; one at least.
    pub traces: Vec<Trace>,
    /// Answers are changed; otherwise all that is unusual is lawful.
    pub mutate: bool,
}

impl Generator for Programs {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        // Those of more processes show more, and come more often.
        let (one, other) = (lawful.choose_index(self.traces.len())?, lawful.choose_index(self.traces.len())?);
        let trace = &self.traces[one.max(other)];
        let mut maker = Maker {
            trace,
            u: mutations,
            case: Case::speaking(trace.dialect, UnderTest::Client, trace.exchanges.len() as u32, Vec::new()),
        };
        let unusual = percent(lawful)?;
        if unusual < 15 || !self.mutate {
            maker.vary(lawful)?;
        } else if unusual < 30 {
            maker.serve(lawful)?;
        }
        let count = match percent(maker.u)? {
            _ if !self.mutate => 0,
            0..50 if unusual < 30 => 0,
            0..65 => 1,
            _ => 2,
        };
        maker.mutate(count)?;
        Ok(maker.case)
    }

    fn fixed(&self, number: u64) -> Option<Case> {
        let at = turn(number)?;
        // The run of the most processes shows the most.
        let trace = self.traces.last()?;
        let through = systematic_answers::all(trace, self.mutate).into_iter().nth(at)?;
        Some(systematic_answers::made(trace, through))
    }
}

struct Maker<'a, 'b, 'c> {
    trace: &'a Trace,
    u: &'b mut Unstructured<'c>,
    case: Case,
}

impl Maker<'_, '_, '_> {
    fn vary(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let all: Vec<&str> = variations().map(|v| v.name).collect();
        for _ in 0..u.int_in_range(1..=2)? {
            let name = pick(u, &all)?;
            if self.case.ingredients.insert(format!("vary:{name}")) {
                self.case.scenario.serving.variations.push(unplaced(name.to_owned()));
            }
        }
        Ok(())
    }

    fn serve(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (setting, numbers): (_, &[u32]) = match u.int_in_range(0..=4)? {
            // In PMI-2 the limits are the same everywhere, and nobody asks for them.
            0..3 if self.trace.dialect == Dialect::Pmi2 => (Setting::KvsnameLength, &[32, 63, 64, 127, 200]),
            0 => (Setting::KeylenMax, &[20, 32, 48, 256, 1024, 65536]),
            1 | 2 => (Setting::VallenMax, &[32, 64, 256, 4096, 65536, 1_000_000]),
            3 => (Setting::KvsnameLength, &[32, 63, 64, 127, 200]),
            _ => (Setting::Delay, &[1, 5, 20]),
        };
        let name = Setting::NAMES.iter().find(|(_, s)| *s == setting).map_or("", |(name, _)| name);
        self.case.ingredients.insert(format!("serve:{name}"));
        self.case.scenario.serving.settings.push((unplaced(setting), pick(u, numbers)?));
        Ok(())
    }

    fn mutate(&mut self, count: usize) -> Result<()> {
        let ranks = self.trace.exchanges.len() as u32;
        let mut targets: BTreeMap<Option<u32>, BTreeMap<usize, Target>> = BTreeMap::new();
        // What a program takes from others is of any length and kind, and it takes much of it.
        if count > 0 && self.u.ratio(1, 4)? {
            targets.insert(None, self.values()?);
        }
        let (mut whom, mut kind) = (Vec::new(), None);
        if count > 0 && ranks > 1 && self.u.ratio(1, 2)? {
            // At one request each may be told something else: what becomes of one does not change what the others do with theirs.
            whom.extend((0..ranks).map(Some));
            kind = self.kind(&self.trace.exchanges[0])?;
        }
        for _ in whom.len()..count {
            let rank = self.u.int_in_range(0..=ranks - 1)?;
            whom.push(if ranks == 1 || self.u.ratio(2, 5)? { None } else { Some(rank) });
        }
        for whom in whom {
            let kind = match kind {
                Some(kind) => Some(kind),
                None => self.kind(&self.trace.exchanges[whom.unwrap_or(0) as usize])?,
            };
            // A mapping that is another for each may keep them waiting for each other, which is nobody's fault.
            let is_mapping = kind.is_some_and(|(_, mapping)| mapping);
            let whom = if is_mapping && self.u.ratio(3, 4)? { None } else { whom };
            let asked = &self.trace.exchanges[whom.unwrap_or(0) as usize];
            if let Some((at, target)) = self.target(asked, kind, ranks)? {
                let targets = targets.entry(whom).or_default();
                // Who is refused once may try again.
                let same = |e: &Exchange| (e.op, e.mapping) == (asked[at].op, asked[at].mapping);
                let next = (at + 1..asked.len()).find(|next| same(&asked[*next]));
                if let Some(next) = next.filter(|_| !target.every)
                    && self.u.ratio(1, 4)?
                {
                    targets.insert(next, target.clone());
                }
                targets.insert(at, target);
            }
        }
        let mut body = Vec::new();
        for (whom, targets) in targets {
            let mut next = 0;
            for (at, target) in targets {
                next = write(self.trace, &mut body, whom, next, at, target);
            }
        }
        // Before the step that says how the program ends.
        self.case.scenario.body.splice(0..0, body);
        Ok(())
    }

    /// Other values for what the processes get.
    fn values(&mut self) -> Result<BTreeMap<usize, Target>> {
        let mut targets = BTreeMap::new();
        for (at, exchange) in self.trace.exchanges[0].iter().enumerate().take(PASSED) {
            if let Some(said) = self.trace.answer_to(exchange).with(Mutation::Value, self.u)? {
                self.case.ingredients.insert(format!("{}:{}", Mutation::Value.name(), exchange.op));
                targets.insert(at, Target { every: false, done: Done::Say(said) });
            }
        }
        Ok(targets)
    }

    /// A kind of request. A program may make very many of one.
    fn kind(&mut self, asked: &[Exchange]) -> Result<Option<(Op, bool)>> {
        let kinds: BTreeSet<(Op, bool)> = asked.iter().map(|e| (e.op, e.mapping)).collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        if kinds.is_empty() { Ok(None) } else { pick(self.u, &kinds).map(Some) }
    }

    /// A request of a kind, and what is said to it.
    fn target(
        &mut self,
        asked: &[Exchange],
        kind: Option<(Op, bool)>,
        ranks: u32,
    ) -> Result<Option<(usize, Target)>> {
        let same: Vec<usize> =
            (0..asked.len()).filter(|i| Some((asked[*i].op, asked[*i].mapping)) == kind).collect();
        if same.is_empty() {
            return Ok(None);
        }
        let mut at = pick(self.u, &same)?;
        let mut every = self.u.ratio(1, 6)?;
        if asked[..at].iter().filter(|e| e.is_named_by(&asked[at])).count() > PASSED {
            (at, every) = (same[0], true);
        }
        let exchange = &asked[at];
        let kind = exchange.op;
        if ranks > 1 && self.u.ratio(1, 30)? {
            self.case.ingredients.insert(format!("death:{kind}"));
            return Ok(Some((at, Target { every: false, done: Done::Kill })));
        }
        let (mutation, said) = self.trace.answer_to(exchange).mutated(self.u)?;
        self.case.ingredients.insert(format!("{}:{kind}", mutation.name()));
        Ok(Some((at, Target { every, done: Done::Say(said) })))
    }
}

/// Writes what is done at a request, and passes over those of its kind since the last one.
pub(super) fn write(
    trace: &Trace,
    body: &mut Vec<Stmt>,
    whom: Option<u32>,
    next: usize,
    at: usize,
    target: Target,
) -> usize {
    let asked = &trace.exchanges[whom.unwrap_or(0) as usize];
    let wanted = asked[at].pattern();
    let passed = asked[next.min(at)..at].iter().filter(|e| e.is_named_by(&asked[at])).count();
    body.extend((0..passed).map(|_| asks(whom, wanted.clone(), false)));
    body.push(asks(whom, wanted, target.every));
    match target.done {
        Done::Kill => body.push(match whom {
            Some(rank) => kill(rank, 9),
            None => crate::client_steps::kill_all(9),
        }),
        Done::Say(all) => body.extend(all.into_iter().map(|said| says(whom, said))),
    }
    at + 1
}

#[derive(Clone)]
pub(super) struct Target {
    pub(super) every: bool,
    pub(super) done: Done,
}

#[derive(Clone)]
pub(super) enum Done {
    Say(Vec<Said>),
    Kill,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::numbered;
    use crate::pieces::Limit;
    use crate::testing::{mutations, read_again};
    use pmi_judge::event::Bytes;

    /// What a small program of so many ranks asks.
    fn trace(ranks: u32) -> Trace {
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
                    What::ToServer { proc, bytes: bytes(request) },
                    What::FromServer { proc, bytes: bytes(response) },
                ];
                events.extend(all.map(|what| Event::new(0, what)));
            }
        }
        Trace::read(&events, ranks).unwrap()
    }

    /// The same in PMI-2, with a thread that has a number.
    fn pmi2_trace(ranks: u32) -> Trace {
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
                    What::ToServer { proc, bytes: Bytes(request.into_bytes()) },
                    What::FromServer { proc, bytes: Bytes(response.into_bytes()) },
                ];
                events.extend(all.map(|what| Event::new(0, what)));
            };
            say(
                "cmd=init pmi_version=2 pmi_subversion=0\n".to_owned(),
                "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_owned(),
            );
            exchanges.iter().for_each(|(request, response)| say(frame(request), frame(response)));
        }
        Trace::read(&events, ranks).unwrap()
    }

    fn programs(mutate: bool) -> Programs {
        Programs { traces: vec![trace(1), trace(3)], mutate }
    }

    /// The sessions that are not drawn.
    fn fixed(programs: &Programs) -> Vec<Case> {
        (0..2000).filter_map(|number| programs.fixed(number)).collect()
    }

    #[test]
    fn each_session_that_is_not_drawn_is_another_one_and_is_read_again() {
        for traces in [vec![trace(1), trace(3)], vec![pmi2_trace(1), pmi2_trace(3)]] {
            let all = fixed(&Programs { traces, mutate: true });
            all.iter().for_each(read_again);
            assert!(all.iter().all(|case| case.ranks() == 3 && case.ingredients.len() < 20));
            let struck: BTreeSet<String> = all.iter().flat_map(mutations).collect();
            for name in ["value", "pieces", "order", "refusal", "number", "mapping", "vary", "serve"] {
                assert!(struck.contains(name), "{name}: {struck:?}");
            }
            let texts: BTreeSet<String> = all.iter().map(Case::text).collect();
            assert_eq!(texts.len(), all.len());
        }
    }

    #[test]
    fn an_answer_is_parted_at_each_place_and_each_request_is_refused_with_each_code() {
        let all: String = fixed(&programs(true)).iter().map(Case::text).collect();
        for at in 1.."cmd=barrier_out rc=0".len() {
            let (first, second) = "cmd=barrier_out rc=0".split_at(at);
            let first = first.trim_end();
            assert!(all.contains(first) && all.contains(second.trim_start()), "{first}");
        }
        for answer in ["maxes", "my_kvsname", "put_result", "barrier_out", "get_result", "finalize_ack"] {
            for code in ["-1", "1", "256", "2147483648"] {
                assert!(all.contains(&format!("cmd={answer} rc={code}\n")), "{answer} {code}");
            }
        }
        assert!(all.contains("cmd=get_result rc=-1 msg=<fill 100>"));
    }

    #[test]
    fn without_mutations_only_the_server_is_unusual() {
        for case in fixed(&programs(false)) {
            assert_eq!(case.scenario.body, [crate::statement::ends()], "{}", case.text());
        }
    }

    #[test]
    fn a_plain_run_is_read() {
        let read = trace(2);
        assert_eq!(read.limits, [256, 64, 1024]);
        assert_eq!(Limit::ALL.len(), read.limits.len());
        let asked: Vec<_> = read.exchanges[1].iter().map(|e| (e.op, e.mapping)).collect();
        assert_eq!(asked[3..5], [(Operation::Get.into(), true), (Operation::Put.into(), false)]);
        let name = &read.exchanges[0][2].answer[2];
        assert_eq!((name.key.as_str(), &name.value.pieces), ("kvsname", &vec![kvsname()]));
        let value = &read.exchanges[0][6].answer[2].value.pieces;
        assert_eq!(*value, [literal("from "), kvsname(), literal(" itself")]);
        assert!(Trace::read(&[], 2).is_none());
        let read = pmi2_trace(2);
        assert_eq!((trace(1).dialect, read.dialect), (Dialect::Pmi1, Dialect::Pmi2));
        let asked: Vec<_> = read.exchanges[1].iter().map(|e| (e.op, e.mapping, e.of_thread)).collect();
        assert_eq!(asked[0], (Operation::Init.into(), false, false));
        assert_eq!(
            asked[3..5],
            [(Command::InfoGetjobattr.into(), true, false), (Command::KvsPut.into(), false, true)]
        );
        assert_eq!(read.exchanges[0][2].answer[2].value.pieces, [kvsname()]);
        assert_eq!(read.exchanges[0][6].answer[3].value.pieces, [literal("b;;")]);
    }

    #[test]
    fn a_case_depends_on_seed_and_number_alone() {
        let programs = programs(true);
        for number in 0..200 {
            let make = || numbered(&programs, 7, number).scenario;
            assert_eq!(make(), make());
        }
        let other = |n: &u64| numbered(&programs, 7, *n).scenario != numbered(&programs, 8, *n).scenario;
        // Every second one is not drawn.
        assert!((0..400).filter(other).count() > 150);
    }

    #[test]
    fn every_case_is_read_again_as_it_was_written_and_every_mutation_strikes() {
        let programs = programs(true);
        let mut struck = BTreeSet::new();
        for number in 0..3000 {
            let case = numbered(&programs, 1, number);
            read_again(&case);
            struck.extend(mutations(&case));
        }
        let all = Mutation::OF_ANSWERS.iter().map(|mutation| mutation.name());
        let missing: Vec<&str> =
            all.chain(["vary", "serve", "death"]).filter(|name| !struck.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}: {struck:?}");
    }

    #[test]
    fn in_pmi2_every_mutation_of_an_answer_strikes_as_well() {
        let programs = Programs { traces: vec![pmi2_trace(1), pmi2_trace(3)], mutate: true };
        let (mut struck, mut texts) = (BTreeSet::new(), String::new());
        for number in 0..3000 {
            let case = numbered(&programs, 1, number);
            read_again(&case);
            struck.extend(mutations(&case));
            texts += &case.text();
        }
        let all = Mutation::OF_PMI2_ANSWERS.iter().map(|mutation| mutation.name());
        let missing: Vec<&str> =
            all.chain(["vary", "serve", "death"]).filter(|name| !struck.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}: {struck:?}");
        for part in
            ["dialect pmi-2", "thrid=$thrid", "S: <bytes>", "S: <line> cmd=response_to_init", "S: <body>"]
        {
            assert!(texts.contains(part), "{part}");
        }
    }

    #[test]
    fn a_lawful_server_says_nothing_of_its_own() {
        let programs = programs(false);
        for number in 0..300 {
            let case = numbered(&programs, 3, number);
            assert_eq!(case.scenario.body, [crate::statement::ends()], "{}", case.text());
        }
    }

    #[test]
    fn a_later_request_is_reached_past_earlier_ones() {
        let trace = trace(1);
        let target = || Target { every: false, done: Done::Say(vec![Said::Close]) };
        let mut body = Vec::new();
        let next = write(&trace, &mut body, Some(0), 0, 3, target());
        write(&trace, &mut body, Some(0), next, 6, target());
        let mapping = asks(Some(0), pattern(Operation::Get.into(), true), false);
        let get = asks(Some(0), pattern(Operation::Get.into(), false), false);
        let close = || says(Some(0), Said::Close);
        assert_eq!(body, [mapping, close(), get, close()]);
    }
}
