//! Spawn.

use pmi_reference::server::{Asked, ProtocolError};
use pmi_reference::{GroupId, Reply};
use pmi_wire::{Operation, Proc, SpawnProgram, SpawnRequest};

use super::{Server, is_own_key};
use crate::effect::{Effect, SpawnEffect};

/// Returns whether the effect shows when the group has been made, and not when the request comes.
fn at_start(effect: SpawnEffect) -> bool {
    matches!(effect, SpawnEffect::CopiesParentKvs | SpawnEffect::NoPreput | SpawnEffect::PreputAtBarrier)
}

impl Server {
    /// Spawns what is asked for, as effects have it.
    pub(super) fn spawn(&mut self, by: Proc, request: SpawnRequest) -> Result<(), ProtocolError> {
        match self.affect_spawn(by, request) {
            Some(request) => self.server.perform(by, Asked::Spawn(request)),
            None => Ok(()),
        }
    }

    /// The request as effects have it; none if they have dealt with it.
    fn affect_spawn(&mut self, by: Proc, mut request: SpawnRequest) -> Option<SpawnRequest> {
        self.each(
            by,
            |e| if let Effect::SpawnRequest(f) = e { Some(*f) } else { None },
            |edit, circumstances| {
                edit.apply(&mut request, circumstances);
            },
        );
        match self
            .pick(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| !at_start(*f)))
        {
            Some(SpawnEffect::Refused) => {
                self.server.reply(by, Reply::fail(Operation::Spawn, "not here"));
                return None;
            }
            Some(SpawnEffect::AnswerPerProgram) => {
                for _ in 1..request.programs.len() {
                    self.server.reply(by, Reply::ok(Operation::Spawn));
                }
            }
            Some(SpawnEffect::EarlyAnswer) => {
                self.server.reply(by, Reply::ok(Operation::Spawn));
            }
            Some(SpawnEffect::NeverStarts) => {
                self.server.reply(by, Reply::ok(Operation::Spawn));
                return None;
            }
            Some(SpawnEffect::PreputIntoParent) => {
                let pairs: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
                self.server.groups[by.group as usize].kvs.extend(pairs);
            }
            _ => {}
        }
        Some(request)
    }

    /// What is started, as effects have it. The group has been made.
    pub(super) fn affect_start(
        &mut self,
        by: Proc,
        group: GroupId,
        mut request: SpawnRequest,
    ) -> Vec<SpawnProgram> {
        self.each(
            by,
            |e| if let Effect::SpawnStart(f) = e { Some(*f) } else { None },
            |edit, circumstances| {
                edit.apply(&mut request, circumstances);
            },
        );
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
        match self
            .pick(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| at_start(*f)))
        {
            Some(SpawnEffect::CopiesParentKvs) => {
                let parents = self.server.groups[by.group as usize].kvs.clone();
                for (key, value) in parents {
                    self.server.groups[group as usize].kvs.entry(key).or_insert(value);
                }
            }
            Some(SpawnEffect::NoPreput) => {
                self.server.groups[group as usize].kvs.retain(|k, _| is_own_key(k))
            }
            Some(SpawnEffect::PreputAtBarrier) => {
                self.server.groups[group as usize].kvs.retain(|k, _| is_own_key(k));
                let later = preput.into_iter().map(|(k, v)| (group, k, v));
                self.state().deferred.extend(later);
            }
            _ => {}
        }
        request.programs
    }
}
