//! The table as it is written, and its cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::walk::{self, Played};
use crate::UnderTest;
use crate::ast::Need;
use crate::suite::Suite;

/// The rules of RFC 13's grammar that arguments have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// Visible characters without an equals sign.
    Word,
    /// Visible characters, blanks and tabs.
    String,
    /// Digits.
    Uint,
}

/// An argument of an operation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    /// Its key, with `N` in the place of an index.
    pub(super) name: String,
    pub(super) rule: Rule,
    /// The limit that get_maxes announces for it.
    pub(super) limit: Option<String>,
}

/// An operation, by its command word.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Operation {
    pub(super) name: String,
    /// In the order of RFC 13's grammar.
    #[serde(default)]
    pub(super) arguments: Vec<Argument>,
    /// Whether what one process does by it is seen by others, so that it matters who they are.
    #[serde(default)]
    pub(super) reads: bool,
}

/// A kind of value of an argument.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    /// The rules whose arguments have it.
    of: Vec<Rule>,
    /// Whether only arguments with (or without) a limit have it.
    limited: Option<bool>,
    /// Whether arguments that stand there for each index have it.
    #[serde(default = "yes")]
    numbered: bool,
}

fn yes() -> bool {
    true
}

/// Cells that nobody plays, and why.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Excluded {
    /// Names of cells; `*` stands for anything.
    cells: Vec<String>,
    why: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    operation: Vec<Operation>,
    state: BTreeMap<String, String>,
    kind: BTreeMap<String, Kind>,
    times: BTreeMap<String, u32>,
    place: BTreeMap<String, String>,
    framing: BTreeMap<String, String>,
    #[serde(default)]
    excluded: Vec<Excluded>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Inputs(File);

/// What is wrong with the table.
#[derive(Debug)]
pub struct InputsError(String);

impl fmt::Display for InputsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InputsError {}

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
    /// The table of the suite.
    ///
    /// # Errors
    ///
    /// Never for a binary that passed its own tests.
    pub fn embedded() -> Result<Self, InputsError> {
        Self::parse(include_str!("../../scenarios/inputs.toml"))
    }

    /// Reads a table.
    ///
    /// # Errors
    ///
    /// It is no table, or it has words that no request is ever found to be.
    pub fn parse(text: &str) -> Result<Self, InputsError> {
        let file: File = toml::from_str(text).map_err(|e| InputsError(e.to_string()))?;
        let known = [
            ("state", file.state.keys().collect::<Vec<_>>(), walk::STATES),
            ("kind", file.kind.keys().collect(), super::classify::KINDS),
            ("times", file.times.keys().collect(), walk::TIMES),
            ("place", file.place.keys().collect(), walk::PLACES),
            ("framing", file.framing.keys().collect(), walk::FRAMINGS),
        ];
        for (axis, words, known) in known {
            let stranger = words.into_iter().find(|word| !known.contains(&word.as_str()));
            if let Some(word) = stranger {
                return Err(InputsError(format!("{axis}: nothing is ever found to be \"{word}\"")));
            }
        }
        Ok(Self(file))
    }

    pub(super) fn operation(&self, name: &str) -> Option<&Operation> {
        self.0.operation.iter().find(|operation| operation.name == name)
    }

    /// From how many times on a word for a number of times applies.
    pub(super) fn times(&self) -> &BTreeMap<String, u32> {
        &self.0.times
    }

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
            self.0.excluded.iter().flat_map(|e| e.cells.iter().map(String::as_str)).collect();
        let mut cells = Vec::new();
        for (axis, name) in self.names() {
            let excluded = self.0.excluded.iter().find_map(|e| {
                let pattern = e.cells.iter().find(|pattern| fits(pattern, &name))?;
                Some((pattern, &e.why))
            });
            let list = |all: &BTreeSet<String>| all.iter().cloned().collect();
            let status = match (surely.get(&name), perhaps.get(&name), excluded) {
                (Some(scenarios), _, _) => Status::Covered { scenarios: list(scenarios) },
                (None, Some(scenarios), _) => Status::IfItGoesOn { scenarios: list(scenarios) },
                (None, None, Some((pattern, why))) => {
                    idle.remove(pattern.as_str());
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

/// Whether a name fits a pattern, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| fits(rest, &name[at..]))
        }),
    }
}
