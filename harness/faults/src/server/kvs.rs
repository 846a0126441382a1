//! Effects on put and get.

use pmi_reference::OperationResult;
use pmi_wire::Proc;

use super::rare_state::value_of;
use super::state::PutOrigin;
use super::{Server, is_own_key};
use crate::effect::{Effect, GetEffect, PutEffect};

impl Server {
    /// Returns the key under which the server stores a pair, as changed by the effects.
    fn alias(&mut self, from: Proc, key: &[u8]) -> Vec<u8> {
        let mut alias = key.to_vec();
        if !is_own_key(key) {
            self.edit(from, picked!(Effect::Key), &mut alias);
        }
        alias
    }

    /// Handles a put, and returns its result. Returns `None` if the reference server must handle the put instead. For an ordinary put, also
    /// records the origin of the value, which effects on get need.
    pub(super) fn affected_put(
        &mut self,
        from: Proc,
        space: Option<&[u8]>,
        key: &[u8],
        value: &[u8],
    ) -> Option<OperationResult> {
        let limits = self.server.config.limits;
        let has_groups = self.server.groups.len() > 1;
        let has_long_key = key.len() as u64 + 1 == limits.keylen_max;
        let has_long_value = value.len() as u64 + 1 == limits.vallen_max;
        let effect = self.pick(from, |e| {
            picked!(Effect::Put)(e).filter(|effect| match effect {
                PutEffect::LostIfLongKey | PutEffect::RefusedIfLongKey => has_long_key,
                PutEffect::LostIfLongValue | PutEffect::RefusedIfLongValue => has_long_value,
                PutEffect::IntoAllGroups => has_groups,
                _ => true,
            })
        });
        let known = self.server.is_own_space(from, space);
        let ok = Some(OperationResult::done());
        let refused = Some(OperationResult::failed("no"));
        match effect {
            Some(PutEffect::AnyKvs) if !known => return ok,
            _ if !known => return None,
            Some(PutEffect::AcceptsOverlong) => {}
            _ if self.server.check_lengths(from, key, value).is_err() => return None,
            _ => {}
        }
        let at = (from.group, key.to_vec());
        let round = self.state().rounds.get(&from.group).copied().unwrap_or(0);
        // If keys have aliases, a different key may be stored in place of this one. The record of earlier puts is then searched instead of
        // the keyval space.
        let has_alias = !is_own_key(key) && self.state().has(|e| matches!(e, Effect::Key(_)));
        let there = match has_alias {
            true => self.state().origins.contains_key(&at),
            false => self.server.groups[from.group as usize].kvs.contains_key(key),
        };
        self.state().puts += 1;
        match effect {
            Some(PutEffect::Lost | PutEffect::LostIfLongKey | PutEffect::LostIfLongValue) => return ok,
            Some(PutEffect::RefusedIfLongKey | PutEffect::RefusedIfLongValue) => return refused,
            Some(PutEffect::RefusedWithoutBarrier) if self.state().puts > 1 => return refused,
            Some(PutEffect::KeepsBoth) => {
                self.state().own_values.insert((from, key.to_vec()), value.to_vec());
                self.server.groups[from.group as usize]
                    .kvs
                    .entry(key.to_vec())
                    .or_insert_with(|| value.to_vec());
                return ok;
            }
            Some(PutEffect::IntoAllGroups) => {
                for group in &mut self.server.groups {
                    group.kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                }
                return ok;
            }
            Some(PutEffect::IntoFirstGroup) if from.group > 0 => {
                self.server.groups[0].kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                return ok;
            }
            Some(PutEffect::SecondForOddRanks) if there => {
                for rank in (1..self.size(from.group)).step_by(2) {
                    let reader = Proc { rank, ..from };
                    self.state().own_values.insert((reader, key.to_vec()), value.to_vec());
                }
                return refused;
            }
            Some(PutEffect::SixtyFourKeys) if !there => {
                let keys = self.state().rare.keys.entry(from.group).or_default();
                let first = (keys.len() == 64).then(|| keys.remove(0));
                keys.push(key.to_vec());
                if let Some(first) = first {
                    self.server.groups[from.group as usize].kvs.remove(&first);
                }
            }
            Some(PutEffect::Deferred) if !there => {
                let pending = self.state().deferred.iter().any(|(g, k, _)| *g == from.group && k == key);
                if pending {
                    return refused;
                }
                self.state().deferred.push((from.group, key.to_vec(), value.to_vec()));
                return ok;
            }
            Some(effect @ (PutEffect::RefusedButStored | PutEffect::RefusedAndRemoved))
                if there && !is_own_key(key) =>
            {
                let kvs = &mut self.server.groups[from.group as usize].kvs;
                kvs.remove(key);
                if effect == PutEffect::RefusedButStored {
                    kvs.insert(key.to_vec(), value.to_vec());
                }
                return refused;
            }
            // These effects never change the server's own keys.
            Some(PutEffect::Replaces | PutEffect::AcceptsOverlong) if !is_own_key(key) => {}
            _ if there => return None,
            _ => {}
        }
        self.state().origins.insert(at, PutOrigin { rank: from.rank, round });
        let (key, mut value) = (self.alias(from, key), value.to_vec());
        self.edit(from, picked!(Effect::Store), &mut value);
        self.server.groups[from.group as usize].kvs.insert(key, value);
        ok
    }

    /// Handles a get, and returns its result. Returns `None` if the reference server must handle the get instead.
    pub(super) fn affected_get(
        &mut self,
        from: Proc,
        space: Option<&[u8]>,
        source: Option<i64>,
        key: &[u8],
    ) -> Option<OperationResult> {
        if is_own_key(key) {
            return None;
        }
        let requested_key = key;
        let key = &self.alias(from, key)[..];
        let effect = self.pick(from, picked!(Effect::Get));
        let number = from.group as usize;
        let known = self.server.is_own_space(from, space);
        let kvsname = space.unwrap_or_default();
        let missing = || Some(OperationResult::miss("key not found"));
        let found = |value: Vec<u8>| Some(OperationResult::done().with("value", value));
        match effect {
            Some(GetEffect::AnyKvs) => {}
            Some(GetEffect::LongNameOnly)
                if self.server.groups[number].kvsname.starts_with(kvsname)
                    || kvsname.starts_with(&self.server.groups[number].kvsname) => {}
            Some(GetEffect::OtherGroups) if !known => {
                let other = self.server.groups.iter().find(|g| g.kvsname == kvsname)?;
                return other.kvs.get(key).cloned().and_then(found);
            }
            _ if !known => return None,
            _ => {}
        }
        if let Some(own) = self.state().own_values.get(&(from, key.to_vec())).cloned() {
            return found(own);
        }
        let origin = self.state().origins.get(&(from.group, requested_key.to_vec())).copied();
        let round = self.state().rounds.get(&from.group).copied().unwrap_or(0);
        let value = self.server.groups[number].kvs.get(key).cloned();
        let node = |rank: u32| self.server.node(Proc { rank, ..from });
        let hidden = origin.is_some_and(|o| match effect {
            Some(GetEffect::OwnOnly) => o.rank != from.rank,
            Some(GetEffect::BelievesHint) => source.is_some_and(|id| id >= 0 && id != i64::from(o.rank)),
            Some(GetEffect::SameNodeOnly) => node(o.rank) != node(from.rank),
            Some(GetEffect::OneBarrierLate) => o.rank != from.rank && round < o.round + 2,
            Some(GetEffect::FirstEpochOnly) => o.rank != from.rank && o.round > 1,
            Some(GetEffect::LastEpochOnly) => round > o.round + 1,
            Some(GetEffect::AfterBarrierOnly) => round < o.round + 1,
            Some(GetEffect::ThreeEpochs) => round > o.round + 2,
            _ => false,
        });
        let is_on_other_node = origin.is_some_and(|o| node(o.rank) != node(from.rank));
        let size = self.size(from.group);
        if hidden {
            return missing();
        }
        let used = self.state().gets.entry((from.group, key.to_vec())).or_default();
        *used += 1;
        let again = *used > 1;
        let kvs = &mut self.server.groups[number].kvs;
        let others = |kvs: &std::collections::HashMap<Vec<u8>, Vec<u8>>| {
            let first = kvs.iter().filter(|(k, _)| !is_own_key(k) && *k != key).min();
            first.map(|(_, v)| v.clone())
        };
        match effect {
            Some(GetEffect::Consumes) => return kvs.remove(key).map_or_else(missing, found),
            Some(GetEffect::SecondIsOther) if again => return others(kvs).and_then(found),
            Some(GetEffect::OtherKeysValue) if value.is_some() => return others(kvs).and_then(found),
            Some(GetEffect::Prefix) => {
                let last = kvs.iter().filter(|(k, _)| k.starts_with(key)).max();
                return last.map_or_else(missing, |(_, v)| found(v.clone()));
            }
            Some(GetEffect::KeyThatIsPrefix) => {
                let first = kvs.iter().filter(|(k, _)| key.starts_with(k)).min();
                return first.map_or_else(missing, |(_, v)| found(v.clone()));
            }
            Some(GetEffect::SpawnedGroupFirst) if number == 0 => {
                let spawned = self.server.groups[1..].iter().rev().find_map(|g| g.kvs.get(key).cloned());
                return spawned.or(value).map_or_else(missing, found);
            }
            Some(GetEffect::EarlierJob) if number == 0 && value.is_none() => {
                return value_of(&self.state().rare.before.pairs, key).map_or_else(missing, found);
            }
            Some(GetEffect::EarlierJobIfAsLong) if number == 0 => {
                let earlier = value_of(&self.state().rare.before.pairs, key);
                let earlier = earlier.filter(|v| value.as_ref().is_some_and(|value| value.len() == v.len()));
                return earlier.or(value).map_or_else(missing, found);
            }
            Some(GetEffect::LastMisreadsFirst)
                if from.rank >= 2 && from.rank + 1 == size && origin.is_some_and(|o| o.rank == 0) =>
            {
                let misread = |mut value: Vec<u8>| {
                    value.iter_mut().take(1).for_each(|b| *b = if *b == b'?' { b'!' } else { b'?' });
                    found(value)
                };
                return value.map_or_else(missing, misread);
            }
            Some(GetEffect::CutOnOtherNode) if is_on_other_node => {
                return value.map_or_else(missing, |mut value| {
                    value.truncate(100);
                    found(value)
                });
            }
            Some(GetEffect::NextKey) if value.is_none() => {
                let next = kvs.iter().filter(|(k, _)| !is_own_key(k) && k.as_slice() > key).min();
                return next.map_or_else(missing, |(_, v)| found(v.clone()));
            }
            Some(GetEffect::OtherGroups) if value.is_none() => {
                let leaked = self.server.groups.iter().find_map(|g| g.kvs.get(key).cloned());
                return leaked.map_or_else(missing, found);
            }
            Some(GetEffect::PreviousAnswer) => {
                let previous = std::mem::replace(&mut self.state().last_value, value.clone());
                return previous.or(value).map_or_else(missing, found);
            }
            _ => {}
        }
        value.map_or_else(missing, found)
    }
}
