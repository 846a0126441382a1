//! What the runner and its agents say to each other: lines of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::Bytes;
use pmi_judge::library::api::{Argument, Returned};

/// What an agent shows that comes over the network, before its first message. It is welcomed by a [`Welcome`], or sent away.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pass {
    /// What only the launch has been told to which it belongs.
    pub(super) token: String,
}

/// The answer to a [`Pass`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {}

/// The first message of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hello {
    /// Of a rank: its only message.
    Rank(RankHello),
    /// Of a process that a launcher has started to load a library.
    Library {
        /// Its rank, as far as its environment tells.
        rank: Option<u32>,
        /// Its process id.
        pid: i32,
        /// The node that its launcher has placed it on.
        node: String,
    },
    /// Of what a process has started for its process manager. The connection to that process comes with it, if there is one.
    Manager {
        /// Its arguments without the program.
        args: Vec<Bytes>,
    },
    /// Of what stands where the launcher of a proxy would.
    Upstream {
        /// Its process id.
        pid: u32,
    },
}

/// What a rank tells of itself. The connection that its PMI_FD names comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankHello {
    /// Process group that the agent's path stands for.
    pub(crate) group: u32,
    /// Its process id.
    pub(crate) pid: i32,
    /// The `PMI_*` variables, `NAME=value`.
    pub(crate) env: Vec<Bytes>,
    /// Arguments without the program.
    pub(crate) args: Vec<Bytes>,
    /// What is wrong with PMI_FD or PMI_PORT, in which case no descriptor comes along.
    pub(crate) bad_fd: Option<String>,
    /// What it has said and been told on a connection that it has made by PMI_PORT.
    pub(crate) greeted: Option<(Bytes, Bytes)>,
    /// What was said on a connection that was made to it, since it has asked for a process manager.
    pub(crate) singinit: Option<Singinit>,
    /// It keeps its connection and carries what goes over it, since it cannot hand it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relays: Option<Box<Namespaces>>,
}

impl RankHello {
    /// The `PMI_*` variables by their names.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let split = |entry: &Bytes| {
            let entry = String::from_utf8_lossy(&entry.0);
            entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        self.env.iter().filter_map(split).collect()
    }
}

/// Where a process runs: what is said by numbers of processes and addresses has a meaning in the same place only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespaces {
    /// The kernel, and its namespace of processes.
    pub(crate) processes: String,
    /// The kernel, and its namespace of networks.
    pub(crate) network: String,
}

/// What was said between a process that asked for a process manager and the one that came, lines with their newlines.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Singinit {
    /// First, by the process manager.
    pub(crate) asked: Bytes,
    /// By the process.
    pub(crate) said: Bytes,
    /// By the process manager.
    pub(crate) told: Bytes,
}

/// What the runner tells an agent. One of a rank makes no calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Call a function.
    Call {
        /// Its name.
        function: String,
        /// In order.
        arguments: Vec<Argument>,
    },
    /// Exit with this status.
    Exit(u8),
    /// Die of this signal.
    Kill(u8),
    /// Write to the connection that it relays.
    Write(Bytes),
    /// Close that connection.
    Close,
}

/// What an agent tells of the connection that it relays, in the order in which it came about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relayed {
    /// The process manager has written this.
    FromServer(Bytes),
    /// It has closed its end.
    ClosedByServer,
    /// The process that has the other end died of a signal.
    Died {
        /// Its number.
        pid: i32,
        /// As the kernel calls it.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// So many orders to write or close are carried out, and what was written is read, as far as that can be known.
    Taken(u64),
}

/// What a process that loads a library tells the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The library has been loaded, or why it has not.
    Loaded(Option<String>),
    /// A call has returned.
    Returned(Returned),
    /// A call that could not be made: there is no such function, or the arguments do not suit it.
    NotCalled {
        /// Whether the library does not have it.
        missing: bool,
        /// In words.
        why: String,
    },
}
