//! The settings of a server, the groups that it serves, and the actions that it requests from its driver.

use pmi_wire::{ConnectionMethod, Dialect, KvsLimits, Proc, SpawnProgram};

/// Number of a process group. Groups are numbered from 0, in order of creation.
pub type GroupId = u32;

/// Upper bound to which [`Config::raise_line_max`] raises the maximum length of a message, so that no client can exhaust the server's
/// memory.
const MAX_MESSAGE: usize = 16 << 20;

/// The settings of a server and of a wrapper around it.
#[derive(Debug, Clone)]
pub struct Config<W = ()> {
    /// The limits of the keyval space, which count the terminating NUL of the C API.
    pub limits: KvsLimits,
    /// The method by which processes get their connections.
    pub connection_method: ConnectionMethod,
    /// Maximum length of a message, in bytes including the newline. A longer message is a protocol error.
    pub line_max: usize,
    /// The universe size; if `None`, the size of the group.
    pub universe_size: Option<u64>,
    /// The number of nodes over which each group is spread.
    pub nodes: u32,
    /// Maximum number of processes in a spawn.
    pub spawn_max: u64,
    /// True if the server accepts an offer of PMI-2. It always accepts PMI-1.1.
    pub pmi2: bool,
    /// True if the server answers an offer of 1.2 or more with 1.2.
    pub pmi12: bool,
    /// True if the server supports additional keyval spaces and access to pairs by index, for which RFC 13 defines no messages.
    pub keyval_spaces: bool,
    /// Prefix of the names of keyval spaces. The prefix is followed by a dash and the group's number.
    pub kvs_prefix: String,
    /// The settings of a wrapper around the server.
    pub wrapper: W,
}

impl<W> Config<W> {
    /// Raises the maximum length of a message if the limits require it: a put of the longest key and value must be accepted.
    pub fn raise_line_max(&mut self) {
        let KvsLimits { kvsname_max, keylen_max, vallen_max } = self.limits;
        let fields = kvsname_max.saturating_add(keylen_max).saturating_add(vallen_max);
        let room = usize::try_from(fields).unwrap_or(usize::MAX).saturating_add(1024);
        self.line_max = self.line_max.max(room.min(MAX_MESSAGE));
    }

    /// Returns the settings for a server that accepts `dialect` in addition to PMI-1.1.
    pub fn speaking(self, dialect: Dialect) -> Self {
        Self { pmi2: dialect.switches_framing(), ..self }
    }

    /// Returns the same settings for a different wrapper, and the settings of the previous wrapper.
    pub fn rewrap<V>(self, wrapper: V) -> (Config<V>, W) {
        let Self {
            limits, connection_method, line_max, universe_size, nodes, spawn_max, pmi2, pmi12, ..
        } = self;
        let Self { keyval_spaces, kvs_prefix, wrapper: old, .. } = self;
        let config = Config {
            limits,
            connection_method,
            line_max,
            universe_size,
            nodes,
            spawn_max,
            pmi2,
            pmi12,
            keyval_spaces,
            kvs_prefix,
            wrapper,
        };
        (config, old)
    }
}

impl<W: Default> Default for Config<W> {
    fn default() -> Self {
        Self {
            limits: KvsLimits { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 },
            connection_method: ConnectionMethod::Fd,
            line_max: 256 * 1024,
            universe_size: None,
            nodes: 1,
            spawn_max: 4096,
            pmi2: false,
            pmi12: false,
            keyval_spaces: false,
            kvs_prefix: "kvs".into(),
            wrapper: W::default(),
        }
    }
}

/// A process group to serve.
#[derive(Debug, Clone, Default)]
pub struct GroupSpec {
    /// Number of processes of each program, in order of appnum. Ranks are numbered consecutively across the programs.
    pub programs: Vec<u32>,
    /// Pairs that are in the keyval space before the processes start.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the group was created by a spawn request.
    pub spawned: bool,
}

/// An action for the driver, which is the code that performs the server's I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAction {
    /// Write these bytes to the process's connection.
    Send {
        /// The process that receives the bytes.
        to: Proc,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// Start the programs as process group `group`, with consecutive ranks across the programs and `PMI_SPAWNED=1`. Then call
    /// [`Server::spawned`](super::Server::spawned).
    Spawn {
        /// The new group, which the server already knows.
        group: GroupId,
        /// The process that requested the spawn.
        requester: Proc,
        /// The programs to start.
        programs: Vec<SpawnProgram>,
    },
    /// Close the connection of a single process. Only wrappers of the server request this.
    Close {
        /// The process whose connection must be closed.
        proc: Proc,
        /// True if the process must be ended as well.
        end: bool,
    },
    /// Close every connection of the group and end its processes.
    Abort {
        /// The number of the aborted group.
        group: GroupId,
        /// The rank that requested the abort or broke the protocol.
        rank: u32,
        /// Exit status of the job: the low eight bits of the requested status, or 1 if these bits are 0 and the requested status is not.
        status: i32,
        /// The reason, for the log.
        reason: String,
    },
}
