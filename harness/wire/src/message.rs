//! One line as a series of `key=value` tuples, before it means anything.

use crate::Operation;
use crate::grammar::{first_bad_byte, is_blank};
use memchr::{memchr2, memchr2_iter};
use thiserror::Error;

/// Where a value ends that may hold blanks.
///
/// RFC 13 defines `value` and `msg` as `string`, blanks included, and at the same time asks parsers to allow tuples
/// in any order with blanks between them. Both cannot be had; real implementations split at blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueReading {
    /// The ABNF. `value` of `put` and `get_result` runs to the end of the line, trailing blanks included. `msg` of a
    /// response runs to the end of the line or to the next tuple that the response's rule defines and that was not
    /// seen before, because Hydra writes `rc=0 msg=success value=V`. Every other value ends at a blank, as do
    /// values that stand before `cmd`.
    ToEndOfLine,
    /// Most implementations. Every value ends at a blank.
    ToBlank,
}

/// A `key=value` tuple. The key is not empty, the value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuple<'a> {
    /// What stands before the first `=`.
    pub key: &'a [u8],
    /// What stands behind it.
    pub value: &'a [u8],
}

/// Why a line is no message. Offsets count bytes from the start of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// There is nothing on the line, or nothing but blanks.
    #[error("the line is empty")]
    Empty,
    /// A byte is neither blank, tab nor visible ASCII.
    #[error("byte 0x{byte:02x} at offset {at} is neither blank, tab nor visible ASCII")]
    BadByte {
        /// The byte's offset.
        at: usize,
        /// The byte.
        byte: u8,
    },
    /// What stands between blanks has no `=`, or nothing before it.
    #[error("no key=value tuple at offset {at}")]
    Malformed {
        /// Where the would-be tuple begins.
        at: usize,
    },
}

/// A line that is a series of tuples (RFC 13, "Wire Protocol").
///
/// What the RFC recommends to tolerate is: any order, more blanks (also before and behind the tuples), more keys.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    line: &'a [u8],
    reading: ValueReading,
    cmd: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a line, given without its newline. Allocates nothing.
    ///
    /// # Errors
    ///
    /// See [`MessageError`]. A bad byte anywhere is reported before a malformed tuple.
    pub fn parse(line: &'a [u8], reading: ValueReading) -> Result<Self, MessageError> {
        if let Some(at) = first_bad_byte(line) {
            return Err(MessageError::BadByte { at, byte: line[at] });
        }
        let mut cmd = None;
        let mut empty = true;
        for tuple in Tuples::new(line, reading) {
            let tuple = tuple.map_err(|at| MessageError::Malformed { at })?;
            empty = false;
            if tuple.key == b"cmd" {
                cmd = cmd.or(Some(tuple.value));
            }
        }
        if empty { Err(MessageError::Empty) } else { Ok(Self { line, reading, cmd }) }
    }

    /// The tuples, in the order of the line.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple<'a>> + use<'a> {
        // `parse` has walked the same tuples and found no error.
        Tuples::new(self.line, self.reading).map_while(Result::ok)
    }

    /// The value of the first tuple with this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&'a [u8]> {
        self.tuples().find(|tuple| tuple.key == key.as_ref()).map(|tuple| tuple.value)
    }

    /// How many tuples have this key.
    pub fn count(&self, key: impl AsRef<[u8]>) -> usize {
        self.tuples().filter(|tuple| tuple.key == key.as_ref()).count()
    }

    /// The command word: the value of the first `cmd`.
    pub fn cmd(&self) -> Option<&'a [u8]> {
        self.cmd
    }

    /// The line as given.
    pub fn line(&self) -> &'a [u8] {
        self.line
    }

    /// The first value of each key; fails with the first key that is repeated.
    pub(crate) fn fields<const N: usize>(
        &self,
        keys: [&'static str; N],
    ) -> Result<[Option<&'a [u8]>; N], &'static str> {
        let mut values = [None; N];
        for tuple in self.tuples() {
            if let Some(i) = keys.iter().position(|key| key.as_bytes() == tuple.key)
                && values[i].replace(tuple.value).is_some()
            {
                return Err(keys[i]);
            }
        }
        Ok(values)
    }
}

struct Tuples<'a> {
    line: &'a [u8],
    at: usize,
    reading: ValueReading,
    /// Whether `cmd` was met, and what it asks for.
    cmd_seen: bool,
    long_value: bool,
    /// The keys of the response's rule, if it is one, and those of them already met, as bits.
    response: Option<&'static [&'static str]>,
    seen: u8,
}

impl<'a> Tuples<'a> {
    fn new(line: &'a [u8], reading: ValueReading) -> Self {
        Self { line, at: 0, reading, cmd_seen: false, long_value: false, response: None, seen: 0 }
    }

    fn value_end(&self, key: &[u8], value: &[u8]) -> usize {
        if self.long_value && key == b"value" {
            return value.len();
        }
        if let Some(keys) = self.response
            && key == b"msg"
        {
            return self.msg_end(keys, value);
        }
        memchr2(b' ', b'\t', value).unwrap_or(value.len())
    }

    fn msg_end(&self, keys: &[&str], value: &[u8]) -> usize {
        let mut run = 0;
        for blank in memchr2_iter(b' ', b'\t', value) {
            if blank == 0 || !is_blank(value[blank - 1]) {
                run = blank;
            }
            let next = &value[blank + 1..];
            let starts_tuple = keys.iter().enumerate().any(|(i, key)| {
                self.seen & (1 << i) == 0
                    && next.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
            });
            if starts_tuple {
                return run;
            }
        }
        value.len()
    }

    fn note(&mut self, tuple: Tuple<'_>) {
        if self.reading == ValueReading::ToBlank {
            return;
        }
        if !self.cmd_seen && tuple.key == b"cmd" {
            self.cmd_seen = true;
            self.response = Operation::from_response_cmd(tuple.value).map(Operation::response_keys);
            self.long_value = matches!(tuple.value, b"put" | b"get_result");
            // Keys met before `cmd` count as met.
            let before = &self.line[..self.at];
            for earlier in Tuples::new(before, ValueReading::ToBlank).map_while(Result::ok) {
                self.mark(earlier.key);
            }
        } else {
            self.mark(tuple.key);
        }
    }

    fn mark(&mut self, key: &[u8]) {
        if let Some(i) = self.response.and_then(|keys| keys.iter().position(|k| k.as_bytes() == key)) {
            self.seen |= 1 << i;
        }
    }
}

impl<'a> Iterator for Tuples<'a> {
    type Item = Result<Tuple<'a>, usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.line[self.at..];
        let blanks = rest.iter().position(|byte| !is_blank(*byte))?;
        let at = self.at + blanks;
        let rest = &rest[blanks..];
        let key_end = rest.iter().position(|byte| matches!(byte, b'=' | b' ' | b'\t'));
        let Some(key_end) = key_end.filter(|end| *end > 0 && rest[*end] == b'=') else {
            self.at = self.line.len();
            return Some(Err(at));
        };
        let (key, value) = (&rest[..key_end], &rest[key_end + 1..]);
        let end = self.value_end(key, value);
        let tuple = Tuple { key, value: &value[..end] };
        self.at = at + key_end + 1 + end;
        self.note(tuple);
        Some(Ok(tuple))
    }
}
