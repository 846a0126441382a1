//! The features that the sessions of a campaign against a server may use.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

use crate::session::decisions::pick;

/// The dialect of a campaign's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialectChoice {
    /// Only this dialect.
    One(Dialect),
    /// Any dialect. Each session chooses a single dialect.
    Any,
}

impl Default for DialectChoice {
    fn default() -> Self {
        Self::One(Dialect::default())
    }
}

impl DialectChoice {
    /// Returns whether a session may use this dialect.
    pub fn has(self, dialect: Dialect) -> bool {
        self == Self::Any || self == Self::One(dialect)
    }

    /// Returns the dialects that a session may use.
    pub fn dialects(self) -> impl Iterator<Item = Dialect> {
        Dialect::ALL.into_iter().filter(move |dialect| self.has(*dialect))
    }

    pub(crate) fn draw(self, u: &mut Unstructured<'_>) -> Result<Dialect> {
        match self {
            Self::One(dialect) => Ok(dialect),
            Self::Any => pick(u, &self.dialects().collect::<Vec<_>>()),
        }
    }
}

/// The features that sessions may use.
#[derive(Debug, Clone, Copy)]
pub struct SessionFeatures {
    /// The dialect of the sessions.
    pub dialects: DialectChoice,
    /// Maximum number of ranks.
    pub ranks: u32,
    /// Maximum number of ranks in a free session, whose ranks run without a fixed order. A value below 2 excludes free sessions.
    pub free_ranks: u32,
    /// Maximum number of nodes, one or two.
    pub nodes: u32,
    /// True if sessions may spawn processes.
    pub spawn: bool,
    /// True if sessions may publish, unpublish and look up names.
    pub names: bool,
    /// True if some PMI-1 sessions may use the barriers of PMI-1.2 for parts of a process group.
    pub pmi12: bool,
    /// True if cases are mutated.
    pub mutate: bool,
    /// True if the server is a proxy, and the harness is its upstream.
    pub upstream: bool,
}

impl Default for SessionFeatures {
    fn default() -> Self {
        Self {
            dialects: DialectChoice::default(),
            ranks: 4,
            free_ranks: 0,
            nodes: 1,
            spawn: true,
            names: true,
            pmi12: false,
            mutate: true,
            upstream: false,
        }
    }
}
