//! Effects on init, finalize, abort, the end of a connection, and protocol errors.

use pmi_reference::server::{ProcessPhase, ProtocolError, ServerProcess};
use pmi_reference::{GroupId, OperationResult, ResponseHeader, ServerAction};
use pmi_wire::{Operation, Proc, Version, node_of, protocol};

use super::Server;
use crate::edit::{RequestText, command};
use crate::effect::{AbortEffect, BarrierEffect, Effect, ErrorEffect, FinalizeEffect, VersionEffect};

impl Server {
    /// Performs a finalize. If no effect handles it, the process leaves its group, which may make a barrier fail.
    pub(super) fn finalize(&mut self, from: Proc, header: &ResponseHeader) {
        if !self.affected_finalize(from, header) {
            self.server.leave(from);
            self.server.reply(from, header.clone(), OperationResult::done());
            self.fail_lost_barriers(from);
        }
    }

    /// Handles the end of a process's connection.
    pub(super) fn close(&mut self, from: Proc) {
        let joined = self.server.process(from).phase == ProcessPhase::Joined;
        match self.server.close(from) {
            // The barrier counts a process that left without finalize as having entered, so the end of its connection
            // is not a protocol error.
            Err(_) if joined && self.barrier_effect(from) == Some(BarrierEffect::LeaverCounts) => {
                if self.server.groups[from.group as usize].entered_count > 0 {
                    self.release(from.group);
                }
            }
            Err(error) => self.protocol_error(from, &error, b""),
            Ok(()) => self.fail_lost_barriers(from),
        }
    }

    pub(super) fn protocol_error(&mut self, from: Proc, error: &ProtocolError, message: &[u8]) {
        if !self.affected_error(from, message) {
            self.server.protocol_error(from, error, message);
        }
    }

    /// Terminates the processes of a group that `which` selects. All other processes continue.
    pub(super) fn close_selected(&mut self, group: GroupId, which: impl Fn(u32, &ServerProcess) -> bool) {
        for rank in 0..self.size(group) {
            let proc = Proc { group, rank };
            let process = self.server.process_mut(proc);
            if process.phase != ProcessPhase::Closed && which(rank, process) {
                process.phase = ProcessPhase::Closed;
                self.server.act(ServerAction::Close { proc, end: true });
            }
        }
    }

    /// Handles an init if an effect applies. Returns whether the init was handled.
    pub(super) fn affected_init(&mut self, from: Proc, header: &ResponseHeader, offered: Version) -> bool {
        let is_of_pmi2 = self.server.config.pmi2 && offered.version == 2;
        if offered == Version::V1_1 || is_of_pmi2 || self.server.process(from).phase == ProcessPhase::Joined {
            return false;
        }
        let Some(effect) = self.pick(from, picked!(Effect::Version)) else { return false };
        let lower = offered < Version::V1_1;
        let used = match effect {
            VersionEffect::RefusesHigher | VersionEffect::RefusesLower
                if lower == (effect == VersionEffect::RefusesLower) =>
            {
                self.server.reply(from, header.clone(), OperationResult::failed("unknown version"));
                return true;
            }
            VersionEffect::ClosesOnLower if lower => {
                self.server.abort(from, 1, "unknown version".into());
                return true;
            }
            VersionEffect::AcceptsLower if lower => Version::V1_1,
            VersionEffect::Echoes => offered,
            _ => return false,
        };
        if self.server.config.pmi12 {
            self.server.process_mut(from).version = used;
        }
        self.server.join(from, header.clone(), used);
        true
    }

    /// Handles a finalize if an effect applies. Returns whether the finalize was handled.
    fn affected_finalize(&mut self, from: Proc, header: &ResponseHeader) -> bool {
        let Some(effect) = self.pick(from, picked!(Effect::Finalize)) else { return false };
        self.server.leave(from);
        if effect != FinalizeEffect::WaitsForAll {
            self.server.reply(from, header.clone(), OperationResult::done());
        }
        match effect {
            FinalizeEffect::WaitsForAll => {
                self.state().held.push((from, header.clone()));
                let all = self.server.groups[from.group as usize]
                    .procs
                    .iter()
                    .all(|p| matches!(p.phase, ProcessPhase::Finalized | ProcessPhase::Closed));
                if all {
                    for (p, header) in std::mem::take(&mut self.state().held) {
                        self.server.reply(p, header, OperationResult::done());
                    }
                }
            }
            FinalizeEffect::EndsGroup => self.server.abort(from, 0, "finalized".into()),
            FinalizeEffect::ForgetsKeys => {
                let state = self.state();
                let gone: Vec<_> = state
                    .origins
                    .iter()
                    .filter(|((g, _), o)| *g == from.group && o.rank == from.rank)
                    .map(|((_, k), _)| k.clone())
                    .collect();
                for key in gone {
                    self.server.groups[from.group as usize].kvs.remove(&key);
                }
            }
            FinalizeEffect::StopsServing => self.state().stopped_answering = true,
            FinalizeEffect::Closes => self.server.act(ServerAction::Close { proc: from, end: false }),
        }
        true
    }

    /// Handles an abort if an effect applies. Returns whether the abort was handled.
    pub(super) fn affected_abort(&mut self, from: Proc, header: &ResponseHeader) -> bool {
        let Some(effect) = self.pick(from, picked!(Effect::Abort)) else { return false };
        let size = self.size(from.group);
        let nodes = self.server.config.nodes;
        let node = |rank: u32| node_of(rank, size, nodes);
        match effect {
            AbortEffect::Ignored => self.server.reply(from, header.clone(), OperationResult::done()),
            AbortEffect::SenderOnly => self.close_selected(from.group, |rank, _| rank == from.rank),
            AbortEffect::SparesSender => self.close_selected(from.group, |rank, _| rank != from.rank),
            AbortEffect::SparesLast => {
                self.close_selected(from.group, |rank, _| size == 1 || rank + 1 != size)
            }
            AbortEffect::SparesFinalized => {
                self.close_selected(from.group, |_, p| p.phase != ProcessPhase::Finalized)
            }
            AbortEffect::SparesWaiting => self.close_selected(from.group, |_, p| !p.is_in_barrier()),
            AbortEffect::SparesOtherNode => {
                self.close_selected(from.group, |rank, _| node(rank) == node(from.rank));
            }
            AbortEffect::OpensBarrier => {
                self.release(from.group);
                self.server.abort(from, 1, "abort requested".into());
            }
        }
        true
    }

    /// Handles a protocol error if an effect applies. Returns whether the error was handled.
    fn affected_error(&mut self, from: Proc, line: &[u8]) -> bool {
        if self.server.process(from).phase == ProcessPhase::Closed {
            return false;
        }
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::Error(which, effect) if which.apply(&mut RequestText(line), &circumstances) => {
                Some(*effect)
            }
            _ => None,
        };
        let Some(effect) = self.pick(from, pick) else { return false };
        let spawning = self.server.process_mut(from).spawn.take().is_some();
        let framing = self.server.process(from).framing;
        let named = protocol::by_request(framing, command(line)).filter(|_| !spawning);
        let other = if spawning { Operation::Spawn } else { Operation::Put };
        let header = ResponseHeader::new(framing, named.or(Some(other.exchange())));
        match effect {
            ErrorEffect::Ignored => {}
            ErrorEffect::AnsweredOk => self.server.reply(from, header, OperationResult::done()),
            ErrorEffect::AnsweredFail => {
                self.server.reply(from, header, OperationResult::failed("malformed"))
            }
            ErrorEffect::OffenderOnly => self.close_selected(from.group, |rank, _| rank == from.rank),
            ErrorEffect::OthersOnly => self.close_selected(from.group, |rank, _| rank != from.rank),
            ErrorEffect::Unlogged => self.server.abort(from, 1, String::new()),
        }
        true
    }
}
