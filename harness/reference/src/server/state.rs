//! The state of groups and processes, and the actions that all handlers need: responding to requests, holding requests, and aborting.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pmi_wire::{
    ConnectionMethod, Framer, Framing, MAPPING_KEY, Proc, ProcessMapping, SpawnCollector, Version, node_of,
    place,
};

use super::config::{Config, GroupId, GroupSpec, ServerAction};
use super::open_barrier::OpenBarrier;
use crate::response::{OperationResult, ResponseHeader, ResponseParts};

/// The phase that a process has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPhase {
    /// The process has not initialized yet.
    New,
    /// The server has accepted the init of the process. In PMI-2, the fullinit may still be missing.
    Joined,
    /// The process has finalized.
    Finalized,
    /// The connection of the process is closed.
    Closed,
}

/// A request that has not been answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRequest {
    /// The form of the response.
    pub header: ResponseHeader,
    /// The event for which the response waits.
    pub awaited_event: AwaitedEvent,
}

/// The event for which the response to a request waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// All processes of the group are in the barrier.
    Barrier,
    /// The attribute exists on the process's node.
    NodeAttribute(Vec<u8>),
    /// A group has been started.
    Spawn(GroupId),
}

/// A process and its connection.
#[derive(Debug)]
pub struct ServerProcess {
    /// The received bytes that have not been read.
    pub framer: Framer,
    /// The negotiated framing.
    pub framing: Framing,
    /// The negotiated version of PMI-1; 1.1 before the negotiation, and in PMI-2.
    pub version: Version,
    /// The phase that the process has reached.
    pub phase: ProcessPhase,
    /// True if the process has identified itself on its connection and has been accepted.
    pub is_identified: bool,
    /// The collector of an incomplete spawn request; `None` if no spawn request has begun.
    pub spawn: Option<Box<SpawnCollector>>,
    /// True if the server has accepted the fullinit of the process (PMI-2).
    pub has_fullinit: bool,
    /// The requests of the process that have not been answered yet, except for group barriers.
    pub held: Vec<HeldRequest>,
}

impl ServerProcess {
    fn new(line_max: usize) -> Self {
        Self {
            framer: Framer::new(line_max),
            framing: Framing::Lines,
            version: Version::V1_1,
            phase: ProcessPhase::New,
            is_identified: false,
            spawn: None,
            has_fullinit: false,
            held: Vec::new(),
        }
    }

    /// Returns whether the process is waiting in the barrier of its group.
    pub fn is_in_barrier(&self) -> bool {
        self.held.iter().any(|held| held.awaited_event == AwaitedEvent::Barrier)
    }
}

/// A process group.
#[derive(Debug, Default)]
pub struct ProcessGroup {
    /// The name of the group's keyval space, which is also the id of the job.
    pub kvsname: Vec<u8>,
    /// The group's keyval space.
    pub kvs: HashMap<Vec<u8>, Vec<u8>>,
    /// The processes, indexed by rank.
    pub procs: Vec<ServerProcess>,
    /// Number of processes of each program, in order of appnum.
    pub programs: Vec<u32>,
    /// The number of processes in the barrier.
    pub entered_count: u32,
    /// Group barriers that at least one process has entered.
    pub open_barriers: Vec<OpenBarrier>,
    /// The number of processes that have finalized or whose connections are closed. It is stored because counting these processes for every
    /// barrier would take too long.
    pub left_count: u32,
    /// True if the group was aborted.
    pub aborted: bool,
    /// True if the group was created by a spawn request.
    pub spawned: bool,
    /// The name of the keyval space of the group that requested the spawn.
    pub spawner: Option<Vec<u8>>,
    /// Attributes of nodes, by node and key.
    pub node: HashMap<(u32, Vec<u8>), Vec<u8>>,
}

impl ProcessGroup {
    pub(super) fn appnum(&self, rank: u32) -> usize {
        let mut first = 0;
        self.programs.iter().position(|n| (first += n, rank < first).1).unwrap_or(0)
    }
}

/// A keyval space that a process has created.
#[derive(Debug)]
pub struct KeyvalSpace {
    /// The name of the keyval space.
    pub name: Vec<u8>,
    /// The pairs, in the order in which they were put. The position of a pair is its index.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl KeyvalSpace {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

/// An action whose bytes have not been encoded yet.
#[derive(Debug)]
pub enum PendingAction {
    /// A response.
    Reply(Proc, ResponseParts),
    /// An action other than a response.
    Action(ServerAction),
}

/// The state machine of a server.
#[derive(Debug, Default)]
pub struct Server {
    /// The settings.
    pub config: Config,
    /// The groups, indexed by number.
    pub groups: Vec<ProcessGroup>,
    /// The ports of published names.
    pub names: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keyval spaces that processes have created.
    pub spaces: Vec<KeyvalSpace>,
    /// The number of keyval spaces that have been created so far.
    pub(super) created: u64,
    /// The groups that are being started, each with the process that requested the spawn.
    pub(super) spawns: Vec<(GroupId, Proc)>,
    outputs: VecDeque<PendingAction>,
}

impl Server {
    /// Creates a server without process groups.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Adds a process group. Its processes may connect immediately.
    pub fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        let id = self.groups.len() as GroupId;
        let size: u32 = spec.programs.iter().sum();
        let mut kvs: HashMap<_, _> = spec.preput.into_iter().collect();
        let mapping = ProcessMapping::compress(&place(size, self.config.nodes)).to_string().into_bytes();
        // RFC 13, "Local Process Group Information": if the value is too long for the keyval space, it is an empty string.
        let mapping =
            if (mapping.len() as u64) < self.config.limits.vallen_max { mapping } else { Vec::new() };
        kvs.insert(MAPPING_KEY.to_vec(), mapping);
        self.groups.push(ProcessGroup {
            kvsname: format!("{}-{id}", self.config.kvs_prefix).into_bytes(),
            kvs,
            procs: (0..size).map(|_| ServerProcess::new(self.config.line_max)).collect(),
            programs: spec.programs,
            spawned: spec.spawned,
            ..ProcessGroup::default()
        });
        id
    }

    /// Returns the number of processes in a group.
    pub fn size(&self, group: GroupId) -> u32 {
        self.groups[group as usize].procs.len() as u32
    }

    /// Returns the environment variables of a process (RFC 13, "Environment"). `place` is the value of PMI_FD or PMI_PORT.
    pub fn environment(&self, p: Proc, place: &str) -> Vec<(&'static str, String)> {
        let size = self.size(p.group).to_string();
        let mut env = match self.config.connection_method {
            ConnectionMethod::Port => {
                vec![("PMI_PORT", place.to_owned()), ("PMI_ID", self.id(p).to_string())]
            }
            // The singleton was started before its process manager, so its environment does not come from the process manager.
            ConnectionMethod::Singleton if p.group == 0 => return Vec::new(),
            ConnectionMethod::Fd | ConnectionMethod::Singleton => {
                vec![("PMI_FD", place.to_owned()), ("PMI_RANK", p.rank.to_string()), ("PMI_SIZE", size)]
            }
        };
        if self.groups[p.group as usize].spawned {
            env.push(("PMI_SPAWNED", "1".to_owned()));
        }
        env
    }

    /// Returns the next action.
    pub fn next_action(&mut self) -> Option<ServerAction> {
        Some(match self.next_output()? {
            PendingAction::Reply(to, response) => ServerAction::Send { to, bytes: response.to_bytes() },
            PendingAction::Action(action) => action,
        })
    }

    /// Returns the next action. If the action is a response, it is not encoded yet.
    pub fn next_output(&mut self) -> Option<PendingAction> {
        self.outputs.pop_front()
    }

    /// Returns whether the process is connected, and has initialized but not finalized. The end of its connection is then an error.
    pub fn is_joined(&self, p: Proc) -> bool {
        !self.is_gone(p) && self.process(p).phase == ProcessPhase::Joined
    }

    /// Returns whether the connection of a process is closed or its group was aborted.
    pub fn is_gone(&self, p: Proc) -> bool {
        self.groups[p.group as usize].aborted || self.process(p).phase == ProcessPhase::Closed
    }

    /// Returns a process.
    pub fn process(&self, p: Proc) -> &ServerProcess {
        &self.groups[p.group as usize].procs[p.rank as usize]
    }

    /// Returns a mutable reference to a process.
    pub fn process_mut(&mut self, p: Proc) -> &mut ServerProcess {
        &mut self.groups[p.group as usize].procs[p.rank as usize]
    }

    /// Returns the node of a process.
    pub fn node(&self, p: Proc) -> u32 {
        node_of(p.rank, self.size(p.group), self.config.nodes).unwrap_or(0)
    }

    /// Answers a request.
    pub fn reply(&mut self, to: Proc, header: ResponseHeader, answer: OperationResult) {
        // PMI-2 has no response to abort, so nothing is sent.
        if header.framing == Framing::Lines || !header.response.is_empty() {
            self.outputs.push_back(PendingAction::Reply(to, ResponseParts { header, result: answer }));
        }
    }

    /// Holds a request until the event `what` occurs.
    pub fn hold(&mut self, from: Proc, header: ResponseHeader, what: AwaitedEvent) {
        self.process_mut(from).held.push(HeldRequest { header, awaited_event: what });
    }

    /// Removes a held request, and returns the form of its response.
    pub fn take_held(&mut self, p: Proc, what: &AwaitedEvent) -> Option<ResponseHeader> {
        let held = &mut self.process_mut(p).held;
        let at = held.iter().position(|held| held.awaited_event == *what)?;
        Some(held.remove(at).header)
    }

    /// Adds an action for the driver.
    pub fn act(&mut self, action: ServerAction) {
        self.outputs.push_back(PendingAction::Action(action));
    }

    /// Aborts the process group of `by`.
    pub fn abort(&mut self, by: Proc, status: i64, reason: String) {
        let group = &mut self.groups[by.group as usize];
        group.aborted = true;
        group.kvs = HashMap::new();
        group.open_barriers = Vec::new();
        let status = match status & 0xff {
            0 if status != 0 => 1,
            low => low as i32,
        };
        self.act(ServerAction::Abort { group: by.group, rank: by.rank, status, reason });
    }
}
