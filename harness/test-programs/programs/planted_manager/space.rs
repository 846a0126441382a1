//! A keyval space, and the effects of bugs on the values and keys that are put and read.

use super::bug::{Bug, is};

/// Leaks memory: enough for a campaign to notice, and too little to harm the machine.
pub(super) fn leak(mib: usize, times: &mut usize) {
    *times += 1;
    if *times <= 12 {
        std::mem::forget(vec![1_u8; mib << 20]);
    }
}

/// A pair, with the process that put it and the number of barriers before.
#[derive(Debug, Clone)]
struct Pair {
    key: Vec<u8>,
    value: Vec<u8>,
    second: Option<Vec<u8>>,
    by: usize,
    round: u32,
}

/// The reader of a value, and the state at that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// All other processes wait in a barrier.
    pub(super) others_wait: bool,
    /// Number of processes on each node.
    pub(super) per_node: usize,
}

/// A keyval space.
#[derive(Debug, Default)]
pub(super) struct Space {
    pairs: Vec<Pair>,
}

impl Space {
    /// Stores a pair; returns whether the key was new.
    pub(super) fn put(
        &mut self,
        bug: Option<Bug>,
        key: &[u8],
        value: &[u8],
        (by, round): (usize, u32),
        limits: (usize, usize),
    ) -> bool {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.key == key) {
            if is(bug, "put-again") {
                pair.second = Some(value.to_vec());
            }
            return false;
        }
        if is(bug, "value-shared") && value.len() > 16 && self.pairs.iter().any(|pair| pair.value == value) {
            return true;
        }
        let mut key = key.to_vec();
        if is(bug, "key-longest") && key.len() == limits.0 {
            key.pop();
        }
        if is(bug, "key-32") && key.len() == 32 {
            key.push(b'?');
        }
        if is(bug, "key-13") && key.len() == 13 {
            key.pop();
        }
        if is(bug, "key-tilde") && key.contains(&b'~') {
            return true;
        }
        if is(bug, "put-64") && self.pairs.len() == 64 {
            self.pairs.remove(0);
        }
        self.pairs.push(Pair { key, value: stored(bug, value, limits.1), second: None, by, round });
        true
    }

    pub(super) fn get(&self, bug: Option<Bug>, key: &[u8], reader: Reader) -> Option<Vec<u8>> {
        let sum = |key: &[u8]| key.iter().map(|b| u32::from(*b)).sum::<u32>();
        let fits = |pair: &&Pair| match bug {
            _ if is(bug, "key-prefix") => key.starts_with(&pair.key),
            _ if is(bug, "key-16-alike") && key.len() > 16 => pair.key.starts_with(&key[..16]),
            _ if is(bug, "key-case") => key.eq_ignore_ascii_case(&pair.key),
            _ if is(bug, "key-sum") => key.len() == pair.key.len() && sum(key) == sum(&pair.key),
            _ => key == pair.key,
        };
        let pair = self.pairs.iter().find(fits)?;
        let mut value = pair.value.clone();
        if let Some(second) = pair.second.clone().filter(|_| reader.rank % 2 == 1) {
            value = second;
        }
        if is(bug, "value-613") && value.len() == 613 {
            let before = self.pairs.iter().take_while(|other| other.key != pair.key).last();
            value = before.map(|other| other.value.clone()).unwrap_or_default();
        }
        if is(bug, "value-zero") && value == b"0" {
            return None;
        }
        if is(bug, "get-of-last")
            && reader.size >= 3
            && (reader.rank, pair.by) == (reader.size - 1, 0)
            && let Some(first) = value.first_mut()
        {
            *first = if *first == b'?' { b'!' } else { b'?' };
        }
        if is(bug, "get-while-waiting") && reader.others_wait {
            value.truncate(64);
        }
        if is(bug, "get-other-node") && reader.rank / reader.per_node != pair.by / reader.per_node {
            value.truncate(100);
        }
        Some(value)
    }

    /// Returns keys and values in the order of their puts.
    pub(super) fn pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect()
    }

    /// Removes the pairs that were put before a round.
    pub(super) fn forget_before(&mut self, round: u32) {
        self.pairs.retain(|pair| pair.round >= round);
    }
}

/// Returns a value as it is stored.
fn stored(bug: Option<Bug>, value: &[u8], longest: usize) -> Vec<u8> {
    let mut value = value.to_vec();
    let len = value.len();
    if is(bug, "value-256") && len == 256
        || is(bug, "value-37") && len == 37
        || is(bug, "value-longest") && len == longest
    {
        value.pop();
    }
    if is(bug, "value-128-crash") && len == 128 {
        std::process::abort();
    }
    if is(bug, "value-backslash") {
        value.retain(|b| *b != b'\\');
    }
    if is(bug, "value-comma") {
        value.truncate(value.iter().position(|b| *b == b',').unwrap_or(len));
    }
    if is(bug, "value-percent") {
        value.retain(|b| *b != b'%');
    }
    if is(bug, "value-quotes") && len >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"") {
        value = value[1..len - 1].to_vec();
    }
    if is(bug, "value-blanks") {
        value.dedup_by(|a, b| (*a, *b) == (b' ', b' '));
    }
    if is(bug, "value-second-equals")
        && let Some((at, _)) = value.iter().enumerate().filter(|(_, b)| **b == b'=').nth(1)
    {
        value.truncate(at);
    }
    value
}
