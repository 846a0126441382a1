//! The measured requests of the ranks, in either protocol.

use pmi_scenario::ast::Dialect;
use pmi_wire::pmi2::{self, Pmi2SpawnProgram};
use pmi_wire::{Decoded, Direction, Request, ResponseOutcome, SpawnProgram, Version, frame_header};

/// One request by a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// Offers the version.
    Offer,
    /// PMI-2's request after the offer, for this rank.
    Fullinit(u32),
    /// Requests the name of the keyval space, which PMI-1 needs in other requests.
    Kvsname,
    /// Enters the barrier or the fence.
    Barrier,
    /// Puts a value.
    Put { key: String, value: String },
    /// Gets a value.
    Get { key: String },
    /// Publishes a name.
    Publish(String),
    /// Looks up a name.
    Lookup(String),
    /// Withdraws a name.
    Unpublish(String),
    /// Starts one process of this program.
    Spawn(Vec<u8>),
    /// Finalizes.
    Finalize,
}

impl Ask {
    /// Returns the bytes of the message.
    pub(super) fn bytes(&self, dialect: Dialect, kvsname: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        match (self, dialect) {
            (Self::Offer, Dialect::Pmi2) => bytes.extend(b"cmd=init pmi_version=2 pmi_subversion=0\n"),
            (_, Dialect::Pmi1) => self.line(kvsname, &mut bytes),
            (_, Dialect::Pmi2) => {
                let mut body = Vec::with_capacity(96);
                self.frame().write_to(None, &mut body);
                // No message here has nearly a million bytes.
                bytes.extend(frame_header(body.len()).unwrap_or_default());
                bytes.extend(body);
            }
        }
        bytes
    }

    fn line(&self, kvsname: &[u8], out: &mut Vec<u8>) {
        let request = match self {
            Self::Offer | Self::Fullinit(_) => Request::Init(Version::V1_1),
            Self::Kvsname => Request::Kvsname,
            Self::Barrier => Request::Barrier { group: None },
            Self::Put { key, value } => {
                Request::Put { kvsname, key: key.as_bytes(), value: value.as_bytes() }
            }
            Self::Get { key } => Request::Get { kvsname, key: key.as_bytes() },
            Self::Publish(name) => Request::Publish { service: name.as_bytes(), port: name.as_bytes() },
            Self::Lookup(name) => Request::Lookup { service: name.as_bytes() },
            Self::Unpublish(name) => Request::Unpublish { service: name.as_bytes() },
            Self::Spawn(agent) => {
                let program = SpawnProgram {
                    nprocs: 1,
                    execname: agent.clone(),
                    totspawns: 1,
                    spawnssofar: 1,
                    ..SpawnProgram::default()
                };
                return program.write_to(out);
            }
            Self::Finalize => Request::Finalize,
        };
        request.write_to(out);
    }

    fn frame(&self) -> pmi2::Request<'_> {
        use pmi2::Request;
        let text = |text: &'_ str| text.as_bytes().to_vec().into();
        match self {
            Self::Offer | Self::Kvsname => Request::JobGetid,
            Self::Fullinit(rank) => Request::Fullinit {
                pmijobid: Some(text("job")),
                pmirank: Some((*rank).into()),
                threaded: Some(false),
                authtype: None,
                authinfo: None,
            },
            Self::Barrier => Request::KvsFence,
            Self::Put { key, value } => Request::KvsPut { key: text(key), value: text(value) },
            Self::Get { key } => Request::KvsGet { jobid: None, srcid: None, key: text(key) },
            Self::Publish(name) => Request::NamePublish { name: text(name), port: text(name) },
            Self::Lookup(name) => Request::NameLookup { name: text(name) },
            Self::Unpublish(name) => Request::NameUnpublish { name: text(name) },
            Self::Spawn(agent) => {
                let program =
                    Pmi2SpawnProgram { command: agent.clone(), maxprocs: 1, ..Pmi2SpawnProgram::default() };
                Request::Spawn { preput: Vec::new(), programs: vec![program] }
            }
            Self::Finalize => Request::Finalize,
        }
    }
}

/// Returns whether an answer reports success. An unreadable answer counts as success here, because the judge reports it.
pub(super) fn succeeds(answer: &[u8], dialect: Dialect) -> bool {
    let answer = Decoded::new(Direction::FromServer, dialect.framing(), answer);
    !matches!(answer.outcome(), Some(ResponseOutcome::Miss | ResponseOutcome::Failure))
}
