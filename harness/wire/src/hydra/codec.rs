//! Decodes messages from proxies and encodes messages to proxies, for every protocol family.

use super::family::Family;
use super::intel;
use super::mpich::{self, MpichDecoder};
use super::record::{CodecError, FrameAddress, ReceivedFrame};
use super::unread::Unread;
use super::vector::GroupLaunch;

/// Decodes the messages from a single proxy.
#[derive(Debug)]
pub struct Decoder {
    unread: Unread,
    /// The decoder of MPICH's protocol; `None` for Intel's protocol, which has no state.
    mpich: Option<MpichDecoder>,
}

impl Decoder {
    /// Creates a decoder for a proxy that starts `processes` processes.
    pub fn new(family: Family, processes: usize) -> Self {
        let mpich = (family != Family::Intel).then(|| MpichDecoder::new(family, processes));
        Self { unread: Unread::default(), mpich }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.push(bytes);
    }

    /// Returns the bytes of an incomplete record.
    pub fn partial(&self) -> &[u8] {
        self.unread.rest()
    }

    /// Returns the next complete record.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes do not follow the protocol. After an error, no further messages from the proxy can be decoded.
    #[expect(
        clippy::should_implement_trait,
        reason = "next() returns errors, and may return a message after None"
    )]
    pub fn next(&mut self) -> Result<Option<ReceivedFrame>, CodecError> {
        match &mut self.mpich {
            Some(decoder) => decoder.next(&mut self.unread),
            None => intel::next(&mut self.unread),
        }
    }
}

impl FrameAddress {
    /// Encodes the messages that start a process group. The group's first process receives an empty standard input.
    pub fn launch(self, launch: &GroupLaunch) -> Vec<u8> {
        match self.family {
            Family::Intel => intel::launch(launch),
            _ => mpich::launch(self, launch),
        }
    }

    /// Encodes a PMI-1 message for the client that `route` identifies.
    pub fn response(self, route: i32, text: &[u8]) -> Vec<u8> {
        match self.family {
            Family::Intel => intel::response(self.group, self.proxy, route, text),
            _ => mpich::response(self, route, text),
        }
    }

    /// Encodes a PMI-2 message, including its length prefix, for the client that `route` identifies.
    pub fn frame(self, route: i32, frame: &[u8]) -> Vec<u8> {
        match self.family {
            // Intel's proxy is not known to support PMI-2, but it forwards text unchanged.
            Family::Intel => intel::response(self.group, self.proxy, route, frame),
            _ => mpich::message(self, route, 2, frame),
        }
    }

    /// Encodes the release of a proxy's clients from a barrier. `name` selects the barrier if the family's barriers have names.
    pub fn barrier_out(self, name: Option<&[u8]>) -> Vec<u8> {
        match self.family {
            Family::Intel => intel::barrier_out(),
            _ => mpich::barrier_out(self, name),
        }
    }

    /// Encodes text from a scenario. If the family does not transmit an operation as text, encodes the operation in the family's form.
    pub fn verbatim(self, route: i32, barrier: Option<&[u8]>, text: &[u8]) -> Vec<u8> {
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

    /// Encodes key-value pairs for the proxy's cache, in as many messages as necessary.
    pub fn cache(self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        match self.family {
            _ if pairs.is_empty() => Vec::new(),
            Family::Intel => intel::cache(self.group, pairs),
            _ => mpich::cache(self, pairs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hydra::record::ProxyMessage;

    fn words(text: &str) -> Vec<u8> {
        // Recorded bytes: each group of eight hex digits is an int in memory order.
        text.split_whitespace()
            .flat_map(|word| {
                (0..word.len()).step_by(2).map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap())
            })
            .collect()
    }

    fn all(decoder: &mut Decoder) -> Vec<ProxyMessage> {
        std::iter::from_fn(|| decoder.next().unwrap()).map(|r| r.message).collect()
    }

    #[test]
    fn encodes_scenario_messages_for_the_family() {
        let address = |family| FrameAddress { family, group: 0, proxy: 0 };
        let (old, new) = (address(Family::Mpich4_2), address(Family::Mpich5_0_2));
        let out = &b"cmd=barrier_out\n"[..];
        assert_eq!(old.verbatim(7, None, out), old.barrier_out(None));
        assert_eq!(new.verbatim(7, None, out), new.barrier_out(Some(b"WORLD")));
        assert_eq!(new.verbatim(7, Some(b"1,2"), out), new.barrier_out(Some(b"1,2")));
        let intel = address(Family::Intel);
        assert_eq!(intel.verbatim(7, None, out), intel.barrier_out(None));
        let pairs = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"".to_vec())];
        assert_eq!(intel.verbatim(7, None, b"cmd=keyval_cache a=1 junk b=\n"), intel.cache(&pairs));
        // Any other text is sent unchanged.
        for text in [&b"cmd=get_result rc=0\n"[..], b"cmd=barrier_out rc=1\n", b"junk\0", b""] {
            for address in [old, new, intel] {
                assert_eq!(address.verbatim(7, None, text), address.response(7, text));
            }
        }
    }

    #[test]
    fn decodes_recorded_mpich_3_4_3_run() {
        let mut decoder = Decoder::new(Family::Mpich3_4, 2);
        decoder.push(&words("00000000"));
        assert_eq!(all(&mut decoder), [ProxyMessage::Init { proxy: 0 }]);
        let blank = "ffffffff ".repeat(4);
        let mut bytes = words(&format!("05000000 {}", "ffffffff ".repeat(7)));
        bytes.extend(words("0b000000 0c000000"));
        bytes.extend(words(&format!("07000000 13000000 05000000 01000000 {blank}")));
        bytes.extend(b"cmd=put k0=v0 k1=v1");
        bytes.extend(words(&format!("07000000 0e000000 05000000 01000000 {blank}")));
        bytes.extend(b"cmd=barrier_in");
        bytes.extend(words(&format!("06000000 {}", "ffffffff ".repeat(7))));
        bytes.extend(words("00000000 00030000"));
        let request = |text: &[u8]| ProxyMessage::Request { route: 5, text: text.to_vec() };
        let expected = [
            ProxyMessage::Pids(vec![11, 12]),
            request(b"cmd=put k0=v0 k1=v1"),
            request(b"cmd=barrier_in"),
            ProxyMessage::Ended(vec![0, 768]),
        ];
        // The result does not depend on how the bytes are split.
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
    fn decodes_recorded_mpich_5_0_2_run() {
        let mut decoder = Decoder::new(Family::Mpich5_0_2, 2);
        decoder.push(&words("48594400 00000000 00000000"));
        assert_eq!(all(&mut decoder), [ProxyMessage::Init { proxy: 0 }]);
        decoder.push(&words("05000000 08000000 00000000 00000000 00000000 00000000 01000000 02000000"));
        decoder.push(&words("07000000 15000000 00000000 00000000 01000000 ffffffff"));
        decoder.push(b"cmd=mput k1=v1 k0=v0\n");
        decoder.push(&words("06000000 08000000 00000000 00000000 00000000 00000000 00000000 00000000"));
        assert_eq!(
            all(&mut decoder),
            [
                ProxyMessage::Pids(vec![1, 2]),
                ProxyMessage::Request { route: -1, text: b"cmd=mput k1=v1 k0=v0\n".to_vec() },
                ProxyMessage::Ended(vec![0, 0])
            ]
        );
    }

    #[test]
    fn encodes_frames_as_recorded() {
        let wide = FrameAddress { family: Family::Mpich3_4, group: 0, proxy: 0 };
        let text = b"cmd=keyval_cache k0=v0 k1=v1 \n";
        let mut expected = words("02000000 1e000000 05000000 01000000 ffffffff ffffffff ffffffff ffffffff");
        expected.extend(text);
        assert_eq!(wide.response(5, text), expected);
        let grouped = FrameAddress { family: Family::Mpich4_2, group: 1, proxy: 2 };
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
    }

    #[test]
    fn rejects_invalid_init_records_and_frame_headers() {
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
