//! The state of a session that is being generated for a server, and the keys, values and names that are drawn for the session.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, ImplementationKind, Piece, Template};

use super::scope::SessionFeatures;
use super::swarm::Swarm;
use crate::mutate::client_steps::MAPPING;
use crate::mutate::texts::{self, TextUse};
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::fields::text;
use crate::session::op::Op;
use crate::session::pieces::{Limit, letters, letters_up_to, literal, push, template};
use crate::session::plan::{PlannedStep, to_statements};
use crate::session::statement::join;

/// The state of a session that is being generated.
pub(crate) struct SessionModel<'a, 'b> {
    pub(crate) dialect: Dialect,
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    pub(crate) scope: SessionFeatures,
    pub(crate) swarm: Swarm,
    pub(crate) u: &'a mut Unstructured<'b>,
    pub(crate) plan: Vec<PlannedStep>,
    /// Number of keys that each rank has put.
    keys: Vec<u32>,
    /// Keys that all ranks must see.
    pub(crate) visible_keys: Vec<PutKey>,
    /// Keys put since the last barrier.
    pub(crate) new_keys: Vec<PutKey>,
    values: Vec<Template>,
    /// Names of services that were published. Some of them may have been unpublished since.
    services: Vec<Template>,
    pub(crate) groups: u32,
    /// True if every process offers PMI-1.2.
    pub(crate) offers_pmi12: bool,
    /// The state of concurrent requests and attributes, which exist only in a dialect with `thrid`.
    pub(crate) threads: ThreadState,
    /// The operation that the upstream answers. The steps for this operation are generated separately.
    pub(crate) upstream_operation: Option<Op>,
    /// Length of the plan at the point where every rank has started.
    pub(crate) started: usize,
    /// Number of visible keys that were read back.
    pub(crate) keys_read: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct PutKey {
    pub(crate) name: Template,
    pub(crate) by: u32,
}

/// Returns a template of literal text followed by another piece.
pub(crate) fn template_of(begin: &str, more: Piece) -> Template {
    let mut template = text(begin);
    push(&mut template, more);
    template
}

/// The requests that one rank makes between two barriers.
pub(crate) type RankRequests = Vec<Vec<PlannedStep>>;

impl<'a, 'b> SessionModel<'a, 'b> {
    pub(crate) fn new(
        scope: SessionFeatures,
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
            visible_keys: Vec::new(),
            new_keys: Vec::new(),
            values: Vec::new(),
            services: Vec::new(),
            groups: 0,
            offers_pmi12: false,
            threads: ThreadState::of(ranks),
            upstream_operation: None,
            started: 0,
            keys_read: 0,
        }
    }

    /// Creates a session on one node in which all processes have started. The optional features of [`Swarm`] are off.
    pub(crate) fn joined(
        scope: SessionFeatures,
        dialect: Dialect,
        ranks: u32,
        u: &'a mut Unstructured<'b>,
    ) -> Self {
        let mut model = Self::new(scope, dialect, ranks, 1, Swarm::default(), u);
        model.plan.push(PlannedStep::Stmt(join(dialect)));
        model
    }

    /// Converts the session to a case that runs on one node and contains only valid input.
    pub(crate) fn into_case(self) -> Case {
        let Self { dialect, ranks, plan, .. } = self;
        Case::in_dialect(dialect, ImplementationKind::Server, ranks, to_statements(plan, dialect, true))
    }
}

impl SessionModel<'_, '_> {
    pub(crate) fn any_rank(&mut self) -> Result<u32> {
        self.u.int_in_range(0..=self.ranks - 1)
    }

    pub(crate) fn upstream_answers(&self, operation: &str) -> bool {
        self.upstream_operation.is_some_and(|held| held.is(&[operation]))
    }

    /// Returns a run of letters whose length is the maximum length for this use minus `less`. If the dialect has limits, this length is
    /// relative to the limit that the server announces.
    pub(crate) fn longest(&self, used: TextUse, limit: Limit, less: i64) -> Piece {
        match self.has("maxes") {
            true => letters_up_to(limit, -1 - less),
            false => letters(texts::longest(self.dialect, used) - less),
        }
    }

    /// Returns a new key, which no earlier put of this rank has used.
    pub(crate) fn plain_key(&mut self, rank: u32) -> String {
        let number = self.keys[rank as usize];
        self.keys[rank as usize] += 1;
        format!("k{rank}-{number}")
    }

    /// Returns a key for a put: usually a new key, but sometimes a key that this process has put before.
    pub(crate) fn key(&mut self, rank: u32) -> Result<Template> {
        let plain = self.plain_key(rank);
        let swarm = self.swarm;
        let own = self.visible_keys.iter().chain(&self.new_keys).filter(|key| key.by == rank);
        let own: Vec<Template> = own.map(|key| key.name.clone()).collect();
        if swarm.repeats_puts && !own.is_empty() && self.u.ratio(1, 6)? {
            return Ok(self.u.choose(&own)?.clone());
        }
        // Keys with a common beginning or end reveal a server that compares only part of a key.
        let after = self.u.arbitrary()?;
        let with = |more: Piece| match after {
            true => template(vec![more, literal(plain.as_str())]),
            false => template_of(&plain, more),
        };
        let long = |count: i64| with(letters((count - plain.len() as i64).max(0)));
        let name = match percent(self.u)? {
            0..8 => {
                let less = pick(self.u, &[0, 1])?;
                with(self.longest(TextUse::Key, Limit::Key, less + plain.len() as i64))
            }
            8..50 if swarm.long_keys => long(texts::length(self.dialect, TextUse::Key, self.u)?),
            50..75 if swarm.similar_keys && !own.is_empty() => match self.u.choose(&own)?.literal() {
                Some(own) => match self.similar_key(&own)? {
                    like if like.is_empty() => text(plain.as_str()),
                    like => text(like),
                },
                None => text(plain.as_str()),
            },
            75..90 if swarm.special_keys => {
                let mut name = text(plain.as_str());
                texts::content(self.dialect, TextUse::Key, self.u)?
                    .pieces
                    .into_iter()
                    .for_each(|p| push(&mut name, p));
                name
            }
            _ => text(plain.as_str()),
        };
        let is_new = self.visible_keys.iter().chain(&self.new_keys).all(|key| key.name.pieces != name.pieces);
        Ok(if is_new { name } else { text(plain.as_str()) })
    }

    /// Returns a key that a careless comparison would confuse with `key`.
    fn similar_key(&mut self, key: &str) -> Result<String> {
        Ok(match self.u.int_in_range(0..=5)? {
            // PMI-2 doubles semicolons, so other changes could make a key with semicolons invalid.
            _ if key.contains(';') => format!("{key}-"),
            0 => format!("{key}-"),
            1 => key.to_uppercase(),
            2 => key.chars().rev().collect(),
            3 => key.chars().take(key.chars().count().saturating_sub(1)).collect(),
            4 => format!("{key}{}", self.u.int_in_range(0..=9)?),
            _ => format!("-{key}"),
        })
    }

    /// Returns a key for a get. Sometimes, no process has put this key.
    pub(crate) fn requested_key(&mut self, rank: u32) -> Result<Template> {
        let own = self.new_keys.iter().filter(|key| key.by == rank);
        let all: Vec<Template> = self.visible_keys.iter().chain(own).map(|key| key.name.clone()).collect();
        let misses = if self.swarm.misses { 60 } else { 10 };
        Ok(match percent(self.u)? {
            chance if chance < misses => match self.u.choose(&all).ok().and_then(Template::literal) {
                Some(there) if self.u.ratio(1, 2)? => match self.similar_key(&there)? {
                    // If the key has only one letter, its prefix is empty, so a different key is requested.
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

    /// Returns a value of a kind that this session uses, or an ordinary value.
    pub(crate) fn value(&mut self) -> Result<Template> {
        let swarm = self.swarm;
        let value = match percent(self.u)? {
            0..15 if swarm.same_values && !self.values.is_empty() => self.u.choose(&self.values)?.clone(),
            15..60 if swarm.lengths => {
                let length = texts::length(self.dialect, TextUse::Value, self.u)?;
                self.marked_value(length)
            }
            60..90 if swarm.contents => texts::content(self.dialect, TextUse::Value, self.u)?,
            _ => self.usual_value()?,
        };
        self.values.push(value.clone());
        Ok(value)
    }

    /// Returns a value of this length. A value that is long enough begins with a unique mark.
    pub(crate) fn marked_value(&self, length: i64) -> Template {
        let mark = format!("{}.", self.values.len() + self.new_keys.len());
        match length - mark.len() as i64 {
            rest if rest < 0 => text(&b"0123456789"[..length as usize]),
            rest => template_of(&mark, letters(rest)),
        }
    }

    /// Returns the name of a service to publish: a new name, or one that was published before.
    pub(crate) fn new_service(&mut self) -> Result<Template> {
        let plain = format!("service-{}", self.services.len());
        let name = match percent(self.u)? {
            0..40 if !self.services.is_empty() => self.u.choose(&self.services)?.clone(),
            40..60 if self.swarm.lengths => {
                let length = texts::length(self.dialect, TextUse::Service, self.u)?;
                template_of(&plain, letters((length - plain.len() as i64).max(0)))
            }
            60..70 if self.swarm.contents && self.swarm.special_keys => {
                let mut name = text(plain);
                let odd = texts::content(self.dialect, TextUse::Service, self.u)?;
                odd.pieces.into_iter().for_each(|piece| push(&mut name, piece));
                name
            }
            _ => text(plain),
        };
        self.services.push(name.clone());
        Ok(name)
    }

    /// Records the name of a service that a spawned process publishes.
    pub(crate) fn add_service(&mut self, name: Template) {
        self.services.push(name);
    }

    /// Returns the name of a service that was published, or a name that was never published.
    pub(crate) fn known_service(&mut self) -> Result<Template> {
        match self.services.is_empty() || self.u.ratio(1, 8)? {
            true => Ok(text("service-of-nobody")),
            false => Ok(self.u.choose(&self.services)?.clone()),
        }
    }

    /// Returns a port to publish with the name of a service.
    pub(crate) fn port(&mut self) -> Result<Template> {
        let mark = format!("tag#{}$port#4242$", self.services.len());
        Ok(match percent(self.u)? {
            0..40 if self.swarm.lengths => {
                let length = texts::length(self.dialect, TextUse::Port, self.u)?;
                template_of(&mark, letters((length - mark.len() as i64).max(0)))
            }
            40..60 if self.swarm.contents => texts::content(self.dialect, TextUse::Port, self.u)?,
            _ => text(mark),
        })
    }

    /// Merges the ranks' requests in random order. Several ranks often have a request in progress at the same time.
    pub(crate) fn interleave(&mut self, mut all: Vec<RankRequests>) -> Result<()> {
        all.iter_mut().for_each(|work| work.reverse());
        let mut open: Vec<Vec<PlannedStep>> = vec![Vec::new(); all.len()];
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

/// The state of the concurrent requests and the attributes in a session under construction.
pub(crate) struct ThreadState {
    /// For each rank, true if the rank may have several requests in progress at the same time.
    pub(crate) several: Vec<bool>,
    /// Number of the last request that has a `thrid`.
    pub(crate) last: u32,
    /// True if the job id was requested.
    pub(crate) jobid: bool,
    /// Attributes that processes have put.
    pub(crate) attributes: Vec<String>,
}

impl ThreadState {
    pub(crate) fn of(ranks: u32) -> Self {
        Self { several: vec![false; ranks as usize], last: 0, jobid: false, attributes: Vec::new() }
    }
}
