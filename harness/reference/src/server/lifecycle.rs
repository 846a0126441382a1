//! The life of a connection: init, finalize, abort, its end, and protocol errors.

use pmi_wire::{Framing, Operation, Proc, Version, place};

use super::config::Action;
use super::state::{Phase, Server, Waiting};
use crate::fault::{AbortEffect, BarrierEffect, Effect, ErrorEffect, FinalizeEffect, Line, VersionEffect};
use crate::reply::Reply;

/// The version of PMI-2 that is spoken.
const V2_0: Version = Version { version: 2, subversion: 0 };

impl Server {
    /// RFC 13, Version Negotiation. This server speaks 1.0 and 1.1, and 1.2 and 2.0 if it is set up so. A client whose highest
    /// version is lower cannot be served and is told so. It stays connected and may offer another version.
    pub(super) fn init(&mut self, from: Proc, offered: Version, line: &[u8]) {
        if self.proc(from).phase == Phase::Joined {
            return self.protocol_error(from, "init twice", line);
        }
        if self.config.pmi2 && offered.version == V2_0.version {
            self.proc(from).phase = Phase::Joined;
            self.proc(from).framing = Framing::Frames;
            let reply = Reply::ok(Operation::Init)
                .with("pmi_version", V2_0.version.to_string())
                .with("pmi_subversion", V2_0.subversion.to_string());
            return self.reply(from, reply);
        }
        if self.affected_init(from, offered) {
            return;
        }
        let reply = if offered < Version::V1_0 {
            Reply::fail(Operation::Init, format!("version {offered} is not supported, 1.0 and 1.1 are"))
        } else {
            let highest = if self.config.pmi12 { Version::V1_2 } else { Version::V1_1 };
            let used = offered.min(highest);
            self.proc(from).phase = Phase::Joined;
            self.proc(from).version = used;
            Reply::ok(Operation::Init)
                .with("pmi_version", used.version.to_string())
                .with("pmi_subversion", used.subversion.to_string())
        };
        self.reply(from, reply);
    }

    /// The process closed its connection, or it ended. Without a finalize before, that is a protocol error, because the
    /// others might wait for this process for ever.
    pub fn closed(&mut self, from: Proc) {
        if self.dead(from) {
            return;
        }
        let group = &mut self.groups[from.group as usize];
        let proc = &mut group.procs[from.rank as usize];
        let phase = std::mem::replace(&mut proc.phase, Phase::Closed);
        let partial = !proc.framer.partial().is_empty();
        group.left += u32::from(phase != Phase::Finalized);
        match phase {
            Phase::Joined if self.leaver_counts_as_entered(from) => {}
            Phase::Joined => self.protocol_error(from, "connection closed without finalize", b""),
            Phase::New if partial => self.protocol_error(from, "connection closed within a message", b""),
            // A program that never speaks PMI is lawful, but no other process may wait for it in a barrier.
            Phase::New | Phase::Finalized | Phase::Closed => {
                self.fail_barrier(from);
                self.fail_fence(from);
            }
        }
    }

    /// RFC 13, Error Handling: close the connection, abort the program, log what it was.
    pub(super) fn protocol_error(&mut self, from: Proc, what: &str, line: &[u8]) {
        if self.affected_error(from, line) {
            return;
        }
        let shown = line[..line.len().min(200)].escape_ascii();
        let reason = if line.is_empty() {
            format!("protocol error: {what}")
        } else {
            format!("protocol error: {what}: \"{shown}\"")
        };
        self.abort(from, 1, reason);
    }

    pub(super) fn abort_requested(&mut self, from: Proc, exitcode: Option<i64>) {
        if self.affected_abort(from) {
            return;
        }
        self.reply(from, Reply::ok(Operation::Abort));
        self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
    }

    pub(super) fn finalize(&mut self, from: Proc) {
        if self.affected_finalize(from) {
            return;
        }
        self.proc(from).phase = Phase::Finalized;
        self.groups[from.group as usize].left += 1;
        self.reply(from, Reply::ok(Operation::Finalize));
        self.fail_barrier(from);
    }

    // ----- effects

    /// Whether an effect has dealt with the init.
    fn affected_init(&mut self, from: Proc, offered: Version) -> bool {
        if offered == Version::V1_1 {
            return false;
        }
        let pick = |e: &Effect| if let Effect::Version(f) = e { Some(*f) } else { None };
        let Some(effect) = self.effect(from, pick) else { return false };
        let lower = offered < Version::V1_1;
        let used = match effect {
            VersionEffect::RefusesHigher | VersionEffect::RefusesLower
                if lower == (effect == VersionEffect::RefusesLower) =>
            {
                self.reply(from, Reply::fail(Operation::Init, "unknown version"));
                return true;
            }
            VersionEffect::ClosesOnLower if lower => {
                self.abort(from, 1, "unknown version".into());
                return true;
            }
            VersionEffect::AcceptsLower if lower => Version::V1_1,
            VersionEffect::Echoes => offered,
            _ => return false,
        };
        self.proc(from).phase = Phase::Joined;
        if self.config.pmi12 {
            self.proc(from).version = used;
        }
        let reply = Reply::ok(Operation::Init)
            .with("pmi_version", used.version.to_string())
            .with("pmi_subversion", used.subversion.to_string());
        self.reply(from, reply);
        true
    }

    /// Whether an effect has dealt with the finalize.
    fn affected_finalize(&mut self, from: Proc) -> bool {
        let pick = |e: &Effect| if let Effect::Finalize(f) = e { Some(*f) } else { None };
        let Some(effect) = self.effect(from, pick) else { return false };
        self.proc(from).phase = Phase::Finalized;
        self.groups[from.group as usize].left += 1;
        match effect {
            FinalizeEffect::WaitsForAll => {
                self.effect_state().held.push(from);
                let all = self.groups[from.group as usize]
                    .procs
                    .iter()
                    .all(|p| matches!(p.phase, Phase::Finalized | Phase::Closed));
                if all {
                    for p in std::mem::take(&mut self.effect_state().held) {
                        self.reply(p, Reply::ok(Operation::Finalize));
                    }
                }
            }
            FinalizeEffect::EndsGroup => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.abort(from, 0, "finalized".into());
            }
            FinalizeEffect::ForgetsKeys => {
                let state = self.effect_state();
                let gone: Vec<_> = state
                    .origins
                    .iter()
                    .filter(|((g, _), o)| *g == from.group && o.rank == from.rank)
                    .map(|((_, k), _)| k.clone())
                    .collect();
                for key in gone {
                    self.groups[from.group as usize].kvs.remove(&key);
                }
                self.reply(from, Reply::ok(Operation::Finalize));
            }
            FinalizeEffect::StopsServing => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.effect_state().mute = true;
            }
            FinalizeEffect::Closes => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.actions.push_back(Action::Close { proc: from, end: false });
            }
        }
        true
    }

    /// Whether an effect has dealt with the abort.
    fn affected_abort(&mut self, from: Proc) -> bool {
        let pick = |e: &Effect| if let Effect::Abort(f) = e { Some(*f) } else { None };
        let Some(effect) = self.effect(from, pick) else { return false };
        let size = self.size(from.group);
        let place = place(size, self.config.nodes);
        let node = |rank: u32| place.get(rank as usize).copied();
        match effect {
            AbortEffect::Ignored => self.reply(from, Reply::ok(Operation::Abort)),
            AbortEffect::SenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            AbortEffect::SparesSender => self.end_some(from.group, |rank, _| rank != from.rank),
            AbortEffect::SparesLast => self.end_some(from.group, |rank, _| size == 1 || rank + 1 != size),
            AbortEffect::SparesFinalized => self.end_some(from.group, |_, p| p.phase != Phase::Finalized),
            AbortEffect::SparesWaiting => self.end_some(from.group, |_, p| p.waiting != Waiting::Barrier),
            AbortEffect::SparesOtherNode => {
                self.end_some(from.group, |rank, _| node(rank) == node(from.rank));
            }
            AbortEffect::OpensBarrier => {
                self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
                self.abort(from, 1, "abort requested".into());
            }
        }
        true
    }

    /// Whether the barrier counts a process that left without finalize as entered, so that its leaving is no protocol error.
    fn leaver_counts_as_entered(&mut self, from: Proc) -> bool {
        if self.barrier_effect(from) != Some(BarrierEffect::LeaverCounts) {
            return false;
        }
        self.barrier_counts_leaver(from);
        true
    }

    /// Whether an effect has dealt with the protocol error.
    fn affected_error(&mut self, from: Proc, line: &[u8]) -> bool {
        if self.proc(from).phase == Phase::Closed {
            return false;
        }
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::Error(which, effect) if which.apply(&mut Line(line), &circumstances) => Some(*effect),
            _ => None,
        };
        let Some(effect) = self.effect(from, pick) else { return false };
        let spawning = self.proc(from).spawn.take().is_some();
        let cmd = line.split(|b| *b == b' ').find_map(|t| t.strip_prefix(b"cmd=")).unwrap_or(b"");
        let op = match Operation::from_request_cmd(cmd) {
            _ if spawning => Operation::Spawn,
            op => op.unwrap_or(Operation::Put),
        };
        match effect {
            ErrorEffect::Ignored => {}
            ErrorEffect::AnsweredOk => self.reply(from, Reply::ok(op)),
            ErrorEffect::AnsweredFail => self.reply(from, Reply::fail(op, "malformed")),
            ErrorEffect::OffenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            ErrorEffect::OthersOnly => self.end_some(from.group, |rank, _| rank != from.rank),
            ErrorEffect::Unlogged => self.abort(from, 1, String::new()),
        }
        true
    }
}
