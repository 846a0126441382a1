//! The plan of a case, before the plan is converted to statements. Requests are still messages, so that mutations can change them.

use pmi_scenario::ast::{Dialect, ImplementationKind, Statement, Template};
use pmi_wire::{Framing, SpawnRequest};

use super::fields::{FieldList, WriteContent, body, line, spell};
use super::op::Op;
use super::pieces::bytes_of;
use super::reading::{request, whole_spawn};
use super::statement::{AwaitedResponse, ServerStep, rank_of, sent_mut, wait, write_as};
use crate::session::case::bindings::BoundNames;

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a plan contains only a few dozen steps and is short-lived")]
pub(crate) enum PlannedStep {
    /// A request with its messages. Only a spawn request has more than one.
    Request { rank: u32, op: Op, messages: Vec<FieldList> },
    /// A statement that is not a request.
    Stmt(Statement),
}

impl PlannedStep {
    pub(crate) fn rank(&self) -> Option<u32> {
        match self {
            Self::Request { rank, .. } => Some(*rank),
            Self::Stmt(statement) => rank_of(statement),
        }
    }

    pub(crate) fn is_wait_of(&self, rank: u32) -> bool {
        match self {
            Self::Request { .. } => false,
            Self::Stmt(statement) => {
                matches!(ServerStep::of(statement), Some(ServerStep::Wait { rank: r, .. }) if r == rank)
            }
        }
    }
}

/// Returns a wait for an optional response.
pub(crate) fn may_answer(rank: u32) -> PlannedStep {
    PlannedStep::Stmt(wait(rank, AwaitedResponse::Optional))
}

/// Returns a wait for the response to a request.
pub(crate) fn must_answer(rank: u32, op: impl Into<Op>) -> PlannedStep {
    PlannedStep::Stmt(wait(rank, AwaitedResponse::Due(op.into())))
}

/// Returns a request that is a single message with these fields. The fields are given by their names in the protocol table.
pub(crate) fn request_of(rank: u32, op: Op, fields: &[(&str, Template)]) -> PlannedStep {
    PlannedStep::Request { rank, op, messages: vec![spell(op, fields)] }
}

/// Returns a request that is a single message, and the wait for its response.
pub(crate) fn ask(rank: u32, op: Op, fields: &[(&str, Template)]) -> Vec<PlannedStep> {
    vec![request_of(rank, op, fields), must_answer(rank, op)]
}

/// A planned request whose response is not awaited yet.
struct PlannedRequest {
    rank: u32,
    op: Op,
    /// True if the request has a thread number, which allows other requests to be in progress.
    of_thread: bool,
    /// True if the request enters a barrier for a part of a group, during which other requests may be in progress.
    is_group_barrier: bool,
}

/// Converts a plan to statements. After an action that allows the server to end the job, responses are optional. `pristine` is true if the
/// plan has no mutations. If the plan has mutations, the members of barriers for a part of a group are unknown.
pub(crate) fn to_statements(plan: Vec<PlannedStep>, dialect: Dialect, pristine: bool) -> Vec<Statement> {
    let mut statements = Vec::with_capacity(plan.len());
    let mut valid = true;
    let mut pending: Vec<PlannedRequest> = Vec::new();
    let mut bound = BoundNames::default();
    for item in plan {
        let mut statement = match item {
            PlannedStep::Request { rank, op, messages } => {
                let has = |name: &str| {
                    let key = op.key(name);
                    key.is_some_and(|key| messages.iter().flatten().any(|field| field.key == key))
                };
                let (of_thread, of_part) = (has("thrid"), has("group"));
                let beside = |other: &PlannedRequest| {
                    other.rank != rank || other.is_group_barrier || (of_thread && other.of_thread)
                };
                valid &= is_as_generated(op, &messages) && pending.iter().all(beside);
                valid &= !op.is_abort() && (pristine || !of_part);
                pending.push(PlannedRequest { rank, op, of_thread, is_group_barrier: of_part });
                let encoding = op.encoding(dialect);
                write_as(rank, encoding, WriteContent::Messages(encoding, messages).lines(), false)
            }
            PlannedStep::Stmt(statement) => match ServerStep::of(&statement) {
                Some(ServerStep::Wait { rank, answer }) => {
                    let of_rank: Vec<usize> =
                        (0..pending.len()).filter(|at| pending[*at].rank == rank).collect();
                    let at = match answer {
                        AwaitedResponse::Due(op) | AwaitedResponse::Delayable(op) => {
                            of_rank.iter().find(|at| pending[**at].op == op).or(of_rank.first())
                        }
                        AwaitedResponse::Optional => of_rank.last(),
                    };
                    // The responses to several requests may arrive in any order, so a response is required only if the process
                    // has a single pending request.
                    let alone = of_rank.len() == 1;
                    let op = at.map(|at| pending.remove(*at).op);
                    match (answer, op) {
                        (AwaitedResponse::Due(_), Some(op)) if valid && alone => {
                            wait(rank, AwaitedResponse::Due(op))
                        }
                        _ => wait(rank, AwaitedResponse::Optional),
                    }
                }
                Some(ServerStep::Join | ServerStep::Leave | ServerStep::Pause) => statement,
                // If the job may have ended, the spawned processes may never start, so their steps are left out.
                Some(ServerStep::Children { group }) if !valid || !bound.has_spawned(group) => continue,
                Some(ServerStep::Children { .. }) => statement,
                _ => {
                    valid = false;
                    statement
                }
            },
        };
        bound.take(&statement);
        if let Some(lines) = sent_mut(&mut statement, ImplementationKind::Server) {
            bound.fill_placeholders(lines);
        }
        statements.push(statement);
    }
    statements
}

/// Returns whether a request still has the tuples of its operation. Values are not checked except for the version in an init, because an
/// invalid value changes only the response.
fn is_as_generated(op: Op, messages: &[FieldList]) -> bool {
    if op.exchange().is_block {
        let lines: Vec<Template> = messages.iter().map(|message| line(message)).collect();
        return whole_spawn(&lines).is_some_and(|spawn| is_canonical(&spawn, &lines));
    }
    let [message] = messages else { return false };
    if op.framing() == Framing::Frames {
        return request(Framing::Frames, &bytes_of(&body(message))) == (Some(op), true);
    }
    let is = |value: &Template, text: &str| value.literal().is_some_and(|literal| literal == text);
    let [command, fields @ ..] = &message[..] else { return false };
    // All fields must be in the order of the table. Only optional fields may be missing.
    let mut there = fields.iter().map(|field| field.key.as_str()).peekable();
    let in_order = op
        .exchange()
        .arguments
        .iter()
        .all(|argument| there.next_if_eq(&argument.key).is_some() || argument.optional);
    let offers = [["1", "1"], ["1", "2"], ["2", "0"]];
    let is_offer =
        || offers.iter().any(|offer| fields.iter().zip(offer).all(|(field, text)| is(&field.value, text)));
    command.key == "cmd"
        && is(&command.value, op.name())
        && in_order
        && there.next().is_none()
        && (op != Op::offer() || is_offer())
}

/// Returns whether a spawn request asks for few processes, and `lines` are exactly the lines that the codec prints for the request.
fn is_canonical(spawn: &SpawnRequest, lines: &[Template]) -> bool {
    let mut printed = Vec::new();
    spawn.programs.iter().for_each(|program| program.write_to(&mut printed));
    let sent = lines.iter().flat_map(|line| [bytes_of(line), b"\n".to_vec()].concat());
    spawn.programs.iter().all(|program| (1..=9).contains(&program.nprocs)) && sent.eq(printed)
}
