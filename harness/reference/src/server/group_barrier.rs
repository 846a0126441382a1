//! Barriers of a part of a process group, as PMI-1.2 has them, on connections on which that was negotiated.

use pmi_wire::{GroupBarrier, Members, Operation, Proc, place};

use super::config::GroupId;
use super::open_barrier::{Kind, Name, OpenBarrier};
use super::state::{Group, Phase, Server, Waiting};
use crate::fault::{Effect, GroupBarrierEffect};
use crate::reply::Reply;

/// Most barriers of parts that one process may have open, so that nobody can make a server grow.
const MOST_OPEN: usize = 256;

impl Group {
    fn has_left(&self, rank: u32) -> bool {
        let phase = self.procs.get(rank as usize).map(|proc| proc.phase);
        matches!(phase, None | Some(Phase::Finalized | Phase::Closed))
    }
}

impl Server {
    /// Enters the barrier that a request names. One without a group, and what is written for the same, is RFC 13's barrier; a group means
    /// something in PMI-1.2 only, and is a key like any other before that.
    pub(super) fn enter(&mut self, from: Proc, group: Option<&[u8]>, line: &[u8]) {
        let group = group.filter(|_| self.proc(from).version.has_group_barriers());
        let barrier = match group.map(GroupBarrier::parse) {
            None => GroupBarrier::PLAIN,
            Some(Ok(barrier)) => barrier,
            Some(Err(_)) if self.is_affected(from, GroupBarrierEffect::NobodyOpens) => {
                return self.reply(from, Reply::ok(Operation::Barrier).with("tag", "0"));
            }
            Some(Err(error)) => return self.protocol_error(from, &error.to_string(), line),
        };
        if barrier != GroupBarrier::PLAIN {
            return self.enter_part(from, barrier, line);
        }
        if self.proc(from).version.has_group_barriers()
            && self.is_affected(from, GroupBarrierEffect::PlainNever)
        {
            return;
        }
        if self.proc(from).waiting == Waiting::Barrier {
            return self.protocol_error(from, "it is in that barrier", line);
        }
        self.barrier(from);
    }

    fn enter_part(&mut self, from: Proc, barrier: GroupBarrier<'_>, line: &[u8]) {
        let effect = self.group_barrier_effect(from);
        let mut name = match self.name(from, barrier, effect) {
            Ok(name) => name,
            Err(why) => {
                let reply = Reply::fail(Operation::Barrier, why).with("tag", barrier.tag.to_string());
                return self.reply(from, reply);
            }
        };
        let group = &mut self.groups[from.group as usize];
        let is_in = |open: &OpenBarrier| open.entered.iter().any(|(rank, _)| *rank == from.rank);
        let open = group.open_barriers.iter().filter(|open| is_in(open)).count();
        if open >= MOST_OPEN {
            return self.protocol_error(from, "too many barriers are open", line);
        }
        match effect {
            Some(GroupBarrierEffect::Never) => return,
            Some(GroupBarrierEffect::OneAtATime) if open > 0 => return,
            Some(GroupBarrierEffect::LoneNever) if name.members.len() == 1 => return,
            Some(GroupBarrierEffect::TagsAlike) => name.tag = 0,
            _ => {}
        }
        let group = &mut self.groups[from.group as usize];
        let at = group.open_barriers.iter().position(|open| open.name == name).unwrap_or_else(|| {
            group.open_barriers.push(OpenBarrier { name, entered: Vec::new() });
            group.open_barriers.len() - 1
        });
        let open = &mut group.open_barriers[at];
        if open.entered.iter().any(|(rank, _)| *rank == from.rank) {
            return self.protocol_error(from, "it is in that barrier", line);
        }
        open.entered.push((from.rank, barrier.tag));
        let full = open.entered.len() >= open.name.members.len();
        if full || self.opens_early(from, at, effect) {
            self.open(from.group, at, effect);
        } else {
            self.fail_parts(from.group);
        }
    }

    /// What a barrier is called, or why this process cannot enter it.
    fn name(
        &mut self,
        from: Proc,
        barrier: GroupBarrier<'_>,
        effect: Option<GroupBarrierEffect>,
    ) -> Result<Name, &'static str> {
        let size = self.size(from.group);
        let all = || (0..size).collect::<Vec<u32>>();
        let (kind, members) = match barrier.members {
            Members::World => (Kind::World, all()),
            Members::Node if effect == Some(GroupBarrierEffect::NodeIsWorld) => (Kind::Node, all()),
            Members::Node => {
                let places = place(size, self.config.nodes);
                let mine = places.get(from.rank as usize);
                (
                    Kind::Node,
                    (0..).zip(&places).filter(|(_, node)| Some(*node) == mine).map(|(r, _)| r).collect(),
                )
            }
            Members::Ranks(list) => {
                let mut members = Vec::new();
                for rank in list.iter() {
                    if rank >= size {
                        return Err("there is no such rank");
                    }
                    if members.len() as u32 == size {
                        return Err("a rank is there twice");
                    }
                    members.push(rank);
                }
                if !members.contains(&from.rank) && effect != Some(GroupBarrierEffect::TakesOutsiders) {
                    return Err("the process is not in the group");
                }
                if effect != Some(GroupBarrierEffect::OrderMatters) {
                    members.sort_unstable();
                }
                let listed = members.len();
                members.dedup();
                if members.len() < listed {
                    return Err("a rank is there twice");
                }
                (Kind::Ranks, members)
            }
        };
        let members = match effect {
            Some(GroupBarrierEffect::WaitsForAll) => all(),
            _ => members,
        };
        Ok(Name { kind, members, tag: barrier.tag })
    }

    /// Lets those out who have entered.
    fn open(&mut self, id: GroupId, at: usize, effect: Option<GroupBarrierEffect>) {
        let group = &mut self.groups[id as usize];
        let mut open = group.open_barriers.remove(at);
        match effect {
            Some(GroupBarrierEffect::LeavesOutLatest) if open.entered.len() > 1 => drop(open.entered.pop()),
            Some(GroupBarrierEffect::LastOutFirst) => open.entered.reverse(),
            Some(GroupBarrierEffect::OpensOnce) => self.effect_state().opened.push((id, open.name)),
            _ => {}
        }
        for (rank, tag) in &open.entered {
            let reply = Reply::ok(Operation::Barrier).with("tag", tag.to_string());
            self.reply(Proc { group: id, rank: *rank }, reply);
        }
        if effect == Some(GroupBarrierEffect::OpensPlain) {
            self.leave_barrier(id, &Reply::ok(Operation::Barrier));
        }
    }

    /// Fails the barriers of this group that a process which has left for good would have to enter.
    pub(super) fn fail_parts(&mut self, id: GroupId) {
        let group = &mut self.groups[id as usize];
        if group.left == 0 || group.open_barriers.is_empty() {
            return;
        }
        let open = std::mem::take(&mut group.open_barriers);
        let (lost, kept): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|open| open.name.members.iter().any(|rank| group.has_left(*rank)));
        group.open_barriers = kept;
        for (rank, tag) in lost.into_iter().flat_map(|open| open.entered) {
            let reply = Reply::fail(Operation::Barrier, "a process of the group has left the program");
            let to = Proc { group: id, rank };
            if !self.dead(to) {
                self.reply(to, reply.with("tag", tag.to_string()));
            }
        }
    }

    /// Whether a process is in a barrier of a part of its group.
    pub(super) fn has_part_open(&self, p: Proc) -> bool {
        let open = &self.groups[p.group as usize].open_barriers;
        open.iter().any(|open| open.entered.iter().any(|(rank, _)| *rank == p.rank))
    }

    // ----- effects

    fn group_barrier_effect(&mut self, from: Proc) -> Option<GroupBarrierEffect> {
        self.effect(from, |e| if let Effect::GroupBarrier(f) = e { Some(*f) } else { None })
    }

    /// Whether this effect, and no other, shows now.
    fn is_affected(&mut self, from: Proc, wanted: GroupBarrierEffect) -> bool {
        let pick = |e: &Effect| matches!(e, Effect::GroupBarrier(f) if *f == wanted).then_some(());
        self.effect(from, pick).is_some()
    }

    /// Whether a request is refused because the process is in a barrier of a group.
    pub(super) fn keeps_lock_step(&mut self, from: Proc) -> bool {
        self.has_part_open(from) && self.is_affected(from, GroupBarrierEffect::LockStep)
    }

    fn opens_early(&mut self, from: Proc, at: usize, effect: Option<GroupBarrierEffect>) -> bool {
        let open = &self.groups[from.group as usize].open_barriers[at];
        match effect {
            Some(GroupBarrierEffect::AtOnce) => true,
            Some(GroupBarrierEffect::Short) => open.entered.len() + 1 >= open.name.members.len(),
            Some(GroupBarrierEffect::OpensOnce) => {
                let name = (from.group, open.name.clone());
                self.effect_state().opened.contains(&name)
            }
            _ => false,
        }
    }
}
