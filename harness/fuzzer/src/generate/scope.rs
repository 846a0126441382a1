//! What the sessions of a campaign against a server may be made of.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Need};

use crate::decisions::pick;

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

    /// The protocols that sessions are in.
    pub fn dialects(self) -> impl Iterator<Item = Dialect> {
        Dialect::NAMES.into_iter().map(|(_, dialect)| dialect).filter(move |dialect| self.has(*dialect))
    }

    pub(super) fn draw(self, u: &mut Unstructured<'_>) -> Result<Dialect> {
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
