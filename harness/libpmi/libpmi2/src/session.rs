//! The state of a process between `PMI2_Init` and `PMI2_Finalize`.

use std::ffi::c_int;

use pmi_c_api::{Code, ConnectedProcess, int, number};
use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::{MAPPING_KEY, ResponseOutcome};

pub(crate) struct InitializedProcess {
    pub(crate) process: ConnectedProcess,
    pub(crate) appnum: c_int,
    pub(crate) spawned: bool,
}

fn refused(misuse: &ClientMisuse) -> Code {
    match misuse {
        ClientMisuse::BadField("key") | ClientMisuse::TooLong { what: "key", .. } => Code::InvalidKey,
        ClientMisuse::TooLong { .. } => Code::InvalidVal,
        ClientMisuse::NotInitialized | ClientMisuse::Initialized => Code::ErrInit,
        _ => Code::Fail,
    }
}

impl InitializedProcess {
    /// Connects through PMI_FD, and requests the properties of this process.
    pub(crate) fn start() -> Result<Self, Code> {
        let process = ConnectedProcess::new("libpmi2", Client::with_pmi2(), 0, 0)?;
        let mut session = Self { process, appnum: 0, spawned: false };
        match session.ask(Client::init) {
            Ok(ServerResponse::Init(version)) if version.version == 2 => {}
            _ => return Err(session.process.broken("no answer to the offer")),
        }
        let jobid = std::env::var("PMI_JOBID").ok();
        let rank = number("PMI_RANK").and_then(|rank| u64::try_from(rank).ok());
        let answer =
            session.ask(|client| client.fullinit(jobid.as_deref().map(str::as_bytes), rank, false))?;
        let ServerResponse::Joined { rank, size, appnum, spawned } = answer else { return Err(Code::Fail) };
        (session.process.rank, session.process.size) = (int(rank)?, int(size)?);
        session.appnum = c_int::try_from(appnum).map_err(|_| Code::Fail)?;
        session.spawned = spawned;
        Ok(session)
    }

    /// Makes a request and returns the response. Returns an error if the request was not successful.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
    ) -> Result<ServerResponse, Code> {
        match self.process.ask(request, refused)? {
            ServerResponse::Failed { .. } => Err(Code::Fail),
            answer => Ok(answer),
        }
    }

    /// Requests a value. Returns `None` if the value does not exist.
    pub(crate) fn find(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
    ) -> Result<Option<Vec<u8>>, Code> {
        match self.process.ask(request, refused)? {
            ServerResponse::Value(value) => Ok(Some(value)),
            ServerResponse::Failed { outcome: ResponseOutcome::Miss, .. } => Ok(None),
            _ => Err(Code::Fail),
        }
    }

    /// Returns the number of processes of the job on this node.
    pub(crate) fn local_size(&mut self) -> Result<c_int, Code> {
        let mapping = self.find(|client| client.get_job_attribute(MAPPING_KEY))?.ok_or(Code::Fail)?;
        int(self.process.local_ranks(&mapping)?.len() as u64)
    }
}
