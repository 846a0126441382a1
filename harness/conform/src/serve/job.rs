//! The event loop: the processes of all process groups, and the host that answers them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use pmi_reference::{Action, GroupId, GroupSpec, ProcId};
use pmi_wire::SpawnProgram;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::connection::{CHUNK, Connection, Received, context};
use super::host::{Host, Pace, View};
use super::launch::{Launcher, Program, Started, shown};
use crate::event::Exit;
use crate::launch::procfs::is_exiting;

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
    /// Its standard output and error, if they are captured, until they end.
    streams: [Option<PipeReader>; 2],
    /// How it ended.
    end: Option<Exit>,
}

/// A process's exit status as a shell would have it.
fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(status) => status,
        Exit::Signal(signal) => 128 + signal,
    }
}

/// What the tokens of a process's descriptors are numbered by.
const KINDS: usize = 4;
const SOCKET: usize = 0;
const PIDFD: usize = 1;
const STREAM: usize = 2;

/// How a job goes with the rest of the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    /// Its processes have our standard streams, and signals to us end it.
    Terminal {
        /// Say what is started and what ends.
        verbose: bool,
    },
    /// It reads nothing, and the host gets what it writes.
    Captured,
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

pub(crate) struct Job<H> {
    manner: Manner,
    command: Vec<OsString>,
    host: H,
    launcher: Launcher,
    poll: Poll,
    signals: Option<Signals>,
    processes: Vec<Process>,
    groups: Vec<Group>,
    /// Processes not yet waited for.
    running: usize,
    /// The exit status, as soon as one is settled.
    status: Option<i32>,
    /// Processes with answers to be written.
    dirty: Vec<usize>,
}

/// What a job waits on.
struct Sources {
    launcher: Launcher,
    poll: Poll,
    signals: Option<Signals>,
}

impl Sources {
    fn new(manner: Manner) -> io::Result<Self> {
        // First, for it reserves a small number for PMI_FD.
        let launcher = Launcher::new()?;
        let poll = Poll::new()?;
        let signals = match manner {
            Manner::Captured => None,
            Manner::Terminal { .. } => {
                let (read, write) = UnixStream::pair()?;
                read.set_nonblocking(true)?;
                let signals = Signals::with_pipe(read, write, SignalOnly, [SIGINT, SIGTERM, SIGHUP])?;
                let fd = signals.get_read().as_raw_fd();
                poll.registry().register(&mut SourceFd(&fd), SIGNALS, Interest::READABLE)?;
                Some(signals)
            }
        };
        Ok(Self { launcher, poll, signals })
    }
}

impl<H: Host> Job<H> {
    /// The job, not yet started; with what went wrong, the host comes back.
    pub(crate) fn new(host: H, command: Vec<OsString>, manner: Manner) -> Result<Self, (io::Error, H)> {
        match Sources::new(manner) {
            Ok(Sources { launcher, poll, signals }) => Ok(Self {
                manner,
                command,
                host,
                launcher,
                poll,
                signals,
                processes: Vec::new(),
                groups: Vec::new(),
                running: 0,
                status: None,
                dirty: Vec::new(),
            }),
            Err(error) => Err((error, host)),
        }
    }

    /// Starts so many processes and serves until all have ended; the exit status of the job, and the host.
    pub(crate) fn run(mut self, ranks: u32) -> (io::Result<i32>, H) {
        let done = self.serve(ranks);
        // Only an error leaves any.
        self.kill_all();
        for process in &self.processes {
            if let Some(pidfd) = &process.pidfd {
                _ = wait(pidfd);
            }
        }
        (done.map(|()| self.status.unwrap_or(0)), self.host)
    }

    fn serve(&mut self, ranks: u32) -> io::Result<()> {
        let program = Program::new(&self.command)?;
        let group = self.host.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        self.start(group, vec![(program, u64::from(ranks))])?;

        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; CHUNK];
        let mut pace = self.host.tick(&Look { processes: &self.processes, groups: &self.groups });
        while self.running > 0 {
            let wait = match pace {
                Pace::Again(time) => Some(time),
                Pace::Wait | Pace::End => None,
            };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                match event.token() {
                    SIGNALS => self.signalled(),
                    Token(token) => {
                        let (index, kind) = (token / KINDS, token % KINDS);
                        if kind >= STREAM {
                            self.read_stream(index, kind - STREAM, ROUNDS, &mut buffer)?;
                        } else if kind == PIDFD {
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
            if pace != Pace::End {
                pace = self.host.tick(&Look { processes: &self.processes, groups: &self.groups });
                if pace == Pace::End {
                    self.kill_all();
                }
                self.act()?;
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
                let number = self.host.descriptor(id);
                let fd = self.descriptor(id, number);
                let environment = self.host.environment(id, &fd);
                command.env_remove("PMI_FD").envs(environment.clone());
                if matches!(self.manner, Manner::Captured) {
                    let mut fresh = self.launcher.command(program)?;
                    fresh.env_remove("PMI_FD").envs(environment);
                    let streams = capture(&mut fresh)?;
                    let started = self.launcher.start_at(&mut fresh, number);
                    let started = started.map_err(context(shown(&program.name)))?;
                    drop(fresh);
                    self.add(id, started, &program.name, streams)?;
                    rank += 1;
                    continue;
                }
                let started = if id == (ProcId { group: 0, rank: 0 }) && !io::stdin().is_terminal() {
                    let mut command = self.launcher.command(program)?;
                    command.env_remove("PMI_FD").envs(environment).stdin(Stdio::inherit());
                    self.launcher.start(&mut command)
                } else {
                    self.launcher.start(&mut command)
                };
                let started = started.map_err(context(shown(&program.name)))?;
                self.add(id, started, &program.name, [None, None])?;
                rank += 1;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        id: ProcId,
        started: Started,
        name: &OsStr,
        streams: [Option<PipeReader>; 2],
    ) -> io::Result<()> {
        let index = self.processes.len();
        let Started { pid, pidfd, socket } = started;
        let (watched, connected) = (pidfd.as_raw_fd(), socket.as_raw_fd());
        // Added before it is watched, so that it is killed if it cannot be.
        let connection = Some(Connection::new(socket));
        let pipes = streams.each_ref().map(|pipe| pipe.as_ref().map(AsRawFd::as_raw_fd));
        self.processes.push(Process { id, pid, pidfd: Some(pidfd), connection, streams, end: None });
        self.running += 1;
        if self.is_verbose() {
            self.host.say(format_args!("{}: started {} as process {pid}", Name(id), shown(name)));
        }
        self.host.started(id);
        let registry = self.poll.registry();
        let token = |kind| Token(index * KINDS + kind);
        registry.register(&mut SourceFd(&connected), token(SOCKET), Interest::READABLE)?;
        registry.register(&mut SourceFd(&watched), token(PIDFD), Interest::READABLE)?;
        for (i, pipe) in pipes.iter().enumerate() {
            if let Some(pipe) = pipe {
                registry.register(&mut SourceFd(pipe), token(STREAM + i), Interest::READABLE)?;
            }
        }
        Ok(())
    }

    fn is_verbose(&self) -> bool {
        matches!(self.manner, Manner::Terminal { verbose: true })
    }

    /// Reads what a process wrote to its standard output or error.
    fn read_stream(
        &mut self,
        index: usize,
        which: usize,
        rounds: usize,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let process = &mut self.processes[index];
        let Some(pipe) = &mut process.streams[which] else { return Ok(()) };
        for _ in 0..rounds {
            match pipe.read(buffer) {
                Ok(0) => {
                    process.streams[which] = None;
                    return Ok(());
                }
                Ok(n) => self.host.output(process.id, which == 1, &buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let (fd, token) = (pipe.as_raw_fd(), Token(index * KINDS + STREAM + which));
        self.poll.registry().reregister(&mut SourceFd(&fd), token, Interest::READABLE)
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
                    self.host.receive(process.id, &buffer[..n]);
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
        if self.host.is_joined(process.id) && is_exiting(process.pid) {
            return Ok(());
        }
        let id = process.id;
        self.host.closed(id);
        self.act()
    }

    /// A process has ended.
    fn ended(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..LAST_ROUNDS {
            let process = &self.processes[index];
            let Some(connection) = &process.connection else { break };
            let Received::Bytes(n) = connection.receive(buffer) else { break };
            self.host.receive(process.id, &buffer[..n]);
            self.act()?;
        }
        for which in 0..2 {
            self.read_stream(index, which, LAST_ROUNDS, buffer)?;
        }
        let process = &mut self.processes[index];
        process.streams = [None, None];
        let Some(pidfd) = process.pidfd.take() else { return Ok(()) };
        process.connection = None;
        // Before it is waited for: only until then is the number sure to be its own.
        _ = kill_process_group(process.pid, Signal::KILL);
        let end = wait(&pidfd)?;
        process.end = Some(end);
        self.running -= 1;
        let id = process.id;
        if self.is_verbose() {
            self.host.say(format_args!("{}: {}", Name(id), Ending(end)));
        }
        if !self.groups[id.group as usize].over {
            self.settle(status(end));
        }
        self.host.ended(id, end);
        self.host.closed(id);
        self.act()
    }

    /// Does what the server asks for.
    fn act(&mut self) -> io::Result<()> {
        while let Some(action) = self.host.next_action() {
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
        let total = self.host.size(group) as usize;
        let code = match self.start(group, programs) {
            Ok(()) => 0,
            Err(error) => {
                self.host.say(format_args!("{}: spawn failed: {error}", Name(by)));
                self.kill(group);
                1
            }
        };
        self.host.spawned(group, &vec![code; total]);
        Ok(())
    }

    fn abort(&mut self, by: ProcId, status: i64, reason: &str) {
        match self.process(by).and_then(|process| process.end) {
            Some(end) => self.host.say(format_args!("{}: {reason} ({})", Name(by), Ending(end))),
            None => self.host.say(format_args!("{}: {reason}", Name(by))),
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
    fn descriptor(&mut self, id: ProcId, number: Option<i32>) -> String {
        // A number that no process has open.
        let dead = 1021;
        let number = number.unwrap_or(self.launcher.descriptor());
        if self.host.connects(id) { number } else { dead }.to_string()
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
        let Some(signals) = &mut self.signals else { return };
        while let Ok(1..) = Read::read(&mut signals.get_read(), &mut scratch) {}
        if let Some(signal) = signals.pending().next() {
            self.host.say(format_args!("killing the job: signal {signal}"));
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

/// How a process ended, in messages.
struct Ending(Exit);

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Exit::Code(status) => write!(f, "exited with status {status}"),
            Exit::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// What the host may see.
struct Look<'a> {
    processes: &'a [Process],
    groups: &'a [Group],
}

impl View for Look<'_> {
    fn alive(&self) -> Vec<(ProcId, i32)> {
        let alive = self.processes.iter().filter(|process| process.pidfd.is_some());
        alive.map(|process| (process.id, process.pid.as_raw_nonzero().get())).collect()
    }

    fn has_read_all(&self, p: ProcId) -> bool {
        let group = self.groups.get(p.group as usize).copied().unwrap_or_default();
        let process = self.processes.get(group.first + p.rank as usize);
        let connection = process.and_then(|process| process.connection.as_ref());
        connection.is_none_or(Connection::is_read)
    }
}

/// Lets the command write into pipes, whose other ends do not block.
fn capture(command: &mut Command) -> io::Result<[Option<PipeReader>; 2]> {
    let (out, out_writer) = io::pipe()?;
    let (err, err_writer) = io::pipe()?;
    command.stdout(out_writer).stderr(err_writer);
    for pipe in [&out, &err] {
        let flags = rustix::fs::fcntl_getfl(pipe)?;
        rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
    }
    Ok([Some(out), Some(err)])
}

fn rearm(registry: &Registry, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
    registry.reregister(&mut SourceFd(&socket), Token(index * KINDS + SOCKET), interest)
}

fn wait(pidfd: &OwnedFd) -> io::Result<Exit> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (_, Some(signal)) => Exit::Signal(signal),
                    (status, None) => Exit::Code(status.unwrap_or(0)),
                });
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
