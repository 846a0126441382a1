//! Bytes of the control protocol of MPICH's Hydra, and what is common to all families. No I/O.
//!
//! A connection carries an unframed record of the proxy's own ([`Init`]), and then frames in both directions: a header
//! of `int` fields in the byte order of the host, and a body.

use super::family::{Family, Header, Init};
use super::intel;
use super::vector::Launch;

/// Most bytes of a frame's body; a proxy that announces more is out of step.
pub(super) const BODY_MAX: usize = 16 << 20;
/// First bytes of the init record, where it has any of that kind.
const TAG: [u8; 4] = *b"HYD\0";

/// Numbers of the commands that go down.
mod down {
    pub(super) const PROC_INFO: i32 = 1;
    pub(super) const PMI_RESPONSE: i32 = 2;
    pub(super) const STDIN: i32 = 4;
}

/// What a proxy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upward {
    /// Its init record.
    Init {
        /// Its number in its process group.
        proxy: i32,
    },
    /// Process ids of its processes, in order of launch.
    Pids(Vec<i32>),
    /// How its processes ended, as of `wait`, in the same order.
    Ended(Vec<i32>),
    /// A request that it passes on or makes itself.
    Request {
        /// Names the client; to be sent back with the answer.
        route: i32,
        /// The text, possibly without its end.
        text: Vec<u8>,
    },
    /// Pairs that its clients have put, where they do not come as a request.
    Puts(Vec<(Vec<u8>, Vec<u8>)>),
    /// Output of a process.
    Output {
        /// Which stream.
        stderr: bool,
        /// A part of it.
        bytes: Vec<u8>,
    },
    /// A process closed its connection early; told only on request.
    Terminated,
}

/// A frame of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Process group; `None` where the header does not tell.
    pub group: Option<i32>,
    /// What it says.
    pub what: Upward,
}

/// Why bytes are not what the family's proxies send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// No init record, or more than one.
    #[error("an init record of {} bytes was expected, but {} came: {}", .expected, .seen.len(), .seen.escape_ascii())]
    Init {
        /// Its length in bytes.
        expected: usize,
        /// The first bytes that came.
        seen: Vec<u8>,
    },
    /// A frame of no known command.
    #[error("a frame has the unknown command {0}")]
    Command(i32),
    /// A body that is too long, or too short for what must be in it.
    #[error("a frame of command {command} announces a body of {length} bytes")]
    Length {
        /// The command.
        command: i32,
        /// The length announced, in bytes.
        length: i32,
    },
}

/// Reads what one proxy sends.
#[derive(Debug)]
pub struct Decoder(Kind);

#[derive(Debug)]
enum Kind {
    Mpich(Mpich),
    Intel(intel::Decoder),
}

impl Decoder {
    /// For a proxy that is told to start so many processes.
    pub fn new(family: Family, processes: usize) -> Self {
        Self(match family {
            Family::Intel => Kind::Intel(intel::Decoder::default()),
            _ => Kind::Mpich(Mpich::new(family, processes)),
        })
    }

    /// Appends bytes as they were read.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kind::Mpich(decoder) => decoder.push(bytes),
            Kind::Intel(decoder) => decoder.push(bytes),
        }
    }

    /// Bytes that are no whole record yet.
    pub fn partial(&self) -> &[u8] {
        match &self.0 {
            Kind::Mpich(decoder) => decoder.partial(),
            Kind::Intel(decoder) => decoder.partial(),
        }
    }

    /// The next record, if it is there in full.
    ///
    /// # Errors
    ///
    /// See [`CodecError`]; the proxy is out of step from then on.
    #[expect(clippy::should_implement_trait, reason = "it fails, and goes on after None")]
    pub fn next(&mut self) -> Result<Option<Received>, CodecError> {
        match &mut self.0 {
            Kind::Mpich(decoder) => decoder.next(),
            Kind::Intel(decoder) => decoder.next(),
        }
    }
}

/// Reads what one of MPICH's proxies sends.
#[derive(Debug)]
pub(super) struct Mpich {
    init: Init,
    header: Header,
    /// Processes that it was told to start: wide headers leave out the length of lists about them.
    processes: usize,
    begun: bool,
    buffer: Vec<u8>,
    at: usize,
}

fn int(bytes: &[u8]) -> i32 {
    bytes.first_chunk().map_or(0, |four| i32::from_ne_bytes(*four))
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(int).collect()
}

impl Mpich {
    fn new(family: Family, processes: usize) -> Self {
        let (init, header) = (family.init(), family.header());
        Self { init, header, processes, begun: false, buffer: Vec::new(), at: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    fn partial(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    fn next(&mut self) -> Result<Option<Received>, CodecError> {
        if !self.begun {
            return self.init();
        }
        let rest = &self.buffer[self.at..];
        let head = match self.header {
            Header::Wide => 32,
            Header::Grouped => 24,
        };
        if rest.len() < head {
            return Ok(None);
        }
        let field = |at: usize| int(&rest[at..]);
        let command = field(0);
        let (group, route) = match self.header {
            Header::Wide => (None, field(8)),
            Header::Grouped => (Some(field(8)), field(20)),
        };
        let list = matches!(command, 5 | 6) && self.header == Header::Wide;
        let length = match command {
            5 | 6 if list => self.processes * 4,
            5..=9 => usize::try_from(field(4))
                .ok()
                .filter(|n| *n <= BODY_MAX)
                .ok_or(CodecError::Length { command, length: field(4) })?,
            10 => 0,
            _ => return Err(CodecError::Command(command)),
        };
        let Some(body) = rest.get(head..head + length) else { return Ok(None) };
        let what = match command {
            5 => Upward::Pids(ints(body)),
            6 => Upward::Ended(ints(body)),
            7 => Upward::Request { route, text: body.to_vec() },
            8 | 9 => Upward::Output { stderr: command == 9, bytes: body.to_vec() },
            _ => Upward::Terminated,
        };
        self.at += head + length;
        Ok(Some(Received { group, what }))
    }

    fn init(&mut self) -> Result<Option<Received>, CodecError> {
        let seen = &self.buffer[self.at..];
        let wrong =
            || CodecError::Init { expected: self.init.len(), seen: seen[..seen.len().min(64)].to_vec() };
        if seen.len() < 4 {
            return Ok(None);
        }
        // Nothing follows until the proxy is told what to do.
        let tagged = self.init != Init::Id;
        if seen.starts_with(&TAG) != tagged || seen.len() > self.init.len() {
            return Err(wrong());
        }
        if seen.len() < self.init.len() {
            return Ok(None);
        }
        let numbers = ints(if tagged { &seen[4..] } else { seen });
        let group = (self.init == Init::TaggedGroupId).then(|| numbers[0]);
        let proxy = *numbers.last().unwrap_or(&0);
        self.at += self.init.len();
        self.begun = true;
        Ok(Some(Received { group, what: Upward::Init { proxy } }))
    }
}

/// A process group at a proxy, as frames to it say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) family: Family,
    pub(super) group: i32,
    pub(super) proxy: i32,
}

/// A message that fills a proxy's cache is ended when it has this many bytes.
const CACHE_MAX: usize = 32 * 1024;

impl Address {
    fn frame(self, command: i32, length: usize, number: i32, route: i32) -> Vec<u8> {
        let fields = match self.family.header() {
            Header::Wide => {
                let (length, pid, version) = match command {
                    down::PROC_INFO => (-1, -1, -1),
                    down::STDIN => (length as i32, -1, -1),
                    _ => (length as i32, route, number),
                };
                vec![command, length, pid, version, -1, -1, -1, -1]
            }
            Header::Grouped => vec![command, length as i32, self.group, self.proxy, number, route],
        };
        fields.into_iter().flat_map(i32::to_ne_bytes).collect()
    }

    /// Starts a process group. Its first process gets an empty standard input.
    pub(super) fn launch(self, launch: &Launch) -> Vec<u8> {
        if self.family == Family::Intel {
            return intel::launch(launch);
        }
        let mut out = self.proc_info(&launch.options(self.family));
        // Only the first process of all has a standard input that could be ended.
        if (self.group, self.proxy) == (0, 0) {
            out.extend(self.frame(down::STDIN, 0, 0, 0));
        }
        out
    }

    /// A list of options.
    fn proc_info(self, options: &[Vec<u8>]) -> Vec<u8> {
        let mut out = self.frame(down::PROC_INFO, 0, 0, 0);
        out.extend((options.len() as i32).to_ne_bytes());
        for option in options {
            out.extend((option.len() as i32 + 1).to_ne_bytes());
            out.extend_from_slice(option);
            out.push(0);
        }
        out
    }

    /// A PMI-1 message for the client that `route` names.
    pub(super) fn response(self, route: i32, text: &[u8]) -> Vec<u8> {
        if self.family == Family::Intel {
            return intel::response(self.group, self.proxy, route, text);
        }
        let mut out = self.frame(down::PMI_RESPONSE, text.len(), 1, route);
        out.extend_from_slice(text);
        out
    }

    /// Lets a proxy's clients out of a barrier: the one of that name, where barriers have names.
    pub(super) fn barrier_out(self, name: Option<&[u8]>) -> Vec<u8> {
        if self.family == Family::Intel {
            return intel::barrier_out();
        }
        let name = name.map(|name| [b" group=", name].concat()).unwrap_or_default();
        self.response(0, &[b"cmd=barrier_out", &name[..], b"\n"].concat())
    }

    /// A text of a scenario's, which may be anything. Where the protocol has no texts for something, what the text means.
    pub(super) fn verbatim(self, route: i32, barrier: Option<&[u8]>, text: &[u8]) -> Vec<u8> {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        if line == b"cmd=barrier_out" {
            let barrier = barrier.or(self.family.names_barriers().then_some(b"WORLD"));
            return self.barrier_out(barrier);
        }
        match line.strip_prefix(b"cmd=keyval_cache") {
            Some(pairs) if self.family == Family::Intel => {
                let pairs: Vec<_> = pairs
                    .split(|b| *b == b' ')
                    .filter_map(|pair| {
                        let at = pair.iter().position(|b| *b == b'=')?;
                        Some((pair[..at].to_vec(), pair[at + 1..].to_vec()))
                    })
                    .collect();
                intel::cache(self.group, &pairs)
            }
            _ => self.response(route, text),
        }
    }

    /// Pairs for the proxy's cache, in as many messages as it takes.
    pub(super) fn cache(self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        if pairs.is_empty() {
            return Vec::new();
        }
        if self.family == Family::Intel {
            return intel::cache(self.group, pairs);
        }
        let mut out = Vec::new();
        let mut text = Vec::new();
        for (at, (key, value)) in pairs.iter().enumerate() {
            if text.is_empty() {
                text.extend_from_slice(b"cmd=keyval_cache");
            }
            text.push(b' ');
            text.extend_from_slice(key);
            text.push(b'=');
            for byte in value {
                if self.family.unescapes() && matches!(byte, b' ' | b'\\') {
                    text.push(b'\\');
                }
                text.push(*byte);
            }
            if text.len() > CACHE_MAX || at + 1 == pairs.len() {
                text.push(b'\n');
                out.extend(self.response(0, &text));
                text.clear();
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<u8> {
        // As recorded: eight hex digits are an int in the order of memory.
        text.split_whitespace()
            .flat_map(|word| {
                (0..word.len()).step_by(2).map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap())
            })
            .collect()
    }

    fn all(decoder: &mut Decoder) -> Vec<Upward> {
        std::iter::from_fn(|| decoder.next().unwrap()).map(|r| r.what).collect()
    }

    #[test]
    fn a_scenarios_words_become_what_the_family_has_for_them() {
        let address = |family| Address { family, group: 0, proxy: 0 };
        let (old, new) = (address(Family::Mpich4_2), address(Family::Mpich5_0_2));
        let out = &b"cmd=barrier_out\n"[..];
        assert_eq!(old.verbatim(7, None, out), old.barrier_out(None));
        assert_eq!(new.verbatim(7, None, out), new.barrier_out(Some(b"WORLD")));
        assert_eq!(new.verbatim(7, Some(b"1,2"), out), new.barrier_out(Some(b"1,2")));
        let intel = address(Family::Intel);
        assert_eq!(intel.verbatim(7, None, out), intel.barrier_out(None));
        let pairs = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"".to_vec())];
        assert_eq!(intel.verbatim(7, None, b"cmd=keyval_cache a=1 junk b=\n"), intel.cache(&pairs));
        // Anything else goes out as it is.
        for text in [&b"cmd=get_result rc=0\n"[..], b"cmd=barrier_out rc=1\n", b"junk\0", b""] {
            for address in [old, new, intel] {
                assert_eq!(address.verbatim(7, None, text), address.response(7, text));
            }
        }
    }

    #[test]
    fn a_recorded_run_of_3_4_3_is_read() {
        let mut decoder = Decoder::new(Family::Mpich3_4, 2);
        decoder.push(&words("00000000"));
        assert_eq!(all(&mut decoder), [Upward::Init { proxy: 0 }]);
        let blank = "ffffffff ".repeat(4);
        let mut bytes = words(&format!("05000000 {}", "ffffffff ".repeat(7)));
        bytes.extend(words("0b000000 0c000000"));
        bytes.extend(words(&format!("07000000 13000000 05000000 01000000 {blank}")));
        bytes.extend(b"cmd=put k0=v0 k1=v1");
        bytes.extend(words(&format!("07000000 0e000000 05000000 01000000 {blank}")));
        bytes.extend(b"cmd=barrier_in");
        bytes.extend(words(&format!("06000000 {}", "ffffffff ".repeat(7))));
        bytes.extend(words("00000000 00030000"));
        let request = |text: &[u8]| Upward::Request { route: 5, text: text.to_vec() };
        let expected = [
            Upward::Pids(vec![11, 12]),
            request(b"cmd=put k0=v0 k1=v1"),
            request(b"cmd=barrier_in"),
            Upward::Ended(vec![0, 768]),
        ];
        // Whatever the pieces in which it arrives.
        for step in [1, 7, bytes.len()] {
            let mut decoder = Decoder::new(Family::Mpich3_4, 2);
            decoder.push(&words("00000000"));
            assert_eq!(all(&mut decoder).len(), 1);
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                decoder.push(piece);
                seen.extend(all(&mut decoder));
            }
            assert_eq!(seen, expected, "in pieces of {step}");
            assert_eq!(decoder.partial(), b"");
        }
    }

    #[test]
    fn a_recorded_run_of_5_0_2_is_read() {
        let mut decoder = Decoder::new(Family::Mpich5_0_2, 2);
        decoder.push(&words("48594400 00000000 00000000"));
        assert_eq!(all(&mut decoder), [Upward::Init { proxy: 0 }]);
        decoder.push(&words("05000000 08000000 00000000 00000000 00000000 00000000 01000000 02000000"));
        decoder.push(&words("07000000 15000000 00000000 00000000 01000000 ffffffff"));
        decoder.push(b"cmd=mput k1=v1 k0=v0\n");
        decoder.push(&words("06000000 08000000 00000000 00000000 00000000 00000000 00000000 00000000"));
        assert_eq!(
            all(&mut decoder),
            [
                Upward::Pids(vec![1, 2]),
                Upward::Request { route: -1, text: b"cmd=mput k1=v1 k0=v0\n".to_vec() },
                Upward::Ended(vec![0, 0])
            ]
        );
    }

    #[test]
    fn frames_are_written_as_recorded() {
        let wide = Address { family: Family::Mpich3_4, group: 0, proxy: 0 };
        let text = b"cmd=keyval_cache k0=v0 k1=v1 \n";
        let mut expected = words("02000000 1e000000 05000000 01000000 ffffffff ffffffff ffffffff ffffffff");
        expected.extend(text);
        assert_eq!(wide.response(5, text), expected);
        let grouped = Address { family: Family::Mpich4_2, group: 1, proxy: 2 };
        assert_eq!(
            wide.cache(&[(b"k".to_vec(), b"a b".to_vec())]),
            wide.response(0, b"cmd=keyval_cache k=a b\n")
        );
        let escaped = grouped.response(0, b"cmd=keyval_cache k=a\\ b l=\n");
        assert_eq!(grouped.cache(&[(b"k".to_vec(), b"a b".to_vec()), (b"l".to_vec(), Vec::new())]), escaped);
        assert_eq!(
            grouped.barrier_out(Some(b"WORLD")),
            grouped.response(0, b"cmd=barrier_out group=WORLD\n")
        );
        let mut expected = words("01000000 00000000 01000000 02000000 00000000 00000000 02000000 07000000");
        expected.extend(b"--exec\0");
        expected.extend(words("01000000 00"));
        assert_eq!(grouped.proc_info(&[b"--exec".to_vec(), Vec::new()]), expected);
    }

    #[test]
    fn what_is_out_of_step_is_told_and_bounded() {
        for (family, init) in [
            (Family::Mpich3_4, "48594400 00000000"),
            (Family::Mpich4_1, "00000000"),
            (Family::Mpich4_1, "48594400 00000000 00000000"),
            (Family::Mpich4_2, "23212f62 696e2f73 680a"),
        ] {
            let mut decoder = Decoder::new(family, 1);
            decoder.push(&words(init));
            assert!(matches!(decoder.next(), Err(CodecError::Init { .. })), "{init}");
        }
        for (frame, error) in [
            ("07000000 ffffffff", CodecError::Length { command: 7, length: -1 }),
            ("08000000 ffffff7f", CodecError::Length { command: 8, length: i32::MAX }),
            ("63000000 00000000", CodecError::Command(99)),
        ] {
            let mut decoder = Decoder::new(Family::Mpich4_1, 1);
            decoder.push(&words("48594400 00000000"));
            all(&mut decoder);
            decoder.push(&words(&format!("{frame} 00000000 00000000 00000000 00000000")));
            assert_eq!(decoder.next(), Err(error));
        }
    }
}
