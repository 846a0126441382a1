//! A session as data: what every rank does, in the order in which it is done. It is the part of the scenario language
//! that the generator needs, and is written and read as a scenario file.

use std::collections::VecDeque;
use std::fmt::Write as _;

use pmi_wire::{Operation, Request, ValueReading};

use crate::event::Proc;
use crate::lang::ast::{
    Action, Alternative, BinOp, Expr, Grade, Piece as Text, ProcessAction, RankSet, Role, Scenario, Stmt,
    Template, UpstreamAction, Who,
};

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Processes of the first group.
    pub ranks: u32,
    /// What happens, in this order, over all ranks.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Every rank says init and asks for the limits and the name of the keyval space (`use joined`).
    Join,
    /// Every rank says finalize and is acknowledged (`use finalized`).
    Leave,
    /// One write.
    Write {
        /// By whom.
        rank: u32,
        /// The messages in it.
        lines: Vec<Line>,
        /// The last one's newline is left out.
        partial: bool,
    },
    /// Something is waited for: a message or the end of the connection.
    Await {
        /// By whom.
        rank: u32,
        /// Whether it must come.
        answer: Answer,
    },
    /// The connection is closed.
    Close {
        /// Whose.
        rank: u32,
    },
    /// The process exits.
    Exit {
        /// Which.
        rank: u32,
        /// Its status.
        status: u8,
    },
    /// The process dies of a signal.
    Kill {
        /// Which.
        rank: u32,
        /// The signal.
        signal: u8,
    },
    /// The proxy may pass something on to its upstream, which we play. Requests of this kind are left to [`Step::Upstream`]
    /// to answer, all through the session.
    Passed {
        /// The kind.
        op: Operation,
    },
    /// We speak in the upstream's place.
    Upstream {
        /// What it is about: so many requests that [`Step::Passed`] has taken before, from 1; the last one if absent.
        to: Option<u32>,
        /// What is said.
        says: Says,
    },
}

/// What the upstream of a proxy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// These words, to the process that asked.
    Words {
        /// The lines.
        lines: Vec<Line>,
        /// The last one's newline is left out.
        partial: bool,
    },
    /// What a proper upstream answers.
    Usual,
    /// It closes its connection to the proxy.
    Close,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing has been done that would allow the server to withhold the answer to this request.
    Due(Operation),
    /// It is due, but the server may first wait for the rest of what another process has begun to say.
    InTime(Operation),
    /// An answer, the end of the connection or nothing.
    Perhaps,
}

/// A message without its newline.
pub type Line = Vec<Piece>;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// The name of the keyval space.
    Kvs,
    /// A program that reports to the runner.
    Agent,
    /// So many letters and digits.
    Fill(Length),
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

/// A length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// What it is relative to.
    pub base: Base,
    /// What is added.
    pub plus: i64,
}

/// What a length is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Zero,
    /// A limit that get_maxes tells.
    Limit(Limit),
}

/// A limit that get_maxes tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `kvsname_max`
    Kvsname,
    /// `keylen_max`
    Key,
    /// `vallen_max`
    Value,
}

impl Limit {
    const ALL: [Self; 3] = [Self::Kvsname, Self::Key, Self::Value];

    fn name(self) -> &'static str {
        match self {
            Self::Kvsname => "kvsname_max",
            Self::Key => "keylen_max",
            Self::Value => "vallen_max",
        }
    }
}

impl Length {
    /// So many bytes.
    pub fn of(bytes: i64) -> Self {
        Self { base: Base::Zero, plus: bytes }
    }
}

impl Step {
    /// Whose step it is; `None` for a step of all ranks.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Join | Self::Leave | Self::Passed { .. } | Self::Upstream { .. } => None,
            Self::Write { rank, .. }
            | Self::Await { rank, .. }
            | Self::Close { rank }
            | Self::Exit { rank, .. }
            | Self::Kill { rank, .. } => Some(*rank),
        }
    }

    /// The messages that it sends, whoever does.
    pub fn lines(&self) -> Option<&Vec<Line>> {
        match self {
            Self::Write { lines, .. } | Self::Upstream { says: Says::Words { lines, .. }, .. } => Some(lines),
            _ => None,
        }
    }

    /// See [`Self::lines`].
    pub fn lines_mut(&mut self) -> Option<&mut Vec<Line>> {
        match self {
            Self::Write { lines, .. } | Self::Upstream { says: Says::Words { lines, .. }, .. } => Some(lines),
            _ => None,
        }
    }

    /// Names that must have a value when the step is reached.
    fn uses(&self) -> impl Iterator<Item = &'static str> {
        self.lines().into_iter().flatten().flatten().filter_map(|piece| match piece {
            Piece::Kvs => Some("kvs"),
            Piece::Fill(Length { base: Base::Limit(limit), .. }) => Some(limit.name()),
            _ => None,
        })
    }
}

impl Session {
    /// The kinds of requests that its steps answer in the place of a proxy's upstream, by name.
    pub fn holds(&self) -> Vec<String> {
        let kinds = self.steps.iter().filter_map(|step| match step {
            Step::Passed { op } => Some(op.request_cmd().to_owned()),
            _ => None,
        });
        kinds.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// Whether it only can be played to a proxy whose upstream we are.
    pub fn needs_upstream(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Passed { .. } | Step::Upstream { .. }))
    }

    /// Whether every name is bound before it is used, and every rank and request that is spoken of exists.
    pub fn is_sound(&self) -> bool {
        let (mut kvs, mut limits) = (false, false);
        let mut passed = 0;
        self.steps.iter().all(|step| {
            match step {
                Step::Passed { .. } => passed += 1,
                Step::Upstream { to, says } => {
                    let least = to.unwrap_or(u32::from(*says == Says::Usual));
                    if passed < least {
                        return false;
                    }
                }
                Step::Join => (kvs, limits) = (true, true),
                Step::Await { answer: Answer::Due(Operation::Kvsname), .. } => kvs = true,
                Step::Await { answer: Answer::Due(Operation::Maxes), .. } => limits = true,
                _ => {}
            }
            step.rank().is_none_or(|rank| rank < self.ranks)
                && step.uses().all(|name| if name == "kvs" { kvs } else { limits })
        })
    }

    /// Makes every wait one for the request that it comes after: where requests were left out, their answers do not
    /// come, and others' do. A wait for an answer that nobody has asked for is left out.
    pub fn realign(&mut self) {
        let mut open = vec![Open::default(); self.ranks as usize];
        self.steps.retain_mut(|step| match step {
            Step::Write { rank, lines, partial } => {
                if let Some(open) = open.get_mut(*rank as usize) {
                    open.write(lines, *partial);
                }
                true
            }
            Step::Await { rank, answer } => {
                let front = open.get_mut(*rank as usize).and_then(|open| open.asked.pop_front());
                match (&*answer, front) {
                    (Answer::Perhaps, _) => {}
                    (_, None) => return false,
                    (Answer::Due(_), Some(Some(op))) => *answer = Answer::Due(op),
                    (Answer::InTime(_), Some(Some(op))) => *answer = Answer::InTime(op),
                    (_, Some(None)) => *answer = Answer::Perhaps,
                }
                true
            }
            _ => true,
        });
    }

    /// Writes it as a scenario file.
    pub fn to_scenario(&self, summary: &str, requires: &[&str]) -> String {
        let mut text = String::new();
        for line in summary.lines() {
            text += &format!("# {line}\n");
        }
        text += &format!("requires {}\n", requires.join(" "));
        let spawns = |step: &Step| matches!(step, Step::Write { lines, .. } if lines.iter().any(|l| l.contains(&Piece::Agent)));
        if self.steps.iter().any(spawns) {
            text += "needs spawn\n";
        }
        if self.needs_upstream() {
            text += "needs upstream\n";
        }
        if self.ranks != 1 {
            text += &format!("ranks {}\n", self.ranks);
        }
        text.push('\n');
        for step in &self.steps {
            write_step(&mut text, step);
        }
        text
    }

    /// Reads a scenario that [`Self::to_scenario`] could have written.
    ///
    /// # Errors
    ///
    /// The line of the first step that is of another kind.
    pub fn from_scenario(scenario: &Scenario) -> Result<Self, usize> {
        let mut steps = Vec::new();
        for stmt in &scenario.body {
            match stmt {
                Stmt::Use(name) if name.value == "joined" => steps.push(Step::Join),
                Stmt::Use(name) if name.value == "finalized" => steps.push(Step::Leave),
                Stmt::Use(name) => return Err(scenario.source.line_of(name.span.start)),
                Stmt::Let { name, .. } => return Err(scenario.source.line_of(name.span.start)),
                Stmt::Repeat { span, .. } => return Err(scenario.source.line_of(span.start)),
                Stmt::Step(step) => {
                    let line = || scenario.source.line_of(step.span.start);
                    steps.push(read_step(step).ok_or_else(line)?);
                }
            }
        }
        Ok(Self { ranks: scenario.ranks, steps })
    }
}

/// What a rank has asked for and not been answered; `None` for what is no request of RFC 13.
#[derive(Clone, Default)]
struct Open {
    asked: VecDeque<Option<Operation>>,
    partial: Vec<u8>,
    spawning: bool,
}

impl Open {
    fn write(&mut self, lines: &[Line], partial: bool) {
        for (i, line) in lines.iter().enumerate() {
            for piece in line {
                match piece {
                    Piece::Bytes(bytes) => self.partial.extend_from_slice(bytes),
                    Piece::Kvs | Piece::Agent | Piece::Fill(_) => self.partial.push(b'x'),
                }
            }
            if !partial || i + 1 < lines.len() {
                let whole = std::mem::take(&mut self.partial);
                whole.split(|b| *b == b'\n').for_each(|line| self.line(line));
            }
        }
        self.spawning &= partial;
    }

    fn line(&mut self, line: &[u8]) {
        if line.starts_with(b"mcmd=spawn") {
            if !std::mem::replace(&mut self.spawning, true) {
                self.asked.push_back(Some(Operation::Spawn));
            }
        } else if !self.spawning || line.starts_with(b"cmd=") {
            self.asked.push_back(Request::parse(line, ValueReading::ToEndOfLine).ok().map(|r| r.operation()));
        }
    }
}

// ----- as text -----------------------------------------------------------------------------------------------------

fn write_step(text: &mut String, step: &Step) {
    // Writing to a string cannot fail.
    let _ = match step {
        Step::Join => writeln!(text, "use joined"),
        Step::Leave => writeln!(text, "use finalized"),
        Step::Close { rank } => writeln!(text, "{rank}  C: close"),
        Step::Exit { rank, status } => writeln!(text, "{rank}  P: exit {status}"),
        Step::Kill { rank, signal } => writeln!(text, "{rank}  P: kill {signal}"),
        Step::Await { rank, answer: Answer::Due(op) } => {
            writeln!(text, "{rank}  S: {}", show_answer(*op))
        }
        Step::Await { rank, answer: Answer::InTime(op) } => {
            writeln!(text, "{rank}  S: one of\n      pass: {}\n      note: silence", show_answer(*op))
        }
        Step::Await { rank, answer: Answer::Perhaps } => writeln!(
            text,
            "{rank}  S: one of\n      pass: cmd=<any>\n      pass: close\n      pass: empty\n      pass: silence"
        ),
        Step::Write { rank, lines, partial } => {
            let mode = if *partial { "partial " } else { "" };
            let shown: Vec<String> = lines.iter().map(|line| show_line(line)).collect();
            writeln!(text, "{rank}  C: {mode}{}", shown.join("\n      "))
        }
        // Whatever else comes first is taken as well: it is what the next answer is about.
        Step::Passed { op } => writeln!(
            text,
            "proxy:0  S: one of\n            pass: {}={}\n            pass: cmd=<any>\n            pass: close\n            \
             pass: silence",
            if *op == Operation::Spawn { "mcmd" } else { "cmd" },
            op.request_cmd()
        ),
        Step::Upstream { to, says } => {
            let to = to.map_or(String::new(), |n| format!("to {n} "));
            let said = match says {
                Says::Usual => "usual".to_owned(),
                Says::Close => "close".to_owned(),
                Says::Words { lines, partial } => {
                    let shown: Vec<String> = lines.iter().map(|line| show_line(line)).collect();
                    format!("{}{}", if *partial { "partial " } else { "" }, shown.join("\n            "))
                }
            };
            writeln!(text, "proxy:0  U: {to}{said}")
        }
    };
}

fn show_answer(op: Operation) -> String {
    format!("cmd={}{}", op.response_cmd().unwrap_or("<any>"), captures(op))
}

/// What an answer binds.
fn captures(op: Operation) -> &'static str {
    match op {
        Operation::Kvsname => " kvsname=$kvs:word",
        Operation::Maxes => {
            " kvsname_max=$kvsname_max:uint keylen_max=$keylen_max:uint vallen_max=$vallen_max:uint"
        }
        _ => "",
    }
}

pub(super) fn show_line(line: &[Piece]) -> String {
    let mut text = String::new();
    for piece in line {
        match piece {
            Piece::Bytes(bytes) => bytes.iter().for_each(|b| show_byte(&mut text, *b)),
            Piece::Kvs => text += "${kvs}",
            Piece::Agent => text += "${agent}",
            Piece::Fill(length) => text += &format!("<fill {}>", show_length(*length)),
        }
    }
    let reserved = ["close", "empty", "silence", "right", "one of", "usual"].contains(&text.trim())
        || ["partial", "bytewise", "every", "to "].iter().any(|mode| text.starts_with(mode))
        || text.starts_with('#');
    if reserved {
        let first = text.remove(0);
        text = format!("<0x{:02x}>{text}", first as u32);
    }
    if text.starts_with(' ') {
        text.replace_range(..1, "<sp>");
    }
    if text.ends_with(' ') {
        text.replace_range(text.len() - 1.., "<sp>");
    }
    if text.is_empty() { "<fill 0>".into() } else { text }
}

fn show_byte(text: &mut String, byte: u8) {
    match byte {
        b'$' => text.push_str("$$"),
        b'<' => text.push_str("<<"),
        b' '..=b'~' => text.push(char::from(byte)),
        _ => text.push_str(&format!("<0x{byte:02x}>")),
    }
}

fn show_length(length: Length) -> String {
    match (length.base, length.plus) {
        (Base::Zero, plus) => plus.to_string(),
        (Base::Limit(limit), 0) => format!("${}", limit.name()),
        (Base::Limit(limit), plus) if plus < 0 => format!("${} - {}", limit.name(), -plus),
        (Base::Limit(limit), plus) => format!("${} + {plus}", limit.name()),
    }
}

// ----- from a scenario ---------------------------------------------------------------------------------------------

fn read_step(step: &crate::lang::ast::Step) -> Option<Step> {
    if let Who::Ranks { group: Proc::PROXIES, set: RankSet::Ranges(proxies) } = &step.who {
        return read_upstream_step(step).filter(|_| proxies[..] == [(0, 0)]);
    }
    let Who::Ranks { group: 0, set: RankSet::Ranges(ranges) } = &step.who else { return None };
    let [(rank, last)] = ranges[..] else { return None };
    if rank != last {
        return None;
    }
    Some(match (&step.action, step.role) {
        (Action::Message { mode, lines }, Role::Client) if !mode.bytewise => Step::Write {
            rank,
            lines: lines.iter().map(read_line).collect::<Option<_>>()?,
            partial: mode.partial,
        },
        (Action::Close, Role::Client) => Step::Close { rank },
        (Action::Process(ProcessAction::Exit(status)), _) => Step::Exit { rank, status: *status },
        (Action::Process(ProcessAction::Kill(signal)), _) => Step::Kill { rank, signal: *signal },
        (Action::OneOf(all), Role::Server) => match &all[..] {
            [answer, Alternative { grade: Grade::Note, action: Action::Silence, .. }] => {
                Step::Await { rank, answer: Answer::InTime(read_answer(&answer.action)?) }
            }
            _ => Step::Await { rank, answer: Answer::Perhaps },
        },
        (action, Role::Server) => Step::Await { rank, answer: Answer::Due(read_answer(action)?) },
        _ => return None,
    })
}

/// Which request a message answers.
fn read_answer(action: &Action) -> Option<Operation> {
    let Action::Message { lines, .. } = action else { return None };
    let fields = lines.first()?.message_fields();
    let cmd = fields.iter().find(|f| f.key == "cmd")?.value.literal()?;
    Operation::from_response_cmd(cmd.as_bytes())
}

fn read_upstream_step(step: &crate::lang::ast::Step) -> Option<Step> {
    Some(match &step.action {
        Action::OneOf(all) => {
            let Action::Message { lines, .. } = &all.first()?.action else { return None };
            let fields = lines.first()?.message_fields();
            let cmd = fields.iter().find(|f| matches!(f.key.as_str(), "cmd" | "mcmd"))?.value.literal()?;
            Step::Passed { op: Operation::from_request_cmd(cmd.as_bytes())? }
        }
        Action::Upstream(action) => match action {
            UpstreamAction::Answer { to, partial, lines } => {
                let lines = lines.iter().map(read_line).collect::<Option<_>>()?;
                Step::Upstream { to: *to, says: Says::Words { lines, partial: *partial } }
            }
            UpstreamAction::Usual { to } => Step::Upstream { to: *to, says: Says::Usual },
            UpstreamAction::Close => Step::Upstream { to: None, says: Says::Close },
        },
        _ => return None,
    })
}

pub(super) fn read_line(template: &Template) -> Option<Line> {
    let mut line = Line::new();
    for piece in &template.pieces {
        match piece {
            Text::Literal { bytes, .. } => match line.last_mut() {
                Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
                _ => line.push(Piece::Bytes(bytes.clone())),
            },
            Text::Var(name) if name == "kvs" => line.push(Piece::Kvs),
            Text::Var(name) if name == "agent" => line.push(Piece::Agent),
            Text::Fill(expr) => match read_length(expr)? {
                Length { base: Base::Zero, plus: 0 } => {}
                length => line.push(Piece::Fill(length)),
            },
            _ => return None,
        }
    }
    Some(line)
}

fn read_length(expr: &Expr) -> Option<Length> {
    let limit = |name: &str| Limit::ALL.into_iter().find(|l| l.name() == name).map(Base::Limit);
    Some(match expr {
        Expr::Number(n) => Length::of(*n),
        Expr::Var(name) => Length { base: limit(&name.value)?, plus: 0 },
        Expr::Binary(a, op, b) => match (&**a, op, &**b) {
            (Expr::Var(name), BinOp::Add, Expr::Number(n)) => Length { base: limit(&name.value)?, plus: *n },
            (Expr::Var(name), BinOp::Sub, Expr::Number(n)) => Length { base: limit(&name.value)?, plus: -n },
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::campaign::input::Input;
    use crate::lang::ast::Source;

    fn words(to: Option<u32>, lines: Vec<Line>, partial: bool) -> Step {
        Step::Upstream { to, says: Says::Words { lines, partial } }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let nasty: Vec<u8> = (0..=255).filter(|b| *b != b'\n').collect();
        let session = Session {
            ranks: 3,
            steps: vec![
                Step::Join,
                Step::Write {
                    rank: 2,
                    lines: vec![
                        vec!["cmd=put kvsname=".into(), Piece::Kvs, " key=a value=".into()],
                        vec![Piece::Bytes(nasty)],
                        vec!["# no comment ".into()],
                        vec![],
                        vec![
                            "partial ".into(),
                            Piece::Fill(Length { base: Base::Limit(Limit::Key), plus: -1 }),
                        ],
                        vec!["close".into()],
                    ],
                    partial: true,
                },
                Step::Await { rank: 2, answer: Answer::Perhaps },
                Step::Await { rank: 0, answer: Answer::InTime(Operation::Put) },
                Step::Write { rank: 0, lines: vec![vec!["close".into()]], partial: false },
                Step::Write { rank: 0, lines: vec![vec![]], partial: false },
                Step::Await { rank: 0, answer: Answer::Due(Operation::Get) },
                Step::Write {
                    rank: 0,
                    lines: vec![vec!["execname=".into(), Piece::Agent, Piece::Fill(Length::of(70))]],
                    partial: false,
                },
                Step::Passed { op: Operation::Get },
                words(None, vec![vec!["usual".into()]], false),
                Step::Upstream { to: Some(1), says: Says::Usual },
                Step::Passed { op: Operation::Spawn },
                words(Some(2), vec![vec!["to 1 cmd=".into(), Piece::Kvs], vec![]], true),
                words(None, vec![vec!["close".into()], vec!["every one\n".into()]], false),
                words(None, vec![vec![]], true),
                Step::Upstream { to: None, says: Says::Close },
                Step::Close { rank: 1 },
                Step::Exit { rank: 0, status: 3 },
                Step::Kill { rank: 2, signal: 9 },
                Step::Leave,
            ],
        };
        assert!(session.is_sound());
        let text = session.to_scenario("Nasty.", &["rfc13.error.close"]);
        let source = Arc::new(Source { path: "x.pmi".into(), text: text.clone() });
        let scenario = crate::lang::parse(source, "x").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(Session::from_scenario(&scenario), Ok(session), "{text}");
    }

    #[test]
    fn waits_follow_the_requests_that_are_left() {
        let write = |text: &str, partial| Step::Write { rank: 0, lines: vec![vec![text.into()]], partial };
        let due = |op| Step::Await { rank: 0, answer: Answer::Due(op) };
        let mut session = Session {
            ranks: 1,
            steps: vec![
                due(Operation::Put),
                write("cmd=get_", true),
                write("appnum", false),
                due(Operation::Barrier),
                write("cmd=frob", false),
                due(Operation::Get),
                due(Operation::Get),
                Step::Await { rank: 0, answer: Answer::Perhaps },
            ],
        };
        session.realign();
        let perhaps = Step::Await { rank: 0, answer: Answer::Perhaps };
        assert_eq!(
            session.steps,
            [
                write("cmd=get_", true),
                write("appnum", false),
                due(Operation::Appnum),
                write("cmd=frob", false),
                perhaps.clone(),
                perhaps
            ]
        );
    }

    #[test]
    fn the_last_words_get_a_wait() {
        let write = |rank| Step::Write { rank, lines: vec![vec!["x".into()]], partial: false };
        let wait = |rank| Step::Await { rank, answer: Answer::Perhaps };
        let waits = |steps: &[Step]| {
            let session = Session { ranks: 2, steps: steps.to_vec() };
            session.awaited().map(|s| s.steps[steps.len()..].to_vec())
        };
        assert_eq!(waits(&[write(1)]), Some(vec![wait(1)]));
        assert_eq!(waits(&[write(1), Step::Close { rank: 1 }]), Some(vec![wait(0)]));
        assert_eq!(waits(&[words(None, vec![vec![]], true)]), Some(vec![wait(0)]));
        assert_eq!(waits(&[Step::Exit { rank: 0, status: 0 }, Step::Kill { rank: 1, signal: 9 }]), None);
        assert_eq!(waits(&[write(0), wait(0)]), None);
        assert_eq!(waits(&[write(0), Step::Leave]), None);
    }

    #[test]
    fn names_must_be_bound_and_ranks_exist() {
        let write = |rank| Step::Write { rank, lines: vec![vec![Piece::Kvs]], partial: false };
        let sound = |steps| Session { ranks: 1, steps }.is_sound();
        assert!(sound(vec![Step::Join, write(0)]));
        assert!(!sound(vec![write(0)]));
        assert!(!sound(vec![Step::Join, write(1)]));
        let bound = Step::Await { rank: 0, answer: Answer::Due(Operation::Kvsname) };
        assert!(sound(vec![bound, write(0)]));
        let passed = || Step::Passed { op: Operation::Lookup };
        let usual = |to| Step::Upstream { to, says: Says::Usual };
        assert!(sound(vec![passed(), passed(), usual(Some(2)), usual(None)]));
        assert!(!sound(vec![passed(), usual(Some(2))]) && !sound(vec![usual(None), passed()]));
        assert!(
            sound(vec![words(None, vec![], false)])
                && !sound(vec![words(None, vec![vec![Piece::Kvs]], false)])
        );
        let session =
            Session { ranks: 1, steps: vec![passed(), Step::Passed { op: Operation::Get }, passed()] };
        assert_eq!(session.holds(), ["get", "lookup_name"]);
    }
}
