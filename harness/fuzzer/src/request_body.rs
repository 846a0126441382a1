//! Requests of PMI-2, as far as they can be read.

use pmi_wire::pmi2::{Command, Request, Semicolons};

/// The command that the body of a frame names, and whether it is a complete request of it.
pub(crate) fn request_command(body: &[u8]) -> (Option<Command>, bool) {
    let name = body.strip_prefix(b"cmd=").and_then(|rest| rest.split(|b| *b == b';').next());
    let is_complete = match Request::parse(body, Semicolons::Doubled) {
        Ok(Request::DraftOnly(command)) => command == Command::KvsGetall,
        Ok(_) => true,
        Err(_) => false,
    };
    (name.and_then(Command::from_name), is_complete)
}
