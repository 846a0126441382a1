//! Compares several servers: plays the same cases against each, and reports differences between their responses.
//!
//! The comparison ignores values that may differ: names of keyval spaces, limits, sizes, mappings and the content of `msg`. A difference
//! does not count as a violation of a requirement, because it does not show which of the servers is right, if any.

use std::collections::BTreeMap;
use std::io;

use pmi_judge::event::EventKind;
use pmi_wire::{Connection, Direction, Framed, Proc};

use super::server::ServerTarget;
use super::{CaseRun, Target, Thoroughness, Tracing};
use crate::observe::failure::{Failure, FailureKey, LastAction};
use crate::observe::message_kind::{MessageKind, MessageWrites};
use crate::observe::observation::Observation;
use crate::session::case::Case;
use crate::session::reading::ParsedResponse;

/// Several servers to compare.
pub struct Differential {
    servers: Vec<ServerTarget>,
}

impl Differential {
    /// Creates a target that compares the other servers with the first.
    pub fn new(servers: Vec<ServerTarget>) -> Self {
        Self { servers }
    }
}

impl Target for Differential {
    fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> io::Result<CaseRun> {
        let mut all = Vec::new();
        for server in &self.servers {
            let seen = server.play(case, pace, tracing)?.observation;
            // If one server could not be judged, nothing can be compared.
            if seen.unjudged.is_some() {
                return Ok(CaseRun { observation: seen, failures: Vec::new() });
            }
            all.push(seen);
        }
        let failures = first_difference(&all).map(|d| d.failure(&self.servers)).into_iter().collect();
        let seen = all.into_iter().next().ok_or_else(|| io::Error::other("no server to compare"))?;
        Ok(CaseRun { observation: seen, failures })
    }

    fn label(&self) -> String {
        self.servers.iter().map(ServerTarget::label).collect::<Vec<_>>().join(" and ")
    }

    fn command(&self) -> &[String] {
        self.servers.first().map_or(&[], Target::command)
    }

    fn version(&self) -> String {
        self.servers.iter().map(Target::version).collect()
    }
}

/// The first difference between servers.
#[derive(Debug, PartialEq, Eq)]
struct ServerDifference {
    proc: Proc,
    request: LastAction,
    /// The response from each server.
    answers: Vec<String>,
}

impl ServerDifference {
    fn failure(self, servers: &[ServerTarget]) -> Failure {
        let responses: Vec<String> = servers
            .iter()
            .zip(&self.answers)
            .map(|(server, answer)| format!("{} answers {answer}", server.label()))
            .collect();
        Failure {
            description: format!(
                "in response to {} from rank {}: {}",
                self.request,
                self.proc,
                responses.join("; ")
            ),
            key: FailureKey::Difference { request: self.request, answers: self.answers },
            requirement: None,
            seq: None,
            backtrace: None,
        }
    }
}

/// Each process's requests with their responses.
type ServerExchanges = BTreeMap<Proc, Vec<(LastAction, String)>>;

/// Returns the first difference between the servers' responses. If several ranks have a difference, the lowest rank is chosen.
fn first_difference(all: &[Observation]) -> Option<ServerDifference> {
    let answers: Vec<ServerExchanges> = all.iter().map(exchanges).collect();
    for (proc, exchanges) in answers.first()? {
        for (i, (request, _)) in exchanges.iter().enumerate() {
            let at = |other: &ServerExchanges| {
                let answer = other.get(proc).and_then(|e| e.get(i));
                answer.map_or("nothing".to_owned(), |(_, answer)| answer.clone())
            };
            let here: Vec<String> = answers.iter().map(at).collect();
            if here.iter().any(|answer| *answer != here[0]) {
                return Some(ServerDifference { proc: *proc, request: request.clone(), answers: here });
            }
        }
    }
    None
}

/// Returns the requests and responses of each process in the first group, up to the end of the process's connection.
fn exchanges(seen: &Observation) -> ServerExchanges {
    let mut all = ServerExchanges::new();
    let mut last: BTreeMap<Proc, MessageKind> = BTreeMap::new();
    let mut writes = MessageWrites::new(seen.dialect);
    let mut connections: BTreeMap<Proc, Connection> = BTreeMap::new();
    for event in &seen.events {
        let (proc, answers) = match &event.kind {
            EventKind::ToServer { proc, bytes } => {
                last.insert(*proc, writes.write(*proc, &bytes.0).0);
                let connection = connections.entry(*proc).or_insert_with(|| Connection::new(1 << 20));
                connection.push(Direction::ToServer, &bytes.0);
                while connection.next(Direction::ToServer).is_some() {}
                continue;
            }
            EventKind::FromServer { proc, bytes } => {
                let connection = connections.entry(*proc).or_insert_with(|| Connection::new(1 << 20));
                connection.push(Direction::FromServer, &bytes.0);
                let mut messages = Vec::new();
                while let Some(message) = connection.next(Direction::FromServer) {
                    messages.push(message.map_or_else(|_| "unreadable".into(), normalized));
                }
                (*proc, messages)
            }
            EventKind::ClosedByServer { proc } if last.contains_key(proc) => {
                (*proc, vec!["close".to_owned()])
            }
            EventKind::NoResponse { proc, .. } => (*proc, vec!["silence".to_owned()]),
            _ => continue,
        };
        if proc.group == 0 {
            let last_request = last.get(&proc).copied().map_or(LastAction::Start, LastAction::Message);
            all.entry(proc)
                .or_default()
                .extend(answers.into_iter().map(|answer| (last_request.clone(), answer)));
        }
    }
    all
}

/// Returns a response without the parts that may differ between conforming servers. A PMI-2 server may use `rc` or a flag to report that a
/// key or name was not found, and may return a port under either of two keys.
fn normalized(message: Framed<'_>) -> String {
    let Some(answered) = ParsedResponse::read(message.framing, message.text) else {
        return "unreadable".into();
    };
    let name = answered.op.response_name().unwrap_or("empty");
    if !answered.is_found() {
        return format!("{name} refused");
    }
    let value = answered.get("value").or_else(|| answered.get("port"));
    match value.filter(|value| !value.starts_with(b"(vector,")) {
        Some(value) => format!("{name} {}", value[..value.len().min(40)].escape_ascii()),
        None => format!("{name} ok"),
    }
}

#[cfg(test)]
mod tests {
    use pmi_wire::Framing;
    use std::time::Duration;

    use pmi_faults::{Config, faults};

    use super::*;
    use crate::generate::case_from_number;
    use crate::generate::server::scope::SessionFeatures;
    use crate::target::server::Access;

    fn server(config: Config) -> ServerTarget {
        let suite = pmi_runner::suite::embedded().unwrap();
        ServerTarget::new(Access::Memory(config), suite, Duration::from_secs(1)).unwrap()
    }

    fn differences(other: Config) -> Vec<String> {
        let target = Differential::new(vec![server(Config::default()), server(other)]);
        let scope = SessionFeatures { spawn: false, mutate: false, ..SessionFeatures::default() };
        let mut found: Vec<String> = (0..60)
            .flat_map(|n| {
                target
                    .play(&case_from_number(&scope, 1, n), Thoroughness::Fast, Tracing::Off)
                    .unwrap()
                    .failures
            })
            .map(|failure| failure.key.to_string())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn ignores_valid_differences() {
        let other = Config { kvs_prefix: "other".into(), ..Config::default() };
        assert_eq!(differences(other), Vec::<String>::new());
    }

    #[test]
    fn reports_servers_with_different_responses() {
        let mut faults = faults().filter(|f| f.breaks.contains(&"rfc13.get.value"));
        // Some faults do not show up in these short sessions.
        let is_reported = faults.any(|fault| {
            let found = differences(Config { wrapper: fault.behaviour(), ..Config::default() });
            found.iter().any(|bucket| bucket.starts_with("differs--get--"))
        });
        assert!(is_reported);
    }

    #[test]
    fn compares_responses_by_meaning() {
        let of_line = |text| normalized(Framed { framing: Framing::Lines, text });
        let of_frame = |text| normalized(Framed { framing: Framing::Frames, text });
        let same = |a, b| assert_eq!(of_line(a), of_line(b));
        same(b"cmd=my_kvsname rc=0 kvsname=a", b"cmd=my_kvsname kvsname=b");
        same(b"cmd=get_result rc=-1 msg=no", b"cmd=get_result rc=2 msg=key_not_found");
        assert_ne!(of_line(b"cmd=get_result rc=0 value=a"), of_line(b"cmd=get_result rc=0 value=b"));
        assert_eq!(of_line(b"hello"), "unreadable");
        let same = |a, b| assert_eq!(of_frame(a), of_frame(b));
        same(b"cmd=kvs-get-response;found=FALSE;rc=0;", b"cmd=kvs-get-response;rc=1;");
        same(b"cmd=name-lookup-response;rc=0;port=p;", b"cmd=name-lookup-response;value=p;found=TRUE;rc=0;");
    }
}
