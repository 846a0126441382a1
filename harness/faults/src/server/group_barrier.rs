//! Effects on barriers over part of a process group (PMI-1.2).

use pmi_reference::server::{BarrierIdentity, ProtocolError};
use pmi_reference::{OperationResult, ResponseHeader};
use pmi_wire::{GroupBarrier, Members, Proc};

use super::Server;
use crate::effect::{Effect, GroupBarrierEffect};

impl Server {
    /// Enters the barrier that a request names. Returns false if the reference server must handle the request instead.
    pub(super) fn enter(
        &mut self,
        from: Proc,
        header: &ResponseHeader,
        group: Option<&[u8]>,
    ) -> Result<bool, ProtocolError> {
        let has_groups = self.server.process(from).version.has_group_barriers();
        let barrier = match group.filter(|_| has_groups).map(GroupBarrier::parse) {
            None => GroupBarrier::PLAIN,
            Some(Ok(barrier)) => barrier,
            Some(Err(_)) if self.is_affected(from, GroupBarrierEffect::NobodyOpens) => {
                self.server.reply(from, header.clone(), OperationResult::done().with("tag", "0"));
                return Ok(true);
            }
            Some(Err(_)) => return Ok(false),
        };
        if barrier != GroupBarrier::PLAIN {
            return self.enter_part(from, barrier);
        }
        if has_groups && self.is_affected(from, GroupBarrierEffect::PlainNever) {
            return Ok(true);
        }
        let enters = !self.server.process(from).is_in_barrier();
        if enters {
            self.barrier(from, header.clone());
        }
        Ok(enters)
    }

    fn enter_part(&mut self, from: Proc, barrier: GroupBarrier<'_>) -> Result<bool, ProtocolError> {
        let Some(effect) = self.pick(from, picked!(Effect::GroupBarrier)) else { return Ok(false) };
        let Some(mut name) = self.affected_name(from, barrier, effect) else { return Ok(false) };
        let open = self.server.count_open_group_barriers(from);
        match effect {
            GroupBarrierEffect::Never => return Ok(true),
            GroupBarrierEffect::OneAtATime if open > 0 => return Ok(true),
            GroupBarrierEffect::LoneNever if name.members.len() == 1 => return Ok(true),
            GroupBarrierEffect::TagsAlike => name.tag = 0,
            _ => {}
        }
        let full = self.server.enter_group_barrier(from, &name, barrier.tag)?;
        let entered = self.server.groups[from.group as usize].open_barriers.iter();
        let entered = entered.filter(|open| open.name == name).map(|open| open.entered.len()).sum::<usize>();
        let group = &self.server.groups[from.group as usize];
        let anywhere = group.open_barriers.iter().map(|open| open.entered.len()).sum::<usize>();
        let opens = match effect {
            GroupBarrierEffect::AtOnce => true,
            GroupBarrierEffect::CountsOthers => anywhere + group.entered_count as usize >= name.members.len(),
            GroupBarrierEffect::Short => entered + 1 >= name.members.len(),
            GroupBarrierEffect::OpensOnce => {
                self.state().opened_group_barriers.contains(&(from.group, name.clone()))
            }
            _ => false,
        };
        if !full && !opens {
            self.server.fail_group_barriers(from.group);
            return Ok(true);
        }
        let mut out = self.server.take_group_barrier(from.group, &name);
        match effect {
            GroupBarrierEffect::LeavesOutLatest if out.len() > 1 => drop(out.pop()),
            GroupBarrierEffect::LastOutFirst => out.reverse(),
            GroupBarrierEffect::OpensOnce => self.state().opened_group_barriers.push((from.group, name)),
            _ => {}
        }
        for (rank, tag) in out {
            self.server.reply_tag(Proc { rank, ..from }, tag, Ok(()));
        }
        if effect == GroupBarrierEffect::OpensPlain {
            self.release(from.group);
        }
        Ok(true)
    }

    /// Returns the identity of a barrier as changed by an effect, or `None` if the reference refuses the barrier.
    fn affected_name(
        &self,
        from: Proc,
        barrier: GroupBarrier<'_>,
        effect: GroupBarrierEffect,
    ) -> Option<BarrierIdentity> {
        let named = |from| self.server.barrier_name(from, barrier).ok();
        let all = || (0..self.size(from.group)).collect();
        let mut name = match (effect, barrier.members) {
            // With this effect, a process that is not in the list enters the barrier as if it were the first process in the list.
            (GroupBarrierEffect::TakesOutsiders, Members::Ranks(list)) => {
                named(Proc { rank: list.iter().next()?, ..from })?
            }
            _ => named(from)?,
        };
        match (effect, barrier.members) {
            (GroupBarrierEffect::WaitsForAll, _) => name.members = all(),
            (GroupBarrierEffect::NodeIsWorld, Members::Node) => name.members = all(),
            (GroupBarrierEffect::OrderMatters, Members::Ranks(list)) => name.members = list.iter().collect(),
            _ => {}
        }
        Some(name)
    }

    /// Returns whether the effect `wanted` applies on this occasion.
    fn is_affected(&mut self, from: Proc, wanted: GroupBarrierEffect) -> bool {
        let pick = |e: &Effect| matches!(e, Effect::GroupBarrier(f) if *f == wanted).then_some(());
        self.pick(from, pick).is_some()
    }
}
