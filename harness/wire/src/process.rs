//! Whom a message is from or for.

use std::fmt;

/// A process: process group and rank in it. Group 0 is the one that the launcher starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Proc {
    /// Process group; 4294967295 for a proxy, whose number stands in the place of the rank.
    pub group: u32,
    /// Rank.
    pub rank: u32,
}

impl Proc {
    /// Stands in the place of a process group for the proxies of the first one, which are counted like ranks: at their
    /// connections it is the server under test that asks.
    pub const PROXIES: u32 = u32::MAX;

    /// The proxy on a node.
    pub fn proxy(node: u32) -> Self {
        Self { group: Self::PROXIES, rank: node }
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            Self::PROXIES => write!(f, "proxy:{}", self.rank),
            0 => write!(f, "{}", self.rank),
            1 => write!(f, "child:{}", self.rank),
            n => write!(f, "child{n}:{}", self.rank),
        }
    }
}
