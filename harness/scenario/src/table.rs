//! Products of tables: `each` combines every row of a table with every row of a file. The names that a row binds are
//! its words. In the scenario of a combination, the words of both rows are replaced with their values.

use std::sync::{Arc, LazyLock};

use pmi_wire::Framing;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{self, Exchange};

use crate::ast::*;
use crate::print::heading_in;
use crate::visit::{self, VisitorMut};
use crate::{layout, parser};

/// The word of a row that names the only dialect in which the row is played.
const DIALECT: &str = "dialect";

/// Maximum length of a chain of words that refer to each other.
const MAX_DEPTH: usize = 8;

/// Returns the requests of a dialect that have a response and a function in the C API. Their words are `$request` and `$response`, `$given`
/// with the required fields of the request, and three misspelled variants of its command: `$longer`, `$shorter` and `$capitals`.
pub(crate) fn of_requests(dialect: Dialect) -> &'static Arc<[TableRow]> {
    static ROWS: LazyLock<[Arc<[TableRow]>; 2]> = LazyLock::new(|| Framing::ALL.map(requests));
    &ROWS[dialect as usize]
}

fn requests(framing: Framing) -> Arc<[TableRow]> {
    let named = |name: &str, text: Template| (Spanned::from(name.to_owned()), text);
    let word = |name: &str, word: &str| named(name, Template::default().tuples(word));
    let exchanges = protocol::documented_exchanges(framing).iter().filter(|exchange| {
        // Exclude blocks of lines, which have no `cmd` tuple.
        exchange.response.is_some() && exchange.omission().is_none() && !exchange.is_block
    });
    exchanges
        .map(|exchange| TableRow {
            name: exchange.operation.to_owned().into(),
            values: vec![
                word("request", exchange.request),
                word("response", exchange.response.unwrap_or_default()),
                named("given", given(exchange)),
                word("longer", &format!("{}s", exchange.request)),
                word("shorter", &exchange.request[..exchange.request.len() - 1]),
                word("capitals", &exchange.request.to_uppercase()),
            ],
        })
        .collect()
}

/// Returns the required fields of a request, with values that differ between ranks. The keyval space is that of the process.
fn given(exchange: &Exchange) -> Template {
    let required = exchange.arguments.iter().filter(|field| !field.optional && !field.numbered);
    required.enumerate().fold(Template::default(), |text, (place, field)| {
        let blank = if place == 0 { "" } else { " " };
        let text = text.tuples(&format!("{blank}{}=", field.key));
        match field.rule {
            Rule::Uint | Rule::Int => text.tuples("1"),
            _ if field.name == "kvsname" => text.with(Piece::Var("kvs".to_owned())),
            _ => text.tuples("of-").with(Piece::Var("rank".to_owned())),
        }
    })
}

/// Returns the rows of a fragment that is a table. The fragment's `let` statements give default values to words that a row lacks.
pub(crate) fn of_fragment(fragment: &Scenario) -> Arc<[TableRow]> {
    let mut rows = fragment.rows.clone();
    for row in &mut rows {
        for statement in &fragment.body {
            if let Statement::Let { name, value } = statement
                && row.text(&name.value).is_none()
            {
                row.values.push((name.clone(), value.clone()));
            }
        }
    }
    rows.into()
}

/// The name and the words of a table row.
pub(crate) struct RequestWords<'a> {
    pub(crate) name: &'a str,
    pub(crate) words: Vec<&'a str>,
}

impl<'a> From<&'a TableRow> for RequestWords<'a> {
    fn from(row: &'a TableRow) -> Self {
        let words = row.values.iter().map(|(name, _)| name.value.as_str()).collect();
        Self { name: &row.name.value, words }
    }
}

/// Returns the pairs of rows to combine, as the index of a row of the table and the index of a row of the file. `known` contains the words
/// of the table in all dialects. A row of the file that names a known word is paired only with table rows that have the word. If the body
/// names a known word, the same applies to all rows of the file.
pub(crate) fn pair_rows(
    dialect: Dialect,
    table: &[RequestWords<'_>],
    known: &[&str],
    but: &[&str],
    file: &layout::Head<'_>,
) -> Vec<(usize, Option<usize>)> {
    let named =
        |text: &str| known.iter().copied().filter(|word| layout::mentions(text, word)).collect::<Vec<_>>();
    let has_all = |row: &RequestWords<'_>, named: &[&str]| named.iter().all(|word| row.words.contains(word));
    let of_body = named(file.body);
    let of_file: Vec<_> = match file.rows.is_empty() {
        true => vec![(None, Vec::new())],
        false => (file.rows.iter().enumerate())
            .filter(|(_, row)| row.is_in(dialect))
            .map(|(place, row)| (Some(place), named(row.values)))
            .collect(),
    };
    let is_played = |row: &RequestWords<'_>| !but.contains(&row.name) && has_all(row, &of_body);
    let mut pairs = Vec::new();
    for (place, row) in table.iter().enumerate().filter(|(_, row)| is_played(row)) {
        let own = of_file.iter().filter(|(_, named)| has_all(row, named));
        pairs.extend(own.map(|(own, _)| (place, *own)));
    }
    pairs
}

/// Combines each row of a table with each row of a file into a single row. `known` contains the rows of the table in all dialects.
pub(crate) fn rows(
    dialect: Dialect,
    table: &[TableRow],
    known: &[&TableRow],
    but: &[&str],
    scenario: &Scenario,
) -> Vec<TableRow> {
    let words: Vec<RequestWords<'_>> = table.iter().map(RequestWords::from).collect();
    let known = distinct(known.iter().flat_map(|row| &row.values).map(|(name, _)| name.value.as_str()));
    let file = layout::head(&scenario.source.text);
    let joined = |(of_table, own): (usize, Option<usize>)| {
        let mut row = table[of_table].clone();
        if let Some(own) = own.map(|own| &scenario.rows[own]) {
            row.name = name(&row.name.value, Some(&own.name.value)).into();
            row.values.extend(own.values.iter().cloned());
        }
        row
    };
    pair_rows(dialect, &words, &known, but, &file).into_iter().map(joined).collect()
}

pub(crate) fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = words.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the name of the combination of the table row `row` and the file row `own`.
pub(crate) fn name(row: &str, own: Option<&str>) -> String {
    own.map_or_else(|| row.to_owned(), |own| format!("{row}.{own}"))
}

/// Replaces the words of the dialect with their values in a scenario and its rows, and removes the rows of other dialects.
pub(crate) fn write_dialect(scenario: &mut Scenario) {
    let dialect = scenario.dialect;
    let is_own = |text: &Template| text.literal().is_some_and(|word| word.parse() == Ok(dialect));
    scenario.rows.retain(|row| row.text(DIALECT).is_none_or(is_own));
    scenario.rows.iter_mut().for_each(|row| row.values.retain(|(name, _)| name.value != DIALECT));
    let (rows, is_crossed) = (&scenario.rows, scenario.each.is_some());
    open_only(&mut scenario.body, &|names| {
        let is_own = names.iter().any(|name| name.value.parse() == Ok(dialect));
        let has_row = is_crossed || names.iter().any(|name| rows.iter().any(|row| row.name == *name));
        match (is_own, has_row) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    });
    let all = std::mem::take(&mut scenario.dialect_words);
    if all.is_empty() {
        return;
    }
    let known = distinct(all.iter().flat_map(|(_, words)| &words.values).map(|(name, _)| &*name.value));
    let own = all.iter().filter(|(of, _)| *of == dialect).flat_map(|(_, words)| words.values.clone());
    let words = TableRow { name: String::new().into(), values: own.collect() };
    write(&words, true, &|name| known.contains(&name), scenario);
    remove_absent(&|name| known.contains(&name) && words.text(name).is_none(), &mut scenario.body);
    let texts = scenario.rows.iter_mut().flat_map(|row| &mut row.values);
    texts.for_each(|(_, text)| WordWriter(&words).template(text));
}

/// Replaces the words of a row with their values in the head, the `use` statements and the calls of a scenario. If `in_texts` is true, also
/// replaces them in the steps. A name for which `known` returns false is not replaced.
pub(crate) fn write(row: &TableRow, in_texts: bool, known: &dyn Fn(&str) -> bool, scenario: &mut Scenario) {
    let literal = |name: &str| WordWriter(row).word(name).and_then(|text| text.literal());
    let named = |id: &mut Spanned<String>| match id.value.strip_prefix('$') {
        Some(name) if known(name) => {
            id.value = literal(name).unwrap_or_default();
            !id.value.is_empty()
        }
        _ => true,
    };
    scenario.requires.retain_mut(named);
    scenario.requires = (scenario.requires.iter())
        .flat_map(|ids| ids.value.split(' ').map(|id| Spanned { value: id.to_owned(), span: ids.span }))
        .collect();
    let needs = literal("needs").unwrap_or_default();
    let needed =
        Capability::NAMES.into_iter().filter(|(word, _)| needs.split(' ').any(|named| named == *word));
    scenario.needs.extend(needed.map(|(_, need)| Spanned::from(need)));
    if let Some(ranks) = literal("ranks").and_then(|ranks| ranks.parse().ok()) {
        (scenario.ranks, scenario.server_setup.has_rank_count) = (ranks, true);
    }
    if let Some(nodes) = literal("nodes").and_then(|nodes| nodes.parse().ok()) {
        scenario.nodes = nodes;
    }
    if let Some(launch) = literal("launch") {
        scenario.server_setup.launch = Some(launch.into());
    }
    if in_texts {
        visit::body_mut(&mut WordWriter(row), &mut scenario.body);
    } else {
        visit::body_mut(&mut CallWordReplacer(row), &mut scenario.body);
    }
    scenario.body.retain_mut(|statement| match statement {
        Statement::Use { name, .. } => named(name),
        Statement::Step(Step { action: StepAction::Call(call), .. }) => {
            call.function.as_mut().is_none_or(named)
        }
        _ => true,
    });
}

impl Scenario {
    /// Returns whether the words of the rows are replaced with their values in the head and the steps, rather than bound as variables.
    pub(crate) fn is_product(&self) -> bool {
        let is_only = |statement: &Statement| matches!(statement, Statement::Only { .. });
        self.each.is_some()
            || self.requires.iter().any(|id| id.value.starts_with('$'))
            || self.body.iter().any(is_only)
    }

    /// Returns the scenario itself if it has no rows, or else a scenario for each row. The scenario of a row is named after the row and
    /// binds its words.
    pub fn expand_rows(self: &Arc<Self>) -> Vec<Arc<Self>> {
        if self.rows.is_empty() {
            return vec![Arc::clone(self)];
        }
        let is_product = self.is_product();
        let words = distinct(self.rows.iter().flat_map(|row| &row.values).map(|(name, _)| &*name.value));
        // The scenario of a row has neither rows nor the comments on them.
        let mut without = Self { rows: Vec::new(), each: None, ..Self::clone(self) };
        let end = self.rows.iter().map(|row| row.name.span.end).max();
        without.comments.retain(|comment| Some(comment.span.start) >= end);
        let with = |row: &TableRow| {
            let mut one = Self { name: Self::name_of_row(&self.name, &row.name.value), ..without.clone() };
            let bind = |(name, value): &(Spanned<String>, Template)| Statement::Let {
                name: name.clone(),
                value: value.clone(),
            };
            let is_row = |name: &Spanned<String>| row.name.value.split('.').any(|part| part == name.value);
            open_only(&mut one.body, &|names| Some(names.iter().any(is_row)));
            write(row, is_product, &|_| true, &mut one);
            // If the file has `each`, its rows are combined with those of a table. The combined rows have no comments in this file, and
            // bind all words.
            if self.each.is_none() {
                let heading = self.heading_of(row);
                if !heading.is_empty() {
                    one.heading = heading_in(self.dialect, &heading);
                }
                remove_absent(&|name| words.contains(&name) && row.text(name).is_none(), &mut one.body);
            }
            if !is_product {
                one.body.splice(0..0, row.values.iter().map(bind));
            }
            let setup = &mut one.server_setup;
            for variation in setup.variations.iter_mut().chain(&mut setup.fault) {
                if let Some(named) = row.variation(variation) {
                    *variation = named;
                }
            }
            Arc::new(one)
        };
        self.rows.iter().map(with).collect()
    }

    /// Returns the comment directly above a row.
    fn heading_of(&self, row: &TableRow) -> String {
        let mut next = self.source.line_of(row.name.span.start);
        let lines = self.comments.iter().rev().filter_map(|comment| match &comment.kind {
            CommentKind::Line(text) => Some((self.source.line_of(comment.span.start), text)),
            _ => None,
        });
        let row_line = next;
        let above = lines.skip_while(|(line, _)| *line >= row_line).map_while(|(line, text)| {
            let is_adjacent = line + 1 == next;
            next = line;
            is_adjacent.then_some(text.as_str())
        });
        let mut heading: Vec<&str> = above.collect();
        heading.reverse();
        heading.join(" ")
    }
}

/// Replaces each `only` block with its statements if `is_played` returns `Some(true)` for its names. Removes the block if the result is
/// `Some(false)`, and keeps it if the result is `None`.
fn open_only(body: &mut Vec<Statement>, is_played: &impl Fn(&[Spanned<String>]) -> Option<bool>) {
    for mut statement in std::mem::take(body) {
        if let Statement::Repeat { body, .. } | Statement::Only { body, .. } = &mut statement {
            open_only(body, is_played);
        }
        match statement {
            Statement::Only { names, body: inner, span, end } => match is_played(&names) {
                Some(true) => body.extend(inner),
                Some(false) => {}
                None => body.push(Statement::Only { names, body: inner, span, end }),
            },
            other => body.push(other),
        }
    }
}

/// Removes the lines, steps and outcomes that consist only of a word that the row lacks, and the citations of such words.
fn remove_absent(is_absent: &impl Fn(&str) -> bool, body: &mut Vec<Statement>) {
    let is_left = |action: &mut StepAction| match action {
        StepAction::Message { lines, .. } => {
            lines.retain(|line| !matches!(&line.pieces[..], [Piece::Var(name)] if is_absent(name)));
            !lines.is_empty()
        }
        _ => true,
    };
    let cites = |id: &mut Option<Spanned<String>>| {
        let is_left = |id: &str| !id.is_empty() && !id.strip_prefix('$').is_some_and(is_absent);
        *id = id.take().filter(|id| is_left(&id.value));
    };
    body.retain_mut(|statement| match statement {
        Statement::Repeat { body, .. } | Statement::Only { body, .. } => {
            remove_absent(is_absent, body);
            true
        }
        Statement::Step(step) => {
            if let StepAction::OneOf(outcomes) = &mut step.action {
                outcomes.retain_mut(|outcome| is_left(&mut outcome.action));
            }
            step.citations_mut().for_each(cites);
            is_left(&mut step.action)
        }
        _ => true,
    });
}

struct WordWriter<'a>(&'a TableRow);

impl<'t> VisitorMut<'t> for WordWriter<'_> {
    fn step(&mut self, step: &'t mut Step) {
        self.cites(step);
        if let StepAction::Call(call) = &mut step.action {
            self.call(call);
        }
        visit::action_mut(self, &mut step.action);
    }

    fn template(&mut self, template: &'t mut Template) {
        for _ in 0..MAX_DEPTH {
            if template.pieces.iter().all(|piece| self.named(piece).is_none()) {
                break;
            }
            for piece in std::mem::take(&mut template.pieces) {
                match self.named(&piece) {
                    Some(word) => word.pieces.iter().for_each(|piece| template.join(piece.clone())),
                    None => template.join(piece),
                }
            }
        }
        visit::template_mut(self, template);
    }

    fn expr(&mut self, expr: &'t mut Expr) {
        match expr {
            Expr::Var(name) => {
                let number = self.0.text(&name.value).and_then(|text| text.literal()?.parse().ok());
                if let Some(number) = number {
                    *expr = Expr::Number(number);
                }
            }
            Expr::Binary(left, _, right) => {
                self.expr(left);
                self.expr(right);
            }
            Expr::Number(_) => {}
        }
    }
}

/// A visitor that replaces words with their values in calls and citations only.
struct CallWordReplacer<'a>(&'a TableRow);

impl<'t> VisitorMut<'t> for CallWordReplacer<'_> {
    fn step(&mut self, step: &'t mut Step) {
        WordWriter(self.0).cites(step);
        if let StepAction::Call(call) = &mut step.action {
            WordWriter(self.0).call(call);
        }
    }
}

impl WordWriter<'_> {
    /// Returns the row's value for the word that a piece names, if any.
    fn named(&self, piece: &Piece) -> Option<&Template> {
        match piece {
            Piece::Var(name) => self.0.text(name),
            _ => None,
        }
    }

    /// Returns the value of a word, with all words inside it replaced by their own values.
    fn word(&self, name: &str) -> Option<Template> {
        let mut text = self.0.text(name)?.clone();
        WordWriter(self.0).template(&mut text);
        Some(text)
    }

    /// Replaces each word that the step or an outcome cites with the requirement that the row provides.
    fn cites(&self, step: &mut Step) {
        for id in step.citations_mut().flatten() {
            let word = id.value.strip_prefix('$').and_then(|name| self.word(name));
            id.value = word.and_then(|text| text.literal()).unwrap_or(std::mem::take(&mut id.value));
        }
    }

    /// Replaces a call `$name` with the call that the word contains. A result in the step takes precedence over a result in the word.
    fn call(&self, call: &mut Call) {
        let Some(function) = &call.function else { return };
        let Some(name) = function.value.strip_prefix('$') else { return };
        let Some(text) = self.word(name).filter(|text| !text.is_empty()) else { return };
        let Some(written) = parser::call(&text.to_string()) else { return };
        let span = function.span;
        let returns = std::mem::replace(call, written);
        call.function.iter_mut().for_each(|function| function.span = span);
        if returns.result.is_some() {
            (call.result, call.outs) = (returns.result, returns.outs);
        }
    }
}

impl Template {
    /// Appends a piece. Unquoted text is merged with preceding unquoted text.
    fn join(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (
                Some(Piece::Literal { bytes, quoted: false }),
                Piece::Literal { bytes: more, quoted: false },
            ) => bytes.extend(more),
            (_, piece) => self.pieces.push(piece),
        }
    }
}
