//! The upstream of a proxy in a case: requests that the proxy must pass on, and the upstream's responses, with at most two mutations.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Encoding, UpstreamAction};
use pmi_wire::{Operation, SpawnProgram};

use crate::generate::server::requests::{own_space, spawn_messages};
use crate::mutate::{Mutation, draw_cache_line, junk_line, split};
use crate::session::decisions::{percent, pick, shuffle};
use crate::session::fields::{FieldList, WriteContent, field, text};
use crate::session::op::Op;
use crate::session::plan::{PlannedStep, ask, may_answer, request_of};
use crate::session::statement::{await_forwarded, close, exit, upstream};

struct UpstreamResponse {
    /// The number of the request that the response answers, counting from 1.
    number: u32,
    rank: u32,
    draft: WriteContent,
    partial: bool,
    /// True if the upstream sends its normal response in place of `draft`.
    is_correct: bool,
    before: Vec<PlannedStep>,
    after: Vec<PlannedStep>,
    close: bool,
    is_omitted: bool,
}

/// Requests for one operation, the responses from the upstream, and the mutations.
pub(super) struct UpstreamExchange {
    pub(super) plan: Vec<PlannedStep>,
    pub(super) ingredients: BTreeSet<String>,
}

/// Draws the operation whose requests the upstream of the case answers.
pub(super) fn draw_operation(names: bool, spawn: bool, u: &mut Unstructured<'_>) -> Result<Op> {
    let held = match percent(u)? {
        0..25 if names => Operation::Lookup,
        25..35 if names => Operation::Publish,
        35..42 if names => Operation::Unpublish,
        42..52 if spawn => Operation::Spawn,
        52..60 => Operation::Barrier,
        _ => Operation::Get,
    };
    Ok(held.into())
}

/// Makes an exchange with at most `mutations` mutations.
pub(super) fn exchange(
    op: Op,
    ranks: u32,
    mutations: usize,
    u: &mut Unstructured<'_>,
) -> Result<UpstreamExchange> {
    let is_barrier = op.is(&["barrier"]);
    let mut askers: Vec<u32> = (0..ranks).collect();
    shuffle(u, &mut askers)?;
    if !is_barrier {
        askers.truncate(u.int_in_range(1..=askers.len())?);
    }
    let mut plan = Vec::new();
    let mut numbers = 0;
    // Sometimes put a value, which the proxy forwards before the barrier request.
    if is_barrier && u.arbitrary()? {
        let put = [own_space(), ("key", text("early")), ("value", text("x"))];
        plan.extend(ask(askers[0], Operation::Put.into(), &put));
        numbers += 1;
    }
    let together: bool = u.arbitrary()?;
    let alike = u.ratio(1, 6)?;
    let mut takes = Vec::new();
    for (i, rank) in askers.iter().enumerate() {
        plan.push(forwarded_request(op, *rank, if alike { 0 } else { i }));
        if !is_barrier {
            let at = if together { &mut takes } else { &mut plan };
            at.push(PlannedStep::Stmt(await_forwarded(op)));
        }
    }
    // The proxy forwards a single barrier request for all its processes, after the early value if there is one.
    if is_barrier {
        takes.extend((0..=numbers).map(|_| PlannedStep::Stmt(await_forwarded(op))));
    }
    plan.extend(takes);
    let mut replies = Vec::new();
    for (i, rank) in askers.iter().enumerate() {
        replies.push(UpstreamResponse {
            number: i as u32 + 1 + numbers,
            rank: *rank,
            draft: WriteContent::of_lines(vec![answer(op, i, u.ratio(1, 4)?)]),
            partial: false,
            is_correct: mutations == 0 && u.ratio(3, 5)?,
            before: Vec::new(),
            after: Vec::new(),
            close: false,
            is_omitted: false,
        });
    }
    if is_barrier {
        replies.truncate(1);
    }
    let mut ingredients = BTreeSet::new();
    let mut first = Vec::new();
    for _ in 0..mutations {
        let mutation = pick(u, Mutation::OF_REPLIES)?;
        if mutate(mutation, op, ranks, &mut replies, &mut first, u)? {
            ingredients.insert(format!("reply-{}:{op}", mutation.name()));
        }
    }
    first.extend(plan);
    let mut plan = first;
    for response in replies {
        plan.extend(response.before);
        if response.is_omitted {
            continue;
        }
        let to = Some(response.number);
        plan.push(PlannedStep::Stmt(upstream(match (response.close, response.is_correct) {
            (true, _) => UpstreamAction::Close,
            (_, true) => UpstreamAction::CorrectResponse { to },
            _ => UpstreamAction::Response { to, partial: response.partial, lines: response.draft.lines() },
        })));
        let waiting: &[u32] = if is_barrier { &askers } else { &[response.rank] };
        plan.extend(waiting.iter().map(|rank| may_answer(*rank)));
        plan.extend(response.after);
        if response.close {
            break;
        }
    }
    Ok(UpstreamExchange { plan, ingredients })
}

/// Returns a request that a proxy must forward even if the job has only a single node.
fn forwarded_request(op: Op, rank: u32, number: usize) -> PlannedStep {
    let fields = [
        own_space(),
        ("key", text(format!("elsewhere-{number}"))),
        ("service", text(format!("far-{number}"))),
        ("port", text("tag#0$port#4242$")),
    ];
    if op.is_spawn() {
        let program = SpawnProgram { nprocs: 1, ..SpawnProgram::default() };
        return PlannedStep::Request { rank, op, messages: spawn_messages(op, Vec::new(), vec![program]) };
    }
    request_of(rank, op, &fields)
}

/// Returns a response from the upstream: a failure if `fails` is true, otherwise a success.
fn answer(op: Op, number: usize, fails: bool) -> FieldList {
    let mut fields = vec![field("cmd", op.response_name().unwrap_or_default())];
    let value = match op.operation() {
        "barrier" => return fields,
        "get" => Some(("value", format!("from-afar-{number}"))),
        "lookup" => Some(("port", "tag#0$port#4242$".to_owned())),
        "spawn" => Some(("errcodes", "0".to_owned())),
        _ => None,
    };
    fields.push(field("rc", if fails { "-1" } else { "0" }));
    fields.push(field("msg", if fails { "not_found" } else { "success" }));
    fields.extend(value.filter(|_| !fails).map(|(key, value)| field(key, value)));
    fields
}

/// Applies a mutation. Returns false if the mutation is not applicable.
fn mutate(
    mutation: Mutation,
    op: Op,
    ranks: u32,
    replies: &mut [UpstreamResponse],
    first: &mut Vec<PlannedStep>,
    u: &mut Unstructured<'_>,
) -> Result<bool> {
    const OTHERS: &[Operation] = &[
        Operation::Get,
        Operation::Lookup,
        Operation::Publish,
        Operation::Spawn,
        Operation::Barrier,
        Operation::Maxes,
        Operation::Init,
        Operation::Finalize,
        Operation::Put,
    ];
    let count = replies.len();
    let at = u.choose_index(count)?;
    let response = &mut replies[at];
    let sends =
        |lines, partial, to| PlannedStep::Stmt(upstream(UpstreamAction::Response { to, partial, lines }));
    match mutation {
        Mutation::Another => {
            let Some(messages) = response.draft.messages_mut() else { return Ok(false) };
            *messages = vec![answer(pick(u, OTHERS)?.into(), 0, u.arbitrary()?)];
        }
        Mutation::Surplus => {
            let Some(messages) = response.draft.messages_mut() else { return Ok(false) };
            messages.push(answer(op, 7, u.arbitrary()?));
        }
        Mutation::Cache => response.before.push(sends(vec![draw_cache_line(u)?], false, None)),
        Mutation::Repeat => {
            for _ in 0..u.int_in_range(1..=2)? {
                response.after.push(sends(response.draft.lines(), false, Some(response.number)));
            }
            response.after.push(may_answer(response.rank));
        }
        Mutation::Late => match u.int_in_range(0..=3)? {
            0 => response.before.push(PlannedStep::Stmt(close(response.rank))),
            1 => response.before.push(PlannedStep::Stmt(exit(response.rank, 0))),
            _ => {
                let other = (response.rank + 1) % ranks.max(1);
                response.before.push(request_of(other, Operation::Universe.into(), &[]));
                response.before.push(may_answer(other));
            }
        },
        Mutation::Order => {
            replies.reverse();
            return Ok(count > 1);
        }
        Mutation::Half => {
            let (start, rest) = split(&response.draft.lines()[0], u)?;
            response.draft = WriteContent::Lines(Encoding::Dialect, vec![start]);
            response.partial = true;
            if u.arbitrary()? {
                response.after.insert(0, sends(vec![rest], false, Some(response.number)));
                response.after.insert(1, may_answer(response.rank));
            }
        }
        Mutation::Unasked => {
            let lines = match u.arbitrary()? {
                true => WriteContent::of_lines(vec![answer(op, 0, false)]).lines(),
                false => vec![junk_line(u)?],
            };
            first.push(sends(lines, false, None));
        }
        Mutation::Never => response.is_omitted = true,
        Mutation::Close => response.close = true,
        of_text => return of_text.change(&mut response.draft, &["get_result", "frobnicate", ""], u),
    }
    Ok(true)
}
