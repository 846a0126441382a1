//! Starts processes.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pmi_process::child::Child;
use pmi_process::connection::pair;
use pmi_process::{descriptors, inherited};
use pmi_wire::SpawnProgram;
use rustix::fs::{Access, access};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors that this process needs in addition to those of the ranks: standard streams, epoll, signals, the descriptor that
/// ranks inherit, and any that this process has inherited.
const SPARE_DESCRIPTORS: u64 = 64;
/// Number of descriptors for each process: its connection and its pidfd.
const DESCRIPTORS_PER_PROCESS: u64 = 2;

pub(super) struct StartedProcess {
    pub(super) child: Child,
    /// The server's end of the process's connection, if the server made it.
    pub(super) socket: Option<OwnedFd>,
}

pub(super) struct Launcher {
    null: File,
    /// `PMI_` variables of this process's environment, which apply to this process and not to those that it starts.
    inherited_variables: Vec<OsString>,
    /// The original descriptor limit, if the limit of this process had to be raised. The started processes get the original limit, because
    /// a large limit slows down programs that close all possible descriptors, and breaks those that use select.
    limit: Option<Rlimit>,
}

impl Launcher {
    pub(super) fn new() -> io::Result<Self> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let foreign = env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.as_bytes().starts_with(b"PMI_"))
            .collect();
        Ok(Self { null, inherited_variables: foreign, limit: None })
    }

    /// Ensures that enough descriptors are available to serve `processes` processes at the same time.
    pub(super) fn reserve(&mut self, processes: u64) -> io::Result<()> {
        let needed = processes * DESCRIPTORS_PER_PROCESS + SPARE_DESCRIPTORS;
        if let Some(before) = descriptors::raise(needed, format_args!("{processes} processes"))? {
            self.limit.get_or_insert(before);
        }
        Ok(())
    }

    /// Returns a command that runs the program from `file`. The command can be started once for each process.
    pub(super) fn command(&self, program: &Executable, file: &Path) -> io::Result<Command> {
        let mut command = Command::new(file);
        pmi_process::prepare(&mut command);
        command.arg0(&program.name).args(&program.args).process_group(0);
        command.stdin(Stdio::from(self.null.try_clone()?));
        if let Some(dir) = &program.dir {
            command.current_dir(dir);
        }
        for name in &self.inherited_variables {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Starts a process that inherits a connection under the given descriptor number.
    pub(super) fn start_connected(
        &mut self,
        command: &mut Command,
        number: RawFd,
    ) -> io::Result<StartedProcess> {
        let (socket, theirs) = pair()?;
        let child = self.start(command, Some((theirs, number)))?;
        Ok(StartedProcess { child, socket: Some(socket) })
    }

    /// Starts a process without a connection. The process opens its connection itself.
    pub(super) fn start_unconnected(&mut self, command: &mut Command) -> io::Result<StartedProcess> {
        Ok(StartedProcess { child: self.start(command, None)?, socket: None })
    }

    fn start(&self, command: &mut Command, connection: Option<(OwnedFd, RawFd)>) -> io::Result<Child> {
        // The lower limit does not affect open descriptors, and is raised again before the next descriptor is opened.
        let raised = self.limit.map(|limit| (limit, getrlimit(Resource::Nofile)));
        if let Some((limit, _)) = &raised {
            setrlimit(Resource::Nofile, *limit)?;
        }
        let child = inherited::start(command, connection);
        if let Some((_, ours)) = raised {
            setrlimit(Resource::Nofile, ours)?;
        }
        Child::adopt(child?)
    }
}

/// A program to start.
pub(crate) struct Executable {
    /// The requested name, which is the process's `argv[0]`.
    pub(crate) name: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) dir: Option<PathBuf>,
    /// Folders that are searched for the program before those in `PATH`.
    pub(crate) path: Option<OsString>,
}

impl Executable {
    /// Creates an executable from a command line.
    pub(crate) fn new(command: &[OsString]) -> io::Result<Self> {
        let [name, args @ ..] = command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program to start"));
        };
        Ok(Self { name: name.clone(), args: args.to_vec(), dir: None, path: None })
    }

    /// Creates an executable from a spawn request. Applies MPI's reserved info keys for the working directory (`wdir`, which some
    /// libraries send as `wd`) and for the search path (`path`). Ignores other keys, as MPI requires.
    pub(crate) fn spawned(program: SpawnProgram) -> Self {
        let mut this = Self {
            name: OsString::from_vec(program.execname),
            args: program.args.into_iter().map(|(_, arg)| OsString::from_vec(arg)).collect(),
            dir: None,
            path: None,
        };
        for (key, value) in program.info {
            match &key[..] {
                b"wdir" | b"wd" => this.dir = Some(OsString::from_vec(value).into()),
                b"path" => this.path = Some(OsString::from_vec(value)),
                _ => {}
            }
        }
        this
    }

    /// Returns the file to execute. If the name has a slash, the file is relative to the working directory; otherwise, it is searched for
    /// in `path` and `PATH`. The search is done once for all processes.
    pub(crate) fn resolve(&self) -> io::Result<PathBuf> {
        let dir = match &self.dir {
            Some(dir) => std::path::absolute(dir)?,
            None => env::current_dir()?,
        };
        let found = if self.name.as_bytes().contains(&b'/') {
            Some(dir.join(&self.name)).filter(|file| file.exists())
        } else {
            let paths = [self.path.clone(), env::var_os("PATH")];
            let mut dirs = paths.iter().flatten().flat_map(env::split_paths);
            dirs.find_map(|entry| Some(dir.join(entry).join(&self.name)).filter(|file| is_executable(file)))
        };
        found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{}: program not found", display_name(&self.name)),
            )
        })
    }
}

/// Returns whether `file` is a file that may be executed.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

pub(crate) fn display_name(name: &OsStr) -> impl std::fmt::Display {
    name.as_bytes().escape_ascii()
}
