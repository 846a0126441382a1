//! The messages that a tap and the recorder exchange over a separate channel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::{Bytes, Exit};

/// A notice from a tap to the recorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// The program is about to start.
    Started(Start),
    /// The program could not be started.
    NotStarted(String),
    /// The program has a connection. The descriptors of both ends are sent with the notice: first the end to the program, then the end to
    /// the process manager.
    Connected,
    /// The program has started, with this process id.
    #[serde(rename = "Runs")]
    Running(i32),
    /// The program has ended. The tap exits after all bytes have been forwarded.
    Ended(Exit),
}

/// The properties of a process at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The process id of the tap, which is the process id that the process manager sees.
    pub(crate) pid: i32,
    /// The folder of the tap's path, which identifies the process group.
    pub(crate) folder: String,
    /// The `PMI_*` variables of the process's environment.
    pub(crate) env: BTreeMap<String, String>,
    /// The arguments of the process, without the program.
    pub(crate) args: Vec<Bytes>,
    /// The problem with the descriptor in PMI_FD, if any.
    pub(crate) bad_fd: Option<String>,
}

/// A message from the recorder to a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecorderMessage {
    /// The connection has ended, so the tap must close its copies.
    Close,
    /// Everything that the program had written has been forwarded, so the tap may exit.
    Done,
}
