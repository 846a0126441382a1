//! What clients may do, though few of them do.

use pmi_wire::Operation as Op;

use super::row::{ClientVariation, LINES};
use super::session::{Act, SPAWN, SPAWN_TWO, Session, write};
use crate::Config;

/// Those of programs that speak PMI-1.
pub(super) const VARIATIONS: &[ClientVariation] = &[
    LINES.vary("client-get-before-put", "asks for a key before anybody has put it", |s| {
        s.before(Op::Put, "cmd=get kvsname={kvs} key=card-0\n")
    }),
    LINES.vary("client-get-own", "reads its own key back before the barrier", |s| {
        s.after(Op::Put, "cmd=get kvsname={kvs} key=card-0\n")
    }),
    LINES.vary("client-many-barriers", "enters a hundred barriers", |s| {
        let at = s.at(Op::Get);
        let round = [0, 1].map(|rank| write(0, rank, None, "cmd=barrier_in\n"));
        s.steps.splice(at..at, std::iter::repeat_n(round, 100).flatten());
    }),
    LINES.vary("client-never-gets", "puts and never gets", |s| s.without(Op::Get)),
    LINES.vary("client-never-puts", "gets and never puts", |s| s.without(Op::Put)),
    LINES.vary("client-never-asks-limits", "never asks for the limits", |s| s.without(Op::Maxes)),
    LINES.vary("client-longest-key", "puts and gets the longest key", |s| {
        let key = "k".repeat(Config::default().maxes.keylen_max as usize - 1);
        s.replace(Op::Put, "card-0", &key);
        s.after(Op::Get, &format!("cmd=get kvsname={{kvs}} key={key}\n"));
    }),
    LINES.vary("client-longest-value", "puts the longest value", |s| {
        let rest = "//10.0.0.1:4711".len();
        s.replace(Op::Put, "tcp:", &"v".repeat(Config::default().maxes.vallen_max as usize - 1 - rest));
    }),
    LINES.vary("client-value-of-all-characters", "puts a value of every visible character", |s| {
        let value: String = ('!'..='~').collect();
        s.replace(Op::Put, "tcp://10.0.0.1:4711", &value);
    }),
    LINES.vary("client-value-with-equals", "puts a value with equals signs", |s| {
        s.replace(Op::Put, "tcp:", "a=b==value=")
    }),
    LINES.vary("client-value-with-blanks", "puts a value with blanks and a tab", |s| {
        s.replace(Op::Put, "tcp:", "tcp 1\t2 ")
    }),
    LINES.vary("client-key-of-all-characters", "puts a key of visible characters", |s| {
        let key: String = ('!'..='<').chain('>'..='_').collect();
        s.replace(Op::Put, "card-0", &key);
        s.after(Op::Get, &format!("cmd=get kvsname={{kvs}} key={key}\n"));
    }),
    LINES.vary("client-aborts", "asks for an abort", |s| s.before(Op::Publish, "cmd=abort\n")),
    LINES.vary("client-aborts-with-code", "asks for an abort and adds an exit code", |s| {
        s.before(Op::Publish, "cmd=abort exitcode=7\n")
    }),
    LINES.vary("client-spawns-two-programs", "spawns two programs at once", |s| {
        s.instead(Op::Spawn, SPAWN_TWO);
        // The group has a second process now, which the barrier waits for.
        let at = s.steps.iter().position(|s| s.group == 1 && s.op == Some(Op::Barrier)).unwrap_or(0);
        let lines = ["cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=barrier_in\n", "cmd=finalize\n"];
        let offsets = [at, at + 2, at + 3];
        for (at, line) in offsets.into_iter().zip(lines) {
            s.steps.insert(at, write(1, 1, None, line));
        }
    }),
    LINES.vary("client-spawns-again", "spawns a second group", |s| {
        let at = s.at(Op::Spawn) + 1;
        s.steps.insert(at, write(0, 1, None, SPAWN.replace("{agent}", "/nowhere")));
    }),
    LINES.vary("client-spawns-nothing", "never spawns", Session::childless),
    LINES.vary("client-no-pmi", "does not speak PMI at all", |s| s.steps.retain(|s| s.act == Act::Close)),
    LINES.vary("client-init-only", "says init and finalize", |s| {
        s.childless();
        s.steps.retain(|s| matches!(s.op, None | Some(Op::Init | Op::Finalize)));
    }),
    LINES.vary("client-writes-bytes", "writes each byte by itself", |s| s.piece = 1),
    LINES.vary("client-writes-pieces", "writes seven bytes at a time", |s| s.piece = 7),
    LINES.vary("client-offers-more", "offers version 2.0 and goes on with what is answered", |s| {
        s.replace(Op::Init, "pmi_version=1 pmi_subversion=1", "pmi_version=2 pmi_subversion=0")
    }),
    LINES.vary("client-tries-lower-first", "offers 0.9, is refused, and offers 1.1", |s| {
        s.before(Op::Init, "cmd=init pmi_version=0 pmi_subversion=9\n")
    }),
    LINES.vary("client-asks-twice", "asks for limits and names again and again", |s| {
        s.before(Op::Put, "cmd=get_maxes\n");
        s.before(Op::Put, "cmd=get_my_kvsname\n");
        s.before(Op::Put, "cmd=get_universe_size\n");
    }),
    LINES.vary("client-looks-up-nothing", "looks up and withdraws what nobody has published", |s| {
        s.before(Op::Publish, "cmd=lookup_name service=river\n");
        s.before(Op::Publish, "cmd=unpublish_name service=river\n");
    }),
    LINES.vary("client-port-with-equals", "publishes a port with an equals sign", |s| {
        s.replace(Op::Publish, "tag#0$host", "tag=0$host=n1")
    }),
    LINES.vary("client-leaves-early", "one rank finalizes while the other goes on", |s| {
        let at = s.last(Op::Finalize);
        let step = s.steps.remove(at);
        let to = s.at(Op::Unpublish);
        s.steps.insert(to, step);
    }),
];
