//! Processes that connect through `PMI_PORT` (draft, "The protocol") and identify themselves with `initack`, as in MPICH's gforker.

use pmi_wire::Proc;
use pmi_wire::port::{Greeting, initack_id};

use super::state::Server;

impl Server {
    /// Returns the `PMI_ID` of a process. The ids are consecutive across all groups.
    pub fn id(&self, p: Proc) -> u64 {
        let before = (0..p.group).map(|group| u64::from(self.size(group)));
        before.sum::<u64>() + u64::from(p.rank)
    }

    /// Accepts the process whose id is in `line`, but only once (`initack` in MPICH's client and gforker). Returns the process, and the
    /// response, which contains the rank of the process and the size of the group. Returns `None` if the process is unknown or has already
    /// been accepted.
    pub(super) fn admit_by_id(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        let id = initack_id(line)?;
        let groups = 0..u32::try_from(self.groups.len()).ok()?;
        let mut procs = groups.flat_map(|group| (0..self.size(group)).map(move |rank| Proc { group, rank }));
        let p = procs.nth(usize::try_from(id).ok()?)?;
        if std::mem::replace(&mut self.process_mut(p).is_identified, true) {
            return None;
        }
        let greeting = Greeting { size: self.size(p.group), rank: p.rank };
        Some((p, greeting.lines(true).into_bytes()))
    }
}
