//! Attributes of nodes, which only PMI-2 has.

use pmi_reference::server::Request;
use pmi_reference::{Answer, Header};
use pmi_wire::Proc;

use super::Server;
use crate::effect::{Effect, NodeEffect};

impl Server {
    /// Returns whether an effect has dealt with the request.
    pub(super) fn affected_attribute(&mut self, from: Proc, header: &Header, request: &Request<'_>) -> bool {
        let Some(effect) = self.pick(from, picked!(Effect::Node)) else { return false };
        let group = from.group as usize;
        let answer = match (effect, request) {
            (NodeEffect::PutLost, Request::PutNodeAttribute { .. }) => Answer::done(),
            (NodeEffect::PutEverywhere, Request::PutNodeAttribute { key, value }) => {
                for node in 0..self.server.config.nodes {
                    self.server.groups[group].node.insert((node, key.to_vec()), value.to_vec());
                }
                self.server.reply(from, header.clone(), Answer::done());
                self.server.release_attributes(from.group);
                return true;
            }
            (NodeEffect::PutReleasesNobody, Request::PutNodeAttribute { key, value }) => {
                let node = self.server.node(from);
                self.server.groups[group].node.insert((node, key.to_vec()), value.to_vec());
                Answer::done()
            }
            (NodeEffect::GetNeverWaits, Request::GetNodeAttribute { key, .. }) => {
                Answer::found("value", self.server.node_attribute(from, key), "unknown key")
            }
            (NodeEffect::GetAlwaysWaits, Request::GetNodeAttribute { key, .. })
                if self.server.node_attribute(from, key).is_none() =>
            {
                return true;
            }
            (NodeEffect::GetFirstRankOnly, Request::GetNodeAttribute { .. }) if from.rank > 0 => {
                Answer::miss("unknown key")
            }
            _ => return false,
        };
        self.server.reply(from, header.clone(), answer);
        true
    }
}
