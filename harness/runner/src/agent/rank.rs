//! The agent of a rank: our program that the process manager under test starts as a rank.
//!
//! It finds the runner's socket beside the path it was started by (a symbolic link in the run's scratch folder),
//! hands over the descriptor that PMI_FD names, or the connection that it makes by PMI_PORT, tells its environment and arguments, and then waits to be told how to
//! end, with which the descriptor comes back. It knows nothing of PMI.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::port::{self, Greeted};
use super::protocol::{Hello, Order, RankHello};
use super::{RUNNER_GONE, die, is_called, own_path, pmi_fd, protocol_environment};
use pmi_judge::event::Bytes;

/// File name by which the binary knows that it is to be an agent.
pub const NAME: &str = "pmi-conform-agent";

/// Whether the program was started as an agent: by the name of its file, or by what it was told is its name.
pub fn is_agent(argv0: &OsString) -> bool {
    is_called(argv0, NAME)
}

/// Runs as an agent; returns the exit status.
pub fn main(mut argv: Vec<OsString>) -> u8 {
    let program = if argv.is_empty() { OsString::new() } else { argv.remove(0) };
    match run(&program, argv) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            125
        }
    }
}

fn run(program: &OsString, args: Vec<OsString>) -> io::Result<u8> {
    let path = own_path(program, NAME).unwrap_or_else(|| PathBuf::from(program));
    let folder = path.parent().unwrap_or(Path::new(""));
    let group = folder.file_name().and_then(|n| n.to_str()?.strip_prefix('g')?.parse().ok());
    let (Some(group), Some(scratch)) = (group, folder.parent()) else {
        let what = format!("started as {}, not by its path in the scratch folder of a run", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    };
    let mut runner = Channel::to_runner(scratch)?;
    let (fd, bad_fd, greeted) = match port::connect() {
        Some(Ok(Greeted { connection, said, told })) => {
            (Some(connection), None, Some((Bytes(said), Bytes(told))))
        }
        Some(Err(why)) => (None, Some(why.to_string()), None),
        None => match pmi_fd() {
            Ok(fd) => (Some(fd), None, None),
            Err(why) => (None, Some(why.to_string()), None),
        },
    };
    let env = protocol_environment();
    let args = args.into_iter().map(|a| Bytes(a.into_vec())).collect();
    let hello = RankHello { group, pid: std::process::id() as i32, env, args, bad_fd, greeted };
    runner.send_with_descriptor(&Hello::Rank(hello), fd.as_ref())?;
    // The runner holds the only copy now, so that its close is the process's close.
    drop(fd);
    obey(runner)
}

/// Waits for the order to end.
fn obey(mut runner: Channel) -> io::Result<u8> {
    match runner.wait()? {
        // Nothing is closed before: the descriptor that came with the order is the kernel's to close.
        Some(Order::Exit(status)) => std::process::exit(status.into()),
        Some(Order::Kill(signal)) => die(signal),
        Some(Order::Call { .. }) | None => Ok(RUNNER_GONE),
    }
}
