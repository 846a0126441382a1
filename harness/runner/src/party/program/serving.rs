//! The server that a program is started under, and what it does at the requests of each process.

use std::time::Duration;

use pmi_faults::Config;
use pmi_judge::expectation::{Expectation, Pattern};
use pmi_scenario::ast::{Template, WriteMode};
use pmi_scenario::scope::{ScenarioError, Scope};
use pmi_wire::Proc;

/// What the server does.
#[derive(Debug, Clone)]
pub(crate) enum ServerAct {
    /// It sends these lines.
    Send(WriteMode, Vec<Template>),
    /// It sends a bare newline.
    Empty,
    /// It gives its own answer.
    Right,
    /// It closes the connection.
    Close,
    /// The process is killed.
    Kill,
}

/// What the server does at a request of one process.
#[derive(Debug)]
pub(crate) struct ServerRule {
    /// The request, and whether it is every one that fits; `None` for what is done at the start.
    pub(crate) trigger: Option<(Pattern, bool)>,
    /// Nothing for the right answer.
    pub(crate) acts: Vec<ServerAct>,
    /// Of the scenario.
    pub(crate) line: usize,
    pub(crate) scope: Scope,
}

/// What a scenario has for one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessScript {
    /// The variables that it finds changed, absent if `None`.
    pub(crate) env: Vec<(String, Option<String>)>,
    /// What is done at its requests, in order.
    pub(crate) rules: Vec<ServerRule>,
    /// What it is to come to, each with its line of the scenario.
    pub(crate) expectations: Vec<(usize, Expectation)>,
}

/// A mistake in a scenario that shows when it is played, and its line.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    pub(crate) what: ScenarioError,
}

/// The server that a program is started under.
pub(crate) trait ProgramServer {
    fn config(&self) -> &Config;
    /// What an answer waits.
    fn delay(&self) -> Duration;
    /// So many bytes of each answer are written alone, before the rest; 0: none are.
    fn first_write(&self) -> usize;
    /// What there is for a process, in a group of so many.
    ///
    /// # Errors
    ///
    /// A name has no value here, or a calculation comes to nothing.
    fn part(&self, p: Proc, size: u32) -> Result<ProcessScript, Mistake>;
}
