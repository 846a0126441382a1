//! Effects on keyval spaces other than those of the groups, which RFC 13 does not define.

use pmi_reference::server::ServerRequest;
use pmi_reference::{OperationResult, ResponseHeader};
use pmi_wire::Proc;

use super::Server;
use crate::effect::{Effect, KeyvalSpaceEffect};

impl Server {
    /// Handles a request about additional keyval spaces if an effect applies. Returns whether the request was handled.
    pub(super) fn affected_keyval_space(
        &mut self,
        from: Proc,
        header: &ResponseHeader,
        request: &ServerRequest<'_>,
    ) -> bool {
        let Some(effect) = self.pick(from, picked!(Effect::KeyvalSpace)) else { return false };
        let header = header.clone();
        match (request, effect) {
            (ServerRequest::CreateSpace, KeyvalSpaceEffect::OneName) => {
                let name = match self.state().space_name.take() {
                    Some(name) => name,
                    None => self.server.new_space_name(),
                };
                self.state().space_name = Some(name.clone());
                self.server.create_space(from, header, name);
            }
            (ServerRequest::CreateSpace, KeyvalSpaceEffect::OwnName) => {
                let name = self.server.groups[from.group as usize].kvsname.clone();
                self.server.create_space(from, header, name);
            }
            (
                ServerRequest::DestroySpace { space },
                KeyvalSpaceEffect::DestroyKeeps
                | KeyvalSpaceEffect::DestroyTakesAll
                | KeyvalSpaceEffect::UnknownDestroyed,
            ) => {
                let known = self.server.created_space(Some(space)).is_some();
                match effect {
                    KeyvalSpaceEffect::DestroyKeeps => {}
                    KeyvalSpaceEffect::DestroyTakesAll => self.server.spaces.clear(),
                    _ => self.server.spaces.retain(|other| other.name != space[..]),
                }
                let done = known || effect == KeyvalSpaceEffect::UnknownDestroyed;
                let done = if done { Ok(()) } else { Err("unknown keyval space") };
                self.server.reply(from, header, OperationResult::from(done));
            }
            (
                ServerRequest::PairByIndex { space, index },
                KeyvalSpaceEffect::IndexFromOne | KeyvalSpaceEffect::IndexStays,
            ) => {
                let from_one = effect == KeyvalSpaceEffect::IndexFromOne;
                let at = if from_one { index.saturating_sub(1) } else { 0 };
                let answer = self.server.pair_by_index(from, space, *index, at);
                self.server.reply(from, header, answer);
            }
            _ => return false,
        }
        true
    }
}
