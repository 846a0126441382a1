//! Lengths and contents for keys, values, service names and ports. The lengths are mostly at boundaries, and the contents are of many
//! kinds.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Template};
use pmi_wire::Framing;
use pmi_wire::grammar::{Rule, is_string, is_word};
use pmi_wire::protocol::Field;

use crate::mutate::values::{ByteStrings, values};
use crate::session::decisions::pick;
use crate::session::fields::text;
use crate::session::op::Op;
use crate::session::pieces::{letters, template};

/// The use of a piece of text in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextUse {
    /// The value of a put.
    Value,
    /// The key of a put.
    Key,
    /// The name of a service.
    Service,
    /// The port of a service.
    Port,
}

impl TextUse {
    /// Returns the field of the protocol table that contains the text.
    fn field(self, dialect: Dialect) -> Option<&'static Field> {
        let (operation, name) = match self {
            Self::Value => ("put", "value"),
            Self::Key => ("put", "key"),
            Self::Service => ("publish", "service"),
            Self::Port => ("publish", "port"),
        };
        let arguments = Op::of(dialect, operation)?.exchange().arguments;
        arguments.iter().find(|argument| argument.name == name)
    }

    /// Returns whether every implementation of a dialect must read `text` in the same way. PMI-1 values that begin or end with a space or
    /// tab are excluded, because RFC 13 contradicts itself about them.
    fn accepts(self, dialect: Dialect, text: &[u8]) -> bool {
        let is_value = self.field(dialect).is_some_and(|field| field.rule == Rule::String);
        match dialect.framing() {
            Framing::Lines if is_value => is_string(text) && text.trim_ascii() == text,
            Framing::Lines => is_word(text),
            Framing::Frames => true,
        }
    }
}

/// Returns the strings that are valid for this use, grouped by kind. Kinds without any valid strings are left out.
fn kinds(dialect: Dialect, used: TextUse) -> &'static [Vec<&'static [u8]>] {
    type TextTables = Vec<((Dialect, TextUse), Vec<Vec<&'static [u8]>>)>;
    static ALL: LazyLock<TextTables> = LazyLock::new(|| {
        let of = |(dialect, used): (Dialect, TextUse)| {
            let texts = |kind: &ByteStrings| -> Vec<_> {
                kind.iter().copied().filter(|text| used.accepts(dialect, text)).collect()
            };
            values().texts.iter().map(texts).filter(|kind| !kind.is_empty()).collect()
        };
        pairs().map(|pair| (pair, of(pair))).collect()
    });
    ALL.iter().find(|(of, _)| *of == (dialect, used)).map_or(&[], |(_, kinds)| kinds)
}

/// The maximum length of generated text if the dialect defines no limit. Every implementation should accept this length.
const UNLIMITED: i64 = 256;

/// Returns the maximum length of text for this use, given the limits that all known servers announce. The limits of PMI-1 include a NUL
/// byte.
pub(crate) fn longest(dialect: Dialect, used: TextUse) -> i64 {
    let limit = match used.field(dialect).and_then(|field| field.limit) {
        Some("keylen_max") => 64,
        Some(_) => 1024,
        None => return UNLIMITED,
    };
    limit - i64::from(dialect.framing() == Framing::Lines)
}

/// Round numbers that people often choose as buffer sizes.
const ROUND_LENGTHS: [i64; 7] = [10, 20, 50, 100, 200, 500, 1000];

/// Returns the round numbers and their neighbours.
pub(crate) fn round_lengths() -> Vec<i64> {
    ROUND_LENGTHS.iter().flat_map(|round| [round - 1, *round, round + 1]).collect()
}

/// Draws a valid length: mostly one that is at or next to a power of two or the limit, sometimes a round number or an arbitrary length.
pub(crate) fn length(dialect: Dialect, used: TextUse, u: &mut Unstructured<'_>) -> Result<i64> {
    let longest = longest(dialect, used);
    let powers = (0..).map(|power| 1_i64 << power).take_while(|length| *length <= longest).count();
    let length = match u.int_in_range(0..=7)? {
        6 => pick(u, &ROUND_LENGTHS)?,
        7 => return u.int_in_range(1..=longest),
        _ => match u.choose_index(powers + 1)? {
            power if power < powers => 1 << power,
            _ => longest,
        },
    };
    Ok((length + pick(u, &[0, -1, 1])?).clamp(1, longest))
}

/// Draws a string of a random kind.
pub(crate) fn plain_content(
    dialect: Dialect,
    used: TextUse,
    u: &mut Unstructured<'_>,
) -> Result<&'static [u8]> {
    let kind = u.choose(kinds(dialect, used))?;
    pick(u, kind)
}

/// Draws a string of a random kind, as encoded in a message.
pub(crate) fn content(dialect: Dialect, used: TextUse, u: &mut Unstructured<'_>) -> Result<Template> {
    Ok(encode_text(dialect, plain_content(dialect, used, u)?))
}

/// Encodes a value for a message. In PMI-2, each semicolon is doubled.
pub(crate) fn encode_text(dialect: Dialect, bytes: &[u8]) -> Template {
    let doubles = dialect.framing() == Framing::Frames;
    let times = |byte: u8| if doubles && byte == b';' { 2 } else { 1 };
    text(bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, times(*byte))).collect::<Vec<u8>>())
}

/// The text in an argument of a call or in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// The given number of letters.
    Letters(i64),
    Bytes(Vec<u8>),
}

impl Text {
    pub(crate) fn len(&self) -> i64 {
        match self {
            Self::Letters(count) => *count,
            Self::Bytes(bytes) => bytes.len() as i64,
        }
    }

    /// Returns the text as an argument of a call.
    pub(crate) fn as_argument(&self) -> Template {
        match self {
            Self::Letters(count) => template(vec![letters(*count)]),
            Self::Bytes(bytes) => text(bytes.clone()),
        }
    }

    /// Returns the text as encoded in a message.
    pub(crate) fn encode(&self, dialect: Dialect) -> Template {
        match self {
            Self::Letters(_) => self.as_argument(),
            Self::Bytes(bytes) => encode_text(dialect, bytes),
        }
    }
}

/// Number of positions at which [`with_byte`] can place a byte: at the end, at the beginning, in the middle, or alone.
pub(crate) const BYTE_POSITIONS: u32 = 4;
const MIDDLE: u32 = 2;

/// Returns all bytes that text for this use may contain.
pub(crate) fn every_byte(dialect: Dialect, used: TextUse) -> Vec<u8> {
    let may_be = |byte: &u8| match (used, dialect.framing()) {
        (TextUse::Value, Framing::Lines) => is_string(&[*byte]),
        (TextUse::Value, Framing::Frames) => true,
        _ => is_word(&[*byte]) && *byte != b';',
    };
    (0..=u8::MAX).filter(may_be).collect()
}

/// Returns whether RFC 13 leaves open how to interpret text with this byte at this position.
pub(crate) fn is_ambiguous(dialect: Dialect, used: TextUse, byte: u8, place: u32) -> bool {
    // RFC 13 does not specify whether a space or tab at either end of a value belongs to the value.
    let is_line = dialect.framing() == Framing::Lines;
    used == TextUse::Value && is_line && matches!(byte, b' ' | b'\t') && place != MIDDLE
}

/// Returns `byte` after `rest`, before `rest`, between two copies of `rest`, or alone, depending on `place`. If `rest` is longer than one
/// byte, `byte` is placed before and after `rest` instead of alone.
pub(crate) fn with_byte(rest: &str, byte: u8, place: u32) -> Vec<u8> {
    let (rest, byte) = (rest.as_bytes(), &[byte][..]);
    match place {
        0 => [rest, byte].concat(),
        1 => [byte, rest].concat(),
        MIDDLE => [rest, byte, rest].concat(),
        // A longer `rest` is kept, so that a key stays unique.
        _ if rest.len() > 1 => [byte, rest, byte].concat(),
        _ => byte.to_vec(),
    }
}

/// Returns whether a length is at or next to a power of two, is a round number, or is the limit or one byte less.
fn is_boundary(length: i64, longest: i64) -> bool {
    let near = |boundary: i64| (boundary - 1..=boundary + 1).contains(&length);
    (0..32).any(|power| near(1 << power)) || ROUND_LENGTHS.contains(&length) || length + 1 >= longest
}

/// Returns one string for every length, all strings of every kind, and one string for every byte at every position. Leaves out strings
/// whose interpretation is open, and those with a NUL byte, which a C string cannot contain. The most promising strings come first.
pub(crate) fn systematic_texts(dialect: Dialect, used: TextUse) -> &'static [Text] {
    type TextTables = Vec<((Dialect, TextUse), Vec<Text>)>;
    static ALL: LazyLock<TextTables> = LazyLock::new(|| {
        pairs().map(|(dialect, used)| ((dialect, used), enumerated(dialect, used))).collect()
    });
    ALL.iter().find(|(of, _)| *of == (dialect, used)).map_or(&[], |(_, all)| all)
}

fn enumerated(dialect: Dialect, used: TextUse) -> Vec<Text> {
    let longest = longest(dialect, used);
    let (boundaries, lengths): (Vec<i64>, Vec<i64>) =
        (1..=longest).partition(|length| is_boundary(*length, longest));
    let held: Vec<u8> = every_byte(dialect, used).into_iter().filter(|byte| *byte != 0).collect();
    let bytes = |place| {
        let clear_bytes = held.iter().filter(move |byte| !is_ambiguous(dialect, used, **byte, place));
        clear_bytes.map(move |byte| Text::Bytes(with_byte("x", *byte, place)))
    };
    let mut all: Vec<Text> = boundaries.into_iter().map(Text::Letters).collect();
    let kind_texts = kinds(dialect, used).iter().flatten();
    let kind_texts = kind_texts.filter(|text| text.iter().all(|byte| held.contains(byte)));
    all.extend(kind_texts.map(|text| Text::Bytes(text.to_vec())));
    all.extend(bytes(0));
    // Alternate lengths and bytes, so that neither comes last.
    let mut lengths = lengths.into_iter().map(Text::Letters);
    for byte in (1..BYTE_POSITIONS).flat_map(bytes) {
        all.extend(lengths.by_ref().take(2));
        all.push(byte);
    }
    all.extend(lengths);
    all
}

fn pairs() -> impl Iterator<Item = (Dialect, TextUse)> {
    let uses = [TextUse::Value, TextUse::Key, TextUse::Service, TextUse::Port];
    Dialect::ALL.into_iter().flat_map(move |dialect| uses.map(|used| (dialect, used)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::session::decisions::draw_bytes;

    #[test]
    fn draws_boundary_lengths_and_unusual_strings() {
        let (mut lengths, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..2000 {
            let bytes = draw_bytes(1, number);
            let mut u = Unstructured::new(&bytes);
            lengths.insert(length(Dialect::Pmi1, TextUse::Value, &mut u).unwrap());
            texts.insert(content(Dialect::Pmi1, TextUse::Value, &mut u).unwrap().literal().unwrap());
        }
        for length in [1, 2, 3, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1022, 1023] {
            assert!(lengths.contains(&length), "{length}: {lengths:?}");
        }
        assert!(lengths.iter().all(|length| (1..=1023).contains(length)), "{lengths:?}");
        for text in ["a  b", "a\\b", "100%d", "a=b=c", "\"a\"", "0", "a;b", "rc=0"] {
            assert!(texts.contains(text), "{text}: {texts:?}");
        }
        assert_eq!(longest(Dialect::Pmi2, TextUse::Key), 64);
    }

    #[test]
    fn systematic_texts_cover_every_length_and_byte() {
        for (dialect, used) in pairs() {
            let all = systematic_texts(dialect, used);
            let letters = all.iter().filter(|text| matches!(text, Text::Letters(_)));
            let lengths: BTreeSet<i64> = letters.map(Text::len).collect();
            assert!(lengths.into_iter().eq(1..=longest(dialect, used)), "{used:?}");
            let byte =
                |byte: u8| all.iter().any(|text| matches!(text, Text::Bytes(bytes) if bytes.contains(&byte)));
            let missing: Vec<u8> =
                every_byte(dialect, used).into_iter().filter(|b| *b != 0 && !byte(*b)).collect();
            assert_eq!(missing, Vec::<u8>::new(), "{used:?}");
            assert!(all[..20].contains(&Text::Letters(17)), "{:?}", &all[..20]);
            let bytes = every_byte(dialect, used);
            let held = |text: &Text| match text {
                Text::Letters(_) => true,
                Text::Bytes(text) => text.iter().all(|byte| *byte != 0 && bytes.contains(byte)),
            };
            assert_eq!(all.iter().find(|text| !held(text)), None, "{used:?}");
        }
        assert!(systematic_texts(Dialect::Pmi1, TextUse::Value).contains(&Text::Bytes(b"a=b=c".to_vec())));
    }
}
