//! The axes of a table as `inputs.toml` and `replies.toml` have them, for every protocol.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::UnderTest;
use crate::ast::Dialect;
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
    "newline",
    "nul",
    "longest",
    "one-more",
    "long",
    "far-too-long",
    "zero",
    "tiny",
    "leading-zeros",
    "negative",
    "huge",
    "not-a-number",
    "lower-case",
    "not-a-boolean",
    "repeated",
];

/// All numbers of times.
pub(super) const TIMES: &[&str] =
    &["once", "twice", "dozen", "hundreds", "same-twice", "same-dozen", "same-hundreds"];

/// All other axes, each with the words that are told apart on it.
pub(super) const AXES: &[(&str, &[&str])] = &[
    (
        "state",
        &[
            "before-init",
            "before-fullinit",
            "after-init",
            "after-put",
            "after-barrier",
            "after-fence",
            "while-waiting",
            "after-refusal",
            "after-finalize",
            "in-spawned-group",
        ],
    ),
    (
        "place",
        &[
            "first-rank",
            "other-rank",
            "other-node",
            "of-own",
            "of-other-rank",
            "of-other-node",
            "of-other-group",
        ],
    ),
    (
        "framing",
        &[
            "order",
            "rc-last",
            "extra",
            "extra-known",
            "thrid",
            "thrid-later",
            "command-not-first",
            "blanks",
            "length-left",
            "length-zeros",
            "header-split",
            "header-apart",
            "split",
            "newline-apart",
            "terminator-apart",
            "bytewise",
            "several",
            "cr-lf",
            "long",
            "unfinished",
        ],
    ),
    (
        "outcome",
        &[
            "with-rc",
            "without-rc",
            "with-msg",
            "without-values",
            "nothing-said",
            "refused",
            "refused-with-msg",
            "refused-with-values",
            "not-found",
            "not-found-with-values",
        ],
    ),
    (
        "instead",
        &[
            "closed",
            "never",
            "garbage",
            "empty-line",
            "no-command",
            "other-reply",
            "request-back",
            "twice",
            "unasked",
            "length-negative",
            "length-not-a-number",
            "length-blank",
            "length-zero",
            "length-short",
            "length-long",
            "line",
            "no-terminator",
            "no-equals",
            "lone-semicolon",
            "cut-in-header",
            "cut-behind-header",
            "cut-in-body",
        ],
    ),
    (
        "malformed",
        &[
            "length-negative",
            "length-with-plus",
            "length-not-a-number",
            "length-blank",
            "length-zero",
            "length-short",
            "length-long",
            "line",
            "no-terminator",
            "lone-semicolon",
            "no-equals",
            "no-command",
            "unknown-command",
            "cut-in-header",
            "cut-behind-header",
            "cut-in-body",
        ],
    ),
    (
        "miss",
        &[
            "after-init",
            "after-put",
            "after-fence",
            "while-waiting",
            "after-refusal",
            "in-spawned-group",
            "other-rank",
            "other-node",
        ],
    ),
    ("version", &["equal", "lower-minor", "higher-minor", "lower-major", "higher-major"]),
    ("count", &["as-asked", "fewer", "more", "none"]),
    ("job", &["again"]),
];

/// Axes that only those operations have that name them.
const RARE: &[&str] = &["version", "count", "job", "miss", "malformed"];

/// The rules of the grammar that arguments have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ArgumentRule {
    /// Visible characters without an equals sign.
    Word,
    /// Visible characters, blanks and tabs.
    String,
    /// Digits.
    Uint,
    /// Digits, with a sign or without.
    Int,
    /// `TRUE` or `FALSE`, which PMI-2's draft has in small letters.
    Bool,
    /// Integers with commas between them.
    IntList,
}

/// An argument of an operation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    /// Its key, with `N` in the place of an index.
    pub(super) name: String,
    pub(super) rule: ArgumentRule,
    /// The limit that get_maxes announces for it, or that PMI-2's draft sets.
    pub(super) limit: Option<String>,
}

/// How many bytes texts of a limited argument may have, with a terminating NUL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) kvsname: usize,
    pub(super) key: usize,
    pub(super) value: usize,
}

impl Limits {
    pub(super) fn of(self, argument: &Argument) -> Option<usize> {
        Some(
            match argument.limit.as_deref()? {
                "kvsname_max" => self.kvsname,
                "keylen_max" => self.key,
                _ => self.value,
            } - 1,
        )
    }
}

/// An operation, by its command word.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Operation {
    pub(super) name: String,
    /// In the order of the grammar.
    #[serde(default)]
    pub(super) arguments: Vec<Argument>,
    /// Whether what one process does by it is seen by others, so that it matters who they are.
    #[serde(default)]
    pub(super) reads: bool,
    /// The axes that make cells with it, if not all but the rare ones.
    pub(super) axes: Option<Vec<String>>,
}

impl Operation {
    /// Whether it has more to say than how it went.
    pub(super) fn has_values(&self) -> bool {
        self.arguments.iter().any(|argument| is_value(&argument.name))
    }

    pub(super) fn has_argument(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument.name == name)
    }

    /// Whether an axis makes cells with it.
    pub(super) fn has(&self, axis: &str) -> bool {
        match &self.axes {
            Some(axes) => axes.iter().any(|a| a == axis),
            None => !RARE.contains(&axis),
        }
    }
}

/// Whether what a reply has under this key is what was asked for, and not how it went.
pub(super) fn is_value(key: &str) -> bool {
    !matches!(key, "rc" | "msg" | "errmsg" | "found")
}

/// A kind of value of an argument.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kind {
    /// The rules whose arguments have it.
    pub(super) of: Vec<ArgumentRule>,
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
    /// Who is under test where this holds, if not everybody whose table it is.
    pub(super) tests: Option<UnderTest>,
    /// Names of cells; `*` stands for anything.
    pub(super) cells: Vec<NamePattern>,
    pub(super) why: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct File {
    pub(super) operation: Vec<Operation>,
    pub(super) kind: BTreeMap<String, Kind>,
    pub(super) times: BTreeMap<String, u32>,
    /// The cells that a server plays which a scenario sets up to have a variation or a fault, by its name; `reference` is one that has
    /// none.
    #[serde(default)]
    pub(super) server: BTreeMap<String, Vec<NamePattern>>,
    #[serde(default)]
    pub(super) excluded: Vec<Excluded>,
    /// All other axes: what their words mean.
    #[serde(flatten)]
    pub(super) axes: BTreeMap<String, BTreeMap<String, String>>,
}

/// A table: what one kind of implementation may be asked or told in a protocol.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Whose table it is.
    pub tests: UnderTest,
    /// What is spoken.
    pub dialect: Dialect,
    pub(super) file: File,
}

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
    /// The tables of the suite: for servers, clients and libraries, in each protocol.
    ///
    /// # Errors
    ///
    /// Never for a binary that passed its own tests.
    pub fn embedded() -> Result<Vec<Self>, InputsError> {
        let each = [UnderTest::Server, UnderTest::Client, UnderTest::Library];
        let tables = Dialect::NAMES.into_iter().flat_map(|(_, dialect)| each.map(|tests| (tests, dialect)));
        tables.map(|(tests, dialect)| Self::of(tests, dialect)).collect()
    }

    /// The table of the suite for one kind of implementation and one protocol.
    ///
    /// # Errors
    ///
    /// Never for a binary that passed its own tests.
    pub fn of(tests: UnderTest, dialect: Dialect) -> Result<Self, InputsError> {
        let text = match (dialect, tests) {
            (Dialect::Pmi1, UnderTest::Server) => include_str!("../../scenarios/inputs.toml"),
            (Dialect::Pmi1, _) => include_str!("../../scenarios/replies.toml"),
            (Dialect::Pmi2, UnderTest::Server) => include_str!("../../scenarios/pmi2/inputs.toml"),
            (Dialect::Pmi2, _) => include_str!("../../scenarios/pmi2/replies.toml"),
        };
        Self::parse(tests, dialect, text)
    }

    /// Reads a table.
    ///
    /// # Errors
    ///
    /// It is no table, or it has words that no message is ever found to be.
    pub fn parse(tests: UnderTest, dialect: Dialect, text: &str) -> Result<Self, InputsError> {
        let mut file: File = toml::from_str(text).map_err(|e| InputsError(e.to_string()))?;
        file.excluded.retain(|excluded| excluded.tests.is_none_or(|t| t == tests));
        let mut words = vec![
            ("kind", file.kind.keys().collect::<Vec<_>>(), KINDS),
            ("times", file.times.keys().collect(), TIMES),
        ];
        for (axis, meanings) in &file.axes {
            let known = AXES.iter().find(|(name, _)| name == axis);
            let known = known.ok_or_else(|| InputsError(format!("there is no axis \"{axis}\"")))?;
            words.push((known.0, meanings.keys().collect(), known.1));
        }
        let named = file.operation.iter().flat_map(|operation| operation.axes.iter().flatten());
        let is_axis =
            |name: &str| matches!(name, "kind" | "times") || AXES.iter().any(|(axis, _)| *axis == name);
        if let Some(axis) = named.into_iter().find(|axis| !is_axis(axis)) {
            return Err(InputsError(format!("there is no axis \"{axis}\"")));
        }
        for (axis, words, known) in words {
            let stranger = words.into_iter().find(|word| !known.contains(&word.as_str()));
            if let Some(word) = stranger {
                return Err(InputsError(format!("{axis}: nothing is ever found to be \"{word}\"")));
            }
        }
        Ok(Self { tests, dialect, file })
    }

    /// The servers that scenarios for clients set up, with the cells that they are said to play.
    pub fn servers(&self) -> impl Iterator<Item = (&str, &[NamePattern])> {
        self.file.server.iter().map(|(name, cells)| (name.as_str(), cells.as_slice()))
    }

    /// The same table with nothing excluded.
    #[must_use]
    pub fn unexcluded(mut self) -> Self {
        self.file.excluded.clear();
        self
    }

    pub(super) fn operation(&self, name: &str) -> Option<&Operation> {
        self.file.operation.iter().find(|operation| operation.name == name)
    }

    /// How long limited texts may be.
    pub(super) fn limits(&self) -> Limits {
        match self.dialect {
            Dialect::Pmi1 => Limits { kvsname: 256, key: 64, value: 1024 },
            // PMI_MAX_KEYLEN and PMI_MAX_VALLEN, and a NUL behind them.
            Dialect::Pmi2 => Limits { kvsname: 0, key: 65, value: 1025 },
        }
    }

    /// From how many times on a word for a number of times applies.
    pub(super) fn times(&self) -> &BTreeMap<String, u32> {
        &self.file.times
    }
}
