//! Abort and finalize.

use super::row::{Fault, fault};
use crate::behaviour::{AbortEffect, Effect, ErrorEffect, FinalizeEffect, When};

fn any(_: &[u8]) -> bool {
    true
}

const CLOSE: &str = "rfc13.error.close";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "abort-ignored",
        &["rfc13.abort.group"],
        "abort is answered and nothing happens",
        Effect::Abort(AbortEffect::Ignored),
        When::Always,
    ),
    fault(
        "abort-ends-sender-only",
        &["rfc13.abort.group"],
        "abort ends the process that asked, and no other",
        Effect::Abort(AbortEffect::SenderOnly),
        When::Always,
    ),
    fault(
        "abort-spares-sender",
        &["rfc13.abort.group"],
        "abort ends all but the process that asked",
        Effect::Abort(AbortEffect::SparesSender),
        When::Always,
    ),
    fault(
        "abort-spares-last-rank",
        &["rfc13.abort.group"],
        "abort ends all but the last rank",
        Effect::Abort(AbortEffect::SparesLast),
        When::Always,
    ),
    fault(
        "abort-spares-finalized",
        &["rfc13.abort.group"],
        "abort leaves processes that have finalized",
        Effect::Abort(AbortEffect::SparesFinalized),
        When::Always,
    ),
    fault(
        "abort-spares-waiting",
        &["rfc13.abort.group"],
        "abort leaves processes that wait in the barrier",
        Effect::Abort(AbortEffect::SparesWaiting),
        When::Always,
    ),
    fault(
        "abort-spares-other-node",
        &["rfc13.abort.group"],
        "abort ends the processes of one node",
        Effect::Abort(AbortEffect::SparesOtherNode),
        When::Nodes,
    ),
    fault(
        "abort-opens-barrier",
        &["rfc13.barrier.all-in-before-any-out"],
        "abort lets those who wait out of the barrier with success",
        Effect::Abort(AbortEffect::OpensBarrier),
        When::Always,
    ),
    fault(
        "abort-ignored-by-last-rank",
        &["rfc13.abort.group"],
        "abort by the last rank does nothing",
        Effect::Abort(AbortEffect::Ignored),
        When::LastRank,
    ),
    fault(
        "abort-ignored-by-first-rank",
        &["rfc13.abort.group"],
        "abort by a rank other than 0 does nothing",
        Effect::Abort(AbortEffect::Ignored),
        When::NotFirst,
    ),
    fault(
        "abort-needs-no-key",
        &["rfc13.parser.extra-keys", "rfc13.abort.group"],
        "abort with an exit code is passed over",
        Effect::Hear(|l| (!l.starts_with(b"cmd=abort ")).then(|| l.to_vec())),
        When::Always,
    ),
    fault(
        "abort-fine-when-alone",
        &["rfc13.abnf.c-abort", "rfc13.abort.group"],
        "cmd=abort without an exit code is passed over",
        Effect::Hear(|l| (l != b"cmd=abort").then(|| l.to_vec())),
        When::Always,
    ),
    fault(
        "finalize-waits-for-all",
        &["rfc13.finalize.ack"],
        "finalize is acknowledged when all have said it",
        Effect::Finalize(FinalizeEffect::WaitsForAll),
        When::Always,
    ),
    fault(
        "finalize-ends-group",
        &["rfc13.finalize.ack", "rfc13.wire.lock-step"],
        "finalize of one rank ends the program",
        Effect::Finalize(FinalizeEffect::EndsGroup),
        When::Always,
    ),
    fault(
        "finalize-forgets-keys",
        &["rfc13.put.visible-after-barrier", "rfc13.get.value"],
        "what a rank has put goes when it finalizes",
        Effect::Finalize(FinalizeEffect::ForgetsKeys),
        When::Always,
    ),
    fault(
        "finalize-stops-serving",
        &["rfc13.finalize.ack", "rfc13.wire.lock-step", "rfc13.abnf.c-get"],
        "after one finalize nobody is served",
        Effect::Finalize(FinalizeEffect::StopsServing),
        When::Always,
    ),
    fault(
        "abort-ignored-while-others-wait",
        &["rfc13.abort.group"],
        "abort does nothing while others wait in the barrier",
        Effect::Abort(AbortEffect::Ignored),
        When::Waiting,
    ),
    fault(
        "abort-ends-sender-only-on-two-nodes",
        &["rfc13.abort.group"],
        "on two nodes abort ends the process that asked",
        Effect::Abort(AbortEffect::SenderOnly),
        When::Nodes,
    ),
    fault(
        "abort-by-last-of-odd-group-ignored",
        &["rfc13.abort.group"],
        "abort by the last rank of an odd group does nothing",
        Effect::Abort(AbortEffect::Ignored),
        When::LastOfOddGroup,
    ),
    fault(
        "error-of-last-rank-ignored",
        &[CLOSE],
        "protocol errors of the last rank are passed over",
        Effect::Error(any, ErrorEffect::Ignored),
        When::LastRank,
    ),
    fault(
        "error-in-children-ignored",
        &[CLOSE],
        "protocol errors of spawned processes are passed over",
        Effect::Error(any, ErrorEffect::Ignored),
        When::Spawned,
    ),
    fault(
        "abort-ignored-behind-a-refusal",
        &["rfc13.abort.group"],
        "abort does nothing for a process whose last request was refused",
        Effect::Abort(AbortEffect::Ignored),
        When::Refused,
    ),
    fault(
        "abort-of-status-zero-dropped",
        &["rfc13.abort.group"],
        "an abort with exit code 0 is passed over",
        Effect::Hear(|line| (line != b"cmd=abort exitcode=0").then(|| line.to_vec())),
        When::Always,
    ),
    fault(
        "abort-of-negative-status-dropped",
        &["rfc13.abort.group"],
        "an abort with a negative exit code is passed over",
        Effect::Hear(|line| (!line.starts_with(b"cmd=abort exitcode=-")).then(|| line.to_vec())),
        When::Always,
    ),
];
