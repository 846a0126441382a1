//! The reference server with operations of one to four ranks and of the processes that they spawn, compared with [`crate::model`].
//!
//! Input: see `ops`.

use arbitrary::Unstructured;
use pmi_faults::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::{KvsLimits, Proc};

use crate::model::{ExpectedAction, Model, ProcessId};
use crate::ops::{self, ClientOp, ProcessStep, ProcessStepAction, SendMode};
use crate::{counters, input, planted};

/// Offset of the counters for passed barriers, above those of states.
const ROUNDS: u32 = 1 << 30;
/// Offset of the counters for requests and their outcomes.
const OPS: u32 = 1 << 29;

/// Checks that the actions of the server are exactly those that the model expects.
pub fn run(data: &[u8]) {
    let mut play = ServerPlay::new(data, ());
    while play.step() {}
}

/// Observes the input and the actions of the server.
pub(crate) trait ServerObserver {
    /// Called when the first group exists, or a spawned group was started.
    fn group(&mut self, _id: u32, _size: u32, _nodes: u32) {}
    /// Called when a process sends bytes.
    fn sent(&mut self, _from: Proc, _bytes: &[u8]) {}
    /// Called when a process closes its connection.
    fn closed(&mut self, _from: Proc) {}
    /// Called when the server takes an action.
    fn acted(&mut self, _action: &ServerAction) {}
}

impl ServerObserver for () {}

/// The messages from a process that have not been delivered completely.
#[derive(Default)]
struct SendBuffer {
    bytes: Vec<u8>,
    /// Number of delivered bytes.
    delivered: usize,
    /// Requests, with the positions in `bytes` after their first line and after all of it.
    requests: Vec<(ClientOp, usize, usize)>,
    /// True if the server has read the first line of the first request.
    begun: bool,
}

/// Number of processes: four in each group.
const PROCESSES: usize = 4 * ops::GROUPS as usize;

pub(crate) struct ServerPlay<'a, W> {
    u: Unstructured<'a>,
    nodes: u32,
    server: Server,
    model: Model,
    /// One for each process.
    outs: [SendBuffer; PROCESSES],
    pub(crate) watch: W,
}

pub(crate) fn config(nodes: u32) -> Config {
    Config {
        limits: KvsLimits {
            keylen_max: ops::KEYLEN_MAX as u64,
            vallen_max: ops::VALLEN_MAX as u64,
            ..Config::default().limits
        },
        line_max: ops::LINE_MAX,
        spawn_max: ops::SPAWN_MAX,
        nodes,
        wrapper: planted::behaviour(),
        ..Config::default()
    }
}

impl<'a, W: ServerObserver> ServerPlay<'a, W> {
    pub(crate) fn new(data: &'a [u8], mut watch: W) -> Self {
        let mut u = Unstructured::new(data);
        let head = input::byte(&mut u);
        let (size, nodes) = (u32::from(head & 3) + 1, u32::from(head >> 2 & 3) + 1);
        let mut server = Server::new(config(nodes));
        server.add_group(GroupSpec { programs: vec![size], ..GroupSpec::default() });
        watch.group(0, size, nodes);
        Self { u, nodes, server, model: Model::new(size, nodes), outs: Default::default(), watch }
    }

    /// Takes a step; returns false at the end of the input.
    pub(crate) fn step(&mut self) -> bool {
        if self.u.is_empty() {
            return false;
        }
        let Ok(step) = self.u.arbitrary::<ProcessStep>() else { return false };
        let group = u32::from(step.group) % self.model.groups().min(ops::GROUPS);
        let who = (group, u32::from(step.rank) % self.model.size(group));
        let state = self.model.state(who);
        match step.what {
            ProcessStepAction::Send(op, write) => self.send(who, op, write),
            ProcessStepAction::Round => {
                for who in (0..self.model.size(group)).map(|rank| (group, rank)) {
                    if self.model.may_enter(who) {
                        self.send(who, ClientOp::Barrier, SendMode::Whole);
                    }
                }
            }
            ProcessStepAction::Close => self.close(who),
            ProcessStepAction::Spawned(good) => self.spawned(good),
        }
        let outcome = match self.model.due.last() {
            None => 0,
            Some(ExpectedAction::Send { .. }) => 1,
            Some(ExpectedAction::Refuse { .. }) => 2,
            Some(_) => 3,
        };
        self.compare();
        let after = self.model.state(who);
        counters::reached(state * 4 + outcome);
        counters::reached(state.wrapping_mul(0x0101_0101) ^ after);
        // Counts rounds, because no state leads to a fault that shows only after many of them.
        counters::seen(ROUNDS + self.model.rounds.min(31));
        // Counts every request by its outcome, separately for spawned groups, since groups share most of their states.
        if let ProcessStepAction::Send(op, _) = step.what {
            counters::seen(OPS + op.kind() * 8 + u32::from(group > 0) * 4 + outcome);
        }
        true
    }

    fn out(&mut self, who: ProcessId) -> &mut SendBuffer {
        &mut self.outs[(who.0 * 4 + who.1) as usize]
    }

    fn send(&mut self, who: ProcessId, op: ClientOp, write: SendMode) {
        if self.model.is_gone(who) {
            // The server has closed the connection. One byte checks that it ignores further input.
            return self.server.receive(proc(who), b"x");
        }
        let out = self.out(who);
        let start = out.bytes.len();
        ops::bytes(op, who.0, &mut out.bytes);
        let length = out.bytes.len();
        let first = match op {
            ClientOp::Spawn { .. } => start + b"mcmd=spawn\n".len(),
            // The line is too long as soon as there is no room for its newline.
            ClientOp::Overlong => length - 1,
            _ => length,
        };
        out.requests.push((op, first, length));
        let until = match write {
            SendMode::Whole => length,
            SendMode::Later => return,
            SendMode::Part(less) => length.saturating_sub(1 + usize::from(less)).max(out.delivered),
        };
        self.deliver(who, until);
    }

    fn deliver(&mut self, who: ProcessId, until: usize) {
        let mut out = std::mem::take(self.out(who));
        let bytes = &out.bytes[out.delivered..until];
        self.server.receive(proc(who), bytes);
        self.watch.sent(proc(who), bytes);
        out.delivered = until;
        let mut done = 0;
        for (op, first, last) in &out.requests {
            if *first > until || !out.begun && !self.model.begin(who, *op) {
                break;
            }
            out.begun = true;
            if *last > until {
                break;
            }
            self.model.request(who, *op);
            out.begun = false;
            done += 1;
        }
        out.requests.drain(..done);
        if until == out.bytes.len() {
            out.bytes.clear();
            out.requests.clear();
            out.delivered = 0;
        }
        *self.out(who) = out;
    }

    fn close(&mut self, who: ProcessId) {
        let out = self.out(who);
        let partial = out.bytes[..out.delivered].last().is_some_and(|byte| *byte != b'\n');
        let gone = self.model.is_gone(who);
        self.server.closed(proc(who));
        if !gone {
            self.watch.closed(proc(who));
        }
        self.model.closed(who, partial);
    }

    fn spawned(&mut self, good: bool) {
        let Some((group, size)) = self.model.spawned(good) else { return };
        let mut codes = [0; 4];
        codes[0] = i64::from(!good);
        if good {
            self.watch.group(group, size, self.nodes);
        }
        self.server.spawned(group, &codes[..size as usize]);
    }

    /// Compares the actions of the server with the expected ones.
    fn compare(&mut self) {
        let mut due = self.model.due.iter();
        while let Some(action) = self.server.next_action() {
            self.watch.acted(&action);
            let Some(expected) = due.next() else { panic!("not due: {action:?}") };
            assert!(
                fits(&action, expected, &self.model.text),
                "{action:?} where {} is due",
                self.show(expected)
            );
        }
        assert!(due.as_slice().is_empty(), "still due: {}", self.show(&due.as_slice()[0]));
        self.model.settle();
    }

    fn show(&self, expected: &ExpectedAction) -> String {
        match *expected {
            ExpectedAction::Send { to, start, end } => {
                format!("\"{}\" to {to:?}", self.model.text[start..end].escape_ascii())
            }
            other => format!("{other:?}"),
        }
    }
}

fn fits(action: &ServerAction, expected: &ExpectedAction, text: &[u8]) -> bool {
    match (action, *expected) {
        (ServerAction::Send { to, bytes }, ExpectedAction::Send { to: who, start, end }) => {
            *to == proc(who) && bytes[..] == text[start..end]
        }
        (ServerAction::Send { to, bytes }, ExpectedAction::Refuse { to: who, cmd }) => {
            *to == proc(who) && is_refusal(bytes, cmd)
        }
        (
            ServerAction::Abort { group, rank: by, status, .. },
            ExpectedAction::Abort { by: who, status: due },
        ) => (*group, *by) == who && *status == due,
        (
            ServerAction::Spawn { group, requester: by, programs },
            ExpectedAction::Spawn { group: due, by: who, size },
        ) => {
            let processes: u64 = programs.iter().map(|program| program.nprocs).sum();
            *group == due && *by == proc(who) && processes == u64::from(size)
        }
        _ => false,
    }
}

/// Returns whether the bytes are one line with this response and an `rc` other than 0.
fn is_refusal(bytes: &[u8], cmd: &str) -> bool {
    let rc = bytes
        .strip_prefix(b"cmd=")
        .and_then(|rest| rest.strip_prefix(cmd.as_bytes()))
        .and_then(|rest| rest.strip_prefix(b" rc="));
    let end = bytes.iter().position(|byte| *byte == b'\n');
    rc.is_some_and(|rc| !rc.starts_with(b"0")) && end == Some(bytes.len() - 1)
}

fn proc(who: ProcessId) -> Proc {
    Proc { group: who.0, rank: who.1 }
}
