//! The cells of the table, and what scenarios play of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::axes::{AXES, Inputs, InputsError, Kind};
use super::walk::{JOB, Played};
use super::{replies, requests};
use crate::UnderTest;
use crate::ast::{Dialect, Need, Scenario};
use crate::names::NamePattern;
use crate::suite::Suite;

/// What is known of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Status {
    /// These scenarios play it, whatever the server lawfully does before.
    Covered {
        /// Their names, with rows.
        scenarios: Vec<String>,
    },
    /// These scenarios play it, but only if the server has not lawfully closed the connection before.
    IfItGoesOn {
        /// Their names, with rows.
        scenarios: Vec<String>,
    },
    /// Nobody plays it, for a reason.
    Excluded {
        /// The reason.
        why: String,
    },
    /// Nobody plays it.
    Open,
}

/// A combination of an operation, or one of its arguments, with a value of another axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Who is under test.
    pub tests: UnderTest,
    /// What is spoken.
    pub dialect: Dialect,
    /// `OPERATION/AXIS/VALUE`, or `OPERATION.ARGUMENT/kind/VALUE`.
    pub name: String,
    /// The axis that the operation or argument is combined with.
    pub axis: &'static str,
    /// What is known of it.
    #[serde(flatten)]
    pub status: Status,
}

impl Inputs {
    fn names(&self) -> Vec<(&'static str, String)> {
        let mut cells = Vec::new();
        for operation in &self.file.operation {
            let name = &operation.name;
            for argument in operation.arguments.iter().filter(|_| operation.has("kind")) {
                let has = |kind: &Kind| {
                    kind.of.contains(&argument.rule)
                        && (kind.numbered || !argument.name.ends_with('N'))
                        && kind.limited.is_none_or(|limited| limited == argument.limit.is_some())
                };
                let kinds = self.file.kind.iter().filter(|(_, kind)| has(kind));
                cells
                    .extend(kinds.map(|(kind, _)| ("kind", format!("{name}.{}/kind/{kind}", argument.name))));
            }
            let again = |word: &&String| !word.starts_with("same-") || !operation.arguments.is_empty();
            let times = self.file.times.keys().filter(again).filter(|_| operation.has("times"));
            cells.extend(times.map(|word| ("times", format!("{name}/times/{word}"))));
            for (axis, _) in AXES.iter().filter(|(axis, _)| operation.has(axis)) {
                let seen = |word: &&String| match word.as_str() {
                    "nothing-said" | "without-values" | "refused-with-values" => operation.has_values(),
                    "not-found" | "not-found-with-values" => operation.has_argument("found"),
                    word => !word.starts_with("of-") || operation.reads,
                };
                let words = self.file.axes.get(*axis).into_iter().flat_map(BTreeMap::keys).filter(seen);
                cells.extend(words.map(|word| (*axis, format!("{name}/{axis}/{word}"))));
            }
        }
        cells
    }

    /// What a scenario plays.
    fn played(&self, scenario: &Scenario, suite: &Suite, names: &[(&str, String)]) -> Vec<Played> {
        if self.tests == UnderTest::Server {
            return requests::played(scenario, suite, self);
        }
        let mut played = replies::played(scenario, suite, self);
        for (server, sure) in replies::servers(scenario) {
            let patterns = self.file.server.get(server).map_or(&[][..], Vec::as_slice);
            let fits = names.iter().filter(|(_, name)| patterns.iter().any(|pattern| pattern.fits(name)));
            played.extend(fits.map(|(_, cell)| Played { cell: cell.clone(), sure }));
        }
        played
    }

    /// All cells, with what the scenarios of a suite play of them.
    ///
    /// # Errors
    ///
    /// An exclusion fits no cell that nobody plays.
    pub fn cells(&self, suite: &Suite) -> Result<Vec<Cell>, InputsError> {
        let mut surely: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut perhaps: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let names = self.names();
        for scenario in suite.testing(self.tests).filter(|scenario| scenario.dialect == self.dialect) {
            if scenario.needs.iter().any(|need| need.value == Need::Upstream) {
                continue;
            }
            for Played { cell, sure } in self.played(scenario, suite, &names) {
                let side = if sure { &mut surely } else { &mut perhaps };
                side.entry(cell).or_default().insert(scenario.name.clone());
            }
        }
        for side in [&mut surely, &mut perhaps] {
            // It takes two jobs to have one name.
            let (named, rest) = std::mem::take(side).into_iter().partition(|(cell, _)| cell.starts_with(JOB));
            let named: BTreeMap<String, BTreeSet<String>> = named;
            *side = rest;
            let again: BTreeSet<String> =
                named.into_values().filter(|jobs| jobs.len() > 1).flatten().collect();
            if !again.is_empty() {
                side.insert(format!("{JOB}again"), again);
            }
        }
        let mut idle: BTreeSet<&str> =
            self.file.excluded.iter().flat_map(|e| e.cells.iter().map(NamePattern::text)).collect();
        let mut cells = Vec::new();
        for (axis, name) in names {
            let excluded = self.file.excluded.iter().find_map(|e| {
                let pattern = e.cells.iter().find(|pattern| pattern.fits(&name))?;
                Some((pattern, &e.why))
            });
            let list = |all: &BTreeSet<String>| all.iter().cloned().collect();
            let status = match (surely.get(&name), perhaps.get(&name), excluded) {
                (Some(scenarios), _, _) => Status::Covered { scenarios: list(scenarios) },
                (None, Some(scenarios), _) => Status::IfItGoesOn { scenarios: list(scenarios) },
                (None, None, Some((pattern, why))) => {
                    idle.remove(pattern.text());
                    Status::Excluded { why: why.clone() }
                }
                (None, None, None) => Status::Open,
            };
            cells.push(Cell { tests: self.tests, dialect: self.dialect, name, axis, status });
        }
        match idle.first() {
            Some(pattern) => {
                Err(InputsError(format!("excluded: \"{pattern}\" is no cell, or scenarios play all of them")))
            }
            None => Ok(cells),
        }
    }
}
