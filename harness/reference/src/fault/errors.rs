//! Protocol errors.

use super::row::{Fault, fault};
use crate::behaviour::{Effect, ErrorEffect, When};

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
        Effect::Error(any, ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-answered-ok",
        &[CLOSE],
        "what cannot be understood is answered with success",
        Effect::Error(any, ErrorEffect::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-unknown-command-ignored",
        &[CLOSE],
        "unknown commands are passed over",
        Effect::Error(|l| !known(l) && l.starts_with(b"cmd="), ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-unknown-command-ok",
        &[CLOSE],
        "unknown commands are answered with success",
        Effect::Error(|l| !known(l) && l.starts_with(b"cmd="), ErrorEffect::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-no-equals-ignored",
        &[CLOSE],
        "lines without a tuple are passed over",
        Effect::Error(|l| !l.is_empty() && !l.contains(&b'='), ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-binary-ignored",
        &[CLOSE],
        "lines with bytes that are no text are passed over",
        Effect::Error(|l| l.iter().any(|b| *b == 0 || *b > 126), ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-no-command-ignored",
        &[CLOSE],
        "tuples without cmd are passed over",
        Effect::Error(|l| l.contains(&b'=') && !l.starts_with(b"cmd="), ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-put-ok",
        &[CLOSE, "rfc13.abnf.c-put", "rfc13.error.rc-nonzero"],
        "a put without key or value is answered with success",
        Effect::Error(|l| cmd(l) == b"put", ErrorEffect::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-put-ignored",
        &[CLOSE],
        "a put without key or value is passed over",
        Effect::Error(|l| cmd(l) == b"put", ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-get-ignored",
        &[CLOSE],
        "a get without key is passed over",
        Effect::Error(|l| cmd(l) == b"get", ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-incomplete-init-ok",
        &[CLOSE],
        "an init without versions is answered with success",
        Effect::Error(|l| cmd(l) == b"init", ErrorEffect::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-init-ignored",
        &[CLOSE],
        "an init without versions is passed over",
        Effect::Error(
            |l| cmd(l) == b"init" && l != b"cmd=init pmi_version=1 pmi_subversion=1",
            ErrorEffect::Ignored,
        ),
        When::Always,
    ),
    fault(
        "error-incomplete-publish-ok",
        &[CLOSE, "rfc13.error.rc-nonzero"],
        "a publish without port is answered with success",
        Effect::Error(|l| cmd(l) == b"publish_name", ErrorEffect::AnsweredOk),
        When::Always,
    ),
    fault(
        "error-incomplete-lookup-ignored",
        &[CLOSE, "rfc13.wire.lock-step"],
        "a lookup without service is passed over",
        Effect::Error(|l| cmd(l) == b"lookup_name", ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-before-init-ignored",
        &[CLOSE],
        "a request before init is passed over",
        Effect::Error(|l| l == b"cmd=get_maxes", ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-carriage-return-ignored",
        &[CLOSE],
        "a line that ends in CR is passed over",
        Effect::Error(|l| l.ends_with(b"\r"), ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-init-twice-silent",
        &["rfc13.wire.lock-step"],
        "a second init is not answered",
        Effect::Error(|l| cmd(l) == b"init", ErrorEffect::Ignored),
        When::Always,
    ),
    fault(
        "error-ends-offender-only",
        &[ABORT],
        "after a protocol error the other ranks go on",
        Effect::Error(any, ErrorEffect::OffenderOnly),
        When::Always,
    ),
    fault(
        "error-unknown-command-ends-offender-only",
        &[ABORT],
        "after an unknown command the other ranks go on",
        Effect::Error(|l| !known(l), ErrorEffect::OffenderOnly),
        When::Always,
    ),
    fault(
        "error-ends-others-only",
        &[CLOSE, ABORT],
        "after a protocol error the offender's connection stays open",
        Effect::Error(any, ErrorEffect::OthersOnly),
        When::Always,
    ),
    fault(
        "error-not-logged",
        &["rfc13.error.log"],
        "a protocol error ends the program without a word",
        Effect::Error(any, ErrorEffect::Unlogged),
        When::Always,
    ),
];
