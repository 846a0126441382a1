//! Init, finalize, abort, the end of a connection, and protocol errors.

use pmi_reference::server::{Phase, Process, ProtocolError, Waiting};
use pmi_reference::{Action, GroupId, Reply};
use pmi_wire::{Operation, Proc, Version, place};

use super::Server;
use crate::edit::Line;
use crate::effect::{AbortEffect, BarrierEffect, Effect, ErrorEffect, FinalizeEffect, VersionEffect};

impl Server {
    /// Does what a finalize asks for. It is dealt with in any case, because it may fail a barrier.
    pub(super) fn finalize(&mut self, from: Proc) -> bool {
        if !self.affected_finalize(from) {
            self.server.leave(from);
            self.server.reply(from, Reply::ok(Operation::Finalize));
            self.fail_barrier(from);
        }
        true
    }

    /// Counts a process as gone.
    pub(super) fn close(&mut self, from: Proc) {
        let joined = self.server.process(from).phase == Phase::Joined;
        match self.server.close(from) {
            // The barrier counts a process that left without finalize as entered: no protocol error.
            Err(_) if joined && self.barrier_effect(from) == Some(BarrierEffect::LeaverCounts) => {
                if self.server.groups[from.group as usize].entered > 0 {
                    self.release(from.group);
                }
            }
            Err(error) => self.protocol_error(from, &error, b""),
            Ok(()) => {
                self.fail_barrier(from);
                self.server.fail_fence(from.group);
            }
        }
    }

    /// Does what the server does at a protocol error.
    pub(super) fn protocol_error(&mut self, from: Proc, error: &ProtocolError, message: &[u8]) {
        if !self.affected_error(from, message) {
            self.server.protocol_error(from, error, message);
        }
    }

    /// Ends those processes of a group that `which` picks, and leaves the others alone.
    pub(super) fn end_some(&mut self, group: GroupId, which: impl Fn(u32, &Process) -> bool) {
        for rank in 0..self.size(group) {
            let proc = Proc { group, rank };
            let process = self.server.process_mut(proc);
            if process.phase != Phase::Closed && which(rank, process) {
                process.phase = Phase::Closed;
                self.server.act(Action::Close { proc, end: true });
            }
        }
    }

    /// Returns whether an effect has dealt with the init.
    pub(super) fn affected_init(&mut self, from: Proc, offered: Version) -> bool {
        let is_of_pmi2 = self.server.config.pmi2 && offered.version == 2;
        if offered == Version::V1_1 || is_of_pmi2 || self.server.process(from).phase == Phase::Joined {
            return false;
        }
        let pick = |e: &Effect| if let Effect::Version(f) = e { Some(*f) } else { None };
        let Some(effect) = self.pick(from, pick) else { return false };
        let lower = offered < Version::V1_1;
        let used = match effect {
            VersionEffect::RefusesHigher | VersionEffect::RefusesLower
                if lower == (effect == VersionEffect::RefusesLower) =>
            {
                self.server.reply(from, Reply::fail(Operation::Init, "unknown version"));
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
        self.server.join(from, used);
        true
    }

    /// Returns whether an effect has dealt with the finalize.
    fn affected_finalize(&mut self, from: Proc) -> bool {
        let pick = |e: &Effect| if let Effect::Finalize(f) = e { Some(*f) } else { None };
        let Some(effect) = self.pick(from, pick) else { return false };
        self.server.leave(from);
        match effect {
            FinalizeEffect::WaitsForAll => {
                self.state().held.push(from);
                let all = self.server.groups[from.group as usize]
                    .procs
                    .iter()
                    .all(|p| matches!(p.phase, Phase::Finalized | Phase::Closed));
                if all {
                    for p in std::mem::take(&mut self.state().held) {
                        self.server.reply(p, Reply::ok(Operation::Finalize));
                    }
                }
            }
            FinalizeEffect::EndsGroup => {
                self.server.reply(from, Reply::ok(Operation::Finalize));
                self.server.abort(from, 0, "finalized".into());
            }
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
                self.server.reply(from, Reply::ok(Operation::Finalize));
            }
            FinalizeEffect::StopsServing => {
                self.server.reply(from, Reply::ok(Operation::Finalize));
                self.state().mute = true;
            }
            FinalizeEffect::Closes => {
                self.server.reply(from, Reply::ok(Operation::Finalize));
                self.server.act(Action::Close { proc: from, end: false });
            }
        }
        true
    }

    /// Returns whether an effect has dealt with the abort.
    pub(super) fn affected_abort(&mut self, from: Proc) -> bool {
        let pick = |e: &Effect| if let Effect::Abort(f) = e { Some(*f) } else { None };
        let Some(effect) = self.pick(from, pick) else { return false };
        let size = self.size(from.group);
        let place = place(size, self.server.config.nodes);
        let node = |rank: u32| place.get(rank as usize).copied();
        match effect {
            AbortEffect::Ignored => self.server.reply(from, Reply::ok(Operation::Abort)),
            AbortEffect::SenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            AbortEffect::SparesSender => self.end_some(from.group, |rank, _| rank != from.rank),
            AbortEffect::SparesLast => self.end_some(from.group, |rank, _| size == 1 || rank + 1 != size),
            AbortEffect::SparesFinalized => self.end_some(from.group, |_, p| p.phase != Phase::Finalized),
            AbortEffect::SparesWaiting => self.end_some(from.group, |_, p| p.waiting != Waiting::Barrier),
            AbortEffect::SparesOtherNode => {
                self.end_some(from.group, |rank, _| node(rank) == node(from.rank));
            }
            AbortEffect::OpensBarrier => {
                self.release(from.group);
                self.server.abort(from, 1, "abort requested".into());
            }
        }
        true
    }

    /// Returns whether an effect has dealt with the protocol error.
    fn affected_error(&mut self, from: Proc, line: &[u8]) -> bool {
        if self.server.process(from).phase == Phase::Closed {
            return false;
        }
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::Error(which, effect) if which.apply(&mut Line(line), &circumstances) => Some(*effect),
            _ => None,
        };
        let Some(effect) = self.pick(from, pick) else { return false };
        let spawning = self.server.process_mut(from).spawn.take().is_some();
        let cmd = line.split(|b| *b == b' ').find_map(|t| t.strip_prefix(b"cmd=")).unwrap_or(b"");
        let op = match Operation::from_request_cmd(cmd) {
            _ if spawning => Operation::Spawn,
            op => op.unwrap_or(Operation::Put),
        };
        match effect {
            ErrorEffect::Ignored => {}
            ErrorEffect::AnsweredOk => self.server.reply(from, Reply::ok(op)),
            ErrorEffect::AnsweredFail => self.server.reply(from, Reply::fail(op, "malformed")),
            ErrorEffect::OffenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            ErrorEffect::OthersOnly => self.end_some(from.group, |rank, _| rank != from.rank),
            ErrorEffect::Unlogged => self.server.abort(from, 1, String::new()),
        }
        true
    }
}
