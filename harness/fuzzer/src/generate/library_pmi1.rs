//! Calls of a library with the C API of PMI-1, and what they may make it ask.

use arbitrary::{Result, Unstructured};
use pmi_runner::interpret::library::KVS_PREFIX;
use pmi_scenario::ast::{Arg, Dialect, Expr, Piece};
use pmi_scenario::ids;
use pmi_wire::Operation;

use super::library_call::{Planned, Request, call, out, quoted, to};
use super::swarm::CallSwarm;
use crate::client_steps::pattern;
use crate::decisions::pick;
use crate::fields::{text, tuples};
use crate::pieces::{letters, literal, push, template};
use crate::texts::{self, Use};

/// How many kinds of calls there are, some of them several times.
pub(super) const KINDS: u32 = 34;

/// The name of the keyval space.
fn kvs() -> String {
    format!("{KVS_PREFIX}-0")
}

/// The call with which a program begins: a library asks for some things at it, at each call or once.
pub(super) fn begin(u: &mut Unstructured<'_>) -> Result<Planned> {
    let kvs = kvs();
    let start = match u.int_in_range(0..=2)? {
        0 => to(Operation::Init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        1 => to(Operation::Maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        _ => to(Operation::Kvsname, &format!("cmd=my_kvsname rc=0 kvsname={kvs}")),
    };
    Ok(call(ids::RFC13_API_INIT_ERRORS, "PMI_Init", vec![out("spawned", None)], start))
}

/// The call with which it ends.
pub(super) fn end() -> Planned {
    let answer = to(Operation::Finalize, "cmd=finalize_ack rc=0");
    call(ids::RFC13_API_FINALIZE, "PMI_Finalize", Vec::new(), answer)
}

/// A call of a kind, the `n`-th of its program.
pub(super) fn of_kind(
    kind: u32,
    u: &mut Unstructured<'_>,
    swarm: &CallSwarm,
    n: usize,
    ranks: u32,
) -> Result<Planned> {
    let kvs = &*kvs();
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
    Ok(match kind {
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
            call(ids::RFC13_API_KVS_GET_ERRORS, "PMI_KVS_Get", args, get)
        }
        5..9 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            let mut key = template(vec![literal(format!("put-{n}-")), Piece::Var("rank".to_owned())]);
            if swarm.lengths && u.arbitrary()? {
                let so_far = format!("put-{n}-").len() as i64 + 1;
                push(&mut key, letters((texts::length(Dialect::Pmi1, Use::Key, u)? - so_far).max(0)));
            }
            let value = match u.int_in_range(0..=9)? {
                0 => text(""),
                _ => swarm.text(Dialect::Pmi1, Use::Value, &format!("value-{n}"), u)?.as_argument(),
            };
            let args = vec![kvs_argument(), Arg::Text(key), Arg::Text(value)];
            call(ids::RFC13_API_KVS_PUT_ERRORS, "PMI_KVS_Put", args, put)
        }
        9 | 10 => {
            let put = to(Operation::Put, "cmd=put_result rc=0");
            call(ids::RFC13_API_KVS_COMMIT_ERRORS, "PMI_KVS_Commit", vec![kvs_argument()], put)
        }
        11 | 12 => {
            let barrier = to(Operation::Barrier, "cmd=barrier_out rc=0");
            call(ids::RFC13_API_BARRIER_ERRORS, "PMI_Barrier", Vec::new(), barrier)
        }
        13 => {
            let universe = to(Operation::Universe, "cmd=universe_size rc=0 size=4");
            let args = vec![out("size", None)];
            call(ids::RFC13_API_GET_UNIVERSE_SIZE_ERRORS, "PMI_Get_universe_size", args, universe)
        }
        14 => {
            let appnum = to(Operation::Appnum, "cmd=appnum rc=0 appnum=0");
            call(ids::RFC13_API_GET_APPNUM_ERRORS, "PMI_Get_appnum", vec![out("appnum", None)], appnum)
        }
        15 => {
            let args = vec![out("size", None)];
            call(ids::RFC13_API_GET_CLIQUE_SIZE_ERRORS, "PMI_Get_clique_size", args, mapping())
        }
        16 => {
            let room = pick(u, &[0, 1, 2, 8])?;
            let args = vec![out("ranks", Some(room)), number(room)];
            call(ids::RFC13_API_GET_CLIQUE_RANKS_ERRORS, "PMI_Get_clique_ranks", args, mapping())
        }
        17..20 => {
            let functions = ["PMI_KVS_Get_my_name", "PMI_Get_id", "PMI_Get_kvs_domain_id"];
            let room = swarm.room(kvs.len() as i64, u)?;
            let args = vec![text_out("name", room), number(room)];
            call(ids::RFC13_API_KVS_GET_MY_NAME_ERRORS, pick(u, &functions)?, args, kvsname())
        }
        20 => {
            let functions = [
                "PMI_KVS_Get_name_length_max",
                "PMI_KVS_Get_key_length_max",
                "PMI_KVS_Get_value_length_max",
                "PMI_Get_id_length_max",
            ];
            let args = vec![out("length", None)];
            call(ids::RFC13_API_LENGTH_MAX_ERRORS, pick(u, &functions)?, args, maxes())
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
            call(ids::RFC13_API_SPAWN_MULTIPLE_ERRORS, "PMI_Spawn_multiple", args, spawn)
        }
        25 => {
            let mut lookup = to(Operation::Lookup, "cmd=lookup_result rc=0 port=tag#0$port#4242$");
            if let Some(request) = &mut lookup {
                let port = swarm.text(Dialect::Pmi1, Use::Port, "tag#0$port#4242$", u)?;
                request.told("port", port.as_said(Dialect::Pmi1));
            }
            let args = vec![quoted("service"), out("port", Some(1024))];
            call(ids::RFC13_API_NAME_ERRORS, "PMI_Lookup_name", args, lookup)
        }
        26 | 27 => {
            let publish = to(Operation::Publish, "cmd=publish_result rc=0");
            let port = swarm.text(Dialect::Pmi1, Use::Port, "port", u)?.as_argument();
            call(ids::RFC13_API_NAME_ERRORS, "PMI_Publish_name", vec![service(u)?, Arg::Text(port)], publish)
        }
        30 => {
            let room = swarm.room(kvs.len() as i64, u)?;
            call("", "PMI_KVS_Create", vec![text_out("created", room), number(room)], None)
        }
        31 => {
            let function = pick(u, &["PMI_KVS_Iter_first", "PMI_KVS_Iter_next"])?;
            let (key, value) = (swarm.room(8, u)?, swarm.room(16, u)?);
            let args = vec![
                kvs_argument(),
                text_out("key", key),
                number(key),
                text_out("value", value),
                number(value),
            ];
            call("", function, args, None)
        }
        32 => call("", "PMI_KVS_Destroy", vec![quoted(pick(u, &["created", "missing"])?)], None),
        33 => match u.int_in_range(0..=3)? {
            0 => {
                let room = swarm.room(16, u)?;
                let args = vec![text_out("text", room), text_out("length", room)];
                call("", "PMI_Get_options", args, None)
            }
            1 => {
                let option = quoted(pick(u, &["", "-x", "-n,4", "--a=b"])?);
                let outs = ["parsed", "pairs", "size"].map(|name| out(name, None));
                let args = [number(1), option].into_iter().chain(outs).collect();
                call("", "PMI_Parse_option", args, None)
            }
            2 => {
                let args = vec![out("argc", Some(1)), quoted("-x"), out("pairs", None), out("size", None)];
                call("", "PMI_Args_to_keyval", args, None)
            }
            _ => call("", "PMI_Free_keyvals", vec![Arg::Null, number(0)], None),
        },
        _ => {
            let unpublish = to(Operation::Unpublish, "cmd=unpublish_result rc=0");
            call(ids::RFC13_API_NAME_ERRORS, "PMI_Unpublish_name", vec![service(u)?], unpublish)
        }
    })
}
