//! A scenario played against nobody: which requests it makes, of whom, and in which state.

use std::collections::{BTreeSet, HashMap};

use pmi_wire::{Proc, place};

use super::axes::Inputs;
use super::classify::{self, Classified, Limits};
use crate::ast::{Action, Grade, Kind, Piece, RankSet, Role, Scenario, Step, Stmt, Template, Who, WriteMode};
use crate::scope::Scope;
use crate::suite::Suite;

/// The limits that a server is taken to announce, which count a terminating NUL.
const LIMITS: Limits = Limits { kvsname: 256, key: 64, value: 1024 };
/// Repetitions beyond this teach nothing.
const REPEATS: i64 = 2000;

/// A cell that a scenario plays.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Played {
    pub(super) cell: String,
    /// Whether it is played whatever the server lawfully does before.
    pub(super) sure: bool,
}

/// The cells that a scenario plays.
pub(super) fn scenario(scenario: &Scenario, suite: &Suite, inputs: &Inputs) -> Vec<Played> {
    let mut walk = Walk {
        suite,
        inputs,
        scope: Scope::of(scenario),
        sizes: vec![scenario.ranks],
        nodes: place(scenario.ranks, scenario.nodes),
        ranks: HashMap::new(),
        put_by: HashMap::new(),
        published_by: HashMap::new(),
        spawning: 0,
        over: false,
        played: Vec::new(),
    };
    walk.scope.set_agent(b"/agent".to_vec());
    walk.body(&scenario.body);
    let mut played = walk.played;
    played.sort_by(|a, b| (&a.cell, !a.sure).cmp(&(&b.cell, !b.sure)));
    played.dedup_by(|b, a| a.cell == b.cell);
    played
}

/// What a process has done.
#[derive(Debug, Default)]
struct Rank {
    /// Bytes of a line without its end yet, and the sizes of the writes that they came in.
    partial: Vec<u8>,
    writes: Vec<usize>,
    /// The lines of a spawn request, which was begun in an earlier write if that is said.
    block: Option<(Vec<Vec<u8>>, bool)>,
    init: bool,
    finalized: bool,
    put: bool,
    barriers: u32,
    refused: bool,
    requests: HashMap<String, u32>,
    same: HashMap<Vec<u8>, u32>,
}

struct Walk<'a> {
    suite: &'a Suite,
    inputs: &'a Inputs,
    scope: Scope,
    /// Sizes of the groups, spawned ones behind the first.
    sizes: Vec<u32>,
    /// The nodes of the ranks of the first group.
    nodes: Vec<u32>,
    ranks: HashMap<Proc, Rank>,
    put_by: HashMap<(u32, Vec<u8>), Proc>,
    published_by: HashMap<Vec<u8>, Proc>,
    /// Processes that the programs of an unfinished spawn request ask for.
    spawning: u32,
    /// Whether the server may lawfully have closed a connection, which may end the program.
    over: bool,
    played: Vec<Played>,
}

impl Walk<'_> {
    fn body(&mut self, body: &[Stmt]) {
        for statement in body {
            match statement {
                Stmt::Use { name, with } => self.fragment(&name.value, with),
                Stmt::Let { name, value } => {
                    let text = self.scope.text(value).unwrap_or_default();
                    self.scope.set(&name.value, text);
                }
                Stmt::Repeat { count, var, body, .. } => {
                    for i in 0..self.scope.number(count).unwrap_or(1).min(REPEATS) {
                        if let Some(var) = var {
                            self.scope.set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(body);
                    }
                }
                Stmt::Step(step) => self.step(step),
            }
        }
    }

    fn fragment(&mut self, name: &str, with: &[(crate::ast::Spanned<String>, Template)]) {
        let Some(fragment) = self.suite.fragment(name) else { return };
        let told: Vec<(&str, &Template)> = fragment
            .takes
            .iter()
            .filter_map(|parameter| {
                let said = with.iter().find(|(name, _)| name.value == parameter.name.value);
                let value = said.map(|(_, value)| value).or(parameter.default.as_ref())?;
                Some((parameter.name.value.as_str(), value))
            })
            .collect();
        let Ok(before) = self.scope.tell(&told) else { return };
        self.body(&fragment.body);
        self.scope.restore(before);
    }

    /// The processes that a step is about.
    fn who(&self, who: &Who) -> Vec<Proc> {
        let (group, set) = match who {
            Who::Job | Who::Ranks { group: Proc::PROXIES, .. } => return Vec::new(),
            Who::Ranks { group, set } => (*group, set),
            Who::Spawned { number, set } => {
                let number = self.scope.var(&number.value).unwrap_or_default();
                (std::str::from_utf8(&number).ok().and_then(|n| n.parse().ok()).unwrap_or(1), set)
            }
        };
        let size = self.size(group);
        match set {
            RankSet::All => (0..size).map(|rank| Proc { group, rank }).collect(),
            RankSet::Ranges(ranges) => {
                ranges.iter().flat_map(|(a, b)| *a..=*b).map(|rank| Proc { group, rank }).collect()
            }
        }
    }

    fn size(&self, group: u32) -> u32 {
        self.sizes.get(group as usize).copied().unwrap_or(1)
    }

    fn step(&mut self, step: &Step) {
        for p in self.who(&step.who) {
            self.scope.enter(p.rank, self.size(p.group));
            match (step.role, &step.action) {
                (Role::Client, Action::Message { mode, lines }) => {
                    let writes = self.scope.message(*mode, lines).unwrap_or_default();
                    self.writes(p, *mode, &writes);
                }
                (Role::Server, action) => self.answered(p, action),
                _ => {}
            }
        }
    }

    /// What the server may say to a process.
    fn answered(&mut self, p: Proc, action: &Action) {
        match action {
            Action::OneOf(alternatives) => {
                let lawful = alternatives.iter().filter(|a| a.grade != Grade::Fail);
                let mut refused = false;
                for alternative in lawful {
                    self.over |= matches!(alternative.action, Action::Close);
                    refused |= self.message(p, &alternative.action);
                }
                self.rank(p).refused = refused;
            }
            action => self.rank(p).refused = self.message(p, action),
        }
    }

    /// Binds what an expected message captures; returns whether it is a refusal.
    fn message(&mut self, p: Proc, action: &Action) -> bool {
        let Action::Message { lines, .. } = action else { return false };
        let mut refusal = false;
        for field in lines.iter().flat_map(Template::message_fields) {
            for piece in &field.value.pieces {
                match piece {
                    Piece::Capture(name, _) => self.scope.set(name, told(&field.key, p)),
                    Piece::Typed(Kind::RcFail) => refusal = true,
                    _ => {}
                }
            }
        }
        refusal
    }

    fn rank(&mut self, p: Proc) -> &mut Rank {
        self.ranks.entry(p).or_default()
    }

    fn writes(&mut self, p: Proc, mode: WriteMode, writes: &[Vec<u8>]) {
        for write in writes {
            let mut whole: Vec<(Classified, BTreeSet<&'static str>, Vec<u8>)> = Vec::new();
            let mut rest = &write[..];
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let rank = self.rank(p);
                rank.partial.extend_from_slice(&rest[..end]);
                rank.writes.push(end + 1);
                rest = &rest[end + 1..];
                let line = std::mem::take(&mut rank.partial);
                let sizes = std::mem::take(&mut rank.writes);
                let mut framing = BTreeSet::new();
                if mode.bytewise {
                    framing.insert("bytewise");
                } else {
                    let apart = sizes.len() > 1 && sizes.last() == Some(&1);
                    framing.extend(apart.then_some("newline-apart"));
                    framing.extend((sizes.len() > 1 + usize::from(apart)).then_some("split"));
                }
                whole.extend(self.line(p, line, framing));
            }
            let rank = self.rank(p);
            if !rest.is_empty() {
                rank.partial.extend_from_slice(rest);
                rank.writes.push(rest.len());
            }
            if let Some((_, split)) = &mut rank.block {
                *split = true;
            }
            let several = whole.len() > 1;
            for (request, mut framing, line) in whole {
                if several {
                    framing.insert("several");
                }
                self.request(p, &request, &framing, line);
            }
        }
    }

    /// A line of a process, with which a request may be complete.
    fn line(
        &mut self,
        p: Proc,
        line: Vec<u8>,
        mut framing: BTreeSet<&'static str>,
    ) -> Option<(Classified, BTreeSet<&'static str>, Vec<u8>)> {
        let inputs = self.inputs;
        let rank = self.rank(p);
        match &mut rank.block {
            None if line == b"mcmd=spawn" => {
                rank.block = Some((Vec::new(), false));
                None
            }
            None => {
                let mut request = classify::line(&line, inputs, LIMITS)?;
                framing.append(&mut request.framing);
                Some((request, framing, line))
            }
            Some((lines, _)) if line != b"endcmd" => {
                lines.push(line);
                None
            }
            Some(_) => {
                let (lines, split) = rank.block.take()?;
                let mut request = classify::block(&lines, inputs, LIMITS)?;
                framing.append(&mut request.framing);
                if split && !framing.contains("bytewise") {
                    framing.insert("split");
                }
                Some((request, framing, lines.join(&b'\n')))
            }
        }
    }

    /// A request that is complete.
    fn request(&mut self, p: Proc, request: &Classified, framing: &BTreeSet<&'static str>, line: Vec<u8>) {
        let operation = request.operation.clone();
        let mut cells = Vec::new();
        for (argument, kind) in &request.kinds {
            cells.push(format!("{operation}.{argument}/kind/{kind}"));
        }
        cells.extend(framing.iter().map(|framing| format!("{operation}/framing/{framing}")));
        cells.extend(self.states(p).into_iter().map(|state| format!("{operation}/state/{state}")));
        cells.extend(self.places(p, request).into_iter().map(|place| format!("{operation}/place/{place}")));
        let inputs = self.inputs;
        let rank = self.rank(p);
        let count = rank.requests.entry(operation.clone()).or_default();
        *count += 1;
        let again = rank.same.entry(sameness(request, line)).or_default();
        *again += 1;
        for (word, from) in inputs.times() {
            let number = if word.starts_with("same-") { *again } else { *count };
            if number >= *from {
                cells.push(format!("{operation}/times/{word}"));
            }
        }
        let sure = !self.over;
        self.played.extend(cells.into_iter().map(|cell| Played { cell, sure }));
        self.done(p, request);
    }

    fn states(&mut self, p: Proc) -> Vec<&'static str> {
        let rank = self.rank(p);
        let holds = [
            ("before-init", !rank.init),
            ("after-init", rank.init && !rank.put && rank.barriers == 0 && !rank.finalized),
            ("after-put", rank.put && !rank.finalized),
            ("after-barrier", rank.barriers > 0 && !rank.put && !rank.finalized),
            ("after-refusal", rank.refused),
            ("after-finalize", rank.finalized),
            ("in-spawned-group", p.group > 0 && !rank.finalized),
        ];
        holds.into_iter().filter(|(_, holds)| *holds).map(|(state, _)| state).collect()
    }

    fn node(&self, p: Proc) -> Option<u32> {
        self.nodes.get(p.rank as usize).copied().filter(|_| p.group == 0)
    }

    fn places(&self, p: Proc, request: &Classified) -> Vec<&'static str> {
        let mut places = Vec::new();
        match (p.group, p.rank, self.node(p)) {
            (0, 0, _) => places.push("first-rank"),
            (0, _, Some(0)) => places.push("other-rank"),
            (0, _, Some(_)) => places.push("other-node"),
            _ => {}
        }
        let by = match request.operation.as_str() {
            "get" => request.value("key").and_then(|key| self.put_by.get(&(p.group, key.to_vec()))),
            _ => request.value("service").and_then(|service| self.published_by.get(service)),
        };
        places.extend(by.map(|by| match () {
            () if *by == p => "of-own",
            () if by.group != p.group => "of-other-group",
            () if self.node(*by) != self.node(p) => "of-other-node",
            () => "of-other-rank",
        }));
        places
    }

    /// What has changed with a request.
    fn done(&mut self, p: Proc, request: &Classified) {
        let text = |name| request.value(name).map(<[u8]>::to_vec);
        match request.operation.as_str() {
            "init" => self.rank(p).init = true,
            "finalize" => self.rank(p).finalized = true,
            "put" => {
                self.rank(p).put = true;
                if let Some(key) = text("key") {
                    self.put_by.entry((p.group, key)).or_insert(p);
                }
            }
            "barrier_in" => {
                let rank = self.rank(p);
                rank.put = false;
                rank.barriers += 1;
            }
            "publish_name" => {
                if let Some(service) = text("service") {
                    self.published_by.insert(service, p);
                }
            }
            "spawn" => {
                let number = |name| {
                    let value = request.value(name)?;
                    std::str::from_utf8(value).ok()?.parse::<u32>().ok()
                };
                self.spawning += number("nprocs").unwrap_or(0);
                let group = self.sizes.len() as u32;
                for (_, key) in request.values.iter().filter(|(name, _)| name == "preput_key_N") {
                    self.put_by.insert((group, key.clone()), p);
                }
                if number("spawnssofar") >= number("totspawns") {
                    self.sizes.push(std::mem::take(&mut self.spawning));
                }
            }
            _ => {}
        }
    }
}

/// What makes requests the same: all of them, but for the value that is put and the port that is published.
fn sameness(request: &Classified, line: Vec<u8>) -> Vec<u8> {
    let name = match request.operation.as_str() {
        "put" => request.value("key"),
        "publish_name" => request.value("service"),
        _ => None,
    };
    name.map_or(line, |name| [request.operation.as_bytes(), b" ", name].concat())
}

/// What a server might say in a response under a key.
fn told(key: &str, p: Proc) -> Vec<u8> {
    match key {
        "kvsname_max" => LIMITS.kvsname.to_string(),
        "keylen_max" => LIMITS.key.to_string(),
        "vallen_max" => LIMITS.value.to_string(),
        "kvsname" => format!("kvs_{}", p.group),
        "pmi_version" | "pmi_subversion" | "size" => "1".to_owned(),
        _ => "0".to_owned(),
    }
    .into_bytes()
}
