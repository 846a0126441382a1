//! Lengths, most of them at boundaries, and contents of the kinds that the table of inputs tells apart.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pmi_scenario::UnderTest;
use pmi_scenario::ast::{Dialect, Template};
use pmi_scenario::inputs::Inputs;

use crate::decisions::pick;
use crate::fields::text;

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

/// Contents by kinds, and the most bytes.
struct Drawn {
    kinds: Vec<Vec<&'static [u8]>>,
    longest: Option<usize>,
}

impl Drawn {
    fn of(dialect: Dialect, used: Use) -> Self {
        let (operation, argument) = match (dialect, used) {
            (Dialect::Pmi1, Use::Value) => ("put", "value"),
            (Dialect::Pmi1, Use::Key) => ("put", "key"),
            (Dialect::Pmi1, Use::Service) => ("publish_name", "service"),
            (Dialect::Pmi1, Use::Port) => ("publish_name", "port"),
            (Dialect::Pmi2, Use::Value) => ("kvs-put", "value"),
            (Dialect::Pmi2, Use::Key) => ("kvs-put", "key"),
            (Dialect::Pmi2, Use::Service) => ("name-publish", "name"),
            (Dialect::Pmi2, Use::Port) => ("name-publish", "port"),
        };
        // The tables of the suite are read by its tests.
        let Ok(inputs) = Inputs::of(UnderTest::Server, dialect) else {
            return Self { kinds: Vec::new(), longest: None };
        };
        let kinds = inputs.examples(operation, argument).into_iter().map(|(_, texts)| texts).collect();
        Self { kinds, longest: inputs.longest(operation, argument) }
    }
}

fn drawn(dialect: Dialect, used: Use) -> &'static Drawn {
    type All = Vec<((Dialect, Use), Drawn)>;
    static ALL: LazyLock<All> = LazyLock::new(|| {
        let uses = [Use::Value, Use::Key, Use::Service, Use::Port];
        let pairs = [Dialect::Pmi1, Dialect::Pmi2].into_iter().flat_map(|d| uses.map(|used| (d, used)));
        pairs.map(|(dialect, used)| ((dialect, used), Drawn::of(dialect, used))).collect()
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
}
