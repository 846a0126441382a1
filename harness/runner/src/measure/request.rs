//! The measured requests of the ranks, in either protocol.

use pmi_scenario::ast::Dialect;
use pmi_wire::protocol::by_operation;
use pmi_wire::{Decoded, Direction, Framing, ResponseOutcome, SpawnProgram, SpawnRequest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MeasuredRequest {
    /// Offers the protocol version.
    Offer,
    /// Sends PMI-2's fullinit, the request that follows the offer. Contains the rank.
    Fullinit(u32),
    /// Requests the name of the keyval space, which PMI-1 needs in other requests.
    Kvsname,
    /// Enters the barrier or the fence.
    Barrier,
    Put {
        key: String,
        value: String,
    },
    Get {
        key: String,
    },
    Publish(String),
    Lookup(String),
    Unpublish(String),
    /// Spawns a process that runs this program.
    Spawn(Vec<u8>),
    Finalize,
}

impl MeasuredRequest {
    pub(super) fn bytes(&self, dialect: Dialect, kvsname: &[u8]) -> Vec<u8> {
        let framing = if matches!(self, Self::Offer) { Framing::Lines } else { dialect.framing() };
        let text = |number: u64| number.to_string().into_bytes();
        let value = |value: &String| value.clone().into_bytes();
        let space = || ("kvsname", kvsname.to_vec());
        let (operation, fields) = match self {
            Self::Offer => {
                let version = dialect.version();
                let (version, subversion) = (text(version.version), text(version.subversion));
                ("init", vec![("pmi_version", version), ("pmi_subversion", subversion)])
            }
            Self::Fullinit(rank) => (
                "init",
                vec![
                    ("pmijobid", b"job".to_vec()),
                    ("pmirank", text((*rank).into())),
                    ("threaded", b"FALSE".to_vec()),
                ],
            ),
            Self::Kvsname => ("kvsname", Vec::new()),
            Self::Barrier => ("barrier", Vec::new()),
            Self::Put { key, value: put } => {
                ("put", vec![space(), ("key", value(key)), ("value", value(put))])
            }
            Self::Get { key } => ("get", vec![space(), ("key", value(key))]),
            Self::Publish(name) => ("publish", vec![("service", value(name)), ("port", value(name))]),
            Self::Lookup(name) => ("lookup", vec![("service", value(name))]),
            Self::Unpublish(name) => ("unpublish", vec![("service", value(name))]),
            Self::Spawn(agent) => return spawn(framing, agent),
            Self::Finalize => ("finalize", Vec::new()),
        };
        by_operation(framing, operation).map_or_else(Vec::new, |row| row.write_request(framing, &fields))
    }
}

fn spawn(framing: Framing, agent: &[u8]) -> Vec<u8> {
    let program = SpawnProgram {
        nprocs: 1,
        execname: agent.to_vec(),
        totspawns: 1,
        spawnssofar: 1,
        ..SpawnProgram::default()
    };
    let mut bytes = Vec::new();
    match framing {
        Framing::Lines => program.write_to(&mut bytes),
        Framing::Frames => {
            SpawnRequest { programs: vec![program] }.write_body(None, &mut bytes);
            bytes = framing.complete(bytes).unwrap_or_default();
        }
    }
    bytes
}

/// Returns whether a response reports success. An unreadable response counts as success here, because the judge reports it.
pub(super) fn succeeds(answer: &[u8], dialect: Dialect) -> bool {
    let answer = Decoded::new(Direction::FromServer, dialect.framing(), answer);
    !matches!(answer.outcome(), Some(ResponseOutcome::Miss | ResponseOutcome::Failure))
}
