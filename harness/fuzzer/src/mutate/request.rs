//! Mutations of the sequence of requests.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Encoding, Template};

use super::frame::{self, SplitFrame};
use super::message::junk;
use super::mutation::Mutation;
use super::places::split;
use crate::mutate::values;
use crate::session::decisions::pick;
use crate::session::fields::WriteContent;
use crate::session::plan::{PlannedStep, may_answer};
use crate::session::statement::{close, exit, kill, write_as};

/// Draws a mutation and applies it. Returns the name of the mutation with the operation that it changed, or `None` if the mutation is not
/// applicable.
pub(crate) fn mutate(
    plan: &mut Vec<PlannedStep>,
    dialect: Dialect,
    u: &mut Unstructured<'_>,
) -> Result<Option<String>> {
    let mutation = pick(u, Mutation::of_requests(dialect.framing()))?;
    let requests: Vec<usize> =
        (0..plan.len()).filter(|i| matches!(plan[*i], PlannedStep::Request { .. })).collect();
    if requests.is_empty() {
        return Ok(None);
    }
    let at = pick(u, &requests)?;
    let PlannedStep::Request { rank, op, messages } = &plan[at] else { return Ok(None) };
    let (rank, op) = (*rank, *op);
    let encoding = op.encoding(dialect);
    match mutation {
        Mutation::Order => {
            let other = pick(u, &requests)?;
            if other == at {
                let first = plan.remove(at);
                plan.insert(0, first);
            } else {
                plan.swap(at, other);
            }
        }
        Mutation::Repeat => {
            let copy = plan[at].clone();
            // A spawn is not repeated many times, because this would overload the machine without covering more.
            let many = u.ratio(1, 8)? && !op.is_spawn();
            let times = if many { 150 } else { u.int_in_range(1..=3)? };
            let wait = u.arbitrary()?;
            for _ in 0..times {
                if wait {
                    plan.insert(at, may_answer(rank));
                }
                plan.insert(at, copy.clone());
            }
        }
        Mutation::Junk => {
            plan.insert(at, may_answer(rank));
            let (encoding, line) = junk(dialect.framing(), u)?;
            plan.insert(at, PlannedStep::Stmt(write_as(rank, encoding, vec![line], false)));
        }
        Mutation::Half => {
            let lines = WriteContent::Messages(encoding, messages.clone()).lines();
            half(plan, at, rank, encoding, lines, u)?;
        }
        Mutation::Pipeline => pipeline(plan, at, rank, dialect, u)?,
        Mutation::Close => {
            let end = match u.int_in_range(0..=3)? {
                0 => exit(rank, u.int_in_range(0..=2)?),
                1 => kill(rank, pick(u, &[6, 9, 11, 15])?),
                _ => close(rank),
            };
            let after = at + u.int_in_range(0..=1)?;
            let rest = plan.split_off(after);
            plan.push(PlannedStep::Stmt(end));
            plan.extend(rest.into_iter().filter(|p| p.rank() != Some(rank)));
        }
        of_text => {
            let mut draft = WriteContent::Messages(encoding, messages.clone());
            if !of_text.change(&mut draft, values::requests(op.framing()), u)? {
                return Ok(None);
            }
            plan[at] = match draft {
                WriteContent::Messages(_, messages) => PlannedStep::Request { rank, op, messages },
                WriteContent::Lines(encoding, lines) => {
                    PlannedStep::Stmt(write_as(rank, encoding, lines, false))
                }
            };
        }
    }
    Ok(Some(format!("{}:{op}", mutation.name())))
}

fn half(
    plan: &mut Vec<PlannedStep>,
    at: usize,
    rank: u32,
    encoding: Encoding,
    lines: Vec<Template>,
    u: &mut Unstructured<'_>,
) -> Result<()> {
    let cut_line = u.choose_index(lines.len())?;
    let (encoding, first, second) = if encoding == Encoding::Body {
        match frame::halves(&lines[cut_line], u)? {
            SplitFrame::Bytes(first, second) => (Encoding::Bytes, first, second),
            SplitFrame::Cut(body) => {
                plan[at] = PlannedStep::Stmt(write_as(rank, encoding, vec![body], false));
                return Ok(());
            }
        }
    } else {
        let (first, second) = split(&lines[cut_line], u)?;
        (encoding, first, second)
    };
    // The byte encoding adds no newline that could be left out.
    let partial = encoding != Encoding::Bytes;
    let mut before = lines[..cut_line].to_vec();
    before.push(first);
    let mut after = vec![second];
    after.extend_from_slice(&lines[cut_line + 1..]);
    plan[at] = PlannedStep::Stmt(write_as(rank, encoding, before, partial));
    if u.ratio(1, 4)? {
        // The rest of the message is never sent, so the later steps of this rank are removed.
        let rest = plan.split_off(at + 1);
        plan.extend(rest.into_iter().filter(|p| p.rank() != Some(rank)));
        return Ok(());
    }
    // Other ranks may continue between the two halves, up to this rank's next step.
    let next = (at + 1..plan.len()).find(|i| plan[*i].rank().is_none_or(|r| r == rank)).unwrap_or(plan.len());
    let to = u.int_in_range(at + 1..=next)?;
    plan.insert(to, PlannedStep::Stmt(write_as(rank, encoding, after, false)));
    Ok(())
}

/// Joins a request and the next requests of its rank in a single write. Their responses are awaited after the write.
fn pipeline(
    plan: &mut Vec<PlannedStep>,
    at: usize,
    rank: u32,
    dialect: Dialect,
    u: &mut Unstructured<'_>,
) -> Result<()> {
    let mut lines = Vec::new();
    let mut encoding = None;
    let mut waits = 0;
    let wanted = u.int_in_range(2..=5)?;
    let mut taken = 0;
    let mut i = at;
    while i < plan.len() && taken < wanted {
        match &plan[i] {
            // Stop at a message in the other framing, because lines and frames cannot share a write.
            PlannedStep::Request { rank: r, op, .. }
                if *r == rank && encoding.is_some_and(|encoding| encoding != op.encoding(dialect)) =>
            {
                break;
            }
            PlannedStep::Request { rank: r, op, messages } if *r == rank => {
                let of_this = *encoding.get_or_insert(op.encoding(dialect));
                lines.extend(WriteContent::Messages(of_this, messages.clone()).lines());
                taken += 1;
                plan.remove(i);
            }
            other if other.is_wait_of(rank) => {
                waits += 1;
                plan.remove(i);
            }
            other if other.rank().is_none() => break,
            _ => i += 1,
        }
    }
    for _ in 0..waits {
        plan.insert(at, may_answer(rank));
    }
    let encoding = encoding.unwrap_or_default();
    plan.insert(at, PlannedStep::Stmt(write_as(rank, encoding, lines, u.ratio(1, 6)?)));
    Ok(())
}
