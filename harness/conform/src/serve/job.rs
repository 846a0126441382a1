//! The event loop: the processes of all process groups, and the reference server that answers them.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use pmi_reference::{Action, GroupId, GroupSpec, ProcId, Server};
use pmi_wire::SpawnProgram;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::ServeOptions;
use super::connection::{CHUNK, Connection, Received, context};
use super::launch::{Launcher, Program, Started, shown};

const SIGNALS: Token = Token(usize::MAX - 1);
/// Reads from one rank in a row, before the others get their turn.
const ROUNDS: usize = 16;
/// Reads from a rank that has ended. It can write no more, but what it left running could, without end.
const LAST_ROUNDS: usize = 64;

/// One process that was started.
struct Process {
    id: ProcId,
    /// Also its process group.
    pid: Pid,
    /// Until it is waited for.
    pidfd: Option<OwnedFd>,
    /// Until one side closes it.
    connection: Option<Connection>,
    /// How it ended.
    end: Option<End>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Exited(i32),
    Killed(i32),
}

impl End {
    fn status(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// A process group: its processes are `processes[first..][..size]`, in order of rank.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    first: usize,
    size: usize,
    /// Aborted: how its processes end does not matter any more.
    over: bool,
}

type Signals = SignalDelivery<UnixStream, SignalOnly>;

pub(super) struct Job {
    options: ServeOptions,
    server: Server,
    launcher: Launcher,
    poll: Poll,
    signals: Signals,
    processes: Vec<Process>,
    groups: Vec<Group>,
    /// Processes not yet waited for.
    running: usize,
    /// The exit status, as soon as one is settled.
    status: Option<i32>,
    /// Processes with answers to be written.
    dirty: Vec<usize>,
}

impl Job {
    pub(super) fn new(options: ServeOptions) -> io::Result<Self> {
        // First, for it reserves a small number for PMI_FD.
        let launcher = Launcher::new()?;
        let poll = Poll::new()?;
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let signals = Signals::with_pipe(read, write, SignalOnly, [SIGINT, SIGTERM, SIGHUP])?;
        let fd = signals.get_read().as_raw_fd();
        poll.registry().register(&mut SourceFd(&fd), SIGNALS, Interest::READABLE)?;
        Ok(Self {
            server: Server::new(options.config.clone()),
            options,
            launcher,
            poll,
            signals,
            processes: Vec::new(),
            groups: Vec::new(),
            running: 0,
            status: None,
            dirty: Vec::new(),
        })
    }

    pub(super) fn run(mut self) -> io::Result<i32> {
        let done = self.serve();
        // Only an error leaves any.
        self.kill_all();
        for process in &self.processes {
            if let Some(pidfd) = &process.pidfd {
                _ = wait(pidfd);
            }
        }
        done.map(|()| self.status.unwrap_or(0))
    }

    fn serve(&mut self) -> io::Result<()> {
        let program = Program::new(&self.options.command)?;
        let ranks = self.options.ranks;
        let group = self.server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        self.start(group, vec![(program, u64::from(ranks))])?;

        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; CHUNK];
        while self.running > 0 {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                match event.token() {
                    SIGNALS => self.signalled(),
                    Token(token) => {
                        let index = token / 2;
                        if token % 2 == 1 {
                            self.ended(index, &mut buffer)?;
                        } else if event.is_writable() && self.is_blocked(index) {
                            self.flush(index)?;
                        } else {
                            let closed = event.is_read_closed() || event.is_error();
                            self.readable(index, closed, &mut buffer)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts the programs as the processes of a group.
    fn start(&mut self, id: GroupId, programs: Vec<(Program, u64)>) -> io::Result<()> {
        let (first, total) = (self.processes.len(), programs.iter().map(|(_, n)| n).sum::<u64>());
        if self.groups.len() <= id as usize {
            self.groups.resize(id as usize + 1, Group::default());
        }
        self.launcher.reserve(self.running as u64 + total)?;
        let result = self.start_each(id, programs);
        self.groups[id as usize] = Group { first, size: self.processes.len() - first, over: false };
        self.launcher.finish()?;
        result
    }

    fn start_each(&mut self, group: GroupId, programs: Vec<(Program, u64)>) -> io::Result<()> {
        // Nothing is started if any cannot be.
        let commands = programs
            .iter()
            .map(|(program, n)| Ok((program, self.launcher.command(program)?, *n)))
            .collect::<io::Result<Vec<_>>>()?;
        let mut rank = 0;
        for (program, mut command, n) in commands {
            for _ in 0..n {
                let id = ProcId { group, rank };
                let fd = self.descriptor(id);
                let environment = self.server.environment(id, &fd);
                command.env_remove("PMI_FD").envs(environment.clone());
                let started = if id == (ProcId { group: 0, rank: 0 }) && !io::stdin().is_terminal() {
                    let mut command = self.launcher.command(program)?;
                    command.env_remove("PMI_FD").envs(environment).stdin(Stdio::inherit());
                    self.launcher.start(&mut command)
                } else {
                    self.launcher.start(&mut command)
                };
                let started = started.map_err(context(shown(&program.name)))?;
                self.add(id, started, &program.name)?;
                rank += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, id: ProcId, started: Started, name: &OsStr) -> io::Result<()> {
        let index = self.processes.len();
        let Started { pid, pidfd, socket } = started;
        let (watched, connected) = (pidfd.as_raw_fd(), socket.as_raw_fd());
        // Added before it is watched, so that it is killed if it cannot be.
        let connection = Some(Connection::new(socket));
        self.processes.push(Process { id, pid, pidfd: Some(pidfd), connection, end: None });
        self.running += 1;
        if self.options.verbose {
            log(format_args!("{}: started {} as process {pid}", Name(id), shown(name)));
        }
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&connected), Token(index * 2), Interest::READABLE)?;
        registry.register(&mut SourceFd(&watched), Token(index * 2 + 1), Interest::READABLE)
    }

    fn is_blocked(&self, index: usize) -> bool {
        self.processes[index].connection.as_ref().is_some_and(|connection| connection.blocked)
    }

    /// Reads from a rank. The poll reports changes only: what is left is asked for again, or comes with a change.
    fn readable(&mut self, index: usize, closed: bool, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let process = &mut self.processes[index];
            let Some(connection) = &mut process.connection else { return Ok(()) };
            if connection.blocked {
                // Listened to again when it has read its answers.
                return Ok(());
            }
            match connection.receive(buffer) {
                Received::Nothing => return Ok(()),
                Received::Bytes(n) => {
                    self.server.receive(process.id, &buffer[..n]);
                    self.act()?;
                    if n < buffer.len() && !closed {
                        return Ok(());
                    }
                }
                Received::End => return self.hung_up(index),
            }
        }
        match &self.processes[index].connection {
            Some(connection) if !connection.blocked => {
                rearm(self.poll.registry(), connection.raw(), index, Interest::READABLE)
            }
            _ => Ok(()),
        }
    }

    /// A rank's connection is at its end.
    fn hung_up(&mut self, index: usize) -> io::Result<()> {
        let process = &mut self.processes[index];
        process.connection = None;
        // A process loses its connection a moment before it can be waited for. How it ended tells more than that it closed its
        // connection, and is to come first in order of time.
        if self.server.is_joined(process.id) && is_exiting(process.pid) {
            return Ok(());
        }
        let id = process.id;
        self.server.closed(id);
        self.act()
    }

    /// A process has ended.
    fn ended(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..LAST_ROUNDS {
            let process = &self.processes[index];
            let Some(connection) = &process.connection else { break };
            let Received::Bytes(n) = connection.receive(buffer) else { break };
            self.server.receive(process.id, &buffer[..n]);
            self.act()?;
        }
        let process = &mut self.processes[index];
        let Some(pidfd) = process.pidfd.take() else { return Ok(()) };
        process.connection = None;
        // Before it is waited for: only until then is the number sure to be its own.
        _ = kill_process_group(process.pid, Signal::KILL);
        let end = wait(&pidfd)?;
        process.end = Some(end);
        self.running -= 1;
        let id = process.id;
        if self.options.verbose {
            log(format_args!("{}: {end}", Name(id)));
        }
        if !self.groups[id.group as usize].over {
            self.settle(end.status());
        }
        self.server.closed(id);
        self.act()
    }

    /// Does what the server asks for.
    fn act(&mut self) -> io::Result<()> {
        while let Some(action) = self.server.next_action() {
            match action {
                Action::Send { to, bytes } => {
                    let group = self.groups[to.group as usize];
                    let index = group.first + to.rank as usize;
                    let process = self.processes.get_mut(index).filter(|process| process.id == to);
                    let connection = process.and_then(|process| process.connection.as_mut());
                    if connection.is_some_and(|connection| connection.push(bytes)) {
                        self.dirty.push(index);
                    }
                }
                Action::Close { proc, end } => {
                    self.flush_dirty()?;
                    self.close(proc, end);
                }
                Action::Spawn { group, by, programs } => self.spawn(group, by, programs)?,
                Action::Abort { group, by, status, reason } => {
                    // The answer to abort comes before the end.
                    self.flush_dirty()?;
                    self.abort(ProcId { group, rank: by }, status, &reason);
                }
            }
        }
        self.flush_dirty()
    }

    fn flush_dirty(&mut self) -> io::Result<()> {
        while let Some(index) = self.dirty.pop() {
            self.flush(index)?;
        }
        Ok(())
    }

    /// Writes what a rank's socket takes, and waits for either more room in it or more requests.
    fn flush(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.processes[index].connection else { return Ok(()) };
        let was_blocked = connection.blocked;
        connection.flush();
        let interest = match (was_blocked, connection.blocked) {
            (false, true) => Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            _ => return Ok(()),
        };
        rearm(self.poll.registry(), connection.raw(), index, interest)
    }

    fn spawn(&mut self, group: GroupId, by: ProcId, programs: Vec<SpawnProgram>) -> io::Result<()> {
        let programs: Vec<_> = programs
            .into_iter()
            .map(|program| {
                let n = program.nprocs;
                (Program::spawned(program), n)
            })
            .collect();
        let total = self.server.size(group) as usize;
        let code = match self.start(group, programs) {
            Ok(()) => 0,
            Err(error) => {
                log(format_args!("{}: spawn failed: {error}", Name(by)));
                self.kill(group);
                1
            }
        };
        self.server.spawned(group, &vec![code; total]);
        Ok(())
    }

    fn abort(&mut self, by: ProcId, status: i64, reason: &str) {
        match self.process(by).and_then(|process| process.end) {
            Some(end) => log(format_args!("{}: {reason} ({end})", Name(by))),
            None => log(format_args!("{}: {reason}", Name(by))),
        }
        self.kill(by.group);
        self.settle(match status & 0xff {
            0 if status != 0 => 1,
            low => low as i32,
        });
    }

    fn process(&self, id: ProcId) -> Option<&Process> {
        let group = self.groups.get(id.group as usize)?;
        self.processes.get(group.first..)?.get(..group.size)?.get(id.rank as usize)
    }

    /// What PMI_FD is to hold.
    fn descriptor(&mut self, id: ProcId) -> String {
        // A number that no process has open.
        if self.server.connects(id) { self.launcher.descriptor().to_string() } else { "1021".to_owned() }
    }

    /// Closes one connection, and kills its process if that is asked for.
    fn close(&mut self, id: ProcId, end: bool) {
        let Some(group) = self.groups.get(id.group as usize) else { return };
        let index = group.first + id.rank as usize;
        if let Some(process) = self.processes.get_mut(index) {
            process.connection = None;
            if end && process.pidfd.is_some() {
                _ = kill_process_group(process.pid, Signal::KILL);
            }
        }
    }

    /// Kills the processes of a group, which are waited for later, and closes their connections: in this order, so that none
    /// gets to complain of the lost connection.
    fn kill(&mut self, group: GroupId) {
        let group = &mut self.groups[group as usize];
        group.over = true;
        let processes = &mut self.processes[group.first..][..group.size];
        for process in processes.iter().filter(|process| process.pidfd.is_some()) {
            _ = kill_process_group(process.pid, Signal::KILL);
        }
        processes.iter_mut().for_each(|process| process.connection = None);
    }

    fn kill_all(&mut self) {
        for group in 0..self.groups.len() {
            self.kill(group as GroupId);
        }
    }

    fn signalled(&mut self) {
        // Emptied before it is looked at, so that no signal is missed.
        let mut scratch = [0; 64];
        while let Ok(1..) = io::Read::read(&mut self.signals.get_read(), &mut scratch) {}
        if let Some(signal) = self.signals.pending().next() {
            log(format_args!("killing the job: signal {signal}"));
            self.kill_all();
            // Whatever the processes did before: who sent the signal wants to see it.
            self.status = Some(128 + signal);
        }
    }

    /// The first status that is not 0 is the job's.
    fn settle(&mut self, status: i32) {
        if status != 0 {
            self.status.get_or_insert(status);
        }
    }
}

/// A process in messages.
struct Name(ProcId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of group {}", self.0.rank, self.0.group)
    }
}

/// One line on stderr; that it may be closed is no reason to stop serving.
fn log(line: fmt::Arguments<'_>) {
    _ = io::stderr().write_all(format!("pmi-conform serve: {line}\n").as_bytes());
}

fn rearm(registry: &Registry, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
    registry.reregister(&mut SourceFd(&socket), Token(index * 2), interest)
}

fn wait(pidfd: &OwnedFd) -> io::Result<End> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (_, Some(signal)) => End::Killed(signal),
                    (status, None) => End::Exited(status.unwrap_or(0)),
                });
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a process is on its way out: the kernel closes its descriptors after it sets this flag, and before the process
/// can be waited for.
fn is_exiting(pid: Pid) -> bool {
    const PF_EXITING: u64 = 4;
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // proc_pid_stat(5): the second field, the name, is in parentheses and may hold anything; flags is the ninth.
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let fields = String::from_utf8_lossy(&stat[name_end + 1..]);
    let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}
