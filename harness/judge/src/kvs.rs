//! What a keyval space may hold, as far as the wire shows.

use std::collections::{BTreeMap, HashMap};

use crate::seen::PRINTABLE_LIMIT;

/// One put of a key.
#[derive(Debug, Clone)]
struct Put {
    value: Vec<u8>,
    /// The number of barriers that the writer had entered when the put was acknowledged, or `None` before that. Every
    /// process that has left more barriers than this must see the value.
    acknowledged_in: Option<u64>,
    /// Who put it, and how many puts were acknowledged before.
    acknowledged_as: Option<(u32, u64)>,
}

/// Which puts a process must know of beside those before a barrier of the whole group: of each rank, all before this number.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Known(BTreeMap<u32, u64>);

impl Known {
    /// All that this rank has put so far.
    pub(crate) fn all_of(&mut self, rank: u32, kvs: &Kvs) {
        self.0.insert(rank, kvs.acknowledged);
    }

    /// Also what somebody else knows.
    pub(crate) fn add(&mut self, other: &Self) {
        for (rank, before) in &other.0 {
            let mine = self.0.entry(*rank).or_default();
            *mine = (*mine).max(*before);
        }
    }
}

/// The puts seen so far.
#[derive(Debug, Default)]
pub(crate) struct Kvs {
    puts: HashMap<Vec<u8>, Vec<Put>>,
    /// The number of puts that were acknowledged.
    acknowledged: u64,
}

/// What a get of a key may answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpectedValue {
    /// Nobody has put the key, so the answer is an error.
    Missing,
    /// One of the values that were put, or an error as well if `must` is false.
    OneOf {
        must: bool,
        fits: bool,
        /// It cannot be told where one of the values ends.
        ambiguous: bool,
    },
}

impl Kvs {
    /// A pair that was there before the processes started.
    pub(crate) fn preput(&mut self, key: &[u8], value: &[u8]) {
        // It is visible from the start, as if it had been put before a barrier that all processes have left.
        self.puts.entry(key.to_vec()).or_default().push(Put {
            value: value.to_vec(),
            acknowledged_in: Some(0),
            acknowledged_as: None,
        });
    }

    pub(crate) fn sent(&mut self, key: &[u8], value: &[u8]) {
        let put = Put { value: value.to_vec(), acknowledged_in: None, acknowledged_as: None };
        self.puts.entry(key.to_vec()).or_default().push(put);
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.puts.contains_key(key)
    }

    /// The server has taken a put of this rank, which has entered so many barriers of the whole group.
    pub(crate) fn acknowledged(&mut self, key: &[u8], value: &[u8], rank: u32, round: u64) {
        let number = self.acknowledged;
        if let Some(put) = self.find(key, value) {
            put.acknowledged_in = Some(round);
            put.acknowledged_as = Some((rank, number));
            self.acknowledged += 1;
        }
    }

    /// Whether a process that knows this much must find the key.
    pub(crate) fn is_known(&self, key: &[u8], known: &Known) -> bool {
        let before = |rank: u32| known.0.get(&rank).copied().unwrap_or(0);
        let puts = self.puts.get(key).into_iter().flatten();
        puts.filter_map(|put| put.acknowledged_as).any(|(rank, number)| number < before(rank))
    }

    /// The server refused the put. Its value should not be seen, unless another put has the same value.
    pub(crate) fn refused(&mut self, key: &[u8], value: &[u8]) {
        if let Some(puts) = self.puts.get_mut(key) {
            if let Some(at) = puts.iter().position(|p| p.value == value && p.acknowledged_in.is_none()) {
                puts.remove(at);
            }
            if puts.is_empty() {
                self.puts.remove(key);
            }
        }
    }

    fn find(&mut self, key: &[u8], value: &[u8]) -> Option<&mut Put> {
        self.puts.get_mut(key)?.iter_mut().find(|p| p.value == value && p.acknowledged_in.is_none())
    }

    /// The values that were put for a key, escaped for people.
    pub(crate) fn shown(&self, key: &[u8]) -> String {
        let puts = self.puts.get(key).map(Vec::as_slice).unwrap_or_default();
        let cut = |put: &Put| {
            let value = &put.value[..put.value.len().min(PRINTABLE_LIMIT)];
            format!("\"{}\"", value.escape_ascii())
        };
        let mut shown: Vec<String> = puts.iter().map(cut).collect();
        shown.dedup();
        shown.join(" or ")
    }

    /// What a process that has left `left` barrier rounds may read.
    pub(crate) fn expected(&self, key: &[u8], left: u64, seen: Option<&[u8]>) -> ExpectedValue {
        let Some(puts) = self.puts.get(key) else { return ExpectedValue::Missing };
        ExpectedValue::OneOf {
            must: puts.iter().any(|p| p.acknowledged_in.is_some_and(|round| round < left)),
            ambiguous: puts.iter().any(|p| is_ambiguous(&p.value)),
            fits: puts.iter().any(|p| Some(p.value.as_slice()) == seen),
        }
    }
}

/// Whether it cannot be told where a value ends: RFC 13 lets parsers accept blanks around tuples and further tuples, and
/// lets values hold both.
pub(crate) fn is_ambiguous(value: &[u8]) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    value.first().is_some_and(blank)
        || value.last().is_some_and(blank)
        || value.split(|b| blank(b)).skip(1).any(|word| word.contains(&b'='))
}

/// A response that ends with a value, without what looks like further tuples after it.
pub(crate) fn with_value_alone(line: &[u8]) -> &[u8] {
    const VALUE: &[u8] = b" value=";
    match line.windows(VALUE.len()).position(|part| part == VALUE) {
        Some(at) => &line[..at + VALUE.len() + without_tuples(&line[at + VALUE.len()..]).len()],
        None => line,
    }
}

/// A value without what looks like further tuples after it.
pub(crate) fn without_tuples(value: &[u8]) -> &[u8] {
    let mut rest = value;
    while let Some(blank) = rest.iter().rposition(|b| *b == b' ') {
        if !rest[blank..].contains(&b'=') {
            break;
        }
        rest = rest[..blank].trim_ascii_end();
    }
    rest
}
