//! Cases for a library: calls of it, and what its process manager says to what it asks, with none to two mutations.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_runner::interpret::library::KVS_PREFIX;
use pmi_scenario::ast::{Action, Arg, BinOp, Call, Expr, Piece, Role, Step, Stmt, Template, UnderTest};
use pmi_wire::Operation;

use super::Generator;
use crate::case::{Case, letters, literal, step, template, unplaced, whom};
use crate::client_steps::{asks, pattern, says};
use crate::decisions::{percent, pick};
use crate::fields::{Message, line, text, tuples};
use crate::mutate::{Answer, Said};

/// What the reference server tells.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// A call and what it may make the library ask.
struct Planned {
    /// The requirement that speaks of its failures.
    cites: &'static str,
    function: &'static str,
    args: Vec<Arg>,
    request: Option<Request>,
}

impl Planned {
    fn stmt(self) -> Stmt {
        let call = Call {
            function: Some(unplaced(self.function.to_owned())),
            args: self.args,
            result: Some(unplaced("any".to_owned())),
            outs: Vec::new(),
        };
        let mut stmt = step(whom(None), Role::Api, Action::Call(call));
        if let Stmt::Step(Step { cites, .. }) = &mut stmt
            && !self.cites.is_empty()
        {
            *cites = Some(unplaced(self.cites.to_owned()));
        }
        stmt
    }
}

struct Request {
    op: Operation,
    pattern: Template,
    mapping: bool,
    answer: Message,
}

/// Cases for a library.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// Most ranks.
    pub ranks: u32,
    /// Answers and arguments are changed.
    pub mutate: bool,
    /// The library asks us. What one asks that does so elsewhere is not ours to answer, nor do its ranks find each other.
    pub wire: bool,
}

impl Generator for Libraries {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let ranks = if self.wire && self.ranks > 1 && lawful.int_in_range(0..=4)? == 4 { 2 } else { 1 };
        let mut calls = calls(lawful, ranks)?;
        let u = mutations;
        let count = match percent(u)? {
            _ if !self.mutate => 0,
            0..10 => 0,
            10..70 => 1,
            _ => 2,
        };
        let asking: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].request.is_some()).collect();
        let mut struck = BTreeSet::new();
        let mut case = Case::new(UnderTest::Library, ranks, Vec::new());
        for _ in 0..count {
            if !self.wire || u.ratio(1, 5)? {
                case.ingredients.extend(misuse(&mut calls, u)?);
            } else {
                struck.insert(pick(u, &asking)?);
            }
        }
        let body = &mut case.scenario.body;
        for (at, mut call) in calls.into_iter().enumerate() {
            match call.request.take().filter(|_| self.wire) {
                Some(request) if struck.contains(&at) => {
                    case.ingredients.insert(strike(request, ranks, body, u)?);
                }
                // Nobody has put what is asked for, so that it is we who have to find it.
                Some(request)
                    if request.op == Operation::Get && !request.mapping && lawful.arbitrary()? =>
                {
                    let found = Said::Write(vec![line(&request.answer)], Default::default());
                    body.extend([asks(None, request.pattern, false), says(None, found)]);
                }
                _ => {}
            }
            body.push(call.stmt());
        }
        Ok(case)
    }
}

/// Calls that show whether a library asks us: it initializes itself and enters a barrier.
pub(crate) fn sign_of_life() -> Case {
    let init = call("", "PMI_Init", vec![out("spawned", None)], None);
    let barrier = call("", "PMI_Barrier", Vec::new(), None);
    Case::new(UnderTest::Library, 1, vec![init.stmt(), barrier.stmt()])
}

fn out(name: &str, room: Option<i64>) -> Arg {
    Arg::Out(unplaced(name.to_owned()), room.map(Expr::Number))
}

fn quoted(content: &str) -> Arg {
    Arg::Text(text(content))
}

/// A number below zero.
fn negative(number: i64) -> Arg {
    Arg::Number(Expr::Binary(Box::new(Expr::Number(0)), BinOp::Sub, Box::new(Expr::Number(number))))
}

/// Makes one argument of a call odd, or a call come at another time; which of them that is. Nothing that the library is told of
/// the room that it has is untrue.
fn misuse(calls: &mut Vec<Planned>, u: &mut Unstructured<'_>) -> Result<Option<String>> {
    let at = u.choose_index(calls.len())?;
    let function = calls[at].function;
    if u.ratio(1, 3)? {
        let moved = calls.remove(at);
        let to = u.int_in_range(0..=calls.len())?;
        calls.insert(to, moved);
        return Ok(Some(format!("order:{function}")));
    }
    // Of the arrays of a spawn, all have the length that one argument tells.
    if function == "PMI_Spawn_multiple" || calls[at].args.is_empty() {
        return Ok(None);
    }
    let args = &mut calls[at].args;
    let which = u.choose_index(args.len())?;
    args[which] = match &args[which] {
        Arg::Text(_) => match u.int_in_range(0..=6)? {
            0 => Arg::Null,
            1 => quoted(""),
            2 => quoted("a b"),
            3 => quoted("a=b"),
            _ => Arg::Text(template(vec![letters(pick(u, &[64, 256, 5000])?)])),
        },
        Arg::Out(..) => Arg::Null,
        // One is odd already.
        Arg::Null => return Ok(None),
        Arg::Number(_) => match u.int_in_range(0..=2)? {
            0 => Arg::Number(Expr::Number(0)),
            1 => negative(1),
            _ => negative(1_000_000_000),
        },
    };
    Ok(Some(format!("argument:{function}")))
}

/// Says how a request is answered from now on; which mutation that is.
fn strike(request: Request, ranks: u32, body: &mut Vec<Stmt>, u: &mut Unstructured<'_>) -> Result<String> {
    // Of a barrier, all are told the same: who is in it alone would wait for the other.
    let one = ranks > 1 && request.op != Operation::Barrier && u.arbitrary()?;
    let who = if one { Some(u.int_in_range(0..=ranks - 1)?) } else { None };
    let Request { op, mapping, answer, pattern } = request;
    let (mutation, all) = Answer { op, mapping, fields: &answer, limits: LIMITS }.mutated(u)?;
    body.push(asks(who, pattern, false));
    body.extend(all.into_iter().map(|said| match said {
        // Unlike a program's, a library's scenario has no word for it.
        Said::Right => says(who, Said::Write(vec![line(&answer)], Default::default())),
        said => says(who, said),
    }));
    Ok(format!("{}:{}", mutation.name(), op.request_cmd()))
}

fn call(cites: &'static str, function: &'static str, args: Vec<Arg>, request: Option<Request>) -> Planned {
    Planned { cites, function, args, request }
}

fn to(op: Operation, answer: &str) -> Option<Request> {
    Some(Request { op, pattern: pattern(op, false), mapping: false, answer: tuples(answer.as_bytes()) })
}

/// A program of calls: a library asks for some things at `PMI_Init`, at each call or once.
fn calls(u: &mut Unstructured<'_>, ranks: u32) -> Result<Vec<Planned>> {
    let kvs = format!("{KVS_PREFIX}-0");
    let start = match u.int_in_range(0..=2)? {
        0 => to(Operation::Init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        1 => to(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        _ => to(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}")),
    };
    let mut all = vec![call("rfc13.api.init.errors", "PMI_Init", vec![out("spawned", None)], start)];
    for n in 0..u.int_in_range(2..=8)? {
        all.push(drawn(u, n, &kvs, ranks)?);
    }
    if !u.ratio(1, 4)? {
        let answer = to(Operation::Finalize, "cmd=finalize_ack rc=0");
        all.push(call("rfc13.api.finalize", "PMI_Finalize", Vec::new(), answer));
    }
    Ok(all)
}

fn drawn(u: &mut Unstructured<'_>, n: usize, kvs: &str, ranks: u32) -> Result<Planned> {
    let room = pick(u, &[0, 1, 2, 16, 64, 256, 1024, 4096])?;
    let text_out = |name| out(name, Some(room));
    let length = || Arg::Number(Expr::Number(room));
    let kvs_argument = || quoted(kvs);
    let maxes = || to(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
    let kvsname = || to(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}"));
    let mapping = || {
        let answer = tuples(format!("cmd=get_result rc=0 value=(vector,(0,1,{ranks}))").as_bytes());
        let op = Operation::Get;
        Some(Request { op, pattern: pattern(op, true), mapping: true, answer })
    };
    let named = "rfc13.api.kvs-get-my-name.errors";
    Ok(match u.int_in_range(0..=19)? {
        0..4 => {
            let mut get = to(Operation::Get, "cmd=get_result rc=0 value=0123456789");
            if let Some(request) = &mut get {
                request.pattern = text(format!("cmd=get key=key-{n}"));
            }
            let args = vec![kvs_argument(), quoted(&format!("key-{n}")), text_out("value"), length()];
            call("rfc13.api.kvs-get.errors", "PMI_KVS_Get", args, get)
        }
        4..7 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            let key = template(vec![literal(format!("put-{n}-")), Piece::Var("rank".to_owned())]);
            let args = vec![kvs_argument(), Arg::Text(key), quoted(&format!("value-{n}"))];
            call("rfc13.api.kvs-put.errors", "PMI_KVS_Put", args, put)
        }
        7 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            call("rfc13.api.kvs-commit.errors", "PMI_KVS_Commit", vec![kvs_argument()], put)
        }
        8 | 9 => {
            let barrier = to(Operation::Barrier, "cmd=barrier_out rc=0");
            call("rfc13.api.barrier.errors", "PMI_Barrier", Vec::new(), barrier)
        }
        10 => {
            let universe = to(Operation::Universe, "cmd=universe_size rc=0 size=4");
            let args = vec![out("size", None)];
            call("rfc13.api.get-universe-size.errors", "PMI_Get_universe_size", args, universe)
        }
        11 => {
            let appnum = to(Operation::Appnum, "cmd=appnum rc=0 appnum=0");
            call("rfc13.api.get-appnum.errors", "PMI_Get_appnum", vec![out("appnum", None)], appnum)
        }
        12 => {
            let args = vec![out("size", None)];
            call("rfc13.api.get-clique-size.errors", "PMI_Get_clique_size", args, mapping())
        }
        13 => {
            let room = pick(u, &[0, 1, 2, 8])?;
            let args = vec![out("ranks", Some(room)), Arg::Number(Expr::Number(room))];
            call("rfc13.api.get-clique-ranks.errors", "PMI_Get_clique_ranks", args, mapping())
        }
        14 => call(named, "PMI_KVS_Get_my_name", vec![text_out("name"), length()], kvsname()),
        15 => {
            let functions =
                ["PMI_KVS_Get_name_length_max", "PMI_KVS_Get_key_length_max", "PMI_KVS_Get_value_length_max"];
            let args = vec![out("length", None)];
            call("rfc13.api.length-max.errors", pick(u, &functions)?, args, maxes())
        }
        16 => call(named, "PMI_Get_id", vec![text_out("id"), length()], kvsname()),
        17 => {
            let spawn = to(Operation::Spawn, "cmd=spawn_result rc=0 errcodes=0,0");
            let args = vec![
                Arg::Number(Expr::Number(1)),
                quoted("worker"),
                quoted("-x,-y"),
                quoted("2"),
                Arg::Null,
                Arg::Null,
                Arg::Number(Expr::Number(0)),
                Arg::Null,
                out("errors", Some(2)),
            ];
            call("rfc13.api.spawn-multiple.errors", "PMI_Spawn_multiple", args, spawn)
        }
        18 => {
            let lookup = to(Operation::Lookup, "cmd=lookup_result rc=0 port=tag#0$port#4242$");
            let args = vec![quoted("service"), out("port", Some(1024))];
            call("rfc13.api.name.errors", "PMI_Lookup_name", args, lookup)
        }
        _ => {
            let publish = to(Operation::Publish, "cmd=publish_result rc=0");
            let args = vec![quoted(&format!("service-{n}")), quoted("port")];
            call("rfc13.api.name.errors", "PMI_Publish_name", args, publish)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::numbered;
    use crate::mutate::Mutation;
    use crate::testing::{mutations, read_again};

    const LIBRARIES: Libraries = Libraries { ranks: 4, mutate: true, wire: true };

    #[test]
    fn a_case_depends_on_seed_and_number_alone() {
        for number in 0..200 {
            assert_eq!(numbered(&LIBRARIES, 7, number).scenario, numbered(&LIBRARIES, 7, number).scenario);
        }
        let other = |n: &u64| numbered(&LIBRARIES, 7, *n).scenario != numbered(&LIBRARIES, 8, *n).scenario;
        assert!((0..200).filter(other).count() > 190);
    }

    #[test]
    fn every_case_is_read_again_as_it_was_written_and_every_mutation_strikes() {
        let mut struck = BTreeSet::new();
        for number in 0..3000 {
            let case = numbered(&LIBRARIES, 1, number);
            read_again(&case);
            struck.extend(mutations(&case));
        }
        let all = Mutation::OF_ANSWERS.iter().map(|mutation| mutation.name());
        let missing: Vec<&str> =
            all.chain(["argument", "order"]).filter(|name| !struck.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}: {struck:?}");
    }

    #[test]
    fn what_is_out_of_scope_is_not_drawn() {
        for number in 0..300 {
            let text = numbered(&Libraries { wire: false, ..LIBRARIES }, 3, number).text();
            assert!(text.contains("ranks 1\n") && !text.contains("S:") && !text.contains("C:"), "{text}");
            let plain = numbered(&Libraries { mutate: false, ..LIBRARIES }, 3, number);
            assert!(plain.ingredients.is_empty());
        }
    }
}
