//! The barrier of a process group, in every dialect.
//!
//! A rank leaves when it finalizes, or closes its connection before a successful init. The barrier then fails: immediately for the
//! processes in it, and for other processes when they enter it ([`Server::fail_lost_barriers`]). If a connection ends between init and
//! finalize, or within a message before init, the process group is aborted ([`Server::closed`]). Processes in the barrier then receive no
//! response.

use pmi_wire::Proc;

use super::config::GroupId;
use super::state::{AwaitedEvent, Server};
use crate::response::{OperationResult, ResponseHeader};

impl Server {
    /// Enters the barrier.
    ///
    /// * RFC 13, "`PMI_Barrier`": the call blocks "until all processes in the process group have entered the barrier call, or an error
    ///   occurs".
    /// * PMI-2 draft, "`PMI_KVS_Fence`", describes only the two messages of a fence. This server treats it as a barrier, as Slurm does. It
    ///   stores pairs immediately, so a fence needs no further action.
    pub(super) fn barrier(&mut self, from: Proc, header: ResponseHeader) {
        if self.join_barrier(from, header) {
            self.release_barrier(from.group, Ok(()));
        } else {
            self.fail_lost_barriers(from.group);
        }
    }

    /// Records that a process has entered the barrier, and returns whether all processes have entered.
    pub fn join_barrier(&mut self, from: Proc, header: ResponseHeader) -> bool {
        let is_first = !self.process(from).is_in_barrier();
        self.hold(from, header, AwaitedEvent::Barrier);
        let group = &mut self.groups[from.group as usize];
        group.entered_count += u32::from(is_first);
        group.entered_count == group.procs.len() as u32
    }

    /// Releases each barrier, including group barriers, with a failure if processes in it are waiting for a process that has left.
    ///
    /// RFC 13, "`PMI_Barrier`", ends the wait if "an error occurs". The standards do not define these errors. A process that has finalized,
    /// or that has closed its connection before a successful init, will never enter the barrier. Without this rule, the other processes
    /// would wait forever. (If a process ends between init and finalize, its process group is aborted instead: see [`Server::closed`].)
    pub fn fail_lost_barriers(&mut self, group: GroupId) {
        self.fail_group_barriers(group);
        // Another thread of a process may be waiting in the next barrier, which then fails as well.
        while self.is_barrier_lost(group) {
            self.release_barrier(group, Err("a process has left the program"));
        }
    }

    /// Returns whether processes in the barrier are waiting for a process that has left.
    pub fn is_barrier_lost(&self, group: GroupId) -> bool {
        let group = &self.groups[group as usize];
        group.left_count > 0 && group.entered_count > 0
    }

    /// Answers all processes that are waiting in the barrier. If several threads of a process are waiting, only one of their requests
    /// is answered.
    pub fn release_barrier(&mut self, id: GroupId, done: Result<(), &'static str>) {
        for rank in 0..self.size(id) {
            self.answer_in_barrier(Proc { group: id, rank }, done);
        }
        self.count_entered(id);
    }

    /// Recounts the processes that are waiting in the barrier, after some of them were answered.
    pub fn count_entered(&mut self, id: GroupId) {
        let group = &mut self.groups[id as usize];
        group.entered_count = group.procs.iter().filter(|proc| proc.is_in_barrier()).count() as u32;
    }

    /// Answers a process if it is waiting in the barrier. In PMI-1.2, the response contains the tag of this barrier, which is 0.
    pub fn answer_in_barrier(&mut self, to: Proc, done: Result<(), &'static str>) {
        let Some(header) = self.take_held(to, &AwaitedEvent::Barrier) else { return };
        let answer = OperationResult::from(done);
        let has_tag = self.process(to).version.has_group_barriers();
        self.reply(to, header, if has_tag { answer.with("tag", "0") } else { answer });
    }
}
