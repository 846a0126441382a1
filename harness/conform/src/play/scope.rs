//! Names and numbers of a scenario while it is played.

use std::collections::{HashMap, HashSet};

use crate::lang::ast::{BinOp, Expr, Kind, Piece, Template, WriteMode};

/// Longest text that a template may stand for.
const TEXT_LIMIT: i64 = 64 << 20;

/// A mistake in the scenario that only shows when it is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScenarioError(pub(crate) String);

/// What names stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    names: HashMap<String, Vec<u8>>,
    /// Names bound by the step that is being played: another rank's capture must agree with them.
    bound_by_step: HashSet<String>,
    /// `$rank` and `$size`.
    rank: u32,
    size: u32,
    /// `$agent`.
    agent: Option<Vec<u8>>,
}

impl Scope {
    pub(crate) fn begin_step(&mut self) {
        self.bound_by_step.clear();
    }

    /// Whose step it is.
    pub(crate) fn enter(&mut self, rank: u32, size: u32) {
        (self.rank, self.size) = (rank, size);
    }

    pub(crate) fn set_agent(&mut self, path: Vec<u8>) {
        self.agent = Some(path);
    }

    pub(crate) fn set(&mut self, name: &str, value: Vec<u8>) {
        self.names.insert(name.to_owned(), value);
    }

    /// Binds a capture; the value that it must have had if it differs.
    pub(crate) fn capture(&mut self, name: &str, value: &[u8]) -> Result<(), Vec<u8>> {
        if !self.bound_by_step.insert(name.to_owned()) {
            return match self.names.get(name) {
                Some(bound) if bound != value => Err(bound.clone()),
                _ => Ok(()),
            };
        }
        self.set(name, value.to_vec());
        Ok(())
    }

    pub(crate) fn var(&self, name: &str) -> Result<Vec<u8>, ScenarioError> {
        match name {
            "rank" => Ok(self.rank.to_string().into_bytes()),
            "size" => Ok(self.size.to_string().into_bytes()),
            "agent" => self.agent.clone().ok_or_else(|| ScenarioError("$agent is for spawn blocks".into())),
            _ => self
                .names
                .get(name)
                .cloned()
                .ok_or_else(|| ScenarioError(format!("${name} has no value here"))),
        }
    }

    pub(crate) fn number(&self, expr: &Expr) -> Result<i64, ScenarioError> {
        match expr {
            Expr::Number(n) => Ok(*n),
            Expr::Var(name) => {
                let value = self.var(&name.value)?;
                std::str::from_utf8(&value).ok().and_then(|v| v.parse().ok()).ok_or_else(|| {
                    ScenarioError(format!("${} is \"{}\", not a number", name.value, value.escape_ascii()))
                })
            }
            Expr::Binary(a, op, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                match op {
                    BinOp::Add => a.checked_add(b),
                    BinOp::Sub => a.checked_sub(b),
                    BinOp::Mul => a.checked_mul(b),
                    BinOp::Rem => a.checked_rem_euclid(b),
                }
                .ok_or_else(|| ScenarioError("the number is too large, or a division by 0".into()))
            }
        }
    }

    fn length(&self, expr: &Expr) -> Result<usize, ScenarioError> {
        match self.number(expr)? {
            n @ 0..=TEXT_LIMIT => Ok(n as usize),
            n => Err(ScenarioError(format!("a text of {n} bytes: it must be 0 to {TEXT_LIMIT}"))),
        }
    }

    /// The text in the writes that `<|>` divides it into.
    pub(crate) fn writes(&self, template: &Template) -> Result<Vec<Vec<u8>>, ScenarioError> {
        let mut writes = vec![Vec::new()];
        for piece in &template.pieces {
            let Some(last) = writes.last_mut() else { break };
            match piece {
                Piece::Literal { bytes, .. } => last.extend_from_slice(bytes),
                Piece::Var(name) => last.extend(self.var(name)?),
                Piece::Calc(expr) => last.extend(self.number(expr)?.to_string().into_bytes()),
                Piece::Fill(expr) => fill(self.length(expr)?, last),
                Piece::Junk(expr) => junk(self.length(expr)?, last),
                Piece::Cut => writes.push(Vec::new()),
                Piece::Typed(Kind::Empty) => {}
                Piece::Typed(Kind::RcOk) => last.push(b'0'),
                Piece::Typed(Kind::RcFail) => last.extend_from_slice(b"-1"),
                Piece::Typed(_) | Piece::Capture(..) => {
                    return Err(ScenarioError("a matcher cannot be sent".into()));
                }
            }
        }
        Ok(writes)
    }

    /// The lines of a message in the writes that they are made with, none of them empty.
    pub(crate) fn message(&self, mode: WriteMode, lines: &[Template]) -> Result<Vec<Vec<u8>>, ScenarioError> {
        let mut writes = vec![Vec::new()];
        for (i, line) in lines.iter().enumerate() {
            for (j, part) in self.writes(line)?.into_iter().enumerate() {
                if j > 0 {
                    writes.push(Vec::new());
                }
                if let Some(last) = writes.last_mut() {
                    last.extend(part);
                }
            }
            if let Some(last) = writes.last_mut().filter(|_| !mode.partial || i + 1 < lines.len()) {
                last.push(b'\n');
            }
        }
        if mode.bytewise {
            return Ok(writes.concat().chunks(1).map(<[u8]>::to_vec).collect());
        }
        writes.retain(|write| !write.is_empty());
        Ok(writes)
    }

    /// The text in one piece.
    pub(crate) fn text(&self, template: &Template) -> Result<Vec<u8>, ScenarioError> {
        self.writes(template).map(|writes| writes.concat())
    }
}

/// What `<fill N>` stands for.
pub(crate) fn fill(n: usize, out: &mut Vec<u8>) {
    const PATTERN: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    out.extend(PATTERN.iter().cycle().take(n));
}

/// A linear congruential sequence: the bytes only have to be the same every time and to cover all values.
fn junk(n: usize, out: &mut Vec<u8>) {
    let mut state: u32 = 0x1234_5678;
    for _ in 0..n {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let byte = (state >> 24) as u8;
        out.push(if byte == b'\n' { 0 } else { byte });
    }
}
