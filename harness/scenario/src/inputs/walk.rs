//! A scenario walked through with nobody at the other end: its fragments and repetitions written out, and its names bound. What a
//! step plays of the table is for the one who reads it.

use pmi_wire::Proc;

use super::axes::Inputs;
use crate::UnderTest;
use crate::ast::{RankSet, Scenario, Spanned, Step, Stmt, Template, Who};
use crate::scope::Scope;
use crate::suite::Suite;

/// Repetitions beyond this teach nothing.
const REPEATS: i64 = 2000;

/// The name of a keyval space as the reference gives it, which scenarios for clients find bound.
pub(super) const KVS: &str = "kvs";

/// What begins the cell of a job whose keyval space is given the name that follows.
pub(super) const JOB: &str = "my_kvsname/job/";

/// A cell that a scenario plays.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Played {
    pub(super) cell: String,
    /// Whether it is played whatever the one under test lawfully does before.
    pub(super) sure: bool,
}

/// Where a walk is.
pub(super) struct Walk<'a> {
    suite: &'a Suite,
    pub(super) inputs: &'a Inputs,
    pub(super) scope: Scope,
    /// Sizes of the groups, spawned ones behind the first.
    pub(super) sizes: Vec<u32>,
    pub(super) played: Vec<Played>,
}

/// Whoever knows what a step plays.
pub(super) trait Reader {
    /// A step of one process, which the scope has entered.
    fn step(&mut self, walk: &mut Walk<'_>, p: Proc, step: &Step);
}

/// The cells that a scenario plays, each once.
pub(super) fn play(
    scenario: &Scenario,
    suite: &Suite,
    inputs: &Inputs,
    reader: &mut dyn Reader,
) -> Vec<Played> {
    let mut walk =
        Walk { suite, inputs, scope: Scope::of(scenario), sizes: vec![scenario.ranks], played: Vec::new() };
    walk.scope.set_agent(b"/agent".to_vec());
    if scenario.tests == UnderTest::Client {
        walk.scope.set(KVS, b"kvs_0".to_vec());
    }
    walk.body(&scenario.body, reader);
    let mut played = walk.played;
    played.sort_by(|a, b| (&a.cell, !a.sure).cmp(&(&b.cell, !b.sure)));
    played.dedup_by(|b, a| a.cell == b.cell);
    played
}

impl Walk<'_> {
    fn body(&mut self, body: &[Stmt], reader: &mut dyn Reader) {
        for statement in body {
            match statement {
                Stmt::Use { name, with } => self.fragment(&name.value, with, reader),
                Stmt::Let { name, value } => {
                    let text = self.scope.text(value).unwrap_or_default();
                    self.scope.set(&name.value, text);
                }
                Stmt::Repeat { count, var, body, .. } => {
                    for i in 0..self.scope.number(count).unwrap_or(1).min(REPEATS) {
                        if let Some(var) = var {
                            self.scope.set(&var.value, i.to_string().into_bytes());
                        }
                        self.body(body, reader);
                    }
                }
                Stmt::Step(step) => {
                    for p in self.who(&step.who) {
                        self.scope.enter(p.rank, self.size(p.group));
                        reader.step(self, p, step);
                    }
                }
            }
        }
    }

    fn fragment(&mut self, name: &str, with: &[(Spanned<String>, Template)], reader: &mut dyn Reader) {
        let Some(fragment) = self.suite.fragment(name) else { return };
        let told: Vec<(&str, &Template)> = fragment
            .takes
            .iter()
            .filter_map(|parameter| {
                let said = with.iter().find(|(name, _)| name.value == parameter.name.value);
                let value = said.map(|(_, value)| value).or(parameter.default.as_ref())?;
                Some((parameter.name.value.as_str(), value))
            })
            .collect();
        let Ok(before) = self.scope.tell(&told) else { return };
        self.body(&fragment.body, reader);
        self.scope.restore(before);
    }

    /// The processes that a step is about.
    fn who(&self, who: &Who) -> Vec<Proc> {
        let (group, set) = match who {
            Who::Job | Who::Ranks { group: Proc::PROXIES | Proc::STRAYS, .. } => return Vec::new(),
            Who::Ranks { group, set } => (*group, set),
            Who::Spawned { number, set } => {
                let number = self.scope.var(&number.value).unwrap_or_default();
                (std::str::from_utf8(&number).ok().and_then(|n| n.parse().ok()).unwrap_or(1), set)
            }
        };
        let size = self.size(group);
        match set {
            RankSet::All => (0..size).map(|rank| Proc { group, rank }).collect(),
            RankSet::Ranges(ranges) => {
                ranges.iter().flat_map(|(a, b)| *a..=*b).map(|rank| Proc { group, rank }).collect()
            }
        }
    }

    fn size(&self, group: u32) -> u32 {
        self.sizes.get(group as usize).copied().unwrap_or(1)
    }

    pub(super) fn plays(&mut self, cells: impl IntoIterator<Item = String>, sure: bool) {
        self.played.extend(cells.into_iter().map(|cell| Played { cell, sure }));
    }
}
