//! A response that has not been encoded yet, so that steps can change every part of it.

use std::rc::Rc;

use pmi_reference::{ResponseHeader, ResponseParts};
use pmi_wire::{Framing, Proc};

/// The format of a frame's length header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LengthFormat {
    /// The length preceded by spaces, as in the draft.
    RightAligned,
    /// The length followed by spaces.
    LeftAligned,
    /// The length with leading zeros.
    ZeroPadded,
    /// A fixed header, regardless of the length.
    Text(&'static str),
}

/// The key and the value of a tuple.
type SharedTuple = (Rc<[u8]>, Rc<Vec<u8>>);

/// A response as tuples. Each edit of a response is applied to a clone, so clones share keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseDraft {
    /// The process that receives the response.
    pub to: Proc,
    header: ResponseHeader,
    /// The tuples: `cmd`, `rc`, the operation's own fields and `msg`, in this order. The response to abort has no tuples.
    pub tuples: Vec<SharedTuple>,
    /// The bytes before the first tuple.
    pub prefix: &'static [u8],
    /// The bytes between two tuples.
    pub separator: &'static [u8],
    /// The bytes that end the message.
    pub terminator: &'static [u8],
    /// The number of times that the response is sent.
    pub copies: usize,
    /// Bytes to send after the response.
    pub suffix: Vec<u8>,
    /// The format of the length header, if the response is a frame.
    pub length: Option<LengthFormat>,
    /// A number to add to the length in the header.
    pub length_offset: i64,
    /// True if semicolons in values are doubled.
    pub doubles_semicolons: bool,
}

impl ResponseDraft {
    pub(crate) fn new(to: Proc, response: &ResponseParts) -> Self {
        let is_frame = response.header.framing == Framing::Frames;
        let (between, end): (&[u8], &[u8]) = if is_frame { (b";", b";") } else { (b" ", b"\n") };
        Self {
            to,
            header: response.header.clone(),
            tuples: response.tuples().into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
            prefix: b"",
            separator: between,
            terminator: end,
            copies: 1,
            suffix: Vec::new(),
            length: is_frame.then_some(LengthFormat::RightAligned),
            length_offset: 0,
            doubles_semicolons: is_frame,
        }
    }

    /// Returns the key that a field has in this dialect, given its name in the protocol table.
    fn key<'a>(&self, name: &'a str) -> &'a str {
        self.header.key(name)
    }

    /// Returns the value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&Vec<u8>> {
        let key = self.key(name).as_bytes();
        self.tuples.iter().find(|(k, _)| **k == *key).map(|(_, value)| &**value)
    }

    /// Returns the value of a field, to be changed.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let key = self.key(name).as_bytes();
        self.tuples.iter_mut().find(|(k, _)| **k == *key).map(|(_, value)| Rc::make_mut(value))
    }

    /// Replaces the value of a key, or adds the tuple at the end.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        match self.get_mut(key) {
            Some(old) => *old = value.into(),
            None => self.add(key, value),
        }
    }

    /// Adds a tuple at the end.
    pub(super) fn add(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        self.tuples.push((self.key(key).as_bytes().into(), Rc::new(value.into())));
    }

    /// Turns a failure or a miss into a success with this result.
    pub(super) fn succeed(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.tuples.retain(|(key, _)| !matches!(&**key, b"msg" | b"errmsg"));
        self.set("rc", "0");
        if let Some(found) = self.get_mut("found") {
            *found = b"TRUE".to_vec();
        }
        self.set(name, value);
    }

    /// Removes the fields with these names or, if `keep` is true, all other fields.
    pub(super) fn retain(&mut self, names: &[&str], keep: bool) {
        let keys: Vec<&str> = names.iter().map(|name| self.key(name)).collect();
        self.tuples.retain(|(key, _)| keys.iter().any(|k| *k.as_bytes() == **key) == keep);
    }

    /// Adds a tuple after `cmd`.
    pub(super) fn insert(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        let at = self.tuples.len().min(1);
        self.tuples.insert(at, (key.as_bytes().into(), Rc::new(value.into())));
    }

    pub(super) fn rename(&mut self, key: &str, new: &str) {
        let key = self.key(key);
        for (k, _) in &mut self.tuples {
            if **k == *key.as_bytes() {
                *k = new.as_bytes().into();
            }
        }
    }

    /// Moves a tuple to another position. Does nothing if the tuple does not exist.
    pub(super) fn move_to(&mut self, key: &str, place: usize) {
        if let Some(at) = self.tuples.iter().position(|(k, _)| **k == *key.as_bytes()) {
            let tuple = self.tuples.remove(at);
            self.tuples.insert(place.min(self.tuples.len()), tuple);
        }
    }

    /// Reverses the order of the tuples after the first.
    pub(super) fn reverse(&mut self) {
        if let Some((_, rest)) = self.tuples.split_first_mut() {
            rest.reverse();
        }
    }

    pub(super) fn has_mapping(&self) -> bool {
        self.get("value").is_some_and(|value| value.starts_with(b"(vector"))
    }

    /// Turns the response into a failure, without the operation's own tuples.
    pub(super) fn fail(&mut self) {
        self.tuples.retain(|(key, _)| matches!(&**key, b"cmd" | b"thrid"));
        self.add("rc", if self.length.is_some() { "1" } else { "-1" });
    }

    /// Returns the bytes to send, before they are divided into writes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut line = self.prefix.to_vec();
        for (i, (key, value)) in self.tuples.iter().enumerate() {
            if i > 0 {
                line.extend_from_slice(self.separator);
            }
            line.extend_from_slice(key);
            line.push(b'=');
            for part in value.split_inclusive(|b| self.doubles_semicolons && *b == b';') {
                line.extend_from_slice(part);
                if self.doubles_semicolons && part.ends_with(b";") {
                    line.push(b';');
                }
            }
        }
        line.extend_from_slice(self.terminator);
        if let Some(length) = self.length {
            let number = line.len() as i64 + self.length_offset;
            let header = match length {
                LengthFormat::RightAligned => format!("{number:>6}").into_bytes(),
                LengthFormat::LeftAligned => format!("{number:<6}").into_bytes(),
                LengthFormat::ZeroPadded => format!("{number:06}").into_bytes(),
                LengthFormat::Text(text) => text.as_bytes().to_vec(),
            };
            line.splice(0..0, header);
        }
        let mut out = line.repeat(self.copies);
        out.extend_from_slice(&self.suffix);
        out
    }
}
