//! The responses to put, get, barrier and finalize as messages, and their `rc`.

use pmi_wire::Operation as Op;

use super::row::{Fault, fault};
use crate::behaviour::{Draft, Effect, Replies, ReplyKind, When};

const fn ok(op: Op) -> Replies {
    Replies(Some(op), ReplyKind::Ok)
}

const fn any(op: Op) -> Replies {
    Replies(Some(op), ReplyKind::Any)
}

const COMPLETE: &str = "rfc13.response.complete-on-success";

pub(super) const FAULTS: &[Fault] = &[
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
        Effect::Reply(ok(Op::Get), |d| d.remove("value")),
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
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Fail), |d| {
            d.replace(&[("cmd", "get_result"), ("rc", "0"), ("value", "")])
        }),
        When::Always,
    ),
    fault(
        "get-missing-no-rc",
        &["rfc13.error.rc-nonzero"],
        "a get of a missing key is answered by msg alone",
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Fail), |d| d.remove("rc")),
        When::Always,
    ),
    fault(
        "get-missing-value-unknown",
        &["rfc13.error.rc-nonzero"],
        "a missing key has the value unknown",
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Fail), |d| {
            d.replace(&[("cmd", "get_result"), ("rc", "0"), ("value", "unknown")])
        }),
        When::Always,
    ),
    fault(
        "get-missing-silent",
        &["rfc13.abnf.c-get", "rfc13.wire.lock-step", "rfc13.error.rc-nonzero"],
        "a get of a missing key waits for it",
        Effect::Reply(Replies(Some(Op::Get), ReplyKind::Fail), Draft::silence),
        When::Always,
    ),
    fault(
        "failures-rc-zero",
        &["rfc13.error.rc-nonzero"],
        "failures say rc=0",
        Effect::Reply(Replies(None, ReplyKind::Fail), |d| d.set("rc", "0")),
        When::Always,
    ),
    fault(
        "failures-rc-text",
        &["rfc13.abnf.int", "rfc13.abnf.s-get"],
        "failures say rc=PMI_FAIL",
        Effect::Reply(Replies(None, ReplyKind::Fail), |d| d.set("rc", "PMI_FAIL")),
        When::Always,
    ),
    fault(
        "failures-rc-two-signs",
        &["rfc13.abnf.int", "rfc13.abnf.s-get"],
        "failures say rc=+-1, as the grammar has it to the letter",
        Effect::Reply(Replies(None, ReplyKind::Fail), |d| d.set("rc", "+-1")),
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
        When::LastOfOddGroup,
    ),
    fault(
        "get-silent-for-odd-last",
        &["rfc13.abnf.c-get"],
        "the last rank of an odd group gets no values",
        Effect::Reply(any(Op::Get), Draft::silence),
        When::LastOfOddGroup,
    ),
    fault(
        "put-refused-from-fiftieth",
        &["rfc13.abnf.c-put"],
        "the 50th put is refused",
        Effect::Reply(any(Op::Put), Draft::fail),
        When::Nth(50),
    ),
];
