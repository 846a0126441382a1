//! Statements of cases in which we are the server: which request is answered, and what is said to it.

use pmi_scenario::ast::{Action, Kind, Piece, ProcessAction, Role, Stmt, Template, WriteMode};

use super::fields::text;
use super::mutate::ReplyStep;
use super::op::Op;
use super::pieces::{literal, push};
use super::statement::{step, whom};

/// The key of the process mapping, in either protocol.
pub(crate) const MAPPING: &str = "PMI_process_mapping";

/// A request as a case names it.
pub(crate) fn pattern(op: Op, mapping: bool) -> Template {
    let key = if mapping { format!(" key={MAPPING}") } else { String::new() };
    text(format!("{}={op}{key}", op.command_key()))
}

/// The same of a thread, whose number an answer may have as `$thrid`.
pub(crate) fn of_thread(mut pattern: Template) -> Template {
    push(&mut pattern, literal(" thrid="));
    push(&mut pattern, Piece::Capture("thrid".to_owned(), Kind::Any));
    pattern
}

/// A process makes a request, which is answered by what follows.
pub(crate) fn asks(who: Option<u32>, pattern: Template, every: bool) -> Stmt {
    let mode = WriteMode { every, ..WriteMode::default() };
    step(whom(who), Role::Client, Action::Message { mode, lines: vec![pattern] })
}

/// We say something.
pub(crate) fn says(who: Option<u32>, said: ReplyStep) -> Stmt {
    let action = match said {
        ReplyStep::Write(lines, mode) => Action::Message { mode, lines },
        ReplyStep::Right => Action::Right,
        ReplyStep::Close => Action::Close,
    };
    step(whom(who), Role::Server, action)
}

/// Every process that is meant dies of a signal.
pub(crate) fn kill_all(signal: u8) -> Stmt {
    step(whom(None), Role::Process, Action::Process(ProcessAction::Kill(signal)))
}
