//! The interface between the interpreter and the other end of the connections, for every kind of implementation.

use std::collections::BTreeMap;
use std::time::Instant;

use pmi_judge::event::{EventKind, SilenceProof};
use pmi_judge::library::api::CallArgument;
use pmi_process::Memory;
use pmi_wire::Proc;

use super::proxy::UpstreamCommand;

/// The result of a wait for an event.
#[derive(Debug)]
pub enum Incoming {
    /// An event has happened.
    Event(EventKind),
    /// No event has happened. The proof shows that none will follow, but [`SilenceProof::Timeout`] shows only that the deadline
    /// has passed.
    Nothing(SilenceProof),
    /// The user has interrupted the run.
    Interrupted,
}

/// The meaning of silence during a wait for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceMeaning {
    /// No message is expected.
    Expected,
    /// Silence is one of several valid outcomes.
    Valid,
    /// A response is due. Its absence must be proved; otherwise, the wait lasts until the deadline.
    ResponseDue,
}

/// The party that the interpreter drives: a server with its connections and the processes that it has started, or the processes of a
/// library. A program under test is driven without a party; see `party/program/job.rs`.
///
/// A party transfers bytes and reports facts. It does not judge.
pub trait Party {
    /// Writes bytes, in one write if the connection accepts them. Bytes for a closed connection are ignored; the end of the connection is
    /// reported as an event.
    fn send(&mut self, to: Proc, bytes: &[u8]);
    /// Closes the runner's end of the connection.
    fn close(&mut self, proc: Proc);
    /// Makes the process exit with `status`, and closes the runner's end of the connection.
    fn exit(&mut self, proc: Proc, status: u8);
    /// Makes the process kill itself with `signal`, and closes the runner's end of the connection.
    fn kill(&mut self, proc: Proc, signal: u8);
    /// Gives the server a short time to read all previous writes, so that the server reads the next write separately.
    fn separate_writes(&mut self) {}
    /// Stops or continues the process. While it is stopped, nothing is read from its connection.
    fn pause(&mut self, _proc: Proc, _stops: bool) {}
    /// Stops or continues the parent of the process, unless the parent is this program or unknown.
    fn pause_parent(&mut self, _proc: Proc, _stops: bool) {}
    /// Waits for the next event, until the deadline. Unless silence is expected, it must last longer before it counts as proved.
    fn next(&mut self, deadline: Instant, silence: SilenceMeaning) -> Incoming;
    /// Starts a process that loads the library under test. Only the party for libraries implements this method and [`call`](Self::call).
    fn start(&mut self, _proc: Proc, _env: BTreeMap<String, String>) {}
    /// Calls a function of the library under test.
    fn call(&mut self, _proc: Proc, _function: &str, _arguments: Vec<CallArgument>) {}
    /// Sets the requests that a proxy's upstream leaves to the scenario. Called before all other methods, and only for a party with an
    /// upstream.
    fn hold(&mut self, _requests: Vec<String>) {}
    /// Sends a command to the upstream of a proxy.
    fn upstream(&mut self, _command: UpstreamCommand) {}
    /// Returns the processes whose bytes the implementation has not read.
    fn unread(&self) -> Vec<Proc> {
        Vec::new()
    }
    /// Returns the memory use of the launcher and of the processes at the other end of the connections. The result is empty if it cannot be
    /// measured.
    fn memory(&self) -> Vec<Memory> {
        Vec::new()
    }
    /// Returns the running processes of a job that should have ended: the agents that were ordered to exit, and the names of the
    /// implementation's processes.
    fn still_running(&self) -> (Vec<Proc>, Vec<String>) {
        (Vec::new(), Vec::new())
    }
    /// Terminates all remaining processes of the job, through the launcher if possible. Returns the actions taken, and the launcher's
    /// output that has not been reported yet.
    fn end(&mut self) -> Vec<EventKind> {
        Vec::new()
    }
    /// Called when a `wait` step begins. Skips the time of the step if the party has no clock; otherwise, other launches may use the time.
    /// Returns whether the time was skipped.
    fn pass_time(&mut self) -> bool {
        false
    }
    /// Makes a stray connection to the port in `PMI_PORT`, unless that connection already exists.
    fn connect(&mut self, _stray: Proc) {}

    /// Returns a program for a spawn request. Its processes report to the runner as process group `group`.
    fn agent(&mut self, group: u32) -> Vec<u8>;
}
