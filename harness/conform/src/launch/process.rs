//! An implementation in real processes, one launch for one scenario.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use super::death::{self, Mortal};
use super::idle::Watch;
use super::implementation::Implementation;
use super::{procfs, proctree};
use crate::agent::{self, Hello};
use crate::event::{Bytes, Exit, Proc, What};
use crate::hydra::UpstreamCommand;
use crate::hydra::script::{self, Talk};
use crate::play::{Incoming, Memory, Peer};

/// Longest line of output that is kept.
const OUTPUT_LINE: usize = 1024;
/// Most lines of output that are kept per launch; the rest is read and dropped.
const OUTPUT_LINES: usize = 400;
/// Longest first message of an agent.
const HELLO_MAX: usize = 1 << 20;
/// Most bytes that wait to be written to one connection.
const UNWRITTEN_MAX: usize = 8 << 20;
/// How long a proven idleness must last where an answer is expected: the server may rely on a process that is not
/// among its descendants.
const PATIENCE: Duration = Duration::from_millis(150);
/// The same where the server leaves bytes of ours unread: it waits for something else, such as the rest of another
/// rank's message.
const STARVED: Duration = Duration::from_millis(400);

/// How often silence is looked into within the time in which most servers answer; less often after it.
const FIRST: Duration = Duration::from_micros(100);
const MOST_ANSWER: Duration = Duration::from_millis(1);
/// Longest time that a write waits for the one before it to be read.
const TURN: Duration = Duration::from_millis(20);

/// What all launches of a run share.
pub struct Environment {
    /// This binary.
    pub binary: PathBuf,
    /// The agent: this binary, or the program of that name beside it, which starts faster.
    pub agent: PathBuf,
    /// The kernel tells how processes ended that are not our children (Linux 6.15 and later).
    pub deaths_are_told: bool,
    /// Set when the run is to end at once.
    pub interrupted: Arc<AtomicBool>,
}

impl Environment {
    /// The environment of a run by this program; `interrupted` ends it.
    ///
    /// # Errors
    ///
    /// The program's own file cannot be found.
    pub fn new(interrupted: Arc<AtomicBool>) -> io::Result<Self> {
        let binary = std::env::current_exe().map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot find this program's own file, which is also the agent: {e}"),
            )
        })?;
        let beside = binary.with_file_name(agent::NAME);
        let agent = if beside.is_file() { beside } else { binary.clone() };
        let deaths_are_told = death::is_told(&agent);
        Ok(Self { binary, agent, deaths_are_told, interrupted })
    }
}

struct Rank {
    control: UnixStream,
    /// The process's PMI_FD; `None` once closed or if it never had a good one.
    pmi: Option<OwnedFd>,
    unwritten: VecDeque<u8>,
    /// The server has ended the connection.
    ended_by_server: bool,
    /// We have told the process how to end.
    dismissed: bool,
    /// Its control connection has ended.
    gone: bool,
}

impl Rank {
    /// Ends the connection, also for a wrapper between the process manager and the agent that holds it open.
    fn hang_up(&mut self) {
        if let Some(pmi) = self.pmi.take() {
            // No socket, or ended already: closing is all there is to do.
            let _ = rustix::net::shutdown(&pmi, rustix::net::Shutdown::Both);
        }
    }
}

struct Lines {
    pipe: Option<io::PipeReader>,
    partial: Vec<u8>,
    stderr: bool,
}

/// A launched implementation.
pub struct ProcessPeer {
    scratch: tempfile::TempDir,
    mark: String,
    agent: PathBuf,
    interrupted: Arc<AtomicBool>,
    listener: UnixListener,
    /// Agents that have connected and not yet said who they are.
    unknown: Vec<(UnixStream, Vec<u8>, Option<OwnedFd>)>,
    ranks: HashMap<Proc, Rank>,
    /// Our own program in the place of a proxy's launcher, if it is a proxy that is judged.
    upstream: Option<Talk>,
    is_proxy: bool,
    /// Requests that the upstream leaves to the scenario.
    hold: Vec<String>,
    expected: u32,
    launcher: duct::Handle,
    launcher_pid: i32,
    /// It may answer when an alarm goes off.
    alarms: bool,
    /// File name of the launcher's program.
    program: String,
    launcher_fd: Option<OwnedFd>,
    exit: Option<Exit>,
    output: [Lines; 2],
    kept_lines: usize,
    queue: VecDeque<What>,
    agents: HashSet<i32>,
    /// Processes of the server's that have made the connections of ours.
    makers: BTreeSet<i32>,
    watch: Watch,
    quiet_since: Instant,
    patience: Patience,
    /// Who wrote last, and when.
    wrote: Option<(Proc, Instant)>,
    job_told: bool,
    /// The same without the launcher, if the kernel tells how they die.
    deaths: Option<Vec<Mortal>>,
}

/// How long a proven silence must last where an answer is expected.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Where the server has read everything.
    pub idle: Duration,
    /// Where it leaves bytes unread.
    pub starved: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { idle: PATIENCE, starved: STARVED }
    }
}

fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

impl ProcessPeer {
    /// Starts the implementation with our agent as its program; the command line comes back as well.
    ///
    /// # Errors
    ///
    /// Scratch folder, socket or command cannot be made or started.
    pub fn launch(
        implementation: &Implementation,
        ranks: u32,
        nodes: u32,
        environment: &Environment,
    ) -> io::Result<(Self, Vec<String>)> {
        proctree::become_subreaper();
        let scratch = scratch_folder()?;
        let mark = scratch.path().to_string_lossy().into_owned();
        let listener = UnixListener::bind(scratch.path().join(agent::SOCKET))?;
        listener.set_nonblocking(true)?;
        let agent = make_agent(&environment.agent, scratch.path(), 0)?;
        let command = implementation.command(ranks, nodes, &agent);
        let (out, out_writer) = io::pipe()?;
        let (err, err_writer) = io::pipe()?;
        nonblocking(&out)?;
        nonblocking(&err)?;
        let mut expression = duct::cmd(&command[0], &command[1..])
            .stdin_null()
            .stdout_file(out_writer)
            .stderr_file(err_writer)
            .unchecked()
            .before_spawn(|c| {
                c.process_group(0);
                Ok(())
            })
            .env(proctree::MARK, &mark)
            .env(agent::PATH_VARIABLE, &agent);
        // What an outer process manager left in our environment is not the implementation's doing.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PMI_")) {
            if !implementation.env.contains_key(&*name.to_string_lossy()) && !is_ours(&name) {
                expression = expression.env_remove(name);
            }
        }
        for (name, value) in &implementation.env {
            expression = expression.env(name, value);
        }
        let (launcher, launcher_pid) = proctree::launch(&mark, || {
            let launcher = expression.start()?;
            let pid = launcher.pids().first().map_or(0, |pid| *pid as i32);
            Ok((launcher, pid))
        })
        .map_err(|e: io::Error| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", command[0])))?;
        drop(expression);
        let launcher_fd = rustix::process::Pid::from_raw(launcher_pid)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
        let lines = |pipe, stderr| Lines { pipe: Some(pipe), partial: Vec::new(), stderr };
        let peer = Self {
            scratch,
            mark,
            agent: environment.agent.clone(),
            interrupted: Arc::clone(&environment.interrupted),
            listener,
            unknown: Vec::new(),
            ranks: HashMap::new(),
            upstream: None,
            is_proxy: implementation.has_upstream(),
            hold: Vec::new(),
            expected: ranks,
            launcher,
            launcher_pid,
            alarms: implementation.alarms,
            program: implementation.program(),
            launcher_fd,
            exit: None,
            output: [lines(out, false), lines(err, true)],
            kept_lines: 0,
            queue: VecDeque::new(),
            agents: HashSet::new(),
            makers: BTreeSet::new(),
            watch: Watch::default(),
            quiet_since: Instant::now(),
            patience: Patience::default(),
            wrote: None,
            job_told: false,
            deaths: environment.deaths_are_told.then(Vec::new),
        };
        Ok((peer, command))
    }

    /// Changes how long a proven silence must last: who tries again where it counts can do with less.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Which of the processes that the ranks are connected to have died of a signal, and of which.
    pub(crate) fn deaths(&self) -> Vec<(String, i32)> {
        self.deaths.iter().flatten().filter_map(Mortal::killed_by).collect()
    }

    /// Names of processes that the launcher has left behind: its descendants and orphans, without our agents. Only
    /// meaningful once it has ended.
    pub fn leftovers(&self) -> Vec<String> {
        let left = proctree::of_launch(self.launcher_pid, &self.agents);
        let mut names: Vec<String> = left
            .into_iter()
            .filter(|pid| *pid != self.launcher_pid)
            .filter_map(procfs::name)
            // One of ours that has not yet told us of itself; the kernel cuts names to 15 bytes.
            .filter(|name| !(name.len() == 15 && agent::NAME.starts_with(name.as_str())))
            .collect();
        names.sort();
        names
    }

    /// Waits for descriptors and reads whatever is there. True if anything was.
    fn poll(&mut self, wait: Duration) -> bool {
        #[derive(Clone, Copy)]
        enum Source {
            Listener,
            Unknown(usize),
            Control(Proc),
            Pmi(Proc),
            Upstream,
            Output(usize),
            Launcher,
        }
        let mut sources = vec![Source::Listener];
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for (i, (stream, ..)) in self.unknown.iter().enumerate() {
            sources.push(Source::Unknown(i));
            fds.push(PollFd::new(stream, PollFlags::IN));
        }
        for (proc, rank) in &self.ranks {
            if !rank.gone {
                sources.push(Source::Control(*proc));
                fds.push(PollFd::new(&rank.control, PollFlags::IN));
            }
            if let Some(pmi) = rank.pmi.as_ref().filter(|_| !rank.ended_by_server) {
                let write = if rank.unwritten.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                sources.push(Source::Pmi(*proc));
                fds.push(PollFd::new(pmi, PollFlags::IN | write));
            }
        }
        if let Some(upstream) = self.upstream.as_ref().filter(|u| !u.over) {
            let write = if upstream.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push(Source::Upstream);
            fds.push(PollFd::new(&upstream.stream, PollFlags::IN | write));
        }
        for (i, lines) in self.output.iter().enumerate() {
            if let Some(pipe) = &lines.pipe {
                sources.push(Source::Output(i));
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        if let Some(fd) = self.launcher_fd.as_ref().filter(|_| self.exit.is_none()) {
            sources.push(Source::Launcher);
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        if !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(n) if n > 0) {
            return false;
        }
        let ready: Vec<(Source, PollFlags)> =
            sources.into_iter().zip(fds.iter().map(PollFd::revents)).filter(|(_, r)| !r.is_empty()).collect();
        drop(fds);
        let mut known = Vec::new();
        for (source, flags) in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Unknown(i) => known.push(i),
                Source::Control(proc) => self.control_ended(proc),
                Source::Pmi(proc) => {
                    if flags.contains(PollFlags::OUT) {
                        self.flush(proc);
                    }
                    if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                        self.read_pmi(proc);
                    }
                }
                Source::Upstream => self.read_upstream(),
                Source::Output(i) => self.read_output(i),
                Source::Launcher => self.reap_launcher(),
            }
        }
        // From the back, so that the places stay true while they are taken out.
        for i in known.into_iter().rev() {
            self.read_hello(i);
        }
        true
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && self.unknown.len() < 4096 {
                self.unknown.push((stream, Vec::new(), None));
            }
        }
    }

    fn read_hello(&mut self, i: usize) {
        let (stream, text, fd) = &mut self.unknown[i];
        let mut buffer = vec![0; 64 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let read = rustix::net::recvmsg(&*stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                *fd = fd.take().or(fds.into_iter().next());
            }
        }
        let over = match read {
            Ok(message) if message.bytes > 0 => {
                text.extend_from_slice(&buffer[..message.bytes]);
                text.len() > HELLO_MAX
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            _ => true,
        };
        let done = text.ends_with(b"\n");
        if over || done {
            let (stream, text, fd) = self.unknown.swap_remove(i);
            if !done {
                return;
            }
            if let Ok(hello) = serde_json::from_slice::<Hello>(&text) {
                self.introduce(stream, hello, fd);
            } else if self.is_proxy
                && self.upstream.is_none()
                && serde_json::from_slice::<script::Hello>(&text).is_ok()
                && let Ok(mut upstream) = Talk::new(stream)
            {
                upstream.say(&UpstreamCommand::Hold(self.hold.clone()));
                self.upstream = Some(upstream);
            }
        }
    }

    /// Takes in what the upstream reports.
    fn read_upstream(&mut self) {
        let Some(upstream) = &mut self.upstream else { return };
        upstream.flush();
        let reports: Vec<What> = upstream.hear();
        self.queue.extend(reports.into_iter().filter(script::is_report));
    }

    /// Gives a process its place: by its PMI_RANK, or the first free one if that is no use.
    fn introduce(&mut self, control: UnixStream, hello: Hello, fd: Option<OwnedFd>) {
        self.agents.insert(hello.pid);
        let group = hello.group;
        let free = |rank: &u32| !self.ranks.contains_key(&Proc { group, rank: *rank });
        let told = hello.env.get("PMI_RANK").and_then(|r| r.parse::<u32>().ok());
        let within = |rank: &u32| group != 0 || *rank < self.expected;
        let rank =
            told.filter(|r| within(r) && free(r)).or_else(|| (0..=u32::MAX).find(free)).unwrap_or(u32::MAX);
        let proc = Proc { group, rank };
        if let Some(fd) = &fd {
            // Without it we might block; a write that does not fit is kept and tried again.
            let _ = nonblocking(fd);
            if let Some(pid) = proctree::maker(fd) {
                self.makers.insert(pid);
                if let Some(deaths) = self.deaths.as_mut().filter(|_| pid != self.launcher_pid)
                    && !deaths.iter().any(|m| m.is(pid))
                {
                    deaths.extend(Mortal::new(pid));
                }
            }
        }
        let ended_by_server = fd.is_none();
        let rank = Rank {
            control,
            pmi: fd,
            unwritten: VecDeque::new(),
            ended_by_server,
            dismissed: false,
            gone: false,
        };
        self.ranks.insert(proc, rank);
        self.queue.push_back(What::Started { proc, env: hello.env, args: hello.args, bad_fd: hello.bad_fd });
    }

    /// The agent says nothing after its first message: its connection has ended, and so has the process.
    fn control_ended(&mut self, proc: Proc) {
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        let mut byte = [0; 64];
        match (&rank.control).read(&mut byte) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Ok(n) if n > 0 => return,
            _ => rank.gone = true,
        }
        // What the server wrote before is still to be read.
        self.read_pmi(proc);
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.pmi = None;
            if !rank.dismissed {
                self.queue.push_back(What::Ended { proc, ours: false });
            }
        }
    }

    fn read_pmi(&mut self, proc: Proc) {
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        let Some(pmi) = rank.pmi.as_ref().filter(|_| !rank.ended_by_server) else { return };
        let mut buffer = [0; 64 * 1024];
        let read = rustix::io::read(pmi, &mut buffer);
        // The upstream reports before it answers, so that the cause of what was just read can be read by now.
        self.read_upstream();
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        match read {
            Ok(n) if n > 0 => {
                self.queue.push_back(What::FromServer { proc, bytes: Bytes(buffer[..n].to_vec()) });
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            _ => {
                rank.ended_by_server = true;
                self.queue.push_back(What::ClosedByServer { proc });
            }
        }
    }

    fn flush(&mut self, proc: Proc) {
        let Some(rank) = self.ranks.get_mut(&proc) else { return };
        while let (Some(pmi), false) = (&rank.pmi, rank.unwritten.is_empty()) {
            let (front, _) = rank.unwritten.as_slices();
            match write_quietly(pmi.as_fd(), front) {
                Ok(n) => drop(rank.unwritten.drain(..n)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                // The reader's end will tell that the connection is over.
                Err(_) => rank.unwritten.clear(),
            }
        }
    }

    fn read_output(&mut self, i: usize) {
        let lines = &mut self.output[i];
        let Some(pipe) = &mut lines.pipe else { return };
        let mut buffer = [0; 64 * 1024];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                lines.pipe = None;
                if !lines.partial.is_empty() {
                    let line = Bytes(std::mem::take(&mut lines.partial));
                    self.queue.push_back(What::Output { stderr: lines.stderr, line });
                }
            }
            Ok(n) => {
                for part in buffer[..n].split_inclusive(|b| *b == b'\n') {
                    let room = OUTPUT_LINE.saturating_sub(lines.partial.len());
                    let text = part.strip_suffix(b"\n").unwrap_or(part);
                    lines.partial.extend_from_slice(&text[..text.len().min(room)]);
                    if part.ends_with(b"\n") {
                        let line = Bytes(std::mem::take(&mut lines.partial));
                        self.kept_lines += 1;
                        if self.kept_lines <= OUTPUT_LINES {
                            self.queue.push_back(What::Output { stderr: lines.stderr, line });
                        }
                    }
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => lines.pipe = None,
        }
    }

    fn reap_launcher(&mut self) {
        let status = match self.launcher.try_wait() {
            Ok(Some(output)) => output.status,
            Ok(None) => return,
            // Somebody else has reaped it; its status is lost.
            Err(_) => ExitStatus::from_raw(255 << 8),
        };
        self.exit = Some(match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.code().unwrap_or(255)),
        });
    }

    /// The end of the job is told once nothing else is left to tell.
    fn tell_exit(&mut self) -> Option<What> {
        let exit = self.exit.filter(|_| !self.job_told)?;
        self.job_told = true;
        self.tell_deaths();
        // What starts a proxy alone ends as it does.
        let is_told = self.is_proxy && self.deaths.iter().flatten().any(Mortal::is_told);
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
        for mortal in self.deaths.iter_mut().flatten() {
            // The launcher may have ended it by any other signal.
            if let Some((name, signal)) = mortal.news().filter(|(_, signal)| FAULTS.contains(signal)) {
                self.queue.push_back(What::Crashed { name, signal });
            }
        }
        self.queue.len() > before
    }

    /// While processes start or end there is no answer to wait for, and looking costs more than it brings.
    fn idle_patience(&self) -> Duration {
        let all_here = self.ranks.len() as u32 >= self.expected;
        if all_here && self.ranks.values().any(|rank| !rank.dismissed) {
            self.patience.idle
        } else {
            self.patience.idle.max(PATIENCE)
        }
    }

    /// Order in a scenario is order in time: gives the server a moment to read what another rank has just written. One
    /// that reads ranks in an order of its own would otherwise see both at once.
    fn await_turn(&mut self, next: Proc) {
        let Some((before, at)) = self.wrote.filter(|(before, _)| *before != next) else { return };
        let Some(pmi) = self.ranks.get(&before).filter(|r| !r.ended_by_server).and_then(|r| r.pmi.as_ref())
        else {
            return;
        };
        while at.elapsed() < TURN && unread(pmi).is_some_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Whether the server's processes show that nothing will come.
    fn is_idle(&mut self, patient: bool) -> bool {
        if self.exit.is_some() || !self.is_read(patient) {
            return false;
        }
        // Who made a connection of ours is the one to answer.
        let makers = self.connected().map(|(_, pmi)| proctree::maker(pmi)).collect::<Option<BTreeSet<i32>>>();
        let Some(makers) = makers else { return false };
        let list = || {
            let servers = proctree::of_launch(self.launcher_pid, &self.agents);
            makers.iter().all(|pid| servers.contains(pid)).then_some(servers)
        };
        let mut friends = self.agents.clone();
        friends.insert(rustix::process::getpid().as_raw_nonzero().get());
        self.watch.all_waiting(list, &friends, patient && self.alarms) && !self.poll(Duration::ZERO)
    }

    /// The processes whose connections neither side has ended.
    fn connected(&self) -> impl Iterator<Item = (&Rank, &OwnedFd)> {
        let open = self.ranks.values().filter(|rank| !rank.gone && !rank.ended_by_server);
        open.filter_map(|rank| Some((rank, rank.pmi.as_ref()?)))
    }

    /// Whether all that we wrote was read, or will not be.
    fn is_read(&self, patient: bool) -> bool {
        let starved = patient && self.quiet_since.elapsed() >= self.patience.starved;
        let ours = self
            .connected()
            .all(|(rank, pmi)| rank.unwritten.is_empty() && (starved || unread(pmi) == Some(0)));
        let upstream = self.upstream.as_ref().filter(|u| !u.over);
        ours && upstream.is_none_or(|u| !u.is_blocked() && unread(&u.stream) == Some(0))
    }

    fn is_over(&self) -> bool {
        self.exit.is_some() && self.ranks.values().all(|r| r.gone)
    }
}

/// Signals by which a process ends itself: ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS.
const FAULTS: [i32; 7] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];

/// Variables of our own whose names begin like the protocol's.
pub(crate) fn is_ours(name: &OsString) -> bool {
    name.to_string_lossy().starts_with("PMI_CONFORM")
}

/// Bytes that the other side has not read (`SIOCOUTQ`, the same number as `TIOCOUTQ`).
pub(crate) fn unread(fd: impl AsFd) -> Option<i32> {
    #[expect(unsafe_code, reason = "rustix has no safe call for it")]
    // SAFETY: TIOCOUTQ writes one int to the place it is given, which the getter provides.
    unsafe {
        rustix::ioctl::ioctl(
            fd,
            rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, i32>::new(),
        )
        .ok()
    }
}

/// Writes without SIGPIPE where that is possible.
fn write_quietly(fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Err(rustix::io::Errno::NOTSOCK) => rustix::io::write(fd, bytes),
        other => other,
    }
}

/// A private folder. Sockets have short paths: a long TMPDIR is left for /tmp.
pub(crate) fn scratch_folder() -> io::Result<tempfile::TempDir> {
    let builder = |dir: &Path| tempfile::Builder::new().prefix("pmi-conform-").tempdir_in(dir);
    // Agents may run in another working directory.
    let temp = std::path::absolute(std::env::temp_dir())?;
    let temp = if temp.as_os_str().len() > 60 { Path::new("/tmp") } else { &temp };
    builder(temp).map_err(|e| {
        io::Error::new(e.kind(), format!("cannot make a scratch folder in {} (TMPDIR): {e}", temp.display()))
    })
}

fn make_agent(agent: &Path, scratch: &Path, group: u32) -> io::Result<PathBuf> {
    let folder = agent::folder(scratch, group);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(agent::NAME);
    match std::os::unix::fs::symlink(agent, &path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(path),
    }
}

impl Peer for ProcessPeer {
    fn send(&mut self, to: Proc, bytes: &[u8]) {
        self.await_turn(to);
        self.quiet_since = Instant::now();
        self.wrote = Some((to, self.quiet_since));
        let Some(rank) = self.ranks.get_mut(&to) else { return };
        let Some(pmi) = &rank.pmi else { return };
        let mut rest = bytes;
        while rank.unwritten.is_empty() && !rest.is_empty() {
            match write_quietly(pmi.as_fd(), rest) {
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => return,
            }
        }
        if rank.unwritten.len() + rest.len() <= UNWRITTEN_MAX {
            rank.unwritten.extend(rest);
        }
    }

    fn close(&mut self, proc: Proc) {
        self.quiet_since = Instant::now();
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.hang_up();
            rank.unwritten.clear();
        }
    }

    fn exit(&mut self, proc: Proc, status: u8) {
        self.dismiss(proc, &format!("exit {status}\n"));
    }

    fn kill(&mut self, proc: Proc, signal: u8) {
        self.dismiss(proc, &format!("kill {signal}\n"));
    }

    fn next(&mut self, deadline: Instant, patient: bool) -> Incoming {
        let mut slice = FIRST;
        loop {
            if let Some(what) = self.queue.pop_front() {
                self.quiet_since = Instant::now();
                return Incoming::Event(what);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Incoming::Interrupted;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let busy = self.poll(slice.min(left)) || !self.queue.is_empty();
            // Output that is read and dropped must not hold up the clock.
            if busy && !(left.is_zero() && self.queue.is_empty()) {
                continue;
            }
            if self.exit.is_some() {
                match self.tell_exit() {
                    Some(what) => return Incoming::Event(what),
                    // Nobody is left who could say anything.
                    None if self.is_over() => return Incoming::Idle,
                    None => {}
                }
            }
            let quiet = self.quiet_since.elapsed();
            let verdict = if left.is_zero() {
                Incoming::Deadline
            } else if (!patient || quiet >= self.idle_patience()) && self.is_idle(patient) {
                Incoming::Idle
            } else {
                if quiet >= MOST_ANSWER {
                    slice = (slice * 2).min(Duration::from_millis(20));
                    // One that ended may have left its number to a process that is none of the server's.
                    self.watch = Watch::default();
                }
                continue;
            };
            // The dead are silent too.
            if !self.tell_deaths() {
                return verdict;
            }
        }
    }

    fn hold(&mut self, requests: Vec<String>) {
        self.hold = requests;
    }

    fn upstream(&mut self, command: UpstreamCommand) {
        self.quiet_since = Instant::now();
        if let Some(upstream) = &mut self.upstream {
            upstream.say(&command);
        }
    }

    fn memory(&self) -> Vec<Memory> {
        let mut pids = self.makers.clone();
        // What starts a proxy is ours.
        pids.extend((!self.is_proxy).then_some(self.launcher_pid));
        pids.into_iter().filter_map(proctree::memory).collect()
    }

    fn agent(&mut self, group: u32) -> Vec<u8> {
        match make_agent(&self.agent, self.scratch.path(), group) {
            Ok(path) => path.into_os_string().into_vec(),
            Err(_) => Vec::new(),
        }
    }
}

impl ProcessPeer {
    fn dismiss(&mut self, proc: Proc, order: &str) {
        self.quiet_since = Instant::now();
        if let Some(rank) = self.ranks.get_mut(&proc) {
            rank.dismissed = true;
            rank.hang_up();
            // If the process is gone already, there is nobody to tell.
            let _ = (&rank.control).write_all(order.as_bytes());
        }
    }
}

impl Drop for ProcessPeer {
    fn drop(&mut self) {
        for rank in self.ranks.values_mut() {
            rank.hang_up();
        }
        if self.exit.is_none() {
            self.reap_launcher();
        }
        if self.exit.is_none() || proctree::anything_left(&self.mark, self.launcher_pid, &self.agents) {
            proctree::end_all(&self.mark, self.launcher_pid, &self.agents);
        }
        // The launcher is dead by now or was before: this only collects it.
        let _ = self.launcher.kill();
        proctree::launch_ended(&self.mark, self.launcher_pid);
    }
}
