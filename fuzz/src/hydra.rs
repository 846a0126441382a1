//! Target: the decoder of the messages that `hydra_pmi_proxy` sends to `mpiexec`.
//!
//! Input: a byte that selects the protocol family, a byte that selects how the stream is split, and records. Each record consists of a byte
//! that selects the kind of frame, a byte that states the length of the body, and the body. If the kind is 240 or above, the record is not
//! a frame, and its body is added to the stream unchanged.

use pmi_wire::hydra::{CodecError, Decoder, Family, ProxyMessage, ReceivedFrame};

use crate::{memory, planted};

/// Number of processes that the proxy was asked to start.
const PROCESSES: usize = 2;

/// Checks that frames are decoded as they were encoded, regardless of how the stream is split. Invalid bytes must cause an error and never
/// a panic. The decoder must not buffer more bytes than were sent.
pub fn run(data: &[u8]) {
    let before = memory::live();
    let [family, cut, records @ ..] = data else { return };
    let family = Family::ALL[usize::from(*family) % Family::ALL.len()];
    let mut stream = HydraStream { family, bytes: Vec::new(), expected: Vec::new(), is_arbitrary: false };
    let mut rest = records;
    while let [kind, length, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        stream.add(*kind, body);
    }
    let (whole, error) = read(family, &stream.bytes, stream.bytes.len());
    if !stream.is_arbitrary {
        assert_eq!(
            (&whole, &error),
            (&stream.expected, &None),
            "frames are not decoded as they were encoded"
        );
    }
    let size = usize::from(cut % 40) + 1;
    assert_eq!(
        read(family, &stream.bytes, size),
        (whole, error),
        "fragments of {size} bytes change the result"
    );
    drop(stream);
    memory::check(before, 4096, "the target without its decoders");
}

/// Decodes all records up to the first error. The init record is pushed separately, because the proxy sends nothing after this record until
/// it receives a command.
fn read(family: Family, bytes: &[u8], size: usize) -> (Vec<ReceivedFrame>, Option<CodecError>) {
    let before = memory::live();
    let mut decoder = Decoder::new(family, PROCESSES);
    let mut received = Vec::new();
    if let Some(init) = init(family) {
        decoder.push(&init);
        match decoder.next() {
            Ok(Some(ReceivedFrame { message: ProxyMessage::Init { proxy: 7 }, .. })) => {}
            other => panic!("the init record {init:?} is decoded as {other:?}"),
        }
        assert_eq!(decoder.next(), Ok(None));
    }
    for chunk in bytes.chunks(size.max(1)) {
        decoder.push(chunk);
        loop {
            match decoder.next() {
                Ok(Some(record)) => received.push(record),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return (received, Some(error));
                }
            }
        }
        if planted::is("header-cut-at-12") && size == 12 && decoder.partial().len() == 12 {
            decoder.push(&[0]);
        }
    }
    assert!(decoder.partial().len() <= bytes.len());
    // A frame without a body is 20 bytes long, but its decoded record takes up to 100 bytes.
    memory::check(before, 4096 + 32 * bytes.len(), "the decoder with its records");
    (received, None)
}

fn is_wide(family: Family) -> bool {
    matches!(family, Family::Mpich3_4 | Family::Mpich4_0_3)
}

/// Returns the init record of proxy 7 in process group 0, or `None` if the protocol family has no init record.
fn init(family: Family) -> Option<Vec<u8>> {
    let seven = 7i32.to_ne_bytes();
    match family {
        Family::Intel => None,
        Family::Mpich3_4 => Some(seven.to_vec()),
        Family::Mpich4_0_3 | Family::Mpich4_1 => Some([*b"HYD\0", seven].concat()),
        _ => Some([*b"HYD\0", [0; 4], seven].concat()),
    }
}

struct HydraStream {
    family: Family,
    bytes: Vec<u8>,
    expected: Vec<ReceivedFrame>,
    /// True if the stream contains bytes that are not frames.
    is_arbitrary: bool,
}

impl HydraStream {
    fn add(&mut self, kind: u8, body: &[u8]) {
        if kind >= 240 {
            self.is_arbitrary = true;
            return self.bytes.extend_from_slice(body);
        }
        let number = i32::from(kind);
        if self.family == Family::Intel {
            let (command, what) = match kind % 4 {
                0 => (16, ProxyMessage::Request { route: 0, text: b"cmd=barrier_in".to_vec() }),
                1 => (17, ProxyMessage::Output { stderr: false, bytes: body.to_vec() }),
                2 => (18, ProxyMessage::Output { stderr: true, bytes: body.to_vec() }),
                _ => {
                    let text = body.strip_suffix(b"\0").unwrap_or(body);
                    let text = [b"cmd=lookup_name service=", text].concat();
                    (25, ProxyMessage::Request { route: number, text })
                }
            };
            let body = if command == 16 { b"" } else { body };
            self.frame(&[command, body.len() as i32, 0, 0, number], body);
            return self.expected.push(ReceivedFrame { group: None, message: what });
        }
        let pair: [i32; PROCESSES] = [number, -number];
        let list: Vec<u8> = pair.into_iter().flat_map(i32::to_ne_bytes).collect();
        let (command, body, what) = match kind % 6 {
            0 => (5, &list[..], ProxyMessage::Pids(pair.into())),
            1 => (6, &list[..], ProxyMessage::Ended(pair.into())),
            2 => (7, body, ProxyMessage::Request { route: number, text: body.to_vec() }),
            3 => (8, body, ProxyMessage::Output { stderr: false, bytes: body.to_vec() }),
            4 => (9, body, ProxyMessage::Output { stderr: true, bytes: body.to_vec() }),
            _ => (10, &b""[..], ProxyMessage::Terminated),
        };
        let length = body.len() as i32;
        if is_wide(self.family) {
            self.frame(&[command, length, number, 1, -1, -1, -1, -1], body);
            self.expected.push(ReceivedFrame { group: None, message: what });
        } else {
            self.frame(&[command, length, number, 0, 1, number], body);
            self.expected.push(ReceivedFrame { group: Some(number), message: what });
        }
    }

    fn frame(&mut self, head: &[i32], body: &[u8]) {
        self.bytes.extend(head.iter().flat_map(|field| field.to_ne_bytes()));
        self.bytes.extend_from_slice(body);
    }
}
