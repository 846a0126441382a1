//! Prints trees as scenario files in canonical form. `pmi-conform scenario fmt` parses a file and prints its tree.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

use pmi_wire::{Framing, Proc};

use super::{ast::*, expr, layout};

/// Indentation of each level of `repeat`, and of continuation lines, in spaces.
const INDENT: usize = 2;
/// Width of the verb column: the longest verb and the following spaces.
const VERB_WIDTH: usize = 8;
/// Maximum width of prose and of lists in the head.
const MAX_WIDTH: usize = 120;

/// Prints a scenario. Parsing the output returns an equal tree if `scenario` was parsed, or if its templates were created by [`Template`]'s
/// constructors.
///
/// Verbs and roles are aligned two spaces after the longest list of ranks, and continuation lines are aligned with the text of their step.
/// A blank line follows the head. Consecutive blank lines are merged.
pub fn print(scenario: &Scenario) -> String {
    let mut printer = Printer {
        out: String::new(),
        comments: scenario.comments.iter().collect(),
        blank: false,
        tests: scenario.tests,
        role_column: longest(&scenario.body, 0) + 2,
    };
    for line in &scenario.heading {
        printer.raw(0, format!("# {line}").trim_end_matches(' '));
    }
    printer.head(scenario);
    printer.body(&scenario.body, 0);
    printer.comments_before(usize::MAX, 0);
    printer.out
}

/// Returns the width of the longest list of ranks, including its indentation.
fn longest(body: &[Statement], indent: usize) -> usize {
    let of = |statement: &Statement| match statement {
        Statement::Repeat { body, .. } | Statement::Only { body, .. } => longest(body, indent + INDENT),
        Statement::Step(Step {
            target: target @ (StepTarget::Ranks { .. } | StepTarget::Spawned { .. }),
            ..
        }) => indent + ranks(target).len(),
        _ => 0,
    };
    body.iter().map(of).max().unwrap_or(0)
}

struct Printer<'a> {
    out: String,
    /// The comments that have not been printed yet.
    comments: VecDeque<&'a Comment>,
    /// True if a blank line precedes the next line.
    blank: bool,
    tests: ImplementationKind,
    role_column: usize,
}

impl Printer<'_> {
    fn raw(&mut self, indent: usize, text: &str) {
        if std::mem::take(&mut self.blank) && !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Prints the comments before a position in the file.
    fn comments_before(&mut self, at: usize, indent: usize) {
        while let Some(comment) = self.comments.front().filter(|comment| comment.span.start < at) {
            match &comment.kind {
                CommentKind::Blank => self.blank = true,
                CommentKind::Line(text) | CommentKind::Trailing { text, .. } => {
                    self.raw(indent, format!("# {text}").trim_end_matches(' '));
                }
            }
            self.comments.pop_front();
        }
    }

    /// Prints a line that is at `span` in the file, preceded by the comments above it.
    fn line(&mut self, indent: usize, text: &str, span: Span) {
        self.comments_before(span.start, indent);
        self.line_with_comment(indent, text, span);
    }

    /// Prints a line with its trailing comment.
    fn line_with_comment(&mut self, indent: usize, text: &str, span: Span) {
        let mut text = text.trim_end_matches(' ').to_owned();
        let after = |comment: &&Comment| {
            matches!(comment.kind, CommentKind::Trailing { line, .. } if line <= span.end)
                && comment.span.start > span.start
        };
        while let Some(at) = self.comments.iter().position(after) {
            if let Some(Comment { kind: CommentKind::Trailing { text: comment, .. }, .. }) =
                self.comments.remove(at)
            {
                let _ = write!(text, "  # {comment}");
            }
        }
        self.raw(indent, text.trim_end_matches(' '));
    }

    /// Prints the head in canonical order. Comments between head lines are printed below the head, except for comments above a row.
    fn head(&mut self, scenario: &Scenario) {
        let start = self.out.len();
        let Scenario {
            requires,
            needs,
            tests,
            dialect,
            other_dialects: also,
            ranks,
            nodes,
            is_free,
            server_setup: serving,
            ..
        } = scenario;
        self.list("requires", requires, |id| id.clone());
        match tests {
            ImplementationKind::Server => {}
            ImplementationKind::Client => self.line_with_comment(0, "tests client", Span::default()),
            ImplementationKind::Library => self.line_with_comment(0, "tests library", Span::default()),
        }
        if *dialect != Dialect::default() || !also.is_empty() {
            let words: Vec<&str> = [*dialect].iter().chain(also).map(|dialect| dialect.word()).collect();
            self.line_with_comment(0, &format!("dialect {}", words.join(" ")), Span::default());
        }
        self.list("needs", needs, |need| need.word().to_owned());
        if serving.has_rank_count || *ranks != 1 {
            self.line_with_comment(0, &format!("ranks {ranks}"), Span::default());
        }
        if *nodes != 1 {
            self.line_with_comment(0, &format!("nodes {nodes}"), Span::default());
        }
        if *is_free {
            self.line_with_comment(0, "schedule free", Span::default());
        }
        self.list("vary", &serving.variations, |name| name.clone());
        self.list("fault", serving.fault.as_slice(), |name| name.clone());
        let settings: Vec<Spanned<String>> = serving
            .settings
            .iter()
            .map(|(setting, n)| Spanned {
                value: format!("{}={n}", setting.value.word()),
                span: setting.span,
            })
            .collect();
        self.list("serve", &settings, |setting| setting.clone());
        self.list("launch", serving.launch.as_slice(), |words| words.clone());
        let takes: Vec<Spanned<String>> = scenario.parameters.iter().map(parameter).collect();
        self.list("takes", &takes, |text| text.clone());
        if let Some(each) = &scenario.each {
            let but = if each.except.is_empty() { "" } else { " but" };
            let names: String = each.except.iter().map(|name| format!(" {}", name.value)).collect();
            self.line_with_comment(0, &format!("each {}{but}{names}", each.table.value), Span::default());
        }
        self.rows("in", scenario.dialect_words.iter().map(|(_, words)| words));
        self.rows("row", scenario.rows.iter());
        // Without a blank line here, the comment of an omitted head line would become part of the heading.
        let has_comment = self.comments.front().is_some_and(|comment| comment.kind != CommentKind::Blank);
        self.blank |= self.out.len() > start || has_comment;
    }

    /// Prints a line for each row: the keyword, the name of the row, and the values. The values begin in the same column.
    fn rows<'t>(&mut self, keyword: &str, rows: impl Iterator<Item = &'t TableRow> + Clone) {
        let longest = rows.clone().map(|row| row.name.value.len()).max().unwrap_or(0);
        for row in rows {
            let name = &row.name.value;
            let line = format!("{keyword} {name:longest$} {}", values(&row.values));
            let end = row.values.last().map_or(row.name.span.end, |(_, value)| value.span.end);
            self.line(0, &line, Span { end, ..row.name.span });
        }
    }

    /// Prints a head line with several words, on as many lines as necessary.
    fn list<T>(&mut self, keyword: &str, items: &[Spanned<T>], word: impl Fn(&T) -> String) {
        let mut rest = items;
        while let [first, ..] = rest {
            let mut text = keyword.to_owned();
            let mut span = first.span;
            let mut taken = 0;
            for item in rest {
                let word = word(&item.value);
                if taken > 0 && text.len() + 1 + word.len() > MAX_WIDTH {
                    break;
                }
                text = text + " " + &word;
                span.end = item.span.end;
                taken += 1;
            }
            self.line_with_comment(0, &text, span);
            rest = &rest[taken..];
        }
    }

    fn body(&mut self, body: &[Statement], indent: usize) {
        for statement in body {
            match statement {
                Statement::Use { name, with } => {
                    let with: Vec<String> = with
                        .iter()
                        .map(|(name, value)| {
                            format!("{}={}", name.value, text(&value.pieces, QuotingContext::Argument))
                        })
                        .collect();
                    let with = if with.is_empty() { String::new() } else { format!("({})", with.join(", ")) };
                    self.line(indent, &format!("use {}{with}", name.value), name.span);
                }
                Statement::Let { name, value } => {
                    let text = text(&value.pieces, QuotingContext::Let);
                    // Omit the space before a `#`, because the `#` would otherwise begin a comment.
                    let blank = if text.starts_with('#') { "" } else { " " };
                    self.line(indent, &format!("let ${} ={blank}{text}", name.value), name.span);
                }
                Statement::Repeat { count, var, body, span, end } => {
                    let counter = var.as_ref().map(|var| format!(" as ${}", var.value)).unwrap_or_default();
                    self.block(indent, &format!("repeat {}{counter}", number(count)), [*span, *end], body);
                }
                Statement::Only { names, body, span, end } => {
                    let names: String = names.iter().map(|name| format!(" {}", name.value)).collect();
                    self.block(indent, &format!("only{names}"), [*span, *end], body);
                }
                Statement::Step(step) => self.step(step, indent),
            }
        }
    }

    /// Prints a block: its first line, its body and its `end`. `lines` contains the positions of the first and the last line.
    fn block(&mut self, indent: usize, first: &str, lines: [Span; 2], body: &[Statement]) {
        self.line(indent, first, lines[0]);
        self.body(body, indent + INDENT);
        self.comments_before(lines[1].start, indent + INDENT);
        self.line(indent, "end", lines[1]);
    }

    fn step(&mut self, step: &Step, indent: usize) {
        let mut line = ranks(&step.target);
        if !line.is_empty() {
            let width = self.role_column.saturating_sub(indent).max(line.len() + 1);
            line.extend(std::iter::repeat_n(' ', width - line.len()));
        }
        let word = step.role.word(self.tests);
        let is_verb = layout::VERBS.contains(&word);
        line += &labelled(word, step.cites.as_ref(), !is_verb);
        // The column at which the text of a step begins: two spaces after the longest verb, or directly after a role and `: `.
        let below = self.role_column + if is_verb { VERB_WIDTH } else { 3 };
        if is_verb {
            line = format!("{line:<width$}", width = self.role_column + VERB_WIDTH - 1 - indent);
        }
        let part = step.actor(self.tests);
        match &step.action {
            StepAction::OneOf(alternatives) => {
                self.line(indent, &format!("{line} <one of>"), step.span);
                for alternative in alternatives {
                    let label = labelled(alternative.grade.word(), alternative.cites.as_ref(), true);
                    self.action(
                        &alternative.action,
                        Actor::Implementation,
                        &label,
                        alternative.span,
                        below,
                        below + INDENT,
                    );
                }
            }
            action => self.action(action, part, &line, step.span, indent, below),
        }
    }

    /// Prints an action: the first line after the label, and the remaining lines below it.
    fn action(
        &mut self,
        action: &StepAction,
        part: Actor,
        label: &str,
        span: Span,
        indent: usize,
        below: usize,
    ) {
        let (before, lines) = match action {
            StepAction::Message { mode, lines } => {
                let encoding = Encoding::WORDS.into_iter().map(|(word, e)| (mode.encoding == e, word));
                let words =
                    [(mode.bytewise, "<bytewise>"), (mode.partial, "<partial>"), (mode.every, "<every>")];
                let words = words.into_iter().chain(encoding).filter(|(is, _)| *is);
                (words.flat_map(|(_, word)| [word, " "]).collect(), lines.as_slice())
            }
            StepAction::Upstream(UpstreamAction::Response { to, partial, lines }) => {
                (request(*to) + if *partial { "<partial> " } else { "" }, lines.as_slice())
            }
            StepAction::Upstream(UpstreamAction::CorrectResponse { to }) => {
                (request(*to) + "<right>", [].as_slice())
            }
            StepAction::Upstream(UpstreamAction::Close) => (CLOSE.word(Actor::Harness), [].as_slice()),
            StepAction::Close => (CLOSE.word(part), [].as_slice()),
            StepAction::Empty => ("<empty>".to_owned(), [].as_slice()),
            StepAction::Silence => (SILENCE.word(part), [].as_slice()),
            StepAction::CorrectResponse => ("<right>".to_owned(), [].as_slice()),
            StepAction::OneOf(_) => ("<one of>".to_owned(), [].as_slice()),
            StepAction::Process(action) => (process(action, self.tests), [].as_slice()),
            StepAction::Call(call) => (self::call(call), [].as_slice()),
        };
        let mut lines = lines.iter();
        let first = lines.next().map(|line| text(&line.pieces, QuotingContext::Line)).unwrap_or_default();
        self.line(indent, &format!("{label} {before}{first}"), span);
        for line in lines {
            self.line(below, &text(&line.pieces, QuotingContext::ContinuationLine), line.span);
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.pieces, QuotingContext::Line))
    }
}

/// Formats a parameter of a fragment: `NAME`, or `NAME=TEXT` if it has a default.
fn parameter(parameter: &Parameter) -> Spanned<String> {
    let Parameter { name, default } = parameter;
    let default = default
        .as_ref()
        .map(|value| format!("={}", text(&value.pieces, QuotingContext::Word)))
        .unwrap_or_default();
    Spanned { value: name.value.clone() + &default, span: name.span }
}

/// Returns ` NAME=TEXT` for each value of a row, or of the result of a call.
fn values(all: &[(Spanned<String>, Template)]) -> String {
    all.iter().map(|(name, text)| format!(" {}={}", name.value, value_text(text))).collect()
}

/// Formats a value of a row, or of the result of a call. Encloses the value in braces if it contains spaces that separate tuples.
fn value_text(value: &Template) -> String {
    let parts =
        |piece: &Piece| matches!(piece, Piece::Literal { bytes, quoted: false } if bytes.contains(&b' '));
    match value.pieces.iter().any(parts) {
        true => format!("{{{}}}", text(&value.pieces, QuotingContext::Braces)),
        false => match text(&value.pieces, QuotingContext::Word) {
            word if word.starts_with('{') => format!("<0x7b>{}", &word[1..]),
            word => word,
        },
    }
}

/// Formats the verb or role of a step with its citation, as in `ROLE[ID]`. Adds a colon if `has_colon` is true.
fn labelled(word: &str, cites: Option<&Spanned<String>>, has_colon: bool) -> String {
    let cites = cites.map(|id| format!("[{}]", id.value)).unwrap_or_default();
    format!("{word}{cites}{}", if has_colon { ":" } else { "" })
}

/// Returns `<to N> `, or an empty string if `to` is `None`.
fn request(to: Option<u32>) -> String {
    to.map(|n| format!("<to {n}> ")).unwrap_or_default()
}

/// Formats the ranks of a step. Returns an empty string for the job.
fn ranks(target: &StepTarget) -> String {
    let (group, set) = match target {
        StepTarget::Job => return String::new(),
        StepTarget::Spawned { number, set } => (format!("child${}:", number.value), set),
        StepTarget::Ranks { group, set } => (
            match *group {
                0 => String::new(),
                Proc::PROXY_GROUP => "proxy:".to_owned(),
                Proc::STRAY_GROUP => "stray:".to_owned(),
                1 => "child:".to_owned(),
                n => format!("child{n}:"),
            },
            set,
        ),
    };
    match set {
        RankSet::All => group + "*",
        RankSet::Ranges(ranges) => {
            let range = |(first, last): &(u32, u32)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            };
            group + &ranges.iter().map(range).collect::<Vec<_>>().join(",")
        }
    }
}

/// The two forms of an action: as performed by the harness, and as expected from the implementation.
pub(super) struct ActionForm {
    pub(super) harness_form: &'static str,
    pub(super) implementation_form: &'static str,
}

pub(super) const CLOSE: ActionForm = ActionForm { harness_form: "<close>", implementation_form: "<closes>" };
pub(super) const SILENCE: ActionForm =
    ActionForm { harness_form: "<nothing>", implementation_form: "<silence>" };

impl ActionForm {
    fn word(&self, part: Actor) -> String {
        match part {
            Actor::Harness => self.harness_form.to_owned(),
            Actor::Implementation => self.implementation_form.to_owned(),
        }
    }
}

fn process(action: &ProcessAction, tests: ImplementationKind) -> String {
    match action {
        ProcessAction::Started => "starts".into(),
        ProcessAction::Env(name, value) => {
            let verb = if tests == ImplementationKind::Server { "has" } else { "set" };
            format!("{verb} {}={}", name.value, text(&value.pieces, QuotingContext::Value))
        }
        ProcessAction::Args(args) => format!("has arguments {}", text(&args.pieces, QuotingContext::Text)),
        ProcessAction::IsEnded if tests != ImplementationKind::Library => "is ended".into(),
        ProcessAction::IsEnded | ProcessAction::Ends => "ends".into(),
        ProcessAction::Exit(status) => format!("exit {status}"),
        ProcessAction::Kill(signal) => format!("kill {signal}"),
        ProcessAction::Wait(seconds) => format!("wait {seconds}"),
        ProcessAction::Pause => "pause".into(),
        ProcessAction::PauseParent => "pause parent".into(),
        ProcessAction::Exits(pattern) | ProcessAction::JobExit(pattern) => {
            format!("exits {}", exit(*pattern))
        }
        ProcessAction::FailsOrMatches => "exits nonzero|same".into(),
        ProcessAction::SameOutput => "prints the same".into(),
        ProcessAction::Logged => "logs".into(),
    }
}

fn exit(pattern: ExitPattern) -> String {
    match pattern {
        ExitPattern::Any => "any".into(),
        ExitPattern::NonZero => "nonzero".into(),
        ExitPattern::Code(status) => status.to_string(),
    }
}

fn call(call: &Call) -> String {
    let mut all = String::new();
    if let Some(function) = call.function.as_ref().filter(|function| function.value.starts_with('$')) {
        all.push_str(&function.value);
    } else if let Some(function) = &call.function {
        let args: Vec<String> = call.args.iter().map(arg).collect();
        let _ = write!(all, "{}({})", function.value, args.join(", "));
    }
    if let Some(result) = &call.result {
        let blank = if all.is_empty() { "" } else { " " };
        let _ = write!(all, "{blank}= {}{}", result.value, values(&call.outs));
    }
    all
}

fn arg(arg: &Arg) -> String {
    match arg {
        Arg::Text(value) => format!("\"{}\"", text(&value.pieces, QuotingContext::Quotes)),
        Arg::Number(n) => number(n),
        Arg::Null => "NULL".into(),
        Arg::Out(name, None) => format!("&{}", name.value),
        Arg::Out(name, Some(size)) => format!("&{}[{}]", name.value, number(size)),
    }
}

/// The context in which a template is printed. It determines which bytes must be quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuotingContext {
    /// A message at the end of a line.
    Line,
    /// A message on a separate line.
    ContinuationLine,
    /// A value at the end of a line, in which leading spaces are significant.
    Value,
    /// Text at the end of a line, in which leading spaces are ignored.
    Text,
    /// After `let`, possibly followed by a comment.
    Let,
    /// Between spaces.
    Word,
    /// Between quotation marks.
    Quotes,
    /// Between braces. The text may contain further pairs of braces.
    Braces,
    /// Between parentheses and commas. Spaces at both ends are ignored, and a comment may follow.
    Argument,
}

fn text(pieces: &[Piece], place: QuotingContext) -> String {
    let written: Vec<String> = pieces.iter().map(|piece| self::piece(piece, place)).collect();
    let mut out = String::new();
    for (index, (piece, text)) in pieces.iter().zip(&written).enumerate() {
        let next = written[index + 1..].iter().find(|text| !text.is_empty()).map_or("", String::as_str);
        match piece {
            // Braces are necessary if the next character would become part of the name or begin a type.
            Piece::Var(name)
                if next.starts_with(expr::is_name_char)
                    || next
                        .strip_prefix(':')
                        .is_some_and(|n| n.starts_with(|c: char| c.is_ascii_alphabetic())) =>
            {
                let _ = write!(out, "${{{name}}}");
            }
            _ if text.starts_with(expr::is_name_char)
                && matches!(index.checked_sub(1).map(|i| &pieces[i]), Some(Piece::Capture(..))) =>
            {
                quoted(text.as_bytes()[0], &mut out);
                out.push_str(&text[1..]);
            }
            _ => out.push_str(text),
        }
    }
    if matches!(
        place,
        QuotingContext::Line
            | QuotingContext::ContinuationLine
            | QuotingContext::Text
            | QuotingContext::Let
            | QuotingContext::Argument
    ) && out.starts_with(' ')
    {
        out.replace_range(..1, "<sp>");
    }
    if !matches!(place, QuotingContext::Quotes | QuotingContext::Word | QuotingContext::Braces)
        && out.ends_with(' ')
    {
        out.replace_range(out.len() - 1.., "<sp>");
    }
    match place {
        // An empty message is written as `<empty>`. A `#` that would begin a comment is escaped.
        QuotingContext::Line | QuotingContext::ContinuationLine if out.is_empty() => "<empty>".into(),
        QuotingContext::ContinuationLine if out.starts_with('#') => format!("<0x23>{}", &out[1..]),
        QuotingContext::Let | QuotingContext::Argument => out.replace(" #", " <0x23>"),
        _ => out,
    }
}

fn piece(piece: &Piece, place: QuotingContext) -> String {
    match piece {
        Piece::Literal { bytes, quoted: true } => {
            let mut out = String::new();
            bytes.iter().for_each(|byte| quoted(*byte, &mut out));
            out
        }
        Piece::Literal { bytes, quoted: false } => literal(bytes, place),
        Piece::Var(name) => format!("${name}"),
        Piece::Capture(name, kind) => format!("${name}:{}", self::kind(kind)),
        Piece::Calc(n) => format!("<calc {}>", number(n)),
        Piece::Char(n) => format!("<char {}>", number(n)),
        Piece::Fill(n) => format!("<fill {}>", number(n)),
        Piece::Junk(n) => format!("<junk {}>", number(n)),
        Piece::Cut => "<|>".into(),
        Piece::Typed(kind @ (ValueType::RcOk | ValueType::RcFail)) => self::kind(kind),
        Piece::Typed(kind) => format!("<{}>", self::kind(kind)),
    }
}

fn literal(bytes: &[u8], place: QuotingContext) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let special = match place {
                QuotingContext::Word => c == ' ',
                QuotingContext::Quotes => c == '"',
                QuotingContext::Argument => c == ',',
                _ => false,
            };
            if special || matches!(c, '$' | '<') || c.is_control() {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| quoted(byte, &mut out));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| quoted(*byte, &mut out));
    }
    out
}

/// Appends a byte in its quoted form.
fn quoted(byte: u8, out: &mut String) {
    match byte {
        b'$' => out.push_str("$$"),
        b'<' => out.push_str("<<"),
        b' ' => out.push_str("<sp>"),
        b'\t' => out.push_str("<tab>"),
        _ => {
            let _ = write!(out, "<0x{byte:02x}>");
        }
    }
}

fn kind(kind: &ValueType) -> String {
    let bound = |bound: &Option<Expr>| bound.as_ref().map(number).unwrap_or_default();
    match kind {
        ValueType::Uint(None, None) => "uint".into(),
        ValueType::Uint(low, high) => format!("uint {}..{}", bound(low), bound(high)),
        ValueType::Int => "int".into(),
        ValueType::IntList => "intlist".into(),
        ValueType::Word => "word".into(),
        ValueType::String => "string".into(),
        ValueType::Mapping => "mapping".into(),
        ValueType::Empty => "empty".into(),
        ValueType::Absent => "absent".into(),
        ValueType::Any => "any".into(),
        ValueType::RcOk => "ok".into(),
        ValueType::RcFail => "fail".into(),
    }
}

fn number(expr: &Expr) -> String {
    let binds = |expr: &Expr| match expr {
        Expr::Binary(_, BinOp::Add | BinOp::Sub, _) => 1,
        Expr::Binary(..) => 2,
        Expr::Number(_) | Expr::Var(_) => 3,
    };
    match expr {
        Expr::Number(n) => n.to_string(),
        Expr::Var(name) => format!("${}", name.value),
        Expr::Binary(left, op, right) => {
            let part = |part: &Expr, least| {
                let text = number(part);
                if binds(part) < least { format!("({text})") } else { text }
            };
            let sign = match op {
                BinOp::Add => '+',
                BinOp::Sub => '-',
                BinOp::Mul => '*',
                BinOp::Rem => '%',
            };
            // Operators of equal precedence associate to the left.
            format!("{}{sign}{}", part(left, binds(expr)), part(right, binds(expr) + 1))
        }
    }
}

/// Wraps a heading into lines. For PMI-2, omits the sentences that mention RFC 13.
pub(crate) fn heading_in(dialect: Dialect, text: &str) -> Vec<String> {
    match dialect.framing() {
        Framing::Lines => wrapped(text.split_whitespace()),
        Framing::Frames => wrapped(without_rfc13(text).split_whitespace()),
    }
}

/// Removes the sentences that mention RFC 13, because RFC 13 justifies a scenario only in PMI-1.
fn without_rfc13(text: &str) -> String {
    let sentences = text.trim_end_matches('.').split(". ").filter(|sentence| !sentence.contains("RFC 13"));
    sentences.collect::<Vec<_>>().join(". ") + "."
}

/// Wraps words into lines of at most `MAX_WIDTH` bytes.
pub(crate) fn wrapped<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() < MAX_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
