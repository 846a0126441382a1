//! Coverage: the edges of an instrumented program ([`EdgeMap`]) that cases covered, and which of these edges are new.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use pmi_process::observe::edges::EdgeMap;
use serde::{Deserialize, Serialize};

/// The set of all classes of execution counts, with one bit for each class.
const ALL_CLASSES: u8 = 0xff;

/// The edges that a case covered, each with a bit for the class of its execution count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edges(Vec<(u32, u8)>);

/// Returns the class of an execution count, as in AFL: each count up to three has its own class, and the classes of higher counts are
/// ranges of increasing size.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

impl Edges {
    pub(crate) fn of(counted: Vec<(u32, u8)>) -> Self {
        Self(counted.into_iter().map(|(edge, count)| (edge, class(count))).collect())
    }

    /// Returns whether no edge was covered, which means that the program is not instrumented.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(edge, _)| format!("edge {edge}"))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(edge, _)| *edge)
    }

    /// Returns whether all of the given edges were covered.
    pub(crate) fn has(&self, all: &[u32]) -> bool {
        all.iter().all(|edge| self.class(*edge) != 0)
    }

    fn class(&self, edge: u32) -> u8 {
        self.0.binary_search_by_key(&edge, |(edge, _)| *edge).map_or(0, |at| self.0[at].1)
    }
}

/// The edges that the cases of a campaign have covered, each with the classes of its execution counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredEdges(BTreeMap<u32, u8>);

/// The new coverage of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewCoverage {
    /// The case covers nothing new.
    None,
    /// The case covers a known edge with a new class of execution counts.
    Times,
    /// The case covers these new edges.
    Edges(Vec<u32>),
}

impl CoveredEdges {
    /// Returns the number of edges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no edge was reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the coverage of a case, and returns the part of it that is new.
    pub(crate) fn add(&mut self, edges: &Edges) -> NewCoverage {
        let (mut new, mut times) = (Vec::new(), false);
        for (edge, class) in &edges.0 {
            let had = self.0.entry(*edge).or_default();
            match *had {
                0 => new.push(*edge),
                classes => times |= classes & class == 0,
            }
            *had |= class;
        }
        match (new.is_empty(), times) {
            (false, _) => NewCoverage::Edges(new),
            (true, true) => NewCoverage::Times,
            (true, false) => NewCoverage::None,
        }
    }

    /// Returns whether two runs of the same case agree on the class of each edge's execution count. The counts of edges on which they
    /// disagree are ignored from now on.
    pub(crate) fn is_steady(&mut self, first: &Edges, second: &Edges) -> bool {
        let mut steady = true;
        for (edge, classes) in &mut self.0 {
            if first.class(*edge) != second.class(*edge) {
                steady = false;
                *classes = ALL_CLASSES;
            }
        }
        steady
    }
}

/// Edge maps for an implementation. Each case that is played in parallel uses its own map.
#[derive(Debug, Default)]
pub(crate) struct Maps(Mutex<Vec<EdgeMap>>);

impl Maps {
    /// Plays a case while an edge map records its coverage. Returns the result of `play` and the edges that the case covered.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory for another map cannot be allocated.
    pub(crate) fn watch<T>(&self, play: impl FnOnce() -> T) -> io::Result<(T, Edges)> {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = idle().pop();
        let map = unused.map_or_else(EdgeMap::new, Ok)?;
        // Clear the counters, because processes that an earlier case left running may have incremented them.
        if map.was_attached() {
            map.clear();
        }
        let done = map.offer_during(play);
        let edges = if map.was_attached() { Edges::of(map.counted()) } else { Edges::default() };
        idle().push(map);
        Ok((done, edges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(counted: &[(u32, u8)]) -> Edges {
        Edges::of(counted.to_vec())
    }

    #[test]
    fn reports_each_edge_and_count_class_once() {
        let mut reached = CoveredEdges::default();
        assert_eq!(reached.add(&edges(&[(3, 1), (9, 200)])), NewCoverage::Edges(vec![3, 9]));
        assert_eq!(reached.add(&edges(&[(3, 1), (9, 128)])), NewCoverage::None);
        assert_eq!(reached.add(&edges(&[(3, 2)])), NewCoverage::Times);
        assert_eq!(reached.add(&edges(&[(3, 8), (4, 1)])), NewCoverage::Edges(vec![4]));
        assert_eq!(reached.add(&edges(&[(3, 15)])), NewCoverage::None);
        assert_eq!(reached.len(), 3);
    }

    #[test]
    fn ignores_counts_of_unstable_edges() {
        let mut reached = CoveredEdges::default();
        let (once, often) = (edges(&[(3, 1), (4, 1)]), edges(&[(3, 7), (4, 1)]));
        reached.add(&once);
        assert!(reached.is_steady(&once, &once));
        assert!(!reached.is_steady(&once, &often));
        assert_eq!(reached.add(&edges(&[(3, 100)])), NewCoverage::None);
        assert_eq!(reached.add(&edges(&[(4, 100)])), NewCoverage::Times);
        // The runs also disagree if only one of them covers an edge.
        assert!(!reached.is_steady(&once, &edges(&[(3, 1)])));
    }

    #[test]
    fn uninstrumented_target_has_no_edges() {
        let maps = Maps::default();
        let (done, edges) = maps.watch(|| 5).unwrap();
        assert!(done == 5 && edges.is_empty());
        assert_eq!(maps.0.lock().unwrap().len(), 1);
    }
}
