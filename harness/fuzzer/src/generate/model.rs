//! What is known of a session against a server while it is made, and what is drawn of keys, values and names for it.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Piece, Template, UnderTest};

use super::scope::Scope;
use super::swarm::Swarm;
use crate::case::Case;
use crate::client_steps::MAPPING;
use crate::decisions::{percent, pick};
use crate::fields::text;
use crate::op::Op;
use crate::pieces::{Limit, letters, letters_to, literal, push, template};
use crate::plan::{Planned, settle};
use crate::statement::join;
use crate::texts::{self, Use};

/// A session in the making.
pub(super) struct Model<'a, 'b> {
    pub(super) dialect: Dialect,
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
    /// Requests that are under way at once, in a dialect that has `thrid`.
    pub(super) threads: Threads,
    /// Requests of this kind are the upstream's, whose steps are made elsewhere.
    pub(super) held: Option<Op>,
    /// Length of the plan when every rank had begun.
    pub(super) started: usize,
    /// How many of the visible keys were read back.
    pub(super) last_read: usize,
}

/// A key, and who has put it.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) name: Template,
    pub(super) by: u32,
}

/// A text, and more behind it.
pub(super) fn template_of(begin: &str, more: Piece) -> Template {
    let mut template = text(begin);
    push(&mut template, more);
    template
}

/// What one rank does between two barriers.
pub(super) type Work = Vec<Vec<Planned>>;

impl<'a, 'b> Model<'a, 'b> {
    /// A session of which nothing is made yet.
    pub(super) fn new(
        scope: Scope,
        dialect: Dialect,
        ranks: u32,
        nodes: u32,
        swarm: Swarm,
        u: &'a mut Unstructured<'b>,
    ) -> Self {
        Self {
            dialect,
            ranks,
            nodes,
            scope,
            swarm,
            u,
            plan: Vec::new(),
            keys: vec![0; ranks as usize],
            visible: Vec::new(),
            fresh: Vec::new(),
            values: Vec::new(),
            services: Vec::new(),
            groups: 0,
            speaks12: false,
            threads: Threads::of(ranks),
            held: None,
            started: 0,
            last_read: 0,
        }
    }

    /// A session on one node of which no more is made than that all have joined, and in which little is drawn.
    pub(super) fn joined(scope: Scope, dialect: Dialect, ranks: u32, u: &'a mut Unstructured<'b>) -> Self {
        let mut model = Self::new(scope, dialect, ranks, 1, Swarm::default(), u);
        model.plan.push(Planned::Stmt(join(dialect)));
        model
    }

    /// What was made of a session on one node, all of it lawful.
    pub(super) fn into_case(self) -> Case {
        let Self { dialect, ranks, plan, .. } = self;
        Case::speaking(dialect, UnderTest::Server, ranks, settle(plan, dialect, true))
    }
}

impl Model<'_, '_> {
    pub(super) fn any_rank(&mut self) -> Result<u32> {
        self.u.int_in_range(0..=self.ranks - 1)
    }

    /// Returns whether requests of this operation are the upstream's.
    pub(super) fn holds(&self, operation: &str) -> bool {
        self.held.is_some_and(|held| held.is(&[operation]))
    }

    /// Returns letters for the longest text that is allowed, or for one shorter by `less`. The length is relative to the limit that the
    /// server announces, if the dialect has limits.
    pub(super) fn longest(&self, used: Use, limit: Limit, less: i64) -> Piece {
        match self.has("maxes") {
            true => letters_to(limit, -1 - less),
            false => letters(texts::longest(self.dialect, used) - less),
        }
    }

    /// A key that this process has not put.
    pub(super) fn plain_key(&mut self, rank: u32) -> String {
        let number = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        format!("k{rank}-{number}")
    }

    /// A key for a put: a new one, or seldom one that this process has put before.
    pub(super) fn key(&mut self, rank: u32) -> Result<Template> {
        let plain = self.plain_key(rank);
        let swarm = self.swarm;
        let own = self.visible.iter().chain(&self.fresh).filter(|key| key.by == rank);
        let own: Vec<Template> = own.map(|key| key.name.clone()).collect();
        if swarm.again && !own.is_empty() && self.u.ratio(1, 6)? {
            return Ok(self.u.choose(&own)?.clone());
        }
        // Where it begins as others do, whoever looks at its beginning takes it for them.
        let behind = self.u.arbitrary()?;
        let with = |more: Piece| match behind {
            true => template(vec![more, literal(plain.as_str())]),
            false => template_of(&plain, more),
        };
        let long = |count: i64| with(letters((count - plain.len() as i64).max(0)));
        let name = match percent(self.u)? {
            0..8 => {
                let less = pick(self.u, &[0, 1])?;
                with(self.longest(Use::Key, Limit::Key, less + plain.len() as i64))
            }
            8..50 if swarm.long_keys => long(texts::length(self.dialect, Use::Key, self.u)?),
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
            90.. => text(MAPPING),
            _ if all.is_empty() => text(format!("k{}-0", self.any_rank()?)),
            _ => self.u.choose(&all)?.clone(),
        })
    }

    /// A value of the kinds that this session draws, or an ordinary one.
    pub(super) fn value(&mut self) -> Result<Template> {
        let swarm = self.swarm;
        let value = match percent(self.u)? {
            0..15 if swarm.same_values && !self.values.is_empty() => self.u.choose(&self.values)?.clone(),
            15..60 if swarm.lengths => {
                let length = texts::length(self.dialect, Use::Value, self.u)?;
                self.marked(length)
            }
            60..90 if swarm.contents => texts::content(self.dialect, Use::Value, self.u)?,
            _ => self.usual_value()?,
        };
        self.values.push(value.clone());
        Ok(value)
    }

    /// A value of a length, told apart from others by its beginning if it has room for that.
    pub(super) fn marked(&self, length: i64) -> Template {
        let mark = format!("{}.", self.values.len() + self.fresh.len());
        match length - mark.len() as i64 {
            rest if rest < 0 => text(&b"0123456789"[..length as usize]),
            rest => template_of(&mark, letters(rest)),
        }
    }

    /// The name of a service to publish: a new one, or one that was published before.
    pub(super) fn new_service(&mut self) -> Result<Template> {
        let plain = format!("service-{}", self.services.len());
        let name = match percent(self.u)? {
            0..40 if !self.services.is_empty() => self.u.choose(&self.services)?.clone(),
            40..60 if self.swarm.lengths => {
                let length = texts::length(self.dialect, Use::Service, self.u)?;
                template_of(&plain, letters((length - plain.len() as i64).max(0)))
            }
            60..70 if self.swarm.contents && self.swarm.odd_keys => {
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
                let length = texts::length(self.dialect, Use::Port, self.u)?;
                template_of(&mark, letters((length - mark.len() as i64).max(0)))
            }
            40..60 if self.swarm.contents => texts::content(self.dialect, Use::Port, self.u)?,
            _ => text(mark),
        })
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

/// Requests that are under way at once, and attributes.
pub(super) struct Threads {
    /// Ranks that have several requests under way at once.
    pub(super) several: Vec<bool>,
    /// Number of the last request that has a `thrid`.
    pub(super) last: u32,
    /// The id of the job has been asked for.
    pub(super) jobid: bool,
    /// Attributes that processes have put.
    pub(super) attributes: Vec<String>,
}

impl Threads {
    /// Of so many ranks.
    pub(super) fn of(ranks: u32) -> Self {
        Self { several: vec![false; ranks as usize], last: 0, jobid: false, attributes: Vec::new() }
    }
}
