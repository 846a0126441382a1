//! A small independent process manager with one rare bug, to measure how soon campaigns find it:
//! `planted-manager [--bug NAME] [--state FILE] [--nodes N] -n N PROGRAM ARGS...`; `--list` prints the bugs. Without a bug it conforms. It
//! shares no code with the harness, speaks both protocols, and has spawn and names. Each job leaves state in the file of `--state`, which
//! only the bugs that show in the next job use.

mod bug;
mod left;
mod manager;
mod space;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, exit};

use rustix::event::{PollFd, PollFlags};

use bug::{BUGS, Bug};
use left::Left;
use manager::{Action, Manager, Proc, Program};

/// A process that this manager has started.
struct Started {
    of: Proc,
    process: Child,
    connection: Option<UnixStream>,
}

pub(crate) fn main() {
    match Arguments::of(std::env::args().skip(1)) {
        Some(Arguments::List) => BUGS.iter().for_each(|(name, what)| println!("{name}\t{what}")),
        Some(Arguments::Run(job)) => match run(job) {
            Ok(status) => exit(status),
            Err(error) => {
                eprintln!("planted-manager: {error}");
                exit(1)
            }
        },
        None => {
            eprintln!(
                "usage: planted-manager [--bug NAME] [--state FILE] [--nodes N] -n N PROGRAM ARGS... | --list"
            );
            exit(2)
        }
    }
}

enum Arguments {
    List,
    Run(Job),
}

struct Job {
    bug: Option<Bug>,
    state: Option<PathBuf>,
    nodes: u32,
    size: u32,
    argv: Vec<OsString>,
}

impl Arguments {
    fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let (mut bug, mut state, mut nodes, mut size) = (None, None, 1, None);
        loop {
            let word = args.next()?;
            match word.as_str() {
                "--list" => return Some(Self::List),
                "--bug" => bug = Some(Bug::of_name(&args.next()?)?),
                "--state" => state = Some(PathBuf::from(args.next()?)),
                "--nodes" => nodes = args.next()?.parse().ok().filter(|nodes| *nodes > 0)?,
                "-n" => size = args.next()?.parse().ok().filter(|size| *size > 0),
                _ => {
                    let argv = std::iter::once(word).chain(args).map(OsString::from).collect();
                    return Some(Self::Run(Job { bug, state, nodes, size: size?, argv }));
                }
            }
        }
    }
}

fn start(of: Proc, size: usize, argv: &[OsString]) -> io::Result<Started> {
    let (connection, theirs) = UnixStream::pair()?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env("PMI_FD", theirs.as_raw_fd().to_string());
    command.env("PMI_RANK", of.rank.to_string()).env("PMI_SIZE", size.to_string());
    if of.group > 0 {
        command.env("PMI_SPAWNED", "1");
    }
    Ok(Started { of, process: command.spawn()?, connection: Some(connection) })
}

/// Starts a group; returns one status for each process.
fn start_group(all: &mut Vec<Started>, group: usize, programs: &[Program]) -> Vec<i32> {
    let size = programs.iter().map(|program| program.count).sum();
    let argvs = programs.iter().flat_map(|program| std::iter::repeat_n(&program.argv, program.count));
    let mut statuses = Vec::new();
    for (rank, argv) in argvs.enumerate() {
        let started = start(Proc { group, rank }, size, argv);
        statuses.push(if started.is_ok() { 0 } else { 1 });
        all.extend(started);
    }
    statuses
}

fn run(job: Job) -> io::Result<i32> {
    let Job { bug, state, nodes, size, argv } = job;
    let before = state.as_deref().map(Left::read).unwrap_or_default();
    let mut manager = Manager::new(bug, nodes as usize, size as usize, before);
    let mut all = Vec::new();
    let programs = [Program { count: size as usize, argv }];
    if start_group(&mut all, 0, &programs).contains(&1) {
        return Err(io::Error::other("the program cannot be started"));
    }
    let mut status = 0;
    while all.iter().any(|started| started.connection.is_some()) {
        let (open, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = (0..all.len())
            .filter_map(|i| Some((i, PollFd::new(all[i].connection.as_ref()?, PollFlags::IN))))
            .unzip();
        rustix::event::poll(&mut fds, None)?;
        let ready: Vec<usize> =
            open.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(i, _)| i).collect();
        for i in ready {
            let mut buffer = [0; 65536];
            match all[i].connection.as_mut().map_or(Ok(0), |connection| connection.read(&mut buffer)) {
                Ok(n) if n > 0 => manager.receive(all[i].of, &buffer[..n]),
                _ => {
                    all[i].connection = None;
                    manager.closed(all[i].of);
                }
            }
            while let Some(action) = manager.next_action() {
                match action {
                    Action::Send(to, bytes) => {
                        let to = all.iter_mut().find(|started| started.of == to);
                        if let Some(connection) = to.and_then(|to| to.connection.as_mut()) {
                            // A process that has gone gets nothing.
                            let _ = connection.write_all(&bytes);
                        }
                    }
                    Action::Start { by, group, programs } => {
                        let statuses = start_group(&mut all, group, &programs);
                        manager.started(by, group, &statuses);
                    }
                    Action::End(code) => {
                        status = code;
                        for started in &mut all {
                            started.connection = None;
                            let _ = started.process.kill();
                        }
                    }
                }
            }
        }
    }
    if let Some(state) = state {
        manager.left().write(&state)?;
    }
    for started in &mut all {
        let end = started.process.wait()?;
        status = if status == 0 { end.code().unwrap_or(1) } else { status };
    }
    Ok(status)
}
