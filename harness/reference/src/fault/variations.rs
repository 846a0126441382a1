//! Unusual and lawful.

use pmi_wire::{Maxes, Operation as Op};

use super::row::{Variation, vary};
use crate::behaviour::{
    Effect, ErrorEffect, FinalizeEffect, GetEffect, NamesEffect, PutEffect, Replies, ReplyKind, SpawnEffect,
    VersionEffect,
};

const ANY: Replies = Replies(None, ReplyKind::Any);
const OK: Replies = Replies(None, ReplyKind::Ok);
const FAIL: Replies = Replies(None, ReplyKind::Fail);

fn replace(value: &mut Vec<u8>, with: String) {
    *value = with.into_bytes();
}

fn mapping(size: u32, nodes: u32, each: impl Fn(u32, u32) -> String) -> String {
    let place = pmi_wire::place(size, nodes);
    let blocks: Vec<String> =
        (0..nodes.min(size)).map(|n| each(n, place.iter().filter(|p| **p == n).count() as u32)).collect();
    format!("(vector,{})", blocks.join(","))
}

/// A line of text with the command of a request other than abort.
fn incomplete(line: &[u8]) -> bool {
    let name = line.strip_prefix(b"cmd=").and_then(|l| l.split(|b| *b == b' ').next());
    let known = |n: &[u8]| pmi_wire::Operation::from_request_cmd(n).is_some_and(|op| op != Op::Abort);
    name.is_some_and(known) && line.iter().all(|b| (32..127).contains(b))
}

pub(super) const VARIATIONS: &[Variation] = &[
    // ----- form of responses
    vary("rc-absent", "successes carry no rc", Effect::Reply(OK, |d| d.remove("rc"))),
    vary(
        "rc-plus-zero",
        "successes carry rc=+0",
        Effect::Reply(OK, |d| d.edit("rc", |v| replace(v, "+0".into()))),
    ),
    vary(
        "rc-minus-zero",
        "successes carry rc=-00",
        Effect::Reply(OK, |d| d.edit("rc", |v| replace(v, "-00".into()))),
    ),
    vary(
        "rc-last",
        "rc stands behind the operation's own tuples, before a value",
        Effect::Reply(OK, |d| {
            let rc = d.tuples.iter().position(|(k, _)| k == b"rc");
            if d.get("value").is_none()
                && let Some(at) = rc
            {
                let rc = d.tuples.remove(at);
                d.tuples.push(rc);
            }
        }),
    ),
    vary(
        "order-reversed",
        "tuples behind cmd are in reverse order, a value last",
        Effect::Reply(OK, |d| {
            if d.tuples.len() > 1 {
                let value = d.tuples.iter().position(|(k, _)| k == b"value").map(|at| d.tuples.remove(at));
                d.tuples[1..].reverse();
                d.tuples.extend(value);
            }
        }),
    ),
    vary(
        "extra-key",
        "responses carry a key that nobody asked for",
        Effect::Reply(ANY, |d| {
            if !d.tuples.is_empty() {
                d.insert("x-server", "other")
            }
        }),
    ),
    vary(
        "extra-key-found",
        "get_result has found=TRUE before the value",
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Ok), |d| d.insert("found", "TRUE")),
    ),
    vary(
        "extra-keys-many",
        "responses carry twenty more keys",
        Effect::Reply(ANY, |d| {
            if !d.tuples.is_empty() {
                for i in 0..20 {
                    d.insert(&format!("x{i}"), i.to_string());
                }
            }
        }),
    ),
    vary(
        "extra-tag",
        "barrier_out carries tag=0",
        Effect::Reply(Replies(Some(Op::Barrier), ReplyKind::Any), |d| {
            // In PMI-1.2 it is there, and means something.
            if d.get("tag").is_none() {
                d.add("tag", "0");
            }
        }),
    ),
    vary(
        "extra-known-keys",
        "responses carry keys of other messages",
        Effect::Reply(ANY, |d| {
            if !d.tuples.is_empty() {
                d.insert("key", "rc");
                d.insert("service", "value");
            }
        }),
    ),
    vary(
        "command-not-first",
        "a key that nobody asked for stands before cmd",
        Effect::Reply(ANY, |d| {
            if !d.tuples.is_empty() {
                d.before = b"x-server=other ";
            }
        }),
    ),
    vary("two-blanks", "tuples are parted by two blanks", Effect::Reply(ANY, |d| d.between = b"  ")),
    vary("tab-between", "tuples are parted by a blank and a tab", Effect::Reply(ANY, |d| d.between = b" \t")),
    vary(
        "blank-at-end",
        "a blank stands before the newline where no value ends the message",
        Effect::Reply(ANY, |d| {
            if !d.tuples.is_empty() && d.get("value").is_none() && d.get("msg").is_none() {
                d.end = b" \n";
            }
        }),
    ),
    vary(
        "msg-success",
        "successes carry msg=success",
        Effect::Reply(OK, |d| {
            if !d.tuples.is_empty() {
                d.insert("msg", "success")
            }
        }),
    ),
    vary("msg-absent", "failures carry no msg", Effect::Reply(FAIL, |d| d.remove("msg"))),
    vary(
        "msg-with-blanks",
        "failures carry a msg with blanks and equals signs",
        Effect::Reply(FAIL, |d| d.set("msg", "no way: rc=17 says the server")),
    ),
    vary(
        "msg-long",
        "failures carry a msg of 4000 bytes",
        Effect::Reply(FAIL, |d| d.set("msg", "m".repeat(4000))),
    ),
    vary("rc-one", "failures say rc=1", Effect::Reply(FAIL, |d| d.set("rc", "1"))),
    vary("rc-errno", "failures say rc=-22", Effect::Reply(FAIL, |d| d.set("rc", "-22"))),
    vary("rc-large", "failures say rc=2147483647", Effect::Reply(FAIL, |d| d.set("rc", "2147483647"))),
    vary("rc-leading-zeros", "failures say rc=-001", Effect::Reply(FAIL, |d| d.set("rc", "-001"))),
    vary(
        "failure-with-empty-keys",
        "a failed get has its rc in the middle of other keys",
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Fail), |d| d.insert("found", "FALSE")),
    ),
    vary(
        "leading-zeros",
        "limits, sizes and numbers have leading zeros",
        Effect::Reply(OK, |d| {
            for key in
                ["kvsname_max", "keylen_max", "vallen_max", "size", "appnum", "pmi_version", "pmi_subversion"]
            {
                d.edit(key, |v| v.splice(0..0, *b"00").for_each(drop));
            }
        }),
    ),
    vary(
        "bytewise",
        "responses are written byte by byte",
        Effect::Writes(ANY, |b| b.chunks(1).map(<[u8]>::to_vec).collect()),
    ),
    vary(
        "in-two-writes",
        "responses are written in two halves",
        Effect::Writes(ANY, |b| b.chunks(b.len().div_ceil(2)).map(<[u8]>::to_vec).collect()),
    ),
    vary(
        "newline-apart",
        "the newline is written for itself",
        Effect::Writes(ANY, |mut b| {
            let end = b.pop();
            let mut writes = vec![b, end.into_iter().collect()];
            writes.retain(|w| !w.is_empty());
            writes
        }),
    ),
    // ----- numbers and names
    vary(
        "limits-small",
        "limits of 17, 33 and 65 bytes",
        Effect::Maxes(Maxes { kvsname_max: 17, keylen_max: 33, vallen_max: 65 }),
    ),
    vary(
        "limits-large",
        "limits of 1024, 512 and 65536 bytes",
        Effect::Maxes(Maxes { kvsname_max: 1024, keylen_max: 512, vallen_max: 65536 }),
    ),
    vary(
        "limits-as-intel",
        "vallen_max is 4096",
        Effect::Maxes(Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 4096 }),
    ),
    vary(
        "kvsname-longest",
        "KVS names are as long as kvsname_max allows",
        Effect::Kvsname(|n, g| {
            n.resize(255, b'n');
            n.splice(..1, g.to_string().bytes()).for_each(drop);
            n.truncate(255);
        }),
    ),
    vary(
        "kvsname-one-byte",
        "KVS names are one letter",
        Effect::Kvsname(|n, g| *n = vec![b'a' + (g % 26) as u8]),
    ),
    vary(
        "kvsname-punctuation",
        "KVS names hold every kind of character",
        Effect::Kvsname(|n, _| {
            n.insert(0, b'<');
            n.extend(b">:/%$#\"'\\~[kvs]");
        }),
    ),
    vary(
        "kvsname-digits",
        "KVS names are numbers",
        Effect::Kvsname(|n, _| {
            n.iter_mut().filter(|b| !b.is_ascii_digit()).for_each(|b| *b = b'0' + *b % 10)
        }),
    ),
    vary("universe-larger", "the universe is larger than the program", Effect::Universe(4096)),
    vary(
        "universe-refused",
        "the universe size cannot be told",
        Effect::Reply(Replies(Some(Op::Universe), ReplyKind::Ok), |d| d.fail()),
    ),
    vary(
        "appnum-refused",
        "the application number cannot be told",
        Effect::Reply(Replies(Some(Op::Appnum), ReplyKind::Ok), |d| d.fail()),
    ),
    vary(
        "mapping-block-per-node",
        "the mapping has a block for each node",
        Effect::Mapping(|m, s| replace(m, mapping(s.size, s.nodes, |n, ppn| format!("({n},1,{ppn})")))),
    ),
    vary(
        "mapping-block-per-rank",
        "the mapping has a block for each rank",
        Effect::Mapping(|m, s| {
            replace(m, mapping(s.size, s.nodes, |n, ppn| vec![format!("({n},1,1)"); ppn as usize].join(",")));
        }),
    ),
    vary(
        "mapping-other-ids",
        "node ids begin at 100",
        Effect::Mapping(|m, s| {
            replace(m, mapping(s.size, s.nodes, |n, ppn| format!("({},1,{ppn})", n + 100)))
        }),
    ),
    vary(
        "mapping-room-to-spare",
        "the last block has room for more ranks",
        Effect::Mapping(|m, s| {
            let last = s.nodes.min(s.size) - 1;
            replace(
                m,
                mapping(s.size, s.nodes, |n, ppn| format!("({n},1,{})", ppn + if n == last { 3 } else { 0 })),
            );
        }),
    ),
    vary(
        "mapping-leading-zeros",
        "numbers of the mapping have leading zeros",
        Effect::Mapping(|m, s| replace(m, mapping(s.size, s.nodes, |n, ppn| format!("(0{n},01,00{ppn})")))),
    ),
    vary(
        "other-variables",
        "the environment has variables of the manager's own",
        Effect::Env(|e, _| {
            // Beside PMI_PORT it has a meaning.
            if !e.iter().any(|(name, _)| *name == "PMI_PORT") {
                e.push(("PMI_ID", "7".into()));
            }
            e.push(("PMI_DEBUG", "0".into()));
            e.push(("PMI_TOTALVIEW", String::new()));
        }),
    ),
    vary(
        "singinit-says-version",
        "a singleton is told the version first, as gforker does it",
        Effect::Singinit(|says| {
            says.asks = b"cmd=singinit pmi_version=1 pmi_subversion=1 stdio=no authtype=none\n".to_vec();
        }),
    ),
    vary(
        "init-closes-on-lower",
        "a client that knows less than 1.1 is turned away",
        Effect::Version(VersionEffect::ClosesOnLower),
    ),
    vary(
        "init-refuses-lower",
        "a client that knows less than 1.1 is refused",
        Effect::Version(VersionEffect::RefusesLower),
    ),
    vary("init-echoes", "every version offered is agreed to", Effect::Version(VersionEffect::Echoes)),
    // ----- what may be refused or done otherwise
    vary("put-replaces", "a second put of a key replaces its value", Effect::Put(PutEffect::Replaces)),
    vary(
        "put-takes-overlong",
        "keys and values beyond the limits are taken",
        Effect::Put(PutEffect::AcceptsOverlong),
    ),
    vary(
        "put-visible-at-barrier",
        "a put is visible to nobody before the barrier",
        Effect::Put(PutEffect::Deferred),
    ),
    vary(
        "get-after-barrier-only",
        "a value can be read after the next barrier, not before",
        Effect::Get(GetEffect::AfterBarrierOnly),
    ),
    vary("publish-replaces", "a second publish replaces the port", Effect::Names(NamesEffect::TwiceReplaces)),
    vary(
        "publish-ends-with-publisher",
        "a name goes when its publisher finalizes",
        Effect::Names(NamesEffect::DropsWithPublisher),
    ),
    vary(
        "spawn-no-errcodes",
        "spawn_result has no errcodes",
        Effect::Reply(Replies(Some(Op::Spawn), ReplyKind::Ok), |d| d.remove("errcodes")),
    ),
    vary(
        "error-answered",
        "a request of a known name that is otherwise wrong is answered by a failure",
        Effect::Error(incomplete, ErrorEffect::AnsweredFail),
    ),
    vary(
        "abort-no-reply",
        "abort is not answered",
        Effect::Reply(Replies(Some(Op::Abort), ReplyKind::Any), |d| d.silence()),
    ),
    vary(
        "finalize-closes",
        "the connection is closed behind finalize_ack",
        Effect::Finalize(FinalizeEffect::Closes),
    ),
    vary("spawn-refused", "spawn is refused", Effect::Spawn(SpawnEffect::Refused)),
    vary("names-refused", "the name service is refused", Effect::Names(NamesEffect::Refused)),
    vary(
        "empty-lines-ignored",
        "empty lines are passed over",
        Effect::Error(<[u8]>::is_empty, ErrorEffect::Ignored),
    ),
    vary(
        "closes-what-it-lacks",
        "a request to spawn or about a name ends the connection",
        Effect::Reject(|line| {
            let lacked: [&[u8]; 4] =
                [b"mcmd=spawn", b"cmd=publish_name", b"cmd=lookup_name", b"cmd=unpublish_name"];
            lacked.iter().any(|request| line.starts_with(request))
        }),
    ),
];
