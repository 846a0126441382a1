//! A process manager for one host: the reference server with its sockets, processes and signals.
//!
//! It starts the ranks of a program, each with its own connection in `PMI_FD`, and serves them until all have ended. It has a single thread
//! and a single event loop for any number of ranks.
//!
//! * With [`ConnectionMethod::Port`], a rank receives `PMI_PORT` instead, and opens the connection itself.
//! * With [`ConnectionMethod::Singleton`], there is one process. It is already running, and the server connects to it.
//! * With a [`Remote`], a command that the user provides starts each rank, on one of several hosts. When the job ends, that command is
//!   ended on this host; the processes on the other hosts detect the end of their connections.
//! * A rank consists of a process and all other processes in the process group that it leads. When a rank ends or its program is aborted,
//!   the group is killed.
//! * Rank 0 of the first program inherits stdin, unless stdin is a terminal (from which a background process group cannot read).
//!   Every other rank reads from `/dev/null`. All ranks inherit stdout and stderr.
//! * The requests that a rank wrote before it ended are still served. If a rank does not read its responses, the server stops reading from
//!   that rank until it does. So no rank can make the server's memory grow without limit.
//! * SIGINT, SIGTERM and SIGHUP kill all started processes.
//!
//! # Exit status
//!
//! The status is 0 if every process, including spawned ones, exited with 0. Otherwise, it is the first status other than 0, in
//! chronological order.
//!
//! * A killed process counts as 128 + signal.
//! * An abort counts as an exit with the abort's status, at the time of the abort. The processes that are killed because of the abort do
//!   not count.
//! * A protocol error aborts the program with status 1.
//! * Only the low eight bits of an abort's status are kept, as with every exit status. If the status is not 0 but its low eight bits are 0,
//!   it counts as 1, so that a failure does not look like a success.
//! * If a signal to this process ended the job, the status is 128 + signal.

pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod launch;
mod listener;
mod remote;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pmi_faults::{Config, EarlierJob, Server};
pub use remote::{Remote, RemoteError};

pub use pmi_wire::ConnectionMethod;
pub use pmi_wire::singleton::Caller;

/// The options of [`run`].
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Number of processes of the first program.
    pub ranks: u32,
    /// The configuration of the server, including the number of nodes.
    pub config: Config,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// A running process that has requested a process manager, and takes the place of the program.
    pub caller: Option<Caller>,
    /// The hosts of the processes, if the processes do not run on this host. The processes then connect through `PMI_PORT`, which the
    /// configuration must allow.
    pub remote: Option<Remote>,
    /// The file with the state of the previous job, for faults that have an effect only in a later job. When this job ends, the server
    /// writes the state of this job to the same file.
    pub state: Option<PathBuf>,
    /// True if the starts and exits of processes are logged to stderr.
    pub verbose: bool,
}

/// Starts the program, and serves it and all processes that it spawns until the last one has ended. Returns the exit status (see the
/// [module](self)).
///
/// Must not be called while other threads start processes, which could inherit a rank's connection.
///
/// # Errors
///
/// Returns an error if the program cannot be started, or the system refuses a required resource. No started process is left running.
pub fn run(options: ServeOptions) -> io::Result<i32> {
    let ServeOptions { ranks, config, command, caller, remote, state, verbose } = options;
    let mode = job::JobMode::Terminal { verbose };
    let mut server = Server::new(config);
    if let Some(state) = &state {
        server.remember(earlier_job(state)?);
    }
    let job = job::Job::launched_by(server, command, mode, remote);
    let job = job.map_err(|(error, _)| error)?;
    let (status, server) = match caller {
        Some(caller) => job.run_for(caller),
        None => job.run(ranks),
    };
    if let Some(state) = &state {
        keep_job(state, &server.left())?;
    }
    status
}

/// Reads the state of the previous job. The state is empty if the file does not exist.
fn earlier_job(file: &Path) -> io::Result<EarlierJob> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EarlierJob::default()),
        text => toml::from_str(&text?).map_err(io::Error::other),
    }
}

/// Writes the state of a job atomically, because other jobs may read the file at the same time.
fn keep_job(file: &Path, job: &EarlierJob) -> io::Result<()> {
    let part = file.with_extension(std::process::id().to_string());
    fs::write(&part, toml::to_string(job).map_err(io::Error::other)?)?;
    fs::rename(part, file)
}

/// Returns the prefix of a job's kvsnames. MPI libraries derive the names of shared memory from the kvsname, so the prefix must be unique
/// on this machine. The prefix is short, because a server may announce a small `kvsname_max`.
pub fn unique_prefix() -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u32);
    format!("k{:08x}", now.wrapping_mul(0x9e37_79b1) ^ std::process::id())
}
