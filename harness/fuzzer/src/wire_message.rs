//! What was said in one direction of a connection, cut into messages as its protocol has them. What campaigns send may be neither,
//! so that the first bytes tell line and frame apart, and not what was negotiated.

use pmi_wire::{HEADER, frame_length};

/// A message, whole or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireMessage {
    /// A line, without its newline.
    Line(Vec<u8>),
    /// What is in a frame.
    Body(Vec<u8>),
    /// Six bytes that are no length; nothing behind them can be read.
    NoFrame,
}

/// One direction of a connection of PMI-2. What begins with `cmd=` is read as a line: the first exchange is made of them, and no
/// frame begins so.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reader {
    rest: Vec<u8>,
    lost: bool,
}

impl Reader {
    /// Reads on; the messages that are complete now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<WireMessage> {
        if self.lost {
            return vec![WireMessage::NoFrame];
        }
        self.rest.extend_from_slice(bytes);
        let mut all = Vec::new();
        let mut at = 0;
        loop {
            let rest = &self.rest[at..];
            if rest.starts_with(b"cmd=") {
                let Some(end) = memchr::memchr(b'\n', rest) else { break };
                all.push(WireMessage::Line(rest[..end].to_vec()));
                at += end + 1;
                continue;
            }
            let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { break };
            let Some(length) = frame_length(*header) else {
                (self.lost, at) = (true, self.rest.len());
                all.push(WireMessage::NoFrame);
                break;
            };
            let Some(body) = body.get(..length) else { break };
            all.push(WireMessage::Body(body.to_vec()));
            at += HEADER + length;
        }
        self.rest.drain(..at);
        all
    }

    /// Whether a message has begun and is not complete.
    pub(crate) fn is_partial(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_each_other_however_they_are_cut() {
        let text = b"cmd=init pmi_version=2\n    13cmd=finalize;000000    -1cmd=finalize;";
        let expected = [
            WireMessage::Line(b"cmd=init pmi_version=2".to_vec()),
            WireMessage::Body(b"cmd=finalize;".to_vec()),
            WireMessage::Body(Vec::new()),
            WireMessage::NoFrame,
        ];
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let mut all: Vec<WireMessage> = text.chunks(size).flat_map(|chunk| reader.push(chunk)).collect();
            // What cannot be read stays so.
            all.dedup();
            assert_eq!(all, expected, "{size}");
            assert!(!reader.is_partial());
        }
    }
}
