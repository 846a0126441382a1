//! The syntax tree of scenario files. The same tree is used for all kinds of tests. To test a server, the harness plays the clients. To
//! test a client, it plays the server. To test a library, it makes the calls and plays the server.

use std::sync::Arc;

pub use pmi_wire::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range in a file, as byte offsets into [`SourceFile::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset just past the last byte.
    pub end: usize,
}

/// The path and text of a scenario or fragment file. Both are empty for a tree that was not parsed from a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// Path as shown to the user; for an embedded file, relative to the suite's root.
    pub path: String,
    /// The text of the file.
    pub text: String,
}

impl SourceFile {
    /// Returns the 1-based number of the line that contains the byte at `offset`.
    pub fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|b| **b == b'\n').count()
    }

    /// Returns the 1-based column of the byte at `offset`, counted in characters.
    pub fn column_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
        // Count only the first byte of each UTF-8 character.
        1 + before[line..].iter().filter(|b| **b & 0xc0 != 0x80).count()
    }
}

/// A value from the tree, with its position in the file.
#[derive(Debug, Clone, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The position of the value.
    pub span: Span,
}

/// A scenario or fragment. Equality ignores positions and comments here, as it does everywhere in the tree.
#[derive(Debug, Clone, Eq)]
pub struct Scenario {
    /// The stable name: the path within the suite, without the file extension, e.g. `kvs/put-visible-after-barrier`.
    pub name: String,
    /// The lines of the leading comment block, without `#`.
    pub heading: Vec<String>,
    /// Requirements that the scenario tests. The first requirement applies to steps that cite no requirement.
    pub requires: Vec<Spanned<String>>,
    /// Capabilities that the implementation must have for the scenario to apply.
    pub needs: Vec<Spanned<Capability>>,
    /// The kind of implementation under test.
    pub tests: ImplementationKind,
    /// The dialect in which the scenario is played.
    pub dialect: Dialect,
    /// Other dialects in which the scenario is played, each under a different name.
    pub other_dialects: Vec<Dialect>,
    /// Size of the first process group.
    pub ranks: u32,
    /// Number of nodes over which the first process group is spread.
    pub nodes: u32,
    /// True for `schedule free`: each rank plays its next step as soon as its own responses have arrived, regardless of the other ranks.
    pub is_free: bool,
    /// The server that a client under test runs against.
    pub server_setup: ServerSetup,
    /// `takes NAME=TEXT ...`: the parameters of a fragment, with their defaults.
    pub parameters: Vec<Parameter>,
    /// `each TABLE but NAME ...`: the scenario is played once for each combination of a row of the table and a row of the file.
    pub each: Option<Each>,
    /// `in DIALECT NAME=TEXT ...`: names with values that depend on the dialect.
    pub dialect_words: Vec<(Dialect, TableRow)>,
    /// `row NAME ...`: the scenario is played once for each row.
    pub rows: Vec<TableRow>,
    /// The statements of the scenario's body.
    pub body: Vec<Statement>,
    /// Comments and blank lines, in the order of the file.
    pub comments: Vec<Comment>,
    /// The file from which the scenario was parsed.
    pub source: Arc<SourceFile>,
}

/// A comment or a run of blank lines, which the printer preserves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The kind of comment, with its text.
    pub kind: CommentKind,
    /// The position in the file.
    pub span: Span,
}

/// The kind of a [`Comment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentKind {
    /// One or more consecutive blank lines.
    Blank,
    /// A comment on its own line, without `#`.
    Line(String),
    /// A comment at the end of a head line or statement.
    Trailing {
        /// The text, without `#`.
        text: String,
        /// Offset at which the head line or statement begins.
        line: usize,
    },
}

impl Scenario {
    /// Returns the heading as a single paragraph.
    pub fn summary(&self) -> String {
        self.heading.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
    }

    /// Returns the name under which the scenario `name` is played for the row `row`.
    pub(super) fn name_of_row(name: &str, row: &str) -> String {
        format!("{name}[{row}]")
    }

    /// Splits the name of a played scenario into the names of its file and its row. The row is `None` if the file has no rows.
    pub fn split_row(name: &str) -> (&str, Option<&str>) {
        match name.split_once('[') {
            Some((file, row)) => (file, row.strip_suffix(']')),
            None => (name, None),
        }
    }

    /// Returns whether this is a fragment. Fragments are included with `use` and test nothing on their own.
    pub fn is_fragment(&self) -> bool {
        self.name.split('/').rev().skip(1).any(|folder| folder == "fragments")
    }
}

/// A parameter of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The name, without `$`.
    pub name: Spanned<String>,
    /// The default value. Without a default, every `use` must pass a value.
    pub default: Option<Template>,
}

/// A table whose rows are combined with the rows of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each {
    /// The name of the table: a fragment with rows, or [`Each::REQUEST`].
    pub table: Spanned<String>,
    /// The names of the rows to leave out.
    pub except: Vec<Spanned<String>>,
}

impl Each {
    /// The name of the built-in table. Its rows are the dialect's requests that have a response and a function in the C API.
    pub const REQUEST: &'static str = "request";
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow {
    /// The name of the row in reports.
    pub name: Spanned<String>,
    /// The names that the row binds, with their values.
    pub values: Vec<(Spanned<String>, Template)>,
}

impl TableRow {
    /// Returns the value to which this row binds `name`.
    pub(super) fn text(&self, name: &str) -> Option<&Template> {
        self.values.iter().find(|(other, _)| other.value == name).map(|(_, value)| value)
    }

    /// Returns the variation that this row selects for `vary $name`.
    pub(super) fn variation(&self, variation: &Spanned<String>) -> Option<Spanned<String>> {
        let name = variation.value.strip_prefix('$')?;
        let (name, value) = self.values.iter().find(|(other, _)| other.value == name)?;
        Some(Spanned { value: value.literal()?, span: name.span })
    }
}

/// The kind of implementation under test. The harness plays the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImplementationKind {
    /// A process manager: the harness sends requests and expects responses.
    Server,
    /// A program that speaks PMI: the harness expects requests and sends responses.
    Client,
    /// A PMI library: the harness makes the calls (`A:`), expects requests and sends responses.
    Library,
}

/// The side that acts in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The harness acts when it reaches the step.
    Harness,
    /// The harness waits for an action of the implementation under test.
    Implementation,
}

/// The configuration of the reference server for a client under test, or the launch of a server under test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSetup {
    /// True if the scenario sets the number of ranks. Otherwise, the user sets it.
    pub has_rank_count: bool,
    /// `vary NAME ...`: variations of the reference server. If NAME is `$name`, each row selects a variation.
    pub variations: Vec<Spanned<String>>,
    /// `fault NAME`: a fault of the reference server.
    pub fault: Option<Spanned<String>>,
    /// `serve NAME=NUMBER ...`: settings of the reference server.
    pub settings: Vec<(Spanned<Setting>, u32)>,
    /// `launch WORDS`, if a server is under test: the words that precede the launcher's command.
    pub launch: Option<Spanned<String>>,
}

/// A setting in a `serve` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// `kvsname_max`, in bytes, including the NUL.
    KvsnameMax,
    /// `keylen_max`, in bytes, including the NUL.
    KeylenMax,
    /// `vallen_max`, in bytes, including the NUL.
    VallenMax,
    /// `kvsname_length`: length of the names of keyval spaces.
    KvsnameLength,
    /// `delay`: waiting time before each response, in milliseconds.
    Delay,
    /// `first_write`: number of bytes in the first write of each response. The rest follows after the client has read these bytes.
    FirstWrite,
}

impl Setting {
    /// All settings, with their names in the scenario language.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("kvsname_max", Self::KvsnameMax),
        ("keylen_max", Self::KeylenMax),
        ("vallen_max", Self::VallenMax),
        ("kvsname_length", Self::KvsnameLength),
        ("delay", Self::Delay),
        ("first_write", Self::FirstWrite),
    ];

    pub(super) fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, setting)| *setting == self).map_or("", |(word, _)| word)
    }
}

/// An optional capability of an implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// `spawn`: support for spawn.
    Spawn,
    /// `names`: support for publish, unpublish and lookup.
    Names,
    /// `upstream`: the implementation is a bare proxy, and the harness plays its launcher.
    Upstream,
    /// `pmi-1.2`: PMI-1 with barriers over a subset of a process group.
    Pmi12,
    /// `keyval-spaces`: create_kvs, destroy_kvs and getbyidx, which are not part of RFC 13.
    KeyvalSpaces,
    /// `fd`: processes receive their connection through PMI_FD.
    Fd,
    /// `port`: processes connect to the address in PMI_PORT.
    Port,
    /// `singleton`: a process that was started without a process manager requests one.
    Singleton,
    /// `alone`: a library can be initialized without a process manager.
    Standalone,
}

impl Capability {
    /// All capabilities, with their names in the scenario language.
    pub const NAMES: [(&'static str, Self); 9] = [
        ("spawn", Self::Spawn),
        ("names", Self::Names),
        ("upstream", Self::Upstream),
        ("pmi-1.2", Self::Pmi12),
        ("keyval-spaces", Self::KeyvalSpaces),
        ("fd", Self::Fd),
        ("port", Self::Port),
        ("singleton", Self::Singleton),
        ("alone", Self::Standalone),
    ];

    /// Names that were removed from the language, for operations that only the PMI-2 draft describes.
    pub const REMOVED_WORDS: [&'static str; 5] = ["concat", "auth", "job-connect", "kvs-getall", "spawn-cmd"];

    /// Returns the capability's name in the scenario language.
    pub fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, need)| *need == self).map_or("", |(word, _)| word)
    }

    /// Returns whether the capability is an extension that no specification describes.
    pub fn is_extension(self) -> bool {
        self == Self::KeyvalSpaces
    }

    /// Returns whether the capability describes how the harness reaches the implementation, rather than an operation.
    pub fn is_connection_method(self) -> bool {
        matches!(self, Self::Upstream | Self::Fd | Self::Port | Self::Singleton)
    }

    /// Returns the operations that users may declare as supported or missing, with their names.
    pub fn optional_operations() -> impl Iterator<Item = (&'static str, Self)> + Clone {
        Self::NAMES.into_iter().filter(|(_, need)| !need.is_connection_method())
    }
}

/// A statement in the body of a scenario.
#[derive(Debug, Clone, Eq)]
pub enum Statement {
    /// `use NAME` or `use NAME(PARAMETER=TEXT, ...)`: includes the steps of a fragment.
    Use {
        /// The name of the fragment.
        name: Spanned<String>,
        /// The values of the fragment's parameters.
        with: Vec<(Spanned<String>, Template)>,
    },
    /// `let $name = TEMPLATE`.
    Let {
        /// The name, without `$`.
        name: Spanned<String>,
        /// The value, expanded when the statement is reached.
        value: Template,
    },
    /// `repeat COUNT [as $name]` ... `end`.
    Repeat {
        /// The number of repetitions.
        count: Expr,
        /// The name of the counter, if there is one. The counter starts at 0.
        var: Option<Spanned<String>>,
        /// The repeated statements.
        body: Vec<Statement>,
        /// The position of the `repeat` line.
        span: Span,
        /// The position of the `end` line.
        end: Span,
    },
    /// `only NAME ...` ... `end`: statements for the named rows or dialects. In other rows and dialects, these statements are removed
    /// before the scenario is played.
    Only {
        /// The rows or dialects.
        names: Vec<Spanned<String>>,
        /// The statements of the block.
        body: Vec<Statement>,
        /// The position of the `only` line.
        span: Span,
        /// The position of the `end` line.
        end: Span,
    },
    /// A step.
    Step(Step),
}

impl Statement {
    /// Returns the offset at which the statement begins; for `use` and `let`, the offset of the name.
    pub fn start(&self) -> usize {
        match self {
            Self::Use { name, .. } | Self::Let { name, .. } => name.span.start,
            Self::Repeat { span, .. } | Self::Only { span, .. } => span.start,
            Self::Step(step) => step.span.start,
        }
    }
}

/// A line of the body that describes an action, with its continuation lines.
#[derive(Debug, Clone, Eq)]
pub struct Step {
    /// The processes or the job to which the step applies.
    pub target: StepTarget,
    /// The party whose action the step describes.
    pub role: Role,
    /// The requirement that the step cites (`expect[id]`).
    pub cites: Option<Spanned<String>>,
    /// The action.
    pub action: StepAction,
    /// The position of the whole step.
    pub span: Span,
}

/// The target of a step: the job, or ranks in the order in which they are played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepTarget {
    /// The job as a whole (role `J`).
    Job,
    /// Ranks of one process group.
    Ranks {
        /// The group: 0 is the group that the launcher starts, 1 is the first spawned group (`child`), 2 is `child2`, and so on.
        /// [`Proc::PROXY_GROUP`](pmi_wire::Proc::PROXY_GROUP) contains the proxies of the first group, numbered by node.
        /// [`Proc::STRAY_GROUP`](pmi_wire::Proc::STRAY_GROUP) contains the stray connections.
        group: u32,
        /// The ranks within the group.
        set: RankSet,
    },
    /// `child$NAME:...`, in a fragment: ranks of a spawned group. The value of `$NAME` is the group's number.
    Spawned {
        /// The name, without `$`.
        number: Spanned<String>,
        /// The ranks within the group.
        set: RankSet,
    },
}

/// A set of ranks, in the order in which they are played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankSet {
    /// `*`: all ranks, in ascending order.
    All,
    /// `2,0,1` or `1-3`: inclusive ranges, in the order in which they are written.
    Ranges(Vec<(u32, u32)>),
}

/// The party whose action a step describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The client (the process) sends a message: `send` if a server is under test, otherwise `expect`.
    Client,
    /// The server (the process manager) sends a message: `expect` if a server is under test, otherwise `send`.
    Server,
    /// `A`: the application calls the PMI library.
    Api,
    /// `P`: the process itself (its environment, its arguments and its end).
    Process,
    /// `J`: the job (its exit status and its output).
    Job,
    /// The upstream of a proxy, which the harness plays: `proxy:0 send`.
    Upstream,
}

impl ImplementationKind {
    /// All kinds, with their names in the scenario language.
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("server", Self::Server), ("client", Self::Client), ("library", Self::Library)];

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(name, _)| *name == word).map(|(_, kind)| kind)
    }

    pub(super) fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

impl Role {
    /// Returns the side that acts in a step of this role. For `P:` steps, the side also depends on the action; see [`Step::actor`].
    pub(super) fn actor(self, tests: ImplementationKind) -> Actor {
        let does = match self {
            Self::Server => tests != ImplementationKind::Server,
            Self::Client => tests == ImplementationKind::Server,
            Self::Upstream | Self::Api => true,
            Self::Process | Self::Job => false,
        };
        if does { Actor::Harness } else { Actor::Implementation }
    }

    /// Returns the keyword for the role, which depends on the kind of implementation under test.
    pub(super) fn word(self, tests: ImplementationKind) -> &'static str {
        match self {
            Self::Api => "A",
            Self::Process => "P",
            Self::Job => "J",
            Self::Client | Self::Server | Self::Upstream => match self.actor(tests) {
                Actor::Harness => "send",
                Actor::Implementation => "expect",
            },
        }
    }
}

/// The action that a step performs or expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAction {
    /// In a sending step, one or more messages, which form a single write by default. In an expecting step, one message per line.
    Message {
        /// The write mode.
        mode: WriteMode,
        /// One template per line. If `mode.partial` is true, the last byte of the last message is omitted.
        lines: Vec<Template>,
    },
    /// `<close>` or `<closes>`: the party closes the connection.
    Close,
    /// `<empty>`: a message that consists only of a newline (RFC 13's `S:abort`).
    Empty,
    /// `<nothing>` or `<silence>`: the party sends nothing, although a request is pending.
    Silence,
    /// `send <right>`, if a client is under test: the reference server sends its own response. Other messages may precede or follow it.
    CorrectResponse,
    /// `<one of>`: several possible outcomes, each with a verdict.
    OneOf(Vec<Alternative>),
    /// The action of a `P:` or `J:` step.
    Process(ProcessAction),
    /// The action of an `A:` step.
    Call(Call),
    /// The action of the upstream.
    Upstream(UpstreamAction),
}

/// The actions of `proxy:N send` steps, in which the harness plays a proxy's launcher. Requests are numbered in the order in which
/// `proxy:N expect` steps consume them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAction {
    /// `send cmd=...`: sends a response.
    Response {
        /// `<to N>`: the number of the request to answer, counted from 1. By default, the last request is answered.
        to: Option<u32>,
        /// True for `<partial>`, which omits the final newline.
        partial: bool,
        /// The lines of the response.
        lines: Vec<Template>,
    },
    /// `send <right>`: sends the response of a correct upstream.
    CorrectResponse {
        /// `<to N>`: the number of the request to answer, counted from 1. By default, the last request is answered.
        to: Option<u32>,
    },
    /// `send <close>`: closes the connection.
    Close,
}

/// The way in which a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteMode {
    /// True for `<bytewise>`: one write per byte.
    pub bytewise: bool,
    /// True for `<partial>`, which omits the final newline, or the last byte of a frame.
    pub partial: bool,
    /// True for `<every>`, which selects every matching request from a client, not only the first.
    pub every: bool,
    /// The encoding of the text.
    pub encoding: Encoding,
}

/// The encoding of a message on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// The encoding of the dialect: the text and a newline, or the length and tuples that each end in a semicolon.
    #[default]
    Dialect,
    /// `<line>`: the text and a newline.
    Line,
    /// `<body>`: the length and the text.
    Body,
    /// `<bytes>`: only the text.
    Bytes,
}

impl Encoding {
    /// The encodings that a scenario can select, with their forms.
    pub const WORDS: [(&'static str, Self); 3] =
        [("<line>", Self::Line), ("<body>", Self::Body), ("<bytes>", Self::Bytes)];
}

/// A possible outcome in `<one of>`.
#[derive(Debug, Clone, Eq)]
pub struct Alternative {
    /// The verdict on the outcome.
    pub grade: Grade,
    /// The requirement that is cited unless `grade` is [`Grade::Pass`].
    pub cites: Option<Spanned<String>>,
    /// The action: [`StepAction::Message`], [`StepAction::Close`], [`StepAction::Empty`] or [`StepAction::Silence`].
    pub action: StepAction,
    /// The position of the line.
    pub span: Span,
}

/// The verdict on an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The outcome is allowed.
    Pass,
    /// The outcome is allowed, but reported.
    Note,
    /// The outcome breaks a SHOULD.
    Warn,
    /// The outcome breaks a MUST.
    Fail,
}

impl Grade {
    /// All verdicts, with their names in the scenario language.
    pub(super) const NAMES: [(&'static str, Self); 4] =
        [("pass", Self::Pass), ("note", Self::Note), ("warn", Self::Warn), ("fail", Self::Fail)];

    pub(super) fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

/// The actions of `P:` and `J:` steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessAction {
    /// `P: starts`: the process has started.
    Started,
    /// `P: has NAME=MATCHER` or `P: set NAME=TEXT`: an environment variable.
    Env(Spanned<String>, Template),
    /// `P: has arguments TEMPLATE`: the arguments, separated by spaces. If the template is empty, there are no arguments.
    Args(Template),
    /// `P: is ended`: the process manager has terminated the process.
    IsEnded,
    /// `P: exit N`: the harness makes the process exit.
    Exit(u8),
    /// `P: kill N`: the harness kills the process with signal N.
    Kill(u8),
    /// `P: wait N`: the process does nothing for N seconds.
    Wait(u8),
    /// `P: pause`: the process is stopped by SIGSTOP and reads nothing until all other ranks are waiting.
    Pause,
    /// `P: pause parent`: the parent of the process, for example the proxy of its node, is stopped instead.
    PauseParent,
    /// `P: exits STATUS`, if a client is under test: the process exits on its own with this status.
    Exits(ExitPattern),
    /// `P: exits nonzero|same`, if a client is under test: the process exits on its own, with status 0 only if its output equals that of
    /// the plain run.
    FailsOrMatches,
    /// `P: ends`, if a client is under test: the process ends, on its own or because its program ends.
    Ends,
    /// `P: prints the same`, if a client is under test: the standard output of the process equals that of the plain run.
    SameOutput,
    /// `J: exits STATUS`: the job ends with this status.
    JobExit(ExitPattern),
    /// `J: logs`: the job has written to stderr or stdout.
    Logged,
}

/// A pattern for an exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitPattern {
    /// `any`: any status.
    Any,
    /// `nonzero`: any status but 0.
    NonZero,
    /// `N`: exactly this status.
    Code(u8),
}

/// `A: NAME(ARGS) = RESULT OUT=...`: a library call. The call and its return may be separate steps, with messages in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function, such as `PMI_KVS_Get`; `None` in a step that contains only the return.
    pub function: Option<Spanned<String>>,
    /// The arguments.
    pub args: Vec<Arg>,
    /// The return code, such as `PMI_SUCCESS`; `None` in a step that only starts a call.
    pub result: Option<Spanned<String>>,
    /// `size=4`: the expected values of the named output arguments.
    pub outs: Vec<(Spanned<String>, Template)>,
}

/// An argument of a library call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// `"text"`: a string.
    Text(Template),
    /// A number.
    Number(Expr),
    /// `NULL`.
    Null,
    /// `&name`: an output argument. `&name[64]`: an output argument with a buffer of 64 bytes.
    Out(Spanned<String>, Option<Expr>),
}

/// Text that may contain variables, calculations and matchers.
#[derive(Debug, Clone, Eq, Default)]
pub struct Template {
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
    /// The position in the file.
    pub span: Span,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal bytes, which may also be written as `<sp>`, `<tab>`, `<0xNN>`, `<<` or `$$`. `quoted` bytes never separate tuples or start a
    /// comment.
    Literal {
        /// The literal bytes.
        bytes: Vec<u8>,
        /// True if the bytes were written as `<...>` or as a doubled character.
        quoted: bool,
    },
    /// `$name`: the value of a name.
    Var(String),
    /// `$name:type`: in an expectation, checks the type and binds the name.
    Capture(String, ValueType),
    /// `<calc EXPR>`: the value of an expression, in decimal.
    Calc(Expr),
    /// `<char EXPR>`: the visible ASCII character with this code.
    Char(Expr),
    /// `<fill EXPR>`: EXPR bytes of a fixed pattern of letters and digits.
    Fill(Expr),
    /// `<junk EXPR>`: EXPR bytes of a fixed pseudo-random sequence over all byte values except LF.
    Junk(Expr),
    /// `<|>`: ends a write.
    Cut,
    /// `<uint>`, `<word>` ...: in an expectation, any value of this type.
    Typed(ValueType),
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueType {
    /// `uint`, `uint 1..4`, `uint 1..`, `uint ..4`: a number that consists of digits only and is within the bounds.
    Uint(Option<Expr>, Option<Expr>),
    /// `int`: digits with an optional sign.
    Int,
    /// `intlist`: one or more integers, separated by commas.
    IntList,
    /// `word`: one or more visible characters other than `=`.
    Word,
    /// `string`: one or more printable characters, spaces or tabs.
    String,
    /// `mapping`: a process mapping in RFC 13's grammar.
    Mapping,
    /// `empty`: an empty value.
    Empty,
    /// `absent`: the key is missing.
    Absent,
    /// `any`: any value.
    Any,
    /// `ok`, written `rc=ok`: the return code is absent or 0.
    RcOk,
    /// `fail`, written `rc=fail`: the return code is present and not 0.
    RcFail,
}

/// An arithmetic expression over numbers and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A number.
    Number(i64),
    /// `$name`.
    Var(Spanned<String>),
    /// A binary operation, such as `a + b`.
    Binary(Box<Expr>, BinOp, Box<Expr>),
}

/// A binary operator. `*` and `%` bind more tightly than `+` and `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `%`
    Rem,
}
