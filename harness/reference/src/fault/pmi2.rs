//! PMI-2: what its responses say, and what its commands do.

use pmi_wire::pmi2::Command as C;

use super::row::{Fault, Variation, bump, fault, vary};
use crate::behaviour::{Effect, FrameReplies, Length, Pmi2Effect, ReplyDraft, ReplyKind, When};

const fn reply(command: C, kind: ReplyKind, edit: fn(&mut ReplyDraft)) -> Effect {
    Effect::FrameReply(FrameReplies(Some(command), kind), edit)
}

const fn ok(command: C, edit: fn(&mut ReplyDraft)) -> Effect {
    reply(command, ReplyKind::Ok, edit)
}

const fn every(edit: fn(&mut ReplyDraft)) -> Effect {
    Effect::FrameReply(FrameReplies(None, ReplyKind::Any), edit)
}

const fn does(effect: Pmi2Effect) -> Effect {
    Effect::Pmi2(effect)
}

const TUPLES: &str = "pmi2.common.tuples";
const FRAME: &str = "pmi2.common.frame";
const RC: &str = "pmi2.common.rc";
const NAME: &str = "pmi2.common.response-name";
const ONE: &str = "pmi2.common.one-response";
const ANSWERED: &str = "pmi2.common.answered";
const VALUE: &str = "pmi2.common.get.value";
const MISS: &str = "pmi2.common.get.miss";
const FOUND: &str = "pmi2.common.get.found";
const VISIBLE: &str = "pmi2.common.fence.visible";
const FENCE: &str = "pmi2.common.fence";
const NODE: &str = "pmi2.common.nodeattr";
const WAIT: &str = "pmi2.common.nodeattr.wait";
const LOOKUP: &str = "pmi2.common.names.lookup";
const GONE: &str = "pmi2.common.names.miss";
const SPAWN: &str = "pmi2.common.spawn.starts";
const ABORT: &str = "pmi2.common.abort";
const THRID: &str = "pmi2.draft.thrid-echoed";

pub(super) const FAULTS: &[Fault] = &[
    // The form of every message.
    fault(
        "frame-length-too-long",
        &[FRAME, ANSWERED],
        "counts one byte more than follow",
        every(|d| d.lengthened = 1),
        When::Always,
    ),
    fault(
        "frame-length-too-short",
        &[FRAME, TUPLES, "pmi2.common.terminated"],
        "counts one byte less than follow",
        every(|d| d.lengthened = -1),
        When::Always,
    ),
    fault(
        "frame-length-counts-header",
        &[FRAME, ANSWERED],
        "counts the header as well",
        every(|d| d.lengthened = 6),
        When::Always,
    ),
    fault(
        "frame-length-no-number",
        &[FRAME],
        "writes a length that is none",
        every(|d| d.length = Some(Length::Text(b"length"))),
        When::Always,
    ),
    fault(
        "frame-length-negative",
        &[FRAME],
        "writes a negative length",
        every(|d| d.length = Some(Length::Text(b"   -20"))),
        When::Always,
    ),
    fault(
        "frame-length-missing-later",
        &[FRAME],
        "leaves the length out from the third message on",
        every(|d| d.length = None),
        When::From(3),
    ),
    fault(
        "line-for-frame",
        &[FRAME],
        "answers in lines",
        every(|d| {
            d.length = None;
            (d.between, d.end) = (b" ", b"\n");
        }),
        When::Always,
    ),
    fault(
        "frame-no-last-semicolon",
        &["pmi2.common.terminated"],
        "leaves the last semicolon out",
        every(|d| d.end = b""),
        When::Always,
    ),
    fault(
        "frame-commas",
        &["pmi2.common.terminated", TUPLES, NAME],
        "parts tuples by commas",
        every(|d| d.between = b","),
        When::Always,
    ),
    fault(
        "frame-newline-behind",
        &[FRAME],
        "sends a newline behind each frame",
        every(|d| d.after = b"\n".to_vec()),
        When::Always,
    ),
    fault("cmd-not-first", &[TUPLES], "has cmd last", every(|d| d.tuples.rotate_left(1)), When::Always),
    fault("cmd-missing", &[TUPLES], "leaves cmd out", every(|d| d.remove("cmd")), When::Always),
    fault("frame-rc-twice", &[TUPLES], "has rc twice", every(|d| d.add("rc", "0")), When::Always),
    fault("frame-rc-missing", &[RC], "leaves rc out", every(|d| d.remove("rc")), When::Always),
    fault("frame-rc-a-word", &[RC], "has rc=ok", every(|d| d.set("rc", "ok")), When::Always),
    fault("frame-rc-empty", &[RC], "has an empty rc", every(|d| d.set("rc", "")), When::Always),
    fault(
        "response-without-suffix",
        &[NAME],
        "answers in the name of the request",
        every(|d| {
            d.edit("cmd", |v| v.truncate(v.len().saturating_sub(9)));
        }),
        When::Always,
    ),
    fault(
        "response-underscore",
        &[NAME],
        "answers with _response",
        every(|d| {
            d.edit("cmd", |v| v.iter_mut().for_each(|b| *b = if *b == b'-' { b'_' } else { *b }));
        }),
        When::Always,
    ),
    fault(
        "every-response-twice",
        &[ONE],
        "sends every response twice",
        every(|d| d.copies = 2),
        When::Always,
    ),
    fault(
        "fence-response-twice",
        &[ONE],
        "sends the response to a fence twice",
        ok(C::KvsFence, |d| d.copies = 2),
        When::Always,
    ),
    fault(
        "put-response-twice",
        &[ONE],
        "sends the response to a put twice",
        ok(C::KvsPut, |d| d.copies = 2),
        When::Always,
    ),
    fault("thrid-not-echoed", &[THRID], "leaves thrid out", every(|d| d.remove("thrid")), When::Always),
    fault(
        "thrid-changed",
        &[THRID],
        "answers with another thrid",
        every(|d| d.edit("thrid", |v| v.push(b'0'))),
        When::Always,
    ),
    fault(
        "thrid-empty",
        &[THRID],
        "answers with an empty thrid",
        every(|d| d.edit("thrid", Vec::clear)),
        When::Always,
    ),
    fault(
        "thrid-of-number-only",
        &[THRID],
        "cuts a thrid to eight bytes",
        every(|d| d.edit("thrid", |v| v.truncate(8))),
        When::Always,
    ),
    fault(
        "semicolons-not-doubled",
        &["pmi2.draft.semicolons", TUPLES],
        "does not double semicolons",
        every(|d| d.doubles = false),
        When::Always,
    ),
    fault(
        "reads-one-frame-a-read",
        &["pmi2.common.any-fragmentation", ANSWERED],
        "drops a second frame of a read",
        Effect::Read(|bytes| {
            let length = bytes.first_chunk().and_then(|h| pmi_wire::frame_length(*h)).unwrap_or(bytes.len());
            bytes[..bytes.len().min(6 + length)].to_vec()
        }),
        When::Always,
    ),
    fault(
        "reads-whole-frames-only",
        &["pmi2.common.any-fragmentation", ANSWERED, "pmi2.common.fence"],
        "drops what is no whole frame",
        Effect::Read(|bytes| {
            let whole = bytes
                .first_chunk()
                .and_then(|h| pmi_wire::frame_length(*h))
                .is_some_and(|n| 6 + n == bytes.len());
            if whole || bytes.ends_with(b"\n") { bytes.to_vec() } else { Vec::new() }
        }),
        When::Always,
    ),
    fault(
        "mute-after-refusal",
        &["pmi2.common.usable-after-error"],
        "does not answer who was refused something",
        every(ReplyDraft::silence),
        When::Refused,
    ),
    fault(
        "one-request-at-a-time",
        &["pmi2.draft.thrid-tells-apart"],
        "takes a request for an error while another thread waits",
        does(Pmi2Effect::OneAtATime),
        When::Always,
    ),
    // init and fullinit
    fault(
        "offer-answered-with-1",
        &["pmi2.common.version"],
        "answers an offer of 2.0 with version 1.1",
        Effect::Reply(super::row::ok(pmi_wire::Operation::Init), |d| {
            if d.get("pmi_version").is_some_and(|v| v == b"2") {
                d.set("pmi_version", "1");
                d.set("pmi_subversion", "1");
            }
        }),
        When::Always,
    ),
    fault(
        "offer-answered-with-3",
        &["pmi2.common.version"],
        "answers an offer of 2.0 with version 3.0",
        Effect::Reply(super::row::ok(pmi_wire::Operation::Init), |d| {
            if d.get("pmi_version").is_some_and(|v| v == b"2") {
                d.set("pmi_version", "3");
            }
        }),
        When::Always,
    ),
    fault(
        "offer-without-subversion",
        &["pmi2.common.version", "rfc13.abnf.s-init"],
        "leaves pmi_subversion out",
        Effect::Reply(super::row::ok(pmi_wire::Operation::Init), |d| {
            if d.get("pmi_version").is_some_and(|v| v == b"2") {
                d.remove("pmi_subversion");
            }
        }),
        When::Always,
    ),
    fault(
        "fullinit-refused",
        &["pmi2.common.fullinit"],
        "refuses fullinit",
        ok(C::Fullinit, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "fullinit-refused-last",
        &["pmi2.common.fullinit"],
        "refuses the fullinit of the last rank",
        ok(C::Fullinit, ReplyDraft::refuse),
        When::LastRank,
    ),
    fault(
        "fullinit-no-answer",
        &[ANSWERED],
        "does not answer fullinit",
        ok(C::Fullinit, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "fullinit-no-answer-threaded",
        &["pmi2.common.fullinit", ANSWERED],
        "does not answer the second fullinit",
        ok(C::Fullinit, ReplyDraft::silence),
        When::Nth(2),
    ),
    fault(
        "fullinit-rank-zero",
        &["pmi2.common.fullinit.rank"],
        "tells every process that it is rank 0",
        ok(C::Fullinit, |d| d.set("rank", "0")),
        When::Always,
    ),
    fault(
        "fullinit-rank-from-one",
        &["pmi2.common.fullinit.rank"],
        "counts ranks from 1",
        ok(C::Fullinit, |d| d.edit("rank", |v| bump(v, 1))),
        When::Always,
    ),
    fault(
        "fullinit-no-rank",
        &["pmi2.common.fullinit.rank"],
        "leaves rank out",
        ok(C::Fullinit, |d| d.remove("rank")),
        When::Always,
    ),
    fault(
        "fullinit-size-one",
        &["pmi2.common.fullinit.size"],
        "tells every process that it is alone",
        ok(C::Fullinit, |d| d.set("size", "1")),
        When::Always,
    ),
    fault(
        "fullinit-size-more",
        &["pmi2.common.fullinit.size"],
        "counts one process more",
        ok(C::Fullinit, |d| d.edit("size", |v| bump(v, 1))),
        When::Always,
    ),
    fault(
        "fullinit-no-size",
        &["pmi2.common.fullinit.size"],
        "leaves size out",
        ok(C::Fullinit, |d| d.remove("size")),
        When::Always,
    ),
    fault(
        "fullinit-no-appnum",
        &["pmi2.common.fullinit.appnum"],
        "leaves appnum out",
        ok(C::Fullinit, |d| d.remove("appnum")),
        When::Always,
    ),
    fault(
        "fullinit-appnum-a-word",
        &["pmi2.common.fullinit.appnum"],
        "has no number for appnum",
        ok(C::Fullinit, |d| d.set("appnum", "none")),
        When::Always,
    ),
    fault(
        "fullinit-no-version",
        &["pmi2.draft.fullinit.version"],
        "leaves pmi-version out",
        ok(C::Fullinit, |d| d.remove("pmi-version")),
        When::Always,
    ),
    fault(
        "fullinit-no-subversion",
        &["pmi2.draft.fullinit.version"],
        "leaves pmi-subversion out",
        ok(C::Fullinit, |d| d.remove("pmi-subversion")),
        When::Always,
    ),
    fault(
        "fullinit-no-debugged",
        &["pmi2.draft.fullinit.debugged"],
        "leaves debugged out",
        ok(C::Fullinit, |d| d.remove("debugged")),
        When::Always,
    ),
    fault(
        "fullinit-no-pmiverbose",
        &["pmi2.draft.fullinit.debugged"],
        "leaves pmiverbose out",
        ok(C::Fullinit, |d| d.remove("pmiverbose")),
        When::Always,
    ),
    fault(
        "fullinit-spawner-always",
        &["pmi2.draft.fullinit.spawner"],
        "tells a spawner that there is not",
        ok(C::Fullinit, |d| d.set("spawner-jobid", "j")),
        When::Always,
    ),
    fault(
        "fullinit-spawner-never",
        &["pmi2.draft.fullinit.spawner"],
        "does not tell the spawner",
        ok(C::Fullinit, |d| d.remove("spawner-jobid")),
        When::Always,
    ),
    fault(
        "fullinit-wants-jobid",
        &["pmi2.draft.fullinit.optional-keys"],
        "refuses a fullinit without pmijobid",
        Effect::Reject(|body| body.starts_with(b"cmd=fullinit") && !contains(body, b"pmijobid=")),
        When::Always,
    ),
    fault(
        "fullinit-wants-rank",
        &["pmi2.draft.fullinit.optional-keys"],
        "refuses a fullinit without pmirank",
        Effect::Reject(|body| body.starts_with(b"cmd=fullinit") && !contains(body, b"pmirank=")),
        When::Always,
    ),
    // job
    fault(
        "jobid-differs",
        &["pmi2.common.jobid"],
        "tells each process another jobid",
        ok(C::JobGetid, |d| {
            let rank = d.to.rank.to_string();
            d.edit("jobid", |v| v.extend(rank.into_bytes()));
        }),
        When::Always,
    ),
    fault(
        "jobid-missing",
        &["pmi2.common.jobid"],
        "leaves the jobid out",
        ok(C::JobGetid, |d| d.remove("jobid")),
        When::Always,
    ),
    fault(
        "jobid-refused",
        &["pmi2.common.jobid"],
        "refuses job-getid",
        ok(C::JobGetid, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "jobid-no-answer",
        &[ANSWERED],
        "does not answer job-getid",
        ok(C::JobGetid, ReplyDraft::silence),
        When::Always,
    ),
    // kvs
    fault("kvs-put-lost", &[VISIBLE], "loses what is put", does(Pmi2Effect::PutLost), When::Always),
    fault(
        "kvs-put-lost-twelfth",
        &[VISIBLE],
        "loses the twelfth put",
        does(Pmi2Effect::PutLost),
        When::Nth(12),
    ),
    fault(
        "kvs-put-lost-hundredth",
        &[VISIBLE],
        "loses the hundredth put",
        does(Pmi2Effect::PutLost),
        When::Nth(100),
    ),
    fault(
        "kvs-put-lost-last-rank",
        &[VISIBLE],
        "loses what the last rank puts",
        does(Pmi2Effect::PutLost),
        When::LastRank,
    ),
    fault(
        "kvs-put-lost-other-node",
        &[VISIBLE],
        "loses what is put on another node",
        does(Pmi2Effect::PutLost),
        When::OtherNodes,
    ),
    fault(
        "kvs-put-refused",
        &["pmi2.common.put"],
        "refuses every put",
        ok(C::KvsPut, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "kvs-put-refused-later",
        &["pmi2.common.put"],
        "refuses puts from the second on",
        ok(C::KvsPut, ReplyDraft::refuse),
        When::From(2),
    ),
    fault(
        "kvs-put-no-answer",
        &[ANSWERED],
        "does not answer puts",
        ok(C::KvsPut, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "kvs-put-everywhere",
        &["pmi2.common.spawn.own-job", MISS],
        "puts into the space of every job",
        does(Pmi2Effect::PutIntoAllJobs),
        When::Always,
    ),
    fault(
        "kvs-get-cut",
        &[VALUE],
        "leaves out the last byte of a value",
        ok(C::KvsGet, |d| d.edit("value", |v| v.truncate(v.len().saturating_sub(1)))),
        When::Always,
    ),
    fault(
        "kvs-get-cut-at-blank",
        &[VALUE],
        "cuts a value at a blank",
        ok(C::KvsGet, |d| cut(d, b' ')),
        When::Always,
    ),
    fault(
        "kvs-get-cut-at-equals",
        &[VALUE],
        "cuts a value at =",
        ok(C::KvsGet, |d| cut(d, b'=')),
        When::Always,
    ),
    fault(
        "kvs-get-cut-at-newline",
        &["pmi2.draft.any-byte"],
        "cuts a value at a newline",
        ok(C::KvsGet, |d| cut(d, b'\n')),
        When::Always,
    ),
    fault(
        "kvs-get-cut-at-nul",
        &["pmi2.draft.any-byte"],
        "cuts a value at a NUL",
        ok(C::KvsGet, |d| cut(d, 0)),
        When::Always,
    ),
    fault(
        "kvs-get-seven-bits",
        &["pmi2.draft.any-byte"],
        "loses the eighth bit of a value",
        ok(C::KvsGet, |d| d.edit("value", |v| v.iter_mut().for_each(|b| *b &= 0x7f))),
        When::Always,
    ),
    fault(
        "kvs-get-cut-at-semicolon",
        &["pmi2.draft.semicolons"],
        "cuts a value at a semicolon",
        ok(C::KvsGet, |d| cut(d, b';')),
        When::Always,
    ),
    fault(
        "kvs-get-trims",
        &[VALUE],
        "trims a value",
        ok(C::KvsGet, |d| d.edit("value", |v| *v = v.trim_ascii().to_vec())),
        When::Always,
    ),
    fault(
        "kvs-get-lower-case",
        &[VALUE],
        "returns a value in small letters",
        ok(C::KvsGet, |d| d.edit("value", |v| v.make_ascii_lowercase())),
        When::Always,
    ),
    fault(
        "kvs-get-limit-1023",
        &["pmi2.draft.lengths-served"],
        "cuts a value at 1023 bytes",
        ok(C::KvsGet, |d| d.edit("value", |v| v.truncate(1023))),
        When::Always,
    ),
    fault(
        "kvs-get-limit-1000",
        &[VALUE],
        "cuts a value at 999 bytes",
        ok(C::KvsGet, |d| d.edit("value", |v| v.truncate(999))),
        When::Always,
    ),
    fault(
        "kvs-get-no-value",
        &[VALUE],
        "says that a value is found, and leaves it out",
        ok(C::KvsGet, |d| d.remove("value")),
        When::Always,
    ),
    fault(
        "kvs-get-found-a-number",
        &[FOUND],
        "has found=1",
        ok(C::KvsGet, |d| d.set("found", "1")),
        When::Always,
    ),
    fault(
        "kvs-get-no-answer",
        &[ANSWERED],
        "does not answer gets",
        ok(C::KvsGet, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "kvs-get-no-answer-to-miss",
        &[ANSWERED],
        "does not answer a get of what is not there",
        does(Pmi2Effect::GetWaits),
        When::Always,
    ),
    fault(
        "kvs-get-miss-is-empty",
        &[MISS],
        "answers a miss with an empty value",
        ok(C::KvsGet, |d| {
            if d.get("found").is_some_and(|v| v == b"FALSE") {
                d.set("found", "TRUE");
                d.set("value", "");
            }
        }),
        When::Always,
    ),
    fault("kvs-get-refused", &[VISIBLE], "refuses gets", ok(C::KvsGet, ReplyDraft::refuse), When::Always),
    fault(
        "kvs-get-own-only",
        &[VISIBLE],
        "finds nothing on other ranks than 0",
        does(Pmi2Effect::GetOwnOnly),
        When::Always,
    ),
    fault(
        "kvs-get-believes-hint",
        &["pmi2.common.srcid", VISIBLE],
        "looks only where srcid says",
        does(Pmi2Effect::GetBelievesHint),
        When::Always,
    ),
    fault(
        "kvs-get-one-fence-late",
        &[VISIBLE],
        "finds a value only behind the second fence",
        does(Pmi2Effect::GetOneFenceLate),
        When::Always,
    ),
    fault("kvs-get-consumes", &[VISIBLE], "finds a value once", does(Pmi2Effect::GetConsumes), When::Always),
    fault(
        "kvs-get-prefix",
        &[MISS, VALUE],
        "takes the beginning of a key for the key",
        does(Pmi2Effect::GetPrefix),
        When::Always,
    ),
    fault(
        "kvs-get-not-with-jobid",
        &["pmi2.draft.get.jobid"],
        "refuses a get with a jobid",
        Effect::Reject(|body| body.starts_with(b"cmd=kvs-get;") && contains(body, b";jobid=")),
        When::Always,
    ),
    fault(
        "empty-value-closes",
        &["pmi2.draft.empty-value"],
        "an attribute with an empty value ends the job",
        Effect::Reject(|body| body.starts_with(b"cmd=info-putnodeattr;") && body.ends_with(b"value=;")),
        When::Always,
    ),
    fault(
        "kvs-get-not-with-empty-jobid",
        &["pmi2.common.get.no-jobid"],
        "refuses a get with an empty jobid",
        Effect::Reject(|body| body.starts_with(b"cmd=kvs-get;") && contains(body, b";jobid=;")),
        When::Always,
    ),
    // fence
    fault(
        "kvs-fence-at-once",
        &[VISIBLE, "pmi2.draft.fence.blocks"],
        "lets everybody out of a fence at once",
        does(Pmi2Effect::FenceAtOnce),
        When::Always,
    ),
    fault(
        "kvs-fence-never",
        &[FENCE],
        "lets nobody out of a fence",
        does(Pmi2Effect::FenceNever),
        When::Always,
    ),
    fault(
        "kvs-fence-never-second",
        &[FENCE, "pmi2.common.fence.again"],
        "hangs in the second fence",
        does(Pmi2Effect::FenceNever),
        When::From(4),
    ),
    fault(
        "kvs-fence-never-again",
        &[FENCE, "pmi2.common.fence.again"],
        "hangs in the thirtieth fence",
        does(Pmi2Effect::FenceNever),
        When::Nth(60),
    ),
    fault(
        "kvs-fence-one-short",
        &[VISIBLE, "pmi2.draft.fence.blocks"],
        "opens a fence when all but one are in it",
        does(Pmi2Effect::FenceShort),
        When::Always,
    ),
    fault(
        "kvs-fence-forgets-last",
        &[FENCE],
        "leaves the last rank in the fence",
        does(Pmi2Effect::FenceLeavesOutLast),
        When::Ranks(2),
    ),
    fault("kvs-fence-wipes", &[VISIBLE], "forgets what was put", does(Pmi2Effect::FenceWipes), When::Always),
    fault(
        "kvs-fence-refused",
        &[FENCE],
        "reports that a fence failed",
        ok(C::KvsFence, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "kvs-fence-no-answer-last",
        &[FENCE],
        "does not answer the last rank's fence",
        ok(C::KvsFence, ReplyDraft::silence),
        When::LastRank,
    ),
    // node and job attributes
    fault("nodeattr-lost", &[NODE], "loses attributes of nodes", does(Pmi2Effect::NodePutLost), When::Always),
    fault(
        "nodeattr-everywhere",
        &["pmi2.common.nodeattr.own-node"],
        "shows attributes on every node",
        does(Pmi2Effect::NodePutEverywhere),
        When::Nodes,
    ),
    fault(
        "nodeattr-own-only",
        &[NODE],
        "shows an attribute to nobody else",
        does(Pmi2Effect::NodeGetOwnOnly),
        When::Always,
    ),
    fault(
        "nodeattr-wait-at-once",
        &[WAIT],
        "answers at once although it is to wait",
        does(Pmi2Effect::NodeGetNeverWaits),
        When::Always,
    ),
    fault(
        "nodeattr-wait-for-ever",
        &[WAIT],
        "does not answer who waits when the attribute comes",
        does(Pmi2Effect::NodePutReleasesNobody),
        When::Always,
    ),
    fault(
        "nodeattr-always-waits",
        &[NODE, ANSWERED, WAIT],
        "waits although it is not to",
        does(Pmi2Effect::NodeGetAlwaysWaits),
        When::Always,
    ),
    fault(
        "nodeattr-cut",
        &[NODE],
        "cuts attributes",
        ok(C::InfoGetnodeattr, |d| d.edit("value", |v| v.truncate(v.len().saturating_sub(1)))),
        When::Always,
    ),
    fault(
        "nodeattr-put-refused",
        &[NODE],
        "refuses to store an attribute",
        ok(C::InfoPutnodeattr, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "nodeattr-put-no-answer",
        &[ANSWERED],
        "does not answer who puts an attribute",
        ok(C::InfoPutnodeattr, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "nodeattr-miss-is-empty",
        &[NODE],
        "answers a miss with an empty value",
        ok(C::InfoGetnodeattr, |d| {
            if d.get("found").is_some_and(|v| v == b"FALSE") {
                d.set("found", "TRUE");
                d.set("value", "");
            }
        }),
        When::Always,
    ),
    fault(
        "nodeattr-found-a-number",
        &[FOUND],
        "has found=1 for attributes",
        ok(C::InfoGetnodeattr, |d| d.set("found", "1")),
        When::Always,
    ),
    fault(
        "jobattr-no-mapping",
        &["pmi2.common.jobattr.mapping"],
        "has no process mapping",
        ok(C::InfoGetjobattr, |d| {
            d.set("found", "FALSE");
            d.remove("value");
        }),
        When::Always,
    ),
    fault(
        "jobattr-no-answer",
        &[ANSWERED],
        "does not answer info-getjobattr",
        ok(C::InfoGetjobattr, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "jobattr-miss-is-empty",
        &["pmi2.common.jobattr.miss"],
        "answers a miss with an empty value",
        ok(C::InfoGetjobattr, |d| {
            if d.get("found").is_some_and(|v| v == b"FALSE") {
                d.set("found", "TRUE");
                d.set("value", "");
            }
        }),
        When::Always,
    ),
    // names
    fault("name-lost", &[LOOKUP], "loses published names", does(Pmi2Effect::NameLost), When::Always),
    fault(
        "name-own-only",
        &[LOOKUP],
        "shows a name to rank 0 alone",
        does(Pmi2Effect::NameOwnOnly),
        When::Always,
    ),
    fault(
        "name-stays",
        &[GONE],
        "keeps a name that was withdrawn",
        does(Pmi2Effect::NameStays),
        When::Always,
    ),
    fault(
        "name-other-port",
        &[LOOKUP],
        "finds another port",
        ok(C::NameLookup, |d| d.edit("value", |v| v.push(b'0'))),
        When::Always,
    ),
    fault(
        "name-no-port",
        &[LOOKUP],
        "finds a name without a port",
        ok(C::NameLookup, |d| d.remove("value")),
        When::Always,
    ),
    fault(
        "name-miss-is-found",
        &[GONE],
        "finds what nobody has published",
        ok(C::NameLookup, |d| {
            if d.get("found").is_some_and(|v| v == b"FALSE") {
                d.set("found", "TRUE");
                d.set("value", "p");
            }
        }),
        When::Always,
    ),
    fault(
        "name-unpublish-no-answer",
        &[ANSWERED],
        "does not answer name-unpublish",
        ok(C::NameUnpublish, ReplyDraft::silence),
        When::Always,
    ),
    // spawn
    fault("pmi2-spawn-nothing", &[SPAWN], "starts nothing", does(Pmi2Effect::SpawnNothing), When::Always),
    fault(
        "pmi2-spawn-one-too-few",
        &[SPAWN],
        "starts one process too few",
        does(Pmi2Effect::SpawnOneTooFew),
        When::Always,
    ),
    fault(
        "pmi2-spawn-first-program",
        &[SPAWN],
        "starts the first program only",
        does(Pmi2Effect::SpawnFirstProgramOnly),
        When::Always,
    ),
    fault(
        "pmi2-spawn-no-arguments",
        &[SPAWN],
        "drops the arguments",
        does(Pmi2Effect::SpawnNoArguments),
        When::Always,
    ),
    fault(
        "pmi2-spawn-no-preput",
        &["pmi2.common.spawn.preput"],
        "drops what was to be put",
        does(Pmi2Effect::SpawnNoPreput),
        When::Always,
    ),
    fault(
        "pmi2-spawn-no-answer",
        &[ANSWERED],
        "does not answer spawn",
        ok(C::Spawn, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "pmi2-spawn-by-place",
        &[SPAWN],
        "refuses a spawn with a thrid, since it looks for ncmds right behind cmd, and does not echo the thrid",
        ok(C::Spawn, |d| {
            if d.get("thrid").is_some() {
                d.remove("thrid");
                d.set("rc", "10");
            }
        }),
        When::Always,
    ),
    // the end
    fault(
        "pmi2-finalize-refused",
        &["pmi2.common.finalize"],
        "refuses finalize",
        ok(C::Finalize, ReplyDraft::refuse),
        When::Always,
    ),
    fault(
        "pmi2-finalize-no-answer",
        &["pmi2.common.finalize"],
        "does not answer finalize",
        ok(C::Finalize, ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "pmi2-finalize-no-answer-last",
        &["pmi2.common.finalize"],
        "does not answer the last rank's finalize",
        ok(C::Finalize, ReplyDraft::silence),
        When::LastRank,
    ),
    fault(
        "pmi2-finalize-ends-all",
        &["pmi2.common.finalize-alone"],
        "ends the others when one finalizes",
        does(Pmi2Effect::FinalizeEndsGroup),
        When::Always,
    ),
    fault(
        "pmi2-finalize-mute",
        &["pmi2.common.finalize-alone", "pmi2.common.finalize", ANSWERED],
        "answers nobody once one has finalized",
        does(Pmi2Effect::FinalizeStopsServing),
        When::Always,
    ),
    fault("pmi2-abort-ignored", &[ABORT], "ignores abort", does(Pmi2Effect::AbortIgnored), When::Always),
    fault(
        "pmi2-abort-sender-only",
        &[ABORT],
        "ends only who aborts",
        does(Pmi2Effect::AbortSenderOnly),
        When::Always,
    ),
    fault(
        "pmi2-abort-spares-last",
        &[ABORT],
        "spares the last rank",
        does(Pmi2Effect::AbortSparesLast),
        When::Always,
    ),
];

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// Cuts a value at a byte.
fn cut(draft: &mut ReplyDraft, at: u8) {
    draft.edit("value", |value| {
        let end = value.iter().position(|b| *b == at).unwrap_or(value.len());
        value.truncate(end);
    });
}

/// Lawful by what all servers keep; some of them break the draft.
pub(super) const VARIATIONS: &[Variation] = &[
    vary(
        "length-left",
        "pads the length on the right, as Slurm does",
        every(|d| d.length = Some(Length::Left)),
    ),
    vary("length-zeros", "pads the length with zeros", every(|d| d.length = Some(Length::Zeros))),
    vary(
        "frame-rc-first",
        "has rc behind cmd, as Hydra does since 4.1",
        every(|d| {
            if let Some(at) = d.tuples.iter().position(|(key, _)| key == b"rc") {
                let rc = d.tuples.remove(at);
                d.tuples.insert(1, rc);
            }
        }),
    ),
    vary("keys-reversed", "has all keys but cmd in reverse order", every(|d| d.tuples[1..].reverse())),
    vary("further-keys", "adds a key that the draft does not have", every(|d| d.add("x-vendor", "1"))),
    vary("no-errmsg", "never says why", every(|d| d.remove("errmsg"))),
    vary(
        "negative-codes",
        "has rc=-1 for errors",
        Effect::FrameReply(FrameReplies(None, ReplyKind::Fail), |d| d.set("rc", "-1")),
    ),
    vary("miss-by-rc", "answers a miss by rc=1 and no flag, as Hydra does since 4.1", every(miss_by_rc)),
    vary("flag-for-found", "has flag as the draft does", every(|d| d.rename("found", "flag"))),
    vary(
        "booleans-small",
        "writes true and false",
        every(|d| {
            for key in ["found", "debugged", "pmiverbose"] {
                d.edit(key, |v| v.make_ascii_lowercase());
            }
        }),
    ),
    vary(
        "pmiverbose-a-number",
        "has pmiverbose=0, as Hydra does since 4.1",
        ok(C::Fullinit, |d| d.set("pmiverbose", "0")),
    ),
    vary("appnum-minus-one", "does not know appnum, as Slurm", ok(C::Fullinit, |d| d.set("appnum", "-1"))),
    vary(
        "short-fullinit",
        "tells rank, size and appnum alone, as Hydra does since 4.1",
        ok(C::Fullinit, |d| {
            for key in ["pmi-version", "pmi-subversion", "debugged"] {
                d.remove(key);
            }
        }),
    ),
    vary(
        "miss-with-empty-value",
        "answers a miss with found=FALSE and an empty value",
        every(|d| {
            if d.get("found").is_some_and(|found| found == b"FALSE") && d.get("value").is_none() {
                d.add("value", "");
            }
        }),
    ),
    vary(
        "port-for-value",
        "answers a lookup with port, as Hydra",
        ok(C::NameLookup, |d| d.rename("value", "port")),
    ),
    vary(
        "short-spawn-response",
        "answers a spawn by rc alone, as Hydra does since 4.1",
        ok(C::Spawn, |d| d.tuples.retain(|(key, _)| matches!(&key[..], b"cmd" | b"rc" | b"thrid"))),
    ),
    vary("no-thrid", "never echoes thrid, as Slurm", every(|d| d.remove("thrid"))),
    vary(
        "header-apart",
        "writes the length and the body apart, as Hydra",
        Effect::FrameWrites(FrameReplies(None, ReplyKind::Any), |bytes| {
            let (header, body) = bytes.split_at(bytes.len().min(6));
            vec![header.to_vec(), body.to_vec()]
        }),
    ),
    vary(
        "frames-bytewise",
        "writes every byte by itself",
        Effect::FrameWrites(FrameReplies(None, ReplyKind::Any), |bytes| {
            bytes.chunks(1).map(<[u8]>::to_vec).collect()
        }),
    ),
    vary(
        "fence-holds-gets",
        "lets processes out of a fence at once and holds back their gets, as Hydra",
        does(Pmi2Effect::FenceAtOnceAndGetsWait),
    ),
    vary(
        "second-put-replaces",
        "lets a second put of a key replace the first",
        does(Pmi2Effect::PutReplaces),
    ),
];

fn miss_by_rc(draft: &mut ReplyDraft) {
    if draft.get("found").is_some_and(|found| found == b"FALSE") {
        draft.remove("found");
        draft.set("rc", "1");
    }
}
