//! Constructors and accessors for the statements that generators and mutations use. Only this module knows the details of the syntax tree.

use pmi_scenario::ast::{
    Alternative, Dialect, Encoding, Grade, ImplementationKind, Piece, ProcessAction, RankSet, Role, Span,
    Statement, Step, StepAction, StepTarget, Template, UpstreamAction, ValueType, WriteMode,
};
use pmi_wire::{Framing, Proc};

use super::op::Op;
use super::pieces::{length, literal, push, template, without_span};

pub(crate) fn one_rank(rank: u32) -> StepTarget {
    StepTarget::Ranks { group: 0, set: RankSet::Ranges(vec![(rank, rank)]) }
}

/// Selects a rank, or all ranks if `rank` is `None`.
pub(crate) fn rank_or_all(rank: Option<u32>) -> StepTarget {
    rank.map_or(StepTarget::Ranks { group: 0, set: RankSet::All }, one_rank)
}

fn the_proxy() -> StepTarget {
    StepTarget::Ranks { group: Proc::PROXY_GROUP, set: RankSet::Ranges(vec![(0, 0)]) }
}

pub(crate) fn step(target: StepTarget, role: Role, action: StepAction) -> Statement {
    Statement::Step(Step { target, role, cites: None, action, span: Span::default() })
}

/// Returns a write of PMI-1 messages by the harness. If `partial` is true, the trailing newline is left out.
#[cfg(test)]
pub(crate) fn write(rank: u32, lines: Vec<Template>, partial: bool) -> Statement {
    write_as(rank, Encoding::Dialect, lines, partial)
}

/// Returns a write by the harness. If `partial` is true, the last byte is left out.
pub(crate) fn write_as(rank: u32, encoding: Encoding, lines: Vec<Template>, partial: bool) -> Statement {
    let mode = WriteMode { partial, encoding, ..WriteMode::default() };
    step(one_rank(rank), Role::Client, StepAction::Message { mode, lines })
}

/// The prefix of the names of PMI-2 fragments.
const PMI2_PREFIX: &str = "pmi2-";

/// Returns the statement that inserts the dialect's version of a fragment.
fn fragment(dialect: Dialect, name: &str) -> Statement {
    let prefix = if dialect.framing() == Framing::Frames { PMI2_PREFIX } else { "" };
    Statement::Use { name: without_span(format!("{prefix}{name}")), with: Vec::new() }
}

/// Returns the statement that starts every rank: with init, the limits and the name of the keyval space in PMI-1, and with init and
/// fullinit in PMI-2.
pub(crate) fn join(dialect: Dialect) -> Statement {
    fragment(dialect, "joined")
}

/// Returns the statement that ends every rank, with finalize and its response.
pub(crate) fn leave(dialect: Dialect) -> Statement {
    fragment(dialect, "finalized")
}

/// Returns the steps of the spawned group with this number: all of its processes start and make `requests`.
pub(crate) fn children(dialect: Dialect, group: u32, requests: Vec<(Op, Template)>) -> Vec<Statement> {
    let target = || StepTarget::Ranks { group, set: RankSet::All };
    let number = (group > 1).then(|| template(vec![literal(group.to_string())]));
    let mut begin = fragment(dialect, CHILDREN_JOIN);
    if let Statement::Use { with, .. } = &mut begin {
        with.extend(number.map(|number| (without_span("group".to_owned()), number)));
    }
    let mut all = vec![step(target(), Role::Process, StepAction::Process(ProcessAction::Started)), begin];
    for (op, line) in requests {
        let mode = WriteMode { encoding: op.encoding(dialect), ..WriteMode::default() };
        all.push(step(target(), Role::Client, StepAction::Message { mode, lines: vec![line] }));
        all.push(step(target(), Role::Server, expected(AwaitedResponse::Due(op))));
    }
    all
}

/// The fragment that starts the processes of a spawned group.
const CHILDREN_JOIN: &str = "child-joined";

/// Returns the name of a fragment without the prefix of its dialect.
fn fragment_name(name: &str) -> &str {
    name.strip_prefix(PMI2_PREFIX).unwrap_or(name)
}

/// Maximum number of spawned groups that make requests in a case.
pub(crate) const MAX_SPAWNED_GROUPS: u32 = 4;

/// Returns the number of the spawned group that a statement belongs to.
fn spawned_group(statement: &Statement) -> Option<u32> {
    let number = match statement {
        Statement::Use { name, with } if fragment_name(&name.value) == CHILDREN_JOIN => match &with[..] {
            [] => 1,
            [(key, number)] if key.value == "group" => number.literal()?.parse().ok()?,
            _ => return None,
        },
        Statement::Step(Step { target: StepTarget::Ranks { group, set: RankSet::All }, .. }) => *group,
        _ => return None,
    };
    (1..=MAX_SPAWNED_GROUPS).contains(&number).then_some(number)
}

pub(crate) fn close(rank: u32) -> Statement {
    step(one_rank(rank), Role::Client, StepAction::Close)
}

pub(crate) fn exit(rank: u32, status: u8) -> Statement {
    step(one_rank(rank), Role::Process, StepAction::Process(ProcessAction::Exit(status)))
}

pub(crate) fn kill(rank: u32, signal: u8) -> Statement {
    step(one_rank(rank), Role::Process, StepAction::Process(ProcessAction::Kill(signal)))
}

/// Stops a process or its parent for a moment.
pub(crate) fn pause(rank: u32, parent: bool) -> Statement {
    let action = if parent { ProcessAction::PauseParent } else { ProcessAction::Pause };
    step(one_rank(rank), Role::Process, StepAction::Process(action))
}

/// The response that a wait expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedResponse {
    /// The response to a request. The server has no reason to withhold this response.
    Due(Op),
    /// The response to a request. It is due, but the server may first wait for the rest of another process's message.
    Delayable(Op),
    /// A response, the end of the connection, or silence.
    Optional,
}

pub(crate) fn wait(rank: u32, answer: AwaitedResponse) -> Statement {
    step(one_rank(rank), Role::Server, expected(answer))
}

fn expected(answer: AwaitedResponse) -> StepAction {
    match answer {
        AwaitedResponse::Due(op) => message(response(op)),
        AwaitedResponse::Delayable(op) => {
            one_of(&[(Grade::Pass, message(response(op))), (Grade::Note, StepAction::Silence)])
        }
        AwaitedResponse::Optional => {
            let any = template(vec![literal("cmd="), Piece::Typed(ValueType::Any)]);
            let pass = [message(any), StepAction::Close, StepAction::Empty, StepAction::Silence];
            one_of(&pass.map(|action| (Grade::Pass, action)))
        }
    }
}

fn message(line: Template) -> StepAction {
    StepAction::Message { mode: WriteMode::default(), lines: vec![line] }
}

fn one_of(all: &[(Grade, StepAction)]) -> StepAction {
    let alternative = |(grade, action): &(Grade, StepAction)| Alternative {
        grade: *grade,
        cites: None,
        action: action.clone(),
        span: Span::default(),
    };
    StepAction::OneOf(all.iter().map(alternative).collect())
}

/// Returns the pattern of the response to a request, with the variables that it binds.
fn response(op: Op) -> Template {
    let mut line = template(vec![literal("cmd=")]);
    match op.response_name() {
        Some(cmd) => push(&mut line, literal(cmd)),
        None => push(&mut line, Piece::Typed(ValueType::Any)),
    }
    for (key, name) in op.bindings() {
        let kind = match name {
            "kvs" => ValueType::Word,
            "jobid" => ValueType::Any,
            _ => ValueType::Uint(None, None),
        };
        push(&mut line, literal(format!(" {key}=")));
        push(&mut line, Piece::Capture(name.to_owned(), kind));
    }
    line
}

/// Returns a statement that waits until the proxy forwards a request for `op` to the harness, its upstream. The proxy may also answer the
/// request itself. If a different request arrives first, the statement accepts it, and the next response answers that request.
pub(crate) fn await_forwarded(op: Op) -> Statement {
    let wanted = template(vec![literal(format!("{}={op}", op.command_key()))]);
    let any = template(vec![literal("cmd="), Piece::Typed(ValueType::Any)]);
    let pass = [message(wanted), message(any), StepAction::Close, StepAction::Silence];
    step(the_proxy(), Role::Server, one_of(&pass.map(|action| (Grade::Pass, action))))
}

/// Returns a step in which the harness acts as the upstream.
pub(crate) fn upstream(action: UpstreamAction) -> Statement {
    step(the_proxy(), Role::Upstream, StepAction::Upstream(action))
}

/// The meaning of a statement in a case for a server.
#[derive(Debug)]
pub(crate) enum ServerStep<'a> {
    Join,
    Leave,
    Write {
        rank: u32,
        encoding: Encoding,
        lines: &'a [Template],
        partial: bool,
    },
    Wait {
        rank: u32,
        answer: AwaitedResponse,
    },
    Close {
        rank: u32,
    },
    Exit {
        rank: u32,
        status: u8,
    },
    Kill {
        rank: u32,
        signal: u8,
    },
    /// The process, or its parent, is stopped for a moment.
    Pause,
    PassedOn,
    Upstream(&'a UpstreamAction),
    /// A step of the processes of a spawned group.
    Children {
        group: u32,
    },
}

impl<'a> ServerStep<'a> {
    /// Returns the meaning of a statement, or `None` if campaigns do not generate statements of its kind.
    pub(crate) fn of(statement: &'a Statement) -> Option<Self> {
        let step = match statement {
            Statement::Use { name, with } => {
                return match fragment_name(&name.value) {
                    "joined" if with.is_empty() => Some(Self::Join),
                    "finalized" if with.is_empty() => Some(Self::Leave),
                    _ => spawned_group(statement).map(|group| Self::Children { group }),
                };
            }
            Statement::Step(step) => step,
            _ => return None,
        };
        if let StepTarget::Ranks { group: Proc::PROXY_GROUP, set: RankSet::Ranges(proxies) } = &step.target {
            return Self::of_proxy(&step.action).filter(|_| proxies[..] == [(0, 0)]);
        }
        if let Some(group) = spawned_group(statement) {
            let is_sent = match &step.action {
                StepAction::Message { mode, lines } if step.role == Role::Client => {
                    !mode.bytewise && are_sent(lines)
                }
                action => {
                    step.role == Role::Server && answers(action).is_some()
                        || *action == StepAction::Process(ProcessAction::Started)
                }
            };
            return is_sent.then_some(Self::Children { group });
        }
        let rank = rank_of(statement)?;
        Some(match (&step.action, step.role) {
            (StepAction::Message { mode, lines }, Role::Client) if !mode.bytewise && are_sent(lines) => {
                Self::Write { rank, encoding: mode.encoding, lines, partial: mode.partial }
            }
            (StepAction::Close, Role::Client) => Self::Close { rank },
            (StepAction::Process(ProcessAction::Exit(status)), _) => Self::Exit { rank, status: *status },
            (StepAction::Process(ProcessAction::Kill(signal)), _) => Self::Kill { rank, signal: *signal },
            (StepAction::Process(ProcessAction::Pause | ProcessAction::PauseParent), _) => Self::Pause,
            (StepAction::OneOf(all), Role::Server) => match &all[..] {
                [answer, Alternative { grade: Grade::Note, action: StepAction::Silence, .. }] => {
                    Self::Wait { rank, answer: AwaitedResponse::Delayable(answers(&answer.action)?) }
                }
                _ => Self::Wait { rank, answer: AwaitedResponse::Optional },
            },
            (action, Role::Server) => Self::Wait { rank, answer: AwaitedResponse::Due(answers(action)?) },
            _ => return None,
        })
    }

    fn of_proxy(action: &'a StepAction) -> Option<Self> {
        match action {
            StepAction::OneOf(all) => {
                let request = command(&all.first()?.action)?;
                Op::of_request(Framing::Lines, request.as_bytes()).map(|_| Self::PassedOn)
            }
            StepAction::Upstream(UpstreamAction::Response { lines, .. }) if !are_sent(lines) => None,
            StepAction::Upstream(action) => Some(Self::Upstream(action)),
            _ => None,
        }
    }
}

pub(crate) fn command(action: &StepAction) -> Option<String> {
    let StepAction::Message { lines, .. } = action else { return None };
    let line = lines.first()?;
    // The command is nearly always first, so the fields rarely need to be parsed.
    if let Some(Piece::Literal { bytes, .. }) = line.pieces.first()
        && let Some(rest) = bytes.strip_prefix(b"cmd=").or(bytes.strip_prefix(b"mcmd="))
        && let Some(word) = rest.split(|b| matches!(b, b' ' | b';')).next().filter(|word| !word.is_empty())
    {
        return String::from_utf8(word.to_vec()).ok();
    }
    line.message_fields().iter().find(|f| matches!(f.key.as_str(), "cmd" | "mcmd"))?.value.literal()
}

/// Returns the operation that a message responds to.
fn answers(action: &StepAction) -> Option<Op> {
    Op::of_response(command(action)?.as_bytes())
}

/// Returns whether lines contain only pieces that campaigns send.
fn are_sent(lines: &[Template]) -> bool {
    lines.iter().flat_map(|line| &line.pieces).all(|piece| match piece {
        Piece::Literal { .. } | Piece::Cut => true,
        Piece::Var(name) => matches!(name.as_str(), "kvs" | "child_kvs" | "jobid" | "rank" | "agent"),
        Piece::Fill(expr) => length(expr).is_some(),
        _ => false,
    })
}

/// Returns the rank in the first group that a statement belongs to, or `None` unless it belongs to exactly one such rank.
pub(crate) fn rank_of(statement: &Statement) -> Option<u32> {
    let Statement::Step(Step {
        target: StepTarget::Ranks { group: 0, set: RankSet::Ranges(ranges) }, ..
    }) = statement
    else {
        return None;
    };
    match ranges[..] {
        [(rank, last)] if rank == last => Some(rank),
        _ => None,
    }
}

/// Moves a statement that belongs to one rank to a different rank.
pub(crate) fn set_rank(statement: &mut Statement, rank: u32) {
    if rank_of(statement).is_some()
        && let Statement::Step(step) = statement
    {
        step.target = one_rank(rank);
    }
}

/// Returns the lines that the harness sends in a statement: as a client or an upstream if a server is under test, otherwise as the server.
pub(crate) fn sent(statement: &Statement, to: ImplementationKind) -> Option<&Vec<Template>> {
    let Statement::Step(step) = statement else { return None };
    match (&step.action, step.role, to) {
        (StepAction::Message { lines, .. }, Role::Client, ImplementationKind::Server)
        | (
            StepAction::Message { lines, .. },
            Role::Server,
            ImplementationKind::Client | ImplementationKind::Library,
        )
        | (StepAction::Upstream(UpstreamAction::Response { lines, .. }), ..) => Some(lines),
        _ => None,
    }
}

/// Returns a mutable reference to the lines that a statement sends. See [`sent`].
pub(crate) fn sent_mut(statement: &mut Statement, to: ImplementationKind) -> Option<&mut Vec<Template>> {
    let Statement::Step(step) = statement else { return None };
    match (&mut step.action, step.role, to) {
        (StepAction::Message { lines, .. }, Role::Client, ImplementationKind::Server)
        | (
            StepAction::Message { lines, .. },
            Role::Server,
            ImplementationKind::Client | ImplementationKind::Library,
        )
        | (StepAction::Upstream(UpstreamAction::Response { lines, .. }), ..) => Some(lines),
        _ => None,
    }
}

pub(crate) fn encoding_of(statement: &Statement) -> Encoding {
    match statement {
        Statement::Step(Step { action: StepAction::Message { mode, .. }, .. }) => mode.encoding,
        _ => Encoding::Dialect,
    }
}

/// Removes or restores the trailing newline of the lines that a statement sends.
pub(crate) fn toggle_partial(statement: &mut Statement) {
    if let Statement::Step(Step {
        action:
            StepAction::Message { mode: WriteMode { partial, .. }, .. }
            | StepAction::Upstream(UpstreamAction::Response { partial, .. }),
        ..
    }) = statement
    {
        *partial ^= true;
    }
}

/// Returns the last step of every case for a program. The step requires the program to end, regardless of its exit status.
pub(crate) fn end_step() -> Statement {
    step(rank_or_all(None), Role::Process, StepAction::Process(ProcessAction::Ends))
}

pub(crate) fn is_end(statement: &Statement) -> bool {
    matches!(statement, Statement::Step(Step { action: StepAction::Process(ProcessAction::Ends), .. }))
}
