//! What answers the processes of a job: the reference server, or something that stands before it and looks on.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use crate::process::tcp::Ends;
use pmi_faults::{Action, GroupId, GroupSpec, Server};
use pmi_judge::event::Bytes;
use pmi_wire::{Proc, WayIn};

use pmi_judge::event::Exit;

/// What is to happen next if nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing.
    Wait,
    /// [`Host::tick`] is to be called again after this time.
    Again(Duration),
    /// The job is to be killed.
    End,
}

/// A job as its host may look at it.
pub(crate) trait View {
    /// The processes that have not ended, each with its pid.
    fn alive(&self) -> Vec<(Proc, i32)>;
    /// Whether the process has read everything that was written to it.
    fn has_read_all(&self, p: Proc) -> bool;
    /// The TCP connections with its processes, our ends.
    fn connections(&self) -> HashSet<Ends>;
}

/// The other half of a job: decides what the processes are told. The first methods are those of [`Server`].
pub(crate) trait Host {
    fn add_group(&mut self, spec: GroupSpec) -> GroupId;
    fn size(&self, group: GroupId) -> u32;
    /// `place` is what `PMI_FD` or `PMI_PORT` is to hold.
    fn environment(&mut self, p: Proc, place: &str) -> Vec<(String, String)>;
    fn connects(&mut self, p: Proc) -> bool;
    fn receive(&mut self, from: Proc, bytes: &[u8]);
    fn closed(&mut self, from: Proc);
    fn spawned(&mut self, group: GroupId, errcodes: &[i64]);
    fn is_joined(&self, p: Proc) -> bool;
    fn next_action(&mut self) -> Option<Action>;

    /// How processes come to their connections.
    fn way_in(&self) -> WayIn;
    /// What is said first to a process that has asked for us.
    fn welcome(&mut self) -> Vec<u8>;
    /// A process has started something for its process manager, with these arguments.
    fn asked_for(&mut self, _args: Vec<Bytes>) {}
    /// Whose connection this is by what was said on it first, and what is answered; `None` where it is nobody's.
    fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)>;

    /// The number that the process's connection is to have; any if `None`.
    fn descriptor(&mut self, _p: Proc) -> Option<i32> {
        None
    }
    /// The process was started.
    fn started(&mut self, _p: Proc) {}
    /// The process closed its connection, or ended, with bytes of ours unread. [`closed`](Self::closed) follows.
    fn left_unread(&mut self, _p: Proc) {}
    /// The process has ended. [`closed`](Self::closed) follows.
    fn ended(&mut self, _p: Proc, _exit: Exit) {}
    /// It wrote to a captured stream.
    fn output(&mut self, _p: Proc, _stderr: bool, _bytes: &[u8]) {}
    /// Called whenever something may have happened, and when the time has come.
    fn tick(&mut self, _job: &dyn View) -> Pace {
        Pace::Wait
    }
    /// Something for people.
    fn say(&mut self, line: fmt::Arguments<'_>) {
        // That stderr may be closed is no reason to stop serving.
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
    fn closed(&mut self, from: Proc) {
        self.closed(from);
    }
    fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        self.spawned(group, errcodes);
    }
    fn is_joined(&self, p: Proc) -> bool {
        self.is_joined(p)
    }
    fn next_action(&mut self) -> Option<Action> {
        self.next_action()
    }
    fn way_in(&self) -> WayIn {
        self.way_in()
    }
    fn welcome(&mut self) -> Vec<u8> {
        self.welcome()
    }
    fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        self.admit(line)
    }
}
