//! Calls of a library's functions, and the requests that they cause.

use pmi_scenario::ast::{Arg, BinOp, Call, Dialect, Expr, Role, Statement, Step, StepAction, Template};

use crate::mutate::CorrectResponse;
use crate::session::fields::{FieldList, text};
use crate::session::op::Op;
use crate::session::pieces::without_span;
use crate::session::statement::{rank_or_all, step};

/// A call to a library function, and the request that it may cause.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCall {
    /// The requirement on the return codes of failed calls, or an empty string.
    pub(crate) cites: &'static str,
    pub(crate) function: &'static str,
    pub(crate) args: Vec<Arg>,
    pub(crate) request: Option<CallRequest>,
}

impl PlannedCall {
    pub(crate) fn stmt(self) -> Statement {
        let call = Call {
            function: Some(without_span(self.function.to_owned())),
            args: self.args,
            result: Some(without_span("any".to_owned())),
            outs: Vec::new(),
        };
        let mut statement = step(rank_or_all(None), Role::Api, StepAction::Call(call));
        if let Statement::Step(Step { cites, .. }) = &mut statement
            && !self.cites.is_empty()
        {
            *cites = Some(without_span(self.cites.to_owned()));
        }
        statement
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CallRequest {
    pub(crate) op: Op,
    pub(crate) pattern: Template,
    pub(crate) mapping: bool,
    pub(crate) answer: FieldList,
}

impl CallRequest {
    pub(crate) fn answer(&self, dialect: Dialect) -> CorrectResponse<'_> {
        CorrectResponse { dialect, op: self.op, mapping: self.mapping, fields: &self.answer, limits: LIMITS }
    }

    /// Returns whether the request depends on a value or an action of another process.
    pub(crate) fn depends_on_others(&self) -> bool {
        let of_others = self.op.is(&["get", "lookup", "get-node-attribute"]) || self.op.is_spawn();
        of_others && !self.mapping
    }

    /// Returns whether all processes wait for each other in the requested operation.
    pub(crate) fn is_collective(&self) -> bool {
        self.op.is(&["barrier", "ring"])
    }
}

/// The limits that the reference server announces.
pub(crate) const LIMITS: [i64; 3] = [256, 64, 1024];

pub(crate) fn out_argument(name: &str, room: Option<i64>) -> Arg {
    Arg::Out(without_span(name.to_owned()), room.map(Expr::Number))
}

pub(crate) fn quoted(content: &str) -> Arg {
    Arg::Text(text(content))
}

/// Returns the argument `-number`.
pub(crate) fn negative(number: i64) -> Arg {
    Arg::Number(Expr::Binary(Box::new(Expr::Number(0)), BinOp::Sub, Box::new(Expr::Number(number))))
}
