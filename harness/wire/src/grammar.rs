//! The rules under "macros" in RFC 13's ABNF ("Protocol Definition"), as predicates and parsers over bytes.

use std::fmt;

use memchr::memchr;

/// A grammar rule for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Rule {
    /// A `word`: one or more visible characters other than `=` ([`is_word`]).
    Word,
    /// A `string`: characters that the framing allows. It may be empty, unlike in RFC 13's rule ([`is_string`]).
    String,
    /// A `uint` that fits into 64 bits ([`parse_uint`]).
    Uint,
    /// An `int` that fits into 64 bits ([`parse_int`]).
    Int,
    /// An `intlist`: one or more `int` values separated by commas ([`parse_intlist`]).
    IntList,
    /// One or more visible characters, including `=`. RFC 13 requires ports to be words, but real ports contain `=`.
    Visible,
    /// A PMI-2 Boolean ([`parse_bool`]).
    Bool,
}

impl Rule {
    /// Returns whether a value matches the rule. The caller must ensure that the bytes are allowed by the message's framing.
    ///
    /// A `string` may be empty. The RFC's rule for a `string` excludes this, but the RFC's section on `PMI_process_mapping` requires an
    /// empty value for an unknown mapping.
    pub fn accepts(self, value: &[u8]) -> bool {
        match self {
            Self::Word => is_word(value),
            Self::String => true,
            Self::Uint => parse_uint(value).is_some(),
            Self::Int => parse_int(value).is_some(),
            Self::IntList => parse_intlist(value).is_some(),
            Self::Visible => is_visible(value),
            Self::Bool => parse_bool(value).is_some(),
        }
    }
}

impl Rule {
    /// Describes the values that match the rule.
    pub fn description(self) -> &'static str {
        match self {
            Self::Word => "one or more visible characters without \"=\" (RFC 13: word)",
            Self::String => "one or more characters",
            Self::Uint => "an unsigned integer below 2^64 (RFC 13: uint)",
            Self::Int => "an integer (RFC 13: int)",
            Self::IntList => "a comma-separated list of integers (RFC 13: intlist)",
            Self::Visible => "one or more visible characters",
            Self::Bool => "true or false",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// Returns whether the bytes are a `word`: one or more visible characters other than `=`.
pub fn is_word(bytes: &[u8]) -> bool {
    is_visible(bytes) && memchr(b'=', bytes).is_none()
}

/// Returns whether the bytes are a `string`: one or more spaces (SP), tabs (HTAB) or visible characters (VCHAR).
///
/// As written, the RFC's rule is a repeated sequence of a space, a tab and a visible character. Its own comment ("visible char plus tab,
/// space") shows that a choice is meant.
pub fn is_string(bytes: &[u8]) -> bool {
    !bytes.is_empty() && first_bad_byte(bytes).is_none()
}

/// Returns whether the bytes are a `uint`: one or more digits, of any length.
pub fn is_uint(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// Parses a `uint`. Returns `None` if it is invalid or does not fit into 64 bits.
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

/// Parses an `int`: a `uint` with an optional sign. Returns `None` if it is invalid or does not fit into 64 bits.
///
/// Taken literally, the RFC's rule requires the sequence `+-` as the sign, and does not allow -1. Every implementation reads and writes an
/// optional sign.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let magnitude = parse_uint(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Parses an `intlist`: one or more `int` values separated by commas.
pub fn parse_intlist(bytes: &[u8]) -> Option<Vec<i64>> {
    bytes.split(|byte| *byte == b',').map(parse_int).collect()
}

/// Parses a PMI-2 Boolean. The draft specifies `true` and `false`, but all implementations write upper case.
pub fn parse_bool(value: &[u8]) -> Option<bool> {
    let is = |text: &[u8]| value.eq_ignore_ascii_case(text);
    match (is(b"true"), is(b"false")) {
        (false, false) => None,
        (yes, _) => Some(yes),
    }
}

/// Returns whether the bytes are one or more visible characters (VCHAR), including `=`, as in real ports.
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().fold(true, |good, byte| good & byte.is_ascii_graphic())
}

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Removes SP and HTAB, but no other white space, from both ends.
pub(crate) fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the offset of the first byte that is neither SP, HTAB nor VCHAR.
pub(crate) fn first_bad_byte(bytes: &[u8]) -> Option<usize> {
    fn bad(byte: u8) -> bool {
        (byte.wrapping_sub(b' ') > b'~' - b' ') & (byte != b'\t')
    }
    // The compiler can vectorize a loop without an early exit. Only an invalid line is searched a second time.
    if bytes.iter().fold(false, |any, byte| any | bad(*byte)) {
        bytes.iter().position(|byte| bad(*byte))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(b"a", true, true)]
    #[case(b"P0-businesscard", true, true)]
    #[case(b"!~<>", true, true)]
    #[case(b"a=b", false, true)]
    #[case(b"a b", false, true)]
    #[case(b"\t", false, true)]
    #[case(b"", false, false)]
    #[case(b"a\x7f", false, false)]
    #[case(b"a\0", false, false)]
    #[case("\u{e9}".as_bytes(), false, false)]
    #[case(b"a\r", false, false)]
    fn recognizes_words_and_strings(#[case] bytes: &[u8], #[case] word: bool, #[case] string: bool) {
        assert_eq!((is_word(bytes), is_string(bytes)), (word, string));
    }

    #[test]
    fn classifies_every_byte_by_the_rfc_ranges() {
        for byte in 0..=u8::MAX {
            let word = matches!(byte, 0x21..=0x3c | 0x3e..=0x7e);
            assert_eq!(is_word(&[byte]), word, "{byte:#x}");
            assert_eq!(is_visible(&[byte]), word || byte == b'=', "{byte:#x}");
            assert_eq!(is_string(&[byte]), word || matches!(byte, b'=' | b' ' | b'\t'), "{byte:#x}");
        }
    }

    #[test]
    fn finds_an_invalid_byte_at_any_position() {
        for len in 1..100 {
            for at in 0..len {
                let mut bytes = vec![b'v'; len];
                bytes[at] = 0x80;
                assert_eq!(first_bad_byte(&bytes), Some(at));
            }
        }
    }

    #[rstest]
    #[case(b"0", Some(0))]
    #[case(b"007", Some(7))]
    #[case(b"18446744073709551615", Some(u64::MAX))]
    #[case(b"18446744073709551616", None)]
    #[case(b"99999999999999999999999", None)]
    #[case(b"", None)]
    #[case(b"-1", None)]
    #[case(b"+1", None)]
    #[case(b"1 ", None)]
    #[case(b"0x1", None)]
    fn parses_uints(#[case] bytes: &[u8], #[case] value: Option<u64>) {
        assert_eq!(parse_uint(bytes), value);
    }

    #[test]
    fn is_uint_accepts_values_beyond_u64() {
        assert!(is_uint(b"99999999999999999999999"));
        assert!(!is_uint(b""));
        assert!(!is_uint(b"1a"));
    }

    #[rstest]
    #[case(b"0", Some(0))]
    #[case(b"+0", Some(0))]
    #[case(b"-0", Some(0))]
    #[case(b"-1", Some(-1))]
    #[case(b"+1", Some(1))]
    #[case(b"9223372036854775807", Some(i64::MAX))]
    #[case(b"9223372036854775808", None)]
    #[case(b"-9223372036854775808", Some(i64::MIN))]
    #[case(b"-9223372036854775809", None)]
    #[case(b"+-1", None)] // the only signed form that the RFC's rule literally allows
    #[case(b"--1", None)]
    #[case(b"-", None)]
    #[case(b"", None)]
    fn parses_ints(#[case] bytes: &[u8], #[case] value: Option<i64>) {
        assert_eq!(parse_int(bytes), value);
    }

    #[rstest]
    #[case(b"0", Some(vec![0]))]
    #[case(b"0,-1,+2", Some(vec![0, -1, 2]))]
    #[case(b"", None)]
    #[case(b"0,", None)]
    #[case(b",0", None)]
    #[case(b"0, 1", None)]
    fn parses_intlists(#[case] bytes: &[u8], #[case] value: Option<Vec<i64>>) {
        assert_eq!(parse_intlist(bytes), value);
    }

    #[rstest]
    #[case(b" \ta b\t ", b"a b")]
    #[case(b"\ra\n", b"\ra\n")]
    #[case(b"  ", b"")]
    fn trims_blanks(#[case] bytes: &[u8], #[case] trimmed: &[u8]) {
        assert_eq!(trim_blanks(bytes), trimmed);
    }
}
