//! Where agents find the runner: a folder of their own and a socket in it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use super::protocol::Hello;
use super::{SOCKET, folder};
use crate::process::nonblocking;
use crate::process::reactor::{Key, Reactor, Wanted};

/// Most agents that may have connected and not yet said who they are.
const NEWCOMERS_MAX: usize = 4096;

/// A scratch folder with the runner's socket in it, and the agents that have connected and not yet said who they are.
pub(crate) struct Reception {
    listener: UnixListener,
    newcomers: BTreeMap<u64, (Channel, Key)>,
    count: u64,
    /// The last to go: the socket lies in it.
    scratch: tempfile::TempDir,
}

impl Reception {
    pub(crate) fn open() -> io::Result<Self> {
        let scratch = scratch_folder()?;
        let listener = UnixListener::bind(scratch.path().join(SOCKET))?;
        nonblocking(&listener)?;
        Ok(Self { listener, newcomers: BTreeMap::new(), count: 0, scratch })
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
        reactor.add(&self.listener, source, Wanted::Read)
    }

    /// Makes an agent that reports as of a process group; the name decides which agent it is.
    pub(crate) fn make_agent(&self, binary: &Path, name: &str, group: u32) -> io::Result<PathBuf> {
        let folder = folder(self.path(), group);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        match std::os::unix::fs::symlink(binary, &path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(path),
        }
    }

    /// Lets in who has come; `source` says by which name the reactor tells of it.
    pub(crate) fn accept<S: Copy>(&mut self, reactor: &mut Reactor<S>, source: impl Fn(u64) -> S) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.newcomers.len() >= NEWCOMERS_MAX {
                continue;
            }
            self.count += 1;
            let channel = Channel::with_stranger(stream);
            if let Ok(key) = reactor.add(&channel, source(self.count), Wanted::Read) {
                self.newcomers.insert(self.count, (channel, key));
            }
        }
    }

    /// Those who have not said who they are.
    pub(crate) fn newcomers(&self) -> Vec<u64> {
        self.newcomers.keys().copied().collect()
    }

    /// Hears a newcomer. Once it has said who it is, it is the caller's; who says something else is sent away.
    pub(crate) fn greet<S: Copy>(&mut self, id: u64, reactor: &mut Reactor<S>) -> Option<(Hello, Channel)> {
        let (channel, _) = self.newcomers.get_mut(&id)?;
        channel.receive();
        let hello = channel.next::<Hello>();
        if hello.is_none() && !channel.is_over() {
            return None;
        }
        let (mut channel, key) = self.newcomers.remove(&id)?;
        reactor.remove(key);
        channel.trust();
        Some((hello?.ok()?, channel))
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
