//! The cells of the table, and what scenarios play of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::axes::{Inputs, InputsError, Kind};
use super::walk::{self, Played};
use crate::UnderTest;
use crate::ast::Need;
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
        for operation in &self.0.operation {
            let name = &operation.name;
            let all = |words: Vec<&String>, axis: &'static str| {
                words.into_iter().map(move |word| (axis, format!("{name}/{axis}/{word}"))).collect::<Vec<_>>()
            };
            cells.extend(all(self.0.state.keys().collect(), "state"));
            for argument in &operation.arguments {
                let has = |kind: &Kind| {
                    kind.of.contains(&argument.rule)
                        && (kind.numbered || !argument.name.ends_with('N'))
                        && kind.limited.is_none_or(|limited| limited == argument.limit.is_some())
                };
                let kinds = self.0.kind.iter().filter(|(_, kind)| has(kind));
                cells
                    .extend(kinds.map(|(kind, _)| ("kind", format!("{name}.{}/kind/{kind}", argument.name))));
            }
            let again = |word: &&String| !word.starts_with("same-") || !operation.arguments.is_empty();
            cells.extend(all(self.0.times.keys().filter(again).collect(), "times"));
            let seen = |word: &&String| !word.starts_with("of-") || operation.reads;
            cells.extend(all(self.0.place.keys().filter(seen).collect(), "place"));
            cells.extend(all(self.0.framing.keys().collect(), "framing"));
        }
        cells
    }

    /// All cells, with what the scenarios of a suite play of them.
    ///
    /// # Errors
    ///
    /// An exclusion fits no cell that nobody plays.
    pub fn cells(&self, suite: &Suite) -> Result<Vec<Cell>, InputsError> {
        let mut surely: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut perhaps = surely.clone();
        for scenario in suite.testing(UnderTest::Server) {
            if scenario.needs.iter().any(|need| need.value == Need::Upstream) {
                continue;
            }
            for Played { cell, sure } in walk::scenario(scenario, suite, self) {
                let side = if sure { &mut surely } else { &mut perhaps };
                side.entry(cell).or_default().insert(scenario.name.clone());
            }
        }
        let mut idle: BTreeSet<&str> =
            self.0.excluded.iter().flat_map(|e| e.cells.iter().map(NamePattern::text)).collect();
        let mut cells = Vec::new();
        for (axis, name) in self.names() {
            let excluded = self.0.excluded.iter().find_map(|e| {
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
            cells.push(Cell { name, axis, status });
        }
        match idle.first() {
            Some(pattern) => {
                Err(InputsError(format!("excluded: \"{pattern}\" is no cell, or scenarios play all of them")))
            }
            None => Ok(cells),
        }
    }
}
