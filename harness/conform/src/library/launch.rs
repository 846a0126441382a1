//! Starts the processes that load a library, one for each rank, and listens to them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Argument, Library, Order, Report, Returned};
use crate::event::{Bytes, Exit};
use crate::launch::idle::Watch;
use crate::launch::process::{is_ours, scratch_folder};
use crate::launch::{Implementation, proctree};

/// The hidden command by which the binary is to load a library.
pub(crate) const COMMAND: &str = "library-agent";
/// Longest line of output that is kept.
const OUTPUT_LINE: usize = 1024;
/// Most lines of output that are kept of a process; the rest is read and dropped.
const OUTPUT_LINES: usize = 400;
/// Most bytes that are read of a file of standard error.
const STDERR_MAX: u64 = 1 << 20;
/// Longest report of a process.
const REPORT_MAX: usize = 256 << 20;
/// Most bytes that wait to be written to one connection.
const UNWRITTEN_MAX: usize = 8 << 20;

/// Something that a process did.
#[derive(Debug)]
pub(crate) enum News {
    /// The library has been loaded, or why not.
    Loaded(Option<String>),
    /// The call has returned.
    Returned(Returned),
    /// The call could not be made: whether the library lacks the function, and why in words.
    NotCalled(bool, String),
    /// The library has written to its PMI_FD.
    Wire(Vec<u8>),
    /// The library has closed its PMI_FD.
    WireClosed,
    /// A line of output, of the rank or of a launcher; whether on standard error.
    Output(bool, Bytes),
    /// The process is gone. The last news of it. How it ended is not told of those that a launcher has started.
    Exited(Option<Exit>),
}

/// What came of waiting.
#[derive(Debug)]
pub(crate) enum Waited {
    /// A rank's process did something.
    News(u32, News),
    /// A launcher has written something, or passed it on.
    Launcher(bool, Bytes),
    /// The processes waited for will do nothing unless we act.
    Idle,
    /// The deadline has passed.
    Deadline,
    /// The user wants the run to end.
    Interrupted,
}

struct Lines {
    pipe: Option<Box<dyn ReadFd>>,
    partial: Vec<u8>,
}

trait ReadFd: Read + AsFd {}
impl<T: Read + AsFd> ReadFd for T {}

struct Process {
    /// `None` of those that a launcher has started.
    child: Option<Child>,
    /// By which what it has started is found.
    mark: String,
    pidfd: Option<OwnedFd>,
    control: Option<UnixStream>,
    report: Vec<u8>,
    pmi: Option<OwnedFd>,
    unwritten: VecDeque<u8>,
    output: [Lines; 2],
    /// Where a launcher has started it: the file that is its standard error, read when it is gone.
    stderr: Option<File>,
    kept_lines: usize,
    gone: bool,
}

/// The processes of one scenario. What is left of them ends with it.
pub(crate) struct Processes<'a> {
    list: BTreeMap<u32, Process>,
    queue: VecDeque<(u32, News)>,
    interrupted: &'a AtomicBool,
    job: Option<Job>,
    /// Ranks of the job.
    ranks: u32,
}

/// What a launcher has started.
struct Job {
    launcher: Child,
    mark: String,
    listener: UnixListener,
    /// Processes that have not said who they are.
    unknown: Vec<(UnixStream, Vec<u8>)>,
    output: [Lines; 2],
    kept_lines: usize,
    pids: HashSet<i32>,
    /// Ended, and told so.
    over: bool,
    /// The last to go: sockets lie in it.
    scratch: tempfile::TempDir,
}

/// A rank for what is said of none: output of a launcher.
const NO_RANK: u32 = u32::MAX;

fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// A mark that no other process of any run has.
fn next_mark() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("library-{}-{count}", std::process::id())
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

impl<'a> Processes<'a> {
    pub(crate) fn new(interrupted: &'a AtomicBool) -> Self {
        Self { list: BTreeMap::new(), queue: VecDeque::new(), interrupted, job: None, ranks: 0 }
    }

    /// Starts a rank's process with these variables. PMI_FD among them is the number that its connection gets.
    pub(crate) fn start(
        &mut self,
        rank: u32,
        library: &Library,
        env: &BTreeMap<String, String>,
    ) -> io::Result<()> {
        let (control, theirs) = pair()?;
        let (pmi, their_pmi) = pair()?;
        let mut command = Command::new(&library.binary);
        command.arg(COMMAND).arg(&library.path).stdin(Stdio::from(theirs));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PMI_")) {
            command.env_remove(name);
        }
        command.envs(&library.env).envs(env);
        let number = env.get("PMI_FD").and_then(|n| n.parse::<i32>().ok()).filter(|n| *n > 2);
        let pmi = match number {
            Some(child_fd) => {
                let mapping = FdMapping { parent_fd: their_pmi, child_fd };
                command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
                Some(pmi)
            }
            None => None,
        };
        proctree::become_subreaper();
        let mark = next_mark();
        command.env(proctree::MARK, &mark);
        let (mut child, _) = proctree::launch(&mark, || {
            let child = command.spawn()?;
            let pid = child.id() as i32;
            Ok::<_, io::Error>((child, pid))
        })?;
        drop(command);
        let pidfd = Pid::from_raw(child.id() as i32)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        let control = UnixStream::from(control);
        nonblocking(&control)?;
        pmi.as_ref().map_or(Ok(()), nonblocking)?;
        let out = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn ReadFd>);
        let err = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn ReadFd>);
        let process = Process {
            output: [Lines::new(out)?, Lines::new(err)?],
            stderr: None,
            child: Some(child),
            mark,
            pidfd,
            control: Some(control),
            report: Vec::new(),
            pmi,
            unwritten: VecDeque::new(),
            kept_lines: 0,
            gone: false,
        };
        self.list.insert(rank, process);
        Ok(())
    }

    /// Lets a process manager start the processes of all ranks; its command line comes back.
    pub(crate) fn launch(
        &mut self,
        ranks: u32,
        server: &Implementation,
        library: &Library,
    ) -> io::Result<Vec<String>> {
        proctree::become_subreaper();
        let scratch = scratch_folder()?;
        let mark = scratch.path().to_string_lossy().into_owned();
        let listener = UnixListener::bind(scratch.path().join(crate::agent::SOCKET))?;
        listener.set_nonblocking(true)?;
        std::os::unix::fs::symlink(&library.path, scratch.path().join(super::agent::LIBRARY))?;
        let folder = crate::agent::folder(scratch.path(), 0);
        std::fs::create_dir_all(&folder)?;
        let agent = folder.join(super::agent::NAME);
        std::os::unix::fs::symlink(&library.binary, &agent)?;
        let words = server.command(ranks, 1, &agent);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).env(proctree::MARK, &mark).env(crate::agent::PATH_VARIABLE, &agent);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PMI_")) {
            if !is_ours(&name) {
                command.env_remove(name);
            }
        }
        command.envs(&server.env).envs(&library.env);
        let (mut launcher, _) = proctree::launch(&mark, || {
            let launcher = command.spawn()?;
            let pid = launcher.id() as i32;
            Ok((launcher, pid))
        })
        .map_err(|e: io::Error| io::Error::new(e.kind(), format!("cannot start \"{}\": {e}", words[0])))?;
        let out = launcher.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn ReadFd>);
        let err = launcher.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn ReadFd>);
        self.ranks = ranks;
        self.job = Some(Job {
            launcher,
            mark,
            listener,
            unknown: Vec::new(),
            output: [Lines::new(out)?, Lines::new(err)?],
            kept_lines: 0,
            pids: HashSet::new(),
            over: false,
            scratch,
        });
        Ok(words)
    }

    fn order(&mut self, rank: u32, order: &Order) {
        let Some(control) = self.list.get(&rank).and_then(|p| p.control.as_ref()) else { return };
        let Ok(mut line) = serde_json::to_vec(order) else { return };
        line.push(b'\n');
        // Calls may carry long strings. The process reads whenever it is not in a call, and that is when orders are given;
        // if it is gone, its end is news enough.
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match rustix::net::send(control, rest, SendFlags::NOSIGNAL) {
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [PollFd::new(control, PollFlags::OUT)];
                    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                    if !matches!(rustix::event::poll(&mut fds, Some(&second)), Ok(n) if n > 0) {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    pub(crate) fn call(&mut self, rank: u32, function: &str, arguments: Vec<Argument>) {
        self.order(rank, &Order::Call { function: function.to_owned(), arguments });
    }

    pub(crate) fn exit(&mut self, rank: u32, status: u8) {
        self.order(rank, &Order::Exit(status));
    }

    pub(crate) fn kill(&mut self, rank: u32, signal: u8) {
        self.order(rank, &Order::Kill(signal));
    }

    /// Writes to the library.
    pub(crate) fn send(&mut self, rank: u32, bytes: &[u8]) {
        let Some(process) = self.list.get_mut(&rank) else { return };
        if process.pmi.is_some() && process.unwritten.len() + bytes.len() <= UNWRITTEN_MAX {
            process.unwritten.extend(bytes);
            process.flush();
        }
    }

    /// Ends the connection to the library.
    pub(crate) fn close(&mut self, rank: u32) {
        if let Some(process) = self.list.get_mut(&rank) {
            process.unwritten.clear();
            if let Some(pmi) = process.pmi.take() {
                // The library may have closed its end already.
                let _ = rustix::net::shutdown(&pmi, rustix::net::Shutdown::Both);
            }
        }
    }

    /// Waits for news, until the deadline. If the processes of `ranks` do nothing more of their own, it says so.
    pub(crate) fn next(&mut self, deadline: Instant, ranks: &[u32]) -> Waited {
        let mut slice = Duration::from_micros(500);
        loop {
            if let Some((rank, news)) = self.queue.pop_front() {
                return match news {
                    News::Output(stderr, line) if rank == NO_RANK => Waited::Launcher(stderr, line),
                    news => Waited::News(rank, news),
                };
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Waited::Interrupted;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.poll(slice.min(left));
            if !self.queue.is_empty() {
                continue;
            }
            if left.is_zero() {
                return Waited::Deadline;
            }
            if !ranks.is_empty() && ranks.iter().all(|rank| self.is_idle(*rank)) && self.queue.is_empty() {
                return Waited::Idle;
            }
            slice = (slice * 2).min(Duration::from_millis(20));
        }
    }

    /// Whether the process waits for something that only we can do.
    fn is_idle(&mut self, rank: u32) -> bool {
        // One that a launcher is to start may still come.
        let Some(process) = self.list.get(&rank) else { return self.job.is_none() };
        if process.gone || !process.unwritten.is_empty() {
            return process.gone;
        }
        // Of a process manager that we know nothing of, only time can tell.
        let Some(pid) = process.child.as_ref().map(|child| child.id() as i32) else { return false };
        let friends = HashSet::from([rustix::process::getpid().as_raw_nonzero().get(), pid]);
        if !Watch::default().all_waiting(|| Some(vec![pid]), &friends, true) {
            return false;
        }
        self.poll(Duration::ZERO);
        self.queue.is_empty()
    }

    fn poll(&mut self, wait: Duration) {
        let mut ranks = Vec::new();
        let mut fds = Vec::new();
        for (rank, process) in self.list.iter().filter(|(_, p)| !p.gone) {
            let mut add = |fd, flags| {
                ranks.push(*rank);
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            };
            if let Some(pidfd) = &process.pidfd {
                add(pidfd.as_fd(), PollFlags::IN);
            }
            if let Some(control) = &process.control {
                add(control.as_fd(), PollFlags::IN);
            }
            if let Some(pmi) = &process.pmi {
                let write = if process.unwritten.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                add(pmi.as_fd(), PollFlags::IN | write);
            }
            for lines in &process.output {
                if let Some(pipe) = &lines.pipe {
                    add(pipe.as_fd(), PollFlags::IN);
                }
            }
        }
        if let Some(job) = &self.job {
            ranks.push(NO_RANK);
            fds.push(PollFd::new(&job.listener, PollFlags::IN));
            let pipes = job.output.iter().filter_map(|lines| lines.pipe.as_ref()).map(|pipe| pipe.as_fd());
            for fd in pipes.chain(job.unknown.iter().map(|(stream, _)| stream.as_fd())) {
                ranks.push(NO_RANK);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        if !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(n) if n > 0) {
            // The end of a launcher shows nowhere else.
            drop(fds);
            return self.read_job();
        }
        let mut ready: Vec<u32> =
            ranks.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(r, _)| r).collect();
        drop(fds);
        ready.dedup();
        for rank in ready {
            if let Some(process) = self.list.get_mut(&rank) {
                process.flush();
                process.read(&mut |news| self.queue.push_back((rank, news)));
            }
        }
        self.read_job();
    }

    fn read_job(&mut self) {
        let Some(job) = &mut self.job else { return };
        job.read(self.ranks, &mut self.list, &mut |news| self.queue.push_back((NO_RANK, news)));
        // Those that never came have nothing to be polled.
        for (rank, process) in self.list.iter_mut().filter(|(_, p)| !p.gone && p.control.is_none()) {
            process.read(&mut |news| self.queue.push_back((*rank, news)));
        }
    }
}

impl Process {
    /// One that a launcher has started.
    fn reporting(control: UnixStream, stderr: &Path) -> Self {
        let mut process = Self { control: Some(control), ..Self::absent() };
        // Without it, nothing will be seen of standard error.
        process.stderr = File::open(stderr).ok();
        process
    }

    fn absent() -> Self {
        let no_lines = || Lines { pipe: None, partial: Vec::new() };
        Self {
            child: None,
            mark: String::new(),
            pidfd: None,
            control: None,
            report: Vec::new(),
            pmi: None,
            unwritten: VecDeque::new(),
            output: [no_lines(), no_lines()],
            stderr: None,
            kept_lines: 0,
            gone: false,
        }
    }

    fn flush(&mut self) {
        while let (Some(pmi), false) = (&self.pmi, self.unwritten.is_empty()) {
            let (front, _) = self.unwritten.as_slices();
            match rustix::net::send(pmi, front, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => drop(self.unwritten.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // The library is gone, which reading tells.
                Err(_) => self.unwritten.clear(),
            }
        }
    }

    /// Reads whatever is there. What the library wrote comes before what its call returned.
    fn read(&mut self, tell: &mut dyn FnMut(News)) {
        let exit = self.ended();
        // Reports are taken in first and told last: the library cannot write anything after its call has returned.
        let reports = self.read_reports();
        let exit = exit.or_else(|| self.ended());
        self.read_wire(exit.is_some(), tell);
        for stderr in [false, true] {
            // Of a process that has ended, everything, within bounds.
            for _ in 0..if exit.is_some() { OUTPUT_LINES } else { 1 } {
                self.read_output(stderr, tell);
            }
        }
        reports.into_iter().for_each(&mut *tell);
        if let Some(exit) = exit {
            if let Some(file) = self.stderr.take() {
                let mut text = Vec::new();
                let _ = file.take(STDERR_MAX).read_to_end(&mut text);
                for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).take(OUTPUT_LINES) {
                    tell(News::Output(true, Bytes(line[..line.len().min(OUTPUT_LINE)].to_vec())));
                }
            }
            self.gone = true;
            self.control = None;
            self.pmi = None;
            tell(News::Exited(exit));
        }
    }

    /// How the process has ended, if it has and as far as that is known.
    fn ended(&mut self) -> Option<Option<Exit>> {
        let Some(child) = &mut self.child else { return self.control.is_none().then_some(None) };
        let status = child.try_wait().ok().flatten()?;
        Some(Some(match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.code().unwrap_or(255)),
        }))
    }

    fn read_reports(&mut self) -> Vec<News> {
        let mut buffer = [0; 16 * 1024];
        while let Some(control) = &mut self.control {
            match control.read(&mut buffer) {
                Ok(n) if n > 0 && self.report.len() < REPORT_MAX => {
                    self.report.extend_from_slice(&buffer[..n])
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => self.control = None,
            }
        }
        let mut news = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', &self.report) {
            let line: Vec<u8> = self.report.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Report::Loaded(error)) => news.push(News::Loaded(error)),
                Ok(Report::Returned(returned)) => news.push(News::Returned(returned)),
                Ok(Report::NotCalled { missing, why }) => news.push(News::NotCalled(missing, why)),
                // A library that writes to descriptors that are not its own.
                Ok(Report::Hello { .. }) | Err(_) => {}
            }
        }
        news
    }

    fn read_wire(&mut self, all: bool, tell: &mut dyn FnMut(News)) {
        let mut buffer = [0; 64 * 1024];
        while let Some(pmi) = &self.pmi {
            match rustix::io::read(pmi, &mut buffer) {
                Ok(n) if n > 0 => tell(News::Wire(buffer[..n].to_vec())),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                _ => {
                    self.pmi = None;
                    tell(News::WireClosed);
                }
            }
            // A library that floods must not keep us here.
            if !all {
                return;
            }
        }
    }

    fn read_output(&mut self, stderr: bool, tell: &mut dyn FnMut(News)) {
        self.output[usize::from(stderr)]
            .read(&mut self.kept_lines, &mut |line| tell(News::Output(stderr, line)));
    }
}

impl Lines {
    fn new(pipe: Option<Box<dyn ReadFd>>) -> io::Result<Self> {
        pipe.as_ref().map_or(Ok(()), |pipe| nonblocking(pipe.as_fd()))?;
        Ok(Self { pipe, partial: Vec::new() })
    }

    /// Reads once, and tells the lines that are complete.
    fn read(&mut self, kept: &mut usize, tell: &mut dyn FnMut(Bytes)) {
        let mut buffer = [0; 64 * 1024];
        let over = match self.pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
            Some(Ok(n)) if n > 0 => {
                self.partial.extend_from_slice(&buffer[..n]);
                false
            }
            Some(Err(e)) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                false
            }
            Some(_) => true,
            None => return,
        };
        if over {
            self.pipe = None;
            if !self.partial.is_empty() && self.partial.last() != Some(&b'\n') {
                self.partial.push(b'\n');
            }
        }
        while let Some(end) = memchr::memchr(b'\n', &self.partial) {
            let mut line: Vec<u8> = self.partial.drain(..=end).collect();
            line.pop();
            line.truncate(OUTPUT_LINE);
            if *kept < OUTPUT_LINES {
                *kept += 1;
                tell(Bytes(line));
            }
        }
        self.partial.truncate(OUTPUT_LINE);
    }
}

impl Job {
    /// Waits for the launcher's end, reading what it still writes.
    fn ends_within(&mut self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            if !matches!(self.launcher.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            for lines in &mut self.output {
                lines.read(&mut 0, &mut |_| ());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads whatever is there: output, and processes that say who they are.
    fn read(&mut self, ranks: u32, list: &mut BTreeMap<u32, Process>, tell: &mut dyn FnMut(News)) {
        let ended = !self.over && self.launcher.try_wait().is_ok_and(|status| status.is_some());
        for stderr in [false, true] {
            for _ in 0..if ended { OUTPUT_LINES } else { 1 } {
                let lines = &mut self.output[usize::from(stderr)];
                lines.read(&mut self.kept_lines, &mut |line| tell(News::Output(stderr, line)));
            }
        }
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && self.unknown.len() < 4096 {
                self.unknown.push((stream, Vec::new()));
            }
        }
        for (mut stream, mut text) in std::mem::take(&mut self.unknown) {
            // Byte by byte: what comes after the first line is for somebody else.
            let mut byte = [0];
            let open = loop {
                match stream.read(&mut byte) {
                    Ok(1) => text.push(byte[0]),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break true,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    _ => break false,
                }
                if text.last() == Some(&b'\n') || text.len() > OUTPUT_LINE {
                    break false;
                }
            };
            if open {
                self.unknown.push((stream, text));
            } else if let Ok(Report::Hello { rank, pid }) = serde_json::from_slice(&text) {
                self.pids.insert(pid);
                let free = |rank: &u32| *rank < ranks && !list.contains_key(rank);
                if let Some(rank) = rank.filter(free).or_else(|| (0..ranks).find(free)) {
                    let stderr = self.scratch.path().join(super::agent::stderr_name(pid as u32));
                    list.insert(rank, Process::reporting(stream, &stderr));
                }
            }
        }
        if ended {
            self.over = true;
            // Ranks that never came will not come any more.
            for rank in 0..ranks {
                list.entry(rank).or_insert_with(Process::absent);
            }
        }
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for process in self.list.values_mut() {
            let Some(child) = &mut process.child else { continue };
            let pid = child.id() as i32;
            // Whatever the library has started ends with it.
            let _ = child.kill();
            if proctree::anything_left(&process.mark, pid, &HashSet::new()) {
                proctree::end_all(&process.mark, pid, &HashSet::new());
            }
            let _ = child.wait();
            proctree::launch_ended(&process.mark, pid);
        }
        // A launcher may have started processes that are not ours to end, on its behalf or elsewhere: first it is asked.
        for rank in self.list.keys().copied().collect::<Vec<_>>() {
            self.exit(rank, 0);
        }
        if let Some(job) = &mut self.job {
            let pid = job.launcher.id() as i32;
            if !job.ends_within(Duration::from_millis(500))
                && let Some(launcher) = Pid::from_raw(pid)
            {
                let _ = rustix::process::kill_process(launcher, Signal::TERM);
                job.ends_within(Duration::from_secs(2));
            }
            proctree::end_all(&job.mark, pid, &job.pids);
            let _ = job.launcher.kill();
            let _ = job.launcher.wait();
            proctree::launch_ended(&job.mark, pid);
        }
    }
}
