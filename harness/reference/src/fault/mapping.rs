//! The process mapping.

use pmi_wire::{MappingForm, Operation as Op};

use super::row::{Fault, fault};
use crate::behaviour::{Effect, Replies, ReplyKind, When};

const GOT: Replies = Replies(Some(Op::Get), ReplyKind::Ok);

fn mapping(value: &[u8]) -> bool {
    value.starts_with(b"(vector")
}

fn replace(value: &mut Vec<u8>, with: &str) {
    *value = with.as_bytes().to_vec();
}

const VALUE: &str = "rfc13.get.value";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "mapping-missing",
        &["rfc13.mapping.provided"],
        "there is no process mapping",
        Effect::Reply(GOT, |d| {
            if d.get("value").is_some_and(|v| mapping(v)) {
                d.fail()
            }
        }),
        When::Always,
    ),
    fault(
        "mapping-missing-for-children",
        &["rfc13.mapping.provided"],
        "a spawned group has no process mapping",
        Effect::Reply(GOT, |d| {
            if d.get("value").is_some_and(|v| mapping(v)) {
                d.fail()
            }
        }),
        When::Spawned,
    ),
    fault(
        "mapping-error-when-long",
        &["rfc13.mapping.empty-when-too-long", "rfc13.mapping.provided"],
        "a mapping for five ranks or more is an error",
        Effect::Reply(GOT, |d| {
            if d.get("value").is_some_and(|v| mapping(v)) {
                d.fail()
            }
        }),
        When::Ranks(5),
    ),
    fault(
        "mapping-always-empty",
        &["rfc13.mapping.empty-when-too-long", "rfc13.mapping.format"],
        "the mapping is empty though it would fit",
        Effect::Mapping(|m, _| m.clear()),
        When::Always,
    ),
    fault(
        "mapping-mpich",
        &["rfc13.mapping.format"],
        "the mapping is written as MPICH does since 4.1: a rank alone on its node is the number of the node",
        Effect::Mapping(|m, _| {
            if let MappingForm::Rfc(mapping) = MappingForm::classify(m) {
                *m = mapping.mpich().to_string().into_bytes();
            }
        }),
        When::Always,
    ),
    fault(
        "mapping-mpich-repeated",
        &["rfc13.mapping.format"],
        "the mapping is written with MPICH's repetitions, one for each node",
        Effect::Mapping(|m, s| {
            let nodes = pmi_wire::place(s.size, s.nodes);
            let ranks = |run: &[u32]| format!("[{}]x{}", run[0], run.len());
            let runs: Vec<String> = nodes.chunk_by(|a, b| a == b).map(ranks).collect();
            replace(m, &format!("(vector,{})", runs.join(",")));
        }),
        When::Always,
    ),
    fault(
        "mapping-cut",
        &["rfc13.mapping.empty-when-too-long", "rfc13.mapping.format", "rfc13.abnf.mapping-block"],
        "a mapping is cut after 12 bytes",
        Effect::Mapping(|m, _| m.truncate(12)),
        When::Always,
    ),
    fault(
        "mapping-blanks",
        &["rfc13.mapping.format", "rfc13.abnf.mapping"],
        "the mapping has blanks",
        Effect::Mapping(|m, _| replace(m, "(vector, (0, 1, 64))")),
        When::Always,
    ),
    fault(
        "mapping-no-vector",
        &["rfc13.mapping.format", "rfc13.abnf.mapping"],
        "the word vector is missing",
        Effect::Mapping(|m, _| replace(m, "((0,1,64))")),
        When::Always,
    ),
    fault(
        "mapping-plain-list",
        &["rfc13.mapping.format", "rfc13.abnf.mapping"],
        "the mapping is a list of nodes",
        Effect::Mapping(|m, _| replace(m, "0,0,0,0")),
        When::Always,
    ),
    fault(
        "mapping-two-numbers",
        &["rfc13.mapping.format", "rfc13.abnf.mapping-block"],
        "a block has two numbers",
        Effect::Mapping(|m, _| replace(m, "(vector,(0,64))")),
        When::Always,
    ),
    fault(
        "mapping-four-numbers",
        &["rfc13.mapping.format", "rfc13.abnf.mapping-block"],
        "a block has four numbers",
        Effect::Mapping(|m, _| replace(m, "(vector,(0,1,64,1))")),
        When::Always,
    ),
    fault(
        "mapping-negative",
        &["rfc13.mapping.format", "rfc13.abnf.mapping-block"],
        "a block has a negative number",
        Effect::Mapping(|m, _| replace(m, "(vector,(-1,1,64))")),
        When::Always,
    ),
    fault(
        "mapping-no-blocks",
        &["rfc13.mapping.format", "rfc13.abnf.mapping"],
        "the vector is empty",
        Effect::Mapping(|m, _| replace(m, "(vector)")),
        When::Always,
    ),
    fault(
        "mapping-trailing-comma",
        &["rfc13.mapping.format", "rfc13.abnf.mapping-blocklist"],
        "a comma follows the last block",
        Effect::Mapping(|m, _| replace(m, "(vector,(0,1,64),)")),
        When::Always,
    ),
    fault(
        "mapping-blocks-parted-by-semicolon",
        &["rfc13.mapping.format", "rfc13.abnf.mapping-blocklist"],
        "blocks are parted by semicolons",
        Effect::Mapping(|m, _| replace(m, "(vector,(0,1,1);(0,1,64))")),
        When::Always,
    ),
    fault(
        "mapping-unclosed",
        &["rfc13.mapping.format", "rfc13.abnf.mapping"],
        "the last parenthesis is missing",
        Effect::Mapping(|m, _| m.truncate(m.len() - 1)),
        When::Always,
    ),
    fault(
        "mapping-too-few",
        &["de-facto.mapping.covers-all-ranks"],
        "the mapping covers one rank less",
        Effect::Mapping(|m, s| replace(m, &format!("(vector,(0,1,{}))", s.size - 1))),
        When::Always,
    ),
    fault(
        "mapping-one-block-wraps",
        &["de-facto.mapping.covers-all-ranks"],
        "the mapping has one rank and starts again",
        Effect::Mapping(|m, s| {
            if s.size > 1 {
                replace(m, "(vector,(0,1,1))")
            }
        }),
        When::Always,
    ),
    fault(
        "mapping-one-node-for-two",
        &["rfc13.mapping.true"],
        "two nodes are told as one",
        Effect::Mapping(|m, s| replace(m, &format!("(vector,(0,1,{}))", s.size))),
        When::Nodes,
    ),
    fault(
        "mapping-each-its-node",
        &["rfc13.mapping.true"],
        "every rank is told to be on a node of its own",
        Effect::Mapping(|m, s| replace(m, &format!("(vector,(0,{},1))", s.size))),
        When::Always,
    ),
    fault(
        "mapping-differs-by-rank",
        &["rfc13.put.unique", VALUE],
        "the last rank reads another mapping",
        Effect::Reply(GOT, |d| {
            let size = d.size;
            d.edit("value", |v| {
                if mapping(v) {
                    replace(v, &format!("(vector,(7,1,{size}))"))
                }
            });
        }),
        When::LastRank,
    ),
];
