//! A singleton: a process that the process manager must serve, but has not started.

use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pmi_process::agent;
use pmi_process::agent::singleton::{LISTENER, PATIENCE};
use pmi_process::child::{Child, without_protocol_variables};
use pmi_process::observe::tree;

/// Number of the listening socket's descriptor in the process.
const LISTENER_FD: i32 = 3;

/// A process of the runner, with a port that the process manager must connect to.
pub(super) struct Singleton {
    child: Child,
    port: u16,
}

impl Singleton {
    /// Starts the process. The process manager must connect within `patience`. The process is killed with the other processes of the launch
    /// that `mark` identifies.
    pub(super) fn start(agent: &Path, mark: &str, patience: Duration) -> io::Result<Self> {
        // Listen on all addresses, as MPICH's client does.
        let listener = TcpListener::bind(("0.0.0.0", 0))?;
        let port = listener.local_addr()?.port();
        let mut command = Command::new(agent);
        without_protocol_variables(&mut command, false);
        command.env(agent::PATH_VARIABLE, agent).env(tree::MARK, mark).env(LISTENER, LISTENER_FD.to_string());
        command.env(PATIENCE, patience.as_millis().to_string());
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: Child::start_with(command, Some((listener.into(), LISTENER_FD)))?, port })
    }

    /// Returns the values of `{port}` and `{pid}` in a command.
    pub(super) fn placeholders(&self) -> (u16, i32) {
        (self.port, self.child.pid().as_raw_nonzero().get())
    }
}

impl Drop for Singleton {
    fn drop(&mut self) {
        // The process may already have been reaped as an orphan of the launch.
        if self.child.try_wait().is_none() {
            self.child.kill_group();
            self.child.wait();
        }
    }
}
