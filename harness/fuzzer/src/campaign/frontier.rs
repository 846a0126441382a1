//! The frontier: the smallest case for each rare edge of the implementation's program. Unreached code lies beyond these edges, so a
//! campaign derives new cases from the cases of all these edges in turn. A new edge gets many turns in a row, because the code beyond it
//! has not been explored.

use std::collections::HashMap;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use crate::observe::edges::Edges;
use crate::session::case::Case;

/// Number of additional turns for a new edge.
const NEW_EDGE_TURNS: i64 = 32;

/// An edge is rare if at most one in `RARE_EDGE_RATIO` cases covers it. Ordinary cases already reach the code beyond more common edges.
const RARE_EDGE_RATIO: u64 = 12;

/// The rare edges and their cases. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    edges: HashMap<u32, FrontierEdge>,
    /// Number of cases whose edges were recorded.
    cases: u64,
}

/// The smallest case that reaches an edge, and the edge's turns.
#[derive(Debug)]
struct FrontierEdge {
    /// Number of cases that covered the edge.
    cases: u64,
    case: Arc<Case>,
    weight: usize,
    /// Number of turns taken. A new edge begins with fewer turns than the others, so that it gets its additional turns first.
    turns: i64,
    /// The weight of the case when the edge was last given additional turns.
    tried_weight: usize,
}

impl Frontier {
    fn is_rare(&self, known: &FrontierEdge) -> bool {
        known.cases * RARE_EDGE_RATIO <= self.cases
    }

    fn fewest_turns(&self) -> Option<i64> {
        self.edges.values().filter(|known| self.is_rare(known)).map(|known| known.turns).min()
    }

    pub(crate) fn record_edges(&mut self, case: &Case, edges: &Edges) {
        let weight = case.size();
        let turns = self.fewest_turns().unwrap_or(NEW_EDGE_TURNS) - NEW_EDGE_TURNS;
        let mut shared = None;
        self.cases += 1;
        for edge in edges.all() {
            let mut this = || Arc::clone(shared.get_or_insert_with(|| Arc::new(case.clone())));
            let new = || FrontierEdge { cases: 0, case: this(), weight, turns, tried_weight: weight };
            let known = self.edges.entry(edge).or_insert_with(new);
            known.cases += 1;
            if weight < known.weight {
                (known.case, known.weight) = (this(), weight);
            }
            if weight <= known.tried_weight / 2 {
                // The edge regains its additional turns, because most mutations of the larger case changed parts that were unrelated to the
                // edge.
                (known.turns, known.tried_weight) = (turns, weight);
            }
        }
    }

    /// Chooses an edge among those with the fewest turns, and returns its case. Returns `None` if no edge is rare.
    pub(crate) fn choose(&mut self, u: &mut Unstructured<'_>) -> Result<Option<Case>> {
        let Some(least) = self.fewest_turns() else { return Ok(None) };
        let has_turn = |known: &FrontierEdge| known.turns == least && self.is_rare(known);
        let mut first: Vec<u32> =
            self.edges.iter().filter(|(_, known)| has_turn(known)).map(|(edge, _)| *edge).collect();
        first.sort_unstable();
        let chosen = Arc::clone(&self.edges[u.choose(&first)?].case);
        // Edges with the same case share their turns.
        self.edges
            .values_mut()
            .filter(|known| Arc::ptr_eq(&known.case, &chosen))
            .for_each(|known| known.turns += 1);
        Ok(Some(Case::clone(&chosen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::decisions::draw_bytes;
    use crate::session::statement::close;
    use pmi_scenario::ast::ImplementationKind;

    #[test]
    fn prefers_smallest_sessions_with_rare_or_new_edges() {
        let case = |steps: usize| Case::new(ImplementationKind::Server, 1, vec![close(0); steps]);
        let covered = |all: &[u32]| Edges::of(all.iter().map(|edge| (*edge, 1)).collect());
        let mut frontier = Frontier::default();
        let bytes = draw_bytes(1, 1);
        let mut u = Unstructured::new(&bytes);
        assert!(frontier.choose(&mut u).unwrap().is_none());
        (0..40).for_each(|_| frontier.record_edges(&case(1), &covered(&[1])));
        frontier.record_edges(&case(5), &covered(&[1, 2]));
        frontier.record_edges(&case(4), &covered(&[1, 2]));
        // All cases cover edge 1, so it is not rare, and its case is never chosen.
        for _ in 0..NEW_EDGE_TURNS + 5 {
            assert_eq!(frontier.choose(&mut u).unwrap().unwrap().len(), 4);
        }
        frontier.record_edges(&case(7), &covered(&[1, 3]));
        let lengths: Vec<usize> =
            (0..2 * NEW_EDGE_TURNS).map(|_| frontier.choose(&mut u).unwrap().unwrap().len()).collect();
        assert!(lengths.iter().filter(|length| **length == 7).count() > 40, "{lengths:?}");
        assert!(lengths.contains(&4), "{lengths:?}");
    }
}
