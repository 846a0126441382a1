//! The state before a step of a case for a server: the names that are bound, the requests that were passed on, and the groups that were
//! spawned.

use pmi_scenario::ast::{Expr, Piece, Statement, Template, UpstreamAction};

use crate::session::pieces::{agent, bytes_of, join_adjacent, length, letters, literal};
use crate::session::reading::whole_spawn;
use crate::session::statement::{AwaitedResponse, ServerStep};

#[derive(Debug, Default)]
pub(crate) struct BoundNames {
    kvs: bool,
    jobid: bool,
    limits: bool,
    forwarded: u32,
    spawned: u32,
    child_kvs: bool,
}

impl BoundNames {
    /// Records a statement. Returns false if the statement answers a request that the proxy has not forwarded, belongs to a group that was
    /// not spawned, or is not a step of a case.
    pub(crate) fn take(&mut self, statement: &Statement) -> bool {
        match ServerStep::of(statement) {
            Some(ServerStep::Join) => (self.kvs, self.limits) = (true, true),
            Some(ServerStep::Wait { answer: AwaitedResponse::Due(op), .. }) => {
                for name in op.bindings().map(|(_, name)| name) {
                    match name {
                        "kvs" => self.kvs = true,
                        "jobid" => self.jobid = true,
                        _ => self.limits = true,
                    }
                }
            }
            Some(ServerStep::PassedOn) => self.forwarded += 1,
            Some(ServerStep::Write { lines, .. }) => {
                let spawns = lines.iter().flat_map(|line| &line.pieces).any(|piece| *piece == agent());
                // An incomplete spawn is not counted, because it starts no process, and waiting for one would take a long time.
                let is_block = || lines.first().is_some_and(|first| bytes_of(first) == b"mcmd=spawn");
                self.spawned += u32::from(spawns && (!is_block() || whole_spawn(lines).is_some()));
            }
            Some(ServerStep::Children { group }) => {
                self.child_kvs |= matches!(statement, Statement::Use { .. });
                return self.has_spawned(group);
            }
            Some(ServerStep::Upstream(action)) => {
                let least = match action {
                    UpstreamAction::Response { to, .. } => to.unwrap_or(0),
                    UpstreamAction::CorrectResponse { to } => to.unwrap_or(1),
                    UpstreamAction::Close => 0,
                };
                return least <= self.forwarded;
            }
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// Returns whether at least `groups` groups were spawned.
    pub(crate) fn has_spawned(&self, groups: u32) -> bool {
        groups <= self.spawned
    }

    /// Returns whether every name in a line has a value.
    pub(crate) fn binds(&self, line: &Template) -> bool {
        line.pieces.iter().all(|piece| match piece {
            Piece::Var(name) if name == "kvs" => self.kvs,
            Piece::Var(name) if name == "jobid" => self.jobid,
            Piece::Var(name) if name == "child_kvs" => self.child_kvs,
            Piece::Fill(Expr::Number(_)) => true,
            Piece::Fill(_) => self.limits,
            _ => true,
        })
    }

    /// Replaces unbound names with placeholders. A name is unbound if no earlier step joins all ranks or waits
    /// for the response that contains its value.
    pub(crate) fn fill_placeholders(&self, lines: &mut [Template]) {
        for line in lines {
            for piece in &mut line.pieces {
                match piece {
                    Piece::Var(name) if name == "kvs" && !self.kvs => *piece = literal("kvs_0"),
                    Piece::Var(name) if name == "jobid" && !self.jobid => *piece = literal("job_0"),
                    Piece::Fill(expr) if !self.limits => {
                        if let Some((Some(_), plus)) = length(expr) {
                            *piece = letters(64 + plus.max(-60));
                        }
                    }
                    _ => {}
                }
            }
            join_adjacent(line);
        }
    }
}
