//! Plays `mpiexec` to MPICH's `hydra_pmi_proxy`, so that a proxy can be judged by itself.
//!
//! A proxy does most of a process manager's work for the ranks of one node. What concerns other nodes it sends up, by a
//! private protocol that changes between releases ([`pmi_wire::hydra`]). Here is the other end of that protocol: the command
//! `hydra-upstream`, which starts one proxy per node on this host and so is a launcher like any other.
//!
//! * `detect`: which generation of the protocol a proxy speaks. `store`: what the upstream knows, by the reference server.
//! * `script`: what the upstream tells the runner, and what a scenario may order.
//! * `upstream`: the state machine. `driver`: processes, sockets and signals around it.
//!
//! # What proxies pass on
//!
//! With a runner at its back, the upstream reports every request of a proxy and every answer, and a scenario may answer in its
//! stead. There requests look alike, whatever the family: text as in PMI-1, `mput KEY=VALUE ...` for pairs that a proxy
//! had kept, `barrier_in`, and everything else as the client's request. An answer `cmd=barrier_out` gets the barrier's name
//! where barriers have names.
//!
//! # Exit status
//!
//! The first status of a process that is not 0 (128 + signal if it was killed), or an abort's. 3 if a proxy does not
//! speak as its family does. A proxy's own status if it ends without telling how its processes ended; if it dies of a
//! signal, so does this process, so that the judge sees the crash. 128 + signal if the job ended by a signal to us.

mod detect;
mod driver;
pub(crate) mod script;
mod store;
mod upstream;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pmi_wire::hydra::Family;

pub(crate) use detect::{choices, detect};
pub use script::Command as UpstreamCommand;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The proxy's file.
    pub proxy: PathBuf,
    /// Which protocol it speaks.
    pub family: Family,
    /// Whether its processes make their connections themselves, by PMI_PORT.
    pub pmi_port: bool,
    /// Number of processes.
    pub ranks: u32,
    /// Number of proxies over which they are spread.
    pub nodes: u32,
    /// How long a proxy may take to start its processes, and to end after them.
    pub patience: Duration,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this exit status (see the [module](self)).
    Status(i32),
    /// A proxy died of this signal.
    Signal(i32),
}

/// Starts proxies and serves them until the last has ended.
///
/// # Errors
///
/// The proxy cannot be started, or the system refuses what serving takes. Nothing that was started is left running.
pub fn run(options: Options) -> io::Result<End> {
    driver::Driver::new(options)?.run()
}
