//! The harness's `mpiexec`, which a program under test starts when it needs a process manager. This `mpiexec` connects to the program, and
//! passes the connection to the runner.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pmi_judge::event::Bytes;
use pmi_wire::singleton::{Caller, PMI_ARGS_OPTION};

use super::channel::Channel;
use super::protocol::{AgentOrder, Hello};
use super::{SOCKET, own_path};

/// File name that makes the binary act as this program.
pub const NAME: &str = "mpiexec";

/// Returns whether the program was started as an `mpiexec`: under that name, in the scratch folder of a runner.
pub fn is_agent(argv0: &OsString) -> bool {
    place(argv0).is_some()
}

/// Returns the runner's scratch folder, and its subfolder that contains this `mpiexec` and is listed in `PATH`.
fn place(argv0: &OsString) -> Option<(PathBuf, PathBuf)> {
    let folder = own_path(argv0, NAME)?.parent()?.to_owned();
    let scratch = folder.parent()?.to_owned();
    scratch.join(SOCKET).exists().then_some((scratch, folder))
}

/// Runs as an `mpiexec`. Returns the exit status.
pub fn main(argv: &[OsString]) -> u8 {
    match argv.first().and_then(place).map(|(scratch, folder)| run(&argv[1..], &scratch, &folder)) {
        Some(Ok(status)) => status,
        Some(Err(error)) => {
            eprintln!("{NAME}: {error}");
            125
        }
        None => 125,
    }
}

fn run(args: &[OsString], scratch: &Path, folder: &Path) -> io::Result<u8> {
    let Some(at) = args.iter().position(|arg| arg == PMI_ARGS_OPTION) else {
        return Err(start_another(args, folder));
    };
    let words: Vec<String> = args[at + 1..].iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let mut runner = Channel::to_runner(scratch)?;
    // If the connection fails, the runner reports the failure.
    let stream =
        Caller::parse(&words).and_then(|caller| TcpStream::connect((Ipv4Addr::LOCALHOST, caller.port)).ok());
    let args = args.iter().map(|arg| Bytes(arg.clone().into_vec())).collect();
    runner.send_with_descriptor(&Hello::Manager { args }, stream.as_ref())?;
    if stream.is_none() {
        return Err(io::Error::other("cannot connect to the program that started this mpiexec"));
    }
    drop(stream);
    // This process acts as a process manager, so it runs until the runner orders it to exit.
    match runner.wait()? {
        Some(AgentOrder::Exit(status)) => Ok(status),
        _ => Ok(0),
    }
}

/// Executes the real `mpiexec`, for a program that uses `mpiexec` to start other programs. Returns the error if that fails.
fn start_another(args: &[OsString], folder: &Path) -> io::Error {
    let path = env::var_os("PATH").unwrap_or_default();
    let others: Vec<PathBuf> = env::split_paths(&path).filter(|entry| entry != folder).collect();
    let found = others.iter().map(|entry| entry.join(NAME)).find(|file| file.is_file());
    let path = env::join_paths(&others).unwrap_or_else(|_| OsStr::new("").to_owned());
    match found {
        Some(file) => Command::new(file).args(args).env("PATH", path).exec(),
        None => io::Error::new(io::ErrorKind::NotFound, "no other mpiexec in PATH"),
    }
}
