//! What a server is asked: which requests a scenario makes, of whom, and in which state.

use std::collections::{BTreeSet, HashMap};

use pmi_wire::{Proc, place};

use super::axes::Inputs;
use super::classify::{self, Classified};
use super::stream::{Form, Stream, WrittenMessage};
use super::walk::{self, Played, Reader, Walk};
use crate::ast::{Action, Dialect, Grade, Kind, Piece, Role, Scenario, Step, Template, WriteMode};
use crate::suite::Suite;

/// What the table of PMI-2 calls a frame that is no request.
const FRAME: &str = "frame";
/// More processes than any scenario plays with.
const MANY: u64 = 64;

/// The cells that a scenario for servers plays.
pub(super) fn played(scenario: &Scenario, suite: &Suite, inputs: &Inputs) -> Vec<Played> {
    let mut requests = Requests { nodes: place(scenario.ranks, scenario.nodes), ..Requests::default() };
    walk::play(scenario, suite, inputs, &mut requests)
}

/// What a process has done.
#[derive(Debug, Default)]
struct Rank {
    stream: Stream,
    /// The lines of a spawn request, which was begun in an earlier write if that is said.
    block: Option<(Vec<Vec<u8>>, bool)>,
    /// It has said the line with which PMI-2 begins.
    offered: bool,
    /// It has said init, or fullinit.
    joined: bool,
    finalized: bool,
    /// How many of its requests have no answer yet.
    waiting: u32,
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
    attribute_by: HashMap<Vec<u8>, Proc>,
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
            (Role::Client, Action::Close) => self.cut_off(walk, p),
            (Role::Server, action) => self.answered(walk, p, action),
            _ => {}
        }
    }
}

impl Requests {
    /// What the server may say to a process.
    fn answered(&mut self, walk: &mut Walk<'_>, p: Proc, action: &Action) {
        if walk.inputs.dialect == Dialect::Pmi2 && self.rank(p).stream.is_too_long() {
            self.malformed(walk, p, "length-long");
        }
        let rank = self.rank(p);
        match action {
            Action::Silence | Action::Close => {}
            Action::Message { lines, .. } => rank.waiting = rank.waiting.saturating_sub(lines.len() as u32),
            _ => rank.waiting = rank.waiting.saturating_sub(1),
        }
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
            for message in self.rank(p).stream.write(walk.inputs.dialect, mode, write) {
                let request = match walk.inputs.dialect {
                    Dialect::Pmi1 => self.line(walk.inputs, p, message),
                    Dialect::Pmi2 => self.frame(walk, p, message),
                };
                whole.extend(request);
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

    /// A message of PMI-2, which may be a request.
    fn frame(
        &mut self,
        walk: &mut Walk<'_>,
        p: Proc,
        message: WrittenMessage,
    ) -> Option<(Classified, BTreeSet<&'static str>, Vec<u8>)> {
        let WrittenMessage { form, text, framing } = message;
        let read = match form {
            Form::Line if text.starts_with(b"cmd=init") => {
                self.rank(p).offered = true;
                Ok(None)
            }
            Form::Line => Err("line"),
            Form::Frame => classify::body(&text, walk.inputs),
            Form::Malformed(word) => Err(word),
        };
        match read {
            Ok(request) => {
                let mut request = request?;
                let mut framing = BTreeSet::from_iter(framing);
                framing.append(&mut request.framing);
                Some((request, framing, text))
            }
            Err(word) => {
                self.malformed(walk, p, word);
                None
            }
        }
    }

    /// A process has written what is no request.
    fn malformed(&mut self, walk: &mut Walk<'_>, p: Proc, word: &str) {
        let mut cells = vec![format!("{FRAME}/malformed/{word}")];
        cells.extend(
            self.states(p, walk.inputs.dialect).into_iter().map(|state| format!("{FRAME}/state/{state}")),
        );
        cells.extend(self.asking(p).map(|place| format!("{FRAME}/place/{place}")));
        walk.plays(cells, !self.over);
    }

    /// A process closes its connection.
    fn cut_off(&mut self, walk: &mut Walk<'_>, p: Proc) {
        if let Some(word) = self.rank(p).stream.cut_off(walk.inputs.dialect) {
            self.malformed(walk, p, word);
        }
    }

    /// A line of a process, with which a request may be complete.
    fn line(
        &mut self,
        inputs: &Inputs,
        p: Proc,
        line: WrittenMessage,
    ) -> Option<(Classified, BTreeSet<&'static str>, Vec<u8>)> {
        let WrittenMessage { text: line, framing, .. } = line;
        let mut framing = BTreeSet::from_iter(framing);
        let rank = self.rank(p);
        match &mut rank.block {
            None if line == b"mcmd=spawn" => {
                rank.block = Some((Vec::new(), false));
                None
            }
            None => {
                let mut request = classify::line(&line, inputs)?;
                framing.append(&mut request.framing);
                Some((request, framing, line))
            }
            Some((lines, _)) if line != b"endcmd" => {
                lines.push(line);
                None
            }
            Some(_) => {
                let (lines, split) = rank.block.take()?;
                let mut request = classify::block(&lines, inputs)?;
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
        cells.extend(request.counts.iter().map(|count| format!("{operation}/count/{count}")));
        let states = self.states(p, walk.inputs.dialect);
        let places: Vec<_> = self.asking(p).into_iter().chain(self.whose(p, request)).collect();
        if self.misses(request) {
            let misses = states.iter().chain(&places).map(|word| format!("{operation}/miss/{word}"));
            cells.extend(misses);
        }
        cells.extend(states.into_iter().map(|state| format!("{operation}/state/{state}")));
        cells.extend(places.into_iter().map(|place| format!("{operation}/place/{place}")));
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

    fn states(&mut self, p: Proc, dialect: Dialect) -> Vec<&'static str> {
        let rank = self.rank(p);
        let (offered, barrier) = match dialect {
            Dialect::Pmi1 => (rank.joined, "after-barrier"),
            Dialect::Pmi2 => (rank.offered, "after-fence"),
        };
        let holds = [
            ("before-init", !offered),
            ("before-fullinit", offered && !rank.joined),
            ("after-init", rank.joined && !rank.put && rank.barriers == 0 && !rank.finalized),
            ("after-put", rank.put && !rank.finalized),
            (barrier, rank.barriers > 0 && !rank.put && !rank.finalized),
            ("while-waiting", rank.waiting > 0),
            ("after-refusal", rank.refused),
            ("after-finalize", rank.finalized),
            ("in-spawned-group", p.group > 0 && !rank.finalized),
        ];
        holds.into_iter().filter(|(_, holds)| *holds).map(|(state, _)| state).collect()
    }

    fn node(&self, p: Proc) -> Option<u32> {
        self.nodes.get(p.rank as usize).copied().filter(|_| p.group == 0)
    }

    /// Where the process is that asks.
    fn asking(&self, p: Proc) -> Option<&'static str> {
        match (p.group, p.rank, self.node(p)) {
            (0, 0, _) => Some("first-rank"),
            (0, _, Some(0)) => Some("other-rank"),
            (0, _, Some(_)) => Some("other-node"),
            _ => None,
        }
    }

    /// Whose it is what a request asks for.
    fn whose(&self, p: Proc, request: &Classified) -> Option<&'static str> {
        let by = self.owner(p, request)?;
        Some(match () {
            () if by == p => "of-own",
            () if by.group != p.group => "of-other-group",
            () if self.node(by) != self.node(p) => "of-other-node",
            () => "of-other-rank",
        })
    }

    fn owner(&self, p: Proc, request: &Classified) -> Option<Proc> {
        let key = || request.value("key");
        match request.operation.as_str() {
            "get" | "kvs-get" => self.put_by.get(&(p.group, key()?.to_vec())),
            "info-getnodeattr" => self.attribute_by.get(key()?),
            _ => self.published_by.get(request.value("service").or_else(|| request.value("name"))?),
        }
        .copied()
    }

    /// Whether a request of PMI-2 asks for what nobody has put or published, and does not wait for it.
    fn misses(&self, request: &Classified) -> bool {
        let by_key = |by: bool| request.value("key").is_some() && !by;
        let key = request.value("key").unwrap_or_default();
        match request.operation.as_str() {
            "kvs-get" => by_key(self.put_by.keys().any(|(_, put)| put == key) || key.starts_with(b"PMI_")),
            "info-getnodeattr" => by_key(self.attribute_by.contains_key(key)) && !waits(request),
            "info-getjobattr" => by_key(key.starts_with(b"PMI_") || JOB_ATTRIBUTES.contains(&key)),
            "name-lookup" | "name-unpublish" => {
                request.value("name").is_some_and(|name| !self.published_by.contains_key(name))
            }
            _ => false,
        }
    }

    /// What has changed with a request.
    fn done(&mut self, walk: &mut Walk<'_>, p: Proc, request: &Classified) {
        let text = |name| request.value(name).map(<[u8]>::to_vec);
        self.rank(p).waiting += u32::from(request.operation != "abort");
        match request.operation.as_str() {
            "init" | "fullinit" => self.rank(p).joined = true,
            "finalize" => self.rank(p).finalized = true,
            "put" | "kvs-put" => {
                self.rank(p).put = true;
                if let Some(key) = text("key") {
                    self.put_by.entry((p.group, key)).or_insert(p);
                }
            }
            "info-putnodeattr" => {
                if let Some(key) = text("key") {
                    self.attribute_by.entry(key).or_insert(p);
                }
            }
            "barrier_in" | "kvs-fence" => {
                let rank = self.rank(p);
                rank.put = false;
                rank.barriers += 1;
            }
            "publish_name" | "name-publish" => {
                if let Some(name) = text("service").or_else(|| text("name")) {
                    self.published_by.insert(name, p);
                }
            }
            "spawn" if walk.inputs.dialect == Dialect::Pmi2 => {
                let group = walk.sizes.len() as u32;
                for key in request.all("ppkeyN") {
                    self.put_by.insert((group, key.to_vec()), p);
                }
                walk.sizes.push(request.sum("maxprocs").min(MANY) as u32);
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
                Piece::Capture(name, _) => {
                    let text = told(&field.key, p, walk.inputs);
                    walk.scope.set(name, text);
                }
                Piece::Typed(Kind::RcFail) => refusal = true,
                _ => {}
            }
        }
    }
    refusal
}

/// Attributes of a job that a server may provide.
const JOB_ATTRIBUTES: &[&[u8]] = &[b"universeSize", b"hasNameServ", b"physTopology"];

/// Whether a request is to be answered once there is something.
fn waits(request: &Classified) -> bool {
    request.value("wait").is_some_and(|wait| wait.eq_ignore_ascii_case(b"true"))
}

/// What makes requests the same: all of them, but for the value that is put and the port that is published.
fn sameness(request: &Classified, line: Vec<u8>) -> Vec<u8> {
    let name = match request.operation.as_str() {
        "put" | "kvs-put" | "info-putnodeattr" => request.value("key"),
        "publish_name" => request.value("service"),
        "name-publish" => request.value("name"),
        _ => None,
    };
    name.map_or(line, |name| [request.operation.as_bytes(), b" ", name].concat())
}

/// What a server might say in a response under a key.
fn told(key: &str, p: Proc, inputs: &Inputs) -> Vec<u8> {
    let limits = inputs.limits();
    match key {
        "kvsname_max" => limits.kvsname.to_string(),
        "keylen_max" => limits.key.to_string(),
        "vallen_max" => limits.value.to_string(),
        "kvsname" => format!("kvs_{}", p.group),
        "pmi_version" | "pmi_subversion" | "size" => "1".to_owned(),
        _ => "0".to_owned(),
    }
    .into_bytes()
}
