//! Parses scenario files line by line. Lines with mistakes are skipped, so all mistakes in a file are reported together.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use pmi_wire::UnknownDialect;

use super::{
    ast::*,
    diag::{Diagnostic, DiagnosticSink},
    expr,
    layout::{self, KEYWORDS, LineKind, SourceLine, StepHead},
    print::{ActionForm, CLOSE, SILENCE},
    template,
};

/// The form that introduces a list of possible outcomes.
const ONE_OF: &str = "<one of>";
/// Maximum nesting depth of `repeat` and `only`. It is limited because bodies are processed recursively.
const MAX_REPEAT_DEPTH: usize = 8;
const MAX_RANKS: u32 = 65_536;
const MAX_NODES: u32 = 4_096;

const ARGUMENT_HELP: &str =
    "an argument is `\"text\"`, a number or expression, `NULL`, `&name` or `&name[SIZE]`";
const PROCESS_WORDS: &[&str] = &[
    "starts",
    "has",
    "is ended",
    "ends",
    "exits",
    "prints the same",
    "exit",
    "kill",
    "wait",
    "pause",
    "set",
];
const JOB_WORDS: &[&str] = &["exits", "logs"];

/// Returns the text of a comment, without `#` and the following space.
fn comment(content: &str) -> String {
    let text = content.strip_prefix('#').unwrap_or(content);
    text.strip_prefix(' ').unwrap_or(text).to_owned()
}

/// Parses a scenario or fragment; `name` is its [`Scenario::name`].
///
/// # Errors
///
/// Returns an error if the file contains mistakes. The error contains all mistakes, in the order of the file.
pub fn parse(source: Arc<SourceFile>, name: &str) -> Result<Scenario, Vec<Diagnostic>> {
    let mut parser = Parser::new(&source, name);
    parser.file();
    if parser.sink.is_empty() { Ok(parser.scenario) } else { Err(parser.sink.finish()) }
}

/// Parses the call of an `A:` step.
pub(super) fn call(text: &str) -> Option<Call> {
    let source = Arc::new(SourceFile { path: String::new(), text: text.to_owned() });
    let mut parser = Parser::new(&source, "");
    parser.call(Span { start: 0, end: text.len() }).filter(|_| parser.sink.is_empty())
}

struct Parser<'a> {
    text: &'a str,
    sink: DiagnosticSink,
    scenario: Scenario,
    /// The keywords of earlier head lines that must not occur again.
    seen_head_lines: Vec<&'static str>,
    open_blocks: Vec<Block>,
}

/// An open block: a `repeat` or `only` whose `end` has not been read.
struct Block {
    statement: Statement,
    span: Span,
    body: Vec<Statement>,
}

impl<'a> Parser<'a> {
    fn new(source: &'a Arc<SourceFile>, name: &str) -> Self {
        Self {
            text: &source.text,
            sink: DiagnosticSink::new(Arc::clone(source)),
            scenario: Scenario { source: Arc::clone(source), ..Scenario::new(name, "", &[]) },
            seen_head_lines: Vec::new(),
            open_blocks: Vec::new(),
        }
    }

    fn text_at(&self, span: Span) -> &'a str {
        span.of(self.text)
    }

    /// Returns the text of a span together with the span.
    fn spanned(&self, span: Span) -> Spanned<String> {
        Spanned { value: self.text_at(span).to_owned(), span }
    }

    /// Looks up a word in a table. Reports a word that is not in the table as an unknown `what`.
    fn known<T: Copy>(&mut self, span: Span, word: &str, what: &str, table: &[(&str, T)]) -> Option<T> {
        let found = table.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<&str> = table.iter().map(|(known, _)| *known).collect();
            self.sink.error(span, format!("unknown {what} `{word}`")).suggest(word, &words);
        }
        found
    }

    /// Converts a span within the line `line` into a span of the file.
    fn within(line: Span, part: Span) -> Span {
        Span { start: line.start + part.start, end: line.start + part.end }
    }

    fn file(&mut self) {
        if let Some(at) = self.text.find('\r') {
            self.sink
                .error(Span { start: at, end: at + 1 }, "a carriage return in a scenario file")
                .help("end lines with LF alone; write `<0x0d>` to send a carriage return");
        }
        let lines = layout::lines(self.text);
        self.comments(&lines);
        for line in &lines {
            let start = line.span.start - line.indent;
            if let Some(tab) = self.text[start..line.span.start].find('\t') {
                let at = start + tab;
                self.sink
                    .error(Span { start: at, end: at + 1 }, "a tab as indentation")
                    .help("indent with spaces");
            }
        }
        let mut rest = lines
            .iter()
            .filter(|line| matches!(line.kind, LineKind::First | LineKind::Continuation))
            .peekable();
        while let Some(first) = rest.next() {
            let mut more = Vec::new();
            while let Some(line) = rest.next_if(|line| line.kind == LineKind::Continuation) {
                more.push(*line);
            }
            self.line(first.span, &more);
        }
        for block in std::mem::take(&mut self.open_blocks) {
            let keyword = &self.text_at(block.span)[..layout::word_end(self.text_at(block.span), 0)];
            self.sink.error(block.span, format!("`{keyword}` without `end`"));
        }
    }

    /// Collects the heading, other comments and blank lines.
    fn comments(&mut self, lines: &[SourceLine]) {
        let mut lines = lines.iter().skip_while(|line| line.kind == LineKind::Blank).peekable();
        while let Some(line) = lines.next_if(|line| line.kind == LineKind::Comment) {
            self.scenario.heading.push(comment(self.text_at(line.span)));
        }
        for line in lines {
            let content = self.text_at(line.span);
            let (kind, start) = match line.kind {
                LineKind::Blank => (CommentKind::Blank, line.span.start),
                LineKind::Comment => (CommentKind::Line(comment(content)), line.span.start),
                LineKind::First if KEYWORDS.contains(&&content[..layout::word_end(content, 0)]) => {
                    let Some(at) = layout::comment_start(content) else { continue };
                    let text = comment(&content[at..]);
                    (CommentKind::Trailing { text, line: line.span.start }, line.span.start + at)
                }
                LineKind::First | LineKind::Continuation => continue,
            };
            let span = Span { start, end: line.span.end };
            self.scenario.comments.push(Comment { kind, span });
        }
    }

    fn line(&mut self, line: Span, more: &[SourceLine]) {
        let content = self.text_at(line);
        let first = &content[..layout::word_end(content, 0)];
        if KEYWORDS.contains(&first) {
            let end = layout::comment_start(content).unwrap_or(content.len());
            let argument = layout::trimmed(&content[..end], first.len());
            let argument = Self::within(line, argument);
            let whole = Span { start: line.start, end: argument.end.max(line.start + first.len()) };
            match first {
                "requires" | "tests" | "dialect" | "needs" | "ranks" | "nodes" | "schedule" | "vary"
                | "fault" | "serve" | "launch" | "takes" | "each" | "in" | "row" => {
                    self.head(first, whole, argument)
                }
                "use" => self.use_(whole, argument),
                "let" => self.let_(whole, argument),
                "repeat" => self.repeat(whole, argument),
                "only" => self.only(whole, argument),
                _ => self.end(whole, argument),
            }
        } else if let Some(head) = layout::split_step(content) {
            if let Some(step) = self.step(line, &head, more) {
                self.push(Statement::Step(step));
            }
        } else {
            let span = Span { start: line.start, end: line.start + first.len() };
            let message = format!("`{first}` cannot begin a head line, statement or step");
            let diagnostic = self.sink.error(span, message);
            if expr::step_target(first, 0).is_ok() {
                diagnostic.message = "a step without a role".to_owned();
                diagnostic
                    .help("write `RANKS send ...`, `RANKS expect ...`, `RANKS P: ...` or `RANKS A: ...`");
            } else if first.ends_with(',') && expr::step_target(first.trim_end_matches(','), 0).is_ok() {
                diagnostic.message = "a space in a list of ranks".to_owned();
                diagnostic.help("write `0,1 send ...`");
            } else {
                diagnostic.suggest(first, KEYWORDS);
                diagnostic.help(
                    "write `RANKS send ...`, `RANKS expect ...` or `RANKS ROLE: ...`; other lines begin with requires, tests, dialect, \
                     needs, ranks, nodes, schedule, vary, fault, serve, launch, takes, each, in, row, use, let, repeat, only or end",
                );
            }
        }
    }

    fn push(&mut self, statement: Statement) {
        match self.open_blocks.last_mut() {
            Some(block) => block.body.push(statement),
            None => self.scenario.body.push(statement),
        }
    }

    // ---- head lines and statements

    fn head(&mut self, keyword: &str, line: Span, argument: Span) {
        if !self.scenario.body.is_empty() || !self.open_blocks.is_empty() {
            self.sink
                .error(line, format!("`{keyword}` after the first step"))
                .help("head lines come before the steps");
        }
        let content = self.text_at(argument);
        let words: Vec<Span> =
            layout::words(content).into_iter().map(|w| Self::within(argument, w)).collect();
        if words.is_empty() {
            self.sink.error(line, format!("`{keyword}` needs a value"));
        }
        match keyword {
            "requires" => {
                for span in words {
                    let id = self.id(span);
                    self.scenario.requires.extend(id);
                }
            }
            "needs" => {
                for span in words {
                    let need = self.known(span, self.text_at(span), "need", &Capability::NAMES);
                    self.scenario.needs.extend(need.map(|value| Spanned { value, span }));
                }
            }
            "tests" => {
                for span in words {
                    let what = "implementation under test";
                    if let Some(kind) = self.known(span, self.text_at(span), what, &ImplementationKind::NAMES)
                    {
                        self.scenario.tests = kind;
                    }
                }
            }
            "dialect" => {
                for (index, span) in words.into_iter().enumerate() {
                    match self.dialect(span) {
                        Some(dialect) if index == 0 => self.scenario.dialect = dialect,
                        Some(dialect) => self.scenario.other_dialects.push(dialect),
                        None => {}
                    }
                }
            }
            "vary" => {
                let names = words.into_iter().map(|span| self.spanned(span)).collect::<Vec<_>>();
                self.scenario.server_setup.variations.extend(names);
            }
            "fault" => self.fault(line, argument, &words),
            "serve" => words.into_iter().for_each(|span| self.setting(span)),
            "launch" => self.scenario.server_setup.launch = Some(self.spanned(argument)),
            "takes" => words.into_iter().for_each(|span| self.parameter(span)),
            "each" => self.each(line, &words),
            "in" => self.dialect_words(argument),
            "row" => self.row(argument),
            "schedule" => match self.text_at(argument) {
                "free" => self.scenario.is_free = true,
                "" => {}
                word => drop(
                    self.sink.error(argument, format!("unknown schedule `{word}`")).suggest(word, &["free"]),
                ),
            },
            "ranks" => {
                if let Some(n) = self.head_number("ranks", line, argument, MAX_RANKS) {
                    self.scenario.ranks = n;
                    self.scenario.server_setup.has_rank_count = true;
                }
            }
            _ => {
                if let Some(n) = self.head_number("nodes", line, argument, MAX_NODES) {
                    self.scenario.nodes = n;
                }
            }
        }
    }

    fn fault(&mut self, line: Span, argument: Span, words: &[Span]) {
        if words.len() > 1 || self.scenario.server_setup.fault.is_some() {
            self.sink.error(line, "a second fault").help("a scenario has at most one fault");
        }
        self.scenario.server_setup.fault = Some(self.spanned(argument));
    }

    /// Parses `NAME=NUMBER` in a `serve` line.
    fn setting(&mut self, span: Span) {
        let word = self.text_at(span);
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(setting) = self.known(span, name, "server setting", &Setting::NAMES) else { return };
        match number_in(value, 0..=u32::MAX) {
            Some(n) => self.scenario.server_setup.settings.push((Spanned { value: setting, span }, n)),
            None => drop(self.sink.error(span, format!("write `{name}=NUMBER`"))),
        }
    }

    /// Parses `NAME` or `NAME=TEXT` in a `takes` line.
    fn parameter(&mut self, span: Span) {
        let word = self.text_at(span);
        let name = Span { start: span.start, end: span.start + word.find('=').unwrap_or(word.len()) };
        let default = (name.end < span.end)
            .then(|| template::read(self.text, Span { start: name.end + 1, end: span.end }, &mut self.sink));
        if let Some(name) = self.bare_name(name) {
            self.scenario.parameters.push(Parameter { name, default });
        }
    }

    /// Parses `TABLE but NAME ...` in an `each` line.
    fn each(&mut self, line: Span, words: &[Span]) {
        let (table, except) = match words {
            [table] => (table, &[][..]),
            [table, but, names @ ..] if self.text_at(*but) == "but" => (table, names),
            _ => {
                self.sink
                    .error(line, "`each` needs a table")
                    .help("write `each request`, `each TABLE` or `each TABLE but NAME ...`");
                return;
            }
        };
        let except = except.iter().map(|name| self.spanned(*name)).collect();
        self.scenario.each = Some(Each { table: self.spanned(*table), except });
    }

    fn dialect(&mut self, span: Span) -> Option<Dialect> {
        let word = self.text_at(span);
        let named = word.parse();
        if named.is_err() {
            self.sink
                .error(span, format!("unknown dialect `{word}`"))
                .suggest(word, &Dialect::WORDS)
                .help(UnknownDialect.to_string());
        }
        named.ok()
    }

    /// Parses `DIALECT NAME=TEXT ...` in an `in` line.
    fn dialect_words(&mut self, argument: Span) {
        let (name, values) = self.first_word(argument);
        if let Some(dialect) = self.dialect(name) {
            let values = self.outs(values, template::read_message);
            self.scenario.dialect_words.push((dialect, TableRow { name: self.spanned(name), values }));
        }
    }

    /// Parses `NAME NAME=TEXT ...` in a `row` line.
    fn row(&mut self, argument: Span) {
        let (name, values) = self.first_word(argument);
        let word = self.text_at(name);
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        if !word.bytes().all(good) {
            self.sink.error(name, "invalid row name").help(
                "write a name of lower-case letters, digits, `-` and `.`, and then `NAME=TEXT` for each name",
            );
            return;
        }
        let values = self.outs(values, template::read_message);
        self.scenario.rows.push(TableRow { name: self.spanned(name), values });
    }

    /// Parses a name without `$`.
    fn bare_name(&mut self, span: Span) -> Option<Spanned<String>> {
        self.checked_name(span, self.text_at(span), "invalid name")
    }

    /// Parses a name that is written as `$name`.
    fn name(&mut self, span: Span) -> Option<Spanned<String>> {
        self.checked_name(
            span,
            self.text_at(span).strip_prefix('$').unwrap_or_default(),
            "expected a `$name`",
        )
    }

    fn checked_name(&mut self, span: Span, name: &str, message: &str) -> Option<Spanned<String>> {
        if !is_name(name) {
            self.sink
                .error(span, message)
                .help("names consist of letters, digits and `_`, and do not begin with a digit");
            return None;
        }
        Some(Spanned { value: name.to_owned(), span })
    }

    /// Parses the id of a requirement, or `$name` for an id that a row provides.
    fn id(&mut self, span: Span) -> Option<Spanned<String>> {
        let id = self.text_at(span);
        if id.starts_with('$') {
            return self.name(span).map(|_| self.spanned(span));
        }
        if id.is_empty()
            || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b))
        {
            self.sink
                .error(span, "invalid requirement id")
                .help("ids are lower case, such as `rfc13.put.visible-after-barrier`");
            return None;
        }
        Some(self.spanned(span))
    }

    fn head_number(&mut self, keyword: &'static str, line: Span, argument: Span, max: u32) -> Option<u32> {
        if self.seen_head_lines.contains(&keyword) {
            self.sink.error(line, format!("duplicate `{keyword}` line"));
        }
        self.seen_head_lines.push(keyword);
        let text = self.text_at(argument);
        if text.is_empty() {
            return None;
        }
        let number = number_in(text, 1..=max);
        if number.is_none() {
            self.sink.error(argument, format!("`{keyword}` takes a number from 1 to {max}"));
        }
        number
    }

    fn use_(&mut self, line: Span, argument: Span) {
        let content = self.text_at(argument);
        let end = content.find('(').unwrap_or(content.len());
        let span = Self::within(argument, layout::trimmed(&content[..end], 0));
        let name = self.text_at(span);
        let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if name.is_empty() {
            self.sink
                .error(line, "`use` needs the name of a fragment")
                .help("`use NAME` plays `fragments/NAME.pmi`");
            return;
        }
        let named = name.strip_prefix('$').unwrap_or(name);
        if !named.chars().all(good) || named.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
            self.sink
                .error(span, "invalid fragment name")
                .help("a fragment name consists of letters, digits, `-`, `_`, `.` and `/`; omit the `.pmi`");
            return;
        }
        let name = self.spanned(span);
        let mut with = Vec::new();
        if end < content.len() {
            let Some(inner) = content[end + 1..].strip_suffix(')') else {
                self.sink.error(argument, "`use` without a closing `)`");
                return;
            };
            let mut at = end + 1;
            for part in inner.split(',') {
                let whole = layout::trimmed(part, 0);
                let whole = Self::within(argument, Span { start: at + whole.start, end: at + whole.end });
                at += part.len() + 1;
                let Some(equals) = self.text_at(whole).find('=') else {
                    let help = "write `use NAME(PARAMETER=TEXT, ...)`, and `<0x2c>` for a comma in a value";
                    self.sink.error(whole, "expected `PARAMETER=TEXT`").help(help);
                    continue;
                };
                let name = layout::trimmed(&self.text_at(whole)[..equals], 0);
                let name = self.bare_name(Self::within(whole, name));
                let value = Self::within(whole, layout::trimmed(self.text_at(whole), equals + 1));
                let value = template::read(self.text, value, &mut self.sink);
                with.extend(name.map(|name| (name, value)));
            }
        }
        self.push(Statement::Use { name, with });
    }

    fn let_(&mut self, line: Span, argument: Span) {
        let content = self.text_at(argument);
        let Some(equals) = content.find('=') else {
            self.sink.error(line, "`let` without `=`").help("write `let $name = TEXT`");
            return;
        };
        let name = layout::trimmed(&content[..equals], 0);
        let name = self.name(Self::within(argument, name));
        let value = Self::within(argument, layout::trimmed(content, equals + 1));
        let value = template::read(self.text, value, &mut self.sink);
        if let Some(name) = name {
            self.push(Statement::Let { name, value });
        }
    }

    fn repeat(&mut self, line: Span, argument: Span) {
        let content = self.text_at(argument);
        let (count, var) = match content.rfind(" as ") {
            Some(at) => {
                let var = Self::within(argument, layout::trimmed(content, at + 4));
                (layout::trimmed(&content[..at], 0), self.name(var))
            }
            None => (layout::trimmed(content, 0), None),
        };
        let count = Self::within(argument, count);
        let count = self.number(count, "write `repeat COUNT as $name`").unwrap_or(Expr::Number(1));
        let statement = Statement::Repeat { count, var, body: Vec::new(), span: line, end: line };
        self.begin("repeat", line, statement);
    }

    /// Parses `only NAME ...`, where each name is that of a row or a dialect.
    fn only(&mut self, line: Span, argument: Span) {
        let words = layout::words(self.text_at(argument)).into_iter();
        let names: Vec<_> = words.map(|word| self.spanned(Self::within(argument, word))).collect();
        let is_row = |name: &str| self.scenario.rows.iter().any(|row| row.name.value == name);
        let is_dialect =
            |name: &str| name.parse().is_ok_and(|d: Dialect| self.scenario.dialects().any(|own| own == d));
        if self.scenario.each.is_none()
            && let Some(name) = names.iter().find(|name| !is_row(&name.value) && !is_dialect(&name.value))
        {
            let message = format!("`{}` is neither a row nor a dialect of this scenario", name.value);
            self.sink.error(name.span, message);
        }
        if names.is_empty() {
            self.sink.error(line, "`only` needs the name of a row or dialect");
        }
        self.begin("only", line, Statement::Only { names, body: Vec::new(), span: line, end: line });
    }

    fn begin(&mut self, keyword: &str, line: Span, statement: Statement) {
        if self.open_blocks.len() == MAX_REPEAT_DEPTH {
            self.sink.error(line, format!("`{keyword}` is nested more than {MAX_REPEAT_DEPTH} levels deep"));
        }
        self.open_blocks.push(Block { statement, span: line, body: Vec::new() });
    }

    fn end(&mut self, line: Span, argument: Span) {
        if argument.start < argument.end {
            self.sink.error(argument, "unexpected text after `end`");
        }
        let Some(Block { mut statement, body: own, .. }) = self.open_blocks.pop() else {
            self.sink.error(line, "`end` without `repeat` or `only`");
            return;
        };
        if let Statement::Repeat { body, end, .. } | Statement::Only { body, end, .. } = &mut statement {
            (*body, *end) = (own, line);
        }
        // Bodies that are nested too deeply are dropped, because the tree is processed and freed recursively.
        if self.open_blocks.len() < MAX_REPEAT_DEPTH {
            self.push(statement);
        }
    }

    // ---- steps

    fn step(&mut self, line: Span, head: &StepHead, more: &[SourceLine]) -> Option<Step> {
        let role_span = Self::within(line, head.role);
        let ranks = Self::within(line, head.ranks);
        let role = self.role(role_span, self.text_at(ranks).starts_with("proxy:"));
        let rest = Self::within(line, head.rest);
        let cites = head.cites.and_then(|span| self.id(Self::within(line, span)));
        let target = match (role, self.text_at(ranks)) {
            (Some(Role::Job), "") => Some(StepTarget::Job),
            (Some(Role::Job), _) => {
                self.sink.error(ranks, "`J` is the job as a whole and has no ranks");
                None
            }
            (_, "") => {
                self.sink
                    .error(role_span, "a step without ranks")
                    .help("write the ranks before the verb or role, for example `0 send ...`");
                None
            }
            (_, text) => match expr::step_target(text, ranks.start) {
                Ok(target) => Some(target),
                Err(wrong) => {
                    let start = ranks.start + wrong.at;
                    let diagnostic = self.sink.error(ranks, wrong.message);
                    if text.ends_with(',') || text.starts_with(',') {
                        diagnostic.help("a list of ranks has no spaces");
                    }
                    if let Some((group, _)) = text.split_once(':')
                        && expr::step_target(&format!("{group}:0"), 0).is_err()
                    {
                        diagnostic.suggest(group, &["child"]);
                    } else {
                        diagnostic.span = Span { start: start.min(ranks.end - 1), end: ranks.end };
                    }
                    None
                }
            },
        };
        let role = role?;
        let action = match role {
            Role::Client | Role::Server => self.exchange(role.actor(self.scenario.tests), rest, more),
            Role::Upstream => self.upstream(rest, more).map(StepAction::Upstream),
            other => {
                if let Some(line) = more.first() {
                    self.sink
                        .error(line.span, "unexpected indented line: this step takes no further lines")
                        .help(
                            "only `send` and `expect` steps have further lines; begin a new step in column 1",
                        );
                }
                match other {
                    Role::Process => self.process(rest).map(StepAction::Process),
                    Role::Job => self.job(rest).map(StepAction::Process),
                    _ => self.call(rest).map(StepAction::Call),
                }
            }
        };
        let end = more.last().map_or(line.end, |last| last.span.end);
        Some(Step { target: target?, role, cites, action: action?, span: Span { start: line.start, end } })
    }

    /// Parses the verb or role of a step. The implementation under test determines which side sends.
    fn role(&mut self, span: Span, is_proxy: bool) -> Option<Role> {
        let word = self.text_at(span);
        let actor = match word {
            "A" => return Some(Role::Api),
            "P" => return Some(Role::Process),
            "J" => return Some(Role::Job),
            "send" => Actor::Harness,
            "expect" => Actor::Implementation,
            _ => {
                let diagnostic = self.sink.error(span, format!("unknown role `{word}`"));
                diagnostic.suggest(word, &layout::VERBS);
                diagnostic.help(
                    "write `send` for an action of the harness, `expect` for an action of the implementation, or a role with a colon: A: (library \
                     call), P: (process), J: (job)",
                );
                return None;
            }
        };
        let tests = self.scenario.tests;
        if is_proxy && tests != ImplementationKind::Server {
            let message = format!("a scenario that tests a {} has no proxy", tests.word());
            self.sink.error(span, message).help("write a rank, or remove `tests` from the head");
            return None;
        }
        let roles = [if is_proxy { Role::Upstream } else { Role::Client }, Role::Server];
        roles.into_iter().find(|role| role.actor(tests) == actor)
    }

    /// Parses the action of a `send` or `expect` step.
    fn exchange(&mut self, part: Actor, rest: Span, more: &[SourceLine]) -> Option<StepAction> {
        if self.text_at(rest) == ONE_OF {
            return self.one_of(rest, more);
        }
        let lines: Vec<Span> = more.iter().map(|line| line.span).collect();
        self.message(part, rest, &lines)
    }

    /// Parses a message, or a form that replaces a message, such as `<close>`.
    fn message(&mut self, part: Actor, rest: Span, more: &[Span]) -> Option<StepAction> {
        let word = match self.text_at(rest) {
            form if form == CLOSE.harness_form || form == CLOSE.implementation_form => {
                self.report_wrong_form(&CLOSE, part, rest);
                Some(StepAction::Close)
            }
            form if form == SILENCE.harness_form || form == SILENCE.implementation_form => {
                self.report_wrong_form(&SILENCE, part, rest);
                Some(StepAction::Silence)
            }
            "<empty>" if more.is_empty() => Some(StepAction::Empty),
            "<right>" => Some(StepAction::CorrectResponse),
            _ => None,
        };
        if let Some(action) = word {
            if let Some(line) = more.first() {
                self.sink.error(*line, format!("`{}` takes no further lines", self.text_at(rest)));
            }
            return Some(action);
        }
        let mut mode = WriteMode::default();
        let mut text = rest;
        loop {
            let content = self.text_at(text);
            let form = &content[..content.find('>').map_or(0, |end| end + 1)];
            match form {
                "<bytewise>" => mode.bytewise = true,
                "<partial>" => mode.partial = true,
                "<every>" => mode.every = true,
                _ => match Encoding::WORDS.into_iter().find(|(word, _)| *word == form) {
                    Some((_, encoding)) => mode.encoding = encoding,
                    None => break,
                },
            }
            text = Self::within(text, layout::trimmed(content, form.len()));
        }
        let mut lines = Vec::new();
        if text.start < text.end {
            lines.push(template::read_message(self.text, text, &mut self.sink));
        }
        for line in more {
            let content = self.text_at(*line);
            if let Some(head) = layout::split_step(content)
                && (head.role.of(content) == "J" || expr::step_target(head.ranks.of(content), 0).is_ok())
            {
                self.sink
                    .error(*line, "a step that is indented like a further line of the step above it")
                    .help(
                        "begin the step in the same column as the step above; `<0x30>` sends a leading `0`",
                    );
            }
            lines.push(template::read_message(self.text, *line, &mut self.sink));
        }
        if lines.is_empty() {
            let help = "write a message, `<empty>` for a bare newline, or another form";
            self.sink.error(rest, "an empty step").help(help);
            return None;
        }
        Some(StepAction::Message { mode, lines })
    }

    /// Reports an action of the harness that is written in the form for expectations, or vice versa.
    fn report_wrong_form(&mut self, form: &ActionForm, part: Actor, span: Span) {
        let (right, actor) = match part {
            Actor::Harness => (form.harness_form, "harness"),
            Actor::Implementation => (form.implementation_form, "implementation"),
        };
        if self.text_at(span) != right {
            self.sink
                .error(span, format!("`{}` is not allowed in a step of the {actor}", self.text_at(span)))
                .help(format!("write `{right}`"));
        }
    }

    /// Parses the action of `proxy:N send`: `<close>`, or an optional `<to N>` followed by `<right>` or a message.
    fn upstream(&mut self, rest: Span, more: &[SourceLine]) -> Option<UpstreamAction> {
        let (mut to, mut text) = (None, rest);
        let content = self.text_at(rest);
        if let Some(inner) = content.strip_prefix("<to ") {
            let end = inner.find('>').unwrap_or(inner.len());
            let number = Self::within(rest, layout::trimmed(&content[..4 + end], 4));
            match self.text_at(number).parse::<u32>() {
                Ok(n @ 1..=expr::MAX_RANK) => to = Some(n),
                _ => {
                    self.sink.error(number, "`<to N>` takes the number of a request, counted from 1").help(
                        "requests are counted in the order in which the proxy's `expect` steps take them",
                    );
                    return None;
                }
            }
            text = Self::within(rest, layout::trimmed(content, (4 + end + 1).min(content.len())));
        }
        let lines: Vec<Span> = more.iter().map(|line| line.span).collect();
        match self.message(Actor::Harness, text, &lines)? {
            StepAction::Message { mode, lines }
                if mode == (WriteMode { partial: mode.partial, ..WriteMode::default() }) =>
            {
                Some(UpstreamAction::Response { to, partial: mode.partial, lines })
            }
            StepAction::CorrectResponse => Some(UpstreamAction::CorrectResponse { to }),
            StepAction::Close if to.is_none() => Some(UpstreamAction::Close),
            _ => {
                self.sink
                    .error(text, "invalid action of the upstream")
                    .help("write `<close>`, `<right>`, a message, or `<partial>` and a message; `<to N>` may precede all of these except `<close>`");
                None
            }
        }
    }

    fn one_of(&mut self, rest: Span, more: &[SourceLine]) -> Option<StepAction> {
        let mut alternatives = Vec::new();
        let mut rows = more.iter().peekable();
        while let Some(row) = rows.next() {
            let mut lines = Vec::new();
            while let Some(line) = rows.next_if(|line| line.indent > row.indent) {
                lines.push(line.span);
            }
            alternatives.extend(self.alternative(row.span, &lines));
        }
        if more.is_empty() {
            self.sink.error(rest, "`<one of>` without outcomes").help(
                "write the outcomes below, indented: `pass: ...`, `note: ...`, `warn: ...`, `fail: ...`",
            );
        }
        Some(StepAction::OneOf(alternatives))
    }

    fn alternative(&mut self, line: Span, more: &[Span]) -> Option<Alternative> {
        let content = self.text_at(line);
        let Some((grade, cites, after)) = layout::split_role(content, 0) else {
            self.sink
                .error(line, "an outcome without a verdict")
                .help("write `pass: ...` or `fail[ID]: ...`");
            return None;
        };
        let grade = Self::within(line, grade);
        let word = self.text_at(grade);
        let cites = cites.and_then(|span| self.id(Self::within(line, span)));
        let rest = Self::within(line, layout::trimmed(content, after));
        if self.text_at(rest) == ONE_OF {
            self.sink.error(rest, "`<one of>` within `<one of>`");
            return None;
        }
        let action = self.message(Actor::Implementation, rest, more);
        let grade = self.known(grade, word, "verdict", &Grade::NAMES)?;
        let end = more.last().map_or(line.end, |last| last.end);
        Some(Alternative { grade, cites, action: action?, span: Span { start: line.start, end } })
    }

    /// Splits text into its first word and the rest.
    fn first_word(&self, rest: Span) -> (Span, Span) {
        let content = self.text_at(rest);
        let end = layout::word_end(content, 0);
        let word = Self::within(rest, Span { start: 0, end });
        (word, Self::within(rest, layout::trimmed(content, end)))
    }

    /// Parses the action of a `P:` step. Expectations are written in the third person, and actions of the harness in the imperative.
    fn process(&mut self, rest: Span) -> Option<ProcessAction> {
        let (word, argument) = self.first_word(rest);
        let tests = self.scenario.tests;
        let action = match (self.text_at(word), self.text_at(argument)) {
            ("starts", "") => ProcessAction::Started,
            ("pause", "") => ProcessAction::Pause,
            ("pause", "parent") => ProcessAction::PauseParent,
            ("is", "ended") => ProcessAction::IsEnded,
            ("ends", "") if tests == ImplementationKind::Library => ProcessAction::IsEnded,
            ("ends", "") => ProcessAction::Ends,
            ("prints", "the same") => ProcessAction::SameOutput,
            ("exits", "nonzero|same") => ProcessAction::FailsOrMatches,
            ("exits", _) => return self.status(argument).map(ProcessAction::Exits),
            ("has", content) if content.starts_with("arguments") && !content.starts_with("arguments=") => {
                let (_, args) = self.first_word(argument);
                return Some(ProcessAction::Args(template::read(self.text, args, &mut self.sink)));
            }
            (verb @ ("has" | "set"), _) => {
                let right = if tests == ImplementationKind::Server { "has" } else { "set" };
                if verb != right {
                    self.sink.error(word, format!("`{verb}` is not allowed in a scenario that tests a {}", tests.word())).help(
                        "write `has` to check the environment that a server sets, and `set` for programs and libraries",
                    );
                }
                return self.env(rest, argument);
            }
            ("exit", _) => return self.byte(argument, 0, 255).map(ProcessAction::Exit),
            ("kill", _) => return self.byte(argument, 1, 64).map(ProcessAction::Kill),
            ("wait", _) => return self.byte(argument, 1, 60).map(ProcessAction::Wait),
            ("starts" | "ends" | "pause", _) => {
                self.reject_argument(word, argument);
                return None;
            }
            (other, _) => return self.report_unknown_word(word, other, "process", PROCESS_WORDS),
        };
        Some(action)
    }

    fn job(&mut self, rest: Span) -> Option<ProcessAction> {
        let (word, argument) = self.first_word(rest);
        match self.text_at(word) {
            "logs" => {
                self.reject_argument(word, argument);
                Some(ProcessAction::Logged)
            }
            "exits" => self.status(argument).map(ProcessAction::JobExit),
            other => self.report_unknown_word(word, other, "job", JOB_WORDS),
        }
    }

    fn status(&mut self, argument: Span) -> Option<ExitPattern> {
        match self.text_at(argument) {
            "any" => Some(ExitPattern::Any),
            "nonzero" => Some(ExitPattern::NonZero),
            other if other.starts_with(|c: char| c.is_ascii_digit()) => {
                self.byte(argument, 0, 255).map(ExitPattern::Code)
            }
            other => {
                self.sink
                    .error(argument, "an exit status is a number, `nonzero` or `any`")
                    .suggest(other, &["nonzero", "any"]);
                None
            }
        }
    }

    fn report_unknown_word<T>(&mut self, span: Span, word: &str, what: &str, known: &[&str]) -> Option<T> {
        let message = if word.is_empty() {
            "an empty step".to_owned()
        } else {
            format!("unknown word `{word}` in a {what} step")
        };
        self.sink.error(span, message).suggest(word, known);
        None
    }

    fn reject_argument(&mut self, word: Span, argument: Span) {
        if argument.start < argument.end {
            self.sink.error(argument, format!("unexpected text after `{}`", self.text_at(word)));
        }
    }

    fn byte(&mut self, span: Span, min: u8, max: u8) -> Option<u8> {
        let number = number_in(self.text_at(span), min..=max);
        if number.is_none() {
            self.sink.error(span, format!("expected a number from {min} to {max}"));
        }
        number
    }

    fn env(&mut self, rest: Span, argument: Span) -> Option<ProcessAction> {
        let content = self.text_at(argument);
        let Some(equals) = content.find('=') else {
            self.sink
                .error(rest, "a variable without `=`")
                .help("write `has NAME=TEXT` or `set NAME=TEXT`; `<absent>` means unset");
            return None;
        };
        let name = Span { start: argument.start, end: argument.start + equals };
        let value = Span { start: name.end + 1, end: argument.end };
        let value = template::read(self.text, value, &mut self.sink);
        if !is_name(self.text_at(name)) {
            self.sink.error(name, "invalid name of an environment variable");
            return None;
        }
        Some(ProcessAction::Env(self.spanned(name), value))
    }

    // ---- library calls

    fn call(&mut self, rest: Span) -> Option<Call> {
        let content = self.text_at(rest);
        let mut call = Call { function: None, args: Vec::new(), result: None, outs: Vec::new() };
        let mut at = 0;
        if !content.starts_with('=') {
            let end = content.find(|c| !expr::is_name_char(c)).unwrap_or(content.len());
            let name = Self::within(rest, Span { start: 0, end });
            if let Some(named) = content.strip_prefix('$') {
                // The name of the function is a word of a row, written as `$name`.
                at = 1 + named.find(|c| !expr::is_name_char(c)).unwrap_or(named.len());
                let name = Self::within(rest, Span { start: 0, end: at });
                self.name(name)?;
                call.function = Some(self.spanned(name));
            } else if end == 0 || !content[end..].starts_with('(') {
                self.sink
                    .error(if end == 0 { rest } else { name }, "expected a call")
                    .help("write `PMI_KVS_Get($kvs, \"key\", &value) = PMI_SUCCESS value=...`, or `= PMI_SUCCESS` alone");
                return None;
            }
            if call.function.is_none() {
                call.function = Some(self.spanned(name));
                at = self.args(rest, end + 1, &mut call.args)?;
            }
        }
        let after = Self::within(rest, layout::trimmed(content, at));
        if after.start == after.end {
            return Some(call);
        }
        let content = self.text_at(after);
        if !content.starts_with('=') {
            self.sink.error(after, "expected `= RESULT`");
            return None;
        }
        let result = Self::within(after, layout::trimmed(content, 1));
        let (word, outs) = self.first_word(result);
        if word.start == word.end {
            self.sink.error(after, "`=` without a result").help("write `= PMI_SUCCESS`");
            return None;
        }
        call.result = Some(self.spanned(word));
        call.outs = self.outs(outs, template::read);
        Some(call)
    }

    /// Parses the arguments that begin at `at`. Returns the offset after the closing parenthesis.
    fn args(&mut self, rest: Span, mut at: usize, args: &mut Vec<Arg>) -> Option<usize> {
        let content = self.text_at(rest);
        let open = Self::within(rest, Span { start: at - 1, end: at });
        at = layout::skip_blanks(content, at);
        if content[at..].starts_with(')') {
            return Some(at + 1);
        }
        loop {
            at = layout::skip_blanks(content, at);
            if at == content.len() {
                self.sink.error(open, "a call without a closing `)`");
                return None;
            }
            let end = match content[at..].strip_prefix('"') {
                Some(text) => match text.find('"') {
                    Some(length) => at + 1 + length + 1,
                    None => {
                        let span = Self::within(rest, Span { start: at, end: at + 1 });
                        self.sink.error(span, "a string without a closing `\"`");
                        return None;
                    }
                },
                None => Self::arg_end(content, at),
            };
            args.push(self.arg(Self::within(rest, Span { start: at, end }))?);
            at = layout::skip_blanks(content, end);
            match content.as_bytes().get(at) {
                Some(b',') => at += 1,
                Some(b')') => return Some(at + 1),
                _ => {
                    self.sink
                        .error(open, "a call without a closing `)`")
                        .help("arguments are separated by commas");
                    return None;
                }
            }
        }
    }

    /// Returns the offset of the end of an argument that is not a string. The argument ends at a comma, or at the parenthesis that closes
    /// the list.
    fn arg_end(content: &str, at: usize) -> usize {
        let mut depth = 0usize;
        for (offset, c) in content[at..].char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ',' | ')' => return at + offset,
                _ => {}
            }
        }
        content.len()
    }

    fn arg(&mut self, span: Span) -> Option<Arg> {
        let text = self.text_at(span).trim_end_matches(' ');
        let span = Span { start: span.start, end: span.start + text.len() };
        if text.starts_with('"') {
            let inner = Span { start: span.start + 1, end: span.end - 1 };
            return Some(Arg::Text(template::read(self.text, inner, &mut self.sink)));
        }
        if text == "NULL" {
            return Some(Arg::Null);
        }
        if let Some(out) = text.strip_prefix('&') {
            let end = out.find('[').unwrap_or(out.len());
            let name = Span { start: span.start + 1, end: span.start + 1 + end };
            if !is_name(&out[..end]) {
                self.sink.error(span, "an output argument is written `&name` or `&name[SIZE]`");
                return None;
            }
            let size = match out[end..].strip_prefix('[').map(|size| size.strip_suffix(']')) {
                None => None,
                Some(Some(size)) => {
                    let start = name.end + 1;
                    Some(self.number(Span { start, end: start + size.len() }, ARGUMENT_HELP)?)
                }
                Some(None) => {
                    self.sink.error(span, "a buffer size without a closing `]`");
                    return None;
                }
            };
            return Some(Arg::Out(self.spanned(name), size));
        }
        self.number(span, ARGUMENT_HELP).map(Arg::Number)
    }

    /// Parses a number or expression.
    fn number(&mut self, span: Span, help: &str) -> Option<Expr> {
        let parsed = expr::expr(self.text_at(span), span.start);
        let report = |wrong: expr::SyntaxError| {
            let start = span.start + wrong.at;
            let span = Span { start, end: (start + 1).min(span.end).max(start) };
            self.sink.error(span, wrong.message).help(help);
        };
        parsed.map_err(report).ok()
    }

    /// Parses `NAME=TEXT ...`.
    fn outs(
        &mut self,
        span: Span,
        read: fn(&str, Span, &mut DiagnosticSink) -> Template,
    ) -> Vec<(Spanned<String>, Template)> {
        let mut outs = Vec::new();
        let content = self.text_at(span);
        let mut at = layout::skip_blanks(content, 0);
        while at < content.len() {
            let (end, is_closed) = layout::value_end(content, at);
            let token = Self::within(span, Span { start: at, end });
            at = layout::skip_blanks(content, end);
            let Some(equals) = self.text_at(token).find('=') else {
                self.sink.error(token, "expected `name=VALUE`").help("write `<sp>` for a space in a value");
                continue;
            };
            let name = self.bare_name(Span { start: token.start, end: token.start + equals });
            let mut value = Span { start: token.start + equals + 1, end: token.end };
            let text = self.text_at(value);
            match (text.starts_with('{'), is_closed && text.ends_with('}')) {
                (true, true) => value = Span { start: value.start + 1, end: value.end - 1 },
                (true, false) => {
                    self.sink
                        .error(value, "`{` without `}`")
                        .help("write `<0x7b>` for a brace at the beginning of a value");
                }
                (false, _) => {}
            }
            let value = read(self.text, value, &mut self.sink);
            outs.extend(name.map(|name| (name, value)));
        }
        outs
    }
}

/// Returns whether a word is a name: letters, digits and `_`, with no digit at the beginning.
fn is_name(word: &str) -> bool {
    word.starts_with(expr::is_name_start) && word.chars().all(expr::is_name_char)
}

/// Parses a decimal number. Returns `None` if the text is invalid or the number is outside the range.
fn number_in<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && range.contains(number))
}
