//! The axes of a table as `inputs.toml` and `replies.toml` have them, for every protocol.

use std::collections::BTreeMap;
use std::fmt;

use pmi_wire::Framing;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{self, Field};
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

/// The variables that a process finds in its environment.
const VARIABLES: [&str; 4] = ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_SPAWNED"];

/// Axes that only those operations have that name them.
const RARE: &[&str] = &["version", "count", "job", "miss", "malformed"];

/// An argument of an operation: a field of a request or of a response, or a variable of the environment.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    /// Its key, with `N` in the place of an index.
    pub(super) name: String,
    pub(super) rule: Rule,
    /// The limit that get_maxes announces for it, or that PMI-2's draft sets.
    pub(super) limit: Option<&'static str>,
}

impl From<&'static Field> for Argument {
    fn from(field: &'static Field) -> Self {
        let name = if field.numbered { format!("{}N", field.key) } else { field.key.to_owned() };
        // RFC 13 calls a port a word, and that is what is tried.
        let rule = if field.rule == Rule::Visible { Rule::Word } else { field.rule };
        Self { name, rule, limit: field.limit }
    }
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
            match argument.limit? {
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
    /// Whether what one process does by it is seen by others, so that it matters who they are.
    #[serde(default)]
    pub(super) reads: bool,
    /// The axes that make cells with it, if not all but the rare ones.
    pub(super) axes: Option<Vec<String>>,
    /// The names of the arguments that make cells, if not all that the protocol table has.
    #[serde(default, rename = "arguments")]
    selection: Option<Vec<String>>,
    /// In the order of the grammar.
    #[serde(skip)]
    pub(super) arguments: Vec<Argument>,
}

impl Operation {
    /// Looks up the arguments in the protocol table.
    fn resolve(&mut self, tests: UnderTest, framing: Framing) -> Result<(), InputsError> {
        let name = self.name.as_bytes();
        let is_request = tests == UnderTest::Server;
        let row = |framing| {
            let fields = match is_request {
                true => protocol::by_request(framing, name)?.arguments,
                false => protocol::by_response(framing, name)?.results,
            };
            Some((framing, protocol::without_extensions(fields)))
        };
        let mut known: Vec<Argument> = Vec::new();
        if let Some((framing, fields)) = row(framing).or_else(|| row(Framing::Lines)) {
            let common = if is_request { protocol::common_arguments } else { protocol::common_results };
            known.extend(common(framing).iter().map(Argument::from));
            let own: Vec<Argument> = fields.map(Argument::from).collect();
            if self.selection.is_none() {
                self.arguments.clone_from(&own);
                // RFC 13 has it first, the draft of PMI-2 last.
                let at = if framing == Framing::Lines { 0 } else { own.len() };
                let rc = known.iter().filter(|argument| argument.name == "rc").cloned();
                self.arguments.splice(at..at, rc);
            }
            known.extend(own);
        }
        known.extend(VARIABLES.map(|name| Argument { name: name.to_owned(), rule: Rule::Uint, limit: None }));
        for name in self.selection.iter().flatten() {
            let argument = known.iter().find(|argument| argument.name == *name);
            let unknown =
                || InputsError(format!("{}: the protocol table has no field \"{name}\"", self.name));
            self.arguments.push(argument.ok_or_else(unknown)?.clone());
        }
        Ok(())
    }

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
        for operation in &mut file.operation {
            operation.resolve(tests, dialect.framing())?;
        }
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
