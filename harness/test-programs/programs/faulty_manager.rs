//! A process manager with a fault that simple sessions do not show, for the tests of `fuzz`: `faulty-manager FAULT RANKS PROGRAM`.
//!
//! FAULT is one of:
//!
//! * `crash`: the manager crashes when a rank that has already requested a missing key sends a get while another rank waits in a barrier
//! * `swap`: a get returns a wrong value while another rank waits in a barrier
//! * `hang`: the manager answers no requests after the 100th put
//! * `leak`: each of the first five puts leaks ten megabytes
//! * `crash-in-places`: a put crashes in one of two functions, depending on the length of its message; get_appnum and get_universe_size
//!   crash in a third function
//! * `none`

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, exit};

use pmi_reference::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::Proc;
use rustix::event::{PollFd, PollFlags};

struct Rank {
    process: Child,
    connection: Option<UnixStream>,
}

struct Fault {
    name: String,
    puts: u32,
    /// Ranks that wait in a barrier.
    waiting: HashSet<u32>,
    /// Ranks that have requested a missing key.
    missed: HashSet<u32>,
}

impl Fault {
    fn handle(&mut self, rank: u32, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let puts = text.matches("cmd=put ").count();
        self.puts += puts as u32;
        // The leaks of four puts clearly exceed the memory limit, those of three do not, and those of five fit into any machine's memory.
        if self.name == "leak" && self.puts <= 5 {
            std::mem::forget(vec![1_u8; puts * (10 << 20)]);
        }
        if text.contains("cmd=barrier_in") {
            self.waiting.insert(rank);
        }
        if self.name == "crash-in-places" {
            crash_at(&text);
        }
        let others = self.waiting.iter().any(|r| *r != rank);
        if self.name == "crash" && text.starts_with("cmd=get ") && others && self.missed.contains(&rank) {
            std::process::abort();
        }
    }

    /// Returns the bytes to send to a rank in place of the server's output `bytes`, or `None` to send nothing. Usually, the output is
    /// unchanged.
    fn answers(&mut self, rank: u32, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.starts_with("cmd=barrier_out") {
            self.waiting.remove(&rank);
        }
        if text.starts_with("cmd=get_result rc=-1") {
            self.missed.insert(rank);
        }
        let others = self.waiting.iter().any(|r| *r != rank);
        match self.name.as_str() {
            "hang" if self.puts > 100 => None,
            "swap" if others && text.starts_with("cmd=get_result rc=0") => {
                Some(b"cmd=get_result rc=0 value=of-another-rank\n".to_vec())
            }
            _ => Some(bytes),
        }
    }
}

fn crash_at(request: &str) {
    if request.starts_with("cmd=put ") {
        if request.len().is_multiple_of(2) { keep_even() } else { keep_odd() }
    } else if request.starts_with("cmd=get_appnum") || request.starts_with("cmd=get_universe_size") {
        tell_number();
    }
}

#[inline(never)]
fn keep_even() {
    std::process::abort();
}

#[inline(never)]
fn keep_odd() {
    std::process::abort();
}

#[inline(never)]
fn tell_number() {
    std::process::abort();
}

fn id(rank: u32) -> Proc {
    Proc { group: 0, rank }
}

fn start(server: &mut Server, rank: u32, program: &str) -> std::io::Result<Rank> {
    let (connection, theirs) = UnixStream::pair()?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(program);
    command.envs(server.environment(id(rank), &theirs.as_raw_fd().to_string()));
    Ok(Rank { process: command.spawn()?, connection: Some(connection) })
}

pub(crate) fn main() {
    if let Err(error) = run() {
        eprintln!("faulty-manager: {error}");
        exit(1);
    }
}

fn run() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(size), Some(program)) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: faulty-manager FAULT RANKS PROGRAM");
        exit(2);
    };
    let size: u32 = size.parse().map_err(std::io::Error::other)?;
    let mut fault = Fault { name, puts: 0, waiting: HashSet::new(), missed: HashSet::new() };
    let mut server = Server::new(Config::default());
    server.add_group(GroupSpec { programs: vec![size], ..GroupSpec::default() });
    let mut ranks = (0..size).map(|r| start(&mut server, r, &program)).collect::<Result<Vec<_>, _>>()?;
    let mut status = 0;
    while ranks.iter().any(|r| r.connection.is_some()) {
        let (open, mut fds): (Vec<u32>, Vec<PollFd<'_>>) = (0..size)
            .filter_map(|r| Some((r, PollFd::new(ranks[r as usize].connection.as_ref()?, PollFlags::IN))))
            .unzip();
        rustix::event::poll(&mut fds, None)?;
        let ready: Vec<u32> =
            open.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(r, _)| r).collect();
        for rank in ready {
            let mut buffer = [0; 65536];
            let connection = ranks[rank as usize].connection.as_mut();
            match connection.map_or(Ok(0), |c| c.read(&mut buffer)) {
                Ok(n) if n > 0 => {
                    fault.handle(rank, &buffer[..n]);
                    server.receive(id(rank), &buffer[..n]);
                }
                _ => {
                    ranks[rank as usize].connection = None;
                    server.closed(id(rank));
                }
            }
            while let Some(action) = server.next_action() {
                match action {
                    ServerAction::Send { to, bytes } => {
                        let connection = ranks[to.rank as usize].connection.as_mut();
                        if let (Some(to), Some(bytes)) = (connection, fault.answers(to.rank, bytes)) {
                            // The rank may already have ended, so a write error is ignored.
                            let _ = to.write_all(&bytes);
                        }
                    }
                    ServerAction::Spawn { group, .. } => server.spawned(group, &[1]),
                    ServerAction::Close { proc, .. } => ranks[proc.rank as usize].connection = None,
                    ServerAction::Abort { status: code, .. } => {
                        status = code;
                        for rank in &mut ranks {
                            rank.connection = None;
                            let _ = rank.process.kill();
                        }
                    }
                }
            }
        }
    }
    for rank in &mut ranks {
        let end = rank.process.wait()?;
        status = if status == 0 { end.code().unwrap_or(1) } else { status };
    }
    exit(status)
}
