//! The processes and sockets around [`Upstream`].

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pmi_wire::SpawnProgram;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, setrlimit,
    waitid, waitpid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::family::Family;
use super::script::Talk;
use super::upstream::{ILLEGIBLE, Order, Upstream};
use super::vector::Program;
use super::{End, Options};
use crate::event::{Exit, What};
use crate::launch::proctree;
use crate::serve::connection::{CHUNK, Connection, Received};
use crate::serve::launch as programs;

/// What of our environment a proxy gets, and with it the processes. The rest may be an outer launcher's, by which a
/// proxy would be led astray.
const ENVIRONMENT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD"];

/// Most bytes that wait to be written to a proxy.
const UNWRITTEN_MAX: usize = 64 << 20;

struct Proxy {
    /// Until it is waited for.
    pidfd: Option<OwnedFd>,
    connection: Option<Connection>,
    /// By when it must have done what it does without a client: begin, or end.
    deadline: Option<Instant>,
}

type Signals = SignalDelivery<UnixStream, SignalOnly>;

pub(super) struct Driver {
    options: Options,
    upstream: Upstream,
    proxies: Vec<Proxy>,
    signals: Signals,
    /// Who may want to answer in our stead.
    runner: Option<Talk>,
}

/// What was ready.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Runner,
    Connection(usize),
    Process(usize),
}

impl Driver {
    pub(super) fn new(options: Options) -> io::Result<Self> {
        proctree::become_subreaper();
        // A crash is told by its signal; nobody asked for a core file.
        _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let signals = Signals::with_pipe(read, write, SignalOnly, [SIGINT, SIGTERM, SIGHUP])?;
        let program = Program {
            argv: options.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            dir: None,
        };
        let mut upstream =
            Upstream::new(options.family, options.ranks, options.nodes, program, Box::new(find));
        let runner = Talk::with_runner().map(|(runner, first)| {
            upstream.command(first);
            runner
        });
        Ok(Self { options, upstream, proxies: Vec::new(), signals, runner })
    }

    pub(super) fn run(mut self) -> io::Result<End> {
        let end = self.serve();
        // Before the connections are closed, about which a proxy would complain.
        end_descendants();
        self.proxies.clear();
        end
    }

    fn serve(&mut self) -> io::Result<End> {
        let mut buffer = vec![0; CHUNK];
        loop {
            if let Some(end) = self.obey()? {
                return Ok(end);
            }
            if self.proxies.iter().all(|p| p.pidfd.is_none()) {
                return Ok(End::Status(self.upstream.status()));
            }
            for source in self.wait()? {
                let end = match source {
                    Source::Signals => self.signalled(),
                    Source::Runner => {
                        self.hear();
                        None
                    }
                    Source::Connection(link) => {
                        self.transfer(link, &mut buffer);
                        None
                    }
                    Source::Process(link) => {
                        self.transfer(link, &mut buffer);
                        // What it told last counts more than how it ended.
                        match self.obey()? {
                            Some(end) => Some(end),
                            None => self.exited(link)?,
                        }
                    }
                };
                if let Some(end) = end {
                    return Ok(end);
                }
            }
            if let Some(end) = self.overdue() {
                return Ok(end);
            }
        }
    }

    /// Does what the upstream orders.
    fn obey(&mut self) -> io::Result<Option<End>> {
        while let Some(order) = self.upstream.next_order() {
            match order {
                Order::Start { link, group, proxy } => self.start(link, group, proxy)?,
                Order::Send { link, bytes } => {
                    if let Some(connection) = self.proxies.get_mut(link).and_then(|p| p.connection.as_mut()) {
                        connection.push(bytes);
                        connection.flush();
                        // Read from all the same: it may wait for that before it reads.
                        if connection.unwritten() > UNWRITTEN_MAX {
                            log(format_args!("proxy {link} reads nothing of what it is answered"));
                            return Ok(Some(End::Status(1)));
                        }
                    }
                }
                Order::HangUp { link } => {
                    let proxy = &mut self.proxies[link];
                    proxy.connection = None;
                    proxy.deadline = Some(Instant::now() + self.options.patience);
                }
                Order::Report(what) => self.report(&what),
                Order::Output { stderr, bytes } => {
                    // A reader that is gone wants no more of it.
                    _ = if stderr { io::stderr().write_all(&bytes) } else { io::stdout().write_all(&bytes) };
                }
                Order::End { status, reason } => {
                    log(format_args!("{reason}"));
                    return Ok(Some(End::Status(status)));
                }
            }
        }
        Ok(None)
    }

    fn report(&mut self, what: &What) {
        if let Some(runner) = &mut self.runner {
            runner.say(what);
        }
    }

    /// Does as the runner says.
    fn hear(&mut self) {
        let Some(runner) = &mut self.runner else { return };
        runner.flush();
        for command in runner.hear() {
            self.upstream.command(command);
        }
        if runner.over {
            self.runner = None;
        }
    }

    fn start(&mut self, link: usize, group: u32, proxy: u32) -> io::Result<()> {
        debug_assert_eq!(link, self.proxies.len());
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(&self.options.proxy);
        command.env_clear();
        command.envs(std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.starts_with("PMI_CONFORM") || ENVIRONMENT.contains(&&*name)
        }));
        let fd = theirs.as_raw_fd().to_string();
        match self.options.family {
            Family::Intel => command
                .args(["--auto-cleanup", "1", "--abort-signal", "9", "--usize"])
                .arg(self.options.ranks.to_string())
                .envs(intel_environment(&fd, group, proxy)),
            _ => command.args(arguments(&self.options, group, proxy)).env("HYDI_CONTROL_FD", fd),
        };
        command.stdin(Stdio::null()).process_group(0);
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
        let child = command.spawn().map_err(|e| {
            io::Error::new(e.kind(), format!("cannot start {}: {e}", self.options.proxy.display()))
        })?;
        let pid = Pid::from_child(&child);
        self.proxies.push(Proxy {
            pidfd: Some(pidfd_open(pid, PidfdFlags::empty())?),
            connection: Some(Connection::new(ours)),
            deadline: Some(Instant::now() + self.options.patience),
        });
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Vec<Source>> {
        let signals = self.signals.get_read();
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        // Before the proxies: what it ordered came before what they do next.
        if let Some(runner) = &self.runner {
            let out = if runner.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push(Source::Runner);
            fds.push(PollFd::new(&runner.stream, PollFlags::IN | out));
        }
        for (link, proxy) in self.proxies.iter().enumerate() {
            if let Some(connection) = &proxy.connection {
                let out = if connection.blocked { PollFlags::OUT } else { PollFlags::empty() };
                sources.push(Source::Connection(link));
                fds.push(PollFd::new(connection, PollFlags::IN | out));
            }
            if let Some(pidfd) = &proxy.pidfd {
                sources.push(Source::Process(link));
                fds.push(PollFd::new(pidfd, PollFlags::IN));
            }
        }
        // Without a limit whenever nothing is due: by that the judge sees that we wait.
        let due = self.proxies.iter().filter_map(|p| p.deadline).min();
        let timeout = due.map(|at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            result => result?,
        };
        Ok(sources.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(s, _)| s).collect())
    }

    /// Writes and reads what there is.
    fn transfer(&mut self, link: usize, buffer: &mut [u8]) {
        let Some(connection) = &mut self.proxies[link].connection else { return };
        if connection.blocked {
            connection.flush();
        }
        loop {
            match connection.receive(buffer) {
                Received::Nothing => break,
                Received::Bytes(n) => {
                    self.upstream.receive(link, &buffer[..n]);
                    if n < buffer.len() {
                        break;
                    }
                }
                Received::End => {
                    self.proxies[link].connection = None;
                    break;
                }
            }
        }
        let proxy = &mut self.proxies[link];
        let began = self.upstream.awaited(link).is_none();
        // Once its processes run it has all the time of the world, until they have ended or it has hung up.
        if self.upstream.has_ended(link) || proxy.connection.is_none() {
            proxy.deadline.get_or_insert(Instant::now() + self.options.patience);
        } else if began {
            proxy.deadline = None;
        }
    }

    /// A proxy has ended, and all that it sent has been read.
    fn exited(&mut self, link: usize) -> io::Result<Option<End>> {
        let proxy = &mut self.proxies[link];
        let Some(pidfd) = proxy.pidfd.take() else { return Ok(None) };
        (proxy.connection, proxy.deadline) = (None, None);
        let status = loop {
            match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(Some(status)) => break status,
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let (group, proxy) = self.upstream.proxy_at(link);
        let exit = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Exit::Signal(signal),
            (None, code) => Exit::Code(code.unwrap_or(0)),
        };
        self.report(&What::ProxyEnded { group, proxy, exit });
        if let Some(signal) = status.terminating_signal() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            log(format_args!("proxy {link} died of signal {signal} ({name})"));
            return Ok(Some(End::Signal(signal)));
        }
        let code = status.exit_status().unwrap_or(0);
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} ended with status {code} instead of sending {awaited}"));
            return Ok(Some(End::Status(ILLEGIBLE)));
        }
        if !self.upstream.has_ended(link) {
            log(format_args!(
                "proxy {link} ended with status {code} and did not tell how its processes ended"
            ));
            return Ok(Some(End::Status(if code == 0 { 1 } else { code })));
        }
        if code != 0 {
            log(format_args!("proxy {link} ended with status {code}"));
            if self.upstream.status() == 0 {
                return Ok(Some(End::Status(code)));
            }
        }
        Ok(None)
    }

    /// Whether a proxy has used up its time.
    fn overdue(&mut self) -> Option<End> {
        let now = Instant::now();
        let link = self.proxies.iter().position(|p| p.deadline.is_some_and(|d| d <= now))?;
        let seconds = self.options.patience.as_secs_f64();
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} did not send {awaited} within {seconds} s"));
            return Some(End::Status(ILLEGIBLE));
        }
        log(format_args!("proxy {link} did not end within {seconds} s of its last word"));
        Some(End::Status(match self.upstream.status() {
            0 => 1,
            status => status,
        }))
    }

    fn signalled(&mut self) -> Option<End> {
        let mut scratch = [0; 64];
        while let Ok(1..) = io::Read::read(&mut self.signals.get_read(), &mut scratch) {}
        let signal = self.signals.pending().next()?;
        log(format_args!("ending the job: signal {signal}"));
        Some(End::Status(128 + signal))
    }
}

/// The command line of a proxy.
fn arguments(options: &Options, group: u32, proxy: u32) -> Vec<String> {
    let mut words = vec![
        // Must be named although it is not used where the connection is inherited.
        ("--control-port", "127.0.0.1:1".to_owned()),
        ("--rmk", "user".to_owned()),
        ("--launcher", "fork".to_owned()),
        ("--demux", "poll".to_owned()),
        ("--pgid", group.to_string()),
        ("--usize", options.ranks.to_string()),
        ("--pmi-port", "0".to_owned()),
        ("--gpus-per-proc", "-2".to_owned()),
    ];
    if options.family.knows_subdevices() {
        words.push(("--gpu-subdevs-per-proc", "-2".to_owned()));
    }
    words.push(("--proxy-id", proxy.to_string()));
    words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// What Intel's proxy is told by its environment, which otherwise another program of theirs would set.
fn intel_environment(fd: &str, group: u32, proxy: u32) -> Vec<(&'static str, String)> {
    vec![
        ("HYDRA_BSTRAP_UPSTREAM_FD", fd.to_owned()),
        ("HYDRA_BSTRAP_PGID", group.to_string()),
        ("HYDRA_BSTRAP_PROXY_ID", proxy.to_string()),
        ("HYDRA_BSTRAP_NODE_ID", proxy.to_string()),
        ("HYDRA_BSTRAP_SUBTREE_SIZE", "1".into()),
        ("HYDRA_BSTRAP_TREE_WIDTH", "16".into()),
        ("HYDRA_BSTRAP_NUM_DOWNSTREAM_PROXIES", "0".into()),
        ("HYDRA_BSTRAP_LOCALHOST", "localhost".into()),
        ("HYDRA_BSTRAP_DEBUG", "0".into()),
        ("HYDRA_IP_VERSION", "2".into()),
        ("HYDRA_LAUNCH_TYPE", "2".into()),
    ]
}

/// Looks for the program of a spawn request before a proxy is told to start it.
fn find(program: SpawnProgram) -> Result<Program, String> {
    let program = programs::Program::spawned(program);
    let file = program.resolve().map_err(|e| e.to_string())?;
    let name = if program.path.is_some() { file.into_os_string() } else { program.name };
    let argv = std::iter::once(name).chain(program.args).map(OsString::into_vec).collect();
    Ok(Program { argv, dir: program.dir.map(|d| d.into_os_string().into_vec()) })
}

/// Kills whatever was started and is left, and collects it.
fn end_descendants() {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    for round in 0..500 {
        let left: Vec<i32> = proctree::descendants(me).into_iter().filter(|pid| *pid != me).collect();
        for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(if round < 20 { 1 } else { 10 }));
    }
}

/// One line on stderr; that it may be closed is no reason to stop.
fn log(line: std::fmt::Arguments<'_>) {
    _ = io::stderr().write_all(format!("hydra-upstream: {line}\n").as_bytes());
}
