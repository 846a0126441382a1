//! The state of a process between `PMI2_Init` and `PMI2_Finalize`: the reference client with a blocking connection.

use std::ffi::c_int;

use pmi_c_api::{Code, PmiFd, number};
use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::{MAPPING_KEY, MappingForm, ResponseOutcome};

/// An initialized process.
pub(crate) struct InitializedProcess {
    client: Client,
    /// `None` once the process manager has broken the protocol.
    connection: Option<PmiFd>,
    pub(crate) rank: c_int,
    pub(crate) size: c_int,
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
        let connection = PmiFd::from_environment().ok_or(Code::Fail)?;
        let client = Client::with_pmi2();
        let mut session =
            Self { client, connection: Some(connection), rank: 0, size: 0, appnum: 0, spawned: false };
        match session.ask(Client::init) {
            Ok(ServerResponse::Init(version)) if version.version == 2 => {}
            _ => return Err(session.broken("no answer to the offer")),
        }
        let jobid = std::env::var("PMI_JOBID").ok();
        let rank = number("PMI_RANK").and_then(|rank| u64::try_from(rank).ok());
        let answer =
            session.ask(|client| client.fullinit(jobid.as_deref().map(str::as_bytes), rank, false))?;
        let ServerResponse::Joined { rank, size, appnum, spawned } = answer else { return Err(Code::Fail) };
        let int = |number: u64| c_int::try_from(number).map_err(|_| Code::Fail);
        (session.rank, session.size, session.spawned) = (int(rank)?, int(size)?, spawned);
        session.appnum = c_int::try_from(appnum).map_err(|_| Code::Fail)?;
        Ok(session)
    }

    /// Makes a request and waits for its answer. The call fails if the answer is not a success.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
    ) -> Result<ServerResponse, Code> {
        match self.try_ask(request)? {
            ServerResponse::Failed { .. } => Err(Code::Fail),
            answer => Ok(answer),
        }
    }

    /// Requests a value; returns `None` if it does not exist.
    pub(crate) fn find(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
    ) -> Result<Option<Vec<u8>>, Code> {
        match self.try_ask(request)? {
            ServerResponse::Value(value) => Ok(Some(value)),
            ServerResponse::Failed { outcome: ResponseOutcome::Miss, .. } => Ok(None),
            _ => Err(Code::Fail),
        }
    }

    /// Returns the number of processes of the job on this node.
    pub(crate) fn local_size(&mut self) -> Result<c_int, Code> {
        let value = self.find(|client| client.get_job_attribute(MAPPING_KEY))?.ok_or(Code::Fail)?;
        let (MappingForm::Rfc(mapping) | MappingForm::Mpich(mapping)) = MappingForm::classify(&value) else {
            return Err(Code::Fail);
        };
        let size = u32::try_from(self.size).map_err(|_| Code::Fail)?;
        let nodes = mapping.expand_wrapping(size).map_err(|_| Code::Fail)?;
        let own = usize::try_from(self.rank).ok().and_then(|rank| nodes.get(rank)).ok_or(Code::Fail)?;
        c_int::try_from(nodes.iter().filter(|node| *node == own).count()).map_err(|_| Code::Fail)
    }

    /// Requests the end of the job. The process ends immediately and does not wait for an answer.
    pub(crate) fn abort(&mut self, world: bool, message: &[u8]) {
        if let Ok(bytes) = self.client.abort_job(world, message) {
            // The process ends now, so a write error cannot be reported.
            let _ = self.write(&bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Code> {
        let connection = self.connection.as_ref().ok_or(Code::Fail)?;
        connection.write(bytes).map_err(|error| self.broken(&error.to_string()))
    }

    fn try_ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
    ) -> Result<ServerResponse, Code> {
        let bytes = request(&mut self.client).map_err(|misuse| refused(&misuse))?;
        self.write(&bytes)?;
        let mut buffer = [0; 4096];
        loop {
            let connection = self.connection.as_ref().ok_or(Code::Fail)?;
            let answer = match connection.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => self.client.receive(bytes),
                Ok(_) | Err(_) => return Err(self.broken("the end of the connection")),
            };
            match answer {
                None => {}
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    /// Closes the connection and logs the reason.
    fn broken(&mut self, why: &str) -> Code {
        if self.connection.take().is_some() {
            eprintln!("libpmi2: rank {}: the process manager broke the protocol: {why}", self.rank);
        }
        Code::Fail
    }
}
