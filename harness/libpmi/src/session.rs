//! The state of a process between `PMI_Init` and `PMI_Finalize`.

use pmi_c_api::{Code, ConnectedProcess, number};
use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::{KvsLimits, MAPPING_KEY, SpawnProgram};

pub(crate) struct InitializedProcess {
    pub(crate) process: ConnectedProcess,
    pub(crate) spawned: bool,
    pub(crate) limits: KvsLimits,
    pub(crate) kvsname: Vec<u8>,
}

/// Returns the code for a request that the client refuses. The code is `bad` if the arguments are invalid.
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
    /// Connects through PMI_FD, and requests the limits and the name of the keyval space.
    pub(crate) fn start() -> Result<Self, Code> {
        let (rank, size) = (number("PMI_RANK"), number("PMI_SIZE"));
        let (Some(rank), Some(size)) = (rank, size) else { return Err(Code::Fail) };
        if !(0..size).contains(&rank) {
            return Err(Code::Fail);
        }
        let mut session = Self {
            process: ConnectedProcess::new("libpmi", Client::lenient(), rank, size)?,
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

    /// Makes a request and returns the response. Returns an error if the request fails; the error is `bad` if the client refuses the
    /// arguments.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
        bad: Code,
    ) -> Result<ServerResponse, Code> {
        match self.process.ask(request, |misuse| refused(misuse, bad))? {
            ServerResponse::Failed { .. } => Err(Code::Fail),
            response => Ok(response),
        }
    }

    /// Puts a key-value pair. The request is sent immediately.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Code> {
        let what = |misuse: &ClientMisuse| match misuse {
            ClientMisuse::BadField("value") | ClientMisuse::TooLong { what: "value", .. } => Code::InvalidVal,
            other => refused(other, Code::InvalidKey),
        };
        let mut code = Code::Fail;
        let answer = self.ask(|c| c.put(key, value).inspect_err(|misuse| code = what(misuse)), Code::Fail);
        // If the client refuses to send the request, `code` is the reason. If the process manager refuses it, `code` is still `Fail`.
        answer.map(drop).map_err(|_| code)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, Code> {
        match self.ask(|c| c.get(key), Code::InvalidKey)? {
            ServerResponse::Value(value) => Ok(value),
            _ => Err(Code::Fail),
        }
    }

    /// Returns the ranks on the node of this process in ascending order.
    pub(crate) fn clique(&mut self) -> Result<Vec<i32>, Code> {
        let mapping = self.get(MAPPING_KEY)?;
        self.process.local_ranks(&mapping)
    }

    /// Starts programs and returns the error codes from the process manager.
    pub(crate) fn spawn(&mut self, programs: &[SpawnProgram]) -> Result<Vec<i64>, Code> {
        match self.ask(|c| c.spawn(programs), Code::InvalidArg)? {
            ServerResponse::Spawned { errcodes, .. } => Ok(errcodes.unwrap_or_default()),
            _ => Err(Code::Fail),
        }
    }
}
