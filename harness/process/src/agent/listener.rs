//! The listener for agents: a socket in a scratch folder and, if requested, a port for agents on other machines.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::network_listener::{ListenOptions, NetworkListener};
use super::protocol::{Hello, TokenAccepted, TokenMessage};
use super::relay::{OPTION, Route, path_of_group};
use super::{SOCKET, folder, quick, rank};
use crate::reactor::{Reactor, ReactorKey, WatchMode};
use crate::scratch::{folder_on_disk, scratch_folder};
use crate::{is_aborted_connection, lacks_descriptors, nonblocking};

/// Maximum number of agents that have connected but not yet introduced themselves.
const PENDING_MAX: usize = 4096;

/// Maximum number of network peers that have not sent a valid token. When another peer connects, the oldest of these peers is disconnected.
const UNKNOWN_MAX: usize = 128;

/// A connection whose peer has not introduced itself yet.
struct PendingAgent {
    channel: Channel,
    key: ReactorKey,
    /// The peer's network address, until the peer has sent a valid token.
    unverified_address: Option<SocketAddr>,
}

/// A scratch folder with the runner's socket, and the connections of agents that have not introduced themselves yet.
pub struct AgentListener {
    listener: UnixListener,
    /// The listener for agents that cannot reach the socket.
    network: Option<NetworkListener>,
    pending: BTreeMap<u64, PendingAgent>,
    count: u64,
    /// The scratch folder. It is dropped last, because it contains the socket.
    scratch: tempfile::TempDir,
}

impl AgentListener {
    /// Opens the socket in a new scratch folder.
    pub fn open() -> io::Result<Self> {
        Self::open_for(None)
    }

    /// Opens a listener. If `listen` is given, agents can also reach the listener over the network.
    pub fn open_for(listen: Option<&ListenOptions>) -> io::Result<Self> {
        Self::open_in(scratch_folder()?, listen)
    }

    /// Opens a listener whose folder is on disk, so that agents may write any amount of data to it.
    pub fn open_on_disk() -> io::Result<Self> {
        Self::open_in(folder_on_disk()?, None)
    }

    fn open_in(scratch: tempfile::TempDir, listen: Option<&ListenOptions>) -> io::Result<Self> {
        let network = listen.map(NetworkListener::open).transpose()?;
        let listener = UnixListener::bind(scratch.path().join(SOCKET))?;
        nonblocking(&listener)?;
        Ok(Self { listener, network, pending: BTreeMap::new(), count: 0, scratch })
    }

    /// Returns the address and the token for agents on the network, if the listener accepts such agents.
    pub fn route(&self) -> Option<&Route> {
        self.network.as_ref().map(NetworkListener::route)
    }

    /// Returns the command that starts an agent of the first process group. The file `agent` must already exist.
    pub fn command(&self, agent: &Path) -> Vec<String> {
        let path = agent.to_string_lossy().into_owned();
        let option = self.route().map(|route| [OPTION.to_owned(), route.to_string()]);
        std::iter::once(path).chain(option.into_iter().flatten()).collect()
    }

    /// Returns the scratch folder.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the mark of this run's processes: a string that no other run uses.
    pub fn mark(&self) -> String {
        self.path().to_string_lossy().into_owned()
    }

    /// Returns a name of letters, digits and dashes that is unique among current runs.
    pub fn name(&self) -> String {
        self.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Registers the listener with the reactor, which then reports new connections.
    pub fn watch<S: Copy>(&self, reactor: &mut Reactor<S>, source: S) -> io::Result<ReactorKey> {
        if let Some(listener) = &self.network {
            reactor.add(listener.listener(), source, WatchMode::Read)?;
        }
        reactor.add(&self.listener, source, WatchMode::Read)
    }

    /// Creates an agent for a process group, and returns the agent's path. `name` selects the kind of agent. If agents run on other
    /// machines, the agent must already exist there, and this function only returns its path.
    pub fn make_agent(&self, binary: &Path, name: &str, group: u32) -> io::Result<PathBuf> {
        if let Some(listener) = &self.network {
            return Ok(path_of_group(listener.agent(), group));
        }
        let folder = folder(self.path(), group);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        match std::os::unix::fs::symlink(binary, &path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(path),
        }
    }

    /// Creates the agent for a rank, and returns the agent's path. If `quick` is given, this is the path of the quick agent. The full agent
    /// is then created in the same folder, for launches that the quick agent cannot handle.
    pub fn make_rank(&self, full: &Path, quick: Option<&Path>, group: u32) -> io::Result<PathBuf> {
        let path = self.make_agent(quick.unwrap_or(full), rank::NAME, group)?;
        match quick {
            Some(_) => self.make_agent(full, quick::FULL, group).map(|_| path),
            None => Ok(path),
        }
    }

    /// Accepts new connections. `source` maps the number of a connection to the reactor's source.
    pub fn accept<S: Copy>(&mut self, reactor: &mut Reactor<S>, source: impl Fn(u64) -> S) {
        while let Ok((stream, _)) = self.listener.accept() {
            self.admit(Channel::for_unknown_process(stream), None, reactor, &source);
        }
        while let Some(accepted) = self.network.as_ref().map(NetworkListener::accept) {
            match accepted {
                Ok((stream, from)) => {
                    if self.unverified_agents().count() >= UNKNOWN_MAX {
                        self.disconnect_oldest(reactor);
                    }
                    self.admit(Channel::for_unknown_peer(stream), Some(from), reactor, &source);
                }
                // Make room now, because connections that are already waiting are not reported again.
                Err(error) if lacks_descriptors(&error) && self.unverified_agents().next().is_some() => {
                    self.disconnect_oldest(reactor);
                }
                Err(error) if is_aborted_connection(&error) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the numbers of the connections whose network peers have not sent a valid token.
    fn unverified_agents(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().filter(|(_, agent)| agent.unverified_address.is_some()).map(|(id, _)| *id)
    }

    fn disconnect_oldest<S: Copy>(&mut self, reactor: &mut Reactor<S>) {
        let first = self.unverified_agents().next();
        first.into_iter().for_each(|first| self.disconnect(first, reactor));
    }

    fn admit<S: Copy>(
        &mut self,
        channel: Channel,
        unknown: Option<SocketAddr>,
        reactor: &mut Reactor<S>,
        source: &impl Fn(u64) -> S,
    ) {
        if self.pending.len() >= PENDING_MAX {
            return;
        }
        self.count += 1;
        if let Ok(key) = reactor.add(&channel, source(self.count), WatchMode::Read) {
            self.pending.insert(self.count, PendingAgent { channel, key, unverified_address: unknown });
        }
    }

    fn disconnect<S: Copy>(&mut self, id: u64, reactor: &mut Reactor<S>) {
        let Some(PendingAgent { key, unverified_address: unknown, .. }) = self.pending.remove(&id) else {
            return;
        };
        reactor.remove(key);
        if let (Some(from), Some(listener)) = (unknown, &self.network) {
            listener.report_rejection(from);
        }
    }

    /// Returns the numbers of the connections whose peers have not introduced themselves.
    pub fn pending(&self) -> Vec<u64> {
        self.pending.keys().copied().collect()
    }

    /// Reads from the pending connection `id`. Returns the introduction and the connection when the introduction has arrived. Closes the
    /// connection if it has ended or a message is invalid.
    pub fn receive_hello<S: Copy>(&mut self, id: u64, reactor: &mut Reactor<S>) -> Option<(Hello, Channel)> {
        let PendingAgent { channel, unverified_address: unknown, .. } = self.pending.get_mut(&id)?;
        channel.receive();
        if unknown.is_some() {
            match channel.next::<TokenMessage>() {
                Some(Ok(TokenMessage { token }))
                    if self.network.as_ref().is_some_and(|listener| listener.is_token(&token)) =>
                {
                    *unknown = None;
                    channel.admit();
                    channel.send(&TokenAccepted {});
                }
                None if !channel.is_over() => {}
                // An agent may exit before it has sent anything. This is not reported as a rejection.
                None if channel.is_empty() => {
                    *unknown = None;
                    self.disconnect(id, reactor);
                }
                _ => self.disconnect(id, reactor),
            }
            return None;
        }
        let hello = channel.next::<Hello>();
        if hello.is_none() && !channel.is_over() {
            return None;
        }
        let PendingAgent { mut channel, key, .. } = self.pending.remove(&id)?;
        reactor.remove(key);
        match hello?.ok()? {
            Hello::Rank(hello) if hello.relay_location.is_some() => {
                channel.trust_relay();
                Some((Hello::Rank(hello), channel))
            }
            hello => {
                channel.trust();
                Some((hello, channel))
            }
        }
    }
}
