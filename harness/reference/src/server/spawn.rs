//! Spawn, in every dialect.

use pmi_wire::{Framing, Proc, ResponseOutcome, SpawnRequest};

use super::config::{GroupId, GroupSpec, ServerAction};
use super::state::{AwaitedEvent, Server};
use crate::response::{OperationResult, ResponseHeader};

impl Server {
    /// Starts programs.
    ///
    /// * RFC 13, "`PMI_Spawn_multiple`": all programs of a request form a single new process group, and the preput pairs are in its keyval
    ///   space "before the processes are started". In PMI-1, each program may have preput pairs. If several pairs have the same key, the
    ///   last value is used.
    /// * Draft, "`PMI_Job_Spawn`": all programs of a request form a single new job. The draft has a message for each program, but
    ///   implementations send all programs in a single message, and this server supports only that form.
    pub(super) fn spawn(&mut self, by: Proc, header: ResponseHeader, request: SpawnRequest) {
        let SpawnRequest { programs } = request;
        let total = programs.iter().fold(0, |n: u64, program| n.saturating_add(program.nprocs));
        let preput: Vec<_> = programs.iter().flat_map(|program| program.preput.iter().cloned()).collect();
        let refused = match total {
            0 => Some("no processes requested"),
            total if total > self.config.spawn_max => Some("too many processes requested"),
            _ => preput.iter().find_map(|(key, value)| self.check_lengths(by, key, value).err()),
        };
        if let Some(why) = refused {
            return self.reply(by, header, OperationResult::failed(why));
        }
        let counts = programs.iter().map(|program| program.nprocs as u32).collect();
        let group = self.add_group(GroupSpec { programs: counts, preput, spawned: true });
        self.groups[group as usize].spawner = Some(self.groups[by.group as usize].kvsname.clone());
        self.hold(by, header, AwaitedEvent::Spawn(group));
        self.spawns.push((group, by));
        self.act(ServerAction::Spawn { group, requester: by, programs });
    }

    /// Reports the result of a [`ServerAction::Spawn`]. `errcodes` contains an error code for each process, which is 0 for success. If a
    /// code is not 0, the whole spawn has failed, and the group is marked as aborted. The request is answered only now, because its response
    /// contains the codes (RFC 13, "`PMI_Spawn_multiple`"; draft, "`PMI_Job_Spawn`").
    pub fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        let Some(at) = self.spawns.iter().position(|(spawned, _)| *spawned == group) else { return };
        let (_, by) = self.spawns.swap_remove(at);
        let is_started = errcodes.iter().all(|code| *code == 0);
        self.groups[group as usize].aborted |= !is_started;
        let Some(header) = self.take_held(by, &AwaitedEvent::Spawn(group)).filter(|_| !self.is_gone(by))
        else {
            return;
        };
        let done = if is_started { Ok(()) } else { Err("spawn failed") };
        let answer = self.spawn_results(&header, OperationResult::from(done), group, errcodes);
        self.reply(by, header, answer);
    }

    /// Adds the error codes of a spawn to its result. In RFC 13 (`S:spawn`), `errcodes` is a list. In the draft ("`PMI_Job_Spawn`"), the
    /// codes have numbered keys, and a successful response also contains the id of the new job.
    fn spawn_results(
        &self,
        header: &ResponseHeader,
        answer: OperationResult,
        group: GroupId,
        errcodes: &[i64],
    ) -> OperationResult {
        if header.framing == Framing::Lines {
            let list = errcodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return if list.is_empty() { answer } else { answer.with("errcodes", list) };
        }
        let group = &self.groups[group as usize];
        let is_started = answer.outcome == ResponseOutcome::Success;
        let answer = if is_started { answer.with("jobid", group.kvsname.clone()) } else { answer };
        let answer = answer.with_number("nerrs", errcodes.len());
        let numbered = errcodes.iter().enumerate();
        numbered.fold(answer, |answer, (i, code)| answer.with_number(format!("err{i}"), code))
    }
}
