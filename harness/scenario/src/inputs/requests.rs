//! What a server is asked: which requests a scenario makes, of whom, and in which state.

use std::collections::{BTreeSet, HashMap};

use pmi_wire::{Proc, place};

use super::axes::Inputs;
use super::classify::{self, Classified};
use super::walk::{self, LIMITS, Line, Lines, Played, Reader, Walk};
use crate::ast::{Action, Grade, Kind, Piece, Role, Scenario, Step, Template, WriteMode};
use crate::suite::Suite;

/// The cells that a scenario for servers plays.
pub(super) fn played(scenario: &Scenario, suite: &Suite, inputs: &Inputs) -> Vec<Played> {
    let mut requests = Requests { nodes: place(scenario.ranks, scenario.nodes), ..Requests::default() };
    walk::play(scenario, suite, inputs, &mut requests)
}

/// What a process has done.
#[derive(Debug, Default)]
struct Rank {
    lines: Lines,
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

#[derive(Debug, Default)]
struct Requests {
    /// The nodes of the ranks of the first group.
    nodes: Vec<u32>,
    ranks: HashMap<Proc, Rank>,
    put_by: HashMap<(u32, Vec<u8>), Proc>,
    published_by: HashMap<Vec<u8>, Proc>,
    /// Processes that the programs of an unfinished spawn request ask for.
    spawning: u32,
    /// Whether the server may lawfully have closed a connection, which may end the program.
    over: bool,
}

impl Reader for Requests {
    fn step(&mut self, walk: &mut Walk<'_>, p: Proc, step: &Step) {
        match (step.role, &step.action) {
            (Role::Client, Action::Message { mode, lines }) => {
                let writes = walk.scope.message(*mode, lines).unwrap_or_default();
                self.writes(walk, p, *mode, &writes);
            }
            (Role::Server, action) => self.answered(walk, p, action),
            _ => {}
        }
    }
}

impl Requests {
    /// What the server may say to a process.
    fn answered(&mut self, walk: &mut Walk<'_>, p: Proc, action: &Action) {
        match action {
            Action::OneOf(alternatives) => {
                let lawful = alternatives.iter().filter(|a| a.grade != Grade::Fail);
                let mut refused = false;
                for alternative in lawful {
                    self.over |= matches!(alternative.action, Action::Close);
                    refused |= message(walk, p, &alternative.action);
                }
                self.rank(p).refused = refused;
            }
            action => self.rank(p).refused = message(walk, p, action),
        }
    }

    fn rank(&mut self, p: Proc) -> &mut Rank {
        self.ranks.entry(p).or_default()
    }

    fn writes(&mut self, walk: &mut Walk<'_>, p: Proc, mode: WriteMode, writes: &[Vec<u8>]) {
        for write in writes {
            let mut whole: Vec<(Classified, BTreeSet<&'static str>, Vec<u8>)> = Vec::new();
            for line in self.rank(p).lines.write(mode, write) {
                whole.extend(self.line(walk.inputs, p, line));
            }
            if let Some((_, split)) = &mut self.rank(p).block {
                *split = true;
            }
            let several = whole.len() > 1;
            for (request, mut framing, line) in whole {
                if several {
                    framing.insert("several");
                }
                self.request(walk, p, &request, &framing, line);
            }
        }
    }

    /// A line of a process, with which a request may be complete.
    fn line(
        &mut self,
        inputs: &Inputs,
        p: Proc,
        line: Line,
    ) -> Option<(Classified, BTreeSet<&'static str>, Vec<u8>)> {
        let Line { text: line, framing } = line;
        let mut framing = BTreeSet::from_iter(framing);
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
    fn request(
        &mut self,
        walk: &mut Walk<'_>,
        p: Proc,
        request: &Classified,
        framing: &BTreeSet<&'static str>,
        line: Vec<u8>,
    ) {
        let operation = request.operation.clone();
        let mut cells = Vec::new();
        for (argument, kind) in &request.kinds {
            cells.push(format!("{operation}.{argument}/kind/{kind}"));
        }
        cells.extend(framing.iter().map(|framing| format!("{operation}/framing/{framing}")));
        cells.extend(self.states(p).into_iter().map(|state| format!("{operation}/state/{state}")));
        cells.extend(self.places(p, request).into_iter().map(|place| format!("{operation}/place/{place}")));
        let rank = self.rank(p);
        let count = rank.requests.entry(operation.clone()).or_default();
        *count += 1;
        let again = rank.same.entry(sameness(request, line)).or_default();
        *again += 1;
        for (word, from) in walk.inputs.times() {
            let number = if word.starts_with("same-") { *again } else { *count };
            if number >= *from {
                cells.push(format!("{operation}/times/{word}"));
            }
        }
        walk.plays(cells, !self.over);
        self.done(walk, p, request);
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
    fn done(&mut self, walk: &mut Walk<'_>, p: Proc, request: &Classified) {
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
                let group = walk.sizes.len() as u32;
                for (_, key) in request.values.iter().filter(|(name, _)| name == "preput_key_N") {
                    self.put_by.insert((group, key.clone()), p);
                }
                if number("spawnssofar") >= number("totspawns") {
                    walk.sizes.push(std::mem::take(&mut self.spawning));
                }
            }
            _ => {}
        }
    }
}

/// Binds what an expected message captures; returns whether it is a refusal.
fn message(walk: &mut Walk<'_>, p: Proc, action: &Action) -> bool {
    let Action::Message { lines, .. } = action else { return false };
    let mut refusal = false;
    for field in lines.iter().flat_map(Template::message_fields) {
        for piece in &field.value.pieces {
            match piece {
                Piece::Capture(name, _) => walk.scope.set(name, told(&field.key, p)),
                Piece::Typed(Kind::RcFail) => refusal = true,
                _ => {}
            }
        }
    }
    refusal
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
