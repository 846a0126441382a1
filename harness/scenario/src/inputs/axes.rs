//! The axes of the table as `inputs.toml` has them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::names::NamePattern;

/// All kinds of values that are told apart.
pub(super) const KINDS: &[&str] = &[
    "plain",
    "missing",
    "empty",
    "blank-inside",
    "blank-in-front",
    "blank-behind",
    "tab",
    "equals",
    "semicolon",
    "backslash",
    "quote",
    "reserved",
    "like-keyword",
    "not-ascii",
    "control",
    "longest",
    "one-more",
    "long",
    "far-too-long",
    "zero",
    "leading-zeros",
    "negative",
    "huge",
    "not-a-number",
    "repeated",
];

/// All states that are told apart.
pub(super) const STATES: &[&str] = &[
    "before-init",
    "after-init",
    "after-put",
    "after-barrier",
    "after-refusal",
    "after-finalize",
    "in-spawned-group",
];

/// All numbers of times.
pub(super) const TIMES: &[&str] =
    &["once", "twice", "dozen", "hundreds", "same-twice", "same-dozen", "same-hundreds"];

/// All places.
pub(super) const PLACES: &[&str] =
    &["first-rank", "other-rank", "other-node", "of-own", "of-other-rank", "of-other-node", "of-other-group"];

/// All ways of writing a request.
pub(super) const FRAMINGS: &[&str] =
    &["order", "extra", "command-not-first", "blanks", "split", "newline-apart", "bytewise", "several"];

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
pub(super) struct Kind {
    /// The rules whose arguments have it.
    pub(super) of: Vec<Rule>,
    /// Whether only arguments with (or without) a limit have it.
    pub(super) limited: Option<bool>,
    /// Whether arguments that stand there for each index have it.
    #[serde(default = "yes")]
    pub(super) numbered: bool,
}

fn yes() -> bool {
    true
}

/// Cells that nobody plays, and why.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excluded {
    /// Names of cells; `*` stands for anything.
    pub(super) cells: Vec<NamePattern>,
    pub(super) why: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) operation: Vec<Operation>,
    pub(super) state: BTreeMap<String, String>,
    pub(super) kind: BTreeMap<String, Kind>,
    pub(super) times: BTreeMap<String, u32>,
    pub(super) place: BTreeMap<String, String>,
    pub(super) framing: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) excluded: Vec<Excluded>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Inputs(pub(super) File);

/// What is wrong with the table.
#[derive(Debug)]
pub struct InputsError(pub(super) String);

impl fmt::Display for InputsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InputsError {}

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
            ("state", file.state.keys().collect::<Vec<_>>(), STATES),
            ("kind", file.kind.keys().collect(), KINDS),
            ("times", file.times.keys().collect(), TIMES),
            ("place", file.place.keys().collect(), PLACES),
            ("framing", file.framing.keys().collect(), FRAMINGS),
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
}
