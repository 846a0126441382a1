//! What a scenario file says, as data. The same tree serves a server under test (we play `C:`), a client
//! under test (we play `S:`) and a library (we make the `A:` calls).

use std::sync::Arc;

use pmi_wire::Framing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where in its file something stands: byte offsets into [`Source::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A scenario or fragment file; empty for a tree that was not read from one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Path as shown to the user, relative to the suite's root for embedded files.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// 1-based line number of a byte offset.
    pub fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|b| **b == b'\n').count()
    }

    /// 1-based column of a byte offset, counted in characters.
    pub fn column_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
        // A byte that continues a UTF-8 character does not begin one.
        1 + before[line..].iter().filter(|b| **b & 0xc0 != 0x80).count()
    }
}

/// Something with its place in the file.
#[derive(Debug, Clone, Eq)]
pub struct Spanned<T> {
    /// The thing.
    pub value: T,
    /// Its place.
    pub span: Span,
}

/// One scenario or fragment. Like every part of the tree, two are equal if they say the same, wherever it stands in a file and
/// whatever comments stand beside it.
#[derive(Debug, Clone, Eq)]
pub struct Scenario {
    /// Stable name: the path below the suite without its ending, e.g. `kvs/put-visible-after-barrier`.
    pub name: String,
    /// The lines of the leading comment block, without `#`.
    pub heading: Vec<String>,
    /// Requirements that it tests. The first is cited where a step names none.
    pub requires: Vec<Spanned<String>>,
    /// What the implementation must offer for the scenario to apply.
    pub needs: Vec<Spanned<Need>>,
    /// Who is under test.
    pub tests: UnderTest,
    /// What is spoken.
    pub dialect: Dialect,
    /// Further dialects in which it is played, under names of their own.
    pub also: Vec<Dialect>,
    /// Size of the first process group.
    pub ranks: u32,
    /// Number of nodes that the first process group is spread over.
    pub nodes: u32,
    /// How the server is that a client under test gets.
    pub serving: Serving,
    /// `takes NAME=TEXT ...`: what a fragment is told where it is used, and what it assumes where it is not.
    pub takes: Vec<Parameter>,
    /// `each TABLE but NAME ...`: the scenario is played once for each row of the table, and each row.
    pub each: Option<Each>,
    /// `row NAME ...`: the scenario is played once for each row.
    pub rows: Vec<Row>,
    /// The steps.
    pub body: Vec<Stmt>,
    /// What stands beside all this and says nothing to us, in the order of the file.
    pub comments: Vec<Comment>,
    /// The file it came from.
    pub source: Arc<Source>,
}

/// A comment or a blank line, which the printer puts where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// What it is.
    pub kind: CommentKind,
    /// Where it stands.
    pub span: Span,
}

/// What stands between the lines of a scenario or behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentKind {
    /// Blank lines.
    Blank,
    /// A line of its own, without `#`.
    Line(String),
    /// Text behind a head line or statement that begins at `line`, without `#`.
    Trailing {
        /// The text.
        text: String,
        /// Where the line begins.
        line: usize,
    },
}

impl Scenario {
    /// What must hold, as one paragraph.
    pub fn summary(&self) -> String {
        self.heading.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
    }

    /// What the scenario of a row of the table `name` is called.
    pub(super) fn name_of_row(name: &str, row: &str) -> String {
        format!("{name}[{row}]")
    }

    /// Whether it is a fragment, which other files `use` and which tests nothing by itself.
    pub fn is_fragment(&self) -> bool {
        self.name.split('/').rev().skip(1).any(|folder| folder == "fragments")
    }
}

/// A name that a fragment is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Without `$`.
    pub name: Spanned<String>,
    /// What it stands for where nothing is said; it must be said if there is none.
    pub default: Option<Template>,
}

/// A table whose rows are crossed with those of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each {
    /// A fragment that is a table, or [`Each::REQUEST`].
    pub table: Spanned<String>,
    /// The rows that are left out.
    pub but: Vec<Spanned<String>>,
}

impl Each {
    /// The requests of the dialect that a function of the C API makes and that are answered.
    pub const REQUEST: &'static str = "request";
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is called in reports.
    pub name: Spanned<String>,
    /// What the names stand for.
    pub values: Vec<(Spanned<String>, Template)>,
}

impl Row {
    /// The text that a name stands for.
    pub(super) fn text(&self, name: &str) -> Option<&Template> {
        self.values.iter().find(|(other, _)| other.value == name).map(|(_, value)| value)
    }

    /// The variation that `vary $name` stands for in this row.
    pub(super) fn variation(&self, variation: &Spanned<String>) -> Option<Spanned<String>> {
        let name = variation.value.strip_prefix('$')?;
        let (name, value) = self.values.iter().find(|(other, _)| other.value == name)?;
        Some(Spanned { value: value.literal()?, span: name.span })
    }
}

/// Who is under test; we play the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnderTest {
    /// A process manager: we send `C:` and expect `S:`.
    Server,
    /// A program that speaks PMI: we send `S:` and expect `C:`.
    Client,
    /// A PMI library: we make the calls (`A:`), send `S:` and expect `C:`.
    Library,
}

/// What is spoken.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum Dialect {
    /// PMI-1 as RFC 13 documents it.
    #[default]
    #[serde(rename = "pmi-1.1")]
    Pmi1,
    /// PMI-2 by MPICH's draft.
    #[serde(rename = "pmi-2")]
    Pmi2,
}

impl Dialect {
    /// All, as they are written.
    pub const NAMES: [(&'static str, Self); 2] = [("pmi-1.1", Self::Pmi1), ("pmi-2", Self::Pmi2)];

    /// How it is written.
    pub fn word(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The one that is written so.
    pub fn called(word: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(name, _)| *name == word).map(|(_, dialect)| dialect)
    }

    /// How messages are told from each other, after the init line.
    pub fn framing(self) -> Framing {
        match self {
            Self::Pmi1 => Framing::Lines,
            Self::Pmi2 => Framing::Frames,
        }
    }

    /// The protocol, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pmi1 => "PMI-1",
            Self::Pmi2 => "PMI-2",
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// What a step is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// We do it when the step is reached.
    Does,
    /// Whoever is under test is expected to do it, and is waited for.
    Expects,
}

/// How the server is that a client under test gets: the reference server, unless something is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    /// Whether the scenario says how many ranks there are; if not, the user does.
    pub sized: bool,
    /// `vary NAME ...`: variations of the reference server, or `$name` for one that each row names.
    pub variations: Vec<Spanned<String>>,
    /// `fault NAME`: the one fault that it has.
    pub fault: Option<Spanned<String>>,
    /// `serve NAME=NUMBER ...`: what it is set up with.
    pub settings: Vec<(Spanned<Setting>, u32)>,
}

/// What `serve` can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// `kvsname_max`, in bytes with a terminating NUL.
    KvsnameMax,
    /// `keylen_max`, likewise.
    KeylenMax,
    /// `vallen_max`, likewise.
    VallenMax,
    /// `kvsname_length`: length of the names of keyval spaces.
    KvsnameLength,
    /// `delay`: milliseconds before each answer.
    Delay,
    /// `first_write`: bytes of each answer that are written before the rest of it, once they were read.
    FirstWrite,
}

impl Setting {
    /// All, as they are written.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("kvsname_max", Self::KvsnameMax),
        ("keylen_max", Self::KeylenMax),
        ("vallen_max", Self::VallenMax),
        ("kvsname_length", Self::KvsnameLength),
        ("delay", Self::Delay),
        ("first_write", Self::FirstWrite),
    ];

    /// How it is written.
    pub(super) fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, setting)| *setting == self).map_or("", |(word, _)| word)
    }
}

/// A capability that an implementation may lawfully lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// `spawn`: the spawn operation.
    Spawn,
    /// `names`: publish, unpublish and lookup.
    Names,
    /// `upstream`: its launcher is played by us, as that of a bare proxy.
    Upstream,
    /// `pmi-1.2`: PMI-1 with barriers of a part of a process group.
    Pmi12,
    /// `keyval-spaces`: create_kvs, destroy_kvs and getbyidx, which RFC 13 does not have.
    KeyvalSpaces,
    /// `fd`: its processes find their connections in PMI_FD.
    Fd,
    /// `port`: its processes make their connections themselves, by PMI_PORT.
    Port,
    /// `singleton`: its process has asked for a process manager itself.
    Singleton,
    /// `alone`: a library initializes itself without a process manager.
    Alone,
}

impl Need {
    /// All, as they are written.
    pub const NAMES: [(&'static str, Self); 9] = [
        ("spawn", Self::Spawn),
        ("names", Self::Names),
        ("upstream", Self::Upstream),
        ("pmi-1.2", Self::Pmi12),
        ("keyval-spaces", Self::KeyvalSpaces),
        ("fd", Self::Fd),
        ("port", Self::Port),
        ("singleton", Self::Singleton),
        ("alone", Self::Alone),
    ];

    /// Names that scenarios and profiles had for operations that only the draft of PMI-2 describes.
    pub const REMOVED: [&'static str; 5] = ["concat", "auth", "job-connect", "kvs-getall", "spawn-cmd"];

    /// How it is written.
    pub fn word(self) -> &'static str {
        Self::NAMES.iter().find(|(_, need)| *need == self).map_or("", |(word, _)| word)
    }

    /// Returns true if no specification has it.
    pub fn is_extra(self) -> bool {
        self == Self::KeyvalSpaces
    }

    /// Whether it says how we reach what is judged, which is no operation that may be asked for.
    pub fn is_way_in(self) -> bool {
        matches!(self, Self::Upstream | Self::Fd | Self::Port | Self::Singleton)
    }

    /// The operations that an implementation may be asked for, each with its word.
    pub fn optional() -> impl Iterator<Item = (&'static str, Self)> + Clone {
        Self::NAMES.into_iter().filter(|(_, need)| !need.is_way_in())
    }
}

/// A statement of the body.
#[derive(Debug, Clone, Eq)]
pub enum Stmt {
    /// `use NAME` or `use NAME(PARAMETER=TEXT, ...)`: the fragment's steps stand here.
    Use {
        /// The fragment.
        name: Spanned<String>,
        /// What it is told.
        with: Vec<(Spanned<String>, Template)>,
    },
    /// `let $name = TEMPLATE`.
    Let {
        /// Variable, without `$`.
        name: Spanned<String>,
        /// What it stands for, expanded when the statement is reached.
        value: Template,
    },
    /// `repeat COUNT [as $name]` ... `end`.
    Repeat {
        /// How often.
        count: Expr,
        /// Counts from 0.
        var: Option<Spanned<String>>,
        /// What is repeated.
        body: Vec<Stmt>,
        /// The `repeat` line.
        span: Span,
        /// The `end` line.
        end: Span,
    },
    /// A step.
    Step(Step),
}

/// One line of the transcript, with its continuation lines.
#[derive(Debug, Clone, Eq)]
pub struct Step {
    /// Whom it concerns.
    pub who: Who,
    /// Which party acts.
    pub role: Role,
    /// The requirement that the step cites (`S[id]:`).
    pub cites: Option<Spanned<String>>,
    /// What happens.
    pub action: Action,
    /// The whole step.
    pub span: Span,
}

/// The ranks a step is about, in the order in which it is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The job as a whole (role `J`).
    Job,
    /// Ranks of one process group.
    Ranks {
        /// 0 is the group that the launcher starts, 1 the first one spawned (`child`), 2 `child2` ...
        /// [`Proc::PROXIES`](pmi_wire::Proc::PROXIES) stands for the proxies of the first group, by their nodes, and
        /// [`Proc::STRAYS`](pmi_wire::Proc::STRAYS) for stray connections.
        group: u32,
        /// Which ranks.
        set: RankSet,
    },
    /// `child$NAME:...`: ranks of the spawned group whose number the name stands for, in a fragment.
    Spawned {
        /// Without `$`.
        number: Spanned<String>,
        /// Which ranks.
        set: RankSet,
    },
}

/// A set of ranks, in playing order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankSet {
    /// `*`: all, ascending.
    All,
    /// `2,0,1` or `1-3`: inclusive ranges in the order written.
    Ranges(Vec<(u32, u32)>),
}

/// The party that a step is about, in the letters of RFC 13 and three of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `C`: the client (process) sends.
    Client,
    /// `S`: the server (process manager) sends.
    Server,
    /// `A`: the application calls the PMI library.
    Api,
    /// `P`: the process itself: environment, arguments, its end.
    Process,
    /// `J`: the job: exit status, what it logged.
    Job,
    /// `U`: the upstream of a proxy, which we play.
    Upstream,
}

impl UnderTest {
    /// How it is written.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Library => "library",
        }
    }

    /// The one that is written so.
    pub(super) fn called(word: &str) -> Option<Self> {
        [Self::Server, Self::Client, Self::Library].into_iter().find(|whom| whom.word() == word)
    }
}

impl Role {
    /// Whether what it says is done or expected; what a process does depends on the action as well, see [`Step::part`].
    pub(super) fn part(self, tests: UnderTest) -> Part {
        let does = match self {
            Self::Server => tests != UnderTest::Server,
            Self::Client => tests == UnderTest::Server,
            Self::Upstream | Self::Api => true,
            Self::Process | Self::Job => false,
        };
        if does { Part::Does } else { Part::Expects }
    }

    /// How it is written.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Client => "C",
            Self::Server => "S",
            Self::Api => "A",
            Self::Process => "P",
            Self::Job => "J",
            Self::Upstream => "U",
        }
    }
}

/// What a step does or expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `C:`/`S:` one or more messages in one write, or one message expected per line.
    Message {
        /// How it is written.
        mode: WriteMode,
        /// One template a line; every line ends with LF unless `mode.partial` takes the last one's.
        lines: Vec<Template>,
    },
    /// `C: close`, `S: close`: the party ends the connection.
    Close,
    /// `S: empty`: a message of nothing but a newline (RFC 13's `S:abort`).
    Empty,
    /// `S: silence`: nothing is sent, although something was asked.
    Silence,
    /// `S: right`, against a client: the server's own answer, where something else stands before or behind it.
    Right,
    /// `S: one of`: acceptable outcomes, each with the verdict that it earns.
    OneOf(Vec<Alternative>),
    /// `P:` and `J:` steps.
    Process(ProcessAction),
    /// `A:` steps.
    Call(Call),
    /// `U:` steps.
    Upstream(UpstreamAction),
}

/// `proxy:N U:` steps: what we do in the place of a proxy's launcher. Requests are those that `proxy:N S:` steps took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAction {
    /// `U: cmd=...`: an answer.
    Answer {
        /// `to N`: which of the requests it answers, from 1; the last one if absent.
        to: Option<u32>,
        /// `partial`: the last line's newline is left out.
        partial: bool,
        /// The text.
        lines: Vec<Template>,
    },
    /// `U: usual`: a proper upstream's answer.
    Usual {
        /// `to N`.
        to: Option<u32>,
    },
    /// `U: close`: the connection ends.
    Close,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteMode {
    /// `bytewise`: one write per byte.
    pub bytewise: bool,
    /// `partial`: the last line's newline is left out, or the last byte of a frame.
    pub partial: bool,
    /// `every`, of a request that a client makes: not only the first that fits.
    pub every: bool,
    /// What becomes of the text.
    pub encoding: Encoding,
}

/// What becomes of a message's text on its way to the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// What the dialect wants: a newline behind it, or its tuples ended by semicolons and their length before them.
    #[default]
    Dialect,
    /// `line`: a newline behind it.
    Line,
    /// `body`: its length before it.
    Body,
    /// `bytes`: nothing.
    Bytes,
}

impl Encoding {
    /// Those that are written, in angle brackets.
    pub const WORDS: [(&'static str, Self); 3] =
        [("<line>", Self::Line), ("<body>", Self::Body), ("<bytes>", Self::Bytes)];
}

/// One line of `one of`.
#[derive(Debug, Clone, Eq)]
pub struct Alternative {
    /// What it earns.
    pub grade: Grade,
    /// Requirement cited when `grade` is not [`Grade::Pass`].
    pub cites: Option<Spanned<String>>,
    /// [`Action::Message`], [`Action::Close`], [`Action::Empty`] or [`Action::Silence`].
    pub action: Action,
    /// The line.
    pub span: Span,
}

/// What an outcome earns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Lawful.
    Pass,
    /// Lawful, worth telling.
    Note,
    /// Breaks a SHOULD.
    Warn,
    /// Breaks a MUST.
    Fail,
}

impl Grade {
    /// How it is written.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// `P:` and `J:` steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessAction {
    /// `P: started`: the process has started.
    Started,
    /// `P: env NAME=MATCHER`.
    Env(Spanned<String>, Template),
    /// `P: args TEMPLATE`: its arguments, separated by blanks; none if the template is empty.
    Args(Template),
    /// `P: ended`: the process manager has ended the process.
    Ended,
    /// `P: exit N`: the process exits (an action of ours).
    Exit(u8),
    /// `P: kill N`: the process dies of signal N (an action of ours).
    Kill(u8),
    /// `P: exit STATUS`, of a client under test: it ends by itself, with this status.
    Ends(ExitPattern),
    /// `P: copes`, of a client under test: it ends by itself, with status 0 only if its output is that of a plain run.
    Copes,
    /// `P: ends`, of a client under test: it ends somehow, by itself or with its program.
    Over,
    /// `P: output same`, of a client under test: its standard output is that of a plain run.
    SameOutput,
    /// `J: exit STATUS`: the job ends, with this status.
    JobExit(ExitPattern),
    /// `J: logged`: the job wrote something to stderr or stdout.
    Logged,
}

/// A pattern for an exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitPattern {
    /// `any`.
    Any,
    /// `nonzero`.
    NonZero,
    /// A number.
    Code(u8),
}

/// `A: NAME(ARGS) = RESULT OUT=...`; the call and its return may stand on lines of their own with the wire
/// lines between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `PMI_KVS_Get`; `None` on the line that only tells what a call returns.
    pub function: Option<Spanned<String>>,
    /// The arguments.
    pub args: Vec<Arg>,
    /// `= PMI_SUCCESS`; `None` on the line that only begins a call.
    pub result: Option<Spanned<String>>,
    /// `size=4`: what the named out arguments hold afterwards.
    pub outs: Vec<(Spanned<String>, Template)>,
}

/// An argument of a library call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// `"text"`.
    Text(Template),
    /// A number.
    Number(Expr),
    /// `NULL`.
    Null,
    /// `&name`: an out argument; `&name[64]` with a buffer of 64 bytes.
    Out(Spanned<String>, Option<Expr>),
}

/// Text with holes.
#[derive(Debug, Clone, Eq, Default)]
pub struct Template {
    /// In order.
    pub pieces: Vec<Piece>,
    /// Where it stands.
    pub span: Span,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes as they are (also from `<sp>`, `<tab>`, `<0xNN>`, `<<`, `$$`). `quoted` bytes never separate
    /// tuples or start a comment.
    Literal {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether they came from `<...>` or a doubled character.
        quoted: bool,
    },
    /// `$name`.
    Var(String),
    /// `$name:type`: in an expectation, checks the type and binds the name.
    Capture(String, Kind),
    /// `<calc EXPR>`: the number in decimal.
    Calc(Expr),
    /// `<fill EXPR>`: that many bytes of a fixed pattern of letters and digits.
    Fill(Expr),
    /// `<junk EXPR>`: that many bytes of a fixed pseudo-random sequence over all 256 values but LF.
    Junk(Expr),
    /// `<|>`: a write ends here.
    Cut,
    /// `<uint>`, `<word>` ...: in an expectation, anything of this type.
    Typed(Kind),
}

/// Types of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `uint`, `uint 1..4`, `uint 1..`, `uint ..4`: digits, within the bounds.
    Uint(Option<Expr>, Option<Expr>),
    /// `int`.
    Int,
    /// `intlist`.
    IntList,
    /// `word`.
    Word,
    /// `string`: printable characters, blanks and tabs, at least one.
    String,
    /// `mapping`: a process mapping in RFC 13's grammar.
    Mapping,
    /// `empty`.
    Empty,
    /// `absent`: the key must not be there.
    Absent,
    /// `any`: whatever it holds.
    Any,
    /// `ok`, written `rc=ok`: absent or 0.
    RcOk,
    /// `fail`, written `rc=fail`: present and not 0.
    RcFail,
}

/// An arithmetic expression over numbers and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A number.
    Number(i64),
    /// `$name`.
    Var(Spanned<String>),
    /// `a + b` and so on.
    Binary(Box<Expr>, BinOp, Box<Expr>),
}

/// Operators; `*` and `%` bind tighter.
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
