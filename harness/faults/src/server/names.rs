//! The name service.

use pmi_reference::Answer;
use pmi_reference::server::{Phase, Request};
use pmi_wire::Proc;

use super::Server;
use crate::effect::{Effect, NamesEffect};

impl Server {
    /// Returns the answer to a request if it differs from that of the reference.
    pub(super) fn affected_names(&mut self, from: Proc, request: &Request<'_>) -> Option<Answer> {
        let effect = self.pick(from, picked!(Effect::Names))?;
        if effect == NamesEffect::Refused {
            return Some(Answer::failed("not served"));
        }
        let why = "name is not published";
        Some(match request {
            Request::Publish { name: service, port } => {
                let service = &service[..];
                let there = self.server.names.contains_key(service);
                match effect {
                    NamesEffect::Lost => {}
                    NamesEffect::TwiceLost if there => {
                        self.server.names.remove(service);
                    }
                    _ if there && effect != NamesEffect::TwiceReplaces => return None,
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
                Answer::done()
            }
            Request::Unpublish { name: service } => {
                let there = self.server.names.contains_key(&service[..]);
                let ok = Answer::done();
                self.state().unpublished += 1;
                match effect {
                    NamesEffect::UnknownUnpublishOk if !there => ok,
                    _ if !there => Answer::failed(why),
                    NamesEffect::UnpublishKeeps => ok,
                    NamesEffect::UnpublishOnlyFirstTime if self.state().unpublished > 1 => ok,
                    NamesEffect::UnpublishTakesAll => {
                        self.server.names.clear();
                        ok
                    }
                    _ => return None,
                }
            }
            Request::Lookup { name: service } => {
                let service = &service[..];
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
                Answer::found("port", found, why)
            }
            _ => return None,
        })
    }
}
