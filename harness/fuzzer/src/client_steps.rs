//! Statements of cases in which the harness is the server: which request is answered, and with what response.

use pmi_scenario::ast::{Action, Kind, Piece, ProcessAction, Role, Stmt, Template, WriteMode};

use super::fields::text;
use super::mutate::ReplyStep;
use super::op::Op;
use super::pieces::{literal, push};
use super::statement::{step, whom};

/// The key of the process mapping, in PMI-1 and PMI-2.
pub(crate) const MAPPING: &str = "PMI_process_mapping";

/// Returns the pattern that matches a request in a case.
pub(crate) fn pattern(op: Op, mapping: bool) -> Template {
    let key = if mapping { format!(" key={MAPPING}") } else { String::new() };
    text(format!("{}={op}{key}", op.command_key()))
}

/// Extends the pattern to requests of a thread, whose number the response can use as `$thrid`.
pub(crate) fn of_thread(mut pattern: Template) -> Template {
    push(&mut pattern, literal(" thrid="));
    push(&mut pattern, Piece::Capture("thrid".to_owned(), Kind::Any));
    pattern
}

/// Returns a step in which a process makes a request. The steps after it answer the request.
pub(crate) fn asks(who: Option<u32>, pattern: Template, every: bool) -> Stmt {
    let mode = WriteMode { every, ..WriteMode::default() };
    step(whom(who), Role::Client, Action::Message { mode, lines: vec![pattern] })
}

/// Returns a step in which the harness sends a response or closes the connection.
pub(crate) fn says(who: Option<u32>, said: ReplyStep) -> Stmt {
    let action = match said {
        ReplyStep::Write(lines, mode) => Action::Message { mode, lines },
        ReplyStep::Right => Action::Right,
        ReplyStep::Close => Action::Close,
    };
    step(whom(who), Role::Server, action)
}

/// Returns a step that kills every process with a signal.
pub(crate) fn kill_all(signal: u8) -> Stmt {
    step(whom(None), Role::Process, Action::Process(ProcessAction::Kill(signal)))
}
