//! The server that a program is started under, and its reaction to each process's requests.

use std::time::Duration;

use pmi_faults::Config;
use pmi_judge::expectation::{Expectation, Pattern};
use pmi_scenario::ast::{Template, WriteMode};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_wire::Proc;

#[derive(Debug, Clone)]
pub(crate) enum ScriptAction {
    /// Sends these lines.
    Send(WriteMode, Vec<Template>),
    /// Sends a bare newline.
    Empty,
    /// Sends the server's own response.
    DefaultResponse,
    Close,
    Kill,
}

/// The server's reaction to a request from one process.
#[derive(Debug)]
pub(crate) struct ServerRule {
    /// The request, and whether the rule applies to every matching request; `None` for actions at the start.
    pub(crate) trigger: Option<(Pattern, bool)>,
    /// The actions; empty for the server's own response.
    pub(crate) actions: Vec<ScriptAction>,
    pub(crate) line: usize,
    pub(crate) scope: Scope,
}

/// A scenario's environment changes, rules and expectations for one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessScript {
    /// Changes to the environment of the process; `None` removes a variable.
    pub(crate) env: Vec<(String, Option<String>)>,
    /// The reactions to the requests from the process, in order.
    pub(crate) rules: Vec<ServerRule>,
    /// The expectations for the process, each with its line in the scenario.
    pub(crate) expectations: Vec<(usize, Expectation)>,
}

/// An error in a scenario, with its line. The error cannot be detected before the scenario is played.
#[derive(Debug)]
pub(crate) struct ScriptError {
    pub(crate) line: usize,
    pub(crate) message: ScenarioError,
}

/// The server that a program is started under.
pub(crate) trait ProgramServer {
    fn config(&self) -> &Config;
    /// Returns the delay of each response.
    fn delay(&self) -> Duration;
    /// Returns the number of bytes of each response that are written before the rest. If 0, the response is written in one piece.
    fn first_write(&self) -> usize;
    /// Returns the script of a process in a group of `size` processes.
    ///
    /// # Errors
    ///
    /// Returns an error if a name has no value for this process, or an expression cannot be evaluated.
    fn process_script(&self, p: Proc, size: u32) -> Result<ProcessScript, ScriptError>;
}
