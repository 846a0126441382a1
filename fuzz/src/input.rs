//! Numbers and strings from arbitrary bytes.

use arbitrary::Unstructured;

/// Reads a byte. Returns 0 at the end of the input.
pub(crate) fn byte(u: &mut Unstructured<'_>) -> u8 {
    u.arbitrary().unwrap_or(0)
}

/// Draws a number. Half of the numbers are below 128, and most of the others are near a boundary.
pub(crate) fn number(u: &mut Unstructured<'_>) -> u64 {
    match byte(u) {
        small @ 0..=0x7f => u64::from(small),
        0x80..=0x9f => u64::MAX - u64::from(byte(u)),
        0xa0..=0xbf => (1 << 32) - 8 + u64::from(byte(u) & 0xf),
        0xc0..=0xdf => (1 << 63) - 8 + u64::from(byte(u) & 0xf),
        _ => u.arbitrary().unwrap_or(0),
    }
}

/// Reads a record from the beginning of the input: its head, and its content up to the next 0xff. If records began with a length instead,
/// almost every mutation would make that length wrong.
pub(crate) fn record<'a, const HEAD: usize>(input: &mut &'a [u8]) -> Option<(&'a [u8; HEAD], &'a [u8])> {
    let (head, rest) = input.split_first_chunk()?;
    let end = rest.iter().position(|byte| *byte == 0xff);
    *input = end.map_or(&[], |end| &rest[end + 1..]);
    Some((head, &rest[..end.unwrap_or(rest.len())]))
}

/// A shared buffer for the bytes of typed fields. It avoids an allocation for each field.
pub(crate) struct Arena {
    bytes: [u8; 1024],
    used: usize,
}

/// A range of bytes in an arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArenaRange {
    start: usize,
    end: usize,
}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 1024], used: 0 }
    }

    pub(crate) fn get(&self, text: ArenaRange) -> &[u8] {
        &self.bytes[text.start..text.end]
    }

    /// Reads at least `least` bytes, and replaces those that `keep` does not accept.
    fn text(&mut self, u: &mut Unstructured<'_>, least: usize, keep: fn(u8) -> bool) -> ArenaRange {
        let length = usize::from(byte(u) % 64).max(least).min(self.bytes.len() - self.used);
        let start = self.used;
        self.used += length;
        let source = u.bytes(length.min(u.len())).unwrap_or_default();
        for (at, slot) in self.bytes[start..self.used].iter_mut().enumerate() {
            let byte = source.get(at).copied().unwrap_or(b'w');
            let visible = b'!' + byte % 94;
            *slot = [byte, visible].into_iter().find(|b| keep(*b)).unwrap_or(b'w');
        }
        ArenaRange { start, end: self.used }
    }

    /// Draws a `word` as RFC 13 defines it.
    pub(crate) fn word(&mut self, u: &mut Unstructured<'_>) -> ArenaRange {
        self.text(u, 1, |byte| byte.is_ascii_graphic() && byte != b'=')
    }

    /// Draws visible characters, including `=`.
    pub(crate) fn visible(&mut self, u: &mut Unstructured<'_>) -> ArenaRange {
        self.text(u, 1, |byte| byte.is_ascii_graphic())
    }

    /// Draws a `string` as RFC 13 defines it, except that it may be empty.
    pub(crate) fn string(&mut self, u: &mut Unstructured<'_>) -> ArenaRange {
        self.text(u, 0, |byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t')
    }
}
