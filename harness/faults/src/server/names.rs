//! The name service.

use pmi_reference::Reply;
use pmi_reference::server::Phase;
use pmi_wire::{Operation, Proc, Request};

use super::Server;
use crate::effect::{Effect, NamesEffect};

impl Server {
    /// Returns whether an effect has dealt with the request.
    pub(super) fn affected_names(&mut self, from: Proc, request: &Request<'_>) -> bool {
        let pick = |e: &Effect| if let Effect::Names(f) = e { Some(*f) } else { None };
        let Some(effect) = self.pick(from, pick) else { return false };
        if effect == NamesEffect::Refused {
            self.server.reply(from, Reply::fail(request.operation(), "not served"));
            return true;
        }
        let missing = |op| Reply::fail(op, "name is not published");
        let reply = match *request {
            Request::Publish { service, port } => {
                let there = self.server.names.contains_key(service);
                let ok = Reply::ok(Operation::Publish);
                match effect {
                    NamesEffect::Lost => {}
                    NamesEffect::TwiceLost if there => {
                        self.server.names.remove(service);
                    }
                    _ if there && effect != NamesEffect::TwiceReplaces => return false,
                    NamesEffect::OneName => {
                        self.server.names.clear();
                        self.server.names.insert(service.to_vec(), port.to_vec());
                    }
                    NamesEffect::LastPortForAll => {
                        self.server.names.insert(service.to_vec(), port.to_vec());
                        self.server.names.values_mut().for_each(|p| *p = port.to_vec());
                    }
                    NamesEffect::InKvs => {
                        let kvs = &mut self.server.groups[from.group as usize].kvs;
                        kvs.insert(service.to_vec(), port.to_vec());
                        self.server.names.insert(service.to_vec(), port.to_vec());
                    }
                    _ => {
                        self.server.names.insert(service.to_vec(), port.to_vec());
                    }
                }
                self.state().publishers.insert(service.to_vec(), from);
                ok
            }
            Request::Unpublish { service } => {
                let there = self.server.names.contains_key(service);
                let ok = Reply::ok(Operation::Unpublish);
                self.state().unpublished += 1;
                match effect {
                    NamesEffect::UnknownUnpublishOk if !there => ok,
                    _ if !there => missing(Operation::Unpublish),
                    NamesEffect::UnpublishKeeps => ok,
                    NamesEffect::UnpublishOnlyFirstTime if self.state().unpublished > 1 => ok,
                    NamesEffect::UnpublishTakesAll => {
                        self.server.names.clear();
                        ok
                    }
                    _ => return false,
                }
            }
            Request::Lookup { service } => {
                let publisher = self.state().publishers.get(service).copied();
                let hidden = publisher.is_some_and(|p| match effect {
                    NamesEffect::OwnOnly => p != from,
                    NamesEffect::GroupOnly => p.group != from.group,
                    NamesEffect::DropsWithPublisher => self.server.process(p).phase == Phase::Finalized,
                    _ => false,
                });
                let found = match effect {
                    _ if hidden => None,
                    NamesEffect::OneLookup => self.server.names.remove(service),
                    NamesEffect::Prefix => {
                        self.server.names.iter().find(|(k, _)| k.starts_with(service)).map(|(_, v)| v.clone())
                    }
                    _ => self.server.names.get(service).cloned(),
                };
                match found {
                    Some(port) => Reply::ok(Operation::Lookup).with("port", port),
                    None => missing(Operation::Lookup),
                }
            }
            _ => return false,
        };
        self.server.reply(from, reply);
        true
    }
}
