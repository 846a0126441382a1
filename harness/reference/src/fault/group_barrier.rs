//! PMI-1.2: barriers of a part of a process group, and what is lawful there.

use pmi_wire::Operation as Op;

use super::row::{Fault, Variation, fault, ok, vary};
use crate::behaviour::{Effect, GroupBarrierEffect, PutEffect, ReplyDraft, When};

const TAG: &str = "mpich-1.2.barrier.tag";
const ALL_IN: &str = "mpich-1.2.barrier.all-in";
const RELEASED: &str = "mpich-1.2.barrier.released";
const APART: &str = "mpich-1.2.barrier.tags-apart";
const SEVERAL: &str = "mpich-1.2.barrier.several-open";
const AGAIN: &str = "mpich-1.2.barrier.again";
const NODE: &str = "mpich-1.2.barrier.node";
const PLAIN: &str = "mpich-1.2.barrier.plain";
const NO_GROUP: &str = "mpich-1.2.barrier.no-group";

const fn does(effect: GroupBarrierEffect) -> Effect {
    Effect::GroupBarrier(effect)
}

const fn out(edit: fn(&mut ReplyDraft)) -> Effect {
    Effect::Reply(ok(Op::Barrier), edit)
}

/// The tag of an answer, as a number.
fn number(draft: &mut ReplyDraft) -> Option<u64> {
    draft.get("tag").and_then(|tag| std::str::from_utf8(tag).ok()?.parse().ok())
}

/// Changes a tag that is there.
fn retag(draft: &mut ReplyDraft, change: impl FnOnce(u64) -> u64) {
    if let Some(tag) = number(draft) {
        draft.set("tag", change(tag).to_string());
    }
}

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "group-1-2-not-told",
        &["mpich-1.2.init.version"],
        "1.2 is spoken and answered with 1.1",
        Effect::Reply(ok(Op::Init), |d| {
            if d.get("pmi_subversion").is_some_and(|v| v == b"2") {
                d.set("pmi_subversion", "1");
            }
        }),
        When::Always,
    ),
    fault(
        "group-tag-always-zero",
        &[TAG],
        "barrier_out carries the tag 0 whatever the tag is",
        out(|d| retag(d, |_| 0)),
        When::Always,
    ),
    fault("group-tag-missing", &[TAG], "barrier_out carries no tag", out(|d| d.remove("tag")), When::Always),
    fault(
        "group-tag-one-more",
        &[TAG],
        "barrier_out carries the next number",
        out(|d| retag(d, |tag| tag + 1)),
        When::Always,
    ),
    fault(
        "group-tag-of-sixteen-bits",
        &[TAG],
        "the tag is cut to 16 bits",
        out(|d| retag(d, |tag| tag & 0xffff)),
        When::Always,
    ),
    fault(
        "group-tag-of-eight-bits",
        &[TAG],
        "the tag is cut to 8 bits",
        out(|d| retag(d, |tag| tag & 0xff)),
        When::Always,
    ),
    fault(
        "group-tag-under-another-name",
        &[TAG],
        "barrier_out carries the tag as id",
        out(|d| d.rename("tag", "id")),
        When::Always,
    ),
    fault(
        "group-tag-no-number",
        &[TAG],
        "barrier_out carries the tag as text",
        out(|d| d.edit("tag", |tag| tag.insert(0, b't'))),
        When::Always,
    ),
    fault(
        "group-barrier-never-opens",
        &[RELEASED],
        "barriers of groups never open",
        does(GroupBarrierEffect::Never),
        When::Always,
    ),
    fault(
        "group-barrier-does-not-block",
        &[ALL_IN],
        "who enters a barrier of a group is let out at once",
        does(GroupBarrierEffect::AtOnce),
        When::Always,
    ),
    fault(
        "group-barrier-one-short",
        &[ALL_IN],
        "barriers of groups open when one is still missing",
        does(GroupBarrierEffect::Short),
        When::Ranks(3),
    ),
    fault(
        "group-barrier-waits-for-all",
        &[RELEASED],
        "barriers of groups wait for the whole process group",
        does(GroupBarrierEffect::WaitsForAll),
        When::Always,
    ),
    fault(
        "group-barrier-leaves-out-latest",
        &[RELEASED],
        "who enters last is not let out",
        does(GroupBarrierEffect::LeavesOutLatest),
        When::Always,
    ),
    fault(
        "group-barrier-stuck-in-children",
        &[RELEASED],
        "barriers of groups never open in a spawned group",
        does(GroupBarrierEffect::Never),
        When::Spawned,
    ),
    fault(
        "group-barrier-stuck-on-two-nodes",
        &[RELEASED, SEVERAL, NODE],
        "barriers of groups never open on two nodes",
        does(GroupBarrierEffect::Never),
        When::Nodes,
    ),
    fault(
        "group-single-never-opens",
        &["mpich-1.2.barrier.single"],
        "a list of one rank is never let out",
        does(GroupBarrierEffect::LoneNever),
        When::Always,
    ),
    fault(
        "group-node-is-world",
        &[NODE],
        "NODE is the whole process group",
        does(GroupBarrierEffect::NodeIsWorld),
        When::Always,
    ),
    fault(
        "group-tags-alike",
        &[APART],
        "barriers of the same group are one, whatever their tags",
        does(GroupBarrierEffect::TagsAlike),
        When::Always,
    ),
    fault(
        "group-one-at-a-time",
        &[SEVERAL],
        "while a process is in a barrier of a group it is not counted for another",
        does(GroupBarrierEffect::OneAtATime),
        When::Always,
    ),
    fault(
        "group-opens-plain",
        &[PLAIN, "rfc13.barrier.all-in-before-any-out"],
        "a barrier of a group opens that of the whole group as well",
        does(GroupBarrierEffect::OpensPlain),
        When::Always,
    ),
    fault(
        "group-plain-lost",
        &[PLAIN],
        "with 1.2, who names no group is not counted",
        does(GroupBarrierEffect::PlainNever),
        When::Always,
    ),
    fault(
        "group-opens-once",
        &[AGAIN],
        "a barrier of a group that has opened does not hold again",
        does(GroupBarrierEffect::OpensOnce),
        When::Always,
    ),
    fault(
        "group-tenth-entry-lost",
        &[AGAIN],
        "the tenth entry into barriers of groups is not counted",
        does(GroupBarrierEffect::Never),
        When::Nth(10),
    ),
    fault(
        "group-lock-step",
        &["mpich-1.2.barrier.requests-meanwhile"],
        "a put or get of a process that is in a barrier of a group is a protocol error",
        does(GroupBarrierEffect::LockStep),
        When::Always,
    ),
    fault(
        "group-puts-hidden",
        &["mpich-1.2.barrier.visible"],
        "what was put can be read behind the next barrier of the whole group only",
        Effect::Put(PutEffect::Deferred),
        When::Always,
    ),
    fault(
        "group-takes-outsiders",
        &[NO_GROUP],
        "a process can enter a barrier of others",
        does(GroupBarrierEffect::TakesOutsiders),
        When::Always,
    ),
    fault(
        "group-nobody-opens",
        &[NO_GROUP],
        "a group that cannot be read opens at once",
        does(GroupBarrierEffect::NobodyOpens),
        When::Always,
    ),
];

pub(super) const VARIATIONS: &[Variation] = &[
    vary(
        "group-last-out-first",
        "who entered a barrier of a group last is let out first",
        does(GroupBarrierEffect::LastOutFirst),
    ),
    vary(
        "group-told-again",
        "barrier_out of PMI-1.2 carries a group as well",
        out(|d| {
            if d.get("tag").is_some() {
                d.add("group", "WORLD");
            }
        }),
    ),
    vary(
        "group-tag-zero-left-out",
        "barrier_out of PMI-1.2 has no tag where that is 0",
        out(|d| {
            if number(d) == Some(0) {
                d.remove("tag");
            }
        }),
    ),
    vary(
        "group-tag-first",
        "barrier_out of PMI-1.2 has the tag before rc",
        out(|d| {
            if let Some(tag) = d.get("tag").cloned() {
                d.remove("tag");
                d.insert("tag", tag);
            }
        }),
    ),
    vary(
        "group-order-matters",
        "the same ranks in another order are another group, as in Hydra 5.0",
        does(GroupBarrierEffect::OrderMatters),
    ),
];
