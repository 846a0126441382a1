//! Cases for a library: calls of it, and what its process manager says to what it asks, with none to two mutations.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_runner::interpret::library::KVS_PREFIX;
use pmi_scenario::ast::{
    Action, Arg, BinOp, Call, Dialect, Expr, Piece, Role, Step, Stmt, Template, UnderTest,
};
use pmi_scenario::signature::{self, Param};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::swarm::CallSwarm;
use super::{Generator, library_pmi2};
use crate::case::{Case, letters, literal, push, step, template, unplaced, whom};
use crate::client_steps::{asks, pattern, says};
use crate::decisions::{percent, pick};
use crate::fields::{Message, text, tuples};
use crate::mutate::{Answer, Mutation, Said};
use crate::op::Op;
use crate::texts::{self, Use};

/// What the reference server tells.
const LIMITS: [i64; 3] = [256, 64, 1024];

/// A call and what it may make the library ask.
#[derive(Debug, Clone)]
pub(super) struct Planned {
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

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) pattern: Template,
    pub(super) mapping: bool,
    pub(super) answer: Message,
}

impl Request {
    fn answer(&self, dialect: Dialect) -> Answer<'_> {
        Answer { dialect, op: self.op, mapping: self.mapping, fields: &self.answer, limits: LIMITS }
    }

    /// It asks for something that somebody else has put, or has to do.
    fn looks_for(&self) -> bool {
        use Command::{InfoGetnodeattr, KvsGet, NameLookup};
        let of_others = [
            Op::from(Operation::Get),
            Operation::Lookup.into(),
            KvsGet.into(),
            InfoGetnodeattr.into(),
            NameLookup.into(),
        ];
        (of_others.contains(&self.op) || self.op.is_spawn()) && !self.mapping
    }

    /// What it is told by this key.
    pub(super) fn told(&mut self, key: &str, value: Template) {
        self.answer.iter_mut().filter(|field| field.key == key).for_each(|field| field.value = value.clone());
    }

    /// All processes wait in it for each other.
    fn is_collective(&self) -> bool {
        [Op::from(Operation::Barrier), Command::KvsFence.into(), Command::Ring.into()].contains(&self.op)
    }
}

/// Cases for a library.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// Whose API it has.
    pub dialect: Dialect,
    /// It has PMIX_Ring beside that of PMI-2.
    pub ring: bool,
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
        let kinds = match self.dialect {
            Dialect::Pmi1 => KINDS,
            Dialect::Pmi2 => library_pmi2::KINDS,
        };
        let swarm = CallSwarm::draw(kinds, lawful)?;
        let mut calls = match self.dialect {
            Dialect::Pmi1 => calls(lawful, &swarm, ranks)?,
            Dialect::Pmi2 => library_pmi2::calls(lawful, &swarm, ranks, self.ring)?,
        };
        let u = mutations;
        let count = match percent(u)? {
            _ if !self.mutate => 0,
            0..10 => 0,
            10..70 => 1,
            _ => 2,
        };
        let asking: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].request.is_some()).collect();
        let mut struck = BTreeSet::new();
        let mut case = Case::speaking(self.dialect, UnderTest::Library, ranks, Vec::new());
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
                    case.ingredients.insert(strike(&request, self.dialect, ranks, body, u)?);
                }
                // Nobody has put what is asked for, so that it is we who have to find it.
                Some(request)
                    if request.looks_for() && lawful.ratio(if swarm.found { 5 } else { 1 }, 6)? =>
                {
                    let found = request.answer(self.dialect).proper();
                    body.extend([asks(None, request.pattern, false), says(None, found)]);
                }
                _ => {}
            }
            body.push(call.stmt());
        }
        Ok(case)
    }
}

/// Cases for a library that has several APIs.
impl Generator for Vec<Libraries> {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        lawful.choose(self)?.generate(lawful, mutations)
    }
}

/// Calls that show whether a library asks us: it initializes itself and enters a barrier.
pub(crate) fn sign_of_life(dialect: Dialect) -> Case {
    let calls = match dialect {
        Dialect::Pmi1 => [
            call("", "PMI_Init", vec![out("spawned", None)], None),
            call("", "PMI_Barrier", Vec::new(), None),
        ],
        Dialect::Pmi2 => {
            let outs = ["spawned", "size", "rank", "appnum"].map(|name| out(name, None)).into();
            [call("", "PMI2_Init", outs, None), call("", "PMI2_KVS_Fence", Vec::new(), None)]
        }
    };
    Case::speaking(dialect, UnderTest::Library, 1, calls.map(Planned::stmt).into())
}

pub(super) fn out(name: &str, room: Option<i64>) -> Arg {
    Arg::Out(unplaced(name.to_owned()), room.map(Expr::Number))
}

pub(super) fn quoted(content: &str) -> Arg {
    Arg::Text(text(content))
}

/// A number below zero.
pub(super) fn negative(number: i64) -> Arg {
    Arg::Number(Expr::Binary(Box::new(Expr::Number(0)), BinOp::Sub, Box::new(Expr::Number(number))))
}

/// Makes one argument of a call odd, or a call come at another time or once more; which of them that is. Nothing that the library is told of
/// the room that it has is untrue.
fn misuse(calls: &mut Vec<Planned>, u: &mut Unstructured<'_>) -> Result<Option<String>> {
    let at = u.choose_index(calls.len())?;
    let function = calls[at].function;
    if u.ratio(1, 2)? {
        let again = u.arbitrary()?;
        let moved = if again { calls[at].clone() } else { calls.remove(at) };
        let to = u.int_in_range(0..=calls.len())?;
        calls.insert(to, moved);
        let mutation = if again { Mutation::Repeat } else { Mutation::Order };
        return Ok(Some(format!("{}:{function}", mutation.name())));
    }
    // Of the arrays of a spawn, all have the length that one argument tells.
    let spawns = ["PMI_Spawn_multiple", "PMI2_Job_Spawn"].contains(&function);
    if spawns || calls[at].args.is_empty() {
        return Ok(None);
    }
    let args = &mut calls[at].args;
    let which = u.choose_index(args.len())?;
    // RFC 13 has errors for what is NULL and for lengths below zero; the header of PMI-2 says nothing of them.
    let is_told = function.starts_with("PMI_");
    let params = signature::function(function).map_or(&[][..], |f| f.params);
    let is_length = params
        .iter()
        .any(|param| matches!(param, Param::OutText(Some(i)) | Param::OutInts(Some(i)) if *i == which));
    args[which] = match &args[which] {
        Arg::Out(..) if !is_told => return Ok(None),
        Arg::Number(_) if !is_told && is_length => Arg::Number(Expr::Number(0)),
        // What is written as a list has a form of its own.
        Arg::Text(_) if params.get(which) != Some(&Param::Str) => return Ok(None),
        Arg::Text(_) => match u.int_in_range(0..=6)? {
            0 if is_told => Arg::Null,
            0 => quoted("a;b;;c"),
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
fn strike(
    request: &Request,
    dialect: Dialect,
    ranks: u32,
    body: &mut Vec<Stmt>,
    u: &mut Unstructured<'_>,
) -> Result<String> {
    // Of a barrier, all are told the same: who is in it alone would wait for the other.
    let one = ranks > 1 && !request.is_collective() && u.arbitrary()?;
    let who = if one { Some(u.int_in_range(0..=ranks - 1)?) } else { None };
    let answer = request.answer(dialect);
    let (mutation, all) = answer.mutated(u)?;
    body.push(asks(who, request.pattern.clone(), false));
    body.extend(all.into_iter().map(|said| match said {
        // Unlike a program's, a library's scenario has no word for it.
        Said::Right => says(who, answer.proper()),
        said => says(who, said),
    }));
    Ok(format!("{}:{}", mutation.name(), request.op))
}

pub(super) fn call(
    cites: &'static str,
    function: &'static str,
    args: Vec<Arg>,
    request: Option<Request>,
) -> Planned {
    Planned { cites, function, args, request }
}

/// A request of PMI-1, or the line with which a connection of PMI-2 begins.
pub(super) fn to(op: Operation, answer: &str) -> Option<Request> {
    let op = op.into();
    Some(Request { op, pattern: pattern(op, false), mapping: false, answer: tuples(answer.as_bytes()) })
}

/// How many kinds of calls there are, some of them several times.
const KINDS: u32 = 30;

/// A program of calls: a library asks for some things at `PMI_Init`, at each call or once.
fn calls(u: &mut Unstructured<'_>, swarm: &CallSwarm, ranks: u32) -> Result<Vec<Planned>> {
    let kvs = format!("{KVS_PREFIX}-0");
    let start = match u.int_in_range(0..=2)? {
        0 => to(Operation::Init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        1 => to(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        _ => to(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}")),
    };
    let mut all = vec![call("rfc13.api.init.errors", "PMI_Init", vec![out("spawned", None)], start)];
    for n in 0..swarm.calls(u)? {
        all.push(drawn(u, swarm, n, &kvs, ranks)?);
    }
    if !u.ratio(1, 4)? {
        let answer = to(Operation::Finalize, "cmd=finalize_ack rc=0");
        all.push(call("rfc13.api.finalize", "PMI_Finalize", Vec::new(), answer));
    }
    Ok(all)
}

fn drawn(u: &mut Unstructured<'_>, swarm: &CallSwarm, n: usize, kvs: &str, ranks: u32) -> Result<Planned> {
    let number = |n| Arg::Number(Expr::Number(n));
    let text_out = |name: &str, room: i64| out(name, Some(room.max(0)));
    let kvs_argument = || quoted(kvs);
    let maxes = || to(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
    let kvsname = || to(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}"));
    let mapping = || {
        let answer = tuples(format!("cmd=get_result rc=0 value=(vector,(0,1,{ranks}))").as_bytes());
        let op = Operation::Get.into();
        Some(Request { op, pattern: pattern(op, true), mapping: true, answer })
    };
    // Services are few, so that one is published again.
    let service = |u: &mut Unstructured<'_>| Ok(quoted(&format!("service-{}", u.int_in_range(0..=1)?)));
    Ok(match swarm.kind(KINDS, u)? {
        0..5 => {
            let value = swarm.text(Dialect::Pmi1, Use::Value, "0123456789", u)?;
            let room = swarm.room(value.len(), u)?;
            let mut get = to(Operation::Get, "cmd=get_result rc=0 value=0123456789");
            if let Some(request) = &mut get {
                request.pattern = text(format!("cmd=get key=key-{n}"));
                request.told("value", value.as_said(Dialect::Pmi1));
            }
            let args =
                vec![kvs_argument(), quoted(&format!("key-{n}")), text_out("value", room), number(room)];
            call("rfc13.api.kvs-get.errors", "PMI_KVS_Get", args, get)
        }
        5..9 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            let mut key = template(vec![literal(format!("put-{n}-")), Piece::Var("rank".to_owned())]);
            if swarm.lengths && u.arbitrary()? {
                let so_far = format!("put-{n}-").len() as i64 + 1;
                push(&mut key, letters((texts::boundary(Dialect::Pmi1, Use::Key, u)? - so_far).max(0)));
            }
            let value = match u.int_in_range(0..=9)? {
                0 => text(""),
                _ => swarm.text(Dialect::Pmi1, Use::Value, &format!("value-{n}"), u)?.as_argument(),
            };
            let args = vec![kvs_argument(), Arg::Text(key), Arg::Text(value)];
            call("rfc13.api.kvs-put.errors", "PMI_KVS_Put", args, put)
        }
        9 | 10 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            call("rfc13.api.kvs-commit.errors", "PMI_KVS_Commit", vec![kvs_argument()], put)
        }
        11 | 12 => {
            let barrier = to(Operation::Barrier, "cmd=barrier_out rc=0");
            call("rfc13.api.barrier.errors", "PMI_Barrier", Vec::new(), barrier)
        }
        13 => {
            let universe = to(Operation::Universe, "cmd=universe_size rc=0 size=4");
            let args = vec![out("size", None)];
            call("rfc13.api.get-universe-size.errors", "PMI_Get_universe_size", args, universe)
        }
        14 => {
            let appnum = to(Operation::Appnum, "cmd=appnum rc=0 appnum=0");
            call("rfc13.api.get-appnum.errors", "PMI_Get_appnum", vec![out("appnum", None)], appnum)
        }
        15 => {
            let args = vec![out("size", None)];
            call("rfc13.api.get-clique-size.errors", "PMI_Get_clique_size", args, mapping())
        }
        16 => {
            let room = pick(u, &[0, 1, 2, 8])?;
            let args = vec![out("ranks", Some(room)), number(room)];
            call("rfc13.api.get-clique-ranks.errors", "PMI_Get_clique_ranks", args, mapping())
        }
        17..20 => {
            let functions = ["PMI_KVS_Get_my_name", "PMI_Get_id", "PMI_Get_kvs_domain_id"];
            let room = swarm.room(kvs.len() as i64, u)?;
            let args = vec![text_out("name", room), number(room)];
            call("rfc13.api.kvs-get-my-name.errors", pick(u, &functions)?, args, kvsname())
        }
        20 => {
            let functions = [
                "PMI_KVS_Get_name_length_max",
                "PMI_KVS_Get_key_length_max",
                "PMI_KVS_Get_value_length_max",
                "PMI_Get_id_length_max",
            ];
            let args = vec![out("length", None)];
            call("rfc13.api.length-max.errors", pick(u, &functions)?, args, maxes())
        }
        21 => {
            let functions = ["PMI_Get_size", "PMI_Get_rank", "PMI_Initialized"];
            call("", pick(u, &functions)?, vec![out("number", None)], None)
        }
        22..25 => {
            let spawn = to(Operation::Spawn, "cmd=spawn_result rc=0 errcodes=0,0");
            let args = vec![
                number(1),
                quoted("worker"),
                quoted("-x,-y"),
                quoted("2"),
                Arg::Null,
                Arg::Null,
                number(0),
                Arg::Null,
                out("errors", Some(2)),
            ];
            call("rfc13.api.spawn-multiple.errors", "PMI_Spawn_multiple", args, spawn)
        }
        25 => {
            let mut lookup = to(Operation::Lookup, "cmd=lookup_result rc=0 port=tag#0$port#4242$");
            if let Some(request) = &mut lookup {
                let port = swarm.text(Dialect::Pmi1, Use::Port, "tag#0$port#4242$", u)?;
                request.told("port", port.as_said(Dialect::Pmi1));
            }
            let args = vec![quoted("service"), out("port", Some(1024))];
            call("rfc13.api.name.errors", "PMI_Lookup_name", args, lookup)
        }
        26 | 27 => {
            let publish = to(Operation::Publish, "cmd=publish_result rc=0");
            let port = swarm.text(Dialect::Pmi1, Use::Port, "port", u)?.as_argument();
            call("rfc13.api.name.errors", "PMI_Publish_name", vec![service(u)?, Arg::Text(port)], publish)
        }
        _ => {
            let unpublish = to(Operation::Unpublish, "cmd=unpublish_result rc=0");
            call("rfc13.api.name.errors", "PMI_Unpublish_name", vec![service(u)?], unpublish)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::numbered;
    use crate::testing::{mutations, read_again};

    const LIBRARIES: Libraries =
        Libraries { dialect: Dialect::Pmi1, ring: true, ranks: 4, mutate: true, wire: true };
    const PMI2_LIBRARIES: Libraries = Libraries { dialect: Dialect::Pmi2, ..LIBRARIES };

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
        for (libraries, all) in
            [(LIBRARIES, Mutation::OF_ANSWERS), (PMI2_LIBRARIES, Mutation::OF_PMI2_ANSWERS)]
        {
            let mut struck = BTreeSet::new();
            for number in 0..3000 {
                let case = numbered(&libraries, 1, number);
                read_again(&case);
                struck.extend(mutations(&case));
            }
            let all = all.iter().map(|mutation| mutation.name());
            let missing: Vec<&str> =
                all.chain(["argument", "order", "repeat"]).filter(|name| !struck.contains(*name)).collect();
            assert!(missing.is_empty(), "{missing:?}: {struck:?}");
        }
    }

    #[test]
    fn every_function_of_pmi2_is_called_with_as_many_arguments_as_it_has() {
        let mut called = BTreeSet::new();
        for number in 0..1000 {
            let case = numbered(&PMI2_LIBRARIES, 5, number);
            for stmt in &case.scenario.body {
                if let Stmt::Step(Step { action: Action::Call(call), .. }) = stmt {
                    let name = call.function.as_ref().unwrap().value.as_str();
                    let function = signature::function(name).unwrap();
                    assert_eq!(call.args.len(), function.params.len(), "{name}");
                    called.insert(function.name);
                }
            }
        }
        let of_api = signature::functions(Dialect::Pmi2).iter().map(|f| f.name);
        // An abort does not return; what the others find is asked by them.
        let missing: Vec<_> = of_api.filter(|name| !called.contains(name) && *name != "PMI2_Abort").collect();
        assert_eq!(missing, Vec::<&str>::new());
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
