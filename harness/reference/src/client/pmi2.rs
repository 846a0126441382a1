//! The client's half of PMI-2 for one process, by MPICH's draft.
//!
//! No sockets, as in [`super`]: [`Client::offer`] and [`Client::ask`] return the bytes to send, what arrives goes into
//! [`Client::receive`], and [`Client::next_answer`] tells what it was. Requests that have a `thrid` of their own may be pending together.

use pmi_wire::pmi2::{Command, Request, Response, ResponseError, Semicolons, is_key};
use pmi_wire::{Connection, Direction, Framing, FramingError, Message, ValueReading, frame_header};
use thiserror::Error;

/// The longest value that the draft allows, in bytes.
pub const VALUE_MAX: usize = 1024;
/// Longest message read. A frame's header has room for no more than ten times as much.
const MESSAGE_MAX: usize = 100_000;

/// A request that would break the draft. Nothing was sent, and the client is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Misuse {
    /// The offer comes first and once, then fullinit, once, then everything else.
    #[error("not in this order")]
    Order,
    /// The answer to the request before is still to come, and no `thrid` tells the two apart.
    #[error("an answer is still to come")]
    Pending,
    /// Nothing comes after finalize or abort, or after an error of the server's.
    #[error("the connection is over")]
    Over,
    /// A key is 1 to 64 letters, digits, hyphens and underscores.
    #[error("this is no key")]
    BadKey,
    /// The value is longer than [`VALUE_MAX`], or the whole message than a header can tell.
    #[error("too long")]
    TooLong,
}

/// What a server did wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// It has not taken the offer of version 2.
    #[error("the offer of version 2 was refused")]
    Refused,
    /// What came is no message.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// What came is no response.
    #[error(transparent)]
    Malformed(#[from] ResponseError),
    /// Nothing that is pending is answered by it.
    #[error("an answer to nothing that was asked")]
    Unsolicited,
}

/// A response, whose keys are asked for by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    body: Vec<u8>,
}

impl Reply {
    /// What it says.
    pub fn response(&self) -> Option<Response<'_>> {
        Response::parse(&self.body, Semicolons::Doubled).ok()
    }
}

/// What a server has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It takes the offer: frames follow.
    Accepted,
    /// A request is answered.
    Reply(Reply),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Offered,
    /// The offer is taken.
    Accepted,
    /// Fullinit is said.
    Joining,
    Joined,
    /// Finalized, aborted, or the server erred.
    Over,
}

/// The state machine.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    phase: Phase,
    pending: Vec<(Command, Option<Vec<u8>>)>,
}

impl Default for Client {
    fn default() -> Self {
        Self { connection: Connection::new(MESSAGE_MAX), phase: Phase::New, pending: Vec::new() }
    }
}

/// The keys and values of a request that the limits are about.
fn pair<'a>(request: &'a Request<'_>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
    match request {
        Request::KvsPut { key, value } | Request::InfoPutnodeattr { key, value } => (Some(key), Some(value)),
        Request::KvsGet { key, .. }
        | Request::InfoGetnodeattr { key, .. }
        | Request::InfoGetjobattr { key } => (Some(key), None),
        _ => (None, None),
    }
}

impl Client {
    /// Offers version 2.
    ///
    /// # Errors
    ///
    /// [`Misuse::Order`] if it has been offered.
    pub fn offer(&mut self) -> Result<Vec<u8>, Misuse> {
        if self.phase != Phase::New {
            return Err(Misuse::Order);
        }
        self.phase = Phase::Offered;
        let line = b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec();
        self.connection.push(Direction::ToServer, &line);
        // It tells the connection what the answer is to.
        let _ = self.connection.next(Direction::ToServer);
        Ok(line)
    }

    /// Makes a request. With a `thrid` it may be made while others are pending.
    ///
    /// # Errors
    ///
    /// See [`Misuse`].
    pub fn ask(&mut self, request: &Request<'_>, thrid: Option<&[u8]>) -> Result<Vec<u8>, Misuse> {
        let command = request.command();
        match (self.phase, command) {
            (Phase::Over, _) => return Err(Misuse::Over),
            (Phase::Accepted, Command::Fullinit) | (Phase::Accepted | Phase::Joining, Command::Abort) => {}
            (Phase::Joined, Command::Fullinit) => return Err(Misuse::Order),
            (Phase::Joined, _) => {}
            _ => return Err(Misuse::Order),
        }
        let clash = |other: &Option<Vec<u8>>| thrid.is_none() || other.is_none() || other.as_deref() == thrid;
        if command != Command::Abort && self.pending.iter().any(|(_, other)| clash(other)) {
            return Err(Misuse::Pending);
        }
        let (key, value) = pair(request);
        if key.is_some_and(|key| !is_key(key)) {
            return Err(Misuse::BadKey);
        }
        if value.is_some_and(|value| value.len() > VALUE_MAX) {
            return Err(Misuse::TooLong);
        }
        let mut body = Vec::new();
        request.write_to(thrid, &mut body);
        let mut frame = frame_header(body.len()).ok_or(Misuse::TooLong)?.to_vec();
        frame.extend(body);
        match command {
            Command::Abort => self.phase = Phase::Over,
            Command::Fullinit => self.phase = Phase::Joining,
            _ => {}
        }
        if command != Command::Abort {
            self.pending.push((command, thrid.map(<[u8]>::to_vec)));
        }
        Ok(frame)
    }

    /// Takes in what the server has sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.connection.push(Direction::FromServer, bytes);
    }

    /// The next thing that the server has said, if it is complete. An error is one of the server's, after which nothing more can be
    /// said to it.
    pub fn next_answer(&mut self) -> Option<Result<Answer, ServerError>> {
        let message = match self.connection.next(Direction::FromServer)? {
            Ok(message) => (message.framing, message.text.to_vec()),
            Err(error) => return Some(self.erred(error.into())),
        };
        Some(match (self.phase, message) {
            (Phase::Offered, (Framing::Lines, line)) => {
                let taken = Message::parse(&line, ValueReading::ToBlank).is_ok_and(|answer| {
                    let number = |key: &str| answer.get(key).and_then(pmi_wire::grammar::parse_int);
                    answer.cmd() == Some(b"response_to_init")
                        && number("rc").unwrap_or(0) == 0
                        && number("pmi_version") == Some(2)
                });
                match taken {
                    true => {
                        self.phase = Phase::Accepted;
                        Ok(Answer::Accepted)
                    }
                    false => self.erred(ServerError::Refused),
                }
            }
            (_, (Framing::Frames, body)) => self.replied(body),
            _ => self.erred(ServerError::Unsolicited),
        })
    }

    fn replied(&mut self, body: Vec<u8>) -> Result<Answer, ServerError> {
        let reply = Reply { body };
        let response = match Response::parse(&reply.body, Semicolons::Doubled) {
            Ok(response) => response,
            Err(error) => return self.erred(error.into()),
        };
        // Slurm never echoes a thrid: then it answers the oldest request of this kind.
        let thrid = response.get("thrid");
        let kind = |(command, _): &(Command, _)| *command == response.command;
        let own = |(_, own): &(Command, Option<Vec<u8>>)| own.is_none() || own.as_deref() == thrid.as_deref();
        let pending = &self.pending;
        let place = pending.iter().position(|p| kind(p) && own(p));
        let place = place.or_else(|| pending.iter().position(|p| kind(p) && thrid.is_none()));
        let Some(place) = place else { return self.erred(ServerError::Unsolicited) };
        self.pending.remove(place);
        match response.command {
            Command::Fullinit if response.is_success() => self.phase = Phase::Joined,
            // It may not be asked again.
            Command::Fullinit | Command::Finalize => self.phase = Phase::Over,
            _ => {}
        }
        Ok(Answer::Reply(reply))
    }

    fn erred(&mut self, error: ServerError) -> Result<Answer, ServerError> {
        self.phase = Phase::Over;
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TAKEN: &[u8] = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";

    fn frame(body: &str) -> Vec<u8> {
        format!("{:>6}{body}", body.len()).into_bytes()
    }

    fn fullinit() -> Request<'static> {
        Request::Fullinit {
            pmijobid: None,
            pmirank: Some(0),
            threaded: Some(false),
            authtype: None,
            authinfo: None,
        }
    }

    fn put(value: &[u8]) -> Request<'_> {
        Request::KvsPut { key: b"k".into(), value: value.into() }
    }

    fn joined() -> Client {
        let mut client = Client::default();
        assert_eq!(client.ask(&fullinit(), None), Err(Misuse::Order));
        client.offer().unwrap();
        client.receive(TAKEN);
        assert_eq!(client.next_answer(), Some(Ok(Answer::Accepted)));
        assert_eq!(client.ask(&Request::KvsFence, None), Err(Misuse::Order));
        client.ask(&fullinit(), None).unwrap();
        client.receive(&frame("cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;"));
        assert!(matches!(client.next_answer(), Some(Ok(Answer::Reply(_)))));
        client
    }

    #[test]
    fn one_request_waits_for_its_answer_unless_each_has_a_thrid() {
        let mut client = joined();
        assert_eq!(client.ask(&put(b"a;b"), None), Ok(frame("cmd=kvs-put;key=k;value=a;;b;")));
        assert_eq!(client.ask(&Request::KvsFence, Some(b"2")), Err(Misuse::Pending));
        client.receive(&frame("cmd=kvs-put-response;rc=0;"));
        client.next_answer().unwrap().unwrap();
        client.ask(&Request::JobGetid, Some(b"1")).unwrap();
        client.ask(&Request::JobGetid, Some(b"2")).unwrap();
        assert_eq!(client.ask(&Request::JobGetid, Some(b"2")), Err(Misuse::Pending));
        client.receive(&frame("cmd=job-getid-response;thrid=2;rc=0;jobid=b;"));
        let Some(Ok(Answer::Reply(reply))) = client.next_answer() else { panic!() };
        assert_eq!(reply.response().and_then(|r| r.get("jobid")).as_deref(), Some(&b"b"[..]));
        assert_eq!(client.pending, [(Command::JobGetid, Some(b"1".to_vec()))]);
    }

    #[rstest]
    #[case(b"cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0\n", ServerError::Refused)]
    #[case(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n", ServerError::Refused)]
    #[case(b"cmd=maxes\n", ServerError::Refused)]
    fn a_refused_offer_is_the_end(#[case] line: &[u8], #[case] error: ServerError) {
        let mut client = Client::default();
        client.offer().unwrap();
        client.receive(line);
        assert_eq!(client.next_answer(), Some(Err(error)));
        assert_eq!(client.ask(&fullinit(), None), Err(Misuse::Over));
    }

    #[rstest]
    #[case("cmd=kvs-fence-response;rc=0;")]
    #[case("cmd=kvs-put-response;")]
    #[case("cmd=kvs-put-response;rc=0")]
    #[case("")]
    fn what_answers_nothing_is_the_end(#[case] body: &str) {
        let mut client = joined();
        client.ask(&put(b"v"), None).unwrap();
        client.receive(&frame(body));
        assert!(matches!(client.next_answer(), Some(Err(_))));
        assert_eq!(client.ask(&Request::Finalize, None), Err(Misuse::Over));
    }

    #[test]
    fn limits_are_kept() {
        let mut client = joined();
        assert_eq!(client.ask(&put(&[b'v'; VALUE_MAX + 1]), None), Err(Misuse::TooLong));
        let bad = Request::KvsGet { jobid: None, srcid: None, key: b"a b".into() };
        assert_eq!(client.ask(&bad, None), Err(Misuse::BadKey));
        assert!(client.ask(&put(&[b'v'; VALUE_MAX]), None).is_ok());
    }
}
