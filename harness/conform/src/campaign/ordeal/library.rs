//! Ordeals for a library: calls of it, and what its process manager says to what it asks, with none to two changes. An ordeal
//! depends on the seed and its number alone.

use std::collections::BTreeSet;

use fastrand::Rng;
use pmi_wire::Operation;

use super::super::generate::{Field, Generated, rng};
use super::super::session::Line;
use super::answers::{Change, Proper, Said, change, tuples};
use super::{Ordeal, Step};
use crate::lang::UnderTest;
use crate::play::library::KVS_PREFIX;

/// What the reference server tells.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// A call and what it may make the library ask.
struct Call {
    text: String,
    asks: Option<Asks>,
}

struct Asks {
    op: Operation,
    /// As a scenario names it.
    pattern: String,
    mapping: bool,
    answer: Vec<Field>,
}

/// Makes the ordeal of this number, of at most so many ranks. Without `changed`, all answers are as they should be.
pub fn generate(seed: u64, number: u64, ranks: u32, changed: bool) -> Generated<Ordeal> {
    let mut rng = rng(seed, number);
    let ranks = if ranks > 1 && rng.u32(0..5) == 0 { 2 } else { 1 };
    let calls = calls(&mut rng, ranks);
    let asking: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].asks.is_some()).collect();
    let changes = match rng.u32(0..100) {
        _ if !changed => 0,
        0..10 => 0,
        10..70 => 1,
        _ => 2,
    };
    let mut struck: BTreeSet<usize> = BTreeSet::new();
    struck.extend((0..changes).map(|_| asking[rng.usize(..asking.len())]));
    let (mut steps, mut ingredients) = (Vec::new(), BTreeSet::new());
    for (at, call) in calls.into_iter().enumerate() {
        if let Some(asks) = call.asks.filter(|_| struck.contains(&at)) {
            ingredients.insert(strike(asks, ranks, &mut steps, &mut rng));
        }
        steps.push(Step::Else { whom: None, text: call.text });
    }
    Generated { session: Ordeal { tests: UnderTest::Library, ranks, steps }, ingredients }
}

/// Says how a request is answered from now on; which change that is.
fn strike(asks: Asks, ranks: u32, steps: &mut Vec<Step>, rng: &mut Rng) -> String {
    // Of a barrier, all are told the same: who is in it alone would wait for the other.
    let whom = (ranks > 1 && asks.op != Operation::Barrier && rng.bool()).then(|| rng.u32(..ranks));
    let proper = Proper { mapping: asks.mapping, fields: &asks.answer, limits: LIMITS };
    let (kind, all) = loop {
        let kind = Change::ALL[rng.usize(..Change::ALL.len())];
        if let Some(said) = change(kind, &proper, rng) {
            break (kind, said);
        }
    };
    steps.push(Step::Else { whom, text: format!("C: {}", asks.pattern) });
    for said in all {
        steps.push(match said {
            Said::Write(lines, mode) => Step::Say { whom, lines, mode },
            Said::Right => Step::Say { whom, lines: vec![proper.line()], mode: Default::default() },
            Said::Close => Step::Else { whom, text: "S: close".to_owned() },
        });
    }
    format!("{}:{}", kind.name(), asks.op.request_cmd())
}

fn call(cites: &str, text: &str, asks: Option<Asks>) -> Call {
    Call { text: format!("A[{cites}]: {text} = any"), asks }
}

fn asks(op: Operation, answer: &str) -> Option<Asks> {
    let pattern = match op {
        Operation::Spawn => "mcmd=spawn".to_owned(),
        op => format!("cmd={}", op.request_cmd()),
    };
    Some(Asks { op, pattern, mapping: false, answer: tuples(answer.as_bytes()) })
}

/// A program of calls: a library asks for some things at `PMI_Init`, at each call or once.
fn calls(rng: &mut Rng, ranks: u32) -> Vec<Call> {
    let kvs = format!("{KVS_PREFIX}-0");
    let mut all = Vec::new();
    let start = match rng.u32(0..3) {
        0 => asks(Operation::Init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        1 => asks(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        _ => asks(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}")),
    };
    all.push(call("rfc13.api.init.errors", "PMI_Init(&spawned)", start));
    for n in 0..rng.usize(2..9) {
        all.push(drawn(rng, n, &kvs, ranks));
    }
    if rng.u32(0..4) > 0 {
        let answer = asks(Operation::Finalize, "cmd=finalize_ack rc=0");
        all.push(call("rfc13.api.finalize", "PMI_Finalize()", answer));
    }
    all
}

fn drawn(rng: &mut Rng, n: usize, kvs: &str, ranks: u32) -> Call {
    let room = [0, 1, 2, 16, 64, 256, 1024, 4096][rng.usize(..8)];
    let maxes = || asks(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
    let kvsname = || asks(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}"));
    let mapping = || {
        let mut found = asks(Operation::Get, &format!("cmd=get_result rc=0 value=(vector,(0,1,{ranks}))"));
        if let Some(asks) = &mut found {
            asks.pattern = "cmd=get key=PMI_process_mapping".to_owned();
            asks.mapping = true;
        }
        found
    };
    match rng.u32(0..20) {
        0..4 => {
            let mut get = asks(Operation::Get, "cmd=get_result rc=0 value=0123456789");
            if let Some(asks) = &mut get {
                asks.pattern = format!("cmd=get key=key-{n}");
            }
            let text = format!("PMI_KVS_Get(\"{kvs}\", \"key-{n}\", &value[{room}], {room})");
            call("rfc13.api.kvs-get.errors", &text, get)
        }
        4..7 => {
            let put = asks(Operation::Put, "cmd=put_result rc=0");
            let text = format!("PMI_KVS_Put(\"{kvs}\", \"put-{n}-$rank\", \"value-{n}\")");
            call("rfc13.api.kvs-put.errors", &text, put)
        }
        7 => call(
            "rfc13.api.kvs-commit.errors",
            &format!("PMI_KVS_Commit(\"{kvs}\")"),
            asks(Operation::Put, "cmd=put_result rc=0"),
        ),
        8 | 9 => call(
            "rfc13.api.barrier.errors",
            "PMI_Barrier()",
            asks(Operation::Barrier, "cmd=barrier_out rc=0"),
        ),
        10 => call(
            "rfc13.api.get-universe-size.errors",
            "PMI_Get_universe_size(&size)",
            asks(Operation::Universe, "cmd=universe_size rc=0 size=4"),
        ),
        11 => call(
            "rfc13.api.get-appnum.errors",
            "PMI_Get_appnum(&appnum)",
            asks(Operation::Appnum, "cmd=appnum rc=0 appnum=0"),
        ),
        12 => call("rfc13.api.get-clique-size.errors", "PMI_Get_clique_size(&size)", mapping()),
        13 => {
            let room = [0, 1, 2, 8][rng.usize(..4)];
            let text = format!("PMI_Get_clique_ranks(&ranks[{room}], {room})");
            call("rfc13.api.get-clique-ranks.errors", &text, mapping())
        }
        14 => {
            let text = format!("PMI_KVS_Get_my_name(&name[{room}], {room})");
            call("rfc13.api.kvs-get-my-name.errors", &text, kvsname())
        }
        15 => {
            let name = ["name", "key", "value"][rng.usize(..3)];
            call("rfc13.api.length-max.errors", &format!("PMI_KVS_Get_{name}_length_max(&length)"), maxes())
        }
        16 => {
            let text = format!("PMI_Get_id(&id[{room}], {room})");
            call("rfc13.api.kvs-get-my-name.errors", &text, kvsname())
        }
        17 => {
            let text = "PMI_Spawn_multiple(1, \"worker\", \"-x,-y\", \"2\", NULL, NULL, 0, NULL, &errors[2])";
            let spawn = asks(Operation::Spawn, "cmd=spawn_result rc=0 errcodes=0,0");
            call("rfc13.api.spawn-multiple.errors", text, spawn)
        }
        18 => call(
            "rfc13.api.name.errors",
            "PMI_Lookup_name(\"service\", &port[1024])",
            asks(Operation::Lookup, "cmd=lookup_result rc=0 port=tag#0$port#4242$"),
        ),
        _ => call(
            "rfc13.api.name.errors",
            &format!("PMI_Publish_name(\"service-{n}\", \"port\")"),
            asks(Operation::Publish, "cmd=publish_result rc=0"),
        ),
    }
}

impl Proper<'_> {
    fn line(&self) -> Line {
        super::super::generate::line(self.fields)
    }
}

