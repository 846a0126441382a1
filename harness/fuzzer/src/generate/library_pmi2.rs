//! Calls of a library with the C API of PMI-2, and what they may make it ask.

use arbitrary::{Result, Unstructured};
use pmi_runner::interpret::library::KVS_PREFIX;
use pmi_scenario::ast::{Arg, Dialect, Expr, Template};
use pmi_scenario::ids;
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::library_call::{Planned, Request, call, negative, out, quoted, to};
use super::swarm::CallSwarm;
use crate::client_steps::{MAPPING, pattern};
use crate::decisions::pick;
use crate::fields::{FieldList, field, frame_tuples, text};
use crate::pieces::{literal, own_rank, template};
use crate::texts::Use;

/// What failures are told by: any error code is as good as another.
const ERRORS: &str = ids::PMI2_COMMON_API_ERRORS;

/// How many kinds of calls there are, some of them several times.
pub(super) const KINDS: u32 = 28;

/// The id of the job.
fn job() -> String {
    format!("{KVS_PREFIX}-0")
}

/// The call with which a program begins.
pub(super) fn begin(u: &mut Unstructured<'_>, ranks: u32) -> Result<Planned> {
    let start = match u.int_in_range(0..=3)? {
        0 => to(Operation::Init, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"),
        _ => asked(Command::Fullinit, fullinit(ranks)),
    };
    let outs = ["spawned", "size", "rank", "appnum"].map(|name| out(name, None)).into();
    Ok(call(ERRORS, "PMI2_Init", outs, start))
}

/// The call with which it ends.
pub(super) fn end() -> Planned {
    call(ERRORS, "PMI2_Finalize", Vec::new(), done(Command::Finalize))
}

fn fullinit(ranks: u32) -> FieldList {
    let mut answer = frame_tuples(b"cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;");
    answer.push(field("rank", own_rank()));
    answer.push(field("size", ranks.to_string()));
    answer.extend(frame_tuples(b"appnum=0;debugged=FALSE;pmiverbose=FALSE;"));
    answer
}

fn asked(command: Command, answer: FieldList) -> Option<Request> {
    let op = command.into();
    Some(Request { op, pattern: pattern(op, false), mapping: false, answer })
}

/// A request, and what is told where it succeeds.
fn tells(command: Command, rest: &str) -> Option<Request> {
    let name = command.response_name().unwrap_or_default();
    asked(command, frame_tuples(format!("cmd={name};rc=0;{rest}").as_bytes()))
}

fn done(command: Command) -> Option<Request> {
    tells(command, "")
}

/// One that names its key, so that others of its kind are answered otherwise.
fn about(command: Command, key: &str, rest: &str) -> Option<Request> {
    let mut request = tells(command, rest)?;
    request.pattern = text(format!("cmd={} key={key}", command.name()));
    Some(request)
}

/// A call of a kind, the `n`-th of its program.
pub(super) fn of_kind(
    kind: u32,
    u: &mut Unstructured<'_>,
    swarm: &CallSwarm,
    n: usize,
    ranks: u32,
    ring: bool,
) -> Result<Planned> {
    use Command as C;
    let number = |n| Arg::Number(Expr::Number(n));
    let text_out = |name: &str, room: i64| out(name, Some(room.max(0)));
    // Of five integers, which are told.
    let ints = pick(u, &[0, 1, 2, 4, 5, 6, 8])?;
    let told = |u: &mut Unstructured<'_>| {
        let value = swarm.text(Dialect::Pmi2, Use::Value, "0123456789", u)?;
        let room = swarm.room(value.len(), u)?;
        Ok((value.as_said(Dialect::Pmi2), room))
    };
    let telling = |mut request: Option<Request>, value: Template| {
        request.iter_mut().for_each(|request| request.told("value", value.clone()));
        request
    };
    let key = format!("key-{n}");
    let info = match u.int_in_range(0..=2)? {
        0 => quoted("range=local"),
        _ => Arg::Null,
    };
    Ok(match kind {
        0..4 => {
            let (value, room) = told(u)?;
            let get = telling(about(C::KvsGet, &key, "found=TRUE;value=;"), value);
            // Nobody in particular, or somebody.
            let hint = match u.int_in_range(0..=2)? {
                0 => number(0),
                1 => number(i64::from(ranks) - 1),
                _ => negative(1),
            };
            let job = if u.arbitrary()? { Arg::Null } else { quoted("job") };
            let args =
                vec![job, hint, quoted(&key), text_out("value", room), number(room), out("vallen", None)];
            call(ERRORS, "PMI2_KVS_Get", args, get)
        }
        4..7 => {
            let key = template(vec![literal(format!("put-{n}-")), own_rank()]);
            let value = match u.int_in_range(0..=5)? {
                0 => text(pick(u, &["a;b;;c", "a;", ";"])?),
                1 => text(""),
                _ => swarm.text(Dialect::Pmi2, Use::Value, &format!("value-{n}"), u)?.as_argument(),
            };
            call(ERRORS, "PMI2_KVS_Put", vec![Arg::Text(key), Arg::Text(value)], done(C::KvsPut))
        }
        7 | 8 => call(ERRORS, "PMI2_KVS_Fence", Vec::new(), done(C::KvsFence)),
        9 | 10 => {
            let room = swarm.room(job().len() as i64, u)?;
            let args = vec![text_out("jobid", room), number(room)];
            call(ERRORS, "PMI2_Job_GetId", args, tells(C::JobGetid, &format!("jobid={};", job())))
        }
        11 => call("", "PMI2_Job_GetRank", vec![out("rank", None)], None),
        12 => {
            let mapping = mapping(ranks);
            call(ERRORS, "PMI2_Info_GetSize", vec![out("size", None)], mapping)
        }
        13 => call("", "PMI2_Initialized", Vec::new(), None),
        14 => {
            let (value, room) = told(u)?;
            let get = telling(about(C::InfoGetnodeattr, &key, "found=TRUE;value=;"), value);
            let wait = number(u.int_in_range(0..=1)?);
            let args = vec![quoted(&key), text_out("value", room), number(room), out("found", None), wait];
            call(ERRORS, "PMI2_Info_GetNodeAttr", args, get)
        }
        15 => {
            let get = about(C::InfoGetnodeattr, &key, "found=TRUE;value=1,2,3,4,5;");
            let args = integers(&key, ints);
            call(ERRORS, "PMI2_Info_GetNodeAttrIntArray", args, get)
        }
        16 | 17 => {
            // Sometimes what the next call waits for.
            // Or one that was put before.
            let key = match u.arbitrary()? {
                true => format!("key-{}", n + u.int_in_range(0..=1)?),
                false => format!("put-{}", u.int_in_range(0..=1)?),
            };
            let args = vec![quoted(&key), quoted("1,2,3")];
            call(ERRORS, "PMI2_Info_PutNodeAttr", args, done(C::InfoPutnodeattr))
        }
        18 | 19 => {
            let (key, get) = match u.int_in_range(0..=2)? {
                0 => (MAPPING, mapping(ranks)),
                1 => ("universeSize", about(C::InfoGetjobattr, "universeSize", "found=TRUE;value=4;")),
                _ => ("missing", about(C::InfoGetjobattr, "missing", "found=TRUE;value=0123456789;")),
            };
            let room = swarm.room(10, u)?;
            let args = vec![quoted(key), text_out("value", room), number(room), out("found", None)];
            call(ERRORS, "PMI2_Info_GetJobAttr", args, get)
        }
        20 => {
            let get = about(C::InfoGetjobattr, &key, "found=TRUE;value=1,2,3,4,5;");
            call(ERRORS, "PMI2_Info_GetJobAttrIntArray", integers(&key, ints), get)
        }
        21 => {
            let args = vec![quoted(&format!("service-{n}")), info, quoted("port-1")];
            call(ERRORS, "PMI2_Nameserv_publish", args, done(C::NamePublish))
        }
        22 => {
            let port = pick(u, &["port", "value"])?;
            let lookup = tells(C::NameLookup, &format!("found=TRUE;{port}=tag#0$port#4242$;"));
            let room = swarm.room(16, u)?;
            let args = vec![quoted("service"), info, text_out("port", room), number(room)];
            call(ERRORS, "PMI2_Nameserv_lookup", args, lookup)
        }
        23 => {
            let args = vec![quoted(&format!("service-{n}")), info];
            call(ERRORS, "PMI2_Nameserv_unpublish", args, done(C::NameUnpublish))
        }
        24 => {
            let room = swarm.room(5, u)?;
            let args = vec![
                number(1),
                quoted("worker"),
                quoted("2"),
                quoted("-x,-y"),
                quoted("2"),
                quoted("1"),
                quoted("wdir=/"),
                number(1),
                quoted("parent=port-1"),
                text_out("jobid", room),
                number(room),
                out("errors", Some(2)),
            ];
            call(ERRORS, "PMI2_Job_Spawn", args, tells(C::Spawn, "jobid=job-2;nerrs=2;err0=0;err1=0;"))
        }
        25 => {
            let args = vec![quoted("job-9"), Arg::Null];
            call(ERRORS, "PMI2_Job_Connect", args, tells(C::JobConnect, "kvscopy=no;"))
        }
        26 => call(ERRORS, "PMI2_Job_Disconnect", vec![quoted("job-9")], done(C::JobDisconnect)),
        _ if ring => {
            let room = pick(u, &[16, 64, 1024])?;
            let args = vec![
                Arg::Text(template(vec![literal("of-"), own_rank()])),
                out("at", None),
                out("ranks", None),
                out("left", Some(room)),
                out("right", Some(room)),
                number(room),
            ];
            let answer = tells(C::Ring, "ring-count=0;ring-left=of-0;ring-right=of-0;");
            call("", "PMIX_Ring", args, answer)
        }
        _ => call("", "PMI2_Initialized", Vec::new(), None),
    })
}

/// The arguments of a call for an attribute that is a list of integers.
fn integers(key: &str, room: i64) -> Vec<Arg> {
    let length = Arg::Number(Expr::Number(room));
    vec![quoted(key), out("array", Some(room)), length, out("outlen", None), out("found", None)]
}

fn mapping(ranks: u32) -> Option<Request> {
    let mut request = tells(Command::InfoGetjobattr, &format!("found=TRUE;value=(vector,(0,1,{ranks}));"))?;
    (request.pattern, request.mapping) = (pattern(request.op, true), true);
    Some(request)
}
