//! Derives a case from other cases.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Encoding, Expr, ImplementationKind, Piece, Statement, Template};

use super::content;
use super::message::{bytes, junk, separator};
use super::mutation::Mutation;
use super::places::any_length;
use crate::session::case::Case;
use crate::session::case::bindings::BoundNames;
use crate::session::case::waits;
use crate::session::decisions::pick;
use crate::session::op::Op;
use crate::session::pieces::join_adjacent;
use crate::session::statement::{
    AwaitedResponse, ServerStep, close, encoding_of, sent, sent_mut, set_rank, toggle_partial, wait, write_as,
};

/// Maximum number of steps of a derived case.
const MAX_STEPS: usize = 600;

/// Applies one or two mutations to a case for a server. Some mutations take steps from `other`.
pub(crate) fn vary(case: &mut Case, other: &Case, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(1..=2)? {
        pick(u, Mutation::OF_CASES)?.vary(case, other, u)?;
    }
    repair_bindings(case);
    Ok(())
}

/// Mutates a case from the frontier. The rare edge probably depends on a name or value in a request, because names and values make up most
/// of the bytes. The mutations therefore change names and values.
pub(crate) fn explore(case: &mut Case, u: &mut Unstructured<'_>) -> Result<()> {
    let other = case.clone();
    for mutation in [pick(u, &[Mutation::Multiply, Mutation::Content])?, Mutation::Multiply] {
        mutation.vary(case, &other, u)?;
    }
    repair_bindings(case);
    Ok(())
}

/// Draws a range of consecutive steps.
fn draw_range(steps: &[Statement], u: &mut Unstructured<'_>) -> Result<std::ops::Range<usize>> {
    let from = u.int_in_range(0..=steps.len())?;
    Ok(from..(from + u.int_in_range(1..=7)?).min(steps.len()))
}

impl Mutation {
    fn vary(self, case: &mut Case, other: &Case, u: &mut Unstructured<'_>) -> Result<()> {
        self.change_case(case, other, u)?;
        case.ingredients.insert(format!("corpus:{}", self.name()));
        if self == Self::Splice {
            case.ingredients.extend(other.ingredients.iter().cloned());
        }
        Ok(())
    }

    fn change_case(self, case: &mut Case, other: &Case, u: &mut Unstructured<'_>) -> Result<()> {
        let ranks = case.ranks().max(1);
        let others = &other.scenario.body;
        let body = &mut case.scenario.body;
        let at = u.int_in_range(0..=body.len())?;
        match self {
            Self::Splice => {
                body.truncate(at);
                body.extend_from_slice(&others[u.int_in_range(0..=others.len())?..]);
                case.scenario.ranks = ranks.max(other.ranks());
            }
            Self::Insert => {
                let some = others[draw_range(others, u)?].to_vec();
                body.splice(at..at, some);
                case.scenario.ranks = ranks.max(other.ranks());
            }
            Self::Drop => drop(body.drain(draw_range(body, u)?)),
            Self::Repeat => {
                let some = body[draw_range(body, u)?].to_vec();
                let times = if u.ratio(1, 8)? { 20 } else { 1 };
                (0..times).for_each(|_| drop(body.splice(at..at, some.clone())));
            }
            Self::Order if !body.is_empty() => {
                let (a, b) = (u.choose_index(body.len())?, u.choose_index(body.len())?);
                body.swap(a, b);
            }
            Self::Junk => {
                let rank = u.int_in_range(0..=ranks - 1)?;
                let (encoding, line) = junk(case.scenario.dialect.framing(), u)?;
                body.insert(at, write_as(rank, encoding, vec![line], false));
            }
            Self::Close => body.insert(at, close(u.int_in_range(0..=ranks - 1)?)),
            Self::Content => content::change(body, u)?,
            Self::Multiply => content::replicate_request(body, u)?,
            _ => {
                let writes: Vec<usize> = (0..body.len())
                    .filter(|i| sent(&body[*i], ImplementationKind::Server).is_some())
                    .collect();
                if !writes.is_empty() {
                    self.change_write(&mut body[pick(u, &writes)?], ranks, u)?;
                }
            }
        }
        case.scenario.body.truncate(MAX_STEPS);
        Ok(())
    }

    fn change_write(self, statement: &mut Statement, ranks: u32, u: &mut Unstructured<'_>) -> Result<()> {
        match self {
            Self::Rank => set_rank(statement, u.int_in_range(0..=ranks - 1)?),
            Self::Partial => toggle_partial(statement),
            _ => {
                let encoding = encoding_of(statement);
                let lines = sent_mut(statement, ImplementationKind::Server).filter(|lines| !lines.is_empty());
                let Some(lines) = lines else { return Ok(()) };
                let at = u.choose_index(lines.len())?;
                change_line(&mut lines[at], encoding, u)?;
            }
        }
        Ok(())
    }
}

fn change_line(line: &mut Template, encoding: Encoding, u: &mut Unstructured<'_>) -> Result<()> {
    match u.int_in_range(0..=2)? {
        0 => separator(line, encoding, u),
        1 => bytes(line, u),
        _ => {
            let at = u.int_in_range(0..=line.pieces.len())?;
            line.pieces.insert(at, any_length(u)?);
            line.pieces.retain(|piece| *piece != Piece::Fill(Expr::Number(0)));
            join_adjacent(line);
            Ok(())
        }
    }
}

/// Repairs a case, so that every name that the case uses is bound, and the case waits only for responses that are due.
fn repair_bindings(case: &mut Case) {
    waits::adapt_waits(&mut case.scenario);
    case.scenario
        .body
        .retain(|statement| !matches!(ServerStep::of(statement), Some(ServerStep::Children { .. })));
    let mut bound = BoundNames::default();
    case.scenario.body.retain_mut(|statement| {
        if let Some(ServerStep::Wait { rank, answer }) = ServerStep::of(statement) {
            let binds = |op: Op| op.bindings().next().is_some();
            if !matches!(answer, AwaitedResponse::Due(op) if binds(op)) {
                *statement = wait(rank, AwaitedResponse::Optional);
            }
        }
        let stays = bound.take(statement);
        if let Some(lines) = sent_mut(statement, ImplementationKind::Server) {
            bound.fill_placeholders(lines);
        }
        stays
    });
}
