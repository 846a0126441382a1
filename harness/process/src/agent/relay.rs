//! An agent that cannot reach the runner's socket, because the agent is on another machine or in another mount namespace. The agent
//! connects to the address that the runner has announced, sends the token of its launch, and relays bytes between that connection and its
//! PMI_FD.
//!
//! The runner's orders arrive over a single connection, and the agent carries them out one after another. When the agent receives the order
//! to exit, it has therefore carried out all earlier orders to write.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::channel::Channel;
use super::protocol::{AgentOrder, Namespaces, RelayReport, TokenAccepted, TokenMessage};
use super::{RUNNER_LOST_STATUS, kill_self};
use crate::connection::{NonBlockingStream, READ_SIZE, ReceiveResult};
use crate::context;
use crate::observe::{tcp, tree};
use crate::reactor::{Reactor, ReactorKey, Ready, WatchMode};
use crate::trace::foreign::{ForeignProcess, MAX_DYING_TIME};
use pmi_judge::event::Bytes;

/// The option that precedes the address and the token in the arguments of an agent.
pub(crate) const OPTION: &str = "--relay";

/// Environment variable that passes the address and the token to spawned processes, whose arguments the runner does not control. Its name
/// must not begin with `PMI_`, because process managers do not pass on variables with this prefix.
pub const VARIABLE: &str = "CONFORM_RELAY";

/// Maximum time to connect to the runner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which the connection counts as lost if the peer's machine does not respond.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of bytes that can be queued for PMI_FD.
const UNWRITTEN_MAX: usize = 8 << 20;

/// Minimum interval between checks of whether the process manager has read the written bytes.
const MIN_CHECK_INTERVAL: Duration = Duration::from_micros(20);
/// Maximum interval between checks of whether the process manager has read the written bytes.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The address and the token that an agent needs to reach the runner over the network: `ADDRESS:PORT/TOKEN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.token)
    }
}

impl Route {
    fn parse(text: &str) -> Option<Self> {
        let (address, token) = text.split_once('/')?;
        Some(Self { address: address.parse().ok()?, token: token.to_owned() })
    }

    pub(super) fn of_argument(text: &str) -> io::Result<Self> {
        let wrong = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{OPTION}: invalid value: write ADDRESS:PORT/TOKEN"),
            )
        };
        Self::parse(text).ok_or_else(wrong)
    }

    pub(super) fn of_environment() -> Option<Self> {
        Self::parse(&std::env::var(VARIABLE).ok()?)
    }

    /// Connects to the runner, and waits until the runner has accepted the token.
    pub(super) fn connect(&self) -> io::Result<Channel> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT)
            .map_err(context(format!("cannot reach the runner at {}", self.address)))?;
        prepare(&stream)?;
        let mut runner = Channel::new(stream);
        runner.send_whole(&TokenMessage { token: self.token.clone() })?;
        match runner.wait::<TokenAccepted>()? {
            Some(TokenAccepted {}) => Ok(runner),
            None => {
                let what = format!("the runner at {} rejected the token", self.address);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
            }
        }
    }
}

/// Disables the delay of small messages, and enables the detection of unreachable peers.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PEER_TIMEOUT / 3)?;
    sockopt::set_tcp_keepintvl(stream, PEER_TIMEOUT / 6)?;
    sockopt::set_tcp_user_timeout(stream, PEER_TIMEOUT.as_millis() as u32)?;
    Ok(())
}

/// Returns the path of an agent in a spawned process group. The number of `./` before the file name is the group's number: other machines
/// have no scratch folder that could identify the group.
pub(super) fn path_of_group(agent: &Path, group: u32) -> std::path::PathBuf {
    let folder = agent.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let name = agent.file_name().unwrap_or_default().to_string_lossy();
    format!("{}/{}{name}", folder.trim_end_matches('/'), "./".repeat(group as usize)).into()
}

/// Returns the process group that an agent's path encodes. This is the inverse of [`path_of_group`].
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

/// Returns the namespaces of this process.
pub fn place() -> Namespaces {
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        format!("{} {}", kernel.trim_end(), link.display())
    };
    Namespaces { processes: namespace("pid"), network: namespace("net") }
}

#[derive(Clone, Copy)]
enum RelaySource {
    Runner,
    Pmi,
    Peer,
}

struct Relay {
    reactor: Reactor<RelaySource>,
    runner: Channel,
    runner_key: ReactorKey,
    /// The connection of the process, until it is closed.
    pmi: Option<RelayedPmi>,
    /// The process at the other end of `pmi`; `None` if it is not on this machine, or has ended.
    peer: Option<(ForeignProcess, ReactorKey)>,
    buffer: Vec<u8>,
    /// Number of write and close orders that have been carried out.
    executed_orders: u64,
    /// Number of executed orders that have been reported to the runner.
    reported: u64,
    check_interval: Duration,
}

struct RelayedPmi {
    connection: NonBlockingStream,
    key: ReactorKey,
    /// True if the process manager will send no more data.
    is_ended: bool,
}

/// Returns the process at the other end of a connection, if it is on this machine.
fn foreign_peer(connection: &OwnedFd) -> Option<ForeignProcess> {
    let pid = match tcp::ends(connection) {
        Some(ends) => tcp::find_owner(tcp::find_peer(ends)?.inode, &tree::all_processes()),
        None => tree::peer_process(connection),
    };
    ForeignProcess::new(pid?)
}

/// Relays bytes until the runner orders this agent to exit. Returns the exit status.
pub(super) fn run(runner: Channel, pmi: Option<OwnedFd>) -> io::Result<u8> {
    let mut reactor = Reactor::new()?;
    let runner_key = reactor.add(&runner, RelaySource::Runner, WatchMode::Read)?;
    let maker = pmi.as_ref().and_then(foreign_peer).map(|maker| {
        let key = reactor.add(maker.pidfd(), RelaySource::Peer, WatchMode::Read)?;
        io::Result::Ok((maker, key))
    });
    let maker = maker.transpose()?;
    let pmi = pmi.map(|fd| {
        let connection = NonBlockingStream::over(fd);
        let key = reactor.add(&connection, RelaySource::Pmi, WatchMode::Read)?;
        io::Result::Ok(RelayedPmi { connection, key, is_ended: false })
    });
    let pmi = pmi.transpose()?;
    let buffer = vec![0; READ_SIZE];
    let mut relay = Relay {
        reactor,
        runner,
        runner_key,
        pmi,
        peer: maker,
        buffer,
        executed_orders: 0,
        reported: 0,
        check_interval: MIN_CHECK_INTERVAL,
    };
    loop {
        let limit = (relay.reported < relay.executed_orders).then_some(relay.check_interval);
        for Ready { source, writable } in relay.reactor.wait(limit)? {
            match source {
                RelaySource::Runner => {
                    if let Some(status) = relay.receive_from_runner(writable)? {
                        return Ok(status);
                    }
                }
                RelaySource::Pmi => relay.receive_from_server(),
                RelaySource::Peer => relay.report_death(),
            }
        }
        relay.report_taken();
    }
}

impl Relay {
    /// Sends a report to the runner. While reports are waiting to be written, the agent reads no more bytes from the process manager.
    fn report(&mut self, what: &RelayReport) {
        self.runner.send(what);
        self.reactor.watch_writes(self.runner_key, self.runner.is_blocked());
    }

    /// Carries out the runner's orders. An order to exit ends this process directly. Returns an exit status if the agent must exit for
    /// another reason: the connection to the runner has ended, an order does not apply to a relaying agent, or the agent has survived an
    /// order to kill itself.
    fn receive_from_runner(&mut self, writable: bool) -> io::Result<Option<u8>> {
        if writable && self.runner.is_blocked() {
            self.runner.flush();
            self.reactor.watch_writes(self.runner_key, self.runner.is_blocked());
            if !self.runner.is_blocked() {
                // The agent did not read from the process manager while the runner was blocked, so bytes may be waiting.
                self.pmi.iter().for_each(|pmi| self.reactor.mark_ready(pmi.key));
            }
        }
        if self.runner.receive_some() {
            self.reactor.mark_ready(self.runner_key);
        }
        while let Some(order) = self.runner.next::<AgentOrder>() {
            match order.map_err(io::Error::other)? {
                AgentOrder::Write(Bytes(bytes)) => self.write(bytes),
                AgentOrder::Close => {
                    if let Some(pmi) = self.pmi.take() {
                        self.reactor.remove(pmi.key);
                    }
                    self.executed_orders += 1;
                }
                // The kernel closes the connection when this process exits.
                AgentOrder::Exit(status) => std::process::exit(status.into()),
                AgentOrder::Kill(signal) => return kill_self(signal).map(Some),
                AgentOrder::Call { .. } => return Ok(Some(RUNNER_LOST_STATUS)),
            }
        }
        Ok(self.runner.is_over().then_some(RUNNER_LOST_STATUS))
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.executed_orders += 1;
        self.check_interval = MIN_CHECK_INTERVAL;
        let Some(pmi) = &mut self.pmi else { return };
        // The runner applies the same limit to connections that are not relayed.
        if pmi.connection.unwritten() + bytes.len() <= UNWRITTEN_MAX {
            pmi.connection.push(bytes);
            pmi.flush(&mut self.reactor);
        }
    }

    /// Relays the bytes that the process manager has written.
    fn receive_from_server(&mut self) {
        let Some(pmi) = &mut self.pmi else { return };
        pmi.flush(&mut self.reactor);
        if pmi.is_ended || self.runner.is_blocked() {
            return;
        }
        match pmi.connection.receive(&mut self.buffer) {
            ReceiveResult::Nothing => {}
            ReceiveResult::Bytes(n) => {
                self.reactor.after_read(pmi.key, n, self.buffer.len());
                let bytes = Bytes(self.buffer[..n].to_vec());
                self.report(&RelayReport::FromServer(bytes));
            }
            ReceiveResult::End => {
                pmi.is_ended = true;
                // The kernel closes the descriptors of a process a moment before the process ends. This agent waits for that end, because
                // the runner's next order may make the agent exit.
                if self.peer.as_ref().is_some_and(|(maker, _)| maker.ends_within(MAX_DYING_TIME)) {
                    self.report_death();
                }
                self.report(&RelayReport::ClosedByServer);
            }
        }
    }

    /// Reports the signal that killed the process at the other end, if any.
    fn report_death(&mut self) {
        let Some((maker, key)) = self.peer.take() else { return };
        self.reactor.remove(key);
        if let Some((name, signal)) = maker.killed_by() {
            self.report(&RelayReport::Died { pid: maker.pid(), name, signal });
        }
    }

    /// Reports the executed orders after the process manager has read the written bytes.
    fn report_taken(&mut self) {
        if self.reported == self.executed_orders {
            return;
        }
        let taken = self.pmi.as_ref().is_none_or(|pmi| {
            let unread = || pmi.connection.unread_bytes().is_some_and(|n| n > 0);
            pmi.is_ended || pmi.connection.unwritten() == 0 && !unread()
        });
        if !taken {
            self.check_interval = (self.check_interval * 2).min(MAX_CHECK_INTERVAL);
            return;
        }
        self.reported = self.executed_orders;
        self.report(&RelayReport::OrdersDone(self.reported));
    }
}

impl RelayedPmi {
    fn flush(&mut self, reactor: &mut Reactor<RelaySource>) {
        self.connection.flush();
        reactor.watch_writes(self.key, self.connection.is_blocked());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_path_encodes_its_process_group() {
        for agent in ["/opt/pmi/pmi-conform-agent", "/pmi-conform-agent"] {
            for group in [0, 1, 12] {
                let path = path_of_group(Path::new(agent), group);
                assert_eq!(group_of_path(&path), group, "{}", path.display());
                // Both paths name the same file: the comparison ignores `./`.
                assert_eq!(path, Path::new(agent));
            }
        }
        assert_eq!(group_of_path(Path::new("pmi-conform-agent")), 0);
    }

    #[test]
    fn relay_address_round_trips() {
        for address in ["10.0.0.1:5000", "[::1]:5000"] {
            let route = Route { address: address.parse().unwrap(), token: "a1b2".into() };
            assert_eq!(Route::parse(&route.to_string()), Some(route));
        }
        assert!(Route::of_argument("10.0.0.1:5000").is_err());
    }
}
