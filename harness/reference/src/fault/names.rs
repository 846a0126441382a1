//! The name service.

use pmi_wire::Operation as Op;

use super::row::{Fault, fault};
use crate::behaviour::{Effect, NamesEffect, Replies, ReplyDraft, ReplyKind, When};

const FOUND: Replies = Replies(Some(Op::Lookup), ReplyKind::Ok);
const LOOKUP: &str = "rfc13.publish.lookup";
const PORT: &str = "rfc13.lookup.port";
const GONE: &str = "rfc13.unpublish.gone";

fn cut(value: &mut Vec<u8>, byte: u8) {
    if let Some(at) = value.iter().position(|b| *b == byte) {
        value.truncate(at);
    }
}

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "names-publish-no-answer",
        &["rfc13.abnf.c-publish", "rfc13.wire.lock-step"],
        "publish is not answered",
        Effect::Reply(Replies(Some(Op::Publish), ReplyKind::Any), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "names-unpublish-no-answer",
        &["rfc13.abnf.c-unpublish", "rfc13.wire.lock-step"],
        "unpublish is not answered",
        Effect::Reply(Replies(Some(Op::Unpublish), ReplyKind::Any), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "names-lookup-no-answer",
        &["rfc13.abnf.c-lookup", "rfc13.wire.lock-step"],
        "lookup is not answered",
        Effect::Reply(Replies(Some(Op::Lookup), ReplyKind::Any), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "names-unpublish-refused",
        &["rfc13.abnf.c-unpublish"],
        "every unpublish is refused",
        Effect::Reply(Replies(Some(Op::Unpublish), ReplyKind::Any), ReplyDraft::fail),
        When::Always,
    ),
    fault(
        "names-second-publish-refused",
        &["rfc13.abnf.c-publish", LOOKUP],
        "the second publish is refused",
        Effect::Reply(Replies(Some(Op::Publish), ReplyKind::Ok), ReplyDraft::fail),
        When::Nth(2),
    ),
    fault(
        "names-lost",
        &[LOOKUP],
        "a published name is forgotten",
        Effect::Names(NamesEffect::Lost),
        When::Always,
    ),
    fault(
        "names-own-only",
        &[LOOKUP],
        "a name is found by who published it only",
        Effect::Names(NamesEffect::OwnOnly),
        When::Always,
    ),
    fault(
        "names-group-only",
        &[LOOKUP],
        "a name is found in the publisher's group only",
        Effect::Names(NamesEffect::GroupOnly),
        When::Always,
    ),
    fault(
        "names-one-lookup",
        &[LOOKUP],
        "a lookup takes the name out",
        Effect::Names(NamesEffect::OneLookup),
        When::Always,
    ),
    fault(
        "names-one-name",
        &[LOOKUP],
        "a published name takes the place of all others",
        Effect::Names(NamesEffect::OneName),
        When::Always,
    ),
    fault(
        "names-last-port-for-all",
        &[PORT],
        "all names have the port of the last",
        Effect::Names(NamesEffect::LastPortForAll),
        When::Always,
    ),
    fault(
        "names-barrier-drops",
        &[LOOKUP],
        "names are forgotten at a barrier",
        Effect::Names(NamesEffect::BarrierDrops),
        When::Always,
    ),
    fault(
        "names-unpublish-keeps",
        &[GONE],
        "an unpublished name is still found",
        Effect::Names(NamesEffect::UnpublishKeeps),
        When::Always,
    ),
    fault(
        "names-unpublish-second-keeps",
        &[GONE],
        "the second name that is unpublished is still found",
        Effect::Names(NamesEffect::UnpublishOnlyFirstTime),
        When::Always,
    ),
    fault(
        "names-unpublish-takes-all",
        &[LOOKUP],
        "an unpublish takes all names",
        Effect::Names(NamesEffect::UnpublishTakesAll),
        When::Always,
    ),
    fault(
        "names-unknown-unpublish-ok",
        &["rfc13.error.rc-nonzero"],
        "unpublishing an unknown name succeeds",
        Effect::Names(NamesEffect::UnknownUnpublishOk),
        When::Always,
    ),
    fault(
        "names-by-prefix",
        &["rfc13.error.rc-nonzero", PORT],
        "a name is found by its beginning",
        Effect::Names(NamesEffect::Prefix),
        When::Always,
    ),
    fault(
        "names-twice-lost",
        &[LOOKUP],
        "a name that is published twice is lost",
        Effect::Names(NamesEffect::TwiceLost),
        When::Always,
    ),
    fault(
        "names-in-kvs",
        &["rfc13.error.rc-nonzero"],
        "published names stand in the KVS",
        Effect::Names(NamesEffect::InKvs),
        When::Always,
    ),
    fault(
        "names-unknown-found",
        &["rfc13.error.rc-nonzero", PORT],
        "an unknown name has a port",
        Effect::Reply(Replies(Some(Op::Lookup), ReplyKind::Fail), |d| {
            d.replace(&[("cmd", "lookup_result"), ("rc", "0"), ("port", "none")])
        }),
        When::Always,
    ),
    fault(
        "names-unknown-rc-zero",
        &["rfc13.error.rc-nonzero", PORT],
        "an unknown name is answered with rc=0 and msg",
        Effect::Reply(Replies(Some(Op::Lookup), ReplyKind::Fail), |d| d.set("rc", "0")),
        When::Always,
    ),
    fault(
        "names-no-port",
        &[PORT, "rfc13.response.complete-on-success"],
        "lookup_result has no port",
        Effect::Reply(FOUND, |d| d.remove("port")),
        When::Always,
    ),
    fault(
        "names-port-empty",
        &["rfc13.abnf.s-lookup", PORT],
        "lookup_result has an empty port",
        Effect::Reply(FOUND, |d| d.set("port", "")),
        When::Always,
    ),
    fault(
        "names-port-cut-at-equals",
        &[PORT],
        "a port ends at its first equals sign",
        Effect::Reply(FOUND, |d| d.edit("port", |v| cut(v, b'='))),
        When::Always,
    ),
    fault(
        "names-port-cut-at-hash",
        &[PORT],
        "a port ends at its first #",
        Effect::Reply(FOUND, |d| d.edit("port", |v| cut(v, b'#'))),
        When::Always,
    ),
    fault(
        "names-port-cut-at-dollar",
        &[PORT],
        "a port ends at its first $",
        Effect::Reply(FOUND, |d| d.edit("port", |v| cut(v, b'$'))),
        When::Always,
    ),
    fault(
        "names-port-loses-last-byte",
        &[PORT],
        "a port loses its last byte",
        Effect::Reply(FOUND, |d| d.edit("port", |v| v.truncate(v.len() - 1))),
        When::Always,
    ),
    fault(
        "names-rc-text",
        &["rfc13.abnf.s-publish", "rfc13.abnf.int"],
        "publish_result has rc=ok",
        Effect::Reply(Replies(Some(Op::Publish), ReplyKind::Ok), |d| d.set("rc", "ok")),
        When::Always,
    ),
    fault(
        "names-unpublish-rc-text",
        &["rfc13.abnf.s-unpublish", "rfc13.abnf.int"],
        "unpublish_result has rc=ok",
        Effect::Reply(Replies(Some(Op::Unpublish), ReplyKind::Ok), |d| d.set("rc", "ok")),
        When::Always,
    ),
    fault(
        "names-rc-twice",
        &["rfc13.abnf.s-publish"],
        "publish_result has two rc",
        Effect::Reply(Replies(Some(Op::Publish), ReplyKind::Ok), |d| d.add("rc", "1")),
        When::Always,
    ),
    fault(
        "names-unpublish-rc-twice",
        &["rfc13.abnf.s-unpublish"],
        "unpublish_result has two rc",
        Effect::Reply(Replies(Some(Op::Unpublish), ReplyKind::Ok), |d| d.add("rc", "1")),
        When::Always,
    ),
    fault(
        "names-publish-refused",
        &["rfc13.abnf.c-publish", LOOKUP],
        "the first publish is refused, later ones are not",
        Effect::Reply(Replies(Some(Op::Publish), ReplyKind::Ok), ReplyDraft::fail),
        When::Nth(3),
    ),
    fault(
        "names-answered-as-publish",
        &["rfc13.wire.response-matches-request"],
        "unpublish is answered by publish_result",
        Effect::Reply(Replies(Some(Op::Unpublish), ReplyKind::Any), |d| d.set("cmd", "publish_result")),
        When::Always,
    ),
    fault(
        "names-msg-with-newline",
        &["rfc13.wire.tuples", "rfc13.wire.lock-step"],
        "msg of a failed lookup has two lines",
        Effect::Reply(Replies(Some(Op::Lookup), ReplyKind::Fail), |d| d.set("msg", "not found\ntry again")),
        When::Always,
    ),
    fault(
        "names-lost-from-other-nodes",
        &[LOOKUP],
        "what ranks of other nodes publish is forgotten",
        Effect::Names(NamesEffect::Lost),
        When::OtherNodes,
    ),
    fault(
        "names-lookup-late-damage",
        &[LOOKUP, PORT],
        "from the 150th on, a port that is looked up lacks its last byte",
        Effect::Reply(FOUND, |d| d.edit("port", |port| port.truncate(port.len().saturating_sub(1)))),
        When::From(150),
    ),
    fault(
        "names-port-backslash-eaten",
        &[LOOKUP, PORT],
        "backslashes go from ports",
        Effect::Reply(FOUND, |d| d.edit("port", |port| port.retain(|b| *b != b'\\'))),
        When::Always,
    ),
    fault(
        "names-port-cut-at-semicolon",
        &[LOOKUP, PORT],
        "a port ends at its first semicolon",
        Effect::Reply(FOUND, |d| d.edit("port", |port| cut(port, b';'))),
        When::Always,
    ),
    fault(
        "names-long-port-cut",
        &[PORT],
        "a port is cut after 600 bytes",
        Effect::Reply(FOUND, |d| d.edit("port", |port| port.truncate(600))),
        When::Always,
    ),
    fault(
        "names-lookup-fails-behind-a-refusal",
        &[LOOKUP],
        "a name is not found by a process whose last request was refused",
        Effect::Reply(FOUND, ReplyDraft::fail),
        When::Refused,
    ),
];
