//! The canonical layout. It works on the text, since the tree has no comments, and changes only blanks: where a
//! blank may mean something, within messages and texts, nothing is touched.

use super::{
    ast::{Scenario, Span},
    layout::{self, KEYWORDS, Line, LineKind, StepHead},
};

/// Per level of `repeat`, and for further lines of an outcome.
const INDENT: usize = 2;

/// The file in its canonical layout: roles aligned two blanks after the longest ranks, further lines below the
/// text of their step, one blank line at most, comments kept.
pub fn format(scenario: &Scenario) -> String {
    let text = scenario.source.text.as_str();
    let lines = layout::lines(text);
    let mut formatter = Formatter {
        text,
        out: String::with_capacity(text.len() + 64),
        depth: 0,
        role_column: role_column(text, &lines),
        one_of: false,
        outcome_indent: None,
    };
    let mut blank = false;
    for (index, line) in lines.iter().enumerate() {
        if line.kind == LineKind::Blank {
            blank = !formatter.out.is_empty();
            continue;
        }
        if std::mem::take(&mut blank) {
            formatter.out.push('\n');
        }
        match line.kind {
            LineKind::Comment => {
                let next =
                    lines[index..].iter().find(|l| !matches!(l.kind, LineKind::Blank | LineKind::Comment));
                let within_step = next.is_some_and(|next| next.kind == LineKind::More);
                formatter.comment(line, within_step);
            }
            LineKind::More => formatter.more(line),
            _ => formatter.first(line.span.of(text)),
        }
    }
    formatter.out
}

fn keyword(content: &str) -> Option<&str> {
    let word = &content[..layout::word_end(content, 0)];
    KEYWORDS.contains(&word).then_some(word)
}

fn role_column(text: &str, lines: &[Line]) -> usize {
    let mut depth = 0usize;
    let mut longest = 0;
    for line in lines.iter().filter(|line| line.kind == LineKind::First) {
        let content = line.span.of(text);
        match keyword(content) {
            Some("repeat") => depth += 1,
            Some("end") => depth = depth.saturating_sub(1),
            Some(_) => {}
            None => {
                if let Some(StepHead { ranks, .. }) = layout::split_step(content)
                    && ranks.start < ranks.end
                {
                    longest = longest.max(depth * INDENT + ranks.end - ranks.start);
                }
            }
        }
    }
    longest + 2
}

struct Formatter<'a> {
    text: &'a str,
    out: String,
    depth: usize,
    role_column: usize,
    /// Whether the step that is being written is `one of`, and how far its last outcome was indented.
    one_of: bool,
    outcome_indent: Option<usize>,
}

impl Formatter<'_> {
    fn line(&mut self, indent: usize, content: &str) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.out.push_str(content);
        self.out.push('\n');
    }

    /// Where the text of a step begins: after the role and `: `.
    fn text_column(&self) -> usize {
        self.role_column + 3
    }

    fn comment(&mut self, line: &Line, within_step: bool) {
        let indent = if within_step { self.text_column() } else { self.depth * INDENT };
        let content = line.span.of(self.text);
        self.line(indent, content);
    }

    fn first(&mut self, content: &str) {
        if let Some(word) = keyword(content) {
            self.statement(word, content);
        } else if let Some(head) = layout::split_step(content) {
            self.step(content, &head);
        } else {
            // Not a scenario that was parsed; left as it is.
            self.line(self.depth * INDENT, content);
        }
    }

    fn statement(&mut self, word: &str, content: &str) {
        if word == "end" {
            self.depth = self.depth.saturating_sub(1);
        }
        let comment = layout::comment_start(content);
        let before = &content[..comment.unwrap_or(content.len())];
        let code = before.trim_end_matches(' ');
        let mut line = match (word, code.find('=')) {
            ("let", Some(equals)) => {
                let name = words(&code["let".len()..equals]);
                let value = code[equals + 1..].trim_matches(' ');
                // After a blank, a `#` would begin a comment.
                let blank = if value.starts_with('#') { "" } else { " " };
                format!("let {name} ={blank}{value}").trim_end_matches(' ').to_owned()
            }
            _ => words(code),
        };
        if let Some(comment) = comment {
            // Comments that were lined up stay lined up.
            let gap = (before.len() - code.len()).max(2);
            line.extend(std::iter::repeat_n(' ', gap));
            line.push_str(&content[comment..]);
        }
        self.line(self.depth * INDENT, &line);
        if word == "repeat" {
            self.depth += 1;
        }
    }

    fn step(&mut self, content: &str, head: &StepHead) {
        let indent = self.depth * INDENT;
        let ranks = head.ranks.of(content);
        let role = head.role.of(content);
        let rest = head.rest.of(content);
        let rest = match role {
            "C" | "S" => exchange(rest),
            "P" => process(rest),
            "J" => words(rest),
            _ => rest.to_owned(),
        };
        self.one_of = rest == "one of";
        self.outcome_indent = None;
        let mut line = ranks.to_owned();
        if !ranks.is_empty() {
            let width = self.role_column.saturating_sub(indent).max(ranks.len() + 1);
            line.extend(std::iter::repeat_n(' ', width - ranks.len()));
        }
        line.push_str(&labelled(role, head.cites.map(|span| span.of(content)), &rest));
        self.line(indent, &line);
    }

    fn more(&mut self, line: &Line) {
        let content = line.span.of(self.text);
        if !self.one_of {
            return self.line(self.text_column(), content);
        }
        if self.outcome_indent.is_some_and(|outcome| line.indent > outcome) {
            return self.line(self.text_column() + INDENT, content);
        }
        self.outcome_indent = Some(line.indent);
        let outcome = match layout::split_role(content, 0) {
            Some((grade, cites, after)) => {
                let rest: Span = layout::trimmed(content, after);
                labelled(grade.of(content), cites.map(|span| span.of(content)), &exchange(rest.of(content)))
            }
            None => content.to_owned(),
        };
        self.line(self.text_column(), &outcome);
    }
}

/// `ROLE[ID]: REST`.
fn labelled(role: &str, cites: Option<&str>, rest: &str) -> String {
    let cites = cites.map(|id| format!("[{id}]")).unwrap_or_default();
    format!("{role}{cites}: {rest}").trim_end_matches(' ').to_owned()
}

/// The words, one blank between them.
fn words(content: &str) -> String {
    content.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn exchange(rest: &str) -> String {
    let all = words(rest);
    if all == "one of" {
        return all;
    }
    let mut line = String::new();
    let mut rest = rest;
    loop {
        let end = layout::word_end(rest, 0);
        if !matches!(&rest[..end], "bytewise" | "partial" | "every") {
            break;
        }
        line.push_str(&rest[..end]);
        line.push(' ');
        rest = rest[end..].trim_matches(' ');
    }
    line.push_str(rest);
    line.trim_end_matches(' ').to_owned()
}

fn process(rest: &str) -> String {
    let end = layout::word_end(rest, 0);
    format!("{} {}", &rest[..end], rest[end..].trim_matches(' ')).trim_end_matches(' ').to_owned()
}
