//! A model of the reference server, derived independently from RFC 13 and from the choices that the server's documentation names. It shares
//! no code with the server, and holds indices instead of bytes.
//!
//! It has not found any error in the server that the monitor had missed. It is kept because its transitions are the coverage of
//! `server_ops`.

use crate::ops::{ClientOp, KEYLEN_MAX, KEYS, OFFERS, PORTS, SPAWN_MAX, VALLEN_MAX, VALUES};

/// A process: group and rank.
pub(crate) type ProcessId = (u32, u32);

/// The next action of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedAction {
    /// Send exactly the bytes in this range of [`Model::text`].
    Send { to: ProcessId, start: usize, end: usize },
    /// Send one line: this response, with an `rc` that is not 0.
    Refuse { to: ProcessId, cmd: &'static str },
    /// Abort the group, with this exit status.
    Abort { by: ProcessId, status: i64 },
    /// Start a group of this many processes.
    Spawn { group: u32, by: ProcessId, size: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelPhase {
    New,
    Joined,
    Left,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelWait {
    No,
    Barrier,
    Spawn,
}

#[derive(Debug, Clone, Copy)]
struct ModelProcess {
    phase: ModelPhase,
    waits: ModelWait,
}

/// A value in the keyval space: a known one, or the one that was put with the spawn request.
#[derive(Debug, Clone, Copy)]
enum ModelValue {
    Put(u8),
    Preput,
}

#[derive(Debug)]
struct ModelGroup {
    /// Only the first `size` entries count.
    processes: [ModelProcess; 4],
    size: u32,
    /// Number of processes of its first program.
    first: u32,
    kvs: [Option<ModelValue>; KEYS.len()],
    dead: bool,
}

#[derive(Debug)]
struct WaitingProcess {
    group: u32,
    by: ProcessId,
    size: u32,
}

/// A server without faults.
#[derive(Debug)]
pub(crate) struct Model {
    nodes: u32,
    groups: Vec<ModelGroup>,
    names: [Option<u8>; 4],
    spawns: Vec<WaitingProcess>,
    /// Number of barriers that all processes have passed, in all groups.
    pub(crate) rounds: u32,
    /// The expected actions, in order.
    pub(crate) due: Vec<ExpectedAction>,
    /// The expected bytes.
    pub(crate) text: Vec<u8>,
}

impl Model {
    pub(crate) fn new(size: u32, nodes: u32) -> Self {
        let mut model = Self {
            nodes,
            groups: Vec::with_capacity(4),
            names: [None; 4],
            spawns: Vec::new(),
            rounds: 0,
            due: Vec::with_capacity(8),
            text: Vec::with_capacity(256),
        };
        model.add(size, size);
        model
    }

    fn add(&mut self, size: u32, first: u32) {
        let processes = [ModelProcess { phase: ModelPhase::New, waits: ModelWait::No }; 4];
        self.groups.push(ModelGroup { processes, size, first, kvs: [None; KEYS.len()], dead: false });
    }

    /// Clears the expected actions.
    pub(crate) fn settle(&mut self) {
        self.due.clear();
        self.text.clear();
    }

    pub(crate) fn groups(&self) -> u32 {
        self.groups.len() as u32
    }

    pub(crate) fn size(&self, group: u32) -> u32 {
        self.groups[group as usize].size
    }

    /// Returns whether actions of the process no longer matter.
    pub(crate) fn is_gone(&self, who: ProcessId) -> bool {
        self.groups[who.0 as usize].dead || self.process(who).phase == ModelPhase::Closed
    }

    /// Returns whether the process may enter a barrier.
    pub(crate) fn may_enter(&self, who: ProcessId) -> bool {
        let process = self.process(who);
        !self.is_gone(who) && process.phase == ModelPhase::Joined && process.waits == ModelWait::No
    }

    /// Returns the state around a process as a small number, for coverage.
    pub(crate) fn state(&self, who: ProcessId) -> u32 {
        let group = &self.groups[who.0 as usize];
        let (mut waiting, mut left, mut new) = (false, false, false);
        for process in &group.processes[..group.size as usize] {
            waiting |= process.waits == ModelWait::Barrier;
            left |= matches!(process.phase, ModelPhase::Left | ModelPhase::Closed);
            new |= process.phase == ModelPhase::New;
        }
        let process = self.process(who);
        let parts = [
            process.phase as u32,
            process.waits as u32,
            u32::from(waiting),
            u32::from(left),
            u32::from(new),
            u32::from(group.dead),
            u32::from(who.0 > 0),
            group.kvs.iter().flatten().count().min(2) as u32,
        ];
        parts.into_iter().fold(0, |hash, part| hash * 4 + part)
    }

    fn process(&self, who: ProcessId) -> &ModelProcess {
        &self.groups[who.0 as usize].processes[who.1 as usize]
    }

    fn process_mut(&mut self, who: ProcessId) -> &mut ModelProcess {
        &mut self.groups[who.0 as usize].processes[who.1 as usize]
    }

    fn send(&mut self, to: ProcessId, parts: &[&str]) {
        let start = self.text.len();
        parts.iter().for_each(|part| self.text.extend_from_slice(part.as_bytes()));
        self.text.push(b'\n');
        self.due.push(ExpectedAction::Send { to, start, end: self.text.len() });
    }

    fn send_number(&mut self, to: ProcessId, text: &str, number: u32) {
        // The number always has one digit.
        self.send(to, &[text, &"0123456789"[number as usize..][..1]]);
    }

    fn refuse(&mut self, to: ProcessId, cmd: &'static str) {
        self.due.push(ExpectedAction::Refuse { to, cmd });
    }

    /// Aborts the program (RFC 13, "Error Handling").
    fn abort(&mut self, by: ProcessId, status: i64) {
        self.groups[by.0 as usize].dead = true;
        self.due.push(ExpectedAction::Abort { by, status });
    }

    /// Handles the arrival of a request's first line, and returns whether the server reads the rest.
    pub(crate) fn begin(&mut self, who: ProcessId, op: ClientOp) -> bool {
        if self.is_gone(who) {
            return false;
        }
        let process = self.process(who);
        // Requests are in lock-step, and none is allowed before init or after finalize.
        let in_order = process.waits == ModelWait::No
            && match process.phase {
                ModelPhase::New => matches!(op, ClientOp::Init(_)),
                ModelPhase::Joined => {
                    !matches!(op, ClientOp::Init(_) | ClientOp::Junk(_) | ClientOp::Overlong)
                }
                ModelPhase::Left | ModelPhase::Closed => false,
            };
        if !in_order {
            self.abort(who, 1);
        }
        in_order
    }

    /// Handles the arrival of a whole request that was begun.
    pub(crate) fn request(&mut self, who: ProcessId, op: ClientOp) {
        if self.is_gone(who) {
            return;
        }
        let group = who.0 as usize;
        match op {
            ClientOp::Init(version) => {
                let answer = match version % OFFERS {
                    0 => return self.refuse(who, "response_to_init"),
                    1 => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=0",
                    _ => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
                };
                self.process_mut(who).phase = ModelPhase::Joined;
                self.send(who, &[answer]);
            }
            ClientOp::Maxes => {
                self.send(who, &["cmd=maxes rc=0 kvsname_max=256 keylen_max=14 vallen_max=20"])
            }
            ClientOp::Universe => self.send_number(who, "cmd=universe_size rc=0 size=", self.size(who.0)),
            ClientOp::Appnum => {
                let appnum = u32::from(who.1 >= self.groups[group].first);
                self.send_number(who, "cmd=appnum rc=0 appnum=", appnum);
            }
            ClientOp::Kvsname => self.send_number(who, "cmd=my_kvsname rc=0 kvsname=kvs-", who.0),
            ClientOp::Put { own, key, value } => {
                let slot = &mut self.groups[group].kvs[usize::from(key)];
                let fits = KEYS[usize::from(key)].len() < KEYLEN_MAX
                    && VALUES[usize::from(value)].len() < VALLEN_MAX;
                if own && fits && slot.is_none() {
                    *slot = Some(ModelValue::Put(value));
                    self.send(who, &["cmd=put_result rc=0"]);
                } else {
                    self.refuse(who, "put_result");
                }
            }
            ClientOp::Get { own, key } => match self.groups[group].kvs[usize::from(key)].filter(|_| own) {
                Some(ModelValue::Put(value)) => {
                    self.send(who, &["cmd=get_result rc=0 value=", VALUES[usize::from(value)]]);
                }
                Some(ModelValue::Preput) => self.send(who, &["cmd=get_result rc=0 value=pre"]),
                None => self.refuse(who, "get_result"),
            },
            ClientOp::GetMapping => self.mapping(who),
            ClientOp::Publish { service, port } => {
                let slot = &mut self.names[usize::from(service)];
                if slot.is_none() {
                    *slot = Some(port);
                    self.send(who, &["cmd=publish_result rc=0"]);
                } else {
                    self.refuse(who, "publish_result");
                }
            }
            ClientOp::Unpublish(service) => match self.names[usize::from(service)].take() {
                Some(_) => self.send(who, &["cmd=unpublish_result rc=0"]),
                None => self.refuse(who, "unpublish_result"),
            },
            ClientOp::Lookup(service) => match self.names[usize::from(service)] {
                Some(port) => self.send(who, &["cmd=lookup_result rc=0 port=", PORTS[usize::from(port)]]),
                None => self.refuse(who, "lookup_result"),
            },
            ClientOp::Abort(code) => {
                self.send(who, &[]);
                self.abort(who, code.map_or(1, i64::from));
            }
            ClientOp::Finalize => {
                self.process_mut(who).phase = ModelPhase::Left;
                self.send(who, &["cmd=finalize_ack rc=0"]);
                self.barrier(who.0);
            }
            ClientOp::Barrier => {
                self.process_mut(who).waits = ModelWait::Barrier;
                self.barrier(who.0);
            }
            ClientOp::Spawn { first, second, key } => self.spawn(who, first, second, key),
            // `begin` rejects these, so their rest is never read.
            ClientOp::Junk(_) | ClientOp::Overlong => {}
        }
    }

    /// Releases the waiting processes from the barrier, if all have entered, or if one never will.
    fn barrier(&mut self, id: u32) {
        let group = &self.groups[id as usize];
        let processes = &group.processes[..group.size as usize];
        let all = processes.iter().all(|p| p.waits == ModelWait::Barrier);
        if !all && !processes.iter().any(|p| matches!(p.phase, ModelPhase::Left | ModelPhase::Closed)) {
            return;
        }
        self.rounds += u32::from(all);
        for rank in 0..self.size(id) {
            let who = (id, rank);
            if self.process(who).waits == ModelWait::Barrier {
                self.process_mut(who).waits = ModelWait::No;
                if all {
                    self.send(who, &["cmd=barrier_out rc=0"]);
                } else {
                    self.refuse(who, "barrier_out");
                }
            }
        }
    }

    /// Sends the mapping that distributes the ranks over the nodes in even blocks. A mapping with more than one block exceeds the limit of
    /// values.
    fn mapping(&mut self, who: ProcessId) {
        let size = self.size(who.0);
        let nodes = self.nodes.min(size);
        if !size.is_multiple_of(nodes) {
            return self.send(who, &["cmd=get_result rc=0 value="]);
        }
        let digit = |number: u32| &"0123456789"[number as usize..][..1];
        let (nodes, each) = (digit(nodes), digit(size / nodes));
        self.send(who, &["cmd=get_result rc=0 value=(vector,(0,", nodes, ",", each, "))"]);
    }

    fn spawn(&mut self, by: ProcessId, first: u8, second: Option<u8>, key: Option<u8>) {
        let first = u32::from(first);
        let size = first + second.map_or(0, u32::from);
        let key = key.map(usize::from);
        if size == 0 || u64::from(size) > SPAWN_MAX || key.is_some_and(|key| KEYS[key].len() >= KEYLEN_MAX) {
            return self.refuse(by, "spawn_result");
        }
        let group = self.groups();
        self.add(size, first);
        if let Some(key) = key {
            self.groups[group as usize].kvs[key] = Some(ModelValue::Preput);
        }
        self.process_mut(by).waits = ModelWait::Spawn;
        self.spawns.push(WaitingProcess { group, by, size });
        self.due.push(ExpectedAction::Spawn { group, by, size });
    }

    /// Handles the end of the oldest pending spawn, and returns its group and size. If `good`, the processes were started.
    pub(crate) fn spawned(&mut self, good: bool) -> Option<(u32, u32)> {
        if self.spawns.is_empty() {
            return None;
        }
        let WaitingProcess { group, by, size } = self.spawns.remove(0);
        self.groups[group as usize].dead |= !good;
        if !self.is_gone(by) {
            self.process_mut(by).waits = ModelWait::No;
            if good {
                let zeros = &"0,0,0,0"[..size as usize * 2 - 1];
                self.send(by, &["cmd=spawn_result rc=0 errcodes=", zeros]);
            } else {
                self.refuse(by, "spawn_result");
            }
        }
        Some((group, size))
    }

    /// Handles the end of the process's connection. `partial` is true if the connection ended within a message.
    pub(crate) fn closed(&mut self, who: ProcessId, partial: bool) {
        if self.is_gone(who) {
            return;
        }
        let before = std::mem::replace(&mut self.process_mut(who).phase, ModelPhase::Closed);
        match before {
            ModelPhase::Joined => self.abort(who, 1),
            ModelPhase::New if partial => self.abort(who, 1),
            _ => self.barrier(who.0),
        }
    }
}
