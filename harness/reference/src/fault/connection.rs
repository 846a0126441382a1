//! Environment, descriptor, reading requests, and the frame of every message.

use pmi_wire::Operation;

use super::effect::{Effect, For, On, Scene, When};
use super::{Draft, Fault, fault};

type Env = Vec<(&'static str, String)>;

fn set(env: &mut Env, name: &'static str, value: impl ToString) {
    env.retain(|(n, _)| *n != name);
    env.push((name, value.to_string()));
}

fn unset(env: &mut Env, name: &str) {
    env.retain(|(n, _)| *n != name);
}

fn node_of(scene: &Scene) -> u32 {
    crate::placement::place(scene.size, scene.nodes).get(scene.rank as usize).copied().unwrap_or(0)
}

const ANY: For = For(None, On::Any);

/// A message of the server that answers nothing.
fn followed_by(draft: &mut Draft, line: &str) {
    draft.after = line.as_bytes().to_vec();
}

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
    // ----- environment
    fault(
        "env-no-fd",
        &["rfc13.env.pmi-fd"],
        "PMI_FD is not set",
        Effect::Env(|e, _| unset(e, "PMI_FD")),
        When::Always,
    ),
    fault(
        "env-fd-not-a-number",
        &["rfc13.env.pmi-fd"],
        "PMI_FD is a path",
        Effect::Env(|e, _| set(e, "PMI_FD", "/dev/fd/3")),
        When::Always,
    ),
    fault(
        "env-fd-negative",
        &["rfc13.env.pmi-fd"],
        "PMI_FD is -1",
        Effect::Env(|e, _| set(e, "PMI_FD", -1)),
        When::Always,
    ),
    fault(
        "env-no-fd-for-children",
        &["rfc13.env.pmi-fd"],
        "PMI_FD is missing in spawned programs",
        Effect::Env(|e, _| unset(e, "PMI_FD")),
        When::Spawned,
    ),
    fault(
        "fd-closed",
        &["rfc13.connection.preconnected"],
        "the descriptor in PMI_FD is closed",
        Effect::DeadFd,
        When::Always,
    ),
    fault(
        "fd-closed-on-last-rank",
        &["rfc13.connection.preconnected"],
        "the descriptor of the last rank is closed",
        Effect::DeadFd,
        When::LastRank,
    ),
    fault(
        "fd-closed-for-children",
        &["rfc13.connection.preconnected"],
        "the descriptors of spawned programs are closed",
        Effect::DeadFd,
        When::Spawned,
    ),
    fault(
        "env-no-rank",
        &["rfc13.env.pmi-rank"],
        "PMI_RANK is not set",
        Effect::Env(|e, _| unset(e, "PMI_RANK")),
        When::Always,
    ),
    fault(
        "env-rank-from-one",
        &["rfc13.env.pmi-rank"],
        "PMI_RANK counts from one",
        Effect::Env(|e, s| set(e, "PMI_RANK", s.rank + 1)),
        When::Always,
    ),
    fault(
        "env-rank-zero-for-all",
        &["rfc13.env.pmi-rank"],
        "every process is rank 0",
        Effect::Env(|e, _| set(e, "PMI_RANK", 0)),
        When::Always,
    ),
    fault(
        "env-rank-within-node",
        &["rfc13.env.pmi-rank"],
        "PMI_RANK counts within the node",
        Effect::Env(|e, s| {
            let first =
                crate::placement::place(s.size, s.nodes).iter().position(|n| *n == node_of(s)).unwrap_or(0);
            set(e, "PMI_RANK", s.rank - first as u32);
        }),
        When::Nodes,
    ),
    fault(
        "env-rank-goes-on-in-children",
        &["rfc13.env.pmi-rank"],
        "ranks of a spawned group go on where the parents' end",
        Effect::Env(|e, s| set(e, "PMI_RANK", s.rank + 1)),
        When::Spawned,
    ),
    fault(
        "env-no-size",
        &["rfc13.env.pmi-size"],
        "PMI_SIZE is not set",
        Effect::Env(|e, _| unset(e, "PMI_SIZE")),
        When::Always,
    ),
    fault(
        "env-size-one-less",
        &["rfc13.env.pmi-size"],
        "PMI_SIZE is the highest rank",
        Effect::Env(|e, s| set(e, "PMI_SIZE", s.size - 1)),
        When::Always,
    ),
    fault(
        "env-size-of-node",
        &["rfc13.env.pmi-size"],
        "PMI_SIZE is the number of ranks on the node",
        Effect::Env(|e, s| {
            let here = crate::placement::place(s.size, s.nodes).iter().filter(|n| **n == node_of(s)).count();
            set(e, "PMI_SIZE", here);
        }),
        When::Nodes,
    ),
    fault(
        "env-size-differs-on-last-rank",
        &["rfc13.env.pmi-size"],
        "the last rank is told another size",
        Effect::Env(|e, s| set(e, "PMI_SIZE", s.size + 1)),
        When::LastRank,
    ),
    fault(
        "env-spawned-zero",
        &["rfc13.env.pmi-spawned"],
        "PMI_SPAWNED=0 where nothing was spawned",
        Effect::Env(|e, s| {
            if s.group == 0 {
                set(e, "PMI_SPAWNED", 0);
            }
        }),
        When::Always,
    ),
    fault(
        "env-spawned-empty",
        &["rfc13.env.pmi-spawned"],
        "PMI_SPAWNED is set to nothing",
        Effect::Env(|e, s| {
            if s.group == 0 {
                set(e, "PMI_SPAWNED", "");
            }
        }),
        When::Always,
    ),
    fault(
        "env-spawned-always",
        &["rfc13.env.pmi-spawned"],
        "PMI_SPAWNED=1 for every program",
        Effect::Env(|e, _| set(e, "PMI_SPAWNED", 1)),
        When::Always,
    ),
    fault(
        "env-spawned-missing",
        &["rfc13.env.pmi-spawned"],
        "spawned programs are not told so",
        Effect::Env(|e, _| unset(e, "PMI_SPAWNED")),
        When::Always,
    ),
    fault(
        "env-spawned-is-the-group",
        &["rfc13.env.pmi-spawned"],
        "PMI_SPAWNED is the number of the group, not 1",
        Effect::Env(|e, s| {
            if s.group > 0 {
                set(e, "PMI_SPAWNED", s.group + 1);
            }
        }),
        When::Always,
    ),
    fault(
        "env-spawned-missing-on-last-rank",
        &["rfc13.env.pmi-spawned"],
        "only some spawned processes are told so",
        Effect::Env(|e, _| unset(e, "PMI_SPAWNED")),
        When::LastRank,
    ),
    // ----- reading
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
    // ----- frame of messages
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
        Effect::Reply(For(Some(Operation::Get), On::Ok), |d| d.end = b""),
        When::Always,
    ),
    fault(
        "no-newline-after-finalize",
        &["rfc13.wire.newline"],
        "finalize_ack has no newline",
        Effect::Reply(For(Some(Operation::Finalize), On::Any), |d| d.end = b""),
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
        Effect::Reply(For(None, On::Ok), |d| d.insert("", "0")),
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
        Effect::Reply(ANY, |d| d.drop("cmd")),
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
        Effect::Reply(For(Some(Operation::Maxes), On::Any), |d| {
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
        Effect::Reply(For(Some(Operation::Barrier), On::Ok), |d| followed_by(d, "cmd=finalize\n")),
        When::Always,
    ),
    fault(
        "sends-a-request-at-start",
        &["rfc13.wire.client-sends-requests"],
        "the server introduces itself by an init",
        Effect::Reply(For(Some(Operation::Init), On::Any), |d| {
            followed_by(d, "cmd=init pmi_version=1 pmi_subversion=1\n")
        }),
        When::Always,
    ),
    fault(
        "answer-to-next-rank",
        &["rfc13.wire.lock-step", "rfc13.wire.response-matches-request"],
        "the answer goes to the rank behind",
        Effect::Reply(For(Some(Operation::Maxes), On::Any), |d| d.to.rank = (d.to.rank + 1) % d.size),
        When::Always,
    ),
    fault(
        "answer-to-rank-0",
        &["rfc13.wire.lock-step", "rfc13.wire.response-matches-request"],
        "every get is answered to rank 0",
        Effect::Reply(For(Some(Operation::Get), On::Any), |d| d.to.rank = 0),
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
        Effect::Reply(For(Some(Operation::Get), On::Ok), |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "answers-put-twice-late",
        &["rfc13.wire.lock-step"],
        "the 10th put_result is sent twice",
        Effect::Reply(For(Some(Operation::Put), On::Ok), |d| d.copies = 2),
        When::Nth(10),
    ),
    fault(
        "answers-finalize-twice",
        &["rfc13.wire.lock-step"],
        "finalize_ack is sent twice",
        Effect::Reply(For(Some(Operation::Finalize), On::Any), |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "blank-line-behind",
        &["rfc13.wire.lock-step"],
        "an empty line follows each answer",
        Effect::Reply(For(None, On::Ok), |d| followed_by(d, "\n")),
        When::Always,
    ),
    fault(
        "hint-behind",
        &["rfc13.wire.lock-step"],
        "a line with a hint follows a put_result",
        Effect::Reply(For(Some(Operation::Put), On::Ok), |d| followed_by(d, "cmd=hint text=use-pmix\n")),
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
        Effect::Reply(For(Some(Operation::Universe), On::Ok), |d| {
            d.replace(&[("cmd", "appnum"), ("rc", "0"), ("appnum", "0")])
        }),
        When::Always,
    ),
    fault(
        "put-answered-as-get",
        &["rfc13.wire.response-matches-request"],
        "put is answered by get_result",
        Effect::Reply(For(Some(Operation::Put), On::Any), |d| d.set("cmd", "get_result")),
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
        Effect::Reply(ANY, Draft::silence),
        When::From(100),
    ),
    fault(
        "silent-under-load",
        &["rfc13.wire.lock-step", "de-facto.request.ahead"],
        "requests that come together are not answered",
        Effect::Reply(ANY, Draft::silence),
        When::Burst,
    ),
    fault(
        "unknown-response",
        &["rfc13.abnf.pmi1", "rfc13.wire.lock-step"],
        "put is answered by a command of the server's own",
        Effect::Reply(For(Some(Operation::Put), On::Ok), |d| d.set("cmd", "stored")),
        When::Always,
    ),
    fault(
        "floods",
        &["rfc13.wire.lock-step"],
        "each answer is sent 1000 times",
        Effect::Reply(For(Some(Operation::Maxes), On::Any), |d| d.copies = 1000),
        When::Always,
    ),
];
