//! Statements of cases in which the harness is the server. They specify the requests of the client and the responses of the harness.

use pmi_scenario::ast::{Piece, ProcessAction, Role, Statement, StepAction, Template, ValueType, WriteMode};

use super::ResponseStep;
use crate::session::fields::text;
use crate::session::op::Op;
use crate::session::pieces::{literal, push};
use crate::session::statement::{rank_or_all, step};

/// The key of the process mapping, in PMI-1 and PMI-2.
pub(crate) const MAPPING: &str = "PMI_process_mapping";

/// Returns a pattern that matches requests with this operation. If `mapping` is true, the request must ask for the process mapping.
pub(crate) fn pattern(op: Op, mapping: bool) -> Template {
    let key = if mapping { format!(" key={MAPPING}") } else { String::new() };
    text(format!("{}={op}{key}", op.command_key()))
}

/// Extends the pattern with a thread number. The pattern binds the number to `$thrid`, so that the response can use it.
pub(crate) fn of_thread(mut pattern: Template) -> Template {
    push(&mut pattern, literal(" thrid="));
    push(&mut pattern, Piece::Capture("thrid".to_owned(), ValueType::Any));
    pattern
}

/// Returns a step in which a process makes a request. The steps after it answer the request.
pub(crate) fn request_step(rank: Option<u32>, pattern: Template, every: bool) -> Statement {
    let mode = WriteMode { every, ..WriteMode::default() };
    step(rank_or_all(rank), Role::Client, StepAction::Message { mode, lines: vec![pattern] })
}

/// Returns a step in which the harness sends a response or closes the connection.
pub(crate) fn response_step(rank: Option<u32>, response: ResponseStep) -> Statement {
    let action = match response {
        ResponseStep::Write(lines, mode) => StepAction::Message { mode, lines },
        ResponseStep::Correct => StepAction::CorrectResponse,
        ResponseStep::Close => StepAction::Close,
    };
    step(rank_or_all(rank), Role::Server, action)
}

/// Returns a step that kills every process with a signal.
pub(crate) fn kill_all(signal: u8) -> Statement {
    step(rank_or_all(None), Role::Process, StepAction::Process(ProcessAction::Kill(signal)))
}
