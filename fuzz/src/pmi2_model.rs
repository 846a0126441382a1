//! A model of the PMI-2 reference server, derived independently from the draft and from the choices that the server's documentation names.
//! It shares no code with the server, and holds indices instead of bytes.
//!
//! It found errors in the server that neither a scenario nor a monitor had shown: a second fence by another thread was a protocol error,
//! not all fences of a process failed after another process had left, and a successful spawn had no job id if the new group had already
//! ended.

use crate::pmi2_requests::{ATTRIBUTES, DRAFT_ONLY, KEYS, NAMES, PORTS, Pmi2ClientOp, SPAWN_MAX, value_of};

/// A process: group and rank.
pub(crate) type ProcessId = (u32, u32);

/// The next action of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pmi2ExpectedAction {
    /// Send this text: all of it if it is `ok` or a line, and otherwise a body that begins with it.
    Send { to: ProcessId, ok: bool, line: bool, text: String },
    /// Abort the group, with this exit status.
    Abort { by: ProcessId, status: i64 },
    /// Start a group of this many processes.
    Spawn { group: u32, by: ProcessId, size: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pmi2ModelPhase {
    New,
    /// The server has answered the offer.
    Offered,
    Joined,
    Left,
    Closed,
}

/// A request that waits for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pmi2ModelWait {
    Fence,
    Attribute(u8),
    Spawn(u32),
}

#[derive(Debug, Clone)]
struct Pmi2ModelProcess {
    phase: Pmi2ModelPhase,
    waits: Vec<(Option<u8>, Pmi2ModelWait)>,
}

/// A value in the keyval space: a known one, or the one that was put with the spawn request.
#[derive(Debug, Clone, Copy)]
enum Pmi2ModelValue {
    Put(u8),
    Preput,
}

#[derive(Debug)]
struct Pmi2ModelGroup {
    processes: Vec<Pmi2ModelProcess>,
    /// Number of processes of its first program.
    first: u32,
    spawner: Option<u32>,
    kvs: [Option<Pmi2ModelValue>; KEYS.len()],
    /// Indexed by node and key.
    attributes: [[Option<u8>; KEYS.len()]; 4],
    dead: bool,
}

/// A server without faults.
#[derive(Debug)]
pub(crate) struct Pmi2Model {
    nodes: u32,
    groups: Vec<Pmi2ModelGroup>,
    names: [Option<u8>; NAMES.len()],
    spawns: Vec<(u32, ProcessId)>,
    /// The expected actions, in order.
    pub(crate) due: Vec<Pmi2ExpectedAction>,
}

/// Returns whether a key is within the limit of the draft.
fn is_short(key: u8) -> bool {
    KEYS[usize::from(key)].len() <= 64
}

/// Returns whether a pair is within the limits of the draft.
fn fits(key: u8, value: u8) -> bool {
    is_short(key) && value_of(value).len() <= 1024
}

fn doubled(text: &str) -> String {
    text.replace(';', ";;")
}

impl Pmi2Model {
    pub(crate) fn new(size: u32, nodes: u32) -> Self {
        let mut model = Self {
            nodes,
            groups: Vec::new(),
            names: [None; NAMES.len()],
            spawns: Vec::new(),
            due: Vec::new(),
        };
        model.add(size, size, None);
        model
    }

    fn add(&mut self, size: u32, first: u32, spawner: Option<u32>) {
        let process = Pmi2ModelProcess { phase: Pmi2ModelPhase::New, waits: Vec::new() };
        self.groups.push(Pmi2ModelGroup {
            processes: vec![process; size as usize],
            first,
            spawner,
            kvs: [None; KEYS.len()],
            attributes: [[None; KEYS.len()]; 4],
            dead: false,
        });
    }

    pub(crate) fn groups(&self) -> u32 {
        self.groups.len() as u32
    }

    pub(crate) fn size(&self, group: u32) -> u32 {
        self.groups[group as usize].processes.len() as u32
    }

    fn is_gone(&self, who: ProcessId) -> bool {
        self.groups[who.0 as usize].dead || self.process(who).phase == Pmi2ModelPhase::Closed
    }

    fn process(&self, who: ProcessId) -> &Pmi2ModelProcess {
        &self.groups[who.0 as usize].processes[who.1 as usize]
    }

    fn process_mut(&mut self, who: ProcessId) -> &mut Pmi2ModelProcess {
        &mut self.groups[who.0 as usize].processes[who.1 as usize]
    }

    /// Returns the state around a process as a small number, for coverage.
    pub(crate) fn state(&self, who: ProcessId) -> u32 {
        let group = &self.groups[who.0 as usize];
        let process = self.process(who);
        let others = group.processes.iter();
        let parts = [
            process.phase as u32,
            process.waits.len().min(3) as u32,
            others.clone().any(Self::in_fence).into(),
            others.clone().any(|p| matches!(p.phase, Pmi2ModelPhase::Left | Pmi2ModelPhase::Closed)).into(),
            group.dead.into(),
            u32::from(who.0 > 0),
            group.kvs.iter().flatten().count().min(2) as u32,
        ];
        parts.into_iter().fold(0, |hash, part| hash * 5 + part)
    }

    /// Returns the node of a process. Ranks are in even blocks, larger ones first.
    fn node(&self, who: ProcessId) -> usize {
        let size = self.size(who.0);
        let nodes = self.nodes.min(size);
        let (each, more) = (size / nodes, size % nodes);
        let mut rank = who.1;
        for node in 0..nodes {
            let here = each + u32::from(node < more);
            if rank < here {
                return node as usize;
            }
            rank -= here;
        }
        0
    }

    fn answer(&mut self, to: ProcessId, thrid: Option<u8>, name: &str, fields: &str) {
        let text = format!("cmd={name}-response;{}{fields}rc=0;", told(thrid));
        self.due.push(Pmi2ExpectedAction::Send { to, ok: true, line: false, text });
    }

    fn refuse(&mut self, to: ProcessId, thrid: Option<u8>, name: &str, rc: u32) {
        let text = format!("cmd={name}-response;{}rc={rc};errmsg=", told(thrid));
        self.due.push(Pmi2ExpectedAction::Send { to, ok: false, line: false, text });
    }

    fn found(&mut self, to: ProcessId, thrid: Option<u8>, name: &str, value: Option<String>) {
        let fields = match value {
            Some(value) => format!("found=TRUE;value={};", doubled(&value)),
            None => "found=FALSE;".to_owned(),
        };
        self.answer(to, thrid, name, &fields);
    }

    fn abort(&mut self, by: ProcessId, status: i64) {
        self.groups[by.0 as usize].dead = true;
        self.due.push(Pmi2ExpectedAction::Abort { by, status });
    }

    /// Returns whether the process has sent nothing. Its first message must be the offer, because the server would read a frame as a line.
    pub(crate) fn is_new(&self, who: ProcessId) -> bool {
        self.process(who).phase == Pmi2ModelPhase::New
    }

    /// Returns whether a process may make a request with this thread now.
    fn is_welcome(&self, who: ProcessId, thrid: Option<u8>) -> bool {
        let process = self.process(who);
        let waits = process.waits.iter().any(|(other, _)| other.is_none() || *other == thrid);
        process.phase == Pmi2ModelPhase::Joined && !waits
    }

    /// Handles the arrival of a request.
    pub(crate) fn request(&mut self, who: ProcessId, op: Pmi2ClientOp, thrid: Option<u8>) {
        if self.is_gone(who) {
            return;
        }
        let phase = self.process(who).phase;
        if phase == Pmi2ModelPhase::New {
            self.process_mut(who).phase = Pmi2ModelPhase::Offered;
            let text = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0".to_owned();
            return self.due.push(Pmi2ExpectedAction::Send { to: who, ok: true, line: true, text });
        }
        match op {
            // A line instead of a frame: its first six bytes are not a length.
            Pmi2ClientOp::Offer => return self.abort(who, 1),
            // The server distinguishes invalid requests from unknown commands before any other check.
            Pmi2ClientOp::Junk(0) => return self.refuse(who, None, "bogus", 2),
            Pmi2ClientOp::Junk(_) => return self.abort(who, 1),
            _ => {}
        }
        let joined = matches!(phase, Pmi2ModelPhase::Joined);
        let waits = joined && !self.is_welcome(who, thrid);
        match op {
            Pmi2ClientOp::Abort(code)
                if matches!(phase, Pmi2ModelPhase::Joined | Pmi2ModelPhase::Offered) =>
            {
                return self.abort(who, code.map_or(1, i64::from));
            }
            _ if waits => return self.abort(who, 1),
            Pmi2ClientOp::Fullinit if phase == Pmi2ModelPhase::Offered => {}
            Pmi2ClientOp::Fullinit => return self.abort(who, 1),
            _ if joined => {}
            _ => return self.abort(who, 1),
        }
        self.serve(who, op, thrid);
    }

    fn serve(&mut self, who: ProcessId, op: Pmi2ClientOp, thrid: Option<u8>) {
        let group = who.0 as usize;
        match op {
            Pmi2ClientOp::Fullinit => {
                self.process_mut(who).phase = Pmi2ModelPhase::Joined;
                let of = &self.groups[group];
                let spawner = of.spawner.map_or(String::new(), |id| format!("spawner-jobid=kvs-{id};"));
                let fields = format!(
                    "pmi-version=2;pmi-subversion=0;rank={};size={};appnum={};{spawner}debugged=FALSE;pmiverbose=FALSE;",
                    who.1,
                    of.processes.len(),
                    u32::from(who.1 >= of.first)
                );
                self.answer(who, thrid, "fullinit", &fields);
            }
            Pmi2ClientOp::Finalize => {
                self.process_mut(who).phase = Pmi2ModelPhase::Left;
                self.answer(who, thrid, "finalize", "");
                self.fail_fence(who.0);
            }
            Pmi2ClientOp::JobGetid => self.answer(who, thrid, "job-getid", &format!("jobid=kvs-{group};")),
            Pmi2ClientOp::DraftOnly { command, .. } => {
                self.refuse(who, thrid, DRAFT_ONLY[usize::from(command)].1, 1)
            }
            Pmi2ClientOp::Put { key, value } => {
                let slot = &mut self.groups[group].kvs[usize::from(key)];
                if fits(key, value) && slot.is_none() {
                    *slot = Some(Pmi2ModelValue::Put(value));
                    self.answer(who, thrid, "kvs-put", "");
                } else {
                    self.refuse(who, thrid, "kvs-put", 1);
                }
            }
            Pmi2ClientOp::Get { key, job } => {
                if job.is_some_and(|job| usize::from(job) != group) {
                    return self.refuse(who, thrid, "kvs-get", 1);
                }
                let value = self.groups[group].kvs[usize::from(key)].map(|value| match value {
                    Pmi2ModelValue::Put(value) => value_of(value),
                    Pmi2ModelValue::Preput => "pre".to_owned(),
                });
                self.found(who, thrid, "kvs-get", value);
            }
            Pmi2ClientOp::Fence => {
                self.process_mut(who).waits.push((thrid, Pmi2ModelWait::Fence));
                self.fence(who.0);
            }
            Pmi2ClientOp::PutNode { key, value } => {
                if !fits(key, value) {
                    return self.refuse(who, thrid, "info-putnodeattr", 1);
                }
                let node = self.node(who);
                self.groups[group].attributes[node][usize::from(key)] = Some(value);
                self.answer(who, thrid, "info-putnodeattr", "");
                self.release(who.0, node, key, value);
            }
            Pmi2ClientOp::GetNode { key, wait } => {
                let value = self.groups[group].attributes[self.node(who)][usize::from(key)];
                if wait && value.is_none() {
                    self.process_mut(who).waits.push((thrid, Pmi2ModelWait::Attribute(key)));
                } else {
                    self.found(who, thrid, "info-getnodeattr", value.map(value_of));
                }
            }
            Pmi2ClientOp::JobAttribute(key) => {
                let value = match ATTRIBUTES[usize::from(key)] {
                    "PMI_process_mapping" => Some(self.mapping(who.0)),
                    "universeSize" => Some(self.size(who.0).to_string()),
                    "hasNameServ" => Some("YES".to_owned()),
                    _ => None,
                };
                self.found(who, thrid, "info-getjobattr", value);
            }
            Pmi2ClientOp::Publish { name, port } => match &mut self.names[usize::from(name)] {
                Some(_) => self.refuse(who, thrid, "name-publish", 1),
                slot => {
                    *slot = Some(port);
                    self.answer(who, thrid, "name-publish", "");
                }
            },
            Pmi2ClientOp::Lookup(name) => {
                let port = self.names[usize::from(name)].map(|port| PORTS[usize::from(port)].to_owned());
                self.found(who, thrid, "name-lookup", port);
            }
            Pmi2ClientOp::Unpublish(name) => match self.names[usize::from(name)].take() {
                Some(_) => self.answer(who, thrid, "name-unpublish", ""),
                None => self.refuse(who, thrid, "name-unpublish", 1),
            },
            Pmi2ClientOp::Spawn { first, second, key } => {
                let size = u32::from(first) + second.map_or(0, u32::from);
                // The limits of a put also apply to the pairs of a spawn.
                let is_too_long = key.is_some_and(|key| !is_short(key));
                if size == 0 || u64::from(size) > SPAWN_MAX || is_too_long {
                    return self.refuse(who, thrid, "spawn", 1);
                }
                let id = self.groups();
                self.add(size, u32::from(first), Some(who.0));
                if let Some(key) = key {
                    self.groups[id as usize].kvs[usize::from(key)] = Some(Pmi2ModelValue::Preput);
                }
                self.process_mut(who).waits.push((thrid, Pmi2ModelWait::Spawn(id)));
                self.spawns.push((id, who));
                self.due.push(Pmi2ExpectedAction::Spawn { group: id, by: who, size });
            }
            Pmi2ClientOp::Offer | Pmi2ClientOp::Abort(_) | Pmi2ClientOp::Junk(_) => {}
        }
    }

    fn mapping(&self, group: u32) -> String {
        let size = self.size(group);
        let nodes = self.nodes.min(size);
        let (each, more) = (size / nodes, size % nodes);
        match more {
            0 => format!("(vector,(0,{nodes},{each}))"),
            _ => format!("(vector,(0,{more},{}),({more},{},{each}))", each + 1, nodes - more),
        }
    }

    /// Answers the processes on the node that wait for this attribute.
    fn release(&mut self, group: u32, node: usize, key: u8, value: u8) {
        for rank in 0..self.size(group) {
            let to = (group, rank);
            if self.node(to) != node {
                continue;
            }
            let (released, rest): (Vec<_>, Vec<_>) =
                self.process(to).waits.iter().partition(|(_, waits)| *waits == Pmi2ModelWait::Attribute(key));
            self.process_mut(to).waits = rest;
            for (thrid, _) in released {
                self.found(to, thrid, "info-getnodeattr", Some(value_of(value)));
            }
        }
    }

    fn fences(process: &Pmi2ModelProcess) -> usize {
        process.waits.iter().filter(|(_, waits)| *waits == Pmi2ModelWait::Fence).count()
    }

    fn in_fence(process: &Pmi2ModelProcess) -> bool {
        Self::fences(process) > 0
    }

    fn fence(&mut self, group: u32) {
        if self.groups[group as usize].processes.iter().all(Self::in_fence) {
            self.leave_fence(group, true);
        } else {
            self.fail_fence(group);
        }
    }

    /// Fails the fence if a process has left, since it will never enter.
    fn fail_fence(&mut self, group: u32) {
        let left = |p: &Pmi2ModelProcess| matches!(p.phase, Pmi2ModelPhase::Left | Pmi2ModelPhase::Closed);
        let processes = &self.groups[group as usize].processes;
        if processes.iter().any(left) {
            let fences = processes.iter().map(Self::fences).max().unwrap_or(0);
            (0..fences).for_each(|_| self.leave_fence(group, false));
        }
    }

    /// Answers one fence of each process that waits in one.
    fn leave_fence(&mut self, group: u32, ok: bool) {
        for rank in 0..self.size(group) {
            let to = (group, rank);
            let waits = &mut self.process_mut(to).waits;
            let Some(at) = waits.iter().position(|(_, waits)| *waits == Pmi2ModelWait::Fence) else {
                continue;
            };
            let (thrid, _) = waits.remove(at);
            match ok {
                true => self.answer(to, thrid, "kvs-fence", ""),
                false => self.refuse(to, thrid, "kvs-fence", 1),
            }
        }
    }

    /// Handles the end of the oldest pending spawn, and returns its group and size. If `good`, the processes were started.
    pub(crate) fn spawned(&mut self, good: bool) -> Option<(u32, u32)> {
        if self.spawns.is_empty() {
            return None;
        }
        let (group, by) = self.spawns.remove(0);
        let size = self.size(group);
        if self.is_gone(by) {
            self.groups[group as usize].dead |= !good;
            return Some((group, size));
        }
        let waits = &mut self.process_mut(by).waits;
        let at = waits.iter().position(|(_, waits)| *waits == Pmi2ModelWait::Spawn(group))?;
        let (thrid, _) = waits.remove(at);
        let codes = |first: u32| -> String {
            (0..size).map(|i| format!("err{i}={};", if i == 0 { first } else { 0 })).collect()
        };
        if good {
            self.answer(by, thrid, "spawn", &format!("jobid=kvs-{group};nerrs={size};{}", codes(0)));
        } else {
            self.groups[group as usize].dead = true;
            let text = format!("cmd=spawn-response;{}nerrs={size};{}rc=1;errmsg=", told(thrid), codes(1));
            self.due.push(Pmi2ExpectedAction::Send { to: by, ok: false, line: false, text });
        }
        Some((group, size))
    }

    /// Handles the end of the process's connection.
    pub(crate) fn closed(&mut self, who: ProcessId) {
        if self.is_gone(who) {
            return;
        }
        let before = std::mem::replace(&mut self.process_mut(who).phase, Pmi2ModelPhase::Closed);
        match before {
            Pmi2ModelPhase::Joined | Pmi2ModelPhase::Offered => self.abort(who, 1),
            Pmi2ModelPhase::New | Pmi2ModelPhase::Left | Pmi2ModelPhase::Closed => self.fail_fence(who.0),
        }
    }
}

fn told(thrid: Option<u8>) -> String {
    thrid.map_or(String::new(), |thrid| format!("thrid={thrid};"))
}
