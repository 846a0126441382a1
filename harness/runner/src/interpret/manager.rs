//! The process manager of a library under test: the in-memory reference server, except for the responses that the scenario defines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use pmi_faults::Config;
use pmi_judge::event::EventKind;
use pmi_scenario::ast::{Scenario, Template, WriteMode};
use pmi_wire::Proc;

use crate::behaviours::{UnknownBehaviour, behaviour};
use crate::party::{Incoming, MemoryParty, Party, SilenceMeaning};

/// Prefix of the kvsnames that the reference server assigns in library scenarios.
pub const KVS_PREFIX: &str = "library-kvs-";
/// The value of PMI_FD if the scenario does not specify one. This descriptor number is rarely in use, so it can be reserved.
const PMI_FD: &str = "50";

pub(super) struct LibraryManager {
    /// The server that answers all requests that the scenario does not answer.
    pub(super) server: MemoryParty,
    /// True if the library's own process manager has started the processes.
    pub(super) launched: bool,
    pub(super) env: BTreeMap<Proc, BTreeMap<String, String>>,
    pub(super) started: BTreeSet<Proc>,
    pub(super) rules: BTreeMap<Proc, Vec<ResponseRule>>,
}

/// A rule that defines the response to each request that matches `request`.
pub(super) struct ResponseRule {
    pub(super) request: Vec<Template>,
    pub(super) responses: Vec<ManagerResponse>,
}

#[derive(Clone)]
pub(super) enum ManagerResponse {
    Write(WriteMode, Vec<Template>),
    Newline,
    Close,
    Nothing,
}

impl LibraryManager {
    /// Creates the process manager that a scenario describes.
    ///
    /// # Errors
    ///
    /// Returns an error if a variation is unknown.
    pub(super) fn new(scenario: &Scenario, launched: bool) -> Result<Self, UnknownBehaviour> {
        let variations = scenario.server_setup.variations.iter().map(|name| name.value.as_str());
        let wrapper = behaviour(None, variations)?;
        let config =
            Config { nodes: scenario.nodes, kvs_prefix: KVS_PREFIX.to_owned(), wrapper, ..Config::default() };
        let config = config.speaking(scenario.dialect);
        let mut manager = Self {
            server: MemoryParty::launch(config, scenario.ranks),
            launched,
            env: BTreeMap::new(),
            started: BTreeSet::new(),
            rules: BTreeMap::new(),
        };
        for kind in manager.take_events() {
            if let EventKind::Started { proc, mut env, .. } = kind {
                env.insert("PMI_FD".to_owned(), PMI_FD.to_owned());
                manager.env.insert(proc, env);
            }
        }
        Ok(manager)
    }

    /// Returns the reference server's new actions as events.
    pub(super) fn take_events(&mut self) -> Vec<EventKind> {
        let mut all = Vec::new();
        while let Incoming::Event(kind) = self.server.next(Instant::now(), SilenceMeaning::Expected) {
            all.push(kind);
        }
        all
    }
}
