//! The keyval space: put and get.

use pmi_wire::{Operation, Proc, place};

use super::effects::Origin;
use super::state::{Server, own_key};
use crate::fault::{Effect, GetEffect, PutEffect};
use crate::reply::Reply;

impl Server {
    /// The pair is visible at once, which RFC 13 allows. A key that is there already is refused.
    pub(super) fn put(&mut self, from: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) {
        if let Some(reply) = self.affected_put(from, kvsname, key, value) {
            return self.reply(from, reply);
        }
        let (key_fits, value_fits) = self.fits(key, value);
        if key_fits
            && value_fits
            && let Some(reply) = self.put_into_space(kvsname, key, value)
        {
            return self.reply(from, reply);
        }
        let group = &mut self.groups[from.group as usize];
        let reply = if group.kvsname != kvsname {
            Reply::fail(Operation::Put, "unknown kvsname")
        } else if !key_fits {
            Reply::fail(Operation::Put, "key too long")
        } else if !value_fits {
            Reply::fail(Operation::Put, "value too long")
        } else if group.kvs.contains_key(key) {
            Reply::fail(Operation::Put, "key is there already")
        } else {
            group.kvs.insert(key.to_vec(), value.to_vec());
            Reply::ok(Operation::Put)
        };
        self.reply(from, reply);
    }

    pub(super) fn get(&mut self, from: Proc, kvsname: &[u8], key: &[u8]) {
        if let Some(reply) = self.affected_get(from, kvsname, key) {
            return self.reply(from, reply);
        }
        if let Some(reply) = self.get_from_space(kvsname, key) {
            return self.reply(from, reply);
        }
        let group = &self.groups[from.group as usize];
        let reply = match group.kvs.get(key) {
            _ if group.kvsname != kvsname => Reply::fail(Operation::Get, "unknown kvsname"),
            None => Reply::fail(Operation::Get, "key not found"),
            Some(value) => Reply::ok(Operation::Get).with("value", value.clone()),
        };
        self.reply(from, reply);
    }

    /// Whether a key and a value are within the limits, which count a terminating NUL.
    pub(super) fn fits(&self, key: &[u8], value: &[u8]) -> (bool, bool) {
        let maxes = self.config.maxes;
        ((key.len() as u64) < maxes.keylen_max, (value.len() as u64) < maxes.vallen_max)
    }

    // ----- effects

    /// The key under which a pair is stored.
    fn alias(&mut self, from: Proc, key: &[u8]) -> Vec<u8> {
        match self.effect(from, |e| if let Effect::Key(f) = e { Some(*f) } else { None }) {
            Some(edit) if !own_key(key) => {
                let mut alias = key.to_vec();
                edit.apply(&mut alias, &self.circumstances(from));
                alias
            }
            _ => key.to_vec(),
        }
    }

    /// The reply to a put in a server with effects, where the reference's own would not do. Effects on get must know where
    /// a value comes from, so every put that succeeds is noted here.
    fn affected_put(&mut self, from: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) -> Option<Reply> {
        self.effects.as_ref()?;
        let maxes = self.config.maxes;
        let effect = self.effect(from, |e| if let Effect::Put(f) = e { Some(*f) } else { None });
        let known = self.groups[from.group as usize].kvsname == kvsname;
        let ok = Some(Reply::ok(Operation::Put));
        let refused = Some(Reply::fail(Operation::Put, "no"));
        match effect {
            Some(PutEffect::AnyKvs) if !known => return ok,
            _ if !known => return None,
            Some(PutEffect::AcceptsOverlong) => {}
            _ if self.fits(key, value) != (true, true) => return None,
            _ => {}
        }
        let at = (from.group, key.to_vec());
        let round = self.effect_state().rounds.get(&from.group).copied().unwrap_or(0);
        // Where keys have aliases, another key may stand in the place of this one.
        let aliases = self.config.behaviour.effects().any(|(e, _)| matches!(e, Effect::Key(_)));
        let there = match aliases {
            true => self.effect_state().origins.contains_key(&at),
            false => self.groups[from.group as usize].kvs.contains_key(key),
        };
        let long_key = key.len() as u64 + 1 == maxes.keylen_max;
        let long_value = value.len() as u64 + 1 == maxes.vallen_max;
        self.effect_state().puts += 1;
        match effect {
            Some(PutEffect::Lost) => return ok,
            Some(PutEffect::LostIfLongKey) if long_key => return ok,
            Some(PutEffect::LostIfLongValue) if long_value => return ok,
            Some(PutEffect::RefusedIfLongKey) if long_key => return refused,
            Some(PutEffect::RefusedIfLongValue) if long_value => return refused,
            Some(PutEffect::RefusedWithoutBarrier) if self.effect_state().puts > 1 => return refused,
            Some(PutEffect::KeepsBoth) => {
                self.effect_state().own_values.insert((from, key.to_vec()), value.to_vec());
                self.groups[from.group as usize].kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                return ok;
            }
            Some(PutEffect::IntoAllGroups) => {
                for group in &mut self.groups {
                    group.kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                }
                return ok;
            }
            Some(PutEffect::Deferred) if !there => {
                let pending =
                    self.effect_state().deferred.iter().any(|(g, k, _)| *g == from.group && k == key);
                if pending {
                    return refused;
                }
                self.effect_state().deferred.push((from.group, key.to_vec(), value.to_vec()));
                return ok;
            }
            // The server's own keys stay as they are.
            Some(PutEffect::Replaces | PutEffect::AcceptsOverlong) if !key.starts_with(b"PMI_") => {}
            _ if there => return None,
            _ => {}
        }
        self.effect_state().origins.insert(at, Origin { rank: from.rank, round });
        let (key, mut value) = (self.alias(from, key), value.to_vec());
        self.each_effect(
            from,
            |e| if let Effect::Store(f) = e { Some(*f) } else { None },
            |edit, circumstances| {
                edit.apply(&mut value, circumstances);
            },
        );
        self.groups[from.group as usize].kvs.insert(key, value);
        ok
    }

    /// The reply to a get in a server with effects, where the reference's own would not do.
    fn affected_get(&mut self, from: Proc, kvsname: &[u8], key: &[u8]) -> Option<Reply> {
        self.effects.as_ref()?;
        if own_key(key) {
            return None;
        }
        let asked = key;
        let key = &self.alias(from, key)[..];
        let effect = self.effect(from, |e| if let Effect::Get(f) = e { Some(*f) } else { None });
        let number = from.group as usize;
        let known = self.groups[number].kvsname == kvsname;
        let missing = || Some(Reply::fail(Operation::Get, "key not found"));
        let found = |value: Vec<u8>| Some(Reply::ok(Operation::Get).with("value", value));
        match effect {
            Some(GetEffect::AnyKvs) => {}
            Some(GetEffect::LongNameOnly)
                if self.groups[number].kvsname.starts_with(kvsname)
                    || kvsname.starts_with(&self.groups[number].kvsname) => {}
            Some(GetEffect::OtherGroups) if !known => {
                let other = self.groups.iter().find(|g| g.kvsname == kvsname)?;
                return other.kvs.get(key).cloned().and_then(found);
            }
            _ if !known => return None,
            _ => {}
        }
        if let Some(own) = self.effect_state().own_values.get(&(from, key.to_vec())).cloned() {
            return found(own);
        }
        let origin = self.effect_state().origins.get(&(from.group, asked.to_vec())).copied();
        let round = self.effect_state().rounds.get(&from.group).copied().unwrap_or(0);
        let value = self.groups[number].kvs.get(key).cloned();
        let place = place(self.size(from.group), self.config.nodes);
        let node = |rank: u32| place.get(rank as usize).copied();
        let hidden = origin.is_some_and(|o| match effect {
            Some(GetEffect::OwnOnly) => o.rank != from.rank,
            Some(GetEffect::SameNodeOnly) => node(o.rank) != node(from.rank),
            Some(GetEffect::OneBarrierLate) => o.rank != from.rank && round < o.round + 2,
            Some(GetEffect::FirstEpochOnly) => o.rank != from.rank && o.round > 1,
            Some(GetEffect::LastEpochOnly) => round > o.round + 1,
            Some(GetEffect::AfterBarrierOnly) => round < o.round + 1,
            _ => false,
        });
        if hidden {
            return missing();
        }
        let used = self.effect_state().gets.entry((from.group, key.to_vec())).or_default();
        *used += 1;
        let again = *used > 1;
        let kvs = &mut self.groups[number].kvs;
        let others = |kvs: &std::collections::HashMap<Vec<u8>, Vec<u8>>| {
            let mut keys: Vec<_> = kvs.iter().filter(|(k, _)| !own_key(k) && *k != key).collect();
            keys.sort_unstable();
            keys.first().map(|(_, v)| v.to_vec())
        };
        match effect {
            Some(GetEffect::Consumes) => return kvs.remove(key).map_or_else(missing, found),
            Some(GetEffect::SecondIsOther) if again => return others(kvs).and_then(found),
            Some(GetEffect::OtherKeysValue) if value.is_some() => return others(kvs).and_then(found),
            Some(GetEffect::Prefix) => {
                let mut keys: Vec<_> = kvs.iter().filter(|(k, _)| k.starts_with(key)).collect();
                keys.sort_unstable_by(|a, b| b.cmp(a));
                return keys.first().map_or_else(missing, |(_, v)| found(v.to_vec()));
            }
            Some(GetEffect::NextKey) if value.is_none() => {
                let mut keys: Vec<_> =
                    kvs.iter().filter(|(k, _)| !own_key(k) && k.as_slice() > key).collect();
                keys.sort_unstable();
                return keys.first().map_or_else(missing, |(_, v)| found(v.to_vec()));
            }
            Some(GetEffect::OtherGroups) if value.is_none() => {
                let leaked = self.groups.iter().find_map(|g| g.kvs.get(key).cloned());
                return leaked.map_or_else(missing, found);
            }
            Some(GetEffect::PreviousAnswer) => {
                let previous = std::mem::replace(&mut self.effect_state().last_value, value.clone());
                return previous.or(value).map_or_else(missing, found);
            }
            _ => {}
        }
        value.map_or_else(missing, found)
    }
}
