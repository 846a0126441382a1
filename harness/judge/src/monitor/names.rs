//! Published names: requests about names, and the results that their responses may contain.

use pmi_scenario::ids::{self, rules};
use pmi_wire::{Decoded, Framing, Proc, ResponseOutcome};

use super::kvs::values_rule;
use super::name_request::NameRequest;
use super::state::{COMPLETE_RESPONSE_REQUIREMENT, Monitor, cite};
use crate::Severity;
use crate::finding::PartyKind;
use crate::observation::{ObservationText, quote_bytes};

impl Monitor {
    /// Marks the name as contested if the request conflicts with an unanswered request, because a server may handle the two in any order.
    pub(super) fn name_requested(&mut self, request: &NameRequest) {
        let mut ranks = self.groups.values().flat_map(|group| group.ranks.values());
        if ranks.any(|rank| rank.open_names().any(|open| open.conflicts_with(request))) {
            self.contested_names.insert(request.name().to_vec());
        }
    }

    /// Judges the response to a request about a name.
    pub(super) fn name_answered(&mut self, p: Proc, request: NameRequest, message: &Decoded<'_>) {
        let ok = message.is_success();
        // For a request in an unusual form, RFC 13 states only a SHOULD, so only the scenario can judge the response.
        let is_irregular = self.is_irregular(p);
        match request {
            NameRequest::Lookup { name } if !is_irregular => self.name_found(p, &name, message),
            NameRequest::Lookup { .. } => {}
            request if is_irregular => drop(self.contested_names.insert(request.name().to_vec())),
            NameRequest::Publish { name, port } => {
                if ok {
                    let ports = self.names.entry(name).or_default();
                    ports.retain(|known| *known != port);
                    ports.push(port);
                }
            }
            NameRequest::Unpublish { name } => {
                let known = self.names.remove(&name).is_some() || self.contested_names.contains(&name);
                if !ok {
                    return;
                }
                if known {
                    self.unpublished.insert(name);
                } else if message.framing == Framing::Lines && !self.state_unknown(p) {
                    // RFC 13 does not specify whether withdrawing an unpublished name is an error. Either way, the name
                    // is not published afterwards.
                    let expected = "an error, since the name is not published".to_owned();
                    let (id, note) = (ids::RFC13_ERROR_RC_NONZERO, Some(Severity::Note));
                    self.find(
                        PartyKind::Server,
                        p,
                        id,
                        note,
                        expected,
                        ObservationText::message(message.text),
                    );
                }
            }
        }
    }

    fn name_found(&mut self, p: Proc, name: &[u8], message: &Decoded<'_>) {
        if self.contested_names.contains(name) || self.state_unknown(p) {
            return;
        }
        let ports = self.names.get(name).map(Vec::as_slice).unwrap_or_default();
        let shown = || {
            let mut shown: Vec<String> = ports.iter().map(|port| quote_bytes(port)).collect();
            shown.sort();
            shown.join(" or ")
        };
        let found = message.outcome() == Some(ResponseOutcome::Success);
        let (id, expected) = match message.field("port") {
            port if ports.is_empty() && found => {
                let expected = format!("an error, since {} is not published", quote_bytes(name));
                let id = match port {
                    Some(_) if self.unpublished.contains(name) => cite(message, rules::NAMES_WITHDRAWN),
                    Some(_) => {
                        // The standards leave the scope of names open, so another job may have published the name.
                        let id = cite(message, [ids::RFC13_LOOKUP_PORT, ids::PMI2_COMMON_NAMES_MISS]);
                        let seen = ObservationText::message(message.text);
                        return self.find(PartyKind::Server, p, id, Some(Severity::Note), expected, seen);
                    }
                    None => cite(message, rules::NAMES_MISS),
                };
                (id, expected)
            }
            _ if ports.is_empty() => return,
            Some(port) if found && !ports.iter().any(|known| *known == *port) => {
                let id = values_rule(message, name, ports, rules::NAMES_PORT);
                (id, format!("the port that was published, {}", shown()))
            }
            // The standards do not specify the effect of a second publish of a name.
            Some(port) if found && ports.last().is_some_and(|last| *last != *port) => {
                let expected = "the port of the last publish that succeeded".to_owned();
                let seen = ObservationText::message(message.text);
                let id = cite(message, rules::NAMES_LOOKUP);
                return self.find(PartyKind::Server, p, id, Some(Severity::Note), expected, seen);
            }
            None if found => (
                cite(message, [COMPLETE_RESPONSE_REQUIREMENT, ids::PMI2_COMMON_NAMES_LOOKUP]),
                format!("a port, {}", shown()),
            ),
            _ if !found && !self.may_abort(p) => {
                (cite(message, rules::NAMES_LOOKUP), format!("the port that was published, {}", shown()))
            }
            _ => return,
        };
        self.server_error(p, id, expected, ObservationText::message(message.text));
    }
}
