//! Where agents find the runner: a folder of their own and a socket in it, or a door to other machines.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::door::{Door, Listen};
use super::protocol::{Hello, Pass, Welcome};
use super::relay::{OPTION, Way, path_of_group};
use super::{SOCKET, folder, quick, rank};
use crate::process::reactor::{Key, Reactor, Wanted};
use crate::process::scratch::{folder_on_disk, scratch_folder};
use crate::process::{has_hung_up, lacks_descriptors, nonblocking};

/// Most agents that may have connected and not yet said who they are.
const NEWCOMERS_MAX: usize = 4096;

/// The same of those who have come over the network and have not shown that they may: the first of them is sent away for the next.
const UNKNOWN_MAX: usize = 128;

/// Somebody who has connected and not yet said who it is.
struct Newcomer {
    channel: Channel,
    key: Key,
    /// Where it has come from over the network, as long as it has not shown that it may.
    unknown: Option<SocketAddr>,
}

/// A scratch folder with the runner's socket in it, and the agents that have connected and not yet said who they are.
pub(crate) struct Reception {
    listener: UnixListener,
    /// For agents that cannot come to the socket.
    door: Option<Door>,
    newcomers: BTreeMap<u64, Newcomer>,
    count: u64,
    /// The last to go: the socket lies in it.
    scratch: tempfile::TempDir,
}

impl Reception {
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_for(None)
    }

    /// One to which agents come over the network, if `listen` says so.
    pub(crate) fn open_for(listen: Option<&Listen>) -> io::Result<Self> {
        Self::open_in(scratch_folder()?, listen)
    }

    /// One in whose folder agents may write as much as they like.
    pub(crate) fn open_on_disk() -> io::Result<Self> {
        Self::open_in(folder_on_disk()?, None)
    }

    fn open_in(scratch: tempfile::TempDir, listen: Option<&Listen>) -> io::Result<Self> {
        let door = listen.map(Door::open).transpose()?;
        let listener = UnixListener::bind(scratch.path().join(SOCKET))?;
        nonblocking(&listener)?;
        Ok(Self { listener, door, newcomers: BTreeMap::new(), count: 0, scratch })
    }

    /// How agents find it over the network, if they do.
    pub(crate) fn way(&self) -> Option<&Way> {
        self.door.as_ref().map(Door::way)
    }

    /// The words that start an agent of the first process group, which has been made.
    pub(crate) fn words(&self, agent: &Path) -> Vec<String> {
        let path = agent.to_string_lossy().into_owned();
        let way = self.way().map(|way| [OPTION.to_owned(), way.to_string()]);
        std::iter::once(path).chain(way.into_iter().flatten()).collect()
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// A mark that no other run has.
    pub(crate) fn mark(&self) -> String {
        self.path().to_string_lossy().into_owned()
    }

    /// A name that no other run has at this time, of letters, digits and dashes.
    pub(crate) fn name(&self) -> String {
        self.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Has the reactor tell when somebody comes.
    pub(crate) fn watch<S: Copy>(&self, reactor: &mut Reactor<S>, source: S) -> io::Result<Key> {
        if let Some(door) = &self.door {
            reactor.add(door.listener(), source, Wanted::Read)?;
        }
        reactor.add(&self.listener, source, Wanted::Read)
    }

    /// Makes an agent that reports as of a process group; the name decides which agent it is. On other machines it is there already.
    pub(crate) fn make_agent(&self, binary: &Path, name: &str, group: u32) -> io::Result<PathBuf> {
        if let Some(door) = &self.door {
            return Ok(path_of_group(door.agent(), group));
        }
        let folder = folder(self.path(), group);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        match std::os::unix::fs::symlink(binary, &path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(path),
        }
    }

    /// Makes the agent of a rank: the quick one, if there is one, and beside it the one that it becomes where it cannot do the work.
    pub(crate) fn make_rank(&self, full: &Path, quick: Option<&Path>, group: u32) -> io::Result<PathBuf> {
        let path = self.make_agent(quick.unwrap_or(full), rank::NAME, group)?;
        match quick {
            Some(_) => self.make_agent(full, quick::FULL, group).map(|_| path),
            None => Ok(path),
        }
    }

    /// Lets in who has come; `source` says by which name the reactor tells of it.
    pub(crate) fn accept<S: Copy>(&mut self, reactor: &mut Reactor<S>, source: impl Fn(u64) -> S) {
        while let Ok((stream, _)) = self.listener.accept() {
            self.let_in(Channel::with_stranger(stream), None, reactor, &source);
        }
        while let Some(accepted) = self.door.as_ref().map(Door::accept) {
            match accepted {
                Ok((stream, from)) => {
                    if self.unknown().count() >= UNKNOWN_MAX {
                        self.send_first_away(reactor);
                    }
                    self.let_in(Channel::with_unknown(stream), Some(from), reactor, &source);
                }
                // Those who wait now are not told of again.
                Err(error) if lacks_descriptors(&error) && self.unknown().next().is_some() => {
                    self.send_first_away(reactor);
                }
                Err(error) if has_hung_up(&error) => {}
                Err(_) => return,
            }
        }
    }

    /// Those who have come over the network and have not shown that they may.
    fn unknown(&self) -> impl Iterator<Item = u64> {
        self.newcomers.iter().filter(|(_, newcomer)| newcomer.unknown.is_some()).map(|(id, _)| *id)
    }

    fn send_first_away<S: Copy>(&mut self, reactor: &mut Reactor<S>) {
        let first = self.unknown().next();
        first.into_iter().for_each(|first| self.send_away(first, reactor));
    }

    fn let_in<S: Copy>(
        &mut self,
        channel: Channel,
        unknown: Option<SocketAddr>,
        reactor: &mut Reactor<S>,
        source: &impl Fn(u64) -> S,
    ) {
        if self.newcomers.len() >= NEWCOMERS_MAX {
            return;
        }
        self.count += 1;
        if let Ok(key) = reactor.add(&channel, source(self.count), Wanted::Read) {
            self.newcomers.insert(self.count, Newcomer { channel, key, unknown });
        }
    }

    fn send_away<S: Copy>(&mut self, id: u64, reactor: &mut Reactor<S>) {
        let Some(Newcomer { key, unknown, .. }) = self.newcomers.remove(&id) else { return };
        reactor.remove(key);
        if let (Some(from), Some(door)) = (unknown, &self.door) {
            door.refuse(from);
        }
    }

    /// Those who have not said who they are.
    pub(crate) fn newcomers(&self) -> Vec<u64> {
        self.newcomers.keys().copied().collect()
    }

    /// Hears a newcomer. Once it has said who it is, it is the caller's; who says something else is sent away.
    pub(crate) fn greet<S: Copy>(&mut self, id: u64, reactor: &mut Reactor<S>) -> Option<(Hello, Channel)> {
        let Newcomer { channel, unknown, .. } = self.newcomers.get_mut(&id)?;
        channel.receive();
        if unknown.is_some() {
            match channel.next::<Pass>() {
                Some(Ok(Pass { token })) if self.door.as_ref().is_some_and(|door| door.knows(&token)) => {
                    *unknown = None;
                    channel.admit();
                    channel.send(&Welcome {});
                }
                None if !channel.is_over() => {}
                // An agent may be ended before it has said anything.
                None if channel.is_empty() => {
                    *unknown = None;
                    self.send_away(id, reactor);
                }
                _ => self.send_away(id, reactor),
            }
            return None;
        }
        let hello = channel.next::<Hello>();
        if hello.is_none() && !channel.is_over() {
            return None;
        }
        let Newcomer { mut channel, key, .. } = self.newcomers.remove(&id)?;
        reactor.remove(key);
        match hello?.ok()? {
            Hello::Rank(hello) if hello.relays.is_some() => {
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
