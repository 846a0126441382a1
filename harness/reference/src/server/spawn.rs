//! Spawn.

use pmi_wire::{Operation, Proc, SpawnCollector, SpawnLimits, SpawnProgram, SpawnRequest};

use super::config::{Action, GroupId, GroupSpec};
use super::state::{Phase, Server, Waiting, own_key};
use crate::fault::{Effect, SpawnEffect};
use crate::reply::Reply;

/// Whether the effect shows when the group has been made, and not when the request comes.
fn at_start(effect: SpawnEffect) -> bool {
    matches!(effect, SpawnEffect::CopiesParentKvs | SpawnEffect::NoPreput | SpawnEffect::PreputAtBarrier)
}

impl Server {
    pub(super) fn spawn_line(&mut self, from: Proc, line: &[u8]) {
        match self.proc(from).phase {
            Phase::Joined => {}
            Phase::New => return self.protocol_error(from, "request before init", line),
            Phase::Finalized | Phase::Closed => {
                return self.protocol_error(from, "request after finalize", line);
            }
        }
        match self
            .proc(from)
            .spawn
            .get_or_insert_with(|| Box::new(SpawnCollector::new(SpawnLimits::default())))
            .push_line(line)
        {
            Ok(None) => {}
            Ok(Some(request)) => {
                self.proc(from).spawn = None;
                self.spawn(from, request);
            }
            Err(error) => self.protocol_error(from, &error.to_string(), line),
        }
    }

    /// RFC 13, PMI_Spawn_multiple: all programs make one new process group, and the preput pairs are in its keyval space
    /// before a process starts. The preput pairs of every program count, since each message carries its own.
    fn spawn(&mut self, by: Proc, request: SpawnRequest) {
        let Some(request) = self.affect_spawn(by, request) else { return };
        let total: u64 = request.programs.iter().map(|p| p.nprocs).fold(0, u64::saturating_add);
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.iter().cloned()).collect();
        let refused = if total == 0 {
            "no processes asked for"
        } else if total > self.config.spawn_max {
            "too many processes asked for"
        } else if preput.iter().any(|(k, v)| !self.fits(k, v).0) {
            "preput key too long"
        } else if preput.iter().any(|(k, v)| !self.fits(k, v).1) {
            "preput value too long"
        } else {
            let programs = request.programs.iter().map(|p| p.nprocs as u32).collect();
            let group = self.add_group(GroupSpec { programs, preput, spawned: true });
            self.proc(by).waiting = Waiting::Spawn;
            self.spawns.push((group, by));
            let programs = self.affect_start(by, group, request.programs);
            self.actions.push_back(Action::Spawn { group, by, programs });
            return;
        };
        self.reply(by, Reply::fail(Operation::Spawn, refused));
    }

    /// The programs of an [`Action::Spawn`] have been started: there is one error code for each process, 0 for success. If
    /// any of them is not 0, the whole spawn has failed and the group is gone.
    pub fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        let Some(at) = self.spawns.iter().position(|(g, _)| *g == group) else { return };
        let (_, by) = self.spawns.swap_remove(at);
        if !self.dead(by) && self.pmi2_spawned(by, group, errcodes) {
            return;
        }
        let list = errcodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut reply = if errcodes.iter().all(|c| *c == 0) {
            Reply::ok(Operation::Spawn)
        } else {
            self.groups[group as usize].aborted = true;
            Reply::fail(Operation::Spawn, "spawn failed")
        };
        if !list.is_empty() {
            reply = reply.with("errcodes", list);
        }
        if !self.dead(by) {
            self.proc(by).waiting = Waiting::Nothing;
            self.reply(by, reply);
        }
    }

    // ----- effects

    /// The request as effects have it; none if they have dealt with it.
    fn affect_spawn(&mut self, by: Proc, mut request: SpawnRequest) -> Option<SpawnRequest> {
        if self.effects.is_none() {
            return Some(request);
        }
        self.each_effect(
            by,
            |e| if let Effect::SpawnRequest(f) = e { Some(*f) } else { None },
            |edit, circumstances| {
                edit.apply(&mut request, circumstances);
            },
        );
        match self
            .effect(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| !at_start(*f)))
        {
            Some(SpawnEffect::Refused) => {
                self.reply(by, Reply::fail(Operation::Spawn, "not here"));
                return None;
            }
            Some(SpawnEffect::AnswerPerProgram) => {
                for _ in 1..request.programs.len() {
                    self.reply(by, Reply::ok(Operation::Spawn));
                }
            }
            Some(SpawnEffect::EarlyAnswer) => {
                self.reply(by, Reply::ok(Operation::Spawn));
            }
            Some(SpawnEffect::NeverStarts) => {
                self.reply(by, Reply::ok(Operation::Spawn));
                return None;
            }
            Some(SpawnEffect::PreputIntoParent) => {
                let pairs: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
                self.groups[by.group as usize].kvs.extend(pairs);
            }
            _ => {}
        }
        Some(request)
    }

    /// What is started, as effects have it. The group has been made.
    fn affect_start(&mut self, by: Proc, group: GroupId, programs: Vec<SpawnProgram>) -> Vec<SpawnProgram> {
        if self.effects.is_none() {
            return programs;
        }
        let mut request = SpawnRequest { programs };
        self.each_effect(
            by,
            |e| if let Effect::SpawnStart(f) = e { Some(*f) } else { None },
            |edit, circumstances| {
                edit.apply(&mut request, circumstances);
            },
        );
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
        match self
            .effect(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| at_start(*f)))
        {
            Some(SpawnEffect::CopiesParentKvs) => {
                let parents = self.groups[by.group as usize].kvs.clone();
                for (key, value) in parents {
                    self.groups[group as usize].kvs.entry(key).or_insert(value);
                }
            }
            Some(SpawnEffect::NoPreput) => self.groups[group as usize].kvs.retain(|k, _| own_key(k)),
            Some(SpawnEffect::PreputAtBarrier) => {
                self.groups[group as usize].kvs.retain(|k, _| own_key(k));
                let later = preput.into_iter().map(|(k, v)| (group, k, v));
                self.effect_state().deferred.extend(later);
            }
            _ => {}
        }
        request.programs
    }
}
