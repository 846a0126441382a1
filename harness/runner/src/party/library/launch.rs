//! Starts the processes that load a library, one for each rank, and reads from them.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pmi_process::agent;
use pmi_process::agent::channel::Channel;
use pmi_process::agent::listener::AgentListener;
use pmi_process::agent::protocol::{AgentOrder, Hello, LibraryReport};
use pmi_process::child::{Launch, cancel, without_launcher_variables, without_protocol_variables};
use pmi_process::connection::{NonBlockingStream, READ_SIZE, ReceiveResult, pair};
use pmi_process::observe::idle::{ControlledPeers, IdleCheck};
use pmi_process::observe::{procfs, tree};
use pmi_process::output::{LINE_MAX, LINES_MAX, Output};
use pmi_process::reactor::{Reactor, ReactorKey, WatchMode};
use pmi_process::trace::foreign::ForeignProcess;
use rustix::process::{Pid, Signal};

use super::object;
use crate::party::server::{Implementation, with_pids};
use crate::party::{Incoming, Party, SilenceMeaning};
use pmi_judge::event::{AbandonReason, Bytes, EventKind, Exit, SilenceProof};
use pmi_judge::library::api::CallArgument;
use pmi_wire::Proc;

/// The hidden command that makes the binary load a library.
pub(crate) const COMMAND: &str = "library-agent";
/// Maximum number of bytes that are read from the file that contains a process's standard error.
const STDERR_MAX: u64 = 1 << 20;
/// Maximum time between the end of a process's connection and the end of the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that can be queued for one connection.
const UNWRITTEN_MAX: usize = 8 << 20;

/// A library under test.
pub struct Library {
    /// Absolute path of the library's file.
    pub path: PathBuf,
    /// Path of this command's own binary, which also runs as the process that loads the library.
    pub binary: PathBuf,
    /// Variables that are added to the environment of the processes that load the library.
    pub env: BTreeMap<String, String>,
    /// The library's own process manager, which starts the processes. If `None`, the runner is the process manager.
    pub server: Option<Box<Implementation>>,
}

#[derive(Clone, Copy)]
enum LaunchSource {
    /// A connection or output of a rank's process.
    Rank(u32),
    /// The socket that processes started by a launcher connect to.
    AgentListener,
    /// A process that has connected but not introduced itself yet.
    PendingAgent(u64),
    /// The launcher's output; `true` for standard error.
    LauncherOutput(bool),
    Launcher,
}

#[derive(Default)]
struct LaunchedProcess {
    /// The process, if the runner has started it; `None` if a launcher has started it, or if it never connected.
    launch: Option<Launch>,
    control: Option<(Channel, ReactorKey)>,
    /// The runner's end of the process's PMI_FD.
    pmi: Option<(NonBlockingStream, ReactorKey)>,
    output: Output,
    /// The file that receives the standard error of a process that a launcher has started. The file is read after the process has ended.
    stderr: Option<File>,
    /// A handle to the process, through which its exit status or signal is detected.
    foreign_process: Option<ForeignProcess>,
    /// The name of the function that was called last.
    function: String,
    /// True if the process has been ordered to exit.
    dismissed: bool,
    gone: bool,
}

/// The processes that load the library in a scenario. The remaining processes are terminated when this value is dropped.
pub(crate) struct LibraryParty<'a> {
    library: &'a Library,
    /// The reactor; `None` before the first process is started.
    reactor: Option<Reactor<LaunchSource>>,
    processes: BTreeMap<u32, LaunchedProcess>,
    queue: VecDeque<EventKind>,
    interrupted: &'a AtomicBool,
    job: Option<LauncherJob>,
}

struct LauncherJob {
    launcher: Launch,
    /// The shell command that ends the job, if one is needed.
    cancel: Option<String>,
    ranks: u32,
    agent_listener: AgentListener,
    output: Output,
    pids: HashSet<i32>,
    nodes: BTreeSet<String>,
    command: Vec<String>,
}

/// Returns a mark that is unique among the processes of all runs.
fn next_mark() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("library-{}-{count}", std::process::id())
}

/// Returns the reactor, creating it on first use.
fn ready(reactor: &mut Option<Reactor<LaunchSource>>) -> io::Result<&mut Reactor<LaunchSource>> {
    match reactor {
        Some(reactor) => Ok(reactor),
        None => Ok(reactor.insert(Reactor::new()?)),
    }
}

impl<'a> LibraryParty<'a> {
    /// Reads the library's file. If the library has its own process manager, also starts the processes of all ranks, and waits until they
    /// have connected or the time limit expires.
    pub(crate) fn launch(
        library: &'a Library,
        ranks: u32,
        start: Duration,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let (list, queue) = (BTreeMap::new(), VecDeque::new());
        let mut party = Self { library, reactor: None, processes: list, queue, interrupted, job: None };
        match object::read(&library.path) {
            Ok(file) => party.queue.push_back(file),
            Err(error) => party.give_up(error.to_string()),
        }
        if let Some(server) = &library.server {
            match party.start_all(ranks, server) {
                Ok(()) => party.await_all(ranks, Instant::now() + start),
                Err(error) => party.give_up(error.to_string()),
            }
        }
        party
    }

    /// Waits until the processes of all ranks have connected, the deadline has passed, or the run is interrupted.
    fn await_all(&mut self, ranks: u32, deadline: Instant) {
        let is_open = |party: &Self| (party.processes.len() as u32) < ranks && Instant::now() < deadline;
        while is_open(self) && !self.interrupted.load(Ordering::Relaxed) {
            self.poll(Duration::from_millis(20));
        }
    }

    /// Returns the command that has started the processes: the launcher's command, or else the library's path.
    pub(crate) fn command(&self) -> Vec<String> {
        match &self.job {
            Some(job) => job.command.clone(),
            None => vec![self.library.path.display().to_string()],
        }
    }

    /// Returns the nodes where a launcher has placed the processes that have connected.
    pub(crate) fn nodes(&self) -> BTreeSet<&str> {
        self.job.iter().flat_map(|job| &job.nodes).map(String::as_str).collect()
    }

    fn give_up(&mut self, why: String) {
        self.queue.push_back(EventKind::Abandoned(AbandonReason::Unplayable(why)));
    }

    /// Starts the process of a rank. The variable PMI_FD contains the number of the process's descriptor.
    fn start_one(&mut self, rank: u32, env: &BTreeMap<String, String>) -> io::Result<()> {
        let library = self.library;
        let reactor = ready(&mut self.reactor)?;
        let (control, theirs) = pair()?;
        let (pmi, their_pmi) = pair()?;
        let mut command = Command::new(&library.binary);
        pmi_process::prepare(&mut command);
        command.arg(COMMAND).arg(&library.path).stdin(Stdio::from(theirs)).process_group(0);
        without_protocol_variables(&mut command, true);
        without_launcher_variables(&mut command);
        command.envs(&library.env).envs(env);
        let mut output = Output::of(&mut command)?;
        let number = env.get("PMI_FD").and_then(|n| n.parse::<i32>().ok()).filter(|n| *n > 2);
        let launch = Launch::start_with(command, number.map(|number| (their_pmi, number)), next_mark())?;
        let source = LaunchSource::Rank(rank);
        reactor.add(launch.child.pidfd(), source, WatchMode::Read)?;
        output.watch(reactor, |_| source)?;
        let control = Channel::new(UnixStream::from(control));
        let control_key = reactor.add(&control, source, WatchMode::Read)?;
        let pmi = match number {
            Some(_) => {
                let key = reactor.add(&pmi, source, WatchMode::Read)?;
                Some((NonBlockingStream::new(pmi), key))
            }
            None => None,
        };
        let control = Some((control, control_key));
        let process =
            LaunchedProcess { launch: Some(launch), control, pmi, output, ..LaunchedProcess::default() };
        self.processes.insert(rank, process);
        Ok(())
    }

    /// Starts the processes of all ranks through a process manager.
    fn start_all(&mut self, ranks: u32, server: &Implementation) -> io::Result<()> {
        let library = self.library;
        let reactor = ready(&mut self.reactor)?;
        let listener = AgentListener::open_on_disk()?;
        listener.watch(reactor, LaunchSource::AgentListener)?;
        std::os::unix::fs::symlink(&library.path, listener.path().join(agent::library::LIBRARY))?;
        let agent = listener.make_agent(&library.binary, agent::library::NAME, 0)?;
        let name = listener.name();
        let words = server.command(ranks, 1, &[agent.to_string_lossy().into_owned()], &name);
        let mut command = Command::new(&words[0]);
        pmi_process::prepare(&mut command);
        command.args(&words[1..]).stdin(Stdio::null()).process_group(0);
        without_protocol_variables(&mut command, false);
        command.env(agent::PATH_VARIABLE, &agent).envs(&server.env).envs(&library.env);
        let mut output = Output::of(&mut command)?;
        output.watch(reactor, LaunchSource::LauncherOutput)?;
        let launcher = Launch::start(command, listener.mark())
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", words[0])))?;
        reactor.add(launcher.child.pidfd(), LaunchSource::Launcher, WatchMode::Read)?;
        let cancel = server.cancel(&name);
        let (pids, nodes) = (HashSet::new(), BTreeSet::new());
        self.job = Some(LauncherJob {
            launcher,
            cancel,
            ranks,
            agent_listener: listener,
            output,
            pids,
            nodes,
            command: words,
        });
        Ok(())
    }

    /// Sends an order to a process. An order to call a function may contain long strings, so the process may receive it in several reads.
    /// The process reads the next part when it is not executing a call.
    fn order(&mut self, rank: u32, order: &AgentOrder) {
        let Some((control, key)) = self.processes.get_mut(&rank).and_then(|p| p.control.as_mut()) else {
            return;
        };
        // If the process has ended, the order is lost, and the end of the process is reported separately.
        control.send(order);
        if let Some(reactor) = &mut self.reactor {
            reactor.watch_writes(*key, control.is_blocked());
        }
    }

    /// Sends a process its last order: to exit, or to kill itself.
    fn dismiss(&mut self, rank: u32, order: &AgentOrder) {
        if let Some(process) = self.processes.get_mut(&rank) {
            process.dismissed = true;
        }
        self.order(rank, order);
    }

    /// Returns whether the process can continue only after an action of the runner.
    fn is_idle(&mut self, rank: u32) -> bool {
        let Some(process) = self.processes.get(&rank) else { return true };
        let is_written = process.pmi.as_ref().is_none_or(|(pmi, _)| pmi.unwritten() == 0);
        if process.gone || !is_written {
            return process.gone;
        }
        let Some(pid) = process.launch.as_ref().map(Launch::pid) else { return false };
        let pids = HashSet::from([procfs::own_pid(), pid]);
        let peers = ControlledPeers { pids, ..ControlledPeers::default() };
        if !IdleCheck::default().all_waiting(|| Some(vec![pid]), &peers, true) {
            return false;
        }
        self.poll(Duration::ZERO);
        self.queue.is_empty()
    }

    fn poll(&mut self, wait: Duration) {
        let Some(reactor) = &mut self.reactor else { return std::thread::sleep(wait) };
        let Self { processes: list, queue, job, .. } = self;
        for ready in reactor.wait(Some(wait)).unwrap_or_default() {
            match (ready.source, &mut *job) {
                (LaunchSource::Rank(rank), _) => {
                    // The connections of a dying process close before its exit is known. In the meantime, the launcher may kill other
                    // processes or answer their requests. Therefore, the connections of all dying processes are read, and the processes
                    // that the launcher killed are reported last.
                    let dying = list.iter().filter(|(other, process)| **other != rank && process.is_dying());
                    let mut all = Vec::new();
                    for rank in dying.map(|(rank, _)| *rank).chain([rank]).collect::<Vec<_>>() {
                        if let Some(process) = list.get_mut(&rank).filter(|process| !process.gone) {
                            let mut events = Vec::new();
                            process.read(Proc { group: 0, rank }, reactor, &mut |kind| events.push(kind));
                            all.push(events);
                        }
                    }
                    all.sort_by_key(|events| {
                        matches!(events.last(), Some(EventKind::Ended { ours: false, .. }))
                    });
                    queue.extend(all.into_iter().flatten());
                }
                (_, None) => {}
                (LaunchSource::AgentListener, Some(job)) => {
                    job.agent_listener.accept(reactor, LaunchSource::PendingAgent)
                }
                (LaunchSource::PendingAgent(id), Some(job)) => job.greet(id, list, reactor),
                (LaunchSource::LauncherOutput(stderr), Some(job)) => {
                    let mut queue_line =
                        |line| queue.push_back(EventKind::Output { proc: None, stderr, line });
                    job.output.read(stderr, reactor, &mut queue_line);
                }
                (LaunchSource::Launcher, Some(job)) => {
                    if job.launcher.child.try_wait().is_none() {
                        continue;
                    }
                    for stderr in [false, true] {
                        let mut queue_line =
                            |line| queue.push_back(EventKind::Output { proc: None, stderr, line });
                        job.output.read_rest(stderr, reactor, &mut queue_line);
                    }
                    job.agent_listener.accept(reactor, LaunchSource::PendingAgent);
                    job.agent_listener.pending().into_iter().for_each(|id| job.greet(id, list, reactor));
                    // The launcher has ended, so ranks that have not connected yet will never connect.
                    for rank in 0..job.ranks {
                        let process = list.entry(rank).or_default();
                        if process.control.is_none() && !process.gone {
                            process.read(Proc { group: 0, rank }, reactor, &mut |kind| queue.push_back(kind));
                        }
                    }
                }
            }
        }
    }
}

impl Party for LibraryParty<'_> {
    fn start(&mut self, proc: Proc, env: BTreeMap<String, String>) {
        if self.library.server.is_some() {
            return;
        }
        match self.start_one(proc.rank, &env) {
            Ok(()) => self.queue.push_back(EventKind::Started { proc, env, args: Vec::new(), bad_fd: None }),
            Err(e) => self.give_up(format!("cannot start the process of rank {}: {e}", proc.rank)),
        }
    }

    fn call(&mut self, proc: Proc, function: &str, arguments: Vec<CallArgument>) {
        if let Some(process) = self.processes.get_mut(&proc.rank) {
            function.clone_into(&mut process.function);
        }
        self.order(proc.rank, &AgentOrder::Call { function: function.to_owned(), arguments });
    }

    fn send(&mut self, to: Proc, bytes: &[u8]) {
        let Some((pmi, key)) = self.processes.get_mut(&to.rank).and_then(|p| p.pmi.as_mut()) else { return };
        if pmi.unwritten() + bytes.len() <= UNWRITTEN_MAX {
            pmi.push(bytes.to_vec());
            pmi.flush();
            if let Some(reactor) = &mut self.reactor {
                reactor.watch_writes(*key, pmi.is_blocked());
            }
        }
    }

    fn close(&mut self, proc: Proc) {
        let pmi = self.processes.get_mut(&proc.rank).and_then(|process| process.pmi.take());
        if let (Some((pmi, key)), Some(reactor)) = (pmi, &mut self.reactor) {
            reactor.remove(key);
            pmi.shut_down();
        }
    }

    fn exit(&mut self, proc: Proc, status: u8) {
        self.dismiss(proc.rank, &AgentOrder::Exit(status));
    }

    fn kill(&mut self, proc: Proc, signal: u8) {
        self.dismiss(proc.rank, &AgentOrder::Kill(signal));
    }

    /// Waits for the next event, until the deadline. The wait for a response is not extended, because a library responds immediately or
    /// never.
    fn next(&mut self, deadline: Instant, _: SilenceMeaning) -> Incoming {
        let mut slice = Duration::from_micros(500);
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Incoming::Event(event);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Incoming::Interrupted;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.poll(slice.min(left));
            if !self.queue.is_empty() {
                continue;
            }
            if left.is_zero() {
                return Incoming::Nothing(SilenceProof::Timeout);
            }
            // The state of a foreign process manager is unknown, so only the deadline ends such a wait.
            let ranks: Vec<u32> = self.processes.keys().copied().collect();
            if self.job.is_none() && ranks.into_iter().all(|rank| self.is_idle(rank)) {
                return Incoming::Nothing(SilenceProof::Idle);
            }
            slice = (slice * 2).min(Duration::from_millis(20));
        }
    }

    /// Returns a path that does not exist. The programs that a library spawns do not report to the runner, so no real agent is needed.
    fn agent(&mut self, group: u32) -> Vec<u8> {
        format!("/library/agent-{group}").into_bytes()
    }
}

impl LaunchedProcess {
    /// Reads all available data. The library's messages are reported before the return of its call.
    fn read(&mut self, proc: Proc, reactor: &mut Reactor<LaunchSource>, report: &mut dyn FnMut(EventKind)) {
        if let Some((pmi, key)) = &mut self.pmi {
            pmi.flush();
            reactor.watch_writes(*key, pmi.is_blocked());
        }
        let exit = self.ended();
        // Read the reports first but forward them last: if a report says that a call has returned, all messages that the library sent in
        // the call can be read now, and must be forwarded before the report.
        let reports = self.read_reports(proc, reactor);
        let exit = exit.or_else(|| self.ended());
        self.read_pmi(proc, exit.is_some(), reactor, report);
        for stderr in [false, true] {
            let mut report_line = |line| report(EventKind::Output { proc: Some(proc), stderr, line });
            match exit {
                Some(_) => self.output.read_rest(stderr, reactor, &mut report_line),
                None => self.output.read(stderr, reactor, &mut report_line),
            }
        }
        reports.into_iter().for_each(&mut *report);
        if let Some(exit) = exit {
            if let Some(file) = self.stderr.take() {
                let mut text = Vec::new();
                let _ = file.take(STDERR_MAX).read_to_end(&mut text);
                for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).take(LINES_MAX) {
                    let line = Bytes(line[..line.len().min(LINE_MAX)].to_vec());
                    report(EventKind::Output { proc: Some(proc), stderr: true, line });
                }
            }
            self.gone = true;
            let control = self.control.take().map(|(_, key)| key);
            let pmi = self.pmi.take().map(|(_, key)| key);
            control.into_iter().chain(pmi).for_each(|key| reactor.remove(key));
            report(match exit {
                Some(exit) => EventKind::Exited { proc, exit },
                None => EventKind::Ended { proc, ours: self.dismissed },
            });
        }
    }

    /// Returns whether this process, which a launcher has started, has died. Waits up to [`EXIT_TIMEOUT`] for a process that is exiting.
    fn is_dying(&self) -> bool {
        let is_exiting =
            |process: &ForeignProcess| Pid::from_raw(process.pid()).is_some_and(procfs::is_exiting);
        self.foreign_process.as_ref().filter(|_| !self.gone).is_some_and(|process| {
            process.has_ended() || is_exiting(process) && process.ends_within(EXIT_TIMEOUT)
        })
    }

    /// Returns the exit of the process, or `None` if the process has not ended. The inner value is `None` if the exit is unknown.
    fn ended(&mut self) -> Option<Option<Exit>> {
        match &mut self.launch {
            Some(launch) => launch.child.try_wait().map(Some),
            None => self.control.is_none().then(|| self.foreign_process.as_ref().and_then(own_exit)),
        }
    }

    fn read_reports(&mut self, proc: Proc, reactor: &mut Reactor<LaunchSource>) -> Vec<EventKind> {
        let mut events = Vec::new();
        let Some((control, key)) = &mut self.control else { return events };
        control.flush();
        reactor.watch_writes(*key, control.is_blocked());
        control.receive();
        while let Some(report) = control.next() {
            match report {
                Ok(LibraryReport::Loaded(error)) => events.push(EventKind::Loaded { proc, error }),
                Ok(LibraryReport::Returned(returned)) => {
                    events.push(EventKind::Returned { proc, function: self.function.clone(), returned });
                }
                Ok(LibraryReport::NotCalled { missing: true, why }) => {
                    events.push(EventKind::NotCalled { proc, why })
                }
                Ok(LibraryReport::NotCalled { missing: false, why }) => {
                    events.push(EventKind::Abandoned(AbandonReason::Mistake(why)));
                }
                // A library may write to the connection to the runner, so an unreadable report is ignored.
                Err(_) => {}
            }
        }
        if control.is_over() {
            reactor.remove(*key);
            self.control = None;
        }
        events
    }

    fn read_pmi(
        &mut self,
        proc: Proc,
        all: bool,
        reactor: &mut Reactor<LaunchSource>,
        report: &mut dyn FnMut(EventKind),
    ) {
        while let Some((pmi, key)) = &self.pmi {
            match pmi.receive_chunk() {
                ReceiveResult::Nothing => return,
                ReceiveResult::Bytes(bytes) => {
                    let n = bytes.len();
                    report(EventKind::ToServer { proc, bytes: Bytes(bytes) });
                    // Return after one read, because a library that never stops sending must not keep the runner busy.
                    if !all {
                        return reactor.after_read(*key, n, READ_SIZE);
                    }
                }
                ReceiveResult::End => {
                    reactor.remove(*key);
                    self.pmi = None;
                    report(EventKind::ClosedByClient { proc });
                }
            }
        }
    }
}

impl LauncherJob {
    /// Handles the introduction of a process, and assigns a rank to the process.
    fn greet(
        &mut self,
        id: u64,
        list: &mut BTreeMap<u32, LaunchedProcess>,
        reactor: &mut Reactor<LaunchSource>,
    ) {
        let Some((Hello::Library { rank, pid, node }, control)) =
            self.agent_listener.receive_hello(id, reactor)
        else {
            return;
        };
        self.pids.insert(pid);
        self.nodes.insert(node);
        let free = |rank: &u32| *rank < self.ranks && !list.contains_key(rank);
        let Some(rank) = rank.filter(free).or_else(|| (0..self.ranks).find(free)) else { return };
        // If this fails, standard error is not observed.
        let stderr = File::open(stderr_path(self.agent_listener.path(), pid)).ok();
        if let Ok(key) = reactor.add(&control, LaunchSource::Rank(rank), WatchMode::Read) {
            // Messages after the introduction may already be in the channel's buffer, which the reactor does not watch.
            reactor.mark_ready(key);
            let control = Some((control, key));
            list.insert(
                rank,
                LaunchedProcess {
                    control,
                    stderr,
                    foreign_process: ForeignProcess::new(pid),
                    ..LaunchedProcess::default()
                },
            );
        }
    }

    /// Waits up to `wait` for the launcher to end, and reads its output. Returns whether the launcher has ended.
    fn ends_within(&mut self, wait: Duration, reactor: &mut Reactor<LaunchSource>) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            if self.launcher.child.try_wait().is_some() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            for ready in reactor.wait(Some(left)).unwrap_or_default() {
                if let LaunchSource::LauncherOutput(stderr) = ready.source {
                    self.output.read(stderr, reactor, &mut |_| ());
                }
            }
        }
    }
}

/// Returns the exit of a process that a launcher has started, unless the launcher may have killed the process.
fn own_exit(process: &ForeignProcess) -> Option<Exit> {
    // Wait for the end here, because the kernel closes the connection to the process before the exit is known.
    process.ends_within(EXIT_TIMEOUT);
    process.exit().filter(|exit| match exit {
        Exit::Code(_) => true,
        Exit::Signal(signal) => ForeignProcess::is_crash(*signal),
    })
}

fn stderr_path(scratch: &Path, pid: i32) -> PathBuf {
    scratch.join(agent::library::stderr_name(pid as u32))
}

impl Drop for LibraryParty<'_> {
    fn drop(&mut self) {
        // Everything that the library has started is killed together with the library's process.
        for launch in self.processes.values_mut().filter_map(|process| process.launch.as_mut()) {
            launch.end(&HashSet::new());
        }
        // A launcher may have started processes that the runner cannot kill, through a daemon or on another machine. The launcher is
        // therefore first given time to end the job.
        for rank in self.processes.keys().copied().collect::<Vec<_>>() {
            self.order(rank, &AgentOrder::Exit(0));
        }
        if let (Some(job), Some(reactor)) = (&mut self.job, &mut self.reactor) {
            if !job.ends_within(Duration::from_millis(500), reactor) {
                let mut pids = tree::of_launch(job.launcher.pid(), &job.pids);
                pids.push(job.launcher.pid());
                job.launcher.child.signal(Signal::TERM);
                job.ends_within(Duration::from_secs(2), reactor);
                if let Some(command) = job.cancel.take() {
                    cancel(&with_pids(&command, &pids), format!("{}-cancel", job.agent_listener.mark()));
                }
            }
            job.launcher.end(&job.pids);
        }
    }
}
