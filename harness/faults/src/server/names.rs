//! Effects on the name service.

use pmi_reference::OperationResult;
use pmi_reference::server::{ProcessPhase, ServerRequest};
use pmi_wire::Proc;

use super::Server;
use super::rare_state::value_of;
use crate::effect::{Effect, NamesEffect};

impl Server {
    /// Handles a request about a name if an effect applies, and returns the result. Returns `None` if the reference server must handle the
    /// request instead.
    pub(super) fn affected_names(
        &mut self,
        from: Proc,
        request: &ServerRequest<'_>,
    ) -> Option<OperationResult> {
        let effect = self.pick(from, picked!(Effect::Names))?;
        if effect == NamesEffect::Refused {
            return Some(OperationResult::failed("not served"));
        }
        let why = "name is not published";
        Some(match request {
            ServerRequest::Publish { name: service, port } => {
                let service = &service[..];
                let there = self.server.names.contains_key(service);
                let rare = &mut self.state().rare;
                rare.own_ports.insert(from, port.to_vec());
                let earlier = value_of(&rare.before.names, service);
                if there {
                    rare.second_ports.insert(service.to_vec(), port.to_vec());
                } else {
                    rare.names.push(service.to_vec());
                }
                match effect {
                    NamesEffect::Lost => {}
                    NamesEffect::EarlierPort if !there => {
                        let port = earlier.unwrap_or_else(|| port.to_vec());
                        self.server.names.insert(service.to_vec(), port);
                    }
                    NamesEffect::TwiceLost if there => {
                        self.server.names.remove(service);
                    }
                    NamesEffect::TwiceRefusedButReplaces if there => {
                        self.server.names.insert(service.to_vec(), port.to_vec());
                        return Some(OperationResult::failed("name is published"));
                    }
                    _ if there && effect != NamesEffect::TwiceReplaces => return None,
                    _ => {
                        let kvs = &mut self.server.groups[from.group as usize].kvs;
                        match effect {
                            NamesEffect::OneName => self.server.names.clear(),
                            NamesEffect::LastPortForAll => {
                                self.server.names.values_mut().for_each(|p| *p = port.to_vec());
                            }
                            NamesEffect::InKvs => drop(kvs.insert(service.to_vec(), port.to_vec())),
                            _ => {}
                        }
                        self.server.names.insert(service.to_vec(), port.to_vec());
                    }
                }
                self.state().publishers.insert(service.to_vec(), from);
                OperationResult::done()
            }
            ServerRequest::Unpublish { name: service } => {
                let there = self.server.names.contains_key(&service[..]);
                let ok = OperationResult::done();
                self.state().unpublished += 1;
                let port = self.server.names.get(&service[..]).cloned();
                let rare = &mut self.state().rare;
                rare.withdrawn.extend(port.map(|port| (service.to_vec(), port)));
                let first = rare.names.first().cloned();
                let second = rare.second_ports.remove(&service[..]);
                rare.names.retain(|name| *name != service[..]);
                match effect {
                    NamesEffect::UnpublishTakesFirst if there => {
                        let first = first.unwrap_or_default();
                        self.server.names.remove(&first);
                        if first != service[..] {
                            let rare = &mut self.state().rare;
                            rare.names.retain(|name| *name != first);
                            rare.names.push(service.to_vec());
                        }
                        ok
                    }
                    NamesEffect::TwiceKeepsSecond if there && second.is_some() => {
                        self.server.names.insert(service.to_vec(), second.unwrap_or_default());
                        ok
                    }
                    NamesEffect::UnknownUnpublishOk if !there => ok,
                    _ if !there => OperationResult::failed(why),
                    NamesEffect::UnpublishKeeps => ok,
                    NamesEffect::UnpublishOnlyFirstTime if self.state().unpublished > 1 => ok,
                    NamesEffect::UnpublishTakesAll => {
                        self.server.names.clear();
                        ok
                    }
                    _ => return None,
                }
            }
            ServerRequest::Lookup { name: service } => {
                let service = &service[..];
                let publisher = self.state().publishers.get(service).copied();
                let hidden = publisher.is_some_and(|p| match effect {
                    NamesEffect::OwnOnly => p != from,
                    NamesEffect::GroupOnly => p.group != from.group,
                    NamesEffect::DropsWithPublisher => {
                        self.server.process(p).phase == ProcessPhase::Finalized
                    }
                    _ => false,
                });
                let found = match effect {
                    _ if hidden => None,
                    NamesEffect::OwnPort if self.server.names.contains_key(service) => {
                        let port = self.server.names.get(service).cloned();
                        self.state().rare.own_ports.get(&from).cloned().or(port)
                    }
                    NamesEffect::EarlierWithdrawn if !self.server.names.contains_key(service) => {
                        value_of(&self.state().rare.before.withdrawn, service)
                    }
                    NamesEffect::OneLookup => self.server.names.remove(service),
                    NamesEffect::Prefix => {
                        self.server.names.iter().find(|(k, _)| k.starts_with(service)).map(|(_, v)| v.clone())
                    }
                    _ => self.server.names.get(service).cloned(),
                };
                OperationResult::found("port", found, why)
            }
            _ => return None,
        })
    }
}
