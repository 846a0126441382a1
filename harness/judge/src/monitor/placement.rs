//! The nodes on which the process manager has placed the processes of a group, as the processes report them.

use std::collections::{BTreeMap, BTreeSet};

use pmi_wire::place;

use crate::event::{LOCAL_SIZE_VARIABLE, NODE_VARIABLES};

/// The placement of a group, to the extent that its processes have reported it.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The name of each process's node.
    names: BTreeMap<u32, String>,
    /// The smallest number of processes that share a node, as the process manager states it.
    local_size: Option<u32>,
}

impl Placement {
    /// Records the environment of a process.
    pub(super) fn record<'a>(&mut self, rank: u32, get: impl Fn(&str) -> Option<&'a str>) {
        if let Some(name) = NODE_VARIABLES.iter().find_map(|name| get(name)) {
            self.names.insert(rank, name.to_owned());
        }
        let local_size = get(LOCAL_SIZE_VARIABLE).and_then(|size| size.parse().ok());
        self.local_size = [self.local_size, local_size].into_iter().flatten().min();
    }

    /// Returns the distinct names. Equal names alone prove nothing: a launcher passes on the variables of the node that it runs on.
    fn distinct(&self) -> Option<BTreeSet<&str>> {
        let distinct: BTreeSet<&str> = self.names.values().map(String::as_str).collect();
        (distinct.len() > 1).then_some(distinct)
    }

    /// Returns the number of a process's node, if the names of the nodes show that there are several.
    pub(super) fn node(&self, rank: u32) -> Option<u32> {
        let (distinct, name) = (self.distinct()?, self.names.get(&rank)?);
        distinct.iter().position(|other| other == name).map(|node| node as u32)
    }

    /// Compares a mapping, which contains the node of each rank, with the placement. `nodes` is the requested number of nodes, 0 if
    /// unknown. Returns the expected and the observed placement if they differ.
    pub(super) fn contradiction(&self, mapping: &[u32], nodes: u32) -> Option<(String, String)> {
        if self.distinct().is_some() {
            let reported: Vec<(u32, &str, &u32)> = self
                .names
                .iter()
                .filter_map(|(rank, name)| Some((*rank, name.as_str(), mapping.get(*rank as usize)?)))
                .collect();
            let mut pairs = reported.iter().zip(1..).flat_map(|(a, next)| {
                let others = reported.get(next..).unwrap_or_default();
                others.iter().map(move |b| (*a, *b))
            });
            let ((a, on, _), (b, other, _)) = pairs.find(|((_, on, node), (_, other, node_of_other))| {
                (on == other) != (node == node_of_other)
            })?;
            let seen = if on == other { "two nodes" } else { "one node" };
            return Some((
                format!("rank {a} on {on} and rank {b} on {other}, as their environment states"),
                format!("places them on {seen}"),
            ));
        }
        let size = mapping.len() as u32;
        let mapped = mapping.iter().collect::<BTreeSet<_>>().len() as u32;
        // The process manager has spread the processes itself, so the nodes are unknown.
        let is_unknown = nodes == 0 || nodes == 1 && self.local_size.is_some_and(|local| local < size);
        (!is_unknown && mapped != nodes).then(|| {
            let expected = format!("the {size} ranks on {nodes} node(s), as they were started");
            (expected, format!("places them on {mapped}"))
        })
    }

    /// Describes how the process manager has placed `size` processes, if that differs from the requested number of nodes.
    pub(super) fn difference(&self, size: u32, nodes: u32) -> Option<String> {
        let Some(distinct) = self.distinct() else {
            let local = self.local_size.filter(|local| nodes <= 1 && *local < size)?;
            return Some(format!(
                "its process manager has placed {local} of {size} processes on a node ({LOCAL_SIZE_VARIABLE})"
            ));
        };
        self.contradiction(&place(size, nodes.max(1)), nodes)?;
        let names = Vec::from_iter(distinct);
        Some(format!(
            "its process manager has placed {size} processes on {} nodes ({})",
            names.len(),
            names.join(", ")
        ))
    }
}
