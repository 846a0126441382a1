//! Runs [`Upstream`] with real processes and sockets.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pmi_process::agent::channel::Channel;
use pmi_process::child::Child;
use pmi_process::connection::{NonBlockingStream, READ_SIZE, ReceiveResult, pair};
use pmi_process::context;
use pmi_process::observe::tree;
use pmi_process::reactor::{Reactor, ReactorKey, Ready, WatchMode};
use pmi_process::stop::StopSignals;
use pmi_wire::SpawnProgram;
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::script;
use super::upstream::{DriverOrder, PROTOCOL_ERROR_STATUS, Upstream};
use crate::serve::launch::Executable;
use pmi_judge::event::{EventKind, Exit};
use pmi_wire::hydra::Family;
use pmi_wire::hydra::LaunchProgram;

/// Environment variables that a proxy and its processes inherit. Other variables may come from an outer launcher and could mislead the
/// proxy.
const ENVIRONMENT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD"];

/// The universe size that proxies report: at least the size of any group that a scenario spawns.
const UNIVERSE_SIZE: &str = "100000";

/// Maximum number of bytes that can be queued for a proxy.
const UNWRITTEN_MAX: usize = 64 << 20;

/// Options of `hydra-upstream`.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// The path of the proxy.
    pub proxy: PathBuf,
    /// The protocol of the proxy.
    pub family: Family,
    /// True if the proxy's processes open their own connections through PMI_PORT.
    pub pmi_port: bool,
    /// Number of processes.
    pub ranks: u32,
    /// Number of proxies that the processes are spread over.
    pub nodes: u32,
    /// Maximum time for a proxy to start its processes, and to exit after they have ended.
    pub timeout: Duration,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// The job ended with this exit status (see the [module](super)).
    Status(i32),
    /// A proxy was killed by this signal.
    Signal(i32),
}

/// Starts proxies, and serves them until all of them have ended.
///
/// # Errors
///
/// Returns an error if the proxy cannot be started, or a system call fails. No started process is left running.
pub fn run(options: UpstreamOptions) -> io::Result<JobEnd> {
    ProxyDriver::new(options)?.run()
}

struct Proxy {
    child: Child,
    connection: Option<(NonBlockingStream, ReactorKey)>,
    /// The time by which the proxy must have started its processes or, later, must have exited. `None` while its processes are running.
    deadline: Option<Instant>,
}

impl Proxy {
    fn hang_up(&mut self, reactor: &mut Reactor<DriverSource>) {
        if let Some((_, key)) = self.connection.take() {
            reactor.remove(key);
        }
    }
}

struct ProxyDriver {
    options: UpstreamOptions,
    upstream: Upstream,
    reactor: Reactor<DriverSource>,
    proxies: Vec<Proxy>,
    signals: StopSignals,
    /// The connection to the runner, whose scenario may answer in place of the upstream.
    runner: Option<(Channel, ReactorKey)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverSource {
    Signals,
    Runner,
    Connection(usize),
    Process(usize),
}

impl ProxyDriver {
    fn new(options: UpstreamOptions) -> io::Result<Self> {
        tree::become_subreaper();
        // Crashes are detected by their signal, so core files are not needed.
        _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let mut reactor = Reactor::new()?;
        let signals = StopSignals::catch()?;
        reactor.add(&signals, DriverSource::Signals, WatchMode::Read)?;
        let program = LaunchProgram {
            argv: options.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            dir: None,
        };
        let mut upstream =
            Upstream::new(options.family, options.ranks, options.nodes, program, Box::new(find));
        let runner = match script::runner() {
            Some((runner, first)) => {
                upstream.command(first);
                let key = reactor.add(&runner, DriverSource::Runner, WatchMode::Read)?;
                reactor.mark_ready(key);
                Some((runner, key))
            }
            None => None,
        };
        Ok(Self { options, upstream, reactor, proxies: Vec::new(), signals, runner })
    }

    fn run(mut self) -> io::Result<JobEnd> {
        let end = self.serve();
        // The processes are killed before their connections are closed. Otherwise, a proxy would report an error.
        tree::end_descendants(0);
        self.proxies.clear();
        end
    }

    fn serve(&mut self) -> io::Result<JobEnd> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if let Some(end) = self.execute_orders()? {
                return Ok(end);
            }
            if self.proxies.iter().all(|p| p.child.is_reaped()) {
                return Ok(JobEnd::Status(self.upstream.status()));
            }
            for source in self.wait()? {
                let end = match source {
                    DriverSource::Signals => self.signalled(),
                    DriverSource::Runner => {
                        self.receive_commands();
                        None
                    }
                    DriverSource::Connection(link) => {
                        self.transfer(link, &mut buffer);
                        None
                    }
                    DriverSource::Process(link) => {
                        self.transfer(link, &mut buffer);
                        // The last messages from a proxy are handled before its exit.
                        match self.execute_orders()? {
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

    fn execute_orders(&mut self) -> io::Result<Option<JobEnd>> {
        while let Some(order) = self.upstream.next_order() {
            match order {
                DriverOrder::Start { link, group, proxy } => self.start(link, group, proxy)?,
                DriverOrder::Send { link, bytes } => {
                    let connection = self.proxies.get_mut(link).and_then(|p| p.connection.as_mut());
                    if let Some((connection, key)) = connection {
                        connection.push(bytes);
                        connection.flush();
                        self.reactor.watch_writes(*key, connection.is_blocked());
                        // A proxy may need to finish writing before it reads its responses, so the job ends only if very many bytes
                        // are queued.
                        if connection.unwritten() > UNWRITTEN_MAX {
                            log(format_args!("proxy {link} has stopped reading responses"));
                            return Ok(Some(JobEnd::Status(1)));
                        }
                    }
                }
                DriverOrder::HangUp { link } => {
                    let proxy = &mut self.proxies[link];
                    proxy.hang_up(&mut self.reactor);
                    proxy.deadline = Some(Instant::now() + self.options.timeout);
                }
                DriverOrder::Report(kind) => self.report(&kind),
                DriverOrder::Output { stderr, bytes } => {
                    // If nothing reads the output any more, the output is dropped.
                    _ = if stderr { io::stderr().write_all(&bytes) } else { io::stdout().write_all(&bytes) };
                }
                DriverOrder::End { status, reason } => {
                    log(format_args!("{reason}"));
                    return Ok(Some(JobEnd::Status(status)));
                }
            }
        }
        Ok(None)
    }

    /// Reports an event, and waits until the runner can read it. Otherwise, the runner could see a process's response before the report of
    /// the request that the response answers.
    fn report(&mut self, kind: &EventKind) {
        if let Some((runner, _)) = &mut self.runner {
            // If the runner has ended, nothing reads the report, and `receive_commands` notices the end.
            _ = runner.send_whole(kind);
        }
    }

    /// Carries out the commands from the runner.
    fn receive_commands(&mut self) {
        let Some((runner, key)) = &mut self.runner else { return };
        for command in runner.messages() {
            self.upstream.command(command);
        }
        if runner.is_over() {
            self.reactor.remove(*key);
            self.runner = None;
        }
    }

    fn start(&mut self, link: usize, group: u32, proxy: u32) -> io::Result<()> {
        debug_assert_eq!(link, self.proxies.len());
        let (ours, theirs) = pair()?;
        let mut command = Command::new(&self.options.proxy);
        command.env_clear();
        command.envs(std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.starts_with("PMI_CONFORM") || ENVIRONMENT.contains(&&*name)
        }));
        let fd = theirs.as_raw_fd().to_string();
        match self.options.family {
            Family::Intel => command
                .args(["--auto-cleanup", "1", "--abort-signal", "9", "--usize", UNIVERSE_SIZE])
                .envs(intel_environment(&fd, group, proxy)),
            _ => command.args(arguments(&self.options, group, proxy)).env("HYDI_CONTROL_FD", fd),
        };
        command.stdin(Stdio::null()).process_group(0);
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
        let child = Child::start(command)
            .map_err(context(format_args!("cannot start {}", self.options.proxy.display())))?;
        self.reactor.add(child.pidfd(), DriverSource::Process(link), WatchMode::Read)?;
        let key = self.reactor.add(&ours, DriverSource::Connection(link), WatchMode::Read)?;
        let deadline = Some(Instant::now() + self.options.timeout);
        self.proxies.push(Proxy { child, connection: Some((NonBlockingStream::new(ours), key)), deadline });
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Vec<DriverSource>> {
        // If no deadline is pending, wait without a limit, which shows the judge that this process is idle.
        let due = self.proxies.iter().filter_map(|p| p.deadline).min();
        let limit = due.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let ready = self.reactor.wait(limit)?;
        let mut sources: Vec<DriverSource> = ready.into_iter().map(|Ready { source, .. }| source).collect();
        // The runner's commands are handled before the next messages from the proxies.
        sources.sort_by_key(|source| *source != DriverSource::Runner);
        Ok(sources)
    }

    /// Writes and reads as much as possible on the connection of a proxy.
    fn transfer(&mut self, link: usize, buffer: &mut [u8]) {
        let Some((connection, key)) = &mut self.proxies[link].connection else { return };
        connection.flush();
        self.reactor.watch_writes(*key, connection.is_blocked());
        loop {
            match connection.receive(buffer) {
                ReceiveResult::Nothing => break,
                ReceiveResult::Bytes(n) => {
                    self.upstream.receive(link, &buffer[..n]);
                    if n < buffer.len() {
                        self.reactor.after_read(*key, n, buffer.len());
                        break;
                    }
                }
                ReceiveResult::End => {
                    self.proxies[link].hang_up(&mut self.reactor);
                    break;
                }
            }
        }
        let proxy = &mut self.proxies[link];
        let began = self.upstream.awaited(link).is_none();
        // While its processes run, a proxy has no deadline. It gets a deadline when its processes have ended or it has closed its
        // connection.
        if self.upstream.has_ended(link) || proxy.connection.is_none() {
            proxy.deadline.get_or_insert(Instant::now() + self.options.timeout);
        } else if began {
            proxy.deadline = None;
        }
    }

    /// Handles the exit of a proxy, after everything that it sent has been read.
    fn exited(&mut self, link: usize) -> io::Result<Option<JobEnd>> {
        let proxy = &mut self.proxies[link];
        if proxy.child.is_reaped() {
            return Ok(None);
        }
        proxy.hang_up(&mut self.reactor);
        proxy.deadline = None;
        let exit = proxy.child.wait();
        let (group, proxy) = self.upstream.proxy_at(link);
        self.report(&EventKind::ProxyEnded { group, proxy, exit });
        let code = match exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                log(format_args!("proxy {link} died of signal {signal} ({name})"));
                return Ok(Some(JobEnd::Signal(signal)));
            }
        };
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} exited with status {code} instead of sending {awaited}"));
            return Ok(Some(JobEnd::Status(PROTOCOL_ERROR_STATUS)));
        }
        if !self.upstream.has_ended(link) {
            log(format_args!(
                "proxy {link} exited with status {code} without reporting the exit statuses of its processes"
            ));
            return Ok(Some(JobEnd::Status(if code == 0 { 1 } else { code })));
        }
        if code != 0 {
            log(format_args!("proxy {link} exited with status {code}"));
            if self.upstream.status() == 0 {
                return Ok(Some(JobEnd::Status(code)));
            }
        }
        Ok(None)
    }

    /// Returns the end of the job if a proxy has exceeded its deadline.
    fn overdue(&mut self) -> Option<JobEnd> {
        let now = Instant::now();
        let link = self.proxies.iter().position(|p| p.deadline.is_some_and(|d| d <= now))?;
        let seconds = self.options.timeout.as_secs_f64();
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} did not send {awaited} within {seconds} s"));
            return Some(JobEnd::Status(PROTOCOL_ERROR_STATUS));
        }
        log(format_args!("proxy {link} did not exit within {seconds} s of its last message"));
        Some(JobEnd::Status(match self.upstream.status() {
            0 => 1,
            status => status,
        }))
    }

    fn signalled(&mut self) -> Option<JobEnd> {
        let signal = self.signals.take().into_iter().next()?;
        log(format_args!("received signal {signal}; ending the job"));
        Some(JobEnd::Status(128 + signal))
    }
}

/// Returns the command line of a proxy.
fn arguments(options: &UpstreamOptions, group: u32, proxy: u32) -> Vec<String> {
    let mut words = vec![
        // The proxy requires this option, although it inherits its connection and therefore ignores the address.
        ("--control-port", "127.0.0.1:1".to_owned()),
        ("--rmk", "user".to_owned()),
        ("--launcher", "fork".to_owned()),
        ("--demux", "poll".to_owned()),
        ("--pgid", group.to_string()),
        ("--usize", UNIVERSE_SIZE.to_owned()),
        ("--pmi-port", u8::from(options.pmi_port).to_string()),
        ("--gpus-per-proc", "-2".to_owned()),
    ];
    if options.pmi_port {
        // Without this option, the proxy announces the external address of this machine.
        words.push(("--iface", "lo".to_owned()));
    }
    if options.family.has_subdevice_option() {
        words.push(("--gpu-subdevs-per-proc", "-2".to_owned()));
    }
    words.push(("--proxy-id", proxy.to_string()));
    words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Returns the variables that Intel's proxy expects. Normally, another Intel program sets them.
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

/// Finds the file of the program in a spawn request, before a proxy is ordered to start it.
fn find(program: SpawnProgram) -> io::Result<LaunchProgram> {
    let program = Executable::spawned(program);
    let file = program.resolve()?;
    let name = if program.path.is_some() { file.into_os_string() } else { program.name };
    let argv = std::iter::once(name).chain(program.args).map(OsString::into_vec).collect();
    Ok(LaunchProgram { argv, dir: program.dir.map(|d| d.into_os_string().into_vec()) })
}

/// Logs a line to standard error. A failed write is ignored.
fn log(line: std::fmt::Arguments<'_>) {
    _ = io::stderr().write_all(format!("hydra-upstream: {line}\n").as_bytes());
}
