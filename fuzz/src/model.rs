//! A model of the reference server, derived independently from RFC 13 and from the choices that the server's documentation names. It shares
//! no code with the server, and holds indices instead of bytes.

use crate::ops::{KEYLEN_MAX, KEYS, OFFERS, Op, PORTS, SPAWN_MAX, VALLEN_MAX, VALUES};

/// A process: group and rank.
pub(crate) type Who = (u32, u32);

/// The next action of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Send exactly the bytes in this range of [`Model::text`].
    Send { to: Who, start: usize, end: usize },
    /// Send one line: this response, with an `rc` that is not 0.
    Refuse { to: Who, cmd: &'static str },
    /// Abort the group, with this exit status.
    Abort { by: Who, status: i64 },
    /// Start a group of this many processes.
    Spawn { group: u32, by: Who, size: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Joined,
    Left,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    No,
    Barrier,
    Spawn,
}

#[derive(Debug, Clone, Copy)]
struct Process {
    phase: Phase,
    waits: Waits,
}

/// A value in the keyval space: a known one, or the one that was put with the spawn request.
#[derive(Debug, Clone, Copy)]
enum Value {
    Put(u8),
    Preput,
}

#[derive(Debug)]
struct Group {
    /// Only the first `size` entries count.
    processes: [Process; 4],
    size: u32,
    /// Number of processes of its first program.
    first: u32,
    kvs: [Option<Value>; KEYS.len()],
    dead: bool,
}

#[derive(Debug)]
struct Waiting {
    group: u32,
    by: Who,
    size: u32,
}

/// A server without faults.
#[derive(Debug)]
pub(crate) struct Model {
    nodes: u32,
    groups: Vec<Group>,
    names: [Option<u8>; 4],
    spawns: Vec<Waiting>,
    /// Number of barriers that all processes have passed, in all groups.
    pub(crate) rounds: u32,
    /// The expected actions, in order.
    pub(crate) due: Vec<Expected>,
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
        let processes = [Process { phase: Phase::New, waits: Waits::No }; 4];
        self.groups.push(Group { processes, size, first, kvs: [None; KEYS.len()], dead: false });
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
    pub(crate) fn is_gone(&self, who: Who) -> bool {
        self.groups[who.0 as usize].dead || self.process(who).phase == Phase::Closed
    }

    /// Returns whether the process may enter a barrier.
    pub(crate) fn may_enter(&self, who: Who) -> bool {
        let process = self.process(who);
        !self.is_gone(who) && process.phase == Phase::Joined && process.waits == Waits::No
    }

    /// Returns the state around a process as a small number, for coverage.
    pub(crate) fn state(&self, who: Who) -> u32 {
        let group = &self.groups[who.0 as usize];
        let (mut waiting, mut left, mut new) = (false, false, false);
        for process in &group.processes[..group.size as usize] {
            waiting |= process.waits == Waits::Barrier;
            left |= matches!(process.phase, Phase::Left | Phase::Closed);
            new |= process.phase == Phase::New;
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

    fn process(&self, who: Who) -> &Process {
        &self.groups[who.0 as usize].processes[who.1 as usize]
    }

    fn process_mut(&mut self, who: Who) -> &mut Process {
        &mut self.groups[who.0 as usize].processes[who.1 as usize]
    }

    fn send(&mut self, to: Who, parts: &[&str]) {
        let start = self.text.len();
        parts.iter().for_each(|part| self.text.extend_from_slice(part.as_bytes()));
        self.text.push(b'\n');
        self.due.push(Expected::Send { to, start, end: self.text.len() });
    }

    fn send_number(&mut self, to: Who, text: &str, number: u32) {
        // The number always has one digit.
        self.send(to, &[text, &"0123456789"[number as usize..][..1]]);
    }

    fn refuse(&mut self, to: Who, cmd: &'static str) {
        self.due.push(Expected::Refuse { to, cmd });
    }

    /// Aborts the program (RFC 13, "Error Handling").
    fn abort(&mut self, by: Who, status: i64) {
        self.groups[by.0 as usize].dead = true;
        self.due.push(Expected::Abort { by, status });
    }

    /// Handles the arrival of a request's first line, and returns whether the server reads the rest.
    pub(crate) fn begin(&mut self, who: Who, op: Op) -> bool {
        if self.is_gone(who) {
            return false;
        }
        let process = self.process(who);
        // Requests are in lock-step, and none is allowed before init or after finalize.
        let in_order = process.waits == Waits::No
            && match process.phase {
                Phase::New => matches!(op, Op::Init(_)),
                Phase::Joined => !matches!(op, Op::Init(_) | Op::Junk(_) | Op::Overlong),
                Phase::Left | Phase::Closed => false,
            };
        if !in_order {
            self.abort(who, 1);
        }
        in_order
    }

    /// Handles the arrival of a whole request that was begun.
    pub(crate) fn request(&mut self, who: Who, op: Op) {
        if self.is_gone(who) {
            return;
        }
        let group = who.0 as usize;
        match op {
            Op::Init(version) => {
                let answer = match version % OFFERS {
                    0 => return self.refuse(who, "response_to_init"),
                    1 => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=0",
                    _ => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
                };
                self.process_mut(who).phase = Phase::Joined;
                self.send(who, &[answer]);
            }
            Op::Maxes => self.send(who, &["cmd=maxes rc=0 kvsname_max=256 keylen_max=14 vallen_max=20"]),
            Op::Universe => self.send_number(who, "cmd=universe_size rc=0 size=", self.size(who.0)),
            Op::Appnum => {
                let appnum = u32::from(who.1 >= self.groups[group].first);
                self.send_number(who, "cmd=appnum rc=0 appnum=", appnum);
            }
            Op::Kvsname => self.send_number(who, "cmd=my_kvsname rc=0 kvsname=kvs-", who.0),
            Op::Put { own, key, value } => {
                let slot = &mut self.groups[group].kvs[usize::from(key)];
                let fits = KEYS[usize::from(key)].len() < KEYLEN_MAX
                    && VALUES[usize::from(value)].len() < VALLEN_MAX;
                if own && fits && slot.is_none() {
                    *slot = Some(Value::Put(value));
                    self.send(who, &["cmd=put_result rc=0"]);
                } else {
                    self.refuse(who, "put_result");
                }
            }
            Op::Get { own, key } => match self.groups[group].kvs[usize::from(key)].filter(|_| own) {
                Some(Value::Put(value)) => {
                    self.send(who, &["cmd=get_result rc=0 value=", VALUES[usize::from(value)]]);
                }
                Some(Value::Preput) => self.send(who, &["cmd=get_result rc=0 value=pre"]),
                None => self.refuse(who, "get_result"),
            },
            Op::GetMapping => self.mapping(who),
            Op::Publish { service, port } => {
                let slot = &mut self.names[usize::from(service)];
                if slot.is_none() {
                    *slot = Some(port);
                    self.send(who, &["cmd=publish_result rc=0"]);
                } else {
                    self.refuse(who, "publish_result");
                }
            }
            Op::Unpublish(service) => match self.names[usize::from(service)].take() {
                Some(_) => self.send(who, &["cmd=unpublish_result rc=0"]),
                None => self.refuse(who, "unpublish_result"),
            },
            Op::Lookup(service) => match self.names[usize::from(service)] {
                Some(port) => self.send(who, &["cmd=lookup_result rc=0 port=", PORTS[usize::from(port)]]),
                None => self.refuse(who, "lookup_result"),
            },
            Op::Abort(code) => {
                self.send(who, &[]);
                self.abort(who, code.map_or(1, i64::from));
            }
            Op::Finalize => {
                self.process_mut(who).phase = Phase::Left;
                self.send(who, &["cmd=finalize_ack rc=0"]);
                self.barrier(who.0);
            }
            Op::Barrier => {
                self.process_mut(who).waits = Waits::Barrier;
                self.barrier(who.0);
            }
            Op::Spawn { first, second, key } => self.spawn(who, first, second, key),
            // These are never begun.
            Op::Junk(_) | Op::Overlong => {}
        }
    }

    /// Releases the waiting processes from the barrier, if all have entered, or if one never will.
    fn barrier(&mut self, id: u32) {
        let group = &self.groups[id as usize];
        let processes = &group.processes[..group.size as usize];
        let all = processes.iter().all(|p| p.waits == Waits::Barrier);
        if !all && !processes.iter().any(|p| matches!(p.phase, Phase::Left | Phase::Closed)) {
            return;
        }
        self.rounds += u32::from(all);
        for rank in 0..self.size(id) {
            let who = (id, rank);
            if self.process(who).waits == Waits::Barrier {
                self.process_mut(who).waits = Waits::No;
                if all {
                    self.send(who, &["cmd=barrier_out rc=0"]);
                } else {
                    self.refuse(who, "barrier_out");
                }
            }
        }
    }

    /// Sends the mapping of ranks in even blocks over the nodes. A mapping with more than one block exceeds the limit of values.
    fn mapping(&mut self, who: Who) {
        let size = self.size(who.0);
        let nodes = self.nodes.min(size);
        if !size.is_multiple_of(nodes) {
            return self.send(who, &["cmd=get_result rc=0 value="]);
        }
        let digit = |number: u32| &"0123456789"[number as usize..][..1];
        let (nodes, each) = (digit(nodes), digit(size / nodes));
        self.send(who, &["cmd=get_result rc=0 value=(vector,(0,", nodes, ",", each, "))"]);
    }

    fn spawn(&mut self, by: Who, first: u8, second: Option<u8>, key: Option<u8>) {
        let first = u32::from(first);
        let size = first + second.map_or(0, u32::from);
        let key = key.map(usize::from);
        if size == 0 || u64::from(size) > SPAWN_MAX || key.is_some_and(|key| KEYS[key].len() >= KEYLEN_MAX) {
            return self.refuse(by, "spawn_result");
        }
        let group = self.groups();
        self.add(size, first);
        if let Some(key) = key {
            self.groups[group as usize].kvs[key] = Some(Value::Preput);
        }
        self.process_mut(by).waits = Waits::Spawn;
        self.spawns.push(Waiting { group, by, size });
        self.due.push(Expected::Spawn { group, by, size });
    }

    /// Handles the end of the oldest pending spawn, and returns its group and size. If `good`, the processes were started.
    pub(crate) fn spawned(&mut self, good: bool) -> Option<(u32, u32)> {
        if self.spawns.is_empty() {
            return None;
        }
        let Waiting { group, by, size } = self.spawns.remove(0);
        self.groups[group as usize].dead |= !good;
        if !self.is_gone(by) {
            self.process_mut(by).waits = Waits::No;
            if good {
                let zeros = &"0,0,0,0"[..size as usize * 2 - 1];
                self.send(by, &["cmd=spawn_result rc=0 errcodes=", zeros]);
            } else {
                self.refuse(by, "spawn_result");
            }
        }
        Some((group, size))
    }

    /// Handles the end of the process's connection; `partial` if it is within a message.
    pub(crate) fn closed(&mut self, who: Who, partial: bool) {
        if self.is_gone(who) {
            return;
        }
        let before = std::mem::replace(&mut self.process_mut(who).phase, Phase::Closed);
        match before {
            Phase::Joined => self.abort(who, 1),
            Phase::New if partial => self.abort(who, 1),
            _ => self.barrier(who.0),
        }
    }
}
