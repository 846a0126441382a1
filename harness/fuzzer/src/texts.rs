//! Lengths, most of them at boundaries, and contents of many kinds.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Template};
use pmi_wire::grammar::{is_string, is_word};

use crate::decisions::pick;
use crate::fields::text;
use crate::pieces::{letters, template};

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The value of a put.
    Value,
    /// Its key.
    Key,
    /// The name of a service.
    Service,
    /// Its port.
    Port,
}

/// Texts by their kinds. Semicolons stand once.
const EXAMPLES: &[&[&[u8]]] = &[
    &[
        b"0",
        b"-1",
        b"00",
        b"4294967296",
        b"1e9",
        b"%",
        b"100%d",
        b"%s%n",
        b"%%",
        b"#",
        b"a#b",
        b"$HOME",
        b"`id`",
        b"~",
        b"*",
        b"a,b",
        b"a:b",
        b"a|b",
        b"a&b",
        b"(vector,(0,1,1))",
        b"[0-3]",
        b"<a>",
        b"NULL",
        b"TRUE",
        b"!",
        b"@x",
    ],
    &[b"a b", b"a  b", b"a b c d", b"10.0.0.1 10.0.0.2", b"a - b"],
    &[b" a", b"  a"],
    &[b"a ", b"a  "],
    &[b"a\tb", b"a\t\tb"],
    &[b"a=b", b"=", b"a=b=c", b"==", b"=a", b"a="],
    &[b"a;b", b";", b"a;", b";a", b"a;;b", b"a;key=b"],
    &[b"a\\b", b"\\", b"a\\", b"\\n", b"a\\\\b", b"\\073"],
    &[b"\"a\"", b"'a'", b"\"", b"a'b", b"a\"b", b"\"\"", b"'\""],
    &[
        b"put",
        b"get",
        b"value",
        b"key",
        b"cmd",
        b"rc",
        b"kvsname",
        b"endcmd",
        b"PMI_",
        b"PMI_process_mapping_2",
    ],
    &[b"rc=0", b"cmd=get", b"value=a", b"rc=-1", b"key=a"],
    &[b"\xc3\xa9", b"\xff", b"a\x80b", b"\xe2\x82\xac"],
    &[b"\n", b"a\nb", b"a\n"],
    &[b"\0", b"a\0b"],
];

/// Contents by kinds, and the most bytes.
struct Drawn {
    kinds: Vec<Vec<&'static [u8]>>,
    longest: Option<usize>,
}

impl Drawn {
    fn of(dialect: Dialect, used: Use) -> Self {
        // RFC 13 contradicts itself about blanks at the ends of a value.
        let is_clear = |text: &[u8]| match (dialect, used) {
            (Dialect::Pmi2, _) => true,
            (Dialect::Pmi1, Use::Value) => is_string(text) && text.trim_ascii() == text,
            (Dialect::Pmi1, _) => is_word(text),
        };
        let kinds =
            EXAMPLES.iter().map(|texts| texts.iter().copied().filter(|text| is_clear(text)).collect());
        let longest = match used {
            Use::Key => Some(64),
            Use::Value => Some(1024),
            Use::Service | Use::Port => None,
        };
        // The limits of PMI-1 include a NUL.
        let nul = usize::from(dialect == Dialect::Pmi1);
        Self {
            kinds: kinds.filter(|texts: &Vec<_>| !texts.is_empty()).collect(),
            longest: longest.map(|longest| longest - nul),
        }
    }
}

fn drawn(dialect: Dialect, used: Use) -> &'static Drawn {
    type All = Vec<((Dialect, Use), Drawn)>;
    static ALL: LazyLock<All> = LazyLock::new(|| {
        pairs().map(|(dialect, used)| ((dialect, used), Drawn::of(dialect, used))).collect()
    });
    static NONE: Drawn = Drawn { kinds: Vec::new(), longest: None };
    ALL.iter().find(|(of, _)| *of == (dialect, used)).map_or(&NONE, |(_, drawn)| drawn)
}

/// Most bytes of what has no limit: as much as everybody should take.
const UNLIMITED: usize = 256;

/// The most bytes where the server announces what all known ones do.
pub(crate) fn longest(dialect: Dialect, used: Use) -> i64 {
    drawn(dialect, used).longest.unwrap_or(UNLIMITED) as i64
}

/// Round numbers, as people choose them for their buffers.
const ROUND: [i64; 7] = [10, 20, 50, 100, 200, 500, 1000];

/// Those numbers, with what is next to each.
pub(crate) fn round_lengths() -> Vec<i64> {
    ROUND.iter().flat_map(|round| [round - 1, *round, round + 1]).collect()
}

/// A length that is allowed: mostly at a power of two or at the limit, one less or one more, sometimes at a round number, or any.
pub(crate) fn length(dialect: Dialect, used: Use, u: &mut Unstructured<'_>) -> Result<i64> {
    let longest = longest(dialect, used);
    let powers = (0..).map(|power| 1_i64 << power).take_while(|length| *length <= longest).count();
    let length = match u.int_in_range(0..=7)? {
        6 => pick(u, &ROUND)?,
        7 => return u.int_in_range(1..=longest),
        _ => match u.choose_index(powers + 1)? {
            power if power < powers => 1 << power,
            _ => longest,
        },
    };
    Ok((length + pick(u, &[0, -1, 1])?).clamp(1, longest))
}

/// A text of some kind.
pub(crate) fn plain_content(dialect: Dialect, used: Use, u: &mut Unstructured<'_>) -> Result<&'static [u8]> {
    let kinds = &drawn(dialect, used).kinds;
    if kinds.is_empty() {
        return Ok(b"a");
    }
    let kind = &kinds[u.choose_index(kinds.len())?];
    pick(u, kind)
}

/// A text of some kind, as a message of the protocol has it.
pub(crate) fn content(dialect: Dialect, used: Use, u: &mut Unstructured<'_>) -> Result<Template> {
    Ok(as_said(dialect, plain_content(dialect, used, u)?))
}

/// A text, as a message of the protocol has it: in PMI-2 a semicolon in a value is doubled.
pub(crate) fn as_said(dialect: Dialect, bytes: &[u8]) -> Template {
    text(match dialect {
        Dialect::Pmi1 => bytes.to_vec(),
        Dialect::Pmi2 => {
            bytes.iter().flat_map(|b| std::iter::repeat_n(*b, if *b == b';' { 2 } else { 1 })).collect()
        }
    })
}

/// A text of a call or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// So many letters.
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

    /// As an argument of a call.
    pub(crate) fn as_argument(&self) -> Template {
        match self {
            Self::Letters(count) => template(vec![letters(*count)]),
            Self::Bytes(bytes) => text(bytes.clone()),
        }
    }

    /// As a message of the protocol has it.
    pub(crate) fn as_said(&self, dialect: Dialect) -> Template {
        match self {
            Self::Letters(_) => self.as_argument(),
            Self::Bytes(bytes) => as_said(dialect, bytes),
        }
    }
}

/// Where in a text a byte may stand: at its end, at its beginning, within it, alone.
pub(crate) const PLACES: u32 = 4;
const WITHIN: u32 = 2;

/// All bytes that such a text may have.
pub(crate) fn every_byte(dialect: Dialect, used: Use) -> Vec<u8> {
    let may_be = |byte: &u8| match (used, dialect) {
        (Use::Value, Dialect::Pmi1) => *byte == b'\t' || matches!(byte, b' '..=b'~'),
        (Use::Value, Dialect::Pmi2) => true,
        _ => byte.is_ascii_graphic() && !matches!(byte, b'=' | b';'),
    };
    (0..=u8::MAX).filter(may_be).collect()
}

/// Whether RFC 13 leaves open what becomes of such a text.
pub(crate) fn is_open(dialect: Dialect, used: Use, byte: u8, place: u32) -> bool {
    // A blank at the end of a value belongs to it or does not.
    (used, dialect) == (Use::Value, Dialect::Pmi1) && matches!(byte, b' ' | b'\t') && place != WITHIN
}

/// A text with a byte at its end, at its beginning or within it, or the byte alone.
pub(crate) fn with_byte(rest: &str, byte: u8, place: u32) -> Vec<u8> {
    let (rest, byte) = (rest.as_bytes(), &[byte][..]);
    match place {
        0 => [rest, byte].concat(),
        1 => [byte, rest].concat(),
        WITHIN => [rest, byte, rest].concat(),
        // A key stays one of its own.
        _ if rest.len() > 1 => [byte, rest, byte].concat(),
        _ => byte.to_vec(),
    }
}

/// Whether many buffers end at this length, or one before or behind it.
fn is_boundary(length: i64, longest: i64) -> bool {
    let near = |boundary: i64| (boundary - 1..=boundary + 1).contains(&length);
    (0..32).any(|power| near(1 << power)) || ROUND.contains(&length) || length + 1 >= longest
}

/// A text of every length, those of every kind and one with every byte at every place, as far as it is plain what becomes of it and a
/// string of C can hold it; those first that are most likely to show something.
pub(crate) fn every(dialect: Dialect, used: Use) -> &'static [Text] {
    type All = Vec<((Dialect, Use), Vec<Text>)>;
    static ALL: LazyLock<All> = LazyLock::new(|| {
        pairs().map(|(dialect, used)| ((dialect, used), enumerated(dialect, used))).collect()
    });
    ALL.iter().find(|(of, _)| *of == (dialect, used)).map_or(&[], |(_, all)| all)
}

fn enumerated(dialect: Dialect, used: Use) -> Vec<Text> {
    let longest = longest(dialect, used);
    let (boundaries, lengths): (Vec<i64>, Vec<i64>) =
        (1..=longest).partition(|length| is_boundary(*length, longest));
    let held: Vec<u8> = every_byte(dialect, used).into_iter().filter(|byte| *byte != 0).collect();
    let bytes = |place| {
        let told = held.iter().filter(move |byte| !is_open(dialect, used, **byte, place));
        told.map(move |byte| Text::Bytes(with_byte("x", *byte, place)))
    };
    let mut all: Vec<Text> = boundaries.into_iter().map(Text::Letters).collect();
    let examples = drawn(dialect, used).kinds.iter().flatten();
    let told = examples.filter(|example| example.iter().all(|byte| held.contains(byte)));
    all.extend(told.map(|example| Text::Bytes(example.to_vec())));
    all.extend(bytes(0));
    // Lengths and bytes in turn, so that no kind is last.
    let mut lengths = lengths.into_iter().map(Text::Letters);
    for byte in (1..PLACES).flat_map(bytes) {
        all.extend(lengths.by_ref().take(2));
        all.push(byte);
    }
    all.extend(lengths);
    all
}

fn pairs() -> impl Iterator<Item = (Dialect, Use)> {
    let uses = [Use::Value, Use::Key, Use::Service, Use::Port];
    [Dialect::Pmi1, Dialect::Pmi2].into_iter().flat_map(move |d| uses.map(|used| (d, used)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decisions::draw;

    #[test]
    fn every_boundary_and_every_kind_is_drawn() {
        let (mut lengths, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..2000 {
            let bytes = draw(1, number);
            let mut u = Unstructured::new(&bytes);
            lengths.insert(length(Dialect::Pmi1, Use::Value, &mut u).unwrap());
            texts.insert(content(Dialect::Pmi1, Use::Value, &mut u).unwrap().literal().unwrap());
        }
        for length in [1, 2, 3, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1022, 1023] {
            assert!(lengths.contains(&length), "{length}: {lengths:?}");
        }
        assert!(lengths.iter().all(|length| (1..=1023).contains(length)), "{lengths:?}");
        for text in ["a  b", "a\\b", "100%d", "a=b=c", "\"a\"", "0", "a;b", "rc=0"] {
            assert!(texts.contains(text), "{text}: {texts:?}");
        }
        assert_eq!(longest(Dialect::Pmi2, Use::Key), 64);
    }

    #[test]
    fn every_length_kind_and_byte_is_among_all_texts_and_boundaries_come_first() {
        for (dialect, used) in pairs() {
            let all = every(dialect, used);
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
        assert!(every(Dialect::Pmi1, Use::Value).contains(&Text::Bytes(b"a=b=c".to_vec())));
    }
}
