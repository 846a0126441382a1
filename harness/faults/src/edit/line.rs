//! Conditions on requests.

use memchr::memmem;
use pmi_wire::Operation;

use super::step::{Editable, UnknownStep, VerbAndArguments, byte, number};
use crate::circumstances::Circumstances;

/// A request: a line without its newline, or the body of a frame.
pub(crate) struct RequestText<'a>(pub(crate) &'a [u8]);

impl Editable for RequestText<'_> {
    fn step(&mut self, words: VerbAndArguments, _: &Circumstances) -> Result<bool, UnknownStep> {
        self.meets(words)
    }
}

impl RequestText<'_> {
    fn meets(&self, words: VerbAndArguments) -> Result<bool, UnknownStep> {
        let line = self.0;
        let starts_command = |name: &str| command(line).starts_with(name.as_bytes());
        let at = |part: &str| memmem::find(line, part.as_bytes());
        Ok(match words {
            ["not", words @ ..] => !self.meets(words)?,
            ["is", text] => line == text.as_bytes(),
            ["starts", text] => line.starts_with(text.as_bytes()),
            ["ends", text] => line.ends_with(text.as_bytes()),
            ["has", text] => at(text).is_some(),
            ["longer", length] => line.len() > number::<usize>(length)?,
            // A value may contain any text, so only the part before the value is searched.
            ["head-has", text] => {
                let head = &line[..at(" value=").unwrap_or(line.len())];
                memmem::find(head, text.as_bytes()).is_some()
            }
            ["before", first, second] => {
                matches!((at(first), at(second)), (Some(first), Some(second)) if first < second)
            }
            ["cmd", name] => command(line) == name.as_bytes(),
            ["cmd-starts", name] => starts_command(name),
            ["known"] => Operation::from_request_cmd(command(line)).is_some(),
            ["binary"] => line.iter().any(|b| *b == 0 || *b > 126),
            // A request with arguments, although its operation takes no arguments.
            ["lone-with-more"] => {
                let lone = ["get_maxes", "get_my_kvsname", "get_appnum", "barrier_in", "get_universe_size"];
                lone.into_iter().any(starts_command) && line.contains(&byte(" ")?)
            }
            // A line of text with the command of a request other than abort.
            ["incomplete"] => {
                let op = Operation::from_request_cmd(command(line));
                op.is_some_and(|op| op != Operation::Abort) && line.iter().all(|b| (32..127).contains(b))
            }
            // A request that a server need not support.
            ["optional"] => ["mcmd=spawn", "cmd=publish_name", "cmd=lookup_name", "cmd=unpublish_name"]
                .iter()
                .any(|request| line.starts_with(request.as_bytes())),
            _ => return Err(UnknownStep),
        })
    }
}

pub(crate) fn command(text: &[u8]) -> &[u8] {
    let rest = text.strip_prefix(b"cmd=").unwrap_or(b"");
    rest.split(|b| matches!(b, b' ' | b';')).next().unwrap_or(b"")
}
