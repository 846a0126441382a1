//! Effects on the barrier.

use pmi_reference::server::{AwaitedEvent, HeldRequest, ProcessPhase};
use pmi_reference::{GroupId, OperationResult, ResponseHeader};
use pmi_wire::{Decoded, Direction, Operation, Proc, place};

use super::{Server, is_own_key};
use crate::effect::{BarrierEffect, Effect, NamesEffect};

impl Server {
    pub(super) fn barrier(&mut self, from: Proc, header: ResponseHeader) {
        *self.state().barrier_entries.entry(from).or_default() += 1;
        let effect = self.barrier_effect(from);
        if effect == Some(BarrierEffect::AtOnceAndRequestsWait) {
            self.server.reply(from, header, OperationResult::done());
            if self.all_entered(from) {
                self.forget_round(from.group);
            }
            return self.resume_requests();
        }
        let entered = self.state().rare.entered.entry(from.group).or_default();
        if !entered.contains(&from.rank) {
            entered.push(from.rank);
        }
        let is_full = self.server.join_barrier(from, header);
        match effect {
            Some(effect) => self.affected_barrier(from, effect, is_full),
            None if is_full => self.release(from.group),
            None => self.fail_lost_barriers(from),
        }
    }

    /// Counts a process again if it re-enters the barrier before its release and an effect requires this. Returns whether the process was
    /// counted.
    pub(super) fn counts_reentry(&mut self, from: Proc) -> bool {
        if !self.server.process(from).is_in_barrier()
            || self.barrier_effect(from) != Some(BarrierEffect::CountsTwice)
        {
            return false;
        }
        let group = &mut self.server.groups[from.group as usize];
        group.entered_count += 1;
        if group.entered_count >= group.procs.len() as u32 {
            self.release(from.group);
        }
        true
    }

    pub(super) fn barrier_effect(&mut self, from: Proc) -> Option<BarrierEffect> {
        self.pick(from, picked!(Effect::Barrier))
    }

    fn affected_barrier(&mut self, from: Proc, effect: BarrierEffect, full: bool) {
        let size = self.size(from.group);
        let in_all_groups: u32 = self.server.groups.iter().map(|g| g.entered_count).sum();
        let (puts, toggles) = (self.state().puts, self.state().opened_barriers);
        let is_first = from.group == 0 && !self.state().rounds.contains_key(&0);
        let rare = &self.state().rare;
        let order = rare.entered.get(&from.group).map_or(&[][..], |order| order);
        let is_backwards = size >= 3 && order.is_sorted_by(|a, b| a > b);
        let latest = rare.latest.get(&from.group).map_or(&[][..], |latest| latest);
        let is_latecomer_first =
            latest.len() >= 2 && latest.iter().rev().take(2).all(|rank| order.first() == Some(rank));
        let is_stuck = rare.stuck.contains(&from.group);
        let (is_after_abort, earlier) = (is_first && rare.before.aborted, rare.before.waiting);
        let group = &mut self.server.groups[from.group as usize];
        let entered = group.entered_count;
        let release = match effect {
            BarrierEffect::Never => return,
            BarrierEffect::AtOnce => true,
            BarrierEffect::OneShort => entered + 1 >= size,
            BarrierEffect::TwoShort => entered + 2 >= size,
            BarrierEffect::Half => entered * 2 >= size,
            BarrierEffect::AcrossGroups => full || in_all_groups >= size,
            BarrierEffect::KeepsCount => full || toggles > 0,
            BarrierEffect::Toggle => full || (toggles % 2 == 1 && entered + 1 >= size),
            BarrierEffect::NeedsData if full && puts == 0 => return,
            BarrierEffect::NeverBackwards if full && is_backwards => return,
            BarrierEffect::NeverAfterPieces if full && is_stuck => return,
            BarrierEffect::NeverAfterAbort if is_after_abort => return,
            BarrierEffect::CountsEarlierJob => full || is_first && entered + earlier >= size,
            BarrierEffect::EarlyForLatecomer => full || size > 1 && entered + 1 == size && is_latecomer_first,
            BarrierEffect::PerNode => return self.release_node(from),
            BarrierEffect::LeavesOutFirst | BarrierEffect::LeavesOutLast | BarrierEffect::LeavesOutLatest
                if full && size > 1 =>
            {
                let left_out = match effect {
                    BarrierEffect::LeavesOutFirst => 0,
                    BarrierEffect::LeavesOutLast => size - 1,
                    _ => from.rank,
                };
                group.procs[left_out as usize]
                    .held
                    .retain(|held| held.awaited_event != AwaitedEvent::Barrier);
                true
            }
            BarrierEffect::ReleasesEverybody if entered == 1 => {
                let joined = group.procs.iter_mut().filter(|proc| proc.phase == ProcessPhase::Joined);
                let header = ResponseHeader::line(Operation::Barrier.exchange());
                joined.filter(|proc| !proc.is_in_barrier()).for_each(|proc| {
                    proc.held
                        .push(HeldRequest { header: header.clone(), awaited_event: AwaitedEvent::Barrier });
                });
                true
            }
            BarrierEffect::WipesKvs if full => {
                group.kvs.retain(|k, _| is_own_key(k));
                true
            }
            _ => full,
        };
        if release {
            self.state().opened_barriers += 1;
            self.release(from.group);
        } else {
            self.fail_lost_barriers(from);
        }
    }

    /// Releases the processes of a node if all of them are in the barrier.
    fn release_node(&mut self, from: Proc) {
        let node = self.server.node(from);
        let places = place(self.size(from.group), self.server.config.nodes);
        let mates = (0..).zip(places).filter(|(_, n)| *n == node).map(|(rank, _)| Proc { rank, ..from });
        let mates: Vec<Proc> = mates.collect();
        if mates.iter().all(|mate| self.server.process(*mate).is_in_barrier()) {
            mates.into_iter().for_each(|mate| self.server.answer_in_barrier(mate, Ok(())));
            self.server.count_entered(from.group);
        }
    }

    /// Releases the barrier with a failure if a process has left. See [`pmi_reference::Server::fail_lost_barriers`].
    pub(super) fn fail_lost_barriers(&mut self, by: Proc) {
        if self.server.is_barrier_lost(by.group) {
            if self.barrier_effect(by) == Some(BarrierEffect::LeaverCounts) {
                self.server.fail_group_barriers(by.group);
                return self.release(by.group);
            }
            self.forget_round(by.group);
        }
        self.server.fail_lost_barriers(by.group);
    }

    pub(super) fn release(&mut self, group: GroupId) {
        self.forget_round(group);
        self.server.release_barrier(group, Ok(()));
    }

    /// Updates the state of a group after its barrier has ended.
    fn forget_round(&mut self, id: GroupId) {
        let state = self.state();
        *state.rounds.entry(id).or_default() += 1;
        state.puts = 0;
        state.rare.end_round(id);
        let deferred = std::mem::take(&mut state.deferred);
        let (now, later) = deferred.into_iter().partition(|(group, ..)| *group == id);
        state.deferred = later;
        let now: Vec<(GroupId, Vec<u8>, Vec<u8>)> = now;
        self.server.groups[id as usize].kvs.extend(now.into_iter().map(|(_, key, value)| (key, value)));
        let pick = |e: &Effect| matches!(e, Effect::Names(NamesEffect::BarrierDrops)).then_some(());
        if self.pick(Proc { group: id, rank: 0 }, pick).is_some() {
            self.server.names.clear();
        }
    }

    /// Returns whether every process of the group has entered at least as many barriers as `p` has.
    pub(super) fn all_entered(&mut self, p: Proc) -> bool {
        let entries = |server: &mut Self, p| server.state().barrier_entries.get(&p).copied().unwrap_or(0);
        let own = entries(self, p);
        (0..self.size(p.group)).all(|rank| entries(self, Proc { rank, ..p }) >= own)
    }

    /// Holds a request back until all processes have entered the barriers that the requesting process has left, if an effect requires it.
    /// With this effect, the barrier releases each process immediately. Returns whether the request is held back. An abort is never held
    /// back.
    pub(super) fn held_for_barrier(&mut self, from: Proc, message: &[u8]) -> bool {
        let pick =
            |e: &Effect| matches!(e, Effect::Barrier(BarrierEffect::AtOnceAndRequestsWait)).then_some(());
        if self.pick(from, pick).is_none() || self.all_entered(from) {
            return false;
        }
        let request = Decoded::new(Direction::ToServer, self.server.process(from).framing, message);
        let is_held = request.operation() != Some(Operation::Abort);
        if is_held {
            self.state().held_requests.push((from, message.to_vec()));
        }
        is_held
    }

    /// Handles the requests that were held back until all processes had entered the barrier.
    fn resume_requests(&mut self) {
        for (from, message) in std::mem::take(&mut self.state().held_requests) {
            if !self.server.is_gone(from) {
                self.accept_request(from, &message);
            }
        }
    }
}
