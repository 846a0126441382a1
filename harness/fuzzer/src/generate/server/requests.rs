//! Valid requests from processes. The protocol table provides the spelling of each operation in the session's dialect.

use arbitrary::Result;
use pmi_scenario::ast::{Statement, Template};
use pmi_wire::{Framing, SpawnProgram, SpawnRequest};

use super::model::{PutKey, SessionModel};
use crate::mutate::client_steps::MAPPING;
use crate::mutate::texts::{self, TextUse};
use crate::session::decisions::{percent, pick, shuffle};
use crate::session::fields::{FieldList, message, spell, text, tuples_of};
use crate::session::op::Op;
use crate::session::pieces::{
    Limit, agent, child_kvsname, jobid, kvsname, letters, literal, own_rank, template,
};
use crate::session::plan::{PlannedStep, ask, may_answer, must_answer, request_of};
use crate::session::statement::children;

/// A field of a request, by its name in the protocol table.
type NamedField = (&'static str, Template);

/// The operations to choose from, with their weights.
const WEIGHTS: [(&str, u32); 10] = [
    ("put", 60),
    ("kvsname", 6),
    ("maxes", 6),
    ("universe", 6),
    ("appnum", 6),
    ("put-node-attribute", 8),
    ("get-node-attribute", 10),
    ("get-job-attribute", 10),
    ("publish", 11),
    ("spawn", 8),
];

impl SessionModel<'_, '_> {
    /// Returns the operation with this name. Panics if the dialect does not have the operation.
    pub(crate) fn op(&self, operation: &str) -> Op {
        Op::of(self.dialect, operation).unwrap_or_else(|| panic!("{}: no {operation}", self.dialect))
    }

    pub(crate) fn has(&self, operation: &str) -> bool {
        Op::of(self.dialect, operation).is_some()
    }

    /// Returns whether a process may have several requests in progress at the same time.
    pub(crate) fn has_threads(&self) -> bool {
        self.op("put").key("thrid").is_some()
    }

    /// Returns a request and the wait for its response. Fields that the dialect does not have are left out.
    pub(crate) fn request_and_wait(
        &self,
        rank: u32,
        operation: &str,
        fields: &[NamedField],
    ) -> Vec<PlannedStep> {
        ask(rank, self.op(operation), fields)
    }

    /// Plans the start of every rank as individual requests, so that mutations can change them.
    pub(crate) fn start(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for rank in 0..self.ranks {
            let several = self.has_threads() && self.u.ratio(1, 2)?;
            self.threads.several[rank as usize] = several;
            let version = match (self.op("init") == Op::offer(), self.offers_pmi12) {
                (false, _) => ["2", "0"],
                (true, false) => ["1", "1"],
                (true, true) => ["1", "2"],
            };
            let offer = [("pmi_version", text(version[0])), ("pmi_subversion", text(version[1]))];
            let mut work = vec![ask(rank, Op::offer(), &offer)];
            if self.op("init") != Op::offer() {
                let mut fields = [
                    ("pmijobid", text("job")),
                    ("pmirank", template(vec![own_rank()])),
                    ("threaded", text(if several { "TRUE" } else { "FALSE" })),
                ];
                shuffle(self.u, &mut fields)?;
                work.push(self.request_and_wait(rank, "init", &fields));
            }
            if self.has("maxes") {
                work.extend(
                    ["maxes", "kvsname"].map(|operation| self.request_and_wait(rank, operation, &[])),
                );
            }
            all.push(work);
        }
        self.interleave(all)
    }

    /// Chooses the processes that make concurrent requests, and sometimes plans a request for the job id. Later requests can then use the
    /// id.
    pub(crate) fn ask_jobid(&mut self) -> Result<()> {
        for rank in 0..self.ranks {
            self.threads.several[rank as usize] |= self.u.ratio(1, 4)?;
        }
        if self.u.ratio(1, 3)? {
            let rank = self.any_rank()?;
            let ask = self.request_and_wait(rank, "kvsname", &[]);
            self.plan.extend(ask);
            self.threads.jobid = true;
        }
        Ok(())
    }

    /// Returns a random request and the wait for its response, or several concurrent requests.
    pub(crate) fn requests(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        if !self.threads.several[rank as usize] || self.u.ratio(1, 4)? {
            return self.request(rank);
        }
        let mut requests = Vec::new();
        let mut waits = Vec::new();
        for _ in 0..self.u.int_in_range(1..=3)? {
            for planned in self.request(rank)? {
                match planned {
                    PlannedStep::Request { .. } => requests.push(self.with_new_thread(planned)),
                    wait => waits.push(wait),
                }
            }
        }
        requests.extend(waits);
        Ok(requests)
    }

    /// Adds a new `thrid` to a request.
    fn with_new_thread(&mut self, mut planned: PlannedStep) -> PlannedStep {
        self.threads.last += 1;
        let thrid = match self.threads.last % 4 {
            0 => format!("0x7f{:08x}", self.threads.last),
            _ => self.threads.last.to_string(),
        };
        if let PlannedStep::Request { op, messages, .. } = &mut planned {
            let fields = spell(*op, &[("thrid", text(thrid))]).split_off(1);
            messages.iter_mut().for_each(|message| drop(message.splice(1..1, fields.clone())));
        }
        planned
    }

    /// Plans a request, with a `thrid` if the process may have several requests in progress.
    fn plan_in_thread(&mut self, rank: u32, operation: &str, fields: &[NamedField]) {
        let request = request_of(rank, self.op(operation), fields);
        let several = self.threads.several[rank as usize];
        let request = if several { self.with_new_thread(request) } else { request };
        self.plan.push(request);
    }

    /// Plans the entry into a barrier that at least one other process has not entered yet. Meanwhile, another thread of the same process
    /// may make a request that does not depend on other processes.
    pub(crate) fn enter(&mut self, rank: u32) -> Result<()> {
        self.plan_in_thread(rank, "barrier", &[]);
        if self.threads.several[rank as usize] && self.u.ratio(1, 3)? {
            match self.u.int_in_range(0..=1)? {
                0 => self.plan_in_thread(rank, "kvsname", &[]),
                _ => self.plan_in_thread(rank, "get-job-attribute", &[("key", text(MAPPING))]),
            }
            self.plan.push(may_answer(rank));
        }
        Ok(())
    }

    fn request(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        if self.swarm.names && self.scope.names && self.u.ratio(1, 2)? {
            return self.name(rank);
        }
        if self.swarm.attributes && self.has("put-node-attribute") && percent(self.u)? < 60 {
            return if self.u.ratio(1, 2)? { self.put_attribute(rank) } else { self.get_attribute(rank) };
        }
        Ok(match self.operation()? {
            "put" if percent(self.u)? < self.swarm.puts => self.put(rank)?,
            "put" => self.get(rank)?,
            "put-node-attribute" => self.put_attribute(rank)?,
            "get-node-attribute" => self.get_attribute(rank)?,
            "get-job-attribute" => {
                let key = pick(self.u, &[MAPPING, "universeSize", "hasNameServ", "missing"])?;
                self.request_and_wait(rank, "get-job-attribute", &[("key", text(key))])
            }
            "publish" => self.name(rank)?,
            "spawn" => self.spawn(rank)?,
            plain => self.request_and_wait(rank, plain, &[]),
        })
    }

    /// Draws an operation that the dialect has and the session may use.
    fn operation(&mut self) -> Result<&'static str> {
        let may_be = |operation: &str| match operation {
            "put" => true,
            _ if self.swarm.keys_only => false,
            "publish" => self.scope.names,
            "spawn" => self.scope.spawn,
            operation => self.has(operation),
        };
        let all: Vec<_> = WEIGHTS.into_iter().filter(|(operation, _)| may_be(operation)).collect();
        let sum = all.iter().map(|(_, weight)| weight).sum::<u32>();
        let mut left = self.u.int_in_range(0..=sum - 1)?;
        let drawn = all.iter().find(|(_, weight)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        Ok(drawn.map_or("put", |(operation, _)| operation))
    }

    pub(crate) fn put(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        let (name, value) = (self.key(rank)?, self.value()?);
        Ok(self.put_of(rank, name, value))
    }

    pub(crate) fn put_of(&mut self, rank: u32, name: Template, value: Template) -> Vec<PlannedStep> {
        self.new_keys.push(PutKey { name: name.clone(), by: rank });
        self.request_and_wait(rank, "put", &[own_space(), ("key", name), ("value", value)])
    }

    /// Returns an ordinary value, a long value or a value of an unusual kind.
    pub(crate) fn usual_value(&mut self) -> Result<Template> {
        Ok(match self.u.int_in_range(0..=15)? {
            less @ (0 | 1) => template(vec![self.longest(TextUse::Value, Limit::Value, less)]),
            2 => text("a"),
            3 => text("tag#0$description#host$port#4242$ifname#127.0.0.1$"),
            4 => template(vec![letters(self.u.int_in_range(1..=999)?)]),
            5 => template(vec![letters(self.u.int_in_range(1..=199)?)]),
            6 | 7 => texts::content(self.dialect, TextUse::Value, self.u)?,
            8 if self.has_threads() => text(""),
            9 if self.has_threads() => {
                let bytes = (0..self.u.int_in_range(1..=9)?).map(|_| self.u.arbitrary());
                texts::encode_text(self.dialect, &bytes.collect::<Result<Vec<u8>>>()?)
            }
            _ => text(format!("v{}", self.u.arbitrary::<u32>()?)),
        })
    }

    pub(crate) fn get(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        if self.upstream_answers("get") {
            // Get only keys that the proxy stores itself.
            let own = self.new_keys.iter().filter(|key| key.by == rank);
            let Some(there) = self.visible_keys.iter().chain(own).map(|key| key.name.clone()).next() else {
                return self.put(rank);
            };
            return Ok(self.get_of(rank, there));
        }
        let key = self.requested_key(rank)?;
        let mut fields = vec![own_space()];
        if self.threads.jobid && self.u.ratio(1, 3)? {
            fields.push(("jobid", template(vec![jobid()])));
        }
        if self.has_threads() && self.u.ratio(1, 2)? {
            let ranks = (0..self.ranks).map(|r| r.to_string());
            let hints: Vec<String> = ranks.chain(["-1".to_owned()]).collect();
            fields.push(("srcid", text(self.u.choose(&hints)?.as_str())));
        }
        fields.push(("key", key));
        Ok(self.request_and_wait(rank, "get", &fields))
    }

    pub(crate) fn get_of(&self, rank: u32, key: Template) -> Vec<PlannedStep> {
        self.request_and_wait(rank, "get", &[own_space(), ("key", key)])
    }

    fn put_attribute(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        let known = &self.threads.attributes;
        // The draft does not specify whether an attribute can be put again. A server that allows this replaces the value.
        let key = if !known.is_empty() && self.u.ratio(1, 4)? {
            self.u.choose(known)?.clone()
        } else {
            let key = format!("a{rank}-{}", known.len());
            self.threads.attributes.push(key.clone());
            key
        };
        let value = self.value()?;
        Ok(self.request_and_wait(rank, "put-node-attribute", &[("key", text(key)), ("value", value)]))
    }

    fn get_attribute(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        let known = &self.threads.attributes;
        let key = if known.is_empty() { "missing" } else { self.u.choose(known)?.as_str() };
        let mut fields = vec![("key", text(key))];
        if self.u.ratio(1, 2)? {
            fields.push(("wait", text("FALSE")));
        }
        Ok(self.request_and_wait(rank, "get-node-attribute", &fields))
    }

    /// Sometimes makes several ranks wait for an attribute that a random rank puts. The rank that puts the attribute may also wait for it
    /// if the rank makes concurrent requests. In rare cases, no rank puts the attribute, and the ranks wait forever.
    pub(crate) fn wait_for_attribute(&mut self) -> Result<()> {
        if !self.u.ratio(1, 3)? {
            return Ok(());
        }
        let by = self.any_rank()?;
        let key = format!("w{by}-{}", self.threads.attributes.len());
        let named = ("key", text(key.as_str()));
        let mut waiting = Vec::new();
        for rank in 0..self.ranks {
            if (rank != by || self.threads.several[rank as usize]) && self.u.ratio(2, 3)? {
                self.plan_in_thread(rank, "get-node-attribute", &[named.clone(), ("wait", text("TRUE"))]);
                waiting.push(rank);
            }
        }
        let never = !waiting.contains(&by) && self.u.ratio(1, 20)?;
        if !never {
            let value = self.value()?;
            self.plan_in_thread(by, "put-node-attribute", &[named, ("value", value)]);
            self.plan.push(must_answer(by, self.op("put-node-attribute")));
        }
        shuffle(self.u, &mut waiting)?;
        let get = self.op("get-node-attribute");
        // An attribute is local to a node. If there are several nodes, the responses are optional, because a rank on another node may never
        // get the attribute.
        let wait = |rank| match never || self.nodes > 1 {
            true => may_answer(rank),
            false => must_answer(rank, get),
        };
        self.plan.extend(waiting.into_iter().map(wait));
        self.threads.attributes.push(key);
        Ok(())
    }

    fn name(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        let (operation, mut fields) = match self.u.int_in_range(0..=7)? {
            0..=2 => ("publish", vec![("service", self.new_service()?), ("port", self.port()?)]),
            3..=5 => ("lookup", vec![("service", self.known_service()?)]),
            _ => ("unpublish", vec![("service", self.known_service()?)]),
        };
        fields.extend(match self.u.int_in_range(0..=1)? {
            0 => vec![no_info()],
            _ => vec![("infokeycount", text("1")), ("infokey0", text("range")), ("infoval0", text("local"))],
        });
        Ok(self.request_and_wait(rank, operation, &fields))
    }

    pub(crate) fn publish_of(&self, rank: u32, name: Template, port: Template) -> Vec<PlannedStep> {
        self.request_and_wait(rank, "publish", &[("service", name), ("port", port), no_info()])
    }

    /// Returns a lookup or unpublish request, and the wait for its response.
    pub(crate) fn name_of(&self, rank: u32, operation: &str, name: Template) -> Vec<PlannedStep> {
        self.request_and_wait(rank, operation, &[("service", name), no_info()])
    }

    /// Returns a spawn request. The values that are put for the spawned processes distinguish their group from other groups.
    pub(crate) fn spawn(&mut self, rank: u32) -> Result<Vec<PlannedStep>> {
        self.groups += 1;
        let of_group = format!("tag#{}$port#4242$", self.groups);
        let preput: Vec<_> = (0..self.u.int_in_range(0..=2)?)
            .map(|i| (format!("parent{i}").into_bytes(), format!("{of_group}{i}").into_bytes()))
            .collect();
        let mut programs = Vec::new();
        for _ in 0..self.u.int_in_range(1..=2)? {
            programs.push(SpawnProgram {
                execname: b"program".to_vec(),
                nprocs: self.u.int_in_range(1..=2)?,
                // Arguments are numbered from 1, as in the example of RFC 13 and in every implementation.
                args: (1..).zip(vec![b"-x".to_vec(); self.u.int_in_range(0..=2)?]).collect(),
                info: vec![(b"wdir".to_vec(), b"/".to_vec()); self.u.int_in_range(0..=1)?],
                ..SpawnProgram::default()
            });
        }
        let op = self.op("spawn");
        let request = PlannedStep::Request { rank, op, messages: spawn_messages(op, preput, programs) };
        Ok(vec![request, must_answer(rank, op)])
    }

    /// Returns requests from the spawned processes. Among other requests, the processes get keys that the spawn may have put for them,
    /// keys of the parents' group, and keys that they put themselves.
    pub(crate) fn child_requests(&mut self, group: u32) -> Result<Vec<Statement>> {
        let mut requests: Vec<(Op, Template)> = Vec::new();
        let dialect = self.dialect;
        let mut ask = |operation: &str, fields: &[NamedField]| {
            let space = [("kvsname", template(vec![child_kvsname()]))];
            let op = Op::of(dialect, operation);
            requests.extend(op.map(|op| (op, message(op.framing(), &spell(op, &[&space, fields].concat())))));
        };
        let named = |text: &str| template(vec![literal(text), own_rank()]);
        let mut rounds = 0;
        for _ in 0..self.u.int_in_range(1..=8)? {
            match self.u.int_in_range(0..=11)? {
                0 => ask("get", &[("key", text("parent0"))]),
                1 => ask("get", &[("key", text("parent1"))]),
                2 => ask("get", &[("key", self.requested_key(0)?)]),
                3 if self.has("universe") => ask("universe", &[]),
                3 => ask("kvsname", &[]),
                4 => ask("get-job-attribute", &[("key", text(MAPPING))]),
                5 => {
                    ask("put-node-attribute", &[("key", text("a0-0")), ("value", template(vec![own_rank()]))])
                }
                6 if self.scope.names => ask("lookup", &[("service", self.known_service()?), no_info()]),
                7 if self.scope.names => {
                    let of = format!("of-child-{group}-");
                    ask("publish", &[("service", named(&of)), ("port", named("port-")), no_info()]);
                    self.add_service(text(format!("{of}0")));
                }
                _ => {
                    // Put a key that a process of the first group may also have put.
                    let key = format!("k{rounds}-");
                    let value = named(&format!("of-child-{group}-{rounds}-"));
                    ask("put", &[("key", named(&key)), ("value", value)]);
                    ask("barrier", &[]);
                    ask("get", &[("key", text(format!("{key}0")))]);
                    rounds += 1;
                }
            }
        }
        ask("finalize", &[]);
        Ok(children(dialect, group, requests))
    }

    /// Plans an abort, with one of several sets of fields.
    pub(crate) fn abort(&mut self, rank: u32) -> Result<()> {
        let world = |is: &str| ("isworld", text(is));
        let (code, why) = (("exitcode", text("7")), |why: &str| ("msg", text(why)));
        let fields = match self.u.int_in_range(0..=4)? {
            0 => vec![world("TRUE"), code],
            1 => vec![world("TRUE"), why("the end")],
            2 => vec![code, ("message", text("the end"))],
            3 => vec![world("FALSE"), why("")],
            _ => Vec::new(),
        };
        let abort = request_of(rank, self.op("abort"), &fields);
        self.plan.extend([abort, may_answer(rank)]);
        Ok(())
    }
}

/// Returns the field that names the keyval space of the group.
pub(crate) fn own_space() -> NamedField {
    ("kvsname", template(vec![kvsname()]))
}

fn no_info() -> NamedField {
    ("infokeycount", text("0"))
}

/// Returns the messages of a request to spawn the agent, as the codec prints them. In PMI-1, each line is a message.
pub(crate) fn spawn_messages(
    op: Op,
    preput: Vec<(Vec<u8>, Vec<u8>)>,
    mut programs: Vec<SpawnProgram>,
) -> Vec<FieldList> {
    let mut printed = Vec::new();
    let mut messages: Vec<FieldList> = if op.framing() == Framing::Frames {
        if let Some(first) = programs.first_mut() {
            first.preput = preput;
        }
        SpawnRequest { programs }.write_body(None, &mut printed);
        vec![tuples_of(op.framing(), &printed)]
    } else {
        let totspawns = programs.len() as u64;
        for (program, spawnssofar) in programs.into_iter().zip(1..) {
            // All programs of a request have the same preput pairs, as in MPICH's client.
            SpawnProgram { totspawns, spawnssofar, preput: preput.clone(), ..program }.write_to(&mut printed);
        }
        printed
            .trim_ascii_end()
            .split(|byte| *byte == b'\n')
            .map(|line| tuples_of(op.framing(), line))
            .collect()
    };
    for field in messages.iter_mut().flatten().filter(|field| ["execname", "subcmd"].contains(&&*field.key)) {
        field.value = template(vec![agent()]);
    }
    messages
}
