//! Keyval spaces beside those of the groups, which RFC 13 does not have.

use pmi_wire::{KeyvalSpaceRequest, Proc};

use super::Server;
use crate::effect::{Effect, KeyvalSpaceEffect};

impl Server {
    /// Returns whether an effect has dealt with the request.
    pub(super) fn affected_keyval_space(&mut self, from: Proc, request: &KeyvalSpaceRequest<'_>) -> bool {
        let pick = |e: &Effect| if let Effect::KeyvalSpace(f) = e { Some(*f) } else { None };
        let Some(effect) = self.pick(from, pick) else { return false };
        match (request, effect) {
            (KeyvalSpaceRequest::Create, KeyvalSpaceEffect::OneName) => {
                let name = match self.state().space_name.take() {
                    Some(name) => name,
                    None => self.server.new_space_name(),
                };
                self.state().space_name = Some(name.clone());
                self.server.create_space(from, name);
            }
            (KeyvalSpaceRequest::Create, KeyvalSpaceEffect::OwnName) => {
                let name = self.server.groups[from.group as usize].kvsname.clone();
                self.server.create_space(from, name);
            }
            (
                KeyvalSpaceRequest::Destroy { kvsname },
                KeyvalSpaceEffect::DestroyKeeps
                | KeyvalSpaceEffect::DestroyTakesAll
                | KeyvalSpaceEffect::UnknownDestroyed,
            ) => {
                let known = self.server.space(kvsname).is_some();
                match effect {
                    KeyvalSpaceEffect::DestroyKeeps => {}
                    KeyvalSpaceEffect::DestroyTakesAll => self.server.spaces.clear(),
                    _ => self.server.spaces.retain(|space| space.name != *kvsname),
                }
                self.server.reply_destroyed(from, known || effect == KeyvalSpaceEffect::UnknownDestroyed);
            }
            (KeyvalSpaceRequest::ByIndex { kvsname, index }, KeyvalSpaceEffect::IndexFromOne) => {
                self.server.pair_by_index(from, kvsname, *index, index.saturating_sub(1));
            }
            (KeyvalSpaceRequest::ByIndex { kvsname, index }, KeyvalSpaceEffect::IndexStays) => {
                self.server.pair_by_index(from, kvsname, *index, 0);
            }
            _ => return false,
        }
        true
    }
}
