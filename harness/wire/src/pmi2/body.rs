//! Splits the body of a frame into `key=value` tuples that each end in a semicolon, without interpreting them.

use std::borrow::Cow;

use memchr::memchr;
use thiserror::Error;

use crate::Tuple;

/// The interpretation of two consecutive semicolons.
///
/// The draft requires semicolons in values to be doubled. No server in use undoes the doubling, but some libraries do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SemicolonReading {
    /// As in the draft: a single semicolon that is part of the value.
    Doubled,
    /// As in most implementations: the end of a tuple, followed by an empty tuple.
    Plain,
}

/// An error in a body. Offsets count bytes from the start of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BodyError {
    /// The body is empty.
    #[error("the body is empty")]
    Empty,
    /// The last tuple has no semicolon. Every tuple, including the last, must end in a semicolon.
    #[error("the body does not end in a semicolon")]
    Unterminated,
    /// Text before a semicolon has no `=` or no key.
    #[error("no key=value tuple at offset {at}")]
    Malformed {
        /// The offset at which the text begins.
        at: usize,
    },
}

/// A body that is a series of tuples. Only [`Body::value`] unescapes values.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    bytes: &'a [u8],
    semicolons: SemicolonReading,
}

impl<'a> Body<'a> {
    /// Parses a body. Does not allocate memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is empty, or contains a malformed or unterminated tuple.
    pub fn parse(bytes: &'a [u8], semicolons: SemicolonReading) -> Result<Self, BodyError> {
        if bytes.is_empty() {
            return Err(BodyError::Empty);
        }
        for tuple in (BodyTuples { bytes, at: 0, semicolons }) {
            tuple?;
        }
        Ok(Self { bytes, semicolons })
    }

    /// Returns the tuples in order, without unescaping their values.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple<'a>> + use<'a> {
        // `parse` has read the same tuples without an error.
        BodyTuples { bytes: self.bytes, at: 0, semicolons: self.semicolons }.map_while(Result::ok)
    }

    /// Returns the value of the first tuple with this key, without unescaping it.
    pub fn raw(&self, key: impl AsRef<[u8]>) -> Option<&'a [u8]> {
        self.tuples().find(|tuple| tuple.key == key.as_ref()).map(|tuple| tuple.value)
    }

    /// Returns the value of the first tuple with this key.
    ///
    /// If the reading requires it, doubled semicolons are replaced with single semicolons.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Cow<'a, [u8]>> {
        self.raw(key).map(|raw| self.unescape(raw))
    }

    /// Unescapes a value. If the reading requires it, doubled semicolons are replaced with single semicolons.
    pub(crate) fn unescape<'b>(&self, raw: &'b [u8]) -> Cow<'b, [u8]> {
        match self.semicolons {
            SemicolonReading::Doubled => unescape_semicolons(raw),
            SemicolonReading::Plain => Cow::Borrowed(raw),
        }
    }

    /// Returns the command: the value of `cmd`, which must be the first tuple.
    pub fn cmd(&self) -> Option<&'a [u8]> {
        self.tuples().next().filter(|tuple| tuple.key == b"cmd").map(|tuple| tuple.value)
    }

    /// Returns whether a key occurs more than once.
    pub fn has_duplicate(&self, key: impl AsRef<[u8]>) -> bool {
        self.tuples().filter(|tuple| tuple.key == key.as_ref()).nth(1).is_some()
    }
}

/// Returns a value after replacing doubled semicolons with single semicolons.
fn unescape_semicolons(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b';', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr(b';', rest) {
        out.extend_from_slice(&rest[..=at]);
        rest = &rest[(at + 2).min(rest.len())..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Appends a tuple, doubling the semicolons in its value as the draft requires.
pub(crate) fn write_tuple(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    for byte in value {
        out.push(*byte);
        if *byte == b';' {
            out.push(b';');
        }
    }
    out.push(b';');
}

/// The maximum length of a key in bytes (draft, "The protocol"), without a NUL.
pub const KEY_MAX: usize = 64;
/// The maximum length of a value in bytes (draft, "The protocol"), without a NUL.
pub const VALUE_MAX: usize = 1024;

/// Returns whether the draft allows this key: 1 to 64 letters, digits, hyphens and underscores.
pub fn is_key(key: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=KEY_MAX).contains(&key.len()) && key.iter().all(allowed)
}

struct BodyTuples<'a> {
    bytes: &'a [u8],
    at: usize,
    semicolons: SemicolonReading,
}

impl<'a> Iterator for BodyTuples<'a> {
    type Item = Result<Tuple<'a>, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (from, mut end) = (self.at, self.at);
        if from >= self.bytes.len() {
            return None;
        }
        self.at = self.bytes.len();
        loop {
            let Some(found) = memchr(b';', &self.bytes[end..]) else {
                return Some(Err(BodyError::Unterminated));
            };
            end += found;
            if self.semicolons == SemicolonReading::Doubled && self.bytes.get(end + 1) == Some(&b';') {
                end += 2;
                continue;
            }
            break;
        }
        let tuple = &self.bytes[from..end];
        match memchr(b'=', tuple).filter(|at| *at > 0) {
            Some(at) => {
                self.at = end + 1;
                Some(Ok(Tuple { key: &tuple[..at], value: &tuple[at + 1..] }))
            }
            None => Some(Err(BodyError::Malformed { at: from })),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::SemicolonReading::{Doubled, Plain};
    use super::*;

    fn show(bytes: &[u8], semicolons: SemicolonReading) -> String {
        match Body::parse(bytes, semicolons) {
            Ok(body) => {
                let key = |t: Tuple<'_>| {
                    let value = body.value(t.key).unwrap();
                    format!("{}=<{}>", t.key.escape_ascii(), value.escape_ascii())
                };
                body.tuples().map(key).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[rstest]
    #[case(b"cmd=kvs-put;key=a b;value=\n=\0\xff;", "cmd=<kvs-put> key=<a b> value=<\\n=\\x00\\xff>")]
    #[case(b"cmd=finalize;thrid=;", "cmd=<finalize> thrid=<>")]
    #[case(b"", "the body is empty")]
    #[case(b"cmd=finalize", "the body does not end in a semicolon")]
    #[case(b"cmd=finalize;x;", "no key=value tuple at offset 13")]
    #[case(b"=x;", "no key=value tuple at offset 0")]
    #[case(b";", "no key=value tuple at offset 0")]
    fn both_readings_agree_without_semicolons_in_values(#[case] body: &[u8], #[case] shown: &str) {
        assert_eq!(show(body, Doubled), shown);
        assert_eq!(show(body, Plain), shown);
    }

    #[rstest]
    #[case(b"v=a;;b;", "v=<a;b>", "no key=value tuple at offset 4")]
    #[case(b"v=a;;b=c;", "v=<a;b=c>", "no key=value tuple at offset 4")]
    #[case(b"v=;;;;;", "v=<;;>", "no key=value tuple at offset 3")]
    #[case(b"v=a;;", "the body does not end in a semicolon", "no key=value tuple at offset 4")]
    fn readings_differ_for_double_semicolons(
        #[case] body: &[u8],
        #[case] doubled: &str,
        #[case] plain: &str,
    ) {
        assert_eq!(show(body, Doubled), doubled);
        assert_eq!(show(body, Plain), plain);
    }

    #[test]
    fn accepts_keys_that_the_draft_allows() {
        assert!(is_key(b"infokey0") && is_key(b"pmi-version") && is_key(b"_") && is_key(&[b'k'; 64]));
        assert!(!is_key(b"") && !is_key(b"a b") && !is_key("\u{e9}".as_bytes()) && !is_key(&[b'k'; 65]));
    }
}
