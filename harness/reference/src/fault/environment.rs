//! The environment of processes and the descriptor that they get.

use super::row::{Fault, fault};
use crate::behaviour::{Circumstances, Effect, When};
use pmi_wire::port::Greeting;
use pmi_wire::singleton::Info;

type Env = Vec<(&'static str, String)>;

fn set(env: &mut Env, name: &'static str, value: impl ToString) {
    env.retain(|(n, _)| *n != name);
    env.push((name, value.to_string()));
}

fn unset(env: &mut Env, name: &str) {
    env.retain(|(n, _)| *n != name);
}

fn node_of(process: &Circumstances) -> u32 {
    pmi_wire::place(process.size, process.nodes).get(process.rank as usize).copied().unwrap_or(0)
}

pub(super) const FAULTS: &[Fault] = &[
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
        "port-without-port",
        &["pmi-port.environment"],
        "PMI_PORT has a host and no port",
        Effect::Env(|e, _| {
            if e.iter().any(|(name, _)| *name == "PMI_PORT") {
                set(e, "PMI_PORT", "127.0.0.1");
            }
        }),
        When::Always,
    ),
    fault(
        "port-without-id",
        &["pmi-port.environment"],
        "PMI_ID is missing where there is PMI_PORT",
        Effect::Env(|e, _| unset(e, "PMI_ID")),
        When::Always,
    ),
    fault(
        "initack-unanswered",
        &["pmi-port.answered"],
        "initack is not answered",
        Effect::Greeting(|told, _| told.clear()),
        When::Always,
    ),
    fault(
        "initack-in-one-line",
        &["pmi-port.lines"],
        "the answer to initack is its first line alone",
        Effect::Greeting(|told, _| {
            told.truncate(told.iter().position(|b| *b == b'\n').map_or(0, |end| end + 1))
        }),
        When::Always,
    ),
    fault(
        "initack-rank-first",
        &["pmi-port.lines"],
        "the rank comes before the size in the answer to initack",
        Effect::Greeting(|told, s| {
            *told =
                format!("cmd=initack\ncmd=set rank={}\ncmd=set size={}\ncmd=set debug=0\n", s.rank, s.size)
                    .into();
        }),
        When::Always,
    ),
    fault(
        "initack-size-one-more",
        &["pmi-port.size"],
        "the size in the answer to initack is one too large",
        Effect::Greeting(|told, s| *told = Greeting { size: s.size + 1, rank: s.rank }.lines(false).into()),
        When::Always,
    ),
    fault(
        "initack-rank-zero-always",
        &["pmi-port.rank"],
        "every process is told that it is rank 0",
        Effect::Greeting(|told, s| *told = Greeting { size: s.size, rank: 0 }.lines(false).into()),
        When::Always,
    ),
    fault(
        "initack-rank-of-the-job-for-children",
        &["pmi-port.rank"],
        "a spawned process is told its number in the job for its rank",
        Effect::Greeting(|told, s| *told = Greeting { size: s.size, rank: s.rank + 1 }.lines(false).into()),
        When::Spawned,
    ),
    fault(
        "singinit-silent",
        &["singleton.connects"],
        "the process manager connects to a singleton and says nothing",
        Effect::Singinit(|says| says.asks.clear()),
        When::Always,
    ),
    fault(
        "singinit-wants-authentication",
        &["singleton.asks"],
        "a singleton is asked to prove who it is",
        Effect::Singinit(|says| says.asks = b"cmd=singinit authtype=md5\n".to_vec()),
        When::Always,
    ),
    fault(
        "singinit-version-refused",
        &["singleton.info"],
        "a singleton that speaks 1.1 is told that its version will not do",
        Effect::Singinit(|says| says.info = b"cmd=singinit_info versionok=no\n".to_vec()),
        When::Always,
    ),
    fault(
        "singinit-without-kvsname",
        &["singleton.info"],
        "a singleton is not told the name of its keyval space",
        Effect::Singinit(|says| says.info = b"cmd=singinit_info versionok=yes stdio=no\n".to_vec()),
        When::Always,
    ),
    fault(
        "singinit-other-kvsname",
        &["singleton.kvsname"],
        "a singleton is told another name of its keyval space than it is later",
        Effect::Singinit(|says| {
            let info = Info { kvsname: b"singleton".to_vec(), streams: false };
            says.info = [info.line(), b"\n".to_vec()].concat();
        }),
        When::Always,
    ),
    fault(
        "singinit-streams-promised",
        &["singleton.streams"],
        "a singleton waits for the connections of its standard streams for ever",
        Effect::Singinit(|says| {
            if let Ok(info) = Info::parse(says.info.trim_ascii_end()) {
                says.info = [Info { streams: true, ..info }.line(), b"\n".to_vec()].concat();
            }
        }),
        When::Always,
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
            let first = pmi_wire::place(s.size, s.nodes).iter().position(|n| *n == node_of(s)).unwrap_or(0);
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
            let here = pmi_wire::place(s.size, s.nodes).iter().filter(|n| **n == node_of(s)).count();
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
];
