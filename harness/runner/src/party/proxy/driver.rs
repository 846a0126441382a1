//! The processes and sockets around [`Upstream`].

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pmi_wire::SpawnProgram;
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::script;
use super::upstream::{ILLEGIBLE, Order, Upstream};
use crate::agent::channel::Channel;
use crate::process::child::Child;
use crate::process::connection::{CHUNK, NonBlockingStream, Received, pair};
use crate::process::reactor::{Key, Reactor, Ready, Wanted};
use crate::process::stop::StopSignals;
use crate::process::{context, tree};
use crate::serve::launch::Executable;
use pmi_judge::event::{Exit, What};
use pmi_wire::hydra::Family;
use pmi_wire::hydra::Program;

/// What of our environment a proxy gets, and with it the processes. The rest may be an outer launcher's, by which a
/// proxy would be led astray.
const ENVIRONMENT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD"];

/// Most bytes that wait to be written to a proxy.
const UNWRITTEN_MAX: usize = 64 << 20;

/// What to run.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// The proxy's file.
    pub proxy: PathBuf,
    /// Which protocol it speaks.
    pub family: Family,
    /// Whether its processes make their connections themselves, by PMI_PORT.
    pub pmi_port: bool,
    /// Number of processes.
    pub ranks: u32,
    /// Number of proxies over which they are spread.
    pub nodes: u32,
    /// How long a proxy may take to start its processes, and to end after them.
    pub patience: Duration,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// With this exit status (see the [module](super)).
    Status(i32),
    /// A proxy died of this signal.
    Signal(i32),
}

/// Starts proxies and serves them until the last has ended.
///
/// # Errors
///
/// The proxy cannot be started, or the system refuses what serving takes. Nothing that was started is left running.
pub fn run(options: UpstreamOptions) -> io::Result<JobEnd> {
    Driver::new(options)?.run()
}

struct Proxy {
    child: Child,
    connection: Option<(NonBlockingStream, Key)>,
    /// By when it must have done what it does without a client: begin, or end.
    deadline: Option<Instant>,
}

impl Proxy {
    fn hang_up(&mut self, reactor: &mut Reactor<Source>) {
        if let Some((_, key)) = self.connection.take() {
            reactor.remove(key);
        }
    }
}

struct Driver {
    options: UpstreamOptions,
    upstream: Upstream,
    reactor: Reactor<Source>,
    proxies: Vec<Proxy>,
    signals: StopSignals,
    /// Who may want to answer in our stead.
    runner: Option<(Channel, Key)>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Signals,
    Runner,
    Connection(usize),
    Process(usize),
}

impl Driver {
    fn new(options: UpstreamOptions) -> io::Result<Self> {
        tree::become_subreaper();
        // A crash is told by its signal; nobody asked for a core file.
        _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let mut reactor = Reactor::new()?;
        let signals = StopSignals::catch()?;
        reactor.add(&signals, Source::Signals, Wanted::Read)?;
        let program = Program {
            argv: options.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            dir: None,
        };
        let mut upstream =
            Upstream::new(options.family, options.ranks, options.nodes, program, Box::new(find));
        let runner = match script::runner() {
            Some((runner, first)) => {
                upstream.command(first);
                let key = reactor.add(&runner, Source::Runner, Wanted::Read)?;
                reactor.again(key);
                Some((runner, key))
            }
            None => None,
        };
        Ok(Self { options, upstream, reactor, proxies: Vec::new(), signals, runner })
    }

    fn run(mut self) -> io::Result<JobEnd> {
        let end = self.serve();
        // Before the connections are closed, about which a proxy would complain.
        tree::end_descendants(0);
        self.proxies.clear();
        end
    }

    fn serve(&mut self) -> io::Result<JobEnd> {
        let mut buffer = vec![0; CHUNK];
        loop {
            if let Some(end) = self.obey()? {
                return Ok(end);
            }
            if self.proxies.iter().all(|p| p.child.is_reaped()) {
                return Ok(JobEnd::Status(self.upstream.status()));
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
    fn obey(&mut self) -> io::Result<Option<JobEnd>> {
        while let Some(order) = self.upstream.next_order() {
            match order {
                Order::Start { link, group, proxy } => self.start(link, group, proxy)?,
                Order::Send { link, bytes } => {
                    let connection = self.proxies.get_mut(link).and_then(|p| p.connection.as_mut());
                    if let Some((connection, key)) = connection {
                        connection.push(bytes);
                        connection.flush();
                        if connection.is_blocked() {
                            self.reactor.set(*key, Wanted::ReadWrite)?;
                        }
                        // Read from all the same: it may wait for that before it reads.
                        if connection.unwritten() > UNWRITTEN_MAX {
                            log(format_args!("proxy {link} reads nothing of what it is answered"));
                            return Ok(Some(JobEnd::Status(1)));
                        }
                    }
                }
                Order::HangUp { link } => {
                    let proxy = &mut self.proxies[link];
                    proxy.hang_up(&mut self.reactor);
                    proxy.deadline = Some(Instant::now() + self.options.patience);
                }
                Order::Report(what) => self.report(&what),
                Order::Output { stderr, bytes } => {
                    // A reader that is gone wants no more of it.
                    _ = if stderr { io::stderr().write_all(&bytes) } else { io::stdout().write_all(&bytes) };
                }
                Order::End { status, reason } => {
                    log(format_args!("{reason}"));
                    return Ok(Some(JobEnd::Status(status)));
                }
            }
        }
        Ok(None)
    }

    fn report(&mut self, what: &What) {
        if let Some((runner, key)) = &mut self.runner {
            runner.send(what);
            if runner.is_blocked() {
                // What is in the reactor can be changed there.
                let _ = self.reactor.set(*key, Wanted::ReadWrite);
            }
        }
    }

    /// Does as the runner says.
    fn hear(&mut self) {
        let Some((runner, key)) = &mut self.runner else { return };
        let was_blocked = runner.is_blocked();
        runner.flush();
        if was_blocked && !runner.is_blocked() {
            let _ = self.reactor.set(*key, Wanted::Read);
        }
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
                .args(["--auto-cleanup", "1", "--abort-signal", "9", "--usize"])
                .arg(self.options.ranks.to_string())
                .envs(intel_environment(&fd, group, proxy)),
            _ => command.args(arguments(&self.options, group, proxy)).env("HYDI_CONTROL_FD", fd),
        };
        command.stdin(Stdio::null()).process_group(0);
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
        let child = Child::start(command)
            .map_err(context(format_args!("cannot start {}", self.options.proxy.display())))?;
        self.reactor.add(child.pidfd(), Source::Process(link), Wanted::Read)?;
        let key = self.reactor.add(&ours, Source::Connection(link), Wanted::Read)?;
        let deadline = Some(Instant::now() + self.options.patience);
        self.proxies.push(Proxy { child, connection: Some((NonBlockingStream::new(ours), key)), deadline });
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Vec<Source>> {
        // Without a limit whenever nothing is due: by that the judge sees that we wait.
        let due = self.proxies.iter().filter_map(|p| p.deadline).min();
        let limit = due.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let ready = self.reactor.wait(limit)?;
        let mut sources: Vec<Source> = ready.into_iter().map(|Ready { source, .. }| source).collect();
        // What the runner ordered came before what the proxies do next.
        sources.sort_by_key(|source| *source != Source::Runner);
        Ok(sources)
    }

    /// Writes and reads what there is.
    fn transfer(&mut self, link: usize, buffer: &mut [u8]) {
        let Some((connection, key)) = &mut self.proxies[link].connection else { return };
        if connection.is_blocked() {
            connection.flush();
            if !connection.is_blocked() {
                // What is in the reactor can be changed there.
                let _ = self.reactor.set(*key, Wanted::Read);
            }
        }
        loop {
            match connection.receive(buffer) {
                Received::Nothing => break,
                Received::Bytes(n) => {
                    self.upstream.receive(link, &buffer[..n]);
                    if n < buffer.len() {
                        self.reactor.after_read(*key, n, buffer.len());
                        break;
                    }
                }
                Received::End => {
                    self.proxies[link].hang_up(&mut self.reactor);
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
    fn exited(&mut self, link: usize) -> io::Result<Option<JobEnd>> {
        let proxy = &mut self.proxies[link];
        if proxy.child.is_reaped() {
            return Ok(None);
        }
        proxy.hang_up(&mut self.reactor);
        proxy.deadline = None;
        let exit = proxy.child.wait();
        let (group, proxy) = self.upstream.proxy_at(link);
        self.report(&What::ProxyEnded { group, proxy, exit });
        let code = match exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                log(format_args!("proxy {link} died of signal {signal} ({name})"));
                return Ok(Some(JobEnd::Signal(signal)));
            }
        };
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} ended with status {code} instead of sending {awaited}"));
            return Ok(Some(JobEnd::Status(ILLEGIBLE)));
        }
        if !self.upstream.has_ended(link) {
            log(format_args!(
                "proxy {link} ended with status {code} and did not tell how its processes ended"
            ));
            return Ok(Some(JobEnd::Status(if code == 0 { 1 } else { code })));
        }
        if code != 0 {
            log(format_args!("proxy {link} ended with status {code}"));
            if self.upstream.status() == 0 {
                return Ok(Some(JobEnd::Status(code)));
            }
        }
        Ok(None)
    }

    /// Whether a proxy has used up its time.
    fn overdue(&mut self) -> Option<JobEnd> {
        let now = Instant::now();
        let link = self.proxies.iter().position(|p| p.deadline.is_some_and(|d| d <= now))?;
        let seconds = self.options.patience.as_secs_f64();
        if let Some(awaited) = self.upstream.awaited(link) {
            log(format_args!("proxy {link} did not send {awaited} within {seconds} s"));
            return Some(JobEnd::Status(ILLEGIBLE));
        }
        log(format_args!("proxy {link} did not end within {seconds} s of its last word"));
        Some(JobEnd::Status(match self.upstream.status() {
            0 => 1,
            status => status,
        }))
    }

    fn signalled(&mut self) -> Option<JobEnd> {
        let signal = self.signals.take().into_iter().next()?;
        log(format_args!("ending the job: signal {signal}"));
        Some(JobEnd::Status(128 + signal))
    }
}

/// The command line of a proxy.
fn arguments(options: &UpstreamOptions, group: u32, proxy: u32) -> Vec<String> {
    let mut words = vec![
        // Must be named although it is not used where the connection is inherited.
        ("--control-port", "127.0.0.1:1".to_owned()),
        ("--rmk", "user".to_owned()),
        ("--launcher", "fork".to_owned()),
        ("--demux", "poll".to_owned()),
        ("--pgid", group.to_string()),
        ("--usize", options.ranks.to_string()),
        ("--pmi-port", u8::from(options.pmi_port).to_string()),
        ("--gpus-per-proc", "-2".to_owned()),
    ];
    if options.pmi_port {
        // Else it gives the address by which others may know this machine.
        words.push(("--iface", "lo".to_owned()));
    }
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
fn find(program: SpawnProgram) -> io::Result<Program> {
    let program = Executable::spawned(program);
    let file = program.resolve()?;
    let name = if program.path.is_some() { file.into_os_string() } else { program.name };
    let argv = std::iter::once(name).chain(program.args).map(OsString::into_vec).collect();
    Ok(Program { argv, dir: program.dir.map(|d| d.into_os_string().into_vec()) })
}

/// One line on stderr; that it may be closed is no reason to stop.
fn log(line: std::fmt::Arguments<'_>) {
    _ = io::stderr().write_all(format!("hydra-upstream: {line}\n").as_bytes());
}
