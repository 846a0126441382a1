//! The interface to the component that answers the requests of a job's processes: the reference server, or a wrapper that observes it.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use pmi_faults::{GroupId, GroupSpec, Server, ServerAction};
use pmi_judge::event::Bytes;
use pmi_process::observe::tcp::Ends;
use pmi_wire::{ConnectionMethod, Proc};

use pmi_judge::event::Exit;

/// The next action of the event loop if no event arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextTick {
    /// Wait for an event.
    Wait,
    /// Call [`Host::tick`] again after this time.
    Again(Duration),
    /// Kill the job.
    End,
}

/// A view of a job through which the host can inspect the job's processes.
pub(crate) trait JobView {
    /// Returns the processes that have not ended, each with its pid.
    fn alive(&self) -> Vec<(Proc, i32)>;
    /// Returns whether the process has read everything that was written to it.
    fn has_read_all(&self, p: Proc) -> bool;
    /// Returns the server's ends of the TCP connections with its processes.
    fn connections(&self) -> HashSet<Ends>;
}

/// A component that decides what each process of a job receives: its environment, connection and messages. The methods up to `next_action`
/// mirror those of [`Server`].
pub(crate) trait Host {
    fn add_group(&mut self, spec: GroupSpec) -> GroupId;
    fn size(&self, group: GroupId) -> u32;
    /// Returns the environment of a process. `place` is the value of `PMI_FD` or `PMI_PORT`.
    fn environment(&mut self, p: Proc, place: &str) -> Vec<(String, String)>;
    fn connects(&mut self, p: Proc) -> bool;
    fn receive(&mut self, from: Proc, bytes: &[u8]);
    /// Called when a round of the event loop begins. Returns whether the loop lets requests gather first, so that several of them
    /// arrive in the same round.
    fn begin_round(&mut self) -> bool {
        false
    }
    fn closed(&mut self, from: Proc);
    fn spawned(&mut self, group: GroupId, errcodes: &[i64]);
    fn is_joined(&self, p: Proc) -> bool;
    fn next_action(&mut self) -> Option<ServerAction>;

    /// Returns the kind of connection that processes receive.
    fn connection_method(&self) -> ConnectionMethod;
    /// Returns the first message to a process that has requested a process manager.
    fn welcome(&mut self) -> Vec<u8>;
    /// Called when a process has started a program as its process manager, with the given arguments.
    fn manager_requested(&mut self, _args: Vec<Bytes>) {}
    /// Identifies the process of a connection by the connection's first line. Returns the process and the response, or `None` if the line
    /// identifies no process.
    fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)>;

    /// Returns the required number of the process's descriptor; `None` allows any number.
    fn descriptor(&mut self, _p: Proc) -> Option<i32> {
        None
    }
    /// Called when the process has been started.
    fn started(&mut self, _p: Proc) {}
    /// Called when the process has closed its connection, or has ended, without reading everything that the server wrote. A call to
    /// [`closed`](Self::closed) follows.
    fn left_unread(&mut self, _p: Proc) {}
    /// Called when the process has ended. A call to [`closed`](Self::closed) follows.
    fn ended(&mut self, _p: Proc, _exit: Exit) {}
    /// Called when the process has written to a captured stream.
    fn output(&mut self, _p: Proc, _stderr: bool, _bytes: &[u8]) {}
    /// Called after every event, and when the requested time has passed.
    fn tick(&mut self, _job: &dyn JobView) -> NextTick {
        NextTick::Wait
    }
    /// Prints a line for the user.
    fn print(&mut self, line: fmt::Arguments<'_>) {
        // The server continues even if stderr is closed.
        _ = io::stderr().write_all(format!("pmi-conform serve: {line}\n").as_bytes());
    }
}

impl Host for Server {
    fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        self.add_group(spec)
    }
    fn size(&self, group: GroupId) -> u32 {
        self.size(group)
    }
    fn environment(&mut self, p: Proc, place: &str) -> Vec<(String, String)> {
        self.environment(p, place).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
    fn connects(&mut self, p: Proc) -> bool {
        self.connects(p)
    }
    fn receive(&mut self, from: Proc, bytes: &[u8]) {
        self.receive(from, bytes);
    }
    fn begin_round(&mut self) -> bool {
        self.begin_round()
    }
    fn closed(&mut self, from: Proc) {
        self.closed(from);
    }
    fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        self.spawned(group, errcodes);
    }
    fn is_joined(&self, p: Proc) -> bool {
        self.is_joined(p)
    }
    fn next_action(&mut self) -> Option<ServerAction> {
        self.next_action()
    }
    fn connection_method(&self) -> ConnectionMethod {
        self.connection_method()
    }
    fn welcome(&mut self) -> Vec<u8> {
        self.welcome()
    }
    fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        self.admit(line)
    }
}
