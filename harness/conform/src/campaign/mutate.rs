//! The ways in which a session is made unusual or wrong.

use pmi_wire::Operation;

use super::dice::Dice;
use super::generate::{Field, Plan, field, push};
use super::session::{Answer, Base, Length, Limit, Line, Piece, Step};

/// A kind of mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A key, a value or a tuple is another one, or missing, or there twice.
    Token,
    /// What stands between keys, values and tuples.
    Separator,
    /// A key, value or name at a boundary of lengths.
    Length,
    /// A number at a boundary.
    Number,
    /// Very many tuples.
    Count,
    /// Requests in another order.
    Order,
    /// A request several times.
    Repeat,
    /// A message in two writes, with others' requests between them, or without its second half.
    Half,
    /// Several requests in one write.
    Pipeline,
    /// A process that goes early.
    EarlyClose,
    /// Another name of the keyval space.
    WrongKvs,
    /// A line that is no request.
    Junk,
    /// Some bytes of a message are others.
    Bytes,
}

impl Mutation {
    /// All of them.
    pub(super) const ALL: [Self; 13] = [
        Self::Token,
        Self::Separator,
        Self::Length,
        Self::Number,
        Self::Count,
        Self::Order,
        Self::Repeat,
        Self::Half,
        Self::Pipeline,
        Self::EarlyClose,
        Self::WrongKvs,
        Self::Junk,
        Self::Bytes,
    ];

    /// Its name in `avoid`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Separator => "separator",
            Self::Length => "length",
            Self::Number => "number",
            Self::Count => "count",
            Self::Order => "order",
            Self::Repeat => "repeat",
            Self::Half => "half",
            Self::Pipeline => "pipeline",
            Self::EarlyClose => "early-close",
            Self::WrongKvs => "wrong-kvs",
            Self::Junk => "junk",
            Self::Bytes => "bytes",
        }
    }
}

/// Numbers that are read as something else, or not at all.
pub(super) const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "",
    "x",
    "1x",
    "0x1",
    "+1",
    " 1",
    "01",
    "255",
    "256",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "-2147483648",
    "9223372036854775807",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "1.5",
    "%n",
    "NaN",
];

/// Where buffers of implementations are known or likely to end.
pub(super) const LENGTHS: &[i64] = &[
    0, 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 1023, 1024, 1025, 2047, 2048, 4095,
    4096, 4097, 8191, 8192, 16384, 65535, 65536, 65537,
];

const KEYS: &[&str] = &[
    "cmd",
    "mcmd",
    "rc",
    "msg",
    "kvsname",
    "key",
    "value",
    "service",
    "port",
    "pmi_version",
    "pmi_subversion",
    "exitcode",
    "thrid",
    "idx",
    "debugged",
    "pmijobid",
    "size",
    "spawned",
];

const COMMANDS: &[&str] = &[
    "put",
    "get",
    "barrier_in",
    "barrier_out",
    "finalize",
    "abort",
    "init",
    "get_maxes",
    "get_my_kvsname",
    "get_universe_size",
    "get_appnum",
    "publish_name",
    "unpublish_name",
    "lookup_name",
    "spawn",
    "put_result",
    "getbyidx",
    "create_kvs",
    "destroy_kvs",
    "initack",
    "fullinit",
    "kvs-put",
    "kvs-get",
    "kvs-fence",
    "PUT",
    "get_ranks2hosts",
    "frobnicate",
    "",
    "put ",
    "mput",
    "singinit",
    "get_result",
];

pub(super) const JUNK: &[&[u8]] = &[
    b"",
    b" ",
    b"=",
    b"==",
    b"cmd",
    b"cmd=",
    b"cmd =put",
    b"=put",
    b"\0",
    b"\r",
    b"cmd=put\0",
    b"hello",
    b"mcmd=",
    b"mcmd=put",
    b"mcmd=spawn",
    b"endcmd",
    b"nprocs=1",
    b"cmd=mcmd=spawn",
    b"    30cmd=fullinit;pmi_rank=0;",
    b"000042cmd=kvs-get;key=a;",
    b"GET / HTTP/1.0",
    b"%s%s%s%s%n",
    b"cmd=init pmi_version=2 pmi_subversion=0",
    b"cmd=barrier_in tag=1",
    b"cmd=create_kvs",
    b"cmd=getbyidx kvsname=x idx=0",
    b"cmd=put kvsname= key= value=",
    b"cmd=put\tkvsname=a\tkey=b\tvalue=c",
    b"cmd=get kvsname=\"a b\" key=c",
    b"\xff\xfe\xfd",
    b"cmd=execute",
];

/// Makes one mutation; says what kind of message it struck, or `None` if there is nothing that it could strike.
pub(super) fn apply(
    mutation: Mutation,
    plan: &mut Vec<Plan>,
    ranks: u32,
    rng: &mut Dice<'_>,
) -> Option<String> {
    let asks: Vec<usize> = (0..plan.len()).filter(|i| matches!(plan[*i], Plan::Ask { .. })).collect();
    let at = *asks.get(rng.usize(..asks.len().max(1)))?;
    let Plan::Ask { rank, op, messages } = &mut plan[at] else { return None };
    let (rank, op) = (*rank, *op);
    match mutation {
        Mutation::Token => token(messages, rng),
        Mutation::Length => length(messages, rng)?,
        Mutation::Number => number(messages, rng)?,
        Mutation::WrongKvs => {
            let name = messages.iter_mut().flatten().find(|f| f.key == "kvsname")?;
            name.value = match rng.u32(0..5) {
                0 => Line::new(),
                1 => vec!["wrong".into()],
                2 => vec![Piece::Kvs, "x".into()],
                3 => vec![Piece::Fill(any_length(rng))],
                _ => vec!["kvs_0_0_0".into()],
            };
        }
        Mutation::Count => count(messages, rng),
        Mutation::Order => {
            let j = *asks.get(rng.usize(..asks.len()))?;
            if j == at {
                let first = plan.remove(at);
                plan.insert(0, first);
            } else {
                plan.swap(at, j);
            }
        }
        Mutation::Repeat => {
            let copy = plan[at].clone();
            // So many processes would keep the machine busy, and say nothing.
            let many = rng.u32(0..8) == 0 && op != Operation::Spawn;
            let times = if many { 150 } else { rng.usize(1..4) };
            let wait = rng.bool();
            for _ in 0..times {
                if wait {
                    plan.insert(at, Plan::Step(Step::Await { rank, answer: Answer::Perhaps }));
                }
                plan.insert(at, copy.clone());
            }
        }
        Mutation::Separator | Mutation::Bytes => {
            let mut lines = Plan::lines(messages);
            let which = rng.usize(..lines.len());
            let line = &mut lines[which];
            if mutation == Mutation::Separator {
                separator(line, rng)
            } else {
                bytes(line, rng)
            }
            plan[at] = Plan::Step(Step::Write { rank, lines, partial: false });
        }
        Mutation::Junk => {
            let line = junk(rng);
            plan.insert(at, Plan::Step(Step::Await { rank, answer: Answer::Perhaps }));
            plan.insert(at, Plan::Step(Step::Write { rank, lines: vec![line], partial: false }));
        }
        Mutation::Half => half(plan, at, rank, rng)?,
        Mutation::Pipeline => pipeline(plan, at, rank, rng),
        Mutation::EarlyClose => {
            let end = match rng.u32(0..4) {
                0 => Step::Exit { rank, status: rng.u8(0..3) },
                1 => Step::Kill { rank, signal: [6, 9, 11, 15][rng.usize(..4)] },
                _ => Step::Close { rank },
            };
            let after = at + rng.usize(0..2);
            let rest = plan.split_off(after);
            plan.push(Plan::Step(end));
            plan.extend(rest.into_iter().filter(|p| p.rank() != Some(rank)));
        }
    }
    if ranks == 0 {
        return None;
    }
    Some(op.request_cmd().to_owned())
}

/// A line that is no message.
pub(super) fn junk(rng: &mut Dice<'_>) -> Line {
    let line = match rng.u32(0..3) {
        0 => vec![Piece::Bytes(
            (0..rng.usize(1..40))
                .map(|_| match rng.u8(..) {
                    b'\n' => 0,
                    b => b,
                })
                .collect(),
        )],
        1 => vec![Piece::Fill(any_length(rng))],
        _ => vec![Piece::Bytes(JUNK[rng.usize(..JUNK.len())].to_vec())],
    };
    line.into_iter().filter(|p| *p != Piece::Bytes(Vec::new())).collect()
}

pub(super) fn any_length(rng: &mut Dice<'_>) -> Length {
    match rng.u32(0..2) {
        0 => Length::of(LENGTHS[rng.usize(..LENGTHS.len())]),
        _ => {
            let limit = [Limit::Kvsname, Limit::Key, Limit::Value][rng.usize(..3)];
            Length { base: Base::Limit(limit), plus: rng.i64(-2..=2) }
        }
    }
}

pub(super) fn token(messages: &mut Vec<Vec<Field>>, rng: &mut Dice<'_>) {
    let m = rng.usize(..messages.len());
    let message = &mut messages[m];
    let i = rng.usize(..message.len());
    match rng.u32(0..9) {
        0 => drop(message.remove(i)),
        1 => message.insert(i, message[i].clone()),
        2 => message[i].key = KEYS[rng.usize(..KEYS.len())].into(),
        3 => message[i].key = String::new(),
        4 => message[i].value = Line::new(),
        5 => message.rotate_left(1),
        6 => {
            let text = COMMANDS[rng.usize(..COMMANDS.len())];
            if message[i].key == "nprocs" {
                message[i].value = Line::new()
            } else {
                message[i].value = vec![text.into()]
            }
        }
        7 => {
            let key = KEYS[rng.usize(..KEYS.len())];
            message.push(field(key, "1"));
        }
        _ => {
            let copy = messages[m].clone();
            let to = rng.usize(..=messages.len());
            messages.insert(to, copy);
        }
    }
    messages.retain(|m| !m.is_empty());
    if messages.is_empty() {
        messages.push(vec![field("cmd", "")]);
    }
}

pub(super) fn length(messages: &mut [Vec<Field>], rng: &mut Dice<'_>) -> Option<()> {
    let mut fields: Vec<&mut Field> = messages.iter_mut().flatten().collect();
    let i = rng.usize(..fields.len());
    let length = any_length(rng);
    if rng.u32(0..6) == 0 {
        // A long key of a tuple: its value becomes part of it.
        fields[i].value.insert(0, Piece::Fill(length));
    } else {
        fields[i].value = vec![Piece::Fill(length)];
    }
    Some(())
}

pub(super) fn number(messages: &mut [Vec<Field>], rng: &mut Dice<'_>) -> Option<()> {
    let numeric = |f: &&mut Field| match &f.value[..] {
        // A server does well to believe how many processes it is to start, and a machine would not like it.
        [Piece::Bytes(b)] => f.key != "nprocs" && b.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let mut fields: Vec<&mut Field> = messages.iter_mut().flatten().filter(numeric).collect();
    let i = rng.usize(..fields.len().max(1));
    fields.get_mut(i)?.value = vec![NUMBERS[rng.usize(..NUMBERS.len())].into()];
    Some(())
}

pub(super) fn count(messages: &mut [Vec<Field>], rng: &mut Dice<'_>) {
    let m = rng.usize(..messages.len());
    let times = [31, 32, 63, 64, 99, 100, 101, 128, 500][rng.usize(..9)];
    for i in 0..times {
        messages[m].push(field(&format!("x{i}"), "1"));
    }
}

pub(super) fn separator(line: &mut Line, rng: &mut Dice<'_>) {
    const OTHERS: &[&str] = &["", "  ", "\t", "==", " =", "= ", ";", "\0", "\r", "\n", ",", "\"", "\x0b"];
    let places: Vec<(usize, usize)> = positions(line, |b| matches!(b, b' ' | b'='));
    let text = OTHERS[rng.usize(..OTHERS.len())].as_bytes();
    match (rng.u32(0..5), places.is_empty()) {
        (0, _) | (_, true) => push(line, Piece::Bytes(text.to_vec())),
        (1, _) => line.insert(0, Piece::Bytes(text.to_vec())),
        _ => {
            let (piece, at) = places[rng.usize(..places.len())];
            if let Piece::Bytes(bytes) = &mut line[piece] {
                bytes.splice(at..=at, text.iter().copied());
            }
        }
    }
    tidy(line);
}

pub(super) fn bytes(line: &mut Line, rng: &mut Dice<'_>) {
    for _ in 0..rng.usize(1..4) {
        let places = positions(line, |b| !b.is_ascii_digit());
        if places.is_empty() {
            return;
        }
        let (piece, at) = places[rng.usize(..places.len())];
        let Piece::Bytes(bytes) = &mut line[piece] else { return };
        let byte = match rng.u32(0..3) {
            0 => rng.u8(..),
            1 => bytes[at] ^ (1 << rng.u32(0..8)),
            _ => *b"=\0 \xff%x\t\r".get(rng.usize(..8)).unwrap_or(&0),
        };
        // More digits would be more processes.
        let byte = if byte.is_ascii_digit() { b'=' } else { byte };
        match rng.u32(0..3) {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
    }
    tidy(line);
}

fn positions(line: &Line, wanted: impl Fn(u8) -> bool) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (i, piece) in line.iter().enumerate() {
        if let Piece::Bytes(bytes) = piece {
            all.extend((0..bytes.len()).filter(|at| wanted(bytes[*at])).map(|at| (i, at)));
        }
    }
    all
}

/// Joins bytes that stand side by side.
pub(super) fn tidy(line: &mut Line) {
    for piece in std::mem::take(line) {
        push(line, piece);
    }
}

fn half(plan: &mut Vec<Plan>, at: usize, rank: u32, rng: &mut Dice<'_>) -> Option<()> {
    let Plan::Ask { messages, .. } = &plan[at] else { return None };
    let lines = Plan::lines(messages);
    let cut_line = rng.usize(..lines.len());
    let (first, second) = split(&lines[cut_line], rng);
    let mut before = lines[..cut_line].to_vec();
    before.push(first);
    let mut after = vec![second];
    after.extend_from_slice(&lines[cut_line + 1..]);
    plan[at] = Plan::Step(Step::Write { rank, lines: before, partial: true });
    if rng.u32(0..4) == 0 {
        // The rest never comes.
        let rest = plan.split_off(at + 1);
        plan.extend(rest.into_iter().filter(|p| p.rank() != Some(rank)));
        return Some(());
    }
    // Others go on until this rank's next step.
    let next = (at + 1..plan.len()).find(|i| plan[*i].rank().is_none_or(|r| r == rank)).unwrap_or(plan.len());
    let to = rng.usize(at + 1..=next);
    plan.insert(to, Plan::Step(Step::Write { rank, lines: after, partial: false }));
    Some(())
}

pub(super) fn split(line: &Line, rng: &mut Dice<'_>) -> (Line, Line) {
    let places = positions(line, |_| true);
    if places.is_empty() {
        return (line.clone(), Line::new());
    }
    let (piece, at) = places[rng.usize(..places.len())];
    let (mut first, mut second) = (line[..piece].to_vec(), Line::new());
    if let Piece::Bytes(bytes) = &line[piece] {
        push(&mut first, Piece::Bytes(bytes[..at].to_vec()));
        push(&mut second, Piece::Bytes(bytes[at..].to_vec()));
    }
    second.extend_from_slice(&line[piece + 1..]);
    (first, second)
}

/// Joins this request and the rank's next ones in one write; the answers are awaited after it.
fn pipeline(plan: &mut Vec<Plan>, at: usize, rank: u32, rng: &mut Dice<'_>) {
    let mut lines = Vec::new();
    let mut awaits = 0;
    let wanted = rng.usize(2..6);
    let mut taken = 0;
    let mut i = at;
    while i < plan.len() && taken < wanted {
        match &plan[i] {
            Plan::Ask { rank: r, messages, .. } if *r == rank => {
                lines.extend(Plan::lines(messages));
                taken += 1;
                plan.remove(i);
            }
            Plan::Step(Step::Await { rank: r, .. }) if *r == rank => {
                awaits += 1;
                plan.remove(i);
            }
            other if other.rank().is_none() => break,
            _ => i += 1,
        }
    }
    for _ in 0..awaits {
        plan.insert(at, Plan::Step(Step::Await { rank, answer: Answer::Perhaps }));
    }
    plan.insert(at, Plan::Step(Step::Write { rank, lines, partial: rng.u32(0..6) == 0 }));
}

/// Turns the plan into steps. Once something has happened that allows the server to end the program, answers may
/// come or not.
pub(super) fn settle(plan: Vec<Plan>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(plan.len());
    let mut lawful = true;
    let mut asked: Vec<(u32, Operation)> = Vec::new();
    let (mut kvs, mut limits) = (false, false);
    for item in plan {
        match item {
            Plan::Ask { rank, op, messages } => {
                lawful &= is_as_generated(op, &messages) && !asked.iter().any(|(r, _)| *r == rank);
                lawful &= op != Operation::Abort;
                asked.push((rank, op));
                steps.push(Step::Write { rank, lines: Plan::lines(&messages), partial: false });
            }
            Plan::Step(Step::Await { rank, answer }) => {
                let at = asked.iter().position(|(r, _)| *r == rank);
                let op = at.map(|at| asked.remove(at).1);
                let answer = match (answer, op) {
                    (Answer::Due(_), Some(op)) if lawful => Answer::Due(op),
                    _ => Answer::Perhaps,
                };
                match answer {
                    Answer::Due(Operation::Kvsname) => kvs = true,
                    Answer::Due(Operation::Maxes) => limits = true,
                    _ => {}
                }
                steps.push(Step::Await { rank, answer });
            }
            Plan::Step(step) => {
                match &step {
                    Step::Join => (kvs, limits) = (true, true),
                    Step::Leave => {}
                    _ => lawful = false,
                }
                steps.push(step);
            }
        }
        // Where the start went wrong, the names have no value: something stands in for them.
        if let Some(lines) = steps.last_mut().and_then(Step::lines_mut) {
            stand_in(lines, kvs, limits);
        }
    }
    steps
}

pub(super) fn stand_in(lines: &mut [Line], kvs: bool, limits: bool) {
    for line in lines {
        for piece in &mut *line {
            match piece {
                Piece::Kvs if !kvs => *piece = "kvs_0".into(),
                Piece::Fill(length) if !limits && length.base != Base::Zero => {
                    *piece = Piece::Fill(Length::of(64 + length.plus.max(-60)));
                }
                _ => {}
            }
        }
        line.retain(|piece| *piece != Piece::Fill(Length::of(0)));
        tidy(line);
    }
}

/// Whether a request still has the tuples of its kind. A rough look: what is wrong in values shows in the answers,
/// which need not be as expected then.
fn is_as_generated(op: Operation, messages: &[Vec<Field>]) -> bool {
    let keys: Vec<&str> = messages.iter().flatten().map(|f| f.key.as_str()).collect();
    let cmd = messages.first().and_then(|m| m.first()).map(|f| &f.value[..]);
    let named = cmd == Some(&[Piece::from(op.request_cmd())]);
    named
        && match op {
            Operation::Put => keys == ["cmd", "kvsname", "key", "value"],
            Operation::Get => keys == ["cmd", "kvsname", "key"],
            Operation::Init => {
                keys == ["cmd", "pmi_version", "pmi_subversion"]
                    && messages[0][1..].iter().all(|f| f.value == [Piece::from("1")])
            }
            Operation::Publish => keys == ["cmd", "service", "port"],
            Operation::Unpublish | Operation::Lookup => keys == ["cmd", "service"],
            Operation::Spawn => false,
            _ => keys == ["cmd"],
        }
}
