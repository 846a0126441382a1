//! The process that sends or receives a message.

use std::fmt;

/// The method by which the processes of the first group get their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "serde", serde(rename = "WayIn"))]
pub enum ConnectionMethod {
    /// `PMI_FD`: the processes inherit their connections.
    #[default]
    Fd,
    /// `PMI_PORT`: the processes open their connections. See [`port`](crate::port).
    Port,
    /// A singleton requests a process manager, which then connects to the singleton. See [`singleton`](crate::singleton). Processes that
    /// the singleton spawns have `PMI_FD`.
    Singleton,
}

/// A process, identified by its process group and its rank in that group. The launcher starts group 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Proc {
    /// Process group; 4294967295 for a proxy and 4294967294 for a stray connection. For these, the rank is the number of the proxy or
    /// connection.
    pub group: u32,
    /// Rank in the process group.
    pub rank: u32,
}

impl Proc {
    /// The group number of the proxies of the first group, which are numbered like ranks. On their connections, the server under test sends
    /// the requests, and the harness answers them.
    pub const PROXY_GROUP: u32 = u32::MAX;

    /// The group number of stray connections: connections to the port in `PMI_PORT` that were not made by a process of the job. They are
    /// numbered from 0.
    pub const STRAY_GROUP: u32 = u32::MAX - 1;

    /// Returns the proxy on a node.
    pub fn proxy(node: u32) -> Self {
        Self { group: Self::PROXY_GROUP, rank: node }
    }

    /// Returns the names of processes after the appropriate noun, such as `rank 0` or `ranks 0, 1`.
    ///
    /// ```
    /// use pmi_wire::Proc;
    ///
    /// let [first, second] = [0, 1].map(|rank| Proc { group: 0, rank });
    /// assert_eq!(Proc::list([&first]), "rank 0");
    /// assert_eq!(Proc::list([&first, &second]), "ranks 0, 1");
    /// ```
    pub fn list<'a>(procs: impl IntoIterator<Item = &'a Self>) -> String {
        let names: Vec<String> = procs.into_iter().map(Self::to_string).collect();
        let noun = if names.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}", names.join(", "))
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
