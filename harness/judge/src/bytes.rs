//! Byte strings in events, expectations and findings.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a line that is judged, in bytes. RFC 13 sets no limit; the limits of implementations are at most 64 KiB.
pub const LINE_LIMIT: usize = 1 << 20;

/// Maximum number of bytes of a message that a finding shows.
pub(crate) const MAX_SHOWN_BYTES: usize = 300;

/// A byte string. In JSON, it is a string in which everything but printable ASCII is escaped (`\n`, `\x00`).
#[derive(Clone, PartialEq, Eq, Hash, Default, JsonSchema)]
#[schemars(with = "String")]
pub struct Bytes(pub Vec<u8>);

/// Joins byte strings with spaces, as a scenario joins arguments.
pub(crate) fn join_with_blanks(all: &[Bytes]) -> Vec<u8> {
    all.iter().map(|bytes| bytes.0.as_slice()).collect::<Vec<_>>().join(&b' ')
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.len() + 8);
        for byte in &self.0 {
            match byte {
                b'\\' | b'\'' | b'"' => text.extend(['\\', char::from(*byte)]),
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => text.extend(std::ascii::escape_default(*byte).map(char::from)),
            }
        }
        s.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Most of a log consists of byte strings, so they are unescaped without an intermediate string.
        struct EscapedVisitor;
        impl serde::de::Visitor<'_> for EscapedVisitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                unescape(text).map(Bytes).ok_or_else(|| E::custom("bad escape in bytes"))
            }
        }
        d.deserialize_str(EscapedVisitor)
    }
}

/// Quotes a process's output, and escapes control characters so that they cannot affect a terminal.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let shown: String = match std::str::from_utf8(bytes) {
        Ok(text) => text
            .chars()
            .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() })
            .collect(),
        Err(_) => bytes.escape_ascii().to_string(),
    };
    format!("\"{shown}\"")
}

/// Reverses [`slice::escape_ascii`].
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (letter, after) = rest[at + 1..].split_first()?;
        rest = after;
        out.push(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_through_json() {
        let all = Bytes((0..=255).collect());
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(
            json,
            serde_json::to_string(&all.to_string()).unwrap(),
            "JSON and Display use the same escapes"
        );
        assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), all);
        assert!(serde_json::from_str::<Bytes>(r#""\\x4""#).is_err());
    }
}
