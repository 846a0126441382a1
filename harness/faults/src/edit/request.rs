//! Steps that change a request, or answer it in place of the server.

use pmi_reference::server::ServerRequest;

use super::step::{Editable, UnknownStep, VerbAndArguments, number};
use crate::circumstances::Circumstances;

/// The outcome of a request that the server does not carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The request succeeds, but has no effect.
    Forgotten,
    /// The server reports that the key or name does not exist.
    Missed,
    /// The request is not answered.
    Ignored,
    /// The request is answered with the result of the process's last get.
    Repeated,
    /// The server crashes.
    Crashed,
}

/// The facts about a request that steps can test or use in addition to the [`Circumstances`], such as the process's earlier requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestSituation {
    /// For each operation, the number of requests that the process has made, including this request. The entry `thread` counts the
    /// requests with a `thrid`.
    pub(crate) counts: Vec<(&'static str, u64)>,
    /// The number of puts that the process has made since the last barrier, including this request.
    pub(crate) puts_in_round: u64,
    /// True if the process is already waiting in the barrier.
    pub(crate) waits: bool,
    /// True if rank 0 has finalized or its connection is closed.
    pub(crate) first_finalized: bool,
    /// True if another process made the group's last get, and the key was missing.
    pub(crate) others_miss: bool,
    /// True if a key of the group already has the value being put.
    pub(crate) value_exists: bool,
    /// The value of the group's last put.
    pub(crate) last_value: Vec<u8>,
}

/// A request that steps may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestDraft<'a> {
    pub(crate) request: ServerRequest<'a>,
    pub(crate) situation: RequestSituation,
    /// The outcome, if the server does not carry out the request.
    pub(crate) outcome: Option<RequestOutcome>,
    /// True if the attributes of the process's node are removed before the request is carried out.
    pub(crate) clears_attributes: bool,
}

impl<'a> RequestDraft<'a> {
    pub(crate) fn new(request: ServerRequest<'a>, situation: RequestSituation) -> Self {
        Self { request, situation, outcome: None, clears_attributes: false }
    }

    /// Applies a step to an argument. If the request lacks the argument, conditions on the argument do not hold.
    fn argument(
        &mut self,
        name: &str,
        words: VerbAndArguments,
        circumstances: &Circumstances,
    ) -> Result<bool, UnknownStep> {
        let value = match (name, &mut self.request) {
            (
                "key",
                ServerRequest::Put { key, .. }
                | ServerRequest::Get { key, .. }
                | ServerRequest::PutNodeAttribute { key, .. }
                | ServerRequest::GetNodeAttribute { key, .. },
            ) => key,
            ("value", ServerRequest::Put { value, .. } | ServerRequest::PutNodeAttribute { value, .. }) => {
                value
            }
            (
                "name",
                ServerRequest::Publish { name, .. }
                | ServerRequest::Lookup { name }
                | ServerRequest::Unpublish { name },
            ) => name,
            ("port", ServerRequest::Publish { port, .. }) => port,
            _ if words == ["last-put"] => return Ok(false),
            _ => return Vec::<u8>::new().step(words, circumstances).map(|_| false),
        };
        if words == ["last-put"] {
            value.to_mut().clone_from(&self.situation.last_value);
            return Ok(true);
        }
        value.to_mut().step(words, circumstances)
    }
}

impl Editable for RequestDraft<'_> {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let count =
            |name: &str| self.situation.counts.iter().find(|(op, _)| *op == name).map_or(0, |(_, n)| *n);
        let outcome = match words {
            [name @ ("key" | "value" | "name" | "port"), words @ ..] => {
                return self.argument(name, words, circumstances);
            }
            // Steps that are conditions.
            ["if-nth", name, n] => return Ok(count(name) == number::<u64>(n)?),
            ["if-after", name, n] => return Ok(count(name) >= number::<u64>(n)?),
            ["if-more-puts-in-round", n] => return Ok(self.situation.puts_in_round > number::<u64>(n)?),
            ["if-waits"] => return Ok(self.situation.waits),
            ["if-first-finalized"] => return Ok(self.situation.first_finalized),
            ["if-others-miss"] => return Ok(self.situation.others_miss),
            ["if-value-exists"] => return Ok(self.situation.value_exists),
            ["clear-attributes"] => {
                self.clears_attributes = true;
                return Ok(true);
            }
            ["forget"] => RequestOutcome::Forgotten,
            ["miss"] => RequestOutcome::Missed,
            ["ignore"] => RequestOutcome::Ignored,
            ["repeat"] => RequestOutcome::Repeated,
            ["crash"] => RequestOutcome::Crashed,
            _ => return Err(UnknownStep),
        };
        self.outcome = Some(outcome);
        Ok(true)
    }
}
