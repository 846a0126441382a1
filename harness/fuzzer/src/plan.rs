//! What a case is before it is statements: requests are still messages, so that mutations can strike them.

use pmi_scenario::ast::{Dialect, Encoding, Piece, Stmt, Template, UnderTest};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::bound::Bound;
use super::fields::{Field, FieldList, Written, body, field};
use super::op::Op;
use super::pieces::{agent, bytes_of};
use super::request_body::request_command;
use super::statement::{Answer, ServerStep, rank_of, sent_mut, wait, write_as};

/// A statement to be.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a plan has a few dozen of them and does not live long")]
pub(crate) enum Planned {
    /// A request: its messages, one but for a spawn.
    Request { rank: u32, op: Op, messages: Vec<FieldList> },
    /// Anything else.
    Stmt(Stmt),
}

impl Planned {
    pub(crate) fn rank(&self) -> Option<u32> {
        match self {
            Self::Request { rank, .. } => Some(*rank),
            Self::Stmt(stmt) => rank_of(stmt),
        }
    }

    pub(crate) fn is_wait_of(&self, rank: u32) -> bool {
        match self {
            Self::Request { .. } => false,
            Self::Stmt(stmt) => {
                matches!(ServerStep::of(stmt), Some(ServerStep::Wait { rank: r, .. }) if r == rank)
            }
        }
    }
}

/// A wait for an answer that need not come.
pub(crate) fn may_answer(rank: u32) -> Planned {
    Planned::Stmt(wait(rank, Answer::Optional))
}

/// A wait for the answer to a request.
pub(crate) fn must_answer(rank: u32, op: impl Into<Op>) -> Planned {
    Planned::Stmt(wait(rank, Answer::Due(op.into())))
}

/// A request of one message.
pub(crate) fn request(rank: u32, op: impl Into<Op>, fields: FieldList) -> Planned {
    Planned::Request { rank, op: op.into(), messages: vec![fields] }
}

/// A request of one message and the wait for its answer.
pub(crate) fn ask(rank: u32, op: impl Into<Op>, fields: FieldList) -> Vec<Planned> {
    let op = op.into();
    vec![request(rank, op, fields), must_answer(rank, op)]
}

/// A request without arguments.
pub(crate) fn plain(rank: u32, op: impl Into<Op>) -> Vec<Planned> {
    let op = op.into();
    ask(rank, op, vec![field("cmd", op.name())])
}

/// What becomes of the text of a request.
pub(crate) fn encoding(op: Op, dialect: Dialect) -> Encoding {
    match (op, dialect) {
        (_, Dialect::Pmi1) => Encoding::Dialect,
        (Op::Pmi1(_), Dialect::Pmi2) => Encoding::Line,
        (Op::Pmi2(_), Dialect::Pmi2) => Encoding::Body,
    }
}

/// A request that has no answer yet.
struct Asked {
    rank: u32,
    op: Op,
    /// Another may be under way beside it.
    of_thread: bool,
    /// It enters the barrier of a part of a group, beside which everything may be under way.
    of_part: bool,
}

/// Turns a plan into statements. Once something has happened that allows the server to end the program, answers may come or
/// not. `pristine` says that nothing was changed since the plan was made: who is to enter the barrier of a part of a group, only its maker
/// knows.
pub(crate) fn settle(plan: Vec<Planned>, dialect: Dialect, pristine: bool) -> Vec<Stmt> {
    let mut statements = Vec::with_capacity(plan.len());
    let mut lawful = true;
    let mut asked: Vec<Asked> = Vec::new();
    let mut bound = Bound::default();
    for item in plan {
        let mut stmt = match item {
            Planned::Request { rank, op, messages } => {
                let of_thread =
                    dialect == Dialect::Pmi2 && messages.iter().flatten().any(|f| f.key == "thrid");
                let of_part = op == Op::Pmi1(Operation::Barrier)
                    && messages.iter().flatten().any(|field| field.key == "group");
                let beside =
                    |other: &Asked| other.rank != rank || other.of_part || (of_thread && other.of_thread);
                lawful &= is_as_generated(op, &messages) && asked.iter().all(beside);
                lawful &= !op.is_abort() && (pristine || !of_part);
                asked.push(Asked { rank, op, of_thread, of_part });
                let encoding = encoding(op, dialect);
                write_as(rank, encoding, Written::Messages(encoding, messages).lines(), false)
            }
            Planned::Stmt(stmt) => match ServerStep::of(&stmt) {
                Some(ServerStep::Wait { rank, answer }) => {
                    let of_rank: Vec<usize> = (0..asked.len()).filter(|at| asked[*at].rank == rank).collect();
                    let at = match answer {
                        Answer::Due(op) | Answer::InTime(op) => {
                            of_rank.iter().find(|at| asked[**at].op == op).or(of_rank.first())
                        }
                        Answer::Optional => of_rank.last(),
                    };
                    // The answers to several come in any order.
                    let alone = of_rank.len() == 1;
                    let op = at.map(|at| asked.remove(*at).op);
                    match (answer, op) {
                        (Answer::Due(_), Some(op)) if lawful && alone => wait(rank, Answer::Due(op)),
                        _ => wait(rank, Answer::Optional),
                    }
                }
                Some(ServerStep::Join | ServerStep::Leave) => stmt,
                // Once the program may be over, nobody may be there to wait for.
                Some(ServerStep::OfChildren { group }) if !lawful || !bound.has_spawned(group) => continue,
                Some(ServerStep::OfChildren { .. }) => stmt,
                _ => {
                    lawful = false;
                    stmt
                }
            },
        };
        bound.take(&stmt);
        if let Some(lines) = sent_mut(&mut stmt, UnderTest::Server) {
            bound.stand_in(lines);
        }
        statements.push(stmt);
    }
    statements
}

/// Whether a request still has the tuples of its kind. A rough look: what is wrong in values shows in the answers, which need
/// not be as expected then.
fn is_as_generated(op: Op, messages: &[FieldList]) -> bool {
    match op {
        Op::Pmi1(op) => is_as_generated_in_lines(op, messages),
        Op::Pmi2(command) => is_as_generated_in_frames(command, messages),
    }
}

fn is_as_generated_in_frames(command: Command, messages: &[FieldList]) -> bool {
    matches!(messages, [message] if request_command(&bytes_of(&body(message))) == (Some(command), true))
}

fn is_as_generated_in_lines(op: Operation, messages: &[FieldList]) -> bool {
    // Where a write ends does not matter.
    let is = |value: &Template, text: &str| value.literal().is_some_and(|literal| literal == text);
    let keys: Vec<&str> = messages.iter().flatten().map(|f| f.key.as_str()).collect();
    let named = messages.first().and_then(|m| m.first()).is_some_and(|f| is(&f.value, op.request_cmd()));
    let are = |fields: &[Field], texts: &[&str]| fields.iter().zip(texts).all(|(f, text)| is(&f.value, text));
    if op == Operation::Spawn {
        return is_spawn_as_generated(messages);
    }
    named
        && match op {
            Operation::Put => keys == ["cmd", "kvsname", "key", "value"],
            Operation::Get => keys == ["cmd", "kvsname", "key"],
            Operation::Init => {
                let offers =
                    |f: &[Field]| [["1", "1"], ["1", "2"], ["2", "0"]].iter().any(|offer| are(f, offer));
                keys == ["cmd", "pmi_version", "pmi_subversion"] && offers(&messages[0][1..])
            }
            Operation::Barrier => keys == ["cmd"] || keys == ["cmd", "group"],
            Operation::Publish => keys == ["cmd", "service", "port"],
            Operation::Unpublish | Operation::Lookup => keys == ["cmd", "service"],
            _ => keys == ["cmd"],
        }
}

/// Whether each program of a spawn has all that belongs to it, in order, and says how much that is.
fn is_spawn_as_generated(messages: &[FieldList]) -> bool {
    let fields: Vec<&Field> = messages.iter().flatten().collect();
    let programs: Vec<&[&Field]> = fields.split(|field| field.key == "endcmd").collect();
    let Some((rest, programs)) = programs.split_last() else { return false };
    let total = programs.len().to_string();
    let is_program = |(at, program): (usize, &&[&Field])| {
        let text = |key: &str| program.iter().find(|f| f.key == key).and_then(|f| f.value.literal());
        let count = |key: &str| text(key).and_then(|text| text.parse::<usize>().ok());
        let (Some(arguments), Some(preput), Some(info)) =
            (count("argcnt"), count("preput_num"), count("info_num"))
        else {
            return false;
        };
        if arguments.max(preput).max(info) > program.len() {
            return false;
        }
        let first = ["mcmd", "nprocs", "execname", "totspawns", "spawnssofar"].map(str::to_owned);
        let pairs = |of: &str, count| {
            let pair = |i| [format!("{of}_key_{i}"), format!("{of}_val_{i}")];
            [vec![format!("{of}_num")], (0..count).flat_map(pair).collect()].concat()
        };
        let arguments = (1..=arguments).map(|i| format!("arg{i}")).chain(["argcnt".to_owned()]);
        let keys =
            first.into_iter().chain(arguments).chain(pairs("preput", preput)).chain(pairs("info", info));
        keys.eq(program.iter().map(|field| field.key.clone()))
            && text("mcmd").as_deref() == Some("spawn")
            && count("nprocs").is_some_and(|processes| (1..=9).contains(&processes))
            && program[2].value.pieces.iter().filter(|piece| **piece != Piece::Cut).eq([&agent()])
            && text("totspawns").as_ref() == Some(&total)
            && count("spawnssofar") == Some(at + 1)
    };
    rest.is_empty() && !programs.is_empty() && programs.iter().enumerate().all(is_program)
}
