//! The rank agent: the harness program that the process manager under test starts as each rank.
//!
//! The agent finds the runner's socket through its own path, a symbolic link in the run's scratch folder. It passes its PMI connection to
//! the runner: the descriptor that PMI_FD names, the connection that it opens through PMI_PORT, or the connection that it requested from the
//! process manager. It also sends its environment and arguments. It then waits for the order to exit; the runner returns the descriptor with
//! that order. If the runner is on another machine, the agent relays the traffic instead (see `relay`). The agent does not interpret PMI.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::port::{self, IdentifiedConnection};
use super::protocol::{AgentOrder, Hello, Namespaces, RankHello};
use super::relay::{self, OPTION, Route};
use super::singleton;
use super::{RUNNER_LOST_STATUS, is_called, kill_self, own_path, pmi_fd, protocol_environment};
use pmi_judge::event::Bytes;

/// File name that makes the binary act as an agent.
pub const NAME: &str = "pmi-conform-agent";

/// Returns whether the program was started as an agent, according to the name of its file or its `argv[0]`.
pub fn is_agent(argv0: &OsString) -> bool {
    is_called(argv0, NAME)
}

/// Runs as an agent. Returns the exit status.
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

fn run(program: &OsString, mut args: Vec<OsString>) -> io::Result<u8> {
    let path = own_path(program, NAME).unwrap_or_else(|| PathBuf::from(program));
    if args.first().is_some_and(|arg| arg == OPTION) {
        let route = args.drain(..args.len().min(2)).nth(1).unwrap_or_default();
        return relay_to(&Route::of_argument(&route.to_string_lossy())?, 0, args);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let group = folder.file_name().and_then(|n| n.to_str()?.strip_prefix('g')?.parse().ok());
    let (Some(group), Some(scratch)) = (group, folder.parent()) else {
        if let Some(route) = Route::of_environment() {
            return relay_to(&route, relay::group_of_path(&path), args);
        }
        let what = format!(
            "started as {}: start the agent with the path that replaces {{agent}} in the command",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    };
    let mut runner = Channel::to_runner(scratch)?;
    let (hello, fd) = describe_process(group, args, None);
    runner.send_with_descriptor(&Hello::Rank(hello), fd.as_ref())?;
    // Close this process's copy of the descriptor, so that the connection ends as soon as the runner closes its own copy.
    drop(fd);
    wait_for_exit_order(runner)
}

/// Relays the bytes of the connection, because the connection cannot be passed to another machine.
fn relay_to(route: &Route, group: u32, args: Vec<OsString>) -> io::Result<u8> {
    let mut runner = route.connect()?;
    let (hello, fd) = describe_process(group, args, Some(relay::place().into()));
    runner.send_whole(&Hello::Rank(hello))?;
    relay::run(runner, fd)
}

/// Returns the properties of this process, and its connection if it has one.
fn describe_process(
    group: u32,
    args: Vec<OsString>,
    relays: Option<Box<Namespaces>>,
) -> (RankHello, Option<OwnedFd>) {
    let (mut initack_exchange, mut singinit) = (None, None);
    let connection = if let Some((dialogue, connection)) = singleton::wait() {
        singinit = Some(dialogue);
        connection.map_err(|why| why.to_string())
    } else if let Some(connected) = port::connect() {
        connected.map_err(|why| why.to_string()).map(
            |IdentifiedConnection { connection, initack, response }| {
                initack_exchange = Some((Bytes(initack), Bytes(response)));
                connection
            },
        )
    } else {
        pmi_fd().map_err(|why| why.to_string())
    };
    let (fd, bad_fd) = match connection {
        Ok(fd) => (Some(fd), None),
        Err(why) => (None, Some(why)),
    };
    let env =
        protocol_environment().into_iter().map(|(k, v)| Bytes(format!("{k}={v}").into_bytes())).collect();
    let args = args.into_iter().map(|a| Bytes(a.into_vec())).collect();
    let pid = std::process::id() as i32;
    (RankHello { group, pid, env, args, bad_fd, initack_exchange, singinit, relay_location: relays }, fd)
}

fn wait_for_exit_order(mut runner: Channel) -> io::Result<u8> {
    match runner.wait()? {
        // When this process exits, the kernel closes the descriptor that came with the order.
        Some(AgentOrder::Exit(status)) => std::process::exit(status.into()),
        Some(AgentOrder::Kill(signal)) => kill_self(signal),
        Some(AgentOrder::Call { .. } | AgentOrder::Write(_) | AgentOrder::Close) | None => {
            Ok(RUNNER_LOST_STATUS)
        }
    }
}
