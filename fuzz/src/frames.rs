//! Target: the framer of PMI-2, both directions of a connection, and the parsers of bodies, with arbitrary bytes.
//!
//! Input: a byte that selects the maximum length and either frames or a connection, a byte that selects how a stream of frames is split,
//! and the stream. For a connection, the stream consists of records. Each record consists of a byte that selects the direction, the bytes,
//! and 0xff.

use pmi_wire::pmi2::{Body, BodyError, SemicolonReading};
use pmi_wire::{Connection, Decoded, Direction, Framer, Framing};

use crate::spell::{self, known_fields};
use crate::{input, memory, planted};

const LIMITS: [usize; 8] = [64 << 10, 1, 2, 8, 16, 64, 256, 4096];
const HEADER: usize = 6;
const READINGS: [SemicolonReading; 2] = [SemicolonReading::Doubled, SemicolonReading::Plain];

/// Checks that the framer returns the bodies that the lengths define, regardless of how the stream is split. The framer must not buffer
/// more than the longest body. Printing and parsing a parsed body must yield the same message. The messages of a connection must not depend
/// on how the bytes in either direction are split.
pub fn run(data: &[u8]) {
    let [limit, cuts, stream @ ..] = data else { return };
    let of_connection = limit & 0x80 != 0;
    let limit = LIMITS[usize::from(limit % 8)];
    // The first ten bytes determine the framing of a message, so the limit of a connection must be more than ten bytes.
    if of_connection { connection(limit.max(16), stream) } else { frames(limit, *cuts, stream) }
}

fn frames(limit: usize, cuts: u8, stream: &[u8]) {
    let before = memory::live();
    let mut framer = Framer::new(limit);
    let mut expected = ExpectedFrames { stream, at: 0, limit, framing_lost: false };
    let (mut pushed, mut cut) = (0, cuts);
    while pushed < stream.len() {
        let length = if cuts == 0 { stream.len() } else { usize::from(cut % 32) + 1 };
        cut = cut.wrapping_mul(5).wrapping_add(cuts | 1);
        let chunk = &stream[pushed..(pushed + length).min(stream.len())];
        pushed += chunk.len();
        framer.push(if planted::is("frame-byte-at-a-seam-lost") && chunk.len() == 7 && chunk[0] == b';' {
            &chunk[1..]
        } else {
            chunk
        });
        while let Some(body) = framer.next_frame() {
            let body = body.ok();
            assert_eq!(body, expected.next(pushed), "wrong next frame in a stream cut at {pushed}");
            if let Some(body) = body {
                READINGS.into_iter().for_each(|reading| check_body(body, reading));
            }
        }
        assert_eq!(framer.partial_frame(), expected.partial(pushed), "wrong bytes of an incomplete frame");
    }
    assert!(expected.is_done(pushed), "the framer did not return a complete frame");
    // The framer may use twice the memory of its stored bytes, because a growing buffer doubles its capacity.
    let held = if cuts == 0 { stream.len() } else { limit.saturating_add(HEADER + 32).min(stream.len()) };
    memory::check(before, 2 * held + 1024, "a framer");
}

/// The expected bodies of a stream. By definition, a frame consists of six bytes for the length, followed by the body.
struct ExpectedFrames<'a> {
    stream: &'a [u8],
    at: usize,
    limit: usize,
    /// True after an invalid header.
    framing_lost: bool,
}

/// Parses a header byte by byte, and returns the length. Returns `None` unless the header consists of digits between optional spaces.
fn length_of(header: &[u8]) -> Option<usize> {
    let text: Vec<u8> = header.iter().copied().skip_while(|b| *b == b' ').collect();
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let blanks = text[digits..].iter().all(|b| *b == b' ');
    (digits > 0 && blanks).then(|| {
        text[..digits].iter().fold(0, |number, digit| number * 10 + usize::from(*digit) - usize::from(b'0'))
    })
}

impl<'a> ExpectedFrames<'a> {
    /// Returns the next body, or `None` if it cannot be read. The framer has received the first `pushed` bytes.
    fn next(&mut self, pushed: usize) -> Option<&'a [u8]> {
        let header = &self.stream[self.at..self.at + HEADER];
        assert!(
            !self.framing_lost && self.at + HEADER <= pushed,
            "the framer returned a frame before its header had arrived"
        );
        let Some(length) = length_of(header) else {
            self.framing_lost = true;
            return None;
        };
        let body = self.at + HEADER;
        self.at = body + length;
        if length > self.limit {
            return None;
        }
        assert!(self.at <= pushed, "the framer returned a frame before its end had arrived");
        Some(&self.stream[body..self.at])
    }

    /// Returns the bytes of the incomplete frame that the framer has buffered.
    fn partial(&self, pushed: usize) -> &'a [u8] {
        if self.framing_lost || self.at > pushed { b"" } else { &self.stream[self.at..pushed] }
    }

    /// Returns whether only the beginning of a frame is left.
    fn is_done(&self, pushed: usize) -> bool {
        let rest = self.partial(pushed);
        let whole = || {
            length_of(&rest[..HEADER])
                .is_none_or(|length| length > self.limit || length <= rest.len() - HEADER)
        };
        rest.len() < HEADER || !whole()
    }
}

/// Splits a body into its tuples, byte by byte, without decoding the values. If `doubled` is true, a doubled semicolon is part of a value.
/// Returns `None` if the body is invalid.
fn tuples(body: &[u8], doubled: bool) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    let mut tuple = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let byte = body[at];
        at += 1;
        if byte != b';' {
            tuple.push(byte);
        } else if doubled && body.get(at) == Some(&b';') {
            tuple.extend(*b";;");
            at += 1;
        } else {
            let equals = tuple.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
            let value = tuple.split_off(equals + 1);
            tuple.pop();
            all.push((std::mem::take(&mut tuple), value));
        }
    }
    (tuple.is_empty() && !body.is_empty()).then_some(all)
}

fn check_body(bytes: &[u8], reading: SemicolonReading) {
    let expected = tuples(bytes, reading == SemicolonReading::Doubled);
    let body = match Body::parse(bytes, reading) {
        Ok(body) => body,
        Err(error) => {
            assert_eq!(expected, None, "{error}");
            assert_eq!(error == BodyError::Empty, bytes.is_empty());
            return;
        }
    };
    let found: Vec<_> = body.tuples().map(|t| (t.key.to_vec(), t.value.to_vec())).collect();
    assert_eq!(Some(&found), expected.as_ref());
    for direction in [Direction::ToServer, Direction::FromServer] {
        let message = Decoded::body(direction, bytes, reading);
        if message.is_well_formed() {
            check_message(&message, &found);
        }
    }
}

/// Checks that a well-formed message has the same fields after it is printed and parsed again, and that the return code of a response is
/// the one in these tuples.
fn check_message(message: &Decoded<'_>, tuples: &[(Vec<u8>, Vec<u8>)]) {
    let direction = message.direction;
    match message.spawn() {
        Some(request) => {
            let mut out = Vec::new();
            request.write_body(message.value("thrid").as_deref(), &mut out);
            let again = Decoded::new(direction, Framing::Frames, &out);
            assert_eq!(again.spawn(), Some(request), "printing changes the spawn request");
            assert_eq!(again.value("thrid"), message.value("thrid"));
        }
        // These requests consist of several messages, whose fields differ from those in the table, so they are not printed.
        None if message.exchange().is_some_and(|row| matches!(row.request, "concat" | "spawn")) => {}
        None => {
            let fields = known_fields(message);
            let out = spell::message(Framing::Frames, fields.iter().map(|(key, value)| (*key, &value[..])));
            let again = Decoded::new(direction, Framing::Frames, &out);
            assert_eq!(again.error(), None, "the printed message is invalid: {}", out.escape_ascii());
            assert_eq!(known_fields(&again), fields, "printing changes the message");
            assert_eq!(again.outcome(), message.outcome());
        }
    }
    if direction == Direction::FromServer {
        let (_, text) = tuples.iter().find(|(key, _)| key == b"rc").expect("a response has rc");
        let number: Option<i64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        assert_eq!(number, message.rc(), "{}", text.escape_ascii());
        assert_eq!(message.is_success(), message.rc() == Some(0));
    }
}

/// Appends all messages of a connection to `all`, each with its direction. An error is recorded as `None`.
fn taken(connection: &mut Connection, all: &mut Vec<(bool, Option<Vec<u8>>)>) {
    for direction in [Direction::FromServer, Direction::ToServer] {
        while let Some(message) = connection.next(direction) {
            let text = message.ok().map(|message| message.text.to_vec());
            all.push((direction == Direction::ToServer, text));
        }
    }
}

fn connection(limit: usize, stream: &[u8]) {
    let before = memory::live();
    let [mut whole, mut bytewise, mut read] = [(); 3].map(|()| Connection::new(limit));
    let mut records = stream;
    while let Some((&[direction], text)) = input::record(&mut records) {
        let direction = if direction & 1 == 0 { Direction::ToServer } else { Direction::FromServer };
        let (mut at_once, mut one_by_one) = (Vec::new(), Vec::new());
        whole.push(direction, text);
        taken(&mut whole, &mut at_once);
        for byte in text {
            bytewise.push(direction, &[*byte]);
            taken(&mut bytewise, &mut one_by_one);
        }
        // Some bytes can be decoded only after a message in the other direction has determined their framing. Only the order within each
        // direction is therefore fixed.
        at_once.sort_by_key(|(to_server, _)| *to_server);
        one_by_one.sort_by_key(|(to_server, _)| *to_server);
        assert_eq!(at_once, one_by_one, "fragmentation changes the messages");
        let arrivals = read.read(direction, text).into_iter();
        let mut arrivals: Vec<_> = arrivals
            .map(|a| (a.direction == Direction::ToServer, a.message.ok().map(|(_, text)| text.into_owned())))
            .collect();
        arrivals.sort_by_key(|(to_server, _)| *to_server);
        assert_eq!(at_once, arrivals, "`read` does not return the same messages as `push` and `next`");
        assert_eq!(whole.framing(), bytewise.framing());
        for direction in [Direction::ToServer, Direction::FromServer] {
            assert_eq!(whole.partial(direction), bytewise.partial(direction));
            assert_eq!(whole.partial(direction), read.partial(direction));
        }
    }
    // A connection keeps all bytes that a client sends before its offer is answered, so the allowed memory depends on the whole stream.
    memory::check(before, 12 * (limit.min(stream.len()) + stream.len()) + 4096, "three connections");
}
