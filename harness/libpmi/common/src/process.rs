//! A process with its connection: a blocking wrapper around the reference client.

use std::ffi::c_int;

use pmi_reference::client::{Client, ClientMisuse, ServerResponse};
use pmi_wire::MappingForm;

use crate::call::Code;
use crate::connection::PmiFd;

/// A process that is connected to its process manager.
pub struct ConnectedProcess {
    /// The name of the library, for error messages.
    library: &'static str,
    client: Client,
    /// The connection; `None` after the process manager has broken the protocol.
    connection: Option<PmiFd>,
    /// The rank of the process.
    pub rank: c_int,
    /// The number of processes in the group.
    pub size: c_int,
}

impl ConnectedProcess {
    /// Connects through PMI_FD.
    ///
    /// # Errors
    ///
    /// Returns an error if PMI_FD is not the number of an open descriptor.
    pub fn new(library: &'static str, client: Client, rank: c_int, size: c_int) -> Result<Self, Code> {
        let connection = Some(PmiFd::from_environment().ok_or(Code::Fail)?);
        Ok(Self { library, client, connection, rank, size })
    }

    /// Makes a request and waits for its response. The response may be a failure.
    ///
    /// # Errors
    ///
    /// Returns the code from `refused` if the client refuses the request, and [`Code::Fail`] if the process manager breaks the protocol.
    pub fn ask(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
        refused: impl FnOnce(&ClientMisuse) -> Code,
    ) -> Result<ServerResponse, Code> {
        let bytes = request(&mut self.client).map_err(|misuse| refused(&misuse))?;
        self.write(&bytes)?;
        let mut buffer = [0; 4096];
        loop {
            let connection = self.connection.as_ref().ok_or(Code::Fail)?;
            let response = match connection.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => self.client.receive(bytes),
                Ok(_) | Err(_) => {
                    let error = self.client.closed().err();
                    return Err(self.broken(
                        &error.map_or("the connection was closed".to_owned(), |error| error.to_string()),
                    ));
                }
            };
            match response {
                None => {}
                Some(Ok(response)) => return Ok(response),
                Some(Err(error)) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    /// Makes the last request of a process that is about to exit. Does not wait for a response, and cannot report an error.
    pub fn ask_last(&mut self, request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>) {
        let _ = request(&mut self.client).map(|bytes| self.write(&bytes));
    }

    /// Returns the ranks on the node of this process in ascending order, according to the process mapping. Hydra's shorter forms are
    /// accepted.
    ///
    /// # Errors
    ///
    /// Returns an error if the mapping is invalid.
    pub fn local_ranks(&self, mapping: &[u8]) -> Result<Vec<c_int>, Code> {
        let (MappingForm::Rfc(mapping) | MappingForm::Mpich(mapping)) = MappingForm::classify(mapping) else {
            return Err(Code::Fail);
        };
        let size = u32::try_from(self.size).map_err(|_| Code::Fail)?;
        let nodes = mapping.expand_wrapping(size).map_err(|_| Code::Fail)?;
        let here = usize::try_from(self.rank).ok().and_then(|rank| nodes.get(rank)).ok_or(Code::Fail)?;
        Ok((0..).zip(&nodes).filter(|(_, node)| *node == here).map(|(rank, _)| rank).collect())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Code> {
        let connection = self.connection.as_ref().ok_or(Code::Fail)?;
        connection.write(bytes).map_err(|error| self.broken(&error.to_string()))
    }

    /// Handles a protocol violation by the process manager: closes the connection and logs the reason, as the section "Error Handling" of
    /// RFC 13 requires. The process manager then aborts the program. Returns [`Code::Fail`].
    pub fn broken(&mut self, why: &str) -> Code {
        if self.connection.take().is_some() {
            eprintln!(
                "{}: rank {}: the process manager violated the protocol: {why}",
                self.library, self.rank
            );
        }
        Code::Fail
    }
}
