//! Barriers over part of a process group, on connections that have negotiated PMI-1.2. MPICH's list of PMI messages documents them: the key
//! `group` of `barrier_in` contains `WORLD`, `NODE` or a list of ranks, and may end with a tag, which `barrier_out` repeats.

use pmi_wire::{Framing, GroupBarrier, Members, Operation, Proc, place};

use super::config::GroupId;
use super::lifecycle::ProtocolError;
use super::open_barrier::{BarrierIdentity, GroupNotation, OpenBarrier};
use super::state::{ProcessGroup, ProcessPhase, Server};
use crate::response::{OperationResult, ResponseHeader};

/// Maximum number of open group barriers of a process, so that no client can exhaust the server's memory.
const MAX_OPEN: usize = 256;

impl ProcessGroup {
    fn has_left(&self, rank: u32) -> bool {
        let phase = self.procs.get(rank as usize).map(|proc| proc.phase);
        matches!(phase, None | Some(ProcessPhase::Finalized | ProcessPhase::Closed))
    }
}

impl Server {
    /// Enters the barrier that a request names: a group barrier or, without a group, the barrier of RFC 13. The key `group` has a meaning
    /// only in PMI-1.2 (MPICH's list of PMI messages). Otherwise, it is an additional key, which parsers should ignore (RFC 13, "Wire
    /// Protocol").
    pub(super) fn enter(
        &mut self,
        from: Proc,
        header: ResponseHeader,
        group: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let group = group.filter(|_| self.process(from).version.has_group_barriers());
        let barrier = group.map_or(Ok(GroupBarrier::PLAIN), GroupBarrier::parse);
        let barrier = barrier.map_err(|error| ProtocolError(error.to_string()))?;
        if barrier != GroupBarrier::PLAIN {
            return self.enter_subset_barrier(from, header, barrier);
        }
        // In PMI-2, another thread may enter the next fence before this fence ends (draft, "Thread Safety"). PMI-1 does not allow this.
        if header.framing == Framing::Lines && self.process(from).is_in_barrier() {
            return Err("the process is already in that barrier".into());
        }
        self.barrier(from, header);
        Ok(())
    }

    /// Enters a barrier over part of the group (MPICH's list of PMI messages, `barrier_in`). Refuses a list of ranks that does not contain
    /// the process, or that contains an unknown or a duplicate rank.
    fn enter_subset_barrier(
        &mut self,
        from: Proc,
        header: ResponseHeader,
        barrier: GroupBarrier<'_>,
    ) -> Result<(), ProtocolError> {
        let name = match self.barrier_name(from, barrier) {
            Ok(name) => name,
            Err(why) => {
                self.reply(from, header, OperationResult::failed(why).with_number("tag", barrier.tag));
                return Ok(());
            }
        };
        if self.enter_group_barrier(from, &name, barrier.tag)? {
            for (rank, tag) in self.take_group_barrier(from.group, &name) {
                self.reply_tag(Proc { rank, ..from }, tag, Ok(()));
            }
        } else {
            self.fail_group_barriers(from.group);
        }
        Ok(())
    }

    /// Answers a process in a group barrier. The tag identifies the barrier among the client's open barriers.
    pub fn reply_tag(&mut self, to: Proc, tag: u64, done: Result<(), &'static str>) {
        let header = ResponseHeader::line(Operation::Barrier.exchange());
        self.reply(to, header, OperationResult::from(done).with_number("tag", tag));
    }

    /// Records that a process has entered a group barrier (MPICH's list of PMI messages, `barrier_in`), and returns whether all members have
    /// entered.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is already in that barrier, or in too many barriers.
    pub fn enter_group_barrier(
        &mut self,
        from: Proc,
        name: &BarrierIdentity,
        tag: u64,
    ) -> Result<bool, ProtocolError> {
        if self.count_open_group_barriers(from) >= MAX_OPEN {
            return Err("too many barriers are open".into());
        }
        let open_barriers = &mut self.groups[from.group as usize].open_barriers;
        let at = open_barriers.iter().position(|open| open.name == *name).unwrap_or_else(|| {
            open_barriers.push(OpenBarrier { name: name.clone(), entered: Vec::new() });
            open_barriers.len() - 1
        });
        let open = &mut open_barriers[at];
        if open.entered.iter().any(|(rank, _)| *rank == from.rank) {
            return Err("the process is already in that barrier".into());
        }
        open.entered.push((from.rank, tag));
        Ok(open.entered.len() >= open.name.members.len())
    }

    /// Returns the identity of the barrier that a request names.
    ///
    /// # Errors
    ///
    /// Returns an error if the list contains an unknown or a duplicate rank, or does not contain the process.
    pub fn barrier_name(
        &self,
        from: Proc,
        barrier: GroupBarrier<'_>,
    ) -> Result<BarrierIdentity, &'static str> {
        let size = self.size(from.group);
        let (kind, members) = match barrier.members {
            Members::World => (GroupNotation::World, (0..size).collect()),
            Members::Node => {
                let places = place(size, self.config.nodes);
                let mine = self.node(from);
                (
                    GroupNotation::Node,
                    (0..).zip(places).filter(|(_, node)| *node == mine).map(|(r, _)| r).collect(),
                )
            }
            Members::Ranks(list) => {
                let mut members = Vec::new();
                for rank in list.iter() {
                    if rank >= size {
                        return Err("unknown rank");
                    }
                    if members.len() as u32 == size {
                        return Err("duplicate rank");
                    }
                    members.push(rank);
                }
                if !members.contains(&from.rank) {
                    return Err("the process is not in the group");
                }
                members.sort_unstable();
                let listed = members.len();
                members.dedup();
                if members.len() < listed {
                    return Err("duplicate rank");
                }
                (GroupNotation::Ranks, members)
            }
        };
        Ok(BarrierIdentity { kind, members, tag: barrier.tag })
    }

    /// Closes a group barrier, and returns the ranks that have entered it, in order of entry, with their tags.
    pub fn take_group_barrier(&mut self, group: GroupId, name: &BarrierIdentity) -> Vec<(u32, u64)> {
        let open_barriers = &mut self.groups[group as usize].open_barriers;
        let at = open_barriers.iter().position(|open| open.name == *name);
        at.map(|at| open_barriers.remove(at).entered).unwrap_or_default()
    }

    /// Fails the group barriers that cannot complete because a member has left. MPICH's list of PMI messages (`barrier_in`) does not mention
    /// such a member, so this server does the same as in the barrier of the whole group (RFC 13, "`PMI_Barrier`").
    pub fn fail_group_barriers(&mut self, id: GroupId) {
        let group = &mut self.groups[id as usize];
        if group.left_count == 0 || group.open_barriers.is_empty() {
            return;
        }
        let open = std::mem::take(&mut group.open_barriers);
        let (lost, kept): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|open| open.name.members.iter().any(|rank| group.has_left(*rank)));
        group.open_barriers = kept;
        for (rank, tag) in lost.into_iter().flat_map(|open| open.entered) {
            let to = Proc { group: id, rank };
            if !self.is_gone(to) {
                self.reply_tag(to, tag, Err("a process of the group has left the program"));
            }
        }
    }

    /// Returns whether a process is in a barrier over part of its group.
    pub fn is_in_group_barrier(&self, p: Proc) -> bool {
        self.count_open_group_barriers(p) > 0
    }

    /// Returns the number of group barriers that a process is in.
    pub fn count_open_group_barriers(&self, p: Proc) -> usize {
        let open = self.groups[p.group as usize].open_barriers.iter();
        open.filter(|open| open.entered.iter().any(|(rank, _)| *rank == p.rank)).count()
    }
}
