//! Effects on spawn.

use pmi_reference::{GroupId, OperationResult, ResponseHeader};
use pmi_wire::{Proc, SpawnProgram, SpawnRequest};

use super::{Server, is_own_key};
use crate::effect::{Effect, SpawnEffect};

/// Returns whether the effect applies when the group is created, rather than when the request arrives.
fn at_start(effect: SpawnEffect) -> bool {
    matches!(effect, SpawnEffect::CopiesParentKvs | SpawnEffect::NoPreput | SpawnEffect::PreputAtBarrier)
}

impl Server {
    /// Changes a spawn request according to the effects. Returns whether an effect has handled it.
    pub(super) fn affected_spawn(
        &mut self,
        by: Proc,
        header: &ResponseHeader,
        request: &mut SpawnRequest,
    ) -> bool {
        self.edit(by, picked!(Effect::SpawnRequest), request);
        let early = |server: &mut Self| server.server.reply(by, header.clone(), OperationResult::done());
        match self.pick(by, |e| picked!(Effect::Spawn)(e).filter(|f| !at_start(*f))) {
            Some(SpawnEffect::Refused) => {
                self.server.reply(by, header.clone(), OperationResult::failed("not here"));
                return true;
            }
            Some(SpawnEffect::AnswerPerProgram) => (1..request.programs.len()).for_each(|_| early(self)),
            Some(SpawnEffect::EarlyAnswer) => early(self),
            Some(SpawnEffect::NeverStarts) => {
                early(self);
                return true;
            }
            Some(SpawnEffect::PreputIntoParent) => {
                let pairs: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
                self.server.groups[by.group as usize].kvs.extend(pairs);
            }
            _ => {}
        }
        false
    }

    /// Returns the programs to start, as changed by effects. The group has already been created.
    pub(super) fn affect_start(
        &mut self,
        by: Proc,
        group: GroupId,
        mut request: SpawnRequest,
    ) -> Vec<SpawnProgram> {
        self.edit(by, picked!(Effect::SpawnStart), &mut request);
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
        match self.pick(by, |e| picked!(Effect::Spawn)(e).filter(|f| at_start(*f))) {
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
