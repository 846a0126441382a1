//! Protocol errors, abort and finalize.

use super::effect::{AbortFault, Effect, ErrorFault, FinalizeFault, When};
use super::{Fault, fault};

fn any(_: &[u8]) -> bool {
    true
}

fn cmd(line: &[u8]) -> &[u8] {
    let rest = line.strip_prefix(b"cmd=").unwrap_or(b"");
    rest.split(|b| *b == b' ').next().unwrap_or(b"")
}

/// Has the command of a request of PMI-1.
fn known(line: &[u8]) -> bool {
    pmi_wire::Operation::from_request_cmd(cmd(line)).is_some()
}

const CLOSE: &str = "rfc13.error.close";
const ABORT: &str = "rfc13.error.abort";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "error-ignored",
        &[CLOSE],
        "what cannot be understood is passed over in silence",
        Effect::Error(any, ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-answered-ok",
        &[CLOSE],
        "what cannot be understood is answered with success",
        Effect::Error(any, ErrorFault::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-unknown-command-ignored",
        &[CLOSE],
        "unknown commands are passed over",
        Effect::Error(|l| !known(l) && l.starts_with(b"cmd="), ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-unknown-command-ok",
        &[CLOSE],
        "unknown commands are answered with success",
        Effect::Error(|l| !known(l) && l.starts_with(b"cmd="), ErrorFault::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-empty-line-ignored",
        &[CLOSE],
        "empty lines are passed over",
        Effect::Error(<[u8]>::is_empty, ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-no-equals-ignored",
        &[CLOSE],
        "lines without a tuple are passed over",
        Effect::Error(|l| !l.is_empty() && !l.contains(&b'='), ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-binary-ignored",
        &[CLOSE],
        "lines with bytes that are no text are passed over",
        Effect::Error(|l| l.iter().any(|b| *b == 0 || *b > 126), ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-no-command-ignored",
        &[CLOSE],
        "tuples without cmd are passed over",
        Effect::Error(|l| l.contains(&b'=') && !l.starts_with(b"cmd="), ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-put-ok",
        &[CLOSE, "rfc13.abnf.c-put", "rfc13.error.rc-nonzero"],
        "a put without key or value is answered with success",
        Effect::Error(|l| cmd(l) == b"put", ErrorFault::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-put-ignored",
        &[CLOSE],
        "a put without key or value is passed over",
        Effect::Error(|l| cmd(l) == b"put", ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-get-ignored",
        &[CLOSE],
        "a get without key is passed over",
        Effect::Error(|l| cmd(l) == b"get", ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-init-ok",
        &[CLOSE],
        "an init without versions is answered with success",
        Effect::Error(|l| cmd(l) == b"init", ErrorFault::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-init-ignored",
        &[CLOSE],
        "an init without versions is passed over",
        Effect::Error(
            |l| cmd(l) == b"init" && l != b"cmd=init pmi_version=1 pmi_subversion=1",
            ErrorFault::Ignored,
        ),
        When::Always,
    ),
    fault(
        "error-incomplete-publish-ok",
        &[CLOSE, "rfc13.error.rc-nonzero"],
        "a publish without port is answered with success",
        Effect::Error(|l| cmd(l) == b"publish_name", ErrorFault::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-lookup-ignored",
        &[CLOSE, "rfc13.wire.lock-step"],
        "a lookup without service is passed over",
        Effect::Error(|l| cmd(l) == b"lookup_name", ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-before-init-ignored",
        &[CLOSE],
        "a request before init is passed over",
        Effect::Error(|l| l == b"cmd=get_maxes", ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-carriage-return-ignored",
        &[CLOSE],
        "a line that ends in CR is passed over",
        Effect::Error(|l| l.ends_with(b"\r"), ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-init-twice-silent",
        &["rfc13.wire.lock-step"],
        "a second init is not answered",
        Effect::Error(|l| cmd(l) == b"init", ErrorFault::Ignored),
        When::Always,
    ),
    fault(
        "error-ends-offender-only",
        &[ABORT],
        "after a protocol error the other ranks go on",
        Effect::Error(any, ErrorFault::OffenderOnly),
        When::Always,
    ),
    fault(
        "error-unknown-command-ends-offender-only",
        &[ABORT],
        "after an unknown command the other ranks go on",
        Effect::Error(|l| !known(l), ErrorFault::OffenderOnly),
        When::Always,
    ),
    fault(
        "error-ends-others-only",
        &[CLOSE, ABORT],
        "after a protocol error the offender's connection stays open",
        Effect::Error(any, ErrorFault::OthersOnly),
        When::Always,
    ),
    fault(
        "error-not-logged",
        &["rfc13.error.log"],
        "a protocol error ends the program without a word",
        Effect::Error(any, ErrorFault::Unlogged),
        When::Always,
    ),
    // ----- abort
    fault(
        "abort-ignored",
        &["rfc13.abort.group"],
        "abort is answered and nothing happens",
        Effect::Abort(AbortFault::Ignored),
        When::Always,
    ),
    fault(
        "abort-ends-sender-only",
        &["rfc13.abort.group"],
        "abort ends the process that asked, and no other",
        Effect::Abort(AbortFault::SenderOnly),
        When::Always,
    ),
    fault(
        "abort-spares-sender",
        &["rfc13.abort.group"],
        "abort ends all but the process that asked",
        Effect::Abort(AbortFault::SparesSender),
        When::Always,
    ),
    fault(
        "abort-spares-last-rank",
        &["rfc13.abort.group"],
        "abort ends all but the last rank",
        Effect::Abort(AbortFault::SparesLast),
        When::Always,
    ),
    fault(
        "abort-spares-finalized",
        &["rfc13.abort.group"],
        "abort leaves processes that have finalized",
        Effect::Abort(AbortFault::SparesFinalized),
        When::Always,
    ),
    fault(
        "abort-spares-waiting",
        &["rfc13.abort.group"],
        "abort leaves processes that wait in the barrier",
        Effect::Abort(AbortFault::SparesWaiting),
        When::Always,
    ),
    fault(
        "abort-spares-other-node",
        &["rfc13.abort.group"],
        "abort ends the processes of one node",
        Effect::Abort(AbortFault::SparesOtherNode),
        When::Nodes,
    ),
    fault(
        "abort-opens-barrier",
        &["rfc13.barrier.all-in-before-any-out"],
        "abort lets those who wait out of the barrier with success",
        Effect::Abort(AbortFault::OpensBarrier),
        When::Always,
    ),
    fault(
        "abort-ignored-by-last-rank",
        &["rfc13.abort.group"],
        "abort by the last rank does nothing",
        Effect::Abort(AbortFault::Ignored),
        When::LastRank,
    ),
    fault(
        "abort-ignored-by-first-rank",
        &["rfc13.abort.group"],
        "abort by a rank other than 0 does nothing",
        Effect::Abort(AbortFault::Ignored),
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
    // ----- finalize
    fault(
        "finalize-waits-for-all",
        &["rfc13.finalize.ack"],
        "finalize is acknowledged when all have said it",
        Effect::Finalize(FinalizeFault::WaitsForAll),
        When::Always,
    ),
    fault(
        "finalize-ends-group",
        &["rfc13.finalize.ack", "rfc13.wire.lock-step"],
        "finalize of one rank ends the program",
        Effect::Finalize(FinalizeFault::EndsGroup),
        When::Always,
    ),
    fault(
        "finalize-forgets-keys",
        &["rfc13.put.visible-after-barrier", "rfc13.get.value"],
        "what a rank has put goes when it finalizes",
        Effect::Finalize(FinalizeFault::ForgetsKeys),
        When::Always,
    ),
    fault(
        "finalize-stops-serving",
        &["rfc13.finalize.ack", "rfc13.wire.lock-step", "rfc13.abnf.c-get"],
        "after one finalize nobody is served",
        Effect::Finalize(FinalizeFault::StopsServing),
        When::Always,
    ),
    fault(
        "abort-ignored-while-others-wait",
        &["rfc13.abort.group"],
        "abort does nothing while others wait in the barrier",
        Effect::Abort(AbortFault::Ignored),
        When::Waiting,
    ),
    fault(
        "abort-ends-sender-only-on-two-nodes",
        &["rfc13.abort.group"],
        "on two nodes abort ends the process that asked",
        Effect::Abort(AbortFault::SenderOnly),
        When::Nodes,
    ),
    fault(
        "abort-by-last-of-odd-group-ignored",
        &["rfc13.abort.group"],
        "abort by the last rank of an odd group does nothing",
        Effect::Abort(AbortFault::Ignored),
        When::OddLast,
    ),
    fault(
        "error-of-last-rank-ignored",
        &[CLOSE],
        "protocol errors of the last rank are passed over",
        Effect::Error(any, ErrorFault::Ignored),
        When::LastRank,
    ),
    fault(
        "error-in-children-ignored",
        &[CLOSE],
        "protocol errors of spawned processes are passed over",
        Effect::Error(any, ErrorFault::Ignored),
        When::Spawned,
    ),
];
