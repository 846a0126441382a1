//! Writes tuples, requests and responses in either framing.

use crate::frame::frame_header;
use crate::pmi2;
use crate::protocol::{Exchange, Field, Framing, common_results};

impl Framing {
    /// Appends a tuple. The bytes are not checked. In a frame, each semicolon in the value is doubled, as the draft requires.
    pub fn write_tuple(self, out: &mut Vec<u8>, key: &str, value: &[u8]) {
        match self {
            Self::Lines if out.is_empty() => {}
            Self::Lines => out.push(b' '),
            Self::Frames => return pmi2::write_tuple(out, key, value),
        }
        put_tuple(out, key, value);
    }

    /// Turns tuples into a complete message: a line with its newline, or a body with its length before it. Returns `None` if the body is
    /// too long for a frame.
    pub fn complete(self, mut tuples: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Lines => tuples.push(b'\n'),
            Self::Frames => drop(tuples.splice(0..0, frame_header(tuples.len())?)),
        }
        Some(tuples)
    }
}

impl Exchange {
    /// Returns the request with the given fields, identified by name. Fields that the request does not have are left out. The values are
    /// not checked. Returns an empty message if it would be too long for a frame.
    pub fn write_request(&self, framing: Framing, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        write(framing, Some(self.request), self.arguments.iter(), fields)
    }

    /// Returns the response with the given fields, identified by name. `rc` and the other common fields come first. Fields that the
    /// response does not have are left out. The values are not checked. Returns an empty message if it would be too long for a frame.
    pub fn write_response(&self, framing: Framing, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        write(framing, self.response, common_results(framing).iter().chain(self.results), fields)
    }
}

fn write<'a>(
    framing: Framing,
    command: Option<&str>,
    row: impl Iterator<Item = &'a Field>,
    fields: &[(&str, Vec<u8>)],
) -> Vec<u8> {
    let mut tuples = Vec::with_capacity(96);
    if let Some(command) = command {
        framing.write_tuple(&mut tuples, "cmd", command.as_bytes());
    }
    for field in row {
        if let Some((_, value)) = fields.iter().find(|(name, _)| *name == field.name) {
            framing.write_tuple(&mut tuples, field.key, value);
        }
    }
    framing.complete(tuples).unwrap_or_default()
}

/// Appends a tuple to a line, without a blank before it.
pub(crate) fn put_tuple(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value);
}
