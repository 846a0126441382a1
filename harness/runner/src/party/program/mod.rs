//! A program under test that speaks PMI, in processes of its own.
//!
//! It is started under the reference process manager (`serve`), which a scenario makes unusual or hostile. An arbitrary program
//! cannot be told which requests to make: a scenario says what the server does at which request.

mod actor;
mod serving;
mod stage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pmi_judge::event::{PlainRun, ToldValues, What};
use pmi_wire::{Proc, WayIn};

use super::Limits;
use super::server::no_program;
use crate::agent::mpiexec;
use crate::agent::reception::Reception;
use crate::process::{procfs, tree};
use crate::serve::job::{Job, Manner};
use crate::serve::launch::{Executable, is_executable};
pub(crate) use serving::{Mistake, ProcessScript, ProgramServer, ServerAct, ServerRule};
use stage::{Record, Stage};

/// A program under test.
#[derive(Debug)]
pub struct Program {
    /// As the user gave it.
    pub label: String,
    /// The program and its arguments.
    command: Vec<OsString>,
    /// Number of processes where a scenario does not say how many.
    pub(crate) ranks: u32,
    /// How its processes come to their connections.
    way_in: WayIn,
    /// Our own program, as which it finds `mpiexec`, where it is started without a process manager.
    manager: Option<PathBuf>,
    /// Whether somebody asks what is left of it, which takes time to tell.
    finds_left: bool,
    /// What plain runs came to, by number of processes.
    plain: Mutex<HashMap<u32, Arc<OnceLock<Arc<Plain>>>>>,
}

/// Why there is no program to judge.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The command line cannot be split into words.
    #[error("\"{0}\" cannot be split into words: {1}")]
    Words(String, shell_words::ParseError),
    /// It is empty.
    #[error(transparent)]
    Empty(#[from] io::Error),
    /// There is no such program, or none that can be started.
    #[error("{0}")]
    NotFound(String),
    /// It is a launcher, which brings a process manager of its own.
    #[error(
        "{0} is a launcher: --client takes the program alone, which is started under our own process manager. To judge {0}, name it by \
         --server; to judge both sides of a job of it: pmi-conform record -- {1}"
    )]
    Launcher(String, String),
}

/// Whether a command line is that of a launcher. A `flux` that starts no job of its own is a program as any other.
fn is_launcher(words: &[OsString]) -> bool {
    let name = Path::new(&words[0]).file_name().unwrap_or_default().to_string_lossy();
    let runs = words.get(1).is_some_and(|word| word == "run" || word == "submit");
    ["mpiexec", "mpirun", "srun"].contains(&name.split('.').next().unwrap_or_default())
        || (name == "flux" && runs)
}

/// What a program does where nothing is unusual.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) run: PlainRun,
    /// Standard output of each process; `None` if it is not the same each time.
    pub(crate) output: Option<Outputs>,
    /// The values that each process received.
    pub(crate) told: BTreeMap<Proc, ToldValues>,
}

/// Standard output of each process.
pub(crate) type Outputs = BTreeMap<Proc, Vec<u8>>;

/// A job that is over.
pub(crate) struct FinishedJob {
    pub(crate) done: io::Result<()>,
    pub(crate) output: Outputs,
    /// Some output is longer than what is kept.
    pub(crate) output_cut: bool,
}

impl Program {
    /// Reads a command line.
    ///
    /// # Errors
    ///
    /// It has no words, cannot be split into words, or names no program that is there.
    pub fn new(command: &str, ranks: u32) -> Result<Self, ProgramError> {
        let words = shell_words::split(command).map_err(|e| ProgramError::Words(command.to_owned(), e))?;
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let executable = Executable::new(&words)?;
        let name = words[0].to_string_lossy();
        let file = executable.resolve().map_err(|_| ProgramError::NotFound(no_program(&name)))?;
        if !is_executable(&file) {
            return Err(ProgramError::NotFound(format!("{} is not executable", file.display())));
        }
        if is_launcher(&words) {
            return Err(ProgramError::Launcher(name.into_owned(), command.to_owned()));
        }
        Ok(Self {
            label: command.to_owned(),
            command: words,
            ranks,
            way_in: WayIn::Fd,
            manager: None,
            finds_left: false,
            plain: Mutex::default(),
        })
    }

    /// Has every run tell which processes it has left: [`What::LeftBehind`].
    pub fn find_left(&mut self) {
        self.finds_left = true;
    }

    /// Has it started without a process manager, for which it finds this program of ours under the name `mpiexec`. It is one process
    /// then.
    pub fn start_alone(&mut self, ours: PathBuf) {
        self.manager = Some(ours);
        self.way_in = WayIn::Singleton;
        self.ranks = 1;
    }

    /// Has its processes make their connections themselves: they are told `PMI_PORT` and `PMI_ID`, and no more.
    pub fn connect_by_port(&mut self) {
        self.way_in = WayIn::Port;
    }

    /// How its processes come to their connections.
    pub(crate) fn way_in(&self) -> WayIn {
        self.way_in
    }

    /// A place where what it starts under the name `mpiexec` reports, and the `PATH` by which it finds that.
    fn reception(&self) -> io::Result<Option<(Reception, OsString)>> {
        let Some(ours) = &self.manager else { return Ok(None) };
        let reception = Reception::open()?;
        let file = reception.make_agent(ours, mpiexec::NAME, 0)?;
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let folders = file.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&rest));
        let path = std::env::join_paths(folders).map_err(io::Error::other)?;
        Ok(Some((reception, path)))
    }

    /// The file that is executed, if it is there.
    pub fn path(&self) -> Option<PathBuf> {
        Executable::new(&self.command).ok()?.resolve().ok()
    }

    /// What plain runs of so many processes came to: those of `run`, if there were none before.
    pub(crate) fn plain(&self, ranks: u32, run: impl FnOnce() -> Plain) -> Arc<Plain> {
        let cell =
            Arc::clone(self.plain.lock().unwrap_or_else(PoisonError::into_inner).entry(ranks).or_default());
        Arc::clone(cell.get_or_init(|| Arc::new(run())))
    }

    /// Starts it under a server and waits for its end.
    pub(crate) fn start(
        &self,
        serving: &dyn ProgramServer,
        ranks: u32,
        limits: Limits,
        interrupted: &AtomicBool,
        record: Record<'_>,
    ) -> FinishedJob {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        tree::become_subreaper();
        let mark = format!("client-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        record(0, What::Launched { command, ranks, nodes: serving.config().nodes });
        let mut stage = Stage::new(serving, record, limits, interrupted, mark.clone(), self.way_in());
        let (done, mut stage) = match self.reception() {
            Err(error) => (Err(error), stage),
            Ok(alone) => {
                let (reception, path) = alone.unzip();
                stage.path = path;
                match Job::new(stage, self.command.clone(), Manner::Captured) {
                    Ok(job) => job.hearing(reception, ranks),
                    Err((error, stage)) => (Err(error), stage),
                }
            }
        };
        if self.finds_left && done.is_ok() {
            // What we have ended had no time to end what it had started.
            let ended: BTreeSet<String> = stage
                .actors
                .iter()
                .filter(|(_, actor)| actor.was_ended())
                .map(|(p, _)| p.rank.to_string())
                .collect();
            let is_left = |pid: &i32| {
                ended.is_empty()
                    || tree::variable_of(*pid, "PMI_RANK").is_some_and(|rank| !ended.contains(&rank))
            };
            let names =
                || tree::orphans(&mark).into_iter().filter(is_left).filter_map(procfs::name).collect();
            stage.record(What::LeftBehind { names: tree::left_over(names) });
        }
        tree::end_orphans_of(&mark);
        FinishedJob {
            done: done.map(drop),
            output_cut: stage.actors.values().any(|actor| actor.output_cut),
            output: stage.actors.into_iter().map(|(p, actor)| (p, actor.output)).collect(),
        }
    }
}
