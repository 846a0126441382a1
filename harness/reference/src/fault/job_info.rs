//! What a process is told of its program: limits, sizes and names.

use pmi_wire::Operation as Op;

use super::row::{COMPLETE, Fault, any, bump, fault, ok};
use crate::behaviour::{Effect, ReplyDraft, When};

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "maxes-twice",
        &["rfc13.abnf.s-maxes"],
        "keylen_max stands twice",
        Effect::Reply(ok(Op::Maxes), |d| d.add("keylen_max", "32")),
        When::Always,
    ),
    fault(
        "maxes-no-answer",
        &["rfc13.abnf.c-maxes", "rfc13.maxes.limits"],
        "get_maxes is not answered",
        Effect::Reply(any(Op::Maxes), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "maxes-refused",
        &["rfc13.abnf.c-maxes", "rfc13.maxes.limits"],
        "get_maxes is refused",
        Effect::Reply(any(Op::Maxes), ReplyDraft::fail),
        When::Always,
    ),
    fault(
        "maxes-empty",
        &["rfc13.maxes.limits", COMPLETE],
        "maxes has no limits",
        Effect::Reply(ok(Op::Maxes), |d| d.tuples.truncate(2)),
        When::Always,
    ),
    fault(
        "maxes-no-vallen",
        &["rfc13.abnf.s-maxes", "rfc13.maxes.limits"],
        "vallen_max is missing",
        Effect::Reply(ok(Op::Maxes), |d| d.remove("vallen_max")),
        When::Always,
    ),
    fault(
        "maxes-no-kvsname",
        &["rfc13.abnf.s-maxes", "rfc13.maxes.limits"],
        "kvsname_max is missing",
        Effect::Reply(ok(Op::Maxes), |d| d.remove("kvsname_max")),
        When::Always,
    ),
    fault(
        "maxes-key-misspelt",
        &["rfc13.abnf.s-maxes", "rfc13.maxes.limits"],
        "keylen_max is called keylenmax",
        Effect::Reply(ok(Op::Maxes), |d| d.rename("keylen_max", "keylenmax")),
        When::Always,
    ),
    fault(
        "maxes-negative",
        &["rfc13.abnf.s-maxes", "rfc13.abnf.uint"],
        "vallen_max is -1 for unlimited",
        Effect::Reply(ok(Op::Maxes), |d| d.set("vallen_max", "-1")),
        When::Always,
    ),
    fault(
        "maxes-hexadecimal",
        &["rfc13.abnf.s-maxes", "rfc13.abnf.uint"],
        "limits are hexadecimal",
        Effect::Reply(ok(Op::Maxes), |d| d.set("vallen_max", "0x400")),
        When::Always,
    ),
    fault(
        "maxes-plus",
        &["rfc13.abnf.s-maxes", "rfc13.abnf.uint"],
        "a limit has a sign",
        Effect::Reply(ok(Op::Maxes), |d| d.set("keylen_max", "+64")),
        When::Always,
    ),
    fault(
        "maxes-zero",
        &["rfc13.maxes.limits", "rfc13.maxes.honoured"],
        "limits are 0 for unlimited",
        Effect::Reply(ok(Op::Maxes), |d| {
            for key in ["kvsname_max", "keylen_max", "vallen_max"] {
                d.set(key, "0");
            }
        }),
        When::Always,
    ),
    fault(
        "maxes-differ-by-rank",
        &["rfc13.maxes.limits"],
        "the last rank is told other limits",
        Effect::Reply(ok(Op::Maxes), |d| d.edit("vallen_max", |v| bump(v, -500))),
        When::LastRank,
    ),
    fault(
        "maxes-change",
        &["rfc13.maxes.limits"],
        "limits differ when asked again",
        Effect::Reply(ok(Op::Maxes), |d| {
            let by = -(d.count as i64);
            d.edit("vallen_max", |v| bump(v, by));
        }),
        When::Always,
    ),
    fault(
        "maxes-too-high",
        &["rfc13.maxes.honoured"],
        "limits are announced that are not kept",
        Effect::Reply(ok(Op::Maxes), |d| {
            d.edit("keylen_max", |v| bump(v, 1));
            d.edit("vallen_max", |v| bump(v, 1));
        }),
        When::Always,
    ),
    fault(
        "universe-no-answer",
        &["rfc13.abnf.c-universe"],
        "get_universe_size is not answered",
        Effect::Reply(any(Op::Universe), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "universe-negative",
        &["rfc13.abnf.s-universe", "rfc13.abnf.uint", "rfc13.universe.size"],
        "the universe size is -1",
        Effect::Reply(ok(Op::Universe), |d| d.set("size", "-1")),
        When::Always,
    ),
    fault(
        "universe-too-small",
        &["rfc13.universe.size"],
        "the universe is smaller than the program",
        Effect::Reply(ok(Op::Universe), |d| d.edit("size", |v| bump(v, -1))),
        When::Always,
    ),
    fault(
        "universe-zero",
        &["rfc13.universe.size"],
        "the universe size is 0",
        Effect::Reply(ok(Op::Universe), |d| d.set("size", "0")),
        When::Always,
    ),
    fault(
        "universe-is-the-rank",
        &["rfc13.universe.size"],
        "the universe size is the rank of who asks",
        Effect::Reply(ok(Op::Universe), |d| {
            let rank = d.to.rank.to_string();
            d.set("size", rank);
        }),
        When::Always,
    ),
    fault(
        "universe-grows",
        &["rfc13.universe.size"],
        "the universe size grows each time",
        Effect::Reply(ok(Op::Universe), |d| {
            let by = d.count as i64;
            d.edit("size", |v| bump(v, by));
        }),
        When::Always,
    ),
    fault(
        "universe-no-size",
        &["rfc13.universe.size", COMPLETE],
        "universe_size has no size",
        Effect::Reply(ok(Op::Universe), |d| d.remove("size")),
        When::Always,
    ),
    fault(
        "universe-not-a-number",
        &["rfc13.abnf.s-universe", "rfc13.abnf.uint"],
        "the universe size is unlimited",
        Effect::Reply(ok(Op::Universe), |d| d.set("size", "unlimited")),
        When::Always,
    ),
    fault(
        "appnum-no-answer",
        &["rfc13.abnf.c-appnum"],
        "get_appnum is not answered",
        Effect::Reply(any(Op::Appnum), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "appnum-negative",
        &["rfc13.abnf.s-appnum", "rfc13.abnf.uint", "rfc13.appnum.value"],
        "the application number is -1",
        Effect::Reply(ok(Op::Appnum), |d| d.set("appnum", "-1")),
        When::Always,
    ),
    fault(
        "appnum-is-the-rank",
        &["rfc13.appnum.value"],
        "the application number is the rank",
        Effect::Reply(ok(Op::Appnum), |d| {
            let rank = d.to.rank.to_string();
            d.set("appnum", rank);
        }),
        When::Always,
    ),
    fault(
        "appnum-empty",
        &["rfc13.abnf.s-appnum", "rfc13.abnf.uint", "rfc13.appnum.value"],
        "the application number is empty",
        Effect::Reply(ok(Op::Appnum), |d| d.set("appnum", "")),
        When::Always,
    ),
    fault(
        "appnum-no-value",
        &["rfc13.appnum.value", COMPLETE],
        "appnum has no number",
        Effect::Reply(ok(Op::Appnum), |d| d.remove("appnum")),
        When::Always,
    ),
    fault(
        "appnum-changes",
        &["rfc13.appnum.value"],
        "the application number differs when asked again",
        Effect::Reply(ok(Op::Appnum), |d| {
            let count = d.count.to_string();
            d.set("appnum", count);
        }),
        When::Always,
    ),
    fault(
        "universe-twice",
        &["rfc13.abnf.s-universe"],
        "size stands twice",
        Effect::Reply(ok(Op::Universe), |d| d.add("size", "99")),
        When::Always,
    ),
    fault(
        "universe-refused-late",
        &["rfc13.universe.size"],
        "the second answer holds another size",
        Effect::Reply(ok(Op::Universe), |d| d.edit("size", |v| bump(v, 7))),
        When::Nth(2),
    ),
    fault(
        "appnum-twice",
        &["rfc13.abnf.s-appnum"],
        "appnum stands twice",
        Effect::Reply(ok(Op::Appnum), |d| d.add("appnum", "1")),
        When::Always,
    ),
    fault(
        "kvsname-refused",
        &["rfc13.abnf.c-kvsname"],
        "get_my_kvsname is refused",
        Effect::Reply(any(Op::Kvsname), ReplyDraft::fail),
        When::Always,
    ),
    fault(
        "kvsname-twice",
        &["rfc13.abnf.s-kvsname"],
        "kvsname stands twice",
        Effect::Reply(ok(Op::Kvsname), |d| d.add("kvsname", "other")),
        When::Always,
    ),
    fault(
        "kvsname-no-answer",
        &["rfc13.abnf.c-kvsname", "rfc13.kvsname.common"],
        "get_my_kvsname is not answered",
        Effect::Reply(any(Op::Kvsname), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "kvsname-missing",
        &["rfc13.kvsname.common", COMPLETE],
        "my_kvsname has no name",
        Effect::Reply(ok(Op::Kvsname), |d| d.remove("kvsname")),
        When::Always,
    ),
    fault(
        "kvsname-empty",
        &["rfc13.abnf.s-kvsname", "rfc13.abnf.word"],
        "the name of the KVS is empty",
        Effect::Reply(ok(Op::Kvsname), |d| d.set("kvsname", "")),
        When::Always,
    ),
    fault(
        "kvsname-with-equals",
        &["rfc13.abnf.s-kvsname", "rfc13.abnf.word"],
        "the name of the KVS holds an equals sign",
        Effect::Reply(ok(Op::Kvsname), |d| d.edit("kvsname", |v| v.extend(b"=0"))),
        When::Always,
    ),
    fault(
        "kvsname-per-rank",
        &["rfc13.kvsname.common"],
        "each rank is told a name of its own",
        Effect::Reply(ok(Op::Kvsname), |d| {
            let rank = d.to.rank;
            d.edit("kvsname", |v| v.extend(format!("-{rank}").bytes()));
        }),
        When::Always,
    ),
    fault(
        "kvsname-other-on-last-rank",
        &["rfc13.kvsname.common"],
        "the last rank is told another name",
        Effect::Reply(ok(Op::Kvsname), |d| d.edit("kvsname", |v| v.push(b'x'))),
        When::LastRank,
    ),
    fault(
        "kvsname-changes",
        &["rfc13.kvsname.common"],
        "the name differs when asked again",
        Effect::Reply(ok(Op::Kvsname), |d| {
            let count = d.count;
            d.edit("kvsname", |v| v.extend(format!(".{count}").bytes()));
        }),
        When::Always,
    ),
    fault(
        "kvsname-too-long",
        &["rfc13.kvsname.length"],
        "the name does not fit kvsname_max",
        Effect::Kvsname(|n, _| n.resize(256, b'n')),
        When::Always,
    ),
    fault(
        "kvsname-same-for-children",
        &["rfc13.kvsname.distinct"],
        "a spawned group has its parent's KVS name",
        Effect::Kvsname(|n, _| *n = b"kvs".to_vec()),
        When::Always,
    ),
    fault(
        "kvsname-two-words",
        &["rfc13.wire.tuples", "rfc13.abnf.s-kvsname"],
        "the name of the KVS holds a blank",
        Effect::Reply(ok(Op::Kvsname), |d| d.edit("kvsname", |v| v.extend(b" job"))),
        When::Always,
    ),
    fault(
        "kvsname-changes-late",
        &["rfc13.kvsname.common"],
        "from the 150th time on, another name of the KVS is told",
        Effect::Reply(ok(Op::Kvsname), |d| d.edit("kvsname", |v| v.extend(b"-2"))),
        When::From(150),
    ),
];
