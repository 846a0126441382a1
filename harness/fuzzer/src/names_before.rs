//! Names that other jobs of a server's have published. How far a name reaches, MPI leaves to the implementation, and RFC 13 does not say:
//! whether a job finds what another one has left published is open, and no failure either way.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pmi_judge::Finding;
use pmi_judge::event::{Event, What};
use pmi_wire::pmi2::{self, Semicolons};
use pmi_wire::{Body, Connection, Direction, Framed, Framing, Proc, Request, Response, ValueReading};

/// Most names that are remembered. Of a campaign that publishes more, any name or port is believed.
const MOST: usize = 100_000;
/// Most ports of a name.
const MOST_PORTS: usize = 1000;

/// Names that may be published still.
#[derive(Debug, Default)]
pub(crate) struct NamesBefore(BTreeMap<Vec<u8>, Published>);

/// How a name may be published.
#[derive(Debug, Default)]
struct Published {
    /// How often that was asked for since it was known not to be published.
    times: u64,
    /// With these ports.
    ports: BTreeSet<Vec<u8>>,
}

/// What a process asks about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Publish { name: Vec<u8>, port: Vec<u8> },
    Unpublish { name: Vec<u8> },
    Lookup { name: Vec<u8> },
}

/// What an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Publish,
    Unpublish,
    Lookup,
}

impl Asked {
    fn kind(&self) -> Kind {
        match self {
            Self::Publish { .. } => Kind::Publish,
            Self::Unpublish { .. } => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
        }
    }
}

/// What was asked about names and how it was answered: each request with the number of the event of its answer, and the port in it.
#[derive(Debug)]
struct Answered {
    proc: Proc,
    asked: Asked,
    seq: u64,
    succeeds: bool,
    port: Option<Vec<u8>>,
}

impl NamesBefore {
    /// Remembers what a job may have left published. A publish that is refused counts as well: Hydra's name server keeps it all the same, and
    /// shows it once what it was refused for is withdrawn.
    pub(crate) fn remember(&mut self, events: &[Event]) {
        let (answered, open) = exchanges(events);
        let answered = answered.into_iter().map(|one| (one.asked, one.succeeds));
        for (asked, succeeds) in answered.chain(open.into_iter().map(|asked| (asked, false))) {
            match asked {
                Asked::Publish { name, port } if self.0.len() < MOST => {
                    let published = self.0.entry(name).or_default();
                    published.times += 1;
                    if published.ports.len() < MOST_PORTS {
                        published.ports.insert(port);
                    }
                }
                Asked::Unpublish { name } if succeeds => {
                    if let Entry::Occupied(mut published) = self.0.entry(name) {
                        published.get_mut().times -= 1;
                        if published.get().times == 0 {
                            published.remove();
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Leaves out the findings about lookups that found what another job has published, as long as none of their own job had
    /// published that name with success.
    pub(crate) fn excuse(&self, findings: &mut Vec<Finding>, events: &[Event]) {
        if self.0.is_empty() || findings.is_empty() {
            return;
        }
        let (answered, _) = exchanges(events);
        findings.retain(|finding| {
            let is_it = |one: &&Answered| one.seq == finding.seq && Some(one.proc) == finding.proc;
            !answered.iter().filter(is_it).any(|one| self.explain(one, &answered))
        });
    }

    fn explain(&self, lookup: &Answered, answered: &[Answered]) -> bool {
        let (Asked::Lookup { name }, Some(port)) = (&lookup.asked, &lookup.port) else { return false };
        let is_own = |one: &Answered| {
            one.succeeds
                && one.seq < lookup.seq
                && matches!(&one.asked, Asked::Publish { name: published, .. } if published == name)
        };
        let may_be = |ports: &BTreeSet<Vec<u8>>| ports.contains(port) || ports.len() >= MOST_PORTS;
        let left = self.0.get(name).is_some_and(|published| may_be(&published.ports));
        (left || self.0.len() >= MOST) && !answered.iter().any(is_own)
    }
}

/// The requests about names that were answered, in the order of the answers, and those that were not.
fn exchanges(events: &[Event]) -> (Vec<Answered>, Vec<Asked>) {
    let mut answered = Vec::new();
    let mut connections: BTreeMap<Proc, (Connection, Vec<Asked>)> = BTreeMap::new();
    for event in events {
        let (proc, bytes, direction) = match &event.what {
            What::ToServer { proc, bytes } => (*proc, bytes, Direction::ToServer),
            What::FromServer { proc, bytes } => (*proc, bytes, Direction::FromServer),
            _ => continue,
        };
        let new = || (Connection::new(1 << 20), Vec::new());
        let (connection, open) = connections.entry(proc).or_insert_with(new);
        connection.push(direction, &bytes.0);
        while let Some(message) = connection.next(direction) {
            let Ok(message) = message else { continue };
            match direction {
                Direction::ToServer => open.extend(asked(message)),
                Direction::FromServer => {
                    let framing = message.framing;
                    let Some((kind, succeeds, port)) = answer(message) else { continue };
                    let is_it = |asked: &Asked| asked.kind() == kind;
                    let at = match framing {
                        // Of what came before, the answer could not be read, or there was none.
                        Framing::Lines => open.iter().rposition(is_it),
                        // Of threads, several may be under way: they are taken in their order.
                        Framing::Frames => open.iter().position(is_it),
                    };
                    let Some(at) = at else { continue };
                    let asked = open.remove(at);
                    answered.push(Answered { proc, asked, seq: event.seq, succeeds, port });
                }
            }
        }
    }
    (answered, connections.into_values().flat_map(|(_, open)| open).collect())
}

fn asked(message: Framed<'_>) -> Option<Asked> {
    match message.framing {
        Framing::Lines => match Request::parse(message.text, ValueReading::ToEndOfLine).ok()? {
            Request::Publish { service, port } => {
                Some(Asked::Publish { name: service.to_vec(), port: port.to_vec() })
            }
            Request::Unpublish { service } => Some(Asked::Unpublish { name: service.to_vec() }),
            Request::Lookup { service } => Some(Asked::Lookup { name: service.to_vec() }),
            _ => None,
        },
        Framing::Frames => match pmi2::Request::parse(message.text, Semicolons::Doubled).ok()? {
            pmi2::Request::NamePublish { name, port } => {
                Some(Asked::Publish { name: name.to_vec(), port: port.to_vec() })
            }
            pmi2::Request::NameUnpublish { name } => Some(Asked::Unpublish { name: name.to_vec() }),
            pmi2::Request::NameLookup { name } => Some(Asked::Lookup { name: name.to_vec() }),
            _ => None,
        },
    }
}

/// What it answers, whether that succeeds, and the port that is found.
fn answer(message: Framed<'_>) -> Option<(Kind, bool, Option<Vec<u8>>)> {
    match message.framing {
        Framing::Lines => {
            let response = Response::parse(message.text, ValueReading::ToEndOfLine).ok()?;
            let succeeds = response.is_success();
            match response.body {
                Body::Publish => Some((Kind::Publish, succeeds, None)),
                Body::Unpublish => Some((Kind::Unpublish, succeeds, None)),
                Body::Lookup(port) => Some((Kind::Lookup, succeeds, port.map(<[u8]>::to_vec))),
                _ => None,
            }
        }
        Framing::Frames => {
            let response = pmi2::Response::parse(message.text, Semicolons::Doubled).ok()?;
            match response.command {
                pmi2::Command::NamePublish => Some((Kind::Publish, response.is_success(), None)),
                pmi2::Command::NameUnpublish => Some((Kind::Unpublish, response.is_success(), None)),
                pmi2::Command::NameLookup => {
                    let port = response.get("port").or_else(|| response.get("value"));
                    Some((
                        Kind::Lookup,
                        response.is_found() == Some(true),
                        port.map(|port| port.into_owned()),
                    ))
                }
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pmi_judge::Monitor;
    use pmi_judge::event::Bytes;

    use super::*;

    /// A job of one process that asks these things, and is answered so.
    fn job(asked: &[(&str, &str)]) -> Vec<Event> {
        let proc = Proc { group: 0, rank: 0 };
        let bytes = |text: &str| Bytes(format!("{text}\n").into_bytes());
        let init = (
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
        );
        let launched = What::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let said = std::iter::once(&init).chain(asked).flat_map(|(request, answer)| {
            [What::ToServer { proc, bytes: bytes(request) }, What::FromServer { proc, bytes: bytes(answer) }]
        });
        std::iter::once(launched).chain(said).zip(0..).map(|(what, seq)| Event::new(seq, what)).collect()
    }

    /// Requirements that are broken in a job after one that has published the name `a` with the port `old`.
    fn broken(asked: &[(&str, &str)]) -> Vec<String> {
        let mut before = NamesBefore::default();
        before.remember(&job(&[
            ("cmd=publish_name service=a port=old", "cmd=publish_result rc=0"),
            ("cmd=publish_name service=gone port=old", "cmd=publish_result rc=0"),
            ("cmd=unpublish_name service=gone", "cmd=unpublish_result rc=0"),
            ("cmd=publish_name service=twice port=old", "cmd=publish_result rc=0"),
            ("cmd=publish_name service=twice port=new", "cmd=publish_result rc=-1 msg=known"),
            ("cmd=unpublish_name service=twice", "cmd=unpublish_result rc=0"),
        ]));
        let events = job(asked);
        let mut monitor = Monitor::new();
        events.iter().for_each(|event| monitor.observe(event));
        let mut findings = monitor.take_findings();
        before.excuse(&mut findings, &events);
        findings.into_iter().map(|finding| finding.requirement).collect()
    }

    const OLD: (&str, &str) = ("cmd=lookup_name service=a", "cmd=lookup_result rc=0 port=old");

    #[test]
    fn what_another_job_has_left_published_may_be_found_or_not() {
        let none: [&str; 0] = [];
        let refused = ("cmd=publish_name service=a port=new", "cmd=publish_result rc=-1 msg=known");
        assert_eq!(broken(&[OLD]), none);
        assert_eq!(broken(&[refused, OLD]), none);
        assert_eq!(broken(&[("cmd=lookup_name service=a", "cmd=lookup_result rc=-1 msg=none")]), none);
        // As Hydra's name server says that there is none.
        let odd = ("cmd=lookup_name service=none", "cmd=lookup_result rc=0 port=");
        assert_eq!(broken(&[odd, OLD]), ["rfc13.abnf.s-lookup"]);
        assert_eq!(broken(&[("cmd=lookup_name service=twice", "cmd=lookup_result rc=0 port=new")]), none);
    }

    #[test]
    fn what_nobody_has_published_so_is_not_found() {
        let lookup = |service: &str, port: &str| {
            (format!("cmd=lookup_name service={service}"), format!("cmd=lookup_result rc=0 port={port}"))
        };
        for (service, port) in [("b", "old"), ("a", "other"), ("gone", "old")] {
            let (request, answer) = lookup(service, port);
            assert_eq!(broken(&[(&request, &answer)]), ["rfc13.lookup.port"]);
        }
        // Whoever has published it with success finds that.
        let accepted = ("cmd=publish_name service=a port=new", "cmd=publish_result rc=0");
        assert_eq!(broken(&[accepted, OLD]), ["rfc13.lookup.port"]);
        let withdrawn = ("cmd=unpublish_name service=a", "cmd=unpublish_result rc=0");
        assert_eq!(broken(&[accepted, withdrawn, OLD]), ["rfc13.unpublish.gone"]);
    }
}
