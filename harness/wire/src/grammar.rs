//! The macros of RFC 13's ABNF ("Protocol Definition"), as predicates and parsers over bytes.

use memchr::memchr;

/// `word`: one or more visible characters other than `=`.
pub fn is_word(bytes: &[u8]) -> bool {
    is_visible(bytes) && memchr(b'=', bytes).is_none()
}

/// `string`: one or more of SP, HTAB and the visible characters.
///
/// As written, the RFC's rule is one blank, one tab and one visible character in sequence, repeated. Its own comment
/// ("visible char plus tab, space") shows that a choice is meant.
pub fn is_string(bytes: &[u8]) -> bool {
    !bytes.is_empty() && first_bad_byte(bytes).is_none()
}

/// `uint`: one or more digits, of any length.
pub fn is_uint(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// The value of a `uint`; `None` if it is none, or does not fit 64 bits.
pub fn parse_uint(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The value of an `int`: a `uint` with at most one sign; `None` if it is none, or does not fit 64 bits.
///
/// As written, the RFC's rule wants the sequence `+-` as the sign and cannot derive -1; every implementation reads
/// and writes an optional sign.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let magnitude = parse_uint(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The values of an `intlist`: one or more `int` with a comma between them.
pub fn parse_intlist(bytes: &[u8]) -> Option<Vec<i64>> {
    bytes.split(|byte| *byte == b',').map(parse_int).collect()
}

/// One or more visible characters (VCHAR), `=` included: what ports look like in practice.
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().fold(true, |good, byte| good & byte.is_ascii_graphic())
}

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The offset of the first byte that is neither SP, HTAB nor VCHAR.
pub(crate) fn first_bad_byte(bytes: &[u8]) -> Option<usize> {
    fn bad(byte: u8) -> bool {
        (byte.wrapping_sub(b' ') > b'~' - b' ') & (byte != b'\t')
    }
    // Without an early exit the compiler turns this into vector code; only a bad line is searched again.
    if bytes.iter().fold(false, |any, byte| any | bad(*byte)) {
        bytes.iter().position(|byte| bad(*byte))
    } else {
        None
    }
}
