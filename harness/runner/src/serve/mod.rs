//! A process manager for one host: the reference server with sockets, processes and signals around it.
//!
//! Starts the ranks of a program, each with a connection of its own in `PMI_FD`, and serves them until all have
//! ended. One thread and one event loop, whatever the number of ranks.
//!
//! * With [`WayIn::Port`] a rank gets `PMI_PORT` instead, and makes its connection itself.
//! * With [`WayIn::Singleton`] there is one process, which has been started already and is connected to.
//! * With a [`Remote`] a rank is started by a command of the user's, on one of several hosts. What ends here is that command; what it has
//!   started there notices that its connection ends.
//! * A rank is a process and what it leaves in its process group: each is the leader of one, and when a rank ends
//!   or its program is aborted, the group is killed.
//! * Rank 0 of the first program inherits stdin, unless that is a terminal (from which a process in a group of its
//!   own may not read); every other rank gets `/dev/null`. All inherit stdout and stderr.
//! * What a rank wrote before it ended is still served. A rank that does not read its answers is not listened to
//!   until it does, so that no rank can make this process grow.
//! * SIGINT, SIGTERM and SIGHUP kill everything that was started.
//!
//! # Exit status
//!
//! 0 if every process, spawned ones included, exited with 0; else the status of the first that did not, in order
//! of time. A killed process counts as 128 + signal. An aborted program counts with the status of its abort, at the
//! time of the abort, and the processes killed for it do not count. A protocol error aborts with status 1. As of
//! exit statuses, eight bits remain of an abort's; an abort with another status than 0 of which no bit remains
//! counts as 1, as a failure must not look like a success. 128 + signal if the job ended by a signal to us.

mod door;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod launch;
mod remote;

use std::ffi::OsString;
use std::io;

use pmi_faults::{Config, Server};
pub use remote::{Remote, RemoteError};

pub use pmi_wire::WayIn;
pub use pmi_wire::singleton::Caller;

/// What to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Number of processes of the first program.
    pub ranks: u32,
    /// How the server is set up, number of nodes included.
    pub config: Config,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// A process that has been started already and has asked for us, which takes the place of the program.
    pub caller: Option<Caller>,
    /// Where its processes run, if not here. They come back by `PMI_PORT`, which the configuration has to say.
    pub remote: Option<Remote>,
    /// Whether to log on stderr what is started and what ends.
    pub verbose: bool,
}

/// Starts the program and serves it and all that it spawns until the last process has ended. Returns the exit status
/// (see the [module](self)).
///
/// Must not be called while other threads start processes: these could inherit a rank's connection.
///
/// # Errors
///
/// The program cannot be started, or the system refuses what serving takes. Nothing that was started is left running.
pub fn run(options: ServeOptions) -> io::Result<i32> {
    let ServeOptions { ranks, config, command, caller, remote, verbose } = options;
    let manner = job::Manner::Terminal { verbose };
    let job = job::Job::launched_by(Server::new(config), command, manner, remote);
    let job = job.map_err(|(error, _)| error)?;
    match caller {
        Some(caller) => job.run_for(caller).0,
        None => job.run(ranks).0,
    }
}

/// First part of the kvsnames of a job. MPI libraries derive the names of shared memory from the kvsname, so no other
/// job on this machine may have it; it is short, since a server may announce a small `kvsname_max`.
pub fn unique_prefix() -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u32);
    format!("k{:08x}", now.wrapping_mul(0x9e37_79b1) ^ std::process::id())
}
