//! The smallest case for each edge of an implementation's program that few cases went along: behind one of them lies what none has
//! reached. All have their turn; one that is new has many at once, since what lies behind it was never looked for.

use std::collections::HashMap;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::case::Case;
use super::edges::Edges;

/// A new edge has so many turns more than others.
const FIRST: i64 = 32;

/// An edge that more than one case of so many goes along is none of the frontier: what lies behind it is met anyway.
const FEW: u64 = 12;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    edges: HashMap<u32, Way>,
    /// Cases of which the edges were told.
    cases: u64,
}

/// How an edge is reached.
#[derive(Debug)]
struct Way {
    /// Cases that went along it.
    cases: u64,
    case: Arc<Case>,
    weight: usize,
    /// How often a case was made of its case.
    turns: i64,
    /// The weight of the case for which it had the turns of a new one.
    tried: usize,
}

impl Frontier {
    fn is_rare(&self, way: &Way) -> bool {
        way.cases * FEW <= self.cases
    }

    fn least(&self) -> Option<i64> {
        self.edges.values().filter(|way| self.is_rare(way)).map(|way| way.turns).min()
    }

    /// Takes in which edges a case went along.
    pub(crate) fn went(&mut self, case: &Case, edges: &Edges) {
        let weight = case.weight();
        let turns = self.least().unwrap_or(FIRST) - FIRST;
        let mut shared = None;
        self.cases += 1;
        for edge in edges.all() {
            let mut this = || Arc::clone(shared.get_or_insert_with(|| Arc::new(case.clone())));
            let new = || Way { cases: 0, case: this(), weight, turns, tried: weight };
            let way = self.edges.entry(edge).or_insert_with(new);
            way.cases += 1;
            if weight < way.weight {
                (way.case, way.weight) = (this(), weight);
            }
            if weight <= way.tried / 2 {
                // In the larger one, what was changed mostly had nothing to do with the edge.
                (way.turns, way.tried) = (turns, weight);
            }
        }
    }

    /// The case of an edge that had the fewest turns.
    pub(crate) fn choose(&mut self, u: &mut Unstructured<'_>) -> Result<Option<Case>> {
        let Some(least) = self.least() else { return Ok(None) };
        let has_turn = |way: &Way| way.turns == least && self.is_rare(way);
        let mut first: Vec<u32> =
            self.edges.iter().filter(|(_, way)| has_turn(way)).map(|(edge, _)| *edge).collect();
        first.sort_unstable();
        let chosen = Arc::clone(&self.edges[u.choose(&first)?].case);
        // Edges that one case leads along have their turn together.
        self.edges.values_mut().filter(|way| Arc::ptr_eq(&way.case, &chosen)).for_each(|way| way.turns += 1);
        Ok(Some(Case::clone(&chosen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::draw;
    use crate::statement::close;
    use pmi_scenario::ast::UnderTest;

    #[test]
    fn rare_edges_have_their_turn_and_new_ones_more_by_their_smallest_case() {
        let case = |steps: usize| Case::new(UnderTest::Server, 1, vec![close(0); steps]);
        let went = |all: &[u32]| Edges::of(all.iter().map(|edge| (*edge, 1)).collect());
        let mut frontier = Frontier::default();
        let bytes = draw(1, 1);
        let mut u = Unstructured::new(&bytes);
        assert!(frontier.choose(&mut u).unwrap().is_none());
        (0..40).for_each(|_| frontier.went(&case(1), &went(&[1])));
        frontier.went(&case(5), &went(&[1, 2]));
        frontier.went(&case(4), &went(&[1, 2]));
        // What all go along is no edge of the frontier.
        for _ in 0..FIRST + 5 {
            assert_eq!(frontier.choose(&mut u).unwrap().unwrap().len(), 4);
        }
        frontier.went(&case(7), &went(&[1, 3]));
        let lengths: Vec<usize> =
            (0..2 * FIRST).map(|_| frontier.choose(&mut u).unwrap().unwrap().len()).collect();
        assert!(lengths.iter().filter(|length| **length == 7).count() > 40, "{lengths:?}");
        assert!(lengths.contains(&4), "{lengths:?}");
    }
}
