//! Cases for servers from a model of PMI: what processes lawfully say, in an order over all ranks that is drawn, with none to
//! two mutations. The course of a session is here; what is said in it, each protocol has in a module of its own.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Need, Piece, Template, UnderTest};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::pmi1::plain;
use super::pmi2::Threads;
use super::swarm::Swarm;
use super::{Generator, upstream};
use crate::case::{
    Case, Limit, MOST_GROUPS, exit, join, leave, letters, letters_to, literal, push, tidy, unplaced,
};
use crate::decisions::{percent, pick, shuffle};
use crate::fields::{field, text};
use crate::mutate::mutate_requests;
use crate::op::Op;
use crate::plan::{Planned, may_answer, must_answer, request, settle};
use crate::texts::{self, Use};

/// Which protocol the sessions of a campaign are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// This.
    One(Dialect),
    /// Any; each session is in one.
    Any,
}

impl Default for Spoken {
    fn default() -> Self {
        Self::One(Dialect::default())
    }
}

impl Spoken {
    /// Whether a session may be in it.
    pub fn has(self, dialect: Dialect) -> bool {
        self == Self::Any || self == Self::One(dialect)
    }

    fn draw(self, u: &mut Unstructured<'_>) -> Result<Dialect> {
        match self {
            Self::One(dialect) => Ok(dialect),
            Self::Any => pick(u, &Dialect::NAMES.map(|(_, dialect)| dialect)),
        }
    }
}

/// What only the draft of PMI-2 has, as far as a server offers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftOnly {
    /// A command in several messages.
    pub concat: bool,
    /// The values of another job.
    pub job_connect: bool,
    /// All pairs of a job.
    pub kvs_getall: bool,
    /// A spawn with a message for each program.
    pub spawn_cmd: bool,
}

impl DraftOnly {
    /// Those of these needs that sessions use.
    pub fn of(offers: impl Fn(Need) -> bool) -> Self {
        Self {
            concat: offers(Need::Concat),
            job_connect: offers(Need::JobConnect),
            kvs_getall: offers(Need::KvsGetall),
            spawn_cmd: offers(Need::SpawnCmd),
        }
    }

    /// What both have.
    pub fn and(self, other: Self) -> Self {
        Self::of(|need| self.has(need) && other.has(need))
    }

    /// Whether this is offered; what is not only the draft's is no matter of ours.
    pub fn has(self, need: Need) -> bool {
        match need {
            Need::Concat => self.concat,
            Need::JobConnect => self.job_connect,
            Need::KvsGetall => self.kvs_getall,
            Need::SpawnCmd => self.spawn_cmd,
            Need::Auth
            | Need::Spawn
            | Need::Names
            | Need::Upstream
            | Need::Fd
            | Need::Port
            | Need::Singleton
            | Need::Alone
            | Need::Pmi12
            | Need::KeyvalSpaces => !need.is_extra(),
        }
    }
}

/// What may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The protocol.
    pub spoken: Spoken,
    /// Most ranks.
    pub ranks: u32,
    /// Most nodes, one or two.
    pub nodes: u32,
    /// What only the draft of PMI-2 has.
    pub draft: DraftOnly,
    /// The spawn operation.
    pub spawn: bool,
    /// Publish, unpublish and lookup.
    pub names: bool,
    /// PMI-1.2, in some sessions of PMI-1: barriers of parts of a process group.
    pub pmi12: bool,
    /// Mutations are made.
    pub mutate: bool,
    /// The server is a proxy, and we are its upstream.
    pub upstream: bool,
}

impl Default for Scope {
    fn default() -> Self {
        let (spoken, draft) = (Spoken::default(), DraftOnly::default());
        Self {
            spoken,
            ranks: 4,
            nodes: 1,
            draft,
            spawn: true,
            names: true,
            pmi12: false,
            mutate: true,
            upstream: false,
        }
    }
}

impl Generator for Scope {
    fn generate(&self, lawful: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let dialect = self.spoken.draw(lawful)?;
        let ranks = match percent(lawful)? {
            0..30 => 1,
            30..70 => 2,
            70..87 => 3,
            _ => 4,
        };
        let ranks = ranks.min(self.ranks.max(1));
        let nodes = if self.nodes > 1 && ranks > 1 && lawful.ratio(1, 3)? { 2 } else { 1 };
        // What a proxy passes on of PMI-2 is no text that we answer.
        let held = (self.upstream && dialect == Dialect::Pmi1 && percent(lawful)? < 60)
            .then(|| upstream::held(self.names, self.spawn, lawful))
            .transpose()?;
        let swarm = Swarm::draw(lawful)?;
        // What is passed on of the barriers of PMI-1.2 is no text that we answer either.
        let groups = self.pmi12 && dialect == Dialect::Pmi1 && held.is_none() && lawful.ratio(2, 3)?;
        let mut model = Model {
            dialect,
            ranks,
            nodes,
            scope: *self,
            swarm,
            u: lawful,
            plan: Vec::new(),
            keys: vec![0; ranks as usize],
            visible: Vec::new(),
            fresh: Vec::new(),
            values: Vec::new(),
            services: Vec::new(),
            groups: 0,
            speaks12: groups,
            threads: Threads::of(ranks),
            held,
            started: 0,
            last_read: 0,
        };
        model.build()?;
        let Model { mut plan, started, .. } = model;
        let u = mutations;
        let mut others = match percent(u)? {
            _ if !self.mutate => 0,
            0..40 => 0,
            40..85 => 1,
            _ => 2,
        };
        let mut ingredients = BTreeSet::new();
        if let Some(op) = held {
            let mut of_replies = 0;
            for _ in 0..others {
                of_replies += usize::from(!u.ratio(1, 4)?);
            }
            others -= of_replies;
            let exchange = upstream::exchange(op, ranks, of_replies, u)?;
            ingredients.extend(exchange.ingredients);
            plan.splice(started..started, exchange.plan);
        }
        let pristine = others == 0;
        let settled = |plan| {
            let statements = settle(plan, dialect, pristine);
            let mut case = Case::speaking(dialect, UnderTest::Server, ranks, statements);
            case.scenario.nodes = nodes;
            let in_series = case.needs().contains(&Need::SpawnCmd);
            case.scenario.needs.extend(in_series.then_some(unplaced(Need::SpawnCmd)));
            case
        };
        for _ in 0..others {
            let before = plan.clone();
            let ingredient = mutate_requests(&mut plan, dialect, u)?;
            if settled(plan.clone()).is_bounded() {
                ingredients.extend(ingredient);
            } else {
                plan = before;
            }
        }
        let mut case = settled(plan);
        case.ingredients = ingredients;
        Ok(case)
    }
}

pub(super) struct Model<'a, 'b> {
    dialect: Dialect,
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    pub(super) scope: Scope,
    pub(super) swarm: Swarm,
    pub(super) u: &'a mut Unstructured<'b>,
    pub(super) plan: Vec<Planned>,
    /// How many keys each rank has put.
    keys: Vec<u32>,
    /// Keys that all ranks must see.
    pub(super) visible: Vec<Key>,
    /// Keys put since the last barrier.
    pub(super) fresh: Vec<Key>,
    /// Values that were put.
    values: Vec<Template>,
    /// Names of services that were published, some of which no longer are.
    services: Vec<Template>,
    /// How many groups were spawned.
    pub(super) groups: u32,
    /// Every process offers 1.2.
    pub(super) speaks12: bool,
    /// What only a session of PMI-2 has.
    pub(super) threads: Threads,
    /// Requests of this kind are the upstream's, whose steps are made elsewhere.
    pub(super) held: Option<Operation>,
    /// Length of the plan when every rank had begun.
    started: usize,
    /// How many of the visible keys were read back.
    last_read: usize,
}

/// A key, and who has put it.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) name: Template,
    pub(super) by: u32,
}

/// Most keys that are read at once.
const MOST_READ: usize = 120;

/// A text, and more behind it.
fn template_of(begin: &str, more: Piece) -> Template {
    let mut template = text(begin);
    push(&mut template, more);
    template
}

/// Ends a write somewhere in a text: before it, in it or behind it.
fn cut(text: &mut Template, u: &mut Unstructured<'_>) -> Result<()> {
    let piece = u.int_in_range(0..=text.pieces.len())?;
    match text.pieces.get(piece) {
        Some(Piece::Literal { bytes, .. }) => {
            let (first, second) = bytes.split_at(u.int_in_range(0..=bytes.len())?);
            let parts = [literal(first), Piece::Cut, literal(second)];
            text.pieces.splice(piece..=piece, parts);
        }
        _ => text.pieces.insert(piece, Piece::Cut),
    }
    tidy(text);
    Ok(())
}

/// What one rank does between two barriers.
pub(super) type Work = Vec<Vec<Planned>>;

impl Model<'_, '_> {
    fn build(&mut self) -> Result<()> {
        if self.speaks12 {
            self.pmi1_start()?;
        } else if percent(self.u)? < 80 {
            self.plan.push(Planned::Stmt(join(self.dialect)));
        } else {
            match self.dialect {
                Dialect::Pmi1 => self.pmi1_start()?,
                Dialect::Pmi2 => self.pmi2_start()?,
            }
        }
        if self.dialect == Dialect::Pmi2 {
            self.ask_jobid()?;
        }
        self.started = self.plan.len();
        for _ in 0..self.u.int_in_range(1..=self.swarm.rounds.max(1))? {
            let work = (0..self.ranks).map(|rank| self.work(rank)).collect::<Result<_>>()?;
            self.interleave(work)?;
            if self.dialect == Dialect::Pmi2 {
                self.wait_for_attribute()?;
            }
            if self.speaks12 {
                self.group_barriers()?;
            }
            if percent(self.u)? < 70 {
                self.barrier()?;
                if self.swarm.read_back {
                    self.read_back()?;
                }
            }
            if self.swarm.groups && self.scope.spawn && self.held.is_none() && self.groups < MOST_GROUPS {
                self.spawn_and_speak()?;
            }
        }
        if self.swarm.read_at_end {
            self.last_read = 0;
            self.read_back()?;
        }
        if self.u.int_in_range(0..=49)? == 49 {
            self.soak()?;
        }
        self.end()?;
        if self.swarm.pieces {
            self.in_writes()?;
        }
        Ok(())
    }

    /// Keys that all see and that nobody was made to read are read, each by one process, and rather not by the one that has put it.
    fn read_back(&mut self) -> Result<()> {
        let keys: Vec<Key> = self.visible[self.last_read.min(self.visible.len())..].to_vec();
        self.last_read = self.visible.len();
        if self.held == Some(Operation::Get) {
            return Ok(());
        }
        let mut all: Vec<Work> = vec![Vec::new(); self.ranks as usize];
        for key in keys.into_iter().take(MOST_READ) {
            let mut reader = self.any_rank()?;
            if reader == key.by {
                reader = (reader + 1) % self.ranks;
            }
            all[reader as usize].push(self.get_of(reader, key.name));
        }
        self.interleave(all)
    }

    /// A process spawns a group that speaks, and nobody does anything else meanwhile: who comes second would not be known.
    fn spawn_and_speak(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        let spawn = match self.dialect {
            Dialect::Pmi1 => self.pmi1_spawn(rank)?,
            Dialect::Pmi2 => self.pmi2_spawn(rank, false)?,
        };
        self.plan.extend(spawn);
        let group = self.groups;
        let children = match self.dialect {
            Dialect::Pmi1 => self.pmi1_children(group)?,
            Dialect::Pmi2 => self.pmi2_children(group)?,
        };
        self.plan.extend(children.into_iter().map(Planned::Stmt));
        Ok(())
    }

    /// Some requests are made in several writes.
    fn in_writes(&mut self) -> Result<()> {
        let often = pick(self.u, &[4, 1, 10])?;
        for planned in &mut self.plan {
            let Planned::Request { messages, .. } = planned else { continue };
            if !self.u.ratio(1, often)? {
                continue;
            }
            // The word with which a program of a spawn ends has no value.
            let mut values: Vec<&mut Template> =
                messages.iter_mut().flatten().filter(|f| f.key != "endcmd").map(|f| &mut f.value).collect();
            let Some(last) = values.len().checked_sub(1) else { continue };
            // Often near the end, where little is left to be read.
            let at = if self.u.ratio(1, 2)? { last } else { self.u.int_in_range(0..=last)? };
            cut(values[at], self.u)?;
        }
        Ok(())
    }

    /// Very many requests of one rank: what overflows or leaks shows late.
    fn soak(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        for _ in 0..self.u.int_in_range(100..=199)? {
            let put = self.put(rank)?;
            self.plan.extend(put);
        }
        self.barrier()?;
        for _ in 0..20 {
            let get = self.get(rank)?;
            self.plan.extend(get);
        }
        Ok(())
    }

    pub(super) fn any_rank(&mut self) -> Result<u32> {
        self.u.int_in_range(0..=self.ranks - 1)
    }

    fn work(&mut self, rank: u32) -> Result<Work> {
        (0..self.u.int_in_range(0..=self.swarm.requests)?).map(|_| self.request(rank)).collect()
    }

    fn request(&mut self, rank: u32) -> Result<Vec<Planned>> {
        let request = match self.dialect {
            Dialect::Pmi1 => self.pmi1_request(rank)?,
            Dialect::Pmi2 => self.pmi2_requests(rank)?,
        };
        Ok(match request.first() {
            Some(Planned::Request { op: Op::Pmi1(op), .. })
                if self.held == Some(*op) && *op != Operation::Get =>
            {
                plain(rank, Operation::Universe)
            }
            _ => request,
        })
    }

    fn put(&mut self, rank: u32) -> Result<Vec<Planned>> {
        match self.dialect {
            Dialect::Pmi1 => self.pmi1_put(rank),
            Dialect::Pmi2 => self.pmi2_put(rank),
        }
    }

    fn get(&mut self, rank: u32) -> Result<Vec<Planned>> {
        match self.dialect {
            Dialect::Pmi1 => self.pmi1_get(rank),
            Dialect::Pmi2 => self.pmi2_get(rank),
        }
    }

    fn get_of(&mut self, rank: u32, key: Template) -> Vec<Planned> {
        match self.dialect {
            Dialect::Pmi1 => Self::pmi1_get_of(rank, key),
            Dialect::Pmi2 => Self::pmi2_get_of(rank, key),
        }
    }

    /// A key for a put: a new one, or seldom one that this process has put before.
    pub(super) fn key(&mut self, rank: u32) -> Result<Template> {
        let number = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        let plain = format!("k{rank}-{number}");
        let swarm = self.swarm;
        let own = self.visible.iter().chain(&self.fresh).filter(|key| key.by == rank);
        let own: Vec<Template> = own.map(|key| key.name.clone()).collect();
        if swarm.again && !own.is_empty() && self.u.ratio(1, 6)? {
            return Ok(self.u.choose(&own)?.clone());
        }
        let long = |count: i64| template_of(&plain, letters((count - plain.len() as i64).max(0)));
        let name = match percent(self.u)? {
            0..8 => {
                let less = pick(self.u, &[1, 2])?;
                match self.dialect {
                    Dialect::Pmi1 => template_of(&plain, letters_to(Limit::Key, -less - plain.len() as i64)),
                    Dialect::Pmi2 => long(texts::longest(Dialect::Pmi2, Use::Key) + 1 - less),
                }
            }
            8..50 if swarm.long_keys => long(texts::boundary(self.dialect, Use::Key, self.u)?),
            50..75 if swarm.like_keys && !own.is_empty() => match self.u.choose(&own)?.literal() {
                Some(own) => match self.like(&own)? {
                    like if like.is_empty() => text(plain.as_str()),
                    like => text(like),
                },
                None => text(plain.as_str()),
            },
            75..90 if swarm.odd_keys => {
                let mut name = text(plain.as_str());
                texts::content(self.dialect, Use::Key, self.u)?
                    .pieces
                    .into_iter()
                    .for_each(|p| push(&mut name, p));
                name
            }
            _ => text(plain.as_str()),
        };
        let is_new = self.visible.iter().chain(&self.fresh).all(|key| key.name.pieces != name.pieces);
        Ok(if is_new { name } else { text(plain.as_str()) })
    }

    /// Another key, which somebody who does not look closely takes for this one.
    fn like(&mut self, key: &str) -> Result<String> {
        Ok(match self.u.int_in_range(0..=5)? {
            // A semicolon of PMI-2 stands there twice.
            _ if key.contains(';') => format!("{key}-"),
            0 => format!("{key}-"),
            1 => key.to_uppercase(),
            2 => key.chars().rev().collect(),
            3 => key.chars().take(key.chars().count().saturating_sub(1)).collect(),
            4 => format!("{key}{}", self.u.int_in_range(0..=9)?),
            _ => format!("-{key}"),
        })
    }

    /// A key for a get: one that can be there, or not.
    pub(super) fn asked(&mut self, rank: u32) -> Result<Template> {
        let own = self.fresh.iter().filter(|key| key.by == rank);
        let all: Vec<Template> = self.visible.iter().chain(own).map(|key| key.name.clone()).collect();
        let misses = if self.swarm.misses { 60 } else { 10 };
        Ok(match percent(self.u)? {
            chance if chance < misses => match self.u.choose(&all).ok().and_then(Template::literal) {
                Some(there) if self.u.ratio(1, 2)? => match self.like(&there)? {
                    // There is nothing that it could be without its last letter.
                    like if like.is_empty() => text("missing"),
                    like => text(like),
                },
                _ => text("missing"),
            },
            90.. => text("PMI_process_mapping"),
            _ if all.is_empty() => text(format!("k{}-0", self.any_rank()?)),
            _ => self.u.choose(&all)?.clone(),
        })
    }

    /// A value by what this session draws of; `usual` says what there is besides.
    pub(super) fn value_or(&mut self, usual: impl FnOnce(&mut Self) -> Result<Template>) -> Result<Template> {
        let swarm = self.swarm;
        let value = match percent(self.u)? {
            0..15 if swarm.same_values && !self.values.is_empty() => self.u.choose(&self.values)?.clone(),
            15..60 if swarm.lengths => {
                let length = texts::boundary(self.dialect, Use::Value, self.u)?;
                // By its beginning it is told apart from others.
                let mark = format!("{}.", self.values.len());
                match length - mark.len() as i64 {
                    rest if rest < 0 => text(&b"0123456789"[..length as usize]),
                    rest => template_of(&mark, letters(rest)),
                }
            }
            60..90 if swarm.contents => texts::content(self.dialect, Use::Value, self.u)?,
            _ => usual(self)?,
        };
        self.values.push(value.clone());
        Ok(value)
    }

    /// The name of a service to publish: a new one, or seldom one that was published before.
    pub(super) fn new_service(&mut self) -> Result<Template> {
        let plain = format!("service-{}", self.services.len());
        let name = match percent(self.u)? {
            0..25 if !self.services.is_empty() => self.u.choose(&self.services)?.clone(),
            25..50 if self.swarm.lengths => {
                let length = texts::boundary(self.dialect, Use::Service, self.u)?;
                template_of(&plain, letters((length - plain.len() as i64).max(0)))
            }
            50..60 if self.swarm.contents && self.swarm.odd_keys => {
                let mut name = text(plain);
                let odd = texts::content(self.dialect, Use::Service, self.u)?;
                odd.pieces.into_iter().for_each(|piece| push(&mut name, piece));
                name
            }
            _ => text(plain),
        };
        self.services.push(name.clone());
        Ok(name)
    }

    /// Somebody else has published a name.
    pub(super) fn add_service(&mut self, name: Template) {
        self.services.push(name);
    }

    /// The name of a service that somebody may have published.
    pub(super) fn known_service(&mut self) -> Result<Template> {
        match self.services.is_empty() || self.u.ratio(1, 8)? {
            true => Ok(text("service-of-nobody")),
            false => Ok(self.u.choose(&self.services)?.clone()),
        }
    }

    /// The port of a service.
    pub(super) fn port(&mut self) -> Result<Template> {
        let mark = format!("tag#{}$port#4242$", self.services.len());
        Ok(match percent(self.u)? {
            0..40 if self.swarm.lengths => {
                let length = texts::boundary(self.dialect, Use::Port, self.u)?;
                template_of(&mark, letters((length - mark.len() as i64).max(0)))
            }
            40..60 if self.swarm.contents => texts::content(self.dialect, Use::Port, self.u)?,
            _ => text(mark),
        })
    }

    fn barrier(&mut self) -> Result<()> {
        if self.held == Some(Operation::Barrier) {
            return Ok(());
        }
        let op = match self.dialect {
            Dialect::Pmi1 => Op::Pmi1(Operation::Barrier),
            Dialect::Pmi2 => Op::Pmi2(Command::KvsFence),
        };
        let mut order: Vec<u32> = (0..self.ranks).collect();
        shuffle(self.u, &mut order)?;
        for rank in &order {
            // Who comes later may still read while others wait.
            if self.u.ratio(1, 5)? {
                let get = self.get(*rank)?;
                self.plan.extend(get);
            }
            let fence = vec![field("cmd", op.name())];
            match self.dialect {
                // Who comes last waits for nobody.
                Dialect::Pmi2 if order.last() != Some(rank) => self.pmi2_fence(*rank, fence)?,
                _ => self.plan.push(request(*rank, op, fence)),
            }
        }
        shuffle(self.u, &mut order)?;
        self.plan.extend(order.into_iter().map(|rank| must_answer(rank, op)));
        self.visible.append(&mut self.fresh);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        match self.u.int_in_range(0..=19)? {
            18 => {
                let abort = match self.dialect {
                    Dialect::Pmi1 => Self::pmi1_abort(rank),
                    Dialect::Pmi2 => self.pmi2_abort(rank)?,
                };
                self.plan.push(abort);
                self.plan.push(may_answer(rank));
            }
            19 => self.plan.push(Planned::Stmt(exit(rank, 3))),
            0..4 => {
                let op = match self.dialect {
                    Dialect::Pmi1 => Op::Pmi1(Operation::Finalize),
                    Dialect::Pmi2 => Op::Pmi2(Command::Finalize),
                };
                let finalize = |rank| vec![plain(rank, op)];
                self.interleave((0..self.ranks).map(finalize).collect())?;
            }
            _ => self.plan.push(Planned::Stmt(leave(self.dialect))),
        }
        Ok(())
    }

    /// Merges what the ranks do, request by request; often the requests of several are under way at once.
    pub(super) fn interleave(&mut self, mut all: Vec<Work>) -> Result<()> {
        all.iter_mut().for_each(|work| work.reverse());
        let mut open: Vec<Vec<Planned>> = vec![Vec::new(); all.len()];
        loop {
            let busy: Vec<usize> =
                (0..all.len()).filter(|i| !open[*i].is_empty() || !all[*i].is_empty()).collect();
            if busy.is_empty() {
                return Ok(());
            }
            let i = pick(self.u, &busy)?;
            if open[i].is_empty() {
                open[i] = all[i].pop().unwrap_or_default();
            }
            if !open[i].is_empty() {
                let next = open[i].remove(0);
                self.plan.push(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::generate::{decided, numbered};
    use crate::mutate::Mutation;
    use crate::testing::{mutations, read_again};

    const PMI2: Spoken = Spoken::One(Dialect::Pmi2);
    const DRAFT: DraftOnly = DraftOnly { concat: true, job_connect: true, kvs_getall: true, spawn_cmd: true };

    #[test]
    fn cases_of_pmi2_are_as_sound_as_others_and_every_mutation_strikes() {
        let scope = Scope { spoken: PMI2, draft: DRAFT, nodes: 2, ..Scope::default() };
        let mut struck = BTreeSet::new();
        let mut texts = String::new();
        for number in 0..1500 {
            let case = generate(1, number, scope);
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            assert_eq!(case.scenario, generate(1, number, scope).scenario);
            read_again(&case);
            struck.extend(mutations(&case));
            texts += &case.text();
        }
        let all: BTreeSet<String> = Mutation::OF_PMI2_REQUESTS.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck, all);
        use Command as C;
        // A handshake is made by no start of a case, and no server of ours has a ring.
        let had = |command: &C| !matches!(command, C::AuthResponse | C::AuthResponseComplete | C::Ring);
        for command in C::ALL.into_iter().filter(had) {
            assert!(texts.contains(&format!("cmd={};", command.name())), "{}", command.name());
        }
        for part in [
            "wait=TRUE",
            "thrid=",
            "$jobid",
            "concat=",
            "npair=2;",
            "nodes 2",
            "needs spawn-cmd",
            "child:*",
            "<fill 1024>",
            "isworld=TRUE",
            "exitcode=7",
            "<bytes>",
            "<|>",
        ] {
            assert!(texts.contains(part), "{part}");
        }
    }

    #[test]
    fn without_mistakes_every_request_of_pmi2_is_one() {
        let scope = Scope { spoken: PMI2, mutate: false, ..Scope::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            let text = case.text();
            assert!(
                case.ingredients.is_empty() && !text.contains("<bytes>") && !text.contains("<partial>"),
                "{text}"
            );
            for line in text.lines().filter_map(|line| line.split_once("C: <body> ")).map(|(_, body)| body) {
                let read =
                    pmi_wire::pmi2::Request::parse(line.as_bytes(), pmi_wire::pmi2::Semicolons::Doubled);
                assert!(read.is_ok() || line.contains('$') || line.contains('<'), "{line}: {read:?}");
            }
        }
    }

    #[test]
    fn where_1_2_is_spoken_barriers_have_groups_and_all_who_are_named_enter_them() {
        let scope = Scope { pmi12: true, mutate: false, nodes: 2, ..Scope::default() };
        let (mut texts, mut of_12) = (String::new(), 0);
        for number in 0..300 {
            let case = generate(1, number, scope);
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            read_again(&case);
            // Where a write ends says nothing here.
            let text = case.text().replace("<|>", "");
            let named: Vec<(u32, &str)> = text
                .lines()
                .filter_map(|line| line.split_once("  C: cmd=barrier_in group="))
                .map(|(rank, group)| (rank.trim().parse().unwrap(), group))
                .collect();
            assert_eq!(named.is_empty(), !case.needs().contains(&Need::Pmi12), "{text}");
            of_12 += u32::from(!named.is_empty());
            for (_, group) in &named {
                let list = group.split(':').next().unwrap();
                if list.starts_with(|c: char| c.is_ascii_digit()) {
                    // Each of the list once, each time that the barrier is entered.
                    let times = |rank: u32| named.iter().filter(|entry| **entry == (rank, *group)).count();
                    let times: Vec<usize> =
                        list.split(',').map(|rank| times(rank.parse().unwrap())).collect();
                    assert!(times[0] > 0 && times.iter().all(|n| *n == times[0]), "{group}: {text}");
                }
            }
            texts += &text;
        }
        assert!((150..250).contains(&of_12), "{of_12}");
        for part in ["group=NODE:", "group=WORLD:", ":2147483647", "group=0,1", "pmi_subversion=2"] {
            assert!(texts.contains(part), "{part}");
        }
        // Who knows nothing of 1.2 is asked for nothing of it.
        let without = |number| generate(1, number, Scope { pmi12: false, ..scope }).text();
        assert!((0..100).all(|number| !without(number).contains("barrier_in group=")));
    }

    #[test]
    fn where_any_protocol_may_be_spoken_both_are() {
        let scope = Scope { spoken: Spoken::Any, ..Scope::default() };
        let of_pmi2 = |number: &u64| generate(1, *number, scope).scenario.dialect == Dialect::Pmi2;
        let count = (0..400).filter(of_pmi2).count();
        assert!((100..300).contains(&count), "{count}");
    }

    fn generate(seed: u64, number: u64, scope: Scope) -> Case {
        numbered(&scope, seed, number)
    }

    #[test]
    fn a_case_depends_on_seed_and_number_alone() {
        let scope = Scope::default();
        for number in 0..200 {
            assert_eq!(generate(7, number, scope).scenario, generate(7, number, scope).scenario);
        }
        let differs = |n: &u64| generate(7, *n, scope).scenario != generate(8, *n, scope).scenario;
        let different = (0..200).filter(differs).count();
        assert!(different > 190, "{different}");
    }

    #[test]
    fn every_case_is_sound_and_read_again_as_it_was_written() {
        let upstream = Scope { upstream: true, ..Scope::default() };
        let mut with = 0;
        for number in 0..600 {
            for scope in [Scope::default(), upstream] {
                let case = generate(1, number, scope);
                assert!(case.is_sound(), "{number}: {}", case.text());
                read_again(&case);
                with += u32::from(case.needs_upstream());
                assert!(scope.upstream || !case.needs_upstream(), "{number}: {}", case.text());
            }
        }
        assert!((200..450).contains(&with), "{with}");
    }

    #[test]
    fn whatever_bytes_decide_is_a_sound_case() {
        assert!(decided(&Scope::default(), b"").ingredients.is_empty());
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut struck, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..2500 {
            let bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
            let case = decided(&Scope::default(), &bytes);
            assert!(case.is_sound(), "{bytes:?}: {}", case.text());
            struck.extend(mutations(&case));
            texts.insert(case.text());
        }
        assert_eq!(struck, Mutation::OF_REQUESTS.iter().map(|m| m.name().to_owned()).collect());
        assert!(texts.len() > 1800, "{}", texts.len());
    }

    #[test]
    fn mutations_stay_when_what_is_lawful_changes() {
        let junk = Mutation::OF_REQUESTS.iter().position(|m| *m == Mutation::Junk).unwrap();
        for lawful in 1..50 {
            let mut bytes = [lawful; 400];
            // One mutation, and which.
            bytes[..3].copy_from_slice(&[0, 128, junk as u8]);
            let case = decided(&Scope::default(), &bytes);
            assert_eq!(mutations(&case), ["junk".to_owned()].into(), "{lawful}: {}", case.text());
        }
    }

    #[test]
    fn every_mutation_strikes_and_less_than_half_are_left_alone() {
        let mut struck: BTreeMap<String, u32> = BTreeMap::new();
        let mut plain = 0;
        for number in 0..3000 {
            let case = generate(1, number, Scope::default());
            plain += u32::from(case.ingredients.is_empty());
            for mutation in mutations(&case) {
                *struck.entry(mutation).or_default() += 1;
            }
        }
        let all: BTreeSet<String> = Mutation::OF_REQUESTS.iter().map(|m| m.name().to_owned()).collect();
        assert_eq!(struck.keys().cloned().collect::<BTreeSet<_>>(), all, "{struck:?}");
        assert!((1000..1800).contains(&plain), "{plain}");
    }

    #[test]
    fn every_mutation_of_an_upstream_strikes_and_every_kind_of_request_is_answered() {
        let scope = Scope { upstream: true, ..Scope::default() };
        let (mut struck, mut kinds) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..4000 {
            for ingredient in generate(1, number, scope).ingredients {
                if let Some((mutation, kind)) =
                    ingredient.strip_prefix("reply-").and_then(|i| i.split_once(':'))
                {
                    struck.insert(mutation.to_owned());
                    kinds.insert(kind.to_owned());
                }
            }
        }
        assert_eq!(struck, Mutation::OF_REPLIES.iter().map(|m| m.name().to_owned()).collect());
        let expected = ["barrier_in", "get", "lookup_name", "publish_name", "spawn", "unpublish_name"];
        assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_mutations_every_answer_of_an_upstream_is_proper_or_usual() {
        use crate::case::ServerStep;
        use pmi_scenario::ast::UpstreamAction;
        let scope = Scope { mutate: false, upstream: true, ..Scope::default() };
        for number in 0..400 {
            let case = generate(1, number, scope);
            assert!(case.ingredients.is_empty());
            for stmt in &case.scenario.body {
                match ServerStep::of(stmt) {
                    Some(ServerStep::Upstream(UpstreamAction::Answer { lines, partial, .. })) => {
                        let line = lines[0].literal().unwrap();
                        let reading = pmi_wire::ValueReading::ToEndOfLine;
                        let read = pmi_wire::Response::parse(line.as_bytes(), reading);
                        assert!(!partial && lines.len() == 1 && read.is_ok(), "{line:?}");
                    }
                    Some(ServerStep::Upstream(action)) => {
                        assert!(matches!(action, UpstreamAction::Usual { .. }), "{action:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_that_is_out_of_scope() {
        for spoken in [Spoken::default(), PMI2] {
            let scope =
                Scope { spoken, ranks: 2, spawn: false, names: false, mutate: false, ..Scope::default() };
            for number in 0..500 {
                let case = generate(3, number, scope);
                let text = case.text();
                let names = ["_name ", "name-"].iter().any(|part| text.contains(part));
                assert!(case.ranks() <= 2 && !text.contains("spawn") && !names, "{text}");
                let draft = ["concat", "job-connect", "kvs-getall", "kvs-putall", "nodes 2"];
                assert!(!draft.iter().any(|part| text.contains(part)), "{text}");
            }
        }
    }
}
