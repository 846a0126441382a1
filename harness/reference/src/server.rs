//! The server's half of PMI-1 for any number of process groups.
//!
//! No sockets, processes or clocks: bytes and process events go in through [`Server::receive`],
//! [`Server::closed`] and [`Server::spawned`]; what to do comes out of [`Server::next_action`].
//! The answers are those of RFC 13 to the letter; where the RFC leaves a choice the doc comment of the
//! handler says which one was taken.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pmi_wire::{
    LineFramer, Operation, ProcessMapping, Request, SpawnAssembler, SpawnCollector, SpawnLimits,
    SpawnProgram, SpawnRequest, ValueReading, Version,
};

use crate::fault::{Behaviour, Quirks};
use crate::placement::place;
use crate::reply::Reply;

mod odd;

/// Number of a process group: 0 for the first, then in order of creation.
pub type GroupId = u32;

/// A process: its group and its rank in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcId {
    /// Process group.
    pub group: GroupId,
    /// Rank, from 0.
    pub rank: u32,
}

/// What a server is set up with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Longest kvsname, in bytes with the terminating NUL of the C API.
    pub kvsname_max: usize,
    /// Longest key, likewise.
    pub keylen_max: usize,
    /// Longest value, likewise.
    pub vallen_max: usize,
    /// Longest message, in bytes with the newline; a longer one is a protocol error.
    pub line_max: usize,
    /// Answer to `get_universe_size`; the size of the group if `None`.
    pub universe_size: Option<u64>,
    /// Nodes over which each group is spread.
    pub nodes: u32,
    /// Most processes that one spawn may start.
    pub spawn_max: u64,
    /// First part of every kvsname; the group number is appended.
    pub kvs_prefix: String,
    /// How it errs or is unusual; not at all by default.
    pub behaviour: Behaviour,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kvsname_max: 256,
            keylen_max: 64,
            vallen_max: 1024,
            line_max: 64 * 1024,
            universe_size: None,
            nodes: 1,
            spawn_max: 4096,
            kvs_prefix: "kvs".into(),
            behaviour: Behaviour::default(),
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
    /// Whether it was created by a spawn request.
    pub spawned: bool,
}

/// What the driver must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these bytes to the process's connection.
    Send {
        /// Whose connection.
        to: ProcId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Start the programs as process group `group` (ranks numbered through, `PMI_SPAWNED=1`), then call
    /// [`Server::spawned`].
    Spawn {
        /// The new group; known to the server already.
        group: GroupId,
        /// Who asked.
        by: ProcId,
        /// What to start.
        programs: Vec<SpawnProgram>,
    },
    /// Close the connection of one process; the others go on. Only a server with a fault or a variation asks for it.
    Close {
        /// Whose.
        proc: ProcId,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing received yet.
    New,
    Joined,
    Finalized,
    Closed,
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Barrier,
    Spawn,
}

#[derive(Debug)]
struct Proc {
    framer: LineFramer,
    phase: Phase,
    waiting: Waiting,
    /// Present from the first `mcmd=spawn` of a request to its last `endcmd`.
    spawn: Option<Box<SpawnCollector>>,
}

#[derive(Debug)]
struct Group {
    kvsname: Vec<u8>,
    kvs: HashMap<Vec<u8>, Vec<u8>>,
    procs: Vec<Proc>,
    programs: Vec<u32>,
    entered: u32,
    /// Processes that have left for good: finalized or closed. Counted, for every barrier asks.
    left: u32,
    aborted: bool,
    spawned: bool,
}

impl Group {
    fn appnum(&self, rank: u32) -> usize {
        let mut first = 0;
        self.programs.iter().position(|n| (first += n, rank < first).1).unwrap_or(0)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Server {
    config: Config,
    groups: Vec<Group>,
    names: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Who waits for which group to be spawned.
    spawns: Vec<(GroupId, ProcId)>,
    actions: VecDeque<Action>,
    /// `None` in a server without faults and variations.
    quirks: Option<Box<Quirks>>,
}

impl Server {
    /// A server without process groups.
    pub fn new(mut config: Config) -> Self {
        let quirks = Quirks::of(&config.behaviour);
        Self::odd_config(&mut config);
        Self {
            quirks,
            config,
            groups: Vec::new(),
            names: BTreeMap::new(),
            spawns: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// Adds a process group; its processes may connect at once.
    pub fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        let id = self.groups.len() as GroupId;
        let size: u32 = spec.programs.iter().sum();
        let mut kvs: HashMap<_, _> = spec.preput.into_iter().collect();
        let mapping = ProcessMapping::compress(&place(size, self.config.nodes)).to_string().into_bytes();
        // RFC 13, Local Process Group Information: an empty string where the mapping does not fit.
        let mapping = if mapping.len() < self.config.vallen_max { mapping } else { Vec::new() };
        let mapping = self.odd_mapping(id, size, mapping);
        kvs.insert(b"PMI_process_mapping".to_vec(), mapping);
        let kvsname = self.odd_kvsname(id, format!("{}-{id}", self.config.kvs_prefix).into_bytes());
        self.groups.push(Group {
            kvsname,
            kvs,
            procs: (0..size)
                .map(|_| Proc {
                    framer: LineFramer::new(self.config.line_max),
                    phase: Phase::New,
                    waiting: Waiting::Nothing,
                    spawn: None,
                })
                .collect(),
            programs: spec.programs,
            entered: 0,
            left: 0,
            aborted: false,
            spawned: spec.spawned,
        });
        id
    }

    /// Number of processes of a group.
    pub fn size(&self, group: GroupId) -> u32 {
        self.groups[group as usize].procs.len() as u32
    }

    /// Whether the group was spawned.
    fn is_spawned(&self, group: GroupId) -> bool {
        self.groups[group as usize].spawned
    }

    /// The variables that a process's environment must hold (RFC 13, Environment), given the number of the descriptor,
    /// which only the driver knows.
    pub fn environment(&mut self, p: ProcId, fd: &str) -> Vec<(&'static str, String)> {
        let size = self.size(p.group).to_string();
        let mut env = vec![("PMI_FD", fd.to_owned()), ("PMI_RANK", p.rank.to_string()), ("PMI_SIZE", size)];
        if self.is_spawned(p.group) {
            env.push(("PMI_SPAWNED", "1".to_owned()));
        }
        self.odd_environment(p, &mut env);
        env
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Bytes from a process.
    pub fn receive(&mut self, from: ProcId, bytes: &[u8]) {
        if self.dead(from) {
            return;
        }
        let heard = self.odd_read(from, bytes);
        let bytes = heard.as_deref().unwrap_or(bytes);
        let line_max = self.config.line_max;
        let mut framer = std::mem::replace(&mut self.proc(from).framer, LineFramer::new(line_max));
        framer.push(bytes);
        while let Some(line) = framer.next_line() {
            match line {
                Ok(line) => self.line(from, line),
                Err(overlong) => self.protocol_error(from, &overlong.to_string(), b""),
            }
            if self.dead(from) {
                return;
            }
        }
        self.proc(from).framer = framer;
    }

    /// The process closed its connection, or it ended. Without finalize before it, that is a protocol error: the
    /// others may wait for this process for ever.
    pub fn closed(&mut self, from: ProcId) {
        if self.dead(from) {
            return;
        }
        let group = &mut self.groups[from.group as usize];
        let proc = &mut group.procs[from.rank as usize];
        let phase = std::mem::replace(&mut proc.phase, Phase::Closed);
        let partial = !proc.framer.partial().is_empty();
        group.left += u32::from(phase != Phase::Finalized);
        match phase {
            Phase::Joined if self.odd_leaver(from) => {}
            Phase::Joined => self.protocol_error(from, "connection closed without finalize", b""),
            Phase::New if partial => self.protocol_error(from, "connection closed within a message", b""),
            // A program that never speaks PMI is nothing to us; but nobody may wait for it in a barrier.
            Phase::New | Phase::Finalized | Phase::Closed => self.fail_barrier(from),
        }
    }

    /// The programs of an [`Action::Spawn`] have been started: one error code per process, 0 for success. If any
    /// is not 0 the whole spawn has failed and the group is gone.
    pub fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        let Some(at) = self.spawns.iter().position(|(g, _)| *g == group) else { return };
        let (_, by) = self.spawns.swap_remove(at);
        let list = errcodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut reply = if errcodes.iter().all(|c| *c == 0) {
            Reply::ok(Operation::Spawn)
        } else {
            self.groups[group as usize].aborted = true;
            Reply::fail(Operation::Spawn, "spawn failed")
        };
        if !list.is_empty() {
            reply = reply.with("errcodes", list);
        }
        if !self.dead(by) {
            self.proc(by).waiting = Waiting::Nothing;
            self.reply(by, reply);
        }
    }

    /// Whether the process has initialized and not finalized, so that [`closed`](Self::closed) would be an error.
    pub fn is_joined(&self, p: ProcId) -> bool {
        !self.dead(p) && self.groups[p.group as usize].procs[p.rank as usize].phase == Phase::Joined
    }

    fn proc(&mut self, p: ProcId) -> &mut Proc {
        &mut self.groups[p.group as usize].procs[p.rank as usize]
    }

    fn dead(&self, p: ProcId) -> bool {
        let group = &self.groups[p.group as usize];
        group.aborted || group.procs[p.rank as usize].phase == Phase::Closed
    }

    fn reply(&mut self, to: ProcId, reply: Reply) {
        if self.quirks.is_some() {
            return self.odd_reply(to, &reply);
        }
        let mut bytes = Vec::with_capacity(64);
        reply.render(&mut bytes);
        self.actions.push_back(Action::Send { to, bytes });
    }

    fn abort(&mut self, by: ProcId, status: i64, reason: String) {
        let group = &mut self.groups[by.group as usize];
        group.aborted = true;
        group.kvs = HashMap::new();
        self.actions.push_back(Action::Abort { group: by.group, by: by.rank, status, reason });
    }

    /// RFC 13, Error Handling: close the connection, abort the program, log what it was.
    fn protocol_error(&mut self, from: ProcId, what: &str, line: &[u8]) {
        if self.odd_error(from, line) {
            return;
        }
        let shown = line[..line.len().min(200)].escape_ascii();
        let reason = if line.is_empty() {
            format!("protocol error: {what}")
        } else {
            format!("protocol error: {what}: \"{shown}\"")
        };
        self.abort(from, 1, reason);
    }

    fn line(&mut self, from: ProcId, line: &[u8]) {
        if self.quirks.is_some() {
            if let Some(line) = self.odd_line(from, line) {
                self.request_line(from, &line);
            }
        } else {
            self.request_line(from, line);
        }
    }

    fn request_line(&mut self, from: ProcId, line: &[u8]) {
        match self.proc(from).waiting {
            Waiting::Nothing => {}
            // RFC 13, Wire Protocol: requests and responses are exchanged in lock-step.
            Waiting::Barrier => return self.protocol_error(from, "request while in the barrier", line),
            Waiting::Spawn => return self.protocol_error(from, "request while a spawn is answered", line),
        }
        if self.proc(from).spawn.is_some() || SpawnAssembler::is_spawn_start(line) {
            return self.spawn_line(from, line);
        }
        let request = match Request::parse(line, ValueReading::ToEndOfLine) {
            Ok(request) => request,
            // RFC 13's grammar does not derive it: a protocol error.
            Err(error) => return self.protocol_error(from, &error.to_string(), line),
        };
        match (self.proc(from).phase, request.operation()) {
            (Phase::New, Operation::Init) | (Phase::Joined, _) => {}
            (Phase::New, _) => return self.protocol_error(from, "request before init", line),
            (Phase::Finalized | Phase::Closed, _) => {
                return self.protocol_error(from, "request after finalize", line);
            }
        }
        match request {
            Request::Init(offered) => self.init(from, offered, line),
            Request::Maxes => {
                let c = &self.config;
                let reply = Reply::ok(Operation::Maxes)
                    .with("kvsname_max", c.kvsname_max.to_string())
                    .with("keylen_max", c.keylen_max.to_string())
                    .with("vallen_max", c.vallen_max.to_string());
                self.reply(from, reply);
            }
            Request::Abort { .. } if self.odd_abort(from) => {}
            Request::Abort { exitcode } => {
                self.reply(from, Reply::ok(Operation::Abort));
                self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
            }
            Request::Finalize if self.odd_finalize(from) => {}
            Request::Finalize => {
                self.proc(from).phase = Phase::Finalized;
                self.groups[from.group as usize].left += 1;
                self.reply(from, Reply::ok(Operation::Finalize));
                self.fail_barrier(from);
            }
            Request::Universe => {
                let size = self.config.universe_size.unwrap_or(u64::from(self.size(from.group)));
                self.reply(from, Reply::ok(Operation::Universe).with("size", size.to_string()));
            }
            Request::Appnum => {
                let appnum = self.groups[from.group as usize].appnum(from.rank);
                self.reply(from, Reply::ok(Operation::Appnum).with("appnum", appnum.to_string()));
            }
            Request::Put { kvsname, key, value } => {
                let reply = self.put(from, kvsname, key, value);
                self.reply(from, reply);
            }
            Request::Kvsname => {
                let name = self.groups[from.group as usize].kvsname.clone();
                self.reply(from, Reply::ok(Operation::Kvsname).with("kvsname", name));
            }
            Request::Barrier => self.barrier(from),
            Request::Get { kvsname, key } => {
                if let Some(reply) = self.odd_get(from, kvsname, key) {
                    return self.reply(from, reply);
                }
                let group = &self.groups[from.group as usize];
                let reply = match group.kvs.get(key) {
                    _ if group.kvsname != kvsname => Reply::fail(Operation::Get, "unknown kvsname"),
                    None => Reply::fail(Operation::Get, "key not found"),
                    Some(value) => Reply::ok(Operation::Get).with("value", value.clone()),
                };
                self.reply(from, reply);
            }
            Request::Publish { .. } | Request::Unpublish { .. } | Request::Lookup { .. }
                if self.odd_names(from, &request) => {}
            Request::Publish { service, port } => {
                let reply = if self.names.contains_key(service) {
                    Reply::fail(Operation::Publish, "name is published already")
                } else {
                    self.names.insert(service.to_vec(), port.to_vec());
                    Reply::ok(Operation::Publish)
                };
                self.reply(from, reply);
            }
            Request::Unpublish { service } => {
                let reply = match self.names.remove(service) {
                    Some(_) => Reply::ok(Operation::Unpublish),
                    None => Reply::fail(Operation::Unpublish, "name is not published"),
                };
                self.reply(from, reply);
            }
            Request::Lookup { service } => {
                let reply = match self.names.get(service) {
                    Some(port) => Reply::ok(Operation::Lookup).with("port", port.clone()),
                    None => Reply::fail(Operation::Lookup, "name is not published"),
                };
                self.reply(from, reply);
            }
        }
    }

    /// RFC 13, Version Negotiation. We speak 1.1 only: a client whose highest version is lower cannot be served and
    /// is told so; it stays connected and may offer another.
    fn init(&mut self, from: ProcId, offered: Version, line: &[u8]) {
        if self.proc(from).phase == Phase::Joined {
            return self.protocol_error(from, "init twice", line);
        }
        if self.odd_init(from, offered) {
            return;
        }
        let reply = if offered < Version::V1_1 {
            Reply::fail(Operation::Init, format!("version {offered} is not supported, 1.1 is"))
        } else {
            self.proc(from).phase = Phase::Joined;
            Reply::ok(Operation::Init)
                .with("pmi_version", Version::V1_1.version.to_string())
                .with("pmi_subversion", Version::V1_1.subversion.to_string())
        };
        self.reply(from, reply);
    }

    /// The pair is visible at once, which RFC 13 allows; a key that is there already is refused.
    fn put(&mut self, from: ProcId, kvsname: &[u8], key: &[u8], value: &[u8]) -> Reply {
        if let Some(reply) = self.odd_put(from, kvsname, key, value) {
            return reply;
        }
        let (keylen_max, vallen_max) = (self.config.keylen_max, self.config.vallen_max);
        let group = &mut self.groups[from.group as usize];
        let refused = if group.kvsname != kvsname {
            "unknown kvsname"
        } else if key.len() >= keylen_max {
            "key too long"
        } else if value.len() >= vallen_max {
            "value too long"
        } else if group.kvs.contains_key(key) {
            "key is there already"
        } else {
            group.kvs.insert(key.to_vec(), value.to_vec());
            return Reply::ok(Operation::Put);
        };
        Reply::fail(Operation::Put, refused)
    }

    fn barrier(&mut self, from: ProcId) {
        let group = &mut self.groups[from.group as usize];
        group.procs[from.rank as usize].waiting = Waiting::Barrier;
        group.entered += 1;
        if self.odd_barrier(from) {
            return;
        }
        let group = &mut self.groups[from.group as usize];
        if group.entered == group.procs.len() as u32 {
            self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
        } else {
            self.fail_barrier(from);
        }
    }

    /// RFC 13, PMI_Barrier: blocks until all have entered or an error occurs. A process that has left for good is
    /// such an error for those that wait.
    fn fail_barrier(&mut self, by: ProcId) {
        let group = &self.groups[by.group as usize];
        if group.left > 0 && group.entered > 0 {
            if self.odd_left(by) {
                return;
            }
            self.leave_barrier(by.group, &Reply::fail(Operation::Barrier, "a process has left the program"));
        }
    }

    fn leave_barrier(&mut self, id: GroupId, reply: &Reply) {
        if self.quirks.is_some() {
            return self.odd_leave(id, reply);
        }
        let group = &mut self.groups[id as usize];
        group.entered = 0;
        let mut bytes = Vec::new();
        reply.render(&mut bytes);
        for (rank, proc) in (0..).zip(&mut group.procs) {
            if proc.waiting == Waiting::Barrier {
                proc.waiting = Waiting::Nothing;
                let to = ProcId { group: id, rank };
                self.actions.push_back(Action::Send { to, bytes: bytes.clone() });
            }
        }
    }

    fn spawn_line(&mut self, from: ProcId, line: &[u8]) {
        match self.proc(from).phase {
            Phase::Joined => {}
            Phase::New => return self.protocol_error(from, "request before init", line),
            Phase::Finalized | Phase::Closed => {
                return self.protocol_error(from, "request after finalize", line);
            }
        }
        match self
            .proc(from)
            .spawn
            .get_or_insert_with(|| Box::new(SpawnCollector::new(SpawnLimits::default())))
            .push_line(line)
        {
            Ok(None) => {}
            Ok(Some(request)) => {
                self.proc(from).spawn = None;
                self.spawn(from, request);
            }
            Err(error) => self.protocol_error(from, &error.to_string(), line),
        }
    }

    /// RFC 13, PMI_Spawn_multiple: all programs make one new process group; the preput pairs are in its keyval space
    /// before a process starts. The preput pairs of every program count, as each message carries them.
    fn spawn(&mut self, by: ProcId, request: SpawnRequest) {
        let Some(request) = self.odd_spawn(by, request) else { return };
        let total: u64 = request.programs.iter().map(|p| p.nprocs).fold(0, u64::saturating_add);
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.iter().cloned()).collect();
        let refused = if total == 0 {
            "no processes asked for"
        } else if total > self.config.spawn_max {
            "too many processes asked for"
        } else if preput.iter().any(|(k, _)| k.len() >= self.config.keylen_max) {
            "preput key too long"
        } else if preput.iter().any(|(_, v)| v.len() >= self.config.vallen_max) {
            "preput value too long"
        } else {
            let programs = request.programs.iter().map(|p| p.nprocs as u32).collect();
            let group = self.add_group(GroupSpec { programs, preput, spawned: true });
            self.proc(by).waiting = Waiting::Spawn;
            self.spawns.push((group, by));
            let programs = self.odd_start(by, group, request.programs);
            self.actions.push_back(Action::Spawn { group, by, programs });
            return;
        };
        self.reply(by, Reply::fail(Operation::Spawn, refused));
    }
}
