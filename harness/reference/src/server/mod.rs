//! The server's side of PMI, in every dialect, for any number of process groups.
//!
//! The driver passes bytes and process events to [`Server::receive`], [`Server::closed`] and [`Server::spawned`], and performs the actions
//! that [`Server::next_action`] returns. [`Server::read`] decodes requests, and [`Server::perform`] passes them to their handlers, which
//! are grouped into files by subject. The methods that `receive` calls are public, so that a wrapper can change requests and responses.

mod attributes;
mod barrier;
mod config;
mod group_barrier;
mod job_info;
mod keyval_space;
mod kvs;
mod lifecycle;
mod names;
mod open_barrier;
mod port;
mod request;
mod singleton;
mod spawn;
mod state;

use pmi_wire::{Framer, Framing, Proc};

use crate::response::OperationResult;
pub use config::{Config, GroupId, GroupSpec, ServerAction};
pub use lifecycle::ProtocolError;
pub use open_barrier::{BarrierIdentity, GroupNotation, OpenBarrier};
pub use request::{AllowedRequest, ServerRequest};
pub use state::{
    AwaitedEvent, HeldRequest, KeyvalSpace, PendingAction, ProcessGroup, ProcessPhase, Server, ServerProcess,
};

impl Server {
    /// Reads bytes from a process, and performs the requests that they contain.
    pub fn receive(&mut self, from: Proc, bytes: &[u8]) {
        if self.is_gone(from) {
            return;
        }
        let mut framer = self.take_framer(from);
        framer.push(bytes);
        while let Some(message) = self.next_message(from, &mut framer) {
            match message {
                Ok(message) => {
                    let request = self.read(from, message);
                    let done = request
                        .and_then(|request| request.map_or(Ok(()), |request| self.perform(from, request)));
                    done.unwrap_or_else(|error| self.protocol_error(from, &error, message));
                }
                Err(error) => self.protocol_error(from, &error, b""),
            }
            if self.is_gone(from) {
                return;
            }
        }
        self.process_mut(from).framer = framer;
    }

    /// Removes the framer of a process from the server, so that messages can be read from the framer.
    pub fn take_framer(&mut self, from: Proc) -> Framer {
        let line_max = self.config.line_max;
        std::mem::replace(&mut self.process_mut(from).framer, Framer::new(line_max))
    }

    /// Returns the next message in a framer, without its newline or length.
    pub fn next_message<'a>(
        &self,
        from: Proc,
        framer: &'a mut Framer,
    ) -> Option<Result<&'a [u8], ProtocolError>> {
        Some(match self.process(from).framing {
            Framing::Lines => framer.next_line()?.map_err(|error| ProtocolError(error.to_string())),
            Framing::Frames => framer.next_frame()?.map_err(|error| ProtocolError(error.to_string())),
        })
    }

    /// Performs a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is a protocol error.
    pub fn perform(&mut self, from: Proc, allowed: AllowedRequest<'_>) -> Result<(), ProtocolError> {
        let AllowedRequest { header, request } = allowed;
        let answer = match request {
            // The handlers of these requests send the responses, possibly later or to several processes.
            ServerRequest::Init(offered) => return self.init(from, header, offered),
            ServerRequest::Barrier { group } => return self.enter(from, header, group.as_deref()),
            ServerRequest::PutNodeAttribute { key, value } => {
                self.put_node_attribute(from, header, &key, &value);
                return Ok(());
            }
            ServerRequest::GetNodeAttribute { key, wait } => {
                self.get_node_attribute(from, header, &key, wait);
                return Ok(());
            }
            ServerRequest::Spawn(request) => {
                self.spawn(from, header, request);
                return Ok(());
            }
            ServerRequest::Abort { exitcode } => {
                self.abort_requested(from, header, exitcode);
                return Ok(());
            }
            ServerRequest::Finalize => {
                self.finalize(from, header);
                return Ok(());
            }
            ServerRequest::CreateSpace => {
                let name = self.new_space_name();
                self.create_space(from, header, name);
                return Ok(());
            }
            // These requests are answered immediately.
            ServerRequest::Fullinit { authtype } => self.fullinit(from, authtype.as_deref()),
            ServerRequest::Maxes => self.maxes(),
            ServerRequest::Kvsname => self.kvsname(from),
            ServerRequest::Universe => OperationResult::done().with_number("size", self.universe_size(from)),
            ServerRequest::Appnum => OperationResult::done().with_number("appnum", self.appnum(from)),
            ServerRequest::Put { space, key, value } => self.put(from, space.as_deref(), &key, &value),
            ServerRequest::Get { space, key, .. } => self.get(from, space.as_deref(), &key),
            ServerRequest::GetJobAttribute { key } => self.job_attribute(from, &key),
            ServerRequest::Publish { name, port } => self.publish(&name, &port),
            ServerRequest::Lookup { name } => self.lookup(&name),
            ServerRequest::Unpublish { name } => self.unpublish(&name),
            ServerRequest::DestroySpace { space } => self.destroy_space(&space),
            ServerRequest::PairByIndex { space, index } => self.pair_by_index(from, &space, index, index),
            ServerRequest::Plain => OperationResult::done(),
            // Draft, "Unrecognized command": an unsupported command is answered with an error code.
            ServerRequest::Unsupported => OperationResult::failed("not supported"),
            ServerRequest::Unknown => OperationResult::unknown_command(),
        };
        self.reply(from, header, answer);
        Ok(())
    }
}
