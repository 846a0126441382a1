//! The implementation under test, and how a scenario is played against it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pmi_faults::Config;

use crate::interpret::library::play as play_library;
use crate::interpret::{EventSink, play, program};
use crate::party::library::Library;
use crate::party::program::Program;
use crate::party::server::{Implementation, LaunchEnvironment, ServerParty};
use crate::party::{MemoryParty, ScenarioLimits};
use pmi_judge::event::{Event, EventKind, Exit};
use pmi_judge::verdict::Verdict;
use pmi_judge::{PartyKind, ScenarioOutcome, UnjudgedReason};
use pmi_scenario::ast::{Capability, ProcessAction, Scenario, SourceFile, Step, StepAction};
use pmi_scenario::suite::Suite;
use pmi_wire::ConnectionMethod;

/// Maximum time for a process to report that no process manager has connected to it.
const REPORT_WAIT: Duration = Duration::from_secs(10);

/// The outcome of a scenario and its duration or, if the scenario could not be played, a verdict and its reason.
pub(crate) type PlayResult = Result<(ScenarioOutcome, Duration), (Verdict, String)>;

/// The implementation under test.
pub enum Iut {
    /// The in-memory reference server.
    Memory(Config),
    /// A process manager that runs in real processes, and the environment of its launches.
    Processes(Box<Implementation>, LaunchEnvironment),
    /// A PMI library, the claims about its optional operations, and a flag that requests the immediate end of the run.
    Library(Box<Library>, BTreeMap<Capability, bool>, Arc<AtomicBool>),
    /// A program that speaks PMI and runs under the reference server.
    Client(Box<Program>),
}

impl Iut {
    /// Returns the name that reports use for the implementation.
    pub fn label(&self) -> String {
        match self {
            Self::Memory(_) => "the in-memory reference server".to_owned(),
            Self::Processes(implementation, _) => implementation.label.clone(),
            Self::Library(library, ..) => {
                let under =
                    library.server.as_ref().map(|s| format!(" under {}", s.label)).unwrap_or_default();
                format!("the library {}{under}", library.path.display())
            }
            Self::Client(program) => program.label.clone(),
        }
    }

    /// Returns the version of the implementation, if known.
    pub fn version(&self) -> Option<String> {
        match self {
            Self::Processes(implementation, _) => implementation.version.as_ref().map(ToString::to_string),
            Self::Memory(_) | Self::Library(..) | Self::Client(_) => None,
        }
    }

    /// Returns the party that is under test: the server, the client or the library.
    pub fn party(&self) -> PartyKind {
        match self {
            Self::Memory(_) | Self::Processes(..) => PartyKind::Server,
            Self::Library(..) => PartyKind::Library,
            Self::Client(_) => PartyKind::Client,
        }
    }

    /// Returns the kind of connection that the processes of the implementation's jobs receive.
    pub fn connection_method(&self) -> ConnectionMethod {
        match self {
            Self::Processes(implementation, _) => implementation.connection_method,
            Self::Client(program) => program.connection_method(),
            Self::Memory(_) | Self::Library(..) => ConnectionMethod::Fd,
        }
    }

    /// Returns whether agents relay the connections of the implementation's jobs.
    pub fn is_relayed(&self) -> bool {
        matches!(self, Self::Processes(_, environment) if environment.listen.is_some())
    }

    /// Returns the maximum number of scenarios in progress, including scenarios that are waiting to launch.
    pub(crate) fn plays_at_once(&self, jobs: usize) -> usize {
        match self {
            // Each relayed launch needs a port, and `--listen` guarantees ports only for this number of launches.
            Self::Processes(_, environment) if self.is_relayed() => environment.slots.launches(),
            Self::Processes(_, environment) => environment.slots.launches_of_run(),
            Self::Memory(_) | Self::Library(..) | Self::Client(_) => jobs,
        }
    }

    /// Plays a scenario, or returns the reason why it cannot be played.
    pub(crate) fn play(
        &self,
        suite: &Suite,
        scenario: &Scenario,
        limits: ScenarioLimits,
        interrupted: &AtomicBool,
        sink: &mut dyn EventSink,
    ) -> PlayResult {
        if let Self::Library(library, ..) = self
            && library.server.is_some()
            && scenario.nodes > 1
        {
            return Err((
                Verdict::NotApplicable,
                "a library under a process manager is tested on a single node only".to_owned(),
            ));
        }
        let start = Instant::now();
        let fragment = |name: &str| suite.fragment(name);
        let outcome = match self {
            Self::Memory(config) => {
                let config = config_for(scenario, config);
                let mut party = MemoryParty::launch(config, scenario.ranks);
                play(scenario, &fragment, Vec::new(), &mut party, limits, sink)
            }
            Self::Client(program)
                if program.connection_method() == ConnectionMethod::Singleton
                    && needs_several_processes(suite, scenario) =>
            {
                let why = "this scenario needs several processes or tests their environment, but the program is started alone (--connection singleton)";
                return Err((Verdict::NotApplicable, why.to_owned()));
            }
            Self::Client(program) => program::play(program, scenario, &fragment, limits, interrupted, sink),
            Self::Processes(implementation, environment) => {
                if let Some(why) = implementation.capacity_problem(scenario.ranks, scenario.nodes) {
                    return Err((Verdict::NotApplicable, why));
                }
                let (ranks, nodes, start) = (scenario.ranks, scenario.nodes, limits.start());
                let launched = match &scenario.server_setup.launch {
                    Some(words) => implementation.launched_by(&words.value).map(Cow::Owned),
                    None => Some(Cow::Borrowed(&**implementation)),
                };
                let Some(launched) = launched else {
                    return Err((Verdict::NotApplicable, "this scenario changes the launch command, but pmi-conform starts a bare proxy without one".to_owned()));
                };
                // If the process does not inherit its connection, allow more time: the agent must connect before it reports to the runner.
                let report_wait = if implementation.connection_method == ConnectionMethod::Fd {
                    Duration::ZERO
                } else {
                    REPORT_WAIT
                };
                let limits = ScenarioLimits { start: Some(limits.idle_start() + report_wait), ..limits };
                match ServerParty::launch(&launched, ranks, nodes, start, environment) {
                    Ok((mut party, command)) => {
                        party.set_in_turn(!scenario.is_free);
                        let mut outcome = play(scenario, &fragment, command, &mut party, limits, sink);
                        drop(party);
                        if let Some(ranks) = self.starts_fewer(suite, scenario, limits, &outcome) {
                            outcome.unresponsive = false;
                            append(&mut outcome, EventKind::StartsFewerRanks { ranks }, sink);
                        }
                        outcome
                    }
                    Err(error) => return Err((Verdict::Unjudged, error.to_string())),
                }
            }
            Self::Library(library, _, interrupted) => {
                play_library(scenario, &fragment, library, limits, interrupted, sink)
                    .map_err(|why| (Verdict::NotApplicable, why))?
            }
        };
        Ok((outcome, start.elapsed()))
    }

    /// Finds out whether a launcher that ended without starting the processes can start fewer. Tries one process per node or, for a
    /// scenario with `launch`, all processes without the words that `launch` adds to the command. Returns the number of processes if this
    /// attempt succeeds. Otherwise, and for a bare proxy, whose launcher the harness provides, returns `None`.
    fn starts_fewer(
        &self,
        suite: &Suite,
        scenario: &Scenario,
        limits: ScenarioLimits,
        outcome: &ScenarioOutcome,
    ) -> Option<u32> {
        let ours = matches!(self, Self::Processes(implementation, _) if implementation.has_upstream());
        let fails = !ours
            && matches!(
                outcome.unjudged,
                Some(UnjudgedReason::NotStarted { launcher: Some(Exit::Code(_)), .. })
            );
        let nodes = scenario.nodes.max(1);
        let fewer = if scenario.server_setup.launch.is_some() { scenario.ranks } else { nodes };
        if !fails || scenario.server_setup.launch.is_none() && scenario.ranks <= nodes {
            return None;
        }
        let probe = format!(
            "# Probes whether the implementation starts fewer processes.\nrequires rfc13.init.version-used\nranks {fewer}\nnodes {nodes}\n\n*  P: starts\n"
        );
        let outcome = Prober { suite, iut: self, limits }.outcome(&probe)?;
        outcome.unjudged.is_none().then_some(fewer)
    }
}

/// A prober that plays internal scenarios against an implementation under test. The results of these scenarios are not reported.
#[derive(Clone, Copy)]
pub struct Prober<'a> {
    /// The suite, whose fragments the scenarios use.
    pub suite: &'a Suite,
    /// The implementation under test.
    pub iut: &'a Iut,
    /// Limits of each scenario.
    pub limits: ScenarioLimits,
}

impl Prober<'_> {
    /// Plays a scenario. Returns `None` if the text is not a valid scenario.
    pub(crate) fn play(self, text: &str) -> Option<PlayResult> {
        let source = Arc::new(SourceFile { path: "probe".into(), text: text.into() });
        let scenario = self.suite.spelled(source, "probe")?;
        let played = self.iut.play(self.suite, &scenario, self.limits, &AtomicBool::new(false), &mut ());
        let is_mistaken = matches!(&played, Ok((outcome, _)) if outcome.scenario_error.is_some());
        (!is_mistaken).then_some(played)
    }

    /// Returns the outcome of a scenario, or `None` if it cannot be played.
    pub(crate) fn outcome(self, text: &str) -> Option<ScenarioOutcome> {
        Some(self.play(text)?.ok()?.0)
    }
}

/// Appends an event to the outcome of a scenario. The event reports a fact that was determined after the scenario had ended.
pub(crate) fn append(outcome: &mut ScenarioOutcome, kind: EventKind, sink: &mut dyn EventSink) {
    let time_us = outcome.events.last().map_or(0, |event| event.time_us);
    let event = Event { time_us, ..Event::new(outcome.events.len() as u64, kind) };
    sink.event(&event);
    outcome.events.push(event);
}

/// Returns whether a scenario for programs cannot be played with a single process that is started without a process manager.
fn needs_several_processes(suite: &Suite, scenario: &Scenario) -> bool {
    let sets = |step: &Step| matches!(step.action, StepAction::Process(ProcessAction::Env(..)));
    let several = scenario.server_setup.has_rank_count && scenario.ranks > 1 || scenario.nodes > 1;
    several || suite.steps(&scenario.body).any(sets)
}

/// Returns the configuration of the reference server for a scenario.
pub(crate) fn config_for(scenario: &Scenario, config: &Config) -> Config {
    let needs = |wanted| scenario.needs.iter().any(|need| need.value == wanted);
    let (pmi12, keyval_spaces) = (needs(Capability::Pmi12), needs(Capability::KeyvalSpaces));
    let connection_method = match (needs(Capability::Port), needs(Capability::Singleton)) {
        (true, _) => ConnectionMethod::Port,
        (false, true) => ConnectionMethod::Singleton,
        (false, false) => ConnectionMethod::Fd,
    };
    let wrapper = config.wrapper.clone().launched(scenario.server_setup.launch.is_some());
    let config =
        Config { wrapper, nodes: scenario.nodes, pmi12, keyval_spaces, connection_method, ..config.clone() };
    config.speaking(scenario.dialect)
}
