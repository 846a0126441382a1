//! Reads both directions of a connection, which carries lines until frames are negotiated.

use std::borrow::Cow;

use memchr::memchr;
use thiserror::Error;

use crate::decoded::Decoded;
use crate::frame::{FrameError, Framer, HEADER, Overlong, frame_length};
use crate::message::{Message, ValueReading};
use crate::protocol::{Direction, Framing};

/// A message as received, with its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed<'a> {
    /// The framing of the message.
    pub framing: Framing,
    /// A line without its newline, or the body of a frame.
    pub text: &'a [u8],
}

/// An error in the framing of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FramingError {
    /// A line is too long.
    #[error(transparent)]
    Line(#[from] Overlong),
    /// A frame is too long or invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The input begins like a frame, but frames have not been negotiated. The error is reported once, and no later input is read.
    #[error("received a frame instead of a line")]
    FrameForLine,
    /// The input begins like a line, but frames were negotiated. The error is reported once, and no later input is read.
    #[error("received a line instead of a frame")]
    LineForFrame,
}

/// A complete message, or a framing error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The direction of the message.
    pub direction: Direction,
    /// The framing and the text, as in [`Framed`].
    pub message: Result<(Framing, Cow<'a, [u8]>), FramingError>,
}

impl Arrival<'_> {
    /// Decodes the message.
    ///
    /// # Errors
    ///
    /// Returns an error if the framing was invalid.
    pub fn decode(&self) -> Result<Decoded<'_>, FramingError> {
        let (framing, text) = self.message.as_ref().map_err(|error| *error)?;
        Ok(Decoded::new(self.direction, *framing, text))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Negotiation {
    /// The client has not offered PMI-2.
    Open,
    /// The client has offered PMI-2 and is waiting for the response.
    Offered,
    /// The framing is determined.
    Settled(Framing),
}

/// Reads both directions of a connection: the init line and its response, and then lines or frames, depending on the version in the
/// response.
///
/// A client may send bytes before the server has responded to its offer of PMI-2. These bytes are kept until the response determines their
/// framing.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The framers, indexed by direction.
    framers: [Framer; 2],
    negotiation: Negotiation,
    /// For each direction, true if a message with the wrong framing has begun.
    framing_lost: [bool; 2],
}

impl Connection {
    /// Creates a connection that accepts messages of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let framers = [Framer::new(limit), Framer::new(limit)];
        Self { framers, negotiation: Negotiation::Open, framing_lost: [false; 2] }
    }

    /// Returns the negotiated framing, or `None` if the server has not answered an init.
    pub fn negotiated(&self) -> Option<Framing> {
        match self.negotiation {
            Negotiation::Settled(framing) => Some(framing),
            Negotiation::Open | Negotiation::Offered => None,
        }
    }

    /// Returns the negotiated framing, or lines if nothing has been negotiated yet.
    pub fn framing(&self) -> Framing {
        self.negotiated().unwrap_or_default()
    }

    /// Appends received bytes.
    pub fn push(&mut self, direction: Direction, chunk: &[u8]) {
        if !self.framing_lost[direction as usize] {
            self.framers[direction as usize].push(chunk);
        }
    }

    /// Returns the bytes of an incomplete message in this direction.
    pub fn partial(&self, direction: Direction) -> &[u8] {
        let index = direction as usize;
        if self.framing_lost[index] {
            return &[];
        }
        self.framers[index].partial_in(self.framing())
    }

    /// Appends bytes, and returns the messages that are now complete. A response to an offer of PMI-2 precedes the requests whose framing
    /// it determines.
    pub fn read<'c>(&mut self, direction: Direction, chunk: &'c [u8]) -> Vec<Arrival<'c>> {
        let mut arrivals: Vec<Arrival<'c>> = self.whole_line(direction, chunk).into_iter().collect();
        if arrivals.is_empty() {
            self.push(direction, chunk);
        }
        self.take(direction, &mut arrivals);
        arrivals
    }

    /// Appends to `arrivals` the messages in this direction that are now complete.
    fn take(&mut self, direction: Direction, arrivals: &mut Vec<Arrival<'_>>) {
        loop {
            let response = match direction {
                Direction::FromServer => self.arrival(direction),
                Direction::ToServer => None,
            };
            let is_last = response.is_none();
            arrivals.extend(response);
            arrivals.extend(std::iter::from_fn(|| self.arrival(Direction::ToServer)));
            if is_last {
                return;
            }
        }
    }

    /// Returns whether messages in this direction cannot be read. No messages can be read after a message with the wrong framing. The
    /// client's messages cannot be read while the client is waiting for the response to its offer of PMI-2.
    fn is_unreadable(&self, direction: Direction) -> bool {
        let waits = self.negotiation == Negotiation::Offered && direction == Direction::ToServer;
        self.framing_lost[direction as usize] || waits
    }

    fn arrival(&mut self, direction: Direction) -> Option<Arrival<'static>> {
        let message = self.next(direction)?;
        let owned = |framed: Framed<'_>| (framed.framing, Cow::Owned(framed.text.to_vec()));
        Some(Arrival { direction, message: message.map(owned) })
    }

    /// Reads a chunk without copying it if, as usual, it is exactly one line and no earlier bytes are pending. Otherwise, returns `None`.
    fn whole_line<'c>(&mut self, direction: Direction, chunk: &'c [u8]) -> Option<Arrival<'c>> {
        let (index, end) = (direction as usize, memchr(b'\n', chunk)?);
        let is_whole = end + 1 == chunk.len() && self.framers[index].takes_line(chunk.len());
        let framing = self.framing();
        if !is_whole || self.is_unreadable(direction) || framing != Framing::Lines {
            return None;
        }
        if wrong_framing_error(chunk, framing).is_some() {
            return None;
        }
        let text = &chunk[..end];
        self.negotiation = negotiation_after(self.negotiation, direction, text);
        Some(Arrival { direction, message: Ok((framing, Cow::Borrowed(text))) })
    }

    /// Returns the next complete message. Returns `None` if more bytes are needed, if an earlier message had the wrong framing, or if the
    /// client is waiting for the response to its offer of PMI-2. Read the server's messages before the client's, because they may determine
    /// the framing of the client's messages.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is too long or has the wrong framing.
    pub fn next(&mut self, direction: Direction) -> Option<Result<Framed<'_>, FramingError>> {
        let index = direction as usize;
        if self.is_unreadable(direction) {
            return None;
        }
        let framing = self.framing();
        if framing == Framing::Lines {
            self.framers[index].drop_overlong_line();
        }
        if let Some(error) = wrong_framing_error(self.framers[index].rest(), framing) {
            self.framing_lost[index] = true;
            return Some(Err(error));
        }
        let Self { framers, negotiation, .. } = self;
        let framer = &mut framers[index];
        Some(match framing {
            Framing::Lines => framer.next_line()?.map_err(FramingError::from).map(|text| {
                *negotiation = negotiation_after(*negotiation, direction, text);
                Framed { framing, text }
            }),
            Framing::Frames => {
                framer.next_frame()?.map_err(FramingError::from).map(|text| Framed { framing, text })
            }
        })
    }
}

/// Returns the error for input that begins like a message in the other framing.
fn wrong_framing_error(rest: &[u8], framing: Framing) -> Option<FramingError> {
    match framing {
        Framing::Lines => {
            let (header, body) = rest.split_first_chunk::<HEADER>()?;
            let frame = frame_length(*header).is_some() && body.starts_with(b"cmd=");
            frame.then_some(FramingError::FrameForLine)
        }
        Framing::Frames => rest.starts_with(b"cmd=").then_some(FramingError::LineForFrame),
    }
}

/// Returns the state of the negotiation after a line.
fn negotiation_after(negotiation: Negotiation, direction: Direction, line: &[u8]) -> Negotiation {
    if matches!(negotiation, Negotiation::Settled(_)) {
        return negotiation;
    }
    let Ok(message) = Message::parse(line, ValueReading::ToBlank) else { return negotiation };
    let number = |key: &str| message.get(key).and_then(crate::grammar::parse_int);
    let second = number("pmi_version") == Some(2);
    match (direction, message.cmd()) {
        (Direction::ToServer, Some(b"init")) if second => Negotiation::Offered,
        (Direction::FromServer, Some(b"response_to_init")) if negotiation == Negotiation::Offered => {
            match second && number("rc").unwrap_or(0) == 0 {
                true => Negotiation::Settled(Framing::Frames),
                // The offer was not accepted, so the client may make a new one.
                false => Negotiation::Open,
            }
        }
        (Direction::FromServer, Some(b"response_to_init")) if number("rc").unwrap_or(0) == 0 => {
            Negotiation::Settled(Framing::Lines)
        }
        _ => negotiation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{FromServer, ToServer};
    use rstest::rstest;

    const OFFER: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";
    const TAKEN: &[u8] = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";

    fn taken(connection: &mut Connection, direction: Direction) -> Vec<String> {
        let shown = |m: Result<Framed<'_>, FramingError>| match m {
            Ok(Framed { framing, text }) => format!("{framing:?} {}", text.escape_ascii()),
            Err(error) => error.to_string(),
        };
        std::iter::from_fn(|| connection.next(direction).map(shown)).collect()
    }

    #[test]
    fn frames_begin_after_the_accepted_offer() {
        let client = [OFFER, b"    13cmd=fullinit;000014cmd=job-getid;13    cmd=finalize;"].concat();
        let server = [TAKEN, b"     7a\nb=\xff;;    0 "].concat();
        // The client sends its requests before the server answers the offer.
        let mut connection = Connection::new(64);
        connection.push(ToServer, &client);
        assert_eq!(taken(&mut connection, ToServer).len(), 1);
        connection.push(FromServer, &server);
        assert_eq!(taken(&mut connection, FromServer)[1..], ["Frames a\\nb=\\xff;;", "Frames "]);
        assert_eq!(
            taken(&mut connection, ToServer),
            ["Frames cmd=fullinit;", "Frames cmd=job-getid;", "Frames cmd=finalize;"]
        );
        assert_eq!(connection.partial(FromServer), b"");
    }

    #[rstest]
    #[case(b"cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0\n")]
    #[case(b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n")]
    fn connection_keeps_using_lines_after_a_refused_offer(#[case] answer: &[u8]) {
        let mut connection = Connection::new(64);
        connection.push(ToServer, &[OFFER, b"cmd=get_maxes\n"].concat());
        assert_eq!(taken(&mut connection, ToServer).len(), 1);
        connection.push(FromServer, answer);
        assert_eq!(taken(&mut connection, FromServer).len(), 1);
        assert_eq!(taken(&mut connection, ToServer), ["Lines cmd=get_maxes"]);
    }

    #[rstest]
    #[case(b"    13cmd=fullinit;", b"", &["received a frame instead of a line"])]
    #[case(OFFER, b"cmd=fullinit\n", &["received a line instead of a frame"])]
    #[case(OFFER, b"   -13cmd=fullinit;", &["invalid frame length \"   -13\""])]
    #[case(OFFER, b"      cmd=fullinit;", &["invalid frame length \"      \""])]
    #[case(OFFER, b"12\t   cmd=fullinit;", &["invalid frame length \"12\\t   \""])]
    #[case(OFFER, b"  1000x", &["a message is longer than 64 bytes"])]
    fn reports_invalid_framing_once(#[case] first: &[u8], #[case] then: &[u8], #[case] expected: &[&str]) {
        let mut connection = Connection::new(64);
        connection.push(ToServer, first);
        if first == OFFER {
            assert_eq!(taken(&mut connection, ToServer).len(), 1);
            connection.push(FromServer, TAKEN);
            assert_eq!(taken(&mut connection, FromServer).len(), 1);
            connection.push(ToServer, then);
        }
        assert_eq!(taken(&mut connection, ToServer), expected);
        for _ in 0..9 {
            connection.push(ToServer, b"     9cmd=abort;");
            assert!(taken(&mut connection, ToServer).is_empty());
        }
        assert_eq!(connection.partial(ToServer), b"");
    }

    #[test]
    fn detects_frame_after_an_overlong_line() {
        let text = [&[b'x'; 30][..], b"\n    14cmd=job-getid;"].concat();
        for size in 1..=text.len() {
            let mut connection = Connection::new(16);
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                connection.push(ToServer, chunk);
                seen.extend(taken(&mut connection, ToServer));
            }
            assert_eq!(
                seen,
                ["a message is longer than 16 bytes", "received a frame instead of a line"],
                "{size}"
            );
        }
    }

    #[test]
    fn reads_the_frame_after_an_overlong_frame() {
        let mut framer = Framer::new(4);
        framer.push(b"     5abcde     2f;");
        assert_eq!(framer.next_frame(), Some(Err(Overlong { limit: 4 }.into())));
        assert_eq!(framer.next_frame(), Some(Ok(&b"f;"[..])));
        framer.push(b"999999");
        assert_eq!(framer.next_frame(), Some(Err(Overlong { limit: 4 }.into())));
        for _ in 0..20 {
            framer.push(&[b'x'; 49_999]);
            assert_eq!(framer.next_frame(), None);
        }
        framer.push(b"xxxxxxxxxxxxxxxxxxx     1;");
        assert_eq!(framer.next_frame(), Some(Ok(&b";"[..])));
    }
}
