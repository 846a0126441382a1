//! Statements of cases in which we are the server: which request is answered, and what is said to it.

use pmi_scenario::ast::{Action, ProcessAction, Role, Stmt, Template, WriteMode};
use pmi_wire::Operation;

use super::case::{step, whom};
use super::fields::text;
use super::mutate::Said;

/// A request as a case names it.
pub(crate) fn pattern(op: Operation, mapping: bool) -> Template {
    text(match op {
        Operation::Spawn => "mcmd=spawn".to_owned(),
        Operation::Get if mapping => "cmd=get key=PMI_process_mapping".to_owned(),
        op => format!("cmd={}", op.request_cmd()),
    })
}

/// A process makes a request, which is answered by what follows.
pub(crate) fn asks(who: Option<u32>, pattern: Template, every: bool) -> Stmt {
    let mode = WriteMode { every, ..WriteMode::default() };
    step(whom(who), Role::Client, Action::Message { mode, lines: vec![pattern] })
}

/// We say something.
pub(crate) fn says(who: Option<u32>, said: Said) -> Stmt {
    let action = match said {
        Said::Write(lines, mode) => Action::Message { mode, lines },
        Said::Right => Action::Right,
        Said::Close => Action::Close,
    };
    step(whom(who), Role::Server, action)
}

/// Every process that is meant dies of a signal.
pub(crate) fn kill_all(signal: u8) -> Stmt {
    step(whom(None), Role::Process, Action::Process(ProcessAction::Kill(signal)))
}
