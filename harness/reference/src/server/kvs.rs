//! The keyval space: put and get, in every dialect.
//!
//! [`Server::put`] refuses a second put of the same key, and keeps the first value. [`Server::get`] answers immediately, even before the
//! barrier. The response contains the value if it has been put, and otherwise reports a miss: `rc=-1` in PMI-1, and `found=FALSE` with
//! `rc=0` in PMI-2.

use pmi_wire::pmi2::{KEY_MAX, VALUE_MAX};
use pmi_wire::{Framing, Proc};

use super::state::{KeyvalSpace, Server};
use crate::response::OperationResult;

impl Server {
    /// Stores a pair.
    ///
    /// * RFC 13, "`PMI_KVS_Put`": "A key SHALL NOT be put more than once to a keyval space." The RFC does not define the response to a
    ///   second put. This server refuses it, and keeps the first value. The PMI-2 draft, "`PMI_KVS_Put`", does not mention a second put;
    ///   this server refuses it as well. A put of a preput key or of the process mapping counts as a second put.
    /// * The pair can be read immediately. RFC 13 requires this only after a commit and the next barrier.
    pub(super) fn put(
        &mut self,
        from: Proc,
        space: Option<&[u8]>,
        key: &[u8],
        value: &[u8],
    ) -> OperationResult {
        let is_own = self.is_own_space(from, space);
        if !is_own && self.created_space(space).is_none() {
            return OperationResult::failed("unknown keyval space");
        }
        if let Err(why) = self.check_lengths(from, key, value) {
            return OperationResult::failed(why);
        }
        let kvs = &mut self.groups[from.group as usize].kvs;
        let duplicate = OperationResult::failed("key already exists");
        match self.spaces.iter_mut().find(|other| !is_own && Some(&other.name[..]) == space) {
            Some(other) if other.get(key).is_some() => return duplicate,
            Some(other) => other.pairs.push((key.to_vec(), value.to_vec())),
            None if kvs.contains_key(key) => return duplicate,
            None => drop(kvs.insert(key.to_vec(), value.to_vec())),
        }
        OperationResult::done()
    }

    /// Reads a pair.
    ///
    /// * RFC 13, "`PMI_KVS_Get`", and draft, "`PMI_KVS_Get`": returns the value of the key. A get before the barrier returns the value if
    ///   it has been put, and otherwise a miss. It never waits for a put. The standards leave this open: RFC 13, "`PMI_KVS_Put`", requires
    ///   visibility only after a commit and a barrier, and the draft does not mention visibility.
    /// * Draft: `srcid` is a hint, and a wrong hint must not change the result. This server ignores it.
    pub(super) fn get(&self, from: Proc, space: Option<&[u8]>, key: &[u8]) -> OperationResult {
        let value = match self.created_space(space) {
            _ if self.is_own_space(from, space) => self.groups[from.group as usize].kvs.get(key),
            Some(space) => space.get(key),
            None => return OperationResult::failed("unknown keyval space"),
        };
        OperationResult::found("value", value.cloned(), "key not found")
    }

    /// Returns whether a request names the keyval space of the process's group. RFC 13, "`PMI_KVS_Put`": the name is the one that
    /// `get_my_kvsname` returns. Draft, "`PMI_KVS_Get`": a request without a name refers to the space of the process's own job.
    pub fn is_own_space(&self, from: Proc, space: Option<&[u8]>) -> bool {
        space.is_none_or(|name| name == self.groups[from.group as usize].kvsname)
    }

    /// Returns the keyval space with this name that a process has created.
    pub fn created_space(&self, name: Option<&[u8]>) -> Option<&KeyvalSpace> {
        self.spaces.iter().find(|space| Some(&space.name[..]) == name)
    }

    /// Checks the lengths of a pair. The limits of RFC 13 count the terminating NUL of the C API; the limits of PMI-2 do not.
    ///
    /// # Errors
    ///
    /// Returns an error if the key or the value is too long.
    pub fn check_lengths(&self, from: Proc, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let (key_max, value_max) = match self.process(from).framing {
            Framing::Lines => (self.config.limits.keylen_max, self.config.limits.vallen_max),
            Framing::Frames => (KEY_MAX as u64 + 1, VALUE_MAX as u64 + 1),
        };
        match (key.len() as u64 >= key_max, value.len() as u64 >= value_max) {
            (true, _) => Err("key too long"),
            (_, true) => Err("value too long"),
            _ => Ok(()),
        }
    }
}
