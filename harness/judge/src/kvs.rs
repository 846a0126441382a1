//! The possible contents of a keyval space, as observed on the wire.

use std::collections::{BTreeMap, HashMap};

use crate::observation::PRINTABLE_LIMIT;

/// The pseudo-rank of pairs from the process group's spawn request.
pub(crate) const PREPUT: u32 = u32::MAX;

#[derive(Debug, Clone)]
pub(crate) struct KvsPut {
    pub(crate) value: Vec<u8>,
    /// The rank that sent the put, or [`PREPUT`].
    pub(crate) rank: u32,
    /// The number of barriers that the rank had entered before the put. If the put is acknowledged, every process that has completed more
    /// than `entered` barriers must see the value.
    entered: u64,
    /// The number of puts that were acknowledged before this put was; `None` if this put has not been acknowledged.
    acknowledged: Option<u64>,
}

/// The puts that a process must see in addition to the puts before a barrier of the whole group. The map contains a
/// limit for each rank: the rank's puts with an `acknowledged` number below the limit must be visible.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct KnownPuts(BTreeMap<u32, u64>);

impl KnownPuts {
    /// Adds all acknowledged puts of a rank.
    pub(crate) fn add_all(&mut self, rank: u32, kvs: &Kvs) {
        self.0.insert(rank, kvs.acknowledged);
    }

    /// Adds the puts that another process must see.
    pub(crate) fn add(&mut self, other: &Self) {
        for (rank, before) in &other.0 {
            let mine = self.0.entry(*rank).or_default();
            *mine = (*mine).max(*before);
        }
    }
}

/// The puts to a keyval space so far.
#[derive(Debug, Default)]
pub(crate) struct Kvs {
    puts: HashMap<Vec<u8>, Vec<KvsPut>>,
    /// The number of acknowledged puts.
    acknowledged: u64,
}

impl Kvs {
    /// Stores a pair that existed before the processes started.
    pub(crate) fn preput(&mut self, key: &[u8], value: &[u8]) {
        let put = KvsPut { value: value.to_vec(), rank: PREPUT, entered: 0, acknowledged: Some(0) };
        self.puts.entry(key.to_vec()).or_default().push(put);
    }

    /// Stores a put that a rank sends after it has entered this number of barriers.
    pub(crate) fn record_put(&mut self, key: &[u8], value: &[u8], by: u32, entered: u64) {
        let put = KvsPut { value: value.to_vec(), rank: by, entered, acknowledged: None };
        self.puts.entry(key.to_vec()).or_default().push(put);
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.puts.contains_key(key)
    }

    pub(crate) fn puts(&self, key: &[u8]) -> &[KvsPut] {
        self.puts.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the length of the shortest key that begins with `key` and is longer than `key`.
    pub(crate) fn longer_key(&self, key: &[u8]) -> Option<usize> {
        self.puts.keys().filter(|put| put.len() > key.len() && put.starts_with(key)).map(Vec::len).min()
    }

    /// Records that the server has accepted a put by the rank `by`.
    pub(crate) fn acknowledged(&mut self, key: &[u8], value: &[u8], by: u32) {
        let number = self.acknowledged;
        if let Some(at) = self.find_unacknowledged(key, value, by)
            && let Some(puts) = self.puts.get_mut(key)
        {
            puts[at].acknowledged = Some(number);
            self.acknowledged += 1;
        }
    }

    /// Returns whether `known` contains a put of the key.
    pub(crate) fn is_known(&self, key: &[u8], known: &KnownPuts) -> bool {
        let before = |rank: u32| known.0.get(&rank).copied().unwrap_or(0);
        self.puts(key).iter().any(|put| put.acknowledged.is_some_and(|number| number < before(put.rank)))
    }

    /// Records that the server has refused a put. A get must not return the put's value, unless another put has the same value.
    pub(crate) fn record_refusal(&mut self, key: &[u8], value: &[u8], by: u32) {
        let open = self.find_unacknowledged(key, value, by);
        if let Some(puts) = self.puts.get_mut(key) {
            open.map(|at| puts.remove(at));
            if puts.is_empty() {
                self.puts.remove(key);
            }
        }
    }

    /// Returns the index of an unacknowledged put among the puts of its key.
    fn find_unacknowledged(&self, key: &[u8], value: &[u8], by: u32) -> Option<usize> {
        let is_it = |put: &KvsPut| put.rank == by && put.value == value && put.acknowledged.is_none();
        self.puts(key).iter().position(is_it)
    }

    /// Returns a put of the key that a process must see. `left` is the number of barriers that the process has completed.
    pub(crate) fn find_due(&self, key: &[u8], left: u64) -> Option<&KvsPut> {
        let is_due = |put: &&KvsPut| put.acknowledged.is_some() && (put.rank == PREPUT || put.entered < left);
        self.puts(key).iter().find(is_due)
    }

    /// Formats the values that were put for a key.
    pub(crate) fn shown(&self, key: &[u8]) -> String {
        let cut = |put: &KvsPut| {
            let value = &put.value[..put.value.len().min(PRINTABLE_LIMIT)];
            format!("\"{}\"", value.escape_ascii())
        };
        let mut shown: Vec<String> = self.puts(key).iter().map(cut).collect();
        shown.dedup();
        shown.join(" or ")
    }
}

/// Returns whether the end of the value is ambiguous in a response. RFC 13 lets a parser accept additional tuples, and spaces and tabs
/// around tuples, but a value may contain all of these.
pub(crate) fn is_ambiguous(value: &[u8]) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    value.first().is_some_and(blank)
        || value.last().is_some_and(blank)
        || value.split(|b| blank(b)).skip(1).any(|word| word.contains(&b'='))
}

/// Removes the text after the value of a response if that text looks like additional tuples.
pub(crate) fn strip_after_value(line: &[u8]) -> &[u8] {
    const VALUE: &[u8] = b" value=";
    match memchr::memmem::find(line, VALUE) {
        Some(at) => &line[..at + VALUE.len() + strip_tuples(&line[at + VALUE.len()..]).len()],
        None => line,
    }
}

/// Removes the end of a value if that end looks like additional tuples.
pub(crate) fn strip_tuples(value: &[u8]) -> &[u8] {
    let mut rest = value;
    while let Some(blank) = rest.iter().rposition(|b| *b == b' ') {
        if !rest[blank..].contains(&b'=') {
            break;
        }
        rest = rest[..blank].trim_ascii_end();
    }
    rest
}
