//! Free sessions: each rank is a program of valid requests that runs as fast as responses arrive.
//!
//! The requests are chosen so that ranks meet: they get keys while others put them, use the same names, and read everything after the
//! barrier. Each value begins with its key, so that a mixture of two values is recognized.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Template;

use super::model::{SessionModel, template_of};
use super::scope::SessionFeatures;
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::fields::text;
use crate::session::pieces::letters;
use crate::session::plan::{PlannedStep, must_answer, request_of};
use crate::session::statement::leave;

/// The numbers of ranks; small numbers are played more often, because their launches are faster.
pub const RANKS: [u32; 8] = [2, 2, 3, 4, 8, 16, 32, 64];

/// Maximum number of requests of a session between two barriers.
const MAX_REQUESTS: u32 = 256;

/// Number of names that all ranks use.
const SHARED_NAMES: u32 = 3;

/// Length of a value that servers may copy in several steps.
const LONG: i64 = 900;

/// Generates a session.
pub(crate) fn session(scope: SessionFeatures, u: &mut Unstructured<'_>) -> Result<Case> {
    let dialect = scope.dialects.draw(u)?;
    let ranks = pick(u, &RANKS)?.min(scope.free_ranks);
    let rounds = u.int_in_range(1..=4)?;
    let requests = pick(u, &[2, 1, 4, 8, 16])?.min(MAX_REQUESTS / ranks).max(1);
    let has_names = scope.names && u.ratio(1, 2)?;
    let has_spawn = scope.spawn && u.ratio(1, 8)?;
    let mut model = SessionModel::joined(scope, dialect, ranks, u);
    if has_spawn {
        model.spawn_beside()?;
    }
    // Hydra's mpiexec crashes at a get before the first fence of PMI-2, which hides everything else.
    if model.u.ratio(3, 4)? {
        model.free_barrier();
    }
    for round in 0..rounds {
        for rank in 0..ranks {
            for number in 0..requests {
                let request = model.free_request(rank, [round, number, requests], has_names)?;
                model.plan.extend(request);
            }
        }
        model.free_barrier();
    }
    model.plan.push(PlannedStep::Stmt(leave(dialect)));
    let nodes = if scope.nodes > 1 && model.u.ratio(1, 4)? { 2 } else { 1 };
    let mut case = model.into_case();
    (case.scenario.is_free, case.scenario.nodes) = (true, nodes);
    Ok(case)
}

impl SessionModel<'_, '_> {
    /// Plans a barrier of all ranks.
    fn free_barrier(&mut self) {
        let op = self.op("barrier");
        self.plan.extend((0..self.ranks).map(|rank| request_of(rank, op, &[])));
        self.plan.extend((0..self.ranks).map(|rank| must_answer(rank, op)));
    }

    /// Plans a request of one rank, given the round, its number in the round, and the number of requests of each rank in a round.
    fn free_request(
        &mut self,
        rank: u32,
        [round, number, requests]: [u32; 3],
        has_names: bool,
    ) -> Result<Vec<PlannedStep>> {
        let key = |by: u32, round: u32, number: u32| format!("k{by}-{round}-{number}");
        let other = (rank + self.u.int_in_range(1..=self.ranks - 1)?) % self.ranks;
        let at = self.u.int_in_range(0..=requests - 1)?;
        Ok(match percent(self.u)? {
            0..40 => {
                let length = pick(self.u, &[4, 60, LONG])?;
                let key = key(rank, round, number);
                let value = template_of(&format!("{key}."), letters(length));
                self.put_of(rank, text(key), value)
            }
            40..60 if has_names => self.free_name(rank, round, number)?,
            // The key may be put at the same time, or not at all.
            40..70 => self.get_of(rank, text(key(other, round, at))),
            _ => self.get_of(rank, text(key(other, round.saturating_sub(1), at))),
        })
    }

    /// Plans a request about a name: one that all ranks use, or one that only this rank publishes and others look up.
    fn free_name(&mut self, rank: u32, round: u32, number: u32) -> Result<Vec<PlannedStep>> {
        let port = || text(format!("port-{rank}-{round}-{number}"));
        let shared: Template = text(format!("shared-{}", self.u.int_in_range(0..=SHARED_NAMES - 1)?));
        Ok(match self.u.int_in_range(0..=7)? {
            0 | 1 => self.publish_of(rank, text(format!("own-{rank}-{round}-{number}")), port()),
            2 => {
                let (by, at) = (self.any_rank()?, self.u.int_in_range(0..=number)?);
                self.name_of(rank, "lookup", text(format!("own-{by}-{}-{at}", round.saturating_sub(1))))
            }
            3 | 4 => self.publish_of(rank, shared, port()),
            5 | 6 => self.name_of(rank, "lookup", shared),
            _ => self.name_of(rank, "unpublish", shared),
        })
    }

    /// Plans a spawn. The processes of the new group run beside those of the first.
    fn spawn_beside(&mut self) -> Result<()> {
        let spawn = self.spawn(0)?;
        self.plan.extend(spawn);
        let children = self.child_requests(self.groups)?;
        self.plan.extend(children.into_iter().map(PlannedStep::Stmt));
        Ok(())
    }
}
