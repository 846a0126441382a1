//! Attributes of nodes and jobs, which only PMI-2 has.

use pmi_wire::{MAPPING_KEY, Proc};

use super::config::GroupId;
use super::state::{AwaitedEvent, HeldRequest, Server};
use crate::response::{OperationResult, ResponseHeader};

const UNKNOWN_KEY: &str = "unknown key";

impl Server {
    /// Stores an attribute for all processes on the node (draft, "`PMI_Info_PutNodeAttr`"), and answers the requests that are waiting for
    /// it. Unlike a pair in the keyval space, an attribute may be replaced.
    pub(super) fn put_node_attribute(
        &mut self,
        from: Proc,
        header: ResponseHeader,
        key: &[u8],
        value: &[u8],
    ) {
        let fits = self.check_lengths(from, key, value);
        if fits.is_ok() {
            let node = (self.node(from), key.to_vec());
            self.groups[from.group as usize].node.insert(node, value.to_vec());
        }
        self.reply(from, header, fits.into());
        self.release_attributes(from.group);
    }

    /// Reads an attribute of the process's node (draft, "`PMI_Info_GetNodeAttr`"). With `wait`, "the server will not respond until the
    /// value becomes available".
    pub(super) fn get_node_attribute(&mut self, from: Proc, header: ResponseHeader, key: &[u8], wait: bool) {
        match self.node_attribute(from, key) {
            None if wait => self.hold(from, header, AwaitedEvent::NodeAttribute(key.to_vec())),
            value => self.reply(from, header, OperationResult::found("value", value, UNKNOWN_KEY)),
        }
    }

    /// Returns an attribute of the process's node.
    pub fn node_attribute(&self, p: Proc, key: &[u8]) -> Option<Vec<u8>> {
        self.groups[p.group as usize].node.get(&(self.node(p), key.to_vec())).cloned()
    }

    /// Answers the requests that were waiting for attributes that now exist.
    pub fn release_attributes(&mut self, group: GroupId) {
        for rank in 0..self.size(group) {
            let to = Proc { group, rank };
            for held in std::mem::take(&mut self.process_mut(to).held) {
                let value = match &held.awaited_event {
                    AwaitedEvent::NodeAttribute(key) => self.node_attribute(to, key),
                    _ => None,
                };
                let HeldRequest { header, awaited_event: what } = held;
                match value {
                    Some(value) => self.reply(to, header, OperationResult::done().with("value", value)),
                    None => self.hold(to, header, what),
                }
            }
        }
    }

    /// Reads an attribute of the job (draft, "`PMI_Info_GetJobAttr`"). The server has the attributes `universeSize` and `hasNameServ`, and
    /// the process mapping. MPICH reads the mapping as an attribute; in RFC 13, it is in the keyval space.
    pub(super) fn job_attribute(&self, from: Proc, key: &[u8]) -> OperationResult {
        let value = match key {
            MAPPING_KEY => self.groups[from.group as usize].kvs.get(key).cloned(),
            b"universeSize" => Some(self.universe_size(from).to_string().into_bytes()),
            b"hasNameServ" => Some(b"YES".to_vec()),
            _ => None,
        };
        OperationResult::found("value", value, UNKNOWN_KEY)
    }
}
