//! Spawn.

use pmi_wire::{Operation, Proc, SpawnCollector, SpawnLimits, SpawnRequest};

use super::config::{Action, GroupId, GroupSpec};
use super::lifecycle::ProtocolError;
use super::state::{Server, Waiting};
use crate::reply::Reply;

impl Server {
    /// Reads a line of a spawn. Returns the request with its last line.
    pub(super) fn spawn_line(
        &mut self,
        from: Proc,
        line: &[u8],
    ) -> Result<Option<SpawnRequest>, ProtocolError> {
        let new = || Box::new(SpawnCollector::new(SpawnLimits::default()));
        let collector = self.process_mut(from).spawn.get_or_insert_with(new);
        let request = collector.push_line(line).map_err(|error| ProtocolError(error.to_string()))?;
        if request.is_some() {
            self.process_mut(from).spawn = None;
        }
        Ok(request)
    }

    /// RFC 13, PMI_Spawn_multiple: all programs make one new process group, and the preput pairs are in its keyval space
    /// before a process starts. The preput pairs of every program count, since each message carries its own.
    pub(super) fn spawn(&mut self, by: Proc, request: SpawnRequest) {
        let SpawnRequest { programs } = request;
        let total = programs.iter().fold(0, |n: u64, p| n.saturating_add(p.nprocs));
        let preput: Vec<_> = programs.iter().flat_map(|p| p.preput.iter().cloned()).collect();
        let refused = if let Some(why) = self.refuses_to_start(total) {
            why
        } else if preput.iter().any(|(k, v)| !self.fits(k, v).0) {
            "preput key too long"
        } else if preput.iter().any(|(k, v)| !self.fits(k, v).1) {
            "preput value too long"
        } else {
            let counts = programs.iter().map(|p| p.nprocs as u32).collect();
            let group = self.add_group(GroupSpec { programs: counts, preput, spawned: true });
            self.process_mut(by).waiting = Waiting::Spawn;
            self.spawns.push((group, by));
            return self.act(Action::Spawn { group, by, programs });
        };
        self.reply(by, Reply::fail(Operation::Spawn, refused));
    }

    /// The reason why so many processes are not started.
    pub(super) fn refuses_to_start(&self, total: u64) -> Option<&'static str> {
        match total {
            0 => Some("no processes asked for"),
            total if total > self.config.spawn_max => Some("too many processes asked for"),
            _ => None,
        }
    }

    /// The programs of an [`Action::Spawn`] have been started: there is one error code for each process, 0 for success. If
    /// any of them is not 0, the whole spawn has failed and the group is gone.
    pub fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        let Some(at) = self.spawns.iter().position(|(g, _)| *g == group) else { return };
        let (_, by) = self.spawns.swap_remove(at);
        if !self.is_gone(by) && self.pmi2_spawned(by, group, errcodes) {
            return;
        }
        let list = errcodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut reply = if errcodes.iter().all(|c| *c == 0) {
            Reply::ok(Operation::Spawn)
        } else {
            self.groups[group as usize].aborted = true;
            Reply::fail(Operation::Spawn, "spawn failed")
        };
        if !list.is_empty() {
            reply = reply.with("errcodes", list);
        }
        if !self.is_gone(by) {
            self.process_mut(by).waiting = Waiting::Nothing;
            self.reply(by, reply);
        }
    }
}
