//! A scenario for clients made ready: the server that it describes, what that server does at which request, and what the
//! program is to come to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pmi_reference::fault::{Behaviour, faults, variations};
use pmi_reference::{Config, ProcId};

use crate::lang::ast::{
    Action, ExitPattern, Kind, Piece, ProcessAction, RankSet, Role, Scenario, Setting, Step, Stmt, Template,
    Who, WriteMode,
};
use crate::play::scope::{ScenarioError, Scope};
use crate::serve::unique_prefix;

/// How deep fragments and repetitions may lie in each other; the checker is stricter.
const DEPTH: usize = 32;
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
struct Place {
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
    places: Vec<Place>,
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
    pub(super) fn new(
        scenario: &Scenario,
        fragment: &dyn Fn(&str) -> Option<Arc<Scenario>>,
    ) -> Result<Self, (usize, String)> {
        let mut script = Self::plain();
        script.config.nodes = scenario.nodes;
        let serving = &scenario.serving;
        script.set_up = scenario.nodes > 1
            || serving.fault.is_some()
            || !serving.variations.is_empty()
            || !serving.settings.is_empty();
        let vary = &scenario.serving.variations;
        script.config.behaviour = Behaviour {
            fault: scenario.serving.fault.as_ref().and_then(|name| faults().find(|f| f.name == name.value)),
            variations: vary.iter().filter_map(|name| variations().find(|v| v.name == name.value)).collect(),
        };
        for (setting, number) in &scenario.serving.settings {
            let n = *number as usize;
            let config = &mut script.config;
            match setting.value {
                Setting::KvsnameMax => config.kvsname_max = n,
                Setting::KeylenMax => config.keylen_max = n,
                Setting::VallenMax => config.vallen_max = n,
                // Behind the prefix stand a dash and the number of the group.
                Setting::KvsnameLength => {
                    let missing = n.saturating_sub(config.kvs_prefix.len() + 2);
                    config.kvs_prefix.push_str(&"n".repeat(missing));
                }
                Setting::Delay => script.delay = Duration::from_millis(u64::from(*number)),
            }
        }
        let first = scenario.requires.first().map(|r| r.value.clone()).unwrap_or_default();
        let mut writer = Writer { script: &mut script, scenario, fragment, first, scope: Scope::default() };
        writer.body(&scenario.body, None, DEPTH)?;
        Ok(script)
    }

    fn of(&self, p: ProcId) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| concerns(&place.who, p))
    }

    /// The name of a group's keyval space, as the server gives it unless a variation or a fault makes it another.
    fn kvsname(&self, group: u32) -> Vec<u8> {
        format!("{}-{group}", self.config.kvs_prefix).into_bytes()
    }

    /// What is done at the requests of a process, in order.
    pub(super) fn rules(&self, p: ProcId, size: u32) -> Vec<Rule> {
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
    pub(super) fn expectations(&self, p: ProcId) -> Vec<Expectation> {
        let expectation = |place: &Place| match &place.entry {
            Entry::Expect(what) => {
                Some(Expectation { what: *what, line: place.line, cites: place.cites.clone() })
            }
            _ => None,
        };
        self.of(p).filter_map(expectation).collect()
    }

    /// The variables that a process finds changed.
    pub(super) fn environment(&self, p: ProcId, size: u32) -> Vec<(String, Option<String>)> {
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

fn concerns(who: &Who, p: ProcId) -> bool {
    match who {
        Who::Job => false,
        Who::Ranks { group, .. } if *group != p.group => false,
        Who::Ranks { set: RankSet::All, .. } => true,
        Who::Ranks { set: RankSet::Ranges(ranges), .. } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&p.rank))
        }
    }
}

struct Writer<'a> {
    script: &'a mut Script,
    scenario: &'a Scenario,
    fragment: &'a dyn Fn(&str) -> Option<Arc<Scenario>>,
    /// The requirement that a step cites which names none.
    first: String,
    scope: Scope,
}

impl Writer<'_> {
    /// `line` is that of the `use` that we are in.
    fn body(&mut self, body: &[Stmt], line: Option<usize>, depth: usize) -> Result<(), (usize, String)> {
        let line_of = |start: usize| line.unwrap_or_else(|| self.scenario.source.line_of(start));
        for stmt in body {
            match stmt {
                Stmt::Use(name) => {
                    let at = line_of(name.span.start);
                    let fragment = (self.fragment)(&name.value).filter(|_| depth > 0);
                    let fragment =
                        fragment.ok_or_else(|| (at, format!("fragment {} cannot be used", name.value)))?;
                    self.body(&fragment.body, Some(at), depth - 1)?;
                }
                Stmt::Let { name, value } => {
                    let text = self.scope.text(value).map_err(|e| (line_of(name.span.start), e.0))?;
                    self.scope.set(&name.value, text);
                }
                Stmt::Repeat { count, var, body, span } => {
                    let at = line_of(span.start);
                    let count = self.scope.number(count).map_err(|ScenarioError(what)| (at, what))?;
                    for i in 0..count {
                        if let Some(var) = var {
                            self.scope.set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(body, line, depth.checked_sub(1).ok_or((at, "too deep".to_owned()))?)?;
                    }
                }
                Stmt::Step(step) => {
                    let at = line_of(step.span.start);
                    let entry = entry(step).ok_or((at, "no step for a client under test".to_owned()))?;
                    if self.script.places.len() == STEPS {
                        return Err((at, format!("more than {STEPS} steps")));
                    }
                    self.script.places.push(Place {
                        who: step.who.clone(),
                        entry,
                        line: at,
                        cites: step.cites.as_ref().map_or_else(|| self.first.clone(), |id| id.value.clone()),
                        scope: self.scope.clone(),
                    });
                }
            }
        }
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
