//! What was said in one direction of a connection, cut into messages as its protocol has them.

use std::collections::BTreeMap;

use pmi_judge::event::{Event, What};
use pmi_scenario::ast::Dialect;
use pmi_wire::{HEADER, Proc, frame_length};

use super::failure::MessageKind;

/// A message, whole or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
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
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Said> {
        if self.lost {
            return vec![Said::NoFrame];
        }
        self.rest.extend_from_slice(bytes);
        let mut all = Vec::new();
        let mut at = 0;
        loop {
            let rest = &self.rest[at..];
            if rest.starts_with(b"cmd=") {
                let Some(end) = memchr::memchr(b'\n', rest) else { break };
                all.push(Said::Line(rest[..end].to_vec()));
                at += end + 1;
                continue;
            }
            let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { break };
            let Some(length) = frame_length(*header) else {
                (self.lost, at) = (true, self.rest.len());
                all.push(Said::NoFrame);
                break;
            };
            let Some(body) = body.get(..length) else { break };
            all.push(Said::Body(body.to_vec()));
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

/// What all processes say to a server, write by write.
pub(crate) struct Writes {
    dialect: Dialect,
    readers: BTreeMap<Proc, Reader>,
    /// What has not come to the end of a line of PMI-1, and how many requests it has.
    begun: BTreeMap<Proc, (Vec<u8>, usize)>,
}

impl Writes {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, readers: BTreeMap::new(), begun: BTreeMap::new() }
    }

    /// What kind of message the connection of a process holds at the end of a write, and how many requests it has completed.
    pub(crate) fn write(&mut self, proc: Proc, bytes: &[u8]) -> (MessageKind, usize) {
        if self.dialect == Dialect::Pmi1 {
            // A spawn is one request of many lines.
            let starts = |line: &&[u8]| line.starts_with(b"cmd=") || line.starts_with(b"mcmd=spawn");
            let (mut all, counted) = self.begun.remove(&proc).unwrap_or_default();
            all.extend_from_slice(bytes);
            let count = all.split(|b| *b == b'\n').filter(starts).count();
            let kind = MessageKind::of(&all);
            if !all.ends_with(b"\n") {
                self.begun.insert(proc, (all, count));
            }
            return (kind, count - counted.min(count));
        }
        let reader = self.readers.entry(proc).or_default();
        let said = reader.push(bytes);
        let kind = match said.last() {
            Some(last) if !reader.is_partial() => MessageKind::of_said(last),
            _ => MessageKind::Partial,
        };
        (kind, said.len())
    }
}

/// The kind of message that each write to the server ends with, by the number of its event.
pub(crate) fn kinds(events: &[Event], dialect: Dialect) -> BTreeMap<u64, (MessageKind, usize)> {
    let mut writes = Writes::new(dialect);
    let kind = |event: &Event| match &event.what {
        What::ToServer { proc, bytes } => Some((event.seq, writes.write(*proc, &bytes.0))),
        _ => None,
    };
    events.iter().filter_map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_each_other_however_they_are_cut() {
        let text = b"cmd=init pmi_version=2\n    13cmd=finalize;000000    -1cmd=finalize;";
        let expected = [
            Said::Line(b"cmd=init pmi_version=2".to_vec()),
            Said::Body(b"cmd=finalize;".to_vec()),
            Said::Body(Vec::new()),
            Said::NoFrame,
        ];
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let mut all: Vec<Said> = text.chunks(size).flat_map(|chunk| reader.push(chunk)).collect();
            // What cannot be read stays so.
            all.dedup();
            assert_eq!(all, expected, "{size}");
            assert!(!reader.is_partial());
        }
    }

    #[test]
    fn a_line_in_several_writes_is_one_request() {
        let [one, other] = [0, 1].map(|rank| Proc { group: 0, rank });
        let mut writes = Writes::new(Dialect::Pmi1);
        for (proc, bytes, expected) in [
            (one, &b"cmd=get kvsname=a key=b"[..], ("partial", 1)),
            (other, b"cmd=get_appnum\n", ("get_appnum", 1)),
            (one, b"c", ("partial", 0)),
            (one, b"\n", ("get", 0)),
            (one, b"mcmd=spawn\nnpr", ("partial", 1)),
            (one, b"ocs=1\nendcmd\n", ("spawn", 0)),
            (one, b"cmd=get_appnum\ncmd=finalize\n", ("finalize", 2)),
        ] {
            let (kind, requests) = writes.write(proc, bytes);
            assert_eq!((kind.to_string().as_str(), requests), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_write_is_what_it_ends_with() {
        let proc = Proc { group: 0, rank: 0 };
        let mut writes = Writes::new(Dialect::Pmi2);
        for (bytes, expected) in [
            (&b"cmd=init pmi_version=2 pmi_subversion=0\n"[..], ("init", 1)),
            (b"0000", ("partial", 0)),
            (b"14cmd=job-getid;", ("job-getid", 1)),
            (b"    14cmd=job-getid;    16cmd=kvs-put;k=", ("partial", 1)),
            (b"v;", ("bad-kvs-put", 1)),
            (b"     9cmd=frob;", ("unknown-command", 1)),
        ] {
            let (kind, requests) = writes.write(proc, bytes);
            assert_eq!((kind.to_string().as_str(), requests), expected, "{}", bytes.escape_ascii());
        }
    }
}
