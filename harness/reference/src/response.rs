//! Responses: the result of an operation, and its spelling in each dialect.

use std::borrow::Cow;

use pmi_wire::protocol::{Exchange, Field};
use pmi_wire::{Framing, Operation, ResponseOutcome};

/// The `rc` of a failure in PMI-2. The draft ("PMI Wireprotocol Error Codes") does not assign numbers.
const FAILED: i64 = 1;
/// The `rc` of an unknown command in PMI-2. The draft ("Unrecognized command") requires an error code for it.
const UNKNOWN_COMMAND: i64 = 2;

/// The values of a message, with the names of their fields in the protocol table.
pub type NamedValues = Vec<(Cow<'static, str>, Vec<u8>)>;

/// The properties of a request that determine the form of its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The framing of the request and the response.
    pub framing: Framing,
    /// The row in the protocol table; `None` for an unknown command.
    pub exchange: Option<&'static Exchange>,
    /// The `cmd` of the response. Empty for a response without `cmd`: RFC 13's response to abort is an empty line.
    pub response: Cow<'static, [u8]>,
    /// The `thrid` of a PMI-2 request, which the response must repeat (draft, "Thread Safety").
    pub thrid: Option<Vec<u8>>,
}

impl ResponseHeader {
    /// Creates the header for a request without a `thrid`.
    pub fn new(framing: Framing, exchange: Option<&'static Exchange>) -> Self {
        let response = exchange.and_then(|exchange| exchange.response).unwrap_or_default();
        Self { framing, exchange, response: response.as_bytes().into(), thrid: None }
    }

    /// Creates the header for a request in lines.
    pub fn line(exchange: &'static Exchange) -> Self {
        Self::new(Framing::Lines, Some(exchange))
    }

    /// Returns the operation's name in the protocol table; empty for an unknown command.
    pub fn operation(&self) -> &'static str {
        self.exchange.map_or("", |exchange| exchange.operation)
    }

    fn results(&self) -> &'static [Field] {
        self.exchange.map_or(&[], |exchange| exchange.results)
    }

    /// Returns whether the response has a flag that distinguishes a miss from a success. In PMI-2, responses to gets and lookups have this
    /// flag.
    fn has_flag(&self) -> bool {
        self.results().iter().any(|field| field.name == FOUND)
    }

    /// Returns the key of a result in this dialect.
    pub fn key<'a>(&self, name: &'a str) -> &'a str {
        self.results().iter().find(|field| field.name == name).map_or(name, |field| field.key)
    }
}

/// The key of the flag that reports a miss. The draft calls it `flag`, but all implementations write `found`.
const FOUND: &str = "found";

/// The result of an operation, independent of the dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationResult {
    /// The outcome: success, a miss or a failure.
    pub outcome: ResponseOutcome,
    /// The `rc` of a failure in PMI-2.
    code: i64,
    /// The reason for a miss or a failure.
    pub reason: Option<Cow<'static, str>>,
    /// The results, in the order of the protocol table.
    pub fields: NamedValues,
}

impl OperationResult {
    /// Creates a success without results.
    pub fn done() -> Self {
        Self { outcome: ResponseOutcome::Success, code: 0, reason: None, fields: Vec::new() }
    }

    /// Creates the result of a lookup that found nothing.
    pub fn miss(why: &'static str) -> Self {
        Self { outcome: ResponseOutcome::Miss, reason: Some(why.into()), ..Self::done() }
    }

    /// Creates the result of an operation that failed for the reason `why`.
    pub fn failed(why: impl Into<Cow<'static, str>>) -> Self {
        Self { outcome: ResponseOutcome::Failure, code: FAILED, reason: Some(why.into()), ..Self::done() }
    }

    /// Creates the failure for an unknown command.
    pub fn unknown_command() -> Self {
        Self { code: UNKNOWN_COMMAND, ..Self::failed("unknown command") }
    }

    /// Creates the result of a lookup: the value, or a miss.
    pub fn found(name: &'static str, value: Option<Vec<u8>>, why: &'static str) -> Self {
        value.map_or_else(|| Self::miss(why), |value| Self::done().with(name, value))
    }

    /// Adds a named result.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Adds a named result that is a number.
    #[must_use]
    pub fn with_number(self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.with(name, value.to_string())
    }
}

impl From<Result<(), &'static str>> for OperationResult {
    fn from(done: Result<(), &'static str>) -> Self {
        done.map_or_else(Self::failed, |()| Self::done())
    }
}

/// A response that has not been encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseParts {
    /// The form of the response.
    pub header: ResponseHeader,
    /// The content of the response.
    pub result: OperationResult,
}

impl ResponseParts {
    /// Returns `rc`. RFC 13, "Error Handling": `rc` is 0 on success and any other number on error. The draft ("Basic Concepts") requires a
    /// positive number for errors. A miss is an error in PMI-1; PMI-2 reports it with a flag.
    fn rc(&self) -> i64 {
        match (self.result.outcome, self.header.framing) {
            (ResponseOutcome::Success, _) => 0,
            (_, Framing::Lines) => -1,
            (ResponseOutcome::Miss, Framing::Frames) => i64::from(!self.header.has_flag()),
            (ResponseOutcome::Failure, Framing::Frames) => self.result.code,
        }
    }

    /// Returns whether the response has `rc=0`.
    pub fn is_success(&self) -> bool {
        self.rc() == 0
    }

    /// Passes each tuple to `tuple`, in the order of the grammar. In PMI-1, `msg` comes last, because it extends to the end of the line. In
    /// PMI-2, `thrid` follows `cmd`, and `rc` and `errmsg` come last.
    fn for_each_tuple(&self, mut tuple: impl FnMut(&str, &[u8])) {
        let Self { header, result: answer } = self;
        let rc = self.rc().to_string();
        let own = |tuple: &mut dyn FnMut(&str, &[u8])| {
            answer.fields.iter().for_each(|(name, value)| tuple(header.key(name), value));
        };
        tuple("cmd", &header.response);
        match header.framing {
            Framing::Lines => {
                tuple("rc", rc.as_bytes());
                own(&mut tuple);
                if let Some(why) = &answer.reason {
                    // The additional operations come from MPICH's gforker, which calls the key `reason`.
                    let is_extra = Operation::from_rule(header.operation()).is_none();
                    // RFC 13 allows spaces in `msg`, but clients that stop at a space (MPICH 4.0) reject such a response, so spaces are
                    // replaced.
                    let why = why.replace(' ', "_");
                    tuple(if is_extra { "reason" } else { "msg" }, why.as_bytes());
                }
            }
            Framing::Frames => {
                if let Some(thrid) = &header.thrid {
                    tuple("thrid", thrid);
                }
                match answer.outcome {
                    ResponseOutcome::Success if header.has_flag() => tuple(FOUND, b"TRUE"),
                    ResponseOutcome::Miss if header.has_flag() => tuple(FOUND, b"FALSE"),
                    _ => {}
                }
                own(&mut tuple);
                tuple("rc", rc.as_bytes());
                if let Some(why) = answer.reason.as_ref().filter(|_| !self.is_success()) {
                    tuple("errmsg", why.as_bytes());
                }
            }
        }
    }

    /// Returns all tuples. RFC 13's response to abort has no tuples.
    pub fn tuples(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut tuples = Vec::new();
        if !self.header.response.is_empty() {
            self.for_each_tuple(|key, value| tuples.push((key.into(), value.into())));
        }
        tuples
    }

    /// Encodes the response: a line with its newline (RFC 13, "Wire Protocol"), or a length and a body (draft, "The protocol").
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let framing = self.header.framing;
        if framing == Framing::Frames || !self.header.response.is_empty() {
            self.for_each_tuple(|key, value| framing.write_tuple(&mut out, key, value));
        }
        // This cannot fail, because the limits for pairs are far below the maximum length of a frame.
        framing.complete(out).unwrap_or_default()
    }
}
