//! The ways in which an answer is made unusual or wrong.

use super::super::dice::Dice;
use pmi_wire::Operation;

use super::super::generate::{Field, Plan, field, line};
use super::super::mutate::{self, JUNK, LENGTHS, NUMBERS};
use super::super::session::{Base, Length, Limit, Line, Piece};
use crate::lang::ast::WriteMode;

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A key, a value or a tuple is another one, or missing, or there twice.
    Token,
    /// What stands between keys, values and tuples.
    Separator,
    /// A value or a key at a boundary of lengths.
    Length,
    /// A number at a boundary.
    Number,
    /// Very many tuples.
    Count,
    /// The answer to something else, or a request.
    Command,
    /// A refusal, well-formed or not.
    Refusal,
    /// Limits that are very low, very high or none.
    Limits,
    /// A process mapping that is wrong, or says something strange.
    Mapping,
    /// A name of a keyval space that is odd.
    Name,
    /// A line that is no answer.
    Junk,
    /// Some bytes are others.
    Bytes,
    /// The beginning of an answer, and then the end of the connection.
    Half,
    /// The end of the connection, before or behind the answer.
    Close,
    /// The right bytes in several writes.
    Pieces,
    /// Something before or behind the answer.
    Surplus,
}

impl Change {
    /// All of them.
    pub(super) const ALL: [Self; 16] = [
        Self::Token,
        Self::Separator,
        Self::Length,
        Self::Number,
        Self::Count,
        Self::Command,
        Self::Refusal,
        Self::Limits,
        Self::Mapping,
        Self::Name,
        Self::Junk,
        Self::Bytes,
        Self::Half,
        Self::Close,
        Self::Pieces,
        Self::Surplus,
    ];

    /// Draws one; a third of them are those that are about the answer to this request.
    pub(super) fn draw(op: Operation, mapping: bool, rng: &mut Dice<'_>) -> Self {
        let own = match op {
            Operation::Get if mapping => Self::Mapping,
            Operation::Maxes => Self::Limits,
            Operation::Kvsname => Self::Name,
            _ => Self::Refusal,
        };
        if rng.u32(0..3) == 0 { own } else { Self::ALL[rng.usize(..Self::ALL.len())] }
    }

    /// Its name in `avoid`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Separator => "separator",
            Self::Length => "length",
            Self::Number => "number",
            Self::Count => "count",
            Self::Command => "command",
            Self::Refusal => "refusal",
            Self::Limits => "limits",
            Self::Mapping => "mapping",
            Self::Name => "name",
            Self::Junk => "junk",
            Self::Bytes => "bytes",
            Self::Half => "half",
            Self::Close => "close",
            Self::Pieces => "pieces",
            Self::Surplus => "surplus",
        }
    }
}

/// What is done at a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Messages, in one write unless the mode says otherwise.
    Write(Vec<Line>, WriteMode),
    /// The answer as it should be.
    Right,
    /// The end of the connection.
    Close,
}

/// An answer as it should be.
#[derive(Debug, Clone)]
pub(super) struct Proper<'a> {
    /// It holds a process mapping.
    pub(super) mapping: bool,
    /// Tuple by tuple.
    pub(super) fields: &'a [Field],
    /// `kvsname_max`, `keylen_max` and `vallen_max` as they are told.
    pub(super) limits: [i64; 3],
}

const COMMANDS: &[&str] = &[
    "response_to_init",
    "maxes",
    "finalize_ack",
    "universe_size",
    "appnum",
    "put_result",
    "my_kvsname",
    "barrier_out",
    "get_result",
    "publish_result",
    "lookup_result",
    "spawn_result",
    "abort",
    "init",
    "get",
    "put",
    "barrier_in",
    "tcp_connect_result",
    "newkvs",
    "getbyidx_results",
    "keyval_cache",
    "GET_RESULT",
    "frobnicate",
    "",
];

const CODES: &[&str] =
    &["-1", "1", "-2", "17", "2147483648", "-2147483649", "99999999999999999999", "", "x", "0x0", "00", "-0"];

const MAPPINGS: &[&str] = &[
    "",
    "(",
    "(vector",
    "(vector,",
    "(vector,(",
    "(vector,(0,1,1)",
    "(vector,(0,1,",
    "(vector,(0,1,1),(1,1,1),(2,1,1))",
    "(vector,(0,0,0))",
    "(vector,(0,0,1))",
    "(vector,(0,1,0))",
    "(vector,(-1,1,1))",
    "(vector,(0,-1,1))",
    "(vector,(0,1,-1))",
    "(vector,(0,2147483647,1))",
    "(vector,(0,1,2147483647))",
    "(vector,(2147483647,2,2))",
    "(vector,(4294967296,1,1))",
    "(vector,(0,65536,65536))",
    "(vector,(99999999999999999999,1,1))",
    "(vector,())",
    "(vector,(a,b,c))",
    "(vector,(0,1,1,1))",
    "(vector,(0;1;1))",
    "(vector,(0,1,1)))))))",
    "vector,(0,1,1)",
    "(matrix,(0,1,1))",
    "(vector, (0, 1, 1))",
    "(vector,(0,1,1)) trailing",
    "((((((((((",
    ")",
    "%s%s%n",
];

const NAMES: &[&str] = &[
    "",
    "=",
    "a=b",
    "a b",
    "/",
    "..",
    "../../x",
    "%s%n",
    "'\"\\",
    "\t",
    "\r",
    "\0",
    "kvs\0name",
    "-",
    "*",
    "\u{fffd}",
];

const MESSAGES: &[&str] =
    &["", "why", "a b c", "rc=0", "a=b cmd=get_result", "%s%s%n", "\t", "\r", "success"];

/// Makes one change; `None` if there is nothing that it could strike.
pub(super) fn change(change: Change, proper: &Proper<'_>, rng: &mut Dice<'_>) -> Option<Vec<Said>> {
    let mut messages = vec![proper.fields.to_vec()];
    let fields = &mut messages[0];
    let whole = WriteMode::default();
    match change {
        Change::Token => mutate::token(&mut messages, rng),
        Change::Length => mutate::length(&mut messages, rng)?,
        Change::Number => mutate::number(&mut messages, rng)?,
        Change::Count => mutate::count(&mut messages, rng),
        Change::Command => fields.first_mut()?.value = vec![COMMANDS[rng.usize(..COMMANDS.len())].into()],
        Change::Refusal => refuse(fields, rng),
        Change::Limits => limits(fields, rng)?,
        Change::Mapping if proper.mapping => value(fields, "value")?.value = mapping(rng),
        Change::Mapping => return None,
        Change::Name => value(fields, "kvsname")?.value = text(NAMES, rng),
        Change::Separator | Change::Bytes => {
            let mut one = line(fields);
            match change {
                Change::Separator => mutate::separator(&mut one, rng),
                _ => mutate::bytes(&mut one, rng),
            }
            return Some(vec![Said::Write(vec![one], whole)]);
        }
        Change::Junk => return Some(vec![Said::Write(vec![junk(proper, rng)], whole)]),
        Change::Half => return Some(half(fields, rng)),
        Change::Close => {
            let before = if rng.u32(0..3) == 0 { vec![Said::Right] } else { Vec::new() };
            return Some(before.into_iter().chain([Said::Close]).collect());
        }
        Change::Pieces => return Some(pieces(fields, rng)),
        Change::Surplus => return Some(surplus(proper, rng)),
    }
    let mut lines = Plan::lines(&messages);
    lines.iter_mut().for_each(|line| absolute(line, proper));
    Some(vec![Said::Write(lines, whole)])
}

fn text(choice: &[&str], rng: &mut Dice<'_>) -> Line {
    let text = choice[rng.usize(..choice.len())];
    if text.is_empty() { Line::new() } else { vec![text.into()] }
}

fn mapping(rng: &mut Dice<'_>) -> Line {
    if rng.bool() {
        return text(MAPPINGS, rng);
    }
    let mut number = || NUMBERS[rng.usize(..NUMBERS.len())];
    vec![format!("(vector,({},{},{}))", number(), number(), number()).as_str().into()]
}

fn value<'a>(fields: &'a mut [Field], key: &str) -> Option<&'a mut Field> {
    fields.iter_mut().find(|field| field.key == key)
}

fn refuse(fields: &mut Vec<Field>, rng: &mut Dice<'_>) {
    fields.retain(|field| !["rc", "msg"].contains(&field.key.as_str()));
    if rng.bool() {
        fields.truncate(1);
    }
    let mut rc = field("rc", "");
    rc.value = text(CODES, rng);
    let at = rng.usize(0..=fields.len());
    fields.insert(at, rc);
    let mut msg = field("msg", "");
    msg.value = match rng.u32(0..4) {
        0 => vec![Piece::Fill(Length::of(LENGTHS[rng.usize(..LENGTHS.len())]))],
        _ => text(MESSAGES, rng),
    };
    if rng.bool() {
        fields.push(msg);
    }
}

fn limits(fields: &mut [Field], rng: &mut Dice<'_>) -> Option<()> {
    let mut told: Vec<&mut Field> = fields.iter_mut().filter(|f| f.key.ends_with("_max")).collect();
    if told.is_empty() {
        return None;
    }
    // Often one of them alone, and often as low as it can be.
    for _ in 0..rng.usize(1..=told.len()) {
        let at = rng.usize(..told.len());
        let number = match rng.u32(0..3) {
            0 => ["0", "1", "2", "-1"][rng.usize(..4)],
            1 => ["65536", "1048576", "2147483647", "2147483648", "4294967296"][rng.usize(..5)],
            _ => NUMBERS[rng.usize(..NUMBERS.len())],
        };
        told[at].value = if number.is_empty() { Line::new() } else { vec![number.into()] };
    }
    Some(())
}

fn junk(proper: &Proper<'_>, rng: &mut Dice<'_>) -> Line {
    let mut line = match rng.u32(0..3) {
        0 => {
            let byte = |rng: &mut Dice<'_>| match rng.u8(..) {
                b'\n' => 0,
                b => b,
            };
            vec![Piece::Bytes((0..rng.usize(1..40)).map(|_| byte(rng)).collect())]
        }
        1 => vec![Piece::Fill(mutate::any_length(rng))],
        _ => vec![Piece::Bytes(JUNK[rng.usize(..JUNK.len())].to_vec())],
    };
    line.retain(|piece| *piece != Piece::Bytes(Vec::new()));
    absolute(&mut line, proper);
    line
}

/// A process that waits for the rest would wait for us, so the connection ends.
fn half(fields: &[Field], rng: &mut Dice<'_>) -> Vec<Said> {
    let partial = WriteMode { partial: true, ..WriteMode::default() };
    let line = match rng.u32(0..6) {
        // Without end.
        0 => vec!["cmd=".into(), Piece::Fill(Length::of([1 << 10, 1 << 16, 300_000][rng.usize(..3)]))],
        _ => mutate::split(&line(fields), rng).0,
    };
    let first = (!line.is_empty()).then_some(Said::Write(vec![line], partial));
    first.into_iter().chain([Said::Close]).collect()
}

fn pieces(fields: &[Field], rng: &mut Dice<'_>) -> Vec<Said> {
    let one = line(fields);
    if rng.u32(0..3) == 0 {
        return vec![Said::Write(vec![one], WriteMode { bytewise: true, ..WriteMode::default() })];
    }
    let partial = WriteMode { partial: true, ..WriteMode::default() };
    let (first, second) = mutate::split(&one, rng);
    let first = (!first.is_empty()).then_some(Said::Write(vec![first], partial));
    first.into_iter().chain([Said::Write(vec![second], WriteMode::default())]).collect()
}

fn surplus(proper: &Proper<'_>, rng: &mut Dice<'_>) -> Vec<Said> {
    let own = line(proper.fields);
    let mut other = proper.fields.to_vec();
    if let Some(cmd) = other.first_mut() {
        cmd.value = vec![COMMANDS[rng.usize(..COMMANDS.len())].into()];
    }
    let more = match rng.u32(0..4) {
        0 => junk(proper, rng),
        1 => line(&other),
        _ => own.clone(),
    };
    let write = |lines| Said::Write(lines, WriteMode::default());
    match rng.u32(0..5) {
        0 => vec![write(vec![own, more])],
        1 => vec![write(vec![more, own])],
        2 => vec![write(vec![more]), Said::Right],
        3 => {
            let many = if rng.u32(0..4) == 0 { 200 } else { rng.usize(2..5) };
            vec![write(vec![own; many])]
        }
        _ => vec![Said::Right, write(vec![more])],
    }
}

/// Lengths that are relative to a limit become numbers: what has not been told yet has no name.
fn absolute(line: &mut Line, proper: &Proper<'_>) {
    for piece in &mut *line {
        if let Piece::Fill(Length { base: Base::Limit(limit), plus }) = piece {
            let told = match limit {
                Limit::Kvsname => proper.limits[0],
                Limit::Key => proper.limits[1],
                Limit::Value => proper.limits[2],
            };
            *piece = Piece::Fill(Length::of((told + *plus).max(0)));
        }
    }
    line.retain(|piece| *piece != Piece::Fill(Length::of(0)));
    mutate::tidy(line);
}

/// An answer as tuples: the value of get_result and msg run to the end of the line.
pub(super) fn tuples(line: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let whole = [&b"value="[..], b"msg="].iter().any(|key| rest.starts_with(key));
        let end = if whole { rest.len() } else { memchr::memchr(b' ', rest).unwrap_or(rest.len()) };
        let (tuple, more) = rest.split_at(end);
        rest = more.strip_prefix(b" ").unwrap_or(more);
        let at = memchr::memchr(b'=', tuple).unwrap_or(tuple.len());
        let key = String::from_utf8_lossy(&tuple[..at]).into_owned();
        let mut one = field(&key, "");
        let value = tuple.get(at + 1..).unwrap_or_default();
        if !value.is_empty() {
            one.value = vec![Piece::Bytes(value.to_vec())];
        }
        fields.push(one);
    }
    fields
}
