//! What a keyval space may hold, as far as the wire shows.

use std::collections::HashMap;

use crate::seen::PRINTABLE_LIMIT;

/// One put of a key.
#[derive(Debug, Clone)]
struct Put {
    value: Vec<u8>,
    /// The number of barriers that the writer had entered when the put was acknowledged, or `None` before that. Every
    /// process that has left more barriers than this must see the value.
    acknowledged_in: Option<u64>,
}

/// The puts seen so far.
#[derive(Debug, Default)]
pub(crate) struct Kvs {
    puts: HashMap<Vec<u8>, Vec<Put>>,
}

/// What a get of a key may answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nobody has put the key, so the answer is an error.
    Missing,
    /// One of these values, or an error as well if `must` is false.
    OneOf {
        /// The values, escaped for people.
        shown: String,
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
        self.puts
            .entry(key.to_vec())
            .or_default()
            .push(Put { value: value.to_vec(), acknowledged_in: Some(0) });
    }

    pub(crate) fn sent(&mut self, key: &[u8], value: &[u8]) {
        self.puts.entry(key.to_vec()).or_default().push(Put { value: value.to_vec(), acknowledged_in: None });
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.puts.contains_key(key)
    }

    pub(crate) fn acknowledged(&mut self, key: &[u8], value: &[u8], round: u64) {
        if let Some(put) = self.find(key, value) {
            put.acknowledged_in = Some(round);
        }
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

    /// What a process that has left `left` barrier rounds may read.
    pub(crate) fn expected(&self, key: &[u8], left: u64, seen: Option<&[u8]>) -> Expected {
        let Some(puts) = self.puts.get(key) else { return Expected::Missing };
        let mut shown: Vec<String> = puts
            .iter()
            .map(|p| format!("\"{}\"", p.value[..p.value.len().min(PRINTABLE_LIMIT)].escape_ascii()))
            .collect();
        shown.dedup();
        Expected::OneOf {
            shown: shown.join(" or "),
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
