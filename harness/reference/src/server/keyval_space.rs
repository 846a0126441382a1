//! Keyval spaces that processes create. RFC 13 defines only the functions for them ("`PMI_KVS_Create`" and others), but no messages. The
//! messages in this module are those of MPICH's gforker.

use pmi_wire::Proc;

use super::state::{KeyvalSpace, Server};
use crate::response::{OperationResult, ResponseHeader};

/// Maximum number of created keyval spaces, so that no client can exhaust the server's memory.
const MAX_SPACES: usize = 4096;

impl Server {
    /// Destroys a keyval space that a process has created (RFC 13, "`PMI_KVS_Destroy`").
    pub(super) fn destroy_space(&mut self, name: &[u8]) -> OperationResult {
        let before = self.spaces.len();
        self.spaces.retain(|space| space.name != name);
        if self.spaces.len() < before {
            OperationResult::done()
        } else {
            OperationResult::failed("unknown keyval space")
        }
    }

    /// Returns a new name for a keyval space.
    pub fn new_space_name(&mut self) -> Vec<u8> {
        self.created += 1;
        format!("{}-created-{}", self.config.kvs_prefix, self.created).into_bytes()
    }

    /// Creates a keyval space, which all processes can use (RFC 13, "`PMI_KVS_Create`").
    pub fn create_space(&mut self, from: Proc, header: ResponseHeader, name: Vec<u8>) {
        let answer = match self.spaces.len() < MAX_SPACES {
            true => OperationResult::done().with("kvsname", name.clone()),
            false => OperationResult::failed("too many keyval spaces"),
        };
        if answer.reason.is_none() {
            self.spaces.push(KeyvalSpace { name, pairs: Vec::new() });
        }
        self.reply(from, header, answer);
    }

    /// Answers a request for the pair at `index` (RFC 13, "`PMI_KVS_Iter_first`" and "`PMI_KVS_Iter_next`"). The response contains the pair
    /// at `at`, and `index + 1` as the next index. `at` equals `index` unless a wrapper passes a different number. The pairs of a group's
    /// own space are in the order of their keys.
    pub fn pair_by_index(&self, from: Proc, name: &[u8], index: u64, at: u64) -> OperationResult {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let pair = match self.created_space(Some(name)) {
            Some(space) => space.pairs.get(at).cloned(),
            None if self.is_own_space(from, Some(name)) => {
                let mut own: Vec<_> = self.groups[from.group as usize].kvs.iter().collect();
                own.sort_unstable();
                own.get(at).map(|(key, value)| ((*key).clone(), (*value).clone()))
            }
            None => None,
        };
        match pair {
            Some((key, value)) => {
                OperationResult::done().with_number("nextidx", index + 1).with("key", key).with("val", value)
            }
            None => OperationResult::failed("no more keyvals"),
        }
    }
}
