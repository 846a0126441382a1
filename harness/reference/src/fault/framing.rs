//! The form of every response, and how many there are.

use pmi_wire::Operation;

use super::row::{Fault, fault};
use crate::behaviour::{Effect, Replies, ReplyDraft, ReplyKind, When};

const ANY: Replies = Replies(None, ReplyKind::Any);

/// A message of the server that answers nothing.
fn followed_by(draft: &mut ReplyDraft, line: &str) {
    draft.after = line.as_bytes().to_vec();
}

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "no-newline",
        &["rfc13.wire.newline"],
        "responses have no newline",
        Effect::Reply(ANY, |d| d.end = b""),
        When::Always,
    ),
    fault(
        "no-newline-after-get",
        &["rfc13.wire.newline"],
        "get_result has no newline",
        Effect::Reply(Replies(Some(Operation::Get), ReplyKind::Ok), |d| d.end = b""),
        When::Always,
    ),
    fault(
        "no-newline-after-finalize",
        &["rfc13.wire.newline"],
        "finalize_ack has no newline",
        Effect::Reply(Replies(Some(Operation::Finalize), ReplyKind::Any), |d| d.end = b""),
        When::Always,
    ),
    fault(
        "ends-with-nul",
        &["rfc13.wire.newline"],
        "a NUL stands where the newline should be",
        Effect::Reply(ANY, |d| d.end = b"\0"),
        When::Always,
    ),
    fault(
        "ends-with-cr",
        &["rfc13.wire.newline", "rfc13.wire.tuples"],
        "a carriage return stands where the newline should be",
        Effect::Reply(ANY, |d| d.end = b"\r"),
        When::Always,
    ),
    fault(
        "nul-before-newline",
        &["rfc13.wire.tuples"],
        "a NUL stands before the newline",
        Effect::Reply(ANY, |d| d.end = b"\0\n"),
        When::Always,
    ),
    fault(
        "cr-before-newline",
        &["rfc13.wire.tuples"],
        "lines end in CR LF",
        Effect::Reply(ANY, |d| d.end = b"\r\n"),
        When::Always,
    ),
    fault(
        "newline-for-blank",
        &["rfc13.response.complete-on-success"],
        "tuples are parted by newlines",
        Effect::Reply(ANY, |d| d.between = b"\n"),
        When::Always,
    ),
    fault(
        "comma-for-blank",
        &["rfc13.abnf.pmi1"],
        "tuples are parted by commas",
        Effect::Reply(ANY, |d| d.between = b","),
        When::Always,
    ),
    fault(
        "length-prefix",
        &["rfc13.wire.response-matches-request"],
        "responses begin with their length, as in PMI-2",
        Effect::Reply(ANY, |d| d.before = b"    32"),
        When::Always,
    ),
    fault(
        "colon-for-equals",
        &["rfc13.wire.tuples"],
        "responses have key:value",
        Effect::Writes(ANY, |b| vec![b.iter().map(|b| if *b == b'=' { b':' } else { *b }).collect()]),
        When::Always,
    ),
    fault(
        "words-not-tuples",
        &["rfc13.wire.tuples"],
        "responses hold a word that is no tuple",
        Effect::Reply(ANY, |d| d.end = b" done\n"),
        When::Always,
    ),
    fault(
        "tuple-without-key",
        &["rfc13.wire.tuples"],
        "responses hold a tuple with no key",
        Effect::Reply(Replies(None, ReplyKind::Ok), |d| d.insert("", "0")),
        When::Always,
    ),
    fault(
        "binary-header",
        &["rfc13.wire.tuples"],
        "responses begin with bytes that are no text",
        Effect::Reply(ANY, |d| d.before = b"\x01\xff"),
        When::Always,
    ),
    fault(
        "rc-first",
        &["rfc13.wire.response-matches-request"],
        "cmd is missing",
        Effect::Reply(ANY, |d| d.remove("cmd")),
        When::Always,
    ),
    fault(
        "mcmd-for-cmd",
        &["rfc13.wire.response-matches-request"],
        "responses begin with mcmd=",
        Effect::Reply(ANY, |d| d.rename("cmd", "mcmd")),
        When::Always,
    ),
    fault(
        "cmd-upper-case",
        &["rfc13.abnf.pmi1"],
        "commands are in capitals",
        Effect::Reply(ANY, |d| d.edit("cmd", |v| v.make_ascii_uppercase())),
        When::Always,
    ),
    fault(
        "echoes-request",
        &["rfc13.wire.client-sends-requests"],
        "the request comes back before its answer",
        Effect::Reply(Replies(Some(Operation::Maxes), ReplyKind::Any), |d| {
            let answer = d.bytes();
            d.replace(&[("cmd", "get_maxes")]);
            d.after = answer;
        }),
        When::Always,
    ),
    fault(
        "sends-a-request",
        &["rfc13.wire.client-sends-requests"],
        "the server asks the client to finalize",
        Effect::Reply(Replies(Some(Operation::Barrier), ReplyKind::Ok), |d| followed_by(d, "cmd=finalize\n")),
        When::Always,
    ),
    fault(
        "sends-a-request-at-start",
        &["rfc13.wire.client-sends-requests"],
        "the server introduces itself by an init",
        Effect::Reply(Replies(Some(Operation::Init), ReplyKind::Any), |d| {
            followed_by(d, "cmd=init pmi_version=1 pmi_subversion=1\n")
        }),
        When::Always,
    ),
    fault(
        "answer-to-next-rank",
        &["rfc13.wire.lock-step", "rfc13.wire.response-matches-request"],
        "the answer goes to the rank behind",
        Effect::Reply(Replies(Some(Operation::Maxes), ReplyKind::Any), |d| {
            d.to.rank = (d.to.rank + 1) % d.size
        }),
        When::Always,
    ),
    fault(
        "answer-to-rank-0",
        &["rfc13.wire.lock-step", "rfc13.wire.response-matches-request"],
        "every get is answered to rank 0",
        Effect::Reply(Replies(Some(Operation::Get), ReplyKind::Any), |d| d.to.rank = 0),
        When::Always,
    ),
    fault(
        "answers-twice",
        &["rfc13.wire.lock-step"],
        "every answer is sent twice",
        Effect::Reply(ANY, |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "answers-get-twice",
        &["rfc13.wire.lock-step"],
        "get_result is sent twice",
        Effect::Reply(Replies(Some(Operation::Get), ReplyKind::Ok), |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "answers-put-twice-late",
        &["rfc13.wire.lock-step"],
        "the 10th put_result is sent twice",
        Effect::Reply(Replies(Some(Operation::Put), ReplyKind::Ok), |d| d.copies = 2),
        When::Nth(10),
    ),
    fault(
        "answers-finalize-twice",
        &["rfc13.wire.lock-step"],
        "finalize_ack is sent twice",
        Effect::Reply(Replies(Some(Operation::Finalize), ReplyKind::Any), |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "blank-line-behind",
        &["rfc13.wire.lock-step"],
        "an empty line follows each answer",
        Effect::Reply(Replies(None, ReplyKind::Ok), |d| followed_by(d, "\n")),
        When::Always,
    ),
    fault(
        "hint-behind",
        &["rfc13.wire.lock-step"],
        "a line with a hint follows a put_result",
        Effect::Reply(Replies(Some(Operation::Put), ReplyKind::Ok), |d| {
            followed_by(d, "cmd=hint text=use-pmix\n")
        }),
        When::Always,
    ),
    fault(
        "keep-alive",
        &["rfc13.wire.lock-step"],
        "a barrier_out nobody asked for follows the 20th answer",
        Effect::Reply(ANY, |d| followed_by(d, "cmd=barrier_out rc=0\n")),
        When::Nth(20),
    ),
    fault(
        "answer-of-another-request",
        &["rfc13.wire.response-matches-request"],
        "get_universe_size is answered as get_appnum",
        Effect::Reply(Replies(Some(Operation::Universe), ReplyKind::Ok), |d| {
            d.replace(&[("cmd", "appnum"), ("rc", "0"), ("appnum", "0")])
        }),
        When::Always,
    ),
    fault(
        "put-answered-as-get",
        &["rfc13.wire.response-matches-request"],
        "put is answered by get_result",
        Effect::Reply(Replies(Some(Operation::Put), ReplyKind::Any), |d| d.set("cmd", "get_result")),
        When::Always,
    ),
    fault(
        "silent-from-hundredth",
        &[
            "rfc13.wire.lock-step",
            "rfc13.abnf.c-maxes",
            "rfc13.abnf.c-put",
            "rfc13.abnf.c-get",
            "rfc13.barrier.released",
            "rfc13.finalize.ack",
        ],
        "from the 100th answer on there is none",
        Effect::Reply(ANY, ReplyDraft::silence),
        When::From(100),
    ),
    fault(
        "silent-under-load",
        &["rfc13.wire.lock-step", "de-facto.request.ahead"],
        "requests that come together are not answered",
        Effect::Reply(ANY, ReplyDraft::silence),
        When::Burst,
    ),
    fault(
        "unknown-response",
        &["rfc13.abnf.pmi1", "rfc13.wire.lock-step"],
        "put is answered by a command of the server's own",
        Effect::Reply(Replies(Some(Operation::Put), ReplyKind::Ok), |d| d.set("cmd", "stored")),
        When::Always,
    ),
    fault(
        "floods",
        &["rfc13.wire.lock-step"],
        "each answer is sent 1000 times",
        Effect::Reply(Replies(Some(Operation::Maxes), ReplyKind::Any), |d| d.copies = 1000),
        When::Always,
    ),
];
