//! What the sessions of a campaign against a server may be made of.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

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

/// What may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The protocol.
    pub spoken: Spoken,
    /// Most ranks.
    pub ranks: u32,
    /// Most nodes, one or two.
    pub nodes: u32,
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
        Self {
            spoken: Spoken::default(),
            ranks: 4,
            nodes: 1,
            spawn: true,
            names: true,
            pmi12: false,
            mutate: true,
            upstream: false,
        }
    }
}
