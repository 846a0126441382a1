//! What the upstream and the runner say to each other, so that a scenario can look at what proxies pass on, and answer it.
//!
//! The upstream connects to the runner's socket, introduces itself ([`Hello`]) and waits for the first [`Command`], which is
//! [`Command::Hold`]. From then on it reports before it acts, and does as it is told. Both sides write lines of JSON.
//! Where there is no runner, the upstream serves by itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::agent;
use crate::agent::channel::Channel;
use crate::agent::protocol::Hello;
use pmi_judge::event::{Bytes, What};

/// What the runner orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Requests of these names (`get`, `spawn` ...) are the scenario's to answer.
    Hold(Vec<String>),
    /// Send this to a proxy of the first process group.
    Answer {
        /// Which.
        proxy: u32,
        /// Number of the request that it answers, answered before or not; `None` if it answers nothing.
        to: Option<u64>,
        /// The text, with its newline.
        text: Bytes,
    },
    /// Treat a request that was held as if it had not been.
    Usual(u64),
    /// Close the connection to a proxy of the first process group.
    Close(u32),
}

/// The upstream's end: finds the runner by the agent's path, introduces itself and waits for the first order. `None` where
/// nobody listens.
pub(super) fn runner() -> Option<(Channel, Command)> {
    let agent = std::env::var_os(agent::PATH_VARIABLE)?;
    let scratch = Path::new(&agent).parent()?.parent()?;
    let mut runner = Channel::to_runner(scratch).ok()?;
    runner.send_whole(&Hello::Upstream { pid: std::process::id() }).ok()?;
    let first = runner.wait().ok()??;
    Some((runner, first))
}

/// What the upstream may report: facts about proxies.
pub(crate) fn is_report(what: &What) -> bool {
    matches!(
        what,
        What::FromProxy { .. }
            | What::ToProxy { .. }
            | What::ClosedByUpstream { .. }
            | What::ProxyEnded { .. }
    )
}
