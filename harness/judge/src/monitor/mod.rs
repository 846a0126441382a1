//! The monitor: a model of PMI-1 and of PMI-2 over events, always on.
//!
//! It follows every connection in both directions and reports breaches of either side. After a client has broken the protocol, the
//! standards leave open what the server does ([`Unspecified`]), so the monitor then reports only what is never lawful for that group.

mod attributes;
mod collective;
mod environment;
mod grammar;
mod group_barrier;
mod group_barrier_state;
mod kvs;
mod lifecycle;
mod mapping;
mod names;
mod requests;
mod response;
mod responses;
mod spawn;
mod state;
#[cfg(test)]
mod tests;
mod unspecified;

use pmi_wire::{Arrival, Proc};

pub(crate) use names::NameRequest;
pub use state::Monitor;
pub use unspecified::Unspecified;

use crate::connections::{Message, decode};
use crate::event::{Event, SilenceProof, What};
use state::Group;

impl Monitor {
    /// Reads the next event.
    pub fn observe(&mut self, event: &Event) {
        let arrivals = self.read(event);
        self.judge(event, &decode(&arrivals));
    }

    /// Reads the bytes of the next event, and returns the messages that it completes.
    pub(crate) fn read<'e>(&mut self, event: &'e Event) -> Vec<Arrival<'e>> {
        let said = event.what.said();
        self.goes_on =
            said.is_some_and(|(p, direction, _)| !self.connections.partial(p, direction).is_empty());
        self.connections.read(event)
    }

    /// Judges an event, with the messages that it completes.
    pub(crate) fn judge(&mut self, event: &Event, messages: &[Message<'_>]) {
        self.seq = event.seq;
        match &event.what {
            // The scenario judges stray connections, which belong to no process.
            What::ToServer { proc, .. }
            | What::FromServer { proc, .. }
            | What::ClosedByClient { proc }
            | What::ClosedByServer { proc }
            | What::NoAnswer { proc, .. }
                if proc.group == Proc::STRAYS =>
            {
                self.strayed = true;
                self.irregular |= matches!(event.what, What::ToServer { .. });
            }
            What::Launched { ranks, nodes, .. } => {
                self.groups.insert(0, Group { size: *ranks, nodes: *nodes, ..Group::default() });
            }
            What::Started { proc, env, bad_fd, .. } => {
                if proc.group != 0 && proc.group != Proc::PROXIES {
                    self.child_started(*proc);
                }
                let get = |name: &str| env.get(name).map(String::as_str);
                self.environment(*proc, get, bad_fd.as_deref());
            }
            What::Greeted { proc, told, .. } => self.greeted(*proc, &told.0),
            What::ManagerStarted { proc, args } => self.manager_started(*proc, args),
            What::Singinit { proc, asked, said, told } => self.singinit(*proc, &asked.0, &said.0, &told.0),
            What::ToServer { proc, bytes } => self.client_wrote(*proc, bytes.0.len(), messages),
            What::FromServer { proc, .. } => self.server_wrote(*proc, messages),
            What::ClosedByClient { proc } => self.client_gone(*proc, true),
            What::ClosedByServer { proc } => self.closed_by_server(*proc),
            What::Ended { proc, ours: true } => self.client_gone(*proc, false),
            // Its connection ends with it; either of the two events may come first.
            What::Ended { proc, ours: false } => self.closed_by_server(*proc),
            What::NoAnswer { proc, .. } if proc.group == Proc::PROXIES => {}
            What::NoAnswer { proc, proof } => {
                self.unproved = *proof == SilenceProof::Timeout;
                self.no_answer(*proc);
                self.not_read.clear();
            }
            What::NotRead { proc } => {
                self.not_read.insert(*proc);
            }
            What::Expected(_) => self.not_read.clear(),
            What::JobExited { exit } => self.job_exited(*exit),
            What::LeftUnread { proc } => self.rank(*proc).left_unread = true,
            // The runner ends them now.
            What::StillRunning { procs, .. } => procs.iter().for_each(|p| self.rank(*p).closed = true),
            // From here on, messages to the clients may be effects of the scenario, which states what must hold.
            What::ToProxy { scripted, .. } => self.scripted |= scripted,
            What::ClosedByUpstream { .. } => self.scripted = true,
            What::FromProxy { .. }
            | What::ProxyEnded { .. }
            | What::NotStarted { .. }
            | What::Output { .. }
            | What::LibraryFile { .. }
            | What::Loaded { .. }
            | What::Called { .. }
            | What::NotCalled { .. }
            | What::Returned { .. }
            | What::Exited { .. }
            | What::Backtrace(_)
            | What::Untraced { .. }
            | What::Nothing { .. }
            | What::StartsFewer { .. }
            | What::PlayedAgain { .. }
            | What::Flooded { .. }
            | What::Abandoned(_)
            | What::NotReached { .. }
            | What::Crashed { .. }
            | What::PlainRun(_)
            | What::Reached { .. }
            | What::Aborted { .. }
            | What::Outlived { .. }
            | What::BrokenMemory { .. }
            | What::OutputCompared { .. }
            | What::JobStays { .. }
            | What::JobEnding(_)
            | What::LeftBehind { .. } => {}
        }
    }
}
