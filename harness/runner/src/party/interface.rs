//! What the interpreter asks of whoever is at the other end, whatever kind of implementation it is.

use std::collections::BTreeMap;
use std::time::Instant;

use pmi_judge::event::{SilenceProof, What};
use pmi_judge::library::api::Argument;
use pmi_wire::Proc;

use super::proxy::UpstreamCommand;
use crate::process::Memory;

/// What came of waiting.
#[derive(Debug)]
pub enum Incoming {
    /// Something happened.
    Event(What),
    /// Nothing comes, and this is how that is known; of [`SilenceProof::Timeout`], that the deadline has passed.
    Nothing(SilenceProof),
    /// The user wants the run to end.
    Interrupted,
}

/// What it means where nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing is expected.
    Expected,
    /// It is one of several lawful outcomes.
    Lawful,
    /// An answer is due: that there is none takes a proof, or the whole time.
    Wrong,
}

/// What the interpreter drives: a server with its connections and the processes that it has started for us, or the processes of a library. A
/// program under test has none; see `party/program/stage.rs`.
///
/// Nothing here judges: a party carries bytes and facts.
pub trait Party {
    /// Writes bytes, in one write if the connection takes them. A connection that is closed swallows them; the end
    /// of the connection arrives as an event.
    fn send(&mut self, to: Proc, bytes: &[u8]);
    /// Closes our end.
    fn close(&mut self, proc: Proc);
    /// Lets the process exit with this status; closes our end.
    fn exit(&mut self, proc: Proc, status: u8);
    /// Lets the process die of this signal; closes our end.
    fn kill(&mut self, proc: Proc, signal: u8);
    /// Waits for the next event, until the deadline. Where an answer may come, a server that merely seems to wait gets some time
    /// more.
    fn next(&mut self, deadline: Instant, silence: Silence) -> Incoming;
    /// Starts a process that loads the library under test; of other parties nobody asks that, nor for a call.
    fn start(&mut self, _proc: Proc, _env: BTreeMap<String, String>) {}
    /// Calls a function of the library under test.
    fn call(&mut self, _proc: Proc, _function: &str, _arguments: Vec<Argument>) {}
    /// Names the requests that the upstream of a proxy leaves to the scenario; before anything else. Parties without an
    /// upstream are never asked for one.
    fn hold(&mut self, _requests: Vec<String>) {}
    /// Tells the upstream of a proxy what to do.
    fn upstream(&mut self, _command: UpstreamCommand) {}
    /// The processes that have written something which the implementation has not read.
    fn unread(&self) -> Vec<Proc> {
        Vec::new()
    }
    /// The memory of the launcher and of the processes that have made the connections of ours; none where that cannot be
    /// known.
    fn memory(&self) -> Vec<Memory> {
        Vec::new()
    }
    /// What still runs of a job that should have ended: processes of ours that were told to exit, and the command names of the
    /// implementation's.
    fn still_running(&self) -> (Vec<Proc>, Vec<String>) {
        (Vec::new(), Vec::new())
    }
    /// Ends what still runs, by the launcher where it will; tells what was done, and what the launcher said to it.
    fn end(&mut self) -> Vec<What> {
        Vec::new()
    }
    /// Makes a stray connection to the port in `PMI_PORT`, unless it is there.
    fn connect(&mut self, _stray: Proc) {}

    /// A program for a spawn request that reports to us as process group `group`.
    fn agent(&mut self, group: u32) -> Vec<u8>;
}
