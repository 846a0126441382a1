//! The sequence of rounds, barriers and spawns in a session against a server, for all dialects.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Piece, Template};

use super::model::{PutKey, RankRequests, SessionModel};
use crate::session::decisions::{percent, pick, shuffle};
use crate::session::pieces::{join_adjacent, literal};
use crate::session::plan::{PlannedStep, must_answer, request_of};
use crate::session::statement::{MAX_SPAWNED_GROUPS, exit, join, leave};

/// Maximum number of keys that are read after a barrier.
const MAX_KEYS_READ: usize = 300;

/// Splits a template into two writes at a random position, which may be its start or its end.
fn split_text(text: &mut Template, u: &mut Unstructured<'_>) -> Result<()> {
    let piece = u.int_in_range(0..=text.pieces.len())?;
    match text.pieces.get(piece) {
        Some(Piece::Literal { bytes, .. }) => {
            let (first, second) = bytes.split_at(u.int_in_range(0..=bytes.len())?);
            let parts = [literal(first), Piece::Cut, literal(second)];
            text.pieces.splice(piece..=piece, parts);
        }
        _ => text.pieces.insert(piece, Piece::Cut),
    }
    join_adjacent(text);
    Ok(())
}

impl SessionModel<'_, '_> {
    pub(crate) fn build(&mut self) -> Result<()> {
        if !self.offers_pmi12 && percent(self.u)? < 80 {
            self.plan.push(PlannedStep::Stmt(join(self.dialect)));
        } else {
            self.start()?;
        }
        if self.has_threads() {
            self.ask_jobid()?;
        }
        self.started = self.plan.len();
        for _ in 0..self.u.int_in_range(1..=self.swarm.rounds.max(1))? {
            let work = (0..self.ranks).map(|rank| self.work(rank)).collect::<Result<_>>()?;
            self.interleave(work)?;
            if self.has("put-node-attribute") {
                self.wait_for_attribute()?;
            }
            if self.offers_pmi12 {
                self.group_barriers()?;
            }
            if percent(self.u)? < 70 {
                self.barrier()?;
                if self.swarm.read_back {
                    self.read_back()?;
                }
            }
            if self.swarm.groups
                && self.scope.spawn
                && self.upstream_operation.is_none()
                && self.groups < MAX_SPAWNED_GROUPS
            {
                self.spawn_and_speak()?;
            }
        }
        if let Some(sweep) = self.swarm.sweep
            && self.upstream_operation.is_none()
            && (self.scope.names || !sweep.is_of_names())
        {
            self.sweep(sweep)?;
        }
        if self.swarm.read_at_end {
            self.keys_read = 0;
            self.read_back()?;
        }
        if self.u.int_in_range(0..=39)? == 39 {
            self.repeat()?;
        }
        self.end()?;
        if self.swarm.pieces {
            self.split_requests()?;
        }
        Ok(())
    }

    /// Reads the keys that became visible to all ranks since the last read. Each key is read by one process, preferably not by the process
    /// that put it.
    pub(crate) fn read_back(&mut self) -> Result<()> {
        let keys: Vec<PutKey> = self.visible_keys[self.keys_read.min(self.visible_keys.len())..].to_vec();
        self.keys_read = self.visible_keys.len();
        if self.upstream_answers("get") {
            return Ok(());
        }
        let mut all: Vec<RankRequests> = vec![Vec::new(); self.ranks as usize];
        for key in keys.into_iter().take(MAX_KEYS_READ) {
            let mut reader = self.any_rank()?;
            if reader == key.by {
                reader = (reader + 1) % self.ranks;
            }
            all[reader as usize].push(self.get_of(reader, key.name));
        }
        self.interleave(all)
    }

    /// Plans a spawn and the requests of the spawned processes. Other processes do nothing until the spawned processes have finished, so
    /// that the order of the requests is known.
    fn spawn_and_speak(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        let spawn = self.spawn(rank)?;
        self.plan.extend(spawn);
        let children = self.child_requests(self.groups)?;
        self.plan.extend(children.into_iter().map(PlannedStep::Stmt));
        Ok(())
    }

    fn split_requests(&mut self) -> Result<()> {
        let often = pick(self.u, &[4, 1, 10])?;
        for planned in &mut self.plan {
            let PlannedStep::Request { messages, .. } = planned else { continue };
            if !self.u.ratio(1, often)? {
                continue;
            }
            // The word `endcmd`, which marks the end of a program in a spawn request, has no value that could be split.
            let mut values: Vec<&mut Template> =
                messages.iter_mut().flatten().filter(|f| f.key != "endcmd").map(|f| &mut f.value).collect();
            let Some(last) = values.len().checked_sub(1) else { continue };
            // Prefer the last value, after which the server has little left to read.
            let at = if self.u.ratio(1, 2)? { last } else { self.u.int_in_range(0..=last)? };
            split_text(values[at], self.u)?;
        }
        Ok(())
    }

    fn work(&mut self, rank: u32) -> Result<RankRequests> {
        (0..self.u.int_in_range(0..=self.swarm.requests)?).map(|_| self.unscripted_request(rank)).collect()
    }

    /// Returns a random request, but never one whose response comes from a step of the upstream.
    fn unscripted_request(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        let request = self.requests(rank)?;
        Ok(match request.first() {
            Some(PlannedStep::Request { op, .. })
                if self.upstream_operation == Some(*op) && !op.is(&["get"]) =>
            {
                self.request_and_wait(rank, "universe", &[])
            }
            _ => request,
        })
    }

    /// Plans a barrier that processes enter in random order. Processes that enter late may make requests before they enter.
    pub(crate) fn barrier(&mut self) -> Result<()> {
        let mut order: Vec<u32> = (0..self.ranks).collect();
        shuffle(self.u, &mut order)?;
        let mut meanwhile = Vec::new();
        for rank in &order {
            meanwhile.push(match self.u.ratio(1, 5)? {
                true if self.u.ratio(1, 3)? => self.put(*rank)?,
                true => self.get(*rank)?,
                false => Vec::new(),
            });
        }
        let mut leaving = order.clone();
        shuffle(self.u, &mut leaving)?;
        self.barrier_in_order(order.into_iter().zip(meanwhile), &leaving)
    }

    /// Plans a barrier that the processes enter one after the other.
    pub(crate) fn plain_barrier(&mut self) -> Result<()> {
        let all: Vec<u32> = (0..self.ranks).collect();
        self.barrier_in_order(all.iter().map(|rank| (*rank, Vec::new())), &all)
    }

    /// Plans a barrier that processes enter in the order of `entering`, each after its requests, and leave in the order of `leaving`.
    fn barrier_in_order(
        &mut self,
        entering: impl IntoIterator<Item = (u32, Vec<PlannedStep>)>,
        leaving: &[u32],
    ) -> Result<()> {
        if self.upstream_answers("barrier") {
            return Ok(());
        }
        let op = self.op("barrier");
        let mut entering = entering.into_iter().peekable();
        while let Some((rank, before)) = entering.next() {
            self.plan.extend(before);
            // The last process to enter does not wait in the barrier, so it makes no request in the meantime.
            match entering.peek() {
                Some(_) => self.enter(rank)?,
                None => self.plan.push(request_of(rank, op, &[])),
            }
        }
        self.plan.extend(leaving.iter().map(|rank| must_answer(*rank, op)));
        self.visible_keys.append(&mut self.new_keys);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        match self.u.int_in_range(0..=19)? {
            18 => self.abort(rank)?,
            19 => self.plan.push(PlannedStep::Stmt(exit(rank, 3))),
            0..4 => {
                let mut all = Vec::new();
                for rank in 0..self.ranks {
                    // Some ranks get a key before they finalize, possibly after other ranks have left.
                    let before = if self.u.ratio(1, 2)? { Some(self.get(rank)?) } else { None };
                    all.push(
                        before.into_iter().chain([self.request_and_wait(rank, "finalize", &[])]).collect(),
                    );
                }
                self.interleave(all)?;
            }
            _ => self.plan.push(PlannedStep::Stmt(leave(self.dialect))),
        }
        Ok(())
    }
}
