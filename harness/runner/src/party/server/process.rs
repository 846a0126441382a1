//! An implementation that runs in real processes, with one launch for each scenario.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::implementation::{Implementation, PIDS_PLACEHOLDER, for_singleton, with_pids};
use super::singleton::Singleton;
use crate::party::proxy::{UpstreamCommand, script};
use crate::party::{Incoming, Party, SilenceMeaning};
use pmi_judge::event::{AbandonReason, Bytes, EventKind, Exit, JobTermination, SilenceProof};
use pmi_process::Memory;
use pmi_process::agent;
use pmi_process::agent::channel::Channel;
use pmi_process::agent::listener::AgentListener;
use pmi_process::agent::network_listener::ListenOptions;
use pmi_process::agent::protocol::{self, AgentOrder, Hello, Namespaces, RankHello, SingletonDialogue};
use pmi_process::agent::quick::QuickAgent;
use pmi_process::agent::relay;
use pmi_process::child::{Launch, cancel, without_protocol_variables};
use pmi_process::connection::{NonBlockingStream, READ_SIZE, ReceiveResult};
use pmi_process::observe::idle::{ControlledPeers, IdleCheck, PollCount};
use pmi_process::observe::{procfs, tcp, tree};
use pmi_process::output::Output;
use pmi_process::reactor::{Reactor, ReactorKey, Ready, WatchMode};
use pmi_process::slots::{Slot, Slots};
use pmi_process::trace::foreign::{self, ForeignProcess, MAX_DYING_TIME};
use pmi_process::trace::trace_request;
use pmi_wire::port::{self, Greeting};
use pmi_wire::{ConnectionMethod, Proc};
use rustix::process::{Pid, Signal, kill_process};

/// Maximum number of bytes that can be queued for one connection.
const UNWRITTEN_MAX: usize = 8 << 20;
/// The required duration of proven idleness if a response is expected. The server may depend on a process that is not among its descendants
/// and is therefore not observed.
const IDLE_TIME: Duration = Duration::from_millis(150);
/// The required duration of idleness if the server leaves bytes unread. The server may be waiting for something else, such as the rest of
/// another rank's message.
const STARVED_IDLE_TIME: Duration = Duration::from_millis(400);
/// Minimum time between the two checks that find no running process of the server, if a response is due. On a loaded machine, a process may
/// be woken shortly after a single check.
const MIN_CHECK_GAP: Duration = Duration::from_millis(20);
/// Number of polls after which a server that polls without responding counts as silent. One of the polls may have begun before the runner
/// wrote.
const REQUIRED_POLLS: u64 = 3;
/// Minimum duration of a polling server's silence, as a multiple of the server's slowest response time.
const ANSWER_TIME_FACTOR: u32 = 10;

/// Maximum time for a launcher to end after SIGTERM. The launcher may wait for its own children in turn.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// Time before the first check of an expected silence.
const FIRST_CHECK_DELAY: Duration = Duration::from_micros(100);
/// Time before the first check if a response is due. Most servers have answered by then, and a check takes CPU time from them.
const ANSWER_CHECK_DELAY: Duration = Duration::from_millis(1);
/// Maximum interval between checks. The interval doubles after each check, at most `MAX_DOUBLINGS` times.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_DOUBLINGS: u32 = 8;
/// Duration of the silence after which a server counts as waiting while processes start or exit.
const BUSY_SILENCE: Duration = Duration::from_millis(50);
/// Idle time of a server after which another launch may start, even if the idleness proves nothing yet.
const YIELD_TIME: Duration = Duration::from_millis(8);
/// Maximum time that an action waits for the server to read the message that another rank has just written.
const READ_WAIT: Duration = Duration::from_millis(250);
/// The shorter wait that replaces [`READ_WAIT`] after the server has left bytes unread for that long.
const SHORT_READ_WAIT: Duration = Duration::from_millis(20);

/// The environment that all launches of a run share.
pub struct LaunchEnvironment {
    /// The path of this binary.
    pub binary: PathBuf,
    /// The agent: this binary, or the smaller program next to it, which starts faster.
    pub agent: PathBuf,
    /// The quick agent, if this machine supports it. It is created for the first launch that can use it.
    quick_agent: OnceLock<Option<QuickAgent>>,
    /// True if the kernel reports the exits of processes that are not children of the runner (Linux 6.15 and later).
    pub kernel_reports_exits: bool,
    /// The address for relayed connections, if the processes run where they cannot pass their connections to the runner.
    pub listen: Option<ListenOptions>,
    /// A flag that is set when the run must end immediately.
    pub interrupted: Arc<AtomicBool>,
    /// The slots for concurrent launches.
    pub slots: Arc<Slots>,
}

impl LaunchEnvironment {
    /// Creates the environment of a run by this program. `jobs` is the number of concurrent launches, and `interrupted` requests the end of
    /// the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the program's own file cannot be found.
    pub fn new(interrupted: Arc<AtomicBool>, jobs: usize) -> io::Result<Self> {
        let binary = std::env::current_exe().map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot find pmi-conform's own executable, which also serves as the agent: {e}"),
            )
        })?;
        let agent = agent::program(&binary, agent::rank::NAME);
        let foreign_deaths_are_known = foreign::kernel_reports_exits(&agent);
        let slots = Slots::new(jobs);
        let quick = OnceLock::new();
        Ok(Self {
            binary,
            agent,
            quick_agent: quick,
            kernel_reports_exits: foreign_deaths_are_known,
            listen: None,
            interrupted,
            slots,
        })
    }

    /// Returns an environment for `jobs` jobs of another implementation on this host, in addition to those of the implementation under
    /// test. The jobs end with the run.
    pub(crate) fn for_other_implementation(&self, jobs: usize) -> Self {
        Self {
            binary: self.binary.clone(),
            agent: self.agent.clone(),
            quick_agent: OnceLock::new(),
            kernel_reports_exits: self.kernel_reports_exits,
            listen: None,
            interrupted: Arc::clone(&self.interrupted),
            slots: Slots::new(jobs),
        }
    }
}

#[derive(Clone, Copy)]
enum ServerSource {
    /// The socket that agents connect to.
    AgentListener,
    /// An agent that has connected but not introduced itself yet.
    PendingAgent(u64),
    /// The connection to an agent.
    Control(Proc),
    /// The PMI_FD of a process.
    Pmi(Proc),
    Upstream,
    /// The launcher's output; `true` for standard error.
    Output(bool),
    Launcher,
}

/// The runner's end of a process's PMI_FD.
struct PmiConnection {
    connection: NonBlockingStream,
    /// The server's process that holds the other end, if known.
    peer: Option<i32>,
    /// The reactor's key of the connection; `None` while the process is stopped, and after the server has ended the connection.
    key: Option<ReactorKey>,
}

struct RankState {
    /// The process id of the agent; `None` if the agent is on another machine, because its process id is not valid on this one.
    pid: Option<Pid>,
    control: Channel,
    /// The reactor's key of the connection to the agent; `None` after that connection, and thus the process, has ended.
    control_key: Option<ReactorKey>,
    /// The PMI_FD of the process; `None` if the connection is closed, was never usable, or is relayed.
    pmi: Option<PmiConnection>,
    /// The connection of the process, if the agent keeps it and relays the bytes.
    relayed: Option<RelayedConnection>,
    exit_ordered: bool,
}

impl RankState {
    fn is_gone(&self) -> bool {
        self.control_key.is_none()
    }

    /// Removes and returns the runner's end of the connection. The connection is closed when the result is dropped, as if the process had
    /// closed it. A wrapper between the process manager and the agent may still hold the connection open.
    fn close(&mut self, reactor: &mut Reactor<ServerSource>) -> Option<NonBlockingStream> {
        self.relayed.iter_mut().for_each(|relayed| relayed.is_open_here = false);
        let PmiConnection { connection, key, .. } = self.pmi.take()?;
        key.into_iter().for_each(|key| reactor.remove(key));
        Some(connection)
    }
}

/// A connection whose bytes the agent relays.
struct RelayedConnection {
    /// True if neither side has closed the connection.
    open: bool,
    /// True if the runner has not closed the connection.
    is_open_here: bool,
    /// Number of write and close orders that were sent.
    ordered: u64,
    /// Number of write and close orders that the agent has reported as carried out.
    executed_orders: u64,
    /// The machine and namespaces of the process.
    location: Namespaces,
}

/// A launched implementation.
pub struct ServerParty {
    reactor: Reactor<ServerSource>,
    agent_listener: AgentListener,
    agent: PathBuf,
    quick_agent: Option<PathBuf>,
    interrupted: Arc<AtomicBool>,
    ranks: HashMap<Proc, RankState>,
    /// Connections to the port in PMI_PORT that belong to no process.
    stray_connections: HashMap<Proc, PmiConnection>,
    /// The stopped parent of a process (`P: pause parent`).
    stopped_parent: Option<Pid>,
    /// The kind of connection that the implementation's processes must use.
    connection_method: ConnectionMethod,
    /// The address in the PMI_PORT of the first process that has this variable.
    port: Option<SocketAddr>,
    /// The process that the server must serve without having started it. The process is killed when the launch ends.
    _singleton: Option<Singleton>,
    /// The connection to `hydra-upstream`, which replaces a proxy's launcher, if a proxy is judged. The reactor's key is `None` after the
    /// connection has ended.
    upstream: Option<(Channel, Option<ReactorKey>)>,
    is_proxy: bool,
    /// Requests that the upstream leaves to the scenario.
    hold: Vec<String>,
    expected_ranks: u32,
    launcher: Launch,
    /// The shell command that ends the job, if one is needed.
    cancel: Option<String>,
    /// True if the remaining processes have been terminated.
    ended: bool,
    /// True if SIGALRM may make the server act. If so, a process that catches SIGALRM does not count as waiting.
    alarms: bool,
    /// File name of the launcher's program.
    program: String,
    exit: Option<Exit>,
    output: Output,
    queue: VecDeque<EventKind>,
    agents: HashSet<i32>,
    /// The server's processes at the other end of the runner's connections.
    peers: BTreeSet<i32>,
    /// The processes in `peers` and their ancestors below the launched command, if the kernel reports their exits.
    deaths: Option<Vec<ForeignProcess>>,
    /// Names and signals of the killed processes at the other end of relayed connections, by location and process id.
    remote_deaths: HashMap<(String, i32), (String, i32)>,
    idle: IdleCheck,
    polls: PollCount,
    /// The time of the last event when the current count of polls began; `None` if no count has begun.
    polls_since: Option<Instant>,
    /// The longest time that the server has taken to respond.
    slowest_response: Duration,
    quiet_since: Instant,
    silence_times: SilenceTimes,
    /// True if the server left bytes unread during a proven silence, and no later event could have made it continue.
    waits_elsewhere: bool,
    /// The process to whose connection the runner last wrote, and the time of that write.
    last_write: Option<(Proc, Instant)>,
    /// Maximum time that the next action waits for the server to read the last written bytes.
    read_wait: Duration,
    /// True if a rank's action waits until the server has read the bytes that another rank has just written.
    ordered_actions: bool,
    exit_reported: bool,
    /// The slot of this launch, which is released after everything else has ended.
    slot: Slot,
}

/// The conditions under which silence counts as proven.
#[derive(Debug, Clone, Copy)]
pub struct SilenceTimes {
    /// Required duration of proven idleness, if a response is expected and the server has read everything.
    pub idle: Duration,
    /// Required duration of proven idleness, if the server leaves bytes unread.
    pub starved: Duration,
    /// Number of times that a polling server must have polled.
    pub rounds: u64,
    /// True if polling proves silence even while a response is due.
    pub accepts_polls: bool,
}

impl Default for SilenceTimes {
    fn default() -> Self {
        Self { idle: IDLE_TIME, starved: STARVED_IDLE_TIME, rounds: REQUIRED_POLLS, accepts_polls: false }
    }
}

impl ServerParty {
    /// Starts the implementation with the agent as its program. Returns the launched implementation and the command line. If the
    /// implementation must connect to a process that it has not started, `start` is the maximum time until it has connected.
    ///
    /// # Errors
    ///
    /// Returns an error if the scratch folder or the socket cannot be created, the command cannot be started, or the run must end
    /// immediately.
    pub fn launch(
        implementation: &Implementation,
        ranks: u32,
        nodes: u32,
        start: Duration,
        environment: &LaunchEnvironment,
    ) -> io::Result<(Self, Vec<String>)> {
        let slot = environment.slots.take(&environment.interrupted)?;
        let mut reactor = Reactor::new()?;
        let listener = AgentListener::open_for(environment.listen.as_ref())?;
        listener.watch(&mut reactor, ServerSource::AgentListener)?;
        // The quick agent can pass on only the descriptor that PMI_FD names.
        let is_enough =
            implementation.connection_method == ConnectionMethod::Fd && environment.listen.is_none();
        let quick = is_enough.then(|| environment.quick_agent.get_or_init(QuickAgent::write).as_ref());
        let quick = quick.flatten().map(QuickAgent::path);
        let agent = listener.make_rank(&environment.agent, quick.as_deref(), 0)?;
        let job = listener.name();
        let mut words = implementation.command(ranks, nodes, &listener.command(&agent), &job);
        let singleton = (implementation.connection_method == ConnectionMethod::Singleton)
            .then(|| Singleton::start(&agent, &listener.mark(), start))
            .transpose()?;
        if let Some((port, pid)) = singleton.as_ref().map(Singleton::placeholders) {
            for_singleton(&mut words, port, pid);
        }
        let mut command = Command::new(&words[0]);
        pmi_process::prepare(&mut command);
        command.args(&words[1..]).stdin(Stdio::null()).process_group(0);
        let mut output = Output::of(&mut command)?;
        output.watch(&mut reactor, ServerSource::Output)?;
        // Variables of an outer process manager must not be attributed to the implementation.
        without_protocol_variables(&mut command, false);
        command.env(agent::PATH_VARIABLE, &agent).envs(&implementation.env);
        if let Some(way) = listener.route() {
            // Spawned processes get the runner's address from a variable, because the runner does not control their arguments.
            command.env(relay::VARIABLE, way.to_string());
        }
        let launcher = Launch::start(command, listener.mark())
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", words[0])))?;
        reactor.add(launcher.child.pidfd(), ServerSource::Launcher, WatchMode::Read)?;
        let party = Self {
            reactor,
            agent_listener: listener,
            agent: environment.agent.clone(),
            quick_agent: quick,
            interrupted: Arc::clone(&environment.interrupted),
            ranks: HashMap::new(),
            stray_connections: HashMap::new(),
            stopped_parent: None,
            connection_method: implementation.connection_method,
            port: None,
            _singleton: singleton,
            upstream: None,
            is_proxy: implementation.has_upstream(),
            hold: Vec::new(),
            expected_ranks: ranks,
            launcher,
            cancel: implementation.cancel(&job),
            ended: false,
            alarms: implementation.uses_alarms,
            program: implementation.program(),
            exit: None,
            output,
            queue: VecDeque::new(),
            agents: HashSet::new(),
            peers: BTreeSet::new(),
            deaths: environment.kernel_reports_exits.then(Vec::new),
            remote_deaths: HashMap::new(),
            idle: IdleCheck::default(),
            polls: PollCount::default(),
            polls_since: None,
            slowest_response: Duration::ZERO,
            quiet_since: Instant::now(),
            silence_times: SilenceTimes::default(),
            waits_elsewhere: false,
            last_write: None,
            read_wait: READ_WAIT,
            ordered_actions: true,
            exit_reported: false,
            slot,
        };
        Ok((party, words))
    }

    /// Sets the conditions under which silence counts as proven. A caller that repeats important runs can use weaker conditions.
    pub fn set_silence_times(&mut self, silence_times: SilenceTimes) {
        self.silence_times = silence_times;
    }

    /// Sets whether a rank's actions wait until the server has read the bytes that another rank has just written.
    pub fn set_in_turn(&mut self, in_turn: bool) {
        self.ordered_actions = in_turn;
    }

    /// Returns the names and signals of the killed processes at the other end of the ranks' connections.
    pub fn deaths(&self) -> Vec<(String, i32)> {
        let here = self.deaths.iter().flatten().filter_map(ForeignProcess::killed_by);
        let elsewhere = self.remote_deaths.values().map(|(name, signal)| (name.clone(), *signal));
        here.chain(elsewhere).collect()
    }

    /// Returns the names of the remaining processes of the launch: the launcher's descendants and orphans, except the agents. The result is
    /// meaningful only after the launcher has ended.
    pub fn leftovers(&self) -> Vec<String> {
        let left = tree::of_launch(self.launcher.pid(), &self.agents);
        let mut names: Vec<String> = left
            .into_iter()
            .filter(|pid| *pid != self.launcher.pid())
            .filter_map(procfs::name)
            // Leave out agents that have not reported yet. They are recognized by name, which the kernel truncates to 15 bytes.
            .filter(|name| !(name.len() == 15 && agent::rank::NAME.starts_with(name.as_str())))
            .collect();
        names.sort();
        names
    }

    /// Returns the names of the [leftovers](Self::leftovers), and the launcher's name if it has not ended.
    fn running(&self) -> Vec<String> {
        let launcher = self.exit.is_none().then(|| procfs::name(self.launcher.pid())).flatten();
        launcher.into_iter().chain(self.leftovers()).collect()
    }

    /// Waits for a launcher that was ordered to exit, and reads its last output.
    fn await_exit(&mut self) {
        let deadline = Instant::now() + TERM_GRACE;
        while self.exit.is_none() && Instant::now() < deadline {
            self.poll(Duration::from_millis(20));
            self.exit = self.exit.or_else(|| self.launcher.child.try_wait());
        }
    }

    /// Waits up to `wait` for events, and handles them. Returns whether any event occurred.
    fn poll(&mut self, wait: Duration) -> bool {
        let ready = self.reactor.wait(Some(wait)).unwrap_or_default();
        for Ready { source, writable } in &ready {
            match *source {
                ServerSource::AgentListener => {
                    self.agent_listener.accept(&mut self.reactor, ServerSource::PendingAgent)
                }
                ServerSource::PendingAgent(id) => self.greet(id),
                ServerSource::Control(proc) if self.is_relayed(proc) => self.receive_from_relay(proc),
                ServerSource::Control(proc) => self.receive_from_agent(proc),
                ServerSource::Pmi(proc) => {
                    if *writable {
                        self.flush(proc);
                    }
                    self.read_pmi(proc);
                }
                ServerSource::Upstream => self.read_upstream(),
                ServerSource::Output(stderr) => {
                    let queue = &mut self.queue;
                    let mut queue_line =
                        |line| queue.push_back(EventKind::Output { proc: None, stderr, line });
                    self.output.read(stderr, &mut self.reactor, &mut queue_line);
                }
                ServerSource::Launcher => self.exit = self.launcher.child.try_wait(),
            }
        }
        !ready.is_empty()
    }

    fn greet(&mut self, id: u64) {
        match self.agent_listener.receive_hello(id, &mut self.reactor) {
            Some((Hello::Rank(hello), control)) => self.introduce(control, hello),
            Some((Hello::Upstream { .. }, mut upstream)) if self.is_proxy && self.upstream.is_none() => {
                upstream.send(&UpstreamCommand::Hold(self.hold.clone()));
                if let Ok(key) = self.reactor.add(&upstream, ServerSource::Upstream, WatchMode::Read) {
                    self.upstream = Some((upstream, Some(key)));
                }
            }
            _ => {}
        }
    }

    /// Reads the reports from the upstream.
    fn read_upstream(&mut self) {
        let Some((upstream, key)) = &mut self.upstream else { return };
        if upstream.is_over() {
            return;
        }
        upstream.flush();
        let reports: Vec<EventKind> = upstream.messages();
        self.queue.extend(reports.into_iter().filter(script::is_report));
        if upstream.is_over() {
            key.take().into_iter().for_each(|key| self.reactor.remove(key));
        } else {
            self.reactor.watch_writes(*key, upstream.is_blocked());
        }
    }

    /// Assigns a rank to a process: the rank in the response to its initack, or else its PMI_RANK. If that rank is unusable, assigns the
    /// first free rank.
    fn introduce(&mut self, mut control: Channel, hello: RankHello) {
        let is_here =
            hello.relay_location.as_ref().is_none_or(|place| place.processes == relay::place().processes);
        self.agents.extend(is_here.then_some(hello.pid));
        let pid = Pid::from_raw(hello.pid).filter(|_| is_here);
        let (group, env) = (hello.group, hello.variables());
        let free = |rank: &u32| !self.ranks.contains_key(&Proc { group, rank: *rank });
        let greeting = hello.initack_exchange.as_ref().and_then(|(_, reply)| Greeting::parse(&reply.0).ok());
        let claimed_rank = env.get("PMI_RANK").and_then(|r| r.parse::<u32>().ok());
        let claimed_rank = greeting.map(|greeting| greeting.rank).or(claimed_rank);
        let within = |rank: &u32| group != 0 || *rank < self.expected_ranks;
        let rank = claimed_rank
            .filter(|r| within(r) && free(r))
            .or_else(|| (0..=u32::MAX).find(free))
            .unwrap_or(u32::MAX);
        let proc = Proc { group, rank };
        let pmi = control.take_descriptor().map(|fd| {
            let maker = match tcp::ends(&fd) {
                Some(ends) => {
                    tcp::find_peer(ends).and_then(|end| tcp::find_owner(end.inode, &self.servers()))
                }
                None => tree::peer_process(&fd),
            };
            if let Some(pid) = maker {
                if self.peers.insert(pid) && trace_request::is_wanted() && !self.servers().contains(&pid) {
                    trace_request::trace_daemon(pid);
                }
                let launcher = self.launcher.pid();
                if let Some(deaths) = self.deaths.as_mut().filter(|_| pid != launcher)
                    && !deaths.iter().any(|m| m.has_pid(pid))
                {
                    // The launched command may be a script that has started the launcher as a child.
                    for pid in tree::between(launcher, pid).into_iter().chain([pid]) {
                        if !deaths.iter().any(|m| m.has_pid(pid)) {
                            deaths.extend(ForeignProcess::new(pid));
                        }
                    }
                }
            }
            let connection = NonBlockingStream::over(fd);
            let key = self.reactor.add(&connection, ServerSource::Pmi(proc), WatchMode::Read).ok();
            PmiConnection { connection, peer: maker, key }
        });
        let has_connection = hello.bad_fd.is_none();
        let relayed = hello.relay_location.map(|place| RelayedConnection {
            open: has_connection,
            is_open_here: has_connection,
            ordered: 0,
            executed_orders: 0,
            location: *place,
        });
        let control_key = self.reactor.add(&control, ServerSource::Control(proc), WatchMode::Read).ok();
        self.ranks.insert(proc, RankState { pid, control, control_key, pmi, relayed, exit_ordered: false });
        let place = || port::address(env.get("PMI_PORT")?)?.to_socket_addrs().ok()?.next();
        self.port = self.port.or_else(place);
        if let Some(SingletonDialogue { request, answer, reply }) = hello.singinit {
            self.queue.push_back(EventKind::Singinit { proc, request, answer, reply });
        }
        if self.connection_method == ConnectionMethod::Port
            && proc.group == 0
            && !env.contains_key("PMI_PORT")
        {
            // A launch without PMI_PORT does not test the requested kind of connection.
            let why = "the processes have no PMI_PORT, which --connection port requires".to_owned();
            self.queue.push_back(EventKind::Abandoned(AbandonReason::Unplayable(why)));
        }
        // Record the handshake before the start of the process: the process connects first, and reports its start afterwards.
        if let Some((initack, response)) = hello.initack_exchange {
            self.queue.push_back(EventKind::Greeted { proc, initack, response });
        }
        self.queue.push_back(EventKind::Started { proc, env, args: hello.args, bad_fd: hello.bad_fd });
    }

    /// Handles the end of an agent's connection, which means that the process has ended. After its introduction, the agent sends nothing
    /// more.
    fn receive_from_agent(&mut self, proc: Proc) {
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        rank.control.receive();
        if !rank.control.is_over() {
            return;
        }
        let Some(key) = rank.control_key.take() else { return };
        self.reactor.remove(key);
        // Bytes that the server wrote before the process ended must still be read.
        self.read_pmi(proc);
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.close(&mut self.reactor);
            if !rank.exit_ordered {
                self.queue.push_back(EventKind::Ended { proc, ours: false });
            }
        }
    }

    fn is_relayed(&self, proc: Proc) -> bool {
        self.ranks.get(&proc).is_some_and(|rank| rank.relayed.is_some())
    }

    /// Handles the reports from an agent that relays. The reports describe the actions of the process manager.
    fn receive_from_relay(&mut self, proc: Proc) {
        let Some(RankState {
            control,
            control_key: Some(key),
            relayed: Some(relayed),
            exit_ordered: dismissed,
            ..
        }) = self.ranks.get_mut(&proc)
        else {
            return;
        };
        let key = *key;
        control.flush();
        self.reactor.watch_writes(key, control.is_blocked());
        if control.receive_some() {
            self.reactor.mark_ready(key);
        }
        let mut is_over = control.is_over();
        while let Some(report) = control.next() {
            match report {
                Ok(protocol::RelayReport::FromServer(bytes)) if relayed.is_open_here => {
                    if let Some((_, at)) = self.last_write {
                        self.slowest_response = self.slowest_response.max(at.elapsed());
                    }
                    self.queue.push_back(EventKind::FromServer { proc, bytes });
                }
                Ok(protocol::RelayReport::ClosedByServer) if relayed.is_open_here => {
                    relayed.open = false;
                    self.queue.push_back(EventKind::ClosedByServer { proc });
                }
                Ok(protocol::RelayReport::OrdersDone(count)) => relayed.executed_orders = count,
                Ok(protocol::RelayReport::Died { pid, name, signal }) => {
                    let place = relayed.location.processes.clone();
                    // The launcher is a child of the runner, so its end is already known.
                    let known = pid == self.launcher.pid() && place == relay::place().processes
                        || self.remote_deaths.contains_key(&(place.clone(), pid));
                    if !known {
                        self.remote_deaths.insert((place, pid), (name.clone(), signal));
                        if ForeignProcess::is_crash(signal) {
                            self.queue.push_back(EventKind::Crashed { name, signal });
                        }
                    }
                }
                Ok(protocol::RelayReport::FromServer(_) | protocol::RelayReport::ClosedByServer) => {}
                Err(_) => is_over = true,
            }
        }
        if is_over {
            (relayed.open, relayed.is_open_here) = (false, false);
            if !*dismissed {
                self.queue.push_back(EventKind::Ended { proc, ours: false });
            }
            if let Some(rank) = self.ranks.get_mut(&proc) {
                rank.control_key = None;
            }
            self.reactor.remove(key);
        }
    }

    /// Sends an order to an agent that relays the connection of a process. Does nothing if the connection is closed, or if too many bytes
    /// are waiting to be written.
    fn order(&mut self, proc: Proc, order: &AgentOrder) {
        let Some(RankState { control, control_key, relayed: Some(relayed), .. }) = self.ranks.get_mut(&proc)
        else {
            return;
        };
        if !relayed.is_open_here || control.unwritten() > UNWRITTEN_MAX {
            return;
        }
        relayed.ordered += 1;
        control.send(order);
        self.reactor.watch_writes(*control_key, control.is_blocked());
    }

    fn pmi(&mut self, proc: Proc) -> Option<&mut PmiConnection> {
        match proc.group {
            Proc::STRAY_GROUP => self.stray_connections.get_mut(&proc),
            _ => self.ranks.get_mut(&proc)?.pmi.as_mut(),
        }
    }

    fn read_pmi(&mut self, proc: Proc) {
        let Some(PmiConnection { connection, key: Some(key), .. }) = self.pmi(proc) else { return };
        let (received, key) = (connection.receive_chunk(), *key);
        // The upstream reports before it answers, so the report that explains these bytes can be read now.
        self.read_upstream();
        match received {
            ReceiveResult::Nothing => {}
            ReceiveResult::Bytes(bytes) => {
                self.reactor.after_read(key, bytes.len(), READ_SIZE);
                if let Some((_, at)) = self.last_write {
                    self.slowest_response = self.slowest_response.max(at.elapsed());
                }
                self.queue.push_back(EventKind::FromServer { proc, bytes: Bytes(bytes) });
            }
            ReceiveResult::End => {
                self.reactor.remove(key);
                if let Some(pmi) = self.pmi(proc) {
                    pmi.key = None;
                }
                self.queue.push_back(EventKind::ClosedByServer { proc });
            }
        }
    }

    fn flush(&mut self, proc: Proc) {
        let Some(pmi) = self.pmi(proc) else { return };
        pmi.connection.flush();
        let (is_blocked, key) = (pmi.connection.is_blocked(), pmi.key);
        self.reactor.watch_writes(key, is_blocked);
    }

    /// Reports the exit of the launcher, after every other event has been reported.
    fn report_exit(&mut self) -> Option<EventKind> {
        let exit = self.exit.filter(|_| !self.exit_reported)?;
        self.exit_reported = true;
        if exit != Exit::Code(0) {
            // A process that crashes closes its connections before its death is reported, and the launcher may end in between. So the
            // runner waits for processes that are dying.
            for process in self.deaths.iter().flatten() {
                process.ends_within(MAX_DYING_TIME);
            }
        }
        self.report_deaths();
        // The program that starts a single proxy kills itself with the signal that killed the proxy, and so do some programs that start a
        // launcher, such as `timeout`. Their deaths must not be reported as another crash.
        let is_launcher = |dead: &ForeignProcess| self.is_proxy || !self.peers.contains(&dead.pid());
        let is_reported = self.deaths.iter().flatten().any(|dead| dead.is_reported() && is_launcher(dead));
        if let Exit::Signal(signal) = exit
            && !is_reported
        {
            let name = format!("the launcher, {},", self.program);
            self.queue.push_back(EventKind::Crashed { name, signal });
        }
        self.queue.push_back(EventKind::JobExited { exit });
        self.queue.pop_front()
    }

    /// Reports crashes that have not been reported yet. Returns whether there were any.
    fn report_deaths(&mut self) -> bool {
        let before = self.queue.len();
        for process in self.deaths.iter_mut().flatten() {
            if let Some((name, signal)) = process.unreported_crash() {
                self.queue.push_back(EventKind::Crashed { name, signal });
            }
        }
        self.queue.len() > before
    }

    /// Returns whether all processes have started, and some have not been ordered to exit.
    fn all_keep_running(&self) -> bool {
        self.ranks.len() as u32 >= self.expected_ranks && self.ranks.values().any(|rank| !rank.exit_ordered)
    }

    /// Restarts the measurement of silence after an event that may make the server continue.
    fn break_silence(&mut self) {
        self.quiet_since = Instant::now();
        self.waits_elsewhere = false;
    }

    /// Returns the required duration of idleness, which is normally the configured duration. It is zero if the server is known to leave
    /// bytes unread. Otherwise, while processes start or end, it is at least [`IDLE_TIME`], because no response is due then and frequent
    /// checks cost more than they save.
    fn required_idle_time(&self) -> Duration {
        if self.waits_elsewhere {
            Duration::ZERO
        } else if self.all_keep_running() {
            self.silence_times.idle
        } else {
            self.silence_times.idle.max(IDLE_TIME)
        }
    }

    /// Waits until the server has read the bytes that another rank has just written, before `next` acts. Steps are ordered in time, but a
    /// server that reads from the ranks in a different order could see both messages at once. The wait ends early if the server itself is
    /// waiting for another event.
    fn await_read(&mut self, next: Option<Proc>) {
        let before = self.last_write.filter(|(before, _)| self.ordered_actions && Some(*before) != next);
        let Some((before, at)) = before else { return };
        let mut slice = Duration::from_micros(20);
        while self.has_unread(before) {
            let waited = at.elapsed();
            if waited >= self.read_wait {
                self.read_wait = SHORT_READ_WAIT;
                return;
            }
            if waited >= ANSWER_CHECK_DELAY {
                if self.servers_wait(false) {
                    return;
                }
                slice = (slice * 2).min(ANSWER_CHECK_DELAY);
            }
            if self.is_relayed(before) {
                // The rank's agent reports when the bytes have been read.
                self.poll(slice);
            } else {
                std::thread::sleep(slice);
            }
        }
    }

    /// Returns whether the server has unread bytes from a rank, and may still read them.
    fn has_unread(&self, proc: Proc) -> bool {
        if let Some(RankState { relayed: Some(relayed), .. }) = self.ranks.get(&proc) {
            return relayed.open && relayed.executed_orders < relayed.ordered;
        }
        let pmi = match proc.group {
            Proc::STRAY_GROUP => self.stray_connections.get(&proc),
            _ => self.ranks.get(&proc).and_then(|rank| rank.pmi.as_ref()),
        };
        pmi.filter(|pmi| pmi.key.is_some()).is_some_and(|pmi| {
            pmi.connection.unwritten() > 0 || pmi.connection.unread_bytes().is_some_and(|n| n > 0)
        })
    }

    /// Returns whether the server's processes show that no event will follow. Returns false while a process that was ordered to exit is
    /// still running, because the server may be waiting for that process.
    fn is_idle(&mut self, patient: bool) -> bool {
        self.exit.is_none()
            && self.ranks.values().all(|rank| rank.is_gone() || !rank.exit_ordered)
            && self.is_read(patient)
            && self.servers_wait(patient && self.alarms)
            && !self.poll(Duration::ZERO)
    }

    /// Returns whether the server has read everything, and has polled often enough since then without sending a response.
    fn has_polled(&mut self) -> bool {
        let settled = self.exit.is_none()
            && self.ranks.values().all(|rank| rank.is_gone() || !rank.exit_ordered)
            && self.is_read(false);
        if !settled {
            self.polls_since = None;
            return false;
        }
        if self.polls_since != Some(self.quiet_since) {
            self.polls_since = Some(self.quiet_since);
            self.polls = PollCount::default();
        }
        let Some(makers) = self.known_peers() else { return false };
        let here = self.servers();
        // If the server runs as a daemon, only the processes at the other end of the runner's connections can be observed.
        let here =
            if makers.iter().all(|pid| here.contains(pid)) { here } else { makers.into_iter().collect() };
        self.polls.rounds(&here) >= self.silence_times.rounds
            && self.quiet_since.elapsed() >= self.slowest_response * ANSWER_TIME_FACTOR
            && !self.poll(Duration::ZERO)
    }

    /// Returns the processes at the other end of the runner's open connections, if all of them are known. Every response is sent by one of
    /// them. Returns `None` for relayed connections, since messages may be in transit from another machine.
    fn known_peers(&self) -> Option<BTreeSet<i32>> {
        if self.agent_listener.route().is_some() {
            return None;
        }
        self.connected().map(|pmi| pmi.peer).collect()
    }

    /// Returns whether every process of the server can continue only after an action of the runner. If `uses_alarms` is true, a process
    /// that catches SIGALRM does not count as waiting.
    fn servers_wait(&mut self, uses_alarms: bool) -> bool {
        let Some(makers) = self.known_peers() else { return false };
        let list = || {
            let servers = tree::of_launch(self.launcher.pid(), &self.agents);
            makers.iter().all(|pid| servers.contains(pid)).then_some(servers)
        };
        let mut pids = self.agents.clone();
        pids.insert(procfs::own_pid());
        let ours =
            self.ranks.values().filter_map(|rank| rank.pmi.as_ref()).chain(self.stray_connections.values());
        let peers =
            ControlledPeers { pids, connections: ours.filter_map(|pmi| pmi.connection.ends()).collect() };
        self.idle.all_waiting(list, &peers, uses_alarms)
    }

    /// Returns the connections that neither side has ended.
    fn connected(&self) -> impl Iterator<Item = &PmiConnection> {
        let open = self.ranks.values().filter(|rank| !rank.is_gone()).filter_map(|rank| rank.pmi.as_ref());
        open.filter(|pmi| pmi.key.is_some())
    }

    /// Returns the processes that may belong to the server.
    fn servers(&self) -> Vec<i32> {
        tree::of_launch(self.launcher.pid(), &self.agents)
    }

    /// Returns whether the server has read everything that the runner wrote, or will never read it.
    fn is_read(&self, patient: bool) -> bool {
        let starved =
            patient && (self.waits_elsewhere || self.quiet_since.elapsed() >= self.silence_times.starved);
        let strays = self.stray_connections.values().filter(|stray| stray.key.is_some());
        let mut connections = self.connected().chain(strays).map(|pmi| &pmi.connection);
        let ours = connections.all(|c| c.unwritten() == 0 && (starved || c.unread_bytes() == Some(0)));
        let upstream = self.upstream.as_ref().filter(|(upstream, _)| !upstream.is_over());
        ours && upstream.is_none_or(|(upstream, _)| upstream.is_read())
    }

    fn close_stray(&mut self, stray: Proc) {
        if let Some(PmiConnection { key, .. }) = self.stray_connections.remove(&stray) {
            key.into_iter().for_each(|key| self.reactor.remove(key));
        }
    }

    fn is_over(&self) -> bool {
        self.exit.is_some() && self.ranks.values().all(RankState::is_gone)
    }
}

impl Party for ServerParty {
    fn send(&mut self, to: Proc, bytes: &[u8]) {
        self.await_read(Some(to));
        self.quiet_since = Instant::now();
        self.last_write = Some((to, self.quiet_since));
        if self.is_relayed(to) {
            return self.order(to, &AgentOrder::Write(Bytes(bytes.to_vec())));
        }
        let stuck = self.waits_elsewhere;
        let Some(pmi) = self.pmi(to) else { return };
        // A server that has unread bytes from this rank is not waiting for more of them.
        let may_go_on = stuck && pmi.connection.unread_bytes() == Some(0);
        if pmi.connection.unwritten() + bytes.len() <= UNWRITTEN_MAX {
            pmi.connection.push(bytes.to_vec());
            self.flush(to);
        }
        self.waits_elsewhere &= !may_go_on;
    }

    fn separate_writes(&mut self) {
        self.await_read(None);
    }

    fn close(&mut self, proc: Proc) {
        self.await_read(Some(proc));
        self.break_silence();
        if self.is_relayed(proc) {
            self.last_write = Some((proc, self.quiet_since));
            self.order(proc, &AgentOrder::Close);
        }
        // A process that is being started may hold a copy of the connection for a moment. The shutdown ends the connection for the server
        // despite such a copy.
        if let Some(connection) = self.ranks.get_mut(&proc).and_then(|rank| rank.close(&mut self.reactor)) {
            connection.shut_down();
        }
        self.close_stray(proc);
    }

    fn connect(&mut self, stray: Proc) {
        let Some(port) = self.port.filter(|_| !self.stray_connections.contains_key(&stray)) else { return };
        let mut places = self.ranks.values().filter_map(|rank| rank.relayed.as_ref());
        if places.any(|relayed| relayed.location.network != relay::place().network) {
            let why = format!(
                "pmi-conform cannot make stray connections to {port}, because that address is on a different machine"
            );
            return self.queue.push_back(EventKind::Abandoned(AbandonReason::Unplayable(why)));
        }
        // A failed connection needs no report, because the scenario's expectations on this connection are then not met.
        let Ok(stream) = TcpStream::connect_timeout(&port, TERM_GRACE) else { return };
        self.break_silence();
        let connection = NonBlockingStream::over(stream.into());
        let key = self.reactor.add(&connection, ServerSource::Pmi(stray), WatchMode::Read).ok();
        self.stray_connections.insert(stray, PmiConnection { connection, peer: None, key });
    }

    fn exit(&mut self, proc: Proc, status: u8) {
        self.dismiss(proc, &AgentOrder::Exit(status));
    }

    fn kill(&mut self, proc: Proc, signal: u8) {
        self.dismiss(proc, &AgentOrder::Kill(signal));
    }

    fn pause(&mut self, proc: Proc, stops: bool) {
        let Some(rank) = self.ranks.get_mut(&proc).filter(|rank| !rank.is_gone()) else { return };
        let (Some(pid), Some(pmi)) = (rank.pid, &mut rank.pmi) else { return };
        match pmi.key.take() {
            Some(key) if stops => self.reactor.remove(key),
            None if !stops => {
                pmi.key = self.reactor.add(&pmi.connection, ServerSource::Pmi(proc), WatchMode::Read).ok();
            }
            // The server has ended the connection, or the process is already stopped or running as requested.
            other => return pmi.key = other,
        }
        // If the process has just ended, there is nothing to stop.
        _ = kill_process(pid, if stops { Signal::STOP } else { Signal::CONT });
    }

    fn pause_parent(&mut self, proc: Proc, stops: bool) {
        if !stops {
            // The process may have ended in the meantime, so its parent is not looked up again.
            if let Some(parent) = self.stopped_parent.take() {
                _ = kill_process(parent, Signal::CONT);
            }
            return;
        }
        let pid = self.ranks.get(&proc).filter(|rank| !rank.is_gone()).and_then(|rank| rank.pid);
        // After its launcher has exited, a process is a child of this program or of init, which must not be stopped.
        let parent = pid.and_then(|pid| tree::parent(pid.as_raw_nonzero().get())).map(|(parent, _)| parent);
        let parent = parent.filter(|parent| *parent > 1 && *parent as u32 != std::process::id());
        self.stopped_parent =
            parent.and_then(Pid::from_raw).filter(|pid| kill_process(*pid, Signal::STOP).is_ok());
    }

    fn pass_time(&mut self) -> bool {
        self.slot.wait();
        false
    }

    fn next(&mut self, deadline: Instant, silence: SilenceMeaning) -> Incoming {
        let patient = silence != SilenceMeaning::Expected;
        let believes_polls = self.silence_times.accepts_polls || silence != SilenceMeaning::ResponseDue;
        let mut doublings = 0;
        loop {
            if let Some(kind) = self.queue.pop_front() {
                self.break_silence();
                self.slot.resume();
                return Incoming::Event(kind);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Incoming::Interrupted;
            }
            // A server that is silent for this long is assumed to be waiting.
            let waits = if self.all_keep_running() { ANSWER_CHECK_DELAY } else { BUSY_SILENCE };
            // The silence after which the server's state proves that no event will follow.
            let proves = if patient { self.required_idle_time() } else { Duration::ZERO };
            let quiet = self.quiet_since.elapsed();
            let left = deadline.saturating_duration_since(Instant::now());
            let mut wait =
                if patient && self.exit.is_none() { ANSWER_CHECK_DELAY } else { FIRST_CHECK_DELAY };
            wait = (wait * (1 << doublings)).min(MAX_CHECK_INTERVAL);
            if self.exit.is_none() {
                let next = if believes_polls || quiet < waits { proves.min(waits) } else { proves };
                let next = if self.slot.is_working() { next.min(YIELD_TIME) } else { next };
                wait = wait.max(next.saturating_sub(quiet));
            }
            let busy = self.poll(wait.min(left)) || !self.queue.is_empty();
            // Output that is read and dropped must not extend the wait past the deadline.
            if busy && !(left.is_zero() && self.queue.is_empty()) {
                continue;
            }
            if self.exit.is_some() {
                match self.report_exit() {
                    Some(kind) => return Incoming::Event(kind),
                    // No process is left that could cause an event.
                    None if self.is_over() => return Incoming::Nothing(SilenceProof::Idle),
                    None => {}
                }
            }
            let quiet = self.quiet_since.elapsed();
            // If the server has been silent for at least `waits`, its launch frees the slot without this check.
            let makes_room = self.slot.is_working() && (YIELD_TIME..waits).contains(&quiet);
            let idle = !left.is_zero() && (quiet >= proves || makes_room) && self.is_idle(patient);
            let apart = if silence == SilenceMeaning::ResponseDue && !self.waits_elsewhere {
                MIN_CHECK_GAP.min(proves)
            } else {
                Duration::ZERO
            };
            let lasts = self.idle.waited().is_some_and(|waited| waited >= apart);
            let proof = if left.is_zero() {
                SilenceProof::Timeout
            } else if idle && quiet >= proves && lasts {
                if self.is_read(false) { SilenceProof::Idle } else { SilenceProof::Unread }
            } else if believes_polls && quiet >= waits && self.has_polled() {
                SilenceProof::Polled
            } else {
                if idle || quiet >= waits {
                    self.slot.wait();
                }
                if quiet >= waits && !idle {
                    // The check starts again, because the id of a process that has ended may now belong to a process outside the server.
                    self.idle = IdleCheck::default();
                }
                doublings = MAX_DOUBLINGS.min(doublings + 1);
                continue;
            };
            // A server that has crashed is silent too, so crashes are reported first.
            if !self.report_deaths() {
                self.waits_elsewhere = proof == SilenceProof::Unread;
                return Incoming::Nothing(proof);
            }
        }
    }

    fn hold(&mut self, requests: Vec<String>) {
        self.hold = requests;
    }

    fn upstream(&mut self, command: UpstreamCommand) {
        self.await_read(None);
        self.break_silence();
        if let Some((upstream, key)) = self.upstream.as_mut().filter(|(upstream, _)| !upstream.is_over()) {
            upstream.send(&command);
            self.reactor.watch_writes(*key, upstream.is_blocked());
        }
    }

    fn unread(&self) -> Vec<Proc> {
        let mut procs: Vec<Proc> = self.ranks.keys().chain(self.stray_connections.keys()).copied().collect();
        procs.retain(|proc| self.has_unread(*proc));
        procs.sort_unstable();
        procs
    }

    fn memory(&self) -> Vec<Memory> {
        let mut pids = self.peers.clone();
        // The launcher of a proxy is `hydra-upstream`, which belongs to the harness.
        pids.extend((!self.is_proxy).then_some(self.launcher.pid()));
        pids.into_iter().filter_map(tree::memory).collect()
    }

    fn still_running(&self) -> (Vec<Proc>, Vec<String>) {
        let stays = |rank: &RankState| rank.exit_ordered && !rank.is_gone();
        let procs = self.ranks.iter().filter(|(_, rank)| stays(rank)).map(|(p, _)| *p);
        let mut procs: Vec<Proc> = procs.collect();
        procs.sort_unstable();
        (procs, self.running())
    }

    fn end(&mut self) -> Vec<EventKind> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let mut done = Vec::new();
        // If the cancel command identifies the job by the pids of its launcher, it must run while the launcher is alive. Connections are
        // closed only afterwards, because a daemon may die when they close and leave the job running.
        if self.exit.is_none()
            && self.cancel.as_ref().is_some_and(|command| command.contains(PIDS_PLACEHOLDER))
        {
            done.extend(self.run_cancel());
        }
        for proc in self.ranks.keys().copied().collect::<Vec<_>>() {
            self.order(proc, &AgentOrder::Close);
        }
        for rank in self.ranks.values_mut() {
            rank.close(&mut self.reactor);
        }
        for stray in self.stray_connections.keys().copied().collect::<Vec<_>>() {
            self.close_stray(stray);
        }
        // The job may run on another machine or under a daemon, where only the launcher can end it.
        let stays = self.exit.is_none();
        if stays {
            self.launcher.child.signal(Signal::TERM);
            self.await_exit();
            done.push(JobTermination::Terminated { exit: self.exit });
        }
        if stays || !self.is_over() {
            done.extend(self.run_cancel());
        }
        let names = if stays { self.running() } else { Vec::new() };
        if !names.is_empty() {
            done.push(JobTermination::Killed { names });
        }
        self.launcher.end(&self.agents);
        let output = self.queue.drain(..).filter(|kind| matches!(kind, EventKind::Output { .. }));
        output.chain(done.into_iter().map(EventKind::JobEnding)).collect()
    }

    fn agent(&mut self, group: u32) -> Vec<u8> {
        match self.agent_listener.make_rank(&self.agent, self.quick_agent.as_deref(), group) {
            Ok(path) => path.into_os_string().into_vec(),
            Err(_) => Vec::new(),
        }
    }
}

impl ServerParty {
    /// Runs the command that ends the job, unless it has already been run, and waits for the launcher to exit.
    fn run_cancel(&mut self) -> Option<JobTermination> {
        let command = self.cancel.take()?;
        let mut pids = self.servers();
        pids.push(self.launcher.pid());
        let command = with_pids(&command, &pids);
        let exit = cancel(&command, format!("{}-cancel", self.agent_listener.mark()));
        self.await_exit();
        Some(JobTermination::Cancelled { command, exit })
    }

    fn dismiss(&mut self, proc: Proc, order: &AgentOrder) {
        // Without this wait, the server could see the end of the process before the last message from the process.
        self.await_read(None);
        self.break_silence();
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.exit_ordered = true;
            // The process gets its descriptor back, so the kernel closes the connection when the process exits or dies, as it does for any
            // other process.
            let pmi = rank.close(&mut self.reactor);
            if rank.relayed.is_some() {
                // The exit order must arrive after the earlier write orders, so it goes over the same channel.
                rank.control.send(order);
                self.reactor.watch_writes(rank.control_key, rank.control.is_blocked());
                return;
            }
            // If the process has already ended, it needs no order.
            let _ = rank.control.send_with_descriptor(order, pmi.as_ref());
        }
    }
}

impl Drop for ServerParty {
    fn drop(&mut self) {
        self.end();
    }
}
