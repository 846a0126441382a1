//! An agent that cannot reach the runner's socket, on another machine or in another mount namespace: it connects to the address
//! that the runner has announced, shows the token of its launch, and carries bytes between that connection and its PMI_FD.
//!
//! All goes over the one connection, in order: what the runner orders, and what the process manager does. So a process that is told to
//! end has written before what it was told to write before.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::channel::Channel;
use super::protocol::{Namespaces, Order, Pass, Relayed, Welcome};
use super::{RUNNER_GONE, die};
use crate::process::connection::{CHUNK, NonBlockingStream, Received};
use crate::process::foreign::{DYING, Foreign};
use crate::process::reactor::{Key, Reactor, Ready, Wanted};
use crate::process::{context, tcp, tree};
use pmi_judge::event::Bytes;

/// The option behind which an agent finds its way, if it has it by its arguments.
pub(crate) const OPTION: &str = "--relay";

/// Holds the way for processes that are spawned, whose arguments are not ours to make. Process managers keep variables from processes that
/// begin with PMI_.
pub(crate) const VARIABLE: &str = "CONFORM_RELAY";

/// Longest time until a connection is made.
const PATIENCE: Duration = Duration::from_secs(10);
/// A machine of which nothing is heard for so long is gone.
const GONE: Duration = Duration::from_secs(30);

/// Most bytes that wait to be written to PMI_FD.
const UNWRITTEN_MAX: usize = 8 << 20;

/// How soon it is looked again whether the process manager has read what was written, at first and at last.
const FIRST_LOOK: Duration = Duration::from_micros(20);
const LAST_LOOK: Duration = Duration::from_millis(20);

/// How an agent finds the runner over the network: `ADDRESS:PORT/TOKEN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.token)
    }
}

impl Way {
    fn parse(text: &str) -> Option<Self> {
        let (address, token) = text.split_once('/')?;
        Some(Self { address: address.parse().ok()?, token: token.to_owned() })
    }

    /// The way that an argument tells.
    pub(super) fn of_argument(text: &str) -> io::Result<Self> {
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("{OPTION} takes ADDRESS:PORT/TOKEN"));
        Self::parse(text).ok_or_else(wrong)
    }

    /// The way that the environment tells.
    pub(super) fn of_environment() -> Option<Self> {
        Self::parse(&std::env::var(VARIABLE).ok()?)
    }

    /// Connects, and is let in.
    pub(super) fn connect(&self) -> io::Result<Channel> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)
            .map_err(context(format!("the runner cannot be reached at {}", self.address)))?;
        prepare(&stream)?;
        let mut runner = Channel::new(stream);
        runner.send_whole(&Pass { token: self.token.clone() })?;
        match runner.wait::<Welcome>()? {
            Some(Welcome {}) => Ok(runner),
            None => {
                let what = format!("the runner at {} knows no launch of our token", self.address);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
            }
        }
    }
}

/// Small messages go at once, and an end that is never told, since a machine is gone, is found out.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, GONE / 3)?;
    sockopt::set_tcp_keepintvl(stream, GONE / 6)?;
    sockopt::set_tcp_user_timeout(stream, GONE.as_millis() as u32)?;
    Ok(())
}

/// The path by which an agent knows the process group that it is spawned in: each `./` before its name counts one. There is no folder
/// of ours on other machines that could tell it.
pub(super) fn path_of_group(agent: &Path, group: u32) -> std::path::PathBuf {
    let folder = agent.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let name = agent.file_name().unwrap_or_default().to_string_lossy();
    format!("{}/{}{name}", folder.trim_end_matches('/'), "./".repeat(group as usize)).into()
}

/// The inverse of [`path_of_group`].
pub(super) fn group_of_path(path: &Path) -> u32 {
    let text = path.as_os_str().as_encoded_bytes();
    let folder = text.iter().rposition(|b| *b == b'/').map_or(&[][..], |end| &text[..=end]);
    let mut rest = folder;
    let mut group = 0;
    while let Some(shorter) = rest.strip_suffix(b"/./") {
        group += 1;
        rest = &folder[..=shorter.len()];
    }
    group
}

/// Where this process runs.
pub(crate) fn place() -> Namespaces {
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        format!("{} {}", kernel.trim_end(), link.display())
    };
    Namespaces { processes: namespace("pid"), network: namespace("net") }
}

/// What is waited for.
#[derive(Clone, Copy)]
enum Source {
    Runner,
    Pmi,
    Maker,
}

struct Relay {
    reactor: Reactor<Source>,
    runner: Channel,
    runner_key: Key,
    /// Of the process, until it is closed.
    pmi: Option<Pmi>,
    /// Who has the other end, until that one has ended.
    maker: Option<(Foreign, Key)>,
    buffer: Vec<u8>,
    /// Orders to write and to close that have been obeyed.
    obeyed: u64,
    /// So many of them the runner knows to be carried out.
    told: u64,
    look: Duration,
}

struct Pmi {
    connection: NonBlockingStream,
    key: Key,
    /// Nothing more comes from the process manager.
    over: bool,
}

/// The process that has the other end of a connection, if it is on this machine.
fn maker_of(connection: &OwnedFd) -> Option<Foreign> {
    let pid = match tcp::ends(connection) {
        Some(ends) => tcp::owner(tcp::other_end(ends)?.inode, &tree::everybody()),
        None => tree::maker(connection),
    };
    Foreign::new(pid?)
}

/// Carries bytes until the runner orders the end, and gives the status to exit with.
pub(super) fn run(runner: Channel, pmi: Option<OwnedFd>) -> io::Result<u8> {
    let mut reactor = Reactor::new()?;
    let runner_key = reactor.add(&runner, Source::Runner, Wanted::Read)?;
    let maker = pmi.as_ref().and_then(maker_of).map(|maker| {
        let key = reactor.add(maker.pidfd(), Source::Maker, Wanted::Read)?;
        io::Result::Ok((maker, key))
    });
    let maker = maker.transpose()?;
    let pmi = pmi.map(|fd| {
        let connection = NonBlockingStream::over(fd);
        let key = reactor.add(&connection, Source::Pmi, Wanted::Read)?;
        io::Result::Ok(Pmi { connection, key, over: false })
    });
    let pmi = pmi.transpose()?;
    let buffer = vec![0; CHUNK];
    let (obeyed, told, look) = (0, 0, FIRST_LOOK);
    let mut relay = Relay { reactor, runner, runner_key, pmi, maker, buffer, obeyed, told, look };
    loop {
        let limit = (relay.told < relay.obeyed).then_some(relay.look);
        for Ready { source, writable } in relay.reactor.wait(limit)? {
            match source {
                Source::Runner => {
                    if let Some(status) = relay.hear_runner(writable)? {
                        return Ok(status);
                    }
                }
                Source::Pmi => relay.hear_server(writable)?,
                Source::Maker => relay.tell_death()?,
            }
        }
        relay.tell_taken()?;
    }
}

impl Relay {
    /// Tells the runner. While it does not read, nothing is read for it.
    fn tell(&mut self, what: &Relayed) -> io::Result<()> {
        let was_blocked = self.runner.is_blocked();
        self.runner.send(what);
        if !was_blocked && self.runner.is_blocked() {
            self.reactor.set(self.runner_key, Wanted::ReadWrite)?;
        }
        Ok(())
    }

    /// Does what the runner says. The status, if it is to end.
    fn hear_runner(&mut self, writable: bool) -> io::Result<Option<u8>> {
        if writable && self.runner.is_blocked() {
            self.runner.flush();
            if !self.runner.is_blocked() {
                self.reactor.set(self.runner_key, Wanted::Read)?;
                // It was not read from meanwhile.
                self.pmi.iter().for_each(|pmi| self.reactor.again(pmi.key));
            }
        }
        if self.runner.receive_some() {
            self.reactor.again(self.runner_key);
        }
        while let Some(order) = self.runner.next::<Order>() {
            match order.map_err(io::Error::other)? {
                Order::Write(Bytes(bytes)) => self.write(bytes)?,
                Order::Close => {
                    if let Some(pmi) = self.pmi.take() {
                        self.reactor.remove(pmi.key);
                    }
                    self.obeyed += 1;
                }
                // Nothing is closed before: that is the kernel's to do.
                Order::Exit(status) => std::process::exit(status.into()),
                Order::Kill(signal) => return die(signal).map(Some),
                Order::Call { .. } => return Ok(Some(RUNNER_GONE)),
            }
        }
        Ok(self.runner.is_over().then_some(RUNNER_GONE))
    }

    fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.obeyed += 1;
        self.look = FIRST_LOOK;
        let Some(pmi) = &mut self.pmi else { return Ok(()) };
        // The runner stops there, too.
        if pmi.connection.unwritten() + bytes.len() <= UNWRITTEN_MAX {
            pmi.connection.push(bytes);
            pmi.flush(&mut self.reactor)?;
        }
        Ok(())
    }

    /// Carries what the process manager has written.
    fn hear_server(&mut self, writable: bool) -> io::Result<()> {
        let Some(pmi) = &mut self.pmi else { return Ok(()) };
        if writable {
            pmi.flush(&mut self.reactor)?;
        }
        if pmi.over || self.runner.is_blocked() {
            return Ok(());
        }
        match pmi.connection.receive(&mut self.buffer) {
            Received::Nothing => Ok(()),
            Received::Bytes(n) => {
                self.reactor.after_read(pmi.key, n, self.buffer.len());
                let bytes = Bytes(self.buffer[..n].to_vec());
                self.tell(&Relayed::FromServer(bytes))
            }
            Received::End => {
                pmi.over = true;
                // Its descriptors are closed a moment before it has ended, and what the runner does next may be our end.
                if self.maker.as_ref().is_some_and(|(maker, _)| maker.ends_within(DYING)) {
                    self.tell_death()?;
                }
                self.tell(&Relayed::ClosedByServer)
            }
        }
    }

    /// Tells how the process has ended that has the other end.
    fn tell_death(&mut self) -> io::Result<()> {
        let Some((maker, key)) = self.maker.take() else { return Ok(()) };
        self.reactor.remove(key);
        match maker.killed_by() {
            Some((name, signal)) => self.tell(&Relayed::Died { pid: maker.pid(), name, signal }),
            None => Ok(()),
        }
    }

    /// Tells that all orders are carried out, once they are.
    fn tell_taken(&mut self) -> io::Result<()> {
        if self.told == self.obeyed {
            return Ok(());
        }
        let taken = self.pmi.as_ref().is_none_or(|pmi| {
            let unread = || pmi.connection.unread_bytes().is_some_and(|n| n > 0);
            pmi.over || pmi.connection.unwritten() == 0 && !unread()
        });
        if !taken {
            self.look = (self.look * 2).min(LAST_LOOK);
            return Ok(());
        }
        self.told = self.obeyed;
        self.tell(&Relayed::Taken(self.told))
    }
}

impl Pmi {
    fn flush(&mut self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let was_blocked = self.connection.is_blocked();
        self.connection.flush();
        match (was_blocked, self.connection.is_blocked()) {
            (false, true) => reactor.set(self.key, Wanted::ReadWrite),
            (true, false) => reactor.set(self.key, Wanted::Read),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_agent_tells_its_process_group() {
        for agent in ["/opt/pmi/pmi-conform-agent", "/pmi-conform-agent"] {
            for group in [0, 1, 12] {
                let path = path_of_group(Path::new(agent), group);
                assert_eq!(group_of_path(&path), group, "{}", path.display());
                // It is the same file.
                assert_eq!(path, Path::new(agent));
            }
        }
        assert_eq!(group_of_path(Path::new("pmi-conform-agent")), 0);
    }

    #[test]
    fn a_way_is_read_as_it_was_written() {
        for address in ["10.0.0.1:5000", "[::1]:5000"] {
            let way = Way { address: address.parse().unwrap(), token: "a1b2".into() };
            assert_eq!(Way::parse(&way.to_string()), Some(way));
        }
        assert!(Way::of_argument("10.0.0.1:5000").is_err());
    }
}
