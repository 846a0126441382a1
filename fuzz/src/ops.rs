//! Sequences of operations for the reference server, and their bytes.
//!
//! Input: a byte for the number of ranks and nodes, then three bytes for each step.

use arbitrary::{Arbitrary, Unstructured};
use pmi_wire::{Framing, SpawnProgram};

use crate::spell;

/// Keys, including the longest within [`KEYLEN_MAX`] and the shortest beyond it.
pub(crate) const KEYS: [&str; 8] =
    ["a", "b", "key-2", "K", "a.b", "PMI_x", "thirteenbytes", "fourteen-bytes"];
/// The limit on the length of keys, including the NUL of the C API.
pub(crate) const KEYLEN_MAX: usize = 14;
/// Values, including the longest within [`VALLEN_MAX`] and the shortest beyond it.
pub(crate) const VALUES: [&str; 8] =
    ["", "v", "two words", "x=1 y=2", "\ttab ", "rc=0", "nineteen-byte-value", "twenty-bytes-of-text"];
/// The limit on the length of values, including the NUL. A mapping of one block fits; one of two blocks does not.
pub(crate) const VALLEN_MAX: usize = 20;
/// Names to publish.
pub(crate) const SERVICES: [&str; 4] = ["s", "ocean", "s2", "S"];
/// Ports to publish them with.
pub(crate) const PORTS: [&str; 4] = ["p", "tag=0$h$", "p2", "="];
/// Lines that are not requests.
const JUNK: [&str; 8] = [
    "",
    "cmd=bogus",
    "cmd=put kvsname=kvs-0 key=a",
    "hello",
    "cmd=init pmi_version=1",
    "cmd=get\u{1}",
    "mcmd=other",
    "cmd=get kvsname=kvs-0 key=a key=b",
];
/// Maximum length of a line that the server accepts.
pub(crate) const LINE_MAX: usize = 200;
/// Maximum number of processes of one spawn.
pub(crate) const SPAWN_MAX: u64 = 4;
/// Maximum number of process groups that have steps.
pub(crate) const GROUPS: u32 = 3;

/// Number of versions that are offered.
pub(crate) const OFFERS: u8 = 5;

/// A message from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientOp {
    /// Version 0.9, 1.0, 1.1, 1.2 or 2.0, selected by the remainder modulo [`OFFERS`].
    Init(u8),
    Maxes,
    Universe,
    Appnum,
    Kvsname,
    Barrier,
    Finalize,
    /// The exit code, if any.
    Abort(Option<i8>),
    /// Puts into the group's own keyval space, or into one with another name.
    Put {
        own: bool,
        key: u8,
        value: u8,
    },
    Get {
        own: bool,
        key: u8,
    },
    GetMapping,
    Publish {
        service: u8,
        port: u8,
    },
    Unpublish(u8),
    Lookup(u8),
    /// The number of processes of each program (one program if the second is `None`), and a key to put before they start.
    Spawn {
        first: u8,
        second: Option<u8>,
        key: Option<u8>,
    },
    Junk(u8),
    Overlong,
}

impl ClientOp {
    /// Returns the same number for operations that differ only in their arguments.
    pub(crate) fn kind(self) -> u32 {
        match self {
            Self::Init(_) => 0,
            Self::Maxes => 1,
            Self::Universe => 2,
            Self::Appnum => 3,
            Self::Kvsname => 4,
            Self::Barrier => 5,
            Self::Finalize => 6,
            Self::Abort(_) => 7,
            Self::Put { .. } => 8,
            Self::Get { .. } => 9,
            Self::GetMapping => 10,
            Self::Publish { .. } => 11,
            Self::Unpublish(_) => 12,
            Self::Lookup(_) => 13,
            Self::Spawn { .. } => 14,
            Self::Junk(_) => 15,
            Self::Overlong => 16,
        }
    }
}

/// The delivery of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// At once.
    Whole,
    /// With the next bytes from the process.
    Later,
    /// All except the last few.
    Part(u8),
}

/// The action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessStepAction {
    Send(ClientOp, SendMode),
    /// Every process of the group that may enter the barrier enters it.
    Round,
    /// The client closes its connection.
    Close,
    /// The processes of the oldest pending spawn have been started, or have failed to start.
    Spawned(bool),
}

/// A step of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStep {
    /// The group, modulo the number of groups.
    pub(crate) group: u8,
    /// The rank, modulo the number of ranks.
    pub(crate) rank: u8,
    pub(crate) what: ProcessStepAction,
}

impl<'a> Arbitrary<'a> for ProcessStep {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let &[who, what, detail] = u.bytes(3)? else { return Err(arbitrary::Error::NotEnoughData) };
        let (low, high) = (detail & 7, detail >> 3 & 7);
        let own = detail < 224;
        let op = match what & 31 {
            0..=2 => ClientOp::Init(if what & 31 == 2 { detail } else { 1 }),
            3 => ClientOp::Maxes,
            4 => ClientOp::Universe,
            5 => ClientOp::Appnum,
            6 => ClientOp::Kvsname,
            7..=9 => ClientOp::Barrier,
            10 => return Ok(Self::of(who, ProcessStepAction::Round)),
            11 => ClientOp::Finalize,
            12 => ClientOp::Abort((low & 1 == 1).then_some(detail.cast_signed())),
            13..=16 => ClientOp::Put { own, key: low, value: high },
            17..=19 => ClientOp::Get { own, key: low },
            20 => ClientOp::GetMapping,
            21 => ClientOp::Publish { service: low & 3, port: high & 3 },
            22 => ClientOp::Unpublish(low & 3),
            23 => ClientOp::Lookup(low & 3),
            24 | 25 => ClientOp::Spawn {
                first: low & 3,
                second: (low & 4 == 4).then_some(high & 3),
                key: (detail >= 128).then_some(high),
            },
            26 => ClientOp::Junk(low),
            27 => ClientOp::Overlong,
            28 | 29 => return Ok(Self::of(who, ProcessStepAction::Spawned(low != 0))),
            30 => return Ok(Self::of(who, ProcessStepAction::Close)),
            _ => ClientOp::Finalize,
        };
        let write = match what >> 5 {
            0..=4 => SendMode::Whole,
            5 | 6 => SendMode::Later,
            _ => SendMode::Part(detail % 31),
        };
        Ok(Self::of(who, ProcessStepAction::Send(op, write)))
    }
}

impl ProcessStep {
    fn of(who: u8, kind: ProcessStepAction) -> Self {
        Self { group: who >> 4, rank: who & 0xf, what: kind }
    }
}

/// Appends the bytes of a request from a process in group `group`, as the protocol table spells it.
pub(crate) fn bytes(op: ClientOp, group: u32, out: &mut Vec<u8>) {
    let space = |own: bool| if own { format!("kvs-{}", group.min(2)) } else { "kvs-other".to_owned() };
    let text = |list: &[&str], at: u8| list[usize::from(at)].to_owned();
    let mut put = |operation: &str, fields: &[(&str, String)]| {
        out.extend(spell::request(Framing::Lines, operation, None, fields));
    };
    match op {
        ClientOp::Init(version) => {
            let offers: [[u8; 2]; OFFERS as usize] = [[0, 9], [1, 0], [1, 1], [1, 2], [2, 0]];
            let [version, subversion] =
                offers[usize::from(version % OFFERS)].map(|number| number.to_string());
            put("init", &[("pmi_version", version), ("pmi_subversion", subversion)]);
        }
        ClientOp::Maxes => put("maxes", &[]),
        ClientOp::Universe => put("universe", &[]),
        ClientOp::Appnum => put("appnum", &[]),
        ClientOp::Kvsname => put("kvsname", &[]),
        ClientOp::Barrier => put("barrier", &[]),
        ClientOp::Finalize => put("finalize", &[]),
        ClientOp::Abort(None) => put("abort", &[]),
        ClientOp::Abort(Some(code)) => put("abort", &[("exitcode", code.to_string())]),
        ClientOp::Put { own, key, value } => {
            put(
                "put",
                &[("kvsname", space(own)), ("key", text(&KEYS, key)), ("value", text(&VALUES, value))],
            );
        }
        ClientOp::Get { own, key } => put("get", &[("kvsname", space(own)), ("key", text(&KEYS, key))]),
        ClientOp::GetMapping => {
            put("get", &[("kvsname", space(true)), ("key", "PMI_process_mapping".to_owned())])
        }
        ClientOp::Publish { service, port } => {
            put("publish", &[("service", text(&SERVICES, service)), ("port", text(&PORTS, port))]);
        }
        ClientOp::Unpublish(service) => put("unpublish", &[("service", text(&SERVICES, service))]),
        ClientOp::Lookup(service) => put("lookup", &[("service", text(&SERVICES, service))]),
        ClientOp::Spawn { first, second, key } => {
            let totspawns = 1 + u64::from(second.is_some());
            for (nprocs, spawnssofar) in [Some(first), second].into_iter().flatten().zip(1..) {
                let key = key.filter(|_| spawnssofar == 1);
                let preput = key.map(|key| (text(&KEYS, key).into_bytes(), b"pre".to_vec()));
                SpawnProgram {
                    nprocs: nprocs.into(),
                    execname: b"x".to_vec(),
                    totspawns,
                    spawnssofar,
                    args: vec![(1, b"y".to_vec())],
                    preput: preput.into_iter().collect(),
                    info: Vec::new(),
                }
                .write_to(out);
            }
            return;
        }
        ClientOp::Junk(line) => out.extend_from_slice(JUNK[usize::from(line)].as_bytes()),
        ClientOp::Overlong => out.extend([b'x'; LINE_MAX]),
    }
    out.push(b'\n');
}
