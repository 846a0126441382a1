//! Messages of either framing and direction, decoded with the protocol table.

use std::borrow::Cow;

use crate::message::{Message, ValueReading};
use crate::op::Operation;
use crate::pmi2::{self, SemicolonReading};
use crate::protocol::{self, Exchange, Framing};
use crate::{Direction, Request, RequestError, Response, ResponseError, Tuple, Version};

/// A message, decoded once for all of its readers. In a line, `value` extends to the end of the line (RFC 13). In a frame, two consecutive
/// semicolons in a value stand for one (the draft).
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The side that sent it.
    pub direction: Direction,
    /// The framing of the message.
    pub framing: Framing,
    /// A line without its newline, or the body of a frame.
    pub text: &'a [u8],
    /// The content, parsed by the grammar of its framing.
    pub content: Content<'a>,
    tuples: Option<DecodedTuples<'a>>,
}

/// The content of a message, or the grammar error.
#[derive(Debug)]
pub enum Content<'a> {
    /// A line from a client.
    LineRequest(Result<Request<'a>, RequestError>),
    /// A line from a server.
    LineResponse(Result<Response<'a>, ResponseError>),
    /// A frame from a client.
    FrameRequest(Result<pmi2::Request<'a>, pmi2::RequestError>),
    /// A frame from a server.
    FrameResponse(Result<pmi2::Response<'a>, pmi2::ResponseError>),
}

/// The outcome that a response reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResponseOutcome {
    /// The operation succeeded, and the requested key or name was found.
    Success,
    /// The key or name was not found, according to a PMI-2 flag such as `found`.
    Miss,
    /// The operation failed: `rc` is not 0.
    Failure,
}

/// The tuples of a message in either framing.
#[derive(Debug, Clone, Copy)]
enum DecodedTuples<'a> {
    Line(Message<'a>),
    Frame(pmi2::Body<'a>),
}

impl<'a> Decoded<'a> {
    /// Decodes a message.
    pub fn new(direction: Direction, framing: Framing, text: &'a [u8]) -> Self {
        let (tuples, content) = match framing {
            Framing::Lines => {
                let line = Message::parse(text, ValueReading::ToEndOfLine);
                let content = match direction {
                    Direction::ToServer => {
                        Content::LineRequest(line.map_err(RequestError::from).and_then(Request::read))
                    }
                    // An empty line is the response to abort.
                    Direction::FromServer if text.is_empty() => {
                        Content::LineResponse(Response::parse(text, ValueReading::ToEndOfLine))
                    }
                    Direction::FromServer => {
                        Content::LineResponse(line.map_err(ResponseError::from).and_then(Response::read))
                    }
                };
                (line.ok().map(DecodedTuples::Line), content)
            }
            Framing::Frames => {
                let body = pmi2::Body::parse(text, SemicolonReading::Doubled);
                let content = match direction {
                    Direction::ToServer => Content::FrameRequest(
                        body.map_err(pmi2::RequestError::from).and_then(pmi2::Request::read),
                    ),
                    Direction::FromServer => Content::FrameResponse(
                        body.map_err(pmi2::ResponseError::from).and_then(pmi2::Response::read),
                    ),
                };
                (body.ok().map(DecodedTuples::Frame), content)
            }
        };
        Self { direction, framing, text, content, tuples }
    }

    /// Returns whether the message follows the grammar of its framing.
    pub fn is_well_formed(&self) -> bool {
        match &self.content {
            Content::LineRequest(request) => request.is_ok(),
            Content::LineResponse(response) => response.is_ok(),
            Content::FrameRequest(request) => request.is_ok(),
            Content::FrameResponse(response) => response.is_ok(),
        }
    }

    /// Returns whether the message is a series of tuples.
    pub fn has_tuples(&self) -> bool {
        self.tuples.is_some()
    }

    /// Returns the reason why the message violates the grammar, if it does.
    pub fn error(&self) -> Option<String> {
        match &self.content {
            Content::LineRequest(request) => request.as_ref().err().map(ToString::to_string),
            Content::LineResponse(response) => response.as_ref().err().map(ToString::to_string),
            Content::FrameRequest(request) => request.as_ref().err().map(ToString::to_string),
            Content::FrameResponse(response) => response.as_ref().err().map(ToString::to_string),
        }
    }

    /// Returns the message's row in the protocol table. A message with a known command has one even if it violates the grammar.
    pub fn exchange(&self) -> Option<&'static Exchange> {
        match &self.content {
            Content::LineRequest(Ok(request)) => Some(request.operation().exchange()),
            Content::LineResponse(Ok(response)) => Some(response.operation().exchange()),
            Content::FrameRequest(Ok(request)) => Some(request.command().exchange()),
            Content::FrameResponse(Ok(response)) => Some(response.command.exchange()),
            Content::LineRequest(Err(_)) | Content::FrameRequest(Err(_)) => {
                protocol::by_request(self.framing, self.command()?)
            }
            Content::LineResponse(Err(_)) | Content::FrameResponse(Err(_)) => {
                protocol::by_response(self.framing, self.command()?)
            }
        }
    }

    /// Returns the operation of a well-formed message, if RFC 13 defines one. In frames, fullinit counts as init.
    pub fn operation(&self) -> Option<Operation> {
        match &self.content {
            Content::LineRequest(Ok(request)) => Some(request.operation()),
            Content::LineResponse(Ok(response)) => Some(response.operation()),
            _ if !self.is_well_formed() => None,
            _ => Operation::from_rule(self.exchange()?.operation),
        }
    }

    /// Returns the command word: the value of `cmd`, which is the first tuple of a frame.
    pub fn command(&self) -> Option<&'a [u8]> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.cmd(),
            DecodedTuples::Frame(body) => body.cmd(),
        }
    }

    /// Returns the tuples in order, with values as on the wire. A malformed message has none.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple<'a>> + use<'a> {
        let (line, body) = match self.tuples {
            Some(DecodedTuples::Line(message)) => (Some(message), None),
            Some(DecodedTuples::Frame(body)) => (None, Some(body)),
            None => (None, None),
        };
        let line = line.into_iter().flat_map(|message| message.tuples());
        line.chain(body.into_iter().flat_map(|body| body.tuples()))
    }

    /// Returns the value of the first tuple with this key, as on the wire.
    pub fn raw(&self, key: &str) -> Option<&'a [u8]> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.get(key),
            DecodedTuples::Frame(body) => body.raw(key),
        }
    }

    /// Returns the value of the first tuple with this key.
    pub fn value(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.get(key).map(Cow::Borrowed),
            DecodedTuples::Frame(body) => body.value(key),
        }
    }

    /// Returns the value of a field by its name in the protocol table, which is the same in both framings. If several keys have this name,
    /// the key with the same spelling takes precedence.
    pub fn field(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let exchange = self.exchange()?;
        let (own, common) = match self.direction {
            Direction::ToServer => (exchange.arguments, protocol::common_arguments(self.framing)),
            Direction::FromServer => (exchange.results, protocol::common_results(self.framing)),
        };
        let fields = || own.iter().chain(common).filter(|field| field.name == name);
        let mut keys = fields().filter(|field| field.key == name).chain(fields());
        keys.find_map(|field| self.value(field.key))
    }

    /// Returns the outcome of a well-formed response. Returns `None` for other messages, and if the flag is neither true nor false.
    pub fn outcome(&self) -> Option<ResponseOutcome> {
        let (is_success, is_found) = match &self.content {
            Content::LineResponse(Ok(response)) => (response.is_success(), Some(true)),
            Content::FrameResponse(Ok(response)) => (response.is_success(), response.is_found()),
            _ => return None,
        };
        match (is_success, is_found) {
            (false, _) => Some(ResponseOutcome::Failure),
            (true, found) => {
                found.map(|found| if found { ResponseOutcome::Success } else { ResponseOutcome::Miss })
            }
        }
    }

    /// Returns whether this is a well-formed response whose `rc`, if it has one, is 0.
    pub fn is_success(&self) -> bool {
        match &self.content {
            Content::LineResponse(Ok(response)) => response.is_success(),
            Content::FrameResponse(Ok(response)) => response.is_success(),
            _ => false,
        }
    }

    /// Returns whether this is a well-formed response whose `rc` is not 0.
    pub fn is_refusal(&self) -> bool {
        self.outcome() == Some(ResponseOutcome::Failure)
    }

    /// Returns the version of a well-formed init line, or of the response to it.
    pub fn version(&self) -> Option<Version> {
        match &self.content {
            Content::LineRequest(Ok(Request::Init(version))) => Some(*version),
            Content::LineResponse(Ok(Response { body: crate::ResponseBody::Init(version), .. })) => *version,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use Direction::{FromServer, ToServer};
    use Framing::{Frames, Lines};

    #[rstest]
    #[case(ToServer, Lines, "cmd=put kvsname=k key=a value=b c", Some(Operation::Put), "value", Some("b c"))]
    #[case(ToServer, Frames, "cmd=kvs-put;key=a;value=b;;c;", Some(Operation::Put), "value", Some("b;c"))]
    #[case(FromServer, Lines, "cmd=my_kvsname kvsname=k", Some(Operation::Kvsname), "kvsname", Some("k"))]
    #[case(
        FromServer,
        Frames,
        "cmd=job-getid-response;jobid=k;rc=0;",
        Some(Operation::Kvsname),
        "kvsname",
        Some("k")
    )]
    #[case(ToServer, Lines, "cmd=lookup_name service=s", Some(Operation::Lookup), "service", Some("s"))]
    #[case(ToServer, Frames, "cmd=name-lookup;name=s;", Some(Operation::Lookup), "service", Some("s"))]
    #[case(
        FromServer,
        Frames,
        "cmd=name-lookup-response;value=v;port=p;rc=0;",
        Some(Operation::Lookup),
        "port",
        Some("p")
    )]
    #[case(
        FromServer,
        Frames,
        "cmd=name-lookup-response;value=v;rc=0;",
        Some(Operation::Lookup),
        "port",
        Some("v")
    )]
    // A request that lacks a required field has no operation, but its other fields can still be read.
    #[case(ToServer, Lines, "cmd=put key=a", None, "key", Some("a"))]
    #[case(ToServer, Frames, "cmd=kvs-put;key=a;", None, "key", Some("a"))]
    #[case(FromServer, Frames, "cmd=info-getjobattr-response;value=v;rc=0;", None, "value", Some("v"))]
    #[case(FromServer, Lines, "", Some(Operation::Abort), "rc", None)]
    #[case(FromServer, Lines, "nonsense", None, "rc", None)]
    fn both_framings_use_the_same_field_names(
        #[case] direction: Direction,
        #[case] framing: Framing,
        #[case] text: &str,
        #[case] operation: Option<Operation>,
        #[case] field: &str,
        #[case] value: Option<&str>,
    ) {
        let message = Decoded::new(direction, framing, text.as_bytes());
        assert_eq!(message.operation(), operation);
        assert_eq!(message.field(field).as_deref(), value.map(str::as_bytes));
    }

    #[rstest]
    #[case(Lines, "cmd=get_result rc=0 value=v", Some(ResponseOutcome::Success))]
    #[case(Lines, "cmd=get_result value=v", Some(ResponseOutcome::Success))]
    #[case(Lines, "cmd=get_result rc=-1", Some(ResponseOutcome::Failure))]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;value=v;rc=0;", Some(ResponseOutcome::Success))]
    #[case(Frames, "cmd=kvs-get-response;flag=false;rc=0;", Some(ResponseOutcome::Miss))]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;rc=1;", Some(ResponseOutcome::Failure))]
    #[case(Frames, "cmd=kvs-get-response;found=1;rc=0;", None)]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;", None)]
    #[case(Lines, "cmd=get kvsname=k key=a", None)]
    fn decodes_each_form_of_outcome(
        #[case] framing: Framing,
        #[case] text: &str,
        #[case] outcome: Option<ResponseOutcome>,
    ) {
        let message = Decoded::new(FromServer, framing, text.as_bytes());
        assert_eq!(message.outcome(), outcome);
        assert_eq!(message.is_refusal(), outcome == Some(ResponseOutcome::Failure));
    }

    #[test]
    fn arrivals_follow_the_order_of_decoding() {
        let mut connection = crate::Connection::new(64);
        let ahead = b"cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;";
        let offer = connection.read(ToServer, ahead);
        assert_eq!(offer.len(), 1);
        let taken = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n     7a=b;c=d";
        let arrivals = connection.read(FromServer, taken);
        let shown: Vec<_> = arrivals.iter().map(|one| (one.direction, one.decode().unwrap())).collect();
        assert_eq!(
            shown.iter().map(|(from, _)| *from).collect::<Vec<_>>(),
            [FromServer, ToServer, FromServer]
        );
        assert_eq!(shown[0].1.version(), Some(Version::V2_0));
        assert_eq!(shown[1].1.operation(), Some(Operation::Init));
        assert!(!shown[2].1.has_tuples());
    }
}
