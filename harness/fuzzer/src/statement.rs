//! The statements that generators and mutations need, made and read, so that everything else works on the syntax tree.

use pmi_scenario::ast::{
    Action, Alternative, Dialect, Encoding, Grade, Kind, Piece, ProcessAction, RankSet, Role, Span, Step,
    Stmt, Template, UnderTest, UpstreamAction, Who, WriteMode,
};
use pmi_wire::{Framing, Proc};

use super::op::Op;
use super::pieces::{length, literal, push, template, unplaced};

pub(crate) fn one(rank: u32) -> Who {
    Who::Ranks { group: 0, set: RankSet::Ranges(vec![(rank, rank)]) }
}

/// One rank, or all.
pub(crate) fn whom(rank: Option<u32>) -> Who {
    rank.map_or(Who::Ranks { group: 0, set: RankSet::All }, one)
}

fn the_proxy() -> Who {
    Who::Ranks { group: Proc::PROXIES, set: RankSet::Ranges(vec![(0, 0)]) }
}

pub(crate) fn step(who: Who, role: Role, action: Action) -> Stmt {
    Stmt::Step(Step { who, role, cites: None, action, span: Span::default() })
}

/// One write of messages of PMI-1 by us; `partial` leaves out the last newline.
#[cfg(test)]
pub(crate) fn write(rank: u32, lines: Vec<Template>, partial: bool) -> Stmt {
    write_as(rank, Encoding::Dialect, lines, partial)
}

/// One write by us; `partial` leaves out the last byte.
pub(crate) fn write_as(rank: u32, encoding: Encoding, lines: Vec<Template>, partial: bool) -> Stmt {
    let mode = WriteMode { partial, encoding, ..WriteMode::default() };
    step(one(rank), Role::Client, Action::Message { mode, lines })
}

/// The prefix of the names of fragments of PMI-2.
const OF_FRAMES: &str = "pmi2-";

/// The fragment of this name in a dialect.
fn fragment(dialect: Dialect, name: &str) -> Stmt {
    let prefix = if dialect.framing() == Framing::Frames { OF_FRAMES } else { "" };
    Stmt::Use { name: unplaced(format!("{prefix}{name}")), with: Vec::new() }
}

/// Every rank begins: in PMI-1 with init, the limits and the name of the keyval space, in PMI-2 with init and fullinit.
pub(crate) fn join(dialect: Dialect) -> Stmt {
    fragment(dialect, "joined")
}

/// Every rank says finalize and is acknowledged.
pub(crate) fn leave(dialect: Dialect) -> Stmt {
    fragment(dialect, "finalized")
}

/// What a spawned group does, by its number, all of its processes alike: they start and begin, ask for these things, and leave.
pub(crate) fn children(dialect: Dialect, group: u32, requests: Vec<(Op, Template)>) -> Vec<Stmt> {
    let who = || Who::Ranks { group, set: RankSet::All };
    let number = (group > 1).then(|| template(vec![literal(group.to_string())]));
    let mut begin = fragment(dialect, CHILDREN_JOIN);
    if let Stmt::Use { with, .. } = &mut begin {
        with.extend(number.map(|number| (unplaced("group".to_owned()), number)));
    }
    let mut all = vec![step(who(), Role::Process, Action::Process(ProcessAction::Started)), begin];
    for (op, line) in requests {
        let mode = WriteMode { encoding: op.encoding(dialect), ..WriteMode::default() };
        all.push(step(who(), Role::Client, Action::Message { mode, lines: vec![line] }));
        all.push(step(who(), Role::Server, expected(Answer::Due(op))));
    }
    all
}

/// The fragment with which the processes of a spawned group begin.
const CHILDREN_JOIN: &str = "child-joined";

/// Returns the name of a fragment without the prefix of its dialect.
fn bare(name: &str) -> &str {
    name.strip_prefix(OF_FRAMES).unwrap_or(name)
}

/// Most groups of a case that are spawned and do something.
pub(crate) const MOST_GROUPS: u32 = 4;

/// The number of the spawned group that a statement is about.
fn spawned_group(stmt: &Stmt) -> Option<u32> {
    let number = match stmt {
        Stmt::Use { name, with } if bare(&name.value) == CHILDREN_JOIN => match &with[..] {
            [] => 1,
            [(key, number)] if key.value == "group" => number.literal()?.parse().ok()?,
            _ => return None,
        },
        Stmt::Step(Step { who: Who::Ranks { group, set: RankSet::All }, .. }) => *group,
        _ => return None,
    };
    (1..=MOST_GROUPS).contains(&number).then_some(number)
}

pub(crate) fn close(rank: u32) -> Stmt {
    step(one(rank), Role::Client, Action::Close)
}

pub(crate) fn exit(rank: u32, status: u8) -> Stmt {
    step(one(rank), Role::Process, Action::Process(ProcessAction::Exit(status)))
}

pub(crate) fn kill(rank: u32, signal: u8) -> Stmt {
    step(one(rank), Role::Process, Action::Process(ProcessAction::Kill(signal)))
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing has been done that would allow the server to withhold the answer to this request.
    Due(Op),
    /// It is due, but the server may first wait for the rest of what another process has begun to say.
    InTime(Op),
    /// An answer, the end of the connection or nothing.
    Optional,
}

pub(crate) fn wait(rank: u32, answer: Answer) -> Stmt {
    step(one(rank), Role::Server, expected(answer))
}

fn expected(answer: Answer) -> Action {
    match answer {
        Answer::Due(op) => message(response(op)),
        Answer::InTime(op) => one_of(&[(Grade::Pass, message(response(op))), (Grade::Note, Action::Silence)]),
        Answer::Optional => {
            let any = template(vec![literal("cmd="), Piece::Typed(Kind::Any)]);
            let pass = [message(any), Action::Close, Action::Empty, Action::Silence];
            one_of(&pass.map(|action| (Grade::Pass, action)))
        }
    }
}

fn message(line: Template) -> Action {
    Action::Message { mode: WriteMode::default(), lines: vec![line] }
}

fn one_of(all: &[(Grade, Action)]) -> Action {
    let alternative = |(grade, action): &(Grade, Action)| Alternative {
        grade: *grade,
        cites: None,
        action: action.clone(),
        span: Span::default(),
    };
    Action::OneOf(all.iter().map(alternative).collect())
}

/// What answers a request, with the names that it binds.
fn response(op: Op) -> Template {
    let mut line = template(vec![literal("cmd=")]);
    match op.response_name() {
        Some(cmd) => push(&mut line, literal(cmd)),
        None => push(&mut line, Piece::Typed(Kind::Any)),
    }
    for (key, name) in op.bindings() {
        let kind = match name {
            "kvs" => Kind::Word,
            "jobid" => Kind::Any,
            _ => Kind::Uint(None, None),
        };
        push(&mut line, literal(format!(" {key}=")));
        push(&mut line, Piece::Capture(name.to_owned(), kind));
    }
    line
}

/// The proxy may pass a request on to its upstream, which we play. Requests of this kind are ours to answer all through the
/// case. Whatever else comes first is taken as well: it is what the next answer is about.
pub(crate) fn passed_on(op: Op) -> Stmt {
    let wanted = template(vec![literal(format!("{}={op}", op.command_key()))]);
    let any = template(vec![literal("cmd="), Piece::Typed(Kind::Any)]);
    let pass = [message(wanted), message(any), Action::Close, Action::Silence];
    step(the_proxy(), Role::Server, one_of(&pass.map(|action| (Grade::Pass, action))))
}

/// We do something in the upstream's place.
pub(crate) fn upstream(action: UpstreamAction) -> Stmt {
    step(the_proxy(), Role::Upstream, Action::Upstream(action))
}

/// What a statement of a case against a server does.
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
        answer: Answer,
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
    PassedOn,
    Upstream(&'a UpstreamAction),
    /// Something that the processes of a spawned group do, or are told.
    OfChildren {
        group: u32,
    },
}

impl<'a> ServerStep<'a> {
    /// `None` for what a campaign does not do.
    pub(crate) fn of(stmt: &'a Stmt) -> Option<Self> {
        let step = match stmt {
            Stmt::Use { name, with } => {
                return match bare(&name.value) {
                    "joined" if with.is_empty() => Some(Self::Join),
                    "finalized" if with.is_empty() => Some(Self::Leave),
                    _ => spawned_group(stmt).map(|group| Self::OfChildren { group }),
                };
            }
            Stmt::Step(step) => step,
            _ => return None,
        };
        if let Who::Ranks { group: Proc::PROXIES, set: RankSet::Ranges(proxies) } = &step.who {
            return Self::of_proxy(&step.action).filter(|_| proxies[..] == [(0, 0)]);
        }
        if let Some(group) = spawned_group(stmt) {
            let is_sent = match &step.action {
                Action::Message { mode, lines } if step.role == Role::Client => {
                    !mode.bytewise && are_sent(lines)
                }
                action => {
                    step.role == Role::Server && answers(action).is_some()
                        || *action == Action::Process(ProcessAction::Started)
                }
            };
            return is_sent.then_some(Self::OfChildren { group });
        }
        let rank = rank_of(stmt)?;
        Some(match (&step.action, step.role) {
            (Action::Message { mode, lines }, Role::Client) if !mode.bytewise && are_sent(lines) => {
                Self::Write { rank, encoding: mode.encoding, lines, partial: mode.partial }
            }
            (Action::Close, Role::Client) => Self::Close { rank },
            (Action::Process(ProcessAction::Exit(status)), _) => Self::Exit { rank, status: *status },
            (Action::Process(ProcessAction::Kill(signal)), _) => Self::Kill { rank, signal: *signal },
            (Action::OneOf(all), Role::Server) => match &all[..] {
                [answer, Alternative { grade: Grade::Note, action: Action::Silence, .. }] => {
                    Self::Wait { rank, answer: Answer::InTime(answers(&answer.action)?) }
                }
                _ => Self::Wait { rank, answer: Answer::Optional },
            },
            (action, Role::Server) => Self::Wait { rank, answer: Answer::Due(answers(action)?) },
            _ => return None,
        })
    }

    fn of_proxy(action: &'a Action) -> Option<Self> {
        match action {
            Action::OneOf(all) => {
                let request = command(&all.first()?.action)?;
                Op::of_request(Framing::Lines, request.as_bytes()).map(|_| Self::PassedOn)
            }
            Action::Upstream(UpstreamAction::Answer { lines, .. }) if !are_sent(lines) => None,
            Action::Upstream(action) => Some(Self::Upstream(action)),
            _ => None,
        }
    }
}

/// The command word of a message.
pub(crate) fn command(action: &Action) -> Option<String> {
    let Action::Message { lines, .. } = action else { return None };
    let line = lines.first()?;
    // Nearly always it comes first, and nothing has to be split.
    if let Some(Piece::Literal { bytes, .. }) = line.pieces.first()
        && let Some(rest) = bytes.strip_prefix(b"cmd=").or(bytes.strip_prefix(b"mcmd="))
        && let Some(word) = rest.split(|b| matches!(b, b' ' | b';')).next().filter(|word| !word.is_empty())
    {
        return String::from_utf8(word.to_vec()).ok();
    }
    line.message_fields().iter().find(|f| matches!(f.key.as_str(), "cmd" | "mcmd"))?.value.literal()
}

/// Which request a message answers.
fn answers(action: &Action) -> Option<Op> {
    Op::of_response(command(action)?.as_bytes())
}

/// Whether lines have only what campaigns send.
fn are_sent(lines: &[Template]) -> bool {
    lines.iter().flat_map(|line| &line.pieces).all(|piece| match piece {
        Piece::Literal { .. } | Piece::Cut => true,
        Piece::Var(name) => matches!(name.as_str(), "kvs" | "child_kvs" | "jobid" | "rank" | "agent"),
        Piece::Fill(expr) => length(expr).is_some(),
        _ => false,
    })
}

/// The one rank of the first group that a statement is about.
pub(crate) fn rank_of(stmt: &Stmt) -> Option<u32> {
    let Stmt::Step(Step { who: Who::Ranks { group: 0, set: RankSet::Ranges(ranges) }, .. }) = stmt else {
        return None;
    };
    match ranges[..] {
        [(rank, last)] if rank == last => Some(rank),
        _ => None,
    }
}

/// Makes a statement about one rank one about another.
pub(crate) fn set_rank(stmt: &mut Stmt, rank: u32) {
    if rank_of(stmt).is_some()
        && let Stmt::Step(step) = stmt
    {
        step.who = one(rank);
    }
}

/// The lines that a statement has us send: to a server as a client or as the upstream, to others as their server.
pub(crate) fn sent(stmt: &Stmt, to: UnderTest) -> Option<&Vec<Template>> {
    let Stmt::Step(step) = stmt else { return None };
    match (&step.action, step.role, to) {
        (Action::Message { lines, .. }, Role::Client, UnderTest::Server)
        | (Action::Message { lines, .. }, Role::Server, UnderTest::Client | UnderTest::Library)
        | (Action::Upstream(UpstreamAction::Answer { lines, .. }), ..) => Some(lines),
        _ => None,
    }
}

/// The same, to be changed.
pub(crate) fn sent_mut(stmt: &mut Stmt, to: UnderTest) -> Option<&mut Vec<Template>> {
    let Stmt::Step(step) = stmt else { return None };
    match (&mut step.action, step.role, to) {
        (Action::Message { lines, .. }, Role::Client, UnderTest::Server)
        | (Action::Message { lines, .. }, Role::Server, UnderTest::Client | UnderTest::Library)
        | (Action::Upstream(UpstreamAction::Answer { lines, .. }), ..) => Some(lines),
        _ => None,
    }
}

/// What becomes of what a statement has us send.
pub(crate) fn encoding_of(stmt: &Stmt) -> Encoding {
    match stmt {
        Stmt::Step(Step { action: Action::Message { mode, .. }, .. }) => mode.encoding,
        _ => Encoding::Dialect,
    }
}

/// Takes the newline of what a statement sends away, or gives it back.
pub(crate) fn toggle_partial(stmt: &mut Stmt) {
    if let Stmt::Step(Step {
        action:
            Action::Message { mode: WriteMode { partial, .. }, .. }
            | Action::Upstream(UpstreamAction::Answer { partial, .. }),
        ..
    }) = stmt
    {
        *partial ^= true;
    }
}

/// What is said to a program at the end of each of its cases: it ends, somehow.
pub(crate) fn ends() -> Stmt {
    step(whom(None), Role::Process, Action::Process(ProcessAction::Over))
}

pub(crate) fn is_end(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Step(Step { action: Action::Process(ProcessAction::Over), .. }))
}
