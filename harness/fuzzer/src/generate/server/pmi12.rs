//! The additions of PMI-1.2 to PMI-1.1: barriers for a part of a process group, several barriers that are open at the same time, and other
//! requests while a process waits in a barrier.

use arbitrary::Result;
use pmi_wire::place;

use super::model::SessionModel;
use crate::session::decisions::{percent, pick, shuffle};
use crate::session::fields::text;
use crate::session::plan::{must_answer, request_of};

/// Maximum number of barriers that are open at the same time.
const MAX_OPEN_BARRIERS: u32 = 4;

/// Ordinary tags, and tags near the limits of integer types, where a server may lose bits.
const TAGS: [u32; 12] = [0, 1, 2, 9, 42, 127, 128, 255, 256, 65_535, 65_536, i32::MAX as u32];

/// A barrier for a part of a process group: the value of the `group` field, and the ranks that must enter the barrier.
struct PartialBarrier {
    group: String,
    members: Vec<u32>,
}

impl SessionModel<'_, '_> {
    /// Plans some barriers for parts of the group. Processes enter all these barriers in random order. Processes that wait in a barrier may
    /// still put and get.
    pub(crate) fn group_barriers(&mut self) -> Result<()> {
        let mut tags = TAGS;
        shuffle(self.u, &mut tags)?;
        let count = match percent(self.u)? {
            0..50 => 1,
            _ => self.u.int_in_range(2..=MAX_OPEN_BARRIERS)?,
        };
        let parts =
            (0..count as usize).map(|at| self.draw_group_barrier(tags[at])).collect::<Result<Vec<_>>>()?;
        let mut entries: Vec<(u32, &PartialBarrier)> =
            parts.iter().flat_map(|part| part.members.iter().map(move |rank| (*rank, part))).collect();
        shuffle(self.u, &mut entries)?;
        let barrier = self.op("barrier");
        for (rank, part) in &entries {
            self.plan.push(request_of(*rank, barrier, &[("group", text(part.group.as_str()))]));
            if self.u.ratio(1, 4)? {
                let meanwhile = if self.u.ratio(1, 2)? { self.put(*rank)? } else { self.get(*rank)? };
                self.plan.extend(meanwhile);
            }
        }
        shuffle(self.u, &mut entries)?;
        self.plan.extend(entries.into_iter().map(|(rank, _)| must_answer(rank, barrier)));
        Ok(())
    }

    fn draw_group_barrier(&mut self, tag: u32) -> Result<PartialBarrier> {
        let tagged = |name: &str| format!("{name}:{tag}");
        let all: Vec<u32> = (0..self.ranks).collect();
        Ok(match percent(self.u)? {
            // MPICH's table does not state whether WORLD:0 is the same barrier as one without a group, so WORLD:0 is not used.
            0..15 if tag != 0 => PartialBarrier { group: tagged("WORLD"), members: all },
            15..35 => {
                let nodes = place(self.ranks, self.nodes);
                let node = pick(self.u, &nodes)?;
                let members = all.into_iter().filter(|rank| nodes[*rank as usize] == node).collect();
                PartialBarrier { group: tagged("NODE"), members }
            }
            _ => {
                let mut members = all;
                shuffle(self.u, &mut members)?;
                // A barrier of a single process is rarely generated: Hydra 5.0 ends the job at such a barrier, and later requests then
                // remain untested.
                let least = if percent(self.u)? < 8 { 1 } else { members.len().min(2) };
                members.truncate(self.u.int_in_range(least..=members.len())?);
                // A list in a different order may name a different group, so all members write the same list.
                let text = members.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                let bare = tag == 0 && self.u.ratio(1, 2)?;
                PartialBarrier { group: if bare { text } else { tagged(&text) }, members }
            }
        })
    }
}
