//! The keyval space: what is put and what is read.

use pmi_wire::Operation as Op;

use super::row::{Fault, fault};
use crate::behaviour::{Effect, GetEffect, PutEffect, Replies, ReplyKind, When};

const GOT: Replies = Replies(Some(Op::Get), ReplyKind::Ok);

/// Ends a value before the first such byte that is not its first.
fn cut(value: &mut Vec<u8>, byte: u8) {
    if let Some(at) = value.iter().position(|b| *b == byte) {
        value.truncate(at);
    }
}

fn mapping(value: &[u8]) -> bool {
    value.starts_with(b"(vector")
}

fn replace(value: &mut Vec<u8>, with: &str) {
    *value = with.as_bytes().to_vec();
}

const VALUE: &str = "rfc13.get.value";
const VISIBLE: &str = "rfc13.put.visible-after-barrier";
const HONOURED: &str = "rfc13.maxes.honoured";
const BLANK: &str = "rfc13.value.blank";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "put-lost",
        &[VISIBLE],
        "a put is acknowledged and forgotten",
        Effect::Put(PutEffect::Lost),
        When::Always,
    ),
    fault(
        "put-tenth-lost",
        &[VISIBLE],
        "the 10th put is forgotten",
        Effect::Put(PutEffect::Lost),
        When::Nth(10),
    ),
    fault(
        "put-hundredth-lost",
        &[VISIBLE],
        "the 100th put is forgotten",
        Effect::Put(PutEffect::Lost),
        When::Nth(100),
    ),
    fault(
        "put-lost-from-last-rank",
        &[VISIBLE],
        "puts of the last rank are forgotten",
        Effect::Put(PutEffect::Lost),
        When::LastRank,
    ),
    fault(
        "put-lost-from-odd-last-rank",
        &[VISIBLE],
        "puts of the last rank of an odd group are forgotten",
        Effect::Put(PutEffect::Lost),
        When::LastOfOddGroup,
    ),
    fault(
        "put-lost-while-others-wait",
        &[VISIBLE],
        "a put while others wait in the barrier is forgotten",
        Effect::Put(PutEffect::Lost),
        When::Waiting,
    ),
    fault(
        "put-lost-in-children",
        &[VISIBLE],
        "puts of spawned processes are forgotten",
        Effect::Put(PutEffect::Lost),
        When::Spawned,
    ),
    fault(
        "put-lost-under-load",
        &["de-facto.request.ahead"],
        "puts that come together are forgotten",
        Effect::Put(PutEffect::Lost),
        When::Burst,
    ),
    fault(
        "put-lost-with-two-nodes",
        &[VISIBLE],
        "puts are forgotten on two nodes",
        Effect::Put(PutEffect::Lost),
        When::Nodes,
    ),
    fault(
        "put-lost-with-five-ranks",
        &[VISIBLE],
        "puts are forgotten with five ranks or more",
        Effect::Put(PutEffect::Lost),
        When::Ranks(5),
    ),
    fault(
        "put-longest-key-lost",
        &[HONOURED, VISIBLE],
        "a key of keylen_max - 1 is forgotten",
        Effect::Put(PutEffect::LostIfLongKey),
        When::Always,
    ),
    fault(
        "put-longest-value-lost",
        &[HONOURED, VISIBLE],
        "a value of vallen_max - 1 is forgotten",
        Effect::Put(PutEffect::LostIfLongValue),
        When::Always,
    ),
    fault(
        "put-longest-key-refused",
        &[HONOURED],
        "a key of keylen_max - 1 is refused",
        Effect::Put(PutEffect::RefusedIfLongKey),
        When::Always,
    ),
    fault(
        "put-longest-value-refused",
        &[HONOURED],
        "a value of vallen_max - 1 is refused",
        Effect::Put(PutEffect::RefusedIfLongValue),
        When::Always,
    ),
    fault(
        "put-one-per-barrier",
        &["rfc13.abnf.c-put"],
        "only one put is taken between two barriers",
        Effect::Put(PutEffect::RefusedWithoutBarrier),
        When::Always,
    ),
    fault(
        "put-any-kvsname",
        &["rfc13.kvs.name-used", "rfc13.error.rc-nonzero"],
        "a put to an unknown KVS succeeds",
        Effect::Put(PutEffect::AnyKvs),
        When::Always,
    ),
    fault(
        "put-twice-keeps-both",
        &["rfc13.put.unique"],
        "a key put by two ranks has a value for each",
        Effect::Put(PutEffect::KeepsBoth),
        When::Always,
    ),
    fault(
        "put-into-all-groups",
        &["rfc13.spawn.new-group", "rfc13.kvsname.distinct", "rfc13.error.rc-nonzero"],
        "a put goes into the KVS of every group",
        Effect::Put(PutEffect::IntoAllGroups),
        When::Always,
    ),
    fault(
        "value-cut-at-blank",
        &[BLANK, VALUE, "de-facto.value.to-blank"],
        "a value ends at its first blank",
        Effect::Store(|_, v, _| cut(v, b' ')),
        When::Always,
    ),
    fault(
        "value-cut-at-tab",
        &[BLANK, VALUE],
        "a value ends at its first tab",
        Effect::Store(|_, v, _| cut(v, b'\t')),
        When::Always,
    ),
    fault(
        "value-cut-at-equals",
        &[VALUE],
        "a value ends at its first equals sign",
        Effect::Store(|_, v, _| cut(v, b'=')),
        When::Always,
    ),
    fault(
        "value-cut-at-comma",
        &[VALUE],
        "a value ends at its first comma",
        Effect::Store(|_, v, _| cut(v, b',')),
        When::Always,
    ),
    fault(
        "value-cut-at-semicolon",
        &[VALUE],
        "a value ends at its first semicolon",
        Effect::Store(|_, v, _| cut(v, b';')),
        When::Always,
    ),
    fault(
        "value-cut-at-hash",
        &[VALUE],
        "a value ends at its first #",
        Effect::Store(|_, v, _| cut(v, b'#')),
        When::Always,
    ),
    fault(
        "value-cut-at-255",
        &[VALUE, HONOURED],
        "a value is cut after 255 bytes",
        Effect::Store(|_, v, _| v.truncate(255)),
        When::Always,
    ),
    fault(
        "value-cut-at-512",
        &[VALUE, HONOURED],
        "a value is cut after 512 bytes",
        Effect::Store(|_, v, _| v.truncate(512)),
        When::Always,
    ),
    fault(
        "value-cut-one-short",
        &[VALUE, HONOURED],
        "the longest value loses its last byte",
        Effect::Store(|_, v, maxes| v.truncate(maxes.vallen_max as usize - 2)),
        When::Always,
    ),
    fault(
        "value-loses-first-byte",
        &[VALUE],
        "a value loses its first byte",
        Effect::Store(|_, v, _| *v = v.split_off(1.min(v.len()))),
        When::Always,
    ),
    fault(
        "value-loses-last-byte",
        &[VALUE],
        "a value loses its last byte",
        Effect::Store(|_, v, _| v.truncate(v.len().saturating_sub(1))),
        When::Always,
    ),
    fault(
        "value-gains-nul",
        &["rfc13.wire.tuples", "rfc13.abnf.string"],
        "a value comes back with its NUL",
        Effect::Store(|_, v, _| v.push(0)),
        When::Always,
    ),
    fault(
        "value-gains-blank",
        &[VALUE],
        "a value comes back with a blank behind it",
        Effect::Store(|_, v, _| v.push(b' ')),
        When::Always,
    ),
    fault(
        "value-glued-found",
        &[VALUE],
        "found=TRUE stands behind the value",
        Effect::Reply(GOT, |d| d.add("found", "TRUE")),
        When::Always,
    ),
    fault(
        "value-glued-msg",
        &[VALUE],
        "msg=success stands behind the value",
        Effect::Reply(GOT, |d| d.add("msg", "success")),
        When::Always,
    ),
    fault(
        "value-quoted",
        &[VALUE],
        "a value comes back in quotes",
        Effect::Store(|_, v, _| {
            v.insert(0, b'"');
            v.push(b'"');
        }),
        When::Always,
    ),
    fault(
        "value-trimmed",
        &[BLANK, VALUE],
        "blanks at the ends of a value go",
        Effect::Store(|_, v, _| *v = v.trim_ascii().to_vec()),
        When::Always,
    ),
    fault(
        "value-blanks-collapsed",
        &[BLANK, VALUE],
        "several blanks in a value become one",
        Effect::Store(|_, v, _| v.dedup_by(|a, b| *a == b' ' && *b == b' ')),
        When::Always,
    ),
    fault(
        "value-tab-to-blank",
        &[BLANK, VALUE],
        "tabs in a value become blanks",
        Effect::Store(|_, v, _| v.iter_mut().filter(|b| **b == b'\t').for_each(|b| *b = b' ')),
        When::Always,
    ),
    fault(
        "value-backslash-eaten",
        &[VALUE, "de-facto.value.backslash"],
        "backslashes go from values",
        Effect::Store(|_, v, _| v.retain(|b| *b != b'\\')),
        When::Always,
    ),
    fault(
        "value-percent-decoded",
        &[VALUE],
        "%-signs in values are taken as escapes",
        Effect::Store(|_, v, _| v.retain(|b| *b != b'%')),
        When::Always,
    ),
    fault(
        "value-lower-case",
        &[VALUE],
        "values come back in lower case",
        Effect::Store(|_, v, _| v.make_ascii_lowercase()),
        When::Always,
    ),
    fault(
        "value-number-normalised",
        &[VALUE],
        "a value that is a number is stored as a number",
        Effect::Store(|_, v, _| {
            if let Some(n) = std::str::from_utf8(v).ok().and_then(|v| v.parse::<i64>().ok()) {
                replace(v, &n.to_string());
            }
        }),
        When::Always,
    ),
    fault(
        "value-reversed-late",
        &[VALUE],
        "the 50th value is stored backwards",
        Effect::Store(|_, v, _| v.reverse()),
        When::Nth(50),
    ),
    fault(
        "value-damaged-in-children",
        &[VALUE],
        "values of spawned groups lose their last byte",
        Effect::Store(|_, v, _| v.truncate(v.len().saturating_sub(1))),
        When::Spawned,
    ),
    fault(
        "value-empty-as-absent",
        &["rfc13.value.empty", "de-facto.value.empty", VALUE],
        "an empty value comes back as null",
        Effect::Store(|_, v, _| {
            if v.is_empty() {
                replace(v, "(null)")
            }
        }),
        When::Always,
    ),
    fault(
        "get-rc-late-damage",
        &[VALUE],
        "the 10th value loses its last byte on the way out",
        Effect::Reply(GOT, |d| d.edit("value", |v| v.truncate(v.len().saturating_sub(1)))),
        When::Nth(10),
    ),
    fault(
        "get-damages-for-last-rank",
        &[VALUE],
        "the last rank reads values without their last byte",
        Effect::Reply(GOT, |d| {
            d.edit("value", |v| {
                if !mapping(v) {
                    v.truncate(v.len().saturating_sub(1))
                }
            })
        }),
        When::LastRank,
    ),
    fault(
        "key-case-ignored",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "keys that differ in case are one",
        Effect::Key(<[u8]>::to_ascii_lowercase),
        When::Always,
    ),
    fault(
        "key-eight-bytes",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "keys are told apart by eight bytes",
        Effect::Key(|k| k[..k.len().min(8)].to_vec()),
        When::Always,
    ),
    fault(
        "key-31-bytes",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "keys are told apart by 31 bytes",
        Effect::Key(|k| k[..k.len().min(31)].to_vec()),
        When::Always,
    ),
    fault(
        "key-one-short",
        &[VALUE, "rfc13.error.rc-nonzero", HONOURED],
        "keys are told apart by keylen_max - 2 bytes",
        Effect::Key(|k| k[..k.len().min(62)].to_vec()),
        When::Always,
    ),
    fault(
        "key-hashed-badly",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "keys with the same sum of bytes are one",
        Effect::Key(|k| {
            let sum: u32 = k.iter().map(|b| u32::from(*b)).sum();
            sum.to_string().into_bytes()
        }),
        When::Always,
    ),
    fault(
        "key-as-number",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "numeric keys are compared as numbers",
        Effect::Key(|k| {
            let number = std::str::from_utf8(k).ok().and_then(|k| k.parse::<i64>().ok());
            number.map_or(k.to_vec(), |n| n.to_string().into_bytes())
        }),
        When::Always,
    ),
    fault(
        "key-hyphen-underscore",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "hyphen and underscore in keys are one",
        Effect::Key(|k| k.iter().map(|b| if *b == b'-' { b'_' } else { *b }).collect()),
        When::Always,
    ),
    fault(
        "get-any-kvsname",
        &["rfc13.kvs.name-used", "rfc13.error.rc-nonzero"],
        "a get from an unknown KVS succeeds",
        Effect::Get(GetEffect::AnyKvs),
        When::Always,
    ),
    fault(
        "get-kvsname-prefix",
        &["rfc13.kvs.name-used", "rfc13.error.rc-nonzero"],
        "a KVS name with a tail is taken for the name",
        Effect::Get(GetEffect::LongNameOnly),
        When::Always,
    ),
    fault(
        "get-leaks-other-groups",
        &["rfc13.error.rc-nonzero", "rfc13.spawn.new-group", "rfc13.kvs.name-used"],
        "a missing key is looked for in other groups",
        Effect::Get(GetEffect::OtherGroups),
        When::Always,
    ),
    fault(
        "get-consumes",
        &[VISIBLE],
        "a get takes the key out",
        Effect::Get(GetEffect::Consumes),
        When::Always,
    ),
    fault(
        "get-second-is-other",
        &[VALUE],
        "the second get of a key gives another one's value",
        Effect::Get(GetEffect::SecondIsOther),
        When::Always,
    ),
    fault(
        "get-own-only",
        &[VISIBLE],
        "a key is seen by who put it only",
        Effect::Get(GetEffect::OwnOnly),
        When::Always,
    ),
    fault(
        "get-same-node-only",
        &[VISIBLE],
        "a key is seen on the node where it was put",
        Effect::Get(GetEffect::SameNodeOnly),
        When::Nodes,
    ),
    fault(
        "get-by-prefix",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "a key stands for one that it begins",
        Effect::Get(GetEffect::Prefix),
        When::Always,
    ),
    fault(
        "get-next-key",
        &["rfc13.error.rc-nonzero"],
        "a missing key gives the next one's value",
        Effect::Get(GetEffect::NextKey),
        When::Always,
    ),
    fault(
        "get-other-keys-value",
        &[VALUE],
        "a get gives the value of another key",
        Effect::Get(GetEffect::OtherKeysValue),
        When::Always,
    ),
    fault(
        "get-previous-answer",
        &[VALUE, "rfc13.error.rc-nonzero"],
        "a get gives what the get before asked for",
        Effect::Get(GetEffect::PreviousAnswer),
        When::Always,
    ),
    fault(
        "get-one-barrier-late",
        &[VISIBLE],
        "a value is visible after two barriers",
        Effect::Get(GetEffect::OneBarrierLate),
        When::Always,
    ),
    fault(
        "get-first-epoch-only",
        &[VISIBLE],
        "what is put after the second barrier is never visible",
        Effect::Get(GetEffect::FirstEpochOnly),
        When::Always,
    ),
    fault(
        "get-last-epoch-only",
        &[VISIBLE],
        "a value is gone after the next barrier",
        Effect::Get(GetEffect::LastEpochOnly),
        When::Always,
    ),
    fault(
        "put-lost-from-other-nodes",
        &[VISIBLE],
        "puts of ranks of other nodes are forgotten",
        Effect::Put(PutEffect::Lost),
        When::OtherNodes,
    ),
    fault(
        "put-lost-behind-a-refusal",
        &[VISIBLE],
        "a put of a process whose last request was refused is forgotten",
        Effect::Put(PutEffect::Lost),
        When::Refused,
    ),
    fault(
        "put-three-hundredth-lost",
        &[VISIBLE],
        "the 300th put is forgotten",
        Effect::Put(PutEffect::Lost),
        When::Nth(300),
    ),
    fault(
        "get-late-damage",
        &[VALUE],
        "from the 450th on, a value that is read lacks its last byte",
        Effect::Reply(GOT, |d| d.edit("value", |v| v.truncate(v.len().saturating_sub(1)))),
        When::From(450),
    ),
];
