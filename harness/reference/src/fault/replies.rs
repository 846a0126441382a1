//! What single responses say: init, get_maxes, universe size, appnum, kvsname, put, get, barrier, finalize, and `rc`.

use pmi_wire::Operation as Op;

use super::effect::{Effect, For, On, VersionFault, When};
use super::{Draft, Fault, fault};

const fn ok(op: Op) -> For {
    For(Some(op), On::Ok)
}

const fn any(op: Op) -> For {
    For(Some(op), On::Any)
}

const COMPLETE: &str = "rfc13.response.complete-on-success";

/// Adds to a decimal number.
fn bump(value: &mut Vec<u8>, by: i64) {
    let number: i64 = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    *value = (number + by).to_string().into_bytes();
}

pub(super) const FAULTS: &[Fault] = &[
    // ----- init
    fault(
        "init-no-answer",
        &["rfc13.init.version-used", "rfc13.abnf.c-init"],
        "init is not answered",
        Effect::Reply(any(Op::Init), Draft::silence),
        When::Always,
    ),
    fault(
        "init-no-answer-for-last-rank",
        &["rfc13.init.version-used", "rfc13.abnf.c-init"],
        "the init of the last rank is not answered",
        Effect::Reply(any(Op::Init), Draft::silence),
        When::LastRank,
    ),
    fault(
        "init-refused",
        &["rfc13.abnf.c-init", "rfc13.init.version-used"],
        "init is refused",
        Effect::Reply(any(Op::Init), Draft::fail),
        When::Always,
    ),
    fault(
        "init-version-higher",
        &["rfc13.init.version-used"],
        "init is answered with 1.2 whatever was offered",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_subversion", "2")),
        When::Always,
    ),
    fault(
        "init-version-2",
        &["rfc13.init.version-used"],
        "init is answered with 2.0 whatever was offered",
        Effect::Reply(ok(Op::Init), |d| {
            d.set("pmi_version", "2");
            d.set("pmi_subversion", "0");
        }),
        When::Always,
    ),
    fault(
        "init-version-1-0",
        &["rfc13.init.highest-mutual"],
        "1.1 is answered with 1.0",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_subversion", "0")),
        When::Always,
    ),
    fault(
        "init-version-0",
        &["rfc13.init.version-used", "rfc13.init.highest-mutual"],
        "init is answered with 0.0",
        Effect::Reply(ok(Op::Init), |d| {
            d.set("pmi_version", "0");
            d.set("pmi_subversion", "0");
        }),
        When::Always,
    ),
    fault(
        "init-refuses-higher",
        &["rfc13.init.highest-mutual"],
        "a client that knows more than 1.1 is refused",
        Effect::Version(VersionFault::RefusesHigher),
        When::Always,
    ),
    fault(
        "init-accepts-lower",
        &["rfc13.init.version-used"],
        "a client that knows less than 1.1 is told 1.1",
        Effect::Version(VersionFault::AcceptsLower),
        When::Always,
    ),
    fault(
        "init-no-version",
        &["rfc13.init.version-used", COMPLETE],
        "init is answered without a version",
        Effect::Reply(ok(Op::Init), |d| {
            d.drop("pmi_version");
            d.drop("pmi_subversion");
        }),
        When::Always,
    ),
    fault(
        "init-no-subversion",
        &["rfc13.abnf.s-init"],
        "init is answered without pmi_subversion",
        Effect::Reply(ok(Op::Init), |d| d.drop("pmi_subversion")),
        When::Always,
    ),
    fault(
        "init-version-dotted",
        &["rfc13.abnf.s-init", "rfc13.abnf.uint"],
        "pmi_version is 1.1",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_version", "1.1")),
        When::Always,
    ),
    fault(
        "init-version-empty",
        &["rfc13.abnf.s-init", "rfc13.abnf.uint"],
        "pmi_version is empty",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_version", "")),
        When::Always,
    ),
    fault(
        "init-version-differs-on-last-rank",
        &["rfc13.init.highest-mutual", "rfc13.init.version-used"],
        "the last rank is told another version",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_subversion", "0")),
        When::LastRank,
    ),
    fault(
        "init-cmd-init",
        &["rfc13.wire.client-sends-requests"],
        "init is answered by cmd=init",
        Effect::Reply(any(Op::Init), |d| d.set("cmd", "init")),
        When::Always,
    ),
    fault(
        "init-cmd-hyphens",
        &["rfc13.abnf.pmi1"],
        "init is answered by response-to-init",
        Effect::Reply(any(Op::Init), |d| d.set("cmd", "response-to-init")),
        When::Always,
    ),
    fault(
        "init-numbers-twice",
        &["rfc13.abnf.s-init"],
        "pmi_version stands twice",
        Effect::Reply(ok(Op::Init), |d| d.add("pmi_version", "1")),
        When::Always,
    ),
    // ----- get_maxes
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
        Effect::Reply(any(Op::Maxes), Draft::silence),
        When::Always,
    ),
    fault(
        "maxes-refused",
        &["rfc13.abnf.c-maxes", "rfc13.maxes.limits"],
        "get_maxes is refused",
        Effect::Reply(any(Op::Maxes), Draft::fail),
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
        Effect::Reply(ok(Op::Maxes), |d| d.drop("vallen_max")),
        When::Always,
    ),
    fault(
        "maxes-no-kvsname",
        &["rfc13.abnf.s-maxes", "rfc13.maxes.limits"],
        "kvsname_max is missing",
        Effect::Reply(ok(Op::Maxes), |d| d.drop("kvsname_max")),
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
    // ----- process group information
    fault(
        "universe-no-answer",
        &["rfc13.abnf.c-universe"],
        "get_universe_size is not answered",
        Effect::Reply(any(Op::Universe), Draft::silence),
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
        Effect::Reply(ok(Op::Universe), |d| d.drop("size")),
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
        Effect::Reply(any(Op::Appnum), Draft::silence),
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
        Effect::Reply(ok(Op::Appnum), |d| d.drop("appnum")),
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
    // ----- kvsname
    fault(
        "kvsname-refused",
        &["rfc13.abnf.c-kvsname"],
        "get_my_kvsname is refused",
        Effect::Reply(any(Op::Kvsname), Draft::fail),
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
        Effect::Reply(any(Op::Kvsname), Draft::silence),
        When::Always,
    ),
    fault(
        "kvsname-missing",
        &["rfc13.kvsname.common", COMPLETE],
        "my_kvsname has no name",
        Effect::Reply(ok(Op::Kvsname), |d| d.drop("kvsname")),
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
    // ----- put, get, barrier, finalize as responses
    fault(
        "put-no-answer",
        &["rfc13.abnf.c-put"],
        "put is not answered",
        Effect::Reply(any(Op::Put), Draft::silence),
        When::Always,
    ),
    fault(
        "put-refused",
        &["rfc13.abnf.c-put"],
        "every put is refused",
        Effect::Reply(any(Op::Put), Draft::fail),
        When::Always,
    ),
    fault(
        "put-rc-text",
        &["rfc13.abnf.s-put", "rfc13.abnf.int"],
        "put_result has rc=ok",
        Effect::Reply(ok(Op::Put), |d| d.set("rc", "ok")),
        When::Always,
    ),
    fault(
        "put-rc-empty",
        &["rfc13.abnf.s-put", "rfc13.abnf.int"],
        "put_result has an empty rc",
        Effect::Reply(ok(Op::Put), |d| d.set("rc", "")),
        When::Always,
    ),
    fault(
        "put-rc-twice",
        &["rfc13.abnf.s-put"],
        "put_result has two rc",
        Effect::Reply(ok(Op::Put), |d| d.add("rc", "-1")),
        When::Always,
    ),
    fault(
        "put-rc-positive-on-success",
        &["rfc13.abnf.c-put"],
        "put succeeds with rc=1, a count",
        Effect::Reply(ok(Op::Put), |d| d.set("rc", "1")),
        When::Always,
    ),
    fault(
        "get-no-answer",
        &["rfc13.abnf.c-get"],
        "get is not answered",
        Effect::Reply(any(Op::Get), Draft::silence),
        When::Always,
    ),
    fault(
        "get-no-value",
        &["rfc13.get.value", COMPLETE],
        "get_result has no value",
        Effect::Reply(ok(Op::Get), |d| d.drop("value")),
        When::Always,
    ),
    fault(
        "get-value-misspelt",
        &["rfc13.get.value", COMPLETE],
        "value is called val",
        Effect::Reply(ok(Op::Get), |d| d.rename("value", "val")),
        When::Always,
    ),
    fault(
        "get-rc-decimal-point",
        &["rfc13.abnf.s-get", "rfc13.abnf.int"],
        "get_result has rc=0.0",
        Effect::Reply(ok(Op::Get), |d| d.set("rc", "0.0")),
        When::Always,
    ),
    fault(
        "get-missing-rc-zero",
        &["rfc13.error.rc-nonzero"],
        "a get of a missing key succeeds with an empty value",
        Effect::Reply(For(Some(Op::Get), On::Fail), |d| {
            d.replace(&[("cmd", "get_result"), ("rc", "0"), ("value", "")])
        }),
        When::Always,
    ),
    fault(
        "get-missing-no-rc",
        &["rfc13.error.rc-nonzero"],
        "a get of a missing key is answered by msg alone",
        Effect::Reply(For(Some(Op::Get), On::Fail), |d| d.drop("rc")),
        When::Always,
    ),
    fault(
        "get-missing-value-unknown",
        &["rfc13.error.rc-nonzero"],
        "a missing key has the value unknown",
        Effect::Reply(For(Some(Op::Get), On::Fail), |d| {
            d.replace(&[("cmd", "get_result"), ("rc", "0"), ("value", "unknown")])
        }),
        When::Always,
    ),
    fault(
        "get-missing-silent",
        &["rfc13.abnf.c-get", "rfc13.wire.lock-step", "rfc13.error.rc-nonzero"],
        "a get of a missing key waits for it",
        Effect::Reply(For(Some(Op::Get), On::Fail), Draft::silence),
        When::Always,
    ),
    fault(
        "failures-rc-zero",
        &["rfc13.error.rc-nonzero"],
        "failures say rc=0",
        Effect::Reply(For(None, On::Fail), |d| d.set("rc", "0")),
        When::Always,
    ),
    fault(
        "failures-rc-text",
        &["rfc13.abnf.int", "rfc13.abnf.s-get"],
        "failures say rc=PMI_FAIL",
        Effect::Reply(For(None, On::Fail), |d| d.set("rc", "PMI_FAIL")),
        When::Always,
    ),
    fault(
        "failures-rc-two-signs",
        &["rfc13.abnf.int", "rfc13.abnf.s-get"],
        "failures say rc=+-1, as the grammar has it to the letter",
        Effect::Reply(For(None, On::Fail), |d| d.set("rc", "+-1")),
        When::Always,
    ),
    fault(
        "get-rc-twice",
        &["rfc13.abnf.s-get"],
        "get_result has two rc",
        Effect::Reply(ok(Op::Get), |d| d.insert("rc", "-1")),
        When::Always,
    ),
    fault(
        "finalize-rc-twice",
        &["rfc13.abnf.s-finalize"],
        "finalize_ack has two rc",
        Effect::Reply(any(Op::Finalize), |d| d.add("rc", "1")),
        When::Always,
    ),
    fault(
        "barrier-rc-twice",
        &["rfc13.abnf.s-barrier"],
        "barrier_out has two rc",
        Effect::Reply(any(Op::Barrier), |d| d.add("rc", "1")),
        When::Always,
    ),
    fault(
        "barrier-closed",
        &["rfc13.abnf.c-barrier"],
        "barrier_in is taken for a protocol error",
        Effect::Reject(|l| l == b"cmd=barrier_in"),
        When::Always,
    ),
    fault(
        "appnum-closed",
        &["rfc13.abnf.c-appnum"],
        "get_appnum is taken for a protocol error",
        Effect::Reject(|l| l == b"cmd=get_appnum"),
        When::Always,
    ),
    fault(
        "get-closed",
        &["rfc13.abnf.c-get"],
        "get is taken for a protocol error",
        Effect::Reject(|l| l.starts_with(b"cmd=get ")),
        When::Always,
    ),
    fault(
        "finalize-closed",
        &["rfc13.abnf.c-finalize"],
        "finalize is taken for a protocol error",
        Effect::Reject(|l| l == b"cmd=finalize"),
        When::Always,
    ),
    fault(
        "finalize-no-answer",
        &["rfc13.finalize.ack"],
        "finalize is not answered",
        Effect::Reply(any(Op::Finalize), Draft::silence),
        When::Always,
    ),
    fault(
        "finalize-no-answer-for-last-rank",
        &["rfc13.finalize.ack"],
        "the finalize of the last rank is not answered",
        Effect::Reply(any(Op::Finalize), Draft::silence),
        When::LastRank,
    ),
    fault(
        "finalize-refused",
        &["rfc13.finalize.ack", "rfc13.abnf.c-finalize"],
        "finalize is refused",
        Effect::Reply(any(Op::Finalize), Draft::fail),
        When::Always,
    ),
    fault(
        "finalize-empty-line",
        &["rfc13.wire.response-matches-request", "rfc13.finalize.ack"],
        "finalize is answered by an empty line",
        Effect::Reply(any(Op::Finalize), |d| d.tuples.clear()),
        When::Always,
    ),
    fault(
        "finalize-rc-text",
        &["rfc13.abnf.s-finalize", "rfc13.abnf.int"],
        "finalize_ack has rc=done",
        Effect::Reply(any(Op::Finalize), |d| d.set("rc", "done")),
        When::Always,
    ),
    fault(
        "barrier-rc-text",
        &["rfc13.abnf.s-barrier", "rfc13.abnf.int"],
        "barrier_out has rc=all",
        Effect::Reply(any(Op::Barrier), |d| d.set("rc", "all")),
        When::Always,
    ),
    fault(
        "barrier-cmd-barrier-in",
        &["rfc13.wire.client-sends-requests"],
        "barrier_in is answered by barrier_in",
        Effect::Reply(any(Op::Barrier), |d| d.set("cmd", "barrier_in")),
        When::Always,
    ),
    fault(
        "abort-answered-with-text",
        &["rfc13.abnf.s-abort"],
        "abort is answered by cmd=abort_ack",
        Effect::Reply(any(Op::Abort), |d| d.replace(&[("cmd", "abort_ack"), ("rc", "0")])),
        When::Always,
    ),
    // ----- only sometimes
    fault(
        "init-version-higher-in-children",
        &["rfc13.init.version-used"],
        "spawned programs are answered 1.2",
        Effect::Reply(ok(Op::Init), |d| d.set("pmi_subversion", "2")),
        When::Spawned,
    ),
    fault(
        "put-silent-while-others-wait",
        &["rfc13.abnf.c-put"],
        "a put is not answered while others wait in the barrier",
        Effect::Reply(any(Op::Put), Draft::silence),
        When::Waiting,
    ),
    fault(
        "get-silent-while-others-wait",
        &["rfc13.abnf.c-get"],
        "a get is not answered while others wait in the barrier",
        Effect::Reply(any(Op::Get), Draft::silence),
        When::Waiting,
    ),
    fault(
        "maxes-silent-while-others-wait",
        &["rfc13.maxes.limits"],
        "get_maxes is not answered while others wait",
        Effect::Reply(any(Op::Maxes), Draft::silence),
        When::Waiting,
    ),
    fault(
        "finalize-silent-while-others-wait",
        &["rfc13.finalize.ack"],
        "finalize is not answered while others wait",
        Effect::Reply(any(Op::Finalize), Draft::silence),
        When::Waiting,
    ),
    fault(
        "init-silent-while-others-wait",
        &["rfc13.init.version-used"],
        "init is not answered while others wait",
        Effect::Reply(any(Op::Init), Draft::silence),
        When::Waiting,
    ),
    fault(
        "universe-zero-in-children",
        &["rfc13.universe.size"],
        "spawned programs are told a universe of 0",
        Effect::Reply(ok(Op::Universe), |d| d.set("size", "0")),
        When::Spawned,
    ),
    fault(
        "appnum-silent-in-children",
        &["rfc13.abnf.c-appnum"],
        "get_appnum of spawned programs is not answered",
        Effect::Reply(any(Op::Appnum), Draft::silence),
        When::Spawned,
    ),
    fault(
        "finalize-silent-in-children",
        &["rfc13.finalize.ack"],
        "finalize of spawned programs is not answered",
        Effect::Reply(any(Op::Finalize), Draft::silence),
        When::Spawned,
    ),
    fault(
        "maxes-silent-from-third",
        &["rfc13.abnf.c-maxes", "rfc13.maxes.limits"],
        "get_maxes is answered twice in a life",
        Effect::Reply(any(Op::Maxes), Draft::silence),
        When::From(3),
    ),
    fault(
        "kvsname-differs-in-odd-group",
        &["rfc13.kvsname.common"],
        "the last rank of an odd group is told another KVS name",
        Effect::Reply(ok(Op::Kvsname), |d| d.edit("kvsname", |v| v.push(b'o'))),
        When::OddLast,
    ),
    fault(
        "get-silent-for-odd-last",
        &["rfc13.abnf.c-get"],
        "the last rank of an odd group gets no values",
        Effect::Reply(any(Op::Get), Draft::silence),
        When::OddLast,
    ),
    fault(
        "put-refused-from-fiftieth",
        &["rfc13.abnf.c-put"],
        "the 50th put is refused",
        Effect::Reply(any(Op::Put), Draft::fail),
        When::Nth(50),
    ),
];
