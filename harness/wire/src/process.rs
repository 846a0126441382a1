//! Whom a message is from or for.

use std::fmt;

/// How the processes of a first group come to their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WayIn {
    /// They inherit them: `PMI_FD`.
    #[default]
    Fd,
    /// They make them themselves: `PMI_PORT`, see [`port`](crate::port).
    Port,
    /// There is one process, which nobody has started for the program, and which has the process manager connect to it: see
    /// [`singleton`](crate::singleton). What it spawns has `PMI_FD`.
    Singleton,
}

/// A process: process group and rank in it. Group 0 is the one that the launcher starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Proc {
    /// Process group; 4294967295 for a proxy and 4294967294 for a stray connection, whose numbers stand in the place of the rank.
    pub group: u32,
    /// Rank.
    pub rank: u32,
}

impl Proc {
    /// Stands in the place of a process group for the proxies of the first one, which are counted like ranks: at their
    /// connections it is the server under test that asks.
    pub const PROXIES: u32 = u32::MAX;

    /// Stands in the place of a process group for connections to the port in `PMI_PORT` that no process has made: they are counted
    /// from 0.
    pub const STRAYS: u32 = u32::MAX - 1;

    /// The proxy on a node.
    pub fn proxy(node: u32) -> Self {
        Self { group: Self::PROXIES, rank: node }
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            Self::PROXIES => write!(f, "proxy:{}", self.rank),
            Self::STRAYS => write!(f, "stray:{}", self.rank),
            0 => write!(f, "{}", self.rank),
            1 => write!(f, "child:{}", self.rank),
            n => write!(f, "child{n}:{}", self.rank),
        }
    }
}
