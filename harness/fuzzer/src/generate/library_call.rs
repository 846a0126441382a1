//! Calls of a library, and the requests that they cause.

use pmi_scenario::ast::{Arg, BinOp, Call, Dialect, Expr, Role, Step, StepAction, Stmt, Template};

use crate::fields::{FieldList, text};
use crate::mutate::CorrectResponse;
use crate::op::Op;
use crate::pieces::unplaced;
use crate::statement::{step, whom};

/// A call and the request that it may cause.
#[derive(Debug, Clone)]
pub(super) struct PlannedCall {
    /// The requirement about its failures.
    pub(super) cites: &'static str,
    pub(super) function: &'static str,
    pub(super) args: Vec<Arg>,
    pub(super) request: Option<CallRequest>,
}

impl PlannedCall {
    pub(super) fn stmt(self) -> Stmt {
        let call = Call {
            function: Some(unplaced(self.function.to_owned())),
            args: self.args,
            result: Some(unplaced("any".to_owned())),
            outs: Vec::new(),
        };
        let mut stmt = step(whom(None), Role::Api, StepAction::Call(call));
        if let Stmt::Step(Step { cites, .. }) = &mut stmt
            && !self.cites.is_empty()
        {
            *cites = Some(unplaced(self.cites.to_owned()));
        }
        stmt
    }
}

#[derive(Debug, Clone)]
pub(super) struct CallRequest {
    pub(super) op: Op,
    pub(super) pattern: Template,
    pub(super) mapping: bool,
    pub(super) answer: FieldList,
}

impl CallRequest {
    pub(super) fn answer(&self, dialect: Dialect) -> CorrectResponse<'_> {
        CorrectResponse { dialect, op: self.op, mapping: self.mapping, fields: &self.answer, limits: LIMITS }
    }

    /// Returns whether it requests something that another process has to put or do.
    pub(super) fn looks_for(&self) -> bool {
        let of_others = self.op.is(&["get", "lookup", "get-node-attribute"]) || self.op.is_spawn();
        of_others && !self.mapping
    }

    /// Returns whether all processes wait for each other in it.
    pub(super) fn is_collective(&self) -> bool {
        self.op.is(&["barrier", "ring"])
    }
}

/// The limits that the reference server announces.
pub(super) const LIMITS: [i64; 3] = [256, 64, 1024];

pub(super) fn out(name: &str, room: Option<i64>) -> Arg {
    Arg::Out(unplaced(name.to_owned()), room.map(Expr::Number))
}

pub(super) fn quoted(content: &str) -> Arg {
    Arg::Text(text(content))
}

/// Returns a negative number.
pub(super) fn negative(number: i64) -> Arg {
    Arg::Number(Expr::Binary(Box::new(Expr::Number(0)), BinOp::Sub, Box::new(Expr::Number(number))))
}
