//! Effects on node attributes, which only PMI-2 has.

use pmi_reference::server::{AwaitedEvent, ServerRequest};
use pmi_reference::{OperationResult, ResponseHeader};
use pmi_wire::Proc;

use super::Server;
use crate::effect::{Effect, NodeEffect};

impl Server {
    /// Handles a put or get of a node attribute if an effect applies. Returns whether the request was handled.
    pub(super) fn affected_attribute(
        &mut self,
        from: Proc,
        header: &ResponseHeader,
        request: &ServerRequest<'_>,
    ) -> bool {
        let Some(effect) = self.pick(from, picked!(Effect::Node)) else { return false };
        let group = from.group as usize;
        let answer = match (effect, request) {
            (NodeEffect::PutLost, ServerRequest::PutNodeAttribute { .. }) => OperationResult::done(),
            (NodeEffect::PutEverywhere, ServerRequest::PutNodeAttribute { key, value }) => {
                for node in 0..self.server.config.nodes {
                    self.server.groups[group].node.insert((node, key.to_vec()), value.to_vec());
                }
                self.server.reply(from, header.clone(), OperationResult::done());
                self.server.release_attributes(from.group);
                return true;
            }
            (NodeEffect::PutReleasesNobody, ServerRequest::PutNodeAttribute { key, value }) => {
                let node = self.server.node(from);
                self.server.groups[group].node.insert((node, key.to_vec()), value.to_vec());
                OperationResult::done()
            }
            (NodeEffect::PutReleasesOne, ServerRequest::PutNodeAttribute { key, value }) => {
                let node = self.server.node(from);
                self.server.groups[group].node.insert((node, key.to_vec()), value.to_vec());
                self.server.reply(from, header.clone(), OperationResult::done());
                let waits = AwaitedEvent::NodeAttribute(key.to_vec());
                let mates = (0..self.size(from.group)).map(|rank| Proc { rank, ..from });
                let first = mates
                    .filter(|mate| self.server.node(*mate) == node)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .find_map(|mate| Some((mate, self.server.take_held(mate, &waits)?)));
                if let Some((first, header)) = first {
                    self.server.reply(first, header, OperationResult::done().with("value", &value[..]));
                }
                return true;
            }
            (NodeEffect::GetNeverWaits, ServerRequest::GetNodeAttribute { key, .. }) => {
                OperationResult::found("value", self.server.node_attribute(from, key), "unknown key")
            }
            (NodeEffect::GetAlwaysWaits, ServerRequest::GetNodeAttribute { key, .. })
                if self.server.node_attribute(from, key).is_none() =>
            {
                return true;
            }
            (NodeEffect::GetFirstRankOnly, ServerRequest::GetNodeAttribute { .. }) if from.rank > 0 => {
                OperationResult::miss("unknown key")
            }
            _ => return false,
        };
        self.server.reply(from, header.clone(), answer);
        true
    }
}
