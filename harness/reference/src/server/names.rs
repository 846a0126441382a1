//! The name service.

use pmi_wire::{Operation, Proc, Request};

use super::state::{Phase, Server};
use crate::fault::{Effect, NamesEffect};
use crate::reply::Reply;

impl Server {
    /// A name that is published already is refused.
    pub(super) fn publish(&mut self, from: Proc, service: &[u8], port: &[u8]) {
        if self.affected_names(from, &Request::Publish { service, port }) {
            return;
        }
        let reply = if self.names.contains_key(service) {
            Reply::fail(Operation::Publish, "name is published already")
        } else {
            self.names.insert(service.to_vec(), port.to_vec());
            Reply::ok(Operation::Publish)
        };
        self.reply(from, reply);
    }

    pub(super) fn unpublish(&mut self, from: Proc, service: &[u8]) {
        if self.affected_names(from, &Request::Unpublish { service }) {
            return;
        }
        let reply = match self.names.remove(service) {
            Some(_) => Reply::ok(Operation::Unpublish),
            None => Reply::fail(Operation::Unpublish, "name is not published"),
        };
        self.reply(from, reply);
    }

    pub(super) fn lookup(&mut self, from: Proc, service: &[u8]) {
        if self.affected_names(from, &Request::Lookup { service }) {
            return;
        }
        let reply = match self.names.get(service) {
            Some(port) => Reply::ok(Operation::Lookup).with("port", port.clone()),
            None => Reply::fail(Operation::Lookup, "name is not published"),
        };
        self.reply(from, reply);
    }

    // ----- effects

    /// Whether an effect has dealt with the request.
    fn affected_names(&mut self, from: Proc, request: &Request<'_>) -> bool {
        let pick = |e: &Effect| if let Effect::Names(f) = e { Some(*f) } else { None };
        let Some(effect) = self.effect(from, pick) else { return false };
        if effect == NamesEffect::Refused {
            self.reply(from, Reply::fail(request.operation(), "not served"));
            return true;
        }
        let missing = |op| Reply::fail(op, "name is not published");
        let reply = match *request {
            Request::Publish { service, port } => {
                let there = self.names.contains_key(service);
                let ok = Reply::ok(Operation::Publish);
                match effect {
                    NamesEffect::Lost => {}
                    NamesEffect::TwiceLost if there => {
                        self.names.remove(service);
                    }
                    _ if there && effect != NamesEffect::TwiceReplaces => return false,
                    NamesEffect::OneName => {
                        self.names.clear();
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                    NamesEffect::LastPortForAll => {
                        self.names.insert(service.to_vec(), port.to_vec());
                        self.names.values_mut().for_each(|p| *p = port.to_vec());
                    }
                    NamesEffect::InKvs => {
                        let kvs = &mut self.groups[from.group as usize].kvs;
                        kvs.insert(service.to_vec(), port.to_vec());
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                    _ => {
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                }
                self.effect_state().publishers.insert(service.to_vec(), from);
                ok
            }
            Request::Unpublish { service } => {
                let there = self.names.contains_key(service);
                let ok = Reply::ok(Operation::Unpublish);
                self.effect_state().unpublished += 1;
                match effect {
                    NamesEffect::UnknownUnpublishOk if !there => ok,
                    _ if !there => missing(Operation::Unpublish),
                    NamesEffect::UnpublishKeeps => ok,
                    NamesEffect::UnpublishOnlyFirstTime if self.effect_state().unpublished > 1 => ok,
                    NamesEffect::UnpublishTakesAll => {
                        self.names.clear();
                        ok
                    }
                    _ => return false,
                }
            }
            Request::Lookup { service } => {
                let publisher = self.effect_state().publishers.get(service).copied();
                let hidden = publisher.is_some_and(|p| match effect {
                    NamesEffect::OwnOnly => p != from,
                    NamesEffect::GroupOnly => p.group != from.group,
                    NamesEffect::DropsWithPublisher => {
                        self.groups[p.group as usize].procs[p.rank as usize].phase == Phase::Finalized
                    }
                    _ => false,
                });
                let found = match effect {
                    _ if hidden => None,
                    NamesEffect::OneLookup => self.names.remove(service),
                    NamesEffect::Prefix => {
                        self.names.iter().find(|(k, _)| k.starts_with(service)).map(|(_, v)| v.clone())
                    }
                    _ => self.names.get(service).cloned(),
                };
                match found {
                    Some(port) => Reply::ok(Operation::Lookup).with("port", port),
                    None => missing(Operation::Lookup),
                }
            }
            _ => return false,
        };
        self.reply(from, reply);
        true
    }
}
