//! Ordeals for a program: what its server says to the requests that it makes by itself, with none to two changes. An ordeal
//! depends on what the program asks in a plain run, on the seed and on its number alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::dice::Dice;
use pmi_reference::fault::variations;
use pmi_wire::{LineFramer, Operation, Request, ValueReading};

use super::super::generate::{Field, Generated, push, rng};
use super::super::session::{Line, Piece};
use super::answers::{Change, Proper, Said, change, tuples};
use super::{Ordeal, Step};
use crate::event::{Event, Proc, What};
use crate::lang::UnderTest;

/// Longest line of a plain run that is read.
const LINE_LIMIT: usize = 1 << 20;
/// Most requests of a kind that are passed over to reach a later one.
const PASSED: usize = 40;
/// What the reference server tells where the program does not ask.
const LIMITS: [i64; 3] = [256, 64, 1024];
const MAPPING: &str = "PMI_process_mapping";

/// What a program asks in a plain run.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Its requests with their answers, by rank.
    exchanges: Vec<Vec<Exchange>>,
    limits: [i64; 3],
}

#[derive(Debug, Clone)]
struct Exchange {
    op: Operation,
    mapping: bool,
    answer: Vec<Field>,
}

impl Exchange {
    /// As a scenario names it.
    fn pattern(&self) -> String {
        match self.op {
            Operation::Spawn => "mcmd=spawn".to_owned(),
            Operation::Get if self.mapping => format!("cmd=get key={MAPPING}"),
            op => format!("cmd={}", op.request_cmd()),
        }
    }

    /// Whether the pattern of another names this one, too.
    fn is_named_by(&self, other: &Self) -> bool {
        self.op == other.op && (self.mapping || !other.mapping)
    }
}

/// Lines and bytes of a run, connection by connection.
#[derive(Default)]
struct Link {
    framers: Option<[LineFramer; 2]>,
    /// A spawn request that has begun.
    spawning: bool,
    asked: VecDeque<Option<(Operation, bool)>>,
    exchanges: Vec<Exchange>,
}

impl Link {
    fn asks(&mut self, line: &[u8]) {
        if self.spawning || line.starts_with(b"mcmd=spawn") {
            self.spawning = line != b"endcmd";
            if !self.spawning {
                self.asked.push_back(Some((Operation::Spawn, false)));
            }
            return;
        }
        let request = Request::parse(line, ValueReading::ToEndOfLine).ok();
        self.asked.push_back(request.map(|request| match request {
            Request::Get { key, .. } => (Operation::Get, key == MAPPING.as_bytes()),
            other => (other.operation(), false),
        }));
    }

    fn is_answered(&mut self, line: &[u8]) {
        if let Some(Some((op, mapping))) = self.asked.pop_front()
            && op != Operation::Abort
        {
            self.exchanges.push(Exchange { op, mapping, answer: tuples(line) });
        }
    }
}

impl Trace {
    /// Reads what happened in a plain run of so many ranks; `None` if no rank asked for anything.
    pub fn read(events: &[Event], ranks: u32) -> Option<Self> {
        let mut links: BTreeMap<Proc, Link> = BTreeMap::new();
        for event in events {
            let (proc, bytes, from_us) = match &event.what {
                What::ToServer { proc, bytes } => (proc, bytes, 0),
                What::FromServer { proc, bytes } => (proc, bytes, 1),
                _ => continue,
            };
            let link = links.entry(*proc).or_default();
            let framers = link.framers.get_or_insert_with(|| [(); 2].map(|()| LineFramer::new(LINE_LIMIT)));
            framers[from_us].push(&bytes.0);
            let mut lines = Vec::new();
            while let Some(line) = framers[from_us].next_line() {
                lines.push(line.unwrap_or_default().to_vec());
            }
            for line in lines {
                if from_us == 0 { link.asks(&line) } else { link.is_answered(&line) }
            }
        }
        let mut take =
            |rank| links.remove(&Proc { group: 0, rank }).map_or(Vec::new(), |link| link.exchanges);
        let mut exchanges: Vec<Vec<Exchange>> = (0..ranks).map(&mut take).collect();
        let number = |key: &str| {
            let field = exchanges.iter().flatten().flat_map(|e| &e.answer).find(|f| f.key == key)?;
            std::str::from_utf8(bytes_of(&field.value)?).ok()?.parse().ok()
        };
        let limits = ["kvsname_max", "keylen_max", "vallen_max"].map(number);
        let limits = [0, 1, 2].map(|i| limits[i].unwrap_or(LIMITS[i]));
        let name = exchanges.iter().flatten().find(|e| e.op == Operation::Kvsname);
        let name = name.and_then(|e| e.answer.iter().find(|f| f.key == "kvsname"));
        if let Some(name) = name.and_then(|f| bytes_of(&f.value)).map(<[u8]>::to_vec) {
            let fields = exchanges.iter_mut().flatten().flat_map(|e| &mut e.answer);
            fields.for_each(|field| field.value = with_name(&field.value, &name));
        }
        exchanges.iter().any(|all| !all.is_empty()).then_some(Self { exchanges, limits })
    }
}

fn bytes_of(line: &Line) -> Option<&[u8]> {
    match &line[..] {
        [Piece::Bytes(bytes)] => Some(bytes),
        _ => None,
    }
}

/// A value in which the name of the keyval space, which is another in every run, stands as a name.
fn with_name(value: &Line, name: &[u8]) -> Line {
    let mut out = Line::new();
    for piece in value {
        let Piece::Bytes(bytes) = piece else {
            out.push(piece.clone());
            continue;
        };
        let mut rest = &bytes[..];
        while let Some(at) = memchr::memmem::find(rest, name).filter(|_| !name.is_empty()) {
            push(&mut out, Piece::Bytes(rest[..at].to_vec()));
            push(&mut out, Piece::Kvs);
            rest = &rest[at + name.len()..];
        }
        push(&mut out, Piece::Bytes(rest.to_vec()));
    }
    out
}

/// Makes the ordeal of this number from one of the traces. Without `changed`, all that is unusual is lawful.
///
/// # Panics
///
/// There is no trace.
pub fn generate(seed: u64, number: u64, traces: &[Trace], changed: bool) -> Generated<Ordeal> {
    let mut rng = rng(seed, number);
    let trace = &traces[rng.usize(..traces.len())];
    let mut maker = Maker { trace, rng: &mut rng, steps: Vec::new(), ingredients: BTreeSet::new() };
    let unusual = maker.rng.u32(0..100);
    if unusual < 15 || !changed {
        maker.vary();
    } else if unusual < 30 {
        maker.serve();
    }
    let changes = match maker.rng.u32(0..100) {
        _ if !changed => 0,
        0..50 if unusual < 30 => 0,
        0..65 => 1,
        _ => 2,
    };
    maker.change(changes);
    let Maker { steps, ingredients, .. } = maker;
    let ordeal = Ordeal { tests: UnderTest::Client, ranks: trace.exchanges.len() as u32, steps };
    Generated { session: ordeal, ingredients }
}

struct Maker<'a> {
    trace: &'a Trace,
    rng: &'a mut Dice<'a>,
    steps: Vec<Step>,
    ingredients: BTreeSet<String>,
}

impl Maker<'_> {
    fn vary(&mut self) {
        let all: Vec<&str> = variations().map(|v| v.name).collect();
        for _ in 0..self.rng.usize(1..3) {
            let name = all[self.rng.usize(..all.len())];
            if self.ingredients.insert(format!("vary:{name}")) {
                self.steps.push(Step::Head(format!("vary {name}")));
            }
        }
    }

    fn serve(&mut self) {
        let (name, numbers): (&str, &[u32]) = match self.rng.u32(0..5) {
            0 => ("keylen_max", &[20, 32, 48, 256, 1024, 65536]),
            1 | 2 => ("vallen_max", &[32, 64, 256, 4096, 65536, 1_000_000]),
            3 => ("kvsname_length", &[32, 63, 64, 127, 200]),
            _ => ("delay", &[1, 5, 20]),
        };
        let number = numbers[self.rng.usize(..numbers.len())];
        self.ingredients.insert(format!("serve:{name}"));
        self.steps.push(Step::Head(format!("serve {name}={number}")));
    }

    fn change(&mut self, changes: usize) {
        let ranks = self.trace.exchanges.len() as u32;
        let mut targets: BTreeMap<Option<u32>, BTreeMap<usize, Target>> = BTreeMap::new();
        for _ in 0..changes {
            let rank = self.rng.u32(..ranks);
            let whom = if ranks == 1 || self.rng.u32(0..10) < 4 { None } else { Some(rank) };
            let asked = &self.trace.exchanges[whom.unwrap_or(0) as usize];
            if let Some((at, target)) = self.target(asked, ranks) {
                targets.entry(whom).or_default().insert(at, target);
            }
        }
        for (whom, targets) in targets {
            let mut next = 0;
            for (at, target) in targets {
                next = self.write(whom, next, at, target);
            }
        }
    }

    /// A request and what is said to it.
    fn target(&mut self, asked: &[Exchange], ranks: u32) -> Option<(usize, Target)> {
        // A program may make very many requests of one kind.
        let kinds: BTreeSet<(Operation, bool)> = asked.iter().map(|e| (e.op, e.mapping)).collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        let kind = *kinds.get(self.rng.usize(..kinds.len().max(1)))?;
        let same: Vec<usize> =
            (0..asked.len()).filter(|i| (asked[*i].op, asked[*i].mapping) == kind).collect();
        let mut at = same[self.rng.usize(..same.len())];
        let mut every = self.rng.u32(0..8) == 0;
        if asked[..at].iter().filter(|e| e.is_named_by(&asked[at])).count() > PASSED {
            (at, every) = (same[0], true);
        }
        let exchange = &asked[at];
        let kind = exchange.op.request_cmd();
        if ranks > 1 && self.rng.u32(0..30) == 0 {
            self.ingredients.insert(format!("death:{kind}"));
            return Some((at, Target { every: false, done: Done::Kill }));
        }
        let proper =
            Proper { mapping: exchange.mapping, fields: &exchange.answer, limits: self.trace.limits };
        loop {
            let kind_of_change = Change::draw(exchange.op, exchange.mapping, self.rng);
            if let Some(said) = change(kind_of_change, &proper, self.rng) {
                self.ingredients.insert(format!("{}:{kind}", kind_of_change.name()));
                return Some((at, Target { every, done: Done::Say(said) }));
            }
        }
    }

    /// Writes what is done at a request, and passes over those of its kind since the last one.
    fn write(&mut self, whom: Option<u32>, next: usize, at: usize, target: Target) -> usize {
        let asked = &self.trace.exchanges[whom.unwrap_or(0) as usize];
        let pattern = asked[at].pattern();
        let mut put = |text: String| self.steps.push(Step::Else { whom, text });
        let passed = asked[next.min(at)..at].iter().filter(|e| e.is_named_by(&asked[at])).count();
        for _ in 0..passed {
            put(format!("C: {pattern}"));
        }
        put(format!("C: {}{pattern}", if target.every { "every " } else { "" }));
        match target.done {
            Done::Kill => put("P: kill 9".to_owned()),
            Done::Say(all) => {
                for said in all {
                    self.steps.push(match said {
                        Said::Write(lines, mode) => Step::Say { whom, lines, mode },
                        Said::Right => Step::Else { whom, text: "S: right".to_owned() },
                        Said::Close => Step::Else { whom, text: "S: close".to_owned() },
                    });
                }
            }
        }
        at + 1
    }
}

struct Target {
    every: bool,
    done: Done,
}

enum Done {
    Say(Vec<Said>),
    Kill,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::input::Input;
    use crate::event::Bytes;

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
                events.extend(all.map(|what| Event { seq: 0, time_us: 0, what }));
            }
        }
        Trace::read(&events, ranks).unwrap()
    }

    #[test]
    fn a_plain_run_is_read() {
        let read = trace(2);
        assert_eq!(read.limits, [256, 64, 1024]);
        let asked: Vec<String> = read.exchanges[1].iter().map(Exchange::pattern).collect();
        assert_eq!(asked[3..5], ["cmd=get key=PMI_process_mapping", "cmd=put"]);
        let name = &read.exchanges[0][2].answer[2];
        assert_eq!((name.key.as_str(), &name.value), ("kvsname", &vec![Piece::Kvs]));
        let value = &read.exchanges[0][6].answer[2].value;
        assert_eq!(*value, ["from ".into(), Piece::Kvs, " itself".into()]);
        assert!(Trace::read(&[], 2).is_none());
    }

    #[test]
    fn an_ordeal_depends_on_seed_and_number_alone() {
        let traces = [trace(1), trace(2)];
        for number in 0..200 {
            let make = || generate(7, number, &traces, true).session;
            assert_eq!(make(), make());
        }
        let other =
            |n: &u64| generate(7, *n, &traces, true).session != generate(8, *n, &traces, true).session;
        assert!((0..200).filter(other).count() > 190);
    }

    #[test]
    fn every_ordeal_is_a_scenario_and_every_change_strikes() {
        let traces = [trace(1), trace(3)];
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..3000 {
            let Generated { session, ingredients } = generate(1, number, &traces, true);
            let scenario = session.scenario().unwrap_or_else(|| panic!("{}", session.to_scenario("x", &[])));
            assert_eq!(Ordeal::from_scenario(&scenario), Ok(session), "{number}");
            for ingredient in ingredients {
                let (change, _) = ingredient.split_once(':').unwrap();
                *struck.entry(change.to_owned()).or_default() += 1;
            }
        }
        let all = Change::ALL.iter().map(|change| change.name());
        let missing: Vec<&str> =
            all.chain(["vary", "serve", "death"]).filter(|name| !struck.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}: {struck:?}");
    }

    #[test]
    fn a_lawful_server_says_nothing_of_its_own() {
        for number in 0..300 {
            let ordeal = generate(3, number, &[trace(2)], false).session;
            assert!(ordeal.steps.iter().all(|step| matches!(step, Step::Head(_))), "{ordeal:?}");
        }
    }

    #[test]
    fn a_later_request_is_reached_past_earlier_ones() {
        let trace = trace(1);
        let mut rng = rng(1, 1);
        let mut maker =
            Maker { trace: &trace, rng: &mut rng, steps: Vec::new(), ingredients: BTreeSet::new() };
        let target = || Target { every: false, done: Done::Say(vec![Said::Close]) };
        let next = maker.write(Some(0), 0, 3, target());
        maker.write(Some(0), next, 6, target());
        let mut text = String::new();
        maker.steps.iter().for_each(|step| step.write(&mut text));
        let expected = "0  C: cmd=get key=PMI_process_mapping\n0  S: close\n0  C: cmd=get\n0  S: close\n";
        assert_eq!(text, expected);
    }
}
