//! Names that earlier jobs of a server have published. MPI leaves the scope of a name to the implementation, and RFC 13 does not define it.
//! A job may therefore find the name of an earlier job, but need not.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pmi_wire::{Direction, Framing, Operation, Proc, ResponseOutcome};

use crate::connections::Connections;
use crate::event::Event;
use crate::finding::Finding;
use crate::monitor::NameRequest;

/// Maximum number of names that are stored. After this number is reached, a lookup of any name may succeed.
const MAX_NAMES: usize = 100_000;

/// Names that earlier jobs may have left published. Each value counts the publish requests without a matching
/// successful unpublish.
#[derive(Debug, Clone, Default)]
pub struct EarlierNames(BTreeMap<Vec<u8>, u64>);

/// A request about a name, its response, and the number of the response's event.
#[derive(Debug)]
struct NameExchange {
    proc: Proc,
    request: NameRequest,
    seq: u64,
    succeeds: bool,
    /// True if the request is a lookup that has found a port.
    found: bool,
}

impl EarlierNames {
    /// Stores the names that a job may have left published. A refused publish counts as well, because Hydra's name server stores the
    /// refused port, and returns it after the previous port is withdrawn.
    pub fn record(&mut self, events: &[Event]) {
        let (answered, open) = exchanges(events);
        let answered = answered.into_iter().map(|one| (one.request, one.succeeds));
        for (request, succeeds) in answered.chain(open.into_iter().map(|request| (request, false))) {
            match request {
                NameRequest::Publish { name, .. } if self.0.len() < MAX_NAMES => {
                    *self.0.entry(name).or_default() += 1;
                }
                NameRequest::Unpublish { name } if succeeds => {
                    if let Entry::Occupied(mut times) = self.0.entry(name) {
                        *times.get_mut() -= 1;
                        if *times.get() == 0 {
                            times.remove();
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the findings, except those about a lookup that may have found a name from an earlier job. A finding is kept if the job
    /// itself has published the name.
    pub fn without_excused(&self, findings: &[Finding], events: &[Event]) -> Vec<Finding> {
        if self.0.is_empty() || findings.is_empty() {
            return findings.to_vec();
        }
        let (answered, _) = exchanges(events);
        let is_open = |finding: &&Finding| {
            let is_it = |one: &&NameExchange| one.seq == finding.seq && Some(one.proc) == finding.proc;
            answered.iter().filter(is_it).any(|one| self.may_find(one, &answered))
        };
        findings.iter().filter(|finding| !is_open(finding)).cloned().collect()
    }

    fn may_find(&self, lookup: &NameExchange, answered: &[NameExchange]) -> bool {
        let name = lookup.request.name();
        let is_own = |one: &NameExchange| {
            one.succeeds
                && one.seq < lookup.seq
                && matches!(&one.request, NameRequest::Publish { name: own, .. } if own == name)
        };
        lookup.found
            && (self.0.contains_key(name) || self.0.len() >= MAX_NAMES)
            && !answered.iter().any(is_own)
    }
}

/// Returns whether any lookup has found a name.
pub fn is_found(events: &[Event]) -> bool {
    exchanges(events).0.iter().any(|one| one.found)
}

/// Returns the answered requests about names, in the order of the responses, and the unanswered ones.
fn exchanges(events: &[Event]) -> (Vec<NameExchange>, Vec<NameRequest>) {
    let mut answered = Vec::new();
    let mut open: BTreeMap<Proc, Vec<NameRequest>> = BTreeMap::new();
    Connections::default().read_all(events, |event, proc, (direction, message)| {
        let Ok(message) = message else { return };
        let open = open.entry(proc).or_default();
        if *direction == Direction::ToServer {
            return open.extend(NameRequest::new(message));
        }
        let Some(kind) = message.operation() else { return };
        let is_it = |request: &NameRequest| request.operation() == kind;
        let at = match message.framing {
            // RFC 13, Wire Protocol: a client sends a request after the response to the previous one, so this is the response to the last
            // request. Earlier requests have an unreadable response or no response.
            Framing::Lines => open.iter().rposition(is_it),
            // PMI-2 draft, thrid: several requests may be pending. They are assumed to be answered in order.
            Framing::Frames => open.iter().position(is_it),
        };
        let Some(at) = at else { return };
        let found = message.outcome() == Some(ResponseOutcome::Success);
        let is_lookup = kind == Operation::Lookup;
        answered.push(NameExchange {
            proc,
            request: open.remove(at),
            seq: event.seq,
            succeeds: if is_lookup { found } else { message.is_success() },
            found: is_lookup && found && message.field("port").is_some(),
        });
    });
    (answered, open.into_values().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Monitor;
    use crate::testing::{INITS, cited, events, launched, numbered};

    /// Returns the events of a job with one process that sends these requests and receives these responses.
    fn job(exchanges: &[(&str, &str)]) -> Vec<Event> {
        let lines = exchanges
            .iter()
            .flat_map(|(request, answer)| [format!("0 > {request}"), format!("0 < {answer}")]);
        let lines: Vec<String> = lines.collect();
        numbered([launched(1, 0)].into_iter().chain(events(&INITS[0])).chain(events(&lines)))
    }

    /// Returns the requirements that a job breaks after an earlier job has published the name `a` with the port `old`.
    fn broken(exchanges: &[(&str, &str)]) -> Vec<String> {
        let mut before = EarlierNames::default();
        before.record(&job(&[
            ("cmd=publish_name service=a port=old", "cmd=publish_result rc=0"),
            ("cmd=publish_name service=gone port=old", "cmd=publish_result rc=0"),
            ("cmd=unpublish_name service=gone", "cmd=unpublish_result rc=0"),
            ("cmd=publish_name service=twice port=old", "cmd=publish_result rc=0"),
            ("cmd=publish_name service=twice port=new", "cmd=publish_result rc=-1 msg=known"),
            ("cmd=unpublish_name service=twice", "cmd=unpublish_result rc=0"),
        ]));
        let events = job(exchanges);
        let mut monitor = Monitor::new();
        events.iter().for_each(|event| monitor.observe(event));
        cited(before.without_excused(&monitor.take_findings(), &events))
    }

    const OLD: (&str, &str) = ("cmd=lookup_name service=a", "cmd=lookup_result rc=0 port=old");

    #[test]
    fn lookup_may_find_a_name_from_an_earlier_job() {
        let none: [&str; 0] = [];
        let refused = ("cmd=publish_name service=a port=new", "cmd=publish_result rc=-1 msg=known");
        assert_eq!(broken(&[OLD]), none);
        assert_eq!(broken(&[refused, OLD]), none);
        assert_eq!(broken(&[("cmd=lookup_name service=a", "cmd=lookup_result rc=-1 msg=none")]), none);
        // Hydra's name server reports a missing name in this form.
        let odd = ("cmd=lookup_name service=none", "cmd=lookup_result rc=0 port=");
        assert_eq!(broken(&[odd, OLD]), ["rfc13.abnf.s-lookup"]);
        assert_eq!(broken(&[("cmd=lookup_name service=twice", "cmd=lookup_result rc=0 port=new")]), none);
    }

    #[test]
    fn lookup_must_not_return_an_unpublished_port() {
        let lookup = |service: &str, port: &str| {
            (format!("cmd=lookup_name service={service}"), format!("cmd=lookup_result rc=0 port={port}"))
        };
        for (service, port) in [("b", "old"), ("gone", "old")] {
            let (request, answer) = lookup(service, port);
            assert_eq!(broken(&[(&request, &answer)]), ["rfc13.lookup.port"]);
        }
        // A job that has published the name successfully must find its own port.
        let accepted = ("cmd=publish_name service=a port=new", "cmd=publish_result rc=0");
        assert_eq!(broken(&[accepted, OLD]), ["rfc13.lookup.port"]);
        let withdrawn = ("cmd=unpublish_name service=a", "cmd=unpublish_result rc=0");
        assert_eq!(broken(&[accepted, withdrawn, OLD]), ["rfc13.unpublish.gone"]);
    }
}
