//! The kill matrix of clients: the results of playing scripted sessions, each with one fault or variation, against the reference server.
//! The matrix proves that the monitor finds the errors of clients.
//!
//! A fault is killed if a finding against the client cites a requirement that the fault breaks. A variation must not cause any finding
//! against the client or the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use pmi_faults::client::{
    ClientFault, ClientSession, ClientVariation, PlainSession, SessionAction, UNDETECTABLE_REQUIREMENTS,
};
use pmi_faults::{Config, Edit};
use serde::Serialize;

use super::{PartyResult, without_fault};
use crate::behaviours::behaviour;
use crate::interpret::Recorder;
use crate::party::{Incoming, MemoryParty, Party, SilenceMeaning};
use pmi_judge::event::{Bytes, EventKind, SilenceProof};
use pmi_judge::{Finding, Judge, PartyKind};
use pmi_scenario::requirement::{BoundParty, Requirement};
use pmi_scenario::suite::Suite;
use pmi_wire::{Framing, Proc};

/// The kill matrix of the clients.
#[derive(Debug, Clone, Serialize)]
pub struct ClientMatrix {
    /// The result of each fault, in the order of the fault table.
    pub faults: Vec<PartyResult>,
    /// The result of each variation, in the order of the variation table. The first results are for the sessions with neither fault nor
    /// variation.
    pub variations: Vec<PartyResult>,
    /// Client requirements that must be tested with a fault, but that no finding about a fault cites.
    #[serde(rename = "without_fault")]
    pub requirements_without_fault: Vec<String>,
}

impl ClientMatrix {
    /// Returns whether every fault is killed, no variation causes a finding, and each client requirement that must be tested with a fault
    /// is cited by a finding about a fault.
    pub fn is_complete(&self) -> bool {
        self.faults.iter().chain(&self.variations).all(PartyResult::is_right)
            && self.requirements_without_fault.is_empty()
    }

    /// Returns the requirements that were cited by a finding about a fault that breaks them.
    pub fn cited_requirements(&self) -> BTreeSet<&str> {
        self.faults.iter().flat_map(PartyResult::cited).collect()
    }
}

/// Returns whether a client fault must prove that the requirement is monitored. Returns false for requirements that no script can visibly
/// break.
pub fn needs_client_fault(requirement: &Requirement) -> bool {
    requirement.needs_fault(BoundParty::Client)
        && UNDETECTABLE_REQUIREMENTS.iter().all(|u| u.id != requirement.id)
}

/// The state of a scripted process.
struct ScriptedState {
    /// True if a message from the process has not been answered.
    waits: bool,
}

struct PlayedSession<'a> {
    party: MemoryParty,
    recorder: Recorder<'a>,
    procs: BTreeMap<Proc, ScriptedState>,
    /// The names of the keyval spaces that the server has sent, by group.
    names: BTreeMap<u32, String>,
}

impl PlayedSession<'_> {
    /// Processes and records the server's new actions.
    fn drain(&mut self) {
        while let Incoming::Event(kind) = self.party.next(Instant::now(), SilenceMeaning::Expected) {
            match &kind {
                EventKind::Started { proc, .. } => {
                    self.procs.insert(*proc, ScriptedState { waits: false });
                }
                EventKind::FromServer { proc, bytes } => {
                    let text = String::from_utf8_lossy(&bytes.0);
                    if let Some((_, rest)) =
                        text.split_once("cmd=my_kvsname ").filter(|_| text.ends_with('\n'))
                        && let Some((_, name)) = rest.split_once("kvsname=")
                    {
                        let name = name.split([' ', '\n']).next().unwrap_or_default();
                        self.names.insert(proc.group, name.to_owned());
                    }
                    if let Some(state) = self.procs.get_mut(proc) {
                        state.waits = false;
                    }
                }
                EventKind::ClosedByServer { proc } | EventKind::Ended { proc, .. } => {
                    self.procs.remove(proc);
                }
                _ => {}
            }
            self.recorder.record(kind);
        }
    }

    /// Closes the connection of a process, and makes the process exit.
    fn end(&mut self, proc: Proc) {
        self.procs.remove(&proc);
        self.recorder.record(EventKind::ClosedByClient { proc });
        self.recorder.record(EventKind::Ended { proc, ours: true });
        self.party.exit(proc, 0);
        self.drain();
    }

    fn fill(&self, proc: Proc, bytes: &[u8]) -> Vec<u8> {
        let Proc { group, .. } = proc;
        let name = |group: u32| self.names.get(&group).map_or("unknown", String::as_str);
        let values = [("{kvs}", name(group)), ("{child}", name(1)), ("{agent}", "/memory/agent-1")];
        let mut bytes = bytes.to_vec();
        for (mark, value) in values {
            while let Some(at) = memchr::memmem::find(&bytes, mark.as_bytes()) {
                bytes.splice(at..at + mark.len(), value.bytes());
            }
        }
        bytes
    }
}

/// Plays a session and returns the monitor's findings.
fn judged(session: &ClientSession) -> Vec<Finding> {
    let ClientSession { server_fault, pmi2, pmi12, .. } = *session;
    // This cannot fail, because the names come from the embedded tables.
    let wrapper = behaviour(server_fault, []).unwrap_or_else(|error| panic!("faults.toml: {error}"));
    let config = Config { wrapper, pmi2, pmi12, ..Config::default() };
    let mut sink = ();
    let mut play = PlayedSession {
        party: MemoryParty::launch(config, session.ranks),
        recorder: Recorder::new(&mut sink, Judge::without_scenario(PartyKind::Client)),
        procs: BTreeMap::new(),
        names: BTreeMap::new(),
    };
    play.recorder.record(EventKind::Launched { command: Vec::new(), ranks: session.ranks, nodes: 1 });
    play.drain();
    for step in &session.steps {
        let proc = Proc { group: step.group, rank: step.rank };
        let Some(state) = play.procs.get_mut(&proc) else { continue };
        let waits = std::mem::replace(&mut state.waits, true);
        let bytes = match &step.action {
            SessionAction::Write(bytes) => Some(play.fill(proc, bytes)),
            SessionAction::Frames(bodies) => {
                let frame =
                    |body: &Vec<u8>| Framing::Frames.complete(play.fill(proc, body)).unwrap_or_default();
                Some(bodies.iter().flat_map(frame).collect())
            }
            SessionAction::Close => None,
        };
        match bytes {
            Some(_) if waits && !step.without_waiting => {}
            Some(bytes) => {
                for piece in bytes.chunks(session.max_write) {
                    play.recorder.record(EventKind::ToServer { proc, bytes: Bytes(piece.to_vec()) });
                    play.party.send(proc, piece);
                    play.drain();
                }
            }
            None => {
                if waits {
                    let proof = SilenceProof::Idle;
                    play.recorder.record(EventKind::NoResponse { proc, proof });
                }
                play.end(proc);
            }
        }
    }
    play.recorder.judge.take_monitor_findings()
}

fn describe(finding: &Finding) -> String {
    format!("{}: expected {}, seen {}", finding.requirement, finding.expected, finding.seen)
}

/// Plays the session of a fault or variation. Returns the findings, and the result with an empty `wrong`, which the caller fills in.
fn tried(client: &ClientFault) -> (PartyResult, Vec<Finding>) {
    let findings = judged(&client.session());
    let cited = findings.iter().filter(|f| f.party == PartyKind::Client).map(|f| f.requirement.clone());
    let (name, about, breaks) = (client.name, client.description, client.breaks.to_vec());
    (PartyResult { name, about, breaks, cited: cited.collect(), wrong: Vec::new() }, findings)
}

fn try_fault(fault: &ClientFault) -> PartyResult {
    let (result, findings) = tried(fault);
    let is_killed = result.cited().next().is_some();
    let first = findings.iter().find(|f| f.party == PartyKind::Client).map(describe);
    let wrong = first.unwrap_or_else(|| "no finding".to_owned());
    PartyResult { wrong: if is_killed { Vec::new() } else { vec![wrong] }, ..result }
}

fn try_variation(variation: &ClientVariation) -> PartyResult {
    let (result, findings) = tried(variation);
    PartyResult { wrong: findings.iter().map(describe).collect(), ..result }
}

/// Plays a session with each fault and each variation, on a single thread. This takes a fraction of a second.
pub fn run(suite: &Suite, faults: &[&ClientFault], variations: &[&ClientVariation]) -> ClientMatrix {
    let plain = |name, about, plain| ClientVariation {
        name,
        breaks: &[],
        description: about,
        plain,
        edit: Edit::default(),
    };
    let plain = [
        plain("client-plain", "the unmodified session of PMI-1", PlainSession::Lines),
        plain("client-plain-pmi12", "the unmodified session of PMI-1.2", PlainSession::Groups),
        plain("client-plain-pmi2", "the unmodified session of PMI-2", PlainSession::Frames),
    ];
    let mut matrix = ClientMatrix {
        faults: faults.iter().map(|f| try_fault(f)).collect(),
        variations: plain.iter().chain(variations.iter().copied()).map(try_variation).collect(),
        requirements_without_fault: Vec::new(),
    };
    let shown = matrix.cited_requirements();
    matrix.requirements_without_fault = without_fault(suite, needs_client_fault, &shown);
    matrix
}

#[cfg(test)]
mod tests {
    use pmi_faults::catalogue;

    use super::*;

    #[test]
    fn client_faults_refer_to_client_requirements() {
        let suite = crate::suite::embedded().expect("the embedded suite is valid");
        let broken =
            catalogue().client_faults.iter().flat_map(|f| f.breaks.iter().map(move |id| (f.name, *id)));
        for (name, id) in broken.chain(UNDETECTABLE_REQUIREMENTS.iter().map(|u| ("unseen", u.id))) {
            let binds = suite.catalogue.get(id).map(|r| r.binds.contains(&BoundParty::Client));
            assert_eq!(binds, Some(true), "{name}: {id} is not a requirement for clients");
        }
    }
}
