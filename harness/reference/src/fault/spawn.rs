//! Spawn.

use pmi_wire::{Operation as Op, SpawnRequest};

use super::row::{Fault, fault};
use crate::behaviour::{Effect, Replies, ReplyDraft, ReplyKind, SpawnEffect, When};

const OK: Replies = Replies(Some(Op::Spawn), ReplyKind::Ok);
const GROUP: &str = "rfc13.spawn.new-group";
const COMMAND: &str = "rfc13.spawn.command";
const PREPUT: &str = "rfc13.spawn.preput";
const COUNTS: &str = "rfc13.spawn.counts-zero-or-more";

/// Changes the arguments of each program, the values only.
fn args(request: &mut SpawnRequest, change: impl Fn(&mut Vec<Vec<u8>>)) {
    for program in &mut request.programs {
        let mut values: Vec<_> = program.args.drain(..).map(|(_, v)| v).collect();
        change(&mut values);
        program.args = (0..).zip(values).collect();
    }
}

fn preput(request: &mut SpawnRequest, change: impl Fn(&mut Vec<(Vec<u8>, Vec<u8>)>)) {
    for program in &mut request.programs {
        change(&mut program.preput);
    }
}

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "spawn-no-answer",
        &["rfc13.abnf.c-spawn", "rfc13.wire.lock-step"],
        "spawn is not answered",
        Effect::Reply(Replies(Some(Op::Spawn), ReplyKind::Any), ReplyDraft::silence),
        When::Always,
    ),
    fault(
        "spawn-second-no-answer",
        &["rfc13.abnf.c-spawn", "rfc13.wire.lock-step"],
        "the second spawn is not answered",
        Effect::Reply(Replies(Some(Op::Spawn), ReplyKind::Any), ReplyDraft::silence),
        When::Nth(2),
    ),
    fault(
        "spawn-second-refused",
        &["rfc13.abnf.c-spawn", GROUP],
        "the second spawn is refused",
        Effect::Spawn(SpawnEffect::Refused),
        When::Nth(2),
    ),
    fault(
        "spawn-by-others-refused",
        &["rfc13.abnf.c-spawn", GROUP],
        "only rank 0 can spawn",
        Effect::Spawn(SpawnEffect::Refused),
        When::NotFirst,
    ),
    fault(
        "spawn-by-children-refused",
        &["rfc13.abnf.c-spawn", GROUP],
        "spawned processes cannot spawn",
        Effect::Spawn(SpawnEffect::Refused),
        When::Spawned,
    ),
    fault(
        "spawn-starts-nothing",
        &[GROUP],
        "spawn succeeds and starts nothing",
        Effect::Spawn(SpawnEffect::NeverStarts),
        When::Always,
    ),
    fault(
        "spawn-one-less",
        &[GROUP, "rfc13.spawn.maxprocs"],
        "the last process is not started",
        Effect::SpawnStart(|r| {
            if let Some(p) = r.programs.last_mut() {
                p.nprocs -= 1
            }
        }),
        When::Always,
    ),
    fault(
        "spawn-one-more",
        &["rfc13.spawn.maxprocs"],
        "one process more is started",
        Effect::SpawnRequest(|r| {
            if let Some(p) = r.programs.last_mut() {
                p.nprocs += 1
            }
        }),
        When::Always,
    ),
    fault(
        "spawn-one-only",
        &[GROUP, "rfc13.spawn.maxprocs"],
        "one process is started for each command and the size says otherwise",
        Effect::SpawnStart(|r| r.programs.iter_mut().for_each(|p| p.nprocs = 1)),
        When::Always,
    ),
    fault(
        "spawn-first-program-only",
        &[GROUP, "rfc13.spawn.one-response", "rfc13.abnf.c-spawn"],
        "only the first command is started",
        Effect::SpawnStart(|r| r.programs.truncate(1)),
        When::Always,
    ),
    fault(
        "spawn-answer-per-program",
        &["rfc13.spawn.one-response", "rfc13.wire.lock-step"],
        "each command of a spawn is answered",
        Effect::Spawn(SpawnEffect::AnswerPerProgram),
        When::Always,
    ),
    fault(
        "spawn-answered-twice",
        &["rfc13.wire.lock-step", "rfc13.spawn.one-response"],
        "a spawn is answered when it begins and when it is done",
        Effect::Spawn(SpawnEffect::EarlyAnswer),
        When::Always,
    ),
    fault(
        "spawn-no-arguments",
        &[COMMAND],
        "arguments are not passed on",
        Effect::SpawnStart(|r| args(r, Vec::clear)),
        When::Always,
    ),
    fault(
        "spawn-last-argument-lost",
        &[COMMAND],
        "the last argument is lost",
        Effect::SpawnStart(|r| args(r, |a| drop(a.pop()))),
        When::Always,
    ),
    fault(
        "spawn-first-argument-lost",
        &[COMMAND],
        "argument 0 is taken for the name of the program",
        Effect::SpawnStart(|r| args(r, |a| drop(a.drain(..1.min(a.len()))))),
        When::Always,
    ),
    fault(
        "spawn-arguments-reversed",
        &[COMMAND],
        "arguments are passed on backwards",
        Effect::SpawnStart(|r| args(r, |a| a.reverse())),
        When::Always,
    ),
    fault(
        "spawn-arguments-sorted",
        &[COMMAND, COUNTS],
        "arguments are put in order as text, 10 before 2",
        Effect::SpawnStart(|r| {
            args(r, |a| {
                let mut numbered: Vec<_> = a.drain(..).enumerate().map(|(i, v)| (i.to_string(), v)).collect();
                numbered.sort();
                a.extend(numbered.into_iter().map(|(_, v)| v));
            })
        }),
        When::Always,
    ),
    fault(
        "spawn-ten-arguments",
        &[COMMAND, COUNTS],
        "only ten arguments are passed on",
        Effect::SpawnStart(|r| args(r, |a| a.truncate(10))),
        When::Always,
    ),
    fault(
        "spawn-arguments-split",
        &[COMMAND],
        "an argument is cut at its first blank",
        Effect::SpawnStart(|r| {
            args(r, |a| {
                for v in a.iter_mut() {
                    let end = v.iter().position(|b| *b == b' ').unwrap_or(v.len());
                    v.truncate(end);
                }
            })
        }),
        When::Always,
    ),
    fault(
        "spawn-arguments-cut-at-equals",
        &[COMMAND],
        "an argument is cut at its first equals sign",
        Effect::SpawnStart(|r| {
            args(r, |a| {
                for v in a.iter_mut() {
                    let end = v.iter().position(|b| *b == b'=').unwrap_or(v.len());
                    v.truncate(end);
                }
            })
        }),
        When::Always,
    ),
    fault(
        "spawn-arguments-by-shell",
        &[COMMAND],
        "a shell takes quotes and backslashes from arguments",
        Effect::SpawnStart(|r| args(r, |a| a.iter_mut().for_each(|v| v.retain(|b| !b"\"'\\$".contains(b))))),
        When::Always,
    ),
    fault(
        "spawn-extra-argument",
        &[COMMAND, COUNTS],
        "an argument nobody gave is added",
        Effect::SpawnStart(|r| args(r, |a| a.push(b"--spawned".to_vec()))),
        When::Always,
    ),
    fault(
        "spawn-arguments-of-other-program",
        &[COMMAND],
        "all commands get the first one's arguments",
        Effect::SpawnStart(|r| {
            let first = r.programs[0].args.clone();
            r.programs.iter_mut().for_each(|p| p.args = first.clone());
        }),
        When::Always,
    ),
    fault(
        "spawn-preput-lost",
        &[PREPUT],
        "preput pairs are lost",
        Effect::Spawn(SpawnEffect::NoPreput),
        When::Always,
    ),
    fault(
        "spawn-preput-at-barrier",
        &[PREPUT],
        "preput pairs are visible after a barrier",
        Effect::Spawn(SpawnEffect::PreputAtBarrier),
        When::Always,
    ),
    fault(
        "spawn-preput-first-only",
        &[PREPUT, COUNTS],
        "only the first preput pair is kept",
        Effect::SpawnRequest(|r| preput(r, |p| p.truncate(1))),
        When::Always,
    ),
    fault(
        "spawn-preput-swapped",
        &[PREPUT, "rfc13.get.value"],
        "keys and values of preput pairs are exchanged",
        Effect::SpawnRequest(|r| preput(r, |p| p.iter_mut().for_each(|(k, v)| std::mem::swap(k, v)))),
        When::Always,
    ),
    fault(
        "spawn-preput-cut-at-blank",
        &[PREPUT, "rfc13.get.value"],
        "a preput value ends at its first blank",
        Effect::SpawnRequest(|r| {
            preput(r, |p| {
                for (_, v) in p.iter_mut() {
                    let end = v.iter().position(|b| *b == b' ').unwrap_or(v.len());
                    v.truncate(end);
                }
            })
        }),
        When::Always,
    ),
    fault(
        "spawn-preput-cut-at-64",
        &[PREPUT, "rfc13.get.value"],
        "a preput value is cut after 64 bytes",
        Effect::SpawnRequest(|r| preput(r, |p| p.iter_mut().for_each(|(_, v)| v.truncate(64)))),
        When::Always,
    ),
    fault(
        "spawn-preput-into-parent",
        &[GROUP, "rfc13.error.rc-nonzero", PREPUT],
        "preput pairs go into the parent's KVS too",
        Effect::Spawn(SpawnEffect::PreputIntoParent),
        When::Always,
    ),
    fault(
        "spawn-kvs-copied",
        &[GROUP, "rfc13.error.rc-nonzero"],
        "the children's KVS begins as a copy of the parents'",
        Effect::Spawn(SpawnEffect::CopiesParentKvs),
        When::Always,
    ),
    fault(
        "spawn-errcodes-empty",
        &["rfc13.abnf.s-spawn", "rfc13.abnf.intlist"],
        "errcodes is empty",
        Effect::Reply(OK, |d| d.set("errcodes", "")),
        When::Always,
    ),
    fault(
        "spawn-errcodes-trailing-comma",
        &["rfc13.abnf.s-spawn", "rfc13.abnf.intlist"],
        "errcodes ends with a comma",
        Effect::Reply(OK, |d| d.edit("errcodes", |v| v.push(b','))),
        When::Always,
    ),
    fault(
        "spawn-errcodes-blanks",
        &["rfc13.abnf.s-spawn", "rfc13.abnf.intlist", "rfc13.wire.tuples"],
        "errcodes are parted by blanks",
        Effect::Reply(OK, |d| d.set("errcodes", "0 0")),
        When::Always,
    ),
    fault(
        "spawn-errcodes-text",
        &["rfc13.abnf.s-spawn", "rfc13.abnf.intlist"],
        "errcodes is ok",
        Effect::Reply(OK, |d| d.set("errcodes", "ok")),
        When::Always,
    ),
    fault(
        "spawn-rc-twice",
        &["rfc13.abnf.s-spawn"],
        "spawn_result has two rc",
        Effect::Reply(OK, |d| d.insert("rc", "-1")),
        When::Always,
    ),
    fault(
        "spawn-rc-text",
        &["rfc13.abnf.s-spawn", "rfc13.abnf.int"],
        "spawn_result has rc=started",
        Effect::Reply(OK, |d| d.set("rc", "started")),
        When::Always,
    ),
    fault(
        "spawn-answered-as-spawn",
        &["rfc13.abnf.pmi1"],
        "spawn is answered by spawn-response, as in PMI-2",
        Effect::Reply(OK, |d| d.set("cmd", "spawn-response")),
        When::Always,
    ),
    fault(
        "spawn-answer-to-all",
        &["rfc13.wire.lock-step", "rfc13.wire.response-matches-request"],
        "spawn is answered to the rank behind",
        Effect::Reply(OK, |d| d.to.rank = (d.to.rank + 1) % d.size),
        When::Ranks(2),
    ),
    fault(
        "spawn-needs-arguments",
        &["rfc13.abnf.c-spawn", COUNTS],
        "a spawn without arguments is refused",
        Effect::SpawnRequest(|r| {
            if r.programs.iter().all(|p| p.args.is_empty()) {
                r.programs.clear()
            }
        }),
        When::Always,
    ),
    fault(
        "spawn-refused-on-other-nodes",
        &["rfc13.abnf.c-spawn", GROUP],
        "only ranks of the first node can spawn",
        Effect::Spawn(SpawnEffect::Refused),
        When::OtherNodes,
    ),
    fault(
        "spawn-refused-behind-a-refusal",
        &["rfc13.abnf.c-spawn", GROUP],
        "a process whose last request was refused cannot spawn",
        Effect::Spawn(SpawnEffect::Refused),
        When::Refused,
    ),
    fault(
        "spawn-twelfth-without-preput",
        &[PREPUT],
        "the 12th group has no preput values",
        Effect::Spawn(SpawnEffect::NoPreput),
        When::Nth(12),
    ),
    fault(
        "spawn-preput-value-cut-at-semicolon",
        &[PREPUT, "rfc13.get.value"],
        "a preput value ends at its first semicolon",
        Effect::SpawnRequest(|r| {
            preput(r, |pairs| {
                for (_, value) in pairs {
                    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
                    value.truncate(end);
                }
            });
        }),
        When::Always,
    ),
    fault(
        "spawn-argument-trimmed",
        &[COMMAND],
        "blanks at the ends of arguments go",
        Effect::SpawnRequest(|r| args(r, |all| all.iter_mut().for_each(|a| *a = a.trim_ascii().to_vec()))),
        When::Always,
    ),
    fault(
        "spawn-argument-cut-at-1024",
        &[COMMAND],
        "an argument is cut after 1024 bytes",
        Effect::SpawnRequest(|r| args(r, |all| all.iter_mut().for_each(|a| a.truncate(1024)))),
        When::Always,
    ),
    fault(
        "spawn-count-octal",
        &["rfc13.abnf.uint", "rfc13.spawn.maxprocs", GROUP],
        "a count of processes with a zero in front is read as octal",
        Effect::Hear(|line| {
            Some(match line {
                b"nprocs=010" => b"nprocs=8".to_vec(),
                other => other.to_vec(),
            })
        }),
        When::Always,
    ),
];
