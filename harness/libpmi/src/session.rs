//! The state of a process between `PMI_Init` and `PMI_Finalize`: the reference client with a blocking connection.

use pmi_c_api::{Code, PmiFd, number};
use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::{KvsLimits, MAPPING_KEY, MappingForm, SpawnProgram};
use rustix::io::Errno;

/// An initialized process.
pub(crate) struct InitializedProcess {
    client: Client,
    /// `None` once the process manager has broken the protocol.
    connection: Option<PmiFd>,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    pub(crate) spawned: bool,
    pub(crate) limits: KvsLimits,
    pub(crate) kvsname: Vec<u8>,
}

/// Returns the code for a refused request; `bad` if the arguments are invalid.
fn refused(misuse: &ClientMisuse, bad: Code) -> Code {
    match misuse {
        ClientMisuse::BadField(_)
        | ClientMisuse::TooLong { .. }
        | ClientMisuse::KeyPutBefore
        | ClientMisuse::NothingToSpawn => bad,
        ClientMisuse::NotInitialized => Code::ErrInit,
        _ => Code::Fail,
    }
}

impl InitializedProcess {
    /// Connects through PMI_FD, and requests the properties of this process.
    pub(crate) fn start() -> Result<Self, Code> {
        let (rank, size) = (number("PMI_RANK"), number("PMI_SIZE"));
        let (Some(rank), Some(size)) = (rank, size) else { return Err(Code::Fail) };
        if !(0..size).contains(&rank) {
            return Err(Code::Fail);
        }
        let connection = PmiFd::from_environment().ok_or(Code::Fail)?;
        let mut session = Self {
            client: Client::lenient(),
            connection: Some(connection),
            rank,
            size,
            spawned: number("PMI_SPAWNED") == Some(1),
            limits: KvsLimits { kvsname_max: 0, keylen_max: 0, vallen_max: 0 },
            kvsname: Vec::new(),
        };
        session.ask(Client::init, Code::Fail)?;
        match session.ask(Client::maxes, Code::Fail)? {
            ServerResponse::Maxes(limits) => session.limits = limits,
            _ => return Err(Code::Fail),
        }
        match session.ask(Client::kvsname, Code::Fail)? {
            ServerResponse::Kvsname(name) => session.kvsname = name,
            _ => return Err(Code::Fail),
        }
        Ok(session)
    }

    /// Makes a request and waits for its answer. Returns the code `bad` if the arguments are invalid.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
        bad: Code,
    ) -> Result<ServerResponse, Code> {
        let bytes = request(&mut self.client).map_err(|misuse| refused(&misuse, bad))?;
        self.write(&bytes).map_err(|e| self.broken(&e.to_string()))?;
        let mut buffer = [0; 4096];
        loop {
            let connection = self.connection.as_ref().ok_or(Code::Fail)?;
            let answer = match connection.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => self.client.receive(bytes),
                Ok(_) | Err(_) => {
                    let error = self.client.closed().err();
                    return Err(self.broken(&error.map_or("the end".to_owned(), |e| e.to_string())));
                }
            };
            match answer {
                None => {}
                Some(Ok(ServerResponse::Failed { .. })) => return Err(Code::Fail),
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<()> {
        self.connection.as_ref().ok_or(Errno::BADF)?.write(bytes)
    }

    /// Closes the connection and logs the reason, as RFC 13 requires (Error Handling). The process manager then aborts the program.
    fn broken(&mut self, why: &str) -> Code {
        if self.connection.take().is_some() {
            eprintln!("libpmi: rank {}: the process manager broke the protocol: {why}", self.rank);
        }
        Code::Fail
    }

    /// Puts a pair, and sends it immediately.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Code> {
        let what = |misuse: &ClientMisuse| match misuse {
            ClientMisuse::BadField("value") | ClientMisuse::TooLong { what: "value", .. } => Code::InvalidVal,
            other => refused(other, Code::InvalidKey),
        };
        let mut code = Code::Fail;
        let answer = self.ask(|c| c.put(key, value).inspect_err(|misuse| code = what(misuse)), Code::Fail);
        // This code stands both for a request that was refused before it was sent and for a refusal by the process manager.
        answer.map(drop).map_err(|_| code)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, Code> {
        match self.ask(|c| c.get(key), Code::InvalidKey)? {
            ServerResponse::Value(value) => Ok(value),
            _ => Err(Code::Fail),
        }
    }

    /// Returns the ranks on the node of this process, ascending.
    pub(crate) fn clique(&mut self) -> Result<Vec<i32>, Code> {
        let value = self.get(MAPPING_KEY)?;
        // Hydra's shorter forms are accepted as well.
        let (MappingForm::Rfc(mapping) | MappingForm::Mpich(mapping)) = MappingForm::classify(&value) else {
            return Err(Code::Fail);
        };
        let nodes = mapping.expand_wrapping(self.size as u32).map_err(|_| Code::Fail)?;
        let here = nodes.get(self.rank as usize).ok_or(Code::Fail)?;
        Ok((0..).zip(&nodes).filter(|(_, node)| *node == here).map(|(rank, _)| rank).collect())
    }

    /// Starts programs and returns the error codes from the process manager.
    pub(crate) fn spawn(&mut self, programs: &[SpawnProgram]) -> Result<Vec<i64>, Code> {
        match self.ask(|c| c.spawn(programs), Code::InvalidArg)? {
            ServerResponse::Spawned { errcodes, .. } => Ok(errcodes.unwrap_or_default()),
            _ => Err(Code::Fail),
        }
    }

    /// Requests the end of the program. The process ends immediately and does not wait for an answer.
    pub(crate) fn abort(&mut self) {
        if let Ok(bytes) = self.client.abort(None) {
            // The process ends now, so a write error cannot be reported.
            let _ = self.write(&bytes);
        }
    }
}
