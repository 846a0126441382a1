//! The messages between the runner and its agents: lines of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::Bytes;
use pmi_judge::library::api::{CallArgument, CallResult};

/// The first message from an agent that connects over the network. The runner answers with a [`TokenAccepted`], or closes the connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenMessage {
    /// The secret of the launch that the agent belongs to.
    pub(super) token: String,
}

/// The response to a [`TokenMessage`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenAccepted {}

/// The introduction of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hello {
    /// From a rank: its only message.
    Rank(RankHello),
    /// From a process that a launcher has started to load a library.
    Library {
        /// Its rank, if its environment contains it.
        rank: Option<u32>,
        /// Its process id.
        pid: i32,
        /// The node that its launcher has placed it on.
        node: String,
    },
    /// From a program that a process has started as its process manager. The connection to that process accompanies the message, if there
    /// is one.
    Manager {
        /// Its arguments without the program.
        args: Vec<Bytes>,
    },
    /// From the program that takes the place of a proxy's launcher.
    Upstream {
        /// Its process id.
        pid: u32,
    },
}

/// The properties of a rank. The connection that its PMI_FD names accompanies the message.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankHello {
    /// The process group that the agent's path identifies.
    pub group: u32,
    /// Its process id.
    pub pid: i32,
    /// The `PMI_*` variables and those that describe its node, as `NAME=value`.
    pub env: Vec<Bytes>,
    /// Arguments without the program.
    pub args: Vec<Bytes>,
    /// The reason why PMI_FD or PMI_PORT cannot be used, in which case no descriptor accompanies the message.
    pub bad_fd: Option<String>,
    /// The bytes that it has sent and received on a connection that it made through PMI_PORT.
    #[serde(rename = "greeted")]
    pub initack_exchange: Option<(Bytes, Bytes)>,
    /// The dialogue on a connection that was made to it, because it requested a process manager.
    pub singinit: Option<SingletonDialogue>,
    /// Set if the agent keeps its connection and relays its bytes, because it cannot pass the connection to the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "relays")]
    pub relay_location: Option<Box<Namespaces>>,
}

impl RankHello {
    /// Returns these variables by their names.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let split = |entry: &Bytes| {
            let entry = String::from_utf8_lossy(&entry.0);
            entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        self.env.iter().filter_map(split).collect()
    }
}

/// The place where a process runs. Process numbers and addresses are valid only within one such place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// The kernel, and its namespace of processes.
    pub processes: String,
    /// The kernel, and its namespace of networks.
    pub network: String,
}

/// The dialogue between a process that requested a process manager and that process manager: lines with their newlines.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SingletonDialogue {
    /// The first line, from the process manager.
    #[serde(rename = "asked")]
    pub request: Bytes,
    /// The line of the process.
    #[serde(rename = "said")]
    pub answer: Bytes,
    /// The last line, from the process manager.
    #[serde(rename = "told")]
    pub reply: Bytes,
}

/// An order from the runner to an agent. The agent of a rank makes no calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrder {
    /// Call a function.
    Call {
        /// Its name.
        function: String,
        /// The arguments, in order.
        arguments: Vec<CallArgument>,
    },
    /// Exit with this status.
    Exit(u8),
    /// Kill yourself with this signal.
    Kill(u8),
    /// Write to the connection that it relays.
    Write(Bytes),
    /// Close that connection.
    Close,
}

/// A report from an agent about the connection that it relays, in chronological order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayReport {
    /// The process manager has written these bytes.
    FromServer(Bytes),
    /// It has closed its end.
    ClosedByServer,
    /// The process at the other end was killed by a signal.
    Died {
        /// Its process id.
        pid: i32,
        /// Its name according to the kernel.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// This many orders to write or close have been carried out, and the bytes have been read, as far as the agent can determine.
    #[serde(rename = "taken")]
    OrdersDone(u64),
}

/// A report from a process that loads a library.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryReport {
    /// The library has been loaded, or the error.
    Loaded(Option<String>),
    /// A call has returned.
    Returned(CallResult),
    /// A call could not be made: the function does not exist, or the arguments do not match its parameters.
    NotCalled {
        /// `true` if the library lacks the function.
        missing: bool,
        /// The reason.
        why: String,
    },
}
