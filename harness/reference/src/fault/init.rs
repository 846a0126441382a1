//! The answer to init.

use pmi_wire::Operation as Op;

use super::row::{COMPLETE, Fault, any, fault, ok};
use crate::behaviour::{Effect, ReplyDraft, VersionEffect, When};

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "init-no-answer",
        &["rfc13.init.version-used", "rfc13.abnf.c-init"],
        "init is not answered",
        Effect::Reply(any(Op::Init), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "init-no-answer-for-last-rank",
        &["rfc13.init.version-used", "rfc13.abnf.c-init"],
        "the init of the last rank is not answered",
        Effect::Reply(any(Op::Init), ReplyDraft::silence),
        When::LastRank,
    ),
    fault(
        "init-refused",
        &["rfc13.abnf.c-init", "rfc13.init.version-used"],
        "init is refused",
        Effect::Reply(any(Op::Init), ReplyDraft::fail),
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
        Effect::Version(VersionEffect::RefusesHigher),
        When::Always,
    ),
    fault(
        "init-accepts-lower",
        &["rfc13.init.version-used"],
        "a client that knows less than 1.1 is told 1.1",
        Effect::Version(VersionEffect::AcceptsLower),
        When::Always,
    ),
    fault(
        "init-no-version",
        &["rfc13.init.version-used", COMPLETE],
        "init is answered without a version",
        Effect::Reply(ok(Op::Init), |d| {
            d.remove("pmi_version");
            d.remove("pmi_subversion");
        }),
        When::Always,
    ),
    fault(
        "init-no-subversion",
        &["rfc13.abnf.s-init"],
        "init is answered without pmi_subversion",
        Effect::Reply(ok(Op::Init), |d| d.remove("pmi_subversion")),
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
];
