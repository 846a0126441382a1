//! The state of a process between `PMI2_Init` and `PMI2_Finalize`: the reference client with a blocking connection.

use std::ffi::c_int;

use pmi_c_api::{Code, PmiFd, number};
use pmi_reference::client::pmi2::{Answer, Client, Misuse};
use pmi_wire::MappingForm;
use pmi_wire::grammar::parse_int;
use pmi_wire::pmi2::{Request, Response};

/// Key of the process mapping.
const MAPPING: &[u8] = b"PMI_process_mapping";

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

/// Returns a number of a response.
fn int(response: &Response<'_>, key: &str) -> Option<c_int> {
    c_int::try_from(parse_int(&response.get(key)?)?).ok()
}

fn refused(misuse: Misuse) -> Code {
    match misuse {
        Misuse::BadKey => Code::InvalidKey,
        Misuse::TooLong => Code::InvalidVal,
        Misuse::Order => Code::ErrInit,
        Misuse::Pending | Misuse::Over => Code::Fail,
    }
}

impl InitializedProcess {
    /// Connects through PMI_FD, and requests the properties of this process.
    pub(crate) fn start() -> Result<Self, Code> {
        let connection = PmiFd::from_environment().ok_or(Code::Fail)?;
        let client = Client::default();
        let mut session =
            Self { client, connection: Some(connection), rank: 0, size: 0, appnum: 0, spawned: false };
        let offer = session.client.offer().map_err(refused)?;
        session.write(&offer)?;
        if session.answer()? != Answer::Accepted {
            return Err(session.broken("no answer to the offer"));
        }
        let request = Request::Fullinit {
            pmijobid: std::env::var("PMI_JOBID").ok().map(|id| id.into_bytes().into()),
            pmirank: number("PMI_RANK").and_then(|rank| u64::try_from(rank).ok()),
            threaded: Some(false),
            authtype: None,
            authinfo: None,
        };
        let told = session.ask(&request, |response| {
            let spawned = response.get("spawner-jobid").is_some();
            Some((int(response, "rank")?, int(response, "size")?, int(response, "appnum")?, spawned))
        })?;
        (session.rank, session.size, session.appnum, session.spawned) = told;
        Ok(session)
    }

    /// Makes a request, waits for its answer and extracts a value from it. The call fails if the answer is not a success or has no such
    /// value.
    pub(crate) fn ask<T>(
        &mut self,
        request: &Request<'_>,
        take: impl FnOnce(&Response<'_>) -> Option<T>,
    ) -> Result<T, Code> {
        let bytes = self.client.ask(request, None).map_err(refused)?;
        self.write(&bytes)?;
        let Answer::Reply(reply) = self.answer()? else { return Err(self.broken("an answer to no request")) };
        reply.response().filter(Response::is_success).and_then(|response| take(&response)).ok_or(Code::Fail)
    }

    /// Makes a request that only succeeds or fails.
    pub(crate) fn tell(&mut self, request: &Request<'_>) -> Result<(), Code> {
        self.ask(request, |_| Some(()))
    }

    /// Requests a value; returns `None` if it does not exist.
    pub(crate) fn find(&mut self, request: &Request<'_>) -> Result<Option<Vec<u8>>, Code> {
        self.ask(request, |response| {
            let value = response.get("value").map(std::borrow::Cow::into_owned);
            match response.is_found() {
                Some(true) => Some(Some(value?)),
                Some(false) => Some(None),
                None => None,
            }
        })
    }

    /// Returns the number of processes of the job on the node of this one.
    pub(crate) fn local_size(&mut self) -> Result<c_int, Code> {
        let value = self.find(&Request::InfoGetjobattr { key: MAPPING.into() })?.ok_or(Code::Fail)?;
        let (MappingForm::Rfc(mapping) | MappingForm::Mpich(mapping)) = MappingForm::classify(&value) else {
            return Err(Code::Fail);
        };
        let size = u32::try_from(self.size).map_err(|_| Code::Fail)?;
        let nodes = mapping.expand_wrapping(size).map_err(|_| Code::Fail)?;
        let own = usize::try_from(self.rank).ok().and_then(|rank| nodes.get(rank)).ok_or(Code::Fail)?;
        c_int::try_from(nodes.iter().filter(|node| *node == own).count()).map_err(|_| Code::Fail)
    }

    /// Requests the end of the job. The process ends at once and does not wait for an answer.
    pub(crate) fn abort(&mut self, world: bool, message: &[u8]) {
        let request = Request::Abort { isworld: Some(world), exitcode: None, message: Some(message.into()) };
        if let Ok(bytes) = self.client.ask(&request, None) {
            // The process ends now, so a write error cannot be reported.
            let _ = self.write(&bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Code> {
        let connection = self.connection.as_ref().ok_or(Code::Fail)?;
        connection.write(bytes).map_err(|error| self.broken(&error.to_string()))
    }

    fn answer(&mut self) -> Result<Answer, Code> {
        let mut buffer = [0; 4096];
        loop {
            match self.client.next_answer() {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => return Err(self.broken(&error.to_string())),
                None => {}
            }
            let connection = self.connection.as_ref().ok_or(Code::Fail)?;
            match connection.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => self.client.receive(bytes),
                Ok(_) | Err(_) => return Err(self.broken("the end of the connection")),
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
