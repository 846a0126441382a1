//! Ordeals for a library: calls of it, and what its process manager says to what it asks, with none to two changes. An ordeal
//! depends on the seed and its number alone.

use std::collections::BTreeSet;

use super::super::dice::Dice;
use pmi_wire::Operation;

use super::super::generate::{Field, Generated, line, rng};
use super::answers::{Change, Proper, Said, change, tuples};
use super::{Ordeal, Step};
use crate::lang::UnderTest;
use crate::play::library::KVS_PREFIX;

/// What the reference server tells.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// A call and what it may make the library ask.
struct Call {
    /// The requirement that speaks of its failures.
    cites: &'static str,
    function: &'static str,
    /// As the scenario writes them.
    arguments: Vec<String>,
    asks: Option<Asks>,
}

impl Call {
    fn text(&self) -> String {
        format!("A[{}]: {}({}) = any", self.cites, self.function, self.arguments.join(", "))
    }
}

struct Asks {
    op: Operation,
    /// As a scenario names it.
    pattern: String,
    mapping: bool,
    answer: Vec<Field>,
}

/// What may be drawn.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Most ranks.
    pub ranks: u32,
    /// Answers and arguments are changed.
    pub change: bool,
    /// The library asks us. What one asks that does so elsewhere is not ours to answer, nor do its ranks find each other.
    pub wire: bool,
}

/// Makes the ordeal of this number.
pub fn generate(seed: u64, number: u64, scope: Scope) -> Generated<Ordeal> {
    let mut rng = rng(seed, number);
    let ranks = if scope.wire && scope.ranks > 1 && rng.u32(0..5) == 0 { 2 } else { 1 };
    let mut calls = calls(&mut rng, ranks);
    let changes = match rng.u32(0..100) {
        _ if !scope.change => 0,
        0..10 => 0,
        10..70 => 1,
        _ => 2,
    };
    let asking: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].asks.is_some()).collect();
    let (mut struck, mut ingredients) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..changes {
        if !scope.wire || rng.u32(0..5) == 0 {
            ingredients.extend(misuse(&mut calls, &mut rng));
        } else {
            struck.insert(asking[rng.usize(..asking.len())]);
        }
    }
    let mut steps = Vec::new();
    for (at, mut call) in calls.into_iter().enumerate() {
        match call.asks.take().filter(|_| scope.wire) {
            Some(asks) if struck.contains(&at) => {
                ingredients.insert(strike(asks, ranks, &mut steps, &mut rng));
            }
            // Nobody has put what is asked for, so that it is we who have to find it.
            Some(asks) if asks.op == Operation::Get && !asks.mapping && rng.bool() => {
                steps.push(Step::Else { whom: None, text: format!("C: {}", asks.pattern) });
                let lines = vec![line(&asks.answer)];
                steps.push(Step::Say { whom: None, lines, mode: Default::default() });
            }
            _ => {}
        }
        steps.push(Step::Else { whom: None, text: call.text() });
    }
    Generated { session: Ordeal { tests: UnderTest::Library, ranks, steps }, ingredients }
}

/// Calls that show whether a library asks us: it initializes itself and enters a barrier.
pub(super) fn sign_of_life() -> Ordeal {
    let call = |text: &str| Step::Else { whom: None, text: text.to_owned() };
    let steps = vec![call("A: PMI_Init(&spawned) = any"), call("A: PMI_Barrier() = any")];
    Ordeal { tests: UnderTest::Library, ranks: 1, steps }
}

/// Makes one argument of a call odd, or a call come at another time; which change that is. Nothing that the library is told of
/// the room that it has is untrue.
fn misuse(calls: &mut Vec<Call>, rng: &mut Dice<'_>) -> Option<String> {
    const TEXTS: &[&str] =
        &["NULL", "\"\"", "\"a b\"", "\"a=b\"", "\"<fill 64>\"", "\"<fill 256>\"", "\"<fill 5000>\""];
    let at = rng.usize(..calls.len());
    let function = calls[at].function;
    if rng.u32(0..3) == 0 {
        let moved = calls.remove(at);
        let to = rng.usize(0..=calls.len());
        calls.insert(to, moved);
        return Some(format!("order:{function}"));
    }
    // Of the arrays of a spawn, all have the length that one argument tells.
    if function == "PMI_Spawn_multiple" || calls[at].arguments.is_empty() {
        return None;
    }
    let arguments = &mut calls[at].arguments;
    let which = rng.usize(..arguments.len());
    arguments[which] = match arguments[which].as_bytes()[0] {
        b'"' => TEXTS[rng.usize(..TEXTS.len())].to_owned(),
        b'&' => "NULL".to_owned(),
        // One is odd already.
        b'N' => return None,
        _ => ["0", "0-1", "0-1000000000"][rng.usize(..3)].to_owned(),
    };
    Some(format!("argument:{function}"))
}

/// Says how a request is answered from now on; which change that is.
fn strike(asks: Asks, ranks: u32, steps: &mut Vec<Step>, rng: &mut Dice<'_>) -> String {
    // Of a barrier, all are told the same: who is in it alone would wait for the other.
    let whom = (ranks > 1 && asks.op != Operation::Barrier && rng.bool()).then(|| rng.u32(..ranks));
    let proper = Proper { mapping: asks.mapping, fields: &asks.answer, limits: LIMITS };
    let (kind, all) = loop {
        let kind = Change::draw(asks.op, asks.mapping, rng);
        if let Some(said) = change(kind, &proper, rng) {
            break (kind, said);
        }
    };
    steps.push(Step::Else { whom, text: format!("C: {}", asks.pattern) });
    for said in all {
        steps.push(match said {
            Said::Write(lines, mode) => Step::Say { whom, lines, mode },
            Said::Right => Step::Say { whom, lines: vec![line(proper.fields)], mode: Default::default() },
            Said::Close => Step::Else { whom, text: "S: close".to_owned() },
        });
    }
    format!("{}:{}", kind.name(), asks.op.request_cmd())
}

fn call(cites: &'static str, function: &'static str, arguments: &[&str], asks: Option<Asks>) -> Call {
    Call { cites, function, arguments: arguments.iter().map(|a| (*a).to_owned()).collect(), asks }
}

fn asks(op: Operation, answer: &str) -> Option<Asks> {
    let pattern = match op {
        Operation::Spawn => "mcmd=spawn".to_owned(),
        op => format!("cmd={}", op.request_cmd()),
    };
    Some(Asks { op, pattern, mapping: false, answer: tuples(answer.as_bytes()) })
}

/// A program of calls: a library asks for some things at `PMI_Init`, at each call or once.
fn calls(rng: &mut Dice<'_>, ranks: u32) -> Vec<Call> {
    let kvs = format!("{KVS_PREFIX}-0");
    let mut all = Vec::new();
    let start = match rng.u32(0..3) {
        0 => asks(Operation::Init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        1 => asks(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        _ => asks(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}")),
    };
    all.push(call("rfc13.api.init.errors", "PMI_Init", &["&spawned"], start));
    for n in 0..rng.usize(2..9) {
        all.push(drawn(rng, n, &kvs, ranks));
    }
    if rng.u32(0..4) > 0 {
        let answer = asks(Operation::Finalize, "cmd=finalize_ack rc=0");
        all.push(call("rfc13.api.finalize", "PMI_Finalize", &[], answer));
    }
    all
}

fn drawn(rng: &mut Dice<'_>, n: usize, kvs: &str, ranks: u32) -> Call {
    let room = [0, 1, 2, 16, 64, 256, 1024, 4096][rng.usize(..8)].to_string();
    let text_out = |name: &str| format!("&{name}[{room}]");
    let quoted = |text: &str| format!("\"{text}\"");
    let kvs_argument = quoted(kvs);
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
    let named = "rfc13.api.kvs-get-my-name.errors";
    match rng.u32(0..20) {
        0..4 => {
            let mut get = asks(Operation::Get, "cmd=get_result rc=0 value=0123456789");
            if let Some(asks) = &mut get {
                asks.pattern = format!("cmd=get key=key-{n}");
            }
            let key = quoted(&format!("key-{n}"));
            let arguments = [&*kvs_argument, &key, &text_out("value"), &room];
            call("rfc13.api.kvs-get.errors", "PMI_KVS_Get", &arguments, get)
        }
        4..7 => {
            let put = asks(Operation::Put, "cmd=put_result rc=0");
            let (key, value) = (quoted(&format!("put-{n}-$rank")), quoted(&format!("value-{n}")));
            call("rfc13.api.kvs-put.errors", "PMI_KVS_Put", &[&kvs_argument, &key, &value], put)
        }
        7 => {
            let put = asks(Operation::Put, "cmd=put_result rc=0");
            call("rfc13.api.kvs-commit.errors", "PMI_KVS_Commit", &[&kvs_argument], put)
        }
        8 | 9 => {
            let barrier = asks(Operation::Barrier, "cmd=barrier_out rc=0");
            call("rfc13.api.barrier.errors", "PMI_Barrier", &[], barrier)
        }
        10 => {
            let universe = asks(Operation::Universe, "cmd=universe_size rc=0 size=4");
            call("rfc13.api.get-universe-size.errors", "PMI_Get_universe_size", &["&size"], universe)
        }
        11 => {
            let appnum = asks(Operation::Appnum, "cmd=appnum rc=0 appnum=0");
            call("rfc13.api.get-appnum.errors", "PMI_Get_appnum", &["&appnum"], appnum)
        }
        12 => call("rfc13.api.get-clique-size.errors", "PMI_Get_clique_size", &["&size"], mapping()),
        13 => {
            let room = [0, 1, 2, 8][rng.usize(..4)].to_string();
            let arguments = [&*format!("&ranks[{room}]"), &room];
            call("rfc13.api.get-clique-ranks.errors", "PMI_Get_clique_ranks", &arguments, mapping())
        }
        14 => call(named, "PMI_KVS_Get_my_name", &[&text_out("name"), &room], kvsname()),
        15 => {
            let functions =
                ["PMI_KVS_Get_name_length_max", "PMI_KVS_Get_key_length_max", "PMI_KVS_Get_value_length_max"];
            let function = functions[rng.usize(..functions.len())];
            call("rfc13.api.length-max.errors", function, &["&length"], maxes())
        }
        16 => call(named, "PMI_Get_id", &[&text_out("id"), &room], kvsname()),
        17 => {
            let spawn = asks(Operation::Spawn, "cmd=spawn_result rc=0 errcodes=0,0");
            let arguments =
                ["1", "\"worker\"", "\"-x,-y\"", "\"2\"", "NULL", "NULL", "0", "NULL", "&errors[2]"];
            call("rfc13.api.spawn-multiple.errors", "PMI_Spawn_multiple", &arguments, spawn)
        }
        18 => {
            let lookup = asks(Operation::Lookup, "cmd=lookup_result rc=0 port=tag#0$port#4242$");
            call("rfc13.api.name.errors", "PMI_Lookup_name", &["\"service\"", "&port[1024]"], lookup)
        }
        _ => {
            let publish = asks(Operation::Publish, "cmd=publish_result rc=0");
            let service = quoted(&format!("service-{n}"));
            call("rfc13.api.name.errors", "PMI_Publish_name", &[&service, "\"port\""], publish)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::campaign::input::Input;

    const SCOPE: Scope = Scope { ranks: 4, change: true, wire: true };

    #[test]
    fn an_ordeal_depends_on_seed_and_number_alone() {
        for number in 0..200 {
            assert_eq!(generate(7, number, SCOPE).session, generate(7, number, SCOPE).session);
        }
        let other = |n: &u64| generate(7, *n, SCOPE).session != generate(8, *n, SCOPE).session;
        assert!((0..200).filter(other).count() > 190);
    }

    #[test]
    fn every_ordeal_is_a_scenario_and_every_change_strikes() {
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..3000 {
            let Generated { session, ingredients } = generate(1, number, SCOPE);
            let scenario = session.scenario().unwrap_or_else(|| panic!("{}", session.to_scenario("x", &[])));
            assert_eq!(Ordeal::from_scenario(&scenario), Ok(session), "{number}");
            for ingredient in ingredients {
                let (change, _) = ingredient.split_once(':').unwrap();
                *struck.entry(change.to_owned()).or_default() += 1;
            }
        }
        let all = Change::ALL.iter().map(|change| change.name());
        let missing: Vec<&str> =
            all.chain(["argument", "order"]).filter(|name| !struck.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}: {struck:?}");
    }

    #[test]
    fn what_is_out_of_scope_is_not_drawn() {
        for number in 0..300 {
            let quiet = Scope { wire: false, ..SCOPE };
            let text = generate(3, number, quiet).session.to_scenario("x", &[]);
            assert!(text.contains("ranks 1\n") && !text.contains("S:") && !text.contains("C:"), "{text}");
            let plain = generate(3, number, Scope { change: false, ..SCOPE });
            assert!(plain.ingredients.is_empty());
        }
    }
}
