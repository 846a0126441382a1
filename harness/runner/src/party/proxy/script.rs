//! The messages between the upstream and the runner. They let a scenario observe the requests that proxies forward, and answer them.
//!
//! The upstream connects to the runner's socket, introduces itself ([`Hello`]) and waits for the first [`RunnerCommand`], which is
//! [`RunnerCommand::Hold`]. From then on, it carries out commands. It reports each request from a proxy before it acts on the request, and
//! each response before it sends the response. Both sides write lines of JSON. Without a runner, the upstream answers all requests itself.

use std::path::Path;

use pmi_process::agent;
use pmi_process::agent::channel::Channel;
use pmi_process::agent::protocol::Hello;
use serde::{Deserialize, Serialize};

use pmi_judge::event::{Bytes, EventKind};

/// A command from the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerCommand {
    /// Leave requests with these names (such as `get` or `spawn`) to the scenario.
    Hold(Vec<String>),
    /// Send a message to a proxy of the first process group.
    #[serde(rename = "answer")]
    Response {
        /// Number of the proxy.
        proxy: u32,
        /// Number of the request that the message answers, even if that request has already been answered; `None` for an unrequested
        /// message.
        to: Option<u64>,
        /// The text of the message, with its newline.
        text: Bytes,
    },
    /// Serve a held request as usual.
    #[serde(rename = "usual")]
    CorrectResponse(u64),
    /// Close the connection to a proxy of the first process group.
    Close(u32),
}

/// Finds the runner through the agent's path, introduces this process, and waits for the first command. Returns `None` if no runner is
/// listening.
pub(super) fn runner() -> Option<(Channel, RunnerCommand)> {
    let agent = std::env::var_os(agent::PATH_VARIABLE)?;
    let scratch = Path::new(&agent).parent()?.parent()?;
    let mut runner = Channel::to_runner(scratch).ok()?;
    runner.send_whole(&Hello::Upstream { pid: std::process::id() }).ok()?;
    let first = runner.wait().ok()??;
    Some((runner, first))
}

/// Returns whether the upstream may report an event of this kind. Only facts about proxies may be reported.
pub(crate) fn is_report(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::FromProxy { .. }
            | EventKind::ToProxy { .. }
            | EventKind::ClosedByUpstream { .. }
            | EventKind::ProxyEnded { .. }
    )
}
