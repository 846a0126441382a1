//! The agent of a rank: our program that the process manager under test starts as a rank.
//!
//! It finds the runner's socket beside the path it was started by (a symbolic link in the run's scratch folder),
//! hands over the descriptor that PMI_FD names, the connection that it makes by PMI_PORT or the one that is made to it, tells its environment and arguments, and then waits to be told how to
//! end, with which the descriptor comes back. It knows nothing of PMI.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::port::{self, Greeted};
use super::protocol::{Hello, Order, RankHello};
use super::singleton;
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
    let (mut greeted, mut singinit) = (None, None);
    let connection = if let Some((said, connection)) = singleton::wait() {
        singinit = Some(said);
        connection
    } else if let Some(connected) = port::connect() {
        connected.map_err(|why| why.to_string()).map(|Greeted { connection, said, told }| {
            greeted = Some((Bytes(said), Bytes(told)));
            connection
        })
    } else {
        pmi_fd().map_err(|why| why.to_string())
    };
    let (fd, bad_fd) = match connection {
        Ok(fd) => (Some(fd), None),
        Err(why) => (None, Some(why)),
    };
    let env = protocol_environment();
    let args = args.into_iter().map(|a| Bytes(a.into_vec())).collect();
    let hello = RankHello { group, pid: std::process::id() as i32, env, args, bad_fd, greeted, singinit };
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
