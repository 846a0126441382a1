//! The event loop of a job: the processes of all process groups, and the host that answers their requests.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use pmi_faults::{GroupId, GroupSpec, ServerAction};
use pmi_process::agent::listener::AgentListener;
use pmi_process::child::Child;
use pmi_process::connection::{NonBlockingStream, READ_SIZE, ReceiveResult};
use pmi_process::observe::procfs::is_exiting;
use pmi_process::observe::tcp::Ends;
use pmi_process::output::capture;
use pmi_process::reactor::{Reactor, ReactorKey, Ready, WatchMode};
use pmi_process::stop::StopSignals;
use pmi_process::{context, inherited};
use pmi_wire::singleton::Caller;
use pmi_wire::{ConnectionMethod, Proc, SpawnProgram};
use rustix::process::Pid;

use super::host::{Host, JobView, NextTick};
use super::launch::{Executable, Launcher, StartedProcess, display_name};
use super::listener::{FirstLine, Listener};
use super::remote::Remote;
use pmi_judge::event::Exit;

/// Maximum number of consecutive reads from a single rank before the server reads from the other ranks.
const MAX_READS: usize = 16;
/// Maximum number of reads from a rank that has ended. The rank can no longer write, but processes that it left running might never stop
/// writing.
const MAX_LAST_READS: usize = 64;

/// Time that the server lets requests gather. Some faults have an effect only if several requests arrive at the same time.
const GATHERING_TIME: Duration = Duration::from_micros(300);

/// A source of the events of a job. Each process is identified by its index.
#[derive(Debug, Clone, Copy)]
enum JobSource {
    Signals,
    /// A new connection to PMI_PORT.
    Listener,
    /// A connection that has not identified itself.
    PendingConnection(u64),
    /// A program that a process may have started as its process manager, and that has not reported yet.
    Manager(u64),
    Connection(usize),
    Process(usize),
    /// Captured output; `true` for standard error.
    Output(usize, bool),
}

struct JobProcess {
    id: Proc,
    /// The process itself, which leads a process group.
    child: Child,
    /// The connection, until one side closes it.
    connection: Option<(NonBlockingStream, ReactorKey)>,
    /// The captured standard output and error of the process; `None` for a stream that has ended or is not captured.
    streams: [Option<(PipeReader, ReactorKey)>; 2],
    /// True if the process has sent bytes.
    has_written: bool,
    /// The exit of the process, if the process has ended.
    end: Option<Exit>,
}

impl JobProcess {
    /// Shuts down the connection. Closing the connection is not enough: a process that is being started may hold a copy of the server's
    /// descriptor for a moment.
    fn hang_up(&mut self, reactor: &mut Reactor<JobSource>) {
        if let Some((connection, key)) = self.connection.take() {
            reactor.remove(key);
            connection.shut_down();
        }
    }

    fn close_stream(&mut self, stderr: bool, reactor: &mut Reactor<JobSource>) {
        if let Some((_, key)) = self.streams[usize::from(stderr)].take() {
            reactor.remove(key);
        }
    }
}

/// Converts a process's exit into a status, as a shell does.
fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(status) => status,
        Exit::Signal(signal) => 128 + signal,
    }
}

/// The handling of a job's standard streams and of signals.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobMode {
    /// The job's processes use the standard streams of this process, and signals to this process end the job.
    Terminal {
        /// True if the starts and exits of processes are printed.
        verbose: bool,
    },
    /// The job has no input, and the host receives its output.
    Captured,
}

/// A process group. Its processes are `processes[first..][..size]` of the job, in order of rank.
#[derive(Debug, Clone, Copy, Default)]
struct JobGroup {
    first: usize,
    size: usize,
    /// True if the group was aborted. From then on, the exit statuses of its processes do not count.
    is_aborted: bool,
}

pub(crate) struct Job<H> {
    mode: JobMode,
    command: Vec<OsString>,
    /// The command that starts the processes on other hosts; `None` if this process starts them.
    remote: Option<Remote>,
    host: H,
    launcher: Launcher,
    reactor: Reactor<JobSource>,
    signals: Option<StopSignals>,
    /// The listener for processes that open their own connections.
    listener: Option<Listener>,
    processes: Vec<JobProcess>,
    groups: Vec<JobGroup>,
    /// Number of processes that have not been waited for yet.
    running: usize,
    /// The exit status, if it has been determined.
    status: Option<i32>,
    /// Processes with responses to be written.
    unflushed: Vec<usize>,
}

/// The sources of events of a job.
struct JobSources {
    launcher: Launcher,
    reactor: Reactor<JobSource>,
    signals: Option<StopSignals>,
    listener: Option<Listener>,
}

impl JobSources {
    fn new(mode: JobMode, connection_method: ConnectionMethod, listen: IpAddr) -> io::Result<Self> {
        // The launcher is created first, because it reserves a low descriptor number for PMI_FD.
        let launcher = Launcher::new()?;
        let mut reactor = Reactor::new()?;
        let signals = match mode {
            JobMode::Captured => None,
            JobMode::Terminal { .. } => {
                let signals = StopSignals::catch()?;
                reactor.add(&signals, JobSource::Signals, WatchMode::Read)?;
                Some(signals)
            }
        };
        let listener = (connection_method == ConnectionMethod::Port)
            .then(|| Listener::open(listen, &mut reactor, JobSource::Listener))
            .transpose()?;
        Ok(Self { launcher, reactor, signals, listener })
    }
}

impl<H: Host> Job<H> {
    /// Creates a job without starting it. Returns the host with the error if the job cannot be created.
    pub(crate) fn new(host: H, command: Vec<OsString>, mode: JobMode) -> Result<Self, (io::Error, H)> {
        Self::launched_by(host, command, mode, None)
    }

    /// Creates a job without starting it. If `remote` is given, the processes are launched on other hosts.
    pub(crate) fn launched_by(
        host: H,
        command: Vec<OsString>,
        mode: JobMode,
        remote: Option<Remote>,
    ) -> Result<Self, (io::Error, H)> {
        let listen = remote.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), Remote::listen);
        match JobSources::new(mode, host.connection_method(), listen) {
            Ok(JobSources { launcher, reactor, signals, listener }) => Ok(Self {
                mode,
                command,
                remote,
                host,
                launcher,
                reactor,
                signals,
                listener,
                processes: Vec::new(),
                groups: Vec::new(),
                running: 0,
                status: None,
                unflushed: Vec::new(),
            }),
            Err(error) => Err((error, host)),
        }
    }

    /// Starts `ranks` processes and serves them until all have ended, as [`run`](Self::run) does. If `listener` is given, also receives
    /// reports from the programs that the job's processes start as their process manager.
    pub(crate) fn run_with_agents(
        mut self,
        listener: Option<AgentListener>,
        ranks: u32,
    ) -> (io::Result<i32>, H) {
        if let Some(listener) = listener {
            match Listener::with_agent_listener(listener, &mut self.reactor, JobSource::Listener) {
                Ok(door) => self.listener = Some(door),
                Err(error) => return (Err(error), self.host),
            }
        }
        self.run(ranks)
    }

    /// Starts `ranks` processes and serves them until all have ended. Returns the exit status of the job, and the host.
    pub(crate) fn run(mut self, ranks: u32) -> (io::Result<i32>, H) {
        let done = self.begin(ranks).and_then(|()| self.serve());
        self.finish(done)
    }

    /// Serves a process that has requested a process manager, and all processes that it spawns.
    pub(crate) fn run_for(mut self, caller: Caller) -> (io::Result<i32>, H) {
        let done = self.call(caller).and_then(|()| self.serve());
        self.finish(done)
    }

    fn finish(mut self, done: io::Result<()>) -> (io::Result<i32>, H) {
        if done.is_ok() && matches!(self.mode, JobMode::Terminal { .. }) {
            self.warn_about_singletons();
        }
        // Processes remain only after an error.
        self.kill_all();
        for process in &mut self.processes {
            process.child.wait();
        }
        (done.map(|()| self.status.unwrap_or(0)), self.host)
    }

    /// Warns about processes that have ended successfully without sending anything, because each may have run as a singleton.
    fn warn_about_singletons(&mut self) {
        let silent = |p: &&JobProcess| !p.has_written && p.end == Some(Exit::Code(0));
        for group in self.groups.iter().filter(|group| group.size > 1 && !group.is_aborted) {
            let processes = &self.processes[group.first..][..group.size];
            let alone = processes.iter().filter(silent).count();
            if alone > 0 {
                self.host.print(format_args!(
                    "{alone} of {} processes exited with status 0 without sending a PMI message; if this is an MPI program, each of them ran as rank 0 of 1",
                    group.size
                ));
            }
        }
    }

    fn begin(&mut self, ranks: u32) -> io::Result<()> {
        let program = Executable::new(&self.command)?;
        let group = self.host.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        self.start(group, vec![(program, u64::from(ranks))])
    }

    /// Connects to a process that has requested a process manager.
    fn call(&mut self, caller: Caller) -> io::Result<()> {
        let group = self.host.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
        let pid = Pid::from_raw(caller.pid).ok_or(io::ErrorKind::InvalidInput)?;
        let child = Child::from_foreign(pid).map_err(context(format_args!("process {pid}")))?;
        let welcome = self.host.welcome();
        let listener =
            Listener::connect(caller.port, welcome, &mut self.reactor, JobSource::PendingConnection);
        // Connect before adding the process to the job: the processes of a job that cannot start are killed, and a failed connection must
        // not kill the caller.
        self.listener = Some(listener.map_err(context(format_args!("port {}", caller.port)))?);
        let (id, name) = (Proc { group, rank: 0 }, OsStr::new("the caller"));
        self.groups.push(JobGroup { first: 0, size: 1, is_aborted: false });
        self.add(id, StartedProcess { child, socket: None }, name, [None, None])
    }

    /// Returns whether a process makes its own connection instead of inheriting one.
    fn connects_by_itself(&self, id: Proc) -> bool {
        match self.host.connection_method() {
            ConnectionMethod::Fd => false,
            ConnectionMethod::Port => true,
            ConnectionMethod::Singleton => id.group == 0,
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_SIZE];
        let mut pace = NextTick::Wait;
        while self.running > 0 {
            // After the host has requested the end of the job, `tick` is not called again.
            if pace != NextTick::End {
                pace = self.host.tick(&JobInspection { processes: &self.processes, groups: &self.groups });
                if pace == NextTick::End {
                    self.kill_all();
                }
                self.act();
            }
            let wait = match pace {
                NextTick::Again(time) => Some(time),
                NextTick::Wait | NextTick::End => None,
            };
            if self.host.begin_round() {
                std::thread::sleep(GATHERING_TIME);
            }
            for Ready { source, writable } in self.reactor.wait(wait)? {
                match source {
                    JobSource::Signals => self.signalled(),
                    JobSource::Listener => {
                        self.listener.iter_mut().for_each(|d| {
                            d.accept(&mut self.reactor, JobSource::PendingConnection, JobSource::Manager)
                        });
                    }
                    JobSource::PendingConnection(number) => self.receive_from_pending(number)?,
                    JobSource::Manager(number) => self.receive_manager(number)?,
                    JobSource::Output(index, stderr) => {
                        self.read_stream(index, stderr, MAX_READS, &mut buffer)?
                    }
                    JobSource::Process(index) => self.ended(index, &mut buffer)?,
                    JobSource::Connection(index) if writable && self.is_blocked(index) => {
                        self.flush(index);
                    }
                    JobSource::Connection(index) => self.readable(index, &mut buffer)?,
                }
            }
            self.end_caller()?;
        }
        Ok(())
    }

    /// Starts the programs as the processes of a group.
    fn start(&mut self, id: GroupId, programs: Vec<(Executable, u64)>) -> io::Result<()> {
        let (first, total) = (self.processes.len(), programs.iter().map(|(_, n)| n).sum::<u64>());
        if self.groups.len() <= id as usize {
            self.groups.resize(id as usize + 1, JobGroup::default());
        }
        self.launcher.reserve(self.running as u64 + total)?;
        let result = self.start_each(id, programs);
        self.groups[id as usize] = JobGroup { first, size: self.processes.len() - first, is_aborted: false };
        result
    }

    fn start_each(&mut self, group: GroupId, programs: Vec<(Executable, u64)>) -> io::Result<()> {
        if let Some(remote) = self.remote.clone() {
            return self.launch_each(&remote, group, &programs);
        }
        // Find all programs before starting any process, so that a missing program leaves no process behind.
        let commands = programs.iter().map(|(program, n)| {
            let file = program.resolve()?;
            Ok((program, self.launcher.command(program, &file)?, file, *n))
        });
        let commands = commands.collect::<io::Result<Vec<_>>>()?;
        let mut rank = 0;
        for (program, mut command, file, n) in commands {
            for _ in 0..n {
                let id = Proc { group, rank };
                let mut streams = [None, None];
                let started = match self.mode {
                    JobMode::Captured => {
                        let mut command = self.launcher.command(program, &file)?;
                        streams = capture(&mut command)?.map(Some);
                        self.start_one(id, &mut command)
                    }
                    _ if id == (Proc { group: 0, rank: 0 }) && !io::stdin().is_terminal() => {
                        let mut command = self.launcher.command(program, &file)?;
                        command.stdin(Stdio::inherit());
                        self.start_one(id, &mut command)
                    }
                    _ => self.start_one(id, &mut command),
                };
                self.add(id, started.map_err(context(display_name(&program.name)))?, &program.name, streams)?;
                rank += 1;
            }
        }
        Ok(())
    }

    /// Starts a process from a command, and adds the server's variables to its environment.
    fn start_one(&mut self, id: Proc, command: &mut Command) -> io::Result<StartedProcess> {
        let number = match self.host.descriptor(id) {
            Some(number) => number,
            None => inherited::number()?,
        };
        let connects_by_itself = self.connects_by_itself(id);
        let place = match self.listener.as_ref().filter(|_| connects_by_itself).and_then(Listener::address) {
            Some(address) => address.to_string(),
            // A process without a connection gets the number of a descriptor that is not open in any process.
            None if !self.host.connects(id) => "1021".to_owned(),
            None => number.to_string(),
        };
        command.env_remove("PMI_FD").envs(self.host.environment(id, &place));
        match connects_by_itself {
            true => self.launcher.start_unconnected(command),
            false => self.launcher.start_connected(command, number),
        }
    }

    /// Starts each process of a group on its assigned host. On this machine, each process is represented by the local command that starts
    /// it.
    fn launch_each(
        &mut self,
        remote: &Remote,
        group: GroupId,
        programs: &[(Executable, u64)],
    ) -> io::Result<()> {
        let here = std::env::current_dir()?;
        let size = programs.iter().map(|(_, n)| *n as u32).sum();
        let each = programs.iter().flat_map(|(program, n)| (0..*n).map(move |_| program));
        for (rank, program) in (0..).zip(each) {
            let id = Proc { group, rank };
            let place = self.listener.as_ref().and_then(Listener::address).map(|address| address.to_string());
            let environment = self.host.environment(id, &place.unwrap_or_default());
            let launch = remote.program(program, rank, size, &environment, &here);
            let mut command = self.launcher.command(&launch, &launch.resolve()?)?;
            let started = self.launcher.start_unconnected(&mut command);
            self.add(id, started.map_err(context(display_name(&launch.name)))?, &program.name, [None, None])?;
        }
        Ok(())
    }

    /// Reads the report from a program that a process has started as its process manager, and sends the first message to that process.
    fn receive_manager(&mut self, number: u64) -> io::Result<()> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        let reports = listener.receive_manager(
            number,
            self.host.welcome(),
            &mut self.reactor,
            JobSource::PendingConnection,
        )?;
        reports.into_iter().for_each(|args| self.host.manager_requested(args));
        Ok(())
    }

    /// Treats the caller as ended if it has no connection, because no other event reports its end. The caller has no connection after the
    /// caller or the server has closed it, or after the caller has sent an invalid message.
    fn end_caller(&mut self) -> io::Result<()> {
        let gone = self.listener.as_ref().is_some_and(Listener::is_empty);
        let missed = |p: &&JobProcess| p.child.is_foreign() && !p.child.is_reaped() && p.connection.is_none();
        let Some(caller) = self.processes.first().filter(missed).filter(|_| gone) else { return Ok(()) };
        if !caller.has_written {
            self.host
                .print(format_args!("invalid response from the process that started this process manager"));
            self.settle(1);
        }
        self.ended(0, &mut [])
    }

    /// Reads the first line of a pending connection, and assigns the connection to the process that the line identifies.
    fn receive_from_pending(&mut self, number: u64) -> io::Result<()> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        let Some(FirstLine { line, rest }) = listener.read(number, &mut self.reactor) else { return Ok(()) };
        let Some(mut connection) = listener.take(number, &mut self.reactor) else { return Ok(()) };
        let admitted = self.host.admit(&line);
        let place = admitted.and_then(|(id, received)| Some((id, self.index(id)?, received)));
        let alive = |index: usize| !self.processes[index].child.is_reaped();
        let Some((id, index, received)) = place.filter(|(_, index, _)| alive(*index)) else {
            // A connection that belongs to no process is dropped, which closes it.
            self.listener.iter_mut().for_each(|listener| listener.dismiss(number));
            return Ok(());
        };
        self.processes[index].has_written = true;
        connection.push(received);
        let key = self.reactor.add(&connection, JobSource::Connection(index), WatchMode::Read)?;
        self.processes[index].connection = Some((connection, key));
        self.flush(index);
        if !rest.is_empty() {
            self.host.receive(id, &rest);
            self.act();
        }
        Ok(())
    }

    /// Returns the index of a process that has been started.
    fn index(&self, id: Proc) -> Option<usize> {
        let index = self.groups.get(id.group as usize)?.first + id.rank as usize;
        self.processes.get(index).filter(|process| process.id == id).map(|_| index)
    }

    fn add(
        &mut self,
        id: Proc,
        started: StartedProcess,
        name: &OsStr,
        streams: [Option<PipeReader>; 2],
    ) -> io::Result<()> {
        let index = self.processes.len();
        let StartedProcess { child, socket } = started;
        if self.is_verbose() {
            self.host.print(format_args!(
                "{}: started {} as process {}",
                ProcessName(id),
                display_name(name),
                child.pid()
            ));
        }
        // The process is added before it is watched, so that it is killed if it cannot be watched.
        self.processes.push(JobProcess {
            id,
            child,
            connection: None,
            streams: [None, None],
            has_written: false,
            end: None,
        });
        self.running += 1;
        self.host.started(id);
        let process = &mut self.processes[index];
        if let Some(socket) = socket {
            let key = self.reactor.add(&socket, JobSource::Connection(index), WatchMode::Read)?;
            process.connection = Some((NonBlockingStream::new(socket), key));
        }
        // A process that the process manager did not start counts as ended when its connection has ended, because its process id may be
        // wrong.
        if !process.child.is_foreign() {
            self.reactor.add(process.child.pidfd(), JobSource::Process(index), WatchMode::Read)?;
        }
        for (i, pipe) in streams.into_iter().enumerate() {
            if let Some(pipe) = pipe {
                let key = self.reactor.add(&pipe, JobSource::Output(index, i == 1), WatchMode::Read)?;
                process.streams[i] = Some((pipe, key));
            }
        }
        Ok(())
    }

    fn is_verbose(&self) -> bool {
        matches!(self.mode, JobMode::Terminal { verbose: true })
    }

    /// Reads the standard output or error of a process.
    fn read_stream(
        &mut self,
        index: usize,
        stderr: bool,
        rounds: usize,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let process = &mut self.processes[index];
        let Some((pipe, key)) = &mut process.streams[usize::from(stderr)] else { return Ok(()) };
        for _ in 0..rounds {
            match pipe.read(buffer) {
                Ok(0) => {
                    process.close_stream(stderr, &mut self.reactor);
                    return Ok(());
                }
                Ok(n) => self.host.output(process.id, stderr, &buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.reactor.mark_ready(*key);
        Ok(())
    }

    fn is_blocked(&self, index: usize) -> bool {
        self.processes[index].connection.as_ref().is_some_and(|(connection, _)| connection.is_blocked())
    }

    /// Reads from a rank at most [`MAX_READS`] times, so that the other ranks are also served.
    fn readable(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..MAX_READS {
            let process = &mut self.processes[index];
            let Some((connection, key)) = &process.connection else { return Ok(()) };
            if connection.is_blocked() {
                // Reading resumes after the rank has read its responses.
                return Ok(());
            }
            match connection.receive(buffer) {
                ReceiveResult::Nothing => return Ok(()),
                ReceiveResult::Bytes(n) => {
                    let key = *key;
                    self.processes[index].has_written = true;
                    self.host.receive(self.processes[index].id, &buffer[..n]);
                    self.act();
                    if n < buffer.len() {
                        if self.processes[index].connection.is_some() {
                            self.reactor.after_read(key, n, buffer.len());
                        }
                        return Ok(());
                    }
                }
                ReceiveResult::End => return self.hung_up(index),
            }
        }
        if let Some((_, key)) = &self.processes[index].connection {
            self.reactor.mark_ready(*key);
        }
        Ok(())
    }

    /// Reports a process that closed its connection without reading everything that the server wrote.
    fn report_unread(&mut self, index: usize) {
        let process = &self.processes[index];
        if process.connection.as_ref().is_some_and(|(connection, _)| connection.left_unread()) {
            self.host.left_unread(process.id);
        }
    }

    /// Handles the end of a rank's connection.
    fn hung_up(&mut self, index: usize) -> io::Result<()> {
        self.report_unread(index);
        self.processes[index].hang_up(&mut self.reactor);
        self.end_managers();
        let process = &self.processes[index];
        if process.child.is_foreign() {
            return self.ended(index, &mut []);
        }
        // The kernel closes a process's connection shortly before the process can be waited for. The exit status is more informative than
        // the end of the connection, and must be reported first.
        if self.host.is_joined(process.id) && is_exiting(process.child.pid()) {
            return Ok(());
        }
        let id = process.id;
        self.host.closed(id);
        self.act();
        Ok(())
    }

    /// Stops the idle process managers that processes have started. Does nothing if a process still has a connection.
    fn end_managers(&mut self) {
        if self.processes.iter().all(|process| process.connection.is_none()) {
            self.listener.iter_mut().for_each(Listener::end_idle_managers);
        }
    }

    /// Handles the end of a process.
    fn ended(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..MAX_LAST_READS {
            let process = &mut self.processes[index];
            let Some((connection, _)) = &process.connection else { break };
            let ReceiveResult::Bytes(n) = connection.receive(buffer) else { break };
            process.has_written = true;
            self.host.receive(process.id, &buffer[..n]);
            self.act();
        }
        for stderr in [false, true] {
            self.read_stream(index, stderr, MAX_LAST_READS, buffer)?;
        }
        let process = &mut self.processes[index];
        for stderr in [false, true] {
            process.close_stream(stderr, &mut self.reactor);
        }
        if process.child.is_reaped() {
            return Ok(());
        }
        self.report_unread(index);
        let process = &mut self.processes[index];
        process.hang_up(&mut self.reactor);
        self.end_managers();
        let process = &mut self.processes[index];
        // The group is killed before the process is waited for, because afterwards the group's id could be reused.
        if !process.child.is_foreign() {
            process.child.kill_group();
        }
        let end = process.child.wait();
        process.end = Some(end);
        self.running -= 1;
        let id = process.id;
        if self.is_verbose() {
            self.host.print(format_args!("{}: {}", ProcessName(id), ExitText(end)));
        }
        if !self.groups[id.group as usize].is_aborted {
            self.settle(status(end));
            // The group is aborted, because nothing else reports that a process is missing, and others may be waiting for it.
            if self.remote.is_some() && end != Exit::Code(0) && !self.processes[index].has_written {
                self.abort(id, status(end), "the command that starts this process failed");
            }
        }
        self.host.ended(id, end);
        self.host.closed(id);
        self.act();
        Ok(())
    }

    /// Carries out the server's actions.
    fn act(&mut self) {
        while let Some(action) = self.host.next_action() {
            match action {
                ServerAction::Send { to, bytes } => {
                    let Some(index) = self.index(to) else { continue };
                    let connection = self.processes[index].connection.as_mut();
                    if connection.is_some_and(|(connection, _)| connection.push(bytes)) {
                        self.unflushed.push(index);
                    }
                }
                ServerAction::Close { proc, end } => {
                    self.flush_all();
                    self.close(proc, end);
                }
                ServerAction::Spawn { group, requester: by, programs } => self.spawn(group, by, programs),
                ServerAction::Abort { group, rank: by, status, reason } => {
                    // The response to the abort is sent before the processes are killed.
                    self.flush_all();
                    self.abort(Proc { group, rank: by }, status, &reason);
                }
            }
        }
        self.flush_all();
    }

    fn flush_all(&mut self) {
        while let Some(index) = self.unflushed.pop() {
            self.flush(index);
        }
    }

    /// Writes as many bytes as a rank's socket accepts. Then watches the socket for room to write or, if everything was written, for
    /// requests.
    fn flush(&mut self, index: usize) {
        let Some((connection, key)) = &mut self.processes[index].connection else { return };
        connection.flush();
        self.reactor.set(*key, if connection.is_blocked() { WatchMode::Write } else { WatchMode::Read });
    }

    fn spawn(&mut self, group: GroupId, by: Proc, programs: Vec<SpawnProgram>) {
        let programs: Vec<_> = programs
            .into_iter()
            .map(|program| {
                let n = program.nprocs;
                (Executable::spawned(program), n)
            })
            .collect();
        let total = self.host.size(group) as usize;
        let code = match self.start(group, programs) {
            Ok(()) => 0,
            Err(error) => {
                self.host.print(format_args!("{}: spawn failed: {error}", ProcessName(by)));
                self.kill(group);
                1
            }
        };
        self.host.spawned(group, &vec![code; total]);
    }

    fn abort(&mut self, by: Proc, status: i32, reason: &str) {
        match self.index(by).and_then(|index| self.processes[index].end) {
            Some(end) => self.host.print(format_args!("{}: {reason} ({})", ProcessName(by), ExitText(end))),
            None => self.host.print(format_args!("{}: {reason}", ProcessName(by))),
        }
        self.kill(by.group);
        self.settle(status);
    }

    /// Closes a process's connection, and kills the process if `end` is true.
    fn close(&mut self, id: Proc, end: bool) {
        let Some(index) = self.index(id) else { return };
        let process = &mut self.processes[index];
        process.hang_up(&mut self.reactor);
        if end {
            process.child.kill_group();
        }
        self.end_managers();
    }

    /// Kills the processes of a group, and then closes their connections, so that no process reports a lost connection. The processes are
    /// waited for later.
    fn kill(&mut self, group: GroupId) {
        let group = &mut self.groups[group as usize];
        group.is_aborted = true;
        let processes = &mut self.processes[group.first..][..group.size];
        processes.iter().for_each(|process| process.child.kill_group());
        processes.iter_mut().for_each(|process| process.hang_up(&mut self.reactor));
    }

    fn kill_all(&mut self) {
        for group in 0..self.groups.len() {
            self.kill(group as GroupId);
        }
    }

    fn signalled(&mut self) {
        let Some(signals) = &mut self.signals else { return };
        if let Some(signal) = signals.take().into_iter().next() {
            self.host.print(format_args!("received signal {signal}; killing the job"));
            self.kill_all();
            // The sender of the signal expects this status, regardless of the earlier exits of processes.
            self.status = Some(128 + signal);
        }
    }

    /// Sets the job's status to `status` if that is its first nonzero status.
    fn settle(&mut self, status: i32) {
        if status != 0 {
            self.status.get_or_insert(status);
        }
    }
}

/// A process, formatted for messages.
struct ProcessName(Proc);

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of group {}", self.0.rank, self.0.group)
    }
}

/// The exit of a process, formatted for messages.
struct ExitText(Exit);

impl fmt::Display for ExitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Exit::Code(status) => write!(f, "exited with status {status}"),
            Exit::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

struct JobInspection<'a> {
    processes: &'a [JobProcess],
    groups: &'a [JobGroup],
}

impl JobView for JobInspection<'_> {
    fn alive(&self) -> Vec<(Proc, i32)> {
        let alive = self.processes.iter().filter(|process| !process.child.is_reaped());
        alive.map(|process| (process.id, process.child.pid().as_raw_nonzero().get())).collect()
    }

    fn has_read_all(&self, p: Proc) -> bool {
        let group = self.groups.get(p.group as usize).copied().unwrap_or_default();
        let process = self.processes.get(group.first + p.rank as usize);
        let connection = process.and_then(|process| process.connection.as_ref());
        connection.is_none_or(|(c, _)| c.unwritten() == 0 && c.unread_bytes().is_none_or(|n| n == 0))
    }

    fn connections(&self) -> HashSet<Ends> {
        let open = self.processes.iter().filter_map(|process| process.connection.as_ref());
        open.filter_map(|(connection, _)| connection.ends()).collect()
    }
}
