//! Free sessions: each rank makes a series of valid requests, as fast as the responses arrive.
//!
//! The requests are chosen so that ranks access the same data: ranks get keys while other ranks put these keys, use the same names, and
//! read everything after the barrier. Each value begins with its key, so that a mixture of two values is detected. A rank may hold back the
//! last byte of a request while others send their requests. Systematic sessions do this for each pair of operations. Some sessions also
//! stop a rank for a moment, or let a rank leave early.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Piece, Template};

use super::model::{SessionModel, template_of};
use super::requests::own_space;
use super::scope::SessionFeatures;
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::fields::text;
use crate::session::pieces::letters;
use crate::session::plan::{PlannedStep, ask, must_answer, request_of};
use crate::session::statement::{close, exit, kill, leave, pause};

/// The numbers of ranks to choose from. Small numbers occur more often, because small jobs start faster.
pub const RANKS: [u32; 8] = [2, 2, 3, 4, 8, 16, 32, 64];

/// Maximum number of requests in a session between two barriers.
const MAX_REQUESTS: u32 = 256;

/// Number of names that all ranks use.
const SHARED_NAMES: u32 = 3;

/// Length of a long value, which servers may copy in several steps.
const LONG_VALUE_LENGTH: i64 = 900;

/// Generates a free session.
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
    // In PMI-2, Hydra's mpiexec crashes on a get before the first fence. This crash hides all other failures, so most sessions begin with a
    // barrier.
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
    match model.u.ratio(1, 8)? {
        true => model.depart([rounds, requests], has_names)?,
        false => model.plan.push(PlannedStep::Stmt(leave(dialect))),
    }
    let nodes = if scope.nodes > 1 && model.u.ratio(1, 4)? { 2 } else { 1 };
    if model.u.ratio(1, 8)? {
        let at = model.u.choose_index(model.plan.len())?;
        let parent = model.u.ratio(1, 2)?;
        let pauses = model.plan[at].rank().map(|rank| PlannedStep::Stmt(pause(rank, parent)));
        model.plan.splice(at + 1..at + 1, pauses);
    }
    if model.u.ratio(1, 2)? {
        for step in &mut model.plan {
            if model.u.ratio(1, 4)? {
                hold_back(step);
            }
        }
    }
    let mut case = model.into_case();
    (case.scenario.is_free, case.scenario.nodes) = (true, nodes);
    Ok(case)
}

/// The operations that overlap in systematic sessions.
const OVERLAPPING: [&str; 6] = ["barrier", "put", "get", "publish", "lookup", "unpublish"];

/// Number of times that each pair of operations overlaps in a session.
const OVERLAPS: u32 = 6;

/// Returns the operations that overlap in the systematic sessions of this scope.
pub(crate) fn overlapping(scope: SessionFeatures) -> &'static [&'static str] {
    if scope.names { &OVERLAPPING } else { &OVERLAPPING[..3] }
}

/// Generates a session in which two ranks make requests between two barriers. The first rank holds back the last byte of each `held`
/// request until the other rank has sent its request. In every other round, the other rank also holds back the last byte of its request.
pub(crate) fn overlaps(scope: SessionFeatures, dialect: Dialect, held: &str) -> Case {
    let mut none = Unstructured::new(&[]);
    let mut model = SessionModel::joined(scope, dialect, 2, &mut none);
    for (kind, other) in (0..).zip(overlapping(scope)) {
        for round in kind * OVERLAPS..(kind + 1) * OVERLAPS {
            let operations = [(0, held), (1, *other)];
            for (rank, _) in operations.into_iter().filter(|(_, operation)| *operation == "unpublish") {
                let publish = model.overlapping("publish", rank, round);
                model.plan.extend(publish);
            }
            model.free_barrier();
            for (rank, operation) in operations {
                // An earlier name is unpublished first, because a server with a race condition may give the freed entry to two names that
                // are published at the same time.
                if operation == "publish" && round > kind * OVERLAPS {
                    let withdraw = model.overlapping("unpublish", rank, round - 1);
                    model.plan.extend(withdraw);
                }
                let first = model.plan.len();
                let steps = model.overlapping(operation, rank, round);
                model.plan.extend(steps);
                if rank == 0 || round % 2 == 1 {
                    model.plan[first..].iter_mut().for_each(hold_back);
                }
            }
            let closing = model.plan.len();
            model.free_barrier();
            if held == "barrier" {
                hold_back(&mut model.plan[closing]);
            }
            for rank in 0..2 {
                for operation in
                    ["get", "lookup"].into_iter().filter(|operation| *operation == "get" || scope.names)
                {
                    let read = model.overlapping(operation, rank, round);
                    model.plan.extend(read);
                }
            }
        }
    }
    model.plan.push(PlannedStep::Stmt(leave(dialect)));
    let mut case = model.into_case();
    case.scenario.is_free = true;
    case
}

/// Holds back the last byte of a request.
fn hold_back(step: &mut PlannedStep) {
    if let PlannedStep::Request { messages, .. } = step
        && let [message] = &mut messages[..]
        && let Some(field) = message.last_mut()
    {
        field.value.pieces.push(Piece::Cut);
    }
}

impl SessionModel<'_, '_> {
    /// Plans a barrier of all ranks.
    fn free_barrier(&mut self) {
        let op = self.op("barrier");
        self.plan.extend((0..self.ranks).map(|rank| request_of(rank, op, &[])));
        self.plan.extend((0..self.ranks).map(|rank| must_answer(rank, op)));
    }

    /// Plans a request of a rank. The three numbers are the round, the number of the request in the round, and the number of requests that
    /// each rank makes in a round.
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
                let length = pick(self.u, &[4, 60, LONG_VALUE_LENGTH])?;
                let key = key(rank, round, number);
                let value = template_of(&format!("{key}."), letters(length));
                self.put_of(rank, text(key), value)
            }
            40..60 if has_names => self.free_name(rank, round, number)?,
            // The other rank may put this key at the same time, or never.
            40..70 => self.get_of(rank, text(key(other, round, at))),
            _ => self.get_of(rank, text(key(other, round.saturating_sub(1), at))),
        })
    }

    /// Plans a request about a name: a name that all ranks use, or a name that only this rank publishes and other ranks look up.
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

    /// Returns the steps in which `rank`, one of two ranks, performs an operation. Gets and lookups read what the other rank puts and
    /// publishes. A barrier needs no steps, because a barrier ends the round.
    fn overlapping(&self, operation: &str, rank: u32, round: u32) -> Vec<PlannedStep> {
        let of = |rank: u32| text(format!("of-{rank}-{round}"));
        let value = template_of(&format!("of-{rank}-{round}."), letters(LONG_VALUE_LENGTH));
        match operation {
            "put" => self.request_and_wait(rank, "put", &[own_space(), ("key", of(rank)), ("value", value)]),
            "get" => self.get_of(rank, of(1 - rank)),
            "publish" => self.publish_of(rank, of(rank), text(format!("port-{rank}-{round}"))),
            "unpublish" => self.name_of(rank, operation, of(rank)),
            "lookup" => self.name_of(rank, operation, of(1 - rank)),
            _ => Vec::new(),
        }
    }

    /// Plans requests without a barrier. While the other ranks make their requests, one rank finalizes and exits, or leaves without
    /// finalize.
    fn depart(&mut self, [round, requests]: [u32; 2], has_names: bool) -> Result<()> {
        let (gone, finalizes) = (self.any_rank()?, self.u.arbitrary()?);
        let op = self.op("finalize");
        let mut work = Vec::new();
        for rank in 0..self.ranks {
            let count = if rank == gone { self.u.int_in_range(0..=requests)? } else { requests };
            let mut all = Vec::new();
            for number in 0..count {
                all.extend(self.free_request(rank, [round, number, requests], has_names)?);
            }
            if finalizes {
                all.extend(ask(rank, op, &[]));
            }
            if rank == gone {
                let ends = match self.u.int_in_range(0..=2)? {
                    _ if finalizes => exit(rank, 0),
                    0 => exit(rank, 1),
                    1 => kill(rank, 9),
                    _ => close(rank),
                };
                all.push(PlannedStep::Stmt(ends));
            }
            work.push(all);
        }
        // Responses are optional after the step in which the rank leaves. A rank that leaves without finalize may end the job, so its steps
        // come first. Otherwise, its steps come last.
        let last = if finalizes { self.ranks - 1 } else { 0 };
        work.swap(gone as usize, last as usize);
        self.plan.extend(work.into_iter().flatten());
        Ok(())
    }

    /// Plans a spawn. The processes of the new group run at the same time as those of the first group.
    fn spawn_beside(&mut self) -> Result<()> {
        let spawn = self.spawn(0)?;
        self.plan.extend(spawn);
        let children = self.child_requests(self.groups)?;
        self.plan.extend(children.into_iter().map(PlannedStep::Stmt));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pmi_faults::Config;

    use super::*;
    use crate::generate::server::scope::DialectChoice;
    use crate::session::decisions::draw_bytes;
    use crate::session::testing::assert_round_trip;
    use crate::target::server::{Access, ServerTarget};
    use crate::target::{Target, Thoroughness, Tracing};

    #[test]
    fn reference_server_has_no_races() {
        let suite = pmi_runner::suite::embedded().unwrap();
        let server =
            ServerTarget::new(Access::Memory(Config::default()), suite, Duration::from_secs(1)).unwrap();
        let mut texts = String::new();
        for dialect in Dialect::ALL {
            let dialects = DialectChoice::One(dialect);
            let scope = SessionFeatures { dialects, free_ranks: 8, nodes: 2, ..SessionFeatures::default() };
            let held = OVERLAPPING.iter().map(|held| overlaps(scope, dialect, held));
            let drawn = (0..100).map(|number| {
                session(scope, &mut Unstructured::new(&draw_bytes(1, number)))
                    .expect("decisions never run out")
            });
            for case in held.chain(drawn) {
                assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
                assert_round_trip(&case);
                let run = server.play(&case, Thoroughness::Fast, Tracing::Off).unwrap();
                assert!(run.failures.is_empty(), "{:?} {}", run.failures, case.text());
                texts += &case.text();
            }
        }
        for part in [
            "<|>",
            "P: pause\n",
            "P: pause parent",
            "unpublish_name service=of-0-22\n0  expect  cmd=unpublish_result\n0  send    cmd=publish",
            "P: exit 0",
            "P: exit 1",
            "P: kill 9",
            "<close>",
            "child:*",
            "nodes 2",
        ] {
            assert!(texts.contains(part), "{part}");
        }
    }
}
