//! Splits a file into lines and groups them into steps. The parser and the formatter share this module, so they agree on where a step ends.

use super::ast::{Dialect, ImplementationKind, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Blank,
    Comment,
    /// The line is a head line, or the first line of a statement or a step.
    First,
    /// The line continues the step above it.
    Continuation,
}

/// A line without its indentation and trailing spaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceLine {
    pub(super) kind: LineKind,
    pub(super) indent: usize,
    pub(super) span: Span,
}

impl Span {
    pub(super) fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Splits a file into lines. A line continues the step above it if it is indented more deeply than the first line of that step. Blank lines
/// and comments do not end a step.
pub(super) fn lines(text: &str) -> Vec<SourceLine> {
    let mut lines = Vec::new();
    let mut step_indent = None;
    let mut start = 0;
    for raw in text.split('\n') {
        let content = raw.trim_start_matches(BLANKS);
        let indent = raw.len() - content.len();
        let content = content.trim_end_matches(BLANKS);
        let span = Span { start: start + indent, end: start + indent + content.len() };
        start += raw.len() + 1;
        let kind = if content.is_empty() {
            LineKind::Blank
        } else if content.starts_with('#') {
            LineKind::Comment
        } else if step_indent.is_some_and(|step| indent > step) {
            LineKind::Continuation
        } else {
            step_indent = looks_like_step(content).then_some(indent);
            LineKind::First
        };
        lines.push(SourceLine { kind, indent, span });
    }
    lines
}

/// The parsed head of a valid file.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    pub(super) tests: Option<ImplementationKind>,
    /// The names of the dialects.
    pub(super) dialects: Vec<&'a str>,
    /// The table of `each` and the rows to leave out, if the head has an `each` line.
    pub(super) each: Option<(&'a str, Vec<&'a str>)>,
    pub(super) rows: Vec<HeadRow<'a>>,
    /// The text after the head.
    pub(super) body: &'a str,
}

impl<'a> Head<'a> {
    /// Returns the names that the body binds with `let`.
    pub(super) fn let_names(&self) -> Vec<&'a str> {
        let name = |line: &'a str| line.trim().strip_prefix("let $")?.split([' ', '=']).next();
        self.body.lines().filter_map(name).collect()
    }
}

#[derive(Debug)]
pub(super) struct HeadRow<'a> {
    pub(super) name: &'a str,
    /// The unparsed `NAME=TEXT` pairs.
    pub(super) values: &'a str,
}

impl<'a> HeadRow<'a> {
    /// Returns whether the row is played in this dialect.
    pub(super) fn is_in(&self, dialect: Dialect) -> bool {
        let named = self.values.split(' ').find_map(|word| word.strip_prefix("dialect="));
        named.is_none_or(|word| word.parse() == Ok(dialect))
    }

    /// Returns the names that the row binds.
    pub(super) fn words(&self) -> Vec<&'a str> {
        let values = self.values;
        let words = std::iter::successors(Some(0..0), |last: &std::ops::Range<usize>| {
            let start = skip_blanks(values, last.end);
            (start < values.len()).then(|| start..value_end(values, start).0)
        });
        words.skip(1).filter_map(|word| Some(values[word].split_once('=')?.0)).collect()
    }
}

/// Returns whether the text contains `$word`, a reference to the name `word`.
pub(super) fn mentions(text: &str, word: &str) -> bool {
    text.match_indices('$').any(|(at, _)| {
        let named = text[at + 1..].trim_start_matches('{');
        named.strip_prefix(word).is_some_and(|after| !after.starts_with(super::expr::is_name_char))
    })
}

/// Returns the end offset of the `NAME=TEXT` pair that begins at `at`, and whether all of its braces are closed. The pair ends at a space
/// outside `<...>` and, if the text begins with a brace, outside `{...}`.
pub(super) fn value_end(content: &str, at: usize) -> (usize, bool) {
    let (mut within, mut depth) = (false, 0_usize);
    let is_braced = content[at..].split_once('=').is_some_and(|(_, text)| text.starts_with('{'));
    let mut chars = content[at..].char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        match c {
            '<' if !within && chars.peek().is_some_and(|(_, next)| *next == '<') => {
                chars.next();
            }
            '<' => within = true,
            '>' => within = false,
            '{' if is_braced => depth += 1,
            '}' if is_braced => depth = depth.saturating_sub(1),
            ' ' if !within && depth == 0 => return (at + offset, true),
            _ => {}
        }
    }
    (content.len(), depth == 0)
}

/// Parses only the head of a file.
pub(super) fn head(text: &str) -> Head<'_> {
    let mut head = Head::default();
    let mut rest = text;
    while !rest.is_empty() {
        head.body = rest;
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        rest = after;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (keyword, argument) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = argument.split_whitespace();
        match keyword {
            "tests" => head.tests = words.next().and_then(ImplementationKind::from_word),
            "dialect" => head.dialects.extend(words),
            "each" => head.each = words.next().map(|table| (table, words.skip(1).collect())),
            "row" => {
                let (name, values) = argument.trim_start().split_once(' ').unwrap_or((argument, ""));
                head.rows.push(HeadRow { name, values });
            }
            "use" | "let" | "repeat" | "only" | "end" => break,
            _ if KEYWORDS.contains(&keyword) => {}
            _ => break,
        }
    }
    head
}

const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// The parts of a step line, as spans within the line. `role` excludes brackets and the colon.
#[derive(Debug)]
pub(super) struct StepHead {
    /// The ranks; empty if the line has none.
    pub(super) ranks: Span,
    pub(super) role: Span,
    pub(super) cites: Option<Span>,
    /// The text after the verb, or after the role and its colon, without surrounding spaces.
    pub(super) rest: Span,
}

/// Splits `RANKS ROLE[ID]: REST`, `RANKS send[ID] REST` or `RANKS expect[ID] REST`. The ranks are optional.
pub(super) fn split_step(content: &str) -> Option<StepHead> {
    let first = word_end(content, 0);
    if let Some((role, cites, after)) = split_role(content, 0) {
        return Some(StepHead { ranks: Span::default(), role, cites, rest: trimmed(content, after) });
    }
    let second = skip_blanks(content, first);
    let (role, cites, after) = split_role(content, second)?;
    Some(StepHead { ranks: Span { start: 0, end: first }, role, cites, rest: trimmed(content, after) })
}

/// Parses `ROLE:` or `ROLE[ID]:` at `at`, or a verb, which has no colon. Returns the spans of the role and the id, and the offset after
/// them.
pub(super) fn split_role(content: &str, at: usize) -> Option<(Span, Option<Span>, usize)> {
    let bytes = content.as_bytes();
    let mut end = at;
    while bytes.get(end).is_some_and(u8::is_ascii_alphabetic) {
        end += 1;
    }
    if end == at {
        return None;
    }
    let role = Span { start: at, end };
    let is_verb = VERBS.contains(&role.of(content));
    let cites = match bytes.get(end) {
        Some(b'[') => Some(Span { start: end + 1, end: end + content[end..].find(']')? }),
        _ => None,
    };
    let after = cites.map_or(end, |cites| cites.end + 1);
    match bytes.get(after) {
        None | Some(b' ') if is_verb => Some((role, cites, after)),
        // `child:0` is not a role, but `P:exits 0` begins with a role.
        Some(b':') if !is_verb && (cites.is_some() || !is_group(role.of(content))) => {
            Some((role, cites, after + 1))
        }
        _ => None,
    }
}

/// The verbs for an action of the harness, and for an expected action of the implementation under test.
pub(super) const VERBS: [&str; 2] = ["send", "expect"];

fn is_group(word: &str) -> bool {
    // No role is longer than four bytes. Every longer word counts as a group, so that a misspelled group gets a specific error message.
    word.len() > 4
}

/// The first words of head lines and statements.
pub(super) const KEYWORDS: &[&str] = &[
    "requires", "tests", "dialect", "in", "needs", "ranks", "nodes", "schedule", "vary", "fault", "serve",
    "launch", "takes", "each", "row", "use", "let", "repeat", "only", "end",
];

fn looks_like_step(content: &str) -> bool {
    if KEYWORDS.contains(&&content[..word_end(content, 0)]) {
        return false;
    }
    content.starts_with(|c: char| c.is_ascii_digit() || c == '*')
        || content.starts_with("child")
        || content.starts_with("proxy:")
        || content.starts_with("stray:")
        || split_step(content).is_some_and(|head| {
            let role = head.role.of(content);
            VERBS.contains(&role) || role.len() <= 4
        })
}

/// Returns the end offset of the word that begins at `at`.
pub(super) fn word_end(content: &str, at: usize) -> usize {
    content[at..].find(' ').map_or(content.len(), |n| at + n)
}

/// Returns the offset of the first character at or after `at` that is not a space.
pub(super) fn skip_blanks(content: &str, at: usize) -> usize {
    content.len() - content[at..].trim_start_matches(' ').len()
}

/// Returns the span from `at` to the end of `content`, without surrounding spaces.
pub(super) fn trimmed(content: &str, at: usize) -> Span {
    let start = skip_blanks(content, at);
    let end = content.trim_end_matches(' ').len().max(start);
    Span { start, end }
}

/// Returns the spans of the words in `content`.
pub(super) fn words(content: &str) -> Vec<Span> {
    let mut words = Vec::new();
    let mut at = skip_blanks(content, 0);
    while at < content.len() {
        let end = word_end(content, at);
        words.push(Span { start: at, end });
        at = skip_blanks(content, end);
    }
    words
}

/// Returns the offset of the trailing comment of a head line or statement. Such a comment begins with `#` after a space.
pub(super) fn comment_start(content: &str) -> Option<usize> {
    content.find(" #").map(|blank| blank + 1)
}
