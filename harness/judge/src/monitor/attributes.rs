//! The values that a process manager provides: limits, the universe size, the name of the keyval space, and node attributes.

use std::borrow::Cow;
use std::collections::HashSet;

use pmi_scenario::ids::{self, rules};
use pmi_wire::{Decoded, Framing, MAPPING_KEY, Operation, Proc, ResponseOutcome, node_of};

use super::kvs::{is_within_limits, values_rule};
use super::state::{
    COMPLETE_RESPONSE_REQUIREMENT, Monitor, MonitoredGroup, RESERVED_PREFIX, RequestDetail, SingletonState,
    cite, request_rule,
};
use crate::observation::ObservationText;

const NODE: &str = ids::PMI2_COMMON_NODEATTR;

/// Returns the names of a response's result fields if the response lacks all of them.
fn missing(message: &Decoded<'_>) -> Option<String> {
    let fields = message.exchange().filter(|_| message.lacks_results())?.results;
    let keys: Vec<&str> = fields.iter().map(|field| field.key).collect();
    let (last, others) = keys.split_last()?;
    Some(if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) })
}

impl Monitor {
    /// Judges a response that needs no specific check: the response must report success and contain all result fields.
    pub(super) fn plain_answered(&mut self, p: Proc, op: Option<Operation>, message: &Decoded<'_>) {
        let Some(op) = op else { return };
        let ok = message.is_success();
        if let Some(limits) = message.limits() {
            self.rank(p).limits = Some(limits);
        }
        match op {
            // RFC 13, PMI_Get_universe_size and PMI_Get_appnum: the number may be unknown to the server.
            Operation::Universe | Operation::Appnum if !ok => return,
            // The draft lets a server refuse any spawn. It does not specify whether a server returns values of another job.
            Operation::Spawn | Operation::Get => return,
            Operation::Kvsname if ok => {
                if let Some(name) = message.field("kvsname") {
                    return self.kvsname_answered(p, &name, message);
                }
            }
            Operation::Finalize => self.rank(p).finalize_refused |= !ok,
            _ => {}
        }
        // RFC 13 requires complete responses even from a server that may abort. No PMI-2 document requires this.
        let excused = self.may_abort(p) && !(ok && message.framing == Framing::Lines);
        if excused {
            return;
        }
        let missing = missing(message).filter(|_| ok);
        if ok && missing.is_none() {
            return;
        }
        let id = match (message.framing, op) {
            (Framing::Lines, _) if ok => COMPLETE_RESPONSE_REQUIREMENT,
            (Framing::Lines, _) => self.split_write_rule_or(p, request_rule(op)),
            (Framing::Frames, Operation::Finalize) => ids::PMI2_COMMON_FINALIZE,
            (Framing::Frames, Operation::Kvsname) => ids::PMI2_COMMON_JOBID,
            (Framing::Frames, _) => return,
        };
        let expected = match (message.framing, missing, op) {
            (Framing::Lines, Some(missing), _) => format!("success with {missing}"),
            (Framing::Lines, None, _) => format!("success of {}", op.request_cmd()),
            (Framing::Frames, _, Operation::Kvsname) => "success with a jobid".to_owned(),
            (Framing::Frames, ..) => "success".to_owned(),
        };
        self.server_error(p, id, expected, ObservationText::message(message.text));
    }

    /// Judges the name of the keyval space that a response contains: the kvsname in PMI-1, or the jobid in PMI-2.
    fn kvsname_answered(&mut self, p: Proc, name: &[u8], message: &Decoded<'_>) {
        let seen = || ObservationText::message(message.text);
        let index = message.framing as usize;
        let is_line = message.framing == Framing::Lines;
        if let Some(SingletonState::Done(received)) = &self.rank(p).singinit
            && received != name
            && is_line
        {
            let expected = format!("kvsname={}, as in singinit_info", received.escape_ascii());
            return self.server_error(p, ids::SINGLETON_KVSNAME, expected, seen());
        }
        let max = self.rank(p).limits.map(|m| m.kvsname_max);
        if let Some(max) = max.filter(|max| name.len() as u64 >= *max) {
            let expected = format!("a kvsname shorter than kvsname_max={max} bytes");
            self.server_error(p, ids::RFC13_KVSNAME_LENGTH, expected, seen());
        }
        let first = self.group(p.group).names[index].get_or_insert_with(|| name.to_vec()).clone();
        let is_of_others = |name: &[u8]| {
            is_line
                && self.groups.iter().any(|(id, g)| *id != p.group && g.names[index].as_deref() == Some(name))
        };
        let is_shared = is_of_others(name);
        if first != name && is_of_others(&first) {
            // The group's first name belongs to another group. This has already been reported.
            self.group(p.group).names[index] = Some(name.to_vec());
        } else if first != name {
            let (key, whole) = message.framing.pick([("kvsname", "group"), ("jobid", "job")]);
            let expected = format!("{key}={} for every process of the {whole}", first.escape_ascii());
            self.server_error(p, cite(message, rules::KVSNAME_COMMON), expected, seen());
        }
        if is_shared {
            let expected = "a kvsname that no other process group uses";
            self.server_error(p, ids::RFC13_KVSNAME_DISTINCT, expected, seen());
        }
    }

    /// Returns the number of a process's node. In spawned groups, the nodes are unknown, so node 0 is assumed.
    fn node_of(&self, p: Proc) -> u32 {
        let group = self.groups.get(&p.group).filter(|_| p.group == 0);
        let of_rank = |group: &MonitoredGroup| {
            group.placement.node(p.rank).or_else(|| node_of(p.rank, group.size, group.nodes))
        };
        group.and_then(of_rank).unwrap_or(0)
    }

    /// Returns true if the server has accepted a put of this node attribute.
    pub(super) fn has_node_attribute(&self, p: Proc, key: &[u8]) -> bool {
        let node = (self.node_of(p), key.to_vec());
        self.groups.get(&p.group).is_some_and(|group| group.node_attributes.contains(&node))
    }

    /// Records a put or get of a node attribute. Other requests do not change the state.
    pub(super) fn attribute_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        let field = |name| message.field(name).map(Cow::into_owned).unwrap_or_default();
        match message.exchange().map_or("", |row| row.operation) {
            "put-node-attribute" => {
                let (key, value) = (field("key"), field("value"));
                self.check_lengths(p, &key, &value);
                let node = (self.node_of(p), key.clone());
                let values = self.group(p.group).node.entry(node).or_default();
                // The draft does not specify whether an attribute can be put again.
                let valid = values.is_empty() && is_within_limits(&key, &value);
                values.insert(value);
                self.irregular |= !valid;
                RequestDetail::PutNode { key, valid }
            }
            "get-node-attribute" => {
                let key = field("key");
                // The draft writes Booleans in lower case, but no known server accepts that.
                let rule = match message.raw("wait") {
                    Some(b"TRUE") => ids::PMI2_COMMON_NODEATTR_WAIT,
                    _ => ids::PMI2_DRAFT_BOOLEANS,
                };
                let waits = message.boolean("wait") == Some(true);
                let existed = self.has_node_attribute(p, &key);
                RequestDetail::GetNode { key, wait: waits.then_some(rule), existed }
            }
            "get-job-attribute" if field("key") == MAPPING_KEY => RequestDetail::Mapping,
            _ => RequestDetail::Plain,
        }
    }

    /// Judges the response to a put of a node attribute.
    pub(super) fn node_put_answered(&mut self, p: Proc, key: Vec<u8>, valid: bool, message: &Decoded<'_>) {
        let node = self.node_of(p);
        if message.is_success() {
            self.group(p.group).node_attributes.insert((node, key));
        } else if valid && !self.may_abort(p) {
            self.server_error(p, NODE, "the attribute is stored", ObservationText::message(message.text));
        }
    }

    /// Judges the response to a get of a node attribute. See [`RequestDetail::GetNode`] for `wait` and `existed`.
    pub(super) fn node_get_answered(
        &mut self,
        p: Proc,
        key: &[u8],
        wait: Option<&'static str>,
        existed: bool,
        message: &Decoded<'_>,
    ) {
        // In a spawned group, the nodes are unknown, so the response is not judged.
        if p.group != 0 || self.state_unknown(p) {
            return;
        }
        let seen = || ObservationText::message(message.text);
        let Some(outcome) = message.outcome() else {
            return self.server_error(p, ids::PMI2_COMMON_GET_FOUND, "found=TRUE or found=FALSE", seen());
        };
        let is_found = outcome == ResponseOutcome::Success;
        if key.starts_with(RESERVED_PREFIX) {
            return;
        }
        let node = (self.node_of(p), key.to_vec());
        let excused = self.may_abort(p);
        let (group, none) = (self.group(p.group), HashSet::new());
        let values = group.node.get(&node).unwrap_or(&none);
        let elsewhere = || group.node.keys().any(|(other, k)| *other != node.0 && k == key);
        let (id, expected) = match message.field("value").filter(|_| is_found) {
            Some(_) if values.is_empty() => {
                let id = if elsewhere() { ids::PMI2_COMMON_NODEATTR_OWN_NODE } else { wait.unwrap_or(NODE) };
                (id, "no value, since no process on this node has put the key")
            }
            Some(value) if values.contains(&*value) => return,
            None if is_found => (NODE, "a value, since found=TRUE"),
            None if excused || (wait.is_none() && !existed) => return,
            None if wait.is_some() => {
                (wait.unwrap_or(NODE), "no response until another process has put a value")
            }
            _ => (
                values_rule(message, key, values, [NODE; 2]),
                "the value that a process on this node has put",
            ),
        };
        self.server_error(p, id, expected, seen());
    }
}
