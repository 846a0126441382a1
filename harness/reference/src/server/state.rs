//! What a server knows of its groups and processes, and the least that every handler needs: to reply and to abort.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pmi_wire::{Framer, Framing, Proc, ProcessMapping, SpawnCollector, Version, WayIn, place};

use super::config::{Action, Config, GroupId, GroupSpec};
use super::open_barrier::OpenBarrier;
use crate::reply::{FrameReply, Reply};

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has not initialized yet.
    New,
    /// It has initialized.
    Joined,
    /// It has finalized.
    Finalized,
    /// Its connection is closed.
    Closed,
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Nothing,
    /// The barrier of its group.
    Barrier,
    /// The answer to its spawn.
    Spawn,
}

/// A request of PMI-2 that is not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its thread.
    pub thrid: Option<Vec<u8>>,
    /// What it is held back for.
    pub what: Awaits,
}

/// What a request of PMI-2 is held back for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaits {
    /// The fence.
    Fence,
    /// An attribute of the process's node.
    NodeAttribute(Vec<u8>),
    /// The start of a group.
    Spawn(GroupId),
    /// The value of this key, which a wrapper of the server answers.
    Key(Vec<u8>),
}

/// A process and its connection.
#[derive(Debug)]
pub struct Process {
    /// Bytes that are not a whole message yet.
    pub framer: Framer,
    /// What was negotiated.
    pub framing: Framing,
    /// The same, of PMI-1; 1.1 before that.
    pub version: Version,
    /// How far it has come.
    pub phase: Phase,
    /// What it waits for.
    pub waiting: Waiting,
    /// Its connection was let in by initack.
    pub admitted: bool,
    /// Present from the first `mcmd=spawn` of a request to its last `endcmd`.
    pub spawn: Option<Box<SpawnCollector>>,
    /// PMI-2: its fullinit has been answered.
    pub has_fullinit: bool,
    /// PMI-2: its requests that are not answered yet.
    pub held: Vec<Held>,
}

impl Process {
    fn new(line_max: usize) -> Self {
        Self {
            framer: Framer::new(line_max),
            framing: Framing::Lines,
            version: Version::V1_1,
            phase: Phase::New,
            waiting: Waiting::Nothing,
            admitted: false,
            spawn: None,
            has_fullinit: false,
            held: Vec::new(),
        }
    }

    /// Returns whether it waits in a fence of PMI-2.
    pub fn is_in_fence(&self) -> bool {
        self.held.iter().any(|held| held.what == Awaits::Fence)
    }
}

/// A process group.
#[derive(Debug)]
pub struct Group {
    /// The name of its keyval space, which is also the id of the job.
    pub kvsname: Vec<u8>,
    /// Its keyval space.
    pub kvs: HashMap<Vec<u8>, Vec<u8>>,
    /// By rank.
    pub procs: Vec<Process>,
    /// Number of processes of each program, in order of appnum.
    pub programs: Vec<u32>,
    /// The number of processes in the barrier.
    pub entered: u32,
    /// Barriers of parts of the group that a process has entered.
    pub open_barriers: Vec<OpenBarrier>,
    /// The number of processes that have left for good: finalized or closed. It is kept, because every barrier asks for it.
    pub left: u32,
    /// True if it was aborted.
    pub aborted: bool,
    /// True if it was created by a spawn request.
    pub spawned: bool,
    /// The job that spawned it, by a request of PMI-2.
    pub spawner: Option<Vec<u8>>,
    /// Attributes of nodes, by node and key.
    pub node: HashMap<(u32, Vec<u8>), Vec<u8>>,
}

impl Group {
    pub(super) fn appnum(&self, rank: u32) -> usize {
        let mut first = 0;
        self.programs.iter().position(|n| (first += n, rank < first).1).unwrap_or(0)
    }
}

/// A keyval space that a process has created.
#[derive(Debug)]
pub struct KeyvalSpace {
    /// Its name.
    pub name: Vec<u8>,
    /// In the order of their puts, by which they have numbers.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl KeyvalSpace {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

/// An action whose bytes are not written yet.
#[derive(Debug)]
pub enum Output {
    /// A reply of PMI-1.
    Line(Proc, Reply),
    /// A reply of PMI-2.
    Frame(Proc, FrameReply),
    /// Something else.
    Action(Action),
}

/// The state machine.
#[derive(Debug)]
pub struct Server {
    /// What it was set up with.
    pub config: Config,
    /// By number.
    pub groups: Vec<Group>,
    /// The ports of published names.
    pub names: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keyval spaces that processes have created.
    pub spaces: Vec<KeyvalSpace>,
    /// How many there have been.
    pub(super) created: u64,
    /// Which process waits for which group to be spawned.
    pub(super) spawns: Vec<(GroupId, Proc)>,
    outputs: VecDeque<Output>,
}

impl Server {
    /// A server without process groups.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            groups: Vec::new(),
            names: BTreeMap::new(),
            spaces: Vec::new(),
            created: 0,
            spawns: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Adds a process group; its processes may connect at once.
    pub fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        let id = self.groups.len() as GroupId;
        let size: u32 = spec.programs.iter().sum();
        let mut kvs: HashMap<_, _> = spec.preput.into_iter().collect();
        let mapping = ProcessMapping::compress(&place(size, self.config.nodes)).to_string().into_bytes();
        // RFC 13, Local Process Group Information: an empty string where the mapping does not fit.
        let mapping =
            if (mapping.len() as u64) < self.config.maxes.vallen_max { mapping } else { Vec::new() };
        kvs.insert(b"PMI_process_mapping".to_vec(), mapping);
        self.groups.push(Group {
            kvsname: format!("{}-{id}", self.config.kvs_prefix).into_bytes(),
            kvs,
            procs: (0..size).map(|_| Process::new(self.config.line_max)).collect(),
            programs: spec.programs,
            entered: 0,
            open_barriers: Vec::new(),
            left: 0,
            aborted: false,
            spawned: spec.spawned,
            spawner: None,
            node: HashMap::new(),
        });
        id
    }

    /// Number of processes of a group.
    pub fn size(&self, group: GroupId) -> u32 {
        self.groups[group as usize].procs.len() as u32
    }

    /// The variables that a process's environment must hold (RFC 13, Environment), given the number of the descriptor,
    /// which only the driver knows.
    pub fn environment(&self, p: Proc, place: &str) -> Vec<(&'static str, String)> {
        let size = self.size(p.group).to_string();
        let mut env = match self.config.way_in {
            WayIn::Port => vec![("PMI_PORT", place.to_owned()), ("PMI_ID", self.id(p).to_string())],
            // It has started before its process manager.
            WayIn::Singleton if p.group == 0 => return Vec::new(),
            WayIn::Fd | WayIn::Singleton => {
                vec![("PMI_FD", place.to_owned()), ("PMI_RANK", p.rank.to_string()), ("PMI_SIZE", size)]
            }
        };
        if self.groups[p.group as usize].spawned {
            env.push(("PMI_SPAWNED", "1".to_owned()));
        }
        env
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Option<Action> {
        let (to, bytes) = match self.next_output()? {
            Output::Line(to, reply) => (to, reply.render()),
            Output::Frame(to, reply) => (to, reply.render()),
            Output::Action(action) => return Some(action),
        };
        Some(Action::Send { to, bytes })
    }

    /// What to do next, with replies that are not written yet.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns whether the process has initialized and not finalized, so that [`closed`](Self::closed) would be an error.
    pub fn is_joined(&self, p: Proc) -> bool {
        !self.is_gone(p) && self.process(p).phase == Phase::Joined
    }

    /// Returns whether the connection of a process is closed.
    pub fn is_gone(&self, p: Proc) -> bool {
        self.groups[p.group as usize].aborted || self.process(p).phase == Phase::Closed
    }

    /// A process.
    pub fn process(&self, p: Proc) -> &Process {
        &self.groups[p.group as usize].procs[p.rank as usize]
    }

    /// A process, to be changed.
    pub fn process_mut(&mut self, p: Proc) -> &mut Process {
        &mut self.groups[p.group as usize].procs[p.rank as usize]
    }

    /// The node of a process.
    pub fn node(&self, p: Proc) -> u32 {
        place(self.size(p.group), self.config.nodes).get(p.rank as usize).copied().unwrap_or(0)
    }

    /// Replies to a process that speaks PMI-1.
    pub fn reply(&mut self, to: Proc, reply: Reply) {
        self.outputs.push_back(Output::Line(to, reply));
    }

    /// Replies to a process that speaks PMI-2.
    pub fn reply_frame(&mut self, to: Proc, reply: FrameReply) {
        self.outputs.push_back(Output::Frame(to, reply));
    }

    /// Has the driver do something.
    pub fn act(&mut self, action: Action) {
        self.outputs.push_back(Output::Action(action));
    }

    /// Ends a process group.
    pub fn abort(&mut self, by: Proc, status: i64, reason: String) {
        let group = &mut self.groups[by.group as usize];
        group.aborted = true;
        group.kvs = HashMap::new();
        group.open_barriers = Vec::new();
        self.act(Action::Abort { group: by.group, by: by.rank, status, reason });
    }
}
