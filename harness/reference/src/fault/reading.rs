//! How the server reads requests.

use super::row::{Fault, fault};
use crate::behaviour::{Effect, When};

fn first_line_only(bytes: &[u8]) -> Vec<u8> {
    match bytes.iter().position(|b| *b == b'\n') {
        Some(end) => bytes[..=end].to_vec(),
        None => bytes.to_vec(),
    }
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

fn is(line: &[u8], cmd: &str) -> bool {
    line.strip_prefix(b"cmd=").is_some_and(|l| l.starts_with(cmd.as_bytes()))
}

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "read-is-a-message",
        &["rfc13.wire.newline"],
        "what one read brings is taken for a message",
        Effect::Read(|b| {
            let mut all = b.to_vec();
            if !all.ends_with(b"\n") {
                all.push(b'\n');
            }
            all
        }),
        When::Always,
    ),
    fault(
        "read-drops-the-rest",
        &["rfc13.abnf.c-spawn", "de-facto.request.ahead", "rfc13.wire.lock-step"],
        "one message is taken from a read, the rest is lost",
        Effect::Read(first_line_only),
        When::Always,
    ),
    fault(
        "read-drops-the-rest-of-requests",
        &["de-facto.request.ahead", "rfc13.wire.lock-step"],
        "of several requests in one read only the first is answered",
        Effect::Read(first_line_only),
        When::Burst,
    ),
    fault(
        "read-drops-partial",
        &["rfc13.wire.newline"],
        "half a message is forgotten at the end of a read",
        Effect::Read(|b| b.iter().rposition(|b| *b == b'\n').map_or(Vec::new(), |end| b[..=end].to_vec())),
        When::Always,
    ),
    fault(
        "read-reverses",
        &["rfc13.wire.response-matches-request"],
        "several requests in one read are answered from the last to the first",
        Effect::Read(|b| {
            let mut all = lines(b);
            all.reverse();
            all.concat()
        }),
        When::Burst,
    ),
    fault(
        "read-long-line-cut",
        &["rfc13.get.value", "rfc13.maxes.honoured"],
        "a request is cut after 512 bytes",
        Effect::Hear(|l| Some(l[..l.len().min(512)].to_vec())),
        When::Always,
    ),
    fault(
        "read-lower-case",
        &["rfc13.get.value"],
        "requests are taken in lower case",
        Effect::Hear(|l| Some(l.to_ascii_lowercase())),
        When::Always,
    ),
    fault(
        "parse-order-fixed",
        &["rfc13.parser.order"],
        "kvsname has to stand before key",
        Effect::Reject(|l| {
            let at = |k: &[u8]| l.windows(k.len()).position(|w| w == k);
            matches!((at(b" key="), at(b" kvsname=")), (Some(k), Some(n)) if k < n)
        }),
        When::Always,
    ),
    fault(
        "parse-init-order-fixed",
        &["rfc13.parser.order"],
        "pmi_version has to stand before pmi_subversion",
        Effect::Reject(|l| l.starts_with(b"cmd=init pmi_subversion=1 pmi_version=")),
        When::Always,
    ),
    fault(
        "parse-one-blank-only",
        &["rfc13.parser.white-space"],
        "two blanks between tuples are an error",
        Effect::Reject(|l| {
            let head = l.windows(7).position(|w| w == b" value=").map_or(l, |at| &l[..at]);
            !is(l, "spawn") && head.windows(2).any(|w| w == b"  ")
        }),
        When::Always,
    ),
    fault(
        "parse-no-tabs",
        &["rfc13.parser.white-space"],
        "a tab between tuples is an error",
        Effect::Reject(|l| {
            let head = l.windows(7).position(|w| w == b" value=").map_or(l, |at| &l[..at]);
            head.contains(&b'\t')
        }),
        When::Always,
    ),
    fault(
        "parse-no-extra-keys",
        &["rfc13.parser.extra-keys"],
        "a key that is not in the grammar is an error",
        Effect::Reject(|l| {
            (is(l, "get_maxes")
                || is(l, "get_my_kvsname")
                || is(l, "get_appnum")
                || is(l, "barrier_in")
                || is(l, "get_universe_size"))
                && l.contains(&b' ')
        }),
        When::Always,
    ),
];
