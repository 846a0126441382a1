//! The process manager of a library under test: the reference server in memory, and what the scenario has it say instead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use pmi_faults::Config;
use pmi_judge::event::What;
use pmi_scenario::ast::{Dialect, Scenario, Template, WriteMode};
use pmi_wire::Proc;

use crate::party::{Incoming, MemoryParty, Party, Silence};

/// First part of the names of keyval spaces that the reference server gives.
pub const KVS_PREFIX: &str = "library-kvs-";
/// Descriptor that a process gets for PMI_FD where the scenario names none: one that is seldom in use here, so that it can be reserved.
const PMI_FD: &str = "50";

/// The process manager of a library under test.
pub(super) struct Manager {
    /// Answers what the scenario does not.
    pub(super) server: MemoryParty,
    /// The library's processes have been started by a manager of its own.
    pub(super) launched: bool,
    pub(super) env: BTreeMap<Proc, BTreeMap<String, String>>,
    pub(super) started: BTreeSet<Proc>,
    pub(super) rules: BTreeMap<Proc, Vec<ReplyRule>>,
}

/// How requests of a form are answered.
pub(super) struct ReplyRule {
    pub(super) request: Vec<Template>,
    pub(super) replies: Vec<Reply>,
}

/// What we do to a request.
#[derive(Clone)]
pub(super) enum Reply {
    Write(WriteMode, Vec<Template>),
    Newline,
    Close,
    Nothing,
}

impl Manager {
    pub(super) fn new(scenario: &Scenario, launched: bool) -> Self {
        let config = Config {
            nodes: scenario.nodes,
            kvs_prefix: KVS_PREFIX.to_owned(),
            pmi2: scenario.dialect == Dialect::Pmi2,
            ..Config::default()
        };
        let mut manager = Self {
            server: MemoryParty::launch(config, scenario.ranks),
            launched,
            env: BTreeMap::new(),
            started: BTreeSet::new(),
            rules: BTreeMap::new(),
        };
        for what in manager.said() {
            if let What::Started { proc, mut env, .. } = what {
                env.insert("PMI_FD".to_owned(), PMI_FD.to_owned());
                manager.env.insert(proc, env);
            }
        }
        manager
    }

    /// What the reference server has done since.
    pub(super) fn said(&mut self) -> Vec<What> {
        let mut all = Vec::new();
        while let Incoming::Event(what) = self.server.next(Instant::now(), Silence::Expected) {
            all.push(what);
        }
        all
    }
}
