//! The process that sends or receives a message.

use std::fmt;

/// The way in which the processes of the first group get their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "serde", serde(rename = "WayIn"))]
pub enum ConnectionMethod {
    /// They inherit their connections: `PMI_FD`.
    #[default]
    Fd,
    /// They open their connections: `PMI_PORT`, see [`port`](crate::port).
    Port,
    /// A single process was started without a process manager and requests one, which then connects to the process: see
    /// [`singleton`](crate::singleton). The processes that it spawns have `PMI_FD`.
    Singleton,
}

/// A process, identified by its process group and its rank in that group. Group 0 is the one that the launcher starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Proc {
    /// Process group; 4294967295 for a proxy and 4294967294 for a stray connection. The rank is then the number of the proxy or connection.
    pub group: u32,
    /// Rank.
    pub rank: u32,
}

impl Proc {
    /// The group number of the proxies of the first group, which are numbered like ranks. On their connections, the server under test makes
    /// the requests.
    pub const PROXY_GROUP: u32 = u32::MAX;

    /// The group number of stray connections: connections to the port in `PMI_PORT` that were not made by any process of the job. They are
    /// numbered from 0.
    pub const STRAY_GROUP: u32 = u32::MAX - 1;

    /// Returns the proxy on a node.
    pub fn proxy(node: u32) -> Self {
        Self { group: Self::PROXY_GROUP, rank: node }
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            Self::PROXY_GROUP => write!(f, "proxy:{}", self.rank),
            Self::STRAY_GROUP => write!(f, "stray:{}", self.rank),
            0 => write!(f, "{}", self.rank),
            1 => write!(f, "child:{}", self.rank),
            n => write!(f, "child{n}:{}", self.rank),
        }
    }
}
