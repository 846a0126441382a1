//! Calls of a library, and what they make it ask.

use pmi_scenario::ast::{Action, Arg, BinOp, Call, Dialect, Expr, Role, Step, Stmt, Template};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use crate::client_steps::pattern;
use crate::fields::{FieldList, text, tuples};
use crate::mutate::Answer;
use crate::op::Op;
use crate::pieces::unplaced;
use crate::statement::{step, whom};

/// A call and what it may make the library ask.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// The requirement that speaks of its failures.
    cites: &'static str,
    pub(super) function: &'static str,
    pub(super) args: Vec<Arg>,
    pub(super) request: Option<Request>,
}

impl Planned {
    pub(super) fn stmt(self) -> Stmt {
        let call = Call {
            function: Some(unplaced(self.function.to_owned())),
            args: self.args,
            result: Some(unplaced("any".to_owned())),
            outs: Vec::new(),
        };
        let mut stmt = step(whom(None), Role::Api, Action::Call(call));
        if let Stmt::Step(Step { cites, .. }) = &mut stmt
            && !self.cites.is_empty()
        {
            *cites = Some(unplaced(self.cites.to_owned()));
        }
        stmt
    }
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) pattern: Template,
    pub(super) mapping: bool,
    pub(super) answer: FieldList,
}

impl Request {
    pub(super) fn answer(&self, dialect: Dialect) -> Answer<'_> {
        Answer { dialect, op: self.op, mapping: self.mapping, fields: &self.answer, limits: LIMITS }
    }

    /// It asks for something that somebody else has put, or has to do.
    pub(super) fn looks_for(&self) -> bool {
        use Command::{InfoGetnodeattr, KvsGet, NameLookup};
        let of_others = [
            Op::from(Operation::Get),
            Operation::Lookup.into(),
            KvsGet.into(),
            InfoGetnodeattr.into(),
            NameLookup.into(),
        ];
        (of_others.contains(&self.op) || self.op.is_spawn()) && !self.mapping
    }

    /// What it is told by this key.
    pub(super) fn told(&mut self, key: &str, value: Template) {
        self.answer.iter_mut().filter(|field| field.key == key).for_each(|field| field.value = value.clone());
    }

    /// All processes wait in it for each other.
    pub(super) fn is_collective(&self) -> bool {
        [Op::from(Operation::Barrier), Command::KvsFence.into(), Command::Ring.into()].contains(&self.op)
    }
}

/// What the reference server tells.
const LIMITS: [i64; 3] = [256, 64, 1024];

pub(super) fn out(name: &str, room: Option<i64>) -> Arg {
    Arg::Out(unplaced(name.to_owned()), room.map(Expr::Number))
}

pub(super) fn quoted(content: &str) -> Arg {
    Arg::Text(text(content))
}

/// A number below zero.
pub(super) fn negative(number: i64) -> Arg {
    Arg::Number(Expr::Binary(Box::new(Expr::Number(0)), BinOp::Sub, Box::new(Expr::Number(number))))
}

pub(super) fn call(
    cites: &'static str,
    function: &'static str,
    args: Vec<Arg>,
    request: Option<Request>,
) -> Planned {
    Planned { cites, function, args, request }
}

/// A request of PMI-1, or the line with which a connection of PMI-2 begins.
pub(super) fn to(op: Operation, answer: &str) -> Option<Request> {
    let op = op.into();
    Some(Request { op, pattern: pattern(op, false), mapping: false, answer: tuples(answer.as_bytes()) })
}
