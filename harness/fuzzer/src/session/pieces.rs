//! The pieces of text in campaigns: bytes, variables whose values are known only when the case is played, and runs of letters.

use pmi_scenario::ast::{BinOp, Encoding, Expr, Piece, Span, Spanned, Template};
use pmi_wire::{HEADER, frame_header};

/// Wraps a value that has no position in a file.
pub(crate) fn without_span<T>(value: T) -> Spanned<T> {
    Spanned { value, span: Span::default() }
}

pub(crate) fn literal(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece::Literal { bytes: bytes.into(), quoted: false }
}

/// Returns the variable for the name of the keyval space of the group that was spawned last.
pub(crate) fn child_kvsname() -> Piece {
    Piece::Var("child_kvs".to_owned())
}

/// Returns the variable for the name of the keyval space.
pub(crate) fn kvsname() -> Piece {
    Piece::Var("kvs".to_owned())
}

/// Returns the variable for the id of the job.
pub(crate) fn jobid() -> Piece {
    Piece::Var("jobid".to_owned())
}

/// Returns the variable for the rank of the sender.
pub(crate) fn own_rank() -> Piece {
    Piece::Var("rank".to_owned())
}

/// Returns the variable for the command that starts the agent, which reports to the harness.
pub(crate) fn agent() -> Piece {
    Piece::Var("agent".to_owned())
}

/// Returns a piece with `count` letters and digits.
pub(crate) fn letters(count: i64) -> Piece {
    Piece::Fill(Expr::Number(count))
}

/// A limit that the response to `get_maxes` announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Kvsname,
    Key,
    Value,
}

impl Limit {
    pub(crate) const ALL: [Self; 3] = [Self::Kvsname, Self::Key, Self::Value];

    /// Returns the name of the limit in the response to `get_maxes` and in scenarios.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvsname => "kvsname_max",
            Self::Key => "keylen_max",
            Self::Value => "vallen_max",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }
}

/// Returns letters and digits. Their number is the value of `limit` plus `plus`.
pub(crate) fn letters_up_to(limit: Limit, plus: i64) -> Piece {
    let name = Expr::Var(without_span(limit.name().to_owned()));
    let number = Box::new(Expr::Number(plus.abs()));
    Piece::Fill(match plus {
        0 => name,
        1.. => Expr::Binary(Box::new(name), BinOp::Add, number),
        _ => Expr::Binary(Box::new(name), BinOp::Sub, number),
    })
}

/// Splits the length of a `fill` into the limit that it is relative to, if any, and the number that is added to the limit. Returns `None`
/// for any other form of expression.
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

pub(crate) fn template(pieces: Vec<Piece>) -> Template {
    let mut template = Template::default();
    pieces.into_iter().for_each(|piece| push(&mut template, piece));
    template
}

/// Appends a piece. Adjacent bytes are joined, and empty pieces are left out.
pub(crate) fn push(template: &mut Template, piece: Piece) {
    match (template.pieces.last_mut(), piece) {
        (_, Piece::Literal { bytes, .. }) if bytes.is_empty() => {}
        (_, Piece::Fill(Expr::Number(0))) => {}
        (Some(Piece::Literal { bytes: last, .. }), Piece::Literal { bytes, .. }) => last.extend(bytes),
        (_, Piece::Literal { bytes, .. }) => template.pieces.push(literal(bytes)),
        (_, piece) => template.pieces.push(piece),
    }
}

/// Joins adjacent literal pieces.
pub(crate) fn join_adjacent(template: &mut Template) {
    for piece in std::mem::take(&mut template.pieces) {
        push(template, piece);
    }
}

/// Returns the bytes of a write, with placeholders for values that are known only when the case is played.
pub(crate) fn written_bytes(encoding: Encoding, lines: &[Template], partial: bool) -> Vec<u8> {
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

/// Returns the bytes of a template, with placeholders for values that are known only when the case is played.
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

/// Returns the length of a body, or `None` if the length is known only when the case is played.
pub(crate) fn known_length(body: &Template) -> Option<usize> {
    let known = |piece: &Piece| matches!(piece, Piece::Literal { .. } | Piece::Fill(Expr::Number(_)));
    body.pieces.iter().all(known).then(|| bytes_of(body).len())
}
