//! The nodes on which the process manager has placed the processes of a group, as the processes report them.

use std::collections::{BTreeMap, BTreeSet};

use pmi_wire::place;

use crate::UnjudgedReason;
use crate::event::{LOCAL_SIZE_VARIABLE, NODE_VARIABLES};

/// The placement of a group's processes, as reported so far.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The names of the nodes, in the order in which the processes reported them.
    names: Vec<String>,
    /// The node of each rank, as an index into `names`.
    nodes: BTreeMap<u32, usize>,
    /// The smallest number of processes per node that the process manager has reported.
    local_size: Option<u32>,
}

impl Placement {
    /// Records the placement that the environment of a process describes.
    pub(super) fn record<'a>(&mut self, rank: u32, get: impl Fn(&str) -> Option<&'a str>) {
        // Processes with equal names may run on different nodes: within an allocation, a launcher may pass the variables of its own
        // environment to all processes.
        let name = Vec::from_iter(NODE_VARIABLES.iter().filter_map(|name| get(name))).join(" ");
        if !name.is_empty() {
            let node = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
                self.names.push(name);
                self.names.len() - 1
            });
            self.nodes.insert(rank, node);
        }
        let local_size = get(LOCAL_SIZE_VARIABLE).and_then(|size| size.parse().ok());
        self.local_size = [self.local_size, local_size].into_iter().flatten().min();
    }

    /// Returns whether the names show that there are several nodes. Equal names do not prove that there is only one node.
    fn has_several(&self) -> bool {
        self.names.len() > 1
    }

    /// Returns the number of a process's node, if the names show that there are several nodes.
    pub(super) fn node(&self, rank: u32) -> Option<u32> {
        self.nodes.get(&rank).filter(|_| self.has_several()).map(|node| *node as u32)
    }

    /// Compares a mapping with the placement. `mapping` contains the node of each rank. `nodes` is the requested number of nodes, or 0 if
    /// the number is unknown. Returns the expected and the observed placement if they differ.
    pub(super) fn contradiction(&self, mapping: &[u32], nodes: u32) -> Option<(String, String)> {
        if self.has_several() {
            // The first map contains the first rank on each reported node, and the second map the first rank on each node of the mapping.
            let (mut of_name, mut of_number) = (BTreeMap::new(), BTreeMap::new());
            let (a, b) = self.nodes.iter().find_map(|(rank, name)| {
                let number = mapping.get(*rank as usize)?;
                let same_name = *of_name.entry(*name).or_insert(*rank);
                let same_number = *of_number.entry(*number).or_insert(*rank);
                let other = if same_name == *rank { same_number } else { same_name };
                (same_name != same_number).then_some((other, *rank))
            })?;
            let name = |rank: u32| &self.names[self.nodes[&rank]];
            let seen = if name(a) == name(b) { "two nodes" } else { "one node" };
            return Some((
                format!(
                    "rank {a} on {} and rank {b} on {}, according to their environment",
                    name(a),
                    name(b)
                ),
                format!("places them on {seen}"),
            ));
        }
        let size = mapping.len() as u32;
        let mapped = mapping.iter().collect::<BTreeSet<_>>().len() as u32;
        // If a single node was requested, but a node has fewer processes than the group, the process manager has spread
        // the processes over unknown nodes.
        let is_unknown = nodes == 0 || nodes == 1 && self.local_size.is_some_and(|local| local < size);
        (!is_unknown && mapped != nodes).then(|| {
            let noun = |count: u32| if count == 1 { "node" } else { "nodes" };
            let expected = format!("the {size} ranks on {nodes} {}, where they were started", noun(nodes));
            (expected, format!("places them on {mapped} {}", noun(mapped)))
        })
    }

    /// Describes the placement of `size` processes, if they are not on the requested number of nodes.
    pub(super) fn difference(&self, size: u32, nodes: u32) -> Option<String> {
        if !self.has_several() {
            let local = self.local_size.filter(|local| nodes <= 1 && *local < size)?;
            return Some(format!(
                "the process manager placed {local} of {size} processes on a node ({LOCAL_SIZE_VARIABLE})"
            ));
        }
        self.contradiction(&place(size, nodes.max(1)), nodes)?;
        let mut names = self.names.clone();
        names.sort();
        Some(UnjudgedReason::placement(size, &names))
    }
}
