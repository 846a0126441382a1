//! The barrier.

use pmi_wire::{Operation, Proc};

use super::config::GroupId;
use super::state::{Server, Waiting};
use crate::reply::Reply;

impl Server {
    /// RFC 13, PMI_Barrier: it blocks until all processes of the group have entered.
    pub(super) fn barrier(&mut self, from: Proc) {
        if self.join_barrier(from) {
            self.release_barrier(from.group, &Reply::ok(Operation::Barrier));
        } else {
            self.fail_barrier(from.group);
        }
    }

    /// Counts a process as entered. Returns whether all have.
    pub fn join_barrier(&mut self, from: Proc) -> bool {
        self.process_mut(from).waiting = Waiting::Barrier;
        let group = &mut self.groups[from.group as usize];
        group.entered += 1;
        group.entered == group.procs.len() as u32
    }

    /// RFC 13, PMI_Barrier: it blocks until all processes have entered or an error occurs. A process that has left for
    /// good is such an error for those that wait.
    pub fn fail_barrier(&mut self, group: GroupId) {
        self.fail_parts(group);
        if self.is_barrier_lost(group) {
            let why = "a process has left the program";
            self.release_barrier(group, &Reply::fail(Operation::Barrier, why));
        }
    }

    /// Returns whether processes wait in the barrier for one that has left for good.
    pub fn is_barrier_lost(&self, group: GroupId) -> bool {
        let group = &self.groups[group as usize];
        group.left > 0 && group.entered > 0
    }

    /// Answers all processes that wait in the barrier.
    pub fn release_barrier(&mut self, id: GroupId, reply: &Reply) {
        self.groups[id as usize].entered = 0;
        for rank in 0..self.size(id) {
            let to = Proc { group: id, rank };
            let proc = self.process_mut(to);
            if proc.waiting != Waiting::Barrier {
                continue;
            }
            proc.waiting = Waiting::Nothing;
            let has_tag = proc.version.has_group_barriers();
            // PMI-1.2: this barrier is the one whose tag is 0.
            self.reply(to, if has_tag { reply.clone().with("tag", "0") } else { reply.clone() });
        }
    }
}
