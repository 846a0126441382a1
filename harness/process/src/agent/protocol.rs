//! The messages between the runner and its agents: lines of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::Bytes;
use pmi_judge::library::api::{CallArgument, CallResult};

/// The first message from an agent that connects over the network. The runner answers with a [`TokenAccepted`], or closes the connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenMessage {
    pub(super) token: String,
}

/// The response to a [`TokenMessage`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenAccepted {}

/// The message with which an agent introduces itself to the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hello {
    /// The introduction of a rank. The rank sends no other message, unless its agent relays the connection.
    Rank(RankHello),
    /// The introduction of a process that a launcher has started to load a library.
    Library {
        /// The rank of the process, if its environment contains it.
        rank: Option<u32>,
        /// The process id.
        pid: i32,
        /// The node on which the launcher has placed the process.
        node: String,
    },
    /// The introduction of a program that a process has started as its process manager. The connection to that process, if any, accompanies
    /// the message.
    Manager {
        /// The arguments without the program.
        args: Vec<Bytes>,
    },
    /// The introduction of the program that takes the place of a proxy's launcher.
    Upstream {
        /// The process id.
        pid: u32,
    },
}

/// The properties of a rank. The rank's connection accompanies the message, unless the agent relays it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankHello {
    /// The process group that the agent's path identifies.
    pub group: u32,
    /// The process id.
    pub pid: i32,
    /// The `PMI_*` variables and the variables that describe the node, as `NAME=value`.
    pub env: Vec<Bytes>,
    /// The arguments of the rank, without the program.
    pub args: Vec<Bytes>,
    /// The reason why the rank has no usable connection; `None` if it has one. If a reason is given, no descriptor accompanies the message.
    pub bad_fd: Option<String>,
    /// The initack of a rank that connected through PMI_PORT, and the response to the initack.
    #[serde(rename = "greeted")]
    pub initack_exchange: Option<(Bytes, Bytes)>,
    /// The dialogue with the process manager that the rank has requested.
    pub singinit: Option<SingletonDialogue>,
    /// The namespaces of the agent, if it relays the connection because it cannot pass the connection to the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "relays")]
    pub relay_location: Option<Box<Namespaces>>,
}

impl RankHello {
    /// Returns the variables of [`RankHello::env`] by name.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let split = |entry: &Bytes| {
            let entry = String::from_utf8_lossy(&entry.0);
            entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        self.env.iter().filter_map(split).collect()
    }
}

/// The PID and network namespaces of a process. Process ids and addresses are valid only within the same namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// An identifier of the kernel and the PID namespace.
    pub processes: String,
    /// An identifier of the kernel and the network namespace.
    pub network: String,
}

/// The dialogue between a process and the process manager that it has requested. Each line includes its newline.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SingletonDialogue {
    /// The first line of the dialogue, which the process manager sends.
    #[serde(rename = "asked")]
    pub request: Bytes,
    /// The second line of the dialogue, which the process sends.
    #[serde(rename = "said")]
    pub answer: Bytes,
    /// The third line of the dialogue, which the process manager sends.
    #[serde(rename = "told")]
    pub reply: Bytes,
}

/// An order from the runner to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrder {
    /// Call a function of the library, for an agent that loads a library.
    Call {
        /// The name of the function.
        function: String,
        /// The arguments, in order.
        arguments: Vec<CallArgument>,
    },
    /// Exit with this status.
    Exit(u8),
    /// Kill yourself with this signal.
    Kill(u8),
    /// Write these bytes to the connection, for an agent that relays.
    Write(Bytes),
    /// Close the connection, for an agent that relays.
    Close,
}

/// A report from an agent about the connection that it relays. Reports are sent in chronological order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayReport {
    /// The process manager has written these bytes.
    FromServer(Bytes),
    /// The process manager has closed its end.
    ClosedByServer,
    /// The process at the other end was killed by a signal.
    Died {
        /// The id of that process.
        pid: i32,
        /// The name of that process according to the kernel.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// The number of write and close orders that have been carried out. The agent sends this report when it finds no written bytes that the
    /// process manager has not read.
    #[serde(rename = "taken")]
    OrdersDone(u64),
}

/// A report from a process that loads a library.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryReport {
    /// `None` if the library has been loaded; otherwise, the error.
    Loaded(Option<String>),
    /// A call has returned.
    Returned(CallResult),
    /// A call could not be made: the function does not exist, or the arguments do not match its parameters.
    NotCalled {
        /// True if the library lacks the function.
        missing: bool,
        /// The reason why the call could not be made.
        why: String,
    },
}
