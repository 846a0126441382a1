//! A scenario for clients made ready: the server that it describes, what that server does at which request, and what the
//! program is to come to.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pmi_reference::Config;
use pmi_reference::fault::{behaviour, faults, variations};
use pmi_wire::Proc;

use crate::interpret::walk::{Fragments, Place, Steps, walk};
use crate::serve::unique_prefix;
use pmi_scenario::ast::{
    Action, ExitPattern, Kind, Piece, ProcessAction, RankSet, Role, Scenario, Setting, Step, Template, Who,
    WriteMode,
};
use pmi_scenario::scope::{ScenarioError, Scope};

/// Most steps with all repetitions written out.
const STEPS: usize = 100_000;

/// What the server does.
#[derive(Debug, Clone)]
pub(super) enum Act {
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

/// What a process is to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// It ends by itself, with such a status.
    Exit(ExitPattern),
    /// It ends somehow, by itself or with its program.
    Over,
    /// It ends by itself, with status 0 only if its output is that of a plain run.
    Copes,
    /// Its output is that of a plain run.
    SameOutput,
}

#[derive(Debug, Clone)]
enum Entry {
    Trigger(Template, bool),
    Act(Act),
    Expect(Expected),
    /// A variable of the environment, absent if `None`.
    Env(String, Option<Template>),
}

/// A step, with the names that are bound where it stands.
#[derive(Debug, Clone)]
struct Expanded {
    who: Who,
    entry: Entry,
    line: usize,
    cites: String,
    scope: Scope,
}

/// What the server does at a request of one process.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// The request, and whether it is every one that fits; `None` for what is done at the start.
    pub(super) trigger: Option<(Template, bool)>,
    /// Nothing for the right answer.
    pub(super) acts: Vec<Act>,
    /// Of the scenario.
    pub(super) line: usize,
    pub(super) scope: Scope,
}

/// What is expected of one process.
#[derive(Debug, Clone)]
pub(super) struct Expectation {
    pub(super) what: Expected,
    /// Of the scenario.
    pub(super) line: usize,
    /// The requirement that is broken otherwise.
    pub(super) cites: String,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) config: Config,
    /// What an answer waits.
    pub(super) delay: Duration,
    places: Vec<Expanded>,
    /// The server is set up in some way of the scenario's.
    set_up: bool,
}

impl Script {
    /// No scenario: the reference server as it is.
    pub(super) fn plain() -> Self {
        let config = Config { kvs_prefix: prefix(), ..Config::default() };
        Self { config, delay: Duration::ZERO, places: Vec::new(), set_up: false }
    }

    /// Writes a scenario out.
    ///
    /// # Errors
    ///
    /// A mistake that the checker cannot see, with its line.
    pub(super) fn new(scenario: &Scenario, fragment: Fragments<'_>) -> Result<Self, (usize, String)> {
        let mut script = Self::plain();
        script.config.nodes = scenario.nodes;
        let serving = &scenario.serving;
        script.set_up = scenario.nodes > 1
            || serving.fault.is_some()
            || !serving.variations.is_empty()
            || !serving.settings.is_empty();
        let vary = &scenario.serving.variations;
        let fault = serving.fault.as_ref().and_then(|name| faults().find(|f| f.name == name.value));
        let varied: Vec<_> =
            vary.iter().filter_map(|name| variations().find(|v| v.name == name.value)).collect();
        script.config.behaviour = behaviour(fault, &varied);
        for (setting, number) in &scenario.serving.settings {
            let n = u64::from(*number);
            let config = &mut script.config;
            match setting.value {
                Setting::KvsnameMax => config.maxes.kvsname_max = n,
                Setting::KeylenMax => config.maxes.keylen_max = n,
                Setting::VallenMax => config.maxes.vallen_max = n,
                // Behind the prefix stand a dash and the number of the group.
                Setting::KvsnameLength => {
                    let missing = (*number as usize).saturating_sub(config.kvs_prefix.len() + 2);
                    config.kvs_prefix.push_str(&"n".repeat(missing));
                }
                Setting::Delay => script.delay = Duration::from_millis(u64::from(*number)),
            }
        }
        let first = scenario.requires.first().map(|r| r.value.clone()).unwrap_or_default();
        let mut writer = Writer { script: &mut script, first, scope: Scope::default(), line: 0 };
        walk(&mut writer, scenario, fragment).map_err(|Mistake(what)| (writer.line, what))?;
        Ok(script)
    }

    fn of(&self, p: Proc) -> impl Iterator<Item = &Expanded> {
        self.places.iter().filter(move |place| concerns(&place.who, p))
    }

    /// The name of a group's keyval space, as the server gives it unless a variation or a fault makes it another.
    fn kvsname(&self, group: u32) -> Vec<u8> {
        format!("{}-{group}", self.config.kvs_prefix).into_bytes()
    }

    /// What is done at the requests of a process, in order.
    pub(super) fn rules(&self, p: Proc, size: u32) -> Vec<Rule> {
        let mut rules: Vec<Rule> = Vec::new();
        for place in self.of(p) {
            let mut scope = place.scope.clone();
            scope.enter(p.rank, size);
            if scope.var("kvs").is_err() {
                scope.set("kvs", self.kvsname(p.group));
            }
            let begin = |trigger| Rule { trigger, acts: Vec::new(), line: place.line, scope };
            match &place.entry {
                Entry::Trigger(request, every) => rules.push(begin(Some((request.clone(), *every)))),
                Entry::Act(act) => {
                    if rules.is_empty() {
                        rules.push(begin(None));
                    }
                    if let Some(rule) = rules.last_mut() {
                        rule.acts.push(act.clone());
                    }
                }
                Entry::Expect(_) | Entry::Env(..) => {}
            }
        }
        rules
    }

    /// What is expected of a process, in order.
    pub(super) fn expectations(&self, p: Proc) -> Vec<Expectation> {
        let expectation = |place: &Expanded| match &place.entry {
            Entry::Expect(what) => {
                Some(Expectation { what: *what, line: place.line, cites: place.cites.clone() })
            }
            _ => None,
        };
        self.of(p).filter_map(expectation).collect()
    }

    /// The variables that a process finds changed.
    pub(super) fn environment(&self, p: Proc, size: u32) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        for place in self.of(p) {
            if let Entry::Env(name, value) = &place.entry {
                let mut scope = place.scope.clone();
                scope.enter(p.rank, size);
                let text =
                    |t: &Template| String::from_utf8_lossy(&scope.text(t).unwrap_or_default()).into_owned();
                all.push((name.clone(), value.as_ref().map(text)));
            }
        }
        all
    }

    /// The first request that is answered otherwise.
    pub(super) fn first_trigger(&self) -> Option<usize> {
        self.places.iter().find(|p| matches!(p.entry, Entry::Trigger(..))).map(|p| p.line)
    }

    /// Whether the program meets anything else than in a plain run.
    pub(super) fn is_unusual(&self) -> bool {
        self.set_up || self.places.iter().any(|place| !matches!(place.entry, Entry::Expect(_)))
    }

    /// Whether some process is to do anything but end well.
    pub(super) fn is_hostile(&self) -> bool {
        let well = Expected::Exit(ExitPattern::Code(0));
        self.places.iter().any(|place| match place.entry {
            Entry::Expect(what) => what != well && what != Expected::SameOutput,
            _ => false,
        })
    }

    /// Whether the output of a plain run must be known.
    pub(super) fn compares(&self) -> bool {
        self.places.iter().any(|p| matches!(p.entry, Entry::Expect(Expected::Copes | Expected::SameOutput)))
    }
}

/// First part of the names of keyval spaces: MPI libraries name shared memory after them.
fn prefix() -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    format!("{}{:03x}", unique_prefix(), JOBS.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

fn concerns(who: &Who, p: Proc) -> bool {
    match who {
        Who::Job | Who::Spawned { .. } => false,
        Who::Ranks { group, .. } if *group != p.group => false,
        Who::Ranks { set: RankSet::All, .. } => true,
        Who::Ranks { set: RankSet::Ranges(ranges), .. } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&p.rank))
        }
    }
}

struct Writer<'a> {
    script: &'a mut Script,
    line: usize,
    /// The requirement that a step cites which names none.
    first: String,
    scope: Scope,
}

/// Why a scenario cannot be written out.
struct Mistake(String);

impl From<ScenarioError> for Mistake {
    fn from(error: ScenarioError) -> Self {
        Self(error.0)
    }
}

impl Steps for Writer<'_> {
    type Stop = Mistake;

    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn at(&mut self, line: usize) {
        self.line = line;
    }

    fn step(&mut self, step: &Step, place: Place<'_>) -> Result<(), Mistake> {
        let entry = entry(step).ok_or_else(|| Mistake("no step for a client under test".to_owned()))?;
        if self.script.places.len() == STEPS {
            return Err(Mistake(format!("more than {STEPS} steps")));
        }
        self.script.places.push(Expanded {
            who: step.who.clone(),
            entry,
            line: place.line,
            cites: step.cites.as_ref().map_or_else(|| self.first.clone(), |id| id.value.clone()),
            scope: self.scope.clone(),
        });
        Ok(())
    }
}

fn entry(step: &Step) -> Option<Entry> {
    Some(match (step.role, &step.action) {
        (Role::Client, Action::Message { mode, lines }) => Entry::Trigger(lines.first()?.clone(), mode.every),
        (Role::Server, Action::Message { mode, lines }) => Entry::Act(Act::Send(*mode, lines.clone())),
        (Role::Server, Action::Empty) => Entry::Act(Act::Empty),
        (Role::Server, Action::Right) => Entry::Act(Act::Right),
        (Role::Server, Action::Close) => Entry::Act(Act::Close),
        (Role::Process, Action::Process(action)) => match action {
            ProcessAction::Kill(_) => Entry::Act(Act::Kill),
            ProcessAction::Ends(pattern) => Entry::Expect(Expected::Exit(*pattern)),
            ProcessAction::Over => Entry::Expect(Expected::Over),
            ProcessAction::Copes => Entry::Expect(Expected::Copes),
            ProcessAction::SameOutput => Entry::Expect(Expected::SameOutput),
            ProcessAction::Env(name, value) => {
                let absent = value.pieces == [Piece::Typed(Kind::Absent)];
                Entry::Env(name.value.clone(), (!absent).then(|| value.clone()))
            }
            _ => return None,
        },
        _ => return None,
    })
}
