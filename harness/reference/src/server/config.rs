//! What a server is set up with, what it is given to serve, and what its driver must do.

use pmi_wire::{Maxes, Proc, SpawnProgram, WayIn};

/// Number of a process group: 0 for the first, then in order of creation.
pub type GroupId = u32;

/// Longest message that is read whatever is announced, so that nobody can make a server grow.
const LONGEST: usize = 16 << 20;

/// What a server is set up with, and what a wrapper of it is.
#[derive(Debug, Clone)]
pub struct Config<W = ()> {
    /// The limits of the keyval space, which count the terminating NUL of the C API.
    pub maxes: Maxes,
    /// How the processes come to their connections.
    pub way_in: WayIn,
    /// Longest message, in bytes with the newline; a longer one is a protocol error.
    pub line_max: usize,
    /// Answer to `get_universe_size`; the size of the group if `None`.
    pub universe_size: Option<u64>,
    /// Nodes over which each group is spread.
    pub nodes: u32,
    /// Most processes that one spawn may start.
    pub spawn_max: u64,
    /// True if it takes an offer of PMI-2. It speaks PMI-1.1 in any case.
    pub pmi2: bool,
    /// True if it answers 1.2 to whoever offers that or more.
    pub pmi12: bool,
    /// True if it serves further keyval spaces, and tells pairs by their number: what RFC 13 does not have.
    pub keyval_spaces: bool,
    /// First part of every kvsname; the group number is appended.
    pub kvs_prefix: String,
    /// What a wrapper is set up with. The server itself has none.
    pub wrapper: W,
}

impl<W> Config<W> {
    /// Makes room for messages that use the limits: whoever announces them has to read a put of the longest key and value.
    pub fn make_room(&mut self) {
        let Maxes { kvsname_max, keylen_max, vallen_max } = self.maxes;
        let fields = kvsname_max.saturating_add(keylen_max).saturating_add(vallen_max);
        let room = usize::try_from(fields).unwrap_or(usize::MAX).saturating_add(1024);
        self.line_max = self.line_max.max(room.min(LONGEST));
    }

    /// The same for another wrapper, and what this one is set up with.
    pub fn rewrap<V>(self, wrapper: V) -> (Config<V>, W) {
        let Self { maxes, way_in, line_max, universe_size, nodes, spawn_max, pmi2, pmi12, .. } = self;
        let Self { keyval_spaces, kvs_prefix, wrapper: old, .. } = self;
        let config = Config {
            maxes,
            way_in,
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
            maxes: Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 },
            way_in: WayIn::Fd,
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

/// A process group to be served.
#[derive(Debug, Clone, Default)]
pub struct GroupSpec {
    /// Number of processes of each program, in order of appnum; ranks are numbered through.
    pub programs: Vec<u32>,
    /// Pairs that are in the keyval space before the processes start.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if it was created by a spawn request.
    pub spawned: bool,
}

/// What the driver must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these bytes to the process's connection.
    Send {
        /// Whose connection.
        to: Proc,
        /// What.
        bytes: Vec<u8>,
    },
    /// Start the programs as process group `group` (ranks numbered through, `PMI_SPAWNED=1`), then call
    /// [`Server::spawned`](super::Server::spawned).
    Spawn {
        /// The new group; known to the server already.
        group: GroupId,
        /// Who asked.
        by: Proc,
        /// What to start.
        programs: Vec<SpawnProgram>,
    },
    /// Close the connection of one process; the others go on. Only wrappers of the server ask for it.
    Close {
        /// Whose.
        proc: Proc,
        /// End the process too.
        end: bool,
    },
    /// Close every connection of the group and end its processes.
    Abort {
        /// The group.
        group: GroupId,
        /// The rank that asked for it or erred.
        by: u32,
        /// Exit status of the job.
        status: i64,
        /// For the log: why.
        reason: String,
    },
}
