//! The keyval space: put and get.

use pmi_wire::{Operation, Proc};

use super::state::Server;
use crate::reply::Reply;

impl Server {
    /// RFC 13, PMI_KVS_Put.
    pub(super) fn put(&mut self, from: Proc, kvsname: &[u8], key: &[u8], value: &[u8]) {
        let (key_fits, value_fits) = self.fits(key, value);
        if key_fits
            && value_fits
            && let Some(reply) = self.put_into_space(kvsname, key, value)
        {
            return self.reply(from, reply);
        }
        let stored = if self.groups[from.group as usize].kvsname != kvsname {
            Err("unknown kvsname")
        } else if !key_fits {
            Err("key too long")
        } else if !value_fits {
            Err("value too long")
        } else {
            self.store(from, key, value)
        };
        self.reply(from, Reply::of(Operation::Put, stored));
    }

    /// Stores a pair in the keyval space of a process's group, in every dialect. The pair is visible at once, which RFC 13
    /// (PMI_KVS_Put) and the draft of PMI-2 (kvs-put) allow. A key that is there already is refused.
    pub(super) fn store(&mut self, from: Proc, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let kvs = &mut self.groups[from.group as usize].kvs;
        if kvs.contains_key(key) {
            return Err("key is there already");
        }
        kvs.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// RFC 13, PMI_KVS_Get. A pair can be read before the barrier as well.
    pub(super) fn get(&mut self, from: Proc, kvsname: &[u8], key: &[u8]) {
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

    /// Returns whether a key and a value are within the limits, which count a terminating NUL.
    pub fn fits(&self, key: &[u8], value: &[u8]) -> (bool, bool) {
        let maxes = self.config.maxes;
        ((key.len() as u64) < maxes.keylen_max, (value.len() as u64) < maxes.vallen_max)
    }
}
