//! An implementation in real processes, one launch for one scenario.

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

use super::implementation::{Implementation, PIDS, for_singleton, with_pids};
use super::singleton::Singleton;
use crate::agent;
use crate::agent::channel::Channel;
use crate::agent::door::Listen;
use crate::agent::protocol::{self, Hello, Namespaces, Order, RankHello, Singinit};
use crate::agent::quick::QuickAgent;
use crate::agent::reception::Reception;
use crate::agent::relay;
use crate::party::proxy::{UpstreamCommand, script};
use crate::party::{Incoming, Party, Silence};
use crate::process::child::{Launch, cancel, without_protocol_variables};
use crate::process::connection::{CHUNK, NonBlockingStream, Received};
use crate::process::foreign::{self, DYING, Foreign};
use crate::process::idle::{Friends, IdleCheck, PollCount};
use crate::process::output::Output;
use crate::process::reactor::{Key, Reactor, Ready, Wanted};
use crate::process::slots::{Slot, Slots};
use crate::process::{self, Memory, procfs, tcp, trace_request, tree};
use pmi_judge::event::{Abandoned, Bytes, Ending, Exit, SilenceProof, What};
use pmi_wire::port::{self, Greeting};
use pmi_wire::{Proc, WayIn};
use rustix::process::Signal;

/// Most bytes that wait to be written to one connection.
const UNWRITTEN_MAX: usize = 8 << 20;
/// How long a proven idleness must last where an answer is expected: the server may rely on a process that is not
/// among its descendants.
const PATIENCE: Duration = Duration::from_millis(150);
/// The same where the server leaves bytes of ours unread: it waits for something else, such as the rest of another
/// rank's message.
const STARVED: Duration = Duration::from_millis(400);
/// Time between the looks that show no process of the server running, where an answer is due. On a loaded machine, a process may be woken
/// shortly after a single look.
const LOOKS_APART: Duration = Duration::from_millis(20);
/// How often a server that looks around now and then must have done so without a word. It may have been about to when we wrote.
const ROUNDS: u64 = 3;
/// So many times its slowest answer must have passed, too.
const ANSWERS: u32 = 10;

/// How long a launcher that is told to end gets for it: it may wait in turn for what it has started.
const ASKED: Duration = Duration::from_secs(5);

/// When a silence is looked into that is expected ...
const FIRST: Duration = Duration::from_micros(100);
/// ... and one where an answer is due: most servers have given it by then, and looking takes time from them.
const MOST_ANSWER: Duration = Duration::from_millis(1);
/// It is looked into again after twice the time, up to this.
const LONGEST: Duration = Duration::from_millis(20);
const MOST_DOUBLINGS: u32 = 8;
/// Who starts or ends processes and says nothing for so long waits for something.
const MOST_WORK: Duration = Duration::from_millis(50);
/// One that is idle for so long makes room for another launch, also where that proves nothing yet.
const MAKES_ROOM: Duration = Duration::from_millis(8);
/// Longest time that what we do waits for what another rank wrote before to be read, as long as the server works ...
const TURN: Duration = Duration::from_millis(250);
/// ... and once it has left bytes unread for that long.
const SHORT_TURN: Duration = Duration::from_millis(20);

/// What all launches of a run share.
pub struct Environment {
    /// This binary.
    pub binary: PathBuf,
    /// The agent: this binary, or the program of that name beside it, which starts faster.
    pub agent: PathBuf,
    /// The one that starts fastest, where there is one; made for the first launch that it is enough for.
    quick: OnceLock<Option<QuickAgent>>,
    /// The kernel tells how processes ended that are not our children (Linux 6.15 and later).
    pub foreign_deaths_are_known: bool,
    /// The processes of jobs relay their connections to us, since they run where they cannot hand them over.
    pub listen: Option<Listen>,
    /// Set when the run is to end at once.
    pub interrupted: Arc<AtomicBool>,
    /// How many are at work at the same time.
    pub slots: Arc<Slots>,
}

impl Environment {
    /// The environment of a run by this program with so many launches at work at the same time; `interrupted` ends it.
    ///
    /// # Errors
    ///
    /// The program's own file cannot be found.
    pub fn new(interrupted: Arc<AtomicBool>, jobs: usize) -> io::Result<Self> {
        let binary = std::env::current_exe().map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot find this program's own file, which is also the agent: {e}"),
            )
        })?;
        let agent = agent::program(&binary, agent::rank::NAME);
        let foreign_deaths_are_known = foreign::kernel_tells(&agent);
        let slots = Slots::new(jobs);
        let quick = OnceLock::new();
        Ok(Self { binary, agent, quick, foreign_deaths_are_known, listen: None, interrupted, slots })
    }

    /// The environment of so many jobs of another implementation that run beside those of this one, on this host. They end with the run.
    pub(crate) fn beside(&self, jobs: usize) -> Self {
        Self {
            binary: self.binary.clone(),
            agent: self.agent.clone(),
            quick: OnceLock::new(),
            foreign_deaths_are_known: self.foreign_deaths_are_known,
            listen: None,
            interrupted: Arc::clone(&self.interrupted),
            slots: Slots::new(jobs),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy)]
enum Source {
    /// Agents that come.
    Reception,
    /// One that has come and not yet said who it is.
    Newcomer(u64),
    /// The connection to an agent.
    Control(Proc),
    /// A process's PMI_FD.
    Pmi(Proc),
    Upstream,
    /// The launcher's, `true` for standard error.
    Output(bool),
    Launcher,
}

/// A process's PMI_FD.
struct Pmi {
    connection: NonBlockingStream,
    /// The process of the server's that has the other end, if that is known.
    maker: Option<i32>,
    /// `None` once the server has ended the connection.
    key: Option<Key>,
}

struct Rank {
    control: Channel,
    /// `None` once the connection to the agent has ended, and with it the process.
    control_key: Option<Key>,
    /// `None` once closed or if it never had a good one, or keeps it.
    pmi: Option<Pmi>,
    /// Its connection, if it keeps it and carries what goes over it.
    relayed: Option<Relayed>,
    /// We have told the process how to end.
    dismissed: bool,
}

impl Rank {
    fn is_gone(&self) -> bool {
        self.control_key.is_none()
    }

    /// Gives up our end. A connection that is dropped is closed, as a process closes it; a wrapper between the process manager
    /// and the agent may still hold it open, as it would that of any process.
    fn close(&mut self, reactor: &mut Reactor<Source>) -> Option<NonBlockingStream> {
        self.relayed.iter_mut().for_each(|relayed| relayed.ours = false);
        let Pmi { connection, key, .. } = self.pmi.take()?;
        key.into_iter().for_each(|key| reactor.remove(key));
        Some(connection)
    }
}

/// The connection of a process that relays it.
struct Relayed {
    /// Neither side has closed it.
    open: bool,
    /// We have not closed it.
    ours: bool,
    /// Orders to write and to close that were sent.
    ordered: u64,
    /// So many of them are known to be carried out.
    taken: u64,
    /// Where the process runs.
    place: Namespaces,
}

/// A launched implementation.
pub struct ServerParty {
    reactor: Reactor<Source>,
    reception: Reception,
    agent: PathBuf,
    quick: Option<PathBuf>,
    interrupted: Arc<AtomicBool>,
    ranks: HashMap<Proc, Rank>,
    /// Connections to the port in PMI_PORT that no process has made.
    strays: HashMap<Proc, Pmi>,
    /// How its processes are to come to their connections.
    way_in: WayIn,
    /// The address in PMI_PORT, as the first process has it.
    port: Option<SocketAddr>,
    /// The process that the server is started for, if it is one that it does not start. Ended with the launch.
    _singleton: Option<Singleton>,
    /// Our own program in the place of a proxy's launcher, if it is a proxy that is judged; and the reactor's key, `None` once
    /// the conversation is over.
    upstream: Option<(Channel, Option<Key>)>,
    is_proxy: bool,
    /// Requests that the upstream leaves to the scenario.
    hold: Vec<String>,
    expected: u32,
    launcher: Launch,
    /// The shell command that ends the job, where one is needed.
    cancel: Option<String>,
    /// What was left has been ended.
    ended: bool,
    /// It may answer when an alarm goes off.
    alarms: bool,
    /// File name of the launcher's program.
    program: String,
    exit: Option<Exit>,
    output: Output,
    queue: VecDeque<What>,
    agents: HashSet<i32>,
    /// Processes of the server's that have made the connections of ours.
    makers: BTreeSet<i32>,
    /// The same without the launcher, if the kernel tells how they die.
    deaths: Option<Vec<Foreign>>,
    /// Of processes that relay their connections: whom they are connected to, by place and number, and which signal that one died of.
    dead_elsewhere: HashMap<(String, i32), (String, i32)>,
    idle: IdleCheck,
    polls: PollCount,
    /// When that count began: when something happened last.
    polls_since: Option<Instant>,
    /// The slowest answer.
    slowest: Duration,
    quiet_since: Instant,
    patience: Patience,
    /// It was silent and left bytes unread, as if it waited for something else, and nothing has happened since that could change that.
    stuck: bool,
    /// Who wrote last, and when.
    wrote: Option<(Proc, Instant)>,
    /// How long what comes next may wait for that to be read.
    turn: Duration,
    /// It waits at all.
    in_turn: bool,
    /// The end of the job has been told.
    exit_told: bool,
    /// Given up when everything else has ended.
    slot: Slot,
}

/// How long a silence must last.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A proven one where an answer is expected and the server has read everything.
    pub idle: Duration,
    /// The same where it leaves bytes unread.
    pub starved: Duration,
    /// One of a server that looks around now and then: it must have done so this often.
    pub rounds: u64,
    /// Such a silence is enough where an answer is due, too.
    pub believes_polls: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { idle: PATIENCE, starved: STARVED, rounds: ROUNDS, believes_polls: false }
    }
}

impl ServerParty {
    /// Starts the implementation with our agent as its program; the command line comes back as well. `start` is how long one that is to
    /// come to a process by itself has for that.
    ///
    /// # Errors
    ///
    /// Scratch folder, socket or command cannot be made or started, or the run is to end at once.
    pub fn launch(
        implementation: &Implementation,
        ranks: u32,
        nodes: u32,
        start: Duration,
        environment: &Environment,
    ) -> io::Result<(Self, Vec<String>)> {
        let slot = environment.slots.take(&environment.interrupted)?;
        let mut reactor = Reactor::new()?;
        let reception = Reception::open_for(environment.listen.as_ref())?;
        reception.watch(&mut reactor, Source::Reception)?;
        // All that it can do is to hand over what PMI_FD names.
        let is_enough = implementation.way_in == WayIn::Fd && environment.listen.is_none();
        let quick = is_enough.then(|| environment.quick.get_or_init(QuickAgent::write).as_ref());
        let quick = quick.flatten().map(QuickAgent::path);
        let agent = reception.make_rank(&environment.agent, quick.as_deref(), 0)?;
        let job = reception.name();
        let mut words = implementation.command(ranks, nodes, &reception.words(&agent), &job);
        let singleton = (implementation.way_in == WayIn::Singleton)
            .then(|| Singleton::start(&agent, &reception.mark(), start))
            .transpose()?;
        if let Some((port, pid)) = singleton.as_ref().map(Singleton::place) {
            for_singleton(&mut words, port, pid);
        }
        let mut command = Command::new(&words[0]);
        process::prepare(&mut command);
        command.args(&words[1..]).stdin(Stdio::null()).process_group(0);
        let mut output = Output::of(&mut command)?;
        output.watch(&mut reactor, Source::Output)?;
        // What an outer process manager left in our environment is not the implementation's doing.
        without_protocol_variables(&mut command, false);
        command.env(agent::PATH_VARIABLE, &agent).envs(&implementation.env);
        if let Some(way) = reception.way() {
            // Processes that are spawned have no arguments of ours.
            command.env(relay::VARIABLE, way.to_string());
        }
        let launcher = Launch::start(command, reception.mark())
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", words[0])))?;
        reactor.add(launcher.child.pidfd(), Source::Launcher, Wanted::Read)?;
        let party = Self {
            reactor,
            reception,
            agent: environment.agent.clone(),
            quick,
            interrupted: Arc::clone(&environment.interrupted),
            ranks: HashMap::new(),
            strays: HashMap::new(),
            way_in: implementation.way_in,
            port: None,
            _singleton: singleton,
            upstream: None,
            is_proxy: implementation.has_upstream(),
            hold: Vec::new(),
            expected: ranks,
            launcher,
            cancel: implementation.cancel(&job),
            ended: false,
            alarms: implementation.alarms,
            program: implementation.program(),
            exit: None,
            output,
            queue: VecDeque::new(),
            agents: HashSet::new(),
            makers: BTreeSet::new(),
            deaths: environment.foreign_deaths_are_known.then(Vec::new),
            dead_elsewhere: HashMap::new(),
            idle: IdleCheck::default(),
            polls: PollCount::default(),
            polls_since: None,
            slowest: Duration::ZERO,
            quiet_since: Instant::now(),
            patience: Patience::default(),
            stuck: false,
            wrote: None,
            turn: TURN,
            in_turn: true,
            exit_told: false,
            slot,
        };
        Ok((party, words))
    }

    /// Changes how long a proven silence must last: who tries again where it counts can do with less.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Whether what a rank does waits until what another one wrote before has been read.
    pub fn set_in_turn(&mut self, in_turn: bool) {
        self.in_turn = in_turn;
    }

    /// Which of the processes that the ranks are connected to have died of a signal, and of which.
    pub fn deaths(&self) -> Vec<(String, i32)> {
        let here = self.deaths.iter().flatten().filter_map(Foreign::killed_by);
        let elsewhere = self.dead_elsewhere.values().map(|(name, signal)| (name.clone(), *signal));
        here.chain(elsewhere).collect()
    }

    /// Names of processes that the launcher has left behind: its descendants and orphans, without our agents. Only
    /// meaningful once it has ended.
    pub fn leftovers(&self) -> Vec<String> {
        let left = tree::of_launch(self.launcher.pid(), &self.agents);
        let mut names: Vec<String> = left
            .into_iter()
            .filter(|pid| *pid != self.launcher.pid())
            .filter_map(procfs::name)
            // One of ours that has not yet told us of itself; the kernel cuts names to 15 bytes.
            .filter(|name| !(name.len() == 15 && agent::rank::NAME.starts_with(name.as_str())))
            .collect();
        names.sort();
        names
    }

    /// The same, with the launcher if it has not ended.
    fn running(&self) -> Vec<String> {
        let launcher = self.exit.is_none().then(|| procfs::name(self.launcher.pid())).flatten();
        launcher.into_iter().chain(self.leftovers()).collect()
    }

    /// Gives a launcher that was told to end the time for it, and reads what it still says.
    fn await_exit(&mut self) {
        let deadline = Instant::now() + ASKED;
        while self.exit.is_none() && Instant::now() < deadline {
            self.poll(Duration::from_millis(20));
            self.exit = self.exit.or_else(|| self.launcher.child.try_wait());
        }
    }

    /// Waits for descriptors and reads whatever is there. True if anything was.
    fn poll(&mut self, wait: Duration) -> bool {
        let ready = self.reactor.wait(Some(wait)).unwrap_or_default();
        for Ready { source, writable } in &ready {
            match *source {
                Source::Reception => self.reception.accept(&mut self.reactor, Source::Newcomer),
                Source::Newcomer(id) => self.greet(id),
                Source::Control(proc) if self.is_relayed(proc) => self.hear_relay(proc),
                Source::Control(proc) => self.hear_agent(proc),
                Source::Pmi(proc) => {
                    if *writable {
                        self.flush(proc);
                    }
                    self.read_pmi(proc);
                }
                Source::Upstream => self.read_upstream(),
                Source::Output(stderr) => {
                    let queue = &mut self.queue;
                    let mut tell = |line| queue.push_back(What::Output { proc: None, stderr, line });
                    self.output.read(stderr, &mut self.reactor, &mut tell);
                }
                Source::Launcher => self.exit = self.launcher.child.try_wait(),
            }
        }
        !ready.is_empty()
    }

    fn greet(&mut self, id: u64) {
        match self.reception.greet(id, &mut self.reactor) {
            Some((Hello::Rank(hello), control)) => self.introduce(control, hello),
            Some((Hello::Upstream { .. }, mut upstream)) if self.is_proxy && self.upstream.is_none() => {
                upstream.send(&UpstreamCommand::Hold(self.hold.clone()));
                if let Ok(key) = self.reactor.add(&upstream, Source::Upstream, Wanted::Read) {
                    self.upstream = Some((upstream, Some(key)));
                }
            }
            _ => {}
        }
    }

    /// Takes in what the upstream reports.
    fn read_upstream(&mut self) {
        let Some((upstream, key)) = &mut self.upstream else { return };
        if upstream.is_over() {
            return;
        }
        let was_blocked = upstream.is_blocked();
        upstream.flush();
        let reports: Vec<What> = upstream.messages();
        self.queue.extend(reports.into_iter().filter(script::is_report));
        if upstream.is_over() {
            key.take().into_iter().for_each(|key| self.reactor.remove(key));
        } else if was_blocked && !upstream.is_blocked() {
            listen(&mut self.reactor, *key, Wanted::Read);
        }
    }

    /// Gives a process its place: by its PMI_RANK, or the first free one if that is no use.
    fn introduce(&mut self, mut control: Channel, hello: RankHello) {
        // Elsewhere its number is another's.
        if hello.relays.as_ref().is_none_or(|place| place.processes == relay::place().processes) {
            self.agents.insert(hello.pid);
        }
        let (group, env) = (hello.group, hello.variables());
        let free = |rank: &u32| !self.ranks.contains_key(&Proc { group, rank: *rank });
        let greeting = hello.greeted.as_ref().and_then(|(_, told)| Greeting::parse(&told.0).ok());
        let told = env.get("PMI_RANK").and_then(|r| r.parse::<u32>().ok());
        let told = greeting.map(|greeting| greeting.rank).or(told);
        let within = |rank: &u32| group != 0 || *rank < self.expected;
        let rank =
            told.filter(|r| within(r) && free(r)).or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let proc = Proc { group, rank };
        let pmi = control.take_descriptor().map(|fd| {
            let maker = match tcp::ends(&fd) {
                Some(ends) => tcp::other_end(ends).and_then(|end| tcp::owner(end.inode, &self.servers())),
                None => tree::maker(&fd),
            };
            if let Some(pid) = maker {
                if self.makers.insert(pid) && trace_request::is_wanted() && !self.servers().contains(&pid) {
                    trace_request::trace_daemon(pid);
                }
                let launcher = self.launcher.pid();
                if let Some(deaths) = self.deaths.as_mut().filter(|_| pid != launcher)
                    && !deaths.iter().any(|m| m.is(pid))
                {
                    deaths.extend(Foreign::new(pid));
                }
            }
            let connection = NonBlockingStream::over(fd);
            let key = self.reactor.add(&connection, Source::Pmi(proc), Wanted::Read).ok();
            Pmi { connection, maker, key }
        });
        let has_connection = hello.bad_fd.is_none();
        let relayed = hello.relays.map(|place| Relayed {
            open: has_connection,
            ours: has_connection,
            ordered: 0,
            taken: 0,
            place: *place,
        });
        let control_key = self.reactor.add(&control, Source::Control(proc), Wanted::Read).ok();
        self.ranks.insert(proc, Rank { control, control_key, pmi, relayed, dismissed: false });
        let place = || port::address(env.get("PMI_PORT")?)?.to_socket_addrs().ok()?.next();
        self.port = self.port.or_else(place);
        if let Some(Singinit { asked, said, told }) = hello.singinit {
            self.queue.push_back(What::Singinit { proc, asked, said, told });
        }
        if self.way_in == WayIn::Port && proc.group == 0 && !env.contains_key("PMI_PORT") {
            // What would be judged is something else than what was asked for.
            let why = "its processes have no PMI_PORT, for which --connection port asks".to_owned();
            self.queue.push_back(What::Abandoned(Abandoned::Unplayable(why)));
        }
        // It has reported only when it was connected.
        if let Some((said, told)) = hello.greeted {
            self.queue.push_back(What::Greeted { proc, said, told });
        }
        self.queue.push_back(What::Started { proc, env, args: hello.args, bad_fd: hello.bad_fd });
    }

    /// The agent says nothing after its first message: its connection has ended, and so has the process.
    fn hear_agent(&mut self, proc: Proc) {
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        rank.control.receive();
        if !rank.control.is_over() {
            return;
        }
        let Some(key) = rank.control_key.take() else { return };
        self.reactor.remove(key);
        // What the server wrote before is still to be read.
        self.read_pmi(proc);
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.close(&mut self.reactor);
            if !rank.dismissed {
                self.queue.push_back(What::Ended { proc, ours: false });
            }
        }
    }

    fn is_relayed(&self, proc: Proc) -> bool {
        self.ranks.get(&proc).is_some_and(|rank| rank.relayed.is_some())
    }

    /// The same for an agent that relays: it tells what the process manager does.
    fn hear_relay(&mut self, proc: Proc) {
        let Some(Rank { control, control_key: Some(key), relayed: Some(relayed), dismissed, .. }) =
            self.ranks.get_mut(&proc)
        else {
            return;
        };
        let key = *key;
        if control.is_blocked() {
            control.flush();
            if !control.is_blocked() {
                listen(&mut self.reactor, Some(key), Wanted::Read);
            }
        }
        if control.receive_some() {
            self.reactor.again(key);
        }
        let mut is_over = control.is_over();
        while let Some(told) = control.next() {
            match told {
                Ok(protocol::Relayed::FromServer(bytes)) if relayed.ours => {
                    if let Some((_, at)) = self.wrote {
                        self.slowest = self.slowest.max(at.elapsed());
                    }
                    self.queue.push_back(What::FromServer { proc, bytes });
                }
                Ok(protocol::Relayed::ClosedByServer) if relayed.ours => {
                    relayed.open = false;
                    self.queue.push_back(What::ClosedByServer { proc });
                }
                Ok(protocol::Relayed::Taken(count)) => relayed.taken = count,
                Ok(protocol::Relayed::Died { pid, name, signal }) => {
                    let place = relayed.place.processes.clone();
                    // The launcher is our child, of which we know by ourselves.
                    let known = pid == self.launcher.pid() && place == relay::place().processes
                        || self.dead_elsewhere.contains_key(&(place.clone(), pid));
                    if !known {
                        self.dead_elsewhere.insert((place, pid), (name.clone(), signal));
                        if Foreign::is_crash(signal) {
                            self.queue.push_back(What::Crashed { name, signal });
                        }
                    }
                }
                Ok(protocol::Relayed::FromServer(_) | protocol::Relayed::ClosedByServer) => {}
                Err(_) => is_over = true,
            }
        }
        if is_over {
            (relayed.open, relayed.ours) = (false, false);
            if !*dismissed {
                self.queue.push_back(What::Ended { proc, ours: false });
            }
            if let Some(rank) = self.ranks.get_mut(&proc) {
                rank.control_key = None;
            }
            self.reactor.remove(key);
        }
    }

    /// Has an agent that relays do something to its connection; not once that is closed, or where too much waits to be written.
    fn order(&mut self, proc: Proc, order: &Order) {
        let Some(Rank { control, control_key, relayed: Some(relayed), .. }) = self.ranks.get_mut(&proc)
        else {
            return;
        };
        if !relayed.ours || control.unwritten() > UNWRITTEN_MAX {
            return;
        }
        relayed.ordered += 1;
        control.send(order);
        if control.is_blocked() {
            listen(&mut self.reactor, *control_key, Wanted::ReadWrite);
        }
    }

    fn pmi(&mut self, proc: Proc) -> Option<&mut Pmi> {
        match proc.group {
            Proc::STRAYS => self.strays.get_mut(&proc),
            _ => self.ranks.get_mut(&proc)?.pmi.as_mut(),
        }
    }

    fn read_pmi(&mut self, proc: Proc) {
        let Some(Pmi { connection, key: Some(key), .. }) = self.pmi(proc) else { return };
        let (received, key) = (connection.receive_chunk(), *key);
        // The upstream reports before it answers, so that the cause of what was just read can be read by now.
        self.read_upstream();
        match received {
            Received::Nothing => {}
            Received::Bytes(bytes) => {
                self.reactor.after_read(key, bytes.len(), CHUNK);
                if let Some((_, at)) = self.wrote {
                    self.slowest = self.slowest.max(at.elapsed());
                }
                self.queue.push_back(What::FromServer { proc, bytes: Bytes(bytes) });
            }
            Received::End => {
                self.reactor.remove(key);
                if let Some(pmi) = self.pmi(proc) {
                    pmi.key = None;
                }
                self.queue.push_back(What::ClosedByServer { proc });
            }
        }
    }

    fn flush(&mut self, proc: Proc) {
        let Some(pmi) = self.pmi(proc) else { return };
        let was_blocked = pmi.connection.is_blocked();
        pmi.connection.flush();
        let (is_blocked, key) = (pmi.connection.is_blocked(), pmi.key);
        match (was_blocked, is_blocked) {
            (false, true) => listen(&mut self.reactor, key, Wanted::ReadWrite),
            (true, false) => listen(&mut self.reactor, key, Wanted::Read),
            _ => {}
        }
    }

    /// The end of the job is told once nothing else is left to tell.
    fn tell_exit(&mut self) -> Option<What> {
        let exit = self.exit.filter(|_| !self.exit_told)?;
        self.exit_told = true;
        if exit != Exit::Code(0) {
            // A process that crashes closes its connections before it is dead, and the launcher may end in between.
            for foreign in self.deaths.iter().flatten() {
                foreign.ends_within(DYING);
            }
        }
        self.tell_deaths();
        // What starts a proxy alone ends as it does.
        let is_told = self.is_proxy && self.deaths.iter().flatten().any(Foreign::is_reported);
        if let Exit::Signal(signal) = exit
            && !is_told
        {
            let name = format!("the launcher, {},", self.program);
            self.queue.push_back(What::Crashed { name, signal });
        }
        self.queue.push_back(What::JobExited { exit });
        self.queue.pop_front()
    }

    /// Tells who has crashed and was not told of yet; whether there is any.
    fn tell_deaths(&mut self) -> bool {
        let before = self.queue.len();
        for foreign in self.deaths.iter_mut().flatten() {
            if let Some((name, signal)) = foreign.unreported_crash() {
                self.queue.push_back(What::Crashed { name, signal });
            }
        }
        self.queue.len() > before
    }

    /// All processes have come, and not all have been told to end.
    fn all_stay(&self) -> bool {
        self.ranks.len() as u32 >= self.expected && self.ranks.values().any(|rank| !rank.dismissed)
    }

    /// Something has happened that the server may go on from.
    fn break_silence(&mut self) {
        self.quiet_since = Instant::now();
        self.stuck = false;
    }

    /// While processes start or end there is no answer to wait for, and looking costs more than it brings.
    fn idle_patience(&self) -> Duration {
        if self.stuck {
            Duration::ZERO
        } else if self.all_stay() {
            self.patience.idle
        } else {
            self.patience.idle.max(PATIENCE)
        }
    }

    /// Order in a scenario is order in time: gives the server time to read what another rank has just written, before
    /// `next` does something. One that reads ranks in an order of its own would otherwise meet both at once. Nothing is
    /// waited for once the server waits for something else itself.
    fn await_turn(&mut self, next: Option<Proc>) {
        let before = self.wrote.filter(|(before, _)| self.in_turn && Some(*before) != next);
        let Some((before, at)) = before else { return };
        let mut slice = Duration::from_micros(20);
        while self.has_unread(before) {
            let waited = at.elapsed();
            if waited >= self.turn {
                self.turn = SHORT_TURN;
                return;
            }
            if waited >= MOST_ANSWER {
                if self.servers_wait(false) {
                    return;
                }
                slice = (slice * 2).min(MOST_ANSWER);
            }
            if self.is_relayed(before) {
                // Its agent tells.
                self.poll(slice);
            } else {
                std::thread::sleep(slice);
            }
        }
    }

    /// Whether the server has not read all that a rank wrote, and still may.
    fn has_unread(&self, proc: Proc) -> bool {
        if let Some(Rank { relayed: Some(relayed), .. }) = self.ranks.get(&proc) {
            return relayed.open && relayed.taken < relayed.ordered;
        }
        let pmi = match proc.group {
            Proc::STRAYS => self.strays.get(&proc),
            _ => self.ranks.get(&proc).and_then(|rank| rank.pmi.as_ref()),
        };
        pmi.filter(|pmi| pmi.key.is_some()).is_some_and(|pmi| {
            pmi.connection.unwritten() > 0 || pmi.connection.unread_bytes().is_some_and(|n| n > 0)
        })
    }

    /// Whether the server's processes show that nothing will come. It may wait for a process to end that was told to.
    fn is_idle(&mut self, patient: bool) -> bool {
        self.exit.is_none()
            && self.ranks.values().all(|rank| rank.is_gone() || !rank.dismissed)
            && self.is_read(patient)
            && self.servers_wait(patient && self.alarms)
            && !self.poll(Duration::ZERO)
    }

    /// Whether the server has read everything, and looked around often enough since without a word.
    fn has_polled(&mut self) -> bool {
        let settled = self.exit.is_none()
            && self.ranks.values().all(|rank| rank.is_gone() || !rank.dismissed)
            && self.is_read(false);
        if !settled {
            self.polls_since = None;
            return false;
        }
        if self.polls_since != Some(self.quiet_since) {
            self.polls_since = Some(self.quiet_since);
            self.polls = PollCount::default();
        }
        let Some(makers) = self.known_makers() else { return false };
        let here = self.servers();
        // Of a server that runs as a daemon only those can be looked at who made the connections.
        let here =
            if makers.iter().all(|pid| here.contains(pid)) { here } else { makers.into_iter().collect() };
        self.polls.rounds(&here) >= self.patience.rounds
            && self.quiet_since.elapsed() >= self.slowest * ANSWERS
            && !self.poll(Duration::ZERO)
    }

    /// Who made the connections of ours that are open, where that is known of all: it is theirs to answer. Of who is elsewhere nothing
    /// is known, nor whether something is under way from there.
    fn known_makers(&self) -> Option<BTreeSet<i32>> {
        if self.reception.way().is_some() {
            return None;
        }
        self.connected().map(|pmi| pmi.maker).collect()
    }

    /// Whether every process of the server's waits for what only we can do. With `alarms`, one that catches alarms may not.
    fn servers_wait(&mut self, alarms: bool) -> bool {
        let Some(makers) = self.known_makers() else { return false };
        let list = || {
            let servers = tree::of_launch(self.launcher.pid(), &self.agents);
            makers.iter().all(|pid| servers.contains(pid)).then_some(servers)
        };
        let mut pids = self.agents.clone();
        pids.insert(procfs::own_pid());
        let ours = self.ranks.values().filter_map(|rank| rank.pmi.as_ref()).chain(self.strays.values());
        let friends = Friends { pids, connections: ours.filter_map(|pmi| pmi.connection.ends()).collect() };
        self.idle.all_waiting(list, &friends, alarms)
    }

    /// The processes whose connections neither side has ended.
    fn connected(&self) -> impl Iterator<Item = &Pmi> {
        let open = self.ranks.values().filter(|rank| !rank.is_gone()).filter_map(|rank| rank.pmi.as_ref());
        open.filter(|pmi| pmi.key.is_some())
    }

    /// The processes that may act for the server.
    fn servers(&self) -> Vec<i32> {
        tree::of_launch(self.launcher.pid(), &self.agents)
    }

    /// Whether all that we wrote was read, or will not be.
    fn is_read(&self, patient: bool) -> bool {
        let starved = patient && (self.stuck || self.quiet_since.elapsed() >= self.patience.starved);
        let strays = self.strays.values().filter(|stray| stray.key.is_some());
        let mut connections = self.connected().chain(strays).map(|pmi| &pmi.connection);
        let ours = connections.all(|c| c.unwritten() == 0 && (starved || c.unread_bytes() == Some(0)));
        let upstream = self.upstream.as_ref().filter(|(upstream, _)| !upstream.is_over());
        ours && upstream.is_none_or(|(upstream, _)| upstream.is_read())
    }

    /// Gives up a stray connection.
    fn leave(&mut self, stray: Proc) {
        if let Some(Pmi { key, .. }) = self.strays.remove(&stray) {
            key.into_iter().for_each(|key| self.reactor.remove(key));
        }
    }

    fn is_over(&self) -> bool {
        self.exit.is_some() && self.ranks.values().all(Rank::is_gone)
    }
}

/// Changes what is to be told of a source that may be waited for no more.
fn listen(reactor: &mut Reactor<Source>, key: Option<Key>, wanted: Wanted) {
    if let Some(key) = key {
        // A descriptor that is in the reactor can be changed there.
        let _ = reactor.set(key, wanted);
    }
}

impl Party for ServerParty {
    fn send(&mut self, to: Proc, bytes: &[u8]) {
        self.await_turn(Some(to));
        self.quiet_since = Instant::now();
        self.wrote = Some((to, self.quiet_since));
        if self.is_relayed(to) {
            return self.order(to, &Order::Write(Bytes(bytes.to_vec())));
        }
        let stuck = self.stuck;
        let Some(pmi) = self.pmi(to) else { return };
        // A server that has bytes of this rank unread does not wait for more of them.
        let may_go_on = stuck && pmi.connection.unread_bytes() == Some(0);
        if pmi.connection.unwritten() + bytes.len() <= UNWRITTEN_MAX {
            pmi.connection.push(bytes.to_vec());
            self.flush(to);
        }
        self.stuck &= !may_go_on;
    }

    fn close(&mut self, proc: Proc) {
        self.await_turn(Some(proc));
        self.break_silence();
        if self.is_relayed(proc) {
            self.wrote = Some((proc, self.quiet_since));
            self.order(proc, &Order::Close);
        }
        // A process that is being started may hold it for a moment: it ends for the server all the same.
        if let Some(connection) = self.ranks.get_mut(&proc).and_then(|rank| rank.close(&mut self.reactor)) {
            connection.shut_down();
        }
        self.leave(proc);
    }

    fn connect(&mut self, stray: Proc) {
        let Some(port) = self.port.filter(|_| !self.strays.contains_key(&stray)) else { return };
        let mut places = self.ranks.values().filter_map(|rank| rank.relayed.as_ref());
        if places.any(|relayed| relayed.place.network != relay::place().network) {
            let why = format!("{port} is an address of another machine, to which nobody connects from here");
            return self.queue.push_back(What::Abandoned(Abandoned::Unplayable(why)));
        }
        // Where nobody listens any more, nothing that is expected on it comes.
        let Ok(stream) = TcpStream::connect_timeout(&port, ASKED) else { return };
        self.break_silence();
        let connection = NonBlockingStream::over(stream.into());
        let key = self.reactor.add(&connection, Source::Pmi(stray), Wanted::Read).ok();
        self.strays.insert(stray, Pmi { connection, maker: None, key });
    }

    fn exit(&mut self, proc: Proc, status: u8) {
        self.dismiss(proc, &Order::Exit(status));
    }

    fn kill(&mut self, proc: Proc, signal: u8) {
        self.dismiss(proc, &Order::Kill(signal));
    }

    fn next(&mut self, deadline: Instant, silence: Silence) -> Incoming {
        let patient = silence != Silence::Expected;
        let believes_polls = self.patience.believes_polls || silence != Silence::Wrong;
        let mut looked = 0;
        loop {
            if let Some(what) = self.queue.pop_front() {
                self.break_silence();
                self.slot.go_on();
                return Incoming::Event(what);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Incoming::Interrupted;
            }
            // After so long without a word it waits for something ...
            let waits = if self.all_stay() { MOST_ANSWER } else { MOST_WORK };
            // ... and after so long, what it waits for proves that nothing will come.
            let proves = if patient { self.idle_patience() } else { Duration::ZERO };
            let quiet = self.quiet_since.elapsed();
            let left = deadline.saturating_duration_since(Instant::now());
            let mut wait = if patient && self.exit.is_none() { MOST_ANSWER } else { FIRST };
            wait = (wait * (1 << looked)).min(LONGEST);
            if self.exit.is_none() {
                let next = if believes_polls || quiet < waits { proves.min(waits) } else { proves };
                let next = if self.slot.works() { next.min(MAKES_ROOM) } else { next };
                wait = wait.max(next.saturating_sub(quiet));
            }
            let busy = self.poll(wait.min(left)) || !self.queue.is_empty();
            // Output that is read and dropped must not hold up the clock.
            if busy && !(left.is_zero() && self.queue.is_empty()) {
                continue;
            }
            if self.exit.is_some() {
                match self.tell_exit() {
                    Some(what) => return Incoming::Event(what),
                    // Nobody is left who could say anything.
                    None if self.is_over() => return Incoming::Nothing(SilenceProof::Idle),
                    None => {}
                }
            }
            let quiet = self.quiet_since.elapsed();
            // Who has been quiet for longer than `waits` makes room whatever it does.
            let makes_room = self.slot.works() && (MAKES_ROOM..waits).contains(&quiet);
            let idle = !left.is_zero() && (quiet >= proves || makes_room) && self.is_idle(patient);
            let apart = if silence == Silence::Wrong && !self.stuck {
                LOOKS_APART.min(proves)
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
                    // One that ended may have left its number to a process that is none of the server's.
                    self.idle = IdleCheck::default();
                }
                looked = MOST_DOUBLINGS.min(looked + 1);
                continue;
            };
            // The dead are silent too.
            if !self.tell_deaths() {
                self.stuck = proof == SilenceProof::Unread;
                return Incoming::Nothing(proof);
            }
        }
    }

    fn hold(&mut self, requests: Vec<String>) {
        self.hold = requests;
    }

    fn upstream(&mut self, command: UpstreamCommand) {
        self.await_turn(None);
        self.break_silence();
        if let Some((upstream, key)) = self.upstream.as_mut().filter(|(upstream, _)| !upstream.is_over()) {
            upstream.send(&command);
            if upstream.is_blocked() {
                listen(&mut self.reactor, *key, Wanted::ReadWrite);
            }
        }
    }

    fn unread(&self) -> Vec<Proc> {
        let mut procs: Vec<Proc> = self.ranks.keys().chain(self.strays.keys()).copied().collect();
        procs.retain(|proc| self.has_unread(*proc));
        procs.sort_unstable();
        procs
    }

    fn memory(&self) -> Vec<Memory> {
        let mut pids = self.makers.clone();
        // What starts a proxy is ours.
        pids.extend((!self.is_proxy).then_some(self.launcher.pid()));
        pids.into_iter().filter_map(tree::memory).collect()
    }

    fn still_running(&self) -> (Vec<Proc>, Vec<String>) {
        let stays = |rank: &Rank| rank.dismissed && !rank.is_gone();
        let procs = self.ranks.iter().filter(|(_, rank)| stays(rank)).map(|(p, _)| *p);
        let mut procs: Vec<Proc> = procs.collect();
        procs.sort_unstable();
        (procs, self.running())
    }

    fn end(&mut self) -> Vec<What> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let mut done = Vec::new();
        // A command that identifies the job by its launcher needs a live launcher. Connections stay open meanwhile: a daemon may die of
        // their end and leave the job running.
        if self.exit.is_none() && self.cancel.as_ref().is_some_and(|command| command.contains(PIDS)) {
            done.extend(self.run_cancel());
        }
        for proc in self.ranks.keys().copied().collect::<Vec<_>>() {
            self.order(proc, &Order::Close);
        }
        for rank in self.ranks.values_mut() {
            rank.close(&mut self.reactor);
        }
        for stray in self.strays.keys().copied().collect::<Vec<_>>() {
            self.leave(stray);
        }
        // Its job may run elsewhere, or on behalf of a daemon, where nobody but the launcher reaches it.
        let stays = self.exit.is_none();
        if stays {
            self.launcher.child.signal(Signal::TERM);
            self.await_exit();
            done.push(Ending::Asked { exit: self.exit });
        }
        if stays || !self.is_over() {
            done.extend(self.run_cancel());
        }
        let names = if stays { self.running() } else { Vec::new() };
        if !names.is_empty() {
            done.push(Ending::Killed { names });
        }
        self.launcher.end(&self.agents);
        let said = self.queue.drain(..).filter(|what| matches!(what, What::Output { .. }));
        said.chain(done.into_iter().map(What::JobEnding)).collect()
    }

    fn agent(&mut self, group: u32) -> Vec<u8> {
        match self.reception.make_rank(&self.agent, self.quick.as_deref(), group) {
            Ok(path) => path.into_os_string().into_vec(),
            Err(_) => Vec::new(),
        }
    }
}

impl ServerParty {
    /// Runs the command that ends the job, once, and waits for the launcher to end.
    fn run_cancel(&mut self) -> Option<Ending> {
        let command = self.cancel.take()?;
        let mut pids = self.servers();
        pids.push(self.launcher.pid());
        let command = with_pids(&command, &pids);
        let exit = cancel(&command, format!("{}-cancel", self.reception.mark()));
        self.await_exit();
        Some(Ending::Cancelled { command, exit })
    }

    fn dismiss(&mut self, proc: Proc, order: &Order) {
        // Its end may be met before the last that it wrote, too.
        self.await_turn(None);
        self.break_silence();
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.dismissed = true;
            // The process gets its descriptor back, so that the connection ends as that of any process does that exits or dies:
            // with it, and by the kernel.
            let pmi = rank.close(&mut self.reactor);
            if rank.relayed.is_some() {
                // It comes behind what is to be written before.
                rank.control.send(order);
                if rank.control.is_blocked() {
                    listen(&mut self.reactor, rank.control_key, Wanted::ReadWrite);
                }
                return;
            }
            // If the process is gone already, there is nobody to tell.
            let _ = rank.control.send_with_descriptor(order, pmi.as_ref());
        }
    }
}

impl Drop for ServerParty {
    fn drop(&mut self) {
        self.end();
    }
}
