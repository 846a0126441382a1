//! What a tap and the recorder say to each other, over a channel of their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::{Bytes, Exit};

/// What a tap tells the recorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// The program is about to start.
    Started(Start),
    /// The program could not be started.
    NotStarted(String),
    /// It has a connection, of which the two ends come along that are to be carried between: that to the program, and that to the
    /// process manager.
    Connected,
    /// It has started, and has this process id.
    Runs(i32),
    /// The program has ended. The tap ends when it hears that everything was carried.
    Ended(Exit),
}

/// What a process is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Start {
    /// Of the tap, which the process manager takes for that of the process.
    pub(super) pid: i32,
    /// The folder of the tap's path, which tells the process group.
    pub(super) folder: String,
    /// The `PMI_*` variables.
    pub(super) env: BTreeMap<String, String>,
    /// Arguments without the program.
    pub(super) args: Vec<Bytes>,
    /// What is wrong with PMI_FD.
    pub(super) bad_fd: Option<String>,
}

/// What the recorder tells a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// The connection has ended, and so the tap gives up what it holds of it.
    Close,
    /// All that the program has written was carried, and nobody else here holds the connection.
    Done,
}
