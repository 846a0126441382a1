//! What clients do wrong.

use pmi_wire::Operation as Op;

use super::row::{ClientFault, LINES, Unseen};
use super::session::{Act, SPAWN, SPAWN_TWO, Session, write};
use crate::Config;

/// A key of one byte more than fits.
fn long_key() -> String {
    "k".repeat(Config::default().maxes.keylen_max as usize)
}

/// A value of one byte more than fits.
fn long_value() -> String {
    "v".repeat(Config::default().maxes.vallen_max as usize)
}

const FIRST: &[&str] = &["rfc13.init.first"];
const COMPLETE: &[&str] = &["rfc13.init.complete-before-others"];
const LOCK_STEP: &[&str] = &["rfc13.wire.lock-step"];
const NEWLINE: &[&str] = &["rfc13.wire.newline"];
const TUPLES: &[&str] = &["rfc13.wire.tuples"];
const RESPONSES: &[&str] = &["rfc13.wire.server-sends-responses"];
const PMI1: &[&str] = &["rfc13.abnf.pmi1"];
const EXTRA: &[&str] = &["de-facto.request.extra"];
const WORD: &[&str] = &["rfc13.abnf.word"];
const UINT: &[&str] = &["rfc13.abnf.uint"];
const ONCE: &[&str] = &["rfc13.put.once"];
const LAST: &[&str] = &["rfc13.finalize.last"];
const NAME_USED: &[&str] = &["rfc13.kvs.name-used"];
const PUT_LENGTH: &[&str] = &["rfc13.put.length"];
const C_PUT: &[&str] = &["rfc13.abnf.c-put"];
const C_SPAWN: &[&str] = &["rfc13.abnf.c-spawn"];
const C_FINALIZE: &[&str] = &["rfc13.abnf.c-finalize"];
const COUNTS: &[&str] = &["rfc13.spawn.counts-zero-or-more"];
const INDICES: &[&str] = &["rfc13.spawn.indices"];
const INTERSPERSED: &[&str] = &["rfc13.spawn.not-interspersed"];

/// The same command twice in a message, where the grammar has it alone.
fn doubled(session: &mut Session, op: Op) {
    let cmd = op.request_cmd();
    session.instead(op, format!("cmd={cmd} cmd={cmd}\n"));
}

/// Those of programs that speak PMI-1.
pub(super) const FAULTS: &[ClientFault] = &[
    // ----- init
    LINES.fault("client-maxes-before-init", FIRST, "asks for the limits before init", |s| {
        s.before(Op::Init, "cmd=get_maxes\n")
    }),
    LINES.fault("client-barrier-before-init", FIRST, "enters a barrier before init", |s| {
        s.before(Op::Init, "cmd=barrier_in\n")
    }),
    LINES.fault("client-finalize-before-init", FIRST, "finalizes before init", |s| {
        s.before(Op::Init, "cmd=finalize\n")
    }),
    LINES.fault("client-spawn-before-init", FIRST, "spawns before init", |s| s.before(Op::Init, SPAWN)),
    LINES.fault("client-no-init", FIRST, "never sends init", |s| s.without(Op::Init)),
    LINES.fault("client-init-twice", FIRST, "sends init again", |s| {
        s.before(Op::Universe, "cmd=init pmi_version=1 pmi_subversion=1\n")
    }),
    LINES.fault("client-init-too-low", COMPLETE, "offers 0.9, is refused, and goes on with 1.1", |s| {
        s.replace(Op::Init, "pmi_version=1 pmi_subversion=1", "pmi_version=0 pmi_subversion=9")
    }),
    LINES.fault(
        "client-init-not-awaited",
        COMPLETE,
        "asks for the limits with init, before its answer",
        |s| s.together(Op::Init, "cmd=get_maxes\n"),
    ),
    LINES.fault("client-init-no-version", &["rfc13.abnf.c-init"], "sends init without pmi_version", |s| {
        s.replace(Op::Init, " pmi_version=1", "")
    }),
    LINES.fault(
        "client-init-no-subversion",
        &["rfc13.abnf.c-init"],
        "sends init without pmi_subversion",
        |s| s.replace(Op::Init, " pmi_subversion=1", ""),
    ),
    LINES.fault("client-init-two-versions", &["rfc13.abnf.c-init"], "sends init with two versions", |s| {
        s.replace(Op::Init, " pmi_version=1", " pmi_version=1 pmi_version=2")
    }),
    LINES.fault("client-init-version-dotted", UINT, "sends the version as 1.1", |s| {
        s.replace(Op::Init, "pmi_version=1", "pmi_version=1.1")
    }),
    LINES.fault("client-init-version-negative", UINT, "sends a negative version", |s| {
        s.replace(Op::Init, "pmi_version=1", "pmi_version=-1")
    }),
    // ----- lock-step
    LINES.fault("client-two-at-once", LOCK_STEP, "sends a second request before the answer", |s| {
        s.together(Op::Maxes, "cmd=get_my_kvsname\n")
    }),
    LINES.fault("client-put-not-awaited", LOCK_STEP, "puts twice before an answer", |s| {
        s.together(Op::Put, "cmd=put kvsname={kvs} key=more value=x\n")
    }),
    LINES.fault("client-get-not-awaited", LOCK_STEP, "gets twice before an answer", |s| {
        s.together(Op::Get, "cmd=get kvsname={kvs} key=card-0\n")
    }),
    LINES.fault(
        "client-put-then-barrier-at-once",
        LOCK_STEP,
        "enters a barrier before its put is answered",
        |s| s.together(Op::Put, "cmd=barrier_in\n"),
    ),
    LINES.fault("client-lookup-not-awaited", LOCK_STEP, "looks up twice before an answer", |s| {
        s.together(Op::Lookup, "cmd=lookup_name service=ocean\n")
    }),
    LINES.fault("client-spawn-not-awaited", LOCK_STEP, "goes on before its spawn is answered", |s| {
        s.together(Op::Spawn, "cmd=get_appnum\n")
    }),
    LINES.fault("client-request-in-barrier", LOCK_STEP, "gets a value while it is in the barrier", |s| {
        s.meanwhile(Op::Barrier, "cmd=get kvsname={kvs} key=card-0\n")
    }),
    LINES.fault("client-barrier-twice", LOCK_STEP, "enters the barrier that it is in", |s| {
        s.meanwhile(Op::Barrier, "cmd=barrier_in\n")
    }),
    LINES.fault("client-finalize-in-barrier", LOCK_STEP, "finalizes while it is in the barrier", |s| {
        s.meanwhile(Op::Barrier, "cmd=finalize\n")
    }),
    // ----- wire
    LINES.fault("client-no-newline", NEWLINE, "leaves the newline out, waits and closes", |s| {
        s.replace(Op::Universe, "\n", "")
    }),
    LINES.fault("client-finalize-no-newline", NEWLINE, "leaves the newline out behind finalize", |s| {
        let at = s.last(Op::Finalize);
        s.steps[at].act = Act::Write(b"cmd=finalize".to_vec());
    }),
    LINES.fault("client-crlf", NEWLINE, "ends a message with CR LF", |s| s.replace(Op::Maxes, "\n", "\r\n")),
    LINES.fault("client-nul-for-newline", NEWLINE, "ends a message with NUL instead of newline", |s| {
        s.replace(Op::Appnum, "\n", "\0")
    }),
    LINES.fault("client-nul-before-newline", TUPLES, "writes the string's NUL before the newline", |s| {
        s.replace(Op::Kvsname, "\n", "\0\n")
    }),
    LINES.fault("client-binary", TUPLES, "sends binary junk", |s| {
        s.instead(Op::Universe, [0x16, 0x03, 0x01, 0x02, 0xff, b'\n'])
    }),
    LINES.fault("client-empty-line", TUPLES, "sends an empty line", |s| s.before(Op::Universe, "\n")),
    LINES.fault("client-words", TUPLES, "sends words without a tuple", |s| {
        s.instead(Op::Universe, "get_universe_size\n")
    }),
    LINES.fault("client-length-prefix", TUPLES, "sends PMI-2's length before the message", |s| {
        s.instead(Op::Universe, "    13 cmd=job-getid\n")
    }),
    LINES.fault("client-unknown-command", PMI1, "sends a command that PMI-1 does not have", |s| {
        s.instead(Op::Universe, "cmd=get_my_rank\n")
    }),
    LINES.fault(
        "client-extra-command",
        EXTRA,
        "sends a command that some process managers have beside PMI-1",
        |s| s.instead(Op::Universe, "cmd=get_ranks2hosts\n"),
    ),
    LINES.fault("client-pmi2-command", PMI1, "sends a command of PMI-2", |s| {
        s.instead(Op::Put, "cmd=kvs-put key=card-0 value=x\n")
    }),
    LINES.fault("client-no-command", PMI1, "sends tuples without a command", |s| {
        s.replace(Op::Get, "cmd=get ", "")
    }),
    LINES.fault("client-upper-case-command", PMI1, "sends a command in upper case", |s| {
        s.replace(Op::Appnum, "get_appnum", "GET_APPNUM")
    }),
    LINES.fault("client-sends-maxes", RESPONSES, "sends the limits instead of asking for them", |s| {
        s.instead(Op::Maxes, "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64\n")
    }),
    LINES.fault("client-sends-barrier-out", RESPONSES, "sends barrier_out", |s| {
        s.after(Op::Get, "cmd=barrier_out rc=0\n")
    }),
    LINES.fault("client-echoes-put-result", RESPONSES, "acknowledges the answer to a put by the same", |s| {
        s.after(Op::Put, "cmd=put_result rc=0\n")
    }),
    // ----- requests that stand alone
    LINES.fault("client-maxes-doubled", &["rfc13.abnf.c-maxes"], "names get_maxes twice", |s| {
        doubled(s, Op::Maxes)
    }),
    LINES.fault(
        "client-universe-doubled",
        &["rfc13.abnf.c-universe"],
        "names get_universe_size twice",
        |s| doubled(s, Op::Universe),
    ),
    LINES.fault("client-appnum-doubled", &["rfc13.abnf.c-appnum"], "names get_appnum twice", |s| {
        doubled(s, Op::Appnum)
    }),
    LINES.fault("client-kvsname-doubled", &["rfc13.abnf.c-kvsname"], "names get_my_kvsname twice", |s| {
        doubled(s, Op::Kvsname)
    }),
    LINES.fault("client-barrier-doubled", &["rfc13.abnf.c-barrier"], "names barrier_in twice", |s| {
        doubled(s, Op::Barrier)
    }),
    LINES.fault("client-finalize-doubled", C_FINALIZE, "names finalize twice", |s| doubled(s, Op::Finalize)),
    LINES.fault("client-abort-doubled", &["rfc13.abnf.c-abort"], "names abort twice", |s| {
        s.before(Op::Universe, "cmd=abort cmd=abort\n")
    }),
    LINES.fault(
        "client-abort-bad-exitcode",
        &["rfc13.abnf.c-abort"],
        "aborts with a word for an exit code",
        |s| s.before(Op::Universe, "cmd=abort exitcode=failed\n"),
    ),
    // ----- keyval space
    LINES.fault("client-key-twice", ONCE, "puts a key twice", |s| {
        s.after(Op::Put, "cmd=put kvsname={kvs} key=card-0 value=other\n")
    }),
    LINES.fault("client-pair-twice", ONCE, "puts the same pair twice", |s| {
        s.after(Op::Put, "cmd=put kvsname={kvs} key=card-0 value=tcp://10.0.0.1:4711\n")
    }),
    LINES.fault("client-key-again-after-barrier", ONCE, "puts a key again after the barrier", |s| {
        s.before(Op::Get, "cmd=put kvsname={kvs} key=card-0 value=other\n")
    }),
    LINES.fault("client-key-of-two-ranks", &["rfc13.put.unique"], "two ranks put the same key", |s| {
        s.replace(Op::Put, "card-0", "card-1")
    }),
    LINES.fault(
        "client-key-of-two-ranks-later",
        &["rfc13.put.unique"],
        "puts another's key after the barrier",
        |s| s.after(Op::Get, "cmd=put kvsname={kvs} key=card-1 value=other\n"),
    ),
    LINES.fault("client-key-too-long", PUT_LENGTH, "puts a key with no room for its NUL", |s| {
        s.replace(Op::Put, "card-0", &long_key())
    }),
    LINES.fault("client-value-too-long", PUT_LENGTH, "puts a value with no room for its NUL", |s| {
        s.replace(Op::Put, "tcp:", &long_value())
    }),
    LINES.fault(
        "client-get-key-too-long",
        &["rfc13.get.key-length"],
        "gets a key with no room for its NUL",
        |s| s.replace(Op::Get, "card-1", &long_key()),
    ),
    LINES.fault("client-put-wrong-kvsname", NAME_USED, "puts into a space of its own naming", |s| {
        s.replace(Op::Put, "{kvs}", "kvs_0")
    }),
    LINES.fault("client-get-wrong-kvsname", NAME_USED, "gets from a space of its own naming", |s| {
        s.replace(Op::Get, "{kvs}", "{kvs}-0")
    }),
    LINES.fault(
        "client-put-into-childs-kvs",
        NAME_USED,
        "puts into the space of the group it spawned",
        |s| {
            let at = s.last(Op::Universe);
            s.steps[at] = write(0, 0, None, "cmd=put kvsname={child} key=card-9 value=x\n");
        },
    ),
    LINES.fault(
        "client-get-from-childs-kvs",
        NAME_USED,
        "gets from the space of the group it spawned",
        |s| {
            let at = s.last(Op::Universe);
            s.steps[at] = write(0, 0, None, "cmd=get kvsname={child} key=pre0\n");
        },
    ),
    LINES.fault("client-put-empty-kvsname", WORD, "puts with an empty kvsname", |s| {
        s.replace(Op::Put, "{kvs}", "")
    }),
    LINES.fault("client-get-empty-kvsname", WORD, "gets with an empty kvsname", |s| {
        s.replace(Op::Get, "{kvs}", "")
    }),
    LINES.fault("client-put-empty-key", WORD, "puts an empty key", |s| s.replace(Op::Put, "card-0", "")),
    LINES.fault("client-get-empty-key", WORD, "gets an empty key", |s| s.replace(Op::Get, "card-1", "")),
    LINES.fault("client-key-with-equals", WORD, "puts a key with an equals sign", |s| {
        s.replace(Op::Put, "card-0", "card=0")
    }),
    LINES.fault("client-key-with-blank", TUPLES, "puts a key with a blank", |s| {
        s.replace(Op::Put, "card-0", "card 0")
    }),
    LINES.fault("client-put-no-kvsname", C_PUT, "puts without kvsname", |s| {
        s.replace(Op::Put, " kvsname={kvs}", "")
    }),
    LINES.fault("client-put-no-key", C_PUT, "puts without a key", |s| s.replace(Op::Put, " key=card-0", "")),
    LINES.fault("client-put-no-value", C_PUT, "puts without a value", |s| {
        s.replace(Op::Put, " value=tcp://10.0.0.1:4711", "")
    }),
    LINES.fault("client-put-two-keys", C_PUT, "puts two keys in a message", |s| {
        s.replace(Op::Put, " key=card-0", " key=card-0 key=card-00")
    }),
    LINES.fault("client-value-utf8", &["rfc13.abnf.string"], "puts a value with letters beyond ASCII", |s| {
        s.replace(Op::Put, "tcp:", "K\u{f6}ln:")
    }),
    LINES.fault("client-value-binary", &["rfc13.abnf.string"], "puts raw bytes of an address", |s| {
        s.replace(Op::Put, "tcp:", "\u{1}\u{7f}")
    }),
    LINES.fault("client-get-no-kvsname", &["rfc13.abnf.c-get"], "gets without kvsname", |s| {
        s.replace(Op::Get, " kvsname={kvs}", "")
    }),
    LINES.fault("client-get-no-key", &["rfc13.abnf.c-get"], "gets without a key", |s| {
        s.replace(Op::Get, " key=card-1", "")
    }),
    // ----- names
    LINES.fault("client-publish-no-port", &["rfc13.abnf.c-publish"], "publishes without a port", |s| {
        s.replace(Op::Publish, " port=tag#0$host", "")
    }),
    LINES.fault("client-publish-empty-port", &["rfc13.abnf.c-publish"], "publishes an empty port", |s| {
        s.replace(Op::Publish, "tag#0$host", "")
    }),
    LINES.fault("client-publish-no-service", &["rfc13.abnf.c-publish"], "publishes without a service", |s| {
        s.replace(Op::Publish, " service=ocean", "")
    }),
    LINES.fault("client-publish-service-with-equals", WORD, "publishes a service with an equals sign", |s| {
        s.replace(Op::Publish, "ocean", "ocean=1")
    }),
    LINES.fault("client-lookup-no-service", &["rfc13.abnf.c-lookup"], "looks up without a service", |s| {
        s.replace(Op::Lookup, " service=ocean", "")
    }),
    LINES.fault("client-lookup-empty-service", WORD, "looks up an empty service", |s| {
        s.replace(Op::Lookup, "ocean", "")
    }),
    LINES.fault(
        "client-unpublish-no-service",
        &["rfc13.abnf.c-unpublish"],
        "withdraws without a service",
        |s| s.replace(Op::Unpublish, " service=ocean", ""),
    ),
    LINES.fault(
        "client-unpublish-two-services",
        &["rfc13.abnf.c-unpublish"],
        "withdraws two services at once",
        |s| s.replace(Op::Unpublish, "\n", " service=sea\n"),
    ),
    // ----- spawn
    LINES.fault("client-spawn-argcnt-high", COUNTS, "says three arguments and sends two", |s| {
        s.replace(Op::Spawn, "argcnt=2", "argcnt=3")
    }),
    LINES.fault("client-spawn-argcnt-low", COUNTS, "says no arguments and sends two", |s| {
        s.replace(Op::Spawn, "argcnt=2", "argcnt=0")
    }),
    LINES.fault("client-spawn-preput-count", COUNTS, "says one preput element and sends two", |s| {
        s.replace(Op::Spawn, "preput_num=2", "preput_num=1")
    }),
    LINES.fault("client-spawn-info-count", COUNTS, "says two info elements and sends one", |s| {
        s.replace(Op::Spawn, "info_num=1", "info_num=2")
    }),
    LINES.fault("client-spawn-preput-gap", INDICES, "leaves a gap in the preput indices", |s| {
        s.replace(Op::Spawn, "preput_key_1", "preput_key_2");
        s.replace(Op::Spawn, "preput_val_1", "preput_val_2");
    }),
    LINES.fault("client-spawn-info-from-1", INDICES, "numbers info elements from 1", |s| {
        s.replace(Op::Spawn, "info_key_0", "info_key_1");
        s.replace(Op::Spawn, "info_val_0", "info_val_1");
    }),
    LINES.fault("client-spawn-preput-from-1", INDICES, "numbers preput elements from 1", |s| {
        for (from, to) in [("_1", "_2"), ("_1", "_2"), ("_0", "_1"), ("_0", "_1")] {
            s.replace(Op::Spawn, &format!("preput_key{from}"), &format!("preput_key{to}"));
            s.replace(Op::Spawn, &format!("preput_val{from}"), &format!("preput_val{to}"));
        }
    }),
    LINES.fault("client-spawn-args-from-2", &["rfc13.spawn.arg-indices"], "numbers arguments from 2", |s| {
        s.replace(Op::Spawn, "arg1=", "arg3=");
        s.replace(Op::Spawn, "arg0=", "arg2=");
    }),
    LINES.fault("client-spawn-arg-gap", &["rfc13.spawn.arg-indices"], "leaves a gap in the arguments", |s| {
        s.replace(Op::Spawn, "arg1=", "arg2=")
    }),
    LINES.fault("client-spawn-arg-two-signs", &["rfc13.abnf.int"], "numbers an argument +-1", |s| {
        s.replace(Op::Spawn, "arg1=", "arg+-1=")
    }),
    LINES.fault("client-spawn-nprocs-word", UINT, "wants a word of processes", |s| {
        s.replace(Op::Spawn, "nprocs=1", "nprocs=one")
    }),
    LINES.fault("client-spawn-nprocs-negative", UINT, "wants -1 processes", |s| {
        s.replace(Op::Spawn, "nprocs=1", "nprocs=-1")
    }),
    LINES.fault("client-spawn-no-nprocs", C_SPAWN, "does not say how many processes", |s| {
        s.replace(Op::Spawn, "nprocs=1\n", "")
    }),
    LINES.fault("client-spawn-no-execname", C_SPAWN, "does not say which program", |s| {
        s.replace(Op::Spawn, "execname={agent}\n", "")
    }),
    LINES.fault("client-spawn-no-argcnt", C_SPAWN, "sends arguments without their count", |s| {
        s.replace(Op::Spawn, "argcnt=2\n", "")
    }),
    LINES.fault("client-spawn-two-nprocs", C_SPAWN, "says twice how many processes", |s| {
        s.replace(Op::Spawn, "nprocs=1\n", "nprocs=1\nnprocs=1\n")
    }),
    LINES.fault("client-spawn-no-endcmd", C_SPAWN, "does not end its spawn, waits and closes", |s| {
        s.replace(Op::Spawn, "endcmd\n", "")
    }),
    LINES.fault("client-spawn-so-far-0", C_SPAWN, "counts its programs from 0", |s| {
        s.replace(Op::Spawn, "spawnssofar=1", "spawnssofar=0")
    }),
    LINES.fault("client-spawn-so-far-ahead", C_SPAWN, "begins with its second program", |s| {
        s.replace(Op::Spawn, "spawnssofar=1", "spawnssofar=2")
    }),
    LINES.fault("client-spawn-total-changes", C_SPAWN, "says another total with the second program", |s| {
        s.instead(Op::Spawn, SPAWN_TWO.replace("totspawns=2\nspawnssofar=2", "totspawns=3\nspawnssofar=2"))
    }),
    LINES.fault("client-spawn-preput-key-blank", WORD, "spawns with a preput key of two words", |s| {
        s.replace(Op::Spawn, "preput_key_0=pre0", "preput_key_0=pre 0")
    }),
    LINES.fault("client-spawn-interspersed", INTERSPERSED, "asks for something else within a spawn", |s| {
        s.replace(Op::Spawn, "argcnt=2\n", "cmd=get_appnum\nargcnt=2\n")
    }),
    LINES.fault("client-spawn-within-spawn", INTERSPERSED, "begins a spawn within a spawn", |s| {
        s.replace(Op::Spawn, "argcnt=2\n", "mcmd=spawn\nargcnt=2\n")
    }),
    LINES.fault(
        "client-spawn-interspersed-between",
        INTERSPERSED,
        "asks for something between two programs",
        |s| s.instead(Op::Spawn, SPAWN_TWO.replacen("endcmd\n", "endcmd\ncmd=get_appnum\n", 1)),
    ),
    // ----- finalize
    LINES.fault("client-no-finalize", C_FINALIZE, "closes without finalize", |s| s.without(Op::Finalize)),
    LINES.fault("client-put-after-finalize", LAST, "puts after its own finalize", |s| {
        let at = s.last(Op::Finalize);
        s.steps.insert(at + 1, write(0, 1, None, "cmd=put kvsname={kvs} key=late value=x\n"));
    }),
    LINES.fault("client-finalize-twice", LAST, "finalizes twice", |s| {
        let at = s.last(Op::Finalize);
        s.steps.insert(at + 1, write(0, 1, None, "cmd=finalize\n"));
    }),
    LINES.fault("client-init-after-finalize", LAST, "begins again after finalize", |s| {
        let at = s.last(Op::Finalize);
        s.steps.insert(at + 1, write(0, 1, None, "cmd=init pmi_version=1 pmi_subversion=1\n"));
    }),
    LINES.fault(
        "client-request-with-finalize",
        LAST,
        "sends a request with finalize, before its answer",
        |s| {
            let at = s.last(Op::Finalize);
            s.steps[at].act = Act::Write(b"cmd=finalize\ncmd=get_appnum\n".to_vec());
        },
    ),
    // ----- protocol errors of the server
    LINES.fault(
        "client-goes-on-after-junk",
        &["rfc13.error.close"],
        "goes on after an answer that is no message",
        |s| s.against("words-not-tuples"),
    ),
    LINES.fault(
        "client-stays-after-junk",
        &["rfc13.error.abort"],
        "finalizes after an answer that is no message",
        |s| {
            s.against("words-not-tuples");
            let at = s.at(Op::Get) + 1;
            s.steps.truncate(at);
            s.steps.push(write(0, 0, None, "cmd=finalize\n"));
        },
    ),
];

/// Requirements for clients that no script breaks.
pub const UNSEEN: &[Unseen] = &[
    Unseen {
        id: "rfc13.env.pmi-fd",
        reason: "a process that uses another descriptor than PMI_FD says nothing on the wire at all",
    },
    Unseen {
        id: "rfc13.wire.client-sends-requests",
        reason: "only a server can break it, by a request of its own; see rfc13.wire.server-sends-responses for the client",
    },
    Unseen { id: "rfc13.init.highest", reason: "what versions a client knows is its own knowledge" },
    Unseen {
        id: "rfc13.init.highest-mutual",
        reason: "the server picks the version; a client that knows more than it offers does not show it",
    },
    Unseen { id: "rfc13.put.visible-after-barrier", reason: NEEDS },
    Unseen { id: "pmi2.common.fence.visible", reason: NEEDS },
    Unseen { id: "rfc13.abnf.intlist", reason: "no request has a list of integers" },
    Unseen { id: "singleton.client.answers", reason: SINGLETON },
    Unseen { id: "singleton.client.arguments", reason: SINGLETON },
    Unseen { id: "singleton.client.once", reason: SINGLETON },
];

/// Programs of our tests break these.
const NEEDS: &str = "a script needs no value, and does not fail where there is none";

/// Programs of our tests break these.
const SINGLETON: &str = "it is broken before PMI begins, by how a program starts its process manager, which no session of this table does";
