//! The server's half of PMI-1 for any number of process groups.
//!
//! No sockets, processes or clocks: bytes and process events go in through [`Server::receive`],
//! [`Server::closed`] and [`Server::spawned`]; what to do comes out of [`Server::next_action`].
//! The answers are those of RFC 13 to the letter; where the RFC leaves a choice the doc comment of the
//! handler says which one was taken.
//!
//! `state` is what a server knows. Each subject has a file with its handlers as RFC 13 has them and, below those, what the
//! effects of faults and variations make of them; here requests are read and handed to their handlers. What the driver
//! and the server tell each other is in `config`, what effects remember in `effects`.

mod barrier;
mod config;
mod effects;
mod group_barrier;
mod held;
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

use pmi_wire::{Framer, Framing, Operation, Proc, Request, SpawnAssembler, ValueReading};

pub use config::{Action, Config, GroupId, GroupSpec};
pub use state::Server;

use crate::fault::{Edit, Effect, Line};
use state::{Phase, Waiting};

impl Server {
    /// Bytes from a process.
    pub fn receive(&mut self, from: Proc, bytes: &[u8]) {
        if self.dead(from) {
            return;
        }
        let heard = self.affect_read(from, bytes);
        let bytes = heard.as_deref().unwrap_or(bytes);
        let line_max = self.config.line_max;
        let mut framer = std::mem::replace(&mut self.proc(from).framer, Framer::new(line_max));
        framer.push(bytes);
        while self.message(from, &mut framer) {
            if self.dead(from) {
                return;
            }
        }
        self.proc(from).framer = framer;
    }

    /// Reads the next message; whether there was one.
    fn message(&mut self, from: Proc, framer: &mut Framer) -> bool {
        let error = match self.proc(from).framing {
            Framing::Lines => match framer.next_line() {
                None => return false,
                Some(Ok(line)) => {
                    self.line(from, line);
                    return true;
                }
                Some(Err(overlong)) => overlong.to_string(),
            },
            Framing::Frames => match framer.next_frame() {
                None => return false,
                Some(Ok(body)) => {
                    if !self.is_mute() && !self.rejects(from, body) {
                        self.frame(from, body);
                    }
                    return true;
                }
                Some(Err(error)) => error.to_string(),
            },
        };
        self.protocol_error(from, &error, b"");
        true
    }

    fn is_mute(&self) -> bool {
        self.effects.as_ref().is_some_and(|effects| effects.mute)
    }

    fn line(&mut self, from: Proc, line: &[u8]) {
        if self.effects.is_some() {
            if let Some(line) = self.affect_line(from, line) {
                self.request_line(from, &line);
            }
        } else {
            self.request_line(from, line);
        }
    }

    fn request_line(&mut self, from: Proc, line: &[u8]) {
        let is_spawn = self.proc(from).spawn.is_some() || SpawnAssembler::is_spawn_start(line);
        let proc = self.proc(from);
        match proc.waiting {
            Waiting::Nothing => {}
            // PMI-1.2: barriers stay open while other requests are made.
            Waiting::Barrier if !is_spawn && proc.version.has_group_barriers() => {}
            // RFC 13, Wire Protocol: requests and responses are exchanged in lock-step.
            Waiting::Barrier => return self.protocol_error(from, "request while in the barrier", line),
            Waiting::Spawn => return self.protocol_error(from, "request while a spawn is answered", line),
        }
        if is_spawn {
            return self.spawn_line(from, line);
        }
        let request = match Request::parse(line, ValueReading::ToEndOfLine) {
            Ok(request) => request,
            Err(_) if self.keyval_space_request(from, line) => return,
            // RFC 13's grammar does not derive it: a protocol error.
            Err(error) => return self.protocol_error(from, &error.to_string(), line),
        };
        match (self.proc(from).phase, request.operation()) {
            (Phase::New, Operation::Init) | (Phase::Joined, _) => {}
            (Phase::New, _) => return self.protocol_error(from, "request before init", line),
            (Phase::Finalized | Phase::Closed, _) => {
                return self.protocol_error(from, "request after finalize", line);
            }
        }
        if request == Request::Finalize
            && (self.proc(from).waiting == Waiting::Barrier || self.has_part_open(from))
        {
            return self.protocol_error(from, "finalize while in a barrier", line);
        }
        if matches!(request, Request::Put { .. } | Request::Get { .. }) && self.keeps_lock_step(from) {
            return self.protocol_error(from, "request while in a barrier", line);
        }
        match request {
            Request::Init(offered) => self.init(from, offered, line),
            Request::Maxes => self.maxes(from),
            Request::Abort { exitcode } => self.abort_requested(from, exitcode),
            Request::Finalize => self.finalize(from),
            Request::Universe => self.universe(from),
            Request::Appnum => self.appnum(from),
            Request::Put { kvsname, key, value } => self.put(from, kvsname, key, value),
            Request::Kvsname => self.kvsname(from),
            Request::Barrier { group } => self.enter(from, group, line),
            Request::Get { kvsname, key } => self.get(from, kvsname, key),
            Request::Publish { service, port } => self.publish(from, service, port),
            Request::Unpublish { service } => self.unpublish(from, service),
            Request::Lookup { service } => self.lookup(from, service),
        }
    }

    // ----- effects

    fn affect_read(&mut self, from: Proc, bytes: &[u8]) -> Option<Vec<u8>> {
        self.effects.as_ref()?;
        let spawns = bytes.starts_with(b"mcmd=");
        self.effect_state().burst = !spawns && bytes.iter().filter(|b| **b == b'\n').count() > 1;
        let edit = self.effect(from, |e| if let Effect::Read(f) = e { Some(*f) } else { None })?;
        let mut heard = bytes.to_vec();
        edit.apply(&mut heard, &self.circumstances(from));
        Some(heard)
    }

    /// Whether a lawful request is taken for a protocol error.
    fn rejects(&mut self, from: Proc, request: &[u8]) -> bool {
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::Reject(which) => which.apply(&mut Line(request), &circumstances).then_some(()),
            _ => None,
        };
        let rejected = self.effect(from, pick).is_some();
        if rejected {
            self.protocol_error(from, "not understood", request);
        }
        rejected
    }

    /// The request that the server takes a line for, if any.
    fn affect_line(&mut self, from: Proc, line: &[u8]) -> Option<Vec<u8>> {
        if self.effect_state().mute {
            return None;
        }
        let in_spawn = self.proc(from).spawn.is_some() || line.starts_with(b"mcmd=");
        if !in_spawn && self.rejects(from, line) {
            return None;
        }
        if line == b"cmd=barrier_in" && self.counts_twice(from) {
            return None;
        }
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| if let Effect::Hear(which, edit) = e { Some((*which, *edit)) } else { None };
        let edit = self.effect(from, pick).filter(|(which, _)| which.apply(&mut Line(line), &circumstances));
        let mut heard = line.to_vec();
        match edit {
            Some((_, Edit(&[]))) => return None,
            Some((_, edit)) => drop(edit.apply(&mut heard, &circumstances)),
            None => {}
        }
        Some(heard)
    }
}
