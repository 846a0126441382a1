//! The process mapping that the server provides.

use pmi_scenario::ids;
use pmi_wire::{Decoded, MAPPING_KEY, MappingForm, Proc, ResponseOutcome, TooFewRanks};

use super::state::{COMPLETE_RESPONSE_REQUIREMENT, Monitor};
use crate::kvs::strip_tuples;
use crate::observation::{ObservationText, quote_bytes};

/// The form of a process mapping according to RFC 13, Process Mapping.
const FORM: &str = "\"(vector,(node,nodes,ppn),...)\"";

/// Returns the rule of the grammar that a process mapping breaks at this offset.
fn mapping_rule(value: &[u8], at: usize) -> &'static str {
    const FRAME: &[u8] = b"(vector,";
    if at < FRAME.len() {
        return ids::RFC13_ABNF_MAPPING;
    }
    let inside = value[..at.min(value.len())].iter().fold(0, |depth: usize, b| match b {
        b'(' => depth + 1,
        b')' => depth.saturating_sub(1),
        _ => depth,
    });
    match inside {
        2.. => ids::RFC13_ABNF_MAPPING_BLOCK,
        1 if at < value.len() => ids::RFC13_ABNF_MAPPING_BLOCKLIST,
        _ => ids::RFC13_MAPPING_FORMAT,
    }
}

impl Monitor {
    /// Describes the first group's placement on nodes, if the placement differs from the request.
    pub fn other_placement(&self) -> Option<String> {
        let group = self.groups.get(&0)?;
        group.placement.difference(group.size, group.nodes)
    }

    /// Judges the response to a request for the process mapping. In PMI-2, a single requirement covers the form and the correctness of the
    /// mapping.
    pub(super) fn mapping_answered(&mut self, p: Proc, message: &Decoded<'_>) {
        let seen = || ObservationText::message(message.text);
        let cite = |rule| message.framing.pick([rule, ids::PMI2_COMMON_JOBATTR_MAPPING]);
        let ok = message.outcome() == Some(ResponseOutcome::Success);
        let value = message.field("value");
        let size = self.group(p.group).size;
        // RFC 13, Process Mapping: the key is reserved, so its value is unknown after a client has put the key.
        if self.group(p.group).kvs.contains(MAPPING_KEY) || self.state_unknown(p) {
            return;
        }
        if ok && value.is_none() {
            return self.server_error(
                p,
                cite(COMPLETE_RESPONSE_REQUIREMENT),
                "success with the value of the key",
                seen(),
            );
        }
        let (true, Some(value)) = (ok, value.as_deref()) else {
            if !self.may_abort(p) {
                let expected = "the value of PMI_process_mapping";
                self.server_error(p, cite(ids::RFC13_MAPPING_PROVIDED), expected, seen());
            }
            return;
        };
        let known = &mut self.group(p.group).mappings[message.framing as usize];
        let first = known.get_or_insert_with(|| value.to_vec()).clone();
        if first != value {
            let expected = format!("the same mapping for every process, {}", quote_bytes(&first));
            self.server_error(p, cite(ids::RFC13_GET_VALUE), expected, seen());
        }
        let form = MappingForm::classify(value);
        let mapping = match (&form, form.allowed(message.framing)) {
            (_, Some(mapping)) => mapping,
            // An empty mapping is valid if the full mapping exceeds the limits.
            (MappingForm::Unknown, None) => return,
            (MappingForm::Rfc(_) | MappingForm::Mpich(_), None) => {
                let seen = format!("{}, MPICH's form and not RFC 13's", quote_bytes(value));
                return self.server_error(p, cite(ids::RFC13_MAPPING_FORMAT), FORM, seen);
            }
            (MappingForm::NotAMapping(error), None) => {
                let alone = strip_tuples(value);
                if alone.len() < value.len() && matches!(MappingForm::classify(alone), MappingForm::Rfc(_)) {
                    self.appends_tuples = true;
                    let expected = format!("the value {} and nothing after it", quote_bytes(alone));
                    return self.server_error(p, cite(ids::RFC13_GET_VALUE), expected, seen());
                }
                let expected = format!("{FORM}, but {error}");
                return self.server_error(
                    p,
                    cite(mapping_rule(value, error.at)),
                    expected,
                    quote_bytes(value),
                );
            }
        };
        let parents = self.group(p.group).parents;
        match mapping.expand(size) {
            // With a single parent, a mapping of one rank need not be the parent's: MPICH 4.0 also sends such a mapping for a whole node.
            Err(TooFewRanks { covered }) if parents > 1 && covered == u64::from(parents) => {
                let expected = format!("a mapping of the {size} ranks of the spawned group");
                let seen = format!("{} covers the {covered} ranks of the spawning group", quote_bytes(value));
                self.server_error(p, cite(ids::RFC13_MAPPING_TRUE), expected, seen);
            }
            Err(too_few) => {
                let expected = format!("a node for each of the {size} ranks");
                let seen = format!("{}: {too_few}", quote_bytes(value));
                self.server_error(p, ids::DE_FACTO_MAPPING_COVERS_ALL_RANKS, expected, seen);
            }
            Ok(places) if p.group == 0 => {
                let group = self.group(p.group);
                if let Some((expected, seen)) = group.placement.contradiction(&places, group.nodes.min(size))
                {
                    let seen = format!("{} {seen}", quote_bytes(value));
                    self.server_error(p, cite(ids::RFC13_MAPPING_TRUE), expected, seen);
                }
            }
            // In a spawned group, the nodes are unknown, so the mapping cannot be checked.
            Ok(_) => {}
        }
    }
}
