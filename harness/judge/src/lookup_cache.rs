//! A map that finds the key of the previous lookup without hashing. While an event is judged, its process is looked up many times.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that caches its last lookup.
#[derive(Debug)]
pub(crate) struct LookupCache<K, V> {
    places: HashMap<K, usize>,
    values: Vec<V>,
    last: Option<(K, usize)>,
}

impl<K, V> Default for LookupCache<K, V> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), last: None }
    }
}

impl<K: Copy + Eq + Hash, V> LookupCache<K, V> {
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => *self.places.get(&key)?,
        };
        Some(&self.values[place])
    }

    /// Returns the value of a key, after inserting `new` if the key is missing.
    pub(crate) fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => *self.places.entry(key).or_insert_with(|| {
                self.values.push(new());
                self.values.len() - 1
            }),
        };
        self.last = Some((key, place));
        &mut self.values[place]
    }

    /// Iterates over all pairs, in arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.places.iter().map(|(key, place)| (*key, &self.values[*place]))
    }

    /// Iterates over the values in the order of insertion.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn lookup_cache_behaves_like_a_map() {
        let mut recent = LookupCache::default();
        let mut plain = BTreeMap::new();
        for (key, value) in [(3, 'a'), (1, 'b'), (1, 'c'), (3, 'd'), (2, 'e'), (3, 'f')] {
            assert_eq!(recent.get(key), plain.get(&key));
            assert_eq!(recent.get_or_insert_with(key, || value), plain.entry(key).or_insert(value));
            // A key that is not cached is looked up in the map.
            assert_eq!((recent.get(1), recent.get(9)), (plain.get(&1), None));
        }
        assert_eq!(recent.iter().collect::<BTreeMap<_, _>>(), [(1, &'b'), (2, &'e'), (3, &'a')].into());
        assert_eq!(recent.values().copied().collect::<String>(), "abe");
        assert_eq!(recent.len(), 3);
        *recent.get_or_insert_with(2, || '?') = 'g';
        assert_eq!(recent.get(2), Some(&'g'));
    }
}
