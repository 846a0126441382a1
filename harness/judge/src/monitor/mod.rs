//! The monitor: a model of PMI-1 and PMI-2 that reads all events, with or without a scenario. The monitor follows every
//! connection in both directions and reports violations by either side. After a client has broken the protocol, the
//! standards do not specify the server's behaviour ([`Unspecified`]). From then on, the monitor reports only those
//! actions towards the client's group that are never allowed.

mod attributes;
mod collective;
mod environment;
mod grammar;
mod group_barrier;
mod group_barrier_state;
mod kvs;
mod lifecycle;
mod mapping;
mod name_request;
mod names;
mod placement;
mod requests;
mod response;
mod responses;
mod spawn;
mod state;
#[cfg(test)]
mod tests;
mod unspecified;

use pmi_wire::{Arrival, Proc};

pub(crate) use grammar::is_readable_leniently;
pub(crate) use name_request::NameRequest;
pub use state::Monitor;
pub use unspecified::Unspecified;

use crate::connections::{CompletedMessage, decode};
use crate::event::{Event, EventKind, SilenceProof};
use state::MonitoredGroup;

impl Monitor {
    /// Reads the next event.
    pub fn observe(&mut self, event: &Event) {
        let arrivals = self.read(event);
        self.judge(event, &decode(&arrivals));
    }

    /// Reads the bytes of the next event, and returns the messages that it completes.
    pub(crate) fn read<'e>(&mut self, event: &'e Event) -> Vec<Arrival<'e>> {
        let bytes = event.kind.message_bytes();
        self.continues_message =
            bytes.is_some_and(|(p, direction, _)| !self.connections.partial(p, direction).is_empty());
        self.connections.read(event)
    }

    /// Judges an event and the messages that it completes.
    pub(crate) fn judge(&mut self, event: &Event, messages: &[CompletedMessage<'_>]) {
        self.seq = event.seq;
        match &event.kind {
            // The scenario judges stray connections, which belong to no process.
            EventKind::ToServer { proc, .. }
            | EventKind::FromServer { proc, .. }
            | EventKind::ClosedByClient { proc }
            | EventKind::ClosedByServer { proc }
            | EventKind::NoResponse { proc, .. }
                if proc.group == Proc::STRAY_GROUP =>
            {
                self.has_stray_bytes = true;
                self.irregular |= matches!(event.kind, EventKind::ToServer { .. });
            }
            EventKind::Launched { ranks, nodes, .. } => {
                self.groups
                    .insert(0, MonitoredGroup { size: *ranks, nodes: *nodes, ..MonitoredGroup::default() });
            }
            EventKind::Started { proc, env, bad_fd, .. } => {
                if proc.group != 0 && proc.group != Proc::PROXY_GROUP {
                    self.child_started(*proc);
                }
                let get = |name: &str| env.get(name).map(String::as_str);
                self.rank(*proc).rank_variable = get("PMI_RANK").map(str::to_owned);
                if proc.group == 0 {
                    self.group(0).placement.record(proc.rank, get);
                }
                self.environment(*proc, get, bad_fd.as_deref());
            }
            EventKind::Greeted { proc, response, .. } => self.greeted(*proc, &response.0),
            EventKind::ManagerStarted { proc, args } => self.manager_started(*proc, args),
            EventKind::Singinit { proc, request, answer, reply } => {
                self.singinit(*proc, &request.0, &answer.0, &reply.0)
            }
            EventKind::ToServer { proc, bytes } => self.client_wrote(*proc, &bytes.0, messages),
            EventKind::FromServer { proc, .. } => self.server_wrote(*proc, messages),
            EventKind::ClosedByClient { proc } => self.client_ended(*proc, true),
            EventKind::ClosedByServer { proc } => self.closed_by_server(*proc),
            EventKind::Ended { proc, ours: true } => self.client_ended(*proc, false),
            // The connection of a process ends with the process, and either of the two events may come first.
            EventKind::Ended { proc, ours: false } => self.closed_by_server(*proc),
            EventKind::NoResponse { proc, .. } if proc.group == Proc::PROXY_GROUP => {}
            EventKind::NoResponse { proc, proof } => {
                self.lacks_proof = *proof == SilenceProof::Timeout;
                self.no_response(*proc);
                self.not_read.clear();
            }
            EventKind::NotRead { proc } => {
                self.not_read.insert(*proc);
            }
            EventKind::Expected(_) => self.not_read.clear(),
            EventKind::JobExited { exit } => self.job_exited(*exit),
            EventKind::LeftUnread { proc } => self.rank(*proc).left_unread = true,
            // The runner now terminates these processes.
            EventKind::StillRunning { procs, .. } => procs.iter().for_each(|p| self.rank(*p).closed = true),
            // From here on, the scenario may be the cause of any message to the clients, so only the scenario judges these messages.
            EventKind::ToProxy { scripted, .. } => self.upstream_scripted |= scripted,
            EventKind::ClosedByUpstream { .. } => self.upstream_scripted = true,
            EventKind::FromProxy { .. }
            | EventKind::ProxyEnded { .. }
            | EventKind::NotStarted { .. }
            | EventKind::Output { .. }
            | EventKind::LibraryFile { .. }
            | EventKind::Loaded { .. }
            | EventKind::Called { .. }
            | EventKind::NotCalled { .. }
            | EventKind::Returned { .. }
            | EventKind::Exited { .. }
            | EventKind::Backtrace(_)
            | EventKind::Untraced { .. }
            | EventKind::Silence { .. }
            | EventKind::StartsFewerRanks { .. }
            | EventKind::Replayed { .. }
            | EventKind::Flooded { .. }
            | EventKind::Abandoned(_)
            | EventKind::StatementsSkipped { .. }
            | EventKind::Crashed { .. }
            | EventKind::PlainRun(_)
            | EventKind::SituationReached { .. }
            | EventKind::Aborted { .. }
            | EventKind::OutlivedLauncher { .. }
            | EventKind::BrokenMemory { .. }
            | EventKind::OutputCompared { .. }
            | EventKind::JobKeepsRunning { .. }
            | EventKind::JobEnding(_)
            | EventKind::LeftoverProcesses { .. } => {}
        }
    }
}
