//! A compiled scenario for clients: the server that it describes, the server's reaction to each request, and the expectations for the
//! program.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pmi_faults::Config;
use pmi_wire::Proc;

use crate::behaviours::behaviour;
use crate::interpret::walk::{Fragments, Position, StepReceiver, walk};
use crate::party::program::{ProcessScript, ProgramServer, ScriptAction, ScriptError, ServerRule};
use crate::serve::unique_prefix;
use pmi_judge::builtin_requirements::EXITS_SUCCESSFULLY;
use pmi_judge::expectation::{Expectation, ExpectationKind, Pattern};
use pmi_scenario::ast::{
    Piece, ProcessAction, RankSet, Role, Scenario, Setting, Step, StepAction, StepTarget, Template, ValueType,
};
use pmi_scenario::scope::{ScenarioError, Scope};

/// Maximum number of steps after all repetitions are expanded.
const MAX_STEPS: usize = 100_000;

#[derive(Debug, Clone)]
enum ScriptEntry {
    /// A request in the scenario, and whether the rule applies to every matching request.
    Trigger(Template, bool),
    Action(ScriptAction),
    Expect(ExpectationKind),
    /// An environment variable and its value; `None` removes the variable.
    Env(String, Option<Template>),
}

/// A step, with the scope in which its names are resolved.
#[derive(Debug, Clone)]
struct ExpandedStep {
    target: StepTarget,
    entry: ScriptEntry,
    line: usize,
    cites: String,
    scope: Scope,
}

#[derive(Debug)]
pub(super) struct Script {
    config: Config,
    delay: Duration,
    /// Number of bytes of each response that are written before the rest.
    first_write: usize,
    situations: Vec<ExpandedStep>,
    /// True if the scenario changes the settings of the server.
    changes_settings: bool,
}

impl Script {
    /// Creates an empty script: the reference server behaves normally, and accepts whichever protocol version the program offers.
    pub(super) fn plain() -> Self {
        let config = Config { kvs_prefix: prefix(), pmi2: true, pmi12: true, ..Config::default() };
        Self {
            config,
            delay: Duration::ZERO,
            first_write: 0,
            situations: Vec::new(),
            changes_settings: false,
        }
    }

    /// Compiles a scenario.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario has a mistake that the checker cannot detect. The error contains the line of the mistake.
    pub(super) fn new(scenario: &Scenario, fragments: Fragments<'_>) -> Result<Self, ScriptError> {
        let mut script = Self::plain();
        script.config.nodes = scenario.nodes;
        script.config.pmi2 = scenario.dialect.switches_framing();
        let serving = &scenario.server_setup;
        script.changes_settings = scenario.nodes > 1
            || serving.fault.is_some()
            || !serving.variations.is_empty()
            || !serving.settings.is_empty();
        let fault = serving.fault.as_ref().map(|name| name.value.as_str());
        let varied = serving.variations.iter().map(|name| name.value.as_str());
        script.config.wrapper = behaviour(fault, varied)
            .map_err(|error| ScriptError { line: 0, message: ScenarioError::Mistake(error.to_string()) })?;
        for (setting, number) in &scenario.server_setup.settings {
            let n = u64::from(*number);
            let config = &mut script.config;
            match setting.value {
                Setting::KvsnameMax => config.limits.kvsname_max = n,
                Setting::KeylenMax => config.limits.keylen_max = n,
                Setting::VallenMax => config.limits.vallen_max = n,
                // The name also contains a dash and a group number of one digit, so it is two bytes longer than the prefix.
                Setting::KvsnameLength => {
                    let missing = (*number as usize).saturating_sub(config.kvs_prefix.len() + 2);
                    config.kvs_prefix.push_str(&"n".repeat(missing));
                }
                Setting::Delay => script.delay = Duration::from_millis(u64::from(*number)),
                Setting::FirstWrite => script.first_write = *number as usize,
            }
        }
        script.config.raise_line_max();
        let first = scenario.requires.first().map(|r| r.value.clone()).unwrap_or_default();
        let mut writer = ScriptCompiler {
            script: &mut script,
            default_requirement: first,
            scope: Scope::of(scenario),
            line: 0,
        };
        walk(&mut writer, scenario, fragments)
            .map_err(|message| ScriptError { line: writer.line, message })?;
        Ok(script)
    }

    /// Returns the name that a server without a variation or fault assigns to a group's keyval space.
    fn kvsname(&self, group: u32) -> Vec<u8> {
        format!("{}-{group}", self.config.kvs_prefix).into_bytes()
    }

    /// Returns the expectation of a step. If the program runs under different conditions than in a plain run, the expectation cites the
    /// requirement of its step. Otherwise, it cites the requirement about a program's exit under an unmodified server.
    fn expectation(&self, place: &ExpandedStep, proc: Option<Proc>, kind: ExpectationKind) -> Expectation {
        let cites = if self.is_unusual() { &place.cites } else { EXITS_SUCCESSFULLY };
        Expectation { proc, cites: cites.to_owned(), kind }
    }

    /// Returns the line of the first request for which the scenario defines the server's reaction, and the expectation that at least one
    /// process makes this request.
    pub(super) fn first_request(&self) -> Option<(usize, Expectation)> {
        self.situations.iter().find_map(|place| match &place.entry {
            ScriptEntry::Trigger(request, _) => {
                let kind = ExpectationKind::Request(Some(request.to_string()));
                Some((place.line, self.expectation(place, None, kind)))
            }
            _ => None,
        })
    }

    /// Returns whether the program runs under different conditions than in a plain run.
    pub(super) fn is_unusual(&self) -> bool {
        self.changes_settings
            || self.situations.iter().any(|place| !matches!(place.entry, ScriptEntry::Expect(_)))
    }

    /// Returns whether the output of a plain run is needed.
    pub(super) fn needs_plain_output(&self) -> bool {
        self.situations.iter().any(|p| {
            matches!(
                p.entry,
                ScriptEntry::Expect(ExpectationKind::FailsOrMatches | ExpectationKind::SameOutput)
            )
        })
    }
}

impl ProgramServer for Script {
    fn config(&self) -> &Config {
        &self.config
    }

    fn delay(&self) -> Duration {
        self.delay
    }

    fn first_write(&self) -> usize {
        self.first_write
    }

    fn process_script(&self, p: Proc, size: u32) -> Result<ProcessScript, ScriptError> {
        let mut part = ProcessScript::default();
        for place in self.situations.iter().filter(|place| concerns(&place.target, p)) {
            let line = place.line;
            let mistake = |message| ScriptError { line, message };
            let mut scope = place.scope.clone();
            scope.enter(p.rank, size);
            if scope.var("kvs").is_err() {
                scope.set("kvs", self.kvsname(p.group));
            }
            let mut expect = |kind| part.expectations.push((line, self.expectation(place, Some(p), kind)));
            match &place.entry {
                ScriptEntry::Trigger(request, every) => {
                    expect(ExpectationKind::Request(Some(request.to_string())));
                    let pattern = Pattern::new(&scope, request).map_err(mistake)?;
                    part.rules.push(ServerRule {
                        trigger: Some((pattern, *every)),
                        actions: Vec::new(),
                        line,
                        scope,
                    });
                }
                ScriptEntry::Action(act) => {
                    if part.rules.is_empty() {
                        expect(ExpectationKind::Request(None));
                        part.rules.push(ServerRule { trigger: None, actions: Vec::new(), line, scope });
                    }
                    part.rules.last_mut().into_iter().for_each(|rule| rule.actions.push(act.clone()));
                }
                ScriptEntry::Expect(kind) => expect(kind.clone()),
                ScriptEntry::Env(name, value) => {
                    let text = value.as_ref().map(|text| scope.text(text)).transpose().map_err(mistake)?;
                    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
                    part.env.push((name.clone(), text));
                }
            }
        }
        Ok(part)
    }
}

/// Returns a prefix for a job's kvsnames. The prefix must be unique among all running jobs, because MPI libraries derive the names of
/// shared memory from kvsnames.
fn prefix() -> String {
    static JOB_COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}{:03x}", unique_prefix(), JOB_COUNT.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

fn concerns(target: &StepTarget, p: Proc) -> bool {
    match target {
        StepTarget::Job | StepTarget::Spawned { .. } => false,
        StepTarget::Ranks { group, .. } if *group != p.group => false,
        StepTarget::Ranks { set: RankSet::All, .. } => true,
        StepTarget::Ranks { set: RankSet::Ranges(ranges), .. } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&p.rank))
        }
    }
}

struct ScriptCompiler<'a> {
    script: &'a mut Script,
    line: usize,
    /// The requirement for steps that cite none.
    default_requirement: String,
    scope: Scope,
}

impl StepReceiver for ScriptCompiler<'_> {
    type Stop = ScenarioError;

    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn set_line(&mut self, line: usize) {
        self.line = line;
    }

    fn step(&mut self, step: &Step, place: Position<'_>) -> Result<(), ScenarioError> {
        let entry = entry(step).ok_or_else(|| {
            ScenarioError::Mistake("this step cannot be used with a client under test".to_owned())
        })?;
        if self.script.situations.len() == MAX_STEPS {
            return Err(ScenarioError::Mistake(format!("more than {MAX_STEPS} steps")));
        }
        self.script.situations.push(ExpandedStep {
            target: step.target.clone(),
            entry,
            line: place.line,
            cites: step
                .cites
                .as_ref()
                .map_or_else(|| self.default_requirement.clone(), |id| id.value.clone()),
            scope: self.scope.clone(),
        });
        Ok(())
    }
}

fn entry(step: &Step) -> Option<ScriptEntry> {
    Some(match (step.role, &step.action) {
        (Role::Client, StepAction::Message { mode, lines }) => {
            let line = lines.first()?;
            ScriptEntry::Trigger(line.clone(), mode.every)
        }
        (Role::Server, StepAction::Message { mode, lines }) => {
            ScriptEntry::Action(ScriptAction::Send(*mode, lines.clone()))
        }
        (Role::Server, StepAction::Empty) => ScriptEntry::Action(ScriptAction::Empty),
        (Role::Server, StepAction::CorrectResponse) => ScriptEntry::Action(ScriptAction::DefaultResponse),
        (Role::Server, StepAction::Close) => ScriptEntry::Action(ScriptAction::Close),
        (Role::Process, StepAction::Process(action)) => match action {
            ProcessAction::Kill(_) => ScriptEntry::Action(ScriptAction::Kill),
            ProcessAction::Exits(pattern) => ScriptEntry::Expect(ExpectationKind::Exits(*pattern)),
            ProcessAction::Ends => ScriptEntry::Expect(ExpectationKind::Ends),
            ProcessAction::FailsOrMatches => ScriptEntry::Expect(ExpectationKind::FailsOrMatches),
            ProcessAction::SameOutput => ScriptEntry::Expect(ExpectationKind::SameOutput),
            ProcessAction::Env(name, value) => {
                let absent = value.pieces == [Piece::Typed(ValueType::Absent)];
                ScriptEntry::Env(name.value.clone(), (!absent).then(|| value.clone()))
            }
            _ => return None,
        },
        _ => return None,
    })
}
