//! Edges of an implementation's program that cases went along, where it was built to tell ([`EdgeMap`]), and which of them are new.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use pmi_runner::process::edges::EdgeMap;
use serde::{Deserialize, Serialize};

/// All classes of a count.
const ALL: u8 = 0xff;

/// Edges that a case went along, and for each the class of how often, as one bit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edges(Vec<(u32, u8)>);

/// The class of a count, as AFL has it: once, twice, three times, and then ever more at once.
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

    /// No edge at all: the implementation was not built to tell of them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names of the edges.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(edge, _)| format!("edge {edge}"))
    }

    /// The edges.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(edge, _)| *edge)
    }

    /// Whether all of these are among them.
    pub(crate) fn has(&self, all: &[u32]) -> bool {
        all.iter().all(|edge| self.class(*edge) != 0)
    }

    fn class(&self, edge: u32) -> u8 {
        self.0.binary_search_by_key(&edge, |(edge, _)| *edge).map_or(0, |at| self.0[at].1)
    }
}

/// The edges that all cases of a campaign went along, and the classes of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached(BTreeMap<u32, u8>);

/// What a case reached that none before it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// It went along a known edge more or less often.
    Times,
    /// It went along edges that are new.
    Edges(Vec<u32>),
}

impl Reached {
    /// How many edges there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what a case reached, and says what of it is new.
    pub(crate) fn add(&mut self, edges: &Edges) -> News {
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
            (false, _) => News::Edges(new),
            (true, true) => News::Times,
            (true, false) => News::None,
        }
    }

    /// Of edges that one case goes along now more, now less often, how often says nothing from now on. Whether there are none.
    pub(crate) fn is_steady(&mut self, first: &Edges, second: &Edges) -> bool {
        let mut steady = true;
        for (edge, classes) in &mut self.0 {
            if first.class(*edge) != second.class(*edge) {
                steady = false;
                *classes = ALL;
            }
        }
        steady
    }
}

/// Maps for an implementation, of which cases that are played at the same time have one each.
#[derive(Debug, Default)]
pub(crate) struct Maps(Mutex<Vec<EdgeMap>>);

impl Maps {
    /// Plays a case with a map, and tells which edges it went along.
    ///
    /// # Errors
    ///
    /// There is no memory for one more.
    pub(crate) fn watch<T>(&self, play: impl FnOnce() -> T) -> io::Result<(T, Edges)> {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = idle().pop();
        let map = unused.map_or_else(EdgeMap::new, Ok)?;
        // What a case has left running may have counted on when the next was to begin.
        if map.was_taken() {
            map.clear();
        }
        let done = map.offered(play);
        let edges = if map.was_taken() { Edges::of(map.counted()) } else { Edges::default() };
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
    fn edges_and_classes_are_new_once() {
        let mut reached = Reached::default();
        assert_eq!(reached.add(&edges(&[(3, 1), (9, 200)])), News::Edges(vec![3, 9]));
        assert_eq!(reached.add(&edges(&[(3, 1), (9, 128)])), News::None);
        assert_eq!(reached.add(&edges(&[(3, 2)])), News::Times);
        assert_eq!(reached.add(&edges(&[(3, 8), (4, 1)])), News::Edges(vec![4]));
        assert_eq!(reached.add(&edges(&[(3, 15)])), News::None);
        assert_eq!(reached.len(), 3);
    }

    #[test]
    fn of_an_edge_that_is_not_steady_no_count_is_new() {
        let mut reached = Reached::default();
        let (once, often) = (edges(&[(3, 1), (4, 1)]), edges(&[(3, 7), (4, 1)]));
        reached.add(&once);
        assert!(reached.is_steady(&once, &once));
        assert!(!reached.is_steady(&once, &often));
        assert_eq!(reached.add(&edges(&[(3, 100)])), News::None);
        assert_eq!(reached.add(&edges(&[(4, 100)])), News::Times);
        // One that it goes along only sometimes is none that a count says something of.
        assert!(!reached.is_steady(&once, &edges(&[(3, 1)])));
    }

    #[test]
    fn what_was_not_built_for_it_tells_of_no_edge() {
        let maps = Maps::default();
        let (done, edges) = maps.watch(|| 5).unwrap();
        assert!(done == 5 && edges.is_empty());
        assert_eq!(maps.0.lock().unwrap().len(), 1);
    }
}
