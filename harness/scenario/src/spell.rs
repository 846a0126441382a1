//! Spells operations: replaces the operations that a scenario names with the messages of a dialect.
//!
//! A message line that begins with the name of an operation is not literal text: `send put key=a value=b` denotes the request of the
//! operation `put`. In an `expect` step, `ok`, `fail`, `miss` and `answer` denote responses to the preceding request. The protocol table
//! defines the messages on the wire.

use std::sync::Arc;

use pmi_wire::Framing;
use pmi_wire::protocol::{self, DerivedValue, Exchange};

use crate::ast::*;
use crate::diag::{Diagnostic, DiagnosticSink};
use crate::print::heading_in;
use crate::requirement::{Catalogue, RequirementSet};
use crate::scope::FIRST_ARGUMENT;
use crate::table;
use crate::template::TemplateField;
use crate::visit;

/// Fields whose values extend to the end of the line.
const TRAILING_FIELDS: &[&str] = &["value", "msg"];

/// Returns the prefix of the names of scenarios and fragments in a dialect: `pmi2` and `separator` for PMI-2, and an empty string for
/// PMI-1.
pub(crate) fn dialect_prefix(dialect: Dialect, separator: &str) -> String {
    if dialect == Dialect::default() { String::new() } else { format!("pmi2{separator}") }
}

impl Scenario {
    pub(crate) fn dialects(&self) -> impl Iterator<Item = Dialect> {
        std::iter::once(self.dialect).chain(self.other_dialects.iter().copied())
    }

    /// Returns the name under which the scenario is played in one of its dialects.
    pub(crate) fn name_in(&self, dialect: Dialect) -> String {
        name_in(&self.name, self.dialect, dialect)
    }
}

/// Converts the name of a scenario or fragment into its name in `dialect`. `name` is the name in `first`, the first dialect of the head.
pub(crate) fn name_in(name: &str, first: Dialect, dialect: Dialect) -> String {
    match name.rsplit_once("fragments/") {
        _ if dialect == first => name.to_owned(),
        Some((folder, name)) => format!("{folder}fragments/{}{name}", dialect_prefix(dialect, "-")),
        None => dialect_prefix(dialect, "/") + name,
    }
}

/// The catalogue and the fragments that a scenario refers to.
pub(crate) struct References<'a> {
    /// The requirements. Requirements of different dialects may share a rule.
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) has_fragment: &'a dyn Fn(&str) -> bool,
    pub(crate) rows: &'a dyn Fn(&str) -> Arc<[TableRow]>,
}

impl References<'_> {
    fn table(&self, name: &str, dialect: Dialect) -> Option<Arc<[TableRow]>> {
        if name == Each::REQUEST {
            return Some(Arc::clone(table::of_requests(dialect)));
        }
        let own = dialect_prefix(dialect, "-") + name;
        let rows = (self.rows)(if (self.has_fragment)(&own) { &own } else { name });
        (!rows.is_empty()).then_some(rows)
    }
}

/// Returns the scenario in one of its dialects. Replaces operations with messages, rules with requirements of the dialect, and fragments
/// with those of the dialect. Drops the requirements of other dialects.
///
/// # Errors
///
/// Returns an error if the dialect lacks an operation, a field or an outcome.
pub(crate) fn spell(
    scenario: &Scenario,
    dialect: Dialect,
    references: &References<'_>,
) -> Result<Scenario, Vec<Diagnostic>> {
    let mut speller = Speller {
        dialect,
        has_other_dialects: !scenario.other_dialects.is_empty(),
        references,
        sink: DiagnosticSink::new(Arc::clone(&scenario.source)),
        requests: Vec::new(),
    };
    let name = scenario.name_in(dialect);
    let mut spelled = Scenario { name, dialect, other_dialects: Vec::new(), ..scenario.clone() };
    if dialect != scenario.dialect {
        spelled.heading = heading_in(dialect, &scenario.summary());
    }
    if let Some(each) = &scenario.each {
        spelled.rows = speller.rows(each, scenario);
    }
    table::write_dialect(&mut spelled);
    for named in std::mem::take(&mut spelled.requires) {
        // A requirement to which several rules map is kept once. Duplicates in the file remain, because the checker reports them.
        let is_new = |id: &Spanned<String>| named == *id || !spelled.requires.contains(id);
        spelled.requires.extend(speller.requirement(&named).filter(is_new));
    }
    speller.body(&mut spelled.body);
    let mut rows = std::mem::take(&mut spelled.rows);
    speller.cited_words(&spelled, &mut rows);
    spelled.rows = rows;
    let wrong = speller.sink.finish();
    if wrong.is_empty() { Ok(spelled) } else { Err(wrong) }
}

/// A word that names the outcome of a request in a response line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutcomeWord {
    /// `ok`: success.
    Ok,
    /// `fail`: a refusal.
    Fail,
    /// `miss`: the key or name does not exist.
    Miss,
    /// `answer`: any response.
    Answer,
}

impl Piece {
    /// Creates a piece of unquoted text.
    fn text(text: &str) -> Self {
        Self::Literal { bytes: text.into(), quoted: false }
    }
}

impl OutcomeWord {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "ok" => Self::Ok,
            "fail" => Self::Fail,
            "miss" => Self::Miss,
            "answer" => Self::Answer,
            _ => return None,
        })
    }
}

struct Speller<'a> {
    dialect: Dialect,
    /// True if the scenario is also played in another dialect.
    has_other_dialects: bool,
    references: &'a References<'a>,
    sink: DiagnosticSink,
    /// The requested operations, with the processes that requested them.
    requests: Vec<(StepTarget, &'static str)>,
}

/// Returns the operation that the first word of a line names, if any. The operation may belong to any dialect.
fn operation(line: &Template) -> Option<&'static str> {
    let word = first_word(line)?;
    protocol::all_exchanges().map(|exchange| exchange.operation).find(|operation| *operation == word)
}

/// Returns the first word of a line, or `None` if the line does not begin with an unquoted word.
fn first_word(line: &Template) -> Option<&str> {
    match line.pieces.first()? {
        Piece::Literal { bytes, quoted: false } => {
            let text = std::str::from_utf8(bytes).ok()?;
            let word = text.split(' ').next()?;
            (word.len() < text.len() || line.pieces.len() == 1).then_some(word)
        }
        _ => None,
    }
}

/// Returns whether the requests of an operation have a field with this name in some dialect.
fn is_field(operation: &str, name: &str) -> bool {
    protocol::all_exchanges()
        .any(|exchange| exchange.operation == operation && exchange.argument(name).is_some())
}

/// Returns the key of a field, followed by `number` if the field is numbered.
fn numbered_key(field: &protocol::Field, number: u64) -> String {
    if field.numbered { format!("{}{number}", field.key) } else { field.key.to_owned() }
}

/// Returns the name of a numbered field, followed by `number`.
fn numbered_name(field: &protocol::Field, number: u64) -> String {
    format!("{}{number}", field.name)
}

/// Returns the default value of a field of one program in a spawn request, or `None` if the field has no default. `place` is the index of
/// the program, and `programs` the number of programs.
fn default_of(
    field: &protocol::Field,
    exchange: &Exchange,
    (place, programs): (usize, usize),
    given: &[&TemplateField],
) -> Option<Piece> {
    let number = |number: usize| Some(Piece::text(&number.to_string()));
    match field.derived {
        Some(DerivedValue::Programs) => number(programs),
        Some(DerivedValue::ProgramsSoFar) => number(place + 1),
        Some(DerivedValue::Fields(name)) => {
            let named = exchange.arguments.iter().find(|field| field.name == name)?;
            number(given.iter().filter(|given| named.number(&given.key).is_some()).count())
        }
        None if field.name == "nprocs" => number(1),
        None if field.name == "execname" => Some(Piece::Var("agent".to_owned())),
        None => None,
    }
}

/// Appends the key of a field to a line of a spawn request. The number of the first argument is 0 or 1, depending on the server.
fn block_key(line: Template, field: &protocol::Field, number: u64) -> Template {
    if field.name != "arg" {
        return line.tuples(&numbered_key(field, number));
    }
    let first = Expr::Var(Spanned::from(FIRST_ARGUMENT.to_owned()));
    let number = match number {
        0 => first,
        number => Expr::Binary(Box::new(first), BinOp::Add, Box::new(Expr::Number(number.cast_signed()))),
    };
    line.tuples(field.key).with(Piece::Calc(number))
}

fn without_first_word(line: &Template) -> Template {
    let mut rest = line.clone();
    if let Some(Piece::Literal { bytes, .. }) = rest.pieces.first_mut() {
        let end = bytes.iter().position(|byte| *byte == b' ').map_or(bytes.len(), |blank| blank + 1);
        bytes.drain(..end);
    }
    rest
}

/// Returns whether two steps may apply to the same process.
fn targets_overlap(one: &StepTarget, other: &StepTarget) -> bool {
    let (one, other) = match (one, other) {
        (StepTarget::Ranks { group: a, set: one }, StepTarget::Ranks { group: b, set: other }) if a == b => {
            (one, other)
        }
        (StepTarget::Spawned { set: one, .. }, StepTarget::Spawned { set: other, .. }) => (one, other),
        _ => return false,
    };
    match (one, other) {
        (RankSet::Ranges(one), RankSet::Ranges(other)) => {
            one.iter().any(|(from, to)| other.iter().any(|(start, end)| from <= end && start <= to))
        }
        _ => true,
    }
}

/// Adds a tuple to a message. In frames, a space in the value is part of the value.
fn tuple(message: Template, key: &str, value: &[Piece], framing: Framing) -> Template {
    value.iter().fold(message.tuples(&format!(" {key}=")), |mut message, piece| match piece {
        Piece::Literal { bytes, quoted: false } => {
            message.add(bytes, |_, byte| framing == Framing::Frames && byte == b' ');
            message
        }
        other => message.with(other.clone()),
    })
}

impl Speller<'_> {
    /// Returns the combinations of the table's rows in this dialect with the rows of the scenario.
    fn rows(&mut self, each: &Each, scenario: &Scenario) -> Vec<TableRow> {
        let tables = Dialect::ALL.map(|dialect| self.references.table(&each.table.value, dialect));
        let Some(table) = &tables[self.dialect as usize] else {
            let message = format!("there is no table `{}`", each.table.value);
            self.sink.error(each.table.span, message).help("a table is a fragment that has rows");
            return Vec::new();
        };
        let known: Vec<&TableRow> = tables.iter().flatten().flat_map(|table| &**table).collect();
        for name in each.except.iter().filter(|name| known.iter().all(|row| row.name.value != name.value)) {
            let message = format!("table `{}` has no row `{}`", each.table.value, name.value);
            self.sink.error(name.span, message);
        }
        let but: Vec<&str> = each.except.iter().map(|name| name.value.as_str()).collect();
        table::rows(self.dialect, table, &known, &but, scenario)
    }

    /// Replaces rules with requirements of the dialect in all row values that the scenario requires or cites.
    fn cited_words(&self, scenario: &Scenario, rows: &mut [TableRow]) {
        let cited = visit::steps(&scenario.body).flat_map(Step::citations);
        let ids = scenario.requires.iter().chain(cited);
        let words: Vec<&str> = ids.filter_map(|id| id.value.strip_prefix('$')).collect();
        for (name, value) in rows.iter_mut().flat_map(|row| &mut row.values) {
            let Some(text) = value.literal().filter(|_| words.contains(&&*name.value)) else { continue };
            let ids = text.split(' ').map(|id| Spanned { value: id.to_owned(), span: value.span });
            let mut own: Vec<String> = Vec::new();
            for id in ids.filter_map(|id| self.requirement(&id)) {
                // A requirement to which several rules map is listed once.
                if !own.contains(&id.value) {
                    own.push(id.value);
                }
            }
            *value = Template { span: value.span, ..Template::default() }.tuples(&own.join(" "));
        }
    }

    /// Returns the requirement of the dialect that has this id or this rule.
    fn requirement(&self, id: &Spanned<String>) -> Option<Spanned<String>> {
        if id.value.starts_with('$') {
            // The id is a word of a row, written as `$name`.
            return Some(id.clone());
        }
        let catalogue = self.references.catalogue;
        let ours = |id: &str| RequirementSet::of(id).dialect().is_none_or(|dialect| dialect == self.dialect);
        if catalogue.get(&id.value).is_some() {
            return (!self.has_other_dialects || ours(&id.value)).then(|| id.clone());
        }
        let mut of_rule = catalogue.of_rule(&id.value).peekable();
        if of_rule.peek().is_none() {
            // The checker reports unknown ids.
            return Some(id.clone());
        }
        let found = of_rule.find(|requirement| ours(&requirement.id))?;
        Some(Spanned { value: found.id.clone(), span: id.span })
    }

    fn body(&mut self, body: &mut [Statement]) {
        for statement in body {
            match statement {
                Statement::Use { name, .. } => {
                    let own = dialect_prefix(self.dialect, "-") + &name.value;
                    if (self.references.has_fragment)(&own) {
                        name.value = own;
                    }
                }
                Statement::Repeat { body, .. } | Statement::Only { body, .. } => self.body(body),
                Statement::Step(step) => self.step(step),
                Statement::Let { .. } => {}
            }
        }
    }

    fn step(&mut self, step: &mut Step) {
        let named = step.cites.take();
        step.cites = named.as_ref().and_then(|id| self.requirement(id));
        if let (Some(id), None) = (&named, &step.cites) {
            let message = format!("{} has no requirement for the rule `{}`", self.dialect.title(), id.value);
            self.sink
                .error(id.span, message)
                .help("cite a rule that exists in every dialect of the scenario");
        }
        let Step { target, role, cites, action, span } = step;
        match action {
            StepAction::OneOf(alternatives) => {
                let mut spelled = Vec::new();
                for mut alternative in std::mem::take(alternatives) {
                    let cited = alternative.cites.take();
                    alternative.cites = cited.as_ref().and_then(|id| self.requirement(id));
                    if alternative.cites.is_none() && cited.is_some() {
                        // The outcome cites a requirement that does not exist in this dialect, so the outcome is omitted.
                        continue;
                    }
                    if alternative.cites == *cites && cited != named {
                        // In this dialect, the step and the outcome cite the same requirement, so the outcome need not repeat it.
                        alternative.cites = None;
                    }
                    let actions = self.actions(target, *role, &alternative.action);
                    spelled.extend(
                        actions.into_iter().map(|action| Alternative { action, ..alternative.clone() }),
                    );
                }
                *alternatives = spelled;
            }
            other => {
                let mut actions = self.actions(target, *role, other);
                *other = match actions.len() {
                    1 => actions.swap_remove(0),
                    _ => {
                        let pass =
                            |action| Alternative { grade: Grade::Pass, cites: None, action, span: *span };
                        StepAction::OneOf(actions.into_iter().map(pass).collect())
                    }
                };
            }
        }
    }

    /// Returns the spellings of an action in the dialect.
    fn actions(&mut self, target: &StepTarget, role: Role, action: &StepAction) -> Vec<StepAction> {
        let StepAction::Message { mode, lines } = action else { return vec![action.clone()] };
        if mode.encoding != Encoding::Dialect || !matches!(role, Role::Client | Role::Server) {
            return vec![action.clone()];
        }
        if role == Role::Client {
            let lines = self.requests(target, lines);
            return vec![StepAction::Message { mode: *mode, lines }];
        }
        let mut all = vec![Vec::new()];
        for line in lines {
            let ways = self.response(target, line).unwrap_or_else(|| vec![line.clone()]);
            all = all
                .iter()
                .flat_map(|before: &Vec<Template>| {
                    ways.iter().map(move |way| before.iter().cloned().chain([way.clone()]).collect())
                })
                .collect();
        }
        all.into_iter().map(|lines| StepAction::Message { mode: *mode, lines }).collect()
    }

    /// Returns the messages of a step: the messages of its operations, and all other lines unchanged. Lines that begin with a field of an
    /// operation continue that operation.
    fn requests(&mut self, target: &StepTarget, mut lines: &[Template]) -> Vec<Template> {
        let mut messages = Vec::new();
        while let Some((line, further)) = lines.split_first() {
            let Some(operation) = operation(line) else {
                messages.push(line.clone());
                lines = further;
                continue;
            };
            let continues = |line: &&Template| {
                line.fields(TRAILING_FIELDS).first().is_some_and(|field| is_field(operation, &field.key))
            };
            let count = further.iter().take_while(continues).count();
            lines = &further[count..];
            let mut fields = without_first_word(line).fields(TRAILING_FIELDS);
            fields.extend(further[..count].iter().flat_map(|line| line.fields(TRAILING_FIELDS)));
            let request = self.request(target, operation, &fields, line);
            messages.extend(request.unwrap_or_else(|| vec![line.clone()]));
        }
        messages
    }

    /// Returns the lines of a request with these fields.
    fn request(
        &mut self,
        target: &StepTarget,
        operation: &'static str,
        fields: &[TemplateField],
        line: &Template,
    ) -> Option<Vec<Template>> {
        self.requests.push((target.clone(), operation));
        let exchange = self.exchange(operation, line)?;
        if operation == "spawn" {
            return self.spawn(exchange, fields, line);
        }
        let framing = self.dialect.framing();
        let mut message =
            Template { span: line.span, ..Template::default() }.tuples(&format!("cmd={}", exchange.request));
        let has = |key: &str| fields.iter().any(|field| field.key == key);
        for (key, value) in self.defaults(exchange, target).into_iter().filter(|(key, _)| !has(key)) {
            message = tuple(message, key, &[value], framing);
        }
        for field in fields {
            let keys = self.keys(exchange, exchange.arguments, field, line)?;
            message = tuple(message, keys.first()?, &field.value.pieces, framing);
        }
        Some(vec![message])
    }

    /// Returns the lines of a request to spawn programs. A field that the current program already has marks the beginning of the next
    /// program. By default, the program is the agent, one process is requested, and the counts are correct.
    fn spawn(
        &mut self,
        exchange: &Exchange,
        fields: &[TemplateField],
        line: &Template,
    ) -> Option<Vec<Template>> {
        let mut programs: Vec<Vec<&TemplateField>> = vec![Vec::new()];
        let mut shared = Vec::new();
        for field in fields {
            let Some(known) = exchange.argument(&field.key) else {
                self.unknown_field(exchange, exchange.arguments, &field.key, line);
                return None;
            };
            let program = programs.last_mut()?;
            match known.shared {
                true => shared.push(field),
                false if program.iter().any(|other| other.key == field.key) => programs.push(vec![field]),
                false => program.push(field),
            }
        }
        let framing = self.dialect.framing();
        let start = || Template { span: line.span, ..Template::default() };
        let mut message = start().tuples(&format!("cmd={}", exchange.request));
        let mut block = Vec::new();
        for (place, program) in programs.iter().enumerate() {
            block.push(start().tuples(&format!("mcmd={}", exchange.request)));
            let given: Vec<_> = program.iter().chain(&shared).copied().collect();
            // Consecutive numbered fields form a pair.
            for pair in exchange.arguments.chunk_by(|field, next| field.numbered && next.numbered) {
                if framing == Framing::Frames && place > 0 && pair[0].shared {
                    continue;
                }
                let of = |field: &protocol::Field, number| {
                    given
                        .iter()
                        .find(|given| field.number(&given.key) == Some(number))
                        .map(|given| &given.value)
                };
                let is_given = |number: &u64| pair.iter().any(|field| of(field, *number).is_some());
                let count = if pair[0].numbered { (0..).take_while(is_given).count() as u64 } else { 1 };
                let is_left_out = |given: &&&TemplateField| {
                    pair.iter().any(|field| field.number(&given.key).is_some_and(|number| number >= count))
                };
                if let Some(given) = given.iter().find(is_left_out) {
                    let missing = numbered_name(&pair[0], count);
                    self.sink
                        .error(line.span, format!("`{}` without `{missing}`", given.key))
                        .help("numbers begin with 0 and have no gaps");
                    return None;
                }
                for (number, field) in (0..count).flat_map(|n| pair.iter().map(move |field| (n, field))) {
                    let default = || default_of(field, exchange, (place, programs.len()), &given);
                    let own = of(field, number).map(|value| value.pieces.clone());
                    let Some(value) = own.or_else(|| Some(vec![default()?])) else { continue };
                    match framing {
                        Framing::Frames => {
                            message = tuple(message, &numbered_key(field, number), &value, framing);
                        }
                        Framing::Lines => {
                            let key = block_key(start(), field, number);
                            block.push(value.into_iter().fold(key.tuples("="), Template::with));
                        }
                    }
                }
            }
            block.push(start().tuples("endcmd"));
        }
        Some(framing.pick([block, vec![message]]))
    }

    /// Returns the acceptable responses for a line that names an outcome, or `None` if it names no outcome or contains a mistake.
    fn response(&mut self, target: &StepTarget, line: &Template) -> Option<Vec<Template>> {
        let (operation, outcome) = match operation(line) {
            Some(operation) => (Some(operation), without_first_word(line)),
            None => (None, line.clone()),
        };
        let word = OutcomeWord::from_word(first_word(&outcome)?)?;
        let latest_request = || {
            self.requests
                .iter()
                .rev()
                .find(|(by, _)| targets_overlap(by, target))
                .map(|(_, operation)| *operation)
        };
        let Some(operation) = operation.or_else(latest_request) else {
            self.sink
                .error(line.span, "a response without a request")
                .help("name the operation first, as in `get ok value=v`");
            return None;
        };
        let exchange = self.exchange(operation, line)?;
        let Some(response) = exchange.response else {
            self.sink.error(line.span, format!("`{operation}` has no response in {}", self.dialect.title()));
            return None;
        };
        let framing = self.dialect.framing();
        let begin = |rc: Option<ValueType>| {
            let message =
                Template { span: line.span, ..Template::default() }.tuples(&format!("cmd={response}"));
            rc.into_iter().fold(message, |message, rc| tuple(message, "rc", &[Piece::Typed(rc)], framing))
        };
        let mut ways = vec![begin(match word {
            OutcomeWord::Ok => Some(ValueType::RcOk),
            OutcomeWord::Fail | OutcomeWord::Miss => Some(ValueType::RcFail),
            OutcomeWord::Answer => None,
        })];
        let is_found = |field: &protocol::Field| matches!(field.key, "flag" | "found");
        let mut fields = without_first_word(&outcome).fields(TRAILING_FIELDS);
        if word == OutcomeWord::Ok && framing == Framing::Frames && fields.is_empty() {
            // In PMI-2, a successful response without a value reports a miss, so `ok` also requires the value.
            let value = exchange.results.iter().find(|field| !is_found(field));
            let any = || Template { pieces: vec![Piece::Typed(ValueType::Any)], span: line.span };
            let value = value.filter(|_| exchange.results.iter().any(is_found));
            fields.extend(value.map(|field| TemplateField { key: field.name.to_owned(), value: any() }));
        }
        for field in fields {
            let keys = self.keys(exchange, exchange.results, &field, line)?;
            let add = |way: &Template, key: &&str| tuple(way.clone(), key, &field.value.pieces, framing);
            ways = ways
                .iter()
                .flat_map(|way| keys.iter().map(|key| add(way, key)).collect::<Vec<_>>())
                .collect();
        }
        if word == OutcomeWord::Miss && framing == Framing::Frames {
            let values = exchange.results.iter().filter(|field| !is_found(field));
            let absent = |message, field: &protocol::Field| {
                tuple(message, field.key, &[Piece::Typed(ValueType::Absent)], framing)
            };
            ways.insert(0, values.fold(begin(Some(ValueType::RcOk)), absent));
        }
        Some(ways)
    }

    /// Returns the exchange of an operation. For `get-job-attribute` in PMI-1, this is the exchange of `get`, because PMI-1 stores job
    /// attributes in the keyval space.
    fn exchange(&mut self, operation: &str, line: &Template) -> Option<&'static Exchange> {
        let framing = self.dialect.framing();
        let named = |name: &str| protocol::exchanges(framing).find(|exchange| exchange.operation == name);
        let attribute = || named("get").filter(|_| operation == "get-job-attribute");
        let found = named(operation).or_else(attribute);
        if found.is_none() {
            let message = format!("{} has no operation `{operation}`", self.dialect.title());
            self.sink
                .error(line.span, message)
                .help("in the head, name only dialects that have this operation: `dialect NAME`");
        }
        found
    }

    /// Returns the keys that a field of an exchange has on the wire, or `None` if the exchange has no such field.
    fn keys(
        &mut self,
        exchange: &Exchange,
        fields: &'static [protocol::Field],
        field: &TemplateField,
        line: &Template,
    ) -> Option<Vec<&'static str>> {
        let named: Vec<_> =
            fields.iter().filter(|f| f.name == field.key && !f.numbered).map(|f| f.key).collect();
        if named.is_empty() {
            self.unknown_field(exchange, fields, &field.key, line);
            return None;
        }
        Some(named)
    }

    fn unknown_field(
        &mut self,
        exchange: &Exchange,
        fields: &'static [protocol::Field],
        key: &str,
        line: &Template,
    ) {
        let message = format!("in {}, `{}` has no field `{key}`", self.dialect.title(), exchange.operation);
        let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
        self.sink.error(line.span, message).suggest(key, &known);
    }

    /// Returns the fields that a request has by default: the keyval space of the process, the number of info keys (0), or the scope and
    /// reason of an abort.
    fn defaults(&self, exchange: &Exchange, target: &StepTarget) -> Vec<(&'static str, Piece)> {
        let text = Piece::text;
        let is_spawned = !matches!(target, StepTarget::Ranks { group: 0, .. });
        let own = Piece::Var(if is_spawned { "child_kvs" } else { "kvs" }.to_owned());
        match (self.dialect.framing(), exchange.operation) {
            (Framing::Lines, "put" | "get") => vec![("kvsname", own)],
            (Framing::Frames, "publish" | "lookup" | "unpublish") => vec![("infokeycount", text("0"))],
            (Framing::Frames, "abort") => vec![("isworld", text("TRUE")), ("msg", text("abort"))],
            _ => Vec::new(),
        }
    }
}
