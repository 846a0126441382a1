//! The server's half of PMI for any number of process groups.
//!
//! No sockets, processes or clocks: bytes and process events go in through [`Server::receive`],
//! [`Server::closed`] and [`Server::spawned`]; what to do comes out of [`Server::next_action`].
//! The answers are those of RFC 13 to the letter; where the RFC leaves a choice the doc comment of the
//! handler says which one was taken.
//!
//! `state` is what a server knows. Each subject has a file with its handlers; here messages are read ([`Server::read`]) and handed to
//! their handlers ([`Server::perform`]). `config` is what the driver and the server exchange. The parts that `receive` consists of are
//! public, so that a wrapper can change what goes through it.

mod asked;
mod barrier;
mod config;
mod group_barrier;
mod job_info;
mod keyval_space;
mod kvs;
mod lifecycle;
mod names;
mod open_barrier;
mod pmi2;
mod port;
mod singleton;
mod spawn;
mod state;

use pmi_wire::{Framer, Framing, KeyvalSpaceRequest, Operation, Proc, Request, SpawnAssembler, ValueReading};

use crate::reply::Reply;
pub use asked::Asked;
pub use config::{Action, Config, GroupId, GroupSpec};
pub use lifecycle::ProtocolError;
pub use open_barrier::{Kind, Name, OpenBarrier};
pub use pmi2::FAILED;
pub use state::{Awaits, Group, Held, KeyvalSpace, Output, Phase, Process, Server, Waiting};

impl Server {
    /// Reads bytes from a process, and does what they ask for.
    pub fn receive(&mut self, from: Proc, bytes: &[u8]) {
        if self.is_gone(from) {
            return;
        }
        let mut framer = self.take_framer(from);
        framer.push(bytes);
        while let Some(message) = self.next_message(from, &mut framer) {
            match message {
                Ok(message) => {
                    let asked = self.read(from, message);
                    let done =
                        asked.and_then(|asked| asked.map_or(Ok(()), |asked| self.perform(from, asked)));
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

    /// Takes out the framer of a process while its messages are read.
    pub fn take_framer(&mut self, from: Proc) -> Framer {
        let line_max = self.config.line_max;
        std::mem::replace(&mut self.process_mut(from).framer, Framer::new(line_max))
    }

    /// Takes the next message out of a framer, without its newline or its length.
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

    /// Reads a message, and checks that the process may say it now. Returns nothing for a part of a request.
    ///
    /// # Errors
    ///
    /// If the message, or the message at this time, is a protocol error.
    pub fn read<'a>(&mut self, from: Proc, message: &'a [u8]) -> Result<Option<Asked<'a>>, ProtocolError> {
        match self.process(from).framing {
            Framing::Lines => self.read_line(from, message),
            Framing::Frames => self.read_frame(from, message),
        }
    }

    fn read_line<'a>(&mut self, from: Proc, line: &'a [u8]) -> Result<Option<Asked<'a>>, ProtocolError> {
        let proc = self.process(from);
        let is_spawn = proc.spawn.is_some() || SpawnAssembler::is_spawn_start(line);
        match proc.waiting {
            Waiting::Nothing => {}
            // PMI-1.2: barriers stay open while other requests are made.
            Waiting::Barrier if !is_spawn && proc.version.has_group_barriers() => {}
            // RFC 13, Wire Protocol: requests and responses are exchanged in lock-step.
            Waiting::Barrier => return Err("request while in the barrier".into()),
            Waiting::Spawn => return Err("request while a spawn is answered".into()),
        }
        let phase = proc.phase;
        let in_time = |op| match (phase, op) {
            (Phase::New, Some(Operation::Init)) | (Phase::Joined, _) => Ok(()),
            (Phase::New, _) => Err(ProtocolError::from("request before init")),
            (Phase::Finalized | Phase::Closed, _) => Err("request after finalize".into()),
        };
        if is_spawn {
            in_time(None)?;
            return Ok(self.spawn_line(from, line)?.map(Asked::Spawn));
        }
        let request = match Request::parse(line, ValueReading::ToEndOfLine) {
            Ok(request) => request,
            // RFC 13's grammar does not derive it: a protocol error.
            Err(error) => {
                let other = KeyvalSpaceRequest::parse(line).filter(|_| self.config.keyval_spaces);
                let other = other.filter(|_| phase == Phase::Joined);
                return other
                    .map(|request| Some(Asked::KeyvalSpace(request)))
                    .ok_or(error.to_string().into());
            }
        };
        in_time(Some(request.operation()))?;
        let is_in_barrier = || self.process(from).waiting == Waiting::Barrier || self.has_part_open(from);
        if request == Request::Finalize && is_in_barrier() {
            return Err("finalize while in a barrier".into());
        }
        Ok(Some(Asked::Line(request)))
    }

    /// Does what is asked for.
    ///
    /// # Errors
    ///
    /// If the request turns out to be a protocol error.
    pub fn perform(&mut self, from: Proc, asked: Asked<'_>) -> Result<(), ProtocolError> {
        match asked {
            Asked::Line(request) => return self.perform_line(from, request),
            Asked::Spawn(request) => self.spawn(from, request),
            Asked::KeyvalSpace(request) => self.keyval_space_request(from, request),
            Asked::Frame { thrid, request } => self.frame(from, thrid, request),
            Asked::UnknownFrame { thrid, command } => self.unknown_command(from, thrid, &command),
        }
        Ok(())
    }

    fn perform_line(&mut self, from: Proc, request: Request<'_>) -> Result<(), ProtocolError> {
        match request {
            Request::Init(offered) => return self.init(from, offered),
            Request::Barrier { group } => return self.enter(from, group),
            Request::Maxes => self.maxes(from),
            Request::Abort { exitcode } => self.abort_requested(from, exitcode),
            Request::Finalize => self.finalize(from),
            Request::Universe => self.universe(from),
            Request::Appnum => self.appnum(from),
            Request::Put { kvsname, key, value } => self.put(from, kvsname, key, value),
            Request::Kvsname => self.kvsname(from),
            Request::Get { kvsname, key } => self.get(from, kvsname, key),
            Request::Publish { service, port } => {
                let published = self.publish(service, port);
                self.reply(from, Reply::of(Operation::Publish, published));
            }
            Request::Unpublish { service } => {
                let unpublished = self.unpublish(service);
                self.reply(from, Reply::of(Operation::Unpublish, unpublished));
            }
            Request::Lookup { service } => {
                let reply = match self.lookup(service) {
                    Ok(port) => Reply::ok(Operation::Lookup).with("port", port.clone()),
                    Err(why) => Reply::fail(Operation::Lookup, why),
                };
                self.reply(from, reply);
            }
        }
        Ok(())
    }
}
