//! Keyval spaces beside those of the groups, which RFC 13 does not have.

use super::row::{Fault, fault};
use crate::behaviour::{Effect, KeyvalSpaceEffect, When};

const CREATE: &str = "de-facto.keyval-space.create";
const DESTROY: &str = "de-facto.keyval-space.destroy";
const BY_INDEX: &str = "de-facto.keyval-space.by-index";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "keyval-space-one-name",
        &[CREATE],
        "each keyval space that is created has the name of the first",
        Effect::KeyvalSpace(KeyvalSpaceEffect::OneName),
        When::Always,
    ),
    fault(
        "keyval-space-own-name",
        &[CREATE],
        "create_kvs tells the name of the group's own keyval space",
        Effect::KeyvalSpace(KeyvalSpaceEffect::OwnName),
        When::Always,
    ),
    fault(
        "keyval-space-destroy-keeps",
        &[DESTROY],
        "a keyval space that was destroyed is still there",
        Effect::KeyvalSpace(KeyvalSpaceEffect::DestroyKeeps),
        When::Always,
    ),
    fault(
        "keyval-space-destroy-takes-all",
        &[DESTROY],
        "the end of one keyval space is the end of all that were created",
        Effect::KeyvalSpace(KeyvalSpaceEffect::DestroyTakesAll),
        When::Always,
    ),
    fault(
        "keyval-space-unknown-destroyed",
        &[DESTROY],
        "a keyval space that does not exist is said to be destroyed",
        Effect::KeyvalSpace(KeyvalSpaceEffect::UnknownDestroyed),
        When::Always,
    ),
    fault(
        "keyval-space-index-from-one",
        &[BY_INDEX],
        "the pairs of a keyval space are counted from one",
        Effect::KeyvalSpace(KeyvalSpaceEffect::IndexFromOne),
        When::Always,
    ),
    fault(
        "keyval-space-index-stays",
        &[BY_INDEX],
        "every number gets the first pair",
        Effect::KeyvalSpace(KeyvalSpaceEffect::IndexStays),
        When::Always,
    ),
];
