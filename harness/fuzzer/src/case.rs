//! A case of a campaign: a scenario, and what went into it. The statements that generators and mutations need are made and
//! read here, so that everything else works on the syntax tree.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use pmi_scenario::ast::{
    Action, Alternative, Arg, BinOp, Dialect, Encoding, Expr, Grade, Kind, Need, Piece, ProcessAction,
    RankSet, Role, Scenario, Span, Spanned, Step, Stmt, Template, UnderTest, UpstreamAction, Who, WriteMode,
};
use pmi_wire::pmi2::Command;
use pmi_wire::{HEADER, Message, Operation, Proc, Request, ValueReading, frame_header};

use super::op::Op;
use super::plan::Joined;
use super::said::{Reader, Said};
use super::spawn_guard;

/// Cited where the judge knows no requirement: what a server has to do about what is no message.
const SERVER_CITES: &str = "rfc13.error.close";
/// The same for servers of PMI-2. It is only told: what is red, the judge knows.
const PMI2_SERVER_CITES: &str = "pmi2.draft.unknown-command";
/// The same for programs and libraries.
const CLIENT_CITES: &str = "rfc13.error.abort";

/// A scenario with what a campaign knows of it.
#[derive(Debug, Clone)]
pub struct Case {
    /// What happens. Its steps are those that [`Case::from_scenario`] accepts.
    pub scenario: Scenario,
    /// Each mutation with the kind of message that it struck, `token:put`.
    pub ingredients: BTreeSet<String>,
}

// ----- making statements -------------------------------------------------------------------------------------------

/// A thing that stands nowhere in a file.
pub(crate) fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned { value, span: Span::default() }
}

/// Bytes as they are.
pub(crate) fn literal(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece::Literal { bytes: bytes.into(), quoted: false }
}

/// The name of the keyval space of the group that was spawned last.
pub(crate) fn child_kvsname() -> Piece {
    Piece::Var("child_kvs".to_owned())
}

/// The name of the keyval space.
pub(crate) fn kvsname() -> Piece {
    Piece::Var("kvs".to_owned())
}

/// The id of the job.
pub(crate) fn jobid() -> Piece {
    Piece::Var("jobid".to_owned())
}

/// The rank that speaks.
pub(crate) fn own_rank() -> Piece {
    Piece::Var("rank".to_owned())
}

/// A program that reports to us.
pub(crate) fn agent() -> Piece {
    Piece::Var("agent".to_owned())
}

/// So many letters and digits.
pub(crate) fn letters(count: i64) -> Piece {
    Piece::Fill(Expr::Number(count))
}

/// A limit that get_maxes tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Kvsname,
    Key,
    Value,
}

impl Limit {
    pub(crate) const ALL: [Self; 3] = [Self::Kvsname, Self::Key, Self::Value];

    /// As get_maxes and scenarios name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvsname => "kvsname_max",
            Self::Key => "keylen_max",
            Self::Value => "vallen_max",
        }
    }

    /// Of a name in a scenario.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }
}

/// As many letters and digits as a limit allows, and `plus` more.
pub(crate) fn letters_to(limit: Limit, plus: i64) -> Piece {
    let name = Expr::Var(unplaced(limit.name().to_owned()));
    let number = Box::new(Expr::Number(plus.abs()));
    Piece::Fill(match plus {
        0 => name,
        1.. => Expr::Binary(Box::new(name), BinOp::Add, number),
        _ => Expr::Binary(Box::new(name), BinOp::Sub, number),
    })
}

/// What a `fill` is relative to, if to anything, and what is added; `None` for other calculations.
pub(crate) fn length(expr: &Expr) -> Option<(Option<Limit>, i64)> {
    let limit = |expr: &Expr| match expr {
        Expr::Var(name) => Limit::of_name(&name.value),
        _ => None,
    };
    Some(match expr {
        Expr::Number(n) => (None, *n),
        Expr::Var(_) => (Some(limit(expr)?), 0),
        Expr::Binary(a, op, b) => match (op, &**b) {
            (BinOp::Add, Expr::Number(n)) => (Some(limit(a)?), *n),
            (BinOp::Sub, Expr::Number(n)) => (Some(limit(a)?), -n),
            _ => return None,
        },
    })
}

/// A template of these pieces.
pub(crate) fn template(pieces: Vec<Piece>) -> Template {
    let mut template = Template::default();
    pieces.into_iter().for_each(|piece| push(&mut template, piece));
    template
}

/// Appends a piece; bytes join the bytes before them, and what stands for nothing is left out.
pub(crate) fn push(template: &mut Template, piece: Piece) {
    match (template.pieces.last_mut(), piece) {
        (_, Piece::Literal { bytes, .. }) if bytes.is_empty() => {}
        (_, Piece::Fill(Expr::Number(0))) => {}
        (Some(Piece::Literal { bytes: last, .. }), Piece::Literal { bytes, .. }) => last.extend(bytes),
        (_, Piece::Literal { bytes, .. }) => template.pieces.push(literal(bytes)),
        (_, piece) => template.pieces.push(piece),
    }
}

/// Joins bytes that stand side by side.
pub(crate) fn tidy(template: &mut Template) {
    for piece in std::mem::take(&mut template.pieces) {
        push(template, piece);
    }
}

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

/// Every rank begins: in PMI-1 with init, the limits and the name of the keyval space, in PMI-2 with init and fullinit.
pub(crate) fn join(dialect: Dialect) -> Stmt {
    let name = match dialect {
        Dialect::Pmi1 => "joined",
        Dialect::Pmi2 => "pmi2-joined",
    };
    Stmt::Use { name: unplaced(name.to_owned()), with: Vec::new() }
}

/// Every rank says finalize and is acknowledged.
pub(crate) fn leave(dialect: Dialect) -> Stmt {
    let name = match dialect {
        Dialect::Pmi1 => "finalized",
        Dialect::Pmi2 => "pmi2-finalized",
    };
    Stmt::Use { name: unplaced(name.to_owned()), with: Vec::new() }
}

/// What a spawned group does, by its number, all of its processes alike: they start and begin, ask for these things, and leave.
pub(crate) fn children(dialect: Dialect, group: u32, requests: Vec<(Op, Template)>) -> Vec<Stmt> {
    let who = || Who::Ranks { group, set: RankSet::All };
    let (name, encoding) = match dialect {
        Dialect::Pmi1 => (CHILDREN_JOIN[0], Encoding::Dialect),
        Dialect::Pmi2 => (CHILDREN_JOIN[1], Encoding::Body),
    };
    let number = (group > 1).then(|| template(vec![literal(group.to_string())]));
    let with = number.map(|number| (unplaced("group".to_owned()), number)).into_iter().collect();
    let begin = Stmt::Use { name: unplaced(name.to_owned()), with };
    let mut all = vec![step(who(), Role::Process, Action::Process(ProcessAction::Started)), begin];
    for (op, line) in requests {
        let mode = WriteMode { encoding, ..WriteMode::default() };
        all.push(step(who(), Role::Client, Action::Message { mode, lines: vec![line] }));
        all.push(step(who(), Role::Server, expected(Answer::Due(op))));
    }
    all
}

/// The fragments by which the processes of a spawned group begin.
const CHILDREN_JOIN: [&str; 2] = ["child-joined", "pmi2-child-joined"];

/// Most groups of a case that are spawned and do something.
pub(crate) const MOST_GROUPS: u32 = 4;

/// The number of the spawned group that a statement is about.
fn spawned_group(stmt: &Stmt) -> Option<u32> {
    let number = match stmt {
        Stmt::Use { name, with } if CHILDREN_JOIN.contains(&name.value.as_str()) => match &with[..] {
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
    let mut bind = |key: &str, name: &str, kind: Kind| {
        push(&mut line, literal(format!(" {key}=")));
        push(&mut line, Piece::Capture(name.to_owned(), kind));
    };
    match op {
        Op::Pmi1(Operation::Kvsname) => bind("kvsname", "kvs", Kind::Word),
        Op::Pmi2(Command::JobGetid) => bind("jobid", "jobid", Kind::Any),
        Op::Pmi1(Operation::Maxes) => {
            Limit::ALL.iter().for_each(|limit| bind(limit.name(), limit.name(), Kind::Uint(None, None)))
        }
        _ => {}
    }
    line
}

/// The proxy may pass a request on to its upstream, which we play. Requests of this kind are ours to answer all through the
/// case. Whatever else comes first is taken as well: it is what the next answer is about.
pub(crate) fn passed_on(op: Operation) -> Stmt {
    let key = if op == Operation::Spawn { "mcmd" } else { "cmd" };
    let wanted = template(vec![literal(format!("{key}={}", op.request_cmd()))]);
    let any = template(vec![literal("cmd="), Piece::Typed(Kind::Any)]);
    let pass = [message(wanted), message(any), Action::Close, Action::Silence];
    step(the_proxy(), Role::Server, one_of(&pass.map(|action| (Grade::Pass, action))))
}

/// We do something in the upstream's place.
pub(crate) fn upstream(action: UpstreamAction) -> Stmt {
    step(the_proxy(), Role::Upstream, Action::Upstream(action))
}

// ----- reading statements ------------------------------------------------------------------------------------------

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
                return match name.value.as_str() {
                    "joined" | "pmi2-joined" if with.is_empty() => Some(Self::Join),
                    "finalized" | "pmi2-finalized" if with.is_empty() => Some(Self::Leave),
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
                Operation::from_request_cmd(request.as_bytes()).map(|_| Self::PassedOn)
            }
            Action::Upstream(UpstreamAction::Answer { lines, .. }) if !are_sent(lines) => None,
            Action::Upstream(action) => Some(Self::Upstream(action)),
            _ => None,
        }
    }
}

/// The command word of a message.
fn command(action: &Action) -> Option<String> {
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

fn is_end(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Step(Step { action: Action::Process(ProcessAction::Over), .. }))
}

// ----- cases -------------------------------------------------------------------------------------------------------

impl Case {
    /// A case of so many processes, in which these statements are played.
    pub fn new(tests: UnderTest, ranks: u32, body: Vec<Stmt>) -> Self {
        Self::speaking(Dialect::Pmi1, tests, ranks, body)
    }

    /// The same in another protocol.
    pub(crate) fn speaking(dialect: Dialect, tests: UnderTest, ranks: u32, mut body: Vec<Stmt>) -> Self {
        if tests == UnderTest::Client {
            body.push(ends());
        }
        let mut scenario = Scenario::new("generated", "", &[]);
        (scenario.tests, scenario.ranks, scenario.body) = (tests, ranks, body);
        scenario.dialect = dialect;
        scenario.serving.sized = true;
        let mut case = Self { scenario, ingredients: BTreeSet::new() };
        case.cite(None);
        case
    }

    /// Takes a scenario whose steps are those of cases.
    ///
    /// # Errors
    ///
    /// The line of the first row or step that is of another kind.
    pub fn from_scenario(mut scenario: Scenario) -> Result<Self, usize> {
        if let Some(row) = scenario.rows.first() {
            return Err(scenario.source.line_of(row.name.span.start));
        }
        let (tests, dialect) = (scenario.tests, scenario.dialect);
        for stmt in &mut scenario.body {
            if dialect == Dialect::Pmi2 {
                as_bodies(stmt, tests);
            }
            let fits = match tests {
                UnderTest::Server => ServerStep::of(stmt).is_some(),
                UnderTest::Client | UnderTest::Library => is_of_client(stmt),
            };
            if !fits {
                return Err(scenario.source.line_of(start(stmt)));
            }
            // The names that a server's answers bind are always the same.
            if tests == UnderTest::Server
                && let Some(ServerStep::Wait { rank, answer }) = ServerStep::of(stmt)
            {
                *stmt = wait(rank, answer);
            }
            // What stood in a file as an escape is a byte like others.
            sent_mut(stmt, tests).into_iter().flatten().for_each(tidy);
            arguments_mut(stmt).for_each(tidy);
        }
        if tests == UnderTest::Client && !scenario.body.iter().any(is_end) {
            scenario.body.push(ends());
        }
        // Mutations change the statements: they have numbers from now on, and no lines.
        scenario.source = Arc::default();
        Ok(Self { scenario, ingredients: BTreeSet::new() })
    }

    /// Who is under test.
    pub fn tests(&self) -> UnderTest {
        self.scenario.tests
    }

    /// Number of processes.
    pub fn ranks(&self) -> u32 {
        self.scenario.ranks
    }

    /// As a scenario file.
    pub fn text(&self) -> String {
        let mut scenario = self.scenario.clone();
        for stmt in &mut scenario.body {
            sent_mut(stmt, self.scenario.tests).into_iter().flatten().for_each(|line| *line = escaped(line));
            let said = arguments_mut(stmt).filter(|text| !text.is_empty());
            said.for_each(|text| *text = escaped(text));
        }
        pmi_scenario::print(&scenario)
    }

    /// Cites a requirement: the one that is broken, or one that fits what is said.
    pub fn cite(&mut self, requirement: Option<&str>) {
        let fits = match self.scenario.tests {
            UnderTest::Server if self.scenario.dialect == Dialect::Pmi2 => PMI2_SERVER_CITES,
            UnderTest::Server => SERVER_CITES,
            UnderTest::Client | UnderTest::Library => CLIENT_CITES,
        };
        self.scenario.requires = vec![unplaced(requirement.unwrap_or(fits).to_owned())];
    }

    /// Whether it can only be played to a proxy whose upstream we are.
    pub fn needs_upstream(&self) -> bool {
        let is = |stmt: &Stmt| {
            matches!(stmt, Stmt::Step(Step { who: Who::Ranks { group: Proc::PROXIES, .. }, .. }))
        };
        self.scenario.body.iter().any(is)
    }

    /// Whether it asks for a spawn of our own program.
    fn needs_spawn(&self) -> bool {
        let has = |stmt: &Stmt| {
            let lines = sent(stmt, UnderTest::Server).into_iter().flatten();
            lines.flat_map(|line| &line.pieces).any(|piece| *piece == agent())
        };
        self.tests() == UnderTest::Server && self.scenario.body.iter().any(has)
    }

    /// What a server must offer for it.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let says = |parts: &[&[u8]]| {
            let lines = self.scenario.body.iter().filter_map(|stmt| sent(stmt, UnderTest::Server)).flatten();
            self.scenario.dialect == Dialect::Pmi2
                && self.tests() == UnderTest::Server
                && lines
                    .map(bytes_of)
                    .any(|text| parts.iter().any(|part| memchr::memmem::find(&text, part).is_some()))
        };
        let is_of_a_part = |text: Vec<u8>| {
            text.starts_with(b"cmd=barrier_in") && memchr::memmem::find(&text, b" group=").is_some()
        };
        let names_groups = self.scenario.dialect == Dialect::Pmi1
            && self.tests() == UnderTest::Server
            && self
                .scenario
                .body
                .iter()
                .filter_map(|stmt| sent(stmt, UnderTest::Server))
                .flatten()
                .any(|line| is_of_a_part(bytes_of(line)));
        let all = [
            (Need::Pmi12, names_groups),
            (Need::Spawn, self.needs_spawn()),
            (Need::Upstream, self.needs_upstream()),
            (Need::Concat, says(&[b"cmd=concat;"])),
            (Need::JobConnect, says(&[b"cmd=job-connect;", b"cmd=job-disconnect;", b"cmd=kvs-putall;"])),
            (Need::KvsGetall, says(&[b"cmd=kvs-getall;", b"cmd=kvs-putall;"])),
            (Need::SpawnCmd, says(&[b"cmd=spawn-cmd;"])),
        ];
        all.into_iter().filter(|(_, is)| *is).map(|(need, _)| need).collect()
    }

    /// Number of steps, of which any may be left out: what the server is set up with, and the statements.
    pub fn len(&self) -> usize {
        self.settings() + self.scenario.body.iter().filter(|stmt| !is_end(stmt)).count()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn settings(&self) -> usize {
        let serving = &self.scenario.serving;
        serving.variations.len() + usize::from(serving.fault.is_some()) + serving.settings.len()
    }

    /// Leaves out steps.
    pub(crate) fn drop_steps(&mut self, steps: Range<usize>) {
        let mut at = 0;
        let mut stays = || {
            at += 1;
            !steps.contains(&(at - 1))
        };
        let serving = &mut self.scenario.serving;
        serving.variations.retain(|_| stays());
        serving.fault.take_if(|_| !stays());
        serving.settings.retain(|_| stays());
        self.scenario.body.retain(|stmt| is_end(stmt) || stays());
    }

    /// Leaves out a rank with all that concerns it alone; the others move up.
    pub(crate) fn drop_rank(&mut self, rank: u32) {
        self.scenario.ranks -= 1;
        self.scenario.body.retain(|stmt| rank_of(stmt) != Some(rank));
        for stmt in &mut self.scenario.body {
            if let Some(other) = rank_of(stmt).filter(|other| *other > rank) {
                set_rank(stmt, other - 1);
            }
        }
    }

    /// The lines that a step has us send, if it does.
    pub(crate) fn lines(&self, step: usize) -> Option<&Vec<Template>> {
        sent(self.scenario.body.get(step.checked_sub(self.settings())?)?, self.tests())
    }

    /// The same, to be changed.
    pub(crate) fn lines_mut(&mut self, step: usize) -> Option<&mut Vec<Template>> {
        let (at, tests) = (step.checked_sub(self.settings())?, self.tests());
        sent_mut(self.scenario.body.get_mut(at)?, tests)
    }

    /// What shrinking makes less.
    pub(crate) fn weight(&self) -> usize {
        let weigh = |stmt: &Stmt| match (stmt, sent(stmt, self.tests())) {
            (Stmt::Use { .. }, _) => 5,
            (_, Some(lines)) => 10 + lines.iter().map(|line| 2 + line_weight(line)).sum::<usize>(),
            _ => 10,
        };
        (self.scenario.ranks + self.scenario.nodes - 1) as usize * 100
            + self.settings() * 10
            + self.scenario.body.iter().map(weigh).sum::<usize>()
    }

    /// Makes the rest fit what was left out; false if it cannot be played.
    pub(crate) fn settle(&mut self) -> bool {
        let ranks = self.ranks();
        self.scenario.nodes = self.scenario.nodes.min(ranks.max(1));
        if self.tests() == UnderTest::Server {
            self.realign();
            return self.is_sound() && self.is_bounded();
        }
        self.scenario.body.iter().all(|stmt| rank_of(stmt).is_none_or(|rank| rank < ranks))
    }

    /// Whether every name is bound before it is used, and every rank and request that is spoken of exists. Only of a case
    /// against a server.
    pub(crate) fn is_sound(&self) -> bool {
        let mut known = Known::default();
        self.scenario.body.iter().all(|stmt| {
            known.take(stmt)
                && rank_of(stmt).is_none_or(|rank| rank < self.ranks())
                && sent(stmt, UnderTest::Server).into_iter().flatten().all(|line| known.binds(line))
        })
    }

    /// Whether the spawns in it, if any, ask for few processes, however a server reads them. Only of a case against a server.
    pub(crate) fn is_bounded(&self) -> bool {
        if self.scenario.dialect == Dialect::Pmi1 {
            return true;
        }
        let mut said = vec![Vec::new(); self.ranks() as usize];
        for stmt in &self.scenario.body {
            if let Some(ServerStep::Write { rank, encoding, lines, partial }) = ServerStep::of(stmt)
                && let Some(said) = said.get_mut(rank as usize)
            {
                let text = bytes_said(encoding, lines, partial);
                // Which group is whose, nobody could tell.
                if memchr::memmem::find_iter(&text, b"cmd=spawn;").nth(1).is_some() {
                    return false;
                }
                said.extend(text);
            }
        }
        let in_series = self.scenario.needs.iter().any(|need| need.value == Need::SpawnCmd);
        let of_children = |stmt: &&Stmt| matches!(ServerStep::of(stmt), Some(ServerStep::OfChildren { .. }));
        let spawns = |stmt: &Stmt| {
            let lines = sent(stmt, UnderTest::Server).into_iter().flatten();
            lines.map(bytes_of).any(|text| memchr::memmem::find(&text, b"spawn").is_some())
        };
        // What was spawned does not spawn.
        !self.scenario.body.iter().filter(of_children).any(spawns)
            && said.iter().all(|said| spawn_guard::is_bounded(said, in_series))
    }

    /// Makes every wait one for the request that it comes after: where requests were left out, their answers do not come,
    /// and others' do. A wait for an answer that nobody has asked for is left out.
    pub(crate) fn realign(&mut self) {
        self.refit(|_, answer, asked| match (answer, asked) {
            (Answer::Optional, _) => Some(answer),
            (_, None) => None,
            (Answer::Due(_), Some(Asked { op: Some(op), is_proper: true })) => Some(Answer::Due(op)),
            (Answer::InTime(_), Some(Asked { op: Some(op), is_proper: true })) => Some(Answer::InTime(op)),
            (_, Some(_)) => Some(Answer::Optional),
        });
    }

    /// Notes at which statements an answer was due that did not come, by their numbers; `held_up` if half a request may be why.
    pub(crate) fn tighten(&mut self, unanswered: &[usize], held_up: bool) {
        self.refit(|number, answer, asked| match asked {
            Some(Asked { op: Some(op), .. }) if unanswered.contains(&number) => {
                Some(if held_up { Answer::InTime(op) } else { Answer::Due(op) })
            }
            _ => Some(answer),
        });
    }

    /// Changes what is waited for, or leaves the wait out, by the number of its statement, what it was and which request has no
    /// answer yet, if one has none.
    fn refit(&mut self, fit: impl Fn(usize, Answer, Option<Asked>) -> Option<Answer>) {
        let dialect = self.scenario.dialect;
        let mut open = vec![Open::default(); self.ranks() as usize];
        let mut number = 0;
        self.scenario.body.retain_mut(|stmt| {
            number += 1;
            let (rank, answer) = match ServerStep::of(stmt) {
                Some(ServerStep::Write { rank, encoding, lines, partial }) => {
                    if let Some(open) = open.get_mut(rank as usize) {
                        open.write(dialect, encoding, lines, partial);
                    }
                    return true;
                }
                Some(ServerStep::Wait { rank, answer }) => (rank, answer),
                _ => return true,
            };
            let front = open.get_mut(rank as usize).and_then(|open| open.asked.pop_front());
            let fits = fit(number, answer, front);
            if let Some(fits) = fits.filter(|fits| *fits != answer) {
                *stmt = wait(rank, fits);
            }
            fits.is_some()
        });
    }

    /// The same behind a start in good order, if it has none and a server is under test.
    pub(crate) fn joined(&self) -> Option<Self> {
        let joins = |stmt: &Stmt| matches!(ServerStep::of(stmt), Some(ServerStep::Join));
        if self.tests() != UnderTest::Server || self.scenario.body.iter().any(joins) {
            return None;
        }
        let mut joined = self.clone();
        joined.scenario.body.insert(0, join(self.scenario.dialect));
        Some(joined)
    }

    /// The same with a start in good order instead of what ranks say of their own at the start.
    pub(crate) fn joined_instead(&self) -> Option<Self> {
        let words: &[&str] = match self.scenario.dialect {
            Dialect::Pmi1 => &["init", "get_maxes", "get_my_kvsname"],
            Dialect::Pmi2 => &["init", "fullinit"],
        };
        let starts = |stmt: &Stmt| match stmt {
            Stmt::Step(Step { action: action @ Action::Message { .. }, role: Role::Client, .. }) => {
                command(action).is_some_and(|word| words.contains(&word.as_str()))
            }
            _ => false,
        };
        let mut joined = self.joined()?;
        joined.scenario.body.retain(|stmt| !starts(stmt));
        joined.realign();
        Some(joined)
    }

    /// The same with a wait for what its last words lead to, if it has none and a server is under test: a scenario ends with
    /// its last step.
    pub(crate) fn awaited(&self) -> Option<Self> {
        if self.tests() != UnderTest::Server {
            return None;
        }
        let body = &self.scenario.body;
        let gone = |rank: &u32| {
            body.iter().any(|stmt| match ServerStep::of(stmt) {
                Some(
                    ServerStep::Close { rank: r }
                    | ServerStep::Exit { rank: r, .. }
                    | ServerStep::Kill { rank: r, .. },
                ) => r == *rank,
                _ => false,
            })
        };
        let last = body.last()?;
        use ServerStep::{Join, Leave, OfChildren, PassedOn, Wait};
        if matches!(
            ServerStep::of(last),
            None | Some(Join | Leave | Wait { .. } | PassedOn | OfChildren { .. })
        ) {
            return None;
        }
        let rank = rank_of(last).into_iter().chain(0..self.ranks()).find(|rank| !gone(rank))?;
        let mut awaited = self.clone();
        awaited.scenario.body.push(wait(rank, Answer::Optional));
        Some(awaited)
    }

    /// Makes it what is stored: with a summary, the requirement that it tests and what it needs.
    pub(crate) fn finish(&mut self, summary: &str, requirement: Option<&str>) {
        self.cite(requirement);
        let plain: String = summary.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.scenario.heading = vec![plain];
        self.scenario.needs = self.needs().into_iter().map(unplaced).collect();
    }
}

/// The texts that a call is made with.
fn arguments_mut(stmt: &mut Stmt) -> impl Iterator<Item = &mut Template> {
    let args = match stmt {
        Stmt::Step(Step { action: Action::Call(call), .. }) => Some(&mut call.args),
        _ => None,
    };
    args.into_iter().flatten().filter_map(|arg| match arg {
        Arg::Text(text) => Some(text),
        _ => None,
    })
}

/// A line whose bytes are escaped where they would say something else in a file.
fn escaped(line: &Template) -> Template {
    let mut out = Template::default();
    for (i, piece) in line.pieces.iter().enumerate() {
        out = match piece {
            Piece::Literal { bytes, .. } if i == 0 => Template::line(bytes),
            Piece::Literal { bytes, .. } => {
                bytes.chunk_by(|a, b| a.is_ascii() && b.is_ascii()).fold(out, |out, run| {
                    match std::str::from_utf8(run) {
                        Ok(text) => out.tuples(text),
                        Err(_) => out.bytes(run),
                    }
                })
            }
            other => out.with(other.clone()),
        };
    }
    // A line of nothing would be none.
    if out.is_empty() { out.with(letters(0)) } else { out }
}

fn start(stmt: &Stmt) -> usize {
    match stmt {
        Stmt::Use { name, .. } | Stmt::Let { name, .. } => name.span.start,
        Stmt::Repeat { span, .. } => span.start,
        Stmt::Step(step) => step.span.start,
    }
}

/// Whether campaigns have such a step for programs and libraries.
fn is_of_client(stmt: &Stmt) -> bool {
    let Stmt::Step(step) = stmt else { return false };
    matches!(step.who, Who::Ranks { group: 0, set: RankSet::All }) || rank_of(stmt).is_some()
}

/// What shrinking makes less of a line.
fn line_weight(line: &Template) -> usize {
    let weigh = |piece: &Piece| match piece {
        Piece::Literal { bytes, .. } => bytes.len(),
        Piece::Fill(Expr::Number(n)) => 3 + n.unsigned_abs().checked_ilog2().unwrap_or(0) as usize,
        Piece::Fill(_) => 5,
        _ => 3,
    };
    line.pieces.iter().map(weigh).sum()
}

/// Whether lines have all that a spawn of PMI-1 cannot do without, if they are one: else nobody starts, and who waits for that waits
/// long.
fn is_whole_if_spawn(lines: &[Template]) -> bool {
    let lines: Vec<Vec<u8>> = lines.iter().map(bytes_of).collect();
    if lines.first().is_none_or(|first| first != b"mcmd=spawn") {
        return true;
    }
    let programs = lines.iter().filter(|line| *line == b"endcmd").count();
    let says =
        |begin: &str| lines.iter().filter(|line| line.starts_with(begin.as_bytes())).count() == programs;
    let total = format!("totspawns={programs}").into_bytes();
    let all = ["mcmd=spawn", "nprocs=", "execname=", "spawnssofar=", "argcnt=", "preput_num=", "info_num="];
    programs > 0
        && all.into_iter().all(says)
        && lines.iter().filter(|line| **line == total).count() == programs
        && lines.last().is_some_and(|last| last == b"endcmd")
}

/// What has been bound and taken before a step.
#[derive(Debug, Default)]
pub(crate) struct Known {
    kvs: bool,
    jobid: bool,
    limits: bool,
    passed_on: u32,
    spawned: u32,
    child_kvs: bool,
}

impl Known {
    /// Notes a statement; false if it answers a request that nobody has passed on, or is no step of a case.
    pub(crate) fn take(&mut self, stmt: &Stmt) -> bool {
        match ServerStep::of(stmt) {
            Some(ServerStep::Join) => (self.kvs, self.limits) = (true, true),
            Some(ServerStep::Wait { answer: Answer::Due(op), .. }) => match op {
                Op::Pmi1(Operation::Kvsname) => self.kvs = true,
                Op::Pmi1(Operation::Maxes) => self.limits = true,
                Op::Pmi2(Command::JobGetid) => self.jobid = true,
                _ => {}
            },
            Some(ServerStep::PassedOn) => self.passed_on += 1,
            Some(ServerStep::Write { lines, .. }) => {
                let spawns = lines.iter().flat_map(|line| &line.pieces).any(|piece| *piece == agent());
                self.spawned += u32::from(spawns && is_whole_if_spawn(lines));
            }
            Some(ServerStep::OfChildren { group }) => {
                self.child_kvs |= matches!(stmt, Stmt::Use { .. });
                return self.has_spawned(group);
            }
            Some(ServerStep::Upstream(action)) => {
                let least = match action {
                    UpstreamAction::Answer { to, .. } => to.unwrap_or(0),
                    UpstreamAction::Usual { to } => to.unwrap_or(1),
                    UpstreamAction::Close => 0,
                };
                return least <= self.passed_on;
            }
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// Whether so many groups were spawned.
    pub(crate) fn has_spawned(&self, groups: u32) -> bool {
        groups <= self.spawned
    }

    /// Whether every name in a line has a value.
    fn binds(&self, line: &Template) -> bool {
        line.pieces.iter().all(|piece| match piece {
            Piece::Var(name) if name == "kvs" => self.kvs,
            Piece::Var(name) if name == "jobid" => self.jobid,
            Piece::Var(name) if name == "child_kvs" => self.child_kvs,
            Piece::Fill(Expr::Number(_)) => true,
            Piece::Fill(_) => self.limits,
            _ => true,
        })
    }

    /// Something stands in for names that have no value, where the start went wrong.
    pub(crate) fn stand_in(&self, lines: &mut [Template]) {
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
            tidy(line);
        }
    }
}

/// A message that an answer may come to.
#[derive(Clone, Copy)]
struct Asked {
    /// By its command, whatever else it says; `None` for what is no request of the protocol.
    op: Option<Op>,
    /// It says what such a request has to say.
    is_proper: bool,
}

/// What a rank has asked for and not been answered.
#[derive(Clone, Default)]
struct Open {
    asked: VecDeque<Asked>,
    /// A line of PMI-1 that is not complete.
    partial: Vec<u8>,
    spawning: bool,
    /// What is said in PMI-2.
    reader: Reader,
    joined: Joined,
}

impl Open {
    fn write(&mut self, dialect: Dialect, encoding: Encoding, lines: &[Template], partial: bool) {
        let said = bytes_said(encoding, lines, partial);
        match dialect {
            Dialect::Pmi1 => {
                self.partial.extend(said);
                while let Some(end) = memchr::memchr(b'\n', &self.partial) {
                    let line: Vec<u8> = self.partial.drain(..=end).collect();
                    self.line(&line[..end]);
                }
                self.spawning &= partial;
            }
            Dialect::Pmi2 => {
                for said in self.reader.push(&said) {
                    match said {
                        Said::Line(line) => self.line(&line),
                        Said::Body(body) => self.body(&body),
                        Said::NoFrame => self.asked.push_back(Asked { op: None, is_proper: false }),
                    }
                }
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        if line.starts_with(b"mcmd=spawn") {
            if !std::mem::replace(&mut self.spawning, true) {
                self.asked.push_back(Asked { op: Some(Operation::Spawn.into()), is_proper: true });
            }
        } else if !self.spawning || line.starts_with(b"cmd=") {
            let message = Message::parse(line, ValueReading::ToEndOfLine).ok();
            let op = message.and_then(|m| m.cmd().and_then(Operation::from_request_cmd)).map(Op::from);
            let is_proper = Request::parse(line, ValueReading::ToEndOfLine).is_ok();
            self.asked.push_back(Asked { op, is_proper });
        }
    }

    fn body(&mut self, body: &[u8]) {
        if let Some((command, is_proper)) = self.joined.push(body) {
            self.asked.push_back(Asked { op: command.map(Op::from), is_proper });
        }
    }
}

/// What is written, with something in the place of what is only known when it is played.
pub(crate) fn bytes_said(encoding: Encoding, lines: &[Template], partial: bool) -> Vec<u8> {
    let mut all = Vec::new();
    for line in lines {
        let text = bytes_of(line);
        match encoding {
            Encoding::Body => {
                all.extend_from_slice(&frame_header(text.len()).unwrap_or([b'9'; HEADER]));
                all.extend(text);
            }
            Encoding::Bytes => all.extend(text),
            Encoding::Line | Encoding::Dialect => {
                all.extend(text);
                all.push(b'\n');
            }
        }
    }
    if partial {
        all.pop();
    }
    all
}

/// A text, with something in the place of what is only known when it is played.
pub(crate) fn bytes_of(line: &Template) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in &line.pieces {
        match piece {
            Piece::Literal { bytes, .. } => text.extend_from_slice(bytes),
            Piece::Fill(Expr::Number(count)) => {
                text.resize(text.len() + usize::try_from(*count).unwrap_or(0), b'x');
            }
            Piece::Var(name) if name == "rank" => text.push(b'0'),
            Piece::Cut => {}
            _ => text.push(b'x'),
        }
    }
    text
}

/// Writes the tuples of a message of PMI-2 as the body that they become, so that mutations and shrinking reach each byte of it.
fn as_bodies(stmt: &mut Stmt, to: UnderTest) {
    let ours = if to == UnderTest::Server { Role::Client } else { Role::Server };
    let Stmt::Step(Step { role, action: Action::Message { mode, lines }, .. }) = stmt else {
        return;
    };
    if *role != ours {
        return;
    }
    if mode.encoding != Encoding::Dialect {
        return;
    }
    let words: [&[u8]; 2] = [b"cmd=init", b"cmd=response_to_init"];
    let is_init = |line: &Template| words.iter().any(|word| bytes_of(line).starts_with(word));
    if lines.iter().all(is_init) {
        mode.encoding = Encoding::Line;
    } else if !lines.iter().any(is_init) {
        mode.encoding = Encoding::Body;
        lines.iter_mut().for_each(|line| *line = tuples_as_body(line));
    }
}

fn tuples_as_body(line: &Template) -> Template {
    let (mut body, mut between) = (Template::default(), false);
    for piece in &line.pieces {
        let Piece::Literal { bytes, quoted } = piece else {
            if std::mem::take(&mut between) {
                push(&mut body, literal(*b";"));
            }
            push(&mut body, piece.clone());
            continue;
        };
        for byte in bytes {
            if !quoted && *byte == b' ' {
                between = true;
                continue;
            }
            if std::mem::take(&mut between) {
                push(&mut body, literal(*b";"));
            }
            push(&mut body, literal(if *byte == b';' { b";;".to_vec() } else { vec![*byte] }));
        }
    }
    push(&mut body, literal(*b";"));
    body
}

/// The length of a body, where it is known before it is played.
pub(crate) fn known_length(body: &Template) -> Option<usize> {
    let known = |piece: &Piece| matches!(piece, Piece::Literal { .. } | Piece::Fill(Expr::Number(_)));
    body.pieces.iter().all(known).then(|| bytes_of(body).len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::text;
    use crate::testing::read_again;

    fn server(ranks: u32, body: Vec<Stmt>) -> Case {
        Case::new(UnderTest::Server, ranks, body)
    }

    fn says(to: Option<u32>, lines: Vec<Template>, partial: bool) -> Stmt {
        upstream(UpstreamAction::Answer { to, partial, lines })
    }

    #[test]
    fn what_is_written_is_read_again() {
        let nasty: Vec<u8> = (0..=255).filter(|b| *b != b'\n').collect();
        let empty = || template(Vec::new());
        let mut body = vec![
            join(Dialect::Pmi1),
            write(
                2,
                vec![
                    template(vec![literal("cmd=put kvsname="), kvsname(), literal(" key=a value=")]),
                    text(nasty.clone()),
                    template(vec![kvsname(), literal(nasty), kvsname(), literal(*b"\xff ")]),
                    text("# no comment "),
                    text(" "),
                    text("rc=ok"),
                    text("1,2 C: x"),
                    template(vec![literal("partial "), letters_to(Limit::Key, -1)]),
                    text("close"),
                ],
                true,
            ),
            wait(2, Answer::Optional),
            wait(0, Answer::InTime(Operation::Put.into())),
            wait(0, Answer::Due(Operation::Get.into())),
            write(0, vec![template(vec![literal("execname="), agent(), letters(70)])], false),
            passed_on(Operation::Get),
            upstream(UpstreamAction::Usual { to: Some(1) }),
            passed_on(Operation::Spawn),
            says(Some(2), vec![template(vec![literal("to 1 cmd="), kvsname()]), empty()], true),
            says(None, vec![text("close"), text("every one\n")], false),
            upstream(UpstreamAction::Close),
            close(1),
            exit(0, 3),
            kill(2, 9),
            leave(Dialect::Pmi1),
        ];
        let reserved =
            ["close", "empty", "silence", "usual", "right", "one of", "partial", "bytewise x", "to 1 x"];
        body.extend(reserved.iter().map(|word| write(0, vec![text(*word)], false)));
        body.extend(reserved.iter().map(|word| says(None, vec![text(*word)], false)));
        let case = server(3, body);
        assert!(case.is_sound());
        read_again(&case);
    }

    #[test]
    fn what_is_written_in_frames_is_read_again() {
        let nasty: Vec<u8> = (0..=255).collect();
        let body = |rank, bodies: Vec<Template>| write_as(rank, Encoding::Body, bodies, false);
        let steps = vec![
            write_as(0, Encoding::Line, vec![text("cmd=init pmi_version=2 pmi_subversion=0")], false),
            join(Dialect::Pmi2),
            wait(0, Answer::Due(Command::JobGetid.into())),
            body(0, vec![template(vec![literal("cmd=kvs-get;jobid="), jobid(), literal(";key=a;")])]),
            body(
                1,
                vec![text(nasty.clone()), template(vec![literal("a"), Piece::Cut, literal("b"), agent()])],
            ),
            body(1, vec![template(vec![literal("cmd=fullinit;pmirank="), own_rank(), literal(";")])]),
            write_as(1, Encoding::Bytes, vec![text(nasty), text("    14cmd="), text("<body> x")], false),
            write_as(1, Encoding::Body, vec![text("cmd=job-getid;")], true),
            wait(1, Answer::Due(Command::KvsFence.into())),
            wait(1, Answer::Optional),
            leave(Dialect::Pmi2),
        ];
        let case = Case::speaking(Dialect::Pmi2, UnderTest::Server, 2, steps);
        assert!(case.is_sound());
        read_again(&case);
    }

    #[test]
    fn tuples_of_a_suite_become_the_bodies_that_they_are() {
        let text = "# A.\nrequires pmi2.common.put\ndialect pmi-2\n\n\
                    0  C: cmd=init pmi_version=2 pmi_subversion=0\n\
                    0  C: cmd=kvs-put key=k value=a<sp>b;c$rank\n\
                    0  S: cmd=kvs-put-response rc=0\n";
        let source = Arc::new(pmi_scenario::ast::Source { path: "a.pmi".into(), text: text.into() });
        let case = Case::from_scenario(pmi_scenario::parse(source, "a").unwrap()).unwrap();
        let text = case.text();
        assert!(text.contains("0  C: <line> cmd=init pmi_version=2 pmi_subversion=0\n"), "{text}");
        assert!(text.contains("0  C: <body> cmd=kvs-put;key=k;value=a b;;c$rank;\n"), "{text}");
        assert!(text.ends_with("0  S: cmd=kvs-put-response\n"), "{text}");
    }

    #[test]
    fn waits_follow_the_frames_that_are_left() {
        let bytes = |text: &str| write_as(0, Encoding::Bytes, vec![crate::fields::text(text)], false);
        let body = |text: &str| write_as(0, Encoding::Body, vec![crate::fields::text(text)], false);
        let due = |command: Command| wait(0, Answer::Due(command.into()));
        let optional = || wait(0, Answer::Optional);
        let of = |steps| Case::speaking(Dialect::Pmi2, UnderTest::Server, 1, steps);
        let mut case = of(vec![
            due(Command::KvsFence),
            bytes("    1"),
            bytes("4cmd=job-getid;"),
            due(Command::KvsFence),
            body("cmd=kvs-put;key=a;"),
            due(Command::KvsPut),
            body("cmd=kvs-fence;"),
            due(Command::JobGetid),
        ]);
        case.realign();
        let expected = [
            bytes("    1"),
            bytes("4cmd=job-getid;"),
            due(Command::JobGetid),
            body("cmd=kvs-put;key=a;"),
            optional(),
            body("cmd=kvs-fence;"),
            due(Command::KvsFence),
        ];
        assert_eq!(case.scenario.body, expected);
    }

    #[test]
    fn waits_follow_the_requests_that_are_left() {
        let write = |line: &str, partial| write(0, vec![text(line)], partial);
        let due = |op: Operation| wait(0, Answer::Due(op.into()));
        let optional = || wait(0, Answer::Optional);
        let mut case = server(
            1,
            vec![
                due(Operation::Put),
                write("cmd=get_", true),
                write("appnum", false),
                due(Operation::Barrier),
                write("cmd=frob", false),
                due(Operation::Get),
                due(Operation::Get),
                optional(),
            ],
        );
        case.realign();
        let expected = [
            write("cmd=get_", true),
            write("appnum", false),
            due(Operation::Appnum),
            write("cmd=frob", false),
            optional(),
            optional(),
        ];
        assert_eq!(case.scenario.body, expected);
    }

    #[test]
    fn a_start_in_good_order_takes_the_place_of_what_ranks_say_of_their_own() {
        let says = |rank, line: &str| write(rank, vec![text(line)], false);
        let get = || says(1, "cmd=get kvsname=a key=b");
        let case = server(
            2,
            vec![
                says(1, "cmd=init pmi_version=1 pmi_subversion=1"),
                wait(1, Answer::Due(Operation::Init.into())),
                says(0, "cmd=get_my_kvsname"),
                get(),
                wait(0, Answer::Due(Operation::Kvsname.into())),
                wait(1, Answer::Due(Operation::Get.into())),
            ],
        );
        let joined = case.joined_instead().unwrap();
        assert_eq!(
            joined.scenario.body,
            [join(Dialect::Pmi1), get(), wait(1, Answer::Due(Operation::Get.into()))]
        );
        assert!(joined.joined_instead().is_none() && joined.joined().is_none());
    }

    #[test]
    fn the_last_words_get_a_wait() {
        let write = |rank| write(rank, vec![text("x")], false);
        let optional = |rank| wait(rank, Answer::Optional);
        let waits = |steps: &[Stmt]| {
            let awaited = server(2, steps.to_vec()).awaited();
            awaited.map(|case| case.scenario.body[steps.len()..].to_vec())
        };
        assert_eq!(waits(&[write(1)]), Some(vec![optional(1)]));
        assert_eq!(waits(&[write(1), close(1)]), Some(vec![optional(0)]));
        assert_eq!(waits(&[says(None, vec![text("")], true)]), Some(vec![optional(0)]));
        assert_eq!(waits(&[exit(0, 0), kill(1, 9)]), None);
        assert_eq!(waits(&[write(0), optional(0)]), None);
        assert_eq!(waits(&[write(0), leave(Dialect::Pmi1)]), None);
    }

    #[test]
    fn names_must_be_bound_and_ranks_exist() {
        let write = |rank| write(rank, vec![template(vec![kvsname()])], false);
        let sound = |body| server(1, body).is_sound();
        assert!(sound(vec![join(Dialect::Pmi1), write(0)]));
        assert!(!sound(vec![write(0)]));
        assert!(!sound(vec![join(Dialect::Pmi1), write(1)]));
        assert!(sound(vec![wait(0, Answer::Due(Operation::Kvsname.into())), write(0)]));
        let passed = || passed_on(Operation::Lookup);
        let usual = |to| upstream(UpstreamAction::Usual { to });
        assert!(sound(vec![passed(), passed(), usual(Some(2)), usual(None)]));
        assert!(!sound(vec![passed(), usual(Some(2))]) && !sound(vec![usual(None), passed()]));
        assert!(sound(vec![says(None, vec![], false)]));
        assert!(!sound(vec![says(None, vec![template(vec![kvsname()])], false)]));
        let case = server(1, vec![passed(), passed_on(Operation::Get), passed()]);
        assert_eq!(case.scenario.answers(), ["get", "lookup_name"]);
    }
}
