//! A reply on its way to become bytes, open to every change.

use pmi_reference::{ReplyHeader, ReplyParts};
use pmi_wire::{Framing, Proc};

/// How the length of a frame is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Blanks before it, as the draft has it.
    Right,
    /// Blanks behind it.
    Left,
    /// Zeros before it.
    Zeros,
    /// This, whatever the length is.
    Text(&'static str),
}

/// A reply in tuples.
#[derive(Debug, Clone)]
pub(crate) struct ReplyDraft {
    /// The process that gets it.
    pub to: Proc,
    /// The form of the reply.
    header: ReplyHeader,
    /// `cmd` first, then `rc`, the operation's own and `msg`; none for the answer to abort.
    pub tuples: Vec<(Vec<u8>, Vec<u8>)>,
    /// What stands before the first tuple.
    pub before: &'static [u8],
    /// What parts the tuples.
    pub between: &'static [u8],
    /// What ends the message.
    pub end: &'static [u8],
    /// How often it is sent.
    pub copies: usize,
    /// Sent behind it, as it is.
    pub after: Vec<u8>,
    /// How the length before it is written, if it is a frame.
    pub length: Option<Length>,
    /// Added to that length.
    pub lengthened: i64,
    /// True if semicolons in values are doubled.
    pub doubles: bool,
}

impl ReplyDraft {
    pub(crate) fn new(to: Proc, reply: &ReplyParts) -> Self {
        let is_frame = reply.header.framing == Framing::Frames;
        let (between, end): (&[u8], &[u8]) = if is_frame { (b";", b";") } else { (b" ", b"\n") };
        Self {
            to,
            header: reply.header.clone(),
            tuples: reply.tuples(),
            before: b"",
            between,
            end,
            copies: 1,
            after: Vec::new(),
            length: is_frame.then_some(Length::Right),
            lengthened: 0,
            doubles: is_frame,
        }
    }

    /// The key of a field in this dialect, by its name in the protocol table.
    fn key<'a>(&self, name: &'a str) -> &'a str {
        self.header.key(name)
    }

    /// The value of a field.
    pub(super) fn get(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let key = self.key(name);
        self.tuples.iter_mut().find(|(k, _)| k == key.as_bytes()).map(|(_, v)| v)
    }

    /// Replaces the value of a key, or adds the tuple at the end.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        match self.get(key) {
            Some(old) => *old = value.into(),
            None => self.add(key, value),
        }
    }

    /// Adds a tuple at the end.
    pub(super) fn add(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        self.tuples.push((self.key(key).as_bytes().to_vec(), value.into()));
    }

    /// Makes a success of a failure or a miss, with this result.
    pub(super) fn succeed(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.tuples.retain(|(key, _)| !matches!(&key[..], b"msg" | b"errmsg"));
        self.set("rc", "0");
        if let Some(found) = self.get("found") {
            *found = b"TRUE".to_vec();
        }
        self.set(name, value);
    }

    /// Removes the fields of these names, or all others.
    pub(super) fn retain(&mut self, names: &[&str], keep: bool) {
        let keys: Vec<&str> = names.iter().map(|name| self.key(name)).collect();
        self.tuples.retain(|(key, _)| keys.iter().any(|k| k.as_bytes() == key) == keep);
    }

    /// Adds a tuple behind `cmd`.
    pub(super) fn insert(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        let at = self.tuples.len().min(1);
        self.tuples.insert(at, (key.as_bytes().to_vec(), value.into()));
    }

    /// Gives a tuple another key.
    pub(super) fn rename(&mut self, key: &str, new: &str) {
        let key = self.key(key);
        for (k, _) in &mut self.tuples {
            if k == key.as_bytes() {
                *k = new.as_bytes().to_vec();
            }
        }
    }

    /// Moves a tuple to another place, if it is there.
    pub(super) fn move_to(&mut self, key: &str, place: usize) {
        if let Some(at) = self.tuples.iter().position(|(k, _)| k == key.as_bytes()) {
            let tuple = self.tuples.remove(at);
            self.tuples.insert(place.min(self.tuples.len()), tuple);
        }
    }

    /// Reverses the tuples after the first.
    pub(super) fn reverse(&mut self) {
        if let Some((_, rest)) = self.tuples.split_first_mut() {
            rest.reverse();
        }
    }

    /// Returns whether it has a process mapping for a value.
    pub(super) fn has_mapping(&mut self) -> bool {
        self.get("value").is_some_and(|value| value.starts_with(b"(vector"))
    }

    /// Makes a failure of it, without the operation's own tuples.
    pub(super) fn fail(&mut self) {
        self.tuples.retain(|(key, _)| matches!(&key[..], b"cmd" | b"thrid"));
        self.add("rc", if self.length.is_some() { "1" } else { "-1" });
    }

    /// What is sent, in one piece.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut line = self.before.to_vec();
        for (i, (key, value)) in self.tuples.iter().enumerate() {
            if i > 0 {
                line.extend_from_slice(self.between);
            }
            line.extend_from_slice(key);
            line.push(b'=');
            match self.doubles {
                true => value
                    .iter()
                    .for_each(|b| line.extend(std::iter::repeat_n(*b, 1 + usize::from(*b == b';')))),
                false => line.extend_from_slice(value),
            }
        }
        line.extend_from_slice(self.end);
        if let Some(length) = self.length {
            let number = line.len() as i64 + self.lengthened;
            let header = match length {
                Length::Right => format!("{number:>6}").into_bytes(),
                Length::Left => format!("{number:<6}").into_bytes(),
                Length::Zeros => format!("{number:06}").into_bytes(),
                Length::Text(text) => text.as_bytes().to_vec(),
            };
            line.splice(0..0, header);
        }
        let mut out = line.repeat(self.copies);
        out.extend_from_slice(&self.after);
        out
    }
}
