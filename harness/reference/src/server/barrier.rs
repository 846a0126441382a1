//! The barrier.

use pmi_wire::{Operation, Proc, place};

use super::config::{Action, GroupId};
use super::state::{Phase, Server, Waiting, own_key};
use crate::fault::{BarrierEffect, Effect, NamesEffect};
use crate::reply::Reply;

impl Server {
    pub(super) fn barrier(&mut self, from: Proc) {
        let group = &mut self.groups[from.group as usize];
        group.procs[from.rank as usize].waiting = Waiting::Barrier;
        group.entered += 1;
        if self.affected_barrier(from) {
            return;
        }
        let group = &mut self.groups[from.group as usize];
        if group.entered == group.procs.len() as u32 {
            self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
        } else {
            self.fail_barrier(from);
        }
    }

    /// RFC 13, PMI_Barrier: it blocks until all processes have entered or an error occurs. A process that has left for
    /// good is such an error for those that wait.
    pub(super) fn fail_barrier(&mut self, by: Proc) {
        self.fail_parts(by.group);
        let group = &self.groups[by.group as usize];
        if group.left > 0 && group.entered > 0 {
            if self.barrier_counts_leaver(by) {
                return;
            }
            self.leave_barrier(by.group, &Reply::fail(Operation::Barrier, "a process has left the program"));
        }
    }

    pub(super) fn leave_barrier(&mut self, id: GroupId, reply: &Reply) {
        if self.effects.is_some() {
            return self.affected_leave(id, reply);
        }
        let group = &mut self.groups[id as usize];
        group.entered = 0;
        let (mut bytes, mut tagged) = (Vec::new(), Vec::new());
        reply.render(&mut bytes);
        plain_tag(reply.clone()).render(&mut tagged);
        for (rank, proc) in (0..).zip(&mut group.procs) {
            if proc.waiting == Waiting::Barrier {
                proc.waiting = Waiting::Nothing;
                let to = Proc { group: id, rank };
                let bytes = if proc.version.has_group_barriers() { &tagged } else { &bytes };
                self.actions.push_back(Action::Send { to, bytes: bytes.clone() });
            }
        }
    }

    // ----- effects

    /// Whether a process that is in the barrier already is counted once more because it enters again.
    pub(super) fn counts_twice(&mut self, from: Proc) -> bool {
        if self.proc(from).waiting != Waiting::Barrier
            || self.barrier_effect(from) != Some(BarrierEffect::CountsTwice)
        {
            return false;
        }
        let group = &mut self.groups[from.group as usize];
        group.entered += 1;
        if group.entered >= group.procs.len() as u32 {
            self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
        }
        true
    }

    pub(super) fn barrier_effect(&mut self, from: Proc) -> Option<BarrierEffect> {
        self.effect(from, |e| if let Effect::Barrier(f) = e { Some(*f) } else { None })
    }

    /// Whether an effect has dealt with the entry of this process into the barrier.
    fn affected_barrier(&mut self, from: Proc) -> bool {
        let Some(effect) = self.barrier_effect(from) else { return false };
        let size = self.size(from.group);
        let others: u32 = self.groups.iter().map(|g| g.entered).sum();
        let place = place(size, self.config.nodes);
        let state = self.effect_state();
        let (puts, toggles) = (state.puts, state.toggles);
        let group = &mut self.groups[from.group as usize];
        let (entered, full) = (group.entered, group.entered == size);
        let ok = Reply::ok(Operation::Barrier);
        let release = match effect {
            BarrierEffect::Never => return true,
            BarrierEffect::AtOnce => true,
            BarrierEffect::OneShort => entered + 1 >= size,
            BarrierEffect::TwoShort => entered + 2 >= size,
            BarrierEffect::Half => entered * 2 >= size,
            BarrierEffect::AcrossGroups => full || others >= size,
            BarrierEffect::KeepsCount => full || toggles > 0,
            BarrierEffect::Toggle => full || (toggles % 2 == 1 && entered + 1 >= size),
            BarrierEffect::NeedsData if full && puts == 0 => return true,
            BarrierEffect::PerNode => {
                let node = place[from.rank as usize];
                let mates = |(rank, n): (usize, &u32)| (*n == node).then_some(rank);
                let mates: Vec<usize> = place.iter().enumerate().filter_map(mates).collect();
                if mates.iter().all(|r| group.procs[*r].waiting == Waiting::Barrier) {
                    group.entered -= mates.len() as u32;
                    for rank in mates {
                        self.groups[from.group as usize].procs[rank].waiting = Waiting::Nothing;
                        let to = Proc { group: from.group, rank: rank as u32 };
                        self.reply(to, ok.clone());
                    }
                }
                return true;
            }
            BarrierEffect::LeavesOutFirst | BarrierEffect::LeavesOutLast | BarrierEffect::LeavesOutLatest
                if full && size > 1 =>
            {
                let left_out = match effect {
                    BarrierEffect::LeavesOutFirst => 0,
                    BarrierEffect::LeavesOutLast => size - 1,
                    _ => from.rank,
                };
                group.procs[left_out as usize].waiting = Waiting::Nothing;
                true
            }
            BarrierEffect::ReleasesEverybody if entered == 1 => {
                for proc in &mut group.procs {
                    if proc.phase == Phase::Joined {
                        proc.waiting = Waiting::Barrier;
                    }
                }
                true
            }
            BarrierEffect::WipesKvs if full => {
                group.kvs.retain(|k, _| own_key(k));
                true
            }
            _ => full,
        };
        if release {
            self.effect_state().toggles += 1;
            self.leave_barrier(from.group, &ok);
        } else {
            self.fail_barrier(from);
        }
        true
    }

    /// Whether an effect has dealt with a process that left for good while others wait in the barrier.
    pub(super) fn barrier_counts_leaver(&mut self, by: Proc) -> bool {
        if self.barrier_effect(by) != Some(BarrierEffect::LeaverCounts) {
            return false;
        }
        if self.groups[by.group as usize].entered > 0 {
            self.leave_barrier(by.group, &Reply::ok(Operation::Barrier));
        }
        true
    }

    /// Lets a group out of its barrier, in a server with effects.
    fn affected_leave(&mut self, id: GroupId, reply: &Reply) {
        let state = self.effect_state();
        *state.rounds.entry(id).or_default() += 1;
        state.puts = 0;
        let deferred = std::mem::take(&mut state.deferred);
        for (group, key, value) in deferred {
            if group == id {
                self.groups[id as usize].kvs.insert(key, value);
            } else {
                self.effect_state().deferred.push((group, key, value));
            }
        }
        let pick = |e: &Effect| matches!(e, Effect::Names(NamesEffect::BarrierDrops)).then_some(());
        if self.effect(Proc { group: id, rank: 0 }, pick).is_some() {
            self.names.clear();
        }
        let group = &mut self.groups[id as usize];
        group.entered = 0;
        let mut out = Vec::new();
        for (rank, proc) in (0..).zip(&mut group.procs) {
            if proc.waiting == Waiting::Barrier {
                proc.waiting = Waiting::Nothing;
                out.push(Proc { group: id, rank });
            }
        }
        for to in out {
            let tagged = self.proc(to).version.has_group_barriers();
            self.reply(to, if tagged { plain_tag(reply.clone()) } else { reply.clone() });
        }
    }
}

/// The same answer in PMI-1.2, where this barrier is the one whose tag is 0.
fn plain_tag(reply: Reply) -> Reply {
    reply.with("tag", "0")
}
