//! A program under test that speaks PMI, in its own processes.
//!
//! The program is started under the reference process manager (`serve`), whose behaviour a scenario can change. The runner cannot make an
//! arbitrary program send requests, so a scenario defines how the server reacts to the requests that the program sends.

mod job;
mod process;
mod program_server;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pmi_judge::event::{EventKind, PlainRun, ReceivedValues};
use pmi_process::agent::listener::AgentListener;
use pmi_process::agent::mpiexec;
use pmi_process::observe::{procfs, tree};
use pmi_wire::{ConnectionMethod, Proc};

use super::ScenarioLimits;
use super::server::missing_program_error;
use crate::serve::job::{Job, JobMode};
use crate::serve::launch::{Executable, is_executable};
use job::{EventRecorder, ProgramJob};
pub(crate) use program_server::{ProcessScript, ProgramServer, ScriptAction, ScriptError, ServerRule};

/// A program under test.
#[derive(Debug)]
pub struct Program {
    /// The command line, as the user gave it.
    pub label: String,
    /// The program and its arguments.
    command: Vec<OsString>,
    /// Number of processes for scenarios that do not define this number.
    pub(crate) ranks: u32,
    /// The kind of connection that the program's processes receive.
    connection_method: ConnectionMethod,
    /// This executable, which the program finds as `mpiexec` if it is started without a process manager.
    manager: Option<PathBuf>,
    /// True if the runner looks for remaining processes after each run, which takes time.
    finds_leftover_processes: bool,
    /// Results of plain runs, in which the server behaves normally, by number of processes.
    plain_runs: Mutex<HashMap<u32, Arc<OnceLock<Arc<PlainBehavior>>>>>,
}

/// An error in the command line of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The command line cannot be split into words.
    #[error("\"{0}\" cannot be split into words: {1}")]
    Words(String, shell_words::ParseError),
    /// The command line is empty.
    #[error(transparent)]
    Empty(#[from] io::Error),
    /// The program does not exist, or cannot be executed.
    #[error("{0}")]
    NotFound(String),
    /// The program is a launcher, which has its own process manager.
    #[error(
        "--client: {0} is a launcher; name only the program, which is started under the reference process manager. To test {0}, use --server; to judge both sides of one of its jobs: pmi-conform record -- {1}"
    )]
    Launcher(String, String),
}

/// Returns whether a command line starts a launcher. `flux` is a launcher only if it starts a job.
fn is_launcher(words: &[OsString]) -> bool {
    let name = Path::new(&words[0]).file_name().unwrap_or_default().to_string_lossy();
    let runs = words.get(1).is_some_and(|word| word == "run" || word == "submit");
    ["mpiexec", "mpirun", "srun"].contains(&name.split('.').next().unwrap_or_default())
        || (name == "flux" && runs)
}

/// The behaviour of a program under an ordinary server.
#[derive(Debug)]
pub(crate) struct PlainBehavior {
    pub(crate) run: PlainRun,
    /// Standard output of each process; `None` if it varies between runs.
    pub(crate) output: Option<Outputs>,
    /// The values that each process received.
    pub(crate) received_values: BTreeMap<Proc, ReceivedValues>,
}

/// Standard output of each process.
pub(crate) type Outputs = BTreeMap<Proc, Vec<u8>>;

pub(crate) struct FinishedJob {
    pub(crate) result: io::Result<()>,
    pub(crate) output: Outputs,
    /// True if the output of some process is longer than the part that is kept.
    pub(crate) output_cut: bool,
}

impl Program {
    /// Parses a command line.
    ///
    /// # Errors
    ///
    /// Returns an error if the command line has no words, cannot be split into words, or names no existing program.
    pub fn new(command: &str, ranks: u32) -> Result<Self, ProgramError> {
        let words = shell_words::split(command).map_err(|e| ProgramError::Words(command.to_owned(), e))?;
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let executable = Executable::new(&words)?;
        let name = words[0].to_string_lossy();
        let file = executable.resolve().map_err(|_| ProgramError::NotFound(missing_program_error(&name)))?;
        if !is_executable(&file) {
            let why = if file.is_dir() { "a directory, not a program" } else { "not executable" };
            return Err(ProgramError::NotFound(format!("{}: {why}", file.display())));
        }
        if is_launcher(&words) {
            return Err(ProgramError::Launcher(name.into_owned(), command.to_owned()));
        }
        Ok(Self {
            label: command.to_owned(),
            command: words,
            ranks,
            connection_method: ConnectionMethod::Fd,
            manager: None,
            finds_leftover_processes: false,
            plain_runs: Mutex::default(),
        })
    }

    /// Makes every run report the processes that remain after the run, as [`EventKind::LeftoverProcesses`].
    pub fn find_leftover_processes(&mut self) {
        self.finds_leftover_processes = true;
    }

    /// Makes every run start the program without a process manager, as a single process. The program finds the executable `ours` as
    /// `mpiexec`.
    pub fn start_alone(&mut self, ours: PathBuf) {
        self.manager = Some(ours);
        self.connection_method = ConnectionMethod::Singleton;
        self.ranks = 1;
    }

    /// Makes the program's processes open their own connections: they receive only `PMI_PORT` and `PMI_ID`.
    pub fn connect_by_port(&mut self) {
        self.connection_method = ConnectionMethod::Port;
    }

    /// Returns the kind of connection that the program's processes receive.
    pub(crate) fn connection_method(&self) -> ConnectionMethod {
        self.connection_method
    }

    /// Opens a listener for the `mpiexec` that the program may start. Returns the listener, and the `PATH` with which the program finds
    /// that `mpiexec`.
    fn open_listener(&self) -> io::Result<Option<(AgentListener, OsString)>> {
        let Some(ours) = &self.manager else { return Ok(None) };
        let listener = AgentListener::open()?;
        let file = listener.make_agent(ours, mpiexec::NAME, 0)?;
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let folders = file.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&rest));
        let path = std::env::join_paths(folders).map_err(io::Error::other)?;
        Ok(Some((listener, path)))
    }

    /// Returns the file that is executed, or `None` if it does not exist.
    pub fn path(&self) -> Option<PathBuf> {
        Executable::new(&self.command).ok()?.resolve().ok()
    }

    /// Returns the result of plain runs with the given number of processes. Calls `run` only on the first request for this number.
    pub(crate) fn plain_runs(&self, ranks: u32, run: impl FnOnce() -> PlainBehavior) -> Arc<PlainBehavior> {
        let cell = Arc::clone(
            self.plain_runs.lock().unwrap_or_else(PoisonError::into_inner).entry(ranks).or_default(),
        );
        Arc::clone(cell.get_or_init(|| Arc::new(run())))
    }

    /// Starts the program under a server, and waits for its end.
    pub(crate) fn start(
        &self,
        serving: &dyn ProgramServer,
        ranks: u32,
        limits: ScenarioLimits,
        interrupted: &AtomicBool,
        record: EventRecorder<'_>,
    ) -> FinishedJob {
        static RUN_COUNT: AtomicU64 = AtomicU64::new(0);
        tree::become_subreaper();
        let mark = format!("client-{}-{}", std::process::id(), RUN_COUNT.fetch_add(1, Ordering::Relaxed));
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        record(0, EventKind::Launched { command, ranks, nodes: serving.config().nodes });
        let mut stage =
            ProgramJob::new(serving, record, limits, interrupted, mark.clone(), self.connection_method());
        let (done, mut stage) = match self.open_listener() {
            Err(error) => (Err(error), stage),
            Ok(alone) => {
                let (listener, path) = alone.unzip();
                stage.path = path;
                match Job::new(stage, self.command.clone(), JobMode::Captured) {
                    Ok(job) => job.run_with_agents(listener, ranks),
                    Err((error, stage)) => (Err(error), stage),
                }
            }
        };
        if self.finds_leftover_processes && done.is_ok() {
            // The children of a process that the runner killed are not reported, because that process had no time to terminate them.
            let ended: BTreeSet<String> = stage
                .processes
                .iter()
                .filter(|(_, process)| process.was_ended())
                .map(|(p, _)| p.rank.to_string())
                .collect();
            let is_left = |pid: &i32| {
                ended.is_empty()
                    || tree::variable_of(*pid, "PMI_RANK").is_some_and(|rank| !ended.contains(&rank))
            };
            let names =
                || tree::orphans(&mark).into_iter().filter(is_left).filter_map(procfs::name).collect();
            stage.record(EventKind::LeftoverProcesses { names: tree::remaining_processes(names) });
        }
        tree::end_orphans_of(&mark);
        FinishedJob {
            result: done.map(drop),
            output_cut: stage.processes.values().any(|process| process.output_cut),
            output: stage.processes.into_iter().map(|(p, process)| (p, process.output)).collect(),
        }
    }
}
